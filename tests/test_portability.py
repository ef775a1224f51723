"""The package can be imported and trains on a system that lacks what Windows lacks (simulated)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from proxlearn import portability

MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
FUNCTIONS = (
    *("fchmod", "fchown", "geteuid", "getuid", "mkfifo", "pread", "pwrite", "register_at_fork"),
    *("sched_getaffinity", "set_blocking", "statvfs", "sysconf"),
)
FLAGS = ("O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK")
SIGNALS = ("SIGKILL", "SIGHUP", "SIGALRM", "pthread_sigmask")

WINDOWS = f"""
import ctypes, importlib, os, pkgutil, signal, sys, types
# Packages of others know Windows themselves: they are imported before anything is removed.
import filelock, hydra, matplotlib.pyplot, mlflow, numba.np.ufunc.parallel, pandas, scipy.spatial, sklearn.datasets
import PIL.Image, platformdirs.unix, safetensors.torch, tensorboard, torch, torch.utils.tensorboard, tqdm, wandb
for name in {MODULES}:
    sys.modules[name] = None
for name in {FUNCTIONS + FLAGS}:
    delattr(os, name)
for name in {SIGNALS}:
    delattr(signal, name)

def GlobalMemoryStatusEx(reference):
    reference._obj.total = 2**34

ctypes.windll = types.SimpleNamespace(kernel32=types.SimpleNamespace(GlobalMemoryStatusEx=GlobalMemoryStatusEx))
import proxlearn
"""
IMPORT_ALL = """
for module in pkgutil.walk_packages(proxlearn.__path__, "proxlearn."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sum(name.startswith("proxlearn.") for name in sys.modules))
"""
TRAIN = """
from proxlearn.cli import main
words = ["dataset=sine", "N=5", "steps=2", "dataset.points=10", "threads=1", "hydra.run.dir=run"]
sys.exit(main(["train", *words]) or main(["resume", "run", "--steps", "4"]) or main(["plot", "run"]))
"""


def run_on_windows(code: str, folder: Path) -> str:
    done = subprocess.run([sys.executable, "-c", WINDOWS + code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_is_imported_without_posix(tmp_path: Path) -> None:
    package = Path(portability.__file__).parent
    assert int(run_on_windows(IMPORT_ALL, tmp_path)) >= sum(1 for _ in package.rglob("*.py")) / 2


def test_a_run_is_trained_resumed_and_drawn_without_posix(tmp_path: Path) -> None:
    assert "finished at step 4" in run_on_windows(TRAIN, tmp_path)
    assert (tmp_path / "run" / "risk.png").exists()
    assert not (tmp_path / "run" / ".lock").exists()


def test_the_memory_is_that_of_the_windows_interface_where_there_is_no_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(reference: object) -> None:
        status = reference._obj  # type: ignore[attr-defined]
        # The documented size of MEMORYSTATUSEX; the call fails where the length is another.
        assert status.length == ctypes.sizeof(status) == 64
        status.total = 12 * 2**30

    windll = types.SimpleNamespace(kernel32=types.SimpleNamespace(GlobalMemoryStatusEx=answer))
    monkeypatch.setattr(ctypes, "windll", windll, raising=False)
    monkeypatch.delattr(os, "sysconf")
    assert portability.physical_memory() == 12 * 2**30


def test_the_memory_of_this_machine_holds_this_process() -> None:
    assert 2**20 < portability.peak_memory() < portability.physical_memory()


def test_the_peak_of_memory_is_not_a_number_where_the_system_does_not_report_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "resource", None)
    assert portability.peak_memory() != portability.peak_memory()
