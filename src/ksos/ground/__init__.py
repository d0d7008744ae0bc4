"""What everything stands on: arrays, memory, validation, names, files, and the run of a call."""

from __future__ import annotations

from ksos.ground.arrays import full_single_precision, inner, is_tensor, to_numpy, uniforms
from ksos.ground.files import read_state
from ksos.ground.memory import available_memory, group_memory, require_memory, resources
from ksos.ground.names import column_names, frame, matrix_of
from ksos.ground.pivoted_cholesky import choose_pivots, definite_root, thin_root
from ksos.ground.run import Convergence, Run, Steps, TimeUp, left_in_words
from ksos.ground.threads import MANY_ROWS, SMALL_MATRIX, few_threads, one_blas_thread
from ksos.ground.validation import as_points, as_vector, require_numbers

__all__ = [
    "MANY_ROWS",
    "SMALL_MATRIX",
    "Convergence",
    "Run",
    "Steps",
    "TimeUp",
    "as_points",
    "as_vector",
    "available_memory",
    "choose_pivots",
    "column_names",
    "definite_root",
    "few_threads",
    "frame",
    "full_single_precision",
    "group_memory",
    "inner",
    "is_tensor",
    "left_in_words",
    "matrix_of",
    "one_blas_thread",
    "read_state",
    "require_memory",
    "require_numbers",
    "resources",
    "thin_root",
    "to_numpy",
    "uniforms",
]
