"""The curves of runs that failed are drawn like any others."""

from dataclasses import replace

import pytest
from small_runs import run, small

from proxlearn.views.run import curves, learned_function
from proxlearn.views.run.run_data import read_run_data


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves") / "run"
    run(small(steps=20), folder)
    return read_run_data(folder)


@pytest.mark.parametrize("extreme", [1e200, 1e308, float("inf"), float("nan"), 5e-324, 0.0])
@pytest.mark.parametrize("first", [0, 3])
def test_curves_of_any_values_are_drawn(finished, extreme, first):
    metrics = finished.metrics.copy()
    later = metrics["step"] >= first
    for column in metrics.columns[metrics.columns.str.contains("risk")]:
        metrics.loc[later, column] = extreme
    metrics["kernel_offdiag"] = metrics["kernel_offdiag"].where(metrics["step"] == 0, 1.0)
    for draw in (curves.draw_risk, curves.draw_health):
        for path in draw(replace(finished, metrics=metrics)):
            assert path.stat().st_size > 1000


def test_a_function_with_huge_values_is_drawn(finished, monkeypatch):
    model = learned_function.find_model(finished.path)
    assert model is not None
    huge = type(
        "Huge", (), {"values": lambda _, x: {k: 1e300 * f for k, f in model.values(x).items()}, "cloud": model.cloud}
    )
    monkeypatch.setattr(learned_function, "find_model", lambda path: huge())
    assert all(path.stat().st_size > 1000 for path in learned_function.draw_function(finished))
