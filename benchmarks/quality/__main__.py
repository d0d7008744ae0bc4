"""python benchmarks/quality [run | report] … (see --help): works from a source tree that is not
installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from command import launch

if __name__ == "__main__":
    sys.exit(launch("quality"))
