"""The convex network of JKO-ICNN, its gradient map and Hessian in closed form, and the way back, written by hand.

    f(x) = sum_k w_k softplus(u_k) + (lambda + 1e-6)|x|^2 / 2,   u = W q0(x) + q1(x),   q(x) = |A x|^2 + b'x + c

with W, w, lambda >= 0 (lambda = 0 in the published network) and A of low rank. No activation follows q0, so
u_k = x'M_k x / 2 + p_k'x + r_k is a quadratic itself, (M, p, r) = W (Q0, b0, c0) + (Q1, b1, c1), Q = 2 A'A. With
s = sigmoid(u), G_k = M_k x + p_k, c = w s, a = w s (1 - s):

    grad f = sum_k c_k G_k + lambda x,      Hess f = sum_k a_k G_k G_k' + sum_k c_k M_k + lambda I

The quadratics are *packed*: a column (M's upper triangle, p, r) of length S a unit, S x width in all. Then u, sum c M
and sum c p are plain products with that matrix at half the price of the full M, and only the a-term needs G itself,
which is laid out particles x D x width so that every pass over it runs along the units.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.baselines import icnn_kernels as passes

RIDGE = 1e-6
LEAST_W = 1e-8
"""In place of 0, so that the way back may divide by w: such a unit contributes nothing in float32."""
SMALL_A, SMALL_LINEAR = 0.007, 0.03
"""Standard deviations that the quadratics begin with. A unit's curvature is twice A's square: were it of order 1, the
first wish of a steep potential, less curvature, would drive every w to zero before the units learn to shift."""
PUSHED = 1024
"""Particles pushed at a time."""


class ConvexNet:
    """All parameters in one vector (one tensor for the optimiser), with a view for each of them."""

    def __init__(
        self,
        dim: int,
        width: int,
        rank: int,
        generator: torch.Generator,
        dtype: torch.dtype,
        *,
        with_lamda: bool = True,
    ) -> None:
        self.dim, self.width, self.with_lamda = dim, width, with_lamda
        shapes = {"A": (2 * width, rank, dim), "linear": (2, dim + 1, width), "W": (width, width), "w": (width,)}
        shapes["lamda"] = (1,)
        sizes = [torch.Size(shape).numel() for shape in shapes.values()]
        self.flat = torch.zeros(sum(sizes), dtype=dtype)
        self._views = [
            part.view(shape) for part, shape in zip(torch.split(self.flat, sizes), shapes.values(), strict=True)
        ]
        self.A, self.linear, self.W, self.w, self.lamda = self._views
        if with_lamda:
            # With lambda = 1 and small units the first map is nearly the identity.
            self.A.normal_(std=SMALL_A * dim**-0.5, generator=generator)
            self.linear.normal_(std=SMALL_LINEAR, generator=generator)
            self.W.normal_(std=1 / width, generator=generator).abs_()
            self.w.fill_(1 / width)
            self.lamda.fill_(1.0)
        else:
            # As published: far from the identity, and to be pretrained.
            for part in (self.A, self.linear, self.W, self.w):
                part.normal_(std=width**-0.5, generator=generator)
            self.clamp_()
        i, j = torch.triu_indices(dim, dim)
        self.pairs = len(i)
        self.i, self.j = i, j
        self.upper, self.lower = i * dim + j, j * dim + i
        """Where the pairs i <= j are in a flattened D x D matrix, and their mirror images."""
        self.full = torch.empty(dim * dim, dtype=torch.long)
        self.full[self.upper] = self.full[self.lower] = torch.arange(self.pairs)
        """Which pair each place of a D x D matrix is."""
        self.halves = torch.where(i == j, 0.5, 1.0).to(dtype)
        """Of x'Mx / 2 in each pair's entry; a diagonal entry is met once, the others twice."""

    def clamp_(self) -> None:
        """Back to convexity, after a step of the optimiser."""
        self.W.clamp_(min=0)
        self.w.clamp_(min=LEAST_W)
        self.lamda.clamp_(min=0, max=None if self.with_lamda else 0)

    def pack(self) -> Packed:
        """The units' quadratics, once for as many particles as one likes."""
        Q = torch.bmm(2 * self.A.mT, self.A).view(2, self.width, -1).index_select(2, self.upper)
        Q0, Q1 = torch.cat((Q.mT, self.linear), dim=1)
        return Packed(self, Q0, torch.addmm(Q1, Q0, self.W))

    def push(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """grad f and log det Hess f at each particle; NaN where rounding has eaten the Hessian's least eigenvalue."""
        packed = self.pack()
        parts = []
        for some in torch.split(x, PUSHED):
            now = packed.respond(some)
            L, failed = torch.linalg.cholesky_ex(now.hessian())
            log_det = 2 * L.diagonal(dim1=1, dim2=2).log().sum(1)
            parts.append((now.mapped, log_det.masked_fill(failed > 0, torch.nan)))
        mapped, log_det = zip(*parts, strict=True)
        return torch.cat(mapped), torch.cat(log_det)


class Packed:
    """The network between two steps of the optimiser, and what its gradient has come to so far."""

    def __init__(self, net: ConvexNet, Q0: Tensor, units: Tensor) -> None:
        self.net, self.Q0, self.units = net, Q0, units
        D, width = net.dim, net.width
        self.full = torch.cat((units.index_select(0, net.full), units[net.pairs : -1])).view(D + 1, D * width)
        """M and p as one matrix, so that all G_k of a particle are (x, 1) times it."""
        self.units_bar, self.w_bar = torch.zeros_like(units), torch.zeros_like(net.w)
        self.full_bar, self.lamda_bar = torch.zeros_like(self.full), torch.zeros_like(net.lamda)

    def respond(self, x: Tensor) -> Response:
        """The map at some particles."""
        return Response(self, x)

    def gradient(self) -> Tensor:
        """Of all that was pulled back, with respect to the network's vector of parameters."""
        net, D = self.net, self.net.dim
        bar = self.units_bar
        of_M, of_p = self.full_bar.view(D + 1, D, -1).tensor_split((D,))
        of_M = of_M.reshape(D * D, -1)
        bar[: net.pairs] += (of_M.index_select(0, net.upper) + of_M.index_select(0, net.lower)) * net.halves[:, None]
        bar[net.pairs : -1] += of_p[0]
        bars = torch.stack((bar @ net.W.T, bar))
        # Q = 2 A'A is symmetric: an off-diagonal pair's entry is met twice, a diagonal one has slope 4 A.
        Q_bar = (bars[:, : net.pairs] * (2 / net.halves[:, None])).index_select(1, net.full).mT.reshape(-1, D, D)
        W_bar = self.Q0.T @ bar
        parts = (torch.bmm(net.A, Q_bar), bars[:, net.pairs :], W_bar, self.w_bar, self.lamda_bar)
        return torch.cat([part.reshape(-1) for part in parts])


class Response:
    """grad f (``mapped``) at some particles, and what its Hessians and the way back need."""

    def __init__(self, packed: Packed, x: Tensor) -> None:
        net, B, D = packed.net, len(x), x.shape[1]
        self.packed, self.x = packed, x
        one = torch.ones_like(x[:, :1])
        self.x1 = torch.cat((x, one), dim=1)
        products = x.index_select(1, net.i).mul_(x.index_select(1, net.j)).mul_(net.halves)
        self.features = torch.cat((products, self.x1), dim=1)
        self.root = u = self.features @ packed.units
        self.s, self.c, self.a = torch.empty_like(u), torch.empty_like(u), torch.empty_like(u)
        passes.activate(u.numpy(), net.w.numpy(), self.s.numpy(), self.c.numpy(), self.a.numpy())
        sums = self.c @ packed.units.T
        self.cM = sums.index_select(1, net.full).view(B, D, D)
        self.cM.diagonal(dim1=1, dim2=2).add_(net.lamda + RIDGE)
        self.mapped = torch.baddbmm(sums[:, net.pairs : -1, None], self.cM, x[:, :, None])[:, :, 0]

    def hessian(self) -> Tensor:
        """Of f at every particle."""
        H = torch.empty_like(self.cM)
        passes.hessians(self.x1.numpy(), self.packed.full.numpy(), self.root.numpy(), self.cM.numpy(), H.numpy())
        return H

    def pull_back(self, g: Tensor, P: Tensor | None = None, log_det: float = 0.0) -> None:
        """Add the gradient of sum <g, grad f> + <P, Hess f> + log_det log det Hess f to what ``packed`` has.

        Every P symmetric. d log det H = <H^-1, dH>: the only use of the determinant is its slope.
        """
        packed, net, x = self.packed, self.packed.net, self.x
        B, D = x.shape
        # a times the slope in a; the slope in c is a product with the packed units again.
        aq = torch.zeros_like(self.a)
        of_hessian = P is not None or log_det != 0
        P = torch.zeros_like(self.cM) if P is None else P.clone()
        if of_hessian:
            passes.pull_all(
                self.x1.numpy(),
                packed.full.numpy(),
                self.root.numpy(),
                self.cM.numpy(),
                log_det,
                P.numpy(),
                aq.numpy(),
                packed.full_bar.numpy(),
            )
        packed.lamda_bar += (g * x).sum() + P.diagonal(dim1=1, dim2=2).sum()
        whole = P.addcmul_(g[:, :, None], x[:, None, :]).view(B, D * D)
        pairs = whole.index_select(1, net.upper).add_(whole.index_select(1, net.lower)).mul_(net.halves)
        R = torch.cat((pairs, g, torch.zeros_like(g[:, :1])), dim=1)
        u_bar = R @ packed.units
        w, w_bar = net.w.numpy(), packed.w_bar.numpy()
        passes.of_units(u_bar.numpy(), aq.numpy(), self.s.numpy(), self.a.numpy(), w, w_bar)
        packed.units_bar.addmm_(self.features.T, u_bar).addmm_(R.T, self.c)
