"""Polynomials and boxes integrated against pairs of kernels that are multiples of normal
distributions: moments and masses of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np

from ksos.ground import FLOAT_BYTES, require_memory
from ksos.integrals import box_masses, closed_form
from ksos.kernels import Kernel, squared_distances
from ksos.measures import Measure, Normals

# ((feature, power), …), features ascending, powers positive; () is the constant 1
Monomial = tuple[tuple[int, int], ...]
Powers = dict[Monomial, np.ndarray]
# V_kt φ(end) with its sign, (d, n); means and covariance given t = end; the powers known there
End = tuple[np.ndarray, np.ndarray, np.ndarray, Powers]


class Pairs(NamedTuple):
    """Entries (i, j), i ≤ j, of ∫ f φφᵀ dρ: weights · E[f] under N(means, covariance)."""

    i: np.ndarray
    j: np.ndarray
    weights: np.ndarray
    means: np.ndarray  # (n, d)
    covariance: np.ndarray


def are_normal(kernel: Kernel, measure: Measure, d: int, *, constant: bool) -> bool:
    """Whether products k_i k_j dρ are sums of normal distributions that are not independent over
    the features, or that the ``constant`` function is among.
    """
    if measure.normals(d) is not None:
        return constant or kernel.full or measure.by_components
    pairs = closed_form(kernel, measure, d).pair_normals(np.zeros((1, d)))
    return pairs is not None and pairs[1].ndim > 1


def normal_pairs(
    kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, *, constant: bool = False
) -> Iterator[Pairs]:
    r"""∫ f φφᵀ dρ for φ = (k_1, …, k_m), or (1, k_1, …, k_m) with the ``constant``, in units of
    exp(log_unit): for Gaussian kernels on R^d, and over ρ = Σ_c w_c N(μ_c, Σ_c).
    """
    m, d = X.shape
    what = f"the products of {m} support points"
    require_memory(FLOAT_BYTES * m * m * (d + 8), what, "use fewer support points")
    if (normals := measure.normals(d)) is not None:
        return pairs_over(normals, kernel.matrix(d), X, log_unit, np.arange(d), constant=constant)
    i, j = np.triu_indices(m)
    integrals = closed_form(kernel, measure, d)
    xi, root = cast("tuple[np.ndarray, np.ndarray]", integrals.pair_normals(X))
    weights = np.exp(integrals.log_gram(X, X)[i, j] - log_unit)
    covariance = 0.5 * (np.diag(root**2) if root.ndim == 1 else root @ root.T)
    return iter([Pairs(i, j, weights, 0.5 * (xi[i] + xi[j]), covariance)])


def pairs_over(
    normals: Normals,
    S: np.ndarray,
    X: np.ndarray,
    log_unit: float,
    index: np.ndarray,
    *,
    constant: bool,
) -> Iterator[Pairs]:
    r"""The same for a kernel of metric S over normal densities, one after the other, f being a
    function of the features ``index``.

    q kernels with mean z̄ of their points are a multiple of N(z̄, P), P = S/(2q). With N(μ, Σ) they
    are a multiple of N(μ + Σ(Σ + P)⁻¹(z̄ − μ), Σ(Σ + P)⁻¹P), the larger the smaller
    (z̄ − μ)ᵀ(P + Σ)⁻¹(z̄ − μ).
    """
    (m, d), (i, j), block = X.shape, np.triu_indices(X.shape[0]), np.ix_(index, index)
    shares, means, covariances = normals
    white = (X - X[:1]) @ np.linalg.inv(np.linalg.cholesky(S)).T
    spread = 0.5 * squared_distances(white, white, np.ones(d))[i, j]
    known = [_times_kernels(S / (2.0 * q), covariances) for q in (1, 2)] if m else []
    zero = np.zeros(1, dtype=int)
    for number, (log_share, mean) in enumerate(zip(np.log(shares) - log_unit, means, strict=True)):
        away = X - mean
        if constant:
            alone = np.exp(log_share)[None]
            yield Pairs(zero, zero, alone, mean[None, index], covariances[number][block])
        for q, (logs, roots, pulls, narrowed) in enumerate(known, start=1):
            if q == 1 and not constant:
                continue
            at, centers = away @ roots[number].T, (away @ pulls[number].T + mean)[:, index]
            squares, log = 0.5 * np.einsum("mi,mi->m", at, at), log_share + logs[number]
            places = np.zeros(m, dtype=int), np.arange(1, m + 1)
            if q == 2:  # ‖u_i + u_j‖²/8: where this form loses digits, the pair is nothing
                squares = 0.25 * (squares[i] + squares[j] + (at @ at.T)[i, j]) + spread
                centers, places = 0.5 * (centers[i] + centers[j]), (i + constant, j + constant)
            with np.errstate(under="ignore"):
                yield Pairs(*places, np.exp(log - squares), centers, narrowed[number][block])


# What does not depend on z̄: ½log|P| − ½log|P+Σ|; R with RᵀR = (P + Σ)⁻¹; Σ(Σ + P)⁻¹; and the
# covariances.
def _times_kernels(P: np.ndarray, covariances: np.ndarray) -> tuple[np.ndarray, ...]:
    L = np.linalg.cholesky(covariances + P)
    logs = 0.5 * np.linalg.slogdet(P)[1] - np.log(np.diagonal(L, axis1=1, axis2=2)).sum(axis=1)
    pulls = np.linalg.solve(covariances + P, covariances).transpose(0, 2, 1)
    narrowed = pulls @ P
    return logs, np.linalg.inv(L), pulls, 0.5 * (narrowed + narrowed.transpose(0, 2, 1))


def polynomial_matrix(
    terms: Mapping[Monomial, float],
    center: np.ndarray,
    kernel: Kernel,
    X: np.ndarray,
    measure: Measure,
    log_unit: float,
    *,
    constant: bool,
) -> np.ndarray:
    """∫ f φφᵀ dρ for a polynomial f in x − center."""
    out = np.zeros((1, X.shape[0] + constant, X.shape[0] + constant))
    for pairs in normal_pairs(kernel, X, measure, log_unit, constant=constant):
        with np.errstate(over="ignore", invalid="ignore"):
            at, values = pairs.means - center, 0.0 * pairs.weights
            known: Powers = {(): np.ones(values.shape)}
            for monomial, value in terms.items():
                values += value * pairs.weights * stein(monomial, at, pairs.covariance, known)
        # where kernels do not overlap, moments may overflow and count nothing
        out[:, pairs.i, pairs.j] += np.where(pairs.weights > 0.0, values, 0.0)
    return _symmetric(out)[0]


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
    out = np.zeros((1, X.shape[0] + constant, X.shape[0] + constant))
    for pairs in normal_pairs(kernel, X, measure, log_unit, constant=constant):
        each = box_masses(low - pairs.means, high - pairs.means, pairs.covariance)
        out = np.repeat(out, max(each.shape[0] // out.shape[0], 1), axis=0)
        out[:, pairs.i, pairs.j] += pairs.weights * each
    return _symmetric(out)


# The matrices of which these are the upper halves.
def _symmetric(halves: np.ndarray) -> np.ndarray:
    return np.asarray(np.triu(halves) + np.triu(halves, 1).transpose(0, 2, 1))


def stein(
    monomial: Monomial, means: np.ndarray, V: np.ndarray, known: Powers, ends: Sequence[End] = ()
) -> np.ndarray:
    """E[t^a] under N(means, V), (n,): E[t_k g] = E[t_k]E[g] + Σ_l V_kl E[∂g/∂t_l].

    Over an interval of a feature the ``ends`` add what comes from its two ends.
    """
    if monomial not in known:
        k = monomial[0][0]
        rest = _lowered(monomial, k)
        total = means[:, k] * stein(rest, means, V, known, ends)
        for other, power in rest:
            if V[k, other] != 0.0:
                less = _lowered(rest, other)
                total = total + power * V[k, other] * stein(less, means, V, known, ends)
        for densities, at, given, there in ends:
            total = total + densities[k] * stein(rest, at, given, there)
        known[monomial] = total
    return known[monomial]


# One power of the feature less.
def _lowered(monomial: Monomial, feature: int) -> Monomial:
    return tuple((k, power - (k == feature)) for k, power in monomial if power > (k == feature))
