"""The negative log-likelihood: its value by definition, its derivatives, its certificate, and what
happens where p vanishes.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from strategies import clouds
from tables import THIN_PAIR_CASES, PairCase, points, some_point, value

import ksos
from ksos.functionals import NegativeLogLikelihood, Objective, Trace, check_gradient
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Box
from ksos.solvers import factor

SPACE = ksos.SoSSpace(Gaussian(1.0), points(8, 2))
X = points(12, 2, 1)


@pytest.mark.parametrize("case", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)
def test_it_is_the_mean_negative_log_density(case: PairCase) -> None:
    space = ksos.SoSSpace(case.kernel, points(4, case.d, 2), case.measure, tol_model=1e-7)
    candidates = points(60, case.d, 3)
    data = candidates[case.measure.contains(candidates)][:7]
    if data.shape[0] == 0:  # a discrete measure: its own atoms
        data = case.measure.points[:7]
    weights = np.arange(data.shape[0])  # the first does not count
    C = some_point(space.rank)
    expected = -np.average(space.density(factor(C)).logpdf(data), weights=weights)
    assert value(NegativeLogLikelihood(data, weights), space, C) == pytest.approx(
        expected, rel=1e-9
    )
    assert value(NegativeLogLikelihood(data, 3.0 * weights), space, C) == pytest.approx(
        expected, rel=1e-9
    )


def test_derivatives() -> None:
    functional = NegativeLogLikelihood(X, np.linspace(0.2, 1.0, 12))
    check = check_gradient(functional, SPACE)
    assert check.gradient < 1e-5 and check.hessian < 1e-4
    objective = Objective.of(functional, SPACE)
    C, E = some_point(8), some_point(8, 1) - some_point(8, 2)
    ahead, behind = (objective.term.gradient(None, C + t * E)[1] for t in (1e-5, -1e-5))
    _, product = objective.term.hessian(None, C, None, E)
    np.testing.assert_allclose(product, (ahead - behind) / 2e-5, rtol=1e-5, atol=1e-6)
    F = factor(C)
    found, GF = objective.factor_gradient(F)
    assert found == pytest.approx(objective.value(objective.point(C)), rel=1e-12)
    np.testing.assert_allclose(GF, objective.gradient(objective.point(C)) @ F, rtol=1e-9)
    form = objective.term.factor_hessian(F)
    direction = np.random.default_rng(3).normal(size=F.shape)
    _, image = objective.term.hessian(None, C, None, F @ direction.T + direction @ F.T)
    np.testing.assert_allclose(np.tensordot(form, direction, axes=2), 2.0 * image @ F, rtol=1e-9)


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), t=st.floats(0.0, 1.0))
def test_it_is_convex_everywhere_and_below_the_logarithm(seed: int, t: float) -> None:
    """Outside the spectraplex too, where p has negative values and the logarithm no meaning."""
    rng = np.random.default_rng(seed)
    A, B = (M + M.T for M in rng.normal(size=(2, 8, 8)))
    at_a, at_b, between = (
        value(NegativeLogLikelihood(X), SPACE, C) for C in (A, B, (1 - t) * A + t * B)
    )
    assert between <= ((1 - t) * at_a + t * at_b) * (1 + 1e-12) + 1e-9
    objective = Objective.of(NegativeLogLikelihood(X), SPACE)
    assert at_b >= at_a + np.vdot(objective.gradient(objective.point(A)), B - A) - 1e-9 * (
        abs(at_a) + abs(at_b)
    )
    C = some_point(8, seed)
    p = np.einsum("ij,jk,ik->i", SPACE.basis(X), C, SPACE.basis(X))
    with np.errstate(divide="ignore"):
        assert (
            value(NegativeLogLikelihood(X), SPACE, C)
            <= -np.mean(np.log(np.maximum(p, 0.0))) + SPACE.log_unit + 1e-9
        )


@pytest.mark.parametrize("regularization", [0.0, 1e-3, 0.1, 3.0])
def test_the_optimum_agrees_with_a_conic_solver(regularization: float) -> None:
    import cvxpy as cp

    psi, N, r = SPACE.basis(X), SPACE.trace_matrix, SPACE.rank
    C = cp.Variable((r, r), PSD=True)
    p = cp.sum(cp.multiply(psi @ C, psi), axis=1)
    problem = cp.Problem(
        cp.Minimize(-cp.sum(cp.log(p)) / 12 + regularization * cp.sum(cp.multiply(N, C))),
        [cp.trace(C) == 1],
    )
    problem.solve(solver=cp.CLARABEL)
    solution = ksos.minimize(
        NegativeLogLikelihood(X) + regularization * Trace(relative=True), SPACE, tol=1e-8
    )
    assert solution.status == "solved" and solution.gap <= 1e-8
    assert solution.objective - SPACE.log_unit == pytest.approx(problem.value, abs=2e-6)


@settings(max_examples=30, deadline=None)
@given(
    data=clouds(2, 8),
    sigma=st.sampled_from([0.1, 1.0, 20.0]),
    regularization=st.sampled_from([0.0, 1e-3, 1.0]),
)
def test_every_problem_is_solved_and_its_certificate_verifies(
    data: np.ndarray, sigma: float, regularization: float
) -> None:
    space = ksos.SoSSpace(Gaussian(sigma), data, tol_model=1e-7)
    solution = ksos.minimize(
        NegativeLogLikelihood(data) + regularization * Trace(relative=True), space, tol=1e-6
    )
    assert solution.status == "solved"
    psi, C = space.basis(data), solution.parameter
    p = np.einsum("ij,jk,ik->i", psi, C, psi)
    G = regularization * space.trace_matrix - (psi / p[:, None]).T @ psi / len(data)
    gap = np.vdot(G, C) - np.linalg.eigvalsh(G)[0]
    assert gap <= 1e-6 + 1e-8 * np.abs(G).max()
    other = ksos.minimize(
        NegativeLogLikelihood(data) + regularization * Trace(relative=True),
        space,
        tol=1e-6,
        solver="low_rank",
    )
    assert other.objective == pytest.approx(solution.objective, abs=2e-6)


@pytest.mark.parametrize(
    "solver", ["lbfgs", "low_rank", "fista", "projected_gradient", "frank_wolfe"]
)
def test_all_solvers_find_it(solver: str) -> None:
    functional = NegativeLogLikelihood(X) + 0.1 * Trace(relative=True)
    best = ksos.minimize(functional, SPACE, tol=1e-9).objective
    tol = 1e-3 if solver == "frank_wolfe" else 1e-5
    solution = ksos.minimize(functional, SPACE, solver=solver, tol=tol)
    assert solution.status == "solved"
    assert -1e-9 <= solution.objective - best <= tol


def test_one_sample_and_one_support_point() -> None:
    space = ksos.SoSSpace(Gaussian(2.0), [[0.0]])
    solution = ksos.minimize(NegativeLogLikelihood([[0.0]]), space)
    assert solution.objective == pytest.approx(0.5 * np.log(2 * np.pi)), (
        "the standard normal density at its mode"
    )


def test_samples_out_of_reach_are_refused_before_any_work() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"1 of 2 samples have likelihood zero .* too far from every support point; the first is"
            r" \[1e\+20\]"
        ),
    ):
        ksos.minimize(NegativeLogLikelihood([[0.0], [1e20]]), ksos.SoSSpace(Gaussian(1.0), [[0.0]]))
    with pytest.raises(ValueError, match=r"they lie outside Box"):
        ksos.minimize(
            NegativeLogLikelihood([[0.5], [2.0]]),
            ksos.SoSSpace(Gaussian(1.0), [[0.5]], Box([0], [1])),
        )
    for wrong, message in (
        ([1.0, -1.0], "weights must not be negative"),
        ([1.0], "weights must have length 2"),
        ([0, 0], "zero everywhere"),
    ):
        with pytest.raises(ValueError, match=message):
            NegativeLogLikelihood([[0.0], [1.0]], wrong)
    with pytest.raises(ValueError, match="NaN"):
        NegativeLogLikelihood([[np.nan]])
    with pytest.raises(ValueError, match="2 features"):
        ksos.minimize(NegativeLogLikelihood(X), ksos.SoSSpace(Gaussian(1.0), [[0.0]]))


@pytest.mark.parametrize(
    "kernel", [Gaussian(1.0), ksos.kernels.Laplace(1.0, product=True)], ids=repr
)
def test_the_scale_of_the_data_only_adds_a_constant(kernel: Kernel) -> None:
    def objective(scale: float) -> float:
        space = ksos.SoSSpace(kernel.with_sigma(scale), scale * points(8, 2))
        return ksos.minimize(
            NegativeLogLikelihood(scale * X) + 0.1 * Trace(relative=True), space
        ).objective

    for scale in (1e-150, 1e-6, 1e6, 1e150):
        assert objective(scale) == pytest.approx(objective(1.0) + 2 * np.log(scale), rel=1e-9)
