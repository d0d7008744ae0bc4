"""What a saved density is asked: what is in it, scores of rows, samples, missing cells,
probabilities.
"""

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ksos import TableDensity, density as model_io
from ksos.cli import values
from ksos.cli.console import DONE, Console, aligned, require_writable
from ksos.cli.options import (
    MODEL,
    READING,
    VIEW,
    WEIGHTS,
    View,
    box_arguments,
    box_sides,
    composition,
    data_argument,
    open_samples,
    take_view,
)
from ksos.data import Stream, find_columns, written
from ksos.ground import Run, as_count, replace_whole

_ROWS = 1 << 14  # written at a time: their text is a megabyte or two
INSPECT = [MODEL]


def inspect(arguments: argparse.Namespace, console: Console) -> int:
    """Show what is in a saved density: its size, its kernel and measure, its mass
    recomputed, and the file that holds it.

    examples:
      ksos inspect cars.ksos
      ksos inspect cars.ksos --json
      ksos inspect mpg.ksos --json > mpg.json
    """
    density, header = model_io.load(arguments.model), model_io.read_header(arguments.model)
    made, mass, names = composition(density), float(density.probability()), density.feature_names
    value = {
        "n_features": density.n_features,
        "feature_names": names and list(names),
        **made,
        "mass": mass,
        "format_version": header["format_version"],
        "library_version": header["library_version"],
        "file_size": os.path.getsize(arguments.model),
    }
    rows: dict[str, Any] = {"columns": density.n_features, "support points": made["n_support"]}
    rows["rank"] = made["rank"]
    itself = bool(made["n_components"]) and not made["n_support"]
    kinds = []
    if isinstance(density, TableDensity):
        kinds = [["column", "kind", "values"]]
        for column in density.columns.listed:
            support = column.support.partition(": ")[2] if column.sides else ""
            listed = ", ".join(map(str, column.levels[:6])) or support
            kinds.append([column.name, column.kind, listed])
    else:
        rows |= {} if itself else {"kernel": density.kernel}
        rows["measure"] = density.measure
    if made["n_components"]:
        why = " (the density is the reference itself)" if itself else ""
        rows["components"] = f"{made['n_components']}{why}"
    if names:
        rows["names"] = ", ".join(names)
    rows["mass"] = f"{mass:.12g}"
    rows["format version"] = "{format_version} (written by ksos {library_version})".format(**value)
    rows["file size"] = f"{value['file_size']} bytes"
    lines = [f"{name:<18}{shown}" for name, shown in rows.items()]
    return console.answer(arguments.json, value, lines + aligned(kinds))


SCORE = [
    MODEL,
    data_argument(several=True),
    values.argument(
        "--per-row",
        action="store_true",
        help="one log-density per row instead of their mean; with --clean or --drop-missing as CSV,"
        " beside the number of its row in the file",
    ),
    *READING,
    WEIGHTS,
]


