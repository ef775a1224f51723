"""The data of a page is that of the folders, and nothing in a folder becomes markup."""

import base64
import hashlib
import html.parser
import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from small_runs import composed, run, small

from proxlearn.cli import main
from proxlearn.predict.model import load_model
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.views.film.cloud_history import read_cloud_history
from proxlearn.views.report.cloud_payload import quantise
from proxlearn.views.report.page import PageBuilder, as_json, render_page
from proxlearn.views.report.payload import curves
from tests.views.report.pages import HOSTILE, hostile_run, plane_run, sweep_of

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("run")
    run(small(steps=100, beta=0.1, epsilon=1.0), path)
    return path


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    return plane_run(tmp_path_factory.mktemp("plane"), ("no", "yes"))


def decode(stored: dict) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(stored["data"]), dtype="<u2").astype(float)
    return stored["low"] + whole * (stored["high"] - stored["low"]) / 65535


@given(st.lists(st.floats(-1e30, 1e30), min_size=1))
@example([0.0, 5e-324])
def test_sixteen_bits_are_off_by_half_a_step_at_most(values):
    step = (max(values) - min(values)) / 65535
    restored = decode(quantise(np.array(values)))
    np.testing.assert_allclose(restored, values, atol=0.51 * step + 1e-9 * max(map(abs, values)), rtol=0)


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists, max_leaves=5))
def test_json_in_the_page_comes_back_and_holds_no_markup(value):
    text = as_json({"value": value})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"value": value}


def test_the_page_can_run_its_own_script_only(folder):
    text = render_page(PageBuilder([folder]).data())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)[1]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{checksum}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy
    # The page refers to no other file.
    assert not re.search(r"<(link|img|iframe)|\s(src|href)=|@import|url\(", text.replace(script, ""))


def test_the_cloud_is_the_stored_one(folder):
    cloud = PageBuilder([folder]).data()["runs"][0]["cloud"]
    frames = read_cloud_history(folder)
    assert cloud["steps"] == frames.steps.tolist()
    assert cloud["names"] == ["principal axis 1", "principal axis 2", "a", "b", "w"]
    for i, coordinate in enumerate(cloud["coordinates"][2:]):
        near = np.ptp(frames.theta[..., i]) / 65535
        np.testing.assert_allclose(decode(coordinate), frames.theta[..., i].ravel(), atol=near)
    np.testing.assert_allclose(decode(cloud["weights"]), frames.log_rho.ravel(), atol=1e-3)


def test_the_learnt_function_is_the_model_at_each_frame(folder):
    learnt = PageBuilder([folder]).data()["runs"][0]["cloud"]["learnt"]
    low, high, count = learnt["ranges"][0]
    newest = load_model(folder).values(np.linspace(low, high, count)[:, None])
    for estimate, f in newest.items():
        stored_f = decode(learnt["estimates"][estimate])
        np.testing.assert_allclose(stored_f[-count:], f, atol=np.ptp(stored_f) / 65535 + 1e-9)


def test_regions_and_confusion_are_the_models(plane):
    data = PageBuilder([plane]).data()["runs"][0]
    learnt, model = data["cloud"]["learnt"], load_model(plane)
    (x0, x1, across), (y0, y1, up) = learnt["ranges"]
    assert (learnt["kind"], across * up * len(data["cloud"]["steps"]) * 2) == (
        "shares",
        len(base64.b64decode(learnt["estimates"]["weighted"]["data"])),
    )
    shares = decode(learnt["estimates"]["weighted"])[-across * up :].reshape(up, across)
    for row, column in ((0, 0), (3, 40), (up - 1, across - 1)):
        x = [[x0 + column / (across - 1) * (x1 - x0), y0 + row / (up - 1) * (y1 - y0)]]
        assert shares[row, column] == pytest.approx(model.predict(np.array(x)).probabilities[0, 1], abs=1e-4)
    written = pd.read_csv(plane / "confusion.csv").query("part == 'test' and estimate == 'weighted'")
    assert sum(map(sum, data["confusion"]["weighted"])) == written["count"].sum()
    assert data["confusion"]["weighted"][0][1] == written.query("actual == 0 and predicted == 1")["count"].item()


@pytest.mark.parametrize("classes", [("red", "green", "blue"), None])
def test_many_classes_and_real_targets_over_the_plane(tmp_path, classes):
    folder = plane_run(tmp_path, classes)
    learnt = PageBuilder([folder]).data()["runs"][0]["cloud"]["learnt"]
    assert learnt["kind"] == ("labels" if classes else "values")
    if classes:
        assert set(decode(learnt["estimates"]["weighted"]).round(3)) <= {0.0, 1.0, 2.0}


