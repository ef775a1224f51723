"""The fused engine equals the reference recursion up to rounding in every regime of its kernel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from proxlearn.bench.special_clouds import spread_cloud
from proxlearn.core import options, step
from proxlearn.core.cloud import PointCloud, draw_cloud, draw_normal
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.fused.fused_step import FusedStep
from proxlearn.core.fused.log_kernel import FusedLogKernel
from proxlearn.core.fused.screening import IdentityInfo
from proxlearn.core.fused.tanh_drift import TanhDrift
from proxlearn.core.hyper import Hyper
from proxlearn.core.neurons.perceptron import Perceptron
from proxlearn.core.samples import Samples
from proxlearn.errors import RunError
from proxlearn.run.experiment import build_experiment, first_checkpoint
from proxlearn.training.stepper import Stepper, draw_noise
from tests.conftest import config_of, paper_cloud, randomness

WDBC = Hyper(beta=0.05, h=1e-3, epsilon=1.0, delta=1e-3, L=300)
RHO = {torch.float32: 1e-5, torch.float64: 1e-12}
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def assert_equal_weights(actual: PointCloud, expected: PointCloud) -> None:
    torch.testing.assert_close(actual.rho.double(), expected.rho.double(), rtol=RHO[expected.theta.dtype], atol=0)


def regime(info: step.Info | None, cloud: PointCloud) -> str:
    return "identity" if isinstance(info, IdentityInfo) else "dense" if cloud.screen is None else "sparse"


@dtypes
def test_every_regime_of_a_run_equals_the_dense_log_kernel(
    wdbc: Risk, generator: torch.Generator, dtype: torch.dtype
) -> None:
    """Both start from the same cloud, along a run from k = 0 until no particle has neighbours."""
    problem, cloud = wdbc.to("cpu", dtype), paper_cloud(wdbc, 120, generator).to("cpu", dtype)
    fused = FusedStep(problem, WDBC, 120, threads=1)
    seen = set()
    for k in range(360):
        noise, z0 = randomness(cloud, generator)
        after, info = fused(cloud, noise, z0)
        seen.add(regime(info, cloud))
        if k % 9 == 0:
            expected, reference = step.step(problem, cloud, WDBC, noise, z0)
            assert_equal_weights(after, expected)
            # Raw features: gradients of 1e3 per unit, hence an absolute tolerance for their rounding.
            torch.testing.assert_close(
                after.theta,
                expected.theta,
                rtol=1e-5 if dtype == torch.float32 else 1e-12,
                atol=1e-3 if dtype == torch.float32 else 1e-11,
            )
            assert info is not None
            assert reference is not None
            share = float(info.kernel_offdiag())
            assert share == pytest.approx(float(reference.kernel_offdiag()), rel=1e-2, abs=1e-30)
            if not isinstance(info, IdentityInfo):
                assert info.solution.rounds == reference.solution.rounds
        cloud = after
    assert seen == {"dense", "sparse", "identity"}


@dtypes
@pytest.mark.parametrize("drift", ["paper", "first_variation"])
@pytest.mark.parametrize("potential", ["paper", "first_variation"])
@pytest.mark.parametrize("orientation", ["paper", "consistent"])
@pytest.mark.parametrize("tolerance", ["paper", "log"])
def test_every_reading_equals_the_reference(
    standardised: Risk,
    generator: torch.Generator,
    dtype: torch.dtype,
    drift: options.Drift,
    potential: options.Potential,
    orientation: options.Orientation,
    tolerance: options.Tolerance,
) -> None:
    hyper = replace(
        WDBC, drift=drift, prox_potential=potential, orientation=orientation, tolerance=tolerance, epsilon=3.0
    )
    problem = standardised.to("cpu", dtype)
    cloud = paper_cloud(standardised, 60, generator)
    weights = cloud.log_rho + 2 * torch.randn(60, generator=generator, dtype=torch.float64)
    cloud = PointCloud(cloud.theta, weights).to("cpu", dtype)
    noise, z0 = randomness(cloud, generator)
    actual, _ = FusedStep(problem, hyper, 60, threads=2)(cloud, noise, z0)
    expected, _ = step.step(problem, cloud, hyper, noise, z0)
    assert_equal_weights(actual, expected)
    torch.testing.assert_close(actual.theta, expected.theta, rtol=RHO[dtype], atol=RHO[dtype])


def some_cloud(seed: int, N: int, p: int, kind: str, orders: float, dtype: torch.dtype, unit: float) -> PointCloud:
    """Return a cloud whose distances are in units of sqrt(epsilon), the length scale of the kernel."""
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(N, p, generator=generator, dtype=torch.float64)
    if kind == "spread":
        theta *= 20
    if kind == "clustered":
        theta = 30 * theta[torch.randint(0, max(N // 6, 1), (N,), generator=generator)] + 0.3 * theta
    if kind == "duplicated":
        theta = 10 * theta[torch.randint(0, max(N // 2, 1), (N,), generator=generator)]
    log_rho = -orders * torch.rand(N, generator=generator, dtype=torch.float64) * np.log(10)
    return PointCloud(unit * theta, log_rho).to("cpu", dtype)


@given(
    seed=st.integers(0, 10**6),
    N=st.integers(2, 60),
    features=st.integers(1, 2),
    kind=st.sampled_from(["spread", "clustered", "duplicated", "one blob"]),
    orders=st.floats(0, 12),
    epsilon=st.sampled_from([1e-3, 0.1, 1.0, 10.0]),
    kappa=st.sampled_from([0.3, 3.0, 50.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    orientation=st.sampled_from(["paper", "consistent"]),
    noise_scale=st.sampled_from([0.3, 5.0]),
)
@example(195, 45, 2, "clustered", 2.0, 1.0, 50.0, torch.float32, "consistent", 0.3)  # a weight of e^-776
@example(415, 40, 2, "clustered", 0.25, 10.0, 3.0, torch.float64, "consistent", 0.3)  # K underflows where q^ is large
@settings(max_examples=120, deadline=None)
def test_screening_is_exact_for_any_cloud_and_any_weights(
    seed: int,
    N: int,
    features: int,
    kind: str,
    orders: float,
    epsilon: float,
    kappa: float,
    dtype: torch.dtype,
    orientation: options.Orientation,
    noise_scale: float,
) -> None:
    """The second step uses the screen of the first; with one feature and large steps, lists are for one step."""
    cloud = some_cloud(seed, N, features + 2, kind, orders, dtype, unit=epsilon**0.5)
    generator = torch.Generator().manual_seed(seed + 1)
    X, y = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((7, features), (7,)))
    problem = Risk.from_samples(Perceptron(), Samples(X, y)).to("cpu", dtype)
    h, beta = 0.01, kappa * 0.01 / epsilon
    # A fixed number of rounds: a tolerance could be met one round earlier by a rounding error.
    hyper = Hyper(
        beta=beta,
        h=h,
        epsilon=epsilon,
        delta=0.0,
        L=12,
        noise_scale=noise_scale,
        orientation=orientation,
        tolerance="log",
    )
    fused = FusedStep(problem, hyper, N, threads=1)
    for _ in range(2):
        noise, z0 = randomness(cloud, generator)
        actual, _ = fused(cloud, noise, z0)
        expected, _ = step.step(problem, cloud, hyper, noise, z0)
        # float32 rounds log Gamma = -C / 2 epsilon itself: where that is large, so is the difference of the two.
        exact, _ = step.step(
            problem.to("cpu", torch.float64), cloud.to("cpu", torch.float64), hyper, noise.double(), z0.double()
        )
        rounding = float((expected.log_rho.double() - exact.log_rho).abs().max()) if dtype == torch.float32 else 0.0
        exponent = float(torch.cdist(cloud.theta.double(), actual.theta.double()).square().max()) / (2 * epsilon)
        # Its squares, their sum, its scaling and its shift are rounded: four units in the last place of the largest.
        rounding = max(rounding, torch.finfo(dtype).eps * exponent / 2) if dtype == torch.float32 else rounding
        error = float((actual.log_rho.double() - expected.log_rho.double()).abs().max())
        # The logarithm of a weight of e^-500 is accurate to 500 units in the last place.
        size = max(1.0, float(expected.log_rho.abs().max()) / 20)
        assert error <= max(RHO[dtype] * size, 8 * rounding)
        assert float(actual.rho.double().sum()) == pytest.approx(float(cloud.rho.double().sum()), rel=1e-5)
        cloud = actual


def test_the_result_depends_on_the_state_alone_and_not_on_the_engines_past(
    wdbc: Risk, generator: torch.Generator
) -> None:
    """Resuming relies on this: a new engine continues with the same bits."""
    problem, cloud = wdbc.to("cpu", torch.float32), paper_cloud(wdbc, 60, generator).to("cpu", torch.float32)
    veteran = FusedStep(problem, WDBC, 60, threads=2)
    for k in range(300):
        noise, z0 = randomness(cloud, generator)
        after, _ = veteran(cloud, noise, z0)
        if k % 20 == 0:
            screen = None if cloud.screen is None else replace(cloud.screen, reference=cloud.screen.reference.clone())
            copy = replace(cloud, theta=cloud.theta.clone(), log_rho=cloud.log_rho.clone(), screen=screen)
            again, _ = FusedStep(problem, WDBC, 60, threads=2)(copy, noise, z0)
            assert torch.equal(again.theta, after.theta)
            assert torch.equal(again.log_rho, after.log_rho)
            assert (again.screen is None) == (after.screen is None)
            if again.screen is not None and after.screen is not None:
                assert again.screen.radius == after.screen.radius
                assert torch.equal(again.screen.reference, after.screen.reference)
        cloud = after


def test_saturated_rows_are_left_out_and_the_gradient_is_the_same(wdbc: Risk, generator: torch.Generator) -> None:
    problem = wdbc.to("cpu", torch.float32)
    cloud = paper_cloud(wdbc, 100, generator)
    cloud = replace(cloud, theta=cloud.theta * 30).to("cpu", torch.float32)
    drift = TanhDrift(problem, WDBC, 100, 2)
    noise, z0 = randomness(cloud, generator)
    actual, _ = drift(cloud.theta, cloud.rho.numpy(), noise)
    assert 0 < int(drift.active.sum()) < 60
    expected, _ = step.step(problem, cloud, WDBC, noise, z0)
    torch.testing.assert_close(actual, expected.theta, rtol=1e-5, atol=1e-3)


def test_potentials_beyond_the_range_of_plain_numbers_fall_back_to_the_log_domain(
    standardised: Risk, generator: torch.Generator
) -> None:
    """With beta = 1e4 and a kappa of 1e-3, z spans hundreds of orders of magnitude."""
    hyper = Hyper(beta=1e4, h=0.1, epsilon=1e-8, delta=1e-3, L=40, tolerance="log", drift="first_variation")
    problem = standardised.to("cpu", torch.float32)
    cloud = paper_cloud(standardised, 40, generator)
    cloud = PointCloud(1e-4 * cloud.theta, cloud.log_rho).to("cpu", torch.float32)
    noise, z0 = randomness(cloud, generator)
    actual, _ = FusedStep(problem, hyper, 40, threads=1)(cloud, noise, z0)
    assert bool(torch.isfinite(actual.log_rho).all())
    assert float(actual.rho.double().sum()) == pytest.approx(float(cloud.rho.double().sum()), rel=1e-5)


def test_a_screen_is_kept_while_it_is_valid_and_costs_no_new_list(wdbc: Risk, generator: torch.Generator) -> None:
    """In a spread cloud, one list is used for many steps, and the weights do not change by a bit."""
    problem, cloud = wdbc.to("cpu", torch.float32), paper_cloud(wdbc, 80, generator)
    cloud = replace(cloud, theta=60 * cloud.theta).to("cpu", torch.float32)
    fused = FusedStep(problem, WDBC, 80, threads=1)
    screens, start = [], cloud.log_rho
    for _ in range(40):
        cloud, info = fused(cloud, *randomness(cloud, generator))
        screens.append(cloud.screen)
    assert len({id(screen) for screen in screens}) <= 3
    assert isinstance(info, IdentityInfo)
    assert torch.equal(cloud.log_rho, start)
    assert info.solution.converged
    assert float(info.solution.error) <= 2.0**-53


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["wdbc", "banana", "diabetes", "twonorm", "shd", "sine"])
def test_screened_equals_dense_log_along_each_papers_run(dataset: str, request: pytest.FixtureRequest) -> None:
    """At 40 log-spaced steps of the whole run, in both precisions.

    The clouds are those of the float32 run; raw data amplify a rounding so fast that two runs would not stay together.
    The run of shd, whose 10^6 steps take hours, has 5000 steps; later clouds come from diffusion of the last one.
    """
    if dataset not in ("wdbc", "sine"):
        request.getfixturevalue("paper_files")
    experiment = build_experiment(config_of(f"dataset={dataset}"))
    moment = first_checkpoint(experiment)
    hyper, N, threads = experiment.hyper, len(moment.cloud.theta), torch.get_num_threads()
    problems = {dtype: experiment.source.to("cpu", dtype) for dtype in RHO}
    fused = {dtype: FusedStep(problem, hyper, N, threads) for dtype, problem in problems.items()}
    generator, cloud = torch.Generator().manual_seed(0), moment.cloud.to("cpu", torch.float32)
    steps = np.unique(np.round(np.geomspace(1, experiment.steps, 40)).astype(int)).tolist()
    last = 5000 if dataset == "shd" else experiment.steps

    def check(cloud: PointCloud, noise: torch.Tensor, z0: torch.Tensor) -> None:
        for dtype, problem in problems.items():
            same, *drawn = cloud.to("cpu", dtype), noise.to(dtype), z0.to(dtype)
            expected, _ = step.step(problem, same, hyper, *drawn)
            assert_equal_weights(fused[dtype](same, *drawn)[0], expected)

    for k in range(1, last + 1):
        noise, z0 = draw_noise(cloud, generator)
        if k in steps:
            check(cloud, noise, z0)
        cloud, _ = fused[torch.float32](cloud, noise, z0)
    for k in steps:
        if k > last:
            later = spread_cloud(replace(cloud, screen=None), experiment, k - last, generator)
            check(later, *draw_noise(later, generator))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_cloud_that_leaves_the_finite_range_is_returned_as_it_is(
    wdbc: Risk, generator: torch.Generator, bad: float
) -> None:
    """The training loop detects it and stops or changes the precision; the engine must not fail first."""
    cloud = paper_cloud(wdbc, 30, generator)
    noise, z0 = randomness(cloud, generator)
    noise[3, 4] = bad
    after, info = FusedStep(wdbc, WDBC, 30, threads=1)(cloud, noise, z0)
    assert info is None
    assert not bool(torch.isfinite(after.theta).all())


def test_a_range_too_wide_for_float32_is_first_tried_in_float64(
    standardised: Risk, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first step of a tuned run, epsilon is a tenth of the neighbours' squared distances, and z spans e^100."""
    hyper = Hyper(
        beta=1e5,
        h=0.5,
        epsilon=0.03,
        delta=1e-6,
        L=300,
        tolerance="log",
        drift="first_variation",
        orientation="consistent",
    )
    problem = standardised.to("cpu", torch.float32)
    cloud = draw_normal(problem.neuron.coordinates(30), problem.neuron.initial_deviations(30, 0.5), 60, generator).to(
        "cpu", torch.float32
    )
    noise, z0 = randomness(cloud, generator)
    monkeypatch.delattr(FusedStep, "_in_log_domain")
    fused = FusedStep(problem, hyper, 60, threads=1)
    actual, _ = fused(cloud, noise, z0)
    assert np.dtype(np.float64) in fused._K
    exact = replace(hyper, kernel="log")
    expected, _ = step.step(standardised, cloud.to("cpu", torch.float64), exact, noise.double(), z0.double())
    torch.testing.assert_close(actual.log_rho.double(), expected.log_rho, rtol=0, atol=1e-3)


