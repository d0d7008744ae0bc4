"""The stack of mixtures that a mixed table is corrected from: numeric and categorical columns, with
missing cells.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ksos.choose.bandwidth import FARTHEST, Units
from ksos.choose.mixtures import Samples, converged, mixture_path
from ksos.choose.reference import FEW_FLOOR, FLOORS, Fit, Stack, Step
from ksos.data import Fold
from ksos.density import MixedReference
from ksos.ground import Run

_MOST_LEVELS = 6  # Levels of a column at which fits start: with more, few rows are left for each.
_CLUSTERS = (1, 2, 3)  # Clusters in each level at a start.
_ROWS = 8  # Rows for each cluster, on average, that make such a start worth its time.

# The draws of a round are chosen on the development tables of benchmarks/mixed_tables.py.
_DRAWS = (1, 2, 4)  # of missing cells per round: (1, 2) costs 0.1 nats on crabs, 30% missing
_MOST_STEPS = 12  # of EM with what is observed alone: a limit of time, as one takes up to a second
_MOST_FIRST = 8  # components before the last round, which only feed its draws: a limit of time


def units_of(u: np.ndarray, masses: np.ndarray, rng: np.random.Generator) -> Units:
    """The units of numeric columns with missing cells, from what is observed of each."""
    found = [np.empty((3, 0))]
    for x in u.T:
        seen = ~np.isnan(x)
        weights = masses[seen] / masses[seen].sum()
        found.append(np.stack(Units.of(x[seen][:, None], weights, rng)))
    shift, scale, still = np.concatenate(found, axis=1)
    return Units(shift, scale, still > 0.0)


class MixedStack(Stack):
    """The stack of a table of numeric cells ``u`` and codes ``c``, with ``counts`` levels in each
    categorical column.

    Beside the starts of numeric tables there are those at the levels of a column: components that
    belong to a class.

    Missing numeric cells are drawn given the other cells of their row, first from one normal
    distribution, then from the stack of the round before: those of the rows that a fold trains on
    from the fits without this fold, so that held-out rows stay unseen. Fits to drawn cells take a
    small part of the time of expectation–maximization over all sets of observed cells [Tanner1987].
    Held-out rows judge the candidates by their observed cells alone.

    A ``brief`` one has one start of few components, and missing cells are drawn once.
    """

    def __init__(
        self,
        u: np.ndarray,
        c: np.ndarray,
        counts: tuple[int, ...],
        weights: np.ndarray,
        folds: Sequence[Fold],
        units: Units,
        brief: bool = False,
    ) -> None:
        self.u, self.codes, self.counts, self.brief = u, c, counts, brief
        super().__init__(u, weights, folds, units)
        self.drawn: list[tuple[Samples, np.ndarray]] = []
        self.gaps = bool(np.isnan(u).any())
        self.rounds = len(_DRAWS) if self.gaps and not brief else 1

    def fit(self, begin: Callable[[str], None] = lambda _: None) -> None:
        if self.gaps:
            samples, floor = self.samples[0][0], np.where(self.units.still, 1.0, FLOORS[-1])
            center = np.zeros((1, 1), dtype=int)
            (one,) = mixture_path(samples, self.masses[-1:], center, [floor])
            self._draw([self._in_data(*(part[0] for part in one))], [self.masses], 0)
        for k in range(1, self.rounds):
            super().fit(begin)
            self.solve()
            self.fits = [self.fits[j] for j in self.kept]
            self.held_out, self.kept = self.held_out[:, self.kept], np.arange(len(self.fits))
            folds = [self.of_fold(j) for j in range(len(self.folds))]
            every = self._mixture(self.weights, [-1])
            self._draw([*folds, every], np.split(self.masses, len(self.masses)), k)
        super().fit(begin)
        if self.gaps and not self.brief:
            self._go_on()

    # The candidates of positive weight once more, as EM with what is observed alone goes on from
    # them: draws blur what columns tell exactly of each other, but keep few rows from being
    # followed too closely.
    def _go_on(self) -> None:
        self.solve()
        (samples, _), done = self.samples[0], list[Fit]()
        for fit in [self.fits[j] for j in self.kept]:
            if fit.floor is None or Run.current().over:
                continue
            start = samples, self.masses, fit.mixtures, fit.floor, fit.shared
            found = converged(*start, _MOST_STEPS)
            found = self._without_spikes(found, samples, self.masses, fit.floor)
            done.append(Fit(found.smoothed(samples, self.masses)))
        self.held_out = np.column_stack([self.held_out, *map(self._unseen, done)])
        self.fits += done

    # Draw the missing numeric cells from each; levels stay missing.
    def _draw(
        self, references: Sequence[MixedReference], masses: Sequence[np.ndarray], number: int
    ) -> None:
        rng, self.drawn = np.random.default_rng(number), []
        self.last = number == self.rounds - 1
        copies = np.where(np.isnan(self.u).any(axis=1), _DRAWS[number], 1)
        rows, starts = np.repeat(np.arange(copies.size), copies), np.cumsum(copies) - copies
        u, c = self.u[rows], self.codes[rows]
        for reference, own in zip(references, masses, strict=True):
            logs = reference.log_components(self.u, self.codes)
            shares = np.exp(logs - logs.max(axis=1, keepdims=True))
            y = self.units.of_points(reference.complete(u, c, shares[rows], rng)[0])
            samples = Samples.of_cells(np.clip(y, -FARTHEST, FARTHEST), c, self.counts)
            assert samples.cells is not None
            samples = samples._replace(cells=samples.cells._replace(starts=starts))
            self.drawn.append((samples, own[:, rows] / copies[rows]))

    def _weightings(self, samples: Samples) -> list[tuple[Samples, np.ndarray]]:
        return self.drawn or super()._weightings(samples)

    @property
    def plan(self) -> list[Step]:
        steps, n, most = super().plan, self.codes.shape[0], max(self.sizes)
        for column, count in enumerate(self.counts):
            if 2 <= count <= _MOST_LEVELS:
                sizes = [count * s for s in _CLUSTERS if count * s * _ROWS <= n]
                for size in [size for size in sizes if size <= most]:
                    steps.append(Step(size, 0, (FEW_FLOOR, *FLOORS), False, column))
                    steps.append(Step(size, 0, FLOORS[-1:], True, column))
        if self.brief or (self.drawn and not self.last):
            return [step for step in steps if step.start == 0 and step.components <= _MOST_FIRST]
        return steps

    def _in_data(
        self, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, chances: np.ndarray
    ) -> MixedReference:
        scale = self.units.scale
        ends = np.cumsum(self.counts).tolist()
        columns = [
            chances[:, end - n : end] / chances[:, end - n : end].sum(axis=1, keepdims=True)
            for end, n in zip(ends, self.counts, strict=True)
        ]
        return MixedReference(
            weights / weights.sum(),
            self.units.shift + means * scale,
            covariances * (scale[:, None] * scale),
            tuple(columns),
        )
