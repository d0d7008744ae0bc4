"""Samples on their way into a fit: tables, chunks and passes over them, folds, distinct samples."""

from ksos.data.csv_files import LONGEST_LINE, cell_error, excerpt
from ksos.data.kernel_sums import KernelSums
from ksos.data.passes import Passes
from ksos.data.samples import random_folds
from ksos.data.sources import Chunk, Chunks, chunks
from ksos.data.survey import Moments, Part, Survey, row_hashes
from ksos.data.tables import (
    Stream,
    Table,
    TableOptions,
    find_columns,
    open_table,
    option,
    read_table,
)

__all__ = ["LONGEST_LINE", "Chunk", "Chunks", "KernelSums", "Moments", "Part", "Passes", "Stream"]
__all__ += ["Survey", "Table", "TableOptions", "cell_error", "chunks", "excerpt", "find_columns"]
__all__ += ["open_table", "option", "random_folds", "read_table", "row_hashes"]
