"""The side-by-side benchmark of solvers: one problem, every method in a process of
its own, one function that scores all.
"""

from __future__ import annotations

from contest.methods import METHODS, QUICK
from contest.problem import Setting, grid
from contest.processes import run_all
from contest.report import TARGETS, Row

__all__ = ["METHODS", "QUICK", "TARGETS", "Row", "Setting", "grid", "run_all"]
