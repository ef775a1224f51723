"""`proxlearn resume`, and the exit codes and messages with which a run ends."""

import os
import signal
import time

import pytest
from small_runs import FORKSERVER, run, small

from proxlearn.cli import main

SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "log_every=10"]


def run_command(args, stderr_file):
    os.dup2(os.open(stderr_file, os.O_WRONLY | os.O_CREAT), 2)
    os._exit(main(args))


def start_command(stderr_file, *args):
    process = FORKSERVER.Process(target=run_command, args=(list(args), stderr_file))
    process.start()
    return process


def wait_for(path):
    limit = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    run(small(steps=1), folder)
    return folder


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_its_code_and_one_line_and_resume_goes_on(number, code, tmp_path, capsys):
    folder, stderr_file = tmp_path / "run", tmp_path / "stderr"
    process = start_command(stderr_file, "train", *SMALL, "steps=1e6", f"hydra.run.dir={folder}")
    wait_for(folder / "checkpoints" / "cloud-000000016.safetensors")
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code
    (line,) = stderr_file.read_text().splitlines()
    assert line.startswith("proxlearn: stopped at step ")
    assert line.endswith("; the same command continues from there")
    step = int(line.split("at step ")[1].split(";")[0])
    assert main(["resume", str(folder), "--steps", str(step + 10)]) == 0
    assert f"finished at step {step + 10}" in capsys.readouterr().out


def test_a_finished_run_shows_its_result(finished_run, capsys):
    assert main(["resume", str(finished_run)]) == 0
    output = capsys.readouterr().out
    assert "already finished at step 1." in output
    assert "| test  | weighted" in output


def test_a_second_process_is_told_and_a_second_signal_ends_at_once(tmp_path):
    folder, stderr_file = tmp_path / "run", tmp_path / "stderr"
    # A step that takes minutes: the first signal waits for its end.
    slow = ["dataset=sine", "N=1000", "L=1000000", "delta=0", "threads=1"]
    process = start_command(tmp_path / "nothing", "train", *slow, f"hydra.run.dir={folder}")
    wait_for(folder / "checkpoints" / "cloud-000000000.safetensors")
    other = start_command(stderr_file, "resume", str(folder))
    other.join(60)
    assert other.exitcode == 2
    assert f"is in use by process {process.pid} on " in stderr_file.read_text()
    for _ in range(2):
        assert process.is_alive()
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.3)
    process.join(10)
    assert process.exitcode == -signal.SIGTERM


@pytest.mark.parametrize("steps", ["-1", "abc", "1.5", "nan", "", "9" * 400])
def test_impossible_steps_are_refused(steps, finished_run, capsys):
    assert main(["resume", str(finished_run), f"--steps={steps}"]) == 2
    assert "--steps must be a whole number" in capsys.readouterr().err


def test_a_folder_that_is_none(tmp_path, capsys):
    assert main(["resume", str(tmp_path / "nowhere")]) == 2
    assert main(["resume", str(tmp_path)]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "does not exist" in first
    assert "is not a run folder: it has no config.yaml" in second


def test_init_from_that_does_not_fit_leaves_no_folder(finished_run, tmp_path, capsys):
    folder = tmp_path / "run"
    assert main(["train", "dataset=wdbc", "N=8", f"init_from={finished_run}", f"hydra.run.dir={folder}"]) == 2
    assert "has 8 particles with 3 coordinates, but this run needs 8 with 32" in capsys.readouterr().err
    assert not folder.exists()
