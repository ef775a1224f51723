"""The error for a user's table that cannot be used as it is, with the settings that solve all of its problems."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proxlearn.errors import InputError
from proxlearn.printable_text import override_list, override_word

LIST_SETTINGS = ("drop", "missing_values")
"""Settings that accept several values; values that solve a problem are added to those that the user has set."""
FIT_OPTIONS = {
    "target": "--target",
    "encode": "--encode",
    "missing": "--missing",
    "drop": "--drop",
    "missing_values": "--missing-value",
    "decimal": "--decimal",
    "header": "--no-header",
    "skip_lines": "--skip-lines",
    "bad_lines": "--bad-lines",
}
"""The options of `proxlearn fit`, by the keys of the config group ``dataset`` that they set."""
SETTINGS = tuple(key for key in FIT_OPTIONS if key != "target")
"""Keys of the config group ``dataset`` that determine how a table is read and encoded."""


@dataclass(frozen=True)
class TableProblem:
    """A problem of a user's table: a description of the problem, and settings that solve it."""

    text: str
    settings: Mapping[str, Any]


class TableProblems(InputError):
    """Raised if a table has problems that settings can solve; ``settings`` contains the settings that solve them all.

    The remedy of the message lists these settings as overrides; ``for_command`` adds them to the user's command.
    ``unsolved`` is a further error, which no setting solves.
    """

    def __init__(self, name: str, problems: Sequence[TableProblem], unsolved: InputError | None = None) -> None:
        self.name, self.problems, self.unsolved = name, list(problems), unsolved
        self.settings: dict[str, Any] = {}
        for problem in problems:
            self.settings = merge_settings(self.settings, problem.settings)
        texts = [problem.text for problem in problems]
        listed = texts[0] if len(texts) == 1 else " ".join(f"({i + 1}) {text};" for i, text in enumerate(texts))[:-1]
        count = "" if len(texts) == 1 else f"{len(texts)} problems: "
        also = "" if unsolved is None else f"; also, {unsolved.problem}"
        super().__init__(f"{name}: {count}{listed}{also}", f"{self._first}add " + " ".join(self.overrides()))

    @property
    def _first(self) -> str:
        """The remedy of ``unsolved``, which precedes the settings in the message; empty if ``unsolved`` is None."""
        return "" if self.unsolved is None else f"{self.unsolved.remedy}, then "

    def overrides(self) -> list[str]:
        """Return the settings as overrides that can be added to a `proxlearn train` command in a shell."""
        return [_override(key, value) for key, value in self.settings.items()]

    def for_command(self, command: str) -> InputError:
        """Return the same error with a complete command as its remedy: the user's command with the settings added.

        For commands other than `fit` and `train`, return the error unchanged.
        """
        words = shlex.split(command)
        if words[1:2] == ["fit"]:
            remedy = shlex.join(_with_fit_options(words, self.settings))
        elif words[1:2] == ["train"]:
            keys = tuple(f"{config_key(key)}=" for key in self.settings)
            kept = [word for word in words if not word.lstrip("+").startswith(keys)]
            remedy = " ".join([shlex.join(kept), *self.overrides()])
        else:
            return self
        return InputError(self.problem, f"{self._first}run: {remedy}")


def merge_settings(settings: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings updated with those of ``more``.

    Lists are joined without duplicates. A value of ``missing`` other than drop is not replaced.
    """
    merged = dict(settings)
    for key, value in more.items():
        if key in LIST_SETTINGS:
            merged[key] = tuple(dict.fromkeys((*(merged.get(key) or ()), *value)))
        elif key == "missing" and merged.get(key) not in (None, "drop"):
            continue
        else:
            merged[key] = value
    return merged


def config_key(key: str) -> str:
    """Return the key of a setting in the config; all settings except split_seed belong to the dataset."""
    return key if key == "split_seed" else f"dataset.{key}"


def _override(key: str, value: Any) -> str:
    if key in LIST_SETTINGS:
        return override_list(config_key(key), value)
    return override_word(config_key(key), value) if isinstance(value, str) else f"{config_key(key)}={value}".lower()


def _with_fit_options(words: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """Return the words of a `proxlearn fit` command, with the options for the settings added or replaced."""
    replaced = {FIT_OPTIONS[key] for key in settings if key in FIT_OPTIONS}
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word.partition("=")[0] in replaced:
            skip = "=" not in word and word != FIT_OPTIONS["header"]
        else:
            kept.append(word)
    for key, value in settings.items():
        if key == "header":
            kept.append(FIT_OPTIONS[key])
            continue
        if key not in FIT_OPTIONS:
            kept += ["--set", f"{key}={value}"]
            continue
        for item in value if key in LIST_SETTINGS else (value,):
            # A value that begins with a dash would be read as an option.
            kept += [f"{FIT_OPTIONS[key]}={item}"] if str(item).startswith("-") else [FIT_OPTIONS[key], str(item)]
    return kept
