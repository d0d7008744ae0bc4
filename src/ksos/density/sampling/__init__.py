"""Exact sampling: by inversion of conditional distribution functions, by rejection, or square by
square, whichever is predicted to be fastest.

Each is the fastest one for some fits: rejection for few samples and for many features, squares for
smooth kernels of two to five features, inversion for one feature, for kernels with kinks in the
plane, and on a GPU.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.moments import node_masses
from ksos.density.sampling.inversion import (
    NODES_PER_PANEL,
    TREE_ROWS,
    draw_by_inversion,
    fewer_rows,
    hadamard_rows,
)
from ksos.density.sampling.rejection import Envelope, draw_by_rejection, envelope, envelope_bytes
from ksos.density.sampling.trains import Squares, squares_of
from ksos.density.standard import feature_scales
from ksos.ground.memory import available_memory, require_memory
from ksos.ground.validation import as_choice

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["METHODS", "Envelope", "Squares", "draw", "draw_by_inversion", "envelope"]
__all__ += ["envelope_bytes", "fewer_rows", "hadamard_rows", "predicted_seconds"]
__all__ += ["squares_of"]

METHODS = ("auto", "inversion", "rejection", "squares")
_MEMORY_SHARE = 0.25  # of the available memory: "auto" takes no more for an envelope
_MOST_SECONDS = 10.0  # more than inversion takes: as long as a person waits without a reason

# Seconds on one core of an ordinary machine, timed on the models of benchmarks/sampling.py and on
# fits of one to thirteen features. Only ratios matter, and where two methods are within a factor of
# two, either will do.
_FLOP = 5e-11  # of a matrix product
_DECOMPOSITION = 10.0  # flops of a pivoted QR or an eigendecomposition cost this many of a product
_VALUE = 3e-9  # an exponential
_COORDINATE = 1.5e-9  # a squared distance, per feature
_ROOT = 6e-7  # a root on a panel, or the random numbers of a proposal
_CALLS = 1e-3  # some dozens of calls on small arrays, for an axis or the range of a core
_PROPOSALS = 1.65  # per sample of a square
_MOST_TRAINS = 40  # the squares of a full factor decay: later ones are hardly ever drawn


def draw(
    density: SoSDensity, size: int, rng: np.random.Generator, method: str = "auto"
) -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d). ``method`` is one of
    :data:`METHODS`.
    """
    method = as_choice(method, "method", METHODS)
    if method == "rejection":
        return draw_by_rejection(_asked_for(density, size), size, rng)
    if (atoms := density.measure.atoms) is not None:
        # the distribution function of the nodes' numbers is inverted
        return atoms.points[rng.choice(atoms.points.shape[0], size=size, p=node_masses(density))]
    if method == "auto":
        seconds = predicted_seconds(density, size)
        method = min(seconds, key=seconds.__getitem__)
        if method == "rejection" and (given := density.envelope) is not None:
            return draw_by_rejection(given, size, rng)
        if method == "squares" and density.squares is None:
            # where weights cancel that much, rejection has no hope either
            method = "inversion"
    if method == "inversion":
        return np.asarray(draw_by_inversion(density, size, rng))
    if (squares := density.squares) is None:
        raise ValueError(
            "method='squares' needs a smooth kernel, two features or more, and weights that do not"
            f" cancel in all digits; {density!r} has none; use 'inversion'"
        )
    return squares.draw(size, rng)


def _asked_for(density: SoSDensity, size: int) -> Envelope:
    """The envelope of a density, if rejection from it is possible in a time that anybody waits."""
    m = density.support_points.shape[0]
    require_memory(
        envelope_bytes(m),
        f"the envelope of a density with {m} support points",
        "compress it, or use method='inversion'",
    )
    if (given := density.envelope) is None:
        raise ValueError(
            f"no envelope of a density on {density.measure!r} is known: method='rejection'"
            " needs one; use 'inversion'"
        )
    if (seconds := _rejection_seconds(given, size)) > _MOST_SECONDS + _inversion_seconds(
        density, size
    ):
        raise ValueError(
            "method='rejection' accepts one proposal in"
            f" {1.0 / max(given.acceptance, 1e-300):.3g} here: {size} samples would take about"
            f" {seconds:.3g} s; use method='auto', which predicts the fastest method"
        )
    return given


