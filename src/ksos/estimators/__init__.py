"""The scikit-learn faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.estimators.density import KernelSoSDensity
from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.estimators.conditional import KernelSoSConditional
    from ksos.estimators.robust import RobustClassifier, RobustRegressor
    from ksos.estimators.search import KernelSoSDensityCV

__all__ = [
    "KernelSoSConditional",
    "KernelSoSDensity",
    "KernelSoSDensityCV",
    "RobustClassifier",
    "RobustRegressor",
]

__getattr__, __dir__ = _later(
    globals(),
    {
        "KernelSoSConditional": "ksos.estimators.conditional",
        "KernelSoSDensityCV": "ksos.estimators.search",
        "RobustClassifier": "ksos.estimators.robust",
        "RobustRegressor": "ksos.estimators.robust",
    },
)
