"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["Rule"]

Rule = Callable[[np.ndarray, np.ndarray, np.random.Generator, Kernel, Measure], np.ndarray]
"""Of distinct points, their weights, a generator for random subsets, the kernel's family and ρ: a scalar or one bandwidth per feature."""
