"""ksos: optimize distributions, not just points.

A density is a kernel sum of squares, p(x) = Σ_ij B_ij k(x,x̃_i) k(x,x̃_j) with B ⪰ 0 and ∫p = 1;
distances between distributions are those of kernel mean embeddings (MMD); every fit carries a
certificate of optimality. The method is that of [Muzellec2021]. Keys in brackets are entries of
docs/references.bib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos import functionals, kernels, measures, observables, risk
from ksos._version import __version__ as __version__
from ksos.data import chunks
from ksos.density import Compression, Estimate, SoSDensity, TableDensity, mixture
from ksos.estimators import KernelSoSDensity
from ksos.exceptions import (
    BandwidthWarning,
    ConvexityError,
    FunctionalError,
    IntegralNotAvailableError,
    KsosError,
    ModelFormatError,
)
from ksos.ground.lazy import later as _later
from ksos.kernels import KernelSums
from ksos.solvers import Progress, Solution, minimize, regularization_path
from ksos.space import (
    MeanEmbedding,
    SoSSpace,
    TwoSampleTest,
    median_kernel,
    mmd,
    two_sample_test,
)

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.estimators import (
        KernelSoSConditional,
        KernelSoSDensityCV,
        KernelSoSImputer,
        RobustClassifier,
        RobustRegressor,
    )
    from ksos.estimators.conditional_file import load
    from ksos.explorer import Explorer, explore
    from ksos.plotting import (
        ConditionalDisplay,
        CrossValidationDisplay,
        DensityDisplay,
        RobustPathDisplay,
        SolutionDisplay,
        TableDisplay,
    )
    from ksos.robust import (
        Ball,
        Decision,
        RobustMode,
        RobustSolution,
        WorstCase,
        decide,
        robust_minimize,
        robust_mode,
        robust_path,
        worst_case,
    )

__all__ = [
    "Compression",
    "Estimate",
    "KernelSoSDensity",
    "MeanEmbedding",
    "Progress",
    "SoSDensity",
    "SoSSpace",
    "Solution",
    "TableDensity",
]
__all__ += [
    "functionals",
    "kernels",
    "load",
    "measures",
    "minimize",
    "mixture",
    "mmd",
    "observables",
    "regularization_path",
]
__all__ += ["KernelSums", "TwoSampleTest", "chunks", "median_kernel", "two_sample_test"]
__all__ += [
    "BandwidthWarning",
    "ConvexityError",
    "FunctionalError",
    "IntegralNotAvailableError",
    "KsosError",
    "ModelFormatError",
]
__all__ += ["KernelSoSConditional", "KernelSoSDensityCV", "KernelSoSImputer"]
__all__ += ["RobustClassifier", "RobustRegressor"]
__all__ += ["ConditionalDisplay", "CrossValidationDisplay", "DensityDisplay"]
__all__ += ["RobustPathDisplay", "SolutionDisplay", "TableDisplay"]
__all__ += ["Explorer", "explore"]
__all__ += [
    "Ball",
    "Decision",
    "RobustMode",
    "RobustSolution",
    "WorstCase",
    "decide",
    "risk",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_case",
]

_estimators = (
    "KernelSoSConditional",
    "KernelSoSDensityCV",
    "KernelSoSImputer",
    "RobustClassifier",
    "RobustRegressor",
)
_plotting = (
    "ConditionalDisplay",
    "CrossValidationDisplay",
    "DensityDisplay",
    "RobustPathDisplay",
    "SolutionDisplay",
    "TableDisplay",
)
_robust = (
    "Ball",
    "Decision",
    "RobustMode",
    "RobustSolution",
    "WorstCase",
    "decide",
    "robust_minimize",
    "robust_mode",
    "robust_path",
    "worst_case",
)
_homes: dict[str, tuple[str, ...]] = {
    "ksos.estimators": _estimators,
    "ksos.explorer": ("Explorer", "explore"),
}
_homes |= {
    "ksos.plotting": _plotting,
    "ksos.robust": _robust,
    "ksos.estimators.conditional_file": ("load",),
    "": ("plotting", "robust"),
}
__getattr__, __dir__ = _later(
    globals(), {name: home for home, names in _homes.items() for name in names}
)
