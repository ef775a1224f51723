"""Compiled kernels of the convex network, for per-particle products that are too small for a matrix library.

For each particle, E = sqrt(a) G is a D x width matrix (see icnn.py). All computations with E are finished for sixteen
particles before the next sixteen are processed, so that E stays in the cache. The inner loops process either three rows
of E at a time, so that nine products share six loaded rows, or four particles at a time. If fewer rows or particles
remain, the last one is repeated or the missing ones have weight zero. Sums are stored at the end of each iteration,
because the compiler reloads every value after a store.
"""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST, exp

LANES = 16
"""Number of particles that are processed together; their matrices are inverted in parallel, one per SIMD lane."""
COLUMNS = 256
"""Number of columns of E and of P E that are processed together, so that they stay in the L1 cache."""
CHUNK = 1024
"""Number of entries of E that are processed together for four particles, so that they stay in the L1 cache."""


@compile_pass(fastmath=FAST, error_model="numpy")
def activate(u, w, s, c, a):  # type: ignore[no-untyped-def]
    """Store sigmoid(u) in s, w s in c and w s (1 - s) in a, and replace u by sqrt(a)."""
    one = u.dtype.type(1)
    for b in range(len(u)):
        ub, sb, cb, ab = u[b], s[b], c[b], a[b]
        for k in range(len(w)):
            e = exp(-ub[k])
            sigmoid = one / (one + e)
            weighted = w[k] * sigmoid
            curvature = weighted * (e * sigmoid)
            sb[k], cb[k], ab[k], ub[k] = sigmoid, weighted, curvature, np.sqrt(curvature)


@compile_pass(fastmath=FAST)
def pull_back_units(c_bar, aq, s, a, w, w_bar):  # type: ignore[no-untyped-def]
    """Replace ``c_bar``, the gradient with respect to c, by the gradient with respect to u.

    The gradient with respect to w is added to ``w_bar``. ``aq`` is a times the gradient with respect to a.
    """
    one, two = s.dtype.type(1), s.dtype.type(2)
    c_sums, a_sums = np.zeros_like(w), np.zeros_like(w)
    for b in range(len(s)):
        bar, q, sb, ab = c_bar[b], aq[b], s[b], a[b]
        for k in range(len(w)):
            c_sum, a_sum = c_sums[k] + bar[k] * sb[k], a_sums[k] + q[k]
            u_bar = bar[k] * ab[k] + q[k] * (one - two * sb[k])
            c_sums[k], a_sums[k], bar[k] = c_sum, a_sum, u_bar
    for k in range(len(w)):
        w_bar[k] += c_sums[k] + a_sums[k] / w[k]


@compile_pass(fastmath=FAST)
def scaled_gradients(x1, full, root, first, last, E):  # type: ignore[no-untyped-def]
    """Compute E = sqrt(a) G for at most LANES particles: those from ``first`` to ``last``, including ``last``.

    G is the product of (x, 1) and ``full``; ``root`` contains sqrt(a).
    """
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
                j1 = min(j + 1, rows - 1)
                mask = E.dtype.type(0) if j1 == j else E.dtype.type(1)
                p0, p1, p2, p3 = x1[b0, j], x1[b1, j], x1[b2, j], x1[b3, j]
                q0, q1, q2, q3 = mask * x1[b0, j1], mask * x1[b1, j1], mask * x1[b2, j1], mask * x1[b3, j1]
                f, g = full[j, start:end], full[j1, start:end]
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
def add_outer_product(E, base, H):  # type: ignore[no-untyped-def]
    """Compute H = base + E E' for one particle."""
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
                    row, column = rows[p], columns[q]
                    H[row, column] = H[column, row] = base[row, column] + values[p][q]


@compile_pass(fastmath=FAST)
def hessians(x1, full, root, cM, H):  # type: ignore[no-untyped-def]
    """Compute the Hessian H = cM + E E' of every particle."""
    B, D, _ = H.shape
    E = np.empty((LANES, D, root.shape[1]), H.dtype)
    for first in range(0, B, LANES):
        scaled_gradients(x1, full, root, first, B - 1, E)
        for lane in range(min(LANES, B - first)):
            add_outer_product(E[lane], cM[first + lane], H[first + lane])


