"""Time the solvers side by side with the paper's algorithm and with CVXPY, on one thread, and write
the numbers and a figure.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path

import contest
from contest import METHODS, Row, plot, problem, report
from ksos.plotting import require_matplotlib

__all__ = ["main"]


def _parser() -> argparse.ArgumentParser:
    sizes, quick, dimensions = (
        " ".join(map(str, numbers))
        for numbers in (problem.SIZES, problem.QUICK_SIZES, problem.DIMENSIONS)
    )
    bandwidths = ", ".join(
        f"{' '.join(f'{sigma:g}' for sigma in some)} for d={d}"
        for d, some in problem.BANDWIDTHS.items()
    )
    parser = argparse.ArgumentParser(prog="solvers.py", description=__doc__)
    add = parser.add_argument
    add(
        "--sizes",
        nargs="+",
        type=int,
        metavar="M",
        help=f"numbers of support points, each at least 2 (default: {sizes})",
    )
    add(
        "--dimensions",
        nargs="+",
        type=int,
        metavar="D",
        help=f"2: two moons; others: normal points (default: {dimensions})",
    )
    add("--bandwidths", nargs="+", type=float, metavar="SIGMA", help=f"default: {bandwidths}")
    add(
        "--methods",
        nargs="+",
        choices=list(METHODS),
        metavar="NAME",
        help=f"default: all of {', '.join(METHODS)}",
    )
    add(
        "--limit",
        type=float,
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
        type=Path,
        metavar="DIR",
        help="the folder for the files, created if needed (default: %(default)s)",
    )
    add(
        "--json",
        action="store_true",
        help="one JSON object on the standard output instead of the tables",
    )
    return parser


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    arguments = parser.parse_args(words)
    quick = arguments.quick
    arguments.sizes = arguments.sizes or (problem.QUICK_SIZES if quick else problem.SIZES)
    arguments.dimensions = arguments.dimensions or ([2] if quick else problem.DIMENSIONS)
    arguments.bandwidths = arguments.bandwidths or ([1.0] if quick else None)
    arguments.methods = arguments.methods or (contest.QUICK if quick else list(METHODS))
    arguments.limit = arguments.limit or (3.0 if quick else 120.0)
    if min(arguments.sizes) < 2 or min(arguments.dimensions) < 1:
        parser.error("--sizes expects numbers of at least 2, --dimensions of at least 1")
    if not all(value > 0.0 for value in [arguments.limit, *(arguments.bandwidths or ())]):
        parser.error("--limit and --bandwidths expect positive numbers")
    if arguments.output.is_file():
        parser.error(f"{arguments.output} is a file; --output expects a folder")
    return arguments


def main(words: Sequence[str] | None = None) -> int:
    """Run the contest: a line on stderr as each method ends, then the tables, then the files."""
    arguments = _arguments(words)
    require_matplotlib()  # before hours of work, not after
    settings = contest.grid(arguments.sizes, arguments.dimensions, arguments.bandwidths)
    arguments.output.mkdir(parents=True, exist_ok=True)
    total, done = len(settings) * len(arguments.methods), count(1)

    def progress(row: Row, f_star: float | None) -> None:
        if sys.stderr.isatty():
            line = f"{next(done)} of {total}: {row.setting.name}: {row.method}: {row.status}"
            print(line, file=sys.stderr)

    rows = contest.run_all(settings, arguments.methods, arguments.limit, progress, arguments.clock)
    files = [
        report.write_json(rows, arguments.output / "benchmark.json", arguments.clock),
        plot.draw(rows, arguments.output / "benchmark.png"),
    ]
    if arguments.json:
        print(json.dumps(report.as_dict(rows, arguments.clock)))
    else:
        lines = [*report.headline(arguments.clock), *report.tables(rows), "", *map(str, files)]
        print("\n".join(lines))
    return 0
