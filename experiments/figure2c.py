"""Figure 2 (c): the effect of the number of support points m on the density fitted to two moons.

Usage: python experiments/figure2c.py [folder]
"""

import sys
from pathlib import Path

from ksos.reproduce import run

run(["figure2c"], Path(sys.argv[1] if len(sys.argv) > 1 else "figures"), quick=False, report=print)
