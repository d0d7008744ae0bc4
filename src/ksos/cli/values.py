"""What the words on the command line mean: numbers, lists of them, columns, conditions, delimiters,
encodings, seeds.
"""

from __future__ import annotations

import argparse
import codecs
import csv
import math
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

__all__ = [
    "columns",
    "conditions",
    "count",
    "delimiter",
    "encoding",
    "number",
    "numbers",
    "pairs",
    "positive",
    "probabilities",
]
__all__ += ["seed", "whole", "word_or"]


def number(text: str) -> float:
    """One number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number was expected; got {text!r}") from None


def positive(text: str) -> float:
    """One positive number."""
    value = number(text)
    if not (0.0 < value < math.inf):
        raise argparse.ArgumentTypeError(f"a positive number was expected; got {text!r}")
    return value


def numbers(text: str) -> float | list[float]:
    """A number, or several separated by commas.

    >>> numbers("0.5"), numbers("0,-inf")
    (0.5, [0.0, -inf])
    """
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"a number, or several separated by commas, was expected; got {text!r}"
        ) from None
    return values if len(values) > 1 else values[0]


def word_or(words: Collection[str], parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """The parser of one of ``words`` or of what ``parse`` reads.

    >>> word_or(["auto"], number)("auto"), word_or(["auto"], number)("2")
    ('auto', 2.0)
    """

    def parse_word(text: str) -> Any:
        if text in words:
            return text
        try:
            return parse(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{', '.join(words)} or {error}") from None

    return parse_word


def whole(least: float = -math.inf, most: float = math.inf) -> Callable[[str], int]:
    """The parser of a whole number between two bounds.

    >>> whole(1)("3")
    3
    """
    where = (
        f" from {least} to {most}"
        if most < math.inf
        else f" of at least {least}"
        if least > -math.inf
        else ""
    )

    def parse(text: str) -> int:
        with suppress(ValueError):
            if least <= (value := int(text)) <= most:
                return value
        raise argparse.ArgumentTypeError(f"a whole number{where} was expected; got {text!r}")

    return parse


count = whole()
"""A whole number; the library says what it must be."""
seed = whole(0, 2**32 - 1)
"""The seed of every random choice."""


def columns(text: str) -> list[str]:
    """Names or numbers of columns separated by commas; a name that contains a comma is put in
    double quotes.

    >>> columns('x,"speed, m/s",3')
    ['x', 'speed, m/s', '3']
    """
    try:
        (names,) = csv.reader([text], strict=True, skipinitialspace=True)
    except (csv.Error, ValueError):
        raise argparse.ArgumentTypeError(
            f"names or numbers of columns separated by commas were expected; got {text!r}"
        ) from None
    names = [name.strip() for name in names]
    if not names or not all(names):
        raise argparse.ArgumentTypeError(f"a column without a name is listed in {text!r}")
    return names


def pairs(text: str) -> list[tuple[str, str]]:
    """NAME=VALUE, or several separated by commas; a name may contain commas.

    >>> pairs("2=0.5, speed, m/s=-1:3")
    [('2', '0.5'), ('speed, m/s', '-1:3')]
    """
    found, begun = [], ""
    for word in text.split(","):
        name, equals, value = (begun + word).rpartition("=")
        begun = "" if equals else f"{begun}{word},"
        if equals:
            found.append((name.strip(), value.strip()))
    if begun or not all(name and value and not name.endswith("=") for name, value in found):
        raise argparse.ArgumentTypeError(
            f"NAME=VALUE, or several separated by commas, was expected; got {text!r}"
        )
    return found


def conditions(text: str) -> list[tuple[str, float | tuple[float, float]]]:
    """Features with their values, FEATURE=VALUE, or intervals, FEATURE=LOW:HIGH, separated by
    commas.

    >>> conditions("2=0.5,hp=95:105")
    [('2', 0.5), ('hp', (95.0, 105.0))]
    """
    found: list[tuple[str, float | tuple[float, float]]] = []
    for name, value in pairs(text):
        try:
            ends = [float(end) for end in value.split(":")]
        except ValueError:
            ends = []
        if len(ends) == 1 and math.isfinite(ends[0]):
            found.append((name, ends[0]))
        elif len(ends) == 2 and ends[0] < ends[1]:
            found.append((name, (ends[0], ends[1])))
        else:
            what = "a finite value, or an interval LOW:HIGH with LOW < HIGH,"
            raise argparse.ArgumentTypeError(f"{what} was expected in {f'{name}={value}'!r}")
    return found


def probabilities(text: str) -> list[float]:
    """Numbers from 0 to 1, separated by commas.

    >>> probabilities("0.05,0.5")
    [0.05, 0.5]
    """
    listed = numbers(text)
    listed = listed if isinstance(listed, list) else [listed]
    if not all(0.0 <= value <= 1.0 for value in listed):
        raise argparse.ArgumentTypeError(
            f"numbers from 0 to 1, separated by commas, were expected; got {text!r}"
        )
    return listed


def delimiter(text: str) -> str:
    """The one character between cells; ``tab`` and ``\\t`` stand for a tabulator."""
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1 or character in '"\r\n\0' or character.isalnum() or character in "+-.":
        raise argparse.ArgumentTypeError(
            "one character that no number contains (',', ';', '|', ' ' or tab) was expected; got"
            f" {text!r}"
        )
    return character


def encoding(text: str) -> str:
    """The name of an encoding that Python knows."""
    try:
        b"".decode(text)  # refuses codecs that make no text, such as zip
        return codecs.lookup(text).name
    except LookupError:
        raise argparse.ArgumentTypeError(
            f"the name of an encoding such as utf-8, latin-1 or cp1252 was expected; got {text!r}"
        ) from None
