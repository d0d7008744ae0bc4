"""The setting of a robust problem: the data at the centre of the ball, the domain, kernels, and the space of densities that covers it."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos._memory import row_blocks
from ksos._validation import as_bandwidth, as_choice, as_count, as_nonnegative, as_points, as_weights
from ksos.bandwidth import bandwidth_rule
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, require_exact_mmd
from ksos.integrals import closed_form
from ksos.kernels import KERNELS, Kernel
from ksos.measures import Box, Lebesgue, Measure
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["Reference", "Setting", "as_radius", "as_reference", "as_setting", "bootstrap_radius", "grid", "pivots", "region", "scattered"]

_MOST_SUPPORT_POINTS, _MOST_OTHERWISE = {1: 64, 2: 144, 3: 125}, 200  # of the default support, by the number of features
_SPACING = 0.45  # between support points, in bandwidths: closer ones add little beyond the truncation of the space
_FINEST = 1.0 / 3.0  # of the default bandwidth of the model, in bandwidths of the embedding
_GRID_FEATURES = 3
_PAD, _NORMAL_PAD = 1.0, 3.0
_TAKEN = 1e-10
_SPAN_TOL, _MOST_LANDMARKS = 1e-7, 160  # the squared distance of a feature φ(x) to the landmarks' span at which they are enough
_GRID_SPACING, _MOST_GRID, _MOST_DATA, _SCATTERED = 0.35, 4000, 2000, 2048
_REACH = 2.0  # bandwidths of the model beyond its support points
_BLOCK_ELEMENTS = 1 << 22


# --- the data ---


@dataclass(frozen=True)
class Reference:
    """μ̂ = Σ a_i δ_{x_i}; signed weights make it an element of the RKHS, not a distribution."""

    points: np.ndarray
    weights: np.ndarray
    n_samples: int
    """How many samples it stands for: 1/Σa² of the weights as they were given, n if they are equal."""
    kernel: Kernel | None = None
    """The RKHS that it was given in, if any."""

    @property
    def is_distribution(self) -> bool:
        """Whether the weights are those of a distribution."""
        return bool(np.all(self.weights >= 0.0)) and abs(float(self.weights.sum()) - 1.0) <= 1e-9

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.points.shape[1])

    def embedding(self, kernel: Kernel) -> MeanEmbedding:
        """w_μ̂ in the RKHS of ``kernel``."""
        return MeanEmbedding(self.points, self.weights, kernel=kernel)


def as_reference(data: Any, weights: Any = None) -> Reference:
    """Samples (n, d), with weights or without, or a :class:`~ksos.MeanEmbedding`, as distinct points with weights."""
    if isinstance(data, Reference):
        return data
    if isinstance(data, MeanEmbedding):
        if weights is not None:
            raise ValueError("weights are those of samples; a MeanEmbedding has its own")
        own = to_numpy(data.weights)
        return Reference(to_numpy(data.points), own, _effective(own), data.kernel)
    if isinstance(data, SoSDensity):
        raise TypeError(f"data must be samples (n, d) or a MeanEmbedding; got {data!r}; draw samples from it with rvs")
    points = to_numpy(as_points(data, "data"))
    given = as_weights(weights, points.shape[0], "weights")
    points, given = points[given > 0.0], given[given > 0.0]
    distinct, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
    return Reference(distinct, np.bincount(inverse.ravel(), weights=given), _effective(given))


def _effective(weights: np.ndarray) -> int:
    return max(1, round(1.0 / max(float(weights @ weights), 1e-15)))


def bootstrap_radius(data: Any, kernel: Kernel, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = None) -> float:
    r"""The ``confidence``-quantile of MMD(μ̂*, μ̂) over resamples μ̂* of μ̂, of as many points as μ̂ was made of.

    MMD(μ̂, μ) of a sample to its population has the same limit law, so the ball of this radius holds the population with about this
    probability. ``radius="bootstrap"`` calls it.

    Parameters
    ----------
    data : array (n, d) or MeanEmbedding
    kernel : Kernel
        Of the MMD.
    confidence : float
        Strictly between 0 and 1.
    n_resamples : int
    rng : seed or Generator, optional

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(50, 1))
    >>> round(bootstrap_radius(X, Gaussian(1.0), rng=0), 2)
    0.17
    """
    reference = as_reference(data)
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float, np.floating)) or not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
    n_resamples = as_count(n_resamples, "n_resamples", minimum=10)
    if not reference.is_distribution:
        raise ValueError('radius="bootstrap" resamples the data, whose weights must not be negative and must sum to 1; pass a number')
    if reference.points.shape[0] < 2:
        raise ValueError('radius="bootstrap" needs at least two distinct samples: resamples of one do not differ; pass a number')
    X, a, n = reference.points, reference.weights, reference.n_samples
    generator = np.random.default_rng(rng)
    probabilities = a / a.sum()
    D = generator.multinomial(n, probabilities, size=n_resamples) / n - probabilities
    squares = np.zeros(n_resamples)
    for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
        squares += np.einsum("bi,bi->b", D[:, rows], D @ kernel(X[rows], X).T)
    return float(np.quantile(np.sqrt(np.maximum(squares, 0.0)), confidence, method="higher"))


def as_radius(radius: Any, setting: Setting, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = None) -> float:
    """A radius: a number, or "bootstrap", which computes it from the data."""
    check_radius(radius)
    if isinstance(radius, str):
        return bootstrap_radius(setting.reference, setting.embedding.kernel, confidence, n_resamples, rng)
    return float(radius)


def check_radius(radius: Any, words: tuple[str, ...] = ("bootstrap",)) -> None:
    """Raise unless it is a non-negative number or one of the words."""
    named = " or ".join(f'"{word}"' for word in words)
    if not isinstance(radius, str):
        as_nonnegative(radius, f"radius (or {named})")
    elif radius not in words:
        raise ValueError(f"radius must be a non-negative number or {named}; got {radius!r}")


# --- the setting ---


@dataclass(frozen=True)
class Setting:
    """Everything but the loss and the radius."""

    reference: Reference
    embedding: MeanEmbedding
    """w_μ̂ in the RKHS in which distances are measured."""
    space: SoSSpace
    box: Box
    """Where support points and landmarks lie: the domain, where it is bounded."""
    grows: bool
    """Whether directions may be added to what the landmarks see: not to a space of the user's."""

    @property
    def measure(self) -> Measure:
        """ρ."""
        return self.space.measure


