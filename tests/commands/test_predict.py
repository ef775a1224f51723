"""``proxlearn predict`` and ``evaluate`` need only a run folder, and agree with the run's own metrics."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_blobs

from proxlearn import cli
from proxlearn.data import new_rows as rows_module
from proxlearn.predict.model import load_model
from tests.small_runs import composed, run

TASKS = ("two", "three", "real")


def table(task: str) -> pd.DataFrame:
    """Return 120 rows with two features and the target `kind` or `size`."""
    X, y = make_blobs(120, n_features=2, centers=2 if task == "two" else 3, cluster_std=3.0, random_state=1)
    frame = pd.DataFrame(X, columns=["length", "petal width"])
    if task == "real":
        return frame.assign(size=10 + X[:, 0] - 2 * np.tanh(X[:, 1]))
    return frame.assign(kind=np.array(["no", "yes", "may, be"])[y])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run per task, its table and the test part of the table."""
    folder = tmp_path_factory.mktemp("runs")
    for task in TASKS:
        frame = table(task)
        path = folder / f"{task}.csv"
        frame.to_csv(path, index=False)
        target = frame.columns[-1]
        config = composed("dataset=csv", f"dataset.path={path}", f"dataset.target={target}", "compile=off", "N=20",
                          "steps=60", "threads=1", "device.dtype=float64")  # fmt: skip
        run(config, folder / task)
        order = np.random.default_rng(0).permutation(len(frame))
        frame.iloc[order[84:]].to_csv(folder / f"{task}-test.csv", index=False)
    return folder


def predicted(*words: object, capsys: pytest.CaptureFixture[str]) -> pd.DataFrame:
    assert cli.main(["predict", *map(str, words)]) == 0
    return pd.read_csv(io.StringIO(capsys.readouterr().out))


