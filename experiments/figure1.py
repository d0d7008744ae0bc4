"""Figure 1: the RKHS-norm relaxation of an MMD ball against the ball itself.

Usage: python experiments/figure1.py [folder]
"""

import sys
from pathlib import Path

from ksos.reproduce import run

run(["figure1"], Path(sys.argv[1] if len(sys.argv) > 1 else "figures"), quick=False, report=print)
