"""The reference measure of a fit: what is known of the data already, and what the sum of squares
corrects.

A density that corrects a parametric start keeps what the start knows, and needs samples only for
what it does not [Hjort1995].
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ksos.choose.stack import Stack
from ksos.choose.units import Units
from ksos.data.samples import random_folds
from ksos.data.survey import Moments
from ksos.ground.deadline import Deadline
from ksos.measures import GaussianMixture, Measure, Normal

__all__ = ["as_reference", "correction_bandwidth", "require_reference"]

BANDWIDTH, AMONG = 1.6, 100.0
"""Of what corrects a reference, in deviations of each feature, for so many samples."""
SIZES = (1, 2, 3, 5, 8, 12, 20)
"""How many normal laws a mixture may have."""
MOST_SAMPLES = 2000
"""Of which a mixture is made."""
FLOOR, FEW_FLOOR = 1e-8, 0.1
"""The least eigenvalue of a correlation matrix; and the same where there are hardly more samples
than features, so that it is a matter of chance which directions have no spread.
"""

_FOLDS = 5
_CHOICES = (
    '"normal", "mixture", a GaussianMixture or Normal of ksos.measures, or a fitted'
    " sklearn.mixture.GaussianMixture"
)


def require_reference(reference: Any, measure: Any) -> None:
    """Raise on a ``reference`` that cannot be one, before the data are looked at."""
    if reference is None:
        return
    if measure is not None:
        raise ValueError(
            f"reference={reference!r} and measure={measure!r} are both the measure of the density;"
            " give one of them"
        )
    if isinstance(reference, str):
        if reference not in ("normal", "mixture"):
            raise ValueError(f"reference must be {_CHOICES}; got {reference!r}")
    elif not _is_mixture(reference):
        raise TypeError(f"reference must be {_CHOICES}; got {reference!r}")


def as_reference(
    reference: Any,
    points: np.ndarray,
    weights: np.ndarray,
    deadline: Deadline,
    names: Any = None,
    moments: Moments | None = None,
) -> Measure:
    """The measure that ``reference`` stands for, fitted to distinct ``points`` with ``weights``
    (sum 1) if it is a name.

    ``moments`` are those of all samples, where the points are a part of them.
    """
    if isinstance(reference, str):
        return (
            _fit_normal(points, weights, names, moments)
            if reference == "normal"
            else _fit_mixture(points, weights, deadline, names)
        )
    found: Measure = (
        reference if isinstance(reference, Measure) else GaussianMixture.from_sklearn(reference)
    )
    found.check_features(points.shape[1])
    return found.for_features(points.shape[1])


def correction_bandwidth(
    points: np.ndarray, weights: np.ndarray, count: int, names: Any = None
) -> np.ndarray:
    """The bandwidth of the kernels that correct a reference, one per feature: wide, because the
    reference knows the details.

    It follows the number n of distinct samples, ``count``, as n^{−1/(d+6)}: a correction is
    smoother than a density.
    """
    d = points.shape[1]
    return np.asarray(
        BANDWIDTH
        * (AMONG / count) ** (1.0 / (d + 6))
        * Units.of(points, weights, np.random.default_rng(0), names).scale
    )


def _is_mixture(reference: Any) -> bool:
    """Whether it is a normal distribution, or a mixture of them, of ksos or of scikit-learn."""
    if isinstance(reference, Measure):
        return reference.normals(reference.n_features or 1) is not None
    from sklearn.mixture import GaussianMixture as FittedMixture  # heavy, and needed only here

    return isinstance(reference, FittedMixture)


def _fit_normal(
    points: np.ndarray, weights: np.ndarray, names: Any, moments: Moments | None = None
) -> Normal:
    """N(mean, covariance) of the samples; of all, where their ``moments`` are known and the samples
    are only a part of them.

    The correlation matrix gets eigenvalues of at least a floor, which decides only where samples or
    features leave a direction without spread; then there is a warning.
    """
    d, size, units = (
        points.shape[1],
        1.0 / float(weights @ weights),
        Units.of(points, weights, np.random.default_rng(0), names),
    )
    y = units.of_points(points)
    if moments is None:
        mean = weights @ y
        y = y - mean
        deviation = np.where(units.still, 1.0, np.sqrt(weights @ y**2))
        y /= deviation
        S = (y * weights[:, None]).T @ y
    else:
        mean, S = (
            units.of_points(moments.mean),
            moments.covariance / (units.scale[:, None] * units.scale),
        )
        deviation = np.where(units.still, 1.0, np.sqrt(np.diagonal(S)))
        S = S / (deviation[:, None] * deviation)
    values, Q = np.linalg.eigh(S + np.diag(np.where(units.still, 1.0, 0.0)))
    enough = size >= 2 * (d + 1)
    floor = FLOOR if enough else FEW_FLOOR
    if values[0] < floor:
        why = (
            "features are tied to each other"
            if enough
            else f"there are few samples ({size:.3g}) for {d} features"
        )
        warnings.warn(
            f"reference='normal': {why}; the covariance has a floor where they have no spread",
            UserWarning,
            stacklevel=2,
        )
    scale = deviation * units.scale
    covariance = (Q * np.maximum(values, floor)) @ Q.T * scale[:, None] * scale
    return Normal(units.shift + units.scale * mean, 0.5 * (covariance + covariance.T))


def _fit_mixture(
    points: np.ndarray, weights: np.ndarray, deadline: Deadline, names: Any
) -> GaussianMixture:
    """A stack of mixtures, weighted by held-out samples; of more than 2,000 samples, a subset,
    always the same.
    """
    rng, n = np.random.default_rng(0), points.shape[0]  # a default must not depend on chance
    if n > MOST_SAMPLES:
        chosen = np.sort(rng.choice(n, MOST_SAMPLES, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    folds = random_folds(weights, min(_FOLDS, points.shape[0]), rng) if points.shape[0] > 1 else []
    stack = Stack(points, weights, folds, Units.of(points, weights, rng, names), SIZES)
    for _ in stack.fit(deadline):
        pass
    stack.solve()
    return stack.whole
