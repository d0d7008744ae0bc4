"""The setting of a robust problem: the data at the centre of the ball, the domain, kernels, and the
space of densities that covers it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.ground.arrays import to_numpy
from ksos.ground.memory import row_blocks
from ksos.ground.validation import as_bandwidth, as_count, as_nonnegative, as_points, as_weights
from ksos.kernels import Kernel, kernel_form
from ksos.measures import Box, Lebesgue, Measure
from ksos.space.bandwidth import bandwidth_rule
from ksos.space.embedding import MeanEmbedding, require_exact_mmd
from ksos.space.space import SoSSpace
from ksos.space.support import finest_bandwidth, landmark_candidates, pivots, region, support_cover

__all__ = [
    "Reference",
    "Setting",
    "as_radius",
    "as_reference",
    "as_setting",
    "bootstrap_radius",
    "check_radius",
]

_MOST_SUPPORT_POINTS, _MOST_OTHERWISE = (
    {1: 64, 2: 144, 3: 125},
    200,
)  # of the default support, by the number of features
_SPAN_TOL, _MOST_LANDMARKS = (
    1e-7,
    160,
)  # the squared distance of a feature φ(x) to the landmarks' span at which they are enough
_BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Reference:
    """μ̂ = Σ a_i δ_{x_i}; signed weights make it an element of the RKHS, not a distribution."""

    points: np.ndarray
    weights: np.ndarray
    n_samples: int
    """How many samples it stands for: 1/Σa² of the weights as they were given, n if they are equal.
    """
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
    """Samples (n, d), with weights or without, or a :class:`~ksos.MeanEmbedding`, as distinct
    points with weights.
    """
    if isinstance(data, Reference):
        return data
    if isinstance(data, MeanEmbedding):
        if weights is not None:
            raise ValueError("weights are those of samples; a MeanEmbedding has its own")
        own = to_numpy(data.weights)
        return Reference(to_numpy(data.points), own, _effective(own), data.kernel)
    if isinstance(data, SoSDensity):
        raise TypeError(
            f"data must be samples (n, d) or a MeanEmbedding; got {data!r}; draw samples from it"
            " with rvs"
        )
    points = to_numpy(as_points(data, "data"))
    given = as_weights(weights, points.shape[0], "weights")
    points, given = points[given > 0.0], given[given > 0.0]
    distinct, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
    return Reference(distinct, np.bincount(inverse.ravel(), weights=given), _effective(given))


def _effective(weights: np.ndarray) -> int:
    return max(1, round(1.0 / max(float(weights @ weights), 1e-15)))


def bootstrap_radius(
    data: Any, kernel: Kernel, confidence: float = 0.95, n_resamples: int = 1000, rng: Any = None
) -> float:
    r"""The ``confidence``-quantile of MMD(μ̂*, μ̂) over resamples μ̂* of μ̂, of as many points as
    μ̂ was made of.

    MMD(μ̂, μ) of a sample to its population has the same limit law, so the ball of this radius
    holds the population with about this probability. ``radius="bootstrap"`` calls it.

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
    if (
        isinstance(confidence, bool)
        or not isinstance(confidence, (int, float, np.floating))
        or not 0.0 < confidence < 1.0
    ):
        raise ValueError(f"confidence must lie strictly between 0 and 1; got {confidence!r}")
    n_resamples = as_count(n_resamples, "n_resamples", minimum=10)
    if not reference.is_distribution:
        raise ValueError(
            'radius="bootstrap" resamples the data, whose weights must not be negative and must sum'
            " to 1; pass a number"
        )
    if reference.points.shape[0] < 2:
        raise ValueError(
            'radius="bootstrap" needs at least two distinct samples: resamples of one do not'
            " differ; pass a number"
        )
    X, a, n = reference.points, reference.weights, reference.n_samples
    generator = np.random.default_rng(rng)
    probabilities = a / a.sum()
    D = generator.multinomial(n, probabilities, size=n_resamples) / n - probabilities
    squares = np.zeros(n_resamples)
    for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
        squares += np.einsum("bi,bi->b", D[:, rows], D @ kernel(X[rows], X).T)
    return float(np.quantile(np.sqrt(np.maximum(squares, 0.0)), confidence, method="higher"))


def as_radius(
    radius: Any,
    setting: Setting,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    rng: Any = None,
) -> float:
    """A radius: a number, or "bootstrap", which computes it from the data."""
    check_radius(radius)
    if isinstance(radius, str):
        return bootstrap_radius(
            setting.reference, setting.embedding.kernel, confidence, n_resamples, rng
        )
    return float(radius)


def check_radius(radius: Any, words: tuple[str, ...] = ("bootstrap",)) -> None:
    """Raise unless it is a non-negative number or one of the words."""
    named = " or ".join(f'"{word}"' for word in words)
    if not isinstance(radius, str):
        as_nonnegative(radius, f"radius (or {named})")
    elif radius not in words:
        raise ValueError(f"radius must be a non-negative number or {named}; got {radius!r}")


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


