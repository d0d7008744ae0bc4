"""worst_case: the density is in the exact ball, the three numbers are in order, all losses agree,
bad input is refused in words.
"""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from oracles import conic_worst_case
from strategies import degenerate_data
from tables import points

import ksos
from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import BoxIndicator, KernelFunction, NumericFunction, Polynomial, coordinate
from ksos.robust import AGREEMENT, adversary_in

LINE = Box([-2.0], [2.0])
X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
SQUARE = coordinate(0) ** 2
BALL: dict[str, Any] = {"kernel": Gaussian(1.0), "domain": LINE}
N_SUPPORT = 20


def atoms_optimum(
    loss: Any, data: np.ndarray, radius: float, sigma: float = 1.0, n: int = 161
) -> float:
    """The worst distribution on a fine grid of [−2, 2], by CVXPY."""
    import cvxpy as cp

    atoms = np.linspace(-2.0, 2.0, n)[:, None]
    cloud = np.concatenate([atoms, data])
    values, Q = np.linalg.eigh(Gaussian(sigma)(cloud))
    Phi = (Q[:, values > 1e-12] * np.sqrt(values[values > 1e-12])).T
    mu = cp.Variable(n, nonneg=True)
    ball = cp.norm(Phi[:, :n] @ mu - Phi[:, n:].mean(axis=1)) <= radius
    problem = cp.Problem(cp.Maximize(loss(atoms) @ mu), [cp.sum(mu) == 1, ball])
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


@pytest.fixture(scope="module")
def worst() -> ksos.WorstCase:
    return ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, **BALL), n_support=N_SUPPORT)


# --- what the answer is ---


def test_of_a_table_the_density_has_its_names_and_the_words_stay_few(worst: ksos.WorstCase) -> None:
    named = ksos.worst_case(
        SQUARE,
        ksos.Ball(pytest.importorskip("pandas").DataFrame(X, columns=["loss"]), 0.3, **BALL),
        n_support=N_SUPPORT,
    )
    assert named.distribution.feature_names == ("loss",) and named.value == worst.value
    assert len(repr(named)) < 1000


def test_the_density_is_in_the_exact_ball(worst: ksos.WorstCase) -> None:
    p = worst.distribution
    assert p is not None and worst.status == "solved"
    assert worst.mmd <= 0.3
    assert worst.mmd == pytest.approx(0.3, abs=1e-7)
    assert ksos.mmd(p, X, Gaussian(1.0)) == pytest.approx(worst.mmd, abs=1e-9)
    assert abs(worst.mmd - worst.projected_mmd) <= AGREEMENT
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-9)


def test_the_value_belongs_to_the_density(worst: ksos.WorstCase) -> None:
    nodes = Discrete.quadrature(LINE, 400)
    assert worst.distribution is not None and worst.value is not None
    assert float(
        nodes.weights * worst.distribution.pdf(nodes.points) @ nodes.points[:, 0] ** 2
    ) == pytest.approx(worst.value, rel=1e-7)
    assert worst.objective == worst.value
    assert worst.empirical_value == pytest.approx(float(np.mean(X**2)))


def test_three_numbers_in_order(worst: ksos.WorstCase) -> None:
    """The density's value, the dual of the space, and the bound over all distributions, which atoms
    come close to.
    """
    assert (
        worst.value is not None
        and worst.dual_value is not None
        and worst.upper_bound is not None
        and worst.gap is not None
    )
    assert worst.value <= worst.dual_value <= worst.upper_bound
    assert worst.gap == worst.dual_value - worst.value
    assert worst.gap <= 1e-6 * worst.value
    atoms = atoms_optimum(SQUARE, X, 0.3)
    assert worst.value < atoms <= worst.upper_bound + 1e-6
    assert worst.value >= 0.95 * atoms
    assert worst.upper_bound <= 1.001 * atoms
    assert worst.upper_bound_kind == "rigorous"


def test_the_dual_function_majorises_the_loss_on_the_space(worst: ksos.WorstCase) -> None:
    """t + g − ℓ is not negative against any density of the space, though it may be at single
    points.
    """
    assert (
        worst.space is not None
        and worst.dual_function is not None
        and worst.dual_constant is not None
    )
    slack = (worst.dual_constant + worst.dual_function - SQUARE).matrix(
        worst.space.kernel, worst.space.support_points, LINE, worst.space.log_unit, worst.space.T
    )
    assert np.linalg.eigvalsh(slack.values)[0] >= -1e-7
    g = worst.dual_function
    size = float(np.sqrt(g.weights @ g.kernel(g.points) @ g.weights))
    assert worst.dual_constant + g(X).mean() + 0.3 * size == pytest.approx(
        worst.dual_value, rel=1e-6
    )


