"""Densities and estimators in the interfaces of other libraries. Nothing of theirs is imported
before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.adapters.for_skpro import (
        KernelSoSDistFitter,
        KernelSoSDistribution,
        KernelSoSProbaRegressor,
    )

__all__ = ["KernelSoSDistFitter", "KernelSoSDistribution", "KernelSoSProbaRegressor"]

__getattr__, __dir__ = _later(globals(), {name: "ksos.adapters.for_skpro" for name in __all__})
