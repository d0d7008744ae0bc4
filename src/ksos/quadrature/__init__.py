"""Integrals on a line or a box: intervals, panels, rules, and distributions that are polynomials on
panels. Numbers in, numbers out.

Nothing here knows a kernel, a measure or a density: callers say where an integrand lives, on which
length it is smooth and where it has kinks. Every rule of the library is made here.
"""

from __future__ import annotations

from ksos.quadrature.cubature import NODES_PER_CELL, integrate
from ksos.quadrature.mixture_rule import MixtureRule, sobol
from ksos.quadrature.panel_distribution import (
    LINE_ORDER,
    PanelDistribution,
    from_nodes,
    increasing_root,
    position_on_panel,
    positions,
    weighted_level,
)
from ksos.quadrature.rules import (
    Panels,
    cells,
    composite,
    cut,
    halved,
    laguerre,
    legendre,
    log_outer,
    merged,
    tensor_grid,
)

__all__ = [
    "LINE_ORDER",
    "NODES_PER_CELL",
    "MixtureRule",
    "PanelDistribution",
    "Panels",
    "cells",
    "composite",
    "cut",
    "from_nodes",
    "halved",
    "increasing_root",
    "integrate",
    "laguerre",
    "legendre",
    "log_outer",
    "merged",
    "position_on_panel",
    "positions",
    "sobol",
    "tensor_grid",
    "weighted_level",
]
