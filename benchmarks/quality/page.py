"""docs/quality.md, written from the records: words about the method, numbers from what was measured and from nowhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.records import Record
from quality.summary import GMM, KDE, OURS, Cell, Share, better_peer, cells, share_ahead
from quality.tables import difference_cell, field_table, markdown, number
from quality.words import HEADER, METHOD, WALLS, WHY

__all__ = ["page", "write_page"]

_PICTURES = ("quality_log_likelihood.png", "quality_ise.png")


def write_page(records: Sequence[Record], path: Path, *, pictures: bool = True) -> list[Path]:
    """Write the page and its pictures beside it; returns the files."""
    files = []
    if pictures:
        from quality.pictures import draw_ise, draw_log_likelihood  # matplotlib

        main = [cell for cell in cells(records) if cell.data.group != "walls"]
        folder = path.parent / "figures"
        files += [draw(main, folder / name) for draw, name in zip((draw_log_likelihood, draw_ise), _PICTURES, strict=True)]
    path.write_text(page(records, pictures=all((path.parent / "figures" / name).exists() for name in _PICTURES)), encoding="utf-8")
    return [path, *files]


def page(records: Sequence[Record], *, pictures: bool) -> str:
    """The text of the page."""
    everything = cells(records)
    main = [cell for cell in everything if cell.data.group != "walls"]
    walls = [cell for cell in everything if cell.data.box is not None]
    lines = [HEADER, *_headline(main, walls), METHOD]
    if pictures:
        lines += [f"![Differences in held-out log-likelihood](figures/{_PICTURES[0]})", ""]
    lines += _losses(main)
    lines += ["## Held-out log-likelihood", "", "Nats per sample, mean over the seeds ± standard error; larger is better.", ""]
    for group in dict.fromkeys(cell.data.group for cell in main):
        here = [cell for cell in main if cell.data.group == group]
        lines += [f"### {group}", "", *field_table(here, "log_likelihood", 3, best=max), "", *_differences(here), ""]
    known = [cell for cell in main if cell.data.law is not None]
    lines += ["## Integrated squared error", "", "×1000; smaller is better.", "", *field_table(known, "ise", 2, best=min, scale=1e3), ""]
    if pictures:
        lines += [f"![Ratios of integrated squared errors](figures/{_PICTURES[1]})", ""]
    lines += ["## Squared MMD to the truth", "", "×1000; smaller is better; –: not computed.", ""]
    lines += [*field_table(main, "mmd2", 3, best=min, scale=1e3), ""]
    if walls:
        lines += [WALLS, *_walls(walls), ""]
    lines += ["## Time", "", "Seconds of one processor per fit, the choice of all parameters included.", ""]
    lines += [*field_table(main, "seconds", 2, best=min), "", *_failures(everything)]
    return "\n".join(lines).rstrip() + "\n"


def _headline(main: Sequence[Cell], walls: Sequence[Cell]) -> list[str]:
    rows = []
    for name in ("ksos_search", "ksos_mmd"):
        against_kde = share_ahead(main, name, lambda cell: KDE)
        if not against_kde.total:
            continue
        foreign = [cell for cell in main if not cell.data.mixture]
        title = CONTESTANTS[name].title
        rows.append([f"{title}: cells ahead of KDE", str(against_kde)])
        rows.append([f"{title}: farthest behind KDE, nats per sample", _worst(against_kde)])
        rows.append(
            [f"{title}: ahead of the better of KDE and GMM, truth not a Gaussian mixture", str(share_ahead(foreign, name, better_peer))]
        )
        rows.append([f"{title}: ahead of GMM, all cells", str(share_ahead(main, name, lambda cell: GMM))])
    quick = share_ahead(main, "ksos_plain", lambda cell: "scipy_kde")
    if quick.total:
        title, peer = CONTESTANTS["ksos_plain"].title, CONTESTANTS["scipy_kde"].title
        rows.append([f"{title}: cells ahead of {peer}, which does not search either", str(quick)])
        rows.append([f"{title}: farthest behind {peer}, nats per sample", _worst(quick)])
    for cell in walls:
        ratios = _ise_ratio(cell, "ksos_search_box")
        if cell.data.group == "walls" and ratios is not None:
            rows.append([f"{cell.label}, box told: ISE / ISE of KDE", number(ratios, 2)])
    seeds = sorted({found.count for cell in main if (found := cell.difference(OURS, KDE)) is not None})
    counted = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds" if seeds else "no seed"
    whole = sum(len(data.sizes) for data in DATASETS.values() if data.group != "walls")
    return ["## In one table", "", *markdown(["", "measured"], rows), "", f"{len(main)} of {whole} cells, {counted} per cell.", ""]


def _worst(share: Share) -> str:
    return "nowhere behind" if not share.behind else f"{number(-share.worst, 3)} ({share.behind[0][0].label})"


def _ise_ratio(cell: Cell, name: str) -> float | None:
    mine, kde = cell.estimate(name, "ise"), cell.estimate(KDE, "ise")
    return None if mine is None or kde is None else mine.mean / kde.mean


def _differences(here: Sequence[Cell]) -> list[str]:
    rows = [
        [cell.label, difference_cell(cell.difference(OURS, KDE)), difference_cell(cell.difference(OURS, GMM)), _to_truth(cell)]
        for cell in here
    ]
    head = ["paired differences", "ksos likelihood − KDE", "ksos likelihood − GMM", "truth − ksos likelihood"]
    return markdown(head, rows)


def _to_truth(cell: Cell) -> str:
    truth, mine = cell.values(OURS, "true_log_likelihood"), cell.values(OURS, "log_likelihood")
    gaps = [truth[seed] - mine[seed] for seed in truth.keys() & mine.keys()]
    return "–" if not gaps else number(math.fsum(gaps) / len(gaps), 3)


def _losses(main: Sequence[Cell]) -> list[str]:
    """Every cell in which a peer predicts better, by name."""
    lines = ["## Where we lose, and why", ""]
    for title, other in (("KDE", KDE), ("GMM", GMM)):
        share = share_ahead(main, OURS, lambda cell, other=other: other)  # type: ignore[misc]
        if not share.total:
            continue
        listed = "; ".join(f"{cell.label} ({difference_cell(found)})" for cell, found in share.behind)
        lines += [f"**Behind {title}** in {len(share.behind)} of {share.total} cells{': ' if listed else ''}{listed}.", ""]
    return [*lines, WHY]


def _walls(walls: Sequence[Cell]) -> list[str]:
    rows = []
    for cell in walls:
        for name, contestant in CONTESTANTS.items():
            score, ise, outside = (cell.estimate(name, field) for field in ("log_likelihood", "ise", "mass_outside"))
            if score is None or ise is None or outside is None:
                continue
            ratio = _ise_ratio(cell, name)
            shown = "–" if ratio is None else number(ratio, 2)
            mass = "0" if outside.mean == 0.0 else number(outside.mean, 4)
            rows.append([cell.label, contestant.title, number(score.mean, 3), number(ise.mean * 1e3, 2), shown, mass])
    return markdown(["", "contestant", "log-likelihood", "ISE × 1000", "ISE / ISE of KDE", "mass outside"], rows)


def _failures(everything: Sequence[Cell]) -> list[str]:
    failed = [line for cell in everything for line in cell.errors()]
    return ["## Failures", "", *(f"- {line}" for line in failed)] if failed else ["No run failed."]
