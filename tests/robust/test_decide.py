"""ksos.decide: both bounds hold against brute force, what counts as feasible is, and every wrong
input has an error that names the fix.
"""

from __future__ import annotations

import builtins
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import ksos
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete
from ksos.observables import Maximum

cp = pytest.importorskip("cvxpy")

DEMAND = np.random.default_rng(0).lognormal(3.0, 0.4, size=(60, 1))
RETURNS = np.random.default_rng(3).normal([0.05, 0.08], [0.1, 0.2], size=(50, 2))
LINE = Box([0.0], [80.0])
PLANE = Box(RETURNS.min(axis=0) - 0.1, RETURNS.max(axis=0) + 0.1)


def grid(box: Box, n: int) -> np.ndarray:
    axes = [np.linspace(*ends, n) for ends in zip(box.low, box.high, strict=True)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def features(ball: ksos.Ball, points: np.ndarray) -> np.ndarray:
    """F with FFᵀ = K on the points."""
    values, Q = np.linalg.eigh(ball.kernel(points))
    keep = values > 1e-11 * values[-1]
    return np.asarray(Q[:, keep] * np.sqrt(values[keep]))


def worst_on(ball: ksos.Ball, values: Callable[[np.ndarray], np.ndarray], n: int) -> float:
    """The largest expectation over distributions of the ball on a grid and the data."""
    atoms = np.concatenate([grid(ball.domain, n), ball.points])  # type: ignore[arg-type]
    F = features(ball, atoms)
    center = F[-ball.points.shape[0] :].T @ ball.weights
    mu = cp.Variable(atoms.shape[0], nonneg=True)
    near = cp.norm(F.T @ mu - center) <= ball.radius
    problem = cp.Problem(cp.Maximize(values(atoms) @ mu), [cp.sum(mu) == 1.0, near])
    return float(problem.solve(solver=cp.CLARABEL))


def best_on(ball: ksos.Ball, loss: Callable[[np.ndarray], Any], constraints: Any, n: int) -> float:
    """min over the decision of the largest expectation on a grid and the data, by the dual."""
    atoms = np.concatenate([grid(ball.domain, n), ball.points])  # type: ignore[arg-type]
    F = features(ball, atoms)
    c, t = cp.Variable(F.shape[1]), cp.Variable()
    level = ball.weights @ F[-ball.points.shape[0] :] @ c + ball.radius * cp.norm(c)
    problem = cp.Problem(cp.Minimize(t + level), [loss(atoms) <= t + F @ c, *constraints])
    return float(problem.solve(solver=cp.CLARABEL))


def check(d: ksos.Decision, ball: ksos.Ball, rtol: float) -> None:
    """What every decision promises."""
    assert d.status == "solved"
    assert d.lower_bound <= d.value <= d.upper_bound
    assert d.gap <= rtol * max(abs(d.upper_bound), np.std(d.loss(ball.points))) + 1e-8
    assert ball.contains(*d.adversary)
    assert abs(d.adversary.weights.sum() - 1.0) < 1e-9 and np.all(d.adversary.weights >= 0.0)


@pytest.mark.parametrize("radius", [0.02, 0.1, 0.4])
def test_newsvendor_is_bounded_from_both_sides(radius: float) -> None:
    ball = ksos.Ball(DEMAND, radius, domain=LINE)
    order = cp.Variable(nonneg=True)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, rtol=5e-3)
    check(d, ball, 5e-3)
    q = float(order.value)
    assert d.upper_bound_kind == "rigorous" and d.proven_bound == d.upper_bound
    np.testing.assert_allclose(d.loss([[q], [q + 2.0], [q - 3.0]]), [0.0, 8.0, 3.0], atol=1e-9)

    def by_hand(P: np.ndarray) -> Any:
        return cp.maximum(4.0 * (P[:, 0] - order), order - P[:, 0])

    best = best_on(ball, by_hand, [], 400)
    worst = worst_on(ball, d.loss, 400)
    # a grid is a relaxation for the decision, and its adversaries are in the ball
    assert d.lower_bound <= best * (1.0 + 1e-4) and worst <= d.upper_bound + 1e-6
    assert best <= worst + 1e-6 and d.upper_bound <= 1.006 * best


