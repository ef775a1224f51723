"""The rank of this process and the number of ranks, read from the environment variables of torchrun and srun.

This module does not import torch, so that a command without ranks does not wait for the import.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from proxlearn.errors import InputError

TIMEOUT_VARIABLE = "PROXLEARN_RANK_TIMEOUT"
"""Name of the environment variable that sets the time in seconds after which a silent rank is considered lost."""
DEFAULT_TIMEOUT = 600.0
FIRST_PORT, PORTS = 20_000, 30_000
"""First port and number of the ports that runs can use under srun; torchrun chooses a port itself."""


@dataclass(frozen=True)
class Launch:
    """The rank of this process, the number of ranks, and the address of rank 0."""

    rank: int
    size: int
    address: str
    """The host name of rank 0, which listens on ``port``."""
    port: int


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Return the Launch of this process, or None if this process is not a rank.

    Raise InputError if the environment variables of torchrun or srun are inconsistent.

    A process started by torchrun is a rank even if it is the only one. A single task of srun is not a rank, because
    sweeps start such tasks.
    """
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= environment.keys():
        return _checked(environment, "RANK", "WORLD_SIZE", environment["MASTER_ADDR"], environment["MASTER_PORT"])
    # SLURM_STEP_NUM_TASKS is set only by srun; SLURM_NTASKS is also set in a batch script, which is one process.
    if environment.get("SLURM_STEP_NUM_TASKS", "1") == "1" or "SLURM_PROCID" not in environment:
        return None
    address = environment.get("MASTER_ADDR") or _first_node(environment)
    port = environment.get("MASTER_PORT") or str(_port_of_step(environment))
    return _checked(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", address, port)


def read_timeout(environment: Mapping[str, str] = os.environ) -> float:
    """Return the time in seconds after which a rank that does not answer is considered lost."""
    text = environment.get(TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 1 <= seconds <= 10**6:
        problem = f"{TIMEOUT_VARIABLE}={text} is not a number of seconds from 1 to 1000000"
        raise InputError(problem, "set it to such a number, or unset the variable")
    return seconds


def _checked(environment: Mapping[str, str], rank_key: str, size_key: str, address: str, port: str) -> Launch:
    values = {rank_key: environment[rank_key], size_key: environment[size_key], "MASTER_PORT": port}
    numbers = [int(text) if re.fullmatch(r"\d{1,9}", text) else -1 for text in values.values()]
    rank, size, checked_port = numbers
    if min(numbers) < 0 or not rank < size or not 0 < checked_port < 2**16 or not address:
        given = " ".join(f"{key}={value}" for key, value in values.items())
        raise InputError(
            f"these environment variables do not describe a rank: {given}",
            "start the ranks with torchrun or srun",
        )
    return Launch(rank, size, address, checked_port)


def _first_node(environment: Mapping[str, str]) -> str:
    """Return the host of the first task of a SLURM step: the first one in a list such as ``node[03-07,9],gpu1``."""
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    match = re.match(r"([^\[,]+)(?:\[(\d+))?", nodes)
    name = "".join(part or "" for part in match.groups()) if match else ""
    try:
        socket.getaddrinfo(name, None)
        return name
    except OSError:
        # A node name need not be a host name, for example if one machine simulates a cluster. The address of the
        # machine on which srun was started is used instead.
        return environment.get("SLURM_LAUNCH_NODE_IPADDR") or name


def _port_of_step(environment: Mapping[str, str]) -> int:
    """Return a port that depends on the SLURM job and step, so that two runs on one node use different ports."""
    numbers = [environment.get(key, "0") for key in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    job, step = (int(text) if text.isdecimal() else 0 for text in numbers)
    return FIRST_PORT + (job * 101 + step) % PORTS
