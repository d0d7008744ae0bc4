"""A fit to samples that come without end, and what is fixed before their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ksos.data.kernel_sums import KernelSums
from ksos.data.passes import Checks, Gathered, Rows
from ksos.data.survey import Part
from ksos.ground.arrays import like
from ksos.space.embedding import MeanEmbedding
from ksos.space.space import SoSSpace

__all__ = ["Running", "Setting"]


class Setting(NamedTuple):
    """What is fixed before the sums: the space, and whether time was too short for all of its
    support points.
    """

    space: SoSSpace
    cut: bool

    @property
    def nothing(self) -> KernelSums:
        """The kernel sums of no samples."""
        return KernelSums(self.space.embedding_kernel, self.space.landmarks)

    def embedding(self, part: Part) -> MeanEmbedding:
        """That of distinct samples, which are all there are."""
        return MeanEmbedding(
            like(part.points, self.space.support_points),
            part.weights,
            kernel=self.space.embedding_kernel,
        )


@dataclass(frozen=True)
class Running:
    """Samples that come without end: all of them as long as they are few, then their kernel sums
    with a setting that stays.
    """

    known: Gathered
    setting: Setting | None = None

    @classmethod
    def begin(cls, checks: Checks, most: int) -> Running:
        """No samples yet."""
        return cls(Gathered(checks, most=most))

    def update(self, rows: Rows, checks: Checks, settle: Callable[[Part], Setting]) -> Running:
        """These and more samples; when they are too many to be kept, ``settle`` fixes what they are
        summed against.
        """
        known, earlier = replace(self.known, checks=checks).add(rows), self.known.survey
        if self.setting is not None or known.survey is None or known.survey.complete:
            return Running(known, self.setting)
        setting = settle(known.survey.part)
        sums = (
            setting.nothing
            if earlier is None
            else setting.nothing.update(earlier.points, earlier.masses)
        )  # all of them are still known
        return Running(replace(known, sums=sums.update(rows.points, rows.masses)), setting)
