"""The command: ``run`` measures, ``report`` turns what was measured into the page."""

from __future__ import annotations

from collections.abc import Sequence

from command import ROOT, command, finish, matches, parse_seeds
from quality.records import Key, read_all
from quality.runner import run

from conditional import work
from conditional.contestants import CONTESTANTS
from conditional.datasets import DATASETS
from conditional.page import page

__all__ = ["main", "plan"]


def main(arguments: Sequence[str]) -> int:
    """Exit code 0: everything is measured; 3: time ran out, run the same command again."""
    page_file, examples = ROOT / "build" / "conditional.md", "diabetes, 'friedman1_*/300'"
    options = command("conditional", __doc__, CONTESTANTS, page_file, examples).parser.parse_args(
        arguments
    )
    if options.command == "report":
        records = read_all(options.records)
        if not records:
            raise SystemExit(
                f"no records in {' '.join(map(str, options.records))}: measure first, with `run`"
            )
        options.page.parent.mkdir(parents=True, exist_ok=True)
        options.page.write_text(page(records), encoding="utf-8")
        print(options.page)
        return 0
    keys = plan(options.cells, parse_seeds(options.seeds), options.contestants or list(CONTESTANTS))
    if not keys:
        raise SystemExit(
            f"no cell matches {' '.join(options.cells)}; data sets: {' '.join(DATASETS)}"
        )
    missing = run(
        keys,
        options.output,
        options.jobs,
        options.minutes,
        lambda line: print(line, flush=True),
        options.also,
        work=work.measure,
        guess=work.expected_seconds,
        line=work.line,
    )
    return finish(missing)


def plan(cells: Sequence[str], seeds: Sequence[int], contestants: Sequence[str]) -> list[Key]:
    """What is to be measured."""
    return [
        Key(data.name, n, seed, name)
        for data in DATASETS.values()
        for n in data.sizes
        if matches(data.name, n, cells)
        for seed in seeds
        for name in contestants
        if n <= CONTESTANTS[name].rows
    ]
