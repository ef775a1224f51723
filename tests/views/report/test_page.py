"""The page's data is what the folders say, and nothing in a folder becomes markup."""

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
from proxlearn.predict.folder import load
from proxlearn.run import checkpoint
from proxlearn.run.checkpoint_file import list_checkpoints
from proxlearn.views.film.cloud_history import read_cloud_history
from proxlearn.views.report.cloud import quantised
from proxlearn.views.report.page import Builder, as_json, render_page
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


def decoded(stored_values: dict) -> np.ndarray:
    whole = np.frombuffer(base64.b64decode(stored_values["data"]), dtype="<u2").astype(float)
    return stored_values["low"] + whole * (stored_values["high"] - stored_values["low"]) / 65535


@given(st.lists(st.floats(-1e30, 1e30), min_size=1))
@example([0.0, 5e-324])
def test_sixteen_bits_are_off_by_half_a_step_at_most(values):
    step = (max(values) - min(values)) / 65535
    found = decoded(quantised(np.array(values)))
    np.testing.assert_allclose(found, values, atol=0.51 * step + 1e-9 * max(map(abs, values)), rtol=0)


@given(st.recursive(st.text() | st.floats(allow_nan=False, allow_infinity=False), st.lists, max_leaves=5))
def test_json_in_the_page_comes_back_and_holds_no_markup(value):
    text = as_json({"value": value})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"value": value}


def test_the_page_can_run_its_own_script_only(folder):
    text = render_page(Builder([folder]).data())
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', text)[1]
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    checksum = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{checksum}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'none'" in policy
    # Nothing of the frame refers to another file.
    assert not re.search(r"<(link|img|iframe)|\s(src|href)=|@import|url\(", text.replace(script, ""))


def test_the_cloud_is_the_stored_one(folder):
    cloud = Builder([folder]).data()["runs"][0]["cloud"]
    frames = read_cloud_history(folder)
    assert cloud["steps"] == frames.steps.tolist()
    assert cloud["names"] == ["principal axis 1", "principal axis 2", "a", "b", "w"]
    for i, coordinate in enumerate(cloud["coordinates"][2:]):
        near = np.ptp(frames.theta[..., i]) / 65535
        np.testing.assert_allclose(decoded(coordinate), frames.theta[..., i].ravel(), atol=near)
    np.testing.assert_allclose(decoded(cloud["weights"]), frames.log_rho.ravel(), atol=1e-3)


def test_the_learnt_function_is_the_model_at_each_frame(folder):
    learnt = Builder([folder]).data()["runs"][0]["cloud"]["learnt"]
    low, high, count = learnt["ranges"][0]
    newest = load(folder).values(np.linspace(low, high, count)[:, None])
    for estimate, f in newest.items():
        stored_f = decoded(learnt["estimates"][estimate])
        np.testing.assert_allclose(stored_f[-count:], f, atol=np.ptp(stored_f) / 65535 + 1e-9)


def test_regions_and_confusion_are_the_models(plane):
    data = Builder([plane]).data()["runs"][0]
    learnt, model = data["cloud"]["learnt"], load(plane)
    (x0, x1, across), (y0, y1, up) = learnt["ranges"]
    assert (learnt["kind"], across * up * len(data["cloud"]["steps"]) * 2) == (
        "shares",
        len(base64.b64decode(learnt["estimates"]["weighted"]["data"])),
    )
    shares = decoded(learnt["estimates"]["weighted"])[-across * up :].reshape(up, across)
    for row, column in ((0, 0), (3, 40), (up - 1, across - 1)):
        x = [[x0 + column / (across - 1) * (x1 - x0), y0 + row / (up - 1) * (y1 - y0)]]
        assert shares[row, column] == pytest.approx(model.predict(np.array(x)).probabilities[0, 1], abs=1e-4)
    written = pd.read_csv(plane / "confusion.csv").query("part == 'test' and estimate == 'weighted'")
    assert sum(map(sum, data["confusion"]["weighted"])) == written["count"].sum()
    assert data["confusion"]["weighted"][0][1] == written.query("actual == 0 and predicted == 1")["count"].item()


