"""A(C) and A*(y) over a reference measure: a basis that holds the constant function, and mixtures
of normal laws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpstrf

from ksos.ground.arrays import Array, like, namespace, to_numpy, zeros
from ksos.ground.memory import FLOAT_BYTES, require_memory, row_blocks
from ksos.integrals.components import ComponentPairs, component_pairs
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space.embedding_map import SMALL_TENSOR, CompressedMap, EmbeddingMap, UnstoredMap

__all__ = ["ComponentsMap", "components_map"]

_BLOCK_ELEMENTS = 2_000_000


@dataclass(frozen=True)
class _Factors:
    """U(B) = c·diag(Hᵀ(B∘G)H) of one component."""

    c: float
    G: Array
    H: Array


class ComponentsMap(UnstoredMap):
    """A without any array of three indices, component by component; with the constant function,
    U(B) = … + 2·B₀ᵀE + B₀₀·e as well.
    """

    def __init__(
        self,
        parts: Sequence[ComponentPairs],
        T: Array,
        S: Array,
        factors: Sequence[_Factors] | None = None,
    ) -> None:
        self.parts, self.T, self.S = parts, T, S
        self.constant = T.shape[0] > parts[0].G.shape[0]
        if factors is None:
            factors = [_Factors(part.c, like(part.G, T), like(part.H, T)) for part in parts]
        self.factors = factors
        if self.constant:
            self.e = like(np.sum([part.masses for part in parts], axis=0), T)
            self.E = like(np.sum([part.cross for part in parts], axis=0), T)

    def _embed(self, B: Array) -> Array:
        xp, inner = namespace(B), B[1:, 1:] if self.constant else B
        U = zeros((self.S.shape[1],), B)
        for part in self.factors:
            U += part.c * xp.vecdot(part.H, (inner * part.G) @ part.H, axis=-2)
        if self.constant:
            U += 2.0 * (B[0, 1:] @ self.E) + B[0, 0] * self.e
        return self.S @ U

    def _pull(self, y: Array) -> Array:
        xp, v = namespace(y), y @ self.S
        M = zeros(tuple(self.factors[0].G.shape), y)
        for part in self.factors:
            M += part.G * ((part.H * (part.c * v)) @ part.H.T)
        if not self.constant:
            return M
        row = (self.E @ v)[None, :]
        first = xp.concat([xp.reshape(self.e @ v, (1, 1)), row], axis=1)
        return xp.concat([first, xp.concat([row.T, M], axis=1)], axis=0)

    def jacobian(self, F: Array) -> Array:
        out, TF = zeros((self.S.shape[0], *F.shape), F), self.T @ F
        rows = TF[1:, :] if self.constant else TF
        for j in range(F.shape[1]):
            M = zeros(tuple(self.factors[0].H.shape), F)
            for part in self.factors:
                M += part.c * part.H * (part.G @ (part.H * rows[:, j][:, None]))
            if self.constant:
                M += self.E * TF[0, j]
                first = self.e * TF[0, j] + rows[:, j] @ self.E
                M = namespace(M).concat([first[None, :], M], axis=0)
            out[:, :, j] = self.S @ (M.T @ self.T)
        return out

    def restrict(self, columns: slice) -> EmbeddingMap:
        return ComponentsMap(self.parts, self.T[:, columns], self.S, self.factors)

    def compressed(self) -> CompressedMap:
        return CompressedMap(_components_tensor(self.parts, self.T, self.S))


def components_map(
    kernel: Kernel,
    measure: Measure,
    X: Array,
    Z: Array,
    embedding_kernel: Kernel,
    T: Array,
    S: Array,
    log_unit: float,
) -> EmbeddingMap:
    """Choose the form of A on a mixture of normal laws: the stored tensor as long as it is small.

    It is faster than the pairs of many components, and keeps more digits.
    """
    (m, ell), r, q = (X.shape[0], Z.shape[0]), T.shape[1], S.shape[0]
    normals = measure.normals(X.shape[1])
    assert normals is not None
    count = normals.weights.shape[0]
    what = f"the pair matrices of {m} support points and {ell} landmarks for {count} components"
    require_memory(
        FLOAT_BYTES * ((count + 3) * (m * m + m * ell)),
        what,
        "use fewer of them (n_support)",
        beside=T,
    )
    parts = list(
        component_pairs(kernel, measure, to_numpy(X), to_numpy(Z), embedding_kernel, log_unit)
    )
    found = ComponentsMap(parts, T, S)
    return found.compressed() if q * r * r <= SMALL_TENSOR else found


def _components_tensor(parts: Sequence[ComponentPairs], T: Array, S: Array) -> Array:
    """A_k = Σ_r S_kr M_rᵀM_r with M_r = L_rᵀT and L_rL_rᵀ the Gram matrix of the basis under k_σ(·,
    z_r)ρ, one landmark after the other.

    The root L_r lets large entries of T, and of what centres the kernels, enter once before they
    cancel, not squared.
    """
    host, (rows, r), (q, ell) = to_numpy(T), T.shape, S.shape
    remedy = "use solver='fista', or fewer support points or landmarks (n_support)"
    require_memory(
        2 * FLOAT_BYTES * q * r * r,
        f"the compressed tensor of {q}×{r}×{r} entries",
        remedy,
        beside=T,
    )
    constant = rows > parts[0].G.shape[0]
    scaled = [np.sqrt(part.c) * part.H for part in parts]
    if constant:
        e, E = (
            np.sum([part.masses for part in parts], axis=0),
            np.sum([part.cross for part in parts], axis=0),
        )
    coordinates, out = to_numpy(S), np.zeros((q, r * r))
    gram, inner, term = (
        np.zeros((rows, rows)),
        slice(int(constant), None),
        np.empty_like(parts[0].G),
    )
    for block in row_blocks(ell, r * r, _BLOCK_ELEMENTS):
        seen = np.empty((block.stop - block.start, r, r))
        for k, at in enumerate(range(block.start, block.stop)):
            gram[inner, inner] = 0.0
            for part, H in zip(parts, scaled, strict=True):
                np.multiply(part.G, H[:, at], out=term)
                term *= H[:, at, None]
                gram[inner, inner] += term
            if constant:
                gram[0, 0], gram[0, 1:], gram[1:, 0] = e[at], E[:, at], E[:, at]
            M = _root(gram) @ host
            np.matmul(M.T, M, out=seen[k])
        out += coordinates[:, block] @ seen.reshape(-1, r * r)
    return like(out.reshape(q, r, r), T)


def _root(G: np.ndarray) -> np.ndarray:
    """Q with G = QᵀQ to rounding, by pivoted Cholesky."""
    factor, pivots, rank, _ = dpstrf(G, tol=np.finfo(np.float64).eps * G.diagonal().max())
    out = np.zeros((rank, G.shape[0]))
    out[:, pivots - 1] = np.triu(factor[:rank])
    return out
