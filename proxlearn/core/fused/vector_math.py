"""The functions exp, tanh, log, sin and cos as polynomials, which the compiler can vectorise in both precisions.

Numba's versions call the mathematical library for each number. exp and tanh use 2^y = 2^k 2^g with an integer k and |g|
<= 1/2, where 2^g is a Taylor polynomial and 2^k is set in the exponent's bits. exp(x) is accurate to |x| + 2 units in
the last place, which is the effect of rounding x; tanh is accurate to 2 units in the last place of 1. For x = 2^k m,
log(x) uses the series of artanh((m - 1) / (m + 1)) with 1/sqrt(2) <= m < sqrt(2); sin and cos of up to an eighth
of a turn are Taylor polynomials. log is accurate to 3 units in the last place for x <= 1/2 or x = 1; sin and cos are
accurate to 3 units in the last place of 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import overload

FAST = {"nsz", "contract", "reassoc"}
"""Compiler flags that allow sums to be reordered but preserve the meaning of NaN and infinity."""
FINITE = FAST | {"nnan"}
"""Compiler flags for passes without NaN; they are required for the compiler to vectorise a minimum or a maximum."""

f4, f8, i4, i8 = np.float32, np.float64, np.int32, np.int64
LOG2E = 1 / math.log(2)
A0, A1, A2, A3, A4, A5, A6 = (f4(math.log(2) ** k / math.factorial(k)) for k in range(7))
B0, B1, B2, B3, B4, B5, B6, B7, B8, B9, B10, B11, B12 = (math.log(2) ** k / math.factorial(k) for k in range(13))
FACTOR4, FACTOR8 = f4(-2 * LOG2E), -2 * LOG2E
LOG2E4 = f4(LOG2E)


@njit(inline="always")
def _power4(y):  # type: ignore[no-untyped-def]
    k = np.rint(y)
    g = y - k
    p = A0 + g * (A1 + g * (A2 + g * (A3 + g * (A4 + g * (A5 + g * A6)))))
    return p * i4((i4(k) + i4(127)) << i4(23)).view(f4)


@njit(inline="always")
def _power8(y):  # type: ignore[no-untyped-def]
    k = np.rint(y)
    g = y - k
    p = B6 + g * (B7 + g * (B8 + g * (B9 + g * (B10 + g * (B11 + g * B12)))))
    p = B0 + g * (B1 + g * (B2 + g * (B3 + g * (B4 + g * (B5 + g * p)))))
    return p * i8((i8(k) + i8(1023)) << i8(52)).view(f8)


@njit(inline="always")
def _exp4(x):  # type: ignore[no-untyped-def]
    return _power4(min(max(x * LOG2E4, f4(-126)), f4(127)))


@njit(inline="always")
def _exp8(x):  # type: ignore[no-untyped-def]
    return _power8(min(max(x * LOG2E, -1022.0), 1023.0))


@njit(inline="always")
def _tanh4(x):  # type: ignore[no-untyped-def]
    # Beyond 2^60 the quotient is exactly -1 or 1, which defines saturation.
    e = _power4(min(max(x * FACTOR4, f4(-60)), f4(60)))
    return (f4(1) - e) / (f4(1) + e)


@njit(inline="always")
def _tanh8(x):  # type: ignore[no-untyped-def]
    e = _power8(min(max(x * FACTOR8, -120.0), 120.0))
    return (1.0 - e) / (1.0 + e)


LN2 = math.log(2)
HALF_PI = math.pi / 2
L4 = tuple(f4(2 / (2 * k + 1)) for k in range(6))
L8 = tuple(2 / (2 * k + 1) for k in range(12))
S4 = tuple(f4((-1) ** k * HALF_PI ** (2 * k + 1) / math.factorial(2 * k + 1)) for k in range(6))
C4 = tuple(f4((-1) ** k * HALF_PI ** (2 * k) / math.factorial(2 * k)) for k in range(6))
S8 = tuple((-1) ** k * HALF_PI ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(10))
C8 = tuple((-1) ** k * HALF_PI ** (2 * k) / math.factorial(2 * k) for k in range(10))
SQRT2_BITS4, SQRT2_BITS8 = i4(0x3FB504F3), i8(0x3FF6A09E667F3BCD)


@njit(inline="always")
def log4(x):  # type: ignore[no-untyped-def]
    """Return log x for a normal positive float32 number."""
    bits = f4(x).view(i4)
    k = i4((bits - SQRT2_BITS4) >> i4(23)) + i4(1)
    m = i4(bits - (k << i4(23))).view(f4)
    s = (m - f4(1)) / (m + f4(1))
    t = s * s
    p = L4[0] + t * (L4[1] + t * (L4[2] + t * (L4[3] + t * (L4[4] + t * L4[5]))))
    return f4(k) * f4(LN2) + s * p


@njit(inline="always")
def log8(x):  # type: ignore[no-untyped-def]
    """Return log x for a normal positive float64 number."""
    bits = f8(x).view(i8)
    k = i8((bits - SQRT2_BITS8) >> i8(52)) + i8(1)
    m = i8(bits - (k << i8(52))).view(f8)
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    p = L8[6] + t * (L8[7] + t * (L8[8] + t * (L8[9] + t * (L8[10] + t * L8[11]))))
    p = L8[0] + t * (L8[1] + t * (L8[2] + t * (L8[3] + t * (L8[4] + t * (L8[5] + t * p)))))
    return f8(k) * LN2 + s * p


@njit(inline="always")
def sincos4(t):  # type: ignore[no-untyped-def]
    """Return the sine and cosine of t quarter turns, |t| <= 1/2, in float32."""
    x = t * t
    sine = t * (S4[0] + x * (S4[1] + x * (S4[2] + x * (S4[3] + x * (S4[4] + x * S4[5])))))
    cosine = C4[0] + x * (C4[1] + x * (C4[2] + x * (C4[3] + x * (C4[4] + x * C4[5]))))
    return sine, cosine


@njit(inline="always")
def sincos8(t):  # type: ignore[no-untyped-def]
    """Return the sine and cosine of t quarter turns, |t| <= 1/2, in float64."""
    x = t * t
    sine = S8[5] + x * (S8[6] + x * (S8[7] + x * (S8[8] + x * S8[9])))
    sine = t * (S8[0] + x * (S8[1] + x * (S8[2] + x * (S8[3] + x * (S8[4] + x * sine)))))
    cosine = C8[5] + x * (C8[6] + x * (C8[7] + x * (C8[8] + x * C8[9])))
    cosine = C8[0] + x * (C8[1] + x * (C8[2] + x * (C8[3] + x * (C8[4] + x * cosine))))
    return sine, cosine


@njit(inline="always")
def add_squares(total, rows, first, last, start, length, x, column):  # type: ignore[no-untyped-def]
    """Add to total[j], for j < ``length``, the sum over k of (x[k, column] - rows[k, start + j])^2.

    k runs from ``first`` to ``last`` - 1, and four values of k are processed at a time.
    """
    k = first
    while k + 4 <= last:
        x0, x1, x2, x3 = x[k, column], x[k + 1, column], x[k + 2, column], x[k + 3, column]
        r0, r1 = rows[k, start : start + length], rows[k + 1, start : start + length]
        r2, r3 = rows[k + 2, start : start + length], rows[k + 3, start : start + length]
        for j in range(length):
            d0, d1, d2, d3 = x0 - r0[j], x1 - r1[j], x2 - r2[j], x3 - r3[j]
            total[j] += d0 * d0 + d1 * d1 + d2 * d2 + d3 * d3
        k += 4
    while k < last:
        x0 = x[k, column]
        r0 = rows[k, start : start + length]
        for j in range(length):
            total[j] += (x0 - r0[j]) * (x0 - r0[j])
        k += 1


def exp(x: Any) -> Any:
    """Return the exponential of x; out-of-range results become the smallest or largest power of two of the type."""
    raise RuntimeError("this function can be called from compiled code only")


def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent of x."""
    raise RuntimeError("this function can be called from compiled code only")