@pytest.mark.parametrize("classes", [("red", "green", "blue"), None])
def test_many_classes_and_real_targets_over_the_plane(tmp_path, classes):
    folder = plane_run(tmp_path, classes)
    learnt = Builder([folder]).data()["runs"][0]["cloud"]["learnt"]
    assert learnt["kind"] == ("labels" if classes else "values")
    if classes:
        assert set(decoded(learnt["estimates"]["weighted"]).round(3)) <= {0.0, 1.0, 2.0}


@given(st.integers(1, 3000), st.integers(40, 600))
def test_thinned_curves_keep_their_ends_and_their_order(count, rows):
    metrics = pd.DataFrame({"step": np.arange(count), "test_risk_weighted": np.arange(count) / 7, "ess": np.nan})
    found = curves(metrics, rows)
    assert (found["step"][0], found["step"][-1], found["logged"]) == (0, count - 1, count)
    assert len(found["step"]) == count if count <= rows else len(found["step"]) <= rows
    assert found["step"] == sorted(set(found["step"]))
    np.testing.assert_allclose(found["columns"]["test_risk_weighted"], np.array(found["step"]) / 7, rtol=1e-4)
    assert "ess" not in found["columns"]


def test_a_million_recursions_and_200_checkpoints_are_a_small_page_that_reads_each_cloud_once(tmp_path, monkeypatch):
    """A real run's clouds under other steps, with real seals; and a row for every hundredth recursion.

    Reading checkpoints is what takes a page's time: it opens as many as it shows, and not all that are stored.
    """
    often = ("films=false", "checkpoint_every=1", "keep_checkpoints=10")
    run(composed("dataset=wdbc", "threads=1", "steps=10", *often), tmp_path)
    found = [checkpoint.load(path) for _, path in list_checkpoints(tmp_path / "checkpoints")]
    for i in range(1, 201 - len(found)):
        moment = found[i % len(found)]
        checkpoint.save(tmp_path / "checkpoints", replace(moment, cloud=replace(moment.cloud, step=5000 * i)))
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
    # All of the paper's 32 coordinates can be chosen.
    assert len(data["cloud"]["names"]) == 34


def test_the_papers_figures_stand_beside_a_run_of_its_experiment_and_length_only(tmp_path):
    run(composed("dataset=wdbc", "threads=1", "steps=1"), tmp_path)
    found = Builder([tmp_path]).data()["runs"][0]
    assert "paper's" not in found["figures"]["columns"]
    said = "settings of Table 2 of the paper, whose figures are of 250000 recursions; this run has made 1, so"
    assert any(said in note for note in found["notes"])
    # A long run's folder: only the counter makes the difference.
    pretend_made(tmp_path, 250_000)
    found = Builder([tmp_path]).data()["runs"][0]
    columns, rows = found["figures"]["columns"], found["figures"]["rows"]
    beside = {(row[0], row[1]): row[columns.index("accuracy") + 1] for row in rows}
    assert columns.count("paper's") == 2
    assert (beside["test", "weighted"], beside["test", "unweighted_saturated"]) == ("0.9294", "0.9118")
    assert beside["train", "weighted"] == ""
    assert any("Table 2 of the paper, after 250000 recursions." in note for note in found["notes"])
    pretend_made(tmp_path, 250_001)
    assert "paper's" not in Builder([tmp_path]).data()["runs"][0]["figures"]["columns"]
    # An extension has come to the paper's length, and its figures have not been written yet.
    for figures_step in (1, None):
        pretend_made(tmp_path, 250_000, figures_step)
        found = Builder([tmp_path]).data()["runs"][0]
        assert "paper's" not in found["figures"]["columns"]
        assert any("those here are of another step, so" in note for note in found["notes"])


SAME = object()


def pretend_made(folder, step, figures_step=SAME):
    """A run folder whose status says so many recursions, with figures of the same step or another one."""
    status = json.loads((folder / "status.json").read_text())
    status |= {"step": step, "figures_step": step if figures_step is SAME else figures_step}
    (folder / "status.json").write_text(json.dumps(status))


