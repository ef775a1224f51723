"""``proxlearn bench``: measure the speed of the recursion on this machine."""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path

from proxlearn.bench.request import DEFAULT_PARTS, EXPERIMENTS, PARTS, BenchRequest
from proxlearn.errors import InputError, did_you_mean
from proxlearn.run.folder_recognition import begins_with
from proxlearn.run.user_output_file import check_output, is_written_through, write_output
from proxlearn.terminal.argument_parser import command_parser
from proxlearn.train_and_draw import echo

PLOT_SUFFIXES = (".png", ".pdf")
RESULT_START = re.compile(rb'\{\s*"quick":')
"""Pattern of the start of bench.json; a file with a different start was not written by this command."""
PLOT_NAMES = {"special": "{}", "whole": "{}-whole", "growth": "{}-growth"}
"""Plot name of each part that has a plot; {} stands for the name of the JSON file without its suffix."""
DESCRIPTION = """\
Measure the speed of the recursion on this machine. The variants of a measurement are interleaved in one process. Parts:
  --whole    the paper's complete experiments, each on the clouds of its runs: proxlearn's engine, Algorithms 1 and 2
             as printed, and a lower bound on the time with torch functions only
  --special  special cases: one recursion from spread clouds, losses and neurons other than the paper's, the time for
             several N and epsilon, a complete run with its files, and the startup of a command
  --growth   the time of a step from the initial clouds for several N, and that of KeOps if pykeops is installed
  --company  the time of a run while other processes use the cores: a second run, or busy loops
The default is --whole --special. The command takes about a quarter of an hour, or two minutes with --quick.
Stop other programs first, because they disturb the timings."""


def main(args: list[str]) -> int:
    parser = command_parser("bench", DESCRIPTION)
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true", help="measure this part (see above)")
    parser.add_argument("--quick", action="store_true", help="make fewer and smaller measurements")
    parser.add_argument(
        "--dataset",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"datasets of --whole, --growth and --company: {', '.join(EXPERIMENTS)}",
    )
    parser.add_argument("--large", action="store_true", help="with --growth: measure up to 100 000 particles")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("bench.json"),
        metavar="FILE",
        help="the JSON file to write (default: bench.json); plots are written next to it, as .png and .pdf",
    )
    options = parser.parse_args(args)
    request, output = parse_request(options), options.output
    if output.suffix.lower() in PLOT_SUFFIXES:
        raise InputError(
            f"-o {output} names a plot, but the output is a JSON file",
            "give the name of a .json file; the plots are written next to it",
        )
    # A device or a pipe has no folder for a plot.
    json_only = is_written_through(output)
    plots = [] if json_only else plot_paths(output, request)
    for path in (output, *plots):
        check_output(path)
    if not json_only:
        refuse_foreign([output, *plots])
    from proxlearn.bench.suite import measure_all

    results = measure_all(request)
    write_output(output, (json.dumps(results, indent=2) + "\n").encode())
    if json_only:
        return 0
    from proxlearn.views.bench_views import draw_bench, tables

    echo(tables(results) + "\n")
    names = {part: name.format(output.stem) for part, name in PLOT_NAMES.items()}
    for path in draw_bench(results, output.absolute().parent, names):
        echo(f"{path}\n")
    echo(f"{output}\n")
    return 0


def parse_request(options: argparse.Namespace) -> BenchRequest:
    """Return the measurements that the options request; raise InputError if the options contradict each other."""
    parts = frozenset(part for part in PARTS if getattr(options, part)) or DEFAULT_PARTS
    for name in options.dataset:
        if name not in EXPERIMENTS:
            raise InputError(f"--dataset {name} is not an experiment of the paper", did_you_mean(name, EXPERIMENTS))
    if options.dataset and parts == {"special"}:
        raise InputError("--dataset has no effect on --special", "leave out --dataset, or add --whole")
    if options.large and "growth" not in parts:
        raise InputError("--large has no effect without --growth", "add --growth, or leave out --large")
    if options.large and options.quick:
        raise InputError("--large and --quick contradict each other", "leave out one of them")
    return BenchRequest(parts, options.quick, tuple(dict.fromkeys(options.dataset)), options.large)


def plot_paths(output: Path, request: BenchRequest) -> list[Path]:
    """Return the paths of the plots, which are written next to the JSON file ``output``."""
    names = [name.format(output.stem) for part, name in PLOT_NAMES.items() if part in request.parts]
    return [output.with_name(name + suffix) for name in names for suffix in PLOT_SUFFIXES]


def refuse_foreign(outputs: list[Path]) -> None:
    """Raise InputError if an output exists, unless the first output is a JSON file written by `proxlearn bench`."""
    existing = [path for path in outputs if path.exists()]
    if existing and not begins_with(Path(os.path.realpath(outputs[0])), RESULT_START):
        raise InputError(
            f"{existing[0]} was not written by `proxlearn bench`", "move this file, or choose another -o FILE"
        )
