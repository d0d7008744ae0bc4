"""Two formulas for separable kernels, k = k_S·k_R: features integrated out, and features held fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos._threads import one_blas_thread
from ksos.density._assemble import assemble, unit_rows
from ksos.exceptions import IntegralNotAvailableError
from ksos.integrals import closed_form
from ksos.measures import Measure

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["hold_fixed", "integrate_out"]

_DROP = 1e-15


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
    factor = _hadamard_factor(rows, correlations)
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


def _hadamard_factor(F: np.ndarray, R: np.ndarray) -> np.ndarray:
    """L with LLᵀ = (FFᵀ) ∘ R, positive semi-definite by Schur's theorem, and as few columns as rounding allows.

    With R = VΛVᵀ the columns f_a ∘ √λ_b v_b are such a factor. They are never squared: L keeps the digits that the entries of
    (FFᵀ) ∘ R have lost where they cancel. Rows of F of length one and a unit diagonal of R make the error relative to each row.
    """
    m = F.shape[0]
    require_memory(12 * m * m * FLOAT_BYTES, f"integrating features out of a density with {m} support points", "compress it first")
    with one_blas_thread(m):
        values, V = np.linalg.eigh(R)
    keep = values > _DROP * values[-1]
    roots = V[:, keep] * np.sqrt(values[keep])
    at_once = max(1, 4 * m // roots.shape[1])
    columns = np.zeros((m, 0))
    for start in range(0, F.shape[1], at_once):
        products = F[:, start : start + at_once, None] * roots[:, None, :]
        columns = np.concatenate([columns, products.reshape(m, -1)], axis=1)
        if columns.shape[1] > m and start + at_once < F.shape[1]:
            columns = np.asarray(np.linalg.qr(columns.T, mode="r")).T
    return _thin(columns)


def _thin(columns: np.ndarray) -> np.ndarray:
    """L with LLᵀ = columns·columnsᵀ to rounding, and as few columns as its rank."""
    if columns.shape[1] > columns.shape[0]:
        columns = np.asarray(np.linalg.qr(columns.T, mode="r")).T
    U, s, _ = np.linalg.svd(columns, full_matrices=False)
    keep = s > _DROP * s[0]
    return np.asarray(U[:, keep] * s[keep])
