"""A folder of messy tables: each is read, or answered in one message whose remedy, run as it stands, works."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn.commands.fit import build_parser, overrides
from proxlearn.data import new_rows, registry
from proxlearn.data.feature_encoding import FeatureEncoder
from proxlearn.data.new_rows import ColumnSpec, RowEncoder, RowReader
from proxlearn.data.prepare import check_magnitudes, prepare
from proxlearn.data.table_problems import TableProblems
from proxlearn.data.user_table import table_format
from proxlearn.errors import InputError
from tests.conftest import config_of

ROWS = 60


def frame(**changes: object) -> pd.DataFrame:
    """Return a table with two columns of numbers, a column of text and the target `label`."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=ROWS).round(3)
    values = {"x": x, "z": (10 * rng.normal(size=ROWS)).round(1), "label": np.where(x > 0, "yes", "no")}
    return pd.DataFrame({**values, **changes})[[*changes, "x", "z", "label"]] if changes else pd.DataFrame(values)


def with_cells(column: str, cells: dict[int, object]) -> pd.DataFrame:
    table = frame().astype(object)
    for row, cell in cells.items():
        table.loc[row, column] = cell
    return table


def text(table: pd.DataFrame, **options: object) -> bytes:
    return table.to_csv(index=False, **options).encode()


def binary(table: pd.DataFrame, kind: str) -> bytes:
    file = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("inside.csv", text(table))
            archive.writestr("__MACOSX/._inside.csv", b"\x00\x05")
    elif kind == "parquet":
        table.to_parquet(file)
    elif kind.endswith("csv.xlsx"):
        # Excel files that have the header line at another place than the first row.
        table.to_excel(file, index=False, header=kind != "none.csv.xlsx", startrow=3 if kind == "title.csv.xlsx" else 0)
    else:
        table.to_excel(file, index=False)
    return file.getvalue()


def wide() -> pd.DataFrame:
    """Return a table whose 200 further columns have four kinds of problems."""
    cells = (lambda i, j: f"k{i}-{j}", lambda i, j: "uvw"[j % 3], lambda i, j: None if j == i % ROWS else j * 1.5)
    kinds = (*cells, lambda i, j: "n.d." if j == i % ROWS else j * 0.5)
    columns = {f"c{i}": [kinds[i % 4](i, j) for j in range(ROWS)] for i in range(200)}
    return pd.concat([pd.DataFrame(columns), frame()], axis="columns")


ROW = np.arange(ROWS)
TOWNS = np.array(["Oslo", "Rome", "Bonn"])[np.arange(ROWS) % 3]
DAYS = pd.date_range("2020-01-01", periods=ROWS)
COMMAS = frame().assign(x=lambda t: t["x"].map("{:.3f}".format).str.replace(".", ","))
REGRESSION = frame(y=np.random.default_rng(0).normal(size=ROWS) * 1e5)
MANY = frame(id=[f"k{i}" for i in range(ROWS)], town=TOWNS, day=DAYS.astype(str)).astype(object)
MANY.loc[4, "x"], MANY.loc[9, "x"], MANY.loc[2, "z"], MANY.loc[7, "label"] = None, "?", "inf", None
ODD = {"x": "a, b=[1] 'c'", "label": "${y}: 50%"}
SOME_TOWNS = np.where(np.arange(ROWS) < 5, None, TOWNS)
TARGET = REGRESSION["y"].astype(object)
EXTREMES = {"a": np.linspace(-1, 1, ROWS) * 1e300, "b": np.logspace(-300, -299, ROWS)}
READ, ANSWERED = "read", "answered"

