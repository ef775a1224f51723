"""Compare trained clouds bit for bit with the clouds of an earlier revision, on this machine.

Both source trees train the same short runs in separate processes with one thread: every dataset that is available on
this machine, with recipe=paper and recipe=tuned, with the fused and the eager engine, and in float32 and float64. The
exit code is 1 if any cloud differs. The bits also depend on the processor, so the script compares two trees on one
machine and is not part of `make test`.

Since revision 2 of the recursion, the random numbers of a run are different, so no cloud equals one of version 0.1.
With --single-steps, both trees compute single steps from the same clouds and random numbers, which must agree up to
rounding.
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


STEPS_IN_TREE = """
import sys
tree, folders, path = sys.argv[1:]
sys.path[:0] = [tree]
sys.path += folders.split(__import__("os").pathsep)
import numpy as np
import torch
torch.set_num_threads(1)
import proxlearn
from proxlearn.core.cloud import PointCloud
if not proxlearn.__file__.startswith(tree):
    sys.exit(f"{proxlearn.__file__} does not belong to {tree}")
try:
    from proxlearn.core.functionals.risk import Risk
    from proxlearn.core.fused.fused_step import FusedStep
    from proxlearn.core.hyper import Hyper
    from proxlearn.core.neurons.perceptron import Perceptron
    from proxlearn.core.samples import Samples
    from proxlearn.core.step import step
    make, weights = lambda samples: Risk.from_samples(Perceptron(), samples), torch.float64
except ImportError:
    from proxlearn.core.fused.engine import FusedStep
    from proxlearn.core.problem import Problem, Samples
    from proxlearn.core.recursion import Hyper, step
    from proxlearn.core.tanh import TanhNeuron
    make, weights = lambda samples: Problem(TanhNeuron(), samples), None
SHAPES = {
    "wdbc": (399, 30, 200.0, 0.05, 1e-3, 1.0), "banana": (600, 2, 4.0, 0.05, 1e-4, 10.0),
    "twonorm": (500, 20, 8.0, 1.95, 1e-4, 1.0), "sine": (100, 1, 3.0, 0.3, 1e-4, 1e-3),
}
results, N = {}, 300
for name, (n, n_x, scale, beta, h, epsilon) in SHAPES.items():
    random = torch.Generator().manual_seed(0)
    numbers = lambda *shape: torch.rand(*shape, generator=random, dtype=torch.float64)
    X, y, theta = scale * numbers(n, n_x), numbers(n).sub(0.5).sign(), 2 * numbers(N, n_x + 2) - 1
    log_rho, noise, z0 = -5 - numbers(N).float(), 3 * numbers(N, n_x + 2) - 1.5, 1 - numbers(N)
    hyper = Hyper(beta=beta, h=h, epsilon=epsilon, delta=1e-3, L=300)
    for dtype in (torch.float32, torch.float64):
        risk = make(Samples(X.to(dtype), y.to(dtype), (y > 0).long()))
        cloud = PointCloud(theta.to(dtype), log_rho.to(weights or dtype))
        given = noise.to(dtype), z0.to(dtype)
        eager, fused = step(risk, cloud, hyper, *given)[0], FusedStep(risk, hyper, N, 1)(cloud, *given)[0]
        for engine, after in (("eager", eager), ("fused", fused)):
            for part in ("theta", "log_rho"):
                key = f"{name:8}{engine:6}{str(dtype)[6:]:8} {part}"
                results[key] = getattr(after, part).double().numpy()
np.savez(path, **results)
"""

ROUNDING = {"float32": 1e-5, "float64": 1e-13}
"""Largest difference of a coordinate or of log rho after a single step that rounding explains."""


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


def run_in_tree(code: str, tree: Path, words: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code with the package in ``tree``, in the new folder ``folder``."""
    dependencies = os.pathsep.join(path for path in sys.path if Path(path).name in ("site-packages", "dist-packages"))
    command = [sys.executable, "-I", "-S", "-c", code, str(tree.resolve()), dependencies, *words]
    folder.mkdir(parents=True)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def single_steps(tree: Path, folder: Path) -> dict[str, np.ndarray]:
    """Return the clouds after single steps that the package in ``tree`` computes."""
    done = run_in_tree(STEPS_IN_TREE, tree, [str(folder / "steps.npz")], folder)
    if done.returncode:
        raise RunFailed(done.stderr.strip().rpartition("\n")[2])
    with np.load(folder / "steps.npz") as results:
        return dict(results)


def compare_single_steps(reference: Path, folder: Path) -> int:
    """Print the largest difference of each single step, and return the number of those that rounding cannot explain."""
    expected, actual = (single_steps(tree, folder / tree.name) for tree in (reference, ROOT))
    differing = 0
    for name, values in expected.items():
        largest = float(np.abs(values - actual[name]).max())
        agrees = largest <= ROUNDING["float32" if "float32" in name else "float64"]
        differing += not agrees
        print(f"{name:32}{largest:8.1e}  {'rounding' if agrees else 'DIFFERS'}", flush=True)
    return differing


def train(tree: Path, words: Sequence[str], folder: Path) -> Cloud:
    """Train a run with the package in ``tree``, write its output into ``folder``, and return its newest cloud."""
    done = run_in_tree(TRAIN_IN_TREE, tree, [*words, f"hydra.run.dir={folder / 'run'}"], folder)
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
    parser.add_argument("--single-steps", action="store_true", help="compare single steps up to rounding")
    parsed = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="proxlearn-bits-") as name:
        folder = Path(name).resolve()
        reference = folder / "reference"
        export_tree(parsed.revision, reference)
        if parsed.single_steps:
            return 1 if compare_single_steps(reference, folder / "steps") else 0
        datasets = parsed.dataset or available_datasets(reference)
        cases = [Case(*choice) for choice in itertools.product(datasets, parsed.recipe, parsed.engine, parsed.dtype)]
        differing = compare(cases, reference, folder / "runs", parsed.steps, parsed.N)
    print(f"\n{len(cases) - differing} of {len(cases)} clouds equal those of {parsed.revision}, bit for bit")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
