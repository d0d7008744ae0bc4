"""A bounded part of very many samples, chosen by what they are and not by where they stand: the samples whose hash is lowest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ksos._memory import row_blocks
from ksos.estimators._samples import distinct_samples

__all__ = ["Part", "part_of"]

_ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)
_BLOCK_ELEMENTS = 1 << 16


class Part(NamedTuple):
    """Distinct samples in lexicographic order, their shares of the mass, and how many distinct samples they stand for."""

    points: np.ndarray
    weights: np.ndarray
    total: int


def part_of(X: np.ndarray, masses: np.ndarray, most: int) -> Part:
    """All distinct samples of positive mass if there are at most ``most`` samples, and otherwise ``most`` of them with all their copies.

    The choice depends neither on the order of the samples nor on how often each is given.
    """
    if X.shape[0] > most:
        hashes = row_hashes(X)
        known = np.sort(hashes if np.all(masses > 0.0) else hashes[masses > 0.0])
        known = known[np.r_[True, known[1:] != known[:-1]]]
        if known.shape[0] > most:
            rows = hashes <= known[most - 1]
            return Part(*distinct_samples(X[rows], masses[rows]), known.shape[0])
    points, weights = distinct_samples(X, masses)
    return Part(points, weights, points.shape[0])


def row_hashes(X: np.ndarray) -> np.ndarray:
    """64 bits for each row of floats, spread evenly: the finaliser of SplitMix64 [Steele2014] after every feature."""
    out = np.empty(X.shape[0], dtype=np.uint64)
    for rows in row_blocks(X.shape[0], X.shape[1], _BLOCK_ELEMENTS):
        bits = (X[rows] + 0.0).view(np.uint64).T  # + 0.0: one sign of zero
        hashes = np.zeros(bits.shape[1], dtype=np.uint64)
        for feature in bits:
            hashes ^= feature
            hashes += _ODD[0]
            for shift, factor in ((30, _ODD[1]), (27, _ODD[2])):
                hashes ^= hashes >> np.uint64(shift)
                hashes *= factor
            hashes ^= hashes >> np.uint64(31)
        out[rows] = hashes
    return out
