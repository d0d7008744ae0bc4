"""Passes over samples that come in chunks: the first looks at them, the second adds up kernel sums;
each can stop and go on from a file.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import validate_data

from ksos.data.gathered import Checks, Gathered, Rows, Tally, require_own_weights
from ksos.data.kernel_sums import KernelSums
from ksos.data.moments import Moments
from ksos.data.samples import require_inside
from ksos.data.sources import Chunks, as_source
from ksos.data.subsample import Part, Survey
from ksos.ground.arrays import is_other_array, to_numpy
from ksos.ground.progress import tell
from ksos.ground.state import read_state, write_state
from ksos.ground.validation import as_masses, require_numbers
from ksos.measures import Lebesgue, Measure

__all__ = ["Passes", "fit_few", "forget", "remember"]

_SHARE = 0.05  # of the time, at most, is spent on checkpoints
_KIND = "a fit in progress"
_FIRST, _SECOND = "first", "second"

Sums = TypeVar("Sums")


@dataclass
class Passes:
    """The passes of one fit of ``estimator`` over an array or a source, with a file ``checkpoint``
    to go on from.

    What a pass gathers is a :class:`Gathered`, and the source gathers it: a pass asks nothing else
    of the source.
    """

    estimator: Any
    source: Any
    sample_weight: Any
    checkpoint: str | os.PathLike[str] | None = None
    left_out: np.ndarray | None = None
    """The hashes of rows of a source that do not count."""
    known: dict[str, Gathered] = field(default_factory=dict)
    """By the names of the passes."""
    looked: bool = False
    fingerprint: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.who = type(self.estimator).__name__
        if not isinstance(self.source, Chunks):
            self.sample = checked_array(self.estimator, self.source, self.sample_weight)
            return
        forget(self.estimator)
        require_own_weights(self.sample_weight)
        self.fingerprint = self.source.fingerprint()
        if self.checkpoint is not None and os.path.isfile(self.checkpoint):
            self._resume()

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
        if not isinstance(self.source, Chunks):
            require_inside(
                measure,
                self.sample.points,
                self.sample.masses,
                vars(self.estimator).get("feature_names_in_"),
            )
            first, self.looked = (
                Gathered(Checks(self.who), most=most, wants_moments=moments).add(self.sample),
                True,
            )
        elif _FIRST in self.known and (
            self.known[_FIRST].most,
            self.known[_FIRST].wants_moments,
        ) == (most, moments):
            first = self.known[_FIRST]
        else:
            checks = Checks(
                self.who,
                n_features=None if nothing is None else nothing.n_features,
                left_out=self.left_out,
            )
            first, self.known, self.looked = (
                Gathered(checks, most=most, sums=nothing, wants_moments=moments),
                {},
                False,
            )
        if not self.looked:
            first = self._gather(
                replace(first, checks=replace(first.checks, measure=measure)), _FIRST
            )
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

    def add_up(self, nothing: KernelSums) -> KernelSums:
        """The kernel sums of all samples, at the landmarks of ``nothing``: those of the first pass,
        or of a second one.
        """
        if not isinstance(self.source, Chunks):
            return nothing.update(self.sample.points, self.sample.masses)
        first, second = self.known[_FIRST], self.known.get(_SECOND)
        if first.sums is not None and first.sums.same_question(nothing):
            return first.sums
        if (
            second is None or second.sums is None or not second.sums.same_question(nothing)
        ):  # another question than the checkpoint's
            second = Gathered(self.known_checks, sums=nothing)
        self._require_same_files()
        if not second.tally.same_rows(first.tally):
            second = self._gather(second, _SECOND)
        self._require_same_files()
        self._require_same_rows(second.tally, _SECOND)
        self.known[_SECOND] = second
        self._save()
        assert second.sums is not None
        return second.sums

    @property
    def known_checks(self) -> Checks:
        """What every chunk must be, the first pass having seen that all are inside the measure."""
        return replace(self.known[_FIRST].checks, measure=Lebesgue())

    @property
    def part(self) -> Part:
        """The samples that decide on the setting, with the moments of all if the first pass was
        asked for them and these are not all.
        """
        known = self.known[_FIRST].moments
        return (
            self.survey.part
            if known is None or self.survey.complete
            else self.survey.part._replace(moments=known.rounded)
        )

    @property
    def survey(self) -> Survey:
        """What the first pass has found."""
        found = self.known[_FIRST].survey
        assert found is not None
        return found

    @property
    def mass(self) -> float:
        """The sum of all masses."""
        return self.known[_FIRST].tally.mass

    def again(self, nothing: Sums) -> Sums:
        """One more pass over all samples, for sums that depend on the density."""
        self._require_same_files()
        found: Sums = self.source.gather(nothing)
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

    def _gather(self, begun: Gathered, which: str) -> Gathered:
        """All of a pass, of which ``begun`` is a part; what it has so far is in the checkpoint."""
        due, total = _Due(), None if which == _FIRST else self.known[_FIRST].tally.rows

        def after(known: Gathered) -> None:
            rows = known.tally.rows
            tell(f"{which} pass over the data, {rows} rows", None if total is None else rows, total)
            if self.checkpoint is not None and not known.waiting:
                self.known[which] = known
                due(self._save)

        return self.source.gather(begun, done=begun.tally.chunks, after=after).settled

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
        names = self.known[_FIRST].checks.names
        held: dict[str, Any] = {
            "looked": self.looked,
            "files": self.fingerprint,
            "names": None if names is None else list(names),
        }
        held["survey"], arrays = survey.state()
        stored = {f"survey.{name}": array for name, array in arrays.items()}
        if (moments := self.known[_FIRST].moments) is not None:
            stored |= {
                "moments.mass": np.array(moments.mass),
                "moments.mean": moments.mean,
                "moments.scatter": moments.scatter,
            }
        for which, known in self.known.items():
            held[which] = vars(known.tally)
            if known.sums is not None:
                held[f"{which} sums"], arrays = known.sums.state()
                stored |= {f"{which} sums.{name}": array for name, array in arrays.items()}
        write_state(self.checkpoint, _KIND, held, stored)

    def _resume(self) -> None:
        assert self.checkpoint is not None
        words, stored = read_state(self.checkpoint, _KIND)
        if words["files"] != self.fingerprint:
            raise ValueError(
                f"the checkpoint {os.fspath(self.checkpoint)} is of other files, or they have"
                " changed; remove it to begin again"
            )

        def part(name: str) -> dict[str, np.ndarray]:
            return {
                key.split(".", 1)[1]: array
                for key, array in stored.items()
                if key.startswith(f"{name}.")
            }

        survey, names = Survey.of_state(words["survey"], part("survey")), words["names"]
        checks = Checks(
            self.who,
            n_features=survey.points.shape[1],
            names=None if names is None else tuple(names),
        )
        for which in (_FIRST, _SECOND):
            if which in words:
                sums = (
                    KernelSums.of_state(words[name], part(name))
                    if (name := f"{which} sums") in words
                    else None
                )
                kept = part("moments")
                moments = (
                    Moments(float(kept["mass"]), kept["mean"], kept["scatter"]) if kept else None
                )
                own: dict[str, Any] = {
                    "most": survey.most,
                    "survey": survey,
                    "wants_moments": bool(kept),
                    "moments": moments,
                }
                of_first = own if which == _FIRST else {}
                self.known[which] = Gathered(checks, Tally(**words[which]), sums=sums, **of_first)
        self.looked = bool(words["looked"])
        remember(self.estimator, checks)


class _Due:
    """Calls what it is given, so rarely that this takes at most a twentieth of the time."""

    def __init__(self) -> None:
        self._next = -np.inf

    def __call__(self, work: Callable[[], None]) -> None:
        if (began := time.monotonic()) >= self._next:
            work()
            now = time.monotonic()
            self._next = now + (now - began) / _SHARE


def fit_few(estimator: Any, X: Any, sample_weight: Any, most: int) -> Any:
    """Fit an estimator of arrays to at most so many distinct samples of a source, those of the
    lowest hashes, weighted by their masses.
    """
    estimator._check_parameters()
    if estimator.contamination is not None or not (
        estimator.cv is None or isinstance(estimator.cv, Integral)
    ):
        raise ValueError(
            "a source has no rows that contamination could hold out, or cv could number; give cv as"
            " a number, or fit an array"
        )
    source, weights = as_source(X, sample_weight)
    part = (
        Passes(estimator, source, weights)
        .look(most, Lebesgue() if estimator.measure is None else estimator.measure)
        .part
    )
    names = vars(estimator).get("feature_names_in_")
    estimator._fit(part.points, part.weights)
    if names is not None:
        estimator.feature_names_in_ = names
        estimator._name_features()
    return estimator


def checked_array(estimator: Any, X: Any, sample_weight: Any) -> Rows:
    """The samples of an array as ``fit`` takes them, which also tells ``estimator`` its features."""
    data = to_numpy(X) if is_other_array(X) else require_numbers(X)
    points = validate_data(estimator, data, dtype=np.float64, order="C")
    return Rows(points, as_masses(sample_weight, points.shape[0]))


def forget(estimator: Any, names: Iterable[str] = ("n_features_in_", "feature_names_in_")) -> None:
    """Take attributes of an earlier fit away; by default its features."""
    for name in names:
        vars(estimator).pop(name, None)


def remember(estimator: Any, checks: Checks) -> None:
    """Tell the estimator its features."""
    estimator.n_features_in_ = checks.n_features
    if checks.names is not None:
        estimator.feature_names_in_ = np.asarray(checks.names, dtype=object)
