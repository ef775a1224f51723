"""Reference pages of the site, written from the code at build time: commands, config keys, metrics, files, errors."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

import proxlearn
from proxlearn import cli
from proxlearn.config.config_folders import config_folder, read_config_file, read_dataset_file
from proxlearn.config.schema import SECTIONS, TrainConfig, setting_check
from proxlearn.core.registry import UnknownPart
from proxlearn.data import registry
from proxlearn.data.dataset_files import cache_folder
from proxlearn.errors import EXIT_CODES, InputError
from proxlearn.run import metric_definitions as metrics
from proxlearn.run.run_folder import FILE_CONTENTS, PLOT_CONTENTS, PLOT_ENDINGS
from proxlearn.views.tables import escape_cell

PACKAGE = Path(proxlearn.__file__).parent


def write(folder: Path) -> None:
    """Write every reference page into ``folder``/reference, except pages whose text is unchanged."""
    pages = {
        "command_line": command_line_page(),
        "config_keys": config_page(),
        "metrics": metrics_page(),
        "run_folder": run_folder_page(),
        "exit_codes": exit_codes_page(),
    }
    for name, text in pages.items():
        write_changed(folder / "reference" / f"{name}.md", text)


def write_changed(path: Path, text: str) -> None:
    """Write a file unless it already has this text, so that Sphinx reads only changed pages again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(escape_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def help_text(name: str) -> str:
    """Return the text that ``proxlearn NAME --help`` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        cli.main([name, "--help"])
    # The cache folder of the machine that builds the site is of no use to a reader.
    return printed.getvalue().replace(str(cache_folder()), "~/.cache/proxlearn/data").replace(str(Path.home()), "~")


def command_line_page() -> str:
    """Return the page of all commands with their help texts."""
    parts = [
        "# Command line\n\nThis page shows the text that `proxlearn COMMAND --help` prints for each command. "
        "[Config keys](config_keys.md) describes the settings of `proxlearn train`, and "
        "[Exit codes and messages](exit_codes.md) lists the messages.\n"
    ]
    rows = [(f"[`{name}`](#proxlearn-{name})", command.help) for name, command in cli.COMMANDS.items()]
    parts.append(table(("command", "what it does"), rows))
    parts.append(f"## All commands\n\n```text\n{cli.usage()}```\n")
    for name in cli.COMMANDS:
        parts.append(f"(proxlearn-{name})=\n\n## proxlearn {name}\n\n```text\n{help_text(name).rstrip()}\n```\n")
    return "\n".join(parts)


KEY_LINE = re.compile(r"((?:# )? *)([A-Za-z_]\w*):.*?#\s*(.*)")


def comments(name: str) -> dict[str, str]:
    """Return the comments of a packaged YAML file by key."""
    lines = (config_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    matches = (KEY_LINE.fullmatch(line) for line in lines)
    return {match[2]: match[3] for match in matches if match is not None}


def accepted_values(field: dataclasses.Field[Any]) -> str:
    """Return the values that a key accepts, in the words of the error message for a wrong value."""
    check = setting_check(field)
    try:
        check(field.name, object())
    except InputError as error:
        match = re.search(r"must (be|map) (.*), got ", error.problem)
        if match:
            words = ("a mapping from " if match[1] == "map" else "") + match[2]
        else:
            choices = re.sub(rf".*?{field.name}=([\w|]+).*", r"\1", error.remedy).split("|")
            words = ", ".join(f"`{word}`" for word in choices)
            words += ", or a [registered name](../tutorials/own_functions.md)" * isinstance(error, UnknownPart)
        # The largest 64-bit integer is not a limit that matters to a reader.
        words = words.removesuffix(f" and <= {2**63 - 1}")
    else:
        raise AssertionError(f"the check of {field.name} accepts every value")
    if str(field.type).startswith("tuple") or "tuple[str" in str(field.type):
        words += " or a list of them"
    if "Mapping[str, float]" in str(field.type):
        words += ", or one per block of theta"
    with contextlib.suppress(InputError):
        if check(field.name, None) is None:
            words += ", or null"
    return words


def default(values: Mapping[str, Any], key: str) -> str:
    """Return the default of a key as the YAML file states it."""
    value = values.get(key)
    if value == "???" or "default_hyperparameters" in str(value):
        return "the dataset's"
    if "proxlearn.reading" in str(value):
        return "`paper` with the quadratic loss, else `first_variation`"
    return f"`{'null' if value is None else str(value).lower() if isinstance(value, bool) else value}`"


def group_defaults() -> dict[str, str | None]:
    """Return the config groups with their default options."""
    values = yaml.safe_load((config_folder() / "train.yaml").read_text(encoding="utf-8"))
    entries = (entry for entry in values["defaults"] if isinstance(entry, dict))
    return {key: value for entry in entries for key, value in entry.items() if not key.startswith("override")}


def config_page() -> str:
    """Return the page of all config keys, from the schema and the packaged YAML files."""
    recipes = {name: read_config_file(f"recipe/{name}") for name in ("paper", "tuned")}
    top, notes = read_config_file("train"), comments("train") | comments("recipe/tuned") | comments("recipe/paper")
    fields = {field.name: field for field in dataclasses.fields(TrainConfig)}
    parts = [CONFIG_INTRODUCTION]
    rows = []
    for group, chosen in group_defaults().items():
        names = sorted(path.stem for path in (config_folder() / group).glob("*.yaml"))
        rows.append((f"`{group}`", f"`{chosen}`" if chosen else "none", " ".join(f"`{name}`" for name in names)))
    parts.append("## Groups\n\n" + table(("group", "default", "options"), rows))

    method = [name for name in fields if name in recipes["paper"]]
    rows = [
        (f"`{name}`", accepted_values(fields[name]), *(default(recipes[r], name) for r in recipes), notes[name])
        for name in method
        if name != "recipe"
    ]
    heading = (
        "## Keys of the method\n\nThe defaults of these keys depend on the recipe. With `recipe=tuned`, keys whose "
        "default is null are [selected](../howto/hyperparameters.md#let-the-recipe-choose) on the training part. "
        "[Readings of the paper](../theory/readings.md) explains the keys with the value `paper`.\n\n"
    )
    parts.append(heading + table(("key", "values", "recipe=paper", "recipe=tuned", "meaning"), rows))

    others = [name for name in fields if name not in {*recipes["paper"], *SECTIONS, "init_sha256"}]
    rows = [(f"`{name}`", accepted_values(fields[name]), default(top, name), notes[name]) for name in others]
    rows.append(("`fail_fast`", "true or false", default(top, "fail_fast"), notes["fail_fast"]))
    rows.append(("`hydra.run.dir`", "a folder", "`outputs/<dataset>/<name>-<hash>`", "folder of the run"))
    rows.append(("`hydra.sweep.dir`", "a folder", "`outputs`", "folder that contains sweeps/ and the runs of a sweep"))
    parts.append("## Keys of a run\n\n" + table(("key", "values", "default", "meaning"), rows))

    for section, base, title in (
        ("dataset", "dataset_base", "Keys of a dataset"),
        ("device", "device/cpu", "Keys of the device"),
        ("logger", "logger/csv", "Keys of the loggers"),
    ):
        values, meanings = read_config_file(base), comments(base)
        rows = [
            (f"`{section}.{field.name}`", accepted_values(field), default(values, field.name), meanings[field.name])
            for field in dataclasses.fields(SECTIONS[section])
        ]
        parts.append(f"## {title}\n\n" + table(("key", "values", "default", "meaning"), rows))
    parts.append(dataset_tables())
    return "\n".join(parts)


def dataset_tables() -> str:
    """Return the tables of the packaged datasets: what they are, and the defaults of recipe=paper."""
    described, defaults = [], []
    keys = tuple(read_config_file("dataset_base")["default_hyperparameters"])
    for name in registry.LOADERS:
        info, values = registry.dataset_info(name), read_dataset_file(name)
        counts = ("" if count is None else str(count) for count in (info.rows, info.features, info.classes))
        described.append((f"`{name}`", *counts, info.source, info.licence))
        defaults.append((f"`{name}`", *(f"{values['default_hyperparameters'][key]}" for key in keys)))
    first = "## Datasets\n\n" + table(("dataset", "rows", "features", "classes", "source", "licence"), described)
    return f"{first}\n## Defaults of recipe=paper\n\n" + table(("dataset", *keys), defaults)


CONFIG_INTRODUCTION = """\
# Config keys

This page lists every config key with its values, its default and its meaning. A command can choose an option of each
group (`dataset=banana`) and set any key (`beta=0.1 dataset.scaling=standard`). `proxlearn train --cfg job` prints the
composed config without training. The [glossary](../theory/glossary.md) explains the terms.

The defaults of `dataset.*` in the table below are those that all datasets share; the config of a dataset can set other
values. For [your own table](../tutorials/your_table.md) (`dataset=csv` or `proxlearn fit`), the defaults are
`train_fraction=0.7` and `scaling=standard`.
"""


def metrics_page() -> str:
    """Return the page of all metrics."""
    parts = ["# Metrics\n"]
    parts.append(
        "This page defines the columns of `metrics.csv` in the [run folder](run_folder.md). The file has one row per "
        "logged step, and its first column is `step`. Columns with scores are named `<part>_<score>_<estimate>`, for "
        "example `test_accuracy_weighted`. In the definitions, f is the output of the network, y is the target, and n "
        "is the number of samples. [The proximal recursion](../theory/recursion.md) defines the symbols of the "
        "proximal step.\n"
    )

    def rows(entries: Mapping[str, str]) -> list[tuple[str, str]]:
        return [(f"`{name}`", text) for name, text in entries.items()]

    for title, entries in (
        ("Parts", metrics.PARTS),
        ("Estimates", metrics.ESTIMATES),
        ("Scores", metrics.SCORES),
        ("Scores with one column per part", metrics.SINGLE_SCORES),
        ("The cloud", metrics.CLOUD),
        ("The proximal step", metrics.PROXIMAL_STEP),
    ):
        parts.append(f"## {title}\n\n{table(('name', 'definition'), rows(entries))}")
    return "\n".join(parts)


def run_folder_page() -> str:
    """Return the page of the run folder's files."""
    rows = [(f"`{name}`", text) for name, text in FILE_CONTENTS.items()]
    endings = " and ".join(f"`.{ending}`" for ending in PLOT_ENDINGS)
    plots = [(f"`{name}`", text) for name, text in PLOT_CONTENTS.items()]
    return "\n".join(
        (
            RUN_FOLDER_INTRODUCTION,
            "## Files\n\n" + table(("file", "content"), rows),
            f"## Plots\n\nEach plot is stored as {endings}. `proxlearn plot FOLDER` draws the plots again.\n",
            table(("plot", "content"), plots),
            RUN_FOLDER_CHECKPOINTS,
        )
    )


RUN_FOLDER_INTRODUCTION = """\
# Run folder

This page describes the files of a run. They are written to `outputs/<dataset>/<name>-<hash>/`, or to the folder that
`hydra.run.dir=FOLDER` names. The hash is computed from every setting that affects the result, except `steps`. The same
command therefore finds the same folder, and a command with more steps continues the run (see
[how to stop, resume and extend runs](../howto/resume.md)). In Python,
[`proxlearn.load_run(FOLDER)`](api_runs.md) opens a run folder. A sweep writes its tables and plots to
`outputs/sweeps/<keys>-<hash>/`.
"""
RUN_FOLDER_CHECKPOINTS = """\
## Checkpoints

The file `checkpoints/cloud-<step>.safetensors` contains `theta` (N x p), `rho` (N) and the state that is needed to
resume the run exactly. It also contains a format version and a sha256 checksum of the whole file. The file is written
under a temporary name, synced and renamed. A checkpoint that is truncated, is damaged or belongs to another run is
skipped with a warning that names it, and the previous one is used.

A checkpoint is written every `checkpoint_every` steps, and the newest `keep_checkpoints` of these are kept. Checkpoints
at step 0 and at log-spaced steps (five per decade) are stored for films and are always kept.

Configs and run folders contain values and no code: YAML is loaded with the safe loader, checkpoints are safetensors and
JSON, and links inside a run folder are not followed.

## Sweep folder

| file | content |
| --- | --- |
| `summary.csv`, `summary.md` | state, step, scores, seconds and error of each job; mean and deviation over the seeds |
| `curves_*` | curves of the metrics for each value of a parameter: mean (line) and range (shaded) over the seeds |
| `final_*` | final scores as functions of one swept parameter |
| `heat_*` | final scores as functions of two swept parameters |
| `jobs/<n>.log` | output of job n |
"""


def exit_codes_page() -> str:
    """Return the page of exit codes and of all error messages."""
    parts = [
        "# Exit codes and messages\n\nThis page lists the exit codes of the commands and their error messages. "
        "[Questions and troubleshooting](../project/faq.md) explains the messages that users meet most often.\n"
    ]
    parts.append(table(("exit code", "meaning"), [(f"`{code}`", text) for code, text in EXIT_CODES.items()]))
    parts.append(MESSAGES_INTRODUCTION)
    for title, folders in MESSAGE_GROUPS.items():
        rows = sorted({row for path in source_files(folders) for row in messages(path)})
        parts.append(f"## {title}\n\n" + table(("message", "remedy"), rows))
    return "\n".join(parts)


MESSAGES_INTRODUCTION = """\
An error is one line on standard error: the problem, a semicolon, and the remedy. In the tables below, `...` stands for
a name, a value, a file or other text that depends on the command.
"""
MESSAGE_GROUPS = {
    "Commands and configs": ("cli.py", "commands", "config", "validators.py", "core/registry.py", "files"),
    "Data": ("data", "predict"),
    "Runs": ("run", "runs.py", "distributed", "training", "memory.py"),
    "Sweeps, searches and comparisons": ("sweeps", "jobs", "compare", "loggers"),
    "Estimators and the recursion": ("estimator.py", "estimator_base.py", "estimator_parameters.py", "flow.py", "core"),
    "Reports, films and the paper": ("views", "paper", "verify", "bench"),
}


def source_files(names: tuple[str, ...]) -> list[Path]:
    """Return the Python files of packages and modules."""
    paths = (PACKAGE / name for name in names)
    return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


ERROR_FUNCTIONS = ("InputError", "RunError", "user_function_error")


def messages(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the problem and the remedy of each error that a module raises with literal texts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        assigned = [statement for statement in ast.walk(node) if isinstance(statement, ast.Assign)]
        for call in ast.walk(node):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ERROR_FUNCTIONS:
                words = [literal(word, assigned) for word in call.args]
                if len(words) >= 2 and words[0] and words[-1]:
                    yield words[0], words[-1]


def literal(node: ast.expr | None, assigned: list[ast.Assign]) -> str | None:
    """Return a string, or an f-string with ``...`` for values; None for other nodes and f-strings with few words.

    A name stands for the text that was last assigned to it.
    """
    if isinstance(node, ast.Name):
        earlier = (text for text in assigned if text.lineno < node.lineno)
        texts = [text for text in earlier if getattr(text.targets[0], "id", "") == node.id]
        return literal(max(texts, key=lambda text: text.lineno).value, assigned) if texts else None
    if not isinstance(node, ast.JoinedStr):
        return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
    parts = (getattr(part, "value", None) for part in node.values)
    text = "".join(part if isinstance(part, str) else literal(part, assigned) or "..." for part in parts)
    return text if len(re.findall(r"[a-z]{3}", text)) >= 3 else None
