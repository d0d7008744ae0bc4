"""Marginals, and the law of some features given the others, for one condition or for a million of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ksos.density._assemble import (
    Rest,
    assemble,
    hold_fixed,
    integrate_out,
    listed,
    log_squares,
    named,
    unit_rows,
)
from ksos.density.moments import node_masses
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.names import quoted
from ksos.ground.validation import Conditions, as_features
from ksos.kernels import Kernel
from ksos.measures import Atoms, Discrete
from ksos.observables import BoxIndicator

if TYPE_CHECKING:
    from ksos.density.mixture import SoSMixture
    from ksos.density.sos import SoSDensity

__all__ = ["at_values", "conditional", "conditional_logpdf", "in_intervals", "marginal"]

_BLOCK_ELEMENTS, _ROW_ELEMENTS = 1 << 17, 1 << 18
_PRODUCT = 1e-12
_CUTS = 10.0 ** np.arange(-13, 0, 2)
_CANCELLATION = 1e5  # of a sum of squares: five digits of its mass
_MISSED = 1e-3
_NEGLIGIBLE = 1e-10  # of the root of the largest value
_FAR = -1e3  # below, the difference of two logarithms loses digits that matter


def marginal(density: SoSDensity, features: Any) -> SoSDensity:
    r"""p_S(x_S) = ∫ p(x) dρ_R(x_R) = k_S(x_S)ᵀ (B ∘ W_R) k_S(x_S), for the features S =
    ``features`` and the others R.
    """
    keep = as_features(features, density.n_features, "features")
    drop = [k for k in range(density.n_features) if k not in keep]
    measure = density.measure.restrict(keep)
    if not drop:  # another order of the features
        return assemble(
            density,
            density.kernel.restrict(keep),
            density.support_points[:, keep],
            measure,
            density.unit_factor,
        )
    if density.measure.atoms is not None:
        return _marginal_on_atoms(density, keep, drop)
    return integrate_out(density, keep, drop, measure)


def conditional(
    density: SoSDensity, conditions: Conditions, names: Sequence[str] | None = None
) -> SoSDensity | SoSMixture:
    r"""p(x_R | x_S = v, x_T ∈ I) for ``conditions`` {feature: value or interval}: ∝ k_R(x_R)ᵀ (ΔBΔ
    ∘ W_I) k_R(x_R).

    Here Δ = diag(k_S(v, x̃_i)), and W_I = ∫_I k_T k_Tᵀ dρ is positive semi-definite, so that the
    product is. With a metric, k_T is no factor of the kernel: the law is a mixture then, of those
    at the nodes of a rule on the interval.
    """
    values, sides = conditions
    if values:
        density = at_values(density, list(values), np.array(list(values.values())), names)
    if not sides:
        return density
    left = [k for k in range(density.n_features + len(values)) if k not in values]
    within = {left.index(k): side for k, side in sides.items()}
    names = None if names is None else [names[k] for k in left]
    if density.kernel.full and density.measure.atoms is None:
        return density.as_mixture().with_feature_names(names).conditional(within).unnamed
    return in_intervals(density, within, names)


def in_intervals(
    density: SoSDensity, sides: dict[int, tuple[float, float]], names: Sequence[str] | None = None
) -> SoSDensity:
    """The law of the other features given that each of these lies between its ``sides``, for a
    separable kernel or on atoms.
    """
    given, box = list(sides), BoxIndicator(*np.array(list(sides.values())).T)
    rest, measure = [k for k in range(density.n_features) if k not in given], density.measure
    nothing_left = (
        f"the density vanishes where {named(sides, names)}, at least to rounding: there is no"
        " conditional density"
    )
    if (atoms := measure.atoms) is None:
        return integrate_out(density, rest, given, measure.restrict(rest), box, nothing_left)
    inside = box(atoms.points[:, given]) > 0.0
    if not (node_masses(density)[inside].sum() > 0.0):
        raise ValueError(nothing_left)
    part, p = Discrete(atoms.points[inside], atoms.weights[inside]), density
    return marginal(
        p.from_units(p.kernel, p.support_points, p.unit_factor, p.log_unit, part).scaled_to_one(),
        rest,
    )


def at_values(
    density: SoSDensity, given: list[int], values: np.ndarray, names: Sequence[str] | None = None
) -> SoSDensity:
    """The law of the other features given the values of these."""
    rest, measure = [k for k in range(density.n_features) if k not in given], density.measure
    if measure.atoms is not None:
        return _conditional_on_atoms(density, given, values, rest, names)
    if not measure.restrict(given).contains(values[None, :])[0]:
        raise ValueError(
            f"the density vanishes at {listed(given, values, names)}, outside of {measure!r}: there"
            " is no conditional density"
        )
    return hold_fixed(density, given, values, rest, measure.restrict(rest), names)


def conditional_logpdf(
    density: SoSDensity, X: np.ndarray, features: list[int], names: Sequence[str] | None = None
) -> np.ndarray:
    """log p(x_R | x_S) = log p(x) − log p_S(x_S) at the rows x of ``X``, where S = ``features``.

    One marginal serves all rows, and rows are read in blocks: memory does not grow with their
    number beyond ``X`` and the answer.
    """
    d = density.n_features
    if len(features) == d:
        raise ValueError(
            f"given names all {d} features: none is left to have a density; use logpdf for the"
            " density of a row"
        )
    rest = [k for k in range(d) if k not in features]
    atoms = density.measure.atoms
    if atoms is not None and not (
        density.kernel.separable(d) and _is_product(atoms, features, rest)
    ):  # else any value will do
        log_given = _given_logpdf_on_atoms(density, features, X[:, features], names)
        _require_possible(log_given, features, X, names)
        return density.logpdf(X) - log_given
    of_given = marginal(density, features)
    log_given, log_joint = of_given.logpdf(X[:, features]), density.logpdf(X)
    far = (log_given + of_given.log_unit < _FAR) & density.measure.restrict(features).contains(
        X[:, features]
    )
    if np.any(far):
        log_given[far], log_joint[far] = _shifted_logarithms(
            density, of_given, X[far], features, rest
        )
        log_joint[far & ~density.measure.contains(X)] = -np.inf
    _require_possible(log_given, features, X, names)
    return log_joint - log_given


def _shifted_logarithms(
    density: SoSDensity, of_given: SoSDensity, X: np.ndarray, given: list[int], rest: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """log p_S(x_S) and log p(x) without the largest of k_S(x_S, x̃_i)², which far away is a huge
    exponent that both have in common.
    """
    kernel_given, others, zero = (
        density.kernel.restrict(given),
        Rest(density.kernel, given, rest),
        density.support_points[0],
    )
    at_rest = others.points(density.support_points, zero)
    joint, joint_lengths = unit_rows(density.unit_factor)
    alone, alone_lengths = unit_rows(of_given.unit_factor)
    log_given, log_joint = np.empty(X.shape[0]), np.empty(X.shape[0])
    for rows in row_blocks(X.shape[0], max(joint.shape + alone.shape), _BLOCK_ELEMENTS):
        terms = kernel_given.log(X[rows][:, given], of_given.support_points)
        top = terms.max(axis=1, keepdims=True)
        top = np.where(np.isfinite(top), top, 0.0)
        log_given[rows] = log_squares(
            terms - top + alone_lengths, alone
        )  # in this order: the lengths are small numbers
        terms = (
            kernel_given.log(X[rows][:, given], density.support_points[:, given])
            - top
            + joint_lengths
        )
        log_joint[rows] = log_squares(
            terms + others.kernel.log(others.points(X[rows], zero), at_rest), joint
        )
    return log_given - of_given.log_unit, log_joint - density.log_unit


def _require_possible(
    log_given: np.ndarray, given: list[int], X: np.ndarray, names: Sequence[str] | None
) -> None:
    vanishing = np.flatnonzero(np.isneginf(log_given))
    if vanishing.size:
        row, words = (
            int(vanishing[0]),
            given if names is None else quoted([names[k] for k in given]),
        )
        raise ValueError(
            f"the density of the features {words} vanishes in {vanishing.size} of {X.shape[0]} rows"
            f" of X, first in row {row} at {listed(given, X[row, given], names)}: there is no"
            " conditional density; leave out the rows where p.marginal(given).logpdf(X[:, given])"
            " is -inf"
        )


# --- on a discrete measure, whose law is that of atoms with masses w_j p(x_j) ---
#
# The result is again a function of the kernel's class and a discrete measure, which together carry
# exactly the law asked for: a separable
# kernel on a product of measures (a tensor quadrature rule) needs nothing special: B ∘ W_R and ΔBΔ,
# and the measures' factors; a separable
# kernel on scattered atoms keeps B ∘ W_R, and the weights of the new measure take up what is
# missing; any other kernel gets the square of
# the kernel interpolant of √p through the atoms.


def _marginal_on_atoms(density: SoSDensity, keep: list[int], drop: list[int]) -> SoSDensity:
    """The law of the features ``keep``: atoms that agree there become one."""
    projected, log_density = _projected(density, keep)
    if not density.kernel.separable(density.n_features):
        return _interpolant(density, density.kernel.restrict(keep), projected, log_density)
    out = integrate_out(density, keep, drop, projected)
    return (
        out
        if _is_product(cast("Atoms", density.measure.atoms), keep, drop)
        else _with_law(out, projected, log_density)
    )


def _conditional_on_atoms(
    density: SoSDensity,
    given: list[int],
    values: np.ndarray,
    rest: list[int],
    names: Sequence[str] | None,
) -> SoSDensity:
    """The law of the features ``rest`` among the atoms at which the ``given`` ones have these
    values.

    A product of measures gives the same law of ``rest`` to all values, so that any value will do,
    not only those of its atoms.
    """
    nodes = cast("Atoms", density.measure.atoms)
    hit = np.all(nodes.points[:, given] == values, axis=1)
    if not np.any(hit):
        if not _is_product(nodes, given, rest):
            nearest = nodes.points[
                int(np.argmin(np.sum(np.abs(nodes.points[:, given] - values), axis=1)))
            ][given]
            raise ValueError(
                f"no atom of {density.measure!r} has {listed(given, values, names)}, and the"
                " measure is not a product: condition on the value of an atom; the nearest is"
                f" {listed(given, nearest, names)}"
            )
        hit[:] = True
    atoms, group = _distinct(nodes.points[np.ix_(hit, rest)])
    weights = np.bincount(group, nodes.weights[hit])
    measure = Discrete(atoms, weights / weights.sum())
    if density.kernel.separable(density.n_features):
        return hold_fixed(density, given, values, rest, measure, names)
    full = np.empty((atoms.shape[0], density.n_features))
    full[:, given], full[:, rest] = values, atoms
    log_density = density.logpdf(full)
    if not np.any(np.isfinite(log_density)):
        raise ValueError(
            f"the density vanishes at {listed(given, values, names)}: there is no conditional"
            " density"
        )
    return _interpolant(density, density.kernel.restrict(rest), measure, log_density)


def _given_logpdf_on_atoms(
    density: SoSDensity, given: list[int], values: np.ndarray, names: Sequence[str] | None
) -> np.ndarray:
    """The log-density of the ``given`` features, relative to the marginal of the measure, at rows
    ``values`` that belong to atoms.
    """
    projected, log_density = _projected(density, given)
    found = _find(projected.points, values)
    missing = np.flatnonzero(found < 0)
    if missing.size:
        row = int(missing[0])
        raise ValueError(
            f"no atom of {density.measure!r} has the given features of {missing.size} of"
            f" {values.shape[0]} rows of X, first of row {row},"
            f" {listed(given, values[row], names)}: condition on values of atoms"
        )
    return log_density[found]


def _distinct(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and which of them each row is."""
    distinct, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
    return distinct, inverse.ravel()


