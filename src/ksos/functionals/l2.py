"""The squared L² distance to a density, and its like for samples: least squares in the density itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ksos._array import Array, inner, like, namespace, to_numpy, zeros
from ksos._memory import row_blocks
from ksos._validation import as_points
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals.base import BoundTerm, Functional, Pair
from ksos.integrals import closed_form
from ksos.integrals.regions import panel_rules, smooth_rules
from ksos.space import SoSSpace

__all__ = ["SquaredL2", "l2_rule"]

_BLOCK_ELEMENTS = 1 << 22
_AGREEMENT = 1e-11
_MOST_NODES = 1 << 16
_MOST_FEATURES = 3
_NEGLIGIBLE = 1e-17


class SquaredL2(Functional):
    r"""∫ (p − p_target)² dρ for a density; for samples or an embedding Σ a_i δ_{x_i}, the least-squares criterion ∫ p² dρ − 2 Σ a_i p(x_i).

    The criterion is the distance up to a constant that does not depend on p (and is infinite for atoms). Integrals are sums over the nodes
    of a rule that is refined until they agree to rounding; the solution's ``integration_error`` says what is left. In more than three
    features, use a discrete measure, on which they are exact.

    Parameters
    ----------
    target : SoSDensity, array (n, d) or MeanEmbedding
        A density must be one with respect to the measure of the space.
    relative : bool
        In units of 1/w₀ (w₀ = max_i ∫k(x,x̃_i)²dρ), which makes the value independent of the data's scale.
    """

    def __init__(self, target: Any, *, relative: bool = False) -> None:
        self.target = target if isinstance(target, (MeanEmbedding, SoSDensity)) else to_numpy(as_points(target, "target"))
        self.relative = bool(relative)

    def bind(self, space: SoSSpace) -> BoundTerm:
        target = self.target
        d = target.shape[1] if isinstance(target, np.ndarray) else target.n_features
        if d != space.n_features:
            raise ValueError(f"the target has {d} features, but the space has {space.n_features}")
        if isinstance(target, SoSDensity) and target.measure != space.measure:
            raise ValueError(f"the target is a density with respect to {target.measure!r}, but the space's measure is {space.measure!r}")
        exponent = 0.0 if self.relative else -space.log_unit
        if exponent > 600.0:
            raise ValueError(f"{self!r} overflows: the natural unit of the space is exp({space.log_unit:.4g}); use relative=True")
        nodes, log_weights, error = l2_rule(space, target if isinstance(target, SoSDensity) else None)
        psi, roots = space.basis(nodes), like(np.exp(0.5 * (log_weights - space.log_unit)), space.T)
        unit = math.exp(exponent)
        if isinstance(target, SoSDensity):
            with np.errstate(divide="ignore"):
                wanted = like(np.exp(to_numpy(target.logpdf(nodes)) + space.log_unit), space.T)
            return _BoundL2(psi, roots, wanted, None, unit, error)
        points = target if isinstance(target, np.ndarray) else to_numpy(target.points)
        masses = np.full(points.shape[0], 1.0 / points.shape[0]) if isinstance(target, np.ndarray) else to_numpy(target.weights)
        at = space.basis(points)
        D = -2.0 * ((at * like(masses, space.T)[:, None]).T @ at)
        return _BoundL2(psi, roots, zeros((psi.shape[0],), space.T), D, unit, error)

    def __repr__(self) -> str:
        shown = f"{self.target.shape[0]} samples" if isinstance(self.target, np.ndarray) else repr(self.target)
        return f"SquaredL2({shown}{', relative=True' if self.relative else ''})"


def l2_rule(space: SoSSpace, target: SoSDensity | None) -> tuple[np.ndarray, np.ndarray, float]:
    """Nodes, log weights, and how far ∫p²dρ may be off with them, estimated, in units of exp(−log_unit).

    There are as few nodes as possible: every evaluation of the functional visits all of them.
    """
    if (atoms := space.measure.atoms) is not None:
        return to_numpy(atoms.points), np.log(to_numpy(atoms.weights)), 0.0
    d = space.n_features
    sources = [(closed_form(space.kernel, space.measure, d), to_numpy(space.support_points))]
    if target is not None:
        sources.append((target.integrals, to_numpy(target.support_points)))
    smooth = all(integrals.kernel.smooth for integrals, _ in sources)
    found, previous, error = None, math.nan, math.inf
    for nodes, log_weights in () if d > _MOST_FEATURES else (smooth_rules if smooth else panel_rules)(sources, _MOST_NODES):
        squares = np.sum(to_numpy(space.basis(nodes)) ** 2, axis=1)  # p ≤ ‖ψ‖² for every density of the space
        if target is not None:
            squares = np.maximum(squares, to_numpy(target.pdf(nodes)) * math.exp(space.log_unit))
        parts = np.exp(log_weights - space.log_unit) * squares**2
        total = float(parts.sum())
        keep = parts > _NEGLIGIBLE * total
        found, error, previous = (nodes[keep], log_weights[keep]), abs(total - previous), total
        if error <= _AGREEMENT * total:
            break
    if found is None:
        raise IntegralNotAvailableError(
            f"the L² distance on {space.measure!r} with {d} features would need more than {_MOST_NODES} nodes; use a discrete measure "
            "for the space, such as Discrete.qmc(box, …)"
        )
    return *found, error


class _BoundL2(BoundTerm):
    """unit·(Σ_n w_n (ψ_nᵀCψ_n − t_n)² + ⟨D, C⟩), w_n = root_n²."""

    quadratic = twice_differentiable = True

    def __init__(self, psi: Array, roots: Array, wanted: Array, D: Array | None, unit: float, error: float) -> None:
        self.psi, self.roots, self.wanted, self.D, self.unit = psi, roots, wanted, D, unit
        self.integration_error = unit * error

    def restrict(self, columns: slice) -> BoundTerm | None:
        D = None if self.D is None else self.D[columns, columns]
        return _BoundL2(self.psi[:, columns], self.roots, self.wanted, D, self.unit, self.integration_error / self.unit)

    def _densities(self, C: Array) -> Array:
        """root_n·ψ_nᵀCψ_n."""
        return namespace(C).sum((self.psi @ C) * self.psi, axis=1) * self.roots

    def value(self, a: Array | None, C: Array) -> float:
        residual = self._densities(C) - self.roots * self.wanted
        return self.unit * (inner(residual, residual) + (0.0 if self.D is None else inner(self.D, C)))

    def _slope(self, weighted: Array) -> Array:
        return (2.0 * self.unit) * ((self.psi * (self.roots * weighted)[:, None]).T @ self.psi)

    def gradient(self, a: Array | None, C: Array) -> Pair:
        slope = self._slope(self._densities(C) - self.roots * self.wanted)
        return None, slope if self.D is None else slope + self.unit * self.D

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        return None, self._slope(self._densities(dC))

    def factor_hessian(self, F: Array) -> Array | None:
        """8 Σ_n w_n (ψ_n ⊗ Fᵀψ_n)(ψ_n ⊗ Fᵀψ_n)ᵀ, in blocks of nodes."""
        r, k = F.shape
        xp, out = namespace(F), zeros((r * k, r * k), F)
        for part in row_blocks(self.psi.shape[0], r * k, _BLOCK_ELEMENTS):
            psi = self.psi[part, :]
            v = (psi @ F) * self.roots[part][:, None]
            rows = xp.reshape(psi[:, :, None] * v[:, None, :], (-1, r * k))
            out += rows.T @ rows
        return xp.reshape(8.0 * self.unit * out, (r, k, r, k))
