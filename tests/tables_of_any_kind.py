"""Densities of tables with columns of any kind, for tests of what is asked of them."""

from __future__ import annotations

import numpy as np

from ksos.density import (
    Column,
    Columns,
    Correction,
    MixedReference,
    MixedTerms,
    NormalScores,
    TableDensity,
)

# three values that crowd, and a wide rest
HEAPS = NormalScores(
    (0.3, 0.3, 0.2, 0.2), (0.5, 1.5, 2.5, 1.0), (0.02, 0.02, 0.05, 2.0), (0.05, 6.0)
)

KINDS = {
    "plain": Column("plain", "numeric"),
    "price": Column("price", "positive"),
    "cost": Column("cost", "positive", knee=3.0),
    "rain": Column("rain", "nonnegative", atoms=(0.0,)),
    "share": Column("share", "bounded", atoms=(1.0,), sides=(0.0, 1.0)),
    "visits": Column("visits", "count", "int64", atoms=(0.0, 1.0)),
    "seen": Column("seen", "count", "int64", knee=9.0),
    "wind": Column("wind", "circular", sides=(0.0, 360.0), seam=50.0),
    "heaped": Column("heaped", "numeric", scores=HEAPS),
    "fare": Column("fare", "positive", scores=HEAPS),
    "origin": Column("origin", "categorical", "object", levels=("EU", "Japan", "USA")),
}


def density_of(*names: str, seed: int = 0) -> TableDensity:
    """A density of these columns with a correction that changes its reference."""
    columns = Columns(tuple(KINDS[name] for name in names))
    rng, K, m = np.random.default_rng(seed), 3, 4
    d, levels = len(columns.lines), columns.levels
    roots = 0.4 * rng.normal(size=(K, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(d)
    chances = tuple(rng.dirichlet(np.full(n, 2.0), K) for n in levels)
    # angles are numbers from 0 to 360, the others near 0
    scale = np.array([40.0 if columns.listed[k].kind == "circular" else 1.0 for k in columns.lines])
    means = scale * np.abs(rng.normal(size=(K, d)))
    weights = rng.dirichlet(np.ones(K))
    reference = MixedReference(
        weights, means, covariances * np.multiply.outer(scale, scale), chances
    )
    codes = np.array([rng.integers(n, size=m) for n in levels], dtype=int).reshape(len(levels), m).T
    correction = Correction(
        3.0 * np.diag(scale**2),
        np.full(len(levels), 0.4),
        scale * rng.normal(size=(m, d)),
        codes,
        0.4 * rng.normal(size=(m, 2)),
        np.ones(2),
    )
    return TableDensity(columns, [(1.0, MixedTerms.of(reference, correction))])
