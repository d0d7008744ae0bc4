"""Samples that come in chunks: arrays one after the other, files larger than the memory, tables of
Arrow.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ksos.data.csv_files import CsvFile, Written, cell_error
from ksos.ground import (
    as_count,
    column_names,
    is_table,
    is_tensor,
    known_table,
    matrix_of,
    needed,
    require_numbers,
    to_device,
)

# half a megabyte for each column: reading a chunk takes far longer than the call that asks for it
_CHUNK_ROWS = 1 << 16

_CSV = (".csv", ".tsv", ".txt", ".csv.gz", ".csv.bz2", ".csv.xz")
_PARQUET, _ARROW = (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
_READABLE = (".npy", *_CSV, *_PARQUET, *_ARROW)


class Chunk(NamedTuple):
    """Some of the samples: an array or a table, the weights of its rows or None, and how errors
    name it.

    ``names`` are those of the columns of an array that has them. ``dropped`` rows had missing
    cells, and the rows ``kept``, counted from 0, had none; None if all were kept.
    """

    data: Any
    weights: Any
    name: str
    names: tuple[str, ...] | None = None
    dropped: int = 0
    kept: Any = None


class Chunks:
    """A source of samples for ``fit``: iterating gives :class:`Chunk` after :class:`Chunk`; made by
    :func:`chunks`.

    A pass over the samples is one call of :meth:`gather`. A source whose chunks are elsewhere
    overrides it: it updates the value where a chunk is, and merges the values. ``names`` are those
    of the columns, where they are known before a chunk is read. Without ``again``, the source can
    be read only once.
    """

    names: tuple[str, ...] | None = None

    def __init__(
        self,
        begin: Callable[[], Iterator[Chunk]],
        name: str,
        files: Sequence[str] = (),
        *,
        again: bool = True,
    ) -> None:
        self._begin, self.name, self.files = begin, name, tuple(files)
        self.again, self._begun = again, False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            f"an array in memory is needed here, and {self!r} comes in chunks; KernelSoSDensity,"
            " KernelSoSDensityCV and mmd take it"
        )

    def __iter__(self) -> Iterator[Chunk]:
        if self._begun and not self.again:
            raise ValueError(
                f"{self.name} can be read only once, and it has been; pass something that begins"
                " anew, such as a list of arrays, files, or a function that returns a new"
                " generator: ksos.chunks(lambda: generate())"
            )
        self._begun = True
        return self._begin()

    def gather(self, begun: Any, *, done: int = 0, after: Callable[..., None] | None = None) -> Any:
        """``begun``, which knows the first ``done`` chunks, updated with every other chunk;
        ``after`` sees it after each of them.

        It is a value, such as sums, that can be pickled: ``begun.update(chunk)`` is this and what
        one more chunk adds, ``begun.merge(other)`` what is known of the chunks of both.
        """
        for k, chunk in enumerate(self):
            if k >= done:
                begun = begun.update(chunk)
                if after is not None:
                    after(begun)
        return begun

    def to(self, device: Any) -> Chunks:
        """The same source with chunks that are torch tensors on ``device``, such as "cuda": the fit
        then runs there.
        """
        begin = partial(_on_device, self, device)
        return Chunks(begin, self.name, self.files, again=self.again)

    def each(self, work: Callable[[Chunk], Any]) -> Any:
        """``work`` of every chunk, one after the other when they are asked for; elsewhere, what
        stands for them.
        """
        return map(work, self)

    def fingerprint(self) -> list[list[Any]]:
        """Name, size and time of change of every file: what must be the same in every pass."""
        return [[file, (found := os.stat(file)).st_size, found.st_mtime_ns] for file in self.files]

    def __repr__(self) -> str:
        return f"chunks({self.name})"


def chunks(
    source: Any,
    *,
    columns: Sequence[Any] | None = None,
    weights: Any = None,
    rows: int = _CHUNK_ROWS,
    drop_missing: bool = False,
    csv: Mapping[str, Any] | None = None,
) -> Chunks:
    """Samples of any number as a source that ``fit`` takes in place of an array; memory holds one
    chunk at a time.

    Parameters
    ----------
    source
        A path, a pattern such as ``"data/*.parquet"``, a folder, or a list of them: NPY, CSV (also
        compressed), Parquet and Arrow files, read in the order of their names; an array, cut into
        chunks, also one that is mapped to memory; anything with ``__arrow_c_stream__``, such as
        tables of pyarrow, polars, duckdb and pandas; an array or data frame of Dask, whose chunks
        stay where they are; an iterable of arrays or tables, or of pairs (array, weights of its
        rows); or a function without arguments that returns one. A generator can be read once: that
        is enough for up to 10,000 distinct samples, and ``fit`` raises if it is not.
    columns : list, optional
        Names, or numbers from 0, of the columns that are samples; of Parquet files no others are
        read. Default: all but the weights.
    weights : name or number, optional
        The column that holds the weights of the rows.
    rows : int
        How many rows of a file or an array make a chunk.
    drop_missing : bool
        Drop rows with a missing cell in a column that is used. Default: they raise an error, with
        file, row and column.
    csv : dict, optional
        How CSV files are written, where that is not to be detected: "delimiter", "decimal",
        "header" (True, False) and "encoding".

    >>> [len(chunk.data) for chunk in chunks(np.zeros((5, 2)), rows=2)]
    [2, 2, 1]
    """
    rows = as_count(rows, "rows")
    if unknown := [name for name in csv or {} if name not in Written._fields]:
        raise ValueError(
            f"csv has {unknown[0]!r}, but it takes {', '.join(map(repr, Written._fields))}"
        )
    choose = Choice(columns, weights, drop_missing, Written(**(csv or {})))
    if isinstance(source, Chunks):
        return source
    if is_dask(source):
        return as_source(source, None, choose)[0]
    files: list[str] = []
    name = type(source).__name__
    begin: Callable[[], Iterable[Chunk]]
    # an empty list is one of arrays, and an empty source
    listed = source if isinstance(source, (list, tuple)) and source else [source]
    if all(isinstance(path, (str, os.PathLike)) for path in listed):
        files = files_of(source)
        name = files[0] if len(files) == 1 else f"{len(files)} files from {files[0]} to {files[-1]}"
        begin = partial(_pieces, files, rows, choose)
    elif isinstance(source, np.ndarray):
        name, begin = f"an array of shape {source.shape}", partial(_slices, source, rows, "")
    elif hasattr(source, "__arrow_c_stream__"):
        begin = partial(_arrow_pieces, source)
    elif callable(source) or isinstance(source, Iterable):
        name = "what the function returns" if callable(source) else name
        begin = partial(_numbered, source)
    else:
        raise TypeError(
            "a source of samples is a path, an array, a table, an iterable of arrays or a function"
            f" that returns one; got {source!r}"
        )
    # an iterator gives its chunks once, anything else begins anew
    again = not isinstance(source, Iterator)
    return Chunks(lambda: map(choose, begin()), name, files, again=again)


def is_dask(value: Any) -> bool:
    """Whether ``value`` is an object of Dask, such as an array or a data frame, seen from where its
    class is defined.
    """
    return type(value).__module__.partition(".")[0] == "dask"


def is_source(X: Any) -> bool:
    """Whether samples come in chunks, or in those of Dask."""
    return isinstance(X, Chunks) or is_dask(X)


def as_source(X: Any, sample_weight: Any = None, choice: Choice | None = None) -> tuple[Any, Any]:
    """An object of Dask with its weights as a source, and a table as one that is known; everything
    else as it came.
    """
    if is_dask(X):
        from ksos.data.dask_chunks import DaskChunks

        return DaskChunks(X, sample_weight, choice or Choice()), None
    if is_dask(sample_weight):
        raise TypeError(
            f"sample_weight is of Dask, but the samples are {type(X).__name__}; give both in the"
            " same way"
        )
    return known_table(X), sample_weight


_DETECTED = Written()


@dataclass(frozen=True)
class Choice:
    """Which columns of a chunk are samples, which is the weights, whether rows with gaps are
    dropped, and how CSV is written.
    """

    columns: Sequence[Any] | None = None
    weights: Any = None
    drop_missing: bool = False
    written: Written = _DETECTED

    def __post_init__(self) -> None:
        if isinstance(self.columns, (str, bytes)):
            raise TypeError(
                f"columns must be a list of names or numbers; got {self.columns!r}; pass"
                f" [{self.columns!r}]"
            )

    @property
    def wanted(self) -> list[Any] | None:
        """What to read from a file; None for all columns."""
        masses = [] if self.weights is None else [self.weights]
        return None if self.columns is None else [*self.columns, *masses]

    def require(self, name: str, labels: Sequence[Any]) -> None:
        """Raise if a column that is wanted is not among those of a chunk or a file."""
        used = [*(self.columns or ()), *([] if self.weights is None else [self.weights])]
        if missing := [label for label in used if label not in labels]:
            raise ValueError(
                f"{name} has no column {missing[0]!r}; its columns are"
                f" {', '.join(map(repr, labels))}"
            )

    def __call__(self, chunk: Chunk) -> Chunk:
        """The chunk with the chosen columns, those of a table as numbers."""
        chunk = chunk._replace(data=known_table(chunk.data))
        data = chunk.data
        names = column_names(data) if chunk.names is None else chunk.names
        if names is None and self == Choice(written=self.written):
            return chunk
        # the columns of a file of CSV without names are labeled by their numbers
        labels = list(names or (data.columns if is_table(data) else range(data.shape[1])))
        features = self.columns or [label for label in labels if label != self.weights]
        chosen = [*features] if self.weights is None else [*features, self.weights]
        self.require(chunk.name, labels)
        if self.weights is not None and chunk.weights is not None:
            raise ValueError(
                f"{chunk.name} came with weights, and weights={self.weights!r} names a column that"
                " holds them; give one of them"
            )
        if is_table(data):
            X = matrix_of(data, chunk.name, chosen, gaps=self.drop_missing)
        else:
            X = np.asarray(data)[:, [labels.index(label) for label in chosen]]
        d, a, kept = len(features), chunk.weights, None
        X, a = X[:, :d], a if self.weights is None else X[:, d]
        if self.drop_missing:
            gaps = np.isnan(X).any(axis=1) | np.isnan(np.zeros(len(X)) if a is None else a)
            kept = np.flatnonzero(~gaps)
            X, a = X[kept], None if a is None else np.asarray(a)[kept]
        named = None if names is None else tuple(features)
        return Chunk(X, a, chunk.name, named, data.shape[0] - len(X), kept)


def is_arrow(file: str) -> bool:
    """Whether the name of a file is one of Parquet or Arrow."""
    return file.lower().endswith((*_PARQUET, *_ARROW))


def files_of(source: Any) -> list[str]:
    """The files that paths, folders and patterns name, each folder in the order of names."""
    found: list[str] = []
    for given in source if isinstance(source, (list, tuple)) else [source]:
        path = os.path.expanduser(os.fspath(given))
        if not path:
            raise ValueError(
                "the name of a file of samples must not be empty; give a path, a folder or a"
                " pattern such as 'data/*.csv'"
            )
        if os.path.isdir(path):
            inside = sorted(
                str(p)
                for p in Path(path).rglob("*")
                if p.is_file() and p.name.lower().endswith(_READABLE)
            )
        elif os.path.exists(path) or not glob.has_magic(path):
            inside = [path]
        else:
            inside = sorted(glob.glob(path, recursive=True))
        if not inside:
            raise FileNotFoundError(
                f"the folder {path} holds no file that can be read; expected are"
                f" {', '.join(_READABLE)}"
                if os.path.isdir(path)
                else f"no file matches {path}"
            )
        found += inside
    # all of them, before any is read
    for file in found:
        if not file.lower().endswith(_READABLE):
            raise ValueError(
                f"{file} is of no kind that can be read in chunks; expected are"
                f" {', '.join(_READABLE)}"
            )
        # raises for a file that does not exist, before any work
        os.stat(file)
    return found


class TableFile(NamedTuple):
    """A file of a table: its width, the names of its columns if any, and its chunks, of so many
    rows, with the columns that a choice needs.
    """

    width: int
    names: tuple[str, ...] | None
    chunks: Callable[[int, Choice], Iterator[Chunk]]

    @property
    def labels(self) -> Sequence[Any]:
        """What the columns are called: numbers, from 0, if they have no names."""
        return range(self.width) if self.names is None else self.names


@contextmanager
def opened(file: str, written: Written) -> Iterator[TableFile]:
    """One of the files that :func:`chunks` reads; an error names it."""
    if file.lower().endswith(".npy"):
        stored = mapped(file)
        yield TableFile(stored.shape[1], None, lambda rows, _: _slices(stored, rows, file))
    elif file.lower().endswith(_CSV):
        with open(file, "rb") as stream:
            found = CsvFile(stream, file, written)
            found.find_header(written.header)
            yield TableFile(len(found.first), found.names, partial(_csv_chunks, found))
    else:
        with _arrow_file(file) as (names, batches):
            yield TableFile(
                len(names),
                tuple(names),
                lambda rows, choice: _batches(batches(rows, choice.wanted), file),
            )


# The chunks of some files, one file after the other.
def _pieces(files: Sequence[str], rows: int, choice: Choice) -> Iterator[Chunk]:
    for file in files:
        with opened(file, choice.written) as found:
            choice.require(file, found.labels)
            yield from found.chunks(rows, choice)


# Tables of the columns that are wanted: others may hold anything, and are not parsed.
def _csv_chunks(file: CsvFile, _: int, choice: Choice) -> Iterator[Chunk]:
    wanted = choice.wanted
    labels = list(range(len(file.first)) if file.names is None else file.names)
    chosen = [k for k, label in enumerate(labels) if wanted is None or label in wanted]
    for block in file.numbers(chosen, lambda _: "drop the column, or choose others"):
        missing = np.argwhere(np.isnan(block.to_numpy()))
        if missing.size and not choice.drop_missing:
            row, k = missing[0]
            what = (
                "the cell is missing; fill it, drop the column, or drop such rows"
                " (--drop-missing, drop_missing=True)"
            )
            raise cell_error(file.source, int(block.index[row]), chosen[k] + 1, what, file.names)
        found = block.set_axis([labels[k] for k in chosen], axis=1)
        yield Chunk(found, None, f"{file.source}, from row {block.index[0]}")


def mapped(file: str) -> np.ndarray:
    """The matrix in an NPY file. A mapped file has the size it claims, or mapping fails: the shape
    in the header is not trusted with an allocation.
    """
    try:
        stored: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged header ends in whatever its parser meets first
        raise ValueError(f"{file} is not a readable NPY file: {error}") from None
    if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "fiub":
        held = stored.dtype if isinstance(stored, np.ndarray) else "an archive"
        raise ValueError(f"{file} holds {held}, but real numbers were expected")
    if stored.ndim != 2:
        raise ValueError(
            f"{file} holds an array of shape {stored.shape}, but rows and columns were expected;"
            " reshape it to (n, d)"
        )
    return stored


def _slices(stored: np.ndarray, rows: int, file: str) -> Iterator[Chunk]:
    for start in range(0, stored.shape[0], rows):
        stop = min(start + rows, stored.shape[0])
        # a copy: a mapped page must not stay in memory, and is read once, however often it is used
        yield Chunk(
            np.array(stored[start:stop]),
            None,
            f"{file}{', ' * bool(file)}rows {start} to {stop - 1}",
        )


def _arrow(what: str) -> Any:
    return needed("pyarrow", what, '"kernel-sos[arrow]"')


# The names of the columns of a Parquet or Arrow file, and what reads batches of it; errors name the
# file.
@contextmanager
def _arrow_file(file: str) -> Iterator[tuple[list[str], Callable[..., Iterable[Any]]]]:
    arrow = _arrow(f"reading {file}")
    try:
        if file.lower().endswith(_PARQUET):
            from pyarrow.parquet import ParquetFile

            with ParquetFile(file) as found:
                names = found.schema_arrow.names
                yield names, lambda rows, columns: found.iter_batches(rows, columns=columns)
        else:
            with arrow.memory_map(file) as mapped, arrow.ipc.open_file(mapped) as found:
                # of a mapped file, nothing is read before it is looked at
                batches = [found.get_batch(k) for k in range(found.num_record_batches)]
                yield found.schema.names, lambda rows, columns: batches
    except (arrow.ArrowInvalid, arrow.ArrowTypeError) as error:
        raise ValueError(f"{file} is truncated or damaged: {error}; write it again") from None
    except OSError as error:  # pyarrow's words for a damaged page
        raise OSError(f"{file} cannot be read: {error}") from None


def _arrow_pieces(source: Any) -> Iterator[Chunk]:
    arrow = _arrow(f"a source of type {type(source).__name__}")
    yield from _batches(arrow.RecordBatchReader.from_stream(source), "")


# Record batches as tables, without empty ones.
def _batches(batches: Iterable[Any], name: str) -> Iterator[Chunk]:
    row = 0
    for k, batch in enumerate(batches):
        if batch.num_rows:
            where = f"rows {row} to {row + batch.num_rows - 1}"
            yield Chunk(
                _arrow(name).Table.from_batches([batch]),
                None,
                f"{name}, {where}" if name else f"chunk {k} ({where})",
            )
        row += batch.num_rows


# Arrays, tables or pairs of them and weights, by number.
def _numbered(items: Any) -> Iterator[Chunk]:
    for k, item in enumerate(items() if callable(items) else items):
        if isinstance(item, Chunk):
            yield item
        elif isinstance(item, tuple) and len(item) == 2:
            yield Chunk(item[0], item[1], f"chunk {k}")
        else:
            yield Chunk(item, None, f"chunk {k}")


# The same chunks with their data as tensors on ``device``.
def _on_device(chunks: Iterable[Chunk], device: Any) -> Iterator[Chunk]:
    # this raises if there is no such device, and names the reason
    wanted = to_device(np.zeros(0), device).device
    for chunk in chunks:
        data = chunk.data
        data = data.to(wanted) if is_tensor(data) else to_device(require_numbers(data), wanted)
        yield chunk._replace(data=data)
