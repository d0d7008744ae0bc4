"""Densities and estimators in the interfaces of other libraries. Nothing of theirs is imported
before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.adapters.for_sklearn import QuantileView, neg_crps
    from ksos.adapters.for_skpro import (
        KernelSoSDistFitter,
        KernelSoSDistribution,
        KernelSoSProbaRegressor,
    )

__all__ = [
    "KernelSoSDistFitter",
    "KernelSoSDistribution",
    "KernelSoSProbaRegressor",
    "QuantileView",
    "neg_crps",
]

_skpro = ("KernelSoSDistFitter", "KernelSoSDistribution", "KernelSoSProbaRegressor")
_homes = {
    "ksos.adapters.for_skpro": _skpro,
    "ksos.adapters.for_sklearn": ("QuantileView", "neg_crps"),
}
__getattr__, __dir__ = _later(
    globals(), {name: home for home, names in _homes.items() for name in names}
)
