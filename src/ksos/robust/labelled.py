"""Labels as a counting measure: densities on R^d × {labels}, kernel k(x,x')·1[y = y'], parameters with one block per label."""

from __future__ import annotations

from typing import Any

import numpy as np

from ksos._array import Array, to_numpy
from ksos.density import SoSDensity, mixture
from ksos.embedding import MeanEmbedding
from ksos.embedding_map import CompressedMap, EmbeddingMap
from ksos.robust.exact import exact_mmd
from ksos.space import SoSSpace

__all__ = ["LabelledDensity", "LabelledSpace"]


class LabelledDensity:
    """p(x, y) = P(y)·p(x | y) with respect to ρ ⊗ counting; ``densities[l]`` is None where a label has no mass."""

    def __init__(self, labels: Any, probabilities: np.ndarray, densities: list[SoSDensity | None]) -> None:
        self.labels, self.probabilities, self.densities = np.asarray(labels), probabilities, densities

    def given(self, label: Any) -> SoSDensity:
        """p(x | y = label)."""
        return self._nonempty(self._position(label))

    def _nonempty(self, position: int) -> SoSDensity:
        density = self.densities[position]
        if density is None:
            raise ValueError(f"label {self.labels[position]!r} has probability 0: there is no density given it")
        return density

    def _position(self, label: Any) -> int:
        found = np.flatnonzero(self.labels == label)
        if found.shape[0] != 1:
            raise ValueError(f"unknown label {label!r}; the labels are {self.labels.tolist()}")
        return int(found[0])

    def pdf(self, X: Any, label: Any) -> np.ndarray:
        """p(x, label) at the rows of X."""
        position = self._position(label)
        density = self.densities[position]
        return np.zeros(np.shape(X)[0]) if density is None else self.probabilities[position] * to_numpy(density.pdf(X))

    def marginal(self) -> SoSDensity:
        """p(x) = Σ_y P(y) p(x | y)."""
        kept = [(density, float(weight)) for density, weight in zip(self.densities, self.probabilities, strict=True) if density is not None]
        weights = np.array([weight for _, weight in kept])
        return mixture([density for density, _ in kept], weights / weights.sum())

    def rvs(self, size: int, rng: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Samples (X, y)."""
        generator = np.random.default_rng(rng)
        which = generator.choice(self.labels.shape[0], size=size, p=self.probabilities / self.probabilities.sum())
        X: np.ndarray | None = None
        for position in np.unique(which):
            rows = np.flatnonzero(which == position)
            drawn = np.asarray(self._nonempty(int(position)).rvs(rows.shape[0], rng=generator))
            X = np.empty((size, drawn.shape[1])) if X is None else X
            X[rows] = drawn
        return (np.empty((0, 0)) if X is None else X), self.labels[which]

    def relative_to(self, label: int, part: MeanEmbedding | None, kernel: Any) -> MeanEmbedding:
        """The data of a label, in units of the label's probability."""
        if part is None:
            return MeanEmbedding(to_numpy(self._nonempty(label).support_points)[:1], np.zeros(1), kernel=kernel)
        return MeanEmbedding(part.points, part.weights / self.probabilities[label], kernel=kernel)

    def distance(self, parts: list[MeanEmbedding | None], kernel: Any) -> float:
        """The exact MMD to labelled data, whose parts (one embedding per label, weights summing to the label's share) are given."""
        total = 0.0
        for label, (weight, density, part) in enumerate(zip(self.probabilities, self.densities, parts, strict=True)):
            if density is None:
                total += 0.0 if part is None else part.norm() ** 2
            else:  # weight·‖w_p − w_part/weight‖
                total += (weight * exact_mmd(density, self.relative_to(label, part, kernel))) ** 2
        return float(np.sqrt(total))

    def __repr__(self) -> str:
        shares = ", ".join(f"{label}: {share:.3g}" for label, share in zip(self.labels.tolist(), self.probabilities, strict=True))
        return f"LabelledDensity({{{shares}}})"


class LabelledMap(EmbeddingMap):
    """A on every diagonal block; what is off the blocks of C does not matter."""

    def __init__(self, base: CompressedMap, n_labels: int) -> None:
        self.base, self.n_labels = base, n_labels

    def _blocks(self) -> list[slice]:
        r = self.base.tensor.shape[1]
        return [slice(y * r, (y + 1) * r) for y in range(self.n_labels)]

    def apply(self, C: Array) -> Array:
        return np.concatenate([self.base.apply(C[block, block]) for block in self._blocks()])

    def adjoint(self, y: Array) -> Array:
        q, r = self.base.tensor.shape[:2]
        out = np.zeros((self.n_labels * r,) * 2)
        for label, block in enumerate(self._blocks()):
            out[block, block] = self.base.adjoint(y[label * q : (label + 1) * q])
        return out

    def jacobian(self, F: Array) -> Array:
        q = self.base.tensor.shape[0]
        out = np.zeros((self.n_labels * q, *F.shape))
        for label, block in enumerate(self._blocks()):
            out[label * q : (label + 1) * q, block] = self.base.jacobian(F[block])
        return out

    def restrict(self, columns: slice) -> EmbeddingMap:
        raise NotImplementedError("a part of the directions of a labelled space has no use of its own")

    def compressed(self) -> Any:
        return self


class LabelledSpace(SoSSpace):
    """The densities p(x, y) = ψ(x)ᵀC_yyψ(x) on ρ ⊗ counting, Σ_y tr C_yy = 1, over one space for x.

    Pinching a matrix to its diagonal blocks keeps it positive and keeps its trace, so the blocks off the diagonal are free to be anything.
    """

    def __init__(self, base: SoSSpace, labels: Any) -> None:
        self.base, self.labels = base, np.asarray(labels)
        self.kernel, self.measure, self.embedding_kernel = base.kernel, base.measure, base.embedding_kernel
        self.support_points, self.landmarks = base.support_points, base.landmarks
        self.tol_model, self.tol_embedding, self.whitening = base.tol_model, base.tol_embedding, base.whitening
        self.log_unit = base.log_unit

    @property
    def n_labels(self) -> int:
        """How many labels there are."""
        return int(self.labels.shape[0])

    @property
    def T(self) -> Array:
        """One block T per label."""
        return np.kron(np.eye(self.n_labels), to_numpy(self.base.T))

    @property
    def rank(self) -> int:
        return self.n_labels * self.base.rank

    @property
    def embedding_rank(self) -> int:
        return self.n_labels * self.base.embedding_rank

    @property
    def tensor_size(self) -> int:
        return self.n_labels * self.base.tensor_size

    @property
    def map(self) -> EmbeddingMap:
        """A, label by label."""
        return LabelledMap(self.base.compressed_map, self.n_labels)

    @property
    def compressed_map(self) -> Any:
        """The same."""
        return self.map

    def labelled_coordinates(self, parts: list[MeanEmbedding | None]) -> np.ndarray:
        """z of labelled data: one embedding per label."""
        q = self.base.embedding_rank
        return np.concatenate([np.zeros(q) if part is None else to_numpy(self.base.coordinates(part)) for part in parts])

    def density(self, factor: Array) -> Any:
        """The labelled density of C = GGᵀ."""
        r = self.base.rank
        G = to_numpy(factor)
        masses = np.array([np.sum(G[y * r : (y + 1) * r] ** 2) for y in range(self.n_labels)])
        masses = masses / masses.sum()
        densities: list[SoSDensity | None] = []
        for y, mass in enumerate(masses):
            block = G[y * r : (y + 1) * r]
            densities.append(self.base.density(block / np.linalg.norm(block)) if mass > 1e-12 else None)
        masses = np.where([density is None for density in densities], 0.0, masses)
        return LabelledDensity(self.labels, masses / masses.sum(), densities)
