"""Names of features, which live at the public border alone: tables of pandas, polars and pyarrow.

On the way in, a public call makes arrays and numbers of what it was given: :func:`in_order` puts
the columns of a table in the order of the fit, :func:`feature_numbers` and :func:`per_feature` turn
names into numbers. On the way out, ``frames.py`` labels the answer. Nothing in between knows a
name.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np

from ksos.ground.frames import known_table

_SHOWN = 6  # names in a message
# what NumPy's kinds of arrays hold that are no real numbers, and what to do about it
UNITS = {
    "M": "dates",
    "m": "durations",
    "U": "text",
    "S": "bytes",
    "T": "text",
    "V": "records",
    "c": "complex numbers",
}
REMEDIES = {
    "dates": "leave the column out, or make it a number such as the days since its first date",
    "durations": "divide it by a unit, such as numpy.timedelta64(1, 's')",
    "text": "leave the column out, or turn it into numbers first",
    "categories": (
        "leave the column out, or fit each category by itself: codes of categories have no"
        " distances"
    ),
}


def is_table(X: Any) -> bool:
    """Whether ``X`` has named or numbered columns, as data frames have."""
    return all(hasattr(X, name) for name in ("columns", "shape", "__getitem__"))


def _labels(X: Any) -> list[Any]:
    # the columns of a table of pyarrow are their numbers
    return list(X.column_names if hasattr(X, "column_names") else X.columns)


def columns_of(X: Any) -> list[Any] | None:
    """The columns of a table, or of rows that may hold text; None of anything else."""
    if is_table(X):
        return [X[label] for label in _labels(X)]
    # NumPy would make text of numbers that stand beside it
    array = np.asarray(X, dtype=object if isinstance(X, list) else None)
    return list(array.T) if array.ndim == 2 else None


def column_names(X: Any, what: str = "X") -> tuple[str, ...] | None:
    """The names of the columns of a table, different ones; None for arrays, and where the columns
    are only numbered.
    """
    X = known_table(X)
    if not is_table(X):
        return None
    labels = _labels(X)
    named = [isinstance(label, str) for label in labels]
    if any(named) and not all(named):
        kinds = ", ".join(sorted({type(label).__name__ for label in labels}))
        raise TypeError(
            f"{what} must have columns that are all named by text, or none; got labels of {kinds};"
            " X.columns.astype(str) makes them text"
        )
    require_different(labels, f"{what} has columns")
    return tuple(map(str, labels)) if labels and all(named) else None


def target_names(y: Any) -> tuple[str, ...] | None:
    """Names of the columns of a table, or of a series."""
    if is_table(y):
        return column_names(y, "y")
    name = getattr(y, "name", None)
    return (name,) if isinstance(name, str) else None


def as_feature_names(names: Any, d: int, what: str = "feature_names") -> tuple[str, ...]:
    """``d`` different words."""
    listed = (
        list(names) if isinstance(names, Iterable) and not isinstance(names, (str, bytes)) else None
    )
    if listed is None or not all(isinstance(name, str) for name in listed):
        raise TypeError(
            f"{what} must be a list of text, one name for each of the {d} features, or None; got"
            f" {names!r}"
        )
    if len(listed) != d:
        raise ValueError(
            f"{what} must have one name for each of the {d} features; got {len(listed)}:"
            f" {quoted(listed)}"
        )
    require_different(listed, what)
    # words of NumPy would show in every repr
    return tuple(map(str, listed))


def require_different(labels: Sequence[Any], what: str) -> None:
    """Raise if two features have the same name: no answer could be asked for one of them."""
    twice = [label for label in dict.fromkeys(labels) if labels.count(label) > 1]
    if twice:
        raise ValueError(f"{what} of the same name: {quoted(twice)}; give each a name of its own")


def quoted(names: Collection[Any], most: int = _SHOWN) -> str:
    """Names for a message: the first few in quotation marks, and how many more there are."""
    shown = ", ".join(repr(name) for name in list(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def meant(word: str, known: Iterable[str]) -> str:
    """A question for the end of an error, if one of the ``known`` words is much like a ``word``.

    >>> meant("Hpp", ["mpg", "hp"])
    "; did you mean 'hp'?"
    """
    same = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), list(same), 1)
    return f"; did you mean {same[close[0]]!r}?" if close else ""


def shown_names(names: Sequence[str] | None) -> str:
    """Names as a repr shows them, behind the number of features."""
    return "" if names is None else f" ({quoted(names)})"


def said(feature: int, names: Sequence[str] | None) -> str:
    """One feature in a message: its name if it has one, else its number."""
    return f"feature {feature}" if names is None else repr(names[feature])


def feature_numbers(
    features: Iterable[Any], d: int, names: Sequence[str] | None, what: str
) -> list[int]:
    """Different features as numbers from 0 to d − 1, each given by its number or its name.

    Negative numbers raise: with them one feature would have two names.
    """
    found: list[int] = []
    for feature in features:
        if isinstance(feature, str) and names is None:
            raise ValueError(
                f"{what} names the feature {feature!r}, but the features have no names here; use"
                " their numbers, or give them names with p.with_feature_names([…])"
            )
        if isinstance(feature, str) and names is not None:
            if feature not in names:
                raise ValueError(
                    f"{what} names the feature {feature!r}, but the features are"
                    f" {quoted(names)}{meant(feature, names)}"
                )
            feature = list(names).index(feature)
        if isinstance(feature, (bool, np.bool_)):
            raise ValueError(
                f"{what} must be feature numbers, not a mask; np.flatnonzero(mask) gives them"
            )
        if not hasattr(feature, "__index__"):
            raise ValueError(
                f"{what} must be a feature number or a list of them, or names of features; got"
                f" {feature!r}"
            )
        if not 0 <= int(feature) < d:
            raise ValueError(
                f"{what} has feature {feature}, but the {d} features are numbered 0 to {d - 1}"
            )
        found.append(int(feature))
    if len(set(found)) < len(found):
        raise ValueError(f"{what} must name each feature once; got {quoted(list(features))}")
    return found


def per_feature(values: Any, d: int, names: Sequence[str] | None, what: str, missing: float) -> Any:
    """A mapping {feature: value}, or a table, as values for all ``d`` features, the others being
    ``missing``; all else as it came.
    """
    if is_table(values):
        values = {label: np.asarray(values[label]) for label in _labels(values)}
    if not isinstance(values, Mapping):
        return values
    given = dict(zip(feature_numbers(values, d, names, what), values.values(), strict=True))
    return np.stack(np.broadcast_arrays(*(given.get(k, missing) for k in range(d))), axis=-1)


def order_of(
    given: Sequence[str] | None, wanted: Sequence[str] | None, what: str
) -> list[int] | None:
    """Where the ``wanted`` names are among those ``given``; None where everything is in its place.

    Names that differ raise. Columns without names are taken as they stand, with a warning.
    """
    if wanted is None or (given is not None and tuple(given) == tuple(wanted)):
        return None
    if given is None:
        warn_caller(
            f"{what} does not have valid feature names, but the features here have names:"
            f" {quoted(wanted)}; its columns are taken in this order; pass a table with these"
            " columns, or use p.with_feature_names(None)"
        )
        return None
    if missing := [name for name in wanted if name not in given]:
        raise ValueError(
            f"{what} lacks the column{'s' * (len(missing) > 1)} {quoted(missing)}; it has"
            f" {quoted(given)}"
        )
    if extra := [name for name in given if name not in wanted]:
        wrong = f"{what} has the column{'s' * (len(extra) > 1)} {quoted(extra)}"
        raise ValueError(
            f"{wrong}, but the features are {quoted(wanted)}; select these, as in"
            " X[list(p.feature_names)]"
        )
    return [list(given).index(name) for name in wanted]


def in_order(X: Any, names: Sequence[str] | None, what: str = "X") -> Any:
    """A table with its columns in the order of ``names``; what needs no reordering, as it came."""
    X = known_table(X)
    order = order_of(column_names(X, what), names, what)
    return X if order is None or names is None else matrix_of(X, what, names)


def as_row(x: Any, names: Sequence[str] | None) -> Any:
    """One row as a matrix or table of one row, as it came if it is one; of what has labels or text,
    a pandas data frame under ``names``.

    >>> as_row({"Origin": "USA", "hp": 100}, ["hp", "Origin"]).to_dict("list")
    {'hp': [100], 'Origin': ['USA']}
    """
    labeled: Mapping[Any, Any] | None = x if isinstance(x, Mapping) else None
    # a pandas series has both, and no columns
    if hasattr(x, "index") and hasattr(x, "to_dict") and not is_table(x):
        labeled = x.to_dict()
    if labeled is not None and not any(isinstance(label, str) for label in labeled):
        x, labeled = list(labeled.values()), None
    if labeled is None and np.ndim(x) != 1:
        return x
    if labeled is None and (names is None or np.asarray(x).dtype.kind not in "OUS"):
        return np.asarray(x)[None, :]
    if names is None:
        return np.asarray(list((labeled or {}).values()))[None, :]
    if labeled is None and len(x) != len(names):
        raise ValueError(f"x must have one value for each of {quoted(names)}; got {len(x)} values")
    values = dict(zip(names, x, strict=True)) if labeled is None else labeled
    order_of(tuple(map(str, values)), names, "x")
    import pandas  # heavy, and needed for text alone

    return pandas.DataFrame({name: [values[name]] for name in names})


def matrix_of(
    table: Any, what: str, names: Iterable[Any] | None = None, *, gaps: bool = False
) -> np.ndarray:
    """The columns ``names`` of a table (default: all) as a float64 matrix (n, d), without
    infinities; with ``gaps``, NaN may be in it.
    """
    labels = _labels(table) if names is None else list(names)
    # filled by columns, which is far faster in this order
    out = np.empty((table.shape[0], len(labels)), order="F")
    for k, values in enumerate(checked_columns(table, labels, what, gaps)):
        out[:, k] = values
    return np.ascontiguousarray(out)


def require_columns(table: Any, what: str) -> None:
    """Raise where columns of a table do not hold finite numbers, and name all of them."""
    column_names(table, what)
    checked_columns(table, _labels(table), what)


def checked_columns(
    table: Any, labels: list[Any], what: str, gaps: bool = False
) -> list[np.ndarray]:
    """Columns as arrays of numbers; raise one error that names all columns that are not."""
    columns: list[np.ndarray] = []
    wrong: dict[str, dict[str, str]] = {}
    for label in labels:
        values, head, words, fix = _numbers(table[label], gaps)
        columns.append(values)
        if head:
            wrong.setdefault(head.format(what), {})[f"column {label!r} {words}"] = fix
    if wrong:
        raise ValueError(". ".join(_problem(head, found) for head, found in wrong.items()))
    return columns


def _problem(head: str, found: dict[str, str]) -> str:
    more = f" and {len(found) - _SHOWN} more columns" if len(found) > _SHOWN else ""
    return "; ".join(
        [head + ", ".join(list(found)[:_SHOWN]) + more, *dict.fromkeys(found.values())]
    )


# The values and, if they are not finite numbers, how the error begins, what they are, and a
# suggested fix.
def _numbers(column: Any, gaps: bool) -> tuple[np.ndarray, str, str, str]:
    values = np.asarray(column)
    # categories look like text or like numbers, by the library that holds them
    kind = values.dtype.kind
    wrong = UNITS.get(kind)
    if hasattr(column, "dtype") and str(column.dtype).lower().startswith(("categor", "enum")):
        wrong = "categories"
    if kind == "O" and wrong is None:
        values, wrong = _as_floats(values)
    if wrong is not None:
        example = f" such as {str(values[0])!r}" if values.size else ""
        fix = REMEDIES.get(wrong.split()[0], "leave the column out, or turn it into real numbers")
        return values, "{} must hold real numbers, but ", f"holds {wrong}{example}", fix
    if kind in "biu":
        return values, "", "", ""
    finite, nan = np.isfinite(values), np.isnan(values)
    bad = ~(finite | nan) if gaps or not np.any(nan) else nan
    if np.all(~bad if gaps else finite):
        return values, "", "", ""
    rows = np.flatnonzero(bad)
    where = f"in {rows.size} of {values.size} rows, the first in row {rows[0]} (counted from 0)"
    # scikit-learn's words, and then where
    if np.any(nan) and not gaps:
        fix = "leave those rows out, as X.dropna() does, or fill them"
        return values, "Input {} contains NaN: ", f"has missing values {where}", fix
    head = "Input {} contains infinity or a value too large for dtype('float64'): "
    return values, head, f"has infinities {where}", "leave those rows out"


# Objects as numbers, missing ones as NaN; or what they are instead.
def _as_floats(values: np.ndarray) -> tuple[np.ndarray, str | None]:
    present = [entry for entry in values if not is_gap(entry)]
    if odd := [entry for entry in present if not hasattr(entry, "__float__")]:
        kind = (
            "text"
            if isinstance(odd[0], (str, bytes))
            else f"values of type {type(odd[0]).__name__}"
        )
        return np.asarray(odd[:1], dtype=object), kind
    return np.array([np.nan if is_gap(entry) else float(entry) for entry in values]), None


def is_gap(cell: Any) -> bool:
    """Whether a cell is None, NaN, or pandas' NA or NaT, which do not compare."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, (float, np.floating)) and bool(cell != cell)


def warn_caller(message: str | Warning) -> None:
    """A UserWarning, or the warning given, that points at the first line outside of ksos."""
    # NumPy's frames are of np.errstate as a decorator, scikit-learn's of callbacks and pipelines
    level, caller = 2, sys._getframe(1)
    while caller.f_back is not None and str(caller.f_globals.get("__name__", "")).partition(".")[
        0
    ] in ("ksos", "numpy", "sklearn"):
        level, caller = level + 1, caller.f_back
    warnings.warn(message, UserWarning, stacklevel=level)
