"""Options that several commands share, and what they mean: a table, a box, a part of a density."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from ksos import IntegralNotAvailableError, SoSDensity, TableDensity
from ksos.cli import values
from ksos.cli.console import Console, UsageError, described
from ksos.data import (
    Stream,
    Table,
    TableOptions,
    excerpt,
    find_columns,
    open_table,
    read_table,
)
from ksos.ground import quoted

_MOST_NAMES = 6  # of columns in a message, which must stay one line


def data_argument(several: bool) -> values.Argument:
    """DATA, which may be ``several`` files."""
    return values.argument(
        "data",
        nargs="+" if several else None,
        metavar="DATA",
        help="numbers, one row per sample: a file of CSV (also compressed), NPY, Parquet or Arrow,"
        " a folder of them, a pattern like 'd/*.csv'; - reads CSV from the standard input",
    )


TABLE = "reading the table"
_table = partial(values.argument, group=TABLE)
READING = [
    _table(
        "--columns",
        type=values.columns,
        metavar="LIST",
        help="names or 1-based numbers of the columns to use, separated by commas (default: all but"
        " the weights)",
    ),
    _table(
        "--exclude",
        type=values.columns,
        action="extend",
        metavar="LIST",
        help="names or numbers of columns to drop, such as text or an index; may be repeated",
    ),
    _table(
        "--clean",
        action="store_true",
        help="drop columns of text and dates, an index, columns with most cells missing, and rows"
        " with missing cells, and report which",
    ),
    _table(
        "--drop-missing",
        action="store_true",
        help="drop rows with a missing cell (empty, NA, NaN, ?, -) in a column that is used",
    ),
    _table(
        "--header",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="whether row 1 of a CSV file holds names (default: it does if it holds no number)",
    ),
    _table(
        "--delimiter",
        type=values.delimiter,
        metavar="CHARACTER",
        help="what separates the cells of a CSV file; 'tab' for tabs (default: detected, and"
        " reported if it is not a comma)",
    ),
    _table(
        "--decimal",
        choices=[".", ","],
        metavar="CHARACTER",
        help="what stands before the decimals, . or , (default: detected, and reported if a comma)",
    ),
    _table(
        "--encoding",
        type=values.encoding,
        metavar="NAME",
        help="encoding of a CSV file, such as latin-1 (default: by its byte-order mark, else"
        " UTF-8)",
    ),
]
WEIGHTS = _table(
    "--weights",
    type=str.strip,
    metavar="COLUMN",
    help="name or 1-based number of the column that holds the weights of the rows",
)


def table_options(arguments: argparse.Namespace, **model: Any) -> TableOptions:
    """How to read the table. ``model``: the ``features`` that a model needs, or ``any_kind``."""
    if arguments.columns is not None and arguments.exclude is not None:
        raise UsageError("give either --columns or --exclude")
    return TableOptions(**reading(arguments), **model)


def reading(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that say how to read a table, as far as they were given."""
    given = {values.dest(one): vars(arguments).get(values.dest(one)) for one in [*READING, WEIGHTS]}
    usual = {"clean": False, "drop_missing": False}
    return {name: value for name, value in given.items() if value is not usual.get(name)}


def open_samples(
    arguments: argparse.Namespace, console: Console, density: SoSDensity | TableDensity
) -> Table | Stream:
    """DATA, whole or in chunks, with the features of a ``density`` in its order; that of a
    :class:`TableDensity` with words and missing cells.
    """
    names, any_kind = density.feature_names, isinstance(density, TableDensity)
    options = table_options(arguments, features=names, any_kind=any_kind)
    table = (read_table if any_kind else open_table)(arguments.data, options, console.note)
    return in_model_order(table, names, density.n_features, arguments, console)


def in_model_order(
    table: Any,
    names: Sequence[str] | None,
    d: int,
    arguments: argparse.Namespace,
    console: Console,
    used: Sequence[str] = (),
) -> Any:
    """The columns of a table that are features of MODEL, in its order.

    Extra columns are reported as dropped, apart from those that are ``used`` otherwise.
    """
    here, model = table.names, arguments.model
    if names is not None and here is not None and set(names) <= set(here):
        known = {*names, *used, vars(arguments).get("weights")}
        extra = [name for name in table.header or () if name not in known]
        if extra and arguments.columns is None and arguments.exclude is None:
            console.note(
                f"{table.source}: dropped columns that are not in the model:"
                f" {', '.join(map(excerpt, extra))}"
            )
        return table.take([here.index(name) for name in names])
    if table.n_features != d or (names is not None and here is not None):
        given, listed = ("" if of is None else f", {quoted(of)}" for of in (here, names))
        raise ValueError(
            f"{table.source} gives {table.n_features} columns{given}, but the model in {model} has"
            f" {d} features{listed}; rename columns, or choose them with --columns"
        )
    if names is not None:
        warn_of_order(table.source, names, console)
    return table


