"""From the shares of the stack to one density: all of its parts are sums of squares over the same kernel, and so is their mixture."""

from __future__ import annotations

import numpy as np

from ksos.density import SoSDensity
from ksos.density.mixture import mixture
from ksos.estimators._bumps import bump_density
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["blend"]

_NEGLIGIBLE = 1e-13
_MANY = 0.7


def blend(
    kernel: Kernel, measure: Measure, points: np.ndarray, weights: np.ndarray, parts: list[SoSDensity], shares: np.ndarray, rank: int
) -> SoSDensity:
    """Σ_j shares_j·parts_j + shares_last·(the kernel density estimate over the samples), as one density.

    Where few samples span all the others up to rounding (``rank`` says how many to expect), it is written on those and as few squares as
    it has; else on all.
    """
    integrals = closed_form(kernel, measure, points.shape[1])
    bumps = bump_density(kernel, measure, points, weights)
    most = int(_MANY * points.shape[0])
    chosen = pivoted_cholesky(points, most, integrals, 1e-12) if rank < most else np.arange(most)
    if chosen.shape[0] == most:
        return mixture([*parts, bumps], shares)
    space = SoSSpace(kernel, points[chosen], measure)
    columns = []
    for p, share in zip([*parts, bumps], shares, strict=True):
        W = np.exp(integrals.log_gram(points[chosen], p.support_points) - space.log_unit)
        columns.append(np.sqrt(share) * np.exp(0.5 * (space.log_unit - p.log_unit)) * (space.T.T @ (W @ p.unit_factor)))
    U, s, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    keep = s**2 > _NEGLIGIBLE * s[0] ** 2
    return space.density(U[:, keep] * s[keep] / np.linalg.norm(s[keep]))
