"""Normal scores: an increasing map with the slope that it gives, and its inverse."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

from ksos.density import NormalScores


@st.composite
def mixtures(draw: st.DrawFn) -> NormalScores:
    K, rng = draw(st.integers(1, 12)), np.random.default_rng(draw(st.integers(0, 10**6)))
    scale = 10.0 ** draw(st.integers(-3, 3))
    weights, means = rng.dirichlet(np.ones(K)), scale * rng.normal(size=K)
    deviations = scale * np.exp(draw(st.floats(0.0, 3.0)) * rng.normal(size=K) - 1.0)
    ends = np.sort(means[0] + deviations[0] * np.array([-1.5, 1.0 + 3.0 * rng.random()]))
    return NormalScores(*(tuple(one.tolist()) for one in (weights, means, deviations, ends)))


@given(scores=mixtures(), u=st.lists(st.floats(-30.0, 30.0), min_size=2, max_size=6))
def test_inverse(scores: NormalScores, u: list[float]) -> None:
    scores.check()
    x = scores.values(np.sort(u))
    assert np.all(np.diff(x) >= 0.0)
    back, log_slopes = scores.of(x)
    # a step of x by one bit moves u by so much
    np.testing.assert_allclose(
        back, np.sort(u), atol=1e-9 + 1e-13 * (np.abs(x) * np.exp(log_slopes)).max()
    )


@given(scores=mixtures(), at=st.floats(-0.4, 1.4))
def test_slope(scores: NormalScores, at: float) -> None:
    low, high = scores.ends
    x, step = low + at * (high - low), 1e-6 * min(scores.widths)
    if abs(x) * 1e-8 > step or min(abs(x - low), abs(x - high)) <= step:
        return  # rounding, or a kink
    (below, above), _ = scores.of(np.array([x - step, x + step]))
    _, (log_slope,) = scores.of(np.array([x]))
    assert (above - below) / (2.0 * step) == pytest.approx(np.exp(log_slope), rel=1e-3, abs=1e-12)


@given(scores=mixtures(), at=st.floats(0.0, 1.0))
def test_between_the_ends_they_are_normal_quantiles(scores: NormalScores, at: float) -> None:
    x = scores.ends[0] + at * (scores.ends[1] - scores.ends[0])
    F = np.dot(scores.weights, norm.cdf(x, scores.means, scores.widths))
    (u,), _ = scores.of(np.array([x]))
    assert norm.cdf(u) == pytest.approx(F, rel=1e-9)
    assert scores.interpolated(np.array([u]))[0] == pytest.approx(
        scores.values(np.array([u]))[0], abs=0.02 * (scores.ends[1] - scores.ends[0])
    )


@pytest.mark.parametrize(
    "numbers",
    [
        ((0.5, 0.4), (0.0, 1.0), (1.0, 1.0), (0.0, 1.0)),
        ((1.0,), (0.0, 1.0), (1.0,), (0.0, 1.0)),
        ((1.0,), (0.0,), (0.0,), (0.0, 1.0)),
        ((1.0,), (0.0,), (1.0,), (1.0, 0.0)),
        ((1.0,), (0.0,), (1.0,), (0.0,)),
        ((1.0,), (float("nan"),), (1.0,), (0.0, 1.0)),
        ((1.0,), (0.0,), (1e-300,), (50.0, 60.0)),
    ],
)
def test_what_is_no_mixture(numbers: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError, match="normal scores need"):
        NormalScores(*numbers).check()
