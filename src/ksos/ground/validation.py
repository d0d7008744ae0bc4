"""The only file that words input errors: everything that enters the library passes here once."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial, wraps
from types import MethodType
from typing import Any, TypeVar, cast

import numpy as np
from sklearn.utils import check_array, check_random_state

from ksos.ground.arrays import Array, is_other_array, namespace, to_numpy
from ksos.ground.frames import known_table
from ksos.ground.names import (
    column_names,
    feature_numbers,
    is_table,
    matrix_of,
    per_feature,
    quoted,
    require_columns,
    said,
)

_F = TypeVar("_F", bound=Callable[..., Any])
_UNITS = {"M": "dates", "m": "durations", "V": "records"}
_SMALLEST_SIGMA = 1.5e-154  # below, σ² is no longer a normal number
_LARGEST_SIGMA = 1.3e154  # above, σ² overflows
_ASYMMETRY = 1e-9  # of the diagonal: products round to 1e-13 at d = 1000, and no user means less
_SINGULAR = 1e-13  # below, rounding alone decides on the sign of the least eigenvalue


def as_points(
    X: Any,
    name: str = "X",
    *,
    n_features: int | None = None,
    allow_empty: bool = False,
    copy: bool = False,
) -> Array:
    """``X`` as a finite float64 matrix of shape (n, d), in scikit-learn's words when it is not one.

    An array of another backend stays where it is; everything else becomes NumPy's. With ``copy``
    the matrix is the caller's no longer: a copy that cannot be written to. An array that nobody can
    write to any more (``X.setflags(write=False)``, or a file mapped to be read) is kept as it is,
    so that many rows need not be in memory twice.
    """
    given = X = known_table(X)
    with naming(name):
        if is_other_array(X):
            # a copy in any case: it need not be frozen
            X = _as_matrix(X, name, allow_empty)
        else:
            numbers = matrix_of(X, name) if is_table(X) else require_numbers(X, name)
            X = check_array(
                numbers,
                dtype=np.float64,
                order="C",
                input_name=name,
                ensure_min_samples=1 - allow_empty,
            )
            X = _frozen(X, given) if copy else X
    if n_features is not None and X.shape[1] != n_features:
        raise ValueError(f"{name} has {X.shape[1]} features, but {n_features} were expected")
    return X


def require_numbers(values: Any, name: str = "X") -> Any:
    """``values`` as they came, a table as one that is known; raise where NumPy would make numbers
    of something else: text, dates, or what a mask hides.
    """
    values = known_table(values)
    require_unmasked(values, name)
    if isinstance(values, (str, os.PathLike)):
        raise ValueError(
            f"{name} must be an array or a table; got {str(values)!r}; files are read by"
            " ksos.chunks(path), or by pandas.read_csv"
        )
    if is_table(values):
        require_columns(values, name)
    if is_table(values) or is_other_array(values):
        return values
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        # not to be made numbers of: scikit-learn's words for that are better
        return values
    wrong = _UNITS.get(given.dtype.kind)
    # numbers beside text would be text as well, were they not objects
    cells = np.asarray(values, dtype=object).ravel() if given.dtype.kind in "OUST" else ()
    if text := [cell for cell in cells if isinstance(cell, (str, bytes))]:
        wrong = f"{'text' if isinstance(text[0], str) else 'bytes'} such as {text[0]!r}"
    if wrong is not None:
        fix = "leave the column out, or turn it into numbers first"
        raise ValueError(f"{name} must hold real numbers; got {wrong}; {fix}")
    return values


def require_unmasked(values: Any, name: str) -> None:
    """Raise on a masked array that hides entries: what is computed would see through the mask."""
    if np.ma.is_masked(values):
        hidden = int(np.sum(np.ma.getmaskarray(values)))
        rows = ".any(axis=1)" * (np.ndim(values) > 1)
        raise ValueError(
            f"{name} is a masked array with {hidden} masked entr{'y' if hidden == 1 else 'ies'},"
            " and masks are not seen; leave those rows out,"
            f" {name}[~np.ma.getmaskarray({name}){rows}].data (and the same rows of all else), or"
            f" fill them, {name}.filled(value)"
        )


def require_different_features(X: np.ndarray, names: Any) -> None:
    """Raise where two features that vary are identical: the samples then lie on a plane, and
    held-out likelihoods have no bound."""
    seen: dict[bytes, int] = {}
    for k in range(X.shape[1] if X.shape[0] > 1 else 0):
        first = seen.setdefault((X[:, k] + 0.0).tobytes(), k)
        if first != k and np.ptp(X[:, k]) > 0.0:
            words = f"{first} and {k}" if names is None else f"{names[first]!r} and {names[k]!r}"
            raise ValueError(
                f"features {words} are identical in all {X.shape[0]} samples: they have no joint "
                "density, and the narrower a bandwidth, the better it would seem; leave one of "
                "them out, or fix the bandwidth with KernelSoSDensity"
            )


def require_order(estimator: Any, X: Any) -> Any:
    """``X`` as it came. Raise where it has the columns of the fit in another order, which
    scikit-learn's rules forbid, with the fix."""
    names, given = vars(estimator).get("feature_names_in_"), column_names(X)
    if names is None or given is None or given == tuple(names) or sorted(given) != sorted(names):
        return X
    raise ValueError(
        "The feature names should match those that were passed during fit.\n"
        "Feature names must be in the same order as they were in fit.\n"
        "The columns are all here: put them in order, X[list(est.feature_names_in_)], which is "
        f"{quoted(list(names))}"
    )


