"""The bench measures what it defines, and its file has the fields that tables and plots read.

The comparison of two source trees: the same tree gives the same bits, and one changed bit is reported.
"""

from __future__ import annotations

import dataclasses
import io
import itertools
import subprocess
from collections.abc import Callable
from pathlib import Path

import compare_bits
import numpy as np
import pytest
import torch
from compare_bits import ROOT, Case, Cloud, RunFailed, difference, export_tree, train

from proxlearn.bench import timing
from proxlearn.bench.growth import measure_epsilons, measure_growth, measure_literal
from proxlearn.bench.losses_and_neurons import measure_functionals
from proxlearn.bench.special_clouds import RecursionBench
from proxlearn.bench.suite import NORMAL
from proxlearn.bench.timing import best_of, busy_share
from proxlearn.bench.whole_commands import measure_end_to_end
from proxlearn.views.bench_views import draw_bench, tables
from tests.conftest import config_of


class Clock:
    """A clock that advances only with calls, so that the measured time is exact."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def call(self, *milliseconds: float) -> Callable[[], None]:
        """A call that takes the given times in turn."""
        taken = itertools.cycle(milliseconds)

        def spend() -> None:
            self.now += next(taken) / 1e3

        return spend


def test_the_best_of_several_is_the_shortest_batch_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = Clock()
    monkeypatch.setattr(timing, "time", passing)
    # One call per batch; disturbed calls are longer. The calls alternate, so that both run under the same conditions.
    calls = {"steady": passing.call(200.0), "disturbed": passing.call(600.0, 900.0, 700.0)}
    batches = timing.timings(calls, seconds=4.0)
    assert {len(times) for times in batches.values()} == {len(batches["steady"])}
    assert batches["steady"] == pytest.approx([200.0] * len(batches["steady"]))
    assert best_of(calls, seconds=4.0) == {"steady": pytest.approx(200.0), "disturbed": pytest.approx(600.0)}


def test_a_short_call_is_timed_in_batches_and_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    passing = Clock()
    monkeypatch.setattr(timing, "time", passing)
    (batches,) = timing.timings({"short": passing.call(1.0)}, seconds=4.0).values()
    assert batches == pytest.approx([1.0] * len(batches))
    # 40 batches of 100 calls each, after two calls that determine the time of one.
    assert (len(batches), passing.now) == (pytest.approx(40, abs=2), pytest.approx(4.0, abs=0.2))


@pytest.mark.parametrize(
    "later, share",
    [
        ("cpu 10 0 0 95 15 0", 0.0),
        ("cpu 110 0 0 5 5 0", 1.0),
        ("cpu 30 0 0 75 15 0", 0.2),
        ("nonsense", None),
        ("", None),
    ],
)
def test_the_busy_share_is_what_others_used_between_two_readings(
    later: str, share: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system's counters are simulated: user, nice, system, idle and waiting ticks."""
    readings = iter(["cpu 10 0 0 5 5 0", later])
    monkeypatch.setattr(timing, "open", lambda *args, **kwargs: io.StringIO(next(readings)), raising=False)
    assert busy_share(0.0) == (None if share is None else pytest.approx(share))


def test_records_make_tables_and_a_plot(tmp_path: Path) -> None:
    small = config_of("dataset=wdbc", "N=40")
    with torch.no_grad():
        shape = RecursionBench(small, burn_in=0.0)
        for _ in range(2):
            shape.measure(0.01)
        record = {
            "shapes": [shape.record],
            "run": [measure_end_to_end(small, shape.cloud, 6, 3, 2)],
            "growth": [measure_growth(config_of(f"N={N}"), 4) for N in (40, 80)],
            "functionals": [{"case": "tanh, quadratic", "ms": 1.0, "ratio": 1.0}],
            "growth_literal": [measure_literal(small, 0.01)],
            "epsilon": measure_epsilons([config_of("N=40", f"epsilon={epsilon}") for epsilon in (0.1, 10)], 5),
            "startup": {"help_s": 0.1, "one_step_s": 3.0},
        }
    assert {"dataset", "literal64_ms", "literal32_ms", "ours_ms", "floor_ms"} <= set(record["shapes"][0])
    assert record["shapes"][0]["ours_ms"] <= record["shapes"][0]["ours_typical_ms"]
    assert record["run"][0]["ratio"] == pytest.approx(record["run"][0]["whole_ms"] / record["run"][0]["bare_ms"])
    assert record["run"][0]["typical_ms"] > 0
    assert {"N", "ms", "build_s", "peak_mib"} <= set(record["growth"][0])
    assert {"epsilon", "seconds"} <= set(record["epsilon"][0])
    assert "literal64 / ours" in tables(record)
    assert "special cloud of" in tables(record)
    assert [path.name for path in draw_bench(record, tmp_path, {"special": "mine"})] == ["mine.png", "mine.pdf"]


