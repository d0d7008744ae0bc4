"""The part of a saved density that a command looks at: some features integrated out, others given, the rest as they are."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ksos import IntegralNotAvailableError, SoSDensity, SoSMixture
from ksos.cli import values
from ksos.cli.console import InputError, excerpt
from ksos.cli.tables import named_by_position

__all__ = ["View", "add_view_options", "feature_name", "find_features", "take_view"]


@dataclass(frozen=True)
class View:
    """A density of some ``features`` of a model, by their positions in it counted from 0, when others have the values ``given``."""

    density: SoSDensity | SoSMixture
    features: tuple[int, ...]
    given: dict[int, float]

    @property
    def names(self) -> list[str]:
        """What the features are called."""
        return [feature_name(feature) for feature in self.features]

    def described(self) -> dict[str, Any]:
        """Which part it is, for JSON; features are counted from 1."""
        given = {str(feature + 1): value for feature, value in self.given.items()}
        return {"features": [feature + 1 for feature in self.features], "given": given}


def feature_name(feature: int) -> str:
    """The name of a feature at a position counted from 0: models keep no others.

    >>> feature_name(0)
    'x1'
    """
    return f"x{feature + 1}"


def add_view_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--given`` and ``--features``."""
    group = parser.add_argument_group("which part of the density", "Features are counted from 1: 2 or x2 is the second one of the model.")
    text = "the conditional density, given these values; several are separated by commas"
    group.add_argument("--given", action="append", type=values.conditions, default=[], metavar="FEATURE=VALUE", help=text)
    text = "the marginal density of these features, separated by commas, in this order (default: all that are not given)"
    group.add_argument("--features", type=values.columns, metavar="LIST", help=text)


def take_view(density: SoSDensity | SoSMixture, arguments: argparse.Namespace) -> View:
    """The part of ``density`` that the options ask for: first the condition, then the marginal."""
    d = density.n_features
    words = [word for part in arguments.given for word in part]
    places = find_features([name for name, _ in words], d, "--given")
    given = dict(zip(places, (value for _, value in words), strict=True))
    if len(given) == d:
        raise InputError(f"--given names all {d} features of the model: none is left to have a density; ksos score gives that of a row")
    rest = [feature for feature in range(d) if feature not in given]
    chosen = rest if arguments.features is None else find_features(arguments.features, d, "--features")
    if both := [feature_name(feature) for feature in chosen if feature in given]:
        raise InputError(f"{both[0]} is both given a value by --given and asked for by --features; leave it out of one of them")
    try:
        density = density.conditional(given) if given else density
    except IntegralNotAvailableError:
        raise
    except ValueError:  # its words count features from 0
        shown = ", ".join(f"{feature_name(feature)}={value!r}" for feature, value in given.items())
        at_nodes = "; on a discrete measure, give values of its nodes" if density.measure.atoms is not None else ""
        raise InputError(f"--given {shown}: the density vanishes there, so there is no conditional density{at_nodes}") from None
    if chosen != rest:
        density = density.marginal([rest.index(feature) for feature in chosen])
    return View(density, tuple(chosen), given)


def find_features(words: Sequence[str], d: int, option: str) -> list[int]:
    """The positions, counted from 0, of the features that ``words`` name, each at most once.

    >>> find_features(["2", "x1"], 3, "--features")
    [1, 0]
    """
    found: list[int] = []
    for word in words:
        number = word.removeprefix("x")
        if not (named_by_position(number) and 1 <= int(number) <= d):
            shown = "feature 1 (or x1)" if d == 1 else f"features 1 to {d} (or x1 to x{d})"
            raise InputError(f"{option}: the model has {shown}; there is no feature {excerpt(word)}")
        if int(number) - 1 in found:
            raise InputError(f"{option} names feature {int(number)} twice")
        found.append(int(number) - 1)
    return found
