"""The solvers side by side with the paper's algorithm and CVXPY: python benchmarks/solvers.py
[--quick] [--sizes 50 100] (see --help).

The same as ``ksos bench``, from a source tree that is not installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from ksos.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", *sys.argv[1:]]))
