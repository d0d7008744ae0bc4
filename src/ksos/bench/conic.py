"""The same problem in CVXPY, as somebody would write it who has the integrals: natural in B, or whitened in C; Clarabel or SCS."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.bench.problem import TOLERANCE, Setting
from ksos.bench.watch import Watch

__all__ = ["FORMULATIONS", "TOLERANCES", "require_cvxpy", "solve"]

TOLERANCES = {"clarabel": (1e-6, 1e-8, 1e-10, 1e-12), "scs": (1e-4, 1e-6, 1e-8, 1e-10)}
"""Each is a fresh run, from the points on."""


def require_cvxpy() -> Any:
    """The module, or an error with the remedy."""
    try:
        import cvxpy
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("CVXPY is not installed; run: pip install 'kernel-sos[cvx]'", name=error.name) from None
    return cvxpy


def solve(solver: str, formulation: str, setting: Setting, X: np.ndarray, tol: float, watch: Watch) -> str:
    """One run of CVXPY with a cold start; returns the solver's status."""
    cp = require_cvxpy()
    L, A, z, D, mass = FORMULATIONS[formulation](setting, X)
    size = D.shape[0]
    M = cp.Variable((size, size), PSD=True)
    residual = A @ cp.vec(M, order="C") - z
    problem = cp.Problem(cp.Minimize(cp.sum_squares(residual) + cp.sum(cp.multiply(D, M))), [cp.sum(cp.multiply(mass, M)) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate": the status says so, and the referee decides
        try:
            problem.solve(solver=solver.upper(), warm_start=False, **_options(solver, tol, watch.left))
        except cp.SolverError as error:
            return f"failed: {error}".split("\n")[0][:80]
    if M.value is None:
        return str(problem.status)
    watch.look(L, M.value, last=True)
    return str(problem.status)


def _options(solver: str, tol: float, seconds: float) -> dict[str, Any]:
    seconds = max(seconds, 0.1)
    if solver == "scs":
        return {"eps_abs": tol, "eps_rel": tol, "max_iters": 10_000_000, "time_limit_secs": seconds}
    names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
    return {**dict.fromkeys(names, tol), "time_limit": seconds, "max_iter": 1000, "max_threads": 1}


def _natural(setting: Setting, X: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The unknown is B: the mass is tr(BW), and the embedding S·U(B) with one row of m² entries per coordinate."""
    W, K, u, S = _integrals(setting, X)
    return None, S @ u, S @ K.mean(axis=1), setting.lam * K, W


def _whitened(setting: Setting, X: np.ndarray) -> tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The unknown is C with B = TCTᵀ: the mass is tr C, and the tensor is compressed to q × r × r."""
    W, K, u, S = _integrals(setting, X)
    m = X.shape[0]
    T = _inverse_root(W)
    r = T.shape[1]
    half = (S @ u).reshape(-1, m) @ T
    A = np.matmul(T.T, half.reshape(-1, m, r)).reshape(-1, r * r)
    return T, A, S @ K.mean(axis=1), setting.lam * (T.T @ K @ T), np.eye(r)


FORMULATIONS: dict[str, Callable[[Setting, np.ndarray], tuple[np.ndarray | None, np.ndarray, np.ndarray, np.ndarray, np.ndarray]]] = {
    "natural": _natural,
    "whitened": _whitened,
}


def _integrals(setting: Setting, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """W, K, the tensor u as (m, m²), and S."""
    m, s2 = X.shape[0], setting.sigma**2
    require_memory(4 * FLOAT_BYTES * m**3, f"the tensor u with m = {m}", "take fewer points")
    distances = ((X[:, None, :] - X[None, :, :]) ** 2).sum(axis=-1)
    K = np.exp(-distances / s2)
    H = np.exp(-distances / (3.0 * s2))
    u = (math.pi * s2 / 3.0) ** (0.5 * setting.d) * (H[:, :, None] * H[:, None, :] * H[None, :, :]).reshape(m, m * m)
    return setting.unit * np.exp(-distances / (2.0 * s2)), K, u, _inverse_root(K).T


def _inverse_root(M: np.ndarray) -> np.ndarray:
    values, Q = np.linalg.eigh(M)
    kept = values > TOLERANCE * values[-1]
    return np.asarray(Q[:, kept] / np.sqrt(values[kept]))
