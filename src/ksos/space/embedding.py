"""Kernel mean embeddings w_μ = ∫ k(·, x) dμ(x), their projection on landmarks, and the maximum mean
discrepancy.

The exact MMD of a density takes the cheapest accurate route: sums over the atoms of a discrete
measure; a tensor rule in up to three features, which sees only nonnegative values of the density;
or the order-4 integrals of the paper's lemma, whose terms may cancel. On a box these are sums over
the pairs of kernels that overlap.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ksos.data import Checks, Chunks, Gathered, as_source
from ksos.density import (
    Columns,
    Corrected,
    SoSDensity,
    Square,
    TableDensity,
    embedded,
    feature_scales,
    inner_product,
    normal_groups,
    with_gaps,
)
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground import (
    FLOAT_BYTES,
    Array,
    as_points,
    column_names,
    in_order,
    inner,
    like,
    namespace,
    norm,
    order_of,
    require_memory,
    row_blocks,
    shown_names,
    to_numpy,
    zeros,
)
from ksos.integrals import closed_form, density_inner, density_inner_matrix
from ksos.integrals.box_pairs import BoxPairs
from ksos.integrals.gaussian import BELL_NODES, GaussianBox, axes_of
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.base import KernelSum, KernelSums
from ksos.kernels.roots import whiten_columns
from ksos.measures import Box, Measure
from ksos.observables import KernelFunction, Observable, ObservableMatrix, sum_over_nodes
from ksos.quadrature import composite, log_outer, tensor_grid
from ksos.space.bandwidth import MOST_MEDIAN_POINTS, bandwidth_rule
from ksos.space.tables import (
    PAIR,
    Sum,
    TableKernel,
    cells_of,
    density_kernel,
    embedding_at,
    encoded,
    is_mixed,
    recoded,
    rows_kernel,
    sum_of_rows,
    sums_of_density,
    together,
)

_TENSOR_FEATURES = 3  # with 16 nodes in each, a rule for four would have 65,536 for every box
_MOST_NODES = 400_000  # of a tensor rule: 3 MB, for three features 73 nodes in each, 7 bandwidths
_MOST_ALONG = 8_000  # of a feature, whose kernel matrix takes 500 MB
_NODES_PER_BANDWIDTH = 8  # Gauss–Legendre, for rounding in tests/space/test_exact_mmd.py
_LEAST_NODES = 16  # see above
_TAIL = 6.5  # bandwidths beyond the support points where a density is cut: e^{−2·6.5²} is rounding
_BLOCK_ELEMENTS = 1 << 22  # numbers at once: 32 MB, beyond which larger blocks are not faster
_DUBIOUS = 1e-4  # of a squared MMD of order 1: one percent of a distance of 0.1
_MOST_IN_MEMORY = 20_000  # samples gathered where every pair of them counts: 3 GB of pairs
_KERNEL_VALUE = 20.0  # floating-point operations that one exponential costs


class MeanEmbedding(KernelSum):
    """v = Σ_i a_i k(·, x_i): the embedding of samples, or with signed weights any finite element of
    the RKHS.

    Parameters
    ----------
    points : array (n, d)
        The x_i. They are copied, since the caller may change the array; one that nobody can change,
        after ``points.setflags(write=False)`` or mapped from a file to be read, is kept as it is:
        so a million rows need not be in memory twice.
    weights : array of n floats, optional
        The a_i; default 1/n each. They need neither be positive nor sum to one.
    kernel : Kernel

    >>> from ksos.kernels import Gaussian
    >>> v = MeanEmbedding([[0.0], [1.0]], [0.5, 0.5], kernel=Gaussian(1.0))
    >>> v([[0.0]]).round(6)
    array([0.68394])
    """

    def __call__(self, Z: Any) -> Array:
        """v(Z_r) = Σ_i a_i k(Z_r, x_i), shape (ℓ,)."""
        Z = as_points(in_order(Z, self.feature_names, "Z"), "Z", n_features=self.n_features)
        return evaluate(self, self.kernel, like(Z, self.points))

    def norm(self) -> float:
        """‖v‖ in the RKHS."""
        square = inner(self.weights, evaluate(self, self.kernel, self.points))
        return math.sqrt(max(square, 0.0))

    def __repr__(self) -> str:
        names = shown_names(self.feature_names)
        return (
            f"MeanEmbedding({self.points.shape[0]} points in {self.n_features} features{names},"
            f" kernel={self.kernel!r})"
        )


class TableEmbedding(MeanEmbedding):
    """The same of encoded rows of a table with columns of any kind; it is evaluated at tables."""

    def __init__(
        self, columns: Columns, points: np.ndarray, weights: Any = None, *, kernel: TableKernel
    ) -> None:
        super().__init__(points, weights, kernel=kernel)
        self.columns = columns

    def __call__(self, Z: Any) -> Array:
        return evaluate(self, self.kernel, encoded(self.columns, self.columns.read(Z, "Z")))


# what a target becomes: its embedding can be evaluated anywhere
Embedded = MeanEmbedding | SoSDensity


class Projection:
    """The orthogonal projection of embeddings on span{k(·, z_r)}: coordinates S·w(Z), where S
    K(Z,Z) Sᵀ = I.

    There are q = ``rank`` of them. Distances between coordinates are the paper's ‖P_m(v − w)‖ (its
    lemma of the closed form): at most the exact distance, and closer to it the more landmarks there
    are.
    """

    def __init__(
        self, kernel: Kernel, landmarks: Array, tol: float = 1e-10, whitening: str = "eigh"
    ) -> None:
        self.kernel, self.landmarks = kernel, landmarks
        ell = landmarks.shape[0]

        def matrix() -> Array:
            what = f"the kernel matrix of {ell} landmarks"
            require_memory(4 * ell**2 * FLOAT_BYTES, what, "use fewer landmarks", beside=landmarks)
            return kernel(landmarks)

        ones = 1.0 + zeros((ell,), landmarks)
        self.whitening = whiten_columns(
            lambda r: kernel(landmarks[r : r + 1, :], landmarks)[0, :], ones, matrix, tol, whitening
        )
        # rows in one piece
        self.S = namespace(landmarks).asarray(self.whitening.T.T, copy=True)
        self.rank = int(self.S.shape[0])

    def coordinates(self, target: Any) -> Array:
        """Those of the embedding of samples, a :class:`MeanEmbedding` or a density, shape (q,)."""
        if isinstance(target, KernelSums):
            return self.S @ _in_rkhs(target, self.kernel, "target").at(self.landmarks)
        return self.S @ evaluate(as_target(target, self.kernel), self.kernel, self.landmarks)


@np.errstate(under="ignore")
def mmd(
    a: Any,
    b: Any,
    kernel: Kernel | None = None,
    landmarks: Any = None,
    *,
    max_operations: float = 1e13,
) -> float:
    """The maximum mean discrepancy ‖w_a − w_b‖ [Gretton2012], the root, not the square, between
    samples, embeddings and densities.

    Parameters
    ----------
    a, b : array (n, d), data frame, MeanEmbedding, SoSDensity or TableDensity
        Or samples in chunks, ``ksos.chunks(…)``, an array or a data frame of Dask: any number with
        ``landmarks``, else at most 20,000.
    kernel : Kernel, optional
        Default: that of an embedding among ``a`` and ``b``, else that of a density; between arrays
        ``median_kernel(a, b)``. The kernel of columns of any kind is a product: Gaussian for
        numbers, as they are encoded, and 1 or a constant for equal and for different levels.
    landmarks : array (ℓ, d), optional
        Project on these first: cheap, and a lower bound of the exact value. Without them the value
        is exact: for a density by a tensor rule in up to three features, or from the order-4
        integrals of the paper's lemma, O(m⁴) operations.
    max_operations : float
        Raise if an exact computation is predicted to take more floating-point operations.

    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> round(mmd(np.array([[0.0]]), np.array([[1.0]]), Gaussian(1.0)), 6)  # √(2 − 2/e)
    1.124385
    """
    a, b = as_source(a)[0], as_source(b)[0]
    if is_mixed(a) or is_mixed(b):
        return _table_mmd(a, b, kernel, landmarks, max_operations)
    names = _names(a) or _names(b)
    a, b = _in_order(a, names, "a"), _in_order(b, names, "b")
    if kernel is None:
        # an embedding knows its RKHS; a density only suggests its own kernel
        kinds = (MeanEmbedding, SoSDensity)
        known = [t.kernel for kind in kinds for t in (a, b) if isinstance(t, kind)]
        if not known and (isinstance(a, Chunks) or isinstance(b, Chunks)):
            raise ValueError(
                "samples in chunks need a kernel, kernel=…; ksos.median_kernel(a, b) of some of"
                " them suggests one"
            )
        kernel = known[0] if known else median_kernel(a, b)
    if not isinstance(kernel, Kernel):
        raise ValueError(
            "kernel must be a kernel object, such as ksos.kernels.Gaussian(1.0), or None; got"
            f" {kernel!r}"
        )
    if landmarks is not None:
        landmarks = as_points(in_order(landmarks, names, "landmarks"), "landmarks")
    a, b = (_side(t, kernel, landmarks, names, what) for t, what in ((a, "a"), (b, "b")))
    if a.n_features != b.n_features:
        raise ValueError(f"a has {a.n_features} features, but b has {b.n_features}")
    if landmarks is not None:
        projection = Projection(kernel, as_points(landmarks, "landmarks", n_features=a.n_features))
        return norm(projection.coordinates(a) - projection.coordinates(b))
    kernel, a, b = _in_axes(kernel, a, b)
    if isinstance(a, MeanEmbedding) and isinstance(b, MeanEmbedding):
        xp, weights = namespace(a.points), like(b.weights, a.points)
        both = xp.concat([a.points, like(b.points, a.points)])
        difference = MeanEmbedding(both, xp.concat([a.weights, -weights]), kernel=kernel)
        return difference.norm()
    forms = _exact_forms(a, kernel, max_operations)
    forms += [(-w, form) for w, form in _exact_forms(b, kernel, max_operations)]
    square = sum(
        (2.0 - (k == 0)) * v * w * _inner(form, other, kernel, max_operations)
        for i, (v, form) in enumerate(forms)
        for k, (w, other) in enumerate(forms[i:])
    )
    return math.sqrt(max(square, 0.0))


def _table_mmd(a: Any, b: Any, kernel: Any, landmarks: Any, max_operations: float) -> float:
    """The same for densities and rows of tables with columns of any kind."""
    sides = [with_gaps(t) if isinstance(t, SoSDensity) else t for t in (a, b)]
    if wrong := [t for t in sides if isinstance(t, (MeanEmbedding, Chunks))]:
        raise TypeError(
            "columns of any kind are compared between densities and tables in memory; got"
            f" {wrong[0]!r}"
        )
    densities = [t for t in sides if isinstance(t, TableDensity)]
    known = [t.columns for t in densities]
    pairs = [] if densities else [cells_of(t, what) for t, what in zip(sides, "ab", strict=True)]
    known += [columns for columns, _ in pairs]
    columns = known[0] if len(known) == 1 else together(*known)
    if not densities:
        rows = [encoded(columns, recoded(cells, own, columns)) for own, cells in pairs]
        found = rows_kernel(columns, np.concatenate(rows), kernel)
        one, other = (TableEmbedding(columns, part, kernel=found) for part in rows)
        points = None if landmarks is None else encoded(columns, columns.read(landmarks))
        return mmd(one, other, found, points, max_operations=max_operations)
    found, forms = density_kernel(densities[0], columns, kernel), []
    for target, sign, what in zip(sides, (1.0, -1.0), "ab", strict=True):
        if isinstance(target, TableDensity):
            sums = sums_of_density(target, columns)
        else:
            sums = [_complete_rows(columns, target, what)]
            sums = [one._replace(weights=one.weights / one.weights.size) for one in sums]
        forms += [one._replace(weights=sign * one.weights) for one in sums]
    if landmarks is not None:
        Z = _complete_rows(columns, landmarks, "landmarks")
        away = np.sum([embedding_at(one, Z, found, columns) for one in forms], axis=0)
        points = encoded(columns, columns.read(landmarks))
        return norm(Projection(found, points).S @ away)
    n = sum(one.weights.size for one in forms)
    _require_operations(0.5 * PAIR * n**2, f"sums of {n} normal distributions", max_operations)
    square = sum(
        (2.0 - (k == 0)) * float(embedding_at(one, other, found, columns) @ other.weights)
        for i, one in enumerate(forms)
        for k, other in enumerate(forms[i:])
    )
    return math.sqrt(max(square, 0.0))


def _complete_rows(columns: Columns, X: Any, what: str) -> Sum:
    cells = columns.read(X, what)
    if np.isnan(cells).any():
        raise ValueError(
            f"{what} has missing cells, which a density cannot be compared with; fill them with"
            " draws, as p.impute(X, how='draw'), or drop those rows"
        )
    return sum_of_rows(columns, encoded(columns, cells), np.ones(cells.shape[0]))


def _side(
    target: Any,
    kernel: Kernel,
    landmarks: Array | None,
    names: tuple[str, ...] | None,
    what: str,
) -> Embedded | KernelSums:
    """One side of an MMD: of chunks, the kernel sums at the landmarks, or all of few rows."""
    if not isinstance(target, Chunks):
        return as_target(target, kernel, what)
    if landmarks is not None:
        return sums_at(target, kernel, landmarks, names)
    rows, count, checks = [], 0, Checks("mmd", names=names)
    for chunk in target:
        found, checks = checks.rows(chunk)
        rows += [tuple(map(to_numpy, found))] if found.points.shape[0] else []
        count += found.points.shape[0]
        if count > _MOST_IN_MEMORY:
            raise ValueError(
                f"{what}, {target!r}, has more than {_MOST_IN_MEMORY} samples, and the exact MMD"
                " takes all pairs of them; pass landmarks=, an array of points on which both are"
                " projected, or fewer samples"
            )
    if not count:
        raise ValueError(
            f"{what}, {target!r}, is empty: no chunk has rows; at least one sample is needed"
        )
    points, weights = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    return MeanEmbedding(points, weights / weights.sum(), kernel=kernel)


def median_kernel(a: Any, b: Any, rng: Any = 0) -> Gaussian:
    """The Gaussian kernel whose bandwidth is the median distance between the different rows of
    ``a`` and ``b`` together.

    If the standard deviations of the features differ by more than a factor of ten, there is one
    bandwidth per feature. With more than 3,000 rows, the median is that of a subsample that ``rng``
    draws from both samples together.

    >>> round(float(median_kernel([[0.0], [1.0]], [[3.0]]).sigma), 6)
    2.0
    """
    samples = [to_numpy(as_points(sample, name)) for name, sample in (("a", a), ("b", b))]
    if samples[0].shape[1] != samples[1].shape[1]:
        raise ValueError(f"a has {samples[0].shape[1]} features, but b has {samples[1].shape[1]}")
    generator, both = np.random.default_rng(rng), np.concatenate(samples)
    n = both.shape[0]
    chosen = generator.choice(n, min(n, MOST_MEDIAN_POINTS), replace=False)
    points, counts = np.unique(both[chosen] + 0.0, axis=0, return_counts=True)
    with warnings.catch_warnings():
        # of rows that are all the same, which no kernel tells apart
        warnings.simplefilter("ignore", UserWarning)
        return Gaussian(bandwidth_rule("median", points, counts / counts.sum(), generator))


def as_target(target: Any, kernel: Kernel, name: str = "target") -> Embedded:
    """Samples become a :class:`MeanEmbedding`; embeddings and densities pass."""
    if isinstance(target, SoSDensity):
        return target.with_feature_names(None)
    if isinstance(target, MeanEmbedding):
        return _in_rkhs(target, kernel, name)
    if isinstance(target, KernelSums):
        raise TypeError(
            f"{name} is known at its landmarks only: {target!r}; samples or a MeanEmbedding are"
            " needed here"
        )
    return MeanEmbedding(as_points(target, name), kernel=kernel)


def _in_rkhs(target: Any, kernel: Kernel, name: str) -> Any:
    if target.kernel != kernel:
        raise ValueError(
            f"{name} is an embedding in the RKHS of {target.kernel!r}, but distances are measured"
            f" in that of {kernel!r}"
        )
    return target


def _names(target: Any) -> tuple[str, ...] | None:
    if isinstance(target, (SoSDensity, MeanEmbedding)):
        return target.feature_names
    if isinstance(target, Chunks):
        return target.names
    return column_names(target)


def _in_order(target: Any, names: tuple[str, ...] | None, what: str) -> Any:
    """A target with its features in the order of ``names``; chunks are put in order one by one."""
    if isinstance(target, Chunks):
        return target
    if not isinstance(target, (SoSDensity, MeanEmbedding)):
        return in_order(target, names, what)
    if (order := order_of(target.feature_names, names, what)) is None:
        return target
    if isinstance(target, MeanEmbedding):
        return MeanEmbedding(
            target.points[:, order], target.weights, kernel=target.kernel.restrict(order)
        )
    return target.marginal(order)


def evaluate(target: Embedded, kernel: Kernel, Z: Array) -> Array:
    """w_target(Z_r) for the embedding kernel ``kernel``, shape (ℓ,)."""
    if target.n_features != Z.shape[1]:
        raise ValueError(
            f"the target has {target.n_features} features, but the landmarks have {Z.shape[1]}"
        )
    if isinstance(target, MeanEmbedding):
        nothing = KernelSums(kernel, Z, state=(zeros((3, Z.shape[0] + 1), Z), 0))
        return nothing.add(like(target.points, Z), like(target.weights, Z)).values
    return sum(
        (weight * embedded(term, kernel, Z) for weight, term in target.terms.parts),
        zeros((Z.shape[0],), Z),
    )


def sums_at(
    source: Chunks, kernel: Kernel, landmarks: Array, names: tuple[str, ...] | None
) -> KernelSums:
    """Σ_i a_i k(x_i, z_j) over all samples, in one pass."""
    checks = Checks("mmd", n_features=int(landmarks.shape[1]), names=names)
    return source.gather(Gathered(checks, sums=KernelSums(kernel, landmarks))).sums


def _in_axes(kernel: Kernel, a: Embedded, b: Embedded) -> tuple[Kernel, Embedded, Embedded]:
    """Kernel and targets in coordinates in which a kernel with a metric, and that of a density, are
    products over the features.

    No inner product depends on the coordinates. On a measure with a boundary there are no such
    coordinates, and no closed form.
    """
    densities = [
        term.joint
        for p in (a, b)
        if not isinstance(p, MeanEmbedding)
        for _, term in p.terms.on_host.parts
    ]
    if (
        not kernel.full
        or not densities
        or any(np.any(np.isfinite(p.measure.boundaries(p.n_features))) for p in densities)
        or not all(isinstance(p.kernel, Gaussian) for p in densities)
    ):
        return kernel, a, b
    axes, plain = axes_of(kernel, a.n_features, densities[0].kernel), Gaussian(1.0)
    zero = to_numpy(next(p.support_points for p in (a, b) if not isinstance(p, MeanEmbedding)))[0]

    def moved(target: Embedded) -> Embedded:
        if not isinstance(target, MeanEmbedding):
            return target.affine(1.0, -zero).affine(axes.V)
        return MeanEmbedding(
            axes.coordinates(target.points, like(zero, target.points)), target.weights, kernel=plain
        )

    return plain, moved(a), moved(b)


def require_exact_mmd(kernel: Kernel, embedding_kernel: Kernel, measure: Measure, d: int) -> None:
    """Raise before any work if the exact MMD of densities on ``measure`` has no formula."""
    if measure.atoms is not None:
        return
    remedy = (
        "put the density on nodes: as measure, or as domain of a Ball, pass"
        " Discrete.quadrature(box, n_nodes) or Discrete.qmc(box, n_points)"
    )
    if not (kernel.smooth and embedding_kernel.smooth):
        raise IntegralNotAvailableError(
            f"the exact MMD of densities with {kernel!r} in the RKHS of {embedding_kernel!r} has no"
            f" formula on {measure!r}; use Gaussian kernels, or {remedy}"
        )
    if d > _TENSOR_FEATURES and not closed_form(kernel, measure, d, embedding_kernel).pairwise:
        raise IntegralNotAvailableError(
            f"the exact MMD of densities on a box is known in up to {_TENSOR_FEATURES} features;"
            f" got {d}; use a Lebesgue or Normal measure, or {remedy}"
        )


def _rule_sizes(
    model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel
) -> tuple[Box, list[int]]:
    """The box that holds the mass of the densities on X, and how many nodes per feature integrate
    them and the kernel to rounding.
    """
    d = X.shape[1]
    eta, sigma, smooth = feature_scales(model, d), kernel.sigma_vector(d), measure.smooth_length(d)
    narrow = 1.0 / np.sqrt(np.diagonal(np.linalg.inv(model.matrix(d)))) if model.full else eta
    lowest, highest = measure.boundaries(d)
    low = np.maximum(lowest, np.clip(X.min(axis=0), None, highest) - _TAIL * eta)
    high = np.minimum(highest, np.clip(X.max(axis=0), lowest, None) + _TAIL * eta)
    finest = np.minimum(np.minimum(narrow, sigma), smooth)
    counts = np.ceil(
        _LEAST_NODES + _NODES_PER_BANDWIDTH * np.minimum((high - low) / finest, 1e6)
    ).astype(int)
    return Box(low, high), counts.tolist()


@dataclass(frozen=True)
class TensorRule:
    """A Gauss–Legendre rule for Gaussian kernels, with so many nodes per bandwidth that it is exact
    to rounding: ``nodes`` (N, d), the tensor product of ``axes``, with weights relative to ρ.

    Since ``kernel``, that of the MMD, is a product over the features, its N × N matrix is applied
    as one small matrix per feature.
    """

    kernel: Kernel
    axes: tuple[np.ndarray, ...]
    nodes: np.ndarray
    log_weights: np.ndarray

    @classmethod
    def of(
        cls, model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel
    ) -> TensorRule | None:
        """The rule for the densities of a model; None if there is none of bearable size."""
        if X.shape[1] > _TENSOR_FEATURES or kernel.full or not (model.smooth and kernel.smooth):
            return None
        box, counts = _rule_sizes(model, X, measure, kernel)
        if max(counts) > _MOST_ALONG or math.prod(counts) > _MOST_NODES:
            return None
        ends = zip(box.low[:, None], box.high[:, None], counts, strict=True)
        axes, weights = zip(*(composite(*one) for one in ends), strict=True)
        nodes = tensor_grid(axes)
        return cls(kernel, axes, nodes, log_outer(weights) + measure.log_density(nodes))

    def masses(self, p: Square) -> np.ndarray:
        """What p puts on the nodes, shaped as the tensor that they are. None is negative: nothing
        cancels.
        """
        masses = np.empty(self.nodes.shape[0])
        for rows in row_blocks(masses.shape[0], p.support_points.shape[0], _BLOCK_ELEMENTS):
            with np.errstate(under="ignore"):
                masses[rows] = np.exp(to_numpy(p.logpdf(self.nodes[rows])) + self.log_weights[rows])
        return masses.reshape([axis.shape[0] for axis in self.axes])

    def _factors(self, points: np.ndarray) -> list[Any]:
        """For each feature, its kernel between the nodes and the points, with the numbers of the
        indices for ``einsum``: the points are numbered d.
        """
        factors: list[Any] = []
        for k, axis in enumerate(self.axes):
            along = self.kernel.restrict([k])(axis[:, None], points[:, k : k + 1])
            factors += [along, [k, len(self.axes)]]
        return factors

    def smoothed(self, masses: np.ndarray, at: TensorRule | None = None) -> np.ndarray:
        """Σ_n m_n k(x, x_n) at the nodes x of this rule, or of another one."""
        for k, axis in enumerate((self if at is None else at).axes):
            factor = self.kernel.restrict([k])(axis[:, None], self.axes[k][:, None])
            masses = np.moveaxis(np.tensordot(factor, masses, axes=(1, k)), 0, k)
        return masses

    def seen_from(self, points: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n k(z, x_n) at other points z."""
        out, d = np.empty(points.shape[0]), len(self.axes)
        for rows in row_blocks(points.shape[0], masses[0].size, _BLOCK_ELEMENTS):
            factors = self._factors(points[rows])
            out[rows] = np.einsum(masses, [*range(d)], *factors, [d], optimize=True)
        return out

    def atoms_at_nodes(self, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i a_i k(x, z_i) at the nodes x, shaped as they are."""
        d = len(self.axes)
        factors = self._factors(points)
        return np.asarray(np.einsum(weights, [d], *factors, [*range(d)], optimize=True))


@dataclass(frozen=True)
class _OnGrid:
    """A density as its masses at the nodes of a rule."""

    rule: TensorRule
    masses: np.ndarray


_Form = MeanEmbedding | _OnGrid | Square | Corrected


def _exact_forms(
    target: Embedded, kernel: Kernel, max_operations: float
) -> list[tuple[float, _Form]]:
    """The parts of a target with their weights, each in the form in which its exact inner products
    are taken.
    """
    if isinstance(target, MeanEmbedding):
        return [(1.0, target)]
    found: list[tuple[float, _Form]] = []
    for weight, term in target.terms.on_host.parts:
        form: _Form = term
        if isinstance(term, Square):
            form = _exact_form(term, kernel, max_operations)
        if isinstance(form, Square) and form.kernel.smooth and kernel.smooth:
            _warn_of_rounding(form)
        found.append((weight, form))
    return found


def _exact_form(p: Square, kernel: Kernel, max_operations: float = math.inf) -> _Form:
    """Atoms, masses on a grid wherever there is one, since none of them is negative, or the square
    itself for order-4 integrals.
    """
    if (atoms := p.measure.atoms) is not None:
        return MeanEmbedding(atoms.points, p.node_masses(), kernel=kernel)
    model = p.kernel, p.support_points, p.measure, kernel
    if (rule := TensorRule.of(*model)) is not None:
        each = (_KERNEL_VALUE + 2.0 * p.rank) * p.support_points.shape[0]
        if rule.log_weights.size * each <= max_operations:
            return _OnGrid(rule, rule.masses(p))
    if p.kernel.smooth and kernel.smooth and math.isinf(_cost_of_sums(*model)):
        counts = "×".join(map(str, _rule_sizes(*model)[1]))
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {p.kernel!r} on {p.measure!r} would need a quadrature"
            f" rule with {counts} nodes; pass landmarks= for the projected MMD,"
            " take larger bandwidths, or put the density on nodes, as"
            " measure=Discrete.quadrature(box, n_nodes)"
        )
    return p


def _warn_of_rounding(p: Square) -> None:
    """(Σ|B_ij W_ij|)²ε is the rounding error to expect of the order-4 integrals."""
    F, X = p.unit_factor, p.support_points
    sizes = np.abs(F @ F.T) * np.exp(p.integrals.log_gram(X, X) - p.log_unit)
    error = float(np.sum(sizes)) ** 2 * float(np.finfo(np.float64).eps)
    if error > _DUBIOUS:
        message = (
            f"the weights of this density cancel: its exact squared MMD may be off by {error:.0e};"
            " pass landmarks= for the projected MMD"
        )
        warnings.warn(message, RuntimeWarning, stacklevel=5)


def _inner(a: _Form, b: _Form, kernel: Kernel, max_operations: float) -> float:
    """⟨w_a, w_b⟩: a sum over atoms or nodes where one of them has some, else a closed form."""
    if isinstance(a, _OnGrid) and isinstance(b, _OnGrid):
        return float(np.vdot(b.masses, a.rule.smoothed(a.masses, b.rule)))
    if isinstance(b, MeanEmbedding) or not isinstance(a, MeanEmbedding | _OnGrid):
        a, b = b, a
    if isinstance(a, _OnGrid):
        a = MeanEmbedding(a.rule.nodes, a.masses.ravel(), kernel=kernel)
    if isinstance(a, MeanEmbedding):
        return inner(a.weights, like(_embedding_at(b, kernel, a.points), a.weights))
    if isinstance(a, Square) and isinstance(b, Square):
        counts = a.support_points.shape[0], b.support_points.shape[0]
        what = f"densities with {counts[0]} and {counts[1]} support points"
        sums = [_cost_of_sums(p.kernel, p.support_points, p.measure, kernel) for p in (a, b)]
        _require_operations(math.sqrt(sums[0] * sums[1]), what, max_operations)
        return density_inner(a, b, kernel)
    forms: tuple[Any, Any] = a, b
    left, right = (normal_groups(form) for form in forms)
    if left is None or right is None or not isinstance(kernel, Gaussian):
        raise IntegralNotAvailableError(
            "the exact MMD between these densities has no formula; pass landmarks= for the"
            " projected MMD"
        )
    n, m = (sum(int(group.weights.size) for group in groups) for groups in (left, right))
    what = f"sums of {n} and {m} normal distributions"
    _require_operations(_KERNEL_VALUE * n * m, what, max_operations)
    return inner_product(left, right, kernel.matrix(a.n_features))


def _embedding_at(form: _Form, kernel: Kernel, Z: Array) -> Array:
    """w_form(Z_r), shape (ℓ,)."""
    if isinstance(form, _OnGrid):
        return like(form.rule.seen_from(to_numpy(Z), form.masses), Z)
    if isinstance(form, MeanEmbedding):
        return evaluate(form, kernel, Z)
    return embedded(form, kernel, Z)


def _require_operations(cost: float, what: str, most: float) -> None:
    if most < cost < math.inf:
        raise ValueError(
            f"the exact MMD of {what} is predicted to take {cost:.2g} operations, more than"
            f" max_operations={most:.2g}; pass landmarks= for the projected MMD, or raise"
            " max_operations"
        )


class Witness(Observable):
    r"""f(x) = ∫ k(x, y) p(y) dρ(y) − Σ_i a_i k(x, x_i).

    E_q f = ⟨w_q, w_p − w_μ̂⟩ for any density q: the coordinate of q along the direction in which p
    is away from the data.
    """

    bounded = True

    def __init__(self, p: SoSDensity, data: MeanEmbedding) -> None:
        self.p, self.data, self.n_features = p, data, data.n_features

    def __call__(self, X: Any) -> np.ndarray:
        X, kernel = self._points(X), self.data.kernel
        return np.asarray(to_numpy(_embedding_at(self._form, kernel, X)) - to_numpy(self.data(X)))

    @cached_property
    def _square(self) -> Square:
        return self.p.terms.on_host.parts[0][1].joint

    @cached_property
    def _form(self) -> _Form:
        return _exact_form(self._square, self.data.kernel)

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        form, own = self._form, self.data.kernel
        points, weights = to_numpy(self.data.points), to_numpy(self.data.weights)
        if (rule := TensorRule.of(kernel, X, measure, own)) is not None:
            if isinstance(form, _OnGrid):
                f = form.rule.smoothed(form.masses, rule).ravel()
            else:
                f = to_numpy(_embedding_at(form, own, rule.nodes))
            f = f - rule.atoms_at_nodes(points, weights).ravel()
            return ObservableMatrix(
                sum_over_nodes(kernel, X, rule.nodes, rule.log_weights, f, log_unit, T)
            )
        if math.isinf(_cost_of_sums(kernel, X, measure, own)):
            raise IntegralNotAvailableError(
                f"the integrals of {self!r} on {measure!r} would need too many nodes; take larger"
                " bandwidths"
            )
        V = density_inner_matrix(self._square, own, kernel, measure, X, log_unit)
        atoms = KernelFunction(points, weights, kernel=own)
        found = ObservableMatrix(V - atoms.matrix(kernel, X, measure, log_unit).values)
        return found.transformed(T)

    def __repr__(self) -> str:
        return f"Witness({self.p!r}, {self.data!r})"


def _cost_of_sums(model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel) -> float:
    """The operations of the order-4 integrals, infinite if there are none."""
    (m, d), integrals = X.shape, closed_form(model, measure, X.shape[1], kernel)
    if integrals.pairwise:
        return float(m) ** 4
    wide = np.all(kernel.sigma_vector(d) >= feature_scales(model, d))
    if not isinstance(integrals, GaussianBox) or not wide:
        return math.inf
    pairs = BoxPairs(integrals, X).means.shape[0]
    return 2.0 * _KERNEL_VALUE * BELL_NODES * d * float(pairs) ** 2
