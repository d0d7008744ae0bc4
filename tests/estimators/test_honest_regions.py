"""The 90 % region of a default fit holds 90 % of new samples, and its samples are as wide as they are: four tables of the benchmark."""

from __future__ import annotations

import honest_regions
import numpy as np
import pytest


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
