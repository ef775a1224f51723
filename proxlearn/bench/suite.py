"""All measurements of `proxlearn bench`, in the form in which bench.json stores them."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from proxlearn.bench.experiments import QUICK, Effort, measure_experiment
from proxlearn.bench.growth import (
    LARGE_SIZES,
    QUICK_SIZES,
    SIZES,
    measure_epsilons,
    measure_growth,
    measure_initial_growth,
    measure_literal,
)
from proxlearn.bench.losses_and_neurons import measure_functionals
from proxlearn.bench.request import EXPERIMENTS, PARTS, BenchRequest
from proxlearn.bench.special_clouds import RecursionBench, experiment_of
from proxlearn.bench.timing import busy_share, machine_info
from proxlearn.bench.whole_commands import DATASETS as COMPANY_DATASETS
from proxlearn.bench.whole_commands import QUICK_STEPS, STEPS, measure_company, measure_end_to_end, train_command
from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError
from proxlearn.run.config_validation import validate_config
from proxlearn.terminal.streams import notice

DATASETS = ("wdbc", "diabetes", "shd", "banana", "sine")
NORMAL = ("init=normal", "init_scale=1", "h=0.1", "beta=1e4", "epsilon=1", "N=500")
"""Settings of a normal initial cloud, for a neuron to which the dataset's initial box does not apply."""
EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0)
BUSY = 0.1
"""Largest share of the cores that other processes may use before a notice is printed."""
Records = list[dict[str, Any]]


def measure_all(request: BenchRequest) -> dict[str, Any]:
    """Run the measurements and return their results; a measurement whose data are missing is skipped with a notice."""
    busy = busy_share()
    if busy is not None and busy > BUSY:
        notice(
            f"other processes use {busy:.0%} of the cores; stop them and run the command again, or compare only ratios"
        )
    results: dict[str, Any] = {"quick": request.quick, "busy_share": busy, "machine": machine_info()}
    measure_part = {
        "special": measure_special_clouds,
        "whole": measure_whole,
        "growth": measure_growth_of_datasets,
        "company": measure_in_company,
    }
    with torch.no_grad():
        for part in PARTS:
            if part in request.parts:
                results |= measure_part[part](request)
    return results


def measure_whole(request: BenchRequest) -> dict[str, Any]:
    """Measure the complete experiments of the paper."""
    effort = QUICK if request.quick else Effort()
    wholes, clouds = [], []
    datasets = request.datasets_or(EXPERIMENTS)
    with tqdm(desc="whole experiments", total=effort.turns * len(datasets), unit="turn") as progress:
        for dataset in datasets:
            with skipped_without_data(request):
                whole, records = measure_experiment(_config(f"dataset={dataset}"), effort, progress.update)
                wholes.append(whole)
                clouds += records
    return {"whole": wholes, "whole_clouds": clouds}


def measure_growth_of_datasets(request: BenchRequest) -> dict[str, Any]:
    """Measure steps from the initial clouds of the paper's experiments with an increasing number of particles."""
    sizes = QUICK_SIZES if request.quick else LARGE_SIZES if request.large else SIZES
    records = []
    datasets = request.datasets_or(EXPERIMENTS)
    with tqdm(desc="growth with N", total=len(sizes) * len(datasets), unit="cloud") as progress:
        for dataset in datasets:
            with skipped_without_data(request):
                for record in measure_initial_growth(partial(_config_of_size, dataset), sizes):
                    records.append(record)
                    progress.update()
    return {"initial_growth": records}


def measure_in_company(request: BenchRequest) -> dict[str, Any]:
    """Measure commands while other processes use the cores."""
    steps, turns = (QUICK_STEPS, 1) if request.quick else (STEPS, 5)
    records = []
    datasets = request.datasets_or(COMPANY_DATASETS)
    with tqdm(desc="company", total=turns * len(datasets), unit="turn") as progress:
        for dataset in datasets:
            with skipped_without_data(request):
                # Load the data first: if they are missing, the error of the loader states the reason and the remedy.
                experiment_of(_config(f"dataset={dataset}"))
                command = train_command(dataset, steps[dataset])
                records.append(measure_company(dataset, steps[dataset], turns, command, progress.update))
    return {"company": records}


