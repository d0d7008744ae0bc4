"""Time the solvers side by side with the paper's algorithm and with CVXPY, on one thread, and write the numbers and a picture."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ksos.cli.console import Console
from ksos.cli.errors import DONE, InputError
from ksos.cli.values import counts, names, numbers

if TYPE_CHECKING:
    from ksos.bench import Row

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos bench`` understands."""