def test_other_functionals_take_memory_in_proportion_to_the_particles() -> None:
    """No temporary of a neuron without compiled passes is larger than P and theta together."""
    overrides = ("dataset=wdbc", "N=200", "dataset.scaling=standard", "recipe=tuned", *NORMAL)
    records = measure_functionals(config_of(*overrides), 0.1)
    assert records[0]["case"] == "tanh, quadratic"
    assert records[0]["ratio"] == 1.0
    assert all(record["ms"] > 0 for record in records)
    assert all(0 < record["largest tensor / (N n + N p)"] <= 1 for record in records)


WORDS = ["dataset.points=10", *Case("sine", "paper", "eager", "float64").words(steps=2, N=5)]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Cloud:
    return train(ROOT, WORDS, tmp_path_factory.mktemp("first") / "run")


def test_a_tree_equals_itself_and_another_seed_differs(cloud: Cloud, tmp_path: Path) -> None:
    assert (cloud.exit_code, cloud.step, cloud.theta.shape, cloud.theta.dtype) == (0, 2, (5, 3), np.float64)
    assert difference(cloud, train(ROOT, WORDS, tmp_path / "same")) is None
    text = difference(cloud, train(ROOT, [*WORDS, "seed=1"], tmp_path / "seed"))
    assert text is not None
    assert text.startswith("theta: 15 of 15 numbers, largest difference ")


@pytest.mark.parametrize("name", ["theta", "log_rho"])
@pytest.mark.parametrize("bit", [0, 51, 63])
def test_one_bit_is_a_difference(name: str, bit: int, cloud: Cloud) -> None:
    values = getattr(cloud, name).copy()
    values.view(np.uint64).flat[3] ^= np.uint64(1) << np.uint64(bit)
    text = difference(cloud, dataclasses.replace(cloud, **{name: values}))
    assert text is not None
    assert text.startswith(f"{name}: 1 of {values.size} numbers, largest difference ")


def test_a_number_that_is_not_finite_equals_itself(cloud: Cloud) -> None:
    theta = cloud.theta.copy()
    theta[0, 0], theta[1, 1] = np.nan, np.inf
    first, second = (dataclasses.replace(cloud, theta=theta.copy()) for _ in range(2))
    assert difference(first, second) is None
    assert difference(first, cloud) is not None


def test_the_step_the_exit_code_the_precision_and_the_size_are_compared(cloud: Cloud) -> None:
    assert difference(cloud, dataclasses.replace(cloud, step=1)) == "step 2 and 1"
    assert difference(cloud, dataclasses.replace(cloud, exit_code=1)) == "exit code 0 and 1"
    single = dataclasses.replace(cloud, theta=cloud.theta.astype(np.float32))
    assert difference(cloud, single) == "theta is float64 (5, 3) and float32 (5, 3)"
    assert difference(cloud, dataclasses.replace(cloud, log_rho=cloud.log_rho[:4])) is not None


def test_a_run_without_a_cloud_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="unknown key `betta`"):
        train(ROOT, ["dataset=sine", "betta=1"], tmp_path / "run")


def test_the_package_of_the_given_tree_is_used_and_no_other(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="No module named 'proxlearn'"):
        train(tmp_path / "no tree", WORDS, tmp_path / "run")
    package = tmp_path / "tree" / "proxlearn"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text("import sys; sys.exit('the package of ' + __file__)")
    with pytest.raises(RunFailed, match=f"the package of {package}"):
        train(tmp_path / "tree", WORDS, tmp_path / "other")


def test_a_revision_is_exported_with_its_package_and_configs(tmp_path: Path) -> None:
    if subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True).returncode:
        pytest.skip("this tree is no git repository")
    export_tree("HEAD", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configs", "proxlearn"]
    assert (tmp_path / "configs" / "train.yaml").is_file()
    assert {"wdbc", "sine", "digits"} <= set(compare_bits.available_datasets(tmp_path))


def test_the_exit_code_says_whether_all_clouds_are_equal(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", "sine", "--recipe", "paper", "--engine", "eager"]
    monkeypatch.setattr(compare_bits, "export_tree", lambda revision, folder: None)
    monkeypatch.setattr(compare_bits, "train", lambda tree, words, folder: cloud)
    assert compare_bits.main(arguments) == 0
    assert "2 of 2 clouds equal" in capsys.readouterr().out
    moved = dataclasses.replace(cloud, theta=cloud.theta + 1)
    monkeypatch.setattr(compare_bits, "train", lambda tree, words, folder: cloud if tree == ROOT else moved)
    assert compare_bits.main(arguments) == 1
    assert "DIFFERS: theta: 15 of 15 numbers, largest difference 1\n" in capsys.readouterr().out


@pytest.mark.slow
def test_single_steps_agree_if_rounding_explains_their_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = compare_bits.single_steps(ROOT, tmp_path / "steps")
    assert len(steps) == 32
    monkeypatch.setattr(compare_bits, "export_tree", lambda revision, folder: None)
    for change, code in ((1e-14, 0), (1e-6, 1)):
        moved = {name: values + change for name, values in steps.items()}
        monkeypatch.setattr(
            compare_bits, "single_steps", lambda tree, folder, moved=moved: steps if tree == ROOT else moved
        )
        assert compare_bits.main(["--single-steps"]) == code
        assert capsys.readouterr().out.count("DIFFERS") == 16 * code
