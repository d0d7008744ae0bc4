"""What the commands of ``benchmarks/quality`` and ``benchmarks/conditional`` share: their start and
their options.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

__all__ = ["ROOT", "Command", "command", "finish", "launch", "matches", "parse_seeds"]

ROOT = Path(__file__).resolve().parents[1]


def launch(package: str) -> int:
    """Run ``main`` of the package's ``app`` from a source tree that is not installed."""
    # one thread per process, before NumPy is imported: the processes are the parallelism, and one
    # thread adds in one order
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = "1"
    own = ROOT / "benchmarks" / package
    sys.path[:0] = [str(own.parent), str(ROOT / "src")]
    sys.path = [
        entry for entry in sys.path if Path(entry or ".").resolve() != own
    ]  # its modules belong to the package, not to everyone
    main: Callable[[Sequence[str]], int] = import_module(f"{package}.app").main
    return main(sys.argv[1:])


class Command(NamedTuple):
    """The parser, and what a benchmark may add options to."""

    parser: argparse.ArgumentParser
    commands: argparse._SubParsersAction[argparse.ArgumentParser]
    run: argparse.ArgumentParser
    report: argparse.ArgumentParser


def command(
    package: str, description: str | None, contestants: Iterable[str], page: Path, patterns: str
) -> Command:
    """``run`` and ``report`` with the options that all have."""
    names, results = list(contestants), ROOT / "benchmarks" / "results" / f"{package}.jsonl"
    parser = argparse.ArgumentParser(prog=f"python benchmarks/{package}", description=description)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser(
        "run", help="measure; what is in the output file already is not measured again"
    )
    run.add_argument(
        "--output",
        type=Path,
        default=results,
        help="file of JSON lines to append to (default: %(default)s)",
    )
    run.add_argument(
        "--also",
        type=Path,
        nargs="*",
        default=[],
        help="other files whose records count as measured",
    )
    run.add_argument(
        "--minutes", type=float, default=60.0, help="stop after this time (default: %(default)g)"
    )
    run.add_argument(
        "--jobs",
        type=int,
        default=os.cpu_count() or 1,
        help="processes, one thread each (default: all cores)",
    )
    run.add_argument(
        "--cells", nargs="*", default=["*"], metavar="SET[/N]", help=f"patterns such as {patterns}"
    )
    run.add_argument("--seeds", default="0-9", help="such as 0-9 or 0,3,5 (default: %(default)s)")
    run.add_argument(
        "--contestants",
        nargs="*",
        choices=names,
        metavar="NAME",
        help=f"default: {' '.join(names)}",
    )
    report = commands.add_parser("report", help="write the page from records")
    report.add_argument(
        "records",
        type=Path,
        nargs="*",
        default=[results],
        help="files of JSON lines (default: that of `run`)",
    )
    report.add_argument("--page", type=Path, default=page, help="the page (default: %(default)s)")
    return Command(parser, commands, run, report)


def matches(name: str, n: int, patterns: Iterable[str]) -> bool:
    """Whether the cell (data set, n) is among those asked for."""
    return any(
        fnmatch.fnmatch(f"{name}/{n}", pattern if "/" in pattern else f"{pattern}/*")
        for pattern in patterns
    )


def finish(missing: int) -> int:
    """The exit code of ``run``: 3 where pieces are still missing."""
    if missing:
        print(
            f"time is over: {missing} pieces are still to be measured; the same command goes on"
            " from here"
        )
    return 3 if missing else 0


def parse_seeds(text: str) -> list[int]:
    """0-3,7 → 0 1 2 3 7."""
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        try:
            seeds = range(int(first), int(last or first) + 1)
            if not seeds:
                raise ValueError(part)
            out.extend(seeds)
        except ValueError:
            raise SystemExit(
                f"--seeds: a list such as 0-9 or 0,3,5 was expected; got {text!r}"
            ) from None
    return out
