"""Fits continue bit for bit where they stopped, whatever changes; early stopping restores the best cloud.

A prediction depends only on the row and the cloud, not on the block size, the other rows or the particles' order.
"""

from __future__ import annotations

import signal
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_iris

from proxlearn.core.cloud import PointCloud
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.core.schedules import hyper_for_step, schedule_factor, with_measured_epsilon
from proxlearn.core.tasks import estimates
from proxlearn.data.new_rows import Chunk
from proxlearn.errors import InputError, RunError
from proxlearn.predict import model as model_module
from proxlearn.predict.evaluate import evaluate
from proxlearn.predict.model import Model, find_model, load_model
from proxlearn.run.experiment import settings_from_config
from proxlearn.training.fit import FitInterrupted, FitState, fit, initial_fit, risk_of
from proxlearn.training.settings import Settings
from tests.conftest import config_of
from tests.small_runs import composed, run
from tests.views.report.pages import plane_run

SMALL = Settings(N=30, steps=40, init_scale=1.0, h=0.3, beta=1e3, epsilon=0.5)


@pytest.fixture(scope="module")
def wave() -> Risk:
    x = torch.linspace(-2, 2, 60, dtype=torch.float64)
    return Risk.from_samples(Perceptron(), Samples(x[:, None], torch.sin(2 * x)))


@pytest.fixture(scope="module")
def iris() -> Risk:
    X, y = (torch.from_numpy(part) for part in load_iris(return_X_y=True))
    neuron, X = Perceptron(num_outputs=3), (X - X.mean(0)) / X.std(0)
    return Risk.from_samples(neuron, Samples(X, neuron.targets(y), y))


VARIANTS = {
    "tuned": {},
    "schedules": {"h_schedule": "cosine", "beta_schedule": "power", "horizon": 50},
    "resampling": {"weights": "fisher_rao", "resample": "systematic", "ess_threshold": 0.9},
    "proximal resampling": {"resample": "systematic", "ess_threshold": 0.99},
    "batches": {"batch_size": 16},
    "absolute epsilon": {"epsilon_quantile": None},
    "float64": {"dtype": "float64"},
}


def same(one: FitState, other: FitState) -> bool:
    return (
        torch.equal(one.newest.theta, other.newest.theta)
        and torch.equal(one.newest.log_rho, other.newest.log_rho)
        and torch.equal(one.generator, other.generator)
        and one.newest.epsilon == other.newest.epsilon
    )


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("which", ["wave", "iris"])
def test_a_fit_goes_on_where_it_stopped(variant: str, which: str, request: pytest.FixtureRequest) -> None:
    problem = request.getfixturevalue(which)
    settings = replace(SMALL, **VARIANTS[variant])
    whole = fit(problem, settings, seed=4, steps=53)
    for first in (1, 17):
        part = fit(problem, settings, seed=4, steps=first)
        assert same(fit(problem, settings, seed=99, start=part, steps=53 - first), whole)
    assert not same(fit(problem, settings, seed=5, steps=53), whole)


def test_resampling_happens_and_makes_twins(wave: Risk) -> None:
    settings = replace(SMALL, **VARIANTS["resampling"])
    theta = fit(wave, replace(settings, beta=1e9), seed=0).newest.theta
    without = fit(wave, replace(settings, beta=1e9, resample="none"), seed=0)
    assert len(theta.round(decimals=2).unique(dim=0)) < 20 < len(without.newest.theta.round(decimals=2).unique(dim=0))
    assert without.history[-1]["ess"] < 0.9 * 30


@pytest.mark.parametrize("weights", ["proximal", "uniform", "fisher_rao"])
def test_training_learns(iris: Risk, wave: Risk, weights: str) -> None:
    # At h = 0.3 the Fisher-Rao update, which is explicit in w, overshoots on the wave.
    settings = replace(SMALL, N=60, weights=weights, h=0.1, epsilon=0.1)
    fitted = fit(iris, settings, seed=0, steps=60)
    labels, X = iris.samples.labels, iris.samples.X
    answers = estimates(iris.neuron, fitted.cloud.to("cpu", torch.float64), X)["weighted"]
    assert float((answers.argmax(0) == labels).double().mean()) > 0.9
    history = fit(wave, settings, seed=0, steps=200).history
    assert history[-1]["train_risk"] < 0.3 * history[0]["train_risk"]


