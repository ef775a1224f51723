"""Checks, before anything is written, that all ranks have the same program, config and data, and see the run folder."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from proxlearn import __version__
from proxlearn.config.run_name import flat_settings
from proxlearn.config.schema import TrainConfig, config_values
from proxlearn.core.sharding import shard_blocks
from proxlearn.core.step import REVISION
from proxlearn.distributed.world import SharedError, World
from proxlearn.errors import InputError, ProxlearnError

VISIBLE_SECONDS = 10.0
"""Seconds to wait until a file written by rank 0 is visible to the other ranks, because network file systems cache
folders.
"""
T = TypeVar("T")


def agreed(world: World, work: Callable[[], T]) -> T:
    """Return the result of work that every rank does; if it fails on one rank, raise its error on all ranks."""
    try:
        result = work()
    except SharedError:
        raise
    except ProxlearnError as error:
        world.gather(error=error)
        raise AssertionError("gather raises the error") from error
    world.gather()
    return result


def check_same_program(world: World) -> None:
    """Raise an error on all ranks if they run different versions, or on processors with different instructions.

    The code is compiled for the processor, and the last bits of its results depend on it; ranks that compute the same
    numbers differently would make different decisions.
    """
    # Imported here, because Numba takes a second to import.
    import llvmlite.binding
    import numba

    own = {
        "proxlearn": f"{__version__}, revision {REVISION}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "numba": numba.__version__,
        "processor": llvmlite.binding.get_host_cpu_name(),
        "threads": torch.get_num_threads(),
    }
    _require_equal(world, own, "install the same versions on machines of one kind, with the same number of threads")


def check_same_config(world: World, config: TrainConfig, folder: Path) -> None:
    """Raise an error on all ranks if they were given different commands, or if there are more ranks than blocks."""
    settings = flat_settings(config_values(config)) | {"hydra.run.dir": str(folder)}
    _require_equal(world, settings, "give all ranks the same command, in the same folder")
    blocks = shard_blocks(config.N)
    if world.size > blocks:
        problem = f"N={config.N} particles have {blocks} blocks, which is less than {world.size} ranks"
        raise SharedError(problem, f"use at most {blocks} ranks, or a larger N", InputError.exit_code)


def check_same_data(world: World, sha256: str) -> None:
    """Raise an error on all ranks if they have read different data."""
    _require_equal(world, {"data with the checksum": sha256[:16]}, "give all ranks the same files")


def check_visible(world: World, folder: Path) -> None:
    """Raise an error on all ranks if one of them does not see the run folder, which rank 0 has locked."""
    lock = folder / ".lock"
    content = world.share(lock.read_bytes() if world.rank == 0 else None)
    end = time.monotonic() + VISIBLE_SECONDS
    visible = False
    while not visible and time.monotonic() < end:
        with contextlib.suppress(OSError):
            visible = lock.read_bytes() == content
        if not visible:
            time.sleep(0.1)
    hosts = world.gather(None if visible else platform.node())
    for rank, host in enumerate(hosts):
        if host is not None:
            problem = f"rank {rank}, on {host}, does not see the run folder {folder} of rank 0"
            remedy = "choose a folder on a file system that all machines share, with hydra.run.dir=FOLDER"
            raise SharedError(problem, remedy, InputError.exit_code)


def _require_equal(world: World, own: Mapping[str, Any], remedy: str) -> None:
    """Raise an error on all ranks that names the first value in which a rank differs from rank 0."""
    facts = world.gather(own)
    for rank, other in enumerate(facts):
        for key in dict.fromkeys((*facts[0], *other)):
            if facts[0].get(key) != other.get(key):
                problem = f"rank {rank} has {key}={other.get(key)}, and rank 0 has {key}={facts[0].get(key)}"
                raise SharedError(problem, remedy, InputError.exit_code)
