"""Draw the figures of the paper as PNG and PDF, with their numbers as CSV."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from ksos.cli.console import Console, require_folder

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos reproduce`` understands."""
    from ksos.reproduce import FIGURES

    add = parser.add_argument
    add(
        "--figure",
        action="append",
        choices=list(FIGURES),
        metavar="NAME",
        help=f"{', '.join(FIGURES)}; may be repeated (default: all)",
    )
    add(
        "--output",
        default="figures",
        metavar="DIR",
        help="the folder for the files, created if needed (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help="smaller problems: a preview in seconds instead of the paper's sizes",
    )
    add("--json", action="store_true", help="one JSON object on the standard output")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos reproduce``: a line with the certificate of every fit as it ends, then the
    files; as JSON, the files alone.
    """
    from ksos import reproduce

    output = require_folder(arguments.output)
    files = [
        str(file)
        for file in reproduce.run(
            arguments.figure, output, arguments.quick, _reporter(console, arguments.json)
        )
    ]
    return console.answer(arguments.json, {"files": files}, files)


def _reporter(console: Console, json: bool) -> Callable[[str], None]:
    """Where the lines of the figures go: to stdout; with ``--json``, to stderr if that is a
    terminal.
    """
    if not json:
        return lambda line: console.result([line])
    return console.note if console.watched else lambda line: None