def test_the_history_tells_the_numbers_of_each_logged_step(wave: Risk) -> None:
    settings = replace(SMALL, h_schedule="cosine", horizon=40)
    seen: list[int] = []
    fitted = fit(wave, settings, seed=0, callback=lambda cloud, row: seen.append(cloud.step))
    assert [row["step"] for row in fitted.history] == seen
    assert seen[-1] == 40
    assert fitted.history[-1]["h"] == pytest.approx(0.3 * schedule_factor("cosine", 39, 40))
    assert len({row["epsilon"] for row in fitted.history}) > 3
    cloud = fitted.newest.to("cpu", torch.float64)
    assert fitted.history[-1]["train_risk"] == pytest.approx(risk_of(wave, cloud, wave.samples), rel=1e-4)


def test_early_stopping_restores_the_cloud_of_the_least_validation_risk(wave: Risk) -> None:
    """The target is pure noise, so the validation risk grows with training."""
    generator = torch.Generator().manual_seed(0)
    noise = Samples(wave.samples.X, torch.randn(60, generator=generator, dtype=torch.float64))
    other = Samples(wave.samples.X, torch.randn(60, generator=generator, dtype=torch.float64))
    problem = Risk.from_samples(wave.neuron, noise)
    fitted = fit(problem, SMALL, seed=0, steps=3000, validation=other, patience=12)
    risks = {row["step"]: row["validation_risk"] for row in fitted.history}
    assert fitted.newest.step < 3000
    assert risks[fitted.cloud.step] == min(risks.values()) == fitted.best["validation_risk"]
    assert fitted.cloud.step < fitted.newest.step
    assert risk_of(problem, fitted.cloud, other.to("cpu", torch.float32)) == fitted.best["validation_risk"]


def test_a_step_that_is_too_large_is_an_error_with_its_remedy(wave: Risk) -> None:
    with pytest.raises(RunError, match=r"not finite after step .* smaller h"):
        fit(wave, replace(SMALL, h=1e30), seed=0)


