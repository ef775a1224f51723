"""Differences between numbers of equal rank, which the gradient of a sliced Wasserstein distance needs."""

from __future__ import annotations

import numpy as np

from proxlearn.core.fused.code_cache import compile_pass
from proxlearn.core.fused.vector_math import sortable_int

RADIX = 256


@compile_pass()
def subtract_equal_ranks(x, y):  # type: ignore[no-untyped-def]
    """Subtract from each number in x, in place, the number of equal rank in the same row of y.

    The rows of y must be in ascending order. The ranks in x are computed by a stable radix sort, which begins with the
    least significant digit and is several times faster than a comparison sort.
    """
    rows, columns = x.shape
    bits = 8 * x.itemsize
    places = bits // 8
    top = np.uint64(1) << np.uint64(bits - 1)
    keys, sorted_keys = np.empty(columns, np.uint64), np.empty(columns, np.uint64)
    order, sorted_order = np.empty(columns, np.int64), np.empty(columns, np.int64)
    counts = np.empty((places, RADIX), np.int64)
    for row in range(rows):
        counts[:] = 0
        for b in range(columns):
            # The keys are unsigned integers in the same order as the floating-point numbers.
            key = (np.uint64(np.int64(sortable_int(x[row, b]))) ^ top) & ((top - np.uint64(1)) | top)
            keys[b], order[b] = key, b
            for place in range(places):
                counts[place, (key >> np.uint64(8 * place)) & np.uint64(RADIX - 1)] += 1
        for place in range(places):
            start = 0
            for digit in range(RADIX):
                count = counts[place, digit]
                counts[place, digit] = start
                start += count
            for b in range(columns):
                digit = (keys[b] >> np.uint64(8 * place)) & np.uint64(RADIX - 1)
                position = counts[place, digit]
                counts[place, digit] = position + 1
                sorted_keys[position], sorted_order[position] = keys[b], order[b]
            keys, sorted_keys = sorted_keys, keys
            order, sorted_order = sorted_order, order
        for rank in range(columns):
            x[row, order[rank]] -= y[row, rank]
