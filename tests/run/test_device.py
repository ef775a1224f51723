"""Memory is checked for the actual computation on the actual device, and the remedies work at that size."""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch

from proxlearn.errors import InputError, RunError
from proxlearn.memory import out_of_memory_as_run_error
from proxlearn.run import device
from proxlearn.run.device import check_memory
from tests.conftest import config_of

GIB = 2**30


@pytest.fixture(autouse=True)
def sixteen_gib(monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated machine of 16 GiB with a GPU of 8 GiB."""
    monkeypatch.setattr(os, "sysconf", lambda name: 2**22 if name == "SC_PHYS_PAGES" else 4096)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (7 * GIB, 8 * GIB))


def refused(*words: str) -> str:
    with pytest.raises(InputError, match="N x N kernel") as error:
        check_memory(config_of(*words))
    return str(error.value)


def test_only_proximal_weights_need_a_kernel() -> None:
    for weights in ("fisher_rao", "uniform"):
        check_memory(config_of("N=100000", f"weights={weights}", "compile=off"))
    check_memory(config_of("N=100000"))
    assert "16 GiB" in refused("N=100000", "compile=off", "kernel=dense")


def test_the_eager_engine_refuses_only_what_stores_a_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "this GPU has 8 GiB" in refused("N=25000", "device=cuda", "kernel=dense")
    assert "kernel=auto" in refused("N=25000", "device=cuda", "kernel=dense")
    assert "kernel" not in refused("N=25000", "device=cuda", "solver=literal").partition("; ")[2]
    find = importlib.util.find_spec
    monkeypatch.setattr(device.importlib.util, "find_spec", lambda name: None if name == "numba" else find(name))
    refused("N=100000", "kernel=dense")
    for kernel in ("auto", "log"):
        check_memory(config_of("N=100000", f"kernel={kernel}"))
        check_memory(config_of("N=100000", f"kernel={kernel}", "device=cuda"))


def test_torchs_out_of_memory_errors_become_one_line() -> None:
    with pytest.raises(RunError, match="choose a smaller N"), out_of_memory_as_run_error():
        torch.empty(2**50)
    with pytest.raises(RunError), out_of_memory_as_run_error():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(RuntimeError, match="another"), out_of_memory_as_run_error():
        raise RuntimeError("another")
