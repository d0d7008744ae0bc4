"""ksos.decide: the best decision against the worst distribution of a ball, bounded from both sides.

For a loss ℓ(θ, x) that is convex in θ, data μ̂ = Σ a_i δ_{x_i} and a ball of radius ε, strong
duality gives

    min_θ max_μ E_μ ℓ(θ,·) = min_{θ, t, g ∈ H} t + Σ_i a_i g(x_i) + ε‖g‖
                      such that ℓ(θ, x) ≤ t + g(x) for all x of the domain.

Asked at finitely many points, with g in the span of kernels, this is one conic problem.

* **Lower bound.** The multipliers of its constraints are an adversary, a distribution on these
  points. It is mixed with the data until its exact MMD is at most ε. Then min_θ E_μ ℓ(θ,·) is a
  bound.
* **Upper bound.** For any θ and g, sup_x(ℓ(θ,·) − g) + Σ_i a_i g(x_i) + ε‖g‖ bounds the risk of
  θ. The supremum is proven by branch and bound, or searched for.

The places where ℓ(θ,·) − g is largest join the points, until the bounds meet. A risk in a
constraint is relaxed on finitely many points, so θ counts as feasible only when the upper bound of
that risk meets the constraint: until then the constraint is tightened.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from ksos.ground import Run, as_points, as_positive, one_blas_thread, to_numpy
from ksos.kernels.roots import choose_pivots
from ksos.measures import Box
from ksos.observables import (
    KernelFunction,
    Observable,
    climbed,
    enclosure,
    proven_supremum,
)
from ksos.quadrature import sobol
from ksos.risk import Risk, cvxpy, expectation, parts_of, restore
from ksos.robust.ball import Ball, require_ball
from ksos.robust.bounds import ever_larger, grows, projected
from ksos.robust.worst_case import WorstCase, worst_case
from ksos.space import region, scattered

_SPAN_TOL = 1e-8  # squared residual of features: an error of 1e-4·‖g‖ is small beside a gap of 1%
_EXACT_SPAN_TOL = 1e-13  # the same on finitely many atoms, where nothing else limits the gap
_MOST_PIVOTS = 1000  # a conic solver needs seconds for a dense problem of this size
# Points at the beginning by the number of features: the search adds what is missing, at a round of
# 0.05 to 1 s each (benchmarks/robust/decisions.py).
_FIRST_POINTS = {1: 32, 2: 64, 3: 128}
_FIRST_OTHERWISE = 256  # likewise
_MOST_DATA = 300  # samples among the first points: each is a row of a dense conic problem
_MOST_ROUNDS = 60  # a round adds up to a dozen points: more is beyond a dense conic solver
_NEW_POINTS = 12  # a round, see above
_APART = 0.15  # bandwidths between new points: closer ones say the same about g
_SEARCHED = 1 << 11  # points of a search in a round, a power of two as Sobol' points need
_SEARCHED_LAST = 1 << 15  # of the search that an estimate rests on: 0.1 to 0.3 s
_STARTS = 48  # of these, the best begin a search along the axes: about as long as their values take
_STARTS_LAST = 256  # likewise
_MOST_ENTRIES = 6e8  # kernel values of a branch and bound: about 5 s. What needs more is estimated.
_MOST_CELLS = 2_000_000  # likewise: arrays of so many rows
_SEARCH_SHARE = 0.6  # of the gap: the rest is what branch and bound need not resolve
_ROOM = 0.8  # of what is left of the gap: the tolerance of branch and bound
_SLACK = 0.15  # of the gap: what all constraints may cost by being tightened
_SMALL = 1e-3  # of the gap: violations that are not worth a point
_NEGLIGIBLE = 1e-9  # of the weights of an adversary: rounding of an interior point
_SOLVED = 1e-8  # the absolute tolerance of conic solvers: no gap is closer for sure
_ROUNDING = 1e-7  # of a loss: rounding of a conic solver

STATUSES = {
    "solved": "the bounds are as close as requested",
    "max_iter": "the bounds are not as close as requested; raise rtol, or bound the domain tighter",
    "time_limit": "the time is over; raise time_limit or rtol",
    "interrupted": "interrupted",
    "numerical_error": "the conic solver failed; pass another one as solver, or rescale the data",
}


class Atoms(NamedTuple):
    """A distribution on finitely many points.

    >>> Atoms(np.zeros((1, 2)), np.ones(1)).weights.tolist()
    [1.0]
    """

    points: np.ndarray
    """(m, d)."""
    weights: np.ndarray
    """(m,), not negative, sum 1."""


@dataclass(frozen=True, repr=False)
class Decision:
    """The result of :func:`ksos.decide`. The CVXPY variables hold the decision.

    Attributes
    ----------
    value : float
        The risk of the decision under :attr:`adversary`: what a distribution that was found attains
        against it. It lies between the two bounds.
    lower_bound : float
        No decision has a smaller worst-case risk: a bound of min_θ E ℓ(θ,·) under an adversary
        whose exact MMD is at most the radius. It holds up to the accuracy of the conic solver.
    upper_bound : float
        No distribution of the ball gives this decision a larger risk. Infinite as long as the
        constraints on risks are not certified.
    upper_bound_kind : str
        "rigorous", or "estimate" if a supremum was searched for from many starts and not proven.
    status : str
        "solved", "max_iter", "time_limit", "interrupted" or "numerical_error".
    adversary : Atoms
        ``points`` and ``weights`` of the adversary of the lower bound.
    limits : tuple of float
        For each risk in ``subject_to``, an upper bound of risk − bound at the decision: at most 0
        if it is certified. They are of the same kind as the upper bound.
    proven_bound : float
        The best bound that is proven: upper_bound if that is rigorous, else usually a larger one.
    loss : observable
        x ↦ ℓ(θ, x) at the decision.
    dual_function : KernelFunction or None
        g of the RKHS. None on a Discrete domain.
    dual_constant : float
        dual_constant + g majorizes the loss on the domain, and the upper bound is dual_constant +
        E g(data) + radius·‖g‖.
    ball : Ball
    n_rounds, n_points : int
        Conic problems solved, and the points of the last one.
    time : float
        Seconds.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import ksos
    >>> ball = ksos.Ball([[1.0], [2.0], [4.0]], 0.1, domain="samples")
    >>> order = cp.Variable(nonneg=True)
    >>> found = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, rtol=1e-6)
    >>> found.status, found.upper_bound_kind, ball.contains(*found.adversary)
    ('solved', 'rigorous', True)
    """

    value: float
    lower_bound: float
    upper_bound: float
    upper_bound_kind: str
    status: str
    adversary: Atoms
    limits: tuple[float, ...]
    proven_bound: float
    loss: Observable
    dual_function: KernelFunction | None
    dual_constant: float
    ball: Ball
    n_rounds: int
    n_points: int
    time: float

    @property
    def gap(self) -> float:
        """upper_bound − lower_bound."""
        return self.upper_bound - self.lower_bound

    @property
    def message(self) -> str:
        """The status and the bounds in a sentence."""
        text = (
            f"{self.status}, gap {self.gap:.2e}: {STATUSES[self.status]}; the worst-case risk of"
            f" the best decision lies between {self.lower_bound:.6g} and {self.upper_bound:.6g}"
            f" ({self.upper_bound_kind})"
        )
        if self.upper_bound_kind == "estimate" and math.isfinite(self.proven_bound):
            text += f", proven is {self.proven_bound:.6g}"
        if math.isinf(self.upper_bound):
            text += "; the constraints on risks are not certified"
        return text

    def __repr__(self) -> str:
        return f"Decision: {self.message}"

    def worst_case(self, **options: Any) -> WorstCase:
        """The worst smooth density for this decision, by :func:`ksos.worst_case` with its
        ``options``.

        Its value is at most that of atoms. The difference to :attr:`upper_bound` is what smoothness
        costs the adversary.
        """
        worst = worst_case(self.loss, self.ball, **options)
        if worst.upper_bound is None or self.upper_bound < worst.upper_bound:
            kind = self.upper_bound_kind
            worst = replace(worst, upper_bound=self.upper_bound, upper_bound_kind=kind)
        return worst


def decide(
    risk: Any,
    ball: Ball,
    subject_to: Any = (),
    *,
    rtol: float = 1e-2,
    time_limit: float | None = None,
    solver: str | None = None,
    rng: Any = 0,
    verbose: int = 0,
) -> Decision:
    r"""The decision with the smallest worst-case risk over the distributions of a ball.

    The decision is made of CVXPY variables, under constraints of your own, and the answer is
    bounded from both sides over all distributions of the ball. It needs the extra ``cvx``.

    Parameters
    ----------
    risk : Risk or CVXPY expression
        What to minimize, from :mod:`ksos.risk`, or a cost of the decision alone.
    ball : Ball
        The distributions, see :class:`ksos.Ball`. Its domain must hold the data. An unbounded loss
        needs a bounded domain. On "samples" or another Discrete domain the answer is exact.
    subject_to : list
        CVXPY constraints of the decision, and risks with a bound, such as
        ``ksos.risk.cvar(f, 0.05) <= 1.0`` or ``ksos.risk.chance(g, 0.1)``, which hold for every
        distribution of the ball.
    rtol : float, default=1e-2
        Requested gap between the bounds, relative to the larger of the absolute value of the risk
        and the standard deviation of the loss over the data.
    time_limit : float, optional
        Seconds for the call, which ends at most one conic problem later.
    solver : str, optional
        A conic solver of CVXPY. Default: "CLARABEL".
    rng : seed or Generator, default=0
        Seed of the points that are searched.
    verbose : int, default=0
        1 prints the bounds of each round.

    Returns
    -------
    Decision

    Warns
    -----
    ConvergenceWarning
        If the gap is larger than requested, with the reason and a suggested fix. The variables hold
        the best decision all the same.

    Examples
    --------
    An order against demand that may differ from the data, with 4 lost per missing item and 1 per
    item left over:

    >>> import cvxpy as cp
    >>> import ksos
    >>> from ksos.measures import Box
    >>> demand = np.random.default_rng(0).lognormal(3.0, 0.4, size=(60, 1))
    >>> ball = ksos.Ball(demand, 0.05, domain=Box([0.0], [80.0]))
    >>> order = cp.Variable(nonneg=True)
    >>> decision = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, [order <= 60.0])
    >>> decision.status, decision.upper_bound_kind, decision.gap < 0.01 * decision.upper_bound
    ('solved', 'rigorous', True)
    """
    cp = cvxpy()
    if isinstance(cost := risk, cp.Expression):
        risk = expectation(lambda P: cost)
    if not isinstance(risk, Risk):
        raise TypeError(
            "risk must come from ksos.risk, such as ksos.risk.expectation(lambda P: -P @ x); got"
            f" {risk!r}"
        )
    plain, limits = parts_of(subject_to)
    require_ball(ball)
    if math.isinf(ball.radius):
        raise ValueError("decide needs a ball of finite radius; pass a number to ksos.Ball")
    if not ball.with_radius(math.inf).contains(ball.embedding):
        raise ValueError(
            f"the domain {ball.domain!r} does not hold all of the data; pass Ball(…, domain=) with"
            " a larger domain, or drop the samples outside"
        )
    rtol = as_positive(rtol, "rtol")
    if solver is not None and solver not in cp.installed_solvers():
        raise ValueError(f"solver must be one of {cp.installed_solvers()}; got {solver!r}")
    with Run(time_limit, "decide", "setting up", verbose=verbose), one_blas_thread(0):
        risks = [risk, *(limit.risk for limit in limits)]
        found = _Search(risks, plain, ball, rtol, solver or "CLARABEL", rng).run()
    if found.status in ("max_iter", "time_limit", "numerical_error"):
        warnings.warn(f"decide: {found.message}", ConvergenceWarning, stacklevel=2)
    return found


@dataclass
class _Certificate:
    """A bound of one risk at one decision: sup(ℓ − g) + level, with level = Σ_i a_i g(x_i) + ε‖g‖.

    The supremum is at least ``attained``, at the first of the ``places``, and at most ``proven``.
    """

    loss: Observable
    g: KernelFunction | None
    level: float
    attained: float
    proven: float
    places: np.ndarray
    t: float
    rigorous: bool
    """Whether branch and bound has ended: then the bound is the proven one."""

    @property
    def bound(self) -> float:
        """The bound of the risk: proven, or else an estimate."""
        return self.level + (self.proven if self.rigorous else self.attained)

    def look(
        self, ball: Ball, box: Box, searched: int, starts: int, rng: np.random.Generator
    ) -> None:
        """Search for the supremum from many starts."""
        assert self.g is not None
        difference = self.loss - self.g
        unit = sobol(searched, box.low.shape[0], rng)
        X = _on_levels(ball, box, box.low + (box.high - box.low) * unit)
        X = np.concatenate([self.places, X])
        highest = np.argsort(-difference(X))[:starts]
        X, values = climbed(difference, box, X[highest], list(ball.levels))
        order = np.argsort(-values)
        self.places = X[order]
        self.attained = max(self.attained, float(values[order[0]]))

    def prove(self, ball: Ball, box: Box, tol: float, lipschitz: float | None) -> None:
        """Branch and bound, until the supremum is known to ``tol`` or there are too many cells."""
        assert self.g is not None
        bounds = enclosure(self.loss - self.g, lipschitz)
        if bounds is None or tol <= 0.0 or math.isfinite(self.proven):
            return
        slices = [
            box.slice(dict(zip(ball.levels, values, strict=True)))
            for values in itertools.product(*ball.levels.values())
        ]
        cells = min(_MOST_CELLS, _MOST_ENTRIES / self.g.points.shape[0]) / len(slices)
        found = [proven_supremum(bounds, part, tol, int(cells)) for part in slices]
        self.attained = max(self.attained, *(part.attained for part in found))
        self.proven = max(part.bound for part in found)
        self.rigorous = self.proven <= self.attained + tol
        self.places = np.concatenate([[part.at for part in found], self.places])


@dataclass(eq=False)
class _Candidate:
    """A decision: the values of all variables, and the bounds of the risks, the goal first."""

    values: list[Any]
    certificates: list[_Certificate]

    @property
    def bound(self) -> float:
        return self.certificates[0].bound

    @property
    def feasible(self) -> bool:
        return all(limit.bound <= 0.0 for limit in self.certificates[1:])


def _on_levels(ball: Ball, box: Box, points: np.ndarray) -> np.ndarray:
    """Points of the box, with the columns that are discrete moved to levels, in equal shares."""
    for k, values in ball.levels.items():
        share = (points[:, k] - box.low[k]) / (box.high[k] - box.low[k])
        points[:, k] = values[np.minimum(share * len(values), len(values) - 1).astype(int)]
    return points


def _features(
    ball: Ball, points: np.ndarray, tol: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """F (n, q), the features of points on pivots among them and the data, the mean feature of the
    data, the pivots, and the triangular R with K = RᵀR on them.
    """
    n, both = points.shape[0], np.concatenate([points, ball.points])
    most = min(both.shape[0], _MOST_PIVOTS)
    pivots = choose_pivots(
        lambda i: ball.kernel(both, both[i : i + 1])[:, 0], np.ones(both.shape[0]), tol, most
    )
    # a pivot of which rounding has left nothing has a row of zeros
    kept = np.diagonal(pivots.rows[:, pivots.chosen]) > 0.0
    rows, chosen = pivots.rows[kept], np.array(pivots.chosen)[kept]
    return rows[:, :n].T, rows[:, n:] @ ball.weights, both[chosen], rows[:, chosen]


def support_function(ball: Ball, points: Any = None) -> Any:
    """:meth:`ksos.Ball.support_function`."""
    cp = cvxpy()
    atoms = ball.domain.atoms
    if points is None:
        points = ball.points if atoms is None else atoms.points
    points = to_numpy(as_points(points, "points"))
    F, mean, _, _ = _features(ball, points, _EXACT_SPAN_TOL)
    mu = cp.Variable(points.shape[0])
    near = cp.norm(F.T @ mu - mean) <= ball.radius
    return cp.suppfunc(mu, [mu >= 0.0, cp.sum(mu) == 1.0, near])


class _Majorant:
    """t + g ≥ ℓ(θ, ·) at growing points, for one risk: its part of the conic problem."""

    def __init__(self, risk: Risk, ball: Ball, box: Box, points: np.ndarray, finite: bool) -> None:
        self.risk, self.ball, self.box, self.points, self.finite = risk, ball, box, points, finite
        self.price = 1.0

    def pose(self) -> None:
        """Variables t and g for the points that there are now."""
        cp, ball = self.risk.cp, self.ball
        tol = _EXACT_SPAN_TOL if self.finite else _SPAN_TOL
        self.F, self.mean, self.centers, self.root = _features(ball, self.points, tol)
        self.c, self.t = cp.Variable(self.F.shape[1]), cp.Variable()
        level = self.mean @ self.c + ball.radius * cp.norm(self.c)
        if ball.radius == 0.0:
            # no norm keeps g finite: the data are the only points, and g is the loss there
            self.F, self.mean, self.t = np.eye(self.points.shape[0]), ball.weights, 0.0
            self.c = cp.Variable(self.points.shape[0])
            level = self.mean @ self.c
        self.worst = self.t + level
        self.losses = self.risk.at(self.points)
        self.majorizes = self.losses <= self.t + self.F @ self.c

    def certificate(self) -> _Certificate:
        """What g proves for the decision that the variables hold."""
        c, radius, data = self.c.value, self.ball.radius, self.ball
        losses = np.asarray(self.losses.value)
        low, high = self.box.low, self.box.high
        loss = self.risk.observable(0.5 * (low + high), 0.5 * (high - low))
        _require_pointwise(self.risk, loss(self.points), losses)
        norm, g = float(np.linalg.norm(c)), None
        level = float(self.mean @ c) + radius * norm
        excess = losses - self.F @ c
        if not self.finite:
            weights = solve_triangular(self.root, c)
            g = KernelFunction(self.centers, weights, kernel=data.kernel)
            square = float(weights @ data.kernel(self.centers) @ weights)
            norm = max(norm, math.sqrt(max(square, 0.0)))
            level = float(data.weights @ g(data.points)) + radius * norm
            excess = loss(self.points) - g(self.points)
        top, where = float(excess.max()), self.points[np.argsort(-excess)]
        proven = top if self.finite else math.inf
        t = 0.0 if self.ball.radius == 0.0 else float(self.t.value)
        return _Certificate(loss, g, level, top, proven, where, t, self.finite)

    def spread(self) -> float:
        """The standard deviation of the loss over the data."""
        values = self.risk.values(self.ball.points)
        mean = float(self.ball.weights @ values)
        return math.sqrt(max(float(self.ball.weights @ (values - mean) ** 2), 0.0))

    def multipliers(self) -> np.ndarray:
        """Those of the points. Their sum is the price of the bound of the risk."""
        found = np.maximum(np.asarray(self.majorizes.dual_value, dtype=np.float64), 0.0)
        self.price = float(found.sum())
        return found

    def extend(self, found: _Certificate, least: float) -> bool:
        """Whether places where the loss exceeds t + g by more than ``least`` were added."""
        if found.g is None:
            return False
        top = found.loss(found.places) - found.g(found.places)
        places = found.places[np.argsort(-top)][: int(np.sum(top > found.t + least))]
        sigma, new = self.ball.kernel.sigma_vector(places.shape[1]), np.empty((0, places.shape[1]))
        for place in places:
            apart = np.all(np.linalg.norm((new - place) / sigma, axis=1) > _APART)
            if apart and not np.any(np.all(self.points == place, axis=1)):
                new = np.vstack([new, place])
            if new.shape[0] == _NEW_POINTS:
                break
        self.points = np.concatenate([self.points, new])
        return new.shape[0] > 0


def _require_pointwise(risk: Risk, one: np.ndarray, other: np.ndarray) -> None:
    if np.max(np.abs(one - other)) > 1e-6 * (1.0 + float(np.max(np.abs(other)))):
        raise ValueError(
            f"the loss of {risk.name} at a point depends on the other points; return one expression"
            " per row of P that depends on that row alone"
        )


class _Search:
    """The decision, the points of each risk, and the best bounds so far."""

    def __init__(
        self,
        risks: Sequence[Risk],
        plain: list[Any],
        ball: Ball,
        rtol: float,
        solver: str,
        rng: Any,
    ) -> None:
        self.cp, self.plain, self.ball, self.rtol, self.solver = cvxpy(), plain, ball, rtol, solver
        self.rng = np.random.default_rng(rng)
        self.box = region(ball.domain, ball.points, ball.kernel.sigma_vector(ball.n_features))
        points, finite = self._first_points()
        self.all = [_Majorant(risk, ball, self.box, points, finite) for risk in risks]
        self.goal, *self.limits = self.all
        some = [self.cp.sum(one.risk.at(ball.points[:1])) for one in self.all]
        self.variables = self.cp.Problem(self.cp.Minimize(sum(some)), plain).variables()
        for variable in self.variables:
            if variable.attributes["boolean"] or variable.attributes["integer"]:
                raise ValueError(
                    f"variable {variable.name()} is discrete, but bounds by duality need"
                    " continuous decisions; relax it, or fix its value"
                )
        self._require_pointwise()
        self.anchor = self._anchor()
        self.adversary, self.lower, self.wanted = self.anchor, -math.inf, 0.0
        self.margins = [0.0 for _ in self.limits]
        self.best: _Candidate | None = None
        self.last: _Candidate | None = None

    def _require_pointwise(self) -> None:
        """Raise if a loss of two points differs from those of each, at some values."""
        rng, values = np.random.default_rng(0), [variable.value for variable in self.variables]
        for scale, one in itertools.product((1.0, 1e3), self.all):
            for variable in self.variables:
                variable.save_value(rng.normal(scale=scale, size=variable.shape))
            pair = one.points[[0, -1]]
            alone = np.concatenate([one.risk.values(pair[:1]), one.risk.values(pair[1:])])
            _require_pointwise(one.risk, alone, one.risk.values(pair))
        restore(self.variables, values)

    def _first_points(self) -> tuple[np.ndarray, bool]:
        """Samples, points across the domain and its corners; or all points of the domain, if they
        are finitely many.
        """
        ball = self.ball
        if ball.radius == 0.0 or ball.domain.atoms is not None:
            atoms = ball.domain.atoms
            return ball.points if ball.radius == 0.0 or atoms is None else atoms.points, True
        n = ball.points.shape[0]
        some = self.rng.choice(n, min(n, _MOST_DATA), replace=False)
        # far away, where g vanishes, an adversary may put mass as well
        parts = [self.box] if ball.domain.bounded else ever_larger(ball.domain, self.box)
        count = _FIRST_POINTS.get(ball.n_features, _FIRST_OTHERWISE)
        across = [_on_levels(ball, self.box, scattered(part, count)) for part in parts]
        return np.unique(np.concatenate([ball.points[np.sort(some)], *across]), axis=0), False

    def _anchor(self) -> Atoms:
        """A distribution in the ball: the data, or the one on the points that is nearest to data
        with signed weights.
        """
        ball = self.ball
        if ball.is_distribution:
            return Atoms(ball.points, ball.weights)
        F, mean, _, _ = _features(ball, self.goal.points, _SPAN_TOL)
        nearest = _normalized(self.goal.points, projected(F.T, mean))
        least = ball.mmd(*nearest)
        if least > ball.radius:
            raise ValueError(
                f"the ball is empty: the weights of the data are signed, and the nearest"
                f" distribution found has MMD {least:.4g}; take a larger radius"
            )
        return nearest

    def run(self) -> Decision:
        """Rounds until the bounds meet, then the proof."""
        run, status, rounds = Run.current(), "max_iter", 0
        try:
            while rounds < _MOST_ROUNDS:
                rounds += 1
                if not self._solve_relaxation():
                    status = "numerical_error"
                    break
                candidate = self._judge()
                self._raise_lower_bound(candidate)
                run.report("decide", f"round {rounds}: {self.lower:.6g} to {self._upper():.6g}")
                if self._close_enough(_SEARCH_SHARE) and self._certify():
                    status = "solved"
                    break
                if run.over:
                    status = "time_limit"
                    break
                if not self._extend(candidate):
                    # no place violates any more: what is left is the span of g, or the solver
                    status = "solved" if self._close_enough(1.0) and self._certify() else status
                    break
        except KeyboardInterrupt:
            run.interrupt()
            if self.last is None:
                raise
            status = "interrupted"
        if self.last is None:
            raise RuntimeError(
                f"the conic solver {self.solver} failed on the first problem; pass another one as"
                " solver, or rescale data and loss to about 1"
            )
        return run.complete(lambda: self._decision(status, rounds))

    def _solve(self, objective: Any, constraints: list[Any]) -> str:
        """The status in CVXPY's words; "failed" if the solver raises."""
        # SCS needs a constraint, whatever it says
        asked = [*self.plain, *constraints] or [self.cp.Variable() == 0.0]
        problem = self.cp.Problem(self.cp.Minimize(objective), asked)
        try:
            with warnings.catch_warnings():
                # inaccurate solutions show in the bounds
                warnings.simplefilter("ignore")
                problem.solve(solver=self.solver)
        except self.cp.SolverError:
            return "failed"
        self.optimum = problem.value
        return str(problem.status).removesuffix("_inaccurate")

    def _solve_relaxation(self) -> bool:
        """θ, t and g against the points."""
        for one in self.all:
            one.pose()
        asked = [one.majorizes for one in self.all]
        tight = [one.worst <= -least for one, least in zip(self.limits, self.margins, strict=True)]
        status = self._solve(self.goal.worst, [*asked, *tight])
        if status == "infeasible" and any(self.margins):
            self.margins = [0.0 for _ in self.limits]
            return self._solve_relaxation()
        if status == "infeasible":
            self._raise_infeasible()
        if status == "unbounded":
            raise ValueError(
                "the risk has no minimum: it falls without end; bound the decision in subject_to"
            )
        return status == "optimal"

    def _raise_infeasible(self) -> None:
        if self._solve(self.cp.Constant(0.0), []) == "infeasible":
            raise ValueError(
                "no decision meets the constraints of CVXPY in subject_to; loosen one of them"
            )
        names = ", ".join(one.risk.name for one in self.limits)
        raise ValueError(
            f"no decision keeps the risks in subject_to ({names}) below their bounds for every"
            " distribution of the ball, which finitely many points prove; loosen a bound, or take a"
            " smaller radius"
        )

    def _judge(self) -> _Candidate:
        """The decision of this round, with bounds as far as a search knows. The best one is kept,
        and constraints that are broken are tightened.
        """
        certificates = [one.certificate() for one in self.all]
        candidate = _Candidate([variable.value for variable in self.variables], certificates)
        for certificate in certificates:
            if not certificate.rigorous:
                self._require_bounded(certificate.loss)
                certificate.look(self.ball, self.box, _SEARCHED, _STARTS, self.rng)
        scale = max(abs(candidate.bound), self.goal.spread())
        self.wanted = max(self.rtol * scale, _SOLVED)
        for k, (one, limit) in enumerate(zip(self.limits, certificates[1:], strict=True)):
            one.multipliers()
            if limit.bound > 0.0 or self.margins[k] > 0.0:
                violation = max(limit.bound - float(one.worst.value), 0.0)
                slack = _ROUNDING * one.spread() + _SOLVED
                if not one.finite:
                    # branch and bound needs room, and this one costs little
                    cost = _SLACK * self.wanted / max(one.price, _NEGLIGIBLE)
                    slack += min(cost / len(self.limits), 0.1 * one.spread())
                self.margins[k] = 1.5 * violation + slack
        if candidate.feasible and (self.best is None or candidate.bound < self.best.bound):
            self.best = candidate
        self.last = candidate
        return candidate

    def _require_bounded(self, loss: Observable) -> None:
        """Raise if a loss on an unbounded domain grows as fast in ever larger boxes."""
        if not self.ball.domain.bounded and grows(loss, self.ball.domain, self.box):
            low, high = (np.round(side, 6).tolist() for side in (self.box.low, self.box.high))
            raise ValueError(
                f"the loss grows without bound on {self.ball.domain!r}, so that its worst case is"
                f" infinite; pass Ball(…, domain=Box(low, high)), such as Box({low}, {high})"
            )

    def _upper(self) -> float:
        return math.inf if self.best is None else self.best.bound

    def _close_enough(self, share: float) -> bool:
        return self._upper() - self.lower <= share * self.wanted

    def _raise_lower_bound(self, candidate: _Candidate) -> None:
        """min_θ E_μ ℓ(θ,·) for the adversaries of this round."""
        found = [self._in_the_ball(one) for one in self.all]
        risks = [
            atoms.weights @ one.risk.at(atoms.points)
            for one, atoms in zip(self.all, found, strict=True)
        ]
        status = self._solve(risks[0], [risk <= 0.0 for risk in risks[1:]])
        if status == "optimal" and self.optimum > self.lower:
            self.lower, self.adversary = float(self.optimum), found[0]
        restore(self.variables, candidate.values)

    def _in_the_ball(self, one: _Majorant) -> Atoms:
        """The multipliers of a risk as a distribution, mixed with the data until its exact MMD is
        at most the radius.
        """
        multipliers, ball = one.multipliers(), self.ball
        if one.price <= _NEGLIGIBLE or ball.radius == 0.0:
            return self.anchor
        mu = found = _normalized(one.points, multipliers)
        near, far = ball.mmd(*self.anchor), ball.mmd(*mu)
        # the MMD is convex along a segment, so the mixture is in the ball up to rounding
        share = min((ball.radius - near) / (far - near), 1.0) if far > near else 1.0
        while ball.mmd(*found) > ball.radius and share > 0.0:
            share *= 1.0 - _ROUNDING
            points = np.concatenate([mu.points, self.anchor.points])
            weights = np.concatenate([share * mu.weights, (1.0 - share) * self.anchor.weights])
            points, places = np.unique(points, axis=0, return_inverse=True)
            found = Atoms(points, np.bincount(places.ravel(), weights=weights))
        return found

    def _certify(self, least: float = 0.0) -> bool:
        """Whether the bounds of the best decision are as close as requested, after a thorough
        search and branch and bound, to at ``least`` such a tolerance for the goal.
        """
        best, goal = self.best, self.lower + self.wanted
        if best is None:
            return False
        for k, (one, found) in enumerate(zip(self.all, best.certificates, strict=True)):
            if found.rigorous:
                continue
            Run.current().tell("proving the bound")
            found.look(self.ball, self.box, _SEARCHED_LAST, _STARTS_LAST, self.rng)
            room = (0.0 if k else goal) - found.level - found.attained
            room = room if k else max(room, least)
            if room <= 0.0:
                break
            if self.ball.domain.region is not None:
                # not all of the room: branch and bound may find a place that is a little higher
                steep = one.risk.lipschitz  # a number, or an expression of the decision
                found.prove(self.ball, self.box, _ROOM * room, getattr(steep, "value", steep))
        if not best.feasible:
            self.best = None
        return self._close_enough(1.0)

    def _extend(self, candidate: _Candidate) -> bool:
        """Whether points were added where the losses exceed their majorants."""
        least = _SMALL * self.wanted
        judged = [candidate] if self.best in (None, candidate) else [candidate, self.best]
        added = [
            one.extend(found, least)
            for some in judged
            for one, found in zip(self.all, some.certificates, strict=True)
        ]
        # else a tightened constraint alone makes the next round another one
        return any(added) or not candidate.feasible

    def _decision(self, status: str, rounds: int) -> Decision:
        self._certify(least=(1.0 - _SEARCH_SHARE) * self.wanted)
        candidate = self.best or self.last
        assert candidate is not None
        restore(self.variables, candidate.values)
        goal, *limits = candidate.certificates
        upper = math.inf if self.best is None else goal.bound
        mu, rigorous = self.adversary, all(found.rigorous for found in candidate.certificates)
        value = min(float(mu.weights @ goal.loss(mu.points)), upper)
        return Decision(
            value=value,
            # an optimum found by a conic solver is above the minimum by its tolerance
            lower_bound=min(self.lower, value),
            upper_bound=upper,
            upper_bound_kind="rigorous" if rigorous else "estimate",
            status="interrupted" if Run.current().interrupted else status,
            adversary=mu,
            limits=tuple(limit.bound for limit in limits),
            proven_bound=goal.level + goal.proven,
            loss=goal.loss,
            dual_function=goal.g,
            dual_constant=goal.bound - goal.level,
            ball=self.ball,
            n_rounds=rounds,
            n_points=sum(one.points.shape[0] for one in self.all),
            time=Run.current().elapsed,
        )


def _normalized(points: np.ndarray, weights: np.ndarray) -> Atoms:
    """The distribution with these weights, without the points that have next to none."""
    keep = weights > _NEGLIGIBLE * weights.sum()
    return Atoms(points[keep], weights[keep] / weights[keep].sum())
