"""Gaussian mixtures of several sizes and covariance floors, weighed by what samples that they have not seen say about them.

They are the reference ρ that a sum of squares corrects, and parts of the answer themselves.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ksos._deadline import Deadline
from ksos.bandwidth import bandwidth_rule, robust_silverman
from ksos.estimators._expectation_maximization import Mixtures, Samples, mixture_path, seeds
from ksos.estimators._samples import Fold
from ksos.estimators._stacking import stack
from ksos.feature_names import said
from ksos.measures import GaussianMixture

__all__ = ["FLOORS", "SIZES", "Label", "MixtureStack", "Units", "share_rounds", "warn_if_tied"]

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 20, 32)
"""Components; at most a quarter of the samples."""
FLOORS = (3e-2, 3e-3, 1e-6)
"""What is added to the variances, in units of each feature's, one after the other."""
_FLOOR_OF_FEW = 1e-1  # with few samples, wider mixtures take part
_STARTS, _DIRECT_STARTS = 2, 3
_MANY = 250  # samples: from here on, narrow components that the path of floors does not find are worth looking for
_COUNTED = (2, 3, 4, 5, 6, 7, 8, 10, 12)  # components of mixtures that a criterion of few parameters may choose
_MANY_FEATURES = 4  # from here on fewer samples are enough for that choice
_SAMPLES_PER_COMPONENT = 4
_SHARED, _PAIR = 1e-9, 2.5  # a variance that is that of one value, and more samples than two by chance
_WIDE = 9.0  # of the covariance of all samples: what keeps samples far from all others in sight
_FAR, _FARTHEST = 20.0, 1e3  # standard deviations that outliers have made, and outliers themselves, in units of the spread of the others
_SMALLEST_SHARE, _SMALLEST_COMPONENT = 0.01, 3e-4
_FLAT = 1e-10  # of the largest variance
_TIED, _MOST_SAID = 0.1, 4  # the least part of a direction without spread that a feature has, and how many of them are named
_MOST_BAGS, _MOST_COMPONENTS = 6, 1000
_MOST_OF_A_REFERENCE, _MOST_REFERENCE_COMPONENTS, _FEW_COMPONENTS = 0.9, 120, 60
_MOST_OF_A_SAMPLE = 0.75  # of the mass: a fold that trains on less is not worth a vote


