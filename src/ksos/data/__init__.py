"""Samples on their way into a fit: distinct ones, folds, subsamples, and passes over chunks."""

from ksos.data.device_rows import device_hashes, surveyed
from ksos.data.moments import Moments
from ksos.data.passes import Passes
from ksos.data.samples import random_folds
from ksos.data.subsample import Part, Survey, row_hashes

__all__ = [
    "Moments",
    "Part",
    "Passes",
    "Survey",
    "device_hashes",
    "random_folds",
    "row_hashes",
    "surveyed",
]
