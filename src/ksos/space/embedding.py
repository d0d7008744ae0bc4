"""Kernel mean embeddings w_μ = ∫ k(·, x) dμ(x), their projection on landmarks, and the maximum mean
discrepancy.

The exact MMD of a density takes the cheapest accurate route: sums over the atoms of a discrete
measure; a tensor rule in up to three features, which sees only nonnegative values of the density;
or the order-4 integrals of the note's lemma, whose terms may cancel.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos.data.kernel_sums import KernelSums, kernel_sums
from ksos.data.sources import Chunk, Chunks, as_source
from ksos.density import SoSDensity, SoSMixture
from ksos.density.normal_sum import inner_product
from ksos.density.part import Part, Reference, Squares
from ksos.density.standard import feature_scales
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.arrays import Array, inner, like, namespace, norm, to_numpy, zeros
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.names import column_names, in_order, order_of, shown_names
from ksos.ground.validation import as_points, as_vector
from ksos.integrals import closed_form
from ksos.integrals.metric import axes_of
from ksos.integrals.quadruple import density_inner
from ksos.kernels import Gaussian, Kernel
from ksos.kernels.base import KernelSum
from ksos.measures import Box, Measure
from ksos.quadrature import composite, log_outer, tensor_grid
from ksos.space.bandwidth import bandwidth_rule
from ksos.space.whitening import whiten_columns

__all__ = [
    "MOST_NODES",
    "TENSOR_FEATURES",
    "MeanEmbedding",
    "Projection",
    "TensorRule",
    "as_target",
]
__all__ += [
    "evaluate",
    "exact_inner",
    "median_kernel",
    "mmd",
    "require_exact_mmd",
    "rule_sizes",
    "sums_at",
]

TENSOR_FEATURES = 3
"""Up to so many features there are tensor rules."""
MOST_NODES = 400_000
"""The largest tensor rule: it limits what the exact MMD of a density and the integrals of its
witness cost.
"""

_NODES_PER_BANDWIDTH, _LEAST_NODES = 8, 16
# bandwidths beyond the support points at which the density is cut: exp(−2·6.5²) is below rounding
_TAIL = 6.5
_BLOCK_ROWS = 20_000
_LOST_DIGITS, _DUBIOUS = (
    1e-12,
    1e-4,
)  # of the squared MMD: then a rule is preferred; then the user is warned
_MEDIAN_ROWS = 3000
_MOST_IN_MEMORY = 20_000  # samples gathered where every pair of them counts: 3 GB of pairs
_KERNEL_VALUE = 20.0  # an exponential costs this many operations

Target = Any
"""Samples (n, d), a :class:`MeanEmbedding`, an :class:`~ksos.SoSDensity` or an
:class:`~ksos.SoSMixture`.
"""


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
        return _atoms_at(self, self.kernel, like(Z, self.points))

    def norm(self) -> float:
        """‖v‖ in the RKHS."""
        return math.sqrt(max(exact_inner(self, self, self.kernel), 0.0))

    def __repr__(self) -> str:
        names = shown_names(self.feature_names)
        return (
            f"MeanEmbedding({self.points.shape[0]} points in {self.n_features} features{names},"
            f" kernel={self.kernel!r})"
        )


Law = MeanEmbedding | SoSDensity | SoSMixture
"""What a target becomes."""


class Projection:
    """The orthogonal projection of embeddings on span{k(·, z_r)}: coordinates S·w(Z), where S
    K(Z,Z) Sᵀ = I.

    Distances between coordinates are the note's ‖P_m(v − w)‖ (its lemma of the closed form): at
    most the exact distance, and closer to it the more landmarks there are.
    """

    def __init__(
        self, kernel: Kernel, landmarks: Array, tol: float = 1e-10, whitening: str = "eigh"
    ) -> None:
        self.kernel, self.landmarks = kernel, landmarks
        xp, ell = namespace(landmarks), landmarks.shape[0]

        def matrix() -> Array:
            require_memory(
                4 * ell * ell * FLOAT_BYTES,
                f"the kernel matrix of {ell} landmarks",
                "use fewer landmarks",
                beside=landmarks,
            )
            return kernel(landmarks)

        ones = xp.ones((ell,), dtype=xp.float64, device=landmarks.device)
        self.whitening = whiten_columns(
            lambda r: kernel(landmarks[r : r + 1, :], landmarks)[0, :], ones, matrix, tol, whitening
        )
        self.S = xp.asarray(self.whitening.T.T, copy=True)  # rows in one piece

    @property
    def rank(self) -> int:
        """q: the number of coordinates."""
        return int(self.S.shape[0])

    def coordinates(self, target: Target) -> Array:
        """The coordinates of a target's embedding, shape (q,)."""
        if isinstance(target, KernelSums):
            _require_same_kernel(target, self.kernel, "target")
            return self.S @ target.at(self.landmarks)
        return self.S @ evaluate(as_target(target, self.kernel), self.kernel, self.landmarks)