FILES: dict[str, tuple[str, bytes, str, str]] = {
    # name: (file name, content, read or answered, target)
    "plain": ("plain.csv", text(frame()), READ, "label"),
    "odd file name": ("my table, (v1) 'x'=1 $HOME.csv", text(frame()), READ, "label"),
    "odd column names": ("odd.csv", text(frame().rename(columns=ODD)), READ, "${y}: 50%"),
    "gz": ("t.csv.gz", gzip.compress(text(frame())), READ, "label"),
    "bz2": ("t.csv.bz2", bz2.compress(text(frame())), READ, "label"),
    "xz": ("t.csv.xz", lzma.compress(text(frame())), READ, "label"),
    "zip": ("t.zip", binary(frame(), "zip"), READ, "label"),
    "parquet": ("t.parquet", binary(frame(), "parquet"), READ, "label"),
    "excel": ("t.xlsx", binary(frame(), "excel"), READ, "label"),
    "parquet with text and dates": ("u.parquet", binary(frame(town=TOWNS, day=DAYS), "parquet"), ANSWERED, "label"),
    "excel with text, dates and gaps": (
        "u.xlsx", binary(with_cells("x", {3: None}).assign(town=TOWNS, day=DAYS), "excel"), ANSWERED, "label"
    ),
    "UTF-16": ("t16.csv", text(frame(town=TOWNS)).decode().encode("utf-16"), ANSWERED, "label"),
    "cp1252": ("t1252.csv", text(frame()).decode().replace("yes", "j\u00e4").encode("cp1252"), READ, "label"),
    "byte order mark": ("bom.csv", b"\xef\xbb\xbf" + text(frame()), READ, "label"),
    "blanks": ("blanks.txt", text(frame()).replace(b",", b"  "), READ, "label"),
    "tabs": ("tabs.tsv", text(frame(), sep="\t"), READ, "label"),
    "decimal commas": ("comma.csv", text(COMMAS, sep=";"), ANSWERED, "label"),
    "decimal commas in the target": ("comma2.csv", text(COMMAS, sep=";"), ANSWERED, "x"),
    "thousands": ("thousands.csv", text(frame(v=[f"{i * 1237 + 1000:,}.5" for i in range(ROWS)])), ANSWERED, "label"),
    "no header": ("none.csv", text(frame(), header=False), ANSWERED, "label"),
    "only numbers": ("none2.csv", text(frame().replace({"yes": 1, "no": 0}), header=False), ANSWERED, "label"),
    "a title": ("title.csv", b"Report of 2020\n\n" + text(frame()), ANSWERED, "label"),
    "surplus fields": ("surplus.csv", text(frame()) + b"1,2,no,9,9\n", ANSWERED, "label"),
    "short rows": ("short.csv", text(frame()) + b"1\n", ANSWERED, "label"),
    "pandas index": ("index.csv", frame().to_csv().encode(), READ, "label"),
    "row numbers": ("numbers.csv", text(frame(id=range(1, ROWS + 1))), READ, "label"),
    "two columns of one name": ("twice.csv", text(frame()).replace(b"x,z", b"x,x"), READ, "label"),
    "constant columns": ("constant.csv", text(frame(k=7, town="Oslo", empty=None)), READ, "label"),
    "categories": ("towns.csv", text(frame(town=TOWNS)), ANSWERED, "label"),
    "categories with gaps": ("towns2.csv", text(frame(town=SOME_TOWNS)), ANSWERED, "label"),
    "names": ("names.csv", text(frame(name=[f"n{i}" for i in range(ROWS)])), ANSWERED, "label"),
    "dates": ("dates.csv", text(frame(day=DAYS.strftime("%d.%m.%Y"), at="12:30")), ANSWERED, "label"),
    "gaps": ("gaps.csv", text(with_cells("x", {3: None, 5: None})), ANSWERED, "label"),
    "gaps in the target": ("gaps2.csv", text(with_cells("label", {3: None})), ANSWERED, "label"),
    "question marks": ("marks.csv", text(with_cells("z", {3: "?", 5: "unknown"})), ANSWERED, "label"),
    "infinite": ("inf.csv", text(with_cells("x", {3: "inf", 5: "-inf"})), ANSWERED, "label"),
    "infinite target": ("inf2.csv", text(REGRESSION.assign(y=TARGET.where(TARGET.index != 4, "inf"))), ANSWERED, "y"),
    "text in a real target": (
        "text.csv", text(REGRESSION.assign(y=TARGET.where(TARGET.index != 4, "n.d."))), ANSWERED, "y"
    ),
    "too large": ("large.csv", text(with_cells("x", {3: 1e305})), ANSWERED, "label"),
    "extremes": ("extremes.csv", text(frame().assign(**EXTREMES)), READ, "label"),
    "denormal": ("denormal.csv", text(frame().assign(d=np.arange(ROWS) % 2 * 5e-324)), READ, "label"),
    "everything": ("everything.csv", text(MANY), ANSWERED, "label"),
    "Excel's UTF-16 text": (
        "tabs16.txt", text(COMMAS, sep="\t").decode().encode("utf-16"), ANSWERED, "label"
    ),
    "cp1252, decimal commas, separators at the ends of lines": (
        "german.csv", text(COMMAS.rename(columns={"z": "gr\u00f6\u00dfe"}), sep=";").decode()
        .replace("\n", ";\n").encode("cp1252"), ANSWERED, "label"
    ),
    "separators at the ends of the rows": (
        "ends.csv", text(frame()).replace(b"\n", b",\n").replace(b"label,", b"label", 1), READ, "label"
    ),
    "empty lines": ("empty.csv", text(frame()).replace(b"\n", b"\n\n", 20) + b",,\n,,\n", ANSWERED, "label"),
    "quotes with line breaks": (
        "breaks.csv", text(frame(note=[f'line {i}\nof "two", {i}' for i in range(ROWS)])), ANSWERED, "label"
    ),
    "percent signs": ("percent.csv", text(frame(p=[f"{i % 7 * 5}.5 %" for i in range(ROWS)])), ANSWERED, "label"),
    "currency": ("dollar.csv", text(frame(p=[f"-${i * 1237.5:,.2f}" for i in range(ROWS)])), ANSWERED, "label"),
    "currency after decimal commas": (
        "euro.csv", text(COMMAS[["x", "label"]].assign(p=[f"{i * 1237},5 \u20ac" for i in range(ROWS)]), sep=";"),
        ANSWERED, "label"
    ),
    "blanks between thousands": (
        "blank.csv", text(frame(p=[f"{i * 1237.5:,.1f}".replace(",", "\u202f") for i in ROW])), ANSWERED, "label"
    ),
    "minus signs of Unicode": (
        "minus.csv", text(frame(p=[f"\u2212{i}.5" for i in range(ROWS)])), ANSWERED, "label"
    ),
    "one column with decimal commas": (
        "mixed.csv", text(COMMAS.assign(w=np.linspace(0, 1, ROWS)), sep=";"), ANSWERED, "label"
    ),
    "numbers and text in equal parts": (
        "types.csv", text(frame(m=[f"a{i}" if i % 4 == 0 else i for i in range(ROWS)])), ANSWERED, "label"
    ),
    "truth words": (
        "truth.csv", text(frame(a=np.where(ROW % 3 == 0, "TRUE", "FALSE"), b=np.where(ROW % 2, "ja", "nein"))),
        ANSWERED, "label"
    ),
    "a class in one row, which is a test row": (
        "rare.csv", text(frame().assign(label=[*("a", "b") * 29, "a", "rare"])), ANSWERED, "label"
    ),
    "a very long text": ("long.csv", text(frame(t=["word " * 40_000 + str(i) for i in ROW])), ANSWERED, "label"),
    "dashes for missing values": ("dashes.csv", text(with_cells("x", {0: "-", 1: "--", 2: "-x"})), ANSWERED, "label"),
    "200 columns with problems": ("wide.csv", text(wide()), ANSWERED, "label"),
    "the target is missing in half of the rows": (
        "half.csv", text(frame().assign(label=lambda t: t["label"].where(ROW % 2 == 0))), ANSWERED, "label"
    ),
    "a title with separators": ("title2.csv", b"# made here, in 2020\n" + text(frame()), ANSWERED, "label"),
    "excel with a title": ("title.xlsx", binary(frame(), "title.csv.xlsx"), ANSWERED, "label"),
    "excel without a header": ("none.xlsx", binary(frame(), "none.csv.xlsx"), ANSWERED, "label"),
    "a line with units": ("units.csv", text(frame()).replace(b"\n", b"\nkg,m,-\n", 1), ANSWERED, "label"),
    "line ends of old Macintoshes": ("cr.csv", text(frame()).replace(b"\n", b"\r"), READ, "label"),
}  # fmt: skip


