"""The data at the centre of a ball: points with weights, and the kernels that the space and the distance are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos._validation import as_bandwidth, as_choice, as_points, as_weights
from ksos.bandwidth import bandwidth_rule
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.kernels import KERNELS, Kernel

__all__ = ["Reference", "as_reference", "choose_kernels"]


@dataclass(frozen=True)
class Reference:
    """μ̂ = Σ a_i δ_{x_i}; signed weights make it an element of the RKHS that no distribution need have."""

    points: np.ndarray
    weights: np.ndarray
    n_samples: int
    """How many samples it stands for: 1/Σa² of the weights as they were given, n where they are equal."""
    kernel: Kernel | None = None
    """The RKHS that it was given in, if it was."""

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


def choose_kernels(
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
        name = as_choice(kernel, "kernel", KERNELS, otherwise=" or a kernel object")
        family = KERNELS[name](1.0, **({} if name == "gaussian" else {"product": True}))
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