@np.errstate(under="ignore")
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
    """Check what the user said and choose the rest: kernels, support points over the domain and its
    boundary, landmarks.
    """
    reference = as_reference(data, weights)
    d = reference.n_features
    if space is not None:
        return _given(reference, space, kernel, bandwidth, embedding_bandwidth, measure, n_support)
    if measure is not None and not isinstance(measure, Measure):
        raise TypeError(
            "measure must be a measure such as ksos.measures.Box(low, high), or None; got"
            f" {measure!r}"
        )
    measure = Lebesgue() if measure is None else measure
    measure.check_features(d)
    most = (
        _MOST_SUPPORT_POINTS.get(d, _MOST_OTHERWISE)
        if n_support is None
        else as_count(n_support, "n_support", minimum=2)
    )
    model, embedding_kernel = _choose_kernels(
        reference, kernel, bandwidth, embedding_bandwidth, np.random.default_rng(rng)
    )
    sigma = embedding_kernel.sigma_vector(d)
    box = region(measure, reference.points, sigma)
    if model is None:
        eta = finest_bandwidth(box, sigma, most)
        family = embedding_kernel if kernel == embedding_kernel.name else kernel_form(kernel)
        model = family.with_sigma(float(eta[0]) if np.all(eta == eta[0]) else eta)
    require_exact_mmd(model, embedding_kernel, measure, d)
    support = support_cover(model, measure, box, reference.points, most)
    candidates = landmark_candidates(
        embedding_kernel, model, measure, box, reference.points, reference.weights, support
    )
    landmarks = candidates[pivots(embedding_kernel, candidates, _SPAN_TOL, _MOST_LANDMARKS)]
    space = SoSSpace(model, support, measure, embedding_kernel, landmarks)
    return Setting(reference, reference.embedding(embedding_kernel), space, box, grows=True)


def _given(
    reference: Reference,
    space: Any,
    kernel: Any,
    bandwidth: Any,
    embedding_bandwidth: Any,
    measure: Any,
    n_support: Any,
) -> Setting:
    """The setting of a space that the user has made."""
    if not isinstance(space, SoSSpace):
        raise TypeError(f"space must be a ksos.SoSSpace; got {space!r}")
    also = {
        "bandwidth": bandwidth,
        "embedding_bandwidth": embedding_bandwidth,
        "measure": measure,
        "n_support": n_support,
    }
    named = [name for name, value in also.items() if value is not None] + (
        ["kernel"] if kernel not in ("gaussian", space.kernel) else []
    )
    if named:
        raise ValueError(
            "the space has its own kernels, measure and support points: pass either space or"
            f" {', '.join(named)}"
        )
    d = reference.n_features
    if space.n_features != d:
        raise ValueError(f"data has {d} features, but the space has {space.n_features}")
    if reference.kernel is not None and reference.kernel != space.embedding_kernel:
        own, other = reference.kernel, space.embedding_kernel
        raise ValueError(
            f"data is an embedding in the RKHS of {own!r}, but the space measures distances in that"
            f" of {other!r}"
        )
    require_exact_mmd(space.kernel, space.embedding_kernel, space.measure, d)
    cloud = np.concatenate([reference.points, to_numpy(space.support_points)])
    box = region(space.measure, cloud, space.embedding_kernel.sigma_vector(d))
    return Setting(reference, reference.embedding(space.embedding_kernel), space, box, grows=False)


def _choose_kernels(
    reference: Reference,
    kernel: str | Kernel,
    bandwidth: Any,
    embedding_bandwidth: Any,
    rng: np.random.Generator,
) -> tuple[Kernel | None, Kernel]:
    """The model kernel (None: to be chosen as fine as the domain allows) and the embedding kernel.

    The distance is measured in the RKHS of a MeanEmbedding, with ``embedding_bandwidth``, with the
    model's own bandwidth as in the note, or, where none is given, with the median distance between
    the samples.
    """
    d, family = reference.n_features, kernel_form(kernel)
    model: Kernel | None = None
    if isinstance(kernel, Kernel):
        if bandwidth is not None:
            raise ValueError(
                f"the kernel object {kernel!r} has its own bandwidth; pass bandwidth=None, or"
                f" kernel={kernel.name!r}"
            )
        model = kernel
        kernel.sigma_vector(d)
    elif bandwidth is not None:
        model = family.with_sigma(as_bandwidth(bandwidth, n_features=d))
    if reference.kernel is not None:
        if embedding_bandwidth is not None:
            raise ValueError(
                f"data is an embedding in the RKHS of {reference.kernel!r}: embedding_bandwidth"
                " must be None"
            )
        return model, reference.kernel
    if embedding_bandwidth is not None:
        return model, family.with_sigma(
            as_bandwidth(embedding_bandwidth, "embedding_bandwidth", n_features=d)
        )
    if model is not None:
        return model, model
    return None, family.with_sigma(
        bandwidth_rule("median", reference.points, reference.weights, rng)
    )
