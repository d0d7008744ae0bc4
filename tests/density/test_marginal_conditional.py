"""Marginals and conditionals: every (kernel, measure) pair against quadrature, chain rule, many
dimensions against samples.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from densities import from_square, make_density
from hypothesis import given, settings, strategies as st
from oracles import marginal_cdf, quadrature_rule
from scipy.integrate import cubature
from statistics_checks import dkw_passes_at
from strategies import clouds
from tables import PAIR_CASES, PairCase, answers_itself, points

import ksos
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

CONTINUOUS = {
    name: pair
    for name, pair in PAIR_CASES.items()
    if pair.d == 2 and not isinstance(pair.measure, Discrete)
}
every_pair = pytest.mark.parametrize("pair", CONTINUOUS.values(), ids=CONTINUOUS)


def three_features(measure: Measure | None = None) -> ksos.SoSDensity:
    return ksos.SoSDensity(
        Gaussian([0.8, 0.5, 1.1]), points(7, 3, 4), points(7, 2, 5), measure, normalize=True
    )


def rest_rule(p: ksos.SoSDensity, rest: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return quadrature_rule(
        p.kernel.restrict(rest), p.measure.restrict(rest), p.support_points[:, rest]
    )


def with_features(d: int, parts: dict[int, np.ndarray | float], n: int) -> np.ndarray:
    return np.stack([np.broadcast_to(parts[k], (n,)) for k in range(d)], axis=1)


@pytest.mark.parametrize(
    "pair",
    [pytest.param(pair, id=name) for name, pair in CONTINUOUS.items() if answers_itself(pair)],
)
@pytest.mark.parametrize("keep", [0, 1])
def test_marginal_and_conditional_agree_with_quadrature(pair: PairCase, keep: int) -> None:
    p, drop = make_density(pair, 6), 1 - keep
    q = p.marginal([keep])
    nodes, w = rest_rule(p, [drop])
    x = np.linspace(-0.55, 0.35, 7)
    expected = [
        w @ p.pdf(with_features(2, {keep: v, drop: nodes[:, 0]}, nodes.shape[0])) for v in x
    ]
    np.testing.assert_allclose(q.pdf(x[:, None]), expected, rtol=1e-8)
    assert q.terms.mass() == pytest.approx(1.0, abs=1e-12)
    assert type(q) is type(p) and q.n_features == 1
    value = 0.1
    c = p.conditional({drop: value})
    joint = p.pdf(with_features(2, {keep: x, drop: value}, x.shape[0]))
    nodes, w = rest_rule(p, [keep])
    np.testing.assert_allclose(
        c.pdf(x[:, None]),
        joint / (w @ p.pdf(with_features(2, {keep: nodes[:, 0], drop: value}, nodes.shape[0]))),
        rtol=1e-8,
    )
    assert c.terms.mass() == pytest.approx(1.0, abs=1e-12)


@every_pair
def test_conditional_times_marginal_is_the_joint_density(pair: PairCase) -> None:
    p = make_density(pair, 6)
    X = np.clip(points(8, 2, 8), [-0.6, -0.3], [0.4, 0.5])
    for k in (0, 1):
        chained = p.conditional_logpdf(X, given=[k]) + p.marginal([k]).logpdf(X[:, [k]])
        np.testing.assert_allclose(chained, p.logpdf(X), rtol=1e-12)
        one_by_one = [p.conditional({k: x[k]}).logpdf(x[None, [1 - k]])[0] for x in X]
        np.testing.assert_allclose(p.conditional_logpdf(X, given=k), one_by_one, atol=1e-8)


@pytest.mark.parametrize(
    "measure",
    [None, Box([-0.6, -1.0, -0.5], [0.9, 0.5, np.inf]), Normal([0.2, -0.3, 0.1], [0.9, 0.5, 2.0])],
    ids=["R^3", "box", "normal"],
)
def test_three_features_against_quadrature(measure: Measure | None) -> None:
    p = three_features(measure)
    for keep in itertools.chain(
        itertools.combinations(range(3), 1), itertools.permutations(range(3), 2)
    ):
        kept, drop = list(keep), [k for k in range(3) if k not in keep]
        q = p.marginal(kept)
        nodes, w = rest_rule(p, drop)
        for x in (np.zeros(3), np.array([-0.3, 0.2, 0.4])):
            full = np.tile(x, (nodes.shape[0], 1))
            full[:, drop] = nodes
            assert q.pdf(x[None, kept])[0] == pytest.approx(w @ p.pdf(full), rel=1e-8)
        given_kept = p.conditional({k: 0.2 for k in kept})
        rest, w = rest_rule(given_kept, list(range(len(drop))))
        assert w @ given_kept.pdf(rest) == pytest.approx(1.0, rel=1e-8)
        mean = (w * given_kept.pdf(rest)) @ rest
        np.testing.assert_allclose(mean, given_kept.mean(), atol=1e-8)


def test_a_marginal_against_adaptive_quadrature() -> None:
    p = three_features()
    found = cubature(
        lambda yz: p.pdf(np.insert(yz, 0, 0.3, axis=1)),
        [-4.0, -6.0],
        [4.0, 6.0],
        rtol=1e-10,
        atol=1e-14,
    )
    assert found.status == "converged"
    assert p.marginal([0]).pdf([[0.3]])[0] == pytest.approx(float(found.estimate), rel=1e-8)


@given(
    clouds(2, 8, 3, 3),
    st.permutations(range(3)),
    st.sampled_from(["gaussian", "laplace", "matern"]),
    st.booleans(),
)
@settings(max_examples=30)
def test_laws_of_marginals_and_conditionals(
    X: np.ndarray, order: list[int], name: str, boxed: bool
) -> None:
    """A marginal of a marginal, a conditional of a conditional, and both in either order are what
    one step gives.
    """
    kernel = {
        "gaussian": Gaussian(0.9),
        "laplace": Laplace([0.9, 1.4, 0.6], product=True),
        "matern": Matern(1.5, 0.7, product=True),
    }[name]
    factor = np.random.default_rng(0).normal(size=(X.shape[0], 2))
    p = ksos.SoSDensity(
        kernel, X, factor, Box([-4.0] * 3, [4.0] * 3) if boxed else None, normalize=True
    )
    a, b, c = order
    queries = np.linspace(-2.0, 2.0, 5)[:, None]
    at = dict(rtol=1e-6, atol=1e-9)
    once = p.marginal([b]).pdf(queries)
    np.testing.assert_allclose(p.marginal([a, b]).marginal([1]).pdf(queries), once, **at)
    np.testing.assert_allclose(p.marginal([b, c]).marginal([0]).pdf(queries), once, **at)
    both = p.conditional({a: X[0, a], c: X[0, c]}).pdf(queries)
    first = p.conditional({a: X[0, a]})
    np.testing.assert_allclose(
        first.conditional({[k for k in range(3) if k != a].index(c): X[0, c]}).pdf(queries),
        both,
        **at,
    )
    then = first.marginal([[k for k in range(3) if k != a].index(b)]).pdf(queries)
    np.testing.assert_allclose(
        p.marginal([a, b]).conditional({0: X[0, a]}).pdf(queries), then, **at
    )
    permuted = p.marginal(order)
    np.testing.assert_allclose(permuted.logpdf(X[:, order]), p.logpdf(X), atol=1e-8)


def test_marginals_in_many_dimensions_follow_the_samples() -> None:
    X = points(8, 9, 1)
    p = ksos.SoSDensity(
        Gaussian(2.5), X, np.random.default_rng(0).normal(size=(8, 3)), normalize=True
    )
    samples = p.rvs(20_000, rng=5)
    q = p.marginal([7, 2])
    for k, feature in enumerate((7, 2)):
        assert dkw_passes_at(samples[:, feature], lambda t, k=k: marginal_cdf(q, k, t))
    np.testing.assert_allclose(q.mean(), p.mean()[[7, 2]], atol=1e-10)
    np.testing.assert_allclose(q.cov(), p.cov()[np.ix_([7, 2], [7, 2])], atol=1e-10)


def test_a_conditional_in_many_dimensions_agrees_with_weighted_samples() -> None:
    """E[f(x_0) | rest] by importance sampling from a normal law: the joint density is all that it
    needs.
    """
    X = points(8, 9, 1)
    p = ksos.SoSDensity(
        Gaussian(2.5), X, np.random.default_rng(0).normal(size=(8, 3)), normalize=True
    )
    held = {k: float(X[0, k]) for k in range(2, 9)}
    proposal = np.random.default_rng(1).normal(scale=2.0, size=(40_000, 2))
    full = np.concatenate([proposal, np.tile(X[0, 2:], (proposal.shape[0], 1))], axis=1)
    weights = p.pdf(full) * np.exp(0.5 * np.sum((proposal / 2.0) ** 2, axis=1))
    mean = weights @ proposal / weights.sum()
    error = np.sqrt((weights**2) @ (proposal - mean) ** 2) / weights.sum()
    assert np.all(np.abs(p.conditional(held).mean() - mean) < 6.0 * error)


def test_far_away_conditions_work_while_the_log_density_is_finite() -> None:
    X = np.array([[0.0, 5.0], [1.0, -3.0], [2.0, 7.0]])
    p = ksos.SoSDensity(Gaussian(1.0), X, [[1.0], [2.0], [0.0]], normalize=True)
    for value in (50.0, 1e5, 1e8, 1e12):
        with pytest.warns(UserWarning, match=r"the condition \{0: .*\} is far outside of the data"):
            c = p.conditional({0: value})
        assert c.mean()[0] == pytest.approx(
            -3.0
        )  # of the points with a weight, the second one is nearest
        assert c.cov()[0, 0] == pytest.approx(0.25)
        # silent points, however near, do not hide others
        expected = np.log(p.factor[1, 0] ** 2) - 2.0 * (value - 1.0) ** 2
        assert p.logpdf([[value, -3.0]])[0] == pytest.approx(expected, rel=1e-12)
        row = p.conditional_logpdf([[value, -3.0]], given=[0])
        assert row[0] == pytest.approx(0.5 * np.log(2.0 / np.pi), rel=1e-9)
    level = ksos.SoSDensity(
        Gaussian(1.0), [[1.0, -3.0], [1.0, 4.0], [2.0, 7.0]], [[1.0], [2.0], [0.0]], normalize=True
    )
    with pytest.warns(UserWarning, match="far outside of the data"):
        far = level.conditional({0: 1e12})
    assert far.mean()[0] == pytest.approx(
        (-3.0 + 4.0 * 4.0) / 5.0, rel=1e-9
    )  # weights of points equally far away
    for value in (1e160, 1e300):
        with pytest.raises(ValueError, match=r"vanishes at \{0: 1e\+"):
            p.conditional({0: value})
        with pytest.raises(ValueError, match=r"vanishes in 1 of 2 rows of X, first in row 1"):
            p.conditional_logpdf([[0.0, 0.0], [value, 0.0]], given=[0])


def test_amplitudes_that_cancel_are_an_error_and_nearly_canceling_ones_keep_their_digits() -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0), [[-1.0, 0.5], [1.0, 0.5]], [[1.0], [-1.0]], normalize=True
    )  # zero wherever x_0 = 0
    with pytest.raises(ValueError, match=r"vanishes at \{0: 0\.0\}, at least to rounding"):
        p.conditional({0: 0.0})
    for value in (1e-3, 1e-9, 1e-12):
        c = p.conditional({0: value})
        assert c.mean()[0] == pytest.approx(0.5) and c.cov()[0, 0] == pytest.approx(0.25)
    refused = 0
    for apart in np.logspace(
        -14, -2, 61
    ):  # what is left is ∝ the squared derivative of the kernel, or rounding
        p = ksos.SoSDensity(
            Gaussian(1.0), [[-1.0, 0.5], [1.0, 0.5 + apart]], [[1.0], [-1.0]], normalize=True
        )
        try:
            assert p.conditional({0: 0.0}).cov()[0, 0] == pytest.approx(0.75, rel=0.3)
        except ValueError as error:
            assert "to rounding" in str(error)
            refused += 1
    assert 10 < refused < 45


def test_support_points_that_coincide_become_one() -> None:
    grid = np.stack([g.ravel() for g in np.meshgrid(np.arange(4.0), np.arange(5.0))], axis=1)
    p = ksos.SoSDensity(Gaussian(1.5), grid, points(20, 2, 3), normalize=True)
    assert p.marginal([0]).support_points.shape == (4, 1)
    assert p.marginal([0]).rank <= 4
    assert p.conditional({0: 1.2}).support_points.shape == (5, 1)


@pytest.mark.parametrize("scale", [1e-150, 1e-6, 1e6, 1e150])
def test_scaled_data_give_scaled_marginals_and_conditionals(scale: float) -> None:
    X, F, x = points(6, 2), points(6, 2, 1), points(5, 2, 2)
    p, q = (ksos.SoSDensity(Gaussian(s * 0.8), s * X, F, normalize=True) for s in (1.0, scale))
    shift = np.log(scale)
    np.testing.assert_allclose(
        q.marginal([1]).logpdf(scale * x[:, [1]]),
        p.marginal([1]).logpdf(x[:, [1]]) - shift,
        atol=1e-9,
    )
    at, at_scaled = p.conditional({1: 0.3}), q.conditional({1: scale * 0.3})
    np.testing.assert_allclose(
        at_scaled.logpdf(scale * x[:, [0]]), at.logpdf(x[:, [0]]) - shift, atol=1e-9
    )
    rows = q.conditional_logpdf(scale * x, given=[1])
    np.testing.assert_allclose(rows, p.conditional_logpdf(x, given=[1]) - shift, atol=1e-9)


def test_shifted_data_give_shifted_marginals_and_conditionals() -> None:
    X = (points(6, 2) + 1e8) - 1e8
    shifted, plain = (
        ksos.SoSDensity(Gaussian(0.8), X + s, points(6, 2, 1), normalize=True) for s in (1e8, 0.0)
    )
    x = (points(5, 2, 2) + 1e8) - 1e8
    np.testing.assert_allclose(
        shifted.marginal([1]).logpdf(x[:, [1]] + 1e8),
        plain.marginal([1]).logpdf(x[:, [1]]),
        atol=1e-8,
    )
    np.testing.assert_allclose(
        shifted.conditional_logpdf(x + 1e8, [0]), plain.conditional_logpdf(x, [0]), atol=1e-8
    )


@pytest.mark.parametrize(
    "kernel", [Gaussian(3.0), Laplace(3.0, product=True)], ids=["gaussian", "laplace"]
)
@pytest.mark.parametrize("boxed", [False, True])
def test_hundreds_of_dimensions(kernel: Gaussian | Laplace, boxed: bool) -> None:
    d = 784
    X = points(5, d)
    p = ksos.SoSDensity(
        kernel,
        X,
        np.ones((5, 2)) + points(5, 2, 1),
        Box([-3.0] * d, [3.0] * d) if boxed else None,
        normalize=True,
    )
    q = p.marginal([783, 4])
    assert q.terms.mass() == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(q.mean(), p.mean()[[783, 4]], atol=1e-9)
    c = p.conditional({k: X[0, k] for k in range(d - 2)})
    assert c.terms.mass() == pytest.approx(1.0, abs=1e-9)
    rows = p.conditional_logpdf(X, given=range(d - 2))
    assert np.all(np.isfinite(rows))
    assert rows[0] == pytest.approx(c.logpdf(X[:1, -2:])[0], abs=1e-6)


def test_a_million_conditions_in_bounded_memory() -> None:
    import tracemalloc

    p = three_features()
    X = np.tile(points(1000, 3, 3), (1000, 1))
    tracemalloc.start()
    out = p.conditional_logpdf(X, given=[0, 2])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert out.shape == (1_000_000,)
    np.testing.assert_allclose(out[:1000], out[-1000:], atol=1e-12)
    assert peak < 120e6  # X itself has 24 MB, the answer 8


def test_a_mass_that_rounding_leaves_behind_is_removed() -> None:
    """A fitted model with a wide kernel: signed weights that cancel, and still every operation ends
    with mass one.
    """
    X = points(40, 2, 3)
    objective = ksos.functionals.SquaredMMD(X) + 1e-6 * ksos.functionals.Trace(relative=True)
    p = ksos.minimize(objective, ksos.SoSSpace(Gaussian(2.0), X), tol=1e-4).distribution
    for q in (
        p.marginal([0]),
        p.conditional({0: 0.1}),
        p.times_gaussian(0.2, 0.3),
        p.compress(m=25).density,
    ):
        assert q.terms.mass() == pytest.approx(1.0, abs=1e-7)
        assert np.all(q.pdf(points(50, q.n_features, 4)) >= 0.0)


def test_saved_marginals_are_densities_like_any_other(tmp_path: object) -> None:
    p = three_features(Box([-1.0, -1.0, -2.0], [1.0, 1.0, 2.0]))
    for number, q in enumerate((p.marginal([2, 0]), p.conditional({1: 0.2}))):
        q.save(f"{tmp_path}/{number}.ksos")
        x = points(4, 2)
        np.testing.assert_array_equal(ksos.load(f"{tmp_path}/{number}.ksos").pdf(x), q.pdf(x))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([2], "features has feature 2, but the 2 features are numbered 0 to 1"),
        ([-1], "features has feature -1"),
        ([0, 0], "features must name each feature once"),
        ([], "features must name at least one feature"),
        ([0.0], "features must be a feature number or a list of them"),
        ("01", "features names the feature '01', but the features have no names here"),
        (None, "features must be a feature number or a list of them"),
        ([[0]], "features must be a feature number or a list of them"),
        ([True, False], "features must be feature numbers, not a mask; .*flatnonzero"),
    ],
)
def test_marginal_refuses_what_are_not_features(features: object, message: str) -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(3, 2), np.ones((3, 1)), normalize=True)
    with pytest.raises(ValueError, match=message):
        p.marginal(features)
    with pytest.raises(ValueError, match=message.replace("features", "given", 1)):
        p.conditional_logpdf(points(2, 2), features)


@pytest.mark.parametrize(
    ("conditions", "error", "message"),
    [
        ({2: 0.0}, ValueError, "conditions has feature 2"),
        ({-1: 0.0}, ValueError, "conditions has feature -1"),
        ({}, ValueError, "conditions must name at least one feature"),
        ({0: 0.0, 1: 1.0}, ValueError, "conditions give all 2 features"),
        ({0: np.nan}, ValueError, "the value of feature 0 must be finite"),
        ({0: np.inf}, ValueError, "the value of feature 0 must be finite"),
        ({0: "a"}, ValueError, "the value of feature 0 must be a number"),
        ({0: None}, ValueError, "the value of feature 0 must be a number"),
        (
            {0: [0.1, 0.2, 0.3]},
            ValueError,
            r"one number, or as a tuple \(low, high\) for an interval.*conditional_logpdf",
        ),
        (
            {"x": 0.0},
            ValueError,
            (
                "conditions names the feature 'x', but the features have no names here; use their"
                " numbers"
            ),
        ),
        ([0.3], TypeError, "conditions must be a mapping"),
        ({0: 5.0}, ValueError, r"vanishes at \{0: 5\.0\}, outside of Box"),
    ],
)
def test_conditional_refuses_what_are_not_conditions(
    conditions: object, error: type[Exception], message: str
) -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0), points(3, 2), np.ones((3, 1)), Box([-2.0, -2.0], [2.0, 2.0]), normalize=True
    )
    with pytest.raises(error, match=message):
        p.conditional(conditions)


def test_conditional_rows_are_checked() -> None:
    p = ksos.SoSDensity(
        Gaussian(1.0), points(3, 2), np.ones((3, 1)), Box([-2.0, -2.0], [2.0, 2.0]), normalize=True
    )
    with pytest.raises(ValueError, match="given names all 2 features"):
        p.conditional_logpdf(points(2, 2), [1, 0])
    with pytest.raises(ValueError, match="X has 3 features, but 2 were expected"):
        p.conditional_logpdf(points(2, 3), [0])
    with pytest.raises(ValueError, match="NaN"):
        p.conditional_logpdf([[0.0, np.nan]], [0])
    with pytest.raises(
        ValueError, match=r"vanishes in 2 of 3 rows of X, first in row 0 at \{0: 9\.0\}"
    ):
        p.conditional_logpdf([[9.0, 0.0], [0.0, 0.0], [-3.0, 0.0]], [0])
    np.testing.assert_array_equal(
        p.conditional_logpdf([[0.0, 9.0]], [0]), [-np.inf]
    )  # the condition is possible, the rest is not
    p = ksos.SoSDensity(
        Gaussian(1.0),
        points(3, 2),
        np.ones((3, 1)),
        Box([-2.0, -2.0], [np.inf, 2.0]),
        normalize=True,
    )
    np.testing.assert_array_equal(
        np.isneginf(p.conditional_logpdf([[100.0, 9.0], [100.0, 1.0]], [0])), [True, False]
    )


def test_kernels_that_are_not_products_say_what_to_do() -> None:
    p = from_square(Laplace(1.0), points(3, 2), np.ones((3, 1)), 0.0, Lebesgue())
    with pytest.raises(ksos.IntegralNotAvailableError, match="product=True"):
        p.marginal([0])
    with pytest.raises(ksos.IntegralNotAvailableError, match="product=True"):
        p.conditional({0: 0.1})


@pytest.mark.parametrize("bumps", [True, False])
def test_many_squares_keep_the_digits_of_a_marginal(bumps: bool) -> None:
    """∫ p dx_2 of squares that cancel little, with and without a bump for every point, against 200
    nodes, far into the tails.
    """
    rng = np.random.default_rng(3)
    X = rng.normal(size=(80, 2))
    alone = np.diag(rng.uniform(1e-3, 1.0, size=80))
    F = (
        np.concatenate([rng.normal(size=(80, 40)), alone], axis=1)
        if bumps
        else rng.normal(size=(80, 160))
    )
    p = ksos.SoSDensity(Gaussian(0.7), X, F, normalize=True)
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = np.linspace(-7.0, 7.0, 41)
    grid = np.stack([np.repeat(x, 200), np.tile(8.0 * nodes, 41)], axis=1)
    expected = p.pdf(grid).reshape(41, 200) @ (8.0 * weights)
    found = p.marginal([0]).pdf(x[:, None])
    np.testing.assert_allclose(found, expected, rtol=1e-9)
