"""Views are drawn only from the run folder."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from PIL import Image

from proxlearn import cli
from proxlearn.run.train import train
from tests.conftest import config_of

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
