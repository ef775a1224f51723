"""The recursions of the comparison are those of recipe=tuned, and Adam follows its definition.

Reference methods give the results of scikit-learn, and the Bayes rule is optimal.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from proxlearn.baselines import adam, proxlearn_networks
from proxlearn.baselines import reference_classifiers as references
from proxlearn.baselines.registry import METHODS, OURS, Request, find_method, load_fit
from proxlearn.core.functionals.risk import Risk
from proxlearn.errors import InputError
from proxlearn.predict import model
from proxlearn.run.experiment import build_experiment
from proxlearn.training.settings import Settings
from tests.small_runs import composed, run


def moons(rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that are not linearly separable."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    return X, np.where(X[:, 0] * X[:, 1] > 0, 1.0, -1.0)


@pytest.mark.parametrize("weights", ["uniform", pytest.param("proximal", marks=pytest.mark.slow)])
def test_a_network_is_recipe_tuned_of_the_same_seed_bit_for_bit(weights, tmp_path: Path) -> None:
    X, y = moons()
    path = tmp_path / "mine.csv"
    lines = [f"{a:.6f},{b:.6f},{int(label)}" for (a, b), label in zip(X, y, strict=True)]
    path.write_text("\n".join(["u,v,y", *lines]) + "\n")
    config = composed(
        "dataset=csv",
        f"dataset.path={path}",
        "dataset.target=y",
        "dataset.split=shuffled",
        "dataset.train_fraction=0.8",
        "recipe=tuned",
        f"weights={weights}",
        "seed=4",
        "threads=1",
        "films=false",
    )
    run(config, tmp_path / "run")
    prepared = build_experiment(config).prepared
    fit = getattr(proxlearn_networks, weights)
    fitted = fit(prepared.train.X.numpy(), prepared.train.y.numpy(), Request("csv", seed=4))
    theirs = model.load_model(tmp_path / "run").predict(prepared.table.X[prepared.rows["test"]]).probabilities[:, 1]
    np.testing.assert_array_equal(fitted.probability(prepared.test.X.numpy()), theirs)
    assert fitted.notes["N"] == config.N == Settings().N


def test_adam_is_torchs_adam_on_the_risk() -> None:
    X, y = moons(30)
    problem = proxlearn_networks.make_problem(X, y)
    start = adam.draw_initial_cloud(problem, 7, 1.0, 0)
    samples = problem.samples.to("cpu", adam.DTYPE)
    *_, cloud = adam.descend(problem, start, 0.05, 25)
    theta = start.theta.clone().requires_grad_()
    optimiser = torch.optim.Adam([theta], lr=0.05)
    for _ in range(25):
        optimiser.zero_grad()
        # Adam's own epsilon, 1e-8, makes the scale of the gradient matter a little: N times the risk.
        (7 * problem.loss.mean(problem.neuron.phi(theta, samples).mean(0), samples.y)).backward()
        optimiser.step()
    torch.testing.assert_close(cloud.theta, theta.detach(), rtol=0, atol=1e-4)
    assert cloud.step == 25


def test_adam_lowers_its_risk_learns_and_is_the_same_every_time() -> None:
    X, y = moons()
    first, again, other = (adam.fit(X, y, Request("moons", seed)) for seed in (0, 0, 1))
    assert first.notes["risk_after"] < 0.5 * first.notes["risk_before"]
    assert np.mean((first.probability(X) > 0.5) == (y > 0)) > 0.9
    assert first.notes == again.notes
    np.testing.assert_array_equal(first.probability(X), again.probability(X))
    assert not np.array_equal(first.probability(X), other.probability(X))


def test_adam_takes_the_candidate_and_step_of_the_least_held_out_risk() -> None:
    X, y = moons(60)
    problem = proxlearn_networks.make_problem(X, y)
    chosen = adam.select_candidate(problem, 40, Request("moons", 2))
    training, held_out = adam.hold_out(problem.samples, 2)
    part = Risk.from_samples(problem.neuron, training)
    for init_scale, rate in adam.CANDIDATES:
        for cloud in adam.descend(part, adam.draw_initial_cloud(part, 40, init_scale, 2), rate, 60):
            candidate_risk = adam.risk_of(problem, cloud, held_out.to("cpu", adam.DTYPE))
            assert candidate_risk >= chosen.risk
            if (init_scale, rate, cloud.step) == (chosen.init_scale, chosen.rate, chosen.steps):
                assert candidate_risk == chosen.risk


REQUEST = Request("twonorm", seed=3)
SHIFT = 2 / math.sqrt(20)


def twonorm(rows: int, seed: int = 0, sign: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.choice([-1.0, 1.0], rows)
    return rng.normal(size=(rows, 20)) + sign * SHIFT * y[:, None], y


@pytest.mark.parametrize(
    "name, model",
    [
        ("logistic", LogisticRegression()),
        ("svm", CalibratedClassifierCV(SVC(), ensemble=False)),
        ("boosting", GradientBoostingClassifier(random_state=3)),
    ],
)
def test_they_are_scikit_learns_own(name, model) -> None:
    (X, y), (Z, w) = twonorm(200), twonorm(100, seed=1)
    # Labels the other way round than the features' means, so that a mistaken column would be seen.
    p = getattr(references, name)(X, -y, REQUEST).probability(Z)
    own = model.fit(X, -y)
    np.testing.assert_array_equal(p, own.predict_proba(Z)[:, 1])
    assert np.mean(np.where(p > 0.5, 1, -1) == -w) == own.score(Z, -w)


def test_the_majority_class_is_the_training_parts() -> None:
    y = np.array([1.0] * 7 + [-1.0] * 3)
    np.testing.assert_array_equal(references.majority(np.zeros((10, 2)), y, REQUEST).probability(np.ones((4, 2))), 0.7)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_bayes_rule_is_the_posterior_and_is_right_as_often_as_it_must_be(sign) -> None:
    X, y = twonorm(500, sign=sign)
    rule = references.bayes(X, y, REQUEST).probability
    Z, w = twonorm(200_000, seed=1, sign=sign)
    p = rule(Z)
    plus, minus = (multivariate_normal(np.full(20, side * sign * SHIFT), np.eye(20)).pdf(Z[:50]) for side in (1, -1))
    np.testing.assert_allclose(p[:50], plus / (plus + minus), rtol=1e-9)
    expected = 0.5 * (1 + math.erf(math.sqrt(2)))
    assert expected == pytest.approx(0.97725, abs=5e-6)
    error = math.sqrt(expected * (1 - expected) / len(w))
    assert abs(np.mean((p > 0.5) == (w > 0)) - expected) < 3 * error


def test_the_bayes_rule_does_not_overflow() -> None:
    rule = references.bayes(*twonorm(50), REQUEST).probability
    assert rule(np.full((1, 20), 1e6)).tolist() == [1.0]
    assert rule(np.full((1, 20), -1e6)).tolist() == [0.0]


# The registry: names, blocks, and where the methods are.
def test_every_method_is_under_its_name_and_ours_is_first() -> None:
    assert all(name == method.name for name, method in METHODS.items())
    assert next(iter(METHODS)) == OURS
    assert {method.block for method in METHODS.values()} == {"network", "sampler", "reference"}


@pytest.mark.parametrize("name", METHODS)
def test_its_function_is_there(name) -> None:
    assert callable(load_fit(METHODS[name]))


def test_a_misspelt_one_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean `adam`"):
        find_method("adm")
