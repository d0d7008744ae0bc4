"""ksos.robust_minimize: the parameter with the least worst-case risk in an MMD ball, with the density that it is the answer to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos._validation import as_nonnegative, as_positive, as_vector
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables import NumericFunction, Observable
from ksos.robust.exact import exact_mmd, first_root
from ksos.robust.extended import dual_function
from ksos.robust.node_risk import NodeBasis, NodeRisk, UserLoss, least_expected, proven_expected
from ksos.robust.nodes import nodes_of
from ksos.robust.result import ROBUST_STATUSES, WorstCase
from ksos.robust.risk import Risk
from ksos.robust.saddle import Saddle, SaddlePoint, SaddleProblem
from ksos.robust.setting import Setting, as_setting
from ksos.robust.upper_bound import UpperBound, upper_bound
from ksos.robust.worst_case import AGREEMENT, as_radius, not_below, warn_if_unbounded
from ksos.solvers.spectraplex import factor
from ksos.space import SoSSpace

_DEEPER, _MOST_DEEPENINGS, _ROUGH = 4.0, 12, 1e-4
_LITTLE = 1e-4
_FLAT = "; nothing bounds the risk from below in some direction of theta, so that nothing is certified; pass ridge > 0"

__all__ = ["RobustProblem", "RobustSolution", "robust_minimize", "robust_path"]


@dataclass(frozen=True)
class RobustSolution:
    """The result of :func:`ksos.robust_minimize`."""

    theta: np.ndarray
    value: float | None
    """Certified: the risk of ``theta``, ridge included, over the densities of the space in the projected ball is at most this."""
    gap: float | None
    """value − a certified lower bound of what any parameter can reach; None where nothing is certified."""
    status: str
    """One of :data:`~ksos.robust.result.ROBUST_STATUSES`."""
    worst_case: WorstCase | None
    """The worst density for ``theta``; None at radius 0."""
    radius: float
    least_radius: float | None = None
    """Of an infeasible problem: the certified radius below which the ball holds no density of the space."""
    integration_error: float = 0.0
    """How far ``value`` may be off because the loss was integrated by quadrature, estimated; 0 for closed forms."""
    n_iter: int = 0
    time: float = 0.0
    """Seconds."""
    note: str = ""
    saddle: Saddle | None = field(default=None, repr=False)

    @property
    def gap_relative(self) -> float | None:
        """gap / |value|."""
        if self.gap is None or self.value is None:
            return None
        return self.gap / abs(self.value) if self.value != 0.0 else (0.0 if self.gap == 0.0 else float("inf"))

    @property
    def lower_bound(self) -> float | None:
        """value − gap."""
        return None if self.gap is None or self.value is None else self.value - self.gap

    @property
    def message(self) -> str:
        """The status in a sentence."""
        gap = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        return f"{self.status}, {gap}: {ROBUST_STATUSES[self.status]}" + (f"; {self.note}" if self.note else "")


def robust_minimize(
    loss: Callable[..., Any],
    theta0: Any,
    data: Any,
    radius: Any,
    *,
    ridge: Any = 0.0,
    hessian: Callable[..., Any] | None = None,
    weights: Any = None,
    kernel: str | Kernel = "gaussian",
    bandwidth: Any = None,
    embedding_bandwidth: Any = None,
    measure: Measure | None = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    rng: Any = None,
    tol: float = 1e-6,
    time_limit: float | None = None,
) -> RobustSolution:
    r"""min over θ of the worst case of E_p[loss(θ, x)] + Σ_j ρ_j θ_j², p a density of the space with MMD to the data at most the radius.

    Parameters
    ----------
    loss : callable
        ``loss(theta, X) -> (values, gradients)``: n numbers convex in θ, and their gradients in θ, shape (n, p). Convexity is checked at
        every pair of parameters that follow each other, and :class:`~ksos.exceptions.ConvexityError` raised with the proof where it fails.
        It may have kinks, as an absolute value or a hinge: the gradients are then any of the subgradients, and a small ridge helps.
    theta0 : float or array of p floats
        Where to start; it fixes p.
    data, radius, weights, kernel, bandwidth, embedding_bandwidth, measure, space, n_support, confidence, n_resamples, rng
        See :func:`ksos.worst_case`. Radius 0 is the regularised empirical solution, by definition: it has no worst case.
    ridge : float or array of p floats
        ρ ≥ 0.
    hessian : callable, optional
        ``hessian(theta, X, weights) -> (p, p)``, second derivative of Σ_n weights_n·loss(θ, x_n). Default: differences of gradients.
    tol : float
        The gap, relative to the risk, at which the problem counts as solved.
    time_limit : float, optional
        Seconds for the solver.

    Returns
    -------
    RobustSolution

    Examples
    --------
    The mean squared distance to θ: robustly, θ moves from the mean of the data to the middle of the box.

    >>> from ksos.measures import Box
    >>> X = np.array([[-0.5], [-0.4], [-0.3], [0.0]])
    >>> def loss(theta, X):
    ...     away = theta - X
    ...     return np.sum(away**2, axis=1), 2 * away
    >>> solution = robust_minimize(loss, 0.0, X, 0.3, embedding_bandwidth=1.0, measure=Box([-1.0], [1.0]))
    >>> solution.status, bool(X.mean() < solution.theta[0] < 0.0), solution.worst_case.mmd <= 0.3
    ('solved', True, True)
    """
    return robust_path(
        loss, theta0, data, [radius], ridge=ridge, hessian=hessian, weights=weights, kernel=kernel, bandwidth=bandwidth,
        embedding_bandwidth=embedding_bandwidth,
        measure=measure, space=space, n_support=n_support, confidence=confidence, n_resamples=n_resamples, rng=rng,
        tol=tol, time_limit=time_limit,
    )[0]  # fmt: skip


def robust_path(
    loss: Callable[..., Any],
    theta0: Any,
    data: Any,
    radii: Sequence[Any],
    *,
    ridge: Any = 0.0,
    hessian: Callable[..., Any] | None = None,
    weights: Any = None,
    kernel: str | Kernel = "gaussian",
    bandwidth: Any = None,
    embedding_bandwidth: Any = None,
    measure: Measure | None = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    rng: Any = None,
    tol: float = 1e-6,
    time_limit: float | None = None,
) -> list[RobustSolution]:
    """:func:`robust_minimize` for several radii, in the order given; each starts from the solution before. ``time_limit`` is for each."""
    if not callable(loss):
        raise TypeError(f"loss must be a function loss(theta, X) -> (values, gradients); got {loss!r}")
    theta = as_vector(np.atleast_1d(theta0), "theta0")
    rho = np.full(theta.shape, as_nonnegative(ridge, "ridge")) if np.ndim(ridge) == 0 else as_vector(ridge, "ridge", length=theta.shape[0])
    if hessian is not None and not callable(hessian):
        raise TypeError(f"hessian must be a function hessian(theta, X, weights) -> (p, p); got {hessian!r}")
    if np.any(rho < 0.0):
        raise ValueError(f"ridge must not be negative; got {ridge!r}")
    radii = [radius if isinstance(radius, str) else as_nonnegative(radius, 'radius (or "bootstrap")') for radius in radii]
    as_positive(tol, "tol")
    if time_limit is not None:
        as_positive(time_limit, "time_limit")
    setting = as_setting(
        data, weights=weights, kernel=kernel, bandwidth=bandwidth, embedding_bandwidth=embedding_bandwidth,
        measure=measure, space=space, n_support=n_support, rng=0,
    )  # fmt: skip
    problem = _LossProblem(loss, theta, np.array(rho, dtype=float), setting, hessian)
    out: list[RobustSolution] = []
    for radius in radii:
        out.append(problem.solve(as_radius(radius, setting, confidence, n_resamples, rng), tol, time_limit, out[-1] if out else None))
    return out


class RobustProblem:
    """A family of losses in a setting: what is shared by all radii. Subclasses say what the risk is."""

    setting: Setting
    risk: Risk
    agreement = AGREEMENT
    """Directions are added to what the landmarks see until exact and projected MMD of the answer agree to this."""

    def empirical(self) -> tuple[np.ndarray, float]:
        """(θ, risk) of the regularised empirical problem: radius 0."""
        raise NotImplementedError

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        """A certified lower bound of the empirical risk, about whose minimum is ``value`` at ``theta``: itself for closed forms."""
        return value

    @cached_property
    def typical_theta(self) -> np.ndarray:
        """A parameter that suits the data."""
        return self.empirical()[0]

    def loss_at(self, theta: np.ndarray) -> Observable:
        """x ↦ ℓ(θ, x)."""
        raise NotImplementedError

    def integration_error(self, theta: np.ndarray) -> float:
        """How far expectations of ℓ(θ, ·) may be off."""
        return 0.0

    def solve(self, radius: float, tol: float, time_limit: float | None = None, start: RobustSolution | None = None) -> RobustSolution:
        """The robust solution for one radius."""
        began = time.perf_counter()
        if radius == 0.0:
            return self._data_alone(tol, began)
        problem, saddle, note = self._saddle(radius, tol, time_limit, None if start is None else start.saddle)
        if saddle.keyboard_interrupt and saddle.gap is None:
            raise KeyboardInterrupt("robust_minimize was interrupted before a density in the ball was found")
        worst, theta = self._worst_case(problem, saddle, radius, note), saddle.theta
        found = worst.value is not None
        if saddle.least_radius is not None:
            note = f"the least radius that holds a density of this space is {saddle.least_radius:.6g} (certified)"
        elif found and saddle.gap is None:
            note = _FLAT.removeprefix("; ")
        return RobustSolution(
            theta=theta,
            value=saddle.upper if found else None,
            gap=saddle.gap if found else None,
            status=saddle.status,
            worst_case=worst,
            radius=radius,
            least_radius=saddle.least_radius,
            integration_error=worst.integration_error,
            n_iter=saddle.n_iter,
            time=time.perf_counter() - began,
            note=note,
            saddle=saddle,
        )

    def _data_alone(self, tol: float, began: float) -> RobustSolution:
        """Radius 0."""
        theta, value = self.empirical()
        lower = self.empirical_bound(theta, value, 0.3 * tol * abs(value))
        gap = max(value - lower, 0.0) if math.isfinite(lower) else None
        note = "radius 0 leaves the data themselves: this is the regularised empirical solution"
        note += _FLAT if gap is None else ""
        status = "solved" if gap is not None and gap <= max(tol * abs(value), 1e-12) else "solved_inaccurate"
        return RobustSolution(theta, value, gap, status, None, 0.0, time=time.perf_counter() - began, note=note)

    # --- the space: what a density is, and how far from the data ---

    _latest: tuple[Setting, SaddleProblem] | None = None

    def problem_on(self, setting: Setting) -> SaddleProblem:
        """The saddle problem with what a setting sees; one object for as long as the setting stays."""
        if self._latest is None or self._latest[0] is not setting:
            near = None if self._latest is None else self._latest[1].nearest[0]
            self._latest = setting, self.new_problem(setting, near)
        return self._latest[1]

    def new_problem(self, setting: Setting, near: np.ndarray | None) -> SaddleProblem:
        """The same, afresh; ``near`` is a C that is near the data."""
        z = to_numpy(setting.space.coordinates(setting.embedding))
        return SaddleProblem(setting.space, self.risk, z, self.typical_theta, near)

    def density(self, C: np.ndarray) -> Any:
        """The density of a parameter."""
        return self.setting.space.density(factor(C))

    def exact_distance(self, density: Any) -> float:
        """Its exact MMD to the data."""
        return exact_mmd(density, self.setting.embedding)

    def sharper(self, C: np.ndarray, density: Any, distance: float) -> Setting | None:
        """The setting that sees the density of C, at this exact distance, as far from the data as it is; None where it sees no better."""
        return self.setting.sharper(C, density, distance)

    def dual_function(self, y: np.ndarray) -> tuple[Any, Any, float]:
        """g, whose coordinates are y; the part of it in the span of the landmarks; the norm of that part."""
        return dual_function(self.setting.space, y)

    # --- one radius ---

    def _saddle(self, radius: float, tol: float, time_limit: float | None, start: Saddle | None) -> tuple[SaddleProblem, Saddle, str]:
        """Solve, compare exact and projected MMD of the density, add the direction in which they differ, again."""
        ends = None if time_limit is None else time.perf_counter() + time_limit
        while True:
            rest = None if ends is None else max(ends - time.perf_counter(), 1e-3)
            problem = self.problem_on(self.setting)
            saddle = problem.solve(radius, tol, rest, start)
            if saddle.status not in ("solved", "solved_inaccurate"):
                return problem, saddle, ""
            density = self.density(saddle.point.C)
            distance = self.exact_distance(density)
            apart = distance - saddle.point.distance
            sharper = self.sharper(saddle.point.C, density, distance) if apart > self.agreement else None
            if sharper is None:
                break
            self.setting, start = sharper, saddle
        note = f"exact and projected MMD differ by {apart:.1e}: the gap of the worst case counts the difference"
        return problem, saddle, note if apart > self.agreement else ""

    def _in_the_ball(self, problem: SaddleProblem, saddle: Saddle, radius: float) -> tuple[SaddlePoint, Any, float, bool]:
        """(point, density, exact MMD, whether it is at most the radius): the saddle's own, or mixed with a point deeper in the ball."""
        point = saddle.point
        density = self.density(point.C)
        distance = self.exact_distance(density)
        if saddle.status in ("infeasible", "undecided"):
            return point, density, distance, False
        if distance <= radius:
            return point, density, distance, point.distance <= radius

        def at(other: SaddlePoint) -> tuple[Any, float]:
            p = self.density(other.C)
            return p, self.exact_distance(p)

        deeper = problem.point(problem.nearest[0])  # known already; the risk is concave, so that little is lost on the way there
        end, excess = at(deeper), distance - radius
        # a little of the nearest density costs next to nothing; where more is needed, one that is nearly as bad is worth a solve
        if excess > _LITTLE * (radius - end[1]) and problem.barrier is not None and radius - 3.0 * excess > end[1]:
            inner = problem.barrier.solve(radius - 3.0 * excess, _LITTLE * problem.unit, saddle.theta)
            if inner is not None and at(problem.point(inner.C))[1] < radius:
                deeper = problem.point(inner.C)
                end = at(deeper)
        u, most = max(saddle.multiplier, 1e-3), max(saddle.multiplier, 1e-3) * _DEEPER**_MOST_DEEPENINGS
        while end[1] >= radius and u < most:
            u *= _DEEPER
            deeper, _ = problem.penalised(u, point.C, _ROUGH)
            end = at(deeper)
        if end[1] >= radius:
            return point, density, distance, False
        middle = at(problem.mixed(point, deeper, 0.5))[1]
        t = first_root(distance**2, middle**2, end[1] ** 2, radius**2)
        for _ in range(60):
            mixed = problem.mixed(point, deeper, t)
            p, d = at(mixed)
            if d <= radius:
                return mixed, p, d, True
            t = min(1.5 * t + 1e-12, 1.0)
        return deeper, *end, True

    def _worst_case(self, problem: SaddleProblem, saddle: Saddle, radius: float, note: str) -> WorstCase:
        """The density of the saddle, made exactly feasible, as the worst case for θ."""
        space, theta = self.setting.space, saddle.theta
        loss, M = self.loss_at(theta), problem.true_matrix(theta)
        point, density, distance, feasible = self._in_the_ball(problem, saddle, radius)
        value = float(np.vdot(M, point.C)) if feasible else None
        g, near, size = self.dual_function(saddle.y) if feasible else (None, None, 0.0)
        spread = float(np.ptp(np.linalg.eigvalsh(M)))
        top = self.bound(theta, loss, near, size, radius, spread) if feasible else None
        dual = saddle.upper - self.risk.penalty(theta)
        dual = dual if value is None else not_below(dual, value, spread)
        return WorstCase(
            value=value,
            upper_bound=None if top is None or value is None else not_below(top.value, value, spread),
            upper_bound_kind="none" if top is None else top.kind,
            upper_bound_at=None if top is None else top.at,
            distribution=density,
            mmd=distance,
            projected_mmd=point.distance,
            gap=None if value is None else max(dual - value, 0.0),
            dual_value=None if value is None else dual,
            dual_function=g,
            dual_constant=None if value is None else saddle.dual_constant,
            status=saddle.status if value is not None or saddle.status == "infeasible" else "undecided",
            radius=radius,
            penalty=None,
            least_radius=saddle.least_radius,
            empirical_value=self.empirical_value(theta),
            integration_error=self.integration_error(theta),
            loss=loss,
            embedding_kernel=space.embedding_kernel,
            space=space,
            n_iter=saddle.n_iter,
            note=note,
        )

    def empirical_value(self, theta: np.ndarray) -> float | None:
        """The mean loss of the data; None where they do not all lie in the domain."""
        setting = self.setting
        inside = bool(np.all(to_numpy(setting.measure.contains(setting.reference.points))))
        return float(setting.reference.weights @ self.loss_at(theta)(setting.reference.points)) if inside else None

    def bound(self, theta: np.ndarray, loss: Observable, g: Any, size: float, radius: float, spread: float) -> UpperBound | None:
        """What no distribution in the ball can exceed, by a function g of the RKHS with this norm."""
        setting = self.setting
        warn_if_unbounded(setting, loss)
        return upper_bound(loss, g, size, setting.reference, setting.measure, setting.box, spread=spread, radius=radius, penalty=None)


