"""Training of a cloud in memory, with a history and optional early stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud, draw_normal
from proxlearn.core.functionals.risk import Risk
from proxlearn.core.losses import CrossEntropy, Logistic, Loss, cross_entropy, logistic
from proxlearn.core.metrics import effective_sample_size, fit_link_slope
from proxlearn.core.neurons.neuron import Neuron
from proxlearn.core.samples import Samples
from proxlearn.core.schedules import hyper_of_last_step, is_log_spaced
from proxlearn.training.iterate import iterate
from proxlearn.training.settings import Settings

LOGGED_PER_DECADE = 20
MOST_SCORED = 2**14
"""Maximum number of training rows from which the training risk in the history is computed."""
LOG_SLOPE_DEVIATION = 0.2
"""Prior standard deviation of the logarithm of the link slope, for losses that define probabilities. With a few dozen
held-out rows, the fitted slope is close to 1; with hundreds, it can correct the probabilities of a fit that ended
early, which are too close to uniform."""
PIECE = 2**20
"""Maximum number of outputs (particles x samples) that are in memory at once; see ``tasks.MOST_OUTPUTS``."""

Row = dict[str, float]


@dataclass(frozen=True)
class FitState:
    """The state of a fit: everything that is needed to predict and to continue the fit."""

    cloud: PointCloud
    """The newest cloud or, if the fit has validation samples, the cloud with the lowest validation score."""
    newest: PointCloud
    generator: Tensor
    """State of the noise generator, as bytes."""
    history: tuple[Row, ...] = ()
    """Rows of the logged steps. The columns are step, train_risk, ess, h, beta and epsilon; with validation samples
    also validation_risk; with the quadratic loss and classes also validation_log_loss; and with all losses for classes
    also link_slope."""

    @property
    def best(self) -> Row:
        """The row of the history with the lowest validation score; the fit must have validation samples."""
        return min((row for row in self.history if "validation_risk" in row), key=validation_score)


def validation_score(row: Row) -> float:
    """Return the score by which fits and their steps are ranked: the log-loss for classes, and otherwise the risk.

    If the loss defines probabilities, its risk is the log-loss. For the quadratic loss, the row contains the log-loss
    of a fitted link. The score of a row without a validation risk is infinite.
    """
    return row.get("validation_log_loss", row.get("validation_risk", np.inf))


class FitInterrupted(KeyboardInterrupt):
    """Raised if the user interrupts a fit; ``fitted`` is the state of the fit at that moment."""

    def __init__(self, fitted: FitState) -> None:
        super().__init__(f"interrupted after step {fitted.newest.step}")
        self.fitted = fitted


def split_seed(seed: int) -> tuple[int, int]:
    """Return two independent seeds, one for the initial cloud and one for the noise."""
    cloud_seed, noise_seed = np.random.SeedSequence(seed).generate_state(2, np.uint32).tolist()
    return cloud_seed, noise_seed


def initial_cloud(neuron: Neuron, n_x: int, N: int, init_scale: float, seed: int) -> PointCloud:
    """Return the initial cloud for a seed, in float64."""
    generator = torch.Generator().manual_seed(split_seed(seed)[0])
    return draw_normal(neuron.coordinates(n_x), neuron.initial_deviations(n_x, init_scale), N, generator)


def initial_fit(problem: Risk, settings: Settings, seed: int) -> FitState:
    """Return the state of a fit before its first step."""
    assert settings.init_scale is not None, "the selection has not set init_scale"
    cloud = initial_cloud(problem.neuron, problem.samples.X.shape[1], settings.N, settings.init_scale, seed)
    cloud = cloud.to("cpu", getattr(torch, settings.dtype))
    return FitState(cloud, cloud, torch.Generator().manual_seed(split_seed(seed)[1]).get_state())


@torch.no_grad()
def fit(
    problem: Risk,
    settings: Settings,
    *,
    seed: int,
    steps: int | None = None,
    start: FitState | None = None,
    engine: str | None = None,
    threads: int | None = None,
    validation: Samples | None = None,
    patience: int | None = None,
    callback: Callable[[PointCloud, Row], object] = lambda cloud, row: None,
    link_from: int = 0,
    scores_training: bool = True,
) -> FitState:
    """Train for ``steps`` steps from ``start``, or from the initial cloud of ``seed``, and return the resulting state.

    The default of ``steps`` is ``settings.steps``. Continuing a fit gives bit for bit the result of one longer fit,
    even after ``FitInterrupted``. If ``validation`` is given, the result contains the cloud with the lowest validation
    score, and the fit ends after ``patience`` logged steps without a lower score (None for no such limit). ``engine``
    and ``threads`` have the same meaning as in ``iterate``. ``callback`` is called at every logged step; if it returns
    a true value, the fit ends at that step. A confinement in the settings replaces that of the problem. For a loss that
    defines probabilities, link slopes are fitted from step ``link_from`` on. Without ``scores_training``, the history
    has no training risks.
    """
    settings = settings.for_rows(len(problem.samples))
    problem = problem if settings.confinement is None else problem.with_parts(confinement=settings.confinement)
    start = start or initial_fit(problem, settings, seed)
    number = steps if steps is not None else settings.steps
    assert number is not None, "the number of steps is set neither in the call nor in the settings"
    generator = torch.Generator()
    generator.set_state(start.generator)
    hyper, dtype = settings.hyper, start.newest.theta.dtype
    train = problem.samples.take_rows(torch.arange(min(len(problem.samples), MOST_SCORED))).to("cpu", dtype)
    held_out = None if validation is None else validation.to("cpu", dtype)
    cloud, best, history = start.newest, start.cloud, list(start.history)
    last, noise_state = cloud.step + number, start.generator

    def fit_state() -> FitState:
        return FitState(best if held_out is not None else cloud, cloud, noise_state, tuple(history))

    try:
        steps_taken = iterate(problem, cloud, hyper, generator=generator, until=last, engine=engine, threads=threads)
        for after, _ in steps_taken:
            # Both values are assigned in one statement, so that they belong to the same step after an interrupt.
            cloud, noise_state = after, generator.get_state()
            if not (is_log_spaced(cloud.step, LOGGED_PER_DECADE) or cloud.step == last):
                continue
            used = hyper_of_last_step(hyper, cloud)
            row: Row = {"step": cloud.step}
            if scores_training:
                row["train_risk"] = risk_of(problem, cloud, train)
            if held_out is not None:
                row |= validation_figures(problem, cloud, held_out, cloud.step >= link_from)
            row |= {"ess": float(effective_sample_size(cloud.log_rho))}
            row |= {"h": used.h, "beta": used.beta, "epsilon": used.epsilon}
            history.append(row)
            stop = callback(cloud, row)
            if held_out is not None:
                scores = [validation_score(logged) for logged in history]
                rows_since_best = len(scores) - 1 - int(np.argmin(scores))
                best = cloud if rows_since_best == 0 else best
                stop = stop or (patience is not None and rows_since_best >= patience)
            if stop:
                break
    except KeyboardInterrupt as error:
        raise FitInterrupted(fit_state()) from error
    return fit_state()


def risk_of(problem: Risk, cloud: PointCloud, samples: Samples) -> float:
    """Return the risk of the weighted estimate on ``samples``."""
    return _mean_loss(problem.loss, _outputs_of(problem, cloud, samples), samples)


def validation_figures(problem: Risk, cloud: PointCloud, samples: Samples, fits_link: bool = True) -> Row:
    """Return a row with the risk on held-out samples and, for classes, the slope of the fitted link.

    With the quadratic loss, the row also contains the log-loss of the probabilities that this link gives. With a loss
    that defines probabilities, the slope is fitted only if ``fits_link`` is true.
    """
    f = _outputs_of(problem, cloud, samples)
    row = {"validation_risk": _mean_loss(problem.loss, f, samples)}
    output = f.reshape(-1, len(samples))
    if isinstance(problem.loss, Logistic | CrossEntropy) and samples.labels is not None and fits_link:
        return row | {"link_slope": fit_link_slope(output, samples.labels, samples.weights, LOG_SLOPE_DEVIATION)}
    if not needs_link(problem.loss, samples):
        return row
    assert samples.labels is not None
    slope = fit_link_slope(output, samples.labels, samples.weights)
    likelihood = logistic if samples.y.ndim == 1 else cross_entropy
    return row | {"validation_log_loss": _mean_loss(likelihood, slope * f, samples), "link_slope": slope}


def needs_link(loss: Loss, samples: Samples) -> bool:
    """Return whether class probabilities need a fitted link: for the quadratic loss and -1, +1 or one-hot targets.

    The outputs of the paper's softmax neuron, whose targets are all 1, are already probabilities.
    """
    y = samples.y
    return loss.name == "quadratic" and samples.labels is not None and (y.ndim == 2 or bool((y < 0).any()))


def _outputs_of(problem: Risk, cloud: PointCloud, samples: Samples) -> Tensor:
    """Return the mean outputs of the weighted estimate in the shape of the targets, computed in blocks of rows."""
    shares, blocks = cloud.shares[:, None], []
    piece = max(1, PIECE // len(cloud.theta))
    for first in range(0, len(samples), piece):
        rows = torch.arange(first, min(first + piece, len(samples)))
        part = samples.take_rows(rows) if len(rows) < len(samples) else samples
        blocks.append(problem.neuron.respond(cloud.theta, part).over_particles(shares)[:, 0].view_as(part.y))
    return torch.cat(blocks, dim=-1)


def _mean_loss(loss: Loss, f: Tensor, samples: Samples) -> float:
    losses = loss.value(f, samples.y).double()
    if samples.weights is None:
        return float(losses.sum()) / len(samples)
    mass = float(samples.weights.sum())
    return float((losses * samples.weights).sum()) / mass if mass else 0.0
