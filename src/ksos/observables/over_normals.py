"""Polynomials integrated against kernels and a mixture of normal laws: moments of normal laws, component by component."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure, Normal

__all__ = ["polynomial_matrix"]

_Monomial = tuple[tuple[int, int], ...]


def polynomial_matrix(
    terms: Mapping[_Monomial, float], centre: Mapping[int, float], kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float,
    *, constant: bool,
) -> np.ndarray:  # fmt: skip
    r"""∫ f φφᵀ dρ for φ = (k_1, …, k_m), or (1, k_1, …, k_m) with the ``constant``, and ρ = Σ_c w_c N(μ_c, Σ_c), in units of exp(log_unit).

    q kernels of metric S with mean z̄ of their points are a multiple of N(z̄, P), P = S/(2q): under them and N(μ, Σ) x has the mean
    μ + Σ(Σ + P)⁻¹(z̄ − μ) and the covariance Σ(Σ + P)⁻¹P.
    """
    (m, d), first = X.shape, int(constant)
    S, normals = kernel.matrix(d), measure.normals(d)
    assert normals is not None
    require_memory(FLOAT_BYTES * m * m * (4 + 2 * len(terms)), f"the moments of {m} support points", "use fewer support points")
    out = np.zeros((first + m, first + m))
    for weight, mean, covariance in zip(*normals, strict=True):
        law, shift = closed_form(kernel, Normal(mean, covariance), d), np.array([centre.get(k, 0.0) for k in range(d)])

        def along(q: int, at: np.ndarray, mean: np.ndarray = mean, covariance: np.ndarray = covariance) -> tuple[np.ndarray, np.ndarray]:
            pull = np.linalg.solve(covariance + S / (2.0 * q), covariance).T
            return mean + (at - mean) @ pull.T, pull @ S / (2.0 * q)

        xi, V = along(2, X)
        pairs = 0.5 * ((xi - shift)[:, None, :] + (xi - shift))
        out[first:, first:] += weight * np.exp(law.log_gram(X, X) - log_unit) * _expected(terms, pairs, V)
        if constant:
            xi, V = along(1, X)
            row = weight * np.exp(law.log_mean(X) - log_unit) * _expected(terms, xi - shift, V)
            out[0, 1:] += row
            out[1:, 0] += row
            out[0, 0] += weight * np.exp(-log_unit) * _expected(terms, mean - shift, covariance)
    return 0.5 * (out + out.T)


def _expected(terms: Mapping[_Monomial, float], means: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """E[f] under N(means, covariance), the last axis being that of the features: E[t_k g] = E[t_k]E[g] + Σ_l C_kl E[∂g/∂t_l] (Stein)."""
    known: dict[_Monomial, np.ndarray] = {(): np.ones(means.shape[:-1])}

    def moment(monomial: _Monomial) -> np.ndarray:
        if monomial not in known:
            k = monomial[0][0]
            rest = _lowered(monomial, k)
            total = means[..., k] * moment(rest)
            for other, power in rest:
                total = total + power * covariance[k, other] * moment(_lowered(rest, other))
            known[monomial] = total
        return known[monomial]

    return sum((value * moment(monomial) for monomial, value in terms.items()), np.zeros(means.shape[:-1]))


def _lowered(monomial: _Monomial, feature: int) -> _Monomial:
    """One power of the feature less."""
    return tuple((k, power - (k == feature)) for k, power in monomial if power > (k == feature))
