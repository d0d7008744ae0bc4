"""Square: ‖c + Fᵀk(x)‖² over one kernel, relative to a measure: one term of a density."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density.factor import log_squares, merge_points, split_columns, unit_rows
from ksos.density.normals import Group
from ksos.ground import (
    CACHE_ELEMENTS,
    Array,
    is_numpy,
    like,
    namespace,
    on_host,
    quiet,
    row_blocks,
    row_squares,
    to_numpy,
    zeros,
)
from ksos.integrals import Integrals, basis_at, closed_form, exact_rule
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Measure
from ksos.observables.over_normals import normal_pairs

if TYPE_CHECKING:
    from ksos.density.sampling.rejection import Envelope
    from ksos.density.sampling.trains import Squares


_BLOCK_ELEMENTS = 1 << 18  # numbers held at a time: blocks of a matrix that stay in the cache
_DEVICE_ELEMENTS = 1 << 26  # what a GPU takes at once: 512 MB, for it is fastest on large products
_MASS_ENTRIES = 1 << 20  # entries of kernel values for which a sum over nodes is made: 8 MB
_MASS_BLOCK = 1 << 9  # rows of W at a time, so that a square of them fits into the cache
_UNDERFLOW = 1e-250  # below, kernel values begin to underflow, and logarithms are taken by rows
_LARGEST_LOG_ROW = 300.0  # squares of rows of this length, times kernel values, are still floats
_LARGEST_LOG_GRAM = 690.0  # e^690 = 1e299 is still a float
_EPSILON = float(np.finfo(np.float64).eps)
_DOUBTFUL = 1e-8  # a mass below may be rounding: it is compared with one of terms that add up
_FEW_COLUMNS = 0.5  # per support point: for more, a triangular factor is quicker to evaluate


class NoMass(ValueError):
    """An operation leaves no mass, at least to rounding; who asked knows the words."""

    def __init__(self, nearest: np.ndarray | None = None) -> None:
        super().__init__("no mass is left")
        self.nearest = nearest
        """Of values that no atom has: those of the nearest one."""


@dataclass(eq=False, repr=False)
class Square:
    """p(x) = ‖c + Fᵀk(x)‖² = Σ_ij B_ij k(x, x̃_i) k(x, x̃_j) with B = FFᵀ, relative to a measure.

    F and c are kept in natural units, F = unit_factor·e^{−log_unit/2}, because e^{log_unit}, the
    largest ∫k(x, x̃_i)²dρ, leaves the range of floats in hundreds of dimensions. Nothing is checked
    or scaled: that is what :class:`SoSDensity` does.
    """

    kernel: Kernel
    support_points: Any
    unit_factor: Any
    log_unit: float
    measure: Measure
    unit_constant: Any = None

    def __post_init__(self) -> None:
        # One memory layout: matrix products round differently in another one, and a loaded density
        # must give the same bits.
        for name in ("support_points", "unit_factor", "unit_constant"):
            if (array := getattr(self, name)) is not None:
                whole = np.ascontiguousarray if is_numpy(array) else namespace(array).asarray
                setattr(self, name, whole(array))

    # what terms that hide features have
    is_whole, interval = True, None

    @property
    def joint(self) -> Square:
        """The square over all features: itself."""
        return self

    @property
    def shown(self) -> list[int]:
        """All features."""
        return list(range(self.n_features))

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.support_points.shape[1])

    @property
    def rank(self) -> int:
        """The number of columns of F."""
        return int(self.unit_factor.shape[1])

    @property
    def integrals(self) -> Integrals:
        """The closed-form integrals of the kernel against the measure."""
        return closed_form(self.kernel, self.measure, self.n_features)

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""
        return feature_scales(self.kernel, self.n_features)

    def narrowest(self, feature: int) -> float:
        """The length on which the density varies along a feature, the others being held fixed."""
        precision = np.linalg.inv(self.kernel.matrix(self.n_features))
        return float(precision[feature, feature] ** -0.5)

    @property
    def value_cost(self) -> float:
        """How many values of normal densities a value of this one takes."""
        return 0.2 * self.support_points.shape[0]  # measured: a kernel value is a fifth of one

    @property
    def is_normal_sum(self) -> bool:
        """Whether this is a signed sum of normal densities: a Gaussian kernel on all of R^d."""
        free = np.all(np.isinf(self.measure.boundaries(self.n_features)))
        return bool(isinstance(self.kernel, Gaussian) and self.measure.by_volume and free)

    def normal_sum(self) -> Group:
        """A signed sum of normal densities: this for a Gaussian kernel, without its boundaries."""
        X, F, measure = self.support_points, self.unit_factor, self.measure.without_boundary
        (i, j, weights, means, covariance), *_ = normal_pairs(
            self.kernel, X, measure, self.log_unit
        )
        return Group(np.where(i == j, 1.0, 2.0) * (F @ F.T)[i, j] * weights, means, covariance)

    @np.errstate(under="ignore")
    def mass(self) -> float:
        """∫ p dρ = tr(BW), over square blocks of W: the memory does not depend on m, d or the rank.

        Where few nodes give the same integral to rounding, it is a sum over them instead, in which
        nothing cancels.
        """
        X, F, integrals, total = self.support_points, self.unit_factor, self.integrals, 0.0
        xp = namespace(X)
        if (atoms := self.measure.atoms) is not None:
            self.measure.check_features(self.n_features)
            weights = xp.exp(xp.log(like(atoms.weights, X)) - self.log_unit)
            return float(weights @ self._squares(like(atoms.points, X)))
        if X.shape[1] == 1 and self.unit_constant is None:
            rule = exact_rule(integrals, to_numpy(X), [], _MASS_ENTRIES / X.shape[0])
            if rule is not None:
                return float(xp.sum(basis_at(rule, self.kernel, X, F, self.log_unit) ** 2))
        widest = max(_MASS_BLOCK, *X.shape[1:], *F.shape[1:])
        blocks = list(row_blocks(X.shape[0], widest, _BLOCK_ELEMENTS))
        for i, rows in enumerate(blocks):
            for columns in blocks[: i + 1]:
                W = xp.exp(integrals.log_gram(X[rows, :], X[columns, :]) - self.log_unit)
                part = float(xp.sum(F[rows, :] * (W @ F[columns, :])))
                total += part if columns == rows else 2.0 * part
        if (c := self.unit_constant) is not None:
            log_mass = self.measure.log_mass(self.n_features) - self.log_unit
            mean = xp.exp(integrals.log_mean(X) - self.log_unit)
            total += float(xp.sum(c * c)) * math.exp(log_mass) + 2.0 * float(mean @ (F @ c))
        return total

    def scaled_to_one(self, mass: float | None = None) -> Square:
        """The same with mass one, ``mass`` being the present one if it is known."""
        root, c = math.sqrt(self.mass() if mass is None else mass), self.unit_constant
        constant = None if c is None else c / root
        return replace(self, unit_factor=self.unit_factor / root, unit_constant=constant)

    @np.errstate(under="ignore")
    def logpdf(self, X: Array) -> Array:
        """log p at the rows of X, relative to the measure; −inf where it vanishes, never NaN."""
        xp, out = namespace(X), self._squares(X)
        weak = out < _UNDERFLOW
        with quiet():
            out = xp.log(out)
        if bool(xp.any(weak)):
            out[weak] = self._log_squares(xp.take(X, xp.nonzero(weak)[0], axis=0))
        return xp.where(self.measure.contains(X), out, -xp.inf) - self.log_unit

    def log_by_volume(self, X: Array) -> Array:
        """log p·dρ/dx at the rows of X; on atoms, where there is no volume, log p."""
        by_volume = self.measure.normals(self.n_features) is None
        return self.logpdf(X) if by_volume else self.logpdf(X) + self.measure.log_density(X)

    @np.errstate(under="ignore")
    def _squares(self, X: Array) -> Array:
        """‖c + Fᵀk(x)‖² in natural units, in blocks of rows."""
        out, F, single = zeros((X.shape[0],), X), self.unit_factor, None
        if is_numpy(X) and F.shape[1] > F.shape[0] and self.unit_constant is None:
            F, single = split_columns(F)
        at, most = self.kernel.against(self.support_points), max(self.unit_factor.shape)
        held = CACHE_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS
        for rows in row_blocks(X.shape[0], most, held):
            k = at(X[rows, :])
            values = k @ F
            if self.unit_constant is not None:
                values += self.unit_constant
            out[rows] = row_squares(values)
            if single is not None:
                out[rows] += (k * k) @ single
        return out

    @np.errstate(under="ignore")
    def _log_squares(self, X: Array) -> Array:
        """log ‖c + Fᵀk(x)‖² in natural units, also where kernel values underflow."""
        out, xp, F, c = zeros((X.shape[0],), X), namespace(X), self.unit_factor, self.unit_constant
        both = F if c is None else xp.concat([F, c[None, :]], axis=0)
        unit, log_lengths = on_host(unit_rows)(both)
        held = _BLOCK_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS
        for rows in row_blocks(X.shape[0], max(F.shape), held):
            log_k = self.kernel.log(X[rows, :], self.support_points)
            if c is not None:  # log 1 = 0
                log_k = xp.concat([log_k, xp.zeros_like(log_k[:, :1])], axis=1)
            out[rows] = log_squares(log_k + log_lengths, unit)
        return out

    def log_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p, and ∇ log p = 4S⁻¹ Σ_i (Fψ)_i k_i (x̃_i − x)/‖ψ‖², ψ = Fᵀk(x), for a Gaussian
        kernel; 0 where p vanishes.

        The largest term of each sum Σ_i F_i k(x, x̃_i) is taken out first: it cancels, and nothing
        underflows far away.
        """
        points, origin = self.support_points, self.support_points[:1]
        precision = np.linalg.inv(self.kernel.matrix(self.n_features))
        F, log_lengths = unit_rows(self.unit_factor)
        log_p, gradient = self.logpdf(X), np.zeros(X.shape)
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            for rows in row_blocks(X.shape[0], max(F.shape)):
                log_terms = self.kernel.log(X[rows], points) + log_lengths
                peak = log_terms.max(axis=1, keepdims=True)
                k = np.exp(log_terms - np.where(np.isfinite(peak), peak, 0.0))
                psi = k @ F
                weight = k * (psi @ F.T)
                pull = weight @ (points - origin)
                pull -= weight.sum(axis=1, keepdims=True) * (X[rows] - origin)
                gradient[rows] = 4.0 * (pull @ precision) / row_squares(psi)[:, None]
        seen = np.isfinite(log_p)[:, None] & np.isfinite(gradient)
        return log_p, np.where(seen, gradient, 0.0)

    def node_masses(self) -> np.ndarray:
        """The mass of every node of a discrete measure."""
        atoms = self.measure.atoms
        assert atoms is not None
        mass = atoms.weights * to_numpy(
            np.exp(self.logpdf(like(atoms.points, self.support_points)))
        )
        return np.asarray(mass / mass.sum())

    def moved(self, move: Callable[[Any], Any]) -> Square:
        """The same with its arrays elsewhere."""
        c = None if self.unit_constant is None else move(self.unit_constant)
        X, F = move(self.support_points), move(self.unit_factor)
        return replace(self, support_points=X, unit_factor=F, unit_constant=c)

    def central_point_first(self) -> Square:
        """The same with a support point from the middle in front."""
        X = self.support_points
        order = central_first(X, self.bandwidths)
        return replace(self, support_points=X[order], unit_factor=self.unit_factor[order])

    @cached_property
    def squares(self) -> Squares | None:
        """The sampler that draws column by column, made when it is first needed, or None."""
        from ksos.density.sampling import squares_of  # samplers are made of squares

        return squares_of(self)

    @cached_property
    def envelope(self) -> Envelope | None:
        """What rejection draws from, made when it is first needed; None if there is none."""
        from ksos.density.sampling import envelope  # samplers are made of squares

        return envelope(self)

    def __repr__(self) -> str:
        return f"Square(m={self.support_points.shape[0]}, rank={self.rank}, kernel={self.kernel!r})"

    def __getstate__(self) -> dict[str, Any]:
        made = ("squares", "envelope")  # they can be made again
        return {name: value for name, value in vars(self).items() if name not in made}


