"""The augmented Lagrangian of a constrained problem, as a term that the solvers of the spectraplex can minimise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ksos._array import Array, inner
from ksos.functionals.base import BoundTerm, Pair

__all__ = ["Augmented", "Bound"]


@dataclass(frozen=True)
class Bound:
    """g ≤ 0 (or g = 0) on the spectraplex."""

    term: BoundTerm
    equality: bool
    size: float
    """What counts as one unit of g."""

    def excess(self, value: float) -> float:
        """By how much the constraint is violated where g has this value, in units of g's size."""
        return (abs(value) if self.equality else max(value, 0.0)) / self.size


class Augmented(BoundTerm):
    r"""f + Σ_i ψ_i(g_i), ψ(g) = νg + βg²/2 for an equality and (max(0, ν + βg)² − ν²)/(2β) for an inequality.

    Convex wherever f and the g_i are. Its gradient at C is that of the Lagrangian f + Σ w_i g_i with the multipliers w = ψ'(g(C)): what
    certifies the one certifies the other.
    """

    def __init__(
        self,
        term: BoundTerm,
        bounds: Sequence[Bound],
        multipliers: np.ndarray,
        penalties: np.ndarray,
        embed: Callable[[Array], Array | None],
        pull_back: Callable[[Pair], Array],
    ) -> None:
        self.term, self.bounds, self.multipliers, self.penalties = term, bounds, multipliers, penalties
        self.embed, self.pull_back = embed, pull_back
        parts = [term, *(bound.term for bound in bounds)]
        self.uses_embedding = any(part.uses_embedding for part in parts)
        self.twice_differentiable = all(part.twice_differentiable for part in parts)
        self.convex = all(part.convex for part in parts)

    def updated(self, a: Array | None, C: Array) -> np.ndarray:
        """w = ψ'(g(C)): the multipliers that the point stands for."""
        return self._weights(self.values(a, C))

    def values(self, a: Array | None, C: Array) -> np.ndarray:
        """g_i at the point."""
        return np.array([bound.term.value(a, C) for bound in self.bounds])

    def _weights(self, g: np.ndarray) -> np.ndarray:
        w = self.multipliers + self.penalties * g
        free = np.array([bound.equality for bound in self.bounds])
        return np.where(free, w, np.maximum(w, 0.0))

    def _active(self, w: np.ndarray) -> np.ndarray:
        """ψ'': the penalty, or 0 where the constraint is not felt."""
        return np.where((w > 0.0) | np.array([bound.equality for bound in self.bounds]), self.penalties, 0.0)

    def value(self, a: Array | None, C: Array) -> float:
        w = self.updated(a, C)
        return self.term.value(a, C) + float(np.sum((w - self.multipliers) * (w + self.multipliers) / (2.0 * self.penalties)))

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return self._lagrangian(self.term.gradient(a, C), self.updated(a, C), [bound.term.gradient(a, C) for bound in self.bounds])

    def _lagrangian(self, own: Pair, w: np.ndarray, others: Sequence[Pair]) -> Pair:
        total = own
        for weight, other in zip(w.tolist(), others, strict=True):
            if weight != 0.0:
                total = (_plus(total[0], weight, other[0]), _plus(total[1], weight, other[1]))
        return total

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        """Σ w_i g_i'' + f'' and, along one direction, the rank-one parts βg'g'ᵀ; for several they are in :meth:`factor_hessian`."""
        w = self.updated(a, C)
        own = self.term.hessian(a, C, da, dC)
        if own is None:
            return None
        others = [
            bound.term.hessian(a, C, da, dC) if weight != 0.0 else (None, None)
            for weight, bound in zip(w.tolist(), self.bounds, strict=True)
        ]
        known = [other for other in others if other is not None]
        if len(known) < len(others):
            return None
        total = self._lagrangian(own, w, known)
        if da is None or da.ndim == 1:
            for penalty, bound in zip(self._active(w).tolist(), self.bounds, strict=True):
                if penalty > 0.0:
                    in_embedding, in_parameter = bound.term.gradient(a, C)
                    slope = 0.0 if in_embedding is None or da is None else inner(in_embedding, da)
                    slope += 0.0 if in_parameter is None else inner(in_parameter, dC)
                    total = (_plus(total[0], penalty * slope, in_embedding), _plus(total[1], penalty * slope, in_parameter))
        return total

    def factor_hessian(self, F: Array) -> Array | None:
        """Those of f and the g_i, and the rank-one parts 4β(∇g·F)(∇g·F)ᵀ."""
        C = F @ F.T
        a = self.embed(C)
        w = self.updated(a, C)
        total = self.term.factor_hessian(F)
        for weight, penalty, bound in zip(w.tolist(), self._active(w).tolist(), self.bounds, strict=True):
            if weight != 0.0:
                total = _plus(total, weight, bound.term.factor_hessian(F))
            if penalty > 0.0:
                N = self.pull_back(bound.term.gradient(a, C)) @ F
                total = _plus(total, 4.0 * penalty, N[:, :, None, None] * N[None, None, :, :])
        return total


def _plus(total: Array | None, scale: float, part: Array | None) -> Array | None:
    if part is None:
        return total
    return scale * part if total is None else total + scale * part
