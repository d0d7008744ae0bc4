"""The metric of a Gaussian kernel where features are tied: bumps of which shape predict left-out
samples?

Three shapes are tried: the axes of the features; the correlations of the samples; and, from the
better of them, a few steps towards the covariance of the bumps that is most likely to have made
each sample from the others [LeivaMurillo2012], which sees how the samples lie within their
clusters.

:func:`automatic_kernel` is the rule bandwidth="auto": such a metric, or a bandwidth per feature,
wide enough for the support points.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import ndtri

from ksos.ground.validation import as_bandwidth
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Measure
from ksos.space.bandwidth import (
    bandwidth_rule,
    predict_left_out,
    robust_silverman,
    subset_and_factor,
)
from ksos.space.support import cluster_centres, unexplained

__all__ = ["PER_SUPPORT_POINT", "automatic_kernel", "embedding_width", "left_out_metric"]
__all__ += ["normal_score_correlations", "takes_metrics"]

PER_SUPPORT_POINT = 10
"""Samples looked at: memory and time follow the support points, however many samples there are."""

# of the correlations: a feature that the others determine keeps some width of its own
_RIDGE = 1e-3
_STEPS, _PRIOR = 3, 3.0  # the start counts as 3d samples
_FEWEST, _MISSED = 5, 1e4
_MOST_FEATURES = 60  # beyond, a metric has more numbers than samples can tell, and its time is felt
# bandwidths: coordinates of tied features lose the digits of the others to an outlier beyond
_FARTHEST = 1e5
_UNEXPLAINED, _WIDENINGS, _WIDEST = 0.1, 4, 0.85
_MOST_EXPLAINED = 5000  # samples give a mean share to two digits


def automatic_kernel(
    family: Kernel,
    points: np.ndarray,
    weights: np.ndarray,
    count: int,
    measure: Measure,
    rng: np.random.Generator,
    names: Any,
    most: int,
) -> Kernel:
    """The kernel of bandwidth="auto": the kernel density of its bandwidths, or of its metric where
    integrals take one, predicts left-out samples best. It is widened for ``most`` support points.
    """
    sigma = None
    if takes_metrics(family, measure):
        sigma = left_out_metric(points, weights, measure, count)
    if sigma is None:
        told: dict[str, Any] = {"kernel": family, "measure": measure, "names": names}
        sigma = bandwidth_rule("auto", points, weights, rng, count=count, **told)
    return _wide_enough(family.with_sigma(sigma), points, weights, count, measure, most)


def _wide_enough(
    kernel: Kernel, points: np.ndarray, weights: np.ndarray, n: int, measure: Measure, m: int
) -> Kernel:
    """The kernel, widened until ``m`` centres represent 90% of the n samples, and more of very
    many, or by (n/m)^{0.85/(d+4)}.

    A kernel that suits n samples leaves gaps between m centres. (n/m)^{1/(d+4)} is how much wider a
    kernel density estimate of m samples is, more than centres need. What is left open is a bias,
    which counts the more the more samples there are.
    """
    if n <= m:
        return kernel
    d = points.shape[1]
    most = (n / m) ** (_WIDEST / (d + 4))
    centres = cluster_centres(points, weights, m, kernel, np.random.default_rng(0))
    if points.shape[0] > (looked_at := min(PER_SUPPORT_POINT * m, _MOST_EXPLAINED)):
        rng = np.random.default_rng(0)  # no matter of chance
        chosen = np.sort(rng.choice(points.shape[0], looked_at, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    enough = _UNEXPLAINED * min(1.0, 2000.0 / n) ** 0.25
    for step in range(_WIDENINGS + 1):
        wider = kernel.scaled(most ** (step / _WIDENINGS))
        if unexplained(points, weights, centres, closed_form(wider, measure, d)) <= enough:
            break
    return wider


def takes_metrics(kernel: Kernel, measure: Measure) -> bool:
    """Whether features may be tied: no walls that cut them one by one, and no nodes."""
    return (
        isinstance(kernel, Gaussian)
        and measure.atoms is None
        and measure.without_boundary is measure
    )


def embedding_width(d: int) -> float:
    """In bandwidths of the model, the s for which the embedding sees the share (1 + 1/(2s²))^{−d/2}
    = (2/3)^{1/2} of a bump in every d.

    Samples with few others near them would hardly be seen otherwise, and the fit would leave them
    out: its samples would be narrower than the data, and its highest-density regions would hold too
    few of them.
    """
    return 1.0 / math.sqrt(2.0 * (1.5 ** (1.0 / d) - 1.0))


def left_out_metric(
    points: np.ndarray, weights: np.ndarray, measure: Measure, count: int | None = None
) -> np.ndarray | None:
    """The bandwidths per feature of :func:`ksos.space.bandwidth.left_out`, or a metric S (d, d)
    whose bumps predict left-out samples better.

    Better: by more than what its d(d+1)/2 numbers gain on the samples that they were fitted to.
    Both look at the same subset of the distinct ``points``, which with their ``weights`` stand for
    ``count`` samples. None if the samples have no spread, or one so large in bandwidths that
    coordinates along tied features would lose digits.
    """
    with np.errstate(over="ignore"):
        extent = np.ptp(points, axis=0)
    if points.shape[0] < _FEWEST or not np.all((extent > 0.0) & np.isfinite(extent)):
        return None
    d, unit = (
        points.shape[1],
        as_bandwidth(
            robust_silverman(points, weights, count),
            "bandwidth='auto': rescale the data: their bandwidth",
        ),
    )
    few, a, factor = subset_and_factor(points, weights, measure, count=count)
    if not np.all(np.ptp(few, axis=0) > 0.0) or np.any(extent / unit > _FARTHEST):
        return None
    axes = Gaussian(unit)
    plain = predict_left_out(few, a, axes, measure)
    found = [(_score(plain.logs, a), axes.scaled(plain.multiple))]

    def try_shape(metric: np.ndarray, numbers: int) -> None:
        shape = Gaussian(_times(metric, unit))
        known = predict_left_out(few, a, shape, measure)
        found.append((_score(known.logs, a) - numbers * float(a @ a), shape.scaled(known.multiple)))

    if 1 < d <= _MOST_FEATURES:
        try_shape(normal_score_correlations(few, a), d * (d - 1) // 2)
        start = max(found, key=lambda pair: pair[0])[1]
        try_shape(
            _towards_the_likeliest(
                few / unit, a, plain.counted, _times(start.matrix(d), 1.0 / unit)
            ),
            d * (d + 1) // 2,
        )
    return np.asarray(max(found, key=lambda pair: pair[0])[1].scaled(factor).sigma)


def _score(logs: np.ndarray, weights: np.ndarray) -> float:
    """Their mean; a sample that a shape misses by more than 10⁴ nats says no more about it."""
    return float(weights @ np.maximum(logs, np.median(logs) - _MISSED))


def _times(matrix: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """The matrix in other units of its features."""
    return np.asarray(unit[:, None] * matrix * unit)


def _towards_the_likeliest(
    Z: np.ndarray, weights: np.ndarray, counted: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Steps H ← (n·4Σ_i a_i Σ_{j≠i} r_ij (z_i − z_j)(z_i − z_j)ᵀ + ν·start)/(n + ν) over the
    samples that count.

    r_ij is the share of bump j in the density of the others at z_i: these are steps of EM for the
    covariance H/4 of the bumps exp(−2(z − z_j)ᵀH⁻¹(z − z_j)), with the start as a prior worth ν =
    3d samples.
    """
    kept = counted > 0.0
    Z, weights, counted = Z[kept] - Z[kept][0], weights[kept], counted[kept]
    n, nu, H = 1.0 / float(counted @ counted), _PRIOR * Z.shape[1], start
    for _ in range(_STEPS if Z.shape[0] > 1 else 0):
        logs = 2.0 * Gaussian(H).log(Z) + np.log(weights)
        np.fill_diagonal(logs, -np.inf)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        shares *= (counted / shares.sum(axis=1))[:, None]
        cross = Z.T @ shares @ Z
        scatter = Z.T @ ((shares.sum(axis=0) + counted)[:, None] * Z) - cross - cross.T
        H = (4.0 * n * scatter + nu * start) / (n + nu)
    return H


def normal_score_correlations(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Correlations of the normal scores of the samples: no outlier and no monotone change of a
    feature is seen. With a ridge.
    """
    scores = np.empty(points.shape)
    for k in range(points.shape[1]):
        _, inverse = np.unique(points[:, k], return_inverse=True)
        mass = np.bincount(inverse, weights=weights)
        scores[:, k] = ndtri((np.cumsum(mass) - 0.5 * mass)[inverse] / mass.sum())
    scores -= weights @ scores
    C = scores.T @ (weights[:, None] * scores)
    size = np.sqrt(np.diagonal(C))
    return np.asarray((1.0 - _RIDGE) * C / np.outer(size, size) + _RIDGE * np.eye(points.shape[1]))
