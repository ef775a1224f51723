"""The package as users get it: a wheel with its configs, that runs from any folder."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


def test_every_package_folder_is_listed() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {p.parent.relative_to(ROOT) for p in (ROOT / "proxlearn").rglob("__init__.py")}
    assert listed == {".".join(folder.parts) for folder in folders} | {"proxlearn.configs"}


def test_every_dataset_config_states_the_papers_settings() -> None:
    for path in (ROOT / "configs" / "dataset").glob("*.yaml"):
        settings = yaml.safe_load(path.read_text())
        assert settings["name"] == path.stem
        assert set(settings["paper"]) == {"beta", "h", "epsilon", "N", "delta", "L", "steps", "rho0"}


def test_rooms_look_one_way_only() -> None:
    """core imports nothing of ours but core; a run knows nothing of how it is looked at."""
    forbidden = {
        "core": ("data", "run", "predict", "views", "commands", "schema", "cli"),
        "data": ("run", "predict", "views", "commands"),
        "loggers": ("data", "run", "predict", "views", "commands"),
        "run": ("predict", "views", "commands"),
        "predict": ("views", "commands"),
        "baselines": ("compare", "views", "commands"),
        "compare": ("views", "commands"),
        "views": ("commands",),
    }
    for room, others in forbidden.items():
        for path in (ROOT / "proxlearn" / room).glob("*.py"):
            for other in others:
                for form in (f"from proxlearn.{other}", f"import proxlearn.{other}", f"from proxlearn import {other}"):
                    assert form not in path.read_text(), f"{path} imports from {other}"


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
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(installed.parents[1])
    shipped = {path.name for path in (Path(found.strip()).parent / "views" / "assets").iterdir()}
    assert shipped == {path.name for path in (ROOT / "proxlearn" / "views" / "assets").iterdir()}
    train = [str(installed.parent / "proxlearn"), "train", f"dataset={dataset}", "beta=0.05", "steps=20", "N=40"]
    shown = subprocess.run(train, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "| test " in shown.stdout
    (run,) = (tmp_path / "outputs" / dataset).iterdir()
    assert (run / "risk.png").exists()


def test_a_bare_checkout_runs_without_installation(tmp_path: Path) -> None:
    """-S leaves the site-packages, and with it any installed proxlearn, out."""
    paths = [str(ROOT), sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    code = f"import sys; sys.path[:0] = {paths!r}; from proxlearn.cli import main; sys.exit(main())"
    command = [sys.executable, "-S", "-c", code, "train", "dataset=sine", "N=5", "steps=1"]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "finished at step 1" in shown.stdout
