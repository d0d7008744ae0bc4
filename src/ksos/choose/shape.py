"""Shape of the distribution of y given x: the transform of the targets, and the density of the
scaled residual with what it depends on. Held-out rows decide on both.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2_contingency, rankdata, t as student
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.utils import _safe_indexing

from ksos.choose.held_out import simplest_good
from ksos.choose.location import fit_scales
from ksos.choose.mixtures import seeds
from ksos.data import Split
from ksos.density import Column
from ksos.ground import Run
from ksos.quadrature import PanelDistribution, Panels

_MOST_RESIDUALS = 2000  # that the search gets: its time on benchmarks/conditional at n = 10,000
_MOST_TRIED = 600  # Residuals on which what the shape may depend on is compared: likewise.
_QUINTILES = 5  # bins of a χ² test: with five each way a cell expects a 25th of the rows
_ENOUGH = 5 * _QUINTILES**2  # Rows for such a table: five expected per cell [Cochran1954].
_UNLIKELY = 0.05  # P-value of all tests together: without dependence, few shapes are tried.
_KNOTS = 24  # distributions q(u | z), z rounded to the nearest: a trade-off, as each takes time


class Transform(NamedTuple):
    """Monotone transform v = t(y) of the targets: nothing, log(y), asinh(y/unit), or the u of a
    ``column`` that is not of plain numbers; of a count, of places in its cells.
    """

    name: str | None = None
    unit: Any = 1.0
    column: Column | None = None

    # t(y). Where y is outside of the support, any finite value.
    def forward(self, Y: np.ndarray) -> np.ndarray:
        if self.column is not None:
            return np.nan_to_num(self.column.to_line(Y)[0], posinf=0.0, neginf=0.0)
        if self.name == "log":
            return np.log(np.where(Y > 0.0, Y, 1.0))
        return Y if self.name is None else np.arcsinh(Y / self.unit)

    # t⁻¹(v).
    def inverse(self, V: np.ndarray) -> np.ndarray:
        if self.column is not None:
            return self.column.amount(V) + len(self.column.atoms) * (self.name == "count")
        with np.errstate(over="ignore"):
            if self.name == "log":
                return np.exp(V)
            return V if self.name is None else self.unit * np.sinh(V)

    # log t'(y) at y = t⁻¹(v).
    def log_slope(self, V: np.ndarray) -> np.ndarray:
        if self.column is not None:
            return self.column.to_line(self.inverse(V))[1]
        if self.name == "log":
            return -V
        log_cosh = np.logaddexp(V, -V) - np.log(2.0)
        return 0.0 * V if self.name is None else -np.log(self.unit) - log_cosh

    # Whether y is in the support.
    def inside(self, Y: np.ndarray) -> np.ndarray:
        low, high = self.ends
        return (low < Y) & (high > Y)

    # The open interval of values without a mass of their own.
    @property
    def ends(self) -> tuple[float, float]:
        if self.column is None:
            return 0.0 if self.name == "log" else -np.inf, np.inf
        return self.column.low + len(self.column.atoms) * (self.name == "count"), self.column.high

    # The transform of this name, checked against the ``targets``.
    @classmethod
    def of(cls, name: str | None, targets: np.ndarray) -> Transform:
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
        s = fit_scales((), [Ridge()], None, mu, v - mu, masses, splits, floor)[1]
        logs = np.sum([_leave_one_out(u) for u in ((v - mu) / s)[held].T], axis=0)
        scores.append(logs + np.sum(transform.log_slope(v) - np.log(s), axis=1)[held])
    weights = masses[held] / masses[held].sum()
    return bool(simplest_good(np.stack(scores, axis=1), weights))


# Log-density of every residual under the kernel density of the others, of the best width.
#
# The kernel is Student's with three degrees of freedom, so that no residual is impossible.
def _leave_one_out(u: np.ndarray) -> np.ndarray:
    rows, scale = np.arange(min(u.size, _MOST_TRIED)), max(float(np.std(u)), 1e-300)
    found = []
    for width in scale * rows.size**-0.2 * np.array([1.0, 0.5, 0.25]):  # Scott's, and narrower
        kernel = student.pdf((u[:, None] - u[rows]) / width, 3.0) / width
        kernel[rows, rows] = 0.0
        found.append(np.log(kernel.sum(axis=1) / (rows.size - 1.0)))
    return max(found, key=np.mean)


class _Given(NamedTuple):
    """What the shape depends on, "prediction" or column numbers, in units of its own standard
    deviation.
    """

    name: Any
    center: np.ndarray
    scale: np.ndarray

    def __call__(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """z of every row, zero where a cell is missing."""
        return np.nan_to_num((_columns(self.name, X, mu) - self.center) / self.scale)


def _columns(name: Any, X: Any, mu: np.ndarray) -> np.ndarray:
    if isinstance(name, str) and name == "prediction":
        return mu
    columns = [np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64) for k in name]
    return np.stack(columns, axis=1)


# What the shape may depend on. With "auto": the prediction, and the two columns with which the
# scaled residual is most dependent, if a χ² test finds a dependence at all.
def _candidates(
    given: Any, X: Any, mu: np.ndarray, U: np.ndarray, rows: np.ndarray
) -> list[_Given]:
    names = [] if given is None else [given]
    if given == "auto":
        columns = [(k,) for k in range(X.shape[1])] if rows.size >= _ENOUGH else []
        p = {name: _p_value(name, X, mu, U, rows) for name in ["prediction", *columns]}
        most = _UNLIKELY / len(p)  # Bonferroni's: the more tests, the more dependence by chance
        likely = sorted((name for name in columns if p[name] < most), key=lambda name: p[name])
        names = ["prediction"] * (p["prediction"] < most) + likely[:2]
    values = [(name, _columns(name, X, mu)[rows]) for name in names]
    found = [_Given(name, z.mean(axis=0), z.std(axis=0)) for name, z in values]
    return [one for one in found if np.all(one.scale > 0.0)]


# Least p-value of χ² tests of independence of columns and residuals, on their quintiles.
def _p_value(name: Any, X: Any, mu: np.ndarray, U: np.ndarray, rows: np.ndarray) -> float:
    try:
        values = _columns(name, X, mu)[rows]
    except (TypeError, ValueError):  # categories
        return 1.0
    if rows.size < _ENOUGH or np.isnan(values).any() or np.unique(values).size <= _QUINTILES:
        return 1.0
    ranks = [[rankdata(x, "ordinal") for x in one.T] for one in (values, U[rows])]
    tables = [np.histogram2d(a, b, _QUINTILES)[0] for a in ranks[0] for b in ranks[1]]
    return min(float(chi2_contingency(table).pvalue) for table in tables)


class Shape:
    """Density q(u | z) of the scaled residual: one, or one for each of the ``knots`` of z.

    ``density`` is that of u, or of (z, u), fitted to the residuals ``U``. z is rounded to the
    nearest knot. ``tables`` has the distributions of every output, for many rows at once.
    """

    def __init__(
        self, density: Any, U: np.ndarray, given: _Given | None = None, knots: Any = None
    ) -> None:
        self.density, self.given = density.by_volume(), given
        self.knots = np.empty((1, 0)) if knots is None else knots
        self.n_residuals, k = U.shape
        d = self.density.n_features - k
        lines = [self.density.marginal([*range(d), d + j]) for j in range(k if k > 1 else 0)]
        self.tables = [
            self._tabulated(*one) for one in zip(lines or [self.density], U.T, strict=True)
        ]

    def which(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """Number of the nearest knot of every row."""
        if self.given is None:
            return np.zeros(mu.shape[0], dtype=int)
        z = self.given(X, mu)
        return np.argmin([np.sum((z - knot) ** 2, axis=1) for knot in self.knots], axis=0)

    def at(self, number: int) -> Any:
        """Density of u at a knot."""
        if self.given is None:
            return self.density
        return self.density.conditional(dict(enumerate(self.knots[number].tolist())))

    def logpdf(self, which: np.ndarray, U: np.ndarray) -> np.ndarray:
        """log q(u_i | knot of row i), shape (n,)."""
        return _conditional_logpdf(self.density, self.knots[which], U)

    # Distributions of the last feature of a density, one for each knot of the others.
    #
    # ``u`` are the values that the density was fitted to. A value is read off in a microsecond,
    # while a conditional density takes a tenth of a second.
    def _tabulated(self, density: Any, u: np.ndarray) -> PanelDistribution:
        panels = Panels.around(u, float(density.terms.bandwidths[-1]), 10)
        nodes, logs = panels.nodes.reshape(-1, 1), []
        for knot in self.knots:
            rows = np.concatenate([np.tile(knot, (nodes.size, 1)), nodes], axis=1)
            logs.append(np.asarray(density.logpdf(rows)))  # up to the mass at the knot
        values = np.exp(logs - np.max(logs, axis=1, keepdims=True))
        return PanelDistribution(panels, values.reshape(-1, *panels.nodes.shape))


# log q(u | z) at rows, from the density of (z, u).
def _conditional_logpdf(density: Any, z: np.ndarray, U: np.ndarray) -> np.ndarray:
    if not z.shape[1]:
        return np.asarray(density.logpdf(U))
    rows = np.concatenate([z, U], axis=1)
    return np.asarray(density.conditional_logpdf(rows, list(range(z.shape[1]))))


def fit_shape(
    estimator: Any,
    U: np.ndarray,
    masses: np.ndarray,
    X: Any,
    mu: np.ndarray,
    given: Any,
    rng: np.random.Generator,
) -> tuple[Shape, Any]:
    """q(u | z) by a copy of ``estimator``, and that copy. After Ctrl-C the run is interrupted.

    With ``given="auto"``, z is nothing or one of several candidates, which are fitted to a part of
    the residuals and compared on the rest by held-out likelihood.
    """
    order = np.lexsort(U.T)  # the order of the rows does not matter
    order = rng.permutation(order[masses[order] > 0.0])
    candidates = _candidates(given, X, mu, U, order)
    Z = [U[:, :0], *(one(X, mu) for one in candidates)]
    chosen = len(Z) - 1 if given != "auto" else 0
    if given == "auto" and candidates and not Run.current().over:
        cut = min(2 * order.size // 3, _MOST_TRIED)
        train, test = order[:cut], order[cut:][:_MOST_RESIDUALS]
        scores = []
        for z in Z:
            trial = _fitted(estimator, np.concatenate([z, U], axis=1)[train], masses[train], 0.3)
            if Run.current().interrupted:
                raise KeyboardInterrupt
            scores.append(_conditional_logpdf(trial.distribution_.by_volume(), z[test], U[test]))
        weights = masses[test] / masses[test].sum()
        chosen = simplest_good(np.stack(scores, axis=1), weights)
    few = order[:_MOST_RESIDUALS]
    found = _fitted(estimator, np.concatenate([Z[chosen], U], axis=1)[few], masses[few], 1.0)
    if not hasattr(found, "distribution_"):
        if Run.current().interrupted:
            raise KeyboardInterrupt
        raise TypeError(f"estimator must fit a density; {estimator!r} has none")
    if not chosen:
        return Shape(found.distribution_, U[few]), found
    values = Z[chosen][few]
    knots = np.unique(values[seeds(values, masses[None, few], _KNOTS)[0]], axis=0)
    return Shape(found.distribution_, U[few], candidates[chosen - 1], knots), found


# A copy fitted with a ``share`` of the time that is left. Ctrl-C keeps the best so far.
def _fitted(estimator: Any, data: np.ndarray, masses: np.ndarray, share: float) -> Any:
    copy, run = clone(estimator), Run.current()
    limit = run.limit(share)
    if limit is not None:
        copy.set_params(time_limit=max(limit, 1e-3))
    try:
        with warnings.catch_warnings():
            if limit is not None:  # the caller reports the time limit
                warnings.simplefilter("ignore", ConvergenceWarning)
            copy.fit(data, sample_weight=None if np.ptp(masses) == 0.0 else masses)
    except KeyboardInterrupt:
        run.interrupt()
    return copy
