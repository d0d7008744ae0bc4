"""ksos.worst_case: the worst distribution for a loss within an MMD ball around the data."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np

from ksos._array import inner, to_numpy
from ksos._validation import as_nonnegative, as_positive
from ksos.embedding import MeanEmbedding
from ksos.functionals import Expectation
from ksos.functionals.penalties import BoundLinear
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure
from ksos.observables import KernelFunction, Observable, as_observable
from ksos.robust.ball import BallProblem, BallSolution
from ksos.robust.exact import ExactPoint, exact_mmd, exactly, made_feasible
from ksos.robust.extended import dual_function
from ksos.robust.radius import bootstrap_radius
from ksos.robust.result import WorstCase
from ksos.robust.setting import Setting, as_setting
from ksos.robust.upper_bound import upper_bound
from ksos.space import SoSSpace

__all__ = ["AGREEMENT", "as_loss", "as_radius", "not_below", "warn_if_unbounded", "worst_case", "worst_case_in"]

AGREEMENT = 1e-6
"""Directions are added to what the landmarks see until exact and projected MMD of the answer agree to this."""
_ROUNDING = 1e-7  # of a loss, what dividing a density by its mass may move its value by
_ROUGH = 1e-4  # the gap to which problems are solved while they are added


def worst_case(
    loss: Any,
    data: Any,
    radius: Any = None,
    *,
    penalty: float | None = None,
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
    lipschitz: float | None = None,
    tol: float = 1e-8,
    time_limit: float | None = None,
) -> WorstCase:
    r"""max E_p[loss] over the sum-of-squares densities p whose MMD to the data is at most the radius.

    Parameters
    ----------
    loss : callable, Polynomial, KernelFunction, BoxIndicator or any other observable
        A function of an array (n, d) that returns n numbers; expectations of those named are closed forms, others are integrated by
        quadrature with an estimate of the error.
    data : array (n, d) or MeanEmbedding
        The centre of the ball. Weights of a MeanEmbedding may be signed.
    radius : float or "bootstrap"
        Of the ball, in MMD (not squared). "bootstrap": the ``confidence``-quantile of how far resamples of the data wander. 0 leaves only
        the data themselves: the value is their mean loss, and there is no density.
    penalty : float, optional
        γ: maximise E_p[loss] − γ·MMD(p, data)² over all densities of the space instead. Give this or the radius.
    weights : array of n floats, optional
        Of the samples.
    kernel : {"gaussian", "laplace", "matern"} or Kernel
        Of the densities and, with its own bandwidth, of the MMD. Kernels that are not Gaussian need a discrete measure.
    bandwidth : float or array, optional
        Of the densities. Default: a third of the embedding's, or as fine as the support points can carry across the domain.
    embedding_bandwidth : float or array, optional
        Of the kernel that measures MMD. Default: that of a MeanEmbedding; else ``bandwidth``; else the median distance of the samples.
    measure : Measure, optional
        The domain: a Box, a Discrete measure, …; default all of R^d.
    space : SoSSpace, optional
        Used as it is, landmarks included, instead of all that.
    n_support : int, optional
        The most support points; default 64, 144, 125 in 1, 2, 3 dimensions and 200 beyond.
    confidence, n_resamples, rng
        Of ``radius="bootstrap"``; ``rng`` is a seed or a Generator.
    lipschitz : float, optional
        A Lipschitz constant of a loss that is code: with it the upper bound is rigorous on a box.
    tol : float
        The gap at which the problem counts as solved, in units of the spread of the loss over the space.
    time_limit : float, optional
        Seconds for the solver.

    Returns
    -------
    WorstCase

    Warns
    -----
    UserWarning
        Where the loss is not known to be bounded on an unbounded domain: the worst case over all distributions may then be infinite, and
        the value depends on the box that the support points cover, which the warning names.

    Examples
    --------
    >>> from ksos.measures import Box
    >>> from ksos.observables import coordinate
    >>> X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
    >>> worst = worst_case(coordinate(0) ** 2, X, 0.3, embedding_bandwidth=1.0, measure=Box([-2.0], [2.0]))
    >>> worst.status, worst.mmd <= 0.3, worst.upper_bound_kind, bool(worst.empirical_value < worst.value <= worst.upper_bound)
    ('solved', True, 'rigorous', True)
    """
    loss = as_loss(loss)
    as_positive(tol, "tol")
    if time_limit is not None:
        as_positive(time_limit, "time_limit")
    if lipschitz is not None:
        lipschitz = as_nonnegative(lipschitz, "lipschitz")
    if (radius is None) == (penalty is None):
        raise ValueError(f"pass either a radius or a penalty; got radius={radius!r}, penalty={penalty!r}")
    penalty = None if penalty is None else as_positive(penalty, "penalty")
    if radius is not None and not isinstance(radius, str):
        radius = as_nonnegative(radius, 'radius (or "bootstrap")')
    setting = as_setting(
        data,
        weights=weights,
        kernel=kernel,
        bandwidth=bandwidth,
        embedding_bandwidth=embedding_bandwidth,
        measure=measure,
        space=space,
        n_support=n_support,
        rng=0,
    )
    if radius is not None:
        radius = as_radius(radius, setting, confidence, n_resamples, rng)
    loss.check_features(setting.reference.n_features)
    return worst_case_in(setting, loss, radius, penalty, tol=tol, time_limit=time_limit, lipschitz=lipschitz)


def as_loss(loss: Any) -> Observable:
    """A loss as an observable."""
    if isinstance(loss, MeanEmbedding):
        return KernelFunction(to_numpy(loss.points), to_numpy(loss.weights), kernel=loss.kernel)
    return as_observable(loss, "loss")


def as_radius(radius: Any, setting: Setting, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = None) -> float:
    """A radius, computed from the data where it is "bootstrap"."""
    if isinstance(radius, str):
        if radius != "bootstrap":
            raise ValueError(f'radius must be a non-negative number or "bootstrap"; got {radius!r}')
        return bootstrap_radius(setting.reference, setting.embedding.kernel, confidence=confidence, n_resamples=n_resamples, rng=rng)
    return as_nonnegative(radius, 'radius (or "bootstrap")')


def worst_case_in(
    setting: Setting,
    loss: Observable,
    radius: float | None,
    penalty: float | None = None,
    *,
    tol: float = 1e-8,
    time_limit: float | None = None,
    lipschitz: float | None = None,
    bound: bool = True,
) -> WorstCase:
    """:func:`worst_case` in a setting that exists; ``bound=False`` leaves the upper bound over all distributions out."""
    began = time.perf_counter()
    if radius == 0.0:
        return _data_alone(setting, loss)
    warn_if_unbounded(setting, loss)
    term = Expectation(loss).bind(setting.space)
    assert isinstance(term, BoundLinear)
    setting, problem, solution, found, note = _solved(setting, term.D, radius, penalty, tol, time_limit)
    space = setting.space
    if solution.keyboard_interrupt and solution.status == "interrupted" and found is None:
        raise KeyboardInterrupt("worst_case was interrupted before a density in the ball was found")
    common: dict[str, Any] = {
        "radius": radius,
        "penalty": penalty,
        "empirical_value": _empirical_value(setting, loss),
        "integration_error": term.integration_error,
        "loss": loss,
        "embedding_kernel": space.embedding_kernel,
        "space": space,
        "n_iter": solution.n_iter,
    }
    if solution.status in ("infeasible", "undecided") or found is None:
        status = solution.status if solution.status in ("infeasible", "time_limit", "interrupted") else "undecided"
        return _no_density(problem, setting, solution, status, note, time.perf_counter() - began, common)
    g, near, size = dual_function(space, to_numpy(solution.y))
    value = problem.value(found.point) / found.mass
    objective = value if penalty is None else value - penalty * found.mmd**2
    dual = not_below(solution.dual_value, objective, problem.spread)
    top: Any = None
    if bound:
        top = upper_bound(
            loss,
            near,  # any function of the RKHS will do
            size,
            setting.reference,
            space.measure,
            setting.box,
            spread=problem.spread,
            radius=radius,
            penalty=penalty,
            lipschitz=lipschitz,
            space=space,
            target=objective,
        )
    return WorstCase(
        value=value,
        upper_bound=None if top is None else not_below(top.value, objective, problem.spread),
        upper_bound_kind="none" if top is None else top.kind,
        upper_bound_at=None if top is None else top.at,
        distribution=found.density,
        mmd=found.mmd,
        projected_mmd=found.point.distance,
        gap=max(dual - objective, 0.0),
        dual_value=dual,
        dual_function=g,
        dual_constant=solution.dual_constant,
        status=solution.status,
        least_radius=None,
        time=time.perf_counter() - began,
        note=note,
        **common,
    )


def _solved(
    setting: Setting, M: Any, radius: float | None, penalty: float | None, tol: float, time_limit: float | None
) -> tuple[Setting, BallProblem, BallSolution, ExactPoint | None, str]:
    """Solve, compare exact and projected MMD, add the direction in which they differ, again; then make the answer exactly feasible."""
    ends = None if time_limit is None else time.perf_counter() + time_limit
    start, u, problem = None, 0.0, None
    rough = max(tol, _ROUGH) if setting.grows else tol
    digits = rough
    while True:
        rest = None if ends is None else max(ends - time.perf_counter(), 1e-3)
        if problem is None or problem.space is not setting.space:
            problem = BallProblem(setting.space, M, setting.embedding)
            digits = tol if start is None and problem.has_short_path else rough
        solution = _penalised(problem, penalty, digits, rest, start) if radius is None else problem.solve(radius, digits, rest, start, u)
        if solution.status in ("infeasible", "undecided"):
            return setting, problem, solution, None, ""
        found: ExactPoint | None = exactly(problem, solution.point, partial(exact_mmd, data=setting.embedding))
        assert found is not None
        start, u, apart = solution.point.C, solution.multiplier, found.mmd - found.point.distance
        differ = apart > AGREEMENT and solution.status in ("solved", "solved_inaccurate")
        sharper = setting.sharper(to_numpy(solution.point.C), found.density, found.mmd) if differ else None
        if sharper is not None:
            setting = sharper
        elif digits <= tol:
            break
        else:
            digits = tol
    note = ""
    if apart > AGREEMENT:
        note = f"exact and projected MMD differ by {apart:.1e}: the gap counts the difference"
        note += "" if setting.grows else "; give the space more landmarks, or leave the space out"
    if radius is not None:
        found = made_feasible(problem, found, solution.multiplier, radius, partial(exact_mmd, data=setting.embedding))
    return setting, problem, solution, found, note


def _penalised(problem: BallProblem, penalty: float | None, tol: float, time_limit: float | None, start: Any) -> BallSolution:
    """max ⟨M, C⟩ − γ‖A(C) − z‖², with its dual min_y λ_max(M − A*(y)) + ⟨y, z⟩ + ‖y‖²/(4γ)."""
    assert penalty is not None
    unit = problem.spread if problem.spread > 0.0 else 1.0
    u = 2.0 * penalty / unit
    point, solution = problem.penalised(u, start, 0.5 * tol, time_limit)
    y = u * (point.a - problem.z)
    _, constant = problem.dual(y, 0.0)
    dual = constant + inner(y, problem.z) + inner(y, y) / (2.0 * u)
    status = solution.status
    if status == "solved" and dual - (point.value - 0.5 * u * point.distance**2) > tol * max(1.0, u):
        status = "solved_inaccurate"
    return BallSolution(
        point=point,
        multiplier=u,
        value=problem.value(point),
        dual_value=problem.middle + unit * dual,
        dual_constant=problem.middle + unit * constant,
        y=unit * y,
        status=status,
        n_iter=solution.n_iter,
        n_solves=1,
        keyboard_interrupt=solution.keyboard_interrupt,
    )


def not_below(bound: float, value: float, spread: float) -> float:
    """An upper bound of what a density has reached; where only rounding puts it below the density's value, that value."""
    return value if 0.0 < value - bound <= _ROUNDING * max(abs(value), spread) else bound