@np.errstate(under="ignore")
def mmd(
    a: Target,
    b: Target,
    kernel: Kernel | None = None,
    landmarks: Any = None,
    *,
    max_operations: float = 1e13,
) -> float:
    """The maximum mean discrepancy ‖w_a − w_b‖ [Gretton2012], the root, not the square, between
    samples, embeddings and densities.

    Parameters
    ----------
    a, b : array (n, d), MeanEmbedding, SoSDensity or SoSMixture
        Or samples in chunks, ``ksos.chunks(…)``, an array or a data frame of Dask: any number with
        ``landmarks``, else at most 20 000.
    kernel : Kernel, optional
        Default: that of an embedding among ``a`` and ``b``, else that of a density; between arrays
        ``median_kernel(a, b)``.
    landmarks : array (ℓ, d), optional
        Project on these first: cheap, and a lower bound of the exact value. Without them the value
        is exact: for a density by a tensor rule in up to three features, or from the order-4
        integrals of the note's lemma, O(m⁴) operations.
    max_operations : float
        Refuse an exact computation predicted to take more floating-point operations than this.

    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> round(mmd(np.array([[0.0]]), np.array([[1.0]]), Gaussian(1.0)), 6)  # √(2 − 2/e)
    1.124385
    """
    a, b = as_source(a)[0], as_source(b)[0]
    names = _names(b) if (of_a := _names(a)) is None else of_a
    a, b = _in_order(a, names, "a"), _in_order(b, names, "b")
    landmarks = None if landmarks is None else in_order(landmarks, names, "landmarks")
    if kernel is None:  # an embedding knows its RKHS; a density only suggests its own kernel
        kernel = next(
            (
                t.kernel
                for kind in (MeanEmbedding, SoSDensity, SoSMixture)
                for t in (a, b)
                if isinstance(t, kind)
            ),
            None,
        )
        if kernel is None and (isinstance(a, Chunks) or isinstance(b, Chunks)):
            raise ValueError(
                "samples in chunks need a kernel, kernel=…; ksos.median_kernel(a, b) of some of"
                " them suggests one"
            )
        kernel = median_kernel(a, b) if kernel is None else kernel
    if not isinstance(kernel, Kernel):
        raise ValueError(
            "kernel must be a kernel object, such as ksos.kernels.Gaussian(1.0), or None; got"
            f" {kernel!r}"
        )
    if landmarks is not None:
        points = as_points(landmarks, "landmarks")
        sides = [
            sums_at(t, kernel, points, names) if isinstance(t, Chunks) else as_target(t, kernel, w)
            for t, w in _both(a, b)
        ]
        _require_same_features(*sides)
        projection = Projection(
            kernel, as_points(points, "landmarks", n_features=sides[0].n_features)
        )
        return norm(projection.coordinates(sides[0]) - projection.coordinates(sides[1]))
    a, b = (
        _in_memory(t, kernel, names, w) if isinstance(t, Chunks) else as_target(t, kernel, w)
        for t, w in _both(a, b)
    )
    _require_same_features(a, b)
    kernel, a, b = _in_axes(kernel, a, b)
    forms = [
        *_exact_forms(a, kernel, max_operations),
        *((-w, form) for w, form in _exact_forms(b, kernel, max_operations)),
    ]
    left, right = forms[0][1], forms[-1][1]
    if len(forms) == 2 and isinstance(left, MeanEmbedding) and isinstance(right, MeanEmbedding):
        xp, points = namespace(left.points), left.points
        weights = xp.concat([left.weights, -like(right.weights, points)])
        both = MeanEmbedding(
            xp.concat([points, like(right.points, points)]), weights, kernel=kernel
        )
        square = _inner(both, both, kernel, max_operations)
    else:
        pairs = [(i, j) for i in range(len(forms)) for j in range(i, len(forms))]
        factors = [(1.0 if i == j else 2.0) * forms[i][0] * forms[j][0] for i, j in pairs]
        square = sum(
            c * _inner(forms[i][1], forms[j][1], kernel, max_operations)
            for c, (i, j) in zip(factors, pairs, strict=True)
        )
    return math.sqrt(max(square, 0.0))


