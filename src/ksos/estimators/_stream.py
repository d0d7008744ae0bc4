"""Passes over samples that come in chunks: the first looks at them, the second adds up kernel sums; each can stop and go on from a file."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import validate_data

from ksos._array import is_other_array, like, to_numpy
from ksos._state import read_state, write_state
from ksos._validation import as_masses, as_vector, require_numbers
from ksos.embedding import MeanEmbedding
from ksos.estimators._samples import require_inside
from ksos.estimators._subsample import Part, Survey, row_hashes
from ksos.kernel_sums import KernelSums
from ksos.measures import Lebesgue, Measure
from ksos.sources import Chunk, Chunks
from ksos.space import SoSSpace

__all__ = ["Passes", "Rows", "Running", "Setting", "checked_rows", "forget"]

_BATCH_ROWS = 1 << 15  # smaller chunks are put together: what a chunk costs by itself is then small
_SHARE = 0.05  # of the time, at most, is spent on checkpoints
_KIND = "a fit in progress"


class Rows(NamedTuple):
    """Samples that passed every check, their masses, and how many chunks of the source they and those before them are."""

    points: np.ndarray
    masses: np.ndarray
    chunks: int


@dataclass(frozen=True)
class Tally:
    """How far a pass is: chunks, rows, and the sum of the hashes of the rows, which tells whether a second pass gives the same rows."""

    chunks: int = 0
    rows: int = 0
    checksum: int = 0

    def after(self, batch: Rows, hashes: np.ndarray) -> Tally:
        total = int(np.sum(hashes, dtype=np.uint64))
        return Tally(batch.chunks, self.rows + batch.points.shape[0], (self.checksum + total) % 2**64)


class Setting(NamedTuple):
    """What is fixed before the sums: the space, and whether time was too short for all of its support points."""

    space: SoSSpace
    cut: bool

    @property
    def nothing(self) -> KernelSums:
        """The kernel sums of no samples."""
        return KernelSums(self.space.embedding_kernel, self.space.landmarks)

    def embedding(self, part: Part) -> MeanEmbedding:
        """That of distinct samples, which are all there are."""
        return MeanEmbedding(like(part.points, self.space.support_points), part.weights, kernel=self.space.embedding_kernel)


@dataclass(frozen=True)
class Running:
    """Samples that come without end: all of them as long as they are few, then their kernel sums with a setting that stays."""

    survey: Survey
    sums: KernelSums | None = None
    setting: Setting | None = None

    @classmethod
    def begin(cls, most: int, rows: Rows) -> Running:
        """No samples, of as many features as ``rows`` have."""
        return cls(Survey.empty(most, rows.points.shape[1]))

    def update(self, rows: Rows, settle: Callable[[Part], Setting]) -> Running:
        """These and more samples; when they are too many to be kept, ``settle`` fixes what they are summed against."""
        survey = self.survey.update(rows.points, rows.masses)
        if self.sums is None or self.setting is None:
            if survey.complete:
                return Running(survey)
            setting = settle(survey.part)
            sums, known = setting.nothing, self.survey  # all earlier samples are still known
            if known.points.shape[0]:
                sums = sums.update(known.points, known.masses)
            return Running(survey, sums.update(rows.points, rows.masses), setting)
        return Running(survey, self.sums.update(rows.points, rows.masses), self.setting)


@dataclass
class Passes:
    """The passes of one fit of ``estimator`` over an array or a source, with a file ``checkpoint`` to go on from."""

    estimator: Any
    source: Any
    sample_weight: Any
    checkpoint: str | os.PathLike[str] | None = None
    first: Tally = field(default_factory=Tally)
    second: Tally = field(default_factory=Tally)
    survey: Survey | None = None
    sums: KernelSums | None = None
    looked: bool = False
    fingerprint: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not isinstance(self.source, Chunks):
            self.sample = checked_rows(self.estimator, Chunk(self.source, self.sample_weight, ""), 0)
            return
        forget(self.estimator)
        if self.sample_weight is not None:
            raise ValueError("weights of a source come with its chunks, as pairs (array, weights), or from a column: chunks(…, weights=…)")
        self.fingerprint = self.source.fingerprint()
        if self.checkpoint is not None and os.path.isfile(self.checkpoint):
            self._resume()

    def look(self, most: int, measure: Measure, question: Callable[[Part], Setting] | None = None) -> Survey:
        """The first pass: what the samples are, all inside ``measure``; and their kernel sums, if these are known without the samples."""
        if self.survey is None or self.survey.most != most:
            self._begin_again()
        if self.looked:
            assert self.survey is not None
            return self.survey
        due = _Due()
        for batch in self._batches(self.first.chunks, measure):
            survey = Survey.empty(most, batch.points.shape[1]) if self.survey is None else self.survey
            hashes = row_hashes(batch.points)
            if question is not None:
                before = question(survey.update(batch.points, batch.masses, hashes).part).nothing if self.sums is None else self.sums
                self.sums = before.update(batch.points, batch.masses)
            self.survey, self.first = survey.update(batch.points, batch.masses, hashes), self.first.after(batch, hashes)
            due(self._save)
        if self.survey is None:
            raise ValueError(f"{self.source!r} is empty: no chunk has rows; at least one sample is needed")
        if not self.survey.count:
            raise ValueError("sample_weight must not be zero everywhere; every sample of the source has weight zero")
        self.looked, self.second = True, Tally() if question is None else self.first
        self._save()
        return self.survey

    def _begin_again(self) -> None:
        self.first, self.second, self.survey, self.sums, self.looked = Tally(), Tally(), None, None, False

    def add_up(self, nothing: KernelSums) -> KernelSums:
        """The second pass: the kernel sums of all samples, at the landmarks of ``nothing``."""
        if self.sums is None or not self.sums.same_question(nothing):  # another question than that of the checkpoint: from the beginning
            self.sums, self.second = nothing, Tally()
        if self.looked and self.second == self.first:
            return self.sums
        self._require_same(self.first, complete=False)
        due = _Due()
        for batch in self._batches(self.second.chunks, Lebesgue()):
            hashes = row_hashes(batch.points) if isinstance(self.source, Chunks) else np.zeros(1, dtype=np.uint64)
            self.sums, self.second = self.sums.update(batch.points, batch.masses), self.second.after(batch, hashes)
            due(self._save)
        if isinstance(self.source, Chunks):
            self._require_same(self.second, complete=True)
            self._save()
        return self.sums

    def _batches(self, done: int, measure: Measure) -> Iterator[Rows]:
        """The samples in batches of a useful size, all checked and inside ``measure``, without the first ``done`` chunks."""
        if not isinstance(self.source, Chunks):
            self._require_inside(measure, self.sample)
            yield self.sample
            return
        gathered: list[Rows] = []
        for k, chunk in enumerate(self.source):
            if k < done:
                continue
            with _naming(chunk.name):
                rows = checked_rows(self.estimator, chunk, k)
                if not rows.points.shape[0]:
                    continue
                self._require_inside(measure, rows)
            small = rows.points.shape[0] < _BATCH_ROWS
            gathered.append(Rows(rows.points.copy(), rows.masses.copy(), k + 1) if small else rows)  # its owner may fill it anew
            if sum(part.points.shape[0] for part in gathered) >= _BATCH_ROWS:
                yield _together(gathered)
                gathered = []
        if gathered:
            yield _together(gathered)

    def _require_inside(self, measure: Measure, rows: Rows) -> None:
        require_inside(measure, rows.points, rows.masses, vars(self.estimator).get("feature_names_in_"))

    def _require_same(self, tally: Tally, *, complete: bool) -> None:
        """Raise if the source has changed since the first pass."""
        if isinstance(self.source, Chunks):
            for before, now in zip(self.fingerprint, self.source.fingerprint(), strict=True):
                if before != now:
                    raise ValueError(f"{before[0]} has changed since the first pass over it; fit again when nobody writes to it")
            if complete and replace(tally, chunks=0) != replace(self.first, chunks=0):
                raise ValueError(
                    f"{self.source!r} gave other rows in its second pass ({tally.rows} rows, {self.first.rows} before); a source must "
                    "give the same rows every time it is read: fix the seed of what is random"
                )

    def _save(self) -> None:
        if self.checkpoint is None or self.survey is None or not isinstance(self.source, Chunks):
            return
        words, arrays = self.survey.state()
        held: dict[str, Any] = {
            "survey": words,
            "first": vars(self.first),
            "second": vars(self.second),
            "looked": self.looked,
            "files": self.fingerprint,
        }
        held["names"] = list(map(str, vars(self.estimator).get("feature_names_in_", ())))
        stored = {f"survey.{name}": array for name, array in arrays.items()}
        if self.sums is not None:
            held["sums"], arrays = self.sums.state()
            stored |= {f"sums.{name}": array for name, array in arrays.items()}
        write_state(self.checkpoint, _KIND, held, stored)

    def _resume(self) -> None:
        assert self.checkpoint is not None
        words, stored = read_state(self.checkpoint, _KIND)
        if words["files"] != self.fingerprint:
            raise ValueError(
                f"the checkpoint {os.fspath(self.checkpoint)} is of other files, or they have changed; remove it to begin again"
            )

        def part(name: str) -> dict[str, np.ndarray]:
            return {key.split(".", 1)[1]: array for key, array in stored.items() if key.startswith(f"{name}.")}

        self.survey, self.first, self.second = Survey.of_state(words["survey"], part("survey")), *_tallies(words)
        self.looked = bool(words["looked"])
        if "sums" in words:
            self.sums = KernelSums.of_state(words["sums"], part("sums"))
        _remember(self.estimator, self.survey.points.shape[1], words["names"] or None)


def _tallies(words: dict[str, Any]) -> tuple[Tally, Tally]:
    return Tally(**words["first"]), Tally(**words["second"])


class _Due:
    """Calls what it is given, so rarely that this takes at most a twentieth of the time."""

    def __init__(self) -> None:
        self._next = -np.inf

    def __call__(self, work: Callable[[], None]) -> None:
        if (began := time.monotonic()) >= self._next:
            work()
            now = time.monotonic()
            self._next = now + (now - began) / _SHARE


class _naming:
    """Puts the name of a chunk before the message of an error in it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (ValueError, TypeError)):
            raise type(error)(f"{self.name}: {error}") from None


