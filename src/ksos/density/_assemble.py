"""How every operation on a density ends: rows of a factor with scales of their own become a density
of mass one, in natural units.

For separable kernels, k = k_S·k_R, and for Gaussian ones with a metric, features are integrated out
or held fixed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import solve_triangular

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.arrays import Array, namespace, quiet
from ksos.ground.memory import FLOAT_BYTES, require_memory
from ksos.ground.names import said
from ksos.ground.threads import one_blas_thread
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables import BoxIndicator

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = [
    "Rest",
    "assemble",
    "hadamard_factor",
    "hold_fixed",
    "integrate_out",
    "listed",
    "log_squares",
    "named",
    "split_columns",
]
__all__ += ["unit_rows"]

_EPSILON = float(np.finfo(np.float64).eps)
_LARGEST_LOG_ROW = 300.0  # squares of such rows, times kernel values, are still floats
_LARGEST_LOG_GRAM = 690.0
_CANCELLED = (8.0 * _EPSILON) ** 2  # the square of an amplitude that is rounding and nothing else
_DOUBTFUL, _DROP = 1e-8, 1e-15
_FEW_COLUMNS = 0.5  # of the number of support points
_MANY_COLUMNS, _SAFE, _SAFER = (
    4,
    1e-6,
    1e-10,
)  # times the number of support points; relative errors of a density by Cholesky's method


def unit_rows(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of ``factor`` scaled to length one, and the logarithms of their lengths; rows of
    zeros stay, with length −inf.
    """
    largest = np.abs(factor).max(axis=1)
    scale = np.where(largest > 0.0, largest, 1.0)
    rows = factor / scale[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    with np.errstate(divide="ignore"):
        log_lengths = np.log(lengths) + np.log(scale)
    return rows / np.where(lengths > 0.0, lengths, 1.0)[:, None], log_lengths


def log_squares(log_terms: Array, rows: Array) -> Array:
    """log ‖Σ_i e^{log_terms_ni} rows_i‖², shape (n,), with the largest term of each sum taken out
    before it can underflow.
    """
    xp = namespace(log_terms)
    peak = xp.max(log_terms, axis=1)
    shift = xp.where(xp.isfinite(peak), peak, 0.0)
    with quiet():
        values = xp.exp(log_terms - shift[:, None]) @ rows
        return xp.log(xp.vecdot(values, values)) + 2.0 * shift


def split_columns(factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """M, the columns that mix support points, and the summed squares of those that hold one point
    each: FFᵀ = MMᵀ + diag(bumps).

    A kernel density estimate is nothing but such columns, and a matrix product with all of them
    would be mostly zeros.
    """
    single = np.count_nonzero(factor, axis=0) <= 1
    return np.ascontiguousarray(factor[:, ~single]), np.sum(factor[:, single] ** 2, axis=1)


def assemble(
    like: SoSDensity,
    kernel: Kernel,
    points: np.ndarray,
    measure: Measure,
    factor: np.ndarray,
    log_rows: np.ndarray | float = 0.0,
    *,
    nothing_left: str = "no mass is left",
) -> SoSDensity:
    """The density ∝ ‖Gᵀk(x)‖² with G = diag(e^{log_rows})·factor, of the class of ``like``, scaled
    to mass one.

    The scales are logarithms because they may differ by more than floats do; only their sum with
    the norms of k(·, x̃_i) in L²(ρ) matters. Support points that coincide become one, so that their
    amplitudes cancel before they are squared. A mass that is nothing but rounding is an error,
    which says ``nothing_left``.
    """
    log_diagonal = closed_form(kernel, measure, points.shape[1]).log_diagonal(points)
    rows, log_lengths = unit_rows(factor)
    scales = np.broadcast_to(log_rows, log_lengths.shape)
    largest = scales[np.isfinite(log_lengths) & np.isfinite(scales)].max(initial=-np.inf)
    log_lengths = log_lengths + (
        scales - (largest if np.isfinite(largest) else 0.0)
    )  # in this order: scales may be huge, lengths are not
    levels = log_lengths + 0.5 * log_diagonal
    alive = np.isfinite(levels)
    if not np.any(alive):
        raise ValueError(nothing_left)
    rows, log_lengths, log_diagonal, points, levels = (
        a[alive] for a in (rows, log_lengths, log_diagonal, points, levels)
    )
    log_unit = float(log_diagonal.max())
    log_lengths = log_lengths - levels.max() + 0.5 * log_unit
    excess = max(float(log_lengths.max()) - _LARGEST_LOG_ROW, 0.0)
    if 2.0 * excess > _LARGEST_LOG_GRAM:
        raise ValueError(
            f"{nothing_left}: on {measure!r} the kernels of its support points differ by more than"
            " floating-point numbers can"
        )
    with np.errstate(under="ignore"):
        G = rows * np.exp(log_lengths - excess)[:, None]
    points, G = _merge(points, G)
    if G.shape[1] > G.shape[0]:
        mixed, bumps = split_columns(G)
        if (
            mixed.shape[1] < _FEW_COLUMNS * G.shape[0]
        ):  # quicker to evaluate than as many columns as points
            G = np.concatenate([mixed, np.diag(np.sqrt(bumps))[:, bumps > 0.0]], axis=1)
        else:  # triangular, G = RᵀQᵀ, with an error relative to each row
            G = np.asarray(np.linalg.qr(G.T, mode="r")).T
    out = like.from_units(kernel, points, G, log_unit - 2.0 * excess, measure)
    mass = out.mass()
    if not mass > _smallest_mass(out, mass):
        raise ValueError(nothing_left)
    out.unit_factor = out.unit_factor / np.sqrt(mass)
    return out


def _smallest_mass(density: SoSDensity, mass: float) -> float:
    """What rounding can leave of no mass at all: Σ_ij ‖G_i‖‖G_j‖W_ij is a mass without
    cancellation, and ε of it is lost.
    """
    if mass > _DOUBTFUL:
        return 0.0
    lengths = np.sqrt(np.einsum("ij,ij->i", density.unit_factor, density.unit_factor))[:, None]
    uncancelled = density.from_units(
        density.kernel, density.support_points, lengths, density.log_unit, density.measure
    )
    return max(_CANCELLED, 4.0 * _EPSILON * uncancelled.mass())


def _merge(points: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Equal points become one, in the order of their first appearance, and their rows of the factor
    are added.
    """
    distinct, first, inverse = np.unique(
        points + 0.0, axis=0, return_index=True, return_inverse=True
    )
    if distinct.shape[0] == points.shape[0]:
        return points, factor
    order = np.argsort(first)
    place = np.argsort(order)[inverse.ravel()]
    merged = np.zeros((distinct.shape[0], factor.shape[1]))
    np.add.at(merged, place, factor)
    return points[first[order]], merged


class Rest:
    r"""k(x, x̃) = k_S(x_S, x̃_S)·k_R(x_R − Cx_S, x̃_R − Cx̃_S): what a kernel says about the
    features R beyond what it says about S.

    A separable kernel has C = 0. A metric, with P its inverse, has C = −P_RR⁻¹P_RS = S_RS S_SS⁻¹,
    and k_R has the metric P_RR⁻¹.
    """

    def __init__(self, kernel: Kernel, given: list[int], rest: list[int]) -> None:
        self.given, self.rest, self.C, self.kernel = (
            given,
            rest,
            np.zeros((len(rest), len(given))),
            kernel.restrict(rest),
        )
        if kernel.full:
            n, order = len(given), given + rest
            L = np.linalg.cholesky(kernel.matrix(len(order))[np.ix_(order, order)])
            self.C = solve_triangular(L[:n, :n], L[n:, :n].T, lower=True, trans="T").T
            self.kernel = kernel.with_sigma(L[n:, n:] @ L[n:, n:].T)

    def points(self, X: np.ndarray, origin: np.ndarray | None = None) -> np.ndarray:
        """x_R − C(x_S − origin_S) of the rows x of ``X``."""
        return self.moved(
            X, X[:, self.given] if origin is None else X[:, self.given] - origin[self.given], -1.0
        )

    def moved(self, X: np.ndarray, steps: np.ndarray, sign: float = 1.0) -> np.ndarray:
        """x_R + C·steps."""
        return X[:, self.rest] + sign * (steps @ self.C.T) if np.any(self.C) else X[:, self.rest]


def integrate_out(
    density: SoSDensity,
    keep: list[int],
    drop: list[int],
    measure: Measure,
    within: BoxIndicator | None = None,
    nothing_left: str = "no mass is left",
) -> SoSDensity:
    """B ↦ B ∘ W_R for the features R = ``drop``: a density of the features ``keep`` with respect to
    ``measure``, of higher rank.

    With a metric, W_R is the mass matrix of :class:`Rest`, which is W/W_S up to a constant. With
    ``within``, integrals are over a box of the features R, and the kernel is separable.
    """
    _require_product(density)
    X, others = density.support_points, Rest(density.kernel, keep, drop)
    integrals = closed_form(others.kernel, density.measure.restrict(drop), len(drop))
    at_drop = others.points(X, X[0])
    log_W = (
        integrals.log_gram(at_drop, at_drop)
        if within is None
        else within.log_gram(others.kernel, at_drop, integrals.measure)
    )
    half = 0.5 * np.diagonal(log_W)
    alive = np.isfinite(
        half
    )  # elsewhere k_R(·, x̃_i) vanishes on the measure, and the density with it
    if not np.any(alive):
        raise ValueError(nothing_left)
    rows, log_lengths = unit_rows(density.unit_factor[alive])
    correlations = np.exp(log_W[np.ix_(alive, alive)] - half[alive, None] - half[None, alive])
    factor = hadamard_factor(rows, correlations)
    points, log_rows = X[alive][:, keep], half[alive] + log_lengths
    return assemble(
        density,
        density.kernel.restrict(keep),
        points,
        measure,
        factor,
        log_rows,
        nothing_left=nothing_left,
    )


def hold_fixed(
    density: SoSDensity,
    given: list[int],
    values: np.ndarray,
    rest: list[int],
    measure: Measure,
    names: Sequence[str] | None = None,
) -> SoSDensity:
    """B ↦ ΔBΔ with Δ = diag(k_S(v, x̃_i)), S = ``given``: a density of the features ``rest`` with
    respect to ``measure``.

    With a metric, the points move along: x̃_R + C(v − x̃_S).
    """
    _require_product(density)
    X, others = density.support_points, Rest(density.kernel, given, rest)
    log_delta = density.kernel.restrict(given).log(values[None, :], X[:, given])[0]
    nothing_left = (
        f"the density vanishes at {listed(given, values, names)}, at least to rounding: there is no"
        " conditional density"
    )
    moved = others.moved(X, values - X[:, given])
    return assemble(
        density,
        others.kernel,
        moved,
        measure,
        density.unit_factor,
        log_delta,
        nothing_left=nothing_left,
    )


def listed(features: list[int], values: np.ndarray, names: Sequence[str] | None = None) -> str:
    """{feature: value, …}, for messages."""
    return str(
        dict(
            zip(
                features if names is None else [names[k] for k in features],
                values.tolist(),
                strict=True,
            )
        )
    )


def named(sides: dict[int, tuple[float, float]], names: Sequence[str] | None = None) -> str:
    """Intervals of features, for messages."""
    return ", ".join(
        f"{said(k, names)} lies between {low:g} and {high:g}" for k, (low, high) in sides.items()
    )


def _require_product(density: SoSDensity) -> None:
    kernel, d = density.kernel, density.n_features
    if not kernel.separable(d) and not (kernel.full and density.measure.by_volume):
        raise IntegralNotAvailableError(
            f"{kernel!r} is not a product over its {d} features: marginals and conditionals of its"
            " densities are no kernel sums of squares; pass product=True to the kernel, or use a"
            " discrete measure such as Discrete.quadrature(box, …)"
        )


def hadamard_factor(F: np.ndarray, R: np.ndarray) -> np.ndarray:
    """L with LLᵀ = (FFᵀ) ∘ R, positive semi-definite by Schur's theorem, and as few columns as
    rounding allows.

    With R = VΛVᵀ the columns f_a ∘ √λ_b v_b are such a factor. They are never squared: L keeps the
    digits that the entries of (FFᵀ) ∘ R have lost where they cancel. Rows of F of length one and a
    unit diagonal of R make the error relative to each row.

    Where these would be many columns, and every point has a bump b_i of its own beside them, L is
    Cholesky's factor: the density is at least Σ b_i k_i², so that rounding changes it by no more
    than ε Σ 1/b_i of itself anywhere, and far less where nothing cancels. The same holds with the
    least eigenvalue of (FFᵀ) ∘ R in the place of every b_i.
    """
    m = F.shape[0]
    require_memory(
        12 * m * m * FLOAT_BYTES,
        f"integrating features out of a density with {m} support points",
        "compress it first",
    )
    with one_blas_thread(m):
        values, V = np.linalg.eigh(R)
    keep = values > _DROP * values[-1]
    roots = V[:, keep] * np.sqrt(values[keep])
    F, bumps = split_columns(F)
    bumps = bumps * np.diagonal(R)
    if F.shape[1] * roots.shape[1] > _MANY_COLUMNS * m:
        product = (F @ F.T) * R + np.diag(bumps)
        if np.all(bumps > 0.0) and _EPSILON * np.sum(1.0 / bumps) < _SAFE:
            return np.linalg.cholesky(product)
        if (least := float(np.linalg.eigvalsh(product)[0])) > 0.0 and m * _EPSILON < _SAFER * least:
            return np.linalg.cholesky(product)
    at_once = max(1, 4 * m // roots.shape[1])
    columns = np.zeros((m, 0))
    for start in range(0, F.shape[1], at_once):
        products = F[:, start : start + at_once, None] * roots[:, None, :]
        columns = np.concatenate([columns, products.reshape(m, -1)], axis=1)
        if columns.shape[1] > m:
            columns = np.asarray(np.linalg.qr(columns.T, mode="r")).T
    if F.shape[1]:
        U, s, _ = np.linalg.svd(columns, full_matrices=False)
        columns = U[:, s > _DROP * s[0]] * s[s > _DROP * s[0]]
    return np.concatenate([columns, np.diag(np.sqrt(bumps))[:, bumps > 0.0]], axis=1)
