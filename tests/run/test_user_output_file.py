"""Outputs never replace an input or a file of a run; devices and pipes are written directly and never replaced.

A run folder that is shared with others: hard-linked backups, a moved folder, a removed lock.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from pathlib import Path

import numpy as np
import pytest

from proxlearn.cli import main
from proxlearn.errors import RunError
from proxlearn.run.checkpoint_file import checkpoint_path, list_checkpoints
from proxlearn.run.user_output_file import check_output, write_output
from proxlearn.training.stepper import Stepper
from tests.small_runs import assert_same_run, run, small


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    run(small("compile=off", steps=6), folder)
    return folder


@pytest.fixture(scope="module")
def table(trained: Path) -> Path:
    columns = json.loads((trained / "model.json").read_text())["columns"]
    path = trained.parent / "new.csv"
    path.write_text(f"{','.join(columns)}\n0.5\n")
    return path


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


OWN = ("config.yaml", "model.json", "metrics.csv", "selection.json", "risk.png", "checkpoints/page.html", "train.log",
       ".lock-owner")  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_file_of_the_run_is_no_output(
    name: str, trained: Path, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(trained)
    for words in (["report", str(trained)], ["predict", str(trained), "--data", str(table)], ["bench", "--quick"]):
        if words[0] != "bench" or name != "risk.png":
            assert "would be taken for a file of a run or" in refused([*words, "-o", str(trained / name)], capsys)
    assert contents(trained) == before


def test_the_input_is_no_output_under_any_name(
    trained: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.csv").symlink_to(table)
    os.link(table, tmp_path / "hard.csv")
    before = table.read_bytes()
    for name in (table, tmp_path / "link.csv", tmp_path / "hard.csv"):
        words = ["predict", str(trained), "--data", str(table), "-o", str(name)]
        assert "is also the input file" in refused(words, capsys)
    kept = os.dup(0)
    try:
        with table.open("rb") as file:
            os.dup2(file.fileno(), 0)
        assert "is also the input file" in refused(["predict", str(trained), "--data", "-", "-o", str(table)], capsys)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert table.read_bytes() == before


def test_a_device_is_written_through(trained: Path, table: Path, tmp_path: Path) -> None:
    """A named pipe represents a device, which a test cannot create; `/dev/null` itself must remain a device."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    assert main(["report", str(trained), "-o", str(pipe)]) == 0
    reader.join(20)
    assert received[0].startswith(b"<!")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert main(["predict", str(trained), "--data", str(table), "-o", "/dev/null"]) == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_an_open_descriptor_is_written_to_where_it_stands(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.write(b"before ")
        file.flush()
        write_output(Path(f"/dev/fd/{file.fileno()}"), b"content ")
        file.write(b"after")
    assert (tmp_path / "file").read_bytes() == b"before content after"


def test_the_standard_output_is_appended_to_under_any_name(tmp_path: Path) -> None:
    """With `-o NAME >> log.csv`, NAME refers to standard output in some way, or is the file itself."""
    log = tmp_path / "log.csv"
    log.write_bytes(b"before\n")
    (tmp_path / "link").symlink_to("/dev/stdout")
    (tmp_path / "further").symlink_to("link")
    (tmp_path / "folder").symlink_to("/dev/fd")
    os.link(log, tmp_path / "hard.csv")
    names = ["/dev/stdout", "//dev/stdout", "/proc/thread-self/fd/1", f"/proc/{os.getpid()}/fd/1", "/dev/../dev/stdout"]
    names += [str(tmp_path / name) for name in ("link", "further", "folder/1", "hard.csv", "log.csv")]
    kept = os.dup(1)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
        for name in names:
            check_output(Path(name))
            write_output(Path(name), f"{name}\n".encode())
    finally:
        os.dup2(kept, 1)
        os.close(kept)
    assert log.read_text().splitlines() == ["before", *names]
    assert (tmp_path / "link").is_symlink()


def test_a_link_keeps_pointing_and_permissions_stay(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_output(link, b"new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_bench_refuses_its_output_before_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "it is a folder" in refused(["bench", "-o", str(tmp_path)], capsys)
    assert "names a plot" in refused(["bench", "-o", str(tmp_path / "a.png")], capsys)
    (tmp_path / "b.png").mkdir()
    assert "it is a folder" in refused(["bench", "-o", str(tmp_path / "b.json")], capsys)
    for name in ("c.json", "d.png", "e.pdf"):
        (tmp_path / name).write_text("mine")
        line = refused(["bench", "-o", str((tmp_path / name).with_suffix(".json"))], capsys)
        assert f"{name} was not written by `proxlearn bench`" in line
        assert (tmp_path / name).read_text() == "mine"


def test_a_table_may_come_through_a_pipe(trained: Path, table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In `predict --data <(...)`, the shell passes the name of a descriptor."""
    read, write = os.pipe()
    os.write(write, table.read_bytes())
    os.close(write)
    assert main(["predict", str(trained), "--data", f"/dev/fd/{read}"]) == 0
    os.close(read)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_no_rows_in_no_rows_out(trained: Path, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = table.read_text().splitlines()[0]
    (tmp_path / "header.csv").write_text(header + "\n")
    assert main(["predict", str(trained), "--data", str(tmp_path / "header.csv")]) == 0
    assert capsys.readouterr().out == "prediction,spread\n"


def test_a_dangling_link_is_no_run_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    words = ["train", "dataset=sine", "steps=1", f"hydra.run.dir={tmp_path / 'link'}"]
    assert "link" in refused(words, capsys)
    for command in ("resume", "plot", "report", "film", "status"):
        refused([command, str(tmp_path / "link")], capsys)


def test_a_checkpoint_is_neither_followed_nor_waited_for(trained: Path, tmp_path: Path) -> None:
    from proxlearn.run.checkpoint_file import InvalidCheckpoint, read_checkpoint_file

    step, whole = list_checkpoints(trained / "checkpoints")[0]
    for kind in ("link", "pipe", "sparse"):
        path = checkpoint_path(tmp_path / kind, step)
        path.parent.mkdir()
        if kind == "link":
            path.symlink_to(whole)
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.write_bytes(whole.read_bytes())
            os.truncate(path, 100 * 10**9)
        with pytest.raises(InvalidCheckpoint):
            read_checkpoint_file(path)


def test_npz_files_that_claim_too_much_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.npz"
    words = ["train", "dataset=csv", f"dataset.path={path}", "dataset.target=y", "steps=1", "threads=1"]
    np.savez(path, X=np.zeros((3, 2)), y=np.zeros(3))
    content = path.read_bytes()
    giant = content.replace(b"'shape': (3, 2), }" + b" " * 11, b"'shape': (300000000000, 2), }")
    magic = content.replace(b"\x93NUMPY", b"\x93NUMPX")

    def patched(local: int, central: int, value: int) -> bytes:
        """Change a byte in both headers of the first array."""
        trained = bytearray(content)
        trained[content.find(b"PK\x03\x04") + local] = value
        trained[content.find(b"PK\x01\x02") + central] = value
        return bytes(trained)

    encrypted, compressed = patched(6, 8, 1), patched(8, 10, 99)
    for damaged in (giant, encrypted, magic, compressed):
        assert damaged != content
        path.write_bytes(damaged)
        assert "a.npz cannot be read" in refused([*words, f"hydra.run.dir={tmp_path / 'run'}"], capsys)


def contents_shared_names(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_backup_of_hard_links_stays_as_it_was(tmp_path):
    folder, backup = tmp_path / "run", tmp_path / "backup"
    run(small(steps=8, log_every=3), folder)
    shutil.copytree(folder, backup, copy_function=os.link)
    before = contents_shared_names(backup)
    run(small(steps=20, log_every=3), folder)
    assert contents_shared_names(backup) == before
    run(small(steps=20, log_every=3), tmp_path / "whole")
    assert_same_run(folder, tmp_path / "whole")


def at_step(monkeypatch, step, act):
    """Let another process call ``act`` once, just before the run's step ``step``."""
    advance = Stepper.__call__

    def acting(self, cloud):
        if cloud.step == step:
            monkeypatch.setattr(Stepper, "__call__", advance)
            act()
        return advance(self, cloud)

    monkeypatch.setattr(Stepper, "__call__", acting)


def test_a_process_whose_folder_was_moved_writes_nothing_into_the_run_made_there_since(tmp_path, monkeypatch):
    folder, moved = tmp_path / "run", tmp_path / "moved"

    def move():
        folder.rename(moved)
        run(small(steps=12, seed=7), folder)
        other.update(contents_shared_names(folder))

    other = {}
    at_step(monkeypatch, 7, move)
    with pytest.raises(
        RunError, match="was moved, or its lock file was removed; resume the run from its current folder"
    ) as lost:
        run(small(steps=30), folder)
    assert lost.value.exit_code == 1
    assert other
    assert contents_shared_names(folder) == other
    run(small(steps=30), moved)
    run(small(steps=30), tmp_path / "whole")
    assert (moved / "metrics.csv").read_bytes() == (tmp_path / "whole" / "metrics.csv").read_bytes()


def test_a_process_whose_lock_was_removed_leaves_the_folder_to_the_next(tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def take():
        (folder / ".lock").unlink()
        assert run(small(steps=30, log_every=1), folder).state == "finished"

    at_step(monkeypatch, 7, take)
    with pytest.raises(RunError, match="its lock file was removed"):
        run(small(steps=30, log_every=1), folder)
    run(small(steps=30, log_every=1), tmp_path / "whole")
    assert_same_run(folder, tmp_path / "whole")
