"""Two formulas for separable kernels, k = k_S·k_R: features integrated out, and features held fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos.density._assemble import assemble, unit_rows
from ksos.density._hadamard import hadamard_factor
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import closed_form
from ksos.measures import Measure

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["hold_fixed", "integrate_out"]


def integrate_out(density: SoSDensity, keep: list[int], drop: list[int], measure: Measure) -> SoSDensity:
    """B ↦ B ∘ W_R for the features R = ``drop``: a density of the features ``keep`` with respect to ``measure``, of higher rank."""
    _require_product(density)
    X = density.support_points
    integrals = closed_form(density.kernel.restrict(drop), density.measure.restrict(drop), len(drop))
    log_W = integrals.log_gram(X[:, drop], X[:, drop])
    half = 0.5 * np.diagonal(log_W)
    alive = np.isfinite(half)  # elsewhere k_R(·, x̃_i) vanishes on the measure, and the density with it
    rows, log_lengths = unit_rows(density.unit_factor[alive])
    correlations = np.exp(log_W[np.ix_(alive, alive)] - half[alive, None] - half[None, alive])
    factor = hadamard_factor(rows, correlations)
    return assemble(density, density.kernel.restrict(keep), X[alive][:, keep], measure, factor, half[alive] + log_lengths)


def hold_fixed(density: SoSDensity, given: list[int], values: np.ndarray, rest: list[int], measure: Measure) -> SoSDensity:
    """B ↦ ΔBΔ with Δ = diag(k_S(v, x̃_i)), S = ``given``: a density of the features ``rest`` with respect to ``measure``."""
    _require_product(density)
    X = density.support_points
    log_delta = density.kernel.restrict(given).log(values[None, :], X[:, given])[0]
    conditions = dict(zip(given, values.tolist(), strict=True))
    nothing_left = f"the density vanishes at {conditions}, at least to rounding: there is no conditional density"
    kernel = density.kernel.restrict(rest)
    return assemble(density, kernel, X[:, rest], measure, density.unit_factor, log_delta, nothing_left=nothing_left)


def _require_product(density: SoSDensity) -> None:
    kernel, d = density.kernel, density.n_features
    if not kernel.separable(d):
        raise IntegralNotAvailableError(
            f"{kernel!r} is not a product over its {d} features: marginals and conditionals of its densities are no kernel sums of "
            "squares; pass product=True to the kernel, or use a discrete measure such as Discrete.quadrature(box, …)"
        )
