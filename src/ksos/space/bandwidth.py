"""The bandwidth of a kernel: textbook rules, and "auto", chosen by leave-one-out likelihood.

Every rule scales with the data, ignores a shift, and counts weighted samples as repeated ones.

The rule "auto" finds the kernel density estimate that predicts each sample best from all the
others. For a Gaussian kernel three shapes of its components compete: the axes of the features,
the correlations of the samples, and a few steps from the better of them towards the most likely
covariance of the components [LeivaMurillo2012], which sees how samples lie within their clusters.
"""

from __future__ import annotations

import math
import warnings
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator
from scipy.spatial.distance import pdist
from scipy.special import logsumexp, ndtri

from ksos.ground import as_bandwidth, quoted, row_blocks
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Lebesgue, Measure
from ksos.space.support import cluster_centers, unexplained

# every rule by name
RULES = ("auto", "median", "scott", "silverman")
PER_SUPPORT_POINT = 10  # samples looked at: cost follows the support points, not the samples

_MOST_POINTS = 600  # time and memory grow with the square: 30 matrices of this size in turn
_MOST_DISTANCES = 1 << 21  # distances to the nodes of a discrete measure: 16 MB per width
_FEWEST_POINTS = 100  # fewer points say too little about a width, however many nodes there are
_BLOCK_ELEMENTS = 1 << 18  # entries of a block of distances: 2 MB
_FARTHEST = 1e100  # nats: lower log-densities are set to −1e100, so that their squares are floats
# multiples of Silverman's bandwidth, by half octaves: clusters a few hundred times narrower than
# the data are still resolved, and nothing is gained beyond twice the width of one normal
_MULTIPLES = tuple(2.0 ** (0.5 * k) for k in range(-16, 3))
_OUTLYING = 10.0  # nats below the median at the widest kernel: less than 1 in 10⁵ normal samples
_MOST_NATS = 4.0  # over all samples: a likelihood ratio of 55, very strong evidence [Jeffreys]
# A sum of squares is sharper than a kernel density estimate. Its kernel is wider by
# min(_WIDEST, max(_WIDER/d, _UNSURE/√n)): less with many features, and with few samples as much as
# highest-density regions need to hold their share of new ones (benchmarks/honest_regions.py).
_WIDER = 0.4  # over d, see above
_WIDEST = 0.25  # the bound, see above
_UNSURE = 1.5  # over √n, see above
MOST_MEDIAN_POINTS = 3000  # 4.5 million pairs give the median to about 1/√3000, 2%
_UNLIKE = 10.0  # ratio of standard deviations: one bandwidth for all would miss the narrowest

_RIDGE = 1e-3  # of the correlations: a feature that others determine keeps some width of its own
_STEPS = 3  # steps towards the likeliest covariance: more of them fit the noise of the samples
_PRIOR = 3.0  # the start counts as 3d samples, as many as a covariance has numbers per feature
_FEWEST_FOR_METRIC = 5  # samples: fewer say nothing about correlations
_MISSED = 1e4  # nats: a sample that a shape misses by more says no more about the shape
_MOST_METRIC_FEATURES = 60  # beyond, samples do not determine a metric, and its time is felt
_FARTHEST_METRIC = 1e5  # bandwidths: when rotated, an outlier beyond takes the digits of the others

_UNEXPLAINED = 0.1  # share of the samples' kernel functions that support points may miss
_WIDENINGS = 4  # steps from the kernel itself to its widest version
_WIDEST_POWER = 0.85  # over d + 4: 1 is a density estimate of m samples, chosen ones need less
_MOST_EXPLAINED = 5000  # samples that give a mean share to two digits
_UNBIASED = 2000.0  # samples: beyond, the share falls as n^{−1/4}, since the same bias counts more


