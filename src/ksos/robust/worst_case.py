"""ksos.worst_case: the worst distribution for a loss within an MMD ball around the data, and how
any answer becomes a WorstCase.
"""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos.exceptions import InternalError
from ksos.functionals import BoundLinear, Expectation
from ksos.ground import (
    Run,
    as_nonnegative,
    as_positive,
    inner,
    like,
    namespace,
    one_blas_thread,
    to_numpy,
)
from ksos.kernels import Kernel
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.robust.ball import Adversary, Ball, adversary_in
from ksos.robust.bounds import UpperBound, upper_bound
from ksos.robust.exact_ball import Answer, in_the_exact_ball
from ksos.robust.parametric import FixedRisk, Risk
from ksos.robust.problem import Goal, Problem
from ksos.solvers import STATUSES, known_to
from ksos.space import LabeledEmbedding, MeanEmbedding, SoSSpace

__all__ = [
    "AGREEMENT",
    "ROBUST_STATUSES",
    "Certified",
    "Family",
    "FixedLoss",
    "WorstCase",
    "as_goal",
    "attack",
    "warn_if_inaccurate",
    "warn_if_unbounded",
    "worst_case",
]

AGREEMENT = 1e-6
"""Directions are added to what the landmarks see until exact and projected MMD of the answer agree
to this: the digits that a table of MMDs shows.
"""
DATA_ALONE = (
    "radius 0 leaves only the data, but their weights are not those of a distribution; pass a"
    " positive radius"
)
_ROUNDING = 1e-7  # of a loss: dividing a density by its mass, 1 up to rounding, may move it so much

_NEAR_THE_TRUTH = 0.01  # of the upper bound: if the value is farther below, narrower ones are tried
# These densities reach 0.99 of the truth (benchmarks/near_the_truth.py).
_NARROWER = (0.05, 0.01, 0.002)  # of the embedding's bandwidth, tried in turn
_MOST_ROUNDS = 8  # with a parameter: each adds the places that are worst for the last one

ROBUST_STATUSES = {
    **STATUSES,
    "infeasible": (
        "the ball holds no density of the space, which is proven; take a larger radius, or a"
        " smaller bandwidth"
    ),
    "undecided": (
        "no density of the space was found in the ball, nor a proof that there is none; take a"
        " slightly larger radius"
    ),
}


class Certified:
    """A result with a status, a gap where one is proven, and a note on the status."""

    value: float | None
    status: str
    gap: float | None
    integration_error: float
    note: str

    @property
    def message(self) -> str:
        """The status in a sentence."""
        certified = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        note = f"; {self.note}" if self.note else ""
        return f"{self.status}, {certified}: {ROBUST_STATUSES[self.status]}{note}"


