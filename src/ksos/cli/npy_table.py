"""Numbers from an NPY file; nothing in it is executed, and a forged shape allocates nothing."""

from __future__ import annotations

from ksos.cli.columns import select_columns
from ksos.cli.errors import InputError, cell_error
from ksos.cli.table_types import Table, TableOptions

__all__ = ["NPY_MAGIC", "read_npy"]

NPY_MAGIC = b"\x93NUMPY"


def read_npy(path: str, options: TableOptions) -> Table:
    """The chosen columns of the matrix in the NPY file ``path``."""
    import numpy as np

    try:
        # a mapped file has the size it claims, or mapping fails: the shape in the header is not trusted with an allocation
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # a damaged header ends in whatever its parser meets first
        raise InputError(f"{path} is not a readable NPY file: {error}") from None
    if not isinstance(stored, np.ndarray) or stored.dtype.kind not in "fiub":
        raise InputError(f"{path} holds {getattr(stored, 'dtype', 'an archive')}, but real numbers were expected")
    if stored.ndim != 2:
        raise InputError(f"{path} holds an array of shape {stored.shape}, but rows and columns were expected; reshape it to (n, d)")
    if 0 in stored.shape:
        raise cell_error(path, 1, 1, f"the array of shape {stored.shape} is empty; rows of numbers were expected")
    chosen = select_columns(path, stored.shape[1], None, options.columns, options.weights)
    matrix = np.array(stored[:, chosen.all], dtype=np.float64, order="C")
    finite = np.isfinite(matrix)
    if not finite.all():
        row, place = np.argwhere(~finite)[0]
        raise cell_error(path, int(row) + 1, chosen.all[place] + 1, f"{matrix[row, place]} is not finite; remove the row or fill the cell")
    if chosen.weights is None:
        return Table(path, matrix, None, None)
    return Table(path, np.ascontiguousarray(matrix[:, :-1]), None, matrix[:, -1].copy())