def test_sums_of_risks_and_constraints_of_the_user() -> None:
    """Two products with bounds and a budget."""
    demand = np.random.default_rng(2).lognormal(1.0, 0.5, size=(60, 2))
    box = Box([0.0, 0.0], [16.0, 16.0])
    ball = ksos.Ball(demand, 0.1, domain=box)
    order = cp.Variable(2, nonneg=True)
    costs = [ksos.risk.newsvendor(order[j], 4.0, 1.0, column=j) for j in range(2)]
    limits = [cp.sum(order) <= 9.0, order <= 6.0]
    d = ksos.decide(costs[0] + costs[1], ball, limits, rtol=2e-2)
    check(d, ball, 2e-2)
    assert d.upper_bound_kind == "rigorous"
    assert order.value.sum() <= 9.0 + 1e-6 and np.all(order.value <= 6.0 + 1e-6)

    def by_hand(P: np.ndarray) -> Any:
        return sum(cp.maximum(4.0 * (P[:, j] - order[j]), order[j] - P[:, j]) for j in range(2))

    best = best_on(ball, by_hand, limits, 12)
    # the grid is coarse, and a relaxation
    assert d.lower_bound <= 1.01 * best and best <= d.upper_bound
    assert worst_on(ball, d.loss, 12) <= d.upper_bound


def test_mean_and_cvar_on_a_simplex() -> None:
    ball = ksos.Ball(RETURNS, 0.1, domain=PLANE)
    share = cp.Variable(2, nonneg=True)
    loss = lambda P: -P @ share  # noqa: E731
    risk = ksos.risk.expectation(loss) + ksos.risk.cvar(loss, 0.1)
    d = ksos.decide(risk, ball, [cp.sum(share) == 1.0])
    check(d, ball, 1e-2)
    assert d.upper_bound_kind == "rigorous" and abs(share.value.sum() - 1.0) < 1e-6
    x = share.value

    def cvar(losses: np.ndarray, mu: np.ndarray) -> float:
        order = np.argsort(-losses)
        before = np.cumsum(mu[order]) - mu[order]
        return float(np.clip(0.1 - before, 0.0, mu[order]) @ losses[order]) / 0.1

    # the risk of the decision under the adversary is what it is called
    losses, mu = -d.adversary.points @ x, d.adversary.weights
    assert losses @ mu + cvar(losses, mu) <= d.upper_bound + 1e-9
    assert losses @ mu + cvar(losses, mu) >= d.lower_bound - 1e-6
    assert worst_on(ball, d.loss, 15) <= d.upper_bound


@pytest.mark.parametrize("kernel", [Laplace(0.3), Gaussian([0.2, 0.4])])
def test_other_kernels(kernel: Any) -> None:
    ball = ksos.Ball(RETURNS, 0.1, domain=PLANE, kernel=kernel)
    slope = cp.Variable()
    risk = ksos.risk.absolute(lambda P: P[:, 1] - P[:, 0] * slope)
    d = ksos.decide(risk, ball, rtol=0.05)
    check(d, ball, 0.05)
    assert worst_on(ball, d.loss, 13) <= d.upper_bound <= d.proven_bound + 1e-12


@pytest.mark.parametrize("kernel", ["laplace", "matern"])
def test_other_kernels_are_rigorous_on_a_line(kernel: str) -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, kernel=kernel, domain=LINE), cp.Variable(nonneg=True)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball)
    check(d, ball, 1e-2)
    assert d.upper_bound_kind == "rigorous"
    assert worst_on(ball, d.loss, 150) <= d.upper_bound


LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "pinball": lambda w, b: ksos.risk.pinball(lambda P: P[:, 1] - P[:, 0] * w - b, 0.8),
    "absolute": lambda w, b: ksos.risk.absolute(lambda P: P[:, 1] - P[:, 0] * w - b),
    "hinge": lambda w, b: ksos.risk.hinge(lambda P: cp.multiply(P[:, 1], 10.0 * P[:, 0] * w + b)),
    "square": lambda w, b: ksos.risk.expectation(lambda P: cp.square(P[:, 1] - P[:, 0] * w - b)),
    "pieces": lambda w, b: ksos.risk.pieces(
        [lambda P: P[:, 0] * w - b, lambda P: cp.square(P[:, 1] - b), lambda P: 0.1]
    ),
    "ridge": lambda w, b: (
        2.0 * ksos.risk.absolute(lambda P: P[:, 1] - P[:, 0] * w - b) + cp.square(w)
    ),
    "expressions one by one": lambda w, b: ksos.risk.expectation(
        lambda P: [cp.abs(P[i, 0] * w - P[i, 1]) + b**2 for i in range(P.shape[0])]
    ),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_rigorous_and_agree_with_a_grid(name: str) -> None:
    ball = ksos.Ball(RETURNS, 0.15, domain=PLANE)
    w, b = cp.Variable(), cp.Variable()
    risk = LOSSES[name](w, b)
    d = ksos.decide(risk, ball)
    check(d, ball, 1e-2)
    assert d.upper_bound_kind == "rigorous"
    at = RETURNS[:7]
    np.testing.assert_allclose(d.loss(at), risk.values(at), atol=1e-9)
    best, worst = best_on(ball, risk.at, [], 12), worst_on(ball, d.loss, 12)
    assert d.lower_bound <= best + 2e-3 * abs(best) + 1e-7 and worst <= d.upper_bound + 1e-7


