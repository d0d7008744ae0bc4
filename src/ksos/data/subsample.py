"""A bounded part of very many samples, chosen by what they are and not by where they stand: the
samples whose hash is lowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ksos.data.moments import Moments
from ksos.ground.memory import row_blocks

__all__ = ["ODD", "Part", "Survey", "row_hashes"]

ODD = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)
_BLOCK_ELEMENTS = 1 << 16
_BLOCK_ROWS = 1 << 17
# up to so many distinct samples are counted, more are estimated from as many hashes, to 1/√(2¹⁵) =
# 0.6 %
_COUNTED = 1 << 15
_DEVIATIONS = 5.0


class Part(NamedTuple):
    """Distinct samples in lexicographic order, their shares of the mass, how many they stand for,
    and if wanted the moments of all.
    """

    points: np.ndarray
    weights: np.ndarray
    total: int
    moments: Moments | None = None


@dataclass(frozen=True, eq=False)
class Survey:
    """What is known of samples after one look at them: how many there are, and those with the
    lowest hashes.

    A value that grows by chunks and merges: it depends neither on the chunks nor on their order,
    nor on how often a sample is given. Of zero mass a sample does not count. Two rows of the same
    64 bits are taken for the same row.
    """

    most: int
    """So many distinct samples are kept with all their masses."""
    hashes: np.ndarray
    """The lowest ones, in order: more than ``most`` of them, to count the samples."""
    copies: np.ndarray
    """How often each was given."""
    masses: np.ndarray
    lost: np.ndarray
    """What rounding has taken from the masses: their sums do not depend on the order."""
    points: np.ndarray
    """Of the first ``most`` hashes."""
    count: int = 0
    """How many samples, copies included."""
    overflown: bool = False
    """Whether there were more hashes than are kept."""

    @classmethod
    def empty(cls, most: int, n_features: int) -> Survey:
        """Nothing seen."""
        nothing = np.empty(0)
        return cls(
            most,
            nothing.astype(np.uint64),
            nothing.astype(np.int64),
            nothing,
            nothing,
            np.empty((0, n_features)),
        )

    @property
    def complete(self) -> bool:
        """Whether all distinct samples are kept."""
        return not self.overflown and self.hashes.shape[0] <= self.most

    @property
    def room(self) -> int:
        """How many hashes are kept."""
        return max(_COUNTED, self.most)

    def update(self, X: np.ndarray, masses: np.ndarray) -> Survey:
        """This and more samples (n, d) of these masses."""
        out = self
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            out = out._with_block(X[rows], masses[rows], row_hashes(X[rows]))
        return out

    def _with_block(self, X: np.ndarray, masses: np.ndarray, hashes: np.ndarray) -> Survey:
        counted = masses > 0.0
        seen = replace(self, count=self.count + int(np.count_nonzero(counted)))
        if self.overflown:
            counted &= hashes <= self.hashes[-1]
        if not counted.all():
            X, masses, hashes = X[counted], masses[counted], hashes[counted]
        if not hashes.size:
            return seen
        known, first, which, copies = np.unique(
            hashes, return_index=True, return_inverse=True, return_counts=True
        )
        gathered = _gathered(which, masses)
        block = Survey(
            self.most, known, copies, *gathered, X[first[: self.most]] + 0.0
        )  # one sign of zero
        return seen.merge(block)

    def merge(self, other: Survey) -> Survey:
        """What is known of both sets of samples."""
        if other.most != self.most or other.points.shape[1] != self.points.shape[1]:
            what = [
                f"{survey.most} samples of {survey.points.shape[1]} features"
                for survey in (self, other)
            ]
            raise ValueError(
                "two surveys merge if they keep as many samples of as many features; got"
                f" {' and '.join(what)}"
            )
        both = np.concatenate([self.hashes, other.hashes])
        hashes, first, which = np.unique(both, return_index=True, return_inverse=True)
        room, n = self.room, hashes.shape[0]
        copies = np.bincount(which, weights=np.concatenate([self.copies, other.copies])).astype(
            np.int64
        )
        masses, lost = _gathered(which, np.concatenate([self.masses, other.masses]))
        lost += np.bincount(which, weights=np.concatenate([self.lost, other.lost]))
        first = first[
            : self.most
        ]  # a hash among the lowest of both is among the lowest of its own: its point is known
        points, mine = (
            np.empty((first.shape[0], self.points.shape[1])),
            first < self.hashes.shape[0],
        )
        points[mine], points[~mine] = (
            self.points[first[mine]],
            other.points[first[~mine] - self.hashes.shape[0]],
        )
        known = hashes[:room], copies[:room], masses[:room], lost[:room], points
        return Survey(
            self.most,
            *known,
            self.count + other.count,
            self.overflown or other.overflown or n > room,
        )

    @property
    def total(self) -> int:
        """How many distinct samples there are: counted, and of very many estimated from how dense
        the lowest hashes lie [BarYossef2002].

        Where none of those was given twice and the estimate agrees, all samples are taken for
        distinct, which is then exact.
        """
        known = self.hashes.shape[0]
        if not self.overflown:
            return known
        estimate = (known - 1) / ((float(self.hashes[-1]) + 1.0) / 2.0**64)
        single = int(self.copies.sum()) == known and abs(
            estimate - self.count
        ) <= _DEVIATIONS * self.count / np.sqrt(known)
        return self.count if single else min(round(estimate), self.count)

    @property
    def part(self) -> Part:
        """The kept samples, as a fit takes them."""
        order, gathered = (
            np.lexsort(self.points.T[::-1]),
            (self.masses + self.lost)[: self.points.shape[0]],
        )
        return Part(self.points[order], gathered[order] / gathered.sum(), self.total)

    def fewer(self, most: int) -> Survey:
        """The same with at most so many samples kept."""
        return replace(self, most=most, points=self.points[:most]) if self.most > most else self

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain words and arrays from which :meth:`of_state` makes the same value."""
        arrays = {
            "hashes": self.hashes,
            "copies": self.copies,
            "masses": self.masses,
            "lost": self.lost,
            "points": self.points,
        }
        return {"most": self.most, "count": self.count, "overflown": self.overflown}, arrays

    @classmethod
    def of_state(cls, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> Survey:
        """The value that :meth:`state` described."""
        held: dict[str, Any] = {
            name: arrays[name] for name in ("hashes", "copies", "masses", "lost", "points")
        }
        return cls(
            int(words["most"]),
            **held,
            count=int(words["count"]),
            overflown=bool(words["overflown"]),
        )


def _gathered(which: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The masses of each number in ``which``, and what is left of them: leading bits, whose sums
    are exact, and the rest [Ogita2005].
    """
    large = 2.0 ** (math.frexp(float(masses.max()))[1] + masses.shape[0].bit_length() + 1)
    leading = (masses + large) - large
    return np.bincount(which, weights=leading), np.bincount(which, weights=masses - leading)


def row_hashes(X: np.ndarray) -> np.ndarray:
    """64 bits for each row of floats, spread evenly: the finaliser of SplitMix64 [Steele2014] after
    every feature.
    """
    out = np.empty(X.shape[0], dtype=np.uint64)
    for rows in row_blocks(X.shape[0], X.shape[1], _BLOCK_ELEMENTS):
        bits = (X[rows] + 0.0).view(np.uint64).T  # + 0.0: one sign of zero
        hashes = np.zeros(bits.shape[1], dtype=np.uint64)
        for feature in bits:
            hashes ^= feature
            hashes += ODD[0]
            for shift, factor in ((30, ODD[1]), (27, ODD[2])):
                hashes ^= hashes >> np.uint64(shift)
                hashes *= factor
            hashes ^= hashes >> np.uint64(31)
        out[rows] = hashes
    return out
