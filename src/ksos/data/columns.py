"""Which kind every column of a table is: as declared, or by its type; what is missing, and what
cannot be modeled.

Nothing is guessed from values: a column of numbers that looks like another kind stays a column of
numbers, and a note names the option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ksos.density import DTYPES, Column, Columns
from ksos.ground import (
    REMEDIES,
    UNITS,
    as_choice,
    column_names,
    columns_of,
    feature_numbers,
    is_gap,
    is_other_array,
    is_table,
    known_table,
    make_of,
    quoted,
    require_unmasked,
)

KINDS = ("numeric", "positive", "nonnegative", "count", "categorical")
"""Kinds that are named by a word; (low, high) and ("circular", period) are the others."""
_MISSING = ("model", "drop", "raise")
_MOST_LEVELS = 50  # of a column of text: with more it is more likely a name or a note
_MOST_DECLARED = 1000  # levels: beyond, probabilities of so many have no rows behind them
_FEW_ROWS = 5  # behind a level: its probabilities are mostly those of all rows
_ATOM = 0.05  # share of rows that makes a value an atom: 20 standard errors over 0.5% at n = 400
_SKEWED = 2.0  # skewness of an exponential distribution
_FEW_VALUES = 10  # distinct numbers, in many times as many rows: codes, more likely than amounts
_SHOWN = 6  # columns in a note, which must stay one line
_MODELED = (
    "they are modeled (missing='model'), which assumes that whether a cell is missing does not"
    " depend on its value, given the others"
)
_DATE = re.compile(r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d\d)\b.*")


@dataclass
class Learned:
    """What there is to tell the user about a table, and, unless it is one of plain numbers without
    gaps, its columns, the cells of the rows that are used, their positions, and how many rows there
    were. ``hints`` are to be told as well, and are about numbers that look like another kind.
    """

    notes: list[str]
    columns: Columns | None = None
    cells: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=int))
    n_rows: int = 0
    hints: list[str] = field(default_factory=list)

    @property
    def whole(self) -> tuple[np.ndarray, np.ndarray]:
        """The cells of all rows, NaN in those that are not used, and which rows are."""
        cells, used = np.full((self.n_rows, self.cells.shape[1]), np.nan), np.zeros(self.n_rows)
        cells[self.rows], used[self.rows] = self.cells, 1.0
        return cells, used > 0.0


def learn(
    X: Any,
    declared: Any = None,
    missing: str = "model",
    what: str = "X",
    modeled: str = _MODELED,
) -> Learned:
    """The kinds of the columns of ``X``, which messages call ``what``, and its cells. ``modeled``
    says what "model" does with missing ones.

    Raises one error that names all columns that cannot be modeled.
    """
    as_choice(missing, "missing", _MISSING)
    original, X = X, known_table(X)
    table = is_table(X)
    if not table and (is_other_array(X) or not (declared or _is_no_matrix(X))):
        return Learned([])
    require_unmasked(X, what)
    names = column_names(X, what)
    if (given := columns_of(X)) is None:
        return Learned([])
    kinds = _declared(declared, len(given), names)
    every = [
        _Given(f"x{k}" if names is None else names[k], values, kinds.get(k), table)
        for k, values in enumerate(given)
    ]
    if all(one.is_number and one.kind in (None, "numeric") and not one.gaps for one in every):
        return Learned([], hints=_hints(every) if names else [])
    made = [one.column() for one in every]
    if problems := [words for one in every for words in one.problems]:
        raise ValueError(f"{what} cannot be modeled: {'; '.join(problems)}")
    made_of = None if names is None else make_of(original)
    columns = Columns(tuple(column for column in made if column is not None), made_of)
    return _complete(columns, columns.read(X), missing, every, what, modeled)


def learn_target(y: Any, name: str, declared: Any, missing: str) -> Learned:
    """The same for targets: nothing is learned of numbers without gaps. A vector is a column of
    that ``name``. A target of another kind must be the only one.
    """
    require_unmasked(y, "y")
    values, written = np.asarray(y), str(getattr(y, "dtype", "")).lower()
    plain = values.dtype.kind in "iufcV" and not written.startswith(("categor", "enum"))
    named = is_table(y) or isinstance(getattr(y, "name", None), str)
    complete = values.dtype.kind != "f" or not np.isnan(values).any()
    if not 0 < values.ndim < 3 or (plain and complete and not declared and not named):
        return Learned([])
    found = learn(as_table(y, name), declared, missing, "y")
    # which regressors take other kinds of numbers as they are
    found.hints = [hint for hint in found.hints if "'categorical'" in hint]
    listed = () if found.columns is None else found.columns.listed
    odd = [column for column in listed if not column.is_plain]
    if odd and len(listed) > 1:
        raise ValueError(
            f"y has {len(listed)} columns, of which {odd[0].name!r} is {odd[0].kind}; fit a target"
            " that is not of plain numbers by itself"
        )
    if odd and odd[0].kind == "circular":
        raise ValueError("y is circular, which has no quantiles; fit its sine and cosine")
    return found


def as_table(y: Any, name: str) -> Any:
    """Targets as a table, a vector as its only column."""
    if is_table(y):
        return y
    import pandas

    values = y if hasattr(y, "iloc") else np.asarray(y)
    return pandas.DataFrame({name: values} if values.ndim == 1 else values)


# Whether an array, or a list of rows, holds text or gaps.
def _is_no_matrix(X: Any) -> bool:
    array = np.asarray(X) if isinstance(X, (np.ndarray, list)) else np.empty(0)
    if array.dtype.kind == "O":
        return any(isinstance(cell, str) for cell in array.ravel())
    return array.dtype.kind == "U" or (array.dtype.kind == "f" and bool(np.isnan(array).any()))


# What is declared, by the number of the column.
def _declared(declared: Any, d: int, names: Sequence[str] | None) -> dict[int, Any]:
    if declared is None:
        return {}
    if not isinstance(declared, Mapping):
        raise TypeError(
            "columns must be a mapping from columns to kinds, such as {'price': 'positive'}; got"
            f" {declared!r}"
        )
    places = feature_numbers(declared, d, names, "columns")
    for name, kind in declared.items():
        word = kind in KINDS if isinstance(kind, str) else False
        pair = isinstance(kind, tuple) and len(kind) == 2
        circular = pair and kind[0] == "circular" and _is_finite(kind[1]) and kind[1] > 0
        bounded = pair and all(map(_is_finite, kind)) and kind[0] < kind[1]
        if not (word or circular or bounded):
            raise ValueError(
                f"columns: {name!r} is declared {kind!r}; a kind is one of {', '.join(KINDS)}, a"
                " tuple (low, high) of two numbers, or ('circular', period)"
            )
    return dict(zip(places, declared.values(), strict=True))


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and bool(np.isfinite(value))


class _Given:
    """One column as it came: its values, type, gaps, and what is wrong with it."""

    def __init__(self, name: str, values: Any, kind: Any, table: bool) -> None:
        self.name, self.kind, self.problems = name, kind, list[str]()
        self.array = np.asarray(values)
        written = str(getattr(values, "dtype", self.array.dtype))
        self.pandas_type = getattr(values, "dtype", None)
        kept_as = str(getattr(values, "type", written)).lower()  # of pyarrow
        is_category = kept_as.startswith(("categor", "enum", "dictionary"))
        letter = self.array.dtype.kind
        # pandas' NA does not compare
        each = letter in "OUT"
        gaps = np.array([is_gap(cell) for cell in self.array]) if each else self.array != self.array
        self.gaps, self.observed, self.kept = bool(gaps.any()), ~gaps, self.array[~gaps]
        types = {type(cell) for cell in self.kept} if letter == "O" else set()
        flags = letter == "b" or types == {bool}
        self.is_text = letter in "UST" or (bool(types) and types <= {str, np.str_, bytes})
        self.is_level = is_category or self.is_text or (flags and table)
        numbers = letter in "iufb" or (
            bool(types) and all(issubclass(one, (int, float, np.number)) for one in types)
        )
        self.is_number = numbers and not self.is_level
        usual = "float64" if self.is_number else "object"
        self.dtype = written if DTYPES.fullmatch(written) else usual
        self.dtype = "category" if is_category else self.dtype
        empty = not self.kept.size
        if empty:
            self.problems.append(f"column {name!r} has no observed cell (all are NaN); drop it")
        elif letter in "Mm" or not (self.is_level or self.is_number):
            what = UNITS.get(letter, f"values of type {type(self.kept[0]).__name__}")
            fix = REMEDIES.get(what, "leave the column out")
            if len(types) > 1:
                what, fix = "values of several types", "make all numbers, or all text"
            self.problems.append(
                f"column {name!r} holds {what} such as {str(self.kept[0])!r}; {fix}"
            )

    def column(self) -> Column | None:
        """The column with its kind; None with a problem, if it cannot be modeled."""
        if self.problems:
            return None
        if self.kind == "categorical" or (self.kind is None and self.is_level):
            return self._categorical()
        if not self.is_number:
            word = self.kind if isinstance(self.kind, str) else f"{self.kind}"
            self.problems.append(
                f"column {self.name!r} is declared {word!r}, but holds text such as"
                f" {str(self.kept[0])!r}; declare it 'categorical', or turn it into numbers"
            )
            return None
        column = self._of_numbers(self.kept.astype(np.float64))
        cells = np.full(self.array.shape, np.nan)
        cells[self.observed] = self.kept
        if (words := column.outside(cells)) is not None:
            self.problems.append(
                f"column {self.name!r} {words}; correct the cell, or declare another kind"
            )
        return column

    def _categorical(self) -> Column | None:
        # those of pandas and of an Enum of polars; a Categorical of polars knows none of its own
        own: Any = getattr(self.pandas_type, "categories", None)
        own = list(own) if hasattr(own, "__array__") else None
        # whole numbers with gaps come as floats
        whole = self.dtype.startswith(("Int", "UInt")) and self.kept.dtype.kind == "f"
        kept = self.kept.astype(np.int64) if whole else self.kept
        cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in kept]
        if any(isinstance(cell, bytes) for cell in cells):
            self.problems.append(f"column {self.name!r} holds bytes; decode them to text")
            return None
        # a date is text of its own kind
        if self.is_text and all(_DATE.fullmatch(cell) for cell in cells):
            self.problems.append(
                f"column {self.name!r} holds dates such as {cells[0]!r}; {REMEDIES['dates']}"
            )
            return None
        distinct = set(cells)
        # numbers before words, each in their order
        ranked = sorted(distinct, key=lambda level: (isinstance(level, str), level))
        levels = ranked if own is None else [a for a in own if a in distinct]
        most = _MOST_LEVELS if self.kind is None else _MOST_DECLARED
        if len(levels) == len(cells) > 1:
            self.problems.append(
                f"column {self.name!r} has a level of its own in every row, such as {cells[0]!r}:"
                " an identifier; drop it"
            )
        elif len(levels) > most:
            fix = f" (or declare columns={{{self.name!r}: 'categorical'}})" * (self.kind is None)
            self.problems.append(
                f"column {self.name!r} has {len(levels):,} levels, such as {levels[0]!r}, and at"
                f" most {most} are taken; drop it, or join rare levels{fix}"
            )
        if self.problems:
            return None
        listed = [one.item() if isinstance(one, np.generic) else one for one in levels]
        every = None if own is None else tuple(own)
        ordered = bool(getattr(self.pandas_type, "ordered", False))
        return Column(self.name, "categorical", self.dtype, tuple(listed), every, ordered)

    def _of_numbers(self, x: np.ndarray) -> Column:
        kind, n = self.kind or "numeric", x.size
        if kind in ("positive", "nonnegative"):
            atoms: tuple[float, ...] = (0.0,) if kind == "nonnegative" else ()
            if not np.any(x > 0.0):
                self.problems.append(
                    f"column {self.name!r} is declared {kind!r} and has no positive cell"
                )
            return Column(self.name, kind, self.dtype, atoms=atoms, knee=float(x.max()) or None)
        if kind == "count":
            shares = [np.count_nonzero(x == k) / n for k in range(round(1.0 / _ATOM) + 1)]
            first = next(k for k, share in enumerate(shares) if share <= _ATOM)
            # what is between must have a spread of its own
            while first and np.count_nonzero(x >= first) < _FEW_ROWS:
                first -= 1
            atoms = tuple(float(k) for k in range(first))
            knee = max(float(x.max()) - first, 0.0) + 2.0
            return Column(self.name, kind, self.dtype, atoms=atoms, knee=knee)
        if isinstance(kind, tuple) and kind[0] == "circular":
            period = float(kind[1])
            turned = np.unique(np.mod(x, period))
            gaps = np.diff(np.append(turned, turned[0] + period))
            widest = int(np.argmax(gaps))
            seam = float(np.mod(turned[widest] + 0.5 * gaps[widest], period))
            return Column(self.name, "circular", self.dtype, sides=(0.0, period), seam=seam)
        if isinstance(kind, tuple):
            low, high = map(float, kind)
            atoms = tuple(end for end in (low, high) if np.any(x == end))
            if not np.any((x > low) & (x < high)):
                self.problems.append(
                    f"column {self.name!r} has no cell between {low:g} and {high:g}; declare it"
                    " 'categorical'"
                )
            return Column(self.name, "bounded", self.dtype, atoms=atoms, sides=(low, high))
        return Column(self.name, "numeric", self.dtype)


# The rows that are used, and what there is to say about cells that are missing.
def _complete(
    columns: Columns,
    cells: np.ndarray,
    missing: str,
    every: Sequence[_Given],
    what: str,
    modeled: str,
) -> Learned:
    gaps = np.isnan(cells)
    n, rows = cells.shape[0], np.arange(cells.shape[0])
    notes: list[str] = []
    if gaps.any():
        with_gaps = [
            column.name for column, bad in zip(columns.listed, gaps.T, strict=True) if bad.any()
        ]
        where = f"{int(gaps.sum())} cells in {int(gaps.any(axis=1).sum())} of {n} rows"
        where += f" ({quoted(with_gaps)})"
        if missing == "raise":
            row = int(gaps.any(axis=1).argmax())
            raise ValueError(
                f"{what} contains missing cells: {where}, the first in row {row} (counted from 0);"
                " fill them, or use missing='model' or missing='drop'"
            )
        used = ~gaps.any(axis=1) if missing == "drop" else ~gaps.all(axis=1)
        if not used.any():
            raise ValueError(f"{what} has no complete row; use missing='model'")
        rows, cells = rows[used], cells[used]
        if missing == "drop":
            notes.append(f"{what}: dropped {n - rows.size} of {n} rows, which have missing cells")
        else:
            notes.append(f"{what} has missing cells: {where}; {modeled}")
            if n > rows.size:
                notes.append(
                    f"{what}: excluded {n - rows.size} of {n} rows without any observed cell"
                )
    rare, single = [], []
    for k, column in enumerate(columns.listed):
        if not column.is_numeric:
            counts = np.bincount(cells[~np.isnan(cells[:, k]), k].astype(int), minlength=1)
            few = int(np.count_nonzero(counts < _FEW_ROWS))
            rare += [f"{column.name!r} ({few})"] if few else []
            single += [column.name] if len(column.levels) == 1 else []
    if rare:
        notes.append(
            f"levels with fewer than {_FEW_ROWS} rows, in {', '.join(rare)}: their probabilities"
            " and what depends on them are mostly those of all rows; join them with others if that"
            " is not wanted"
        )
    if single:
        notes.append(f"columns with one level, which has probability 1: {quoted(single)}")
    return Learned(notes, columns, cells, rows, n, _hints(every))


# One line on columns of numbers that look like another kind.
def _hints(every: Sequence[_Given]) -> list[str]:
    found = {one.name: hint for one in every if (hint := _looks_like(one))}
    if not found:
        return []
    shown = ", ".join(f"{name!r} ({why})" for name, (_, why) in list(found.items())[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    option = {name: kind for name, (kind, _) in found.items()}
    shell = ",".join(
        f"{name}={kind if isinstance(kind, str) else f'{kind[0]:g}:{kind[1]:g}'}"
        for name, kind in option.items()
    )
    return [
        f"columns of numbers that look like other kinds: {shown}{more}; they are modeled as plain"
        f" numbers; declare columns={option} (in a shell: --kinds {shell}), or 'numeric' if plain"
        " numbers are meant"
    ]


# The kind that the values of a column of numbers suggest, and why.
def _looks_like(one: _Given) -> tuple[Any, str] | None:
    if one.kind is not None or not one.is_number or one.problems:
        return None
    x = one.kept.astype(np.float64)
    if not np.isfinite(x).all():
        return None  # which raises
    values, counts = np.unique(x, return_counts=True)
    low, high, whole = float(values[0]), float(values[-1]), bool(np.all(x == np.floor(x)))
    amounts = low >= 0.0 and values.size > 2
    if amounts and low == 0.0 and counts[0] > _ATOM * x.size:
        share = f"{counts[0] / x.size:.0%} are 0"
        return ("count", f"whole numbers, {share}") if whole else ("nonnegative", share)
    if 1 < values.size <= _FEW_VALUES and x.size > _FEW_VALUES * values.size:
        return "categorical", f"{values.size} distinct values"
    for end, count in ((low, counts[0]), (high, counts[-1])):
        if count > max(_ATOM * x.size, 2) and values.size > _FEW_VALUES:
            return (low, high), f"{count / x.size:.0%} are {end:g}"
    if whole and amounts and values.size > 1:
        return "count", "whole numbers"
    deviation = float(x.std())
    skewness = float(np.mean(((x - x.mean()) / deviation) ** 3)) if deviation > 0.0 else 0.0
    return ("positive", "positive and skewed") if low > 0.0 and skewness > _SKEWED else None
