"""Samples on their way into a fit: tables, chunks and passes over them, folds, distinct samples."""

from __future__ import annotations

from ksos.data.chunk_scores import LogDensity, MeanScore, written
from ksos.data.columns import KINDS, Learned, as_table, learn, learn_target
from ksos.data.csv_files import LONGEST_LINE, cell_error, excerpt
from ksos.data.kernel_sums import KernelSums
from ksos.data.passes import (
    Checks,
    Gathered,
    Passes,
    fit_few,
    forget,
    remember,
    require_own_weights,
)
from ksos.data.samples import (
    FEW_SAMPLES,
    Fold,
    Split,
    as_folds,
    check_folds,
    distinct_samples,
    held_out_rows,
    held_out_weights,
    mean_score,
    random_folds,
    row_splits,
    some_of,
)
from ksos.data.sources import Chunk, Chunks, as_source, chunks, is_dask, is_source
from ksos.data.survey import Moments, Part, Survey, row_hashes
from ksos.data.tables import (
    Stream,
    Table,
    TableOptions,
    find_columns,
    open_table,
    option,
    read_table,
    require_different,
)

__all__ = [
    "FEW_SAMPLES",
    "KINDS",
    "LONGEST_LINE",
    "Checks",
    "Chunk",
    "Chunks",
    "Fold",
    "Gathered",
    "KernelSums",
    "Learned",
    "LogDensity",
    "MeanScore",
    "Moments",
    "Part",
    "Passes",
    "Split",
    "Stream",
    "Survey",
    "Table",
    "TableOptions",
    "as_folds",
    "as_source",
    "as_table",
    "cell_error",
    "check_folds",
    "chunks",
    "distinct_samples",
    "excerpt",
    "find_columns",
    "fit_few",
    "forget",
    "held_out_rows",
    "held_out_weights",
    "is_dask",
    "is_source",
    "learn",
    "learn_target",
    "mean_score",
    "open_table",
    "option",
    "random_folds",
    "read_table",
    "remember",
    "require_different",
    "require_own_weights",
    "row_hashes",
    "row_splits",
    "some_of",
    "written",
]
