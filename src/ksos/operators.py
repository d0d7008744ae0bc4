"""A(C) = S·U(TCTᵀ) and its adjoint A*(y): from a parameter of the spectraplex to the coordinates of its embedding, and back."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.integrals import Integrals
from ksos.integrals.triple import PairFactors, triple_blocks
from ksos.kernels import Kernel

__all__ = ["SMALL_TENSOR", "CompressedMap", "EmbeddingMap", "PairwiseMap", "embedding_map"]

SMALL_TENSOR = 1 << 24  # entries: 134 MB
_BLOCK_BYTES = 16e6


class EmbeddingMap(ABC):
    """The linear map A from symmetric r × r matrices to R^q."""

    @abstractmethod
    def apply(self, C: np.ndarray) -> np.ndarray:
        """A(C), shape (q,)."""

    @abstractmethod
    def adjoint(self, y: np.ndarray) -> np.ndarray:
        """A*(y), symmetric, shape (r, r): ⟨A*(y), C⟩ = ⟨y, A(C)⟩."""

    @abstractmethod
    def jacobian(self, F: np.ndarray) -> np.ndarray:
        """The matrices A_k F, shape (q, r, columns): half the derivative of F ↦ A(FFᵀ)."""

    @abstractmethod
    def restrict(self, columns: slice) -> EmbeddingMap:
        """A on the matrices C that live on some of the r directions."""

    @abstractmethod
    def compressed(self) -> CompressedMap:
        """The same map as a stored tensor of shape (q, r, r), its memory predicted and refused where it does not fit."""


class PairwiseMap(EmbeddingMap):
    """A without any array of three indices: U(B) = c·diag(Hᵀ(B∘G)H) and U*(v) = c·G∘(H diag(v) Hᵀ)."""

    def __init__(self, pairs: PairFactors, T: np.ndarray, S: np.ndarray) -> None:
        self.pairs, self.T, self.S = pairs, T, S

    def apply(self, C: np.ndarray) -> np.ndarray:
        """Two products with T, one with H: O(m²(r + ℓ))."""
        B = self.T @ C @ self.T.T
        B *= self.pairs.G
        U = np.einsum("ir,ir->r", self.pairs.H, B @ self.pairs.H)
        return np.asarray(self.S @ (self.pairs.c * U))

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        """The same cost."""
        M = (self.pairs.H * (self.pairs.c * (y @ self.S))) @ self.pairs.H.T
        M *= self.pairs.G
        out = self.T.T @ M @ self.T
        return 0.5 * (out + out.T)

    def jacobian(self, F: np.ndarray) -> np.ndarray:
        """Per column four products of the size of G·H, whatever q is: O(m²ℓ)."""
        out = np.empty((self.S.shape[0], *F.shape))
        scaled = self.pairs.c * self.S
        for j, f in enumerate((self.T @ F).T):
            M = self.pairs.G @ (self.pairs.H * f[:, None])
            M *= self.pairs.H
            out[:, :, j] = scaled @ (M.T @ self.T)
        return out

    def restrict(self, columns: slice) -> EmbeddingMap:
        return PairwiseMap(self.pairs, self.T[:, columns], self.S)

    def compressed(self) -> CompressedMap:
        _require_tensor(self.S.shape[0], self.T.shape[1], "use solver='fista', or fewer support points or landmarks (n_support)")
        return CompressedMap(_pairwise_tensor(self.pairs, self.T, self.S))


class CompressedMap(EmbeddingMap):
    """A as the stored tensor A_k = Σ_r S_kr Tᵀ u_r T of shape (q, r, r): its size follows the ranks, not m."""

    def __init__(self, tensor: np.ndarray) -> None:
        self.tensor = tensor
        self._rows = tensor.reshape(tensor.shape[0], -1)

    def apply(self, C: np.ndarray) -> np.ndarray:
        """One matrix-vector product with q × r² entries."""
        return np.asarray(self._rows @ C.ravel())

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        """The same."""
        return np.asarray((y @ self._rows).reshape(self.tensor.shape[1:]))

    def jacobian(self, F: np.ndarray) -> np.ndarray:
        """One product with all the A_k at once."""
        q, r, _ = self.tensor.shape
        return np.asarray((self.tensor.reshape(q * r, r) @ F).reshape(q, *F.shape))

    def restrict(self, columns: slice) -> EmbeddingMap:
        return CompressedMap(np.ascontiguousarray(self.tensor[:, columns, columns]))

    def compressed(self) -> CompressedMap:
        return self


def embedding_map(
    integrals: Integrals, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel, T: np.ndarray, S: np.ndarray, log_unit: float
) -> EmbeddingMap:
    """Choose the form of A.

    Where the integrals factorise over pairs and nothing was truncated, nothing with three indices is ever formed. Truncation (q < ℓ or
    r < m) means large entries in T and S; there the compressed tensor, smaller than m³, is formed once as long as it is small: it is
    faster, and its rounding stays fixed instead of changing from one iterate to the next.
    """
    (m, r), q, ell = T.shape, S.shape[0], Z.shape[0]
    if not integrals.pairwise:
        return CompressedMap(_streamed_tensor(integrals, X, Z, embedding_kernel, T, S, log_unit))
    require_memory(
        FLOAT_BYTES * (4 * m * m + 3 * m * ell),
        f"the pair matrices of {m} support points and {ell} landmarks",
        "use fewer of them (n_support)",
    )
    pairs = PairFactors(integrals, X, Z, embedding_kernel, log_unit)
    if q * r * r <= m * (m + ell) or (q * r * r < ell * m * m and q * r * r <= SMALL_TENSOR):
        return CompressedMap(_pairwise_tensor(pairs, T, S))
    return PairwiseMap(pairs, T, S)


def _require_tensor(q: int, r: int, remedy: str = "use fewer support points or landmarks (n_support)") -> None:
    require_memory(2 * FLOAT_BYTES * q * r * r, f"the compressed tensor of {q}×{r}×{r} entries", remedy)


def _pairwise_tensor(pairs: PairFactors, T: np.ndarray, S: np.ndarray) -> np.ndarray:
    """A_k = Σ_r c S_kr (H_r∘T)ᵀ G (H_r∘T), formed in blocks of landmarks r.

    With G = QQᵀ (few columns: G is smoother than W) each slice is MᵀM with M = Qᵀ(H_r∘T): large entries of T enter once before they cancel,
    not squared, and a block of slices starts with one large product.
    """
    (m, r), ell = T.shape, pairs.H.shape[1]
    Q = _thin_root(pairs.G)
    out = np.zeros((S.shape[0], r * r))
    step = max(1, int(_BLOCK_BYTES / (FLOAT_BYTES * r * max(m, r))))
    for start in range(0, ell, step):
        columns = range(start, min(start + step, ell))
        scaled = (pairs.H[:, columns, None] * T[:, None, :]).reshape(m, -1)
        M = (Q.T @ scaled).reshape(Q.shape[1], len(columns), r).transpose(1, 0, 2)
        out += S[:, columns] @ (pairs.c * np.matmul(M.transpose(0, 2, 1), M)).reshape(len(columns), -1)
    return _symmetric(out.reshape(-1, r, r))


def _thin_root(G: np.ndarray) -> np.ndarray:
    """Q with G = QQᵀ to rounding."""
    values, vectors = np.linalg.eigh(G)
    keep = values > np.finfo(np.float64).eps * values[-1]
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]))


def _streamed_tensor(
    integrals: Integrals, X: np.ndarray, Z: np.ndarray, embedding_kernel: Kernel, T: np.ndarray, S: np.ndarray, log_unit: float
) -> np.ndarray:
    """The triple integral, formed once in blocks of landmarks and compressed as it comes."""
    q, r = S.shape[0], T.shape[1]
    _require_tensor(q, r)
    out = np.zeros((q, r * r))
    for rows, block in triple_blocks(integrals, X, Z, embedding_kernel, log_unit):
        half = np.tensordot(block, T, axes=([1], [0]))  # (m, block, r)
        compressed = np.tensordot(T, half, axes=([0], [0]))  # (r, block, r)
        out += S[:, rows] @ np.ascontiguousarray(compressed.transpose(1, 0, 2)).reshape(block.shape[2], -1)
    return _symmetric(out.reshape(q, r, r))


def _symmetric(tensor: np.ndarray) -> np.ndarray:
    for k in range(tensor.shape[0]):
        tensor[k] = 0.5 * (tensor[k] + tensor[k].T)
    return tensor
