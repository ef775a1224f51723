"""Each example has at most 15 lines of code, runs in an empty folder, and shows the promised result."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
OUTCOMES: dict[str, Callable[[dict[str, Any]], bool]] = {
    "own_data": lambda names: names["risks"][-1] < 0.02 < names["risks"][0],
    "cosine_neuron": lambda names: float(names["risk"].value(names["cloud"].theta, names["cloud"].rho)) < 1e-3,
    "cross_entropy": lambda names: (names["predicted"].numpy() == names["y_test"]).mean() > 0.95,
    "confinement": lambda names: abs(names["variance"] - 1) < 0.05,
    "energies": lambda names: float(names["cloud"].theta.std(0).max()) < 0.2,
    "callback": lambda names: len(names["lengths"]) == names["run"].step < 1000 and names["run"].state == "stopped",
    "load_run": lambda names: names["run"].cloud.step == 500 and Path("cloud.png").stat().st_size > 5000,
}
"""What holds of an example's variables at its end."""


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.iterdir() if path.suffix == ".py"} == set(OUTCOMES)


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_is_short(name: str) -> None:
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert ast.get_docstring(tree)
    code = text.splitlines()[tree.body[0].end_lineno :]
    assert len([line for line in code if line.strip() and not line.lstrip().startswith("#")]) <= 15


@pytest.mark.parametrize("name", OUTCOMES)
def test_an_example_runs_and_shows_what_it_promises(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert capsys.readouterr().out
    assert OUTCOMES[name](names)
