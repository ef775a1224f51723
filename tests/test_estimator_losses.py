"""The estimators' losses, activations and confinement, and the paper's algorithm through their parameters."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs

from proxlearn import ProxLearnClassifier, ProxLearnRegressor
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.hyper import Hyper
from proxlearn.core.losses import CrossEntropy, Huber, Logistic, Loss, Quadratic
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.errors import InputError
from proxlearn.estimator_parameters import DEFAULT_LOSS
from proxlearn.training.engine import make_step
from proxlearn.training.fit import initial_fit
from proxlearn.training.iterate import iterate
from proxlearn.training.settings import Settings
from tests.test_estimator import QUICK, moons, wave

torch.set_num_threads(1)

PAPER = {
    **{"drift": "paper", "prox_potential": "paper", "orientation": "paper", "tolerance": "paper"},
    **{"epsilon_quantile": None, "L": 300, "delta": 1e-3},
}
SMALL = QUICK | {"N": 12, "steps": 5}


class Pinball(Loss):
    """The loss whose minimiser is the quantile of level 0.9."""

    name = "pinball"
    tasks = ("regression",)

    def value(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.maximum(0.9 * (y - f), 0.1 * (f - y))


def test_intervals_around_a_prediction_that_may_be_a_quantile_cause_a_warning() -> None:
    X, y = wave(60)
    fitted = ProxLearnRegressor(loss=Pinball(), **SMALL).fit(X, y)
    with pytest.warns(UserWarning, match="'pinball' may estimate something other than the centre"):
        fitted.predict_interval(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict_interval(X, of="mean")
        for loss in ("quadratic", "huber", Huber(0.5), Cosh()):
            ProxLearnRegressor(loss=loss, **SMALL).fit(X, y).predict_interval(X)


def blobs() -> tuple[np.ndarray, np.ndarray]:
    return make_blobs(120, centers=3, random_state=0)


def test_the_defaults_are_those_of_the_settings() -> None:
    defaults, parameters = Settings(), ProxLearnClassifier().get_params()
    for name in ("drift", "prox_potential", "orientation", "tolerance", "delta", "L", "kernel"):
        assert parameters[name] == getattr(defaults, name)
    assert ProxLearnRegressor().get_params() | {"class_weight": None} == parameters
    assert parameters["loss"] == DEFAULT_LOSS


@pytest.mark.parametrize("solver", ["closed_form", "literal"])
@pytest.mark.parametrize("task", ["binary", "regression"])
def test_the_paper_s_algorithm_is_that_of_iterate_bit_for_bit(solver: str, task: str) -> None:
    X, y = moons() if task == "binary" else wave()
    values = {"N": 25, "steps": 20, "beta": 5.0, "h": 1e-2, "epsilon": 0.5, "init_scale": 1.0, "dtype": "float64"}
    make = ProxLearnClassifier if task == "binary" else ProxLearnRegressor
    fitted = make(**PAPER | values, solver=solver, random_state=3).fit(X, y)

    scaled = (X - X.mean(axis=0)) * (1 / X.std(axis=0))
    target = 2.0 * y - 1 if task == "binary" else (y - y.mean()) * (1 / y.std())
    risk = Risk.from_samples(Perceptron(), Samples(torch.from_numpy(scaled), torch.from_numpy(target)))
    settings = Settings(**PAPER | values)
    start = initial_fit(risk, settings, 3)
    generator = torch.Generator()
    generator.set_state(start.generator)
    engine = "literal" if solver == "literal" else None
    *_, (cloud, _) = iterate(risk, start.cloud, settings.hyper, generator=generator, until=20, engine=engine)
    np.testing.assert_array_equal(fitted.particles_, cloud.theta.numpy())
    np.testing.assert_array_equal(fitted.weights_, torch.softmax(cloud.log_rho, dim=0).numpy())
    assert fitted.settings_["solver"] == solver


def test_the_literal_solver_agrees_with_the_closed_form_and_is_used_by_selection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, y = moons()
    values = QUICK | PAPER | {"dtype": "float64", "steps": 15, "beta": 5.0, "h": 1e-2, "epsilon": 0.5}
    literal, closed = (ProxLearnClassifier(**values, solver=s).fit(X, y) for s in ("literal", "closed_form"))
    assert not np.array_equal(literal.particles_, closed.particles_)
    np.testing.assert_allclose(literal.particles_, closed.particles_, rtol=1e-6, atol=1e-9)
    engines: set[str | None] = set()

    def select(*_: Any, engine: str | None, **__: Any) -> None:
        engines.add(engine)
        raise KeyboardInterrupt

    monkeypatch.setattr("proxlearn.estimator_base.select", select)
    with pytest.raises(KeyboardInterrupt):
        literal.set_params(h=None).fit(X, y)
    assert engines == {"literal"}


LINKS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "quadratic": lambda f: np.clip((1 + f) / 2, 0, 1),
    "logistic": lambda f: 1 / (1 + np.exp(-f)),
}


@pytest.mark.parametrize("loss", LINKS)
def test_two_classes_have_one_output_and_the_probability_of_the_loss(loss: str) -> None:
    X, y = moons()
    fitted = ProxLearnClassifier(**QUICK | {"steps": 150}, loss=loss).fit(X, y)
    assert fitted.particles_.shape == (60, 4)
    assert fitted.score(X, y) > 0.85
    f = fitted._model.mean_outputs(X)["weighted"][0].numpy()
    np.testing.assert_allclose(fitted.predict_proba(X)[:, 1], LINKS[loss](f), atol=2e-6)
    if loss == "logistic":
        outputs = fitted._model.neuron.outputs(fitted._model.cloud.theta, torch.from_numpy(fitted._model.scaler(X)))
        deviations = outputs[:, 0].numpy() - f
        error = np.sqrt(fitted.weights_**2 @ deviations**2)
        p = LINKS[loss](f)
        np.testing.assert_allclose(fitted.predict_std(X)[:, 1], p * (1 - p) * error, rtol=1e-6)


def test_three_classes_have_the_softmax_of_three_outputs() -> None:
    X, y = blobs()
    fitted = ProxLearnClassifier(**QUICK | {"steps": 150}, loss="cross_entropy").fit(X, y)
    f = fitted._model.mean_outputs(X)["weighted"].numpy()
    softmax = np.exp(f) / np.exp(f).sum(axis=0)
    np.testing.assert_allclose(fitted.predict_proba(X), softmax.T, atol=5e-6)
    assert fitted.score(X, y) > 0.8
    assert fitted.predict_std(X).shape == (120, 3)


def test_huber_s_loss_resists_outliers() -> None:
    X, y = wave()
    bad = y.copy()
    bad[::10] += 200

    def error(loss: str | Loss) -> float:
        fitted = ProxLearnRegressor(**QUICK | {"steps": 300}, loss=loss).fit(X, bad)
        return float(np.sqrt(np.mean((fitted.predict(X) - y) ** 2)))

    assert error(Huber(0.05)) < error("quadratic") / 2


def test_several_targets_take_huber_s_loss() -> None:
    X, y = wave()
    fitted = ProxLearnRegressor(**QUICK | {"steps": 300}, loss="huber").fit(X, np.stack((y, X[:, 0]), axis=1))
    assert fitted.score(X, np.stack((y, X[:, 0]), axis=1)) > 0.8


def test_the_noise_under_another_loss_is_that_of_the_fitted_rows() -> None:
    X, y = wave()
    fitted = ProxLearnRegressor(N=30, steps=20, random_state=0, loss="huber").fit(X, y)
    assert fitted.selection_
    assert fitted.noise_[0] == pytest.approx(np.sqrt(np.mean((fitted.predict(X) - y) ** 2)))


def test_no_loss_is_the_recommended_one() -> None:
    for make, rows, name in (
        (ProxLearnClassifier, moons(), "logistic"),
        (ProxLearnClassifier, blobs(), "cross_entropy"),
        (ProxLearnRegressor, wave(), "quadratic"),
    ):
        chosen, named = (make(**SMALL, loss=loss).fit(*rows) for loss in (None, name))
        assert chosen.settings_["loss"] == name
        np.testing.assert_array_equal(chosen.particles_, named.particles_)


@pytest.mark.parametrize("activation", ["relu", "gelu", "softplus", "sigmoid", "cos"])
def test_every_activation_learns(activation: str) -> None:
    X, y = moons()
    fitted = ProxLearnClassifier(**QUICK | {"steps": 150, "h": 0.2}, activation=activation).fit(X, y)
    assert fitted.score(X, y) > 0.8
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))


def test_confinement_acts_on_the_blocks_that_it_names() -> None:
    X, y = wave()

    def sizes(confinement: Any) -> np.ndarray:
        fitted = ProxLearnRegressor(**QUICK, confinement=confinement).fit(X, y)
        return np.sqrt(np.mean(fitted.particles_**2, axis=0))

    free, confined, weights = sizes(0.0), sizes(np.float64(0.05)), sizes({"w": np.float64(0.05)})
    assert (confined < free).all()
    assert (weights[2:] < free[2:]).all()
    np.testing.assert_array_equal(sizes({"a": 0.05, "b": 0.05, "w": 0.05}), confined)


class Cosh(Loss):
    """A user-defined loss, whose derivative is computed by automatic differentiation."""

    name = "cosh"
    tasks = ("regression",)
    estimates_centre = True

    def value(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.softplus(2 * (f - y)) - (f - y)


@pytest.mark.parametrize("loss", [Huber(0.5), Quadratic(), Cosh()])
def test_loss_objects_are_cloned_pickled_and_kept_as_parameters(loss: Loss) -> None:
    X, y = wave()
    fitted = ProxLearnRegressor(**SMALL, loss=loss).fit(X, y)
    assert fitted.get_params()["loss"] is loss
    for other in (clone(fitted).fit(X, y), pickle.loads(pickle.dumps(fitted))):
        assert type(other.loss) is type(loss)
        np.testing.assert_array_equal(other.predict(X), fitted.predict(X))
    assert fitted.set_params(loss="huber").fit(X, y).settings_["loss"] == "huber"


def test_a_loss_object_equals_its_name() -> None:
    for make, rows, loss in (
        (ProxLearnClassifier, moons(), Logistic()),
        (ProxLearnClassifier, blobs(), CrossEntropy()),
        (ProxLearnRegressor, wave(), Huber()),
    ):
        objects, names = (make(**SMALL, loss=value).fit(*rows) for value in (loss, loss.name))
        np.testing.assert_array_equal(objects.particles_, names.particles_)


@pytest.mark.parametrize("given", [{"loss": Huber()}, {"confinement": 0.1}, {"sample_weight": [1.0, 2.0]}])
def test_the_literal_step_refuses_another_risk_than_the_paper_s(given: dict[str, Any]) -> None:
    risk = Risk(torch.eye(2), torch.ones(2), **given)
    with pytest.raises(InputError, match=r"solver=literal does not support .*; use solver=closed_form"):
        make_step("literal", risk, Hyper(beta=1.0, h=0.1, epsilon=1.0), 2, 1)


LITERAL = PAPER | {"solver": "literal"}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("binary", {"loss": "huber"}, "loss=huber does not support two classes; choose loss=quadratic|logistic"),
    ("binary", {"loss": "cross_entropy"}, "does not support two classes; choose loss=quadratic|logistic"),
    ("binary", {"loss": Huber(2.0)}, "does not support two classes"),
    ("multiclass", {"loss": "logistic"}, "three classes or more; choose loss=quadratic|cross_entropy"),
    ("regression", {"loss": "logistic"}, "real targets; choose loss=quadratic|huber"),
    ("binary", {"loss": "hinge"}, "loss cannot be 'hinge'; choose loss="),
    ("binary", {"loss": Huber}, "loss cannot be"),
    ("binary", {"activation": "step"}, "activation cannot be 'step'"),
    ("binary", {"confinement": -1.0}, "confinement must be a finite number >= 0"),
    ("binary", {"confinement": {"c": 1.0}}, "confinement contains `c`, which is not a block of theta"),
    ("binary", {"drift": "paper", "loss": "logistic"}, "drift=paper is defined for the quadratic loss only"),
    ("regression", {"prox_potential": "paper", "loss": Huber()}, "prox_potential=paper is defined for the quadratic"),
    ("binary", {"solver": "newton"}, "solver cannot be 'newton'"),
    ("binary", {"solver": "literal"}, "solver=literal supports only drift=paper; set drift=paper"),
    ("binary", LITERAL | {"tolerance": "log"}, "supports only tolerance=paper; set tolerance=paper"),
    ("binary", LITERAL | {"confinement": 0.1}, "solver=literal does not support confinement"),
    ("binary", LITERAL | {"weights": "uniform"}, "solver=literal supports only weights=proximal"),
    ("regression", LITERAL | {"loss": "huber"}, "drift=paper is defined for the quadratic loss only"),
    ("binary", {"L": 0}, "L must be a whole number >= 1"),
]


@pytest.mark.parametrize("task, wrong, message", REFUSED)
def test_what_does_not_fit_together_is_a_value_error_with_its_remedy(task: str, wrong: dict, message: str) -> None:
    make = ProxLearnRegressor if task == "regression" else ProxLearnClassifier
    rows = {"binary": moons, "multiclass": blobs, "regression": wave}[task]()
    with pytest.raises(ValueError) as refused:
        make(**SMALL | wrong).fit(*rows)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_warm_start_can_change_the_loss() -> None:
    X, y = moons()
    warm = ProxLearnClassifier(**SMALL | {"warm_start": True}).fit(X, y)
    warm.set_params(loss="logistic").fit(X, y)
    assert (warm.n_steps_, warm.settings_["loss"]) == (10, "logistic")
