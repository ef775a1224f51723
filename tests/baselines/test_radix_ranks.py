"""Numbers meet those of equal rank, whatever their signs, sizes and repetitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from proxlearn.baselines.radix_ranks import subtract_equal_ranks

shapes = array_shapes(min_dims=2, max_dims=2, max_side=40)


@pytest.mark.parametrize(("dtype", "width"), [(np.float32, 32), (np.float64, 64)])
@given(data=st.data())
@settings(deadline=None)
def test_partners_are_those_of_a_stable_sort(dtype: type, width: int, data: st.DataObject) -> None:
    # Adding zero turns -0 into 0, which it equals: a sort may put the two in either order.
    numbers = st.floats(-(2.0**100), 2.0**100, width=width) | st.sampled_from([0.0, 1.0, -1.0])
    x = data.draw(arrays(dtype, shapes, elements=numbers)) + dtype(0)
    y = np.sort(data.draw(arrays(dtype, x.shape, elements=numbers)), axis=1)
    order = np.argsort(x, axis=1, kind="stable")
    expected = np.empty_like(x)
    np.put_along_axis(expected, order, np.take_along_axis(x, order, axis=1) - y, axis=1)
    difference = x.copy()
    subtract_equal_ranks(difference, y)
    np.testing.assert_array_equal(difference, expected)