def test_code_is_an_estimate_unless_its_lipschitz_constant_is_known() -> None:
    ball = ksos.Ball(DEMAND, 0.1, domain=LINE)
    order = cp.Variable(nonneg=True)

    def numpy_inside(P: np.ndarray) -> Any:
        return cp.multiply(np.maximum(P[:, 0] - 30.0, 0.0) / 10.0, cp.square(order - 1.0)) + order

    estimate = ksos.decide(ksos.risk.expectation(numpy_inside), ball)
    assert (estimate.status, estimate.upper_bound_kind) == ("solved", "estimate")
    steep = 0.1 * cp.square(order - 1.0)
    known = ksos.decide(ksos.risk.expectation(numpy_inside, lipschitz=steep), ball)
    assert (known.status, known.upper_bound_kind) == ("solved", "rigorous")
    assert abs(known.value - estimate.value) < 1e-2 * known.value
    assert worst_on(ball, estimate.loss, 400) <= min(estimate.upper_bound, known.upper_bound)
    margin = ksos.risk.logistic(lambda P: (P[:, 0] - 20.0) * order / 10.0, lipschitz=order / 10.0)
    assert ksos.decide(margin, ball).upper_bound_kind == "rigorous"


# Constraints on risks.


@pytest.mark.parametrize("domain", [PLANE, "samples"])
def test_a_bounded_risk_is_certified(domain: Any) -> None:
    ball = ksos.Ball(RETURNS, 0.02, domain=domain)
    share = cp.Variable(2)
    loss = lambda P: -P @ share  # noqa: E731
    inside = [share >= -1.0, share <= 1.0]
    free = ksos.decide(ksos.risk.expectation(loss), ball, inside)
    limit = ksos.risk.cvar(loss, 0.2) <= 0.1
    d = ksos.decide(ksos.risk.expectation(loss), ball, [limit, *inside], rtol=2e-2)
    check(d, ball, 2e-2)
    assert d.upper_bound_kind == "rigorous"
    assert len(d.limits) == 1 and -2e-3 < d.limits[0] <= 0.0
    assert d.lower_bound > free.upper_bound, "the constraint binds"
    if domain == "samples":
        return
    x = share.value

    def tail(P: np.ndarray, level: float) -> np.ndarray:
        return level + np.maximum(-P @ x - level, 0.0) / 0.2

    # the worst CVaR is the least of these, but for the steps of the level
    found = [worst_on(ball, lambda P, t=t: tail(P, t), 8) for t in np.linspace(-0.05, 0.1, 7)]
    assert 0.09 < min(found) < 0.1 + 5e-3


@pytest.mark.parametrize("domain", [PLANE, "samples"])
def test_what_is_infeasible_is_told_from_what_is_tight(domain: Any) -> None:
    """Below the lower bound of the least worst CVaR is none, and the least one meets its own."""
    ball, share = ksos.Ball(RETURNS, 0.05, domain=domain), cp.Variable(2, nonneg=True)
    loss = lambda P: -P @ share  # noqa: E731
    simplex, tail = [cp.sum(share) == 1.0], ksos.risk.cvar(loss, 0.2)
    least = ksos.decide(tail, ball, simplex)
    room = least.gap + 1e-3 * abs(least.value)
    tight = [*simplex, tail <= least.upper_bound + room]
    d = ksos.decide(ksos.risk.expectation(loss), ball, tight)
    assert d.status == "solved" and d.limits[0] <= 0.0 and np.isfinite(d.upper_bound)
    below = [*simplex, ksos.risk.cvar(loss, 0.2) <= least.lower_bound - room]
    with pytest.raises(ValueError, match=r"no decision keeps the risks.*finitely many points"):
        ksos.decide(ksos.risk.expectation(loss), ball, below)


def test_a_constraint_that_only_rounding_breaks_is_tightened() -> None:
    """At the decision the loss of the constraint is the same for all data."""
    points = np.clip(np.random.default_rng(11).normal(scale=0.6, size=(24, 2)), -1.4, 1.4)
    ball = ksos.Ball(points, 0.47, kernel=Gaussian(1.4), domain=Box([-1.5] * 2, [1.5] * 2))
    top = cp.Variable()
    d = ksos.decide(top, ball, [ksos.risk.chance(lambda P: P[:, 0] - top, 0.5)])
    assert d.status == "solved" and d.limits[0] <= 0.0 and abs(d.upper_bound - 1.5) < 1e-6


