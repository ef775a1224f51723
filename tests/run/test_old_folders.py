"""Folders of version 0.1.0 can be opened, drawn, used for predictions and resumed by newer versions."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn.cli import main
from proxlearn.config.run_name import run_name
from proxlearn.core.step import REVISION
from proxlearn.run.run_folder import RunFolder
from tests.conftest import OLD_FOLDERS


@pytest.fixture(params=OLD_FOLDERS, ids=[folder.name for folder in OLD_FOLDERS])
def folder(request, old_folders, tmp_path, monkeypatch) -> Path:
    """A copy of a folder at the path where the command that created it would look for it."""
    shutil.copytree(old_folders / request.param, tmp_path / request.param)
    monkeypatch.chdir(tmp_path)
    return request.param


def command_of(folder: Path) -> list[str]:
    return shlex.split(json.loads((folder / "status.json").read_text())["command"])[1:]


def test_the_name_still_follows_from_the_config(folder):
    assert run_name(RunFolder(folder).read_config()) == folder.name


def test_the_same_command_finds_the_folder_and_continues_it_with_a_notice(folder, old_folders, capfd):
    """Noise and rounding have changed since revision 2, but the stored part of the run is kept."""
    before = (folder / "metrics.csv").read_text().splitlines()
    stopped_at = json.loads((folder / "status.json").read_text())["step"]
    # The defaults of recipe=tuned were others in version 0.1.0.
    old = ["loss=quadratic", "confinement=0", "h_schedule=constant", "horizon=1000", "batch_size=null"]
    old = [*old, "selection_rows=null"] if folder.name.startswith("tuned") else []
    assert main([*command_of(folder), *old]) == 0, capfd.readouterr().err
    notice = f"was computed by revision 1 of the recursion; the run continues with revision {REVISION}"
    assert notice in capfd.readouterr().err
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    status = json.loads((folder / "status.json").read_text())
    assert status["state"] == "finished"
    assert status["step"] > stopped_at
    metrics = pd.read_csv(folder / "metrics.csv")
    assert len(metrics) > len(before) - 1
    expected = pd.read_csv(old_folders / f"{folder}-uninterrupted.csv")
    assert list(metrics["step"]) == list(expected["step"])
    stored = expected["step"] <= stopped_at
    assert 0 < stored.sum() < len(expected)
    # A file keeps the columns that it began with, up to the order of those that version 2 of the file moved.
    assert set(metrics.columns) == set(before[0].split(","))
    risk = metrics["test_risk_weighted"]
    np.testing.assert_allclose(risk[stored], expected["test_risk_weighted"][stored], rtol=1e-6)
    assert risk.notna().all()


def test_a_stopped_folder_is_drawn_reported_and_listed(folder, capfd):
    for command in (["plot", str(folder)], ["report", str(folder), "-o", "page.html"], ["status", str(folder)]):
        assert main(command) == 0, capfd.readouterr().err
    assert (folder / "risk.png").stat().st_size > 1000
    assert Path("page.html").stat().st_size > 10_000
    assert "stopped" in capfd.readouterr().out


def test_a_stopped_folder_predicts(folder, capfd):
    model = json.loads((folder / "model.json").read_text())
    rows = pd.DataFrame(np.zeros((3, len(model["columns"]))), columns=model["columns"])
    rows.to_csv("new.csv", index=False)
    assert main(["predict", str(folder), "--data", "new.csv", "-o", "predictions.csv"]) == 0, capfd.readouterr().err
    assert len(pd.read_csv("predictions.csv")) == 3
