"""How the options of a command are declared, and what the words on the command line mean."""

from __future__ import annotations

import argparse
import codecs
import csv
import math
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from ksos.data import KINDS

Argument = tuple[str, tuple[str, ...], dict[str, Any]]


def argument(*flags: str, group: str = "", **settings: Any) -> Argument:
    """An argument of a command, for the list that is called as the command, in upper case.

    The ``settings`` are those of ``ArgumentParser.add_argument``, and ``group`` is the title under
    which ``--help`` shows it.
    """
    return group, flags, settings


def dest(one: Argument) -> str:
    """What the parsed arguments call it.

    >>> dest(argument("-o", "--time-limit"))
    'time_limit'
    """
    return one[1][-1].removeprefix("--").replace("-", "_")


def expected(
    what: str, words: Collection[str] = (), limits: tuple[float, float] | None = None
) -> Callable[[Callable[[str], Any]], Callable[[str], Any]]:
    """A decorator of what reads a value: one of ``words`` is accepted too, a number must lie within
    ``limits``, and the error says what was expected.

    >>> auto = expected("a number", ["auto"])(float)
    >>> auto("2"), auto("auto")
    (2.0, 'auto')
    """
    known = f"{', '.join(words)} or {what}" if words else what

    def decorated(parse: Callable[[str], Any]) -> Callable[[str], Any]:
        def parsed(text: str) -> Any:
            if text in words:
                return text
            with suppress(ValueError, LookupError, csv.Error):
                value = parse(text)
                if limits is None or limits[0] <= value <= limits[1]:
                    return value
            raise argparse.ArgumentTypeError(f"{known} was expected; got {text!r}")

        parsed.__doc__ = parse.__doc__
        return parsed

    return decorated


def whole(least: float = -math.inf, most: float = math.inf) -> Callable[[str], int]:
    """The parser of a whole number between two bounds.

    >>> whole(1)("3")
    3
    """
    where = f" from {least} to {most}" if most < math.inf else f" of at least {least}"
    what = f"a whole number{where if least > -math.inf else ''}"
    return expected(what, limits=(least, most))(int)


SEVERAL = "a number, or several separated by commas,"
number = expected("a number")(float)
share = expected("a number between 0 and 1", limits=(5e-324, 1.0 - 2.0**-53))(float)
"""From the least positive float to the last one below 1."""
count = whole()
"""A whole number; the library checks its bounds."""
seed = whole(0, 2**32 - 1)
"""The seed of every random choice: NumPy's are 32 bits."""


def _listed(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def one_or_several(text: str) -> float | list[float]:
    """A number, or a list of several.

    >>> one_or_several("0.5"), one_or_several("0,-inf")
    (0.5, [0.0, -inf])
    """
    return values if len(values := _listed(text)) > 1 else values[0]


number_list = expected(SEVERAL)(_listed)
numbers = expected(SEVERAL)(one_or_several)


@expected("a list of numbers from 0 to 1, separated by commas,")
def probabilities(text: str) -> list[float]:
    """Levels of quantiles, or of regions."""
    levels = _listed(text)
    if not all(0.0 <= level <= 1.0 for level in levels):
        raise ValueError(text)
    return levels


@expected("a list of names or numbers of columns, separated by commas,")
def columns(text: str) -> list[str]:
    """A name that contains a comma is put in double quotes."""
    (words,) = csv.reader([text], strict=True, skipinitialspace=True)
    names = [word.strip() for word in words]
    if not names or not all(names):
        raise ValueError(text)
    return names


# a name may contain commas and signs of equality, a value neither
_PAIR = r"(.*?[^=])=([^=,]+)(?:,(?=.)|$)"


def _pairs(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE, separated by commas.

    >>> _pairs("2=0.5, speed, m/s=-1:3")
    [('2', '0.5'), ('speed, m/s', '-1:3')]
    """
    found = [(name.strip(), value.strip()) for name, value in re.findall(_PAIR, text)]
    if not re.fullmatch(f"({_PAIR})+", text) or not all(map(all, found)):
        raise ValueError(text)
    return found


@expected("a number, or several separated by commas, or NAME=NUMBER,")
def bounds(text: str) -> list[tuple[str | None, float]]:
    """The name of a column, None if it is not given, and its bound."""
    if "=" not in text:
        return [(None, value) for value in _listed(text)]
    return [(name, float(value)) for name, value in _pairs(text)]


Condition = float | tuple[float, float] | str
"""A value, an interval, or the level of a column of categories."""


@expected(
    "NAME=VALUE with a finite value, or an interval NAME=LOW:HIGH with LOW < HIGH, or several"
    " separated by commas,"
)
def conditions(text: str) -> list[tuple[str, Condition]]:
    """The name of a column and what it is given as."""
    found: list[tuple[str, Condition]] = []
    for name, value in _pairs(text):
        if re.match(r"[^\W\d]", value) and value.lower() not in ("inf", "nan", "infinity"):
            found.append((name, value))
            continue
        low, high = (ends := [float(end) for end in value.split(":")])[0], ends[-1]
        if len(ends) > 2 or not (low < high if len(ends) == 2 else math.isfinite(low)):
            raise ValueError(text)
        found.append((name, (low, high) if len(ends) == 2 else low))
    return found


@expected(
    f"NAME=KIND, with {', '.join(KINDS)}, LOW:HIGH or circular:PERIOD, or several separated by"
    " commas,"
)
def kinds(text: str) -> dict[str, Any]:
    """NAME=KIND, separated by commas.

    >>> kinds("rain=nonnegative,share=0:1,wind=circular:360")
    {'rain': 'nonnegative', 'share': (0.0, 1.0), 'wind': ('circular', 360.0)}
    """
    found: dict[str, Any] = {}
    for name, kind in _pairs(text):
        first, colon, second = kind.partition(":")
        found[name] = kind
        if colon:
            found[name] = (first if first == "circular" else float(first), float(second))
        elif kind not in KINDS:
            raise ValueError(text)
    return found


@expected("one character that no number contains (',', ';', '|', ' ' or tab)")
def delimiter(text: str) -> str:
    """What separates cells; a tab by its name."""
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1 or character in '"\r\n\0+-.' or character.isalnum():
        raise ValueError(text)
    return character


@expected("the name of an encoding such as utf-8, latin-1 or cp1252")
def encoding(text: str) -> str:
    """The name that Python has for it."""
    # raises for codecs that make no text, such as zip
    b"".decode(text)
    return codecs.lookup(text).name
