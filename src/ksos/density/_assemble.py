"""How every operation on a density ends: rows of a factor with scales of their own become a density of mass one, in natural units."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["assemble", "unit_rows"]

_EPSILON = float(np.finfo(np.float64).eps)
_LARGEST_LOG_ROW = 300.0  # squares of such rows, times kernel values, are still floats
_LARGEST_LOG_GRAM = 690.0
_CANCELLED = (8.0 * _EPSILON) ** 2  # the square of an amplitude that is rounding and nothing else
_DOUBTFUL = 1e-8


def unit_rows(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of ``factor`` scaled to length one, and the logarithms of their lengths; rows of zeros stay, with length −inf."""
    largest = np.abs(factor).max(axis=1)
    scale = np.where(largest > 0.0, largest, 1.0)
    rows = factor / scale[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(divide="ignore"):
        log_lengths = np.log(lengths) + np.log(scale)
    return rows / np.where(lengths > 0.0, lengths, 1.0)[:, None], log_lengths


def assemble(
    like: SoSDensity,
    kernel: Kernel,
    points: np.ndarray,
    measure: Measure,
    factor: np.ndarray,
    log_rows: np.ndarray | float = 0.0,
    *,
    nothing_left: str = "no mass is left",
) -> SoSDensity:
    """The density ∝ ‖Gᵀk(x)‖² with G = diag(e^{log_rows})·factor, of the class of ``like``, scaled to mass one.

    The scales are logarithms because they may differ by more than floats do; only their sum with the norms of k(·, x̃_i) in L²(ρ) matters.
    Support points that coincide become one, so that their amplitudes cancel before they are squared. A mass that is nothing but
    rounding is an error, which says ``nothing_left``.
    """
    log_diagonal = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    rows, log_lengths = unit_rows(factor)
    scales = np.broadcast_to(log_rows, log_lengths.shape)
    largest = scales[np.isfinite(log_lengths) & np.isfinite(scales)].max(initial=-np.inf)
    log_lengths = log_lengths + (scales - (largest if np.isfinite(largest) else 0.0))  # in this order: scales may be huge, lengths are not
    levels = log_lengths + 0.5 * log_diagonal
    alive = np.isfinite(levels)
    if not np.any(alive):
        raise ValueError(nothing_left)
    rows, log_lengths, log_diagonal, points, levels = (a[alive] for a in (rows, log_lengths, log_diagonal, points, levels))
    log_unit = float(log_diagonal.max())
    log_lengths = log_lengths - levels.max() + 0.5 * log_unit
    excess = max(float(log_lengths.max()) - _LARGEST_LOG_ROW, 0.0)
    if 2.0 * excess > _LARGEST_LOG_GRAM:
        raise ValueError(f"{nothing_left}: on {measure!r} the kernels of its support points differ by more than floating-point numbers can")
    with np.errstate(under="ignore"):
        G = rows * np.exp(log_lengths - excess)[:, None]
    points, G = _merge(points, G)
    if G.shape[1] > G.shape[0]:  # triangular, G = RᵀQᵀ, with an error relative to each row
        G = np.asarray(np.linalg.qr(G.T, mode="r")).T
    out = like.from_units(kernel, points, G, log_unit - 2.0 * excess, measure)
    mass = out.mass()
    if not mass > _smallest_mass(out, mass):
        raise ValueError(nothing_left)
    out.unit_factor = out.unit_factor / np.sqrt(mass)
    return out


def _smallest_mass(density: SoSDensity, mass: float) -> float:
    """What rounding can leave of no mass at all: Σ_ij ‖G_i‖‖G_j‖W_ij is a mass without cancellation, and ε of it is lost."""
    if mass > _DOUBTFUL:
        return 0.0
    lengths = np.sqrt(np.einsum("ij,ij->i", density.unit_factor, density.unit_factor))[:, None]
    uncancelled = density.from_units(density.kernel, density.support_points, lengths, density.log_unit, density.measure)
    return max(_CANCELLED, 4.0 * _EPSILON * uncancelled.mass())


def _merge(points: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal points become one, in the order of their first appearance, and their rows of the factor are added."""
    distinct, first, inverse = np.unique(points + 0.0, axis=0, return_index=True, return_inverse=True)
    if distinct.shape[0] == points.shape[0]:
        return points, factor
    order = np.argsort(first)
    place = np.argsort(order)[inverse.ravel()]
    merged = np.zeros((distinct.shape[0], factor.shape[1]))
    np.add.at(merged, place, factor)
    return points[first[order]], merged
