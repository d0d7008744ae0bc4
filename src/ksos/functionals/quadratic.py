"""EmbeddingQuadratic: s‖a‖² − 2⟨b, a⟩ + ⟨D, C⟩ + tr(CNCN), the form of f that has a small conic dual."""

from __future__ import annotations

from dataclasses import dataclass

from ksos._array import Array, inner

__all__ = ["EmbeddingQuadratic"]


@dataclass(frozen=True)
class EmbeddingQuadratic:
    """s‖a‖² − 2⟨b, a⟩ + ⟨D, C⟩ + tr(CNCN) up to a constant; None stands for zero. Sums and multiples stay of this form.

    >>> import numpy as np
    >>> total = EmbeddingQuadratic(1.0, np.ones(2)) + 3.0 * EmbeddingQuadratic(0.5, np.ones(2), np.eye(1))
    >>> import numpy as np
    >>> total.scale, total.b.tolist(), total.D.tolist()
    (2.5, [4.0, 4.0], [[3.0]])
    """

    scale: float = 0.0
    """s ≥ 0."""
    b: Array | None = None
    """In R^q: s·z for the squared distance s‖a − z‖²."""
    D: Array | None = None
    """Symmetric, r × r."""
    N: Array | None = None
    """Symmetric, r × r; on one space always a multiple of the same matrix."""

    def __add__(self, other: EmbeddingQuadratic) -> EmbeddingQuadratic:
        return EmbeddingQuadratic(self.scale + other.scale, _sum(self.b, other.b), _sum(self.D, other.D), _joined(self.N, other.N))

    def __rmul__(self, factor: float) -> EmbeddingQuadratic:
        return EmbeddingQuadratic(
            factor * self.scale,
            None if self.b is None else factor * self.b,
            None if self.D is None else factor * self.D,
            None if self.N is None else factor**0.5 * self.N,
        )


def _sum(x: Array | None, y: Array | None) -> Array | None:
    if x is None or y is None:
        return y if x is None else x
    return x + y


def _joined(M: Array | None, N: Array | None) -> Array | None:
    """The matrix whose form is the sum of two forms tr(CMCM) + tr(CNCN), N being a multiple of M."""
    if M is None or N is None:
        return N if M is None else M
    return (1.0 + (inner(M, N) / inner(M, M)) ** 2) ** 0.5 * M
