"""The cones of the interior point: products, scalings, steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ksos.solvers import ConePair, cone_divide, cone_product, cone_step


def inside(rng: np.random.Generator, n: int, depth: float) -> np.ndarray:
    x = rng.normal(size=n)
    x[0] = np.linalg.norm(x[1:]) * (1.0 + depth) + 1e-3 * depth
    return x


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1e-6, 1e-2, 1.0, 10.0]))
def test_the_scaling_makes_the_pair_equal(seed: int, n: int, depth: float) -> None:
    rng = np.random.default_rng(seed)
    pair = ConePair(inside(rng, n + 1, depth), inside(rng, n + 1, 1.0))
    size = np.linalg.norm(pair.values)
    np.testing.assert_allclose(pair.scale(pair.x, inverse=True), pair.values, atol=1e-6 * size)
    y = rng.normal(size=n + 1)
    np.testing.assert_allclose(
        pair.scale(pair.scale(y), inverse=True), y, atol=1e-6 * np.linalg.norm(pair.scale(y))
    )
    W = np.stack([pair.scale(e) for e in np.eye(n + 1)])
    np.testing.assert_allclose(W, W.T, atol=1e-9 * np.abs(W).max())
    c, u = pair.curvature
    inverse = np.stack([pair.scale(e, inverse=True) for e in np.eye(n + 1)])
    np.testing.assert_allclose(
        (inverse @ inverse)[1:, 1:],
        c * np.eye(n) + np.outer(u, u),
        rtol=1e-6,
        atol=1e-9 * np.abs(inverse).max() ** 2,
    )


@given(st.integers(0, 10**6), st.integers(1, 6))
def test_division_undoes_the_product(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = inside(rng, n + 1, 0.5), rng.normal(size=n + 1)
    np.testing.assert_allclose(cone_divide(x, cone_product(x, y)), y, atol=1e-9)
    assert cone_product(x, y)[0] == pytest.approx(x @ y)


@given(st.integers(0, 10**6), st.integers(1, 6), st.floats(-3.0, 3.0))
def test_the_longest_step_ends_on_the_boundary(seed: int, n: int, first: float) -> None:
    rng = np.random.default_rng(seed)
    x, direction = inside(rng, n + 1, 0.5), rng.normal(size=n + 1)
    direction[0] = first
    t = cone_step(x, direction)

    def depth(t: float) -> float:
        y = x + t * direction
        return float(y[0] - np.linalg.norm(y[1:]))

    if np.isinf(t):
        assert all(depth(s) > 0.0 for s in (1.0, 1e3, 1e6))
    else:
        assert depth(0.999 * t) > 0.0
        assert abs(depth(t)) <= 1e-9 * (1.0 + t) * (1.0 + abs(first))
        assert depth(1.001 * t) < 1e-9


def test_a_pair_on_the_boundary_is_refused() -> None:
    with pytest.raises(np.linalg.LinAlgError, match="boundary"):
        _ = ConePair(np.array([1.0, 1.0]), np.array([1.0, 0.0])).values
