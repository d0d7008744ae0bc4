"""Tables of any size, read a chunk at a time: folders, patterns, Parquet and Arrow files; the
screen shows how far the reading is.
"""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ksos.cli.cleaning import Say
from ksos.cli.columns import Columns, named_by_position
from ksos.cli.console import Console, InputError, UsageError, excerpt
from ksos.cli.tables import Table, TableOptions
from ksos.data.sources import Chunk, Chunks, Layout, chunks, files_of, layout
from ksos.ground.progress import left_in_words
from ksos.ground.validation import as_points, as_vector

__all__ = ["Reading", "Stream", "is_many", "read_whole"]

_ARROW = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
_SECONDS_BETWEEN_UPDATES = 0.1
_BAR = 10


def is_many(paths: Sequence[str]) -> bool:
    """Whether this is read in chunks: several files, a folder, a pattern, or a file of Parquet or
    Arrow.
    """
    first = paths[0]
    folder_or_pattern = os.path.isdir(first) or (
        glob.has_magic(first) and not os.path.exists(first)
    )
    return len(paths) > 1 or folder_or_pattern or first.lower().endswith(_ARROW)


@dataclass
class Reading:
    """How far the passes over a source are: shown on a terminal while they run, and in one line
    when they are over.
    """

    expected: int
    """So many rows, as far as the files say."""
    exact: bool
    console: Console | None = None
    passes: int = 0
    rows: int = 0
    dropped: int = 0
    seconds: float = 0.0
    complete: bool = False

    def watch(self, source: Chunks) -> Iterator[Chunk]:
        """The chunks of one pass."""
        self.passes, self.rows, self.dropped, self.complete = self.passes + 1, 0, 0, False
        began, before = time.monotonic(), self.seconds
        for chunk in source:
            yield chunk
            self.rows, self.dropped = (
                self.rows + np.shape(chunk.data)[0] + chunk.dropped,
                self.dropped + chunk.dropped,
            )
            self.seconds = before + time.monotonic() - began
            if self.console is not None:
                self.console.status(
                    self.line(self.seconds - before), at_most_every=_SECONDS_BETWEEN_UPDATES
                )
        self.expected, self.exact, self.complete = self.rows, True, True

    def line(self, seconds: float) -> str:
        """A bar, its share, the rows so far, how many come in a second, and the time left in this
        pass.

        >>> print(Reading(expected=4000, exact=False, passes=1, rows=1000).line(0.5))
        pass 1 [##--------] about 25 %, 1,000 rows, 2,000 rows/s; about 1.5 s left
        """
        rate, share = self.rows / max(seconds, 1e-9), min(self.rows / max(self.expected, 1), 1.0)
        bar, of = "#" * round(_BAR * share), "" if self.exact else "about "
        left = left_in_words(max(self.expected - self.rows, 0) / max(rate, 1e-9))
        return (
            f"pass {self.passes} [{bar:-<{_BAR}}] {of}{share:.0%}, {self.rows:,} rows, {rate:,.0f}"
            f" rows/s{left}".replace("%", " %")
        )

    def finish(self, source: str) -> None:
        """One line on what was read."""
        if self.console is None or not self.complete:
            return
        lost = (
            f", of which {self.dropped:,} have missing cells and are left out"
            if self.dropped
            else ""
        )
        times = {1: "", 2: ", read twice"}.get(self.passes, f", read {self.passes} times")
        rate = self.passes * self.rows / max(self.seconds, 1e-9)
        self.console.note(
            f"{source}: {self.rows:,} rows{lost}{times} in {self.seconds:.1f} s, {rate:,.0f} rows/s"
        )