def median_kernel(a: Any, b: Any, rng: Any = 0) -> Gaussian:
    """The Gaussian kernel whose bandwidth is the median distance between the different rows of
    ``a`` and ``b`` together.

    Where spreads of features differ by more than a factor of ten, there is one bandwidth per
    feature (:func:`ksos.space.bandwidth.median`). Of more than 3000 rows a part decides that
    ``rng`` draws, without regard to which sample they are of.

    >>> round(float(median_kernel([[0.0], [1.0]], [[3.0]]).sigma), 6)
    2.0
    """
    samples = [to_numpy(as_points(sample, name)) for name, sample in (("a", a), ("b", b))]
    if samples[0].shape[1] != samples[1].shape[1]:
        raise ValueError(f"a has {samples[0].shape[1]} features, but b has {samples[1].shape[1]}")
    generator, n = np.random.default_rng(rng), samples[0].shape[0]
    total = n + samples[1].shape[0]
    chosen = np.sort(generator.choice(total, min(total, _MEDIAN_ROWS), replace=False))
    rows = np.concatenate([samples[0][chosen[chosen < n]], samples[1][chosen[chosen >= n] - n]])
    points, counts = np.unique(rows + 0.0, axis=0, return_counts=True)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # of rows that are all the same, which no kernel tells apart
        return Gaussian(bandwidth_rule("median", points, counts / counts.sum(), generator))


def as_target(target: Target, kernel: Kernel, name: str = "target") -> Law:
    """Samples become a :class:`MeanEmbedding`; embeddings and densities pass, as mixtures where
    their measure makes them so.
    """
    if isinstance(target, (SoSDensity, SoSMixture)):
        return target.unnamed if target.plain is not None else target.unnamed.as_mixture()
    if isinstance(target, MeanEmbedding):
        _require_same_kernel(target, kernel, name)
        return target
    if isinstance(target, KernelSums):
        raise TypeError(
            f"{name} is known at its landmarks only: {target!r}; samples or a MeanEmbedding are"
            " needed here"
        )
    return MeanEmbedding(as_points(target, name), kernel=kernel)


def _both(a: Target, b: Target) -> Sequence[tuple[Target, str]]:
    return (a, "a"), (b, "b")


def _in_memory(
    source: Chunks, kernel: Kernel, names: tuple[str, ...] | None, name: str
) -> MeanEmbedding:
    return MeanEmbedding(*few_samples(source, names, name), kernel=kernel)


def _require_same_features(a: Law | KernelSums, b: Law | KernelSums) -> None:
    if a.n_features != b.n_features:
        raise ValueError(f"a has {a.n_features} features, but b has {b.n_features}")


def _require_same_kernel(target: MeanEmbedding | KernelSums, kernel: Kernel, name: str) -> None:
    if target.kernel != kernel:
        raise ValueError(
            f"{name} is an embedding in the RKHS of {target.kernel!r}, but distances are measured"
            f" in that of {kernel!r}"
        )


def _names(target: Target) -> tuple[str, ...] | None:
    if isinstance(target, (SoSDensity, SoSMixture, MeanEmbedding)):
        return target.feature_names
    if isinstance(target, Chunks):
        return target.names
    return column_names(target)


