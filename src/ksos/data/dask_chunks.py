"""The only file that knows Dask: the chunks of its arrays and data frames, and work that is done
where they are. It is imported when an object of Dask is met, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from importlib import import_module
from itertools import pairwise
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from ksos.data.sources import Choice, Chunk, Chunks, is_dask

_FAN_IN = 8  # values that are merged at a time: few of them wait in memory, and the tree stays low

T = TypeVar("T")

# without their types, which are half there
dask: Any = import_module("dask")
array: Any = import_module("dask.array")


class DaskChunks(Chunks):
    """The chunks of a Dask array (n, d) or data frame: what a pass gathers is gathered where they
    are, and merged up a tree.

    Only the columns of ``choice`` are computed of a data frame. ``weights`` are an array of Dask,
    or a series with the same chunks. Every pass computes the chunks anew, unless ``persist()``
    holds them in the memory of the workers.
    """

    def __init__(self, X: Any, weights: Any, choice: Choice) -> None:
        if not type(X).__module__.startswith(("dask.array", "dask.dataframe")):
            raise TypeError(
                f"of Dask, arrays and data frames are taken as samples; got {type(X).__name__}; its"
                " to_dataframe may help"
            )
        if X.ndim != 2:
            raise ValueError(
                "a dask array or data frame of two dimensions was expected, samples and features;"
                f" got {X!r}"
            )
        columns, kind = choice.wanted, "array"
        if _is_frame(X):
            kind = "data frame"
            choice.require("the dask data frame", list(X.columns))
            X = X if columns is None else X[columns]
            named = (name for name in map(str, X.columns) if name != choice.weights)
            self.names = tuple(choice.columns or named)
            self._data = list(X.to_delayed())
            # not known before they are computed
            self._sizes = [np.nan] * len(self._data)
        else:
            # a sample must not lie in two chunks
            X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
            self._data = X.to_delayed().ravel().tolist()
            self._sizes = [float(n) for n in X.chunks[0]]
        none = [None] * len(self._data)
        self._weights = none if weights is None else _weights(weights, self._sizes)
        self._located: Callable[..., Chunk] = partial(_located, choice, int(X.shape[1]))
        self._labels = [
            f"chunk {k}" if np.isnan(end) else f"chunk {k} (rows {first:.0f} to {end - 1:.0f})"
            for k, (first, end) in enumerate(pairwise(np.cumsum([0.0, *self._sizes])))
        ]
        super().__init__(self._here, f"a dask {kind} in {len(self._data)} chunks")

    # One chunk after the other, brought to this process.
    def _here(self) -> Iterator[Chunk]:
        for data, weights, name in zip(self._data, self._weights, self._labels, strict=True):
            yield self._located(*dask.compute(data, weights), name)

    # ``work`` of every chunk, to be done where the chunk is.
    def _leaves(self, work: Callable[[Chunk], Any]) -> list[Any]:
        # delayed once, what the work carries is sent once; the names of its tasks are new, since
        # Dask would otherwise take the values of an earlier pass
        shared, token = dask.delayed((work, self._located), traverse=False), uuid4().hex
        call = dask.delayed(_applied)
        return [
            call(shared, *chunk, dask_key_name=f"ksos-chunk-{k}-{token}")
            for k, chunk in enumerate(zip(self._data, self._weights, self._labels, strict=True))
        ]

    def gather(self, begun: Any, *, done: int = 0, after: Callable[..., None] | None = None) -> Any:
        if done:
            raise ValueError(
                f"the checkpoint is of another source than {self!r}, whose passes are not stopped"
                " half-way; remove it"
            )
        found, merge = self._leaves(begun.update), dask.delayed(_merged)
        while len(found) > 1:
            found = [merge(found[k : k + _FAN_IN]) for k in range(0, len(found), _FAN_IN)]
        value = found[0].compute()
        if after is not None:
            after(value)
        return value

    def each(self, work: Callable[[Chunk], np.ndarray]) -> Any:
        """One number for each row, as a Dask array that is computed when it is asked for."""
        sizes = [(size if np.isnan(size) else int(size),) for size in self._sizes]
        return array.concatenate(
            [
                array.from_delayed(leaf, size, dtype=np.float64)
                for leaf, size in zip(self._leaves(work), sizes, strict=True)
            ]
        )


def _is_frame(X: Any) -> bool:
    return type(X).__module__.startswith("dask.dataframe")


# The chunks of weights, one for each chunk of samples.
def _weights(weights: Any, sizes: list[float]) -> list[Any]:
    if not is_dask(weights):
        if np.isnan(sizes).any():
            raise TypeError(
                "sample_weight must be of Dask, as the samples are: the sizes of their chunks are"
                " not known"
            )
        weights = array.from_array(
            np.asarray(weights), chunks=(tuple(int(size) for size in sizes),)
        )
    if np.ndim(weights) != 1:
        raise ValueError(f"sample_weight must be one-dimensional; got {weights!r}")
    if not _is_frame(weights):
        known = not np.isnan([*sizes, *weights.chunks[0]]).any()
        if known and sum(weights.chunks[0]) == sum(sizes):
            weights = weights.rechunk((tuple(int(size) for size in sizes),))
        elif known:
            raise ValueError(
                f"sample_weight must have length {sum(sizes):.0f}; got {sum(weights.chunks[0])}"
            )
    found = list(weights.to_delayed())
    if len(found) != len(sizes):
        raise ValueError(
            f"sample_weight has {len(found)} chunks, but the samples have {len(sizes)}; both must"
            " be cut at the same rows"
        )
    return found


# What workers do with a chunk: functions of a module, which can be sent to them.


# The chosen columns of a chunk.
def _located(choice: Choice, width: int, data: Any, weights: Any, name: str) -> Chunk:
    if np.ndim(data) != 2 or np.shape(data)[1] != width:
        raise ValueError(
            f"{name}: an array of shape {np.shape(data)} came, but {width} columns were expected,"
            " as the others have"
        )
    return choice(Chunk(data, weights, name))


def _applied(
    work: tuple[Callable[[Chunk], T], Callable[..., Chunk]], data: Any, weights: Any, name: str
) -> T:
    function, located = work
    try:
        return function(located(data, weights, name))
    except (ValueError, TypeError):  # which name the chunk
        raise
    except Exception as error:
        raise RuntimeError(f"{name}: {type(error).__name__}: {error}") from None


def _merged(values: list[Any]) -> Any:
    return reduce(lambda a, b: a.merge(b), values)
