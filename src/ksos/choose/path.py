"""Penalised likelihood fits along a path of λ: what cross-validation does hundreds of times, as
accurately as it needs and no more.

The problem is that of ``regularization_path(NegativeLogLikelihood(X, a), Trace(relative=True),
strengths, space)``, and the code beside it is for speed. The general path certifies every fit,
which takes eigenvalues of r × r matrices; one such matrix costs more than all the L-BFGS steps of a
fit. Eleven λ took, with the general path at a tolerance of 1e-3 nats and here (one thread,
seconds):

    samples, features, rank    90, 2, 59    90, 5, 90    320, 2, 99    320, 5, 320
    general                       0.123        0.112         0.292          1.60
    here                          0.027        0.031         0.052          0.117

These fits are the whole time of a search. A test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ksos.functionals import Bound, SquaredMMD, Trace
from ksos.ground import Run
from ksos.solvers import LBFGS, LowRank, regularization_path
from ksos.solvers.lbfgs import descend_until
from ksos.space import MeanEmbedding, SoSSpace

__all__ = ["fit_path"]

# Rank of a fit: optima on the tables of benchmarks/quality have fewer.
_COLUMNS = 10
# Nats: tighter ones, and more steps, change no choice of benchmarks/quality --other.
_TOLERANCE = 3e-5
_STEPS = 80  # at that tolerance
# Of the start, what is added before a weaker λ: any part that is neither 0 nor 1 serves ...
_REVIVED = 0.1
# ... and likewise the part of the start that is no constant.
_CORRECTION = 0.3
# Just above where float64 loses digits.
_TINY = 1e-290
# Entries of ψ: beyond, single precision saves more than half the time, and errs far less than the
# tolerance.
_LARGE = 1e5
# Entries, 128 MB: up to here Newton's method is worth its tensor.
_SMALL_TENSOR = 1.6e7
# Of squared MMDs around 1e-3: far less than what changes a held-out score.
_GAP = 1e-6


def fit_path(
    objective: str,
    space: SoSSpace,
    points: np.ndarray,
    weights: np.ndarray,
    strengths: Sequence[float],
) -> Iterator[np.ndarray]:
    """Factors F of C = FFᵀ for one λ (in natural units, descending) after the other, each from the
    one before.
    """
    if objective == "likelihood":
        yield from _likelihood_path(space, points, weights, strengths)
        return
    data = MeanEmbedding(points, weights, kernel=space.embedding_kernel)
    distance, penalty = (Bound(f.bind(space)) for f in (SquaredMMD(data), Trace(relative=True)))
    newton = space.tensor_size <= _SMALL_TENSOR and space.rank < space.support_points.shape[0]
    # a fit that would take more steps serves the search as it is
    solver = (
        LowRank(extra_steps=0, max_iter=80) if newton else LBFGS(columns=4, stall=1e-9, max_iter=6)
    )
    options: dict[str, Any] = {"solver": solver, "tol": _GAP}
    for strength in strengths:  # one by one: the search may end the path at any λ
        (solution,) = regularization_path(distance, penalty, [strength], space, **options)
        if Run.current().interrupted:
            raise KeyboardInterrupt
        options["start"] = solution.parameter_factor
        yield np.asarray(solution.parameter_factor)


def _likelihood_path(
    space: SoSSpace, points: np.ndarray, weights: np.ndarray, strengths: Sequence[float]
) -> Iterator[np.ndarray]:
    """Factors F, ‖F‖ = 1, of min −Σ a_i log p(x_i) + λ⟨N, C⟩ over C = FFᵀ, for one λ (in units of
    w₀, descending) after the other.

    All in the eigenbasis of N, whose eigenvalues ν make the penalty λ Σ_k ν_k ‖F_k‖²: scaling row k
    by (1 + λν_k)^{−1/2} conditions it for every λ at once, and a step of L-BFGS costs two products
    with the (n, r) matrix of ψ(x_i). The first fit starts at the leading squares of the kernel
    density estimate over the samples; in a space with the constant function, at this one and a
    little of what samples see.
    """
    nu, Q = np.linalg.eigh(space.trace_matrix)
    nu, psi = np.maximum(nu, 0.0), space.basis(points) @ Q
    start = (
        _around_the_constant(psi @ Q.T, weights)
        if space.constant
        else _leading_squares(space, points, weights)
    )
    F = start = Q.T @ start
    for strength in strengths:
        # directions that a strong λ has put out are stationary points of the factor; a weaker λ may
        # need them again
        F = _fit(psi, weights, strength * nu, F + _REVIVED * start)
        yield Q @ F


def _fit(psi: np.ndarray, a: np.ndarray, penalty: np.ndarray, F: np.ndarray) -> np.ndarray:
    """L-BFGS until the objective has changed by less than the tolerance over the last four steps."""
    s = 1.0 / np.sqrt(1.0 + penalty)
    precision, tiny = (np.float32, 1e-30) if psi.size > _LARGE else (np.float64, _TINY)
    A, mass, cost = (psi * s).astype(precision), (s * s)[:, None], (penalty * s * s)[:, None]

    def function(Y: np.ndarray) -> tuple[float, np.ndarray]:
        V = A @ Y.astype(precision)
        p = np.maximum(np.einsum("ij,ij->i", V, V), tiny).astype(np.float64)
        MY, PY = mass * Y, cost * Y
        total, penalised = float(np.vdot(Y, MY)), float(np.vdot(Y, PY))
        V *= (a / p)[:, None].astype(precision)
        gradient = -2.0 * (A.T @ V).astype(np.float64)
        gradient += (2.0 / total - 2.0 * penalised / total**2) * MY
        gradient += (2.0 / total) * PY
        return float(-(a @ np.log(p))) + math.log(total) + penalised / total, gradient

    F = descend_until(function, F / s[:, None], _STEPS, _TOLERANCE) * s[:, None]
    return np.asarray(F / np.linalg.norm(F))


def _around_the_constant(psi: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The constant, which is the first direction of its space, and little columns: the leading
    directions of Σ_i a_i ψ(x_i)ψ(x_i)ᵀ.
    """
    rank = psi.shape[1]
    leading = _leading(np.sqrt(weights)[:, None] * psi, min(_COLUMNS - 1, rank))
    F = np.concatenate([np.eye(rank, 1), _CORRECTION * leading], axis=1)
    return np.asarray(F / np.linalg.norm(F))


def _leading_squares(space: SoSSpace, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The columns of most mass of the kernel density estimate, by one pass over random combinations
    of its components [Halko2011].
    """
    # −inf where a discrete measure does not see the component
    log_masses = space.integrals.log_diagonal(points)
    log_scale = np.where(np.isfinite(log_masses), space.log_unit - log_masses, -np.inf)
    gram = np.exp(space.integrals.log_gram(points, space.support_points) - space.log_unit)
    components = (np.exp(0.5 * log_scale) * np.sqrt(weights))[:, None] * (gram @ space.T)
    return _leading(components, min(_COLUMNS, space.rank))


def _leading(rows: np.ndarray, columns: int) -> np.ndarray:
    """The first left singular vectors of rowsᵀ times their singular values, of unit norm."""
    most = 2 * columns + 10
    if rows.shape[0] > columns + most:
        # fixed: a fit must not depend on the state of a global generator
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((most, rows.shape[0])) @ rows
    U, s, _ = np.linalg.svd(rows.T, full_matrices=False)
    F = U[:, :columns] * s[:columns]
    return np.asarray(F / np.linalg.norm(F))
