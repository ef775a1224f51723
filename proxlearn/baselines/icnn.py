"""The input-convex network of JKO-ICNN, with closed forms for its gradient, its Hessian and the backward pass.

    f(x) = sum_k w_k softplus(u_k) + (lambda + 1e-6)|x|^2 / 2,   u = W q0(x) + q1(x),   q(x) = |A x|^2 + b'x + c

W, w and lambda are nonnegative (lambda = 0 in the published network), and A has low rank. No activation follows q0, so
each u_k = x'M_k x / 2 + p_k'x + r_k is itself quadratic, with (M, p, r) = W (Q0, b0, c0) + (Q1, b1, c1) and Q = 2 A'A.
With s = sigmoid(u), G_k = M_k x + p_k, c = w s and a = w s (1 - s):

    grad f = sum_k c_k G_k + lambda x,      Hess f = sum_k a_k G_k G_k' + sum_k c_k M_k + lambda I

The coefficients of the quadratics are *packed* into one matrix with one column per unit. A column contains the upper
triangle of M, then p, then r. The values u, sum c M and sum c p are products with this matrix, which cost half as much
as products with the full M. Only the sum with the coefficients a_k needs G itself, which is stored as particles x D x
width, so that the innermost loop runs over the units.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxlearn.baselines import icnn_kernels as kernels

RIDGE = 1e-6
MIN_W = 1e-8
"""Lower bound of w, so that the backward pass can divide by w; in float32, a unit with this w contributes nothing."""
INIT_STD_A, INIT_STD_LINEAR = 0.007, 0.03
"""Standard deviations of the initial parameters of the quadratics. The curvature of a unit is twice the square of A. If
it were of order 1, a steep potential would first decrease the curvature and drive every w to zero, before the linear
terms of the units have adapted."""
PUSH_CHUNK = 1024
"""Number of particles that `ConvexNet.push` maps in one batch."""


class ConvexNet:
    """An input-convex network whose parameters are views of one flat tensor, which the optimiser updates."""

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
            # With lambda = 1 and small units, the initial map grad f is nearly the identity.
            self.A.normal_(std=INIT_STD_A * dim**-0.5, generator=generator)
            self.linear.normal_(std=INIT_STD_LINEAR, generator=generator)
            self.W.normal_(std=1 / width, generator=generator).abs_()
            self.w.fill_(1 / width)
            self.lamda.fill_(1.0)
        else:
            # The published initialisation is far from the identity, so the network is pretrained.
            for part in (self.A, self.linear, self.W, self.w):
                part.normal_(std=width**-0.5, generator=generator)
            self.clamp_()
        i, j = torch.triu_indices(dim, dim)
        self.pairs = len(i)
        self.i, self.j = i, j
        self.upper, self.lower = i * dim + j, j * dim + i
        """Positions of the entries (i, j) with i <= j in a flattened D x D matrix, and positions of the entries (j,
        i)."""
        self.full = torch.empty(dim * dim, dtype=torch.long)
        self.full[self.upper] = self.full[self.lower] = torch.arange(self.pairs)
        """Index of the pair (i, j) for each position of a flattened D x D matrix."""
        self.halves = torch.where(i == j, 0.5, 1.0).to(dtype)
        """Coefficient of each packed entry of M in x'Mx / 2: a diagonal entry occurs once, any other entry twice."""

    def clamp_(self) -> None:
        """Clamp W, w and lambda to their bounds, so that the network stays convex after a step of the optimiser."""
        self.W.clamp_(min=0)
        self.w.clamp_(min=MIN_W)
        self.lamda.clamp_(min=0, max=None if self.with_lamda else 0)

    def pack(self) -> PackedNet:
        """Return the packed quadratics of all units; the result does not depend on the particles."""
        Q = torch.bmm(2 * self.A.mT, self.A).view(2, self.width, -1).index_select(2, self.upper)
        Q0, Q1 = torch.cat((Q.mT, self.linear), dim=1)
        return PackedNet(self, Q0, torch.addmm(Q1, Q0, self.W))

    def push(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return grad f and log det Hess f at each particle.

        log det is NaN if the computed Hessian is not positive definite.
        """
        packed = self.pack()
        results = []
        for chunk in torch.split(x, PUSH_CHUNK):
            response = packed.respond(chunk)
            L, failed = torch.linalg.cholesky_ex(response.hessian())
            log_det = 2 * L.diagonal(dim1=1, dim2=2).log().sum(1)
            results.append((response.mapped, log_det.masked_fill(failed > 0, torch.nan)))
        mapped, log_det = zip(*results, strict=True)
        return torch.cat(mapped), torch.cat(log_det)


class PackedNet:
    """The packed quadratics of a network in one step of the optimiser, and the gradient accumulated in that step."""

    def __init__(self, net: ConvexNet, Q0: Tensor, units: Tensor) -> None:
        self.net, self.Q0, self.units = net, Q0, units
        D, width = net.dim, net.width
        self.full = torch.cat((units.index_select(0, net.full), units[net.pairs : -1])).view(D + 1, D * width)
        """Matrix that contains M and p; the product of (x, 1) and this matrix contains all G_k of a particle."""
        self.units_bar, self.w_bar = torch.zeros_like(units), torch.zeros_like(net.w)
        self.full_bar, self.lamda_bar = torch.zeros_like(self.full), torch.zeros_like(net.lamda)

    def respond(self, x: Tensor) -> NetResponse:
        """Return grad f at the particles x, with the intermediate values for the Hessian and the backward pass."""
        return NetResponse(self, x)

    def gradient(self) -> Tensor:
        """Return the accumulated gradient with respect to the flat parameter vector of the network."""
        net, D = self.net, self.net.dim
        bar = self.units_bar
        M_bar, p_bar = self.full_bar.view(D + 1, D, -1).tensor_split((D,))
        M_bar = M_bar.reshape(D * D, -1)
        bar[: net.pairs] += (M_bar.index_select(0, net.upper) + M_bar.index_select(0, net.lower)) * net.halves[:, None]
        bar[net.pairs : -1] += p_bar[0]
        bars = torch.stack((bar @ net.W.T, bar))
        # Q = 2 A'A is symmetric, so an off-diagonal entry occurs twice, and a diagonal entry has the derivative 4 A.
        Q_bar = (bars[:, : net.pairs] * (2 / net.halves[:, None])).index_select(1, net.full).mT.reshape(-1, D, D)
        W_bar = self.Q0.T @ bar
        parts = (torch.bmm(net.A, Q_bar), bars[:, net.pairs :], W_bar, self.w_bar, self.lamda_bar)
        return torch.cat([part.reshape(-1) for part in parts])


class NetResponse:
    """The gradient of f (``mapped``) at a batch of particles, and the intermediate values of its computation.

    The intermediate values are needed for the Hessians and for the backward pass.
    """

    def __init__(self, packed: PackedNet, x: Tensor) -> None:
        net, B, D = packed.net, len(x), x.shape[1]
        self.packed, self.x = packed, x
        one = torch.ones_like(x[:, :1])
        self.x1 = torch.cat((x, one), dim=1)
        products = x.index_select(1, net.i).mul_(x.index_select(1, net.j)).mul_(net.halves)
        self.features = torch.cat((products, self.x1), dim=1)
        self.sqrt_a = u = self.features @ packed.units
        self.s, self.c, self.a = torch.empty_like(u), torch.empty_like(u), torch.empty_like(u)
        kernels.activate(u.numpy(), net.w.numpy(), self.s.numpy(), self.c.numpy(), self.a.numpy())
        sums = self.c @ packed.units.T
        self.cM = sums.index_select(1, net.full).view(B, D, D)
        self.cM.diagonal(dim1=1, dim2=2).add_(net.lamda + RIDGE)
        self.mapped = torch.baddbmm(sums[:, net.pairs : -1, None], self.cM, x[:, :, None])[:, :, 0]

    def hessian(self) -> Tensor:
        """Return the Hessian of f at every particle."""
        H = torch.empty_like(self.cM)
        kernels.hessians(self.x1.numpy(), self.packed.full.numpy(), self.sqrt_a.numpy(), self.cM.numpy(), H.numpy())
        return H

    def pull_back(self, g: Tensor, P: Tensor | None = None, log_det: float = 0.0) -> None:
        """Add the gradient of a sum over the particles to the gradient accumulated in ``packed``.

        The terms of the sum are <g, grad f> + <P, Hess f> + log_det * log det Hess f, where every P is symmetric. The
        derivative of the log determinant is d log det H = <H^-1, dH>.
        """
        packed, net, x = self.packed, self.packed.net, self.x
        B, D = x.shape
        # aq is a times the derivative with respect to a; the derivative with respect to c is a product with the packed
        # units.
        aq = torch.zeros_like(self.a)
        needs_hessian = P is not None or log_det != 0
        P = torch.zeros_like(self.cM) if P is None else P.clone()
        if needs_hessian:
            kernels.pull_back_hessians(
                self.x1.numpy(),
                packed.full.numpy(),
                self.sqrt_a.numpy(),
                self.cM.numpy(),
                log_det,
                P.numpy(),
                aq.numpy(),
                packed.full_bar.numpy(),
            )
        packed.lamda_bar += (g * x).sum() + P.diagonal(dim1=1, dim2=2).sum()
        full = P.addcmul_(g[:, :, None], x[:, None, :]).view(B, D * D)
        pairs = full.index_select(1, net.upper).add_(full.index_select(1, net.lower)).mul_(net.halves)
        R = torch.cat((pairs, g, torch.zeros_like(g[:, :1])), dim=1)
        u_bar = R @ packed.units
        w, w_bar = net.w.numpy(), packed.w_bar.numpy()
        kernels.pull_back_units(u_bar.numpy(), aq.numpy(), self.s.numpy(), self.a.numpy(), w, w_bar)
        packed.units_bar.addmm_(self.features.T, u_bar).addmm_(R.T, self.c)