def warn_of_order(source: str, names: Sequence[str], console: Console) -> None:
    """Report that columns without names are taken for the named ones."""
    console.warning(
        f"{source} has no header: its columns are taken for {', '.join(names)}, in this order"
    )


def column_names(names: Sequence[str] | None, d: int) -> list[str]:
    """What d columns are called: by their names, or x1, x2, … if they have none."""
    return [f"x{k + 1}" for k in range(d)] if names is None else list(names)


def box_arguments(what: str, group: str) -> list[values.Argument]:
    """``--low`` and ``--high``. ``what`` they bound goes into the help."""
    return [
        values.argument(
            f"--{side}",
            group=group,
            type=values.bounds,
            action="append",
            metavar="LIST",
            help=f"the {which} bounds of {what}: NAME=NUMBER for some columns, or one number, or"
            f" one per column in order, separated by commas (default: {none}, no bound)",
        )
        for side, which, none in (("low", "lower", "-inf"), ("high", "upper", "inf"))
    ]


def box_sides(
    arguments: argparse.Namespace,
    names: Sequence[str],
    others: Sequence[str] = (),
    *,
    points: bool = False,
) -> tuple[np.ndarray, np.ndarray] | None:
    """(low, high) of the columns ``names``, or None if neither option is given.

    ``others`` are columns that exist, but are not among those of the box. With ``points``, both
    sides may be the same: elsewhere a point has no mass.
    """
    if arguments.low is None and arguments.high is None:
        return None
    low = _side("--low", arguments.low or [], names, others, -np.inf)
    high = _side("--high", arguments.high or [], names, others, np.inf)
    for name, a, b in zip(names, low.tolist(), high.tolist(), strict=True):
        if not (a < b or (points and a == b)):
            raise ValueError(
                f"the box is empty: --low must be less than --high, but of {name} they are {a!r}"
                f" and {b!r}"
            )
    return low, high


# One side of the box; ``given`` has a list of (name or None, number) per use of the option.
def _side(
    flag: str,
    given: list[list[tuple[str | None, float]]],
    names: Sequence[str],
    others: Sequence[str],
    none: float,
) -> np.ndarray:
    words, numbers = zip(*chain.from_iterable(given), strict=True) if given else ((), ())
    out = np.full(len(names), none)
    if words and None not in words:
        if unread := [name for name in words if name in others and name not in names]:
            raise ValueError(
                f"{flag} bounds {unread[0]}, which the loss does not read; list it in --columns to"
                " take it in"
            )
        out[find_columns(words, names, len(names), f"{flag}: the table")] = numbers
        return out
    if set(words) - {None} or len(given) > 1:
        raise ValueError(
            f"if {flag} is given more than once, or has names, every number needs the name of its"
            f" column, as in {flag} {names[0]}=0"
        )
    if len(numbers) not in (0, 1, len(names)):
        raise ValueError(
            f"{flag} has {len(numbers)} numbers, but the columns are {', '.join(names)}; give one"
            f" number for each, or name them as in {flag} {names[0]}=0"
        )
    out[:] = numbers or none
    return out


@dataclass(frozen=True)
class View:
    """A density of some features of a model when others have the values ``given``.

    ``features`` and the keys of ``given`` are positions in the model, from 0. ``words`` are the
    names of all its features, or their numbers from 1 if it has no names.
    """

    density: Any
    features: list[int]
    given: dict[int, Any]
    words: list[Any]

    @property
    def names(self) -> list[str]:
        """What the features are called."""
        return [self.name(k) for k in self.features]

    def name(self, feature: int) -> str:
        """What a feature of the model is called: x1, x2, … if it has no names."""
        word = self.words[feature]
        return word if isinstance(word, str) else f"x{word}"

    def described(self) -> dict[str, Any]:
        """Which part it is, for JSON."""
        return {
            "features": [self.words[k] for k in self.features],
            "given": {str(self.words[k]): value for k, value in self.given.items()},
        }

    def condition(self) -> str:
        """The condition for a reader, "" if there is none."""
        return ", ".join(
            f"{self.name(k)} from {value[0]:g} to {value[1]:g}"
            if isinstance(value, tuple)
            else f"{self.name(k)} = {f'{value:g}' if isinstance(value, float) else value}"
            for k, value in self.given.items()
        )


