"""The densities of a space in the exact MMD ball, by a conic solver on the referee's own matrices:
what no bound may lie below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from audit.referee import LONG, Referee, kernel_matrix

CONIC_DIGITS = 2e-6
"""Of the conic solver."""
# points whose kernels span what the conic solver sees of the embedding
_GRID = 81
# eigenvalues that are not rounding
_SEEN = 1e-13


class Ball:
    """max of min_k E_p[f_k] over the densities p of a solution's space whose MMD to the data is at
    most the radius, on a box of the line.

    The exact ball lies in the projected one, so no upper bound of the library may be below this,
    for one f; and by minimax the least worst risk over all parameters is at most this, for the
    losses f_k of any parameters.
    """

    def __init__(self, found: Any, data: Any, radius: float) -> None:
        judge, kernel = Referee(found, []), data.kernel
        box, points = found.space.measure, np.asarray(data.points, float)
        grid = np.linspace(float(box.low[0]), float(box.high[0]), _GRID)[:, None]
        values, vectors = np.linalg.eigh(kernel_matrix(kernel, grid, grid).astype(float))
        kept = values > _SEEN * values[-1]
        root = np.asarray(vectors[:, kept] / np.sqrt(values[kept]), LONG)
        seen = kernel_matrix(kernel, judge.rule.nodes, grid) @ root
        self.judge, self.radius = judge, radius
        self._mass = self._row(np.ones(len(seen), LONG))
        self._embedding = np.stack([self._row(column) for column in seen.T])
        self._center = (
            np.asarray(data.weights, LONG) @ (kernel_matrix(kernel, points, grid) @ root)
        ).astype(float)

    def _row(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.judge.matrix(values).astype(float).ravel())

    def worst(self, losses: list[Callable[[np.ndarray], np.ndarray]]) -> float:
        """The optimum; NaN if the conic solver does not say."""
        import cvxpy as cp

        x, r = self.judge.rule.nodes[:, 0], self.judge.psi.shape[1]
        values = np.stack([np.asarray(loss(x), LONG) for loss in losses])
        middle, unit = (values.max() + values.min()) / 2, float(np.ptp(values))
        rows = np.stack([self._row(row) for row in (values - middle) / LONG(unit)])
        C, least = cp.Variable((r, r), PSD=True), cp.Variable()
        flat = cp.vec(C, order="C")
        in_the_ball = cp.norm(self._embedding @ flat - self._center) <= self.radius
        problem = cp.Problem(
            cp.Maximize(least), [rows @ flat >= least, self._mass @ flat == 1, in_the_ball]
        )
        # if the solver fails on the rows as they are, it may not on its own multiples of them
        for scaled in (False, True):
            try:
                problem.solve(solver="CLARABEL", equilibrate_enable=scaled)
            except cp.SolverError:
                continue
            if problem.status == "optimal":
                return float(middle) + unit * float(problem.value)
        return math.nan
