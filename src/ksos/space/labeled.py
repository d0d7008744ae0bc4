"""Labels as a counting measure: densities and embeddings on R^d × {labels}, with the kernel k(x,
x')·1[label = label'].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ksos.density import SoSDensity, mixture, square_of
from ksos.ground import as_points, as_weights, instead, to_numpy
from ksos.kernels import Kernel
from ksos.space.embedding import MeanEmbedding, mmd


def _position(labels: np.ndarray, label: Any) -> int:
    found = np.flatnonzero(labels == label)
    if found.shape[0] != 1:
        raise ValueError(f"unknown label {label!r}; the labels are {labels.tolist()}")
    return int(found[0])


class LabeledEmbedding:
    """The embedding of labeled samples: one element of the RKHS per label, or None for a label
    without samples.

    The weights of a part sum to the share of its label.
    """

    def __init__(self, labels: Any, parts: Sequence[MeanEmbedding | None], kernel: Kernel) -> None:
        self.labels, self.parts, self.kernel = np.asarray(labels), tuple(parts), kernel

    @classmethod
    def of(
        cls, X: Any, y: Any, labels: Any = None, weights: Any = None, *, kernel: Kernel
    ) -> LabeledEmbedding:
        """Samples X (n, d) with labels y (n,); ``labels`` names all labels there are, by default
        those that occur.
        """
        X, y = to_numpy(as_points(X)), np.asarray(y)
        labels, shares = (
            np.unique(y) if labels is None else labels,
            as_weights(weights, len(X), "weights"),
        )
        rows = [y == label for label in labels]
        parts = [MeanEmbedding(X[r], shares[r], kernel=kernel) if np.any(r) else None for r in rows]
        return cls(labels, parts, kernel)

    def norm(self) -> float:
        """‖v‖ in the RKHS."""
        return float(np.linalg.norm([0.0 if part is None else part.norm() for part in self.parts]))

    def __repr__(self) -> str:
        return f"LabeledEmbedding(labels={self.labels.tolist()}, kernel={self.kernel!r})"


class LabeledDensity:
    """p(x, label) = P(label)·p(x | label) with respect to ρ ⊗ counting.

    ``densities`` has one density per label, or None for a label of probability 0. ``rank`` is the
    number of squares, over all labels.
    """

    def __init__(
        self, labels: Any, probabilities: np.ndarray, densities: Sequence[SoSDensity | None]
    ) -> None:
        self.labels, self.probabilities = np.asarray(labels), probabilities
        self.densities = tuple(densities)
        known = [density for density in densities if density is not None]
        self.n_features, self.rank = known[0].n_features, sum(density.rank for density in known)

    def given(self, label: Any) -> SoSDensity:
        """p(x | label)."""
        position = _position(self.labels, label)
        density = self.densities[position]
        if density is None:
            raise ValueError(
                f"label {self.labels[position]!r} has probability 0: there is no density given it"
            )
        return density

    def marginal(self) -> SoSDensity:
        """p(x) = Σ_label P(label) p(x | label)."""
        _, densities, shares = zip(*self._parts(), strict=True)
        return mixture(densities, shares)

    def _parts(self) -> list[tuple[Any, SoSDensity, float]]:
        """(label, density, probability) of the labels that have one."""
        shares = self.probabilities.tolist()
        parts = zip(self.labels, self.densities, shares, strict=True)
        return [(label, density, share) for label, density, share in parts if density is not None]

    def mass(self) -> float:
        """Σ_label ∫ p(x, label) dρ."""
        return sum(share * square_of(density).mass() for _, density, share in self._parts())

    def pdf(self, X: Any, labels: Any) -> np.ndarray:
        """p(x, label) at the rows of X; ``labels`` is one label, or one per row."""
        return np.exp(self.logpdf(X, labels))

    def logpdf(self, X: Any, labels: Any) -> np.ndarray:
        """log p(x, label)."""
        X = to_numpy(as_points(X, n_features=self.n_features))
        y = np.broadcast_to(np.asarray(labels), (X.shape[0],))
        out = np.full(X.shape[0], -np.inf)
        for label in np.unique(y):
            position = _position(self.labels, label)
            density, rows = self.densities[position], y == label
            if density is not None:
                out[rows] = np.log(self.probabilities[position]) + to_numpy(density.logpdf(X[rows]))
        return out

    @instead(seed="rng", random_state="rng")
    def rvs(self, size: int = 1, rng: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Samples (X, labels)."""
        generator = np.random.default_rng(rng)
        which = generator.choice(
            self.labels.shape[0], size=size, p=self.probabilities / self.probabilities.sum()
        )
        X = np.empty((size, self.n_features))
        for position in np.unique(which):
            rows = np.flatnonzero(which == position)
            X[rows] = np.asarray(
                self.given(self.labels[position]).rvs(rows.shape[0], rng=generator)
            )
        return X, self.labels[which]

    def expectation(self, f: Callable[[np.ndarray, Any], np.ndarray], **options: Any) -> float:
        """E f(x, label) for a function of an array (n, d) and one label; ``options`` are those of
        :meth:`ksos.SoSDensity.expectation`.
        """
        return sum(
            share * density.expectation(lambda X, y=label: f(X, y), **options)
            for label, density, share in self._parts()
        )

    def relative_to(self, position: int, data: LabeledEmbedding) -> MeanEmbedding:
        """The data of a label, in units of the label's probability."""
        part, density = data.parts[position], self.given(self.labels[position])
        if part is None:
            return MeanEmbedding(
                to_numpy(density.support_points)[:1], np.zeros(1), kernel=data.kernel
            )
        return MeanEmbedding(
            part.points, part.weights / self.probabilities[position], kernel=data.kernel
        )

    def mmd(self, data: LabeledEmbedding) -> float:
        """The exact MMD to labeled data."""
        total = 0.0
        for position, (share, density, part) in enumerate(
            zip(self.probabilities, self.densities, data.parts, strict=True)
        ):
            if density is None:
                total += 0.0 if part is None else part.norm() ** 2
            else:  # P·‖w_p − w_part/P‖
                total += (share * mmd(density, self.relative_to(position, data))) ** 2
        return float(np.sqrt(total))

    def __repr__(self) -> str:
        shares = ", ".join(
            f"{label}: {share:.3g}"
            for label, share in zip(self.labels.tolist(), self.probabilities, strict=True)
        )
        return f"LabeledDensity({{{shares}}})"
