"""p(y | x) = q((y − μ(x))/s(x) | z(x))/s(x): the law of a scaled residual, moved and stretched by regressors."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

import numpy as np

from ksos.density import SoSDensity
from ksos.density.mixture import SoSMixture, mixture
from ksos.estimators._conditional_laws import ConditionalLaws
from ksos.estimators._conditional_placed import PlacedLaw
from ksos.quadrature import Panels, PiecewiseLaw

__all__ = ["LineTable", "ResidualLaws", "Shape"]

_ORDER = 16
_PANEL = 1.5  # in units of the length on which the density varies
_MOST_PANELS = 600
_GROWTH = 1.15  # of panels in the tails
_FAR = 1e5  # in units of the spread: beyond is no mass
_AT_ONCE = 1 << 16


class LineTable:
    """The laws of one feature, tabulated on common panels: distribution functions and quantiles by the million.

    ``logpdfs`` are log-densities, ``centre`` and ``spread`` say where the mass is, ``length`` on which length the densities vary. Beyond
    1e5 spreads the mass is none.
    """

    def __init__(self, logpdfs: list[Callable[[np.ndarray], np.ndarray]], centre: float, spread: float, length: float) -> None:
        core = 8.0 * spread
        step = max(_PANEL * length, 2.0 * core / _MOST_PANELS)
        edges = np.linspace(0.0, core, max(4, int(np.ceil(core / step))) + 1)
        width, outer = edges[-1] - edges[-2], [core]
        while outer[-1] < _FAR * spread:
            width *= _GROWTH
            outer.append(outer[-1] + width)
        half = np.r_[edges, outer[1:]]
        ends = centre + np.r_[-half[:0:-1], half]
        self.centre, self.panels = centre, Panels(ends[:-1] - centre, ends[1:] - centre, _ORDER)
        nodes = self.panels.nodes.ravel() + centre
        with np.errstate(under="ignore"):
            values = np.stack([np.exp(logpdf(nodes)) for logpdf in logpdfs])
        self.law = PiecewiseLaw(self.panels, values.reshape(-1, *self.panels.nodes.shape))

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of the laws."""
        mean, deviation = self.law.moments()
        return self.centre + mean, deviation

    def ppf(self, levels: np.ndarray, number: int | None = None) -> np.ndarray:
        """Quantiles (laws, levels) of all laws, or (1, levels) of one, not decreasing in the level; −inf and inf at 0 and 1."""
        order, law = np.argsort(levels, kind="stable"), self.law if number is None else self._one(number)
        found = self.centre + law.ppf(np.broadcast_to(levels[order], (law.values.shape[0], levels.size)))
        out = np.empty_like(found)
        out[:, order] = np.maximum.accumulate(found, axis=1)
        out[:, levels == 0.0], out[:, levels == 1.0] = -np.inf, np.inf
        return out

    def cdf(self, which: np.ndarray, x: np.ndarray) -> np.ndarray:
        """P(feature ≤ x_i) under law ``which_i``, shape (n,)."""
        out = np.empty(x.shape)
        for number in np.unique(which):
            rows = which == number
            out[rows] = self._one(number).cdf((x[rows] - self.centre)[None])[0]
        return out

    def inverse(self, which: np.ndarray, q: np.ndarray) -> np.ndarray:
        """The quantile at level q_i of law ``which_i``, shape (n,)."""
        out = np.empty(q.shape)
        for number in np.unique(which):
            rows = which == number
            out[rows] = self.centre + self._one(number).ppf(q[rows][None])[0]
        return out

    def _one(self, number: int) -> PiecewiseLaw:
        return PiecewiseLaw(self.panels, self.law.values[number : number + 1]) if self.law.values.shape[0] > 1 else self.law


