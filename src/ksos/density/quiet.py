"""Questions that do not mind underflow: kernels vanish far away, whatever the caller has told NumPy
to make of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

__all__ = ["without_underflow"]

T = TypeVar("T", bound=type)


def without_underflow(cls: T) -> T:
    """The class with public methods inside of which an underflow is 0."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _quiet(method))
    return cls


def _quiet(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def asked(*arguments: Any, **options: Any) -> Any:
        with np.errstate(under="ignore"):
            return method(*arguments, **options)

    return asked