def as_setting(
    data: Any,
    *,
    weights: Any = None,
    kernel: str | Kernel = "gaussian",
    bandwidth: Any = None,
    embedding_bandwidth: Any = None,
    measure: Measure | None = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    rng: Any = None,
) -> Setting:
    """Check what the user said and choose the rest: kernels, support points over the domain and its boundary, landmarks."""
    reference = as_reference(data, weights)
    d = reference.n_features
    if space is not None:
        return _given(reference, space, kernel, bandwidth, embedding_bandwidth, measure, n_support)
    if measure is not None and not isinstance(measure, Measure):
        raise TypeError(f"measure must be a measure such as ksos.measures.Box(low, high), or None; got {measure!r}")
    measure = Lebesgue() if measure is None else measure
    measure.check_features(d)
    most = _MOST_SUPPORT_POINTS.get(d, _MOST_OTHERWISE) if n_support is None else as_count(n_support, "n_support", minimum=2)
    model, embedding_kernel = _choose_kernels(reference, kernel, bandwidth, embedding_bandwidth, np.random.default_rng(rng))
    sigma = embedding_kernel.sigma_vector(d)
    box = region(measure, reference.points, sigma)
    if model is None:
        eta = _finest_bandwidth(box, sigma, most)
        family = embedding_kernel if kernel == embedding_kernel.name else _family(kernel)
        model = family.with_sigma(float(eta[0]) if np.all(eta == eta[0]) else eta)
    require_exact_mmd(model, embedding_kernel, measure, d)
    support = _support_cover(model, measure, box, reference.points, most)
    candidates = _landmark_candidates(embedding_kernel, model, measure, box, reference.points, reference.weights, support)
    landmarks = candidates[pivots(embedding_kernel, candidates, _SPAN_TOL, _MOST_LANDMARKS)]
    return Setting(
        reference,
        reference.embedding(embedding_kernel),
        SoSSpace(model, support, measure, embedding_kernel, landmarks),
        box,
        grows=True,
    )


