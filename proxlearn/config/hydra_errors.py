"""Translation of the errors of Hydra and OmegaConf into one-line errors with a remedy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf.errors import InterpolationResolutionError

from proxlearn.config.arguments import TABLE_SUFFIXES, TEXT_KEYS, table_remedy
from proxlearn.config.config_folders import PLUGIN_GROUPS
from proxlearn.config.key_suggestions import suggest_key
from proxlearn.config.launcher_defaults import LAUNCHERS
from proxlearn.config.schema import ALL_KEYS
from proxlearn.core.registry import INSTALL_PACKAGE
from proxlearn.errors import InputError, ProxlearnError, did_you_mean
from proxlearn.printable_text import override_word

LONGEST_PROBLEM = 300


def translate_hydra_error(error: BaseException) -> ProxlearnError:
    """Return the ProxlearnError that caused an exception, or an InputError that replaces the exception."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ProxlearnError):
            return cause
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, MissingConfigException) and error.missing_cfg_file and error.options:
        return _missing_option(error.missing_cfg_file, error.options)
    if isinstance(error, InterpolationResolutionError) and error.full_key and error.child_node is not None:
        return _unresolved(str(error.full_key), str(error.child_node._value()))
    return _translate_text(error)


def _missing_option(config_file: str, options: Sequence[str]) -> InputError:
    """Return the error for an option that does not exist in its config group."""
    group, _, option = config_file.rpartition("/")
    if config_file.startswith("dataset/") and Path(option).suffix.lower() in TABLE_SUFFIXES:
        path = config_file.removeprefix("dataset/")
        return InputError(f"unknown dataset `{path}`", table_remedy(path))
    if group == "hydra/launcher" and option in LAUNCHERS:
        return InputError(
            f"{group}={option} is not installed", f"run `pip install 'proxlearn[{LAUNCHERS[option].extra}]'`"
        )
    remedy = did_you_mean(option, options)
    all_options = f" ({group}: {', '.join(sorted(options))})" if "did you mean" in remedy else ""
    if group in PLUGIN_GROUPS and not all_options:
        remedy += f", or {INSTALL_PACKAGE}"
    return InputError(f"unknown {group} `{option}`", remedy + all_options)


def _unresolved(key: str, value: str) -> InputError:
    """Return the error for an interpolation that cannot be resolved."""
    problem = f"{key}={value:.200} refers to a key or variable that does not exist"
    if key not in TEXT_KEYS:
        return InputError(problem, "write the value directly")
    return InputError(problem, f"correct the reference, or write {override_word(key, value)} for literal text")


def _translate_text(error: BaseException) -> InputError:
    """Return the error for an exception whose cause is known only from its message."""
    text = str(error)
    unknown = re.search(r"Could not override '([^']+)'", text)
    if unknown:
        key = unknown[1].split("@")[0]
        return InputError(f"unknown key `{key}`", suggest_key(key, ALL_KEYS))
    first_line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    problem = first_line.removeprefix("LexerNoViableAltException: ").rstrip(".")
    problem = problem if len(problem) < LONGEST_PROBLEM else problem[:LONGEST_PROBLEM] + " ..."
    if isinstance(error, OverrideParseException):
        return InputError(
            f"cannot read the override `{problem}`", "write key=value, and quote a value that has special characters"
        )
    merging = re.match(r"Error merging override (.*)", first_line)
    if merging:
        reason = str(error.__cause__ or "wrong type").partition("\n")[0]
        key = merging[1].partition("=")[0]
        return InputError(f"cannot set {merging[1]:.200} ({reason:.200})", f"leave out {key:.100}")
    if "Ambiguous value" in text or "requires --multirun" in text:
        return InputError(problem, "add -m to sweep over several values")
    return InputError(problem, "write overrides as key=value; see `proxlearn train --help`")
