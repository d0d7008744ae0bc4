"""Tables of any make: what comes in becomes a table that the rest knows, and answers go out as
frames of the make that came in.

pandas, polars and pyarrow are known by themselves. Everything else that gives an Arrow stream, such
as a relation of DuckDB, becomes a table of pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos.ground.lazy import needed

MAKES = ("pandas", "polars", "pyarrow", "duckdb")
"""Libraries whose frames answers can be."""


def make_of(X: Any) -> str:
    """The library that made a table, of those that frames can be made with; else "pandas".

    >>> make_of([[1.0]])
    'pandas'
    """
    home = type(X).__module__.partition(".")[0].removeprefix("_")
    return home if home in MAKES else "pandas"


def known_table(X: Any) -> Any:
    """A table that gives its columns only as a query or as an Arrow stream, read; everything else
    as it came.
    """
    home, kind = type(X).__module__.partition(".")[0], type(X).__name__
    if home == "polars" and kind == "LazyFrame":
        return X.collect()
    if hasattr(X, "to_arrow_table"):  # a relation of DuckDB, older ones of which give no stream
        return X.to_arrow_table()
    # tables and series of these have such a stream as well, and are known by themselves
    own = home in ("pandas", "polars", "pyarrow") and not kind.startswith("RecordBatch")
    if not own and hasattr(type(X), "__arrow_c_stream__"):
        arrow = needed("pyarrow", f"a table of type {kind}", '"kernel-sos[arrow]"')
        return arrow.table(X)
    return X


def frame(values: np.ndarray, names: Sequence[Any] | None, make: str = "pandas") -> Any:
    """Rows (n, d) as a frame of that make; without names, of columns x0, x1, …"""
    columns, home = _default_names(values.shape[1], names), _library(make)
    if make == "pandas":
        return home.DataFrame(values, columns=columns)
    columns = [*map(str, columns)]
    if make == "polars":
        return home.DataFrame(values, schema=columns)
    if make == "duckdb":
        return home.from_arrow(frame(values, names, "pyarrow"))
    return home.table(list(np.ascontiguousarray(values.T)), names=columns)


def series(values: np.ndarray, names: Sequence[Any] | None, make: str = "pandas") -> Any:
    """One number per feature as a pandas Series; of another make, a frame of one row."""
    if make != "pandas":
        return frame(values[None, :], names, make)
    return _library(make).Series(values, index=_default_names(values.shape[0], names))


def square(values: np.ndarray, names: Sequence[str] | None, make: str = "pandas") -> Any:
    """A matrix (d, d) as a frame whose columns are the features, as are the rows with pandas."""
    found = frame(values, names, make)
    return found if make != "pandas" else found.set_axis(found.columns, axis=0)


def typed_frame(columns: Sequence[Any], values: Sequence[np.ndarray], make: str) -> Any:
    """A frame of that make of columns that know their ``name``, ``dtype``, ``categories`` and
    whether they are ``ordered``; NaN and None are missing cells.
    """
    if make == "duckdb":
        return _library(make).from_arrow(typed_frame(columns, values, "pyarrow"))
    typed = _TYPED.get(make, _of_pandas)
    pairs = zip(columns, values, strict=True)
    found = {one.name: typed(_library(make), one, x) for one, x in pairs}
    return _library(make).table(found) if make == "pyarrow" else _library(make).DataFrame(found)


def _of_pandas(home: Any, column: Any, x: np.ndarray) -> Any:
    dtype, gaps = column.dtype, x.dtype == object and any(one is None for one in x)
    if dtype == "category":
        every = column.categories or column.levels
        return home.Categorical(x, categories=list(every), ordered=column.ordered)
    has_gaps = dtype in ("str", "string", "boolean") or dtype.startswith(("Int", "UInt", "Float"))
    if (gaps and not has_gaps) or dtype in ("String", "Boolean"):
        return home.Series(x, dtype=object)
    # whole numbers with gaps stay what they are only in types that have gaps
    return home.Series(x) if np.any(x != x) and dtype.islower() else home.Series(x).astype(dtype)


# Python's values, None where a cell is missing.
def _listed(column: Any, x: np.ndarray) -> list[Any]:
    whole = x.dtype != object and column.dtype.lower().startswith(("int", "uint"))
    return [None if a is None or a != a else int(a) if whole else a for a in x.tolist()]


def _of_polars(home: Any, column: Any, x: np.ndarray) -> Any:
    dtype = getattr(home, column.dtype, None)
    if column.dtype == "category":
        dtype = home.Enum(column.categories) if column.categories else home.Categorical
    return home.Series(_listed(column, x), dtype=dtype)


def _of_pyarrow(home: Any, column: Any, x: np.ndarray) -> Any:
    numeric = x.dtype != object
    dtype = home.from_numpy_dtype(np.dtype(column.dtype.lower())) if numeric else None
    found = home.array(_listed(column, x), type=dtype)
    return found.dictionary_encode() if column.dtype == "category" else found


_TYPED = {"polars": _of_polars, "pyarrow": _of_pyarrow}


def _default_names(d: int, names: Sequence[Any] | None) -> list[Any]:
    return [f"x{k}" for k in range(d)] if names is None else list(names)


def _library(name: str) -> Any:
    return needed(name, f"an answer as a data frame of {name}", name)
