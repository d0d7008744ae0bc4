"""The negative log-likelihood of samples: −Σ_i a_i log p(x_i), convex in the density and
self-concordant; that of rows of which cells are missing; and its sums over chunks that are gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos.data import Chunk
from ksos.data.passes import Checks, Tally
from ksos.functionals.base import (
    BoundTerm,
    Functional,
    Pair,
    PointwiseTerm,
    density_values,
    from_values,
)
from ksos.functionals.l2 import Basis
from ksos.ground import (
    Array,
    as_points,
    as_weights,
    is_other_array,
    like,
    namespace,
    naming,
    to_numpy,
)
from ksos.space.space import SoSSpace

_FLOOR = 1e-8  # of a sample's least value at an optimum: below, a parabola continues the logarithm
_LOUDEST = 1024  # samples that are kept: few beside a part of thousands, and they matter most
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


class RowLikelihood(BoundLikelihood):
    """−Σ_i a_i log tr(C M_i) for rows of which cells may be missing: M_i is the sum of ψψᵀ over the
    rows of ``psi`` from ``starts``_i to the next start.

    Every M_i is positive semidefinite, so it is as convex as for complete rows.
    """

    twice_differentiable = False

    def __init__(self, psi: np.ndarray, starts: np.ndarray, a: np.ndarray) -> None:
        self.starts, self.counts = starts, np.diff(np.r_[starts, psi.shape[0]])
        reach = np.add.reduceat(np.einsum("nr,nr->n", psi, psi), starts)
        super().__init__(psi, a, _FLOOR * a * reach, 0.0)

    def value(self, a: Array | None, C: Array) -> float:
        return self.value_at(self._sums(density_values(self.psi, C)))

    def gradient(self, a: Array | None, C: Array) -> Pair:
        slopes = self.slopes(self._sums(density_values(self.psi, C)))[0]
        return None, from_values(self.psi, np.repeat(slopes, self.counts))

    def factor_gradient(
        self, a: Array | None, F: Array
    ) -> tuple[float, Array | None, Array | None]:
        V = self.psi @ F
        p = self._sums(np.einsum("nr,nr->n", V, V))
        slopes = np.repeat(self.slopes(p)[0], self.counts)
        return self.value_at(p), None, self.psi.T @ (slopes[:, None] * V)

    def _sums(self, values: np.ndarray) -> np.ndarray:
        """One value for every row of the table."""
        return np.asarray(np.add.reduceat(values, self.starts))


@dataclass(frozen=True, eq=False)
class LikelihoodSums:
    """−Σ_i a_i log p(x_i) and its gradient −Σ_i a_i ψ_iψ_iᵀ/p(x_i), with those samples whose share
    in the gradient is largest.
    """

    checks: Checks
    basis: Basis
    log_unit: float
    factor: np.ndarray  # G with C = GGᵀ
    total: float  # the mass of all samples, those to come included
    value: float
    gradient: np.ndarray  # without the samples that are kept
    points: np.ndarray
    masses: np.ndarray
    psi: np.ndarray  # the basis at the samples that are kept
    slopes: np.ndarray  # −a_i/p(x_i) of these
    tally: Tally

    # no samples yet, of ``total`` mass to come, at the point C = GGᵀ of a space
    @classmethod
    def nothing(
        cls, checks: Checks, space: SoSSpace, factor: np.ndarray, total: float
    ) -> LikelihoodSums:
        none, r, d = np.empty(0), space.rank, space.n_features
        at = Basis.of(space), float(space.log_unit), to_numpy(factor), total
        kept = np.empty((0, d)), none, np.empty((0, r)), none
        return cls(checks, *at, 0.0, np.zeros((r, r)), *kept, Tally())

    # this and one more chunk
    def update(self, chunk: Chunk) -> LikelihoodSums:
        rows, checks = self.checks.rows(chunk)
        points, masses = to_numpy(rows.points), to_numpy(rows.masses)
        counted = masses > 0.0
        with naming(chunk.name):
            out = replace(self, checks=checks).add(points[counted], masses[counted])
        return replace(out, tally=self.tally.merge(Tally.of(rows)))

    # this and more samples of positive masses
    @np.errstate(under="ignore")
    def add(self, X: np.ndarray, a: np.ndarray) -> LikelihoodSums:
        out, nothing = self, np.zeros_like(self.gradient)
        for rows, psi in self.basis.blocks(X):
            term = likelihood_term(psi, a[rows], self.log_unit, X[rows], self.total)
            p = np.sum((psi @ self.factor) ** 2, axis=1)
            some = replace(self, value=term.value_at(p), gradient=nothing, tally=Tally())
            known = {"points": X[rows], "masses": a[rows], "psi": psi, "slopes": term.slopes(p)[0]}
            out = out.merge(replace(some, **known))
        return out

    def merge(self, other: LikelihoodSums) -> LikelihoodSums:
        """The sums over both sets of samples. Only samples that are no longer kept enter the
        gradient, which is then free of huge terms.
        """
        names = ("points", "masses", "psi", "slopes")
        both: dict[str, Any] = {
            name: np.concatenate([vars(self)[name], vars(other)[name]]) for name in names
        }
        psi, slopes = both["psi"], both["slopes"]
        order = np.argsort(slopes * np.sum(psi * psi, axis=1), kind="stable")
        loud, rest = order[:_LOUDEST], order[_LOUDEST:]
        return replace(
            self,
            checks=self.checks.merge(other.checks),
            value=self.value + other.value,
            gradient=self.gradient + other.gradient + from_values(psi[rest], slopes[rest]),
            tally=self.tally.merge(other.tally),
            **{name: entries[loud] for name, entries in both.items()},
        )

    # that of all samples
    @property
    def whole_gradient(self) -> np.ndarray:
        return np.asarray(self.gradient + from_values(self.psi, self.slopes))
