"""The plan of a sweep: an error in every job rejects the sweep; an error in some jobs is reported for these jobs."""

import pytest

from proxlearn.cli import main
from proxlearn.config.compose import compose_with_loader, parse
from proxlearn.errors import InputError
from proxlearn.sweeps import plan


def planned(*words):
    return plan.plan_sweep(*compose_with_loader(parse(["dataset=sine", *words, "-m"])))


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_combination_is_a_job_with_its_own_run_folder(tmp_path):
    sweep = planned("beta=0.1,0.2", "epsilon=1,2,3")
    assert [job.values for job in sweep.jobs[:4]] == [
        {"beta": "0.1", "epsilon": "1"},
        {"beta": "0.1", "epsilon": "2"},
        {"beta": "0.1", "epsilon": "3"},
        {"beta": "0.2", "epsilon": "1"},
    ]
    assert len({sweep.folder.run_folder(job) for job in sweep.jobs}) == 6
    assert sweep.missing() == list(range(6))
    assert not list(tmp_path.iterdir())


def test_an_interpolation_refers_to_the_values_of_its_own_job():
    sweep = planned("seed=1,2", "split_seed=${seed}")
    assert [(config.seed, config.split_seed) for config in sweep.configs.values()] == [(1, 1), (2, 2)]


def test_a_bad_value_in_some_jobs_is_their_error_only():
    sweep = planned("beta=0.1,-1,0.2")
    assert [job.error is None for job in sweep.jobs] == [True, False, True]
    assert sweep.jobs[1].error == "beta must be a finite number > 0, got -1; try beta=0.05"
    assert sweep.missing() == [0, 2]


WRONG_AS_A_WHOLE = [
    (["beta=-1,-2"], "beta must be a finite number > 0, got -1; try beta=0.05"),
    (["betta=1,2"], "unknown key `betta`; did you mean `beta`?"),
    (["dataset=sien,wdcb"], "unknown dataset `sien`; did you mean `sine`?"),
    (["beta=0.1,-1", "fail_fast=true"], "beta must be a finite number > 0, got -1"),
    (["beta=interval(0,1)"], "beta=interval(0,1) is not a list of values; write beta=VALUE,VALUE,..."),
    (["seed=range(0,1000000000)"], "more than 10000 jobs"),
    (["seed=range(0,200)", "split_seed=range(0,200)"], "more than 10000 jobs"),
    (["+dataset._target_=os.mkdir,os.rmdir"], "_target_ would be imported and called"),
    (["fail_fast=3", "beta=0.1,0.2"], "fail_fast must be true or false"),
    (["hydra/launcher=nosuch"], "unknown hydra/launcher `nosuch`"),
    (["hydra/sweeper=nosuch"], "unknown hydra/sweeper `nosuch`"),
    (["hydra.sweep.dir=/dev/null/x", "beta=0.1,0.2"], "cannot write to /dev/null"),
]


@pytest.mark.parametrize(
    "words, message", WRONG_AS_A_WHOLE, ids=lambda value: value[0] if isinstance(value, list) else ""
)
def test_what_is_wrong_as_a_whole_gets_one_line_and_starts_nothing(words, message, tmp_path, capsys):
    assert main(["train", "-m", "dataset=sine", *words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_launcher_that_is_not_installed_is_named_with_its_extra():
    pytest.importorskip("hydra_plugins")
    try:
        import hydra_plugins.hydra_ray_launcher  # noqa: F401
    except ImportError:
        with pytest.raises(
            InputError, match=r"hydra/launcher=ray is not installed; run `pip install 'proxlearn\[ray\]'`"
        ):
            planned("hydra/launcher=ray")
    else:
        pytest.skip("the ray launcher is installed here")


def folder_of(*words):
    master, loader = compose_with_loader(parse(["-m", "dataset=sine", *words]))
    overrides = plan.task_overrides(master, loader)
    return plan.sweep_folder(master, overrides, [o.get_key_element() for o in overrides if o.is_sweep_override()])


def test_the_sweep_folder_depends_on_what_is_swept_and_not_on_who_runs_it_or_how_far():
    reference = folder_of("beta=0.1,0.2", "N=10")
    assert reference.parent.name == "sweeps"
    assert reference.name.startswith("beta-")
    same = ["hydra/launcher=joblib", "steps=7", "threads=1", "fail_fast=true", "log_every=3"]
    assert folder_of("N=10", *same, "beta=0.1,0.2") == reference
    assert folder_of("beta=0.1,0.3", "N=10") != reference
    assert folder_of("beta=0.1,0.2", "N=11") != reference


def test_jobs_that_are_the_same_run_are_done_once_by_the_longest():
    sweep = planned("steps=10,30,20", "beta=0.1")
    assert [job.same_as for job in sweep.jobs] == [1, None, 1]
    assert sweep.missing() == [1]


def test_a_config_can_name_the_swept_values_and_the_command_line_has_the_last_word(tmp_path):
    (tmp_path / "recipe").mkdir()
    (tmp_path / "recipe" / "mine.yaml").write_text(
        "# @package _global_\ndefaults: [paper]\nhydra: {sweeper: {params: {beta: '0.1,0.2', epsilon: '1,2'}}}\n"
    )
    sweep = planned("recipe=mine", "epsilon=5", "--config-dir", str(tmp_path))
    assert [job.values for job in sweep.jobs] == [{"beta": "0.1"}, {"beta": "0.2"}]
    assert [sweep.configs[number].epsilon for number in (0, 1)] == [5, 5]


def test_two_trajectories_in_one_folder_are_refused_and_one_with_more_steps_is_not(tmp_path, capsys):
    words = ["train", "-m", "dataset=sine", "hydra.sweep.dir=s", "hydra.sweep.subdir=x"]
    assert main([*words, "beta=100,1e4"]) == 2
    errors = capsys.readouterr().err
    assert "jobs 0 (beta=100) and 1 (beta=10000.0) share the folder" in errors
    assert errors.count("\n") == 1
    assert not list(tmp_path.iterdir())
    assert planned("steps=10,20", "hydra.sweep.subdir=x").missing() == [1]
