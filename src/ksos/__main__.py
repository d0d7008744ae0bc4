"""``python -m ksos``, the same as ``ksos``."""

from __future__ import annotations

import sys

from ksos.cli import main

sys.exit(main())
