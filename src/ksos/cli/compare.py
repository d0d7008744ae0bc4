"""``ksos compare``: do two tables have the same distribution?"""

import argparse

from ksos import two_sample_test
from ksos.cli import values
from ksos.cli.console import Console, UsageError, aligned
from ksos.cli.options import READING, column_names, table_options, warn_of_order
from ksos.data import Table, excerpt, option, read_table
from ksos.ground import require_different

COMPARE = [
    values.argument(
        "first", metavar="FIRST", help="a table, one row per sample; - is CSV from stdin"
    ),
    values.argument(
        "second", metavar="SECOND", help="another one, with the same columns in any order"
    ),
    values.argument(
        "--level",
        type=values.share,
        # the custom of the sciences
        default=0.05,
        metavar="ALPHA",
        help="the share of false alarms (default: %(default)s)",
    ),
    values.argument(
        "--permutations",
        type=values.whole(1),
        # with the rows themselves 1000: p-values are thousandths
        default=999,
        metavar="N",
        help="how many permutations decide; no p-value is less than 1/(N + 1) (default:"
        " %(default)s)",
    ),
    values.argument(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the permutations (default: a new one each time)",
    ),
    *READING,
]


def compare(arguments: argparse.Namespace, console: Console) -> int:
    """Test whether the rows of two tables have the same distribution, and show where
    they differ most: a permutation test, with an exact level.

    The p-value is that of ksos.two_sample_test, over several kernels at once.

    examples:
      ksos compare old.csv new.csv
      ksos compare old.csv new.csv --columns hp,mpg --drop-missing --seed 1
      ksos compare old.csv new.csv --level 0.01 --permutations 9999 --json
    """
    if arguments.first == arguments.second == "-":
        raise UsageError("only one of the tables can come from the standard input")
    options = table_options(arguments, any_kind=True)
    first = read_table(arguments.first, options, console.note)
    second = _in_order_of(first, read_table(arguments.second, options, console.note), console)
    both = first, second
    mixed = any(one.is_mixed for one in both)
    a, b = (one.as_frame() if mixed else one.points for one in both)
    found = two_sample_test(a, b, n_permutations=arguments.permutations, rng=arguments.seed)
    names, (n, m) = column_names(first.names or second.names, first.n_features), found.n_rows
    # of words there is no mean
    means = [
        [None if is_word else float(x.mean()) for is_word, (_, x) in columns]
        for columns in (zip(one.has_words, one.cells.items(), strict=True) for one in both)
    ]
    columns = {
        "mean_of_first": means[0],
        "mean_of_second": means[1],
        "most_of_first": found.most_a.point.tolist(),
        "most_of_second": found.most_b.point.tolist(),
    }
    differ = found.reject(arguments.level)
    value = {
        "pvalue": found.pvalue,
        "statistic": found.statistic,
        "reject": differ,
        "level": arguments.level,
        "n_permutations": found.n_permutations,
        "n_rows": [n, m],
        "features": names,
        "mmd": found.mmd,
        **columns,
    }
    titles = [f"mean of {first.source}", f"mean of {second.source}"]
    titles += [f"{first.source} has more near", f"{second.source} has more near"]
    table = [["column", *titles]] + [
        [name, *(_shown(column[k]) for column in columns.values())] for k, name in enumerate(names)
    ]
    lines = [
        f"p-value {found.pvalue:.4g} of {n} and {m} rows (statistic {found.statistic:.4g},"
        f" {found.n_permutations} permutations)",
        f"at level {arguments.level:g}: {'the rows differ' if differ else 'no difference is seen'}",
        *aligned(table),
    ]
    return console.answer(arguments.json, value, lines)


def _shown(cell: object) -> str:
    return "" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


# The second table with its columns in the order of the first, by name if both have names.
def _in_order_of(first: Table, second: Table, console: Console) -> Table:
    for table in (first, second):
        require_different(table.names or (), f"{table.source} has columns")
    if first.names is not None and second.names is not None:
        for table, other in ((first, second.names), (second, first.names)):
            if alone := [name for name in table.names or () if name not in other]:
                common = [name for name in first.names if name in second.names]
                fix = f"compare some with {option('--columns', common)}, or " if common else ""
                raise ValueError(
                    f"only {table.source} has columns {', '.join(map(excerpt, alone))}; {fix}rename"
                    " them, or choose columns by number"
                )
        return second.take([second.names.index(name) for name in first.names])
    if first.n_features != second.n_features:
        raise ValueError(
            f"{first.source} gives {first.n_features} columns, but {second.source} gives"
            f" {second.n_features}; choose the same number with --columns"
        )
    if names := first.names or second.names:
        warn_of_order(second.source if first.names else first.source, names, console)
    return second
