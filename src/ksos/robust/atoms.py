"""The worst distribution of an MMD ball, exactly, when its atoms may lie on a fixed set of points.

Atoms x_1 … x_N with features Φ = (φ(x_1), …), a point z of the RKHS, a radius ε and a loss ℓ ∈ R^N.
Over weights μ ∈ R^N,

    max  ℓᵀμ   such that   μ ≥ 0,  1ᵀμ = 1,  ‖Φμ − z‖ ≤ ε.

With a multiplier u ≥ 0 for the ball, ℓᵀμ − (u/2)‖Φμ − z‖² is to be maximized over the simplex. That
is a projection with one coordinate more: the minimizer of ‖Φμ − z‖² + δ²(ℓᵀμ − c)², with c above
every ℓ_i, is such a maximizer for 1/u = δ²(c − ℓᵀμ). ‖Φμ − z‖ grows with δ, so that one scalar
function has the root that is wanted. If maximizers of ℓᵀμ alone reach into the ball, u = 0.

The robust mode is the case ℓ = −k_θ = −(k(x_i, θ))_i, z = Φν of a reference ν on the atoms. For any
weights μ, with τ = u/2 and L(μ, τ) = k_θᵀμ + τ(‖Φμ − Φν‖² − ε²), the bound L(μ, τ) + min_i g_i −
gᵀμ with g = ∇_μ L(μ, τ) is below the optimal value: L is convex in μ, and a linear function on the
simplex is least at a corner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq, nnls

from ksos.ground.validation import as_points
from ksos.robust.ball import Ball

__all__ = ["AtomicBall", "AtomicDual", "WorstAtoms", "worst_atoms"]

_TIE = 1e-12  # kernel values this close are the same number up to rounding
_ABOVE = 1.5  # c, for a loss that lies between −½ and ½: any number above ½
# Where the root δ is looked for: beyond, one of the two terms is rounding beside the other. The
# walk to it starts in the middle, for the ends are the hardest projections.
_DELTAS, _FIRST_DELTA, _STRIDE = (1e-5, 1e3), 0.3, 1.5


@dataclass(frozen=True)
class WorstAtoms:
    """The minimizer of k_θᵀμ over an MMD ball, with the proof that it is one.

    Attributes
    ----------
    weights : ndarray
        μ, one entry per atom.
    value : float
        k_θᵀμ = (K ∗ μ)(θ).
    lower_bound : float
        A dual bound: no distribution on these atoms in the ball has a smaller value.
    mmd : float
        MMD(μ, μ̂), at most the radius up to rounding.
    multiplier : float
        τ.
    """

    weights: np.ndarray
    value: float
    lower_bound: float
    mmd: float
    multiplier: float


class AtomicBall:
    """The distributions of a ball on some atoms, those of the data among them.

    >>> from ksos.kernels import Gaussian
    >>> near_zero = Ball([[0.0]], 1.2, kernel=Gaussian(1.0))
    >>> ball = AtomicBall(near_zero, np.linspace(-2.0, 2.0, 41)[:, None])
    >>> worst = ball.worst(20)  # against θ = 0
    >>> round(worst.value, 4), bool(worst.value - worst.lower_bound < 1e-10)
    (0.0236, True)
    """

    def __init__(self, ball: Ball, atoms: np.ndarray) -> None:
        if not ball.is_distribution:
            raise ValueError("atoms need data whose weights are those of a distribution")
        self.kernel, self.radius = ball.kernel, ball.radius
        both = np.concatenate([as_points(atoms, "atoms"), ball.points])
        self.atoms, places = np.unique(both + 0.0, axis=0, return_inverse=True)
        own = places.ravel()[-ball.points.shape[0] :]
        self.reference = np.bincount(own, weights=ball.weights, minlength=self.atoms.shape[0])
        self.K = self.kernel(self.atoms)
        values, Q = np.linalg.eigh(self.K)
        keep = values > np.finfo(float).eps * values[-1]
        self._Phi = (Q[:, keep] * np.sqrt(values[keep])).T
        self._center = self._Phi @ self.reference

    def worst(self, theta: int) -> WorstAtoms:
        """The distribution of the ball with the least (K ∗ μ)(θ), for θ the atom number ``theta``."""
        return self.worst_at(self.atoms[theta])

    def worst_at(self, theta: np.ndarray) -> WorstAtoms:
        """The same for any point θ (d,)."""
        k, tau = self.kernel(self.atoms, as_points(theta[None, :], "theta"))[:, 0], 0.0
        lowest = np.flatnonzero(k <= k.min() + _TIE)
        weights = np.zeros(k.shape[0])
        weights[lowest] = _project(self._Phi[:, lowest], self._center)
        if self.mmd(weights) > self.radius:
            found = worst_atoms(self._Phi, self._center, -k, self.radius, digits=1e-14)
            weights, tau = found.weights, 0.5 * found.multiplier
        value, mmd = float(k @ weights), self.mmd(weights)
        g = k + 2.0 * tau * (self.K @ (weights - self.reference))
        bound = value + tau * (mmd**2 - self.radius**2) + float(g.min() - g @ weights)
        return WorstAtoms(weights, value, bound, mmd, tau)

    def mmd(self, weights: np.ndarray) -> float:
        """MMD between weights of the atoms and the reference."""
        return float(np.linalg.norm(self._Phi @ weights - self._center))


@dataclass(frozen=True)
class AtomicDual:
    """The worst weights for a loss in a ball, with ℓᵀμ and ‖Φμ − z‖, and the dual point that goes
    with them: u(Φμ − z), and u.
    """

    weights: np.ndarray
    value: float
    y: np.ndarray
    distance: float
    multiplier: float


def worst_atoms(
    Phi: np.ndarray,
    z: np.ndarray,
    loss: np.ndarray,
    radius: float | None,
    penalty: float | None = None,
    digits: float = 1e-6,
) -> AtomicDual:
    """max ℓᵀμ over the simplex such that ‖Φμ − z‖ ≤ ε, or max ℓᵀμ − γ‖Φμ − z‖², the multiplier to a
    relative error of ``digits``.

    Φ (q, N) holds the coordinates of the atoms' features. If no weights are in the ball, those that
    are nearest to z come back. Raises RuntimeError where a projection does not converge.

    >>> Phi, z = np.eye(2), np.array([1.0, 0.0])
    >>> found = worst_atoms(Phi, z, np.array([0.0, 1.0]), 0.5 * np.sqrt(2.0))
    >>> found.weights.round(4).tolist(), round(float(np.linalg.norm(found.y)), 4)  # ∂value/∂ε
    ([0.5, 0.5], 0.7071)
    """
    least, most = float(loss.min()), float(loss.max())
    unit = most - least if most > least else 1.0
    scaled = (loss - 0.5 * (least + most)) / unit

    def at(log_delta: float) -> AtomicDual:
        delta = np.exp(log_delta)
        mu = _project(np.vstack([Phi, delta * scaled]), np.append(z, delta * _ABOVE))
        residual = Phi @ mu - z
        u = unit / (delta**2 * (_ABOVE - float(scaled @ mu)))
        return AtomicDual(mu, float(loss @ mu), u * residual, float(np.linalg.norm(residual)), u)

    def excess(log_delta: float) -> float:
        found = at(log_delta)
        if radius is None:
            return float(np.log(2.0 * float(penalty or 1.0)) - np.log(found.multiplier))
        return float(np.log(max(found.distance, 1e-300)) - np.log(radius))

    first, last = (float(np.log(delta)) for delta in _DELTAS)
    low = high = float(np.log(_FIRST_DELTA))
    if excess(low) >= 0.0:
        while excess(low) >= 0.0:
            if low <= first:
                return at(low)
            low, high = max(low - _STRIDE, first), low
    else:
        while excess(high) <= 0.0:
            if high >= last:
                return at(high)
            low, high = high, min(high + _STRIDE, last)
    return at(brentq(excess, low, high, xtol=digits, rtol=1e-12))


def _project(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights μ of the simplex that minimize ‖points·μ − target‖, exactly, by one non-negative
    least-squares problem.

    With a_i = point_i − target, minimize ‖Au‖² + s²(1ᵀu − 1)² over u ≥ 0. Writing u = cμ with μ in
    the simplex, the minimization over μ does not depend on c: normalizing u solves the constrained
    problem, and s may be any size that suits the floats.
    """
    s = 1.0 + float(np.linalg.norm(target))
    A = np.vstack([points - target[:, None], np.full(points.shape[1], s)])
    u, _ = nnls(A, np.append(np.zeros(points.shape[0]), s))
    return np.asarray(u / u.sum())
