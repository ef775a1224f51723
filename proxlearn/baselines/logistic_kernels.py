"""The compiled gradient of a sum of logistic losses, whose intermediate results stay in the cache."""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST, exp


@compile_pass(fastmath=FAST, error_model="numpy")
def sum_logistic_gradients(theta, At, factor, bound, gradient):  # type: ignore[no-untyped-def]
    """Store factor * sum_m sigmoid(<theta_b, a_m>) a_m in gradient[b, :d], where a_m is column m of ``At``.

    The rows of ``theta`` may have more than d entries; only the first d are used. Terms whose product <theta_b, a_m>
    exceeds ``bound`` are left out of the sum. Four particles and two features are processed at a time; if fewer remain,
    the last one is repeated.
    """
    B, d, n = len(theta), At.shape[0], At.shape[1]
    zero, one = theta.dtype.type(0), theta.dtype.type(1)
    z0, z1 = np.empty(n, theta.dtype), np.empty(n, theta.dtype)
    z2, z3 = np.empty(n, theta.dtype), np.empty(n, theta.dtype)
    for b in range(0, B, 4):
        b1, b2, b3 = min(b + 1, B - 1), min(b + 2, B - 1), min(b + 3, B - 1)
        t0, t1, t2, t3 = theta[b], theta[b1], theta[b2], theta[b3]
        z0[:], z1[:], z2[:], z3[:] = zero, zero, zero, zero
        for k in range(0, d, 2):
            last = min(k + 1, d - 1)
            mask = zero if last == k else one
            x0, x1, x2, x3 = t0[k], t1[k], t2[k], t3[k]
            y0, y1, y2, y3 = mask * t0[last], mask * t1[last], mask * t2[last], mask * t3[last]
            p, q = At[k], At[last]
            for m in range(n):
                # The results are stored last, because the compiler loads every value again after a store.
                v0, v1 = z0[m] + x0 * p[m] + y0 * q[m], z1[m] + x1 * p[m] + y1 * q[m]
                v2, v3 = z2[m] + x2 * p[m] + y2 * q[m], z3[m] + x3 * p[m] + y3 * q[m]
                z0[m], z1[m], z2[m], z3[m] = v0, v1, v2, v3
        for z in (z0, z1, z2, z3):
            for m in range(n):
                z[m] = zero if z[m] > bound else one / (one + exp(-z[m]))
        for k in range(0, d, 2):
            last = min(k + 1, d - 1)
            p, q = At[k], At[last]
            p0, p1, p2, p3, q0, q1, q2, q3 = zero, zero, zero, zero, zero, zero, zero, zero
            for m in range(n):
                p0 += p[m] * z0[m]
                p1 += p[m] * z1[m]
                p2 += p[m] * z2[m]
                p3 += p[m] * z3[m]
                q0 += q[m] * z0[m]
                q1 += q[m] * z1[m]
                q2 += q[m] * z2[m]
                q3 += q[m] * z3[m]
            gradient[b, k], gradient[b1, k] = factor * p0, factor * p1
            gradient[b2, k], gradient[b3, k] = factor * p2, factor * p3
            gradient[b, last], gradient[b1, last] = factor * q0, factor * q1
            gradient[b2, last], gradient[b3, last] = factor * q2, factor * q3