@dataclass(frozen=True)
class Units:
    """Coordinates (x − shift)/scale in which features have spreads near one."""

    shift: np.ndarray
    scale: np.ndarray
    still: np.ndarray
    """Which features have no spread."""

    @classmethod
    def of(cls, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, names: Any = None) -> Units:
        """Standard deviations, or what they would be without outliers; a feature without spread has the unit 1, with a warning."""
        d, n = points.shape[1], 1.0 / float(weights @ weights)
        factor = 2.0 * ((d + 2) / 4.0 * n) ** (-1.0 / (d + 4))
        deviation = np.array(np.broadcast_to(bandwidth_rule("silverman", points, weights, rng, names=names), (d,))) / factor
        spread, still = robust_silverman(points, weights) / factor, np.ptp(points, axis=0) == 0.0
        scale = np.where(still, 1.0, np.where(deviation > _FAR * spread, spread, deviation))
        middle = points[points.shape[0] // 2]
        return cls(middle + weights @ np.clip(points - middle, -_FARTHEST * scale, _FARTHEST * scale), scale, still)

    def of_points(self, X: np.ndarray) -> np.ndarray:
        return (X - self.shift) / self.scale

    @property
    def log_volume(self) -> float:
        """log |det| of the way back to the data."""
        return float(np.sum(np.log(self.scale)))

    def of_law(self, law: GaussianMixture) -> GaussianMixture:
        """A law of the data, in these coordinates."""
        return GaussianMixture(law.weights, self.of_points(law.means), law.covariances / self.scale[:, None] / self.scale)

    def measure(self, law: GaussianMixture) -> GaussianMixture:
        """A law of the coordinates, in those of the data."""
        return GaussianMixture(law.weights, self.shift + law.means * self.scale, law.covariances * (self.scale[:, None] * self.scale))


def share_rounds(n: int) -> int:
    """How many rounds the shares of a stack get: the fewer samples, the less their scores may decide."""
    return int(np.clip(n // 2, 50, 400))


class Label(NamedTuple):
    """How a mixture was made; the wide one has an infinite floor, one that is given NaN."""

    components: int
    floor: float
    start: int = 0
    direct: bool = False
    """Whether it began at the clusters of k-means and not at the mixture of a larger floor."""
    tied: bool = False
    """Whether its components share one covariance."""


_WIDEST = Label(1, np.inf)


class _Step(NamedTuple):
    """Mixtures that are fitted together: one for each floor, from the same start."""

    components: int
    start: int
    floors: Sequence[float] = FLOORS
    tied: bool = False

    @property
    def cost(self) -> float:
        """What a step of expectation–maximisation is proportional to."""
        return float(self.components * len(self.floors))


class MixtureStack:
    """The mixtures of all folds and of all samples, and their log-densities at the samples that they have not seen.

    ``points`` (n, d) are in :class:`Units`. The last of the mixtures is wide: samples far from all others are never impossible.
    """

    def __init__(
        self, points: np.ndarray, weights: np.ndarray, folds: Sequence[Fold], still: np.ndarray, sizes: Sequence[int],
        given: GaussianMixture | None = None,
    ) -> None:  # fmt: skip
        self.given = given
        self.points, self.folds, self.sizes = points, folds, [c for c in sizes if c <= max(1, points.shape[0] // _SAMPLES_PER_COMPONENT)]
        self.masses = np.zeros((len(folds) + 1, points.shape[0]))
        for row, fold in zip(self.masses, folds, strict=False):
            row[fold.train] = fold.train_weights
        self.masses[-1] = weights
        self._still = still
        self.labels: list[Label] = []
        self.likelihoods: list[np.ndarray] = []
        """Of each mixture, the mean log-density of what each weighting of ``masses`` fits."""
        self.fits: list[Mixtures] = []
        ends = np.cumsum([0, *(fold.test.size for fold in folds)])
        self.rows = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self.held_out = np.empty((int(ends[-1]), 0))
        """(held-out samples, fold by fold; mixtures)."""
        shares = np.array([fold.mass for fold in folds])
        parts = [share * fold.test_weights for share, fold in zip(shares / shares.sum(), folds, strict=True)] if folds else [np.empty(0)]
        self.held_out_weights = np.concatenate(parts)

    def plan(self) -> list[_Step]:
        """What :meth:`fit` fits, one after the other.

        A path of descending floors forgets components narrower than the largest of them: with many samples, the smallest floor is fitted
        from k-means as well, with few of them one that is larger than all.
        """
        steps = [_Step(c, start) for start in range(_STARTS) for c in self.sizes if c > 1 or start == 0]
        if self.given is not None or len(self.sizes) == 1:
            return steps
        counted = [c for c in _COUNTED if c <= max(self.sizes)]
        if self.many:
            every = sorted({*counted, *self.sizes} - {1})
            steps += [_Step(c, start, FLOORS[-1:]) for start in range(_DIRECT_STARTS) for c in (counted if start else every)]
        else:
            steps += [_Step(c, 0, (_FLOOR_OF_FEW,)) for c in self.sizes if c > 1]
        return steps + [_Step(c, 0, FLOORS[-1:], tied=True) for c in counted if self.parameters_count]

    def fit(self, deadline: Deadline) -> Iterator[int]:
        """Fit step after step, telling how many mixtures there are; after the deadline nothing but the first."""
        samples, largest = Samples.of(np.clip(self.points, -_FARTHEST, _FARTHEST)), max(self.sizes)
        columns: list[np.ndarray] = []
        centres: dict[int, np.ndarray] = {}
        for c, start, floors, tied in self.plan():
            if self.fits and deadline.passed:
                return
            if start not in centres:
                centres[start] = seeds(samples.points, self.masses, largest, start)
            used = [np.where(self._still, 1.0, floor) for floor in floors]
            path = mixture_path(samples, self.masses, centres[start][:, :c], used, deadline, tied)
            for mixtures, floor in zip(path, used, strict=True):
                self.fits.append(mixtures if tied else self._without_spikes(mixtures, samples, floor))
            self.labels += [Label(c, floor, start, len(floors) == 1, tied) for floor in floors]
            if c == 1:
                self.fits.append(self.fits[0].widened(_WIDE))
                self.labels.append(_WIDEST)
                self._add_given()
            columns += [self._unseen(mixture, samples) for mixture in self.fits[len(columns) :]]
            self.held_out = np.stack(columns, axis=1)
            yield len(self.fits)

    def _without_spikes(self, mixtures: Mixtures, samples: Samples, floor: np.ndarray) -> Mixtures:
        """Components of too few samples to have a covariance of their own are as wide as is safe, but for a value that three or more share.

        Samples that are held out hardly ever meet a spike on a lone row, and so do not speak against it; values of a column they do meet.
        """
        places = mixtures.places(samples, self.masses)[:, :, None]
        shared = np.diagonal(mixtures.covariances, axis1=2, axis2=3) - floor < _SHARED
        lone = (places < self.points.shape[1] + 1) & ~(shared & (places > _PAIR))
        return mixtures.with_variances(np.where(lone, max(FLOORS), 0.0))

    def keep_whole(self) -> bool:
        """Forget the mixtures of a step that was interrupted; whether any are left."""
        count = self.held_out.shape[1]
        for parts in (self.fits, self.labels, self.likelihoods):
            del parts[count:]
        return count > 0

    @property
    def many(self) -> bool:
        """Whether there are samples enough for narrow components."""
        return self.given is None and len(self.sizes) > 1 and float(np.sum(self.masses[-1] ** 2)) < 1.0 / _MANY

    @property
    def parameters_count(self) -> bool:
        """Whether a mixture of few parameters takes part beside the stack: among many samples, or where features make parameters many."""
        return self.many or (self.given is None and len(self.sizes) > 1 and self.points.shape[1] >= _MANY_FEATURES)

    def _add_given(self) -> None:
        """A law that is given takes part as it is, the same in all folds."""
        if self.given is not None:
            times = self.masses.shape[0]
            self.fits.append(Mixtures(*(np.repeat(part[None], times, axis=0) for part in self.given.normals(self.points.shape[1]))))
            self.labels.append(Label(self.given.weights.shape[0], np.nan))

    def _unseen(self, mixtures: Mixtures, samples: Samples) -> np.ndarray:
        logs = mixtures.log_densities(samples)
        self.likelihoods.append(np.einsum("bn,bn->b", logs, self.masses))
        return np.concatenate([logs[k, fold.test] for k, fold in enumerate(self.folds)]) if self.folds else np.empty(0)

    def shares(self, without: int | None = None) -> np.ndarray:
        """The weights with which the mixtures predict held-out samples best, all of them, or those of all folds but one."""
        keep = np.ones(self.held_out.shape[0], dtype=bool)
        if without is not None and len(self.folds) > 1:
            keep[self.rows[without]] = False
        if not keep.any():
            return np.full(len(self.fits), 1.0 / len(self.fits))
        weights = self.held_out_weights[keep]
        return stack(self.held_out[keep], weights / weights.sum(), share_rounds(int(keep.sum())), self.start)

    @property
    def smallest_floor(self) -> float:
        return FLOORS[-1]

    @property
    def wide(self) -> int:
        """The number of the wide mixture."""
        return self.labels.index(_WIDEST)

    @property
    def least(self) -> float:
        """The share that the wide mixture always has: a tenth of a sample."""
        return 0.1 / self.points.shape[0]

    @property
    def start(self) -> np.ndarray:
        """Shares before anything is known: the fewer components, the more; those that are there to be chosen among have none."""
        stacked = [not label.tied and not (label.direct and label.start > 0) for label in self.labels]
        return np.array(stacked) / np.array([label.components for label in self.labels])

    def reference(self, fold: int | None = None) -> GaussianMixture:
        """ρ of all samples, or of those that a fold trains on: neither the mixtures nor their shares know the others.

        Small shares and components are left out, the wide one stays.
        """
        if self.given is not None:
            return self.given
        shares = self.shares(fold)
        order, total, components = np.argsort(-shares, kind="stable"), 0.0, 0
        most = _MOST_REFERENCE_COMPONENTS if self.many else _FEW_COMPONENTS
        for j in order:  # the rest adds little to what is corrected, and is in the answer itself
            components += self.fits[j].shares.shape[1]
            if total >= _MOST_OF_A_REFERENCE or (total > 0.0 and components > most):
                shares[j] = 0.0
            total += shares[j]
        return self._law(shares / shares.sum(), [-1 if fold is None else fold], _SMALLEST_COMPONENT)

    def law(self, shares: np.ndarray, single: int | None = None, share: float = 0.0) -> GaussianMixture:
        """The mixture of all mixtures with these shares: each the mean of the fits to all samples and to the folds [Breiman1996].

        What one fit owes to the accidents of its samples and of its start, the mean does not. A ``single`` one may have a ``share`` of the
        whole, as it was fitted to all samples.
        """
        used = np.flatnonzero(shares >= _SMALLEST_SHARE)
        each = sum(self.fits[j].shares.shape[1] for j in used)
        worth = [k for k, fold in enumerate(self.folds) if fold.mass <= 1.0 - _MOST_OF_A_SAMPLE]
        count = int(np.clip(_MOST_COMPONENTS // max(each, 1), 1, _MOST_BAGS)) - 1
        return self._law(shares, [-1, *worth[:count]], 0.1 * _SMALLEST_COMPONENT, single, share)

    def _law(
        self, shares: np.ndarray, rows: Sequence[int], smallest: float, single: int | None = None, share: float = 0.0
    ) -> GaussianMixture:
        wide = self.wide
        kept = (1.0 - share) * np.where(shares >= _SMALLEST_SHARE, shares, 0.0)
        kept[wide] = max((1.0 - share) * shares[wide], self.least)
        members = [(int(j), k, float(kept[j]) / len(rows)) for j in np.flatnonzero(kept) for k in rows]
        if single is not None:
            members.append((single, -1, share))
        parts = [(part * self.fits[j].shares[k], self.fits[j].means[k], self.fits[j].covariances[k], j == wide) for j, k, part in members]
        weights, means, covariances = (np.concatenate([part[i] for part in parts]) for i in range(3))
        always = np.concatenate([np.full(part[0].shape, part[3]) for part in parts])
        keep = (weights > smallest * weights.sum()) | always
        return GaussianMixture(weights[keep], means[keep], covariances[keep])


def warn_if_tied(points: np.ndarray, weights: np.ndarray, names: Sequence[str] | None = None) -> None:
    """Say so when the samples, in the units of their features, lie on a plane: their likelihood has no bound."""
    centred = points - weights @ points
    moves = np.any(points != points[0], axis=0)
    moving, centred = int(moves.sum()), centred[:, moves]
    values, Q = np.linalg.eigh((centred * weights[:, None]).T @ centred) if moving else (np.ones(1), np.ones((1, 1)))
    flat = values < _FLAT * max(values[-1], 1e-300)
    if flat.any() and points.shape[0] > 1:
        tied = np.flatnonzero(moves)[np.abs(Q[:, flat]).max(axis=1) > _TIED]
        which = ", ".join([said(int(k), names) for k in tied[:_MOST_SAID]] + ["…"] * (tied.size > _MOST_SAID))
        why = f"{which} are tied" if centred.shape[0] > moving else "there are few samples"
        message = f"the samples leave {int(flat.sum())} of {moving} directions without spread ({why}): they have no density"
        warnings.warn(f"{message}; the answer has the width of its covariance floors there", UserWarning, stacklevel=6)
