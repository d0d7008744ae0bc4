"""Robust learning: saddle points with certificates, checked against a conic solver, against weak
duality, and against bad input.
"""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import linprog

import ksos
from ksos.exceptions import ConvexityError
from ksos.functionals import Expectation
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import coordinate
from ksos.robust import (
    AbsoluteLoss,
    AbsoluteRisk,
    HuberLoss,
    LogisticScores,
    NodeRisk,
    Problem,
    Residuals,
    SquareRisk,
    UserLoss,
    affine_moments,
    kernel_moments,
)
from ksos.solvers import Minimum, proven_minimum
from ksos.space import Nodes, finer_nodes, nodes_of

BOX = Box([-2.0], [2.0])


def squared_distance(theta, X):
    away = theta - X
    return np.sum(away**2, axis=1), 2.0 * away


def samples(seed=0, n=12, d=1):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (n, d)) - 0.3


def small_space(X, box=BOX):
    grid = np.linspace(-2.0, 2.0, 9)[:, None]
    return ksos.SoSSpace(
        Gaussian(0.8),
        grid,
        box,
        Gaussian(1.0),
        np.linspace(-2.0, 2.0, 9)[:, None],
        tol_model=1e-8,
        tol_embedding=1e-8,
    )


@pytest.fixture(scope="module")
def path():
    return ksos.robust_path(
        squared_distance,
        0.0,
        ksos.Ball(samples(), 0.0, kernel=Gaussian(1.0), domain=BOX),
        [0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 3.0],
    )


