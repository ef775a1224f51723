"""``proxlearn compare``: compare methods on the same splits, in two tables with confidence intervals."""

from __future__ import annotations

import argparse
import csv
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from proxlearn.baselines.registry import METHODS, OURS, Block, Method, Preset, find_method
from proxlearn.compare.spec import (
    AUTHORS,
    AUTHORS_SEEDS,
    CELLS,
    LOG,
    PAPERS,
    PUBLISHED,
    SPLITS,
    ComparisonSpec,
    Protocol,
)
from proxlearn.data import registry
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.safe_read import absolute_folder
from proxlearn.jobs.runner import JobLauncher
from proxlearn.terminal.streams import notice
from proxlearn.train_and_draw import echo
from proxlearn.validators import choice, integer, parse_number, real

DATASETS = ("banana", "diabetes", "twonorm", "wdbc")
PAPER_TABLE = Path("outputs", "paper", "table4.csv")
"""The file that `make table4` writes: the results of ProxLearn with the paper's settings and splits."""
COMPLETES = "computes the missing cells"
BLOCKS: dict[Block, str] = {
    "network": "block A, two-layer tanh networks of the same width",
    "sampler": "block B, samplers of the posterior of a linear Bayesian logistic regression",
    "reference": "reference methods, in both tables",
}
DESCRIPTION = """\
Train every method on the same random 80/20 splits and compare accuracy, log-likelihood, calibration and time.

The methods form two blocks that solve different problems, with one table per block: networks, and samplers of the
posterior of a linear model. Both tables end with the same reference methods. The splits are drawn with the seeds
0, 1, ..., are stored, and are the same for all methods. Features are scaled with statistics of the training part, and
each method selects its settings on the training part alone.
"""


def main(args: list[str]) -> int:
    options = parser().parse_args(args)
    spec, output = parse_spec(options), absolute_folder(options.output)
    launcher = parse_launcher(options, output)
    if OURS not in {method.name for method in spec.methods}:
        notice(f"the tables show no differences from `{OURS}`, which --method does not name; add `{OURS}` to --method")
    from proxlearn.compare.comparison_files import refuse_foreign_files, write_plan
    from proxlearn.compare.grid import grid_cells, missing_cells, run_cells
    from proxlearn.files.atomic import disk_errors_as_run_error, remove_temporaries
    from proxlearn.jobs.result_cache import ResultCache
    from proxlearn.run.folder_recognition import check_writable, require_comparison_or_empty
    from proxlearn.run.lock import FolderLock

    check_writable(output, "choose another --output")
    require_comparison_or_empty(output)
    refuse_foreign_files(spec, output)
    command = shlex.join(["proxlearn", "compare", *args])
    with disk_errors_as_run_error(output, f"the same command {COMPLETES}"):
        output.mkdir(parents=True, exist_ok=True)
        with FolderLock(output):
            remove_temporaries(output)
            cache = ResultCache(output / CELLS)
            cells = grid_cells(spec, ResultCache(output / SPLITS))
            missing = missing_cells(cells, cache)
            noun = "cell" if len(cells) == 1 else "cells"
            notice(f"{len(cells)} {noun}, {len(cells) - len(missing)} already finished; details in {LOG}")
            paper_rows = paper_settings_rows(spec)
            folder = write_plan(spec, cells, output, command, paper_rows)
            if missing:
                outcome = run_cells(missing, output, cache, launcher)
                if outcome.signal is not None:
                    notice(f"stopped; the same command {COMPLETES}")
                    return outcome.exit_code
                errors = {key: record.error or record.state for key, record in outcome.failures.items()}
                write_plan(spec, cells, output, command, paper_rows, errors)
            from proxlearn.views.compare.comparison_views import render_comparison, summary

            render_comparison(folder)
    echo(summary(folder))
    return int(any(cell.stored_result(cache) is None for cell in cells))


