"""ksos.minimize: check the input, choose the solver, run the loop, certify the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from ksos._array import Array, like, memory_errors, namespace, zeros
from ksos._threads import one_blas_thread
from ksos._validation import as_choice, as_count, as_positive
from ksos.embedding_map import SMALL_TENSOR
from ksos.functionals.base import Constraint, Functional
from ksos.functionals.objective import Objective
from ksos.solvers.certificate import certify
from ksos.solvers.constrained_minimize import as_constraints, minimize_constrained
from ksos.solvers.first_order import Fista, ProjectedGradient
from ksos.solvers.frank_wolfe import FrankWolfe
from ksos.solvers.interior_point import InteriorPoint
from ksos.solvers.loop import Limits, Outcome, Stepper, run
from ksos.solvers.low_rank import LowRank
from ksos.solvers.quasi_newton import QuasiNewton
from ksos.solvers.solution import Progress, Solution
from ksos.solvers.spectraplex import centre, factor, project
from ksos.space import SoSSpace

__all__ = ["SOLVERS", "check_options", "minimize"]

SOLVERS: dict[str, type[Stepper]] = {
    "low_rank": LowRank,
    "interior_point": InteriorPoint,
    "lbfgs": QuasiNewton,
    "frank_wolfe": FrankWolfe,
    "fista": Fista,
    "projected_gradient": ProjectedGradient,
}
"""Every solver by name. To add one: a class with ``init``, ``step`` and ``point`` (see loop.py), and its line here."""


def check_options(solver: str, tol: float, max_iter: int | None, time_limit: float | None) -> None:
    """Raise on options that no solver can take, before any work is done."""
    as_choice(solver, "solver", ["auto", *SOLVERS])
    as_positive(tol, "tol")
    if max_iter is not None:
        as_count(max_iter, "max_iter")
    if time_limit is not None:
        as_positive(time_limit, "time_limit")


def minimize(
    functional: Functional,
    space: SoSSpace,
    constraints: Any = (),
    *,
    solver: str = "auto",
    tol: float = 1e-8,
    max_iter: int | None = None,
    time_limit: float | None = None,
    callback: Callable[[Progress], Any] | None = None,
    verbose: int = 0,
    start: Array | None = None,
) -> Solution:
    r"""Minimise a convex functional over the densities of a space: min F(p_C) over {C ⪰ 0, tr C = 1}.

    Parameters
    ----------
    functional : Functional
        Such as ``SquaredMMD(X) + 1e-3 * Trace()``.
    space : SoSSpace
    constraints : Constraint or sequence of them, optional
        ``within(MMD(target), radius)``, ``Expectation(f) == c``, ``F <= c``, ``Expectation(f) >= c``. The solution then has multipliers,
        and its gap is that of the Lagrangian.
    solver : {"auto", "low_rank", "interior_point", "lbfgs", "fista", "projected_gradient", "frank_wolfe"}
        "low_rank": Newton's method on a factor of C with few columns, for functionals with second derivatives. "interior_point": for
        squared MMDs plus linear terms, a dozen steps of O(qr³ + q²r²) on any of them (r = space.rank, q = space.embedding_rank); with
        constraints, which may then be MMD balls and expectations, also with Frobenius penalties. "lbfgs": on a factor, by
        gradients alone. "fista"
        and "projected_gradient": the note's. "frank_wolfe": the least memory, and the most patience. "auto" begins with "low_rank" and
        hands over to "interior_point" when a low rank does not come (with constraints, "interior_point" comes first where its steps are
        cheap); it takes FISTA where neither fits.
    tol : float
        The absolute gap f(C) − f* at which the problem counts as solved, in units of the objective.
    max_iter : int, optional
        Default: the solver's own.
    time_limit : float, optional
        Seconds.
    callback : callable, optional
        Called with a :class:`~ksos.solvers.Progress` at every certificate; a true return value stops the run.
    verbose : int
        1: print progress with the gap now and then; 2: at every certificate.
    start : array (r, r), optional
        Where to start; projected on the spectraplex. Default: its centre.

    Returns
    -------
    Solution
        With a valid density and its certificate in every case; Ctrl-C gives the best point so far, with status ``"interrupted"``.

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
    if not isinstance(space, SoSSpace):
        raise TypeError(f"a ksos.SoSSpace is needed as the space; got {space!r}")
    check_options(solver, tol, max_iter, time_limit)
    with one_blas_thread(space.rank), memory_errors("use fewer support points or landmarks (n_support), or solver='fista'"):
        return _minimize(functional, space, as_constraints(constraints), solver, tol, max_iter, time_limit, callback, verbose, start)


