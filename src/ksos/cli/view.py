"""The part of a saved density that a command looks at: some features integrated out, others given,
the rest as they are.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

from ksos import IntegralNotAvailableError, SoSDensity, SoSMixture
from ksos.cli import values
from ksos.cli.reading import column_names
from ksos.data import find_columns

__all__ = ["View", "add_view_options", "take_view"]

Given = float | tuple[float, float]


@dataclass(frozen=True)
class View:
    """A density of some ``features`` of a model, by their positions in it counted from 0, when
    others have the values ``given``.

    ``all_names`` are those of all features of the model, and ``named`` says whether it has any:
    else they are x1, x2, …
    """

    density: SoSDensity | SoSMixture
    features: tuple[int, ...]
    given: dict[int, Given]
    all_names: list[str]
    named: bool

    @property
    def names(self) -> list[str]:
        """What the features are called."""
        return [self.all_names[feature] for feature in self.features]

    def described(self) -> dict[str, Any]:
        """Which part it is, for JSON: features by name, or counted from 1 if the model has no
        names.
        """
        words: list[Any] = (
            self.all_names if self.named else [k + 1 for k in range(len(self.all_names))]
        )
        return {
            "features": [words[k] for k in self.features],
            "given": {str(words[k]): value for k, value in self.given.items()},
        }

    def said(self) -> str:
        """The condition in words, "" if there is none."""
        return ", ".join(f"{self.all_names[k]} {_said(value)}" for k, value in self.given.items())


def _said(value: Given) -> str:
    return f"from {value[0]!r} to {value[1]!r}" if isinstance(value, tuple) else f"= {value!r}"


def add_view_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--given`` and ``--features``."""
    text = (
        "Features go by the names of the columns; 2 is the second one, and x2 in a model without"
        " names."
    )
    group = parser.add_argument_group("which part of the density", text)
    text = (
        "the conditional density, given these values or intervals (hp=100, hp=95:105); several are"
        " separated by commas"
    )
    group.add_argument(
        "--given",
        action="append",
        type=values.conditions,
        default=[],
        metavar="FEATURE=VALUE",
        help=text,
    )
    text = (
        "the marginal density of these features, separated by commas, in this order (default: all"
        " that are not given)"
    )
    group.add_argument("--features", type=values.columns, metavar="LIST", help=text)


def take_view(density: SoSDensity | SoSMixture, arguments: argparse.Namespace) -> View:
    """The part of ``density`` that the options ask for: first the condition, then the marginal."""
    d, named = density.n_features, density.feature_names is not None
    names = column_names(density.feature_names, d)
    words = [word for part in arguments.given for word in part]
    places = find_columns([name for name, _ in words], names, d, "--given: the model")
    given = dict(zip(places, (value for _, value in words), strict=True))
    if len(given) == d:
        raise ValueError(
            f"--given names all {d} features of the model: none is left to have a density; ksos"
            " score gives that of a row"
        )
    rest = [feature for feature in range(d) if feature not in given]
    chosen = (
        rest
        if arguments.features is None
        else find_columns(arguments.features, names, d, "--features: the model")
    )
    if both := [names[feature] for feature in chosen if feature in given]:
        raise ValueError(
            f"{both[0]} is both given a value by --given and asked for by --features; leave it out"
            " of one of them"
        )
    view = View(density, tuple(chosen), given, names, named)
    try:  # named, so that what the library says of a feature counts from x1
        density = density.with_feature_names(names).conditional(given) if given else density
    except ValueError as error:
        if isinstance(error, IntegralNotAvailableError) or (
            "vanishes" not in str(error) and density.measure.atoms is None
        ):
            raise
        at_nodes = (
            "; on a discrete measure, give values of its nodes"
            if density.measure.atoms is not None
            else ""
        )
        raise ValueError(
            f"--given {view.said()}: the density vanishes there, so there is no conditional"
            f" density{at_nodes}"
        ) from None
    if chosen != rest:
        density = density.marginal([rest.index(feature) for feature in chosen])
    return replace(view, density=density if named else density.with_feature_names(None))
