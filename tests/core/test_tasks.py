"""Every metric of a task has the definition of its name; predictions and probabilities are consistent.

Metrics of probabilities and of weights, compared with their definitions.
"""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from proxlearn.core.cloud import PointCloud
from proxlearn.core.losses import quadratic
from proxlearn.core.metrics import (
    CALIBRATION_BINS,
    LEAST_PROBABILITY,
    apply_probability_floor,
    calibration_error,
    discrete_free_energy,
    effective_sample_size,
    fit_link_slope,
    free_energy,
    weight_entropy,
)
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.neurons.softmax import Softmax
from proxlearn.core.samples import Samples
from proxlearn.core.tasks import TASKS, estimates, scores, standard_error, task_of

torch.set_num_threads(1)


def ten_class_case(seed: int, N: int = 7, n: int = 20, n_x: int = 3, C: int = 5) -> tuple[PointCloud, Samples]:
    generator = torch.Generator().manual_seed(seed)
    theta = 2 * torch.randn(N, C * n_x, generator=generator, dtype=torch.float64)
    log_rho = torch.randn(N, generator=generator, dtype=torch.float64) - 9
    X = torch.randn(n, n_x, generator=generator, dtype=torch.float64)
    return PointCloud(theta, log_rho), Samples(
        X, torch.ones(n).double(), torch.randint(0, C, (n,), generator=generator)
    )


@given(st.integers(0, 10**6), st.integers(1, 900))
@settings(max_examples=20, deadline=None)
def test_metrics_do_not_depend_on_the_blocks_of_samples(seed: int, most_outputs: int) -> None:
    """With many particles, the outputs for only a few samples at a time are in memory."""
    cloud, samples = ten_class_case(seed)
    expected, expected_means = scores(Softmax(5), cloud, samples), estimates(Softmax(5), cloud, samples.X)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxlearn.core.tasks.MOST_OUTPUTS", most_outputs)
        actual, means = scores(Softmax(5), cloud, samples), estimates(Softmax(5), cloud, samples.X)
    torch.testing.assert_close(means, expected_means, rtol=1e-12, atol=0)
    assert list(actual) == list(expected)
    assert actual == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_multiclass_figures_by_their_definitions(seed: int) -> None:
    cloud, samples = ten_class_case(seed)
    values = scores(Softmax(5), cloud, samples)
    labels = samples.labels
    assert labels is not None
    n = len(samples)
    p = torch.stack([torch.softmax(samples.X @ theta.view(5, 3).T, dim=1) for theta in cloud.theta])
    w = cloud.rho / cloud.rho.sum()
    for estimate, mean in (("weighted", torch.einsum("i,imc->mc", w, p)), ("unweighted", p.mean(0))):
        f = mean[torch.arange(n), labels]
        assert math.isclose(values[f"risk_{estimate}"], float(((1 - f) ** 2).mean()), rel_tol=1e-12)
        assert math.isclose(values[f"risk_paper_{estimate}"], float((1 - f).norm() / n), rel_tol=1e-12)
        # A probability below the floor of 1e-6 is raised, and the others of its sample are lowered.
        floored = apply_probability_floor(mean.T)[labels, torch.arange(n)]
        assert math.isclose(values[f"log_loss_{estimate}"], float(-floored.log().mean()), rel_tol=1e-9)
        assert values[f"accuracy_{estimate}"] == float((mean.argmax(1) == labels).double().mean())
    assert math.isclose(values["accuracy_particle"], float((p.argmax(2) == labels).double().mean()), rel_tol=1e-12)


@given(st.integers(0, 10**6), st.floats(-700, 700))
@settings(max_examples=30, deadline=None)
def test_the_scale_of_the_weights_does_not_matter(seed: int, shift: float) -> None:
    cloud, samples = ten_class_case(seed)
    scaled = PointCloud(cloud.theta, cloud.log_rho + shift)
    for name, value in scores(Softmax(5), cloud, samples).items():
        assert math.isclose(scores(Softmax(5), scaled, samples)[name], value, rel_tol=1e-9)


