"""The kernel of bandwidth="auto": what predicts left-out samples, wide enough for the support points."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.bandwidth import bandwidth_rule
from ksos.data.subsample import Part
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.metric import left_out_metric, takes_metrics
from ksos.support import cluster_centres, unexplained

__all__ = ["PER_SUPPORT_POINT", "automatic_kernel", "wide_enough"]

PER_SUPPORT_POINT = 10
"""Samples looked at: memory and time follow the support points, however many samples there are."""

_UNEXPLAINED, _WIDENINGS, _WIDEST = 0.1, 4, 0.85
_MOST_EXPLAINED = 5000  # samples give a mean share to two digits


def automatic_kernel(family: Kernel, part: Part, measure: Measure, rng: np.random.Generator, names: Any) -> Kernel:
    """The kernel with the bandwidths, or the metric, whose bumps predict left-out samples; metrics where integrals know them."""
    if takes_metrics(family, measure):
        sigma = left_out_metric(part.points, part.weights, measure, part.total)
        if sigma is not None:
            return family.with_sigma(sigma)
    told: dict[str, Any] = {"kernel": family, "measure": measure, "count": part.total, "names": names}
    return family.with_sigma(bandwidth_rule("auto", part.points, part.weights, rng, **told))


def wide_enough(kernel: Kernel, part: Part, measure: Measure, m: int) -> Kernel:
    """The kernel, widened until ``m`` centres represent 90 % of the n samples, and more of very many, or by (n/m)^{0.85/(d+4)}.

    What suits n bumps leaves gaps between m of them; (n/m)^{1/(d+4)} is how much wider the bumps of a kernel density estimate of m samples
    are, more than centres need. What is left open is a bias, which counts the more the more samples there are.
    """
    (points, weights, n), d = part[:3], part.points.shape[1]
    if n <= m:
        return kernel
    most, centres = (n / m) ** (_WIDEST / (d + 4)), cluster_centres(points, weights, m, kernel, np.random.default_rng(0))
    if points.shape[0] > (looked_at := min(PER_SUPPORT_POINT * m, _MOST_EXPLAINED)):
        chosen = np.sort(np.random.default_rng(0).choice(points.shape[0], looked_at, replace=False))  # no matter of chance
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    enough = _UNEXPLAINED * min(1.0, 2000.0 / n) ** 0.25
    for step in range(_WIDENINGS + 1):
        wider = kernel.scaled(most ** (step / _WIDENINGS))
        if unexplained(points, weights, centres, closed_form(wider, measure, d)) <= enough:
            break
    return wider