def checked_rows(estimator: Any, chunk: Chunk, number: int) -> Rows:
    """The samples of a chunk as ``fit`` takes them; the first one says how many features there are, and their names."""
    data, weights = chunk.data, chunk.weights
    if not chunk.name:
        data = require_numbers(data) if not is_other_array(data) else to_numpy(data)
        X = validate_data(estimator, data, dtype=np.float64, order="C")
        return Rows(X, as_masses(weights, X.shape[0]), 1)
    data = to_numpy(data) if is_other_array(data) else require_numbers(data)
    if np.ndim(data) == 2 and not np.shape(data)[0]:
        return Rows(np.empty(np.shape(data)), np.empty(0), number)
    X = np.asarray(data)
    if "n_features_in_" not in vars(estimator):
        _remember(estimator, X.shape[1] if X.ndim == 2 else 0, chunk.names)
    known = vars(estimator).get("feature_names_in_")
    if chunk.names is not None and known is not None and chunk.names != tuple(known):
        if sorted(chunk.names) != sorted(known):
            raise ValueError(f"its columns are {', '.join(chunk.names)}, but those of the first chunk are {', '.join(known)}")
        X = X[:, [chunk.names.index(name) for name in known]]
    names = vars(estimator).pop("feature_names_in_", None)  # scikit-learn would miss the names of an array
    try:
        X = validate_data(estimator, X, dtype=np.float64, order="C", reset=False)
    finally:
        if names is not None:
            estimator.feature_names_in_ = names
    if weights is None:
        return Rows(X, np.ones(X.shape[0]), number + 1)
    masses = as_vector(weights, "weights", length=X.shape[0])  # in the unit of all chunks
    if np.any(masses < 0.0):
        raise ValueError(f"weights must not be negative; entry {int(np.argmin(masses))} is {masses.min():g}")
    return Rows(X, masses, number + 1)


def forget(estimator: Any, names: Iterable[str] = ("n_features_in_", "feature_names_in_")) -> None:
    """Take attributes of an earlier fit away; by default its features."""
    for name in names:
        vars(estimator).pop(name, None)


def _remember(estimator: Any, n_features: int, names: Any) -> None:
    estimator.n_features_in_ = n_features
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def _together(parts: list[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    points, masses = (np.concatenate(arrays) for arrays in zip(*((p.points, p.masses) for p in parts), strict=True))
    return Rows(points, masses, parts[-1].chunks)
