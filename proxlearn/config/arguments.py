"""Conversion of the command line of `proxlearn train` to Hydra's syntax, and expansion of the grid of a sweep.

In Hydra's syntax, blanks, brackets, commas and quotes have a special meaning. The value of a text key, such as a file
or column name, is used as the user typed it, unless it is a list or a function of Hydra that the key accepts. Any other
value that Hydra cannot read is passed on as a string, so that the validator of the key reports the problem.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString

from proxlearn.config import schema
from proxlearn.config.config_folders import config_folder
from proxlearn.config.hydra_internals import flag_parser
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.safe_read import expand_home
from proxlearn.printable_text import override_word, quote, quote_literal


def count_combinations(overrides: list[Override], limit: int) -> int:
    """Return the number of jobs that the overrides define; a number above ``limit`` may be underestimated."""
    return math.prod(len(list(itertools.islice(_words(override), limit + 1))) for override in overrides)


def expand_grid(overrides: list[Override]) -> list[list[str]]:
    """Return the overrides of each job; the jobs are in the order of Hydra, in which the last key varies fastest.

    If a key occurs twice, the first position and the last value are used.
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


FOLDER_KEYS = ("init_from", "hydra.run.dir", "hydra.sweep.dir")
TEXT_KEYS = ("dataset.path", "dataset.target", "logger.uri", "hydra.sweep.subdir", *FOLDER_KEYS)
TABLE_SUFFIXES = (".csv", ".npz", ".tsv", ".txt", ".gz", ".zip", ".bz2", ".xz", ".parquet", ".xlsx")
NUMBER_WITH_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


def parse_arguments(args: list[str]) -> argparse.Namespace:
    """Parse Hydra's flags and overrides; raise InputError if a flag is unknown or contradicts another flag."""
    parser = flag_parser()
    parser.error = _refuse_arguments  # type: ignore[method-assign]
    parsed: argparse.Namespace = parser.parse_intermixed_args(args)
    if parsed.help or parsed.hydra_help:
        return parsed
    if parsed.resolve and parsed.cfg is None:
        raise InputError("--resolve has no effect without --cfg", "add --cfg job, or leave out --resolve")
    modes = (parsed.run, parsed.multirun, parsed.cfg is not None, parsed.info is not None, parsed.shell_completion)
    if sum(map(bool, modes)) > 1:
        raise InputError(
            "--run, --multirun, --cfg, --info and --shell-completion are mutually exclusive", "give only one of them"
        )
    return parsed


def hydra_arguments(args: list[str]) -> list[str]:
    """Return the command line in Hydra's syntax, with the flags first; a converted command line is not changed."""
    parsed = parse_arguments(args)
    if parsed.shell_completion:
        return args
    is_sweep = parsed.multirun or any(re.fullmatch(r"\+*hydra\.mode=MULTIRUN", word) for word in parsed.overrides)
    flags = list(args)
    for word in reversed(parsed.overrides):
        # The search starts at the end, because the value of an earlier flag may be equal to the override.
        del flags[len(flags) - 1 - flags[::-1].index(word)]
    folder = parsed.config_dir
    if folder is not None and expand_home(folder) != folder:
        flags = [word.removesuffix(folder) + expand_home(folder) if word.endswith(folder) else word for word in flags]
    words = [word for typed in parsed.overrides for word in _split_loggers(typed)]
    return [*flags, *(prepare_override(word, is_sweep) for word in words)]


def _split_loggers(word: str) -> list[str]:
    """Split ``logger=[a,b]`` into words that select the first logger and list the others; ``csv`` is left out."""
    listed = re.fullmatch(r"logger=\[([\w\s,-]*)\]", word)
    if listed is None:
        return [word]
    names = [name for name in dict.fromkeys(item.strip() for item in listed[1].split(",")) if name not in ("", "csv")]
    if len(names) < 2:
        return [f"logger={names[0] if names else 'csv'}"]
    return [f"logger={names[0]}", f"++logger.also=[{','.join(names[1:])}]"]


def prepare_override(word: str, is_sweep: bool = False) -> str:
    """Convert one override to Hydra's syntax; in a sweep, commas separate the values of a key."""
    key, equals, typed_value = word.partition("=")
    name = key.lstrip("+").partition("@")[0]
    value = typed_value
    if name in ("dataset.path", *FOLDER_KEYS) and typed_value.startswith("~"):
        value = expand_home(typed_value)
    if word.startswith("~") and _parse_override(word) is not None:
        return word
    if not equals or not name or _parse_override(f"{key}=0") is None:
        raise _malformed_override(word)
    override = _parse_override(f"{key}={value}")
    if name in TEXT_KEYS:
        return f"{key}={_text_value(name, value, override, is_sweep)}"
    if override is None:
        return f"{key}={quote_literal(value)}"
    if isinstance(override._value, ChoiceSweep) and override._value.simple_form and not is_sweep:
        raise InputError(f"{word} has several values", _comma_remedy(name, value))
    return word


