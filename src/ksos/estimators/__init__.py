"""The scikit-learn faces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.estimators.density import OBJECTIVES, PENALTIES, KernelSoSDensity
from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.estimators.conditional import METHODS, KernelSoSConditional
    from ksos.estimators.conditional_file import (
        is_conditional_file,
        load_conditional,
        save_conditional,
    )
    from ksos.estimators.regressors import SmoothRegressor
    from ksos.estimators.robust import RobustClassifier, RobustRegressor
    from ksos.estimators.search import MOST_SAMPLES, KernelSoSDensityCV, KernelSoSImputer

__all__ = [
    "METHODS",
    "MOST_SAMPLES",
    "OBJECTIVES",
    "PENALTIES",
    "KernelSoSConditional",
    "KernelSoSDensity",
    "KernelSoSDensityCV",
    "KernelSoSImputer",
    "RobustClassifier",
    "RobustRegressor",
    "SmoothRegressor",
    "is_conditional_file",
    "load_conditional",
    "save_conditional",
]

__getattr__, __dir__ = _later(
    globals(),
    {
        "METHODS": "ksos.estimators.conditional",
        "MOST_SAMPLES": "ksos.estimators.search",
        "KernelSoSConditional": "ksos.estimators.conditional",
        "KernelSoSDensityCV": "ksos.estimators.search",
        "KernelSoSImputer": "ksos.estimators.search",
        "RobustClassifier": "ksos.estimators.robust",
        "RobustRegressor": "ksos.estimators.robust",
        "SmoothRegressor": "ksos.estimators.regressors",
        "is_conditional_file": "ksos.estimators.conditional_file",
        "load_conditional": "ksos.estimators.conditional_file",
        "save_conditional": "ksos.estimators.conditional_file",
    },
)
