"""The command: ``run`` measures, ``report`` turns what was measured into the page, its tables and
its pictures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from command import ROOT, command, finish, matches, parse_seeds

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.million import measure_million
from quality.records import append, read_all
from quality.runner import plan, run

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: everything is measured; 3: time ran out, run the same command again."""
    options = _parser().parse_args(arguments)
    return {"run": _run, "million": _million, "report": _report}[options.command](options)


def _run(options: argparse.Namespace) -> int:
    keys = plan(
        _cell_filter(options.cells, options.other),
        parse_seeds(options.seeds),
        options.contestants or list(CONTESTANTS),
    )
    if not keys:
        raise SystemExit(
            f"no cell matches {' '.join(options.cells)}; data sets: {' '.join(DATASETS)}"
        )
    return finish(
        run(
            keys,
            options.output,
            options.jobs,
            options.minutes,
            lambda line: print(line, flush=True),
            options.also,
        )
    )


def _million(options: argparse.Namespace) -> int:
    record = measure_million(options.n)
    append(options.output, record)
    print(
        f"fit {record['seconds']:.1f} s, bare kernel sums {record['kernel_seconds']:.1f} s of one"
        " processor"
    )
    return 0


def _report(options: argparse.Namespace) -> int:
    from quality.page import write_page

    records = read_all(options.records)
    if not records:
        raise SystemExit(
            f"no records in {' '.join(map(str, options.records))}: measure first, with `run`"
        )
    for file in write_page(records, options.page, pictures=not options.no_pictures):
        print(file)
    return 0


def _parser() -> argparse.ArgumentParser:
    found = command(
        "quality",
        __doc__,
        CONTESTANTS,
        ROOT / "build" / "quality.md",
        "two_moons, 'mw*/400', '*/100'",
    )
    found.run.add_argument(
        "--other",
        action="store_true",
        help="the data sets of the section “Other data”, and only those",
    )
    large = found.commands.add_parser(
        "million",
        help=(
            "a million samples in ten features: the fit without a search beside the bare kernel"
            " sums"
        ),
    )
    large.add_argument(
        "--output",
        type=Path,
        default=found.run.get_default("output"),
        help="file of JSON lines (default: %(default)s)",
    )
    large.add_argument("--n", type=int, default=1_000_000, help="samples (default: %(default)s)")
    found.report.add_argument(
        "--no-pictures", action="store_true", help="where matplotlib is not installed"
    )
    return found.parser


def _cell_filter(patterns: Sequence[str], other: bool = False) -> Callable[[str, int], bool]:
    return lambda name, n: (DATASETS[name].group == "other") == other and matches(name, n, patterns)
