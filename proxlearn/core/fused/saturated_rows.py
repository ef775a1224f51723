"""Passes over single rows of saturated tanh neurons: pre-activations, lists of near samples, signs and pairs.

A pre-activation has the same bits in every pass, so that a row's result does not depend on which pass computed it;
therefore, no matrix product is used here. See tanh_saturated.py for the method.
"""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_helper
from proxlearn.core.fused.vector_math import FAST, from_sortable_int, sortable_int, tanh

IN_ORDER = FAST - {"reassoc"}
"""Compiler flags that do not allow sums to be reordered, because the result of a row must not depend on the other
rows."""
NEAR = 32
"""Maximum number of samples in the list of a row."""
TRIES = 4
"""Maximum number of attempts to list the near samples, each with half the reach of the previous one."""
DENSE = -1
"""Value that marks a dense row, in place of its number of pairs."""


@compile_helper(fastmath=IN_ORDER, error_model="numpy")
def products(theta, rows, X1t, Z):  # type: ignore[no-untyped-def]
    """Compute Z = [1 X] w for four rows of theta.

    Four features are processed at a time, because loads take longer than the arithmetic. All four sums are computed
    before the first one is stored, because the compiler loads the features again after a store.
    """
    p, n = X1t.shape
    a, b, c, d = theta[rows[0], 1:], theta[rows[1], 1:], theta[rows[2], 1:], theta[rows[3], 1:]
    za, zb, zc, zd = Z[0], Z[1], Z[2], Z[3]
    Z[:] = 0
    whole = p - p % 4
    for k in range(0, whole, 4):
        a0, a1, a2, a3 = a[k], a[k + 1], a[k + 2], a[k + 3]
        b0, b1, b2, b3 = b[k], b[k + 1], b[k + 2], b[k + 3]
        c0, c1, c2, c3 = c[k], c[k + 1], c[k + 2], c[k + 3]
        d0, d1, d2, d3 = d[k], d[k + 1], d[k + 2], d[k + 3]
        x0, x1, x2, x3 = X1t[k], X1t[k + 1], X1t[k + 2], X1t[k + 3]
        for m in range(n):
            va = za[m] + a0 * x0[m] + a1 * x1[m] + a2 * x2[m] + a3 * x3[m]
            vb = zb[m] + b0 * x0[m] + b1 * x1[m] + b2 * x2[m] + b3 * x3[m]
            vc = zc[m] + c0 * x0[m] + c1 * x1[m] + c2 * x2[m] + c3 * x3[m]
            vd = zd[m] + d0 * x0[m] + d1 * x1[m] + d2 * x2[m] + d3 * x3[m]
            za[m], zb[m], zc[m], zd[m] = va, vb, vc, vd
    for k in range(whole, p):
        x0 = X1t[k]
        for m in range(n):
            za[m] = za[m] + a[k] * x0[m]
            zb[m] = zb[m] + b[k] * x0[m]
            zc[m] = zc[m] + c[k] * x0[m]
            zd[m] = zd[m] + d[k] * x0[m]


@compile_helper(fastmath=IN_ORDER, error_model="numpy")
def near_products(w, X1, near, count, z):  # type: ignore[no-untyped-def]
    """Compute z[j] = <w, (1, x)> for the near samples, four at a time, with the same operations as ``products``."""
    for j in range(0, count, 4):
        a, b, c, d = X1[near[j]], X1[near[j + 1]], X1[near[j + 2]], X1[near[j + 3]]
        za = zb = zc = zd = w.dtype.type(0)
        for k in range(len(w)):
            za = za + w[k] * a[k]
            zb = zb + w[k] * b[k]
            zc = zc + w[k] * c[k]
            zd = zd + w[k] * d[k]
        z[j], z[j + 1], z[j + 2], z[j + 3] = za, zb, zc, zd


