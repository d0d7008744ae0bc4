"""``python -m ksos``, the same as ``ksos``."""

from __future__ import annotations

import sys

from ksos.cli import main

if __name__ == "__main__":
    sys.exit(main())
