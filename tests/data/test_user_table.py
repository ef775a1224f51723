"""A user's table is loaded correctly, or one line names the column and the remedy."""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import hashlib
import io
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proxlearn.data import registry
from proxlearn.data.table import Table
from proxlearn.errors import InputError
from tests.data.conftest import dataset_config

Write = Callable[..., Path]
GOOD = "x,z,label\n1,2.5,no\n2,1.5,yes\n3,0.5,no\n4,-1,yes\n"
EXPECTED = [[1, 2.5], [2, 1.5], [3, 0.5], [4, -1]]


def load(path: Path, target: str | None = "label", **changes: object) -> Table:
    return registry.load(dataset_config("csv", path=str(path), target=target, **changes))


GOOD_VARIANTS = {
    "comma": GOOD.encode(),
    "byte order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "semicolon": GOOD.replace(",", ";").encode(),
    "tab": GOOD.replace(",", "\t").encode(),
    "bar": GOOD.replace(",", "|").encode(),
    "windows line ends": GOOD.replace("\n", "\r\n").encode(),
    "blanks after commas": GOOD.replace(",", ", ").encode(),
    "quoted": b'"x","z","label"\n"1","2.5","no"\n"2","1.5","yes"\n"3","0.5","no"\n"4","-1","yes"\n',
    "blank lines": GOOD.replace("\n", "\n\n").encode(),
    "UTF-16": GOOD.encode("utf-16"),
    "UTF-16 without a mark": GOOD.encode("utf-16-le"),
    "blanks": GOOD.replace(",", "  ").encode(),
    "gzip": gzip.compress(GOOD.encode()),
    "bzip2": bz2.compress(GOOD.encode()),
    "a constant column": b"x,k,z,label\n1,7,2.5,no\n2,7,1.5,yes\n3,7,0.5,no\n4,7,-1,yes\n",
    "no last line end": GOOD.rstrip("\n").encode(),
    "scientific": b"x,z,label\n1e0,25e-1,no\n2,1.5,yes\n3,.5,no\n4,-1.,yes\n",
}


@pytest.mark.parametrize("content", GOOD_VARIANTS.values(), ids=GOOD_VARIANTS.keys())
def test_the_same_table_in_many_dresses(content: bytes, write: Write) -> None:
    table = load(write(content))
    assert table.X.tolist() == EXPECTED
    assert table.target.tolist() == [0, 1, 0, 1]
    assert table.columns == ("x", "z")
    assert table.classes == ("no", "yes")
    assert table.task == "binary"
    assert table.sha256 == hashlib.sha256(content).hexdigest()


def test_quoted_newlines_and_delimiters_stay_inside_their_field(write: Write) -> None:
    content = 'x,"a, wide\nname",label\n1,2,"no\nnever"\n2,3,"yes, always"\n3,5,"no\nnever"\n4,4,"yes, always"\n'
    table = load(write(content))
    assert table.columns == ("x", "a, wide\nname")
    assert table.classes == ("no\nnever", "yes, always")
    assert table.X.tolist() == [[1, 2], [2, 3], [3, 5], [4, 4]]


def test_true_and_false_are_numbers(write: Write) -> None:
    table = load(write("x,flag,label\n1,True,a\n2,False,b\n3,True,a\n4,False,b\n"))
    assert table.X[:, 1].tolist() == [1, 0, 1, 0]


