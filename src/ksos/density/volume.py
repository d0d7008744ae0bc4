"""A density relative to normal laws as a density by volume: √N·k is a Gaussian bump of another
metric, around another centre.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from ksos.density._assemble import assemble
from ksos.kernels import Gaussian
from ksos.measures import Lebesgue, Normal, Normals

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["bumps"]


def bumps(p: SoSDensity) -> list[tuple[float, SoSDensity]]:
    r"""The laws ∝ ‖Fᵀk‖²N_c with their masses, one per normal law N_c of the measure, each a sum of
    squares by volume.

    √N(μ, Σ)·k_i has the metric (S⁻¹ + Σ⁻¹/4)⁻¹ = S(S + 4Σ)⁻¹4Σ and the centre x̃_i + S(S + 4Σ)⁻¹(μ
    − x̃_i), where it is as large as exp(−(x̃_i − μ)ᵀ(S + 4Σ)⁻¹(x̃_i − μ)) times the root of N at
    its mean.
    """
    S, X, found = cast("Gaussian", p.kernel).matrix(p.n_features), p.support_points, []
    normals = cast("Normals", p.measure.normals(p.n_features))
    single = normals.weights.shape[0] == 1
    for weight, mean, covariance in zip(*normals, strict=True):
        pull = np.linalg.solve(S + 4.0 * covariance, S).T  # S(S + 4Σ)⁻¹
        metric = pull @ (4.0 * covariance)
        away = mean - X
        log_rows = -np.einsum("ik,ik->i", away, np.linalg.solve(S + 4.0 * covariance, away.T).T)
        law = p.from_units(p.kernel, X, p.unit_factor, p.log_unit, Normal(mean, covariance))
        if (mass := 1.0 if single else float(weight) * law.mass()) > 0.0:
            kernel = Gaussian(0.5 * (metric + metric.T))
            found.append(
                (mass, assemble(p, kernel, X + away @ pull.T, Lebesgue(), p.unit_factor, log_rows))
            )
    return found
