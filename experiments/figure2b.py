"""Figure 2 (b): the effect of the bandwidth σ on the density fitted to two moons.

Usage: python experiments/figure2b.py [folder]
"""

import sys
from pathlib import Path

from ksos.reproduce import run

run(["figure2b"], Path(sys.argv[1] if len(sys.argv) > 1 else "figures"), quick=False, report=print)
