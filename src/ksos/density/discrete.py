"""Marginals and conditionals on a discrete measure, whose law is that of atoms with masses w_j p(x_j).

The result is again a function of the kernel's class and a discrete measure, which together carry exactly the law asked for:

* a separable kernel on a product of measures (a tensor quadrature rule) needs nothing special: B ∘ W_R and ΔBΔ, and the measures' factors;
* a separable kernel on scattered atoms keeps B ∘ W_R, and the weights of the new measure take up what is missing;
* any other kernel gets the square of the kernel interpolant of √p through the atoms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.density._assemble import assemble, hold_fixed, integrate_out
from ksos.kernels import Kernel
from ksos.measures import Atoms, Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["any_value_will_do", "conditional_on_atoms", "given_logpdf_on_atoms", "marginal_on_atoms"]

_PRODUCT = 1e-12
_CUTS = 10.0 ** np.arange(-13, 0, 2)
_CANCELLATION = 1e5  # of a sum of squares: five digits of its mass
_MISSED = 1e-3
_NEGLIGIBLE = 1e-10  # of the root of the largest value
_BLOCK_ELEMENTS = 1 << 18


def marginal_on_atoms(density: SoSDensity, keep: list[int], drop: list[int]) -> SoSDensity:
    """The law of the features ``keep``: atoms that agree there become one."""
    projected, log_density = _projected(density, keep)
    if not density.kernel.separable(density.n_features):
        return _interpolant(density, density.kernel.restrict(keep), projected, log_density)
    out = integrate_out(density, keep, drop, projected)
    return out if _is_product(_atoms(density), keep, drop) else _with_law(out, projected, log_density)


def conditional_on_atoms(density: SoSDensity, given: list[int], values: np.ndarray, rest: list[int]) -> SoSDensity:
    """The law of the features ``rest`` among the atoms at which the ``given`` ones have these values.

    A product of measures gives the same law of ``rest`` to all values, so that any value will do, not only those of its atoms.
    """
    nodes = _atoms(density)
    hit = np.all(nodes.points[:, given] == values, axis=1)
    if not np.any(hit):
        if not _is_product(nodes, given, rest):
            nearest = nodes.points[int(np.argmin(np.sum(np.abs(nodes.points[:, given] - values), axis=1)))][given]
            raise ValueError(
                f"no atom of {density.measure!r} has {_listed(given, values)}, and the measure is not a product: condition on the value of "
                f"an atom; the nearest is {_listed(given, nearest)}"
            )
        hit[:] = True
    atoms, group = _distinct(nodes.points[np.ix_(hit, rest)])
    weights = np.bincount(group, nodes.weights[hit])
    measure = Discrete(atoms, weights / weights.sum())
    if density.kernel.separable(density.n_features):
        return hold_fixed(density, given, values, rest, measure)
    full = np.empty((atoms.shape[0], density.n_features))
    full[:, given], full[:, rest] = values, atoms
    log_density = density.logpdf(full)
    if not np.any(np.isfinite(log_density)):
        raise ValueError(f"the density vanishes at {_listed(given, values)}: there is no conditional density")
    return _interpolant(density, density.kernel.restrict(rest), measure, log_density)


def any_value_will_do(density: SoSDensity, given: list[int], rest: list[int]) -> bool:
    """Whether conditions need not be values of atoms."""
    return density.kernel.separable(density.n_features) and _is_product(_atoms(density), given, rest)


def given_logpdf_on_atoms(density: SoSDensity, given: list[int], values: np.ndarray) -> np.ndarray:
    """The log-density of the ``given`` features, relative to the marginal of the measure, at rows ``values`` that belong to atoms."""
    projected, log_density = _projected(density, given)
    found = _find(projected.points, values)
    missing = np.flatnonzero(found < 0)
    if missing.size:
        row = int(missing[0])
        raise ValueError(
            f"no atom of {density.measure!r} has the given features of {missing.size} of {values.shape[0]} rows of X, first of row {row}, "
            f"{_listed(given, values[row])}: condition on values of atoms"
        )
    return log_density[found]


def _atoms(density: SoSDensity) -> Atoms:
    atoms = density.measure.atoms
    assert atoms is not None
    return atoms


def _listed(features: list[int], values: np.ndarray) -> str:
    return str(dict(zip(features, values.tolist(), strict=True)))


def _distinct(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct rows, and which of them each row is."""
    distinct, inverse = np.unique(points + 0.0, axis=0, return_inverse=True)
    return distinct, inverse.ravel()


def _find(atoms: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Which of the distinct ``atoms`` each row is, or −1."""
    n, out = atoms.shape[0], np.empty(rows.shape[0], dtype=int)
    for block in row_blocks(rows.shape[0], 1, max(n, _BLOCK_ELEMENTS)):
        distinct, which = _distinct(np.concatenate([atoms, rows[block]]))
        place = np.full(distinct.shape[0], -1)
        place[which[:n]] = np.arange(n)
        out[block] = place[which[n:]]
    return out


def _projected(density: SoSDensity, features: list[int]) -> tuple[Discrete, np.ndarray]:
    """The marginal of the measure, and at its atoms the logarithm of the density of the marginal law relative to it."""
    nodes = _atoms(density)
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
    """The same function on atoms weighted so that their masses are those of the law with ``log_density`` relative to ``projected``.

    Where the function is B ∘ W_R it is nowhere less than the mass of an atom, because W_R sums over all atoms: the weights are finite.
    """
    at_atoms = density.logpdf(projected.points)
    with np.errstate(invalid="ignore", under="ignore"):
        weights = np.where(np.isfinite(log_density), np.exp(log_density - at_atoms), 0.0) * projected.weights
    carried = weights > 0.0
    measure = Discrete(projected.points[carried], weights[carried])
    return assemble(density, density.kernel, density.support_points, measure, density.unit_factor)


def _interpolant(like: SoSDensity, kernel: Kernel, measure: Discrete, log_density: np.ndarray) -> SoSDensity:
    """(Σ_j α_j k(x, x_j))² with Kα ≈ √p at the atoms x_j; their weights take up what the solution of Kα = √p lacks."""
    n = measure.points.shape[0]
    require_memory(4 * n * n * FLOAT_BYTES, f"a kernel matrix of {n} atoms", "use a measure with fewer nodes")
    roots = np.exp(0.5 * (log_density - log_density.max()))
    log_total = np.log(measure.weights @ roots**2) + log_density.max()
    alpha = _interpolate_root(kernel(measure.points), measure.weights, roots)
    out = assemble(like, kernel, measure.points, measure, alpha[:, None])
    return _with_law(out, measure, log_density - log_total)


def _interpolate_root(K: np.ndarray, weights: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """α with Kα as close to ``roots`` as digits allow: the first cut of the spectrum of K whose α neither cancels nor misses an atom.

    If there is none, because the values of scattered atoms are rougher than the kernel, α = ``roots`` is a smooth majorant of them.
    """
    values, V = np.linalg.eigh(K)
    for cut in _CUTS:
        keep = values > cut * values[-1]
        alpha = V[:, keep] @ ((V[:, keep].T @ roots) / values[keep])
        reached, uncancelled = K @ alpha, K @ np.abs(alpha)
        missed = (reached < _MISSED * roots) & (roots > _NEGLIGIBLE)
        if weights @ uncancelled**2 <= _CANCELLATION * (weights @ reached**2) and not np.any(missed):
            return np.asarray(alpha)
    return roots
