r"""The limit of the proximal weights as the number of particles grows.

Write the weights as rho_i = r(theta_i) / N at particles of density p, so that the weighted cloud has the density
mu = r p. "The weights are the density" means r = p up to a factor, hence mu = p^2. Theorem 1 of the paper claims that
this property is preserved along the flow. In general, this is not true:

**The smoothing step** (kappa -> infinity with h and beta fixed). The fixed point has
log z = (log xi - log(Gamma^T q)) / (1 + kappa), so z -> 1 and rho_k -> Gamma^T (rho_{k-1} / Gamma 1): the energy no
longer affects the step. If instead beta is large at fixed h and epsilon, log z -> -h w / epsilon, and the energy
affects the step unless this limit is small. If the particles do not move, the smoothing step is
rho_k = P^T rho_{k-1} with the Markov matrix P = diag(Gamma 1)^-1 Gamma. Since Gamma is symmetric,
(Gamma 1)_i P_ij = Gamma_ij: P is reversible, and its stationary distribution is Gamma 1, a kernel density estimate of
variance epsilon. In the norm with the weights 1/(Gamma 1), every step multiplies the distance between the weights and
Gamma 1 by at most the second eigenvalue of P. For N -> infinity and p = N(0, v), a draw y from the row of x has the
distribution N(x v/(v + epsilon), .), so the eigenvalues are (1 + epsilon/v)^-j: the initial weights are forgotten after
v/epsilon steps, that is, after the *time* h v / epsilon = beta v / kappa.

**Any kappa**, for N -> infinity and h, epsilon -> 0 with kappa = beta epsilon / h fixed (orientation=consistent). Row x
of the coupling is proportional to exp(-|x - y|^2 / 2 epsilon) z(y) p(y), a normal distribution of variance epsilon
whose mean is shifted by epsilon grad log(z p), and the optimality condition rho = xi z^-kappa says
log z = -(beta w + log r) / kappa. Hence, with epsilon / h = kappa / beta,

    d mu/dt = div(mu grad w) + ((1 + kappa/2)/beta) Laplace(mu) - ((1 + kappa)/beta) div(mu grad log p).        (*)

The particles appear in (*) as a reference measure, because the entropy of the proximal step is a sum over particles.
With dp/dt = div(p grad w) + Laplace(p)/beta, inserting mu = g p^2 gives for g = r/p

    dg/dt = ((1 + kappa/2)/beta) Laplace(g) + <grad w + ((3 + kappa)/beta) grad log p, grad g>
            - g Laplace(w + log(p)/beta).

So r = p up to a factor is preserved if and only if the Laplacian of w + log(p)/beta is constant in space: at
equilibrium, where p = exp(-beta w) and any other g decays with a rate near (2 + kappa)/(beta v), and for normal
distributions in a quadratic energy. Otherwise, the last term drives r away from p, by a relative amount of order
1/(2 + kappa). The double well is a counterexample (``limit_of_weights``). For kappa -> infinity, the deviation
vanishes, and so does the influence of the energy: the weights are then a kernel density estimate.

**The share of the energy.** If the proximal step receives w = 0 and the particles have their equilibrium density p,
then (*) is stationary at mu = p^((1 + kappa)/(1 + kappa/2)), so r = p^(kappa/(2 + kappa)), whereas r = p with w: a
share kappa/(2 + kappa) of log p comes from the positions of the particles and 2/(2 + kappa) from the energy. With a
potential w' = c w (c = 1/2 for the interaction energy of prox_potential=paper), the exponent is
(2 c + kappa)/(2 + kappa). With noise_scale = s, the equilibrium density is p = exp(-beta w / s^2), and the exponent is
(2 s^2 + kappa)/(2 + kappa) with w: the share of the energy is 2 s^2/(2 s^2 + kappa).

**orientation=paper** moves the mass with the particle, transports it back to the old positions and moves it again. This
adds twice the motion of the particles, 2 (div(mu grad w) + Laplace(mu)/beta), to (*). The exponents become
(2 + kappa)/(6 + kappa) with w, and kappa/(6 + kappa) with w = 0: the weights are more uniform than the density unless
kappa is large.

``gaussian_exponents`` is the limit N -> infinity at fixed h and epsilon: for normal distributions and a quadratic
energy, z, q and r remain log-quadratic, and the fixed point is a recursion of four numbers. Isotropic distributions
factorise over the coordinates, so the result holds in every dimension: the dimension matters only through the number of
particles.
"""