def test_risk_in_pieces_is_the_risk(iris: Risk, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = fit(iris, SMALL, seed=0, steps=3).newest.to("cpu", torch.float64)
    whole = risk_of(iris, cloud, iris.samples)
    monkeypatch.setattr("proxlearn.training.fit.PIECE", 30 * 7)
    assert risk_of(iris, cloud, iris.samples) == pytest.approx(whole, rel=1e-12)


def test_the_defaults_are_those_of_recipe_tuned() -> None:
    for dataset in ("wdbc", "sine", "digits", "banana", "shd"):
        assert asdict(settings_from_config(config_of(f"dataset={dataset}", "recipe=tuned"))) == asdict(Settings())


def test_an_absolute_epsilon_is_not_replaced_by_what_another_run_measured(wave: Risk) -> None:
    hyper = replace(SMALL, epsilon_quantile=None, h_schedule="cosine").hyper
    cloud = replace(initial_fit(wave, SMALL, seed=0).newest, epsilon=123.0)
    assert hyper_for_step(hyper, with_measured_epsilon(hyper, cloud)).epsilon == SMALL.epsilon


def test_an_interrupted_fit_goes_on_to_the_bits_of_a_whole_one(wave: Risk) -> None:
    def interrupt(cloud: PointCloud, row: dict[str, float]) -> None:
        if cloud.step == 9:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(FitInterrupted) as stopped:
        fit(wave, SMALL, seed=4, steps=30, callback=interrupt)
    part = stopped.value.fitted
    assert part.newest.step == 9
    assert same(fit(wave, SMALL, seed=4, steps=21, start=part), fit(wave, SMALL, seed=4, steps=30))


ROWS = np.random.default_rng(1).normal(size=(23, 2))


@pytest.fixture(scope="module", params=["two", "three", "real"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    classes = {"two": ("no", "yes"), "three": ("a", "b", "c"), "real": None}[request.param]
    return load_model(plane_run(tmp_path_factory.mktemp(request.param), classes))


def assert_equal(model: Model, other: Model, X: np.ndarray = ROWS) -> None:
    for estimate in ("weighted", "unweighted"):
        expected, actual = model.predict(X, estimate), other.predict(X, estimate)
        for name in ("predicted", "probabilities", "spread"):
            np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-9, atol=1e-12)


def test_the_block_size_does_not_change_predictions(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = model.predict(ROWS)
    monkeypatch.setattr(model_module, "BLOCK", 1)
    np.testing.assert_allclose(model.predict(ROWS).spread, expected.spread, rtol=1e-9)
    np.testing.assert_allclose(model.predict(ROWS).predicted, expected.predicted, rtol=1e-9)


def test_a_row_is_predicted_alike_alone_and_among_others(model: Model) -> None:
    together = model.predict(ROWS)
    for i in (0, 7, 22):
        alone = model.predict(ROWS[i : i + 1])
        np.testing.assert_allclose(alone.predicted[0], together.predicted[i], rtol=1e-9)
        np.testing.assert_allclose(alone.probabilities[0], together.probabilities[i], rtol=1e-9)


def test_the_order_of_the_particles_does_not_matter(model: Model) -> None:
    order = torch.randperm(len(model.cloud.theta), generator=torch.Generator().manual_seed(0))
    cloud = replace(model.cloud, theta=model.cloud.theta[order], log_rho=model.cloud.log_rho[order])
    assert_equal(model, replace(model, cloud=cloud))


def test_equal_weights_make_both_estimates_equal(model: Model) -> None:
    equal = replace(model, cloud=replace(model.cloud, log_rho=torch.zeros_like(model.cloud.log_rho)))
    outputs = equal.mean_outputs(ROWS)
    torch.testing.assert_close(outputs["weighted"], outputs["unweighted"])


def test_metrics_do_not_depend_on_the_chunks(model: Model) -> None:
    labels = [model.classes[i % len(model.classes)] if model.classes else str(i / 7) for i in range(len(ROWS))]
    whole = evaluate(model, [Chunk(ROWS, labels)])
    split = evaluate(model, [Chunk(ROWS[i : i + 5], labels[i : i + 5]) for i in range(0, len(ROWS), 5)])
    assert whole["rows"] == split["rows"] == len(ROWS)
    for estimate in ("weighted", "unweighted"):
        assert split[estimate] == pytest.approx(whole[estimate], rel=1e-9)


def test_an_empty_table_has_no_metrics(model: Model) -> None:
    with pytest.raises(InputError, match="a header line but no rows"):
        evaluate(model, [])


def test_a_row_without_a_finite_prediction_is_refused_by_its_column(tmp_path: Path) -> None:
    model = load_model(plane_run(tmp_path, None))
    # Scaled by the standard deviation, which is below 1, the numbers overflow, and a particle with weights of equal
    # signs then has the pre-activation inf - inf.
    with pytest.raises(InputError, match=r"column `[xy]` contains -?1.79e\+308, which is too far from the training"):
        model.predict(np.array([[0.0, 1.0], [1.79e308, -1.79e308]]))


def test_a_run_without_checkpoints_has_no_model(tmp_path: Path) -> None:
    run(composed("dataset=sine", "N=5", "steps=0", "threads=1", "compile=off"), tmp_path)
    assert find_model(tmp_path) is not None
    for path in (tmp_path / "checkpoints").iterdir():
        path.unlink()
    assert find_model(tmp_path) is None
    with pytest.raises(InputError, match="contains no valid checkpoint; wait for the first checkpoint"):
        load_model(tmp_path)