class TestSolutions:
    def test_every_radius_is_solved_with_a_certificate(self, path):
        for solution in path:
            assert solution.status == "solved"
            assert solution.gap_relative <= 2e-6

    def test_radius_zero_is_the_empirical_solution(self, path):
        assert path[0].theta == pytest.approx(samples().mean(axis=0), abs=1e-10)
        assert path[0].value == pytest.approx(samples().var(), rel=1e-10)
        assert path[0].worst_case is None

    @pytest.mark.parametrize("measure", [BOX, Box([-2.0], [3.0])])
    def test_the_value_counts_the_ridge(self, measure):
        found = ksos.robust_minimize(
            squared_distance,
            0.0,
            ksos.Ball(samples(), 0.2, kernel=Gaussian(1.0), domain=measure),
            alpha=0.7,
        )
        ridge = 0.7 * float(found.theta @ found.theta)
        assert ridge > 1e-3
        assert found.value == pytest.approx(found.worst_case.value + ridge, rel=1e-5)
        assert found.value >= found.worst_case.value + ridge - 1e-9

    def test_values_grow_with_the_radius_and_are_concave(self, path):
        radii, values = (
            np.array([s.radius for s in path[1:]]),
            np.array([s.value for s in path[1:]]),
        )
        slopes = np.diff(values) / np.diff(radii)
        assert np.all(slopes >= -1e-5)
        assert np.all(np.diff(slopes) <= 1e-4)

    def test_the_largest_ball_is_the_least_largest_eigenvalue(self, path):
        """radius → ∞: min over θ of λ_max(M_θ), here by a fine search over the one parameter."""
        space = path[-1].worst_case.space
        x = coordinate(0)
        matrices = [Expectation(f).bind(space).D for f in (x**2, x, x * 0 + 1.0)]
        grid = np.linspace(-0.3, 0.3, 601)
        least = min(
            np.linalg.eigvalsh(matrices[0] - 2 * t * matrices[1] + t * t * matrices[2])[-1]
            for t in grid
        )
        assert path[-1].value == pytest.approx(least, rel=1e-5)

    def test_the_worst_density_is_in_the_ball_and_has_the_value(self, path):
        for solution in path[1:]:
            worst = solution.worst_case
            assert ksos.mmd(worst.distribution, samples(), Gaussian(1.0)) <= solution.radius + 1e-12
            theta = float(solution.theta[0])
            mean, var = float(worst.distribution.mean()[0]), float(worst.distribution.cov()[0, 0])
            assert worst.value == pytest.approx(var + (mean - theta) ** 2, rel=1e-6)
            assert worst.value <= solution.value + 1e-9
            assert worst.upper_bound >= worst.value

    def test_the_saddle_is_the_worst_case_of_its_theta(self, path):
        """No density of the same space does worse to θ than the certificate says."""
        solution = path[3]
        theta = float(solution.theta[0])
        loss = (coordinate(0) - theta) ** 2
        alone = ksos.worst_case(
            loss,
            ksos.Ball(
                samples(),
                solution.radius,
                kernel=solution.worst_case.space.embedding_kernel,
                domain=solution.worst_case.space.measure,
            ),
            space=solution.worst_case.space,
        )
        assert alone.value == pytest.approx(solution.worst_case.value, rel=1e-4)
        assert alone.value <= solution.value * (1 + 1e-6)

    def test_warm_and_cold_starts_agree(self, path):
        cold = ksos.robust_minimize(
            squared_distance, 0.0, ksos.Ball(samples(), 0.2, kernel=Gaussian(1.0), domain=BOX)
        )
        assert cold.value == pytest.approx(path[3].value, rel=5e-6)
        assert cold.theta == pytest.approx(path[3].theta, abs=1e-3)

    def test_a_small_radius_is_infeasible_and_the_least_one_is_named(self):
        space = small_space(samples())
        tiny = ksos.robust_minimize(
            squared_distance,
            0.0,
            ksos.Ball(samples(), 0.001, kernel=space.embedding_kernel, domain=space.measure),
            space=space,
        )
        assert tiny.status == "infeasible"
        assert tiny.gap is None
        assert tiny.value is None
        assert f"{tiny.least_radius:.6g}" in tiny.message
        above = ksos.robust_minimize(
            squared_distance,
            0.0,
            ksos.Ball(
                samples(),
                1.2 * tiny.least_radius,
                kernel=space.embedding_kernel,
                domain=space.measure,
            ),
            space=space,
        )
        assert above.status == "solved"

    def test_two_parameters_with_a_ridge(self):
        X = samples(n=8, d=2)
        ball = ksos.Ball(X, 0.4, kernel=Gaussian(1.0), domain=Box([-1.5] * 2, [1.5] * 2))
        plain = ksos.robust_minimize(squared_distance, np.zeros(2), ball, n_support=36)
        shrunk = ksos.robust_minimize(squared_distance, np.zeros(2), ball, n_support=36, alpha=5.0)
        assert plain.status == shrunk.status == "solved"
        assert np.linalg.norm(shrunk.theta) < np.linalg.norm(plain.theta)
        assert shrunk.value > plain.value


class TestAgainstCvxpy:
    def test_the_joint_problem_has_the_same_value(self):
        """min over (θ, y, t) of t + ⟨y, z⟩ + ε‖y‖ such that tI ⪰ M_θ − A*(y), as a semidefinite
        programme with θ² lifted.
        """
        cvxpy = pytest.importorskip("cvxpy")
        X, radius = samples(), 0.3
        space = small_space(X)
        z, A, r = space.coordinates(X), space.compressed_map.tensor, space.rank
        M2, M1, M0 = (
            Expectation(f).bind(space).D
            for f in (coordinate(0) ** 2, coordinate(0), coordinate(0) * 0 + 1.0)
        )
        C = cvxpy.Variable((r, r), PSD=True)
        # max over C of min over θ = max ⟨M2,C⟩ − ⟨M1,C⟩²/⟨M0,C⟩, with ⟨M0,C⟩ = 1
        embedding = cvxpy.hstack([cvxpy.trace(A[k] @ C) for k in range(A.shape[0])])
        value = cvxpy.trace(M2 @ C) - cvxpy.square(cvxpy.trace(M1 @ C))
        problem = cvxpy.Problem(
            cvxpy.Maximize(value), [cvxpy.trace(C) == 1, cvxpy.norm(embedding - z) <= radius]
        )
        problem.solve(solver="CLARABEL")
        assert np.allclose(M0, np.eye(r), atol=1e-6)
        ours = ksos.robust_minimize(
            squared_distance,
            0.0,
            ksos.Ball(X, radius, kernel=space.embedding_kernel, domain=space.measure),
            space=space,
            rtol=1e-07,
        )
        assert ours.status == "solved"
        assert ours.value == pytest.approx(problem.value, rel=1e-6)


