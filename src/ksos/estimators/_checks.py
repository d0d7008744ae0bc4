"""What data, bandwidth and landmarks must not be like: the errors and warnings that the density estimators share."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from ksos._array import inner, like, to_numpy
from ksos._validation import as_bandwidth, as_metric
from ksos.embedding import MeanEmbedding
from ksos.data.subsample import Part
from ksos.exceptions import BandwidthWarning
from ksos.feature_names import column_names, quoted
from ksos.kernels import Kernel
from ksos.space import SoSSpace

__all__ = ["as_bandwidth_or_metric", "available_if", "require_different_features", "require_order", "warn_if_degenerate", "warn_if_unseen"]

_NEARLY_ONE, _NEARLY_ZERO = 0.95, 1e-3
_UNSEEN = 1e-14  # squared norm of the projected embedding of the data, of the order of 1 otherwise


def warn_if_unseen(part: Part, space: SoSSpace) -> None:
    """Say so when the landmarks are so far from the samples that the fit cannot depend on them."""
    z = space.coordinates(MeanEmbedding(like(part.points, space.landmarks), part.weights, kernel=space.embedding_kernel))
    if inner(z, z) <= _UNSEEN:
        message = "the landmarks are too far from the samples to see them: the fit does not depend on the data; choose landmarks among them"
        warnings.warn(message, UserWarning, stacklevel=5)


def warn_if_degenerate(kernel: Kernel, space: SoSSpace, points: np.ndarray) -> None:
    """Say so when the kernel matrix is close to I (among the support points) or to 11ᵀ (between them and the data)."""
    m = space.support_points.shape[0]
    support = to_numpy(space.support_points)
    K = kernel(support) * (1.0 - np.eye(m))
    if m > 1 and float(K.max()) <= _NEARLY_ZERO:
        problem = "far smaller than the distances between the support points: the kernel matrix is close to the identity"
        remedy = "a larger bandwidth, or more support points"
    elif points.shape[0] > 1 and float(kernel(points, support[:1]).min()) >= _NEARLY_ONE:
        problem, remedy = "far larger than the spread of the data: all kernel values are close to 1", "a smaller bandwidth"
    else:
        return
    widths = np.sqrt(np.linalg.eigvalsh(kernel.sigma)) if kernel.full else kernel.sigma
    sizes = dict.fromkeys(f"{size:.4g}" for size in (widths.min(), widths.max()))
    warnings.warn(
        f"the bandwidth {' to '.join(sizes)} is {problem}; rank {space.rank} of {m} was kept; try {remedy}", BandwidthWarning, stacklevel=5
    )


def require_different_features(X: np.ndarray, names: Any) -> None:
    """Raise where two features that vary are one and the same: all samples then lie on a plane, and held-out likelihoods have no bound."""
    seen: dict[bytes, int] = {}
    for k in range(X.shape[1] if X.shape[0] > 1 else 0):
        first = seen.setdefault((X[:, k] + 0.0).tobytes(), k)
        if first != k and np.ptp(X[:, k]) > 0.0:
            words = f"{first} and {k}" if names is None else f"{names[first]!r} and {names[k]!r}"
            raise ValueError(
                f"features {words} are identical in all {X.shape[0]} samples: they have no joint density, and the narrower a bandwidth, "
                "the better it would seem; leave one of them out, or fix the bandwidth with KernelSoSDensity"
            )


def available_if(check: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """scikit-learn's decorator of the same name, but the AttributeError ends with what ``check`` says: the remedy."""
    return lambda method: _Available(method, check)


class _Available:
    """A method that is there if ``check`` of the estimator does not raise."""

    def __init__(self, method: Any, check: Callable[[Any], bool]) -> None:
        self._method, self._available, self.__doc__ = method, check, method.__doc__

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        if estimator is None:
            return self._method
        try:
            self._available(estimator)
        except AttributeError as error:
            raise AttributeError(f"this {type(estimator).__name__} has no {self._method.__name__!r}: {error}") from None
        return MethodType(self._method, estimator)


def require_order(estimator: Any, X: Any) -> Any:
    """``X`` as it came; raise where it has the columns of the fit in another order, which scikit-learn's rules forbid, with the remedy."""
    names, given = vars(estimator).get("feature_names_in_"), column_names(X)
    if names is not None and given is not None and given != tuple(names) and sorted(given) == sorted(names):
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            "Feature names must be in the same order as they were in fit.\n"
            f"The columns are all here: put them in order, X[list(est.feature_names_in_)], which is {quoted(list(names))}"
        )
    return X


def as_bandwidth_or_metric(value: Any, name: str, d: int | None = None) -> np.ndarray:
    """A bandwidth, one per feature, or the metric of a kernel; for ``d`` features, if these are known."""
    metric = as_metric(value, name)
    if metric is None:
        return as_bandwidth(value, name, n_features=d)
    if d is not None and metric.shape[0] != d:
        raise ValueError(f"{name} is a matrix for {metric.shape[0]} features, but the samples have {d}")
    return metric
