"""The distribution of one feature when the others are known, for many rows at once: moments,
distribution function, quantiles.

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
from ksos.density.sampling.inversion import Axis, densities, without_silent_points
from ksos.density.square import Square
from ksos.ground.memory import row_blocks
from ksos.quadrature import PanelDistribution

_NODES_PER_PANEL = 16  # a polynomial of degree 15 is right to 1e-12 on a panel of one smooth length
_PANEL_LENGTH = 1.0  # in units of the length on which the kernel is smooth
# numbers held at a time: 32 MB, for every block of rows makes products of all nodes anew
_BLOCK = 1 << 22


class ConditionalLine:
    """p(x_k | the other features) of a joint density with a separable kernel or a metric, k =
    ``feature``.

    With a metric, it is x_k − c·x_R that is separable from the other features R, for the slopes c
    of :class:`Rest`.

    Every method takes rows ``X`` (n, d − 1) that hold the other features, in their order.

    >>> from ksos.density import SoSDensity, square_of
    >>> from ksos.kernels import Gaussian
    >>> points, F = [[0.0, 0.0], [3.0, 3.0]], [[1.0], [1.0]]  # one mode, or two, on the diagonal
    >>> p = square_of(SoSDensity(Gaussian(2.0), points, F, normalize=True))
    >>> mean, std = ConditionalLine(p, 1).moments(np.array([[0.0], [1.5], [3.0]]))
    >>> mean.round(3), std.round(3)
    (array([0.126, 1.5  , 2.874]), array([1.104, 1.643, 1.104]))
    """

    def __init__(self, density: Square, feature: int) -> None:
        if density.measure.atoms is not None:
            raise ValueError(
                f"the conditional distributions of a density on {density.measure!r} are not"
                " continuous; use p.conditional instead"
            )
        given = [j for j in range(density.n_features) if j != feature]
        density = without_silent_points(self._untie(density, given, feature))[0]
        self._given_kernel = density.kernel.restrict(given)
        self._given_points = density.support_points[:, given]
        self._axis = Axis(density, feature, _NODES_PER_PANEL, _PANEL_LENGTH)
        self._boundary, self._log_unit = density.measure.boundary(feature), density.log_unit
        unit, log_lengths = unit_rows(density.unit_factor)
        self._log_lengths = log_lengths + self._axis.log_norm
        self._factor, self._single = split_columns(unit)

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
        return self._axis.origin + (X - self._zero) @ self._slopes

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of the feature for every row."""
        found = np.empty((2, X.shape[0]))
        for rows, given in self._distributions(X):
            found[:, rows] = given.moments()
        mean, deviation = self._axis.unit * found
        return self._origins(X) + mean, deviation

    def log_mass(self, X: np.ndarray) -> np.ndarray:
        """log ∫ p(x, y) dρ(y) for every row x: what turns the joint density into the conditional
        one.
        """
        out = np.empty(X.shape[0])
        for rows, given in self._distributions(X):
            out[rows] = np.log(given.total) + 2.0 * self._log_delta(X[rows])[1][:, 0]
        return out - self._log_unit

    def quantile(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """y with P(feature ≤ y | row) = level, for ``levels`` in [0, 1] of shape (n, any); 0 and 1
        give the ends of where the mass is.
        """
        out = np.empty(levels.shape)
        for rows, given in self._distributions(X):
            out[rows] = given.quantiles(levels[rows])
        # rounding must not carry an answer out of its box
        out = self._origins(X)[:, None] + self._axis.unit * out
        return np.asarray(np.clip(out, *self._boundary))

    def cdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """P(feature ≤ y_i | row i), shape (n,)."""
        out, t = np.empty(X.shape[0]), (y - self._origins(X)) / self._axis.unit
        for rows, given in self._distributions(X):
            out[rows] = given.cdf(t[rows, None])[:, 0]
        return out

    def crps(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """∫ (P(feature ≤ t | row i) − 1[t ≥ y_i])² dt, shape (n,)."""
        out, t = np.empty(X.shape[0]), (y - self._origins(X)) / self._axis.unit
        for rows, given in self._distributions(X):
            out[rows] = given.crps(t[rows, None])[:, 0]
        return self._axis.unit * out

    def mean_difference(self, X: np.ndarray) -> np.ndarray:
        """E|y − y'| of two independent draws of the feature for every row, shape (n,)."""
        found = [given.mean_difference() for _, given in self._distributions(X)]
        return self._axis.unit * np.concatenate(found)

    def _distributions(self, X: np.ndarray) -> Iterator[tuple[slice, PanelDistribution]]:
        """Blocks of rows with the distributions given them; the masses are in a unit of each row's
        own.
        """
        panels, k = self._axis.panels, self._axis.values
        squares = (k * k).T if np.any(self._single) else None
        for rows in row_blocks(X.shape[0], max(*k.shape, _BLOCK >> 9), _BLOCK):
            log_delta, peak = self._log_delta(X[rows])
            delta = np.exp(log_delta - peak)
            values = densities(k, self._factor.T, delta)
            if squares is not None:
                values += (delta**2 * self._single) @ squares
            empty = np.flatnonzero(~(values.max(axis=1) > 0.0))
            if empty.size:
                row = rows.start + int(empty[0])
                raise ValueError(
                    f"the density of the conditions vanishes at row {row}: {X[row].tolist()};"
                    " there is no conditional distribution there"
                )
            yield rows, PanelDistribution(panels, values.reshape(-1, *panels.nodes.shape))

    def _log_delta(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How much each support point counts for each row, and the largest of each row: logarithms,
        (n, m) and (n, 1).
        """
        log_delta = self._given_kernel.log(X, self._given_points) + self._log_lengths
        peak = log_delta.max(axis=1, keepdims=True)
        return log_delta, np.where(np.isfinite(peak), peak, 0.0)
