"""``--low`` and ``--high``: the bounds of a box, in order or by the names of the columns."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ksos.cli import values
from ksos.data import find_columns
from ksos.measures import Box

__all__ = ["add_box", "box_measure", "box_sides"]

_SIDES = {"low": -np.inf, "high": np.inf}


def add_box(add: Callable[..., Any], what: str) -> None:
    """Add ``--low`` and ``--high`` with the ``add_argument`` of a parser or a group; ``what`` they
    bound goes into the help.
    """
    for side, none in _SIDES.items():
        text = (
            f"the {'lower' if side == 'low' else 'upper'} bounds of {what}: NAME=NUMBER for some"
            " columns, or one number, or one per"
        )
        text = f"{text} column in order, separated by commas (default: {none}, no bound)"
        add(f"--{side}", type=_bounds, action="append", metavar="LIST", help=text)


def _bounds(text: str) -> list[float] | list[tuple[str, str]]:
    if "=" not in text:
        listed = values.numbers(text)
        return listed if isinstance(listed, list) else [listed]
    found = values.pairs(text)
    for _, number in found:
        values.number(number)
    return found


def box_sides(
    arguments: argparse.Namespace, names: Sequence[str], others: Sequence[str] = ()
) -> tuple[np.ndarray, np.ndarray] | None:
    """(low, high) of the columns ``names``, or None if neither option is given; ``others`` are
    columns that exist but do not count.
    """
    if arguments.low is None and arguments.high is None:
        return None
    low, high = (
        _side(f"--{side}", getattr(arguments, side), names, others, none)
        for side, none in _SIDES.items()
    )
    for name, a, b in zip(names, low.tolist(), high.tolist(), strict=True):
        if a != a or b != b:
            raise ValueError(
                f"--low and --high must be numbers, -inf and inf for none, but of {name} they are"
                f" {a!r} and {b!r}"
            )
        if a > b:
            raise ValueError(
                f"the box is empty: --low must be less than --high, but of {name} they are {a!r}"
                f" and {b!r}"
            )
    return low, high


def _side(
    flag: str, given: Any, names: Sequence[str], others: Sequence[str], none: float
) -> np.ndarray:
    out = np.full(len(names), none)
    if given is None:
        return out
    words = [pair for part in given for pair in part if isinstance(pair, tuple)]
    if words:
        if any(not isinstance(pair, tuple) for part in given for pair in part):
            raise ValueError(
                f"{flag} has both NAME=NUMBER and bare numbers; name the column of each"
            )
        if unread := [name for name, _ in words if name not in names and name in others]:
            raise ValueError(
                f"{flag} bounds {unread[0]}, which the loss does not read; list it in --columns to"
                " take it in"
            )
        out[find_columns([name for name, _ in words], names, len(names), f"{flag}: the table")] = [
            float(number) for _, number in words
        ]
        return out
    if len(given) > 1:
        raise ValueError(
            f"{flag} is given {len(given)} times; separate the numbers by commas, or name columns"
            f" as in {flag} {names[0]}=0"
        )
    numbers = np.asarray(given[0])
    if numbers.size not in (1, len(names)):
        columns = f"column, {names[0]}" if len(names) == 1 else f"columns, {', '.join(names)}"
        raise ValueError(
            f"{flag} has {numbers.size} numbers, but there {'is' if len(names) == 1 else 'are'}"
            f" {len(names)} {columns}; give one for each, or name them as in {flag} {names[0]}=0"
        )
    return np.broadcast_to(numbers, out.shape).copy()


def box_measure(
    arguments: argparse.Namespace, names: Sequence[str], others: Sequence[str] = ()
) -> Box | None:
    """The box measure that ``--low`` and ``--high`` describe, or None if neither is given."""
    sides = box_sides(arguments, names, others)
    return None if sides is None else Box(*sides)
