"""The only file that words input errors: everything that enters the library passes here once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils import check_array

from ksos._array import Array, is_other_array, namespace, to_numpy

__all__ = [
    "as_bandwidth",
    "as_callback",
    "as_choice",
    "as_count",
    "as_masses",
    "as_nonnegative",
    "as_points",
    "as_positive",
    "as_vector",
    "as_weights",
]

_SMALLEST_BANDWIDTH = 1.5e-154  # below, σ² is no longer a normal number
_LARGEST_BANDWIDTH = 1.3e154  # above, σ² overflows


def as_points(X: Any, name: str = "X", *, n_features: int | None = None, allow_empty: bool = False) -> Array:
    """``X`` as a finite float64 matrix of shape (n, d), in scikit-learn's words when it is not one.

    An array of another backend stays where it is; everything else becomes NumPy's.
    """
    with _naming(name):
        if is_other_array(X):
            X = _as_matrix(X, name, allow_empty)
        else:
            X = check_array(X, dtype=np.float64, order="C", input_name=name, ensure_min_samples=0 if allow_empty else 1)
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(f"{name} has {X.shape[1]} features, but {n_features} were expected")
    return X


def as_weights(weights: Any, n: int, name: str = "sample_weight") -> np.ndarray:
    """Non-negative weights of length ``n``, normalised to sum 1; None means equal ones."""
    masses = as_masses(weights, n, name)
    return masses / masses.sum()


def as_masses(weights: Any, n: int, name: str = "sample_weight") -> np.ndarray:
    """Non-negative weights of length ``n`` in a unit that is a power of two: sums of whole numbers stay exact and nothing overflows."""
    if weights is None:
        return np.ones(n)
    weights = as_vector(weights, name, length=n)
    if np.any(weights < 0.0):
        raise ValueError(f"{name} must not be negative; entry {int(np.argmin(weights))} is {weights.min():g}")
    largest = weights.max()
    if largest <= 0.0:
        raise ValueError(f"{name} must not be zero everywhere")
    return np.ldexp(weights, -math.frexp(largest)[1])


def as_vector(values: Any, name: str, *, length: int | None = None) -> np.ndarray:
    """``values`` as a finite float64 vector."""
    with _naming(name):
        values = np.asarray(to_numpy(values) if is_other_array(values) else values)
    if values.ndim == 0:
        values = np.full(length or 1, values)
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional; got shape {values.shape}")
    if length is not None and values.shape[0] != length:
        raise ValueError(f"{name} must have length {length}; got {values.shape[0]}")
    with _naming(name):
        column = check_array(values.reshape(-1, 1), dtype=np.float64, input_name=name, ensure_min_samples=0)
    return np.array(column[:, 0])


def as_bandwidth(sigma: Any, name: str = "bandwidth", *, n_features: int | None = None) -> np.ndarray:
    """A positive bandwidth whose square is a normal number: 0-dimensional, or one entry per feature."""
    try:
        given = np.asarray(sigma)
        if given.dtype.kind in "bc":  # neither True nor a complex number is a bandwidth, though both convert
            raise TypeError
        out = given.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a positive number or one per feature; got {sigma!r}") from None
    if out.ndim > 1 or out.size == 0:
        raise ValueError(f"{name} must be a positive number or one per feature; got shape {out.shape}")
    if n_features is not None and out.shape not in ((), (n_features,)):
        raise ValueError(f"{name} gives {out.shape[0]} bandwidths but the points have {n_features} features; give one, or one for each")
    if not np.all(np.isfinite(out)) or np.any(out <= 0.0):
        raise ValueError(f"{name} must be positive and finite; got {sigma!r}")
    if np.any(out < _SMALLEST_BANDWIDTH) or np.any(out > _LARGEST_BANDWIDTH):
        raise ValueError(
            f"{name} must lie in [{_SMALLEST_BANDWIDTH:g}, {_LARGEST_BANDWIDTH:g}], where its square is representable; got {sigma!r}"
        )
    out.setflags(write=False)
    return out


def as_positive(value: Any, name: str) -> float:
    """A positive finite number."""
    number = _as_number(value, name)
    if not (number > 0.0 and math.isfinite(number)):
        raise ValueError(f"{name} must be positive and finite; got {value!r}")
    return number


def as_nonnegative(value: Any, name: str) -> float:
    """A non-negative finite number."""
    number = _as_number(value, name)
    if not (number >= 0.0 and math.isfinite(number)):
        raise ValueError(f"{name} must be non-negative and finite; got {value!r}")
    return number


def as_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """A whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number; got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value!r}")
    return int(value)


def as_callback(value: Any, name: str = "callback") -> Any:
    """None, or something that can be called."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be None or a function of one argument, the progress so far; got {value!r}")
    return value


def as_choice(value: Any, name: str, choices: Collection[str], *, otherwise: str = "") -> str:
    """One of the words ``choices``; ``otherwise`` says what else is accepted."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}{otherwise}; got {value!r}")
    return value


def _as_matrix(X: Array, name: str, allow_empty: bool) -> Array:
    """What scikit-learn's check_array asks of a matrix, on the matrix's own device."""
    X = X.detach() if hasattr(X, "detach") else X
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead: {name} must have one row per sample and one column per feature")
    if not xp.isdtype(X.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"{name} must hold real numbers; got dtype {X.dtype}")
    if X.shape[1] < 1 or (X.shape[0] < 1 and not allow_empty):
        raise ValueError(f"Found array with shape {tuple(X.shape)} while a minimum of 1 sample and 1 feature is required ({name})")
    X = xp.astype(X, xp.float64)
    if not bool(xp.all(xp.isfinite(X))):
        what = "NaN" if bool(xp.any(xp.isnan(X))) else "infinity or a value too large for dtype('float64')"
        raise ValueError(f"Input {name} contains {what}.")
    return X


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which argument an error is about, where its words do not."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if name in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


def _as_number(value: Any, name: str) -> float:
    if isinstance(value, (bool, str, bytes)):
        raise ValueError(f"{name} must be a number; got {value!r}")
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number; got {value!r}") from None
