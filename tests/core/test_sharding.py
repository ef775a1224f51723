"""Division of a cloud: the blocks, and sums that do not depend on how many ranks have them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_processes import free_port, start_ranks

from proxlearn.config.schema import TrainConfig
from proxlearn.core import sharding
from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused import sharded_step
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.random_numbers import fill_normal
from proxlearn.core.fused.sharded_step import ShardedStep
from proxlearn.core.hyper import Hyper
from proxlearn.core.sharding import (
    LEAST_ROWS,
    MOST_BLOCKS,
    Exchange,
    Lone,
    Shards,
    add_in_place,
    shard_blocks,
    undivided,
)
from proxlearn.distributed.rank_environment import Launch
from proxlearn.distributed.world import World
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.iterate import iterate
from tests.conftest import config_of, paper_cloud, randomness


class Threads:
    """Ranks that are threads of this process, for laws about many worlds; processes have tests of their own."""

    def __init__(self, size: int) -> None:
        self.size, self.messages = size, [None] * size
        self.barrier = threading.Barrier(size)

    def run(self, work: Callable[[Rank], object]) -> list:
        results: list = [None] * self.size

        def start(rank: int) -> None:
            results[rank] = work(Rank(self, rank))

        threads = [threading.Thread(target=start, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return results


class Rank:
    local_size = 1

    def __init__(self, threads: Threads, rank: int) -> None:
        self.threads, self.rank, self.size = threads, rank, threads.size

    def all_gather(self, part: np.ndarray) -> np.ndarray:
        self.threads.messages[self.rank] = part.copy()
        self.threads.barrier.wait()
        stacked = np.stack(self.threads.messages)
        self.threads.barrier.wait()
        return stacked

    def all_to_all(self, parts: np.ndarray) -> np.ndarray:
        return self.all_gather(parts)[:, self.rank]

    def stop_request(self) -> int:
        return 0

    def interrupt(self, request: int) -> None:
        raise AssertionError


@given(st.integers(1, 10**6))
def test_the_number_of_blocks_is_a_power_of_two_and_leaves_rows_for_each(N: int) -> None:
    blocks = shard_blocks(N)
    assert blocks & (blocks - 1) == 0
    assert blocks <= MOST_BLOCKS
    assert blocks == 1 or N // blocks >= LEAST_ROWS


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 9), st.integers(0, 2**32 - 1), st.sampled_from([1, 100, 5000, 2**20]))
def test_the_ranks_divide_the_particles_and_their_sums_do_not_depend_on_the_ranks(
    N: int, size: int, seed: int, message_bytes: int
) -> None:
    size = min(size, shard_blocks(N))
    values = np.random.default_rng(seed).normal(size=(N, 3)).astype(np.float32)

    def work(rank: Rank) -> tuple:
        shards = Shards(N, rank)
        parts = [values[rows].sum(axis=0) for rows in shards.block_rows]
        return shards.rows, shards.sum_blocks(parts), shards.gather_rows(values[shards.rows])

    alone = undivided(N)
    total = alone.sum_blocks([values[rows].sum(axis=0) for rows in alone.block_rows])
    with pytest.MonkeyPatch.context() as patch:
        # A cloud is gathered in one message or in many.
        patch.setattr(sharding, "MESSAGE_BYTES", max(message_bytes, 12 * N // 50))
        results = Threads(size).run(work)
    covered = [row for rows, _, _ in results for row in range(rows.start, rows.stop)]
    assert covered == list(range(N))
    for _, summed, gathered in results:
        assert np.array_equal(summed, total)
        assert np.array_equal(gathered, values)
    np.testing.assert_allclose(total, values.astype(np.float64).sum(axis=0), atol=1e-3)


@pytest.mark.parametrize("blocks", [1, 2, 8, 64])
def test_the_tree_in_memory_is_that_of_the_nodes(blocks: int) -> None:
    parts = np.random.default_rng(0).normal(size=(blocks, 5))
    shards = undivided(blocks * LEAST_ROWS)
    assert shards.blocks == blocks
    assert np.array_equal(shards.sum_blocks(parts), add_in_place(parts.copy()))


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 300), st.sampled_from([np.float32, np.float64]))
def test_a_part_of_the_noise_is_a_part_of_the_whole(start: int, count: int, dtype: type) -> None:
    whole, part = np.empty(start + count, dtype), np.empty(count, dtype)
    fill_normal((3, 5), whole)
    fill_normal((3, 5), part, start)
    assert np.array_equal(part, whole[start:])


def test_the_ranks_of_a_machine_share_its_free_memory(standardised: Risk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXLEARN_MEMORY", "1GB")
    hyper = Hyper(beta=1.0, h=1e-3, epsilon=2.0)
    rank = Rank(Threads(1), 0)
    rank.local_size = 4
    alone, one_of_four = (ShardedStep(standardised, hyper, 64, 1, Shards(64, each)) for each in (Lone(), rank))
    assert alone._free_memory() == 10**9
    assert one_of_four._free_memory() == 10**9 // 4


def test_a_divided_step_agrees_with_the_undivided_one_to_rounding(standardised: Risk) -> None:
    N, generator = 200, torch.Generator().manual_seed(0)
    hyper = Hyper(beta=1.0, h=1e-3, epsilon=2.0, delta=1e-12, L=200, tolerance="log")
    cloud = paper_cloud(standardised, N, generator)
    noise, z0 = randomness(cloud, generator)
    after, info = FusedStep(standardised, hyper, N, 1)(cloud, noise, z0)
    assert info is not None
    assert info.solution.rounds > 1

    def work(rank: Rank) -> PointCloud:
        shards = Shards(N, rank)
        return ShardedStep(standardised, hyper, N, 1, shards)(cloud, noise[shards.rows], z0)[0]

    for divided in Threads(3).run(work):
        torch.testing.assert_close(divided.theta, after.theta, rtol=0, atol=1e-12)
        torch.testing.assert_close(divided.log_rho, after.log_rho, rtol=0, atol=1e-10)


SELECTED = ("beta=1e4", "h=0.1", "epsilon=0.5", "init_scale=1.0")
"""What the selection of recipe=tuned would choose, which is not tested here."""


def digests(exchange: Exchange, configs: dict[str, TrainConfig]) -> str:
    """Return the checksums of the last clouds of some runs."""
    lines = []
    for name, config in configs.items():
        experiment = build_experiment(config)
        checkpoint, generator = first_checkpoint(experiment), torch.Generator()
        generator.set_state(checkpoint.generator)
        cloud, shards = checkpoint.cloud, Shards(config.N, exchange)
        options = {"until": experiment.steps, "engine": "sharded", "threads": 1, "shards": shards}
        for after, _ in iterate(experiment.source, cloud, experiment.hyper, generator=generator, **options):
            cloud = after
        sha256 = hashlib.sha256(cloud.theta.numpy().tobytes() + cloud.log_rho.numpy().tobytes()).hexdigest()
        lines.append(f"{name} {sha256}")
    return "\n".join(lines)


def write_digests(rank: int, ports: dict[int, int], configs: dict[str, TrainConfig], folder: Path) -> int:
    """Write the checksums of every world that this rank belongs to; the worlds use the same processes in turn."""
    for size, port in ports.items():
        if rank < size:
            world = World(Launch(rank, size, "127.0.0.1", port), 300)
            (folder / f"{rank}-of-{size}").write_text(digests(world, configs))
            dist.destroy_process_group()
    return 0


def check_same_bits(tmp_path: Path, steps: int) -> None:
    configs = {}
    for dataset in ("wdbc", "banana", "diabetes", "twonorm", "shd", "sine"):
        for recipe, selected in (("paper", ()), ("tuned", SELECTED)):
            for dtype in ("float32", "float64"):
                words = (f"dataset={dataset}", f"recipe={recipe}", f"device.dtype={dtype}", "N=64", f"steps={steps}")
                configs[f"{dataset} {recipe} {dtype}"] = config_of(*words, *selected)
    # First, so that the passes are compiled once, and not by three processes at the same time.
    alone = digests(Lone(), configs)
    ports = {2: free_port(), 3: free_port()}
    ranks = start_ranks(tmp_path, 3, write_digests, lambda rank: (rank, ports, configs, tmp_path))
    assert ranks.wait(600) == [0] * 3, ranks.outputs[0].read_text()
    for size in ports:
        for rank in range(size):
            assert (tmp_path / f"{rank}-of-{size}").read_text() == alone


def test_one_two_and_three_ranks_have_the_same_bits(paper_files: Path, tmp_path: Path) -> None:
    check_same_bits(tmp_path, 10)


@pytest.mark.slow
def test_one_two_and_three_ranks_have_the_same_bits_after_100_steps(paper_files: Path, tmp_path: Path) -> None:
    check_same_bits(tmp_path, 100)


def test_a_step_that_frees_the_memory_of_its_drift_has_the_same_bits(
    wdbc: Risk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lists of saturated rows are freed before the proximal step of a large cloud."""
    N, problem, hyper = 64, wdbc.to("cpu", torch.float32), Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=1e-3, L=300)
    start = paper_cloud(problem, N, torch.Generator().manual_seed(0)).to("cpu", torch.float32)

    def clouds() -> list[PointCloud]:
        generator, cloud, after = torch.Generator().manual_seed(1), start, []
        step = ShardedStep(problem, hyper, N, 1, undivided(N))
        for _ in range(3):
            cloud, info = step(cloud, *randomness(cloud, generator))
            assert info is not None
            after.append(cloud)
        signs = [part.signs.size for part in step.drift.parts]  # type: ignore[attr-defined]
        assert any(signs) == (sharded_step.MOST_DENSE > N)
        return after

    kept = clouds()
    monkeypatch.setattr(sharded_step, "MOST_DENSE", N - 1)
    for before, after in zip(kept, clouds(), strict=True):
        assert torch.equal(before.theta, after.theta)
        assert torch.equal(before.log_rho, after.log_rho)
