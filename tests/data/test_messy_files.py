"""A folder of messy tables: each is read, or answered in one message whose remedy, run as it stands, works."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn import cli
from proxlearn.commands.fit import build_parser, overrides
from proxlearn.data import registry
from proxlearn.data.prepare import check_magnitudes, prepare
from proxlearn.data.table_problems import TableProblems
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
    else:
        table.to_excel(file, index=False)
    return file.getvalue()


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
}  # fmt: skip


def load(words: list[str]) -> None:
    """Load, split and scale the table of a `proxlearn fit` command, in this process."""
    config = config_of(*overrides(build_parser().parse_args(words)))
    prepared = prepare(registry.load(config.dataset), config.dataset, config.split_seed)
    check_magnitudes(prepared, ("float64",))
    assert np.isfinite(prepared.table.X).all()
    assert np.isfinite(prepared.train.X.numpy()).all()


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


def test_a_damaged_archive_and_an_archive_of_two_files_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(text(frame()))[:-20])
    with pytest.raises(InputError, match="cannot be decompressed"):
        load([str(tmp_path / "cut.csv.gz"), "--target", "label"])
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        for name in ("a.csv", "b.csv"):
            archive.writestr(name, text(frame()))
    with pytest.raises(InputError, match=r"a single file, not 2 \(a.csv, b.csv\); extract the archive"):
        load([str(tmp_path / "two.zip"), "--target", "label"])


@pytest.mark.parametrize("missing", ["indicator", "drop"])
def test_predictions_repeat_the_encoding_of_the_training_table(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = with_cells("x", {3: None, 5: "?"}).assign(town=TOWNS, id=range(ROWS), day=DAYS.astype(str))
    Path("my.csv").write_bytes(text(table))
    words = ["--encode", "onehot", "--missing", missing, "--missing-value", "?", "--drop", "id", "--drop", "day"]
    short = ["--set", "N=20", "--set", "steps=5", "--set", "compile=off", "--set", "threads=1"]
    short += ["--set", "beta=1e4", "--set", "h=0.1", "--set", "epsilon=1", "--set", "init_scale=1"]
    assert cli.main(["fit", "my.csv", "--target", "label", *words, *short, "-o", "run"]) == 0
    printed = capfd.readouterr().out
    assert "my.csv: `label`, one of 2 classes" in printed
    assert "always the most frequent class" in printed
    assert not any(word in printed for word in ("saturated", "particle", "risk_paper"))
    # The columns that were dropped may be there or not, and the order of the columns does not matter.
    Path("new.csv").write_bytes(text(table.drop(columns=["id", "label"])[["town", "z", "day", "x"]]))
    assert cli.main(["predict", "run", "--data", "new.csv", "-o", "out.csv"]) == 0, capfd.readouterr().err
    predictions = pd.read_csv("out.csv")
    assert predictions["prediction"].isna().tolist() == [missing == "drop" and i in (3, 5) for i in range(ROWS)]
    for kind in ("parquet", "xlsx"):
        typed = table.assign(x=pd.to_numeric(table["x"], errors="coerce"), z=table["z"].astype(float))
        getattr(typed, {"parquet": "to_parquet", "xlsx": "to_excel"}[kind])(f"new.{kind}", index=False)
        assert cli.main(["predict", "run", "--data", f"new.{kind}", "-o", f"out-{kind}.csv"]) == 0
        pd.testing.assert_frame_equal(pd.read_csv(f"out-{kind}.csv"), predictions)
    Path("unknown.csv").write_bytes(text(table).replace(b"Oslo", b"Paris"))
    capfd.readouterr()
    assert cli.main(["predict", "run", "--data", "unknown.csv", "-o", "out.csv"]) == 0
    assert "column `town` contains 'Paris', which does not occur in the training rows" in capfd.readouterr().err
    assert cli.main(["evaluate", "run", "--data", "my.csv", "--json"]) == 0
    assert f'"rows": {ROWS - 2 * (missing == "drop")}' in capfd.readouterr().out


def test_several_targets_are_fitted_predicted_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = frame().assign(label=lambda t: 100 * t["x"] + t["z"])
    Path("my.csv").write_bytes(text(table.assign(w=np.linspace(0, 1, ROWS) ** 2)))
    short = [word for setting in ("N=10", "steps=4", "compile=off", "threads=1") for word in ("--set", setting)]
    short += [word for setting in ("beta=1e4", "h=0.1", "epsilon=1", "init_scale=1") for word in ("--set", setting)]
    assert cli.main(["fit", "my.csv", "--target", "label", "--target", "x", *short, "-o", "run"]) == 0
    assert cli.main(["predict", "run", "--data", "my.csv", "-o", "out.csv"]) == 0, capfd.readouterr().err
    predictions = pd.read_csv("out.csv")
    assert list(predictions.columns) == ["prediction_label", "prediction_x", "spread_label", "spread_x"]
    capfd.readouterr()
    assert cli.main(["evaluate", "run", "--data", "my.csv", "--json"]) == 0
    metrics = pd.read_json(io.StringIO(capfd.readouterr().out), typ="series")["weighted"]
    for name in ("label", "x"):
        error = np.sqrt(np.mean((predictions[f"prediction_{name}"] - table[name]) ** 2))
        assert metrics[f"rmse_in_units_{name}"] == pytest.approx(error, rel=1e-9)
