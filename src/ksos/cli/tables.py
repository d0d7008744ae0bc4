"""What a saved density of a table with columns of any kind is asked, and ``ksos impute``."""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from ksos import TableDensity, density as model_io
from ksos.cli import values
from ksos.cli.console import Console, aligned, require_writable
from ksos.cli.options import MODEL, READING, box_pairs, data_argument, table_options
from ksos.cli.report import composition
from ksos.data import Table, find_columns, read_table
from ksos.ground.files import replace_whole

IMPUTE = [
    MODEL,
    data_argument(several=False),
    values.argument(
        "-o",
        "--output",
        metavar="FILE",
        help="the file for the filled table (default: CSV on the standard output)",
    ),
    values.argument(
        "--how",
        choices=["mean", "mode", "draw"],
        default="mean",
        help="what goes into a missing cell, given the others of its row: %(choices)s (default:"
        " %(default)s; with mean, categories get their most probable level)",
    ),
    values.argument(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of draws (default: a new one each time)",
    ),
    *READING,
]


def impute(arguments: argparse.Namespace, console: Console) -> int:
    """Fill the missing cells of a table, by a density that was fitted to a table with gaps.

    examples:
      ksos impute titanic.ksos titanic.csv -o filled.csv
      ksos impute titanic.ksos titanic.csv --how draw --seed 0
      ksos impute titanic.ksos new.csv --json
    """
    require_writable(arguments.output)
    density = model_io.load(arguments.model)
    if not isinstance(density, TableDensity):
        raise ValueError(
            f"{arguments.model} was fitted to a table of numbers without missing cells, and fills"
            " none; fit it to a table with gaps"
        )
    X = samples_of(arguments, console, density).as_frame()
    filled = density.impute(X, how=arguments.how, rng=arguments.seed)
    n = int(np.sum(X.isna().to_numpy()))
    value = {"n_samples": len(X), "n_imputed": n, "how": arguments.how, "output": arguments.output}
    if arguments.output is None:
        more = {"rows": filled.to_dict("records")} if arguments.json else {}
        return console.answer(arguments.json, value | more, csv_of(filled))
    replace_whole(arguments.output, (f"{line}\n".encode() for line in csv_of(filled)))
    line = f"written: {arguments.output} ({n:,} cells of {len(X):,} rows filled)"
    return console.answer(arguments.json, value, [line])


def samples_of(arguments: argparse.Namespace, console: Console, density: TableDensity) -> Table:
    """DATA with the columns of the model, words and missing cells included."""
    options = table_options(arguments, features=density.feature_names, any_kind=True)
    table = read_table(arguments.data, options, console.note)
    names = density.feature_names
    if names is None or table.names is None:
        return table
    return table.take([table.names.index(name) for name in names])


def csv_of(table: Any) -> Iterator[str]:
    """The lines of a frame."""
    yield from table.to_csv(index=False).splitlines()


def score_lines(arguments: argparse.Namespace, console: Console, density: TableDensity) -> int:
    """``ksos score``."""
    table = samples_of(arguments, console, density)
    scores = density.logpdf(table.as_frame())
    weights = np.ones(scores.shape[0]) if table.weights is None else table.weights
    mean = float(np.average(scores[weights > 0.0], weights=weights[weights > 0.0]))
    value: dict[str, Any] = {"mean_log_density": mean, "n_samples": scores.shape[0]}
    lines = [f"mean log-density: {mean:.6g} nats per row ({scores.shape[0]:,} rows)"]
    if arguments.per_row:
        value["log_density"] = scores.tolist()
        lines = [repr(score) for score in scores.tolist()]
    return console.answer(arguments.json, value, lines)


def sample_lines(arguments: argparse.Namespace, console: Console, density: TableDensity) -> int:
    """``ksos sample``."""
    part, given, _ = part_of(arguments, density)
    found = part.rvs(arguments.n_samples, rng=arguments.seed)
    if not isinstance(part, TableDensity):
        import pandas

        found = pandas.DataFrame(found, columns=part.feature_names)
    value = {"n_samples": len(found), "given": given, "output": arguments.output}
    if arguments.output is None:
        more = {"samples": found.to_numpy().tolist()} if arguments.json else {}
        return console.answer(arguments.json, value | more, csv_of(found))
    if arguments.output.lower().endswith(".npy"):
        raise ValueError("an NPY file has numbers alone; name a CSV file")
    replace_whole(arguments.output, (f"{line}\n".encode() for line in csv_of(found)))
    line = f"written: {arguments.output} ({len(found):,} samples)"
    return console.answer(arguments.json, value, [line])


def inspect_lines(arguments: argparse.Namespace, console: Console, density: TableDensity) -> int:
    """``ksos inspect``."""
    listed = density.columns.listed
    value = {"n_features": len(listed), **composition(density)}
    rows = [["column", "kind", "values"]]
    for column in listed:
        support = column.support.partition(": ")[2] if column.sides else ""
        rows.append([column.name, column.kind, ", ".join(map(str, column.levels[:6])) or support])
    return console.answer(arguments.json, value, aligned(rows))


