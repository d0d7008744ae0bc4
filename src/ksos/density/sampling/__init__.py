"""Exact sampling: by inversion of conditional distribution functions or by rejection, whichever is
predicted to be faster.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.sampling.inversion import axis_panels, draw_by_inversion, scan_flops, tree_flops
from ksos.density.sampling.rejection import Envelope, draw_by_rejection, envelope, envelope_bytes
from ksos.density.sampling.trains import squares_of
from ksos.density.square import feature_scales
from ksos.ground.memory import available_memory, require_memory
from ksos.ground.validation import as_choice

if TYPE_CHECKING:
    from ksos.density.square import Square

__all__ = [
    "squares_of",
    "envelope",
    "METHODS",
    "draw",
    "faster_envelope",
    "inversion_seconds",
    "rejection_seconds",
    "rejection_setup_seconds",
    "squares_seconds",
]

METHODS = ("auto", "inversion", "rejection", "squares")
_MEMORY_SHARE = 0.25  # of the available memory: "auto" takes no more for an envelope
# seconds, on one core of an ordinary machine; only their ratios matter
_FLOP, _KERNEL_VALUE, _COORDINATE = 5e-11, 3e-9, 1.5e-9
_NEWTON, _PROPOSAL, _NORMAL = 6e-7, 3e-7, 3e-8
# more than another method would take: as long as a person waits without a reason
_MOST_SECONDS = 10.0
_GRAM_ROWS, _MOST_LOOKED_AT = 40, 20
_MOST_TRAINS, _EXCESS = 40, 2.0


def draw(density: Square, size: int, rng: np.random.Generator, method: str = "auto") -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d); ``method`` is one of
    :data:`METHODS`.
    """
    method = as_choice(method, "method", METHODS)
    m = density.support_points.shape[0]
    if method == "rejection":
        require_memory(
            envelope_bytes(m),
            f"the envelope of a density with {m} support points",
            "compress it, or use method='inversion'",
        )
        given = envelope(density)
        if given is None:
            raise ValueError(
                f"no envelope of a density on {density.measure!r} is known: method='rejection'"
                " needs one; use 'inversion'"
            )
        if (seconds := rejection_seconds(given, size)) > _MOST_SECONDS + inversion_seconds(
            density, size
        ):
            raise ValueError(
                "method='rejection' accepts one proposal in"
                f" {1.0 / max(given.acceptance, 1e-300):.3g} here: {size} samples would take about"
                f" {seconds:.3g} s; use method='auto', which predicts the fastest method"
            )
        return draw_by_rejection(given, size, rng)
    if (
        atoms := density.measure.atoms
    ) is not None:  # the distribution function of the nodes' numbers is inverted
        return atoms.points[rng.choice(atoms.points.shape[0], size=size, p=density.node_masses())]
    if method == "squares":
        if (squares := density.squares) is None:
            raise ValueError(
                f"method='squares' needs a smooth kernel and two features or more; {density!r} has"
                " none; use 'inversion'"
            )
        return squares.draw(size, rng)
    if method == "inversion":
        return draw_by_inversion(density, size, rng)
    by_squares = squares_seconds(density, size)
    faster = faster_envelope(density, size, by_squares)
    seconds = (
        inversion_seconds(density, size) if faster is None else rejection_seconds(faster, size)
    )
    if by_squares < seconds and (squares := density.squares) is not None:
        return squares.draw(size, rng)
    return (
        draw_by_inversion(density, size, rng)
        if faster is None
        else draw_by_rejection(faster, size, rng)
    )


def faster_envelope(density: Square, size: int, others: float = math.inf) -> Envelope | None:
    """The envelope, if ``size`` samples are predicted to come faster by rejection from it than by
    inversion, or than ``others`` do.
    """
    others = min(others, inversion_seconds(density, size))
    if (
        rejection_setup_seconds(density) > others
        or envelope_bytes(density.support_points.shape[0]) > _MEMORY_SHARE * available_memory()
    ):
        return None
    candidate = density.envelope
    return (
        candidate if candidate is not None and rejection_seconds(candidate, size) < others else None
    )


def inversion_seconds(density: Square, size: int) -> float:
    """Predicted seconds of ``size`` samples by inversion, to a factor of about two.

    They are spent on the factors of the conditional laws, then for each later feature on a scan or
    a tree. Of many features some are looked at: cutting all of them into panels would take longer
    than many a draw.
    """
    m, d = density.support_points.shape
    total = size * _NEWTON + (d - 1) * 2.0 * _FLOP * m * m * (_GRAM_ROWS * m + 12 * m)
    later = np.unique(np.linspace(1, d - 1, min(d - 1, _MOST_LOOKED_AT)).astype(int))
    for k in later:
        sizes = len(axis_panels(density, k)[0]), (density.rank if k == d - 1 else m), m
        per_sample = size * (_NEWTON + m * (_KERNEL_VALUE + _COORDINATE))
        total += (
            (d - 1)
            / later.size
            * (per_sample + _FLOP * min(scan_flops(size, *sizes), tree_flops(size, *sizes)))
        )
    return total


def squares_seconds(density: Square, size: int) -> float:
    """Predicted seconds of ``size`` samples square by square, to a factor of about two: a train per
    square, then the rows.
    """
    m, d = density.support_points.shape
    if not density.kernel.smooth or d < 2:
        return math.inf
    spread = np.ptp(density.support_points, axis=0) / feature_scales(density.kernel, d)
    n = float(np.minimum(6.0 + 1.3 * spread, m).max())  # functions of a feature
    middle = 1.0 if d == 2 else n if d == 3 else min(0.25 * n * n, m)  # the largest rank of a train
    train = 2.0 * _FLOP * m * n * middle * (d - 1) * (middle + 48.0) + 2e-3
    row = d * (_NEWTON + 2.0 * _FLOP * n * (middle * middle + n * (middle + 40.0))) + m * (
        _KERNEL_VALUE + d * _COORDINATE
    )
    mixed = min(
        int(np.sum(np.count_nonzero(density.unit_factor, axis=0) > 1)), m
    )  # squares of more than one point
    setup = (
        m * m * (d + 1) * (_KERNEL_VALUE + d * _COORDINATE + 100.0 * _FLOP)
        + 10.0 * _FLOP * mixed**3
        + 2e-3 * d
    )
    return setup + min(mixed, size, _MOST_TRAINS) * train + size * _EXCESS * row


def rejection_setup_seconds(density: Square) -> float:
    """Predicted seconds of making the envelope; its acceptance is known only after that."""
    m, d = density.support_points.shape
    return m * m * (2.0 * _KERNEL_VALUE + d * _COORDINATE + 2.0 * density.rank * _FLOP)


def rejection_seconds(envelope: Envelope, size: int) -> float:
    """Predicted seconds of ``size`` samples by rejection from an envelope."""
    if envelope.acceptance <= 0.0:
        return float("inf")
    m, d = envelope.density.support_points.shape
    value = m * (_KERNEL_VALUE + d * _COORDINATE) + 2.0 * _FLOP * m * (m + envelope.density.rank)
    return size / envelope.acceptance * (value + _PROPOSAL + d * _NORMAL)
