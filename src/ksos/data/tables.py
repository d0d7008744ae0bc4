"""Tables on their way into a fit: which columns of a file are samples, and what is dropped.

A table is read whole (:class:`Table`), or in chunks where it does not fit in memory
(:class:`Stream`). What does not belong among samples (text, an index, missing cells) is an error
that names the row, the column and the option that helps, or it is dropped and reported.
"""

from __future__ import annotations

import csv
import glob
import io
import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ksos.data.csv_files import (
    CsvFile,
    Say,
    Written,
    cell_error,
    excerpt,
    is_decorated,
    is_missing,
    is_number,
    is_position,
)
from ksos.data.sources import Chunk, Chunks, chunks, files_of, is_arrow, mapped, opened
from ksos.ground import Run, as_points, as_vector, meant, quoted, require_different

if TYPE_CHECKING:
    import pandas


_NPY_MAGIC = b"\x93NUMPY"
_INDEX_ROWS = 10  # in fewer rows, a column of 1, 2, 3 may be a measurement
_MOST_MISSING = 0.5  # of the cells of a column: if most are missing, the rows go before it
_TEXT, _UNNAMED = "of text or dates", "without a name"
_DECORATED = "of numbers with signs of thousands, currency or percent"
_SHOWN = 6  # columns in a message, which must stay one line
_LISTED = 20  # columns in a message about one that is not there
_WHOLE_BYTES = 1 << 28  # a quarter of a gigabyte: larger files are read in chunks if they can be


@dataclass(frozen=True)
class TableOptions:
    """How to read a table.

    Columns are named by their names or 1-based numbers. Neither ``columns`` nor ``exclude``: all
    are used, or, if the table has names, those of the ``features`` of a model. ``drop_missing``
    drops rows with a missing cell, and ``clean`` also columns of text and dates, and an index.
    ``any_kind`` keeps text as words, and missing cells, unless others say to drop them.
    """

    columns: Sequence[str] | None = None
    exclude: Sequence[str] | None = None
    weights: str | None = None
    features: Sequence[str] | None = None
    clean: bool = False
    drop_missing: bool = False
    any_kind: bool = False
    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None

    @property
    def is_free(self) -> bool:
        """Whether no list of columns is given, so that some may be dropped."""
        return self.columns is None and self.features is None

    @property
    def written(self) -> Written:
        """How a CSV file is written. One whose columns are chosen by name has a header."""
        listed = [*(self.columns or ()), *(self.exclude or ())]
        listed += [] if self.weights is None else [self.weights]
        named = not all(map(is_position, listed))
        header = True if self.header is None and named else self.header
        return Written(header, self.delimiter, self.decimal, self.encoding)


@dataclass(frozen=True, eq=False)
class Table:
    """The chosen columns of a file in memory, their names and the weights, if there are any.

    ``cells`` is a data frame of numbers and of words, NaN where one is missing. Its index is the
    row of the file, counted from 1 with the header. ``header`` has the names of all columns of the
    file. ``n_dropped`` rows had missing cells.
    """

    source: str
    cells: pandas.DataFrame
    names: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    header: tuple[str, ...] | None = None
    n_dropped: int = 0

    @cached_property
    def points(self) -> np.ndarray:
        """The cells (n, d) of a table of numbers: what an estimator is fitted to."""
        return np.array(self.cells, dtype=np.float64, order="C")

    @property
    def rows(self) -> np.ndarray:
        """The row of the file of every point."""
        return self.cells.index.to_numpy()

    @property
    def has_words(self) -> list[bool]:
        """Of every column, whether it holds words."""
        return [kind.kind != "f" for kind in self.cells.dtypes]

    @property
    def is_mixed(self) -> bool:
        """Whether there are words or missing cells."""
        return bool(any(self.has_words) or self.cells.isna().any(axis=None))

    @property
    def n_features(self) -> int:
        return int(self.cells.shape[1])

    @property
    def n_samples(self) -> int:
        return int(self.cells.shape[0])

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """Points, weights and the numbers of their rows, here in one part."""
        yield self.points, self.weights, self.rows

    def as_frame(self, *, whole: bool = False) -> Any:
        """The cells as a data frame; numbers without names as an array. With ``whole``, columns of
        whole numbers are so by type.
        """
        if self.names is None and not any(self.has_words):
            return self.points
        names = self.names or [f"x{k + 1}" for k in range(self.n_features)]
        found = self.cells.set_axis(names, axis=1).reset_index(drop=True)
        for name, is_word in zip(names if whole else (), self.has_words, strict=False):
            if not is_word and np.all((x := found[name].dropna()) == np.floor(x)):
                found[name] = found[name].astype("Int64" if x.size < len(found) else "int64")
        return found

    def take(self, features: Sequence[int]) -> Table:
        """The same rows of some of the columns."""
        names = None if self.names is None else tuple(self.names[k] for k in features)
        return replace(self, cells=self.cells.iloc[:, list(features)], names=names)


