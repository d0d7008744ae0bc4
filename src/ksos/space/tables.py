"""Mean embeddings of tables with columns of any kind: of rows, some of whose cells are missing, and
of densities, with a kernel that is a product over the columns.

A density is a signed sum of normal densities times levels. So its inner products with rows and with
other densities are sums over pairs.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ksos.data.columns import learn
from ksos.density import Column, Columns, TableDensity, restored
from ksos.ground import Array, column_names, is_table, make_of, quoted, row_blocks
from ksos.kernels import Gaussian, Kernel, squared_distances
from ksos.space.bandwidth import bandwidth_rule

_BLOCK_ELEMENTS = 1 << 20  # numbers held at a time: 8 MB
_FILLS = 256  # cells that a missing one stands for: their mean is right to 1/16 standard deviation
_THETA = 0.5  # κ of two different levels with a kernel of one's own, as in corrections of densities
PAIR = 30.0
"""Operations for a pair of normal densities."""
_TURNS = (-2.0, -1.0, 0.0, 1.0, 2.0)  # of a circle, σ being half of one: a third adds e^{−25}


class TableKernel(Kernel):
    r"""Π_k [θ_k + (1 − θ_k)·1{c_k = c'_k}·exp(−((u_k − u'_k)/σ_k)²)] between encoded rows.

    Every column has a number u, which is 0 if it has none, and a code c. A plain number has θ = 0
    and one code, a category no number, and a value with a mass of its own a code of its own. A row
    is an array of all u and then all c.

    The code of a missing cell is −1. It stands for all cells in ``fills``: its factor is the mean
    over them. So it is the mean embedding of the column, and the kernel is positive definite.

    Parameters
    ----------
    sigma : array (d,)
        Bandwidth of each column.
    thetas : array (d,)
        Value at two different codes of each column.
    fills : sequence of arrays (n, 2), optional
        Pairs (u, c) that missing cells of each column stand for.
    periods : array (d,), optional
        Periods of circular columns, which are infinite for the others.
    """

    name = "table"

    def __init__(
        self,
        sigma: Any,
        thetas: Any,
        fills: Sequence[np.ndarray] | None = None,
        periods: Any = None,
    ) -> None:
        super().__init__(sigma, product=True)
        self.thetas, self.fills = np.asarray(thetas, dtype=np.float64), fills
        self.periods = np.full(self.sigma.shape, np.inf) if periods is None else periods

    def log_profile(self, t: Array) -> Array:
        return -t

    def reach(self, log_level: float) -> float:
        return math.sqrt(-log_level)

    def check_features(self, d: int) -> None:
        if d != 2 * self.sigma.size:
            raise ValueError(f"the kernel is for rows with {self.sigma.size} columns; got {d / 2}")

    def scaled(self, factor: float) -> TableKernel:
        """Wider in every column: of levels, log θ shrinks as exponents do."""
        thetas = self.thetas ** (1.0 / factor**2)
        return TableKernel(factor * self.sigma, thetas, self.fills, self.periods)

    def log(self, X: Array, Y: Array | None = None) -> Array:
        Y, d = X if Y is None else Y, self.sigma.size
        out = np.zeros((X.shape[0], Y.shape[0]))
        with np.errstate(divide="ignore", under="ignore"):
            for k in range(d):
                out += np.log(self._with_gaps(k, X[:, [k, d + k]], Y[:, [k, d + k]]))
        return out

    def _factor(self, k: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.thetas[k] + (1.0 - self.thetas[k]) * (x[:, 1:] == y[:, 1]) * self.near(
            k, x[:, :1] - y[:, 0]
        )

    def near(self, k: int, away: np.ndarray) -> np.ndarray:
        """exp(−(u/σ)²) at differences of column k, on a circle the sum over its turns."""
        sigma, period = self.sigma[k], float(self.periods[k])
        if math.isinf(period):
            return np.asarray(np.exp(-((away / sigma) ** 2)))
        turned = away - period * np.rint(away / period)
        total = sum(np.exp(-(((turned + t * period) / sigma) ** 2)) for t in _TURNS)
        return np.asarray(total / self.turns_at_zero(k))

    def turns_at_zero(self, k: int) -> float:
        """Σ_t exp(−(t·period/σ)²), which is 1 for a column that is no circle."""
        turns = np.array(_TURNS) * self.periods[k] if np.isfinite(self.periods[k]) else np.zeros(1)
        return float(np.sum(np.exp(-((turns / self.sigma[k]) ** 2))))

    def _with_gaps(self, k: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        found, (no_x, no_y) = self._factor(k, x, y), (x[:, 1] < 0.0, y[:, 1] < 0.0)
        if self.fills is not None and (no_x.any() or no_y.any()):
            every = self.fills[k]
            found[no_x] = self._factor(k, every, y).mean(axis=0)
            found[:, no_y] = self._factor(k, x, every).mean(axis=1)[:, None]
            found[np.ix_(no_x, no_y)] = self._factor(k, every, every).mean()
        return found

    def parameters(self) -> dict[str, Any]:
        return {"sigma": self.sigma.tolist(), "thetas": self.thetas.tolist()}


def is_mixed(X: Any) -> bool:
    """Whether it is a density or a table with cells that are no numbers: text or gaps."""
    if isinstance(X, TableDensity):
        return True
    try:
        return is_table(X) and learn(X).columns is not None
    except ValueError:
        return True  # whose error names a or b


def cells_of(X: Any, what: str, missing: str = "model") -> tuple[Columns, np.ndarray]:
    """The columns of rows, and their cells."""
    try:
        found = learn(X, None, missing)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
    if found.columns is not None:
        return found.columns, found.cells
    names = column_names(X, what)
    listed = names or [f"x{k}" for k in range(np.shape(X)[1])]
    make = None if names is None else make_of(X)
    columns = Columns(tuple(Column(name, "numeric") for name in listed), make)
    return columns, columns.read(X, what)


def together(a: Columns, b: Columns) -> Columns:
    """Columns of both, in the order of ``a``, with the levels of both."""
    by_name = {column.name: column for column in b.listed}
    if by_name.keys() != {column.name for column in a.listed}:
        names = [[column.name for column in one.listed] for one in (a, b)]
        raise ValueError(f"a has the columns {quoted(names[0])}, but b has {quoted(names[1])}")
    listed = []
    for one in a.listed:
        other, own = by_name[one.name], ("name", "kind", "atoms", "sides", "seam", "knee", "scores")
        if any(getattr(one, field) != getattr(other, field) for field in own):
            raise ValueError(
                f"the column {one.name!r} is {one.kind} in a and {other.kind} in b, or is encoded"
                " differently; turn it into one kind, or compare a density with rows of the other"
                " one, as in ksos.mmd(p, q.rvs(1000))"
            )
        more = tuple(level for level in other.levels if level not in one.levels)
        listed.append(replace(one, levels=one.levels + more, categories=None))
    return replace(a, listed=tuple(listed))


def recoded(cells: np.ndarray, own: Columns, columns: Columns) -> np.ndarray:
    """Cells in the order of ``columns`` and with the numbers of their levels."""
    out = np.empty((cells.shape[0], len(columns.listed)))
    places = {column.name: k for k, column in enumerate(own.listed)}
    for k, column in enumerate(columns.listed):
        out[:, k] = cells[:, places[column.name]]
        if not column.is_numeric:
            known = own.listed[places[column.name]].levels
            numbers = np.array([*map(column.levels.index, known), np.nan])
            out[:, k] = numbers[np.where(np.isnan(out[:, k]), len(known), out[:, k]).astype(int)]
    return out


def encoded(columns: Columns, cells: np.ndarray) -> np.ndarray:
    """Rows for a :class:`TableKernel`: all u, then all codes. Counts are spread over their cells at
    random, as in fits.
    """
    u, c, _ = columns.encode(cells, np.random.default_rng(0).random)
    d = len(columns.listed)
    out = np.zeros((cells.shape[0], 2 * d))
    for i, k in enumerate(columns.lines):
        out[:, k] = np.nan_to_num(u[:, i])
    for j, k in enumerate(columns.coded):
        out[:, d + k] = c[:, j]
    out[:, d:][np.isnan(cells)] = -1.0
    return out


def decoded(columns: Columns, row: np.ndarray) -> np.ndarray:
    """One encoded row as the values of its cells."""
    d = len(columns.listed)
    u = np.where(row[d:] < 0.0, np.nan, row[:d])[None]
    cells = columns.decode(u[:, columns.lines], row[None, d:][:, columns.coded].astype(int))
    values = [restored(one, cell) for one, cell in zip(columns.listed, cells.T, strict=True)]
    return np.array([value.tolist()[0] for value in values], dtype=object)


def rows_kernel(columns: Columns, rows: np.ndarray, kernel: Any, rng: Any = 0) -> TableKernel:
    """The kernel for encoded ``rows`` of both samples together: that of the columns of numbers, or
    one in which two levels differ as much as numbers that are a median distance apart.
    """
    d, lines = len(columns.listed), columns.lines
    sigma, thetas, theta = np.ones(d), np.zeros(d), _THETA
    if kernel is not None:
        if not isinstance(kernel, Gaussian):
            raise ValueError(
                "the kernel of a table with columns of any kind must be Gaussian, of the columns of"
                f" numbers as they are encoded; got {kernel!r}"
            )
        sigma[lines] = kernel.sigma_vector(len(lines))
    else:
        theta = math.exp(-1.0 / d)
        if lines:
            u = np.where(rows[:, [d + k for k in lines]] < 0.0, np.nan, rows[:, lines])
            u = np.where(np.isnan(u), np.nanmedian(u, axis=0), u)
            deviation = u.std(axis=0)
            unit = np.where(deviation > 0.0, deviation, 1.0)
            points, counts = np.unique(u / unit, axis=0, return_counts=True)
            generator = np.random.default_rng(rng)
            if points.shape[0] > 1:
                weights = counts / counts.sum()
                unit = unit * bandwidth_rule("median", points, weights, generator)
            sigma[lines] = unit * math.sqrt(d / len(lines))
    thetas[columns.coded] = theta
    fills = []
    for k in range(d):
        known = rows[rows[:, d + k] >= 0.0][:, [k, d + k]]
        known = known[np.lexsort(known.T)]
        fills.append(known[np.linspace(0, len(known) - 1, min(len(known), _FILLS)).astype(int)])
    return TableKernel(sigma, thetas, fills, _periods(columns))


def density_kernel(p: TableDensity, columns: Columns, kernel: Any) -> TableKernel:
    """The kernel of a density: that of its correction, column by column, or one that is given."""
    (_, terms), d = max(p.parts, key=lambda one: one[0]), len(columns.listed)
    if kernel is None:
        one, sigma, thetas = terms.correction, np.ones(d), np.zeros(d)
        sigma[columns.lines] = np.sqrt(np.diagonal(one.metric))[list(terms.numeric_shown)]
        thetas[columns.coded] = one.thetas[list(terms.categorical_shown)]
        return TableKernel(sigma, thetas, None, _periods(columns))
    found = rows_kernel(columns, np.empty((0, 2 * d)), kernel)
    return TableKernel(found.sigma, found.thetas, None, found.periods)


def _periods(columns: Columns) -> np.ndarray:
    turns = [(c.high - c.low) if c.kind == "circular" else np.inf for c in columns.listed]
    return np.array(turns)


class Sum(NamedTuple):
    """Σ_a weights_a N(means_a, covariance) times levels: one array (n, codes) for every coded
    column.
    """

    weights: np.ndarray
    means: np.ndarray
    covariance: np.ndarray
    levels: list[np.ndarray]


def sum_of_rows(columns: Columns, rows: np.ndarray, weights: np.ndarray) -> Sum:
    """Encoded rows without gaps: normal densities without width."""
    d, sizes = len(columns.listed), columns.levels
    codes = [rows[:, d + k].astype(int) for k in columns.coded]
    levels = [np.eye(n)[c] for n, c in zip(sizes, codes, strict=True)]
    zero = np.zeros((len(columns.lines),) * 2)
    return Sum(weights, rows[:, columns.lines], zero, levels)


def sums_of_density(p: TableDensity, columns: Columns) -> list[Sum]:
    """The same of a density, with the columns and levels of ``columns``."""
    names = [column.name for column in p.columns.listed]
    order = [names.index(column.name) for column in columns.listed]
    p = p if order == [*range(len(order))] else p.only(*order)
    found = []
    for share, terms in p.parts:
        for group, levels in terms.groups():
            wide = []
            for j, k in enumerate(columns.coded):
                own = np.zeros((group.weights.size, columns.levels[j]))
                listed = p.columns.listed[k].levels
                numbers = [columns.listed[k].levels.index(level) for level in listed]
                own[:, numbers or slice(None)] = levels[j]
                wide.append(own)
            found.append(Sum(share * group.weights, group.means, group.covariance, wide))
    return found


def embedding_at(a: Sum, b: Sum, kernel: TableKernel, columns: Columns) -> np.ndarray:
    """⟨a, each term of b⟩ in the RKHS, without the weights of b."""
    lines, coded, out = columns.lines, columns.coded, np.zeros(b.weights.shape[0])
    atoms = [k for k in lines if columns.listed[k].atoms]
    for near in itertools.product([False, True], repeat=len(atoms)):
        active = {k for k in lines if k not in atoms} | set(itertools.compress(atoms, near))
        places = [i for i, k in enumerate(lines) if k in active]
        for some in row_blocks(a.weights.shape[0], b.weights.shape[0], _BLOCK_ELEMENTS):
            K = _gaussian(a, b, some, places, kernel, lines)
            for j, k in enumerate(coded):
                theta, v, w = kernel.thetas[k], a.levels[j][some], b.levels[j]
                own = slice(None)
                if k in atoms:
                    own = slice(-1, None) if k in active else slice(-1)
                same = (1.0 - theta) * (v[:, own] @ w[:, own].T)
                if k not in active:
                    same += theta * np.outer(v.sum(axis=1), w.sum(axis=1))
                K *= same
            out += a.weights[some] @ K
    return out


def _gaussian(
    a: Sum, b: Sum, some: slice, places: list[int], kernel: TableKernel, lines: list[int]
) -> np.ndarray:
    """E exp(−Σ((x − y)/σ)²) over the lines at ``places`` of pairs of normal densities, on circles
    summed over their turns.
    """
    if not places:
        return np.ones((a.weights[some].shape[0], b.weights.shape[0]))
    every = [lines[i] for i in places]
    sigma, period = kernel.sigma[every], kernel.periods[every]
    V = (a.covariance + b.covariance)[np.ix_(places, places)] / np.outer(sigma, sigma)
    root = np.linalg.inv(np.linalg.cholesky(np.eye(len(places)) + 2.0 * V)).T
    x, y = a.means[some][:, places], b.means[:, places]
    circles = np.flatnonzero(np.isfinite(period))
    for one in (x, y):
        one[:, circles] = np.mod(one[:, circles], period[circles])
    out, y = np.zeros((x.shape[0], y.shape[0])), (y / sigma) @ root
    for turns in itertools.product(_TURNS, repeat=circles.size):
        shift = np.zeros(len(places))
        shift[circles] = np.array(turns) * period[circles]
        at = ((x + shift) / sigma) @ root
        with np.errstate(under="ignore"):
            out += np.exp(-squared_distances(at, y, np.ones(len(places))))
    unit = math.prod(kernel.turns_at_zero(lines[places[i]]) for i in circles)
    return np.asarray(out * (float(np.prod(np.diagonal(root))) / unit))
