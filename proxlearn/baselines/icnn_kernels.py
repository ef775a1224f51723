"""What the convex network does particle by particle, compiled: products too small for a matrix library to be good at.

A particle's E = sqrt(a) G is D x width. Sixteen particles at a time go all the way, from their E to what it adds to the
gradient, so that E never leaves the cache. Rows of it are taken three by three, so that nine products share six rows
fetched, and particles four by four; where there are not as many, the last one stands in for those that are missing.
Sums are stored last everywhere: after a store the compiler fetches everything again.
"""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST, exp

LANES = 16
"""Particles at a time; their matrices are inverted side by side, one to a lane."""
COLUMNS = 256
"""Of E and of P E at a time: they should stay in the nearest cache."""
CHUNK = 1024
"""Numbers of four particles' E at a time, for the same reason."""


@compile_pass(fastmath=FAST, error_model="numpy")
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


@compile_pass(fastmath=FAST)
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


@compile_pass(fastmath=FAST)
def scaled(x1, full, root, first, last, E):  # type: ignore[no-untyped-def]
    """E = sqrt(a) G of the particles from ``first`` on, G being (x, 1) times ``full``; ``last`` is the last one."""
    rows, size = full.shape
    width = root.shape[1]
    flat = E.reshape(LANES, size)
    for lane in range(0, LANES, 4):
        b0, b1 = min(first + lane, last), min(first + lane + 1, last)
        b2, b3 = min(first + lane + 2, last), min(first + lane + 3, last)
        if first + lane > last:
            break
        for start in range(0, size, CHUNK):
            end = min(start + CHUNK, size)
            e0, e1 = flat[lane, start:end], flat[lane + 1, start:end]
            e2, e3 = flat[lane + 2, start:end], flat[lane + 3, start:end]
            e0[:], e1[:], e2[:], e3[:] = 0, 0, 0, 0
            for j in range(0, rows, 2):
                other = min(j + 1, rows - 1)
                once = E.dtype.type(0) if other == j else E.dtype.type(1)
                p0, p1, p2, p3 = x1[b0, j], x1[b1, j], x1[b2, j], x1[b3, j]
                q0, q1, q2, q3 = once * x1[b0, other], once * x1[b1, other], once * x1[b2, other], once * x1[b3, other]
                f, g = full[j, start:end], full[other, start:end]
                for k in range(end - start):
                    v0, v1 = e0[k] + p0 * f[k] + q0 * g[k], e1[k] + p1 * f[k] + q1 * g[k]
                    v2, v3 = e2[k] + p2 * f[k] + q2 * g[k], e3[k] + p3 * f[k] + q3 * g[k]
                    e0[k], e1[k], e2[k], e3[k] = v0, v1, v2, v3
    for lane in range(min(LANES, last - first + 1)):
        r = root[first + lane]
        for i in range(E.shape[1]):
            e = E[lane, i]
            for k in range(width):
                e[k] *= r[k]


@compile_pass(fastmath=FAST)
def bend(E, before, H):  # type: ignore[no-untyped-def]
    """H = before + E E' of one particle."""
    D, width = E.shape
    zero = E.dtype.type(0)
    for i in range(0, D, 3):
        i1, i2 = min(i + 1, D - 1), min(i + 2, D - 1)
        x0, x1, x2 = E[i], E[i1], E[i2]
        for j in range(0, i + 1, 3):
            j1, j2 = min(j + 1, D - 1), min(j + 2, D - 1)
            y0, y1, y2 = E[j], E[j1], E[j2]
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
                    H[here, there] = H[there, here] = before[here, there] + values[p][q]


@compile_pass(fastmath=FAST)
def hessians(x1, full, root, cM, H):  # type: ignore[no-untyped-def]
    """H = cM + E E' of every particle."""
    B, D, _ = H.shape
    E = np.empty((LANES, D, root.shape[1]), H.dtype)
    for first in range(0, B, LANES):
        scaled(x1, full, root, first, B - 1, E)
        for lane in range(min(LANES, B - first)):
            bend(E[lane], cM[first + lane], H[first + lane])


@compile_pass(fastmath=FAST, error_model="numpy")
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


