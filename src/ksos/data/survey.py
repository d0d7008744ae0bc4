"""A survey of very many samples: how many there are, their moments, and a bounded part of them.

The part is chosen by what samples are and not by where they stand: those whose hash is lowest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ksos.ground import CACHE_ELEMENTS, Array, bits, is_numpy, namespace, row_blocks, to_numpy

_SIGN = -(2**63)  # the bit of the sign alone
# SplitMix64 [Steele2014], as signed integers of the same bits
_ODD = tuple(n + 2 * _SIGN for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
# a block is sorted while it is in the cache, and a call of np.unique costs a fraction of it
_BLOCK_ROWS = 1 << 17
# up to so many distinct samples are counted, more are estimated from as many hashes, to 1/√(2¹⁵) =
# 0.6%
_COUNTED = 1 << 15
_DEVIATIONS = 5.0  # standard deviations of that estimate: a false alarm in two million surveys


@dataclass(frozen=True, eq=False)
class Moments:
    """Σ a_i, the mean x̄, and Σ a_i (x_i − x̄)(x_i − x̄)ᵀ: a value that grows by chunks and merges
    without cancellation [Chan1983].

    >>> X = np.array([[0.0], [1.0], [5.0]])
    >>> both = Moments().update(X[:1], np.ones(1)).merge(Moments().update(X[1:], np.ones(2)))
    >>> both.mean.tolist(), both.covariance.round(12).tolist()
    ([2.0], [[4.666666666667]])
    """

    mass: float = 0.0
    mean: np.ndarray = field(default_factory=lambda: np.empty(0))
    scatter: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))

    def update(self, X: np.ndarray, masses: np.ndarray) -> Moments:
        mass = float(masses.sum())
        if not mass > 0.0:
            return self
        # around the first sample, so that samples far from zero lose no digits
        first = X[0]
        mean = first + (masses / mass) @ (X - first)
        Y = X - mean
        return self.merge(Moments(mass, mean, (Y * masses[:, None]).T @ Y))

    def merge(self, other: Moments) -> Moments:
        if not self.mass > 0.0 or not other.mass > 0.0:
            return self if self.mass > 0.0 else other
        mass, apart = self.mass + other.mass, other.mean - self.mean
        between = self.mass * (other.mass / mass) * np.outer(apart, apart)
        return Moments(
            mass, self.mean + (other.mass / mass) * apart, self.scatter + other.scatter + between
        )

    @property
    def covariance(self) -> np.ndarray:
        """Around the mean, divided by the mass."""
        return self.scatter / self.mass

    @property
    def rounded(self) -> Moments:
        """The same to 40 bits of each standard deviation, of mass one: what order and chunks change
        does not show.
        """
        bits = [math.frexp(v)[1] for v in np.sqrt(np.diagonal(self.covariance))]
        unit = np.ldexp(1.0, np.array(bits) - 40)
        products = unit[:, None] * np.ldexp(1.0, bits)
        return Moments(
            1.0, np.round(self.mean / unit) * unit, np.round(self.covariance / products) * products
        )


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
    nor on how often a sample is given. A sample of zero mass does not count. Two rows of the same
    64 bits are taken for the same row.

    ``most`` distinct samples are kept with all their masses: the ``points`` of the first hashes.
    More hashes than that, in order, are kept to count the samples, with how often each was given
    (``copies``), and with what rounding has taken from the masses (``lost``): their sums do not
    depend on the order. ``count`` includes copies. ``overflown``: there were more hashes than are
    kept.
    """

    most: int
    hashes: np.ndarray
    copies: np.ndarray
    masses: np.ndarray
    lost: np.ndarray
    points: np.ndarray
    count: int = 0
    overflown: bool = False

    @classmethod
    def empty(cls, most: int, n_features: int) -> Survey:
        none, points = np.empty(0), np.empty((0, n_features))
        return cls(most, none.astype(np.int64), none.astype(np.int64), none, none, points)

    @property
    def complete(self) -> bool:
        """Whether all distinct samples are kept."""
        return not self.overflown and self.hashes.shape[0] <= self.most

    @property
    def room(self) -> int:
        """How many hashes are kept."""
        return max(_COUNTED, self.most)

    def update(self, X: Array, masses: Array) -> Survey:
        out = self
        if not is_numpy(X):
            count, chosen = self.count + int((masses > 0.0).sum()), self._that_count(X, masses)
            found = self.update(to_numpy(X[chosen]), to_numpy(masses[chosen]))
            return replace(found, count=count)
        for start in range(0, X.shape[0], _BLOCK_ROWS):
            rows = slice(start, start + _BLOCK_ROWS)
            out = out._with_block(X[rows], masses[rows], row_hashes(X[rows]))
        return out

    # Which rows of a tensor may be kept. The others need not come to the host: they change nothing
    # but the count.
    def _that_count(self, X: Array, masses: Array) -> Array:
        xp, order, counted = namespace(X), row_hashes(X), masses > 0.0
        if self.overflown:
            return counted & (order <= int(self.hashes[-1]))
        lowest = xp.sort(xp.unique_values(order[counted]))
        # one hash more than there is room for shows that there are more
        return counted & (order <= lowest[self.room]) if len(lowest) > self.room else counted

    def _with_block(self, X: np.ndarray, masses: np.ndarray, hashes: np.ndarray) -> Survey:
        counted = masses > 0.0
        seen = replace(self, count=self.count + int(np.count_nonzero(counted)))
        # what lies beyond the hashes that are kept changes nothing but the count
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
        # one sign of zero
        points = X[first[: self.most]] + 0.0
        return seen.merge(Survey(self.most, known, copies, *gathered, points))

    def merge(self, other: Survey) -> Survey:
        if other.most != self.most or other.points.shape[1] != self.points.shape[1]:
            raise ValueError(
                "two surveys merge if they keep as many samples of as many features; got"
                f" {self.most} of {self.points.shape[1]} features and {other.most} of"
                f" {other.points.shape[1]}"
            )
        # both are in order, but sorting them once more costs less than merging in Python
        both = np.concatenate([self.hashes, other.hashes])
        hashes, first, which = np.unique(both, return_index=True, return_inverse=True)
        room, n = self.room, hashes.shape[0]
        copies = np.bincount(which, weights=np.concatenate([self.copies, other.copies]))
        masses, lost = _gathered(which, np.concatenate([self.masses, other.masses]))
        lost += np.bincount(which, weights=np.concatenate([self.lost, other.lost]))
        # a hash among the lowest of both is among the lowest of its own: its point is known
        first = first[: self.most]
        points, mine = np.empty((len(first), self.points.shape[1])), first < len(self.hashes)
        points[mine] = self.points[first[mine]]
        points[~mine] = other.points[first[~mine] - len(self.hashes)]
        return Survey(
            self.most,
            hashes[:room],
            copies.astype(np.int64)[:room],
            masses[:room],
            lost[:room],
            points,
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
        estimate = (known - 1) / ((float(self.hashes[-1]) - _SIGN + 1.0) / 2.0**64)
        # no copy among the lowest hashes: there are hardly any among the others
        single = int(self.copies.sum()) == known and abs(
            estimate - self.count
        ) <= _DEVIATIONS * self.count / np.sqrt(known)
        return self.count if single else min(round(estimate), self.count)

    @property
    def part(self) -> Part:
        """The kept samples, as a fit takes them."""
        order = np.lexsort(self.points.T[::-1])
        gathered = (self.masses + self.lost)[: len(order)][order]
        return Part(self.points[order], gathered / gathered.sum(), self.total)

    def fewer(self, most: int) -> Survey:
        """The same with at most so many samples kept."""
        return replace(self, most=most, points=self.points[:most]) if self.most > most else self


# The masses of each number in ``which``, and what is left of them: leading bits, whose sums are
# exact, and the rest [Ogita2005].
def _gathered(which: np.ndarray, masses: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    large = 2.0 ** (math.frexp(float(masses.max()))[1] + masses.shape[0].bit_length() + 1)
    leading = (masses + large) - large
    return np.bincount(which, weights=leading), np.bincount(which, weights=masses - leading)


def row_hashes(X: Array) -> Array:
    """64 bits for each row of floats, spread evenly, as signed integers in the order of the bits:
    the finalizer of SplitMix64 [Steele2014] after every feature.
    """
    xp, found = namespace(X), []
    n, d = X.shape
    for rows in row_blocks(n, d, CACHE_ELEMENTS if is_numpy(X) else n * d):
        # + 0.0: one sign of zero
        columns = bits(X[rows, :] + 0.0)
        hashes = columns[:, 0] ^ columns[:, 0]
        # sums and products wrap around
        for k in range(columns.shape[1]):
            hashes ^= columns[:, k]
            hashes += _ODD[0]
            for shift, factor in ((30, _ODD[1]), (27, _ODD[2]), (31, 1)):
                # zeros come from the left, as they do without a sign
                hashes ^= (hashes >> shift) & ((1 << (64 - shift)) - 1)
                hashes *= factor
        found.append(hashes ^ _SIGN)
    return xp.concat(found) if found else bits(X[:, 0])
