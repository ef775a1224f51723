"""One run over several processes: the same bits, one folder, and one line when something is wrong."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from rank_processes import Ranks, free_port, run_command, start_command, start_ranks
from small_runs import status

import proxlearn
from proxlearn.distributed.rank_environment import TIMEOUT_VARIABLE, Launch, find_launch
from proxlearn.distributed.world import CONTINUES
from proxlearn.errors import InputError
from proxlearn.run.checkpoint import load, newest_valid
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints, list_shards

SMALL = ("dataset=sine", "N=64", "dataset.points=10", "threads=1", "checkpoint_every=4")
STEPS = 60


def train_on(tmp_path: Path, size: int, run: str, *args: str) -> Path:
    ranks = start_command(tmp_path, size, "train", *SMALL, *args, f"hydra.run.dir={tmp_path / run}")
    assert ranks.wait() == [0] * size, ranks.outputs[0].read_text()
    return tmp_path / run


def assert_same_clouds(folder: Path, reference: Path) -> None:
    assert (folder / "metrics.csv").read_bytes() == (reference / "metrics.csv").read_bytes()
    assert (folder / "accuracy.csv").read_bytes() == (reference / "accuracy.csv").read_bytes()
    stored = {step: load(path) for step, path in list_checkpoints(folder / "checkpoints")}
    for step, path in list_checkpoints(reference / "checkpoints"):
        expected = load(path)
        assert torch.equal(stored[step].cloud.theta, expected.cloud.theta)
        assert torch.equal(stored[step].cloud.log_rho, expected.cloud.log_rho)
        assert torch.equal(stored[step].generator, expected.generator)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one rank, which every other run of ``SMALL`` with as many steps must equal."""
    return train_on(tmp_path_factory.mktemp("reference"), 1, "run", f"steps={STEPS}")


def test_a_run_is_continued_by_any_number_of_ranks_and_read_like_any_other(tmp_path: Path, reference: Path) -> None:
    folder = train_on(tmp_path, 2, "run", "steps=5")
    assert status(folder)["ranks"] == 2
    assert list_shards(folder / "checkpoints")
    # A process that no launcher has started goes on with the same engine.
    assert proxlearn.train(*SMALL, "steps=8", f"hydra.run.dir={folder}", plots=False, verbose=False).step == 8
    assert status(folder)["engine"] == "sharded"
    ranks = start_command(tmp_path, 3, "resume", str(folder), "--steps", str(STEPS), plots=True)
    assert ranks.wait() == [0, 0, 0], ranks.outputs[0].read_text()
    assert_same_clouds(folder, reference)
    run = proxlearn.load_run(folder)
    assert list(run.clouds) == list(proxlearn.load_run(reference).clouds)
    assert torch.equal(run.clouds[4].theta, proxlearn.load_run(reference).clouds[4].theta)
    table = tmp_path / "rows.csv"
    table.write_text("x\n0.5\n1.0\n")
    for command in (
        ("predict", str(folder), "--data", str(table), "-o", str(tmp_path / "predicted.csv")),
        ("report", str(folder), "-o", str(tmp_path / "report.html")),
        ("film", str(folder), "--frames", "3", "-o", str(tmp_path / "film.gif")),
    ):
        assert run_command(*command) == 0, command


