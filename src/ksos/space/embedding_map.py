"""The map A from a parameter C of the spectraplex to the coordinates of the embedding of its
density, A(C) = S·U(TCTᵀ), and its adjoint.

U(B)_r = Σ_ij B_ij ∫ k(x, x̃_i) k(x, x̃_j) k_σ(x, z_r) dρ(x) is the embedding at the landmarks.
:func:`embedding_map` chooses the form of A: factors over pairs of points, from which U is applied
without any array of three indices, or the tensor of A itself, stored.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ksos.ground import (
    FLOAT_BYTES,
    Array,
    eye,
    flat,
    is_numpy,
    like,
    namespace,
    norm,
    require_memory,
    row_blocks,
    to_numpy,
    zeros,
)
from ksos.integrals import (
    Integrals,
    PairFactors,
    Rule,
    ThinPairs,
    WithConstant,
    basis_at,
    exact_rule,
    thin_pairs,
    triple_blocks,
)
from ksos.kernels import Kernel
from ksos.kernels.roots import MANY_POINTS

SMALL_TENSOR = 1 << 24  # entries of a stored tensor that always fits: 134 MB

_BLOCK_ELEMENTS = 2_000_000  # numbers at once: 16 MB, what a processor's cache holds
_DEVICE_ELEMENTS = 125_000_000  # the same on a GPU, for which few large products are quicker: 1 GB
_CHEAP = 1e8  # operations at the nodes of a rule, a few milliseconds, that any space may take
_DEAR = 2e10  # operations, about a second, where closed forms would lose digits
_NODES_OF_A_KERNEL = 100  # per feature, for one analytic kernel: with fewer, looking does not pay
_WEAK = 1e4  # squared entries of T: 1e-16 of them, rounding in the integrals, is then above 1e-12
_UNITS_OF_ROUNDING = 4.0  # of rounding, to which an integral is known: a few operations each


class Noise(NamedTuple):
    """What rounding leaves in the integrals: A*(y) is off by a matrix TᵀNT, estimated in two ways.

    ``norms @ y`` has about the Frobenius norm of TᵀNT. ``plain @ y`` has about the Frobenius norm η
    of N, so that −ηTᵀT ⪯ TᵀNT ⪯ ηTᵀT with the Gram matrix TᵀT, ``gram``.
    """

    norms: Array
    plain: Array
    gram: Array


class EmbeddingMap(ABC):
    """The linear map A from symmetric r × r matrices to R^q.

    A and A*, once each, take so many floating-point ``operations``. It ``rounds_well`` if what
    rounding leaves in A(C) is negligible at every C, as that of a stored tensor is. What rounding
    leaves in the integrals is its ``noise``, None if negligible.
    """

    operations: float
    rounds_well = True
    noise: Noise | None = None

    @abstractmethod
    def apply(self, C: Array) -> Array:
        """A(C), shape (q,)."""

    @abstractmethod
    def adjoint(self, y: Array) -> Array:
        """A*(y), symmetric, shape (r, r): ⟨A*(y), C⟩ = ⟨y, A(C)⟩."""

    def apply_factor(self, F: Array) -> Array:
        """A(FFᵀ)."""
        return self.apply(F @ F.T)

    def adjoint_times(self, y: Array, F: Array) -> Array:
        """A*(y)·F."""
        return self.adjoint(y) @ F

    @abstractmethod
    def jacobian(self, F: Array) -> Array:
        """The matrices A_k F, shape (q, r, columns): half the derivative of F ↦ A(FFᵀ)."""

    def spanned(self, V: Array) -> Array:
        """The matrices VᵀA_kV, shape (q, k, k): A on the matrices VXVᵀ, for few columns of V."""
        return namespace(V).matmul(V.T, self.jacobian(V))

    @abstractmethod
    def compressed(self) -> CompressedMap:
        """The same map as a stored tensor of shape (q, r, r); a MemoryError if it does not fit."""

    def rounding(self, y: Array) -> float:
        """How far A*(y) may be off, in the Frobenius norm, because of rounding in the integrals,
        estimated.
        """
        return 0.0

    def rounding_matrix(self, y: Array) -> Array | None:
        """E such that A*(y) is off by at most ±E in the order of matrices, estimated; None if it is
        negligible.

        In weak directions E is large, but so is a penalty. Together with the penalty, E gives a
        sharper bound than a norm.
        """
        return None


class PairwiseMap(EmbeddingMap):
    """A from factors over pairs, without any array of three indices: U(B) = c·diag(Hᵀ(B∘G)H), and
    U*(v) = c·G∘(H diag(v) Hᵀ). A and A* take O(m²(r + ℓ)) operations.
    """

    def __init__(self, pairs: PairFactors, T: Array, S: Array) -> None:
        self.pairs, self.T, self.S = pairs, T, S
        m, r = T.shape
        # with about as many landmarks as directions
        self.operations = 4.0 * m * r * (2.0 * m + r)
        # the square of T is what rounding is multiplied with
        self.rounds_well = _largest_square(T) <= _WEAK

    def _embed(self, B: Array) -> Array:
        """S·U(B)."""
        p = self.pairs
        return self.S @ (p.c * namespace(B).vecdot(p.H, (B * p.G) @ p.H, axis=-2))

    def _pull(self, y: Array) -> Array:
        """U*(Sᵀy)."""
        p = self.pairs
        return p.G * ((p.H * (p.c * (y @ self.S))) @ p.H.T)

    def apply(self, C: Array) -> Array:
        return self._embed(self.T @ C @ self.T.T)

    def apply_factor(self, F: Array) -> Array:
        X = self.T @ F
        return self._embed(X @ X.T)

    def adjoint(self, y: Array) -> Array:
        pulled = self.T.T @ self._pull(y) @ self.T
        return 0.5 * (pulled + pulled.T)

    def adjoint_times(self, y: Array, F: Array) -> Array:
        return self.T.T @ (self._pull(y) @ (self.T @ F))

    def _slice(self, x: Array) -> Array:
        """M with U(xyᵀ) = Mᵀy for every y, shape (m, ℓ)."""
        p = self.pairs
        return p.H * (p.G @ (p.H * (p.c * x)[:, None]))

    def jacobian(self, F: Array) -> Array:
        """Per column three products of the size of G·H, whatever q is: O(m²ℓ)."""
        require_memory(
            2 * FLOAT_BYTES * self.S.shape[0] * math.prod(F.shape),
            f"the derivative of {F.shape[1]} squares",
            "use fewer support points or landmarks (n_support), or solver='lbfgs'",
            beside=F,
        )
        out, TF = zeros((self.S.shape[0], *F.shape), F), self.T @ F
        for j in range(F.shape[1]):
            out[:, :, j] = self.S @ (self._slice(TF[:, j]).T @ self.T)
        return out

    def spanned(self, V: Array) -> Array:
        """With TV in the place of T: one large product for each column, the others being small."""
        spanning = PairwiseMap(self.pairs, self.T @ V, self.S)
        return _symmetric(spanning.jacobian(eye(V.shape[1], V)))

    def compressed(self) -> CompressedMap:
        fix = "use solver='fista', or fewer support points or landmarks (n_support)"
        _require_tensor(self.T, self.S.shape[0], fix)
        return CompressedMap(_pairwise_tensor(self.pairs, self.T, self.S))


class CompressedMap(EmbeddingMap):
    """A as the stored tensor A_k = Σ_r S_kr Tᵀ u_r T of shape (q, r, r): its size follows the
    ranks, not m.

    With labels, this ``block`` acts on every diagonal block of C, one per label, and the entries of
    C off the blocks do not matter.
    """

    def __init__(self, block: Array, noise: Noise | None = None, n_labels: int = 1) -> None:
        self.block, self.noise, self.n_labels = block, noise, n_labels
        self._rows = namespace(block).reshape(block, (block.shape[0], -1))
        self.operations = 4.0 * n_labels * math.prod(block.shape)

    @classmethod
    def streamed(
        cls,
        integrals: Integrals,
        X: Array,
        Z: Array,
        embedding_kernel: Kernel,
        T: Array,
        S: Array,
        log_unit: float,
    ) -> CompressedMap:
        """From the triple integral, formed once in blocks of landmarks and compressed as it comes.

        Every u_ijr is known to a few units of rounding ε, which T multiplies from both sides. If
        these are independent, the slice of landmark r is off by ε(Σ_ij |T_i|²|T_j|² u_ijr²)^{1/2}
        in the Frobenius norm, and before T by ε(Σ_ij u_ijr²)^{1/2}.
        """
        xp, q, (m, r) = namespace(T), S.shape[0], T.shape
        _require_tensor(T, q)
        out, squares, plain = zeros((q, r * r), T), zeros((Z.shape[0],), T), zeros((Z.shape[0],), T)
        lengths = flat((sizes := xp.sum(T * T, axis=1))[:, None] * sizes[None, :])
        for rows, block in triple_blocks(integrals, X, Z, embedding_kernel, log_unit):
            n = block.shape[2]
            squared = xp.reshape(block, (m * m, n)) ** 2
            squares[rows], plain[rows] = lengths @ squared, xp.sum(squared, axis=0)
            half = T.T @ xp.reshape(block, (m, m * n))  # (r, m·n)
            half = xp.reshape(xp.permute_dims(xp.reshape(half, (r, m, n)), (2, 0, 1)), (n * r, m))
            out += S[:, rows] @ xp.reshape(half @ T, (n, r * r))
        unit = _UNITS_OF_ROUNDING * xp.finfo(xp.float64).eps
        norms, before = (unit * xp.sqrt(sums)[:, None] * S.T for sums in (squares, plain))
        return cls(_symmetric(xp.reshape(out, (q, r, r))), Noise(norms, before, T.T @ T))

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """(the coordinates, the directions) of each label."""
        q, r, _ = self.block.shape
        return zip(blocks_of(q, self.n_labels), blocks_of(r, self.n_labels), strict=True)

    @cached_property
    def tensor(self) -> Array:
        """All of it, with the zeros between the blocks: for solvers that ignore blocks."""
        if self.n_labels == 1:
            return self.block
        q, r = (self.n_labels * size for size in self.block.shape[:2])
        _require_tensor(zeros((1, r), self.block), q)
        out = zeros((q, r, r), self.block)
        for coordinates, directions in self._blocks():
            out[coordinates, directions, directions] = self.block
        return out

    def apply(self, C: Array) -> Array:
        return namespace(C).concat([self._rows @ flat(C[own, own]) for _, own in self._blocks()])

    def adjoint(self, y: Array) -> Array:
        xp, shape = namespace(y), self.block.shape[1:]
        return self._block_diagonal(lambda own: xp.reshape(own @ self._rows, shape), y)

    def _block_diagonal(self, block: Callable[[Array], Array], y: Array) -> Array:
        if self.n_labels == 1:
            return block(y)
        r = self.n_labels * self.block.shape[1]
        out = zeros((r, r), y)
        for coordinates, directions in self._blocks():
            out[directions, directions] = block(y[coordinates])
        return out

    def jacobian(self, F: Array) -> Array:
        xp, (q, r, _) = namespace(F), self.block.shape
        slices, out = xp.reshape(self.block, (q * r, r)), zeros((q * self.n_labels, *F.shape), F)
        for coordinates, own in self._blocks():
            out[coordinates, own, :] = xp.reshape(slices @ F[own, :], (q, r, F.shape[1]))
        return out

    def compressed(self) -> CompressedMap:
        return self

    def with_rows(self, rows: Array) -> CompressedMap:
        """The same with more coordinates, given as matrices (n, r, r)."""
        return CompressedMap(namespace(rows).concat([self.block, rows]), self.noise)

    def with_labels(self, n_labels: int) -> CompressedMap:
        """The same on every diagonal block of C."""
        return CompressedMap(self.block, self.noise, n_labels)

    def rounding(self, y: Array) -> float:
        if (noise := self.noise) is None:
            return 0.0
        # coordinates along directions, after those on the landmarks, have none
        q = noise.norms.shape[1]
        return math.hypot(*(norm(noise.norms @ y[own][:q]) for own, _ in self._blocks()))

    def rounding_matrix(self, y: Array) -> Array | None:
        if (noise := self.noise) is None:
            return None
        q = noise.plain.shape[1]
        return self._block_diagonal(lambda own: norm(noise.plain @ own[:q]) * noise.gram, y)


def blocks_of(size: int, labels: int) -> list[slice]:
    """One block of ``size`` rows per label."""
    return [slice(y * size, (y + 1) * size) for y in range(labels)]


def embedding_map(
    integrals: Integrals,
    X: Array,
    Z: Array,
    embedding_kernel: Kernel,
    T: Array,
    S: Array,
    log_unit: float,
    rule: Rule | None = None,
) -> EmbeddingMap:
    """Choose the form of A. T has one row more than X if the constant function is in the basis.

    ``rule`` has nodes that integrate all of it to rounding, if there are some. If the integrals
    are products over pairs and nothing was truncated, nothing with three indices is ever formed.
    Truncation (q < ℓ or r < m) means large entries in T and S. Then the compressed tensor, smaller
    than m³, is formed once as long as it is small: it is faster, and its rounding stays fixed
    instead of changing from one iterate to the next.
    """
    (rows, r), q, m, ell = T.shape, S.shape[0], X.shape[0], Z.shape[0]
    constant, tensor = rows > m, q * r * r
    if rule is not None:
        _require_tensor(T, q)
        return CompressedMap(
            _tensor_at_nodes(rule, integrals.kernel, X, Z, embedding_kernel, T, S, log_unit)
        )
    if constant or integrals.measure.by_components or not integrals.pairwise:
        basis = WithConstant(integrals) if constant else integrals
        return CompressedMap.streamed(basis, X, Z, embedding_kernel, T, S, log_unit)
    pays = tensor <= m * (m + ell) or (tensor < ell * m * m and tensor <= SMALL_TENSOR)
    if pays and m >= MANY_POINTS:
        thin = thin_pairs(integrals, X, Z, embedding_kernel, log_unit)
        if thin is not None:
            return CompressedMap(_pairwise_tensor(thin, T, S))
    _require_pairs(T, m, ell)
    pairs = PairFactors(integrals, X, Z, embedding_kernel, log_unit)
    return CompressedMap(_pairwise_tensor(pairs, T, S)) if pays else PairwiseMap(pairs, T, S)


def node_rule(
    integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, T: Array
) -> Rule | None:
    """The nodes at which the basis of a space is formed; None if they cost more than they are
    worth.

    They are worth much if T is large, and cost nothing beside the closed forms if the measure is
    discrete or there are few of them.
    """
    (m, r), ell = T.shape, Z.shape[0]
    operations, endless = _CHEAP, integrals.measure.without_boundary is integrals.measure
    if integrals.measure.atoms is not None:
        operations = math.inf
    elif not integrals.pairwise:
        weak = T
        if not endless:
            # beside the kernels themselves: one beyond the boundary is small, and needs no digits
            xp, log_sizes = namespace(X), integrals.log_diagonal(X)
            weak = T * xp.exp(0.5 * (log_sizes - xp.max(log_sizes)))[:, None]
        operations = _DEAR if _largest_square(weak) > _WEAK else _CHEAP
    most = operations / (m * r + ell * min(m, ell) + 0.5 * ell * r * r)
    if endless and integrals.kernel.smooth and most < _NODES_OF_A_KERNEL ** X.shape[1]:
        return None
    return exact_rule(integrals, to_numpy(X), [(embedding_kernel, to_numpy(Z))], most)


def gram_at_nodes(rule: Rule, kernel: Kernel, X: Array, T: Array, log_unit: float) -> Array:
    """∫ψψᵀdρ by the rule, shape (r, r)."""
    out = zeros((T.shape[1], T.shape[1]), T)
    for part in _blocks(rule[0].shape[0], T.shape[0], T):
        psi = basis_at(rule, kernel, X, T, log_unit, part)
        out += psi.T @ psi
    return out


def _blocks(n_rows: int, n_columns: int, beside: Array) -> Iterator[slice]:
    elements = _BLOCK_ELEMENTS if is_numpy(beside) else _DEVICE_ELEMENTS
    return row_blocks(n_rows, n_columns, elements)


def _largest_square(T: Array) -> float:
    """The largest ‖T_j‖² of its columns."""
    return float(namespace(T).max(namespace(T).sum(T * T, axis=0)))


def _require_pairs(T: Array, m: int, ell: int) -> None:
    require_memory(
        FLOAT_BYTES * 4 * m * (m + ell),
        f"the pair matrices of {m} support points and {ell} landmarks",
        "use fewer of them (n_support)",
        beside=T,
    )


def _require_tensor(
    T: Array, q: int, fix: str = "use fewer support points or landmarks (n_support)"
) -> None:
    r = T.shape[1]
    require_memory(
        2 * FLOAT_BYTES * q * r * r,
        f"the compressed tensor of {q}×{r}×{r} entries",
        fix,
        beside=T,
    )


def _pairwise_tensor(pairs: PairFactors | ThinPairs, T: Array, S: Array) -> Array:
    """A_k = Σ_r c S_kr (H_r∘T)ᵀ G (H_r∘T), formed in blocks of landmarks r.

    With G = QQᵀ (few columns: G is smoother than W) each slice is MᵀM with M = Qᵀ(H_r∘T): large
    entries of T enter once before they cancel, not squared, and a block of slices starts with one
    large product. With thin pairs H_r = Σ_s R_rs h_s, the M_r are sums of the Qᵀ(h_s∘T), so that m
    and ℓ never meet.
    """
    xp, (m, r), right = namespace(T), T.shape, None
    Q = pairs.Q if isinstance(pairs, ThinPairs) else _thin_root(pairs.G)
    H = pairs.left if isinstance(pairs, ThinPairs) else pairs.H
    ell, g = S.shape[1], Q.shape[1]
    out = zeros((S.shape[0], r * r), T)

    def halves(columns: slice) -> Array:
        scaled = xp.reshape(H[:, columns][:, :, None] * T[:, None, :], (m, -1))
        return xp.permute_dims(xp.reshape(Q.T @ scaled, (g, -1, r)), (1, 0, 2))

    if isinstance(pairs, ThinPairs):
        _require_tensor(T, S.shape[0])
        parts = [halves(columns).reshape(-1, g * r) for columns in _blocks(H.shape[1], r * m, T)]
        N, right = np.concatenate(parts), pairs.right
    for rows in _blocks(ell, r * max(m if right is None else g, r), T):
        M = halves(rows) if right is None else (right[rows] @ N).reshape(-1, g, r)
        squares = pairs.c * xp.matmul(xp.matrix_transpose(M), M)
        out += S[:, rows] @ xp.reshape(squares, (-1, r * r))
    return _symmetric(xp.reshape(out, (-1, r, r)))


def _thin_root(G: Array) -> Array:
    """Q with G = QQᵀ to rounding."""
    xp = namespace(G)
    values, vectors = xp.linalg.eigh(G)
    first = int(xp.sum(xp.astype(values <= xp.finfo(xp.float64).eps * values[-1], xp.int64)))
    return vectors[:, first:] * xp.sqrt(values[first:])


def _tensor_at_nodes(
    rule: Rule,
    kernel: Kernel,
    X: Array,
    Z: Array,
    embedding_kernel: Kernel,
    T: Array,
    S: Array,
    log_unit: float,
) -> Array:
    """A_k = Σ_n w_n e_k(x_n) ψ(x_n)ψ(x_n)ᵀ with the basis ψ = Tᵀk(x) and e = S·k_σ(x, Z), both
    formed at the nodes.

    T enters once at each node, before anything is multiplied: what cancels in it is not squared.
    """
    xp, (q, ell), (m, r) = namespace(T), S.shape, T.shape
    first, second = np.tril_indices(r)
    rows, columns = (xp.asarray(index, device=T.device) for index in (first, second))
    out = zeros((q, first.shape[0]), T)
    for part in _blocks(rule[0].shape[0], max(m, ell, first.shape[0]), T):
        psi = basis_at(rule, kernel, X, T, log_unit, part)
        seen = embedding_kernel(like(rule[0][part], T), Z - X[:1, :]) @ S.T
        out += seen.T @ (xp.take(psi, rows, axis=1) * xp.take(psi, columns, axis=1))
    where = np.zeros((r, r), dtype=np.int64)
    where[first, second] = where[second, first] = np.arange(first.shape[0])
    return xp.reshape(xp.take(out, xp.asarray(where.ravel(), device=T.device), axis=1), (q, r, r))


def _symmetric(tensor: Array) -> Array:
    if math.prod(tensor.shape) <= _BLOCK_ELEMENTS:
        return 0.5 * (tensor + namespace(tensor).matrix_transpose(tensor))
    for k in range(tensor.shape[0]):  # slice by slice: no second tensor
        tensor[k, :, :] = 0.5 * (tensor[k, :, :] + tensor[k, :, :].T)
    return tensor