def test_no_distribution_in_the_ball_exceeds_the_upper_bound() -> None:
    """Mixtures of the data with one far atom, scaled to the boundary of the ball."""
    for radius in (0.05, 0.3):
        worst = ksos.worst_case(SQUARE, ksos.Ball(X, radius, **BALL), n_support=N_SUPPORT)
        assert worst.upper_bound is not None
        for x in (-2.0, 1.3, 2.0):
            t = min(radius / ksos.mmd(X, np.array([[x]]), Gaussian(1.0)), 1.0)
            assert (1.0 - t) * np.mean(X**2) + t * x**2 <= worst.upper_bound + 1e-9


def test_on_the_line_default_support_comes_close_to_atoms() -> None:
    worst = ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, kernel=Gaussian(1.0), domain=LINE))
    assert worst.value is not None and worst.space is not None
    assert worst.value >= 0.97 * atoms_optimum(SQUARE, X, 0.3)
    support = np.sort(worst.space.support_points[:, 0])
    assert support[0] <= -2.0 and support[-1] >= 2.0, "the boundary belongs to the domain"
    assert {-2.0, 2.0} <= set(worst.space.landmarks[:, 0])


def test_value_is_nondecreasing_and_concave_in_the_radius() -> None:
    radii = np.linspace(0.1, 1.3, 5)
    values = np.array(
        [
            ksos.worst_case(SQUARE, ksos.Ball(X, r, **BALL), n_support=N_SUPPORT).value
            for r in radii
        ],
        dtype=float,
    )
    slopes = np.diff(values) / np.diff(radii)
    assert np.all(slopes >= -1e-6) and np.all(np.diff(slopes) <= 1e-5)


# --- losses ---


def test_losses_of_every_kind_agree() -> None:
    kernel = Gaussian(0.8)
    pairs = [
        (SQUARE, lambda Z: Z[:, 0] ** 2, 1e-7),
        (
            KernelFunction([[0.5]], [1.0], kernel=kernel),
            lambda Z: kernel(Z, np.array([[0.5]]))[:, 0],
            1e-7,
        ),
        (
            BoxIndicator([1.0], [2.0]),
            NumericFunction(lambda Z: (Z[:, 0] >= 1.0).astype(float), max_nodes=20_000),
            1e-3,
        ),
    ]
    for exact, code, tol in pairs:
        one, other = (
            ksos.worst_case(loss, ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT)
            for loss in (exact, code)
        )
        assert one.value == pytest.approx(other.value, rel=tol)
        assert (one.upper_bound_kind, other.upper_bound_kind) == ("rigorous", "estimate")
        assert other.integration_error < tol
    embedding = ksos.worst_case(
        ksos.MeanEmbedding([[0.5]], [1.0], kernel=kernel),
        ksos.Ball(X, 0.2, **BALL),
        n_support=N_SUPPORT,
    )
    assert embedding.value == pytest.approx(
        ksos.worst_case(pairs[1][0], ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT).value, rel=1e-9
    )


def test_a_lipschitz_constant_makes_the_bound_rigorous() -> None:
    worst = ksos.worst_case(
        lambda Z: np.abs(Z[:, 0]), ksos.Ball(X, 0.2, **BALL), lipschitz=1.0, n_support=N_SUPPORT
    )
    guessed = ksos.worst_case(
        lambda Z: np.abs(Z[:, 0]), ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT
    )
    assert (worst.upper_bound_kind, guessed.upper_bound_kind) == ("rigorous", "estimate")
    assert worst.upper_bound is not None and guessed.upper_bound is not None
    assert worst.upper_bound == pytest.approx(guessed.upper_bound, rel=1e-3)