class Shape:
    """q(u | z) of the scaled residual u: one law, or one for each of some ``knots``, to the nearest of which z is rounded.

    q(u | z) = (1 − ε)·p(z, u)/p(z) + ε·r(u), where r = ``beside`` is a normal and a wide law: no residual has a density of zero.
    """

    def __init__(
        self, core: SoSDensity | SoSMixture, beside: SoSDensity | SoSMixture, share: float, knots: np.ndarray | None = None
    ) -> None:
        self.core, self.beside, self.share, self.knots = core, beside, share, knots
        self.n_outputs = beside.n_features

    @cached_property
    def law(self) -> SoSDensity | SoSMixture:
        """The law of u, where there are no knots."""
        return self._beside(self.core)

    def at(self, number: int) -> SoSDensity | SoSMixture:
        """The law of u at a knot."""
        return self.law if self.knots is None else self._beside(self.core.conditional(dict(enumerate(self.knots[number]))))

    def _beside(self, core: SoSDensity | SoSMixture) -> SoSDensity | SoSMixture:
        return mixture([core, self.beside], [1.0 - self.share, self.share]) if self.share < 1.0 else self.beside

    @cached_property
    def tables(self) -> list[LineTable]:
        """Of every output."""
        return [self._table(k) for k in range(self.n_outputs)]

    def _table(self, k: int) -> LineTable:
        z = [] if self.knots is None else list(range(self.knots.shape[1]))
        core, beside = (
            (self.core, self.beside) if self.n_outputs == 1 else (self.core.marginal([*z, len(z) + k]), self.beside.marginal([k]))
        )
        alone, one = core.marginal([len(z)]), Shape(core, beside, self.share, self.knots)

        def logpdf(number: int) -> Callable[[np.ndarray], np.ndarray]:
            return lambda x: one.logpdf(np.full(x.size, number), x[:, None])

        length = min(float(core.bandwidths[-1]), float(beside.bandwidths[0]))
        numbers = range(1 if self.knots is None else self.knots.shape[0])
        return LineTable([logpdf(number) for number in numbers], float(alone.mean()[0]), float(np.sqrt(alone.cov()[0, 0])), length)

    def which(self, z: np.ndarray | None, n: int) -> np.ndarray:
        """The nearest knot of every row."""
        if self.knots is None or z is None:
            return np.zeros(n, dtype=int)
        out = np.empty(n, dtype=int)
        for start in range(0, n, _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            out[rows] = np.argmin(np.sum((z[rows, None, :] - self.knots) ** 2, axis=2), axis=1)
        return out

    @cached_property
    def _log_knots(self) -> np.ndarray:
        """log p(z) at the knots."""
        knots = cast("np.ndarray", self.knots)
        return np.asarray(self.core.marginal(list(range(knots.shape[1]))).logpdf(knots))

    def logpdf(self, which: np.ndarray, U: np.ndarray) -> np.ndarray:
        """log q(u_i | knot which_i), shape (n,)."""
        if self.knots is None:
            return np.asarray(self.law.log_by_volume(U))
        logs = np.asarray(self.core.logpdf(np.concatenate([self.knots[which], U], axis=1))) - self._log_knots[which]
        return np.logaddexp(np.log1p(-self.share) + logs, np.log(self.share) + np.asarray(self.beside.log_by_volume(U)))


class ResidualLaws(ConditionalLaws):
    """The laws of y = μ(x) + s(x)·u, output by output, with u ~ q(· | z(x))."""

    def __init__(self, place: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray | None]], shape: Shape) -> None:
        self.place, self.shape, self.n_outputs = place, shape, shape.n_outputs

    def logpdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        mu, s, which = self._rows(X)
        return self.shape.logpdf(which, (targets - mu) / s) - np.log(s).sum(axis=1)

    def grid_logpdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        mu, s, which = self._rows(X)
        n, m = mu.shape[0], targets.shape[0]
        U = ((targets[None] - mu[:, None]) / s[:, None]).reshape(n * m, -1)
        return self.shape.logpdf(np.repeat(which, m), U).reshape(n, m) - np.log(s).sum(axis=1)[:, None]

    def moments(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        mu, s, which = self._rows(X)
        mean, deviation = (np.stack([table.moments[part] for table in self.shape.tables], axis=1)[which] for part in (0, 1))
        return mu + s * mean, s * deviation

    def cdf(self, X: Any, targets: np.ndarray) -> np.ndarray:
        mu, s, which = self._rows(X)
        U = (targets - mu) / s
        return np.stack([table.cdf(which, U[:, k]) for k, table in enumerate(self.shape.tables)], axis=1)

    def grid_cdf(self, X: Any, values: np.ndarray) -> np.ndarray:
        mu, s, which = self._rows(X)
        U = (values[None] - mu) / s
        return self.shape.tables[0].cdf(np.repeat(which, values.size), U.ravel()).reshape(U.shape)

    def quantile(self, X: Any, levels: np.ndarray) -> np.ndarray:
        mu, s, which = self._rows(X)
        return np.stack([mu[:, [k]] + s[:, [k]] * table.ppf(levels)[which] for k, table in enumerate(self.shape.tables)], axis=2)

    def sample(self, X: Any, count: int, rng: np.random.Generator) -> np.ndarray:
        mu, s, which = self._rows(X)
        draws = np.empty((mu.shape[0], count, self.n_outputs))
        if self.n_outputs == 1:
            draws[:, :, 0] = self.shape.tables[0].inverse(np.repeat(which, count), rng.random(mu.shape[0] * count)).reshape(-1, count)
        else:
            for number in np.unique(which):
                rows = which == number
                draws[rows] = self.shape.at(number).rvs(int(rows.sum()) * count, rng).reshape(-1, count, self.n_outputs)
        return mu[:, None] + s[:, None] * draws

    def at(self, X: Any) -> SoSDensity | SoSMixture:
        mu, s, which = self._rows(X)
        law, number = self.shape.at(int(which[0])), int(which[0])
        if self.n_outputs > 1 or not isinstance(law, SoSMixture):
            return law.affine(s[0], mu[0])
        return PlacedLaw.of(law, self.shape.tables[0], number, float(mu[0, 0]), float(s[0, 0]))

    def save(self, path: str | os.PathLike[str]) -> None:
        shape = self.shape
        (shape.law if shape.knots is None else shape.core).save(path)

    def _rows(self, X: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mu, s, z = self.place(X)
        return mu, s, self.shape.which(z, mu.shape[0])