def refused(*words: object, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one-line message of an error."""
    capsys.readouterr()
    assert cli.main([*map(str, words)]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.parametrize("task", TASKS)
def test_evaluate_repeats_the_metrics_of_the_run(runs: Path, task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(runs / task), "--data", str(runs / f"{task}-test.csv"), "--json"]) == 0
    metrics = json.loads(capsys.readouterr().out)
    own = pd.read_csv(runs / task / "accuracy.csv").query("part == 'test'").set_index("estimate")
    assert metrics["rows"] == 36
    for estimate in ("weighted", "unweighted"):
        for name in own.columns.drop("part"):
            assert metrics[estimate][name] == pytest.approx(own.loc[estimate, name], rel=1e-9), (estimate, name)


def test_the_table_of_evaluate_shows_every_quantity(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", str(runs / "two"), "--data", str(runs / "two-test.csv")]) == 0
    output = capsys.readouterr().out
    for word in ("36 rows", "accuracy", "log_loss", "calibration_error", "| weighted", "| unweighted"):
        assert word in output


def test_a_real_target_is_scored_in_its_own_units_too(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = table("real")
    predictions = predicted(runs / "real", "--data", runs / "real.csv", capsys=capsys)
    assert cli.main(["evaluate", str(runs / "real"), "--data", str(runs / "real.csv"), "--json"]) == 0
    rmse = np.sqrt(np.mean((predictions["prediction"] - frame["size"]) ** 2))
    assert json.loads(capsys.readouterr().out)["weighted"]["rmse_in_units"] == pytest.approx(rmse, rel=1e-9)


def test_an_undefined_metric_is_null_or_called_undefined(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (runs / "real.csv").read_text().splitlines()
    (tmp_path / "one.csv").write_text("\n".join(lines[:2]) + "\n")
    words = ["evaluate", str(runs / "real"), "--data", str(tmp_path / "one.csv")]
    assert cli.main([*words, "--json"]) == 0

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    metrics = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert metrics["weighted"]["r2"] is None
    assert metrics["weighted"]["rmse"] >= 0
    assert cli.main(words) == 0
    assert capsys.readouterr().out.count("undefined") == 2


@pytest.mark.parametrize("task", ["two", "three"])
def test_labels_are_the_most_probable_classes_by_their_names(
    runs: Path, task: str, capsys: pytest.CaptureFixture[str]
) -> None:
    predictions = predicted(runs / task, "--data", runs / f"{task}.csv", capsys=capsys)
    classes = sorted(table(task)["kind"].unique())
    assert list(predictions.columns) == ["prediction", *(f"probability_{name}" for name in classes), "spread"]
    probabilities = predictions.filter(like="probability_")
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    assert [classes[i] for i in probabilities.to_numpy().argmax(axis=1)] == predictions["prediction"].tolist()
    assert (predictions["prediction"] == table(task)["kind"]).mean() > 0.7
    assert (predictions["spread"] > 0).all()


def test_the_order_of_columns_and_the_size_of_chunks_do_not_matter(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = predicted(runs / "three", "--data", runs / "three.csv", capsys=capsys)
    table("three")[["petal width", "length"]].to_csv(tmp_path / "new.csv", index=False, sep=";")
    monkeypatch.setattr(rows_module, "MAX_CHUNK_ROWS", 7)
    predictions = predicted(runs / "three", "--data", tmp_path / "new.csv", capsys=capsys)
    pd.testing.assert_frame_equal(predictions, expected, rtol=1e-12)


def test_model_json_and_the_cloud_are_enough(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = predicted(runs / "two", "--data", runs / "two.csv", capsys=capsys)
    shutil.copytree(runs / "two" / "checkpoints", tmp_path / "bare" / "checkpoints")
    shutil.copy(runs / "two" / "model.json", tmp_path / "bare")
    predictions = predicted(tmp_path / "bare", "--data", runs / "two.csv", capsys=capsys)
    pd.testing.assert_frame_equal(predictions, expected)


def test_standard_input_and_output_and_a_kept_column(runs: Path) -> None:
    frame = table("real").drop(columns="size")
    frame.insert(0, "id", [f"0{i}" for i in range(len(frame))])
    words = [sys.executable, "-m", "proxlearn", "predict", str(runs / "real"), "--data", "-", "--keep", "id"]
    completed = subprocess.run(words, input=frame.to_csv(index=False), capture_output=True, text=True, check=True)
    predictions = pd.read_csv(io.StringIO(completed.stdout), dtype={"id": str})
    assert predictions["id"].tolist() == frame["id"].tolist()
    values = load_model(runs / "real").predict(frame[["length", "petal width"]].to_numpy()).predicted
    np.testing.assert_array_equal(predictions["prediction"], values)


@pytest.mark.parametrize(
    "edit, message",
    [
        ({"rename": {"petal width": "petal_width"}}, "lacks the column `petal width`*rename `petal_width`"),
        ({"drop": "length"}, "lacks the column `length`*all feature columns of the training table"),
        ({"add": "id"}, "has the column `id`, which the model does not use*--keep id"),
        (
            {"cell": "abc"},
            "the value 'abc' in data row 118 of column `length` is not a number*write a number in every row",
        ),
        ({"cell": ""}, "column `length` lacks a value in data row 118*write a number in every row"),
        ({"cell": "1e999"}, "column `length` has an infinite value in data row 118*write a number in every row"),
        ({"cell": "1,5"}, "the value '1,5' in data row 118 of column `length` is not a number*with a decimal point"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_line(
    runs: Path, tmp_path: Path, edit: dict, message: str, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(rows_module, "MAX_CHUNK_ROWS", 50)
    frame = table("two").rename(columns=edit.get("rename", {})).drop(columns=edit.get("drop", []))
    if "add" in edit:
        frame[edit["add"]] = 1
    if "cell" in edit:
        frame["length"] = frame["length"].astype(str)
        frame.loc[117, "length"] = edit["cell"]
    frame.to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "out.csv"
    line = refused("predict", runs / "two", "--data", tmp_path / "new.csv", "-o", output, capsys=capsys)
    for part in message.split("*"):
        assert part in line
    # No partial file and no temporary file is left.
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_extra_columns_can_be_ignored(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = predicted(runs / "two", "--data", runs / "two.csv", capsys=capsys)
    table("two").assign(id="x").to_csv(tmp_path / "new.csv", index=False)
    predictions = predicted(runs / "two", "--data", tmp_path / "new.csv", "--ignore-extra", capsys=capsys)
    pd.testing.assert_frame_equal(predictions, expected)


def test_wrong_arguments_get_a_remedy(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = runs / "two.csv"
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("length,petal width\n")
    cases = {
        ("predict", tmp_path / "none", "--data", data): "none does not exist",
        ("predict", tmp_path / "empty", "--data", data): "no model.json",
        ("predict", runs / "two", "--data", tmp_path / "none.csv"): "none.csv does not exist",
        ("predict", runs / "two", "--data", tmp_path / "empty.csv"): "is empty",
        ("predict", runs / "two", "--data", data, "-o", data): "is also the input file",
        ("predict", runs / "two", "--data", data, "-o", tmp_path / "no" / "out.csv"): "cannot write",
        ("predict", runs / "two", "--data", data, "--keep", "lenght"): "did you mean `length`",
        ("evaluate", runs / "two", "--data", data, "--target", "kinds"): "did you mean `kind`",
    }
    for words, message in cases.items():
        assert message in refused(*words, capsys=capsys)
    wrong = table("two")
    wrong.loc[3, "kind"] = "yess"
    wrong.to_csv(tmp_path / "wrong.csv", index=False)
    line = refused("evaluate", runs / "two", "--data", tmp_path / "wrong.csv", capsys=capsys)
    assert "'yess' in data row 4" in line
    assert "did you mean `yes`?" in line


@pytest.mark.parametrize(
    "damage", [{"neuron": "none"}, {"columns": ["length"]}, {"scaling": {"shift": [1], "factor": [0]}}, {"task": None}]
)
def test_a_model_that_does_not_fit_its_cloud_is_refused(
    runs: Path, tmp_path: Path, damage: dict, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(runs / "two", tmp_path / "run")
    described = json.loads((tmp_path / "run" / "model.json").read_text()) | damage
    (tmp_path / "run" / "model.json").write_text(json.dumps(described))
    assert "model.json" in refused("predict", tmp_path / "run", "--data", runs / "two.csv", capsys=capsys)


def test_labels_are_matched_as_numbers_and_truth_values() -> None:
    from proxlearn.data.target_encoding import indices, infer_target

    for values, texts, expected in (
        (np.array([0, 1, 2] * 2), ["2", "0.0", " 1", "1e0"], [2, 0, 1, 1]),
        (np.array([1234567.0, 0.5] * 2), ["1234567", "1.234567e6", ".5"], [1, 1, 0]),
        (np.array([True, False]), ["true", "FALSE", "True"], [1, 0, 1]),
        (np.array(["01", "1", "x"]), ["01", "1", "x", "X"], [0, 1, 2, -1]),
    ):
        classes = infer_target(np.tile(values, 2), "t", None if len(set(values)) == 2 else "multiclass").classes
        assert indices(texts, classes).tolist() == expected


def test_a_feature_can_be_kept_as_it_is_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.csv").write_text("length,petal width\n0.10,1\n-2.50,1e1\n")
    plain = predicted(runs / "real", "--data", tmp_path / "new.csv", capsys=capsys)
    assert cli.main(["predict", str(runs / "real"), "--data", str(tmp_path / "new.csv"), "--keep", "length"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == ["length", "0.10", "-2.50"]
    kept = pd.read_csv(io.StringIO("\n".join(lines)))
    pd.testing.assert_frame_equal(kept[plain.columns], plain, check_exact=True)
    for cell, message in (("1_0", "'1_0' in data row 2"), ("", "lacks a value in data row 2")):
        (tmp_path / "bad.csv").write_text(f"length,petal width\n0.10,1\n{cell},2\n")
        for more in ([], ["--keep", "length"]):
            assert message in refused("predict", runs / "real", "--data", tmp_path / "bad.csv", *more, capsys=capsys)
    (tmp_path / "bad.csv").write_text("length,petal width,size\n1,1,1_0\n")
    assert "'1_0'" in refused("evaluate", runs / "real", "--data", tmp_path / "bad.csv", capsys=capsys)


def test_an_empty_line_of_a_one_column_table_is_a_missing_value(tmp_path: Path) -> None:
    from proxlearn.errors import InputError

    def read(content: str) -> list[float]:
        (tmp_path / "new.csv").write_text(content)
        with rows_module.RowReader(str(tmp_path / "new.csv")) as rows:
            columns = rows_module.ColumnSpec(rows_module.RowEncoder(rows_module.FeatureEncoder(("a",))))
            return [x for piece in rows.chunks(columns) for x in piece.X[:, 0].tolist()]

    assert read("a\n1\n-1\n") == read("\n\na\r\n1\r\n-1") == [1.0, -1.0]
    for content in ("a\n1\n\n-1\n", "\na\n1\n\n-1\n", "a\r\n1\r\n\r\n-1\r\n"):
        with pytest.raises(InputError, match="column `a` lacks a value in data row 2"):
            read(content)


def test_an_empty_label_is_named_with_its_row(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.read_csv(runs / "two-test.csv")
    frame.loc[3, "kind"] = None
    frame.to_csv(tmp_path / "rows.csv", index=False)
    line = refused("evaluate", runs / "two", "--data", tmp_path / "rows.csv", capsys=capsys)
    assert "kind" in line
    assert "the value '' in data row 4 of column `kind`" in line


def test_points_in_a_new_table_of_a_model_with_decimal_commas_get_the_option_that_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pd.DataFrame({"x": np.linspace(-2, 2, 40), "y": np.linspace(0.5, 4.5, 40)})
    frame.to_csv(tmp_path / "mine.csv", index=False, sep=";", decimal=",")
    words = (f"dataset.path={tmp_path / 'mine.csv'}", "dataset.target=y", "dataset.decimal=comma")
    run(composed("dataset=csv", *words, "N=5", "steps=2", "threads=1", "compile=off"), tmp_path / "run")
    frame[["x"]].to_csv(tmp_path / "new.csv", index=False)
    arguments = ("predict", tmp_path / "run", "--data", tmp_path / "new.csv")
    assert "add --decimal point for this table, because the model was trained with decimal commas" in refused(
        *arguments, capsys=capsys
    )
    assert len(predicted(*arguments[1:], "--decimal", "point", capsys=capsys)) == 40
