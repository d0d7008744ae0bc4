"""The joint convex problem in (θ, dual function) by a barrier: a few dozen Newton steps, whatever the radius, with the density for free.

    min  t + ⟨y, z⟩ + εs + reg(θ)   such that   S = tI + A*(y) − M_θ ⪰ 0,  ‖y‖ ≤ s.

M_θ is convex in θ in the order of matrices, so −log det S is convex in (θ, y, t) together. At a minimum of objective/μ − log det S −
log(s² − ‖y‖²) the matrix C = μS⁻¹ has trace 1, lies in the ball, and has θ as its minimiser: a primal point, μ(r + 2) below the dual one.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular

if TYPE_CHECKING:
    from ksos.robust.saddle import SaddleProblem

__all__ = ["BarrierPoint", "JointBarrier"]

_SHRINK, _NEAR, _CENTRED = 0.2, 0.5, 1e-13
_MOST_STEPS, _MOST_HALVINGS = 200, 40
_ARMIJO = 0.01
_MIDWAY = 3e-3


@dataclass(frozen=True)
class BarrierPoint:
    """θ, y and the density parameter of a point near the central path, in the units of the loss."""

    theta: np.ndarray
    y: np.ndarray
    C: np.ndarray
    n_iter: int


@dataclass(frozen=True)
class _Point:
    """(θ, y, t, s) in units of the loss's spread, with the inverse roots of the blocks of S and the value of the barrier."""

    theta: np.ndarray
    y: np.ndarray
    t: float
    s: float
    inverse_roots: list[np.ndarray]
    barrier: float
    linear: float
    """The objective, whose 1/μ-fold is added to the barrier."""


