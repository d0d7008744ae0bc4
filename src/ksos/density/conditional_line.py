"""The laws of one feature when the others are known, for many rows at once: moments, distribution
function, quantiles.

Given the others, p(y | x) ∝ ‖Fᵀ(δ(x) ∘ k(y))‖² with δ_i = k(x, x̃_i): a smooth function of y
between the kernel's kinks, and never negative. It is evaluated at the nodes of panels that hold all
the mass, which makes it a :class:`~ksos.quadrature.PanelDistribution`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ksos.density.factor import split_columns, unit_rows
from ksos.density.questions.condition import Rest
from ksos.density.square import Square, central_first
from ksos.integrals.regions import intervals, kinks
from ksos.quadrature import PanelDistribution, Panels, cut

__all__ = ["ConditionalLine"]

_ORDER = 16
# in units of the length on which the kernel is smooth: there a polynomial through 16 nodes is right
# to 1e-12
_PANEL = 1.0
# where kernel values are negligible; squared, and with room for large signed weights
_LOG_LEVEL = -32.0
_BLOCK = 1 << 22  # numbers held at a time


class ConditionalLine:
    """p(x_k | the other features) of a joint density with a separable kernel or a metric, k =
    ``feature``.

    With a metric, it is the law of x_k − c·x_R that is separable from the other features R, for the
    slopes c of :class:`Rest`.

    Every method takes rows ``X`` (n, d − 1) that hold the other features, in their order.

    >>> from ksos.density import SoSDensity, square_of
    >>> from ksos.kernels import Gaussian
    >>> points, F = [[0.0, 0.0], [3.0, 3.0]], [[1.0], [1.0]]  # one mode, or two, on the diagonal
    >>> p = square_of(SoSDensity(Gaussian(2.0), points, F, normalize=True))
    >>> mean, deviation = ConditionalLine(p, 1).moments(np.array([[0.0], [1.5], [3.0]]))
    >>> mean.round(3), deviation.round(3)
    (array([0.126, 1.5  , 2.874]), array([1.104, 1.643, 1.104]))
    """

    def __init__(self, density: Square, feature: int) -> None:
        if density.measure.atoms is not None:
            raise ValueError(
                f"the conditional laws of a density on {density.measure!r} are not continuous; use"
                " p.conditional instead"
            )
        given = [j for j in range(density.n_features) if j != feature]
        density = self._untie(density, given, feature)
        self._given_kernel, self._given_points = (
            density.kernel.restrict(given),
            density.support_points[:, given],
        )
        y = density.support_points[:, feature]
        order = central_first(y[:, None], 1.0)
        self.origin = float(
            y[order[0]]
        )  # positions are relative to it: exact for data far from zero
        source = [(density.integrals, density.support_points[order])]
        low, high, smooth_length = intervals(source, feature, _LOG_LEVEL)
        self._panels = Panels(
            *cut(low, high, _PANEL * smooth_length, kinks(source, feature)), _ORDER
        )
        self._boundary, self._log_unit = density.measure.boundary(feature), density.log_unit
        nodes = self._panels.nodes.reshape(-1, 1)
        log_k = density.kernel.restrict([feature]).log((y - self.origin)[:, None], nodes)
        log_k += 0.5 * density.measure.restrict([feature]).log_density(nodes + self.origin)
        peaks = log_k.max(axis=1)
        unit, log_lengths = unit_rows(density.unit_factor)
        self._log_lengths = log_lengths + peaks
        self._factor, self._bumps = split_columns(unit)
        self._k = np.exp(log_k - np.where(np.isfinite(peaks), peaks, 0.0)[:, None])

    def _untie(self, density: Square, given: list[int], feature: int) -> Square:
        """The density of the other features and of x_k − c·(x_R − zero)."""
        others = Rest(density.kernel, given, [feature])
        self._slopes, self._zero = others.C[0], density.support_points[0, given]
        if not density.kernel.full:
            return density
        d, points = density.n_features, density.support_points.copy()
        points[:, [feature]] = others.moved(points, points[0, given] - points[:, given])
        S = np.zeros((d, d))
        S[np.ix_(given, given)] = density.kernel.matrix(d)[np.ix_(given, given)]
        S[feature, feature] = others.kernel.matrix(1)[0, 0]
        return replace(density, kernel=density.kernel.with_sigma(S), support_points=points)

    def _origins(self, X: np.ndarray) -> np.ndarray:
        """Where positions are measured from, for every row."""
        return (
            self.origin + (X - self._zero) @ self._slopes
            if np.any(self._slopes)
            else np.full(X.shape[0], self.origin)
        )

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the feature for every row."""
        mean, deviation = np.empty(X.shape[0]), np.empty(X.shape[0])
        for rows, law in self._laws(X):
            mean[rows], deviation[rows] = law.moments()
        return self._origins(X) + mean, deviation

    def log_mass(self, X: np.ndarray) -> np.ndarray:
        """log ∫ p(x, y) dρ(y) for every row x: what turns the joint density into the conditional
        one.
        """
        found = (
            np.log(law.total) + 2.0 * self._log_delta(X[rows])[1][:, 0]
            for rows, law in self._laws(X)
        )
        return np.concatenate([np.empty(0), *found]) - self._log_unit

    def quantile(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """y with P(feature ≤ y | row) = level, for ``levels`` in [0, 1] of shape (n, any); 0 and 1
        give the ends of where the mass is.
        """
        out = np.empty(levels.shape)
        for rows, law in self._laws(X):
            out[rows] = law.quantiles(levels[rows])
        return np.asarray(
            np.clip(self._origins(X)[:, None] + out, *self._boundary)
        )  # rounding must not carry an answer out of its box

    def cdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """P(feature ≤ y_i | row i), shape (n,)."""
        t = y - self._origins(X)
        return np.concatenate(
            [np.empty(0), *(law.cdf(t[rows, None])[:, 0] for rows, law in self._laws(X))]
        )

    def _laws(self, X: np.ndarray) -> Iterator[tuple[slice, PanelDistribution]]:
        """Blocks of rows with their laws; the masses are in a unit of each row's own."""
        (m, rank), n = self._factor.shape, self._k.shape[1]
        step = max(1, min(512, _BLOCK // max(n, m)))
        together = max(1, _BLOCK // (max(step, m) * max(rank, 1)))
        squares = self._k**2 if np.any(self._bumps) else None
        for start in range(0, X.shape[0], step):
            rows = slice(start, min(start + step, X.shape[0]))
            log_delta, peak = self._log_delta(X[rows])
            delta = np.exp(log_delta - peak)
            values = np.empty((delta.shape[0], n))
            for first in range(0, n, together):
                k = self._k[:, first : first + together]
                tilted = (k[:, :, None] * self._factor[:, None, :]).reshape(m, -1)
                amplitudes = (delta @ tilted).reshape(delta.shape[0], k.shape[1], rank)
                values[:, first : first + together] = np.einsum(
                    "iqa,iqa->iq", amplitudes, amplitudes
                )
            if squares is not None:
                values += (delta**2 * self._bumps) @ squares
            empty = np.flatnonzero(~(values.max(axis=1) > 0.0))
            if empty.size:
                where = f"row {start + int(empty[0])}: {X[start + int(empty[0])].tolist()}"
                raise ValueError(
                    f"the density of the conditions vanishes at {where}; there is no conditional"
                    " law there"
                )
            yield (
                rows,
                PanelDistribution(self._panels, values.reshape(-1, *self._panels.nodes.shape)),
            )

    def _log_delta(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How much each support point counts for each row, and the largest of each row: logarithms,
        (n, m) and (n, 1).
        """
        log_delta = self._given_kernel.log(X, self._given_points) + self._log_lengths
        peak = log_delta.max(axis=1, keepdims=True)
        return log_delta, np.where(np.isfinite(peak), peak, 0.0)
