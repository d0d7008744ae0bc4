"""The only file that knows Dask: the chunks of its arrays and data frames, and work that is done
where they are.

Dask is imported when an object of it is met, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from importlib import import_module
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

__all__ = ["Blocks", "is_dask"]

_FAN_IN = 8  # values that are merged at a time
_AT_A_TIME = 8  # chunks that are computed again to find the one that fails


def is_dask(value: Any) -> bool:
    """Whether ``value`` is an object of Dask, such as an array or a data frame, seen from where its
    class is defined.
    """
    return type(value).__module__.partition(".")[0] == "dask"


class _Failed(NamedTuple):
    """An error as a value: it goes up the tree like any other, and nothing is tried again."""

    error: Exception


@dataclass(frozen=True, eq=False)
class Blocks:
    """The chunks of a Dask array (n, d) or data frame, with the weights of their rows, none of them
    computed.
    """

    data: list[Any]
    weights: list[Any]
    sizes: list[float]
    """How many rows they have; NaN where that is not known."""
    width: int
    names: tuple[str, ...] | None
    label: str

    @classmethod
    def of(cls, X: Any, weights: Any = None, columns: Sequence[Any] | None = None) -> Blocks:
        """Those of ``X``, of a data frame only with the ``columns``; ``weights`` are an array of
        Dask or a series with the same chunks.
        """
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
        if _is_frame(X):
            missing = [column for column in columns or () if column not in list(X.columns)]
            if missing:
                raise ValueError(
                    f"the dask data frame has no column {missing[0]!r}; its columns are"
                    f" {', '.join(map(repr, X.columns))}"
                )
            X = X if columns is None else X[list(columns)]
            names, data = tuple(map(str, X.columns)), list(X.to_delayed())
            sizes = [np.nan] * len(data)
        else:
            # a sample must not lie in two chunks
            X = X if X.numblocks[1] == 1 else X.rechunk({1: -1})
            names, data, sizes = (
                None,
                X.to_delayed().ravel().tolist(),
                [float(n) for n in X.chunks[0]],
            )
        masses = [None] * len(data) if weights is None else _weights(weights, sizes)
        return cls(
            data,
            masses,
            sizes,
            int(X.shape[1]),
            names,
            f"a dask {'data frame' if names else 'array'} in {len(data)} chunks",
        )

    @cached_property
    def _ends(self) -> np.ndarray:
        return np.cumsum([0.0, *self.sizes])

    def name(self, k: int) -> str:
        """How errors name a chunk."""
        first, end = self._ends[k : k + 2]
        return f"chunk {k}" if np.isnan(end) else f"chunk {k} (rows {first:.0f} to {end - 1:.0f})"

    def leaves(self, work: Callable[[Any, Any, str], Any], *, raises: bool) -> list[Any]:
        """``work(data, weights, name)`` of every chunk, to be done where the chunk is."""
        delayed, token = _module("dask").delayed, uuid4().hex
        shared = delayed(work, traverse=False)
        call, keys = (
            delayed(_raising if raises else _catching),
            [f"ksos-chunk-{k}-{token}" for k in range(len(self.data))],
        )
        return [
            call(shared, data, weights, self.name(k), dask_key_name=keys[k])
            for k, (data, weights) in enumerate(zip(self.data, self.weights, strict=True))
        ]

    def gather(self, work: Callable[[Any, Any, str], Any]) -> Any:
        """The values of all chunks, merged up a tree by their own ``merge``; an error names the
        chunk.
        """
        merge, found = _module("dask").delayed(_merged), (leaves := self.leaves(work, raises=False))
        while len(found) > 1:
            found = [merge(found[k : k + _FAN_IN]) for k in range(0, len(found), _FAN_IN)]
        try:
            value = found[0].compute()
        except Exception as error:
            if (named := self._named(error, leaves)) is error:
                raise
            raise named from error
        if isinstance(value, _Failed):
            raise value.error
        return value

    def lazily(self, work: Callable[[Any, Any, str], Any]) -> Any:
        """One number for every row, as a Dask array that nobody has computed yet."""
        array, leaves = _module("dask.array"), self.leaves(work, raises=True)
        sizes = [(size if np.isnan(size) else int(size),) for size in self.sizes]
        return array.concatenate(
            [
                array.from_delayed(leaf, size, dtype=np.float64)
                for leaf, size in zip(leaves, sizes, strict=True)
            ]
        )

    def _named(self, error: Exception, leaves: list[Any]) -> Exception:
        """What went wrong while a chunk was computed, with the name of the chunk; that is looked
        for.
        """
        if type(error).__module__.startswith(
            "distributed"
        ):  # of the cluster; a task that ended its workers is named, with its number
            return error
        for start in range(0, len(leaves), _AT_A_TIME):
            try:
                _module("dask").compute(*leaves[start : start + _AT_A_TIME])
            except Exception:
                for k, leaf in enumerate(leaves[start : start + _AT_A_TIME], start):
                    try:
                        leaf.compute()
                    except Exception as found:
                        return RuntimeError(
                            f"{self.name(k)} of {self.label} cannot be computed:"
                            f" {type(found).__name__}: {found}"
                        )
        return error  # it does not come again


def _module(name: str) -> Any:
    """A module of Dask, which is there, since an object of it is."""
    return import_module(name)


def _is_frame(X: Any) -> bool:
    return type(X).__module__.startswith("dask.dataframe")


def _weights(weights: Any, sizes: list[float]) -> list[Any]:
    """The chunks of weights, one for each chunk of samples."""
    if not is_dask(weights):
        if np.isnan(sizes).any():
            raise TypeError(
                "sample_weight must be of Dask, as the samples are: the sizes of their chunks are"
                " not known"
            )
        weights = _module("dask.array").from_array(
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
        found = weights.to_delayed().ravel().tolist()
    else:
        found = list(weights.to_delayed())
    if len(found) != len(sizes):
        raise ValueError(
            f"sample_weight has {len(found)} chunks, but the samples have {len(sizes)}; both must"
            " be cut at the same rows"
        )
    return list(found)


def _raising(work: Callable[[Any, Any, str], Any], data: Any, weights: Any, name: str) -> Any:
    return work(data, weights, name)


def _catching(work: Callable[[Any, Any, str], Any], data: Any, weights: Any, name: str) -> Any:
    try:
        return work(data, weights, name)
    except (ValueError, TypeError) as error:  # which name the chunk
        return _Failed(error)
    except Exception as error:
        return _Failed(RuntimeError(f"{name}: {type(error).__name__}: {error}"))


def _merged(values: list[Any]) -> Any:
    return reduce(_merge, values)


def _merge(a: Any, b: Any) -> Any:
    return a if isinstance(a, _Failed) else b if isinstance(b, _Failed) else a.merge(b)