def _minimize(
    functional: Functional,
    space: SoSSpace,
    constraints: tuple[Constraint, ...],
    solver: str,
    tol: float,
    max_iter: int | None,
    time_limit: float | None,
    callback: Callable[[Progress], Any] | None,
    verbose: int,
    start: Array | None,
) -> Solution:
    objective = Objective(functional, space)
    C = centre(space.rank, space.T) if start is None else project(_as_start(start, space.T))
    if constraints:
        names = [solver] if solver != "auto" else ["low_rank", "fista"] if objective.term.twice_differentiable else ["fista"]
        most = max(LowRank.default_max_iter, SOLVERS[names[-1]].default_max_iter)
        limits = Limits(tol, most if max_iter is None else max_iter, time_limit)
        steppers, report, warm = [SOLVERS[name]() for name in names], _printer(names[0], verbose), start is not None
        return minimize_constrained(functional, objective, constraints, solver, names[0], steppers, C, warm, limits, callback, report)
    stages = _plan(objective) if solver == "auto" else [Stage(solver, None, "asked for")]
    if max_iter is not None:
        stages = [stages[0]._replace(steps=max_iter)]
    outcome, spent, ran = None, 0.0, []
    for name, steps, why in stages:
        ran.append(f"{name}: {why}")
        rest = None if time_limit is None else max(time_limit - spent, 1e-3)
        limits = Limits(tol, SOLVERS[name].default_max_iter if steps is None else steps, rest)
        latest = _run(functional, objective, name, C, limits, callback, verbose)
        outcome = latest if outcome is None else _joined(outcome, latest)
        if outcome.status != "max_iter":
            break
        C, spent = outcome.point.C, outcome.history[-1].time
    assert outcome is not None
    return _solution(objective, outcome, tol, name, "; then ".join(ran))


class Stage(NamedTuple):
    """A solver, how many steps it is given (None: its own limit), and why it was chosen."""

    solver: str
    steps: int | None
    why: str


def _plan(objective: Objective) -> list[Stage]:
    """The solvers that "auto" tries in turn, each from where the one before has stopped after so many steps.

    Newton on a factor comes first. When its steps become many, columns come and go: there is no low rank, and the interior point does not
    mind. A Frobenius penalty on an untruncated space spreads the optimum over all directions; that is well conditioned, or it is not: FISTA
    soon tells.
    """
    term, space = objective.term, objective.space
    if not term.twice_differentiable:
        return [Stage("fista", None, "the functional has no second derivatives")]
    if term.as_quadratic() is not None and space.tensor_size <= SMALL_TENSOR:
        entries = f"{space.embedding_rank}×{space.rank}×{space.rank}"
        return [
            Stage(
                "low_rank",
                80,
                f"the functional is quadratic and its tensor of {entries} entries fits, so Newton steps on few columns are cheap",
            ),
            Stage("interior_point", None, "80 steps on few columns did not close the gap, and it does not need a low rank"),
        ]
    if not term.quadratic and term.factor_gradient(zeros((space.rank, 1), space.T)) is not None:
        return [
            Stage("lbfgs", 1500, "steps on few columns need no matrix, and cost next to nothing"),
            Stage("low_rank", None, "1500 steps did not close the gap, and second derivatives do"),
        ]
    if space.rank == space.support_points.shape[0] and term.factor_hessian(zeros((space.rank, 1), space.T)) is not None:
        return [
            Stage("fista", 1500, "a Frobenius penalty on an untruncated space spreads the optimum over all directions"),
            Stage("low_rank", None, "1500 gradient steps did not close the gap"),
        ]
    if term.as_quadratic() is not None:
        return [Stage("low_rank", None, f"rank {space.rank} with {space.embedding_rank} coordinates is too large for a stored tensor")]
    return [Stage("low_rank", None, "the functional has second derivatives and is not quadratic in the embedding")]


