"""Kernel mean embeddings w_μ = ∫ k(·, x) dμ(x), their projection on landmarks, and the maximum mean discrepancy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ksos._array import Array, inner, is_numpy, like, namespace, norm, zeros
from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos._validation import as_points, as_vector
from ksos.density import SoSDensity
from ksos.integrals import closed_form
from ksos.integrals.quadruple import density_inner, quadrature_atoms
from ksos.integrals.triple import apply_triple
from ksos.kernels import Kernel
from ksos.whitening import whiten_columns

__all__ = ["MeanEmbedding", "Projection", "as_target", "evaluate", "exact_inner", "mmd"]

_BLOCK_ELEMENTS = 1 << 20
_DEVICE_ELEMENTS = 1 << 27

Target = Any
"""Samples (n, d), a :class:`MeanEmbedding`, or an :class:`~ksos.SoSDensity`."""


class MeanEmbedding:
    """v = Σ_i a_i k(·, x_i): the embedding of samples, or with signed weights any finite element of the RKHS.

    Parameters
    ----------
    points : array (n, d)
        The x_i.
    weights : array of n floats, optional
        The a_i; default 1/n each. They need neither be positive nor sum to one.
    kernel : Kernel

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> v = MeanEmbedding([[0.0], [1.0]], [0.5, 0.5], kernel=Gaussian(1.0))
    >>> v([[0.0]]).round(6)
    array([0.68394])
    """

    def __init__(self, points: Any, weights: Any = None, *, kernel: Kernel) -> None:
        self.points = as_points(points, "points")
        n = self.points.shape[0]
        self.weights = like(np.full(n, 1.0 / n) if weights is None else as_vector(weights, "weights", length=n), self.points)
        if not isinstance(kernel, Kernel):
            raise TypeError(f"kernel must be a kernel object such as ksos.kernels.Gaussian(1.0); got {kernel!r}")
        kernel.sigma_vector(self.points.shape[1])
        self.kernel = kernel

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.points.shape[1])

    def __call__(self, Z: Any) -> Array:
        """v(Z_r) = Σ_i a_i k(Z_r, x_i), shape (ℓ,)."""
        return _atoms_at(self, self.kernel, like(as_points(Z, "Z", n_features=self.n_features), self.points))

    def norm(self) -> float:
        """‖v‖ in the RKHS."""
        return math.sqrt(max(exact_inner(self, self, self.kernel), 0.0))

    def __repr__(self) -> str:
        return f"MeanEmbedding({self.points.shape[0]} points in {self.n_features} features, kernel={self.kernel!r})"


class Projection:
    """The orthogonal projection of embeddings on span{k(·, z_r)}: coordinates S·w(Z), where S K(Z,Z) Sᵀ = I.

    Distances between coordinates are the note's ‖P_m(v − w)‖ (its lemma of the closed form): at most the exact distance, and closer to
    it the more landmarks there are.
    """

    def __init__(self, kernel: Kernel, landmarks: Array, tol: float = 1e-10, whitening: str = "eigh") -> None:
        self.kernel, self.landmarks = kernel, landmarks
        xp, ell = namespace(landmarks), landmarks.shape[0]

        def matrix() -> Array:
            require_memory(4 * ell * ell * FLOAT_BYTES, f"the kernel matrix of {ell} landmarks", "use fewer landmarks", beside=landmarks)
            return kernel(landmarks)

        ones = xp.ones((ell,), dtype=xp.float64, device=landmarks.device)
        self.whitening = whiten_columns(lambda r: kernel(landmarks[r : r + 1, :], landmarks)[0, :], ones, matrix, tol, whitening)
        self.S = xp.asarray(self.whitening.T.T, copy=True)  # rows in one piece

    @property
    def rank(self) -> int:
        """q: the number of coordinates."""
        return int(self.S.shape[0])

    def coordinates(self, target: Target) -> Array:
        """The coordinates of a target's embedding, shape (q,)."""
        return self.S @ evaluate(as_target(target, self.kernel), self.kernel, self.landmarks)