@compile_pass(fastmath=FAST)
def pull(P, E, root, aq, PE):  # type: ignore[no-untyped-def]
    """E of one particle becomes 2 sqrt(a) P E; aq, what E * P E sums to over the coordinates. PE is for work."""
    D, width = E.shape
    zero, two = E.dtype.type(0), E.dtype.type(2)
    for start in range(0, width, COLUMNS):
        many = min(COLUMNS, width - start)
        r, q = root[start : start + many], aq[start : start + many]
        PE[:, :many] = 0
        q[:] = 0
        for i in range(0, D, 3):
            i1, i2 = min(i + 1, D - 1), min(i + 2, D - 1)
            o0, o1, o2 = PE[i], PE[i + 1], PE[i + 2]
            for j in range(0, D, 3):
                j1, j2 = min(j + 1, D - 1), min(j + 2, D - 1)
                p00, p10, p20 = P[i, j], P[i1, j], P[i2, j]
                p01, p11, p21 = P[i, j1], P[i1, j1], P[i2, j1]
                p02, p12, p22 = P[i, j2], P[i1, j2], P[i2, j2]
                if j + 1 >= D:
                    p01 = p11 = p21 = zero
                if j + 2 >= D:
                    p02 = p12 = p22 = zero
                e0, e1 = E[j, start : start + many], E[j1, start : start + many]
                e2 = E[j2, start : start + many]
                for k in range(many):
                    v0 = o0[k] + p00 * e0[k] + p01 * e1[k] + p02 * e2[k]
                    v1 = o1[k] + p10 * e0[k] + p11 * e1[k] + p12 * e2[k]
                    v2 = o2[k] + p20 * e0[k] + p21 * e1[k] + p22 * e2[k]
                    o0[k], o1[k], o2[k] = v0, v1, v2
        for i in range(D):
            o, e = PE[i], E[i, start : start + many]
            for k in range(many):
                in_q, in_e = q[k] + o[k] * e[k], two * r[k] * o[k]
                q[k], e[k] = in_q, in_e


@compile_pass(fastmath=FAST)
def collect(x1, E, first, last, full_bar):  # type: ignore[no-untyped-def]
    """full_bar += the particles' (x, 1) times their E."""
    rows, size = full_bar.shape
    zero = E.dtype.type(0)
    flat = E.reshape(LANES, size)
    weights = np.empty((4, rows), E.dtype)
    for lane in range(0, min(LANES, last - first + 1), 4):
        for other in range(4):
            b = first + lane + other
            for j in range(rows):
                weights[other, j] = x1[b, j] if b <= last else zero
        for start in range(0, size, CHUNK):
            end = min(start + CHUNK, size)
            e0, e1 = flat[lane, start:end], flat[lane + 1, start:end]
            e2, e3 = flat[lane + 2, start:end], flat[lane + 3, start:end]
            j = 0
            while j + 2 <= rows:
                p0, p1, p2, p3 = weights[0, j], weights[1, j], weights[2, j], weights[3, j]
                q0, q1, q2, q3 = weights[0, j + 1], weights[1, j + 1], weights[2, j + 1], weights[3, j + 1]
                f, g = full_bar[j, start:end], full_bar[j + 1, start:end]
                for k in range(end - start):
                    in_f = f[k] + p0 * e0[k] + p1 * e1[k] + p2 * e2[k] + p3 * e3[k]
                    in_g = g[k] + q0 * e0[k] + q1 * e1[k] + q2 * e2[k] + q3 * e3[k]
                    f[k], g[k] = in_f, in_g
                j += 2
            if j < rows:
                p0, p1, p2, p3 = weights[0, j], weights[1, j], weights[2, j], weights[3, j]
                f = full_bar[j, start:end]
                for k in range(end - start):
                    f[k] += p0 * e0[k] + p1 * e1[k] + p2 * e2[k] + p3 * e3[k]


@compile_pass(fastmath=FAST)
def pull_all(x1, full, root, cM, log_det, P, aq, full_bar):  # type: ignore[no-untyped-def]
    """P gets ``log_det`` times the inverse Hessian added, and is pulled back through the term of the Hessian with E."""
    B, D, _ = P.shape
    width = root.shape[1]
    E, H = np.zeros((LANES, D, width), P.dtype), np.empty((LANES, D, D), P.dtype)
    PE = np.empty((D + 2, COLUMNS), P.dtype)
    for first in range(0, B, LANES):
        count = min(LANES, B - first)
        scaled(x1, full, root, first, B - 1, E)
        if log_det != 0:
            for lane in range(count):
                bend(E[lane], cM[first + lane], H[lane])
            invert(H[:count], log_det)
            for lane in range(count):
                for i in range(D):
                    for j in range(D):
                        P[first + lane, i, j] += H[lane, i, j]
        for lane in range(count):
            pull(P[first + lane], E[lane], root[first + lane], aq[first + lane], PE)
        collect(x1, E, first, B - 1, full_bar)


@compile_pass(fastmath=FAST, error_model="numpy")
def adam(parameters, gradient, first, second, lr, step):  # type: ignore[no-untyped-def]
    """One step of Adam with its usual constants: for a few thousand parameters torch's takes longer to be called."""
    kind = parameters.dtype.type
    a, b, tiny, one = kind(0.9), kind(0.999), kind(1e-8), kind(1)
    rate, spread = kind(lr / (1 - 0.9**step)), kind(np.sqrt(1 - 0.999**step))
    for k in range(len(parameters)):
        in_first = a * first[k] + (one - a) * gradient[k]
        in_second = b * second[k] + (one - b) * gradient[k] * gradient[k]
        moved = parameters[k] - rate * in_first / (np.sqrt(in_second) / spread + tiny)
        parameters[k], first[k], second[k] = moved, in_first, in_second