def square_risk(space):
    V = affine_moments(space, np.zeros(1), np.ones(1))
    return SquareRisk(V, np.array([[[1.0], [0.0]]]), np.array([[[0.0, -1.0]]]), np.zeros(1))


class TestRisks:
    def test_square_risk_is_the_loss_by_quadrature(self):
        space = small_space(samples())
        square = square_risk(space)
        nodes = nodes_of(space)
        by_nodes = NodeRisk(
            nodes, UserLoss(squared_distance, nodes.points, 1), np.zeros(1), np.zeros(1)
        )
        rng = np.random.default_rng(0)
        G = rng.normal(size=(space.rank, 3))
        C = G @ G.T / np.sum(G * G)
        theta = np.array([0.3])
        assert square.matrix(theta) == pytest.approx(by_nodes.matrix(theta), abs=1e-7)
        assert square.least(C).theta == pytest.approx(by_nodes.least(C).theta, abs=1e-6)
        assert square.least(C).value == pytest.approx(by_nodes.least(C).value, rel=1e-6)
        assert square.slopes(theta) == pytest.approx(by_nodes.slopes(theta), abs=1e-6)
        assert square.curvature(theta, C) == pytest.approx(by_nodes.curvature(theta, C), abs=1e-5)
        assert square.proven_least(C, 1e-8, theta) == pytest.approx(
            by_nodes.proven_least(C, 1e-8, theta), abs=1e-7
        )

    @pytest.mark.parametrize("kind", ["square", "nodes", "huber", "logistic"])
    def test_derivatives_of_a_risk(self, kind):
        space = small_space(samples())
        nodes = nodes_of(space)
        U = np.column_stack([np.ones(nodes.points.shape[0]), nodes.points])
        risk = {
            "square": lambda: square_risk(space),
            "nodes": lambda: NodeRisk(
                nodes, UserLoss(squared_distance, nodes.points, 1), np.full(1, 0.1), np.zeros(1)
            ),
            "huber": lambda: NodeRisk(
                nodes,
                Residuals(HuberLoss(0.3), U, np.sin(3 * nodes.points[:, 0])),
                np.full(2, 0.1),
                np.zeros(2),
            ),
            "logistic": lambda: NodeRisk(
                Nodes(nodes.points, nodes.psi, 2),
                LogisticScores(U, 2),
                np.full(2, 0.1),
                np.zeros(2),
            ),
        }[kind]()
        r = space.rank * (2 if kind == "logistic" else 1)
        rng = np.random.default_rng(1)
        F = rng.normal(size=(r, 2))
        C, h = F @ F.T / np.sum(F * F), 1e-4
        theta = rng.normal(size=risk.n_parameters)
        slopes, curvature = risk.slopes(theta), risk.curvature(theta, C)
        for j, move in enumerate(h * np.eye(theta.shape[0])):
            ends = risk.matrix(theta + move), risk.matrix(theta - move)
            assert slopes[j] == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-3, abs=1e-5)
            up, down = (np.tensordot(risk.slopes(theta + s), C, axes=2) for s in (move, -move))
            assert curvature[j] == pytest.approx((up - down) / (2 * h), rel=1e-2, abs=1e-4)
        # least is where the slope is that of the ridge
        found = risk.least(C)
        rest = np.tensordot(risk.slopes(found.theta), C, axes=2) + 2.0 * risk.alpha * found.theta
        assert rest == pytest.approx(0.0, abs=1e-7)
        assert risk.proven_least(C, 1e-8, found.theta) == pytest.approx(found.value, abs=1e-7)

    def test_kernel_moments_are_those_of_quadrature(self):
        box = Box([-1.0, -1.5], [1.0, 1.5])
        support = np.random.default_rng(0).uniform(-1, 1, (8, 2))
        space = ksos.SoSSpace(Gaussian([0.9, 1.1]), support, box)
        centers, kernel = np.array([[-0.4], [0.5]]), Gaussian(0.7)
        V = kernel_moments(space, centers, kernel, 0.2)
        nodes = finer_nodes(space, nodes_of(space))
        U = np.column_stack(
            [
                np.ones(nodes.points.shape[0]),
                kernel(nodes.points[:, :1], centers),
                nodes.points[:, 1] - 0.2,
            ]
        )
        expected = np.einsum("na,nb,nr,ns->abrs", U, U, nodes.psi, nodes.psi, optimize=True)
        assert pytest.approx(expected, abs=1e-6) == V
        assert pytest.approx(V.transpose(1, 0, 3, 2)) == V

    @pytest.mark.parametrize(("delta", "near"), [(0.01, 1e-4), (0.3, 0.05)])
    def test_the_absolute_loss_is_bounded_from_below(self, delta, near):
        """Against the linear program: the proven minimum is below Σ m|y − uθ|, and not far."""
        from scipy.optimize import linprog

        space = small_space(samples())
        nodes = nodes_of(space)
        U, y = (
            np.column_stack([np.ones(nodes.points.shape[0]), nodes.points]),
            np.sin(2 * nodes.points[:, 0]),
        )
        risk = AbsoluteRisk(nodes, Residuals(AbsoluteLoss(delta), U, y), np.zeros(2), np.zeros(2))
        C = np.eye(space.rank) / space.rank
        m = np.maximum(risk.nodes.masses(C), 0.0)
        n = m.shape[0]
        answer = linprog(
            np.r_[np.zeros(2), m],
            A_ub=np.block([[U, -np.eye(n)], [-U, -np.eye(n)]]),
            b_ub=np.r_[y, -y],
            bounds=[(None, None)] * 2 + [(0, None)] * n,
        )
        proven = risk.proven_least(C, 1e-6, np.zeros(2))
        assert proven <= answer.fun + 1e-9
        assert proven >= answer.fun - near
        assert risk.least(C).value >= answer.fun - 1e-9


