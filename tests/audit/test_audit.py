"""The quick version of the audit: the first seeds of every kind. ``benchmarks/audit.py`` runs hundreds of each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import ksos
from audit import problems
from audit.interrupts import Interrupts
from audit.questions import questions
from audit.referee import Claims, Referee, Verdict
from ksos.functionals import MMD, Expectation, SquaredMMD, Trace, within
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import coordinate

INTERRUPTS = Interrupts()


@pytest.mark.parametrize("seed", range(24))
def test_minimise(seed: int) -> None:
    assert not problems.minimise(seed)


@pytest.mark.parametrize("seed", range(14))
def test_constrained(seed: int) -> None:
    pytest.importorskip("cvxpy")
    assert not problems.constrained(seed)


@pytest.mark.parametrize("seed", range(10))
def test_worst_cases(seed: int) -> None:
    pytest.importorskip("cvxpy")
    assert not problems.worst_case(seed)


@pytest.mark.parametrize("seed", range(4))
def test_robust_fits(seed: int) -> None:
    pytest.importorskip("cvxpy")
    assert not problems.robust_fit(seed)


@pytest.mark.parametrize("seed", range(8))
def test_questions(seed: int) -> None:
    count, findings = questions(seed)
    assert count >= 6 and not findings


@pytest.mark.parametrize("seed", range(20))
def test_interrupts(seed: int) -> None:
    assert not INTERRUPTS.at_a_moment(seed)


# --- a referee that finds nothing would prove nothing ---


@pytest.fixture(scope="module")
def half_way() -> tuple[Claims, Verdict, float]:
    """A problem that was left before its gap closed, and the penalty of its density."""
    X = np.random.default_rng(5).normal(size=(12, 1))
    solution = ksos.minimize(SquaredMMD(X) + 1e-2 * Trace(), ksos.SoSSpace(Gaussian(0.6), X), solver="frank_wolfe", max_iter=4)
    data = (X, np.full(12, 1 / 12))
    verdict = Referee(solution, [("squared_mmd", 1.0, data), ("trace", 1e-2, None)]).verdict()
    without = Referee(solution, [("squared_mmd", 1.0, data)]).verdict()
    return Claims.of(solution), verdict, verdict.objective - without.objective


def test_an_honest_certificate_stands(half_way: tuple[Claims, Verdict, float]) -> None:
    claims, verdict, penalty = half_way
    assert claims.gap is not None and claims.gap > 1e-4 and penalty > 1e-4
    assert not verdict.against(claims, "half-way")
    assert verdict.gap == pytest.approx(claims.gap, abs=1e-9)


@pytest.mark.parametrize(("kind", "steps"), [("mean", 3), ("ball", 5)])
def test_a_constrained_problem_left_half_way_claims_no_more_than_is_true(kind: str, steps: int) -> None:
    """No feasible density lies below the lower bound, and half of the gap would put one there."""
    X = np.random.default_rng(5).normal(scale=0.6, size=(12, 1))
    space = ksos.SoSSpace(Gaussian(0.6), X, Box([-2.0], [2.0]))
    functional, constraint = {
        "mean": (SquaredMMD(X) + 1e-2 * Trace(), Expectation(coordinate(0)) == float(X.mean()) + 0.3),
        "ball": (Expectation(coordinate(0)) + 1e-3 * Trace(), within(MMD(X), 0.2)),
    }[kind]
    half, best = (ksos.minimize(functional, space, constraint, max_iter=limit) for limit in (steps, None))
    assert half.status == "max_iter" and best.status == "solved" and half.gap is not None
    assert half.objective - half.gap <= best.objective + 1e-9 < half.objective - 0.5 * half.gap


@pytest.mark.parametrize("mutation", ["a term dropped", "a sign flipped", "half a gap", "no gap", "a status", "a mass"])
def test_mutations_of_the_certificate_are_caught(half_way: tuple[Claims, Verdict, float], mutation: str) -> None:
    claims, verdict, penalty = half_way
    assert claims.gap is not None
    mutated = {
        "a term dropped": (replace(claims, objective=claims.objective - penalty), verdict),
        "a sign flipped": (replace(claims, objective=claims.objective - 2.0 * penalty), verdict),
        "half a gap": (replace(claims, gap=0.5 * claims.gap), verdict),
        "no gap": (replace(claims, gap=0.0), verdict),
        "a status": (replace(claims, status="solved"), verdict),
        "a mass": (claims, replace(verdict, mass=1.0 + 1e-6)),
    }
    claims, verdict = mutated[mutation]
    assert verdict.against(claims, mutation)
