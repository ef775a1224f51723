"""A run is composed once and validated once, and only one module imports private modules of Hydra.

Where a command may write: Hydra's folder settings, folders of other programs, and empty folders of the user.
"""

from __future__ import annotations

import ast
import os
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
from proxlearn.sweeps import sweep as sweep_module
from tests.small_runs import proxlearn

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
    for module in (train, sweep_module, config_validation):
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
    assert isinstance(train.preflight(["-m", *SMALL, "seed=1,2,3"]), sweep_module.SweepPlan)
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
    completed = proxlearn("train", *words)
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
    assert isinstance(sweep, sweep_module.SweepPlan)
    assert [config.beta for config in sweep.configs.values()] == [7, 7]


def test_composition_leaves_no_state_behind() -> None:
    compose.compose(compose.parse(["dataset=sine"]))
    with pytest.raises(InputError):
        compose.compose(compose.parse(["dataset=nosuch"]))
    assert not GlobalHydra.instance().is_initialized()


def test_an_old_config_with_threads_per_device_is_read() -> None:
    stored = {"device": "cpu", "dtype": "float32", "fallback_dtype": None, "threads": 3}
    assert schema.build(schema.DeviceConfig, stored) == schema.DeviceConfig("cpu", "float32", None)


SMALL_FOLDER_SETTINGS = ["dataset=sine", "N=8", "dataset.points=10", "threads=1", "steps=2"]

REFUSED = {
    "Hydra's own files": (["hydra.output_subdir=.hydra"], "hydra.output_subdir is not allowed because"),
    "a run's folder in a sweep": (
        ["-m", "seed=0,1", "hydra.run.dir=x"],
        "hydra.run.dir has no effect on a sweep (-m); use hydra.sweep.dir=... instead",
    ),
    "a sweep's folder in a run": (
        ["hydra.sweep.dir=x"],
        "hydra.sweep.dir has no effect on a single run; use hydra.run",
    ),
    "a sweep's subfolder in a run": (["++hydra.sweep.subdir=x"], "hydra.sweep.subdir has no effect on a single run"),
}


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", REFUSED)
def test_folder_settings_that_would_be_ignored_or_unsafe_are_refused(name, tmp_path, capsys):
    words, message = REFUSED[name]
    assert main(["train", *words, *SMALL_FOLDER_SETTINGS]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


NOT_OURS = ["metrics.csv", "model.json", "status.json", "config.yaml", "points.csv", "risk.png", ".notes.tmp", ".lock"]


@pytest.mark.parametrize("overwrite", ["true", "false"])
@pytest.mark.parametrize("names", [*([name] for name in [*NOT_OURS, "else.txt"]), NOT_OURS], ids=" ".join)
def test_a_folder_with_other_files_is_refused_and_left_as_it_is(names, overwrite, tmp_path, capsys):
    for name in names:
        (tmp_path / name).write_text("dataset: mine\n")
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=.", f"overwrite={overwrite}"]) == 2
    assert "contains other files (" in capsys.readouterr().err
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "dataset: mine\n")


@pytest.mark.parametrize("name", ["sweep.yaml", "summary.csv", "jobs"])
def test_a_sweep_folder_with_other_files_is_refused(name, tmp_path, capsys):
    words = ["train", "-m", *SMALL_FOLDER_SETTINGS, "seed=0,1", "hydra.sweep.dir=s"]
    from proxlearn.commands.train import preflight

    folder = preflight(words[1:]).folder.path
    folder.mkdir(parents=True)
    (folder / name).write_text("mine")
    assert main(words) == 2
    assert "but no sweep of proxlearn; choose a new or empty folder: hydra.sweep.dir=" in capsys.readouterr().err
    assert [path.relative_to(folder).name for path in folder.iterdir()] == [name]
    assert (folder / name).read_text() == "mine"


TABLE = "x,y,label\n" + "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(40))


