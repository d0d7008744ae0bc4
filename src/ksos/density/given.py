"""Probabilities of boxes given what is known of some features: values, or the intervals in which
they lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ksos.density._assemble import listed, named
from ksos.density.expectation import Masses, coarsest
from ksos.quadrature import Panels

if TYPE_CHECKING:
    from ksos.density.queries import Queries

__all__ = ["given_masses", "log_panel_masses"]

# below, P(given) is computed feature by feature: the mass of a box is a sum in which terms cancel
_DIGITS = 1e-6
_ORDER = 16

Sides = dict[int, tuple[float, float]]


def given_masses(
    p: Queries,
    low: np.ndarray,
    high: np.ndarray,
    values: dict[int, float],
    sides: Sides,
    names: Sequence[str] | None,
) -> Masses:
    """P(low_b ≤ x ≤ high_b | x_S = v, x_T ∈ I) = P(box_b ∩ I | v)/P(I | v) of every box b,
    estimates of the errors, and the method.
    """
    left, closed = [k for k in range(p.n_features) if k not in values], p.measure.atoms is not None
    found, errors, hit = (
        np.zeros(low.shape[0]),
        np.zeros(low.shape[0]),
        np.ones(low.shape[0], dtype=bool),
    )
    for k, value in values.items():
        hit &= (low[:, k] <= value) & (value <= high[:, k])
    if not left:
        if np.isneginf(p.log_by_volume(np.array([[values[k] for k in range(p.n_features)]]))[0]):
            at = listed(list(values), np.array(list(values.values())), names)
            raise ValueError(f"the density vanishes at {at}: there is no probability given that")
        return hit.astype(float), errors, "closed form"
    # a warning names the features
    law = p.with_feature_names(names).conditional(values).unnamed if values else p
    inner, outer = np.array([sides.get(k, (-np.inf, np.inf)) for k in left]).T
    low, high = np.maximum(low[:, left], inner), np.minimum(high[:, left], outer)
    hit &= np.all(low <= high if closed else low < high, axis=1)
    if not sides:
        found[hit], errors[hit], method = law.box_masses(low[hit], high[hit])
        return found, errors, method
    (whole,), (error,), method = law.box_masses(inner[None, :], outer[None, :])
    if whole < _DIGITS and not closed:
        log_whole = _log_mass(law, inner, outer)
        if not math.isfinite(log_whole):
            raise ValueError(
                f"the density vanishes where {named(sides, names)}, at least to rounding: there is"
                " no probability given that"
            )
        found[hit] = [
            math.exp(min(_log_mass(law, a, b) - log_whole, 0.0))
            for a, b in zip(low[hit], high[hit], strict=True)
        ]
        return found, errors, "quadrature"
    if whole == 0.0:
        raise ValueError(
            f"no atom with mass has {named(sides, names)}: there is no probability given that"
        )
    masses, uncertain, other = law.box_masses(low[hit], high[hit])
    found[hit] = np.clip(masses / whole, 0.0, 1.0)
    errors[hit] = np.hypot(uncertain, found[hit] * error) / whole
    return found, errors, coarsest([method, other])


def _log_mass(p: Queries, low: np.ndarray, high: np.ndarray) -> float:
    """log P(low ≤ x ≤ high), one feature after the other: every step is a sum of positive terms,
    and nothing underflows.
    """
    bounded = np.flatnonzero(np.isfinite(low) | np.isfinite(high))
    if not bounded.size:
        return 0.0
    k = int(bounded[0])
    line = p.marginal([k]) if p.n_features > 1 else p
    ends = np.concatenate([part.panel_ends() for _, part in line.as_mixture().parts])
    _, masses = log_panel_masses(ends, (float(low[k]), float(high[k])), line.log_by_volume)
    log = float(np.logaddexp.reduce(masses, initial=-np.inf))
    if p.n_features == 1 or not math.isfinite(log):
        return log
    rest = np.arange(p.n_features) != k
    try:
        others = p.conditional({k: (low[k], high[k])})
    except ValueError:  # no mass there
        return -math.inf
    return log + _log_mass(others, low[rest], high[rest])


def log_panel_masses(
    ends: np.ndarray, side: tuple[float, float], log_density: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Panels of one feature cut off at the ``side``s: their ends, (n + 1,), and the logarithms of
    the masses on them, (n,).
    """
    ends = np.unique(np.clip(ends, *side))
    panels = Panels(ends[:-1], ends[1:], _ORDER)
    if not len(panels):
        return ends, np.empty(0)
    logs = log_density(panels.nodes.reshape(-1, 1)).reshape(panels.nodes.shape) + np.log(
        panels.weights
    )
    return ends, np.logaddexp.reduce(logs, axis=1)
