"""One run over several processes: the same bits, one folder, and one line when something is wrong."""

from __future__ import annotations

import hashlib
import os
import runpy
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from rank_processes import Ranks, run_command, start_ranks
from small_runs import status

import proxlearn
from proxlearn.core.sharding import Exchange, Lone, Shards
from proxlearn.distributed.agreement import check_same_data, check_visible
from proxlearn.distributed.launch import Launch, find_launch
from proxlearn.distributed.world import World
from proxlearn.errors import InputError, ProxlearnError
from proxlearn.run.checkpoint import load, newest_valid
from proxlearn.run.checkpoint_file import InvalidCheckpoint, list_checkpoints, list_shards
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from tests.conftest import config_of

SMALL = ("dataset=sine", "N=64", "dataset.points=10", "threads=1", "checkpoint_every=4")
SELECTED = ("beta=1e4", "h=0.1", "epsilon=0.5", "init_scale=1.0")
"""What the selection of recipe=tuned would choose, which is not tested here."""


def world_of(rank: int, size: int) -> World:
    return World(Launch(rank, size, "127.0.0.1", int(os.environ["MASTER_PORT"])), 60)


def digests(exchange: Exchange, cases: list[tuple[str, str, str]], steps: int) -> str:
    """Return the checksums of the clouds of all cases after some steps."""
    lines = []
    for dataset, recipe, dtype in cases:
        words = (f"dataset={dataset}", f"recipe={recipe}", f"device.dtype={dtype}", "N=64", f"steps={steps}")
        experiment = build_experiment(config_of(*words, *(SELECTED if recipe == "tuned" else ())))
        checkpoint, generator = first_checkpoint(experiment), torch.Generator()
        generator.set_state(checkpoint.generator)
        cloud = checkpoint.cloud
        options = {"until": steps, "engine": "sharded", "threads": 1, "shards": Shards(64, exchange)}
        for after, _ in iterate(experiment.source, cloud, experiment.hyper, generator=generator, **options):
            cloud = after
        sha256 = hashlib.sha256(cloud.theta.numpy().tobytes() + cloud.log_rho.numpy().tobytes()).hexdigest()
        lines.append(f"{dataset} {recipe} {dtype} {sha256}")
    return "\n".join(lines)


def write_digests(rank: int, size: int, cases: list[tuple[str, str, str]], steps: int, path: Path) -> int:
    path.write_text(digests(world_of(rank, size), cases, steps))
    return 0


def check_same_bits(tmp_path: Path, steps: int) -> None:
    datasets = ("wdbc", "banana", "diabetes", "twonorm", "shd", "sine")
    precisions = ("float32", "float64")
    cases = [(name, recipe, dtype) for name in datasets for recipe in ("paper", "tuned") for dtype in precisions]
    # First, so that the passes are compiled once, and not by five processes at the same time.
    alone = digests(Lone(), cases, steps)
    groups = {
        size: start_ranks(
            tmp_path, size, write_digests, lambda rank, n=size: (rank, n, cases, steps, tmp_path / f"{rank}-of-{n}")
        )
        for size in (2, 3)
    }
    for size, ranks in groups.items():
        assert ranks.wait(600) == [0] * size, ranks.outputs[0].read_text()
        for rank in range(size):
            assert (tmp_path / f"{rank}-of-{size}").read_text() == alone


def test_one_two_and_three_ranks_have_the_same_bits(paper_files: Path, tmp_path: Path) -> None:
    check_same_bits(tmp_path, 10)


@pytest.mark.slow
def test_one_two_and_three_ranks_have_the_same_bits_after_100_steps(paper_files: Path, tmp_path: Path) -> None:
    check_same_bits(tmp_path, 100)


def start_command(
    folder: Path, size: int, *args: str, own: dict[int, tuple[str, ...]] | None = None, timeout: str = "60"
) -> Ranks:
    """Start `proxlearn ARGS` on ranks; ``own`` adds arguments of single ranks."""
    environment = {"PROXLEARN_RANK_TIMEOUT": timeout}
    return start_ranks(folder, size, run_command, lambda rank: (*args, *(own or {}).get(rank, ())), environment)


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


def test_a_run_is_continued_by_any_number_of_ranks_and_read_like_any_other(tmp_path: Path) -> None:
    reference = train_on(tmp_path, 1, "reference", "steps=12")
    folder = train_on(tmp_path, 2, "run", "steps=5")
    assert status(folder)["ranks"] == 2
    assert list_shards(folder / "checkpoints")
    # A process that no launcher has started goes on with the same engine.
    assert proxlearn.train(*SMALL, "steps=8", f"hydra.run.dir={folder}", plots=False, verbose=False).step == 8
    assert status(folder)["engine"] == "sharded"
    ranks = start_command(tmp_path, 3, "resume", str(folder), "--steps", "12")
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
        ("film", str(folder), "-o", str(tmp_path / "film.gif")),
    ):
        assert run_command(*command) == 0, command


