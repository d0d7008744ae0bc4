"""Two hundred random problems, degenerate ones among them: no solver says "solved" of what does not
re-verify, and all agree.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from strategies import DEGENERATE

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import SOLVERS, STATUSES

KINDS = [
    "plain",
    "one point",
    "all points equal",
    "duplicates",
    "nearly duplicates",
    "collinear",
    "constant feature",
    "more features than points",
    "far from the origin",
    "integers",
]
TOL = 1e-6
# what two ways to compute a gap may differ by, with whitening matrices as large as those of
# tol_model = 1e-7
ROUNDING = 1e-8
FEW_STEPS = {
    "fista": 200,
    "projected_gradient": 50,
    "frank_wolfe": 50,
}  # valid certificates are asked of all, convergence of the others


def recertified(
    space: ksos.SoSSpace, X: np.ndarray, sigma: float, scale: float, weight: float, C: np.ndarray
) -> tuple[float, float]:
    """(f, gap) from the definitions: every integral written out for the Gaussian kernel on R^d,
    nothing of the library but T and S.
    """
    X = np.asarray(X, dtype=float)
    d, T, S = X.shape[1], space.T, space.projection.S
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=2) / sigma**2
    K = np.exp(-squared)
    triple = (2.0 / 3.0) ** (d / 2) * np.exp(
        -(squared[:, :, None] + squared[:, None, :] + squared[None, :, :]) / 3.0
    )
    A = np.einsum("kc,ijc,ia,jb->kab", S, triple, T, T, optimize=True)
    D = weight * T.T @ K @ T
    residual = np.einsum("kab,ab->k", A, C) - S @ K.mean(axis=1)
    G = 2.0 * scale * np.einsum("k,kab->ab", residual, A) + D
    values = np.linalg.eigvalsh(0.5 * (G + G.T))
    return float(scale * residual @ residual + np.vdot(D, C)), float(np.vdot(G, C) - values[0])


@settings(max_examples=50)
@given(
    X=st.one_of(*(DEGENERATE[kind] for kind in KINDS)),
    sigma=st.sampled_from([0.05, 0.5, 1.0, 3.0, 50.0]),
    scale=st.sampled_from([1.0, 1e-3, 20.0]),
    weight=st.sampled_from([0.0, 1e-6, 1e-3, 1.0]),
)
def test_what_is_called_solved_verifies_and_all_solvers_agree(
    X: np.ndarray, sigma: float, scale: float, weight: float
) -> None:
    space = ksos.SoSSpace(Gaussian(sigma), X, tol_model=1e-7, tol_embedding=1e-7)
    functional = scale * SquaredMMD(X) + weight * Trace(relative=True)
    lower, upper = -np.inf, np.inf
    for solver in SOLVERS:
        solution = ksos.minimize(
            functional, space, solver=solver, tol=TOL, max_iter=FEW_STEPS.get(solver)
        )
        assert solution.status in STATUSES
        assert solution.status == "solved" or solver in FEW_STEPS, (solver, solution.message)
        f, gap = recertified(space, X, sigma, scale, weight, solution.parameter)
        slack = ROUNDING * max(1.0, scale, abs(f))
        assert abs(f - solution.objective) <= slack, solver
        assert abs(gap - solution.gap) <= slack, solver
        assert gap <= TOL + slack or solution.status != "solved", solver
        lower, upper = max(lower, f - gap - slack), min(upper, f + slack)
    assert lower <= upper  # every certificate's lower bound lies below every solver's value
