"""Questions about a sum of terms: each is written once, in the file that is named after it."""

from __future__ import annotations

from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from ksos.ground.threads import spare_threads

__all__ = ["without_underflow"]

T = TypeVar("T")


def without_underflow(cls: type[T]) -> type[T]:
    """The class with public methods inside of which an underflow is 0, as kernels far away are, and
    which leave the processors alone that other programs use.
    """
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, _calm(method))
    return cls


def _calm(method: Any) -> Any:
    @wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        with np.errstate(under="ignore"), spare_threads():
            return method(*given, **named)

    return call
