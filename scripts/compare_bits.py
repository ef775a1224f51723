"""Compare trained clouds bit for bit with the clouds of an earlier revision, on this machine.

Both source trees train the same short runs in separate processes with one thread: every dataset that is available on
this machine, with recipe=paper and recipe=tuned, with the fused and the eager engine, and in float32 and float64. The
exit code is 1 if any cloud differs. The bits also depend on the processor, so the script compares two trees on one
machine and is not part of `make test`.
"""

from __future__ import annotations

import argparse
import io
import itertools
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

from proxlearn.data import dataset_files, registry

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ("paper", "tuned")
ENGINES = {"fused": "compile=auto", "eager": "compile=off"}
DTYPES = ("float32", "float64")
HEADER = f"{'dataset':10}{'recipe':8}{'engine':8}{'dtype':10}{'seconds':>8}  clouds"

# -I and -S exclude PYTHONPATH and installed packages, in particular an editable installation of another tree.
# Dependencies are imported from the folders that are passed; the package and its configs must come from the tree.
TRAIN_IN_TREE = """
import importlib.util, os, pathlib, runpy, sys
tree, folders, *words = sys.argv[1:]
sys.path[:0] = [tree]
sys.path += folders.split(os.pathsep)
import proxlearn
configs = importlib.util.find_spec("proxlearn.configs")
for origin in [proxlearn.__file__, *(configs.submodule_search_locations if configs else [])]:
    if not pathlib.Path(origin).resolve().is_relative_to(tree):
        sys.exit(f"{origin} does not belong to {tree}")
sys.argv = ["proxlearn", "train", *words]
runpy.run_module("proxlearn", run_name="__main__", alter_sys=True)
"""


class RunFailed(Exception):
    """Raised if a run did not store a cloud; the message is the last line of its output."""


@dataclass(frozen=True)
class Case:
    """The settings of one run, which is trained with both source trees."""

    dataset: str
    recipe: str
    engine: str
    dtype: str

    def words(self, steps: int, N: int | None = None) -> list[str]:
        """Return the command-line arguments of `proxlearn train` for this case."""
        words = [f"dataset={self.dataset}", f"recipe={self.recipe}", ENGINES[self.engine], f"device.dtype={self.dtype}"]
        return [*words, f"steps={steps}", "threads=1", *([] if N is None else [f"N={N}"])]


@dataclass(frozen=True)
class Cloud:
    """The newest cloud in a run folder, and the exit code of the run."""

    exit_code: int
    step: int
    theta: np.ndarray
    log_rho: np.ndarray


LAST_OF_0_1 = "a0366d668ad79623d1dd1248847f555fb4d03e59"
"""The last commit before the restructuring of version 0.2; it is not given as a tag, because a clone may lack tags."""


def export_tree(revision: str, folder: Path) -> None:
    """Write the package and the configs of a git revision into ``folder``, without changing the working tree."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision, "proxlearn", "configs"]
    archive = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")


def train(tree: Path, words: Sequence[str], folder: Path) -> Cloud:
    """Train a run with the package in ``tree``, write its output into ``folder``, and return its newest cloud."""
    dependencies = os.pathsep.join(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    python = [sys.executable, "-I", "-S", "-c", TRAIN_IN_TREE, str(tree.resolve()), dependencies]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    folder.mkdir(parents=True)
    done = subprocess.run(
        [*python, *words, f"hydra.run.dir={folder / 'run'}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    checkpoints = sorted((folder / "run" / "checkpoints").glob("cloud-*.safetensors"))
    if not checkpoints:
        raise RunFailed((done.stderr or done.stdout).strip().rpartition("\n")[2] or f"exit code {done.returncode}")
    with safe_open(checkpoints[-1], framework="np") as tensors:
        step = int(checkpoints[-1].stem.removeprefix("cloud-"))
        return Cloud(done.returncode, step, tensors.get_tensor("theta"), tensors.get_tensor("log_rho"))


def difference(first: Cloud, second: Cloud) -> str | None:
    """Return a description of the first difference between two clouds, or None if they are bit for bit equal."""
    for what in ("exit_code", "step"):
        values = getattr(first, what), getattr(second, what)
        if values[0] != values[1]:
            return f"{what.replace('_', ' ')} {values[0]} and {values[1]}"
    for name in ("theta", "log_rho"):
        a, b = getattr(first, name), getattr(second, name)
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            return f"{name} is {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        if a.tobytes() != b.tobytes():
            bits = np.dtype(f"u{a.itemsize}")
            unequal = np.count_nonzero(a.view(bits) != b.view(bits))
            with np.errstate(invalid="ignore"):
                largest = np.nanmax(np.abs(a - b), initial=0.0)
            return f"{name}: {unequal} of {a.size} numbers, largest difference {largest:.3g}"
    return None


def available_datasets(tree: Path) -> list[str]:
    """Return the datasets that both source trees contain and whose data file, if there is one, is on this machine."""
    available = []
    for name in registry.LOADERS:
        file = registry.dataset_info(name).file
        present = file is None or dataset_files.find(file) is not None
        if name != "csv" and present and (tree / "configs" / "dataset" / f"{name}.yaml").is_file():
            available.append(name)
    return available


def quadratic_loss(tree: Path) -> list[str]:
    """Return the argument for the quadratic loss, the only loss of version 0.1, or [] if recipe=tuned sets no loss."""
    recipe = tree / "configs" / "recipe" / "tuned.yaml"
    return ["loss=quadratic"] if recipe.is_file() and "\nloss:" in recipe.read_text(encoding="utf-8") else []


def compare(cases: Iterable[Case], reference: Path, folder: Path, steps: int, N: int | None) -> int:
    """Train each case with both source trees, print a line per case, and return the number of cases that differ."""
    print(HEADER, flush=True)
    differing = 0
    for number, case in enumerate(cases):
        start = time.monotonic()
        words = case.words(steps, N)
        try:
            clouds = [
                train(tree, [*words, *quadratic_loss(tree)], folder / f"{number}-{tree.name}")
                for tree in (reference, ROOT)
            ]
            text = difference(*clouds)
        except RunFailed as error:
            text = str(error)
        differing += text is not None
        seconds = time.monotonic() - start
        verdict = f"equal at step {clouds[0].step}" if text is None else f"DIFFERS: {text}"
        print(f"{case.dataset:10}{case.recipe:8}{case.engine:8}{case.dtype:10}{seconds:8.1f}  {verdict}", flush=True)
    return differing


def main(args: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--revision", default=LAST_OF_0_1, help="tag or commit to compare with (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=300, help="recursions per run (default: %(default)s)")
    parser.add_argument("--N", type=int, help="particles per run (default: the N of the dataset)")
    parser.add_argument(
        "--dataset", nargs="+", metavar="NAME", help="datasets to compare (default: all that are on this machine)"
    )
    for option, choices in (("recipe", RECIPES), ("engine", tuple(ENGINES)), ("dtype", DTYPES)):
        parser.add_argument(
            f"--{option}", nargs="+", choices=choices, default=choices, help="values to compare (default: all)"
        )
    parsed = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="proxlearn-bits-") as name:
        folder = Path(name).resolve()
        reference = folder / "reference"
        export_tree(parsed.revision, reference)
        datasets = parsed.dataset or available_datasets(reference)
        cases = [Case(*choice) for choice in itertools.product(datasets, parsed.recipe, parsed.engine, parsed.dtype)]
        differing = compare(cases, reference, folder / "runs", parsed.steps, parsed.N)
    print(f"\n{len(cases) - differing} of {len(cases)} clouds equal those of {parsed.revision}, bit for bit")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