@pytest.mark.parametrize("rows, low, high", [(5000, 1.85, 2.15), (20, 1.0, 1.5)])
def test_a_slope_with_a_prior_follows_many_rows_and_stays_near_one_for_few(rows: int, low: float, high: float) -> None:
    """The probabilities of the labels are softmax(2 f), so the best slope is 2."""
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(3, rows, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(torch.softmax(2 * f, dim=0).T, 1, generator=generator)[:, 0]
    assert low < fit_link_slope(f, labels, log_deviation=0.2) < high
    # A perfect separation, for which the best slope without a prior is infinite.
    assert 1 < fit_link_slope(f, f.argmax(dim=0), log_deviation=0.2) < (100 if rows > 100 else 2)
    swapped = torch.stack((-f[0], f[0]))
    two = (f[0] > 0).long()
    assert fit_link_slope(f[:1] * 2, two, log_deviation=0.2) == pytest.approx(
        fit_link_slope(swapped, two, log_deviation=0.2), rel=1e-6
    )


def test_one_particle_is_its_own_ensemble() -> None:
    cloud, samples = ten_class_case(3, N=1)
    values = scores(Softmax(5), cloud, samples)
    assert values["accuracy_particle"] == values["accuracy_weighted"] == values["accuracy_unweighted"]


def test_estimates_need_no_labels_and_sum_to_one_over_classes() -> None:
    cloud, samples = ten_class_case(1)
    for mean in estimates(Softmax(5), cloud, samples.X).values():
        torch.testing.assert_close(mean.sum(0), torch.ones(len(samples)).double())


def test_binary_estimate_is_the_mean_of_phi() -> None:
    generator = torch.Generator().manual_seed(0)
    theta = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    samples = Samples(torch.randn(9, 2, generator=generator, dtype=torch.float64), torch.ones(9).double())
    cloud = PointCloud(theta, torch.zeros(6).double())
    P = Perceptron().phi(theta, samples)
    for mean in estimates(Perceptron(), cloud, samples.X).values():
        torch.testing.assert_close(mean[0], P.mean(0))


def test_labels_decide_between_the_tasks_of_a_neuron() -> None:
    X, labels = torch.zeros(3, 1), torch.tensor([0, 1, 1])
    assert task_of(Perceptron(), Samples(X, X[:, 0])).quantities == ("risk", "rmse", "r2")
    assert "accuracy" in task_of(Perceptron(), Samples(X, X[:, 0], labels)).quantities


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_probabilities_of_any_outputs_lie_on_the_simplex_row_by_row(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for task, outputs in ((TASKS["multiclass"](quadratic), 4), (TASKS["binary"](quadratic), 1)):
        f = 2 * torch.randn(outputs, 30, generator=generator, dtype=torch.float64)
        f[:, 0] = -1.0
        p = task.probabilities(f)
        assert float(p.min()) >= 0
        torch.testing.assert_close(p.sum(0), torch.ones(30).double())
        has_positive = (f > 0).any(0)
        assert torch.equal(p.argmax(0)[has_positive], task.predicted(f)[has_positive])
        # A row's probabilities do not depend on the other rows.
        torch.testing.assert_close(torch.cat([task.probabilities(f[:, m : m + 1]) for m in range(30)], 1), p)
    simplex = torch.softmax(torch.randn(4, 9, generator=generator, dtype=torch.float64), dim=0)
    torch.testing.assert_close(TASKS["multiclass"](quadratic).probabilities(simplex), simplex)


def test_the_standard_error_of_equal_weights_is_the_standard_deviation_over_sqrt_N() -> None:
    cloud, samples = ten_class_case(2)
    even = PointCloud(cloud.theta, torch.full_like(cloud.log_rho, -3.0))
    outputs = Softmax(5).outputs(even.theta, samples.X)
    expected = outputs.std(0, correction=0) / math.sqrt(len(even.theta))
    for estimate in ("weighted", "unweighted"):
        torch.testing.assert_close(standard_error(outputs, even, estimate), expected)
    # All the mass on one particle: the other particles do not contribute, and the error is zero.
    alone = PointCloud(cloud.theta, torch.tensor([0.0, *[-800.0] * (len(cloud.theta) - 1)]).double())
    assert float(standard_error(outputs, alone, "weighted").max()) < 1e-12


@given(st.integers(0, 10**6), st.integers(2, 12))
@settings(max_examples=30, deadline=None)
def test_no_probability_is_below_the_floor_and_the_log_loss_is_theirs(seed: int, C: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    f = (3 * torch.randn(1 if C == 2 else C, 40, generator=generator, dtype=torch.float64)).round(decimals=1)
    task, labels = (
        TASKS["binary" if C == 2 else "multiclass"](quadratic),
        torch.randint(0, C, (40,), generator=generator),
    )
    p = task.probabilities(f)
    assert float(p.min()) >= LEAST_PROBABILITY * (1 - 1e-12)
    assert float(p.max()) < 1
    torch.testing.assert_close(p.sum(0), torch.ones(40).double(), rtol=1e-14, atol=0)
    has_positive = (f > 0).any(0)
    assert torch.equal(p.argmax(0)[has_positive], task.predicted(f)[has_positive])
    y = 2.0 * labels.double() - 1 if C == 2 else torch.ones(40).double()
    values = task.scores(f, Samples(torch.empty(40, 0), y, labels), "weighted")
    reference = log_loss(labels.numpy(), p.T.numpy(), labels=list(range(C)))
    assert math.isclose(float(values["log_loss_weighted"]), reference, rel_tol=1e-9)


@given(st.integers(0, 10**6), st.integers(2, 6))
@settings(max_examples=30, deadline=None)
def test_the_calibration_error_by_its_definition(seed: int, C: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(3 * torch.randn(C, 40, generator=generator, dtype=torch.float64), dim=0)
    labels = torch.randint(0, C, (40,), generator=generator)
    expected = 0.0
    for k in range(CALIBRATION_BINS):
        low, high = k / CALIBRATION_BINS, (k + 1) / CALIBRATION_BINS
        inside = [m for m in range(40) if low <= float(p[:, m].max()) < high]
        if inside:
            accuracy = sum(int(p[:, m].argmax()) == int(labels[m]) for m in inside) / len(inside)
            confidence = sum(float(p[:, m].max()) for m in inside) / len(inside)
            expected += len(inside) / 40 * abs(accuracy - confidence)
    assert math.isclose(float(calibration_error(p, labels)), expected, abs_tol=1e-12)


def test_calibration_at_its_ends() -> None:
    sure = torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]).double()
    assert float(calibration_error(sure, torch.tensor([0, 0, 0, 0]))) == 0
    assert float(calibration_error(sure, torch.tensor([1, 1, 1, 1]))) == 1
    three_in_four = torch.tensor([[0.75] * 4, [0.25] * 4]).double()
    assert float(calibration_error(three_in_four, torch.tensor([0, 0, 1, 0]))) == 0
    assert math.isnan(float(calibration_error(sure * math.nan, torch.tensor([0, 0, 0, 0]))))


@given(st.integers(0, 10**6), st.integers(1, 60), st.floats(-700, 700))
@settings(max_examples=40, deadline=None)
def test_figures_of_the_weights_do_not_depend_on_their_scale_and_stay_in_their_ranges(
    seed: int, N: int, shift: float
) -> None:
    log_rho = 3 * torch.randn(N, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rho = log_rho.exp()
    ess, entropy = float(effective_sample_size(log_rho + shift)), float(weight_entropy(log_rho + shift))
    assert ess == pytest.approx(float(rho.sum() ** 2 / rho.square().sum()), rel=1e-9)
    assert 1 - 1e-9 <= ess <= N * (1 + 1e-9)
    assert -1e-9 <= entropy <= math.log(N) + 1e-9
    # The Renyi entropy of order 2 is at most the Shannon entropy.
    assert ess <= N * math.exp(-entropy) * (1 + 1e-9)


def test_uniform_weights_have_no_entropy_and_one_heavy_particle_has_log_N() -> None:
    uniform, single = torch.zeros(8).double(), torch.tensor([0.0, *[-torch.inf] * 7]).double()
    assert float(weight_entropy(uniform)) == pytest.approx(0, abs=1e-12)
    assert float(weight_entropy(single)) == pytest.approx(math.log(8))
    assert float(discrete_free_energy(torch.tensor(0.5), single, beta=2.0)) == pytest.approx(0.5 + math.log(8) / 2)


def test_the_free_energy_has_the_temperature_of_the_noise() -> None:
    assert free_energy(0.5, 3.0, beta=2.0, noise_scale=1.0) == pytest.approx(-1.0)
    assert free_energy(0.5, 3.0, beta=0.5, noise_scale=0.01) == pytest.approx(0.5 - 3 / 5000)
    assert free_energy(0.5, 3.0, beta=2.0, noise_scale=0.0) == 0.5


def test_the_class_frequencies_have_a_calibration_error_of_exactly_zero() -> None:
    labels = torch.arange(30) % 3
    frequencies = torch.bincount(labels).double()[:, None].expand(3, 30) / 30
    assert calibration_error(frequencies, torch.arange(30) % 3).item() == 0
    assert calibration_error(frequencies * 0 + 0.1 + 0.7 * (torch.arange(3) == 0)[:, None], labels).item() > 0.1
    assert math.isnan(calibration_error(frequencies * math.nan, labels).item())