def require_varying(targets: np.ndarray) -> None:
    """Raise if an output of y never changes: it has no density."""
    still = np.flatnonzero(np.ptp(targets, axis=0) == 0.0)
    # a single row is reported by the folds
    if still.size and targets.shape[0] > 1:
        raise ValueError(
            f"output {still[0]} of y is constant, {targets[0, still[0]]:g} in all "
            f"{targets.shape[0]} rows: it has no density given X; drop it"
        )


def require_pairs(X: Any, y: Any) -> None:
    """Raise if X is one column without a table, or if rows and targets do not pair up."""
    if getattr(X, "ndim", 2) == 1 and hasattr(X, "iloc"):
        raise ValueError(
            f"Expected 2D array, got 1D array instead: X is the column {X.name!r}; pass a table of "
            f"one column, df[[{X.name!r}]]"
        )
    lengths = [
        a.shape[0] if getattr(a, "shape", ()) else len(a) if isinstance(a, (list, tuple)) else None
        for a in (X, y)
    ]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(
            f"X has {lengths[0]} rows, but y has {lengths[1]}; give one target for each row of X"
        )


def as_weights(weights: Any, n: int, name: str = "sample_weight") -> np.ndarray:
    """Non-negative weights of length ``n``, normalized to sum 1; None means equal ones."""
    masses = as_masses(weights, n, name)
    return masses / masses.sum()


def as_masses(weights: Any, n: int, name: str = "sample_weight") -> np.ndarray:
    """Non-negative weights of length ``n`` in a unit that is a power of two: sums of whole numbers
    stay exact and nothing overflows.
    """
    if weights is None:
        return np.ones(n)
    weights = as_vector(weights, name, length=n)
    if np.any(weights < 0.0):
        raise ValueError(
            f"{name} must not be negative; entry {int(np.argmin(weights))} is {weights.min():g}"
        )
    # weights of 1e300 must not overflow in a sum
    largest = weights.max()
    if largest <= 0.0:
        raise ValueError(f"{name} must not be zero everywhere")
    # a power of two changes no digit of a weight
    return np.ldexp(weights, -math.frexp(largest)[1])


