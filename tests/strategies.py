"""Hypothesis strategies for the data that break density estimators: duplicates, flat clouds, one
point, huge and tiny scales, outliers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

__all__ = ["DEGENERATE", "clouds", "degenerate_data"]

Draw = Callable[[st.SearchStrategy], np.ndarray]


def clouds(
    min_points: int = 2, max_points: int = 8, min_features: int = 1, max_features: int = 3
) -> st.SearchStrategy[np.ndarray]:
    """Plain clouds (n, d) in [−3, 3]^d, on a grid of thousandths: points are equal, or apart by
    more than rounding.
    """
    shapes = st.tuples(st.integers(min_points, max_points), st.integers(min_features, max_features))
    return shapes.flatmap(
        lambda shape: arrays(
            np.float64, shape, elements=st.integers(-3000, 3000).map(lambda k: k / 1000)
        )
    )


@st.composite
def _duplicates(draw: Draw) -> np.ndarray:
    X = draw(clouds(1, 4))
    return X[
        draw(st.lists(st.integers(0, X.shape[0] - 1), min_size=X.shape[0], max_size=3 * X.shape[0]))
    ]


@st.composite
def _nearly_duplicates(draw: Draw) -> np.ndarray:
    X = draw(clouds(2, 4))
    return np.concatenate([X, X + draw(st.sampled_from([1e-15, 1e-12, 1e-8, 1e-4]))])


@st.composite
def _collinear(draw: Draw) -> np.ndarray:
    t, direction = draw(clouds(2, 8, 1, 1)), draw(clouds(1, 1, 2, 3))
    return t * direction + draw(st.integers(-3, 3))


@st.composite
def _constant_feature(draw: Draw) -> np.ndarray:
    X = draw(clouds(2, 8, 1, 2))
    return np.insert(
        X, draw(st.integers(0, X.shape[1])), draw(st.sampled_from([0.0, 0.1, -7.0, 1e6])), axis=1
    )


@st.composite
def _scaled(draw: Draw, exponents: st.SearchStrategy[int]) -> np.ndarray:
    return draw(clouds()) * 10.0 ** draw(exponents)


@st.composite
def _outliers(draw: Draw) -> np.ndarray:
    X = draw(clouds(3, 6))
    far = draw(clouds(1, 2, X.shape[1], X.shape[1]))
    return np.concatenate([X, far * 10.0 ** draw(st.integers(1, 150))])


@st.composite
def _unlike_scales(draw: Draw) -> np.ndarray:
    X = draw(clouds(2, 8, 2, 3))
    return X * 10.0 ** draw(arrays(np.float64, X.shape[1], elements=st.integers(-9, 9).map(float)))


@st.composite
def _far_from_the_origin(draw: Draw) -> np.ndarray:
    return draw(clouds()) + draw(st.sampled_from([1e8, -1e8, 1e12]))


@st.composite
def _integers(draw: Draw) -> np.ndarray:
    return draw(
        arrays(
            np.int64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.integers(-2, 2)
        )
    )


DEGENERATE: dict[str, st.SearchStrategy[np.ndarray]] = {
    "plain": clouds(),
    "one point": clouds(1, 1),
    "all points equal": clouds(1, 1).map(lambda X: np.repeat(X, 5, axis=0)),
    "duplicates": _duplicates(),
    "nearly duplicates": _nearly_duplicates(),
    "collinear": _collinear(),
    "constant feature": _constant_feature(),
    "more features than points": clouds(1, 4, 5, 40),
    "huge scale": _scaled(st.integers(6, 150)),
    "tiny scale": _scaled(st.integers(-150, -6)),
    "unlike scales": _unlike_scales(),
    "heavy outliers": _outliers(),
    "far from the origin": _far_from_the_origin(),
    "integers": _integers(),
}
"""Every kind of degenerate data by name."""


def degenerate_data() -> st.SearchStrategy[np.ndarray]:
    """Any of :data:`DEGENERATE`."""
    return st.one_of(*DEGENERATE.values())
