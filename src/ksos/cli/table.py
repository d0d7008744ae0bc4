"""Read a table of numbers, CSV or NPY, and refuse everything else in one line that says where it is."""

from __future__ import annotations

import os
import sys

from ksos.cli.csv_table import read_csv
from ksos.cli.errors import InputError, UsageError
from ksos.cli.npy_table import NPY_MAGIC, read_npy
from ksos.cli.table_types import Table, TableOptions

__all__ = ["read_table"]


def read_table(path: str, options: TableOptions | None = None) -> Table:
    """The table in the file ``path``; "-" is CSV from the standard input."""
    options = options or TableOptions()
    if path == "-":
        if sys.stdin is None:
            raise InputError("<stdin>: there is no standard input to read from")
        return read_csv(sys.stdin.buffer, "<stdin>", options)
    if os.path.isdir(path):
        raise InputError(f"{path} is a folder; a CSV or NPY file was expected")
    with open(path, "rb") as stream:
        if not (stream.peek(len(NPY_MAGIC)).startswith(NPY_MAGIC) or path.lower().endswith(".npy")):
            return read_csv(stream, path, options)
    if options.header is not None or options.delimiter is not None:
        raise UsageError(f"--header, --no-header and --delimiter are for CSV, but {path} is an NPY file")
    return read_npy(path, options)
