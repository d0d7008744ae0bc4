"""python benchmarks/conditional [run | report] … (see --help): works from a source tree that is not installed."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# one thread per process, before NumPy is imported: the processes are the parallelism, and processor times compare
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"
here = Path(__file__).resolve().parent
sys.path[:0] = [str(here.parent), str(here.parents[1] / "src")]
sys.path = [entry for entry in sys.path if Path(entry or ".").resolve() != here]  # its modules belong to the package, not to everyone

from conditional.app import main  # noqa: E402 (the lines above make it importable)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
