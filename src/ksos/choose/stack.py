"""A stack of Gaussian mixtures: many candidates, weighted by how well they predict held-out
samples.

The stack is the reference ρ that a sum of squares corrects. Its candidates are mixtures of several
sizes and covariance floors, Student distributions, and a very wide distribution that no sample is
far from. Their weights maximize the held-out likelihood with a Dirichlet prior: a concave problem,
solved to a certified gap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ksos.choose.mixtures import (
    MOST_FULL,
    Mixtures,
    Samples,
    mixture_path,
    moments,
    seeds,
    student,
    student_scales,
)
from ksos.choose.units import FARTHEST, Units
from ksos.data.samples import Fold, held_out_rows, held_out_weights
from ksos.ground.deadline import Deadline
from ksos.measures import GaussianMixture, merged

__all__ = ["SIZES", "Stack", "certified_weights"]

# The candidates were chosen with other seeds of benchmarks/quality than those of its page: six
# sizes
# and one start instead of ten and two cost 0.01 nats in the mean and 0.17 on iris and diabetes.
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 20, 32)
"""Components; at most a quarter of the samples."""
FLOORS = (3e-2, 3e-3, 1e-6)
"""Added to the variances, in units of each feature's variance, one after the other."""
_STARTS = 2
_MANY, _FEW_FLOOR, _MOST_SHARED = 250, 1e-1, 8
"""From so many samples on, the smallest floor is also fitted from k-means. With fewer, a larger one
takes part, and up to 8 components with one covariance: without these, wine loses 0.05 nats.
"""
_DIRECT_STARTS, _DIRECT_SIZES = 3, (2, 3, 4, 5, 6, 7, 8, 10, 12)
"""Of the former. One start costs 0.003 nats in the mean of benchmarks/quality, 0.15 on a table."""
_FREEDOM = (2.5, 5.0, 10.0)  # of Student candidates: below 2 there is no variance, above 10 no tail
_SAMPLES_PER_COMPONENT = 4
_LADDER = 3.0 ** np.arange(1, 7)
"""Widths of the wide candidate, in standard deviations: a sample up to 2,000 of them away costs
less than 20 nats. The weights fall as the squares of the widths, as tails of a Student with ν = 2
do.
"""
_SHARED, _PAIR = 1e-9, 2.5  # a variance that is that of one value; more samples than two by chance
_KAPPA = 1.0
"""Strength of the prior, in samples. 4 costs 0.001 nats in the mean of benchmarks/quality, 12 costs
0.003; without a prior, candidates that few held-out samples favor by chance would take over."""
_GAP = 1e-4
"""Nats per sample: far below what held-out samples can tell apart."""
_NEWTON_STEPS = 60  # quadratic convergence: a dozen are enough, the rest is for bad luck
_SMALLEST = 0.01  # candidates of less weight go, and the weights of the others are solved for again
_MOST_BAGS = 6  # fits per candidate: that to all samples, and those to five folds
_MOST_COMPONENTS, _MOST_ENTRIES = 1000, 1 << 22
"""Of a reference before it is merged, and numbers in its covariances: 32 MB."""
_MERGED = 0.01  # nats: the bound on the divergence; held-out scores change by at most 0.001


def certified_weights(
    log_q: np.ndarray,
    sample_weights: np.ndarray,
    prior: np.ndarray,
    start: np.ndarray | None = None,
) -> tuple[np.ndarray, float]:
    r"""Weights of a stack that maximize Σ_i a_i log Σ_j w_j q_j(x_i) + (κ/n) Σ_j π_j log w_j, and
    their gap.

    ``log_q`` (samples, candidates) are held-out log-densities, n = 1/Σa². The objective is concave,
    so with its gradient g the optimum is at most max_j g_j − Σ_j w_j g_j better. Newton's method on
    the simplex, with steps that keep every weight positive, takes that below 1e-4 nats.
    [Wolpert1992]

    >>> w, gap = certified_weights(np.log([[0.2, 0.1], [0.4, 0.1], [0.1, 0.2]]), np.ones(3) / 3, np.ones(2))
    >>> w.round(2).tolist(), gap <= 1e-4
    ([0.68, 0.32], True)
    """
    n, pi = 1.0 / float(sample_weights @ sample_weights), prior / prior.sum()
    peak = log_q.max(axis=1, keepdims=True)
    # a sample that no candidate can see, with a density of zero under all, tells nothing about them
    q = np.exp(np.where(np.isfinite(peak), log_q - np.where(np.isfinite(peak), peak, 0.0), 0.0))
    w, strength = pi if start is None else start, _KAPPA / n * pi

    def value(w: np.ndarray) -> float:
        return float(sample_weights @ np.log(q @ w) + strength @ np.log(w))

    gap = np.inf
    for _ in range(_NEWTON_STEPS):
        p = q @ w
        scaled = q * (np.sqrt(sample_weights) / p)[:, None]
        g = np.sqrt(sample_weights) @ scaled + strength / w
        gap = float(g.max() - w @ g)
        if gap <= _GAP:
            break
        H = scaled.T @ scaled
        H[np.diag_indices_from(H)] += strength / w**2
        solved = np.linalg.solve(H, np.stack([g, np.ones_like(g)], axis=1))
        step = solved[:, 0] - solved[:, 1] * (solved[:, 0].sum() / solved[:, 1].sum())
        size = min(1.0, 0.95 / max(float(np.max(-step / w)), 1e-300))
        before, rise = value(w), float(g @ step)
        while value(w + size * step) < before + 1e-4 * size * rise and size > 1e-10:
            size *= 0.5
        w = w + size * step
        w = w / w.sum()
    return w, max(gap, 0.0)


