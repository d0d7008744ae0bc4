"""The reference measure of a fit, which the sum of squares corrects: a stack of Gaussian mixtures,
a normal distribution, or what is given.

A density that corrects a parametric start keeps what the start knows, and needs samples only for
what it does not [Hjort1995].

The stack has many candidates, weighted by how well they predict held-out samples: mixtures of
several sizes and covariance floors, Student distributions, and a very wide distribution that no
sample is far from. Their weights maximize the held-out likelihood with a Dirichlet prior: a concave
problem, solved to a certified gap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.choose.bandwidth import FARTHEST, Units
from ksos.choose.mixtures import (
    MOST_FULL,
    Mixtures,
    Samples,
    mixture_path,
    seeds,
    student_scales,
)
from ksos.data import Fold, Moments, held_out_rows, held_out_weights, random_folds
from ksos.ground import Run, warn_caller
from ksos.measures import GaussianMixture, Measure, Normal, merged_cells

# At most a quarter of the samples. The candidates were chosen with other seeds of
# benchmarks/quality than those of its page: six sizes and one start cost 0.01 nats in the mean.
SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 20, 32)  # components; six cost 0.17 nats on iris and diabetes
FLOORS = (3e-2, 3e-3, 1e-6)  # of variances, relative, chosen as SIZES; 1e-6 keeps them invertible
_STARTS = 2  # Starts of a path of floors: see the sizes.
_MANY = 250  # Samples: from here on, the smallest floor is also fitted from k-means ...
FEW_FLOOR = 1e-1  # below _MANY samples: without it and shared covariances, wine loses 0.05 nats
_MOST_SHARED = 8  # components of one covariance: with few samples larger fits gain little for time
_DIRECT_STARTS = 3  # k-means: one costs 0.003 nats in benchmarks/quality's mean, 0.15 on a table
_DIRECT_SIZES = (2, 3, 4, 5, 6, 7, 8, 10, 12)  # of further starts: finer where many win
FREEDOM = (2.5, 5.0, 10.0)  # of Student candidates: below 2 there is no variance, above 10 no tail
_SAMPLES_PER_COMPONENT = 4  # fewer for each component leave their means to chance
# Widths of the wide candidate, in standard deviations: a sample up to 2,000 of them away costs less
# than 20 nats. The weights fall as the squares of the widths, as tails of a Student with ν = 2 do.
LADDER = 3.0 ** np.arange(1, 7)
_SHARED = 1e-9  # A variance below this is that of one value ...
_PAIR = 2.5  # ... which more than two samples have not by chance.
_KAPPA = 1.0  # samples that the prior counts as: 4 costs 0.001 nats in benchmarks/quality, 12 0.003
_GAP = 1e-4  # Nats per sample: far below what held-out samples can tell apart.
_NEWTON_STEPS = 60  # Newton converges quadratically: a dozen are enough, the rest is for bad luck
_SMALLEST = 0.01  # weight below which a candidate goes, so that questions to the density cost less
_MOST_BAGS = 6  # Fits per candidate: that to all samples, and those to five folds.
_MOST_COMPONENTS = 1000  # of a reference before merging, which takes the square of their number
_MOST_ENTRIES = 1 << 22  # Numbers in the covariances of a reference: 32 MB.
MERGED = 0.01  # Nats: the bound on the divergence; held-out scores change by at most 0.001.
_FEW_SIZES = (1, 2, 3, 5, 8, 12, 20)  # of a single fit's stack, which takes 1 s, a search's several
_MOST_SAMPLES = 2000  # as above
_FOLDS = 5  # as above
_LEAST_EIGENVALUE = 1e-8  # of a correlation matrix: its inverse then keeps half of the digits
_LEAST_OF_FEW = 0.1  # the same where few samples make it chance which directions have no variance


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

    >>> log_q = np.log([[0.2, 0.1], [0.4, 0.1], [0.1, 0.2]])
    >>> w, gap = certified_weights(log_q, np.ones(3) / 3, np.ones(2))
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


class Fit(NamedTuple):
    """One candidate: its fits to all weightings, the coordinates y = x·axes, (d, d), that it was
    fitted in, and its covariance floor, None if it is no mixture of EM; ``shared``: whether its
    components have one covariance.
    """

    mixtures: Mixtures
    axes: np.ndarray | None = None
    floor: np.ndarray | None = None
    shared: bool = False


class Step(NamedTuple):
    """Candidates that are fitted together: one for each floor, from the same start. ``shared``:
    whether the components have one covariance. ``column``: the categorical column whose levels are
    far apart at the start.
    """

    components: int
    start: int
    floors: Sequence[float] = FLOORS
    shared: bool = False
    column: int | None = None


class Stack:
    """Candidates fitted to all folds and to all samples, and their densities at held-out samples.

    ``points`` (n, d) are the distinct samples, ``weights`` their masses. With more features than a
    full covariance bears, candidates have diagonal covariances along the features and along the
    principal axes, the latter being full matrices of few numbers. ``held_out`` has the
    log-densities (held-out samples, fold by fold; candidates) in the units. ``rounds`` is how often
    the plan is followed.
    """

    rounds = 1
    codes: Any = None
    counts: tuple[int, ...] = ()

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
        self.masses = np.stack([*training_masses(folds, n), weights])
        coordinates: list[tuple[np.ndarray, np.ndarray | None]] = [(y, None)]
        # axes of hardly more samples than features would know directions in which nothing varies
        if self.codes is None and MOST_FULL < d <= n // _SAMPLES_PER_COMPONENT:
            moves, axes = np.flatnonzero(~units.still), np.eye(d)
            centered = (y - weights @ y)[:, moves]
            scatter = (centered * weights[:, None]).T @ centered
            axes[np.ix_(moves, moves)] = np.linalg.eigh(scatter)[1]
            coordinates.append((y @ axes, axes))
        every = np.arange(n)
        self.samples = [(self._samples(z, every), axes) for z, axes in coordinates]
        self.unseen = [[self._samples(z, fold.test) for fold in folds] for z, _ in coordinates]
        self.fits: list[Fit] = []
        self.rows, self.held_out_weights = held_out_rows(folds), held_out_weights(folds)
        self.held_out = np.empty((self.held_out_weights.size, 0))

    # Some rows, in the units.
    def _samples(self, y: np.ndarray, rows: np.ndarray) -> Samples:
        if self.codes is None:
            return Samples.of(y[rows])
        return Samples.of_cells(y[rows], self.codes[rows], self.counts)

    @property
    def plan(self) -> list[Step]:
        """What :meth:`fit` fits, one step after the other.

        A path of descending floors forgets components narrower than the largest floor. With many
        samples, the smallest floor is fitted from k-means as well. With few, a larger floor takes
        part, and components that share one covariance: fewer numbers to fit.
        """
        steps = [Step(c, k) for k in range(_STARTS) for c in self.sizes if c > 1 or k == 0]
        several = [c for c in self.sizes if c > 1]
        if float(np.sum(self.masses[-1] ** 2)) >= 1.0 / _MANY:
            steps += [Step(c, 0, (FEW_FLOOR,)) for c in several]
            return steps + [Step(c, 0, FLOORS[-1:], True) for c in several if c <= _MOST_SHARED]
        direct = [c for c in _DIRECT_SIZES if c <= max(self.sizes)]
        for start in range(_DIRECT_STARTS):
            these = direct if start else sorted({*direct, *several})
            steps += [Step(c, start, FLOORS[-1:]) for c in these]
        return steps

    def fit(self, begin: Callable[[str], None] = lambda _: None) -> None:
        """Fit step after step. When the time is up only the first one. ``begin`` is
        called with each.
        """
        centers: dict[tuple[int, int, int, int | None], np.ndarray] = {}
        for components, start, floors, shared, column in self.plan:
            begin(f"mixtures of {components} component{'s' * (components > 1)}")
            if self.fits and Run.current().over:
                return
            fits: list[Fit] = []
            used = [np.where(self.units.still, 1.0, floor) for floor in floors]
            for which, (complete, axes) in enumerate(self.samples):
                found: list[list[Mixtures]] = []
                for each, (samples, masses) in enumerate(self._weightings(complete)):
                    begun = samples if column is None else samples.apart(column)
                    key = (which, each, start, column)
                    if key not in centers:
                        centers[key] = seeds(begun.points, masses, max(self.sizes), start)
                    first, several = centers[key][:, :components], components > 1
                    path = mixture_path(begun, masses, first, used, shared=shared)
                    found.append([] if several else self._tails(samples, masses, axes, used[-1]))
                    origins: list[Any] = [None] * len(found[-1])
                    for mixtures, floor in zip(path, used, strict=True):
                        one = self._without_spikes(mixtures, samples, masses, floor)
                        found[-1].append(one.smoothed(samples, masses))
                        origins.append(floor)
                joined = map(Mixtures.joined, zip(*found, strict=True))
                fits += [Fit(m, axes, o, shared) for m, o in zip(joined, origins, strict=True)]
            columns = [self._unseen(fit) for fit in fits]
            self.held_out = np.column_stack([self.held_out, *columns])
            self.fits += fits

    # The samples that fits are made to, and the masses of the weightings of each.
    def _weightings(self, samples: Samples) -> list[tuple[Samples, np.ndarray]]:
        return [(samples, self.masses)]

    # Student distributions of the variance of the samples, and once the wide one: normals of
    # several scales around one mean, with levels that depend on nothing.
    def _tails(
        self, samples: Samples, masses: np.ndarray, axes: np.ndarray | None, floor: np.ndarray
    ) -> list[Mixtures]:
        (one,) = mixture_path(samples, masses, np.zeros((masses.shape[0], 1), dtype=int), [floor])
        wide = LADDER**-2.0 / np.sum(LADDER**-2.0)
        fits = [Mixtures.of_scales(wide, LADDER, one)] if axes is None else []
        for freedom in FREEDOM:
            shares, scales = student_scales(freedom)
            scales = scales * np.sqrt((freedom - 2.0) / freedom)
            fits.append(Mixtures.of_scales(shares, scales, one))
        return fits

    # Widen components that hold too few samples for a covariance, except for a value that three
    # share.
    #
    # Held-out samples hardly ever meet a spike on a lone row, so they do not speak against it.
    def _without_spikes(
        self, mixtures: Mixtures, samples: Samples, masses: np.ndarray, floor: np.ndarray
    ) -> Mixtures:
        places = mixtures.places(samples, masses)[:, :, None]
        variances = np.diagonal(mixtures.covariances, axis1=2, axis2=3)
        shared = (variances - floor < _SHARED) & (places > _PAIR)
        lone = (places < samples.dimension + 1) & ~shared
        added = np.where(lone, max(FLOORS), 0.0)[..., None] * np.eye(samples.dimension)
        return mixtures._replace(covariances=mixtures.covariances + added)

    # The log-densities of held-out samples, fold by fold.
    def _unseen(self, fit: Fit) -> np.ndarray:
        parts = [np.empty(0)]
        for k, samples in enumerate(self.unseen[fit.axes is not None]):
            own = Mixtures(*(part[k : k + 1] for part in fit.mixtures))
            parts.append(own.log_densities(samples)[0])
        return np.concatenate(parts)

    @property
    def prior(self) -> np.ndarray:
        """π: the fewer components, the more weight before anything is known."""
        return np.array([1.0 / fit.mixtures.shares.shape[1] for fit in self.fits])

    def solve(self) -> None:
        """Certify the weights, drop candidates of less than 1%, and certify those of the others."""
        self.kept = np.arange(len(self.fits))
        self.weights, self.gap = self._weights()
        keep = (self.weights >= _SMALLEST) | (self.kept == 0)  # the wide one always stays
        if not keep.all():
            self.kept, start = self.kept[keep], self.weights[keep] / self.weights[keep].sum()
            self.weights, self.gap = self._weights(start)

    # From all held-out samples but some.
    def _weights(
        self, start: np.ndarray | None = None, without: slice = slice(0)
    ) -> tuple[np.ndarray, float]:
        prior, rows = self.prior[self.kept], np.ones(self.held_out.shape[0], dtype=bool)
        rows[without] = False
        if not rows.any():
            return prior / prior.sum(), 0.0
        weights = self.held_out_weights[rows] / self.held_out_weights[rows].sum()
        return certified_weights(self.held_out[rows][:, self.kept], weights, prior, start)

    def of_fold(self, k: int) -> Any:
        """The stack of the fits without fold k, with weights from the held-out samples of the other
        folds.
        """
        without = self.rows[k] if len(self.folds) > 1 else slice(0)
        return self._mixture(self._weights(self.weights, without)[0], [k])

    @property
    def whole(self) -> Any:
        """The stack of all samples: each candidate is the mean of its fits to all and to the folds
        [Breiman1996].

        The mean does not have what one fit owes to the accidents of its samples and of its start. A
        fold that trains on less than three quarters of the mass takes no part. Components that are
        nearly the same are merged [Runnalls2007], but for the wide ones, which no sample may be far
        from.
        """
        each = sum(self.fits[j].mixtures.shares.shape[1] for j in self.kept)
        d = self.samples[0][0].dimension
        most = min(_MOST_COMPONENTS, _MOST_ENTRIES // max(d, 1) ** 2) // each
        large = [k for k, fold in enumerate(self.folds) if fold.mass <= 0.25]
        bags = [-1, *large[: int(np.clip(most, 1, _MOST_BAGS)) - 1]]
        weights, means, covariances, chances = self._components(self.weights, bags)
        parts = merged_cells(weights, means, covariances, chances, MERGED, LADDER.size)
        return self._in_data(*parts)

    # The stack of the fits to some of the weightings.
    def _mixture(self, weights: np.ndarray, rows: Sequence[int]) -> Any:
        return self._in_data(*self._components(weights, rows))

    # In the coordinates of the data.
    def _in_data(
        self, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, chances: np.ndarray
    ) -> Any:
        scale = self.units.scale
        means, covariances = means * scale, covariances * (scale[:, None] * scale)
        return GaussianMixture(weights, self.units.shift + means, covariances)

    # Weights, means, covariances and levels, in the units.
    def _components(self, weights: np.ndarray, rows: Sequence[int]) -> list[np.ndarray]:
        parts = []
        for j, weight in zip(self.kept, weights, strict=True):
            mixtures, axes, *_ = self.fits[j]
            own = rows if j else rows[:1]  # the wide candidate, the first one, hardly differs
            for k in own:
                shares, means, covariances, chances = (part[k] for part in mixtures)
                if axes is not None:
                    means, covariances = means @ axes.T, axes @ covariances @ axes.T
                shares = weight / len(own) * shares / shares.sum()
                parts.append((shares, means, covariances, chances))
        return [np.concatenate(part) for part in zip(*parts, strict=True)]


def training_masses(folds: Sequence[Fold], n: int) -> np.ndarray:
    """The masses of ``n`` samples in each fold, (folds, n): zero for those held out."""
    masses = np.zeros((len(folds), n))
    for row, fold in zip(masses, folds, strict=True):
        row[fold.train] = fold.train_weights
    return masses


def require_reference(reference: Any, measure: Any) -> None:
    """Raise on a ``reference`` that cannot be one, before the data are looked at."""
    if measure is not None:
        raise ValueError(
            f"reference={reference!r} and measure={measure!r} are both the measure of the density;"
            " give one of them"
        )
    named = isinstance(reference, str)
    if (named and reference not in ("normal", "mixture")) or not (named or _is_mixture(reference)):
        raise (ValueError if named else TypeError)(
            'reference must be "normal", "mixture", a GaussianMixture or Normal of ksos.measures, '
            f"or a fitted sklearn.mixture.GaussianMixture; got {reference!r}"
        )


def as_reference(
    reference: Any,
    points: np.ndarray,
    weights: np.ndarray,
    names: Any = None,
    moments: Moments | None = None,
) -> Measure:
    """The measure that ``reference`` stands for, fitted to distinct ``points`` with ``weights``
    (sum 1) if it is a name.

    ``moments`` are those of all samples, if the points are a part of them.
    """
    if isinstance(reference, str):
        if reference == "normal":
            return _fit_normal(points, weights, names, moments)
        return _fit_mixture(points, weights, names)
    given = isinstance(reference, Measure)
    found: Measure = reference if given else GaussianMixture.from_sklearn(reference)
    found.check_features(points.shape[1])
    return found.for_features(points.shape[1])


# Whether it is a normal distribution, or a mixture of them, of ksos or of scikit-learn.
def _is_mixture(reference: Any) -> bool:
    if isinstance(reference, Measure):
        return reference.normals(reference.n_features or 1) is not None
    from sklearn.mixture import GaussianMixture as FittedMixture  # heavy, and needed only here

    return isinstance(reference, FittedMixture)


# N(mean, covariance) of the samples, or of all of them if their ``moments`` are known.
#
# The correlation matrix gets eigenvalues of at least a floor, which decides only if samples or
# features leave a direction without variance. Then there is a warning.
def _fit_normal(
    points: np.ndarray, weights: np.ndarray, names: Any, moments: Moments | None
) -> Normal:
    d, size = points.shape[1], 1.0 / float(weights @ weights)
    units = Units.of(points, weights, np.random.default_rng(0), names)
    y = units.of_points(points)
    mean = weights @ y
    S = ((y - mean) * weights[:, None]).T @ (y - mean)
    if moments is not None:
        mean = units.of_points(moments.mean)
        S = moments.covariance / (units.scale[:, None] * units.scale)
    deviation = np.where(units.still, 1.0, np.sqrt(np.diagonal(S)))
    S = S / (deviation[:, None] * deviation) + np.diag(np.where(units.still, 1.0, 0.0))
    values, Q = np.linalg.eigh(S)
    enough = size >= 2 * (d + 1)
    floor = _LEAST_EIGENVALUE if enough else _LEAST_OF_FEW
    if values[0] < floor:
        few = f"there are few samples ({size:.3g}) for {d} features"
        warn_caller(
            f"reference='normal': {'features are correlated without error' if enough else few}; "
            "the covariance has a floor where they have no variance"
        )
    scale = deviation * units.scale
    covariance = (Q * np.maximum(values, floor)) @ Q.T * scale[:, None] * scale
    return Normal(units.shift + units.scale * mean, 0.5 * (covariance + covariance.T))


# A stack of mixtures, weighted by held-out samples; of more than 2,000 samples, a subset, always
# the same.
def _fit_mixture(points: np.ndarray, weights: np.ndarray, names: Any) -> GaussianMixture:
    rng, n = np.random.default_rng(0), points.shape[0]  # a default must not depend on chance
    if n > _MOST_SAMPLES:
        chosen = np.sort(rng.choice(n, _MOST_SAMPLES, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    folds = random_folds(weights, min(_FOLDS, points.shape[0]), rng) if n > 1 else []
    stack = Stack(points, weights, folds, Units.of(points, weights, rng, names), _FEW_SIZES)
    stack.fit()
    stack.solve()
    return stack.whole
