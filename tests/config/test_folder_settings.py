"""Where a command may write: Hydra's folder settings, folders of other programs, and empty folders of the user."""

import os

import pytest

from proxlearn.cli import main

SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=2"]

REFUSED = {
    "Hydra's own files": (["hydra.output_subdir=.hydra"], "hydra.output_subdir would put Hydra's own files"),
    "a run's folder in a sweep": (
        ["-m", "seed=0,1", "hydra.run.dir=x"],
        "hydra.run.dir has no effect on a sweep (-m); use hydra.sweep.dir=... instead",
    ),
    "a sweep's folder in a run": (
        ["hydra.sweep.dir=x"],
        "hydra.sweep.dir has no effect on a single run; use hydra.run",
    ),
    "a sweep's subfolder in a run": (["++hydra.sweep.subdir=x"], "hydra.sweep.subdir has no effect on a single run"),
}


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_folder_settings_that_would_be_ignored_or_unsafe_are_refused(name, tmp_path, capsys):
    words, message = REFUSED[name]
    assert main(["train", *words, *SMALL]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


NOT_OURS = ["metrics.csv", "model.json", "status.json", "config.yaml", "points.csv", "risk.png", ".notes.tmp", ".lock"]


@pytest.mark.parametrize("overwrite", ["true", "false"])
@pytest.mark.parametrize("names", [*([name] for name in [*NOT_OURS, "else.txt"]), NOT_OURS], ids=" ".join)
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(names, overwrite, tmp_path, capsys):
    for name in names:
        (tmp_path / name).write_text("dataset: mine\n")
    assert main(["train", *SMALL, "hydra.run.dir=.", f"overwrite={overwrite}"]) == 2
    assert "holds other files (" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "dataset: mine\n")


@pytest.mark.parametrize("name", ["sweep.yaml", "summary.csv", "jobs"])
def test_a_sweep_folder_with_other_files_is_refused(name, tmp_path, capsys):
    words = ["train", "-m", *SMALL, "seed=0,1", "hydra.sweep.dir=s"]
    from proxlearn.commands.train import preflight

    folder = preflight(words[1:]).folder.path
    folder.mkdir(parents=True)
    (folder / name).write_text("mine")
    assert main(words) == 2
    assert "but no sweep of proxlearn; choose a new or empty folder: hydra.sweep.dir=" in capsys.readouterr().err
    assert [path.relative_to(folder).name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "mine"


TABLE = "x,y,label\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40))


def test_a_training_table_inside_the_run_folder_is_never_replaced(tmp_path, capsys):
    (tmp_path / "my.csv").write_text(TABLE)
    words = ["dataset=csv", "dataset.target=label", "N=8", "threads=1", "steps=1", "hydra.run.dir=run"]
    assert main(["train", *words, "dataset.path=my.csv"]) == 0
    (tmp_path / "run" / "points.csv").write_text(TABLE)
    for more in ([], ["overwrite=true"]):
        assert main(["train", *words, "dataset.path=run/points.csv", *more]) == 2
        assert "dataset.path=run/points.csv has the name of a file that the run writes" in capsys.readouterr().err
    assert (tmp_path / "run" / "points.csv").read_text() == TABLE


def test_only_temporary_files_of_our_own_are_deleted(tmp_path):
    folder = tmp_path / "run"
    words = ["train", *SMALL, "hydra.run.dir=run"]
    assert main(words) == 0
    running = os.getppid()  # A process that draws the plots of a finished run may be writing this file.
    kept = [".notes.tmp", ".draft.7.tmp", ".proxlearn-notes.tmp", "checkpoints/.mine.1.tmp"]
    kept.append(f".proxlearn-risk.png.{running}.tmp")
    removed = [
        ".proxlearn-status.json.99999999.tmp",
        ".config.yaml.9.tmp",
        "checkpoints/.cloud-000000001.safetensors.9.tmp",
    ]
    for name in kept + removed:
        (folder / name).write_text("x")
    assert main([*words, "steps=3"]) == 0
    assert [name for name in kept + removed if (folder / name).exists()] == kept


@pytest.mark.parametrize("existing", ["", "a", "a/b/c"])
def test_a_refused_run_leaves_no_folder_and_removes_none_that_was_there(existing, tmp_path, capsys):
    (tmp_path / existing).mkdir(parents=True, exist_ok=True)
    words = ["dataset=csv", "dataset.path=nofile.csv", "dataset.target=y", "hydra.run.dir=a/b/c"]
    assert main(["train", *words]) == 2
    assert "the file nofile.csv does not exist" in capsys.readouterr().err
    folders = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))]
    assert folders == ["a", "a/b", "a/b/c"][: len(existing.split("/")) if existing else 0]


def test_a_run_killed_before_it_began_leaves_a_folder_that_can_be_used(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".lock").write_text('{"pid": 1, "host": "x", "since": "then"}')
    (folder / ".proxlearn-config.yaml.99999999.tmp").write_text("half")
    assert main(["train", *SMALL, "hydra.run.dir=run"]) == 0


def test_dots_after_a_link_mean_the_folder_that_the_system_means(tmp_path, capsys):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    assert main(["train", *SMALL, "hydra.run.dir=link/../run"]) == 0
    assert (tmp_path / "elsewhere" / "run" / "status.json").is_file()
    assert not (tmp_path / "run").exists()
    assert main(["resume", "link/../run", "--steps", "3"]) == 0
    assert main(["train", *SMALL, "hydra.run.dir=link/../run", "steps=3"]) == 0
    assert "already finished at step 3" in capsys.readouterr().out
    assert main(["train", "-m", *SMALL, "seed=1,2", "hydra.sweep.dir=link/../sweep"]) == 0
    assert (tmp_path / "elsewhere" / "sweep" / "sweeps").is_dir()


@pytest.mark.parametrize("name", ["model.json", "accuracy.csv", "status.json", "risk.png", "metrics.csv"])
def test_a_copied_config_does_not_make_a_folder_of_files_a_run(name, tmp_path, capsys):
    assert main(["train", *SMALL, "hydra.run.dir=run"]) == 0
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.yaml").write_bytes((tmp_path / "run" / "config.yaml").read_bytes())
    (mine / name).write_text("mine")
    for words in ([], ["overwrite=true"]):
        capsys.readouterr()
        assert main(["train", *SMALL, "hydra.run.dir=mine", *words]) == 2
        assert f"files that proxlearn did not write ({name})" in capsys.readouterr().err
        assert (mine / name).read_text() == "mine"
    (mine / name).unlink()
    assert main(["train", *SMALL, "hydra.run.dir=mine"]) == 0