def load(words: list[str]) -> None:
    """Load, split and scale the table of a `proxlearn fit` command, in this process.

    Check that a prediction reads the same features from the same file.
    """
    config = config_of(*overrides(build_parser().parse_args(words)))
    prepared = prepare(registry.load(config.dataset), config.dataset, config.split_seed)
    check_magnitudes(prepared, ("float64",))
    assert np.isfinite(prepared.table.X).all()
    assert np.isfinite(prepared.train.X.numpy()).all()
    table, form = prepared.table, replace(table_format(config.dataset), bad_lines=None)
    rows = RowEncoder(prepared.encoder, form, tuple(config.dataset.missing_values or ()))
    columns = ColumnSpec(rows, table.target_columns, ignore_extra=True)
    with RowReader(str(config.dataset.path)) as reader:
        if config.dataset.bad_lines is not None:
            # A prediction has one row per line, so lines are never left out.
            with pytest.raises(InputError, match="delete the surplus fields of these lines, or delete the lines"):
                list(reader.chunks(columns))
            return
        X = np.concatenate([chunk.X for chunk in reader.chunks(columns)])
    # A row without a target is predicted, but it is not a training row.
    assert {*map(tuple, table.X)} <= {*map(tuple, X)}


def followed(words: list[str]) -> str:
    """Load a table, run the remedy of its message as it stands, and return the message."""
    try:
        load(words)
    except TableProblems as error:
        message = str(error.for_command(shlex.join(["proxlearn", "fit", *words])))
        assert message.isprintable()
        program, command, *options = shlex.split(message.rpartition("; run: ")[2])
        assert (program, command) == ("proxlearn", "fit")
        load(options)
        return message
    return ""


