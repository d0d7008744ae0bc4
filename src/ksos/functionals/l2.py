"""The squared L² distance to a density, and its like for samples: least squares in the density
itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals.base import Bound, BoundTerm, Pair, PointwiseTerm, density_values, from_values
from ksos.functionals.basis_sums import BasisSums
from ksos.functionals.penalties import ScaledFunctional, UncurvedLinear
from ksos.ground.arrays import Array, inner, like, to_numpy
from ksos.ground.validation import as_points
from ksos.integrals import closed_form
from ksos.integrals.exact_rule import exact_rule
from ksos.integrals.regions import Rule, Source, panel_rules, smooth_rules
from ksos.space.embedding import MeanEmbedding
from ksos.space.space import SoSSpace

__all__ = ["SquaredL2", "l2_rule"]

_AGREEMENT, _NEGLIGIBLE = 1e-11, 1e-17
_MOST_NODES, _MOST_EXACT_NODES, _MOST_FEATURES = 1 << 16, 1 << 18, 3


class SquaredL2(ScaledFunctional):
    r"""∫ (p − p_target)² dρ for a density; for samples or an embedding Σ a_i δ_{x_i}, the
    least-squares criterion ∫ p² dρ − 2 Σ a_i p(x_i).

    The criterion is the distance up to a constant that does not depend on p (and is infinite for
    atoms). Integrals are sums over the nodes of a rule that is refined until they agree to
    rounding; the solution's ``integration_error`` says what is left. In more than three features,
    use a discrete measure, on which they are exact.

    Parameters
    ----------
    target : SoSDensity, array (n, d), MeanEmbedding or BasisSums
        A density must be one with respect to the measure of the space. Sums over the basis stand
        for samples that are gone.
    relative : bool
        In units of 1/w₀ (w₀ = max_i ∫k(x,x̃_i)²dρ), which makes the value independent of the data's
        scale.

    >>> import ksos
    >>> X = [[-0.5], [0.0], [0.5]]
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    >>> ksos.minimize(SquaredL2(X) + 1e-3 * ksos.functionals.Trace(), space).status
    'solved'
    """

    def __init__(self, target: Any, *, relative: bool = False) -> None:
        target = target.unnamed if isinstance(target, SoSDensity) else target
        self.target = (
            target
            if isinstance(target, (MeanEmbedding, SoSDensity, BasisSums))
            else to_numpy(as_points(target, "target", copy=True))
        )
        super().__init__(relative=relative)

    def bind(self, space: SoSSpace) -> BoundTerm:
        target = self.target
        d = target.shape[1] if isinstance(target, np.ndarray) else target.n_features
        if d != space.n_features:
            raise ValueError(f"the target has {d} features, but the space has {space.n_features}")
        if isinstance(target, SoSDensity) and target.measure != space.measure:
            raise ValueError(
                f"the target is a density with respect to {target.measure!r}, but the space's"
                f" measure is {space.measure!r}"
            )
        unit = self.unit(space)
        nodes, log_weights, error = l2_rule(
            space, target if isinstance(target, SoSDensity) else None
        )
        psi, roots = space.basis(nodes), like(np.exp(0.5 * (log_weights - space.log_unit)), space.T)
        if isinstance(target, SoSDensity):
            with np.errstate(divide="ignore"):
                wanted = like(np.exp(to_numpy(target.logpdf(nodes)) + space.log_unit), space.T)
            return (unit * Bound(_BoundL2(psi, roots, roots * wanted, error))).bind(space)
        D = -2.0 * (
            like(target.on(space), space.T)
            if isinstance(target, BasisSums)
            else _second_order(target, space)
        )
        return (
            unit * (Bound(_BoundL2(psi, roots, 0.0 * roots, error)) + Bound(UncurvedLinear(D)))
        ).bind(space)

    def __repr__(self) -> str:
        shown = (
            f"{self.target.shape[0]} samples"
            if isinstance(self.target, np.ndarray)
            else repr(self.target)
        )
        return f"SquaredL2({shown}{', relative=True' if self.relative else ''})"


def _second_order(target: np.ndarray | MeanEmbedding, space: SoSSpace) -> Array:
    """Σ_i a_i ψ_iψ_iᵀ."""
    points = target if isinstance(target, np.ndarray) else to_numpy(target.points)
    masses = (
        np.full(points.shape[0], 1.0 / points.shape[0])
        if isinstance(target, np.ndarray)
        else to_numpy(target.weights)
    )
    at = space.basis(points)
    return from_values(at, like(masses, space.T))


def l2_rule(space: SoSSpace, target: SoSDensity | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Nodes, log weights, and how far ∫p²dρ may be off with them, estimated, in units of
    exp(−log_unit).

    There are as few nodes as possible: every evaluation of the functional visits all of them.
    """
    if (atoms := space.measure.atoms) is not None:
        return to_numpy(atoms.points), np.log(to_numpy(atoms.weights)), 0.0
    d = space.n_features
    if space.constant:
        raise IntegralNotAvailableError(
            "the L² distance over a basis with the constant function needs a rule for all of"
            f" {space.measure!r}; leave the constant out (constant=False), or use a discrete"
            " measure"
        )
    sources = [(closed_form(space.kernel, space.measure, d), to_numpy(space.support_points))]
    if target is not None:
        sources.append((target.integrals, to_numpy(target.support_points)))
    smooth = all(integrals.kernel.smooth for integrals, _ in sources)
    found, previous, error = None, math.nan, math.inf
    rules: Iterable[Rule] = (
        (smooth_rules if smooth else panel_rules)(sources, _MOST_NODES)
        if d <= _MOST_FEATURES
        else ()
    )
    if not smooth and (exact := _between_kinks(sources)) is not None:
        rules, previous = [exact], math.inf
    for nodes, log_weights in rules:
        squares = np.sum(
            to_numpy(space.basis(nodes)) ** 2, axis=1
        )  # p ≤ ‖ψ‖² for every density of the space
        if target is not None:
            squares = np.maximum(squares, to_numpy(target.pdf(nodes)) * math.exp(space.log_unit))
        parts = np.exp(log_weights - space.log_unit) * squares**2
        total = float(parts.sum())
        keep = parts > _NEGLIGIBLE * total
        found, error, previous = (
            (nodes[keep], log_weights[keep]),
            0.0 if math.isinf(previous) else abs(total - previous),
            total,
        )
        if error <= _AGREEMENT * total:
            break
    if found is None:
        raise IntegralNotAvailableError(
            f"the L² distance on {space.measure!r} with {d} features would need more than"
            f" {_MOST_NODES} nodes; use a discrete measure for the space, such as"
            " Discrete.qmc(box, …)"
        )
    return *found, error


def _between_kinks(sources: Sequence[Source]) -> Rule | None:
    """A rule that is exact for ∫p²dρ, and with a target for ∫p·p_target dρ too; None if there is
    none of so many nodes.
    """
    (integrals, X), (other, Y) = sources[0], sources[-1]
    rule = exact_rule(
        integrals, X, 2 * [(other.kernel, Y)], _MOST_EXACT_NODES, error=1e-3 * _AGREEMENT
    )
    return None if rule is None else (X[0] + rule[0], rule[1])


class _BoundL2(PointwiseTerm):
    """‖root·p − wanted‖² over the nodes, root_n² being their weights."""

    quadratic = True

    def __init__(self, psi: Array, roots: Array, wanted: Array, error: float) -> None:
        self.psi, self.roots, self.wanted, self.integration_error = psi, roots, wanted, error

    def value_at(self, p: Array) -> float:
        residual = self.roots * p - self.wanted
        return inner(residual, residual)

    def slopes(self, p: Array) -> tuple[Array, Array]:
        return 2.0 * self.roots * (self.roots * p - self.wanted), 2.0 * self.roots**2

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        return None, from_values(self.psi, 2.0 * self.roots**2 * density_values(self.psi, dC))
