"""Markdown tables of what was measured."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence

from quality.contestants import CONTESTANTS
from quality.summary import Cell, Estimate

__all__ = ["comma_separated", "difference_cell", "every_cell", "field_table", "markdown", "number"]
__all__ += ["plain"]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]


def comma_separated(lines: Sequence[str]) -> str:
    """A Markdown table as CSV: plain minus signs, no bold, standard errors in columns of their own,
    nothing where nothing was measured.
    """
    table = [[entry.strip(" *") for entry in line.strip("|").split(" | ")] for line in lines]
    head, rows = table[0], table[2:]
    with_error = [any("±" in row[k] for row in rows) for k in range(len(head))]
    names = []
    for name, error in zip(head, with_error, strict=True):
        names += [name or "cell", f"{name}, standard error"] if error else [name or "cell"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        entries: list[str] = []
        for entry, error in zip(row, with_error, strict=True):
            value, _, spread = entry.replace("−", "-").replace("*", "").partition(" ± ")
            value = "" if value == "–" else value.strip()
            entries += [value, spread.strip()] if error else [value]
        writer.writerow(entries)
    return out.getvalue()


def number(value: float, digits: int) -> str:
    """A number for a table, with a true minus sign; exponents for what would otherwise vanish."""
    if not math.isfinite(value):
        return "−∞" if value < 0 else "∞"
    text = (
        f"{value:.{digits}f}"
        if value == 0.0 or abs(value) >= 10.0 ** (1 - digits)
        else f"{value:.1e}"
    )
    return text.replace("-", "−")


def plain(value: float, digits: int = 3) -> str:
    """A number in a column of scores: never an exponent."""
    return (
        f"{value:.{digits}f}".replace("-", "−") if math.isfinite(value) else number(value, digits)
    )


def difference_cell(found: Estimate | None, digits: int = 3) -> str:
    """Mean ± standard error, bold where it is positive."""
    if found is None:
        return "–"
    text = ("+" if 0.0 < found.mean < math.inf else "") + plain(found.mean, digits)
    error = "" if math.isnan(found.error) else f" ± {found.error:.{digits}f}"
    return f"**{text}**{error}" if found.mean > 0.0 else f"{text}{error}"


def field_table(
    cells: Sequence[Cell],
    field: str,
    digits: int,
    *,
    best: Callable[[Sequence[float]], float],
    scale: float = 1.0,
) -> list[str]:
    """One row per cell, one column per contestant that took part anywhere in them; the best of each
    row is bold.
    """
    names = [name for name in CONTESTANTS if any(cell.estimate(name, field) for cell in cells)]
    rows = []
    for cell in cells:
        estimates = {name: cell.estimate(name, field) for name in names}
        known = [found.mean for found in estimates.values() if found is not None]
        if not known:
            continue
        row = [cell.label]
        for found in estimates.values():
            if found is None:
                row.append("–")
                continue
            text = number(found.mean * scale, digits)
            text = f"**{text}**" if found.mean == best(known) else text
            row.append(
                text
                if math.isnan(found.error)
                else f"{text} ± {number(found.error * scale, digits)}"
            )
        rows.append(row)
    return markdown(["", *(CONTESTANTS[name].title for name in names)], rows)


def every_cell(
    cells: Sequence[Cell], mine: str, peers: Sequence[str], quick: str, quick_peer: str
) -> list[str]:
    """One row per cell: our score, ours − each peer's, the truth's − ours, the fit without a
    search, and everybody's seconds.
    """
    titles = {name: contestant.title for name, contestant in CONTESTANTS.items()}
    timed = [mine, *peers, quick]
    head = [
        "",
        titles[mine],
        *(f"− {titles[name]}" for name in peers),
        "truth − it",
        titles[quick],
        f"− {titles[quick_peer]}",
    ]
    rows = []
    for cell in cells:
        seconds = [cell.estimate(name, "seconds") for name in timed]
        rows.append(
            [
                cell.label,
                _mean(cell.estimate(mine, "log_likelihood")),
                *(difference_cell(cell.difference(mine, name)) for name in peers),
                _to_truth(cell, mine),
                _mean(cell.estimate(quick, "log_likelihood")),
                difference_cell(cell.difference(quick, quick_peer)),
                " / ".join("–" if found is None else f"{found.mean:.2g}" for found in seconds),
            ]
        )
    return markdown([*head, "seconds: " + " / ".join(titles[name] for name in timed)], rows)


def _mean(found: Estimate | None) -> str:
    return "–" if found is None else plain(found.mean)


def _to_truth(cell: Cell, mine: str) -> str:
    truth, ours = cell.values(mine, "true_log_likelihood"), cell.values(mine, "log_likelihood")
    gaps = [truth[seed] - ours[seed] for seed in truth.keys() & ours.keys()]
    return "–" if not gaps else plain(math.fsum(gaps) / len(gaps))
