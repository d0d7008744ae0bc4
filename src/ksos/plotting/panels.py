"""Which panels a picture of a density has, and what may be asked of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ksos._validation import as_features, as_vector
from ksos.density import SoSDensity
from ksos.plotting.atoms import Atoms
from ksos.plotting.curve import Curve
from ksos.plotting.levels import with_respect_to_lebesgue
from ksos.plotting.panel import Panel
from ksos.plotting.surface import Surface
from ksos.plotting.window import window_of

__all__ = ["MOST_PAIRED", "REGIONS", "as_drawn", "as_regions", "make_panels"]

MOST_PAIRED = 8
"""The most features of a pair plot."""
REGIONS = (0.5, 0.9)
"""The probabilities of the regions that are drawn unless others are asked for."""


def as_drawn(features: Sequence[int] | None, d: int) -> tuple[int, ...]:
    """The features to draw, counted from 0; None is all of them."""
    chosen = tuple(range(d) if features is None else as_features(features, d, "features"))
    if len(chosen) > MOST_PAIRED:
        raise ValueError(
            f"a pair plot shows at most {MOST_PAIRED} features, and these would be {len(chosen)}; choose some with features=[0, 1, ...]"
        )
    return chosen


def as_regions(regions: Sequence[float] | None, density: SoSDensity) -> tuple[float, ...]:
    """The probabilities of the highest-density regions to draw."""
    discrete = density.measure.atoms is not None
    if regions is None:
        return () if discrete else REGIONS
    masses = as_vector(regions, "regions")
    if not np.all((masses > 0.0) & (masses < 1.0)):
        raise ValueError(f"regions must be probabilities between 0 and 1, such as {REGIONS}; got {masses.tolist()}")
    if discrete and masses.size:
        raise ValueError("highest-density regions are drawn for densities on a continuous measure; on a discrete one pass regions=()")
    return tuple(sorted(set(masses.tolist())))


def make_panels(
    density: SoSDensity, features: tuple[int, ...], X: np.ndarray | None, regions: tuple[float, ...], resolution: int | None
) -> dict[tuple[int, ...], Panel]:
    """Every panel that a picture of ``features`` needs."""
    k = len(features)
    singles = [(feature,) for feature in features] if k != 2 else []
    pairs = [(features[j], features[i]) for i in range(k) for j in range(i)]

    def samples(chosen: tuple[int, ...]) -> np.ndarray | None:
        return None if X is None else X[:, list(chosen)]

    if density.measure.atoms is not None:
        return {chosen: Atoms.of(density, chosen, samples(chosen)) for chosen in [*singles, *pairs]}
    d, support = density.n_features, density.support_points
    density = with_respect_to_lebesgue(density)
    panels: dict[tuple[int, ...], Panel] = {}
    windows = {}
    for feature in features:
        marginal = density if d == 1 else density.marginal([feature])
        windows[feature] = window_of(marginal, None if X is None else X[:, feature])
        if k != 2:
            panels[(feature,)] = Curve.of(marginal, support[:, feature], windows[feature], regions, resolution)
    for a, b in pairs:
        marginal = density if (a, b) == tuple(range(d)) else density.marginal([a, b])
        panels[(a, b)] = Surface.of(marginal, support[:, [a, b]], (windows[a], windows[b]), regions, resolution, small=k > 2)
    return panels