def bandwidth_rule(
    name: str,
    points: np.ndarray,
    weights: np.ndarray,
    rng: Generator,
    *,
    kernel: Kernel | None = None,
    measure: Measure | None = None,
    count: int | None = None,
    names: Any = None,
    metrics: bool = False,
) -> np.ndarray:
    """The bandwidth that the rule ``name`` gives for distinct points with weights that sum to 1.

    It is a scalar, one entry per feature, or with ``metrics`` possibly the matrix of a metric.
    A feature without spread gets 1, with a warning that lists the ``names`` of such features.
    ``count`` is the number of samples that the points stand for, if they are a subsample. Only
    "auto" looks at ``kernel`` (its family, default Gaussian), ``measure`` (default Lebesgue) and
    ``metrics``.
    """
    with np.errstate(over="ignore"):
        extent = np.ptp(points, axis=0)
    if not np.all(np.isfinite(extent)):
        raise ValueError(
            f"bandwidth={name!r}: differences between the samples overflow; rescale the data or"
            " pass a number as bandwidth"
        )
    if name == "auto":
        kernel, measure = kernel or Gaussian(1.0), measure or Lebesgue()
        spread = leave_one_out(points, weights, kernel, measure, count, metrics=metrics)
    elif name == "median":
        spread = _median(points, weights, rng)
    else:
        spread = standard_deviations(points, weights) * _normal_factor(name, weights, count, points)
    if spread.ndim == 2:
        return spread
    if np.any(spread == 0.0):
        still = np.flatnonzero(spread == 0.0)
        listed = quoted(still.tolist() if names is None else [str(names[k]) for k in still])
        some = f"features {listed} have" if still.size > 1 else f"feature {listed} has"
        where = "the points have" if spread.ndim == 0 else some
        warnings.warn(
            f"bandwidth={name!r}: {where} no spread; the bandwidth is set to 1 there",
            UserWarning,
            stacklevel=2,
        )
    return as_bandwidth(
        np.where(spread == 0.0, 1.0, spread),
        f"bandwidth={name!r}: rescale the data: their bandwidth",
    )


def _normal_factor(name: str, weights: np.ndarray, count: int | None, points: np.ndarray) -> float:
    """η per standard deviation: 2n^{−1/(d+4)} by Scott's rule [Scott1992], since a squared Gaussian
    kernel of bandwidth η has standard deviation η/2, or Silverman's multiple of it [Silverman1986].

    n is 1/Σa² of all ``count`` samples, of which the points are a subsample.
    """
    (size, d), rate = points.shape, -1.0 / (points.shape[1] + 4)
    n = (1.0 if count is None else count / size) / float(weights @ weights)
    return 2.0 * n**rate * (((d + 2) / 4.0) ** rate if name == "silverman" else 1.0)


def robust_silverman(
    points: np.ndarray, weights: np.ndarray, count: int | None = None
) -> np.ndarray:
    """Silverman's rule with :func:`spreads`, which ignore outliers, in place of standard
    deviations.
    """
    return spreads(points, weights) * _normal_factor("silverman", weights, count, points)


