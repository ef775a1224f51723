"""Sums of signed rows by table look-up instead of multiplication (the method of four Russians), exact up to rounding.

Five inputs have 32 sign patterns. Once the sums of all 32 patterns are in a table, one look-up and one addition replace
five multiplications and additions. A row consists of LANES numbers, so one look-up contributes to LANES sums.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import FAST

LANES = 16
"""Length of a row: one register of float32 numbers, or two registers of float64 numbers."""
SIGNS, TABLES = 5, 13
"""Number of inputs per table, and number of tables in use at the same time: 26 KiB of float32, which fits into the L1
cache. Larger tables take longer to fill; with fewer tables, each sum is loaded and stored more often.
"""
PATTERNS, INPUTS = 2**SIGNS, SIGNS * TABLES


def _row(context: Any, builder: Any, kind: Any, array: Any, row: Any) -> Any:
    """Return a pointer to one vector: row ``row`` of a contiguous array with LANES columns."""
    data = context.make_array(kind)(context, builder, array).data
    vector = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [builder.mul(row, row.type(LANES))]), vector.as_pointer())


# The compiler cannot prove that a table and a sum do not overlap. In plain loops over the lanes it would load every
# entry again, which takes longer than the addition; so the three innermost statements are vector instructions.
@intrinsic
def _fill(typing, table, inputs, first):  # type: ignore[no-untyped-def]
    """Fill a table with the sums for all sign patterns of SIGNS inputs, starting with input ``first``."""

    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        (to, of, _), (table, inputs, first) = signature.args, args
        align = to.dtype.bitwidth // 8
        rows = [_row(context, builder, of, inputs, builder.add(first, first.type(j))) for j in range(SIGNS)]
        x = [builder.load(row, align=align) for row in rows]
        entries = [builder.fneg(functools.reduce(builder.fadd, x))]
        for value in x:
            twice = builder.fadd(value, value)
            entries += [builder.fadd(entry, twice) for entry in entries]
        for p, entry in enumerate(entries):
            builder.store(entry, _row(context, builder, to, table, first.type(p)), align=align)
        return context.get_dummy_value()

    return types.void(table, inputs, types.int64), code


@intrinsic
def _add_entries(typing, to, m, codes, tables):  # type: ignore[no-untyped-def]
    """Add the entries codes[m, t] of all tables t to ``to[m]``."""

    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds, align, m = signature.args, signature.args[0].dtype.bitwidth // 8, args[1]
        data = context.make_array(kinds[2])(context, builder, args[2]).data
        place = _row(context, builder, kinds[0], args[0], m)
        terms = [builder.load(place, align=align)]
        for t in range(TABLES):
            which = builder.load(builder.gep(data, [builder.add(builder.mul(m, m.type(TABLES)), m.type(t))]))
            entry = builder.add(builder.zext(which, m.type), m.type(t * PATTERNS))
            terms.append(builder.load(_row(context, builder, kinds[3], args[3], entry), align=align))
        while len(terms) > 1:
            pairs = [builder.fadd(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[2 * len(pairs) :]
        builder.store(terms[0], place, align=align)
        return context.get_dummy_value()

    return types.void(to, types.int64, codes, tables), code


@intrinsic
def apply_weights(typing, row, m, P, rho, i, c, d, hit):  # type: ignore[no-untyped-def]
    """Set row[m] = (c + rho[i] d) P[m] (hit - row[m])."""

    def code(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kinds, align = signature.args, signature.args[0].dtype.bitwidth // 8
        place = _row(context, builder, kinds[0], args[0], args[1])
        p = builder.load(_row(context, builder, kinds[2], args[2], args[1]), align=align)
        weights = builder.load(_row(context, builder, kinds[3], args[3], args[4]), align=align)
        nothing, zero = p.type(ir.Undefined), ir.IntType(32)(0)
        alone = [builder.insert_element(nothing, number, zero) for number in args[5:]]
        c, d, hit = (builder.shuffle_vector(x, nothing, ir.VectorType(zero.type, LANES)(None)) for x in alone)
        g = builder.fmul(builder.fadd(c, builder.fmul(weights, d)), p)
        builder.store(builder.fmul(g, builder.fsub(hit, builder.load(place, align=align))), place, align=align)
        return context.get_dummy_value()

    return types.void(row, types.int64, P, rho, types.int64, *(row.dtype,) * 3), code


@compile_pass(fastmath=FAST)
def look_up(inputs, codes, tables, to):  # type: ignore[no-untyped-def]
    """Set to[m] to the sum of all inputs; codes[k // INPUTS, m] contains the sign of input k.

    Every row of ``inputs`` and ``to`` has LANES numbers.
    """
    to[:] = 0
    for q in range(len(codes)):
        for t in range(TABLES):
            _fill(tables[t], inputs, q * INPUTS + t * SIGNS)  # type: ignore[call-arg]
        for m in range(codes.shape[1]):
            _add_entries(to, m, codes[q], tables)  # type: ignore[call-arg]


def patterns(above: np.ndarray) -> np.ndarray:
    """Return the sign patterns of a matrix of flags as codes for ``look_up``, of shape (groups, rows, TABLES).

    ``above[m, k]`` is 1 if input k has a plus sign in sum m, and 0 if it has a minus sign. A group has INPUTS
    inputs; the last group is padded, and the inputs for the padding must be zero.
    """
    rows, columns = above.shape
    sets = -(-columns // INPUTS)
    bits = np.zeros((rows, sets * INPUTS), np.uint8)
    bits[:, :columns] = above
    codes = bits.reshape(rows, sets, TABLES, SIGNS) @ (1 << np.arange(SIGNS)).astype(np.uint8)
    return np.ascontiguousarray(codes.swapaxes(0, 1))
