"""The baseline of benchmarks/sampling.py: dyadic bisection of a box, the published way to sample
from a positive semi-definite model.

Start from a box that holds the mass. Halve it, coordinate by coordinate; go to a half with the
probability of its mass, which is a sum of products of error functions over all pairs of support
points; stop at side 1e-3 and draw uniformly from the box that is left.

Vectorized, and without wasted work: samples that are in one box share it (a binomial number of them
goes left), pairs are taken once (i ≤ j), and as only one side of a box changes in a step, one error
function per pair is evaluated, at the middle of that side; the others are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import erf

import ksos
from ksos.density import square_of

__all__ = ["dyadic_samples"]

BLOCK = 1 << 17
"""Entries (boxes × pairs) of one array: it stays in the cache."""


@dataclass
class _Boxes:
    """Boxes with their samples, and for each box, feature and pair ½erf at both ends of its side;
    ``turn`` is the feature to halve next.
    """

    low: np.ndarray
    side: np.ndarray
    count: np.ndarray
    mass: np.ndarray
    at_low: list[np.ndarray]
    at_high: list[np.ndarray]
    turn: int

    def take(self, index: np.ndarray | slice) -> _Boxes:
        ends = ([end[index] for end in ends] for ends in (self.at_low, self.at_high))
        return _Boxes(
            self.low[index], self.side.copy(), self.count[index], self.mass[index], *ends, self.turn
        )


def dyadic_samples(
    p: ksos.SoSDensity,
    size: int,
    rng: np.random.Generator,
    resolution: float = 1e-3,
    reach: float = 4.0,
    block: int = BLOCK,
) -> np.ndarray:
    """``size`` samples of a density with a Gaussian kernel on R^d, each coordinate up to
    ``resolution``.
    """
    X, d = p.support_points, p.n_features
    sigma = p.kernel.sigma_vector(d)
    i, j = np.triu_indices(X.shape[0])
    square = square_of(p)
    B = square.unit_factor @ square.unit_factor.T
    W = np.exp(square.integrals.log_gram(X, X) - square.log_unit)
    weights = (B * W)[i, j] * np.where(i == j, 1.0, 2.0)
    centers, scale = (
        0.5 * (X[i] + X[j]),
        np.sqrt(2.0) / sigma,
    )  # the pair's Gaussian is exp(−2‖x − center‖²/σ²)

    def half_erf(x: np.ndarray, k: int) -> np.ndarray:
        return np.asarray(0.5 * erf((x[:, None] - centers[:, k]) * scale[k]))

    low, high = X.min(axis=0) - reach * sigma, X.max(axis=0) + reach * sigma
    ends = ([half_erf(end[[k]], k) for k in range(d)] for end in (low, high))
    start = _Boxes(low[None], high - low, np.array([size]), np.ones(1), *ends, 0)
    at_once = max(1, block // weights.shape[0])
    pending, out = [start], []
    while pending:
        boxes = pending.pop()
        if np.all(boxes.side <= resolution):
            corner = np.repeat(boxes.low, boxes.count, axis=0)
            out.append(corner + boxes.side * rng.random(corner.shape))
            continue
        k = boxes.turn
        boxes.turn = (k + 1) % d
        if boxes.side[k] <= resolution:
            pending.append(boxes)
            continue
        middle = boxes.low[:, k] + 0.5 * boxes.side[k]
        at_middle = half_erf(middle, k)
        product = at_middle - boxes.at_low[k]
        for other in range(d):
            if other != k:
                product *= boxes.at_high[other] - boxes.at_low[other]
        left = np.clip(product @ weights, 0.0, boxes.mass)
        n_left = rng.binomial(
            boxes.count,
            np.divide(left, boxes.mass, out=np.zeros_like(left), where=boxes.mass > 0.0),
        )
        boxes.side[k] *= 0.5
        goes_left, goes_right = np.flatnonzero(n_left > 0), np.flatnonzero(n_left < boxes.count)
        lower, upper = boxes.take(goes_left), boxes.take(goes_right)
        lower.count, lower.mass, lower.at_high[k] = (
            n_left[goes_left],
            left[goes_left],
            at_middle[goes_left],
        )
        upper.count, upper.mass = (
            (boxes.count - n_left)[goes_right],
            (boxes.mass - left)[goes_right],
        )
        upper.low[:, k], upper.at_low[k] = middle[goes_right], at_middle[goes_right]
        for half in (
            (lower, upper)
            if lower.low.shape[0] + upper.low.shape[0] > at_once
            else (_joined(lower, upper),)
        ):
            pending.extend(
                half.take(slice(a, a + at_once)) for a in range(0, half.low.shape[0], at_once)
            )
    samples = np.concatenate(out)
    return samples[rng.permutation(size)]


def _joined(a: _Boxes, b: _Boxes) -> _Boxes:
    ends = (
        [np.concatenate(pair) for pair in zip(mine, theirs, strict=True)]
        for mine, theirs in ((a.at_low, b.at_low), (a.at_high, b.at_high))
    )
    low, count, mass = (
        np.concatenate(pair) for pair in ((a.low, b.low), (a.count, b.count), (a.mass, b.mass))
    )
    return _Boxes(low, a.side, count, mass, *ends, a.turn)
