"""What a page asks for: the features and the parameters of one fit, checked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ksos.estimators import OBJECTIVES
from ksos.ground.validation import as_choice, as_count, as_features, as_positive
from ksos.kernels import KERNELS

__all__ = ["MOST_FEATURES", "MOST_SUPPORT", "REFERENCES", "WIDEST", "Settings"]

REFERENCES = ("none", "normal", "mixture")
MOST_FEATURES, MOST_SUPPORT, WIDEST = 6, 300, 8.0
"""Features shown at once, support points, and how far a bandwidth may be from the automatic one, as
a factor.
"""

_STRENGTHS = (1e-9, 1e3)


@dataclass(frozen=True)
class Settings:
    """One fit: ``scale`` times the automatic bandwidth, λ in units of w₀ (None: automatic)."""

    features: tuple[int, ...]
    scale: float = 1.0
    regularization: float | None = None
    n_support: int = 100
    reference: str = "none"
    objective: str = "squared_mmd"
    kernel: str = "gaussian"
    draft: bool = False
    """Whether a gap that no picture shows will do: while a slider moves."""

    @property
    def setting(self) -> tuple[Any, ...]:
        """What decides on the support points, but for the bandwidth."""
        return self.features, self.n_support, self.reference, self.kernel

    @classmethod
    def of(cls, asked: Any, d: int) -> Settings:
        """From the words of a request about samples with ``d`` features."""
        known = set(cls.__dataclass_fields__)
        if not isinstance(asked, dict) or not set(asked) <= known:
            raise ValueError(
                f"a fit is asked for with {', '.join(sorted(known))}; got"
                f" {sorted(asked) if isinstance(asked, dict) else asked!r}"
            )
        features = as_features(asked.get("features", [0]), d)
        if len(features) > MOST_FEATURES:
            raise ValueError(
                f"a page shows at most {MOST_FEATURES} features at once; got {len(features)};"
                " choose fewer"
            )
        scale, strength = as_positive(asked.get("scale", 1.0), "scale"), asked.get("regularization")
        if abs(math.log(scale)) > math.log(WIDEST) + 1e-9:
            raise ValueError(f"scale must be from 1/{WIDEST:g} to {WIDEST:g}; got {scale!r}")
        if (
            strength is not None
            and not _STRENGTHS[0] <= as_positive(strength, "regularization") <= _STRENGTHS[1]
        ):
            raise ValueError(
                f"regularization must be from {_STRENGTHS[0]:g} to {_STRENGTHS[1]:g}; got"
                f" {strength!r}"
            )
        n_support = as_count(asked.get("n_support", 100), "n_support")
        if n_support > MOST_SUPPORT:
            raise ValueError(f"n_support must be at most {MOST_SUPPORT}; got {n_support}")
        reference = as_choice(asked.get("reference", "none"), "reference", REFERENCES)
        objective = as_choice(asked.get("objective", "squared_mmd"), "objective", OBJECTIVES)
        kernel, draft = (
            as_choice(asked.get("kernel", "gaussian"), "kernel", KERNELS),
            asked.get("draft", False),
        )
        if kernel != "gaussian" and reference != "none":
            raise ValueError(
                f"a reference needs a Gaussian kernel; got {kernel!r} with {reference!r}; choose"
                " another kernel, or no reference"
            )
        if not isinstance(draft, bool):
            raise TypeError(f"draft must be true or false; got {draft!r}")
        return cls(
            tuple(features),
            scale,
            None if strength is None else float(strength),
            n_support,
            reference,
            objective,
            kernel,
            draft,
        )
