"""Checkpoints come back in every bit, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxlearn.core.cloud import PointCloud
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint import Checkpoint, InvalidCheckpoint

once_per_folder = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


def example(dtype: torch.dtype = torch.float32) -> Checkpoint:
    generator = torch.Generator().manual_seed(5)
    theta = torch.randn(7, 3, generator=generator, dtype=dtype)
    return Checkpoint(PointCloud(theta, theta[:, 0] - 700, step=12), generator.get_state(), unmet=3, switched_at=4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    saved = example(dtype)
    found = checkpoint.load(checkpoint.save(tmp_path, saved))
    assert torch.equal(found.cloud.theta, saved.cloud.theta)
    assert torch.equal(found.cloud.log_rho, saved.cloud.log_rho)
    assert torch.equal(found.generator, saved.generator)
    assert (found.cloud.step, found.unmet, found.switched_at) == (12, 3, 4)
    assert [path.name for path in tmp_path.iterdir()] == ["cloud-000000012.safetensors"]


@given(position=st.integers(0, 10**6), flip=st.integers(1, 255))
@once_per_folder
def test_any_flipped_byte_is_noticed(tmp_path: Path, position: int, flip: int) -> None:
    path = checkpoint.save(tmp_path, example())
    blob = bytearray(path.read_bytes())
    blob[position % len(blob)] ^= flip
    path.write_bytes(blob)
    with pytest.raises(InvalidCheckpoint):
        checkpoint.load(path)


@given(length=st.integers(0, 10**6))
@once_per_folder
def test_any_truncation_is_noticed(tmp_path: Path, length: int) -> None:
    path = checkpoint.save(tmp_path, example())
    blob = path.read_bytes()
    path.write_bytes(blob[: length % len(blob)])
    with pytest.raises(InvalidCheckpoint):
        checkpoint.load(path)


def test_the_newest_valid_one_wins(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, example())
    (tmp_path / "cloud-000000013.safetensors").write_bytes(b"not a checkpoint")
    skipped = []
    found = checkpoint.newest_valid(tmp_path, lambda path, why: skipped.append(path.name))
    assert found is not None
    assert found.cloud.step == 12
    assert skipped == ["cloud-000000013.safetensors"]