def feature_scales(kernel: Kernel, d: int) -> np.ndarray:
    """The length of each feature: its bandwidth, or √S_kk of a metric."""
    return np.sqrt(np.diagonal(kernel.matrix(d))) if kernel.full else kernel.sigma_vector(d)


def central_first(X: np.ndarray, scale: np.ndarray | float) -> np.ndarray:
    """The order of the points that puts one from the middle in front.

    Coordinates are measured from it: an outlier there would cost all the others their digits.
    """
    middle = np.partition(X, X.shape[0] // 2, axis=0)[X.shape[0] // 2]
    with np.errstate(over="ignore"):
        first = int(np.argmin(np.abs((X - middle) / scale).max(axis=1)))
    return np.argsort(np.arange(X.shape[0]) != first, kind="stable")


def assemble(
    kernel: Kernel,
    points: np.ndarray,
    measure: Measure,
    factor: np.ndarray,
    log_rows: np.ndarray | float = 0.0,
) -> tuple[float, Square]:
    """The logarithm of the mass of ‖Gᵀk(x)‖² with G = diag(e^{log_rows})·factor, and the square
    scaled to mass one.

    The scales are logarithms because they may differ by more than floats do; only their sum with
    the norms of k(·, x̃_i) in L²(ρ) matters. Support points that coincide become one, so that their
    amplitudes cancel before they are squared. A mass that is nothing but rounding raises NoMass.
    """
    log_diagonal = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    rows, log_lengths = unit_rows(factor)
    scales = np.broadcast_to(log_rows, log_lengths.shape)
    largest = float(scales[np.isfinite(log_lengths) & np.isfinite(scales)].max(initial=-np.inf))
    largest = largest if math.isfinite(largest) else 0.0
    # in this order: scales may be huge, lengths are not
    log_lengths = log_lengths + (scales - largest)
    levels = log_lengths + 0.5 * log_diagonal
    alive = np.isfinite(levels)
    if not np.any(alive):
        raise NoMass
    rows, points = rows[alive], points[alive]
    log_unit = float(log_diagonal[alive].max())
    top = float(levels[alive].max())
    log_lengths = log_lengths[alive] - top + 0.5 * log_unit
    excess = max(float(log_lengths.max()) - _LARGEST_LOG_ROW, 0.0)
    if 2.0 * excess > _LARGEST_LOG_GRAM:
        raise NoMass  # on the measure, the kernels differ by more than floats can
    with np.errstate(under="ignore"):
        G = rows * np.exp(log_lengths - excess)[:, None]
    points, G = merge_points(points, G)
    if G.shape[1] > G.shape[0]:
        mixed, single = split_columns(G)
        if mixed.shape[1] < _FEW_COLUMNS * G.shape[0]:
            G = np.concatenate([mixed, np.diag(np.sqrt(single))[:, single > 0.0]], axis=1)
        else:  # triangular, G = RᵀQᵀ, with an error relative to each row
            G = np.asarray(np.linalg.qr(G.T, mode="r")).T
    out = Square(kernel, points, G, log_unit - 2.0 * excess, measure)
    mass = out.mass()
    if not mass > _smallest_mass(out, mass):
        raise NoMass
    return math.log(mass) + 2.0 * (largest + top), out.scaled_to_one(mass)


def _smallest_mass(square: Square, mass: float) -> float:
    """What rounding can leave of no mass: ε of Σ_ij ‖G_i‖‖G_j‖W_ij, a mass without cancellation."""
    if mass > _DOUBTFUL:
        return 0.0
    lengths = np.sqrt(np.einsum("ij,ij->i", square.unit_factor, square.unit_factor))[:, None]
    uncanceled = replace(square, unit_factor=lengths).mass()
    return max((8.0 * _EPSILON) ** 2, 4.0 * _EPSILON * uncanceled)