def test_a_sweep_has_each_run_once_with_its_swept_values(tmp_path):
    sweep = sweep_of(tmp_path, [{"beta": b, "seed": s} for b in ("0.1", "0.4") for s in ("0", "1")])
    data = Builder([sweep, tmp_path / "runs" / "2"]).data()
    assert data["parameters"] == ["beta", "seed"]
    assert [each["name"] for each in data["runs"]] == [f"beta={b}, seed={s}" for b in ("0.1", "0.4") for s in (0, 1)]
    assert data["sweeps"][0]["counts"] == "4 jobs: 4 finished"
    averages = data["sweeps"][0]["averages"]
    assert [dict(zip(averages["columns"], row, strict=True))["runs"] for row in averages["rows"]] == ["2", "2"]


def test_runs_named_one_by_one_are_told_apart_by_what_differs(tmp_path):
    for seed in (3, 4):
        run(small(steps=5, seed=seed), tmp_path / str(seed))
    data = Builder([tmp_path / "3", tmp_path / "4"]).data()
    assert data["parameters"] == ["seed"]
    assert [each["name"] for each in data["runs"]] == ["seed=3", "seed=4"]
    assert len(Builder([tmp_path / "3", tmp_path / "3"]).data()["runs"]) == 1


class Tags(html.parser.HTMLParser):
    """The names of all elements, as a reader without scripts sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names, self.words = set(), ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.add(tag)

    def handle_data(self, data):
        self.words += data


def test_hostile_names_are_text_without_scripts_too(tmp_path):
    text = render_page(Builder([hostile_run(tmp_path)]).data() | {"title": HOSTILE})
    assert HOSTILE not in text
    found = Tags(re.search(r"<noscript>(.*?)</noscript>", text, re.DOTALL)[1])
    assert found.names <= {"main", "h1", "h2", "p", "div", "table", "thead", "tbody", "tr", "th", "td"}
    assert HOSTILE in found.words
    assert re.search(r"<title>(.*?)</title>", text)[1].startswith("&lt;script&gt;")


def test_a_run_without_clouds_or_proximal_step_has_a_page(tmp_path):
    run(small(steps=5, weights="uniform"), tmp_path)
    for _, path in list_checkpoints(tmp_path / "checkpoints"):
        path.unlink()
    found = Builder([tmp_path]).data()["runs"][0]
    assert found["cloud"] is None
    assert "sinkhorn_rounds" not in found["curves"]["columns"]
    render_page(Builder([tmp_path]).data())


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
def test_what_is_no_run_gets_one_line(tmp_path, capsys, damage):
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


@pytest.mark.parametrize("words", [["nosuch"], [".", "-o", "nosuch/page.html"], ["."], [".", "--watch"]])
def test_wrong_words_get_one_line(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    assert main(["report", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_runs_side_by_side_have_a_table_with_the_papers_figures(tmp_path):
    for seed in (0, 1):
        run(composed("dataset=sine", "N=500", "steps=1", "threads=1", f"seed={seed}"), tmp_path / str(seed))
    pretend_made(tmp_path / "0", 5000)
    # The figures of this table are those of the newest logged row, whatever the status says.
    (found,) = Builder([tmp_path / "0", tmp_path / "1"]).data()["sweeps"]
    assert "paper's" not in found["table"]["columns"]
    metrics = tmp_path / "0" / "metrics.csv"
    metrics.write_text(metrics.read_text().replace("\n1,", "\n5000,"))
    (found,) = Builder([tmp_path / "0", tmp_path / "1"]).data()["sweeps"]
    columns = found["table"]["columns"]
    assert [row[columns.index("risk") + 1] for row in found["table"]["rows"]] == ["0.01242", ""]
    risks = [pd.read_csv(tmp_path / seed / "metrics.csv")["test_risk_weighted"].iloc[-1] for seed in ("0", "1")]
    assert [row[columns.index("risk")] for row in found["table"]["rows"]] == [f"{risk:.4g}" for risk in risks]
