"""The search space of `proxlearn search`: overrides such as ``beta=log(0.01,10)`` among the words of the command."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from proxlearn.config.key_suggestions import suggest_key
from proxlearn.config.schema import ALL_KEYS
from proxlearn.errors import InputError

Kind = Literal["log", "uniform", "int", "choice"]
RANGE = re.compile(r"\s*(log|uniform|int|choice)\s*\((.*)\)\s*", re.DOTALL)
CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*\(.*\)\s*", re.DOTALL)
"""Pattern of a function call, for example of Hydra's functions for sweeps, which a search does not support."""
SEVERAL = re.compile(r"[^\[\](){}'\",]+(,[^\[\](){}'\",]+)+")
"""Pattern of several values that are separated by commas, as in a sweep."""
NOT_SEARCHED = ("dataset", "dataset.path", "dataset.target", "validation_fraction", "split_seed", "overwrite", "logger")
"""Keys that cannot be searched; for most of them, trials with different values would not have comparable scores."""


@dataclass(frozen=True)
class Parameter:
    """A key and the values from which the search chooses: a range of numbers, or a list of values."""

    key: str
    kind: Kind
    values: tuple[Any, ...]
    """The lower and upper end of a range, or the values of a choice as strings."""

    @property
    def is_log(self) -> bool:
        """Whether the range is searched on a logarithmic scale."""
        return self.kind == "log"

    def suggest(self, trial: Any) -> str:
        """Return the value that Optuna suggests for this parameter in a trial, as a string."""
        if self.kind == "choice":
            return str(trial.suggest_categorical(self.key, list(self.values)))
        if self.kind == "int":
            return str(trial.suggest_int(self.key, *self.values))
        return repr(float(trial.suggest_float(self.key, *self.values, log=self.is_log)))


def parse_space(words: Sequence[str]) -> tuple[list[str], dict[str, Parameter]]:
    """Split the words of a command into ordinary overrides and, by key, the parameters of the search."""
    fixed: list[str] = []
    space: dict[str, Parameter] = {}
    for word in words:
        key, _, value = word.partition("=")
        matched = RANGE.fullmatch(value)
        if matched is None:
            if call := CALL.fullmatch(value):
                raise InputError(
                    f"{key}={value:.60} is not a range: unknown function {call[1]}",
                    f"use {key}=log(low,high), uniform(low,high), int(low,high) or choice(a,b)",
                )
            if SEVERAL.fullmatch(value):
                raise InputError(f"{key}={value:.60} has several values", f"write {key}=choice({value:.60})")
            fixed.append(word)
            continue
        name = key.lstrip("+")
        if name not in ALL_KEYS:
            raise InputError(f"unknown key `{name}`", suggest_key(name, ALL_KEYS))
        if name in NOT_SEARCHED:
            problem = f"{name} cannot be searched, because scores would not be comparable"
            raise InputError(problem, f"set {name} to one value")
        if name in space:
            raise InputError(f"the key {name} is given twice", "give one range for it")
        space[name] = _parse_parameter(name, matched[1], matched[2])
    if not space:
        raise InputError("no key has a range of values to search", 'give a range, such as "beta=log(0.01,10)"')
    return fixed, space


def _parse_parameter(key: str, kind: Any, text: str) -> Parameter:
    items = [item.strip() for item in text.split(",")]
    if kind == "choice":
        if len(items) < 2 or len(set(items)) < len(items) or not all(items):
            raise InputError(
                f"{key}=choice({text:.60}) needs at least two different values", f"write {key}=choice(a,b)"
            )
        return Parameter(key, kind, tuple(items))
    try:
        low, high = (int(item) if kind == "int" else float(item) for item in items)
    except ValueError as error:
        example = "int(1,10)" if kind == "int" else f"{kind}(0.01,10)"
        problem = f"{key}={kind}({text:.60}) is not a range between two numbers"
        raise InputError(problem, f"write {key}={example}") from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (kind == "log" and low <= 0):
        needed = "0 < low < high" if kind == "log" else "low < high"
        raise InputError(f"{key}={kind}({text:.60}) is not a valid range", f"give two finite numbers with {needed}")
    return Parameter(key, kind, (low, high))


def trial_overrides(fixed: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Return the overrides of one trial: the values chosen by the search, and the fixed overrides of other keys."""
    kept = [word for word in fixed if word.partition("=")[0].lstrip("+") not in values]
    return [*kept, *(f"{key}={value}" for key, value in values.items())]
