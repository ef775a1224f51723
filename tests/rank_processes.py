"""Processes that are the ranks of a world, as torchrun and srun start them."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from small_runs import FORKSERVER


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _run_rank(environment: Mapping[str, str], output: Path, work: Callable[..., int], args: Sequence[Any]) -> None:
    """Run as one rank, with the streams in a file, and end the process as the console script does."""
    os.environ |= environment
    with output.open("w", buffering=1) as stream:
        for number in (1, 2):
            os.dup2(stream.fileno(), number)
        sys.stdout = sys.stderr = stream
        try:
            code = work(*args)
        except BaseException:
            traceback.print_exc()
            code = 99
        stream.flush()
        os._exit(code)


def run_command(*args: str) -> int:
    from proxlearn.cli import run

    return run(args[0], list(args[1:]))


@dataclass
class Ranks:
    """Started ranks."""

    processes: list[BaseProcess]
    outputs: list[Path]

    def wait(self, seconds: float = 100.0) -> list[int | None]:
        """Return the exit codes; ranks that do not end are killed."""
        for process in self.processes:
            process.join(seconds)
            if process.is_alive():
                process.kill()
                process.join()
        return [process.exitcode for process in self.processes]

    def lines(self, rank: int) -> list[str]:
        """Return what proxlearn said to the user on stderr, without the notices about compilations."""
        lines = self.outputs[rank].read_text().splitlines()
        return [
            line
            for line in lines
            if line.startswith("proxlearn: ") and "the fused engine" not in line and " -> " not in line
        ]


def start_ranks(
    folder: Path,
    size: int,
    work: Callable[..., int],
    args: Callable[[int], Sequence[Any]],
    environment: Mapping[str, str] | None = None,
) -> Ranks:
    """Start ranks that call work(*args(rank)); ``folder`` receives their output."""
    port, processes, outputs = free_port(), [], []
    for rank in range(size):
        outputs.append(folder / f"rank-{rank}-of-{size}.out")
        variables = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        variables |= {"OMP_NUM_THREADS": "1"} | dict(environment or {})
        process = FORKSERVER.Process(target=_run_rank, args=(variables, outputs[-1], work, args(rank)))
        process.start()
        processes.append(process)
    return Ranks(processes, outputs)


def start_command(
    folder: Path,
    size: int,
    *args: str,
    own: dict[int, tuple[str, ...]] | None = None,
    timeout: str = "60",
    plots: bool = False,
) -> Ranks:
    """Start `proxlearn ARGS` on ranks; ``own`` adds arguments of single ranks. Plots take seconds to draw."""
    environment, work = {"PROXLEARN_RANK_TIMEOUT": timeout}, run_command if plots else run_without_plots
    return start_ranks(folder, size, work, lambda rank: (*args, *(own or {}).get(rank, ())), environment)


def run_without_plots(*args: str) -> int:
    from proxlearn.views.run import run_views

    run_views.render_run = lambda folder: []
    return run_command(*args)
