"""ksos.Ball: all distributions near the data, and the densities that an adversary takes from it."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ksos.density import SoSDensity
from ksos.ground import (
    as_bandwidth,
    as_count,
    as_features,
    as_nonnegative,
    as_points,
    as_vector,
    as_weights,
    column_names,
    row_blocks,
    to_numpy,
)
from ksos.kernels import Kernel, kernel_form
from ksos.measures import Box, Discrete, Lebesgue, Measure
from ksos.observables import Observable
from ksos.quadrature import tensor_grid
from ksos.space import (
    MeanEmbedding,
    SoSSpace,
    bandwidth_rule,
    finest_bandwidth,
    landmark_candidates,
    mmd,
    pivots,
    region,
    require_exact_mmd,
    support_cover,
)

__all__ = ["Adversary", "Ball", "adversary_in", "check_radius", "require_ball", "resampled_radius"]

# The most support points by default, by the number of features. They keep one step of the interior
# point, about points⁴ operations in the worst case, near a second (benchmarks/worst_case.py).
_MOST_SUPPORT_POINTS = {1: 64, 2: 144, 3: 125}
_MOST_OTHERWISE = 200  # beyond three features no grid fits anyhow: what a second allows
_SPAN_TOL = 1e-7  # squared residual of φ(x): bounds cost, not accuracy, as exact_ball.py adds more
_MOST_LANDMARKS = 160  # likewise: about as many as support points
_BLOCK_ELEMENTS = 1 << 22  # of a kernel matrix at a time: 32 MB
# In bandwidths along each feature, from an atom to its kernel. The square of the kernel has a
# standard deviation of half a bandwidth: at three, it is on one side of a jump.
_BESIDE = np.array([0.0, -3.0, 3.0])
_DEEPEST = 4.0  # beyond the boundary k² may fall to e^(−2·4) of its top, which a space keeps
_SPREAD = 0.6  # bandwidths: where the mean over a kernel is taken, about a standard deviation away
_APART = 0.2  # of the distance of two nodes: exp(−5²/2) = 4e-6 of a kernel reaches the other one
_SEPARATE = 1e-4  # Two kernels this close, as squared sines, are one: with more digits they cancel.


class Ball:
    r"""The distributions on a domain whose MMD to the data is at most a radius.

    The maximum mean discrepancy (MMD) is the distance between kernel mean embeddings.
    :func:`ksos.worst_case`, :func:`ksos.robust_minimize` and :func:`ksos.robust_mode` take a ball.

    Parameters
    ----------
    data : array (n, d) or MeanEmbedding
        The center. The weights of a MeanEmbedding may be signed.
    radius : float or "bootstrap"
        The largest MMD, not squared. 0 leaves the data alone. ``math.inf`` is for the ``penalty``
        of :func:`ksos.worst_case`. "bootstrap" is the ``confidence``-quantile of the MMD between
        resamples of the data and the data. See Notes.
    weights : array of n floats, optional
        Weights of the samples, scaled to sum 1.
    kernel : Kernel or {"gaussian", "laplace", "matern"}, optional
        Kernel of the MMD. A name, or None for "gaussian", takes the median distance of the samples
        as bandwidth. Default: that of a MeanEmbedding, else None.
    domain : Box, Discrete, another measure or "samples", optional
        Where the distributions live. "samples" are the distinct samples themselves. Default: R^d.
    levels : dict {column: values}, optional
        The values of columns that are discrete on a Box, such as labels, for :func:`ksos.decide`.
        Columns are given by name or number.
    confidence : float, default=0.95
        Level of the bootstrap, strictly between 0 and 1.
    n_resamples : int, default=1000
        Number of resamples of the bootstrap.
    rng : seed or Generator, default=0
        Seed of the bootstrap, and of the subset that gives the median of more than 3,000 samples.

    Attributes
    ----------
    points, weights : ndarray (n, d), ndarray (n,)
        The distinct samples and their weights.
    radius : float
    kernel : Kernel
    domain : Measure
    feature_names : tuple of str or None

    Notes
    -----
    The MMD between a sample and its population has the same limit distribution as the MMD between
    resamples and the sample. So the ball of the bootstrap radius holds the population with about
    the probability ``confidence``.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(50, 1))
    >>> ball = Ball(X, "bootstrap", kernel="gaussian")
    >>> ball.contains(X), ball.contains(X + 1.0), 0.1 < ball.radius < 0.2
    (True, False, True)
    """

    def __init__(
        self,
        data: Any,
        radius: Any,
        *,
        weights: Any = None,
        kernel: str | Kernel | None = None,
        domain: Any = None,
        levels: Mapping[Any, Any] | None = None,
        confidence: float = 0.95,
        n_resamples: int = 1000,
        rng: Any = 0,
    ) -> None:
        check_radius(radius)
        if isinstance(data, SoSDensity):
            raise TypeError(
                f"data must be samples (n, d) or a MeanEmbedding; got {data!r}; draw samples from"
                " it with rvs"
            )
        self.feature_names = column_names(data, "data")
        if isinstance(data, MeanEmbedding):
            if weights is not None:
                raise ValueError("weights are those of samples; a MeanEmbedding has its own")
            if kernel not in (None, data.kernel):
                raise ValueError(
                    f"data is an embedding in the RKHS of {data.kernel!r}: omit kernel={kernel!r}"
                )
            self.points, given, kernel = to_numpy(data.points), to_numpy(data.weights), data.kernel
            self.weights = given
        else:
            points = to_numpy(as_points(data, "data"))
            given = as_weights(weights, points.shape[0], "weights")
            points, given = points[given > 0.0], given[given > 0.0]
            self.points, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
            self.weights = np.bincount(inverse.ravel(), weights=given)
        # as many samples of equal weight have the same Σa²
        self.n_samples = max(1, round(1.0 / max(float(given @ given), 1e-15)))
        if isinstance(domain, str) and domain == "samples":
            self._require_distribution('domain="samples"')
            domain = Discrete(self.points, self.weights)
        if not isinstance(domain, Measure | None):
            raise TypeError(
                'domain must be a measure such as ksos.measures.Box(low, high), "samples" or'
                f" None for R^d; got {domain!r}"
            )
        self.domain: Measure = Lebesgue() if domain is None else domain
        self.domain.check_features(self.n_features)
        self.levels = self._as_levels(levels) if levels else {}
        if not isinstance(kernel, Kernel):
            generator = np.random.default_rng(rng)
            sigma = bandwidth_rule("median", self.points, self.weights, generator)
            kernel = kernel_form("gaussian" if kernel is None else kernel).with_sigma(sigma)
        kernel.sigma_vector(self.n_features)  # raises if it is of other features
        self.kernel: Kernel = kernel
        self._resampling = confidence, n_resamples, rng
        self.radius: float = self._as_radius(radius)

    def _as_radius(self, radius: Any) -> float:
        if not isinstance(radius, str):
            return float(radius)
        self._require_distribution('radius="bootstrap"')
        return resampled_radius(self, self.n_samples, *self._resampling)

    def _as_levels(self, levels: Mapping[Any, Any]) -> dict[int, np.ndarray]:
        if self.domain.region is None:
            raise ValueError(
                "levels need a domain=Box(low, high) of finite sides, which holds them"
            )
        names = as_features(list(levels), self.n_features, "levels", self.feature_names)
        found: dict[int, np.ndarray] = {}
        for name, k in zip(levels, names, strict=True):
            found[k] = np.unique(as_vector(levels[name], f"the levels of column {name!r}"))
            low, high = self.domain.boundary(k)
            if found[k][0] < low or found[k][-1] > high:
                raise ValueError(
                    f"the levels of column {name!r} must lie in its interval [{low:g}, {high:g}] of"
                    f" the domain; got {found[k].tolist()}"
                )
        return found

    def _require_distribution(self, what: str) -> None:
        if not self.is_distribution:
            raise ValueError(
                f"{what} needs data that are a distribution: weights that are not negative and sum"
                " to 1"
            )

    def with_radius(self, radius: Any) -> Ball:
        """The ball of another radius around the same data."""
        check_radius(radius)
        other = copy.copy(self)
        other.radius = self._as_radius(radius)
        return other

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.points.shape[1])

    @property
    def is_distribution(self) -> bool:
        """Whether the weights of the data are those of a distribution."""
        return bool(np.all(self.weights >= 0.0)) and abs(float(self.weights.sum()) - 1.0) <= 1e-9

    @cached_property
    def embedding(self) -> MeanEmbedding:
        """The mean embedding of the data, the center."""
        return MeanEmbedding(self.points, self.weights, kernel=self.kernel)

    def mmd(self, distribution: Any, weights: Any = None) -> float:
        """The exact MMD between a distribution and the data.

        ``distribution`` is a density, a MeanEmbedding, or samples (n, d) with ``weights``.
        """
        if weights is not None:
            points = as_points(distribution, "distribution")
            weights = as_weights(weights, points.shape[0], "weights")
            distribution = MeanEmbedding(points, weights, kernel=self.kernel)
        return mmd(distribution, self.embedding, self.kernel)

    def contains(self, distribution: Any, weights: Any = None) -> bool:
        """Whether a distribution lives on the domain and its exact MMD is at most the radius.

        ``distribution`` is a density, a MeanEmbedding, or samples (n, d) with ``weights``.
        """
        return self.mmd(distribution, weights) <= self.radius and self._holds(distribution)

    def _holds(self, distribution: Any) -> bool:
        """Whether the domain holds the points, or the corners of the measure, of a distribution."""
        if isinstance(distribution, MeanEmbedding):
            places = to_numpy(distribution.points)
        elif hasattr(distribution, "measure"):
            atoms = distribution.measure.atoms
            ends = distribution.measure.boundaries(self.n_features)
            places = np.stack(ends) if atoms is None else atoms.points
        else:
            places = to_numpy(as_points(distribution, "distribution"))
        if self.domain.atoms is not None:
            nodes = set(map(tuple, self.domain.atoms.points.tolist()))
            return all(tuple(place) in nodes for place in places.tolist())
        if self.levels and hasattr(distribution, "measure"):
            return False  # no density is on levels
        low, high = self.domain.boundaries(self.n_features)
        on_levels = [np.isin(places[:, k], values) for k, values in self.levels.items()]
        return bool(np.all((places >= low) & (places <= high)) and np.all(on_levels))

    def support_function(self, points: Any = None) -> Any:
        """The worst case as a convex function in CVXPY, for models of your own.

        σ(ℓ) is the largest Σ_i μ_i ℓ_i over weights μ of some ``points`` (n, d) that are in the
        ball, where ℓ is a vector of n affine CVXPY expressions: the losses of the points. A convex
        loss needs a variable: ``cp.Variable(n) >= loss``. Default: the points of a Discrete domain,
        else the distinct samples, :attr:`points`. It needs the extra ``cvx``.

        >>> import cvxpy as cp
        >>> ball = Ball([[0.0], [1.0], [2.0]], 0.1)
        >>> price = cp.Variable(nonneg=True)
        >>> worst = ball.support_function()(-price * ball.points[:, 0])
        >>> bool(cp.Problem(cp.Minimize(worst + cp.square(price))).solve() < 0.0)
        True
        """
        # decisions take a ball, so that their file imports this one
        from ksos.robust.decisions import support_function

        return support_function(self, points)

    def __repr__(self) -> str:
        where = f"R^{self.n_features}" if self.domain == Lebesgue() else repr(self.domain)
        for k, values in self.levels.items():
            where += f", column {k} in {values.tolist()},"
        return (
            f"Ball: distributions on {where} within MMD {self.radius:.4g} of"
            f" {self.points.shape[0]} distinct samples, kernel {self.kernel!r}"
        )


def require_ball(ball: Any) -> None:
    """Raise unless it is a Ball."""
    if not isinstance(ball, Ball):
        raise TypeError(
            f"ball must be a ksos.Ball, such as ksos.Ball(X, 0.1); got {type(ball).__name__}"
        )


def check_radius(radius: Any, words: tuple[str, ...] = ("bootstrap",)) -> None:
    """Raise unless it is a non-negative number, infinity or one of the words."""
    named = " or ".join(f'"{word}"' for word in words)
    if not isinstance(radius, str):
        if not (isinstance(radius, float) and radius == math.inf):
            as_nonnegative(radius, f"radius (or {named})")
    elif radius not in words:
        raise ValueError(f"radius must be a non-negative number or {named}; got {radius!r}")


def resampled_radius(
    ball: Ball, n: int, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = 0
) -> float:
    """The ``confidence``-quantile of MMD(μ̂*, μ̂) over resamples μ̂* of n points of the data μ̂."""
    if isinstance(confidence, bool) or not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
    n_resamples = as_count(n_resamples, "n_resamples", minimum=10)
    X = ball.points
    if X.shape[0] < 2:
        raise ValueError(
            'radius="bootstrap" needs at least two distinct samples: resamples of one do not'
            " differ; pass a number"
        )
    shares = ball.weights / ball.weights.sum()
    D = np.random.default_rng(rng).multinomial(n, shares, size=n_resamples) / n - shares
    squares = np.zeros(n_resamples)
    for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
        squares += np.einsum("bi,bi->b", D[:, rows], D @ ball.kernel(X[rows], X).T)
    return float(np.quantile(np.sqrt(np.maximum(squares, 0.0)), confidence, method="higher"))


@dataclass(frozen=True)
class Adversary:
    """The densities of a space, of which those in the ball may replace the data.

    Support points and landmarks lie in the ``box``: the domain, where it is bounded. ``grows``:
    whether directions may be added to what the landmarks see, which does not hold for a space of
    the user's. ``refines``: whether nobody has chosen bandwidth or support points.
    """

    ball: Ball
    space: SoSSpace
    box: Box
    grows: bool = True
    refines: bool = False

    def near(self, atoms: np.ndarray, excess: Observable, share: float) -> Adversary | None:
        """Densities that are narrow about the places that the worst distribution uses.

        Their bandwidth is this share of that of the embedding. Each atom has one kernel, on the
        side of it where the mean of ``excess`` under the kernel is largest: beside a jump, or
        beyond the boundary, from which it decays. None if these are the densities of now.
        """
        measure, metric, d = self.ball.domain, self.ball.kernel, self.ball.n_features
        if metric.full:
            return None
        sigma = metric.sigma_vector(d)
        if measure.atoms is None:
            eta, (low, high) = share * sigma, measure.boundaries(d)
            out = math.sqrt(_DEEPEST / d) * eta
            ways = np.concatenate([np.zeros((1, d)), np.eye(d), -np.eye(d)])
            corners = tensor_grid([_BESIDE] * d) if d <= 3 else ways * _BESIDE[-1]
            centers = np.clip(atoms[:, None] + eta * corners, low - out, high + out)
            seen = np.clip(centers[:, :, None] + _SPREAD * eta * ways, low, high)
            means = excess(seen.reshape(-1, d)).reshape(*seen.shape[:3]).mean(axis=2)
            around = centers[np.arange(atoms.shape[0]), np.argmax(means, axis=1)]
        else:
            # narrower than nodes are apart: any weights of them
            scaled = np.unique(measure.atoms.points, axis=0) / sigma
            apart = cKDTree(scaled).query(scaled, k=2)[0][:, 1].min()
            around, eta = atoms, min(share, _APART * float(apart)) * sigma
        model = metric.with_sigma(_one(eta))
        if model == self.space.kernel:  # another parameter: the answer minds the worst of each
            around = np.concatenate([self.space.support_points, around])
        around = np.unique(around, axis=0)
        most = _MOST_SUPPORT_POINTS.get(d, _MOST_OTHERWISE)
        support = around[pivots(model, around, _SEPARATE, most)]
        if model == self.space.kernel and np.array_equal(support, self.space.support_points):
            return None
        space = SoSSpace(model, support, measure, metric, self.space.landmarks)
        return replace(self, space=space)


@np.errstate(under="ignore")
def adversary_in(
    ball: Any, bandwidth: Any = None, space: SoSSpace | None = None, n_support: int | None = None
) -> Adversary:
    """The densities in a ball: those of a space of the user's, or of one that covers the domain.

    The kernel of the densities is of the family of the ball's. By default it is as fine as the
    support points allow.
    """
    require_ball(ball)
    if ball.levels:
        raise ValueError(
            "densities of a ball with levels are not supported: use ksos.decide, or"
            " ksos.RobustClassifier for labels"
        )
    d, metric, measure = ball.n_features, ball.kernel, ball.domain
    if space is not None:
        return _given(ball, space, bandwidth, n_support)
    refines = bandwidth is None and n_support is None
    most = _MOST_SUPPORT_POINTS.get(d, _MOST_OTHERWISE)
    most = most if n_support is None else as_count(n_support, "n_support", minimum=2)
    box = region(measure, ball.points, metric.sigma_vector(d))
    if bandwidth is None:
        bandwidth = _one(finest_bandwidth(box, metric.sigma_vector(d), most))
    model = metric.with_sigma(as_bandwidth(bandwidth, n_features=d))
    require_exact_mmd(model, metric, measure, d)
    support = support_cover(model, measure, box, ball.points, most)
    candidates = landmark_candidates(
        metric, model, measure, box, ball.points, ball.weights, support
    )
    landmarks = candidates[pivots(metric, candidates, _SPAN_TOL, _MOST_LANDMARKS)]
    space = SoSSpace(model, support, measure, metric, landmarks)
    return Adversary(ball, space, box, refines=refines)


def _one(bandwidths: np.ndarray) -> Any:
    """A number, if all features have the same bandwidth."""
    return float(bandwidths[0]) if np.all(bandwidths == bandwidths[0]) else bandwidths


def _given(ball: Ball, space: Any, bandwidth: Any, n_support: Any) -> Adversary:
    """The densities of a space that the user has made."""
    if not isinstance(space, SoSSpace):
        raise TypeError(f"space must be a ksos.SoSSpace; got {space!r}")
    if bandwidth is not None or n_support is not None:
        raise ValueError(
            "the space has its own bandwidth and support points: omit bandwidth and n_support, or"
            " the space"
        )
    for name, own, other in (
        ("n_features", ball.n_features, space.n_features),
        ("kernel", ball.kernel, space.embedding_kernel),
        ("domain", ball.domain, space.measure),
    ):
        if own != other:
            raise ValueError(
                f"the {name} of the ball is {own!r}, but that of the space is {other!r}; pass"
                " Ball(…, kernel=space.embedding_kernel, domain=space.measure)"
            )
    require_exact_mmd(space.kernel, space.embedding_kernel, space.measure, ball.n_features)
    cloud = np.concatenate([ball.points, to_numpy(space.support_points)])
    box = region(space.measure, cloud, space.embedding_kernel.sigma_vector(ball.n_features))
    return Adversary(ball, space, box, grows=False)
