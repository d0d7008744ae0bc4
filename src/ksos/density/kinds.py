"""Kinds of columns: how cells of a table become numbers on the line and codes, and back.

A column of a table is encoded as a number u on the whole line, as a code c of a finite list, or as
both: where a value has a mass of its own (no rain, a share of one), its code names it and u is
missing; elsewhere the last code says "between", and u is the transformed value. The densities of
:mod:`ksos.density` know u and c alone. Here are the maps, with their derivatives, and the boxes of
(u, c) that a condition on a column is made of.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit

from ksos.density.normal_scores import NormalScores
from ksos.ground import (
    checked_columns,
    column_names,
    columns_of,
    is_gap,
    known_table,
    order_of,
    quoted,
    require_unmasked,
    said,
    typed_frame,
)
from ksos.quadrature import legendre

Side = float | tuple[float, float]
"""A value of u, or an interval of it, whose ends may be infinite."""
_Values = np.ndarray
# Nodes of the Gauss–Legendre rule in the cell of a count, by how many counts there are: with 3 the
# mass of a cell is right to 1e-4 if the density has at least the width of the noise, and the nodes
# of several counts multiply.
_CELL_NODES = {1: 5, 2: 3, 3: 3}
_SMOOTH_NODES = 35  # half a standard deviation apart: functions such as exp lose no digit
_STEP_NODES = 1 << 18  # of all rows, where values crowd: seconds
_STEP_ENDS = (129, 2049)  # of a row: a heap is half a step wrong, 0.07 and 0.004 deviations
_FEWER_CELL_NODES = 2  # of more counts
_MOST_COUNTS = 6  # whose cells have 2 nodes; beyond, the middle of the cell stands for it
_TURNS = 2  # of an angle to each side: a normal of half a period has 6e-7 of its mass beyond them
_LARGEST_COUNT = 2**53  # beyond, floats skip whole numbers


SUPPORTS = {
    "numeric": (-math.inf, math.inf),
    "positive": (0.0, math.inf),
    "nonnegative": (0.0, math.inf),
    "bounded": (0.0, 1.0),
    "count": (-1.0, math.inf),
    "circular": (0.0, 1.0),
    "categorical": (-math.inf, math.inf),
}
"""The open interval in which values of each kind lie, apart from atoms; columns of two kinds have
sides of their own."""
DTYPES = re.compile(r"([fF]loat|u?int|U?Int)\d+|[bB]ool|[bB]oolean|category|object|str|[sS]tring")
"""Types that a column of a data frame is given back in."""
_LONGEST_WORD = 1000  # characters of a name in a file, as for other densities


class Box(NamedTuple):
    """A part of a condition: sides of some u, sets of some codes, and the logarithm of a weight."""

    u: dict[int, Side]
    c: dict[int, frozenset[int]]
    log_weight: float = 0.0


class Piece(NamedTuple):
    """The same of one column: a side of its u (None: free), its codes (None: free)."""

    side: Side | None = None
    codes: frozenset[int] | None = None
    log_weight: float = 0.0


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Parameters
    ----------
    name : str
        Its name; of an array, x0, x1, ….
    kind : str
        "numeric", "positive", "nonnegative", "bounded", "count", "categorical" or "circular".
    dtype : str
        The type of the column in a data frame.
    levels : tuple
        Of a categorical column.
    categories : tuple, optional
        Of a categorical column, all that its pandas type knows.
    ordered : bool
        Whether pandas orders the categories.
    atoms : tuple of float
        Values that have a mass of their own.
    sides : tuple of float, optional
        The support of a bounded column, or one period of a circular one.
    seam : float
        Where a circular column is cut.
    knee : float, optional
        Of a positive column or a count, up to where u is logarithmic; beyond it is linear. Tails of
        a density of logarithms would be so long that no mean were left.
    scores : NormalScores, optional
        What takes the number that all this gives to the u of the column.
    """

    name: str
    kind: str
    dtype: str = "float64"
    levels: tuple[Any, ...] = ()
    categories: tuple[Any, ...] | None = None
    ordered: bool = False
    atoms: tuple[float, ...] = ()
    sides: tuple[float, float] | None = None
    seam: float = 0.0
    knee: float | None = None
    scores: NormalScores | None = None

    @property
    def low(self) -> float:
        """The lower end of the support of a column of numbers."""
        return (self.sides or SUPPORTS[self.kind])[0]

    @property
    def high(self) -> float:
        """The upper end."""
        return (self.sides or SUPPORTS[self.kind])[1]

    def words(self) -> dict[str, Any]:
        """What a file holds of it."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        if self.scores is not None:
            found["scores"] = tuple(
                list(getattr(self.scores, f.name)) for f in fields(NormalScores)
            )
        return {name: list(v) if isinstance(v, tuple) else v for name, v in found.items()}

    @classmethod
    def of_words(cls, entry: Any) -> Column:
        """What :meth:`words` gave; raises ValueError where that is no column."""
        wanted = {one.name for one in fields(cls)}
        if not isinstance(entry, dict) or entry.keys() != wanted:
            raise ValueError(f"a column must have the fields {', '.join(sorted(wanted))}")
        lists = ("levels", "categories", "atoms", "sides")
        given: dict[str, Any] = dict(entry)
        given |= {name: tuple(given[name]) for name in lists if given[name] is not None}
        if given["scores"] is not None:
            given["scores"] = NormalScores(*map(tuple, given["scores"]))
        found = cls(**given)
        found.check()
        return found

    def check(self) -> None:
        """Raise ValueError where the fields do not fit each other, as in a forged file."""
        words = (self.name, self.kind, self.dtype)
        every = [*self.levels, *(self.categories or ())]
        ends = (*(self.sides or ()), *self.atoms, self.seam)
        low, high = self.sides or (0.0, 1.0)
        atoms = {"nonnegative": (0.0,), "count": tuple(map(float, range(len(self.atoms))))}
        if self.kind == "bounded":
            atoms["bounded"] = tuple(end for end in (low, high) if end in self.atoms)
        if not (
            all(isinstance(word, str) and word.isprintable() for word in words)
            and len(self.name) <= _LONGEST_WORD
            and self.kind in SUPPORTS
            and DTYPES.fullmatch(self.dtype)
            and all(type(one) in (str, bool, int, float) and one == one for one in every)
            and all(type(end) in (int, float) and math.isfinite(end) for end in ends)
            and len(set(self.levels)) == len(self.levels)
            and (self.categories is None or set(self.levels) <= set(self.categories))
            and bool(self.levels) == (self.kind == "categorical")
            and (self.sides is not None) == (self.kind in ("bounded", "circular"))
            and low < high
            and (self.knee is None or (type(self.knee) is float and 0.0 < self.knee < math.inf))
            and self.atoms == atoms.get(self.kind, ())
            and (self.scores is None or self.can_have_scores)
        ):
            raise ValueError(f"no column is like {repr(self)[:200]}")
        if self.scores is not None:
            self.scores.check()

    @property
    def is_numeric(self) -> bool:
        """Whether the cells are numbers."""
        return self.kind != "categorical"

    @property
    def is_plain(self) -> bool:
        """Whether u is the value itself."""
        return self.kind == "numeric" and self.scores is None

    @property
    def can_have_scores(self) -> bool:
        """Whether u may be made standard normal: not a circle, nor counts, which fill cells."""
        return self.kind in ("numeric", "positive", "nonnegative", "bounded")

    @property
    def is_whole(self) -> bool:
        """Whether the cells are whole numbers in an order."""
        return self.is_ordered and self.dtype.lower().startswith(("int", "uint"))

    @property
    def is_ordered(self) -> bool:
        """Whether the cells are numbers in an order."""
        return self.kind not in ("categorical", "circular")

    @property
    def has_masses(self) -> bool:
        """Whether every value has a mass."""
        return self.kind in ("categorical", "count")

    @property
    def n_codes(self) -> int:
        """The number of codes, 0 if the column is a number alone."""
        return len(self.atoms) + 1 if self.atoms else len(self.levels)

    @property
    def between(self) -> int:
        """The code of values without a mass of their own."""
        return len(self.atoms)

    def to_line(self, x: _Values) -> tuple[_Values, _Values]:
        """u, and log du/dx, at values without a mass; of a count, ``x`` is inside its cell."""
        u, log_slopes = self._unscored(x)
        if self.scores is None:
            return u, log_slopes
        scored, more = self.scores.of(u)
        return scored, log_slopes + more

    def _unscored(self, x: _Values) -> tuple[_Values, _Values]:
        with np.errstate(invalid="ignore", divide="ignore"):
            match self.kind:
                case "positive" | "nonnegative" | "count":
                    y = x + 1.0 - len(self.atoms) if self.kind == "count" else x
                    knee = math.inf if self.knee is None else self.knee
                    u = np.log(np.minimum(y, knee))
                    return u + np.maximum(y / knee - 1.0, 0.0), -u
                case "bounded":
                    below, above = np.log(x - self.low), np.log(self.high - x)
                    return below - above, math.log(self.high - self.low) - below - above
                case "circular":
                    return np.mod(x - self.seam, self.high - self.low), np.zeros_like(x)
        return x, np.zeros_like(x)

    def from_line(self, u: _Values) -> _Values:
        """The value at u: the inverse of :meth:`to_line`, inside the support even where rounding
        would leave it. Of a count, the whole number whose cell holds it.
        """
        x = self.amount(u)
        return len(self.atoms) + np.floor(x) if self.kind == "count" else x

    def amount(self, u: _Values) -> _Values:
        """The same without steps: of a count, where u is in the cells beyond the atoms."""
        return self._from_unscored(u if self.scores is None else self.scores.values(u))

    def smooth(self, u: _Values) -> _Values:
        """The same quickly, to be averaged over many u: between knots of normal scores, and of a
        count the middles of cells.
        """
        if self.kind == "count":
            return self.between + np.maximum(self.amount(u) - 0.5, 0.0)
        return self._from_unscored(u if self.scores is None else self.scores.interpolated(u))

    def nodes(self, rows: int) -> int:
        """At how many places in a component :meth:`smooth` is averaged, for so many rows."""
        if self.scores is None:
            return _SMOOTH_NODES
        return int(np.clip(_STEP_NODES // max(rows, 1), *_STEP_ENDS))

    def _from_unscored(self, u: _Values) -> _Values:
        with np.errstate(over="ignore", under="ignore"):
            match self.kind:
                case "positive" | "nonnegative" | "count":
                    knee = math.inf if self.knee is None else self.knee
                    y = np.exp(np.minimum(u, math.log(knee)))
                    # no tail beyond the knee if there is none
                    y = y + (knee * np.maximum(u - math.log(knee), 0.0) if self.knee else 0.0)
                    if self.kind == "count":
                        return np.clip(y - 1.0, 0.0, _LARGEST_COUNT)
                    return np.clip(y, np.nextafter(0.0, 1.0), np.finfo(float).max)
                case "bounded":
                    x = self.low + (self.high - self.low) * expit(u)
                    inside = np.nextafter([self.low, self.high], [self.high, self.low])
                    return np.clip(x, *inside)
                case "circular":
                    turned = np.mod(u + self.seam - self.low, self.high - self.low)
                    return self.low + turned
        return u

    def pieces(self, condition: Any) -> list[Piece]:
        """What a condition on the column is a disjoint union of: a value, a tuple (low, high), or
        of a categorical column a level or a set of levels.
        """
        if not self.is_numeric:
            several = condition if isinstance(condition, Set) else [condition]
            return [Piece(codes=frozenset(map(self._code, several)))]
        if not _is_number(condition):
            return self._within(*self._ends(condition))
        x = np.array([float(condition)])
        if np.isnan(x[0]) or self.outside(x) is not None:
            raise ValueError(f"{self.name!r} {self.outside(x) or 'is given as NaN'}")
        if x[0] in self.atoms:
            return [Piece(codes=frozenset([self.atoms.index(x[0])]))]
        if self.kind == "count":
            return self._within(x[0], x[0])
        (u,), (log_slope,) = self.to_line(x)
        return [Piece(float(u) + turn, self._tail, float(log_slope)) for turn in self.turns]

    def _ends(self, condition: Any) -> tuple[float, float]:
        ends = condition if isinstance(condition, tuple) and len(condition) == 2 else ()
        if not ends or not all(map(_is_number, ends)) or any(map(math.isnan, ends)):
            raise ValueError(
                f"{self.name!r} must be given as one number, or as a tuple (low, high) for an"
                f" interval; got {condition!r}"
            )
        low, high = map(float, ends)
        is_point = low == high and (self.kind == "count" or low in self.atoms)
        if not (low < high or is_point or self.kind == "circular"):
            raise ValueError(
                f"the interval of {self.name!r} is empty: low must be less than high; got"
                f" {condition!r}"
            )
        return low, high

    def _within(self, low: float, high: float) -> list[Piece]:
        """The pieces of an interval with its ends; that of an angle may go through the seam."""
        hit = frozenset(k for k, atom in enumerate(self.atoms) if low <= atom <= high)
        pieces = [Piece(codes=hit)] if hit else []
        if self.kind == "count":
            low, high = np.clip([low, high], -1.0, _LARGEST_COUNT).tolist()
            first, last = max(math.ceil(low), self.between), math.floor(high)
            ends = (0.0, 0.0)
            if first <= last:
                # the first cell has all that is below it, so that no mass is lost
                below, above = self.to_line(np.array([first, last + 1.0]))[0].tolist()
                ends = (
                    below if first > self.between else -math.inf,
                    above if last < _LARGEST_COUNT else math.inf,
                )
        elif self.kind == "circular":
            period = self.high - self.low
            low, high = max(low, self.low), min(high, self.high)
            if high - low >= period:  # no condition: all turns, not those that are summed
                return [*pieces, Piece((-math.inf, math.inf))]
            start = (low - self.seam) % period
            ends = (start, start + (high - low) % period)
        else:
            first, last = self.to_line(np.clip([low, high], self.low, self.high))[0].tolist()
            ends = (first, last)
        if ends[0] < ends[1]:
            pieces += [Piece((ends[0] + t, ends[1] + t), self._tail) for t in self.turns]
        return pieces

    @property
    def _tail(self) -> frozenset[int] | None:
        return frozenset([self.between]) if self.atoms else None

    @property
    def turns(self) -> list[float]:
        """By how much u may differ for the same value, which closes the seam of a circle."""
        period = self.high - self.low
        return (
            [k * period for k in range(-_TURNS, _TURNS + 1)] if self.kind == "circular" else [0.0]
        )

    def _code(self, level: Any) -> int:
        level = level.item() if isinstance(level, np.generic) else level
        if level not in self.levels:
            raise ValueError(
                f"{self.name!r} has no level {level!r}; its levels are {quoted(self.levels)}; give"
                " one of them, or a set of several"
            )
        return self.levels.index(level)

    def outside(self, x: _Values) -> str | None:
        """What is wrong with the first value outside of the support, with its row."""
        closed = self.kind == "circular"
        inside = (x >= self.low) & (x <= self.high) if closed else (x > self.low) & (x < self.high)
        inside |= np.isin(x, self.atoms)
        if self.kind == "count":
            inside = (x >= 0.0) & (x == np.floor(x))
        wrong = np.flatnonzero(~inside & ~np.isnan(x))
        if not wrong.size:
            return None
        row = f" in row {wrong[0]} (counted from 0)" if x.size > 1 else ""
        more = f", and {wrong.size - 1} more" if wrong.size > 1 else ""
        return f"is {x[wrong[0]]:g}{row}{more}, outside of {self.support}"

    @property
    def support(self) -> str:
        """The values that the column can have, in words."""
        if self.kind == "count":
            return "the whole numbers from 0"
        closed = self.kind == "circular"
        left = "[" if closed or self.low in self.atoms else "("
        right = "]" if closed or self.high in self.atoms else ")"
        return f"{self.kind!r}: {left}{self.low:g}, {self.high:g}{right}"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) or (
        isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf"
    )


def meet(some: list[Piece], others: list[Piece]) -> list[Piece]:
    """The pieces where both of two conditions on one column hold."""
    found = []
    for a, b in itertools.product(some, others):
        codes = b.codes if a.codes is None else a.codes & (a.codes if b.codes is None else b.codes)
        low, high = -math.inf, math.inf
        for side in (a.side, b.side):
            ends = side if isinstance(side, tuple) else (side, side)
            if ends[0] is not None and ends[1] is not None:
                low, high = max(low, ends[0]), min(high, ends[1])
        sides = [side for side in (a.side, b.side) if side is not None]
        # a value in an interval is the value
        side = next((one for one in sides if isinstance(one, float)), (low, high))
        empty = low > high if isinstance(side, float) else not low < high
        if not empty and codes != frozenset():
            found.append(Piece(side if sides else None, codes, a.log_weight + b.log_weight))
    return found


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and where each of them is among the u and the c. ``make`` is the
    library of the table, None if the samples were an array.
    """

    listed: tuple[Column, ...]
    make: str | None = "pandas"

    @property
    def names(self) -> tuple[str, ...] | None:
        """What tables call them; None if the samples were an array."""
        return None if self.make is None else tuple(column.name for column in self.listed)

    @cached_property
    def lines(self) -> list[int]:
        """The columns that have a u."""
        return [k for k, column in enumerate(self.listed) if column.is_numeric]

    @cached_property
    def coded(self) -> list[int]:
        """The columns that have a c."""
        return [k for k, column in enumerate(self.listed) if column.n_codes]

    @property
    def levels(self) -> tuple[int, ...]:
        """How many codes every c has."""
        return tuple(self.listed[k].n_codes for k in self.coded)

    def take(self, keep: Sequence[int]) -> Columns:
        """Some of the columns."""
        return replace(self, listed=tuple(self.listed[k] for k in keep))

    def with_scores(self, scores: Mapping[int, NormalScores]) -> Columns:
        """The same with normal scores, by the place of a column among the u."""
        listed = list(self.listed)
        for i, one in scores.items():
            listed[self.lines[i]] = replace(listed[self.lines[i]], scores=one)
        return replace(self, listed=tuple(listed))

    def encode(
        self, cells: _Values, noise: Callable[[int], _Values] | None = None
    ) -> tuple[_Values, _Values, _Values]:
        """u, c and the logarithm of du/dx of every row, of cells as :meth:`read` gives them.

        ``noise`` of n numbers places n counts in their cells; default: in the middle.
        """
        n = cells.shape[0]
        u, c, log_slopes = np.empty((n, len(self.lines))), self._codes(cells), np.zeros(n)
        for i, k in enumerate(self.lines):
            places = 0.5 if noise is None else noise(n)
            u[:, i], logs = self._on_line(k, cells[:, k], places)
            log_slopes += logs
        return u, c, log_slopes

    def _on_line(self, k: int, x: _Values, place: Any) -> tuple[_Values, _Values]:
        """u of column k, NaN at atoms and missing cells, and log du/dx, 0 there."""
        column = self.listed[k]
        x = np.where(np.isin(x, column.atoms), np.nan, x)
        u, logs = column.to_line(x + place if column.kind == "count" else x)
        return u, np.where(np.isnan(x), 0.0, logs)

    def _codes(self, cells: _Values) -> _Values:
        c = np.empty((cells.shape[0], len(self.coded)), dtype=np.int64)
        for j, k in enumerate(self.coded):
            column, x = self.listed[k], cells[:, k]
            codes = np.nan_to_num(x, nan=-1.0)
            if column.atoms:
                codes = np.full(x.shape, float(column.between))
                for number, atom in enumerate(column.atoms):
                    codes[x == atom] = number
                codes[np.isnan(x)] = -1.0
            c[:, j] = codes.astype(np.int64)
        return c

    def nodes(
        self, cells: _Values, *, in_cells: bool = True
    ) -> Iterator[tuple[_Values, _Values, _Values]]:
        """Places (u, c) whose densities, times the weights whose logarithms come with them, have as
        sum the density of every row: the turns of a circular column, and, ``in_cells``, quadrature
        nodes in the cell of a count, else its middle.
        """
        c, n = self._codes(cells), cells.shape[0]
        kinds = [self.listed[k].kind for k in self.lines]
        counts, each = kinds.count("count"), 1
        if in_cells and counts <= _MOST_COUNTS:
            each = _CELL_NODES.get(counts, _FEWER_CELL_NODES)
        rule = legendre(each)
        choices: list[list[tuple[_Values, _Values]]] = []
        for k in self.lines:
            x, column = cells[:, k], self.listed[k]
            if column.kind == "count":
                # that of the first cell is all that is below it as well: where log1p is finite
                wide = np.where((x == column.between) & in_cells, 2.0, 1.0)
                places = [
                    (wide * (1.0 + t) / 2.0 + 1.0 - wide, w * wide)
                    for t, w in zip(*rule, strict=True)
                ]
                found = [(*self._on_line(k, x, at), np.log(w / 2.0)) for at, w in places]
                choices.append([(u, logs + log_w) for u, logs, log_w in found])
            else:
                u, logs = self._on_line(k, x, 0.0)
                # of a missing angle, one turn counts
                away = np.where(np.isnan(x), -np.inf, 0.0)
                choices.append([(u + t, logs + (away if t else 0.0)) for t in column.turns])
        for chosen in itertools.product(*choices):
            u = np.stack([one for one, _ in chosen], axis=1) if chosen else np.empty((n, 0))
            yield u, c, sum((logs for _, logs in chosen), np.zeros(n))

    def decode(self, u: _Values, c: _Values) -> _Values:
        """Cells of complete rows (u, c); NaN where what a cell needs is missing."""
        cells = np.full((u.shape[0] if self.lines else c.shape[0], len(self.listed)), np.nan)
        for i, k in enumerate(self.lines):
            cells[:, k] = self.listed[k].from_line(u[:, i])
        for j, k in enumerate(self.coded):
            column, code = self.listed[k], c[:, j]
            own = np.array(column.atoms or range(column.n_codes), dtype=np.float64)
            known = (code >= 0) & (code != column.between) if column.atoms else code >= 0
            cells[known, k] = own[code[known]]
            # an amount that may as well be nothing is not known
            cells[code < 0, k] = np.nan
        return cells

    def boxes(self, pieces: Mapping[int, list[Piece]]) -> list[Box]:
        """The disjoint boxes of (u, c) in which one of the pieces of every column holds."""
        found = [Box({}, {})]
        for k, listed in pieces.items():
            found = [self._both(box, k, piece) for box in found for piece in listed]
        return found

    def _both(self, box: Box, k: int, piece: Piece) -> Box:
        u, c = dict(box.u), dict(box.c)
        if piece.side is not None:
            u[self.lines.index(k)] = piece.side
        if piece.codes is not None:
            c[self.coded.index(k)] = piece.codes
        return Box(u, c, box.log_weight + piece.log_weight)

    def read(self, X: Any, what: str = "X", *, unseen: str = "raise") -> _Values:
        """The cells of a table or an array as numbers (n, columns): values, and the positions of
        levels; NaN where a cell is missing.

        Raises one error that names all columns with a level that was not seen, which ``unseen`` =
        "missing" takes for a missing cell, or with values outside of the support.
        """
        X = known_table(X)
        require_unmasked(X, what)
        # which warns of an array
        order = order_of(column_names(X, what), self.names, what)
        if (given := columns_of(X)) is None:
            raise ValueError(
                f"Expected 2D array: {what} must be a table, or an array with rows and columns;"
                f" got shape {np.shape(X)}"
            )
        given = given if order is None else [given[k] for k in order]
        if len(given) != len(self.listed):
            raise ValueError(
                f"{what} has {len(given)} features, but {len(self.listed)} were expected"
            )
        cells = np.empty((len(given[0]), len(given)))
        wrong = []
        for k, (column, values) in enumerate(zip(self.listed, given, strict=True)):
            if column.is_numeric:
                own = {column.name: np.asarray(values)}
                (cells[:, k],) = checked_columns(own, [column.name], what, gaps=True)
                words = column.outside(cells[:, k])
            else:
                cells[:, k], words = _positions(column, values, unseen)
            wrong += [f"column {said(k, self.names)} {words}"] if words else []
        if wrong:
            raise ValueError(f"{what}: {'; '.join(wrong)}")
        return cells

    def frame(self, cells: _Values) -> Any:
        """Cells as a data frame of the make of the data, with the types of the columns."""
        values = [restored(column, x) for column, x in zip(self.listed, cells.T, strict=True)]
        return typed_frame(self.listed, values, self.make or "pandas")

    def array(self, cells: _Values) -> _Values:
        """Cells as an array of levels and numbers, of objects where a level is text."""
        is_text = any(isinstance(level, str) for one in self.listed for level in one.levels)
        found = cells.astype(object if is_text else np.float64)
        for k, column in enumerate(self.listed):
            if not column.is_numeric:
                found[:, k] = restored(column, cells[:, k])
        return found


