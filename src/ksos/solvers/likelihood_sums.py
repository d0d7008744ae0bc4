"""What a likelihood fit asks of all samples at one density: value and gradient, summed over chunks,
and the samples that matter most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ksos.data.gathered import Checks, Tally, naming
from ksos.data.sources import Chunk
from ksos.functionals.base import from_values
from ksos.functionals.basis_sums import Basis
from ksos.functionals.likelihood import likelihood_term
from ksos.ground.arrays import to_numpy
from ksos.space.space import SoSSpace

__all__ = ["LikelihoodSums"]

_LOUDEST = 1024  # samples that are kept


@dataclass(frozen=True, eq=False)
class LikelihoodSums:
    """−Σ_i a_i log p(x_i) and its gradient −Σ_i a_i ψ_iψ_iᵀ/p(x_i), with those samples whose share
    in the gradient is largest.
    """

    checks: Checks
    basis: Basis
    log_unit: float
    factor: np.ndarray
    """G with C = GGᵀ."""
    total: float
    """The mass of all samples, those to come included."""
    value: float
    gradient: np.ndarray
    """Without the samples that are kept."""
    points: np.ndarray
    masses: np.ndarray
    psi: np.ndarray
    """The basis at the samples that are kept."""
    slopes: np.ndarray
    """−a_i/p(x_i) of these."""
    tally: Tally

    @classmethod
    def nothing(
        cls, checks: Checks, space: SoSSpace, factor: np.ndarray, total: float
    ) -> LikelihoodSums:
        """No samples yet, of ``total`` mass to come, at the point C = GGᵀ of a space."""
        basis, none, r = Basis.of(space), np.empty(0), space.rank
        known = basis, float(space.log_unit), to_numpy(factor), total
        return cls(
            checks,
            *known,
            0.0,
            np.zeros((r, r)),
            np.empty((0, space.n_features)),
            none,
            np.empty((0, r)),
            none,
            Tally(),
        )

    def update(self, chunk: Chunk) -> LikelihoodSums:
        """This and one more chunk."""
        rows, checks = self.checks.rows(chunk)
        points, masses = to_numpy(rows.points), to_numpy(rows.masses)
        counted = masses > 0.0
        with naming(chunk):
            out = replace(self, checks=checks).add(points[counted], masses[counted])
        return replace(out, tally=self.tally.merge(Tally.of(rows)))

    @np.errstate(under="ignore")
    def add(self, X: np.ndarray, a: np.ndarray) -> LikelihoodSums:
        """This and more samples of positive masses."""
        out = self
        for rows, psi in self.basis.blocks(X):
            term, p = (
                likelihood_term(psi, a[rows], self.log_unit, X[rows], self.total),
                np.sum((psi @ self.factor) ** 2, axis=1),
            )
            known = {"points": X[rows], "masses": a[rows], "psi": psi, "slopes": term.slopes(p)[0]}
            nothing = np.zeros_like(self.gradient)
            out = out.merge(
                replace(self, value=term.value_at(p), gradient=nothing, tally=Tally(), **known)
            )
        return out

    def merge(self, other: LikelihoodSums) -> LikelihoodSums:
        """The sums over both sets of samples. Only samples that are no longer kept enter the
        gradient, which is then free of huge terms.
        """
        names = ("points", "masses", "psi", "slopes")
        points, masses, psi, slopes = (
            np.concatenate([vars(self)[name], vars(other)[name]]) for name in names
        )
        order = np.argsort(slopes * np.sum(psi * psi, axis=1), kind="stable")
        loud, rest = order[:_LOUDEST], order[_LOUDEST:]
        gradient = self.gradient + other.gradient + from_values(psi[rest], slopes[rest])
        return replace(
            self,
            checks=self.checks.merge(other.checks),
            value=self.value + other.value,
            gradient=gradient,
            points=points[loud],
            masses=masses[loud],
            psi=psi[loud],
            slopes=slopes[loud],
            tally=self.tally.merge(other.tally),
        )

    @property
    def whole_gradient(self) -> np.ndarray:
        """That of all samples."""
        return np.asarray(self.gradient + from_values(self.psi, self.slopes))
