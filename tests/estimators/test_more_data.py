"""More data fit better, and of very many samples a part decides that depends neither on their order
nor on their copies.
"""

from __future__ import annotations

import more_data
import numpy as np
import pytest
from tables import points

from ksos import KernelSoSDensity
from ksos.data import Part, Survey, row_hashes

X = points(300, 2, 5)


def part_of(rows: np.ndarray, masses: np.ndarray, most: int) -> Part:
    return Survey.empty(most, rows.shape[1]).update(rows, masses).part


def test_more_samples_do_not_fit_worse() -> None:
    """One of the laws, which takes a second; benchmarks/more_data.py has all of them, to a million
    samples.
    """
    small, large = more_data.scores(more_data.LAWS["tied_normal"], [1000, 30_000])
    assert large[0] >= small[0] - more_data.SLACK


# --- the part of the samples that decides ---


def test_a_part_depends_on_the_samples_alone() -> None:
    counts = np.random.default_rng(0).integers(0, 4, 300)
    weighted = part_of(X, counts.astype(float), 40)
    repeated = np.random.default_rng(1).permutation(np.repeat(X, counts, axis=0))
    for part in (
        part_of(repeated, np.ones(len(repeated)), 40),
        part_of(X[::-1], counts[::-1].astype(float), 40),
    ):
        np.testing.assert_array_equal(part.points, weighted.points)
        np.testing.assert_allclose(part.weights, weighted.weights, rtol=1e-14)
        assert part.total == weighted.total == np.count_nonzero(counts)
    assert weighted.points.shape == (40, 2) and weighted.weights.sum() == pytest.approx(1.0)


def test_few_samples_decide_all() -> None:
    whole = part_of(np.r_[X, X], np.ones(600), 300)  # 300 distinct ones
    np.testing.assert_array_equal(whole.points, np.unique(X, axis=0))
    assert whole.total == 300


def test_a_part_looks_like_the_whole() -> None:
    """Each feature of the part has the mean of the whole to four standard errors: hashes see no
    more than the identity of a row.
    """
    many = np.random.default_rng(3).normal(size=(20_000, 3))
    part = part_of(many, np.ones(20_000), 2000)
    assert np.all(np.abs(part.weights @ part.points - many.mean(axis=0)) < 4.0 / np.sqrt(2000))


def test_hashes_tell_rows_apart_and_signs_of_zero_not() -> None:
    grid = np.stack(np.meshgrid(np.arange(40.0), np.arange(40.0)), axis=-1).reshape(-1, 2)
    hashes = row_hashes(grid)
    assert len(np.unique(hashes)) == 1600
    assert np.abs(np.mean(hashes / 2.0**64)) < 4.0 / np.sqrt(12 * 1600)
    np.testing.assert_array_equal(
        row_hashes(np.array([[0.0, -0.0]])), row_hashes(np.array([[-0.0, 0.0]]))
    )


def test_all_samples_count_where_a_part_decides() -> None:
    """The embedding of 12 000 samples, 2000 of which decide on nothing: the fit of distinct samples
    to the same objective.
    """
    many = points(12_000, 1, 8)
    options = {
        "bandwidth": 1.0,
        "support": np.linspace(-3.0, 3.0, 15)[:, None],
        "regularization": 1e-3,
    }
    whole = KernelSoSDensity(**options).fit(many)
    weights = np.random.default_rng(0).integers(0, 3, len(many))
    weighted, repeated = (
        KernelSoSDensity(**options).fit(many, sample_weight=weights),
        KernelSoSDensity(**options).fit(np.repeat(many, weights, axis=0)),
    )
    np.testing.assert_allclose(
        weighted.score_samples(many[:50]), repeated.score_samples(many[:50]), atol=1e-6
    )
    assert np.max(np.abs(weighted.score_samples(many[:50]) - whole.score_samples(many[:50]))) > 1e-4
    embedding = whole.solution_.space.projection.coordinates(many)
    squared = np.sum(
        (whole.solution_.space.projection.coordinates(whole.distribution_) - embedding) ** 2
    )
    p = whole.distribution_
    penalty = 1e-3 * np.trace(p.factor.T @ p.kernel(p.support_points) @ p.factor)
    assert whole.solution_.objective == pytest.approx(squared + penalty, abs=1e-9)
