"""The stack of mixtures: certified weights, candidates that do not know the held-out samples, heavy
tails.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize
from scipy.stats import multivariate_t
from sklearn.datasets import load_digits, make_moons

from ksos.choose import (
    FLOORS,
    SIZES,
    Mixtures,
    Samples,
    Stack,
    Units,
    certified_weights,
    simplest_good,
    student_scales,
)
from ksos.data import random_folds

MOONS = make_moons(120, noise=0.1, random_state=0)[0]
KAPPA = 1.0


def value(w: np.ndarray, log_q: np.ndarray, a: np.ndarray, prior: np.ndarray) -> float:
    pi = prior / prior.sum()
    return float(a @ np.log(np.exp(log_q) @ w) + KAPPA * (a @ a) * (pi @ np.log(w)))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(1, 40),
    st.integers(2, 7),
    st.integers(0, 2**32 - 1),
    st.floats(0.1, 6.0),
    st.booleans(),
)
def test_the_gap_of_the_weights_bounds_the_distance_to_any_others(
    n: int, candidates: int, seed: int, spread: float, equal: bool
) -> None:
    rng = np.random.default_rng(seed)
    log_q, prior = spread * rng.normal(size=(n, candidates)), rng.random(candidates) + 0.1
    a = np.full(n, 1.0 / n) if equal else rng.dirichlet(np.ones(n))
    w, gap = certified_weights(log_q, a, prior)
    assert gap <= 1e-4 and np.all(w > 0.0) and w.sum() == pytest.approx(1.0)
    # the gap is that of the gradient, computed here again
    g = (a / (np.exp(log_q) @ w)) @ np.exp(log_q) + KAPPA * (a @ a) * prior / prior.sum() / w
    assert gap == pytest.approx(max(g.max() - w @ g, 0.0), abs=1e-9)
    for other in rng.dirichlet(np.ones(candidates), 20):
        assert (
            value(np.maximum(other, 1e-12), log_q, a, prior)
            <= value(w, log_q, a, prior) + gap + 1e-12
        )


def test_the_weights_are_those_of_a_general_solver() -> None:
    rng = np.random.default_rng(1)
    log_q, a, prior = (
        rng.normal(size=(60, 4)),
        np.full(60, 1 / 60),
        np.array([1.0, 0.5, 0.25, 0.25]),
    )
    w, _ = certified_weights(log_q, a, prior)
    found = minimize(
        lambda v: -value(np.exp(v) / np.exp(v).sum(), log_q, a, prior),
        np.zeros(4),
        options={"gtol": 1e-10},
    )
    assert value(w, log_q, a, prior) == pytest.approx(-found.fun, abs=1e-6)


def test_the_one_rule() -> None:
    """The first column within one standard error of the paired difference to the best."""
    rng = np.random.default_rng(0)
    base, weights = 10.0 * rng.normal(size=400), np.full(400, 1 / 400)
    small, clear = 0.001 * np.ones(400), 0.1 + 0.2 * rng.normal(size=400)
    noise = 0.2 * rng.normal(size=400)
    assert (
        simplest_good(np.stack([base, base + noise - noise.mean() + 0.005], axis=1), weights) == 0
    )
    assert simplest_good(np.stack([base, base + clear], axis=1), weights) == 1
    assert simplest_good(np.stack([base, base + small], axis=1), weights) == 1, (
        "without noise, any gain counts"
    )
    assert simplest_good(np.stack([np.full(400, -np.inf), base], axis=1), weights) == 1
    assert simplest_good(np.stack([base, base], axis=1), weights) == 0, "the simpler of equals"


def stack_of(X: np.ndarray, count: int = 3, sizes: tuple[int, ...] = SIZES) -> Stack:
    weights = np.full(X.shape[0], 1.0 / X.shape[0])
    folds = random_folds(weights, count, np.random.default_rng(0))
    stack = Stack(X, weights, folds, Units.of(X, weights, np.random.default_rng(0)), sizes)
    stack.fit()
    stack.solve()
    return stack


def test_the_stack_is_no_worse_than_its_candidates() -> None:
    stack = stack_of(MOONS)
    mixed = np.log(np.exp(stack.held_out[:, stack.kept]) @ stack.weights)
    alone = stack.held_out_weights @ stack.held_out
    assert stack.held_out_weights @ mixed > alone.max() - 0.02 and stack.gap <= 1e-4
    assert stack.weights.sum() == pytest.approx(1.0) and len(stack.weights) < len(stack.fits)


def test_folds_do_not_know_the_samples_that_they_hold_out() -> None:
    """Moving the held-out samples changes neither the fits of their fold nor its reference."""
    moved, references = MOONS.copy(), []
    weights = np.full(120, 1 / 120)
    folds = random_folds(weights, 3, np.random.default_rng(0))
    moved[folds[0].test] += [0.01, -0.02]
    for X in (MOONS, moved):
        units = Units(MOONS.mean(axis=0), MOONS.std(axis=0), np.zeros(2, dtype=bool))
        stack = Stack(X, weights, folds, units, (1, 2, 3))
        stack.fit()
        references.append([fit.mixtures.means[0] for fit in stack.fits])
    for one, other in zip(*references, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-12)


def test_references_are_the_weighted_candidates() -> None:
    stack = stack_of(MOONS, sizes=(1, 2, 4))
    X = make_moons(200, noise=0.1, random_state=3)[0]
    samples = Samples.of(stack.units.of_points(X))
    fold = stack.of_fold(1)
    expected = np.zeros(200)
    rows = np.ones(stack.held_out.shape[0], dtype=bool)
    rows[stack.rows[1]] = False
    w, _ = certified_weights(
        stack.held_out[rows][:, stack.kept],
        stack.held_out_weights[rows] / stack.held_out_weights[rows].sum(),
        stack.prior[stack.kept],
    )
    for j, weight in zip(stack.kept, w, strict=True):
        expected += weight * np.exp(stack.fits[j].mixtures.log_densities(samples)[1])
    logs = fold.log_density(X) + np.log(stack.units.scale).sum()
    np.testing.assert_allclose(
        logs, np.log(expected), atol=0.02
    )  # weights are known to a gap of 1e-4
    whole = np.mean(stack.whole.log_density(X))
    assert abs(whole - np.mean(fold.log_density(X))) < 0.2


@pytest.mark.parametrize("freedom", [2.5, 5.0, 10.0])
@pytest.mark.parametrize("d", [1, 3])
def test_normals_of_several_scales_are_a_student_distribution(freedom: float, d: int) -> None:
    rng = np.random.default_rng(d)
    shape = np.eye(d) + 0.3
    X = multivariate_t(np.zeros(d), shape, freedom, seed=rng).rvs(20_000).reshape(-1, d)
    one = Mixtures(np.ones((1, 1)), np.zeros((1, 1, d)), shape[None, None], np.zeros((1, 1, 0)))
    found = Mixtures.of_scales(*student_scales(freedom), one)
    logs = found.log_densities(Samples.of(X))[0]
    truth = multivariate_t(np.zeros(d), shape, freedom).logpdf(X)
    assert np.mean(truth - logs) < 0.005
    assert found.shares.sum() == pytest.approx(1.0)


def test_heavy_tails_are_candidates() -> None:
    rng = np.random.default_rng(0)
    X, fresh = (
        rng.normal(size=(n, 5)) * np.sqrt(3.0 / rng.chisquare(3.0, (n, 1))) for n in (200, 2000)
    )
    stack, without = stack_of(X, 5), stack_of(X, 5)
    tails = np.array([fit.mixtures.shares.shape[1] == 8 for fit in without.fits])
    without.fits = list(itertools.compress(without.fits, ~tails))
    without.held_out = without.held_out[:, ~tails]
    without.solve()
    gain = stack.whole.log_density(fresh) - without.whole.log_density(fresh)
    assert gain.mean() > 0.02
    assert np.all(stack.whole.log_density(1e3 * np.ones((1, 5))) > -150.0), (
        "nothing is far from the wide one"
    )


@pytest.mark.parametrize(("rows", "narrow"), [(1, False), (2, False), (3, True)])
def test_what_three_rows_share_is_a_value_and_what_two_share_is_chance(
    rows: int, narrow: bool
) -> None:
    """A component of few rows is wide in every feature, except in one whose value three or more of
    them have.
    """
    rng = np.random.default_rng(5)
    far = 12.0 + rng.normal(size=(rows, 4)) * [0.2, 0.2, 0.2, 0.0]
    X = np.vstack([rng.normal(size=(60, 4)), far])
    weights = np.full(X.shape[0], 1.0 / X.shape[0])
    folds = random_folds(weights, 5, np.random.default_rng(0))
    stack = Stack(
        X, weights, folds, Units(np.zeros(4), np.ones(4), np.zeros(4, dtype=bool)), SIZES[:2]
    )
    stack.fit()
    two = [fit.mixtures for fit in stack.fits if fit.mixtures.shares.shape[1] == 2]
    smallest = two[len(FLOORS) - 1]
    variances = np.diag(smallest.covariances[-1, np.argmax(smallest.means[-1, :, 3])])
    assert (variances[:3] >= max(FLOORS)).all()
    assert (variances[3] < 1e-5) == narrow


def test_many_features_have_axes_of_their_own() -> None:
    X = load_digits().data[:400] + 0.3 * np.random.default_rng(0).normal(size=(400, 64))
    stack = stack_of(X, 2, (1, 2, 4))
    along = [fit.axes is not None for fit in stack.fits]
    scores = stack.held_out_weights @ stack.held_out
    assert any(along) and not all(along)
    assert scores[np.array(along)].max() > scores[~np.array(along)].max(), (
        "principal axes predict better"
    )
    assert np.isfinite(stack.whole.log_density(X)).all()
    # the rotated candidates are the densities that they say they are
    best = int(np.argmax(np.where(along, scores, -np.inf)))
    stack.kept, stack.weights = np.array([best]), np.ones(1)
    logs = (
        stack._mixture(np.ones(1), [0]).log_density(X)[stack.folds[0].test]
        + np.log(stack.units.scale).sum()
    )
    np.testing.assert_allclose(logs, stack.held_out[stack.rows[0], best], rtol=1e-6)