def as_vector(values: Any, name: str, *, length: int | None = None) -> np.ndarray:
    """``values`` as a finite float64 vector."""
    require_numbers(values, name)
    with naming(name):
        values = np.asarray(to_numpy(values) if is_other_array(values) else values)
    if values.ndim == 0:
        values = np.full(length or 1, values)
    if values.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional; got shape {values.shape}")
    if length is not None and values.shape[0] != length:
        raise ValueError(f"{name} must have length {length}; got {values.shape[0]}")
    require_complete(values, name)
    with naming(name):
        column = check_array(
            values.reshape(-1, 1), dtype=np.float64, input_name=name, ensure_min_samples=0
        )
    return np.array(column[:, 0])


def require_complete(values: np.ndarray, name: str) -> None:
    """Raise where an entry is NaN or None, in scikit-learn's words, and then say where."""
    gone: Any = np.isnan(values) if values.dtype.kind == "f" else ()
    if values.dtype.kind == "O":
        gone = [entry is None or entry != entry for entry in values]
    if (missing := np.flatnonzero(gone)).size:
        where = (
            f"{missing.size} of {values.size} entries are missing, the first is entry {missing[0]}"
            " (counted from 0)"
        )
        raise ValueError(f"Input {name} contains NaN: {where}; leave those rows out, or fill them")


