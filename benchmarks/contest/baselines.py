"""The baselines: the paper's algorithm as published, and the same problem in CVXPY, as somebody
would write it who has the integrals.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from contest.problem import TOLERANCE, Setting
from contest.referee import OutOfTimeError, Watch
from ksos.ground.memory import FLOAT_BYTES, require_memory

__all__ = [
    "FORMULATIONS",
    "STOPPING",
    "TOLERANCES",
    "kronecker_lipschitz",
    "require_cvxpy",
    "solve_conic",
    "solve_published",
]

STOPPING = 1e-11
"""The paper's algorithm ends when the loss has decreased by less than this."""
TOLERANCES = {"clarabel": (1e-6, 1e-8, 1e-10, 1e-12), "scs": (1e-4, 1e-6, 1e-8, 1e-10)}
"""Of CVXPY's solvers; each is a fresh run, from the points on."""


# --- the paper's algorithm: the stored tensor, Cholesky with a jitter, the Kronecker step size,
# FISTA and its stopping rule ---


def solve_published(setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """FISTA on the paper's eq. (12), C = RBRᵀ with W = RᵀR, from the center until the loss has
    decreased by less than ``tol``.
    """
    m = X.shape[0]
    require_memory(
        2 * FLOAT_BYTES * m**4, f"the m² × m² Kronecker matrix with m = {m}", "take fewer points"
    )
    K, u, R_inverse, K_factor = _factors(setting, X)
    V = (u @ cho_solve(K_factor, K.mean(axis=1))).reshape(m, m)
    linear = R_inverse.T @ (setting.lam * K - 2.0 * V) @ R_inverse

    def embed(C: np.ndarray) -> np.ndarray:
        return np.asarray((R_inverse @ C @ R_inverse.T).ravel() @ u)

    def loss(C: np.ndarray) -> float:
        U = embed(C)
        return float(U @ cho_solve(K_factor, U) + np.vdot(linear, C))

    def gradient(C: np.ndarray) -> np.ndarray:
        pulled = (u @ cho_solve(K_factor, embed(C))).reshape(m, m)
        return np.asarray(2.0 * (R_inverse.T @ pulled @ R_inverse) + linear)

    step, C = 1.0 / _lipschitz(u, R_inverse, K_factor), np.eye(m) / m
    Y, momentum, before = C, 1.0, loss(C)
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


def kronecker_lipschitz(setting: Setting, X: np.ndarray) -> float:
    """The Frobenius norm of the Hessian, formed with the Kronecker product: the paper's bound on
    the curvature.
    """
    return _lipschitz(*_factors(setting, X)[1:])


def _factors(
    setting: Setting, X: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[np.ndarray, bool]]:
    """K, the tensor u as (m², m), R⁻¹ and the factor of K."""
    W, K, u = _integrals(setting, X)
    return (
        K,
        u.reshape(-1, X.shape[0]),
        solve_triangular(_cholesky(W).T, np.eye(X.shape[0]), lower=False),
        (_cholesky(K), True),
    )


def _project(M: np.ndarray) -> np.ndarray:
    """Algorithm 1: the nearest positive semi-definite matrix of trace one."""
    values, U = np.linalg.eigh(0.5 * (M + M.T))
    descending = values[::-1]
    shifts = (np.cumsum(descending) - 1.0) / np.arange(1, values.size + 1)
    values = np.maximum(values - shifts[np.count_nonzero(descending > shifts) - 1], 0.0)
    return np.asarray((U * values) @ U.T)


def _lipschitz(u: np.ndarray, R_inverse: np.ndarray, K_factor: tuple[np.ndarray, bool]) -> float:
    """‖2(R⁻¹⊗R⁻¹)ᵀ u K⁻¹ uᵀ (R⁻¹⊗R⁻¹)‖."""
    pulled = np.kron(R_inverse, R_inverse).T @ u
    return float(np.linalg.norm((2.0 * pulled) @ cho_solve(K_factor, pulled.T)))


def _cholesky(M: np.ndarray) -> np.ndarray:
    """The lower factor of M plus the Remark's small diagonal term: the benchmark's tolerance, more
    where the factor asks for it.
    """
    jitter = TOLERANCE * float(np.trace(M)) / M.shape[0]
    while True:
        try:
            return np.linalg.cholesky(M + jitter * np.eye(M.shape[0]))
        except np.linalg.LinAlgError:
            jitter *= 10.0


# --- CVXPY: natural in B, or whitened in C; Clarabel or SCS ---


def require_cvxpy() -> Any:
    """The module, or an error with the suggested fix."""
    try:
        import cvxpy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'CVXPY is not installed; run: pip install "kernel-sos[cvx]"', name=error.name
        ) from None
    return cvxpy