def _in_order(target: Target, names: tuple[str, ...] | None, what: str) -> Target:
    """A target with its features in the order of ``names``; chunks are put in order one by one."""
    if isinstance(target, Chunks):
        return target
    if not isinstance(target, (SoSDensity, SoSMixture, MeanEmbedding)):
        return in_order(target, names, what)
    if (order := order_of(target.feature_names, names, what)) is None:
        return target
    if isinstance(target, MeanEmbedding):
        return MeanEmbedding(
            target.points[:, order], target.weights, kernel=target.kernel.restrict(order)
        )
    return target.marginal(order)


def evaluate(target: Law, kernel: Kernel, Z: Array) -> Array:
    """w_target(Z_r) for the embedding kernel ``kernel``, shape (ℓ,)."""
    if target.n_features != Z.shape[1]:
        raise ValueError(
            f"the target has {target.n_features} features, but the landmarks have {Z.shape[1]}"
        )
    if isinstance(target, MeanEmbedding):
        return _atoms_at(target, kernel, Z)
    return sum(
        (weight * part.embedded(kernel, Z) for weight, part in _parts(target)),
        zeros((Z.shape[0],), Z),
    )


def _parts(p: SoSDensity | SoSMixture) -> Sequence[tuple[float, Part]]:
    return p.parts if isinstance(p, SoSMixture) else [(1.0, Squares(p))]


def _atoms_at(target: MeanEmbedding, kernel: Kernel, Z: Array) -> Array:
    total, lost = kernel_sums(kernel, Z, like(target.points, Z), like(target.weights, Z))
    return (total + lost)[:-1]


@dataclass(frozen=True, eq=False)
class _Sums:
    """Kernel sums that grow by chunks, their columns in the order of ``names``."""

    sums: KernelSums
    names: tuple[str, ...] | None

    def update(self, chunk: Chunk) -> _Sums:
        X, a = _rows(chunk, self.names)
        return replace(self, sums=self.sums.update(X, a)) if X.shape[0] else self

    def merge(self, other: _Sums) -> _Sums:
        return replace(self, sums=self.sums.merge(other.sums))


@dataclass(frozen=True, eq=False)
class _Few:
    """All samples and their weights as long as there are at most ``_MOST_IN_MEMORY``, and then only
    how many.
    """

    names: tuple[str, ...] | None
    count: int = 0
    rows: tuple[tuple[np.ndarray, np.ndarray], ...] = ()

    def update(self, chunk: Chunk) -> _Few:
        X, a = _rows(chunk, self.names)
        return self.merge(_Few(self.names, X.shape[0], ((X, a),) if X.shape[0] else ()))

    def merge(self, other: _Few) -> _Few:
        count = self.count + other.count
        return _Few(self.names, count, () if count > _MOST_IN_MEMORY else (*self.rows, *other.rows))


def sums_at(
    source: Chunks, kernel: Kernel, landmarks: Array, names: tuple[str, ...] | None
) -> KernelSums:
    """Σ_i a_i k(x_i, z_j) over all samples, in one pass."""
    return source.gather(_Sums(KernelSums(kernel, landmarks), names)).sums


def few_samples(
    source: Chunks, names: tuple[str, ...] | None, what: str
) -> tuple[np.ndarray, np.ndarray]:
    """All samples with their shares of the mass; an error if they are too many for a sum over all
    pairs.
    """
    found = source.gather(_Few(names))
    if not found.count:
        raise ValueError(
            f"{what}, {source!r}, is empty: no chunk has rows; at least one sample is needed"
        )
    if found.count > _MOST_IN_MEMORY:
        raise ValueError(
            f"{what}, {source!r}, has {found.count} samples, and the exact MMD takes all pairs of"
            " them; pass landmarks=, an array of points on which both are projected, or at most"
            f" {_MOST_IN_MEMORY} samples"
        )
    points, weights = (np.concatenate(parts) for parts in zip(*found.rows, strict=True))
    return points, weights / weights.sum()


