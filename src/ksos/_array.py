"""The only file that knows array backends.

Everything numerical asks :func:`namespace` for the array-API namespace of its arguments and computes with that; what the standard
lacks (error functions, Bessel functions, silencing of floating-point warnings) lives here and nowhere else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.special
from array_api_compat import array_namespace, is_numpy_namespace, is_torch_namespace

Array = Any

__all__ = ["Array", "like", "namespace", "quiet", "special", "to_numpy"]


def namespace(*arrays: Array) -> Any:
    """The array-API namespace shared by ``arrays``."""
    return array_namespace(*arrays)


def like(value: Any, reference: Array) -> Array:
    """``value`` as a float64 array of the same backend and device as ``reference``."""
    xp = namespace(reference)
    if is_numpy_namespace(xp):
        return np.asarray(value, dtype=np.float64)
    return xp.asarray(to_numpy(value), dtype=xp.float64, device=reference.device)


def to_numpy(value: Any) -> np.ndarray:
    """``value`` as a NumPy array on the host, without a copy where that is possible."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def special(name: str, *arguments: Array) -> Array:
    """A special function that the array-API standard lacks, by its SciPy name (``erf``, ``erfc``, ``erfcx``, ``kve``, …)."""
    xp = namespace(*[a for a in arguments if hasattr(a, "shape")])
    if is_torch_namespace(xp):
        import torch

        native = getattr(torch.special, name, None)
        if native is not None:
            return native(*arguments)
    on_host = getattr(scipy.special, name)(*[to_numpy(a) if hasattr(a, "shape") else a for a in arguments])
    return on_host if is_numpy_namespace(xp) else like(on_host, arguments[-1])


def quiet() -> Any:
    """A context in which overflow to infinity and log(0) are silent: used where both are the right answer."""
    return np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore")
