"""Compiled passes that draw the random numbers of core/noise.py, in parallel over fixed groups of counters."""

from __future__ import annotations

import numpy as np
from numba import prange

from proxlearn.core import noise
from proxlearn.core.fused.code_cache import compile_helper, compile_pass
from proxlearn.core.fused.thread_layer import MOST_BLOCKS
from proxlearn.core.fused.vector_math import FAST, f4, f8, log4, log8, sincos4, sincos8

CHUNK = 64
"""Number of counters that are processed together, so that the compiler vectorises over them."""
FEW = 2**13
"""Largest number of random numbers that one thread can draw before a second thread has started."""

u4, u8 = np.uint32, np.uint64
NORMAL, UNIFORM, ROUNDS = noise.NORMAL, noise.UNIFORM, noise.ROUNDS
M0, M1 = (u8(factor) for factor in noise.MULTIPLIERS)
W0, W1 = (u4(step) for step in noise.KEY_STEPS)


@compile_helper(error_model="numpy")
def _words(k0, k1, first, stream, a, b, c, d):  # type: ignore[no-untyped-def]
    """Store the four words of the counters first, first + 1, ... in a, b, c and d."""
    for j in range(len(a)):
        index = u8(first + j)
        x0, x1, x2, x3 = u4(index), u4(index >> u8(32)), u4(stream), u4(0)
        y0, y1 = k0, k1
        for _ in range(ROUNDS):
            product0, product2 = u8(x0) * M0, u8(x2) * M1
            high0, high2 = u4(product0 >> u8(32)), u4(product2 >> u8(32))
            x0, x1, x2, x3 = high2 ^ x1 ^ y0, u4(product2), high0 ^ x3 ^ y1, u4(product0)
            y0, y1 = u4(y0 + W0), u4(y1 + W1)
        a[j], b[j], c[j], d[j] = x0, x1, x2, x3


@compile_helper(fastmath=FAST, error_model="numpy")
def _pairs4(radius, angle, x, y):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        r = np.sqrt(f4(-2) * log4((f4(radius[j]) + f4(0.5)) * f4(2.0**-32)))
        quadrant = angle[j] >> u4(30)
        sine, cosine = sincos4(f4(angle[j] & u4(0x3FFFFFFF)) * f4(2.0**-30) - f4(0.5))
        odd = quadrant & u4(1)
        r = -r if quadrant >= u4(2) else r
        x[j] = r * (-sine if odd else cosine)
        y[j] = r * (cosine if odd else sine)


@compile_helper(fastmath=FAST, error_model="numpy")
def _pairs8(radius, angle, x, y):  # type: ignore[no-untyped-def]
    for j in range(len(x)):
        r = np.sqrt(-2.0 * log8((f8(radius[j]) + 0.5) * 2.0**-53))
        quadrant = angle[j] >> u8(50)
        sine, cosine = sincos8(f8(angle[j] & u8(0x3FFFFFFFFFFFF)) * 2.0**-50 - 0.5)
        odd = quadrant & u8(1)
        r = -r if quadrant >= u8(2) else r
        x[j] = r * (-sine if odd else cosine)
        y[j] = r * (cosine if odd else sine)


@compile_helper(error_model="numpy")
def _normal4(k0, k1, base, first, last, out):  # type: ignore[no-untyped-def]
    """Store the normal numbers of the counters base + first to base + last - 1 in the flat array ``out``.

    ``out`` begins with the first number of the counter ``base`` and may end within the numbers of the last counter.
    """
    a, b, c, d = np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4)
    w, x, y, z = np.empty(CHUNK, f4), np.empty(CHUNK, f4), np.empty(CHUNK, f4), np.empty(CHUNK, f4)
    for start in range(first, last, CHUNK):
        _words(k0, k1, base + start, NORMAL, a, b, c, d)
        _pairs4(a, b, w, x)
        _pairs4(c, d, y, z)
        for j in range(min(CHUNK, last - start)):
            at = 4 * (start + j)
            if at + 4 <= len(out):
                out[at], out[at + 1], out[at + 2], out[at + 3] = w[j], x[j], y[j], z[j]
            else:
                for k in range(len(out) - at):
                    out[at + k] = w[j] if k == 0 else x[j] if k == 1 else y[j]


