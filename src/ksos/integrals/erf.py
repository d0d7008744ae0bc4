"""Masses of a Gaussian between two points, in logarithms, accurate in both tails and on narrow
intervals.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erf, erfc, erfcx, log_ndtr, ndtr, ndtri_exp

from ksos.ground import on_host
from ksos.quadrature import legendre

_NARROW_NODES = 12  # right to rounding on one length of e^{−t²}: tests compare with 30 digits


@on_host
def log_gauss_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    r"""log of π^{−1/2} ∫_low^high e^{−t²} dt = log ½[erf(high) − erf(low)], for low < high, ends
    possibly infinite.

    When both ends lie on one side, the difference is taken in scaled complementary form,
    e^{−a²}(erfcx(a) − e^{a²−b²} erfcx(b)), which neither underflows nor cancels; intervals too
    narrow for any difference use Gauss–Legendre nodes.

    >>> low, high = -5.0 * 3**0.5, -4.0 * 3**0.5  # the box [0, 1] seen from 5, with A = 3
    >>> float(log_gauss_mass(low, high).round(6))  # log 5.7e-23
    -51.211271
    """
    a, b, _ = mirrored(low, high)
    with np.errstate(all="ignore"):
        central = np.log(0.5 * (erf(b) - erf(a)))
        tail_a = np.maximum(a, 0.0)
        ratio = np.where(np.isinf(b), 0.0, np.exp((tail_a - b) * (tail_a + b)) * erfcx(b))
        tail = math.log(0.5) - tail_a**2 + np.log(erfcx(tail_a) - ratio)
        out = np.array(np.where(a > 0.5, tail, central))
        narrow = _narrow(a, b)
        if np.any(narrow):
            _t, weights = _narrow_rule(a[narrow], b[narrow])
            out[narrow] = -(a[narrow] ** 2) + np.log(weights.sum(axis=-1) / math.sqrt(math.pi))
    return out


def gauss_mass(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """½[erf(high) − erf(low)] from complementary functions, mirrored so that the end nearer to 0
    comes first: tails keep their digits.
    """
    if np.all(np.isneginf(low)):
        return 0.5 * erfc(-high)
    if np.all(np.isposinf(high)):
        return 0.5 * erfc(low)
    near, far, _ = mirrored(low, high)
    return 0.5 * (erfc(near) - erfc(far))


def truncated_moments(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E[t] and E[t²] under the distribution ∝ e^{−t²} on [low, high]."""
    a, b, flip = mirrored(low, high)
    root = 1.0 / (2.0 * math.sqrt(math.pi))
    with np.errstate(all="ignore"):
        log_mass = log_gauss_mass(a, b)
        at_a, at_b = (
            np.where(np.isinf(end), 0.0, root * np.exp(-(end**2) - log_mass)) for end in (a, b)
        )
        first = np.array(at_a - at_b)
        second = np.array(
            0.5 + np.where(np.isinf(a), 0.0, a * at_a) - np.where(np.isinf(b), 0.0, b * at_b)
        )
        narrow = _narrow(a, b)
        # the difference of the ends cancels there
        if np.any(narrow):
            t, weights = _narrow_rule(a[narrow], b[narrow])
            weights = weights / weights.sum(axis=-1, keepdims=True)
            first[narrow] = a[narrow] + np.sum(weights * t, axis=-1)
            second[narrow] = np.sum(weights * (a[narrow][..., None] + t) ** 2, axis=-1)
    return np.where(flip, -first, first), second


def mirrored(low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(a, b, mirrored?): the interval, mirrored where needed so that the end a is the one nearer to
    the origin, |a| ≤ b.
    """
    low, high = np.broadcast_arrays(
        np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    )
    with np.errstate(invalid="ignore"):
        flip = low + high < 0.0
    return np.where(flip, -high, low), np.where(flip, -low, high), flip


# Where e^{−t²} varies so little over [a, b] that Gauss–Legendre nodes are exact to rounding.
def _narrow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (b - a) * (1.0 + np.abs(a) + np.abs(b)) < 1.0


# Nodes t in [0, b − a] and weights that hold e^{−(a+t)²}, divided by e^{−a²}.
def _narrow_rule(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    width, (nodes, weights) = (b - a)[..., None], legendre(_NARROW_NODES)
    t = 0.5 * (nodes + 1.0) * width
    return t, 0.5 * width * weights * np.exp(-t * (2.0 * a[..., None] + t))


def normal_between(a: np.ndarray, b: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantile u of the standard normal distribution between a and b, and the mass there, in
    the lower tail, where digits are.
    """
    flip = a > 0.0
    a, b = np.where(flip, -b, a), np.where(flip, -a, b)
    log_a, log_b = log_ndtr(a), log_ndtr(b)
    with np.errstate(divide="ignore", under="ignore"):
        log_p = np.logaddexp(np.log(u) + log_b, np.log1p(-u) + log_a)
    z = np.clip(ndtri_exp(np.minimum(log_p, 0.0)), a, b)
    return np.where(flip, -z, z), ndtr(b) - ndtr(a)
