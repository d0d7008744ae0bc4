"""Gaussian reference measures: one normal distribution, a mixture of them, and the merging of its
components.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.special import entr

from ksos.ground import (
    CACHE_ELEMENTS,
    Array,
    as_bandwidth,
    as_metric,
    as_metrics,
    as_points,
    as_vector,
    as_weights,
    is_numpy,
    like,
    namespace,
    quiet,
    row_blocks,
    zeros,
)
from ksos.measures.base import Measure, Normals

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as FittedMixture


_ROUNDING = 1e-14  # of the sum of the weights: a sum of thousands of weights is rounded by less
# coordinates relative to the means at a time on a GPU, which wants few large operations: 128 MB
_DEVICE_ELEMENTS = 1 << 24


class _Normals(Measure):
    """What a normal distribution and a mixture of them have in common."""

    def log_mass(self, d: int) -> float:
        return 0.0

    def smooth_length(self, d: int) -> np.ndarray:
        """That of the narrowest component."""
        precisions = np.linalg.inv(self.normals(d).covariances)
        return np.sqrt(2.0 / np.diagonal(precisions, axis1=1, axis2=2).max(axis=0))

    @abstractmethod
    def normals(self, d: int) -> Normals:
        """The components."""

    def log_density(self, X: Array) -> Array:
        xp, out = namespace(X), zeros((X.shape[0],), X)
        means, roots, constants = (like(a, X) for a in self._whitening)
        # samples along the last axis, one after the other in memory: products of small matrices
        # with long rows, which take three times as long if only the strides are turned
        columns = xp.stack([X[:, k] for k in range(X.shape[1])])
        # half of the cache: products and their squares are worked on together
        elements = CACHE_ELEMENTS // 2 if is_numpy(X) else _DEVICE_ELEMENTS
        with quiet():
            for rows in row_blocks(X.shape[0], max(means.shape), elements):
                x = columns[None, :, rows]
                # hundreds of components at once would leave rows of a few samples
                some = row_blocks(means.shape[0], math.prod(x.shape), elements)
                away = (roots[c, :, :] @ (x - means[c, :, None]) for c in some)
                logs = xp.concat([xp.sum(y * y, axis=1) for y in away])
                logs = constants[:, None] - 0.5 * logs
                peak = xp.max(logs, axis=0)
                shift = xp.where(xp.isfinite(peak), peak, 0.0)
                out[rows] = shift + xp.log(xp.sum(xp.exp(logs - shift), axis=0))
        return out

    # μ_c, R_c with R_cΣ_cR_cᵀ = 1, shape (c, d, d), and log w_c N_c(μ_c), shape (c,).
    @cached_property
    def _whitening(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        assert self.n_features is not None
        weights, means, covariances = self.normals(self.n_features)
        roots = np.linalg.inv(np.linalg.cholesky(covariances))
        log_dets = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        unit = 0.5 * means.shape[1] * math.log(2.0 * math.pi)
        return means, roots, np.log(weights) + log_dets - unit


class Normal(_Normals):
    """The probability measure N(mean, diag(scale²)) or N(mean, covariance). Relative to it, p = 1
    is the normal distribution itself.

    Parameters
    ----------
    mean : float or array of d floats
    scale : float, array of d floats, or symmetric positive definite matrix (d, d)
        Standard deviation, or the covariance matrix. Two scalars leave d open.

    >>> Normal([0.0, 0.0], [[1.0, 0.5], [0.5, 1.0]]).log_density(np.array([[0.0, 0.0]])).round(6)
    array([-1.694036])
    """

    name = "normal"

    def __init__(self, mean: Any = 0.0, scale: Any = 1.0) -> None:
        self.mean = np.array(mean, dtype=np.float64)
        if self.mean.ndim:
            as_vector(self.mean, "mean")
        elif not np.isfinite(self.mean):
            raise ValueError(f"mean must be finite; got {mean!r}")
        covariance = as_metric(scale, "scale")
        if covariance is None:
            self.scale = as_bandwidth(scale, "scale")
        else:
            variances = np.diagonal(covariance)
            independent = np.array_equal(covariance, np.diag(variances))
            self.scale = as_bandwidth(np.sqrt(variances), "scale") if independent else covariance
        lengths = {a.shape[0] for a in (self.mean, self.scale) if a.ndim}
        if len(lengths) > 1:
            raise ValueError(
                f"mean has {self.mean.shape[0]} features but scale has {self.scale.shape[0]}"
            )
        self.n_features = lengths.pop() if lengths else None

    @property
    def by_components(self) -> bool:
        return bool(self.scale.ndim == 2)

    def normals(self, d: int) -> Normals:
        self.check_features(d)
        mean = np.broadcast_to(self.mean, (d,))
        covariance = (
            self.scale if self.by_components else np.diag(np.broadcast_to(self.scale, (d,)) ** 2)
        )
        return Normals(np.ones(1), mean[None, :], covariance[None, :, :])

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        self.check_features(d)
        if self.by_components:
            raise ValueError(
                "a normal distribution with one standard deviation per feature is needed here, not"
                f" a covariance matrix; got {self!r}"
            )
        return np.broadcast_to(self.mean, (d,)), np.broadcast_to(self.scale, (d,))

    def log_density(self, X: Array) -> Array:
        if self.by_components:
            return super().log_density(X)
        xp, (mean, scale) = namespace(X), (like(v, X) for v in self.normal_factor(X.shape[1]))
        unit = 0.5 * math.log(2.0 * math.pi)
        return xp.sum(-0.5 * ((X - mean) / scale) ** 2 - xp.log(scale) - unit, axis=1)

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        mean = self.mean[index] if self.mean.ndim else self.mean
        if self.by_components:
            return type(self)(mean, self.scale[np.ix_(index, index)])
        return type(self)(mean, self.scale[index] if self.scale.ndim else self.scale)

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        mean = transform(np.broadcast_to(self.mean, scale.shape)[None, :])[0]
        with np.errstate(over="ignore", under="ignore"):
            return type(self)(
                mean,
                (
                    self.scale * scale[:, None] * scale
                    if self.by_components
                    else np.abs(scale) * self.scale
                ),
            )

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        _, means, covariances = self.normals(b.shape[0])
        return type(self)(A @ means[0] + b, A @ covariances[0] @ A.T)

    def for_features(self, d: int) -> Measure:
        return self if self.by_components else type(self)(*self.normal_factor(d))

    def parameters(self) -> dict[str, Any]:
        return {"mean": self.mean, "scale": self.scale}


class GaussianMixture(_Normals):
    """The probability measure Σ_c w_c N(μ_c, Σ_c). Relative to it, p = 1 is the mixture itself.

    Parameters
    ----------
    weights : array of c floats
        Non-negative, scaled to sum one; components of weight 0 are dropped.
    means : array (c, d)
    covariances : array (c, d, d), or (c, d)
        Covariance matrices, or the variances of independent features.

    >>> p = GaussianMixture([1, 1], [[0.0], [4.0]], [[1.0], [1.0]])
    >>> p.log_density(np.array([[0.0], [2.0]])).round(6)
    array([-1.61175 , -2.918939])
    """

    name = "gaussian_mixture"

    def __init__(self, weights: Any, means: Any, covariances: Any) -> None:
        means = np.array(as_points(means, "means"))
        shares = as_weights(weights, means.shape[0], "weights")
        given_sum = float(np.sum(np.asarray(weights, dtype=np.float64)))
        # scaled already: another division would change the last bits, and a file must not
        if abs(given_sum - 1.0) <= _ROUNDING:
            shares = np.array(weights, dtype=np.float64)
        given = np.asarray(covariances, dtype=np.float64)
        (count, d), used = means.shape, shares > 0.0
        if given.shape not in ((count, d), (count, d, d)):
            raise ValueError(
                f"covariances must have shape {(count, d, d)}, or {(count, d)} for variances; got"
                f" {given.shape}"
            )
        full = given if given.ndim == 3 else np.stack([np.diag(row) for row in given])
        self.weights, self.means, self.covariances = (
            shares[used],
            means[used],
            as_metrics(full, "covariances", used),
        )
        for part in (self.weights, self.means, self.covariances):
            part.setflags(write=False)
        self.n_features = d

    @classmethod
    def from_sklearn(cls, fitted: FittedMixture) -> Self:
        """The distribution of a fitted :class:`sklearn.mixture.GaussianMixture` with any covariance
        type.
        """
        # scikit-learn is needed only here
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(fitted, "covariances_")
        (count, d), given = fitted.means_.shape, np.asarray(fitted.covariances_)
        full = {
            "full": lambda: given,
            "tied": lambda: np.broadcast_to(given, (count, d, d)),
            "diag": lambda: given,
            "spherical": lambda: np.broadcast_to(given[:, None], (count, d)),
        }[fitted.covariance_type]()
        return cls(fitted.weights_, fitted.means_, full)

    @property
    def by_components(self) -> bool:
        return True

    def normals(self, d: int) -> Normals:
        self.check_features(d)
        return Normals(self.weights, self.means, self.covariances)

    def normal_factor(self, d: int) -> tuple[np.ndarray, np.ndarray]:
        raise ValueError(
            "a normal distribution with one standard deviation per feature is needed here, not a"
            f" mixture; got {self!r}"
        )

    def restrict(self, features: Any) -> Self:
        index = np.asarray(features)
        return type(self)(
            self.weights, self.means[:, index], self.covariances[:, index[:, None], index]
        )

    def image(self, transform: Callable[[np.ndarray], np.ndarray], scale: np.ndarray) -> Measure:
        return type(self)(
            self.weights, transform(self.means), self.covariances * scale[:, None] * scale
        )

    def linear_image(self, A: np.ndarray, b: np.ndarray) -> Measure:
        return type(self)(self.weights, self.means @ A.T + b, A @ self.covariances @ A.T)

    def parameters(self) -> dict[str, Any]:
        return {"weights": self.weights, "means": self.means, "covariances": self.covariances}

    def __repr__(self) -> str:
        return f"GaussianMixture({self.weights.shape[0]} components in {self.n_features} features)"


def merged_cells(
    weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    chances: np.ndarray,
    total_bound: float,
    untouched: int,
) -> tuple[np.ndarray, ...]:
    """Replace pairs of components by normals with their mean and covariance [Runnalls2007].

    The cost of a pair is B_ij = ½[(w_i+w_j) log|Σ_ij| − w_i log|Σ_i| − w_j log|Σ_j|], the
    divergence of its components from the normal that replaces them. The cheapest pair is merged
    first, and merging stops before the sum of the costs reaches ``total_bound``. The sum
    telescopes: it is the divergence of all components from what replaced them, hence a bound on
    KL(mixture ‖ result). Mean and covariance are kept.

    Components may have probabilities of the levels of categorical columns, ``chances`` (n, levels),
    which are independent given the component. Those of a pair are replaced by their weighted mean,
    which adds the divergence of its levels to its cost.

    Parameters
    ----------
    weights, means, covariances, chances : arrays (n,), (n, d), (n, d, d), (n, levels)
    total_bound : float
        In nats. 0 merges only identical components.
    untouched : int
        So many of the first components stay as they are. A merged tail of tiny weight costs
        nothing in divergence, and everything at a sample that lies in it.
    """
    every = weights, means, covariances, chances
    pairs, spent = _Pairs(*_distinct(*(part[untouched:] for part in every))), 0.0
    while (cost := float(pairs.costs[pair := pairs.cheapest()])) < total_bound - spent:
        pairs.merge(*pair)
        spent += cost
    keep = pairs.weights > 0.0
    parts = (pairs.weights, pairs.means, pairs.covariances, pairs.chances)
    both = zip(every, parts, strict=True)
    return tuple(np.concatenate([a[:untouched], b[keep]]) for a, b in both)


# Weights, means, covariances and levels of the components that differ.
def _distinct(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, chances: np.ndarray
) -> tuple[np.ndarray, ...]:
    rows = np.column_stack([means, covariances.reshape(weights.shape[0], -1), chances])
    _, first, place = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    summed = np.bincount(place.ravel(), weights)
    first = first[order]
    return summed[order], means[first], covariances[first], chances[first]


class _Pairs:
    """The costs of all pairs of components."""

    def __init__(
        self,
        weights: np.ndarray,
        means: np.ndarray,
        covariances: np.ndarray,
        chances: np.ndarray,
    ) -> None:
        self.weights, self.means = weights.copy(), means.copy()
        self.covariances, self.chances = covariances.copy(), chances.copy()
        self.log_dets, n = np.linalg.slogdet(self.covariances)[1], weights.shape[0]
        self.costs = np.full((n, n), np.inf)
        self._evaluate(*np.triu_indices(n, 1))

    def cheapest(self) -> tuple[int, int]:
        """The pair of least cost."""
        i, j = divmod(int(np.argmin(self.costs)), self.costs.shape[0])
        return i, j

    def merge(self, i: int, j: int) -> None:
        """Put the pair in place of i."""
        w = self.weights
        (mean,), (covariance,) = self._matched(np.array([i]), np.array([j]))
        share = w[j] / (w[i] + w[j])
        self.chances[i] += share * (self.chances[j] - self.chances[i])
        w[i], w[j], self.means[i], self.covariances[i] = w[i] + w[j], 0.0, mean, covariance
        self.log_dets[i] = np.linalg.slogdet(covariance)[1]
        self.costs[j] = self.costs[:, j] = np.inf
        others = np.flatnonzero((w > 0.0) & (np.arange(w.shape[0]) != i))
        self._evaluate(np.full(others.shape, i), others)

    # Those of pairs (i, j).
    def _evaluate(self, i: np.ndarray, j: np.ndarray) -> None:
        w = self.weights
        for rows in row_blocks(i.shape[0], self.covariances[0].size, CACHE_ELEMENTS):
            a, b = i[rows], j[rows]
            roots = np.linalg.cholesky(self._matched(a, b)[1])
            log_dets = 2.0 * np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
            costs = (w[a] + w[b]) * log_dets - w[a] * self.log_dets[a] - w[b] * self.log_dets[b]
            costs = 0.5 * costs + self._of_levels(a, b)
            self.costs[a, b] = self.costs[b, a] = np.maximum(costs, 0.0)

    # What the levels add to the costs of the pairs (i, j).
    def _of_levels(self, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        a, b, (p, q) = self.weights[i], self.weights[j], (self.chances[i], self.chances[j])
        both = p + (b / (a + b))[:, None] * (q - p)
        lost = [w * entr(levels).sum(axis=1) for w, levels in ((a + b, both), (a, p), (b, q))]
        return np.asarray(lost[0] - lost[1] - lost[2])

    # Means and covariances of the pairs (i, j).
    def _matched(self, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = (self.weights[j] / (self.weights[i] + self.weights[j]))[:, None]
        away = self.means[j] - self.means[i]
        spread = (share * (1.0 - share))[:, :, None] * (away[:, :, None] * away[:, None, :])
        change = share[:, :, None] * (self.covariances[j] - self.covariances[i])
        return self.means[i] + share * away, self.covariances[i] + change + spread
