"""The risk F(rho) = (1/n) sum_m l(y_m, f_m) + <R, rho> of a network with outputs f_m = sum_i rho_i Phi(x_m, theta_i).

The potentials cost O(N n n_x), because the paper's N x N matrix U, whose cost would be O(N^2 n), is never formed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

from proxlearn.core.cloud import PointCloud
from proxlearn.core.confinement import Confinement, confinement_strengths
from proxlearn.core.functionals.functional import Functional, Potentials, check_arguments
from proxlearn.core.hyper import Hyper, Hyperparameters
from proxlearn.core.losses import Loss, quadratic
from proxlearn.core.neurons.neuron import Neuron, Response
from proxlearn.core.neurons.tiled_response import respond
from proxlearn.core.part_checks import as_loss, as_neuron, check_loss, check_neuron
from proxlearn.core.samples import Samples, make_features, make_samples
from proxlearn.core.targets import check_targets, make_targets
from proxlearn.core.tasks import ESTIMATES, estimates
from proxlearn.errors import InputError
from proxlearn.printable_text import counted

__all__ = ["Risk"]


class Risk(Functional):
    """The mean loss of the network whose hidden units are the particles, plus a confinement of the parameters.

    F(rho) = (1/n) sum_m l(y_m, f_m) + <R, rho>, where f_m = sum_i rho_i Phi(x_m, theta_i) is the network's output:
    equation :eq:`risk` in :doc:`/theory/mean_field`.

    Parameters
    ----------
    X : array-like, shape (n, n_x)
        Features, as finite numbers. Initial clouds have the precision of the features, float32 or float64; integers are
        converted to float64. Features are not rescaled; standardise them first if their units differ.
    y : array-like, shape (n,) or (n, C)
        Targets. Their meaning depends on the loss and on the number of outputs of the neuron:

        - C columns (C > 1) are the targets of C outputs: real numbers, or one-hot rows for C classes;
          ``losses.cross_entropy`` also accepts rows of probabilities.
        - One column with a neuron of one output contains real numbers. With the default loss and the default neuron,
          this includes the class labels 0, 1, 2, which are regressed as numbers. With ``losses.logistic``, or another
          loss that is not for regression, the two classes are -1 and +1, or 0 and 1, which are converted to -1 and +1.
        - One column with a neuron of C > 1 outputs, or with the softmax neuron, contains class labels 0 .. C-1. They
          are converted to one-hot rows (for softmax, to the probability 1 of the true class).
    neuron : Neuron or str, optional
        Phi. By default, it is the paper's neuron a tanh(<w, x> + b), with one output per column of ``y``, or one per
        class for labels with ``losses.cross_entropy``. The name of another activation, such as "relu", selects the same
        neuron with that activation; "softmax", or a registered name (``neurons.register``), selects that neuron.
    loss : Loss or str, default=losses.quadratic
        l, which must be convex in f: an object of ``proxlearn.losses``, an instance of a subclass of ``losses.Loss``,
        or a name.
    confinement : float or Mapping[str, float], default=0.0
        lambda of R(theta) = (lambda / 2) ||theta||^2, for all coordinates or per block of theta.
    sample_weight : array-like, shape (n,), optional
        Weights s_m >= 0 of the samples; the mean loss is sum_m s_m l_m / sum_m s_m.

    Examples
    --------
    >>> import torch, proxlearn as pl
    >>> x = torch.linspace(-3, 3, 40)
    >>> risk = pl.Risk(x[:, None], torch.sin(x))
    >>> cloud = pl.init(risk, N=100, seed=0)
    >>> cloud.theta.shape
    torch.Size([100, 3])

    Three classes given as labels:

    >>> labels = torch.arange(40) % 3
    >>> pl.Risk(x[:, None], labels, neuron="relu", loss="cross_entropy").neuron.num_outputs
    3
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        neuron: Neuron | str | None = None,
        loss: Loss | str = quadratic,
        confinement: Confinement = 0.0,
        sample_weight: Any = None,
    ) -> None:
        features = make_features(X)
        given, loss = check_targets(y, len(features)), as_loss(loss)
        neuron = as_neuron(neuron, given, loss)
        targets, labels = make_targets(given, neuron, loss)
        samples = make_samples(features, targets, labels, sample_weight)
        check_neuron(neuron, samples)
        check_loss(loss, samples.y)
        self._set(samples, neuron, loss, confinement)

    def _set(self, samples: Samples, neuron: Neuron, loss: Loss, confinement: Confinement, batch: bool = False) -> None:
        self.samples, self.neuron, self.loss, self.confinement = samples, neuron, loss, confinement
        self.batch = batch
        """Whether the samples are a mini-batch, which will be replaced by other samples."""
        strengths = confinement_strengths(confinement, self.blocks)
        self.strengths = None if strengths is None else strengths.to(samples.X.device, samples.X.dtype)

    @classmethod
    def from_samples(
        cls,
        neuron: Neuron,
        samples: Samples,
        loss: Loss = quadratic,
        confinement: Confinement = 0.0,
        batch: bool = False,
    ) -> Self:
        """Return the risk for samples whose targets are already in the form that the neuron requires.

        Parameters
        ----------
        neuron, loss, confinement
            As in the constructor, except that names are not accepted.
        samples : Samples
            Features, targets and sample weights as tensors.
        batch : bool, default=False
            Whether the samples are a mini-batch, which will be replaced by other samples.

        Returns
        -------
        Risk
        """
        risk = cls.__new__(cls)
        risk._set(samples, neuron, loss, confinement, batch)
        return risk

    def with_samples(self, samples: Samples, batch: bool = False) -> Self:
        """Return the same risk for other samples.

        Parameters
        ----------
        samples, batch
            As in ``from_samples``.

        Returns
        -------
        Risk
        """
        return self.from_samples(self.neuron, samples, self.loss, self.confinement, batch)

    def with_parts(self, *, loss: Loss | None = None, confinement: Confinement | None = None) -> Self:
        """Return the same risk with another loss, another confinement, or both.

        Parameters
        ----------
        loss, confinement
            As in the constructor, except that names are not accepted; None does not change the part.

        Returns
        -------
        Risk
        """
        parts = (self.loss if loss is None else loss, self.confinement if confinement is None else confinement)
        return self.from_samples(self.neuron, self.samples, *parts, self.batch)

    def __repr__(self) -> str:
        n, n_x = self.samples.X.shape
        parts = f"neuron={self.neuron.name}, loss={self.loss.name}, p={sum(self.blocks.values())}"
        return f"Risk(n={n}, n_x={n_x}, {parts}, {str(self.dtype).removeprefix('torch.')})"

    @property
    def blocks(self) -> Mapping[str, int]:
        return self.neuron.coordinates(self.samples.X.shape[1])

    @property
    def dtype(self) -> torch.dtype:
        return self.samples.X.dtype

    @property
    def has_paper_readings(self) -> bool:
        return self.loss.name == "quadratic"

    def initial_deviations(self, scale: float) -> Mapping[str, float]:
        return self.neuron.initial_deviations(self.samples.X.shape[1], scale)

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Self:
        return self.with_samples(self.samples.to(device, dtype), self.batch)

    def _in_precision_of(self, theta: Tensor) -> Self:
        """Return the risk with its data converted to the precision and moved to the device of ``theta``."""
        X = self.samples.X
        return self if (X.dtype, X.device) == (theta.dtype, theta.device) else self.to(theta.device, theta.dtype)

    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        check_arguments(self, theta, rho)
        risk = self._in_precision_of(theta)
        samples = risk.samples
        outputs = risk.neuron.phi(theta, samples).T @ rho
        losses = risk.loss.value(outputs.view_as(samples.y), samples.y)
        mean = losses.mean() if samples.weights is None else (losses * samples.weights).mean()
        return mean if risk.strengths is None else mean + rho @ risk.confining(theta)

    def first_variation(self, theta: Tensor, rho: Tensor) -> Tensor:
        check_arguments(self, theta, rho)
        risk = self._in_precision_of(theta)
        response = respond(risk.neuron, theta, risk.samples)
        f = response.over_particles(rho[:, None])[:, 0]
        mean = response.over_samples(risk._cotangent(f)[:, None])[:, 0]
        return mean if risk.strengths is None else mean + risk.confining(theta)

    def potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        response = respond(self.neuron, theta, self.samples)
        return self.potentials_of_response(response, theta, rho, self.particle_sums(response, rho, hyper), hyper)

    def particle_sums(self, response: Response, rho: Tensor, hyper: Hyper) -> Tensor:
        """Return the sums over the particles on which the potentials depend: P^T rho and, if needed, P^T 1.

        If the response covers only some particles of a cloud, the caller adds the sums of all responses.

        Parameters
        ----------
        response : Response
            Outputs of the particles for the samples, P.
        rho : Tensor, shape (N,)
            Weights of the particles.
        hyper : Hyper
            Hyperparameters; only the option ``drift`` is used.

        Returns
        -------
        Tensor, shape (1, n) or (2, n)
            One row for P^T rho and, with ``drift="paper"`` and the quadratic loss, one for P^T 1.
        """
        both = self.loss.name == "quadratic" and hyper.drift == "paper"
        weights = torch.stack((rho, torch.ones_like(rho)), dim=1) if both else rho[:, None]
        return response.over_particles(weights).T

    def potentials_of_response(
        self, response: Response, theta: Tensor, rho: Tensor, sums: Tensor, hyper: Hyper
    ) -> Potentials:
        """Return the potentials of the particles that a response covers, given the sums over the whole cloud.

        Parameters
        ----------
        response, theta, rho, hyper
            As in ``particle_sums`` and ``potentials``.
        sums : Tensor, shape (1, n) or (2, n)
            Result of ``particle_sums`` for the whole cloud.

        Returns
        -------
        Potentials
        """
        if self.loss.name == "quadratic":
            potentials = self._quadratic_potentials(response, rho, sums, hyper)
        else:
            c = self._cotangent(sums[0])
            potentials = Potentials(response.over_samples(c[:, None])[:, 0], response.pull_back(c))
        if self.strengths is None:
            return potentials
        w, gradient = potentials.w + self.confining(theta), potentials.gradient + self.strengths * theta
        return Potentials(w, gradient)

    def _quadratic_potentials(self, response: Response, rho: Tensor, sums: Tensor, hyper: Hyper) -> Potentials:
        """Return the potentials for the quadratic loss, from v = -(2/n) P y and u = U rho = (1/n) P P^T rho."""
        n, y = len(self.samples), self.samples.y.reshape(-1)
        r = sums[0]
        if hyper.drift == "paper":
            # Backward(u + v) in Algorithm 2 computes the gradient of sum_k (u_k + v_k). Since theta_i also enters every
            # other u_k, through column i of U, the gradient has a second term, which depends on P^T 1.
            gradient = response.pull_back(self._weighted((r - 2 * y) / n), rho, self._weighted(sums[1] / n))
        else:
            # The gradient of the first variation v + 2 U rho of F = F0 + <v, rho> + rho^T U rho.
            gradient = response.pull_back(self._cotangent(r))
        inner = response.over_samples(torch.stack((self._weighted(y), self._weighted(r)), dim=1))
        v, u = inner[:, 0] * (-2 / n), inner[:, 1] / n
        return Potentials(v + u if hyper.prox_potential == "paper" else v + 2 * u, gradient)

    @torch.no_grad()
    def predict(self, cloud: PointCloud, X: Any, estimate: str = "weighted") -> Tensor:
        """Return the outputs of the network for samples.

        Parameters
        ----------
        cloud : PointCloud
            Trained particles, whose coordinates are those of this risk's neuron.
        X : array-like, shape (n, n_x)
            Features, in the same units as the risk's X.
        estimate : {"weighted", "unweighted"}, default="weighted"
            Mean over the particles with the weights rho_i / sum rho, or the plain mean.

        Returns
        -------
        Tensor, shape (n,) or (n, C)
            Outputs f(x) in the precision of the cloud: a vector for a neuron with one output, or one column per output.
            The predicted class is the sign of f for ``losses.logistic`` and the largest column for several outputs. The
            softmax neuron returns one column of probabilities per class.

        Examples
        --------
        >>> import torch, proxlearn as pl
        >>> x = torch.linspace(-3, 3, 40)
        >>> risk = pl.Risk(x[:, None], torch.sin(x))
        >>> cloud = pl.init(risk, N=100, seed=0)
        >>> risk.predict(cloud, [[0.0], [1.0]]).shape
        torch.Size([2])
        >>> classes = pl.Risk(x[:, None], torch.arange(40) % 3, loss="cross_entropy")
        >>> f = classes.predict(pl.init(classes, N=100), x[:, None])
        >>> f.shape, f.argmax(dim=1).shape
        (torch.Size([40, 3]), torch.Size([40]))
        """
        if not isinstance(cloud, PointCloud):
            raise InputError(f"cloud is of type {type(cloud).__name__}", "give a PointCloud as the first argument")
        if estimate not in ESTIMATES:
            raise InputError(f"unknown estimate {estimate!r}", f"choose from {', '.join(ESTIMATES)}")
        self.check_cloud(cloud)
        rows = make_features(X).to(cloud.theta.device, cloud.theta.dtype)
        n_x = self.samples.X.shape[1]
        if rows.shape[1] != n_x:
            problem = f"X has {counted(rows.shape[1], 'column')}, but the risk has {counted(n_x, 'feature')}"
            raise InputError(problem, f"give an n x {n_x} matrix")
        f = estimates(self.neuron, cloud, rows)[estimate]
        return f[0] if len(f) == 1 else f.T.contiguous()

    def _cotangent(self, f: Tensor) -> Tensor:
        """Return c_m = s_m l'(y_m, f_m) / n as a flat tensor of the same length as the flat outputs f (n or C n)."""
        y = self.samples.y
        return self._weighted(self.loss.cotangent(f.view_as(y), y).reshape(-1))

    def _weighted(self, values: Tensor) -> Tensor:
        """Return the values per sample (n or C n) multiplied by the sample weights."""
        weights = self.samples.weights
        return values if weights is None else (values.view(-1, len(weights)) * weights).reshape(-1)

    def confining(self, theta: Tensor) -> Tensor:
        """Return the confinement R(theta_i) of every particle.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Locations of the particles.

        Returns
        -------
        Tensor, shape (N,)
        """
        assert self.strengths is not None
        return theta.square() @ self.strengths / 2

    def check_readings(self, hyper: Hyperparameters[Any]) -> None:
        for option in ("drift", "prox_potential"):
            if self.loss.name != "quadratic" and getattr(hyper, option) == "paper":
                problem = f"{option}=paper is defined for the quadratic loss only, not for {self.loss.name}"
                raise InputError(problem, f"use {option}=first_variation")