@pytest.mark.parametrize(
    ("loss", "what"),
    [
        (lambda Z: Z[:, 0] * np.nan, r"must return finite numbers; got nan at x = "),
        (lambda Z: Z, r"must return shape \(\d+,\) for an array of shape \(\d+, 1\); got shape"),
        (lambda Z: 1.0 / 0, r"raised ZeroDivisionError: .*it was called with an array of shape"),
        (lambda Z: "no", r"must return \d+ numbers"),
        (lambda Z: Z[:, 0] + 1j, r"must return \d+ numbers"),
        (coordinate(3), "needs feature 3"),
        (Polynomial({(2, 0): 1.0}), "is a function of 2 features, but"),
    ],
)
def test_losses_that_are_none(loss: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ksos.worst_case(loss, ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT)


def test_a_constant_loss_is_its_value_whatever_the_rounding_of_masses() -> None:
    worst = ksos.worst_case(Polynomial([2.0]), ksos.Ball(X, 0.3, **BALL), n_support=N_SUPPORT)
    assert worst.value == pytest.approx(2.0, abs=1e-8)
    assert worst.upper_bound is not None
    assert worst.value <= worst.upper_bound + 1e-8


def test_a_loss_that_is_no_function() -> None:
    with pytest.raises(TypeError, match="loss must be a function of an array"):
        ksos.worst_case("x**2", ksos.Ball(X, 0.2, **BALL), n_support=N_SUPPORT)


# --- the ball ---


def test_radius_zero_is_the_data() -> None:
    worst = ksos.worst_case(
        SQUARE, ksos.Ball(X, 0.0, weights=np.arange(40.0), **BALL), n_support=N_SUPPORT
    )
    assert (
        worst.value
        == worst.upper_bound
        == pytest.approx(float(np.average(X[:, 0] ** 2, weights=np.arange(40.0))))
    )
    assert worst.distribution is None and worst.status == "solved" and worst.mmd == worst.gap == 0.0
    with pytest.raises(
        ValueError,
        match="radius 0 leaves only the data, but their weights are not those of a distribution",
    ):
        ksos.worst_case(
            SQUARE,
            ksos.Ball(
                ksos.MeanEmbedding(X, np.linspace(-1.0, 1.0, 40), kernel=Gaussian(1.0)),
                0,
                domain=LINE,
            ),
        )


def test_the_least_radius_is_one_that_holds_a_density() -> None:
    far = ksos.worst_case(SQUARE, ksos.Ball([[6.0], [6.5]], 0.1, **BALL), n_support=N_SUPPORT)
    assert far.status == "infeasible" and far.least_radius is not None
    assert far.least_radius <= far.mmd <= 1.001 * far.least_radius
    assert (
        ksos.worst_case(
            SQUARE, ksos.Ball([[6.0], [6.5]], 1.002 * far.least_radius, **BALL), n_support=N_SUPPORT
        ).status
        == "solved"
    )


def test_rounding_does_not_put_bounds_below_the_value() -> None:
    X = np.random.default_rng(1).normal(scale=0.5, size=(30, 1))
    with pytest.warns(UserWarning, match="unbounded"):
        everywhere = ksos.worst_case(SQUARE, ksos.Ball(X, 0.3))
    constant = ksos.worst_case(0.0 * SQUARE + 3.0, ksos.Ball(X, 0.3, **BALL), n_support=N_SUPPORT)
    for worst in (everywhere, constant):
        assert worst.value <= worst.dual_value
        assert worst.value <= worst.upper_bound
    assert constant.upper_bound == pytest.approx(3.0, abs=1e-6)


def test_an_empty_ball_names_the_least_radius() -> None:
    worst = ksos.worst_case(
        SQUARE,
        ksos.Ball([[0.3]], 0.01, **BALL),
        bandwidth=1.0,
        n_support=N_SUPPORT,
    )
    assert worst.status == "infeasible"
    assert worst.value is worst.gap is worst.upper_bound is None
    assert worst.least_radius is not None and worst.least_radius > 0.01
    assert (
        f"the least radius that holds a density of this space is {worst.least_radius:.6g}"
        " (certified)" in worst.message
    )
    assert worst.distribution is not None and worst.mmd >= worst.least_radius  # the nearest found
    just = ksos.worst_case(
        SQUARE,
        ksos.Ball([[0.3]], 1.05 * worst.least_radius, **BALL),
        bandwidth=1.0,
        n_support=N_SUPPORT,
    )
    assert just.status == "solved" or just.least_radius is not None
    assert (
        ksos.worst_case(
            SQUARE,
            ksos.Ball([[0.3]], 3.0 * worst.least_radius, **BALL),
            bandwidth=1.0,
            n_support=N_SUPPORT,
        ).status
        == "solved"
    )


@pytest.mark.parametrize("radius", [-0.1, np.nan, -np.inf, "boot", True, None, [0.1]])
def test_radii_that_are_none(radius: Any) -> None:
    with pytest.raises(ValueError, match="radius"):
        ksos.Ball(X, radius, **BALL)
    with pytest.raises(ValueError, match="radius"):
        ksos.Ball(X, 0.1, **BALL).with_radius(radius)


def test_one_of_radius_and_penalty() -> None:
    with pytest.raises(
        ValueError, match=r"pass either a finite radius or .* got radius=0\.1, penalty=2\.0"
    ):
        ksos.worst_case(SQUARE, ksos.Ball(X, 0.1, **BALL), penalty=2.0, n_support=N_SUPPORT)
    with pytest.raises(ValueError, match="penalty must be positive and finite; got 0"):
        ksos.worst_case(SQUARE, ksos.Ball(X, math.inf, **BALL), penalty=0, n_support=N_SUPPORT)


@pytest.mark.parametrize("penalty", [0.5, 4.0, 60.0])
def test_the_penalised_problem(penalty: float) -> None:
    worst = ksos.worst_case(
        SQUARE, ksos.Ball(X, math.inf, **BALL), penalty=penalty, n_support=N_SUPPORT
    )
    assert worst.status == "solved" and worst.space is not None
    assert (
        worst.value is not None
        and worst.objective is not None
        and worst.gap is not None
        and worst.upper_bound is not None
    )
    M = SQUARE.matrix(
        worst.space.kernel, worst.space.support_points, LINE, worst.space.log_unit, worst.space.T
    ).values
    assert worst.objective == pytest.approx(
        conic_worst_case(
            worst.space.compressed_map.tensor, worst.space.coordinates(X), M, None, penalty
        ),
        rel=1e-6,
    )
    assert worst.objective == pytest.approx(worst.value - penalty * worst.mmd**2)
    assert worst.gap <= 1e-6
    assert worst.objective <= worst.upper_bound <= worst.objective + 0.05 * max(worst.value, 1.0)
    # the ball of that radius has the same answer
    assert ksos.worst_case(
        SQUARE, ksos.Ball(X, worst.mmd, **BALL), n_support=N_SUPPORT
    ).value == pytest.approx(worst.value, rel=1e-5)


def test_bootstrap_radius() -> None:
    first, again, other = (ksos.Ball(X, "bootstrap", rng=seed, **BALL).radius for seed in (3, 3, 4))
    assert first == again != other and 0.05 < first < 0.5
    assert ksos.Ball(X, "bootstrap", rng=3, confidence=0.999, **BALL).radius > first
    assert ksos.Ball(X, 0.1, rng=3, **BALL).with_radius("bootstrap").radius == first


def test_bootstrap_radius_is_the_quantile_of_resamples() -> None:
    rng = np.random.default_rng(1)
    draws = [ksos.mmd(X[rng.integers(40, size=40)], X, Gaussian(1.0)) for _ in range(800)]
    ball = ksos.Ball(X, "bootstrap", confidence=0.9, n_resamples=1500, **BALL)
    assert ball.radius == pytest.approx(np.quantile(draws, 0.9), rel=0.05)
    counts = np.random.default_rng(0).multinomial(40, ball.weights, size=20)
    same = sorted(ball.mmd(ball.points, count) for count in counts)
    median = ksos.Ball(X, "bootstrap", confidence=0.5, n_resamples=20, **BALL)
    assert median.radius == pytest.approx(same[10], rel=1e-9)


def test_bootstrap_balls_hold_the_population() -> None:
    population = np.random.default_rng(9).normal(size=(1200, 1))
    inside = 0
    for seed in range(25):
        sample = np.random.default_rng(seed).normal(size=(30, 1))
        ball = ksos.Ball(sample, "bootstrap", kernel=Gaussian(1.0), n_resamples=300, rng=seed)
        inside += ball.contains(population)
    assert inside >= 20  # 24 expected


def test_a_ball_contains_what_is_near_and_on_its_domain(worst: ksos.WorstCase) -> None:
    ball = ksos.Ball(X, 0.3, **BALL)
    assert ball.n_features == 1 and ball.domain == LINE and ball.kernel == Gaussian(1.0)
    assert "within MMD 0.3 of 40 distinct samples" in repr(ball)
    assert ball.contains(worst.distribution) and ball.mmd(worst.distribution) == worst.mmd
    assert not ball.with_radius(0.99 * worst.mmd).contains(worst.distribution)
    assert not ksos.Ball(X, 0.3, kernel=Gaussian(1.0), domain="samples").contains(
        worst.distribution
    )
    assert (
        ball.contains(X) and ball.contains(X[::-1], np.ones(40)) and not ball.contains(X[:1] + 1.0)
    )
    assert ball.contains(ksos.MeanEmbedding(X, kernel=Gaussian(1.0)))
    far = np.append(X, [[2.5]], axis=0)
    assert ball.mmd(far) < 0.3 and not ball.contains(far)


def test_the_samples_are_a_domain() -> None:
    """Reweightings of the samples: value, MMD and the bound over all weights, by a conic solver."""
    cp = pytest.importorskip("cvxpy")
    ball = ksos.Ball(X, 0.2, kernel=Gaussian(1.0), domain="samples")
    worst = ksos.worst_case(SQUARE, ball, n_support=40)
    assert worst.upper_bound_kind == "rigorous" and ball.contains(worst.distribution)
    mu = cp.Variable(40, nonneg=True)
    L = np.linalg.cholesky(Gaussian(1.0)(ball.points) + 1e-12 * np.eye(40))
    near = cp.norm(L.T @ (mu - ball.weights)) <= 0.2
    problem = cp.Problem(cp.Maximize(SQUARE(ball.points) @ mu), [cp.sum(mu) == 1, near])
    problem.solve(solver=cp.CLARABEL)
    assert 0.95 * problem.value <= worst.value <= problem.value * (1.0 + 1e-6)
    assert problem.value * (1.0 - 1e-6) <= worst.upper_bound <= 1.01 * problem.value


@pytest.mark.parametrize(
    ("data", "options", "what"),
    [
        (X[:1], {}, "needs at least two distinct samples"),
        (X, {"confidence": 1.0}, "confidence must lie strictly between 0 and 1; got 1.0"),
        (X, {"n_resamples": 2}, "n_resamples must be at least 10"),
        (ksos.MeanEmbedding(X, -np.ones(40), kernel=Gaussian(1.0)), {}, "needs data that are a"),
    ],
)
def test_bootstrap_of_nothing(data: Any, options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        ksos.Ball(data, "bootstrap", **BALL, **options)


# --- data, spaces, domains ---


def test_weights_are_repetitions_and_order_does_not_matter() -> None:
    counts = np.random.default_rng(5).integers(0, 4, 40)
    one = ksos.worst_case(SQUARE, ksos.Ball(X, 0.2, weights=counts, **BALL), n_support=N_SUPPORT)
    other = ksos.worst_case(
        SQUARE, ksos.Ball(np.repeat(X, counts, axis=0)[::-1], 0.2, **BALL), n_support=N_SUPPORT
    )
    assert one.value == pytest.approx(other.value, rel=1e-7)
    embedding = ksos.MeanEmbedding(X, counts / counts.sum(), kernel=Gaussian(1.0))
    assert ksos.worst_case(
        SQUARE, ksos.Ball(embedding, 0.2, domain=LINE), n_support=20
    ).value == pytest.approx(one.value, rel=1e-6)


def test_signed_embeddings_may_be_the_center() -> None:
    v = ksos.MeanEmbedding([[-0.5], [0.5], [0.0]], [0.8, 0.6, -0.4], kernel=Gaussian(1.0))
    worst = ksos.worst_case(coordinate(0), ksos.Ball(v, 0.4, domain=LINE), n_support=20)
    assert worst.status == "solved" and worst.mmd <= 0.4
    assert ksos.mmd(worst.distribution, v, Gaussian(1.0)) == pytest.approx(worst.mmd, abs=1e-9)


def test_a_space_is_used_as_it_is() -> None:
    space = ksos.SoSSpace(
        Gaussian(0.6),
        np.linspace(-2.0, 2.0, 11)[:, None],
        LINE,
        Gaussian(1.0),
        np.linspace(-1.0, 1.0, 3)[:, None],
    )
    worst = ksos.worst_case(
        SQUARE, ksos.Ball(X, 0.3, kernel=space.embedding_kernel, domain=space.measure), space=space
    )
    assert worst.space is space
    assert worst.mmd <= 0.3, (
        "few landmarks: the projected ball is larger, the density is in the exact one all the same"
    )
    assert worst.projected_mmd < 0.3 - AGREEMENT
    assert "exact and projected MMD differ by" in worst.note
    assert worst.gap is not None and worst.gap > 1e-4, "and the gap counts what that costs"
    with pytest.raises(ValueError, match="omit bandwidth and n_support, or the space"):
        ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, **BALL), space=space, bandwidth=1.0)
    with pytest.raises(TypeError, match=r"space must be a ksos\.SoSSpace"):
        ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, **BALL), space="R")
    for name, ball in {
        "kernel": ksos.Ball(X, 0.3, domain=LINE),
        "domain": ksos.Ball(X, 0.3, kernel=Gaussian(1.0)),
        "n_features": ksos.Ball(np.zeros((3, 2)), 0.3, kernel=Gaussian(1.0)),
    }.items():
        with pytest.raises(ValueError, match=f"the {name} of the ball is .* of the space is"):
            ksos.worst_case(SQUARE, ball, space=space)


