"""Distribution of y given x: the density of the scaled residual, moved, scaled and transformed, or
a joint density that is conditioned.

Both classes of distributions here have the same methods. ``place(X)`` turns rows into arrays with
one entry per row, and everything else is asked of these arrays, so that a grid of values needs no
further predictions. Outputs are columns, also where there is only one.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from scipy.stats import chi2_contingency, rankdata
from scipy.stats import t as student
from scipy.stats.contingency import crosstab
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.utils import _safe_indexing

from ksos.choose.held_out import simplest_good
from ksos.data.samples import Split
from ksos.density import ConditionalLine, SoSDensity
from ksos.estimators._conditional_location import LocationScale, fit_scales
from ksos.ground.deadline import Deadline
from ksos.ground.progress import tell_stopping
from ksos.ground.validation import as_levels
from ksos.quadrature import PanelDistribution, Panels, legendre

__all__ = ["JointDistributions", "ResidualDistributions", "Shape", "Transform"]
__all__ += ["TransformedDistribution", "fit_shape", "log_is_better"]

Placed = tuple[np.ndarray, ...]

# Residuals that the search gets, and those on which it compares what the shape may depend on: the
# time of the search on benchmarks/conditional at n = 10,000.
_MOST_RESIDUALS, _MOST_TRIED = 2000, 600
_QUINTILES = 5
# rows for a χ² table of quintiles: five expected per cell [Cochran1954]
_ENOUGH = 5 * _QUINTILES**2
_UNLIKELY = 0.05  # p-value of all tests together: without dependence, few shapes are tried
_KNOTS = 24  # different distributions q(u | z): z is rounded to a quantile


class Transform(NamedTuple):
    """Monotone transform v = t(y) of the targets: nothing, log(y), or asinh(y/unit)."""

    name: str | None = None
    unit: Any = 1.0

    def forward(self, Y: np.ndarray) -> np.ndarray:
        """t(y). Where y is outside of the support, any finite value."""
        if self.name is None:
            return Y
        return (
            np.log(np.where(Y > 0.0, Y, 1.0)) if self.name == "log" else np.arcsinh(Y / self.unit)
        )

    def inverse(self, V: np.ndarray) -> np.ndarray:
        """t⁻¹(v)."""
        if self.name is None:
            return V
        with np.errstate(over="ignore"):
            return np.exp(V) if self.name == "log" else self.unit * np.sinh(V)

    def log_slope(self, V: np.ndarray) -> np.ndarray:
        """log t'(y) at y = t⁻¹(v)."""
        if self.name is None:
            return np.zeros_like(V)
        log_cosh = np.logaddexp(V, -V) - np.log(2.0)
        return -V if self.name == "log" else -np.log(self.unit) - log_cosh

    def inside(self, Y: np.ndarray) -> np.ndarray:
        """Whether y is in the support."""
        return Y > 0.0 if self.name == "log" else np.ones(Y.shape, dtype=bool)

    @classmethod
    def of(cls, name: str | None, targets: np.ndarray) -> Transform:
        """The transform of this name, checked against the ``targets``."""
        if name == "log" and np.any(targets <= 0.0):
            row = int(np.flatnonzero((targets <= 0.0).any(axis=1))[0])
            raise ValueError(
                f"transform='log' needs targets that are positive; row {row} of y is "
                f"{targets[row].min():g}; use transform='asinh' or None"
            )
        # unit: half of the targets are beyond it, where asinh is a logarithm
        unit = np.median(np.abs(targets), axis=0)
        return cls(name, np.where(unit > 0.0, unit, 1.0) if name == "asinh" else 1.0)


