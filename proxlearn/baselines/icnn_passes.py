"""What the convex network does particle by particle, compiled: products too small for a matrix library to be good at.

A particle's E = sqrt(a) G is D x width. Rows are taken three by three, so that nine products share six rows fetched;
where D is no multiple of three the last row stands in for those that are not there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from proxlearn.core.fused.functions import FAST, exp

LANES = 16
"""Matrices inverted side by side: one to a lane."""
COLUMNS = 256
"""Of E and of P E at a time: they should stay in the nearest cache."""


@njit(fastmath=FAST, error_model="numpy", cache=True)
def activate(u, w, s, c, a):  # type: ignore[no-untyped-def]
    """s = sigmoid(u), c = w s, a = w s (1 - s); u becomes sqrt(a)."""
    one = u.dtype.type(1)
    for b in range(len(u)):
        ub, sb, cb, ab = u[b], s[b], c[b], a[b]
        for k in range(len(w)):
            e = exp(-ub[k])
            share = one / (one + e)
            weighted = w[k] * share
            bent = weighted * (e * share)
            sb[k], cb[k], ab[k], ub[k] = share, weighted, bent, np.sqrt(bent)


@njit(fastmath=FAST, cache=True)
def of_units(slope, aq, s, a, w, w_bar):  # type: ignore[no-untyped-def]
    """From the slopes in c and a (times a), those in u, which replace ``slope``, and in w, which are added to w_bar."""
    one, two = s.dtype.type(1), s.dtype.type(2)
    of_c, of_a = np.zeros_like(w), np.zeros_like(w)
    for b in range(len(s)):
        slopes, q, sb, ab = slope[b], aq[b], s[b], a[b]
        for k in range(len(w)):
            in_c, in_a = of_c[k] + slopes[k] * sb[k], of_a[k] + q[k]
            in_u = slopes[k] * ab[k] + q[k] * (one - two * sb[k])
            of_c[k], of_a[k], slopes[k] = in_c, in_a, in_u
    for k in range(len(w)):
        w_bar[k] += of_c[k] + of_a[k] / w[k]


@njit(fastmath=FAST, cache=True)
def bend(E, root, H):  # type: ignore[no-untyped-def]
    """E becomes sqrt(a) E; H gets E E' added, particle by particle."""
    B, D, width = E.shape
    zero = E.dtype.type(0)
    for b in range(B):
        r, before = root[b], H[b].copy()
        for i in range(D):
            e = E[b, i]
            for k in range(width):
                e[k] *= r[k]
        for i in range(0, D, 3):
            i1, i2 = min(i + 1, D - 1), min(i + 2, D - 1)
            x0, x1, x2 = E[b, i], E[b, i1], E[b, i2]
            for j in range(0, i + 1, 3):
                j1, j2 = min(j + 1, D - 1), min(j + 2, D - 1)
                y0, y1, y2 = E[b, j], E[b, j1], E[b, j2]
                s00, s01, s02, s10, s11, s12 = zero, zero, zero, zero, zero, zero
                s20, s21, s22 = zero, zero, zero
                for k in range(width):
                    s00 += x0[k] * y0[k]
                    s01 += x0[k] * y1[k]
                    s02 += x0[k] * y2[k]
                    s10 += x1[k] * y0[k]
                    s11 += x1[k] * y1[k]
                    s12 += x1[k] * y2[k]
                    s20 += x2[k] * y0[k]
                    s21 += x2[k] * y1[k]
                    s22 += x2[k] * y2[k]
                rows, columns = (i, i1, i2), (j, j1, j2)
                values = ((s00, s01, s02), (s10, s11, s12), (s20, s21, s22))
                for p in range(3):
                    for q in range(3):
                        here, there = rows[p], columns[q]
                        H[b, here, there] = H[b, there, here] = before[here, there] + values[p][q]


