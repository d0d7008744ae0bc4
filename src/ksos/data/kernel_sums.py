"""Kernel sums over samples that come in chunks: all that the squared MMD ever asks of the data."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ksos.ground import (
    Array,
    as_choice,
    as_points,
    as_vector,
    full_single_precision,
    is_tensor,
    like,
    namespace,
    read_state,
    to_numpy,
    write_state,
    zeros,
)
from ksos.kernels import KERNELS, Kernel
from ksos.kernels.base import block_size, kernel_sums, two_sum

_KIND = "kernel sums"
_GRID = 2.0**40  # see KernelSums.at
_UNDERFLOW = 2.0**-126  # the least normal number of single precision
_SINGLE_UNIT = 2.0**-24  # its rounding unit
_GROUP = 64  # rows that are added up in single precision: they lose 6 of its 24 bits at most


class KernelSums:
    r"""z_j = Σ_i a_i k(x_i, z_j) at landmarks z_j, and the mass Σ_i a_i: a value that grows by
    chunks and merges, in any order.

    Sums are compensated [Ogita2005]: what rounding takes from one addition is kept and added at the
    end, so that neither the chunks nor their order show. As a target, such as ``SquaredMMD(sums)``,
    it stands for the embedding of the data, of mass one, on these landmarks.

    Parameters
    ----------
    kernel : Kernel
        The kernel in which MMD is measured.
    landmarks : array (ℓ, d)
    precision : {"double", "single"}
        "single" computes the values of a Gaussian kernel with half as many bits and in half the
        memory; sums are kept in double precision. :attr:`error` bounds what that costs. Such sums
        are for a look at the data: as a target of a fit, whose certificate would not know of the
        error, they raise.

    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> X, nothing = np.linspace(-1.0, 1.0, 9)[:, None], KernelSums(Gaussian(1.0), [[0.0], [1.0]])
    >>> parts = nothing.update(X[:4]).merge(nothing.update(X[4:]))
    >>> parts.count, bool(np.allclose(parts.values, nothing.update(X).values, rtol=1e-15))
    (9, True)
    """

    def __init__(
        self,
        kernel: Kernel,
        landmarks: Any,
        precision: str = "double",
        *,
        state: tuple[Array, int] | None = None,
    ) -> None:
        self.kernel, self.landmarks = kernel, as_points(landmarks, "landmarks")
        self.precision = as_choice(precision, "precision", ("double", "single"))
        kernel.check_features(self.n_features)
        # sums, of which the last is the mass, what rounding has taken from them, and how far single
        # precision may be off
        self._sums, self.count = state or (
            zeros((3, self.landmarks.shape[0] + 1), self.landmarks),
            0,
        )

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.landmarks.shape[1])

    @property
    def mass(self) -> float:
        """Σ_i a_i."""
        return float(self._sums[0, -1] + self._sums[1, -1])

    @property
    def values(self) -> Array:
        """Σ_i a_i k(x_i, z_j), shape (ℓ,)."""
        return (self._sums[0, :] + self._sums[1, :])[:-1]

    @property
    def error(self) -> float:
        """No entry of values/mass is off by more than this because of single precision: the largest
        bound over the landmarks.
        """
        largest = namespace(self._sums).max(self._sums[2, :-1])
        return float(largest) / self.mass if self.count else 0.0

    def update(self, points: Any, weights: Any = None) -> KernelSums:
        """These sums and those of more samples (n, d) with weights a_i, 1 each by default."""
        X = like(as_points(points, "points", n_features=self.n_features), self.landmarks)
        if weights is None:
            weights = zeros((X.shape[0],), X) + 1.0
        elif is_tensor(weights) and tuple(weights.shape) == (X.shape[0],):  # it stays there
            weights = as_points(weights[:, None], "weights")[:, 0]
        else:
            weights = as_vector(weights, "weights", length=X.shape[0])
        a = like(weights, X)
        total, lost, error = (self._sums[k, :] for k in range(3))
        if self.precision == "double":
            total, lost = kernel_sums(self.kernel, self.landmarks, X, a, (total, lost))
        else:
            before = total, lost, error
            total, lost, error = _single_sums(self.kernel, self.landmarks, X, a, before)
        return self._with(total, lost, error, self.count + int(X.shape[0]))

    def _with(self, total: Array, lost: Array, error: Array, count: int) -> KernelSums:
        state = namespace(total).stack([total, lost, error]), count
        return KernelSums(self.kernel, self.landmarks, self.precision, state=state)

    def beside(self, points: Array) -> KernelSums:
        """The same sums on the device of ``points``."""
        state, landmarks = (like(self._sums, points), self.count), like(self.landmarks, points)
        return KernelSums(self.kernel, landmarks, self.precision, state=state)

    def merge(self, other: KernelSums) -> KernelSums:
        """The sums over both sets of samples."""
        if not self.same_question(other):
            raise ValueError(
                "kernel sums add up that have one kernel, the same landmarks and precision; make"
                " both with KernelSums(kernel, landmarks)"
            )
        mine, others = self._sums, like(other._sums, self._sums)
        total, lost = two_sum(mine[0, :], mine[1, :] + others[1, :], others[0, :])
        return self._with(total, lost, mine[2, :] + others[2, :], self.count + other.count)

    def same_question(self, other: KernelSums) -> bool:
        """Whether kernel, landmarks and precision are the same."""
        return (
            self.kernel == other.kernel
            and self.precision == other.precision
            and self.sees(other.landmarks)
        )

    def sees(self, Z: Array) -> bool:
        """Whether the landmarks are these."""
        return Z is self.landmarks or bool(np.array_equal(to_numpy(Z), to_numpy(self.landmarks)))

    def at(self, Z: Array) -> Array:
        """The embedding of the data, of mass one, at the landmarks Z, which must be those of the
        sums.

        Rounded to multiples of 2⁻⁴⁰, far above what order and chunks change (1e-17) and far below
        what any gap resolves: a solver then begins with the same bits and ends with the same
        density, whatever the chunks.
        """
        if not self.sees(Z):
            raise ValueError(
                "kernel sums know the data only at their own landmarks; give them to the space as"
                " landmarks=sums.landmarks"
            )
        if self.precision == "single":
            raise ValueError(
                f"kernel sums in single precision, known to {self.error:.1g}, are no target: a"
                ' certificate would not know of their error; make them with precision="double"'
            )
        if not self.mass > 0.0:
            raise ValueError(
                f"the samples of these kernel sums have mass {self.mass:g}; add samples with"
                " update(points)"
            )
        return like(namespace(self.values).round(self.values / self.mass * _GRID) / _GRID, Z)

    def state(self) -> dict[str, Any]:
        """Plain values and arrays from which :meth:`of_state` makes the same value."""
        # a file names the kernel and never holds code, so that it can be opened without trust
        if KERNELS.get(self.kernel.name) is not type(self.kernel):
            raise ValueError(
                f"sums with {self.kernel!r} cannot be saved: only the kernels {', '.join(KERNELS)}"
                " are known to files"
            )
        return {
            "kernel": self.kernel.name,
            "parameters": self.kernel.parameters(),
            "precision": self.precision,
            "landmarks": to_numpy(self.landmarks),
            "sums": to_numpy(self._sums),
            "count": self.count,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> KernelSums:
        """The value that :meth:`state` described."""
        kernel = KERNELS[state["kernel"]](**state["parameters"])
        sums = state["sums"], int(state["count"])
        return cls(kernel, state["landmarks"], state["precision"], state=sums)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, whole or not at all: a killed process leaves the old file or
        the new one.
        """
        write_state(path, _KIND, self.state())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KernelSums:
        """The sums that :meth:`save` wrote, bit for bit."""
        return cls.of_state(read_state(path, _KIND))

    def __repr__(self) -> str:
        return (
            f"KernelSums({self.count} samples at {self.landmarks.shape[0]} landmarks,"
            f" kernel={self.kernel!r})"
        )


