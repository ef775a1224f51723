"""A folder without usable checkpoints is rejected with the reason, and nothing in it changes."""

import json
import shutil

import pytest
import yaml
from small_runs import assert_same_run, run, small

from proxlearn.cli import main
from proxlearn.errors import InputError
from proxlearn.run import checkpoint_file
from proxlearn.run.model_description import read_description
from proxlearn.run.run_folder import RunFolder
from tests.run.test_hostile import resealed

STEPS = 12


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "run"
    run(small(steps=STEPS), folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def rewrite_checkpoints(folder, change):
    for _, path in checkpoint_file.list_checkpoints(folder / "checkpoints"):
        path.write_bytes(change(path.read_bytes()))


def newer(header):
    header["__metadata__"]["format"] = "proxlearn-cloud-4"


def edit_config(folder, **values):
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | values))


def edit_status(folder, **values):
    path = folder / "status.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def remove_checkpoints(folder):
    for _, path in checkpoint_file.list_checkpoints(folder / "checkpoints"):
        path.unlink()


def use_crlf(folder):
    path = folder / "metrics.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


DAMAGE = {
    "newer format": (
        lambda folder: rewrite_checkpoints(folder, lambda blob: resealed(blob, newer)),
        "written by a newer version of proxlearn (format proxlearn-cloud-4",
        "upgrade proxlearn",
    ),
    "newer format with another checksum": (
        lambda folder: rewrite_checkpoints(folder, lambda blob: blob.replace(b"cloud-2", b"cloud-5")),
        "written by a newer version of proxlearn (format proxlearn-cloud-5",
        "upgrade proxlearn",
    ),
    "line ends": (use_crlf, "metrics.csv was saved with different line endings (CRLF)", "save it with LF"),
    "no metrics": (lambda folder: (folder / "metrics.csv").unlink(), "metrics.csv is missing", "copy it back"),
    "other metrics": (
        lambda folder: (folder / "metrics.csv").write_text("step\n0\n"),
        "metrics.csv was changed",
        "restore it",
    ),
    "edited config": (
        lambda folder: edit_config(folder, beta=5.0),
        "the run started with beta=0.3, but config.yaml has beta=5.0",
        "restore beta=0.3 in config.yaml",
    ),
    "no checkpoints": (remove_checkpoints, "the checkpoints of", "copy them back"),
    "damaged checkpoints": (
        lambda folder: rewrite_checkpoints(folder, lambda blob: blob[:-1]),
        "none of the checkpoints",
        "copy the run folder again",
    ),
    "newer model": (
        lambda folder: (folder / "model.json").write_text('{"format": "proxlearn-model-4"}'),
        "model.json was written by a newer version of proxlearn",
        "upgrade proxlearn",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_resume_names_the_reason_and_changes_nothing(kind, folder, capsys):
    damage, problem, remedy = DAMAGE[kind]
    damage(folder)
    before = contents(folder)
    assert main(["resume", str(folder), "--steps", "60"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert remedy in line
    assert contents(folder) == before


@pytest.mark.parametrize("kind", [kind for kind in DAMAGE if kind != "edited config"])
def test_the_train_command_is_refused_as_well(kind, folder):
    damage, problem, _ = DAMAGE[kind]
    damage(folder)
    before = contents(folder)
    with pytest.raises(InputError) as refused:
        run(small(steps=60), folder)
    assert problem in str(refused.value)
    assert contents(folder) == before


def test_a_newer_checkpoint_is_not_passed_over_for_an_older_one(folder, tmp_path, capsys):
    new_rows = tmp_path / "new.csv"
    new_rows.write_text("x\n0.5\n")
    _, path = checkpoint_file.list_checkpoints(folder / "checkpoints")[0]
    path.write_bytes(resealed(path.read_bytes(), newer))
    for command in (["resume", str(folder), "--steps", "60"], ["predict", str(folder), "--data", str(new_rows)]):
        assert main(command) == 2
        assert f"{path.name} was written by a newer version" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["predict", "evaluate"])
def test_a_newer_model_is_named_by_readers(command, folder, tmp_path, capsys):
    (folder / "model.json").write_text('{"format": "proxlearn-model-4"}')
    (tmp_path / "new.csv").write_text("x\n0.5\n")
    assert main([command, str(folder), "--data", str(tmp_path / "new.csv")]) == 2
    assert "model.json was written by a newer version of proxlearn" in capsys.readouterr().err


def test_an_edited_setting_of_a_finished_run_is_named_before_its_result_is_shown(folder, capsys):
    edit_config(folder, beta=5.0, seed=3)
    assert main(["resume", str(folder)]) == 2
    shown = capsys.readouterr()
    assert "the run started with beta=0.3, seed=0, but config.yaml has beta=5.0, seed=3" in shown.err
    assert "| test" not in shown.out


def test_the_command_that_fits_an_edited_config_is_refused(folder):
    edit_config(folder, beta=5.0)
    with pytest.raises(InputError, match=r"the run started with beta=0\.3"):
        run(small(beta=5.0, steps=STEPS), folder)


def test_an_edit_is_found_where_the_status_does_not_tell_the_settings(folder, capsys):
    # As in a folder of version 0.1.0.
    status = json.loads((folder / "status.json").read_text())
    for key in ("run", "settings", "longest_steps", "metrics_version"):
        del status[key]
    (folder / "status.json").write_text(json.dumps(status))
    edit_config(folder, beta=5.0)
    assert main(["resume", str(folder)]) == 2
    assert "config.yaml was edited; undo the edit of config.yaml" in capsys.readouterr().err


def test_an_edit_is_found_where_only_the_status_is_left(folder, capsys):
    remove_checkpoints(folder)
    assert main(["resume", str(folder)]) == 0
    edit_config(folder, h=0.5)
    assert main(["resume", str(folder)]) == 2
    assert "but config.yaml has h=0.5" in capsys.readouterr().err


@pytest.mark.parametrize("settings", [{"steps": 14}, {"log_every": 3}, {"keep_checkpoints": 2}, {"threads": 2}])
def test_settings_that_do_not_change_the_trajectory_may_be_edited(settings, folder):
    edit_config(folder, **settings)
    assert main(["resume", str(folder), "--steps", "14"]) == 0


@pytest.mark.parametrize("left", [["config.yaml"], ["config.yaml", "metrics.csv", "model.json", "status.json"]])
def test_a_folder_killed_before_its_first_checkpoint_begins_at_step_0(left, folder):
    run(small(steps=0), folder.parent / "begun")
    for path in (folder.parent / "begun").rglob("*"):
        if path.is_file() and path.name not in left:
            path.unlink()
    assert run(small(steps=3), folder.parent / "begun").step == 3


# Files of a run that somebody changed: what is not the run's is not lost without a word, what follows is made anew.
@pytest.mark.parametrize("note", ["# my note\n", "# my note", "1,2,3\n"])
def test_lines_that_the_run_did_not_write_are_told_and_kept_in_the_log(note, tmp_path, capfd):
    folder = RunFolder(tmp_path / "run")
    run(small(steps=8, log_every=2), folder.path)
    with folder.metrics.open("a") as file:
        file.write(note)
    run(small(steps=12, log_every=2), folder.path)
    assert "metrics.csv contained a line that the run did not write" in capfd.readouterr().err
    assert note.strip() in folder.log.read_text()
    run(small(steps=12, log_every=2), tmp_path / "whole")
    assert_same_run(folder.path, tmp_path / "whole")


@pytest.mark.parametrize("steps, kept", [(9, None), (8, None), (8, -20), (8, -1), (0, None), (0, -5)])
def test_what_a_session_wrote_itself_is_cut_back_without_a_word(steps, kept, tmp_path, capfd):
    folder = RunFolder(tmp_path)
    # Every row after the newest checkpoint, the last one cut off, as a killed process leaves them.
    run(small(steps=steps, log_every=2), tmp_path)
    content = folder.metrics.read_bytes()
    lines = content.splitlines(keepends=True)
    later = b"".join(b"%d," % step + lines[-1].partition(b",")[2] for step in (steps + 1, steps + 2))
    folder.metrics.write_bytes(content + later[:kept] + (b"\0" * 7 if kept == -20 else b""))
    capfd.readouterr()
    run(small(steps=12, log_every=2), tmp_path)
    assert "did not write" not in capfd.readouterr().err


@pytest.mark.parametrize("damage", ["{", "{}", None, '{"neuron": "other"}'])
def test_a_damaged_description_of_a_finished_run_is_written_anew(damage, tmp_path):
    folder = RunFolder(tmp_path)
    run(small(steps=5), tmp_path)
    before = folder.model.read_bytes()
    folder.model.unlink()
    if damage is not None:
        folder.model.write_text(damage)
    assert run(small(steps=5), tmp_path).already_finished
    assert folder.model.read_bytes() == before


def test_a_whole_description_of_a_finished_run_is_left_alone(tmp_path):
    folder = RunFolder(tmp_path)
    run(small(steps=5), tmp_path)
    # Version 0.1.0 did not name the target.
    older = {key: value for key, value in json.loads(folder.model.read_text()).items() if key != "target"}
    folder.model.write_text(json.dumps(older))
    run(small(steps=5), tmp_path)
    assert "target" not in read_description(folder.model)
    newer = '{"format": "proxlearn-model-4"}'
    folder.model.write_text(newer)
    with pytest.raises(InputError, match="newer version"):
        run(small(steps=5), tmp_path)
    assert folder.model.read_text() == newer
