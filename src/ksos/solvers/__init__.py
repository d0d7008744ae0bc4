"""The spectraplex, the loop, and one file per algorithm."""

from __future__ import annotations

from ksos.solvers.minimize import SOLVERS, minimize
from ksos.solvers.path import regularization_path
from ksos.solvers.solution import STATUSES, Progress, Solution

__all__ = ["SOLVERS", "STATUSES", "Progress", "Solution", "minimize", "regularization_path"]