def parser() -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(
        prog="proxlearn compare",
        description=DESCRIPTION,
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = arguments.add_argument
    add("--dataset", nargs="+", metavar="NAME", help=f"datasets with two classes (default: {' '.join(DATASETS)})")
    add("--method", nargs="+", metavar="NAME", help="methods from the list below (default: all)")
    add(
        "--splits",
        nargs="+",
        default=["5"],
        help="number of splits (default: 5). NAME=NUMBER overrides the number for one dataset, as in --splits 5 "
        "twonorm=1. With --protocol paper, `authors` adds the split that the authors of the samplers used, if it "
        "is known (diabetes), as in --splits 5 authors",
    )
    add(
        "--preset",
        default="light",
        help="settings of the samplers: light (default, takes seconds) or paper (takes hours)",
    )
    add(
        "--protocol",
        default="matched",
        help="matched (default): all features are standardised; paper: the samplers' data are scaled as in their "
        "papers, and an additional table compares the results with the published ones",
    )
    add("--temperature", default="1", help="weight of the entropy in the samplers' target (default: 1)")
    add("--output", default="outputs/compare", metavar="FOLDER", help="output folder (default: outputs/compare)")
    add("--jobs", help="number of cells computed in parallel, each in its own process (default: number of cores)")
    add("--threads", help="number of threads per process (default: number of cores / jobs)")
    add(
        "--launcher",
        nargs="+",
        metavar=("NAME", "SETTING"),
        help="run the cells through a Hydra launcher (joblib, submitit_local, submitit_slurm, ray) with its settings, "
        "as in --launcher submitit_slurm hydra.launcher.partition=debug",
    )
    return arguments


def epilog() -> str:
    lines = []
    for block, title in BLOCKS.items():
        lines += [f"{title}:"]
        for method in (method for method in METHODS.values() if method.block == block):
            only = f", for {' '.join(method.only)} only" if method.only else ""
            lines.append(f"  {method.name:<11}{method.title}{only}")
    lines += [
        "",
        f"The results of all cells (method, dataset, split) are in FOLDER/{CELLS}, with the settings, data and",
        "revision that determine them. The same command computes the cells that are missing or have failed, and",
        "writes the tables again; with more --splits, datasets or methods, results are added to the stored ones.",
        "FOLDER must be new, empty, or the folder of an earlier comparison; files that this command did not write are",
        "never replaced or deleted. The tables and plots of the newest command are in FOLDER/<protocol>-<preset>/:",
        "compare.md, and networks and samplers as .csv, .tex, .png and .pdf. Differences are paired (the method minus",
        "ProxLearn on the same split) and have two 95 % confidence intervals: Student's interval, which is too narrow",
        "because the splits overlap, and the corrected interval of Nadeau and Bengio.",
        "",
        "examples:",
        "  proxlearn compare                                                  all methods, light presets",
        "  proxlearn compare --dataset wdbc --method proxlearn adam svm       takes a minute",
        "  proxlearn compare --protocol paper --preset paper --dataset diabetes   with the published results (hours)",
        "  proxlearn compare --dataset banana twonorm --splits 5 twonorm=1    a different number of splits for twonorm",
        "",
        "Exit codes: 0: all cells finished; 1: some cells failed (see the tables); 2: invalid command; 130: stopped.",
    ]
    return "\n".join(lines)


def parse_spec(options: argparse.Namespace) -> ComparisonSpec:
    """Validate the command line before any data are loaded, and return the comparison that it specifies."""
    preset = choice(Preset)("--preset", options.preset)
    protocol = choice(Protocol)("--protocol", options.protocol)
    temperature = real(above=0, example=1.0)("--temperature", parse_number(options.temperature))
    methods = parse_methods(options.method)
    names = dict.fromkeys(options.dataset or DATASETS)
    for name in names:
        check_dataset(name, methods, preset)
    splits, exceptions, authors = parse_splits(options.splits, names)
    if authors:
        check_authors(protocol, names)
    methods = tuple(method for method in methods if not method.only or names.keys() & set(method.only))
    from proxlearn.config.compose import compose, parse
    from proxlearn.run.config_validation import validate_config

    configs = tuple(validate_config(compose(parse([f"dataset={name}"]))).dataset for name in names)
    return ComparisonSpec(
        configs, methods, splits, cast(Preset, preset), cast(Protocol, protocol), temperature, exceptions, authors
    )


def check_authors(protocol: str, datasets: Iterable[str]) -> None:
    """Raise InputError if `--splits authors` is given with another protocol or without a dataset that supports it."""
    if protocol != "paper":
        raise InputError("--splits authors is available only with --protocol paper", "add --protocol paper")
    if not AUTHORS_SEEDS.keys() & set(datasets):
        names = " ".join(AUTHORS_SEEDS)
        raise InputError(f"--splits authors is available only for --dataset {names}", f"add --dataset {names}")


def parse_splits(words: list[str], datasets: Iterable[str]) -> tuple[int, dict[str, int], bool]:
    """Parse --splits into the default number, the numbers for named datasets, and whether `authors` is given."""
    whole = integer(at_least=1, below=1001, example=5)
    named = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word and word != AUTHORS] or ["5"]
    for word in plain if len(plain) > 1 else ():
        if not word.lstrip("+-").isdecimal():
            raise InputError(f"--splits cannot be `{word}`", did_you_mean(word, (AUTHORS,)))
    if len(plain) > 1:
        raise InputError(
            f"--splits has {len(plain)} numbers without a dataset",
            "give a single number for all datasets; use NAME=NUMBER to override it for one dataset",
        )
    for name in named:
        if name not in datasets:
            raise InputError(
                f"--splits names `{name}`, which is not one of the compared datasets", did_you_mean(name, datasets)
            )
    others = {name: whole(f"--splits {name}", parse_number(number)) for name, number in named.items()}
    return whole("--splits", parse_number(plain[0])), others, AUTHORS in words