@dataclass
class Stream:
    """The chosen columns of files that need not fit in memory, with the interface of `Table`.

    Weights come with the chunks. ``n_rows`` were in the last pass, and ``n_dropped`` of them had
    missing cells.
    """

    source: str
    files: tuple[str, ...]
    labels: tuple[Any, ...]
    header: tuple[str, ...] | None
    weight_label: Any
    options: TableOptions
    n_rows: int = 0
    n_dropped: int = 0
    complete: bool = False
    weights: None = field(default=None, init=False)

    @classmethod
    def open(cls, paths: Sequence[str], options: TableOptions) -> Stream:
        """The files that ``paths`` name. The first one decides where the columns are."""
        if options.clean:
            raise ValueError(
                "--clean looks at all rows at once; choose columns with --columns or --exclude, and"
                " rows with --drop-missing"
            )
        files = tuple(files_of([*paths]))
        source = files[0] if len(files) == 1 else f"{len(files)} files, {files[0]} …"
        with opened(files[0], options.written) as first:
            header = first.names
        features, weights = _Columns(files[0], first.width, header).select(options)
        # by name, where there are names: other files may have their columns in another order
        chosen = [first.labels[k] for k in [*features, *weights]]
        require_different(
            [name for name in header or () if name in chosen], f"{files[0]} has columns"
        )
        masses = chosen[-1] if weights else None
        return cls(source, files, tuple(chosen[: len(features)]), header, masses, options)

    @property
    def points(self) -> Chunks:
        """What an estimator is fitted to."""
        plain = chunks(
            list(self.files),
            columns=self.labels,
            weights=self.weight_label,
            drop_missing=self.options.drop_missing,
            csv=self.options.written._asdict(),
        )
        return Chunks(lambda: self._watched(plain), plain.name, plain.files)

    # The chunks of one pass, counted.
    def _watched(self, source: Chunks) -> Iterator[Chunk]:
        self.n_rows, self.n_dropped, self.complete = 0, 0, False
        for chunk in source:
            yield chunk
            self.n_rows += np.shape(chunk.data)[0] + chunk.dropped
            self.n_dropped += chunk.dropped
            Run.current().tell(f"reading, {self.n_rows:,} rows")
        self.complete = True

    @property
    def report(self) -> str:
        """One line on the rows that were dropped in the last pass, "" if none were."""
        lost = f"dropped {self.n_dropped} of {self.n_rows} rows, which have missing cells"
        return f"{self.source}: {lost}" if self.n_dropped else ""

    @property
    def names(self) -> tuple[str, ...] | None:
        return None if self.header is None else tuple(map(str, self.labels))

    @property
    def n_features(self) -> int:
        return len(self.labels)

    @property
    def n_samples(self) -> int | None:
        """How many rows were read and used; None where a checkpoint knew them all."""
        return self.n_rows - self.n_dropped if self.complete else None

    def take(self, features: Sequence[int]) -> Stream:
        """The same files with some of the columns."""
        return replace(self, labels=tuple(self.labels[k] for k in features))

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """Points, weights and the numbers of their rows among all rows, a chunk at a time."""
        before = 1
        for chunk in self.points:
            n = np.shape(chunk.data)[0]
            if n:
                weights = chunk.weights
                if weights is not None:
                    weights = as_vector(weights, f"{chunk.name}: weights")
                kept = np.arange(n) if chunk.kept is None else chunk.kept
                yield as_points(chunk.data, chunk.name), weights, before + kept
            before += n + chunk.dropped
        if not self.n_samples:
            raise ValueError(f"{self.source}: there is no row of numbers")

    def read(self, say: Say) -> Table:
        """All of it in memory."""
        import pandas

        points, weights, rows = zip(*self.parts(), strict=True)
        say(self.report)
        return Table(
            self.source,
            pandas.DataFrame(np.concatenate(points), np.concatenate(rows)),
            self.names,
            None if self.weight_label is None else np.concatenate(weights),
            self.header,
            self.n_dropped,
        )