def score(arguments: argparse.Namespace, console: Console) -> int:
    """Print the mean log-density of the rows of a table under a saved density, or the
    log-density of each row.

    Scores of rows are written as they are computed, so that memory holds one chunk
    of rows.

    examples:
      ksos score cars.ksos new.csv
      ksos score cars.ksos new.csv --drop-missing --per-row > scores.csv
      ksos score cars.ksos 'data/*.parquet' --json
    """
    density = model_io.load(arguments.model)
    table: Any = open_samples(arguments, console, density)
    parts = table.parts()
    if isinstance(density, TableDensity):
        parts = [(table.as_frame(), table.weights, table.rows)]
    else:
        # the columns are in order
        density = density.with_feature_names(None)
    # rows may be dropped
    numbered = arguments.clean or arguments.drop_missing
    as_lines = arguments.per_row and not arguments.json
    n = n_zero = 0
    sums: list[tuple[float, float]] = []
    kept: dict[str, list[float]] = {"log_density": [], "row": []}

    def lines() -> Iterator[str]:
        nonlocal n, n_zero
        if numbered and as_lines:
            yield "row,log_density"
        for points, weights, rows in parts:
            scores = density.logpdf(points)
            weights = np.ones(scores.shape[0]) if weights is None else weights
            if np.any(weights < 0.0):
                raise ValueError(
                    f"{table.source}: weights must not be negative; one of them is"
                    f" {weights.min():g}"
                )
            # 0 times −inf is no number
            counted = weights > 0.0
            sums.append((float(weights[counted] @ scores[counted]), float(weights.sum())))
            n, n_zero = n + scores.shape[0], n_zero + int(np.isneginf(scores).sum())
            each = zip(rows.tolist(), scores.tolist(), strict=True)
            if as_lines:
                yield "\n".join(f"{row},{x!r}" if numbered else repr(x) for row, x in each)
            elif arguments.per_row:
                kept["log_density"] += scores.tolist()
                kept["row"] += rows.tolist()

    if as_lines:
        console.result(lines())
    else:
        list(lines())
        total, mass = map(math.fsum, zip(*sums, strict=True))
        if not mass > 0.0:
            raise ValueError(f"{table.source}: weights must not be zero everywhere")
        value: dict[str, Any] = {"mean_log_density": total / mass, "n_samples": n}
        value["n_zero_density"] = n_zero
        if arguments.per_row:
            value |= {name: kept[name] for name in kept if name != "row" or numbered}
        line = f"mean log-density: {total / mass:.6g} nats per row ({n:,} row{'s' * (n != 1)})"
        console.answer(arguments.json, value, [line])
    if isinstance(table, Stream):
        console.note(table.report)
    if n_zero and not arguments.json:
        console.warning(f"{n_zero} of {n} rows have density 0 (logarithm -inf)")
    return DONE


SAMPLE = [
    MODEL,
    values.argument(
        "-n",
        "--n-samples",
        type=values.count,
        # for a histogram and means, and still a moment
        default=1000,
        metavar="N",
        help="how many (default: %(default)s)",
    ),
    values.argument(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the samples (default: a new one each time)",
    ),
    values.argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a file ending in .npy gets NPY, any other CSV (default: CSV on the standard output)",
    ),
    *VIEW,
]


def sample(arguments: argparse.Namespace, console: Console) -> int:
    """Draw independent samples from a saved density, or from a marginal or conditional
    of it, as CSV or NPY.

    examples:
      ksos sample cars.ksos -n 1000 --seed 0 -o samples.csv
      ksos sample cars.ksos -n 5 --given hp=100
      ksos sample cars.ksos -n 100000 --features mpg -o mpg.npy
    """
    n, output = as_count(arguments.n_samples, "--n-samples"), arguments.output
    require_writable(output)
    view = take_view(_load(arguments), arguments)
    Run.current().tell(f"drawing {n} samples ...")
    samples = view.density.rvs(n, rng=arguments.seed)
    value = {
        "n_samples": n,
        "n_features": len(view.features),
        **view.described(),
        "seed": arguments.seed,
        "output": output,
    }
    if output is None:
        more = {"samples": np.asarray(samples).tolist()} if arguments.json else {}
        return console.answer(arguments.json, value | more, csv_lines(samples, view.names))
    if output.lower().endswith(".npy"):
        if not isinstance(samples, np.ndarray):
            raise ValueError("an NPY file has numbers alone; name a CSV file")
        written([samples], output, samples.shape[1:])
    else:
        replace_whole(output, (f"{line}\n".encode() for line in csv_lines(samples, view.names)))
    return console.answer(
        arguments.json, value, [f"written: {output} ({n:,} sample{'s' * (n != 1)})"]
    )


