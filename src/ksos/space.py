"""SoSSpace: support points + kernel + measure → whitened parameters C, the basis ψ, and the map A to embeddings."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ksos._array import Array, is_numpy, like, namespace, zeros
from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos._validation import as_choice, as_points, as_positive
from ksos.density import SoSDensity
from ksos.embedding import Projection
from ksos.embedding_map import CompressedMap, EmbeddingMap, embedding_map
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Lebesgue, Measure
from ksos.pivoted_cholesky import MANY_POINTS, thin_root
from ksos.whitening import ROUTES, whiten_columns

__all__ = ["SoSSpace"]

_BLOCK_ELEMENTS = 1 << 22


class SoSSpace:
    r"""The set of densities p_B over given support points, parametrised by the spectraplex {C ⪰ 0, tr C = 1}.

    B = TCTᵀ with TᵀWT = I, so that p(x) = ψ(x)ᵀCψ(x) with ψ(x) = Tᵀk(x), an orthonormal system of L²(ρ), and tr C = ∫p dρ (the note's
    change of parameters C = RBRᵀ). Embeddings are seen through their projection on the landmarks, in orthonormal coordinates A(C) ∈ R^q.

    Parameters
    ----------
    kernel : Kernel
        The model kernel k_η, which makes the density.
    support_points : array (m, d)
        x̃_1 … x̃_m.
    measure : Measure, optional
        ρ; default Lebesgue on R^d.
    embedding_kernel : Kernel, optional
        The kernel k_σ in which MMD is measured; default: the model kernel, as in the note.
    landmarks : array (ℓ, d), optional
        Points on which embeddings are projected; default: the support points, as in the note.
    tol_model, tol_embedding : float
        Eigenvalues of W and of K_σ(Z,Z) below these fractions of the largest are left out. They are part of the problem: the first narrows
        the set of densities, the second weakens the objective.
    whitening : {"eigh", "cholesky"}
        Truncated eigendecomposition, or the note's Cholesky factor with a jitter on the diagonal (its Remark). Objective and gap of a
        solution on the Cholesky route are those of the problem with the jitter, before the density is scaled to mass one.

    Attributes
    ----------
    rank, embedding_rank : int
        r and q: what the tolerances kept.
    log_unit : float
        log of the natural unit max_i W_ii of the mass matrix (the w₀ of a Gaussian kernel on R^d).

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> space = SoSSpace(Gaussian(1.0), [[0.0], [0.5], [0.5]])  # a point given twice adds nothing
    >>> space
    SoSSpace(d=1, m=3, rank=2, landmarks=3, embedding_rank=2, kernel=Gaussian(sigma=1.0), measure=Lebesgue())
    """

    def __init__(
        self,
        kernel: Kernel,
        support_points: Any,
        measure: Measure | None = None,
        embedding_kernel: Kernel | None = None,
        landmarks: Any = None,
        tol_model: float = 1e-10,
        tol_embedding: float = 1e-10,
        whitening: str = "eigh",
    ) -> None:
        self.support_points = as_points(support_points, "support_points")
        d = self.support_points.shape[1]
        self.kernel = kernel
        self.measure = Lebesgue() if measure is None else measure
        self.embedding_kernel = kernel if embedding_kernel is None else embedding_kernel
        self.landmarks = self.support_points
        if landmarks is not None:
            self.landmarks = like(as_points(landmarks, "landmarks", n_features=d), self.support_points)
        self.tol_model, self.tol_embedding = as_positive(tol_model, "tol_model"), as_positive(tol_embedding, "tol_embedding")
        self.whitening = as_choice(whitening, "whitening", ROUTES)
        self._integrals = closed_form(kernel, self.measure, d, self.embedding_kernel)
        X, xp = self.support_points, namespace(self.support_points)
        log_diagonal = self._integrals.log_diagonal(X)
        self.log_unit = float(xp.max(log_diagonal))
        if not math.isfinite(self.log_unit):
            raise ValueError(f"the kernel vanishes on {self.measure!r} at every support point: no density can be made of them")
        self._model = whiten_columns(
            lambda i: self._mass_columns(X[i : i + 1, :])[0, :],
            xp.exp(log_diagonal - self.log_unit),
            self._mass_matrix,
            self.tol_model,
            self.whitening,
        )

    def _mass_columns(self, points: Array) -> Array:
        """∫ k(x, points_i) k(x, x̃_j) dρ, in units of exp(log_unit)."""
        return namespace(points).exp(self._integrals.log_gram(points, self.support_points) - self.log_unit)

    def _mass_matrix(self) -> Array:
        m = self.support_points.shape[0]
        remedy = "use fewer support points (n_support)"
        require_memory(5 * m * m * FLOAT_BYTES, f"the mass matrix of {m} support points", remedy, beside=self.support_points)
        return self._mass_columns(self.support_points)

    @property
    def T(self) -> Array:
        """(m, r) with TᵀWT = I, W in units of exp(log_unit)."""
        return self._model.T

    @property
    def rank(self) -> int:
        """r: how many directions of the model the tolerance kept."""
        return self._model.rank

    @property
    def jitter(self) -> float:
        """What the Cholesky route added to the diagonal of W, in its natural unit; 0 for the eigendecomposition."""
        return self._model.jitter

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.support_points.shape[1])

    @cached_property
    def projection(self) -> Projection:
        """The projection of embeddings on the landmarks."""
        return Projection(self.embedding_kernel, self.landmarks, self.tol_embedding, self.whitening)

    @property
    def embedding_rank(self) -> int:
        """q: how many coordinates of the embedding the tolerance kept."""
        return self.projection.rank

    @cached_property
    def map(self) -> EmbeddingMap:
        """A, and its adjoint."""
        S = self.projection.S
        return embedding_map(self._integrals, self.support_points, self.landmarks, self.embedding_kernel, self.T, S, self.log_unit)

    @cached_property
    def compressed_map(self) -> CompressedMap:
        """A as a stored tensor (q, r, r), which second-order solvers work on: its rounding is the same at every point."""
        return self.map.compressed()

    @cached_property
    def trace_matrix(self) -> Array:
        """N = TᵀKT: exp(log_unit)·tr A = ⟨N, C⟩, where tr A = tr(BK) is the note's penalty."""
        X = self.support_points
        if is_numpy(X) and X.shape[0] >= MANY_POINTS:
            root = thin_root(lambda i: self.kernel(X[i : i + 1], X)[0], np.ones(X.shape[0]))
            if root is not None:
                half = root.T @ self.T
                return half.T @ half
        N = zeros((self.rank, self.rank), X)
        for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            N += self.T[rows, :].T @ (self.kernel(X[rows, :], X) @ self.T)
        return 0.5 * (N + N.T)

    @property
    def tensor_size(self) -> int:
        """q·r²: the entries of the compressed tensor."""
        return self.embedding_rank * self.rank**2

    def embed(self, C: Array) -> Array:
        """A(C): the coordinates of the embedding of p, shape (q,)."""
        return self.map.apply(C)

    def embed_adjoint(self, y: Array) -> Array:
        """A*(y), shape (r, r)."""
        return self.map.adjoint(y)

    def coordinates(self, target: Any) -> Array:
        """z: the coordinates of a target's embedding (samples, MeanEmbedding or SoSDensity), shape (q,)."""
        return self.projection.coordinates(target)

    def basis(self, X: Any) -> Array:
        """ψ(X), shape (n, r), in natural units: p(x) = ψ(x)ᵀCψ(x)·exp(−log_unit)."""
        return self.kernel(like(as_points(X, "X", n_features=self.n_features), self.support_points), self.support_points) @ self.T

    def density(self, factor: Array) -> SoSDensity:
        """The density of C = GGᵀ for a factor G of shape (r, k) with ‖G‖² = 1, scaled to mass one.

        On the Cholesky route tr C = 1 means tr(B(W + jitter·I)) = 1, and the scaling is the Remark's B ← B/(1 − jitter·tr B); otherwise it
        corrects rounding.
        """
        p = SoSDensity.from_units(self.kernel, self.support_points, self.T @ factor, self.log_unit, self.measure)
        p.unit_factor = p.unit_factor / math.sqrt(p.mass())
        return p

    def __repr__(self) -> str:
        m, ell = self.support_points.shape[0], self.landmarks.shape[0]
        return (
            f"SoSSpace(d={self.n_features}, m={m}, rank={self.rank}, landmarks={ell}, embedding_rank={self.embedding_rank}, "
            f"kernel={self.kernel!r}, measure={self.measure!r})"
        )
