"""The option ``--quick`` of every benchmark: a small run of seconds, which the tests make."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["parse", "parser_of"]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows the description of the script as it is laid out."""
    return argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def parse(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, **quick: Any
) -> argparse.Namespace:
    """The arguments; with ``--quick`` among them, the values ``quick`` are the defaults."""
    parser.add_argument("--quick", action="store_true", help="a small run of seconds")
    if "--quick" in (sys.argv[1:] if words is None else words):
        parser.set_defaults(**quick)
    return parser.parse_args(words)
