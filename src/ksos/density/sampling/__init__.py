"""Exact sampling: by inversion of conditional distribution functions, by rejection, or square by
square, whichever is predicted to be fastest.

Each is the fastest one for some fits: rejection for few samples and for many features, squares for
smooth kernels of two to five features, inversion for one feature, for kernels with kinks in the
plane, and on a GPU.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.factor import fewer_rows, hadamard_rows
from ksos.density.sampling.inversion import (
    NODES_PER_PANEL,
    TREE_ROWS,
    draw_by_inversion,
)
from ksos.density.sampling.rejection import (
    Envelope,
    draw_by_rejection,
    envelope,
    envelope_bytes,
)
from ksos.density.sampling.trains import Squares, squares_of
from ksos.density.square import Square, feature_scales
from ksos.density.terms import Term, Terms
from ksos.ground import Array, as_choice, available_memory, on_accelerator, require_memory

__all__ = [
    "METHODS",
    "Envelope",
    "Squares",
    "draw",
    "draw_by_inversion",
    "draw_term",
    "draw_terms",
    "envelope",
    "envelope_bytes",
    "fewer_rows",
    "hadamard_rows",
    "predicted_seconds",
    "squares_of",
]

METHODS = ("auto", "inversion", "rejection", "squares")
_MEMORY_SHARE = 0.25  # of the available memory: "auto" takes no more for an envelope

_LEAST_ACCEPTANCE = 1e-6  # of proposals: fewer would take hours

# Seconds on one core of an ordinary machine, timed on the models of benchmarks/sampling.py and on
# fits of one to thirteen features. Only ratios matter, and where two methods are within a factor of
# two, either will do.
_FLOP = 5e-11  # of a matrix product
_DECOMPOSITION = 10.0  # flops of a pivoted QR or an eigendecomposition cost this many of a product
_VALUE = 3e-9  # an exponential
_COORDINATE = 1.5e-9  # a squared distance, per feature
_ROOT = 6e-7  # a root on a panel, or the random numbers of a proposal
_CALLS = 1e-3  # some dozens of calls on small arrays, for an axis or the range of a core
_MOST_TRAINS = 10  # masses of squares decay: some ten hold nearly all of it


def draw(density: Square, size: int, rng: np.random.Generator, method: str = "auto") -> np.ndarray:
    """``size`` independent samples of ``density``, shape (size, d). ``method`` is one of
    :data:`METHODS`.
    """
    method, m = as_choice(method, "method", METHODS), density.support_points.shape[0]
    if (atoms := density.measure.atoms) is not None and method != "rejection":
        # the distribution function of the nodes' numbers is inverted
        return atoms.points[rng.choice(atoms.points.shape[0], size=size, p=density.node_masses())]
    predicted = predicted_seconds(density, size) if method == "auto" else {method: 0.0}
    chosen = min(predicted, key=predicted.__getitem__)
    if chosen == "rejection":
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
        _require_acceptance(given.acceptance, "use method='auto', which predicts the fastest one")
        return draw_by_rejection(given, size, rng)
    if chosen == "squares" and (squares := density.squares) is not None:
        return squares.draw(size, rng)
    if method == "squares":
        raise ValueError(
            "method='squares' needs a smooth kernel, two features or more, and weights that do not"
            f" cancel in all digits; {density!r} has none; use 'inversion'"
        )
    # where weights cancel so much that there are no squares, rejection has no hope either
    return np.asarray(draw_by_inversion(density, size, rng))


def _require_acceptance(acceptance: float, fix: str) -> None:
    if acceptance < _LEAST_ACCEPTANCE:
        found = 1.0 / max(acceptance, 1e-300)
        raise ValueError(f"sampling would accept one proposal in {found:.3g}; {fix}")


def predicted_seconds(density: Square, size: int) -> dict[str, float]:
    """What ``size`` samples are predicted to take by each method, to a factor of about two.

    Rejection is among them if making an envelope, which shows how much it accepts, is worth it.
    """
    (m, d), rank, F = density.support_points.shape, density.rank, density.unit_factor
    lengths = np.ptp(density.support_points, axis=0) / feature_scales(density.kernel, d)
    value = m * (_VALUE + d * _COORDINATE)

    # Inversion: axes, then the factors of the conditional distributions, then for each later
    # feature a scan or a tree. There are panels for the ends of the outermost kernels, and with
    # kinks one per point. The factor of the last feature has the rank of the density, others up
    # to m.
    panels = 2.0 * float(lengths.mean()) + 23.0 if density.kernel.smooth else m + 128.0
    inversion = d * (_CALLS + panels * NODES_PER_PANEL * m * (_VALUE + _COORDINATE) + size * _ROOT)
    inversion += (d - 1) * (100.0 * _FLOP * m**3 + size * m * (_VALUE + _COORDINATE))
    for features, r in ((min(d - 1, 1), rank), (max(d - 2, 0), m)):
        leaf, interval = r * NODES_PER_PANEL, min(m, 16 * r)
        flops = 2.0 * size * m * panels * leaf
        if size > TREE_ROWS * m:
            flops = 2.0 * size * m * (leaf + interval * (math.log2(panels) + 2.0))
            rows = leaf * min(m, leaf) + 2.0 * interval**2
            flops += panels * _DECOMPOSITION * 2.0 * m * rows
        inversion += features * _FLOP * flops
    seconds = {"inversion": inversion}

    # Squares: the Gram matrix, a train per square, then the rows. Cores in the middle of a train
    # have the largest ranks, those next to its ends as many as there are functions of a feature.
    if density.kernel.smooth and d > 1:
        n = min(6.0 + 0.9 * float(lengths.mean()), float(m))
        middle, cores = min(n * n * (d - 2) / 8.0, float(m)), max(d - 3, 0)
        slices = 96.0 + 2.0 * middle
        train = 2.0 * m * n * middle * slices + _DECOMPOSITION * slices**3
        row = 80.0 * d * n * n + 2.0 * cores * n * middle * (middle + n)
        squares = min(int(np.sum(np.count_nonzero(F, axis=0) > 1)), m)
        seconds["squares"] = m * (d + 1) * value + 2.0 * _DECOMPOSITION * _FLOP * squares**3
        seconds["squares"] += 2.0 * d * _CALLS + size * Squares.M * (1.0 + Squares.BETA) * (
            value + d * _ROOT + _FLOP * row
        )
        trains = min(squares, size, _MOST_TRAINS)
        seconds["squares"] += trains * (d * _CALLS + cores * _FLOP * train)

    setup = m * m * (2.0 * _VALUE + d * _COORDINATE + 2.0 * rank * _FLOP)
    fits = envelope_bytes(m) <= _MEMORY_SHARE * available_memory()
    if setup < min(seconds.values()) and fits and (given := density.envelope) is not None:
        seconds["rejection"] = _rejection_seconds(given, size)
    return seconds


def _rejection_seconds(envelope: Envelope, size: int) -> float:
    """Proposals with their values. The random numbers and sums of a proposal take as long as twenty
    kernel values.
    """
    m, d = envelope.centers.shape
    flops = 2.0 * (envelope.weights.size + m * envelope.density.rank)
    proposal = _ROOT + (m + 20) * (_VALUE + d * _COORDINATE) + _FLOP * flops
    return size * proposal / max(envelope.acceptance, 1e-300)


def draw_terms(p: Terms, size: int, rng: np.random.Generator, method: str) -> Array:
    """Samples of p, shape (size, d): the number from each term is multinomial."""
    method = as_choice(method, "method", METHODS)
    if (own := p.square or p.own) is not None and isinstance(own, Square):
        ways = method in ("auto", "inversion") and p.measure.atoms is None
        if ways and on_accelerator(p.home) and p.on_host.square is not None:
            return draw_by_inversion(own, size, rng)
    host = p.on_host
    if host.square is not None:
        return draw(host.square, size, rng, method)
    weights = np.array([w for w, _ in host.parts])
    counts = rng.multinomial(size, weights / weights.sum())
    samples = [
        draw_term(term, int(count), rng, method)
        for count, (_, term) in zip(counts, host.parts, strict=True)
        if count
    ]
    rows = np.concatenate([np.empty((0, p.n_features)), *samples])
    return rows[rng.permutation(size)]


def draw_term(term: Term, size: int, rng: np.random.Generator, method: str = "auto") -> np.ndarray:
    """Samples of one term, shape (size, d)."""
    if isinstance(term, Corrected):
        of_products = not (term.joint.measure.by_components or term.joint.kernel.full)
        if of_products and term.interval is None and not np.any(term.joint.unit_constant):
            # a square alone, in many features far from its reference
            alone = replace(term.joint, unit_constant=None)
            return draw(alone, size, rng, method)[:, term.shown]
        if method not in ("auto", "rejection"):
            raise ValueError(
                f"method={method!r} draws squares, and a correction of normal densities is drawn by"
                " rejection from these; use method='auto'"
            )
        _require_acceptance(
            1.0 / term.bound(),
            "the correction changes its reference too much: fit with a larger regularization, or"
            " without a reference",
        )
        return term.draw(size, rng)
    if method == "auto" and term.is_normal_sum and term.support_points.shape[0] == 1:
        L = np.linalg.cholesky(0.25 * term.kernel.matrix(term.n_features))
        return term.support_points[0] + rng.standard_normal((size, term.n_features)) @ L.T
    return draw(term, size, rng, method)
