"""Time the solvers side by side with the paper's algorithm and with CVXPY, on one thread, and write
the numbers and a picture.
"""

from __future__ import annotations

import argparse
from itertools import count

from ksos import bench
from ksos.bench import CONTESTANTS, Row, plot, problem, report
from ksos.cli import values
from ksos.cli.console import Console, require_folder
from ksos.plotting.canvas import require_matplotlib

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos bench`` understands."""
    sizes, quick, dimensions = (
        " ".join(map(str, numbers))
        for numbers in (problem.SIZES, problem.QUICK_SIZES, problem.DIMENSIONS)
    )
    bandwidths = ", ".join(
        f"{' '.join(f'{sigma:g}' for sigma in some)} for d={d}"
        for d, some in problem.BANDWIDTHS.items()
    )
    add = parser.add_argument
    add(
        "--sizes",
        nargs="+",
        type=values.whole(2),
        metavar="M",
        help=f"numbers of support points (default: {sizes})",
    )
    add(
        "--dimensions",
        nargs="+",
        type=values.whole(1),
        metavar="D",
        help=f"2: two moons; others: normal points (default: {dimensions})",
    )
    add(
        "--bandwidths",
        nargs="+",
        type=values.positive,
        metavar="SIGMA",
        help=f"default: {bandwidths}",
    )
    add(
        "--contestants",
        nargs="+",
        choices=list(CONTESTANTS),
        metavar="NAME",
        help=f"default: all of {', '.join(CONTESTANTS)}",
    )
    add(
        "--limit",
        type=values.positive,
        metavar="SECONDS",
        help="the most one run may take (default: 120; with --quick, 3)",
    )
    add(
        "--clock",
        choices=["wall", "cpu"],
        default="wall",
        help="cpu: for a busy machine (default: %(default)s)",
    )
    add(
        "--quick",
        action="store_true",
        help=(
            f"a preview within a minute: sizes {quick}, d=2, sigma=1, and of CVXPY the whitened"
            " form only"
        ),
    )
    add(
        "--output",
        default="benchmark",
        metavar="DIR",
        help="the folder for the files, created if needed (default: %(default)s)",
    )
    add(
        "--json",
        action="store_true",
        help="one JSON object on the standard output instead of the tables",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos bench``: a line as each contestant ends (on a terminal), then the tables,
    then the files.
    """
    output = require_folder(arguments.output)
    require_matplotlib()  # before hours of work, not after
    quick = arguments.quick
    sizes = arguments.sizes or (problem.QUICK_SIZES if quick else problem.SIZES)
    dimensions = arguments.dimensions or ([2] if quick else problem.DIMENSIONS)
    settings = bench.grid(sizes, dimensions, arguments.bandwidths or ([1.0] if quick else None))
    names = arguments.contestants or (bench.QUICK if quick else list(bench.CONTESTANTS))
    limit = arguments.limit or (3.0 if quick else 120.0)
    output.mkdir(parents=True, exist_ok=True)
    total, done = len(settings) * len(names), count(1)

    def progress(row: Row, f_star: float | None) -> None:
        console.status(
            f"{next(done)} of {total}: {row.setting.name}: {row.contestant}: {row.status}"
        )

    rows = bench.race(settings, names, limit, progress, arguments.clock)
    files = [
        report.write_json(rows, output / "benchmark.json", arguments.clock),
        plot.draw(rows, output / "benchmark.png"),
    ]
    lines = [*report.headline(arguments.clock), *report.tables(rows), "", *map(str, files)]
    return console.answer(
        arguments.json,
        {**report.as_dict(rows, arguments.clock), "files": [str(file) for file in files]},
        lines,
    )
