"""What a robust estimator is prepared for: how far the worst law moves every column, in the column's name and unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.robust.learning import RobustSolution

__all__ = ["ANYWHERE", "SHIFTS", "Moments", "PreparedFor", "prepared_for"]

ANYWHERE = "anywhere"
SHIFTS = {
    "x": "weights that depend on x, the law of y given x kept",
    "y": "weights that depend on y, the law of x given y kept",
    "both": "weights that depend on x and y",
    ANYWHERE: "any density of the domain",
}
"""What may shift, and the laws that are meant."""


@dataclass(frozen=True)
class Moments:
    """Of a law: what can be said of it in the units of the columns."""

    mean: np.ndarray
    std: np.ndarray
    shares: np.ndarray | None = None
    """Of the labels."""

    @classmethod
    def of(cls, table: np.ndarray, weights: np.ndarray, codes: np.ndarray | None = None, labels: int = 0) -> Moments:
        """Of weighted rows."""
        mean = weights @ table
        std = np.sqrt(np.maximum(weights @ (table - mean) ** 2, 0.0))
        return cls(mean, std, None if codes is None else np.bincount(codes, weights=weights, minlength=labels))


@dataclass(frozen=True)
class PreparedFor:
    """The worst law that a fit is prepared for, beside the data; ``str`` says it in words."""

    shift: str
    """One of "x", "y", "both", "anywhere"."""
    radius: float
    """MMD: every law of this kind that is not farther from the data is prepared for."""
    columns: tuple[str, ...]
    labels: tuple[Any, ...]
    data: Moments
    worst: Moments
    loss: float | None
    """The mean loss of the data."""
    worst_loss: float | None

    @property
    def nothing(self) -> bool:
        """Whether the fit is the plain one."""
        return self.worst_loss is None

    def __str__(self) -> str:
        if self.nothing:
            return "prepared for no shift: the plain model, radius 0, for no larger radius was found harmless or was asked for"
        lines = [f"prepared for {SHIFTS[self.shift]}, within MMD {self.radius:.3g} of the data"]
        lines += [f"  mean loss {_number(self.loss)} in the data, at most about {_number(self.worst_loss)}; in the worst case:"]
        parts = zip(self.columns, self.data.mean, self.worst.mean, self.data.std, self.worst.std, strict=True)
        for name, mean, moved, std, spread in parts:
            lines.append(f"  {name}: mean {mean:.4g} → {moved:.4g}, standard deviation {std:.4g} → {spread:.4g}")
        if self.data.shares is not None and self.worst.shares is not None:
            for label, share, moved in zip(self.labels, self.data.shares, self.worst.shares, strict=True):
                lines.append(f"  share of {label}: {share:.1%} → {moved:.1%}")
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.4g}"


def prepared_for(family: Any, solution: RobustSolution, shift: str, columns: Sequence[str], labels: Sequence[Any] = ()) -> PreparedFor:
    """The summary of a solution; ``columns`` name those of ``family.data_law()``."""
    data, worst = family.data_law(), solution.worst_case
    names = tuple(columns)
    if worst is None or worst.value is None:
        return PreparedFor(shift, 0.0, names, tuple(labels), data, data, None, None)
    return PreparedFor(
        shift, solution.radius, names, tuple(labels), data, family.law_of(worst.distribution), worst.empirical_value, worst.value
    )