def csv_lines(samples: Any, names: Sequence[str] | None = None) -> Iterator[str]:
    """A header with the names, and the rows of an array or a data frame with the digits that give
    each number back exactly.
    """
    import pandas  # heavy, and not needed for --help

    if isinstance(samples, np.ndarray):
        samples = pandas.DataFrame(samples, columns=names)
    for start in range(0, max(len(samples), 1), _ROWS):
        some = samples.iloc[start : start + _ROWS]
        yield from some.to_csv(index=False, header=not start).splitlines()


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
    density = _load(arguments)
    if not isinstance(density, TableDensity):
        raise ValueError(
            f"{arguments.model} was fitted to a table of numbers without missing cells, and fills"
            " none; fit it to a table with gaps"
        )
    table: Any = open_samples(arguments, console, density)
    X = table.as_frame()
    filled = density.impute(X, how=arguments.how, rng=arguments.seed)
    n, lines = int(np.sum(X.isna().to_numpy())), csv_lines(filled)
    value = {"n_samples": len(X), "n_imputed": n, "how": arguments.how, "output": arguments.output}
    if arguments.output is None:
        more = {"rows": filled.to_dict("records")} if arguments.json else {}
        return console.answer(arguments.json, value | more, lines)
    replace_whole(arguments.output, (f"{line}\n".encode() for line in lines))
    line = f"written: {arguments.output} ({n:,} cells of {len(X):,} rows filled)"
    return console.answer(arguments.json, value, [line])


# The saved density, which answers with frames of pandas, whatever the make of its table.
def _load(arguments: argparse.Namespace) -> Any:
    density = model_io.load(arguments.model)
    if isinstance(density, TableDensity) and density.columns.make is not None:
        density.columns = replace(density.columns, make="pandas")
    return density


_question = partial(values.argument, group="what to ask of it")
QUERY = [
    MODEL,
    *VIEW,
    *box_arguments("a box whose probability is wanted", "what to ask of it"),
    _question("--mean", action="store_true", help="the mean of every column"),
    _question("--cov", action="store_true", help="the covariance matrix"),
    _question(
        "--quantile",
        type=values.probabilities,
        metavar="LIST",
        help="quantiles of every column: numbers from 0 to 1 separated by commas",
    ),
    _question(
        "--probabilities",
        type=values.columns,
        metavar="LIST",
        help="the probabilities of the levels of columns of categories, separated by commas",
    ),
    _question("--mode", action="store_true", help="the point where the density is highest"),
    _question(
        "-o",
        "--output",
        metavar="FILE",
        help="save the marginal or conditional density as a model of its own",
    ),
]
# the median and an interval that holds nine of ten
_SUMMARY = [0.05, 0.5, 0.95]


