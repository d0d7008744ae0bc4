"""Moments of any order, E[Π_k (x_k − c_k)^{a_k}]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ksos.density.moments import node_masses
from ksos.density.standard import standardize
from ksos.measures import Discrete
from ksos.observables import Polynomial

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["moment"]


def moment(p: SoSDensity, powers: tuple[int, ...], about: np.ndarray) -> float:
    """E[Π_k (x_k − about_k)^{powers_k}], in closed form, computed in standard coordinates: powers overflow only where the answer does."""
    standard = standardize(p, shorten=False)
    density, a = standard.density, np.array(powers)
    centre = standard.coordinates(about[None, :])[0]
    if isinstance(density.measure, Discrete):
        with np.errstate(over="ignore", under="ignore"):
            values = np.prod((density.measure.points - centre) ** a, axis=1)
        value = float(node_masses(density) @ values)
    else:
        M = Polynomial({powers: 1.0}, centre).matrix(density.kernel, density.support_points, density.measure, density.log_unit)
        value = M.expectation(density.unit_factor @ density.unit_factor.T)[0]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        log_unit = float(a @ np.log(standard.scale))
        return float(np.sign(value) * np.exp(np.log(abs(value)) + log_unit)) if value != 0.0 else 0.0
