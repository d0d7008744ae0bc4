"""Values and intervals of some features, against quadrature over the joint density."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from densities import make_density, random_density, stacked
from oracles import quadrature_rule
from scipy.stats import norm
from tables import MEASURE_CASES, PAIR_CASES, PairCase, points

import ksos
from ksos import SoSDensity
from ksos.density import reference_density
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue
from ksos.observables import KernelFunction
from ksos.quadrature import composite, tensor_grid

PLANE = {name: pair for name, pair in PAIR_CASES.items() if pair.d == 2}
CONTINUOUS = {name: pair for name, pair in PLANE.items() if not isinstance(pair.measure, Discrete)}
TIED = np.array([[0.64, 0.25, 0.1], [0.25, 0.5, 0.05], [0.1, 0.05, 0.4]])
INTERVAL = (-0.2, 0.35)


def corrected(d: int) -> SoSDensity:
    rng, measure = np.random.default_rng(0), MEASURE_CASES["gaussian_mixture"][2]
    return SoSDensity(
        Gaussian(0.8),
        points(5, d),
        0.6 * rng.normal(size=(5, 2)),
        measure,
        constant=rng.normal(size=2),
        normalize=True,
    )


MIXTURES = {
    "two kernels": lambda: stacked(
        [
            random_density(Gaussian(0.9), d=2),
            random_density(Laplace(0.7, product=True), d=2, seed=1),
        ],
        [2, 1],
    ),
    "corrected": lambda: corrected(2),
    "a stack": lambda: stacked(
        [
            corrected(2),
            random_density(Gaussian([0.9, 0.6]), d=2),
            random_density(Gaussian(TIED[:2, :2]), d=2),
        ]
    ),
}


def slices(p: SoSDensity, x: np.ndarray, k: int, low: float, high: float) -> np.ndarray:
    """∫ p(x, s) ds over low < s < high for each x, s being feature k of two, by panels that end at
    kinks.
    """
    inner, outer = p.measure.boundary(k)
    nodes, w = quadrature_rule(
        Laplace(0.3),
        Box([max(low, inner)], [min(high, outer)]),
        np.asarray(p.support_points)[:, [k]],
    )
    full = np.empty((x.shape[0] * w.shape[0], 2))
    full[:, k], full[:, 1 - k] = np.tile(nodes[:, 0], x.shape[0]), np.repeat(x, w.shape[0])
    return np.exp(p.terms.log_by_volume(full)).reshape(x.shape[0], -1) @ w


def agree_with_quadrature(p: SoSDensity, rtol: float) -> None:
    x = np.linspace(-0.5, 0.35, 5)
    for k, (low, high) in ((0, INTERVAL), (1, (-0.1, np.inf))):
        c = p.conditional({k: (low, high)})
        box = np.full((2, 2), [[-np.inf], [np.inf]])
        box[:, k] = low, high
        whole = float(p.probability(*box))
        np.testing.assert_allclose(
            np.exp(c.terms.log_by_volume(x[:, None])), slices(p, x, k, low, high) / whole, rtol=rtol
        )
        box[0, 1 - k], box[1, k] = -0.3, 0.2  # a part of the interval lies in the box
        cut, box[0, k] = float(p.probability(*box)), -5.0
        assert p.probability(*box, given={k: (low, high)}) == pytest.approx(cut / whole, abs=1e-9)
        assert c.probability(-0.3, np.inf) == pytest.approx(
            float(p.probability(*_only(k, low, high, -0.3))) / whole, abs=1e-9
        )


def _only(k: int, low: float, high: float, other: float) -> np.ndarray:
    box = np.full((2, 2), [[other], [np.inf]])
    box[:, k] = low, high
    return box


@pytest.mark.parametrize("pair", CONTINUOUS.values(), ids=CONTINUOUS)
def test_intervals_agree_with_quadrature(pair: PairCase) -> None:
    agree_with_quadrature(make_density(pair), 1e-8)


@pytest.mark.parametrize("name", MIXTURES)
def test_intervals_of_mixtures_agree_with_quadrature(name: str) -> None:
    agree_with_quadrature(MIXTURES[name](), 1e-8)


@pytest.mark.parametrize(
    "pair", [pair for pair in PLANE.values() if isinstance(pair.measure, Discrete)]
)
def test_intervals_on_atoms_are_sums(pair: PairCase) -> None:
    for p in (make_density(pair), stacked([make_density(pair)])):
        atoms, mass, c = p.measure.atoms, p.terms.node_masses, p.conditional({1: INTERVAL})
        inside = (INTERVAL[0] <= atoms.points[:, 1]) & (atoms.points[:, 1] <= INTERVAL[1])
        order = np.argsort(atoms.points[inside, 0])
        at = np.argsort(c.measure.atoms.points[:, 0])
        np.testing.assert_allclose(
            c.terms.node_masses[at], (mass[inside] / mass[inside].sum())[order], rtol=1e-9
        )
        first = inside & (atoms.points[:, 0] <= 0.1)
        assert p.probability(-np.inf, [0.1, np.inf], given={1: INTERVAL}) == pytest.approx(
            mass[first].sum() / mass[inside].sum(), rel=1e-9
        )


@pytest.mark.parametrize("sigma", [np.array([0.8, 0.7, 0.6]), TIED], ids=["per feature", "tied"])
def test_values_and_intervals_mix(sigma: np.ndarray) -> None:
    p = random_density(Gaussian(sigma), d=3)
    both, either = (
        p.conditional({0: 0.1, 2: INTERVAL}),
        p.conditional({0: 0.1}).conditional({1: INTERVAL}),
    )
    x = np.linspace(-1.0, 1.0, 7)[:, None]
    np.testing.assert_allclose(both.logpdf(x), either.logpdf(x), atol=1e-9)
    known = {0: 0.1, 2: INTERVAL}
    assert p.probability(-0.3, 0.2, given=known) == pytest.approx(
        float(p.conditional({0: 0.1}).probability([-0.3, -0.2], 0.2, given={1: INTERVAL})),
        abs=1e-10,
    )
    assert p.probability([0.2, -1.0, -1.0], 1.0, given=known) == 0.0  # 0.1 is not in the box
    assert p.probability(-np.inf, np.inf, given=known) == 1.0
    many = p.probability(np.array([[-0.3] * 3, [0.4] * 3]), 0.5, given=known)
    np.testing.assert_allclose(many, [p.probability(-0.3, 0.5, given=known), 0.0], atol=1e-12)
    intervals = p.conditional({0: (-np.inf, 0.3), 2: INTERVAL})
    assert intervals.probability(-0.3, 0.2) == pytest.approx(
        float(
            p.probability(
                [-np.inf, -0.3, -0.3], [0.5, 0.2, 0.5], given={0: (-np.inf, 0.3), 2: INTERVAL}
            )
        ),
        abs=1e-9,
    )


def test_a_narrow_interval_is_a_value() -> None:
    for p in (
        random_density(Gaussian(0.8), d=2),
        random_density(Gaussian(TIED[:2, :2]), d=2),
        corrected(2),
    ):
        x = np.linspace(-1.0, 1.0, 5)[:, None]
        narrow, value = p.conditional({0: (0.1 - 1e-7, 0.1 + 1e-7)}), p.conditional({0: 0.1})
        np.testing.assert_allclose(
            narrow.terms.log_by_volume(x), value.terms.log_by_volume(x), atol=1e-9
        )


def test_tails_keep_their_digits() -> None:
    p = SoSDensity(
        Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True
    )  # two standard normal features
    known = {1: (30.0, np.inf)}
    assert p.probability([-np.inf, 30.5], np.inf, given=known) == pytest.approx(
        np.exp(norm.logsf(30.5) - norm.logsf(30.0)), rel=1e-9
    )
    assert p.probability([0.5, -np.inf], np.inf, given=known) == pytest.approx(
        norm.sf(0.5), rel=1e-9
    )
    tied = p.affine([[1.0, 0.0], [0.6, 0.8]])
    given = tied.conditional({1: (6.0, 6.5)})  # E x₀ = 0.6·E[x₁ | 6 < x₁ < 6.5]
    mean = (norm.pdf(6.0) - norm.pdf(6.5)) / (norm.sf(6.0) - norm.sf(6.5))
    assert given.mean()[0] == pytest.approx(0.6 * mean, rel=1e-8)


def test_samples_within_an_interval_follow_the_conditional_law() -> None:
    p = corrected(2).by_volume()
    X = p.rvs(40_000, rng=1)
    inside = X[(X[:, 1] > INTERVAL[0]) & (X[:, 1] < INTERVAL[1]), 0]
    c = p.conditional({1: INTERVAL})
    assert abs(inside.mean() - c.mean()[0]) < 5.0 * inside.std() / np.sqrt(inside.size)
    assert abs(np.mean(inside < 0.1) - c.cdf([[0.1]])[0]) < 2.5 / np.sqrt(inside.size)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda p: p.conditional({0: (1.0, 1.0)}),
            "interval of feature 0 is empty.*low must be less than high",
        ),
        (lambda p: p.conditional({0: (2.0, 1.0)}), "interval of feature 0 is empty"),
        (lambda p: p.conditional({0: (0.0, np.nan)}), "interval of feature 0 is empty"),
        (lambda p: p.conditional({0: (0.0, 1.0, 2.0)}), "one number, or as a tuple"),
        (lambda p: p.conditional({0: (0.0, 1.0), 1: 3.0}), "all 2 features.*none is left"),
        (
            lambda p: p.conditional([(0, 1.0)]),
            "mapping from feature number to a value or an interval",
        ),
        (
            lambda p: p.probability(0.0, 1.0, given={0: (1e200, 1e201)}),
            "vanishes where feature 0 lies between 1e.200 and 1e.201",
        ),
        (
            lambda p: p.conditional({0: (1e200, 1e201)}),
            "vanishes where feature 0 lies between 1e.200 and 1e.201",
        ),
        (lambda p: p.probability(0.0, 1.0, given={0: 1e200, 1: 0.0}), "vanishes at"),
    ],
)
@pytest.mark.parametrize("kind", ["per feature", "tied", "corrected"])
def test_bad_input(kind: str, ask: object, message: str) -> None:
    p = {
        "per feature": random_density(Gaussian(0.8), d=2),
        "tied": random_density(Gaussian(TIED[:2, :2]), d=2),
        "corrected": corrected(2),
    }
    with pytest.raises((ValueError, TypeError), match=message):
        ask(p[kind])


def test_an_interval_without_atoms_or_outside_of_a_box() -> None:
    p = random_density(Gaussian(0.8), Discrete(points(20, 2, 5)), 2)
    for ask in (
        lambda: p.conditional({0: (50.0, 60.0)}),
        lambda: p.probability(0.0, 1.0, given={0: (50.0, 60.0)}),
    ):
        with pytest.raises(ValueError, match="feature 0 lies between 50 and 60"):
            ask()
    with pytest.raises(ValueError, match="vanishes where feature 0"):
        random_density(Gaussian(0.8), Box([-1.0, -1.0], [1.0, 1.0]), 2).conditional({0: (2.0, 3.0)})
    assert isinstance(ksos.mixture([corrected(2)]).conditional({0: (0.0, 1.0)}).measure, Lebesgue)


@pytest.mark.parametrize("squares", [True, False], ids=["corrected", "normal laws"])
def test_a_reference_given_an_interval_answers_in_closed_form(
    squares: bool, tmp_path: Path
) -> None:
    """Moments, embedding, boxes, gradient and a file of ∫_I p(x, t) dt/P(I), against quadrature
    over x.
    """
    rng, covariances = np.random.default_rng(0), [TIED, np.diag([0.5, 0.4, 0.9]) - 0.2 * TIED]
    measure = GaussianMixture([2, 1], [[0.0, 0.1, 0.3], [0.8, -0.5, 0.0]], covariances)
    shape = {"constant": rng.normal(size=2), "normalize": True}
    corrected = SoSDensity(
        Gaussian(2.0 * TIED), points(5, 3), 0.6 * rng.normal(size=(5, 2)), measure, **shape
    )
    whole = corrected if squares else reference_density(measure)
    for side in (INTERVAL, (-np.inf, 0.3), (0.1, np.inf)):
        c = stacked([whole], measure=Lebesgue()).conditional({1: side})
        assert [term.interval is not None for _, term in c.terms.parts] == [True]
        ends = np.linspace(-9.0, 9.0, 31)
        x, w = composite(ends[:-1], ends[1:], 12)
        X, W = tensor_grid([x, x]), np.prod(tensor_grid([w, w]), axis=1)
        mass = W * c.pdf(X)
        assert mass.sum() == pytest.approx(1.0, abs=1e-9)
        np.testing.assert_allclose(c.mean(), mass @ X, atol=1e-9)
        away = X - c.mean()
        np.testing.assert_allclose(c.cov(), (mass[:, None] * away).T @ away, atol=1e-9)
        assert c.moment([1, 2]) == pytest.approx(float(mass @ (X[:, 0] * X[:, 1] ** 2)), abs=1e-9)
        near = np.exp(-np.sum((X - [0.2, -0.1]) ** 2 / 0.49, axis=1))
        assert c.expectation(
            KernelFunction([[0.2, -0.1]], [1.0], kernel=Gaussian(0.7))
        ) == pytest.approx(float(mass @ near), abs=1e-9)
        box = (X[:, 0] < ends[16]) & (X[:, 1] < ends[17])
        assert c.probability(-np.inf, [ends[16], ends[17]]) == pytest.approx(
            float(mass[box].sum()), abs=1e-9
        )
        p, bounds = whole.by_volume(), {0: ends[16], 2: ends[17], 1: side[1]}
        joint = float(p.probability(low={1: side[0]}, high=bounds)) / float(
            p.probability(low={1: side[0]}, high={1: side[1]})
        )
        assert joint == pytest.approx(float(mass[box].sum()), abs=1e-9)
        y = np.array([[0.3, -0.4], [-1.0, 0.8]])
        steps = [(c.logpdf(y + 1e-5 * e) - c.logpdf(y - 1e-5 * e)) / 2e-5 for e in np.eye(2)]
        np.testing.assert_allclose(c.grad_logpdf(y), np.stack(steps, axis=1), atol=1e-7)
        c.save(tmp_path / "model.ksos")
        np.testing.assert_array_equal(ksos.load(tmp_path / "model.ksos").logpdf(y), c.logpdf(y))
        np.testing.assert_allclose(c.affine(2.0, 1.0).mean(), 2.0 * c.mean() + 1.0)
        line = c.conditional({0: 0.3})
        np.testing.assert_allclose(
            line.logpdf(y[:, 1:]),
            c.logpdf(np.c_[[0.3, 0.3], y[:, 1]]) - c.marginal([0]).logpdf([[0.3]]),
            atol=1e-9,
        )
