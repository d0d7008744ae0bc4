"""Test whether the rows of two tables have the same law, and say where they differ most: a
permutation test, with an exact level.

The p-value is that of ksos.two_sample_test, over several kernels at once.
"""

from __future__ import annotations

import argparse

from ksos import two_sample_test
from ksos.cli import values
from ksos.cli.console import Console, UsageError
from ksos.cli.reading import add_reading_options, column_names, table_options
from ksos.data import Table, excerpt, option, read_table

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos compare`` understands."""
    text = (
        "a CSV (also compressed) or NPY file of numbers, one row per sample; - reads CSV from the"
        " standard input"
    )
    parser.add_argument("first", metavar="FIRST", help=text)
    parser.add_argument(
        "second", metavar="SECOND", help="another one, with the same columns in any order"
    )
    add_reading_options(parser)
    add = parser.add_argument
    add(
        "--level",
        type=values.positive,
        default=0.05,
        metavar="ALPHA",
        help="the share of false alarms (default: 0.05)",
    )
    text = "how many permutations decide; no p-value is less than 1/(N + 1) (default: 999)"
    add("--permutations", type=values.whole(1), default=999, metavar="N", help=text)
    add(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the permutations (default: a new one each time)",
    )
    add("--json", action="store_true", help="one JSON object on the standard output")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos compare``."""
    if arguments.weights is not None:
        raise UsageError(
            "--weights: the test takes rows that count the same; leave the weights out with"
            " --exclude"
        )
    if arguments.level >= 1.0:
        raise UsageError(
            "--level is a share of false alarms, less than 1, such as 0.05; got"
            f" {arguments.level:g}"
        )
    if arguments.first == arguments.second == "-":
        raise UsageError("only one of the tables can come from the standard input")
    first, second = (
        read_table(path, table_options(arguments), console.note)
        for path in (arguments.first, arguments.second)
    )
    second = _in_order_of(first, second, console)
    found = two_sample_test(
        first.points, second.points, n_permutations=arguments.permutations, rng=arguments.seed
    )
    names = column_names(first.names or second.names, first.points.shape[1])
    columns = {
        "mean_of_first": first.points.mean(axis=0).tolist(),
        "mean_of_second": second.points.mean(axis=0).tolist(),
        "most_of_first": found.most_a.point.tolist(),
        "most_of_second": found.most_b.point.tolist(),
    }
    value = {
        "pvalue": found.pvalue,
        "statistic": found.statistic,
        "reject": found.reject(arguments.level),
        "level": arguments.level,
        "n_permutations": found.n_permutations,
        "n_rows": list(found.n_rows),
        "features": names,
        "mmd": found.mmd,
        **columns,
    }
    verdict = "the rows differ" if found.reject(arguments.level) else "no difference is seen"
    n, m = found.n_rows
    lines = [
        f"p-value {found.pvalue:.4g} of {n} and {m} rows (statistic {found.statistic:.4g},"
        f" {found.n_permutations} permutations)"
    ]
    lines.append(f"at level {arguments.level:g}: {verdict}")
    sources = first.source, second.source
    rows = [
        [
            "column",
            *(f"mean of {source}" for source in sources),
            *(f"{source} has more near" for source in sources),
        ]
    ]
    rows += [
        [name, *(f"{column[k]:.6g}" for column in columns.values())] for k, name in enumerate(names)
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines += [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return console.answer(arguments.json, value, lines)


def _in_order_of(first: Table, second: Table, console: Console) -> Table:
    """The second table with its columns in the order of the first, by their names where both have
    some.
    """
    for table in (first, second):
        table.require_different_names()
    if first.names is not None and second.names is not None:
        common = [name for name in first.names if name in second.names]
        for table in (first, second):
            if alone := [name for name in table.names or () if name not in common]:
                remedy = (
                    f"compare some with {option('--columns', common)}"
                    if common
                    else "rename them, or choose columns by number"
                )
                raise ValueError(
                    f"only {table.source} has columns {', '.join(map(excerpt, alone))}; {remedy}"
                )
        return second.take([second.names.index(name) for name in first.names])
    n, m = first.points.shape[1], second.points.shape[1]
    if n != m:
        raise ValueError(
            f"{first.source} gives {n} columns, but {second.source} gives {m}; choose the same"
            " number with --columns"
        )
    if (first.names is None) != (second.names is None):
        named, other = (first, second) if second.names is None else (second, first)
        console.warning(
            f"{other.source} has no header: its columns are taken for"
            f" {', '.join(named.names or ())}, in this order"
        )
    return second