@dataclass(frozen=True)
class Stream:
    """The chosen columns of files that need not fit in memory; it answers what
    :class:`~ksos.cli.tables.Table` answers.
    """

    source: str
    files: tuple[str, ...]
    labels: tuple[Any, ...]
    header: tuple[str, ...] | None
    weighing: Any
    options: TableOptions
    reading: Reading
    weights: None = field(default=None, init=False)
    """They come with the chunks."""

    @classmethod
    def open(cls, paths: Sequence[str], options: TableOptions, console: Console | None) -> Stream:
        """The files that ``paths`` name; the first one says where the columns are."""
        if options.clean:
            raise UsageError(
                "--clean looks at all rows at once; choose columns with --columns or --exclude, and"
                " rows with --drop-missing"
            )
        files = tuple(files_of([*paths]))
        source = files[0] if len(files) == 1 else f"{len(files)} files, {files[0]} …"
        first, *others = (_layout(file, options) for file in files)
        features, masses = Columns(files[0], first.width, first.names).select(options.choice)
        labels = range(first.width) if first.names is None else first.names
        for label in (labels[k] for k in [*features, *masses]):
            if first.names is not None and first.names.count(str(label)) > 1:
                raise InputError(
                    f"{files[0]}: two of the columns are named {excerpt(str(label))}; rename one"
                )
        expected, exact = (
            sum(found.rows for found in (first, *others)),
            all(found.exact for found in (first, *others)),
        )
        weighing = labels[masses[0]] if masses else None
        reading = Reading(expected, exact, console)
        return cls(
            source,
            files,
            tuple(labels[k] for k in features),
            first.names,
            weighing,
            options,
            reading,
        )

    @property
    def samples(self) -> Chunks:
        """What an estimator is fitted to."""
        options = self.options
        plain = chunks(
            list(self.files),
            columns=self.labels,
            weights=self.weighing,
            drop_missing=options.drop_missing,
            csv=_written(options),
        )
        return Chunks(lambda: self.reading.watch(plain), plain.name, plain.files)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the columns that are used."""
        return None if self.header is None else tuple(map(str, self.labels))

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.labels)

    @property
    def n_samples(self) -> int | None:
        """How many rows were read and used; None where a checkpoint knew them all."""
        return self.reading.rows - self.reading.dropped if self.reading.complete else None

    @property
    def n_dropped(self) -> int:
        """How many rows with missing cells were dropped."""
        return self.reading.dropped

    def take(self, features: Sequence[int]) -> Stream:
        """The same files with some of the columns."""
        return replace(self, labels=tuple(self.labels[k] for k in features))

    def require_different_names(self) -> None:
        """They are."""

    def parts(self) -> Iterator[tuple[np.ndarray, np.ndarray | None, np.ndarray]]:
        """Points, weights and the numbers of their rows among all rows, counted from 1, a chunk at
        a time; an error names the chunk.
        """
        before = 1
        for chunk in self.samples:
            n = np.shape(chunk.data)[0]
            if n:
                weights = (
                    None
                    if chunk.weights is None
                    else as_vector(chunk.weights, f"{chunk.name}: weights")
                )
                yield (
                    as_points(chunk.data, chunk.name),
                    weights,
                    before + (np.arange(n) if chunk.kept is None else chunk.kept),
                )
            before += n + chunk.dropped
        if not self.n_samples:
            raise InputError(f"{self.source}: there is no row of numbers")


def read_whole(paths: Sequence[str], options: TableOptions, say: Say) -> Table:
    """The same in memory, for what needs all rows at once."""
    stream = Stream.open(paths, options, None)
    points, weights, rows = zip(*stream.parts(), strict=True)
    if stream.reading.dropped:
        say(
            f"{stream.source}: {stream.reading.dropped} of {stream.reading.rows} rows have missing"
            " cells and are left out"
        )
    masses = np.concatenate(weights) if stream.weighing else None
    told: dict[str, Any] = {"header": stream.header, "n_dropped": stream.n_dropped}
    return Table(
        stream.source, np.concatenate(points), np.concatenate(rows), stream.names, masses, **told
    )


def _layout(file: str, options: TableOptions) -> Layout:
    return layout(file, _written(options))


def _written(options: TableOptions) -> dict[str, Any]:
    """How CSV files are written; one whose columns are chosen by name has a header."""
    named = not all(map(named_by_position, options.choice.words))
    header = True if options.header is None and named else options.header
    return {
        "header": header,
        "delimiter": options.delimiter,
        "decimal": options.decimal,
        "encoding": options.encoding,
    }
