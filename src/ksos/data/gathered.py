"""What a pass over samples gathers: a value that grows by chunks, merges with that of other chunks,
and travels between processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array

from ksos.data.device_rows import surveyed
from ksos.data.kernel_sums import KernelSums
from ksos.data.moments import Moments
from ksos.data.samples import require_inside
from ksos.data.sources import Chunk
from ksos.data.subsample import Survey, row_hashes
from ksos.ground.arrays import (
    Array,
    bits,
    is_numpy,
    is_other_array,
    is_tensor,
    like,
    namespace,
    to_numpy,
    zeros,
)
from ksos.ground.validation import as_points, as_vector, require_numbers
from ksos.measures import Lebesgue, Measure

__all__ = ["Checks", "Gathered", "Rows", "Tally", "naming", "require_own_weights"]

_BATCH_ROWS = 1 << 15  # smaller chunks are put together: what a chunk costs by itself is then small
_HEAVIEST = 1e200


class Rows(NamedTuple):
    """Samples that passed every check, their masses, and of how many chunks they are."""

    points: Array
    """Tensors stay where they lie."""
    masses: Array
    chunks: int = 1


@contextmanager
def naming(chunk: Chunk) -> Iterator[None]:
    """Puts the name of a chunk, if it has one, before the message of an error in it."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if not chunk.name:
            raise
        raise type(error)(f"{chunk.name}: {error}") from None


@dataclass(frozen=True, eq=False)
class Checks:
    """What every chunk must be: inside ``measure``, and with the features of the first one, in any
    order of their names.
    """

    who: str
    """The name of the estimator, for errors."""
    measure: Measure = field(default_factory=Lebesgue)
    n_features: int | None = None
    names: tuple[str, ...] | None = None
    device: Any = None
    """Where chunks that are tensors lie: a tensor without rows; None on the host."""
    left_out: np.ndarray | None = None
    """The hashes of rows that do not count."""

    def rows(self, chunk: Chunk) -> tuple[Rows, Checks]:
        """The samples of a chunk, and the checks that the next chunk must pass; errors begin with
        the name of the chunk.
        """
        with naming(chunk):
            return self._rows(chunk)

    def _rows(self, chunk: Chunk) -> tuple[Rows, Checks]:
        X, tensor = chunk.data, is_tensor(chunk.data)
        if not tensor:
            X = np.asarray(to_numpy(X) if is_other_array(X) else require_numbers(X))
        if X.ndim == 2 and not X.shape[0]:
            return Rows(np.empty((0, self.n_features or 0)), np.empty(0)), self
        if chunk.names is not None and self.names is not None and chunk.names != self.names:
            if sorted(chunk.names) != sorted(self.names):
                raise ValueError(
                    f"the columns are {', '.join(chunk.names)}, but those of the first chunk are"
                    f" {', '.join(self.names)}"
                )
            X = X[:, [chunk.names.index(name) for name in self.names]]
        X = (
            as_points(X)
            if tensor
            else check_array(X, dtype=np.float64, order="C", estimator=self.who, input_name="X")
        )
        if self.n_features is not None and X.shape[1] != self.n_features:
            raise ValueError(
                f"X has {X.shape[1]} features, but {self.who} is expecting {self.n_features}"
                " features as input"
            )
        known = (
            self
            if self.n_features is not None
            else replace(self, n_features=int(X.shape[1]), names=chunk.names)
        )
        known = replace(known, device=X[:0, :]) if tensor and known.device is None else known
        if chunk.weights is None:
            masses = zeros((X.shape[0],), X) + 1.0
        else:
            masses = as_vector(chunk.weights, "weights", length=X.shape[0])
            if np.any(masses < 0.0):
                raise ValueError(
                    f"weights must not be negative; entry {int(np.argmin(masses))} is"
                    f" {masses.min():g}"
                )
            if masses.max() > _HEAVIEST:
                raise ValueError(
                    f"weights must not exceed {_HEAVIEST:g}, so that they can be added up; got"
                    f" {masses.max():g}; scale them"
                )
            masses = like(masses, X)
        if self.left_out is not None:
            masses = like(
                np.where(np.isin(row_hashes(to_numpy(X)), self.left_out), 0.0, to_numpy(masses)), X
            )
        if not tensor or not bool(namespace(X).all(self.measure.contains(X))):
            require_inside(self.measure, to_numpy(X), to_numpy(masses), known.names)
        return Rows(X, masses), known

    def merge(self, other: Checks) -> Checks:
        """The checks of two sets of chunks, which must have the same columns."""
        if self.n_features is None or other.n_features is None:
            return other if self.n_features is None else self
        if self.n_features != other.n_features or self.names != other.names:
            shown = [
                (
                    f"{c.n_features} columns"
                    if c.names is None
                    else f"the columns {', '.join(c.names)}"
                )
                for c in (self, other)
            ]
            raise ValueError(
                f"some chunks have {shown[0]}, others {shown[1]}; all must have the same ones"
            )
        return self


