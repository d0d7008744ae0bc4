"""Answers computed another way: composite quadrature that respects kinks, brute-force tensors, and
a conic solver.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from ksos.density import square_of
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Box, Discrete, Measure, Normal

__all__ = [
    "brute_objective",
    "conic_optimum",
    "conic_worst_case",
    "marginal_cdf",
    "quadrature_rule",
    "tolerance",
]


def tolerance(dtype: Any = np.float64) -> float:
    """The one tolerance of the suite, by dtype: what closed forms and oracles must agree to,
    relative.
    """
    return {np.float64: 1e-9, np.float32: 1e-4}[dtype]


def quadrature_rule(
    kernel: Kernel, measure: Measure, centers: np.ndarray, per_panel: int = 20, reach: float = 9.0
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (N, d) and weights that integrate products of kernels centered at ``centers`` against
    ``measure``, d ≤ 2.

    Panels end at every coordinate of a center where the kernel has a kink there, and the rule ends
    ``reach`` bandwidths beyond the last center. Kernels that are not smooth fall as exponentials
    times polynomials: it ends four times as far, but beyond the last center panels are wide.
    """
    d = centers.shape[1]
    if isinstance(measure, Discrete):
        return measure.points, measure.weights
    nodes, weights = np.polynomial.legendre.leggauss(per_panel)
    axes = []
    for k in range(d):
        S = kernel.matrix(d)
        sigma = 1.0 / np.sqrt(
            np.linalg.inv(S)[k, k]
        )  # of the feature given the others: the shortest length of a tied kernel
        margin = (reach if kernel.smooth else 4.0 * reach) * np.sqrt(S[k, k])
        low, high = centers[:, k].min() - margin, centers[:, k].max() + margin
        if isinstance(measure, Box):
            low, high = max(low, measure.low[k]), min(high, measure.high[k])
        x = np.unique(np.r_[low, high, [] if kernel.smooth else centers[:, k]])
        x = x[(x >= low) & (x <= high)]
        pieces = []
        for a, b in itertools.pairwise(x):
            beyond = b <= centers[:, k].min() or a >= centers[:, k].max()
            width = (6.0 if beyond else 2.0) * sigma
            pieces.append(np.linspace(a, b, 1 + int(np.ceil((b - a) / width))))
        edges = np.unique(np.concatenate(pieces))
        half = 0.5 * np.diff(edges)[:, None]
        t = (edges[:-1, None] + half + half * nodes).ravel()
        w = (half * weights).ravel()
        axes.append((t, w))
    if d == 1:
        grid, total = axes[0][0][:, None], axes[0][1]
    else:
        (x, wx), (y, wy) = axes
        grid = np.stack([g.ravel() for g in np.meshgrid(x, y, indexing="ij")], axis=1)
        total = np.outer(wx, wy).ravel()
    return grid, total * np.exp(_log_normals(measure, grid))


def _log_normals(measure: Measure, X: np.ndarray) -> np.ndarray:
    """The log-density of a mixture of normal distributions, by SciPy; 0 for the other measures."""
    normals = measure.normals(X.shape[1])
    if normals is None:
        return np.zeros(X.shape[0])
    return logsumexp(
        [
            np.log(w) + multivariate_normal(mean, S).logpdf(X)
            for w, mean, S in zip(*normals, strict=True)
        ],
        axis=0,
    )


