"""Passes over samples that come in chunks: the first looks at them, the second adds up kernel sums.
Others give their log-densities under a density.

What a pass gathers is a value that grows by chunks, merges with that of other chunks, and travels
between processes. A pass can stop, and go on from a file.
"""

from __future__ import annotations

import io
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from ksos.data.sources import Chunk, Chunks, as_source
from ksos.data.survey import Moments, Part, Survey, row_hashes
from ksos.density import SoSDensity
from ksos.ground import (
    Array,
    Run,
    as_masses,
    as_points,
    as_vector,
    bits,
    is_other_array,
    is_tensor,
    like,
    namespace,
    naming,
    read_state,
    replace_whole,
    require_numbers,
    to_numpy,
    write_state,
)
from ksos.kernels import KernelSums
from ksos.measures import Lebesgue, Measure

_HEAVIEST = 1e200  # 10¹⁰⁸ of such weights can be added up before the sum overflows
_SHARE = 0.05  # of the time, at most, is spent on checkpoints: nobody notices so little
_KIND = "a fit in progress"
_FIRST, _SECOND = "first", "second"

M = TypeVar("M")


class Rows(NamedTuple):
    """Samples that passed every check, and their masses. Tensors stay where they lie."""

    points: Array
    masses: Array


@dataclass(frozen=True, eq=False)
class Checks:
    """What every chunk must be: inside ``measure``, and with the features of the first one, in any
    order of their names.

    ``who`` is the name of the estimator, for errors. ``device`` is a tensor without rows that lies
    where the chunks lie, None on the host. Rows with a hash in ``left_out`` do not count.
    """

    who: str
    measure: Measure = field(default_factory=Lebesgue)
    n_features: int | None = None
    names: tuple[str, ...] | None = None
    device: Any = None
    left_out: np.ndarray | None = None

    def rows(self, chunk: Chunk) -> tuple[Rows, Checks]:
        """The samples of a chunk, and the checks that the next chunk must pass; errors begin with
        the name of the chunk.
        """
        with naming(chunk.name):
            X, tensor = chunk.data, is_tensor(chunk.data)
            if not tensor:
                X = np.asarray(to_numpy(X) if is_other_array(X) else require_numbers(X))
            if X.ndim == 2 and not X.shape[0]:
                return Rows(np.empty((0, self.n_features or 0)), np.empty(0)), self
            if chunk.names is not None and self.names is not None and chunk.names != self.names:
                if sorted(chunk.names) != sorted(self.names):
                    raise ValueError(
                        f"the columns are {', '.join(chunk.names)}, but those of the first chunk"
                        f" are {', '.join(self.names)}"
                    )
                X = X[:, [chunk.names.index(name) for name in self.names]]
            named: dict[str, Any] = {"estimator": self.who, "input_name": "X"}
            X = as_points(X) if tensor else check_array(X, dtype=np.float64, order="C", **named)
            known = self
            if self.n_features is None:
                names = chunk.names if self.names is None else self.names
                known = replace(self, n_features=int(X.shape[1]), names=names)
            elif X.shape[1] != self.n_features:
                raise ValueError(
                    f"X has {X.shape[1]} features, but {self.who} is expecting {self.n_features}"
                    " features as input"
                )
            if tensor and known.device is None:
                known = replace(known, device=X[:0, :])
            masses = like(self._masses(chunk.weights, X), X)
            # on a device, one look is enough for chunks without a fault
            if not tensor or not bool(namespace(X).all(self.measure.contains(X))):
                self.measure.require_inside(to_numpy(X), to_numpy(masses), known.names)
            return Rows(X, masses), known

    def _masses(self, weights: Any, X: Array) -> np.ndarray:
        if weights is None:
            masses = np.ones(X.shape[0])
        else:
            masses = as_vector(weights, "weights", length=X.shape[0])
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
        if self.left_out is not None:
            masses[np.isin(row_hashes(to_numpy(X)), self.left_out)] = 0.0
        return masses

    def merge(self, other: Checks) -> Checks:
        """The checks of two sets of chunks, which must have the same columns."""
        if self.n_features is None or other.n_features is None:
            return other if self.n_features is None else self
        if (self.n_features, self.names) != (other.n_features, other.names):
            shown = [
                f"{c.n_features} columns"
                if c.names is None
                else f"the columns {', '.join(c.names)}"
                for c in (self, other)
            ]
            raise ValueError(
                f"some chunks have {shown[0]}, others {shown[1]}; all must have the same ones"
            )
        return self