def as_numbers_at(values: Any, name: str, X: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """What the function ``name`` has returned for the rows of X, as finite floats of this shape."""
    wanted = f"{' × '.join(map(str, shape))} numbers for an array of shape {X.shape}"
    try:
        if np.iscomplexobj(values):
            raise TypeError
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must return {wanted}; got {values!r}") from None
    if values.shape != shape:
        raise ValueError(
            f"{name} must return shape {shape} for an array of shape {X.shape}; got shape"
            f" {values.shape}"
        )
    if not np.all(np.isfinite(values)):
        at = int(np.argwhere(~np.isfinite(values))[0, 0])
        where = f"got {values[at]} at x = {X[at].tolist()}"
        raise ValueError(f"{name} must return finite numbers; {where}")
    return values


def as_generator(random_state: Any) -> np.random.Generator:
    """A NumPy Generator from whatever scikit-learn accepts as ``random_state``."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    return np.random.default_rng(check_random_state(random_state).randint(0, 2**31, size=4))


# Numbers of any shape; ``wrong`` is raised on what is none, on True, and on complex ones.
def _as_reals(values: Any, wrong: str) -> np.ndarray:
    with suppress(TypeError, ValueError):
        given = np.asarray(values)
        if given.dtype.kind in "iufO":
            return given.astype(np.float64)
    raise ValueError(wrong)


def as_grid(values: Any, name: str, *, positive: bool, infinite: bool = False) -> np.ndarray:
    """A grid of hyperparameters: at least one number, all positive or at least none negative.

    They are finite, unless ``infinite`` allows inf.
    """
    wrong = f"{name} must hold at least one number; got {values!r}"
    grid = np.atleast_1d(_as_reals(values, wrong))
    if grid.ndim > 1 or grid.size == 0:
        raise ValueError(wrong)
    fine = (grid > 0.0 if positive else grid >= 0.0) & (infinite | np.isfinite(grid))
    if not fine.all():
        first, wanted = int(np.argmin(fine)), "positive" if positive else "non-negative"
        wanted += "" if infinite else " and finite"
        raise ValueError(f"{name} must be {wanted}; entry {first} is {grid[first]:g}")
    return grid


def as_bandwidth(
    sigma: Any, name: str = "bandwidth", *, n_features: int | None = None
) -> np.ndarray:
    """A positive bandwidth whose square is a normal number: 0-dimensional, or one entry per
    feature.
    """
    wrong = f"{name} must be a positive number or one per feature; got {sigma!r}"
    out = _as_reals(sigma, wrong)
    if out.ndim > 1 or out.size == 0:
        raise ValueError(wrong)
    if n_features is not None and out.shape not in ((), (n_features,)):
        raise ValueError(
            f"{name} gives {out.shape[0]} bandwidths but the points have {n_features} features;"
            " give one, or one for each"
        )
    if not np.all(np.isfinite(out) & (out > 0.0)):
        raise ValueError(f"{name} must be positive and finite; got {sigma!r}")
    if np.any(out < _SMALLEST_SIGMA) or np.any(out > _LARGEST_SIGMA):
        raise ValueError(
            f"{name} must lie in [{_SMALLEST_SIGMA:g}, {_LARGEST_SIGMA:g}], where its square is"
            f" representable; got {sigma!r}"
        )
    out.setflags(write=False)
    return out


def as_metric(S: Any, name: str) -> np.ndarray | None:
    """A symmetric positive definite matrix, read-only; None if ``S`` is not a matrix."""
    try:
        given = np.asarray(S)
    except ValueError:  # rows of different lengths
        return None
    if given.ndim != 2:
        return None
    if given.dtype.kind not in "iuf" or given.shape[0] != given.shape[1] or given.size == 0:
        raise _no_metric(name, given)
    out: np.ndarray = _definite(given[None].astype(np.float64), [name])[0]
    out.setflags(write=False)
    return out


def as_metrics(given: np.ndarray, name: str, used: np.ndarray) -> np.ndarray:
    """Those of many (c, d, d) that are ``used``, checked at once. The error names the wrong one."""
    return _definite(given[used], [f"{name}[{c}]" for c in np.flatnonzero(used)])


def _no_metric(name: str, given: np.ndarray) -> ValueError:
    return ValueError(
        f"{name} must be a square matrix with finite entries, or bandwidths; got shape"
        f" {given.shape} of {given.dtype}"
    )


# Symmetric positive definite matrices (c, d, d), called by their ``names`` in errors.
def _definite(S: np.ndarray, names: Sequence[str]) -> np.ndarray:
    for c in np.flatnonzero(~np.isfinite(S).all(axis=(1, 2))).tolist():
        raise _no_metric(names[c], S[c])
    size = np.sqrt(np.abs(np.diagonal(S, axis1=1, axis2=2)))
    representable = (size >= _SMALLEST_SIGMA) & (size <= _LARGEST_SIGMA)
    for c in np.flatnonzero(~representable.all(axis=1)).tolist():
        low, high = _SMALLEST_SIGMA**2, _LARGEST_SIGMA**2
        raise ValueError(
            f"{names[c]} must have, as a matrix, diagonal entries in [{low:g}, {high:g}]; got"
            f" {np.diagonal(S[c]).tolist()}"
        )
    # in units of the diagonal, so that no feature's unit decides
    unit, mirrored = S / size[:, :, None] / size[:, None, :], S.transpose(0, 2, 1)
    askew = np.abs(unit - unit.transpose(0, 2, 1)).max(axis=(1, 2))
    for c in np.flatnonzero(askew > _ASYMMETRY).tolist():
        raise ValueError(
            f"{names[c]} must be symmetric as a matrix; entries differ from their mirror images by"
            f" up to {np.abs(S[c] - mirrored[c]).max():.3g}"
        )
    lowest = np.linalg.eigvalsh(0.5 * (unit + unit.transpose(0, 2, 1)))[:, 0]
    for c in np.flatnonzero(~(lowest > _SINGULAR)).tolist():
        raise ValueError(
            f"{names[c]} must be, as a matrix, positive definite; as a matrix of correlations its"
            f" least eigenvalue is {lowest[c]:.3g}; add a small multiple of its diagonal, or drop"
            " a feature that the others determine"
        )
    return np.asarray(0.5 * (S + mirrored))


def as_bandwidth_or_metric(value: Any, name: str, d: int | None = None) -> np.ndarray:
    """A bandwidth, one per feature, or the metric of a kernel. ``d`` is the number of features."""
    metric = as_metric(value, name)
    if metric is None:
        return as_bandwidth(value, name, n_features=d)
    if d is not None and metric.shape[0] != d:
        matrix = f"{name} is a matrix for {metric.shape[0]} features"
        raise ValueError(f"{matrix}, but the samples have {d}")
    return metric


def as_count(value: Any, name: str, *, minimum: int = 1) -> int:
    """A whole number of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number; got {value!r}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}; got {value!r}")
    return int(value)


