"""Display objects in scikit-learn's manner: the numbers are computed once, ``plot`` draws them,
matplotlib is imported when it does.
"""

from __future__ import annotations

from ksos.plotting.canvas import require_matplotlib, sheet
from ksos.plotting.conditional import ConditionalDisplay
from ksos.plotting.cv_surface import CrossValidationDisplay
from ksos.plotting.density import MOST_PAIRED, DensityDisplay, figure_size
from ksos.plotting.solution import RobustPathDisplay, SolutionDisplay
from ksos.plotting.tables import TableDisplay, table_size

__all__ = [
    "MOST_PAIRED",
    "ConditionalDisplay",
    "CrossValidationDisplay",
    "DensityDisplay",
    "RobustPathDisplay",
    "SolutionDisplay",
    "TableDisplay",
    "figure_size",
    "require_matplotlib",
    "sheet",
    "table_size",
]