@dataclass(frozen=True)
class Tally:
    """How far a pass is: chunks, rows, their mass, and the sum of all their bits, which shows
    whether a second pass gives the same rows.
    """

    chunks: int = 0
    rows: int = 0
    checksum: int = 0
    mass: float = 0.0

    @classmethod
    def of(cls, rows: Rows) -> Tally:
        xp, masses = namespace(rows.masses), rows.masses
        checksum = sum(int(xp.sum(bits(numbers))) for numbers in (rows.points, masses)) % 2**64
        return cls(1, int(masses.shape[0]), checksum, float(xp.sum(masses)))

    def merge(self, other: Tally) -> Tally:
        checksum, mass = (self.checksum + other.checksum) % 2**64, self.mass + other.mass
        return Tally(self.chunks + other.chunks, self.rows + other.rows, checksum, mass)

    def same_rows(self, other: Tally) -> bool:
        """Whether as many rows were seen, and the same ones, in whatever chunks."""
        return (self.rows, self.checksum) == (other.rows, other.checksum)


@dataclass(frozen=True, eq=False)
class Gathered:
    """What is known of the chunks so far: a survey if ``most`` says of how many samples, and
    moments and kernel sums if it begins with those of none.
    """

    checks: Checks
    tally: Tally = Tally()
    most: int | None = None
    survey: Survey | None = None
    sums: KernelSums | None = None
    moments: Moments | None = None

    def update(self, chunk: Chunk) -> Gathered:
        """This and one more chunk; a bad chunk raises, and this value stays good."""
        rows, checks = self.checks.rows(chunk)
        return replace(self, checks=checks).add(rows)

    def add(self, rows: Rows) -> Gathered:
        """This and rows that passed the checks."""
        points, masses = rows
        if not points.shape[0]:
            return replace(self, tally=self.tally.merge(Tally(1)))
        survey, moments, sums = self.survey, self.moments, self.sums
        if self.most is not None:
            survey = survey or Survey.empty(self.most, points.shape[1])
            survey = survey.update(points, masses)
        if moments is not None:
            moments = moments.update(to_numpy(points), to_numpy(masses))
        if sums is not None:
            sums = sums.beside(points).update(points, masses)
        tally = self.tally.merge(Tally.of(rows))
        return replace(self, tally=tally, survey=survey, moments=moments, sums=sums)

    def merge(self, other: Gathered) -> Gathered:
        return replace(
            self,
            checks=self.checks.merge(other.checks),
            tally=self.tally.merge(other.tally),
            survey=_merged(self.survey, other.survey),
            moments=_merged(self.moments, other.moments),
            sums=_merged(self.sums, other.sums),
        )


def _merged(a: M | None, b: M | None) -> M | None:
    return b if a is None else a if b is None else a.merge(b)  # type: ignore[attr-defined]


