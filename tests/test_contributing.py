"""The recipes of CONTRIBUTING.md work as written: each needs its module and one line in a registry."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compare_bits import train

ROOT = Path(__file__).resolve().parents[1]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FIT = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from proxlearn.baselines.registry import Request
from proxlearn.baselines.registry import find_method, load_fit, method_settings
nearest = find_method("nearest")
X = np.random.default_rng(0).normal(size=(60, 2))
fitted = load_fit(nearest)(X, np.sign(X[:, 0]), Request("banana", 0))
print(method_settings(nearest, "light", "banana"), np.mean((fitted.probability(X) > 0.5) == (X[:, 0] > 0)))
"""


def write_module(tree: Path, path: str) -> None:
    """Write the code block that follows the first mention of the path."""
    code = re.search(rf"`{re.escape(path)}`:\n\n```python\n(.*?)```", CONTRIBUTING, re.DOTALL)
    assert code is not None
    (tree / path).write_text(code[1], encoding="utf-8")


def add_line(path: Path, before: str, line: str) -> None:
    assert line in CONTRIBUTING
    content = path.read_text(encoding="utf-8")
    assert content.count(before) == 1
    path.write_text(content.replace(before, f"{before}\n    {line},"), encoding="utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in ("proxlearn", "configs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_dataset_is_added(tree: Path, tmp_path: Path) -> None:
    write_module(tree, "proxlearn/data/circles.py")
    add_line(tree / "proxlearn/data/registry.py", "LOADERS = {", '"circles": "proxlearn.data.circles"')
    similar = (tree / "configs/dataset/banana.yaml").read_text(encoding="utf-8")
    config = similar.replace("name: banana", "name: circles").replace("scaling: paper ", "scaling: standard ")
    (tree / "configs/dataset/circles.yaml").write_text(config, encoding="utf-8")
    cloud = train(tree, ["dataset=circles", "N=20", "steps=3", "compile=off"], tmp_path / "run")
    assert (cloud.exit_code, cloud.step, cloud.theta.shape) == (0, 3, (20, 4))


def test_a_compared_method_is_added(tree: Path, tmp_path: Path) -> None:
    write_module(tree, "proxlearn/baselines/nearest.py")
    line = 'Method("nearest", "nearest neighbours", "reference", "proxlearn.baselines.nearest:fit")'
    add_line(tree / "proxlearn/baselines/registry.py", "_ALL = (", line)
    done = subprocess.run([sys.executable, "-c", FIT, str(tree)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("{'neighbours': 15}")
    assert float(done.stdout.split()[-1]) > 0.9


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"`((?:proxlearn|tests|docs|scripts)/[\w./]*\w\.\w+)`", CONTRIBUTING)))
)
def test_every_file_that_is_named_exists(path: str) -> None:
    assert path in ("proxlearn/data/circles.py", "proxlearn/baselines/nearest.py") or (ROOT / path).is_file()


def test_every_make_target_that_is_named_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    text = CONTRIBUTING + (ROOT / "docs" / "release_checklist.md").read_text(encoding="utf-8")
    targets = set(re.findall(r"(?:`|\n)make ([a-z-]+)", text))
    assert {"test", "coverage", "bits"} <= targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
