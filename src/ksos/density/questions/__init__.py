"""Questions about a sum of terms: each is written once, in the file that is named after it."""

from __future__ import annotations

from types import FunctionType
from typing import TypeVar

import numpy as np

__all__ = ["without_underflow"]

T = TypeVar("T")


def without_underflow(cls: type[T]) -> type[T]:
    """The class with public methods inside of which an underflow is 0, as kernels far away are."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, np.errstate(under="ignore")(method))
    return cls