@dataclass
class Passes:
    """The passes of one fit of ``estimator`` over an array or a source, with a file ``checkpoint``
    to go on from.

    What a pass gathers is a :class:`Gathered`, and the source gathers it: a pass asks nothing else
    of the source. ``left_out`` has the hashes of rows of a source that do not count; ``known`` what
    was gathered, by the names of the passes; ``looked``: the first one is complete.
    """

    estimator: Any
    source: Any
    sample_weight: Any
    checkpoint: str | os.PathLike[str] | None = None
    left_out: np.ndarray | None = None
    known: dict[str, Gathered] = field(default_factory=dict)
    looked: bool = False
    fingerprint: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.who = type(self.estimator).__name__
        if not isinstance(self.source, Chunks):
            X = self.source
            data = to_numpy(X) if is_other_array(X) else require_numbers(X)
            # this also stores the features in the estimator
            points = validate_data(self.estimator, data, dtype=np.float64, order="C")
            self.sample = Rows(points, as_masses(self.sample_weight, points.shape[0]))
            return
        forget(self.estimator)
        require_own_weights(self.sample_weight)
        self.fingerprint = self.source.fingerprint()
        if self.checkpoint is not None and os.path.isfile(self.checkpoint):
            self._resume(self.checkpoint)

    def look(
        self,
        most: int,
        measure: Measure,
        nothing: KernelSums | None = None,
        *,
        moments: bool = False,
    ) -> Survey:
        """The first pass: what the samples are, all inside ``measure``; and their kernel sums, if
        ``nothing`` knows at which landmarks.
        """
        first, start = self.known.get(_FIRST), Moments() if moments else None
        if not isinstance(self.source, Chunks):
            names = vars(self.estimator).get("feature_names_in_")
            measure.require_inside(self.sample.points, self.sample.masses, names)
            begun = Gathered(Checks(self.who), most=most, moments=start)
            # an array is one chunk, whose second pass needs no look at it
            first, self.looked = begun.add(self.sample), True
        elif first is None or (first.most, first.moments is not None) != (most, moments):
            d = None if nothing is None else int(nothing.landmarks.shape[1])
            checks = Checks(self.who, n_features=d, left_out=self.left_out)
            first = Gathered(checks, most=most, sums=nothing, moments=start)
            self.known, self.looked = {}, False
        if not self.looked:
            checks = replace(first.checks, measure=measure)
            first = self._gather(replace(first, checks=checks), _FIRST)
            remember(self.estimator, first.checks)
        if first.survey is None:
            raise ValueError(
                f"{self.source!r} is empty: no chunk has rows; at least one sample is needed"
            )
        if not first.survey.count:
            raise ValueError(
                "sample_weight must not be zero everywhere; every sample of the source has weight"
                " zero"
            )
        self.known[_FIRST], self.looked = first, True
        self._save()
        return first.survey

    @property
    def device(self) -> Any:
        """Where tensors of the source or the array lie; None on the host."""
        if not isinstance(self.source, Chunks):
            return self.source if is_other_array(self.source) else None
        return self.known[_FIRST].checks.device

    def add_up(self, nothing: KernelSums) -> Any:
        """The kernel sums of all samples, at the landmarks of ``nothing``: those of the first pass,
        or of a second one.
        """
        if not isinstance(self.source, Chunks):
            return nothing.update(self.sample.points, self.sample.masses)
        first, second = self.known[_FIRST], self.known.get(_SECOND)
        if first.sums is not None and first.sums.same_question(nothing):
            return first.sums
        # a checkpoint may hold the answer to another question
        if second is None or second.sums is None or not second.sums.same_question(nothing):
            second = Gathered(self.known_checks, sums=nothing)
        # before the pass, which may take hours, and after it
        self._require_same_files()
        if not second.tally.same_rows(first.tally):
            second = self._gather(second, _SECOND)
        self._require_same_files()
        self._require_same_rows(second.tally, _SECOND)
        self.known[_SECOND] = second
        self._save()
        return second.sums

    @property
    def known_checks(self) -> Checks:
        """What every chunk must be, the first pass having seen that all are inside the measure."""
        return replace(self.known[_FIRST].checks, measure=Lebesgue())

    @property
    def survey(self) -> Any:
        """What the first pass has found, a :class:`Survey`."""
        return self.known[_FIRST].survey

    @property
    def part(self) -> Part:
        """The samples that decide on the setting, with the moments of all if the first pass was
        asked for them and these are not all.
        """
        moments = self.known[_FIRST].moments
        known = None if moments is None or self.survey.complete else moments.rounded
        return self.survey.part._replace(moments=known)

    @property
    def mass(self) -> float:
        return self.known[_FIRST].tally.mass

    def again(self, nothing: M) -> M:
        """One more pass over all samples, for sums that depend on the density."""
        self._require_same_files()
        found: Any = self.source.gather(nothing)
        self._require_same_rows(found.tally, "later")
        return found

    def _require_same_rows(self, tally: Tally, which: str) -> None:
        first = self.known[_FIRST].tally
        if not tally.same_rows(first):
            raise ValueError(
                f"{self.source!r} gave other rows in its {which} pass ({tally.rows} rows,"
                f" {first.rows} before); a source must give the same rows every time it is read:"
                " fix the seed of what is random"
            )

    # All of a pass, of which ``begun`` is a part; what it has so far is in the checkpoint.
    def _gather(self, begun: Gathered, which: str) -> Gathered:
        total, due = None if which == _FIRST else self.known[_FIRST].tally.rows, -math.inf

        def after(known: Gathered) -> None:
            nonlocal due
            rows, now = known.tally.rows, time.monotonic()
            doing = f"{which} pass over the data, {rows} rows"
            Run.current().tell(doing, None if total is None else rows, total)
            if self.checkpoint is not None:
                self.known[which] = known
                if now >= due:
                    self._save()
                    due = time.monotonic() + (time.monotonic() - now) / _SHARE

        return self.source.gather(begun, done=begun.tally.chunks, after=after)

    def _require_same_files(self) -> None:
        for before, now in zip(self.fingerprint, self.source.fingerprint(), strict=True):
            if before != now:
                raise ValueError(
                    f"{before[0]} has changed since the first pass over it; fit again when nobody"
                    " writes to it"
                )

    def _save(self) -> None:
        if self.checkpoint is None or (survey := self.known[_FIRST].survey) is None:
            return
        state: dict[str, Any] = {
            "looked": self.looked,
            "files": self.fingerprint,
            "names": self.known[_FIRST].checks.names,
            "survey": vars(survey),
            "moments": vars(moments) if (moments := self.known[_FIRST].moments) else None,
        }
        for which, known in self.known.items():
            sums = None if known.sums is None else known.sums.state()
            state[which] = {"tally": vars(known.tally), "sums": sums}
        write_state(self.checkpoint, _KIND, state)

    def _resume(self, checkpoint: str | os.PathLike[str]) -> None:
        state = read_state(checkpoint, _KIND)
        if state["files"] != self.fingerprint:
            raise ValueError(
                f"the checkpoint {os.fspath(checkpoint)} is of other files, or they have changed;"
                " remove it to begin again"
            )
        survey, names = Survey(**state["survey"]), state["names"]
        d = survey.points.shape[1]
        checks = Checks(self.who, n_features=d, names=None if names is None else tuple(names))
        for which in {_FIRST, _SECOND} & set(state):
            held = state[which]["sums"]
            sums = None if held is None else KernelSums.of_state(held)
            self.known[which] = Gathered(checks, Tally(**state[which]["tally"]), sums=sums)
        self.known[_FIRST] = replace(
            self.known[_FIRST],
            most=survey.most,
            survey=survey,
            moments=None if state["moments"] is None else Moments(**state["moments"]),
        )
        self.looked = bool(state["looked"])
        remember(self.estimator, checks)


