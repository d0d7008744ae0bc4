"""The density theorem: the best SoS density approaches a Dirac and a uniform distribution in MMD.

Usage: python experiments/density_theorem.py [folder]
"""

import sys
from pathlib import Path

from ksos.reproduce import run

run(
    ["density_theorem"],
    Path(sys.argv[1] if len(sys.argv) > 1 else "figures"),
    quick=False,
    report=print,
)