def instead(**right: str) -> Callable[[_F], _F]:
    """A decorator: an argument of another library's name raises a TypeError that has the right one.

    >>> @instead(seed="rng")
    ... def rvs(size, rng=None): ...
    >>> rvs(3, seed=0)
    Traceback (most recent call last):
    TypeError: rvs() takes rng=…, not seed=…
    """

    def decorated(function: _F) -> _F:
        @wraps(function)
        def call(*given: Any, **named: Any) -> Any:
            for wrong in named:
                if wrong in right:
                    raise TypeError(f"{function.__name__}() takes {right[wrong]}=…, not {wrong}=…")
            return function(*given, **named)

        return cast("_F", call)

    return decorated


def available_if(check: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """scikit-learn's decorator of the same name, but the AttributeError ends with the message of
    ``check``: the fix."""
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
            own = f"this {type(estimator).__name__} has no {self._method.__name__!r}"
            raise AttributeError(f"{own}: {error}") from None
        return MethodType(self._method, estimator)


def check_jobs(n_jobs: Any) -> None:
    """Raise on what is no number of processes of joblib."""
    whole = isinstance(n_jobs, (int, np.integer)) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        expected = "None, a positive number of processes, or -1 for all processors"
        raise ValueError(f"n_jobs must be {expected}; got {n_jobs!r}")


def as_callback(value: Any, name: str = "callback") -> Any:
    """None, or something that can be called."""
    if value is not None and not callable(value):
        raise TypeError(
            f"{name} must be None or a function of one argument, the progress so far; got {value!r}"
        )
    return value


def as_choice(value: Any, name: str, choices: Collection[str], *, otherwise: str = "") -> str:
    """One of the words ``choices``; ``otherwise`` says what else is accepted."""
    if not isinstance(value, str) or value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name} must be one of {listed}{otherwise}; got {value!r}")
    return value


def as_invertible(matrix: Any, name: str, d: int) -> np.ndarray:
    """An invertible matrix (d, d) of finite numbers."""
    with naming(name):
        given = np.asarray(to_numpy(matrix) if is_other_array(matrix) else matrix)
    if given.shape != (d, d) or given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)):
        raise ValueError(
            f"{name} must have, as a matrix, shape {(d, d)} and finite entries; got shape"
            f" {given.shape} of {given.dtype}"
        )
    out = given.astype(np.float64)
    sizes = np.linalg.norm(out, axis=1)
    least = (
        0.0
        if not np.all(sizes > 0.0)
        else float(np.linalg.svd(out / sizes[:, None], compute_uv=False)[-1])
    )
    if not least > _SINGULAR:
        raise ValueError(
            f"{name} must be, as a matrix, invertible; with rows of length one its least singular"
            f" value is {least:.3g}; take a marginal instead of a projection"
        )
    return out


def as_scales(scale: Any, d: int, name: str = "scale") -> np.ndarray:
    """One positive number for all ``d`` features or one for each; infinity is one of them."""
    wrong = (
        f"{name} must be a positive number (infinity included), or one for each of the {d}"
        f" features; got {scale!r}"
    )
    out = _as_reals(scale, wrong)
    if out.shape not in ((), (d,)) or not np.all(out > 0.0):
        raise ValueError(wrong)
    return np.array(np.broadcast_to(out, (d,)))


def as_levels(levels: Any, name: str = "q") -> np.ndarray:
    """Probabilities in [0, 1]: one (0-dimensional) or a vector of them."""
    values = as_vector(levels, name)
    if values.size == 0:
        raise ValueError(f"{name} must hold at least one probability; got none")
    if np.any((values < 0.0) | (values > 1.0)):
        raise ValueError(f"{name} must lie in [0, 1]; got {levels!r}")
    return np.asarray(values[0]) if np.ndim(levels) == 0 else values