def _given(
    reference: Reference, space: Any, kernel: Any, bandwidth: Any, embedding_bandwidth: Any, measure: Any, n_support: Any
) -> Setting:
    """The setting of a space that the user has made."""
    if not isinstance(space, SoSSpace):
        raise TypeError(f"space must be a ksos.SoSSpace; got {space!r}")
    also = {"bandwidth": bandwidth, "embedding_bandwidth": embedding_bandwidth, "measure": measure, "n_support": n_support}
    named = [name for name, value in also.items() if value is not None] + (["kernel"] if kernel not in ("gaussian", space.kernel) else [])
    if named:
        raise ValueError(f"the space has its own kernels, measure and support points: pass either space or {', '.join(named)}")
    d = reference.n_features
    if space.n_features != d:
        raise ValueError(f"data has {d} features, but the space has {space.n_features}")
    if reference.kernel is not None and reference.kernel != space.embedding_kernel:
        raise ValueError(
            f"data is an embedding in the RKHS of {reference.kernel!r}, but the space measures distances in that of "
            f"{space.embedding_kernel!r}"
        )
    require_exact_mmd(space.kernel, space.embedding_kernel, space.measure, d)
    cloud = np.concatenate([reference.points, to_numpy(space.support_points)])
    box = region(space.measure, cloud, space.embedding_kernel.sigma_vector(d))
    return Setting(reference, reference.embedding(space.embedding_kernel), space, box, grows=False)


def _choose_kernels(
    reference: Reference, kernel: str | Kernel, bandwidth: Any, embedding_bandwidth: Any, rng: np.random.Generator
) -> tuple[Kernel | None, Kernel]:
    """The model kernel (None: to be chosen as fine as the domain allows) and the embedding kernel.

    The distance is measured in the RKHS of a MeanEmbedding, with ``embedding_bandwidth``, with the model's own bandwidth as in the note,
    or, where none is given, with the median distance between the samples.
    """
    d = reference.n_features
    model: Kernel | None
    if isinstance(kernel, Kernel):
        if bandwidth is not None:
            raise ValueError(f"the kernel object {kernel!r} has its own bandwidth; pass bandwidth=None, or kernel={kernel.name!r}")
        model, family = kernel, kernel
        kernel.sigma_vector(d)
    else:
        family = _family(kernel)
        model = None if bandwidth is None else family.with_sigma(as_bandwidth(bandwidth, n_features=d))
    if reference.kernel is not None:
        if embedding_bandwidth is not None:
            raise ValueError(f"data is an embedding in the RKHS of {reference.kernel!r}: embedding_bandwidth must be None")
        return model, reference.kernel
    if embedding_bandwidth is not None:
        return model, family.with_sigma(as_bandwidth(embedding_bandwidth, "embedding_bandwidth", n_features=d))
    if model is not None:
        return model, model
    return None, family.with_sigma(bandwidth_rule("median", reference.points, reference.weights, rng))


def _family(name: Any) -> Kernel:
    name = as_choice(name, "kernel", KERNELS, otherwise=" or a kernel object")
    return KERNELS[name](1.0, **({} if name == "gaussian" else {"product": True}))


# --- the domain, covered ---


