"""Mean, covariance and moments of any order, from the moments of the components
k(x,x̃_i)k(x,x̃_j)dρ.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ksos.density.standard import central_first, feature_scales, standardize
from ksos.observables import Polynomial

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["central_point_first", "mean_and_covariance", "moment", "node_masses"]

_BLOCK_BYTES = 128e6
_SQUARES_OVERFLOW, _SQUARES_UNDERFLOW = 1e150, 1e-150


def node_masses(density: SoSDensity) -> np.ndarray:
    """The mass w_j p(x_j) of every node, for a density on a discrete measure."""
    atoms = density.measure.atoms
    if atoms is None:
        raise TypeError(
            f"a density on a Discrete measure is needed; this one is on {density.measure!r}"
        )
    mass = atoms.weights * density.pdf(atoms.points)
    return mass / mass.sum()


def central_point_first(density: SoSDensity) -> SoSDensity:
    """The same density with a support point from the middle in front."""
    X = density.support_points
    order, F = central_first(X, feature_scales(density.kernel, X.shape[1])), density.unit_factor
    return type(density).from_units(
        density.kernel, X[order], F[order], density.log_unit, density.measure, density.unit_constant
    )


@np.errstate(under="ignore")
def mean_and_covariance(density: SoSDensity) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x]; exact up to the cancellation in Σ|B_ij W_ij|."""
    scales = feature_scales(density.kernel, density.n_features)
    with np.errstate(over="ignore"):
        largest = max(float(np.ptp(density.support_points, axis=0).max()), float(scales.max()))
    if (
        _SQUARES_OVERFLOW < largest < scales.min() / _SQUARES_UNDERFLOW
    ):  # but not in another unit, a power of two, which costs no digit
        unit = 2.0 ** math.frexp(largest)[1]
        mean, cross = mean_and_covariance(density.affine(1.0 / unit))
        with np.errstate(over="ignore"):
            return unit * mean, unit * (unit * cross)
    if (atoms := density.measure.atoms) is not None:
        weights, points = node_masses(density), atoms.points
        mean = weights @ points
        scaled = np.sqrt(weights)[:, None] * (
            points - mean
        )  # one matrix times itself is symmetric to the last digit
        return mean, scaled.T @ scaled
    if (
        density.kernel.full
    ):  # in the axes of the metric the components are products over the features
        standard = standardize(density, shorten=False)
        mean, cross = mean_and_covariance(standard.density)
        cross = standard.matrix @ cross @ standard.matrix.T
        return standard.points(mean[None, :])[0], 0.5 * (cross + cross.T)
    density = central_point_first(density)
    integrals, X, F, d = (
        density.integrals,
        density.support_points,
        density.unit_factor,
        density.n_features,
    )
    P = (
        (F @ F.T) * np.exp(integrals.log_gram(X, X) - density.log_unit)
    ).ravel()  # B_ij W_ij: the components' weights, which sum to one
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
            right = (
                left
                if columns == rows
                else np.stack([integrals.moments(X, k)[0].ravel() for k in columns])
            )
            cross[np.ix_(rows, columns)] = (left * P) @ right.T
            cross[np.ix_(columns, rows)] = cross[np.ix_(rows, columns)].T
    cross = 0.5 * (cross + cross.T)  # within a block the two orders of summation round differently
    np.fill_diagonal(cross, second)
    return X[0] + mean, cross - np.outer(mean, mean)


def moment(p: SoSDensity, powers: tuple[int, ...], about: np.ndarray) -> float:
    """E[Π_k (x_k − about_k)^{powers_k}], in closed form, computed in standard coordinates: powers
    overflow only where the answer does.
    """
    standard = standardize(p, shorten=False, keep_features=True)
    density, a = standard.density, np.array(powers)
    centre = standard.coordinates(about[None, :])[0]
    if (atoms := density.measure.atoms) is not None:
        with np.errstate(over="ignore", under="ignore"):
            values = np.prod((atoms.points - centre) ** a, axis=1)
        value = float(node_masses(density) @ values)
    else:
        M = Polynomial({powers: 1.0}, centre).matrix(
            density.kernel, density.support_points, density.measure, density.log_unit
        )
        value = M.expectation(density.unit_factor @ density.unit_factor.T)[0]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        log_unit = float(a @ np.log(standard.scale))
        return (
            float(np.sign(value) * np.exp(np.log(abs(value)) + log_unit)) if value != 0.0 else 0.0
        )