@compile_helper(error_model="numpy")
def _normal8(k0, k1, base, first, last, out):  # type: ignore[no-untyped-def]
    a, b, c, d = np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4)
    radius, angle = np.empty(CHUNK, u8), np.empty(CHUNK, u8)
    x, y = np.empty(CHUNK, f8), np.empty(CHUNK, f8)
    for start in range(first, last, CHUNK):
        _words(k0, k1, base + start, NORMAL, a, b, c, d)
        for j in range(CHUNK):
            radius[j] = (u8(a[j]) << u8(21)) ^ (u8(b[j]) >> u8(11))
            angle[j] = (u8(c[j]) << u8(20)) ^ (u8(d[j]) >> u8(12))
        _pairs8(radius, angle, x, y)
        for j in range(min(CHUNK, last - start)):
            at = 2 * (start + j)
            out[at] = x[j]
            if at + 1 < len(out):
                out[at + 1] = y[j]


@compile_pass()
def _few_normal4(k0, k1, base, groups, out):  # type: ignore[no-untyped-def]
    _normal4(k0, k1, base, 0, groups, out)


@compile_pass(parallel=True)
def _many_normal4(k0, k1, base, groups, blocks, out):  # type: ignore[no-untyped-def]
    for t in prange(blocks):
        _normal4(k0, k1, base, groups * t // blocks, groups * (t + 1) // blocks, out)


@compile_pass()
def _few_normal8(k0, k1, base, groups, out):  # type: ignore[no-untyped-def]
    _normal8(k0, k1, base, 0, groups, out)


@compile_pass(parallel=True)
def _many_normal8(k0, k1, base, groups, blocks, out):  # type: ignore[no-untyped-def]
    for t in prange(blocks):
        _normal8(k0, k1, base, groups * t // blocks, groups * (t + 1) // blocks, out)


@compile_pass()
def _uniform(k0, k1, out):  # type: ignore[no-untyped-def]
    a, b, c, d = np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4), np.empty(CHUNK, u4)
    unit = out.dtype.type(2.0**-24)
    for start in range(0, -(-len(out) // 4), CHUNK):
        _words(k0, k1, start, UNIFORM, a, b, c, d)
        for j in range(min(4 * CHUNK, len(out) - 4 * start)):
            words = a if j % 4 == 0 else b if j % 4 == 1 else c if j % 4 == 2 else d
            out[4 * start + j] = out.dtype.type((words[j // 4] >> u4(8)) + u4(1)) * unit


def fill_normal(key: tuple[int, int], out: np.ndarray, start: int = 0) -> None:
    """Fill an array with the numbers of ``core.noise.normal``, starting at the flat index ``start``."""
    k0, k1, flat = u4(key[0]), u4(key[1]), out.reshape(-1)
    single = out.dtype == np.float32
    base, skip = divmod(start, 4 if single else 2)
    if skip:
        flat = np.empty(skip + out.size, out.dtype)
    groups = -(-len(flat) // (4 if single else 2))
    if len(flat) <= FEW:
        (_few_normal4 if single else _few_normal8)(k0, k1, base, groups, flat)
    else:
        (_many_normal4 if single else _many_normal8)(k0, k1, base, groups, MOST_BLOCKS, flat)
    if skip:
        out.reshape(-1)[:] = flat[skip:]


def fill_uniform(key: tuple[int, int], out: np.ndarray) -> None:
    """Fill an array with the numbers of ``core.noise.uniform``."""
    _uniform(u4(key[0]), u4(key[1]), out)
