"""Predicted seconds of either way to sample, from the sizes of the problem: good to a factor of about two, which is all a choice needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.density.sampling.envelopes import Envelope
from ksos.density.sampling.location import scan_flops, tree_flops
from ksos.density.sampling.panels import panel_edges

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["inversion_seconds", "rejection_seconds", "rejection_setup_seconds"]

# seconds, on one core of an ordinary machine; only their ratios matter
_FLOP = 5e-11
_KERNEL_VALUE = 3e-9
_COORDINATE = 1.5e-9
_NEWTON = 6e-7
_PROPOSAL = 3e-7
_NORMAL = 3e-8
_GRAM_ROWS = 40


def inversion_seconds(density: SoSDensity, size: int) -> float:
    """Of ``size`` samples by inversion: the factors of the conditional laws, then for each later feature a scan or a tree."""
    m, d = density.support_points.shape
    n_panels = [panel_edges(density, k)[0].shape[0] for k in range(d)]
    total = size * _NEWTON + (d - 1) * 2.0 * _FLOP * m * m * (_GRAM_ROWS * m + 12 * m)
    for k in range(1, d):
        sizes = n_panels[k], (density.rank if k == d - 1 else m), m
        per_sample = size * (_NEWTON + m * (_KERNEL_VALUE + _COORDINATE))
        total += per_sample + _FLOP * min(scan_flops(size, *sizes), tree_flops(size, *sizes))
    return total


def rejection_setup_seconds(density: SoSDensity) -> float:
    """Of the envelope, which must be there before its acceptance is known."""
    m, d = density.support_points.shape
    return m * m * (2.0 * _KERNEL_VALUE + d * _COORDINATE + 2.0 * density.rank * _FLOP)


def rejection_seconds(envelope: Envelope, size: int) -> float:
    """Of ``size`` samples by rejection from an envelope that is there."""
    if envelope.acceptance <= 0.0:
        return float("inf")
    m, d = envelope.density.support_points.shape
    value = m * (_KERNEL_VALUE + d * _COORDINATE) + 2.0 * _FLOP * m * (m + envelope.density.rank)
    return size / envelope.acceptance * (value + _PROPOSAL + d * _NORMAL)