def test_a_chance_constraint_holds_for_every_distribution() -> None:
    ball = ksos.Ball(DEMAND, 0.03, domain=LINE)
    stock = cp.Variable(nonneg=True)
    missing = lambda P: P[:, 0] - stock  # noqa: E731
    cost = ksos.risk.expectation(lambda P: stock)
    d = ksos.decide(cost, ball, [ksos.risk.chance(missing, 0.2)], rtol=2e-2)
    check(d, ball, 2e-2)
    exact = ksos.decide(ksos.risk.probability(missing), ball, rtol=2e-2)
    check(exact, ball, 2e-2)
    assert exact.upper_bound <= 0.2 and exact.upper_bound_kind == "rigorous"
    # exact for the decision: the fixed loss 1[x > stock] on a grid
    worst = worst_on(ball, lambda P: (P[:, 0] > float(stock.value)).astype(float), 400)
    assert exact.lower_bound - 1e-2 <= worst <= exact.upper_bound + 1e-6


def test_a_cost_of_the_decision_alone_and_the_negative_of_a_risk() -> None:
    ball, size = ksos.Ball(DEMAND, 0.03, domain=LINE), cp.Variable(nonneg=True)
    short = ksos.risk.chance(lambda P: P[:, 0] - size, 0.2)
    found = ksos.decide(3.0 * size, ball, [short], rtol=2e-2)
    check(found, ball, 2e-2)
    assert found.upper_bound == pytest.approx(3.0 * float(size.value), rel=1e-6)
    # the largest certain share of a demand that is sold, as a gain and as a loss
    gain = ksos.risk.expectation(lambda P: cp.minimum(P[:, 0], size) - 0.5 * size)
    loss = ksos.risk.pieces([lambda P: 0.5 * size - P[:, 0], lambda P: -0.5 * size])
    pair = [ksos.decide(risk, ball).value for risk in (-gain, sum([loss, 0.0 * loss]))]
    assert pair[0] == pytest.approx(pair[1], rel=1e-2) and repr(-gain) == "-expectation"
    assert repr(sum([loss, loss])) == "pieces + pieces"
    with pytest.raises(ksos.ConvexityError, match="not convex in the decision"):
        ksos.decide(-loss, ball, [size <= 60.0])


def test_several_limits_and_bounds_that_are_variables() -> None:
    ball = ksos.Ball(RETURNS, 0.05, domain=PLANE)
    share, level = cp.Variable(2, nonneg=True), cp.Variable()
    loss = lambda P: -P @ share  # noqa: E731
    limits = [ksos.risk.cvar(loss, 0.2) <= level, ksos.risk.expectation(loss) <= 0.1]
    epigraph = ksos.decide(
        ksos.risk.expectation(lambda P: level), ball, [*limits, cp.sum(share) == 1.0], rtol=2e-2
    )
    direct = ksos.decide(
        ksos.risk.cvar(loss, 0.2), ball, [limits[1], cp.sum(share) == 1.0], rtol=2e-2
    )
    for d in (epigraph, direct):
        check(d, ball, 2e-2)
        assert max(d.limits) <= 0.0
    assert epigraph.lower_bound <= direct.upper_bound and direct.lower_bound <= epigraph.upper_bound


# Finitely many points.


@pytest.mark.parametrize("d", [5, 20])
def test_reweightings_of_samples_are_exact(d: int) -> None:
    X = np.random.default_rng(1).normal(0.05, 0.1, size=(80, d))
    ball = ksos.Ball(X, 0.1, domain="samples")
    share = cp.Variable(d, nonneg=True)
    loss = lambda P: -P @ share  # noqa: E731
    risk = ksos.risk.expectation(loss) + ksos.risk.cvar(loss, 0.1)
    decision = ksos.decide(risk, ball, [cp.sum(share) == 1.0], rtol=1e-6)
    check(decision, ball, 1e-6)
    assert decision.upper_bound_kind == "rigorous" and decision.n_rounds == 1
    samples = {tuple(row) for row in X.tolist()}
    assert all(tuple(row) in samples for row in decision.adversary.points.tolist())


def test_labels_are_columns_of_a_discrete_domain() -> None:
    rng = np.random.default_rng(4)
    y = rng.choice([-1.0, 1.0], size=60)
    X = np.column_stack([rng.normal(size=60) + y, y])
    pairs = np.concatenate([X, np.column_stack([X[:, 0], -X[:, 1]])])  # labels may flip
    w, b = cp.Variable(), cp.Variable()
    risk = ksos.risk.hinge(lambda P: cp.multiply(P[:, 1], P[:, 0] * w + b))
    shift = ksos.decide(risk, ksos.Ball(X, 0.05, domain="samples"), rtol=1e-6)
    flip = ksos.decide(risk, ksos.Ball(X, 0.05, domain=Discrete(pairs)), rtol=1e-6)
    assert shift.upper_bound < flip.lower_bound
    plain = ksos.decide(risk, ksos.Ball(X, 0.0, domain="samples"), rtol=1e-6)
    assert plain.upper_bound < shift.lower_bound
    slack = np.maximum(0.0, 1.0 - X[:, 1] * (X[:, 0] * float(w.value) + float(b.value)))
    assert abs(slack.mean() - plain.value) < 1e-6


