"""Whatever the data: the fit ends, the density is valid, and the certificate is what its formula gives when it is computed another way."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos import BandwidthWarning, KernelSoSDensity

QUICK: dict[str, Any] = {"max_iter": 200, "random_state": 0}


def fitted(X: np.ndarray, sample_weight: np.ndarray | None = None, **parameters: Any) -> KernelSoSDensity:
    """A short fit in which the three announced warnings are welcome and every other one is an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category, message in ((ConvergenceWarning, ""), (BandwidthWarning, ""), (UserWarning, "bandwidth=.*no spread")):
            warnings.filterwarnings("ignore", message, category)
        return KernelSoSDensity(**{**QUICK, **parameters}).fit(X, sample_weight=sample_weight)


def squared(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.sum((x - y) ** 2, axis=-1)


def recomputed(est: KernelSoSDensity, X: np.ndarray, sample_weight: np.ndarray | None = None) -> tuple[float, float]:
    """Objective and gap of a fit with a Gaussian kernel on R^d, from the note's formulas with the tensor u formed by brute force.

    Lengths are counted in bandwidths η of the model from the first support point on, and integrals in w₀. T and S are the space's own; that they whiten W and K
    is checked first. Exponents are weighted variances, where the library sums pair distances.
    """
    space, solution = est.solution_.space, est.solution_
    eta, sigma = np.broadcast_to(est.bandwidth_, X.shape[1:]), np.broadcast_to(est.embedding_bandwidth_, X.shape[1:])
    origin = space.support_points[0]
    x, z, data = ((points - origin) / eta for points in (space.support_points, space.landmarks, X))
    s = (eta / sigma) ** 2  # the precision of the embedding kernel, per feature
    W = np.exp(-0.5 * squared(x[:, None], x[None]))
    K = np.exp(-squared(x[:, None], x[None]))
    i, j, r = x[:, None, None, :], x[None, :, None, :], z[None, None, :, :]
    centre = (i + j + s * r) / (2.0 + s)
    u = np.exp(-np.sum((i - centre) ** 2 + (j - centre) ** 2 + s * (r - centre) ** 2, axis=-1)) * np.sqrt(np.prod(2.0 / (2.0 + s)))
    T, S, C = space.T, space.projection.S, solution.parameter
    root = np.sqrt(s)
    K_landmarks = np.exp(-squared(root * z[:, None], root * z[None]))
    np.testing.assert_allclose(T.T @ W @ T, np.eye(T.shape[1]), atol=1e-4)
    np.testing.assert_allclose(S @ K_landmarks @ S.T, np.eye(S.shape[0]), atol=1e-4)
    a = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    target = S @ (np.exp(-squared(root * z[:, None], root * data[None])) @ (a / a.sum()))
    A = np.einsum("kr,ijr,ip,jq->kpq", S, u, T, T, optimize=True)
    D = 1e-3 * T.T @ K @ T
    residual = np.einsum("kpq,pq->k", A, C) - target
    G = 2.0 * np.einsum("k,kpq->pq", residual, A) + D
    return float(residual @ residual + np.vdot(D, C)), float(np.vdot(G, C) - np.linalg.eigvalsh(0.5 * (G + G.T))[0])