@pytest.mark.parametrize("case", FILES, ids=FILES)
def test_a_messy_file_is_read_or_its_remedy_works(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(FILES) >= 40
    monkeypatch.chdir(tmp_path)
    name, content, expected, target = FILES[case]
    Path(name).write_bytes(content)
    message = followed([name, "--target", target])
    assert bool(message) == (expected == ANSWERED), message


def test_one_message_names_every_problem_with_its_row_and_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("everything.csv").write_bytes(text(MANY))
    message = followed(["everything.csv", "--target", "label"])
    for part in (
        "target column `label` lacks a value in data row 8",
        "column `id` contains text with 60 different values ('k0' in data row 1)",
        "column `town` contains text with 3 categories ('Oslo' in data row 1)",
        "column `day` contains dates ('2020-01-01' in data row 1)",
        "column `x` contains text among its numbers: '?' (in 1 of 59 rows, first in data row 10)",
        "column `x` lacks a value in data row 5",
        "column `z` has an infinite value in data row 3",
    ):
        assert part in message
    assert message.endswith(
        "run: proxlearn fit everything.csv --target label --missing median --drop id --drop day --encode onehot "
        "--missing-value '?' --missing-value inf"
    )


@pytest.mark.parametrize("name, content", [("e.csv", b""), ("h.csv", b"x,label\n"), ("one.csv", b"x,label\n1,a\n")])
def test_a_table_without_rows_asks_for_rows(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match="at least"):
        load([str(path), "--target", "label"])
    path.write_bytes(text(frame()))
    load([str(path), "--target", "label"])


def test_problems_that_no_setting_solves_are_in_the_same_message_and_the_command_works_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ids = frame(a=[f"k{i}" for i in range(ROWS)])[["a", "label"]]
    Path("ids.csv").write_bytes(text(ids))
    with pytest.raises(TableProblems) as caught:
        load(["ids.csv", "--target", "label"])
    message = str(caught.value.for_command("proxlearn fit ids.csv --target label"))
    assert "column `a` contains text with 60 different values" in message
    remedy, _, command = message.rpartition(", then run: ")
    assert remedy.endswith("add a column of numbers or a column with a few categories to the table")
    Path("ids.csv").write_bytes(text(ids.assign(x=frame()["x"])))
    load(shlex.split(command)[2:])


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.csv", text(frame().assign(label=None)), "target column `label` has no value in any row; choose another"),
        ("t.csv", text(frame().assign(label="yes")), "`label` has only one distinct value, `yes`; choose another"),
        (
            "t.csv",
            text(frame().assign(label=np.linspace(-1, 1, ROWS) * 1.7e308)),
            "-1.7e\\+308 in data row 1 of target",
        ),
        ("t.csv", text(frame()).replace(b"no", b'"no', 1), "a quote is opened in row .*, and never closed; correct"),
        ("t.json", frame().to_json(orient="records").encode(), "is a JSON file, not a table; save it as a .csv file"),
    ],
)
def test_a_table_that_no_setting_makes_usable_is_one_line(
    name: str, content: bytes, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        load([str(tmp_path / name), "--target", "label"])
    assert not isinstance(caught.value, TableProblems)
    assert capfd.readouterr().err == ""


def test_a_notice_about_a_table_is_printed_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "t.csv").write_bytes(text(frame(stadt="K\u00f6ln", town=TOWNS)).decode().encode("cp1252"))
    with pytest.raises(TableProblems):
        load([str(tmp_path / "t.csv"), "--target", "label"])
    assert capfd.readouterr().err.count("it is read as cp1252") == 1


def test_a_damaged_archive_and_an_archive_of_two_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(text(frame()))[:-20])
    with pytest.raises(InputError, match="cannot be decompressed"):
        load([str(tmp_path / "cut.csv.gz"), "--target", "label"])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.writestr(name, text(frame()))
    with pytest.raises(InputError, match=r"a single file, not 2 \(a.csv, b.csv\); extract the archive"):
        load([str(tmp_path / "two.zip"), "--target", "label"])


@pytest.mark.parametrize("chunk", [1, 3, 50])
@pytest.mark.parametrize(
    "cell, message",
    [
        ("inf", "column `x` has an infinite value in data row 4; write a number in every row"),
        ("1e305", "the value 1e\\+305 in data row 4 of column `x` is too large; convert the column to another unit"),
    ],
)
def test_a_number_is_located_in_the_whole_table_if_incomplete_rows_are_left_out(
    cell: str, message: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, "MAX_CHUNK_ROWS", chunk)
    (tmp_path / "new.csv").write_text(f"x,z\n1,5\n,5\n2,\n{cell},5\n3,5\n")
    columns = ColumnSpec(RowEncoder(FeatureEncoder(("x", "z"), missing="drop")))
    with RowReader(str(tmp_path / "new.csv")) as reader, pytest.raises(InputError, match=message):
        list(reader.chunks(columns))