@dataclass(frozen=True)
class WorstCase(Certified):
    """The result of :func:`ksos.worst_case`. Three numbers bound the worst case from three sides:

    * ``value`` belongs to a density whose exact MMD to the data is at most the radius: a *lower*
      bound of the worst case over all distributions.
    * ``dual_value`` is at least the optimum over the densities of the space in the projected ball.
      ``gap`` is ``dual_value`` − ``value``.
    * ``upper_bound`` bounds the worst case over all distributions of the domain.

    Attributes
    ----------
    value : float or None
        E_p[loss] of :attr:`distribution`. None if the ball holds no density.
    upper_bound : float or None
        sup(loss − g) + ⟨g, data⟩ + radius·‖g‖ for the dual function g: no distribution in the ball
        does worse.
    upper_bound_kind : str
        "rigorous", "estimate" (the supremum was searched for, not proven) or "infinite". "none" if
        the ball holds no density.
    distribution : SoSDensity, LabeledDensity or None
        The worst density. For an infeasible problem the one that is nearest to the data. None at
        radius 0, which leaves the data alone.
    mmd, projected_mmd : float
        The exact MMD between :attr:`distribution` and the data, and what the landmarks see of it.
    gap : float or None
        dual_value − value (for the penalized problem: − objective).
    dual_value : float or None
    dual_function : observable, or list of one per label
        g of the RKHS: dual_constant + g majorizes the loss in the order of sums of squares of the
        space.
    dual_constant : float or None
    status : str
        A key of ``ksos.robust.worst_case.ROBUST_STATUSES``.
    radius : float or None
    penalty : float or None
        γ, if value − γ·MMD² was maximized instead.
    least_radius : float or None
        The certified radius below which the ball holds no density of the space, if the problem is
        infeasible.
    empirical_value : float or None
        The mean loss of the data. None if they do not all lie in the domain.
    integration_error : float
        How far ``value`` may be off because the loss was integrated by quadrature, estimated. 0 for
        closed forms.
    loss : observable
    embedding_kernel : Kernel
    space : SoSSpace or None
    upper_bound_at : ndarray or None
        Where loss − g is largest.
    n_iter : int
    time : float
        Seconds of the whole call.
    note : str
        What else there is to say about the status.

    Examples
    --------
    >>> import ksos
    >>> ball = ksos.Ball([[0.0], [0.5]], 0.5, domain=ksos.measures.Box([-1.0], [1.0]))
    >>> worst: WorstCase = ksos.worst_case(ksos.observables.coordinate(0), ball)
    >>> worst.status, worst.empirical_value < worst.value <= worst.dual_value <= worst.upper_bound
    ('solved', True)
    """

    value: float | None
    upper_bound: float | None
    upper_bound_kind: str
    loss: Observable = field(repr=False)
    embedding_kernel: Kernel = field(repr=False)
    status: str
    radius: float | None
    empirical_value: float | None
    gap: float | None
    dual_value: float | None
    distribution: Any = None
    mmd: float = 0.0
    projected_mmd: float = 0.0
    dual_function: Any = field(repr=False, default=None)
    dual_constant: float | None = None
    penalty: float | None = None
    least_radius: float | None = None
    integration_error: float = 0.0
    space: SoSSpace | None = field(repr=False, default=None)
    upper_bound_at: np.ndarray | None = field(repr=False, default=None)
    n_iter: int = 0
    time: float = 0.0
    note: str = ""

    @property
    def objective(self) -> float | None:
        """What was maximized: the value, or value − penalty·MMD²."""
        if self.value is None or self.penalty is None:
            return self.value
        return self.value - self.penalty * self.mmd**2

    def summary(self) -> dict[str, Any]:
        """What is certified, as plain numbers and words."""
        names = ["status", "value", "gap", "dual_value", "upper_bound", "upper_bound_kind", "mmd"]
        names += ["projected_mmd", "radius", "penalty", "least_radius", "empirical_value"]
        return {name: getattr(self, name) for name in [*names, "integration_error"]}


def worst_case(
    loss: Any,
    ball: Ball,
    *,
    penalty: float | None = None,
    bandwidth: Any = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    lipschitz: float | None = None,
    tol: float | None = None,
    rtol: float = 1e-8,
    time_limit: float | None = None,
) -> WorstCase:
    r"""The largest expected loss over the distributions of an MMD ball, with the worst density.

    Maximizes E_p[loss] over the sum-of-squares densities p in the ball, and bounds it over all
    distributions of the ball.

    Parameters
    ----------
    loss : callable, Polynomial, KernelFunction, BoxIndicator or any other observable
        A function of an array (n, d) that returns n numbers. Expectations of the observables named
        here are closed forms. Others are integrated by quadrature, with an estimate of the error.
    ball : Ball
        The distributions, see :class:`ksos.Ball`. At radius 0 the value is the mean loss of the
        data, and there is no density.
    penalty : float, optional
        γ, a multiplier of MMD²: maximize E_p[loss] − γ·MMD(p, data)² instead, over all densities of
        the space. The radius of the ball must be ``math.inf``.
    bandwidth : float or array of d floats, optional
        Bandwidth of the densities. Default: a third of that of the ball's kernel, or as fine as the
        support points can carry across the domain. If the bounds are not close, narrower densities
        follow, with a kernel at each atom of the worst distribution.
    space : SoSSpace, optional
        The densities, landmarks included, instead of those chosen by default. Its embedding kernel
        and its measure must be the kernel and the domain of the ball.
    n_support : int, optional
        The most support points. Default: 64, 144 and 125 in 1, 2 and 3 dimensions, 200 beyond.
    lipschitz : float, optional
        A Lipschitz constant of a loss that is code. It makes the upper bound rigorous on a box.
    tol : float, optional
        Largest gap, in the units of the loss. Default: none.
    rtol : float, default=1e-8
        Largest gap in units of the range of the loss over the densities of the space. The problem
        is solved at a gap of max(tol, rtol·range).
    time_limit : float, optional
        Seconds for all of the call, which ends at most one solver step later.

    Returns
    -------
    WorstCase

    Warns
    -----
    UserWarning
        If the loss is not known to be bounded on an unbounded domain. The worst case over all
        distributions may then be infinite. The value depends on the box that the support points
        cover, which the warning names.
    ConvergenceWarning
        If the gap is larger than requested, or the time is over before there is a value, with the
        reason and a suggested fix.

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> from ksos.measures import Box
    >>> from ksos.observables import coordinate
    >>> X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
    >>> ball = Ball(X, 0.3, kernel=Gaussian(1.0), domain=Box([-2.0], [2.0]))
    >>> worst = worst_case(coordinate(0) ** 2, ball)
    >>> worst.status, ball.contains(worst.distribution), worst.upper_bound_kind
    ('solved', True, 'rigorous')
    >>> bool(worst.empirical_value < worst.value <= worst.upper_bound)
    True
    """
    goal = as_goal(tol, rtol)
    if isinstance(loss, MeanEmbedding):
        loss = KernelFunction(to_numpy(loss.points), to_numpy(loss.weights), kernel=loss.kernel)
    loss = as_observable(loss, "loss")
    lipschitz = None if lipschitz is None else as_nonnegative(lipschitz, "lipschitz")
    penalty = None if penalty is None else as_positive(penalty, "penalty")
    with Run(time_limit, "worst case", "setting up"):
        adversary = adversary_in(ball, bandwidth, space, n_support)
        if math.isinf(ball.radius) != (penalty is not None):
            raise ValueError(
                "pass either a finite radius or Ball(data, math.inf) with a penalty; got"
                f" radius={ball.radius!r}, penalty={penalty!r}"
            )
        loss.check_features(ball.n_features)
        if ball.radius == 0.0:
            return _data_alone(ball, loss)
        warn_if_unbounded(adversary, loss)
        family = FixedLoss(adversary, loss, lipschitz)
        radius = ball.radius if penalty is None else None
        found = attack(family, radius, goal, gamma=penalty)[1]
    warn_if_inaccurate("worst_case", found)
    if ball.feature_names is None or found.distribution is None:
        return found
    named = found.distribution.with_feature_names(ball.feature_names)
    return replace(found, distribution=named)


