"""Exact sampling: by inversion of conditional distribution functions or by rejection, whichever is predicted to be faster."""

from ksos.density.sampling.choice import draw

__all__ = ["draw"]
