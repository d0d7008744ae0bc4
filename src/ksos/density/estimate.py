"""Estimate: a number with its error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self


class Estimate(float):
    """A float with an estimate of its error beside it; everything that takes a float takes it.

    Attributes
    ----------
    error : float
        Estimated absolute error: of a closed form or a sum 0, or rounding where it is more than
        1e-11, of quadrature the sum of the differences between two rules, of sampling one standard
        error.
    method : str
        "closed form", "sum", "quadrature", "sampling" or "quasi-Monte Carlo".

    >>> value = Estimate(1.5, 1e-9, "quadrature")
    >>> value
    1.5 ± 1e-09 (quadrature)
    >>> value + 1, value.error
    (2.5, 1e-09)
    """

    error: float
    method: str

    def __new__(cls, value: float, error: float = 0.0, method: str = "closed form") -> Self:
        out = super().__new__(cls, value)
        out.error, out.method = float(error), method
        return out

    def __repr__(self) -> str:
        return f"{float(self)!r} ± {self.error:.2g} ({self.method})"

    def __format__(self, specification: str) -> str:
        return format(float(self), specification)

    def __reduce__(self) -> Any:
        return type(self), (float(self), self.error, self.method)


def coarsest(methods: Iterable[str]) -> str:
    """The word of the least exact of several methods."""
    order = ("closed form", "sum", "quadrature", "quasi-Monte Carlo", "sampling")
    return max(methods, key=order.index)
