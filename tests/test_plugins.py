"""Plugins: an installed package adds a neuron, a loss, a weight update, a dataset and a logger through entry points.

The example package is tests/plugins/bump. It is installed with pip into a folder of its own, and every command runs in
a process that finds it there, or does not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from proxlearn.config.compose import compose, parse
from proxlearn.config.schema import LoggerConfig
from proxlearn.core import registry as core_registry
from proxlearn.core.registry import INSTALL_PACKAGE
from proxlearn.data import registry
from proxlearn.errors import InputError
from proxlearn.loggers.logger import check_logger
from proxlearn.run.checkpoint_file import list_checkpoints
from tests import small_runs
from tests.conftest import config_of

EXAMPLE = Path(__file__).parent / "plugins" / "bump"
EVERYTHING = ("dataset=hills", "loss=log_cosh", "weights=tempered", "logger=jsonl", "logger.uri=rows.jsonl")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the example package."""
    folder = tmp_path_factory.mktemp("plugins")
    # A copy, because setuptools builds in the source tree.
    source = shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__"))
    target = folder / "site"
    command = [*PIP, "--no-build-isolation", "--target", str(target), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return target


@pytest.fixture(scope="module")
def broken_site(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package, whose module cannot be imported."""
    folder = shutil.copytree(site, tmp_path_factory.mktemp("broken") / "site")
    (folder / "proxlearn_bump.py").write_text("import no_such_module\n")
    return folder


def proxlearn(site: Path | None, cwd: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return small_runs.proxlearn(*words, cwd=cwd, env=os.environ | variables, paths=[str(site)] if site else [])


@pytest.fixture(scope="module")
def trained(site: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the finished run ``run``, all parts of which come from the package."""
    folder = tmp_path_factory.mktemp("trained")
    done = proxlearn(site, folder, "train", *EVERYTHING, "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    X = np.random.default_rng(1).uniform(-2, 2, (5, 2))
    lines = [f"{east},{north},{np.exp(-(east**2) - north**2)}" for east, north in X]
    (folder / "new.csv").write_text("\n".join(["east,north,z", *lines, ""]))
    return folder


def test_the_run_names_the_parts_by_their_entry_points(trained: Path) -> None:
    model = json.loads((trained / "run" / "model.json").read_text())
    assert (model["neuron"], model["loss"]) == ("bump", "log_cosh")
    lines = [json.loads(line) for line in (trained / "rows.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "step" in line][-1] == 20
    assert lines[-2:] == [{"plots": ["health.png", "risk.png"]}, {"state": "finished"}]


@pytest.mark.parametrize(
    "words, output",
    [
        (["predict", "run", "--data", "new.csv", "--ignore-extra"], "prediction"),
        (["evaluate", "run", "--data", "new.csv", "--target", "z"], "5 rows"),
        (["report", "run", "-o", "page.html"], "page.html"),
        (["plot", "run"], "run/risk.png"),
        (["film", "run", "-o", "film.gif"], "film.gif"),
        (["data"], "\nhills       60 "),
        (["train", "--help"], "dataset: banana, csv, diabetes, digits, hills, shd,"),
        (["train", "dataset=hills", "--cfg", "job"], "height:\n    - -1.0\n    - 1.0\n"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_command_works_with_the_parts_of_the_package(
    words: list[str], output: str, site: Path, trained: Path
) -> None:
    done = proxlearn(site, trained, *words)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
    if words[0] == "report":
        page = (trained / "page.html").read_text(encoding="utf-8")
        assert all(name in page for name in ("height", "centre: east", "width: north"))


def test_a_killed_run_is_resumed_exactly(site: Path, tmp_path: Path) -> None:
    words = [*EVERYTHING, "checkpoint_every=10", "threads=1"]
    command = [sys.executable, "-m", "proxlearn", "train", *words, "steps=100000", "hydra.run.dir=killed"]
    environment = os.environ | {"PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    checkpoints = tmp_path / "killed" / "checkpoints"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (checkpoints / "cloud-000000010.safetensors").exists():
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    end = max(step for step, _ in list_checkpoints(checkpoints)) + 200
    done = proxlearn(site, tmp_path, "resume", "killed", "--steps", str(end))
    assert done.returncode == 0, done.stderr
    done = proxlearn(site, tmp_path, "train", *words, f"steps={end}", "hydra.run.dir=whole")
    assert done.returncode == 0, done.stderr
    last = f"cloud-{end:09d}.safetensors"
    assert (checkpoints / last).read_bytes() == (tmp_path / "whole" / "checkpoints" / last).read_bytes()
    assert (tmp_path / "killed/metrics.csv").read_bytes() == (tmp_path / "whole/metrics.csv").read_bytes()


@pytest.mark.parametrize(
    "words",
    [
        ["dataset=hills", "init=normal", "init_scale=1.0", "steps=3"],
        ["dataset=sine", "weights=tempered", "steps=3", "N=20", "compile=on"],
        ["dataset=sine", "weights=tempered", "steps=3", "N=20", "compile=off"],
        ["-m", "dataset=hills,sine", "steps=2", "N=10"],
    ],
    ids=" ".join,
)
def test_the_parts_combine_with_those_of_proxlearn(words: list[str], site: Path, tmp_path: Path) -> None:
    done = proxlearn(site, tmp_path, "train", *words)
    assert done.returncode == 0, done.stderr


def test_a_failing_logger_does_not_stop_the_run(site: Path, tmp_path: Path) -> None:
    words = ("train", "dataset=hills", "logger=jsonl", "steps=3", "hydra.run.dir=run")
    done = proxlearn(site, tmp_path, *words, BUMP_LOGGER_FAILS="1")
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "run" / "train.log").read_text()
    assert log.count("logger=jsonl failed (ConnectionError: the line is dead); all rows are still written to") == 1


CHOICES = ["dataset=hills", "dataset.neuron=bump", "loss=log_cosh", "weights=tempered", "logger=jsonl"]


@pytest.mark.parametrize("sweep", [False, True], ids=["run", "sweep"])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_broken_package_is_refused_in_one_line(choice: str, sweep: bool, broken_site: Path, tmp_path: Path) -> None:
    done = proxlearn(broken_site, tmp_path, "train", choice, *(["-m", "seed=1,2"] if sweep else []))
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.count("\n") == 1
    assert " of the package proxlearn-bump cannot be imported (ModuleNotFoundError: No module" in done.stderr
    assert done.stderr.endswith("; reinstall or remove proxlearn-bump\n")


def test_a_broken_package_disturbs_nothing_else(broken_site: Path, tmp_path: Path) -> None:
    assert proxlearn(broken_site, tmp_path, "train", "dataset=sine", "N=5", "steps=1").returncode == 0
    assert "hills, shd" in proxlearn(broken_site, tmp_path, "train", "--help").stdout
    listed = proxlearn(broken_site, tmp_path, "data")
    assert listed.returncode == 0
    assert "\nsine " in listed.stdout
    assert "the dataset `hills` of the package proxlearn-bump cannot be imported" in listed.stdout


@pytest.mark.parametrize("choice", CHOICES)
def test_without_the_package_the_remedy_is_to_install_it(choice: str, tmp_path: Path) -> None:
    done = proxlearn(None, tmp_path, "train", choice)
    assert (done.returncode, done.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert done.stderr.count("\n") == 1
    registers = {"loss=log_cosh": "losses", "dataset.neuron=bump": "neurons"}
    end = f"call proxlearn.{registers[choice]}.register in Python first" if choice in registers else ""
    assert done.stderr.endswith(f", install the package that adds it, or {end}\n" if end else f"or {INSTALL_PACKAGE}\n")


@pytest.mark.parametrize("words", [["resume", "run", "--steps", "30"], ["predict", "run", "--data", "new.csv"]])
def test_a_run_whose_package_was_removed_names_the_remedy(words: list[str], trained: Path) -> None:
    done = proxlearn(None, trained, *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "; install the package that adds it" in done.stderr


def test_a_run_is_shown_without_the_package_of_its_weights_and_logger(site: Path, tmp_path: Path) -> None:
    words = ("dataset=sine", "weights=tempered", "logger=jsonl", "N=5", "steps=2", "hydra.run.dir=run")
    assert proxlearn(site, tmp_path, "train", *words).returncode == 0
    for command in (["plot", "run"], ["report", "run"], ["status", "run"]):
        done = proxlearn(None, tmp_path, *command)
        assert done.returncode == 0, done.stderr


LOADER = """
import numpy as np
from proxlearn.data.table import DatasetInfo, Table

class part:
    INFO = DatasetInfo(4, 1, None, "computed", "none needed")
    CONFIG = {config}

    def load(config):
        return {result}
"""
TABLE = "Table(np.arange(4.0)[:, None], np.arange(4.0), ('x',), 'regression', '0')"
CONFIG = "{'initial': {'w': (-1, 1)}, 'default_hyperparameters': dict(beta=1, h=1, epsilon=1, steps=7)}"


def test_the_config_of_a_dataset_completes_the_common_one(fake_package: Callable[..., None], tmp_path: Path) -> None:
    fake_package("tables", LOADER.format(config=CONFIG, result=TABLE), datasets="steps_of_four")
    config = config_of("dataset=steps_of_four")
    assert (config.dataset.name, config.dataset.initial, config.steps) == ("steps_of_four", {"w": (-1, 1)}, 7)
    assert len(registry.load(config.dataset).X) == 4
    (tmp_path / "configs" / "dataset").mkdir(parents=True)
    own = "defaults: [/dataset_base@_here_]\nname: csv\ninitial: {w: [0, 1]}\n"
    (tmp_path / "configs" / "dataset" / "steps_of_four.yaml").write_text(own)
    composed = compose(parse(["dataset=steps_of_four", "--config-dir", str(tmp_path / "configs")]))
    assert composed.dataset.name == "csv", "a file of the user comes before a package"


BECAUSE = "because Hydra would import and call its value"


@pytest.mark.parametrize(
    "config, problem",
    [
        ("None", "does not define CONFIG as a mapping of config values"),
        ("{'initial': {'_target_': 'os.system'}}", "is not allowed: CONFIG: _target_ is not allowed " + BECAUSE),
        ("{'initial': ({'_target_': 'os.system'},)}", "is not allowed: CONFIG: _target_ is not allowed " + BECAUSE),
        ("{'points': np.int64(3)}", "has a CONFIG with values that are not numbers, strings, lists or mappings"),
        ("{'defaults': ['sine']}", "sets the reserved key `defaults` in its CONFIG"),
        ("{'name': 'sine'}", "sets the reserved key `name` in its CONFIG"),
    ],
)
def test_the_config_of_a_dataset_holds_values_only(
    config: str, problem: str, fake_package: Callable[..., None]
) -> None:
    fake_package("tables", LOADER.format(config=config, result=TABLE), datasets="theirs")
    with pytest.raises(InputError) as caught:
        compose(parse(["dataset=theirs"]))
    assert str(caught.value) == f"the dataset `theirs` of the package tables {problem}; upgrade or remove tables"


def test_a_dataset_must_be_a_loader_of_tables(fake_package: Callable[..., None]) -> None:
    fake_package("tables", LOADER.format(config=CONFIG, result="[1]"), datasets="theirs")
    with pytest.raises(InputError, match="`theirs` of the package tables is loaded as list instead of a Table"):
        registry.load(config_of("dataset=theirs").dataset)
    fake_package("others", "class part:\n    CONFIG = {}", datasets="no_loader")
    with pytest.raises(InputError, match="`no_loader` of the package others is invalid: it must be a module"):
        registry.dataset_info("no_loader")


def test_a_logger_must_have_the_interface(fake_package: Callable[..., None]) -> None:
    fake_package("logs", "class part:\n    def begin(self, metrics): ...", loggers="theirs")
    with pytest.raises(InputError, match="package logs is invalid: it must be a class with the methods begin"):
        check_logger(LoggerConfig("theirs", None, None))


def test_a_package_does_not_replace_a_dataset_or_a_logger(fake_package: Callable[..., None]) -> None:
    fake_package("thief", "raise RuntimeError", datasets="sine", loggers="csv")
    config = config_of("dataset=sine", "logger=csv")
    assert registry.load(config.dataset).columns == ("x",)
    assert list(registry.DATASETS) == list(registry.LOADERS)
    check_logger(config.logger)


def test_proxlearns_own_parts_need_no_list_of_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: str) -> None:
        raise AssertionError(f"the entry points of {group} were read")

    monkeypatch.setattr(core_registry, "find_entry_points", refuse)
    config = config_of("dataset=sine", "weights=uniform", "loss=huber", "dataset.neuron=tanh", "logger=tensorboard")
    check_logger(config.logger)
    registry.load(config.dataset)
