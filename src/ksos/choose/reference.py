"""The reference measure of a fit: what is known of the data already, and what the sum of squares
corrects.

A density that corrects a parametric start keeps what the start knows, and needs samples only for
what it does not [Hjort1995].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos.choose.bandwidth import Units
from ksos.choose.stack import Stack
from ksos.data import Moments, random_folds
from ksos.ground.names import warn_caller
from ksos.measures import GaussianMixture, Measure, Normal

__all__ = ["as_reference", "require_reference"]

# Components, samples and folds of the stack of a single fit. A trade-off: it takes a second, where
# the stack of a search, with more sizes and all samples, takes several.
_SIZES = (1, 2, 3, 5, 8, 12, 20)
_MOST_SAMPLES = 2000  # as above
_FOLDS = 5  # as above
# The least eigenvalue of a correlation matrix, so that its inverse keeps half of the digits ...
_FLOOR = 1e-8
# ... and with hardly more samples than features, when it is a matter of chance which directions
# have no variance.
_FEW_FLOOR = 0.1


def require_reference(reference: Any, measure: Any) -> None:
    """Raise on a ``reference`` that cannot be one, before the data are looked at."""
    if measure is not None:
        raise ValueError(
            f"reference={reference!r} and measure={measure!r} are both the measure of the density;"
            " give one of them"
        )
    named = isinstance(reference, str)
    if (named and reference not in ("normal", "mixture")) or not (named or _is_mixture(reference)):
        raise (ValueError if named else TypeError)(
            'reference must be "normal", "mixture", a GaussianMixture or Normal of ksos.measures, '
            f"or a fitted sklearn.mixture.GaussianMixture; got {reference!r}"
        )


def as_reference(
    reference: Any,
    points: np.ndarray,
    weights: np.ndarray,
    names: Any = None,
    moments: Moments | None = None,
) -> Measure:
    """The measure that ``reference`` stands for, fitted to distinct ``points`` with ``weights``
    (sum 1) if it is a name.

    ``moments`` are those of all samples, if the points are a part of them.
    """
    if isinstance(reference, str):
        if reference == "normal":
            return _fit_normal(points, weights, names, moments)
        return _fit_mixture(points, weights, names)
    given = isinstance(reference, Measure)
    found: Measure = reference if given else GaussianMixture.from_sklearn(reference)
    found.check_features(points.shape[1])
    return found.for_features(points.shape[1])


def _is_mixture(reference: Any) -> bool:
    """Whether it is a normal distribution, or a mixture of them, of ksos or of scikit-learn."""
    if isinstance(reference, Measure):
        return reference.normals(reference.n_features or 1) is not None
    from sklearn.mixture import GaussianMixture as FittedMixture  # heavy, and needed only here

    return isinstance(reference, FittedMixture)


def _fit_normal(
    points: np.ndarray, weights: np.ndarray, names: Any, moments: Moments | None
) -> Normal:
    """N(mean, covariance) of the samples, or of all of them if their ``moments`` are known.

    The correlation matrix gets eigenvalues of at least a floor, which decides only if samples or
    features leave a direction without variance. Then there is a warning.
    """
    d, size = points.shape[1], 1.0 / float(weights @ weights)
    units = Units.of(points, weights, np.random.default_rng(0), names)
    y = units.of_points(points)
    mean = weights @ y
    S = ((y - mean) * weights[:, None]).T @ (y - mean)
    if moments is not None:
        mean = units.of_points(moments.mean)
        S = moments.covariance / (units.scale[:, None] * units.scale)
    deviation = np.where(units.still, 1.0, np.sqrt(np.diagonal(S)))
    S = S / (deviation[:, None] * deviation) + np.diag(np.where(units.still, 1.0, 0.0))
    values, Q = np.linalg.eigh(S)
    enough = size >= 2 * (d + 1)
    floor = _FLOOR if enough else _FEW_FLOOR
    if values[0] < floor:
        few = f"there are few samples ({size:.3g}) for {d} features"
        warn_caller(
            f"reference='normal': {'features are correlated without error' if enough else few}; "
            "the covariance has a floor where they have no variance"
        )
    scale = deviation * units.scale
    covariance = (Q * np.maximum(values, floor)) @ Q.T * scale[:, None] * scale
    return Normal(units.shift + units.scale * mean, 0.5 * (covariance + covariance.T))


def _fit_mixture(points: np.ndarray, weights: np.ndarray, names: Any) -> GaussianMixture:
    """A stack of mixtures, weighted by held-out samples; of more than 2,000 samples, a subset,
    always the same.
    """
    rng, n = np.random.default_rng(0), points.shape[0]  # a default must not depend on chance
    if n > _MOST_SAMPLES:
        chosen = np.sort(rng.choice(n, _MOST_SAMPLES, replace=False))
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    folds = random_folds(weights, min(_FOLDS, points.shape[0]), rng) if n > 1 else []
    stack = Stack(points, weights, folds, Units.of(points, weights, rng, names), _SIZES)
    stack.fit()
    stack.solve()
    return stack.whole
