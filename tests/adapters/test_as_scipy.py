"""A density of one feature as one of SciPy's distributions: the same numbers, and SciPy's own tools
work on it.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy
from densities import normal, random_density
from scipy import stats

from ksos import SoSDensity
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Normal

DENSITIES = {
    "two modes": lambda: SoSDensity(Gaussian(1.0), [[0.0], [3.0]], [[1.0], [1.5]], normalize=True),
    "kinks": lambda: random_density(Laplace(0.8)),
    "on a box": lambda: random_density(Gaussian(0.8), Box([-1.0], [1.5])),
    "relative to a normal": lambda: random_density(Gaussian(0.8), Normal(0.3, 1.2)),
    "marginal": lambda: random_density(Gaussian(1.0), d=3).marginal(1),
}


@pytest.mark.parametrize("name", DENSITIES)
def test_every_answer_is_that_of_the_density(name: str) -> None:
    p = DENSITIES[name]()
    X, q, x = p.to_scipy(), p.by_volume(), np.linspace(-2.0, 4.0, 12).reshape(3, 4)
    low, high = p.measure.boundary(0)
    inside = np.clip(x, max(low, -2.0), min(high, 4.0))
    rows = inside.reshape(-1, 1)
    for mine, his in ((q.pdf, X.pdf), (q.logpdf, X.logpdf), (q.cdf, X.cdf)):
        np.testing.assert_allclose(his(inside).ravel(), mine(rows), rtol=1e-12)
    levels = np.array([[1e-9, 0.2], [0.5, 0.999]])
    np.testing.assert_allclose(X.icdf(levels).ravel(), q.ppf(levels.ravel()), rtol=1e-12)
    np.testing.assert_allclose(X.ccdf(inside), 1.0 - X.cdf(inside), atol=1e-12)
    np.testing.assert_allclose(X.iccdf(levels), X.icdf(1.0 - levels), atol=1e-6)
    assert X.mean() == pytest.approx(float(p.mean()[0]), rel=1e-12, abs=1e-12)
    assert X.variance() == pytest.approx(float(p.cov()[0, 0]), rel=1e-12)
    assert X.moment(3) == pytest.approx(q.moment(3), rel=1e-12)
    skewness = q.moment(3, central=True) / float(p.cov()[0, 0]) ** 1.5
    assert X.skewness() == pytest.approx(skewness, rel=1e-9, abs=1e-12)
    assert X.entropy() == pytest.approx(float(q.entropy()), abs=1e-9)
    assert X.mode() == q.mode()[0] and X.median() == pytest.approx(q.ppf(0.5), abs=1e-12)
    assert X.support() == (low, high)


def test_infinities_and_points_beyond_the_support() -> None:
    X = DENSITIES["on a box"]().to_scipy()
    np.testing.assert_array_equal(X.pdf([-np.inf, -5.0, 5.0, np.inf]), np.zeros(4))
    np.testing.assert_array_equal(X.cdf([-np.inf, -5.0, 5.0, np.inf]), [0.0, 0.0, 1.0, 1.0])
    assert np.isnan(X.pdf(np.nan)) and np.isnan(X.icdf(1.5))


def test_upper_tails_keep_their_digits() -> None:
    X = normal().to_scipy()
    assert X.ccdf(20.0) == pytest.approx(stats.norm.sf(20.0), rel=1e-9)
    assert X.iccdf(1e-30) == pytest.approx(stats.norm.isf(1e-30), rel=1e-12)


def test_samples_are_reproducible_and_follow_the_density() -> None:
    X = DENSITIES["two modes"]().to_scipy()
    draw = X.sample(shape=(50, 60), rng=np.random.default_rng(0))
    assert draw.shape == (50, 60)
    np.testing.assert_array_equal(draw, X.sample(shape=(50, 60), rng=np.random.default_rng(0)))
    assert stats.kstest(draw.ravel(), X.cdf).pvalue > 1e-4


def test_scipys_tools_work_on_it() -> None:
    p = DENSITIES["two modes"]()
    X = p.to_scipy()
    Y = 2.0 * X + 1.0
    assert Y.mean() == pytest.approx(2.0 * X.mean() + 1.0) and Y.mode() == 2.0 * X.mode() + 1.0
    assert Y.cdf(3.0) == pytest.approx(X.cdf(1.0), rel=1e-12)
    both = stats.Mixture([X, stats.Normal()], weights=[0.25, 0.75])
    assert both.cdf(0.5) == pytest.approx(0.25 * X.cdf(0.5) + 0.75 * stats.norm.cdf(0.5))
    cut = stats.truncate(X, lb=0.0, ub=2.0)
    inside = p.probability(0.0, 2.0)
    assert cut.cdf(1.0) == pytest.approx(p.probability(0.0, 1.0) / inside, rel=1e-9)
    exponential = stats.exp(X)
    assert exponential.cdf(2.0) == pytest.approx(X.cdf(np.log(2.0)), rel=1e-9)


def test_errors_name_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    atoms = Discrete([[0.0], [1.0]])
    on_atoms = SoSDensity(Gaussian(1.0), [[0.0]], [[1.0]], atoms, normalize=True)
    with pytest.raises(ValueError, match="continuous distributions alone"):
        on_atoms.to_scipy()
    monkeypatch.setattr(scipy, "__version__", "1.14.1")
    with pytest.raises(ImportError, match=r"SciPy 1\.15 or newer.*1\.14\.1.*pip install"):
        normal().to_scipy()
