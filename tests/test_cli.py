"""The command line: help, completion, and the answers to wrong input."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proxlearn import __version__, cli

BAD_INPUT = [
    (["betta=0.05"], "unknown key `betta`; did you mean `beta`?"),
    (["+betta=0.05"], "unknown key `betta`; did you mean `beta`?"),
    (["beta=-1"], "beta must be a finite number > 0, got -1; try beta=0.05"),
    (["beta=abc"], "beta must be a finite number > 0, got 'abc'; try beta=0.05"),
    (["beta=null"], "beta must be a finite number > 0, got null"),
    (["N=0"], "N must be a whole number >= 1, got 0; try N=1000"),
    (["steps=1.5"], "steps must be a whole number"),
    (["h=nan"], "h must be a finite number > 0, got nan; try h=0.001"),
    (["epsilon=inf"], "epsilon must be a finite number > 0, got inf"),
    (["dataset=wdcb"], "unknown dataset `wdcb`; did you mean `wdbc`?"),
    (["device=cuda"], "device=cuda is not possible because torch finds no CUDA device; use device=cpu"),
    (["hydra.run.dir=/dev/null/run"], "cannot write to /dev/null"),
    (["kernel=fast"], "kernel cannot be 'fast'; choose kernel="),
    (["solver=literal", "drift=first_variation"], "solver=literal supports only drift=paper"),
    (["dataset.initial.w=[1,-1]"], "dataset.initial.w must be two numbers, low < high"),
    (["dataset=null"], "override"),
    (["beta"], "key=value"),
]


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setenv("HYDRA_FULL_ERROR", os.environ.get("HYDRA_FULL_ERROR", "0"))


@pytest.mark.parametrize(
    "args, message", BAD_INPUT, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_gets_one_line_exit_code_2_and_leaves_nothing(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if args == ["device=cuda"]:
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has CUDA, so device=cuda is not a mistake here")
    assert cli.main(["train", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("proxlearn: ")
    assert message in captured.err
    assert list(tmp_path.iterdir()) == []


def test_whole_numbers_may_be_written_as_floats(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "dataset=sine", "N=1e1", "steps=2e0"]) == 0
    assert "finished at step 2" in capsys.readouterr().out


def test_unknown_command_is_corrected(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trian"]) == 2
    assert "did you mean `train`?" in capsys.readouterr().err


def test_plot_refuses_a_folder_that_is_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plot", str(tmp_path)]) == 2
    assert "is not a run folder" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"proxlearn {__version__}\n"


SLOW_IMPORTS = ("torch", "numba", "pandas", "scipy", "sklearn", "matplotlib", "hydra")
"""Packages that take from .1 s to seconds to import: help and version need none of them."""


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["trian"]], ids=" ".join)
def test_help_version_and_a_wrong_word_import_nothing_slow(words: list[str]) -> None:
    code = (
        "import sys; from proxlearn import cli\n"
        f"cli.main({words!r})\n"
        f"print('imported:', *(name for name in {SLOW_IMPORTS!r} if name in sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.splitlines()[-1].strip() == "imported:"


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    output = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert f"\n  {name} " in output


def test_help_of_train_teaches_the_groups_and_hyperparameters() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "proxlearn", "train", "--help"], capture_output=True, text=True, check=True
    )
    for word in ("dataset: ", "wdbc", "sine", "jetson-float32-to-float64", "inverse temperature", "orientation=paper"):
        assert word in output.stdout


@pytest.mark.parametrize(
    "line, completions",
    [
        ("proxlearn ", ["train", "plot"]),
        ("proxlearn tr", ["train"]),
        ("proxlearn train dataset=", ["dataset=wdbc", "dataset=sine"]),
        ("proxlearn train dataset=wdbc dev", ["device="]),
        ("proxlearn train bet", ["beta="]),
    ],
)
def test_tab_completion_knows_the_subcommand(line: str, completions: list[str]) -> None:
    environment = os.environ | {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    command = [sys.executable, "-m", "proxlearn", "-sc", "query=bash"]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert set(completions) <= {word.split("=")[0] + "=" if word.endswith("=") else word for word in output}


def test_tab_completion_can_be_installed() -> None:
    output = subprocess.run([sys.executable, "-m", "proxlearn", "-sc", "install=bash"], capture_output=True, text=True)
    assert "complete -o nospace" in output.stdout
