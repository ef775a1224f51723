"""Files from untrusted sources are read as values, rejected or ignored, but never executed."""

import hashlib
import json
import os
import pickle

import pytest
import torch
import yaml
from small_runs import assert_same_run, run, small

from proxlearn.cli import main
from proxlearn.errors import InputError
from proxlearn.run import checkpoint, checkpoint_file
from proxlearn.run.checkpoint_file import InvalidCheckpoint


class Bomb:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    run(small(steps=6), folder)
    return folder


def resealed(blob: bytes, change) -> bytes:
    """Return a forged checkpoint with any header and a matching checksum."""
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8 : 8 + size])
    text = change(header) or json.dumps(header, separators=(",", ":")).encode()
    forged = len(text).to_bytes(8, "little") + text + blob[8 + size :]
    place = checkpoint_file.CHECKSUM.search(forged)
    if place is None:
        return forged
    blank = forged[: place.start(1)] + checkpoint_file.BLANK_CHECKSUM + forged[place.end(1) :]
    return blank[: place.start(1)] + hashlib.sha256(blank).hexdigest().encode() + blank[place.end(1) :]


def state(**changes):
    def change(header):
        values = json.loads(header["__metadata__"]["state"]) | changes
        header["__metadata__"]["state"] = json.dumps(values)

    return change


def tensor(name, **changes):
    return lambda header: header[name].update(changes)


def rewritten(old: bytes, new: bytes):
    return lambda header: json.dumps(header, separators=(",", ":")).encode().replace(old, new)


FORGERIES = {
    "other step": state(step=5),
    "step as a text": state(step="6"),
    "step without end": state(step=1e308),
    "negative": state(unmet=-1),
    "no number": state(switched_at=[1]),
    "no rows": state(metrics_size=0),
    "size without end": state(metrics_size=10**30),
    "path for a name": state(metrics_sha256={"../..": 1}),
    "state is a list": lambda header: header["__metadata__"].update(state="[]"),
    "deep state": lambda header: header["__metadata__"].update(state="[" * 100_000),
    "format": lambda header: header["__metadata__"].update(format="pickle"),
    "no format": lambda header: header["__metadata__"].pop("format") and None,
    "no theta": lambda header: header.update(omega=header.pop("theta")),
    "theta of another shape": tensor("theta", shape=[24]),
    "theta of another kind": tensor("theta", dtype="I32"),
    "theta read as noise": tensor("generator", dtype="I8"),
    "offsets outside": tensor("theta", data_offsets=[0, 10**9]),
    "deep header": rewritten(b'"theta"', b'"x":' + b"[" * 100_000 + b"]" * 100_000 + b',"theta"'),
    "not JSON": rewritten(b"{", b"("),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_checkpoint_is_skipped(name, run_folder, tmp_path, capfd):
    path = checkpoint_file.checkpoint_path(run_folder / "checkpoints", 6)
    path.write_bytes(resealed(path.read_bytes(), FORGERIES[name]))
    (run_folder / "status.json").unlink()
    run(small(steps=9), run_folder)
    assert "skipping the checkpoint cloud-000000006.safetensors: " in capfd.readouterr().err
    run(small(steps=9), tmp_path / "whole")
    assert_same_run(run_folder, tmp_path / "whole")


def test_numbers_that_are_not_finite_are_not_read_either(run_folder):
    path = checkpoint_file.checkpoint_path(run_folder / "checkpoints", 6)
    blob = path.read_bytes()
    theta = checkpoint.load(path).cloud.theta.numpy().tobytes()
    forged = blob.replace(theta, torch.full((8, 3), float("nan")).numpy().tobytes())
    path.write_bytes(resealed(forged, lambda header: None))
    with pytest.raises(InvalidCheckpoint):
        checkpoint.load(path)


def test_a_generator_that_is_none_is_skipped(run_folder, tmp_path, capfd):
    path = checkpoint_file.checkpoint_path(run_folder / "checkpoints", 6)
    blob = path.read_bytes()
    generator = checkpoint.load(path).generator.numpy().tobytes()
    path.write_bytes(resealed(blob.replace(generator, b"\xff" * len(generator)), lambda header: None))
    run(small(steps=9), run_folder)
    assert "cloud-000000006.safetensors: its random generator" in capfd.readouterr().err
    run(small(steps=9), tmp_path / "whole")
    assert_same_run(run_folder, tmp_path / "whole")


@pytest.mark.parametrize("file", ["checkpoints/cloud-000000006.safetensors", "status.json", ".lock"])
def test_a_pickle_in_place_of_any_file_is_not_unpickled(file, run_folder, tmp_path):
    exploded = tmp_path / "exploded"
    (run_folder / file).write_bytes(pickle.dumps(Bomb(exploded)))
    run(small(steps=9), run_folder)
    assert not exploded.exists()
    run(small(steps=9), tmp_path / "whole")
    assert_same_run(run_folder, tmp_path / "whole")


CONFIGS = {
    "python": "!!python/object/apply:os.mkdir ['EXPLODED']",
    "target": "{_target_: os.mkdir, path: EXPLODED}",
    "alias": "a: &a [1]\nb: *a",
    "pickle": "\x80\x04",
    "deep": "[" * 5000,
    "text": "hello",
    "empty": "",
}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_hostile_config_is_one_line(name, run_folder, tmp_path, capsys):
    exploded = tmp_path / "exploded"
    (run_folder / "config.yaml").write_text(CONFIGS[name].replace("EXPLODED", str(exploded)))
    assert main(["resume", str(run_folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("proxlearn: ")
    assert not exploded.exists()


@pytest.mark.parametrize("key", ["dataset.name", "recipe"])
@pytest.mark.parametrize("value", ["../../elsewhere", "/elsewhere", "a/b", "..", ".hidden", "a\0b", "os.system; x"])
def test_a_name_in_a_config_leads_nowhere(key, value, run_folder):
    config = yaml.safe_load((run_folder / "config.yaml").read_text())
    group, _, name = key.rpartition(".")
    (config[group] if group else config)[name] = value
    (run_folder / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(InputError, match="must be a word"):
        run(small(steps=9), run_folder)


@pytest.mark.parametrize("file", ["metrics.csv", "train.log", "risk.png", ".lock", "checkpoints"])
def test_a_link_out_of_the_folder_is_not_followed(file, run_folder, tmp_path, capsys):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    if (run_folder / file).is_dir():
        (run_folder / file).rename(run_folder / "moved")
    (run_folder / file).unlink(missing_ok=True)
    (run_folder / file).symlink_to(outside)
    assert main(["resume", str(run_folder), "--steps", "9"]) == 2
    assert "is a link or a device" in capsys.readouterr().err
    assert outside.read_text() == "precious"


def test_resume_follows_no_path_of_the_config(run_folder, tmp_path):
    other = tmp_path / "other"
    run(small(f"init_from={run_folder}", steps=2), other)
    for path in (other / "checkpoints").iterdir():
        path.unlink()
    assert main(["resume", str(other), "--steps", "5"]) == 2