def measure_special_clouds(request: BenchRequest) -> dict[str, Any]:
    """Measure special clouds, a whole run, other losses and neurons, growth, values of epsilon, and startup times."""
    quick = request.quick
    results: dict[str, Any] = {"startup": measure_startup(quick)}
    results |= {"shapes": [], "run": [], "functionals": [], "growth": [], "growth_literal": [], "epsilon": []}
    recursions: list[RecursionBench] = []
    for key, measurement in tqdm(list(measurements(quick, recursions)), desc="special clouds", unit="part"):
        with skipped_without_data(request):
            results[key] += measurement()
    results["shapes"] = [bench.record for bench in recursions]
    return results


@contextlib.contextmanager
def skipped_without_data(request: BenchRequest) -> Iterator[None]:
    """Turn an InputError about missing data into a notice, unless the user has named the datasets."""
    try:
        yield
    except InputError as error:
        if request.datasets:
            raise
        notice(f"a measurement is skipped: {error}")


def measurements(quick: bool, recursions: list[RecursionBench]) -> Iterator[tuple[str, Callable[[], Records]]]:
    """Yield pairs of a key in bench.json and a function whose records are stored under this key.

    The benches of the recursion are appended to ``recursions``. They are measured in three passes (at the beginning, in
    the middle and at the end), because the speed of a machine drifts.
    """

    def prepare(dataset: str) -> Records:
        recursions.append(RecursionBench(_config(f"dataset={dataset}"), 0.2 if quick else 1.0))
        return []

    def measure_pass() -> Records:
        for bench in recursions:
            bench.measure(0.5 if quick else 3.0)
        return []

    for dataset in DATASETS:
        yield "shapes", partial(prepare, dataset)
    yield "shapes", measure_pass
    wdbc = _config("dataset=wdbc")
    assert wdbc.steps is not None, "the paper's recipe sets every number"
    sizes = (2000, 2, 500) if quick else (wdbc.steps, 12, 2000)
    yield "run", lambda: [measure_end_to_end(wdbc, recursions[DATASETS.index("wdbc")].cloud, *sizes)]
    for overrides in (("dataset=diabetes",), ("dataset=digits", "dataset.neuron=tanh_outputs", *NORMAL)):
        yield "functionals", partial(measure_functionals, _config(*overrides), 1.0 if quick else 6.0)
    yield "shapes", measure_pass
    swept = [_config(f"epsilon={epsilon}") for epsilon in (EPSILONS[::4] if quick else EPSILONS)]
    yield "epsilon", partial(measure_epsilons, swept, 400 if quick else 20_000)
    for N in (250, 1000) if quick else (250, 500, 1000, 2000, 4000):
        yield "growth_literal", partial(_as_list, measure_literal, _config(f"N={N}"), 0.5 if quick else 2.0)
    yield "shapes", measure_pass
    # N increases, because the peak memory is measured over the whole life of the process.
    for N in (1000, 10_000) if quick else (1000, 3000, 10_000, 30_000, 100_000):
        yield "growth", partial(_as_list, measure_growth, _config(f"N={N}"), 40)
    if not quick:
        yield "growth", partial(_as_list, measure_growth, _config("N=1e6"), 10)


def measure_startup(quick: bool) -> dict[str, float]:
    """Return the times of two short commands in seconds, each the minimum over several repeats."""
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for key, arguments in (
            ("help_s", ["--help"]),
            ("one_step_s", ["train", "dataset=wdbc", "steps=1", "overwrite=true"]),
        ):
            command = [sys.executable, "-m", "proxlearn", *arguments]
            times = []
            for _ in range(2 if quick else 4):
                start = time.perf_counter()
                subprocess.run(command, cwd=folder, capture_output=True, check=True)
                times.append(time.perf_counter() - start)
            seconds[key] = min(times)
    return seconds


def _config(*overrides: str) -> TrainConfig:
    return validate_config(compose(parse(list(overrides))))


def _config_of_size(dataset: str, N: int) -> TrainConfig:
    return _config(f"dataset={dataset}", f"N={N}")


def _as_list(measure: Callable[..., dict[str, Any]], *args: Any) -> Records:
    return [measure(*args)]
