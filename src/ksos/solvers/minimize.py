"""ksos.minimize: check the input, choose the solver, run the loop, certify the answer; paths of
fits that start from one another, and fits to tables of which cells are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from ksos.functionals import (
    Bound,
    Constraint,
    Functional,
    Objective,
    Point,
    RowLikelihood,
    Trace,
)
from ksos.ground import (
    Array,
    Run,
    TimeUp,
    as_choice,
    as_count,
    as_nonnegative,
    as_positive,
    eye,
    like,
    memory_errors,
    namespace,
    norm,
    one_blas_thread,
    zeros,
)
from ksos.solvers.constrained import Goal, minimize_constrained
from ksos.solvers.first_order import Fista, FrankWolfe, ProjectedGradient
from ksos.solvers.interior_point import InteriorPoint
from ksos.solvers.lbfgs import LBFGS
from ksos.solvers.loop import (
    Outcome,
    Progress,
    Solution,
    Solver,
    Stage,
    Stepper,
    Watch,
    assembled,
    iterate,
    known_to,
)
from ksos.solvers.low_rank import LowRank
from ksos.solvers.spectraplex import DENSE, center, certify_integrals, factor, project, pruned
from ksos.space import SMALL_TENSOR, MixedSpace, SoSSpace

_STEPPERS = (LowRank(), InteriorPoint(), LBFGS(), FrankWolfe(), Fista(), ProjectedGradient())
#: Every solver by name, with its default options. To add one: a class with ``init`` and ``step``
#: (see loop.py), listed here.
SOLVERS: Mapping[str, Stepper] = MappingProxyType({solver.name: solver for solver in _STEPPERS})


@dataclass(frozen=True, kw_only=True)
class Auto(Solver):
    """Choose the solvers by the functional and the space, and hand over from one to the next when
    the first does not get there.

    Newton on a factor comes first. When its steps become many, columns come and go: there is no low
    rank, and the interior point does not need one. A Frobenius penalty on an untruncated space
    spreads the optimum over all directions, and FISTA comes first.
    ``max_iter``: the most steps of the first solver, without another one after it.
    ``newton_steps``: how many steps "low_rank" takes before "interior_point" takes over.
    ``gradient_steps``: how many "lbfgs" or "fista" take before "low_rank" takes over.

    >>> import ksos
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), [[0.0], [1.0]])
    >>> functional = SquaredMMD([[0.3], [1.0]]) + 1e-3 * Trace()
    >>> ksos.minimize(functional, space, solver=Auto(newton_steps=20)).status
    'solved'
    """

    name = "auto"
    max_iter: int | None = None
    newton_steps: int = 80
    gradient_steps: int = 1500

    # the solvers that are tried in turn
    def plan(self, objective: Objective) -> Sequence[Stage]:
        term, space, low_rank = objective.term, objective.space, SOLVERS["low_rank"]
        if not term.twice_differentiable:
            why = "the functional has no second derivatives"
            return [Stage(SOLVERS["fista"], None, why)]
        quadratic = term.embedding_quadratic is not None
        if quadratic and space.tensor_size <= SMALL_TENSOR:
            entries = f"{space.embedding_rank}×{space.rank}×{space.rank}"
            first = (
                f"the functional is quadratic and its tensor of {entries} entries fits, so Newton"
                " steps on few columns are cheap"
            )
            then = (
                f"steps on few columns, {self.newton_steps} at most, did not close the gap, and it"
                " does not need a low rank"
            )
            interior_point = Stage(SOLVERS["interior_point"], None, then)
            return [Stage(low_rank, self.newton_steps, first), interior_point]
        if not term.quadratic and term.matrix_free:
            first = "steps on few columns need no matrix, and cost next to nothing"
            then = f"{self.gradient_steps} steps did not close the gap, and second derivatives do"
            lbfgs = Stage(SOLVERS["lbfgs"], self.gradient_steps, first)
            return [lbfgs, Stage(low_rank, None, then)]
        untruncated = space.rank == space.support_points.shape[0]
        if untruncated and term.factor_hessian(zeros((space.rank, 1), space.T)) is not None:
            first = (
                "a Frobenius penalty on an untruncated space spreads the optimum over all"
                " directions"
            )
            then = f"{self.gradient_steps} gradient steps did not close the gap"
            return [
                Stage(SOLVERS["fista"], self.gradient_steps, first),
                Stage(low_rank, None, then),
            ]
        why = "the functional has second derivatives and is not quadratic in the embedding"
        if quadratic:
            size = f"rank {space.rank} with {space.embedding_rank} coordinates"
            why = f"{size} is too large for a stored tensor"
        return [Stage(low_rank, None, why)]

    def inner_solvers(self, objective: Objective) -> Sequence[Stepper]:
        newton = [SOLVERS["low_rank"]] if objective.term.twice_differentiable else []
        return [*newton, SOLVERS["fista"]]


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
    rtol: float = 0.0,
) -> None:
    """Raise on options that no solver can take, before any work is done."""
    as_solver(solver)
    if tol is not None:
        as_positive(tol, "tol")
    as_nonnegative(rtol, "rtol")
    if max_iter is not None:
        as_count(max_iter, "max_iter")


def as_constraints(constraints: Any) -> tuple[Constraint, ...]:
    """One constraint or several, as a tuple."""
    listed = tuple(constraints) if isinstance(constraints, Iterable) else (constraints,)
    for constraint in listed:
        if not isinstance(constraint, Constraint):
            raise TypeError(
                "constraints are written within(MMD(target), radius), Expectation(f) == c, F <= c"
                " or Expectation(f) >= c (for a combination of functions: Expectation(f + 2 * g)"
                f" == c); got {constraint!r}"
            )
    return listed


def minimize(
    functional: Functional,
    space: SoSSpace,
    constraints: Any = (),
    *,
    solver: str | Solver = "auto",
    tol: float | None = None,
    rtol: float = 0.0,
    max_iter: int | None = None,
    time_limit: float | None = None,
    callback: Watch | None = None,
    verbose: int = 0,
    start: Array | None = None,
) -> Solution:
    r"""Minimize a convex functional over the densities of a space: min F(p_C) over {C ⪰ 0, tr C =
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
        gradients alone. "fista" and "projected_gradient": those of the paper. "frank_wolfe": needs
        the least memory, and so many steps that it reaches a gap of 1e-4, not of 1e-8. "auto"
        begins with "low_rank" and hands over to "interior_point" if a low rank does not come (with
        constraints, "interior_point" comes first if it can take them); it takes FISTA if neither
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
        density is any one of the space, with objective NaN and no gap.
    callback : callable, optional
        Called with a :class:`~ksos.solvers.Progress` at every certificate; a true return value
        stops the run. What it raises passes through. ``progress.distribution`` is the density at
        that moment.
    verbose : int
        1: print progress with the gap and the time left now and then; 2: at every certificate.
    start : array (r, r) or (r, k) with k < r, optional
        Where to start: C, which is projected on the spectraplex, or a factor G with C = GGᵀ.
        Default: the center of the spectraplex.

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
    if not isinstance(space, SoSSpace | MixedSpace):
        raise TypeError(f"a ksos.SoSSpace is needed as the space; got {space!r}")
    check_options(solver, tol, max_iter, rtol)
    solver = as_solver(solver)
    if max_iter is None and isinstance(solver, Auto):
        max_iter = solver.max_iter  # that of an algorithm is its own, in its loop
    callback = solver.callback if callback is None else callback
    fix = "use fewer support points or landmarks (n_support), or solver='fista'"
    with (
        Run(time_limit, "minimize", "setting up", verbose=verbose) as run,
        np.errstate(under="ignore"),  # kernels vanish far away, whatever the caller's settings
        one_blas_thread(space.rank),
        memory_errors(fix),
    ):
        try:
            limits = as_constraints(constraints)
            objective = Objective.of(functional, space)
            # without units that say more, half of all digits
            tol = max(1e-8, functional.natural_tol) if tol is None else tol
            given = None if start is None else _as_start(start, space.T)
            watched = partial(_watcher, verbose, callback)
            if limits:
                watch = watched(solver.inner_solvers(objective)[0].name)
                goal, name = Goal(tol, rtol, max_iter, watch), repr(functional)
                finish = minimize_constrained(objective, limits, solver, given, goal, name)
            else:
                stages = list(solver.plan(objective))
                if max_iter is not None:
                    stages = [stages[0]._replace(steps=max_iter)]
                begin = given or Point(center(space.rank, space.T), None)
                finish = _minimize(objective, stages, begin, tol, rtol, watched, repr(functional))
            return run.complete(finish)
        except TimeUp as late:
            return _unanswered(space, solver.name, str(late))


def _minimize(
    objective: Objective,
    stages: Sequence[Stage],
    start: Point,
    tol: float,
    rtol: float,
    watched: Callable[[str, int], Watch | None],
    name_of_f: str,
) -> Callable[[], Solution]:
    """Let one solver after the other go on from where the last has stopped. What is returned
    certifies the point that they found.

    It raises TimeUp if there is no answer in time.
    """
    outcome, ran = Outcome(start, "max_iter", 0, []), []
    for stage in stages:
        stage.solver.require(objective.term, name_of_f)
        ran.append(f"{stage.solver.name}: {stage.why}")
        objective, before = stage.solver.prepared(objective), outcome.n_iter
        latest = iterate(
            stage.solver,
            objective,
            outcome.point,
            tol,
            stage.steps,
            rtol=rtol,
            watch=watched(stage.solver.name, before),
            others=stage is not stages[-1],
        )
        later = [replace(seen, n_iter=seen.n_iter + before) for seen in latest.history]
        outcome = replace(latest, n_iter=before + latest.n_iter, history=[*outcome.history, *later])
        if outcome.status != "max_iter":
            break
    aim = max(tol, rtol * abs(outcome.history[-1].objective)) if outcome.history else tol
    return partial(_solution, objective, outcome, aim, stage.solver, "; then ".join(ran))


def _unanswered(space: SoSSpace, name: str, why: str) -> Solution:
    """A density of the space, the square of its smoothest function, where there is no time for
    more.
    """
    G = eye(space.rank, space.T)[:, -1:]
    note = f"{why}: the density returned is one of the space, and nothing is known of its objective"
    time = Run.current().elapsed
    return Solution(math.nan, None, None, "time_limit", name, 0, [], space, G, time=time, note=note)


def _solution(
    objective: Objective, outcome: Outcome, tol: float, solver: Stepper, reason: str
) -> Solution:
    """Certify C as the factor that is returned, afresh unless its solver does without, and put the
    solution together.

    What is reported of the point is computed with the stored tensor, if that is small and its
    rounding less than that of sums over pairs.
    """
    known, status = outcome.point.F, outcome.status
    # 1e-16: samples of little weight live on columns of as little mass
    G = factor(outcome.point.C) if known is None else pruned(known, 1e-16)
    kept = known is not None and G.shape == known.shape and outcome.point.lowest is not None
    afresh = solver.certifies_ends or not kept
    if status == "time_limit" and outcome.history and objective.space.rank > DENSE:
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
    more = {"solver_reason": reason, "note": note}
    return assembled(objective, outcome, G, found.objective, gap, status, solver.name, **more)


def _as_start(start: Any, T: Array) -> Point:
    start, r, xp = like(start, T), T.shape[1], namespace(T)
    shaped = start.ndim == 2 and start.shape[0] == r and 0 < start.shape[1] <= r
    if not shaped or not bool(xp.all(xp.isfinite(start))):
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


def _watcher(verbose: int, callback: Watch | None, name: str, n_before: int = 0) -> Watch | None:
    """Progress lines with the gap, whenever it has fallen by a factor of two (verbose=1) or always
    (verbose=2), and then the callback.

    A line also comes when there has been none for two seconds. Without ``verbose`` the line of a
    terminal shows the same.
    """
    run = Run.current()
    if not verbose and callback is None and not run.shown:
        return None
    last, printed = math.inf, -math.inf

    def watch(progress: Progress) -> Any:
        nonlocal last, printed
        progress = replace(progress, n_iter=progress.n_iter + n_before)
        n_iter, objective = progress.n_iter, progress.objective
        gap, time = progress.gap, progress.time
        run.tell(f"iteration {n_iter}, objective {objective:.6e}, gap {gap:.1e}")
        # slow runs print every two seconds all the same
        due = gap <= 0.5 * last or time > printed + 2.0
        if verbose >= 2 or (verbose and due):
            last, printed = gap, time
            numbers = f"objective {objective:.9e}  gap {gap:.2e}  {time:.2f} s"
            print(f"[{name}] iteration {n_iter:6d}  {numbers}", flush=True)
        return callback is not None and _truth(callback(progress))

    return watch


# whether a callback wants to stop
def _truth(answer: Any) -> bool:
    try:
        return bool(answer)
    except Exception as error:
        raise TypeError(
            f"a callback must return something that is true or false, such as None; got {answer!r}"
        ) from error


def regularization_path(
    functional: Functional,
    penalty: Functional,
    strengths: Sequence[float],
    space: SoSSpace,
    constraints: Any = (),
    **options: Any,
) -> list[Solution]:
    """min F + λ·P for every λ in ``strengths``: one :class:`Solution` for each, in the order given.

    The mass matrix, its whitening, the tensor and the sums over the data are formed once; a
    :class:`~ksos.functionals.Bound` functional or penalty is used as it is. Problems are solved
    from the largest λ down, each started at the factor found before it: ranks grow as λ falls, and
    there is little left to do. ``options`` are those of :func:`ksos.minimize`; ``tol``, ``rtol``
    and ``max_iter`` may be sequences, one entry per strength; a ``start`` is that of the first
    problem; a ``time_limit`` is that of the whole path.

    Examples
    --------
    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> from ksos.functionals import SquaredMMD, Trace
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> space = SoSSpace(Gaussian(1.0), X)
    >>> path = regularization_path(SquaredMMD(X), Trace(), [1e-3, 1e-2, 1e-1], space)
    >>> [solution.status for solution in path], path[0].objective < path[2].objective
    (['solved', 'solved', 'solved'], True)
    """
    values = [as_nonnegative(strength, "every strength of the penalty") for strength in strengths]
    several = ("tol", "rtol", "max_iter")  # options of which there may be one for each strength
    each = {
        name: options.pop(name)
        for name in several
        if isinstance(options.get(name), (Sequence, np.ndarray))
    }
    for name, given in each.items():
        if len(given) != len(values):
            raise ValueError(
                f"{name} must be one number or one per strength; got {len(given)} for {len(values)}"
                " strengths"
            )
    fixed, weighted = (
        part if isinstance(part, Bound) else Bound(part.bind(space), repr(part))
        for part in (functional, penalty)
    )
    found: dict[int, Solution] = {}
    with Run(options.pop("time_limit", None), "regularization_path") as run:
        for i in sorted(range(len(values)), key=lambda i: -values[i]):
            total = fixed + values[i] * weighted if values[i] > 0.0 else fixed
            own = {name: given[i] for name, given in each.items()}
            found[i] = minimize(total, space, constraints, **options, **own)
            if run.interrupted and len(found) < len(values):
                raise KeyboardInterrupt(
                    f"interrupted at strength {values[i]:g}; {len(found) - 1} of {len(values)}"
                    " problems came before it"
                )
            G = found[i].parameter_factor
            options["start"] = G if G.shape[1] < space.rank else found[i].parameter
    return [found[i] for i in range(len(values))]


def fit_to_cells(
    space: MixedSpace,
    u: np.ndarray,
    c: np.ndarray,
    weights: np.ndarray,
    strength: float,
    tol: float | None,
) -> Solution:
    """The certified minimum of −Σ a_i log p(o_i) + λ tr A over the rows with numeric cells ``u``
    and codes ``c``, relative to the reference; λ, the ``strength``, is in natural units, and ∞
    leaves the constant alone.
    """
    rows = RowLikelihood(*space.factors(u, c), weights)
    functional: Functional = Bound(rows, f"NegativeLogLikelihood({u.shape[0]} rows)")
    if 0.0 < strength < np.inf:
        functional = functional + strength * Trace(relative=True)
    # far below what rows can tell, as for complete ones
    one = cast("SoSSpace", space)  # of which the solver needs no embedding
    return minimize(functional, one, tol=1e-5 if tol is None else tol, solver=LBFGS())
