"""SoSSpace: support points + kernel + measure → whitened parameters C, the basis ψ, and the map A
to embeddings.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from ksos.density import SoSDensity, Square, from_terms
from ksos.ground.arrays import Array, is_numpy, like, namespace, to_numpy, zeros
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.ground.pivoted_cholesky import thin_root
from ksos.ground.run import Run
from ksos.ground.validation import as_choice, as_points, as_positive
from ksos.integrals import closed_form
from ksos.integrals.regions import Rule
from ksos.kernels import Kernel
from ksos.measures import Lebesgue, Measure
from ksos.observables import Observable
from ksos.space.coordinates import Coordinates, Direction
from ksos.space.embedding import MeanEmbedding, Projection
from ksos.space.embedding_map import (
    CompressedMap,
    EmbeddingMap,
    LabelledMap,
    blocks_of,
    embedding_map,
    gram_at_nodes,
    node_rule,
)
from ksos.space.labelled import LabelledDensity
from ksos.space.whitening import ROUTES, Whitening, whiten, whiten_columns

__all__ = ["SoSSpace"]

_BLOCK_ELEMENTS = 1 << 22
_ROUNDING = 1e-8  # of a squared distance
_NO_MASS = 1e-12  # a label with less has no density


class _Model:
    """What spaces with more directions, or with labels, share: the basis of densities of x, and the
    map to the landmarks.
    """

    @np.errstate(under="ignore")
    def __init__(
        self,
        kernel: Kernel,
        support_points: Any,
        measure: Measure | None,
        embedding_kernel: Kernel | None,
        landmarks: Any,
        tol_model: float,
        tol_embedding: float,
        whitening: str,
        constant: bool,
    ) -> None:
        X = self.support_points = as_points(support_points, "support_points", copy=True)
        self.kernel, self.measure = kernel, Lebesgue() if measure is None else measure
        self.embedding_kernel = kernel if embedding_kernel is None else embedding_kernel
        self.landmarks = (
            X
            if landmarks is None
            else like(as_points(landmarks, "landmarks", n_features=X.shape[1], copy=True), X)
        )
        self.tol_model, self.tol_embedding = (
            as_positive(tol_model, "tol_model"),
            as_positive(tol_embedding, "tol_embedding"),
        )
        self.route = as_choice(whitening, "whitening", ROUTES)
        self.integrals = closed_form(kernel, self.measure, X.shape[1], self.embedding_kernel)
        xp, log_diagonal = namespace(X), self.integrals.log_diagonal(X)
        self.log_unit = float(xp.max(log_diagonal))
        if not math.isfinite(self.log_unit):
            raise ValueError(
                f"the kernel vanishes on {self.measure!r} at every support point: no density can be"
                " made of them"
            )
        self.constant, self.corrected = bool(constant), False
        self.rule: Rule | None = None
        if self.constant:
            self.whitening = self._whiten_with_constant(log_diagonal)
            return
        unit_diagonal = xp.exp(log_diagonal - self.log_unit)
        self.whitening = whiten_columns(
            lambda i: self._mass_columns(X[i : i + 1, :])[0, :],
            unit_diagonal,
            self._mass_matrix,
            self.tol_model,
            self.route,
        )
        self.rule = node_rule(
            self.integrals, X, self.landmarks, self.embedding_kernel, self.whitening.T
        )
        if (
            self.rule is not None and self.whitening.jitter == 0.0
        ):  # what rounding in W has left of TᵀWT − I goes
            self.corrected = True
            self.whitening = self.whitening.corrected(
                gram_at_nodes(self.rule, self.kernel, X, self.whitening.T, self.log_unit)
            )

    def _whiten_with_constant(self, log_diagonal: Array) -> Whitening:
        """T of the basis (1, k_1, …, k_m), the first row being that of the constant function, which
        is the first direction itself.

        The others are orthogonal to it: with k̄_i = ∫k_i dρ/ρ(R^d) they whiten W − ρ(R^d)·k̄k̄ᵀ,
        the covariance of the kernel functions, and are made of k_i − k̄_i. So the constant is in
        the space to the last digit, whatever the tolerance cuts off.
        """
        X, log_mass = self.support_points, self.measure.log_mass(self.support_points.shape[1])
        if not math.isfinite(log_mass):
            raise ValueError(
                f"the constant function has no finite mass on {self.measure!r}; use a probability"
                " measure such as Normal"
            )
        xp, self.log_unit = namespace(X), max(self.log_unit, log_mass)
        mass = math.exp(log_mass - self.log_unit)
        mean = xp.exp(self.integrals.log_mean(X) - log_mass)
        W = self._mass_matrix()
        centred = W - mass * mean[:, None] * mean[None, :]
        # what the tolerance neglects is relative to W: of a kernel that hardly varies, the
        # covariance is rounding
        largest, spread = (float(xp.max(xp.linalg.diagonal(M))) for M in (W, centred))
        found = Whitening(zeros((X.shape[0], 0), X), 0.0)
        if spread > self.tol_model * largest:
            found = whiten(centred, min(self.tol_model * largest / spread, 0.5), self.route)
        first = xp.concat([zeros((1, 1), X) + mass**-0.5, -(mean @ found.T)[None, :]], axis=1)
        return Whitening(
            xp.concat([first, xp.concat([zeros((X.shape[0], 1), X), found.T], axis=1)], axis=0),
            found.jitter,
        )

    def values(self, X: Array) -> Array:
        """The basis functions at the rows of ``X``: k(x, x̃_i), after the constant if there is one;
        shape (n, m) or (n, 1 + m).
        """
        K, xp = self.kernel(X, self.support_points), namespace(X)
        return xp.concat([xp.ones_like(K[:, :1]), K], axis=1) if self.constant else K

    @np.errstate(under="ignore")
    def _mass_columns(self, points: Array) -> Array:
        """∫ k(x, points_i) k(x, x̃_j) dρ, in units of exp(log_unit)."""
        return namespace(points).exp(
            self.integrals.log_gram(points, self.support_points) - self.log_unit
        )

    def _mass_matrix(self) -> Array:
        m = self.support_points.shape[0]
        remedy = "use fewer support points (n_support)"
        require_memory(
            5 * m * m * FLOAT_BYTES,
            f"the mass matrix of {m} support points",
            remedy,
            beside=self.support_points,
        )
        return self._mass_columns(self.support_points)

    @cached_property
    def projection(self) -> Projection:
        return Projection(self.embedding_kernel, self.landmarks, self.tol_embedding, self.route)

    @cached_property
    def map(self) -> EmbeddingMap:
        return embedding_map(
            self.integrals,
            self.support_points,
            self.landmarks,
            self.embedding_kernel,
            self.whitening.T,
            self.projection.S,
            self.log_unit,
            self.rule,
        )

    @cached_property
    def compressed_map(self) -> CompressedMap:
        return self.map.compressed()

    @cached_property
    def trace_matrix(self) -> Array:
        X, T = self.support_points, self.whitening.T
        T = T[1:, :] if self.constant else T  # the constant costs nothing
        m, r = T.shape
        if is_numpy(X):
            root = thin_root(lambda i: self.kernel(X[i : i + 1], X)[0], np.ones(m))
            if root is not None:
                half = root.T @ T
                return half.T @ half
            Run.current().require_time(
                2.0 * m * r * (m + r), f"the trace penalty of {m} support points"
            )
        N = zeros((r, r), X)
        for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            N += T[rows, :].T @ (self.kernel(X[rows, :], X) @ T)
        return 0.5 * (N + N.T)


class SoSSpace:
    r"""The set of densities p_B over given support points, parametrised by the spectraplex {C ⪰ 0,
    tr C = 1}.

    B = TCTᵀ with TᵀWT = I, so that p(x) = ψ(x)ᵀCψ(x) with ψ(x) = Tᵀk(x), an orthonormal system of
    L²(ρ), and tr C = ∫p dρ (the note's change of parameters C = RBRᵀ). Embeddings are seen through
    their projection on the landmarks, in orthonormal coordinates A(C) ∈ R^q.

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
        Eigenvalues of W and of K_σ(Z,Z) below these fractions of the largest are left out. They are
        part of the problem: the first narrows the set of densities, the second weakens the
        objective.
    constant : bool
        Whether the constant function is a basis function, φ(x) = (1, k(x, x̃_1), …, k(x, x̃_m)),
        for a measure of finite mass. Penalties act on the kernel part alone, so that the strongest
        of them leave p = 1: the reference measure itself.
    whitening : {"eigh", "cholesky"}
        Truncated eigendecomposition, or the note's Cholesky factor with a jitter on the diagonal
        (its Remark). Objective and gap of a solution on the Cholesky route are those of the problem
        with the jitter, before the density is scaled to mass one.

    Attributes
    ----------
    constant : bool
        Whether the basis holds the constant function.
    rank, embedding_rank : int
        r and q: what the tolerances kept, plus the directions added with :meth:`with_direction`;
        times the number of labels, if any.
    labels : array or None
        The labels of :meth:`with_labels`: p(x, label) = ψ(x)ᵀC_label ψ(x), and C has one diagonal
        block per label. Pinching a matrix to its diagonal blocks keeps it positive and keeps its
        trace, so the entries off the blocks may be anything.
    n_features, n_blocks : int
        The dimension d, and how many diagonal blocks C has: one per label, or one.
    log_unit : float
        log of the natural unit max_i W_ii of the mass matrix (the w₀ of a Gaussian kernel on R^d).
    jitter : float
        What the Cholesky route added to the diagonal of W, in its natural unit; 0 for the
        eigendecomposition.
    integrals : Integrals
        Of the two kernels against the measure.

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> space = SoSSpace(Gaussian(1.0), [[0.0], [0.5], [0.5]])  # a point given twice adds nothing
    >>> space
    SoSSpace(d=1, m=3, rank=2, landmarks=3, embedding_rank=2, kernel=Gaussian(sigma=1.0), measure=Lebesgue())
    """

    rank: int
    jitter: float

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
        *,
        constant: bool = False,
        _parts: tuple[_Model, tuple[Direction, ...], np.ndarray | None] | None = None,
    ) -> None:
        if _parts is None:
            own = _Model(
                kernel,
                support_points,
                measure,
                embedding_kernel,
                landmarks,
                tol_model,
                tol_embedding,
                whitening,
                constant,
            )
            _parts = own, (), None
        model, self.directions, self.labels = _parts
        self._model, self.log_unit, self.integrals, self.jitter = (
            model,
            model.log_unit,
            model.integrals,
            model.whitening.jitter,
        )
        self.n_features, self.n_blocks = (
            int(model.support_points.shape[1]),
            1 if self.labels is None else int(self.labels.shape[0]),
        )
        self.rank = self.n_blocks * model.whitening.rank
        self.kernel, self.support_points, self.measure = (
            model.kernel,
            model.support_points,
            model.measure,
        )
        self.embedding_kernel, self.landmarks = model.embedding_kernel, model.landmarks
        self.constant = model.constant
        self.tol_model, self.tol_embedding, self.whitening = (
            model.tol_model,
            model.tol_embedding,
            model.route,
        )

    # --- the same model with more to it ---

    def with_labels(self, labels: Any) -> SoSSpace:
        """The densities of (x, label) on ρ ⊗ counting; with None, those of x alone. Everything
        computed already is shared.
        """
        labels = None if labels is None else np.asarray(labels)
        return SoSSpace(
            self.kernel, self.support_points, _parts=(self._model, self.directions, labels)
        )

    def with_direction(
        self, f: Observable, along: np.ndarray, norm: float, data: MeanEmbedding
    ) -> SoSSpace | None:
        """The space that also sees embeddings along f, a function of the RKHS of this norm whose
        coordinates here are ``along``.

        ``data`` is an embedding that will be asked for often. None if only rounding is left of f
        beyond what is seen already.
        """
        square = norm**2 - float(along @ along)
        if square <= _ROUNDING * max(norm**2, 1e-6):
            return None
        length, plain = math.sqrt(square), self.with_labels(None)
        M = f.matrix(
            self.kernel,
            to_numpy(self.support_points),
            self.measure,
            self.log_unit,
            to_numpy(plain.T),
        ).values
        row = (M - to_numpy(plain.compressed_map.adjoint(along))) / length
        direction = plain.coordinates.direction(f, along, length, row, data)
        return SoSSpace(
            self.kernel,
            self.support_points,
            _parts=(self._model, (*self.directions, direction), self.labels),
        )

    # --- sizes ---

    @property
    def embedding_rank(self) -> int:
        """q: how many coordinates of the embedding there are, over all labels."""
        return self.coordinates.rank

    @property
    def tensor_size(self) -> int:
        """The entries of the compressed tensor: q·r², without the zeros between labels."""
        return self.embedding_rank * self._model.whitening.rank**2

    # --- densities ---

    @property
    def T(self) -> Array:
        """(m, r) with TᵀWT = I, W in units of exp(log_unit); one such block per label. With the
        constant, (1 + m, r), its row first.
        """
        return self._blockwise(self._model.whitening.T)

    @property
    def trace_matrix(self) -> Array:
        """N = TᵀKT: exp(log_unit)·tr A = ⟨N, C⟩, where tr A = tr(BK) is the note's penalty."""
        return self._blockwise(self._model.trace_matrix)

    def _blockwise(self, block: Array) -> Array:
        return block if self.labels is None else np.kron(np.eye(self.n_blocks), to_numpy(block))

    @np.errstate(under="ignore")
    def basis(self, X: Any, labels: Any = None) -> Array:
        """ψ(X), shape (n, r), in natural units: p(x) = ψ(x)ᵀCψ(x)·exp(−log_unit); with labels, that
        of the rows' labels (one, or n).
        """
        X = like(as_points(X, "X", n_features=self.n_features), self.support_points)
        (n, m), remedy = (
            (X.shape[0], self.support_points.shape[0]),
            "use fewer samples or support points (n_support)",
        )
        require_memory(
            FLOAT_BYTES * n * (2 * m + self.rank),
            f"the basis of {m} support points at {n} points",
            remedy,
            beside=X,
        )
        psi = self._model.values(X) @ self._model.whitening.T
        if (self.labels is None) != (labels is None):
            raise ValueError(
                "the labels of the rows are needed for a space with labels, and only there; got"
                f" labels={labels!r}"
            )
        if self.labels is None:
            return psi
        own = np.equal.outer(np.broadcast_to(np.asarray(labels), (psi.shape[0],)), self.labels)
        if not np.all(own.any(axis=1)):
            raise ValueError(
                f"unknown label among {labels!r}; the labels are {self.labels.tolist()}"
            )
        return (own[:, :, None] * to_numpy(psi)[:, None, :]).reshape(psi.shape[0], -1)

    def density(self, factor: Array) -> Any:
        """The density of C = GGᵀ for a factor G of shape (r, k) with ‖G‖² = 1, scaled to mass one:
        an :class:`~ksos.SoSDensity`, or with labels a
        :class:`~ksos.space.labelled.LabelledDensity`.

        On the Cholesky route tr C = 1 means tr(B(W + jitter·I)) = 1, and the scaling is the
        Remark's B ← B/(1 − jitter·tr B); otherwise it corrects rounding.
        """
        if self.labels is not None:
            return self._labelled_density(to_numpy(factor))
        rows = self._model.whitening.T @ factor
        constant, rows = (rows[0, :], rows[1:, :]) if self.constant else (None, rows)
        p = Square(self.kernel, self.support_points, rows, self.log_unit, self.measure, constant)
        # a space with nodes has TᵀWT = I to more digits than Σ B_ij W_ij may have
        mass = p.mass()
        keeps = self._model.corrected and abs(mass - 1.0) > _ROUNDING
        return from_terms(p if keeps else p.scaled_to_one(mass))

    def _labelled_density(self, G: np.ndarray) -> LabelledDensity:
        r, plain = self._model.whitening.rank, self.with_labels(None)
        blocks = [G[rows] for rows in blocks_of(r, self.n_blocks)]
        masses = np.array([np.sum(block**2) for block in blocks])
        masses = np.where(masses > _NO_MASS * masses.sum(), masses, 0.0)
        densities: list[SoSDensity | None] = []
        for block, mass in zip(blocks, masses, strict=True):
            if block.shape[1] > r:  # no more columns than a block has
                U, sizes, _ = np.linalg.svd(block, full_matrices=False)
                block = U * sizes
            densities.append(plain.density(block / math.sqrt(mass)) if mass > 0.0 else None)
        return LabelledDensity(self.labels, masses / masses.sum(), densities)

    # --- embeddings ---

    @property
    def projection(self) -> Projection:
        """The projection of embeddings on the landmarks."""
        return self._model.projection

    @cached_property
    def coordinates(self) -> Coordinates:
        """What is seen of an embedding: ``space.coordinates(target)`` is z, shape (q,), of samples,
        a :class:`~ksos.MeanEmbedding` or an :class:`~ksos.SoSDensity`; with labels, of a labelled
        embedding or density.
        """
        return Coordinates(self.projection, self.directions, self.labels)

    @cached_property
    def map(self) -> EmbeddingMap:
        """A, and its adjoint."""
        return (
            self._model.map if self.labels is None and not self.directions else self.compressed_map
        )

    @cached_property
    def compressed_map(self) -> CompressedMap:
        """A as a stored tensor (q, r, r), which second-order solvers work on: its rounding is the
        same at every point.
        """
        if self.labels is not None:
            return LabelledMap(self.with_labels(None).compressed_map, self.n_blocks)
        stored = self._model.compressed_map
        if not self.directions:
            return stored
        return stored.with_rows(
            like(np.stack([direction.row for direction in self.directions]), stored.tensor)
        )

    def embed(self, C: Array) -> Array:
        """A(C): the coordinates of the embedding of p, shape (q,)."""
        return self.map.apply(C)

    def embed_adjoint(self, y: Array) -> Array:
        """A*(y), shape (r, r)."""
        return self.map.adjoint(y)

    def __repr__(self) -> str:
        m, ell = self.support_points.shape[0], self.landmarks.shape[0]
        more = f", directions={len(self.directions)}" if self.directions else ""
        more += ", constant=True" if self.constant else ""
        more += "" if self.labels is None else f", labels={self.labels.tolist()}"
        return (
            f"SoSSpace(d={self.n_features}, m={m}, rank={self.rank}, landmarks={ell},"
            f" embedding_rank={self.embedding_rank}, kernel={self.kernel!r},"
            f" measure={self.measure!r}{more})"
        )
