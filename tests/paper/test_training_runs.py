"""The paper's runs: the plan, and how a run is made, continued, skipped and packed like any other run."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from proxlearn.errors import InputError
from proxlearn.paper.archive import Archive
from proxlearn.paper.packing import pack_runs
from proxlearn.paper.run_plan import PLAN, PlanEntry, PlannedRun, plan_entry
from proxlearn.paper.training_runs import is_finished, make_runs, planned_config, starting_runs, train_run

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
    assert len({run.folder for run in runs}) == len({run.name for run in runs}) == len(runs) == 177


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