def brute_objective(
    space: Any, data: np.ndarray, weights: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, z, N) of a space from the definitions, by quadrature over ψ: A_kij = ∫ e_k ψ_i ψ_j dρ,
    z_k = Σ a e_k(x), N = TᵀKT.

    Here ψ = Tᵀk(x) and e = S k_σ(Z, x): evaluated at nodes, neither suffers from the cancellation
    of the closed forms.
    """
    nodes, w = quadrature_rule(
        space.kernel, space.measure, np.concatenate([space.support_points, space.landmarks])
    )
    psi = space.basis(nodes)
    e = space.embedding_kernel(nodes, space.landmarks) @ space.projection.S.T
    w = w * np.exp(-space.log_unit)
    r = psi.shape[1]
    A = np.stack([(psi * (w * e[:, k])[:, None]).T @ psi for k in range(e.shape[1])]).reshape(
        -1, r, r
    )
    a = np.full(data.shape[0], 1.0 / data.shape[0]) if weights is None else weights
    z = a @ (space.embedding_kernel(data, space.landmarks) @ space.projection.S.T)
    return A, z, space.T.T @ space.kernel(space.support_points, space.support_points) @ space.T


def conic_optimum(A: np.ndarray, z: np.ndarray, D: np.ndarray, *, squared: bool = True) -> float:
    """min ‖A(C) − z‖² (or the norm) + ⟨D, C⟩ over the spectraplex, by CVXPY with Clarabel."""
    import cvxpy as cp

    r = D.shape[0]
    C = cp.Variable((r, r), PSD=True)
    residual = A.reshape(A.shape[0], -1) @ cp.vec(C, order="C") - z
    distance = cp.sum_squares(residual) if squared else cp.norm(residual)
    problem = cp.Problem(cp.Minimize(distance + cp.sum(cp.multiply(D, C))), [cp.trace(C) == 1])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


def conic_worst_case(
    A: np.ndarray, z: np.ndarray, M: np.ndarray, radius: float | None, penalty: float = 0.0
) -> float:
    """max ⟨M, C⟩ over the spectraplex with ‖A(C) − z‖ ≤ radius, or max ⟨M, C⟩ − penalty·‖A(C) −
    z‖², by CVXPY with Clarabel.
    """
    import cvxpy as cp

    r = M.shape[0]
    C = cp.Variable((r, r), PSD=True)
    residual = A.reshape(A.shape[0], -1) @ cp.vec(C, order="C") - z
    objective, ball = cp.sum(cp.multiply(M, C)), []
    if radius is None:
        objective = objective - penalty * cp.sum_squares(residual)
    else:
        ball = [cp.norm(residual) <= radius]
    problem = cp.Problem(cp.Maximize(objective), [cp.trace(C) == 1, *ball])
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return float(problem.value)


def marginal_cdf(p: Any, k: int, thresholds: np.ndarray) -> np.ndarray:
    """P(x_k ≤ t) of a density with a separable kernel: its marginal density kᵀ(B ∘ W_rest)k,
    integrated by quadrature up to each t.
    """
    d = p.n_features
    rest = [j for j in range(d) if j != k]
    weights = square_of(p).unit_factor @ square_of(p).unit_factor.T
    if p.kernel.full:  # on Lebesgue measure: W/W_k, both from their formulas
        x, alone = p.support_points, p.support_points[:, [k]]
        weights = weights * np.exp(
            square_of(p).integrals.log_gram(x, x)
            - closed_form(p.kernel.restrict([k]), p.measure, 1).log_gram(alone, alone)
        )
    elif rest:
        x = p.support_points[:, rest]
        weights = weights * np.exp(
            closed_form(p.kernel.restrict(rest), p.measure.restrict(rest), d - 1).log_gram(x, x)
        )
    kernel, measure, centers = (
        p.kernel.restrict([k]),
        p.measure.restrict([k]),
        p.support_points[:, [k]],
    )
    total = 0.0
    masses = []
    inner = np.sort(thresholds)
    for low, high in zip(np.r_[-np.inf, inner], np.r_[inner, np.inf], strict=True):
        if isinstance(measure, Box):
            low, high = max(low, measure.low[0]), min(high, measure.high[0])
        reach = (9.0 if kernel.smooth else 45.0) * float(kernel.sigma_vector(1)[0])
        low, high = max(low, centers.min() - reach), min(high, centers.max() + reach)
        if low < high:
            nodes, w = quadrature_rule(kernel, Box([low], [high]), centers, per_panel=16)
            if isinstance(measure, Normal):
                mean, scale = (v[0] for v in measure.normal_factor(1))
                w = w * np.exp(-0.5 * ((nodes[:, 0] - mean) / scale) ** 2)
            values = kernel(nodes, centers)
            total += float(w @ np.einsum("ni,ij,nj->n", values, weights, values))
        masses.append(total)
    return np.array(masses[:-1]) / total
