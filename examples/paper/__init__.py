"""The figures of [Muzellec2021], computed again: each function writes a PNG, a PDF and a CSV of the
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from examples.paper import density_theorem, figure1, figure2
from examples.paper.files import Report
from ksos.ground.validation import as_choice
from ksos.plotting import require_matplotlib

__all__ = ["FIGURES", "run"]

FIGURES: dict[str, Callable[[Path, bool, Report], list[Path]]] = {
    "figure1": figure1.draw,
    "figure2a": figure2.regularizations,
    "figure2b": figure2.bandwidths,
    "figure2c": figure2.support_sizes,
    "density_theorem": density_theorem.draw,
}
"""Every figure by name: ``FIGURES[name](output, quick, report)`` draws it and returns the files
written.
"""


def run(figures: Sequence[str] | None, output: Path, quick: bool, report: Report) -> list[Path]:
    """Draw ``figures``, names out of :data:`FIGURES` (None: all), into the folder ``output``;
    returns the files written.

    The folder is created if needed, and files of the same names are replaced. ``quick`` means
    coarser grids and fewer steps: seconds instead of a minute. ``report`` is called with one line
    of text for each certificate, and at the end with where the files are.
    """
    names = (
        list(FIGURES)
        if figures is None
        else [as_choice(name, "figures", FIGURES) for name in dict.fromkeys(figures)]
    )
    require_matplotlib()  # before minutes of work, not after
    output = Path(output)
    files = [file for name in names for file in FIGURES[name](output, bool(quick), report)]
    report(f"{len(files)} files in {output}")
    return files