def test_a_training_table_inside_the_run_folder_is_never_replaced(tmp_path, capsys):
    (tmp_path / "my.csv").write_text(TABLE)
    words = ["dataset=csv", "dataset.target=label", "N=8", "threads=1", "steps=1", "hydra.run.dir=run"]
    assert main(["train", *words, "dataset.path=my.csv"]) == 0
    (tmp_path / "run" / "points.csv").write_text(TABLE)
    for more in ([], ["overwrite=true"]):
        assert main(["train", *words, "dataset.path=run/points.csv", *more]) == 2
        problem = "dataset.path=run/points.csv is in the run folder and has the name of a file that the run writes"
        assert problem in capsys.readouterr().err
    assert (tmp_path / "run" / "points.csv").read_text() == TABLE


def test_only_temporary_files_of_our_own_are_deleted(tmp_path):
    folder = tmp_path / "run"
    words = ["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=run"]
    assert main(words) == 0
    running = os.getppid()  # A process that draws the plots of a finished run may be writing this file.
    kept = [".notes.tmp", ".draft.7.tmp", ".proxlearn-notes.tmp", "checkpoints/.mine.1.tmp"]
    kept.append(f".proxlearn-risk.png.{running}.tmp")
    removed = [
        ".proxlearn-status.json.99999999.tmp",
        ".config.yaml.9.tmp",
        "checkpoints/.cloud-000000001.safetensors.9.tmp",
    ]
    for name in kept + removed:
        (folder / name).write_text("x")
    assert main([*words, "steps=3"]) == 0
    assert [name for name in kept + removed if (folder / name).exists()] == kept


@pytest.mark.parametrize("existing", ["", "a", "a/b/c"])
def test_a_refused_run_leaves_no_folder_and_removes_none_that_was_there(existing, tmp_path, capsys):
    (tmp_path / existing).mkdir(parents=True, exist_ok=True)
    words = ["dataset=csv", "dataset.path=nofile.csv", "dataset.target=y", "hydra.run.dir=a/b/c"]
    assert main(["train", *words]) == 2
    assert "the file nofile.csv does not exist" in capsys.readouterr().err
    folders = [str(path.relative_to(tmp_path)) for path in sorted(tmp_path.rglob("*"))]
    assert folders == ["a", "a/b", "a/b/c"][: len(existing.split("/")) if existing else 0]


def test_a_run_killed_before_it_began_leaves_a_folder_that_can_be_used(tmp_path):
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / ".lock").write_text('{"pid": 1, "host": "x", "since": "then"}')
    (folder / ".proxlearn-config.yaml.99999999.tmp").write_text("half")
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=run"]) == 0


def test_dots_after_a_link_mean_the_folder_that_the_system_means(tmp_path, capsys):
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "deep")
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=link/../run"]) == 0
    assert (tmp_path / "elsewhere" / "run" / "status.json").is_file()
    assert not (tmp_path / "run").exists()
    assert main(["resume", "link/../run", "--steps", "3"]) == 0
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=link/../run", "steps=3"]) == 0
    assert "already finished at step 3" in capsys.readouterr().out
    assert main(["train", "-m", *SMALL_FOLDER_SETTINGS, "seed=1,2", "hydra.sweep.dir=link/../sweep"]) == 0
    assert (tmp_path / "elsewhere" / "sweep" / "sweeps").is_dir()


@pytest.mark.parametrize("name", ["model.json", "accuracy.csv", "status.json", "risk.png", "metrics.csv"])
def test_a_copied_config_does_not_make_a_folder_of_files_a_run(name, tmp_path, capsys):
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=run"]) == 0
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.yaml").write_bytes((tmp_path / "run" / "config.yaml").read_bytes())
    (mine / name).write_text("mine")
    for words in ([], ["overwrite=true"]):
        capsys.readouterr()
        assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=mine", *words]) == 2
        assert f"files that proxlearn did not write ({name})" in capsys.readouterr().err
        assert (mine / name).read_text() == "mine"
    (mine / name).unlink()
    assert main(["train", *SMALL_FOLDER_SETTINGS, "hydra.run.dir=mine"]) == 0
