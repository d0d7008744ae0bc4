"""The CRPS of conditional distributions is the integral that defines it."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from ksos import KernelSoSConditional, KernelSoSDensity


def data(n: int = 150) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 1))
    return X, X[:, 0] + (0.3 + 0.1 * X[:, 0]) * rng.normal(size=n)


def area(f: Any, est: KernelSoSConditional, x: np.ndarray, low: float, high: float) -> float:
    """∫ f(P(y ≤ t | x)) dt on short intervals."""
    t, w = np.polynomial.legendre.leggauss(8)
    ends = np.linspace(low, high, 4001)
    half = 0.5 * np.diff(ends)[:, None]
    nodes = ends[:-1, None] + half * (1.0 + t)
    values = est.cdf(x[None, :], grid=nodes.ravel())[0].reshape(nodes.shape)
    return float(np.sum(f(values) * half * w))


FITS: dict[str, Any] = {
    "regression": lambda X, y: KernelSoSConditional(LinearRegression(), given=None).fit(X, y),
    "given": lambda X, y: KernelSoSConditional(LinearRegression(), given="prediction").fit(X, y),
    "joint": lambda X, y: KernelSoSConditional(
        "joint", estimator=KernelSoSDensity(n_support=60, tol=1e-4)
    ).fit(X, y),
}


@cache
def fitted(name: str) -> KernelSoSConditional:
    return FITS[name](*data())


@pytest.mark.parametrize("name", FITS)
def test_crps_is_the_integral(name: str) -> None:
    (X, y), est = data(), fitted(name)
    rows, at = X[:3], np.array([y[0], 9.0, -9.0])
    found = est.crps(rows, at)
    for x, one, score in zip(rows, at, found, strict=True):
        below = area(np.square, est, x, -60.0, one)
        above = area(lambda F: (1.0 - F) ** 2, est, x, one, 60.0)
        assert score == pytest.approx(below + above, abs=1e-9)
    assert est.at(rows[0]).crps(at[0]) == pytest.approx(found[0], abs=1e-7)
    assert est.crps(np.repeat(rows, 400, axis=0), np.repeat(at, 400)).shape == (1200,)


@pytest.mark.parametrize("transform", ["log", "asinh"])
def test_crps_of_transformed_targets_ends_at_the_levels_of_the_mean(transform: str) -> None:
    X, y = data()
    y = np.exp(y) if transform == "log" else 5.0 * y
    est = KernelSoSConditional(LinearRegression(), transform=transform, given="prediction")
    est.fit(X, y)
    least = 0.5 / len(y)
    rows, at = X[:4], np.array([y[0], 1e4, -50.0, 0.0])
    for x, one, score in zip(rows, at, est.crps(rows, at), strict=True):
        low, high = est.predict_quantile(x[None, :], [least, 1.0 - least])[0]
        cut = min(max(one, low), high)
        below = area(np.square, est, x, low, cut)
        above = area(lambda F: (1.0 - F) ** 2, est, x, cut, high)
        assert score == pytest.approx(below + above + abs(one - cut), rel=1e-9)
    np.testing.assert_allclose(est.at(rows[0]).crps(at[:1]), est.crps(rows[:1], at[:1]))


def test_each_of_several_outputs_has_its_score() -> None:
    X, y = data()
    Y = np.stack([y, -2.0 * np.roll(y, 1) + X[:, 0]], axis=1)
    est = KernelSoSConditional(LinearRegression(), given=None).fit(X, Y)
    assert est.crps(X[:5], Y[:5]).shape == (5, 2)
    one = KernelSoSConditional(LinearRegression(), given=None).fit(X, Y[:, 1])
    # the outputs have one joint density, so that each is fitted a little differently
    np.testing.assert_allclose(est.crps(X, Y)[:, 1], one.crps(X, Y[:, 1]), atol=0.2)


def test_bad_input() -> None:
    X, est = data()[0], fitted("regression")
    with pytest.raises(ValueError, match="NaN"):
        est.crps(X[:1], [np.nan])
    with pytest.raises(ValueError, match="y must be given"):
        est.crps(X[:1], None)
