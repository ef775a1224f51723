"""Where a run computes: the device, and whether what it needs fits there; asked before anything is created."""

from __future__ import annotations

import os

from proxlearn.errors import InputError
from proxlearn.schema import TrainConfig

KERNEL_COPIES = 4
"""N x N matrices alive at once: the costs, the kernel, and a round's two temporaries."""

OUTPUT_COPIES = 4
"""N x rows matrices alive at once: what the neurons answer, and the way back to their parameters."""


def resolve_device(name: str) -> str:
    """The torch name of a device; ``auto`` is cuda where there is one. torch is imported only if it must be asked."""
    if name == "cpu":
        return name
    import torch

    present = torch.cuda.is_available()
    if name == "cuda" and not present:
        raise InputError("device=cuda, but torch finds no CUDA device here", "use device=cpu")
    return "cuda" if present else "cpu"


def check_outputs_memory(config: TrainConfig, rows: int, classes: int) -> None:
    """Refuse data that cannot fit beside the cloud: each particle answers for each row (and class)."""
    needed = OUTPUT_COPIES * _bytes(config) * config.N * rows * (classes if classes > 2 else 1)
    if resolve_device(config.device.device) == "cpu" and needed > _physical():
        raise InputError(
            f"N={config.N} particles and {rows} rows need about {needed / 2**30:.0f} GiB, and this machine has "
            f"{_physical() / 2**30:.0f} GiB",
            "choose a smaller N, or fewer rows",
        )


def check_memory(config: TrainConfig) -> None:
    """Refuse a kernel that cannot fit, before the machine starts to swap; kernel=auto forms none that is large."""
    fused = config.kernel == "auto" and config.compile != "off" and config.solver != "literal"
    if config.weights == "uniform" or fused or resolve_device(config.device.device) != "cpu":
        return
    needed = KERNEL_COPIES * _bytes(config) * config.N**2
    if needed > _physical():
        raise InputError(
            f"N={config.N} needs about {needed / 2**30:.0f} GiB for its N x N kernel, and this machine has "
            f"{_physical() / 2**30:.0f} GiB",
            "choose a smaller N, kernel=auto, or weights=uniform",
        )


def _bytes(config: TrainConfig) -> int:
    """Of one number in the precision that needs most."""
    return 8 if "float64" in (config.device.dtype, config.device.fallback_dtype) else 4


def _physical() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
