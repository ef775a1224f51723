"""Fits over splits are computed once, stored under everything that determines them, and shown without new fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from proxlearn.compare.statistics import Interval
from proxlearn.config.schema import TrainConfig
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.paper import published, tuned_page
from proxlearn.paper import weight_updates_page as weights_page
from proxlearn.paper.losses_page import LOSSES
from proxlearn.paper.repeated_fits import HALF, FitMeasurement, FitResult
from proxlearn.paper.tuned_page import PAPER, TUNED, measure_fit
from proxlearn.paper.weight_updates_page import WEIGHTS, measure_own_selection, measure_updates


def count_call(config: TrainConfig) -> FitResult:
    """A job that leaves a trace, in place of a fit."""
    with open(f"calls-{config.dataset.name}", "a", encoding="utf-8") as file:
        file.write(f"{config.split_seed} {config.seed}\n")
    return {"split": config.split_seed, "seed": config.seed}


def name_split(config: TrainConfig) -> FitResult:
    return {"split": config.split_seed}


def name_seed(config: TrainConfig) -> FitResult:
    return {"seed": config.seed}


def list_splits(results: Mapping[str, list[FitResult]]) -> str:
    return "\n".join(f"{dataset}: {[fit['split'] for fit in fits]}" for dataset, fits in results.items()) + "\n"


COUNTED = FitMeasurement("counted", "Counted fits", 2, {"wdbc": HALF, "sine": ()}, count_call, 1, list_splits)


def test_fits_are_made_once_stored_and_shown_in_the_order_of_splits(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert COUNTED.write(tmp_path) is None
    assert COUNTED.measure(tmp_path, 2) == 0
    # A dataset with one split has another seed each time.
    assert sorted((tmp_path / "calls-sine").read_text().splitlines()) == ["0 0", "1 1"]
    assert sorted((tmp_path / "calls-wdbc").read_text().splitlines()) == ["0 0", "1 0"]
    assert COUNTED.measure(tmp_path, 1) == 0
    assert len((tmp_path / "calls-sine").read_text().splitlines()) == 2
    path = COUNTED.write(tmp_path)
    assert path is not None
    assert path.read_text() == "# Counted fits\n\nwdbc: [0, 1]\nsine: [0, 1]\n"
    longer = replace(COUNTED, splits=3, overrides={"sine": ()})
    assert longer.measure(tmp_path, 1) == 0
    assert (tmp_path / "calls-sine").read_text().splitlines()[2:] == ["2 2"]


@pytest.mark.parametrize("measurement", [LOSSES, TUNED, WEIGHTS], ids=lambda measurement: measurement.name)
def test_the_stored_identity_holds_what_determines_a_result(measurement: FitMeasurement) -> None:
    outputs = Path(__file__).parents[2] / "outputs"
    records = list(ResultCache(outputs / measurement.name / "results.jsonl"))
    parts = (measurement, *measurement.further)
    assert len(records) == sum(part.splits * len(part.overrides) for part in parts)
    for record in records:
        assert record.identity["revision"] in {part.revision for part in parts}
        assert len(record.identity["data_sha256"]) == 64
        assert {"N", "beta", "seed", "split_seed", "drift", "weights"} <= set(record.identity["settings"])
        assert not {"threads", "steps", "logger"} & set(record.identity["settings"])


def test_the_paper_s_figures_are_the_published_ones() -> None:
    assert PAPER["wdbc"] == tuned_page.PaperAccuracy(0.9294, "1.5 h and 33 h (Tables 2, 1)")
    assert PAPER["banana"].accuracy == published.TABLE4["banana"][0].mean == 0.551
    assert PAPER["shd"] == tuned_page.PaperAccuracy(pytest.approx(0.61079), "5.3 h")


def small(config: TrainConfig) -> TrainConfig:
    return replace(config, N=10, init_scale=1.0, h=0.1, beta=1e4, epsilon=1.0, steps=3)


def test_a_measured_fit_of_small_size_has_every_figure() -> None:
    result = measure_fit(small(TUNED.config("wdbc", 0)))
    assert {"accuracy", "risk", "majority", "seconds", "selection", "to_paper", "steps"} <= set(result)
    assert 0 < result["selection"] < result["seconds"]
    assert result["majority"] == pytest.approx(0.62, abs=0.02)
    body = tuned_page.page_body({"wdbc": [result, result], "sine": [{**result, "accuracy": None, "majority": None}]})
    assert body.startswith("recipe=tuned reaches the paper's accuracy on ")


def test_the_three_updates_share_their_settings() -> None:
    result = measure_updates(small(WEIGHTS.config("sine", 1)))
    assert result["majority"] is None
    settings = [{name: result[update][name] for name in ("h", "beta", "epsilon", "steps")} for update in
                ("proximal", "uniform", "fisher_rao")]  # fmt: skip
    assert settings[0] == settings[1] == settings[2]
    assert result["uniform"]["ess"] == pytest.approx(10)


def fits(proximal: list[float], other: list[float]) -> list[dict[str, Any]]:
    return [
        {"majority": 0.5, **{name: {"risk": 1 - a, "accuracy": a, "ess": 250.0} for name, a in zip(
            ("proximal", "uniform", "fisher_rao", weights_page.SELECTED), (first, first, second, second), strict=True)}}
        for first, second in zip(proximal, other, strict=True)
    ]  # fmt: skip


def test_the_conclusion_names_clear_differences_and_divergence_has_no_interval() -> None:
    clear = {"wdbc": fits([0.9, 0.91, 0.9], [0.5, 0.52, 0.5])}
    line = weights_page.conclusion(clear)
    assert "compared with weights=uniform, no clear difference on any dataset" in line
    named = "weights=fisher_rao, own selection, a clear difference: better accuracy on wdbc, better risk on wdbc"
    assert named in line
    diverged = fits([0.9, 0.91, 0.9], [0.5, -1e17, 0.5])
    assert weights_page.difference_text("wdbc", diverged, "risk", "fisher_rao") == "diverged (1 of 3)"
    assert weights_page.difference("wdbc", diverged, "risk", "fisher_rao") is None


def test_further_fits_are_stored_in_the_same_file_and_added_to_the_result_of_their_split(tmp_path: Path) -> None:
    further = replace(COUNTED, overrides={"wdbc": ()}, fit=name_seed)
    both = replace(COUNTED, fit=name_split, further=(further,))
    assert both.measure(tmp_path, 1) == 0
    assert len(list(ResultCache(tmp_path / "counted" / "results.jsonl"))) == 6
    assert both.results(tmp_path) == {
        "wdbc": [{"split": 0, "seed": 0}, {"split": 1, "seed": 1}],
        "sine": [{"split": 0}, {"split": 1}],
    }
    assert replace(both, further=()).results(tmp_path)["wdbc"] == [{"split": 0}, {"split": 1}]


def test_fisher_rao_weights_get_settings_of_their_own() -> None:
    config = WEIGHTS.further[0].config("sine", 1)
    assert config.weights == "fisher_rao"
    ((name, result),) = measure_own_selection(small(config)).items()
    assert name == weights_page.SELECTED
    assert {"risk", "accuracy", "ess", "h", "steps"} <= set(result)


@pytest.mark.parametrize("student, digits", [(0.01, 4), (0.0, 4), (math.nan, 4), (7e-6, 6), (2e-5, 5)])
def test_a_narrow_interval_gets_the_digits_that_show_it(student: float, digits: int) -> None:
    interval = Interval(-3e-6, student, student)
    assert weights_page.shown_digits(interval) == digits