def region(measure: Measure, points: np.ndarray, sigma: np.ndarray) -> Box:
    """The box in which support points and landmarks lie: the domain's own boundary, and where it has none the data and a bandwidth more."""
    points, pad = (points, _PAD * sigma) if measure.atoms is None else (measure.atoms.points, np.zeros_like(sigma))
    low, high = points.min(axis=0) - pad, points.max(axis=0) + pad
    if (factor := measure.normal_factor(points.shape[1])) is not None:
        mean, scale = factor
        low, high = np.minimum(low, mean - _NORMAL_PAD * scale), np.maximum(high, mean + _NORMAL_PAD * scale)
    ends = zip(measure.boundaries(points.shape[1]), (low, high), strict=True)
    low, high = (np.where(np.isfinite(end), end, side) for end, side in ends)
    flat = ~(low < high)  # nodes in a plane, or data beyond the only boundary
    return Box(np.where(flat, np.minimum(low, high) - sigma, low), np.where(flat, np.maximum(low, high) + sigma, high))


def _finest_bandwidth(box: Box, sigma: np.ndarray, most: int) -> np.ndarray:
    """One bandwidth per feature: a third of the embedding's, or as fine as ``most`` support points can carry across the box, or the
    embedding's own, as in the note, if they are too few for that. Beyond three features: half of the embedding's.
    """
    d = sigma.shape[0]
    if d > _GRID_FEATURES:  # no grid covers a box of many features, and narrow densities are what few landmarks can see exactly
        return 0.5 * sigma
    per_side = max(math.floor(most ** (1.0 / d) + 1e-9), 2)
    return np.clip((box.high - box.low) / ((per_side - 1) * _SPACING), _FINEST * sigma, sigma)


