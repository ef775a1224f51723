"""Each dataset is the paper's: its rows, its classes, and its first and last row.

Tables in NumPy, Excel, Parquet and zip files that cannot be used are answered in one line.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from proxlearn.data import digits, registry, wdbc
from proxlearn.data.new_rows import RowReader
from proxlearn.data.prepare import prepare
from proxlearn.data.table import Table
from proxlearn.errors import InputError
from tests.conftest import config_of
from tests.data.conftest import CONFIGS, dataset_config

SHD_COUNTS = [161, 162, 159, 159, 161, 159, 161, 158, 155, 158]
FROM_FILES = {
    "banana": (5300, 2, [2924, 2376]),
    "diabetes": (768, 8, [500, 268]),
    "twonorm": (7400, 20, [3703, 3697]),
    "shd": (1593, 256, SHD_COUNTS),
}
FIRST_AND_LAST = {
    "banana": ([1.14, -0.114], 0, [-0.255, -0.142], 1),
    "diabetes": (
        [6, 148, 72, 35, 0, 33.6, 0.627, 50],
        1,
        [1, 93, 70, 31, 0, 30.4, 0.315, 23],
        0,
    ),
    "twonorm": ([-1.2036, -2.6240, 0.5963, 1.3859, -1.3597, 0.6758], 1, [1.9430, 1.7931, 1.6335, -0.4527, 1.7833], 0),
    "shd": ([-1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1, -1], 0, None, 9),
}


def load(name: str, **changes: object) -> Table:
    return registry.load(dataset_config(name, **changes))


@pytest.mark.parametrize("name", FROM_FILES)
def test_rows_and_classes_of_the_papers_files(name: str, paper_files: Path) -> None:
    table = load(name)
    rows, features, counts = FROM_FILES[name]
    assert table.X.shape == (rows, features)
    assert np.bincount(table.target).tolist() == counts
    about = registry.dataset_info(name)
    assert (about.rows, about.features, about.classes) == (rows, features, len(counts))
    assert len(table.columns) == features
    assert len(table.classes) == len(counts)


@pytest.mark.parametrize("name", FROM_FILES)
def test_first_and_last_row_of_the_papers_files(name: str, paper_files: Path) -> None:
    table = load(name)
    first, first_label, last, last_label = FIRST_AND_LAST[name]
    assert table.X[0, : len(first)].tolist() == first
    assert table.target[0] == first_label
    if last is not None:
        assert table.X[-1, : len(last)].tolist() == last
    assert table.target[-1] == last_label


def test_shd_is_filled_or_not_and_its_first_thousand_rows_train(paper_files: Path) -> None:
    table = load("shd")
    assert set(np.unique(table.X)) == {-1.0, 1.0}
    prepared = prepare(table, dataset_config("shd"), 0)
    assert (len(prepared.train), len(prepared.test)) == (1000, 593)
    assert prepared.rows["train"].tolist() == list(range(1000))


def test_shd_last_row_is_the_files(paper_files: Path) -> None:
    line = (paper_files / "semeion.data").read_text().splitlines()[-1].split()
    table = load("shd")
    assert table.X[-1].tolist() == [2 * float(pixel) - 1 for pixel in line[:256]]
    assert line[256:].index("1") == table.target[-1]


def test_sets_that_come_with_scikit_learn() -> None:
    wdbc = load("wdbc")
    assert wdbc.X.shape == (569, 30)
    assert np.bincount(wdbc.target).tolist() == [357, 212]
    assert wdbc.X[0, :2].tolist() == [17.99, 10.38]
    assert wdbc.X[-1, :2].tolist() == [7.76, 24.54]
    assert (wdbc.target[0], wdbc.target[-1]) == (1, 0)
    digits = load("digits")
    assert digits.X.shape == (1797, 64)
    assert np.bincount(digits.target).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (digits.X.min(), digits.X.max()) == (-1.0, 1.0)
    assert (digits.target[0], digits.target[-1]) == (0, 8)


def test_sine_is_computed() -> None:
    table = load("sine", points=5)
    np.testing.assert_allclose(table.target, np.sin(table.X[:, 0]))
    assert len(table.X) == 9
    assert table.train_rows == 5


def test_every_loader_has_a_config_and_every_config_a_loader() -> None:
    assert {path.stem for path in CONFIGS.glob("*.yaml")} == set(registry.LOADERS)
    for path in CONFIGS.glob("*.yaml"):
        assert dataset_config(path.stem).name == path.stem


@pytest.mark.parametrize("name", sorted(set(registry.LOADERS) - {"csv"}))
def test_the_same_table_has_the_same_sha256(name: str, request: pytest.FixtureRequest) -> None:
    if registry.dataset_info(name).file is not None:
        request.getfixturevalue("paper_files")
    first, second = load(name), load(name)
    assert re.fullmatch(r"[0-9a-f]{64}", first.sha256)
    assert first.sha256 == second.sha256


@pytest.mark.parametrize(
    ("name", "key", "value"), [("wdbc", "path", "x"), ("banana", "target", "y"), ("digits", "points", 9)]
)
def test_a_key_that_a_loader_does_not_read_is_refused(name: str, key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"dataset={name} does not use dataset.{key}"):
        load(name, **{key: value})


# What is read from scikit-learn's files is what scikit-learn itself returns.
def test_wdbc_is_scikit_learns_with_malignant_as_class_1() -> None:
    bunch, table = load_breast_cancer(), wdbc.load(config_of("dataset=wdbc").dataset)
    assert np.array_equal(table.X, bunch.data)
    assert np.array_equal(table.target, 1 - bunch.target)
    expected = [name.replace(" ", "_") for name in bunch.feature_names]
    columns = [f"{c.split('_', 1)[1]}_error" if c.startswith("error_") else c for c in table.columns]
    assert columns == expected


def test_digits_are_scikit_learns_scaled_to_one() -> None:
    bunch, table = load_digits(), digits.load(config_of("dataset=digits").dataset)
    assert np.array_equal(table.X, bunch.data / 8 - 1)
    assert np.array_equal(table.target, bunch.target)


def load_npz(path: Path, target: str | None = None) -> Table:
    return registry.load(dataset_config("csv", path=str(path), target=target))


def save(path: Path, **saved: object) -> Path:
    np.savez(path, **saved)  # type: ignore[arg-type]
    return path


def test_npz(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(9, 3))
    path = save(
        tmp_path / "my.npz", X=X, y=np.arange(9) % 3, label=np.array(["a", "b", "b"] * 3), columns=["u", "v", "w"]
    )
    table = load_npz(path)
    np.testing.assert_array_equal(table.X, X)
    assert (table.task, table.columns, table.classes) == ("multiclass", ("u", "v", "w"), ("0", "1", "2"))
    assert load_npz(path, "label").classes == ("a", "b")


def test_malformed_npz(tmp_path: Path, write: Callable[..., Path]) -> None:
    X, y = np.arange(12.0).reshape(6, 2), np.arange(6) % 2
    cases = {
        "no array `X`": save(tmp_path / "a.npz", Y=X, y=y),
        "no array `y`": save(tmp_path / "b.npz", X=X),
        "X must be a matrix of numbers": save(tmp_path / "c.npz", X=X[:, 0], y=y),
        "`y` must be an array of numbers or strings of shape (6,)": save(tmp_path / "d.npz", X=X, y=y[:5]),
        "`y` is not finite in row 2": save(tmp_path / "e.npz", X=X, y=np.array([1, np.nan, 2, 3, 4, 5])),
        "the number of names in `columns` is 1, but X has the shape": save(tmp_path / "f.npz", X=X, y=y, columns=["u"]),
        "column `x1` lacks a value in data row 3": save(tmp_path / "g.npz", X=np.where(X == 5, np.nan, X), y=y),
        "cannot be read": write(b"PK no zip", "h.npz"),
        "contains Python objects": save(tmp_path / "i.npz", X=X.astype(object), y=y),
    }
    for message, path in cases.items():
        with pytest.raises(InputError) as error:
            load_npz(path)
        assert message in str(error.value)
        assert "\n" not in str(error.value)


def two_names_alike(kind: str, path: Path) -> Path:
    """Write a table whose columns are called 1 (a number) and "1" (text), or whose index has the name of a column."""
    table = pd.DataFrame({1: [1.5, 2.5, 3.5, 5.0], "1": [1, 2, 4, 8], "label": ["a", "b"] * 2})
    if kind == "xlsx":
        table.to_excel(path, index=False)
    elif kind == "parquet":
        pq.write_table(pa.table([*map(pa.array, table.to_numpy().T)], names=["1", "1", "label"]), path)
    else:
        table.columns = ["0", "1", "label"]
        table.rename_axis("1").to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["xlsx", "parquet", "index.parquet"])
def test_columns_whose_names_are_equal_as_text_are_one_line(kind: str, tmp_path: Path) -> None:
    path = two_names_alike(kind, tmp_path / f"my.{kind}")
    message = f"{path} has several columns called `1`; give every column a different name"
    with pytest.raises(InputError, match=re.escape(message)):
        registry.load(dataset_config("csv", path=str(path), target="label"))
    with pytest.raises(InputError, match=re.escape(message)), RowReader(str(path)):
        pass


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
def test_an_encrypted_archive_must_be_extracted(compression: int, tmp_path: Path) -> None:
    path = tmp_path / "my.zip"
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("my.csv", "x,label\n1,a\n2,b\n3,a\n4,b\n")
    content = bytearray(path.read_bytes())
    # Bit 0 of the flags marks an encrypted file, in its header and in the directory of the archive.
    for place in (6, content.index(b"PK\x01\x02") + 8):
        content[place] |= 1
    path.write_bytes(content)
    message = f"{path} is encrypted; extract the archive, and give the path of the file with the table"
    with pytest.raises(InputError, match=re.escape(message)):
        registry.load(dataset_config("csv", path=str(path), target="label"))
