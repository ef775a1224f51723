"""The bench measures what it defines, and its file has the fields that tables and plots read."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from proxlearn.bench import timing
from proxlearn.bench.growth import measure_epsilons, measure_growth, measure_literal
from proxlearn.bench.losses_and_neurons import measure_functionals
from proxlearn.bench.recursion import RecursionBench
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
