"""``ksos explore``: the page in the browser."""

import argparse
from contextlib import suppress

import numpy as np

from ksos import explorer
from ksos.cli import values
from ksos.cli.console import DONE, Console
from ksos.cli.options import READING, WEIGHTS, data_argument, reading, table_options
from ksos.data import read_table, require_different

EXPLORE = [
    data_argument(several=False),
    values.argument(
        "--port",
        type=values.whole(0, 65_535),
        # the system then takes a free one
        default=0,
        help="the port of the page (default: a free one)",
    ),
    values.argument(
        "--no-browser", action="store_true", help="print the address and leave the browser alone"
    ),
    *READING,
    WEIGHTS,
]


def explore(arguments: argparse.Namespace, console: Console) -> int:
    """Explore a table in the browser: move the parameters of a fit and see the density
    follow. The page is served to this machine alone.

    examples:
      ksos explore cars.csv --clean
      ksos explore cars.csv --columns hp,mpg --drop-missing
      ksos explore cars.csv --clean --no-browser --port 8000
    """
    options = table_options(arguments, any_kind=True)
    table = read_table(arguments.data, options, console.note)
    require_different(table.source, table.names or ())
    mixed = table.words is not None or bool(np.isnan(table.points).any())
    given = ", ".join(f"{name}={value!r}" for name, value in reading(arguments).items())
    how_to_read = (
        f"from ksos.data import TableOptions, read_table\n\n"
        f"table = read_table({arguments.data!r}, TableOptions({given}))\n"
        f"X, sample_weight = table.{'as_frame()' if mixed else 'points'}, table.weights"
    )
    with explorer.explore(
        table.as_frame() if mixed else table.points,
        port=arguments.port,
        open_browser=False,
        sample_weight=table.weights,
        feature_names=None if mixed else table.names,
        how_to_read=how_to_read,
    ) as page:
        console.answer(arguments.json, {"url": page.url}, [page.url])
        console.note("the page is served until Ctrl-C")
        if not arguments.no_browser and not page.open():
            console.note("there is no browser to open; copy the address into one")
        with suppress(KeyboardInterrupt):
            page.wait()
    return DONE
