"""A run is composed once and validated once, and only one module imports private modules of Hydra."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra

from proxlearn.cli import main
from proxlearn.commands import train
from proxlearn.config import compose, schema
from proxlearn.errors import InputError
from proxlearn.run import config_validation
from proxlearn.sweeps import plan

ROOT = Path(__file__).parents[2]
SMALL = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=2"]


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_one_module_imports_private_modules_of_hydra() -> None:
    paths = [path for folder in ("proxlearn", "scripts", "configs") for path in (ROOT / folder).rglob("*.py")]
    users = [
        str(path.relative_to(ROOT))
        for path in paths
        if any(name.startswith("hydra._internal") for name in imported_modules(path))
    ]
    assert users == ["proxlearn/config/hydra_internals.py"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the compositions and the validations of a command."""
    counter: Counter[str] = Counter()

    def count(module: Any, name: str, label: str) -> None:
        function = getattr(module, name)

        def counted(*args: Any, **kwargs: Any) -> Any:
            counter[label] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(module, name, counted)

    from hydra.core.config_loader import ConfigLoader

    (loader,) = ConfigLoader.__subclasses__()
    count(loader, "load_configuration", "composed")
    for module in (train, plan, config_validation):
        count(module, "validate_config", "validated")
    count(config_validation, "build", "built")
    return counter


@pytest.mark.parametrize("words", [[], ["hydra.run.dir=runs/${proxlearn.run_name:}"], ["--config-dir", "."]])
def test_a_run_is_composed_once_and_validated_once(
    words: list[str], calls: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *SMALL, *words]) == 0
    assert calls == {"composed": 1, "validated": 1, "built": 1}


def test_a_job_of_a_sweep_is_composed_once_and_validated_once(
    calls: Counter[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert isinstance(train.preflight(["-m", *SMALL, "seed=1,2,3"]), plan.SweepPlan)
    assert calls == {"composed": 1 + 3, "validated": 3, "built": 3}


def test_the_run_name_is_resolved_outside_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["proxlearn"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    folder = train.preflight(SMALL).folder  # type: ignore[union-attr]
    assert main(["train", *SMALL, "--cfg", "all", "--resolve"]) == 0
    assert f"dir: {folder.relative_to(tmp_path)}\n" in capsys.readouterr().out


PRINTING = [
    (["epsilon=0.1", "--cfg", "job"], "\nepsilon: 0.1"),
    (["dataset=sine", "--cfg", "job", "--package", "dataset"], "name: sine"),
    (["--info", "defaults"], "recipe/paper"),
    (["--info", "searchpath"], "Config search path"),
    (["--help"], "Hyperparameters"),
    (["--hydra-help"], "--config-dir"),
    (["-m", "--help"], "Hyperparameters"),
]


@pytest.mark.parametrize("words, text", PRINTING, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_hydras_printing_flags_train_nothing(words: list[str], text: str, tmp_path: Path) -> None:
    # In a process of its own, because Hydra configures the logging of the process.
    command = [sys.executable, "-m", "proxlearn", "train", *words]
    completed = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    assert text in completed.stdout
    assert list(tmp_path.iterdir()) == []


CONTRADICTORY = [["--resolve"], ["-m", "--cfg", "job"], ["--run", "-m"], ["--info", "all", "--cfg", "job"]]


@pytest.mark.parametrize("words", CONTRADICTORY, ids=" ".join)
def test_contradictory_flags_are_refused(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="--cfg"):
        train.preflight([*SMALL, *words])


@pytest.mark.parametrize("name", ["plain", "a b", "it's", 'q"q', "a,b", "[x]", "${beta}", "back\\slash", "ü=1"])
def test_a_folder_of_configs_may_have_any_name(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    (folder / "recipe").mkdir(parents=True)
    (folder / "recipe" / "mine.yaml").write_text("# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: 7\n")
    (folder / "own.yaml").write_text("defaults: [train, _self_]\nseed: 5\n")
    words = ["--config-dir", str(folder), "--config-name", "own", "dataset=sine", "recipe=mine"]
    composed = compose.compose(compose.parse(words))
    config = config_validation.validate_config(composed)
    assert (config.beta, config.seed, config.recipe) == (7, 5, "mine")
    sweep = train.preflight([*words, "-m", "epsilon=1,2"])
    assert isinstance(sweep, plan.SweepPlan)
    assert [config.beta for config in sweep.configs.values()] == [7, 7]


def test_composition_leaves_no_state_behind() -> None:
    compose.compose(compose.parse(["dataset=sine"]))
    with pytest.raises(InputError):
        compose.compose(compose.parse(["dataset=nosuch"]))
    assert not GlobalHydra.instance().is_initialized()


def test_an_old_config_with_threads_per_device_is_read() -> None:
    stored = {"device": "cpu", "dtype": "float32", "fallback_dtype": None, "threads": 3}
    assert schema.build(schema.DeviceConfig, stored) == schema.DeviceConfig("cpu", "float32", None)