def test_a_rank_that_is_lost_is_named_and_the_run_goes_on_exactly(tmp_path: Path, reference: Path) -> None:
    """The three worlds run at the same time: one rank is killed, one hangs, and one runs out of memory."""
    folders = {name: tmp_path / name for name in ("killed", "hanging", "large")}
    for folder in folders.values():
        folder.mkdir()
    command = ("train", *SMALL, f"steps={STEPS}", f"hydra.run.dir={folders['killed'] / 'run'}")
    killed = start_command(folders["killed"], 2, *command)
    endless = ("train", *SMALL, "steps=1000000", f"hydra.run.dir={folders['hanging'] / 'run'}")
    hanging = start_command(folders["hanging"], 2, *endless, timeout="5")
    too_large = ("train", "dataset=sine", "N=20000", "steps=1", f"hydra.run.dir={folders['large'] / 'run'}")
    large = start_ranks(folders["large"], 2, run_with_little_memory, lambda rank: (rank == 1, *too_large))
    wait_for_checkpoint(folders["killed"] / "run", 4)
    killed.processes[1].kill()
    wait_for_checkpoint(folders["hanging"] / "run", 4)
    pid = hanging.processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    assert killed.wait(60) == [1, -signal.SIGKILL]
    assert killed.lines(0) == [f"proxlearn: rank 1 ended or did not answer; {CONTINUES}"]
    assert large.wait(60) == [1, 1]
    assert large.lines(0) == [f"proxlearn: rank 1 failed: not enough memory; {CONTINUES}"]
    assert not large.lines(1)
    again = start_command(folders["killed"], 2, *command)
    assert again.wait() == [0, 0], again.outputs[0].read_text()
    assert_same_clouds(folders["killed"] / "run", reference)
    # Rank 0 is the one that hangs, so rank 1 tells the user.
    hanging.processes[1].join(60)
    assert hanging.processes[1].exitcode == 1
    hanging.processes[0].kill()
    hanging.processes[0].join()
    assert hanging.lines(1) == [f"proxlearn: rank 0 ended or did not answer; {CONTINUES}"]


def run_with_little_memory(little: bool, *args: str) -> int:
    """Run a command; if ``little``, with 600 MB more than the process has now, which the kernel's entries exceed."""
    if little:
        import resource

        import proxlearn.core.fused.sharded_step  # noqa: F401

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 600 * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return run_command(*args)


@pytest.mark.slow
def test_ten_killed_ranks_do_not_change_the_result(tmp_path: Path) -> None:
    """torchrun restarts the ranks after each SIGKILL; every second one comes while a checkpoint is written."""
    words = ("train", *SMALL, "steps=3000", "checkpoint_every=10", "keep_checkpoints=3", "films=false")
    ranks = start_command(tmp_path, 1, *words, f"hydra.run.dir={tmp_path / 'reference'}")
    assert ranks.wait(600) == [0], ranks.outputs[0].read_text()
    folder, chance = tmp_path / "run", random.Random(0)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "10"]
    launcher += ["--master-port", str(free_port()), "-m", "proxlearn", *words, f"hydra.run.dir={folder}"]
    with (tmp_path / "torchrun.out").open("w") as output:
        torchrun = subprocess.Popen(launcher, stdout=output, stderr=output, env=os.environ | {"OMP_NUM_THREADS": "1"})
    reached, interrupted = 0, 0
    for number in range(10):
        wait_for_checkpoint(folder, reached + 20)
        time.sleep(chance.uniform(0, 0.5))
        if number % 2:
            # An unfinished file is there for some milliseconds; the rank whose process wrote it is killed.
            pid = wait_for_unfinished_checkpoint(folder / "checkpoints")
            interrupted += 1
        else:
            children = Path(f"/proc/{torchrun.pid}/task/{torchrun.pid}/children").read_text().split()
            pid = int(chance.choice(children))
        os.kill(pid, signal.SIGKILL)
        newest = newest_valid(folder / "checkpoints")
        assert newest is not None
        reached = newest.cloud.step
        assert reached < 3000
    assert torchrun.wait(300) == 0, (tmp_path / "torchrun.out").read_text()
    assert interrupted == 5
    assert_same_clouds(folder, tmp_path / "reference")


