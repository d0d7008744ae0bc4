"""The law of some of the features: the others are integrated out in closed form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ksos._validation import as_features
from ksos.density._assemble import assemble
from ksos.density._separable import integrate_out
from ksos.density.on_atoms import marginal_on_atoms
from ksos.measures import Discrete

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["marginal"]


def marginal(density: SoSDensity, dims: Any) -> SoSDensity:
    r"""p_S(x_S) = ∫ p(x) dρ_R(x_R) = k_S(x_S)ᵀ (B ∘ W_R) k_S(x_S), for the features S = ``dims`` and the others R."""
    keep = as_features(dims, density.n_features, "dims")
    drop = [k for k in range(density.n_features) if k not in keep]
    measure = density.measure.restrict(keep)
    if not drop:  # another order of the features
        return assemble(density, density.kernel.restrict(keep), density.support_points[:, keep], measure, density.unit_factor)
    if isinstance(density.measure, Discrete):
        return marginal_on_atoms(density, keep, drop)
    return integrate_out(density, keep, drop, measure)
