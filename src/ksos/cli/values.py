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
    what: str, parse: Callable[[str], Any], words: Collection[str] = ()
) -> Callable[[str], Any]:
    """The parser of one of ``words``, or of ``what`` parse reads, which its errors name.

    >>> auto = expected("a number", float, ["auto"])
    >>> auto("2"), auto("auto")
    (2.0, 'auto')
    """
    known = f"{', '.join(words)} or {what}" if words else what

    def parsed(text: str) -> Any:
        if text in words:
            return text
        with suppress(ValueError, LookupError, csv.Error):
            return parse(text)
        raise argparse.ArgumentTypeError(f"{known} was expected; got {text!r}")

    return parsed


def _within(parse: Callable[[str], Any], least: float, most: float) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        if not least <= (value := parse(text)) <= most:
            raise ValueError(text)
        return value

    return parsed


def whole(least: float = -math.inf, most: float = math.inf) -> Callable[[str], int]:
    """The parser of a whole number between two bounds.

    >>> whole(1)("3")
    3
    """
    where = f" from {least} to {most}" if most < math.inf else f" of at least {least}"
    what = f"a whole number{where if least > -math.inf else ''}"
    return expected(what, _within(int, least, most))


def _listed(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def one_or_several(text: str) -> float | list[float]:
    """A number, or a list of several.

    >>> one_or_several("0.5"), one_or_several("0,-inf")
    (0.5, [0.0, -inf])
    """
    return values if len(values := _listed(text)) > 1 else values[0]


def _probabilities(text: str) -> list[float]:
    levels = _listed(text)
    if not all(0.0 <= level <= 1.0 for level in levels):
        raise ValueError(text)
    return levels


def _columns(text: str) -> list[str]:
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


def _bounds(text: str) -> list[tuple[str | None, float]]:
    if "=" not in text:
        return [(None, value) for value in _listed(text)]
    return [(name, float(value)) for name, value in _pairs(text)]


Condition = float | tuple[float, float] | str
"""A value, an interval, or the level of a column of categories."""


def _conditions(text: str) -> list[tuple[str, Condition]]:
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


def _kinds(text: str) -> dict[str, Any]:
    """NAME=KIND, separated by commas.

    >>> _kinds("rain=nonnegative,share=0:1,wind=circular:360")
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


def _delimiter(text: str) -> str:
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1 or character in '"\r\n\0+-.' or character.isalnum():
        raise ValueError(text)
    return character


def _encoding(text: str) -> str:
    # raises for codecs that make no text, such as zip
    b"".decode(text)
    return codecs.lookup(text).name


SEVERAL = "a number, or several separated by commas,"

number = expected("a number", float)
numbers = expected(SEVERAL, one_or_several)
share = expected("a number between 0 and 1", _within(float, 5e-324, 1.0 - 2.0**-53))
"""From the least positive float to the last one below 1."""
number_list = expected(SEVERAL, _listed)
probabilities = expected("a list of numbers from 0 to 1, separated by commas,", _probabilities)
columns = expected("a list of names or numbers of columns, separated by commas,", _columns)
"""A name that contains a comma is put in double quotes."""
bounds = expected("a number, or several separated by commas, or NAME=NUMBER,", _bounds)
conditions = expected(
    "NAME=VALUE with a finite value, or an interval NAME=LOW:HIGH with LOW < HIGH, or several"
    " separated by commas,",
    _conditions,
)
kinds = expected(
    f"NAME=KIND, with {', '.join(KINDS)}, LOW:HIGH or circular:PERIOD, or several separated by"
    " commas,",
    _kinds,
)
delimiter = expected(
    "one character that no number contains (',', ';', '|', ' ' or tab)", _delimiter
)
encoding = expected("the name of an encoding such as utf-8, latin-1 or cp1252", _encoding)
count = whole()
"""A whole number; the library checks its bounds."""
seed = whole(0, 2**32 - 1)
"""The seed of every random choice: NumPy's are 32 bits."""
