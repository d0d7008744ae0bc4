"""ksos.minimize: check the input, choose the solver, run the loop, certify the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ksos.functionals.base import Constraint, Functional
from ksos.functionals.objective import Objective, Point
from ksos.ground.arrays import Array, eye, like, memory_errors, namespace, norm, zeros
from ksos.ground.deadline import Deadline, as_time_limit
from ksos.ground.run import Convergence, Run, TimeUp, left_in_words
from ksos.ground.threads import one_blas_thread
from ksos.ground.validation import as_choice, as_count, as_nonnegative, as_positive
from ksos.solvers.certificate import certify_integrals
from ksos.solvers.constrained_minimize import (
    Goal,
    as_constraints,
    assembled,
    known_to,
    minimize_constrained,
)
from ksos.solvers.eigenvalues import DENSE
from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient
from ksos.solvers.interior_point import InteriorPoint
from ksos.solvers.lbfgs import LBFGS
from ksos.solvers.loop import Outcome, Solver, Stage, Stepper, Watch, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.solution import Progress, Solution
from ksos.solvers.spectraplex import centre, factor, project, pruned
from ksos.space.embedding_map import SMALL_TENSOR
from ksos.space.space import SoSSpace

__all__ = ["SOLVERS", "Auto", "as_solver", "check_options", "minimize"]

SOLVERS: Mapping[str, Stepper] = MappingProxyType(
    {
        solver.name: solver
        for solver in (
            LowRank(),
            InteriorPoint(),
            LBFGS(),
            FrankWolfe(),
            Fista(),
            ProjectedGradient(),
        )
    }
)
"""Every solver by name, with its default options. To add one: a class with ``init``, ``step`` and
``point`` (see loop.py), listed here.
"""


_SECONDS_BETWEEN = 2.0  # lines of progress
_LEAST_TOL = 1e-8  # the default gap of a functional whose units say nothing


@dataclass(frozen=True, kw_only=True)
class Auto(Solver):
    """Choose the solvers by the functional and the space, and hand over from one to the next when
    the first does not get there.

    Newton on a factor comes first. When its steps become many, columns come and go: there is no low
    rank, and the interior point does not need one. A Frobenius penalty on an untruncated space
    spreads the optimum over all directions; FISTA soon tells how well conditioned that is.
    ``max_iter``: the most steps of the first solver, without another one after it.
    ``newton_steps``: how many steps "low_rank" takes before "interior_point" takes over.
    ``gradient_steps``: how many "lbfgs" or "fista" take before "low_rank" takes over.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> ksos.minimize(SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace(), space, solver=Auto(newton_steps=20)).status
    'solved'
    """

    name = "auto"
    max_iter: int | None = None
    newton_steps: int = 80
    gradient_steps: int = 1500

    def plan(self, objective: Objective) -> Sequence[Stage]:
        """The solvers that are tried in turn."""
        term, space, low_rank, fista = (
            objective.term,
            objective.space,
            SOLVERS["low_rank"],
            SOLVERS["fista"],
        )
        if not term.twice_differentiable:
            return [Stage(fista, None, "the functional has no second derivatives")]
        if term.as_quadratic() is not None and space.tensor_size <= SMALL_TENSOR:
            entries = f"{space.embedding_rank}×{space.rank}×{space.rank}"
            first = (
                f"the functional is quadratic and its tensor of {entries} entries fits, so Newton"
                " steps on few columns are cheap"
            )
            then = (
                f"steps on few columns, {self.newton_steps} at most, did not close the gap, and it"
                " does not need a low rank"
            )
            return [
                Stage(low_rank, self.newton_steps, first),
                Stage(SOLVERS["interior_point"], None, then),
            ]
        if not term.quadratic and term.matrix_free:
            first = "steps on few columns need no matrix, and cost next to nothing"
            then = f"{self.gradient_steps} steps did not close the gap, and second derivatives do"
            return [
                Stage(SOLVERS["lbfgs"], self.gradient_steps, first),
                Stage(low_rank, None, then),
            ]
        if (
            space.rank == space.support_points.shape[0]
            and term.factor_hessian(zeros((space.rank, 1), space.T)) is not None
        ):
            first = (
                "a Frobenius penalty on an untruncated space spreads the optimum over all"
                " directions"
            )
            then = f"{self.gradient_steps} gradient steps did not close the gap"
            return [Stage(fista, self.gradient_steps, first), Stage(low_rank, None, then)]
        large = (
            f"rank {space.rank} with {space.embedding_rank} coordinates is too large for a stored"
            " tensor"
        )
        other = "the functional has second derivatives and is not quadratic in the embedding"
        return [Stage(low_rank, None, other if term.as_quadratic() is None else large)]

    def inner_solvers(self, objective: Objective) -> Sequence[Stepper]:
        """Newton on a factor if there are second derivatives, and FISTA."""
        return [
            SOLVERS[name]
            for name in (
                ["low_rank", "fista"] if objective.term.twice_differentiable else ["fista"]
            )
        ]


def as_solver(solver: Any) -> Solver:
    """A solver object as it is, or the one of that name with default options."""
    if isinstance(solver, type):
        raise TypeError(
            f"solver must be a name or an object such as {solver.__name__}(); got the class itself"
        )
    if isinstance(solver, Solver):
        return solver
    return Auto() if as_choice(solver, "solver", ["auto", *SOLVERS]) == "auto" else SOLVERS[solver]


def check_options(
    solver: str | Solver,
    tol: float | None,
    max_iter: int | None,
    time_limit: float | Deadline | None,
    rtol: float = 0.0,
) -> None:
    """Raise on options that no solver can take, before any work is done."""
    as_solver(solver)
    if tol is not None:
        as_positive(tol, "tol")
    as_nonnegative(rtol, "rtol")
    if max_iter is not None:
        as_count(max_iter, "max_iter")
    Deadline.of(time_limit)


def minimize(
    functional: Functional,
    space: SoSSpace,
    constraints: Any = (),
    *,
    solver: str | Solver = "auto",
    tol: float | None = None,
    rtol: float = 0.0,
    max_iter: int | None = None,
    time_limit: float | Deadline | None = None,
    callback: Watch | None = None,
    verbose: int = 0,
    start: Array | None = None,
) -> Solution:
    r"""Minimise a convex functional over the densities of a space: min F(p_C) over {C ⪰ 0, tr C =
    1}.

    Parameters
    ----------
    functional : Functional
        Such as ``SquaredMMD(X) + 1e-3 * Trace()``.
    space : SoSSpace
    constraints : Constraint or sequence of them, optional
        ``within(MMD(target), radius)``, ``Expectation(f) == c``, ``F <= c``, ``Expectation(f) >=
        c``. The solution then has multipliers, and its gap is that of the Lagrangian.
    solver : {"auto", "low_rank", "interior_point", "lbfgs", "fista", "projected_gradient",
    "frank_wolfe"} or a solver object
        "low_rank": Newton's method on a factor of C with few columns, for functionals with second
        derivatives. "interior_point": for squared MMDs plus linear terms, a dozen steps of O(qr³ +
        q²r²) on any of them (r = space.rank, q = space.embedding_rank); with constraints, which may
        then be MMD balls and expectations, also with Frobenius penalties. "lbfgs": on a factor, by
        gradients alone. "fista" and "projected_gradient": the note's. "frank_wolfe": needs the
        least memory, and so many steps that it reaches a gap of 1e-4, not of 1e-8. "auto" begins
        with "low_rank" and hands over to "interior_point" if a low rank does not come (with
        constraints, "interior_point" comes first if its steps are cheap); it takes FISTA if neither
        fits. A name is short for an object of :mod:`ksos.solvers` with default options:
        ``solver=LowRank(max_columns=40)``.
    tol : float, optional
        The absolute gap f(C) − f* at which the problem counts as solved, in units of the objective.
        Default: what is small in these, 1e-5 nats for a likelihood and 1e-8 for everything else. A
        solver without a limit of steps that no longer gets there ends as "solved_inaccurate".
    rtol : float
        The same relative to ``|f|``: the problem counts as solved when the gap is at most
        ``max(tol, rtol * abs(f))``.
    max_iter : int, optional
        Default: the solver's own.
    time_limit : float, optional
        Seconds for the whole call, the binding of the functional included. What cannot be
        interrupted, such as the eigenvectors of a large matrix, is not begun if it would end more
        than a quarter of the limit late; if that leaves no time for a first certificate, the
        density is any one of the space, with objective NaN and no gap. Or a running
        :class:`~ksos.ground.deadline.Deadline`.
    callback : callable, optional
        Called with a :class:`~ksos.solvers.Progress` at every certificate; a true return value
        stops the run. What it raises passes through. ``progress.distribution`` is the density at
        that moment.
    verbose : int
        1: print progress with the gap and the time left now and then; 2: at every certificate.
    start : array (r, r) or (r, k) with k < r, optional
        Where to start: C, which is projected on the spectraplex, or a factor G with C = GGᵀ.
        Default: the centre of the spectraplex.

    Returns
    -------
    Solution
        With a valid density and its certificate in every case; Ctrl-C gives the best point so far,
        with status ``"interrupted"``.

    Examples
    --------
    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> solution = minimize(SquaredMMD(X) + 1e-3 * Trace(), SoSSpace(Gaussian(1.0), X))
    >>> solution.status, bool(solution.gap <= 1e-8)
    ('solved', True)
    """
    deadline = Deadline.of(time_limit).stage()
    if not isinstance(space, SoSSpace):
        raise TypeError(f"a ksos.SoSSpace is needed as the space; got {space!r}")
    check_options(solver, tol, max_iter, time_limit, rtol)
    solver = as_solver(solver)
    if max_iter is None and isinstance(solver, Auto):
        max_iter = solver.max_iter  # that of an algorithm is its own, in its loop
    callback = solver.callback if callback is None else callback
    quiet, remedy = (
        np.errstate(under="ignore"),
        "use fewer support points or landmarks (n_support), or solver='fista'",
    )
    with (
        Run(as_time_limit(time_limit), "minimize", "setting up", verbose=verbose),
        quiet,
        one_blas_thread(space.rank),
        memory_errors(remedy),
    ):  # kernels vanish far away, whatever is said
        try:
            limits = as_constraints(constraints)
            return _minimize(
                functional,
                space,
                limits,
                solver,
                tol,
                Goal(0.0, rtol, max_iter, None),
                deadline,
                (verbose, callback),
                start,
            )
        except TimeUp as late:
            return _unanswered(space, deadline, solver.name, str(late))


def _minimize(
    functional: Functional,
    space: SoSSpace,
    limits: Sequence[Constraint],
    solver: Solver,
    tol: float | None,
    goal: Goal,
    deadline: Deadline,
    told: tuple[int, Watch | None],
    start: Array | None,
) -> Solution:
    """The same, all arguments being checked; ``told`` are verbose and callback. It raises TimeUp if
    there is no answer in time.
    """
    objective = Objective.of(functional, space, deadline=deadline)
    tol = max(_LEAST_TOL, functional.natural_tol) if tol is None else tol
    _, rtol, max_iter, _ = goal = goal._replace(tol=tol)
    given = None if start is None else _as_start(start, space.T)
    if limits:
        watch = _watcher(solver.inner_solvers(objective)[0].name, *told, tol)
        return minimize_constrained(
            objective, limits, solver, given, goal._replace(watch=watch), repr(functional)
        )
    stages, ran = list(solver.plan(objective)), []
    outcome = Outcome(given or Point(centre(space.rank, space.T), None), "max_iter", 0, [])
    if max_iter is not None:
        stages = [stages[0]._replace(steps=max_iter)]
    for stage in stages:
        if reason := stage.solver.refusal(objective.term):
            raise ValueError(
                f"solver={stage.solver.name!r} cannot take {functional!r}: it {reason}"
            )
        ran.append(f"{stage.solver.name}: {stage.why}")
        watch = _watcher(stage.solver.name, *told, tol, outcome.n_iter)
        objective = stage.solver.prepared(objective)
        latest = run(
            stage.solver,
            objective,
            outcome.point,
            tol,
            stage.steps,
            rtol=rtol,
            watch=watch,
            others=stage is not stages[-1],
        )
        later = [
            replace(progress, n_iter=progress.n_iter + outcome.n_iter)
            for progress in latest.history
        ]
        outcome = replace(
            latest, n_iter=outcome.n_iter + latest.n_iter, history=[*outcome.history, *later]
        )
        if outcome.status != "max_iter":
            break
    aim = max(tol, rtol * abs(outcome.history[-1].objective)) if outcome.history else tol
    try:
        return _solution(objective, outcome, aim, stage.solver, "; then ".join(ran))
    except KeyboardInterrupt:  # only the certificate is missing
        return _solution(
            objective,
            replace(outcome, status="interrupted", keyboard=True),
            aim,
            stage.solver,
            "; then ".join(ran),
        )


def _unanswered(space: SoSSpace, deadline: Deadline, name: str, why: str) -> Solution:
    """A density of the space, the square of its smoothest function, where there is no time for
    more.
    """
    G, note = (
        eye(space.rank, space.T)[:, -1:],
        f"{why}: the density returned is one of the space, and nothing is known of its objective",
    )
    return Solution(
        math.nan, None, None, "time_limit", name, 0, [], space, G, time=deadline.elapsed, note=note
    )


def _solution(
    objective: Objective, outcome: Outcome, tol: float, solver: Stepper, reason: str
) -> Solution:
    """Certify C as the factor that is returned, afresh unless its solver does without, and put the
    solution together.

    What is said of the point is computed with the stored tensor, if that is small and its rounding
    less than that of sums over pairs.
    """
    known, status = outcome.point.F, outcome.status
    G = factor(outcome.point.C) if known is None else pruned(known, 1e-14)
    afresh = (
        solver.certifies_ends
        or known is None
        or outcome.point.lowest is None
        or G.shape != known.shape
    )
    if status == "time_limit" and outcome.history and objective.size > DENSE:
        # it is late: what the run has computed there must do
        afresh = afresh and outcome.point.G is None
    elif (better := objective.rounded_well()) is not objective:
        objective, afresh = better, True
    point = objective.point(G @ G.T, G) if afresh else outcome.point
    found, certified = certify_integrals(objective, point, tol), objective.term.convex
    if status == "solved" and (found.gap > tol or not certified):
        status = "solved_inaccurate" if found.gap > tol else "stationary"
    elif status == "solved_inaccurate" and certified and found.gap <= tol:
        # where rounding hid it from the run, the closer look at the end has seen it
        status = "solved"
    gap = found.gap if certified else None
    note = known_to(found.unknown, tol) or (solver.advice if status == "max_iter" else "")
    return assembled(
        objective,
        outcome,
        G,
        found.objective,
        gap,
        status,
        solver.name,
        solver_reason=reason,
        note=note,
    )


def _as_start(start: Any, T: Array) -> Point:
    start, r, xp = like(start, T), T.shape[1], namespace(T)
    if (
        start.ndim != 2
        or start.shape[0] != r
        or start.shape[1] > r
        or start.shape[1] == 0
        or not bool(xp.all(xp.isfinite(start)))
    ):
        raise ValueError(
            f"start must be a finite {r}×{r} matrix, or a factor of it with {r} rows; got shape"
            f" {tuple(start.shape)}"
        )
    if start.shape[1] == r:
        return Point(project(0.5 * (start + start.T)), None)
    if not (size := norm(start)) > 0.0:
        raise ValueError("start must not be a factor of zeros: give it mass, or leave start out")
    F = start / size
    return Point(F @ F.T, None, F=F)


def _watcher(
    name: str, verbose: int, callback: Watch | None, tol: float, n_before: int = 0
) -> Watch | None:
    """Progress lines with the gap, whenever it has fallen by a factor of two (verbose=1) or always
    (verbose=2), and then the callback.

    A line also comes when there has been none for two seconds. Without ``verbose`` it is the line
    of a terminal that is told.
    """
    if not verbose and callback is None and not Run.current().shown:
        return None
    last, printed, convergence = math.inf, -math.inf, Convergence(tol)

    def watch(progress: Progress) -> Any:
        nonlocal last, printed
        progress = replace(progress, n_iter=progress.n_iter + n_before)
        left = convergence.left(progress.time, progress.gap)
        Run.current().tell(
            f"iteration {progress.n_iter}, objective {progress.objective:.6e}, gap"
            f" {progress.gap:.1e}",
            left=left,
        )
        if verbose >= 2 or (
            verbose and (progress.gap <= 0.5 * last or progress.time > printed + _SECONDS_BETWEEN)
        ):
            last, printed = progress.gap, progress.time
            where = f"[{name}] iteration {progress.n_iter:6d}"
            numbers = (
                f"objective {progress.objective:.9e}  gap {progress.gap:.2e}  {progress.time:.2f} s"
            )
            print(f"{where}  {numbers}{left_in_words(left)}", flush=True)
        return callback is not None and _truth(callback(progress))

    return watch


def _truth(answer: Any) -> bool:
    """Whether a callback wants to stop."""
    try:
        return bool(answer)
    except Exception as error:
        raise TypeError(
            f"a callback must return something that is true or false, such as None; got {answer!r}"
        ) from error
