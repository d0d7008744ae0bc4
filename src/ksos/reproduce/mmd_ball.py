"""The worst distribution of an MMD ball, exactly, when its atoms may lie on a fixed grid.

Atoms x_1 … x_N, a reference distribution μ̂ = Σ ν_i δ_{x_i}, a radius ε and a return point θ = x_j. Over weights μ ∈ R^N,

    min  k_θᵀμ   such that   μ ≥ 0,  1ᵀμ = 1,  ‖Φμ − Φν‖ ≤ ε,         k_θ = (k(x_i, θ))_i,  ΦᵀΦ = K = (k(x_i, x_l))_il.

With a multiplier τ ≥ 0 for the ball the Lagrangian is a squared distance, since k_θ = Φᵀφ_θ with φ_θ = Φe_j:

    L(μ, τ) = k_θᵀμ + τ(‖Φμ − Φν‖² − ε²) = τ‖Φμ − t(τ)‖² + const,     t(τ) = Φν − φ_θ/(2τ),

so that its minimiser over the simplex is the projection of t(τ) on the convex hull of the columns of Φ. The dual is

    max_{τ ≥ 0}  min_{μ ≥ 0, 1ᵀμ = 1}  L(μ, τ),

without a gap because ν lies strictly inside the ball. ‖Φμ(τ) − Φν‖ falls as τ grows, so the dual optimum is the root of one scalar
function; if the minimisers of k_θᵀμ alone reach into the ball, it is τ = 0.

Whatever weights come out, the bound L(μ, τ) + min_i g_i − gᵀμ with g = ∇_μ L(μ, τ) is below the optimal value: L is convex in μ, and a
linear function on the simplex is least at a corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, nnls

from ksos._validation import as_points, as_positive, as_weights
from ksos.kernels import Kernel

__all__ = ["MMDBall", "WorstAtoms"]

_TIE = 1e-12  # kernel values this close are the same number up to rounding
_SMALLEST_MULTIPLIER = 1e-12


@dataclass(frozen=True)
class WorstAtoms:
    """The minimiser of k_θᵀμ over an MMD ball, with the proof that it is one."""

    weights: np.ndarray
    """μ, one entry per atom."""
    value: float
    """k_θᵀμ = (K ∗ μ)(θ)."""
    lower_bound: float
    """A dual bound: no distribution on these atoms in the ball has a smaller value."""
    mmd: float
    """MMD(μ, μ̂), at most the radius up to rounding."""
    multiplier: float
    """τ."""


class MMDBall:
    """{μ = Σ μ_i δ_{x_i} : μ ≥ 0, Σ μ_i = 1, MMD(μ, μ̂) ≤ ε} on fixed atoms.

    Parameters
    ----------
    kernel : Kernel
    atoms : array (N, d)
    reference : array of N non-negative floats
        μ̂ as weights of the atoms, scaled to sum 1.
    radius : float
        ε.

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> ball = MMDBall(Gaussian(1.0), np.linspace(-2.0, 2.0, 41)[:, None], np.eye(41)[20], radius=1.2)
    >>> worst = ball.worst(20)  # against θ = 0
    >>> round(worst.value, 4), bool(worst.value - worst.lower_bound < 1e-10)
    (0.0236, True)
    """

    def __init__(self, kernel: Kernel, atoms: np.ndarray, reference: np.ndarray, radius: float) -> None:
        self.kernel = kernel
        self.atoms = as_points(atoms, "atoms")
        self.reference = as_weights(reference, self.atoms.shape[0], "reference")
        self.radius = as_positive(radius, "radius")
        self.K = kernel(self.atoms)
        values, Q = np.linalg.eigh(self.K)
        keep = values > np.finfo(float).eps * values[-1]
        self._Phi = (Q[:, keep] * np.sqrt(values[keep])).T
        self._centre = self._Phi @ self.reference

    def worst(self, theta: int) -> WorstAtoms:
        """The distribution of the ball with the least (K ∗ μ)(θ), for θ the atom number ``theta``."""
        k, phi = self.K[theta], self._Phi[:, theta]
        lowest = np.flatnonzero(k <= k.min() + _TIE)
        weights = np.zeros(k.shape[0])
        weights[lowest] = _project(self._Phi[:, lowest], self._centre)
        if self.mmd(weights) <= self.radius:
            return self._certified(weights, 0.0, k)

        def excess(log_tau: float) -> float:
            return self.mmd(self._penalised(phi, np.exp(log_tau))) - self.radius

        # Projections are non-expansive and the centre is its own projection: MMD(μ(τ), μ̂) ≤ ‖φ_θ‖/(2τ), which is ε at this τ.
        high = low = float(np.log(np.sqrt(k[theta]) / (2.0 * self.radius)))
        while excess(low) <= 0.0 and low > np.log(_SMALLEST_MULTIPLIER):
            high, low = low, low - 1.0
        log_tau = brentq(excess, low, high, xtol=1e-14, rtol=1e-14) if high > low else low
        tau = float(np.exp(log_tau))
        return self._certified(self._penalised(phi, tau), tau, k)

    def mmd(self, weights: np.ndarray) -> float:
        """MMD between weights of the atoms and the reference."""
        return float(np.linalg.norm(self._Phi @ weights - self._centre))

    def _penalised(self, phi: np.ndarray, tau: float) -> np.ndarray:
        """μ(τ): the minimiser of L(·, τ) over the simplex."""
        return _project(self._Phi, self._centre - phi / (2.0 * tau))

    def _certified(self, weights: np.ndarray, tau: float, k: np.ndarray) -> WorstAtoms:
        value, mmd = float(k @ weights), self.mmd(weights)
        g = k + 2.0 * tau * (self.K @ (weights - self.reference))
        bound = value + tau * (mmd**2 - self.radius**2) + float(g.min() - g @ weights)
        return WorstAtoms(weights, value, bound, mmd, tau)


def _project(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights μ of the simplex that minimise ‖points·μ − target‖, exactly, by one non-negative least-squares problem.

    With a_i = point_i − target, minimise ‖Au‖² + s²(1ᵀu − 1)² over u ≥ 0. Writing u = cμ with μ in the simplex, the minimisation over μ
    does not depend on c: normalising u solves the constrained problem, and s may be any size that suits the floats.
    """
    s = 1.0 + float(np.linalg.norm(target))
    A = np.vstack([points - target[:, None], np.full(points.shape[1], s)])
    u, _ = nnls(A, np.append(np.zeros(points.shape[0]), s))
    return np.asarray(u / u.sum())