class _LossProblem(RobustProblem):
    """A loss of the user's, at the nodes of a quadrature rule."""

    def __init__(
        self, loss: Callable[..., Any], theta: np.ndarray, ridge: np.ndarray, setting: Setting, hessian: Callable[..., Any] | None = None
    ) -> None:
        self.loss, self.theta, self.ridge, self.setting, self.hessian = loss, theta, ridge, setting, hessian
        UserLoss(loss, setting.reference.points, theta.shape[0]).values(theta)  # a plain mistake shows before any work
        nodes = nodes_of(setting.space)
        self.risk = NodeRisk(NodeBasis(nodes.psi), UserLoss(loss, nodes.points, theta.shape[0], hessian), ridge, theta)

    def empirical(self) -> tuple[np.ndarray, float]:
        reference = self.setting.reference
        if not reference.is_distribution:
            raise ValueError("radius 0 leaves only the data, but their weights are not those of a distribution; pass a positive radius")
        found = least_expected(self._loss_of_the_data, reference.weights, self.ridge, self.theta)
        return found.theta, found.value

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        return proven_expected(self._loss_of_the_data, self.setting.reference.weights, self.ridge, theta, tol)

    @property
    def _loss_of_the_data(self) -> UserLoss:
        return UserLoss(self.loss, self.setting.reference.points, self.theta.shape[0], self.hessian)

    @cached_property
    def typical_theta(self) -> np.ndarray:
        """Of data with signed weights, the parameter that the user starts from."""
        return self.empirical()[0] if self.setting.reference.is_distribution else self.theta

    def loss_at(self, theta: np.ndarray) -> Observable:
        return NumericFunction(lambda X: UserLoss(self.loss, X, theta.shape[0]).values(theta)[0])

    def integration_error(self, theta: np.ndarray) -> float:
        finer = nodes_of(self.setting.space, finer=True)
        values = UserLoss(self.loss, finer.points, theta.shape[0]).values(theta)[0]
        return float(np.linalg.norm(NodeBasis(finer.psi).matrix(values) - self.risk.matrix(theta), 2))
