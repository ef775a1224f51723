"""The installed package: a wheel with its configs that runs from any folder, and the order of its layers."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_every_package_folder_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "proxlearn").rglob("__init__.py")}
    assert listed == {".".join(folder.parts) for folder in folders} | {"proxlearn.configs"}


LAYERS = (
    ("portability", "printable_text"),
    ("errors",),
    ("memory",),
    ("files.user_paths",),
    ("validators",),
    ("core",),
    ("losses", "neurons"),
    ("files",),
    ("terminal",),
    ("config",),
    ("distributed",),
    ("data", "training", "loggers", "jobs.records"),
    ("flow", "run"),
    ("jobs", "predict"),
    ("estimator_parameters",),
    ("estimator_base",),
    ("estimator_regressor",),
    ("baselines", "bench", "estimator"),
    ("compare",),
    ("paper.published",),
    ("views",),
    ("train_and_draw",),
    ("sweeps",),
    ("paper",),
    ("verify",),
    ("commands",),
    ("cli", "runs"),
    ("__init__", "__main__"),
)
"""Folders and modules of the package from the bottom to the top: each imports from itself and from those before it."""
LEVELS = {name: level for level, layer in enumerate(LAYERS) for name in layer}


def room_of(module: str) -> str:
    """Return the entry of LAYERS to which a module (without the leading ``proxlearn.``) belongs."""
    parts = module.split(".")
    return next((name for name in (".".join(parts[:2]), parts[0]) if name in LEVELS), parts[0])


def imports_of(source: str) -> set[str]:
    """Return the entries of LAYERS from which a module imports anywhere, including inside functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    inside = {name.partition(".")[2] for name in names if name.startswith("proxlearn.")}
    return {room_of(name) for name in inside} - {"__version__"}


def upward_imports(sources: dict[str, str]) -> list[str]:
    """Return each import from a layer that is not below; paths are relative to the package."""
    upward = []
    for path, source in sources.items():
        own = room_of(path.removesuffix(".py").replace("/", "."))
        for other in sorted(imports_of(source) - {own}):
            if LEVELS[other] >= LEVELS[own]:
                upward.append(f"{path} imports {other}")
    return upward


def package_sources() -> dict[str, str]:
    package = ROOT / "proxlearn"
    return {str(path.relative_to(package)): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}


def test_imports_go_one_way_only() -> None:
    sources = package_sources()
    rooms = {room_of(path.removesuffix(".py").replace("/", ".")) for path in sources}
    assert rooms == set(LEVELS), "LAYERS lists every module"
    assert upward_imports(sources) == []


@pytest.mark.parametrize(
    "path, line",
    [
        ("core/fused/fused_step.py", "from proxlearn.files.atomic import write_json"),
        ("core/cloud.py", "from proxlearn.config import schema"),
        ("training/fit.py", "import proxlearn.run.training_loop as loop"),
        ("bench/timing.py", "def now():\n    from proxlearn.views.style import figure"),
        ("run/training_loop.py", "from proxlearn import views"),
        ("compare/cells.py", "from proxlearn.views import tables"),
        ("views/film/film.py", "from proxlearn.sweeps.plan import SweepPlan"),
    ],
)
def test_an_import_that_goes_up_is_seen_in_every_folder(path: str, line: str) -> None:
    sources = package_sources()
    assert path in sources
    assert len(upward_imports({path: line})) == 1


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel in it, and the dependencies of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    build = [*pip, "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    python = environment / "bin" / "python"
    (wheel,) = folder.glob("proxlearn-*.whl")
    subprocess.run([*pip, "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True)
    return python


@pytest.mark.parametrize("dataset", ["wdbc", "sine"])
def test_the_wheel_trains_from_an_empty_folder(installed: Path, tmp_path: Path, dataset: str) -> None:
    # PYTHONPATH brings the dependencies without this environment's own (editable) proxlearn.
    environment = os.environ | {"PYTHONPATH": sysconfig.get_path("purelib"), "OMP_NUM_THREADS": "1"}
    where = [str(installed), "-c", "import proxlearn; print(proxlearn.__file__)"]
    package_file = subprocess.run(
        where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert Path(package_file.strip()).is_relative_to(installed.parents[1])
    shipped = {path.name for path in (Path(package_file.strip()).parent / "views" / "report" / "assets").iterdir()}
    assert shipped == {path.name for path in (ROOT / "proxlearn" / "views" / "report" / "assets").iterdir()}
    train = [str(installed.parent / "proxlearn"), "train", f"dataset={dataset}", "beta=0.05", "steps=20", "N=40"]
    completed = subprocess.run(train, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert "| test " in completed.stdout
    (run,) = (tmp_path / "outputs" / dataset).iterdir()
    assert (run / "risk.png").exists()


def test_a_bare_checkout_runs_without_installation(tmp_path: Path) -> None:
    """With -S, Python ignores the site-packages and therefore any installed proxlearn."""
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = f"import sys; sys.path[:0] = {paths!r}; from proxlearn.cli import main; sys.exit(main())"
    command = [sys.executable, "-S", "-c", code, "train", "dataset=sine", "N=5", "steps=1"]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert "finished at step 1" in completed.stdout