def log_is_better(
    targets: np.ndarray,
    plain: np.ndarray,
    log: np.ndarray,
    masses: np.ndarray,
    splits: list[Split],
    deadline: Deadline,
) -> bool:
    """Whether a logarithm of the targets predicts them better, by the rule of one standard error.

    ``plain`` and ``log`` (n, outputs) are held-out predictions in the units of the targets, by
    regressors that were fitted to the targets and to their logarithms. Both are judged by the
    held-out log-density of y given its prediction: the scale is a ridge of the prediction, and the
    scaled residual has a kernel density.
    """
    held = (masses > 0.0) & np.isfinite(plain[:, 0]) & np.isfinite(log[:, 0])
    if np.count_nonzero(held) < 4:  # the kernel density of a residual needs others
        return False
    low, high = targets[held].min(axis=0), targets[held].max(axis=0)
    masses, scores = np.where(held, masses, 0.0), []
    for transform, mu in ((Transform(), plain), (Transform("log"), log)):
        v = transform.forward(targets)
        mu = transform.forward(np.clip(np.where(held[:, None], mu, 1.0), low, high))
        floor = 1e-7 * v[held].std(axis=0)
        fit = (), [Ridge()], None, mu, v - mu, masses, splits, floor, deadline
        s = fit_scales(*fit)[1]
        logs = [_leave_one_out(u) for u in ((v - mu) / s)[held].T]
        scores.append(
            np.sum(logs, axis=0) + np.sum(transform.log_slope(v) - np.log(s), axis=1)[held]
        )
    weights = masses[held] / masses[held].sum()
    return bool(simplest_good(np.stack(scores, axis=1), weights))


def _leave_one_out(u: np.ndarray) -> np.ndarray:
    """Log-density of every residual under the kernel density of the others, of the best width.

    The kernel is Student's with three degrees of freedom, so that no residual is impossible.
    """
    rows, spread = np.arange(min(u.size, _MOST_TRIED)), max(float(np.std(u)), 1e-300)
    found = []
    for width in spread * rows.size**-0.2 * np.array([1.0, 0.5, 0.25]):  # Scott's, and narrower
        kernel = student.pdf((u[:, None] - u[rows]) / width, 3.0) / width
        kernel[rows, rows] = 0.0
        found.append(np.log(kernel.sum(axis=1) / (rows.size - 1.0)))
    return max(found, key=np.mean)


# --- the shape ---


class Given(NamedTuple):
    """What the shape depends on, "prediction" or column numbers, in units of its own spread."""

    name: Any
    center: np.ndarray
    spread: np.ndarray

    @classmethod
    def of(cls, name: Any, X: Any, mu: np.ndarray, rows: np.ndarray) -> Given:
        values = _columns(name, X, mu)[rows]
        return cls(name, values.mean(axis=0), values.std(axis=0))

    def __call__(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """z of every row, zero where a cell is missing."""
        return np.nan_to_num((_columns(self.name, X, mu) - self.center) / self.spread)


def _columns(name: Any, X: Any, mu: np.ndarray) -> np.ndarray:
    if isinstance(name, str) and name == "prediction":
        return mu
    columns = [np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64) for k in name]
    return np.stack(columns, axis=1)


def _candidates(given: Any, X: Any, mu: np.ndarray, U: np.ndarray, rows: np.ndarray) -> list[Given]:
    """What the shape may depend on. With "auto": the prediction, and the two columns with which
    the scaled residual is most dependent, if a χ² test finds a dependence at all."""
    if given is None:
        return []
    names: list[Any] = [given]
    if given == "auto":
        columns = [(k,) for k in range(X.shape[1])] if rows.size >= _ENOUGH else []
        p = {name: _p_value(name, X, mu, U, rows) for name in ["prediction", *columns]}
        most = _UNLIKELY / len(p)  # Bonferroni's: the more tests, the more dependence by chance
        likely = sorted((name for name in columns if p[name] < most), key=lambda name: p[name])
        names = ["prediction"] * (p["prediction"] < most) + likely[:2]
    found = [Given.of(name, X, mu, rows) for name in names]
    return [one for one in found if np.all(one.spread > 0.0)]