def solve_conic(
    solver: str, formulation: str, setting: Setting, X: np.ndarray, tol: float, watch: Watch
) -> str:
    """One run of CVXPY with a cold start; returns the solver's status."""
    cp = require_cvxpy()
    L, A, z, D, mass = FORMULATIONS[formulation](setting, X)
    size = D.shape[0]
    M = cp.Variable((size, size), PSD=True)
    residual = A @ cp.vec(M, order="C") - z
    problem = cp.Problem(
        cp.Minimize(cp.sum_squares(residual) + cp.sum(cp.multiply(D, M))),
        [cp.sum(cp.multiply(mass, M)) == 1],
    )
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore"
        )  # "may be inaccurate": the status says so, and the referee decides
        try:
            problem.solve(
                solver=solver.upper(), warm_start=False, **_options(solver, tol, watch.left)
            )
        except cp.SolverError as error:
            return f"failed: {error}".split("\n")[0][:80]
    if M.value is not None:
        watch.look(L, M.value, last=True)
    return str(problem.status)


def _options(solver: str, tol: float, seconds: float) -> dict[str, Any]:
    seconds = max(seconds, 0.1)
    if solver == "scs":
        return {"eps_abs": tol, "eps_rel": tol, "max_iters": 10_000_000, "time_limit_secs": seconds}
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return {**dict.fromkeys(names, tol), "time_limit": seconds, "max_iter": 1000, "max_threads": 1}


_Form = tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _natural(setting: Setting, X: np.ndarray) -> _Form:
    """The unknown is B: the mass is tr(BW), and the embedding S·U(B) with one row of m² entries per
    coordinate.
    """
    W, K, u = _integrals(setting, X)
    S = _inverse_root(K).T
    return None, S @ u, S @ K.mean(axis=1), setting.lam * K, W


def _whitened(setting: Setting, X: np.ndarray) -> _Form:
    """The unknown is C with B = TCTᵀ: the mass is tr C, and the tensor has q × r × r entries."""
    W, K, u = _integrals(setting, X)
    S, T = _inverse_root(K).T, _inverse_root(W)
    m, r = T.shape
    half = (S @ u).reshape(-1, m) @ T
    A = np.matmul(T.T, half.reshape(-1, m, r)).reshape(-1, r * r)
    return T, A, S @ K.mean(axis=1), setting.lam * (T.T @ K @ T), np.eye(r)


FORMULATIONS: dict[str, Callable[[Setting, np.ndarray], _Form]] = {
    "natural": _natural,
    "whitened": _whitened,
}


def _integrals(setting: Setting, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W, K, and the tensor u as (m, m²)."""
    m, s2 = X.shape[0], setting.sigma**2
    require_memory(4 * FLOAT_BYTES * m**3, f"the tensor u with m = {m}", "take fewer points")
    distances = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=-1)
    H = np.exp(-distances / (3.0 * s2))
    u = (math.pi * s2 / 3.0) ** (0.5 * setting.d) * (
        H[:, :, None] * H[:, None, :] * H[None, :, :]
    ).reshape(m, m * m)
    return setting.unit * np.exp(-distances / (2.0 * s2)), np.exp(-distances / s2), u


def _inverse_root(M: np.ndarray) -> np.ndarray:
    values, Q = np.linalg.eigh(M)
    kept = values > TOLERANCE * values[-1]
    return np.asarray(Q[:, kept] / np.sqrt(values[kept]))
