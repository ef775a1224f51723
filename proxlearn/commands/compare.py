"""``proxlearn compare``: every method on the same splits, in two blocks, with intervals."""

from __future__ import annotations

import argparse
import csv
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from proxlearn.baselines.method import Block, Method, Preset
from proxlearn.baselines.registry import METHODS, OURS, find_method
from proxlearn.compare.spec import AUTHORS, AUTHORS_SEEDS, LOG, PAPERS, PUBLISHED, ComparisonSpec, Protocol
from proxlearn.data import registry
from proxlearn.errors import InputError, did_you_mean
from proxlearn.files.user_paths import absolute_folder
from proxlearn.terminal.notice import notice
from proxlearn.train_session import echo
from proxlearn.validators import choice, integer, parse_number, real

DATASETS = ("banana", "diabetes", "twonorm", "wdbc")
PAPER_TABLE = Path("outputs", "paper", "table4.csv")
"""What `make table4` writes: ours, with the paper's settings and on the paper's own splits."""
BLOCKS: dict[Block, str] = {
    "network": "block A, two-layer tanh networks of the same width",
    "sampler": "block B, samplers of the posterior of a linear Bayesian logistic regression",
    "reference": "reference lines, under both blocks",
}
DESCRIPTION = """\
Train every method on the same random 80/20 splits, and compare accuracy, log-likelihood, calibration and time.

The methods are of two kinds that solve different problems, so there are two tables, never one: networks, and samplers
of the posterior of a linear model. Each has the same reference lines under it. Splits are drawn from the seeds
0, 1, ..., stored, and shared by all; features are scaled by figures of the training part; what a method has to choose
for itself it chooses from the training part alone.
"""


def main(args: list[str]) -> int:
    options = parser().parse_args(args)
    asked, output = parse_spec(options), absolute_folder(options.output)
    jobs, threads = parallelism(options)
    if OURS not in {each.name for each in asked.methods}:
        notice(f"without `{OURS}` among the methods there are no differences to it")
    from proxlearn.compare.comparison import write_plan
    from proxlearn.compare.grid import cells_of, dataset_splits, is_finished, run_cells
    from proxlearn.compare.output_files import refuse_foreign_cells, refuse_foreign_files
    from proxlearn.compare.splits import split_path
    from proxlearn.files.atomic import disk_errors_as_run_error, remove_temporaries
    from proxlearn.run.folder_checks import check_writable
    from proxlearn.run.lock import FolderLock
    from proxlearn.run.ownership import require_comparison_or_empty

    check_writable(output, "choose another --output")
    require_comparison_or_empty(output)
    refuse_foreign_files(asked, output, [split_path(*split) for split in dataset_splits(asked)])
    with disk_errors_as_run_error(output, "the same command does what is missing"):
        output.mkdir(parents=True, exist_ok=True)
        with FolderLock(output):
            cells = cells_of(asked, output)
            refuse_foreign_cells(output / cell.path for cell in cells)
            for folder in {(output / cell.path).parent for cell in cells}:
                remove_temporaries(folder)
            missing = [cell for cell in cells if not is_finished(cell, output)]
            notice(f"{len(cells)} cells, {len(cells) - len(missing)} of them done before; details in {LOG}")
            command = shlex.join(["proxlearn", "compare", *args])
            folder = write_plan(asked, cells, output, command, paper_settings_rows(asked))
            if missing:
                run_cells(missing, output, jobs, threads)
            from proxlearn.views.compare.comparison_views import render_comparison, summary

            render_comparison(folder)
    echo(summary(folder))
    return int(not all(is_finished(cell, output) for cell in cells))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="proxlearn compare",
        description=DESCRIPTION,
        epilog=epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--dataset", nargs="+", metavar="NAME", help=f"two classes each: {' '.join(DATASETS)} (all)")
    made.add_argument("--method", nargs="+", metavar="NAME", help="see below (all)")
    made.add_argument(
        "--splits",
        nargs="+",
        default=["5"],
        help="how many, with the seeds 0, 1, ... (5); another number for one dataset: --splits 5 twonorm=1; with "
        "--protocol paper the samplers' own split too, where it is known (diabetes): --splits 5 authors",
    )
    made.add_argument(
        "--preset", default="light", help="of the samplers: light, in seconds, or paper, in hours (light)"
    )
    made.add_argument(
        "--protocol",
        default="matched",
        help="matched: everything standardised. paper: the samplers' data scaled as in their papers, and a table that "
        "sets what was run beside what was printed (matched)",
    )
    made.add_argument("--temperature", default="1", help="of the samplers: the weight of the entropy (1)")
    made.add_argument("--output", default="outputs/compare", metavar="FOLDER", help="outputs/compare")
    made.add_argument("--jobs", help="cells at a time, each in a process of its own (as many as cores)")
    made.add_argument("--threads", help="of each process (cores / jobs)")
    return made


