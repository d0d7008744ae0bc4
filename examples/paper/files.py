"""What every figure of the paper needs: colors, numbers in mathematical notation, and its files."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Report", "Row", "save", "scientific", "write_csv"]

Report = Callable[[str], None]
"""Where lines for people go."""
Row = Mapping[str, Any]
"""One line of a table of numbers."""

BLUE, GREEN, ORANGE, GREY = "#0072B2", "#007A5A", "#D55E00", "#666666"
"""Colours that people with any kind of color vision tell apart, from the palette of [Okabe2008].
"""


def save(figure: Figure, rows: Sequence[Row], output: Path, name: str) -> list[Path]:
    """Write ``name``.png, ``name``.pdf and ``name``.csv into ``output``; the same drawing gives the
    same bytes on any day.
    """
    output.mkdir(parents=True, exist_ok=True)
    png, pdf, table = (output / f"{name}.{kind}" for kind in ("png", "pdf", "csv"))
    figure.savefig(png)
    figure.savefig(pdf, metadata={"CreationDate": None})
    write_csv(table, rows)
    return [png, pdf, table]


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One header line and one line per row, numbers in full precision."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def scientific(value: float, digits: int = 2) -> str:
    r"""A number for a figure, in matplotlib's notation for mathematics.

    >>> scientific(0.0019840)
    '$1.98\\times 10^{-3}$'
    >>> scientific(1e-3, 0)
    '$10^{-3}$'
    """
    if value == 0.0 or not math.isfinite(value):
        return f"${value:g}$".replace("inf", r"\infty")
    mantissa, exponent = f"{value:.{digits}e}".split("e")
    power = f"10^{{{int(exponent)}}}"
    return f"${power}$" if digits == 0 and mantissa == "1" else rf"${mantissa}\times {power}$"
