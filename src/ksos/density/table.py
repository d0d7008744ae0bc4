"""TableDensity: the density of a table whose columns are of any kind, with cells that are missing,
and what one asks of it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import entr, logsumexp, softmax

from ksos.density.averages import Averages, as_work
from ksos.density.column_line import ColumnLine
from ksos.density.compress import Compression, as_sizes, compressed_cells
from ksos.density.corrected import Corrected
from ksos.density.density import SoSDensity, from_terms
from ksos.density.estimate import Estimate
from ksos.density.factor import log_sum
from ksos.density.kinds import Column, Columns, Piece, meet
from ksos.density.mixed import MixedTerms
from ksos.density.questions import without_underflow
from ksos.density.questions.expectation import expectation, total
from ksos.density.terms import Terms
from ksos.ground import (
    Array,
    as_choice,
    as_count,
    as_features,
    as_levels,
    as_vector,
    column_names,
    feature_numbers,
    frame,
    instead,
    is_numpy,
    is_table,
    known_table,
    like,
    namespace,
    quoted,
    series,
    square,
    to_device,
)
from ksos.measures import Lebesgue

Parts = Sequence[tuple[float, MixedTerms]]
_HOST = np.empty(0)  # lies where NumPy works
_SAMPLES = 3_000  # Samples whose densities make an entropy or begin the climb to a mode: seconds.
_DRAWS = 10_000  # samples behind a covariance, of which no density is needed: errors of 1%
_STEPS = 25  # of a climb, each at 0.7 times the last distance: 0.7^25 = 1e-4 of a deviation
_TRIES = 60  # rows at a time, which take hardly longer than one
_CANDIDATES = 64  # draws of a row, the likeliest being its mode: a trade-off, time grows with them
_COMBINATIONS = 24  # of codes, of which each takes a cubature: a second each, at worst a minute


@without_underflow
class TableDensity:
    """The density of a table: columns of numbers, categories, counts, bounded and circular ones.

    It is a density with respect to volume in columns of numbers and a probability in all others:
    ``logpdf`` of a row is the logarithm of the density of its numbers times the probability of its
    categories, counts and atoms. Missing cells are integrated out. Estimators make it.

    Attributes
    ----------
    columns : Columns
        The columns and their kinds.
    parts : tuple
        Pairs of a weight and the terms in encoded columns.

    >>> import pandas, ksos
    >>> table = pandas.DataFrame({"a": ["x", "y"] * 30, "b": [0.1, 1.2, 0.3, 1.1, 0.2, 1.4] * 10})
    >>> search = ksos.KernelSoSDensityCV(cv=3, relative_regularizations=[float("inf")])
    >>> p = search.fit(table).distribution_
    >>> p.probabilities("a", given={"b": (1.0, 2.0)}).round(1).to_dict()
    {'x': 0.0, 'y': 1.0}
    """

    columns: Columns
    parts: tuple[tuple[float, MixedTerms], ...]
    # an array where densities of rows are computed
    _home: Array = _HOST

    def __init__(self, columns: Columns, parts: Parts) -> None:
        self.columns, self.parts = columns, tuple(parts)

    def _of(self, columns: Columns, parts: Parts) -> TableDensity:
        """A density made from this one, on its device."""
        out = copy.copy(self)
        out.columns, out.parts = columns, tuple(parts)
        return out

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if the samples were an array."""
        return self.columns.names

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return len(self.columns.listed)

    def to(self, device: Any) -> TableDensity:
        """The same density, whose ``logpdf`` and ``pdf`` are computed by torch on a device such as
        ``"cuda"``, and are tensors there; None: by NumPy. All else is answered by NumPy.

        If there is no such device, the error says why.

        Parameters
        ----------
        device : str, torch.device or None

        Returns
        -------
        TableDensity
        """
        out = copy.copy(self)
        out._home = _HOST if device is None else to_device(_HOST, device)
        return out

    def logpdf(self, X: Any, *, unseen: str = "raise") -> Array:
        """The log-density of the observed cells of every row, shape (n,); 0 where there are none.

        Parameters
        ----------
        X : data frame or array (n, d)
            Rows. Missing cells are NaN or None.
        unseen : {"raise", "missing"}
            What to do about levels that were not in the data of the fit. "missing" takes them for
            missing cells.

        Returns
        -------
        array (n,)
        """
        as_choice(unseen, "unseen", ("raise", "missing"))
        return self._log_of(self.columns.read(X, unseen=unseen), self._home)

    def pdf(self, X: Any, *, unseen: str = "raise") -> Array:
        """The exponential of :meth:`logpdf`.

        Parameters
        ----------
        X, unseen
            As in :meth:`logpdf`.

        Returns
        -------
        array (n,)
        """
        found = self.logpdf(X, unseen=unseen)
        return namespace(found).exp(found)

    def _log_of(self, cells: np.ndarray, home: Array = _HOST) -> Array:
        logs = [
            like(slopes + math.log(w), home) + terms.log_density(like(u, home), c)
            for u, c, slopes in self.columns.nodes(cells)
            for w, terms in self.parts
        ]
        return logs[0] if len(logs) == 1 else log_sum(namespace(home).stack(logs))[0]

    def _cases(
        self, cells: np.ndarray
    ) -> list[tuple[np.ndarray, MixedTerms, np.ndarray, np.ndarray]]:
        """How every row may have come about, one after the other: the share of its density, (n,),
        the terms, and the cells u and c. Counts are in the middle of their cells.
        """
        every = [
            (terms, u, c, math.log(w) + slopes)
            for u, c, slopes in self.columns.nodes(cells, in_cells=False)
            for w, terms in self.parts
        ]
        if len(every) == 1:
            return [(np.ones(cells.shape[0]), *every[0][:3])]
        logs = np.stack([log + terms.log_density(u, c) for terms, u, c, log in every])
        shares = softmax(logs, axis=0)
        return [(share, *one[:3]) for share, one in zip(shares, every, strict=True)]

    @instead(seed="rng", random_state="rng")
    def rvs(self, size: int = 1, rng: Any = None) -> Any:
        """Draw independent rows: a data frame with the types, categories and whole numbers of the
        data, of the library of its table; an array if the samples were one.

        Parameters
        ----------
        size : int
            How many.
        rng : seed or numpy.random.Generator, optional
            Source of randomness.

        Returns
        -------
        data frame or array (size, d)
        """
        cells = self._draw(as_count(size, "size", minimum=0), np.random.default_rng(rng))
        return self._shown(cells)

    @property
    def _make(self) -> str:
        return self.columns.make or "pandas"

    def _shown(self, cells: np.ndarray, like: Any = None) -> Any:
        """Cells as the data came, with the index of ``like``; levels that are text as text."""
        if self.columns.make is not None:
            return _indexed(self.columns.frame(cells), like)
        return self.columns.array(cells)

    def _draw(self, n: int, rng: np.random.Generator) -> np.ndarray:
        weights = np.array([w for w, _ in self.parts])
        counts = rng.multinomial(n, weights / weights.sum())
        drawn = [
            self.columns.decode(*terms.draw(int(count), rng))
            for count, (_, terms) in zip(counts, self.parts, strict=True)
            if count
        ]
        cells = np.concatenate([np.empty((0, self.n_features)), *drawn])
        return cells if len(drawn) < 2 else rng.permutation(cells)

    def marginal(self, features: Any) -> Any:
        """The density of some of the columns, in that order; a :class:`SoSDensity` if all of them
        are plain numbers.

        Parameters
        ----------
        features : name, number, or list of these

        Returns
        -------
        TableDensity or SoSDensity
        """
        keep = as_features(features, self.n_features, "features", self.feature_names)
        return self.only(*keep)._plain()

    def only(self, *keep: int) -> TableDensity:
        """The marginal of some columns, also where they are plain.

        Parameters
        ----------
        *keep : int
            Numbers of the columns, from 0.

        Returns
        -------
        TableDensity
        """
        columns = self.columns
        u = [columns.lines.index(k) for k in keep if columns.listed[k].is_numeric]
        c = [columns.coded.index(k) for k in keep if columns.listed[k].n_codes]
        parts = [(w, terms.marginal(u, c)) for w, terms in self.parts]
        return self._of(columns.take(keep), parts)

    def _plain(self) -> Any:
        """Itself, or the same as a :class:`SoSDensity` if all columns are plain numbers."""
        if not all(column.is_plain for column in self.columns.listed):
            return self
        terms, home = _numeric(self.parts), self._home
        terms = terms if is_numpy(home) else terms.moved(lambda array: like(array, home))
        plain = from_terms(terms, self.feature_names)
        plain._make = self._make
        return plain

    def _conditions(self, conditions: Any, what: str = "conditions") -> dict[int, list[Piece]]:
        """Pieces by column, of a mapping from columns to conditions on them."""
        kinds = "values, intervals (low, high) or sets of levels"
        given = self._by_number(conditions, what, kinds)
        return {k: self.columns.listed[k].pieces(one) for k, one in given.items()}

    def _by_number(self, given: Any, what: str, values: str) -> dict[int, Any]:
        """A mapping from columns to ``values``, as these are called in an error."""
        if not isinstance(given, Mapping):
            raise TypeError(f"{what} must be a mapping from columns to {values}; got {given!r}")
        places = feature_numbers(given, self.n_features, self.feature_names, what)
        return dict(zip(places, given.values(), strict=True))

    def conditional(self, conditions: Any) -> Any:
        """The density of the other columns given some; a :class:`SoSDensity` if all that are left
        are plain numbers.

        Parameters
        ----------
        conditions : dict
            {column: value, (low, high), level or set of levels}. The interval of a count has both
            ends, and that of an angle may go through the seam.

        Returns
        -------
        TableDensity or SoSDensity
        """
        pieces = self._conditions(conditions)
        if len(pieces) == self.n_features:
            raise ValueError(
                f"conditions give all {self.n_features} columns: none is left to have a density;"
                " use pdf of a row, or probability"
            )
        return self._given(pieces, conditions)._plain()

    def _given(self, pieces: Mapping[int, list[Piece]], conditions: Any) -> TableDensity:
        """The density of the other columns where the pieces of some hold."""
        logs, found, rest = [], [], [k for k in range(self.n_features) if k not in pieces]
        for w, terms in self.parts:
            for u, c, log_weight in self.columns.boxes(pieces):
                log = math.log(w) + log_weight + terms.log_mass_given(u, c)
                if math.isfinite(log):
                    logs.append(log)
                    found.append(self._without(terms.given(u, c), u, c, rest))
        if not logs:
            raise self._nothing(conditions)
        weights = softmax(logs).tolist()
        parts = [(w, terms) for w, terms in zip(weights, found, strict=True) if w > 0.0]
        return self._of(self.columns.take(rest), parts)

    def _without(self, terms: MixedTerms, u: Any, c: Any, rest: list[int]) -> MixedTerms:
        """Terms given some u and c, without the u and c that belong to the same columns."""
        columns = self.columns
        lines = [i for i in range(len(columns.lines)) if i not in u]
        codes = [j for j in range(len(columns.coded)) if j not in c]
        return terms.marginal(
            [k for k, i in enumerate(lines) if columns.lines[i] in rest],
            [k for k, j in enumerate(codes) if columns.coded[j] in rest],
        )

    def _nothing(self, conditions: Any) -> ValueError:
        return ValueError(
            f"the density vanishes where {conditions!r}, at least to rounding: there is nothing"
            " given that"
        )

    def _log_mass(self, pieces: Mapping[int, list[Piece]]) -> float:
        """log P of an event, or of its density where it has values."""
        logs = [
            math.log(w) + log_weight + terms.log_mass_given(u, c)
            for w, terms in self.parts
            for u, c, log_weight in self.columns.boxes(pieces)
        ]
        return float(logsumexp(logs)) if logs else -math.inf

    def probability(self, low: Any = None, high: Any = None, given: Any = None) -> float:
        """P(low ≤ x ≤ high), or P(low ≤ x ≤ high | given). Both ends count where a value has a
        mass.

        Parameters
        ----------
        low, high : dict, optional
            {column: bound}; of a categorical column, ``low`` has a level or a set of levels.
            Omitted columns are unrestricted.
        given : dict, optional
            As in :meth:`conditional`.

        Returns
        -------
        float
        """
        event = self._conditions(self._intervals(low or {}, high or {}), "low and high")
        if given is None:
            return min(math.exp(self._log_mass(event)), 1.0)
        known = self._conditions(given, "given")
        shared = {k: meet(pieces, known[k]) for k, pieces in event.items() if k in known}
        if not math.isfinite(log_known := self._log_mass(known)):
            raise self._nothing(given)
        return min(math.exp(self._log_mass(known | event | shared) - log_known), 1.0)

    def _intervals(self, low: Any, high: Any) -> dict[int, Any]:
        below = self._by_number(low, "low", "bounds")
        above = self._by_number(high, "high", "bounds")
        found: dict[int, Any] = {}
        for k in {**below, **above}:
            column = self.columns.listed[k]
            found[k] = (below.get(k, -math.inf), above.get(k, math.inf))
            if not column.is_numeric:
                if k in above:
                    raise ValueError(
                        f"{column.name!r} is categorical: give its level, or a set of levels, in"
                        " low alone"
                    )
                found[k] = below[k]
        return found

    def probabilities(self, column: Any, given: Any = None) -> Any:
        """The probabilities of the levels of a categorical column: a pandas Series, or given rows a
        data frame with one row for each. The largest of a row classifies it.

        Of a column of whole numbers that are not categories, those with which :meth:`rvs` draws
        them: a number has all that is rounded to it, the first and the last also the one in a
        hundred beyond.

        Parameters
        ----------
        column : name or number
        given : dict or data frame, optional
            Conditions as in :meth:`conditional`, or rows of the other columns, with gaps or
            without.

        Returns
        -------
        Series, or data frame (n, levels)
        """
        (k,) = as_features([column], self.n_features, "column", self.feature_names)
        own = self.columns.listed[k]
        rows = given is not None and not isinstance(given, Mapping)
        if own.is_numeric and (rows or not own.is_whole):
            raise ValueError(
                f"{own.name!r} is of kind {own.kind!r}, not categorical; use probability, or fit"
                f" with columns={{{own.name!r}: 'categorical'}} (in a shell: --kinds"
                f" {own.name}=categorical)"
            )
        if rows:
            found = self._posterior(self._cells_without(given, k), k)
            return _indexed(frame(found, own.levels, self._make), given)
        event = {} if given is None else self._conditions(given, "given")
        if k in event:
            raise ValueError(f"given holds {own.name!r}, whose probabilities are wanted")
        if own.is_numeric:
            place = k - sum(other < k for other in event)
            values, masses = self._given(event, given).only(place)._line().whole_numbers()
            return series(masses, values, self._make)
        codes = range(len(own.levels))
        logs = [self._log_mass({**event, k: [Piece(codes=frozenset([a]))]}) for a in codes]
        if not np.isfinite(logs).any():
            raise self._nothing(given)
        return series(softmax(logs), own.levels, self._make)

    def _cells_without(self, X: Any, k: int) -> np.ndarray:
        """Cells of rows that may lack column k, which is missing in them."""
        rest = [j for j in range(self.n_features) if j != k]
        others = self.columns.take(rest)
        X = known_table(X)
        if is_table(X):
            left = [name for name in column_names(X) or () if name != self.columns.listed[k].name]
            X = X.select(left) if hasattr(X, "column_names") else X[left]
        elif np.ndim(X) == 2 and np.shape(X)[1] == self.n_features:
            X = np.asarray(X)[:, rest]
        return np.insert(others.read(X, "given"), k, np.nan, axis=1)

    def _posterior(self, cells: np.ndarray, k: int) -> np.ndarray:
        """The probabilities of the codes of column k given the other cells of every row."""
        cells, j = cells.copy(), self.columns.coded.index(k)
        cells[:, k] = np.nan
        found = [s[:, None] * t.posterior(u, c, j) for s, t, u, c in self._cases(cells)]
        return np.asarray(sum(found[1:], found[0]))

    def pmf(self, values: Any) -> Any:
        """Probabilities: of values of a density of one column, a count or a categorical one, or of
        rows if every column has masses.

        Parameters
        ----------
        values : value, sequence of values, or rows

        Returns
        -------
        float or array
        """
        if wrong := [column.name for column in self.columns.listed if not column.has_masses]:
            raise ValueError(
                f"a single value of {quoted(wrong)} has no probability; use pdf for densities,"
                " probability for intervals and atoms"
            )
        if self.n_features > 1:
            return self.pdf(values)
        column = self.columns.listed[0]
        several = not (np.ndim(values) == 0 or isinstance(values, str))
        found = [
            math.exp(self._log_mass({0: column.pieces(value)}))
            for value in (values if several else [values])
        ]
        return np.array(found) if several else found[0]

    def _numbers(self) -> tuple[list[int], list[str]]:
        """The columns of numbers, and their names."""
        if not (lines := self.columns.lines):
            raise ValueError("there is no column of numbers; use probabilities or pmf")
        return lines, [self.columns.listed[k].name for k in lines]

    def mean(self) -> Any:
        """The means of the columns of numbers, a pandas Series: exact for plain columns, by
        quadrature where a column is transformed, about a thousandth of a standard deviation off
        where its values crowd. That of an angle is taken within the period that begins at its seam.

        Returns
        -------
        Series
        """
        lines, names = self._numbers()
        nothing = np.full((1, self.n_features), np.nan)
        return series(self._with_means(nothing)[0, lines], names, self._make)

    def cov(self) -> Any:
        """The covariance matrix of the columns of numbers, a pandas data frame: exact where none of
        them is transformed, else of 10,000 samples.

        Returns
        -------
        data frame
        """
        lines, names = self._numbers()
        if all(self.columns.listed[k].is_plain for k in lines):
            found = np.atleast_2d(self.marginal(lines).cov())
        else:
            cells = self._draw(_DRAWS, np.random.default_rng(0))[:, lines]
            found = np.atleast_2d(np.cov(cells, rowvar=False))
        return square(found, names, self._make)

    def _line(self) -> ColumnLine:
        """The distribution of the only column, of numbers in an order."""
        column, *more = self.columns.listed
        ordered = [one.name for one in self.columns.listed if one.is_ordered]
        if more or not ordered:
            fix = f"; take one, as in p.marginal([{ordered[0]!r}])" if ordered else ""
            raise ValueError(
                "quantiles and distribution functions are for one column of numbers in an order"
                + (fix or f"; {column.name!r} is {column.kind}; use probability, or probabilities")
            )
        if not column.atoms:
            return ColumnLine(column, np.ones(1), _numeric(self.parts))
        masses = np.stack([w * terms.probabilities(0) for w, terms in self.parts])
        tail = [
            (w, terms.given({}, {0: [column.between]}))
            for w, (_, terms) in zip(masses[:, -1].tolist(), self.parts, strict=True)
            if w > 0.0
        ]
        return ColumnLine(column, masses.sum(axis=0), _numeric(tail) if tail else None)

    def cdf(self, values: Any) -> Any:
        """P(x ≤ value) of a density of one column of numbers, for one value or several.

        Parameters
        ----------
        values : float or array

        Returns
        -------
        float or array, of the shape of ``values``
        """
        line, x = self._line(), np.asarray(values, dtype=np.float64)
        if np.isnan(x).any():
            raise ValueError(f"values of {line.column.name!r} must not be NaN")
        found = line.cdf(x)
        return found if x.ndim else float(found)

    def crps(self, y: Any) -> Any:
        """The continuous ranked probability score ∫ (P(x ≤ t) − 1[t ≥ y])² dt of observations under
        a density of one column of numbers, in its units. It is exact to rounding.

        Parameters
        ----------
        y : float, array (n,) or column (n, 1)

        Returns
        -------
        float or array (n,)
        """
        line, at = self._line(), as_vector(np.ravel(y), "y")
        if words := line.column.outside(at):
            raise ValueError(f"y {words}")
        found = line.crps(at)
        return found if np.ndim(y) else float(found[0])

    def _require_one_feature(self, *_: str) -> None:
        self._line()

    to_scipy = Averages.to_scipy

    def expectation(
        self, f: Any, *, rtol: float = 1e-8, max_evaluations: int | None = None, rng: Any = None
    ) -> Estimate:
        """E[f(row)], a float with the estimate of its error as ``.error``.

        With up to 24 combinations of levels, counts that have a mass of their own and atoms, it is
        the sum over these, of which each is as accurate as :meth:`SoSDensity.expectation`; else the
        mean of 10,000 samples with its standard error.

        Parameters
        ----------
        f : callable
            A function of rows as :meth:`rvs` draws them that returns a number for each.
        rtol, max_evaluations, rng
            Those of :meth:`SoSDensity.expectation`.

        Returns
        -------
        Estimate
        """
        columns, work, found = self.columns, as_work(rtol, max_evaluations, rng), []
        if math.prod(columns.levels) > _COMBINATIONS:
            values = np.asarray(f(self.rvs(_DRAWS, rng)), dtype=np.float64)
            return Estimate(
                float(values.mean()), float(values.std() / math.sqrt(_DRAWS)), "samples"
            )
        for codes in np.ndindex(*columns.levels):
            given = dict(enumerate(codes))
            # at an atom there is no u
            own = dict(zip(columns.coded, codes, strict=True))
            rest = [
                i
                for i, k in enumerate(columns.lines)
                if own.get(k, columns.listed[k].between) == columns.listed[k].between
            ]

            def of_lines(u: np.ndarray, codes: Any = codes, rest: list[int] = rest) -> np.ndarray:
                every = np.full((u.shape[0], len(columns.lines)), np.nan)
                every[:, rest] = u
                cells = columns.decode(every, np.tile(codes, (u.shape[0], 1)).astype(int))
                return np.asarray(f(self._shown(cells)), dtype=np.float64)

            for w, terms in self.parts:
                if not (share := w * math.exp(terms.log_mass_given({}, given))) > 0.0:
                    continue
                if not rest:
                    value = Estimate(float(of_lines(np.empty((1, 0)))[0]), 0.0, "sum")
                else:
                    left = terms.given({}, given).marginal(rest, [])
                    value = expectation(left.numeric(), of_lines, work)
                found.append((share, value))
        return total(found)

    def ppf(self, q: Any) -> Any:
        """The quantiles of a density of one column of numbers: the least x with P(x' ≤ x) ≥ q, an
        atom where its mass reaches across q.

        Parameters
        ----------
        q : float or array
            Levels from 0 to 1.

        Returns
        -------
        float or array, of the shape of ``q``
        """
        line, levels = self._line(), as_levels(q, "q")
        found = line.ppf(np.atleast_1d(levels).astype(np.float64))
        return found if levels.ndim else float(found[0])

    def mode(self) -> Any:
        """A row where the density is about highest, a pandas Series: the best of 3,000 samples,
        and a climb from there.

        Returns
        -------
        Series, or a data frame of one row where the library of the table has none
        """
        rng = np.random.default_rng(0)
        cells = self._draw(_SAMPLES, rng)
        logs = self._log_of(cells)
        u, c, _ = self.columns.encode(cells)
        best, scale = int(np.argmax(logs)), np.nanstd(u, axis=0) if u.size else np.zeros(0)
        row, level = cells[[best]], float(logs[best])
        for _ in range(_STEPS if scale.size else 0):
            scale = 0.7 * scale
            u, c, _ = self.columns.encode(np.repeat(row, _TRIES, axis=0))
            tried = self.columns.decode(u + scale * rng.normal(size=u.shape), c)
            logs = self._log_of(tried)
            if (top := float(logs.max())) > level:
                row, level = tried[[int(np.argmax(logs))]], top
        found = self.columns.frame(row)
        return found.iloc[0].rename("mode") if self._make == "pandas" else found

    @instead(seed="rng", random_state="rng")
    def entropy(self, rng: Any = 0) -> Estimate:
        """−E[log p], with its standard error as ``.error``, from 3,000 samples; of categories with
        fewer combinations their sum.

        Parameters
        ----------
        rng : seed or Generator

        Returns
        -------
        Estimate
        """
        levels = self.columns.levels
        if not self.columns.lines and math.prod(levels) <= _SAMPLES:
            logs = self._log_of(np.argwhere(np.ones(levels)).astype(np.float64))
            return Estimate(float(entr(np.exp(logs)).sum()), 0.0, "sum")
        logs = self._log_of(self._draw(_SAMPLES, np.random.default_rng(rng)))
        return Estimate(-float(logs.mean()), float(logs.std() / math.sqrt(_SAMPLES)), "samples")

    def conditional_mean(self, X: Any) -> Any:
        """The columns of numbers of ``X`` as a data frame, with the means given the observed cells
        of its row where a cell is missing.

        Parameters
        ----------
        X : data frame or array (n, d)
            Rows with gaps.

        Returns
        -------
        data frame
        """
        lines, names = self._numbers()
        found = self._with_means(self.columns.read(X))[:, lines]
        return _indexed(frame(found, names, self._make), X)

    def _with_means(self, cells: np.ndarray) -> np.ndarray:
        """Cells with the missing numbers replaced by their means."""
        columns, gaps, found = self.columns, np.isnan(cells), cells.copy()
        plain = [k for k in columns.lines if not columns.listed[k].atoms]
        rows = np.flatnonzero(gaps[:, plain].any(axis=1))
        if rows.size:
            means = self._means(cells[rows])
            for k in plain:
                own = gaps[rows, k]
                found[rows[own], k] = means[own, columns.lines.index(k)]
        for k in set(columns.lines) - set(plain):
            if (rows := np.flatnonzero(gaps[:, k])).size:
                # the mean between the atoms, given that the value is there
                inside = self._means(cells[rows], between=k)[:, columns.lines.index(k)]
                masses = self._posterior(cells[rows], k)
                atoms = np.array(columns.listed[k].atoms)
                found[rows, k] = masses[:, -1] * inside + masses[:, :-1] @ atoms
        return found

    def _means(self, cells: np.ndarray, between: int | None = None) -> np.ndarray:
        """E[value | observed cells] of every u, given that the missing value of the column
        ``between`` is none of its atoms.
        """
        columns = [self.columns.listed[k] for k in self.columns.lines]
        bent = {i: one for i, one in enumerate(columns) if not one.is_plain}
        functions = {
            i: (one.smooth, one.nodes(cells.shape[0]))
            for i, one in bent.items()
            if one.kind != "circular"
        }
        found = []
        for share, terms, u, c in self._cases(cells):
            if between is not None:
                c = c.copy()
                c[:, self.columns.coded.index(between)] = self.columns.listed[between].between
            found.append(share[:, None] * terms.conditional_means(u, c, functions))
        means = np.asarray(sum(found[1:], found[0]))
        for i in bent.keys() - functions.keys():
            means[:, i] = columns[i].from_line(means[:, i])
        return means

    @instead(seed="rng", random_state="rng")
    def impute(self, X: Any, *, how: str = "mean", rng: Any = None) -> Any:
        """``X`` with its missing cells filled in, a data frame with the types of the data; an array
        if the samples were one.

        Parameters
        ----------
        X : data frame or array (n, d)
        how : {"mean", "mode", "draw"}
            "mean": numbers by their conditional means, categories by the most probable level.
            "draw": a draw from the conditional distribution, all cells of a row at once. "mode":
            the likeliest of 64 draws. Default: "mean".
        rng : seed or numpy.random.Generator, optional
            Of draws.

        Returns
        -------
        data frame or array, of the shape of ``X``
        """
        as_choice(how, "how", ("mean", "mode", "draw"))
        cells = self.columns.read(X)
        rows = np.flatnonzero(np.isnan(cells).any(axis=1))
        if rows.size:
            cells = cells.copy()
            some, generator = cells[rows], np.random.default_rng(rng)
            if how == "mean":
                cells[rows] = self._with_means_and_levels(some)
            elif how == "draw":
                cells[rows] = self._completed(some, generator)
            else:
                drawn = [self._completed(some, generator) for _ in range(_CANDIDATES)]
                best = np.argmax([self._log_of(one) for one in drawn], axis=0)
                cells[rows] = np.stack(drawn)[best, np.arange(rows.size)]
        return self._shown(cells, X)

    def _with_means_and_levels(self, cells: np.ndarray) -> np.ndarray:
        found, columns = self._with_means(cells), self.columns
        for k in columns.coded:
            gaps = np.isnan(cells[:, k])
            if not columns.listed[k].is_numeric and gaps.any():
                found[gaps, k] = self._posterior(cells[gaps], k).argmax(axis=1)
        return found

    def _completed(self, cells: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Every row with its missing cells drawn given the others."""
        cases, found = self._cases(cells), cells.copy()
        shares = np.cumsum([share for share, *_ in cases], axis=0)
        chosen = (rng.random(cells.shape[0]) * shares[-1] > shares).sum(axis=0)
        for number, (_, terms, u, c) in enumerate(cases):
            own = chosen == number
            if own.any():
                drawn = self.columns.decode(*terms.draw_given(u[own], c[own], rng))
                found[own] = np.where(np.isnan(cells[own]), drawn, cells[own])
        return found

    def compress(self, rank: int | None = None, m: int | None = None) -> Compression:
        """A smaller density, and a bound on ∫|p − q|, as a named pair ``(density, mmd)``. The bound
        holds for the MMD of every kernel with values up to one.

        Parameters
        ----------
        rank, m : int, optional
            Columns of the factor, or support points, as in :meth:`SoSDensity.compress`.

        Returns
        -------
        Compression
        """
        rank, m = as_sizes(rank, m)
        found = [(w, *compressed_cells(terms, rank, m)) for w, terms in self.parts]
        small = self._of(self.columns, [(w, terms) for w, terms, _ in found])
        return Compression(small, sum(w * bound for w, _, bound in found))

    mmd = Averages.mmd

    save = SoSDensity.save

    def __repr__(self) -> str:
        shown = [f"{column.name}: {column.kind}" for column in self.columns.listed]
        return f"TableDensity({', '.join(shown)})"


def with_gaps(p: SoSDensity) -> TableDensity:
    """The same density of numbers for rows with missing cells; it needs a normal reference."""
    (_, term), *more = p.terms.on_host.weighted
    if more or not isinstance(term, Corrected) or not term.is_whole:
        raise ValueError(
            "missing cells need a density with a normal reference, such as that of"
            " KernelSoSDensityCV with its defaults"
        )
    names = [f"x{k}" for k in range(p.n_features)] if p.feature_names is None else p.feature_names
    make = None if p.feature_names is None else p._make
    columns = Columns(tuple(Column(name, "numeric") for name in names), make)
    return TableDensity(columns, [(1.0, term.cells.to_mass_one()[1])])


def _indexed(found: Any, like: Any) -> Any:
    """A frame with the index of a table, if both have one."""
    both = hasattr(found, "set_index") and hasattr(like, "index") and is_table(like)
    return found.set_index(like.index) if both else found


def _numeric(parts: Parts) -> Terms:
    """Parts without codes as terms by volume."""
    terms = [(w * v, one) for w, mixed in parts for v, one in mixed.numeric().weighted]
    return Terms(terms, Lebesgue())
