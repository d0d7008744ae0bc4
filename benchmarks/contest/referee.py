"""The referee judges any answer by the paper's definitions and nothing that a method uses; a
stopwatch stands still meanwhile.

An answer is a pair (L, C) that stands for B = LCLᵀ, in whatever coordinates the method works.
It is carried into the space of the problem (the eigenvectors of W above τ_W), made feasible there,
and only then judged: nobody gains by an infeasible point, and nobody loses by mere rounding of the
mass or of an eigenvalue.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy.linalg import eigh, eigvalsh
from scipy.spatial.distance import cdist

from contest.problem import TOLERANCE, Setting

__all__ = ["CLOCKS", "OutOfTimeError", "Referee", "Watch"]

Clock = Callable[[], float]
CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
"""On one thread and an idle machine they agree; on a busy one the processor's time leaves out what
others took.
"""

# iterates are judged at times that grow by this factor: the times reported are too long by at most
# 3 %
_SPACING = 1.03
_FIRST = 1e-3


class Referee:
    """f(C) = ‖S·U(TCTᵀ) − z‖² + ⟨D, C⟩ and gap(C) = ⟨∇f, C⟩ − λ_min(∇f), all in units of w₀."""

    def __init__(self, setting: Setting, X: np.ndarray) -> None:
        distances = cdist(X, X, "sqeuclidean")
        s2, self.unit = setting.sigma**2, setting.unit
        K = np.exp(-distances / s2)
        values, Q = eigh(np.exp(-distances / (2.0 * s2)))
        kept = values > TOLERANCE * values[-1]
        self.T, self.into = (
            Q[:, kept] / np.sqrt(values[kept]),
            np.sqrt(values[kept])[:, None] * Q[:, kept].T,
        )
        values, Q = eigh(K)
        kept = values > TOLERANCE * values[-1]
        self.S = (Q[:, kept] / np.sqrt(values[kept])).T
        self.z = self.S @ K.mean(axis=1)
        self.D = setting.lam / self.unit * (self.T.T @ K @ self.T)
        self.H = np.exp(-distances / (3.0 * s2))  # u_pqr = c·H_pq·H_pr·H_qr
        self.c = (2.0 / 3.0) ** (0.5 * setting.d)

    def feasible(self, L: np.ndarray | None, C: np.ndarray) -> np.ndarray:
        """B = LCLᵀ (``L=None``: B = C) in the coordinates of the problem: C ⪰ 0 and tr C = 1."""
        M = self.into if L is None else self.into @ L
        C = self.unit * (M @ C @ M.T)
        values, U = eigh(0.5 * (C + C.T))
        values = np.maximum(values, 0.0)
        total = values.sum()
        if not (np.isfinite(total) and total > 0.0):
            raise ValueError("the answer has no mass")
        return np.asarray((U * (values / total)) @ U.T)

    def value(self, C: np.ndarray) -> float:
        """f at a feasible point."""
        residual = self._residual(C)
        return float(residual @ residual + np.vdot(self.D, C))

    def gap(self, C: np.ndarray) -> float:
        """f(C) − f* is at most this."""
        weights = 2.0 * self.c * (self._residual(C) @ self.S)
        G = self.T.T @ (self.H * ((self.H * weights) @ self.H.T)) @ self.T + self.D
        lowest = float(eigvalsh(0.5 * (G + G.T), subset_by_index=[0, 0])[0])
        return max(float(np.vdot(G, C)) - lowest, 0.0)

    def _residual(self, C: np.ndarray) -> np.ndarray:
        B = self.T @ C @ self.T.T
        U = self.c * np.einsum("pr,pr->r", self.H, (B * self.H) @ self.H)
        return np.asarray(self.S @ U - self.z)


class OutOfTimeError(Exception):
    """The limit came before the method's own stop."""


class Watch:
    """The time of one run on a ``clock``, such as those of :data:`CLOCKS`, and what the referee saw
    of it.

    :meth:`look` calls ``tell(seconds, objective)``, and raises :class:`OutOfTimeError` after
    ``limit`` seconds.
    """

    def __init__(
        self,
        referee: Referee,
        limit: float,
        tell: Callable[[float, float], None],
        clock: Clock = time.perf_counter,
    ) -> None:
        self.referee, self.limit, self.tell, self.clock = referee, limit, tell, clock
        self.C: np.ndarray | None = None
        """The feasible point of the last look."""
        self.objective = np.inf
        self._spent, self._next, self._since = 0.0, 0.0, clock()

    @property
    def seconds(self) -> float:
        """Time of the method so far."""
        return self._spent + (self.clock() - self._since)

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return max(self.limit - self.seconds, 0.0)

    def look(self, L: np.ndarray | None, C: np.ndarray, *, last: bool = False) -> None:
        """Judge B = LCLᵀ if it is time for that, or if it is the answer; the clock stands still
        meanwhile.
        """
        now = self.seconds
        if last or now >= self._next:
            self._spent = now
            self._next = max(now * _SPACING, now + _FIRST)
            self.C = self.referee.feasible(L, C)
            self.objective = self.referee.value(self.C)
            self.tell(now, self.objective)
            self._since = self.clock()
        if not last and now > self.limit:
            raise OutOfTimeError
