"""Shared by the tests of data: the paper's files where they are, an empty cache, and configs as the YAML files say."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxlearn.schema import DatasetConfig, build

PAPER_FILES = ("banana.dat", "pima.dat", "twonorm.dat", "semeion.data")
CONFIGS = Path(__file__).parents[2] / "configs" / "dataset"


def dataset_config(name: str, **changes: Any) -> DatasetConfig:
    """A dataset's config as its file says, with some keys changed."""
    values = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    del values["paper"]
    return build(DatasetConfig, values | changes)


@pytest.fixture
def paper_files() -> Path:
    """The folder of the paper's files."""
    if not os.environ.get("PROXLEARN_DATA"):
        pytest.skip("PROXLEARN_DATA is not set: this test reads the paper's own files")
    folder = Path(os.environ["PROXLEARN_DATA"])
    absent = [name for name in PAPER_FILES if not (folder / name).is_file()]
    if absent:
        pytest.skip(f"PROXLEARN_DATA={folder} lacks {', '.join(absent)}: this test reads the paper's own files")
    return folder


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any data: the cache folder (not made yet) is returned."""
    monkeypatch.delenv("PROXLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from proxlearn.data.files import cache_folder

    assert cache_folder().is_relative_to(tmp_path)
    return cache_folder()


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file in the test's folder."""

    def write(content: str | bytes, name: str = "my.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write
