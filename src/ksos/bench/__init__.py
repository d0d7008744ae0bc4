"""The side-by-side benchmark behind ``ksos bench``: one problem, every contestant in a process of
its own, one function that scores all.
"""

from __future__ import annotations

from ksos.bench.contest import race
from ksos.bench.contestants import CONTESTANTS, QUICK
from ksos.bench.problem import Setting, grid
from ksos.bench.report import TARGETS, Row

__all__ = ["CONTESTANTS", "QUICK", "TARGETS", "Row", "Setting", "grid", "race"]
