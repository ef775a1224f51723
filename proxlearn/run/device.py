"""Selection of the device of a run, and memory checks that precede the creation of any file."""

from __future__ import annotations

import importlib.util

from proxlearn.config.schema import TrainConfig
from proxlearn.errors import InputError
from proxlearn.memory import device_memory, kernel_bytes, largest_N

OUTPUT_COPIES = 4
"""Number of N x rows matrices that are in memory at the same time.

They contain the outputs of the neurons, and the gradient with respect to the parameters of the neurons.
"""


def resolve_device(name: str) -> str:
    """Return the name of the device for torch; ``auto`` becomes cuda if it is available, and cpu otherwise.

    Raise InputError if cuda is requested but not available. torch is imported only if it is needed.
    """
    if name == "cpu":
        return name
    import torch

    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise InputError(
            "device=cuda is not possible because torch finds no CUDA device",
            "use device=cpu, or leave out device.device=cuda",
        )
    return "cuda" if has_cuda else "cpu"


def check_outputs_memory(config: TrainConfig, rows: int, classes: int) -> None:
    """Raise InputError if the outputs of all particles for ``rows`` rows do not fit in memory.

    With more than two ``classes``, a particle has one output per class.
    """
    device = resolve_device(config.device.device)
    needed = OUTPUT_COPIES * _itemsize(config) * config.N * rows * (classes if classes > 2 else 1)
    if needed > device_memory(device):
        raise InputError(
            f"N={config.N} and {rows} training rows need about {needed / 2**30:.0f} GiB, but {_memory_text(device)}",
            "choose a smaller N or fewer rows",
        )


def check_memory(config: TrainConfig) -> None:
    """Raise InputError if the run needs an N x N kernel that does not fit in memory.

    With kernel=auto, a large kernel is not stored as an N x N matrix, except with solver=literal. With kernel=log, the
    eager engine computes the kernel in tiles.
    """
    if config.weights != "proximal":
        return
    device = resolve_device(config.device.device)
    eager = config.compile == "off" or device != "cpu" or importlib.util.find_spec("numba") is None
    tiled = config.kernel == "auto" or (config.kernel == "log" and eager)
    if tiled and config.solver != "literal":
        return
    available = device_memory(device)
    needed = kernel_bytes(config.N, _itemsize(config))
    if needed > available:
        remedy = f"choose N={largest_N(available, _itemsize(config))} or less"
        if config.solver != "literal":
            remedy += ", or use weights=uniform"
            if eager:
                remedy += ", or use kernel=auto"
            else:
                remedy += ", or use kernel=auto with an epsilon so small that few particles are neighbours"
        raise InputError(
            f"N={config.N} needs about {needed / 2**30:.0f} GiB for its N x N kernel, but {_memory_text(device)}",
            remedy,
        )


def _itemsize(config: TrainConfig) -> int:
    """Return the number of bytes per value in the highest precision of the run."""
    return 8 if "float64" in (config.device.dtype, config.device.fallback_dtype) else 4


def _memory_text(device: str) -> str:
    return f"this {'machine' if device == 'cpu' else 'GPU'} has {device_memory(device) / 2**30:.0f} GiB"