def _run(
    functional: Functional,
    objective: Objective,
    name: str,
    C: Array,
    limits: Limits,
    callback: Callable[[Progress], Any] | None,
    verbose: int,
) -> Outcome:
    stepper = SOLVERS[name]()
    if reason := stepper.refusal(objective.term):
        raise ValueError(f"solver={name!r} cannot take {functional!r}: it {reason}")
    if name in ("low_rank", "interior_point") and objective.term.uses_embedding:
        # Newton steps feel rounding that changes from point to point; the interior point needs the tensor anyway.
        objective.compressed = name == "interior_point" or objective.space.tensor_size <= SMALL_TENSOR
    return run(stepper, objective, C, limits, callback, _printer(name, verbose))


def _joined(first: Outcome, second: Outcome) -> Outcome:
    """One outcome of two runs, the second having begun where the first ended."""
    n_iter, seconds = first.n_iter, first.history[-1].time
    later = [progress._replace(n_iter=progress.n_iter + n_iter, time=progress.time + seconds) for progress in second.history]
    return Outcome(second.point, second.status, n_iter + second.n_iter, [*first.history, *later], second.keyboard)


def _solution(objective: Objective, outcome: Outcome, tol: float, name: str, reason: str) -> Solution:
    """Certify C afresh, as the factor that is returned, and put the solution together."""
    G, status = factor(outcome.point.C), outcome.status
    certificate, certified = certify(objective, objective.point(G @ G.T)), objective.term.convex
    if status == "solved" and certificate.gap > tol:
        status = "solved_inaccurate"
    elif status == "solved" and not certified:
        status = "stationary"
    return Solution(
        distribution=objective.space.density(G),
        objective=certificate.objective,
        gap=certificate.gap if certified else None,
        gap_relative=certificate.gap_relative if certified else None,
        projected_mmd_bound=objective.projected_mmd_bound(certificate.gap) if certified else None,
        status=status,
        solver=name,
        solver_reason=reason,
        n_iter=outcome.n_iter,
        history=outcome.history,
        space=objective.space,
        parameter_factor=G,
        time=outcome.history[-1].time if outcome.history else 0.0,
        keyboard_interrupt=outcome.keyboard,
        integration_error=objective.term.integration_error,
    )


def _as_start(start: Any, T: Array) -> Array:
    start, r, xp = like(start, T), T.shape[1], namespace(T)
    if tuple(start.shape) != (r, r) or not bool(xp.all(xp.isfinite(start))):
        raise ValueError(f"start must be a finite {r}×{r} matrix; got shape {tuple(start.shape)}")
    return 0.5 * (start + start.T)


def _printer(name: str, verbose: int) -> Callable[[Progress], None] | None:
    """Progress lines with the gap: whenever it has fallen by a factor of two (verbose=1), or always (verbose=2)."""
    if not verbose:
        return None
    last = math.inf

    def report(progress: Progress) -> None:
        nonlocal last
        if verbose >= 2 or progress.gap <= 0.5 * last:
            last = progress.gap
            n, f, gap, seconds = progress
            print(f"[{name}] iteration {n:6d}  objective {f:.9e}  gap {gap:.2e}  {seconds:.2f} s")

    return report
