"""The joint convex problem in (θ, dual function) by a barrier [Boyd2004]: a few dozen Newton steps,
whatever the radius, density included.

    min  t + ⟨y, z⟩ + εs + Σ_j α_jθ_j²   such that   S = tI + A*(y) − M_θ ⪰ 0,  ‖y‖ ≤ s.

M_θ is convex in θ in the order of matrices, so −log det S is convex in (θ, y, t) together. At a
minimum of objective/μ − log det S − log(s² − ‖y‖²) the matrix C = μS⁻¹ has trace 1, lies in the
ball, and has θ as its minimizer: a primal point, μ(r + 2) below the dual one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ksos.ground import Run, to_numpy
from ksos.robust.parametric import ParametricRisk
from ksos.space import SoSSpace, blocks_of

__all__ = ["BarrierPoint", "Iterate", "JointBarrier"]

_SHRINK = 0.2  # μ shrinks by this factor: a long-step method ([Boyd2004], 11.3).
_NEAR = 0.5  # The squared Newton decrement below which μ shrinks: full steps converge from there.
_CENTERED = 1e-13  # The same at the end: rounding, where primal and dual point agree.


@dataclass(frozen=True)
class Iterate:
    """(θ, y, t, s) with the inverse roots of the blocks of S, the value of the barrier, and the
    linear objective, whose 1/μ-fold is added to it.
    """

    theta: np.ndarray
    y: np.ndarray
    t: float
    s: float
    inverse_roots: list[np.ndarray]
    barrier: float
    linear: float


@dataclass(frozen=True)
class BarrierPoint:
    """θ, y and the density parameter of a point near the central path."""

    theta: np.ndarray
    y: np.ndarray
    C: np.ndarray
    n_iter: int


class JointBarrier:
    """The barrier method for one risk on one space around one target z, for any number of radii.
    Values are in units of ``unit``.
    """

    def __init__(self, space: SoSSpace, risk: ParametricRisk, z: np.ndarray, unit: float) -> None:
        self.risk, self.z, self.unit, self.map = risk, z, unit, space.compressed_map
        self.rank, self.r, self.p = space.rank, space.rank // space.n_blocks, risk.n_parameters
        columns = blocks_of(z.shape[0] // space.n_blocks, space.n_blocks)
        self.blocks = list(zip(blocks_of(self.r, space.n_blocks), columns, strict=True))
        # the same for every label
        tensor = to_numpy(space.with_labels(None).compressed_map.tensor)
        self.tensor = np.ascontiguousarray(tensor)

    def solve(self, radius: float, gap: float, theta: np.ndarray) -> BarrierPoint | None:
        """A point whose gap is about ``gap``, or None if Newton's method does not get there."""
        last = 0.5 * gap / (len(self.blocks) * self.r + 2)
        top = float(np.linalg.eigvalsh(self.risk.matrix(theta) / self.unit)[-1])
        x = self._at(np.r_[theta, 0.0 * self.z, top + 1.0, 1.0], radius)
        mu, longest, run = 1.0, 1.0, Run.current()
        for step in range(200):  # a few dozen are needed
            if x is None or run.over:
                return None
            direction, decrement = self._newton(x, mu, radius)
            moved = None
            if mu > last or decrement > _CENTERED:
                moved = self._searched(x, mu, radius, direction, decrement, longest)
            if moved is None:
                C = np.zeros((self.rank, self.rank))
                for (rows, _), root in zip(self.blocks, x.inverse_roots, strict=True):
                    C[rows, rows] = root.T @ root
                found = BarrierPoint(x.theta, x.y, C / np.trace(C), step)
                return found if mu <= last and decrement <= _NEAR else None
            x, longest = moved, 1.0
            if decrement <= _NEAR and mu > last:
                # points of the path are nearly linear in μ: along its tangent, the next one is so
                # much of a Newton step away
                longest = max(_SHRINK, last / mu)
                mu *= longest
        return None

    def _at(self, x: np.ndarray, radius: float) -> Iterate | None:
        """The point (θ, y, t, s), or None outside of the domain."""
        theta, y, (t, s) = x[: self.p], x[self.p : -2], x[-2:].tolist()
        inside = s * s - float(y @ y)
        if s <= 0.0 or inside <= 0.0 or not np.all(np.isfinite(theta)):
            return None
        S = self.map.adjoint(y) - self.risk.matrix(theta) / self.unit
        roots, barrier = [], -float(np.log(inside))
        for rows, _ in self.blocks:
            try:
                L = np.linalg.cholesky(S[rows, rows] + t * np.eye(self.r))
            except np.linalg.LinAlgError:
                return None
            barrier -= 2.0 * float(np.sum(np.log(np.diag(L))))
            roots.append(solve_triangular(L, np.eye(self.r), lower=True, check_finite=False))
        linear = t + float(y @ self.z) + radius * s + self.risk.penalty(theta) / self.unit
        return Iterate(theta, y, t, s, roots, barrier, linear)

    def _newton(self, x: Iterate, mu: float, radius: float) -> tuple[np.ndarray, float]:
        """(the step in (θ, y, t, s), the squared decrement)."""
        risk, p, q = self.risk, self.p, self.z.shape[0]
        n = p + q + 2
        g, H, W = np.zeros(n), np.zeros((n, n)), np.zeros((self.rank, self.rank))
        slopes = risk.slopes(x.theta) / -self.unit
        for (rows, columns), root in zip(self.blocks, x.inverse_roots, strict=True):
            D = np.concatenate([slopes[:, rows, rows], self.tensor, np.eye(self.r)[None]])
            # L⁻¹DL⁻ᵀ for all directions D at once: two products of large matrices
            half = (D.reshape(-1, self.r) @ root.T).reshape(D.shape)
            turned = half.transpose(0, 2, 1).reshape(-1, self.r)
            scaled = (turned @ root.T).reshape(D.shape[0], -1)
            at = np.r_[np.arange(p), p + np.arange(columns.start, columns.stop), p + q]
            g[at] -= scaled @ np.eye(self.r).ravel()
            H[np.ix_(at, at)] += scaled @ scaled.T
            W[rows, rows] = root.T @ root
        ridge = 2.0 * risk.alpha / (mu * self.unit)
        H[:p, :p] += risk.curvature(x.theta, W) / self.unit + np.diag(ridge)
        g += np.r_[ridge * x.theta, self.z / mu, 1.0 / mu, radius / mu]
        # −log(s² − ‖y‖²)
        inside, cone = x.s**2 - float(x.y @ x.y), np.r_[np.arange(p, p + q), n - 1]
        normal = np.r_[-x.y, x.s]
        g[cone] -= 2.0 * normal / inside
        H[np.ix_(cone, cone)] += 4.0 * np.outer(normal, normal) / inside**2
        H[cone, cone] += np.r_[np.full(q, 2.0), -2.0] / inside
        scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
        H = scale[:, None] * H * scale + 1e-15 * n * np.eye(n)
        try:
            cholesky = cho_factor(H, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            # rounding has eaten the curvature of some direction: nothing is to be gained there
            return np.zeros(n), 0.0
        direction = -scale * cho_solve(cholesky, scale * g, check_finite=False)
        return direction, float(-g @ direction)

    def _searched(
        self,
        x: Iterate,
        mu: float,
        radius: float,
        step: np.ndarray,
        decrement: float,
        length: float,
    ) -> Iterate | None:
        """The first of the steps ``length`` times 1, ½, ¼, … that stays inside and descends."""
        here, before = np.r_[x.theta, x.y, x.t, x.s], x.linear / mu + x.barrier
        for _ in range(40):  # down to rounding
            new = self._at(here + length * step, radius)
            if new is not None:
                rise = (new.linear - x.linear) / mu + new.barrier - x.barrier
                # Armijo's rule, as in [Boyd2004], 9.2
                if rise <= -0.01 * length * decrement + 1e-13 * abs(before):
                    return new
            length *= 0.5
        return None