def test_landmarks_grow_until_exact_and_projected_agree() -> None:
    ball = ksos.Ball(X, 0.3, kernel=Gaussian(0.25), domain=LINE)
    space = adversary_in(ball, n_support=20).space
    few = ksos.SoSSpace(
        space.kernel, space.support_points, LINE, Gaussian(0.25), space.landmarks[:4]
    )
    poor = ksos.worst_case(SQUARE, ball, space=few)
    rich = ksos.worst_case(SQUARE, ball, n_support=20)
    assert rich.mmd - rich.projected_mmd <= AGREEMENT < poor.mmd - poor.projected_mmd
    assert rich.gap is not None and rich.gap <= 1e-6 * 4.0


def test_on_all_of_space_an_unbounded_loss_warns_and_names_the_box() -> None:
    with pytest.warns(
        UserWarning,
        match=(
            r"is unbounded on Lebesgue\(\), .* may be infinite; .* in the box from \[-[\d.]+\] to"
            r" \[[\d.]+\]"
        ),
    ):
        worst = ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, kernel=Gaussian(1.0)), n_support=20)
    assert (
        worst.value is not None
        and worst.upper_bound == np.inf
        and worst.upper_bound_kind == "infinite"
    )
    assert worst.mmd <= 0.3 and worst.status == "solved"
    with pytest.warns(UserWarning, match="is not known to be bounded"):
        code = ksos.worst_case(
            lambda Z: np.tanh(Z[:, 0]), ksos.Ball(X, 0.3, kernel=Gaussian(1.0)), n_support=20
        )
    assert code.upper_bound_kind == "estimate"
    known = ksos.worst_case(
        NumericFunction(lambda Z: np.tanh(Z[:, 0]), bounded=True),
        ksos.Ball(X, 0.3, kernel=Gaussian(1.0)),
        n_support=20,
    )
    assert known.value == pytest.approx(code.value, rel=1e-6)


