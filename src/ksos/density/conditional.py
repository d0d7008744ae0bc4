"""Marginals, and the law of some features given the others, for one condition or for a million of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ksos._array import to_numpy
from ksos._memory import row_blocks
from ksos._validation import as_conditions, as_features, as_points
from ksos.density._assemble import assemble, hold_fixed, integrate_out, log_squares, unit_rows
from ksos.density.discrete import any_value_will_do, conditional_on_atoms, given_logpdf_on_atoms, marginal_on_atoms

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["conditional", "conditional_logpdf", "marginal"]

_BLOCK_ELEMENTS = 1 << 17
_FAR = -1e3  # below, the difference of two logarithms loses digits that matter


def marginal(density: SoSDensity, features: Any) -> SoSDensity:
    r"""p_S(x_S) = ∫ p(x) dρ_R(x_R) = k_S(x_S)ᵀ (B ∘ W_R) k_S(x_S), for the features S = ``features`` and the others R."""
    keep = as_features(features, density.n_features, "features")
    drop = [k for k in range(density.n_features) if k not in keep]
    measure = density.measure.restrict(keep)
    if not drop:  # another order of the features
        return assemble(density, density.kernel.restrict(keep), density.support_points[:, keep], measure, density.unit_factor)
    if density.measure.atoms is not None:
        return marginal_on_atoms(density, keep, drop)
    return integrate_out(density, keep, drop, measure)


def conditional(density: SoSDensity, conditions: Any) -> SoSDensity:
    r"""p(x_R | x_S = v) ∝ k_R(x_R)ᵀ ΔBΔ k_R(x_R) with Δ = diag(k_S(v, x̃_i)), for ``conditions`` {feature: value}."""
    given, values = as_conditions(conditions, density.n_features)
    rest = [k for k in range(density.n_features) if k not in given]
    if density.measure.atoms is not None:
        return conditional_on_atoms(density, given, values, rest)
    if not density.measure.restrict(given).contains(values[None, :])[0]:
        listed = dict(zip(given, values.tolist(), strict=True))
        raise ValueError(f"the density vanishes at {listed}, outside of {density.measure!r}: there is no conditional density")
    return hold_fixed(density, given, values, rest, density.measure.restrict(rest))


def conditional_logpdf(density: SoSDensity, X: Any, given: Any) -> np.ndarray:
    """log p(x_R | x_S) = log p(x) − log p_S(x_S) at the rows x of ``X``, where S = ``given``.

    One marginal serves all rows, and rows are read in blocks: memory does not grow with their number beyond ``X`` and the answer.
    """
    d = density.n_features
    X = to_numpy(as_points(X, "X", n_features=d))
    features = as_features(given, d, "given")
    if len(features) == d:
        raise ValueError(f"given names all {d} features: none is left to have a density; use logpdf for the density of a row")
    rest = [k for k in range(d) if k not in features]
    if density.measure.atoms is not None and not any_value_will_do(density, features, rest):
        log_given = given_logpdf_on_atoms(density, features, X[:, features])
        _require_possible(log_given, features, X)
        return density.logpdf(X) - log_given
    of_given = marginal(density, features)
    log_given, log_joint = of_given.logpdf(X[:, features]), density.logpdf(X)
    far = (log_given + of_given.log_unit < _FAR) & density.measure.restrict(features).contains(X[:, features])
    if np.any(far):
        log_given[far], log_joint[far] = _shifted_logarithms(density, of_given, X[far], features, rest)
        log_joint[far & ~density.measure.contains(X)] = -np.inf
    _require_possible(log_given, features, X)
    return log_joint - log_given


def _shifted_logarithms(
    density: SoSDensity, of_given: SoSDensity, X: np.ndarray, given: list[int], rest: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """log p_S(x_S) and log p(x) without the largest of k_S(x_S, x̃_i)², which far away is a huge exponent that both have in common."""
    kernel_given, kernel_rest = density.kernel.restrict(given), density.kernel.restrict(rest)
    joint, joint_lengths = unit_rows(density.unit_factor)
    alone, alone_lengths = unit_rows(of_given.unit_factor)
    log_given, log_joint = np.empty(X.shape[0]), np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], max(joint.shape + alone.shape), _BLOCK_ELEMENTS):
        terms = kernel_given.log(X[rows][:, given], of_given.support_points)
        top = terms.max(axis=1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        log_given[rows] = log_squares(terms - top + alone_lengths, alone)  # in this order: the lengths are small numbers
        terms = kernel_given.log(X[rows][:, given], density.support_points[:, given]) - top + joint_lengths
        log_joint[rows] = log_squares(terms + kernel_rest.log(X[rows][:, rest], density.support_points[:, rest]), joint)
    return log_given - of_given.log_unit, log_joint - density.log_unit


def _require_possible(log_given: np.ndarray, given: list[int], X: np.ndarray) -> None:
    vanishing = np.flatnonzero(np.isneginf(log_given))
    if vanishing.size:
        row = int(vanishing[0])
        where = dict(zip(given, X[row, given].tolist(), strict=True))
        raise ValueError(
            f"the density of the features {given} vanishes in {vanishing.size} of {X.shape[0]} rows of X, first in row {row} at {where}: "
            "there is no conditional density; leave out the rows where p.marginal(given).logpdf(X[:, given]) is -inf"
        )