def _rows(chunk: Chunk, names: tuple[str, ...] | None) -> tuple[np.ndarray, np.ndarray]:
    """The samples of a chunk and their weights; an error names the chunk."""
    X = to_numpy(as_points(chunk.data, chunk.name, allow_empty=True))
    order = None if chunk.names is None else order_of(chunk.names, names, chunk.name)
    a = (
        np.ones(X.shape[0])
        if chunk.weights is None
        else as_vector(chunk.weights, f"{chunk.name}: weights", length=X.shape[0])
    )
    return X if order is None else X[:, order], a


def exact_inner(a: Law, b: Law, kernel: Kernel, max_operations: float = 1e13) -> float:
    """⟨w_a, w_b⟩ in the RKHS of ``kernel``."""
    same = b is a
    kernel, a, b = _in_axes(kernel, a, b)
    left = _exact_forms(a, kernel, max_operations)
    right = left if same else _exact_forms(b, kernel, max_operations)
    return sum(v * w * _inner(f, g, kernel, max_operations) for v, f in left for w, g in right)


def _in_axes(kernel: Kernel, a: Law, b: Law) -> tuple[Kernel, Law, Law]:
    """Kernel and targets in coordinates in which a kernel with a metric, and that of a density, are
    products over the features.

    No inner product depends on the coordinates. On a measure with a boundary there are no such
    coordinates, and no closed form.
    """
    densities = [
        part.density for p in (a, b) if not isinstance(p, MeanEmbedding) for _, part in _parts(p)
    ]
    walls = any(np.any(np.isfinite(p.measure.boundaries(p.n_features))) for p in densities)
    if (
        not kernel.full
        or not densities
        or walls
        or not all(isinstance(p.kernel, Gaussian) for p in densities)
    ):
        return kernel, a, b
    same_features = densities[0].n_features == a.n_features
    axes, plain = (
        axes_of(kernel, a.n_features, densities[0].kernel if same_features else None),
        Gaussian(1.0),
    )
    zero = to_numpy(next(p.support_points for p in (a, b) if not isinstance(p, MeanEmbedding)))[0]

    def moved(target: Law) -> Law:
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
        "put the density on nodes, as measure=Discrete.quadrature(box, n_nodes) or"
        " Discrete.qmc(box, n_points)"
    )
    if not (kernel.smooth and embedding_kernel.smooth):
        raise IntegralNotAvailableError(
            f"the exact MMD of densities with {kernel!r} in the RKHS of {embedding_kernel!r} has no"
            f" formula on {measure!r}; use Gaussian kernels, or {remedy}"
        )
    if d > TENSOR_FEATURES and not closed_form(kernel, measure, d, embedding_kernel).pairwise:
        raise IntegralNotAvailableError(
            f"the exact MMD of densities on a box is known in up to {TENSOR_FEATURES} features; got"
            f" {d}; use a Lebesgue or Normal measure, or {remedy}"
        )