def as_goal(tol: Any, rtol: Any) -> Goal:
    """The gap that is asked for, checked."""
    return Goal(0.0 if tol is None else as_positive(tol, "tol"), as_positive(rtol, "rtol"))


class Family(ABC):
    """Losses ℓ(θ, ·) under an adversary: what a robust problem is about. Subclasses say what the
    risk is.
    """

    risk: Risk
    agreement = AGREEMENT
    lipschitz: float | None = None

    def __init__(
        self,
        adversary: Adversary,
        labels: np.ndarray | None = None,
        data: LabeledEmbedding | None = None,
    ) -> None:
        """With labels, ``data`` is the center of the ball."""
        self.adversary, space = adversary, adversary.space
        self.space = space if labels is None else space.with_labels(labels)
        self.data: MeanEmbedding | LabeledEmbedding = data or adversary.ball.embedding

    def typical_theta(self) -> np.ndarray:
        """A parameter that suits the data."""
        return np.zeros(0)

    @cached_property
    def problem(self) -> Problem:
        """The problem for any radius. The directions that an answer takes are added to what its
        landmarks see.
        """
        how = self.adversary.grows, self.agreement
        return Problem(self.space, self.risk, self.data, self.typical_theta(), *how)

    @abstractmethod
    def loss_at(self, theta: np.ndarray) -> Observable:
        """x ↦ ℓ(θ, x)."""

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        """The same, one function of x per label."""
        return [self.loss_at(theta)]

    @abstractmethod
    def under(self, adversary: Adversary, theta: np.ndarray) -> Family:
        """The same losses under other densities. ``theta`` is about the answer."""

    @abstractmethod
    def integration_error(self, theta: np.ndarray) -> float:
        """How far expectations of ℓ(θ, ·) may be off: 0 for closed forms."""

    def empirical_value(self, theta: np.ndarray) -> float | None:
        """The mean loss of the data, or None if they do not all lie in the domain."""
        ball = self.adversary.ball
        inside = bool(np.all(to_numpy(ball.domain.contains(ball.points))))
        return float(ball.weights @ self.loss_at(theta)(ball.points)) if inside else None


