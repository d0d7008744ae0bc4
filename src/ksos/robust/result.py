"""WorstCase: the worst distribution, its value, and the numbers that must not be confused with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.kernels import Kernel
from ksos.observables import Observable
from ksos.solvers import STATUSES
from ksos.space import SoSSpace

__all__ = ["ROBUST_STATUSES", "WorstCase"]

ROBUST_STATUSES = {
    **STATUSES,
    "infeasible": "the ball holds no density of the space, which is proven; take a larger radius, or a smaller bandwidth",
    "undecided": "no density of the space was found in the ball, nor a proof that there is none; take a slightly larger radius",
}


@dataclass(frozen=True)
class WorstCase:
    """The result of :func:`ksos.worst_case`. Three numbers bound the worst case from three sides:

    * ``value`` belongs to a density whose exact MMD to the data is at most the radius: a *lower* bound of the worst case over all
      distributions, and what the density can be asked for;
    * ``dual_value`` is at least the optimum over the densities of the space in the projected ball; ``gap`` = ``dual_value`` − ``value``;
    * ``upper_bound`` bounds the worst case over all distributions of the domain.
    """

    value: float | None
    """E_p[loss] of :attr:`distribution`; None where the ball holds no density."""
    upper_bound: float | None
    """sup(loss − g) + ⟨g, data⟩ + radius·‖g‖ for the dual function g: no distribution in the ball does worse."""
    upper_bound_kind: str
    """"rigorous", "estimate" (the supremum was searched for, not proven) or "infinite"; "none" where the ball holds no density."""
    distribution: SoSDensity | None
    """The worst density; of an infeasible problem the one that is nearest to the data; None at radius 0, which leaves the data alone."""
    mmd: float
    """The exact MMD between :attr:`distribution` and the data."""
    projected_mmd: float
    """The same as the landmarks see it."""
    gap: float | None
    """dual_value − value (for the penalised problem: − objective)."""
    dual_value: float | None
    dual_function: Observable | None
    """g, of the RKHS: dual_constant + g majorises the loss in the order of sums of squares of the space."""
    dual_constant: float | None
    status: str
    """One of :data:`ROBUST_STATUSES`."""
    radius: float | None
    penalty: float | None
    least_radius: float | None
    """Of an infeasible problem: the certified radius below which the ball holds no density of the space."""
    empirical_value: float | None
    """The expectation of the loss under the data themselves; None where the loss was not defined at all of them."""
    integration_error: float
    """How far ``value`` may be off because the loss was integrated by quadrature, estimated; 0 for closed forms."""
    loss: Observable = field(repr=False)
    embedding_kernel: Kernel = field(repr=False)
    space: SoSSpace | None = field(repr=False)
    upper_bound_at: np.ndarray | None = field(repr=False, default=None)
    """Where loss − g is largest."""
    n_iter: int = 0
    time: float = 0.0
    """Seconds."""
    note: str = ""
    """What else there is to say about the status."""

    @property
    def objective(self) -> float | None:
        """What was maximised: the value, or value − penalty·MMD²."""
        if self.value is None or self.penalty is None:
            return self.value
        return self.value - self.penalty * self.mmd**2

    @property
    def message(self) -> str:
        """The status in a sentence."""
        gap = "no gap" if self.gap is None else f"gap {self.gap:.2e}"
        return f"{self.status}, {gap}: {ROBUST_STATUSES[self.status]}" + (f"; {self.note}" if self.note else "")

    def summary(self) -> dict[str, Any]:
        """What is certified, as plain numbers and words."""
        names = (
            "status",
            "value",
            "gap",
            "dual_value",
            "upper_bound",
            "upper_bound_kind",
            "mmd",
            "projected_mmd",
            "radius",
            "penalty",
            "least_radius",
            "empirical_value",
            "integration_error",
        )
        return {name: getattr(self, name) for name in names}