def mmd(a: Target, b: Target, kernel: Kernel | None = None, landmarks: Any = None, *, max_operations: float = 1e13) -> float:
    """The maximum mean discrepancy ‖w_a − w_b‖ (the root, not the square) between samples, embeddings and densities.

    Parameters
    ----------
    a, b : array (n, d), MeanEmbedding or SoSDensity
    kernel : Kernel, optional
        Default: that of an embedding among ``a`` and ``b``, else that of a density.
    landmarks : array (ℓ, d), optional
        Project on these first: cheap, and a lower bound of the exact value. Without them the value is exact: for a density this sums the
        order-4 integrals of the note's lemma, O(m⁴) operations, streamed.
    max_operations : float
        Refuse an exact computation predicted to take more floating-point operations than this.

    Examples
    --------
    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> round(mmd(np.array([[0.0]]), np.array([[1.0]]), Gaussian(1.0)), 6)  # √(2 − 2/e)
    1.124385
    """
    if kernel is None:  # an embedding knows its RKHS; a density only suggests its own kernel
        kernel = next((t.kernel for kind in (MeanEmbedding, SoSDensity) for t in (a, b) if isinstance(t, kind)), None)
    if not isinstance(kernel, Kernel):
        raise ValueError(f"mmd between samples needs a kernel object, such as ksos.kernels.Gaussian(1.0); got {kernel!r}")
    a, b = as_target(a, kernel, "a"), as_target(b, kernel, "b")
    if a.n_features != b.n_features:
        raise ValueError(f"a has {a.n_features} features, but b has {b.n_features}")
    if landmarks is not None:
        projection = Projection(kernel, as_points(landmarks, "landmarks", n_features=a.n_features))
        return norm(projection.coordinates(a) - projection.coordinates(b))
    if isinstance(a, MeanEmbedding) and isinstance(b, MeanEmbedding):
        xp, both = namespace(a.points), [like(part, a.points) for part in (b.points, -b.weights)]
        a, b = MeanEmbedding(xp.concat([a.points, both[0]]), xp.concat([a.weights, both[1]]), kernel=kernel), None
        return math.sqrt(max(exact_inner(a, a, kernel, max_operations), 0.0))
    square = sum(factor * exact_inner(left, right, kernel, max_operations) for factor, left, right in ((1, a, a), (1, b, b), (-2, a, b)))
    return math.sqrt(max(square, 0.0))


def as_target(target: Target, kernel: Kernel, name: str = "target") -> MeanEmbedding | SoSDensity:
    """Samples become a :class:`MeanEmbedding`; embeddings and densities pass."""
    if isinstance(target, SoSDensity):
        return target
    if isinstance(target, MeanEmbedding):
        if target.kernel != kernel:
            raise ValueError(f"{name} is an embedding in the RKHS of {target.kernel!r}, but distances are measured in that of {kernel!r}")
        return target
    return MeanEmbedding(as_points(target, name), kernel=kernel)


def evaluate(target: MeanEmbedding | SoSDensity, kernel: Kernel, Z: Array) -> Array:
    """w_target(Z_r) for the embedding kernel ``kernel``, shape (ℓ,)."""
    if target.n_features != Z.shape[1]:
        raise ValueError(f"the target has {target.n_features} features, but the landmarks have {Z.shape[1]}")
    if isinstance(target, MeanEmbedding):
        return _atoms_at(target, kernel, Z)
    integrals = closed_form(target.kernel, target.measure, target.n_features, kernel)
    F = like(target.unit_factor, Z)
    return apply_triple(integrals, like(target.support_points, Z), F @ F.T, target.log_unit, Z, kernel)


def exact_inner(a: MeanEmbedding | SoSDensity, b: MeanEmbedding | SoSDensity, kernel: Kernel, max_operations: float = 1e13) -> float:
    """⟨w_a, w_b⟩ in the RKHS of ``kernel``."""
    a, b = (_with_atoms(t, kernel) for t in (a, b))
    if isinstance(a, MeanEmbedding):
        return inner(a.weights, evaluate(b, kernel, a.points))
    if isinstance(b, MeanEmbedding):
        return exact_inner(b, a, kernel, max_operations)
    return density_inner(a.on_host(), b.on_host(), kernel, max_operations)


def _with_atoms(target: MeanEmbedding | SoSDensity, kernel: Kernel) -> MeanEmbedding | SoSDensity:
    """A density on a discrete measure, or on a box where quadrature is exact to rounding, as the atoms that it amounts to."""
    atoms = quadrature_atoms(target.on_host(), kernel) if isinstance(target, SoSDensity) else None
    return target if atoms is None else MeanEmbedding(*atoms, kernel=kernel)


def _atoms_at(target: MeanEmbedding, kernel: Kernel, Z: Array) -> Array:
    out, points, weights = zeros((Z.shape[0],), Z), like(target.points, Z), like(target.weights, Z)
    for rows in row_blocks(points.shape[0], Z.shape[0], _BLOCK_ELEMENTS if is_numpy(Z) else _DEVICE_ELEMENTS):
        out += weights[rows] @ kernel(points[rows, :], Z)
    return out
