"""Display objects in scikit-learn's manner: the numbers are computed once, ``plot`` draws them,
matplotlib is imported when it does.
"""

from __future__ import annotations

from ksos.plotting.canvas import require_matplotlib, sheet
from ksos.plotting.conditional import ConditionalDisplay
from ksos.plotting.cv_surface import CrossValidationDisplay
from ksos.plotting.density import DensityDisplay
from ksos.plotting.solution import SolutionDisplay

__all__ = [
    "ConditionalDisplay",
    "CrossValidationDisplay",
    "DensityDisplay",
    "SolutionDisplay",
    "require_matplotlib",
    "sheet",
]
