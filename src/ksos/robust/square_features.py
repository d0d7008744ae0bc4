"""The matrices ∫ u_a u_b ψψᵀ dρ in closed form: u affine in the features, or kernel functions of some features times powers of another."""

from __future__ import annotations

import numpy as np

from ksos._array import to_numpy
from ksos._memory import FLOAT_BYTES, require_memory
from ksos.integrals import closed_form
from ksos.kernels import Gaussian
from ksos.observables import KernelFunction
from ksos.observables.polynomial import feature_moments
from ksos.space import SoSSpace

__all__ = ["affine_moments", "kernel_moments"]


def _require(space: SoSSpace, P: int) -> None:
    r = space.rank
    require_memory(2 * FLOAT_BYTES * P * P * r * r, f"the second moments of {P} functions", "use fewer support points or kernel centres")


def affine_moments(space: SoSSpace, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """V for u = (1, (x_1 − centre_1)/scale_1, …), shape (d + 1, d + 1, r, r)."""
    X, T, d = to_numpy(space.support_points), to_numpy(space.T), space.n_features
    _require(space, d + 1)
    integrals = closed_form(space.kernel, space.measure, d)
    W = np.exp(integrals.log_gram(X, X) - space.log_unit)
    first, second = [np.ones_like(W)], [np.ones_like(W)]
    for k in range(d):
        _, one, two = feature_moments(integrals, X, k, 2, float(centre[k]))
        first.append(one / scale[k])
        second.append(two / scale[k] ** 2)
    return _assembled(T, d + 1, lambda a, b: W * (second[a] if a == b else first[a] * first[b]))


def kernel_moments(space: SoSSpace, centres: np.ndarray, kernel: Gaussian, centre: float | None) -> np.ndarray:
    """V for u = (1, k(·, c_1), …, k(·, c_n)) of x and, with ``centre``, a last function y − centre, y being the last feature of the space.

    k(x, c)k(x, c') is a Gaussian about (c + c')/2 of bandwidth σ/√2: integrals of order 3 in x, times moments in y.
    """
    X, T, d = to_numpy(space.support_points), to_numpy(space.T), space.n_features
    n = centres.shape[0]
    P = 1 + n + (centre is not None)
    _require(space, P)
    dx = d - (centre is not None)
    eta = space.kernel.sigma_vector(d)
    model_x, measure_x = Gaussian(eta[:dx]), space.measure.restrict(range(dx))
    log_x = closed_form(model_x, measure_x, dx).log_gram(X[:, :dx], X[:, :dx])
    unit_x = float(np.diag(log_x).max())
    W_x = np.exp(log_x - unit_x)
    W_y = [np.full_like(W_x, np.exp(unit_x - space.log_unit))]
    if centre is not None:
        Y, integrals_y = X[:, dx:], closed_form(Gaussian(eta[dx:]), space.measure.restrict(range(dx, d)), 1)
        base = np.exp(integrals_y.log_gram(Y, Y) + (unit_x - space.log_unit))
        W_y = [base * moment for moment in feature_moments(integrals_y, Y, 0, 2, centre)]
    sigma = kernel.sigma_vector(dx)
    half = Gaussian(sigma / np.sqrt(2.0))

    def in_x(a: int, b: int) -> np.ndarray:
        """∫ u_a u_b k_i k_j over x."""
        own = [j for j in (a, b) if 1 <= j <= n]
        if not own:
            return W_x
        if len(own) == 1:
            return KernelFunction(centres[own[0] - 1 : own[0]], [1.0], kernel=kernel).matrix(model_x, X[:, :dx], measure_x, unit_x).values
        c, e = centres[own[0] - 1], centres[own[1] - 1]
        weight = float(np.exp(-0.5 * np.sum(((c - e) / sigma) ** 2)))
        return KernelFunction((c + 0.5 * (e - c))[None], [weight], kernel=half).matrix(model_x, X[:, :dx], measure_x, unit_x).values

    return _assembled(T, P, lambda a, b: in_x(a, b) * W_y[(a > n) + (b > n)])


def _assembled(T: np.ndarray, P: int, entry) -> np.ndarray:  # type: ignore[no-untyped-def]
    V = np.empty((P, P, T.shape[1], T.shape[1]))
    for a in range(P):
        for b in range(a, P):
            M = T.T @ entry(a, b) @ T
            V[a, b] = V[b, a] = 0.5 * (M + M.T)
    return V
