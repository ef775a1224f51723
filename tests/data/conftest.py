"""Fixtures of the tests of data: an empty cache, and configs as in the YAML files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxlearn.config.config_folders import config_folder, read_dataset_file
from proxlearn.config.schema import DatasetConfig, build

CONFIGS = config_folder() / "dataset"


def dataset_config(name: str, **changes: Any) -> DatasetConfig:
    """Return a dataset's config as in its file, with some keys changed."""
    values = read_dataset_file(name)
    del values["default_hyperparameters"]
    return build(DatasetConfig, values | changes)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without any data, and return the cache folder, which does not exist yet."""
    monkeypatch.delenv("PROXLEARN_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    from proxlearn.data.dataset_files import cache_folder

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