def epilog() -> str:
    lines = []
    for block, title in BLOCKS.items():
        lines += [f"{title}:"]
        for each in (each for each in METHODS.values() if each.block == block):
            lines.append(f"  {each.name:<11}{each.title}" + (f", for {' '.join(each.only)} only" if each.only else ""))
    lines += [
        "",
        "Each cell (method, dataset, split) is a small file below FOLDER/cells, which says what determines it. The",
        "same command again does what is missing or has failed, and draws the tables again; more --splits, datasets",
        "or methods add to what is there. FOLDER is new, empty, or of an earlier comparison; a file in it that this",
        "command did not write is never replaced or deleted. Tables and plots, of the newest command, are in",
        "FOLDER/<protocol>-<preset>/: compare.md for people, networks and samplers as .csv, .tex, .png, .pdf.",
        "Differences are paired, method minus ProxLearn on the same split, with 95 % intervals: Student's, too narrow",
        "because the splits overlap, and Nadeau and Bengio's corrected one.",
        "",
        "examples:",
        "  proxlearn compare                                                  all of it, light presets",
        "  proxlearn compare --dataset wdbc --method proxlearn adam svm       a minute",
        "  proxlearn compare --protocol paper --preset paper --dataset diabetes   beside the printed figures (hours)",
        "  proxlearn compare --dataset banana twonorm --splits 5 twonorm=1    another number for one dataset",
        "",
        "Exit codes: 0 all cells finished, 1 some have failed (named in the table), 2 a wrong command, 130 stopped.",
    ]
    return "\n".join(lines)


def parse_spec(options: argparse.Namespace) -> ComparisonSpec:
    """The command line, checked before anything is loaded."""
    preset = choice(Preset)("--preset", options.preset)
    protocol = choice(Protocol)("--protocol", options.protocol)
    temperature = real(above=0, example=1.0)("--temperature", parse_number(options.temperature))
    methods = parse_methods(options.method)
    names = dict.fromkeys(options.dataset or DATASETS)
    for name in names:
        check_dataset(name, methods, preset)
    splits, exceptions, authors = splits_of(options.splits, names)
    if authors:
        check_authors(protocol, names)
    methods = tuple(each for each in methods if not each.only or names.keys() & set(each.only))
    from proxlearn.config.compose import compose, parse
    from proxlearn.run.run_config import validate_config

    configs = tuple(validate_config(compose(parse([f"dataset={name}"]))).dataset for name in names)
    return ComparisonSpec(
        configs, methods, splits, cast(Preset, preset), cast(Protocol, protocol), temperature, exceptions, authors
    )


def check_authors(protocol: str, datasets: Iterable[str]) -> None:
    """Asked for where it says something."""
    if protocol != "paper":
        raise InputError("the samplers' own split is part of their papers' protocol", "add --protocol paper")
    if not AUTHORS_SEEDS.keys() & set(datasets):
        known = " ".join(AUTHORS_SEEDS)
        raise InputError(f"the samplers' own split is known for {known} only", f"add --dataset {known}")


def splits_of(words: list[str], datasets: Iterable[str]) -> tuple[int, dict[str, int], bool]:
    """The number of splits, those datasets that have another, and whether the samplers' own is one too."""
    whole = integer(at_least=1, below=1001, example=5)
    named = dict(word.split("=", 1) for word in words if "=" in word)
    plain = [word for word in words if "=" not in word and word != AUTHORS] or ["5"]
    for word in plain if len(plain) > 1 else ():
        if not word.lstrip("+-").isdecimal():
            raise InputError(f"--splits cannot be `{word}`", did_you_mean(word, (AUTHORS,)))
    if len(plain) > 1:
        raise InputError(f"--splits has {len(plain)} numbers", "give one, and NAME=NUMBER where a dataset differs")
    for name in named:
        if name not in datasets:
            raise InputError(f"--splits names `{name}`, which is not compared", did_you_mean(name, datasets))
    others = {name: whole(f"--splits {name}", parse_number(number)) for name, number in named.items()}
    return whole("--splits", parse_number(plain[0])), others, AUTHORS in words


def parse_methods(names: list[str] | None) -> tuple[Method, ...]:
    """In the order of the tables, each once."""
    wanted = {find_method(name).name for name in names} if names else set(METHODS)
    return tuple(each for each in METHODS.values() if each.name in wanted)


def check_dataset(name: str, methods: tuple[Method, ...], preset: str) -> None:
    if name not in registry.LOADERS:
        raise InputError(f"no dataset `{name}`", did_you_mean(name, DATASETS))
    if registry.dataset_info(name).classes != 2:
        raise InputError(f"dataset {name} has not two classes", "choose from " + ", ".join(DATASETS))
    if all(each.only and name not in each.only for each in methods):
        raise InputError(f"none of the methods is for {name}", "add another --method")
    unpublished = [each.name for each in methods if each.name in PUBLISHED and name not in PAPERS]
    if preset == "paper" and unpublished:
        problem = f"no published settings of {' and '.join(unpublished)} for {name}"
        raise InputError(problem, f"choose --preset light or --dataset {' '.join(PAPERS)}")


def parallelism(options: argparse.Namespace) -> tuple[int, int]:
    """Processes, and threads of each."""
    from proxlearn.jobs.launchers import available_cores

    whole = integer(at_least=1, below=4097, example=1)
    jobs = available_cores() if options.jobs is None else whole("--jobs", parse_number(options.jobs))
    threads = (
        max(1, available_cores() // jobs)
        if options.threads is None
        else whole("--threads", parse_number(options.threads))
    )
    return jobs, threads


def paper_settings_rows(asked: ComparisonSpec) -> dict[str, Any]:
    """Our runs of the paper's settings, out of the table that is made from them; only the paper's protocol asks."""
    if asked.protocol != "paper" or not PAPER_TABLE.is_file():
        return {}
    with PAPER_TABLE.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kept = ("runs", "recursions", "weighted", "weighted sd", "unweighted", "unweighted sd")
    return {row["dataset"]: {name: row.get(name, "") for name in kept} for row in rows if row.get("dataset")}
