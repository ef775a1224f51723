"""A user's functional that is not finite or cannot be evaluated at the initial cloud is rejected at the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import proxlearn as pl

HYPER = pl.Hyper(beta=100.0, h=0.02, epsilon=0.1)
STARTS: dict[str, Callable[[pl.Functional, pl.PointCloud], object]] = {
    "iterate": lambda functional, cloud: pl.iterate(functional, cloud, HYPER, steps=1),
    "step": lambda functional, cloud: pl.step(
        functional, cloud, HYPER, torch.zeros_like(cloud.theta), torch.ones_like(cloud.rho)
    ),
}


def functional_of(value: Callable[[Tensor, Tensor], Any]) -> pl.Functional:
    members = {"blocks": {"theta": 2}, "value": lambda self, theta, rho: value(theta, rho)}
    functional: pl.Functional = type("Mine", (pl.Functional,), members)()
    return functional


def risk_of(phi: Callable[[Mapping[str, Tensor], Tensor], Tensor]) -> pl.Risk:
    X = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)[:, None]
    return pl.Risk(X, X[:, 0], pl.neurons.FunctionNeuron(phi, {"w": 2}, name="mine"))


class Root(pl.losses.Loss):
    name = "root"

    def value(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.sqrt(f - y)


NOT_FINITE: dict[str, tuple[Callable[[], pl.Functional], str]] = {
    "V": (lambda: pl.Energy(V=lambda t: t.log().sum(), p=2), "V is not finite at particle 2 of the initial cloud"),
    "W": (lambda: pl.Energy(W=lambda t, s: (t + s).log().sum(), p=2), "W is not finite at particle 0 of the initial"),
    "gradient of V": (
        lambda: pl.Energy(V=lambda t: (t - 1).abs().sqrt().sum(), p=2),
        "gradient of the energy is not finite at particle 0 of the initial cloud",
    ),
    "phi": (lambda: risk_of(lambda t, x: t["w"].log().sum() * x[0]), "neuron `mine` is not finite at particle 2"),
    "loss": (lambda: pl.Risk(np.ones((3, 1)), [9.0] * 3, pl.neurons.FunctionNeuron(
        lambda t, x: t["w"].sum(), {"w": 2}), Root()), "value of Risk is not finite at the initial cloud"),
    "functional": (lambda: functional_of(lambda t, r: r @ t.log().sum(1)), "value of Mine is not finite"),
    "vector": (lambda: functional_of(lambda t, r: r * t[:, 0]), r"value of Mine returned the shape \(4,\)"),
    "number": (lambda: functional_of(lambda t, r: 1.0), "value of Mine returned 1.0; return a scalar tensor"),
    "no rho": (lambda: functional_of(lambda t, r: t.square().sum()), "value of Mine does not depend on rho"),
    "no theta": (lambda: functional_of(lambda t, r: r @ r), "value of Mine does not depend on theta"),
    "detached": (lambda: functional_of(lambda t, r: (r @ t).sum().detach()), "value of Mine does not depend on theta"),
    "error": (lambda: functional_of(lambda t, r: r @ t[5]), "Mine cannot be evaluated at the initial cloud"),
    "batched V": (lambda: pl.Energy(V=lambda t: t[:, 0] ** 2, p=2), r"V\(theta\) cannot be evaluated for one particle"),
    "float V": (lambda: pl.Energy(V=lambda t: 1.0, p=2), r"V\(theta\) cannot be evaluated .* return a scalar tensor"),
    "batched W": (lambda: pl.Energy(W=lambda t, s: (t @ s)[:, 0], p=2), r"W\(theta, other\) cannot be evaluated"),
}  # fmt: skip


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", NOT_FINITE)
def test_what_cannot_be_started_is_refused_at_the_call_with_its_cause(name: str, start: str) -> None:
    make, message = NOT_FINITE[name]
    cloud = pl.PointCloud.from_arrays([[1.0, 2.0], [2.0, 1.0], [-5.0, 1.0], [1.0, -5.0]])
    with pytest.raises(pl.InputError, match=message) as caught:
        STARTS[start](make(), cloud)
    assert "smaller h" not in str(caught.value)


@pytest.mark.parametrize("engine", ["eager", "fused"])
def test_a_gradient_that_becomes_infinite_names_the_step(engine: str) -> None:
    # The particle moves by -h towards 0, where the slope of the square root is infinite.
    energy = pl.Energy(V=lambda t: torch.where(t > 0.25, t, (t - 0.25).abs().sqrt()).sum(), p=1)
    hyper = pl.Hyper(beta=1.0, h=0.25, epsilon=0.1, noise_scale=0.0)
    iterates, seen = pl.iterate(energy, pl.PointCloud.from_arrays([[1.0]]), hyper, engine=engine), []
    with pytest.raises(pl.RunError, match="gradient of the energy is not finite at particle 0 in step 4") as caught:
        seen.extend(cloud.step for cloud, _ in iterates)
    assert seen == [1, 2, 3]
    assert type(caught.value) is pl.RunError


def test_the_check_evaluates_a_batch_and_no_more() -> None:
    rows = []

    def phi(theta: Tensor, x: Tensor) -> Tensor:
        return theta["w"] @ x  # type: ignore[call-overload, no-any-return]

    class Counted(pl.neurons.FunctionNeuron):
        def outputs(self, theta: Tensor, X: Tensor) -> Tensor:
            rows.append(len(X))
            return super().outputs(theta, X)

    risk = pl.Risk(np.ones((1000, 2)), np.ones(1000), Counted(phi, {"w": 2}))
    list(pl.iterate(risk, pl.init(risk, N=3), pl.Hyper(beta=1.0, h=0.1, epsilon=1.0, batch_size=10), steps=3))
    assert max(rows) == 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_cloud_of_another_precision_than_the_data_is_evaluated_in_its_own(dtype: torch.dtype) -> None:
    data = torch.float32 if dtype == torch.float64 else torch.float64
    x = torch.linspace(-1, 1, 8, dtype=data)
    risk = pl.Risk(x[:, None], x**2, confinement=0.1, sample_weight=x.abs())
    cloud = pl.init(risk, N=6, dtype=dtype)
    same = risk.to("cpu", dtype)
    for method in ("value", "first_variation"):
        result = getattr(risk, method)(cloud.theta, cloud.rho)
        assert result.dtype == dtype
        assert torch.equal(result, getattr(same, method)(cloud.theta, cloud.rho))
    after, _ = pl.step(risk, cloud, HYPER, torch.zeros(6, 3, dtype=data), torch.ones(6, dtype=data))
    ((once, _),) = pl.iterate(
        risk, cloud, pl.Hyper(beta=100.0, h=0.02, epsilon=0.1, noise_scale=0.0), steps=1, engine="eager"
    )
    assert after.theta.dtype == dtype
    assert torch.equal(after.theta, once.theta)
    single = pl.Energy(V=lambda t: (t.double() ** 2).sum(), p=2)
    theta = torch.ones(3, 2, dtype=dtype)
    assert single.value(theta, torch.ones(3, dtype=dtype)).dtype == dtype
