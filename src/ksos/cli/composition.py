"""What a saved density is made of, in the same numbers for ``ksos fit`` and ``ksos inspect``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ksos import SoSDensity, SoSMixture
from ksos.cli.console import described
from ksos.kernels import Kernel
from ksos.measures import Measure

__all__ = ["Composition"]


@dataclass(frozen=True)
class Composition:
    """The sizes of a density: Gaussian components of its reference, support points and rank of the
    kernel sum of squares.

    A density may be a mixture of several such parts. The numbers are then sums over the parts, and
    the kernel is that of the heaviest part.
    """

    n_parts: int
    n_components: int
    """Gaussians of the reference; 0 if there is none."""
    n_support: int
    """Support points; 0 if the density is the reference itself."""
    rank: int
    kernel: Kernel
    measure: Measure
    n_features: int

    @classmethod
    def of(cls, density: SoSDensity | SoSMixture) -> Composition:
        """The composition of a density as it is written to a file."""
        parts = (
            [part.density for _, part in density.parts]
            if isinstance(density, SoSMixture)
            else [density]
        )
        components = sum(_components(part) for part in parts)
        support = sum(
            part.support_points.shape[0]
            for part in parts
            if _components(part) == 0 or part.unit_factor.any()
        )
        return cls(
            len(parts),
            components,
            support,
            density.rank,
            density.kernel,
            density.measure,
            density.n_features,
        )

    @property
    def is_reference(self) -> bool:
        """Whether nothing is added to the reference."""
        return self.n_components > 0 and self.n_support == 0

    def described(self) -> dict[str, Any]:
        """For JSON."""
        sizes = {"n_components": self.n_components, "n_support": self.n_support, "rank": self.rank}
        return {
            **sizes,
            "kernel": described(self.kernel, self.n_features),
            "measure": described(self.measure, self.n_features),
        }


def _components(part: SoSDensity) -> int:
    """Gaussians of the measure that a part corrects; without a constant it is no correction."""
    normals = None if part.unit_constant is None else part.measure.normals(part.n_features)
    return 0 if normals is None else len(normals.weights)