def part_of(
    arguments: argparse.Namespace, density: TableDensity
) -> tuple[Any, dict[str, Any], str]:
    """The part that --given and --features ask for, the condition, and the same in words."""
    names = [column.name for column in density.columns.listed]
    places = find_columns([name for name, _ in arguments.given], names, len(names), "--given")
    given = {names[k]: value for k, (_, value) in zip(places, arguments.given, strict=True)}
    part = density.conditional(_own(given, density)) if given else density
    if arguments.features is not None:
        left = [name for name in names if name not in given]
        chosen = find_columns(arguments.features, left, len(left), "--features")
        part = part.marginal([left[k] for k in chosen])
    words = ", ".join(
        f"{name} from {value[0]:g} to {value[1]:g}"
        if isinstance(value, tuple)
        else f"{name} = {value if isinstance(value, str) else format(value, 'g')}"
        for name, value in given.items()
    )
    return part, given, words


def _own(given: dict[str, Any], density: TableDensity) -> dict[str, Any]:
    """Conditions with the levels of columns of flags, which are words in a shell."""
    found = dict(given)
    for column in density.columns.listed:
        by_word = {str(level).lower(): level for level in column.levels}
        value = found.get(column.name)
        if value is not None and not column.is_numeric and value not in column.levels:
            word = f"{value:g}" if isinstance(value, float) else str(value)
            found[column.name] = by_word.get(word.lower(), value)
    return found


def query_lines(arguments: argparse.Namespace, console: Console, density: TableDensity) -> int:
    """``ksos query``."""
    part, given, words = part_of(arguments, density)
    suffix = f" | {words}" if words else ""
    value: dict[str, Any] = {"given": given, "output": arguments.output}
    lines: list[str] = []
    low, high = (box_pairs(side, arguments) for side in ("low", "high"))
    asked = [arguments.probabilities, low or high, arguments.mean, arguments.quantile]
    asked += [arguments.mode, arguments.cov, arguments.output]
    is_summary = not any(asked)
    if low or high:
        value["probability"] = float(part.probability(low, high))
        sides = [f"{name} ≥ {bound:g}" for name, bound in low.items()]
        sides += [f"{name} ≤ {bound:g}" for name, bound in high.items()]
        lines.append(f"P({', '.join(sides)}{suffix}) = {value['probability']:.6g}")
    tables = isinstance(part, TableDensity)
    columns = part.columns.listed if tables else ()
    levels = [column.name for column in columns if not column.is_numeric]
    wanted = levels if is_summary else arguments.probabilities or []
    if wanted and not tables:
        raise ValueError(f"--probabilities {wanted[0]}: it is no column of categories")
    value["probabilities"] = {}
    for name in wanted:
        found = part.probabilities(name)
        value["probabilities"][name] = {str(level): float(p) for level, p in found.items()}
        lines += [f"P({name} = {level}{suffix}) = {p:.6g}" for level, p in found.items()]
    names = part.feature_names or ()
    numbers = [name for name in names if name not in levels]
    shown: dict[str, Any] = {}
    if numbers and (arguments.mean or is_summary):
        shown["mean"] = value["mean"] = [float(x) for x in part.mean()]
    for level in [0.05, 0.5, 0.95] if is_summary else arguments.quantile or []:
        one = [part if len(names) == 1 else part.marginal([name]) for name in numbers]
        circular = {column.name for column in columns if column.kind == "circular"}
        found = [
            np.nan if name in circular else float(p.ppf(level))
            for name, p in zip(numbers, one, strict=True)
        ]
        shown[f"quantile {level:g}"] = value[f"quantile {level:g}"] = found
    if shown:
        cells = zip(*shown.values(), strict=True)
        rows = [[n, *(f"{x:.6g}" for x in row)] for n, row in zip(numbers, cells, strict=True)]
        lines += [f"given {words}"] * bool(words) + aligned([["column", *shown], *rows])
    if arguments.mode:
        found = part.mode()
        value["mode"] = {name: str(x) for name, x in zip(names, found, strict=True)}
        lines += aligned(
            [["column", "mode"], *([name, str(x)] for name, x in value["mode"].items())]
        )
    if arguments.cov:
        matrix = np.asarray(part.cov())
        value["covariance"] = matrix.tolist()
        rows = [[n, *(f"{x:.6g}" for x in row)] for n, row in zip(numbers, matrix, strict=True)]
        lines += aligned([["column", *(f"cov with {name}" for name in numbers)], *rows])
    if arguments.output is not None:
        part.save(arguments.output)
        lines.append(f"written: {arguments.output}")
    return console.answer(arguments.json, value, lines)
