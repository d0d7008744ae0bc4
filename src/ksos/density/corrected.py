r"""A mixture of normal densities, corrected by a square with a constant:
Σ_c w_c N_c(x)‖c + Fᵀk(x)‖².

The class is closed under conditioning, affine maps and products with Gaussians. A marginal keeps
the joint density and the features that are shown: what is linear in p is asked of the joint one,
and its values are

    p_S(x_S) = Σ_c w_c N_c(x_S) E_c[‖c + Fᵀk(x)‖² | x_S],    E_c[‖c + Fᵀk‖² | x_S] = ‖c‖² +
    2(Fc)ᵀE_c[k|x_S] + tr(Fᵀ E_c[kkᵀ|x_S] F),

where E_c[k_i|x_S] and E_c[k_i k_j|x_S] are Gaussians in x_S, the second times a matrix that is
positive semidefinite by Schur's theorem. By Jensen's inequality the whole is at least ‖c +
FᵀE_c[k|x_S]‖², which bounds it from below in floating point too: it is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ksos.density.factor import log_sum
from ksos.density.hidden import ExpectedSquare, Inside
from ksos.density.normals import Group, Interval, NormalComponents
from ksos.density.square import Square
from ksos.ground.arrays import Array, like, to_numpy
from ksos.ground.memory import row_blocks
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue, Measure, Normals
from ksos.observables.over_normals import normal_pairs
from ksos.quadrature import composite

# values of kernels that are held at a time: 2 MB, which a core's cache holds
_BLOCK_ELEMENTS = 1 << 18
# values of normal densities that are held at a time: 8 MB, with few passes over all of them
_NORMAL_ELEMENTS = 1 << 20
_UNSEEN = -40.0  # what is by this logarithm smaller than a sum does not change it
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
        # S of the joint kernel, and the constant c in natural units
        self.metric = cast("Gaussian", joint.kernel).matrix(every)
        self.constant = to_numpy(joint.unit_constant)
        # the support points and rows of F that change the reference
        X, F = (to_numpy(part) for part in (joint.support_points, joint.unit_factor))
        used = np.any(F != 0.0, axis=1)
        self.correction, self.n_corrections = (X[used], F[used]), int(used.sum())
        # by the number of the normal density, each made where it is first needed
        self._expected = dict[int, ExpectedSquare]()
        # the inverse of what S is for the features shown
        self.precision = np.linalg.inv(self.metric[np.ix_(self.shown, self.shown)])
        # the normal densities of all features, and those of the features shown
        self.all_normals = cast("Normals", joint.measure.normals(every))
        (weights, means, covariances), index = self.all_normals, np.array(self.shown, dtype=int)
        self.normals = Normals(weights, means[:, index], covariances[:, index[:, None], index])

    @property
    def support_points(self) -> np.ndarray:
        """Those of the correction, and the means of the normal densities, in the features shown."""
        every = np.concatenate([self.correction[0], self.all_normals.means])
        return like(every[:, self.shown], self.joint.support_points)

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""
        of_normals = 2.0 * self.deviations.min(axis=0)
        if not self.n_corrections:
            return of_normals
        return np.minimum(of_normals, np.sqrt(np.diagonal(self.metric))[self.shown])

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
            weights = self.all_normals.weights
            logs = np.log(weights / weights.sum()) + self.interval.log_masses(self.all_normals)
        else:
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
            precision += self.precision[feature, feature]
        return float(1.0 / np.sqrt(precision))

    @property
    def value_cost(self) -> float:
        """How many values of normal densities a value of the density takes."""
        normals, kernels = self.all_normals.weights.shape[0], _KERNEL_COST * self.n_corrections
        return (
            normals * (1.0 + kernels) if self.hidden and self.n_corrections else normals + kernels
        )

    @cached_property
    def components(self) -> NormalComponents:
        """The same, ready to be evaluated."""
        return NormalComponents(self.normals)

    @cached_property
    def reference(self) -> GaussianMixture:
        """ρ of the features shown."""
        return GaussianMixture(*self.normals)

    def logpdf(self, X: Array) -> Array:
        """log p relative to :attr:`measure`, shape (n,)."""
        return self.joint.logpdf(X) if self.is_whole else self.log_by_volume(X)

    def log_by_volume(self, X: Array) -> Array:
        """log p by volume, shape (n,)."""
        if self.interval is not None:
            return like(self._values_within(to_numpy(X)), X)
        if not self.n_corrections and not self.is_whole:
            square = math.log(float(self.constant @ self.constant)) - self.joint.log_unit
            return self.reference.log_density(X) + square
        if self.hidden:
            return like(self._marginal_values(to_numpy(X)), X)
        X = X if self.is_whole else X[:, np.argsort(self.shown)]
        return self.joint.logpdf(X) + self.joint.measure.log_density(X)

    @cached_property
    def _inside(self) -> Inside:
        return Inside(self.all_normals, self.shown, cast("Interval", self.interval))

    def _values_within(self, X: np.ndarray) -> np.ndarray:
        """log p given the interval.

        One normal density after the other where nothing corrects them, else ∫_I p(x, t) dt at the
        nodes of a rule.
        """
        if not self.n_corrections:
            logs = self.components.logs(X) + self._inside.logs(X)
            return np.asarray(log_sum(logs)[0] - self.log_inside)
        out, (t, w) = np.empty(X.shape[0]), self._nodes
        for rows in row_blocks(X.shape[0], t.shape[0], _NORMAL_ELEMENTS):
            x = X[rows]
            both = np.column_stack([np.repeat(x, t.shape[0], axis=0), np.tile(t, x.shape[0])])
            logs = self.opened.log_by_volume(both).reshape(x.shape[0], -1) + np.log(w)
            out[rows] = log_sum(logs.T)[0] - self.log_inside
        return out

    def _marginal_values(self, X: np.ndarray) -> np.ndarray:
        """log p where features are hidden.

        Where N_c is largest its term is computed first; other terms only where they can add to it:
        none exceeds w_c N_c(x)·sup f.
        """
        out = np.empty(X.shape[0])
        highest = math.log(self.bound()) + self.joint.log_unit
        for rows in row_blocks(X.shape[0], self.normals.weights.shape[0], _NORMAL_ELEMENTS):
            x = X[rows]
            logs = self.components.logs(x)
            terms, first = np.full(logs.shape, -np.inf), logs.argmax(axis=0)

            def fill(c: int, at: np.ndarray, x: np.ndarray = x, logs: np.ndarray = logs) -> None:
                if c not in self._expected:
                    self._expected[c] = ExpectedSquare(self, c)
                for some in row_blocks(
                    at.shape[0], max(self.joint.unit_factor.shape), _BLOCK_ELEMENTS
                ):
                    value = self._expected[c].values(x[at[some]])
                    with np.errstate(divide="ignore"):
                        terms[c, at[some]] = logs[c, at[some]] + np.log(value)  # noqa: B023

            for c in np.unique(first):
                fill(int(c), np.flatnonzero(first == c))
            least = terms[first, np.arange(x.shape[0])] + _UNSEEN - highest
            for c in range(logs.shape[0]):
                fill(c, np.flatnonzero((logs[c] >= least) & (first != c)))
            out[rows] = log_sum(terms)[0]
        return out - self.joint.log_unit

    def groups(self) -> Iterator[Group]:
        """p as a signed sum of normal densities: for each N_c one, m for the k_i N_c, then
        all pairs k_i k_j N_c.

        With an interval, that of the opened density, whose last feature is the one in the interval.
        """
        if self.interval is not None:
            yield from self.opened.groups()
            return
        (X, F), p = self.correction, self.joint
        G = np.concatenate([self.constant[None], F])
        B = (G @ G.T) * (2.0 - np.eye(G.shape[0]))  # every pair once
        for i, j, weights, means, covariance in normal_pairs(
            p.kernel, X, p.measure, p.log_unit, constant=True, shown=self.shown
        ):
            yield Group(B[i, j] * weights, means, covariance)

    def bound(self) -> float:
        """What p/ρ never exceeds: ‖Fᵀk(x)‖² ≤ λ_max(FᵀKF) since k(x)ᵀK⁻¹k(x) ≤ k(x,x) = 1."""
        (X, F), length = self.correction, float(np.linalg.norm(self.constant))
        if self.n_corrections:
            largest = float(np.linalg.eigvalsh(F.T @ self.joint.kernel(X, X) @ F)[-1])
            length += math.sqrt(max(largest, 0.0))
        return length**2 * math.exp(-self.joint.log_unit)

    def draw_reference(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Samples of ρ, all features, in the interval if there is one."""
        if self.interval is not None:
            return self.interval.draw(self.all_normals, size, rng)
        weights, means, covariances = self.all_normals
        which = rng.choice(weights.shape[0], size=size, p=weights / weights.sum())
        roots = np.linalg.cholesky(covariances)
        noise = rng.standard_normal((size, means.shape[1]))
        return means[which] + np.einsum("nij,nj->ni", roots[which], noise)

    def moved(self, move: Callable[[Any], Any]) -> Corrected:
        """The same with its arrays elsewhere."""
        return replace(self, joint=self.joint.moved(move))