def as_features(
    features: Any, d: int, name: str = "features", names: Sequence[str] | None = None
) -> list[int]:
    """One or more different features, by their numbers 0 … d − 1 or their ``names``, in the order
    given; a single one stands for itself.
    """
    if isinstance(features, np.ndarray):
        features = features.tolist()
    single = isinstance(features, str) or not isinstance(features, Iterable)
    several = [features] if single else list(features)
    if not several:
        raise ValueError(f"{name} must name at least one feature; got {features!r}")
    return feature_numbers(several, d, names, name)


Conditions = tuple[dict[int, float], dict[int, tuple[float, float]]]
"""{feature: value} and {feature: (low, high)}."""


def as_conditions(
    conditions: Any, d: int, names: Sequence[str] | None = None, *, leave_none: bool = False
) -> Conditions:
    """A mapping {feature: value or (low, high)}, split: values are finite, sides may be infinite;
    not all ``d``, unless ``leave_none``.
    """
    if not isinstance(conditions, Mapping):
        word, example = (
            ("number", "{1: 0.3, 2: (0, 1)}")
            if names is None
            else ("name", f"{{{names[-1]!r}: 0.3}}")
        )
        raise TypeError(
            f"conditions must be a mapping from feature {word} to a value or an interval, such as"
            f" {example}; got {conditions!r}"
        )
    given = dict(
        zip(as_features(list(conditions), d, "conditions", names), conditions.values(), strict=True)
    )
    if len(given) == d and not leave_none:
        raise ValueError(
            f"conditions give all {d} features: none is left to have a density; use pdf at a point,"
            " probability in a box"
        )
    # the order of the features, so that the same conditions have the same answer
    within = {k: _as_interval(given[k], said(k, names)) for k in sorted(given) if np.ndim(given[k])}
    return {
        k: as_finite(given[k], f"the value of {said(k, names)}")
        for k in sorted(given)
        if k not in within
    }, within


def _as_interval(sides: Any, feature: str) -> tuple[float, float]:
    given = np.asarray(sides)
    # two values in a list are as likely meant as two conditions: only a tuple is an interval
    if not isinstance(sides, tuple) or given.shape != (2,) or given.dtype.kind not in "iuf":
        raise ValueError(
            f"{feature} must be given as one number, or as a tuple (low, high) for an interval; got"
            f" {sides!r}; for several values, call conditional for each, or conditional_logpdf with"
            " all rows"
        )
    low, high = float(given[0]), float(given[1])
    if not low < high:
        raise ValueError(
            f"the interval of {feature} is empty: low must be less than high; got {sides!r}; a"
            " value is one number"
        )
    return low, high