def rule_sizes(
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
    to rounding.

    Since the kernel is a product over the features, its N × N matrix is applied as one small matrix
    per feature.
    """

    kernel: Kernel
    """That of the MMD."""
    axes: list[np.ndarray]
    nodes: np.ndarray
    """(N, d)."""
    log_weights: np.ndarray
    """Those of the rule with respect to ρ, (N,)."""

    @classmethod
    def of(cls, model: Kernel, X: np.ndarray, measure: Measure, kernel: Kernel) -> TensorRule:
        """The rule for the densities of a model."""
        box, counts = rule_sizes(model, X, measure, kernel)
        d, total = X.shape[1], math.prod(counts)
        require_memory(
            FLOAT_BYTES * total * (d + 4), f"a rule with {total} nodes", "take larger bandwidths"
        )
        rules = [composite(box.low[k : k + 1], box.high[k : k + 1], counts[k]) for k in range(d)]
        nodes = tensor_grid([axis for axis, _ in rules])
        return cls(
            kernel,
            [axis for axis, _ in rules],
            nodes,
            log_outer([w for _, w in rules]) + measure.log_density(nodes),
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes per feature."""
        return tuple(axis.shape[0] for axis in self.axes)

    def masses(self, p: SoSDensity) -> np.ndarray:
        """What p puts on the nodes, shaped as the tensor that they are. None is negative: nothing
        cancels.
        """
        blocks = row_blocks(self.nodes.shape[0], 1, _BLOCK_ROWS)
        with np.errstate(under="ignore"):
            found = [
                np.exp(to_numpy(p.logpdf(self.nodes[rows])) + self.log_weights[rows])
                for rows in blocks
            ]
        return np.concatenate(found).reshape(self.shape)

    def smoothed(self, masses: np.ndarray, at: TensorRule | None = None) -> np.ndarray:
        """Σ_n m_n k(x, x_n) at the nodes x of this rule, or of another one."""
        for k, (axis, there) in enumerate(
            zip(self.axes, (self if at is None else at).axes, strict=True)
        ):
            masses = np.moveaxis(
                np.tensordot(
                    self.kernel.restrict([k])(there[:, None], axis[:, None]), masses, axes=(1, k)
                ),
                0,
                k,
            )
        return masses

    def _factors(self, points: np.ndarray) -> list[np.ndarray]:
        return [
            self.kernel.restrict([k])(axis[:, None], points[:, k : k + 1])
            for k, axis in enumerate(self.axes)
        ]

    def seen_from(self, points: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n k(z, x_n) at other points z."""
        factors = self._factors(points)
        seen = np.moveaxis(
            np.tensordot(factors[0], masses, axes=(0, 0)), 0, -1
        )  # (…, points): one feature after the other is summed
        for factor in factors[1:]:
            seen = np.einsum("a...i,ai->...i", seen, factor)
        return seen

    def atoms_at_nodes(self, points: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i a_i k(x, z_i) at the nodes x, shaped as they are."""
        factors = self._factors(points)
        rest = factors[-1].T  # (points, nodes of the last feature)
        for factor in factors[-2:0:-1]:
            rest = np.einsum("ai,i...->ia...", factor, rest).reshape(points.shape[0], -1)
        last = (factors[0] * weights) @ rest if len(factors) > 1 else factors[0] @ weights
        return last.reshape(self.shape)


@dataclass(frozen=True)
class _OnGrid:
    """A density as its masses at the nodes of a rule."""

    rule: TensorRule
    masses: np.ndarray


_Form = MeanEmbedding | _OnGrid | SoSDensity | Reference


def _exact_forms(target: Law, kernel: Kernel, max_operations: float) -> list[tuple[float, _Form]]:
    """The parts of a target with their weights, each in the form in which its exact inner products
    are taken.
    """
    if isinstance(target, MeanEmbedding):
        return [(1.0, target)]
    found = _parts(target.on_host() if target.plain is not None else target.as_mixture())
    return [
        (
            w,
            (
                part
                if isinstance(part, Reference)
                else _exact_form(part.density, kernel, max_operations)
            ),
        )
        for w, part in found
    ]


def _exact_form(target: MeanEmbedding | SoSDensity, kernel: Kernel, max_operations: float) -> _Form:
    """The form of a target in which its exact inner products are taken: atoms, masses on a grid, or
    the density for order-4 integrals.
    """
    if isinstance(target, MeanEmbedding):
        return target
    p = target.on_host()
    if (atoms := p.measure.atoms) is not None:
        return MeanEmbedding(atoms.points, atoms.weights * p.pdf(atoms.points), kernel=kernel)
    if not (p.kernel.smooth and kernel.smooth):
        return p  # the order-4 integrals say what is missing
    m, d = p.support_points.shape
    by_sums = closed_form(p.kernel, p.measure, d, kernel).pairwise
    counts = rule_sizes(p.kernel, p.support_points, p.measure, kernel)[1]
    nodes = math.prod(counts) if d <= TENSOR_FEATURES else math.inf
    grid_cost = nodes * ((_KERNEL_VALUE + 2.0 * p.rank) * m + 2.0 * sum(counts))
    error = _cancellation(p) if by_sums else math.inf
    affordable = nodes <= MOST_NODES and grid_cost <= max_operations
    if affordable and (error > _LOST_DIGITS or grid_cost < float(m) ** 4):
        rule = TensorRule.of(p.kernel, p.support_points, p.measure, kernel)
        return _OnGrid(rule, rule.masses(p))
    if not by_sums:
        raise IntegralNotAvailableError(
            f"the exact MMD of a density with {p.kernel!r} on {p.measure!r} would need a quadrature"
            f" rule with {'×'.join(map(str, counts))} nodes; pass landmarks= for the projected MMD,"
            " take larger bandwidths, or put the density on nodes, as"
            " measure=Discrete.quadrature(box, n_nodes)"
        )
    if error > _DUBIOUS:
        message = (
            f"the weights of this density cancel: its exact squared MMD may be off by {error:.0e}"
        )
        warnings.warn(
            f"{message}; pass landmarks= for the projected MMD", RuntimeWarning, stacklevel=5
        )
    return p


def _cancellation(p: SoSDensity) -> float:
    """(Σ|B_ij W_ij|)²ε: the rounding error to expect of the order-4 integrals."""
    X, F = p.support_points, p.unit_factor
    W = np.exp(p.integrals.log_gram(X, X) - p.log_unit)
    return float(np.sum(np.abs(F @ F.T) * W)) ** 2 * float(np.finfo(np.float64).eps)


def _inner(a: _Form, b: _Form, kernel: Kernel, max_operations: float) -> float:
    if isinstance(a, Reference):
        return _inner_of_reference(a, b, kernel, max_operations)
    if isinstance(b, Reference):
        return _inner_of_reference(b, a, kernel, max_operations)
    if isinstance(a, SoSDensity) and isinstance(b, SoSDensity):
        m, m_b = a.support_points.shape[0], b.support_points.shape[0]
        cost = float(m) ** 2 * float(m_b) ** 2
        if cost > max_operations:
            raise ValueError(
                f"the exact MMD of densities with {m} and {m_b} support points is predicted to take"
                f" {cost:.2g} operations, more than max_operations={max_operations:.2g}; pass"
                " landmarks= for the projected MMD, or raise max_operations"
            )
        return density_inner(a, b, kernel)
    if isinstance(a, _OnGrid) and isinstance(b, _OnGrid):
        return float(np.vdot(b.masses, a.rule.smoothed(a.masses, b.rule)))
    if isinstance(a, MeanEmbedding) and not isinstance(b, _OnGrid):
        return inner(a.weights, evaluate(b, kernel, a.points))
    if isinstance(a, _OnGrid) and isinstance(b, MeanEmbedding):
        return float(a.rule.seen_from(to_numpy(b.points), a.masses) @ to_numpy(b.weights))
    if isinstance(a, _OnGrid):
        a = MeanEmbedding(a.rule.nodes, a.masses.ravel(), kernel=kernel)
        return _inner(a, b, kernel, max_operations)
    return _inner(b, a, kernel, max_operations)


def _inner_of_reference(a: Reference, b: _Form, kernel: Kernel, max_operations: float) -> float:
    """⟨w_a, w_b⟩ of normal laws corrected by squares: at atoms and nodes from its embedding, else
    from all pairs of normal laws.
    """
    if isinstance(b, MeanEmbedding):
        return inner(b.weights, a.embedded(kernel, b.points))
    if isinstance(b, _OnGrid):
        return float(a.embedded(kernel, b.rule.nodes) @ b.masses.ravel())
    left, right = a.groups(), (b if isinstance(b, Reference) else Squares(b)).groups()
    if left is None or right is None or not isinstance(kernel, Gaussian):
        raise IntegralNotAvailableError(
            "the exact MMD between these laws has no formula; pass landmarks= for the projected MMD"
        )
    counts = [sum(int(group.weights.size) for group in groups) for groups in (left, right)]
    if (cost := _KERNEL_VALUE * counts[0] * counts[1]) > max_operations:
        raise ValueError(
            f"the exact MMD of sums of {counts[0]} and {counts[1]} normal laws is predicted to take"
            f" {cost:.2g} operations, more than max_operations={max_operations:.2g}; pass"
            " landmarks= for the projected MMD, or raise max_operations"
        )
    return inner_product(left, right, kernel.matrix(a.n_features))