@njit(fastmath=FAST, error_model="numpy", cache=True)
def invert(H, factor):  # type: ignore[no-untyped-def]
    """Each H, positive definite, becomes factor H^-1, by sweeping one pivot after the other."""
    B, D, _ = H.shape
    # Lower triangles; the entries (i, j) of all matrices lie side by side.
    A, column, scaled = np.empty((D, D * LANES), H.dtype), np.empty(D * LANES, H.dtype), np.empty(LANES, H.dtype)
    zero, one = H.dtype.type(0), H.dtype.type(1)
    for first in range(0, B, LANES):
        for lane in range(LANES):
            matrix = H[min(first + lane, B - 1)]
            for i in range(D):
                for j in range(i + 1):
                    A[i, j * LANES + lane] = matrix[i, j]
        for k in range(D):
            pivot = A[k, k * LANES : (k + 1) * LANES]
            for lane in range(LANES):
                pivot[lane] = -one / pivot[lane]
            for i in range(D):
                row, at = A[max(i, k)], min(i, k) * LANES
                for lane in range(LANES):
                    column[i * LANES + lane] = zero if i == k else row[at + lane]
            for i in range(D):
                row = A[i]
                for lane in range(LANES):
                    scaled[lane] = column[i * LANES + lane] * pivot[lane]
                for j in range(i + 1):
                    for lane in range(LANES):
                        row[j * LANES + lane] += scaled[lane] * column[j * LANES + lane]
                if i != k:
                    row, at = A[max(i, k)], min(i, k) * LANES
                    for lane in range(LANES):
                        row[at + lane] = -scaled[lane]
        for lane in range(min(LANES, B - first)):
            matrix = H[first + lane]
            for i in range(D):
                for j in range(i + 1):
                    matrix[i, j] = matrix[j, i] = -factor * A[i, j * LANES + lane]


@njit(fastmath=FAST, cache=True)
def pull(P, E, root, aq):  # type: ignore[no-untyped-def]
    """E becomes 2 sqrt(a) P E; aq, what E * P E sums to over the coordinates."""
    B, D, width = E.shape
    zero, two = E.dtype.type(0), E.dtype.type(2)
    PE = np.empty((D + 2, COLUMNS), E.dtype)
    for b in range(B):
        for start in range(0, width, COLUMNS):
            many = min(COLUMNS, width - start)
            r, q = root[b, start : start + many], aq[b, start : start + many]
            PE[:] = 0
            q[:] = 0
            for i in range(0, D, 3):
                i1, i2 = min(i + 1, D - 1), min(i + 2, D - 1)
                o0, o1, o2 = PE[i], PE[i + 1], PE[i + 2]
                for j in range(0, D, 3):
                    j1, j2 = min(j + 1, D - 1), min(j + 2, D - 1)
                    p00, p10, p20 = P[b, i, j], P[b, i1, j], P[b, i2, j]
                    p01, p11, p21 = P[b, i, j1], P[b, i1, j1], P[b, i2, j1]
                    p02, p12, p22 = P[b, i, j2], P[b, i1, j2], P[b, i2, j2]
                    if j + 1 >= D:
                        p01 = p11 = p21 = zero
                    if j + 2 >= D:
                        p02 = p12 = p22 = zero
                    e0, e1 = E[b, j, start : start + many], E[b, j1, start : start + many]
                    e2 = E[b, j2, start : start + many]
                    for k in range(many):
                        v0 = o0[k] + p00 * e0[k] + p01 * e1[k] + p02 * e2[k]
                        v1 = o1[k] + p10 * e0[k] + p11 * e1[k] + p12 * e2[k]
                        v2 = o2[k] + p20 * e0[k] + p21 * e1[k] + p22 * e2[k]
                        # Stored last: after a store the compiler fetches all rows again.
                        o0[k], o1[k], o2[k] = v0, v1, v2
            for i in range(D):
                o, e = PE[i], E[b, i, start : start + many]
                for k in range(many):
                    q[k] += o[k] * e[k]
                    e[k] = two * r[k] * o[k]
