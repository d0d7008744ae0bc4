"""Read a table of numbers, CSV (also compressed) or NPY, whole, and refuse everything else in one
line that says where the fault is.

The header, the delimiter and the decimals are detected or declared, every row has one width, every
chosen cell is a finite number or missing. What is detected or left out is said. Nothing in a file
is executed, and a forged shape allocates nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import chain, pairwise
from typing import Any, BinaryIO

import numpy as np

from ksos.cli import values
from ksos.cli.cells import is_missing, is_number, what_is_wrong
from ksos.cli.cleaning import Cleaner, Say, sample_rows
from ksos.cli.columns import Choice, Columns, named_by_position
from ksos.cli.console import InputError, UsageError, cell_error, excerpt
from ksos.cli.csv_rows import CsvRows, NotANumberError, Row
from ksos.cli.dialect import Dialect, comment_lines, detect
from ksos.cli.text_lines import TextLines
from ksos.ground.names import frame

__all__ = [
    "READING",
    "Table",
    "TableOptions",
    "add_reading_options",
    "add_table_arguments",
    "csv_layout",
    "csv_pieces",
    "read_csv",
    "read_npy",
    "read_table",
]
__all__ += ["table_options"]

READING = (
    "columns",
    "exclude",
    "weights",
    "clean",
    "drop_missing",
    "header",
    "delimiter",
    "decimal",
    "encoding",
)
"""The options that :func:`add_reading_options` adds."""

_WRITTEN = ("header", "delimiter", "decimal", "encoding")
_DROP = "all rows with missing cells: --drop-missing, drop_missing=True"
_NPY_MAGIC = b"\x93NUMPY"
_LOOKED_AT, _FEWER = (
    1000,
    100,
)  # lines that decide which columns hold text; and on delimiter and decimals


@dataclass(frozen=True)
class TableOptions:
    """How to read a table: which columns; what to leave out; whether there is a header; delimiter,
    decimal and encoding.

    None: to be detected.
    """

    choice: Choice = field(default_factory=Choice)
    clean: bool = False
    drop_missing: bool = False
    header: bool | None = None
    delimiter: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    takes_words: bool = False
    """Whether columns of words can be kept."""


@dataclass(frozen=True)
class Table:
    """Finite numbers: points (n, d), and the names of their d columns and the weights (n) if there
    are any; ``source`` for errors.

    ``rows`` has the row of the file, counted from 1 with the header, of every point; ``header`` the
    names of all columns of the file, also of those that were not chosen. A column of words has
    their numbers as points, and the words in ``words``, None for all other columns. ``n_dropped``
    counts rows with missing cells that were dropped.
    """

    source: str
    points: np.ndarray
    rows: np.ndarray
    names: tuple[str, ...] | None = None
    weights: np.ndarray | None = None
    header: tuple[str, ...] | None = None
    words: tuple[tuple[str, ...] | None, ...] | None = None
    n_dropped: int = 0

    @property
    def samples(self) -> np.ndarray:
        """What an estimator is fitted to."""
        return self.points

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.points.shape[1])

    @property
    def n_samples(self) -> int:
        """n."""
        return int(self.points.shape[0])

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """Points, weights and the numbers of their rows, here in one part."""
        yield self.points, self.weights, self.rows

    def as_frame(self) -> Any:
        """The points as a pandas data frame, with the words; as they are where there are neither
        names nor words, or no pandas.
        """
        if self.words is None and (self.names is None or find_spec("pandas") is None):
            return self.points
        found = frame(
            self.points,
            [f"x{k + 1}" for k in range(self.n_features)] if self.names is None else self.names,
        )
        for k, words in enumerate(self.words or ()):
            if words is not None:
                found[found.columns[k]] = np.array(words, dtype=object)[
                    self.points[:, k].astype(int)
                ]
        return found

    def require_different_names(self) -> None:
        """Raise if two columns have the same name: a density could not be asked for one of them."""
        for k, name in enumerate(self.names or ()):
            if name in (self.names or ())[:k]:
                raise InputError(
                    f"{self.source}: two of the columns are named {excerpt(name)}; rename one, or"
                    " choose columns with --columns"
                )

    def take(self, features: Sequence[int]) -> Table:
        """The same rows of some of the columns."""
        names = None if self.names is None else tuple(self.names[k] for k in features)
        words = None if self.words is None else tuple(self.words[k] for k in features)
        return replace(
            self,
            points=np.ascontiguousarray(self.points[:, list(features)]),
            names=names,
            words=words,
        )


def add_table_arguments(
    parser: argparse.ArgumentParser, *, several: bool = False, weighted: bool = True
) -> None:
    """Add DATA, which may be ``several`` files, and how to read it; ``weighted``: whether rows can
    have weights.
    """
    text = (
        "numbers, one row per sample: a file of CSV (also compressed), NPY, Parquet or Arrow, a"
        " folder of them, a pattern like 'd/*.csv'"
    )
    parser.add_argument(
        "data",
        nargs="+" if several else None,
        metavar="DATA",
        help=f"{text}; - reads CSV from the standard input",
    )
    add_reading_options(parser, weighted=weighted)


def add_reading_options(parser: argparse.ArgumentParser, *, weighted: bool = True) -> None:
    """Add how to read it."""
    add = parser.add_argument_group("reading the table").add_argument
    text = (
        "names or 1-based numbers of the columns to use, separated by commas (default: all but the"
        " weights)"
    )
    add("--columns", type=values.columns, metavar="LIST", help=text)
    text = (
        "names or numbers of columns to leave out, such as text, dates or an index; may be repeated"
    )
    add("--exclude", type=values.columns, action="append", metavar="LIST", help=text)
    if weighted:
        add(
            "--weights",
            metavar="COLUMN",
            help="name or 1-based number of the column that holds the weights of the rows",
        )
    else:
        parser.set_defaults(weights=None)
    text = (
        "leave out columns of text and dates, an index, columns with most cells missing, and rows"
        " with missing cells, and say which"
    )
    add("--clean", action="store_true", help=text)
    add(
        "--drop-missing",
        action="store_true",
        help="leave out rows with a missing cell (empty, NA, NaN, ?, -) in a column that is used",
    )
    text = "whether row 1 of a CSV file holds names (default: it does if it holds no number)"
    add("--header", action=argparse.BooleanOptionalAction, default=None, help=text)
    text = (
        "what separates the cells of a CSV file; 'tab' for tabulators (default: detected, and said"
        " if it is not a comma)"
    )
    add("--delimiter", type=values.delimiter, metavar="CHARACTER", help=text)
    text = "what stands before the decimals, . or , (default: detected, and said if it is a comma)"
    add("--decimal", choices=[".", ","], metavar="CHARACTER", help=text)
    text = (
        "how a CSV file is encoded, such as latin-1 (default: as its byte-order mark says, else"
        " UTF-8)"
    )
    add("--encoding", type=values.encoding, metavar="NAME", help=text)


def table_options(
    arguments: argparse.Namespace,
    features: Sequence[str] | None = None,
    categories: Sequence[str] | None = None,
) -> TableOptions:
    """The values of the options that :func:`add_reading_options` added; ``features`` are those of a
    model that asks for its own columns.

    ``categories`` are columns of words; None: there may be none.
    """
    if arguments.columns is not None and arguments.exclude is not None:
        raise UsageError("give either --columns or --exclude")
    weights = None if arguments.weights is None else arguments.weights.strip()
    exclude = (
        None
        if arguments.exclude is None
        else [column for part in arguments.exclude for column in part]
    )
    choice = Choice(arguments.columns, exclude, weights, features, tuple(categories or ()))
    return TableOptions(
        choice,
        arguments.clean,
        arguments.drop_missing,
        arguments.header,
        arguments.delimiter,
        arguments.decimal,
        arguments.encoding,
        categories is not None,
    )


def read_table(
    data: str | Sequence[str], options: TableOptions | None = None, say: Say = lambda _: None
) -> Table:
    """The table in a file, or in several; "-" is CSV from the standard input. What is detected or
    left out goes to ``say``.
    """
    options = options or TableOptions()
    paths = [data] if isinstance(data, str) else data
    from ksos.cli.streams import is_many, read_whole  # which reads CSV with what is here

    if options.choice.categories and (is_many(paths) or paths[0].lower().endswith(".npy")):
        raise UsageError("--categories is for one CSV file; turn the words into numbers first")
    if is_many(paths):
        return read_whole(paths, options, say)
    path = paths[0]
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: there is no standard input to read from")
        return read_csv(sys.stdin.buffer, "<stdin>", options, say)
    with open(path, "rb") as stream:
        if not (
            stream.peek(len(_NPY_MAGIC)).startswith(_NPY_MAGIC) or path.lower().endswith(".npy")
        ):
            return read_csv(stream, path, options, say)
    if (options.header, options.delimiter, options.decimal, options.encoding) != (None,) * 4:
        raise UsageError(
            f"--header, --no-header, --delimiter, --decimal and --encoding are for CSV, but {path}"
            " is an NPY file"
        )
    return read_npy(path, options, say)


def read_csv(
    stream: BinaryIO, source: str, options: TableOptions, say: Say = lambda _: None
) -> Table:
    """The chosen columns of the CSV text in ``stream``, plain or compressed; ``source`` names it in
    errors.
    """
    sample, dialect, rows, first, names = _begin_csv(stream, source, options, say)
    width = len(first.cells)
    columns = Columns(source, width, names, first.number)
    rows.words = {position: {} for position in map(columns.position, options.choice.categories)}
    words = rows.words if options.takes_words else None
    cleaner = Cleaner(
        columns, options.choice.features is None, options.clean, options.drop_missing, say, words
    )
    looked_at = sample_rows(sample, dialect, width)[names is not None :]
    text = cleaner.text_columns(looked_at, dialect.decimal)
    free = options.clean and options.choice.columns is None and options.choice.features is None
    skip = [position for position in text if position not in rows.words] if free else []
    features, weights = columns.select(options.choice, skip)
    decorated, left = (
        cleaner.decorated_columns(looked_at, dialect.decimal),
        [position for position in skip if position not in weights],
    )
    named = [position for position in left if not columns.unnamed(position)]
    cleaner.leave_out(
        [position for position in named if position not in decorated], "of text or dates"
    )
    cleaner.leave_out(
        [position for position in named if position in decorated],
        "of numbers with signs of thousands, currency or percent",
    )
    cleaner.leave_out(
        [position for position in left if columns.unnamed(position)], "without a name"
    )
    chosen = [*features, *weights]
    try:
        parts = (
            []
            if names is not None
            else [
                (np.array([first.number]), np.array([rows.numbers_of(first, chosen, width, None)]))
            ]
        )
        parts.extend(rows.numbers(chosen, width, names))
    except NotANumberError as error:
        raise cleaner.not_a_number(error, text, chosen) from None
    matrix = np.concatenate([found for _, found in parts]) if parts else np.empty((0, 0))
    if not matrix.size:
        raise cell_error(
            source,
            2,
            1,
            "only a header, no row of numbers follows it; pass --no-header if row 1 is data",
        )
    return _table(
        cleaner, np.concatenate([places for places, _ in parts]), matrix, features, weights, options
    )


def _begin_csv(
    stream: BinaryIO, source: str, options: TableOptions, say: Say
) -> tuple[list[str], Dialect, CsvRows, Row, list[str] | None]:
    """The first lines, what separates their cells, the rows, the first of them, and the names if it
    holds names.
    """
    lines = TextLines(stream, source, options.encoding)
    if options.delimiter is not None:
        lines.delimiter = options.delimiter
    sample = (lines.block() or "").split("\n", _LOOKED_AT)[:_LOOKED_AT]
    dialect = detect(sample[:_FEWER], options.delimiter, options.decimal)
    for line in dialect.said(options.delimiter, options.decimal):
        say(f"{source}: {line}")
    if comments := comment_lines(sample[:_FEWER], dialect.delimiter):
        for _ in range(comments):
            next(lines)
        say(
            f"{source}: {comments} line{'s' * (comments > 1)} of comment at the beginning,"
            f" {excerpt(sample[0])}, left out"
        )
        sample = sample[comments:]
    rows = CsvRows(lines, dialect)
    first = next(rows.rows(), None)
    if first is None:
        raise cell_error(source, 1, 1, "the file is empty; rows of numbers were expected")
    return (
        sample,
        dialect,
        rows,
        first,
        (
            [cell.strip() for cell in first.cells]
            if _has_header(first, source, dialect, options, say)
            else None
        ),
    )


def csv_pieces(
    path: str, wanted: Sequence[str | int] | None = None, *, gaps: bool = False, **written: Any
) -> Iterator[tuple[int, tuple[str, ...] | None, np.ndarray]]:
    """The numbers of a CSV file, some thousand rows at a time, with the number of the first of them
    and the names of all columns.

    Of columns that are not ``wanted`` (names, or numbers from 0; None: all are) the cells are not
    read, and are NaN; so are missing cells where there may be ``gaps``. How the file is ``written``
    is that of :class:`TableOptions`.
    """
    with open(path, "rb") as stream:
        _, _, rows, first, header = _begin_csv(stream, path, _written(written), lambda _: None)
        width, names = len(first.cells), None if header is None else tuple(header)
        labels: Sequence[str | int] = range(width) if names is None else names
        chosen = [k for k, label in enumerate(labels) if wanted is None or label in wanted]
        try:
            begin = (
                []
                if names is not None
                else [
                    (
                        np.array([first.number]),
                        np.array([rows.numbers_of(first, chosen, width, None)]),
                    )
                ]
            )
            for places, numbers in chain(begin, rows.numbers(chosen, width, names)):
                if numbers.size:
                    missing = np.argwhere(np.isnan(numbers))
                    if missing.size and not gaps:
                        position = chosen[missing[0, 1]]
                        what = (
                            "the cell is missing; fill it, leave out the column, or leave out such"
                            " rows "
                        )
                        what += "(--drop-missing, drop_missing=True)"
                        raise cell_error(
                            path,
                            int(places[missing[0, 0]]),
                            position + 1,
                            what,
                            names[position] if names else None,
                        )
                    found = np.full((numbers.shape[0], width), np.nan)
                    found[:, chosen] = numbers
                    yield int(places[0]), names, found
        except NotANumberError as error:
            name = names[error.position] if names else None
            raise cell_error(
                path,
                error.row,
                error.position + 1,
                f"{error}; leave out the column, or choose others",
                name,
            ) from None


def csv_layout(path: str, **written: Any) -> tuple[int, tuple[str, ...] | None, int]:
    """The number of columns of a CSV file, their names if it has a header, and about how many rows
    it holds, from its first lines.
    """
    with open(path, "rb") as stream:
        sample, _, _, first, header = _begin_csv(stream, path, _written(written), lambda _: None)
        length = sum(map(len, sample)) / len(sample) + 1.0
        return (
            len(first.cells),
            None if header is None else tuple(header),
            round(os.path.getsize(path) / length),
        )


def _written(written: Mapping[str, Any]) -> TableOptions:
    """How a CSV file is written."""
    if unknown := [name for name in written if name not in _WRITTEN]:
        raise ValueError(
            f"csv has {', '.join(map(repr, unknown))}, but it takes"
            f" {', '.join(map(repr, _WRITTEN))}"
        )
    return TableOptions(**written)


def _has_header(row: Row, source: str, dialect: Dialect, options: TableOptions, say: Say) -> bool:
    """Whether row 1 holds names: it does if the chosen cells are all words, or words and years that
    follow each other, it does not if all are numbers.
    """
    if options.header is not None:
        return options.header
    cells, choice = row.cells, options.choice
    if not all(map(named_by_position, choice.words)):
        return True  # a column chosen by its name
    wanted = list(range(len(cells)))
    if choice.columns is not None:
        wanted = [
            int(column) - 1
            for column in [*choice.columns, choice.weights or "0"]
            if 1 <= int(column) <= len(cells)
        ]
    elif choice.exclude is not None:
        wanted = [position for position in wanted if str(position + 1) not in choice.exclude]
    wanted = [position for position in wanted if str(position + 1) not in choice.categories]
    numeric = [position for position in wanted if is_number(cells[position], dialect.decimal)]
    words = [
        position
        for position in wanted
        if not is_number(cells[position], dialect.decimal) and not is_missing(cells[position])
    ]
    others = [
        cell for cell in cells if not is_number(cell, dialect.decimal) and not is_missing(cell)
    ]
    if others and _counts(cells[position] for position in numeric):
        say(
            f"{source}: row 1 is taken for names, {', '.join(map(excerpt, cells[:6]))}, … (else"
            " pass --no-header)"
        )
        return True
    if numeric and words and options.clean:
        say(f"{source}: row 1 is taken for data, since it holds numbers (else pass --header)")
        return False
    if numeric and words:
        what = (
            f"{what_is_wrong(cells[words[0]], dialect.decimal)}, although other cells of the row"
            " are numbers; pass --header if row 1"
        )
        out = Columns(source, len(cells), None).option("--exclude", words)
        raise cell_error(
            source, 1, words[0] + 1, f"{what} holds names, or {out} to leave out columns of text"
        )
    return bool(words)


def _counts(cells: Iterable[str]) -> bool:
    """Whether these are whole numbers that follow each other, at least three: years, say, as names
    of columns.
    """
    listed = [cell.strip() for cell in cells]
    numbers = [int(cell) for cell in listed if named_by_position(cell) and len(cell) < 10]
    return len(numbers) == len(listed) >= 3 and all(b == a + 1 for a, b in pairwise(numbers))


def read_npy(path: str, options: TableOptions, say: Say = lambda _: None) -> Table:
    """The chosen columns of the matrix in the NPY file ``path``."""
    try:
        # a mapped file has the size it claims, or mapping fails: the shape in the header is not
        # trusted with an allocation
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged header ends in whatever its parser meets first
        raise InputError(f"{path} is not a readable NPY file: {error}") from None
    if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "fiub":
        raise InputError(
            f"{path} holds {stored.dtype if isinstance(stored, np.ndarray) else 'an archive'}, but"
            " real numbers were expected"
        )
    if stored.ndim != 2:
        raise InputError(
            f"{path} holds an array of shape {stored.shape}, but rows and columns were expected;"
            " reshape it to (n, d)"
        )
    if 0 in stored.shape:
        raise cell_error(
            path, 1, 1, f"the array of shape {stored.shape} is empty; rows of numbers were expected"
        )
    columns = Columns(path, stored.shape[1], None)
    features, weights = columns.select(options.choice)
    chosen = [*features, *weights]
    matrix = np.array(stored[:, chosen], dtype=np.float64, order="C")
    if np.isinf(matrix).any():
        row, place = np.argwhere(np.isinf(matrix))[0]
        option = columns.option("--exclude", [chosen[place]])
        what = (
            f"{matrix[row, place]} is not finite; correct it, or leave out the column with {option}"
        )
        raise cell_error(path, int(row) + 1, chosen[place] + 1, what)
    cleaner = Cleaner(
        columns, options.choice.features is None, options.clean, options.drop_missing, say
    )
    return _table(cleaner, np.arange(1, matrix.shape[0] + 1), matrix, features, weights, options)


def _table(
    cleaner: Cleaner,
    rows: np.ndarray,
    matrix: np.ndarray,
    features: list[int],
    weights: list[int],
    options: TableOptions,
) -> Table:
    """The table of the chosen columns, of which those in ``matrix`` are ``features`` and
    ``weights``; missing cells are NaN there.
    """
    chosen, kept = [*features, *weights], features
    if options.choice.columns is None and options.choice.features is None:
        kept = cleaner.without_index(kept, matrix)
        kept = cleaner.without_gaps(kept, matrix[:, [chosen.index(position) for position in kept]])
    if not kept:
        raise InputError(f"{cleaner.columns.source}: no column is left for the data")
    if kept != features:
        chosen, matrix = (
            [*kept, *weights],
            matrix[:, [chosen.index(position) for position in [*kept, *weights]]],
        )
    complete = cleaner.complete(chosen, rows, matrix)
    dropped = int((~complete).sum())
    if not complete.all():
        rows, matrix = rows[complete], matrix[complete]
    cleaner.say_marks(kept, matrix)
    header = cleaner.columns.names
    names = None if header is None else tuple(header[position] for position in kept)
    points, vocabulary = matrix[:, :-1].copy() if weights else matrix, cleaner.words or {}
    if lost := [position for position in vocabulary if position not in kept]:
        raise InputError(
            f"{cleaner.columns.source}: --categories lists {cleaner.columns.shown(lost[0])}, but it"
            " is no column that is used"
        )
    words = (
        tuple(tuple(vocabulary[position]) if position in vocabulary else None for position in kept)
        if vocabulary
        else None
    )
    masses = matrix[:, -1].copy() if weights else None
    return Table(cleaner.columns.source, points, rows, names, masses, header, words, dropped)