MALFORMED = {
    "text column": (
        "x,town,label\n1,Oslo,a\n2,Rome,b\n3,Oslo,a\n4,Rome,b\n",
        "column `town` contains text with 2 categories ('Oslo' in data row 1); add dataset.encode=onehot",
    ),
    "one bad cell": (
        "x,z,label\n1,2,a\n2,?,b\n3,3,a\n4,4,b\n",
        "column `z` contains text among its numbers: '?' (in 1 of 4 rows, first in data row 2); add "
        "'dataset.missing_values=[\"?\"]' dataset.missing=median",
    ),
    "free text": (
        "x,note,label\n" + "".join(f"{i},w{i},{i % 2}\n" for i in range(50)),
        "column `note` contains text with 50 different values ('w0' in data row 1); add 'dataset.drop=[note]'",
    ),
    "decimal comma": (
        "x;z;label\n1;2,5;a\n2;3,5;b\n3;1,0;a\n4;4,0;b\n",
        "column `z` contains numbers with a decimal comma ('2,5' in data row 1); add dataset.decimal=comma",
    ),
    "commas between thousands": (
        'x,z,label\n1,"2,500",a\n2,"3,500.5",b\n3,1.5,a\n4,4,b\n',
        "column `z` contains numbers with commas between thousands ('2,500' in data row 1); add dataset.decimal=point",
    ),
    "missing value": (
        "x,z,label\n1,2,a\n2,,b\n3,,a\n4,5,b\n",
        "column `z` lacks a value in data row 2 and 1 other row; add dataset.missing=median",
    ),
    "missing target": (
        "x,z,label\n1,2,a\n2,3,\n3,4,a\n4,5,b\n5,6,b\n",
        "target column `label` lacks a value in data row 2; add dataset.missing=drop",
    ),
    "infinite value": (
        "x,z,label\n1,2,a\n2,inf,b\n3,4,a\n4,5,b\n",
        "column `z` has an infinite value in data row 2; add 'dataset.missing_values=[\"inf\"]' dataset.missing=median",
    ),
    "dates": (
        "x,day,label\n1,2020-01-05,a\n2,2020-02-01,b\n3,2020-01-05,a\n4,2021-01-05,b\n",
        "column `day` contains dates ('2020-01-05' in data row 1); add 'dataset.drop=[day]'",
    ),
    "a number that is too large": (
        "x,z,label\n1,2,a\n2,1e305,b\n3,4,a\n4,5,b\n",
        "the value 1e+305 in data row 2 of column `z` is too large; add 'dataset.drop=[z]'",
    ),
    "one class only": (
        "x,z,label\n1,2,a\n2,3,a\n3,4,a\n",
        "target column `label` has only one distinct value, `a`; choose another dataset.target",
    ),
    "fewer rows than classes need": (
        "x,z,label\n1,2,a\n2,3,b\n3,4,c\n",
        "target column `label` has 3 classes in 3 rows",
    ),
    "unknown delimiter": (
        "x:z:label\n1:2:a\n2:3:b\n",
        "has only one column, `x:z:label`; separate the columns with commas",
    ),
    "no header": (
        "1,2,0\n2,3,1\n3,4,0\n4,4,1\n",
        "the first line contains numbers (1, 2, 0), not column names; add dataset.header=false dataset.target=c3",
    ),
    "a title above the header": (
        "Sales 2020\n\nx,z,label\n1,2,a\n2,3,b\n3,4,a\n4,5,b\n",
        "the first line, `Sales 2020`, is not the header line, which is line 3; add dataset.skip_lines=2",
    ),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\x00", "is neither UTF-8 text (byte 0x89) nor cp1252 text"),
    "zero bytes": (
        b"x,z,label\n1,2\x00,a\n2,3,b\n3,3,a\n4,4,b\n",
        "column `z` contains text among its numbers: '2\\x00'",
    ),
    "surplus field": (
        "x,z,label\n1,2,a\n2,3,b,9\n3,4,a\n4,5,b\n5,6,a\n",
        "too many fields in line 3: Expected 3 fields in line 3, saw 4; add dataset.bad_lines=drop",
    ),
    "surplus field in every row": ("x,z,label\n1,2,a,8\n2,3,b,9\n", "rows have more fields than the header"),
    "open quote": ('x,z,label\n1,2,"a\n2,3,b\n', "cannot be read as a table"),
    "empty": ("", "is empty"),
    "header only": ("x,z,label\n", "has fewer than two rows of data"),
    "one row": ("x,z,label\n1,2,a\n", "has fewer than two rows of data"),
    "two columns, one constant": ("z,label\n1,a\n1,b\n", "column `z` has the same value in every row"),
}


