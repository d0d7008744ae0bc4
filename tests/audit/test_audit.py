"""The quick version of the audit: the first seeds of every kind. ``benchmarks/audit.py`` runs
hundreds of each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import eigh

import ksos
from audit import problems
from audit.interrupts import Interrupts
from audit.mixed import mixed
from audit.questions import questions
from audit.referee import LONG, Claims, Referee, Verdict, density, kernel_matrix, rule_for
from ksos.functionals import MMD, Expectation, SquaredMMD, Trace, within
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import NumericFunction, coordinate

INTERRUPTS = Interrupts()


@pytest.mark.parametrize("seed", range(16))
def test_minimise(seed: int) -> None:
    assert not problems.minimize(seed)


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


@pytest.mark.parametrize("seed", range(6))
def test_mixed_tables(seed: int) -> None:
    assert not mixed(seed)


@pytest.mark.parametrize(
    "seed", [*range(12), 36, 136, 146]
)  # the last: while a worst case is moved into its ball
def test_interrupts(seed: int) -> None:
    assert not INTERRUPTS.at_a_moment(seed)


# --- a referee that finds nothing would prove nothing ---


@pytest.fixture(scope="module")
def half_way() -> tuple[Claims, Verdict, float]:
    """A problem that was left before its gap closed, and the penalty of its density."""
    X = np.random.default_rng(5).normal(size=(12, 1))
    solution = ksos.minimize(
        SquaredMMD(X) + 1e-2 * Trace(),
        ksos.SoSSpace(Gaussian(0.6), X),
        solver="frank_wolfe",
        max_iter=4,
    )
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
def test_a_constrained_problem_left_half_way_claims_no_more_than_is_true(
    kind: str, steps: int
) -> None:
    """No feasible density lies below the lower bound, and half of the gap would put one there."""
    X = np.random.default_rng(5).normal(scale=0.6, size=(12, 1))
    space = ksos.SoSSpace(Gaussian(0.6), X, Box([-2.0], [2.0]))
    functional, constraint = {
        "mean": (
            SquaredMMD(X) + 1e-2 * Trace(),
            Expectation(coordinate(0)) == float(X.mean()) + 0.3,
        ),
        "ball": (Expectation(coordinate(0)) + 1e-3 * Trace(), within(MMD(X), 0.2)),
    }[kind]
    half, best = (
        ksos.minimize(functional, space, constraint, max_iter=limit) for limit in (steps, None)
    )
    assert half.status == "max_iter" and best.status == "solved" and half.gap is not None
    assert half.objective - half.gap <= best.objective + 1e-9 < half.objective - 0.5 * half.gap


@pytest.mark.parametrize("edge", [0.3, -0.55])
def test_what_quadrature_misses_counts(edge: float) -> None:
    """Jumps between the nodes of the library, at ends of panels of the referee: the optimum is the
    lowest eigenvalue of its pencil.
    """
    X, box = np.random.default_rng(5).normal(scale=0.6, size=(12, 1)), Box([-2.0], [2.0])
    window = NumericFunction(lambda Y: -1.0 * (np.abs(Y[:, 0] - edge) < 0.3), max_nodes=64)
    solution = ksos.minimize(Expectation(window), ksos.SoSSpace(Gaussian(0.9), X, box))
    judge = Referee(solution, [])
    rule = rule_for(box, np.concatenate([X, [[edge - 0.3], [edge + 0.3]]]), 0.4, 8.0)
    psi = kernel_matrix(solution.space.kernel, rule.nodes, X) @ judge.T
    within_it = -1.0 * (np.abs(rule.nodes[:, 0] - edge) < 0.3) * rule.weights
    M, N = (
        ((psi * (w / judge.unit)[:, None]).T @ psi).astype(float) for w in (within_it, rule.weights)
    )
    optimum, value = (
        float(eigh(M, N, eigvals_only=True)[0]),
        float(within_it @ density(solution.distribution, rule.nodes)),
    )
    assert solution.status == "solved_inaccurate" and solution.gap is not None
    assert abs(solution.objective - value) > 1e-6  # else there would be nothing to count
    assert solution.objective - solution.gap <= optimum + 1e-10 and value - optimum <= solution.gap
    assert abs(solution.objective - value) <= solution.gap


def test_what_rounding_in_the_integrals_takes_counts() -> None:
    """Weak directions in five features, where integrals are closed forms: the referee's are
    products of those of every feature.
    """
    rng = np.random.default_rng(1)
    X = np.concatenate(
        [rng.normal(scale=0.3, size=(12, 1)), 1e-2 * rng.normal(size=(12, 4))], axis=1
    )
    space = ksos.SoSSpace(Gaussian(2.0), X, Box([-1.0] * 5, [1.0] * 5))
    solution, Z, S = (
        ksos.minimize(SquaredMMD(X), space),
        np.asarray(space.landmarks),
        np.asarray(space.projection.S, LONG),
    )
    moments = np.ones((Z.shape[0], 12, 12), LONG)  # ∫ k(x, z_l) k(x, x_i) k(x, x_j) dx
    for k in range(5):
        rule = rule_for(Box([-1.0], [1.0]), X[:, [k]], 0.25, 2.0)
        at, seen = (
            kernel_matrix(kernel, rule.nodes, P[:, [k]])
            for kernel, P in ((space.kernel, X), (space.embedding_kernel, Z))
        )
        moments *= np.einsum("n,nl,ni,nj->lij", rule.weights, seen, at, at)
    factor = np.asarray(solution.distribution.factor, LONG)
    residual = S @ (
        np.einsum("lij,ij->l", moments, factor @ factor.T)
        - kernel_matrix(space.embedding_kernel, X, Z).mean(axis=0)
    )
    off = abs(solution.objective - float(residual @ residual))
    # the former: else there would be nothing to count
    assert solution.gap is not None and 1e-7 < off <= solution.gap
    assert solution.status == "solved_inaccurate"


@pytest.mark.parametrize(
    "mutation", ["a term dropped", "a sign flipped", "half a gap", "no gap", "a status", "a mass"]
)
def test_mutations_of_the_certificate_are_caught(
    half_way: tuple[Claims, Verdict, float], mutation: str
) -> None:
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
