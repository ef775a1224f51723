"""The packaged YAML files: datasets share one base, and every key is explained where it is set."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

from proxlearn.cli import main
from proxlearn.config.compose import compose, parse
from proxlearn.config.config_folders import config_folder, read_config_file, read_dataset_file
from proxlearn.config.schema import DatasetConfig
from proxlearn.errors import InputError
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
