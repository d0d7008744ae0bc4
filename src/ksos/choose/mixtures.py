"""Gaussian mixtures by expectation–maximization [Dempster1977], for many weightings of the same
samples at once.

Cross-validation needs the same mixture once per fold and once for all samples: the same points with
other weights, zero for those held out. The log-density of a normal distribution is linear in
φ(x) = (1, x_i, x_i x_j), so one step of all fits is two products with the (n, q) matrix Φ of φ:
Φ·Θ gives the exponents, and RᵀΦ, with the responsibilities R, the new moments. Samples that are
held out are evaluated on the way.

Rows may have categorical cells, and any of their cells may be missing. The logarithm of the
probability of a level is linear in columns of zeros and ones, and zeros alone are a missing cell.
Of a missing numeric cell, a component expects a linear function of the others: rows with the same
cells missing share it, so that moments of what is observed are all that a step needs of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammaincinv, gammaln

from ksos.ground import Run

_TOLERANCE = 1e-3  # nats per sample and step: changes no cell of benchmarks/quality by 0.001 nats
_STEPS = 100  # At that tolerance, no fit of benchmarks/quality takes as many steps.
_LLOYD_STEPS = 10  # K-means only starts EM: more steps change no start by a visible amount
_CANDIDATES = 3  # of k-means++ per center: 2 + log(centers), as scikit-learn, for three centers
_EMPTY = 1e-10  # of the mass: a component with less keeps its place, since its moments are rounding
_APART = 10.0  # Standard deviations: levels that k-means does not put together.
_SMOOTHING = (1.0,)  # rows that count for the levels of all components in those of each, in EM
_SMOOTHINGS = tuple(
    10.0 ** np.arange(-1.0, 2.5, 0.5)
)  # the same at the end, from none to nearly all
_LEAST_ROWS = 0.5  # In rows: a level that no row of a fold has is still possible.
MOST_FULL = 40  # features: beyond, a covariance has over 800 numbers, and fits are diagonal
_SCALES = 8  # normals that are within 0.005 nats of a Student distribution with ν ≥ 2.5
_ENDS = 5e-4  # ... if their scales exclude this probability at each end.


class Cells(NamedTuple):
    """Columns of zeros and ones for all levels of all categorical columns, the numbers of levels,
    and the rows with the same numeric cells: their numbers, these cells, the other ones, and
    samples of these alone. A row may stand several times, with other draws of its missing cells:
    ``starts`` are then the first numbers of each.
    """

    levels: np.ndarray
    counts: tuple[int, ...]
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, Samples]]
    starts: np.ndarray | None = None

    def per_column(self, totals: np.ndarray) -> np.ndarray:
        """The sum over the levels of a column, at each of them; along the last axis."""
        sums = [np.repeat(one.sum(axis=-1, keepdims=True), n, -1) for one, n in self.split(totals)]
        return np.concatenate([totals[..., :0], *sums], axis=-1)

    def split(self, totals: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
        """The last axis, column by column, with the numbers of levels."""
        ends = np.cumsum(self.counts).tolist()
        for end, count in zip(ends, self.counts, strict=True):
            yield totals[..., end - count : end], count


class Samples(NamedTuple):
    """Points (n, d) near the origin with standard deviations near one, φ of them (n, q), and the
    i ≤ j of the products x_i x_j in φ: all pairs, or (i, i) alone.

    With ``cells``, rows may miss some: the points are then coordinates of rows for k-means.
    """

    points: np.ndarray
    features: np.ndarray
    pairs: tuple[np.ndarray, np.ndarray]
    cells: Cells | None = None

    @classmethod
    def of(cls, points: np.ndarray) -> Samples:
        d = points.shape[1]
        first, second = np.triu_indices(d) if d <= MOST_FULL else (np.arange(d), np.arange(d))
        ones = np.ones((points.shape[0], 1))
        features = np.concatenate([ones, points, points[:, first] * points[:, second]], axis=1)
        return cls(points, features, (first, second))

    @classmethod
    def of_cells(cls, u: np.ndarray, c: np.ndarray, counts: tuple[int, ...]) -> Samples:
        """Rows with numeric cells ``u``, NaN where missing, and codes ``c``, −1 where missing."""
        eyes = [np.eye(n + 1)[:, :n] for n in counts]  # the last row, −1, is zeros
        blocks = [eye[codes] for eye, codes in zip(eyes, c.T, strict=True)]
        levels = np.concatenate([np.zeros((u.shape[0], 0)), *blocks], axis=1)
        seen = ~np.isnan(u)
        masks, which = np.unique(seen, axis=0, return_inverse=True)
        parts = []
        for number, mask in enumerate(masks):
            rows, columns = np.flatnonzero(which.ravel() == number), np.flatnonzero(mask)
            others = np.flatnonzero(~mask)
            parts.append((rows, columns, others, cls.of(u[rows][:, columns])))
        points = np.concatenate([np.where(seen, u, 0.0), levels], axis=1)
        return cls(points, np.empty(0), cls.of(u[:1]).pairs, Cells(levels, counts, parts))

    def apart(self, column: int) -> Samples:
        """The same with the levels of a categorical column far apart for k-means."""
        assert self.cells is not None
        scale = np.ones(self.points.shape[1])
        start = self.dimension + sum(self.cells.counts[:column])
        scale[start : start + self.cells.counts[column]] = _APART
        return self._replace(points=self.points * scale)

    def by_row(self, totals: np.ndarray) -> np.ndarray:
        """Sums over the draws of each row, along the first axis."""
        starts = None if self.cells is None else self.cells.starts
        return totals if starts is None else np.add.reduceat(totals, starts)

    @property
    def dimension(self) -> int:
        """How many numeric columns there are."""
        return self.points.shape[1] - (0 if self.cells is None else sum(self.cells.counts))


class Mixtures(NamedTuple):
    """One mixture of c normal distributions for each of B weightings: shares (B, c), means
    (B, c, d) and covariances (B, c, d, d); and the probabilities of all levels of categorical
    columns, (B, c, levels).
    """

    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    chances: np.ndarray = np.zeros((0, 0, 0))

    @classmethod
    def of_scales(cls, shares: np.ndarray, scales: np.ndarray, one: Mixtures) -> Mixtures:
        """Normals of several scales in place of the only one of each weighting."""
        return cls(
            np.tile(shares, (one.means.shape[0], 1)),
            np.repeat(one.means, scales.size, axis=1),
            scales[:, None, None] ** 2 * one.covariances,
            np.repeat(one.chances, scales.size, axis=1),
        )

    @classmethod
    def joined(cls, parts: Sequence[Mixtures]) -> Mixtures:
        """The weightings of several, one after the other."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def smoothed(self, samples: Samples, masses: np.ndarray) -> Mixtures:
        """The same with the levels of every column drawn towards those of all components together,
        as much as makes the levels of the rows likeliest: a column that depends on the component
        keeps that dependence.
        """
        if samples.cells is None:
            return self
        R = self.responsibilities(samples)[0] * masses.T[:, :, None]
        return self._replace(chances=_chances(samples, R, _SMOOTHINGS))

    def places(self, samples: Samples, masses: np.ndarray) -> np.ndarray:
        """How many samples each component holds, (B, c): (Σr)²/Σr² of its responsibilities times
        the ``masses`` (B, n) [Kish1965]. A sample of a large mass counts once.
        """
        R = samples.by_row(self.responsibilities(samples)[0] * masses.T[:, :, None])
        squares = np.einsum("nbc,nbc->bc", R, R)
        return np.asarray(R.sum(axis=0) ** 2 / np.maximum(squares, 1e-300))

    def log_densities(self, samples: Samples) -> np.ndarray:
        """(B, n)."""
        return self.responsibilities(samples)[1].T

    def responsibilities(self, samples: Samples) -> tuple[np.ndarray, np.ndarray]:
        """The share of each component in the density at every point, (n, B, c), and the logarithm
        of that density, (n, B).
        """
        R = _exponents(self, samples)
        peak = R.max(axis=2, keepdims=True)
        R -= peak
        np.exp(R, out=R)
        total = R.sum(axis=2, keepdims=True)
        R /= total
        return R, (np.log(total) + peak)[:, :, 0]