def parse_methods(names: list[str] | None) -> tuple[Method, ...]:
    """Return the methods with the given names, without duplicates and in the order of the tables; None means all."""
    chosen = {find_method(name).name for name in names} if names else set(METHODS)
    return tuple(method for method in METHODS.values() if method.name in chosen)


def check_dataset(name: str, methods: tuple[Method, ...], preset: str) -> None:
    if name not in registry.DATASETS:
        raise InputError(f"unknown dataset `{name}`", did_you_mean(name, DATASETS))
    if registry.dataset_info(name).classes != 2:
        raise InputError(f"the dataset {name} does not have two classes", "choose from " + ", ".join(DATASETS))
    if all(method.only and name not in method.only for method in methods):
        raise InputError(f"none of the methods in --method supports the dataset {name}", "add another method")
    unpublished = [method.name for method in methods if method.name in PUBLISHED and name not in PAPERS]
    if preset == "paper" and unpublished:
        problem = f"no settings of {' or '.join(unpublished)} have been published for the dataset {name}"
        raise InputError(problem, f"choose --preset light or --dataset {' '.join(PAPERS)}")


def parse_launcher(options: argparse.Namespace, output: Path) -> JobLauncher:
    """Return the launcher of the comparison's jobs: a pool of processes on this machine, or a Hydra launcher."""
    from proxlearn.jobs.launcher_setup import available_cores
    from proxlearn.jobs.launchers import LocalPool

    whole = integer(at_least=1, below=4097, example=1)
    jobs = available_cores() if options.jobs is None else whole("--jobs", parse_number(options.jobs))
    threads = (
        max(1, available_cores() // jobs)
        if options.threads is None
        else whole("--threads", parse_number(options.threads))
    )
    if options.launcher is None:
        return LocalPool(jobs, threads)
    if options.jobs is not None or options.threads is not None:
        raise InputError("--jobs and --threads have no effect with --launcher", "use the launcher's settings instead")
    from proxlearn.compare.grid import JOBS_FOLDER
    from proxlearn.jobs.launchers import named_launcher

    return named_launcher(options.launcher[0], options.launcher[1:], output / JOBS_FOLDER)


def paper_settings_rows(spec: ComparisonSpec) -> dict[str, Any]:
    """Return the rows of PAPER_TABLE by dataset; without --protocol paper or without this file, the dict is empty."""
    if spec.protocol != "paper" or not PAPER_TABLE.is_file():
        return {}
    with PAPER_TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    columns = ("runs", "recursions", "weighted", "weighted sd", "unweighted", "unweighted sd")
    return {row["dataset"]: {name: row.get(name, "") for name in columns} for row in rows if row.get("dataset")}