def open_table(
    data: str | Sequence[str],
    options: TableOptions | None = None,
    say: Say = lambda _: None,
    *,
    in_chunks: bool = False,
) -> Table | Stream:
    """The table in a file, or in several: whole if it is one file of moderate size, else in chunks.

    ``say`` gets what is detected or dropped. "-" is CSV from the standard input.
    """
    options = options or TableOptions()
    paths = [data] if isinstance(data, str) else list(data)
    path = paths[0]
    is_pattern = glob.has_magic(path) and not os.path.exists(path)
    is_many = len(paths) > 1 or os.path.isdir(path) or is_arrow(path) or is_pattern
    # pandas would need several times the size of the file
    is_large = os.path.isfile(path) and os.path.getsize(path) > _WHOLE_BYTES
    # what is cleaned must be looked at as a whole
    if in_chunks or is_many or (is_large and not options.clean and not options.drop_missing):
        return Stream.open(paths, options)
    if path == "-":
        if sys.stdin is None:
            raise ValueError("<stdin>: there is no standard input to read from")
        return _read_csv(sys.stdin.buffer, "<stdin>", options, say)
    with open(path, "rb") as stream:
        is_npy = stream.peek(len(_NPY_MAGIC)).startswith(_NPY_MAGIC)
        if not is_npy and not path.lower().endswith(".npy"):
            return _read_csv(stream, path, options, say)
    return _read_npy(path, options, say)


def read_table(
    data: str | Sequence[str] | BinaryIO,
    options: TableOptions | None = None,
    say: Say = lambda _: None,
    *,
    source: str = "the stream",
) -> Table:
    """The same in memory, for what needs all rows at once; also the CSV text in a stream."""
    if not isinstance(data, (str, Sequence)):
        return _read_csv(data, source, options or TableOptions(), say)
    found = open_table(data, options, say)
    return found.read(say) if isinstance(found, Stream) else found