def test_features_lie_in_a_box_and_labels_have_levels() -> None:
    """What decides between the labels is the grid of features times labels, not the interval."""
    rng = np.random.default_rng(4)
    y = rng.choice([-1.0, 1.0], size=40)
    data = np.column_stack([rng.normal(size=40) + y, y])
    box = Box([-4.0, -1.0], [4.0, 1.0])
    ball = ksos.Ball(data, 0.05, domain=box, levels={1: [1, -1]})
    assert ball.contains(data) and not ball.contains(data * [1.0, 0.5])
    assert "column 1 in [-1.0, 1.0]" in repr(ball)
    w, b = cp.Variable(), cp.Variable()
    margin = lambda P: cp.multiply(P[:, 1], P[:, 0] * w + b)  # noqa: E731
    x = np.linspace(-4.0, 4.0, 200)
    atoms = np.concatenate([np.column_stack([x, np.full(200, sign)]) for sign in (-1.0, 1.0)])
    nodes = ksos.Ball(data, 0.05, domain=Discrete(np.concatenate([atoms, data])))
    for risk in (ksos.risk.hinge(margin), ksos.risk.logistic(margin, lipschitz=cp.abs(w))):
        d = ksos.decide(risk, ball)
        check(d, ball, 1e-2)
        assert d.upper_bound_kind == "rigorous"
        assert set(d.adversary.points[:, 1].tolist()) == {-1.0, 1.0}
        exact = ksos.decide(risk, nodes, rtol=1e-6)
        assert d.lower_bound <= exact.upper_bound * (1.0 + 1e-4)
        assert exact.lower_bound <= d.upper_bound
        with pytest.raises(ValueError, match=r"densities of a ball with levels.*RobustClassifier"):
            d.worst_case()
    # a product over both labels is half of the interval that lies between them
    gap = ksos.risk.expectation(lambda P: cp.square(w - 1.0) + 1.0 - cp.square(P[:, 1]))
    between = ksos.decide(gap, ksos.Ball(data, 0.05, domain=box))
    assert ksos.decide(gap, ball).upper_bound < 1e-6 < between.lower_bound
    for levels, match in [
        ({1: [-1.0, 2.0]}, r"levels of column 1 must lie in its interval \[-1, 1\]"),
        ({2: [1.0]}, "levels"),
        ({1: ["a"]}, "levels of column 1"),
    ]:
        with pytest.raises(ValueError, match=match):
            ksos.Ball(data, 0.1, domain=box, levels=levels)
    with pytest.raises(ValueError, match="finite sides"):
        ksos.Ball(data, 0.1, levels={1: [-1.0, 1.0]})
    odd = ksos.Ball(data * [1.0, 0.5], 0.1, domain=box, levels={1: [-1.0, 1.0]})
    with pytest.raises(ValueError, match="does not hold all of the data"):
        ksos.decide(gap, odd)


def test_signed_weights_and_the_least_radius() -> None:
    points = RETURNS[:3]
    signed = ksos.MeanEmbedding(points, [0.7, 0.6, -0.3], kernel=Gaussian(0.3))
    slope = cp.Variable()
    risk = ksos.risk.absolute(lambda P: P[:, 1] - P[:, 0] * slope)
    with pytest.raises(ValueError, match=r"the ball is empty.*MMD 0\.\d+; take a larger radius"):
        ksos.decide(risk, ksos.Ball(signed, 0.01, domain=PLANE))
    ball = ksos.Ball(signed, 0.4, domain=PLANE)
    check(ksos.decide(risk, ball, rtol=2e-2), ball, 2e-2)


@pytest.mark.parametrize("domain", ["samples", PLANE])
def test_a_worst_case_stands_in_a_model_of_the_user(domain: Any) -> None:
    ball = ksos.Ball(RETURNS, 0.1, domain=domain)
    share, losses = cp.Variable(2, nonneg=True), cp.Variable(len(RETURNS))
    worst = ball.support_function()
    inside = [cp.sum(share) == 1.0]
    # losses of the points that the ball has, not of the rows that it was made of
    squares = cp.square(0.1 - ball.points @ share)
    model = cp.Problem(
        cp.Minimize(worst(losses) + 0.1 * cp.norm(share)), [losses >= squares, *inside]
    )
    model.solve(solver=cp.CLARABEL)
    mine = ksos.risk.expectation(lambda P: cp.square(0.1 - P @ share)) + 0.1 * cp.norm(share)
    d = ksos.decide(mine, ksos.Ball(RETURNS, 0.1, domain="samples"), inside, rtol=1e-6)
    assert abs(model.value - d.value) < 1e-6 * d.value
    x = grid(PLANE, 6)
    on_grid = float(ball.support_function(x)(x[:, 0]).value)
    assert ball.weights @ ball.points[:, 0] < on_grid <= x[:, 0].max() + 1e-9