def plain(cell: Any) -> Any:
    """A level as Python has it."""
    return cell.item() if isinstance(cell, np.generic) else cell


def _positions(column: Column, values: Any, unseen: str) -> tuple[_Values, str | None]:
    """The positions of levels, and what is wrong with the first that is none of them."""
    known = {level: float(code) for code, level in enumerate(column.levels)}
    listed = [plain(one) for one in np.asarray(values, dtype=object)]
    found = np.array([np.nan if is_gap(one) else known.get(one, -1.0) for one in listed])
    wrong = np.flatnonzero(found < 0.0)
    found[wrong] = np.nan
    if not wrong.size or unseen == "missing":
        return found, None
    return found, (
        f"has the level {listed[wrong[0]]!r} in row {wrong[0]} (counted from 0), which was not"
        f" among the {len(column.levels)} levels of the fit; correct it, or take such cells for"
        " missing ones with unseen='missing'"
    )


def restored(column: Column, cells: _Values) -> Any:
    """Cells of one column as an array: levels, whole numbers or numbers; None and NaN in gaps."""
    gaps = np.isnan(cells)
    if not column.is_numeric:
        own = np.array([*column.levels, None], dtype=object)
        return own[np.where(gaps, len(column.levels), cells).astype(np.int64)]
    if not column.dtype.lower().startswith(("int", "uint")):
        return cells
    found = np.rint(cells)
    # the nearest whole number may lie on the border, where only an atom may be
    own = np.isin(cells, column.atoms)
    with np.errstate(invalid="ignore"):
        found = np.where(~own & (found <= column.low), np.floor(column.low) + 1.0, found)
        found = np.where(~own & (found >= column.high), np.ceil(column.high) - 1.0, found)
    return found