def wait_for_unfinished_checkpoint(checkpoints: Path) -> int:
    """Return the process that is writing a checkpoint or a part of it, from the name of its temporary file."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for name in os.listdir(checkpoints):
            match = re.fullmatch(r"\.proxlearn-cloud-.*\.(\d+)\.tmp", name)
            if match and Path(f"/proc/{match[1]}").exists():
                return int(match[1])
    raise AssertionError("no checkpoint is written")


def test_a_signal_to_one_rank_stops_all_of_them_at_a_checkpoint(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks = start_command(tmp_path, 2, "train", *SMALL, "steps=100000", f"hydra.run.dir={folder}")
    wait_for_checkpoint(folder, 4)
    pid = ranks.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGTERM)
    assert ranks.wait() == [128 + signal.SIGTERM] * 2
    newest = newest_valid(folder / "checkpoints")
    assert status(folder)["state"] == "stopped"
    assert newest is not None
    assert newest.cloud.step == status(folder)["step"]
    assert not ranks.lines(1)


def wait_for_checkpoint(folder: Path, step: int) -> None:
    end = time.monotonic() + 90
    while not any(found >= step for found, _ in list_checkpoints(folder / "checkpoints")):
        assert time.monotonic() < end, "the run has not written a checkpoint"
        time.sleep(0.01)


REFUSED = {
    "rank 1 has beta=0.5, but rank 0 has beta=0.3; run the same command in the same folder on all ranks": (
        (2, "train", *SMALL),
        {0: ("beta=0.3",), 1: ("beta=0.5",)},
    ),
    "N=40 can be divided among at most 2 ranks, but there are 3 ranks; start fewer ranks, or choose a larger N": (
        (3, "train", "dataset=sine", "N=40"),
        {},
    ),
    "rank 1: unknown key `betta`; did you mean `beta`?": ((2, "train", *SMALL), {1: ("betta=1",)}),
    "a sweep cannot run on several ranks; start the run without torchrun or srun": (
        (2, "train", "-m", *SMALL, "beta=0.1,0.2"),
        {},
    ),
    "kernel=log does not support several ranks; use kernel=auto": ((2, "train", *SMALL, "kernel=log"), {}),
    "a run under torchrun or srun needs the compiled engine, but compile=off is set; use device=cpu and compile=auto"
    ", or start the run without torchrun or srun": ((2, "train", *SMALL, "compile=off"), {}),
    "`proxlearn compare` cannot be divided among several ranks; start it without torchrun or srun": (
        (2, "compare"),
        {},
    ),
}


def test_ranks_that_cannot_run_together_are_refused_in_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    started: dict[str, Ranks] = {}
    for number, (message, ((size, *args), own)) in enumerate(REFUSED.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        where = () if args[0] == "compare" else (f"hydra.{'sweep' if '-m' in args else 'run'}.dir={folder / 'run'}",)
        started[message] = start_command(folder, size, *args, *where, own=own)
    for message, ranks in started.items():
        assert set(ranks.wait()) == {2}, (message, ranks.outputs[0].read_text())
        assert ranks.lines(0) == [f"proxlearn: {message}"]
        assert not any(ranks.lines(rank) for rank in range(1, len(ranks.processes)))
        assert not (ranks.outputs[0].parent / "run").exists()


def test_an_invalid_timeout_is_reported_by_rank_0_also_if_only_another_rank_has_it(tmp_path: Path) -> None:
    value = "abc is not a number of seconds from 1 to 1000000; set it to such a number, or unset the variable"
    words = ("train", *SMALL, f"hydra.run.dir={tmp_path / 'run'}")
    for name, first in (("", 0), ("rank 1: ", 1)):
        ranks = start_ranks(tmp_path, 2, run_with_timeout, lambda rank, first=first: (rank >= first, *words))
        assert ranks.wait() == [2, 2], ranks.outputs[0].read_text()
        assert ranks.lines(0) == [f"proxlearn: {name}{TIMEOUT_VARIABLE}={value}"]
        assert not ranks.lines(1)
    assert not (tmp_path / "run").exists()


def run_with_timeout(invalid: bool, *args: str) -> int:
    os.environ[TIMEOUT_VARIABLE] = "abc" if invalid else "60"
    return run_command(*args)


ELSEWHERE = "/proc/self/cwd"
"""A path that is another folder for each rank, like a path on machines that do not share a file system."""
TABLE = (
    *("dataset=csv", f"dataset.path={ELSEWHERE}/table.csv", "dataset.target=y"),
    *("dataset.task=regression", "N=64", "steps=4", "threads=1"),
)
SAME_MACHINES = "use the same processor, versions, number of threads and PROXLEARN_MEMORY on all machines"
DIFFERENT_MACHINES = {
    "data": (
        (*TABLE, "hydra.run.dir={common}/run"),
        r"rank 1 has the data checksum=\w{16}, but rank 0 has the data checksum=\w{16};"
        " use the same files on all ranks",
    ),
    "folder": (
        ("dataset=sine", "N=64", "threads=1", f"hydra.run.dir={ELSEWHERE}/run"),
        rf"rank 1, on \S+, cannot access the run folder {ELSEWHERE}/run of rank 0; choose a folder on a file system"
        " that all machines share, with hydra.run.dir=FOLDER",
    ),
    "version": (
        ("dataset=sine", "N=64", "threads=1", "hydra.run.dir={common}/run"),
        rf"rank 1 has proxlearn=0\.0\.1, revision \d+, but rank 0 has proxlearn=.*, revision \d+; {SAME_MACHINES}",
    ),
    "memory": (
        ("dataset=sine", "N=64", "threads=1", "hydra.run.dir={common}/run"),
        f"rank 1 has PROXLEARN_MEMORY=3GiB, but rank 0 has PROXLEARN_MEMORY=unset; {SAME_MACHINES}",
    ),
}


def test_machines_with_different_versions_data_or_folders_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    started = {}
    for name, (words, _) in DIFFERENT_MACHINES.items():
        machines = [tmp_path / name / str(rank) for rank in range(2)]
        for rank, machine in enumerate(machines):
            machine.mkdir(parents=True)
            rows = "".join(f"{0.1 * k},{k * (rank + 1)}\n" for k in range(40))
            (machine / "table.csv").write_text("x,y\n" + rows)
        args = ("train", *(word.format(common=tmp_path / name) for word in words))
        by_rank = [(machines[0], "", *args), (machines[1], name, *args)]
        started[name] = start_ranks(tmp_path / name, 2, run_on_machine, by_rank.__getitem__)
    for name, ranks in started.items():
        assert ranks.wait() == [2, 2], ranks.outputs[0].read_text()
        (line,) = ranks.lines(0)
        assert re.fullmatch("proxlearn: " + DIFFERENT_MACHINES[name][1], line), line
        assert not ranks.lines(1)
        assert not list((tmp_path / name).rglob("run"))


def run_on_machine(folder: Path, changed: str, *args: str) -> int:
    """Run a command in a folder of this rank, with another version or memory limit if ``changed`` names it."""
    import proxlearn.distributed.agreement as agreement

    os.chdir(folder)
    agreement.VISIBLE_SECONDS = 0.3
    agreement.__version__ = "0.0.1" if changed == "version" else agreement.__version__
    os.environ |= {"PROXLEARN_MEMORY": "3GiB"} if changed == "memory" else {}
    return run_command(*args)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"}, Launch(1, 2, "a", 5)),
        # A task of a sweep, and a batch script of a job with several tasks: both are single processes.
        ({"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, None),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        (
            {
                **{"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "2", "SLURM_STEP_ID": "1"},
                **{"SLURM_STEP_NODELIST": "absent.invalid[1-2]", "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1"},
            },
            Launch(3, 4, "127.0.0.1", 20203),
        ),
    ],
)
def test_the_place_in_the_world_is_read_from_the_environment(environment: dict[str, str], expected: object) -> None:
    assert find_launch(environment) == expected


@pytest.mark.parametrize("rank", ["2", "-1", "x", ""])
def test_a_rank_outside_the_world_is_refused(rank: str) -> None:
    with pytest.raises(InputError, match="these environment variables do not describe a rank"):
        find_launch({"RANK": rank, "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "5"})


def test_a_damaged_part_makes_its_checkpoint_invalid_and_unused_parts_are_deleted(tmp_path: Path) -> None:
    folder = train_on(tmp_path, 2, "run", "steps=8", "films=false", "keep_checkpoints=2")
    checkpoints = folder / "checkpoints"
    steps = [step for step, _ in list_checkpoints(checkpoints)]
    assert steps == [8, 4]
    assert sorted(step for step, _ in list_shards(checkpoints)) == [4, 4, 8, 8]
    damaged = next(path for step, path in list_shards(checkpoints) if step == 8)
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    with pytest.raises(InvalidCheckpoint, match=r"its part .* is not valid"):
        load(checkpoints / "cloud-000000008.safetensors")
    newest = newest_valid(checkpoints)
    assert newest is not None
    assert newest.cloud.step == 4
    shutil.copy(damaged, checkpoints / "cloud-000000005-0123456789abcdef.shard")
    assert (
        proxlearn.train(*SMALL, "steps=12", "films=false", f"hydra.run.dir={folder}", plots=False, verbose=False).step
        == 12
    )
    assert not any(step == 5 for step, _ in list_shards(checkpoints))
