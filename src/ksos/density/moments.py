"""Mean and covariance of a kernel sum of squares, from the moments of its components k(x,x̃_i)k(x,x̃_j)dρ."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["central_point_first", "component_weights", "mean_and_covariance", "node_masses"]

_BLOCK_BYTES = 128e6


def component_weights(density: SoSDensity) -> np.ndarray:
    """B_ij W_ij, the signed weight of each component, shape (m, m); they sum to one."""
    points, F = density.support_points, density.unit_factor
    return (F @ F.T) * np.exp(density.integrals.log_gram(points, points) - density.log_unit)


def node_masses(density: SoSDensity) -> np.ndarray:
    """Of a density with respect to a discrete measure: the mass w_j p(x_j) of every node."""
    measure = density.measure
    if not isinstance(measure, Discrete):
        raise TypeError(f"a density on a Discrete measure is needed; this one is on {measure!r}")
    mass = measure.weights * density.pdf(measure.points)
    return mass / mass.sum()


def central_point_first(density: SoSDensity) -> SoSDensity:
    """The same density with a support point from the middle in front, from which coordinates are measured.

    An outlier there would cost all the others their digits.
    """
    X = density.support_points
    middle = np.partition(X, X.shape[0] // 2, axis=0)[X.shape[0] // 2]
    with np.errstate(over="ignore"):
        scaled = np.abs((X - middle) / density.kernel.sigma_vector(X.shape[1]))
    order = np.argsort(np.arange(X.shape[0]) != int(np.argmin(scaled.max(axis=1))), kind="stable")
    return type(density).from_units(density.kernel, X[order], density.unit_factor[order], density.log_unit, density.measure)


def mean_and_covariance(density: SoSDensity) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x]; exact up to the cancellation in Σ|B_ij W_ij|."""
    if isinstance(density.measure, Discrete):
        weights, points = node_masses(density), density.measure.points
        mean = weights @ points
        centred = points - mean
        scaled = np.sqrt(weights)[:, None] * centred  # one matrix times itself is symmetric to the last digit
        return mean, scaled.T @ scaled
    density = central_point_first(density)
    integrals, X, d = density.integrals, density.support_points, density.n_features
    P = component_weights(density).ravel()
    mean, second = np.empty(d), np.empty(d)
    for k in range(d):
        first_k, second_k = integrals.moments(X, k)
        mean[k], second[k] = P @ first_k.ravel(), P @ second_k.ravel()
    cross = np.empty((d, d))
    step = max(1, int(_BLOCK_BYTES / (P.nbytes + 1)))
    blocks = [range(start, min(start + step, d)) for start in range(0, d, step)]
    for rows in blocks:
        left = np.stack([integrals.moments(X, k)[0].ravel() for k in rows])
        for columns in blocks:
            if columns[0] < rows[0]:
                continue
            right = left if columns == rows else np.stack([integrals.moments(X, k)[0].ravel() for k in columns])
            cross[np.ix_(rows, columns)] = (left * P) @ right.T
            cross[np.ix_(columns, rows)] = cross[np.ix_(rows, columns)].T
    cross = 0.5 * (cross + cross.T)  # within a block the two orders of summation round differently
    np.fill_diagonal(cross, second)
    return X[0] + mean, cross - np.outer(mean, mean)
