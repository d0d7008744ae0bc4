"""Polynomials and boxes integrated against kernels and a mixture of normal laws: moments and masses
of normal laws.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from ksos.ground.memory import FLOAT_BYTES, require_memory
from ksos.integrals import closed_form
from ksos.integrals.normal_boxes import box_masses
from ksos.kernels import Kernel
from ksos.measures import Measure, Normal

__all__ = ["box_matrices", "polynomial_matrix"]

_Monomial = tuple[tuple[int, int], ...]


class Block(NamedTuple):
    """Some entries of ∫ f φφᵀ dρ under one normal law: weights · E[f] under N(means, covariance)."""

    rows: slice
    columns: slice
    weights: np.ndarray
    means: np.ndarray
    """(…, d)."""
    covariance: np.ndarray


def blocks(
    kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, *, constant: bool
) -> Iterator[Block]:
    r"""∫ f φφᵀ dρ for φ = (k_1, …, k_m), or (1, k_1, …, k_m) with the ``constant``, and ρ = Σ_c w_c
    N(μ_c, Σ_c), in units of exp(log_unit).

    q kernels of metric S with mean z̄ of their points are a multiple of N(z̄, P), P = S/(2q): under
    them and N(μ, Σ) x has the mean μ + Σ(Σ + P)⁻¹(z̄ − μ) and the covariance Σ(Σ + P)⁻¹P. Blocks
    off the diagonal stand for their transposes too.
    """
    (m, d), first = X.shape, int(constant)
    S, normals = kernel.matrix(d), measure.normals(d)
    assert normals is not None
    require_memory(
        FLOAT_BYTES * m * m * (d + 8),
        f"the moments of {m} support points",
        "use fewer support points",
    )
    inner, one = slice(first, first + m), slice(0, 1)
    for weight, mean, covariance in zip(*normals, strict=True):
        law, unit = closed_form(kernel, Normal(mean, covariance), d), weight * np.exp(-log_unit)
        pulls = {q: np.linalg.solve(covariance + S / (2.0 * q), covariance).T for q in (1, 2)}
        xi = {q: mean + (X - mean) @ pull.T for q, pull in pulls.items()}
        pairs = 0.5 * (xi[2][:, None, :] + xi[2])
        yield Block(
            inner, inner, weight * np.exp(law.log_gram(X, X) - log_unit), pairs, pulls[2] @ S / 4.0
        )
        if constant:
            yield Block(
                one,
                inner,
                weight * np.exp(law.log_mean(X) - log_unit)[None, :],
                xi[1][None, :, :],
                pulls[1] @ S / 2.0,
            )
            yield Block(one, one, np.array([[unit]]), mean[None, None, :], covariance)


def polynomial_matrix(
    terms: Mapping[_Monomial, float],
    centre: Mapping[int, float],
    kernel: Kernel,
    X: np.ndarray,
    measure: Measure,
    log_unit: float,
    *,
    constant: bool,
) -> np.ndarray:
    """∫ f φφᵀ dρ for a polynomial f in x − centre."""
    shift = np.array([centre.get(k, 0.0) for k in range(X.shape[1])])
    out = np.zeros((X.shape[0] + constant, X.shape[0] + constant))
    for block in blocks(kernel, X, measure, log_unit, constant=constant):
        _add(out, block, block.weights * _expected(terms, block.means - shift, block.covariance))
    return 0.5 * (out + out.T)


def box_matrices(
    low: np.ndarray,
    high: np.ndarray,
    kernel: Kernel,
    X: np.ndarray,
    measure: Measure,
    log_unit: float,
    *,
    constant: bool,
) -> np.ndarray:
    """The same for the indicator of a box: one answer, or independent estimates, (s, …)."""
    d, size = X.shape[1], X.shape[0] + constant
    out = np.zeros((1, size, size))
    for block in blocks(kernel, X, measure, log_unit, constant=constant):
        flat = block.means.reshape(-1, d)
        each = box_masses(low - flat, high - flat, 0.5 * (block.covariance + block.covariance.T))
        if each.shape[0] > out.shape[0]:
            out = np.repeat(out, each.shape[0], axis=0)
        for k in range(out.shape[0]):
            _add(
                out[k], block, block.weights * each[k % each.shape[0]].reshape(block.weights.shape)
            )
    return 0.5 * (out + out.transpose(0, 2, 1))


def _add(out: np.ndarray, block: Block, values: np.ndarray) -> None:
    out[block.rows, block.columns] += values
    if block.rows != block.columns:
        out[block.columns, block.rows] += values.T


def _expected(
    terms: Mapping[_Monomial, float], means: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """E[f] under N(means, covariance), the last axis being that of the features: E[t_k g] =
    E[t_k]E[g] + Σ_l C_kl E[∂g/∂t_l] (Stein).
    """
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

    return sum(
        (value * moment(monomial) for monomial, value in terms.items()), np.zeros(means.shape[:-1])
    )


def _lowered(monomial: _Monomial, feature: int) -> _Monomial:
    """One power of the feature less."""
    return tuple((k, power - (k == feature)) for k, power in monomial if power > (k == feature))