def seeds(points: np.ndarray, masses: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """Row numbers (B, count) of centers by k-means++ [Arthur2007], for each weighting of
    ``masses``.

    Each is the best of three candidates, and the first c of them are the centers of c clusters.
    ``start`` numbers the sequence of random numbers.
    """
    B, n = masses.shape
    squares, rng = np.einsum("ij,ij->i", points, points), np.random.default_rng(start)
    nearest, out = np.full((B, n), np.inf), np.empty((B, count), dtype=int)
    each = np.arange(B)[:, None]
    for k in range(count):
        chances = masses if k == 0 else masses * nearest
        # where there are fewer distinct points than centers, all chances are zero
        chances = np.where(chances.sum(axis=1, keepdims=True) > 0.0, chances, masses)
        cumulative = np.cumsum(chances, axis=1)
        uniform = rng.random(_CANDIDATES) * (1.0 - 1e-12)
        drawn = np.stack([np.searchsorted(c, uniform * c[-1], side="right") for c in cumulative])
        inner = (points[drawn.ravel()] @ points.T).reshape(B, -1, n)
        distances = squares[drawn][:, :, None] - 2.0 * inner + squares
        distances = np.minimum(np.maximum(distances, 0.0), nearest[:, None, :])
        best = np.argmin(np.einsum("bkn,bn->bk", distances, masses), axis=1)[:, None]
        out[:, k], nearest = drawn[each, best][:, 0], distances[each, best][:, 0]
    return out


def mixture_path(
    samples: Samples,
    masses: np.ndarray,
    centers: np.ndarray,
    floors: Sequence[np.ndarray],
    *,
    shared: bool = False,
) -> Iterator[Mixtures]:
    """Mixtures of ``centers.shape[1]`` normals for each weighting, one covariance floor after the
    other.

    ``masses`` is (B, n) with rows of sum one, ``centers`` (B, c) row numbers. A floor (d,) is added
    to the variances in every step. The first fits start at the clusters of k-means, the next ones
    at those before. With ``shared``, all components of a mixture have one covariance.
    """
    R = np.zeros((samples.points.shape[0], *centers.shape))
    labels = _clusters(samples.points, masses, centers)
    np.put_along_axis(R, labels.T[:, :, None], masses.T[:, :, None], axis=2)
    found = _maximized(samples, R, floors[0], shared)
    for floor in floors:
        found = converged(samples, masses, found, floor, shared)
        yield found


def student_scales(freedom: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities and scales of normals that make a Student distribution: √(ν/χ²_ν) times a
    normal.

    The scales are the middles of equal steps of log χ² between the quantiles that exclude 5e-4 on
    each side, with the probability of their step.
    """
    ends = np.log(2.0 * gammaincinv(0.5 * freedom, [_ENDS, 1.0 - _ENDS]))
    edges = np.linspace(ends[0], ends[1], _SCALES + 1)
    inside = gammainc(0.5 * freedom, 0.5 * np.exp(edges[1:-1]))
    scales = np.sqrt(freedom * np.exp(-0.5 * (edges[1:] + edges[:-1])))
    return np.diff(np.r_[0.0, inside, 1.0]), scales


def converged(
    samples: Samples,
    masses: np.ndarray,
    start: Mixtures,
    floor: np.ndarray,
    shared: bool,
    steps: int = _STEPS,
) -> Mixtures:
    """EM until the likelihood of a weighting gains less than the tolerance, or at most so many
    ``steps``; finished weightings stand still.
    """
    found, run = Mixtures(*map(np.array, start)), Run.current()
    active, before = np.arange(masses.shape[0]), np.full(masses.shape[0], -np.inf)
    for _ in range(steps):
        R, logs = Mixtures(*(part[active] for part in found)).responsibilities(samples)
        value = np.einsum("nb,bn->b", logs, masses[active])
        going = value - before[active] > _TOLERANCE
        before[active] = value
        if not going.any() or run.over:
            break
        R, active = R if going.all() else R[:, going], active[going]
        R *= masses[active].T[:, :, None]
        now = Mixtures(*(part[active] for part in found))
        for part, new in zip(found, _maximized(samples, R, floor, shared, now), strict=True):
            part[active] = new
    return found


# Shares, means, covariances and probabilities of levels from responsibilities (n, B, c) times
# masses. Components without mass stay where they were.
def _maximized(
    samples: Samples,
    R: np.ndarray,
    floor: np.ndarray,
    shared: bool = False,
    before: Mixtures | None = None,
) -> Mixtures:
    (_, B, c), d = R.shape, samples.dimension
    complete = samples.cells is None
    G = _sums(samples, R) if complete else _expected_sums(samples, R, before)
    mass = G[:, :, 0]
    empty = mass <= _EMPTY
    G = G / np.where(empty, 1.0, mass)[:, :, None]
    means = G[:, :, 1 : d + 1]
    i, j = samples.pairs
    covariances = np.zeros((B, c, d, d))
    products = G[:, :, d + 1 :] - means[:, :, i] * means[:, :, j]
    covariances[:, :, i, j] = covariances[:, :, j, i] = products
    if shared:
        share = mass / mass.sum(axis=1, keepdims=True)
        covariances[:] = np.einsum("bc,bcij->bij", share, covariances)[:, None]
    diagonal = np.arange(d)
    own = np.maximum(covariances[:, :, diagonal, diagonal], 0.0) + floor
    covariances[:, :, diagonal, diagonal] = own
    if empty.any():
        covariances[empty] = np.eye(d) if before is None else before.covariances[empty]
        means[empty] = 0.0 if before is None else before.means[empty]
    return Mixtures(np.maximum(mass, 1e-300), means, covariances, _chances(samples, R))


# Sums of R·φ(x) in each component, (B, c, q).
def _sums(samples: Samples, R: np.ndarray) -> np.ndarray:
    n, B, c = R.shape
    return np.asarray(R.reshape(n, B * c).T @ samples.features).reshape(B, c, -1)


# Sums of R·E[φ(x) | observed cells] in each component, (B, c, q).
#
# Where a component has not been fitted yet, a missing cell is N(0, 1) without any effect.
def _expected_sums(samples: Samples, R: np.ndarray, before: Mixtures | None) -> np.ndarray:
    (_, B, c), d = R.shape, samples.dimension
    assert samples.cells is not None
    total = np.zeros((B, c, 1 + d + d * d))
    for rows, S, others, part in samples.cells.parts:
        found = _sums(part, R[rows])
        mass, first = found[:, :, :1], found[:, :, 1 : 1 + S.size]
        second, (i, j) = np.zeros((B, c, S.size, S.size)), part.pairs
        second[:, :, i, j] = second[:, :, j, i] = found[:, :, 1 + S.size :]
        start, pull, spread = _predictions(before, S, others, (B, c))
        # of the cells, seen or not: start + pull·x_S, with a covariance
        moved = (pull @ first[..., None])[..., 0]
        crossed = start[..., :, None] * moved[..., None, :]
        products = pull @ second @ pull.swapaxes(-1, -2) + crossed + crossed.swapaxes(-1, -2)
        products += mass[..., None] * (spread + start[..., :, None] * start[..., None, :])
        total[:, :, :1] += mass
        total[:, :, 1 : 1 + d] += mass * start + moved
        total[:, :, 1 + d :] += products.reshape(B, c, -1)
    i, j = samples.pairs
    return np.concatenate([total[:, :, : 1 + d], total[:, :, 1 + d + d * i + j]], axis=2)


# start (B, c, d), pull (B, c, d, S) and covariance (B, c, d, d) of all cells given those of the
# columns S, R being the others.
def _predictions(
    before: Mixtures | None, S: np.ndarray, R: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    d = S.size + R.size
    start, pull = np.zeros((*shape, d)), np.zeros((*shape, d, S.size))
    spread = np.zeros((*shape, d, d))
    pull[:, :, S, np.arange(S.size)] = 1.0
    if not R.size:
        return start, pull, spread
    block = np.s_[:, :, R[:, None], R]
    if before is None:
        spread[block] = np.eye(R.size)
        return start, pull, spread
    V, means = before.covariances, before.means
    across = V[:, :, S[:, None], R]
    own = np.linalg.solve(V[:, :, S[:, None], S], across).swapaxes(-1, -2)
    pull[:, :, R] = own
    start[:, :, R] = means[:, :, R] - (own @ means[:, :, S, None])[..., 0]
    spread[block] = V[block] - own @ across
    return start, pull, spread


# Probabilities of levels, drawn towards those of all components together by so many rows: for every
# column the one of ``smoothings`` with the largest evidence, its mass under Dirichlet priors.
def _chances(
    samples: Samples, R: np.ndarray, smoothings: Sequence[float] = _SMOOTHING
) -> np.ndarray:
    n, B, c = R.shape
    if samples.cells is None:
        return np.zeros((B, c, 0))
    cells = samples.cells
    counts = (R.reshape(n, B * c).T @ cells.levels).reshape(B, c, -1)
    # in rows, of which a weighting has so many
    masses = samples.by_row(R.sum(axis=2))
    rows = (masses.sum(axis=0) ** 2 / np.maximum((masses**2).sum(axis=0), 1e-300))[:, None, None]
    counts = counts * rows / masses.sum(axis=0)[:, None, None]
    every = counts.sum(axis=1, keepdims=True) + _LEAST_ROWS
    every, totals, evidence = every / cells.per_column(every), cells.per_column(counts), []
    for a in smoothings if len(smoothings) > 1 else ():
        levels = cells.per_column(gammaln(a * every + counts) - gammaln(a * every))
        evidence.append((levels - gammaln(a + totals)).sum(axis=1) + c * gammaln(a))
    chosen = np.argmax(evidence, axis=0) if evidence else np.zeros(counts.shape[::2], dtype=int)
    smoothing = np.array(smoothings)[chosen][:, None]
    return np.asarray((counts + smoothing * every) / (totals + smoothing))


# log(share · normal density) of every component at every point, (n, B, c), times the probabilities
# of levels.
def _exponents(mixtures: Mixtures, samples: Samples) -> np.ndarray:
    B, c, d = mixtures.means.shape
    if samples.cells is not None:
        out = samples.cells.levels @ np.log(mixtures.chances).reshape(B * c, -1).T
        out = out.reshape(-1, B, c)
        for rows, S, _, part in samples.cells.parts:
            V = mixtures.covariances[:, :, S[:, None], S]
            out[rows] += _exponents(Mixtures(mixtures.shares, mixtures.means[:, :, S], V), part)
        return out
    i, j = samples.pairs
    if i.shape[0] > d or d == 1:
        L = np.linalg.cholesky(mixtures.covariances)
        half = np.linalg.inv(L)
        P = half.transpose(0, 1, 3, 2) @ half
        log_det = -2.0 * np.log(np.diagonal(L, axis1=2, axis2=3)).sum(axis=2)
        slope = (P @ mixtures.means[:, :, :, None])[..., 0]
        products = np.where(i == j, -0.5, -1.0) * P[:, :, i, j]
    else:
        variances = np.diagonal(mixtures.covariances, axis1=2, axis2=3)
        slope, products = mixtures.means / variances, -0.5 / variances
        log_det = -np.log(variances).sum(axis=2)
    at_zero = np.einsum("bcd,bcd->bc", slope, mixtures.means)
    constant = np.log(mixtures.shares) + 0.5 * (log_det - d * math.log(2.0 * math.pi) - at_zero)
    theta = np.concatenate([constant[:, :, None], slope, products], axis=2).reshape(B * c, -1)
    return np.asarray(samples.features @ theta.T).reshape(-1, B, c)


# The cluster of each point in each weighting, (B, n), after a few of Lloyd's steps [Lloyd1982].
#
# Empty clusters keep their center.
def _clusters(points: np.ndarray, masses: np.ndarray, centers: np.ndarray) -> np.ndarray:
    (B, c), n = centers.shape, points.shape[0]
    means, labels, rows = points[centers], np.full((B, n), -1), np.arange(B)[:, None] * c
    for _ in range(_LLOYD_STEPS):
        inner = (points @ means.reshape(B * c, -1).T).reshape(n, B, c)
        new = np.argmin(np.einsum("bcd,bcd->bc", means, means) - 2.0 * inner, axis=2).T
        if np.array_equal(new, labels):
            break
        labels = new
        flat = (rows + labels).ravel()
        mass = np.bincount(flat, masses.ravel(), B * c).reshape(B, c)
        sums = [np.bincount(flat, (masses * x).ravel(), B * c).reshape(B, c) for x in points.T]
        share = np.where(mass > 0.0, mass, 1.0)[:, :, None]
        means = np.where(mass[:, :, None] > 0.0, np.stack(sums, axis=2) / share, means)
    return labels
