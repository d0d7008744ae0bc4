"""Samples on their way into a fit: distinct ones, folds, subsamples, and passes over chunks."""

from ksos.data.csv_files import cell_error, excerpt
from ksos.data.device_rows import device_hashes, surveyed
from ksos.data.moments import Moments
from ksos.data.passes import Passes
from ksos.data.samples import random_folds
from ksos.data.sources import chunks
from ksos.data.subsample import Part, Survey, row_hashes
from ksos.data.tables import (
    Stream,
    Table,
    TableOptions,
    find_columns,
    open_table,
    option,
    read_table,
)

__all__ = [
    "Moments",
    "Part",
    "Passes",
    "Stream",
    "Survey",
    "Table",
    "TableOptions",
    "cell_error",
    "chunks",
    "device_hashes",
    "excerpt",
    "find_columns",
    "open_table",
    "option",
    "random_folds",
    "read_table",
    "row_hashes",
    "surveyed",
]