class JointBarrier:
    """The barrier method for one problem and any number of radii."""

    def __init__(self, problem: SaddleProblem) -> None:
        self.problem, self.unit = problem, problem.unit
        space = problem.space
        labels = int(getattr(space, "n_labels", 1))
        r, q = space.rank // labels, problem.z.shape[0] // labels
        self.blocks = [(slice(k * r, (k + 1) * r), slice(k * q, (k + 1) * q)) for k in range(labels)]
        first = problem.map.jacobian(np.eye(space.rank)[:, :r])
        self.tensor = np.ascontiguousarray(first[:q, :r])  # the same for every label
        self.p, self.r = problem.risk.n_parameters, r
        self._midway: tuple[_Point, float] | None = None

    def cost(self) -> float:
        """Floating-point operations of one Newton step, about."""
        n = self.p + self.tensor.shape[0] + 1
        return len(self.blocks) * (4.0 * n * self.r**3 + float(n * n * self.r**2)) + (self.p + self.problem.z.shape[0]) ** 3 / 3.0

    def solve(self, radius: float, gap: float, theta: np.ndarray, ends: float | None = None) -> BarrierPoint | None:
        """A point whose gap is about ``gap`` in the units of the loss; None where Newton's method has not got there (before ``ends``)."""
        last = 0.5 * gap / self.unit / (len(self.blocks) * self.r + 2)
        if self._midway is not None and last < self._midway[1]:
            old, mu = self._midway
            found = self._followed(self._at(old.theta, old.y, old.t, old.s, radius), mu, radius, last, ends)
            if found is not None:
                return found
        matrix = self.problem.risk.matrix(theta) / self.unit
        start = self._at(theta, 0.0 * self.problem.z, float(np.linalg.eigvalsh(matrix)[-1]) + 1.0, 1.0, radius)
        return self._followed(start, 1.0, radius, last, ends)

    def _followed(self, start: _Point | None, mu: float, radius: float, last: float, ends: float | None) -> BarrierPoint | None:
        """The path from μ to ``last``. On the way a point is kept from which the next radius starts: there only εs is another."""
        assert start is not None
        x, longest = start, 1.0
        for step in range(_MOST_STEPS):
            if ends is not None and time.perf_counter() > ends:
                return None
            direction, decrement = self._newton(x, mu, radius)
            if mu <= last and decrement <= _CENTRED:
                return self._found(x, mu, step)
            moved = self._searched(x, mu, radius, direction, decrement, longest)
            if moved is None:
                return self._found(x, mu, step) if mu <= last and decrement <= _NEAR else None
            x, longest = moved, 1.0
            if decrement <= _NEAR and mu > last:
                if mu <= _MIDWAY and (self._midway is None or mu > _SHRINK * _MIDWAY):
                    self._midway = (x, mu)
                # points of the path are nearly linear in μ: along its tangent, the next one is so much of a Newton step away
                longest = max(_SHRINK, last / mu)
                mu *= longest
        return None

    def _found(self, x: _Point, mu: float, n_iter: int) -> BarrierPoint:
        r = self.problem.space.rank
        C = np.zeros((r, r))
        for (rows, _), root in zip(self.blocks, x.inverse_roots, strict=True):
            C[rows, rows] = mu * root.T @ root
        return BarrierPoint(x.theta, self.unit * x.y, C / np.trace(C), n_iter)

    def _at(self, theta: np.ndarray, y: np.ndarray, t: float, s: float, radius: float) -> _Point | None:
        """The point, or None outside of the domain."""
        problem = self.problem
        inside = s * s - float(y @ y)
        if s <= 0.0 or inside <= 0.0 or not np.all(np.isfinite(theta)):
            return None
        S = problem.map.adjoint(y) - problem.risk.matrix(theta) / self.unit
        roots, barrier = [], -float(np.log(inside))
        for rows, _ in self.blocks:
            block = S[rows, rows] + t * np.eye(self.r)
            try:
                L = np.linalg.cholesky(block)
            except np.linalg.LinAlgError:
                return None
            barrier -= 2.0 * float(np.sum(np.log(np.diag(L))))
            roots.append(solve_triangular(L, np.eye(self.r), lower=True, check_finite=False))
        linear = t + float(y @ problem.z) + radius * s + problem.risk.penalty(theta) / self.unit
        return _Point(theta, y, t, s, roots, barrier, linear)

    def _newton(self, x: _Point, mu: float, radius: float) -> tuple[np.ndarray, float]:
        """(the step in (θ, y, t, s), the squared decrement)."""
        problem, p, q = self.problem, self.p, self.problem.z.shape[0]
        risk, n = problem.risk, p + self.problem.z.shape[0] + 2
        g, H = np.zeros(n), np.zeros((n, n))
        W = np.zeros((problem.space.rank,) * 2)
        slopes = risk.slopes(x.theta, np.eye(problem.space.rank)) / -self.unit
        for (rows, columns), root in zip(self.blocks, x.inverse_roots, strict=True):
            D = np.concatenate([slopes[:, rows, rows], self.tensor, np.eye(self.r)[None]])
            half = (D.reshape(-1, self.r) @ root.T).reshape(D.shape)
            scaled = (half.transpose(0, 2, 1).reshape(-1, self.r) @ root.T).reshape(D.shape[0], -1)  # L⁻¹DL⁻ᵀ
            at = np.r_[np.arange(p), p + np.arange(columns.start, columns.stop), p + q]
            g[at] -= scaled @ np.eye(self.r).ravel()
            H[np.ix_(at, at)] += scaled @ scaled.T
            W[rows, rows] = root.T @ root
        H[:p, :p] += risk.curvature(x.theta, W) / self.unit + np.diag(2.0 * risk.ridge / (mu * self.unit))
        g[:p] += 2.0 * risk.ridge * x.theta / (mu * self.unit)
        g[p : p + q] += problem.z / mu
        g[p + q] += 1.0 / mu
        g[-1] += radius / mu
        inside, cone = x.s**2 - float(x.y @ x.y), np.r_[np.arange(p, p + q), n - 1]
        normal = np.r_[-x.y, x.s]
        g[cone] -= 2.0 * normal / inside
        H[np.ix_(cone, cone)] += 4.0 * np.outer(normal, normal) / inside**2
        H[cone, cone] += np.r_[np.full(q, 2.0), -2.0] / inside
        scale = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
        H = scale[:, None] * H * scale + 1e-15 * n * np.eye(n)
        try:
            direction = -scale * cho_solve(cho_factor(H, lower=True, check_finite=False), scale * g, check_finite=False)
        except np.linalg.LinAlgError:  # rounding has eaten the curvature of some direction: nothing is to be gained there
            return np.zeros(n), 0.0
        return direction, float(-g @ direction)

    def _searched(self, x: _Point, mu: float, radius: float, step: np.ndarray, decrement: float, longest: float) -> _Point | None:
        """The first of the steps ``longest`` times 1, ½, ¼, … that stays inside and descends; None where there is none."""
        p, q, length = self.p, self.problem.z.shape[0], longest
        before = x.linear / mu + x.barrier
        for _ in range(_MOST_HALVINGS):
            d = length * step
            new = self._at(x.theta + d[:p], x.y + d[p : p + q], x.t + float(d[p + q]), x.s + float(d[-1]), radius)
            if new is not None:
                rise = (new.linear - x.linear) / mu + new.barrier - x.barrier
                if rise <= -_ARMIJO * length * decrement + 1e-13 * abs(before):
                    return new
            length *= 0.5
        return None