class FixedLoss(Family):
    """One loss: no parameter."""

    @np.errstate(under="ignore")
    def __init__(
        self, adversary: Adversary, loss: Observable, lipschitz: float | None = None
    ) -> None:
        super().__init__(adversary)
        self.loss, self.lipschitz = loss, lipschitz
        term = Expectation(loss).bind(adversary.space)
        assert isinstance(term, BoundLinear)
        self.risk, self._error = FixedRisk(term.D), term.integration_error

    def loss_at(self, theta: np.ndarray) -> Observable:
        return self.loss

    def under(self, adversary: Adversary, theta: np.ndarray) -> FixedLoss:
        return FixedLoss(adversary, self.loss, self.lipschitz)

    def integration_error(self, theta: np.ndarray) -> float:
        return self._error


@np.errstate(under="ignore")
@one_blas_thread(0)
def attack(
    family: Family,
    radius: float | None,
    goal: Goal,
    *,
    gamma: float | None = None,
    refine: bool = True,
) -> tuple[Answer, WorstCase]:
    """The answer in the exact ball, and the worst case that it is.

    While the value is far below the upper bound, and the densities are ours to choose (``refine``),
    narrower ones about the places that the worst distribution uses are tried.

    Ctrl-C is raised again if no density in the ball had been found. Else the status says it.
    """
    answer, worst, top = _attacked(family, radius, goal, gamma)
    refine = refine and family.adversary.refines
    fixed = family.risk.n_parameters == 0
    for share in _NARROWER if fixed else _NARROWER[:1] * _MOST_ROUNDS:
        if not refine or _close(worst) or Run.current().over or top is None or top.atoms is None:
            break
        adversary = family.adversary.near(*top.atoms, share)
        if adversary is None:
            break
        family, before = family.under(adversary, answer.saddle.theta), _below(worst)
        known = top if fixed else None
        again, other, top = _attacked(family, radius, goal, gamma, known)
        top = known or top  # also if so wide densities are not in the ball
        if other.value is not None and _below(other) < before:
            answer, worst = again, other
    if not refine or _close(worst):
        return answer, worst
    why = "the time is over" if Run.current().over else "narrower densities come no closer"
    apart = _below(worst) - worst.integration_error
    note = f"the value is {apart:.2g} below the upper bound, and {why}"
    return answer, replace(worst, note="; ".join(filter(None, [worst.note, note])))


def _below(worst: WorstCase) -> float:
    """How far the value is below the upper bound, and what quadrature does not know of it."""
    assert worst.value is not None and worst.upper_bound is not None
    return worst.upper_bound - worst.value + worst.integration_error


def _close(worst: WorstCase) -> bool:
    """Whether no distribution does much worse than the density, or none is known to be bounded."""
    if worst.value is None or worst.upper_bound is None or math.isinf(worst.upper_bound):
        return True
    return worst.upper_bound - worst.value <= _NEAR_THE_TRUTH * abs(worst.upper_bound)


def _attacked(
    family: Family,
    radius: float | None,
    goal: Goal,
    gamma: float | None,
    proven: UpperBound | None = None,
) -> tuple[Answer, WorstCase, UpperBound | None]:
    """The same in one space, with the bound over all distributions, which may be known."""
    run = Run.current()
    answer = in_the_exact_ball(family.problem, radius, goal, gamma)
    family.problem = answer.problem  # other radii need the same directions
    problem, saddle, exact, theta = answer.problem, answer.saddle, answer.exact, answer.saddle.theta
    if run.interrupted and not answer.feasible:
        raise KeyboardInterrupt("interrupted before a density in the ball was found")
    if exact.doubt:
        fix = "a larger bandwidth of the densities, or fewer support points, keep the digits"
        warnings.warn(f"{exact.doubt}; {fix}", RuntimeWarning, stacklevel=5)
    status, note, kind, error = saddle.status, answer.note, "none", family.integration_error(theta)
    value = dual = bound = gap = constant = g = place = top = None
    if answer.feasible:
        M, unit = family.risk.true_matrix(theta), problem.units[1]
        width = float(np.ptp(to_numpy(namespace(M).linalg.eigvalsh(M))))
        value = inner(M, exact.point.C) / exact.mass
        objective = value if gamma is None else value - gamma * exact.mmd**2
        y = unit * to_numpy(saddle.y)
        unknown = problem.space.compressed_map.rounding(like(y, problem.space.T)) + error
        known = problem.in_units_of_the_loss(saddle.upper) - family.risk.penalty(theta)
        dual = _not_below(known, objective, width) + 2.0 * unknown
        if status == "solved" and 2.0 * unknown > unit * problem.target(goal, exact.point.risk):
            status = "solved_inaccurate"
            note = "; ".join(filter(None, [note, known_to(unknown, 0.0)]))
        functions, near, size = problem.space.functions(y)
        single = problem.space.labels is None
        g = functions[0] if single else functions
        # any function of the RKHS proves a bound: here, those on the landmarks
        top = proven or upper_bound(
            family.losses_at(theta),
            near,
            size,
            family.data,
            family.adversary,
            unit=width,
            radius=radius,
            gamma=gamma,
            lipschitz=family.lipschitz,
            space=problem.space if single else None,
            target=objective,
        )
        kind, place = top.kind, top.at
        bound = _not_below(top.value, objective, width, unknown, kind == "rigorous")
        gap, constant = max(dual - objective, 0.0), problem.in_units_of_the_loss(saddle.constant)
    elif status in ("solved", "solved_inaccurate"):
        status = "time_limit" if run.over else "undecided"
    if run.interrupted:  # also while the answer was mixed into the ball or bounded
        status = "interrupted"
    if saddle.least_radius is not None:
        least = saddle.least_radius
        note = f"the least radius that holds a density of this space is {least:.6g} (certified)"
    found = WorstCase(
        value=value,
        upper_bound=bound,
        upper_bound_kind=kind,
        distribution=exact.density,
        mmd=exact.mmd,
        projected_mmd=exact.point.distance,
        gap=gap,
        dual_value=dual,
        dual_function=g,
        dual_constant=constant,
        status=status,
        radius=radius,
        penalty=gamma,
        least_radius=saddle.least_radius,
        empirical_value=family.empirical_value(theta),
        integration_error=error,
        loss=family.loss_at(theta),
        embedding_kernel=problem.space.embedding_kernel,
        space=problem.space,
        upper_bound_at=place,
        n_iter=saddle.n_iter,
        time=run.elapsed,
        note=note,
    )
    return answer, found, top


