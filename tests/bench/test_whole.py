"""Whole experiments, growth and busy machines: the clouds represent every recursion, and no busy process survives."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from proxlearn.bench.experiments import (
    Effort,
    clouds_of_run,
    log_spaced,
    make_stepper,
    measure_experiment,
    weights_of_clouds,
)
from proxlearn.bench.experiments import summarise as summarise_experiment
from proxlearn.bench.growth import NOT_INSTALLED, NOT_POSSIBLE, measure_initial_growth
from proxlearn.bench.request import EXPERIMENTS
from proxlearn.bench.special_clouds import experiment_of, literal_of
from proxlearn.bench.torch_floor import KernelUse, floor_of, kernel_use, share_that_matters
from proxlearn.bench.whole_commands import busy_loops, measure_company, run_at_once, summarise, train_command
from proxlearn.cli import main
from proxlearn.core.step import step
from proxlearn.errors import RunError
from proxlearn.views.bench_views import draw_bench, duration, tables
from tests.conftest import config_of

TINY = Effort(largest_k=20, run_seconds=60.0, turns=1, literal_turns=1, stretch_seconds=0.001)


@given(st.integers(1, 10**6), st.integers(0, 5000))
def test_the_clouds_stand_for_every_recursion_once(steps: int, largest_k: int) -> None:
    ks = log_spaced(steps, largest_k)
    assert ks == sorted(set(ks))
    assert (ks[0], ks[-1]) == (0, min(steps - 1, largest_k))
    weights = weights_of_clouds(ks, steps)
    assert sum(weights) == steps
    assert min(weights) > 0


@given(st.integers(1, 3000), st.floats(0, 10), st.floats(0, 10))
def test_a_cost_that_is_linear_in_k_is_summed_exactly(steps: int, first: float, slope: float) -> None:
    ks = log_spaced(steps, steps)
    total = sum(weight * (first + slope * k) for k, weight in zip(ks, weights_of_clouds(ks, steps), strict=True))
    assert total == pytest.approx(sum(first + slope * k for k in range(steps)))


def test_the_cost_after_the_last_cloud_is_that_of_the_last_cloud() -> None:
    weights = weights_of_clouds([0, 2], 100)
    clouds = [
        {"k": k, "stands_for": weight, "ours_ms": ms, "literal_ms": 60.0, "floor_ms": ms / 2}
        for k, weight, ms in zip((0, 2), weights, (3.0, 1.0), strict=True)
    ]
    whole = summarise_experiment("wdbc", 100, clouds)
    # The first three recursions take 3, 2 and 1 ms, and each of the other 97 takes 1 ms.
    assert whole["seconds"] == pytest.approx((3 + 2 + 1 + 97) / 1e3)
    assert whole["ours_over_floor"] == pytest.approx(2.0)
    assert whole["literal_over_ours"] * whole["ours_ms"] == pytest.approx(60.0)


def test_the_clouds_are_those_of_a_run_and_end_with_the_time() -> None:
    experiment, cloud = experiment_of(config_of("dataset=sine", "N=30"))
    clouds = list(clouds_of_run(experiment, cloud, [0, 1, 3], 60.0, torch.Generator().manual_seed(0)))
    assert [cloud.step for cloud in clouds] == [0, 1, 3]
    stepper, again = make_stepper(experiment, torch.Generator().manual_seed(0)), cloud
    for _ in range(3):
        again, _ = stepper(again)
    assert torch.equal(again.theta, clouds[-1].theta)
    first_only = clouds_of_run(experiment, cloud, [0, 1, 3], 0.0, torch.Generator().manual_seed(0))
    assert [cloud.step for cloud in first_only] == [0]


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A counter of torch operations by name, and of the elements of the tensors that they return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls[func.overloadpacket.__name__] += 1
        self.elements += result.numel() if isinstance(result, Tensor) else 0
        return result


@pytest.mark.parametrize("dataset, in_place", [("wdbc", "sigmoid_"), ("digits", "exp_")])
@pytest.mark.parametrize("rounds", [0, 5])
def test_the_floor_is_what_it_is_defined_to_be_and_less_than_the_literal_algorithms(
    dataset: str, in_place: str, rounds: int
) -> None:
    experiment, cloud = experiment_of(config_of(f"dataset={dataset}", "N=20", "L=5"))
    use = KernelUse("all pairs" if rounds else "identity", rounds, float(rounds > 0))
    generator = torch.Generator().manual_seed(0)
    calls = [floor_of(experiment, cloud, use, generator), literal_of(experiment, cloud, torch.float64, generator)]
    work = []
    for call in calls:
        with torch.no_grad(), Work() as counter:
            call()
        work.append(counter)
    floor, literal = work
    assert (floor.calls["mm"], floor.calls[in_place]) == (2, 1)
    assert floor.calls["mv"] == (2 * (rounds + 1) if rounds else 0)
    assert floor.calls["exp"] == (rounds > 0)
    assert floor.elements < literal.elements


@pytest.mark.parametrize("epsilon, share", [(1e6, 1.0), (1e-9, 1 / 40)])
def test_the_pairs_that_matter_are_all_or_none_at_extreme_epsilons(epsilon: float, share: float) -> None:
    """If no two particles exchange mass, each particle is still paired with itself."""
    config = config_of("dataset=sine", "N=40", f"epsilon={epsilon}", "kernel=log", "device.dtype=float64")
    experiment, cloud = experiment_of(config)
    generator = torch.Generator().manual_seed(0)
    noise, z0 = torch.randn(cloud.theta.shape, generator=generator).double(), torch.ones(40).double()
    _, info = step(experiment.problem, cloud, experiment.hyper, noise, z0)
    assert info is not None
    assert share_that_matters(info) == pytest.approx(share)


def test_the_compiled_step_determines_the_kernel_of_the_floor() -> None:
    regimes = {}
    for epsilon in (1e6, 1e-9):
        experiment, cloud = experiment_of(config_of("dataset=sine", "N=40", f"epsilon={epsilon}"))
        regimes[epsilon] = kernel_use(*make_stepper(experiment, torch.Generator().manual_seed(0))(cloud))
    assert regimes[1e6].regime == "all pairs"
    assert regimes[1e6].rounds > 0
    assert regimes[1e-9].rounds == 0 or regimes[1e-9].share < 0.1


def test_records_of_whole_experiments_growth_and_company_make_tables_and_plots(tmp_path: Path) -> None:
    with torch.no_grad():
        whole, clouds = measure_experiment(config_of("dataset=sine", "N=40", "steps=30"), TINY)
        growth = list(measure_initial_growth(lambda N: config_of("dataset=sine", f"N={N}"), (40, 80, 10**9)))
    assert sum(cloud["stands_for"] for cloud in clouds) == whole["steps"] == 30
    assert [cloud["k"] for cloud in clouds] == [0, 1, 2, 5, 10, 20]
    assert min(cloud[f"{name}_ms"] for cloud in clouds for name in ("ours", "literal", "floor")) > 0
    assert growth[0]["ns_per_pair"] == pytest.approx(1e9 * growth[0]["seconds"] / 40**2)
    assert growth[0]["keops"] == NOT_INSTALLED or growth[0]["keops"] > 0
    assert growth[-1]["seconds"] is None
    assert growth[-1]["problem"]
    company = {"dataset": "wdbc", "steps": 1, "turns": 1, "cores": 2}
    company |= summarise({"alone_s": [2.0], "one_after_the_other_s": [4.0], "at_once_s": [6.0], "busy_s": [5.0]})
    results = {"whole": [whole], "whole_clouds": clouds, "initial_growth": growth, "company": [company]}
    text = tables(json.loads(json.dumps(results)))
    assert NOT_POSSIBLE in text
    assert "| 1.5 " in text
    names = {"whole": "mine-whole", "growth": "mine-growth"}
    paths = draw_bench(results, tmp_path, names)
    assert [path.name for path in paths] == [f"{name}.{suffix}" for name in names.values() for suffix in ("png", "pdf")]
    assert all(path.stat().st_size > 1000 for path in paths)


@pytest.mark.parametrize("seconds, text", [(5.25, "5.25 s"), (300, "5 min"), (7200, "2 h"), (119, "119 s")])
def test_a_duration_has_a_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_ratios_of_company_are_within_turns() -> None:
    """A slow minute makes both times of a turn longer and leaves their ratio unchanged."""
    seconds = {"alone_s": [1.0, 10.0, 1.0], "one_after_the_other_s": [2.0, 20.0, 2.0]}
    seconds |= {"at_once_s": [3.0, 30.0, 3.0], "busy_s": [2.0, 20.0, 2.0]}
    summary = summarise(seconds)
    assert (summary["at_once_over_one_after_the_other"], summary["busy_over_alone"]) == (1.5, 2.0)


def test_company_runs_real_commands_in_folders_of_their_own() -> None:
    folders: list[Path] = []

    def command_of(folder: Path) -> list[str]:
        folders.append(folder)
        return [sys.executable, "-S", "-c", f"import os; os.mkdir({str(folder)!r})"]

    turns = []
    record = measure_company("wdbc", 1, 3, command_of, lambda: turns.append(1))
    assert record["one_after_the_other_s"] == pytest.approx(2 * record["alone_s"])
    # One command warms up; a turn has two in sequence, two at once, and one beside the busy loops.
    assert (len(folders), len(set(folders)), len(turns)) == (16, 16, 3)
    assert not any(folder.exists() for folder in folders)


def test_the_command_of_company_is_a_run(tmp_path: Path) -> None:
    run_at_once([train_command("wdbc", 1)(tmp_path / "run")])
    assert json.loads((tmp_path / "run" / "status.json").read_text())["state"] == "finished"


def test_a_command_that_fails_is_named_in_one_line() -> None:
    with pytest.raises(RunError, match=r"exit code 3 \(why\)"):
        run_at_once([[sys.executable, "-c", "print('first'); print('why'); raise SystemExit(3)"]])


@pytest.mark.parametrize("error", [RunError("a", "b"), KeyboardInterrupt(), SystemExit(1)])
def test_busy_loops_end_when_the_measurement_fails(error: BaseException) -> None:
    with contextlib.suppress(type(error)), busy_loops(2) as loops:
        assert [loop.poll() for loop in loops] == [None, None]
        raise error
    assert all(loop.poll() is not None for loop in loops)


def test_busy_loops_end_when_the_bench_is_killed() -> None:
    """Their standard input is then closed, which requires no handler in the killed process."""
    code = "with busy_loops(1) as (loop,): print(loop.pid, flush=True); input()"
    code = f"from proxlearn.bench.whole_commands import busy_loops\n{code}"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bench:
        assert bench.stdout is not None
        loop = int(bench.stdout.readline())
        assert is_running(loop)
        os.kill(bench.pid, signal.SIGKILL)
        bench.wait()
        deadline = time.monotonic() + 20
        while is_running(loop) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not is_running(loop)


def is_running(process: int) -> bool:
    """Return whether a process exists and has not ended; an ended process may still wait for its parent."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.parametrize(
    "words, line",
    [
        (["--whole", "--dataset", "bananna"], "did you mean `banana`?"),
        (["--special", "--dataset", "sine"], "leave out --dataset"),
        (["--large"], "add --growth"),
        (["--growth", "--large", "--quick"], "leave out one of them"),
    ],
)
def test_options_that_contradict_each_other_are_refused_in_one_line(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words, "-o", str(tmp_path / "b.json")]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert line in message
    assert not list(tmp_path.iterdir())


def test_a_dataset_that_was_requested_and_is_missing_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROXLEARN_DATA", str(tmp_path / "nothing"))
    output = tmp_path / "b.json"
    assert main(["bench", "--growth", "--quick", "--dataset", "banana", "-o", str(output)]) == 2
    assert "PROXLEARN_DATA" in capsys.readouterr().err.splitlines()[-1]
    assert not output.exists()


def test_every_experiment_has_a_config_with_its_number_of_steps() -> None:
    assert {name: config_of(f"dataset={name}").steps for name in EXPERIMENTS} == {
        "wdbc": 250_000,
        "diabetes": 499_000,
        "banana": 3500,
        "twonorm": 10_000,
        "shd": 10**6,
        "sine": 5000,
    }


def test_the_command_writes_json_tables_and_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "mine.json"
    assert main(["bench", "--growth", "--quick", "--dataset", "sine", "-o", str(output)]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {"mine.json", "mine-growth.png", "mine-growth.pdf"}
    assert [record["N"] for record in json.loads(output.read_text())["initial_growth"]] == [500, 1000, 2000]
    captured = capsys.readouterr()
    assert captured.out.startswith("Growth with N")
    assert "growth with N:" in captured.err