_part = partial(values.argument, group="which part of the density")
VIEW = [
    _part(
        "--given",
        action="extend",
        type=values.conditions,
        default=[],
        metavar="COLUMN=VALUE",
        help="the conditional density, given these values or intervals (hp=100, hp=95:105); several"
        " are separated by commas",
    ),
    _part(
        "--features",
        type=values.columns,
        metavar="LIST",
        help="the marginal density of these columns, separated by commas, in this order (default:"
        " all that are not given); names, or 2 for the second column",
    ),
]
MODEL = values.argument("model", metavar="MODEL", help="a file written by ksos fit")


def take_view(density: SoSDensity | TableDensity, arguments: argparse.Namespace) -> View:
    """The part of ``density`` that the options ask for: first the condition, then the marginal."""
    d, own = density.n_features, density.feature_names
    names = column_names(own, d)
    places = find_columns([name for name, _ in arguments.given], names, d, "--given: the model")
    given = dict(zip(places, (value for _, value in arguments.given), strict=True))
    part, discrete = density, False
    if isinstance(density, TableDensity):
        given = {k: _level(density.columns.listed[k].levels, value) for k, value in given.items()}
    else:
        if word := next((pair for pair in arguments.given if isinstance(pair[1], str)), None):
            raise UsageError(
                "--given: the columns of the model are numbers, so that NAME=VALUE with a finite"
                " value, or an interval NAME=LOW:HIGH with LOW < HIGH, or several separated by"
                f" commas, was expected; got {word[0]}={word[1]}"
            )
        discrete = density.measure.atoms is not None
        # named, so that errors of the library call a feature without a name x1 as well
        part = density.with_feature_names(names)
    rest = [k for k in range(d) if k not in given]
    chosen = rest
    if arguments.features is not None:
        chosen = find_columns(arguments.features, names, d, "--features: the model")
    if not rest:
        raise ValueError(
            f"--given names all {d} columns of the model: none is left to have a density; ksos"
            " score gives that of a row"
        )
    if both := [names[k] for k in chosen if k in given]:
        raise ValueError(
            f"{both[0]} is both given a value by --given and asked for by --features; drop it from"
            " one of them"
        )
    view = View(density, chosen, given, list(own or range(1, d + 1)))
    try:
        part = part.conditional(given) if given else part
    except IntegralNotAvailableError:
        raise
    except ValueError as error:
        if not discrete and "vanishes" not in str(error):
            raise
        hint = "; on a discrete measure, give values of its nodes" if discrete else ""
        raise ValueError(
            f"--given {view.condition()}: the density vanishes there, so there is no conditional"
            f" density{hint}"
        ) from None
    part = part if chosen == rest else part.marginal([rest.index(k) for k in chosen])
    if isinstance(part, SoSDensity):
        part = part.with_feature_names(view.names if own else None)
    return replace(view, density=part)


# The level that a word of the shell means, where levels are flags or numbers.
def _level(levels: Sequence[Any], value: Any) -> Any:
    word = f"{value:g}" if isinstance(value, float) else str(value)
    known = {str(level).lower(): level for level in levels}
    return value if value in levels else known.get(word.lower(), value)


def composition(density: Any) -> dict[str, Any]:
    """The sizes, the kernel and the measure of a density.

    ``n_components`` counts the Gaussians of the reference, and is 0 if there is none; ``n_support``
    is 0 if the density is the reference itself. In a mixture of several parts both are sums.
    """
    n = m = 0
    if isinstance(density, TableDensity):
        corrections = [terms.correction for _, terms in density.parts]
        return {
            "n_components": sum(len(terms.reference.weights) for _, terms in density.parts),
            "n_support": sum(len(one.points) for one in corrections if not one.is_silent),
            "rank": sum(one.factor.shape[1] for one in corrections),
            "kernel": {"name": "gaussian"},
            "measure": {"name": "lebesgue"},
            "kinds": {column.name: column.kind for column in density.columns.listed},
        }
    for _, term in density.terms.on_host.weighted:
        part = term.joint
        normals = None if part.unit_constant is None else part.measure.normals(part.n_features)
        n += 0 if normals is None else len(normals.weights)
        m += part.support_points.shape[0] if normals is None or part.unit_factor.any() else 0
    d = density.n_features
    return {
        "n_components": n,
        "n_support": m,
        "rank": density.rank,
        "kernel": described(density.kernel, d),
        "measure": described(density.measure, d),
    }


def shortened(names: Sequence[str]) -> str:
    """Names, separated by commas; of many the first ones.

    >>> shortened(["a", "b"])
    'a, b'
    """
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *[f"and {more} more"] * (more > 0)])
