"""From the command line, each dataset and a user's table can be trained, and errors leave nothing behind."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_module

from proxlearn import cli
from proxlearn.config.compose import register_resolvers
from proxlearn.run.config_validation import validate_config
from proxlearn.run.train import train as train_run
from proxlearn.views.run import run_data, run_views
from tests.data.test_messy_files import DAYS, ROWS, TOWNS, frame, text, with_cells

SHORT = ["steps=12", "N=20", "threads=1", "hydra.run.dir=run"]
METRICS = [
    f"{part}_{quantity}_{estimate}"
    for part in ("train", "test")
    for quantity in ("risk", "accuracy", "log_loss", "risk_paper")
    for estimate in ("weighted", "unweighted")
]


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("HYDRA_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0"))


def train(*args: str) -> int:
    """Run the command as a user types it, with its tables and plots."""
    return cli.main(["train", *args, *SHORT])


def train_without_views(*args: str) -> Path:
    """Make the same run without drawing, which takes longer than a short run."""
    register_resolvers()
    with initialize_config_module("proxlearn.configs", version_base="1.3"):
        config = validate_config(compose("train", [*args, *SHORT], return_hydra_config=True))
    return train_run(config, Path("run").absolute(), command="a test").folder


@pytest.mark.parametrize("name", ["banana", "diabetes", "twonorm", "shd", "digits", "wdbc"])
def test_every_classification_set_trains_and_its_figures_agree(name: str, request: pytest.FixtureRequest) -> None:
    if name in ("banana", "diabetes", "twonorm", "shd"):
        request.getfixturevalue("paper_files")
    train_without_views(f"dataset={name}")
    metrics = pd.read_csv("run/metrics.csv")
    assert metrics["step"].iloc[-1] == 12
    assert np.isfinite(metrics[METRICS].to_numpy()).all()
    assert ("test_accuracy_particle" in metrics) == (name in ("shd", "digits"))
    accuracy = pd.read_csv("run/accuracy.csv").set_index(["part", "estimate"])
    last = metrics.iloc[-1]
    assert accuracy.loc[("test", "weighted"), "accuracy"] == pytest.approx(last["test_accuracy_weighted"])
    confusion = pd.read_csv("run/confusion.csv").query("part == 'test' and estimate == 'weighted'")
    C = len(json.loads(Path("run/model.json").read_text())["classes"])
    assert len(confusion) == C * C
    hits = confusion.query("actual == predicted")["count"].sum()
    assert hits / confusion["count"].sum() == pytest.approx(last["test_accuracy_weighted"])
    remarks = " ".join(run_views.remarks(run_data.read_run_data(Path("run"))))
    assert ("scaling=paper" in remarks) == (name in ("banana", "diabetes", "twonorm"))
    assert ("separately for each part" in remarks) == (name in ("banana", "diabetes"))


@pytest.mark.parametrize(
    ("name", "pictures"),
    [("banana", ["regions", "confusion"]), ("shd", ["images", "confusion"])],
)
def test_views_are_drawn_from_the_folder_alone(
    name: str, pictures: list[str], paper_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_without_views(f"dataset={name}")
    monkeypatch.delenv("PROXLEARN_DATA")
    Path("run").rename("moved")
    assert cli.main(["plot", "moved"]) == 0
    for picture in pictures:
        assert Path(f"moved/{picture}.png").stat().st_size > 10_000
        assert Path(f"moved/{picture}.pdf").is_file()


def own_table(rows: int = 60, name: str = "my.csv", seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(5, 3, size=(rows, 2)), columns=["east", "north"])
    frame["two"] = np.where(frame["east"] > 5, "right", "left")
    frame["three"] = pd.cut(frame["north"], [-99, 4, 6, 99], labels=["low", "mid", "high"])
    frame["real"] = 1000 * frame["east"] + 7
    frame.to_csv(name, index=False)
    return frame


@pytest.mark.parametrize("task", ["two", "three", "real"])
def test_own_table_of_each_task(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    own_table()[["east", "north", task]].to_csv("my.csv", index=False)
    train_without_views("dataset=csv", "dataset.path=my.csv", f"dataset.target={task}")
    model = json.loads(Path("run/model.json").read_text())
    assert model["task"] == {"two": "binary", "three": "multiclass", "real": "regression"}[task]
    assert model["neuron"] == {"two": "tanh", "three": "softmax_intercept", "real": "tanh"}[task]
    assert f"column `{task}` is treated as" in capsys.readouterr().err
    remarks = " ".join(run_views.remarks(run_data.read_run_data(Path("run"))))
    assert ("The target was standardised" in remarks) == (task == "real")


def test_own_table_from_the_command_to_the_pictures(capsys: pytest.CaptureFixture[str]) -> None:
    own_table()[["east", "north", "three"]].to_csv("my.csv", index=False)
    assert train("dataset=csv", "dataset.path=my.csv", "dataset.target=three") == 0
    assert "finished at step 12" in capsys.readouterr().out
    assert Path("run/regions.png").stat().st_size > 10_000
    assert "`particle`" in Path("run/accuracy.md").read_text()


def test_model_json_holds_the_scaling_that_prediction_needs() -> None:
    frame = own_table()[["east", "north", "two"]]
    frame.to_csv("my.csv", index=False)
    train_without_views("dataset=csv", "dataset.path=my.csv", "dataset.target=two", "dataset.split=file_order")
    scaling = json.loads(Path("run/model.json").read_text())["scaling"]
    training = frame[["east", "north"]].to_numpy()[:42]
    np.testing.assert_allclose(scaling["shift"], training.mean(axis=0))
    np.testing.assert_allclose(scaling["factor"], 1 / training.std(axis=0))
    points = pd.read_csv("run/points.csv")
    np.testing.assert_allclose(points[["x0", "x1"]].to_numpy()[:42], training)


def test_a_run_whose_data_changed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["dataset=csv", "dataset.path=my.csv", "dataset.target=two", "dataset.task=binary"]
    own_table()[["east", "north", "two"]].to_csv("my.csv", index=False)
    train_without_views(*command)
    capsys.readouterr()
    before = Path("run/status.json").read_text()
    own_table(seed=1)[["east", "north", "two"]].to_csv("my.csv", index=False)
    for steps in ("steps=12", "steps=24"):
        assert cli.main(["train", *command, *SHORT, steps]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert re.search(r"the data of the run in .*run have changed since", error)
        assert Path("run/status.json").read_text() == before


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["dataset.path=absent.csv", "dataset.target=two"], "dataset.path: the file absent.csv does not exist"),
        (["dataset.path=my.csv"], "needs the name of the column to predict"),
        (["dataset.path=my.csv", "dataset.target=tow"], "no column `tow`; did you mean `two`?"),
        (["dataset.path=my.csv", "dataset.target=two"], "column `three` contains text"),
        (
            ["dataset.path=one.csv", "dataset.target=two", "dataset.scaling=paper"],
            "dataset.scaling=paper is not defined for dataset=csv",
        ),
        (
            ["dataset.path=one.csv", "dataset.target=two", "dataset.scaling=maxmin"],
            "dataset.scaling cannot be 'maxmin'",
        ),
        (
            ["dataset.path=one.csv", "dataset.target=two", "dataset.neuron=softmax"],
            "the softmax neuron does not support dataset.task=binary",
        ),
        (
            ["dataset.path=one.csv", "dataset.target=two", "dataset.train_fraction=0.999"],
            "leaves the training or test part empty",
        ),
        (["dataset.path=one.csv", "dataset.target=two", "N=10000000000", "weights=uniform"], "rows need about"),
    ],
)
def test_bad_data_gets_one_line_exit_code_2_and_leaves_nothing(
    args: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own_table()[["east", "north", "two"]].to_csv("one.csv", index=False)
    own_table()
    before = sorted(tmp_path.iterdir())
    assert cli.main(["train", "dataset=csv", "dataset.task=binary", "steps=2", *args]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error
    assert sorted(tmp_path.iterdir()) == before


def test_an_error_in_an_empty_folder_leaves_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "empty"
    here.mkdir()
    monkeypatch.chdir(here)
    assert cli.main(["train", "dataset=csv", "dataset.path=no.csv"]) == 2
    assert here.is_dir()
    assert list(here.iterdir()) == []


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
    assert f"proxlearn: {ROWS} rows -> out.csv\n" in capfd.readouterr().err
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
    printed = capfd.readouterr().err
    assert "column `town` contains 'Paris', which does not occur in the training rows" in printed
    unseen = sum(town == "Oslo" and (missing != "drop" or i not in (3, 5)) for i, town in enumerate(TOWNS))
    count = f"{ROWS} rows -> out.csv; rows with a category that does not occur in the training rows: {unseen}"
    assert f"proxlearn: {count}\n" in printed
    Path("text.csv").write_bytes(text(with_cells("x", {4: "unknown"}).assign(town=TOWNS)))
    assert cli.main(["predict", "run", "--data", "text.csv", "-o", "text-out.csv"]) == 2
    assert "for a missing value, leave an empty cell or the marker '?'" in capfd.readouterr().err
    assert cli.main(["evaluate", "run", "--data", "my.csv", "--json"]) == 0
    assert f'"rows": {ROWS - 2 * (missing == "drop")}' in capfd.readouterr().out
    # Rows 4 and 6 are incomplete; later rows keep their numbers, although missing=drop leaves these two rows out.
    Path("wrong.csv").write_bytes(text(table.assign(label=table["label"].where(table.index != 7, "maybe"))))
    assert cli.main(["evaluate", "run", "--data", "wrong.csv"]) == 2
    assert "the value 'maybe' in data row 8 of column `label`" in capfd.readouterr().err
    Path("large.csv").write_bytes(text(table.assign(z=table["z"].where(table.index != 7, 1e305))))
    for command in ("predict", "evaluate"):
        assert cli.main([command, "run", "--data", "large.csv"]) == 2
        problem = "the value 1e+305 in data row 8 of column `z` is too large; convert the column to another unit"
        assert problem in capfd.readouterr().err


def test_several_targets_are_fitted_predicted_and_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    table = frame().assign(label=lambda t: 100 * t["x"] + t["z"])
    Path("my.csv").write_bytes(text(table.assign(w=np.linspace(0, 1, ROWS) ** 2)))
    short = [word for setting in ("N=10", "steps=4", "compile=off", "threads=1") for word in ("--set", setting)]
    short += [word for setting in ("beta=1e4", "h=0.1", "epsilon=1", "init_scale=1") for word in ("--set", setting)]
    assert cli.main(["fit", "my.csv", "--target", "label", "--target", "x", *short, "-o", "John's run"]) == 0
    # The printed command can be copied, although the name of the folder contains a space and a quote.
    (printed,) = re.findall("Predict new rows: proxlearn (.*)", capfd.readouterr().out)
    Path("new.csv").write_bytes(Path("my.csv").read_bytes())
    assert cli.main(shlex.split(printed)) == 0, capfd.readouterr().err
    predictions = pd.read_csv("out.csv")
    assert list(predictions.columns) == ["prediction_label", "prediction_x", "spread_label", "spread_x"]
    capfd.readouterr()
    assert cli.main(["evaluate", "John's run", "--data", "my.csv", "--json"]) == 0
    metrics = pd.read_json(io.StringIO(capfd.readouterr().out), typ="series")["weighted"]
    for name in ("label", "x"):
        error = np.sqrt(np.mean((predictions[f"prediction_{name}"] - table[name]) ** 2))
        assert metrics[f"rmse_in_units_{name}"] == pytest.approx(error, rel=1e-9)


def test_the_error_of_a_large_number_is_in_its_units_and_without_an_exponent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_bytes(text(frame().assign(label=lambda t: 1e6 + 5e4 * t["x"])))
    short = [word for setting in ("N=10", "steps=4", "compile=off", "threads=1") for word in ("--set", setting)]
    short += [word for setting in ("beta=1e4", "h=0.1", "epsilon=1", "init_scale=1") for word in ("--set", setting)]
    assert cli.main(["fit", "my.csv", "--target", "label", *short, "-o", "run"]) == 0
    (row,) = re.findall(r"typical error \(RMSE, in units of `label`\) *\|(.*)", capfd.readouterr().out)
    model, mean = (float(cell) for cell in row.strip(" |").split("|"))
    assert "e+" not in row
    assert 1e4 < model < 1e6
    assert 1e4 < mean < 1e6


def test_a_table_of_six_rows_is_fitted_without_a_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.csv").write_text("x,label\n" + "".join(f"{i % 2}.{i},{i % 2}\n" for i in range(6)))
    short = ["--set", "N=10", "--set", "compile=off", "--set", "threads=1"]
    assert cli.main(["fit", "my.csv", "--target", "label", *short, "-o", "run"]) == 0
    printed = capfd.readouterr()
    assert "the training part has only 5 rows, too few for a selection" in printed.err
    assert "held-out quarter" not in printed.err
    assert "on 1 row that was not used for the fit" in printed.out
