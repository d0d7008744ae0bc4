"""Gaussian mixtures by expectation–maximisation [Dempster1977], for many weightings of the same samples at once.

Cross-validation asks for the same mixture once per fold, and once for all samples: the same points with other weights, zero for those
that are held out. Log-densities of normal laws are linear in φ(x) = (1, x_i, x_i x_j), so that one step of all of them is two matrix
products with the (n, q) matrix of φ: Φ·Θ gives the exponents, and RᵀΦ, R being the responsibilities, the new moments. Samples that are
held out are evaluated on the way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ksos._deadline import Deadline

__all__ = ["Mixtures", "Samples", "mixture_path", "seeds"]

_STEPS, _TOLERANCE = 100, 1e-3  # nats per sample and step: less than samples can tell
_LLOYD_STEPS = 10
_CANDIDATES = 3
_EMPTY = 1e-10  # of the mass: a component with less keeps its place
MOST_FULL = 40
"""Features: with more of them covariances are diagonal."""


@dataclass(frozen=True)
class Samples:
    """Points (n, d) near the origin with spreads near one, and φ of them."""

    points: np.ndarray
    features: np.ndarray
    """Φ (n, q)."""
    pairs: tuple[np.ndarray, np.ndarray]
    """i ≤ j of the products x_i x_j: all pairs, or (i, i) alone."""

    @classmethod
    def of(cls, points: np.ndarray) -> Samples:
        d = points.shape[1]
        first, second = np.triu_indices(d) if d <= MOST_FULL else (np.arange(d), np.arange(d))
        ones = np.ones((points.shape[0], 1))
        return cls(points, np.concatenate([ones, points, points[:, first] * points[:, second]], axis=1), (first, second))


@dataclass(frozen=True)
class Mixtures:
    """One mixture of c normal laws for each of B weightings."""

    shares: np.ndarray
    """(B, c)."""
    means: np.ndarray
    """(B, c, d)."""
    covariances: np.ndarray
    """(B, c, d, d)."""

    def widened(self, factor: float) -> Mixtures:
        """With covariances times ``factor``."""
        return Mixtures(self.shares, self.means, factor * self.covariances)

    def with_variances(self, added: np.ndarray) -> Mixtures:
        """With ``added`` (B, c, d) to the variances of the features of each component."""
        return Mixtures(self.shares, self.means, self.covariances + added[..., None] * np.eye(self.means.shape[2]))

    def places(self, samples: Samples, masses: np.ndarray) -> np.ndarray:
        """How many samples each component holds, (B, c): (Σr)²/Σr² of its responsibilities times the ``masses`` (B, n) [Kish1965].

        A sample of a large mass counts once.
        """
        R = _exponents(self, samples)
        R -= R.max(axis=2, keepdims=True)
        np.exp(R, out=R)
        R *= masses.T[:, :, None] / R.sum(axis=2, keepdims=True)
        total, squares = R.sum(axis=0), np.einsum("nbc,nbc->bc", R, R)
        return np.asarray(total * total / np.maximum(squares, 1e-300))

    def log_densities(self, samples: Samples) -> np.ndarray:
        """(B, n)."""
        E = _exponents(self, samples)
        peak = E.max(axis=2)
        return np.asarray(np.log(np.exp(E - peak[:, :, None]).sum(axis=2)) + peak).T


def seeds(points: np.ndarray, masses: np.ndarray, count: int, start: int = 0) -> np.ndarray:
    """The row numbers (B, count) of centres by k-means++ [Arthur2007], for each of the weightings ``masses`` (B, n).

    Each is the best of three candidates; the first c of them are the centres of c. ``start`` numbers the sequence of random numbers.
    """
    B, n = masses.shape
    squares, rng = np.einsum("ij,ij->i", points, points), np.random.default_rng(start)
    nearest, out = np.full((B, n), np.inf), np.empty((B, count), dtype=int)
    each = np.arange(B)[:, None]
    for k in range(count):
        chances = masses if k == 0 else masses * nearest
        chances = np.where(chances.sum(axis=1, keepdims=True) > 0.0, chances, masses)  # fewer distinct points than centres
        cumulative = np.cumsum(chances, axis=1)
        uniform = rng.random(_CANDIDATES) * (1.0 - 1e-12)
        drawn = np.stack([np.searchsorted(c, uniform * c[-1], side="right") for c in cumulative])  # (B, candidates)
        distances = squares[drawn][:, :, None] - 2.0 * (points[drawn.ravel()] @ points.T).reshape(B, -1, n) + squares
        distances = np.minimum(np.maximum(distances, 0.0), nearest[:, None, :])
        best = np.argmin(np.einsum("bkn,bn->bk", distances, masses), axis=1)[:, None]
        out[:, k], nearest = drawn[each, best][:, 0], distances[each, best][:, 0]
    return out


def mixture_path(
    samples: Samples, masses: np.ndarray, centres: np.ndarray, floors: Sequence[np.ndarray], deadline: Deadline, tied: bool = False
) -> Iterator[Mixtures]:
    """Mixtures of ``centres.shape[1]`` normal laws for each weighting, for one covariance floor (d,) after the other.

    ``masses`` is (B, n) with rows of sum one, ``centres`` (B, c) row numbers. A floor is added to the variances in every step. The first
    fits start at the clusters of k-means, the next ones at those before. With ``tied``, all components of a mixture share one covariance.
    """
    labels = _clusters(samples.points, masses, centres)
    B, c = centres.shape
    R = np.zeros((samples.points.shape[0], B, c))
    np.put_along_axis(R, labels.T[:, :, None], 1.0, axis=2)
    R *= masses.T[:, :, None]
    start = _maximised(samples, R, floors[0], None, tied)
    for floor in floors:
        start = _converged(samples, masses, start, floor, deadline, tied)
        yield start


def _converged(samples: Samples, masses: np.ndarray, start: Mixtures, floor: np.ndarray, deadline: Deadline, tied: bool) -> Mixtures:
    """EM until the likelihood of a weighting gains less than the tolerance; those that are done stand still."""
    shares, means, covariances = (np.array(part) for part in (start.shares, start.means, start.covariances))
    active, before = np.arange(masses.shape[0]), np.full(masses.shape[0], -np.inf)
    for _ in range(_STEPS):
        now = Mixtures(shares[active], means[active], covariances[active])
        E = _exponents(now, samples)
        peak = E.max(axis=2, keepdims=True)
        E -= peak
        np.exp(E, out=E)
        total = E.sum(axis=2, keepdims=True)
        value = np.einsum("nb,bn->b", (np.log(total) + peak)[:, :, 0], masses[active])
        going = value - before[active] > _TOLERANCE
        before[active] = value
        if not going.any() or deadline.passed:
            break
        if not going.all():
            active, E, total = active[going], E[:, going], total[:, going]
            now = Mixtures(shares[active], means[active], covariances[active])
        E *= masses[active].T[:, :, None] / total
        new = _maximised(samples, E, floor, now, tied)
        shares[active], means[active], covariances[active] = new.shares, new.means, new.covariances
    return Mixtures(shares, means, covariances)


def _maximised(samples: Samples, R: np.ndarray, floor: np.ndarray, before: Mixtures | None, tied: bool) -> Mixtures:
    """Shares, means and covariances from responsibilities (n, B, c) times masses."""
    (n, B, c), d = R.shape, samples.points.shape[1]
    G = (R.reshape(n, B * c).T @ samples.features).reshape(B, c, -1)
    mass = G[:, :, 0]
    alive = mass > _EMPTY
    G = G / np.where(alive, mass, 1.0)[:, :, None]
    means = G[:, :, 1 : d + 1]
    i, j = samples.pairs
    covariances = np.zeros((B, c, d, d))
    covariances[:, :, i, j] = covariances[:, :, j, i] = G[:, :, d + 1 :] - means[:, :, i] * means[:, :, j]
    if tied:
        covariances[:] = np.einsum("bc,bcij->bij", mass / mass.sum(axis=1, keepdims=True), covariances)[:, None]
    diagonal = np.arange(d)
    covariances[:, :, diagonal, diagonal] = np.maximum(covariances[:, :, diagonal, diagonal], 0.0) + floor
    if not alive.all():
        if before is None:
            covariances[~alive] = np.eye(d)
        else:
            means[~alive], covariances[~alive] = before.means[~alive], before.covariances[~alive]
    return Mixtures(np.maximum(mass, 1e-300), means, covariances)


def _exponents(mixtures: Mixtures, samples: Samples) -> np.ndarray:
    """log(share · normal density) of every component at every point, (n, B, c)."""
    B, c, d = mixtures.means.shape
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
        slope, products, log_det = mixtures.means / variances, -0.5 / variances, -np.log(variances).sum(axis=2)
    constant = np.log(mixtures.shares) + 0.5 * (log_det - d * math.log(2.0 * math.pi) - np.einsum("bcd,bcd->bc", slope, mixtures.means))
    theta = np.concatenate([constant[:, :, None], slope, products], axis=2).reshape(B * c, -1)
    return np.asarray(samples.features @ theta.T).reshape(-1, B, c)


def _clusters(points: np.ndarray, masses: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """The cluster of each point in each weighting, (B, n), after a few of Lloyd's steps [Lloyd1982]; empty clusters keep their centre."""
    (B, c), n = centres.shape, points.shape[0]
    means, labels, rows = points[centres], np.full((B, n), -1), np.arange(B)[:, None] * c
    for _ in range(_LLOYD_STEPS):
        distances = np.einsum("bcd,bcd->bc", means, means) - 2.0 * (points @ means.reshape(B * c, -1).T).reshape(n, B, c)
        new = np.argmin(distances, axis=2).T
        if np.array_equal(new, labels):
            break
        labels = new
        flat = (rows + labels).ravel()
        mass = np.bincount(flat, masses.ravel(), B * c).reshape(B, c)
        sums = np.stack([np.bincount(flat, (masses * x).ravel(), B * c).reshape(B, c) for x in points.T], axis=2)
        means = np.where(mass[:, :, None] > 0.0, sums / np.where(mass > 0.0, mass, 1.0)[:, :, None], means)
    return labels