@overload(exp, inline="always")
def _exp(x):  # type: ignore[no-untyped-def]
    return (lambda x: _exp4(x)) if x is types.float32 else (lambda x: _exp8(x))


@overload(tanh, inline="always")
def _tanh(x):  # type: ignore[no-untyped-def]
    return (lambda x: _tanh4(x)) if x is types.float32 else (lambda x: _tanh8(x))


def sortable_int(x: Any) -> Any:
    """Return an integer of the same size that sorts in the same order as the floating-point number.

    The compiler vectorises a minimum or maximum of integers, but not of floating-point numbers.
    """
    raise RuntimeError("this function can be called from compiled code only")


def from_sortable_int(k: Any) -> Any:
    """Return the number whose ``sortable_int`` is k."""
    raise RuntimeError("this function can be called from compiled code only")


@njit(inline="always")
def _flip4(k):  # type: ignore[no-untyped-def]
    return i4(k ^ ((k >> i4(31)) & i4(0x7FFFFFFF)))


@njit(inline="always")
def _flip8(k):  # type: ignore[no-untyped-def]
    return i8(k ^ ((k >> i8(63)) & i8(0x7FFFFFFFFFFFFFFF)))


@overload(sortable_int, inline="always")
def _sortable_int(x):  # type: ignore[no-untyped-def]
    return (lambda x: _flip4(f4(x).view(i4))) if x is types.float32 else (lambda x: _flip8(f8(x).view(i8)))


@overload(from_sortable_int, inline="always")
def _from_sortable_int(k):  # type: ignore[no-untyped-def]
    return (lambda k: i4(_flip4(k)).view(f4)) if k is types.int32 else (lambda k: i8(_flip8(k)).view(f8))
