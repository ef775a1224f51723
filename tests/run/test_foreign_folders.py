"""Random command lines for folders with files of other programs: no such file is changed, and there is no traceback.

A full disk, a file-size limit, or a folder that disappears gives one line, and the last good checkpoint remains.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

from proxlearn.cli import main
from proxlearn.errors import RunError
from proxlearn.run import checkpoint
from tests.small_runs import FORKSERVER, FULL, assert_same_run, run, small, status

pytestmark = pytest.mark.faults

COUNT = 500 if FULL else 30
CHUNKS = 4 if FULL else 1
NAMES = [
    *("metrics.csv", "model.json", "status.json", "config.yaml", "points.csv", "accuracy.csv", "accuracy.md"),
    *("selection.json", "train.log", "risk.png", "risk.pdf", "mlflow.json", ".lock", ".notes.tmp", ".draft.12.tmp"),
    *("report.html", "film.gif", "sweep.yaml", "summary.csv", "summary.md", "jobs/0.json", "jobs/0.log", "notes.txt"),
    *(
        "checkpoints/cloud-000000000.safetensors",
        "checkpoints/mine",
        "tensorboard/events.out.tfevents.1",
        "x/config.yaml",
    ),
    *(".hydra/config.yaml", "sweeps/mine.csv", "multirun.yaml", ".proxlearn-notes.txt"),
]
CONTENTS = [b"", b"mine\n", b"a,b\n1,2\n", b"{}", b'{"state": "finished"}', b"dataset: mine\nlr: 1\n", b"\x00\xff" * 40]
SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=1"]


def commands(draw: random.Random, run_folder: Path) -> list[str]:
    overwrite = draw.choice([[], ["overwrite=true"]])
    new = draw.choice(["new.html", "deep/none/new.html"])
    return draw.choice(
        [
            ["train", *SMALL, *overwrite, "hydra.run.dir=F"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F/../F"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F", f"init_from={run_folder}"],
            ["train", *SMALL, *overwrite, "hydra.run.dir=F", "hydra.output_subdir=.hydra"],
            ["train", *SMALL, "dataset.path=F/points.csv", "hydra.run.dir=F"],
            ["train", *SMALL, "init_from=F", "hydra.run.dir=elsewhere"],
            ["train", "-m", *SMALL, *overwrite, "hydra.sweep.dir=.", "hydra.sweep.subdir=F"],
            ["train", "-m", *SMALL, *overwrite, "seed=0,1", "hydra.sweep.dir=F", "hydra.sweep.subdir=x"],
            ["train", "-m", *SMALL, *overwrite, "seed=0,1", "hydra.run.dir=F"],
            ["train", *SMALL, "--cfg", "job"],
            ["resume", "F"],
            ["resume", "F", "--steps", "9"],
            ["status", "F"],
            ["status", "."],
            ["plot", "F"],
            ["report", "F"],
            ["report", str(run_folder), "-o", f"F/{new}"],
            ["film", "F"],
            ["predict", "F", "--data", "rows.csv", "-o", "F/new.csv"],
            ["predict", str(run_folder), "--data", "rows.csv", "-o", "F/new.csv"],
            ["evaluate", "F", "--data", "rows.csv"],
            ["compare", "--dataset", "nosuch", "--output", "F"],
        ]
    )


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run(small(steps=1), folder)
    return folder


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_file_of_another_program_is_changed(chunk, run_folder, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("rows.csv").write_text("x\n0.5\n")
    for seed in range(chunk, COUNT, CHUNKS):
        draw = random.Random(seed)
        shutil.rmtree("F", ignore_errors=True)
        for name in draw.sample(NAMES, draw.randint(1, 9)):
            Path("F", name).parent.mkdir(parents=True, exist_ok=True)
            Path("F", name).write_bytes(draw.choice(CONTENTS))
        args, before = commands(draw, run_folder), contents(tmp_path)
        try:
            code = main(args)
        except SystemExit as ending:
            code = ending.code
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {args!r}, {list(before)}") from error
        after, stderr = contents(tmp_path), capfd.readouterr().err
        assert code in (0, 1, 2), (seed, args)
        assert "Traceback" not in stderr, (seed, args, stderr)
        assert {path: after.get(path) for path in before} == before, (seed, args)
        if code == 2:
            assert after == before, (seed, args)


pytestmark = pytest.mark.faults

OVERRIDES = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "log_every=1", "checkpoint_every=5"]


def limited(folder, size, stderr_path):
    """Run `proxlearn train` with a limit of ``size`` bytes per file."""
    from proxlearn import cli

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    os.dup2(os.open(stderr_path, os.O_WRONLY | os.O_CREAT), 2)
    os._exit(cli.main(["train", *OVERRIDES, "steps=200", f"hydra.run.dir={folder}"]))


def test_a_file_size_limit_ends_the_run_with_one_line_and_a_good_checkpoint(tmp_path):
    folder, stderr_path = tmp_path / "run", tmp_path / "stderr"
    process = FORKSERVER.Process(target=limited, args=(folder, 30_000, stderr_path))
    process.start()
    process.join()
    assert process.exitcode == 1
    (line,) = stderr_path.read_text().splitlines()
    assert line.startswith("proxlearn: cannot write to the run folder ")
    assert "File too large; fix the cause, and the same command continues" in line
    assert status(folder)["state"] == "failed"
    reached = checkpoint.newest_valid(folder / "checkpoints").cloud.step
    assert 0 < reached < 200
    config = small(steps=reached + 20, log_every=1)
    run(config, folder)
    run(config, tmp_path / "whole")
    assert_same_run(folder, tmp_path / "whole")


def test_a_removed_folder_ends_the_run_with_one_line(tmp_path):
    folder = tmp_path / "run"

    def remove():
        while not (folder / "accuracy.csv").exists() and not (folder / "metrics.csv").exists():
            time.sleep(0.01)
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    with pytest.raises(
        RunError, match=r"cannot write to the run folder .*No such file|its lock file was removed"
    ) as caught:
        run(small(steps=10**6), folder)
    remover.join()
    assert caught.value.exit_code == 1
    assert not folder.exists()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB, if one can be created."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tmp_path)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no right to mount; the file-size limit is tested everywhere")
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_file_system_leaves_the_last_checkpoint_and_room_lets_the_run_go_on(small_disk, tmp_path_factory):
    ballast, folder = small_disk / "ballast", small_disk / "run"
    config = small(steps=150, log_every=1)
    run(small(steps=20, log_every=1), folder)
    with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    with pytest.raises(RunError, match="No space left on device"):
        run(config, folder)
    assert checkpoint.newest_valid(folder / "checkpoints").cloud.step >= 20
    ballast.unlink()
    run(config, folder)
    uninterrupted = tmp_path_factory.mktemp("whole")
    run(config, uninterrupted)
    assert_same_run(folder, uninterrupted)


def test_a_file_system_that_becomes_read_only(small_disk):
    folder = small_disk / "run"
    run(small(steps=5), folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(RunError, match="Read-only file system"):
        run(small(steps=9), folder)
    assert checkpoint.newest_valid(folder / "checkpoints").cloud.step == 5


def test_plot_in_a_folder_that_becomes_read_only_is_one_line(small_disk, capsys):
    folder = small_disk / "run"
    run(small(steps=5), folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    capsys.readouterr()
    assert main(["plot", str(folder)]) in (1, 2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(("proxlearn: cannot write to ", f"proxlearn: {folder}"))


def test_a_full_disk_under_an_output_is_the_disks_failure_and_not_the_commands(small_disk, tmp_path_factory, capsys):
    folder = tmp_path_factory.mktemp("elsewhere") / "run"
    run(small("compile=off", steps=6), folder)
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    capsys.readouterr()
    assert main(["report", str(folder), "-o", str(small_disk / "page.html")]) == 1
    *_, line = capsys.readouterr().err.splitlines()
    assert "No space left on device; choose another -o FILE" in line, line


def starved(folder, stderr_path):
    """Run `proxlearn train` with a cloud whose N x N kernel does not fit in the remaining address space."""
    from proxlearn import cli

    with open("/proc/self/status") as file:
        used = int(next(line for line in file if line.startswith("VmSize")).split()[1]) * 1024
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
    os.dup2(os.open(stderr_path, os.O_WRONLY | os.O_CREAT), 2)
    words = ["dataset=sine", "dataset.points=10", "threads=1", "compile=off", "kernel=dense", "N=9000", "steps=2"]
    os._exit(cli.main(["train", *words, f"hydra.run.dir={folder}"]))


def test_a_run_out_of_memory_ends_with_one_line_and_its_first_checkpoint(tmp_path):
    folder, stderr_path = tmp_path / "run", tmp_path / "stderr"
    process = FORKSERVER.Process(target=starved, args=(folder, stderr_path))
    process.start()
    process.join()
    assert process.exitcode == 1
    (line,) = stderr_path.read_text().splitlines()
    assert line == "proxlearn: not enough memory; choose a smaller N or fewer rows"
    assert status(folder)["state"] == "failed"
    assert checkpoint.newest_valid(folder / "checkpoints").cloud.step == 0
