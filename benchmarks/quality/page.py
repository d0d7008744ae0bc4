"""The report of the records, and its table of every cell as CSV: words about the method, numbers
from what was measured and from nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from quality.contestants import CONTESTANTS
from quality.datasets import CONTEST, DATASETS
from quality.overview import PLAIN, SEARCH, baselines, overview
from quality.records import Record
from quality.summary import Cell, cells, share_ahead
from quality.tables import (
    comma_separated,
    difference_cell,
    every_cell,
    field_table,
    markdown,
    number,
)
from quality.words import CELLS, HEADER, METHOD, OTHER_WORDS, WALLS, WHY

__all__ = ["page", "write_page"]

_PICTURES = ("quality_log_likelihood.png", "quality_ise.png")
PEERS = ("kde", "scipy_kde", "gmm", "gmm_cv", "gmm_stack")


def write_page(records: Sequence[Record], path: Path, *, pictures: bool = True) -> list[Path]:
    """Write the report, its table and its figures beside it; returns the files."""
    files = []
    if pictures:
        from quality.pictures import draw_ise, draw_log_likelihood  # matplotlib

        main = [cell for cell in cells(records) if cell.data.group in CONTEST]
        folder = path.parent / "figures"
        files += [
            draw(main, folder / name)
            for draw, name in zip((draw_log_likelihood, draw_ise), _PICTURES, strict=True)
        ]
    path.parent.mkdir(parents=True, exist_ok=True)
    table = path.with_suffix(".csv")
    rows = every_cell(cells(records), SEARCH, PEERS, PLAIN, "scipy_kde")
    table.write_text(comma_separated(rows), encoding="utf-8")
    path.write_text(
        page(
            records, pictures=all((path.parent / "figures" / name).exists() for name in _PICTURES)
        ),
        encoding="utf-8",
    )
    return [path, table, *files]


def page(records: Sequence[Record], *, pictures: bool) -> str:
    """The text of the page."""
    everything = cells(records)
    main = [cell for cell in everything if cell.data.group in CONTEST]
    walls = [cell for cell in everything if cell.data.box is not None]
    lines = [
        HEADER,
        "## In one table",
        "",
        *overview(main, records),
        "",
        _extent(main),
        "",
        METHOD,
        *_machines(records),
    ]
    if pictures:
        lines += [f"![Differences in held-out log-likelihood](figures/{_PICTURES[0]})", ""]
    lines += [*_losses(main), WHY, CELLS]
    for group in dict.fromkeys(cell.data.group for cell in main):
        here = [cell for cell in main if cell.data.group == group]
        lines += [f"### {group}", "", *every_cell(here, SEARCH, PEERS, PLAIN, "scipy_kde"), ""]
    known = [cell for cell in main if cell.data.law is not None]
    lines += [
        "## Integrated squared error",
        "",
        "×1000; smaller is better.",
        "",
        *field_table(known, "ise", 2, best=min, scale=1e3),
        "",
    ]
    if pictures:
        lines += [f"![Ratios of integrated squared errors](figures/{_PICTURES[1]})", ""]
    lines += ["## Squared MMD to the truth", "", "×1000; smaller is better.", ""]
    lines += [*field_table(main, "mmd2", 3, best=min, scale=1e3), "", WALLS, *_walls(walls), ""]
    lines += _other([cell for cell in everything if cell.data.group == "other"])
    return "\n".join([*lines, *_failures(everything)]).rstrip() + "\n"


def _extent(main: Sequence[Cell]) -> str:
    seeds = sorted(
        {
            found.count
            for cell in main
            if (found := cell.difference(SEARCH, "gmm_stack")) is not None
        }
    )
    counted = (
        f"{seeds[0]} seeds"
        if len(seeds) == 1
        else f"{seeds[0]} to {seeds[-1]} seeds"
        if seeds
        else "no seed"
    )
    whole = sum(len(data.sizes) for data in DATASETS.values() if data.group in CONTEST)
    return f"{len(main)} of {whole} cells, {counted} per cell."


def _machines(records: Sequence[Record]) -> list[str]:
    """Where the records were made: times compare within one machine."""
    made: dict[str, set[str]] = {}
    for record in records:
        if "machine" in record:
            made.setdefault(record["machine"], set()).add(record["contestant"])
    lines = []
    for name, contestants in made.items():
        titles = [CONTESTANTS[key].title for key in CONTESTANTS if key in contestants]
        who = "" if len(made) == 1 else f" ({'; '.join(titles)})"
        lines.append(f"{name}{who}")
    return [f"**These records** were made on: {'; '.join(lines)}.", ""] if lines else []


def _other(here: Sequence[Cell]) -> list[str]:
    """The comparison on other data."""
    if not here:
        return []
    counts = [
        [f"{CONTESTANTS[mine].title} ahead of {title}", str(share_ahead(here, mine, other))]
        for title, (mine, other) in baselines().items()
    ]
    return [
        OTHER_WORDS,
        *markdown(["", "measured"], counts),
        "",
        *every_cell(here, SEARCH, PEERS, PLAIN, "scipy_kde"),
        "",
    ]


def _ise_ratio(cell: Cell, name: str) -> float | None:
    mine, kde = cell.estimate(name, "ise"), cell.estimate("kde", "ise")
    return None if mine is None or kde is None else mine.mean / kde.mean


def _losses(main: Sequence[Cell]) -> list[str]:
    """Every cell in which another method predicts better, by name."""
    lines = ["## Where other methods predict better", ""]
    for title, (mine, other) in baselines().items():
        share = share_ahead(main, mine, other)
        if not share.total:
            continue
        listed = "; ".join(
            f"{cell.label} ({difference_cell(found)})" for cell, found in share.behind
        )
        sure = f", by more than two standard errors in {share.clearly}: {listed}" if listed else ""
        lines += [
            (
                f"**{CONTESTANTS[mine].title} behind {title}** in {len(share.behind)} of"
                f" {share.total} cells{sure}."
            ),
            "",
        ]
    return lines


def _walls(walls: Sequence[Cell]) -> list[str]:
    rows = []
    for cell in walls:
        for name, contestant in CONTESTANTS.items():
            score, ise, outside = (
                cell.estimate(name, field) for field in ("log_likelihood", "ise", "mass_outside")
            )
            if score is None or ise is None or outside is None:
                continue
            ratio = _ise_ratio(cell, name)
            shown = "–" if ratio is None else number(ratio, 2)
            mass = "0" if outside.mean == 0.0 else number(outside.mean, 4)
            rows.append(
                [
                    cell.label,
                    contestant.title,
                    number(score.mean, 3),
                    number(ise.mean * 1e3, 2),
                    shown,
                    mass,
                ]
            )
    return markdown(
        ["", "method", "log-likelihood", "ISE × 1000", "ISE / ISE of KDE", "mass outside"], rows
    )


def _failures(everything: Sequence[Cell]) -> list[str]:
    failed = [line for cell in everything for line in cell.errors()]
    return ["## Failures", "", *(f"- {line}" for line in failed)] if failed else ["No run failed."]
