"""Views are drawn only from the run folder.

The curves of runs that failed are drawn like any others.

Tables in Markdown keep a name in one cell; remarks state facts of the run.

Views reject results whose settings were edited after the run.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from proxlearn import cli
from proxlearn.cli import main
from proxlearn.run.train import train
from proxlearn.views.report.page import PageBuilder
from proxlearn.views.run import run_plots
from proxlearn.views.run.run_data import read_run_data
from proxlearn.views.run.run_views import remarks, summary
from proxlearn.views.tables import markdown
from tests.conftest import OLD_FOLDERS, config_of
from tests.small_runs import run, small, status

PLOTS = {"wdbc": {"risk", "health", "confusion"}, "sine": {"risk", "health", "function"}}


@pytest.mark.parametrize("dataset", PLOTS)
@pytest.mark.parametrize("steps", [0, 1, 30])
def test_plot_draws_everything_in_a_folder_that_was_moved(tmp_path: Path, dataset: str, steps: int) -> None:
    folder = tmp_path / "run"
    train(config_of(f"dataset={dataset}", "N=20", f"steps={steps}", "threads=1"), folder, "")
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    assert cli.main(["plot", str(moved)]) == 0
    for name in PLOTS[dataset] - ({"health"} if steps < 2 else set()):
        with Image.open(moved / f"{name}.png") as image:
            shades = image.convert("L").histogram()
        # The plot is neither empty nor filled.
        assert 0.002 < 1 - shades[255] / sum(shades) < 0.8
        assert (moved / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert "| test " in (moved / "accuracy.md").read_text()


def test_a_run_without_proximal_step_can_be_drawn(tmp_path: Path) -> None:
    train(config_of("N=20", "steps=5", "weights=uniform", "threads=1"), tmp_path, "")
    assert cli.main(["plot", str(tmp_path)]) == 0


def test_drawing_twice_gives_the_same_files(tmp_path: Path) -> None:
    train(config_of("N=20", "steps=20", "threads=1"), tmp_path, "")
    contents = []
    for _ in range(2):
        cli.main(["plot", str(tmp_path)])
        contents.append({p.name: p.read_bytes() for p in tmp_path.iterdir() if p.suffix in (".png", ".pdf", ".md")})
    assert contents[0] == contents[1]


def test_names_that_look_like_formulas_are_written_as_they_are(tmp_path: Path) -> None:
    lines = [f"{x},{-x * x},{'$in_{$' if x % 2 else 'o$ut'}" for x in range(12)]
    (tmp_path / "my.csv").write_text("\n".join(["$\\frac{$,<b>$y^$,label", *lines]) + "\n")
    overrides = (
        "dataset=csv",
        f"dataset.path={tmp_path / 'my.csv'}",
        "dataset.target=label",
        "N=5",
        "steps=2",
        "threads=1",
    )
    train(config_of(*overrides), tmp_path / "run", "")
    assert cli.main(["plot", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "regions.png").exists()
    model = run_plots.find_model(tmp_path / "run")
    assert model is not None
    fast, X = run_plots._with_fast_tanh(model), np.random.default_rng(0).normal(size=(500, 2))
    assert fast.neuron != model.neuron
    for estimate, f in model.mean_outputs(X).items():
        torch.testing.assert_close(fast.mean_outputs(X)[estimate], f, rtol=0, atol=1e-15)


@given(st.floats(-1e308, 1e308))
def test_the_fast_tanh_is_tanh_up_to_rounding(z: float) -> None:
    assert float(run_plots.fast_tanh(torch.tensor(z, dtype=torch.float64))) == pytest.approx(math.tanh(z), abs=4e-16)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("curves") / "run"
    run(small(steps=20), folder)
    return read_run_data(folder)


@pytest.mark.parametrize("extreme", [1e200, 1e308, float("inf"), float("nan"), 5e-324, 0.0])
@pytest.mark.parametrize("first", [0, 3])
def test_curves_of_any_values_are_drawn(finished, extreme, first):
    metrics = finished.metrics.copy()
    later = metrics["step"] >= first
    for column in metrics.columns[metrics.columns.str.contains("risk")]:
        metrics.loc[later, column] = extreme
    metrics["kernel_offdiag"] = metrics["kernel_offdiag"].where(metrics["step"] == 0, 1.0)
    for draw in (run_plots.draw_risk, run_plots.draw_health):
        for path in draw(replace(finished, metrics=metrics)):
            assert path.stat().st_size > 1000


def test_a_function_with_huge_values_is_drawn(finished, monkeypatch):
    model = run_plots.find_model(finished.path)
    assert model is not None
    huge = type(
        "Huge", (), {"values": lambda _, x: {k: 1e300 * f for k, f in model.values(x).items()}, "cloud": model.cloud}
    )
    monkeypatch.setattr(run_plots, "find_model", lambda path: huge())
    assert all(path.stat().st_size > 1000 for path in run_plots.draw_function(finished))


CELL = re.compile(r"(?:\\.|[^|\\]|\\(?=\s))*")
"""A cell of GitHub's Markdown: a backslash escapes the character after it."""


