"""The 90% region of a default fit holds about 90% of new samples: four tables of the benchmark."""

from __future__ import annotations

import honest_regions
import numpy as np
import pytest


@pytest.mark.parametrize("name", ["cars_5", "wine_6", "blobs_3", "cancer_5"])
def test_regions_hold_their_share_of_held_out_samples(name: str) -> None:
    """Within what docs/density-estimation.md reports, with slack for two splits."""
    found = honest_regions.region(name, 150, 2, tol=1e-5)
    assert 0.84 <= found.coverage <= 0.95, found
    assert np.all(np.abs(found.ratios - 1.0) <= 0.15), found


def test_splits_share_no_row() -> None:
    fit, held_out = honest_regions.split("wine_6", 1000, 0)
    assert len(fit) + len(held_out) == len(honest_regions.TABLES["wine_6"]) and len(fit) == 118
    whole = np.r_[fit, held_out]
    np.testing.assert_array_equal(
        np.sort(whole, axis=0), np.sort(honest_regions.TABLES["wine_6"], axis=0)
    )
