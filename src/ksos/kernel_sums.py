"""Kernel sums over samples that come in chunks: all that the squared MMD ever asks of the data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ksos._array import Array, is_numpy, like, namespace, to_numpy, zeros
from ksos._memory import row_blocks
from ksos._state import read_state, write_state
from ksos._validation import as_points, as_vector
from ksos.kernels import KERNELS, Kernel

__all__ = ["KernelSums", "kernel_sums"]

_BLOCK_ELEMENTS = 1 << 16  # half a megabyte: the block stays in the cache from the distances to the product
_DEVICE_ELEMENTS = 1 << 27
_KIND = "kernel sums"
_GRID = 2.0**40


class KernelSums:
    r"""z_j = Σ_i a_i k(x_i, z_j) at landmarks z_j, and the mass Σ_i a_i: a value that grows by chunks and merges, in any order.

    Sums are compensated [Ogita2005]: what rounding takes from one addition is kept and added at the end, so that neither the chunks nor
    their order show. As a target, such as ``SquaredMMD(sums)``, it stands for the embedding of the data, of mass one, on these landmarks.

    Parameters
    ----------
    kernel : Kernel
        The kernel in which MMD is measured.
    landmarks : array (ℓ, d)

    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> X, nothing = np.linspace(-1.0, 1.0, 9)[:, None], KernelSums(Gaussian(1.0), [[0.0], [1.0]])
    >>> parts = nothing.update(X[:4]).merge(nothing.update(X[4:]))
    >>> parts.count, bool(np.allclose(parts.values, nothing.update(X).values, rtol=1e-15))
    (9, True)
    """

    def __init__(self, kernel: Kernel, landmarks: Any, *, state: tuple[Array, Array, int] | None = None) -> None:
        self.kernel, self.landmarks = kernel, as_points(landmarks, "landmarks")
        kernel.check_features(self.n_features)
        if state is None:
            nothing = zeros((self.landmarks.shape[0] + 1,), self.landmarks)
            state = nothing, nothing, 0
        self._total, self._lost, self.count = state  # the last entry of the sums is the mass

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.landmarks.shape[1])

    @property
    def mass(self) -> float:
        """Σ_i a_i."""
        return float(self._total[-1] + self._lost[-1])

    @property
    def values(self) -> Array:
        """Σ_i a_i k(x_i, z_j), shape (ℓ,)."""
        return (self._total + self._lost)[:-1]

    def update(self, points: Any, weights: Any = None) -> KernelSums:
        """These sums and those of more samples (n, d) with weights a_i, 1 each by default."""
        X = like(as_points(points, "points", n_features=self.n_features), self.landmarks)
        a = np.ones(X.shape[0]) if weights is None else as_vector(weights, "weights", length=X.shape[0])
        total, lost = kernel_sums(self.kernel, self.landmarks, X, like(a, X), (self._total, self._lost))
        return KernelSums(self.kernel, self.landmarks, state=(total, lost, self.count + int(X.shape[0])))

    def merge(self, other: KernelSums) -> KernelSums:
        """The sums over both sets of samples."""
        if not self.same_question(other):
            raise ValueError("only kernel sums of one kernel at the same landmarks add up; make both with KernelSums(kernel, landmarks)")
        total, lost = _plus(self._total, self._lost + like(other._lost, self._lost), like(other._total, self._total))
        return KernelSums(self.kernel, self.landmarks, state=(total, lost, self.count + other.count))

    def same_question(self, other: KernelSums) -> bool:
        """Whether kernel and landmarks are the same."""
        return self.kernel == other.kernel and self.sees(other.landmarks)

    def sees(self, Z: Array) -> bool:
        """Whether the landmarks are these."""
        return Z is self.landmarks or bool(np.array_equal(to_numpy(Z), to_numpy(self.landmarks)))

    def at(self, Z: Array) -> Array:
        """The embedding of the data, of mass one, at the landmarks Z, which must be those of the sums.

        Rounded to multiples of 2⁻⁴⁰, far above what order and chunks change (1e-17) and far below what any gap resolves: a solver then
        begins with the same bits and ends with the same density, whatever the chunks.
        """
        if not self.sees(Z):
            raise ValueError("kernel sums know the data only at their own landmarks; give them to the space as landmarks=sums.landmarks")
        if not self.mass > 0.0:
            raise ValueError(f"the samples of these kernel sums have mass {self.mass:g}; add samples with update(points)")
        return like(namespace(self.values).round(self.values / self.mass * _GRID) / _GRID, Z)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Plain words and arrays from which :meth:`of_state` makes the same value."""
        if KERNELS.get(self.kernel.name) is not type(self.kernel):
            raise ValueError(f"sums with {self.kernel!r} cannot be saved: only the kernels {', '.join(KERNELS)} are known to files")
        words = {"kernel": self.kernel.name, "parameters": self.kernel.parameters(), "count": self.count}
        return words, {"landmarks": to_numpy(self.landmarks), "total": to_numpy(self._total), "lost": to_numpy(self._lost)}

    @classmethod
    def of_state(cls, words: dict[str, Any], arrays: dict[str, np.ndarray]) -> KernelSums:
        """The value that :meth:`state` described."""
        kernel = KERNELS[words["kernel"]](**words["parameters"])
        return cls(kernel, arrays["landmarks"], state=(arrays["total"], arrays["lost"], int(words["count"])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, whole or not at all: a killed process leaves the old file or the new one."""
        write_state(path, _KIND, *self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KernelSums:
        """The sums that :meth:`save` wrote, bit for bit."""
        return cls.of_state(*read_state(path, _KIND))

    def __repr__(self) -> str:
        return f"KernelSums({self.count} samples at {self.landmarks.shape[0]} landmarks, kernel={self.kernel!r})"


@np.errstate(under="ignore")
def kernel_sums(kernel: Kernel, Z: Array, X: Array, a: Array, before: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
    """Σ_i a_i k(X_i, Z_j) and Σ_i a_i, shape (ℓ + 1,), added to the sums ``before``; and what rounding has taken from them."""
    xp, nothing = namespace(Z), zeros((Z.shape[0] + 1,), Z)
    total, lost = (nothing, nothing) if before is None else before
    at = kernel.against(Z)
    for rows in row_blocks(X.shape[0], Z.shape[0], _BLOCK_ELEMENTS if is_numpy(Z) else _DEVICE_ELEMENTS):
        block = xp.concat([a[rows] @ at(X[rows, :]), xp.reshape(xp.sum(a[rows]), (1,))])
        total, lost = _plus(total, lost, block)
    return total, lost


def _plus(total: Array, lost: Array, more: Array) -> tuple[Array, Array]:
    """total + more, and what rounding has taken in all: Knuth's two-sum, exact whatever the order of magnitudes."""
    out = total + more
    back = out - total
    return out, lost + ((total - (out - back)) + (more - back))
