"""The spectraplex {C ⪰ 0, tr C = 1}: projection (the note's Algorithm 1), centre, and factors C =
FFᵀ whose columns come and go.
"""

from __future__ import annotations

import numpy as np

from ksos.ground.arrays import Array, eye, like, namespace, norm, to_numpy

__all__ = ["centre", "factor", "grown", "project", "project_simplex", "pruned"]

_ON_THE_HOST = np.zeros(0)


def centre(r: int, reference: Array = _ON_THE_HOST) -> Array:
    """I/r, on the device of ``reference``."""
    return eye(r, reference) / r


def project(M: Array) -> Array:
    """Algorithm 1: the nearest point of the spectraplex, by projecting the eigenvalues of ``M`` on
    the simplex.
    """
    values, U = namespace(M).linalg.eigh(M)
    weights = project_simplex(to_numpy(values))
    first = int(np.count_nonzero(weights == 0.0))  # they ascend, as the eigenvalues do
    G = U[:, first:] * like(np.sqrt(weights[first:]), U)
    return G @ G.T


def project_simplex(values: np.ndarray) -> np.ndarray:
    """The nearest point of {x ≥ 0, Σx = 1} to ``values``, by sorting.

    >>> project_simplex(np.array([0.5, 0.1, 1.1])).round(6).tolist()
    [0.2, 0.0, 0.8]
    """
    # a common shift changes nothing, and 1 must not vanish beside large numbers
    values = values - values.max()
    descending = np.sort(values)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, values.shape[0] + 1)
    last = np.nonzero(descending > thresholds)[0][-1]
    return np.maximum(values - thresholds[last], 0.0)


def factor(C: Array, negligible: float = 1e-14) -> Array:
    """G with C = GGᵀ and ‖G‖² = 1: one column per eigenvalue, in ascending order, without those
    below ``negligible`` of the largest.
    """
    xp, middle = namespace(C), centre(C.shape[0], C)
    if bool(xp.all(middle == C)):  # where every run begins, and one without time ends
        return xp.sqrt(middle)
    values, U = xp.linalg.eigh(C)
    host = to_numpy(values)
    first = int(np.count_nonzero(host <= negligible * host[-1]))
    G = U[:, first:] * like(np.sqrt(host[first:]), U)
    return G / norm(G)


def pruned(F: Array, negligible: float, most: int | None = None) -> Array:
    """The same FFᵀ, scaled to ‖F‖ = 1, with orthogonal columns: those of more mass than
    ``negligible``, at most the ``most`` largest.
    """
    U, s, _ = namespace(F).linalg.svd(F / norm(F), full_matrices=False)
    kept = max(1, int(np.count_nonzero(to_numpy(s) ** 2 > negligible)))
    kept = kept if most is None else min(kept, most)
    F = U[:, :kept] * s[:kept]
    return F / norm(F)


def grown(F: Array, V: Array, t: float) -> Array:
    """The factor of (1 − t)FFᵀ + t·VVᵀ: new columns beside the old ones."""
    return namespace(F).concat([(1.0 - t) ** 0.5 * F, t**0.5 * V], axis=1)
