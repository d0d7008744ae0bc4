"""A(C) = S·U(TCTᵀ) and its adjoint A*(y): from a parameter of the spectraplex to the coordinates of its embedding, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np

from ksos._array import Array, flat, is_numpy, namespace, zeros
from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.integrals import Integrals
from ksos.integrals.triple import PairFactors, ThinPairs, thin_pairs, triple_blocks
from ksos.kernels import Kernel

__all__ = ["SMALL_TENSOR", "CompressedMap", "EmbeddingMap", "LabelledMap", "PairwiseMap", "blocks_of", "embedding_map"]

SMALL_TENSOR = 1 << 24  # entries: 134 MB
_BLOCK_ELEMENTS = 2_000_000  # 16 MB: what a processor's cache holds
_DEVICE_ELEMENTS = 125_000_000  # a GPU wants few large products instead


class EmbeddingMap(ABC):
    """The linear map A from symmetric r × r matrices to R^q."""

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

    @abstractmethod
    def restrict(self, columns: slice) -> EmbeddingMap:
        """A on the matrices C that live on some of the r directions."""

    @abstractmethod
    def compressed(self) -> CompressedMap:
        """The same map as a stored tensor of shape (q, r, r), its memory predicted and refused where it does not fit."""


class PairwiseMap(EmbeddingMap):
    """A without any array of three indices: U(B) = c·diag(Hᵀ(B∘G)H) and U*(v) = c·G∘(H diag(v) Hᵀ)."""

    def __init__(self, pairs: PairFactors, T: Array, S: Array) -> None:
        self.pairs, self.T, self.S = pairs, T, S

    def apply(self, C: Array) -> Array:
        """Two products with T, one with H: O(m²(r + ℓ))."""
        return self._embed(self.T @ C @ self.T.T)

    def apply_factor(self, F: Array) -> Array:
        """O(m²(k + ℓ)) for k columns."""
        X = self.T @ F
        return self._embed(X @ X.T)

    def _embed(self, B: Array) -> Array:
        B *= self.pairs.G
        U = namespace(B).vecdot(self.pairs.H, B @ self.pairs.H, axis=-2)
        return self.S @ (self.pairs.c * U)

    def adjoint(self, y: Array) -> Array:
        """The same cost."""
        out = self.T.T @ self._pull(y) @ self.T
        return 0.5 * (out + out.T)

    def adjoint_times(self, y: Array, F: Array) -> Array:
        return self.T.T @ (self._pull(y) @ (self.T @ F))

    def _pull(self, y: Array) -> Array:
        M = (self.pairs.H * (self.pairs.c * (y @ self.S))) @ self.pairs.H.T
        M *= self.pairs.G
        return M

    def jacobian(self, F: Array) -> Array:
        """Per column four products of the size of G·H, whatever q is: O(m²ℓ)."""
        out = zeros((self.S.shape[0], *F.shape), F)
        scaled, TF = self.pairs.c * self.S, self.T @ F
        for j in range(F.shape[1]):
            M = self.pairs.G @ (self.pairs.H * TF[:, j][:, None])
            M *= self.pairs.H
            out[:, :, j] = scaled @ (M.T @ self.T)
        return out

    def restrict(self, columns: slice) -> EmbeddingMap:
        return PairwiseMap(self.pairs, self.T[:, columns], self.S)

    def compressed(self) -> CompressedMap:
        _require_tensor(self.T, self.S.shape[0], "use solver='fista', or fewer support points or landmarks (n_support)")
        return CompressedMap(_pairwise_tensor(self.pairs, self.T, self.S))


class CompressedMap(EmbeddingMap):
    """A as the stored tensor A_k = Σ_r S_kr Tᵀ u_r T of shape (q, r, r): its size follows the ranks, not m."""

    def __init__(self, tensor: Array) -> None:
        self.tensor = tensor
        self._rows = namespace(tensor).reshape(tensor, (tensor.shape[0], -1))

    def apply(self, C: Array) -> Array:
        """One matrix-vector product with q × r² entries."""
        return self._rows @ flat(C)

    def adjoint(self, y: Array) -> Array:
        """The same."""
        return namespace(y).reshape(y @ self._rows, self.tensor.shape[1:])

    def jacobian(self, F: Array) -> Array:
        """One product with all the A_k at once."""
        xp, (q, r, _) = namespace(F), self.tensor.shape
        return xp.reshape(xp.reshape(self.tensor, (q * r, r)) @ F, (q, *F.shape))

    def restrict(self, columns: slice) -> EmbeddingMap:
        return CompressedMap(namespace(self.tensor).asarray(self.tensor[:, columns, columns], copy=True))

    def compressed(self) -> CompressedMap:
        return self


class LabelledMap(CompressedMap):
    """One map on every diagonal block of C, one block per label; the entries of C off the blocks do not matter."""

    def __init__(self, block: CompressedMap, n_labels: int) -> None:
        self.block, self.n_labels = block, n_labels

    def _blocks(self) -> Iterator[tuple[slice, slice]]:
        """(the coordinates, the directions) of each label."""
        return zip(*(blocks_of(size, self.n_labels) for size in self.block.tensor.shape[:2]), strict=True)

    @cached_property
    def tensor(self) -> Array:
        """All of it, with the zeros between the blocks: for solvers that do not know of blocks."""
        base, L = self.block.tensor, self.n_labels
        q, r, _ = base.shape
        _require_tensor(zeros((1, L * r), base), L * q)
        out = zeros((L * q, L * r, L * r), base)
        for coordinates, directions in self._blocks():
            out[coordinates, directions, directions] = base
        return out

    def apply(self, C: Array) -> Array:
        return namespace(C).concat([self.block.apply(C[directions, directions]) for _, directions in self._blocks()])

    def adjoint(self, y: Array) -> Array:
        r = self.n_labels * self.block.tensor.shape[1]
        out = zeros((r, r), y)
        for coordinates, directions in self._blocks():
            out[directions, directions] = self.block.adjoint(y[coordinates])
        return out

    def jacobian(self, F: Array) -> Array:
        out = zeros((self.n_labels * self.block.tensor.shape[0], *F.shape), F)
        for coordinates, directions in self._blocks():
            out[coordinates, directions] = self.block.jacobian(F[directions])
        return out


def blocks_of(size: int, labels: int) -> list[slice]:
    """One block of ``size`` rows per label."""
    return [slice(y * size, (y + 1) * size) for y in range(labels)]


def embedding_map(integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, T: Array, S: Array, log_unit: float) -> EmbeddingMap:
    """Choose the form of A.

    Where the integrals factorise over pairs and nothing was truncated, nothing with three indices is ever formed. Truncation (q < ℓ or
    r < m) means large entries in T and S; there the compressed tensor, smaller than m³, is formed once as long as it is small: it is
    faster, and its rounding stays fixed instead of changing from one iterate to the next.
    """
    (m, r), q, ell = T.shape, S.shape[0], Z.shape[0]
    if not integrals.pairwise:
        return CompressedMap(_streamed_tensor(integrals, X, Z, embedding_kernel, T, S, log_unit))
    tensor_pays = q * r * r <= m * (m + ell) or (q * r * r < ell * m * m and q * r * r <= SMALL_TENSOR)
    if tensor_pays and (thin := thin_pairs(integrals, X, Z, embedding_kernel, log_unit)) is not None:
        return CompressedMap(_thin_tensor(thin, T, S))
    what = f"the pair matrices of {m} support points and {ell} landmarks"
    require_memory(FLOAT_BYTES * (4 * m * m + 3 * m * ell), what, "use fewer of them (n_support)", beside=T)
    pairs = PairFactors(integrals, X, Z, embedding_kernel, log_unit)
    return CompressedMap(_pairwise_tensor(pairs, T, S)) if tensor_pays else PairwiseMap(pairs, T, S)


def _require_tensor(T: Array, q: int, remedy: str = "use fewer support points or landmarks (n_support)") -> None:
    r = T.shape[1]
    require_memory(2 * FLOAT_BYTES * q * r * r, f"the compressed tensor of {q}×{r}×{r} entries", remedy, beside=T)


def _pairwise_tensor(pairs: PairFactors, T: Array, S: Array) -> Array:
    """A_k = Σ_r c S_kr (H_r∘T)ᵀ G (H_r∘T), formed in blocks of landmarks r.

    With G = QQᵀ (few columns: G is smoother than W) each slice is MᵀM with M = Qᵀ(H_r∘T): large entries of T enter once before they cancel,
    not squared, and a block of slices starts with one large product.
    """
    xp, (m, r), ell = namespace(T), T.shape, pairs.H.shape[1]
    Q = _thin_root(pairs.G)
    out = zeros((S.shape[0], r * r), T)
    for columns in row_blocks(ell, r * max(m, r), _BLOCK_ELEMENTS if is_numpy(T) else _DEVICE_ELEMENTS):
        n = columns.stop - columns.start
        scaled = xp.reshape(pairs.H[:, columns][:, :, None] * T[:, None, :], (m, n * r))
        M = xp.permute_dims(xp.reshape(Q.T @ scaled, (Q.shape[1], n, r)), (1, 0, 2))
        out += S[:, columns] @ xp.reshape(pairs.c * xp.matmul(xp.matrix_transpose(M), M), (n, r * r))
    return _symmetric(xp.reshape(out, (-1, r, r)))


def _thin_tensor(pairs: ThinPairs, T: np.ndarray, S: np.ndarray) -> np.ndarray:
    """The same from thin roots: M_r = Σ_s H_rs N_s with N_s = Qᵀ(h_s∘T), so that m and ℓ never meet."""
    (m, r), (ell, h), g = T.shape, pairs.right.shape, pairs.Q.shape[1]
    _require_tensor(T, S.shape[0])
    N = np.empty((h, g * r))
    for columns in row_blocks(h, r * m, _BLOCK_ELEMENTS):
        n = columns.stop - columns.start
        scaled = (pairs.left[:, columns, None] * T[:, None, :]).reshape(m, n * r)
        N[columns] = (pairs.Q.T @ scaled).reshape(g, n, r).transpose(1, 0, 2).reshape(n, g * r)
    out = np.zeros((S.shape[0], r * r))
    for rows in row_blocks(ell, r * max(g, r), _BLOCK_ELEMENTS):
        M = (pairs.right[rows] @ N).reshape(-1, g, r)
        out += S[:, rows] @ (pairs.c * np.matmul(M.transpose(0, 2, 1), M)).reshape(M.shape[0], r * r)
    return np.asarray(_symmetric(out.reshape(-1, r, r)))


def _thin_root(G: Array) -> Array:
    """Q with G = QQᵀ to rounding."""
    xp = namespace(G)
    values, vectors = xp.linalg.eigh(G)
    first = int(xp.sum(xp.astype(values <= xp.finfo(xp.float64).eps * values[-1], xp.int64)))
    return vectors[:, first:] * xp.sqrt(values[first:])


def _streamed_tensor(integrals: Integrals, X: Array, Z: Array, embedding_kernel: Kernel, T: Array, S: Array, log_unit: float) -> Array:
    """The triple integral, formed once in blocks of landmarks and compressed as it comes."""
    xp, q, (m, r) = namespace(T), S.shape[0], T.shape
    _require_tensor(T, q)
    out = zeros((q, r * r), T)
    for rows, block in triple_blocks(integrals, X, Z, embedding_kernel, log_unit):
        n = block.shape[2]
        half = T.T @ xp.reshape(block, (m, m * n))  # (r, m·n)
        half = xp.reshape(xp.permute_dims(xp.reshape(half, (r, m, n)), (2, 0, 1)), (n * r, m))
        out += S[:, rows] @ xp.reshape(half @ T, (n, r * r))
    return _symmetric(xp.reshape(out, (q, r, r)))


def _symmetric(tensor: Array) -> Array:
    for k in range(tensor.shape[0]):  # slice by slice: no second tensor
        tensor[k, :, :] = 0.5 * (tensor[k, :, :] + tensor[k, :, :].T)
    return tensor
