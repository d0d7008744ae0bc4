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
from ksos.functionals._l2_rule import l2_rule
from ksos.functionals.base import BoundTerm, Functional, Pair
from ksos.space import SoSSpace

__all__ = ["SquaredL2"]

_BLOCK_ELEMENTS = 1 << 22


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
