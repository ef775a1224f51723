"""The words of `proxlearn train`, prepared for Hydra's grammar.

Hydra has its own syntax for values, in which blanks, brackets, commas and quotes have a meaning. A file's name or a
column's is a text, and is taken as it is typed unless Hydra can read it as something that a text key accepts. Other
values that Hydra cannot read are handed on as texts, so that the check of their key names what is wrong.
"""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, Override, QuotedString

from proxlearn.config import schema
from proxlearn.config.config_folder import config_folder
from proxlearn.config.quoting import override_word, quote, quote_literal
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.user_paths import expand_home

FOLDER_KEYS = ("init_from", "hydra.run.dir", "hydra.sweep.dir")
TEXT_KEYS = ("dataset.path", "dataset.target", "logger.uri", "hydra.sweep.subdir", *FOLDER_KEYS)
TABLE_SUFFIXES = (".csv", ".npz", ".tsv", ".txt")
NUMBER_WITH_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")


def parse_arguments(args: list[str]) -> argparse.Namespace:
    """Hydra's flags and overrides; wrong ones are refused in one line."""
    parser = get_args_parser()
    parser.error = _refuse_arguments  # type: ignore[method-assign]
    parsed: argparse.Namespace = parser.parse_intermixed_args(args)
    return parsed


def hydra_arguments(args: list[str]) -> list[str]:
    """The same command line as Hydra can read it: flags first, every override in its syntax.

    Applying this twice changes nothing more.
    """
    parsed = parse_arguments(args)
    if parsed.shell_completion:
        return args
    several = parsed.multirun or any(re.fullmatch(r"\+*hydra\.mode=MULTIRUN", word) for word in parsed.overrides)
    flags = list(args)
    for word in reversed(parsed.overrides):
        # From the end: the value of a flag stands before the overrides that follow it.
        del flags[len(flags) - 1 - flags[::-1].index(word)]
    folder = parsed.config_dir
    if folder is not None and expand_home(folder) != folder:
        flags = [word.removesuffix(folder) + expand_home(folder) if word.endswith(folder) else word for word in flags]
    return [*flags, *(prepare_word(word, several) for word in parsed.overrides)]


def prepare_word(word: str, several: bool = False) -> str:
    """One override as Hydra can read it; ``several``: commas separate the values of a sweep."""
    key, equals, typed = word.partition("=")
    name = key.lstrip("+").partition("@")[0]
    value = typed
    if name in ("dataset.path", *FOLDER_KEYS) and typed.startswith("~"):
        value = expand_home(typed)
    if word.startswith("~") and _parse(word) is not None:
        return word
    if not equals or not name or _parse(f"{key}=0") is None:
        raise _not_an_override(word)
    override = _parse(f"{key}={value}")
    if name in TEXT_KEYS:
        return f"{key}={_text(name, value, override, several)}"
    if override is None:
        return f"{key}={quote_literal(value)}"
    if isinstance(override._value, ChoiceSweep) and override._value.simple_form and not several:
        raise InputError(f"{word} has several values", _remedy_for_commas(name, value))
    return word


def _text(name: str, value: str, override: Override | None, several: bool) -> str:
    """A text key's value in Hydra's syntax."""
    pieces = [piece.strip() for piece in value.split(",")]
    if override is None:
        if several and len(pieces) > 1:
            word = shlex.quote(f"{name}={','.join(map(quote_literal, pieces))}")
            raise InputError(f"{name}={value} cannot be read as the values of a sweep", f"quote each of them: {word}")
        return quote_literal(value)
    parsed = override._value
    if isinstance(parsed, ChoiceSweep) and parsed.simple_form:
        if not several:
            remedy = f"write {override_word(name, value)} for one name with a comma, or add -m to sweep over several"
            raise InputError(f"{name}={value} can be read in two ways", remedy)
        if len(pieces) == len(parsed.list):
            return ",".join(_kept(piece, element) for piece, element in zip(pieces, parsed.list, strict=True))
        return value
    if isinstance(parsed, QuotedString) and name in FOLDER_KEYS and parsed.text.startswith("~"):
        return quote(expand_home(parsed.text))
    if override.is_sweep_override() or re.match(r"\w+\s*\(", value):
        # One of Hydra's functions: range(3), glob(*), str(7).
        return value
    return _kept(value, parsed)


def _kept(typed: str, parsed: object) -> str:
    """As it is typed: a column called 1.50 or `true` is no number and no flag."""
    is_read_as_typed = parsed is None or isinstance(parsed, (str, QuotedString)) or str(parsed) == typed
    return typed if is_read_as_typed and not isinstance(parsed, bool) else quote_literal(typed)


def table_remedy(path: str) -> str:
    """How a user's own table is named."""
    return f"for your own table write dataset=csv {override_word('dataset.path', path)} dataset.target=COLUMN"


def _parse(word: str) -> Override | None:
    try:
        return OverridesParser.create().parse_override(word)
    except Exception:
        # Hydra's own errors, and those of the functions and numbers in a value.
        return None


def _remedy_for_commas(name: str, value: str) -> str:
    remedy = "add -m to sweep over several values"
    if not NUMBER_WITH_COMMA.fullmatch(value):
        return remedy
    fields = schema.TrainConfig.__dataclass_fields__
    whole = name in fields and "int" in str(fields[name].type)
    return f"write {name}={value.replace(',', '' if whole else '.')}, or {remedy}"


def _not_an_override(word: str) -> InputError:
    """The remedy for a word that is not key=value."""
    problem = f"`{word}` is not of the form key=value"
    key, equals, value = (part.strip() for part in word.partition("="))
    if equals and key and _parse(f"{key}=0") is not None:
        return InputError(problem, f"leave out the blanks: {shlex.quote(f'{key}={value}')}")
    if Path(word).suffix.lower() in TABLE_SUFFIXES:
        return InputError(problem, table_remedy(word))
    if (config_folder() / "dataset" / f"{word}.yaml").is_file():
        return InputError(problem, f"write dataset={word}")
    if word in schema.ALL_KEYS:
        return InputError(problem, f"write {word}=VALUE, in one word without blanks")
    return InputError(problem, "write key=value, in one word without blanks; see `proxlearn train --help`")


def _refuse_arguments(message: str) -> NoReturn:
    """argparse's own answer is a page; here it is one line that knows our keys."""
    unknown = re.match(r"unrecognized arguments: (.*)", message, re.DOTALL)
    if unknown is None:
        raise InputError(message, "see `proxlearn train --help`")
    word = next((word for word in unknown[1].split() if word.startswith("-")), unknown[1])
    option, _, value = word.partition("=")
    key = option.strip("-").replace("-", "_")
    if key in schema.ALL_KEYS:
        raise InputError(f"train has no option {option}", f"write {key}={value or 'VALUE'}")
    known = [text for action in get_args_parser()._actions for text in action.option_strings if text.startswith("--")]
    raise InputError(f"train has no option {option}", did_you_mean(option, known))
