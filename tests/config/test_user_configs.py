"""A user's folder of configs is checked in bounded time and memory, whatever it contains."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxlearn.commands.train import preflight
from proxlearn.config.config_folders import MAX_BYTES, MAX_DEPTH, MAX_NODES, check_config_folder
from proxlearn.errors import InputError

LEVELS = [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
MERGES = [f"a{level}: &a{level} {{b{level}: *a{level - 1}, <<: *a{level - 1}}}" for level in range(1, 30)]
BOMBS = {
    "aliases": "\n".join(["a0: &a0 [x]", *LEVELS]),
    "merges": "\n".join(["a0: &a0 {x: 1}", *MERGES]),
    "itself": "a: &a [*a]",
    "deep": "a: " + "[" * 5000 + "]" * 5000,
    "deep_blocks": "\n".join("  " * level + "a:" for level in range(MAX_DEPTH + 5)),
    "long": "a: [" + "1, " * MAX_BYTES + "1]",
    "many": "a: [" + "1," * (MAX_NODES + 1) + "1]",
    "binary": "\0\1\2",
}
SECONDS = 8.0
"""The bomb of aliases took more than 30; the machine may be busy."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_config_that_would_not_load_in_bounded_time_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(BOMBS[name])
    started = time.process_time()
    with pytest.raises(InputError, match=r"mine\.yaml cannot be read as YAML"):
        check_config_folder(str(tmp_path))
    assert time.process_time() - started < SECONDS


def test_what_is_not_a_regular_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    fifo = tmp_path / "folder" / "mine.yaml"
    os.mkfifo(fifo)
    with pytest.raises(InputError, match="not a regular file"):
        check_config_folder(str(tmp_path))
    fifo.unlink()
    fifo.symlink_to("/dev/zero")
    with pytest.raises(InputError, match="not a regular file"):
        check_config_folder(str(tmp_path))
    fifo.unlink()
    fifo.symlink_to(tmp_path / "nothing")
    with pytest.raises(InputError, match="No such file"):
        check_config_folder(str(tmp_path))


def test_linked_folders_are_looked_through_once(tmp_path: Path) -> None:
    configs, elsewhere = tmp_path / "configs", tmp_path / "elsewhere"
    configs.mkdir()
    elsewhere.mkdir()
    (configs / "again").symlink_to(configs)
    (configs / "recipe").symlink_to(elsewhere)
    (elsewhere / "mine.yaml").write_text("beta: 7\n")
    check_config_folder(str(configs))
    (elsewhere / "mine.yaml").write_text("_target_: os.mkdir\n")
    with pytest.raises(InputError, match="_target_ would be imported"):
        check_config_folder(str(configs))


def test_a_folder_that_is_no_folder_of_configs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxlearn.config.config_folders.MAX_ENTRIES", 5)
    for number in range(6):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(InputError, match="give a folder that holds configs only"):
        check_config_folder(str(tmp_path))
    with pytest.raises(InputError, match=r"the folder .* does not exist"):
        check_config_folder(str(tmp_path / "nothing"))


VALUES = st.recursive(
    st.integers() | st.booleans() | st.text(st.characters(codec="ascii", exclude_categories=("Cc",)), max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@settings(max_examples=30, deadline=None)
@given(values=VALUES)
def test_any_file_of_values_is_accepted(values: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    import yaml

    folder = tmp_path_factory.mktemp("configs")
    (folder / "mine.yaml").write_text(yaml.safe_dump([values, values]))
    check_config_folder(str(folder))


def test_a_few_aliases_are_welcome(tmp_path: Path) -> None:
    (tmp_path / "recipe").mkdir()
    text = "# @package _global_\ndefaults: [paper]\nrecipe: mine\nbeta: &x 7\nh: *x\n"
    (tmp_path / "recipe" / "mine.yaml").write_text(text)
    preflight(["--config-dir", str(tmp_path), "dataset=sine", "recipe=mine"])


def test_interpolations_of_interpolations_are_bounded(tmp_path: Path) -> None:
    keys = ["a", *(f"a{level}" for level in range(40))]
    chain = "\n".join(f'{key}: "${{{below}}}${{{below}}}"' for key, below in zip(keys[1:], keys, strict=False))
    (tmp_path / "recipe").mkdir()
    text = f"# @package _global_\ndefaults: [paper]\nrecipe: mine\na: x\n{chain}\n"
    (tmp_path / "recipe" / "mine.yaml").write_text(text)
    with pytest.raises(InputError, match="too many interpolations"):
        preflight(["--config-dir", str(tmp_path), "dataset=sine", "recipe=mine"])