def require_own_weights(sample_weight: Any) -> None:
    """Raise on weights that are given beside a source."""
    if sample_weight is not None:
        raise ValueError(
            "weights of a source come with its chunks, as pairs (array, weights), or from a column:"
            " chunks(…, weights=…)"
        )


def fit_few(estimator: Any, X: Any, sample_weight: Any, most: int) -> Any:
    """Fit an estimator of arrays to at most so many distinct samples of a source, those of the
    lowest hashes, weighted by their masses.
    """
    estimator._check_parameters()
    numbered = estimator.cv is None or isinstance(estimator.cv, Integral)
    if estimator.contamination is not None or not numbered:
        raise ValueError(
            "a source has no rows that contamination could hold out, or cv could number; give cv as"
            " a number, or fit an array"
        )
    measure = Lebesgue() if estimator.measure is None else estimator.measure
    part = Passes(estimator, *as_source(X, sample_weight)).look(most, measure).part
    # the fit to an array without names forgets those of the source
    names = vars(estimator).get("feature_names_in_")
    estimator._fit(part.points, part.weights)
    if names is not None:
        estimator.feature_names_in_ = names
        estimator._name_features()
    return estimator


def forget(estimator: Any, names: Iterable[str] = ("n_features_in_", "feature_names_in_")) -> None:
    """Take attributes of an earlier fit away; by default its features."""
    for name in names:
        vars(estimator).pop(name, None)


