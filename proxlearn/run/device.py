"""Where a run computes: the device, and whether what it needs fits there; asked before anything is created."""

from __future__ import annotations

import os

from proxlearn.errors import InputError
from proxlearn.schema import TrainConfig

KERNEL_COPIES = 4
"""N x N matrices alive at once: the costs, the kernel, and a round's two temporaries."""


def resolve_device(name: str) -> str:
    """The torch name of a device; ``auto`` is cuda where there is one. torch is imported only if it must be asked."""
    if name == "cpu":
        return name
    import torch

    present = torch.cuda.is_available()
    if name == "cuda" and not present:
        raise InputError("device=cuda, but torch finds no CUDA device here", "use device=cpu")
    return "cuda" if present else "cpu"


def check_memory(config: TrainConfig) -> None:
    """Refuse a kernel that cannot fit, before the machine starts to swap."""
    if config.weights == "uniform" or resolve_device(config.device.device) != "cpu":
        return
    bytes_per_entry = 8 if config.device.dtype == "float64" else 4
    needed = KERNEL_COPIES * bytes_per_entry * config.N**2
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > physical:
        raise InputError(
            f"N={config.N} needs about {needed / 2**30:.0f} GiB for its N x N kernel, and this machine has "
            f"{physical / 2**30:.0f} GiB",
            "choose a smaller N, or weights=uniform",
        )