def option(flag: str, words: Sequence[str]) -> str:
    """A list as it is typed in a shell.

    >>> option("--exclude", ["name", "speed, m/s"])
    '--exclude \\'name,"speed, m/s"\\''
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(words)
    return f"{flag} {shlex.quote(text.getvalue())}"


def find_columns(
    words: Sequence[str], names: Sequence[str] | None, width: int, source: str
) -> list[int]:
    """The positions, from 0, of the columns that ``words`` name, by name or 1-based number, each at
    most once.

    >>> find_columns(["2", "x"], ["x", "y", "z"], 3, "the model")
    [1, 0]
    """
    found: list[int] = []
    for word in words:
        at = [k for k, name in enumerate(names or ()) if name == word]
        if is_position(word) and 1 <= int(word) <= width:
            at = [int(word) - 1]
        if len(at) != 1:
            raise ValueError(f"{source}{_not_one_column(word, at, names, width)}")
        if at[0] in found:
            raise ValueError(f"{source}: {','.join(words)} names column {word} twice")
        found += at
    return found


# What is wrong with a word that names none of the columns, or several.
def _not_one_column(word: str, at: list[int], names: Sequence[str] | None, width: int) -> str:
    if at:
        listed = " and ".join(str(k + 1) for k in at)
        return f": columns {listed} are both named {excerpt(word)}; choose one by its number"
    if is_position(word):
        return f" has columns 1 to {width}; there is no column {word}"
    if names is None:
        none = f" has no header, so there is no column {excerpt(word)}"
        return f"{none}; choose columns by number, 1 to {width}"
    listed = quoted(names, _LISTED)
    return f" has no column {excerpt(word)}; its columns are {listed}{meant(word, names)}"


@dataclass(frozen=True)
class _Columns:
    """All columns of a file, with ``names`` if there is a header, in the row ``row``."""

    source: str
    width: int
    names: tuple[str, ...] | None
    row: int = 1

    def find(self, words: Sequence[str]) -> list[int]:
        """The positions of the columns that ``words`` name."""
        return find_columns(words, self.names, self.width, self.source)

    def select(
        self, options: TableOptions, skip: Sequence[int] = ()
    ) -> tuple[list[int], list[int]]:
        """Positions of features and of weights; those to ``skip`` are dropped unless chosen."""
        weights = [] if options.weights is None else self.find([options.weights])
        if options.columns is not None:
            features = self.find(options.columns)
            if set(weights) & set(features):
                raise ValueError(
                    f"{self.source}: {self.label(weights[0])} cannot be both a feature and the"
                    " weights; drop it from --columns"
                )
        elif options.features is not None and self.names is not None and options.exclude is None:
            if missing := [name for name in options.features if name not in self.names]:
                raise ValueError(
                    f"{self.source} has no column {', '.join(map(excerpt, missing))}, as the model"
                    f" has; its columns are {quoted(self.names, _LISTED)}; rename them, or choose"
                    " columns with --columns"
                )
            features = self.find(options.features)
        else:
            out = {*weights, *skip, *self.find(options.exclude or ())}
            features = [k for k in range(self.width) if k not in out]
            if unnamed := [k for k in features if self.names is not None and not self.names[k]]:
                what = (
                    "the header gives it no name (an index?); drop it with --exclude"
                    f" {unnamed[0] + 1} or --clean, or choose columns with --columns"
                )
                raise cell_error(self.source, self.row, unnamed[0] + 1, what)
        if not features:
            raise ValueError(
                f"{self.source}: no column is left for the data; all hold the weights, or text, or"
                " are dropped by --exclude"
            )
        return features, weights

    def label(self, position: int) -> str:
        """A column in an error: its number, and its name if it has one."""
        named = f" ({excerpt(self.names[position])})" if self.names else ""
        return f"column {position + 1}{named}"

    def labels(self, positions: Sequence[int]) -> str:
        """The first of some columns, and how many more there are."""
        more = f" and {len(positions) - _SHOWN} more" if len(positions) > _SHOWN else ""
        return ", ".join(map(self.label, positions[:_SHOWN])) + more

    def option(self, flag: str, positions: Iterable[int]) -> str:
        """What to type to name these columns: by name if that is clear, else by number."""
        names = self.names or ()
        clear = [name and not is_position(name) and names.count(name) == 1 for name in names]
        return option(flag, [names[k] if names and clear[k] else str(k + 1) for k in positions])


# The chosen columns of the CSV text in ``stream``, plain or compressed.
def _read_csv(stream: BinaryIO, source: str, options: TableOptions, say: Say) -> Table:
    import pandas

    file = CsvFile(stream, source, options.written, say)
    # columns by number, whose first cells decide whether there is a header
    used = None if options.columns is None else {*options.columns, options.weights}
    unused = options.exclude or ()
    numbered = [(k, str(k + 1)) for k in range(len(file.first))]
    considered = [k for k, n in numbered if (used is None or n in used) and n not in unused]
    file.find_header(options.written.header, considered)
    columns = _Columns(source, len(file.first), file.names, file.first_row)
    words: list[int] = []
    unfit = _unfit(file, columns)
    if options.any_kind and not options.clean:
        words = [k for k in columns.select(options)[0] if unfit.get(k) in (_TEXT, _DECORATED)]
    skip = [*unfit] if options.clean and options.is_free else []
    features, weights = columns.select(options, skip)
    for why in (_TEXT, _DECORATED, _UNNAMED):
        some = [k for k in skip if unfit[k] == why and k not in weights]
        if some:
            say(f"{source}: dropped columns {why}: {columns.labels(some)}")

    def fix(position: int) -> str:
        if position not in unfit:
            flag = columns.option("--exclude", [position])
            return f"correct the cell, or drop the column with {flag}"
        out = [k for k in unfit if k in features or k in weights]
        what = "columns of text and dates" if len(out) > 1 else "the column"
        return f"drop {what} with {columns.option('--exclude', out)}, or with --clean"

    # all blocks: an index, a mark or a gap shows only in a whole column
    blocks = list(file.numbers([*features, *weights], fix, words))
    if not blocks:
        what = "only a header, no row of numbers follows it; pass --no-header if row 1 is data"
        raise cell_error(source, 2, 1, what)
    return _table(columns, pandas.concat(blocks), features, weights, options, say)


# Why columns are no samples: they have no name, or most of their cells in the first rows are no
# numbers.
def _unfit(file: CsvFile, columns: _Columns) -> dict[int, str]:
    found = {}
    for k in range(columns.width):
        cells = [row[k] for row in file.sample if not is_missing(row[k])]
        if columns.names is not None and not columns.names[k]:
            found[k] = _UNNAMED
        elif 2 * sum(is_decorated(cell, file.decimal) for cell in cells) > len(cells):
            found[k] = _DECORATED
        elif 2 * sum(is_number(cell, file.decimal) for cell in cells) < len(cells):
            found[k] = _TEXT
    return found


# The chosen columns of the matrix in the NPY file ``path``.
def _read_npy(path: str, options: TableOptions, say: Say) -> Table:
    import pandas

    if options.written._replace(header=options.header) != Written():
        raise ValueError(
            f"--header, --no-header, --delimiter, --decimal and --encoding are for CSV, but {path}"
            " is an NPY file, whose columns are numbered"
        )
    stored = mapped(path)
    if 0 in stored.shape:
        raise ValueError(
            f"{path} holds an array of shape {stored.shape}, but rows and columns were expected"
        )
    columns = _Columns(path, stored.shape[1], None)
    features, weights = columns.select(options)
    chosen = [*features, *weights]
    found = pandas.DataFrame(np.array(stored[:, chosen], dtype=np.float64), columns=chosen)
    found.index += 1
    for row, k in np.argwhere(np.isinf(found.to_numpy())):
        fix = columns.option("--exclude", [chosen[k]])
        what = f"{found.iat[row, k]} is not finite; correct it, or drop the column with {fix}"
        raise cell_error(path, int(row) + 1, chosen[k] + 1, what)
    return _table(columns, found, features, weights, options, say)


# The table of what was found in the chosen columns, labeled by position.
def _table(
    columns: _Columns,
    found: pandas.DataFrame,
    features: list[int],
    weights: list[int],
    options: TableOptions,
    say: Say,
) -> Table:
    source, kept, n = columns.source, features, len(found)
    if options.is_free:
        kept = _without_index(columns, found, features, options, say)
        if options.clean:
            gaps = [k for k in kept if found[k].isna().mean() > _MOST_MISSING]
            if gaps:
                say(f"{source}: dropped columns with most cells missing: {columns.labels(gaps)}")
            kept = [k for k in kept if k not in gaps]
    if not kept:
        raise ValueError(f"{source}: no column is left for the data")
    found = _complete(columns, found[[*kept, *weights]], options, say)
    header, words = columns.names, [k for k in kept if found[k].dtype.kind != "f"]
    return Table(
        source,
        found[kept].astype(dict.fromkeys(words, object)),
        None if header is None else tuple(header[k] for k in kept),
        np.array(found[weights[0]]) if weights else None,
        header,
        n - len(found),
    )


# The features but for one that counts the rows from 0 or 1, which is no measurement.
def _without_index(
    columns: _Columns,
    found: pandas.DataFrame,
    features: list[int],
    options: TableOptions,
    say: Say,
) -> list[int]:
    kept, n = [], len(found)
    for k in features:
        start = found[k].iat[0]
        # a column that counts is no measurement, whatever its name
        is_index = n >= _INDEX_ROWS and start in (0.0, 1.0)
        if not is_index or not np.array_equal(found[k], start + np.arange(n)):
            kept.append(k)
        elif options.clean:
            say(f"{columns.source}: dropped columns that count the rows: {columns.label(k)}")
        else:
            raise ValueError(
                f"{columns.source}, {columns.label(k)}: it counts the rows ({start:.0f},"
                f" {start + 1:.0f}, {start + 2:.0f}, …), which is an index and no measurement;"
                f" drop it with {columns.option('--exclude', [k])} or --clean, or list it in"
                " --columns"
            )
    return kept


# The rows without a missing cell; raises unless others may be dropped.
def _complete(
    columns: _Columns, found: pandas.DataFrame, options: TableOptions, say: Say
) -> pandas.DataFrame:
    missing = found.isna()
    incomplete = missing.any(axis=1).to_numpy()
    n, n_lost = len(found), int(incomplete.sum())
    drops = options.drop_missing or options.clean
    if not n_lost or (options.any_kind and not drops):
        return found
    counts = missing.sum().sort_values(ascending=False, kind="stable")
    counts = counts[counts > 0]
    listed = ", ".join(f"{columns.label(k)}: {count}" for k, count in counts[:_SHOWN].items())
    if drops and n_lost < n:
        say(f"{columns.source}: dropped {n_lost} of {n} rows, which have missing cells ({listed})")
        return found[~incomplete]
    row = int(incomplete.argmax())
    first = int(missing.iloc[row].to_numpy().argmax())
    fixes = [] if n_lost == n else ["--drop-missing drops the rows"]
    if options.features is None:
        fixes.append(f"{columns.option('--exclude', sorted(counts.index))} drops the columns")
    raise cell_error(
        columns.source,
        int(found.index[row]),
        int(found.columns[first]) + 1,
        f"the cell is missing; {n_lost} of {n} rows have missing cells ({listed}):"
        f" {', '.join(fixes) or 'fill them'}",
        columns.names,
    )