def test_weights_are_repetitions() -> None:
    X, times = DEMAND[:20], np.arange(1, 21) % 4 + 1
    order = cp.Variable(nonneg=True)
    risk = ksos.risk.newsvendor(order, 4.0, 1.0) - 0.5 * order  # a discount
    balls = [
        ksos.Ball(np.repeat(X, times, axis=0), 0.05, domain=LINE, kernel=Gaussian(10.0)),
        ksos.Ball(X, 0.05, weights=times, domain=LINE, kernel=Gaussian(10.0)),
    ]
    found = [ksos.decide(risk, ball) for ball in balls]
    assert found[0].upper_bound == pytest.approx(found[1].upper_bound, rel=1e-6)
    assert found[0].lower_bound == pytest.approx(found[1].lower_bound, rel=1e-6)


@pytest.mark.parametrize("domain", [None, Box([0.0], [np.inf])])
def test_bounded_losses_need_no_domain(domain: Any) -> None:
    ball = ksos.Ball(DEMAND, 0.1, domain=domain)
    x = cp.Variable()
    d = ksos.decide(ksos.risk.absolute(lambda P: np.tanh(P[:, 0] / 20.0) - x), ball)
    check(d, ball, 1e-2)
    assert d.upper_bound_kind == "estimate" and d.proven_bound == np.inf
    far = ksos.Ball(DEMAND, 0.1, domain=LINE)
    assert worst_on(far, lambda P: np.abs(np.tanh(P[:, 0] / 20.0) - x.value), 300) <= d.upper_bound
    with pytest.raises(ValueError, match="grows without bound"):
        ksos.decide(ksos.risk.newsvendor(x, 4.0, 1.0), ball)


# How a call ends.


def test_seeds_and_defaults_give_the_same_answer_again() -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    risk = ksos.risk.newsvendor(order, 4.0, 1.0)
    found = [ksos.decide(risk, ball, rng=seed) for seed in (0, 0, 1)]
    assert found[0].upper_bound == found[1].upper_bound
    assert found[0].lower_bound == found[1].lower_bound
    assert abs(found[2].upper_bound - found[0].upper_bound) < 0.01 * found[0].upper_bound


@pytest.mark.parametrize("nonneg", [True, False])  # without it CVXPY has no constraint
@pytest.mark.parametrize("solver", ["CLARABEL", "SCS"])
def test_solvers(solver: str, nonneg: bool) -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=nonneg)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, solver=solver)
    assert d.status == "solved" and 22.1 < d.lower_bound <= d.upper_bound < 22.5


def test_a_solver_that_cannot_take_the_problem_is_named() -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    with pytest.raises(RuntimeError, match=r"conic solver OSQP failed.*pass another one"):
        ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, solver="OSQP")


def test_at_the_time_limit_the_best_decision_has_both_bounds() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    ball = ksos.Ball(X, 0.1, domain=Box([-4.0] * 4, [4.0] * 4))
    share = cp.Variable(4, nonneg=True)
    risk = ksos.risk.cvar(lambda P: -P @ share, 0.1)
    with pytest.warns(ConvergenceWarning, match=r"decide: time_limit.*raise time_limit or rtol"):
        d = ksos.decide(risk, ball, [cp.sum(share) == 1.0], rtol=1e-4, time_limit=0.2)
    assert d.status == "time_limit" and d.lower_bound <= d.value <= d.upper_bound < np.inf
    assert abs(share.value.sum() - 1.0) < 1e-6
    np.testing.assert_allclose(d.loss(X[:5]), risk.values(X[:5]), atol=1e-9)


@pytest.mark.parametrize("at", [1, 40])
def test_ctrl_c_keeps_the_best_decision(at: int) -> None:
    """Interrupted while the loss is formed: before the first decision, or after."""
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    calls = 0

    def loss(P: Any) -> Any:
        nonlocal calls
        calls += isinstance(P, np.ndarray)
        if calls == at:
            calls += 1
            raise KeyboardInterrupt
        return cp.maximum(np.tanh(P[:, 0] / 30.0) - order / 20.0, 0.25 * order / 20.0)

    risk = ksos.risk.expectation(loss)
    if at == 1:
        with pytest.raises(KeyboardInterrupt):
            ksos.decide(risk, ball, rtol=1e-7)
        return
    d = ksos.decide(risk, ball, rtol=1e-7)
    assert d.status == "interrupted" and d.lower_bound <= d.upper_bound < np.inf
    assert order.value is not None


