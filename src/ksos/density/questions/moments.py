"""Mean, covariance and moments of any order."""

from __future__ import annotations

import numpy as np

from ksos.density import normals
from ksos.density.square import Square
from ksos.density.standard import standardize
from ksos.density.terms import Term, Terms
from ksos.ground.memory import require_memory
from ksos.observables import Polynomial


def mean_and_covariance(p: Terms) -> tuple[np.ndarray, np.ndarray]:
    """E[x] and Cov[x]: the covariances within the terms, and that of their means."""
    weights = np.array([w for w, _ in p.parts])
    found = [_mean_and_covariance(term) for _, term in p.parts]
    if len(found) == 1:
        return found[0]
    origin = found[0][0]
    away = np.stack([mean - origin for mean, _ in found])
    mean = weights @ away
    centered = np.sqrt(weights)[:, None] * (away - mean)
    within = sum(w * covariance for w, (_, covariance) in zip(weights, found, strict=True))
    return origin + mean, np.asarray(within + centered.T @ centered)


def moment(p: Terms, powers: tuple[int, ...], about: np.ndarray) -> float:
    """E[Π (x − about)^powers]."""
    return sum(weight * term_moment(term, powers, about) for weight, term in p.parts)


def term_moment(term: Term, powers: tuple[int, ...], about: np.ndarray) -> float:
    """The same of a term; in standard coordinates, so that powers overflow only where it does."""
    if not isinstance(term, Square):
        return normals.moment(term.groups(), powers, about, term.interval)
    standard = standardize(term, on_nodes=False, keep_features=True)
    p, a = standard.square, np.array(powers)
    center = standard.coordinates(about[None, :])[0]
    if (atoms := p.measure.atoms) is not None:
        with np.errstate(over="ignore", under="ignore"):
            values = np.prod((atoms.points - center) ** a, axis=1)
        value = float(p.node_masses() @ values)
    else:
        f = Polynomial({powers: 1.0}, center)
        M = f.matrix(p.kernel, p.support_points, p.measure, p.log_unit)
        value = M.expectation(p.unit_factor @ p.unit_factor.T)[0]
    if value == 0.0:
        return 0.0
    with np.errstate(over="ignore", under="ignore"):
        log_unit = float(a @ np.log(standard.scale))
        return float(np.sign(value) * np.exp(np.log(abs(value)) + log_unit))


@np.errstate(under="ignore")
def _mean_and_covariance(term: Term) -> tuple[np.ndarray, np.ndarray]:
    """Those of a term; of a square, exact up to the cancellation in Σ|B_ij W_ij|."""
    if not isinstance(term, Square):
        return normals.mean_and_covariance(term.groups(), term.interval)
    if (atoms := term.measure.atoms) is not None:
        masses = term.node_masses()
        mean = masses @ atoms.points
        # one matrix times itself is symmetric to the last digit
        scaled = np.sqrt(masses)[:, None] * (atoms.points - mean)
        return mean, scaled.T @ scaled
    # in the axes of a metric, products are products over the features
    standard = standardize(term, on_nodes=False)
    mean, cross = _of_pairs(standard.square)
    with np.errstate(over="ignore"):
        cross = standard.matrix @ cross @ standard.matrix.T
    return standard.points(mean[None, :])[0], 0.5 * (cross + cross.T)


def _of_pairs(p: Square) -> tuple[np.ndarray, np.ndarray]:
    """From the moments of the components k(x, x̃_i)k(x, x̃_j)dρ."""
    integrals, X, F, d = p.integrals, p.support_points, p.unit_factor, p.n_features
    # the weights B_ij W_ij of the components, which sum to one
    P = ((F @ F.T) * np.exp(integrals.log_gram(X, X) - p.log_unit)).ravel()
    require_memory(
        2.0 * d * P.nbytes,
        f"the covariance of {d} features from the pairs of {X.shape[0]} support points",
        "compress the density first (p.compress)",
    )
    first, second = np.empty((d, P.size)), np.empty(d)
    for k in range(d):
        first_k, second_k = integrals.moments(X, k)
        first[k], second[k] = first_k.ravel(), P @ second_k.ravel()
    mean, cross = first @ P, (first * P) @ first.T
    # both orders of summation round differently
    cross = 0.5 * (cross + cross.T)
    np.fill_diagonal(cross, second)
    return X[0] + mean, cross - np.outer(mean, mean)
