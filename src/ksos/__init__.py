"""ksos: optimise distributions, not just points.

A density is a kernel sum of squares, p(x) = Σ_ij B_ij k(x,x̃_i) k(x,x̃_j) with B ⪰ 0 and ∫p = 1; distances between distributions are those
of kernel mean embeddings (MMD); every fit carries a certificate of optimality.
"""

from __future__ import annotations

from ksos import functionals, kernels, measures
from ksos._version import __version__ as __version__
from ksos.density import SoSDensity
from ksos.density.io import load
from ksos.embedding import MeanEmbedding, mmd
from ksos.estimators import KernelSoSDensity
from ksos.exceptions import BandwidthWarning, IntegralNotAvailableError, KsosError, ModelFormatError
from ksos.solvers import Progress, Solution, minimize
from ksos.space import SoSSpace

__all__ = [
    "BandwidthWarning",
    "IntegralNotAvailableError",
    "KernelSoSDensity",
    "KsosError",
    "MeanEmbedding",
    "ModelFormatError",
    "Progress",
    "SoSDensity",
    "SoSSpace",
    "Solution",
    "functionals",
    "kernels",
    "load",
    "measures",
    "minimize",
    "mmd",
]
