"""The paper's runs: what is planned, and that it is begun, continued and skipped like any other run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from proxlearn.errors import InputError
from proxlearn.run.checkpoint_file import list_checkpoints
from reproduce.plan import PLAN, Entry, entry
from reproduce.runner import config_of, make, make_one

EXPERIMENTS = Path(__file__).parents[2] / "configs" / "experiment"


def test_every_experiment_file_is_in_the_plan_and_composes() -> None:
    assert {each.experiment for each in PLAN} == {path.stem for path in EXPERIMENTS.glob("*.yaml")}
    for first in {each.experiment: each for each in reversed(PLAN)}.values():
        config = config_of(first.runs(Path("x"), quick=False)[0])
        assert (config.threads, config.keep_checkpoints) == (1, 1)


def test_the_plan_goes_in_the_order_of_its_cost_and_no_two_runs_share_a_folder() -> None:
    names = [each.name for each in PLAN]
    wanted = ["table5", "table4", "table2", "table3", "table1", "table1-float64", "fig3-start", "fig3"]
    assert sorted(wanted, key=names.index) == wanted
    folders = [run.folder for each in PLAN for run in each.runs(Path("x"), quick=False)]
    assert len(set(folders)) == len(folders)


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
    jobs = [dict(word.split("=") for word in job) for job in entry(name).sweep]
    for key, values in swept.items():
        assert list(dict.fromkeys(job[key] for job in jobs)) == values.split(), key
    if fixed:
        config = config_of(entry(name).runs(Path("x"), quick=False)[-1])
        for key, value in fixed.items():
            assert getattr(config.device if "dtype" in key else config, key) == value, key


def test_a_finished_run_is_known_by_its_folder_alone_and_another_setting_is_refused(tmp_path: Path) -> None:
    (run,) = entry("fig4").runs(tmp_path, quick=True)
    made = make_one(run, "")
    assert (made.state, made.step) == ("finished", 50)
    # As after years: a key that today's config has, the folder's lacks.
    path = run.folder / "config.yaml"
    values = yaml.safe_load(path.read_text())
    del values["orientation"]
    path.write_text(yaml.safe_dump(values))
    assert make_one(run, "").already_finished
    path.write_text(yaml.safe_dump(values | {"beta": 0.4}))
    with pytest.raises(InputError, match="another beta"):
        make_one(run, "")
    # A run that cannot be made does not stop the others, and is told by the exit code.
    assert make([entry("fig4")], tmp_path, quick=True) == 1


def test_a_partial_run_goes_on_and_keeps_one_cloud(tmp_path: Path) -> None:
    run = entry("fig5").runs(tmp_path, quick=True)[0]
    make_one(replace(run, overrides=(*run.overrides, "steps=1000")), "")
    assert json.loads((run.folder / "status.json").read_text())["step"] == 10
    assert make_one(run, "").step == 32
    assert [step for step, _ in list_checkpoints(run.folder / "checkpoints")] == [32]
    assert sum(path.stat().st_size for path in run.folder.rglob("*")) < 2**20


def test_runs_that_share_a_cloud_name_it_without_a_folder_of_this_machine(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    shared = Entry("start", "fig5", ("init_from={root}/runs/fig5/seed0",))
    root = Path("here")
    make_one(entry("fig5").runs(root, quick=True)[0], "")
    run = shared.runs(root, quick=True)[0]
    make_one(run, "")
    stored_config = (run.folder / "config.yaml").read_text()
    assert "init_from: here/runs/fig5/seed0" in stored_config
    assert str(tmp_path) not in stored_config