def test_a_killed_rank_is_named_and_the_run_goes_on_exactly(tmp_path: Path) -> None:
    reference, folder = train_on(tmp_path, 1, "reference", "steps=60"), tmp_path / "run"
    command = ("train", *SMALL, "steps=60", f"hydra.run.dir={folder}")
    ranks = start_command(tmp_path, 2, *command)
    wait_for_checkpoint(folder, 4)
    ranks.processes[1].kill()
    assert ranks.wait(60) == [1, -signal.SIGKILL]
    assert ranks.lines(0) == [
        "proxlearn: rank 1 ended or did not answer; the same command continues from the newest checkpoint"
    ]
    assert newest_valid(folder / "checkpoints") is not None
    again = start_command(tmp_path, 2, *command)
    assert again.wait() == [0, 0], again.outputs[0].read_text()
    assert_same_clouds(folder, reference)


def test_a_rank_that_hangs_is_named_after_the_timeout(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    ranks = start_command(tmp_path, 2, "train", *SMALL, "steps=100000", f"hydra.run.dir={folder}", timeout="5")
    wait_for_checkpoint(folder, 4)
    pid = ranks.processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    # Rank 0 is the one that hangs, so rank 1 tells the user.
    ranks.processes[1].join(60)
    assert ranks.processes[1].exitcode == 1
    ranks.processes[0].kill()
    ranks.processes[0].join()
    assert ranks.lines(1) == [
        "proxlearn: rank 0 ended or did not answer; the same command continues from the newest checkpoint"
    ]


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
    "rank 1 has beta=0.5, and rank 0 has beta=0.3; give all ranks the same command, in the same folder": (
        (2, "train", *SMALL),
        {0: ("beta=0.3",), 1: ("beta=0.5",)},
    ),
    "N=40 particles have 2 blocks, which is less than 3 ranks; use at most 2 ranks, or a larger N": (
        (3, "train", "dataset=sine", "N=40"),
        {},
    ),
    "rank 1: unknown key `betta`; did you mean `beta`?": ((2, "train", *SMALL), {1: ("betta=1",)}),
    "a sweep starts its jobs itself; start it without torchrun or srun": (
        (2, "train", "-m", *SMALL, "beta=0.1,0.2"),
        {},
    ),
    "kernel=log runs in one process; use kernel=auto on ranks": ((2, "train", *SMALL, "kernel=log"), {}),
    "ranks need the compiled engine, but compile=off is set; use device=cpu and compile=auto, or start it without"
    " torchrun": ((2, "train", *SMALL, "compile=off"), {}),
    "`proxlearn compare` runs in one process, not on 2 ranks; start it without torchrun or srun": ((2, "compare"), {}),
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


def test_ranks_with_different_data_are_refused(tmp_path: Path) -> None:
    ranks = start_ranks(tmp_path, 2, compare_data, lambda rank: (rank, str(rank) * 64))
    assert ranks.wait() == [2, 2]
    assert "rank 1 has data with the checksum=1111" in ranks.outputs[0].read_text()


def compare_data(rank: int, sha256: str) -> int:
    try:
        check_same_data(world_of(rank, 2), sha256)
    except ProxlearnError as error:
        print(error)
        return error.exit_code
    return 0


def test_a_folder_that_a_rank_does_not_see_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").write_text("{}")
    ranks = start_ranks(
        tmp_path, 2, look_for_folder, lambda rank: (rank, tmp_path / ("run" if rank == 0 else "absent"))
    )
    assert ranks.wait() == [2, 2]
    assert "rank 1, on " in ranks.outputs[0].read_text()
    assert "does not see the run folder" in ranks.outputs[0].read_text()


def look_for_folder(rank: int, folder: Path) -> int:
    import proxlearn.distributed.agreement as agreement

    agreement.VISIBLE_SECONDS = 0.3
    try:
        check_visible(world_of(rank, 2), folder)
    except ProxlearnError as error:
        print(error)
        return error.exit_code
    return 0


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
    with pytest.raises(InputError, match="names no rank of a world"):
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


PAGE_SCRIPT = Path(__file__).parents[2] / "scripts" / "ranks_page.py"


def test_the_page_is_what_the_script_writes_and_the_formula_is_what_was_counted() -> None:
    script = runpy.run_path(str(PAGE_SCRIPT))
    assert script["PAGE"].read_text() == script["page"]()
    for row in script["rows_of"](script["MEASURED"]):
        if row["bytes_per_step"]:
            sweeps = float(row["rounds_per_step"]) + 1
            assert float(row["bytes_per_step"]) == pytest.approx(script["bytes_per_step"](2, sweeps), rel=0.02)
