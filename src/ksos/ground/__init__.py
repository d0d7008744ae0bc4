"""What everything stands on: arrays, memory, validation, names, files, and the run of a call."""

from __future__ import annotations

from ksos.ground.arrays import full_single_precision, is_tensor, to_numpy, uniforms
from ksos.ground.memory import available_memory, group_memory, resources
from ksos.ground.names import column_names, frame, matrix_of
from ksos.ground.pivoted_cholesky import choose_pivots, definite_root, thin_root
from ksos.ground.run import Convergence, Run, Steps, TimeUp, left_in_words
from ksos.ground.state import read_state
from ksos.ground.threads import MANY_ROWS, SMALL_MATRIX, few_threads, one_blas_thread
from ksos.ground.validation import as_points, as_vector, require_numbers

__all__ = ["MANY_ROWS", "SMALL_MATRIX", "few_threads", "one_blas_thread"]
__all__ += ["Convergence", "Run", "Steps", "TimeUp", "left_in_words"]
__all__ += ["as_points", "as_vector", "require_numbers"]
__all__ += ["available_memory", "group_memory", "resources"]
__all__ += ["choose_pivots", "definite_root", "thin_root"]
__all__ += ["column_names", "frame", "matrix_of", "read_state"]
__all__ += ["full_single_precision", "is_tensor", "to_numpy", "uniforms"]
