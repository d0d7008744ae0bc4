"""A kernel or a measure as JSON can hold it."""

from __future__ import annotations

from typing import Any

__all__ = ["described"]


def described(part: Any, d: int) -> dict[str, Any]:
    """The name and the parameters of a kernel or a measure; of an array larger than one number per feature only the shape.

    >>> from ksos.measures import Box, Discrete
    >>> described(Box([0.0], [1.0]), 1)
    {'name': 'box', 'low': [0.0], 'high': [1.0]}
    >>> described(Discrete([[0.0], [1.0]]), 1)
    {'name': 'discrete', 'points': {'shape': [2, 1]}, 'weights': {'shape': [2]}}
    """
    import numpy as np

    shown: dict[str, Any] = {"name": part.name}
    for name, value in part.parameters().items():
        shape = np.shape(value)
        shown[name] = np.asarray(value).tolist() if np.prod(shape) <= d else {"shape": list(shape)}
    return shown
