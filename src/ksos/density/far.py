"""A question far outside of what a density was fitted to is answered, and said to be far."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ksos._array import like, to_numpy
from ksos.density._assemble import listed
from ksos.feature_names import warn_caller

if TYPE_CHECKING:
    from ksos.density.queries import Queries

__all__ = ["warn_if_far"]

_FEW_NATS, _PER_FEATURE = 200.0, 50.0  # one feature of a normal law: 22 standard deviations
_MOST_POINTS = 500


def warn_if_far(p: Queries, found: Queries, given: list[int], values: np.ndarray, names: Sequence[str] | None) -> None:
    r"""Warn if ``found``, the law of ``p`` given x_S = v, is the tail of a kernel and nothing that data have said.

    Compared are the largest values of p itself and of p(v, x_R): for a normal law their logarithms differ by z²/2, z being the distance of
    v in standard deviations. The difference does not depend on the scale of any feature.
    """
    if p.measure.atoms is not None:
        return
    rest = [k for k in range(p.n_features) if k not in given]
    own, others = (_some(to_numpy(law.support_points)) for law in (p, found))
    completed = np.empty((others.shape[0], p.n_features))
    completed[:, given], completed[:, rest] = values, np.clip(others, *found.measure.boundaries(len(rest)))
    highest, there = (float(np.max(to_numpy(p.log_by_volume(like(rows, p.support_points))))) for rows in (own, completed))
    lost = highest - there
    if lost > _FEW_NATS + _PER_FEATURE * len(given):
        distance = (
            f"{math.sqrt(2.0 * lost):.2g} standard deviations of a normal law" if math.isfinite(lost) else "no distance that floats hold"
        )
        warn_caller(
            f"the condition {listed(given, values, names)} is far outside of the data: the density there is that at {distance}; the "
            "answer is the tail of the nearest kernel, no more"
        )


def _some(points: np.ndarray) -> np.ndarray:
    """At most so many of the points, evenly through their list."""
    return points[:: -(-points.shape[0] // _MOST_POINTS)]