def as_box(
    low: Any, high: Any, d: int, *, closed: bool = False, names: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The bounds of boxes as two arrays (n, d), possibly infinite, and whether several were given;
    ``closed`` lets the two be equal.

    A mapping {feature: bound} bounds these features alone.
    """
    sides = []
    for side, name, unbounded in ((low, "low", -np.inf), (high, "high", np.inf)):
        given = to_numpy(per_feature(side, d, names, name, unbounded))
        if given.dtype.kind not in "iuf":
            raise ValueError(
                f"{name} must be a number, one for each of the {d} features, or rows of them; got"
                f" {side!r}"
            )
        if given.ndim > 2 or (given.ndim and given.shape[-1] != d):
            raise ValueError(
                f"{name} must have one entry for each of the {d} features; got shape {given.shape}"
            )
        if np.any(np.isnan(given)):
            raise ValueError(
                f"{name} contains NaN; the bounds of a box are numbers, infinity included"
            )
        sides.append(given.astype(np.float64))
    several = max(side.ndim for side in sides) == 2
    rows = {side.shape[0] for side in sides if side.ndim == 2}
    if len(rows) > 1:
        raise ValueError(f"low gives {sides[0].shape[0]} boxes, but high gives {sides[1].shape[0]}")
    a, b = (np.array(np.broadcast_to(side, (max(rows, default=1), d))) for side in sides)
    # boxes may reach to infinity, but must not begin there
    wrong = (a > b) | ((a == b) & (np.isinf(a) | (not closed)))
    if np.any(wrong):
        row, k = np.argwhere(wrong)[0]
        where = f"in {said(int(k), names)} low is {a[row, k]} and high is {b[row, k]}"
        raise ValueError(f"the box is empty: low must be less than high in every feature; {where}")
    return a, b, several


def as_powers(powers: Any, d: int, names: Sequence[str] | None = None) -> tuple[int, ...]:
    """A whole number ≥ 0 for each of ``d`` features; a single number where d = 1; of a mapping, 0
    for the features that it lacks. Floats without a fraction are whole, as SciPy sends them.
    """
    powers = per_feature(powers, d, names, "powers", 0)
    given = np.reshape(powers, 1) if d == 1 and np.ndim(powers) == 0 else powers
    listed = list(given) if isinstance(given, Iterable) else None
    if listed is None or len(listed) != d:
        got = repr(powers) if listed is None else len(listed)
        raise ValueError(
            f"powers must hold one whole number for each of the {d} features; got {got}"
        )
    whole = [
        int(power) if isinstance(power, (float, np.floating)) and power.is_integer() else power
        for power in listed
    ]
    return tuple(as_count(power, "every exponent of a moment", minimum=0) for power in whole)


# ``X``, which was made of ``given``, or its copy if somebody else may still write to its memory;
# nobody can write to the result.
def _frozen(X: np.ndarray, given: Any) -> np.ndarray:
    fresh = isinstance(given, (list, tuple)) or (
        isinstance(given, np.ndarray) and X is not given and X.base is None
    )
    shared: Any = X
    while isinstance(shared, np.ndarray) and not shared.flags.writeable:
        shared = shared.base
    if not fresh and isinstance(
        shared, np.ndarray
    ):  # of an array that owns its memory, or a file, the base is no array
        X = X.copy()
    X.setflags(write=False)
    return X


# What scikit-learn's check_array asks of a matrix, on the matrix's own device.
def _as_matrix(X: Array, name: str, allow_empty: bool) -> Array:
    X = X.detach() if hasattr(X, "detach") else X
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(
            f"Expected 2D array, got {X.ndim}D array instead: {name} must have one row per sample"
            " and one column per feature"
        )
    if not xp.isdtype(X.dtype, ("real floating", "integral", "bool")):
        raise ValueError(f"{name} must hold real numbers; got dtype {X.dtype}")
    if X.shape[1] < 1 or (X.shape[0] < 1 and not allow_empty):
        raise ValueError(
            f"Found array with shape {tuple(X.shape)} while a minimum of 1 sample and 1 feature is"
            f" required ({name})"
        )
    X = xp.astype(X, xp.float64)
    if not bool(xp.all(xp.isfinite(X))):
        what = (
            "NaN"
            if bool(xp.any(xp.isnan(X)))
            else "infinity or a value too large for dtype('float64')"
        )
        raise ValueError(f"Input {name} contains {what}.")
    return X


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Begin an error that does not name its argument, or its chunk, with the name."""
    try:
        yield
    except OverflowError:
        raise ValueError(
            f"{name} holds a number that is too large for a float; pass numbers below 1e308"
        ) from None
    except (TypeError, ValueError) as error:
        if name in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"{name}: {error}") from None


# A finite number between ``least``, in words ``wanted``, and infinity.
def _as_number(value: Any, name: str, wanted: str = "finite", least: float = -math.inf) -> float:
    wrong = ValueError(f"{name} must be a number; got {value!r}")
    if isinstance(value, (bool, str, bytes)):
        raise wrong
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} is too large for a float; pass a number below 1e308") from None
    except (TypeError, ValueError):
        raise wrong from None
    if not (math.isfinite(number) and number >= least):
        raise ValueError(f"{name} must be {wanted}; got {value!r}")
    return number


as_finite = _as_number
# zero is one of them
as_nonnegative = partial(_as_number, wanted="non-negative and finite", least=0.0)
# from the least positive float
as_positive = partial(_as_number, wanted="positive and finite", least=math.ulp(0.0))