@given(st.integers(1, 3000), st.integers(40, 600))
def test_thinned_curves_keep_their_ends_and_their_order(count, rows):
    metrics = pd.DataFrame({"step": np.arange(count), "test_risk_weighted": np.arange(count) / 7, "ess": np.nan})
    thinned = curves(metrics, rows)
    assert (thinned["step"][0], thinned["step"][-1], thinned["logged"]) == (0, count - 1, count)
    assert len(thinned["step"]) == count if count <= rows else len(thinned["step"]) <= rows
    assert thinned["step"] == sorted(set(thinned["step"]))
    np.testing.assert_allclose(thinned["columns"]["test_risk_weighted"], np.array(thinned["step"]) / 7, rtol=1e-4)
    assert "ess" not in thinned["columns"]


def test_a_million_recursions_and_200_checkpoints_are_a_small_page_that_reads_each_cloud_once(tmp_path, monkeypatch):
    """Store clouds of a real run under other steps, and a row for every hundredth recursion.

    Reading checkpoints takes most of the time of a page: it opens those that it shows, not all that are stored.
    """
    often = ("films=false", "checkpoint_every=1", "keep_checkpoints=10")
    run(composed("dataset=wdbc", "threads=1", "steps=10", *often), tmp_path)
    checkpoints = [checkpoint.load(path) for _, path in list_checkpoints(tmp_path / "checkpoints")]
    for i in range(1, 201 - len(checkpoints)):
        source = checkpoints[i % len(checkpoints)]
        checkpoint.save(tmp_path / "checkpoints", replace(source, cloud=replace(source.cloud, step=5000 * i)))
    row = pd.read_csv(tmp_path / "metrics.csv").tail(1)
    rows = row.loc[row.index.repeat(10**4 + 1)].assign(step=np.arange(0, 10**6 + 1, 100))
    rows.to_csv(tmp_path / "metrics.csv", index=False)
    assert len(list_checkpoints(tmp_path / "checkpoints")) == 200
    opened, parse = Counter(), checkpoint.parse_checkpoint
    monkeypatch.setattr(checkpoint, "parse_checkpoint", lambda file: opened.update([file.state["step"]]) or parse(file))
    assert main(["report", str(tmp_path)]) == 0
    newest = max(opened)
    assert (len(opened), {count for step, count in opened.items() if step < newest}) == (60, {1})
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    data = json.loads(DATA.search((tmp_path / "report.html").read_text())[1])["runs"][0]
    assert (len(data["cloud"]["steps"]), len(data["cloud"]["particles"]), data["curves"]["logged"]) == (60, 300, 10001)
    # All 32 coordinates of the paper's particles can be selected.
    assert len(data["cloud"]["names"]) == 34


def test_the_papers_values_are_shown_only_for_a_run_of_its_experiment_and_length(tmp_path):
    run(composed("dataset=wdbc", "threads=1", "steps=1"), tmp_path)
    data = PageBuilder([tmp_path]).data()["runs"][0]
    assert "paper's" not in data["results"]["columns"]
    expected = "settings match Table 2 of the paper, whose values are for 250000 recursions; this run has 1, so"
    assert any(expected in note for note in data["notes"])
    # The folder of a long run differs in the counter only.
    set_step(tmp_path, 250_000)
    data = PageBuilder([tmp_path]).data()["runs"][0]
    columns, rows = data["results"]["columns"], data["results"]["rows"]
    published = {(row[0], row[1]): row[columns.index("accuracy") + 1] for row in rows}
    assert columns.count("paper's") == 2
    assert (published["test", "weighted"], published["test", "unweighted_saturated"]) == ("0.9294", "0.9118")
    assert published["train", "weighted"] == ""
    assert any("Table 2 of the paper, after 250000 recursions." in note for note in data["notes"])
    set_step(tmp_path, 250_001)
    assert "paper's" not in PageBuilder([tmp_path]).data()["runs"][0]["results"]["columns"]
    # An extension has reached the paper's length, and its results have not been written yet.
    for results_step in (1, None):
        set_step(tmp_path, 250_000, results_step)
        data = PageBuilder([tmp_path]).data()["runs"][0]
        assert "paper's" not in data["results"]["columns"]
        assert any("these results belong to another step, so" in note for note in data["notes"])


SAME = object()


def set_step(folder, step, results_step=SAME):
    """Set the step in status.json, and that of the results to the same or another one."""
    status = json.loads((folder / "status.json").read_text())
    status |= {"step": step, "figures_step": step if results_step is SAME else results_step}
    (folder / "status.json").write_text(json.dumps(status))


def test_a_sweep_has_each_run_once_with_its_swept_values(tmp_path):
    sweep = sweep_of(tmp_path, [{"beta": b, "seed": s} for b in ("0.1", "0.4") for s in ("0", "1")])
    data = PageBuilder([sweep, tmp_path / "runs" / "2"]).data()
    assert data["parameters"] == ["beta", "seed"]
    assert [run["name"] for run in data["runs"]] == [f"beta={b}, seed={s}" for b in ("0.1", "0.4") for s in (0, 1)]
    assert data["sweeps"][0]["counts"] == "4 jobs: 4 finished"
    means = data["sweeps"][0]["averages"]
    assert [dict(zip(means["columns"], row, strict=True))["runs"] for row in means["rows"]] == ["2", "2"]


