"""Draw the figures of the paper as PNG and PDF, with their numbers as CSV."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from ksos.cli.console import Console
from ksos.cli.errors import DONE, InputError

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos reproduce`` understands."""
    with _drawing() as reproduce:
        figures = list(reproduce.FIGURES)
    parser.add_argument(
        "--figure", action="append", choices=figures, metavar="NAME", help=f"{', '.join(figures)}; may be repeated (default: all)"
    )
    parser.add_argument(
        "--output", default="figures", metavar="DIR", help="the folder for the files, created if needed (default: %(default)s)"
    )
    parser.add_argument("--quick", action="store_true", help="smaller problems: a preview in seconds instead of the paper's sizes")
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos reproduce``."""
    output = Path(arguments.output)
    if output.exists() and not output.is_dir():
        raise InputError(f"{output} is a file; --output expects a folder")
    with _drawing() as reproduce:
        files = [str(file) for file in reproduce.run(arguments.figure, output, arguments.quick, console.status)]
    if arguments.json:
        console.json({"files": files})
    else:
        console.result(files)
    return DONE


@contextlib.contextmanager
def _drawing() -> Iterator[ModuleType]:
    """The module that draws; where what it draws with is missing, an error that says how to get it."""
    try:
        from ksos import reproduce

        yield reproduce
    except ModuleNotFoundError as error:
        raise InputError(f"{error.name} is needed to draw figures, but is not installed; run: pip install 'ksos[plot]'") from None
