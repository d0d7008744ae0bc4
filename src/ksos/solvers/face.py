"""The minimum of a quadratic f on a face {VXVᵀ : X ⪰ 0, tr X = 1} of the spectraplex: one small linear system, solved on the host."""

from __future__ import annotations

import numpy as np

from ksos._array import Array, eye, like, namespace, to_numpy

__all__ = ["minimum_on_face"]

_NEGLIGIBLE = 1e-13


def minimum_on_face(tensor: Array, scale: float, b: Array, D: Array, F: Array) -> Array | None:
    """The factor of the minimiser of s‖A(C)‖² − 2⟨b, A(C)⟩ + ⟨D, C⟩ over C = VXVᵀ with tr X = 1, V spanning the columns of ``F``.

    X ⪰ 0 is not imposed: None where the minimiser has it not. Where it has, the point is optimal as soon as the span is that of the
    optimum: an interior iterate whose eigenvectors are off by ε is thereby corrected to a gap of order ε².
    """
    xp = namespace(F)
    V, _ = xp.linalg.qr(F)
    r, k = V.shape
    first, second = np.tril_indices(k)
    JV = to_numpy(xp.matmul(V.T, xp.reshape(xp.reshape(tensor, (-1, r)) @ V, (-1, r, k))))
    J = JV[:, first, second]
    d, trace, start = (to_numpy(V.T @ M @ V)[first, second] for M in (D, eye(r, F), F @ F.T))
    twice = np.where(first == second, 1.0, np.sqrt(2.0))  # an orthonormal basis of the symmetric matrices
    J, d, trace, start = J * twice, d * twice, trace * twice, start * twice
    start = start / (trace @ start)
    N = np.linalg.svd(trace[None])[2][1:]  # the directions that keep the trace
    JN = J @ N.T
    gradient = N @ (2.0 * (J.T @ (scale * (J @ start) - to_numpy(b))) + d)
    step = np.linalg.lstsq(2.0 * scale * (JN.T @ JN), -gradient, rcond=_NEGLIGIBLE)[0]
    X = np.zeros((k, k))
    X[first, second] = (start + step @ N) / twice
    values, Q = np.linalg.eigh(X)  # which reads the lower triangle
    return (V @ like(Q, V)) * like(np.sqrt(values), V) if values[0] > 0.0 else None
