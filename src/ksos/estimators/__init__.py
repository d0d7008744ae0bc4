"""The scikit-learn faces."""

from __future__ import annotations

from ksos.estimators.density import KernelSoSDensity

__all__ = ["KernelSoSDensity"]