def test_a_decision_that_is_not_certified_has_no_upper_bound() -> None:
    ball, share = ksos.Ball(RETURNS, 0.02, domain=PLANE), cp.Variable(2)
    loss = lambda P: -P @ share  # noqa: E731
    limits = [ksos.risk.cvar(loss, 0.2) <= 0.1, share >= -1.0, share <= 1.0]
    with pytest.warns(ConvergenceWarning, match="constraints on risks are not certified"):
        d = ksos.decide(ksos.risk.expectation(loss), ball, limits, time_limit=0.01)
    assert d.upper_bound == d.gap == np.inf and np.isfinite(d.lower_bound)
    assert d.limits[0] > 0.0 and d.lower_bound <= d.value


def test_lines_of_each_round(capsys: pytest.CaptureFixture[str]) -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball, verbose=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == d.n_rounds and lines[0].startswith("[decide] round 1: ")


def test_words() -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball)
    assert repr(d).startswith("Decision: solved, gap ") and "(rigorous)" in d.message
    assert repr(ksos.risk.cvar(lambda P: P[:, 0], 0.1) <= 2.0) == "cvar(0.1) <= 2.0"


def test_the_worst_density_shows_what_smoothness_costs() -> None:
    ball = ksos.Ball(DEMAND, 0.05, domain=LINE)
    order = cp.Variable(nonneg=True)
    d = ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball)
    worst = d.worst_case(n_support=24)
    assert worst.value is not None and worst.upper_bound is not None
    assert ball.contains(worst.distribution)
    assert worst.value <= worst.upper_bound <= d.upper_bound
    assert worst.value > 0.9 * d.upper_bound and worst.upper_bound_kind == "rigorous"
    assert isinstance(d.loss, Maximum)


# Wrong input.


def test_wrong_input_names_the_fix() -> None:
    ball = ksos.Ball(RETURNS, 0.1, domain=PLANE)
    x = cp.Variable(2)
    mean = ksos.risk.expectation(lambda P: -P @ x)
    simplex = [x >= 0.0, cp.sum(x) == 1.0]

    def raises(
        match: str, risk: Any, ball: Any = ball, kind: Any = ValueError, **options: Any
    ) -> None:
        with pytest.raises(kind, match=match):
            ksos.decide(risk, ball, **options)

    raises("risk must come from ksos.risk", lambda P: P @ x, kind=TypeError)
    raises("ball must be a ksos.Ball", mean, RETURNS, TypeError)
    raises("finite radius", mean, ksos.Ball(RETURNS, np.inf, domain=PLANE))
    raises(
        "does not hold all of the data", mean, ksos.Ball(RETURNS, 0.1, domain=Box([0, 0], [1, 1]))
    )
    falling = ksos.risk.expectation(lambda P: P[:, 0] - x[0])
    raises("falls without end; bound the decision", falling)
    raises("no decision meets the constraints", mean, subject_to=[x >= 1.0, x <= 0.0])
    tight = ksos.risk.cvar(lambda P: -P @ x, 0.1) <= -5.0
    raises(r"no decision keeps the risks.*cvar\(0.1\) <= -5", mean, subject_to=[tight, *simplex])
    unbounded = ksos.Ball(RETURNS, 0.1)
    raises(r"grows without bound.*domain=Box\(low, high\)", mean, unbounded, subject_to=simplex)
    square = ksos.risk.expectation(lambda P: -cp.square(P @ x))
    raises("not convex in the decision", square, kind=ksos.ConvexityError)
    raises("not a convex constraint", mean, kind=ksos.ConvexityError, subject_to=[cp.norm(x) >= 1])
    raises("subject_to takes CVXPY constraints", mean, kind=TypeError, subject_to=[3.0])
    raises("solver must be one of", mean, solver="NONE", subject_to=simplex)
    raises("rtol must be positive", mean, rtol=0.0)
    raises("has no value; set its .value", ksos.risk.probability(lambda P: P @ cp.Variable(2)))
    whole = cp.Variable(2, integer=True)
    raises("is discrete", ksos.risk.expectation(lambda P: -P @ whole))
    raises(
        "one expression per point",
        ksos.risk.expectation(lambda P: P @ np.ones((2, 3)) @ np.ones((3, 2))),
    )
    raises("column 2 is not among the 2 columns", ksos.risk.newsvendor(x[0], 1.0, 1.0, column=2))
    others = ksos.risk.expectation(lambda P: (P - P.mean(axis=0)) @ x)
    raises("depends on the other points", others, subject_to=simplex)
    # which shows at no decision, since the best one makes it 0
    total = ksos.risk.expectation(lambda P: cp.sum(cp.pos(P @ x - 3.0)))
    raises("depends on the other points", total, subject_to=simplex)
    raises("number or CVXPY expression", ksos.risk.expectation(lambda P: None), kind=TypeError)
    with np.errstate(invalid="ignore"):
        log = ksos.risk.expectation(lambda P: np.log(P[:, 0]) * x[0])
        raises("NaN or infinite at some point", log, subject_to=simplex)


