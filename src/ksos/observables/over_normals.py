"""Polynomials and boxes integrated against pairs of kernels that are multiples of normal
distributions: moments and masses of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, cast

import numpy as np

from ksos.ground.memory import FLOAT_BYTES, require_memory
from ksos.integrals import closed_form
from ksos.integrals.normal_boxes import box_masses
from ksos.kernels import Kernel
from ksos.measures import Measure, Normal

Monomial = tuple[tuple[int, int], ...]
"""((feature, power), …), features ascending, powers positive; () is the constant 1."""


class Block(NamedTuple):
    """Some entries of ∫ f φφᵀ dρ: weights · E[f] under N(means, covariance)."""

    rows: slice
    columns: slice
    weights: np.ndarray
    means: np.ndarray
    """(…, d)."""
    covariance: np.ndarray


def are_normal(kernel: Kernel, measure: Measure, d: int, *, constant: bool) -> bool:
    """Whether products k_i k_j dρ are sums of normal distributions that are not independent over
    the features, or that the ``constant`` function is among.
    """
    if measure.normals(d) is not None:
        return constant or kernel.full or measure.by_components
    return closed_form(kernel, measure, d).pair_metric() is not None


def blocks(
    kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, *, constant: bool
) -> Iterator[Block]:
    r"""∫ f φφᵀ dρ for φ = (k_1, …, k_m), or (1, k_1, …, k_m) with the ``constant``, in units of
    exp(log_unit): on R^d for a kernel with a metric, or for ρ = Σ_c w_c N(μ_c, Σ_c).

    q kernels of metric S with mean z̄ of their points are a multiple of N(z̄, P), P = S/(2q): under
    them and N(μ, Σ) x has the mean μ + Σ(Σ + P)⁻¹(z̄ − μ) and the covariance Σ(Σ + P)⁻¹P. Blocks
    off the diagonal stand for their transposes too.
    """
    (m, d), first = X.shape, int(constant)
    require_memory(
        FLOAT_BYTES * m * m * (d + 8),
        f"the moments of {m} support points",
        "use fewer support points",
    )
    inner, one = slice(first, first + m), slice(0, 1)
    if (normals := measure.normals(d)) is None:
        integrals = closed_form(kernel, measure, d)
        weights = np.exp(integrals.log_gram(X, X) - log_unit)
        yield Block(
            inner,
            inner,
            weights,
            np.asarray(0.5 * (X[:, None, :] + X)),
            0.5 * cast("np.ndarray", integrals.pair_metric()),
        )
        return
    S = kernel.matrix(d)
    for weight, mean, covariance in zip(*normals, strict=True):
        normal = closed_form(kernel, Normal(mean, covariance), d)
        pulls = {q: np.linalg.solve(covariance + S / (2.0 * q), covariance).T for q in (1, 2)}
        xi = {q: mean + (X - mean) @ pull.T for q, pull in pulls.items()}
        weights = weight * np.exp(normal.log_gram(X, X) - log_unit)
        yield Block(
            inner, inner, weights, np.asarray(0.5 * (xi[2][:, None, :] + xi[2])), pulls[2] @ S / 4.0
        )
        if constant:
            weights = weight * np.exp(normal.log_mean(X) - log_unit)
            yield Block(one, inner, weights[None, :], xi[1][None, :, :], pulls[1] @ S / 2.0)
            unit = np.array([[weight * np.exp(-log_unit)]])
            yield Block(one, one, unit, mean[None, None, :], covariance)


def polynomial_matrix(
    terms: Mapping[Monomial, float],
    center: Mapping[int, float],
    kernel: Kernel,
    X: np.ndarray,
    measure: Measure,
    log_unit: float,
    *,
    constant: bool,
) -> np.ndarray:
    """∫ f φφᵀ dρ for a polynomial f in x − center."""
    shift = np.array([center.get(k, 0.0) for k in range(X.shape[1])])
    out = np.zeros((X.shape[0] + constant, X.shape[0] + constant))
    for block in blocks(kernel, X, measure, log_unit, constant=constant):
        with np.errstate(over="ignore", invalid="ignore"):
            values = block.weights * _expected(terms, block.means - shift, block.covariance)
        # where kernels do not overlap, moments may overflow and count nothing
        _add(out, block, np.where(block.weights > 0.0, values, 0.0))
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
    size = X.shape[0] + constant
    out = np.zeros((1, size, size))
    for block in blocks(kernel, X, measure, log_unit, constant=constant):
        # half of a symmetric block is enough
        i, j = np.indices(block.weights.shape).reshape(2, -1)
        if block.rows == block.columns:
            i, j = np.triu_indices(block.weights.shape[0])
        middle = block.means[i, j]
        symmetric = 0.5 * (block.covariance + block.covariance.T)
        each = box_masses(low - middle, high - middle, symmetric)
        if each.shape[0] > out.shape[0]:
            out = np.repeat(out, each.shape[0], axis=0)
        for k in range(out.shape[0]):
            values = np.zeros(block.weights.shape)
            values[i, j] = block.weights[i, j] * each[k % each.shape[0]]
            if block.rows == block.columns:
                values[j, i] = values[i, j]
            _add(out[k], block, values)
    return out


def _add(out: np.ndarray, block: Block, values: np.ndarray) -> None:
    out[block.rows, block.columns] += values
    if block.rows != block.columns:
        out[block.columns, block.rows] += values.T


def _expected(
    terms: Mapping[Monomial, float], means: np.ndarray, covariance: np.ndarray
) -> np.ndarray:
    """E[f] under N(means, covariance), the last axis being that of the features: E[t_k g] =
    E[t_k]E[g] + Σ_l C_kl E[∂g/∂t_l] (Stein).
    """
    known: dict[Monomial, np.ndarray] = {(): np.ones(means.shape[:-1])}

    def moment(monomial: Monomial) -> np.ndarray:
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


def _lowered(monomial: Monomial, feature: int) -> Monomial:
    """One power of the feature less."""
    return tuple((k, power - (k == feature)) for k, power in monomial if power > (k == feature))
