"""∫ f k kᵀ dρ as a sum over nodes, in blocks."""

from __future__ import annotations

import numpy as np

from ksos._memory import row_blocks
from ksos.kernels import Kernel

__all__ = ["sum_over_nodes"]

_BLOCK_ELEMENTS = 1 << 18


def sum_over_nodes(
    kernel: Kernel, X: np.ndarray, nodes: np.ndarray, log_weights: np.ndarray, f: np.ndarray, log_unit: float, T: np.ndarray | None
) -> np.ndarray:
    """e^{−log_unit} Σ_n w_n f_n k(x_n) k(x_n)ᵀ with k(x) = k(x, X), or the same with Tᵀk(x) in its place."""
    size = X.shape[0] if T is None else T.shape[1]
    out = np.zeros((size, size))
    half = 0.5 * (log_weights - log_unit)
    for rows in row_blocks(nodes.shape[0], max(size, X.shape[0]), _BLOCK_ELEMENTS):
        with np.errstate(under="ignore"):
            values = np.exp(kernel.log(nodes[rows], X) + half[rows, None])  # weights and unit may be extreme; the product is not
        basis = values if T is None else values @ T
        out += (f[rows, None] * basis).T @ basis
    return 0.5 * (out + out.T)
