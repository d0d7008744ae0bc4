r"""A mixture of normal densities, corrected by a square with a constant:
Σ_c w_c N_c(x)‖c + Fᵀk(x)‖².

The class is closed under conditioning, affine maps and products with Gaussians. A marginal keeps
the joint density and the features that are shown: what is linear in p is asked of the joint one,
and its values are those of a row in which the other features are missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ksos.density.factor import log_sum
from ksos.density.mixed import MixedTerms
from ksos.density.mixed_reference import MixedReference
from ksos.density.mixed_square import Correction
from ksos.density.normals import Group, Interval
from ksos.density.square import Square
from ksos.ground import Array, like, row_blocks, to_numpy
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue, Measure, Normals
from ksos.quadrature import composite

# values of normal densities that are held at a time: 8 MB, with few passes over all of them
_NORMAL_ELEMENTS = 1 << 20
_REACH = 8.5  # standard deviations beyond which a normal distribution has a mass of 1e-17
_NODES_PER_LENGTH = 4.5  # Gauss–Legendre, for 1e-12 on lengths on which the density varies
_LENGTHS_PER_PANEL = 3.0  # so short that a rule of few nodes, made quickly, serves every panel
_KERNEL_COST = 0.2  # a kernel value takes this share of the time of a value of a normal density


@dataclass(eq=False)
class Corrected:
    """The features ``shown`` of a square with a constant over normal densities, by volume, perhaps
    given the interval of another feature.
    """

    joint: Square
    shown: list[int]
    interval: Interval | None = None

    def __post_init__(self) -> None:
        joint, every = self.joint, self.joint.n_features
        self.n_features = len(self.shown)
        # the features that are integrated out, and whether all are shown in their places
        self.hidden = [k for k in range(every) if k not in self.shown]
        self.is_whole = self.shown == list(range(every))
        # what logpdf is relative to
        self.measure: Measure = joint.measure if self.is_whole else Lebesgue()
        # the normal densities of all features, and those of the features shown
        self.all_normals = cast("Normals", joint.measure.normals(every))
        (weights, means, covariances), index = self.all_normals, np.array(self.shown, dtype=int)
        self.normals = Normals(weights, means[:, index], covariances[:, index[:, None], index])
        # the support points and rows of F that change them, in natural units
        X, F = (to_numpy(part) for part in (joint.support_points, joint.unit_factor))
        used = np.any(F != 0.0, axis=1)
        X, F, self.n_corrections = X[used], F[used], int(used.sum())
        metric, c = cast("Gaussian", joint.kernel).matrix(every), to_numpy(joint.unit_constant)
        no_levels = np.empty((X.shape[0], 0), dtype=int)
        self.correction = Correction(metric, np.empty(0), X, no_levels, F, c)

    @property
    def support_points(self) -> np.ndarray:
        """Those of the correction, and the means of the normal densities, in the features shown."""
        every = np.concatenate([self.correction.points, self.all_normals.means])
        return like(every[:, self.shown], self.joint.support_points)

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""
        of_normals = 2.0 * self.deviations.min(axis=0)
        if not self.n_corrections:
            return of_normals
        return np.minimum(of_normals, np.sqrt(np.diagonal(self.correction.metric))[self.shown])

    @cached_property
    def deviations(self) -> np.ndarray:
        """Of each normal density, those of the features shown; of one within an interval, the
        lengths on which its density varies, shape (c, d).
        """
        variances = np.diagonal(self.normals.covariances, axis1=1, axis2=2)
        if self.interval is not None:
            V, T = self.all_normals.covariances, self.interval.feature
            variances = variances - V[:, self.shown, T] ** 2 / V[:, T, T][:, None]
        return np.sqrt(variances)

    @cached_property
    def opened(self) -> Corrected:
        """The density of the features shown and of the one in the interval, before it was known."""
        shown = self.shown if self.interval is None else [*self.shown, self.interval.feature]
        return Corrected(self.joint, shown)

    @cached_property
    def log_inside(self) -> float:
        """log P(t ∈ I), which only the density before it was known gives."""
        if self.interval is None:
            return 0.0
        if not self.n_corrections:
            return float(self.cells.log_integral(*self.cells.nothing(1))[0]) - self.joint.log_unit
        t, w = self._nodes
        alone = Corrected(self.joint, [self.interval.feature])
        logs = alone.log_by_volume(t[:, None]) + np.log(w)
        return float(np.logaddexp.reduce(logs, initial=-np.inf))

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights of a rule on the interval, as far as the normal densities reach."""
        feature, least, most = cast("Interval", self.interval)
        mean = self.all_normals.means[:, feature]
        reach = _REACH * np.sqrt(self.all_normals.covariances[:, feature, feature])
        low, high = max(least, float((mean - reach).min())), min(most, float((mean + reach).max()))
        if not low < high:
            return np.empty(0), np.empty(0)
        lengths = (high - low) / self.opened.narrowest(len(self.shown))
        pieces = math.ceil(lengths / _LENGTHS_PER_PANEL)
        ends = np.linspace(low, high, pieces + 1)
        return composite(ends[:-1], ends[1:], 8 + math.ceil(_NODES_PER_LENGTH * lengths / pieces))

    def narrowest(self, feature: int) -> float:
        """The length on which the density varies along a feature, the others being held fixed."""
        precision = 0.25 * np.linalg.inv(self.normals.covariances)[:, feature, feature].max()
        if self.n_corrections:
            metric = self.correction.metric[np.ix_(self.shown, self.shown)]
            precision += np.linalg.inv(metric)[feature, feature]
        return float(1.0 / np.sqrt(precision))

    @property
    def value_cost(self) -> float:
        """How many values of normal densities a value of the density takes."""
        normals, kernels = self.all_normals.weights.shape[0], _KERNEL_COST * self.n_corrections
        return (
            normals * (1.0 + kernels) if self.hidden and self.n_corrections else normals + kernels
        )

    @cached_property
    def reference(self) -> GaussianMixture:
        """ρ of the features shown."""
        return GaussianMixture(*self.normals)

    def logpdf(self, X: Array) -> Array:
        """log p relative to :attr:`measure`, shape (n,)."""
        return self.joint.logpdf(X) if self.is_whole else self.log_by_volume(X)

    def log_by_volume(self, X: Array) -> Array:
        """log p by volume, shape (n,)."""
        if not self.hidden:
            X = X if self.is_whole else X[:, np.argsort(self.shown)]
            return self.joint.logpdf(X) + self.joint.measure.log_density(X)
        within = self.interval is not None and self.n_corrections > 0
        at_rows = self._log_within if within else self._log_of_cells
        return like(at_rows(to_numpy(X)) - self.log_inside, X)

    @cached_property
    def cells(self) -> MixedTerms:
        """The same as cells of a table, in which hidden features are missing; its mass is
        e^{log_unit}.
        """
        within = {} if self.interval is None else {self.interval.feature: self.interval[1:]}
        reference = MixedReference(*self.all_normals, ())
        return MixedTerms(reference, self.correction, tuple(self.shown), (), within)

    def _log_of_cells(self, X: np.ndarray) -> np.ndarray:
        out = np.empty(X.shape[0])
        for rows in row_blocks(X.shape[0], self.normals.weights.shape[0], _NORMAL_ELEMENTS):
            no_codes = np.empty((X[rows].shape[0], 0), dtype=int)
            out[rows] = self.cells.log_integral(X[rows], no_codes)
        return out - self.joint.log_unit

    def _log_within(self, X: np.ndarray) -> np.ndarray:
        """log ∫_I p(x, t) dt, at the nodes of a rule."""
        out, (t, w) = np.empty(X.shape[0]), self._nodes
        for rows in row_blocks(X.shape[0], t.shape[0], _NORMAL_ELEMENTS):
            x = X[rows]
            both = np.column_stack([np.repeat(x, t.shape[0], axis=0), np.tile(t, x.shape[0])])
            logs = self.opened.log_by_volume(both).reshape(x.shape[0], -1) + np.log(w)
            out[rows] = log_sum(logs.T)[0]
        return out

    def groups(self) -> Iterator[Group]:
        """p as a signed sum of normal densities: for each N_c one, m for the k_i N_c, then
        all pairs k_i k_j N_c.

        With an interval, that of the opened density, whose last feature is the one in the interval.
        """
        if self.interval is not None:
            yield from self.opened.groups()
            return
        for group, _ in self.cells.groups(self.joint.log_unit):
            yield group

    def bound(self) -> float:
        """What p/ρ never exceeds."""
        return self.correction.bound * math.exp(-self.joint.log_unit)

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Samples, shape (size, d)."""
        return self.cells.draw(size, rng)[0]

    def moved(self, move: Callable[[Any], Any]) -> Corrected:
        """The same with its arrays elsewhere."""
        return replace(self, joint=self.joint.moved(move))