class TestProvenMinimum:
    @settings(max_examples=30, deadline=None)
    @given(st.integers(0, 10_000), st.integers(1, 4))
    def test_it_is_below_the_minimum_and_near(self, seed, p):
        rng = np.random.default_rng(seed)
        R = rng.normal(size=(p + 3, p))
        b = rng.normal(size=p + 3)

        def f(theta):
            r = R @ theta - b
            return float(np.sum(np.logaddexp(r, -r))), R.T @ np.tanh(r)

        theta = np.zeros(p)
        for _ in range(100):
            r = R @ theta - b
            H = R.T @ ((1 - np.tanh(r) ** 2)[:, None] * R)
            theta = theta - 0.7 * np.linalg.solve(H + 1e-12 * np.eye(p), f(theta)[1])
        value, gradient = f(theta)
        if np.linalg.norm(gradient) > 1e-9:
            return
        H = R.T @ ((1 - np.tanh(R @ theta - b) ** 2)[:, None] * R)
        bound = proven_minimum(f, Minimum(theta, value, gradient, lambda: H), np.zeros(p), 1e-6)
        assert value - 1e-6 <= bound <= value + 1e-12

    def test_nothing_is_proven_where_the_function_falls_for_ever(self):
        def f(theta):
            return float(theta[0] ** 2 - 1e-3 * theta[1]), np.array([2 * theta[0], -1e-3])

        found = Minimum(np.zeros(2), *f(np.zeros(2)), lambda: np.diag([2.0, 0.0]))
        assert proven_minimum(f, found, np.zeros(2), 1e-6) == -math.inf
        assert proven_minimum(f, found, np.ones(2), 1e-6) == pytest.approx(-0.25e-6, rel=1e-9)

    @pytest.mark.parametrize("at", [0.0, 0.25, 1.0])
    def test_kinks_are_proven_without_curvature(self, at):
        points = np.array(
            [-1.0, 0.0, 0.5, 2.0]
        )  # the minimum is flat between the two in the middle

        def f(theta):
            return float(np.abs(theta[0] - points).sum()), np.array(
                [np.sign(theta[0] - points).sum()]
            )

        found = Minimum(np.array([at]), *f(np.array([at])), lambda: np.zeros((1, 1)))
        bound = proven_minimum(f, found, np.zeros(1), 1e-6)
        assert bound <= 3.5 + 1e-12
        assert at == 1.0 or bound >= 3.5 - 1e-6

    def test_a_parameter_that_does_nothing_does_no_harm(self):
        def flat(theta, X):
            away = theta[0] - X[:, 0]
            return away**2, np.column_stack([2 * away, 0 * away])

        found = ksos.robust_minimize(
            flat,
            np.zeros(2),
            ksos.Ball(
                samples(),
                0.3,
                kernel=small_space(samples()).embedding_kernel,
                domain=small_space(samples()).measure,
            ),
            space=small_space(samples()),
        )
        alone = ksos.robust_minimize(
            squared_distance,
            0.0,
            ksos.Ball(
                samples(),
                0.3,
                kernel=small_space(samples()).embedding_kernel,
                domain=small_space(samples()).measure,
            ),
            space=small_space(samples()),
        )
        assert found.status == "solved"
        assert found.value == pytest.approx(alone.value, rel=1e-5)