def _text_value(name: str, value: str, override: Override | None, is_sweep: bool) -> str:
    """Convert the value of a text key to Hydra's syntax."""
    items = [item.strip() for item in value.split(",")]
    if override is None:
        if is_sweep and len(items) > 1:
            word = shlex.quote(f"{name}={','.join(map(quote_literal, items))}")
            raise InputError(f"{name}={value} cannot be read as the values of a sweep", f"quote each value: {word}")
        return quote_literal(value)
    parsed_value = override._value
    if isinstance(parsed_value, ChoiceSweep) and parsed_value.simple_form:
        if not is_sweep:
            one_name = f"write {override_word(name, value)} for one name that contains a comma"
            remedy = f"{one_name}, or add -m to sweep over several names"
            raise InputError(f"{name}={value} is ambiguous", remedy)
        if len(items) == len(parsed_value.list):
            return ",".join(_as_typed(item, element) for item, element in zip(items, parsed_value.list, strict=True))
        return value
    if isinstance(parsed_value, QuotedString) and name in FOLDER_KEYS and parsed_value.text.startswith("~"):
        return quote(expand_home(parsed_value.text))
    if name == "dataset.target" and isinstance(parsed_value, list) and len(parsed_value) > 1:
        # The value lists several targets; a single column with such a name is written in quotes.
        return value
    if override.is_sweep_override() or re.match(r"\w+\s*\(", value):
        # The value is a function of Hydra's grammar: range(3), glob(*), str(7).
        return value
    return _as_typed(value, parsed_value)


def _as_typed(typed: str, parsed_value: object) -> str:
    """Return the typed string, in quotes if Hydra would otherwise change it (for example, the name 1.50 or `true`)."""
    keeps_spelling = parsed_value is None or isinstance(parsed_value, (str, QuotedString)) or str(parsed_value) == typed
    return typed if keeps_spelling and not isinstance(parsed_value, bool) else quote_literal(typed)


def table_remedy(path: str) -> str:
    """Return the remedy for a table whose path is given without the key ``dataset.path``."""
    return f"for your own table, write dataset=csv {override_word('dataset.path', path)} dataset.target=COLUMN"


def _parse_override(word: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(word)
    except Exception:
        # Besides Hydra's own errors, the functions and numbers in a value can raise errors.
        return None


def _comma_remedy(name: str, value: str) -> str:
    remedy = "add -m to sweep over several values"
    if not NUMBER_WITH_COMMA.fullmatch(value):
        return remedy
    fields = schema.TrainConfig.__dataclass_fields__
    is_integer = name in fields and "int" in str(fields[name].type)
    return f"write {name}={value.replace(',', '' if is_integer else '.')}, or {remedy}"


def _malformed_override(word: str) -> InputError:
    """Return the error, with a remedy, for an argument that is not of the form key=value."""
    problem = f"`{word}` is not of the form key=value"
    key, equals, value = (part.strip() for part in word.partition("="))
    if equals and key and _parse_override(f"{key}=0") is not None:
        return InputError(problem, f"leave out the spaces: {shlex.quote(f'{key}={value}')}")
    if Path(word).suffix.lower() in TABLE_SUFFIXES:
        return InputError(problem, table_remedy(word))
    # The folder is listed instead of checking one path, because a word can be too long for a file name.
    if word in (path.stem for path in (config_folder() / "dataset").glob("*.yaml")):
        return InputError(problem, f"write dataset={word}")
    if word in schema.ALL_KEYS:
        return InputError(problem, f"write {word}=VALUE, without spaces")
    return InputError(problem, "write key=value, without spaces; see `proxlearn train --help`")


def _refuse_arguments(message: str) -> NoReturn:
    """Raise an InputError with a remedy for an argparse error, for which argparse itself would print its usage."""
    unknown = re.match(r"unrecognized arguments: (.*)", message, re.DOTALL)
    if unknown is None:
        raise InputError(message, "see `proxlearn train --help`")
    word = next((word for word in unknown[1].split() if word.startswith("-")), unknown[1])
    option, _, value = word.partition("=")
    key = option.strip("-").replace("-", "_")
    if key in schema.ALL_KEYS:
        raise InputError(f"`proxlearn train` has no option {option}", f"write {key}={value or 'VALUE'}")
    options = [text for action in flag_parser()._actions for text in action.option_strings if text.startswith("--")]
    raise InputError(f"`proxlearn train` has no option {option}", did_you_mean(option, options))