def standard_deviations(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Those of the features."""
    # features of 1e±150 are squared in units of their range, which is 0 for a constant one
    scale = np.ptp(points, axis=0)
    unit = (points - points[0]) / np.where(scale > 0.0, scale, 1.0)
    return np.asarray(scale * np.sqrt(weights @ (unit - weights @ unit) ** 2))


def spreads(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Per feature the lesser of standard deviation and (interquartile range)/1.349, which are equal
    for a normal distribution; the standard deviation if the interquartile range is zero.
    """
    deviation = standard_deviations(points, weights)
    order = np.argsort(points, axis=0, kind="stable")
    x, w = np.take_along_axis(points, order, axis=0), weights[order]
    x = x - x[x.shape[0] // 2]  # a middle one: an outlier would take the digits of all others
    cumulative = np.cumsum(w, axis=0) - 0.5 * w
    low, high = (
        np.array([np.interp(level, cumulative[:, k], x[:, k]) for k in range(points.shape[1])])
        for level in (0.25, 0.75)
    )
    return np.where(high > low, np.minimum((high - low) / 1.349, deviation), deviation)


def _median(points: np.ndarray, weights: np.ndarray, rng: Generator) -> np.ndarray:
    """Weighted median of the distances between distinct points, the pair (i, j) weighing a_i a_j.

    If the spreads of the features differ by more than a factor of ten, distances are taken in
    units of them, and there is one bandwidth per feature.
    """
    spread, units = spreads(points, weights), np.ones(())
    known = spread[spread > 0.0]
    if known.size and known.max() > _UNLIKE * known.min():
        units = np.where(spread > 0.0, spread, np.median(known))
        points = (points - np.median(points, axis=0)) / units
    if points.shape[0] > MOST_MEDIAN_POINTS:
        chosen = np.sort(rng.choice(points.shape[0], MOST_MEDIAN_POINTS, replace=False))
        points, weights = points[chosen], weights[chosen]
    if points.shape[0] < 2:
        return np.zeros(())
    # distances of 1e±150 are squared in a unit near the median, which some of the points suggest: a
    # power of two, so that no digit of the points or of their differences changes
    some = points[:: max(1, points.shape[0] // 100)]
    exponent = math.frexp(np.median(pdist(some, "chebyshev")))[1]
    with np.errstate(over="ignore"):
        near = np.clip(np.ldexp(points, -exponent), -1e150, 1e150)
    return np.asarray(np.ldexp(_weighted_median(pdist(near), weights), exponent) * units)


def _weighted_median(distances: np.ndarray, weights: np.ndarray) -> float:
    """The middle of the interval of minimizers of Σ_{i<j} a_i a_j |d_ij − t|: for equal weights,
    NumPy's median.
    """
    if np.all(weights == weights[0]):
        return float(np.median(distances))
    i, j = np.triu_indices(weights.shape[0], 1)
    order = np.argsort(distances)
    values, cumulative = distances[order], np.cumsum((weights[i] * weights[j])[order])
    half = 0.5 * cumulative[-1]
    # rounding of the cumulative sum must not decide between one middle value and two
    slack = 1e-12 * cumulative[-1]
    low, high = np.searchsorted(cumulative, [half - slack, half + slack])
    return float(0.5 * (values[low] + values[min(high, values.shape[0] - 1)]))


class LeaveOneOut(NamedTuple):
    """How well components of one shape predict each sample from all the others: the widest
    ``multiple`` of the shape that is nearly the best, there the ``logs`` of the density of each
    sample, and the weights of the samples that are ``counted``, 0 for outliers.
    """

    multiple: float
    logs: np.ndarray
    counted: np.ndarray


def leave_one_out(
    points: np.ndarray,
    weights: np.ndarray,
    kernel: Kernel,
    measure: Measure,
    count: int | None = None,
    *,
    metrics: bool = False,
) -> np.ndarray:
    """The rule "auto": somewhat more than the η per feature with which the components
    k_η(·,x_j)²/∫k_η(x,x_j)²dρ around all other samples predict each one.

    The features share one multiple of their own spreads in Silverman's rule: the widest multiple
    that is nearly the best (:func:`widest_good`). Samples that even the widest of all leaves far
    from the others do not count, so that a few outliers do not widen it. Of many points a subset
    is used, always the same, corrected for its size. With ``metrics`` the answer is a metric
    S (d, d) if its components predict better, by more than what its d(d+1)/2 numbers gain on the
    samples that they were fitted to.
    """
    unit = robust_silverman(points, weights, count)
    if points.shape[0] < 2:
        return unit
    scale = as_bandwidth(
        np.where(unit > 0.0, unit, 1.0), "bandwidth='auto': rescale the data: their bandwidth"
    )
    few, a, factor = subset_and_factor(points, weights, measure, count)
    plain = predict_left_out(few, a, kernel.with_sigma(scale), measure)
    d, extent = points.shape[1], np.ptp(points, axis=0)
    if not (
        metrics
        and 1 < d <= _MOST_METRIC_FEATURES
        and points.shape[0] >= _FEWEST_FOR_METRIC
        and np.all((np.ptp(few, axis=0) > 0.0) & (extent <= _FARTHEST_METRIC * unit))
    ):
        return np.asarray(factor * plain.multiple * unit)

    def candidate(metric: np.ndarray, numbers: int) -> tuple[float, Gaussian]:
        shape = Gaussian(metric * np.outer(unit, unit))
        known = predict_left_out(few, a, shape, measure)
        return _score(known.logs, a) - numbers * float(a @ a), shape.scaled(known.multiple)

    by_score, correlations = itemgetter(0), normal_score_correlations(few, a)
    found = [(_score(plain.logs, a), Gaussian(plain.multiple * unit))]
    found.append(candidate(correlations, d * (d - 1) // 2))
    start = max(found, key=by_score)[1].matrix(d) / np.outer(unit, unit)
    likeliest = _towards_the_likeliest(few / unit, a, plain.counted, start)
    found.append(candidate(likeliest, d * (d + 1) // 2))
    return np.asarray(max(found, key=by_score)[1].scaled(factor).sigma)


def subset_and_factor(
    points: np.ndarray, weights: np.ndarray, measure: Measure, count: int | None = None
) -> tuple[np.ndarray, np.ndarray, float]:
    """The points that are looked at, their weights, and how much wider than their components the
    kernel of a sum of squares is.
    """
    n, d = points.shape
    most = _MOST_POINTS
    if (atoms := measure.atoms) is not None:
        most = min(most, max(_FEWEST_POINTS, _MOST_DISTANCES // atoms.points.shape[0]))
    if n > most:
        # always the same: a default must not depend on chance
        chosen = np.sort(np.random.default_rng(0).choice(n, most, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    total = n if count is None else count
    wider = min(_WIDEST, max(_WIDER / d, _UNSURE / math.sqrt(total)))
    return points, weights, (1.0 + wider) * (points.shape[0] / total) ** (1.0 / (d + 4))


def predict_left_out(
    points: np.ndarray, weights: np.ndarray, shape: Kernel, measure: Measure
) -> LeaveOneOut:
    """The widest good multiple of the bandwidth of ``shape``."""
    log_k = shape.log_at_widths(points, points)

    def logs(multiple: float) -> np.ndarray:
        found = _log_components(points, shape.scaled(multiple), measure, log_k(multiple))
        found += np.log(weights)
        np.fill_diagonal(found, -np.inf)
        highest = found.max(axis=1)
        found -= highest[:, None]
        return np.asarray(highest + np.log(np.exp(found, out=found).sum(axis=1)))

    known = {multiple: logs(multiple) for multiple in _MULTIPLES}
    counted = without_outliers(known[max(_MULTIPLES)], weights)
    best = max(known, key=lambda multiple: float(counted @ known[multiple]))
    # by eighths of an octave around the best, more of them on the wide side, where the answer is
    for k in range(-3, 8):
        known[best * 2.0 ** (k / 8.0)] = logs(best * 2.0 ** (k / 8.0))
    multiples = sorted(known)
    every = np.stack([known[multiple] for multiple in multiples])
    chosen = multiples[widest_good(every, counted)]
    return LeaveOneOut(chosen, known[chosen], counted)


def _log_components(
    points: np.ndarray, kernel: Kernel, measure: Measure, log_k: np.ndarray
) -> np.ndarray:
    """log k(x_i,x_j)²/∫k(x,x_j)²dρ, where ``log_k`` is log k between the points.

    On a discrete ρ it is taken at the node nearest to x_i, since nothing bounds a density between
    the nodes.
    """
    if (atoms := measure.atoms) is None:
        log_masses = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    else:
        nearest, log_masses = np.empty(points.shape[0], dtype=int), np.empty(points.shape[0])
        for rows in row_blocks(points.shape[0], atoms.points.shape[0], _BLOCK_ELEMENTS):
            at_nodes = 2.0 * np.maximum(kernel.log(points[rows], atoms.points), -_FARTHEST)
            nearest[rows] = np.argmax(at_nodes, axis=1)
            log_masses[rows] = logsumexp(at_nodes + np.log(atoms.weights), axis=1)
        log_k = kernel.log(atoms.points[nearest], points)
    return 2.0 * np.maximum(log_k, -_FARTHEST) - log_masses


def without_outliers(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The weights of the samples (sum 1), 0 for those more than ten nats less likely than the
    weighted median.
    """
    order = np.argsort(logs, kind="stable")
    middle = logs[order][np.searchsorted(np.cumsum(weights[order]), 0.5 * weights.sum())]
    counted = np.where(logs >= middle - _OUTLYING, weights, 0.0)
    return np.asarray(counted / counted.sum())


def widest_good(logs: np.ndarray, weights: np.ndarray) -> int:
    """The last row of ``logs`` (bandwidths in ascending order, held-out samples) whose mean is
    nearly the best.

    Nearly: behind by at most one standard error of the difference, the usual rule of
    cross-validation, and by at most four nats over all samples, since a few samples may make a
    standard error large. A bandwidth that is too
    narrow costs far more on fresh samples, in its tails, than one that is too wide, and few
    held-out samples may not show it.
    """
    logs = np.maximum(logs, -_FARTHEST)
    scores = logs @ weights
    behind = logs[int(np.argmax(scores))] - logs
    loss = behind @ weights
    one_sample = float(weights @ weights)  # 1/n for equal weights
    error = np.sqrt(np.maximum((behind - loss[:, None]) ** 2 @ weights, 0.0) * one_sample)
    return int(np.flatnonzero(loss <= np.minimum(error, _MOST_NATS * one_sample))[-1])


def _score(logs: np.ndarray, weights: np.ndarray) -> float:
    return float(weights @ np.maximum(logs, np.median(logs) - _MISSED))


def _towards_the_likeliest(
    Z: np.ndarray, weights: np.ndarray, counted: np.ndarray, start: np.ndarray
) -> np.ndarray:
    """Steps H ← (n·4Σ_i a_i Σ_{j≠i} r_ij (z_i − z_j)(z_i − z_j)ᵀ + ν·start)/(n + ν) over the
    samples that count.

    r_ij is the share of component j in the density of the others at z_i. These are steps of EM for
    the covariance H/4 of the components exp(−2(z − z_j)ᵀH⁻¹(z − z_j)), with the start as a prior
    worth ν = 3d samples.
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
    """Correlations of the normal scores of the samples, with a ridge: outliers and monotone changes
    of a feature have no influence.
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


def automatic_kernel(
    family: Kernel,
    points: np.ndarray,
    weights: np.ndarray,
    count: int,
    measure: Measure,
    rng: Generator,
    names: Any,
    most: int,
) -> Kernel:
    """The kernel of bandwidth="auto", widened until ``most`` centers represent 90% of the samples
    (more of very many), or by (n/m)^{0.85/(d+4)}.

    A kernel that suits n samples leaves gaps between m centers. (n/m)^{1/(d+4)} is how much wider
    a kernel density estimate of m samples is, more than centers need.
    """
    options = {"count": count, "names": names, "metrics": takes_metrics(family, measure)}
    kernel = family.with_sigma(
        bandwidth_rule("auto", points, weights, rng, kernel=family, measure=measure, **options)
    )
    if count <= most:
        return kernel
    d = points.shape[1]
    widest = (count / most) ** (_WIDEST_POWER / (d + 4))
    # seeds 0, here and below: a default must not depend on chance
    centers = cluster_centers(points, weights, most, kernel, np.random.default_rng(0))
    if points.shape[0] > (looked_at := min(PER_SUPPORT_POINT * most, _MOST_EXPLAINED)):
        chosen = np.sort(np.random.default_rng(0).choice(points.shape[0], looked_at, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    enough = _UNEXPLAINED * min(1.0, _UNBIASED / count) ** 0.25
    for step in range(_WIDENINGS + 1):
        wider = kernel.scaled(widest ** (step / _WIDENINGS))
        if unexplained(points, weights, centers, closed_form(wider, measure, d)) <= enough:
            break
    return wider


def takes_metrics(kernel: Kernel, measure: Measure) -> bool:
    """Whether a metric may correlate the features: the kernel is Gaussian, and the measure has no
    boundary, which cuts features one by one, and no nodes.
    """
    return (
        isinstance(kernel, Gaussian)
        and measure.atoms is None
        and measure.without_boundary is measure
    )


def embedding_width(d: int) -> float:
    """In bandwidths of the model, the s for which the embedding sees the share (1 + 1/(2s²))^{−d/2}
    = (2/3)^{1/2} of a kernel density component in every d.

    Samples with few others near them would hardly be seen otherwise, and the fit would neglect
    them: it would be narrower than the data, and its highest-density regions would hold too few
    of them.
    """
    return 1.0 / math.sqrt(2.0 * (1.5 ** (1.0 / d) - 1.0))
