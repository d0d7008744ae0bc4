"""Integrals on a line or a box: intervals, panels, rules, and laws that are polynomials on panels.
Numbers in, numbers out.

Nothing here knows a kernel, a measure or a density: callers say where an integrand lives, on which
length it is smooth and where it has kinks. Every rule of the library is made here.
"""

from __future__ import annotations

from ksos.quadrature.cubature import NODES_PER_CELL, integrate
from ksos.quadrature.law import (
    PiecewiseLaw,
    RowDistributions,
    from_nodes,
    increasing_root,
    node_basis,
    sum_pair,
)
from ksos.quadrature.panels import Panels, cells, cut, halved, merged
from ksos.quadrature.rules import composite, laguerre, legendre, log_outer, tensor_grid
from ksos.quadrature.sobol import MixtureRule, sobol

__all__ = [
    "NODES_PER_CELL",
    "MixtureRule",
    "Panels",
    "PiecewiseLaw",
    "RowDistributions",
    "cells",
    "composite",
    "cut",
    "from_nodes",
    "halved",
    "increasing_root",
]
__all__ += [
    "integrate",
    "laguerre",
    "legendre",
    "log_outer",
    "merged",
    "node_basis",
    "sobol",
    "sum_pair",
    "tensor_grid",
]
