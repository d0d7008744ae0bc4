"""Second-order sums over samples that come in chunks: all that the L² criterion asks of the data."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos.functionals.base import from_values
from ksos.ground.arrays import to_numpy
from ksos.ground.files import read_state, write_state
from ksos.ground.memory import row_blocks
from ksos.ground.validation import as_points, as_vector
from ksos.kernels import KERNELS, Kernel
from ksos.space.space import SoSSpace

__all__ = ["Basis", "BasisSums"]

_BLOCK_ELEMENTS = 1 << 20
_KIND = "second-order sums"


@dataclass(frozen=True, eq=False)
class Basis:
    """ψ of a space and nothing else of it, so that it travels: ψ(x) = Tᵀk(x), the constant function
    before the kernels if there is one.
    """

    kernel: Kernel
    support_points: np.ndarray
    T: np.ndarray
    constant: bool

    @classmethod
    def of(cls, space: SoSSpace) -> Basis:
        return cls(space.kernel, to_numpy(space.support_points), to_numpy(space.T), space.constant)

    def blocks(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Slices of the rows of ``X``, each with ψ there, shape (·, r)."""
        at = self.kernel.against(self.support_points)
        for rows in row_blocks(X.shape[0], self.T.shape[0], _BLOCK_ELEMENTS):
            psi = at(X[rows]) @ (self.T[1:] if self.constant else self.T)
            yield rows, (psi + self.T[0] if self.constant else psi)

    def same(self, other: Basis) -> bool:
        """Whether this is ψ of the same space."""
        arrays = ((self.support_points, other.support_points), (self.T, other.T))
        return (
            self.kernel == other.kernel
            and self.constant == other.constant
            and all(np.array_equal(a, b) for a, b in arrays)
        )


@dataclass(frozen=True, eq=False)
class BasisSums:
    r"""Σ_i a_i ψ(x_i)ψ(x_i)ᵀ over the basis ψ of a space, and the mass Σ_i a_i: a value that grows
    by chunks and merges, in any order.

    It is a target of :class:`~ksos.functionals.SquaredL2` on that space, where it stands for the
    samples, of mass one: Σ_i a_i p_C(x_i) is ⟨Σ_i a_i ψ_iψ_iᵀ, C⟩. Begin with
    ``BasisSums.of(space)``.

    >>> import ksos
    >>> X = [[-0.5], [0.0], [0.5]]
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    >>> nothing = ksos.functionals.BasisSums.of(space)
    >>> sums = nothing.update(X[:2]).merge(nothing.update(X[2:]))
    >>> sums.count, ksos.minimize(ksos.functionals.SquaredL2(sums) + 1e-3 * ksos.functionals.Trace(), space).status
    (3, 'solved')
    """

    basis: Basis
    matrix: np.ndarray
    mass: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, space: SoSSpace) -> BasisSums:
        """No samples, on a space without labels."""
        if space.labels is not None:
            raise ValueError(
                "second-order sums are over the basis of a space without labels; use"
                " space.with_labels(None)"
            )
        return cls(Basis.of(space), np.zeros((space.rank, space.rank)))

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.basis.support_points.shape[1])

    @np.errstate(under="ignore")
    def update(self, points: Any, weights: Any = None) -> BasisSums:
        """These sums and those of more samples (n, d) with weights a_i, 1 each by default."""
        X = to_numpy(as_points(points, "points", n_features=self.n_features))
        a = (
            np.ones(X.shape[0])
            if weights is None
            else as_vector(weights, "weights", length=X.shape[0])
        )
        matrix = self.matrix + sum(
            (from_values(psi, a[rows]) for rows, psi in self.basis.blocks(X)),
            np.zeros_like(self.matrix),
        )
        return replace(
            self, matrix=matrix, mass=self.mass + float(a.sum()), count=self.count + X.shape[0]
        )

    def merge(self, other: BasisSums) -> BasisSums:
        """The sums over both sets of samples."""
        if not self.basis.same(other.basis):
            raise ValueError(
                "only second-order sums on the same space add up; begin both with"
                " BasisSums.of(space)"
            )
        return replace(
            self,
            matrix=self.matrix + other.matrix,
            mass=self.mass + other.mass,
            count=self.count + other.count,
        )

    def on(self, space: SoSSpace) -> np.ndarray:
        """Σ_i a_i ψ_iψ_iᵀ of mass one, for the space of the sums and for no other."""
        if space.labels is not None or not self.basis.same(Basis.of(space)):
            raise ValueError(
                "second-order sums know the data only on their own space; begin with"
                " BasisSums.of(space)"
            )
        if not self.mass > 0.0:
            raise ValueError(
                f"the samples of these sums have mass {self.mass:g}; add samples with"
                " update(points)"
            )
        return self.matrix / self.mass

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the sums to a file, whole or not at all: a killed process leaves the old file or
        the new one.
        """
        kernel = self.basis.kernel
        if KERNELS.get(kernel.name) is not type(kernel):
            raise ValueError(
                f"sums with {kernel!r} cannot be saved: only the kernels {', '.join(KERNELS)} are"
                " known to files"
            )
        words = {
            "kernel": kernel.name,
            "parameters": kernel.parameters(),
            "constant": self.basis.constant,
        }
        arrays = {
            "support_points": self.basis.support_points,
            "T": self.basis.T,
            "matrix": self.matrix,
        }
        write_state(path, _KIND, {**words, "mass": self.mass, "count": self.count}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BasisSums:
        """The sums that :meth:`save` wrote, bit for bit."""
        words, arrays = read_state(path, _KIND)
        kernel = KERNELS[words["kernel"]](**words["parameters"])
        basis = Basis(kernel, arrays["support_points"], arrays["T"], bool(words["constant"]))
        return cls(basis, arrays["matrix"], float(words["mass"]), int(words["count"]))

    def __repr__(self) -> str:
        return (
            f"BasisSums({self.count} samples on a basis of {self.matrix.shape[0]} functions,"
            f" kernel={self.basis.kernel!r})"
        )