# The same with kernel values in single precision, and a bound on the error of every sum.
#
# Of values that are off by ρ each, a sum with weights of one sign is off by ρ/(1 − ρ) of itself;
# what underflows adds its own.
@np.errstate(under="ignore")
def _single_sums(
    kernel: Kernel, Z: Array, X: Array, a: Array, before: tuple[Array, Array, Array]
) -> tuple[Array, Array, Array]:
    # equal masses are factored out: sums of kernel values alone can be taken in single precision
    xp, (total, lost, error) = namespace(Z), before
    same = bool(xp.all(a == a[0]))
    with full_single_precision():
        for rows, K, rho in kernel.blocks_in_single(X, Z, 2 * block_size(Z)):
            if same:
                block, rho = a[0] * _grouped_sum(K), rho + _GROUP * _SINGLE_UNIT
                size = xp.abs(block)
            else:
                K = xp.astype(K, xp.float64)
                block, size = a[rows] @ K, xp.abs(a[rows]) @ K
            mass = xp.sum(xp.abs(a[rows]))
            size = rho / (1.0 - rho) * size + _UNDERFLOW * mass
            total, lost = two_sum(
                total, lost, xp.concat([block, xp.reshape(xp.sum(a[rows]), (1,))])
            )
            error = error + xp.concat([size, zeros((1,), Z)])
    return total, lost, error


# Σ_i K_ij, of 64 rows at a time in the precision of K and then in double: every partial sum is
# rounded 63 times, and no more.
def _grouped_sum(K: Array) -> Array:
    xp, whole = namespace(K), K.shape[0] // _GROUP * _GROUP
    groups = xp.sum(xp.reshape(K[:whole, :], (-1, _GROUP, K.shape[1])), axis=1)
    return xp.sum(groups, axis=0, dtype=xp.float64) + xp.sum(K[whole:, :], axis=0, dtype=xp.float64)