def absolute_distance(theta, X):
    away = theta[0] - X[:, 0]
    return np.abs(away), np.sign(away)[:, None]


def hinge(theta, X):
    margin = 1.0 - theta[0] * X[:, 0] - theta[1]
    return np.maximum(margin, 0.0), -(margin > 0.0).astype(float)[:, None] * np.column_stack(
        [X[:, 0], np.ones(len(X))]
    )


@pytest.mark.filterwarnings("ignore:robust_minimize. :sklearn.exceptions.ConvergenceWarning")
class TestKinks:
    """Losses that are convex, but have no second derivative."""

    def test_the_matrix_of_an_absolute_loss_is_not_that_of_the_smooth_one(self):
        psi, U = np.random.default_rng(0).normal(size=(6, 3)), np.ones((6, 1))
        y = np.linspace(-1.0, 1.0, 6)
        risk = AbsoluteRisk(
            Nodes(U, psi), Residuals(AbsoluteLoss(0.5), U, y), np.zeros(1), np.zeros(1)
        )
        theta = np.array([0.1])
        assert risk.true_matrix(theta) == pytest.approx((psi.T * np.abs(y - 0.1)) @ psi)
        assert np.linalg.eigvalsh(risk.matrix(theta) - risk.true_matrix(theta))[-1] > 0.1

    @pytest.mark.parametrize("seed", range(4))
    def test_the_least_absolute_risk_is_that_of_linear_programming(self, seed):
        rng = np.random.default_rng(seed)
        U = np.column_stack([np.ones(15), rng.normal(size=(15, 2))])
        y, masses = rng.normal(size=15), rng.dirichlet(np.ones(15))
        masses[rng.permutation(15)[:7]] = 0.0
        # ‖residual‖ = r⁺ + r⁻ with y − Uθ = r⁺ − r⁻
        rows, free = np.hstack([U, np.eye(15), -np.eye(15)]), [(None, None)] * 3 + [(0, None)] * 30
        costs = np.r_[np.zeros(3), masses, masses]
        least = linprog(costs, A_eq=rows, b_eq=y, bounds=free, method="highs").fun
        nodes = Nodes(U[:, 1:], np.sqrt(masses)[:, None])
        risk = AbsoluteRisk(nodes, Residuals(AbsoluteLoss(1e-3), U, y), np.zeros(3))
        bound = risk.proven_least(np.eye(1), 1e-9, np.zeros(3))
        # the sharpest of the smooth losses lies above the loss by 5e-8
        assert least - 1e-6 <= bound <= least + 1e-12

    def test_radius_zero_is_the_median(self):
        X = samples(n=11)
        found = ksos.robust_minimize(
            absolute_distance,
            0.9,
            ksos.Ball(
                X, 0.0, kernel=small_space(X).embedding_kernel, domain=small_space(X).measure
            ),
            space=small_space(X),
        )
        assert found.theta[0] == pytest.approx(np.median(X), abs=1e-6)
        assert found.status == "solved"
        assert found.value == pytest.approx(np.mean(np.abs(X - np.median(X))), rel=1e-6)

    def test_what_radius_zero_certifies_is_true(self):
        X = samples(n=10)
        for alpha in (0.0, 1e-3, 0.1):
            found = ksos.robust_minimize(
                hinge,
                [0.1, 0.1],
                ksos.Ball(
                    X, 0.0, kernel=small_space(X).embedding_kernel, domain=small_space(X).measure
                ),
                alpha=alpha,
                space=small_space(X),
            )
            tried = [
                np.array([a, b])
                for a in np.linspace(-1.0, 1.0, 21)
                for b in np.linspace(0.0, 1.5, 151)
            ]
            least = min(float(hinge(theta, X)[0].mean() + alpha * theta @ theta) for theta in tried)
            assert found.lower_bound is None or found.lower_bound <= least + 1e-12
            assert found.status != "solved" or found.value <= least + 1e-6

    def test_the_worst_case_of_an_absolute_loss(self):
        X = samples()
        found = ksos.robust_minimize(
            absolute_distance,
            0.9,
            ksos.Ball(
                X, 0.2, kernel=small_space(X).embedding_kernel, domain=small_space(X).measure
            ),
            alpha=0.001,
            space=small_space(X),
        )
        assert found.status == "solved"
        thetas = np.linspace(found.theta[0] - 0.3, found.theta[0] + 0.3, 7)
        space = small_space(X)
        worst = [
            ksos.worst_case(
                lambda Z, t=t: np.abs(t - Z[:, 0]),
                ksos.Ball(X, 0.2, kernel=space.embedding_kernel, domain=space.measure),
                space=space,
            ).dual_value
            + 1e-3 * t * t
            for t in thetas
        ]
        assert found.lower_bound <= min(worst) + 1e-3  # of quadrature across the kink
        assert found.value == pytest.approx(worst[3], rel=1e-3)


