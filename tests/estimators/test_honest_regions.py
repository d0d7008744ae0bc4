"""The 90 % region of a default fit holds 90 % of new samples, and its samples are as wide as they are: four tables of the benchmark.

What keeps rows without neighbours in sight is a share of bumps around the support points, against brute force.
"""

from __future__ import annotations

import honest_regions
import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ksos import KernelSoSDensity
from ksos.measures import Box


@pytest.mark.parametrize("name", ["cars_5", "wine_6", "blobs_3", "cancer_5"])
def test_regions_hold_their_share_of_held_out_samples(name: str) -> None:
    """With slack for two splits; benchmarks/honest_regions.py has all tables, sizes and more seeds."""
    found = honest_regions.region(name, 150, 2, tol=1e-5)
    assert abs(found.coverage - honest_regions.MASS) <= honest_regions.POINTS + 0.01, found
    assert np.all(np.abs(found.ratios - 1.0) <= honest_regions.WIDTH + 0.05), found


def test_splits_share_no_row() -> None:
    fit, held_out = honest_regions.split("wine_6", 1000, 0)
    assert len(fit) + len(held_out) == len(honest_regions.TABLES["wine_6"]) and len(fit) == 118
    whole = np.r_[fit, held_out]
    np.testing.assert_array_equal(np.sort(whole, axis=0), np.sort(honest_regions.TABLES["wine_6"], axis=0))


def student(n: int, seed: int) -> np.ndarray:
    """Three tied features with long tails: the squared MMD leaves the far samples out."""
    rng = np.random.default_rng(seed)
    root = np.array([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.5, 0.3, 0.8]])
    return np.asarray(rng.normal(size=(n, 3)) @ root.T * np.sqrt(3.0 / rng.chisquare(3.0, (n, 1))))


def test_a_share_of_the_mass_is_in_bumps_around_the_support_points() -> None:
    X, new = student(240, 0), student(4000, 1)
    est = KernelSoSDensity().fit(X)
    optimum, s, support = est.solution_.distribution, est.bump_share_, est.support_points_
    S = optimum.kernel.matrix(3)
    apart = X[:, None] - support
    nearest = np.argmin(np.einsum("nmi,ij,nmj->nm", apart, np.linalg.inv(S), apart), axis=1)
    shares = np.bincount(nearest, minlength=support.shape[0]) / X.shape[0]
    bumps = sum(a * multivariate_normal(x, 0.25 * S).pdf(new) for a, x in zip(shares, support, strict=True))  # k² is normal
    assert s > 0.0
    np.testing.assert_allclose(est.distribution_.pdf(new), (1.0 - s) * optimum.pdf(new) + s * bumps, rtol=1e-9)
    assert est.score(new) > np.mean(optimum.logpdf(new)) + 0.02, "new samples like it better"


@pytest.mark.parametrize(
    "options",
    [
        {"bandwidth": 1.0},
        {"objective": "likelihood", "n_support": 20},
        {"measure": Box([-200.0] * 3, [200.0] * 3)},
        {"reference": "normal"},
        {"embedding_bandwidth": 3.0},
    ],
    ids=lambda options: next(iter(options)),
)
def test_who_chooses_gets_the_optimum_itself(options: dict) -> None:
    est = KernelSoSDensity(**options, tol=1e-4).fit(student(100, 0))
    assert est.bump_share_ == 0.0
    if "reference" not in options:
        assert est.distribution_ is est.solution_.distribution
