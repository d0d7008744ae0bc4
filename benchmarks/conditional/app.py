"""The command: ``run`` measures, ``report`` turns what was measured into the page."""

from __future__ import annotations

import argparse
import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path

from quality.app import parse_seeds
from quality.records import Key, read_all
from quality.runner import run

from conditional import work
from conditional.contestants import CONTESTANTS
from conditional.datasets import DATASETS
from conditional.page import page

__all__ = ["main", "plan"]

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "conditional.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: everything asked for is measured; 3: time ran out, run the same command again."""
    options = _parser().parse_args(arguments)
    if options.command == "report":
        records = read_all(options.records)
        if not records:
            raise SystemExit(f"no records in {' '.join(map(str, options.records))}: measure first, with `run`")
        options.page.write_text(page(records), encoding="utf-8")
        print(options.page)
        return 0
    keys = plan(options.cells, parse_seeds(options.seeds), options.contestants or list(CONTESTANTS))
    if not keys:
        raise SystemExit(f"no cell matches {' '.join(options.cells)}; data sets: {' '.join(DATASETS)}")
    missing = run(
        keys, options.output, options.jobs, options.minutes, lambda line: print(line, flush=True), options.also,
        work=work.measure, guess=work.expected_seconds, line=work.line,
    )  # fmt: skip
    if missing:
        print(f"time is over: {missing} pieces are still to be measured; the same command goes on from here")
    return 3 if missing else 0


def plan(cells: Sequence[str], seeds: Sequence[int], contestants: Sequence[str]) -> list[Key]:
    """What is to be measured."""
    return [
        Key(data.name, n, seed, name)
        for data in DATASETS.values()
        for n in data.sizes
        if any(fnmatch.fnmatch(f"{data.name}/{n}", pattern if "/" in pattern else f"{pattern}/*") for pattern in cells)
        for seed in seeds
        for name in contestants
        if n <= CONTESTANTS[name].rows
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python benchmarks/conditional", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    measure = commands.add_parser("run", help="measure; what is in the output file already is not measured again")
    measure.add_argument("--output", type=Path, default=RESULTS, help="file of JSON lines to append to (default: %(default)s)")
    measure.add_argument("--also", type=Path, nargs="*", default=[], help="other files whose records count as measured")
    measure.add_argument("--minutes", type=float, default=60.0, help="stop after this time (default: %(default)g)")
    measure.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, one thread each (default: all cores)")
    measure.add_argument("--cells", nargs="*", default=["*"], metavar="SET[/N]", help="patterns such as diabetes, 'friedman1_*/300'")
    measure.add_argument("--seeds", default="0-9", help="such as 0-9 or 0,3,5 (default: %(default)s)")
    measure.add_argument("--contestants", nargs="*", choices=list(CONTESTANTS), metavar="NAME", help=f"default: {' '.join(CONTESTANTS)}")
    report = commands.add_parser("report", help="write the page from records")
    report.add_argument("records", type=Path, nargs="*", default=[RESULTS], help="files of JSON lines (default: that of `run`)")
    report.add_argument("--page", type=Path, default=ROOT / "docs" / "conditional-quality.md", help="the page (default: %(default)s)")
    return parser
