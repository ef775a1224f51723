"""The public interface: the names of `import proxlearn`, their examples, and the errors for wrong input."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from api_pages import API_GROUPS, public_members, public_objects
from sphinx.pycode import ModuleAnalyzer
from torch import Tensor

import proxlearn as pl
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.stepper import draw_noise
from tests.conftest import config_of

HYPER = pl.Hyper(beta=100.0, h=0.02, epsilon=0.1)
PUBLIC_MODULES = (
    *("proxlearn.neurons", "proxlearn.losses", "proxlearn.flow", "proxlearn.runs"),
    *("proxlearn.core.cloud", "proxlearn.core.hyper", "proxlearn.core.losses", "proxlearn.core.step"),
    *("proxlearn.core.functionals.energy", "proxlearn.core.functionals.functional", "proxlearn.core.functionals.risk"),
    *("proxlearn.core.neurons.activations", "proxlearn.core.neurons.function_neuron"),
    *("proxlearn.core.neurons.neuron", "proxlearn.core.neurons.perceptron", "proxlearn.core.neurons.softmax"),
    *("proxlearn.errors", "proxlearn.estimator", "proxlearn.estimator_regressor", "proxlearn.run.observers"),
)


class Repulsion(pl.Functional):
    """A user-defined functional with only a value."""

    blocks = {"place": 2}  # noqa: RUF012

    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        distances = (theta[:, None] - theta).square().sum(2)
        return rho @ torch.exp(-distances) @ rho + rho @ theta.square().sum(1)


def sine_risk(dtype: torch.dtype = torch.float64, **arguments: Any) -> pl.Risk:
    x = torch.linspace(-2, 2, 30, dtype=dtype)
    return pl.Risk(x[:, None], torch.sin(2 * x), **arguments)


FUNCTIONALS: dict[str, Callable[[], pl.Functional]] = {
    "risk": sine_risk,
    "huber": lambda: sine_risk(loss=pl.losses.huber, neuron=pl.neurons.Softplus()),
    "energy": lambda: pl.Energy(V=lambda t: t.square().sum(), W=lambda t, s: torch.exp(-(t - s).square().sum()), p=2),
    "own": Repulsion,
}


def test_the_import_is_light_and_every_name_is_there() -> None:
    code = (
        "import sys, proxlearn as pl\n"
        "assert set(pl.__all__) <= set(dir(pl))\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'hydra', 'pandas', 'matplotlib'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "for name in pl.__all__: getattr(pl, name)\n"
        "from proxlearn import *\n"
        "assert Risk is pl.Risk and neurons.Tanh and losses.quadratic\n"
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    with pytest.raises(AttributeError, match="no attribute 'Rosk'"):
        _ = pl.Rosk


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse(Path(pl.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    typed = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert typed == {**pl._MODULE_OF, "losses": "proxlearn", "neurons": "proxlearn"}
    assert set(typed) | {"__version__"} == set(pl.__all__)


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_the_examples_in_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(importlib.import_module(name))
    assert results.attempted > 0
    assert results.failed == 0


def parameters_of(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "args", "kwargs")]


@pytest.mark.parametrize("name", [name for group in API_GROUPS.values() for name in public_objects(group[2])])
def test_public_names_have_docstrings_with_shapes_returns_and_an_example(name: str) -> None:
    module, _, member = name.rpartition(".")
    value = getattr(importlib.import_module(module), member)
    text = inspect.getdoc(value if callable(value) else type(value))
    assert text
    assert not text.startswith(f"{member}(")
    assert re.search(r"^Examples\n-{8}", text, re.MULTILINE)
    if inspect.isfunction(value):
        returned = inspect.signature(value).return_annotation
        assert returned == "None" or re.search(r"^(Returns|Yields)\n-{6,7}", text, re.MULTILINE)
    abstract = member in ("Functional", "Loss", "Neuron", "Info")
    for parameter in () if abstract or not callable(value) else parameters_of(value):
        assert re.search(rf"^[\w*, ]*\b{parameter}\b.* : ", text, re.MULTILINE), parameter


def class_variables(cls: type) -> dict[str, list[str]]:
    """Return the docstrings of the annotated class variables, which Sphinx reads from the source."""
    docs: dict[str, list[str]] = {}
    for owner in reversed([owner for owner in cls.__mro__ if owner.__module__.startswith("proxlearn")]):
        attributes = ModuleAnalyzer.for_module(owner.__module__).find_attr_docs()
        for name, annotation in vars(owner).get("__annotations__", {}).items():
            if str(annotation).startswith("ClassVar"):
                docs[name] = attributes.get((owner.__name__, name), docs.get(name, []))
    return docs


@pytest.mark.parametrize("name", [name for group in API_GROUPS.values() for name in public_objects(group[2])])
def test_public_methods_have_docstrings_that_name_their_arguments(name: str) -> None:
    module, _, member = name.rpartition(".")
    cls = getattr(importlib.import_module(module), member)
    for method in public_members(cls) if isinstance(cls, type) else ():
        value = inspect.getattr_static(cls, method)
        if method in class_variables(cls):
            assert class_variables(cls)[method], method
            continue
        text = inspect.getdoc(getattr(cls, method) if not isinstance(value, property) else value)
        assert text, method
        function = getattr(value, "__func__", value)
        if not inspect.isfunction(function):
            continue
        sections = dict(re.findall(r"^(\w+)\n-{4,}\n(.*?)(?=\n\n\w+\n-{4,}|\Z)", text, re.MULTILINE | re.DOTALL))
        for parameter in parameters_of(function):
            # A parameter with its type, or several whose description refers to another method.
            assert re.search(rf"^[\w*, ]*\b{parameter}\b(.* : |[\w, ]*$)", sections["Parameters"], re.MULTILINE), (
                method,
                parameter,
            )
        if inspect.signature(function).return_annotation not in ("None", "NoReturn"):
            assert {"Returns", "Yields"} & set(sections), method


@pytest.mark.parametrize("name", ["Risk", "Energy", "Functional", "Hyper", "Info", "step", "Loss", "Neuron"])
def test_names_with_mathematics_refer_to_equations_of_the_theory_pages(name: str) -> None:
    value = getattr(pl, name, None) or getattr(pl.losses, name, None) or getattr(pl.neurons, name)
    text = inspect.getdoc(value)
    assert text
    labels, pages = re.findall(r":eq:`([\w-]+)`", text), re.findall(r":doc:`/(theory/\w+)`", text)
    assert labels
    theory = "".join(
        (Path(pl.__file__).parents[1] / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in pages
    )
    assert [label for label in labels if f"$$ ({label})" not in theory] == []


def test_the_api_pages_cover_every_public_name() -> None:
    shown = [name for _, _, names in API_GROUPS.values() for name in names]
    assert sorted([*shown, "__version__"]) == sorted(pl.__all__)


def test_init_and_iterate_are_those_of_a_tuned_run() -> None:
    numbers = ("h=0.1", "beta=1000", "epsilon=0.5", "steps=5", "init_scale=1.5", "N=20", "seed=3", "loss=quadratic")
    experiment = build_experiment(config_of("dataset=sine", "recipe=tuned", *numbers))
    start = first_checkpoint(experiment)
    cloud = pl.init(experiment.source, N=20, seed=3, scale=1.5, dtype=torch.float32)
    assert torch.equal(cloud.theta, start.cloud.theta)
    assert torch.equal(cloud.log_rho, start.cloud.log_rho)
    generator = torch.Generator()
    generator.set_state(start.generator)
    ours = list(pl.iterate(experiment.source, cloud, experiment.hyper, steps=5, seed=3))
    theirs = list(pl.iterate(experiment.source, cloud, experiment.hyper, steps=5, generator=generator))
    assert torch.equal(ours[-1][0].theta, theirs[-1][0].theta)


@pytest.mark.parametrize("engine", ["fused", "eager"])
@pytest.mark.parametrize("name", FUNCTIONALS)
def test_ten_steps_and_ten_more_are_twenty(name: str, engine: str) -> None:
    functional = FUNCTIONALS[name]()
    start = pl.init(functional, N=25, seed=1)
    assert start.theta.dtype == torch.float64
    whole = list(pl.iterate(functional, start, HYPER, steps=20, seed=5, engine=engine))
    generator = torch.Generator().manual_seed(0)
    *_, (once, _) = pl.iterate(functional, start, HYPER, steps=20, generator=generator, engine=engine)
    generator.manual_seed(0)
    *_, (half, _) = pl.iterate(functional, start, HYPER, steps=10, generator=generator, engine=engine)
    *_, (twice, info) = pl.iterate(functional, half, HYPER, steps=10, generator=generator, engine=engine)
    assert half.step == 10
    assert twice.step == once.step == 20
    assert torch.equal(once.theta, twice.theta)
    assert torch.equal(once.log_rho, twice.log_rho)
    assert not torch.equal(whole[-1][0].theta, once.theta), "another seed, other noise"
    assert isinstance(info, pl.Info)


def test_the_engines_agree_and_step_is_one_iterate() -> None:
    for functional in (FUNCTIONALS["energy"](), Repulsion(), sine_risk()):
        start, generator = pl.init(functional, N=20), torch.Generator().manual_seed(3)
        noise, z0 = draw_noise(start, generator)
        once, _ = pl.step(functional, start, HYPER, noise, z0)
        for engine in ("eager", "fused"):
            generator.manual_seed(3)
            ((first, _),) = pl.iterate(functional, start, HYPER, steps=1, generator=generator, engine=engine)
            torch.testing.assert_close(first.theta, once.theta, rtol=1e-12, atol=1e-12)
            torch.testing.assert_close(first.log_rho, once.log_rho, rtol=1e-9, atol=1e-9)


def test_readings_left_alone_follow_the_functional_and_typed_ones_are_refused() -> None:
    y = torch.tensor([-1.0, 1.0, 1.0])
    logistic = pl.Risk(torch.eye(3), y, loss=pl.losses.logistic)
    cloud = pl.init(logistic, N=10)
    scheduled = replace(HYPER, h=0.5, h_schedule="cosine")
    for hyper in (HYPER, scheduled):
        *_, (_, info) = pl.iterate(logistic, cloud, hyper, steps=2)
        assert info is not None
        assert info.hyper.drift == info.hyper.prox_potential == "first_variation"
    energy = FUNCTIONALS["energy"]()
    ((_, info),) = pl.iterate(energy, pl.init(energy, N=10), HYPER, steps=1)
    assert info is not None
    assert info.hyper.drift == info.hyper.prox_potential == "paper"
    noise, z0 = torch.zeros(10, 5), torch.ones(10)
    pl.step(logistic, cloud, HYPER, noise, z0)
    for option in ("drift", "prox_potential"):
        typed = replace(HYPER, **{option: "paper"})  # type: ignore[arg-type]
        assert typed == HYPER
        for call, randomness in ((pl.iterate, ()), (pl.step, (noise, z0))):
            with pytest.raises(pl.InputError, match=f"{option}=paper .* not for logistic; use {option}=first_var"):
                call(logistic, cloud, typed, *randomness)  # type: ignore[operator]
        with pytest.raises(pl.InputError, match=f"{option}=paper"):
            pl.iterate(Repulsion(), pl.init(Repulsion(), N=3), typed)


def test_classes_become_the_targets_of_the_neuron_and_the_loss() -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    labels = np.array([0, 1, 2, 2, 1, 0])
    one_hot = np.eye(3)[labels]
    for y in (labels, labels.astype(float), one_hot, pd.Series(labels)):
        for neuron in (None, pl.neurons.Tanh(outputs=3)):
            risk = pl.Risk(X, y, neuron, loss=pl.losses.cross_entropy)
            assert torch.equal(risk.samples.y, torch.from_numpy(one_hot.T))
    for y in (labels, one_hot):
        softmax = pl.Risk(pd.DataFrame(X), y, pl.neurons.Softmax(3, intercept=True))
        assert softmax.samples.labels is not None
        assert softmax.samples.labels.tolist() == labels.tolist()
        assert softmax.samples.y.tolist() == [1.0] * 6
        assert len(list(pl.iterate(softmax, pl.init(softmax, N=5), HYPER, steps=2))) == 2
    soft = pl.Risk(X, np.full((6, 3), 1 / 3), loss=pl.losses.cross_entropy)
    assert soft.neuron.num_outputs == 3
    for y in (labels > 0, (labels > 0).astype(int), np.where(labels > 0, 1.0, -1.0)):
        risk = pl.Risk(X.astype("float32"), y, loss=pl.losses.logistic)
        assert risk.samples.y.tolist() == [-1, 1, 1, 1, 1, -1]
        assert pl.init(risk, N=2).theta.dtype == torch.float32
    column = pl.Risk(X, labels[:, None] * 1.5)
    assert column.samples.y.tolist() == (labels * 1.5).tolist()


def test_an_own_activation_and_an_own_loss_train() -> None:
    class Absolute(pl.losses.Loss):
        def value(self, f: Tensor, y: Tensor) -> Tensor:
            return (f - y).abs()

    swish = pl.neurons.Activation("swish", lambda z: z * torch.sigmoid(z))
    risk = sine_risk(neuron=pl.neurons.Perceptron(swish), loss=Absolute())
    start = pl.init(risk, N=50)
    *_, (cloud, _) = pl.iterate(risk, start, replace(HYPER, beta=1e6, h=0.1), steps=50)
    assert risk.value(cloud.theta, cloud.rho) < risk.value(start.theta, start.rho)


def test_a_cloud_has_the_precision_that_is_asked_for() -> None:
    risk = sine_risk(torch.float32)
    assert pl.init(risk, N=4).theta.dtype == torch.float32
    wide = pl.init(risk, N=4, dtype=torch.float64)
    assert wide.theta.dtype == torch.float64
    ((after, _),) = pl.iterate(risk, wide, HYPER, steps=1)
    assert after.theta.dtype == torch.float64
    assert re.fullmatch(r"PointCloud\(N=4, p=3, step=1, float64\)", repr(after))
    box = pl.init(risk, N=500, box={"a": (1, 2), "b": (-1, 1), "w": (5, 6)})
    low, high = box.theta.amin(0), box.theta.amax(0)
    assert bool((low >= torch.tensor([1.0, -1.0, 5.0])).all())
    assert bool((high <= torch.tensor([2.0, 1.0, 6.0])).all())
    assert float(box.rho.sum()) == pytest.approx(1)


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_a_continued_cloud_has_other_noise_with_the_same_seed(name: str) -> None:
    functional = FUNCTIONALS[name]()
    start = pl.init(functional, N=25)
    ((first, _),) = pl.iterate(functional, start, HYPER, steps=1, seed=4)
    moves = []
    for cloud in (first, replace(first, step=0)):
        *_, (after, _) = pl.iterate(functional, cloud, HYPER, steps=1, seed=4)
        again = [after.theta for after, _ in pl.iterate(functional, cloud, HYPER, steps=1, seed=4)]
        assert torch.equal(again[0], after.theta), "the seed and the step determine the noise"
        moves.append(after.theta)
    assert not torch.allclose(*moves), "the step enters the noise"


def test_clouds_are_compared_by_identity_and_have_short_representations() -> None:
    risk, cloud, other = sine_risk(), *(pl.PointCloud.from_arrays(np.zeros((4, 3))) for _ in range(2))
    assert cloud == cloud
    assert cloud != other
    assert len({cloud, cloud, other}) == 2
    ((_, info),) = pl.iterate(risk, cloud, HYPER, steps=1)
    wave = pl.neurons.FunctionNeuron(lambda theta, x: x[0], {"a": 1, "w": 2}, name="wave")
    for thing, text in (
        (info, "Info(step=1, stopped=True)"),
        (risk, "Risk(n=30, n_x=1, neuron=tanh, loss=quadratic, p=3, float64)"),
        (FUNCTIONALS["energy"](), "Energy(V and W, p=2, blocks theta: 2)"),
        (wave, "FunctionNeuron(wave, blocks a: 1, w: 2, outputs=1)"),
    ):
        assert repr(thing) == text