@pytest.mark.parametrize("measure", [Lebesgue(), Normal(0.0, 1.0), Box([-np.inf], [1.5])])
def test_bounded_losses_are_bounded_rigorously_on_unbounded_domains(measure: Any) -> None:
    for loss in (
        KernelFunction([[0.9]], [1.0], kernel=Gaussian(0.5)),
        BoxIndicator([1.0], [1.4]),
        BoxIndicator([-np.inf], [-1.0]),
    ):
        worst = ksos.worst_case(
            loss, ksos.Ball(X, 0.1, kernel=Gaussian(1.0), domain=measure), n_support=20
        )
        assert worst.upper_bound_kind == "rigorous" and worst.mmd <= 0.1
        assert worst.value is not None and worst.upper_bound is not None
        assert worst.value <= worst.upper_bound <= 1.0
        far = -1.2 if loss(np.array([[-50.0]]))[0] else 1.2
        t = 0.1 / ksos.mmd(X, np.array([[far]]), Gaussian(1.0))
        assert (1.0 - t) * float(np.mean(loss(X))) + t * float(
            loss(np.array([[far]]))[0]
        ) <= worst.upper_bound + 1e-9


def test_kernels_without_a_closed_form_are_refused_before_any_work() -> None:
    with pytest.raises(
        IntegralNotAvailableError,
        match=r"or put the density on nodes.*domain of a Ball.*Discrete\.quad",
    ):
        ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, kernel="laplace", domain=LINE))
    with pytest.raises(
        IntegralNotAvailableError, match="on a box is known in up to 3 features; got 4"
    ):
        ksos.worst_case(
            SQUARE,
            ksos.Ball(
                np.zeros((3, 4)), 0.3, kernel=Gaussian(1.0), domain=Box([-1.0] * 4, [1.0] * 4)
            ),
            bandwidth=1.0,
        )