class TestBadInput:
    def call(self, loss=squared_distance, theta0=0.0, data=None, radius=0.2, **kwargs):
        ball = ksos.Ball(
            samples() if data is None else data, radius, kernel=Gaussian(1.0), domain=BOX
        )
        return ksos.robust_minimize(loss, theta0, ball, **kwargs)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"radius": -0.1}, "radius"),
            ({"radius": np.nan}, "radius"),
            ({"radius": "often"}, "bootstrap"),
            ({"theta0": [np.nan]}, "theta0"),
            ({"alpha": -1.0}, "alpha"),
            ({"alpha": [1.0, 2.0]}, "alpha"),
            ({"tol": 0.0}, "tol"),
            ({"rtol": 0.0}, "rtol"),
            ({"loss": lambda theta, X: X[:, 0]}, "tuple"),
            ({"loss": lambda theta, X: (X[:, 0], X[:, 0])}, "shape"),
            ({"loss": lambda theta, X: (X[:, 0] * np.nan, X)}, "finite"),
            ({"loss": lambda theta, X: 1 / 0}, "ZeroDivisionError"),
            ({"loss": lambda theta, X: ("a", "b")}, "numbers"),
            ({"data": np.zeros((0, 1))}, "sample|row|empty"),
        ],
    )
    def test_a_value_error_says_what_is_wrong(self, change, message):
        with pytest.raises(ValueError, match=message):
            self.call(**change)

    def test_a_loss_that_is_no_function(self):
        with pytest.raises(TypeError, match="loss"):
            self.call(loss=3.0)

    def test_a_loss_that_is_not_convex_is_found_out(self):
        def waves(theta, X):
            return np.cos(3 * (theta - X[:, 0])), -3 * np.sin(3 * (theta - X))

        with pytest.raises(ConvexityError, match="not convex"):
            self.call(loss=waves, theta0=0.2)

    def test_a_wrong_gradient_is_found_out(self):
        with pytest.raises(ConvexityError, match="gradient"):
            self.call(
                loss=lambda theta, X: (np.sum((theta - X) ** 2, axis=1), -2.0 * (theta - X)),
                theta0=0.5,
            )

    def test_an_unbounded_domain_warns_and_names_the_box(self):
        with pytest.warns(UserWarning, match="Box"):
            ball = ksos.Ball(samples(), 0.2, kernel=Gaussian(1.0))
            found = ksos.robust_minimize(squared_distance, 0.0, ball, n_support=20)
        assert found.status == "solved"