def _p_value(name: Any, X: Any, mu: np.ndarray, U: np.ndarray, rows: np.ndarray) -> float:
    """Least p-value of χ² tests of independence of columns and residuals, on their quintiles."""
    try:
        values = _columns(name, X, mu)[rows]
    except (TypeError, ValueError):  # categories
        return 1.0
    if rows.size < _ENOUGH or np.isnan(values).any() or np.unique(values).size <= _QUINTILES:
        return 1.0
    bins = [
        [(rankdata(v, "ordinal").astype(int) - 1) * _QUINTILES // v.size for v in one.T]
        for one in (values, U[rows])
    ]
    tables = [crosstab(a, b).count for a in bins[0] for b in bins[1]]
    return min(float(chi2_contingency(table).pvalue) for table in tables)


class Shape:
    """Density q(u | z) of the scaled residual: one, or one for each of the ``knots`` of z.

    ``density`` is that of u, or of (z, u), fitted to the residuals ``U``. z is rounded to the
    nearest knot. ``tables`` has the distributions of every output, for many rows at once.
    """

    def __init__(
        self, density: Any, U: np.ndarray, given: Given | None = None, knots: Any = None
    ) -> None:
        self.density, self.given, self.knots = density.by_volume(), given, knots
        self.n_residuals, k = U.shape
        d = self.density.n_features - k
        lines = (
            [self.density]
            if k == 1
            else [self.density.marginal([*range(d), d + j]) for j in range(k)]
        )
        self.tables = [_tabulated(line, u, knots) for line, u in zip(lines, U.T, strict=True)]

    def which(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """Number of the nearest knot of every row."""
        if self.given is None:
            return np.zeros(mu.shape[0], dtype=int)
        z = self.given(X, mu)
        return np.argmin([np.sum((z - knot) ** 2, axis=1) for knot in self.knots], axis=0)

    def at(self, number: int) -> Any:
        """Density of u at a knot."""
        if self.knots is None:
            return self.density
        return self.density.conditional(dict(enumerate(self.knots[number].tolist())))

    def logpdf(self, which: np.ndarray, U: np.ndarray) -> np.ndarray:
        """log q(u_i | knot of row i), shape (n,)."""
        if self.knots is None:
            return np.asarray(self.density.logpdf(U))
        rows = np.concatenate([self.knots[which], U], axis=1)
        return np.asarray(self.density.conditional_logpdf(rows, list(range(self.knots.shape[1]))))


def _tabulated(density: Any, u: np.ndarray, knots: np.ndarray | None) -> PanelDistribution:
    """Distributions of the last feature of a density, one for each knot of the others.

    ``u`` are the values that the density was fitted to. A value is read off in a microsecond, where
    a conditional density takes a tenth of a second.
    """
    panels = Panels.around(u, float(density.bandwidths[-1]), 10)
    nodes, logs = panels.nodes.reshape(-1, 1), []
    for knot in np.empty((1, 0)) if knots is None else knots:
        rows = np.concatenate([np.tile(knot, (nodes.size, 1)), nodes], axis=1)
        logs.append(np.asarray(density.logpdf(rows)))  # up to the mass at the knot
    values = np.exp(logs - np.max(logs, axis=1, keepdims=True))
    return PanelDistribution(panels, values.reshape(-1, *panels.nodes.shape))


def fit_shape(
    estimator: Any,
    U: np.ndarray,
    masses: np.ndarray,
    X: Any,
    mu: np.ndarray,
    given: Any,
    rng: np.random.Generator,
    deadline: Deadline,
) -> tuple[Shape, Any, KeyboardInterrupt | None]:
    """q(u | z) by a copy of ``estimator``, that copy, and Ctrl-C if that stopped it.

    With ``given="auto"``, z is nothing or one of several candidates, which are fitted to a part of
    the residuals and compared on the rest by held-out likelihood.
    """
    order = np.lexsort(U.T)  # the order of the rows does not matter
    order = rng.permutation(order[masses[order] > 0.0])
    candidates = _candidates(given, X, mu, U, order)
    Z = [U[:, :0], *(one(X, mu) for one in candidates)]
    chosen = len(Z) - 1 if given != "auto" else 0
    if given == "auto" and candidates and not deadline.passed:
        cut = min(2 * order.size // 3, _MOST_TRIED)
        train, test = order[:cut], order[cut:][:_MOST_RESIDUALS]
        scores = []
        for z in Z:
            rows, known = np.concatenate([z, U], axis=1), list(range(z.shape[1]))
            trial, interrupt = _fitted(estimator, rows[train], masses[train], deadline, 0.3)
            if interrupt is not None:
                raise interrupt
            p = trial.distribution_.by_volume()
            logs = p.conditional_logpdf(rows[test], known) if known else p.logpdf(rows[test])
            scores.append(np.asarray(logs))
        weights = masses[test] / masses[test].sum()
        chosen = simplest_good(np.stack(scores, axis=1), weights)
    few = order[:_MOST_RESIDUALS]
    data = np.concatenate([Z[chosen], U], axis=1)[few]
    found, interrupt = _fitted(estimator, data, masses[few], deadline, 1.0)
    if not hasattr(found, "distribution_"):
        raise interrupt or TypeError(f"estimator must fit a density; {estimator!r} has none")
    if not chosen:
        return Shape(found.distribution_, U[few]), found, interrupt
    knots = _spread_out(Z[chosen][few], rng)
    shape = Shape(found.distribution_, U[few], candidates[chosen - 1], knots)
    return shape, found, interrupt


def _fitted(
    estimator: Any, data: np.ndarray, masses: np.ndarray, deadline: Deadline, part: float
) -> tuple[Any, KeyboardInterrupt | None]:
    """A copy fitted with a ``part`` of the time that is left. Ctrl-C keeps the best so far."""
    copy, limited = clone(estimator), np.isfinite(deadline.remaining)
    if limited:
        copy.set_params(time_limit=max(part * deadline.remaining, 1e-3))
    try:
        with warnings.catch_warnings():
            if limited:  # the caller reports the time limit
                warnings.simplefilter("ignore", ConvergenceWarning)
            copy.fit(data, sample_weight=None if np.ptp(masses) == 0.0 else masses)
    except KeyboardInterrupt as error:
        tell_stopping()
        return copy, error
    return copy, None


def _spread_out(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """At most 24 knots that are distributed as the values."""
    distinct = np.unique(values, axis=0)
    if distinct.shape[0] <= _KNOTS:
        return distinct
    if distinct.shape[1] > 1:
        return values[rng.choice(values.shape[0], _KNOTS, replace=False)]
    middles = (np.arange(_KNOTS) + 0.5) / _KNOTS
    return np.unique(np.quantile(values[:, 0], middles))[:, None]


# --- distributions of y at rows ---


class ResidualDistributions:
    """Distributions of y = t⁻¹(μ(x) + s(x)·u) with u ~ q(· | z(x))."""

    def __init__(self, location_scale: LocationScale, shape: Shape, transform: Transform) -> None:
        self.location_scale, self.shape, self.transform = location_scale, shape, transform
        self.density = shape.density

    def place(self, X: Any) -> Placed:
        """μ, s and the number of the knot."""
        mu, s = self.location_scale(X)
        return mu, s, self.shape.which(X, mu)

    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """log p(y_i | x_i), shape (n,)."""
        mu, s, which = placed
        V = self.transform.forward(Y)
        logs = self.shape.logpdf(which, (V - mu) / s)
        logs = logs + np.sum(self.transform.log_slope(V) - np.log(s), axis=1)
        return np.where(self.transform.inside(Y).all(axis=1), logs, -np.inf)

    def cdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """P(y_k ≤ Y_ik | x_i), output by output, shape (n, k)."""
        mu, s, which = placed
        columns = ((self.transform.forward(Y) - mu) / s).T
        tables = zip(self.shape.tables, columns, strict=True)
        found = np.concatenate([table.cdf(u[:, None], which) for table, u in tables], axis=1)
        return np.where(self.transform.inside(Y), found, 0.0)

    def quantile(self, placed: Placed, levels: np.ndarray) -> np.ndarray:
        """y_k with P(y_k' ≤ y_k | x_i) = level, shape (n, levels, k), not decreasing."""
        mu, s, which = placed
        quantiles = []
        for table in self.shape.tables:
            found = table.quantiles(np.tile(levels, (table.values.shape[0], 1)))
            found[:, levels == 0.0], found[:, levels == 1.0] = -np.inf, np.inf
            quantiles.append(found[which])
        u = np.stack(quantiles, axis=2)
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

    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws for every row, (n, count, k)."""
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

    def at(self, placed: Placed) -> Any:
        """Distribution at the only row: the density of u, moved and scaled."""
        if self.transform.name is not None:
            return TransformedDistribution(self, placed)
        mu, s, which = placed
        return self.shape.at(int(which[0])).affine(s[0], mu[0])


class TransformedDistribution:
    """Distribution of y at one row, where the density is that of the logarithm or asinh of y.

    Methods have SciPy's names. Rows are (n, outputs), or (n,) for one output.
    """

    def __init__(self, of: ResidualDistributions, placed: Placed, names: Any = None) -> None:
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
        return (0.0 if self._of.transform.name == "log" else -np.inf), np.inf


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
        found = [self._output(k).cdf(placed[0], Y[:, k]) for k in range(self.n_outputs)]
        return np.stack(found, axis=1)

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

    def _line(self, features: list[int]) -> ConditionalLine:
        """Distributions of the last of ``features`` given the others, the rest integrated out."""
        p = self.density
        whole = len(features) == p.n_features
        return ConditionalLine(p if whole else p.marginal(features), len(features) - 1)
