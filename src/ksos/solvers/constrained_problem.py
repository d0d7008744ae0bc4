"""min f(C) subject to g_i(C) ≤ 0 or = 0 over the spectraplex: the bound that any multipliers give,
the augmented Lagrangian, and the way back to the constraints from a point that nearly meets them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ksos.functionals import (
    Bound,
    BoundBall,
    BoundLinear,
    BoundTerm,
    Constraint,
    Objective,
    Pair,
    Point,
    ScaledSum,
    paired,
    plus,
    weighted_sum,
)
from ksos.ground.arrays import Array, flat, inner, like, namespace, norm, to_numpy, zeros
from ksos.solvers.spectraplex import center, lowest_bound

FEASIBLE = 1e-11  # a violation, in units of a constraint's size, that is rounding
_INSIDE = 1e-13  # inequalities are aimed this far inside, so that rounding does not carry out again
_MET = 1e-12  # violations that count as none, in the same units
_BALL_INSIDE = 1e-15  # the same for MMD balls, in distances: small balls have large multipliers
_BALL_MET = 1e-14  # violations of balls that count as none, in distances: rounding


@dataclass(frozen=True)
class Multipliers:
    """What bounds the optimum from below: a multiplier per constraint and, if there is one, the
    vector that it has for an MMD ball.

    On the ball ‖a − z‖ ≤ ε, ⟨v, a − z⟩ − ε‖v‖ ≤ 0 for any v of R^q. At the optimum v = w(a − z)/ε;
    near the boundary of a small ball the point knows its direction to far fewer digits than a
    solver that carries v itself.
    """

    weights: np.ndarray  # w_i, not negative for inequalities
    vectors: Mapping[int, np.ndarray] = field(
        default_factory=dict
    )  # v by the position of its constraint; |v| = w


@dataclass(frozen=True)
class BoundConstraint:
    """g ≤ 0 (or g = 0) on the spectraplex."""

    term: BoundTerm
    equality: bool
    size: float  # what counts as one unit of g

    # by how much the constraint is violated if g has this value, in units of g's size
    def excess(self, value: float) -> float:
        return (abs(value) if self.equality else max(value, 0.0)) / self.size

    @property
    def margins(self) -> tuple[float, float]:
        """How far inside to aim, and what violation counts as none, in units of the constraint's
        size.
        """
        if isinstance(self.term, BoundBall):
            return min(_INSIDE, _BALL_INSIDE / self.size), min(_MET, _BALL_MET / self.size)
        return 0.0 if self.equality else _INSIDE, _MET


class ConstrainedProblem:
    """An objective with constraints, each with its size: by how much it varies over the
    spectraplex, judged by the slope at the center.
    """

    def __init__(self, objective: Objective, constraints: Sequence[Constraint]) -> None:
        self.base, self.space, self.given = objective, objective.space, constraints
        terms = [objective.term, *(constraint.bind(self.space) for constraint in constraints)]
        self.frame = objective.with_term(
            ScaledSum([(1.0, Bound(term)) for term in terms]).bind(self.space)
        )
        """Their sum: it says whether anything looks at the embedding, and whether everything is
        convex.
        """
        self.middle = self.frame.point(center(self.space.rank, self.space.T))
        a, C = self.middle.a, self.middle.C
        ranges = [_range(self.frame.pull_back(term.gradient(a, C))) for term in terms]
        # by how much f varies, judged by its slope at the center
        self.size, *sizes = (high - low for low, high in ranges)
        self.constraints = []
        for term, constraint, size in zip(terms[1:], constraints, sizes, strict=True):
            # what only rounding varies, as everything does where there is only one density, is as
            # large as its values
            value = abs(term.value(a, C)) + abs(constraint.bound)
            size = size if size > 1e-12 * value else max(value, 1e-200)
            self.constraints.append(BoundConstraint(term, constraint.equality, size))
        self.sizes = np.array([constraint.size for constraint in self.constraints])

    # the augmented Lagrangian
    def augmented(self, multipliers: np.ndarray, penalties: np.ndarray) -> Objective:
        return self.base.with_term(Augmented(self, self.base.term, multipliers, penalties))

    # Σ_i (g_i/size_i)²/2 over the violated constraints: 0 exactly where all of them are met
    def infeasibility(self) -> Objective:
        nothing = BoundLinear(zeros((self.space.rank, self.space.rank), self.space.T))
        return self.base.with_term(Augmented(self, nothing, 0.0 * self.sizes, self.sizes**-2.0))

    # C with its embedding, where f or a constraint looks at it
    def point(self, C: Array) -> Point:
        return self.frame.point(C)

    # f
    def value(self, point: Point) -> float:
        return self.base.term.value(point.a, point.C)

    # g_i
    def excesses(self, point: Point) -> np.ndarray:
        return np.array(
            [constraint.term.value(point.a, point.C) for constraint in self.constraints]
        )

    # ∇g_i, r × r
    def slope(self, i: int, point: Point) -> Array:
        return self.frame.pull_back(self.constraints[i].term.gradient(point.a, point.C))

    # the least and the largest value of a linear g_i
    def attainable(self, i: int) -> tuple[float, float]:
        slope = self.slope(i, self.middle)
        low, high = _range(slope)
        offset = self.excesses(self.middle)[i] - inner(slope, self.middle.C)
        return offset + low, offset + high

    # the largest violation, in units of each constraint's size
    def violation(self, point: Point) -> float:
        return max(
            constraint.excess(value)
            for constraint, value in zip(self.constraints, self.excesses(point), strict=True)
        )

    def lower_bound(self, multipliers: Multipliers, point: Point) -> float:
        """L(C) − ⟨∇L(C), C⟩ + λ_min(∇L(C)) with L = f + Σ w_i g_i: at most the optimum, for any C
        and any multipliers of the right sign.

        A ball that has a vector v counts as the linear constraint ⟨v, A(C) − z⟩ ≤ ε‖v‖.
        """
        slope = self.frame.pull_back(self.base.term.gradient(point.a, point.C))
        return self._bound(self.value(point), slope, multipliers, point, 1e-10)

    def certified_violation(self, multipliers: Multipliers, point: Point) -> float:
        """The same for f = 0: if it is positive, no point meets the constraints (a proof by Farkas'
        lemma).
        """
        return self._bound(0.0, 0.0 * point.C, multipliers, point, 1e-14)

    # whether the certified violation is more than rounding
    def proven_empty(self, multipliers: Multipliers, point: Point) -> bool:
        return self.certified_violation(multipliers, point) > self.rounding(multipliers)

    def _bound(
        self, total: float, G: Array, multipliers: Multipliers, point: Point, slack: float
    ) -> float:
        for i, (weight, excess) in enumerate(
            zip(multipliers.weights.tolist(), self.excesses(point).tolist(), strict=True)
        ):
            if i in multipliers.vectors:
                v, ball = like(multipliers.vectors[i], self.space.T), self.constraints[i].term
                assert isinstance(ball, BoundBall)
                G = G + self.frame.pull_back((v, None))
                total += inner(v, point.a - ball.z) - ball.radius * norm(v)
            elif weight != 0.0:
                G = G + weight * self.slope(i, point)
                total += weight * excess
        return float(total - inner(G, point.C) + lowest_bound(G, slack))

    def uncertainty(self, multipliers: Multipliers, point: Point) -> float:
        """How far L = f + Σ w_i g_i may be off because of quadrature and of rounding in the
        integrals, estimated.
        """
        total = self.base.uncertainty(point)
        for i, (weight, constraint) in enumerate(
            zip(np.abs(multipliers.weights).tolist(), self.constraints, strict=True)
        ):
            if i in multipliers.vectors:
                total += self.frame.map.rounding(like(multipliers.vectors[i], self.space.T))
            elif weight > 0.0:
                total += weight * self.base.with_term(constraint.term).uncertainty(point)
        return total

    def rounding(self, multipliers: Multipliers) -> float:
        """What rounding in the constraints may change the Lagrangian by: no gap below it means
        anything.
        """
        # a distance is a root, whose rounding is that of a difference of vectors
        known = [
            2e-13 if isinstance(constraint.term, BoundBall) else 1e-15 * constraint.size
            for constraint in self.constraints
        ]
        return float(np.abs(multipliers.weights) @ np.array(known))

    def best_multipliers(
        self, known: Sequence[Multipliers], point: Point, G: Array
    ) -> tuple[Multipliers, float]:
        """Of the known multipliers and those that make ∇L·G = λG hold best at C = GGᵀ, those with
        the highest bound, and the bound.

        Near the optimum the latter are off by the square of what the point is off by, whatever the
        former have lost to rounding.
        """
        candidates = [*known, *self._fitted_multipliers(known[0].weights, point, G)]
        bounds = [self.lower_bound(candidate, point) for candidate in candidates]
        best = int(np.argmax(bounds))
        return candidates[best], bounds[best]

    def _fitted_multipliers(
        self, multipliers: np.ndarray, point: Point, G: Array
    ) -> list[Multipliers]:
        free = np.array([constraint.equality for constraint in self.constraints])
        active = np.flatnonzero(free | (multipliers > 0.0)).tolist()
        if not active:
            return []
        columns = [flat(self.slope(i, point) @ G) * (1.0 / float(self.sizes[i])) for i in active]
        columns.append(-flat(G))
        target = -flat(self.frame.pull_back(self.base.term.gradient(point.a, point.C)) @ G)
        goals = [inner(column, target) for column in columns]
        weights = np.linalg.lstsq(_gram(columns), goals, rcond=1e-14)[0][:-1]
        fitted = np.zeros_like(multipliers)
        fitted[active] = weights / self.sizes[active]
        return [Multipliers(np.where(free, fitted, np.maximum(fitted, 0.0)))]


# the extreme eigenvalues of M: the least and the largest ⟨M, C⟩ on the spectraplex
def _range(M: Array) -> tuple[float, float]:
    values = to_numpy(namespace(M).linalg.eigvalsh(M))
    return float(values[0]), float(values[-1])


class Augmented(BoundTerm):
    r"""f + Σ_i ψ_i(g_i), ψ(g) = νg + βg²/2 for an equality and (max(0, ν + βg)² − ν²)/(2β) for an
    inequality.

    Convex wherever f and the g_i are. Its gradient at C is that of the Lagrangian f + Σ w_i g_i
    with the multipliers w = ψ'(g(C)): what certifies the one certifies the other.
    """

    def __init__(
        self,
        problem: ConstrainedProblem,
        term: BoundTerm,
        multipliers: np.ndarray,
        penalties: np.ndarray,
    ) -> None:
        self.term, self.multipliers, self.penalties = term, multipliers, penalties
        self.terms = [constraint.term for constraint in problem.constraints]
        self.free = np.array([constraint.equality for constraint in problem.constraints])
        self.frame, whole = problem.frame, problem.frame.term
        self.uses_embedding, self.convex = whole.uses_embedding, whole.convex
        self.twice_differentiable = whole.twice_differentiable

    # w = ψ'(g(C)): the multipliers that the point stands for
    def updated(self, a: Array | None, C: Array) -> np.ndarray:
        values = np.array([term.value(a, C) for term in self.terms])
        w = self.multipliers + self.penalties * values
        return np.where(self.free, w, np.maximum(w, 0.0))

    # each g_i with its multiplier w_i and, if it is active, with ψ'' = β
    def _parts(self, a: Array | None, C: Array) -> Iterator[tuple[float, float, BoundTerm]]:
        w = self.updated(a, C)
        active = np.where((w > 0.0) | self.free, self.penalties, 0.0)
        return zip(w.tolist(), active.tolist(), self.terms, strict=True)

    def value(self, a: Array | None, C: Array) -> float:
        w, known = self.updated(a, C), self.multipliers
        return self.term.value(a, C) + float(
            np.sum((w - known) * (w + known) / (2.0 * self.penalties))
        )

    def gradient(self, a: Array | None, C: Array) -> Pair:
        parts = ((weight, term.gradient(a, C)) for weight, _, term in self._parts(a, C))
        return weighted_sum(parts, self.term.gradient(a, C))

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        """Σ w_i g_i'' + f'' and, along one direction, the rank-one parts βg'g'ᵀ; for several they
        are in :meth:`factor_hessian`.
        """
        total = self.term.hessian(a, C, da, dC)
        for weight, penalty, term in self._parts(a, C):
            own = term.hessian(a, C, da, dC) if weight != 0.0 else (None, None)
            if total is None or own is None:
                return None
            total = weighted_sum([(weight, own)], total)
            if penalty > 0.0 and (da is None or da.ndim == 1):
                gradient = term.gradient(a, C)
                total = weighted_sum([(penalty * paired(gradient, da, dC), gradient)], total)
        return total

    # those of f and the g_i, and the rank-one parts 4β(∇g·F)(∇g·F)ᵀ
    def factor_hessian(self, F: Array) -> Array | None:
        point, total = self.frame.point(F @ F.T), self.term.factor_hessian(F)
        for weight, penalty, term in self._parts(point.a, point.C):
            if weight != 0.0:
                total = plus(total, weight, term.factor_hessian(F))
            if penalty > 0.0:
                N = self.frame.pull_back(term.gradient(point.a, point.C)) @ F
                total = plus(total, 4.0 * penalty, N[:, :, None, None] * N[None, None, :, :])
        return total


def _gram(rows: Sequence[Array]) -> np.ndarray:
    return np.array([[inner(one, other) for other in rows] for one in rows])


def restored(problem: ConstrainedProblem, F: Array) -> Array | None:
    """A factor near F with tr FFᵀ = 1 that meets the constraints to 1e-12 of their sizes; None if
    Newton's method finds none.

    C = FFᵀ stays positive semi-definite whatever the step. Each step is the shortest E with ⟨2∇g_i
    F, E⟩ = −g_i for the constraints that are, or have been, violated, and ⟨F, E⟩ = 0.
    """
    constraints = problem.constraints
    held: set[int] = {i for i, constraint in enumerate(constraints) if constraint.equality}
    for _ in range(25):  # Newton's method needs a handful
        F = F / norm(F)
        point = problem.point(F @ F.T)
        values = problem.excesses(point)
        amounts = [
            constraint.excess(value) for constraint, value in zip(constraints, values, strict=True)
        ]
        met = (
            amount <= constraint.margins[1]
            for amount, constraint in zip(amounts, constraints, strict=True)
        )
        if all(met):
            return F
        held |= {i for i, amount in enumerate(amounts) if amount > 0.0}
        rows, goals = [flat(F)], [0.0]
        for i in sorted(held):
            rows.append(flat(problem.slope(i, point) @ F) * (2.0 / constraints[i].size))
            goals.append(-values[i] / constraints[i].size - constraints[i].margins[0])
        # lower eigenvalues belong to constraints that repeat each other
        weights = np.linalg.lstsq(_gram(rows), goals, rcond=1e-15)[0].tolist()
        step = sum(weight * row for weight, row in zip(weights, rows, strict=True))
        if not norm(step) <= 0.5:  # of the whole factor: too far for a linear model
            break
        F = F + namespace(F).reshape(step, F.shape)
    return None