@compile_helper(fastmath=FAST, error_model="numpy")
def list_near(z, per_length, saturated, reach, near):  # type: ignore[no-untyped-def]
    """List the samples within ``reach`` of leaving saturation; return their number and the distance of the next sample.

    If ``near`` cannot hold them all, the reach is halved and the search is repeated. After TRIES failed attempts, the
    returned number is -1.
    """
    inf = z.dtype.type(np.inf)
    for _ in range(TRIES):
        count, next_one = 0, sortable_int(inf)
        for m in range(len(z)):
            far = (abs(z[m]) - saturated) * per_length[m]
            count += far < reach
            next_one = min(next_one, sortable_int(inf if far < reach else far))
        if count <= NEAR:
            if count:
                place = 0
                for m in range(len(z)):
                    if (abs(z[m]) - saturated) * per_length[m] < reach:
                        near[place] = m
                        place += 1
            return count, from_sortable_int(next_one)
        reach *= z.dtype.type(0.5)
    return -1, inf


@compile_helper(fastmath=IN_ORDER, error_model="numpy")
def classify_near(z, near, near_count, saturated, signs, sample, values):  # type: ignore[no-untyped-def]
    """Compute tanh of the near samples and return the number of pairs.

    A sample whose tanh is +-1 is stored as a sign; any other sample has the sign 0 and is stored as a pair.
    """
    one = z.dtype.type(1)
    pair_count = 0
    for j in range(near_count):
        m = near[j]
        signs[m] = np.int8(1) if z[j] > 0 else np.int8(-1)
        # Only a few of the near samples are not saturated.
        if abs(z[j]) < saturated:
            value = tanh(z[j])
            if one - value * value > 0:
                signs[m] = 0
                sample[pair_count], values[pair_count] = m, value
                pair_count += 1
    return pair_count


@compile_helper(fastmath=IN_ORDER, error_model="numpy")
def classify_row(z, signs, sample, values):  # type: ignore[no-untyped-def]
    """Classify a whole row, replace z by tanh z, and return the number of pairs.

    If there are more than NEAR pairs, set all signs to 0 and return DENSE.
    """
    one = z.dtype.type(1)
    number = 0
    # The loop is vectorised only if divisions are not checked for zero; hence numpy's error model.
    for m in range(len(z)):
        value = tanh(z[m])
        z[m] = value
        # The comparison is negated, so that NaN counts as a pair and propagates.
        number += not one - value * value <= 0
    if number > NEAR:
        signs[:] = 0
        return DENSE
    for m in range(len(z)):
        # Comparisons are used instead of a conversion, because the conversion of NaN to an integer differs between
        # processors.
        signs[m] = np.int8(z[m] == one) - np.int8(z[m] == -one)
    if number:
        pair_count = 0
        for m in range(len(z)):
            # An entry without a sign is a pair; comparing integers is faster.
            if signs[m] == 0 and pair_count < number:
                sample[pair_count], values[pair_count] = m, z[m]
                pair_count += 1
    return number


@compile_helper(fastmath=FAST, error_model="numpy")
def add_signs(theta, rho, signs, first, end, r, s):  # type: ignore[no-untyped-def]
    """Add the signs of the rows first to end - 1 to r, weighted by ``a rho``, and to s, weighted by ``a``.

    Rows are processed four at a time; the last group is padded with zeros.
    """
    zero = theta.dtype.type(0)
    r_weights, s_weights = np.empty(4, theta.dtype), np.empty(4, theta.dtype)
    for group in range(first, end, 4):
        for j in range(4):
            i = min(group + j, end - 1)
            s_weights[j] = theta[i, 0] if group + j < end else zero
            r_weights[j] = s_weights[j] * rho[i]
        a, b = signs[group], signs[min(group + 1, end - 1)]
        c, d = signs[min(group + 2, end - 1)], signs[min(group + 3, end - 1)]
        ra, rb, rc, rd = r_weights[0], r_weights[1], r_weights[2], r_weights[3]
        sa, sb, sc, sd = s_weights[0], s_weights[1], s_weights[2], s_weights[3]
        for m in range(len(r)):
            va, vb = theta.dtype.type(a[m]), theta.dtype.type(b[m])
            vc, vd = theta.dtype.type(c[m]), theta.dtype.type(d[m])
            in_r = r[m] + (ra * va + rb * vb + rc * vc + rd * vd)
            in_s = s[m] + (sa * va + sb * vb + sc * vc + sd * vd)
            r[m], s[m] = in_r, in_s
