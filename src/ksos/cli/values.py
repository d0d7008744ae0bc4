"""What the words on the command line mean: numbers, lists of them, columns, delimiters, seeds."""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Collection

__all__ = ["columns", "conditions", "count", "delimiter", "number_or", "numbers", "numbers_or", "probabilities", "seed"]


def numbers(text: str) -> float | list[float]:
    """A number, or several separated by commas.

    >>> numbers("0.5"), numbers("0,-inf")
    (0.5, [0.0, -inf])
    """
    try:
        values = [float(word) for word in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number, or several separated by commas, was expected; got {text!r}") from None
    return values if len(values) > 1 else values[0]


def numbers_or(words: Collection[str]) -> Callable[[str], str | float | list[float]]:
    """The parser of one of ``words`` or of :func:`numbers`."""

    def parse(text: str) -> str | float | list[float]:
        if text in words:
            return text
        try:
            return numbers(text)
        except argparse.ArgumentTypeError:
            listed = ", ".join(words)
            raise argparse.ArgumentTypeError(f"{listed}, a number, or several separated by commas, was expected; got {text!r}") from None

    return parse


def number_or(words: Collection[str]) -> Callable[[str], str | float]:
    """The parser of one of ``words`` or of one number."""

    def parse(text: str) -> str | float:
        if text in words:
            return text
        try:
            return float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{', '.join(words)} or a number was expected; got {text!r}") from None

    return parse


def count(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number was expected; got {text!r}") from None


def seed(text: str) -> int:
    """A seed: a whole number that is not negative."""
    value = count(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"a whole number from 0 to 4294967295 was expected; got {text!r}")
    return value


def columns(text: str) -> list[str]:
    """Names or numbers of columns separated by commas; a name that contains a comma is put in double quotes.

    >>> columns('x,"speed, m/s",3')
    ['x', 'speed, m/s', '3']
    """
    try:
        (names,) = csv.reader([text], strict=True, skipinitialspace=True)
    except (csv.Error, ValueError):
        raise argparse.ArgumentTypeError(f"names or numbers of columns separated by commas were expected; got {text!r}") from None
    names = [name.strip() for name in names]
    if not names or not all(names):
        raise argparse.ArgumentTypeError(f"a column without a name is listed in {text!r}")
    return names


def conditions(text: str) -> list[tuple[str, float]]:
    """Features with their values, FEATURE=VALUE, separated by commas.

    >>> conditions("2=0.5,x3=-1")
    [('2', 0.5), ('x3', -1.0)]
    """
    wrong = argparse.ArgumentTypeError(f"FEATURE=VALUE, or several separated by commas, was expected; got {text!r}")
    pairs = []
    for word in text.split(","):
        name, equals, value = word.partition("=")
        try:
            pairs.append((name.strip(), float(value)))
        except ValueError:
            raise wrong from None
        if not equals or not name.strip():
            raise wrong
        if not math.isfinite(pairs[-1][1]):
            raise argparse.ArgumentTypeError(f"a finite value was expected in {word!r}")
    return pairs


def probabilities(text: str) -> list[float]:
    """Numbers from 0 to 1, separated by commas.

    >>> probabilities("0.05,0.5")
    [0.05, 0.5]
    """
    listed = numbers(text)
    listed = listed if isinstance(listed, list) else [listed]
    if not all(0.0 <= value <= 1.0 for value in listed):
        raise argparse.ArgumentTypeError(f"numbers from 0 to 1, separated by commas, were expected; got {text!r}")
    return listed


def delimiter(text: str) -> str:
    """The one character between cells; ``tab`` and ``\\t`` stand for a tabulator."""
    character = "\t" if text in ("tab", "\\t") else text
    if len(character) != 1 or character in '"\r\n\0' or character.isalnum() or character in "+-.":
        raise argparse.ArgumentTypeError(f"one character that no number contains (',', ';', '|', ' ' or tab) was expected; got {text!r}")
    return character