def _not_below(
    bound: float, value: float, unit: float, unknown: float = 0.0, proven: bool = True
) -> float:
    """An upper bound of what a density has reached, or that value if only rounding, unknown digits
    of integrals or a search put the bound below it.
    """
    if proven and value - bound > _ROUNDING * max(abs(value), unit) + 2.0 * unknown:
        raise InternalError(
            f"the bound {bound:.9g} of the worst case lies below {value:.9g}, which a density has"
            " reached: this is a mistake of ksos, please report it; other units of the features or"
            " another bandwidth may avoid it"
        )
    return max(bound, value)


def _data_alone(ball: Ball, loss: Observable) -> WorstCase:
    """Radius 0: the data are the only distribution in the ball."""
    if not ball.is_distribution:
        raise ValueError(DATA_ALONE)
    value = float(ball.weights @ loss(ball.points))
    return WorstCase(
        value=value,
        upper_bound=value,
        upper_bound_kind="rigorous",
        loss=loss,
        embedding_kernel=ball.kernel,
        status="solved",
        radius=0.0,
        empirical_value=value,
        gap=0.0,
        dual_value=value,
        time=Run.current().elapsed,
        note="radius 0 leaves the data themselves: the value is their mean loss",
    )


def warn_if_inaccurate(name: str, found: Certified, stacklevel: int = 3) -> None:
    """Warn if the gap is above what was asked for, or if there is no value, and name the fix."""
    if found.status not in ("solved_inaccurate", "max_iter", "time_limit", "numerical_error"):
        return
    message = f"{name}: {found.message}"
    if found.value is None:
        message += "; there is no value, since no density in the ball was found"
    elif found.gap is not None and found.integration_error > 0.25 * found.gap:
        message += (
            "; most of the gap is what quadrature does not know of the loss: give a loss with"
            " closed forms, such as ksos.observables.BoxIndicator for a comparison, or data with"
            " fewer columns, or raise rtol"
        )
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def warn_if_unbounded(adversary: Adversary, loss: Observable, stacklevel: int = 3) -> None:
    """Warn if the worst case over all distributions may be infinite, and name the box that the
    value depends on.
    """
    measure = adversary.ball.domain
    if measure.bounded or loss.bounded is True:
        return
    what = "is unbounded" if loss.bounded is False else "is not known to be bounded"
    low, high = (np.round(side, 6).tolist() for side in (adversary.box.low, adversary.box.high))
    message = (
        f"the loss {loss!r} {what} on {measure!r}, so that its worst case over all distributions"
        f" may be infinite; the value is that of densities looked for in the box from {low} to"
        f" {high} and around it; pass Ball(…, domain=Box(low, high)) to say where they may go"
    )
    warnings.warn(message, UserWarning, stacklevel=stacklevel)
