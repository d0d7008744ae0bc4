"""The setting of a robust problem: the data, the domain, the space of densities that covers it, and what sees their embeddings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos._validation import as_count
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, require_exact_mmd
from ksos.kernels import Kernel
from ksos.measures import Box, Lebesgue, Measure
from ksos.robust.cover import finest_bandwidth, most_support_points, region, support_cover
from ksos.robust.extended import ExtendedSpace, seeing
from ksos.robust.landmarks import MOST_LANDMARKS, SPAN_TOL, landmark_candidates, pivots
from ksos.robust.reference import Reference, as_reference, choose_kernels
from ksos.robust.witness import Witness
from ksos.space import SoSSpace

__all__ = ["Setting", "as_setting"]

_MOST_DIRECTIONS = 60


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

    def sharper(self, C: np.ndarray, p: SoSDensity, distance: float, data: MeanEmbedding | None = None) -> Setting | None:
        """The same with one more direction: that in which p, the density of C, is away from the data by exactly ``distance``.

        None for a space of the user's, where enough of them have been taken, or where only rounding is left to see.
        """
        taken = len(self.space.directions) if isinstance(self.space, ExtendedSpace) else 0
        if not self.grows or taken >= _MOST_DIRECTIONS:
            return None
        space = seeing(self.space, C, Witness(p, self.embedding if data is None else data), distance)
        return None if space is None else replace(self, space=space)


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
    """Check what the user said and choose the rest: kernels, support points over the domain and its rim, landmarks."""
    reference = as_reference(data, weights)
    d = reference.n_features
    if space is not None:
        return _given(reference, space, kernel, bandwidth, embedding_bandwidth, measure, n_support)
    if measure is not None and not isinstance(measure, Measure):
        raise TypeError(f"measure must be a measure such as ksos.measures.Box(low, high), or None; got {measure!r}")
    measure = Lebesgue() if measure is None else measure
    measure.check_features(d)
    most = most_support_points(d, None if n_support is None else as_count(n_support, "n_support", minimum=2))
    model, embedding_kernel = choose_kernels(reference, kernel, bandwidth, embedding_bandwidth, np.random.default_rng(rng))
    sigma = embedding_kernel.sigma_vector(d)
    box = region(measure, reference.points, sigma)
    if model is None:
        eta = finest_bandwidth(box, sigma, most)
        family = (
            embedding_kernel
            if kernel == embedding_kernel.name
            else choose_kernels(reference, kernel, 1.0, None, np.random.default_rng(0))[0]
        )
        assert family is not None
        model = family.with_sigma(float(eta[0]) if np.all(eta == eta[0]) else eta)
    require_exact_mmd(model, embedding_kernel, measure, d)
    support = support_cover(model, measure, box, reference.points, most)
    candidates = landmark_candidates(embedding_kernel, model, measure, box, reference.points, reference.weights, support)
    landmarks = candidates[pivots(embedding_kernel, candidates, SPAN_TOL, MOST_LANDMARKS)]
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