@pytest.mark.parametrize(("content", "message"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_table_gets_one_clear_line(content: str | bytes, message: str, write: Write) -> None:
    path = write(content)
    with pytest.raises(InputError) as error:
        load(path)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    named = str(path) in str(error.value) or "column" in str(error.value)
    assert named


def test_target_that_is_not_there_is_corrected(write: Write) -> None:
    with pytest.raises(InputError, match="no column `lable`; did you mean `label`"):
        load(write(GOOD), target="lable")


def test_target_left_out_lists_the_columns(write: Write) -> None:
    with pytest.raises(InputError, match=r"give dataset\.target=label or dataset\.target=z or dataset\.target=x"):
        load(write(GOOD), target=None)


def test_no_path_no_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dataset=csv needs a file"):
        registry.load(dataset_config("csv", target="y"))
    with pytest.raises(InputError, match=r"does not exist; .*relative paths start from the current folder"):
        load(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="Is a directory"):
        load(tmp_path)


def test_a_relative_path_starts_where_the_command_did(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write(GOOD).parent)
    assert load(Path("my.csv")).X.tolist() == EXPECTED


def target_of(values: list[object], task: str | None, write: Write) -> Table:
    rows = "".join(f"{i * i},{value}\n" for i, value in enumerate(values))
    return load(write("x,label\n" + rows), task=task)


@pytest.mark.parametrize(
    ("values", "task", "classes"),
    [
        (["a", "b"] * 4, "binary", ("a", "b")),
        ([0, 1] * 4, "binary", ("0", "1")),
        ([-1.0, 1.0] * 4, "binary", ("-1", "1")),
        ([True, False] * 4, "binary", ("False", "True")),
        ([0.5, 1.5] * 4, "binary", ("0.5", "1.5")),
        ([1, 2, 3] * 4, "multiclass", ("1", "2", "3")),
        (["x", "y", "z"] * 4, "multiclass", ("x", "y", "z")),
        ([0.1, 0.2, 0.7] * 4, "regression", ()),
        (list(range(50)), "regression", ()),
    ],
)
def test_the_task_is_guessed_and_said(
    values: list[object], task: str, classes: tuple[str, ...], write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    table = target_of(values, None, write)
    assert (table.task, table.classes) == (task, classes)
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert task in message
    assert "to change this" in message


@pytest.mark.parametrize(
    "values, named",
    [
        (range(1, 21), True),
        (range(20, 0, -1), True),
        ([(7 * i) % 20 + 101 for i in range(20)], True),
        ([i % 19 for i in range(20)], False),
        ([i * i for i in range(20)], False),
        ([i + 0.5 for i in range(20)], False),
    ],
)
@pytest.mark.parametrize("gap", [False, True])
def test_a_column_like_an_id_is_named_before_the_fit_and_before_other_problems(
    values: Iterable[float], named: bool, gap: bool, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{value},{'' if gap and i == 3 else i % 7},{i % 2}" for i, value in enumerate(values)]
    path = write("\n".join(["key,x,label", *rows]))
    problem = pytest.raises(InputError, match="column `x` lacks a value") if gap else contextlib.nullcontext()
    with problem:
        load(path, task="binary")
    notice = "column `key` has a different whole number in every row, like an ID; if it identifies the rows, drop it"
    assert (notice in capsys.readouterr().err) == named


def test_the_task_can_be_overridden(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert target_of([1, 2, 3] * 4, "regression", write).task == "regression"
    assert target_of([0, 1] * 4, "multiclass", write).task == "multiclass"
    assert target_of([0, 1] * 4, "regression", write).target.tolist() == [0.0, 1.0] * 4
    assert capsys.readouterr().err == ""
    with pytest.raises(InputError, match=r"dataset.task=binary, but target column `label` has 3 distinct values"):
        target_of([1, 2, 3] * 4, "binary", write)
    with pytest.raises(InputError, match="target column `label` contains text"):
        target_of(["a", "b"] * 4, "regression", write)
    with pytest.raises(InputError, match=r"has 40 classes in 40 rows.*or use dataset.task=regression"):
        target_of(list(range(40)), "multiclass", write)


names = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_characters="\x00\r", exclude_categories=("Cs", "Zs", "Cc")),
        min_size=1,
        max_size=8,
    ),
    min_size=2,
    max_size=5,
    unique=True,
)


@given(names, st.sampled_from(",;\t|"), st.integers(0, 10**6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_a_csv_writer_writes_is_read_back_exactly(
    write: Write, header: list[str], delimiter: str, seed: int
) -> None:
    header = [f"c{name}" for name in header]
    X = np.random.default_rng(seed).normal(size=(8, len(header)))
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter)
    writer.writerow([*header, "label"])
    writer.writerows([*(repr(float(x)) for x in row), i % 2] for i, row in enumerate(X))
    table = load(write(text.getvalue()), task="binary")
    assert table.columns == tuple(header)
    np.testing.assert_array_equal(table.X, X)


tokens = st.sampled_from(
    [
        "1",
        "2",
        "-3.5",
        "a",
        "label",
        "",
        " ",
        '"',
        ",",
        ",",
        ",",
        ";",
        "\n",
        "\n",
        "\r",
        "\t",
        "nan",
        "inf",
        "\x00",
        "é",
    ]
)


@given(
    st.one_of(
        st.lists(tokens, max_size=40).map(lambda parts: ("x,label\n" + "".join(parts)).encode()),
        st.lists(tokens, max_size=40).map(lambda parts: "".join(parts).encode()),
        st.binary(max_size=60),
    )
)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_is_in_the_file_it_loads_or_gets_one_line(write: Write, content: bytes) -> None:
    try:
        table = load(write(content))
    except InputError as error:
        # A no-break space of the file, which isprintable() rejects, is shown as it is (printable_text.py).
        (line,) = str(error).splitlines()
        assert "".join(line.split()).isprintable()
    else:
        assert np.isfinite(table.X).all()
        assert len(table.X) == len(table.target) >= 2


def test_a_million_rows_of_twenty_columns_are_read_in_seconds(write: Write) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 20))
    text = io.StringIO()
    np.savetxt(text, np.column_stack((X, np.arange(10_000) % 2)), fmt="%.5g", delimiter=",")
    path = write(",".join([*(f"x{i}" for i in range(20)), "label"]) + "\n" + 100 * text.getvalue())
    start = time.monotonic()
    table = load(path)
    seconds = time.monotonic() - start
    path.unlink()
    assert table.X.shape == (1_000_000, 20)
    np.testing.assert_allclose(table.X[-1], X[-1], rtol=1e-4)
    assert seconds < 20, f"took {seconds:.1f} s"
