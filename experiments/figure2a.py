"""Figure 2 (a): the effect of the regularisation λ on the density fitted to two moons.

Usage: python experiments/figure2a.py [folder]
"""

import sys
from pathlib import Path

from ksos.reproduce import run

run(["figure2a"], Path(sys.argv[1] if len(sys.argv) > 1 else "figures"), quick=False, report=print)
