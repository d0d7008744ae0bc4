"""ksos.robust_minimize: the parameter with the least worst-case risk in an MMD ball, with the
density that it is the answer to.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ksos.ground import Run, as_count, as_vector
from ksos.observables import NumericFunction, Observable
from ksos.robust.ball import Adversary, Ball, adversary_in, require_ball
from ksos.robust.losses import NodeRisk, ParametricLoss, UserLoss, least_expected, proven_expected
from ksos.robust.problem import Goal
from ksos.robust.worst_case import (
    DATA_ALONE,
    Certified,
    Family,
    WorstCase,
    as_goal,
    attack,
    warn_if_inaccurate,
    warn_if_unbounded,
)
from ksos.space import Nodes, SoSSpace, finer_nodes, nodes_of

__all__ = [
    "ParametricFamily",
    "RobustSolution",
    "robust_minimize",
    "robust_path",
    "solved_robustly",
    "with_costs",
]

_SETUP_SHARE = 0.25  # of a time limit, for choosing nodes: the solver needs most of the rest
_NODES_AGREE = 0.1  # of the digits asked for, since the error of nodes counts twice
# Held-out losses are compared to within percents, so their fits have a relative gap of 1%.
_ROUGH = Goal(rtol=1e-2)
_FLAT = (
    "nothing bounds the risk from below in some direction of theta, so that nothing is certified;"
    " pass alpha > 0"
)


@dataclass(frozen=True)
class RobustSolution(Certified):
    """The result of :func:`ksos.robust_minimize`.

    Attributes
    ----------
    theta : ndarray (p,)
    value : float or None
        Certified: the risk of ``theta``, ridge included, over the densities of the space in the
        projected ball is at most this.
    gap : float or None
        value − a certified lower bound of what any parameter can reach. ``integration_error``
        counts on both sides. None if nothing is certified.
    status : str
        A key of ``ksos.robust.worst_case.ROBUST_STATUSES``.
    worst_case : WorstCase or None
        The worst density for ``theta``. None at radius 0.
    radius : float
    least_radius : float or None
        The certified radius below which the ball holds no density of the space, if the problem is
        infeasible.
    integration_error : float
        How far ``value`` may be off because the loss was integrated by quadrature, estimated. 0 for
        closed forms.
    n_iter : int
    time : float
        Seconds of the whole call.
    note : str
    cost, cost_error : float or None
        With ``cv``: the mean loss on held-out samples, without the ridge, and the standard error of
        its difference to that of the first radius.

    Examples
    --------
    >>> from ksos.measures import Box
    >>> def loss(theta, X):
    ...     return np.sum((theta - X) ** 2, axis=1), 2 * (theta - X)
    >>> ball = Ball([[-0.5], [-0.1]], 0.6, domain=Box([-1.0], [1.0]))
    >>> found: RobustSolution = robust_minimize(loss, 0.0, ball)
    >>> found.status, found.lower_bound <= found.value, found.worst_case.mmd <= 0.6
    ('solved', True, True)
    """

    theta: np.ndarray
    value: float | None
    gap: float | None
    status: str
    radius: float
    worst_case: WorstCase | None = None
    least_radius: float | None = None
    integration_error: float = 0.0
    n_iter: int = 0
    time: float = 0.0
    note: str = ""
    cost: float | None = None
    cost_error: float | None = None

    @property
    def gap_relative(self) -> float | None:
        """``gap / |value|``."""
        if self.gap is None or self.value is None or self.gap == 0.0:
            return self.gap
        return self.gap / abs(self.value) if self.value != 0.0 else math.inf

    @property
    def lower_bound(self) -> float | None:
        """value − gap."""
        return None if self.gap is None or self.value is None else self.value - self.gap


def robust_minimize(
    loss: Callable[..., Any],
    theta0: Any,
    ball: Ball,
    *,
    alpha: Any = 0.0,
    hessian: Callable[..., Any] | None = None,
    bandwidth: Any = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    tol: float | None = None,
    rtol: float = 1e-6,
    time_limit: float | None = None,
) -> RobustSolution:
    r"""The parameter θ with the least worst-case expected loss over an MMD ball.

    Minimizes over θ the worst case of E_p[loss(θ, x)] + Σ_j α_j θ_j², p a density of the space in
    the ball.

    Parameters
    ----------
    loss : callable
        ``loss(theta, X) -> (values, gradients)``: n numbers convex in θ, and their gradients in θ,
        shape (n, p). It may have kinks, as an absolute value or a hinge. The gradients are then any
        subgradients, and a small ridge helps. Convexity is checked at every pair of successive
        parameters, and :class:`~ksos.exceptions.ConvexityError` raised with the proof if it fails.
    theta0 : float or array of p floats
        Where to start. It fixes p.
    ball : Ball
        The distributions, see :class:`ksos.Ball`. Radius 0 is the regularized empirical solution,
        which has no worst case.
    alpha : float or array of p floats, default=0.0
        The ridge, not negative.
    hessian : callable, optional
        ``hessian(theta, X, weights) -> (p, p)``, second derivative of Σ_n weights_n·loss(θ, x_n).
        Default: differences of gradients.
    bandwidth, space, n_support
        The densities, as in :func:`ksos.worst_case`.
    tol : float, optional
        Largest gap, in the units of the loss. Default: none.
    rtol : float, default=1e-6
        Largest gap relative to the risk. The problem is solved at a gap of max(tol, rtol·risk). For
        risks below a thousandth of the range of the loss, that much of the range replaces the
        risk.
    time_limit : float, optional
        Seconds for all of the call, which ends at most one solver step later.

    Returns
    -------
    RobustSolution

    Warns
    -----
    ConvergenceWarning
        If the gap is larger than requested, or the time is over before there is a value, with the
        reason and a suggested fix.

    Examples
    --------
    The mean squared distance to θ. Robustly, θ moves from the mean of the data to the middle of the
    box.

    >>> from ksos.measures import Box
    >>> X = np.array([[-0.5], [-0.4], [-0.3], [0.0]])
    >>> def loss(theta, X):
    ...     away = theta - X
    ...     return np.sum(away**2, axis=1), 2 * away
    >>> solution = robust_minimize(loss, 0.0, Ball(X, 0.6, domain=Box([-1.0], [1.0])))
    >>> solution.status, bool(X.mean() < solution.theta[0] < 0.0), solution.worst_case.mmd <= 0.6
    ('solved', True, True)
    """
    require_ball(ball)
    return robust_path(
        loss,
        theta0,
        ball,
        [ball.radius],
        alpha=alpha,
        hessian=hessian,
        bandwidth=bandwidth,
        space=space,
        n_support=n_support,
        tol=tol,
        rtol=rtol,
        time_limit=time_limit,
    )[0]


def robust_path(
    loss: Callable[..., Any],
    theta0: Any,
    ball: Ball,
    radii: Sequence[Any],
    *,
    alpha: Any = 0.0,
    hessian: Callable[..., Any] | None = None,
    bandwidth: Any = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    tol: float | None = None,
    rtol: float = 1e-6,
    time_limit: float | None = None,
    cv: int | None = None,
) -> list[RobustSolution]:
    """:func:`robust_minimize` for several radii, in the order given.

    ``radii`` are numbers or "bootstrap", and replace the radius of the ball. The other arguments
    are those of :func:`robust_minimize`. ``time_limit`` is for all radii together. With ``cv``
    folds, each solution also has its mean ``cost`` on held-out samples: what its robustness costs
    where nothing shifts. :class:`ksos.RobustPathDisplay` draws it.

    >>> from ksos.measures import Box
    >>> def loss(theta, X):
    ...     return np.sum((theta - X) ** 2, axis=1), 2 * (theta - X)
    >>> ball = Ball([[-0.5], [-0.1]], 0.0, domain=Box([-1.0], [1.0]))
    >>> path = robust_path(loss, 0.0, ball, [0.0, 0.6])
    >>> [solution.status for solution in path], bool(abs(path[1].theta[0]) < abs(path[0].theta[0]))
    (['solved', 'solved'], True)
    """
    if not callable(loss):
        raise TypeError(
            f"loss must be a function loss(theta, X) -> (values, gradients); got {loss!r}"
        )
    if hessian is not None and not callable(hessian):
        raise TypeError(
            f"hessian must be a function hessian(theta, X, weights) -> (p, p); got {hessian!r}"
        )
    theta = as_vector(np.atleast_1d(theta0), "theta0")
    alpha = np.broadcast_to(alpha, theta.shape) if np.ndim(alpha) == 0 else alpha
    ridge = as_vector(alpha, "alpha", length=theta.shape[0])
    if np.any(ridge < 0.0):
        raise ValueError(f"alpha must not be negative; got {alpha!r}")
    goal = as_goal(tol, rtol)
    require_ball(ball)
    numbers = [ball.with_radius(radius).radius for radius in radii]
    if math.inf in numbers:
        raise ValueError("an infinite radius is for the penalty of ksos.worst_case")
    out: list[RobustSolution] = []
    with Run(time_limit, "robust minimization", "setting up") as run:

        def made(ball: Ball) -> Adversary:
            return adversary_in(ball, bandwidth, space, n_support)

        adversary = made(ball)

        def family_at(theta: np.ndarray) -> _UserFamily:
            with run.setup(_SETUP_SHARE):
                return _UserFamily(loss, theta, ridge, adversary, hessian, made)

        family = family_at(theta)
        if any(radius > 0.0 for radius in numbers):
            warn_if_unbounded(adversary, family.loss_at(theta), stacklevel=4)
        for radius in numbers:
            found = solved_robustly(family, radius, goal)
            unsure = 4.0 * found.integration_error > (found.gap or 0.0)
            if found.status == "solved_inaccurate" and unsure and not run.over:
                # the loss of the solution has kinks where those of the data had none
                family = family_at(found.theta)
                found = solved_robustly(family, radius, goal)
            out.append(found)
            if run.interrupted and len(out) < len(numbers):
                before = f"{len(out) - 1} of {len(numbers)} came before it"
                raise KeyboardInterrupt(f"interrupted at radius {radius:g}; {before}")
        out = with_costs(out, family, cv)
    for found in out:
        warn_if_inaccurate("robust_minimize", found, stacklevel=4)
    return out


class ParametricFamily(Family):
    """A family of losses that are convex in θ, with its empirical problem.

    ``alpha`` is the ridge, and ``masses`` are those of the ``samples``, over all labels.
    """

    alpha: np.ndarray
    masses: np.ndarray
    samples: np.ndarray

    @abstractmethod
    def data_losses(self) -> Sequence[tuple[ParametricLoss, float]]:
        """The loss at the samples, in ever closer smooth versions, each with how far it may lie
        above the loss itself.
        """

    @abstractmethod
    def empirical(self) -> tuple[np.ndarray, float]:
        """(θ, risk) of the regularized empirical problem: radius 0."""

    @abstractmethod
    def on(self, rows: np.ndarray) -> ParametricFamily:
        """The family of some of the samples."""

    @abstractmethod
    def losses_of(self, theta: np.ndarray, samples: np.ndarray) -> np.ndarray:
        """The loss of θ at any samples."""

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        """A certified lower bound of the empirical risk, whose minimum is about ``value`` at
        ``theta``: itself for closed forms.
        """
        return proven_expected(self.data_losses(), self.masses, self.alpha, theta, tol)

    def integration_error(self, theta: np.ndarray) -> float:
        assert isinstance(self.risk, NodeRisk)
        finer = finer_nodes(self.space, self.risk.nodes)
        M = finer.matrix(self._values(theta, finer.points))
        return float(np.linalg.norm(M - self.risk.true_matrix(theta), 2))

    def nodes(self, *others: np.ndarray) -> Nodes:
        """Nodes that are enough for the losses that suit the data, and for those at ``others``."""
        at, points = (
            [self.typical_theta(), *others],
            self.adversary.ball.points[:, : self.space.n_features],
        )
        # small risks count as much as in Problem.target
        least = 1e-3 * float(np.ptp(self._values(at[0], points)))
        risk = max(abs(self.empirical_value(at[0]) or 0.0), least)
        tol = _NODES_AGREE * self.agreement * risk
        return nodes_of(self.space, [partial(self._values, theta) for theta in at], tol)

    def _values(self, theta: np.ndarray, points: np.ndarray) -> np.ndarray:
        return np.concatenate([loss(points) for loss in self.losses_at(theta)])

    def typical_theta(self) -> np.ndarray:
        return self.empirical()[0]


def solved_robustly(
    family: ParametricFamily,
    radius: float,
    goal: Goal,
    refine: bool = True,
) -> RobustSolution:
    """The robust solution for one radius. ``refine``: whether densities may be made narrower until
    they are near the truth.
    """
    if radius == 0.0:
        return _data_alone(family, goal)
    answer, worst = attack(family, radius, goal, refine=refine)
    problem, saddle, value, gap = answer.problem, answer.saddle, None, None
    note, status, error = worst.note, worst.status, worst.integration_error
    if worst.value is not None:
        # the true risk is within the error of that at the nodes, for every density and parameter
        value = problem.in_units_of_the_loss(saddle.upper) + error
        gap = None if saddle.gap is None else problem.units[1] * saddle.gap + 2.0 * error
        note = _FLAT if gap is None else note
        asked = problem.units[1] * problem.target(goal, saddle.point.risk)
        if status == "solved" and gap is not None and gap > asked:
            status = "solved_inaccurate"
    return RobustSolution(
        saddle.theta,
        value,
        gap,
        status,
        radius,
        worst,
        saddle.least_radius,
        error,
        saddle.n_iter,
        Run.current().elapsed,
        note,
    )


def with_costs(
    found: list[RobustSolution], family: ParametricFamily, cv: int | None, rng: Any = 0
) -> list[RobustSolution]:
    """The solutions with the mean losses of their radii on ``cv`` folds, each held out in turn."""
    if cv is None:
        return found
    n, w, run = family.masses.shape[0], family.masses / family.masses.sum(), Run.current()
    if not 2 <= as_count(cv, "cv") <= n:
        raise ValueError(f"cv must lie between 2 and the {n} distinct samples; got {cv!r}")
    order, losses = np.random.default_rng(rng).permutation(n), np.full((len(found), n), np.nan)
    for k in range(cv):
        part = family.on(np.delete(np.arange(n), order[k::cv]))
        for i, solution in enumerate(found):
            run.tell(f"held-out loss with radius {solution.radius:.3g}", k, cv)
            theta = solved_robustly(part, solution.radius, _ROUGH, refine=False).theta
            losses[i, order[k::cv]] = part.losses_of(theta, family.samples[order[k::cv]])
            if run.over:
                return found  # no cost is better than one of some folds
    costs, excess = losses @ w, losses - losses[0]
    errors = np.sqrt((excess - (excess @ w)[:, None]) ** 2 @ w**2)
    return [
        replace(solution, cost=float(cost), cost_error=float(error))
        for solution, cost, error in zip(found, costs, errors, strict=True)
    ]


def _data_alone(family: ParametricFamily, goal: Goal) -> RobustSolution:
    theta, value = family.empirical()
    target = max(goal.tol, goal.rtol * abs(value))
    # the bound may take a third of the gap: what is left is rounding
    lower = family.empirical_bound(theta, value, 0.3 * target)
    gap = max(value - lower, 0.0) if math.isfinite(lower) else None
    note = "radius 0 leaves the data themselves: this is the regularized empirical solution"
    note += f"; {_FLAT}" if gap is None else ""
    status = "solved" if gap is not None and gap <= max(target, 1e-12) else "solved_inaccurate"
    return RobustSolution(theta, value, gap, status, 0.0, time=Run.current().elapsed, note=note)


class _UserFamily(ParametricFamily):
    """A loss of the user's, at the nodes of a quadrature rule."""

    def __init__(
        self,
        loss: Callable[..., Any],
        theta: np.ndarray,
        alpha: np.ndarray,
        adversary: Adversary,
        hessian: Callable[..., Any] | None,
        made: Callable[[Ball], Adversary],
    ) -> None:
        super().__init__(adversary)
        self.loss, self.theta, self.alpha, self.hessian = loss, theta, alpha, hessian
        self.made = made
        self.samples, self.masses = adversary.ball.points, adversary.ball.weights
        self._loss_on(adversary.ball.points).values(theta)  # a plain mistake shows before any work
        nodes = self.nodes(theta)
        self.risk = NodeRisk(nodes, self._loss_on(nodes.points), alpha, theta)

    def under(self, adversary: Adversary, theta: np.ndarray) -> _UserFamily:
        return _UserFamily(self.loss, theta, self.alpha, adversary, self.hessian, self.made)

    def on(self, rows: np.ndarray) -> _UserFamily:
        ball, own = self.adversary.ball, (self.loss, self.theta, self.alpha)
        data = {"weights": self.masses[rows], "kernel": ball.kernel, "domain": ball.domain}
        part = self.made(Ball(self.samples[rows], 0.0, **data))
        return _UserFamily(*own, part, self.hessian, self.made)

    def losses_of(self, theta: np.ndarray, samples: np.ndarray) -> np.ndarray:
        return self._loss_on(samples).values(theta)[0]

    def _loss_on(self, points: np.ndarray) -> UserLoss:
        return UserLoss(self.loss, points, self.theta.shape[0], self.hessian)

    def empirical(self) -> tuple[np.ndarray, float]:
        if not self.adversary.ball.is_distribution:
            raise ValueError(DATA_ALONE)
        found = least_expected(self.data_losses()[0][0], self.masses, self.alpha, self.theta)
        return found.theta, found.value

    def data_losses(self) -> Sequence[tuple[ParametricLoss, float]]:
        return [(self._loss_on(self.adversary.ball.points), 0.0)]

    def typical_theta(self) -> np.ndarray:
        """For data with signed weights, the parameter that the user starts from."""
        return self.empirical()[0] if self.adversary.ball.is_distribution else self.theta

    def loss_at(self, theta: np.ndarray) -> Observable:
        return NumericFunction(lambda X: self._loss_on(X).values(theta)[0])