def test_runs_given_one_by_one_are_named_by_the_settings_that_differ(tmp_path):
    for seed in (3, 4):
        run(small(steps=5, seed=seed), tmp_path / str(seed))
    data = PageBuilder([tmp_path / "3", tmp_path / "4"]).data()
    assert data["parameters"] == ["seed"]
    assert [run["name"] for run in data["runs"]] == ["seed=3", "seed=4"]
    assert len(PageBuilder([tmp_path / "3", tmp_path / "3"]).data()["runs"]) == 1


def test_runs_that_differ_in_many_settings_are_named_by_their_titles(tmp_path):
    run(composed("dataset=wdbc", "N=8", "threads=1", "steps=2"), tmp_path / "wdbc")
    run(small(steps=2), tmp_path / "sine")
    data = PageBuilder([tmp_path / "wdbc", tmp_path / "sine"]).data()
    assert [run["name"] for run in data["runs"]] == [run["title"] for run in data["runs"]]
    (sweep,) = data["sweeps"]
    assert sweep["counts"] == "2 runs: 2 finished"
    assert sweep["table"]["columns"][:2] == ["job", "run"]
    assert [row[1] for row in sweep["table"]["rows"]] == [run["title"] for run in data["runs"]]
    # Every setting that differs can still be shown by colour.
    assert "dataset.name" in data["parameters"]
    assert [run["values"]["dataset.name"] for run in data["runs"]] == ["wdbc", "sine"]


class Tags(html.parser.HTMLParser):
    """A parser that collects the names and the text of all elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names, self.words = set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)

    def handle_data(self, data):
        self.words += data


def test_hostile_names_are_text_without_scripts_too(tmp_path):
    text = render_page(PageBuilder([hostile_run(tmp_path)]).data() | {"title": HOSTILE})
    assert HOSTILE not in text
    tags = Tags(re.search(r"<noscript>(.*?)</noscript>", text, re.DOTALL)[1])
    assert tags.names <= {"main", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert HOSTILE in tags.words
    assert re.search(r"<title>(.*?)</title>", text)[1].startswith("&lt;script&gt;")


def test_a_run_without_clouds_or_proximal_step_has_a_page(tmp_path):
    run(small(steps=5, weights="uniform"), tmp_path)
    for _, path in list_checkpoints(tmp_path / "checkpoints"):
        path.unlink()
    data = PageBuilder([tmp_path]).data()["runs"][0]
    assert data["cloud"] is None
    assert "sinkhorn_rounds" not in data["curves"]["columns"]
    render_page(PageBuilder([tmp_path]).data())


def test_the_command_says_where_the_page_is(folder, tmp_path, capsys):
    assert main(["report", str(folder), "-o", str(tmp_path / "mine.html")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'mine.html'}\n"
    assert (tmp_path / "mine.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    "damage",
    [
        {"metrics.csv": None},
        {"metrics.csv": ""},
        {"metrics.csv": "a,b\n1,2\n"},
        {"status.json": "[1"},
        {"status.json": "[]"},
        {"config.yaml": "a: &a [1]\nb: *a\n"},
        {"config.yaml": "5"},
        {"model.json": "{}"},
    ],
)
def test_a_damaged_run_gets_one_line(tmp_path, capsys, damage):
    run(small(steps=2), tmp_path / "run")
    for name, content in damage.items():
        path = tmp_path / "run" / name
        path.unlink() if content is None else path.write_text(content)
    assert main(["report", str(tmp_path / "run")]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("proxlearn: ")]
    assert "run" in line


def test_a_config_of_odd_types_gets_one_line(tmp_path, capsys):
    run(small(steps=2), tmp_path)
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    config["N"] = ["20"]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert main(["report", str(tmp_path)]) == 2
    assert "config.yaml cannot be read: N must be a whole number" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["nosuch"], [".", "-o", "nosuch/page.html"], ["."], [".", "--watch"]])
def test_wrong_arguments_get_one_line(tmp_path, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_runs_side_by_side_have_a_table_with_the_papers_values(tmp_path):
    for seed in (0, 1):
        run(composed("dataset=sine", "N=500", "steps=1", "threads=1", f"seed={seed}"), tmp_path / str(seed))
    set_step(tmp_path / "0", 5000)
    # The metrics of this table are those of the newest logged row, not of the step in status.json.
    (sweep,) = PageBuilder([tmp_path / "0", tmp_path / "1"]).data()["sweeps"]
    assert "paper's" not in sweep["table"]["columns"]
    metrics = tmp_path / "0" / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("\n1,", "\n5000,"))
    (sweep,) = PageBuilder([tmp_path / "0", tmp_path / "1"]).data()["sweeps"]
    columns = sweep["table"]["columns"]
    assert [row[columns.index("risk") + 1] for row in sweep["table"]["rows"]] == ["0.01242", ""]
    risks = [pd.read_csv(tmp_path / seed / "metrics.csv")["test_risk_weighted"].iloc[-1] for seed in ("0", "1")]
    assert [row[columns.index("risk")] for row in sweep["table"]["rows"]] == [f"{risk:.4g}" for risk in risks]
