"""Energies without data: F(rho) = <V, rho> + <rho, W rho>, where V and W are functions written in torch.

Pairs are evaluated in tiles of rows, so that the largest temporary array is N x tile and no N x N matrix is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from proxlearn import validators
from proxlearn.core.functionals.functional import Functional, Potentials, check_arguments, require_finite
from proxlearn.core.hyper import Hyper
from proxlearn.errors import USER_ERRORS, InputError, ProxlearnError, user_function_error

__all__ = ["Energy"]

TILE_PAIRS = 2**20
"""Maximum number of pairs of particles that are evaluated at once."""


class Energy(Functional):
    """An energy with a potential V(theta) and a symmetric interaction W(theta, theta').

    F(rho) = sum_i rho_i V(theta_i) + sum_ij rho_i rho_j W(theta_i, theta_j); its first variation is V + 2 W rho. The
    recursion minimises the free energy, equation :eq:`free-energy` in :doc:`/theory/mean_field`.

    Parameters
    ----------
    V : callable, optional
        ``V(theta)`` for one particle (a tensor of length p), returning a scalar.
    W : callable, optional
        ``W(theta, other)`` for two particles, returning a scalar, with W(theta, other) = W(other, theta).
    p : int, optional
        Dimension of a particle; it is required if ``blocks`` is not given.
    blocks : Mapping[str, int], optional
        Names and lengths of the blocks of theta. By default, there is one block ``theta`` of length ``p``.

    Examples
    --------
    A double well in one dimension:

    >>> import proxlearn as pl
    >>> well = pl.Energy(V=lambda theta: ((theta**2 - 1) ** 2).sum(), p=1)
    >>> cloud = pl.init(well, N=50, seed=0)
    >>> float(well.value(cloud.theta, cloud.rho)) > 0
    True
    """

    def __init__(
        self,
        V: Callable[[Tensor], Tensor] | None = None,
        W: Callable[[Tensor, Tensor], Tensor] | None = None,
        *,
        p: int | None = None,
        blocks: Mapping[str, int] | None = None,
    ) -> None:
        if V is None and W is None:
            raise InputError("an Energy without V and W is zero", "give V=..., W=..., or both")
        if blocks is None and p is None:
            raise InputError("the dimension of a particle is not given", "give p=..., or blocks={...}")
        for name, function in (("V", V), ("W", W)):
            if function is not None and not callable(function):
                raise InputError(f"{name} is {function!r:.100}, not a function", f"give {name} as a function")
        p = None if p is None else validators.whole("p", p, 1)
        self.V, self.W = V, W
        self._blocks = {"theta": p} if blocks is None and p is not None else validators.blocks("blocks", blocks)
        if p is not None and p != sum(self._blocks.values()):
            total = sum(self._blocks.values())
            raise InputError(f"p={p}, but the lengths of the blocks add up to {total}", "leave p out")

    def __repr__(self) -> str:
        terms = " and ".join(name for name in ("V", "W") if getattr(self, name) is not None)
        blocks = ", ".join(f"{name}: {length}" for name, length in self._blocks.items())
        return f"Energy({terms}, p={sum(self._blocks.values())}, blocks {blocks})"

    @property
    def blocks(self) -> Mapping[str, int]:
        return self._blocks

    @property
    def has_paper_readings(self) -> bool:
        return True

    def value(self, theta: Tensor, rho: Tensor) -> Tensor:
        check_arguments(self, theta, rho)
        total = rho.new_zeros(())
        if self.V is not None:
            total = total + rho @ self._potential(theta)
        if self.W is not None:
            inner = [self._interaction(theta[rows], theta) @ rho for rows in _tiles(len(theta))]
            total = total + rho @ torch.cat(inner)
        return total

    def first_variation(self, theta: Tensor, rho: Tensor) -> Tensor:
        check_arguments(self, theta, rho)
        return self._weighted(theta, rho, 2.0)

    def potentials(self, theta: Tensor, rho: Tensor, hyper: Hyper) -> Potentials:
        """Return the potential w of the proximal step and the gradient that moves the particles.

        With ``first_variation``, w_i = V(theta_i) + 2 (W rho)(theta_i), and the gradient is that of V + 2 W rho at
        theta_i, with the weights and the other particles frozen.

        With ``prox_potential="paper"``, w_i = V(theta_i) + (W rho)(theta_i). With ``drift="paper"``, the gradient is
        that of sum_k (V(theta_k) + (W rho)(theta_k)) with respect to theta_i, and theta_i enters every term of the sum:
        grad V(theta_i) + sum_k (rho_k + rho_i) grad_1 W(theta_i, theta_k). This is not the gradient of the ``paper`` w.

        Parameters
        ----------
        theta : Tensor, shape (N, p)
            Locations of the particles.
        rho : Tensor, shape (N,)
            Weights of the particles.
        hyper : Hyper
            Hyperparameters; only the options ``drift`` and ``prox_potential`` are used.

        Returns
        -------
        Potentials
            ``w``, shape (N,), and ``gradient``, shape (N, p).
        """
        w = self._weighted(theta, rho, 1.0 if hyper.prox_potential == "paper" else 2.0)
        # The gradient of sum_k (V_k + (W rho)_k) with respect to theta_i contains W twice, once with the weight rho_i.
        gradients = []
        for rows in _tiles(len(theta)):
            tile = theta[rows].detach().requires_grad_()
            weights = rho + rho[rows, None] if hyper.drift == "paper" else 2 * rho
            with torch.enable_grad():
                total = tile.new_zeros(())
                if self.V is not None:
                    total = total + self._potential(tile).sum()
                if self.W is not None:
                    total = total + (self._interaction(tile, theta.detach()) * weights).sum()
                gradients.append(torch.autograd.grad(total, tile)[0])
        return Potentials(w, require_finite(torch.cat(gradients)))

    def _weighted(self, theta: Tensor, rho: Tensor, factor: float) -> Tensor:
        """Return V(theta_i) + factor (W rho)(theta_i) for every particle."""
        w = self._potential(theta) if self.V is not None else torch.zeros_like(rho)
        if self.W is not None:
            inner = [self._interaction(theta[rows], theta) @ rho for rows in _tiles(len(theta))]
            w = w + factor * torch.cat(inner)
        return w

    def _potential(self, theta: Tensor) -> Tensor:
        assert self.V is not None
        values = self._evaluate("V(theta)", torch.func.vmap(self.V), theta)
        return _scalars(values, (len(theta),), "V(theta)").to(theta.dtype)

    def _interaction(self, rows: Tensor, columns: Tensor) -> Tensor:
        assert self.W is not None
        over_columns = torch.func.vmap(self.W, in_dims=(None, 0))
        values = self._evaluate("W(theta, other)", torch.func.vmap(over_columns, in_dims=(0, None)), rows, columns)
        return _scalars(values, (len(rows), len(columns)), "W(theta, other)").to(rows.dtype)

    def _evaluate(self, name: str, function: Callable[..., Tensor], *particles: Tensor) -> Tensor:
        """Evaluate the vectorised V or W at the given particles; raise InputError if the user's function fails."""
        try:
            return function(*particles)
        except (ProxlearnError, torch.OutOfMemoryError):
            raise
        except USER_ERRORS as error:
            p = particles[0].shape[1]
            problem = f"{name} cannot be evaluated for one particle, a tensor of length {p}"
            remedy = "make the function return a scalar tensor, and write theta[0] instead of theta[:, 0]"
            raise user_function_error(problem, error, remedy) from error


def _tiles(N: int) -> Iterator[slice]:
    size = max(1, TILE_PAIRS // max(1, N))
    for first in range(0, N, size):
        yield slice(first, first + size)


def _scalars(values: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
    if values.numel() != torch.Size(shape).numel():
        returned = tuple(values.shape[len(shape) :])
        raise InputError(f"{name} returned a tensor of shape {returned}", "return one number, for example with .sum()")
    return values.reshape(shape)
