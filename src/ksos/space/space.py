"""SoSSpace: support points + kernel + measure → whitened parameters C, the basis ψ, and the map A
to embeddings; and its nodes, a quadrature rule fine enough for its densities.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ksos.density import SoSDensity, Square, from_terms
from ksos.ground import (
    FLOAT_BYTES,
    Array,
    Run,
    as_choice,
    as_points,
    as_positive,
    is_numpy,
    like,
    namespace,
    require_memory,
    row_blocks,
    to_numpy,
    zeros,
)
from ksos.integrals import Rule, closed_form, importance_rules, panel_rules
from ksos.kernels import Kernel, KernelSums
from ksos.kernels.roots import ROUTES, Whitening, thin_root, whiten, whiten_columns
from ksos.measures import Lebesgue, Measure
from ksos.observables import KernelFunction, Observable
from ksos.space.embedding import MeanEmbedding, Projection, as_target
from ksos.space.embedding_map import (
    CompressedMap,
    EmbeddingMap,
    blocks_of,
    embedding_map,
    gram_at_nodes,
    node_rule,
)
from ksos.space.labeled import LabeledDensity, LabeledEmbedding

_BLOCK_ELEMENTS = 1 << 22  # kernel values at once: 32 MB, beyond which larger blocks are not faster
_ROUNDING = 1e-8  # of squared distances and masses, which lose half of their digits
_NO_MASS = 1e-12  # of all mass: a label with less, which is rounding of a solver, has no density
_TENSOR_FEATURES = 3  # panels of Gauss–Legendre nodes, at least two for each, are few enough here
_MOST_NODES = 1 << 16  # of the finest rule of a space: with 100 directions they are 50 MB
_AGREE = 1e-8  # of ∫ψψᵀdρ, which is the identity: between a rule and the next finer one


def whiten_beside_constant(
    W: Array, mean: Array, mass: float, tol: float, route: str = "eigh"
) -> Whitening:
    """T of the basis (1, k_1, …, k_m), the first row being that of the constant function, which is
    the first direction itself.

    The others are orthogonal to it: with the means k̄ under a measure of this mass they whiten
    W − mass·k̄k̄ᵀ, the covariance of the kernel functions, and are made of k_i − k̄_i. So the
    constant is in the space to the last digit, whatever the tolerance cuts off.
    """
    xp, m = namespace(W), W.shape[0]
    centered = W - mass * mean[:, None] * mean[None, :]
    # what the tolerance neglects is relative to W: of a kernel that hardly varies, the covariance
    # is rounding
    largest, spread = (float(xp.max(xp.linalg.diagonal(M))) for M in (W, centered))
    found = Whitening(zeros((m, 0), W), 0.0)
    if spread > tol * largest:
        found = whiten(centered, min(tol * largest / spread, 0.5), route)
    T = zeros((1 + m, 1 + found.T.shape[1]), W)
    T[0, 0], T[0, 1:], T[1:, 1:] = mass**-0.5, -(mean @ found.T), found.T
    return Whitening(T, found.jitter)


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
        self.kernel, self.measure = kernel, measure or Lebesgue()
        self.embedding_kernel, self.landmarks = embedding_kernel or kernel, X
        if landmarks is not None:
            Z = as_points(landmarks, "landmarks", n_features=X.shape[1], copy=True)
            self.landmarks = like(Z, X)
        self.tol_model = as_positive(tol_model, "tol_model")
        self.tol_embedding = as_positive(tol_embedding, "tol_embedding")
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
            self.whitening = self._whiten_with_constant()
            self.rank = int(self.whitening.T.shape[1])
            return
        self.whitening = whiten_columns(
            lambda i: self._mass_columns(X[i : i + 1, :])[0, :],
            xp.exp(log_diagonal - self.log_unit),
            self._mass_matrix,
            self.tol_model,
            self.route,
        )
        T = self.whitening.T
        self.rank = int(T.shape[1])
        self.rule = node_rule(self.integrals, X, self.landmarks, self.embedding_kernel, T)
        # what rounding in W has left of TᵀWT − I goes: ε/λ in directions of eigenvalue λ·max Λ
        if self.rule is not None and self.whitening.jitter == 0.0:
            gram = gram_at_nodes(self.rule, self.kernel, X, T, self.log_unit)
            values, Q = xp.linalg.eigh(0.5 * (gram + gram.T))
            self.corrected = True
            self.whitening = Whitening(T @ ((Q / xp.sqrt(values)) @ Q.T), 0.0)

    def _whiten_with_constant(self) -> Whitening:
        """That of the kernel functions and the constant."""
        X, log_mass = self.support_points, self.measure.log_mass(self.support_points.shape[1])
        if not math.isfinite(log_mass):
            raise ValueError(
                f"the constant function has no finite mass on {self.measure!r}; use a probability"
                " measure such as Normal"
            )
        xp, self.log_unit = namespace(X), max(self.log_unit, log_mass)
        mass = math.exp(log_mass - self.log_unit)
        mean = xp.exp(self.integrals.log_mean(X) - log_mass)
        return whiten_beside_constant(self._mass_matrix(), mean, mass, self.tol_model, self.route)

    @np.errstate(under="ignore")
    def _mass_columns(self, points: Array) -> Array:
        """∫ k(x, points_i) k(x, x̃_j) dρ, in units of exp(log_unit)."""
        return namespace(points).exp(
            self.integrals.log_gram(points, self.support_points) - self.log_unit
        )

    def _mass_matrix(self) -> Array:
        m = self.support_points.shape[0]
        what, fix = f"the mass matrix of {m} support points", "use fewer support points (n_support)"
        require_memory(5 * m * m * FLOAT_BYTES, what, fix, beside=self.support_points)
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
        # the constant costs nothing
        T = T[1:, :] if self.constant else T
        m, r = T.shape
        if is_numpy(X):
            root = thin_root(lambda i: self.kernel(X[i : i + 1], X)[0], np.ones(m))
            if root is not None:
                return (half := root.T @ T).T @ half
            what = f"the trace penalty of {m} support points"
            Run.current().require_time(2.0 * m * r * (m + r), what)
        N = zeros((r, r), X)
        for rows in row_blocks(X.shape[0], X.shape[0], _BLOCK_ELEMENTS):
            N += T[rows, :].T @ (self.kernel(X[rows, :], X) @ T)
        return 0.5 * (N + N.T)


@dataclass(frozen=True)
class Direction:
    """h = (f − Σ_k along_k e_k)/length for a ``function`` f of the RKHS, the e_k being the
    directions before it: a unit vector orthogonal to them.

    ``row`` is ∫ h ψψᵀ dρ, shape (r, r). The coordinate of ``data`` is known already: ``of_data``.
    Landmarks are points, and with many features no manageable number of them sees every embedding.
    But only that of the answer p must be seen exactly: with f = w_p − w_μ̂ the projected MMD of p
    is its exact one. The projected ball still contains the exact one: dual values stay bounds.
    """

    function: Observable
    along: np.ndarray
    length: float
    row: np.ndarray
    data: MeanEmbedding
    of_data: float

    def coordinate(self, target: Any, z: np.ndarray) -> float:
        """⟨h, w_target⟩, z being the coordinates of the target before this one."""
        if target is self.data:
            return self.of_data
        return (_expected(self.function, target) - float(self.along @ z)) / self.length


def _expected(f: Observable, target: MeanEmbedding | SoSDensity) -> float:
    """⟨f, w_target⟩ = ∫ f dtarget."""
    if isinstance(target, MeanEmbedding):
        return float(to_numpy(target.weights) @ f(to_numpy(target.points)))
    if (p := target.terms.on_host.square) is None:
        return float(target.expectation(f))
    M = f.matrix(p.kernel, p.support_points, p.measure, p.log_unit, p.unit_factor)
    return float(np.trace(M.values))


class SoSSpace:
    r"""The set of densities p_B over given support points, parametrized by the spectraplex {C ⪰ 0,
    tr C = 1}.

    B = TCTᵀ with TᵀWT = I, so that p(x) = ψ(x)ᵀCψ(x) with ψ(x) = Tᵀk(x), an orthonormal system of
    L²(ρ), and tr C = ∫p dρ (the paper's change of parameters C = RBRᵀ). Embeddings are seen through
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
        The kernel k_σ in which MMD is measured; default: the model kernel, as in the paper.
    landmarks : array (ℓ, d), optional
        Points on which embeddings are projected; default: the support points, as in the paper.
    tol_model, tol_embedding : float
        Eigenvalues of W and of K_σ(Z,Z) below these fractions of the largest are dropped. They are
        part of the problem: the first narrows the set of densities, the second weakens the
        objective.
    constant : bool
        Whether the constant function is a basis function, φ(x) = (1, k(x, x̃_1), …, k(x, x̃_m)),
        for a measure of finite mass. Penalties act on the kernel part alone, so that the strongest
        of them leave p = 1: the reference measure itself.
    whitening : {"eigh", "cholesky"}
        Truncated eigendecomposition, or the paper's Cholesky factor with a jitter on the diagonal
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
    >>> space.support_points.shape, space.rank, space.embedding_rank
    ((3, 1), 2, 2)
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
        self._model, self.log_unit, self.integrals = model, model.log_unit, model.integrals
        self.kernel, self.support_points = model.kernel, model.support_points
        self.measure, self.constant = model.measure, model.constant
        self.embedding_kernel, self.landmarks = model.embedding_kernel, model.landmarks
        self.tol_model, self.tol_embedding = model.tol_model, model.tol_embedding
        self.whitening, self.jitter = model.route, model.whitening.jitter
        self.n_features = int(model.support_points.shape[1])
        self.n_blocks = 1 if self.labels is None else int(self.labels.shape[0])
        self.rank = self.n_blocks * model.rank

    def with_labels(self, labels: Any) -> SoSSpace:
        """The densities of (x, label) on ρ ⊗ counting; with None, those of x alone. Everything
        computed already is shared.
        """
        parts = self._model, self.directions, None if labels is None else np.asarray(labels)
        return SoSSpace(self.kernel, self.support_points, _parts=parts)

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
        X, T = to_numpy(self.support_points), to_numpy(plain.T)
        M = f.matrix(self.kernel, X, self.measure, self.log_unit, T).values
        row = (M - to_numpy(plain.compressed_map.adjoint(along))) / length
        of_data = (_expected(f, data) - float(along @ to_numpy(plain.coordinates(data)))) / length
        direction = Direction(f, along, length, row, data, of_data)
        parts = self._model, (*self.directions, direction), self.labels
        return SoSSpace(self.kernel, self.support_points, _parts=parts)

    @property
    def embedding_rank(self) -> int:
        """q: how many coordinates of the embedding there are, over all labels."""
        return self.n_blocks * (self.projection.rank + len(self.directions))

    @property
    def tensor_size(self) -> int:
        """The entries of the compressed tensor: q·r², without the zeros between labels."""
        return self.embedding_rank * self._model.rank**2

    @property
    def T(self) -> Array:
        """(m, r) with TᵀWT = I, W in units of exp(log_unit); one such block per label. With the
        constant, (1 + m, r), its row first.
        """
        return self._blockwise(self._model.whitening.T)

    @property
    def trace_matrix(self) -> Array:
        """N = TᵀKT: exp(log_unit)·tr A = ⟨N, C⟩, where tr A = tr(BK) is the paper's penalty."""
        return self._blockwise(self._model.trace_matrix)

    def _blockwise(self, block: Array) -> Array:
        return block if self.labels is None else np.kron(np.eye(self.n_blocks), to_numpy(block))

    @np.errstate(under="ignore")
    def basis(self, X: Any, labels: Any = None) -> Array:
        """ψ(X), shape (n, r), in natural units: p(x) = ψ(x)ᵀCψ(x)·exp(−log_unit); with labels, that
        of the rows' labels (one, or n).
        """
        X = like(as_points(X, "X", n_features=self.n_features), self.support_points)
        n, m = X.shape[0], self.support_points.shape[0]
        what, fix = (
            f"the basis of {m} support points at {n} points",
            "use fewer samples or support points (n_support)",
        )
        require_memory(FLOAT_BYTES * n * (2 * m + self.rank), what, fix, beside=X)
        K, xp = self.kernel(X, self.support_points), namespace(X)
        values = xp.concat([xp.ones_like(K[:, :1]), K], axis=1) if self.constant else K
        psi = values @ self._model.whitening.T
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
        :class:`~ksos.space.labeled.LabeledDensity`.

        On the Cholesky route tr C = 1 means tr(B(W + jitter·I)) = 1, and the scaling is the
        Remark's B ← B/(1 − jitter·tr B); otherwise it corrects rounding.
        """
        if self.labels is not None:
            return self._labeled_density(to_numpy(factor))
        rows = self._model.whitening.T @ factor
        constant, rows = (rows[0, :], rows[1:, :]) if self.constant else (None, rows)
        p = Square(self.kernel, self.support_points, rows, self.log_unit, self.measure, constant)
        # a space with nodes has TᵀWT = I to more digits than Σ B_ij W_ij may have
        mass = p.mass()
        keeps = self._model.corrected and abs(mass - 1.0) > _ROUNDING
        return from_terms(p if keeps else p.scaled_to_one(mass))

    def _labeled_density(self, G: np.ndarray) -> LabeledDensity:
        r, plain = self._model.rank, self.with_labels(None)
        blocks = [G[rows] for rows in blocks_of(r, self.n_blocks)]
        masses = np.array([np.sum(block**2) for block in blocks])
        masses = np.where(masses > _NO_MASS * masses.sum(), masses, 0.0)
        densities: list[SoSDensity | None] = []
        for block, mass in zip(blocks, masses, strict=True):
            # a block needs no more columns than it has directions
            if block.shape[1] > r:
                U, sizes, _ = np.linalg.svd(block, full_matrices=False)
                block = U * sizes
            densities.append(plain.density(block / math.sqrt(mass)) if mass > 0.0 else None)
        return LabeledDensity(self.labels, masses / masses.sum(), densities)

    @property
    def projection(self) -> Projection:
        """The projection of embeddings on the landmarks."""
        return self._model.projection

    def coordinates(self, target: Any) -> Array:
        """What is seen of an embedding: z, shape (q,), of samples, a :class:`~ksos.MeanEmbedding`
        or an :class:`~ksos.SoSDensity`; with labels, of a labeled embedding or density, one label
        after the other.

        Coordinates are orthonormal: those of the projection, then one for each direction.
        """
        if self.labels is None:
            return self._coordinates(target)
        parts: Sequence[Any]
        if isinstance(target, LabeledDensity):
            shares, parts = target.probabilities, target.densities
        elif isinstance(target, LabeledEmbedding):
            shares, parts = np.ones(self.n_blocks), target.parts
        else:
            raise TypeError(
                f"a space with labels needs a LabeledEmbedding or a LabeledDensity; got {target!r}"
            )
        z = np.zeros((self.n_blocks, self.embedding_rank // self.n_blocks))
        for k, part in enumerate(parts):
            if part is not None:
                z[k] = shares[k] * to_numpy(self._coordinates(part))
        return z.ravel()

    def _coordinates(self, target: Any) -> Array:
        # along directions that are no landmarks the samples are needed
        if not isinstance(target, KernelSums) or self.directions:
            target = as_target(target, self.projection.kernel)
        z = self.projection.coordinates(target)
        for direction in self.directions:
            z = to_numpy(z)
            z = np.append(z, direction.coordinate(target, z))
        return z

    def functions(self, y: np.ndarray) -> tuple[list[Observable], list[KernelFunction], float]:
        """The g with coordinates y, one per label (without labels, one); their parts in the span of
        the landmarks; the norm of those.
        """
        found = [
            self._function(y[block])
            for block in blocks_of(self.embedding_rank // self.n_blocks, self.n_blocks)
        ]
        functions, near, sizes = (list(each) for each in zip(*found, strict=True))
        return functions, near, float(np.linalg.norm(sizes))

    def _function(self, y: np.ndarray) -> tuple[Observable, KernelFunction, float]:
        S, q = to_numpy(self.projection.S), self.projection.rank
        landmarks, kernel = to_numpy(self.projection.landmarks), self.projection.kernel
        near = KernelFunction(landmarks, S.T @ y[:q], kernel=kernel)
        rest, parts = y.copy(), []
        # from the last direction on: no other one depends on it
        for j, direction in reversed(list(enumerate(self.directions, q))):
            scale = rest[j] / direction.length
            rest[:j] -= scale * direction.along
            parts.append(scale * direction.function)
        g: Observable = KernelFunction(landmarks, S.T @ rest[:q], kernel=kernel)
        return sum(parts, g), near, float(np.linalg.norm(y[:q]))

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
            return self.with_labels(None).compressed_map.with_labels(self.n_blocks)
        stored, rows = self._model.compressed_map, [direction.row for direction in self.directions]
        return stored.with_rows(like(np.stack(rows), stored.tensor)) if rows else stored

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


@dataclass(frozen=True)
class Nodes:
    """Points x_n, and ψ(x_n)√w_n in natural units: the masses of C are the squared rows seen
    through C.

    With ``labels`` the space has one block of directions per label, and the nodes repeat for each
    of them.
    """

    points: np.ndarray
    psi: np.ndarray
    labels: int = 1

    @cached_property
    def mass(self) -> np.ndarray:
        """Σ w_n ψψᵀ: the identity for an exact rule."""
        return self.psi.T @ self.psi

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        return zip(*(blocks_of(size, self.labels) for size in self.psi.shape), strict=True)

    def masses(self, C: np.ndarray) -> np.ndarray:
        """w_n ψ_nᵀCψ_n, shape (labels·N,)."""
        return np.concatenate(
            [
                np.einsum("nr,nr->n", self.psi @ C[block, block], self.psi)
                for _, block in self._blocks()
            ]
        )

    def matrix(self, f: np.ndarray) -> np.ndarray:
        """Σ_n f_n w_n ψ_nψ_nᵀ."""
        r = self.labels * self.psi.shape[1]
        out = np.zeros((r, r))
        for rows, block in self._blocks():
            M = self.psi.T @ (f[rows, None] * self.psi)
            out[block, block] = 0.5 * (M + M.T)
        return out


def nodes_of(
    space: SoSSpace,
    losses: Sequence[Callable[[np.ndarray], np.ndarray]] = (),
    tol: float = math.inf,
) -> Nodes:
    """The coarsest rule on whose Σ w_nψψᵀ the next one agrees to 1e-8, and to ``tol`` on Σ f_n w_n
    ψψᵀ for all ``losses``.

    These take points to values for every label. Where no rule is that good, or the time for the
    set-up is over, it is the finest so far. Up to three features: Gauss–Legendre panels. Beyond:
    scrambled Sobol' points.
    """
    previous: Nodes | None = None
    matrices: list[np.ndarray] = []
    for points, log_weights in _rules(space):
        if previous is not None and (
            points.shape[0] > _MOST_NODES or Run.current().setup_is_over(1.0, cuts=False)
        ):
            break
        nodes, before = _at(space, points, log_weights), matrices
        matrices = [nodes.matrix(loss(points)) for loss in losses]
        settled = previous is not None and float(np.abs(nodes.mass - previous.mass).max()) <= _AGREE
        if settled and all(
            np.linalg.norm(new - old, 2) <= tol for new, old in zip(matrices, before, strict=True)
        ):
            break
        previous = nodes
    assert previous is not None
    return previous


def finer_nodes(space: SoSSpace, nodes: Nodes) -> Nodes:
    """A rule that shows what ``nodes`` miss, peaks between them included: the next of 32 768 nodes
    or more, on a line of 65 536, if there is one.

    Of scattered nodes it is others; themselves if they are exact.
    """
    n, latest = nodes.points.shape[0], None
    enough = max(n, _MOST_NODES if space.n_features == 1 else _MOST_NODES // 2)
    for rule in _rules(space):
        latest = rule if rule[0].shape[0] != n else latest
        if rule[0].shape[0] > enough:
            break
    # if there is no finer rule, the latest is a coarser one: what it misses is more
    if latest is None and space.measure.atoms is None and space.n_features > _TENSOR_FEATURES:
        X = to_numpy(space.support_points)
        latest = next(importance_rules(space.integrals, X, _MOST_NODES, 1))
    return nodes if latest is None else _at(space, *latest)


def _rules(space: SoSSpace) -> Iterator[Rule]:
    """Rules of ever more nodes; one alone if the measure has nodes of its own, or where they are
    scattered.
    """
    X = to_numpy(space.support_points)
    if (atoms := space.measure.atoms) is not None:
        yield atoms.points, np.log(atoms.weights)
        return
    most, integrals = 0, space.integrals
    for exponent in range(8, 19, 2) if X.shape[1] <= _TENSOR_FEATURES else ():
        for rule in panel_rules([(integrals, X)], 1 << exponent):
            if rule[0].shape[0] > most:
                most = rule[0].shape[0]
                yield rule
    if most == 0:
        yield from importance_rules(integrals, X, _MOST_NODES, 0)


def _at(space: SoSSpace, points: np.ndarray, log_weights: np.ndarray) -> Nodes:
    half, X = 0.5 * (log_weights - space.log_unit), to_numpy(space.support_points)
    with np.errstate(under="ignore"):
        scaled = np.exp(space.kernel.log(points, X) + half[:, None])
        psi = scaled @ to_numpy(space.with_labels(None).T)
    return Nodes(points, psi, space.n_blocks)
