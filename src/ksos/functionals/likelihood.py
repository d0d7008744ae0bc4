"""The negative log-likelihood of samples: −Σ_i a_i log p(x_i), convex in the density and
self-concordant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.functionals.base import BoundTerm, Functional, PointwiseTerm
from ksos.ground import Array, as_points, as_weights, is_other_array, like, namespace, to_numpy
from ksos.space.space import SoSSpace

_FLOOR = 1e-8  # of a sample's least value at an optimum: below, a parabola continues the logarithm
_UNSEEN = 1e-200  # ‖ψ(x)‖² is about 1 near support points: below this, no density reaches x


class NegativeLogLikelihood(Functional):
    r"""−Σ_i a_i log p(x_i), with weights a_i ≥ 0 scaled to sum one: its minimizer is the
    (penalized) maximum-likelihood density.

    On the spectraplex p(x_i) = ψ_iᵀCψ_i·e^{−u}, u the ``log_unit`` of the space, so that with u_i =
    a_i/(ψ_iᵀCψ_i)

        ∇ = −Σ_i u_i ψ_iψ_iᵀ,      ∇²[E] = Σ_i (u_i²/a_i)(ψ_iᵀEψ_i) ψ_iψ_iᵀ.

    Parameters
    ----------
    X : array (n, d)
        The samples.
    weights : array of n floats, optional
        The a_i; default equal.

    Examples
    --------
    >>> import ksos
    >>> from ksos.functionals import NegativeLogLikelihood, Trace
    >>> from ksos.kernels import Gaussian
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> F = NegativeLogLikelihood(X) + 0.1 * Trace(relative=True)
    >>> solution = ksos.minimize(F, ksos.SoSSpace(Gaussian(1.0), X))
    >>> solution.status, bool(solution.gap <= 1e-5)
    ('solved', True)
    """

    natural_tol = 1e-5  # nats per sample: far below what samples can tell

    def __init__(self, X: Any, weights: Any = None) -> None:
        X = to_numpy(as_points(X, "X"))
        a = as_weights(
            to_numpy(weights) if is_other_array(weights) else weights, X.shape[0], "weights"
        )
        self.X, self.weights = X[a > 0.0], a[a > 0.0]

    def bind(self, space: SoSSpace) -> BoundTerm:
        psi, inside = space.basis(self.X), space.measure.contains(self.X)
        if not np.all(inside):
            raise _zero_likelihood(
                self.X, np.flatnonzero(~to_numpy(inside)), f"outside {space.measure!r}"
            )
        return likelihood_term(psi, like(self.weights, psi), float(space.log_unit), self.X)

    def __repr__(self) -> str:
        return f"NegativeLogLikelihood({self.X.shape[0]} samples)"


def likelihood_term(
    psi: Array, a: Array, log_unit: float, X: np.ndarray, mass: float = 1.0
) -> BoundLikelihood:
    """−Σ_i a_i log(ψ_iᵀCψ_i·e^{−u}) for the rows ψ_i of ``psi``, the basis at the samples ``X``, of
    which all have this ``mass``.
    """
    reach = namespace(psi).sum(psi * psi, axis=1)
    if (unseen := np.flatnonzero(to_numpy(reach) <= _UNSEEN)).size:
        raise _zero_likelihood(X, unseen, "too far from every support point")
    return BoundLikelihood(psi, a, _FLOOR / mass * a * reach, log_unit)


def _zero_likelihood(X: np.ndarray, rows: np.ndarray, where: str) -> ValueError:
    return ValueError(
        f"{rows.size} of {X.shape[0]} samples have likelihood zero under every density of the"
        f" space: they lie {where}; the first is {X[rows[0]].tolist()}; add support points near"
        " them, enlarge the bandwidth, or leave them out"
    )


class BoundLikelihood(PointwiseTerm):
    """−log is continued below ``floor`` by its parabola, so that a solver may look outside the
    spectraplex, where values are negative.

    This changes no answer: at the minimum a_i‖ψ_i‖² ≤ p_i·(1 + what the other terms of F may gain
    by a move towards ψ_iψ_iᵀ), which is above the floor by orders of magnitude; and the parabola
    lies below −log, so that every certificate holds for −log itself. On few directions the floor
    stays that of the whole space: a sample may be out of their reach.
    """

    matrix_free = True

    def __init__(self, psi: Array, a: Array, floor: Array, log_unit: float) -> None:
        self.psi, self.a, self.floor, self.log_unit = psi, a, floor, log_unit

    def value_at(self, p: Array) -> float:
        xp = namespace(p)
        safe = xp.maximum(p, self.floor)
        t = (p - safe) / self.floor
        return float(
            self.log_unit * xp.sum(self.a) - xp.sum(self.a * (xp.log(safe) + t - 0.5 * t * t))
        )

    def slopes(self, p: Array) -> tuple[Array, Array]:
        xp = namespace(p)
        safe = xp.maximum(p, self.floor)
        first = self.a / safe
        return first * (xp.minimum(p / safe, xp.ones_like(p)) - 2.0), first / safe
