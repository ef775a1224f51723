"""The registry: names, blocks, and where the methods are."""

from __future__ import annotations

import pytest

from proxlearn.baselines.registry import METHODS, OURS, find_method, load_fit
from proxlearn.errors import InputError


def test_every_method_is_under_its_name_and_ours_is_first() -> None:
    assert all(name == method.name for name, method in METHODS.items())
    assert next(iter(METHODS)) == OURS
    assert {method.block for method in METHODS.values()} == {"network", "sampler", "reference"}


@pytest.mark.parametrize("name", METHODS)
def test_its_function_is_there(name) -> None:
    assert callable(load_fit(METHODS[name]))


def test_a_misspelt_one_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean `adam`"):
        find_method("adm")