def test_an_error_in_the_loss_says_where_it_came_from() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        ksos.decide(ksos.risk.expectation(lambda P: 1 / 0), ksos.Ball(DEMAND, 0.1, domain=LINE))
    assert "raised by the loss of expectation" in caught.value.__notes__[0]


def test_wrong_risks_name_the_fix() -> None:
    f = lambda P: P[:, 0]  # noqa: E731
    for call, kind, match in [
        (lambda: ksos.risk.expectation(3.0), TypeError, "needs a function of points"),
        (lambda: ksos.risk.cvar(f, 0.0), ValueError, "mass of the tail"),
        (lambda: ksos.risk.cvar(f, 1.5), ValueError, "mass of the tail"),
        (lambda: ksos.risk.pinball(f, 1.0), ValueError, "strictly between 0 and 1"),
        (lambda: ksos.risk.newsvendor(1.0, -1.0, 1.0), ValueError, "underage must be non-negative"),
        (lambda: ksos.risk.pieces(f), TypeError, "pieces needs a list"),
        (lambda: -1.0 * ksos.risk.expectation(f), ValueError, "factor of a risk"),
        (lambda: ksos.risk.probability(f) <= 0.1, TypeError, "ksos.risk.chance"),
        (
            lambda: ksos.risk.expectation(f) + ksos.risk.probability(f),
            TypeError,
            "ksos.risk.chance",
        ),
        (lambda: ksos.risk.expectation(f, lipschitz=-1.0), ValueError, "lipschitz must be"),
    ]:
        with pytest.raises(kind, match=match):
            call()


def test_without_cvxpy_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def absent(name: str, *args: Any, **options: Any) -> Any:
        if name == "cvxpy":
            raise ModuleNotFoundError("no", name="cvxpy")
        return original(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'pip install "kernel-sos\[cvx\]"'):
        ksos.risk.expectation(lambda P: P[:, 0])


def test_nothing_warns_when_all_is_well() -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ksos.decide(ksos.risk.newsvendor(order, 4.0, 1.0), ball)


def test_anybody_can_check_the_upper_bound() -> None:
    """dual_constant + g majorizes the loss, which proves the bound without the solver."""
    ball = ksos.Ball(RETURNS, 0.1, domain=PLANE)
    share = cp.Variable(2, nonneg=True)
    d = ksos.decide(ksos.risk.cvar(lambda P: -P @ share, 0.2), ball, [cp.sum(share) == 1.0])
    g = d.dual_function
    assert g is not None
    x = np.concatenate([grid(PLANE, 100), d.adversary.points])
    assert np.all(d.loss(x) <= d.dual_constant + g(x) + 1e-12)
    norm = np.sqrt(g.weights @ g.kernel(g.points) @ g.weights)
    bound = d.dual_constant + ball.weights @ g(ball.points) + ball.radius * norm
    assert bound == pytest.approx(d.upper_bound, rel=1e-6)


def test_a_run_that_ends_early_is_proven_as_far_as_it_goes() -> None:
    ball, order = ksos.Ball(DEMAND, 0.05, domain=LINE), cp.Variable(nonneg=True)
    risk = ksos.risk.newsvendor(order, 4.0, 1.0)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        d = ksos.decide(risk, ball, rtol=1e-5, time_limit=0.02)
    assert d.upper_bound_kind == "rigorous" and d.gap > 1e-5 * d.upper_bound
    assert d.lower_bound <= 22.199 and 22.198 <= d.upper_bound < 25.0


def test_small_radii_and_many_samples() -> None:
    order = cp.Variable(nonneg=True)
    risk = ksos.risk.newsvendor(order, 4.0, 1.0)
    sharp = ksos.Ball(DEMAND, 1e-3, domain=LINE)
    check(ksos.decide(risk, sharp, rtol=1e-4), sharp, 1e-4)
    many = np.random.default_rng(1).lognormal(3.0, 0.4, size=(1200, 1))
    large = ksos.Ball(many, 0.05, domain=Box([0.0], [200.0]))
    check(ksos.decide(risk, large), large, 1e-2)