def test_kernels_on_nodes() -> None:
    nodes = Discrete.quadrature(LINE, 60)
    worst = ksos.worst_case(
        SQUARE,
        ksos.Ball(X, 0.3, kernel=Laplace(1.0, product=True), domain=nodes),
        bandwidth=0.7,
        n_support=20,
    )
    assert worst.status == "solved" and worst.mmd <= 0.3 and worst.upper_bound_kind == "rigorous"
    assert ksos.mmd(worst.distribution, X, Laplace(1.0, product=True)) == pytest.approx(
        worst.mmd, abs=1e-9
    )
    assert (
        worst.value is not None
        and worst.upper_bound is not None
        and worst.value <= worst.upper_bound
    )


def test_two_features_and_an_exact_ball() -> None:
    data = points(15, 2)
    loss = Polynomial({(2, 0): 1.0, (0, 1): 1.0})
    worst = ksos.worst_case(
        loss,
        ksos.Ball(data, 0.3, kernel=Gaussian(1.3), domain=Box([-1.5, -1.5], [1.5, 1.5])),
        bandwidth=1.1,
        n_support=16,
    )
    assert worst.status == "solved" and worst.mmd <= 0.3
    assert ksos.mmd(worst.distribution, data, Gaussian(1.3)) == pytest.approx(worst.mmd, abs=1e-9)
    assert (
        worst.value is not None
        and worst.upper_bound is not None
        and worst.value <= worst.upper_bound <= 1.25 * worst.value
    )
    assert worst.distribution is not None
    assert worst.distribution.expectation(loss) == pytest.approx(worst.value, rel=1e-7)


