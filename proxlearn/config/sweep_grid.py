"""The grid of a sweep: all combinations of the values in its overrides."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from hydra.core.override_parser.types import Override

from proxlearn.errors import InputError


def count_combinations(overrides: list[Override], limit: int) -> int:
    """Return the number of combinations; a result above ``limit`` may be an underestimate."""
    return math.prod(len(list(itertools.islice(_words(override), limit + 1))) for override in overrides)


def expand_grid(overrides: list[Override]) -> list[list[str]]:
    """Return the overrides of each job in the same order as Hydra: the last key varies fastest.

    A key that occurs twice keeps its first position and its last value.
    """
    words_by_key = {override.get_key_element(): list(_words(override)) for override in overrides}
    return [list(words) for words in itertools.product(*words_by_key.values())]


def _words(override: Override) -> Iterator[str]:
    """Yield ``key=value`` for each value of an override."""
    key = override.get_key_element()
    if not override.is_sweep_override():
        yield f"{key}={override.get_value_element_as_str()}"
    elif override.is_discrete_sweep():
        yield from (f"{key}={value}" for value in override.sweep_string_iterator())
    else:
        problem = f"{override.input_line} is not a list of values"
        raise InputError(problem, f"write {key}=VALUE,VALUE,... or {key}=range(START,STOP,STEP)")
