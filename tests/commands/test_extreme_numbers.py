"""Extreme numbers through the commands: a run that can predict and be drawn, or one line."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from proxlearn.cli import main

RUN = ["train", "dataset=csv", "dataset.path=my.csv", "dataset.target=label", "N=8", "steps=4", "threads=1"]


def write_table(feature: float, target: float | None) -> None:
    """Two features, the first ``feature`` times as large; classes, or a target ``target`` times as large."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 40))
    label = np.where(a > 0, "yes", "no") if target is None else target * a
    pd.DataFrame({"a": feature * a, "b": b, "label": label}).to_csv("my.csv", index=False)


@pytest.mark.parametrize(
    "feature, target", [(1e200, None), (1e-200, None), (1.0, 1e200), (1.0, 1e-200), (1e301, None), (1.0, 1e301)]
)
def test_a_table_of_extreme_numbers_predicts_and_is_drawn_or_is_refused_by_its_column(
    feature, target, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    write_table(feature, target)
    code = main([*RUN, "hydra.run.dir=run"])
    said = capfd.readouterr().err
    if code == 2:
        assert "column `" in said
        assert not Path("run").exists()
        return
    assert code == 0, said
    assert main(["predict", "run", "--data", "my.csv", "-o", "out.csv"]) == 0
    numbers = pd.read_csv("out.csv").select_dtypes("number")
    assert np.isfinite(numbers.to_numpy()).all()
    for command in (["plot", "run"], ["report", "run", "-o", "page.html"]):
        assert main(command) == 0, capfd.readouterr().err


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["dataset.initial.w=[-1e308,1e308]"], 2, "dataset.initial.w must be two finite numbers"),
        (["device=jetson-float32-to-float64", "h=1e30", "steps=60"], 1, "is not finite after step"),
    ],
)
def test_settings_that_overflow_are_one_line(words, code, said, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write_table(1.0, None)
    assert main([*RUN, *words, "hydra.run.dir=run"]) == code
    message = capfd.readouterr().err
    assert said in message.splitlines()[-1]
    assert "Traceback" not in message