def predicted_seconds(density: SoSDensity, size: int) -> dict[str, float]:
    """What ``size`` samples are predicted to take by each method, to a factor of about two.

    Rejection is among them if making an envelope, which shows how much it accepts, is worth it.
    """
    m, d = density.support_points.shape
    seconds = {"inversion": _inversion_seconds(density, size)}
    if density.kernel.smooth and d > 1:
        seconds["squares"] = _squares_seconds(density, size)
    setup = m * m * (2.0 * _VALUE + d * _COORDINATE + 2.0 * density.rank * _FLOP)
    fits = envelope_bytes(m) <= _MEMORY_SHARE * available_memory()
    if setup < min(seconds.values()) and fits and (given := density.envelope) is not None:
        seconds["rejection"] = _rejection_seconds(given, size)
    return seconds


def _lengths(density: SoSDensity) -> np.ndarray:
    """How many lengths of the kernel the support points of each feature span."""
    scales = feature_scales(density.kernel, density.n_features)
    return np.asarray(np.ptp(density.support_points, axis=0) / scales)


def _inversion_seconds(density: SoSDensity, size: int) -> float:
    """Axes, then the factors of the conditional distributions, then for each later feature a scan
    or a tree. Factors have the rank of the density for the last feature, and up to m before.
    """
    m, d = density.support_points.shape
    # ends of the kernels of the outermost points, and for kernels with kinks a panel per point
    panels = 2.0 * float(_lengths(density).mean()) + 23.0 if density.kernel.smooth else m + 128.0
    seconds = d * (_CALLS + panels * NODES_PER_PANEL * m * (_VALUE + _COORDINATE) + size * _ROOT)
    seconds += (d - 1) * (100.0 * _FLOP * m**3 + size * m * (_VALUE + _COORDINATE))
    for features, rank in ((min(d - 1, 1), density.rank), (d - 2, m)):
        leaf, interval = rank * NODES_PER_PANEL, min(m, 16 * rank)
        flops = 2.0 * size * m * panels * leaf
        if size > TREE_ROWS * m:
            flops = 2.0 * size * m * (leaf + interval * (math.log2(panels) + 2.0))
            rows = leaf * min(m, leaf) + 2.0 * interval**2
            flops += panels * _DECOMPOSITION * 2.0 * m * rows
        seconds += max(features, 0) * _FLOP * flops
    return seconds


def _squares_seconds(density: SoSDensity, size: int) -> float:
    """The Gram matrix, a train per square, then the rows. Cores in the middle of a train have the
    largest ranks, those next to the ends that of their functions.
    """
    m, d = density.support_points.shape
    n = float(np.minimum(6.0 + 1.3 * _lengths(density), m).max())  # functions of a feature
    middle, cores = min(n * n * max(d - 2, 0) / 8.0, float(m)), max(d - 3, 0)
    slices = 96.0 + 2.0 * middle
    train = d * 2.0 * _CALLS + cores * _FLOP * (
        2.0 * m * n * middle * slices + _DECOMPOSITION * slices**3
    )
    value = m * (_VALUE + d * _COORDINATE)
    row = (
        value + d * (_ROOT + 80.0 * _FLOP * n * n) + cores * 2.0 * _FLOP * n * middle * (middle + n)
    )
    squares = min(int(np.sum(np.count_nonzero(density.unit_factor, axis=0) > 1)), m)
    setup = m * (d + 1) * value + 2.0 * _DECOMPOSITION * _FLOP * squares**3 + 2.0 * _CALLS * d
    return setup + min(squares, size, _MOST_TRAINS) * train + size * _PROPOSALS * row


def _rejection_seconds(envelope: Envelope, size: int) -> float:
    """Proposals with their values, from an envelope that is there."""
    if envelope.acceptance <= 0.0:
        return math.inf
    m, d = envelope.centres.shape
    flops = 2.0 * (envelope.weights.size + m * envelope.density.rank)
    # random numbers and sums of a proposal take as long as twenty kernel values more
    proposal = _ROOT + (m + 20) * (_VALUE + d * _COORDINATE) + _FLOP * flops
    return size / envelope.acceptance * proposal