def _find(atoms: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which of the distinct ``atoms`` each row is, or −1."""
    n, out = atoms.shape[0], np.empty(rows.shape[0], dtype=int)
    for block in row_blocks(rows.shape[0], 1, max(n, _ROW_ELEMENTS)):
        distinct, which = _distinct(np.concatenate([atoms, rows[block]]))
        place = np.full(distinct.shape[0], -1)
        place[which[:n]] = np.arange(n)
        out[block] = place[which[n:]]
    return out


def _projected(density: SoSDensity, features: list[int]) -> tuple[Discrete, np.ndarray]:
    """The marginal of the measure, and at its atoms the logarithm of the density of the marginal
    law relative to it.
    """
    nodes = cast("Atoms", density.measure.atoms)
    atoms, group = _distinct(nodes.points[:, features])
    weights = np.bincount(group, nodes.weights)
    log_mass = density.logpdf(nodes.points) + np.log(nodes.weights)
    top = float(log_mass.max())
    with np.errstate(divide="ignore"):
        log_density = np.log(np.bincount(group, np.exp(log_mass - top))) + top - np.log(weights)
    return Discrete(atoms, weights), log_density


def _is_product(measure: Atoms, first: list[int], second: list[int]) -> bool:
    """Whether ρ is the product of its marginals on two groups of features."""
    (a, i), (b, j) = (_distinct(measure.points[:, features]) for features in (first, second))
    if a.shape[0] * b.shape[0] > measure.points.shape[0]:
        return False
    table = np.zeros((a.shape[0], b.shape[0]))
    np.add.at(table, (i, j), measure.weights)
    expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / table.sum()
    return bool(np.all(np.abs(table - expected) <= _PRODUCT * expected))


def _with_law(density: SoSDensity, projected: Discrete, log_density: np.ndarray) -> SoSDensity:
    """The same function on atoms weighted so that their masses are those of the law with
    ``log_density`` relative to ``projected``.

    Where the function is B ∘ W_R it is nowhere less than the mass of an atom, because W_R sums over
    all atoms: the weights are finite.
    """
    at_atoms = density.logpdf(projected.points)
    with np.errstate(invalid="ignore", under="ignore"):
        weights = (
            np.where(np.isfinite(log_density), np.exp(log_density - at_atoms), 0.0)
            * projected.weights
        )
    carried = weights > 0.0
    measure = Discrete(projected.points[carried], weights[carried])
    return assemble(density, density.kernel, density.support_points, measure, density.unit_factor)


def _interpolant(
    like: SoSDensity, kernel: Kernel, measure: Discrete, log_density: np.ndarray
) -> SoSDensity:
    """(Σ_j α_j k(x, x_j))² with Kα ≈ √p at the atoms x_j; their weights take up what the solution
    of Kα = √p lacks.
    """
    n = measure.points.shape[0]
    require_memory(
        4 * n * n * FLOAT_BYTES, f"a kernel matrix of {n} atoms", "use a measure with fewer nodes"
    )
    roots = np.exp(0.5 * (log_density - log_density.max()))
    log_total = np.log(measure.weights @ roots**2) + log_density.max()
    alpha = _interpolate_root(kernel(measure.points), measure.weights, roots)
    out = assemble(like, kernel, measure.points, measure, alpha[:, None])
    return _with_law(out, measure, log_density - log_total)


def _interpolate_root(K: np.ndarray, weights: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """α with Kα as close to ``roots`` as digits allow: the first cut of the spectrum of K whose α
    neither cancels nor misses an atom.

    If there is none, because the values of scattered atoms are rougher than the kernel, α =
    ``roots`` is a smooth majorant of them.
    """
    values, V = np.linalg.eigh(K)
    for cut in _CUTS:
        keep = values > cut * values[-1]
        alpha = V[:, keep] @ ((V[:, keep].T @ roots) / values[keep])
        reached, uncancelled = K @ alpha, K @ np.abs(alpha)
        missed = (reached < _MISSED * roots) & (roots > _NEGLIGIBLE)
        if weights @ uncancelled**2 <= _CANCELLATION * (weights @ reached**2) and not np.any(
            missed
        ):
            return np.asarray(alpha)
    return roots
