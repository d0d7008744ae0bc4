"""``ksos plot``: a saved density as a figure; ``ksos explore``: the page in the browser."""

import argparse
import io
import os
from contextlib import suppress
from typing import Any

from ksos import explorer
from ksos.cli import values
from ksos.cli.console import DONE, Console, UsageError, require_writable
from ksos.cli.options import (
    MODEL,
    READING,
    VIEW,
    WEIGHTS,
    data_argument,
    open_samples,
    reading,
    shortened,
    table_options,
    take_view,
)
from ksos.data import Stream, read_table
from ksos.density import TableDensity, load
from ksos.ground import Run, replace_whole, require_different
from ksos.plotting import (
    MOST_PAIRED,
    DensityDisplay,
    TableDisplay,
    figure_size,
    require_matplotlib,
    sheet,
    table_size,
)

# without a date in it, the same density gives the same bytes on any day
_METADATA: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
_COARSEST = 20  # pixels per inch: less shows nothing
_FINEST = 1200  # dots per inch: more than printers have, and a page is half a gigabyte of pixels
PLOT = [
    MODEL,
    values.argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help=f"the figure, ending in {', '.join(_METADATA)}",
    ),
    values.argument(
        "--data",
        metavar="DATA",
        help="a table of samples to show, with the columns of the model; - is CSV"
        " from the standard input",
    ),
    values.argument(
        "--regions",
        type=lambda word: [] if word == "none" else values.probabilities(word),
        metavar="LIST",
        help="draw the smallest regions with these probabilities, separated by commas, or none"
        " (default: 0.5,0.9)",
    ),
    values.argument(
        "--no-cdf",
        action="store_true",
        help="omit the distribution function (it is drawn for one column)",
    ),
    values.argument(
        "--no-support",
        action="store_true",
        help="omit the support points (they are drawn for one and two columns)",
    ),
    values.argument(
        "--dpi",
        type=values.whole(_COARSEST, _FINEST),
        # sharp on a screen, and small
        default=150,
        help="pixels per inch of a png (default: %(default)s)",
    ),
    *VIEW,
    *READING,
    WEIGHTS,
]


def plot(arguments: argparse.Namespace, console: Console) -> int:
    """Draw a saved density: a curve for one column, contours for two, a grid of marginals
    for more; with the data if they are given.

    examples:
      ksos plot cars.ksos -o cars.png
      ksos plot cars.ksos --data cars.csv --drop-missing -o cars.pdf
      ksos plot cars.ksos --given hp=100 --features mpg -o mpg.svg
    """
    output, asked = arguments.output, list(reading(arguments))
    kind = os.path.splitext(output)[1].lower().removeprefix(".")
    if kind not in _METADATA:
        raise UsageError(f"-o must name a file that ends in {', '.join(_METADATA)}; got {output!r}")
    if arguments.data is not None and arguments.given:
        raise UsageError(
            "--data are samples of the whole density, not of a conditional one; drop --data or"
            " --given"
        )
    if arguments.data is None and asked:
        raise UsageError(
            f"--{asked[0].replace('_', '-')} is for reading a table, and there is none; name it"
            " with --data"
        )
    require_matplotlib()
    require_writable(output)
    density = load(arguments.model)
    X, names = None, density.feature_names
    view = take_view(density, arguments)
    k, is_table = len(view.features), isinstance(view.density, TableDensity)
    if arguments.data is not None:
        table = open_samples(arguments, console, density)
        table = table.read(console.note) if isinstance(table, Stream) else table
        names = table.names or names
        X = table.take(view.features).as_frame() if is_table else table.points[:, view.features]
        X = X if table.weights is None else X[table.weights > 0.0]
    if k > MOST_PAIRED:
        raise ValueError(
            f"the density has {k} columns, of which a figure shows at most {MOST_PAIRED}; choose"
            " some with --features"
        )
    Run.current().tell("drawing ...")
    # a dollar in a name is no mathematics
    labels = [
        names[feature].replace("$", r"\$") if names else f"$x_{{{feature + 1}}}$"
        for feature in view.features
    ]
    stream = io.BytesIO()
    with sheet(*(table_size(k) if is_table else figure_size(k))) as figure:
        figure.set_layout_engine("constrained")
        if is_table:
            TableDisplay.from_density(view.density, X, ax=figure.add_subplot())
        else:
            DensityDisplay.from_density(
                # samples and labels are in order
                view.density.with_feature_names(None),
                X,
                feature_names=labels,
                regions=arguments.regions,
                ax=figure.add_subplot(),
                cdf=not arguments.no_cdf,
                colorbar=k == 2,
                support=False if arguments.no_support else None,
            )
        figure.savefig(stream, format=kind, dpi=arguments.dpi, metadata=_METADATA[kind])
    replace_whole(output, [stream.getvalue()])
    n = None if X is None else X.shape[0]
    value = {"output": output, "n_samples": n, **view.described()}
    drawn = ", ".join(
        [shortened(view.names), *([] if n is None else [f"{n:,} row{'s' * (n != 1)}"])]
    )
    return console.answer(arguments.json, value, [f"written: {output} ({drawn})"])


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
    require_different(table.names or (), f"{table.source} has columns")
    mixed = table.is_mixed
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