def test_saddle_bounds_never_cross():
    """Weak duality at points that are not optimal: every (θ, y) is above every C in the ball."""
    X = samples()
    space = small_space(X)
    problem = Problem(
        space, square_risk(space), ksos.MeanEmbedding(X, kernel=Gaussian(1.0)), np.zeros(1)
    )
    rng = np.random.default_rng(0)
    C = problem.nearest(0.1)[0].C
    for _ in range(20):
        g = rng.normal(size=(space.rank, 2))
        point = problem.point(0.9 * C + 0.1 * g @ g.T / np.sum(g * g))
        y, theta = rng.normal(size=problem.z.shape[0]), rng.normal(size=1)
        assert problem.upper(theta, y, point.distance)[0] >= point.risk - 1e-12


@pytest.mark.filterwarnings("ignore:robust_minimize. :sklearn.exceptions.ConvergenceWarning")
class TestLimits:
    """Time, Ctrl-C, and problems that stay as they are."""

    @pytest.mark.parametrize("seconds", [1e-3, 0.05, 0.3])
    @pytest.mark.parametrize("loss", [squared_distance, absolute_distance])
    def test_a_time_limit_is_for_all_radii_together(self, loss, seconds):
        began = time.process_time()  # a busy machine lengthens every other time
        path = ksos.robust_path(
            loss,
            0.1,
            ksos.Ball(samples(), 0.0, kernel=Gaussian(1.0), domain=BOX),
            [0.1, 0.2, 0.3],
            rtol=1e-12,
            alpha=1e-3,
            time_limit=seconds,
        )
        assert time.process_time() - began <= seconds + 1.5
        assert [solution.time for solution in path] == sorted(solution.time for solution in path)
        for solution in path:
            assert solution.status in ("time_limit", "solved", "solved_inaccurate")
            assert np.all(np.isfinite(solution.theta))
            assert solution.value is not None or solution.status == "time_limit"
            assert solution.worst_case.value is None or solution.worst_case.mmd <= solution.radius

    @pytest.mark.parametrize("calls", [3, 10, 40])
    def test_ctrl_c_is_raised_again_or_a_status(self, calls):
        left = calls

        def loss(theta, X):
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return absolute_distance(theta, X)

        try:
            found = ksos.robust_minimize(
                loss,
                0.1,
                ksos.Ball(
                    samples(),
                    0.2,
                    kernel=small_space(samples()).embedding_kernel,
                    domain=small_space(samples()).measure,
                ),
                alpha=0.001,
                space=small_space(samples()),
            )
        except KeyboardInterrupt:
            assert left <= 0
        else:
            assert left > 0 or found.status == "interrupted"

    def test_order_does_not_matter(self):
        """Each radius alone, whatever was solved before with the same data."""
        ball = ksos.Ball(samples(), 0.0, kernel=Gaussian(1.0), domain=BOX)
        alone = {
            radius: ksos.robust_minimize(
                squared_distance, 0.0, ball.with_radius(radius), n_support=20
            )
            for radius in (0.1, 0.4)
        }
        for radius in (0.4, 0.1):
            again = ksos.robust_minimize(
                squared_distance, 0.0, ball.with_radius(radius), n_support=20
            )
            assert (
                again.value == alone[radius].value
                and again.theta.tolist() == alone[radius].theta.tolist()
            )
        for radii in ([0.1, 0.4], [0.4, 0.1]):
            for solution in ksos.robust_path(squared_distance, 0.0, ball, radii, n_support=20):
                assert solution.value == pytest.approx(alone[solution.radius].value, rel=2e-6)
