"""The lowest eigenvalue of a symmetric matrix: with its vector, for directions; and as a proven
lower bound, for certificates.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from ksos.ground.arrays import Array, eye, is_numpy, like, linalg_errors, namespace, to_numpy

__all__ = ["DENSE", "graded_bound", "lowest_bound", "lowest_eigenpairs"]

DENSE = 400  # up to this size, dense eigenvalues: accurate to rounding, hence a bound by themselves
_LANCZOS_TOLERANCE = 1e-9
_KRYLOV_BLOCKS, _LEAST_RESTARTS, _ROWS_PER_RESTART = 12, 40, 25


def lowest_eigenpairs(G: Array, n: int, dense: int = DENSE) -> tuple[np.ndarray, Array]:
    """The ``n`` lowest eigenvalues, ascending, and their vectors as columns: by Lanczos iterations
    if there are more than ``dense``.
    """
    if G.shape[0] > dense:
        found = _by_arpack(G, n) if is_numpy(G) else _by_block_lanczos(G, n)
        if found is not None:
            return found
    if is_numpy(G):
        with suppress(np.linalg.LinAlgError):  # clustered eigenvalues: a driver without shortcuts
            return eigh(G, subset_by_index=[0, n - 1], check_finite=False)
    values, vectors = namespace(G).linalg.eigh(G)
    return to_numpy(values[:n]), vectors[:, :n]


def _by_arpack(G: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """None if eigenvalues are so clustered that the dense route is quicker: it always works, and
    costs about r products with G.
    """
    r = G.shape[0]
    start, vectors_kept = np.random.default_rng(0).standard_normal(r), min(r, 4 * n + 40)
    restarts = max(4, r // (vectors_kept - n))
    try:
        values, vectors = eigsh(
            G, k=n, which="SA", v0=start, tol=_LANCZOS_TOLERANCE, maxiter=restarts, ncv=vectors_kept
        )
    except ArpackNoConvergence:
        return None
    order = np.argsort(values)
    return values[order], vectors[:, order]


def _by_block_lanczos(G: Array, n: int) -> tuple[np.ndarray, Array] | None:
    """Rayleigh–Ritz on span{V, GV, …}, fully orthogonalised and restarted from its best vectors:
    few large products, as a GPU likes them.

    None if it has not converged after so many restarts that the dense route is quicker.
    """
    xp, r = namespace(G), G.shape[0]
    block = min(n + 4, r // (_KRYLOV_BLOCKS + 1))
    if block < n:
        return None
    V = like(np.random.default_rng(0).standard_normal((r, block)), G)
    for _ in range(max(_LEAST_RESTARTS, r // _ROWS_PER_RESTART)):
        basis, _ = xp.linalg.qr(V)
        latest = basis
        for _ in range(_KRYLOV_BLOCKS - 1):
            latest = G @ latest
            for _ in range(2):  # twice is enough (Kahan and Parlett)
                latest = latest - basis @ (basis.T @ latest)
            latest, _ = xp.linalg.qr(latest)
            basis = xp.concat([basis, latest], axis=1)
        image = G @ basis
        small = to_numpy(basis.T @ image)
        values, vectors = np.linalg.eigh(
            0.5 * (small + small.T)
        )  # on the host, where small matrices are quicker
        U, values = like(vectors[:, :block], G), values[:block]
        V = basis @ U
        residual = image @ U[:, :n] - V[:, :n] * like(values[:n], G)
        size = float(np.abs(values).max()) + float(np.abs(np.diagonal(small)).max())
        if (
            float(xp.max(xp.sqrt(xp.sum(residual * residual, axis=0))))
            <= np.sqrt(_LANCZOS_TOLERANCE) * 1e-3 * size
        ):
            return (
                values[:n],
                V[:, :n],
            )  # eigenvalues are then off by the square of the residual over their distance to the others
    return None


def lowest_bound(
    G: Array, slack: float, dense: int = DENSE, estimate: float | None = None
) -> float:
    """A lower bound of λ_min(G), proven in floating point.

    Small matrices: the dense eigenvalue, whose rounding is of order ε‖G‖. Large ones: a Lanczos
    value θ only bounds λ_min from above; but if G − (θ − δ)I has a Cholesky factor then λ_min ≥ θ −
    δ up to the rounding of that factor, r·ε·‖G‖, which is subtracted too. δ starts at ``slack`` and
    grows until the factor exists. ``estimate``: θ, if it is known.
    """
    xp, r = namespace(G), G.shape[0]
    if r <= dense:
        return float(xp.linalg.eigvalsh(G)[0])
    theta = float(lowest_eigenpairs(G, 1, dense)[0][0]) if estimate is None else estimate
    size = float(xp.max(xp.sum(xp.abs(G), axis=1)))
    rounding = 2.0 * r * np.finfo(np.float64).eps * size
    delta, identity = max(slack, rounding), eye(r, G)
    while delta < size:
        with suppress(*linalg_errors()):
            L = xp.linalg.cholesky(G - (theta - delta) * identity)
            if bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
                return theta - delta - rounding
        delta *= 10.0
    return float(xp.linalg.eigvalsh(G)[0])


def graded_bound(G: Array, estimate: float, widest: float) -> float:
    """A lower bound of λ_min(G) whose rounding is relative to the entries in each direction, not to
    the largest of them; or −∞.

    Let t < G_ii and D² = diag(G) − tI. If D⁻¹(G − tI)D⁻¹ − ηI has a Cholesky factor, with η of a
    few r·ε, then G + E ⪰ tI for every E with
    |E_ij| ≤ ε·D_i D_j: scaling by a diagonal changes nothing in what rounding does to a factor
    [Higham2002]. The ε|t| that G_ii − t itself may be off by is subtracted. t starts next to
    ``estimate`` ≥ λ_min and falls, at most by ``widest``, until the factor exists.
    """
    xp, r = namespace(G), G.shape[0]
    diagonal, identity = xp.linalg.diagonal(G), eye(r, G)
    theta, eta = min(estimate, float(xp.min(diagonal))), 4.0 * r * float(np.finfo(np.float64).eps)
    delta = max(eta * abs(theta), float(np.finfo(np.float64).tiny))
    while delta < widest:
        t = theta - delta
        d = xp.sqrt(diagonal - t)
        with suppress(*linalg_errors()):
            L = xp.linalg.cholesky((G - t * identity) / d[:, None] / d[None, :] - eta * identity)
            if bool(xp.all(xp.isfinite(xp.linalg.diagonal(L)))):
                return t - eta * abs(t)
        delta *= 4.0
    return -np.inf