@dataclass(frozen=True)
class Tally:
    """How far a pass is: chunks, rows, and the sum of all their bits, which tells whether a second
    pass gives the same rows.
    """

    chunks: int = 0
    rows: int = 0
    checksum: int = 0
    mass: float = 0.0

    @classmethod
    def of(cls, rows: Rows) -> Tally:
        total = sum(
            int(namespace(numbers).sum(bits(numbers))) for numbers in (rows.points, rows.masses)
        )
        return cls(
            rows.chunks,
            int(rows.points.shape[0]),
            total % 2**64,
            float(namespace(rows.masses).sum(rows.masses)),
        )

    def merge(self, other: Tally) -> Tally:
        checksum, mass = (self.checksum + other.checksum) % 2**64, self.mass + other.mass
        return Tally(self.chunks + other.chunks, self.rows + other.rows, checksum, mass)

    def same_rows(self, other: Tally) -> bool:
        """Whether as many rows were seen, and the same ones, in whatever chunks."""
        return (self.rows, self.checksum) == (other.rows, other.checksum)


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is known of the chunks so far: a survey if ``most`` says of how many samples, moments if
    wanted, kernel sums if it begins with those of none.

    Rows of small chunks wait until they are worth the work; :attr:`settled` has none that wait.
    """

    checks: Checks
    tally: Tally = Tally()
    most: int | None = None
    survey: Survey | None = None
    sums: KernelSums | None = None
    wants_moments: bool = False
    moments: Moments | None = None
    waiting: tuple[Rows, ...] = ()

    def update(self, chunk: Chunk) -> Gathered:
        """This and one more chunk; a bad chunk raises, and this value stays good."""
        rows, checks = self.checks.rows(chunk)
        small = rows.points.shape[0] < _BATCH_ROWS
        rows = (
            Rows(namespace(rows.points).asarray(rows.points, copy=True), rows.masses)
            if small
            else rows
        )  # its owner may fill it anew
        out = replace(self, checks=checks, waiting=(*self.waiting, rows))
        return (
            out.settled if sum(part.points.shape[0] for part in out.waiting) >= _BATCH_ROWS else out
        )

    @property
    def settled(self) -> Gathered:
        """The same value with nothing that waits."""
        return replace(self, waiting=()).add(_together(self.waiting)) if self.waiting else self

    def add(self, rows: Rows) -> Gathered:
        """This and rows that passed the checks."""
        if not rows.points.shape[0]:
            return replace(self, tally=self.tally.merge(Tally(rows.chunks)))
        survey, sums, moments = self.survey, self.sums, self.moments
        if self.most is not None:
            survey = Survey.empty(self.most, rows.points.shape[1]) if survey is None else survey
            survey = (
                survey.update(rows.points, rows.masses)
                if is_numpy(rows.points)
                else surveyed(survey, rows.points, rows.masses)
            )
        if sums is not None:
            sums = sums.beside(rows.points).update(rows.points, rows.masses)
        if self.wants_moments:
            moments = Moments.nothing(rows.points.shape[1]) if moments is None else moments
            moments = moments.update(to_numpy(rows.points), to_numpy(rows.masses))
        return replace(
            self, tally=self.tally.merge(Tally.of(rows)), survey=survey, sums=sums, moments=moments
        )

    def merge(self, other: Gathered) -> Gathered:
        """What is known of both sets of chunks."""
        a, b, checks = self.settled, other.settled, self.checks.merge(other.checks)
        survey = (
            b.survey
            if a.survey is None
            else a.survey
            if b.survey is None
            else a.survey.merge(b.survey)
        )
        sums = None if a.sums is None or b.sums is None else a.sums.merge(b.sums)
        moments = (
            b.moments
            if a.moments is None
            else a.moments
            if b.moments is None
            else a.moments.merge(b.moments)
        )
        return Gathered(
            checks, a.tally.merge(b.tally), self.most, survey, sums, self.wants_moments, moments
        )


def require_own_weights(sample_weight: Any) -> None:
    """Raise on weights that are given beside a source."""
    if sample_weight is not None:
        raise ValueError(
            "weights of a source come with its chunks, as pairs (array, weights), or from a column:"
            " chunks(…, weights=…)"
        )


def _together(parts: tuple[Rows, ...]) -> Rows:
    some, count = (
        [part for part in parts if part.points.shape[0]],
        sum(part.chunks for part in parts),
    )
    if len(some) <= 1:
        return (some or list(parts))[0]._replace(chunks=count)
    xp, first = namespace(some[0].points), some[0].points
    points, masses = (
        xp.concat([like(array, first) for array in arrays])
        for arrays in zip(*((p.points, p.masses) for p in some), strict=True)
    )
    return Rows(points, masses, count)
