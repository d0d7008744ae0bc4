"""Explore a table in the browser: move the parameters of a fit and see the density follow. The page
is served to this machine alone.
"""

from __future__ import annotations

import argparse
from typing import Any

from ksos.cli import values
from ksos.cli.console import DONE, Console
from ksos.cli.reading import add_table_arguments, table_options
from ksos.data import TableOptions, read_table
from ksos.explorer import explore

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos explore`` understands."""
    parser.add_argument(
        "--port",
        type=values.whole(0, 65_535),
        default=0,
        help="the port of the page (default: a free one)",
    )
    parser.add_argument(
        "--no-browser", action="store_true", help="print the address and leave the browser alone"
    )
    add_table_arguments(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos explore``, until Ctrl-C."""
    options = table_options(arguments)
    table = read_table(arguments.data, options, console.note)
    table.require_different_names()
    told: dict[str, Any] = {
        "sample_weight": table.weights,
        "feature_names": table.names,
        "how_to_read": _reading(arguments.data, options),
    }
    with explore(table.points, port=arguments.port, open_browser=False, **told) as page:
        console.result([page.url])
        console.note("the page is served until Ctrl-C")
        if not arguments.no_browser and not page.open():
            console.note("there is no browser to open; copy the address into one")
        try:
            page.wait()
        except KeyboardInterrupt:
            return DONE
    return DONE


def _reading(path: str, options: TableOptions) -> str:
    """The lines of Python that read the table in the same way."""
    usual = vars(TableOptions())
    given = [f"{name}={v!r}" for name, v in vars(options).items() if v != usual[name]]
    how = f", TableOptions({', '.join(given)})" if given else ""
    lines = (
        f"from ksos.data import {'TableOptions, ' if given else ''}read_table",
        "",
        f"table = read_table({path!r}{how})",
        "X, sample_weight = table.points, table.weights",
    )
    return "\n".join(lines)
