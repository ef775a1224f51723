"""Files of a run that somebody changed: what is not the run's is not lost without a word, what follows is made anew."""

import json

import pytest
from small_runs import assert_same_run, run, small

from proxlearn.errors import InputError
from proxlearn.run.model_description import read_description
from proxlearn.run.run_folder import RunFolder


@pytest.mark.parametrize("note", ["# my note\n", "# my note", "1,2,3\n"])
def test_lines_that_the_run_did_not_write_are_told_and_kept_in_the_log(note, tmp_path, capfd):
    folder = RunFolder(tmp_path / "run")
    run(small(steps=8, log_every=2), folder.path)
    with folder.metrics.open("a") as file:
        file.write(note)
    run(small(steps=12, log_every=2), folder.path)
    assert "metrics.csv ends with a line that the run did not write" in capfd.readouterr().err
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
    newer = '{"format": "proxlearn-model-2"}'
    folder.model.write_text(newer)
    with pytest.raises(InputError, match="newer version"):
        run(small(steps=5), tmp_path)
    assert folder.model.read_text() == newer
