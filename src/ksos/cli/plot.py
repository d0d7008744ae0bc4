"""Draw a saved density: a curve for one feature, contours for two, a grid of marginals for more;
with the data if they are given.
"""

from __future__ import annotations

import argparse
import io
import os
from typing import Any

import numpy as np

from ksos.cli import values
from ksos.cli.console import Console, UsageError, require_writable
from ksos.cli.reading import READING, add_reading_options, open_samples
from ksos.cli.view import View, add_view_options, take_view
from ksos.data import Stream
from ksos.density.io import load
from ksos.ground.files import replace_whole
from ksos.plotting import DensityDisplay
from ksos.plotting.canvas import require_matplotlib, sheet
from ksos.plotting.density import MOST_PAIRED, figure_size

__all__ = ["add_arguments", "run"]

_METADATA: dict[str, dict[str, Any]] = {
    "png": {},
    "pdf": {"CreationDate": None},
    "svg": {"Date": None},
}
_DPI = (20, 1200)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos plot`` understands."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a file written by ksos fit")
    add(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help=f"the picture, ending in {', '.join(_METADATA)}",
    )
    text = (
        "a CSV or NPY file of samples to show, with one column for each feature of the model; - is"
        " CSV from the standard input"
    )
    add("--data", metavar="DATA", help=text)
    text = (
        "draw the smallest regions with these probabilities, separated by commas, or none (default:"
        " 0.5,0.9)"
    )
    add(
        "--regions",
        type=lambda word: [] if word == "none" else values.probabilities(word),
        metavar="LIST",
        help=text,
    )
    add(
        "--no-cdf",
        action="store_true",
        help="leave the distribution function out (it is drawn for one feature)",
    )
    add(
        "--no-support",
        action="store_true",
        help="leave the support points out (they are drawn for one and two features)",
    )
    add(
        "--dpi",
        type=values.count,
        default=150,
        help="pixels per inch of a png (default: %(default)s)",
    )
    add("--json", action="store_true", help="one JSON object on the standard output")
    add_view_options(parser)
    add_reading_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos plot``."""
    kind = os.path.splitext(arguments.output)[1].lower().removeprefix(".")
    if kind not in _METADATA:
        raise UsageError(
            f"-o must name a file that ends in {', '.join(_METADATA)}; got {arguments.output!r}"
        )
    if arguments.data is not None and arguments.given:
        raise UsageError(
            "--data are samples of the whole density, not of a conditional one; leave out --data or"
            " --given"
        )
    asked = [
        name
        for name in READING
        if vars(arguments)[name] is not (False if name in ("clean", "drop_missing") else None)
    ]
    if arguments.data is None and asked:
        raise UsageError(
            f"--{asked[0].replace('_', '-')} says how to read a table, and there is none; name it"
            " with --data"
        )
    require_matplotlib()
    require_writable(arguments.output)
    if not _DPI[0] <= arguments.dpi <= _DPI[1]:
        raise ValueError(f"--dpi must be from {_DPI[0]} to {_DPI[1]}; got {arguments.dpi}")
    density = load(arguments.model)
    X, names = None, density.feature_names
    if arguments.data is not None:
        table = open_samples(arguments, console, density)
        table = table.read(console.note) if isinstance(table, Stream) else table
        X, names = (
            (table.points if table.weights is None else table.points[table.weights > 0.0]),
            table.names or names,
        )
    view = take_view(density, arguments)
    if (k := len(view.features)) > MOST_PAIRED:
        raise ValueError(
            f"the density has {k} features, of which a picture shows at most {MOST_PAIRED}; choose"
            " some with --features"
        )
    console.status("drawing ...")
    replace_whole(arguments.output, [_picture(view, X, names, arguments, kind)])
    value = {
        "output": arguments.output,
        "n_samples": None if X is None else X.shape[0],
        **view.described(),
    }
    return console.answer(arguments.json, value, [])


def _picture(
    view: View,
    X: np.ndarray | None,
    names: tuple[str, ...] | None,
    arguments: argparse.Namespace,
    kind: str,
) -> bytes:
    """The bytes of the picture: the same density gives the same ones on any day."""
    import matplotlib

    features = list(view.features)
    samples = None if X is None else X[:, features]
    # a dollar in a name is no mathematics
    labels = [
        names[feature].replace("$", r"\$") if names else f"$x_{{{feature + 1}}}$"
        for feature in features
    ]
    width, height = figure_size(len(features))
    stream = io.BytesIO()
    with sheet(width, height) as figure, matplotlib.rc_context({"svg.hashsalt": "ksos"}):
        figure.set_layout_engine("constrained")
        options: dict[str, Any] = {
            "cdf": not arguments.no_cdf,
            "colorbar": len(features) == 2,
            "regions": arguments.regions,
        }
        options["support"] = False if arguments.no_support else None
        density = view.density.with_feature_names(None)  # samples and labels are in order
        DensityDisplay.from_density(
            density, samples, feature_names=labels, ax=figure.add_subplot(), **options
        )
        figure.savefig(stream, format=kind, dpi=arguments.dpi, metadata=_METADATA[kind])
    return stream.getvalue()
