"""The paper's algorithm as published: the stored tensor, Cholesky with a jitter, the Kronecker step size, FISTA and its stopping rule."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.bench.problem import TOLERANCE, Setting
from ksos.bench.watch import OutOfTimeError, Watch

__all__ = ["STOPPING", "solve"]

STOPPING = 1e-11
"""It ends when the loss has decreased by less than this."""


def solve(setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """FISTA on the note's eq. (12), C = RBRᵀ with W = RᵀR; returns why it ended."""
    m = X.shape[0]
    require_memory(2 * FLOAT_BYTES * m**4, f"the m² × m² Kronecker matrix with m = {m}", "take fewer points")
    s2 = setting.sigma**2
    K = np.exp(-_squares(X) / s2)
    W = setting.unit * np.exp(-_squares(X) / (2.0 * s2))
    u = _tensor(X, setting)  # (m², m)
    R = _cholesky(W).T
    K_factor = (_cholesky(K), True)
    R_inverse = solve_triangular(R, np.eye(m), lower=False)
    V = (u @ cho_solve(K_factor, K.mean(axis=1))).reshape(m, m)
    linear = R_inverse.T @ (setting.lam * K - 2.0 * V) @ R_inverse

    def loss(C: np.ndarray, U: np.ndarray) -> float:
        return float(U @ cho_solve(K_factor, U) + np.vdot(linear, C))

    def embed(C: np.ndarray) -> np.ndarray:
        return np.asarray((R_inverse @ C @ R_inverse.T).ravel() @ u)

    def gradient(C: np.ndarray) -> np.ndarray:
        pulled = (u @ cho_solve(K_factor, embed(C))).reshape(m, m)
        return np.asarray(2.0 * (R_inverse.T @ pulled @ R_inverse) + linear)

    return _fista(gradient, lambda C: loss(C, embed(C)), 1.0 / _lipschitz(R_inverse, u, K_factor), m, R_inverse, tol, watch)


def _fista(
    gradient: Callable[[np.ndarray], np.ndarray],
    loss: Callable[[np.ndarray], float],
    step: float,
    m: int,
    R_inverse: np.ndarray,
    tol: float,
    watch: Watch,
) -> str:
    """Beck and Teboulle's iteration from the centre, until the loss has decreased by less than ``tol``."""
    C = Y = np.eye(m) / m
    momentum, before = 1.0, loss(C)
    try:
        while True:
            new = _project(Y - step * gradient(Y))
            following = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum**2))
            Y = new + ((momentum - 1.0) / following) * (new - C)
            C, momentum = new, following
            now = loss(C)
            watch.look(R_inverse, C)
            if abs(before - now) < tol:
                watch.look(R_inverse, C, last=True)
                return "stopped by its rule"
            before = now
    except OutOfTimeError:
        return "time_limit"


def _project(M: np.ndarray) -> np.ndarray:
    """Algorithm 1: the nearest positive semi-definite matrix of trace one."""
    values, U = np.linalg.eigh(0.5 * (M + M.T))
    descending = values[::-1]
    shifts = (np.cumsum(descending) - 1.0) / np.arange(1, values.size + 1)
    values = np.maximum(values - shifts[np.count_nonzero(descending > shifts) - 1], 0.0)
    return np.asarray((U * values) @ U.T)


def _lipschitz(R_inverse: np.ndarray, u: np.ndarray, K_factor: tuple[np.ndarray, bool]) -> float:
    """The Frobenius norm of the Hessian 2(R⁻¹⊗R⁻¹)ᵀ u K⁻¹ uᵀ (R⁻¹⊗R⁻¹), formed with the Kronecker product."""
    pulled = np.kron(R_inverse, R_inverse).T @ u
    hessian = (2.0 * pulled) @ cho_solve(K_factor, pulled.T)
    return float(np.linalg.norm(hessian))


def _tensor(X: np.ndarray, setting: Setting) -> np.ndarray:
    """u_pqr as a matrix of m² rows and m columns, in the appendix's own form."""
    m, s2 = X.shape[0], setting.sigma**2
    squares = np.einsum("ij,ij->i", X, X)
    sums = (X[:, None, :] + X[None, :, :]).reshape(m * m, -1)
    exponent = np.einsum("ij,ij->i", sums, sums)[:, None] + squares[None, :] + 2.0 * (sums @ X.T)  # ‖x_p + x_q + x_r‖²
    exponent = (squares[:, None] + squares[None, :]).reshape(m * m, 1) + squares[None, :] - exponent / 3.0
    return np.asarray((math.pi * s2 / 3.0) ** (0.5 * setting.d) * np.exp(-exponent / s2))


def _squares(X: np.ndarray) -> np.ndarray:
    squares = np.einsum("ij,ij->i", X, X)
    return np.asarray(np.maximum(squares[:, None] + squares[None, :] - 2.0 * (X @ X.T), 0.0))


def _cholesky(M: np.ndarray) -> np.ndarray:
    """The lower factor of M plus the Remark's small diagonal term: the benchmark's tolerance, more where the factor asks for it."""
    jitter = TOLERANCE * float(np.trace(M)) / M.shape[0]
    while True:
        try:
            return np.linalg.cholesky(M + jitter * np.eye(M.shape[0]))
        except np.linalg.LinAlgError:
            jitter *= 10.0
