"""ksos.worst_case: the worst distribution for a loss within an MMD ball around the data; and how
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
from ksos.ground.arrays import inner, like, namespace, to_numpy
from ksos.ground.deadline import Deadline
from ksos.ground.progress import shown
from ksos.ground.threads import one_blas_thread
from ksos.ground.validation import as_nonnegative, as_positive
from ksos.kernels import Kernel
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.robust.ball import Adversary, Ball, adversary_in
from ksos.robust.exact_ball import Answer, in_the_exact_ball
from ksos.robust.problem import Goal, Problem, Saddle
from ksos.robust.risk import FixedRisk, Risk
from ksos.robust.upper_bound import upper_bound
from ksos.solvers import STATUSES
from ksos.solvers.constrained import known_to
from ksos.space.embedding import MeanEmbedding
from ksos.space.labelled import LabelledEmbedding
from ksos.space.space import SoSSpace

__all__ = [
    "AGREEMENT",
    "ROBUST_STATUSES",
    "Certified",
    "Family",
    "FixedLoss",
    "WorstCase",
    "as_goal",
    "attack",
    "worst_case",
]

AGREEMENT = 1e-6
"""Directions are added to what the landmarks see until exact and projected MMD of the answer agree
to this.
"""
DATA_ALONE = (
    "radius 0 leaves only the data, but their weights are not those of a distribution; pass a"
    " positive radius"
)
_ROUNDING = 1e-7  # of a loss, what dividing a density by its mass may move its value by

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
    """A result with a status, a gap where one is proven, and a note on what else there is to say."""

    status: str
    gap: float | None
    note: str

    @property
    def message(self) -> str:
        """The status in a sentence."""
        certified = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        return f"{self.status}, {certified}: {ROBUST_STATUSES[self.status]}" + (
            f"; {self.note}" if self.note else ""
        )


@dataclass(frozen=True)
class WorstCase(Certified):
    """The result of :func:`ksos.worst_case`. Three numbers bound the worst case from three sides:

    * ``value`` belongs to a density whose exact MMD to the data is at most the radius: a *lower*
      bound of the worst case over all
      distributions, and what the density can be asked for;
    * ``dual_value`` is at least the optimum over the densities of the space in the projected ball;
      ``gap`` = ``dual_value`` − ``value``;
    * ``upper_bound`` bounds the worst case over all distributions of the domain.

    >>> import ksos
    >>> ball = ksos.Ball([[0.0], [0.5]], 0.5, domain=ksos.measures.Box([-1.0], [1.0]))
    >>> worst: WorstCase = ksos.worst_case(ksos.observables.coordinate(0), ball)
    >>> worst.status, worst.empirical_value < worst.value <= worst.dual_value <= worst.upper_bound
    ('solved', True)
    """

    value: float | None
    """E_p[loss] of :attr:`distribution`; None if the ball holds no density."""
    upper_bound: float | None
    """sup(loss − g) + ⟨g, data⟩ + radius·‖g‖ for the dual function g: no distribution in the ball
    does worse.
    """
    upper_bound_kind: str
    """"rigorous", "estimate" (the supremum was searched for, not proven) or "infinite"; "none" if
    the ball holds no density.
    """
    distribution: Any
    """The worst density, an :class:`~ksos.SoSDensity` or with labels a
    :class:`~ksos.space.labelled.LabelledDensity`; of an infeasible problem the one that is nearest
    to the data; None at radius 0, which leaves the data alone.
    """
    mmd: float
    """The exact MMD between :attr:`distribution` and the data."""
    projected_mmd: float
    """The same as the landmarks see it."""
    gap: float | None
    """dual_value − value (for the penalised problem: − objective)."""
    dual_value: float | None
    dual_function: Any = field(repr=False)
    """g, an observable of the RKHS, or with labels a list of one per label: dual_constant + g
    majorises the loss in the order of sums of squares of the space.
    """
    dual_constant: float | None
    status: str
    """One of :data:`ROBUST_STATUSES`."""
    radius: float | None
    penalty: float | None
    """γ, if value − γ·MMD² was maximised instead."""
    least_radius: float | None
    """Of an infeasible problem: the certified radius below which the ball holds no density of the
    space.
    """
    empirical_value: float | None
    """The expectation of the loss under the data themselves; None if they do not all lie in the
    domain.
    """
    integration_error: float
    """How far ``value`` may be off because the loss was integrated by quadrature, estimated; 0 for
    closed forms.
    """
    loss: Observable = field(repr=False)
    embedding_kernel: Kernel = field(repr=False)
    space: SoSSpace | None = field(repr=False)
    upper_bound_at: np.ndarray | None = field(repr=False, default=None)
    """Where loss − g is largest."""
    n_iter: int = 0
    time: float = 0.0
    """Seconds of the whole call."""
    note: str = ""
    """What else there is to say about the status."""

    @property
    def objective(self) -> float | None:
        """What was maximised: the value, or value − penalty·MMD²."""
        if self.value is None or self.penalty is None:
            return self.value
        return self.value - self.penalty * self.mmd**2

    def summary(self) -> dict[str, Any]:
        """What is certified, as plain numbers and words."""
        names = [
            "status",
            "value",
            "gap",
            "dual_value",
            "upper_bound",
            "upper_bound_kind",
            "mmd",
            "projected_mmd",
            "radius",
            "penalty",
        ]
        names += ["least_radius", "empirical_value", "integration_error"]
        return {name: getattr(self, name) for name in names}


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
        support points can carry across the domain.
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
        Largest gap in units of the spread of the loss over the densities of the space. The problem
        is solved at a gap of max(tol, rtol·spread).
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
        If the gap is larger than requested, with the reason and a suggested fix.

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
    deadline = Deadline(time_limit)
    loss, goal = as_loss(loss), as_goal(tol, rtol)
    lipschitz = None if lipschitz is None else as_nonnegative(lipschitz, "lipschitz")
    penalty = None if penalty is None else as_positive(penalty, "penalty")
    adversary = adversary_in(ball, bandwidth, space, n_support)
    if math.isinf(ball.radius) != (penalty is not None):
        raise ValueError(
            "pass either a finite radius or Ball(data, math.inf) with a penalty; got"
            f" radius={ball.radius!r}, penalty={penalty!r}"
        )
    loss.check_features(ball.n_features)
    if ball.radius == 0.0:
        return _data_alone(ball, loss, deadline)
    warn_if_unbounded(adversary, loss)
    family = FixedLoss(adversary, loss, lipschitz)
    radius = ball.radius if penalty is None else None
    found = attack(family, radius, goal, deadline, gamma=penalty)[1]
    warn_if_inaccurate(found)
    names = ball.feature_names
    return (
        found
        if names is None or found.distribution is None
        else replace(found, distribution=found.distribution.with_feature_names(names))
    )


def as_goal(tol: Any, rtol: Any) -> Goal:
    """The gap that is asked for, checked."""
    return Goal(0.0 if tol is None else as_positive(tol, "tol"), as_positive(rtol, "rtol"))


def as_loss(loss: Any) -> Observable:
    """A loss as an observable."""
    if isinstance(loss, MeanEmbedding):
        return KernelFunction(to_numpy(loss.points), to_numpy(loss.weights), kernel=loss.kernel)
    return as_observable(loss, "loss")


# --- losses in a setting ---


class Family(ABC):
    """Losses ℓ(θ, ·) in a setting: what a robust problem is about. Subclasses say what the risk is."""

    risk: Risk
    agreement = AGREEMENT
    lipschitz: float | None = None

    def __init__(
        self,
        adversary: Adversary,
        labels: np.ndarray | None = None,
        data: LabelledEmbedding | None = None,
    ) -> None:
        """With labels, ``data`` is the centre of the ball."""
        self.adversary = adversary
        self.space = adversary.space if labels is None else adversary.space.with_labels(labels)
        self.data: MeanEmbedding | LabelledEmbedding = (
            adversary.ball.embedding if data is None else data
        )

    def typical_theta(self) -> np.ndarray:
        """A parameter that suits the data."""
        return np.zeros(0)

    @cached_property
    def problem(self) -> Problem:
        """The problem for any radius, with what the landmarks see."""
        return Problem(
            self.space,
            self.risk,
            self.data,
            self.typical_theta(),
            self.adversary.grows,
            self.agreement,
        )

    @abstractmethod
    def loss_at(self, theta: np.ndarray) -> Observable:
        """x ↦ ℓ(θ, x)."""

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        """The same, one function of x per label."""
        return [self.loss_at(theta)]

    @abstractmethod
    def integration_error(self, theta: np.ndarray) -> float:
        """How far expectations of ℓ(θ, ·) may be off; 0 for closed forms."""

    def empirical_value(self, theta: np.ndarray) -> float | None:
        """The mean loss of the data; None if they do not all lie in the domain."""
        ball = self.adversary.ball
        inside = bool(np.all(to_numpy(ball.domain.contains(ball.points))))
        return float(ball.weights @ self.loss_at(theta)(ball.points)) if inside else None


class FixedLoss(Family):
    """One loss: no parameter."""

    risk: FixedRisk

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

    def integration_error(self, theta: np.ndarray) -> float:
        return self._error


@np.errstate(under="ignore")
@one_blas_thread(0)
@shown("worst case", "setting up")
def attack(
    family: Family,
    radius: float | None,
    goal: Goal,
    deadline: Deadline,
    start: Saddle | None = None,
    *,
    gamma: float | None = None,
    problem: Problem | None = None,
) -> tuple[Answer, WorstCase]:
    """The answer in the exact ball, and the worst case that it is; ``problem`` is the family's,
    with directions added to it.
    """
    answer = in_the_exact_ball(
        family.problem if problem is None else problem, radius, goal, deadline, start, gamma
    )
    problem, saddle, exact, theta = answer.problem, answer.saddle, answer.exact, answer.saddle.theta
    if exact.doubt:
        remedy = "a larger bandwidth of the densities, or fewer support points, keep the digits"
        warnings.warn(f"{exact.doubt}; {remedy}", RuntimeWarning, stacklevel=6)
    if saddle.keyboard_interrupt and not answer.feasible:
        raise KeyboardInterrupt("interrupted before a density in the ball was found")
    value = objective = dual = g = top = None
    status, note, error = saddle.status, answer.note, family.integration_error(theta)
    if answer.feasible:
        M, unit = family.risk.true_matrix(theta), problem.units[1]
        ends = to_numpy(namespace(M).linalg.eigvalsh(M))
        spread = float(ends[-1] - ends[0])
        value = inner(M, exact.point.C) / exact.mass
        objective = value if gamma is None else value - gamma * exact.mmd**2
        y = unit * to_numpy(saddle.y)
        rounding = problem.space.compressed_map.rounding(like(y, problem.space.T))
        unknown = rounding + error
        dual = (
            _not_below(
                problem.in_units_of_the_loss(saddle.upper) - family.risk.penalty(theta),
                objective,
                spread,
            )
            + 2.0 * unknown
        )
        if status == "solved" and 2.0 * unknown > unit * problem.target(goal, exact.point.risk):
            status, note = (
                "solved_inaccurate",
                "; ".join(filter(None, [note, known_to(unknown, 0.0)])),
            )
        functions, near, size = problem.space.coordinates.functions(y)
        g = functions if problem.space.labels is not None else functions[0]
        space, target = (problem.space, objective) if problem.fixed else (None, math.inf)
        top = upper_bound(  # any function of the RKHS proves a bound: here, those on the landmarks
            family.losses_at(theta),
            near,
            size,
            family.data,
            family.adversary,
            deadline,
            spread=spread,
            radius=radius,
            gamma=gamma,
            lipschitz=family.lipschitz,
            space=space,
            target=target,
        )
    elif status in ("solved", "solved_inaccurate"):
        status = "time_limit" if deadline.passed else "undecided"
    if saddle.least_radius is not None:
        note = (
            f"the least radius that holds a density of this space is {saddle.least_radius:.6g}"
            " (certified)"
        )
    bound = (
        None
        if top is None or objective is None
        else _not_below(top.value, objective, spread, rounding + error, top.kind == "rigorous")
    )
    gap = None if dual is None or objective is None else max(dual - objective, 0.0)
    constant = None if gap is None else problem.in_units_of_the_loss(saddle.dual_constant)
    return answer, WorstCase(
        value=value,
        upper_bound=bound,
        upper_bound_kind="none" if top is None else top.kind,
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
        upper_bound_at=None if top is None else top.at,
        n_iter=saddle.n_iter,
        time=deadline.elapsed,
        note=note,
    )


def _not_below(
    bound: float, value: float, spread: float, unknown: float = 0.0, proven: bool = True
) -> float:
    """An upper bound of what a density has reached; if only rounding, or what is not known of its
    integrals, puts it below the density's value, or if it was not proven, that value.
    """
    if proven and value - bound > _ROUNDING * max(abs(value), spread) + 2.0 * unknown:
        raise InternalError(
            f"the bound {bound:.9g} of the worst case lies below {value:.9g}, which a density has"
            " reached: this is a mistake of ksos, please report it; other units of the features or"
            " another bandwidth may avoid it"
        )
    return max(bound, value)


def _data_alone(ball: Ball, loss: Observable, deadline: Deadline) -> WorstCase:
    """Radius 0: the data are the only distribution in the ball."""
    if not ball.is_distribution:
        raise ValueError(DATA_ALONE)
    value = float(ball.weights @ loss(ball.points))
    return WorstCase(
        value,
        value,
        "rigorous",
        None,
        0.0,
        0.0,
        0.0,
        value,
        None,
        None,
        "solved",
        0.0,
        None,
        None,
        value,
        0.0,
        loss,
        ball.kernel,
        None,
        time=deadline.elapsed,
        note="radius 0 leaves the data themselves: the value is their mean loss",
    )


def warn_if_inaccurate(found: WorstCase, stacklevel: int = 3) -> None:
    """Say so if there is a density in the ball whose gap is above what was asked for, and name the
    remedy.
    """
    if (
        found.status not in ("solved_inaccurate", "max_iter", "time_limit", "numerical_error")
        or found.gap is None
    ):
        return
    message = f"worst_case: {found.message}"
    if found.integration_error > 0.25 * found.gap:
        remedy = (
            "a loss with closed forms, such as ksos.observables.BoxIndicator for a comparison, or"
            " data with fewer columns"
        )
        message += (
            f"; most of the gap is what quadrature does not know of the loss: give {remedy}, or"
            " raise rtol"
        )
    warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)


def warn_if_unbounded(adversary: Adversary, loss: Observable, stacklevel: int = 3) -> None:
    """Say so if the worst case over all distributions may be infinite, and name the box the value
    depends on.
    """
    measure = adversary.measure
    if measure.bounded or loss.bounded is True:
        return
    what = "is unbounded" if loss.bounded is False else "is not known to be bounded"
    low, high = (np.round(side, 6).tolist() for side in (adversary.box.low, adversary.box.high))
    where = (
        f"in the box from {low} to {high}; pass Ball(…, domain=Box(low, high)) to say where distributions"
        " may go"
    )
    message = (
        f"the loss {loss!r} {what} on {measure!r}, so that its worst case over all distributions"
        " may be infinite"
    )
    warnings.warn(
        f"{message}; the value is that of densities with support points {where}",
        UserWarning,
        stacklevel=stacklevel,
    )
