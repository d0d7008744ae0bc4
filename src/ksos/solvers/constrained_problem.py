"""min f(C) subject to g_i(C) ≤ 0 or = 0 over the spectraplex: its points, its Lagrangian, and the bound that any multipliers give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ksos._array import Array, flat, inner, like, namespace, norm, to_numpy, zeros
from ksos.functionals.base import BoundTerm, Constraint
from ksos.functionals.mmd import BoundBall
from ksos.functionals.objective import Objective, Point
from ksos.functionals.penalties import BoundLinear
from ksos.solvers.augmented import Augmented, Bound
from ksos.solvers.eigenvalues import lowest_bound
from ksos.solvers.spectraplex import centre

__all__ = ["ConstrainedProblem", "Prices"]


@dataclass(frozen=True)
class Prices:
    """What bounds the optimum from below: a multiplier per constraint and, where there is one, the vector that it has for an MMD ball.

    On the ball ‖a − z‖ ≤ ε, ⟨v, a − z⟩ − ε‖v‖ ≤ 0 for any v of R^q. At the optimum v = w(a − z)/ε; near the rim of a small ball the point
    knows its direction to far fewer digits than a solver that carries v itself.
    """

    weights: np.ndarray
    """w_i, not negative for inequalities."""
    vectors: Mapping[int, np.ndarray] = field(default_factory=dict)
    """v by the position of its constraint; |v| = w."""


class ConstrainedProblem:
    """An objective with constraints, each with its size: by how much it varies over the spectraplex, judged by the slope at the centre."""

    def __init__(self, objective: Objective, constraints: Sequence[Constraint]) -> None:
        self.base, self.space = objective, objective.space
        self.bounds: list[Bound] = []
        terms = [constraint.bind(self.space) for constraint in constraints]
        self.frame = self._objective(_Everything([objective.term, *terms]))
        middle = self.frame.point(centre(self.space.rank, self.space.T))
        for constraint, term in zip(constraints, terms, strict=True):
            low, high = _range(self.frame.pull_back(term.gradient(middle.a, middle.C)))
            self.bounds.append(Bound(term, constraint.equality, max(high - low, 1e-200)))
        low, high = _range(self.frame.pull_back(objective.term.gradient(middle.a, middle.C)))
        self.size = high - low
        """By how much f varies, likewise."""

    def _objective(self, term: BoundTerm) -> Objective:
        out = object.__new__(Objective)
        out.space, out.compressed, out._block_map, out.term = self.space, self.base.compressed, None, term
        return out

    def augmented(self, multipliers: np.ndarray, penalties: np.ndarray) -> Objective:
        """The augmented Lagrangian."""
        return self._objective(Augmented(self.base.term, self.bounds, multipliers, penalties, self._embed, self.frame.pull_back))

    def infeasibility(self) -> Objective:
        """Σ_i (g_i/size_i)²/2 over the violated constraints: 0 exactly where all of them are met."""
        nothing, n = BoundLinear(zeros((self.space.rank, self.space.rank), self.space.T)), len(self.bounds)
        penalties = np.array([bound.size for bound in self.bounds]) ** -2.0
        return self._objective(Augmented(nothing, self.bounds, np.zeros(n), penalties, self._embed, self.frame.pull_back))

    def _embed(self, C: Array) -> Array | None:
        return self.point(C).a

    def compress(self, compressed: bool) -> None:
        """Whether A is used as a stored tensor."""
        self.frame.compressed = self.base.compressed = compressed

    def point(self, C: Array) -> Point:
        """C with its embedding, where f or a constraint looks at it."""
        return self.frame.point(C)

    def value(self, point: Point) -> float:
        """f."""
        return self.base.term.value(point.a, point.C)

    def excesses(self, point: Point) -> np.ndarray:
        """g_i."""
        return np.array([bound.term.value(point.a, point.C) for bound in self.bounds])

    def slope(self, i: int, point: Point) -> Array:
        """∇g_i, r × r."""
        return self.frame.pull_back(self.bounds[i].term.gradient(point.a, point.C))

    def attainable(self, i: int) -> tuple[float, float] | None:
        """The least and the largest value of g_i where it is linear in C."""
        if not self.bounds[i].term.linear:
            return None
        middle = self.point(centre(self.space.rank, self.space.T))
        at_middle = self.excesses(middle)[i]
        slope = self.slope(i, middle)
        low, high = _range(slope)
        level = inner(slope, middle.C)
        return at_middle - level + low, at_middle - level + high

    def violation(self, point: Point) -> float:
        """The largest violation, in units of each constraint's size."""
        return max(bound.excess(value) for bound, value in zip(self.bounds, self.excesses(point), strict=True))

    def lower_bound(self, prices: Prices, point: Point) -> float:
        """L(C) − ⟨∇L(C), C⟩ + λ_min(∇L(C)) with L = f + Σ w_i g_i: at most the optimum, for any C and any multipliers of the right sign.

        A ball that has a vector v counts as the linear constraint ⟨v, A(C) − z⟩ ≤ ε‖v‖.
        """
        G = self.frame.pull_back(self.base.term.gradient(point.a, point.C))
        total = self.value(point)
        for i, (weight, excess) in enumerate(zip(prices.weights.tolist(), self.excesses(point).tolist(), strict=True)):
            if i in prices.vectors:
                v, ball = like(prices.vectors[i], self.space.T), self.bounds[i].term
                assert isinstance(ball, BoundBall)
                G = G + self.frame.pull_back((v, None))
                total += inner(v, point.a - ball.z) - ball.radius * norm(v)
            elif weight != 0.0:
                G = G + weight * self.slope(i, point)
                total += weight * excess
        return float(total - inner(G, point.C) + lowest_bound(G, 1e-10))

    def best_prices(self, known: Sequence[Prices], point: Point, G: Array) -> tuple[Prices, float]:
        """Of the known prices and the multipliers that make ∇L·G = λG hold best at C = GGᵀ, those with the highest bound, and the bound.

        Near the optimum the latter are off by the square of what the point is off by, whatever the former have lost to rounding.
        """
        fitted = self._fitted_multipliers(known[0].weights, point, G)
        candidates = [*known, *([] if fitted is None else [Prices(fitted)])]
        bounds = [self.lower_bound(candidate, point) for candidate in candidates]
        best = int(np.argmax(bounds))
        return candidates[best], bounds[best]

    def _fitted_multipliers(self, multipliers: np.ndarray, point: Point, G: Array) -> np.ndarray | None:
        felt = [i for i, bound in enumerate(self.bounds) if bound.equality or multipliers[i] > 0.0]
        if not felt:
            return None
        columns = [flat(self.slope(i, point) @ G) * (1.0 / self.bounds[i].size) for i in felt] + [-flat(G)]
        target = -flat(self.frame.pull_back(self.base.term.gradient(point.a, point.C)) @ G)
        gram = np.array([[inner(one, other) for other in columns] for one in columns])
        fitted = np.linalg.lstsq(gram, [inner(column, target) for column in columns], rcond=1e-14)[0]
        other = np.zeros_like(multipliers)
        for i, weight in zip(felt, fitted[:-1].tolist(), strict=True):
            other[i] = weight / self.bounds[i].size if self.bounds[i].equality else max(weight / self.bounds[i].size, 0.0)
        return other

    def certified_violation(self, multipliers: np.ndarray, point: Point) -> float:
        """The same for f = 0: where it is positive, no point meets the constraints (a proof by Farkas' lemma)."""
        G, total = 0.0 * point.C, 0.0
        for i, (weight, excess) in enumerate(zip(multipliers.tolist(), self.excesses(point).tolist(), strict=True)):
            G, total = G + weight * self.slope(i, point), total + weight * excess
        return float(total - inner(G, point.C) + lowest_bound(G, 1e-14))


class _Everything(BoundTerm):
    """Only says whether anything in the problem looks at the embedding."""

    def __init__(self, terms: Sequence[BoundTerm]) -> None:
        self.uses_embedding = any(term.uses_embedding for term in terms)

    def value(self, a: Array | None, C: Array) -> float:
        return 0.0

    def gradient(self, a: Array | None, C: Array) -> tuple[None, None]:
        return None, None


def _range(M: Array) -> tuple[float, float]:
    """The extreme eigenvalues of M: the least and the largest ⟨M, C⟩ on the spectraplex."""
    values = to_numpy(namespace(M).linalg.eigvalsh(M))
    return float(values[0]), float(values[-1])