def _support_cover(kernel: Kernel, measure: Measure, box: Box, data: np.ndarray, most: int) -> np.ndarray:
    """Support points across the box, its boundary included: a grid if one fits.

    If none does, the bandwidth is narrower than so few points can carry across the box. Up to three features, half of them then go to
    the data, which the densities near the centre of the ball must resemble, and the others make a wider grid; beyond, they are scattered.
    """
    d = data.shape[1]
    integrals = closed_form(kernel, measure, d)
    if measure.atoms is not None:
        nodes = np.unique(measure.atoms.points, axis=0)
        return nodes if nodes.shape[0] <= most else nodes[pivoted_cholesky(nodes, most, integrals, _TAKEN)]
    counts = _counts(box, _SPACING * kernel.sigma_vector(d))
    if d <= _GRID_FEATURES and math.prod(counts) <= most:
        return grid(box, counts)
    inside = np.unique(data[measure.contains(data)], axis=0)
    near = inside[pivoted_cholesky(inside, (most + 1) // 2, integrals, _TAKEN)] if inside.shape[0] else inside
    if d <= _GRID_FEATURES and (wide := _widest_counts(box, kernel.sigma_vector(d), most - near.shape[0])):
        return np.unique(np.concatenate([near, grid(box, wide)]), axis=0)
    far = scattered(box, 8 * most)
    return np.concatenate([near, far[pivoted_cholesky(far, max(most - near.shape[0], 1), integrals, _TAKEN)]])


def _counts(box: Box, spacing: np.ndarray) -> list[int]:
    """How many equidistant points, boundary included, are at most ``spacing`` apart in each feature."""
    ratio = np.minimum((box.high - box.low) / spacing, 1e6)
    return [max(2, math.ceil(r * (1.0 - 1e-12)) + 1) for r in ratio]


def _widest_counts(box: Box, sigma: np.ndarray, most: int) -> list[int] | None:
    """The counts of the finest grid of at most ``most`` points whose spacing is about the same in bandwidths; None if there is none."""
    counts = [2] * sigma.shape[0]
    if math.prod(counts) > most:
        return None
    sides = (box.high - box.low) / sigma
    while True:
        k = int(np.argmax(sides / (np.array(counts) - 1)))
        finer = [n + (j == k) for j, n in enumerate(counts)]
        if math.prod(finer) > most:
            return counts
        counts = finer


def grid(box: Box, counts: list[int]) -> np.ndarray:
    """The tensor grid with so many equidistant points per feature, boundary included.

    >>> grid(Box([0.0, 0.0], [1.0, 2.0]), [2, 3])[:3].tolist()
    [[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]]
    """
    axes = [np.linspace(low, high, n) for low, high, n in zip(box.low, box.high, counts, strict=True)]
    return np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)


def scattered(box: Box, n: int) -> np.ndarray:
    """Sobol' points of the box, some of them moved to a side, and its corners as long as they are few: the same on every call."""
    from scipy.stats import qmc  # heavy to import, and needed only here

    d = box.low.shape[0]
    n = 1 << max(4, math.ceil(math.log2(max(n, 2))))
    unit = qmc.Sobol(d + 2, rng=np.random.default_rng(0)).random(n)
    inner, which, how = unit[:, :d].copy(), (unit[:, d] * d).astype(int), unit[:, d + 1]
    rows = np.flatnonzero(how < 0.5)
    inner[rows, which[rows]] = (how[rows] < 0.25).astype(float)
    if 2**d <= n // 4:
        inner = np.concatenate([np.array(list(itertools.product((0.0, 1.0), repeat=d))), inner])
    return np.clip(box.low + (box.high - box.low) * inner, box.low, box.high)


def _landmark_candidates(
    kernel: Kernel, model: Kernel, measure: Measure, box: Box, data: np.ndarray, weights: np.ndarray, support: np.ndarray
) -> np.ndarray:
    """Points across the box and its boundary, and as far beyond as densities reach; the support points; the data (the heaviest of many)."""
    d = data.shape[1]
    if measure.atoms is not None:
        nodes = measure.atoms.points
        return np.unique(np.concatenate([support, data, nodes[:: max(1, nodes.shape[0] // _MOST_GRID)]]), axis=0)
    (lowest, highest), reach = measure.boundaries(d), _REACH * model.sigma_vector(d)
    box = Box(np.maximum(box.low - reach, lowest), np.minimum(box.high + reach, highest))
    ratio = np.minimum((box.high - box.low) / (_GRID_SPACING * kernel.sigma_vector(d)), 1e6)
    counts = [max(2, math.ceil(r) + 1) for r in ratio]
    covering = grid(box, counts) if d <= _GRID_FEATURES and math.prod(counts) <= _MOST_GRID else scattered(box, _SCATTERED)
    heaviest = np.argsort(-np.abs(weights), kind="stable")[:_MOST_DATA]
    if d > _GRID_FEATURES:  # nothing covers a box of many features: landmarks go where the data and the densities are
        covering = covering[:0]
    return np.unique(np.concatenate([covering, support, data[np.sort(heaviest)]]), axis=0)


def pivots(kernel: Kernel, candidates: np.ndarray, tol: float, most: int) -> np.ndarray:
    """Indices of candidates, each the one whose feature φ(x) is farthest from the span of those before it, until all are within √tol.

    Any distribution on the candidates is then within √tol of its projection.

    >>> from ksos.kernels import Gaussian
    >>> pivots(Gaussian(1.0), np.array([[0.0], [0.0], [1.0]]), 1e-10, 5).tolist()
    [0, 2]
    """
    n = candidates.shape[0]
    residual, L = np.ones(n), np.zeros((min(most, n), n))
    chosen: list[int] = []
    for k in range(L.shape[0]):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= tol:
            break
        column = kernel(candidates[pivot : pivot + 1], candidates)[0] - L[:k, pivot] @ L[:k]
        L[k] = column / math.sqrt(residual[pivot])
        residual = np.clip(residual - L[k] ** 2, 0.0, None)
        residual[pivot] = 0.0
        chosen.append(pivot)
    return np.array(chosen, dtype=int)
