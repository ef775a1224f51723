"""The packaged YAML files: datasets share one base, and every key is explained where it is set.

Configs hold values; anything that would make Hydra import or call code is rejected in one line.

The schema: the values of a valid config are typed, finite and in range, and the config determines the run's name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from proxlearn.cli import main
from proxlearn.commands.train import preflight
from proxlearn.config.compose import compose, parse
from proxlearn.config.config_folders import config_folder, read_config_file, read_dataset_file
from proxlearn.config.run_name import NOT_TRAJECTORY, run_name
from proxlearn.config.schema import DatasetConfig, TrainConfig, build
from proxlearn.errors import InputError
from proxlearn.validators import integer, real
from tests.conftest import config_of

FOLDER = config_folder()
DATASETS = sorted(path.stem for path in (FOLDER / "dataset").glob("*.yaml"))
COMMENTED = [FOLDER / "train.yaml", FOLDER / "dataset_base.yaml"]
COMMENTED += [path for group in ("recipe", "device") for path in sorted((FOLDER / group).glob("*.yaml"))]
KEY_LINE = re.compile(r"( *)([A-Za-z_]\w*):(.*)")


def leaves(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested groups by their dotted keys; dataset.initial is one value."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        nested = isinstance(value, dict) and key != "initial"
        flat |= leaves(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


@pytest.mark.parametrize("name", DATASETS)
def test_a_dataset_file_states_only_what_differs_from_the_base(name: str) -> None:
    base, own = leaves(read_config_file("dataset_base")), leaves(read_config_file(f"dataset/{name}"))
    assert own["name"] == name
    assert set(own) <= set(base)
    assert [key for key in own if own[key] == base[key]] == []
    missing = {key for key, value in base.items() if value == "???"}
    assert missing <= set(own)


@pytest.mark.parametrize("name", DATASETS)
def test_hydra_composes_the_base_and_the_dataset_file(name: str) -> None:
    composed = compose(parse([f"dataset={name}"]))
    assert OmegaConf.to_container(composed.dataset) == read_dataset_file(name)
    assert set(composed.dataset) == {*DatasetConfig.__dataclass_fields__, "default_hyperparameters"}


def test_the_default_hyperparameters_are_those_of_the_paper_recipe() -> None:
    defaults = read_config_file("dataset_base")["default_hyperparameters"]
    recipe = read_config_file("recipe/paper")
    interpolated = {key: value for key, value in recipe.items() if "default_hyperparameters" in str(value)}
    assert interpolated == {key: f"${{dataset.default_hyperparameters.{key}}}" for key in defaults}


def test_the_base_is_not_offered_as_a_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["train", "dataset=nosuch"], ["train", "--help"], ["data"], ["data", "verify", "nosuch"]):
        with contextlib.suppress(SystemExit):
            main(words)
        captured = capsys.readouterr()
        assert "banana" in captured.out + captured.err
        assert "dataset_base" not in captured.out + captured.err
    with pytest.raises(InputError, match="unknown dataset `base`"):
        config_of("dataset=base")


def test_a_dataset_file_of_the_user_can_start_from_the_base_or_state_every_key(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    own = "name: mine\ninitial: {a: [0, 1], b: [0, 1], w: [0, 1]}\n"
    hyperparameters = "default_hyperparameters: {beta: 3, h: 0.1, epsilon: 2, steps: 7}\n"
    based = f"defaults: [/dataset_base@_here_]\n{own}{hyperparameters}"
    whole = yaml.safe_dump({**read_dataset_file("wdbc"), **yaml.safe_load(own + hyperparameters)})
    words = ["--config-dir", str(tmp_path), "dataset=mine", "L=300", "N=9", "delta=1", "rho0=uniform"]
    for text in (based, whole):
        (tmp_path / "dataset" / "mine.yaml").write_text(text)
        config = config_of(*words)
        assert (config.dataset.name, config.beta, config.steps, config.dataset.points) == ("mine", 3, 7, None)


@pytest.mark.parametrize("line", ["steps: 7", "initial: {w: [0, 1]}", "name: mine"])
def test_a_key_without_a_common_value_must_be_stated(line: str, tmp_path: Path) -> None:
    lines = ["name: mine", "initial: {w: [0, 1]}", "default_hyperparameters:"]
    lines += ["  beta: 3", "  h: 0.1", "  epsilon: 2", "  steps: 7"]
    (tmp_path / "dataset").mkdir()
    kept = [kept for kept in lines if kept.strip() != line]
    (tmp_path / "dataset" / "mine.yaml").write_text("\n".join(["defaults: [/dataset_base@_here_]", *kept]))
    with pytest.raises(InputError) as caught:
        config_of("--config-dir", str(tmp_path), "dataset=mine")
    assert line.partition(":")[0] in str(caught.value)


def test_the_old_names_of_keys_in_a_users_file_are_answered_with_the_new_ones(tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    (tmp_path / "device").mkdir()
    dataset = read_dataset_file("wdbc")
    dataset["paper"] = dataset.pop("default_hyperparameters")
    (tmp_path / "dataset" / "mine.yaml").write_text(yaml.safe_dump(dataset))
    (tmp_path / "device" / "mine.yaml").write_text("{device: cpu, dtype: float32, fallback_dtype: null, threads: 2}")
    words = ["--config-dir", str(tmp_path)]
    with pytest.raises(InputError, match=r"`dataset\.paper`; it is now called `dataset\.default_hyperparameters`"):
        config_of(*words, "dataset=mine")
    with pytest.raises(InputError, match=r"`device\.threads`; it is now called `threads`"):
        config_of(*words, "device=mine")


@pytest.mark.parametrize("path", COMMENTED, ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_key_has_a_comment_where_it_is_set(path: Path) -> None:
    uncommented = []
    for line in path.read_text(encoding="utf-8").splitlines():
        match = KEY_LINE.fullmatch(line)
        if match is None or match[2] in ("defaults", "override") or line.endswith(": |"):
            continue
        # The groups of Hydra's own part need no comment: their keys have one.
        is_hydras_group = path.name == "train.yaml" and match[1] and not match[3].strip()
        # The texts of the help are not keys.
        is_text = path.name == "train.yaml" and len(match[1]) > 4
        if not is_hydras_group and not is_text and "#" not in match[3]:
            uncommented.append(line)
    assert [line for line in uncommented if "app_name" not in line] == []


CALL = "{_target_: os.mkdir, path: EXPLODED}"
REFUSED = [
    ["+hydra.callbacks.mine=" + CALL],
    ["+hydra.launcher.mine=" + CALL],
    ["hydra.launcher._target_=os.mkdir", "+hydra.launcher.path=EXPLODED"],
    ["hydra.launcher._target_=hydra._internal.core_plugins.basic_launcher.logging.os.mkdir"],
    ["+hydra.sweeper.mine=" + CALL, "-m"],
    ["hydra.sweeper._target_=os.mkdir", "-m"],
    ["+hydra.sweeper.params={hydra.launcher._target_: os.mkdir}", "-m"],
    ["+hydra.job_logging.handlers.mine={class: os.mkdir, path: EXPLODED}"],
    ['+hydra.job_logging.formatters.mine={"()": os.mkdir, path: EXPLODED}'],
    ["+hydra.hydra_logging.handlers.mine={class: os.mkdir, path: EXPLODED}"],
    ["hydra/job_logging=default"],
    ["+hydra.job.env_set.LD_PRELOAD=EXPLODED"],
    ["hydra.job.chdir=true"],
    ["hydra.searchpath=[pkg://this]"],
    ["hydra.searchpath=[file:///tmp]"],
    ["+dataset._target_=os.mkdir"],
    ["+dataset.initial.a._target_=os.mkdir"],
    ["--experimental-rerun", "PICKLE"],
    ["--config-path", "/tmp"],
]


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        import os

        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("args", REFUSED, ids=lambda args: args[0][:40])
def test_code_on_the_command_line_is_refused(args, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exploded, pickled = tmp_path / "exploded", tmp_path / "pickled"
    pickled.write_bytes(pickle.dumps(Bomb(exploded)))
    args = [arg.replace("EXPLODED", str(exploded)).replace("PICKLE", str(pickled)) for arg in args]
    assert main(["train", "dataset=sine", "steps=0", "N=2", *args]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("proxlearn: ")
    assert [path.name for path in tmp_path.iterdir()] == ["pickled"]


FILES = {
    "dataset/mine.yaml": "_target_: os.mkdir\npath: EXPLODED",
    "deep.yaml": "a: [{b: [{_target_: os.mkdir}]}]",
    "escaped.yaml": '"\\x5ftarget_": os.mkdir',
    "package.yaml": "hydra: {searchpath: ['pkg://this']}",
    "object.yaml": "!!python/object/apply:os.mkdir ['EXPLODED']",
    "broken.yaml": "{",
    "elsewhere.yaml": "hydra: {searchpath: ['file:///tmp']}",
}


@pytest.mark.parametrize("name", FILES)
def test_code_in_a_users_config_is_refused(name, tmp_path, capsys):
    configs, exploded = tmp_path / "configs", tmp_path / "exploded"
    path = configs / name
    path.parent.mkdir(parents=True)
    path.write_text(FILES[name].replace("EXPLODED", str(exploded)))
    chosen = [f"+{path.parent.name}={path.stem}"] if path.parent != configs else ["--config-name", path.stem]
    assert main(["train", "--config-dir", str(configs), *chosen]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert path.name in line
    assert not exploded.exists()


def test_a_users_config_of_values_is_welcome(tmp_path):
    configs = tmp_path / "configs"
    (configs / "recipe").mkdir(parents=True)
    (configs / "recipe" / "mine.yaml").write_text("# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: 7\n")
    preflight(["--config-dir", str(configs), "dataset=sine", "recipe=mine"])
    (configs / "recipe" / "mine.yaml").write_text("# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: -7\n")
    with pytest.raises(InputError, match="beta must be"):
        preflight(["--config-dir", str(configs), "dataset=sine", "recipe=mine"])


def config(*overrides: str) -> TrainConfig:
    return config_of(*overrides)


@given(st.floats() | st.integers() | st.text() | st.none() | st.booleans() | st.lists(st.integers()))
def test_a_real_is_finite_and_in_range_or_refused(value: Any) -> None:
    try:
        number = real(above=0, below=10, example=1)("x", value)
    except InputError:
        assert isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 10
    else:
        assert math.isfinite(number)
        assert 0 < number < 10


@given(st.floats() | st.integers() | st.text() | st.none() | st.booleans())
def test_an_integer_is_whole_and_in_range_or_refused(value: Any) -> None:
    try:
        whole = integer(at_least=1, below=10**6, example=1)("x", value)
    except InputError:
        is_number = not isinstance(value, bool) and isinstance(value, (int, float))
        assert not (is_number and 1 <= value < 10**6 and value == int(value))
    else:
        assert type(whole) is int
        assert whole == value


def test_the_dataset_brings_the_papers_settings_and_the_command_line_overrides_them() -> None:
    wdbc, sine = config(), config("dataset=sine", "beta=0.7")
    assert (wdbc.beta, wdbc.h, wdbc.epsilon, wdbc.N, wdbc.delta, wdbc.L) == (0.05, 1e-3, 1.0, 1000, 1e-3, 300)
    assert (wdbc.steps, wdbc.rho0, wdbc.device.dtype) == (250000, "pdf", "float32")
    assert (sine.beta, sine.h, sine.epsilon, sine.L, sine.steps, sine.rho0) == (0.7, 1e-4, 1e-3, 10, 5000, "uniform")


def test_a_run_folders_config_builds_the_same_config() -> None:
    original = config("dataset=sine", "device=jetson-float32-to-float64")
    stored = json.loads(json.dumps(dataclasses.asdict(original)))
    assert build(TrainConfig, stored) == original


@pytest.mark.parametrize("override", ["steps=7", "log_every=3", "checkpoint_every=9", "threads=1", "logger=mlflow"])
def test_the_name_does_not_depend_on_what_leaves_the_trajectory_alone(override: str) -> None:
    assert run_name(config(override)) == run_name(config())


@pytest.mark.parametrize(
    "override",
    [
        *("beta=0.06", "h=2e-3", "epsilon=2", "N=7", "delta=1e-4", "L=3", "seed=1", "split_seed=1", "kernel=dense"),
        *("drift=first_variation", "prox_potential=first_variation", "orientation=consistent", "tolerance=log"),
        *("rho0=uniform", "weights=uniform", "solver=literal", "dataset=sine", "device.dtype=float64"),
        "dataset.initial.w=[-2,2]",
    ],
)
def test_the_name_depends_on_everything_else(override: str) -> None:
    assert run_name(config(override)) != run_name(config())


def test_what_is_left_out_of_the_name_exists() -> None:
    assert set(NOT_TRAJECTORY) <= {field.name for field in dataclasses.fields(TrainConfig)}
