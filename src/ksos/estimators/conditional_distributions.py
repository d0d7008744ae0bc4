"""Distributions of y given x: the density of the scaled residual, moved, scaled and transformed, a
joint density that is conditioned, or the probabilities of levels.

All classes have the same methods. ``place(X)`` turns rows into arrays with one entry per row, and
everything else is asked of these arrays, so that a grid of values needs no further predictions.
Outputs are columns, also if there is only one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit

from ksos.choose.location import Location, LocationScale
from ksos.choose.shape import Shape, Transform
from ksos.density import (
    Column,
    Columns,
    ConditionalLine,
    Correction,
    MixedReference,
    MixedTerms,
    SoSDensity,
    TableDensity,
    square_of,
)
from ksos.ground import as_levels, row_blocks
from ksos.quadrature import PanelDistribution, Panels, legendre, position_on_panel

Placed = tuple[np.ndarray, ...]
Curve = Callable[[np.ndarray], np.ndarray]

_NODES = 12  # of a panel where the density has ten: exact for its square, and exp is smooth
# levels of a score where there are masses: exact to a thousandth of the spread
_LEVELS = (np.arange(1000) + 0.5) / 1000.0
_BLOCK = 1 << 20  # nodes times rows that are held at a time: 8 MB


class ResidualDistributions:
    """Distributions of y = t⁻¹(μ(x) + s(x)·u) with u ~ q(· | z(x))."""

    def __init__(self, location_scale: LocationScale, shape: Shape, transform: Transform) -> None:
        self.location_scale, self.shape, self.transform = location_scale, shape, transform

    # μ, s and the number of the knot.
    def place(self, X: Any) -> Placed:
        mu, s = self.location_scale(X)
        return mu, s, self.shape.which(X, mu)

    # log p(y_i | x_i), shape (n,).
    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        mu, s, which = placed
        V = self.transform.forward(Y)
        logs = self.shape.logpdf(which, (V - mu) / s)
        logs = logs + np.sum(self.transform.log_slope(V) - np.log(s), axis=1)
        return np.where(self.transform.inside(Y).all(axis=1), logs, -np.inf)

    # P(y_k ≤ Y_ik | x_i), output by output, shape (n, k).
    def cdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        mu, s, which = placed
        columns = ((self.transform.forward(Y) - mu) / s).T
        tables = zip(self.shape.tables, columns, strict=True)
        found = np.concatenate([table.cdf(u[:, None], which) for table, u in tables], axis=1)
        return np.where(self.transform.inside(Y), found, self.transform.ends[1] <= Y)

    # y_k with P(y_k' ≤ y_k | x_i) = level, shape (n, levels, k), not decreasing.
    def quantile(self, placed: Placed, levels: np.ndarray) -> np.ndarray:
        mu, s, which = placed
        everywhere = np.tile(levels, (self.shape.knots.shape[0], 1))
        u = np.stack([table.quantiles(everywhere)[which] for table in self.shape.tables], axis=2)
        u[:, levels == 0.0], u[:, levels == 1.0] = -np.inf, np.inf
        return self.transform.inverse(mu[:, None] + s[:, None] * u)

    def moments(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations, each (n, k), by Gauss–Legendre in log(p/(1 − p)).

        Levels p beyond 1/(2n), where none of n residuals has been seen, count as 1/(2n): neither
        the tails that are only there for safety nor the exponential of heavy ones decide.
        """
        least, (t, w) = 0.5 / self.shape.n_residuals, legendre(200)
        end = np.log(1.0 / least - 1.0)
        p = expit(end * t)
        weights = np.r_[least, end * w * p * (1.0 - p), least]
        y = self.quantile(placed, np.r_[least, p, 1.0 - least])
        mean = np.einsum("nlk,l->nk", y, weights)
        return mean, np.sqrt(np.einsum("nlk,l->nk", (y - mean[:, None]) ** 2, weights))

    def crps(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """∫ (P(y_k ≤ t | x_i) − 1[t ≥ Y_ik])² dt, output by output, shape (n, k).

        With a transform, levels that no residual has reached count as in :meth:`moments`, for
        behind an exponential the tails that are only there for safety make it infinite.
        """
        mu, s, which = placed
        U = (self.transform.forward(Y) - mu) / s
        if self.transform.name is None:
            return s * self._of_tables(lambda k, table: table.crps(U[:, [k]], which)[:, 0])
        U = np.where(self.transform.inside(Y), U, -np.inf)
        found = self._of_tables(lambda k, _: self._area(k, placed, U[:, k], np.square))
        ends = np.stack([self._ends(table) for table in self.shape.tables], axis=2)[which]
        low, high = (self.transform.inverse(mu + s * ends[:, side]) for side in (0, 1))
        return found + np.maximum(low - Y, 0.0) + np.maximum(Y - high, 0.0)

    # E|y_k − y_k'| of two independent draws, output by output, shape (n, k).
    def mean_difference(self, placed: Placed) -> np.ndarray:
        mu, s, which = placed
        if self.transform.name is None:
            return s * self._of_tables(lambda _, table: table.mean_difference()[which])
        middle = np.zeros(mu.shape[0])
        return 2.0 * self._of_tables(
            lambda k, _: self._area(k, placed, middle, lambda share: share * (1.0 - share))
        )

    # What is asked of every output, as columns.
    def _of_tables(self, ask: Callable[[int, PanelDistribution], np.ndarray]) -> np.ndarray:
        return np.stack([ask(k, table) for k, table in enumerate(self.shape.tables)], axis=1)

    # The u at levels 1/(2n) and 1 − 1/(2n) of every distribution, (knots, 2).
    def _ends(self, table: PanelDistribution) -> np.ndarray:
        least = 0.5 / self.shape.n_residuals
        return table.quantiles(np.tile([least, 1.0 - least], (table.total.shape[0], 1)))

    # ∫ curve(P(y ≤ t)) dt up to the t of u and ∫ curve(P(y > t)) dt from there on, (n,).
    def _area(self, k: int, placed: Placed, u: np.ndarray, curve: Curve) -> np.ndarray:
        mu, s, which = placed
        unit = np.broadcast_to(self.transform.unit, mu.shape[1:])[k]
        table, transform = self.shape.tables[k], self.transform._replace(unit=unit)
        ends = self._ends(table)

        def below(table: PanelDistribution, ends: np.ndarray, sign: float) -> np.ndarray:
            def rate(rows: slice, v: np.ndarray) -> np.ndarray:
                V = mu[rows, k, None] + sign * s[rows, k, None] * v
                return s[rows, k, None] * np.exp(-transform.log_slope(V))

            return _area_below(table, ends, which, sign * u, curve, rate)

        return below(table, ends, 1.0) + below(table.mirrored, -ends[:, ::-1], -1.0)

    # Independent draws for every row, (n, count, k).
    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        mu, s, which = placed
        draws = rng.random((mu.shape[0], count, mu.shape[1]))
        if mu.shape[1] == 1:
            draws = self.shape.tables[0].ppf(draws[:, :, 0], which)[:, :, None]
        else:  # the outputs are drawn together
            for number in np.unique(which):
                mine = draws[which == number]
                found = np.asarray(self.shape.at(int(number)).rvs(mine[..., 0].size, rng))
                draws[which == number] = found.reshape(mine.shape)
        return self.transform.inverse(mu[:, None] + s[:, None] * draws)

    # Distribution at the only row: the density of u, moved and scaled.
    def at(self, placed: Placed) -> Any:
        if self.transform.name is not None:
            return TransformedDistribution(self, placed)
        mu, s, which = placed
        return self.shape.at(int(which[0])).affine(s[0], mu[0])


class TransformedDistribution:
    """Distribution of y at one row, where the density is that of the logarithm or asinh of y.

    Methods have SciPy's names. Rows are (n, outputs), or (n,) for one output.
    """

    def __init__(self, of: Any, placed: Placed, names: Any = None) -> None:
        self._of, self._placed, self.feature_names = of, placed, names

    def with_feature_names(self, names: Any) -> TransformedDistribution:
        """The same distribution under other names."""
        return TransformedDistribution(self._of, self._placed, names)

    def _rows(self, Y: Any) -> tuple[Placed, np.ndarray]:
        targets = np.asarray(Y, dtype=np.float64).reshape(-1, self._placed[0].shape[1])
        return tuple(np.repeat(one, len(targets), axis=0) for one in self._placed), targets

    def logpdf(self, Y: Any) -> np.ndarray:
        """log p(y) of every row, −inf outside of the support."""
        return self._of.logpdf(*self._rows(Y))

    def pdf(self, Y: Any) -> np.ndarray:
        """p(y) of every row."""
        return np.exp(self.logpdf(Y))

    def cdf(self, Y: Any) -> np.ndarray:
        """P(y' ≤ y), (n,) for one output, (n, outputs) for each of several by itself."""
        found = self._of.cdf(*self._rows(Y))
        return found[:, 0] if found.shape[1] == 1 else found

    def ppf(self, q: Any) -> np.ndarray:
        """Quantiles, of the shape of ``q``, with a last axis for several outputs."""
        levels = as_levels(q)
        found = self._of.quantile(self._placed, levels.ravel())[0]
        shape = levels.shape if found.shape[1] == 1 else (*levels.shape, found.shape[1])
        return found.reshape(shape)

    def crps(self, y: Any) -> np.ndarray:
        """Continuous ranked probability score of every row, in the shape of :meth:`cdf`."""
        found = self._of.crps(*self._rows(y))
        return found[:, 0] if found.shape[1] == 1 else found

    def rvs(self, size: int = 1, rng: Any = None) -> np.ndarray:
        """``size`` independent draws, (size, outputs)."""
        return self._of.sample(self._placed, size, np.random.default_rng(rng))[0]

    def mean(self) -> np.ndarray:
        """Mean of every output."""
        return self._of.moments(self._placed)[0][0]

    def std(self) -> np.ndarray:
        """Standard deviation of every output."""
        return self._of.moments(self._placed)[1][0]

    def var(self) -> np.ndarray:
        """Variance of every output."""
        return self.std() ** 2

    def interval(self, level: float) -> np.ndarray:
        """Quantiles at (1 ∓ level)/2."""
        return self.ppf([0.5 * (1.0 - level), 0.5 * (1.0 + level)])

    def support(self) -> tuple[float, float]:
        """Ends of the values that y can have."""
        ends = self._of.transform.ends
        return (0.0, ends[1]) if self._of.transform.name == "count" else ends


# ∫ curve(F(v))·rate(v) dv up to u_i, for distribution ``which[i]`` of every row i, each of which
# lies between its ``ends`` (knots, 2).
def _area_below(
    table: PanelDistribution,
    ends: np.ndarray,
    which: np.ndarray,
    u: np.ndarray,
    curve: Curve,
    rate: Callable[[slice, np.ndarray], np.ndarray],
) -> np.ndarray:
    starts = table.panels.start
    inner = starts[(starts > ends.min()) & (starts < ends.max())]
    # the integrand is smooth between the starts of panels and the ends of distributions
    cuts = np.unique(np.r_[inner, ends.ravel()])
    panels = Panels(cuts[:-1], cuts[1:], _NODES)
    at = panels.nodes.ravel()
    heights = curve(table.cdf(np.tile(at, (ends.shape[0], 1)))) * panels.weights.ravel()
    heights = np.where(at > ends[:, :1], heights, 0.0)
    u, out = np.clip(u, *ends[which].T), np.empty(u.shape)
    j, s = position_on_panel(panels, u)
    number = np.repeat(np.arange(len(panels)), _NODES)
    for rows in row_blocks(u.shape[0], at.size, _BLOCK):
        kept = np.where(number < j[rows, None], heights[which[rows]], 0.0)
        out[rows] = np.einsum("nv,nv->n", kept, rate(rows, at[None, :]))
    # and the panel that u cuts
    (t, w), half = legendre(_NODES), 0.5 * (panels.half[j] * (s + 1.0))[:, None]
    at = panels.start[j, None] + half * (1.0 + t)
    heights = curve(table.cdf(at, which)) * rate(slice(None), at) * half
    return out + np.where(u > ends[which, 0], heights @ w, 0.0)


class JointDistributions:
    r"""p(y | x) = ‖Fᵀ(k_X(x) ∘ k_Y(y))‖² / ‖Lᵀ k_X(x)‖² with B = FFᵀ and B ∘ W_Y = LLᵀ."""

    def __init__(self, density: SoSDensity, n_conditions: int) -> None:
        self.density, self.n_conditions = density, n_conditions
        self.n_outputs = density.n_features - n_conditions

    def place(self, X: Any) -> Placed:
        return (X,)

    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        rows = np.concatenate([*placed, Y], axis=1)
        if self.n_outputs > 1:
            return self.density.conditional_logpdf(rows, given=list(range(self.n_conditions)))
        return np.asarray(self.density.logpdf(rows) - self._output(0).log_mass(placed[0]))

    def moments(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        found = [self._output(k).moments(placed[0]) for k in range(self.n_outputs)]
        mean, std = (np.stack(part, axis=1) for part in zip(*found, strict=True))
        return mean, std

    def cdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        return self._each(lambda k, line: line.cdf(placed[0], Y[:, k]))

    def crps(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        return self._each(lambda k, line: line.crps(placed[0], Y[:, k]))

    def mean_difference(self, placed: Placed) -> np.ndarray:
        return self._each(lambda _, line: line.mean_difference(placed[0]))

    def _each(self, ask: Callable[[int, ConditionalLine], np.ndarray]) -> np.ndarray:
        return np.stack([ask(k, self._output(k)) for k in range(self.n_outputs)], axis=1)

    def quantile(self, placed: Placed, levels: np.ndarray) -> np.ndarray:
        X, out = placed[0], []
        for k in range(self.n_outputs):
            low, high = self.density.measure.boundary(self.n_conditions + k)
            everywhere = np.broadcast_to(levels, (X.shape[0], levels.size))
            values = self._output(k).quantile(X, everywhere)
            out.append(np.where(levels == 0.0, low, np.where(levels == 1.0, high, values)))
        return np.stack(out, axis=2)

    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        X = placed[0]
        n, d = X.shape
        uniforms, known = rng.random((n, count, self.n_outputs)), np.repeat(X, count, axis=0)
        for k in range(self.n_outputs):  # output after output, given x and the outputs before it
            line = self._line(list(range(d + k + 1)))
            # the first draws of one row share a distribution
            rows, levels = (X, uniforms[:, :, 0]) if k == 0 else (known, uniforms[:, :, [k]])
            drawn = line.quantile(rows, levels.reshape(rows.shape[0], -1)).reshape(-1, 1)
            known = np.concatenate([known, drawn], axis=1)
        return known[:, d:].reshape(n, count, self.n_outputs)

    def at(self, placed: Placed) -> SoSDensity:
        return self.density.conditional(dict(enumerate(placed[0][0].tolist())))

    def _output(self, k: int) -> ConditionalLine:
        return self._line([*range(self.n_conditions), self.n_conditions + k])

    # Distributions of the last of ``features`` given the others, the rest integrated out.
    def _line(self, features: list[int]) -> ConditionalLine:
        p = self.density
        whole = len(features) == p.n_features
        return ConditionalLine(square_of(p if whole else p.marginal(features)), len(features) - 1)


class LevelDistributions:
    """p(y | x) of a categorical y, by the classifiers of ``location``. A target is the number of a
    level of ``column``.
    """

    def __init__(self, location: Location, column: Column) -> None:
        self.location, self.column = location, column

    # The probabilities of the levels.
    def place(self, X: Any) -> Placed:
        p = self.location.predict(X)
        return (p / p.sum(axis=1, keepdims=True),)

    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(placed[0][np.arange(Y.shape[0]), Y[:, 0].astype(int)])

    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        ends = np.cumsum(placed[0][:, :-1], axis=1)[:, None]
        draws = rng.random((ends.shape[0], count, 1))
        return np.sum(draws >= ends, axis=2, keepdims=True)

    def at(self, placed: Placed) -> TableDensity:
        known = MixedReference(np.ones(1), np.zeros((1, 0)), np.zeros((1, 0, 0)), (placed[0],))
        flat = np.zeros((0, 0)), np.zeros(1), np.zeros((1, 0)), np.zeros((1, 1), dtype=np.int64)
        none = Correction(*flat, np.zeros((1, 1)), np.ones(1))
        return TableDensity(Columns((self.column,)), [(1.0, MixedTerms.of(known, none))])

    def _unordered(self, *_: Any) -> Any:
        raise ValueError(
            f"y is categorical ({len(self.column.levels)} levels), and levels have no order:"
            " quantiles, intervals, means and distribution functions are of numbers; use"
            " predict_proba, predict, score_samples(X, y) or sample"
        )

    moments = quantile = cdf = crps = mean_difference = _unordered


def codes_of(column: Column, Y: np.ndarray) -> np.ndarray:
    """The number of the atom of every target, (n, 1), or of none of them."""
    hits = np.array(column.atoms) == Y
    return np.argmax(np.c_[hits, np.ones(Y.shape[0], dtype=bool)], axis=1)[:, None]


class AtomDistributions:
    """Distributions of y on a ``column`` whose atoms have masses, those of ``levels``, and whose
    other values have the distribution ``rest``. Of a count, every value has a mass.
    """

    def __init__(self, levels: LevelDistributions, rest: Any, column: Column) -> None:
        self.levels, self.rest, self.column = levels, rest, column
        self.atoms, self.transform = np.array(column.atoms), rest.transform
        self.is_count = column.kind == "count"

    def place(self, X: Any) -> Placed:
        return (*self.rest.place(X), *self.levels.place(X))

    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        codes = codes_of(self.column, Y)
        with np.errstate(divide="ignore"):
            if self.is_count:
                inner = np.log(self._inner(placed, Y) - self._inner(placed, Y - 1.0))[:, 0]
            else:
                inner = self.rest.logpdf(placed[:-1], Y)
        logs = self.levels.logpdf(placed[-1:], codes)
        return logs + np.where(codes[:, 0] == self.column.between, inner, 0.0)

    def cdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        below = np.sum(placed[-1][:, :-1] * (self.atoms <= Y), axis=1, keepdims=True)
        return below + placed[-1][:, -1:] * self._inner(placed, Y)

    # P(y ≤ Y) if y is no atom; all that is below the first cell of a count is in it
    def _inner(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        if not self.is_count:
            return self.rest.cdf(placed[:-1], Y)
        found = self.rest.cdf(placed[:-1], np.floor(Y) + 1.0)
        return np.where(np.floor(Y) < self.column.between, 0.0, found)

    def quantile(self, placed: Placed, levels: np.ndarray) -> np.ndarray:
        (mu, s, which), p = placed[:-1], placed[-1]
        # atoms below all other values come first, and one above them may be the last
        below = int(np.sum(self.atoms < self.column.high))
        ends = np.c_[np.zeros(p.shape[0]), np.cumsum(p[:, :below], axis=1)]
        inner = np.clip((levels - ends[:, -1:]) / np.maximum(p[:, -1:], 1e-300), 0.0, 1.0)
        found = self.transform.inverse(mu + s * self.rest.shape.tables[0].ppf(inner, which))
        found = np.floor(found) if self.is_count else found
        for k in reversed(range(below)):
            found = np.where(levels <= ends[:, [k + 1]], self.atoms[k], found)
        above = levels > ends[:, -1:] + p[:, -1:]
        return np.where(above, np.append(self.atoms, np.inf)[below], found)[:, :, None]

    def moments(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        y = self.quantile(placed, _LEVELS)
        return y.mean(axis=1), y.std(axis=1)

    # as the mean pinball loss of the levels
    def crps(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        errors = Y[:, :, None] - self.quantile(placed, _LEVELS).transpose(0, 2, 1)
        return 2.0 * np.mean(np.maximum(_LEVELS * errors, (_LEVELS - 1.0) * errors), axis=2)

    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        return self.quantile(placed, rng.random((placed[-1].shape[0], count)))

    def at(self, placed: Placed) -> TransformedDistribution:
        return TransformedDistribution(self, placed)


Distributions = ResidualDistributions | JointDistributions | LevelDistributions | AtomDistributions