def remember(estimator: Any, checks: Checks) -> None:
    """Tell the estimator its features."""
    estimator.n_features_in_ = checks.n_features
    if checks.names is not None:
        estimator.feature_names_in_ = np.asarray(checks.names, dtype=object)


@dataclass(frozen=True)
class LogDensity:
    """The map of a chunk to the log-densities of its rows, shape (n,); it can be pickled."""

    checks: Checks
    density: SoSDensity

    def __call__(self, chunk: Chunk) -> np.ndarray:
        return self.weighted(chunk)[0]

    def weighted(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The log-densities, and the masses of the rows."""
        rows, _ = self.checks.rows(chunk)
        scores = self.density.logpdf(rows.points) if rows.points.shape[0] else np.empty(0)
        return to_numpy(scores), to_numpy(rows.masses)


@dataclass(frozen=True)
class MeanScore:
    """Σ_i a_i log p(x_i) and Σ_i a_i of the chunks so far; a row of weight zero does not count,
    even where its density is zero.
    """

    of: LogDensity
    total: float = 0.0
    mass: float = 0.0

    def update(self, chunk: Chunk) -> MeanScore:
        scores, masses = self.of.weighted(chunk)
        # 0 · −∞ is not a number
        counted = masses > 0.0
        return replace(
            self,
            total=self.total + float(masses[counted] @ scores[counted]),
            mass=self.mass + float(masses.sum()),
        )

    def merge(self, other: MeanScore) -> MeanScore:
        return replace(self, total=self.total + other.total, mass=self.mass + other.mass)

    @property
    def value(self) -> float:
        """The mean."""
        if not self.mass > 0.0:
            raise ValueError("the source has no samples of positive weight; there is no mean score")
        return self.total / self.mass


def written(
    chunks: Iterable[Any], path: str | os.PathLike[str], row: tuple[int, ...] = ()
) -> np.ndarray:
    """The numbers of all chunks in an NPY file, written whole or not at all, and mapped to memory
    to be read. ``row`` is the shape of what belongs to a sample, such as () for scores.
    """
    count = 0

    def head() -> bytes:
        """The header for as many rows; NumPy leaves space in it for a number that grows."""
        buffer, dtype = io.BytesIO(), npy.dtype_to_descr(np.dtype(np.float64))
        layout = {"descr": dtype, "fortran_order": False, "shape": (count, *row)}
        npy.write_array_header_1_0(buffer, layout)
        return buffer.getvalue()

    def parts() -> Iterator[bytes | memoryview]:
        nonlocal count
        # written again when the count is known, over the same bytes
        yield head()
        for chunk in chunks:
            count += chunk.shape[0]
            yield np.ascontiguousarray(chunk).data

    replace_whole(path, parts(), head)
    return np.load(path, mmap_mode="r")
