"""Checks that all ranks run the same program on the same config and data, and can access the same run folder."""

from __future__ import annotations

import contextlib
import os
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
from proxlearn.memory import VARIABLE as MEMORY_VARIABLE

VISIBLE_SECONDS = 10.0
"""Time in seconds within which a file of rank 0 must become visible to the other ranks; network file systems cache the
content of folders, so a new file may not be visible at once.
"""
T = TypeVar("T")


def agreed(world: World, work: Callable[[], T]) -> T:
    """Call ``work`` and return its result; if ``work`` fails on any rank, raise the error on all ranks.

    Every rank must call this function.
    """
    try:
        result = work()
    except SharedError:
        raise
    except ProxlearnError as error:
        world.gather(error=error)
        raise AssertionError("gather should have raised the error") from error
    world.gather()
    return result


def check_same_program(world: World) -> None:
    """Raise an error on all ranks if their software versions, processors, threads or memory limits differ.

    The steps are compiled for the processor, and the last bits of their results depend on it and on the limit of the
    memory. If these bits differed between ranks, the ranks could take different branches of the program.
    """
    # These imports are here because Numba takes a second to import.
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
        MEMORY_VARIABLE: os.environ.get(MEMORY_VARIABLE, "unset"),
    }
    remedy = f"use the same processor, versions, number of threads and {MEMORY_VARIABLE} on all machines"
    _require_equal(world, own, remedy)


def check_same_config(world: World, config: TrainConfig, folder: Path) -> None:
    """Raise an error on all ranks if their settings or run folders differ, or if N is too small for all ranks."""
    settings = flat_settings(config_values(config)) | {"hydra.run.dir": str(folder)}
    _require_equal(world, settings, "run the same command in the same folder on all ranks")
    blocks = shard_blocks(config.N)
    if world.size > blocks:
        limit = "1 rank" if blocks == 1 else f"{blocks} ranks"
        problem = f"N={config.N} can be divided among at most {limit}, but there are {world.size} ranks"
        raise SharedError(problem, "start fewer ranks, or choose a larger N", InputError.exit_code)


def check_same_data(world: World, sha256: str) -> None:
    """Raise an error on all ranks if they have read different data."""
    _require_equal(world, {"the data checksum": sha256[:16]}, "use the same files on all ranks")


def check_visible(world: World, folder: Path) -> None:
    """Raise an error on all ranks if one of them cannot access the run folder, which rank 0 has locked."""
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
            problem = f"rank {rank}, on {host}, cannot access the run folder {folder} of rank 0"
            remedy = "choose a folder on a file system that all machines share, with hydra.run.dir=FOLDER"
            raise SharedError(problem, remedy, InputError.exit_code)


def _require_equal(world: World, own: Mapping[str, Any], remedy: str) -> None:
    """Raise an error on all ranks if the values ``own`` of a rank differ from those of rank 0.

    The error names the first value that differs.
    """
    facts = world.gather(own)
    for rank, other in enumerate(facts):
        for key in dict.fromkeys((*facts[0], *other)):
            if facts[0].get(key) != other.get(key):
                problem = f"rank {rank} has {key}={other.get(key)}, but rank 0 has {key}={facts[0].get(key)}"
                raise SharedError(problem, remedy, InputError.exit_code)