# A cloud that diverges keeps its mass in every step, until the run stops and names the step and the quantity.
@pytest.mark.parametrize("seed", [0, 1, 6, 7])
def test_an_exploding_run_keeps_its_mass_until_it_stops(seed: int) -> None:
    X = torch.from_numpy(np.random.default_rng(seed).normal(size=(60, 3)))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).double() * 2 - 1
    box = {"a": (0.9, 1.1), "b": (-0.1, 0.1), "w": (-1.0, 1.0)}
    cloud = draw_cloud({"a": 1, "b": 1, "w": 3}, box, 20, "uniform", torch.Generator().manual_seed(seed))
    cloud = cloud.to("cpu", torch.float32)
    hyper = Hyper(beta=1e4, h=3.0, epsilon=1.0, delta=1e-3, L=300)
    advance = Stepper(
        Risk.from_samples(Perceptron(), Samples(X, y)), hyper, "fused", 1, torch.Generator().manual_seed(seed)
    )

    def explode() -> None:
        nonlocal cloud
        for _ in range(60):
            cloud, _ = advance(cloud)
            assert float(cloud.rho.sum()) == pytest.approx(1, abs=1e-5)

    with pytest.raises(RunError, match=r"is not finite after step \d+; choose a smaller h"):
        explode()


def test_two_equal_entries_of_a_row_share_its_mass_beside_huge_logarithms() -> None:
    rows = np.zeros((3, 2))
    kernel = FusedLogKernel(rows, rows, 1.0, np.empty((3, 3)), 1)
    moved = kernel.log_transport(torch.zeros(3).double(), torch.full((3,), 1e25).double())
    torch.testing.assert_close(moved.exp(), torch.ones(3).double())