def cells(line: str) -> list[str]:
    assert line.startswith("|")
    parts, at = [], 1
    while at < len(line):
        match = CELL.match(line, at)
        assert match is not None
        parts.append(match[0].strip())
        at = match.end() + 1
    return parts


@given(st.text(alphabet="a|\\` \n\r\x0b\u2028", max_size=8), st.text(alphabet="b|\\\n", max_size=5))
def test_a_cell_stays_one_cell(name: str, head: str) -> None:
    table = pd.DataFrame([[name, 1.5]], columns=[f"x{head}", "last"])
    lines = markdown(table).splitlines()
    assert len(lines) == 3
    for line in (lines[0], lines[2]):
        assert len(cells(line)) == 2, line
    assert cells(lines[2])[1] == "1.5"
    unescaped = re.sub(r"(\\*)\\\|", lambda match: match[1][: len(match[1]) // 2] + "|", cells(lines[2])[0])
    assert unescaped == " ".join(name.splitlines()).strip()


def test_plain_names_are_left_as_they_are() -> None:
    assert markdown(pd.DataFrame({"a": ["x_1", "C:\\data"]})) == "| a       |\n|---------|\n| x_1     |\n| C:\\data |\n"


@pytest.mark.parametrize(
    ("changes", "step"),
    [([0.4, 0.4], None), ([0.4, 0.0], 2), ([0.0, 0.0], 1), ([0.0, 0.4], None), ([None, None], None)],
)
def test_weights_are_reported_as_unchanged_only_if_they_are(
    changes: list[float | None], step: int | None, tmp_path: Path
) -> None:
    """A kernel near the identity is no criterion: a tiny share of a heavy weight can change a light one."""
    run(small(steps=2), tmp_path)
    data = read_run_data(tmp_path)
    columns = {"kernel_offdiag": [None, 2e-17, 2e-17], "weights_change": [None, *changes]}
    metrics = data.metrics.assign(**{name: pd.Series(values, dtype=float) for name, values in columns.items()})
    sentences = remarks(replace(data, metrics=metrics))
    reported = [line for line in sentences if "changed the weights" in line]
    assert reported == (
        [] if step is None else [f"From recursion {step} on, no logged proximal step changed the weights."]
    )
    # What kappa says about the effect of a step would contradict the sentence on constant weights.
    assert any("kappa" in line for line in sentences) == (step is None)


VIEWS = ("plot", "report", "film")


def edit(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.yaml").read_text()
    assert text.count(old) == 1
    (folder / "config.yaml").write_text(text.replace(old, new))


def refusal(view: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    before = sorted(path.name for path in folder.iterdir())
    assert main([view, str(folder)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sorted(path.name for path in folder.iterdir()) == before
    return line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    run(small(steps=5), folder)
    return folder


@pytest.fixture
def folder(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_names_the_setting_that_was_edited(view: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(folder, "\nN: 8\n", "\nN: 500\n")
    line = refusal(view, folder, capsys)
    assert "started with N=8, but config.yaml has N=500" in line
    assert "undo the edit" in line


def test_settings_that_do_not_change_the_result_may_be_edited(folder: Path) -> None:
    edit(folder, "\nsteps: 5\n", "\nsteps: 50\n")
    assert main(["plot", str(folder)]) == 0


def test_numbers_that_were_selected_are_those_of_the_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Simulate a run with a selection: write status.json and selection.json as such a run does."""
    beta = small().beta
    edit(folder, f"\nbeta: {beta}\n", "\nbeta: null\n")
    edit(folder, f"\ninit: {small().init}\n", "\ninit: normal\n")
    edit(folder, "\ninit_scale: null\n", "\ninit_scale: 1.0\n")
    values = status(folder) | {"selected": {"beta": beta}}
    del values["settings"], values["settings_sha256"]
    (folder / "status.json").write_text(json.dumps(values))
    shutil.rmtree(folder / "checkpoints")
    for chosen, code in ((beta, 0), (2 * beta, 2)):
        (folder / "selection.json").write_text(json.dumps({"chosen": {"beta": chosen}}))
        assert main(["plot", str(folder)]) == code
    assert f"was trained with beta={beta}, but selection.json has {2 * beta}" in capsys.readouterr().err


def test_of_an_old_folder_the_checkpoints_tell(
    old_folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = next(folder for folder in OLD_FOLDERS if "sine" in folder.parts)
    folder = Path(shutil.copytree(old_folders / old, tmp_path / "old"))
    assert "settings_sha256" not in status(folder)
    assert main(["plot", str(folder)]) == 0
    capsys.readouterr()
    edit(folder, "\nN: 12\n", "\nN: 500\n")
    assert "config.yaml was edited after the run started" in refusal("plot", folder, capsys)


@pytest.mark.parametrize(
    ("arguments", "classes", "label"),
    [
        (("recipe=paper",), 3, "risk: mean of (y − f)²"),
        (("recipe=paper", "loss=logistic"), 2, "risk: mean of log(1 + exp(−y f))"),
        (("recipe=tuned",), 3, "risk: mean cross-entropy"),
        (("recipe=tuned",), 2, "risk: mean of log(1 + exp(−y f))"),
        (("recipe=tuned", "loss=quadratic"), 2, "risk: mean of (y − f)²"),
    ],
)
def test_the_risk_is_labelled_with_the_loss_that_the_run_used(
    arguments: tuple[str, ...], classes: int, label: str, tmp_path: Path
) -> None:
    """The tuned recipe has loss=null in config.yaml: the task determines the loss."""
    (tmp_path / "my.csv").write_text("x,label\n" + "".join(f"{x},{'abc'[x % classes]}\n" for x in range(24)))
    selected = ("beta=1e3", "h=0.01", "epsilon=1", "steps=5", "init_scale=1", "confinement=0")
    numbers = selected if "recipe=tuned" in arguments else ("steps=5",)
    data = (f"dataset.path={tmp_path / 'my.csv'}", "dataset.target=label", "N=5", "threads=1")
    train(config_of("dataset=csv", *data, *arguments, *numbers), tmp_path / "run", "")
    run_data = read_run_data(tmp_path / "run")
    _, (axes,) = run_plots.figure(*run_plots.SINGLE_PLOT)
    run_plots.plot_risk(axes, run_data)
    assert axes.get_ylabel() == label
    assert PageBuilder([tmp_path / "run"]).data()["risk_label"] == label


@pytest.mark.parametrize(("low", "high"), [(0.11, 1.1), (0.03, 1.05), (0.9, 1.05), (1e-6, 1.2), (0.5, 0.5)])
def test_the_first_and_last_tick_of_the_risk_enclose_curves_of_up_to_three_decades(
    finished, low: float, high: float
) -> None:
    metrics = finished.metrics.copy()
    for column in metrics.columns[metrics.columns.str.contains("risk")]:
        metrics[column] = np.geomspace(high, low, len(metrics))
    fig, (axes,) = run_plots.figure(*run_plots.SINGLE_PLOT)
    run_plots.plot_risk(axes, replace(finished, metrics=metrics))
    fig.draw_without_rendering()
    bottom, top = axes.get_ylim()
    drawn = metrics["test_risk_weighted"][1:]
    assert bottom <= drawn.min() <= drawn.max() <= top
    ticks = [tick for tick in axes.get_yticks() if bottom <= tick <= top]
    if 3 < high / low < 1000:
        assert ticks[0] <= drawn.min()
        assert ticks[-1] >= drawn.max()


def test_the_summary_of_a_selected_run_has_the_total_duration_and_no_remark_on_kappa(tmp_path: Path) -> None:
    run(small(steps=2), tmp_path)
    data = read_run_data(tmp_path)
    # The weights of this run are constant, and kappa is explained only if they change.
    data = replace(data, metrics=data.metrics.assign(weights_change=0.1))
    assert "selection" not in summary(tmp_path)
    assert any("kappa" in line for line in remarks(data))
    chosen = {"beta": 1.0, "epsilon": 1.0, "h": 0.1}
    selected = replace(data, status=data.status | {"selected": chosen}, config=data.config | {"epsilon_quantile": 0.5})
    lines = remarks(selected)
    assert not any("kappa" in line for line in lines)
    epsilon = f"{data.config['epsilon']:g}"
    assert (
        f"ε={epsilon}×NN²: epsilon is {epsilon} times the median squared distance of a particle to its nearest"
        in " ".join(lines)
    )
    # A value that the user has set is explained.
    assert any("kappa" in line for line in remarks(replace(selected, status=data.status | {"selected": {"h": 0.1}})))
    (tmp_path / "selection.json").write_text(json.dumps({"format": 1, "chosen": chosen, "seconds": 65.04}))
    total = 65.04 + data.status["seconds"]
    assert f"after {total:.1f} s, of which the selection took 65.0 s" in summary(tmp_path)


def test_tiny_kernel_shares_do_not_stretch_the_axis(finished, tmp_path: Path) -> None:
    metrics = finished.metrics.copy()
    metrics["kernel_offdiag"] = np.geomspace(0.5, 1e-300, len(metrics))
    drawn = []
    save = run_plots.save
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_plots, "save", lambda fig, *_: drawn.append(fig) or save(fig, tmp_path, "health"))
        run_plots.draw_health(replace(finished, metrics=metrics))
    assert drawn[0].axes[1].get_ylim()[0] >= 1e-22