class _Fit(NamedTuple):
    """One candidate: its fits to all weightings."""

    mixtures: Mixtures
    axes: np.ndarray | None = None
    """(d, d): the coordinates y = x·axes that it was fitted in."""


class _Step(NamedTuple):
    """Candidates that are fitted together: one for each floor, from the same start."""

    components: int
    start: int
    floors: Sequence[float] = FLOORS
    shared: bool = False
    """Whether the components have one covariance."""

    @property
    def cost(self) -> float:
        """Proportional to the time of a step of expectation–maximization."""
        return float(self.components * len(self.floors))


class Stack:
    """Candidates fitted to all folds and to all samples, and their densities at held-out samples.

    ``points`` (n, d) are the distinct samples, ``weights`` their masses. With more features than a
    full covariance bears, candidates have diagonal covariances along the features and along the
    principal axes, the latter being full matrices of few numbers.
    """

    def __init__(
        self,
        points: np.ndarray,
        weights: np.ndarray,
        folds: Sequence[Fold],
        units: Units,
        sizes: Sequence[int] = SIZES,
    ) -> None:
        self.units, self.folds = units, folds
        y = np.clip(units.of_points(points), -FARTHEST, FARTHEST)
        n, d = points.shape
        self.sizes = [c for c in sizes if c <= max(1, n // _SAMPLES_PER_COMPONENT)]
        self.masses = np.zeros((len(folds) + 1, n))
        for row, fold in zip(self.masses, folds, strict=False):
            row[fold.train] = fold.train_weights
        self.masses[-1] = weights
        self.samples: list[tuple[Samples, np.ndarray | None]] = [(Samples.of(y), None)]
        # axes of hardly more samples than features would know which directions nobody varies in
        if MOST_FULL < d <= n // _SAMPLES_PER_COMPONENT:
            moves, axes = np.flatnonzero(~units.still), np.eye(d)
            centered = (y - weights @ y)[:, moves]
            axes[np.ix_(moves, moves)] = np.linalg.eigh((centered * weights[:, None]).T @ centered)[
                1
            ]
            self.samples.append((Samples.of(y @ axes), axes))
        self.fits: list[_Fit] = []
        self.rows, self.held_out_weights = held_out_rows(folds), held_out_weights(folds)
        self.held_out = np.empty((self.held_out_weights.size, 0))
        """Log-densities (held-out samples, fold by fold; candidates) in the units."""

    @property
    def plan(self) -> list[_Step]:
        """What :meth:`fit` fits, one step after the other.

        A path of descending floors forgets components narrower than the largest floor. With many
        samples, the smallest floor is fitted from k-means as well. With few, a larger floor takes
        part, and components that share one covariance: fewer numbers to fit.
        """
        steps = [_Step(c, k) for k in range(_STARTS) for c in self.sizes if c > 1 or k == 0]
        if float(np.sum(self.masses[-1] ** 2)) >= 1.0 / _MANY:
            several = [c for c in self.sizes if c > 1]
            steps += [_Step(c, 0, (_FEW_FLOOR,)) for c in several]
            return steps + [_Step(c, 0, FLOORS[-1:], True) for c in several if c <= _MOST_SHARED]
        direct = [c for c in _DIRECT_SIZES if c <= max(self.sizes)]
        every = sorted({*direct, *self.sizes} - {1})
        for start in range(_DIRECT_STARTS):
            steps += [_Step(c, start, FLOORS[-1:]) for c in (direct if start else every)]
        return steps

    def fit(self, deadline: Deadline) -> Iterator[int]:
        """Fit step after step, yielding the number of candidates; after the deadline only the
        first.
        """
        centers: dict[tuple[int, int], np.ndarray] = {}
        for components, start, floors, shared in self.plan:
            if self.fits and deadline.passed:
                return
            fits: list[_Fit] = []
            for which, (samples, axes) in enumerate(self.samples):
                used = [np.where(self.units.still, 1.0, floor) for floor in floors]
                if components == 1:
                    fits += self._tails(samples, axes, used[-1])
                if (which, start) not in centers:
                    every = seeds(samples.points, self.masses, max(self.sizes), start)
                    centers[which, start] = every
                first = centers[which, start][:, :components]
                path = mixture_path(samples, self.masses, first, used, deadline, shared)
                fits += [
                    _Fit(self._without_spikes(mixtures, samples, floor), axes)
                    for mixtures, floor in zip(path, used, strict=True)
                ]
            columns = [self._unseen(fit) for fit in fits]
            self.held_out = np.column_stack([self.held_out, *columns])
            self.fits += fits
            yield len(self.fits)

    def _tails(self, samples: Samples, axes: np.ndarray | None, floor: np.ndarray) -> list[_Fit]:
        """Student distributions, and once the wide one: normals of several scales.

        One of them is what n normal samples of unknown mean and covariance predict for the next: a
        Student with n − d degrees of freedom and the sample covariance times (n + 1)/(n − d).
        """
        fits = [_Fit(student(samples, self.masses, nu, floor), axes) for nu in _FREEDOM]
        mean, covariance = moments(samples, self.masses, floor)
        n = 1.0 / float(self.masses[-1] @ self.masses[-1])
        freedom = max(n - mean.shape[1], _FREEDOM[0])
        stretched = (n + 1.0) / freedom * covariance
        fits.append(_Fit(Mixtures.of_scales(*student_scales(freedom), mean, stretched), axes))
        if axes is None:
            shares = _LADDER**-2.0 / np.sum(_LADDER**-2.0)
            fits.insert(0, _Fit(Mixtures.of_scales(shares, _LADDER, mean, covariance)))
        return fits

    def _without_spikes(self, mixtures: Mixtures, samples: Samples, floor: np.ndarray) -> Mixtures:
        """Widen components that hold too few samples for a covariance, except for a value that
        three share.

        Held-out samples hardly ever meet a spike on a lone row, so they do not speak against it.
        """
        places = mixtures.places(samples, self.masses)[:, :, None]
        variances = np.diagonal(mixtures.covariances, axis1=2, axis2=3)
        shared = (variances - floor < _SHARED) & (places > _PAIR)
        lone = (places < samples.points.shape[1] + 1) & ~shared
        return mixtures.with_variances(np.where(lone, max(FLOORS), 0.0))

    def _unseen(self, fit: _Fit) -> np.ndarray:
        samples = self.samples[fit.axes is not None][0]
        logs = fit.mixtures.log_densities(samples)
        parts = (logs[k, fold.test] for k, fold in enumerate(self.folds))
        return np.concatenate([np.empty(0), *parts])

    @property
    def prior(self) -> np.ndarray:
        """π: the fewer components, the more weight before anything is known."""
        return np.array([1.0 / fit.mixtures.shares.shape[1] for fit in self.fits])

    def solve(self) -> None:
        """Certify the weights, drop candidates of less than 1%, and certify those of the others."""
        self.kept, everything = (
            np.arange(len(self.fits)),
            np.ones(self.held_out.shape[0], dtype=bool),
        )
        self.weights, self.gap = self._weights(everything, None)
        keep = (self.weights >= _SMALLEST) | (self.kept == 0)  # the wide one always stays
        if not keep.all():
            self.kept, start = self.kept[keep], self.weights[keep] / self.weights[keep].sum()
            self.weights, self.gap = self._weights(everything, start)

    def _weights(self, rows: np.ndarray, start: np.ndarray | None) -> tuple[np.ndarray, float]:
        prior = self.prior[self.kept]
        if not rows.any():
            return prior / prior.sum(), 0.0
        weights = self.held_out_weights[rows] / self.held_out_weights[rows].sum()
        return certified_weights(self.held_out[rows][:, self.kept], weights, prior, start)

    def of_fold(self, k: int) -> GaussianMixture:
        """The stack of the fits without fold k, with weights from the held-out samples of the other
        folds.
        """
        others = np.ones(self.held_out.shape[0], dtype=bool)
        if len(self.folds) > 1:
            others[self.rows[k]] = False
        weights = self._weights(others, self.weights)[0]
        return self._mixture(weights, [k])

    @property
    def whole(self) -> GaussianMixture:
        """The stack of all samples: each candidate is the mean of its fits to all and to the folds
        [Breiman1996].

        The mean does not have what one fit owes to the accidents of its samples and of its start. A
        fold that trains on less than three quarters of the mass takes no part. Components that are
        nearly the same are merged [Runnalls2007], but for the wide ones, which no sample may be far
        from.
        """
        each = sum(self.fits[j].mixtures.shares.shape[1] for j in self.kept)
        d = self.samples[0][0].points.shape[1]
        most = min(_MOST_COMPONENTS, _MOST_ENTRIES // d**2) // each
        worth = [k for k, fold in enumerate(self.folds) if fold.mass <= 0.25]
        bags = [-1, *worth[: int(np.clip(most, 1, _MOST_BAGS)) - 1]]
        return merged(self._mixture(self.weights, bags), _MERGED, untouched=_LADDER.size)

    def _mixture(self, weights: np.ndarray, rows: Sequence[int]) -> GaussianMixture:
        parts = []
        for j, weight in zip(self.kept, weights, strict=True):
            mixtures, axes = self.fits[j]
            own = rows if j else rows[:1]  # the wide candidate, the first one, hardly differs
            for k in own:
                shares = mixtures.shares[k] / mixtures.shares[k].sum()
                means, covariances = mixtures.means[k], mixtures.covariances[k]
                if axes is not None:
                    means, covariances = means @ axes.T, axes @ covariances @ axes.T
                parts.append((weight / len(own) * shares, means, covariances))
        found = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return self.units.to_data(GaussianMixture(*found))
