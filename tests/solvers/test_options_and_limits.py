"""Laws of every solver, with and without constraints: options, the deadline, Ctrl-C, callbacks that
raise.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import time
from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from tables import SOLVER_CASES, SOLVER_OPTIONS, points

import ksos
from ksos import solvers
from ksos.functionals import (
    MMD,
    BoundTerm,
    Constraint,
    Expectation,
    Functional,
    NegativeLogLikelihood,
    SquaredMMD,
    Trace,
    within,
)
from ksos.ground import Run
from ksos.kernels import Gaussian
from ksos.observables import coordinate
from ksos.solvers import LBFGS, SOLVERS, Auto, InteriorPoint, LowRank, Progress, Solver

X = points(14, 2, 1)
SPACE = ksos.SoSSpace(Gaussian(0.8), points(14, 2))
PROBLEM = SquaredMMD(X) + 1e-3 * Trace()
CONSTRAINTS: dict[str, list[Constraint]] = {
    "free": [],
    "linear": [Expectation(coordinate(0)) == 0.1],
    "ball": [within(MMD(X), 0.3), Expectation(coordinate(0)) <= 0.05],
}
every_solver = pytest.mark.parametrize("solver", SOLVER_CASES)
every_problem = pytest.mark.parametrize("constraints", CONSTRAINTS.values(), ids=CONSTRAINTS)


def assert_valid(solution: ksos.Solution) -> None:
    assert np.trace(solution.parameter) == pytest.approx(1.0, abs=1e-12)
    assert np.all(np.isfinite(solution.parameter_factor)) and np.isfinite(solution.objective)
    assert solution.distribution.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert solution.gap is None or solution.gap >= 0.0


def test_every_option_of_every_solver_is_listed() -> None:
    assert {type(solver) for solver in SOLVERS.values()} | {Auto} == set(SOLVER_OPTIONS)
    for kind, options in SOLVER_OPTIONS.items():
        names = {option.name for option in fields(kind)}  # type: ignore[arg-type]
        assert {*options, "callback"} == names


@pytest.mark.parametrize("kind", SOLVER_OPTIONS)
def test_every_solver_carries_a_callback(kind: type[Solver]) -> None:
    seen: list[ksos.Progress] = []
    solution = ksos.minimize(PROBLEM, SPACE, solver=kind(callback=seen.append), tol=1e-2)
    assert seen and seen == solution.history and kind(callback=seen.append) != kind()
    own: list[ksos.Progress] = []
    count = len(seen)
    ksos.minimize(PROBLEM, SPACE, solver=kind(callback=seen.append), tol=1e-2, callback=own.append)
    assert own and len(seen) == count, "the argument of minimize wins"
    with pytest.raises(TypeError, match=f"callback of {kind.__name__} must be None or a function"):
        kind(callback="print")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"max_iter of {kind.__name__} must be at least 1; got 0"):
        kind(max_iter=0)  # type: ignore[call-arg]


_SLOW = (solvers.ProjectedGradient, solvers.FrankWolfe, solvers.Fista)


@pytest.mark.parametrize(
    ("kind", "option"),
    [(kind, option) for kind, options in SOLVER_OPTIONS.items() for option in options],
)
def test_every_option_changes_something_observable(kind: type[Solver], option: str) -> None:
    default = kind()
    other = replace(default, **{option: SOLVER_OPTIONS[kind][option]})  # type: ignore[type-var]
    assert stories_of(other) != stories_of(default)
    if option == "max_columns":
        assert all(rank <= 1 for _, _, _, rank, _ in stories_of(other))


@cache
def stories_of(solver: Solver) -> list[tuple[str, int, int, int, float]]:
    """What can be seen of two runs; those of default options are asked for again and again."""
    tol = 1e-3 if isinstance(solver, _SLOW) else 1e-6 if isinstance(solver, LBFGS) else 1e-9
    out = []
    for functional in (PROBLEM, NegativeLogLikelihood(X) + 0.05 * Trace(relative=True)):
        if isinstance(solver, InteriorPoint) and functional is not PROBLEM:
            continue
        found = ksos.minimize(functional, SPACE, solver=solver, tol=tol)
        out.append((found.status, found.n_iter, len(found.history), found.rank, found.objective))
    return out


@pytest.mark.parametrize("kind", SOLVER_OPTIONS)
def test_solvers_are_values(kind: type[Solver]) -> None:
    for solver in (kind(), kind(**SOLVER_OPTIONS[kind])):
        assert solver == pickle.loads(pickle.dumps(solver)) == copy.deepcopy(solver) and hash(
            solver
        ) == hash(copy.deepcopy(solver))
        assert eval(repr(solver), vars(solvers)) == solver
        est = clone(ksos.KernelSoSDensity(solver=solver, n_support=10, tol=1e-3))
        assert est.get_params()["solver"] == solver
    assert kind() != kind(**SOLVER_OPTIONS[kind])
    assert kind().name == "auto" or SOLVERS[kind().name] == kind()


def test_a_name_is_short_for_the_default_object_and_the_table_cannot_be_changed() -> None:
    for name, solver in SOLVERS.items():
        by_name, by_object = (
            ksos.minimize(PROBLEM, SPACE, solver=which, tol=1e-3) for which in (name, solver)
        )
        assert (
            by_name.history[-1].objective == by_object.history[-1].objective
            and by_name.solver == by_object.solver == name
        )
    with pytest.raises(TypeError):
        SOLVERS["fista"] = LowRank()  # type: ignore[index]
    est = ksos.KernelSoSDensity(solver=LowRank(max_columns=1), bandwidth=0.5, tol=3e-2).fit(X)
    assert est.solution_.rank == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LowRank(max_columns=0), "max_columns of LowRank must be at least 1; got 0"),
        (lambda: LowRank(extra_steps=-1), "extra_steps of LowRank must be at least 0"),
        (
            lambda: solvers.Fista(check_every=2.5),
            "check_every of Fista must be a whole number; got 2.5",
        ),
        (
            lambda: InteriorPoint(step_fraction=1.0),
            "step_fraction of InteriorPoint must lie between 0 and 1; got 1.0",
        ),
        (lambda: ksos.minimize(PROBLEM, SPACE, rtol=-1.0), "rtol must be non-negative"),
        (lambda: ksos.minimize(PROBLEM, SPACE, time_limit=0.0), "time_limit must be positive"),
        (
            lambda: ksos.minimize(PROBLEM, SPACE, start=np.zeros((SPACE.rank, 2))),
            "start must not be a factor of zeros",
        ),
    ],
)
def test_refuses_options_without_a_meaning(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_class_is_not_a_solver() -> None:
    with pytest.raises(TypeError, match=r"such as LowRank\(\); got the class itself"):
        ksos.minimize(PROBLEM, SPACE, solver=LowRank)  # type: ignore[arg-type]


@every_problem
@every_solver
@pytest.mark.parametrize("ticks", [1, 30])
def test_one_deadline_ends_every_stage(
    solver: str, constraints: list[Constraint], ticks: int
) -> None:
    """A clock that ticks whenever somebody looks at it: nobody goes on for more than a step after
    the time is up.
    """
    clock = itertools.count()
    with Run(ticks, clock=lambda: next(clock)):
        solution = ksos.minimize(PROBLEM, SPACE, constraints, solver=solver, tol=1e-13)
    assert solution.status in ("time_limit", "solved")
    assert solution.time <= ticks + 25
    assert [progress.time for progress in solution.history] == sorted(
        progress.time for progress in solution.history
    )
    assert all(progress.time < solution.time for progress in solution.history)
    assert_valid(solution)


@every_problem
@every_solver
def test_a_tiny_time_limit_gives_a_valid_density(
    solver: str, constraints: list[Constraint]
) -> None:
    began = time.perf_counter()
    solution = ksos.minimize(PROBLEM, SPACE, constraints, solver=solver, tol=1e-13, time_limit=1e-6)
    assert solution.status == "time_limit" and solution.n_iter <= 1
    assert 1e-6 < solution.time <= time.perf_counter() - began
    assert_valid(solution)


class Slow(SquaredMMD):
    """Whose binding takes a second by the clock that it is given."""

    def __init__(self, target: Any, now: list[float]) -> None:
        super().__init__(target)
        self.now = now

    def bind(self, space: ksos.SoSSpace) -> BoundTerm:
        self.now[0] += 1.0
        return super().bind(space)


def test_the_binding_of_the_functional_counts() -> None:
    now = [0.0]
    with Run(clock=lambda: now[0]):
        solution = ksos.minimize(Slow(X, now), SPACE, tol=1e-13, time_limit=0.5)
    assert (solution.status, solution.n_iter, solution.time) == ("time_limit", 0, 1.0)
    assert solution.history[0].time == 1.0


class Interrupting(Functional):
    """Ctrl-C at the n-th evaluation."""

    def __init__(self, functional: Functional, n: int) -> None:
        self.functional, self.n, self.calls = functional, n, 0

    def bind(self, space: ksos.SoSSpace) -> BoundTerm:
        return InterruptingTerm(self, self.functional.bind(space))

    def count(self) -> None:
        self.calls += 1
        if self.calls == self.n:
            raise KeyboardInterrupt


class InterruptingTerm(BoundTerm):
    quadratic = twice_differentiable = uses_embedding = True

    def __init__(self, owner: Interrupting, term: BoundTerm) -> None:
        self.owner, self.term = owner, term

    def value(self, a: Any, C: Any) -> float:
        self.owner.count()
        return self.term.value(a, C)

    def gradient(self, a: Any, C: Any) -> Any:
        self.owner.count()
        return self.term.gradient(a, C)

    def hessian(self, a: Any, C: Any, da: Any, dC: Any) -> Any:
        return self.term.hessian(a, C, da, dC)

    def conic_form(self) -> Any:
        return self.term.conic_form()


@every_problem
@every_solver
def test_ctrl_c_anywhere_gives_the_best_point_so_far(
    solver: str, constraints: list[Constraint]
) -> None:
    """At the start, in a solver's first step, in phase 1, in the rounds, in the certificate at the
    end: after n evaluations, for many n.
    """
    options = {"tol": 3e-3, "max_iter": 60}
    counter = Interrupting(PROBLEM, -1)
    ksos.minimize(counter, SPACE, constraints, solver=solver, **options)
    assert counter.calls > 3
    for n in {1, 2, 3, 5, 9, counter.calls // 2, counter.calls - 1, counter.calls}:
        functional = Interrupting(PROBLEM, n)
        solution = ksos.minimize(functional, SPACE, constraints, solver=solver, **options)
        assert functional.calls >= n
        assert solution.status == "interrupted" and solution.keyboard_interrupt, n
        assert_valid(solution)


@every_problem
@every_solver
@pytest.mark.parametrize("error", [RuntimeError("mine"), np.linalg.LinAlgError("mine")], ids=repr)
def test_what_a_callback_raises_passes_through(
    solver: str, constraints: list[Constraint], error: Exception
) -> None:
    def raising(progress: Progress) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        ksos.minimize(PROBLEM, SPACE, constraints, solver=solver, callback=raising)
    assert raised.value is error


@every_problem
def test_after_a_callback_that_raised_nothing_is_broken(constraints: list[Constraint]) -> None:
    before = ksos.minimize(PROBLEM, SPACE, constraints, tol=1e-7)
    with pytest.raises(ZeroDivisionError):
        ksos.minimize(PROBLEM, SPACE, constraints, callback=lambda progress: 1 // 0)
    after = ksos.minimize(PROBLEM, SPACE, constraints, tol=1e-7)
    assert (before.objective, before.gap, before.n_iter) == (
        after.objective,
        after.gap,
        after.n_iter,
    )


@every_problem
@every_solver
def test_a_callback_sees_the_density(solver: str, constraints: list[Constraint]) -> None:
    masses = []

    def look(progress: Progress) -> bool:
        assert np.trace(progress.parameter) == pytest.approx(1.0)
        masses.append(progress.distribution.terms.mass())
        return len(masses) == 3

    solution = ksos.minimize(
        PROBLEM, SPACE, constraints, solver=solver, tol=1e-300, max_iter=100, callback=look
    )
    assert masses == pytest.approx([1.0] * len(masses)) and masses
    assert all(progress.parameter is None for progress in solution.history), (
        "the history keeps no matrices"
    )
    with pytest.raises(ValueError, match="inside a callback"):
        _ = solution.history[0].distribution


def test_what_cannot_end_in_time_is_not_begun() -> None:
    """The eigenvectors of the landmarks alone would take a hundred times the limit."""
    X = np.random.default_rng(0).normal(size=(1200, 10))
    space = ksos.SoSSpace(Gaussian(2.0), X[:300], landmarks=X)
    limit = 0.002
    began = time.process_time()
    solution = ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(relative=True), space, time_limit=limit)
    assert time.process_time() - began <= 1.5 * limit + 0.5
    assert solution.status == "time_limit" and solution.gap is None and np.isnan(solution.objective)
    assert (
        solution.distribution.terms.mass() == pytest.approx(1.0)
        and "the eigendecomposition of a kernel matrix of 1200 points" in solution.message
    )


def test_a_step_that_would_end_too_late_is_not_begun() -> None:
    """A clock by which every look takes a second: the first certificate takes some, and the first
    step is expected to take thrice that.
    """
    ticks = iter(range(10**6))
    with Run(clock=lambda: float(next(ticks))):
        solution = ksos.minimize(PROBLEM, SPACE, tol=1e-12, time_limit=12.0)
    free = ksos.minimize(PROBLEM, SPACE, tol=1e-12)
    assert (
        solution.status == "time_limit"
        and solution.n_iter < free.n_iter
        and solution.gap >= free.gap
    )


def test_the_default_tolerance_is_that_of_the_objective() -> None:
    likelihood = NegativeLogLikelihood(X) + 0.1 * Trace(relative=True)
    found, asked = ksos.minimize(likelihood, SPACE), ksos.minimize(likelihood, SPACE, tol=1e-9)
    assert found.status == asked.status == "solved" and asked.gap <= 1e-9 < found.gap <= 1e-5
    assert (30.0 * likelihood + Trace()).natural_tol == pytest.approx(3e-4), (
        "in the units of the sum"
    )
    assert ksos.minimize(PROBLEM, SPACE).gap <= 1e-8
    estimator = ksos.KernelSoSDensity(objective="likelihood").fit(X)
    assert estimator.solution_.gap <= 1e-5


def test_a_run_that_hardly_gains_ends_soon() -> None:
    """A clock that runs ever faster makes every step slow: gaps that are not halved in twice the
    time until then are not waited for.
    """

    def faster() -> Run:
        ticks = itertools.count()
        return Run(clock=lambda: 1.005 ** next(ticks))

    asked: dict[str, Any] = {"solver": "fista", "tol": 1e-30}
    with faster():
        slow = ksos.minimize(PROBLEM, SPACE, **asked)
    with Run(clock=lambda: 0.0):
        quick = ksos.minimize(PROBLEM, SPACE, **asked)
    assert slow.status == "solved_inaccurate" and "raise tol" in slow.message
    assert slow.n_iter < quick.n_iter
    assert_valid(slow)
    with faster():
        told = ksos.minimize(PROBLEM, SPACE, max_iter=slow.n_iter + 1, **asked)
    assert told.status == "max_iter" and told.n_iter == slow.n_iter + 1, (
        "a limit of steps that is given rules"
    )