def test_three_features_on_a_box() -> None:
    data, box = points(10, 3), Box([-1.0] * 3, [1.0] * 3)
    worst = ksos.worst_case(
        coordinate(2),
        ksos.Ball(data, 0.3, kernel=Gaussian(2.5), domain=box),
        bandwidth=2.5,
        n_support=8,
    )
    assert worst.status == "solved" and worst.mmd <= 0.3
    assert ksos.mmd(worst.distribution, data, Gaussian(2.5)) == pytest.approx(worst.mmd, abs=1e-8)


def test_many_features_on_all_of_space() -> None:
    data = points(8, 5)
    loss = KernelFunction(np.full((1, 5), 0.3), [1.0], kernel=Gaussian(3.0))
    worst = ksos.worst_case(
        loss, ksos.Ball(data, 0.3, kernel=Gaussian(3.0)), bandwidth=1.0, n_support=8
    )
    assert worst.status == "solved" and worst.mmd <= 0.3
    assert ksos.mmd(worst.distribution, data, Gaussian(3.0)) == pytest.approx(worst.mmd, abs=1e-12)
    assert worst.mmd - worst.projected_mmd <= 1e-3
    assert (
        worst.value is not None
        and worst.upper_bound is not None
        and worst.value <= worst.upper_bound <= 1.0 + 1e-6
    )


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1e6, 0.0), (1e150, 0.0), (1.0, 1e8)])
def test_units_and_origin_do_not_matter(scale: float, shift: float) -> None:
    data = np.round(X[:15], 6)
    moved = (data * scale) + shift
    data = (moved - shift) / scale
    plain = ksos.worst_case(
        KernelFunction([[0.7]], [1.0], kernel=Gaussian(0.8)),
        ksos.Ball(data, 0.2, kernel=Gaussian(1.0), domain=LINE),
        n_support=12,
    )
    other = ksos.worst_case(
        KernelFunction([[0.7 * scale + shift]], [1.0], kernel=Gaussian(0.8 * scale)),
        ksos.Ball(
            moved,
            0.2,
            kernel=Gaussian(scale),
            domain=Box([-2.0 * scale + shift], [2.0 * scale + shift]),
        ),
        n_support=12,
    )
    assert other.value == pytest.approx(plain.value, rel=1e-6)
    assert other.upper_bound == pytest.approx(plain.upper_bound, rel=1e-4)


