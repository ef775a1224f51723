"""``proxlearn bench``: how fast it is here, in one process, alternating, best of several."""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError
from proxlearn.run.output_file import check_output, is_written_through, write_output
from proxlearn.run.ownership import begins_with
from proxlearn.run.run_config import validate_config
from proxlearn.terminal.notice import notice
from proxlearn.train_session import echo

if TYPE_CHECKING:
    from proxlearn.bench.recursion import RecursionBench

SHAPES = ("wdbc", "diabetes", "shd", "banana", "sine")
EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0)
BUSY = 0.1
PLOTS = (".png", ".pdf")
RESULT_START = re.compile(rb'\{\s*"quick":')
DESCRIPTION = (
    "Time one recursion on the paper's experiments, beside the paper's algorithms as printed and beside the least that "
    "torch could take; its growth with N; its dependence on epsilon. Several minutes; --quick: one."
)


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="proxlearn bench", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller measurements, under a minute")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("bench.json"),
        metavar="FILE",
        help="bench.json; its plot beside it, as .png and .pdf",
    )
    options = parser.parse_args(args)
    output: Path = options.output
    if output.suffix.lower() in PLOTS:
        raise InputError(f"-o {output} is the name of the plot", "name a .json file: its plot is put beside it")
    alone = is_written_through(output)
    for path in (output, *(() if alone else (output.with_suffix(ending) for ending in PLOTS))):
        check_output(path)
    if not alone:
        refuse_foreign(output)
    found = measure(options.quick)
    write_output(output, (json.dumps(found, indent=2) + "\n").encode())
    from proxlearn.views.bench_plot import draw_bench, tables

    if alone:
        return 0
    echo(tables(found) + "\n")
    for path in draw_bench(found, output.absolute().parent, output.stem):
        echo(f"{path}\n")
    echo(f"{output}\n")
    return 0


def refuse_foreign(output: Path) -> None:
    """Refuse to replace a file that is no earlier result, or a plot without such a result beside it."""
    existing = [path for path in (output, *(output.with_suffix(ending) for ending in PLOTS)) if path.exists()]
    if existing and not begins_with(Path(os.path.realpath(output)), RESULT_START):
        raise InputError(f"{existing[0]} was not written by `proxlearn bench`", "choose another -o FILE, or move it")


def measure(quick: bool) -> dict[str, Any]:
    """Everything, as bench.json holds it."""
    import torch
    from tqdm import tqdm

    from proxlearn.bench.timing import busy_share, machine_info

    busy = busy_share()
    if busy is not None and busy > BUSY:
        notice(f"the machine is busy ({busy:.0%} of its cores): stop other work and repeat, or read the ratios only")
    found: dict[str, Any] = {"quick": quick, "busy_share": busy, "machine": machine_info(), "startup": startup(quick)}
    found |= {"shapes": [], "run": [], "growth": [], "growth_literal": [], "epsilon": []}
    shapes: list[RecursionBench] = []
    with torch.no_grad():
        for name, job in tqdm(list(jobs(quick, shapes)), desc="bench", unit="part"):
            try:
                found[name] += job()
            except InputError as error:
                notice(f"left out: {error}")
    found["shapes"] = [shape.record for shape in shapes]
    return found


def jobs(quick: bool, shapes: list[RecursionBench]) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """What is measured: the list of bench.json it goes to, and the measurement. ``shapes`` collects what is measured
    in several passes, early, in the middle and late."""
    from proxlearn.bench.end_to_end import measure_end_to_end
    from proxlearn.bench.growth import measure_epsilons, measure_growth, measure_literal
    from proxlearn.bench.recursion import RecursionBench

    def config(*overrides: str) -> TrainConfig:
        return validate_config(compose(parse(list(overrides))))

    def prepare(dataset: str) -> list[dict[str, Any]]:
        shapes.append(RecursionBench(config(f"dataset={dataset}"), burn_in=0.2 if quick else 1.0))
        return []

    def measure_pass() -> list[dict[str, Any]]:
        for shape in shapes:
            shape.measure(0.5 if quick else 3.0)
        return []

    for dataset in SHAPES:
        yield "shapes", partial(prepare, dataset)
    yield "shapes", measure_pass
    wdbc = config("dataset=wdbc")
    assert wdbc.steps is not None, "the paper's recipe leaves no number open"
    sizes = (2000, 2, 500) if quick else (wdbc.steps, 12, 2000)
    yield "run", lambda: [measure_end_to_end(wdbc, shapes[SHAPES.index("wdbc")].cloud, *sizes)]
    yield "shapes", measure_pass
    swept = [config(f"epsilon={epsilon}") for epsilon in (EPSILONS[::4] if quick else EPSILONS)]
    yield "epsilon", partial(measure_epsilons, swept, 400 if quick else 20_000)
    for N in (250, 1000) if quick else (250, 500, 1000, 2000, 4000):
        yield "growth_literal", partial(_one, measure_literal, config(f"N={N}"), 0.5 if quick else 2.0)
    yield "shapes", measure_pass
    # Ascending, because the peak of memory is that of the whole process so far.
    for N in (1000, 10_000) if quick else (1000, 3000, 10_000, 30_000, 100_000):
        yield "growth", partial(_one, measure_growth, config(f"N={N}"), 40)
    if not quick:
        yield "growth", partial(_one, measure_growth, config("N=1e6"), 10)


def _one(measure_one: Callable[..., dict[str, Any]], *args: Any) -> list[dict[str, Any]]:
    return [measure_one(*args)]


def startup(quick: bool) -> dict[str, float]:
    """Seconds from the command to its end, the best of several."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in (
            ("help_s", ["--help"]),
            ("one_step_s", ["train", "dataset=wdbc", "steps=1", "overwrite=true"]),
        ):
            times = []
            for _ in range(2 if quick else 4):
                start = time.perf_counter()
                subprocess.run([sys.executable, "-m", "proxlearn", *words], cwd=folder, capture_output=True, check=True)
                times.append(time.perf_counter() - start)
            found[name] = min(times)
    return found
