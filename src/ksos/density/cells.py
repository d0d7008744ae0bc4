"""The part of R^d where a density lives, cut into cells."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.lines import merged_windows

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["cells"]

_LOG_LEVEL = -20.0  # k² is e^{−40} there
_MASK_ELEMENTS = 1 << 24


def cells(p: SoSDensity, length: float, most: int, *, split_kinks: bool = True) -> tuple[np.ndarray, np.ndarray] | None:
    """(start, stop) of cells with sides of at most ``length`` smooth lengths which hold all of the density, each of shape (c, d).

    Cells that no support point reaches are left out; with ``split_kinks``, a cell ends where the kernel has a kink. None where there would
    be more than ``most``.
    """
    axes = [_axis(p, k, length, split_kinks) for k in range(p.n_features)]
    if math.prod(start.shape[0] for start, _ in axes) > 16 * most:
        return None
    reached = [_reached(p, k, *axis) for k, axis in enumerate(axes)]
    shape = tuple(start.shape[0] for start, _ in axes)
    mask = np.zeros(shape, dtype=bool)
    step = max(1, _MASK_ELEMENTS // math.prod(shape))
    for first in range(0, p.support_points.shape[0], step):
        rows = slice(first, first + step)
        block = reached[0][rows]
        for other in reached[1:]:
            block = block[..., None] & other[rows].reshape(other[rows].shape[0], *[1] * (block.ndim - 1), -1)
        mask |= block.any(axis=0)
    index = np.nonzero(mask)
    if index[0].shape[0] > most:
        return None
    return tuple(np.stack([axis[side][i] for axis, i in zip(axes, index, strict=True)], axis=1) for side in (0, 1))  # type: ignore[return-value]


def _axis(p: SoSDensity, k: int, length: float, split_kinks: bool) -> tuple[np.ndarray, np.ndarray]:
    first, last, smooth = merged_windows(p, k, _LOG_LEVEL)
    kinks = np.unique(p.support_points[:, k]) if split_kinks and not p.kernel.smooth else np.empty(0)
    pieces = []
    for a, b in zip(first, last, strict=True):
        for u, v in itertools.pairwise(np.r_[a, kinks[(kinks > a) & (kinks < b)], b]):
            pieces.append(np.linspace(u, v, 1 + max(1, int(np.ceil((v - u) / (length * smooth))))))
    start, stop = (np.concatenate([piece[side] for piece in pieces]) for side in (slice(None, -1), slice(1, None)))
    return start[stop > start], stop[stop > start]


def _reached(p: SoSDensity, k: int, start: np.ndarray, stop: np.ndarray) -> np.ndarray:
    """Whether the window of support point i meets interval j, shape (m, intervals)."""
    low, high, _ = p.integrals.windows(p.support_points, k, _LOG_LEVEL)
    origin = p.support_points[0, k]
    return np.asarray(((low + origin)[:, None] < stop) & (start < (high + origin)[:, None]))
