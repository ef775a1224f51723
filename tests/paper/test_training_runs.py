"""The paper's runs: the plan, and how a run is made, continued, skipped and packed like any other run.

Fits over splits are computed once, stored under everything that determines them, and shown without new fits.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxlearn.compare.statistics import Interval
from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError
from proxlearn.jobs.result_cache import ResultCache
from proxlearn.paper import published, tuned_page
from proxlearn.paper import weight_updates_page as weights_page
from proxlearn.paper.archive import Archive
from proxlearn.paper.archive_packing import pack_runs
from proxlearn.paper.losses_page import LOSSES
from proxlearn.paper.repeated_fits import HALF, FitMeasurement, FitResult
from proxlearn.paper.run_plan import PLAN, PlanEntry, PlannedRun, plan_entry
from proxlearn.paper.training_runs import is_finished, make_runs, planned_config, starting_runs, train_run
from proxlearn.paper.tuned_page import PAPER, TUNED, measure_fit
from proxlearn.paper.weight_updates_page import WEIGHTS, measure_own_selection, measure_updates

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiment"


def train_planned(run: PlannedRun) -> None:
    train_run(planned_config(run), run.folder, run.command)


def test_every_experiment_file_is_in_the_plan_and_composes() -> None:
    assert {entry.experiment for entry in PLAN} == {path.stem for path in EXPERIMENTS.glob("*.yaml")}
    for first in {entry.experiment: entry for entry in reversed(PLAN)}.values():
        config = planned_config(first.runs(Path("x"), quick=False)[0])
        assert (config.threads, config.keep_checkpoints) == (1, 1)


def test_the_plan_is_in_the_order_of_cost_and_no_two_runs_share_a_name_or_a_folder() -> None:
    names = [entry.name for entry in PLAN]
    expected = ["table5", "table4", "table2", "table3", "table1", "table1-float64", "fig3-start", "fig3"]
    assert sorted(expected, key=names.index) == expected
    runs = [run for entry in PLAN for run in entry.runs(Path("x"), quick=False)]
    assert len({run.folder for run in runs}) == len({run.name for run in runs}) == len(runs) == 181


@pytest.mark.parametrize(
    "name, swept, fixed",
    [
        ("table1", {"beta": "0.03 0.05 0.07"}, {"steps": 10**6, "dtype": "float32"}),
        ("table1-float64", {"beta": "0.05"}, {"steps": 10**6, "dtype": "float64"}),
        ("table2", {"beta": "0.03 0.05 0.07"}, {"steps": 250_000, "dtype": "float32", "fallback_dtype": "float64"}),
        ("table3", {"epsilon": "0.1 0.5 5 10"}, {"steps": 250_000, "beta": 0.05, "fallback_dtype": "float64"}),
        ("table4", {"dataset": "banana diabetes twonorm", "seed": "0 1 2 3 4"}, {"split_seed": 4, "beta": 1.95}),
        ("table5", {"N": "500 700 1000 2000", "seed": "0 1 2 3 4"}, {"steps": 5000, "epsilon": 1e-3, "L": 10}),
        ("fig3-start", {"seed": " ".join(map(str, range(1, 31)))}, {}),
        ("fig5", {"seed": " ".join(map(str, range(20)))}, {"steps": 3200}),
    ],
)
def test_the_plan_says_what_the_paper_says(name: str, swept: dict[str, str], fixed: dict[str, object]) -> None:
    jobs = [dict(override.split("=") for override in job) for job in plan_entry(name).jobs]
    for key, values in swept.items():
        assert list(dict.fromkeys(job[key] for job in jobs)) == values.split(), key
    if fixed:
        config = planned_config(plan_entry(name).runs(Path("x"), quick=False)[-1])
        for key, value in fixed.items():
            assert getattr(config.device if "dtype" in key else config, key) == value, key


def test_a_finished_run_is_known_by_its_folder_or_its_archive_and_another_setting_is_refused(tmp_path: Path) -> None:
    (run,) = plan_entry("fig4").runs(tmp_path, quick=True)
    archive = Archive(tmp_path)
    assert not is_finished(run, archive)
    train_planned(run)
    # As after years: the folder lacks a key that today's config has.
    path = run.folder / "config.yaml"
    content = path.read_text()
    values = yaml.safe_load(content)
    del values["orientation"]
    path.write_text(yaml.safe_dump(values))
    assert is_finished(run, archive)
    path.write_text(yaml.safe_dump(values | {"beta": 0.4}))
    with pytest.raises(InputError, match=r"other settings \(beta\)"):
        is_finished(run, archive)
    # A run that cannot be made does not stop the others, and the exit code reports it.
    assert make_runs([plan_entry("fig4")], archive, quick=True) == 1
    path.write_text(content)
    pack_runs(archive, [run])
    shutil.rmtree(run.folder)
    assert is_finished(run, archive)
    assert make_runs([plan_entry("fig4")], archive, quick=True) == 0
    assert not run.folder.exists()
    longer = replace(run, quick=False)
    assert not is_finished(longer, archive), "the archived run has fewer steps than the experiment"


def test_a_partial_run_goes_on_from_its_folder_and_its_newest_cloud_is_packed(tmp_path: Path) -> None:
    run = plan_entry("fig5").runs(tmp_path, quick=True)[0]
    archive = Archive(tmp_path)
    train_planned(replace(run, overrides=(*run.overrides, "steps=1000")))
    assert json.loads((run.folder / "status.json").read_text())["step"] == 10
    assert not is_finished(run, archive)
    train_planned(run)
    pack_runs(archive, [run])
    (archived,) = archive.runs("fig5")
    assert (archived.last_step, list(archived.clouds)) == (32, [32])


def test_runs_that_share_a_cloud_name_it_without_a_folder_of_this_machine(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    root = Path("here")
    sharing = PlanEntry("start", "fig5", ("init_from={root}/runs/fig5/seed0",))
    run = sharing.runs(root, quick=True)[0]
    (first,) = starting_runs([run], root, quick=True)
    assert first.name == "fig5/seed0"
    train_planned(first)
    assert starting_runs([run], root, quick=True) == []
    train_planned(run)
    stored_config = (run.folder / "config.yaml").read_text()
    assert "init_from: here/runs/fig5/seed0" in stored_config
    assert str(tmp_path) not in stored_config


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
    unclear = "There is no clear difference between proximal weights and weights=uniform on any of the 1 datasets. "
    assert line.startswith(unclear)
    named = "proximal weights have a clearly higher accuracy on wdbc and a clearly lower risk on wdbc."
    assert f"fisher_rao (own selection), {named}" in line
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