from __future__ import annotations

import math

import numpy as np

from proxlearn.verify.finite_volumes import GridFlow, implicit_step

ROUNDS = 100_000


def exponent(kappa: float, orientation: str = "consistent", share_of_w: float = 1.0) -> float:
    """Return the exponent b of the stationary weights r = p^b at equilibrium, for N -> infinity and h, epsilon -> 0.

    ``share_of_w`` is the factor c in the potential c w of the proximal step; 0 removes the energy from the step.
    """
    extra = 4.0 if orientation == "paper" else 0.0
    return (2 * share_of_w + kappa) / (2 + extra + kappa)


def gaussian_exponents(
    variance: float,
    h: float,
    epsilon: float,
    beta: float,
    steps: int,
    *,
    share_of_w: float = 1.0,
    noise_scale: float = 1.0,
) -> list[float]:
    """Return the slope of log r on log p after every step, for infinitely many particles (orientation=consistent).

    The particles start from N(0, variance) and follow the Euler-Maruyama method for V = |theta|^2 / 2. The initial
    weights are the density. Every function exp(-a |theta|^2 / 2) is represented by its precision a.
    """
    kappa = beta * epsilon / h
    weights, slopes, log_z = 1 / variance, [], 0.0
    for _ in range(steps):
        moved = (1 - h) ** 2 * variance + 2 * h * noise_scale**2 / beta
        for _ in range(ROUNDS):
            columns = log_z + 1 / moved
            log_q = weights - columns / (1 + epsilon * columns)
            rows = log_q + 1 / variance
            next_z = (beta * share_of_w - rows / (1 + epsilon * rows)) / (1 + kappa)
            if math.isclose(next_z, log_z, rel_tol=1e-12, abs_tol=1e-12):
                break
            log_z = next_z
        weights, variance = log_z + rows / (1 + epsilon * rows), moved
        slopes.append(weights * variance)
    return slopes


def limit_of_weights(
    flow: GridFlow, kappa: float, times: tuple[float, ...], *, orientation: str = "consistent", share_of_w: float = 1.0
) -> list[dict[str, float]]:
    """Solve the limit equation by finite volumes; return, for each time, how well the weights agree with the density.

    The equation is (*) in the docstring of this module. The initial weights are the density. ``slope`` is the slope of
    log r on log p, weighted with p. ``tv`` is the total variation between r and p at the particles, which equals the
    total variation between mu and p^2 (both normalised).
    """
    extra = 2.0 if orientation == "paper" else 0.0
    potential, width = flow.potential(flow.grid.centres), flow.grid.width
    tiny = np.finfo(float).tiny
    mu = flow.history[0] ** 2 / (flow.history[0] ** 2).sum()
    due = {round(time / flow.horizon * flow.steps) for time in times}
    results = []
    for k in range(max(due) + 1):
        masses = flow.history[k]
        log_p = np.log(np.maximum(masses, tiny))
        if k in due:
            results.append(_agreement(mu, masses, log_p))
        drift = (share_of_w + extra) * potential(masses) - (1 + kappa) / flow.beta * log_p
        beta = flow.beta / (1 + extra + kappa / 2)
        mu = implicit_step(mu, drift, beta, width, flow.horizon / flow.steps)
    return results


def _agreement(mu: np.ndarray, masses: np.ndarray, log_p: np.ndarray) -> dict[str, float]:
    square = masses**2 / (masses**2).sum()
    seen = masses > 1e-12
    p, x = masses[seen] / masses[seen].sum(), log_p[seen]
    y = np.log(np.maximum(mu[seen], np.finfo(float).tiny)) - x
    x, y = x - p @ x, y - p @ y
    return {"slope": float((p * x) @ y / ((p * x) @ x)), "tv": float(np.abs(mu - square).sum() / 2)}
