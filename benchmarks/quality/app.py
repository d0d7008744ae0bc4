"""The command: ``run`` measures, ``report`` turns what was measured into the page, its tables and its pictures."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.million import measure_million
from quality.records import append, read_all
from quality.runner import plan, run

__all__ = ["main", "parse_seeds"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "quality.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: everything asked for is measured; 3: time ran out, run the same command again."""
    options = _parser().parse_args(arguments)
    return {"run": _run, "million": _million, "report": _report}[options.command](options)


def _run(options: argparse.Namespace) -> int:
    keys = plan(_cell_filter(options.cells, options.other), parse_seeds(options.seeds), options.contestants or list(CONTESTANTS))
    if not keys:
        raise SystemExit(f"no cell matches {' '.join(options.cells)}; data sets: {' '.join(DATASETS)}")
    missing = run(keys, options.output, options.jobs, options.minutes, lambda line: print(line, flush=True), options.also)
    if missing:
        print(f"time is over: {missing} pieces are still to be measured; the same command goes on from here")
    return 3 if missing else 0


def _million(options: argparse.Namespace) -> int:
    record = measure_million(options.n)
    append(options.output, record)
    print(f"fit {record['seconds']:.1f} s, bare kernel sums {record['kernel_seconds']:.1f} s of one processor")
    return 0


def _report(options: argparse.Namespace) -> int:
    from quality.page import write_page

    records = read_all(options.records)
    if not records:
        raise SystemExit(f"no records in {' '.join(map(str, options.records))}: measure first, with `run`")
    for file in write_page(records, options.page, pictures=not options.no_pictures):
        print(file)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python benchmarks/quality", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("run", help="measure; what is in the output file already is not measured again")
    measure.add_argument("--output", type=Path, default=RESULTS, help="file of JSON lines to append to (default: %(default)s)")
    measure.add_argument("--also", type=Path, nargs="*", default=[], help="other files whose records count as measured")
    measure.add_argument("--minutes", type=float, default=60.0, help="stop after this time (default: %(default)g)")
    measure.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, one BLAS thread each (default: all cores)")
    measure.add_argument("--cells", nargs="*", default=["*"], metavar="SET[/N]", help="patterns such as two_moons, 'mw*/400', '*/100'")
    measure.add_argument("--other", action="store_true", help="the data sets of the section “Other data”, and only those")
    measure.add_argument("--seeds", default="0-9", help="such as 0-9 or 0,3,5 (default: %(default)s)")
    measure.add_argument("--contestants", nargs="*", choices=list(CONTESTANTS), metavar="NAME", help=f"default: {' '.join(CONTESTANTS)}")
    large = commands.add_parser("million", help="a million samples in ten features: the fit without a search beside the bare kernel sums")
    large.add_argument("--output", type=Path, default=RESULTS, help="file of JSON lines to append to (default: %(default)s)")
    large.add_argument("--n", type=int, default=1_000_000, help="samples (default: %(default)s)")
    page = commands.add_parser("report", help="write the page, with tables and pictures, from records")
    page.add_argument("records", type=Path, nargs="*", default=[RESULTS], help="files of JSON lines (default: that of `run`)")
    page.add_argument("--page", type=Path, default=ROOT / "docs" / "quality.md", help="the page (default: %(default)s)")
    page.add_argument("--no-pictures", action="store_true", help="where matplotlib is not installed")
    return parser


def _cell_filter(patterns: Sequence[str], other: bool = False) -> Callable[[str, int], bool]:
    def matches(name: str, n: int) -> bool:
        return (DATASETS[name].group == "other") == other and any(
            fnmatch.fnmatch(f"{name}/{n}", pattern if "/" in pattern else f"{pattern}/*") for pattern in patterns
        )

    return matches


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
            raise SystemExit(f"--seeds: a list such as 0-9 or 0,3,5 was expected; got {text!r}") from None
    return out