@compile_pass(fastmath=FAST, error_model="numpy")
def invert_matrices(H, factor):  # type: ignore[no-untyped-def]
    """Replace each positive definite matrix in H by ``factor`` times its inverse, using the sweep operator."""
    B, D, _ = H.shape
    # A contains the lower triangles; the entries (i, j) of all matrices are adjacent.
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
def pull_back_particle(P, E, root, aq, PE):  # type: ignore[no-untyped-def]
    """Replace E of one particle by 2 sqrt(a) P E, and store the column sums of E * (P E) (elementwise) in ``aq``.

    ``root`` contains sqrt(a), and ``PE`` is scratch space.
    """
    D, width = E.shape
    zero, two = E.dtype.type(0), E.dtype.type(2)
    for start in range(0, width, COLUMNS):
        count = min(COLUMNS, width - start)
        r, q = root[start : start + count], aq[start : start + count]
        PE[:, :count] = 0
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
                e0, e1 = E[j, start : start + count], E[j1, start : start + count]
                e2 = E[j2, start : start + count]
                for k in range(count):
                    v0 = o0[k] + p00 * e0[k] + p01 * e1[k] + p02 * e2[k]
                    v1 = o1[k] + p10 * e0[k] + p11 * e1[k] + p12 * e2[k]
                    v2 = o2[k] + p20 * e0[k] + p21 * e1[k] + p22 * e2[k]
                    o0[k], o1[k], o2[k] = v0, v1, v2
        for i in range(D):
            o, e = PE[i], E[i, start : start + count]
            for k in range(count):
                new_q, new_e = q[k] + o[k] * e[k], two * r[k] * o[k]
                q[k], e[k] = new_q, new_e


@compile_pass(fastmath=FAST)
def accumulate_full_bar(x1, E, first, last, full_bar):  # type: ignore[no-untyped-def]
    """Add the outer product of (x, 1) and E to ``full_bar`` for up to LANES particles (see `scaled_gradients`)."""
    rows, size = full_bar.shape
    zero = E.dtype.type(0)
    flat = E.reshape(LANES, size)
    weights = np.empty((4, rows), E.dtype)
    for lane in range(0, min(LANES, last - first + 1), 4):
        for i in range(4):
            b = first + lane + i
            for j in range(rows):
                weights[i, j] = x1[b, j] if b <= last else zero
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
                    new_f = f[k] + p0 * e0[k] + p1 * e1[k] + p2 * e2[k] + p3 * e3[k]
                    new_g = g[k] + q0 * e0[k] + q1 * e1[k] + q2 * e2[k] + q3 * e3[k]
                    f[k], g[k] = new_f, new_g
                j += 2
            if j < rows:
                p0, p1, p2, p3 = weights[0, j], weights[1, j], weights[2, j], weights[3, j]
                f = full_bar[j, start:end]
                for k in range(end - start):
                    f[k] += p0 * e0[k] + p1 * e1[k] + p2 * e2[k] + p3 * e3[k]


@compile_pass(fastmath=FAST)
def pull_back_hessians(x1, full, root, cM, log_det, P, aq, full_bar):  # type: ignore[no-untyped-def]
    """Add ``log_det`` times the inverse Hessian to P, and backpropagate P through the term E E' of the Hessian.

    The results are stored in ``aq`` and added to ``full_bar``.
    """
    B, D, _ = P.shape
    width = root.shape[1]
    E, H = np.zeros((LANES, D, width), P.dtype), np.empty((LANES, D, D), P.dtype)
    PE = np.empty((D + 2, COLUMNS), P.dtype)
    for first in range(0, B, LANES):
        count = min(LANES, B - first)
        scaled_gradients(x1, full, root, first, B - 1, E)
        if log_det != 0:
            for lane in range(count):
                add_outer_product(E[lane], cM[first + lane], H[lane])
            invert_matrices(H[:count], log_det)
            for lane in range(count):
                for i in range(D):
                    for j in range(D):
                        P[first + lane, i, j] += H[lane, i, j]
        for lane in range(count):
            pull_back_particle(P[first + lane], E[lane], root[first + lane], aq[first + lane], PE)
        accumulate_full_bar(x1, E, first, B - 1, full_bar)


@compile_pass(fastmath=FAST, error_model="numpy")
def adam_step(parameters, gradient, first, second, lr, step):  # type: ignore[no-untyped-def]
    """Update the parameters by one step of Adam with its default constants.

    ``first`` and ``second`` are the moment estimates, which are updated in place. For a few thousand parameters, this
    function is faster than the optimiser of torch.
    """
    kind = parameters.dtype.type
    a, b, tiny, one = kind(0.9), kind(0.999), kind(1e-8), kind(1)
    rate, correction = kind(lr / (1 - 0.9**step)), kind(np.sqrt(1 - 0.999**step))
    for k in range(len(parameters)):
        new_first = a * first[k] + (one - a) * gradient[k]
        new_second = b * second[k] + (one - b) * gradient[k] * gradient[k]
        new_parameter = parameters[k] - rate * new_first / (np.sqrt(new_second) / correction + tiny)
        parameters[k], first[k], second[k] = new_parameter, new_first, new_second
