"""Densities and estimators in the interfaces of other libraries. Nothing of theirs is imported
before it is used.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ksos.ground.lazy import later as _later

if TYPE_CHECKING:  # imported on first use, see below
    from ksos.adapters.for_skpro import (
        KernelSoSDistFitter,
        KernelSoSDistribution,
        KernelSoSProbaRegressor,
    )

__all__ = ["KernelSoSDistFitter", "KernelSoSDistribution", "KernelSoSProbaRegressor"]

_found, __dir__ = _later(globals(), {name: "ksos.adapters.for_skpro" for name in __all__})


def __getattr__(name: str) -> Any:
    if name in __all__ and find_spec("skpro") is None:
        raise ImportError(
            f'{name} needs skpro, which is not installed: pip install "kernel-sos[skpro]"'
        )
    return _found(name)
