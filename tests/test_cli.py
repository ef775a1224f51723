"""The command line: help, completion, and the answers to wrong input.

Wrong input from Python gives one sentence with the problem and its remedy, and never an error of torch or numpy.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proxlearn as pl
from proxlearn import __version__, cli
from tests.small_runs import proxlearn
from tests.test_public_interface import HYPER, Repulsion, sine_risk

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
    output = proxlearn("train", "--help")
    assert output.returncode == 0
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
    done = proxlearn("-sc", "query=bash", env=environment)
    assert done.returncode == 0
    output = done.stdout.split()
    assert set(completions) <= {word.split("=")[0] + "=" if word.endswith("=") else word for word in output}


def test_tab_completion_can_be_installed() -> None:
    output = proxlearn("-sc", "install=bash")
    assert "complete -o nospace" in output.stdout


def flat(theta: Any, x: Tensor) -> Tensor:
    return theta["w"] * x


X4, Y4 = np.ones((4, 2)), np.arange(4.0)
WRONG: dict[str, tuple[Callable[[], object], str]] = {
    "phi": (
        lambda: pl.Risk(X4, Y4, pl.neurons.FunctionNeuron(flat, {"w": 2})),
        r"returned a value of shape \(2,\)",
    ),
    "phi fails": (lambda: pl.Risk(X4, Y4, pl.neurons.FunctionNeuron(flat, {"w": 3})), "cannot be evaluated"),
    "block": (
        lambda: pl.Risk(X4, Y4, pl.neurons.FunctionNeuron(flat, {"v": 2})),
        "phi uses the unknown block `w`",
    ),
    "activation": (lambda: pl.neurons.Perceptron("tahn"), "unknown activation `tahn`; did you mean `tanh`?"),
    "activation name": (
        lambda: pl.neurons.Perceptron(pl.neurons.Activation("tanh", torch.sin)),
        "an activation called `tanh` already exists; choose another name",
    ),
    "outputs": (lambda: pl.neurons.Tanh(outputs=0), "number of outputs of a neuron is 0; give a whole"),
    "logistic": (lambda: pl.Risk(X4, Y4, loss=pl.losses.logistic), "must contain -1 and .1"),
    "logistic outputs": (
        lambda: pl.Risk(X4, Y4, pl.neurons.Tanh(2), pl.losses.logistic),
        "one output, but the neuron has 2 outputs; use losses.cross_entropy",
    ),
    "labels": (lambda: pl.Risk(X4, Y4, pl.neurons.Tanh(3), pl.losses.cross_entropy), "class labels from 0 to 2"),
    "text": (lambda: pl.Risk(X4, list("abcd")), "y is not an array of numbers"),
    "one-hot": (lambda: pl.Risk(X4, X4, loss=pl.losses.cross_entropy), "one-hot or contain probabilities"),
    "one output": (lambda: pl.Risk(X4, Y4, pl.neurons.Tanh(), pl.losses.cross_entropy), "output per class"),
    "columns": (lambda: pl.Risk(X4, X4, pl.neurons.Tanh(3)), "y has 2 columns, but the neuron has 3 outputs"),
    "columns of one": (lambda: pl.Risk(X4, X4, pl.neurons.Tanh()), "y has 2 columns, but the neuron has 1 output"),
    "softmax loss": (
        lambda: pl.Risk(X4, Y4, pl.neurons.Softmax(4), pl.losses.cross_entropy),
        "softmax neuron cannot be trained with the loss cross_entropy",
    ),
    "infinite X": (lambda: pl.Risk(X4 * np.inf, Y4), "row 0 of X contains a number that is not finite"),
    "infinite y": (lambda: pl.Risk(X4, Y4 * np.nan), "y contains a number that is not finite"),
    "rows": (lambda: pl.Risk(X4, Y4[:3]), r"y has the shape \(3,\), but X has 4 rows"),
    "vector X": (lambda: pl.Risk(Y4, Y4), r"X has the shape \(4,\)"),
    "confinement": (lambda: pl.Risk(X4, Y4, confinement={"v": 1.0}), "confinement contains `v`, which is not a block"),
    "confinement None": (lambda: pl.Risk(X4, Y4, confinement=None), "confinement is None, not a number"),  # type: ignore[arg-type]
    "confinement text": (lambda: pl.Risk(X4, Y4, confinement="x"), "confinement is 'x', not a number"),  # type: ignore[arg-type]
    "confinement list": (lambda: pl.Risk(X4, Y4, confinement=[1, 2, 3]), "one number >= 0, or a mapping"),  # type: ignore[arg-type]
    "activation function": (
        lambda: pl.neurons.Perceptron(torch.sin),  # type: ignore[arg-type]
        r"not an Activation; give a name, or neurons.Activation\('sin', sin\)",
    ),
    "softmax classes": (lambda: pl.neurons.Softmax(1), "classes of a softmax neuron is 1; give a whole number >= 2"),
    "no blocks": (lambda: pl.neurons.FunctionNeuron(flat, {}), "blocks must map the names .* got {}"),
    "list of blocks": (lambda: pl.neurons.FunctionNeuron(flat, ["a"]), "blocks must map the names .* lengths"),  # type: ignore[arg-type]
    "block length": (lambda: pl.neurons.FunctionNeuron(flat, {"a": -1}), "length of the block `a` is -1; give a whole"),
    "blocks of n_x": (
        lambda: pl.Risk(X4, Y4, pl.neurons.FunctionNeuron(flat, lambda n_x: {"w": n_x - 2})),
        "length of the block `w` is 0",
    ),
    "no outputs": (lambda: pl.neurons.FunctionNeuron(flat, {"w": 2}, outputs=0), "outputs of a neuron is 0"),
    "no phi": (lambda: pl.neurons.FunctionNeuron(None, {"w": 2}), "phi is None, not a function"),  # type: ignore[arg-type]
    "p": (lambda: pl.Energy(V=torch.sum, p=0), "p is 0; give a whole number >= 1"),
    "negative p": (lambda: pl.Energy(V=torch.sum, p=-1), "p is -1; give a whole number >= 1"),
    "energy block": (lambda: pl.Energy(V=torch.sum, blocks={"a": 1.5}), "length of the block `a` is 1.5"),  # type: ignore[dict-item]
    "V number": (lambda: pl.Energy(V=1.0, p=2), "V is 1.0, not a function"),  # type: ignore[arg-type]
    "swapped": (lambda: pl.iterate(zeros(3), sine_risk(), HYPER), "functional is of type PointCloud; give a Risk"),  # type: ignore[arg-type]
    "cloud": (lambda: pl.iterate(sine_risk(), HYPER, zeros(3)), "cloud is of type Hyper; give a PointCloud"),  # type: ignore[arg-type]
    "hyper": (
        lambda: pl.iterate(sine_risk(), zeros(3), {"beta": 1}),
        r"hyper is of type dict; give .*Hyper\(",
    ),  # type: ignore[arg-type]
    "class": (lambda: pl.init(Repulsion, N=3), "functional is the class Repulsion"),  # type: ignore[arg-type]
    "value of p": (lambda: sine_risk().value(zeros(2).theta, zeros(2).rho), "a particle has 3 coordinates"),
    "value of arrays": (lambda: sine_risk().value(X4, Y4), "theta is of type ndarray.* give cloud.theta"),  # type: ignore[arg-type]
    "value of a cloud": (lambda: sine_risk().value(zeros(3), zeros(3).rho), "theta is of type PointCloud"),  # type: ignore[arg-type]
    "value of weights": (
        lambda: sine_risk().value(zeros(3).theta, torch.ones(4)),
        "rho has the shape .*float32",
    ),
    "energy p": (lambda: energy_of(torch.sum).value(zeros(2).theta, zeros(2).rho), "a particle has 1 coordinate "),
    "z0": (lambda: pl.step(Repulsion(), zeros(2), HYPER, zeros(2).theta, Y4), "z0 is of type ndarray"),  # type: ignore[arg-type]
    "generator": (lambda: pl.iterate(sine_risk(), zeros(3), HYPER, generator=5), "generator is of type int"),  # type: ignore[arg-type]
    "box number": (lambda: pl.init(Repulsion(), N=1, box=5), "box must map each block of theta"),  # type: ignore[arg-type]
    "sample weights": (lambda: pl.Risk(X4, Y4, sample_weight="x"), "sample_weight is not an array of numbers"),
    "huber text": (lambda: pl.losses.Huber("x"), "must be a finite number > 0, got 'x'"),  # type: ignore[arg-type]
    "callbacks": (lambda: pl.train("dataset=sine", callbacks=print), r"not a list; write callbacks=\[function\]"),  # type: ignore[arg-type]
    "callback": (lambda: pl.train("dataset=sine", callbacks=[1]), "the entry 1 of callbacks is not callable"),  # type: ignore[list-item]
    "huber": (lambda: pl.losses.Huber(-1.0), "must be a finite number > 0"),
    "V": (
        lambda: list(pl.iterate(energy_of(lambda t: t.abs().sqrt().sum()), zeros(1), HYPER, steps=1)),
        "gradient of the functional is not finite at particle 0",
    ),
    "V shape": (lambda: list(pl.iterate(energy_of(lambda t: t), zeros(2), HYPER, steps=1)), r"theta has the shape"),
    "V vector": (
        lambda: pl.Energy(V=lambda t: t, p=2).value(zeros(2).theta, zeros(2).rho),
        r"V\(theta\) returned a tensor of shape \(2,\)",
    ),
    "theta": (lambda: pl.iterate(sine_risk(), zeros(2), HYPER), r"has 3 coordinates \(a: 1, b: 1, w: 1\)"),
    "beta": (lambda: pl.iterate(sine_risk(), zeros(3), replace(HYPER, beta=-1.0)), "beta must be a finite number > 0"),
    "steps": (lambda: pl.iterate(sine_risk(), zeros(3), HYPER, steps=-1), "steps must be a whole number >= 0"),
    "engine": (lambda: pl.iterate(sine_risk(), zeros(3), HYPER, engine="fast"), "unknown engine 'fast'"),
    "batch": (
        lambda: pl.iterate(Repulsion(), zeros(2), replace(HYPER, batch_size=3)),
        "batch_size=3, but this functional has no samples; leave out batch_size",
    ),
    "literal": (
        lambda: list(pl.iterate(Repulsion(), zeros(2), HYPER, steps=1, engine="literal")),
        "the literal engine supports only a Risk",
    ),
    "noise": (lambda: pl.step(Repulsion(), zeros(2), HYPER, torch.zeros(4, 3), torch.ones(4)), "draw a normal tensor"),
    "N": (lambda: pl.init(Repulsion(), N=0), "N must be a whole number >= 1"),
    "dtype": (lambda: pl.init(Repulsion(), N=1, dtype=torch.float16), "cannot have the dtype torch.float16"),
    "box block": (lambda: pl.init(Repulsion(), N=1, box={"plce": (0, 1)}), "did you mean `place`"),
    "box": (lambda: pl.init(sine_risk(), N=1, box={"a": (0, 1)}), "no interval for the block `b`"),
    "weights": (lambda: pl.PointCloud.from_arrays(X4, [1, 1, 1, 0]), "every weight in rho must be a finite number > 0"),
    "weights shape": (lambda: pl.PointCloud.from_arrays(X4, [1.0]), "4 rows; give one weight per particle"),
    "locations": (lambda: pl.PointCloud.from_arrays(Y4), r"theta has the shape \(4,\)"),
}


def energy_of(V: Callable[[Tensor], Tensor]) -> pl.Energy:
    return pl.Energy(V=V, p=1)


def zeros(p: int) -> pl.PointCloud:
    return pl.PointCloud.from_arrays(np.zeros((4, p)))


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused_in_one_sentence_with_a_remedy(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(pl.InputError, match=message) as caught:
        call()
    assert isinstance(caught.value, pl.ProxlearnError)
    assert caught.value.remedy
    assert "\n" not in str(caught.value)