EMBEDDED = ksos.MeanEmbedding(X, kernel=Gaussian(1.0))
DENSITY = ksos.SoSDensity(Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)


@pytest.mark.parametrize(
    ("data", "options", "error", "what"),
    [
        ([[np.nan]], {}, ValueError, "NaN"),
        ([1.0, 2.0], {}, ValueError, "Expected 2D array"),
        (X, {"weights": -np.ones(40)}, ValueError, "weights must not be negative"),
        (X, {"weights": np.ones(3)}, ValueError, "weights must have length 40; got 3"),
        (X, {"kernel": "cauchy"}, ValueError, "kernel must be one of 'gaussian'"),
        (X, {"kernel": Gaussian([1.0, 2.0])}, ValueError, "2 "),
        (X, {"domain": "box"}, TypeError, "domain must be a measure such as"),
        (X, {"domain": Box([0.0] * 2, [1.0] * 2)}, ValueError, "2 features, but the points have 1"),
        (EMBEDDED, {"weights": np.ones(40)}, ValueError, "a MeanEmbedding has its own"),
        (EMBEDDED, {"kernel": Gaussian(2.0)}, ValueError, "omit kernel="),
        (DENSITY, {}, TypeError, "draw samples from it with rvs"),
    ],
)
def test_balls_that_are_none(
    data: Any, options: dict[str, Any], error: type[Exception], what: str
) -> None:
    with pytest.raises(error, match=re.escape(what)):
        ksos.Ball(data, 0.3, **{**BALL, **options})


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"bandwidth": -1.0}, "bandwidth must be positive"),
        ({"n_support": 0}, "n_support must be at least 2; got 0"),
        ({"tol": 0.0}, "tol must be positive"),
        ({"rtol": 0.0}, "rtol must be positive"),
        ({"time_limit": -1.0}, "time_limit must be positive"),
        ({"lipschitz": -1.0}, "lipschitz must be non-negative"),
    ],
)
def test_bad_options(options: dict[str, Any], what: str) -> None:
    with pytest.raises(ValueError, match=re.escape(what)):
        ksos.worst_case(SQUARE, ksos.Ball(X, 0.3, **BALL), **options)
    with pytest.raises(TypeError, match=r"ball must be a ksos\.Ball"):
        ksos.worst_case(SQUARE, X)


def test_input_is_not_changed_and_lists_do() -> None:
    data = X.copy()
    data.setflags(write=False)
    assert (
        ksos.worst_case(SQUARE, ksos.Ball(data, 0.2, **BALL), n_support=N_SUPPORT).value
        == ksos.worst_case(SQUARE, ksos.Ball(X.tolist(), 0.2, **BALL), n_support=N_SUPPORT).value
    )


def test_defaults_are_scale_free() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = (
            ksos.worst_case(SQUARE * scale ** (-2), ksos.Ball(X[:20] * scale, 0.2), n_support=16)
            for scale in (1.0, 1e5)
        )
    assert one.value == pytest.approx(other.value, rel=1e-6)


@given(degenerate_data())
@settings(max_examples=12)
def test_any_data_give_an_answer_in_order_or_a_status(data: np.ndarray) -> None:
    """No NaN, no warning from arithmetic: the value is in the exact ball and below the bound, or
    there is none and the status says why.
    """
    data = np.asarray(data, dtype=float)
    loss = BoxIndicator(data.mean(axis=0), np.full(data.shape[1], np.inf))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no spread; the bandwidth is set to 1")
        try:
            worst = ksos.worst_case(loss, ksos.Ball(data, 0.5), n_support=6)
        except ValueError as error:
            assert "rescale the data" in str(error)
            return
    if worst.value is None:
        assert worst.status in ("infeasible", "undecided")
        assert worst.status == "undecided" or (
            worst.least_radius is not None and worst.least_radius > 0.5
        )
    else:
        assert worst.upper_bound is not None
        assert worst.mmd <= 0.5 and 0.0 <= worst.value <= worst.upper_bound + 1e-9 <= 1.0 + 1e-6