def _data_alone(setting: Setting, loss: Observable) -> WorstCase:
    """Radius 0: the data are the only distribution in the ball."""
    if not setting.reference.is_distribution:
        raise ValueError("radius 0 leaves only the data, but their weights are not those of a distribution; pass a positive radius")
    value = float(setting.reference.weights @ loss(setting.reference.points))
    return WorstCase(
        value=value,
        upper_bound=value,
        upper_bound_kind="rigorous",
        distribution=None,
        mmd=0.0,
        projected_mmd=0.0,
        gap=0.0,
        dual_value=value,
        dual_function=None,
        dual_constant=None,
        status="solved",
        radius=0.0,
        penalty=None,
        least_radius=None,
        empirical_value=value,
        integration_error=0.0,
        loss=loss,
        embedding_kernel=setting.embedding.kernel,
        space=None,
        note="radius 0 leaves the data themselves: the value is their mean loss",
    )


def _no_density(
    problem: BallProblem, setting: Setting, solution: BallSolution, status: str, note: str, seconds: float, common: dict[str, Any]
) -> WorstCase:
    """The result where no density was found in the ball."""
    nearest = exactly(problem, solution.point, partial(exact_mmd, data=setting.embedding))
    if solution.least_radius is not None:
        note = f"the least radius that holds a density of this space is {solution.least_radius:.6g} (certified)"
    return WorstCase(
        value=None,
        upper_bound=None,
        upper_bound_kind="none",
        distribution=nearest.density,
        mmd=nearest.mmd,
        projected_mmd=nearest.point.distance,
        gap=None,
        dual_value=None,
        dual_function=None,
        dual_constant=None,
        status=status,
        least_radius=solution.least_radius,
        time=seconds,
        note=note,
        **common,
    )


def _empirical_value(setting: Setting, loss: Observable) -> float | None:
    """Σ a_i ℓ(x_i); None where the loss is not defined at all of the data, which need not lie in the domain."""
    reference = setting.reference
    inside = np.all(to_numpy(setting.measure.contains(reference.points)))
    return float(reference.weights @ loss(reference.points)) if inside else None


def warn_if_unbounded(setting: Setting, loss: Observable) -> None:
    """Say so where the worst case over all distributions may be infinite, and which box the value depends on."""
    measure = setting.measure
    if isinstance(measure, Discrete) or (isinstance(measure, Box) and measure.bounded) or loss.bounded is True:
        return
    what = "is unbounded" if loss.bounded is False else "is not known to be bounded"
    low, high = (np.round(side, 6).tolist() for side in (setting.box.low, setting.box.high))
    warnings.warn(
        f"the loss {loss!r} {what} on {measure!r}, so that its worst case over all distributions may be infinite; the value is that of "
        f"densities with support points in the box from {low} to {high}; pass measure=Box(low, high) to say where distributions may go",
        UserWarning,
        stacklevel=4,
    )
