"""The solvers side by side with the paper's algorithm and CVXPY: python benchmarks/solvers.py
[--quick] [--sizes 50 100] (see --help).
"""

from __future__ import annotations

import sys

from contest.app import main

if __name__ == "__main__":
    sys.exit(main())