def query(arguments: argparse.Namespace, console: Console) -> int:
    """Probabilities, means, covariances, quantiles and the mode of a saved density, or of
    a marginal or conditional of it, which can be saved.

    Without a question: mean, standard deviation and quantiles of every column.

    examples:
      ksos query cars.ksos --low mpg=20 --given hp=100
      ksos query cars.ksos --given hp=95:105 --features mpg --quantile 0.1,0.5,0.9
      ksos query titanic.ksos --given sex=female --probabilities survived
    """
    output = arguments.output
    require_writable(output)
    whole = _load(arguments)
    view = take_view(whole, arguments)
    density, names = view.density, view.names
    kinds = density.columns.listed if isinstance(density, TableDensity) else ()
    levels = [name for name, one in zip(names, kinds, strict=False) if not one.is_numeric]
    numbers = [name for name in names if name not in levels]
    # an angle has no order, and so no quantiles
    circular = [k for k, one in enumerate(kinds) if one.kind == "circular"]
    points = bool(kinds) or density.measure.atoms is not None
    sides = box_sides(arguments, names, points=points)
    asked = [sides, output, arguments.probabilities, arguments.quantile]
    asked += [vars(arguments)[name] or None for name in ("mean", "cov", "mode")]
    is_summary = all(one is None for one in asked)
    found: dict[str, Any] = {}
    columns: dict[str, dict[str, Any]] = {}
    lines = []
    if sides is not None:
        found |= {"low": sides[0].tolist(), "high": sides[1].tolist()}
        # of a table by column: those omitted are unrestricted, and levels have no order
        by_column = [{k: x for k, x in enumerate(side) if np.isfinite(x)} for side in sides]
        found["probability"] = float(density.probability(*(by_column if kinds else sides)))
        event = _event(names, found["low"], found["high"])
        lines.append(_probability(event, view, found["probability"]))
    if wanted := levels if is_summary else arguments.probabilities:
        if not isinstance(whole, TableDensity):
            raise ValueError(
                f"--probabilities {wanted[0]}: the columns of the model are numbers; ask with --low"
                " and --high"
            )
        places = find_columns(wanted, names, len(names), "--probabilities: the model")
        # the whole knows which columns of numbers are whole
        found["probabilities"] = every = {}
        for k in places:
            each = whole.probabilities(view.features[k], view.given or None)
            every[names[k]] = {str(level): float(p) for level, p in each.items()}
        lines += [
            _probability(f"{name} = {level}", view, p)
            for name, each in every.items()
            for level, p in each.items()
        ]

    def tell(key: str, title: str, answer: Any, of: Sequence[str] = numbers) -> None:
        """Take an answer for each of some columns into both forms."""
        found[key] = np.asarray(answer).tolist()
        columns[title] = dict(zip(of, found[key], strict=True))
        if len(of) < len(names):
            found["numbers"] = of  # whose answers the lists hold, in this order

    if numbers and (arguments.mean or is_summary):
        tell("mean", "mean", density.mean())
    if numbers and is_summary:
        deviations = np.asarray(density.cov()).diagonal().clip(min=0.0) ** 0.5
        tell("standard_deviation", "standard deviation", deviations)
    if arguments.mode:
        tell("mode", "mode", density.mode(), names)
    if wanted := _SUMMARY if is_summary else arguments.quantile:
        ordered = [k for k, name in enumerate(names) if name in numbers and k not in circular]
        each = [density if len(names) == 1 else density.marginal([k]) for k in ordered]
        rows = np.transpose([np.asarray(one.ppf(np.array(wanted))) for one in each]).tolist()
        found["quantiles"] = []
        for level, row in zip(wanted, rows, strict=False):
            found["quantiles"].append({"level": level, "values": row})
            columns[f"quantile {level:g}"] = {
                names[k]: x for k, x in zip(ordered, row, strict=True)
            }
    if arguments.cov:
        found["covariance"] = np.asarray(density.cov()).tolist()
        for name, row in zip(numbers, found["covariance"], strict=True):
            columns[f"cov with {name}"] = dict(zip(numbers, row, strict=True))
    shown = [name for name in names if any(name in column for column in columns.values())]
    if shown:
        lines += [f"given {view.condition()}"] if view.given else []
        cells = [[one.get(name, "") for one in columns.values()] for name in shown]
        table = [[f"{x:.6g}" if isinstance(x, float) else str(x) for x in row] for row in cells]
        named = [[name, *row] for name, row in zip(shown, table, strict=True)]
        lines += aligned([["column", *columns], *named])
    if output is not None:
        density.save(output)
        lines.append(f"written: {output}")
    return console.answer(arguments.json, {**view.described(), **found, "output": output}, lines)


# A line such as P(mpg ≥ 20 | hp = 100) = 0.641.
def _probability(event: str, view: View, p: float) -> str:
    given = f" | {view.condition()}" if view.given else ""
    return f"P({event}{given}) = {_rounded(p)}"


def _rounded(probability: float) -> str:
    """Three digits of a probability, or of its distance from one if that is less.

    >>> _rounded(0.64149), _rounded(0.99998203), _rounded(1.2345e-7)
    ('0.641', '0.999982', '1.23e-07')
    """
    other = 1.0 - probability
    if probability <= other:
        return f"{probability:.3g}"
    # twelve digits: what a sum of them rounds to
    return f"{1.0 - float(f'{other:.3g}'):.12g}"


# What a box asks for, such as mpg ≥ 20.
def _event(names: Sequence[str], low: Sequence[float], high: Sequence[float]) -> str:
    parts = []
    for name, a, b in zip(names, low, high, strict=True):
        below, above = np.isfinite(a), np.isfinite(b)
        if below and above:
            parts.append(f"{a:g} ≤ {name} ≤ {b:g}")
        elif below or above:
            parts.append(f"{name} ≥ {a:g}" if below else f"{name} ≤ {b:g}")
    return ", ".join(parts) or "all"
