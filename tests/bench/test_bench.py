"""The bench measures what it says, and its file has the fields that others read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from proxlearn.bench.clock import best_of, busy_share
from proxlearn.bench.shapes import Shape
from proxlearn.bench.sizes import measure_epsilons, measure_growth, measure_literal
from proxlearn.bench.whole import measure_whole
from proxlearn.views.bench import draw_bench, tables
from tests.conftest import config_of


def test_the_best_of_several_is_about_the_true_time() -> None:
    found = best_of({"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.006)}, seconds=0.1)
    assert 2 <= found["short"] < 4
    assert 6 <= found["long"] < 9


def test_a_busy_machine_is_noticed() -> None:
    share = busy_share(0.05)
    assert share is None or 0 <= share <= 1


def test_records_make_tables_and_a_plot(tmp_path: Path) -> None:
    small = config_of("dataset=wdbc", "N=40")
    with torch.no_grad():
        shape = Shape(small, made=0.0)
        for _ in range(2):
            shape.measure(0.01)
        found = {
            "shapes": [shape.record],
            "run": [measure_whole(small, shape.cloud, 6, 3, 2)],
            "growth": [measure_growth(config_of(f"N={N}"), 4) for N in (40, 80)],
            "growth_literal": [measure_literal(small, 0.01)],
            "epsilon": measure_epsilons([config_of("N=40", f"epsilon={epsilon}") for epsilon in (0.1, 10)], 5),
            "startup": {"help_s": 0.1, "one_step_s": 3.0},
        }
    assert {"dataset", "literal64_ms", "literal32_ms", "ours_ms", "floor_ms"} <= set(found["shapes"][0])
    assert found["shapes"][0]["ours_ms"] <= found["shapes"][0]["ours_typical_ms"]
    assert found["run"][0]["ratio"] == pytest.approx(found["run"][0]["whole_ms"] / found["run"][0]["bare_ms"])
    assert found["run"][0]["typical_ms"] > 0
    assert {"N", "ms", "build_s", "peak_mib"} <= set(found["growth"][0])
    assert {"epsilon", "seconds"} <= set(found["epsilon"][0])
    assert "literal64 / ours" in tables(found)
    assert [path.name for path in draw_bench(found, tmp_path, "mine")] == ["mine.png", "mine.pdf"]
