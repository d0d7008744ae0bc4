"""The first table of the page: how often the fits of ksos are ahead, how far behind at most, and
what they cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quality.contestants import CONTESTANTS
from quality.million import MILLION
from quality.records import Record
from quality.summary import Cell, Share, best_of, share_ahead
from quality.tables import markdown, plain

__all__ = ["PLAIN", "SEARCH", "baselines", "overview"]

PLAIN, SEARCH = "ksos_plain", "ksos_search"


def baselines() -> dict[str, tuple[str, Callable[[Cell], str | None]]]:
    """Each comparison by its title: which fit of ksos, and the other method in a cell."""
    usual = ("kde", "scipy_kde", "gmm")
    titles = ", ".join(CONTESTANTS[name].title.replace(", ", " by ") for name in usual)
    return {
        "KDE, CV": (SEARCH, lambda cell: "kde"),
        f"the best of {{{titles}}}": (SEARCH, lambda cell: best_of(cell, usual)),
        "the GMM stack": (SEARCH, lambda cell: "gmm_stack"),
        "SciPy KDE": (PLAIN, lambda cell: "scipy_kde"),
    }


def overview(main: Sequence[Cell], records: Sequence[Record]) -> list[str]:
    """Markdown, one row per comparison and per time."""
    rows: list[list[str]] = []
    titles = {SEARCH: "search", PLAIN: "`KernelSoSDensity()`"}
    for title, (mine, other) in baselines().items():
        share = share_ahead(main, mine, other)
        measured = f"{share} cells" if share.total else "not measured"
        rows.append([f"{titles[mine]} ahead of {title}", measured])
        rows.append(["… farthest behind it", _farthest(share)])
    plane = [cell for cell in main if cell.data.group == "plane" and cell.n == 1600]
    ten = [cell for cell in main if cell.data.d == 10 and cell.n == 1600]
    few = [cell for cell in main if cell.n_train <= 100]
    title = "search, processor time / that of KDE, CV, n = 1600 in the plane"
    rows.append([title, _range(plane, _time_ratio, " ×")])
    rows.append(["search, processor time, n = 1600 in ten features", _range(ten, _seconds, " s")])
    rows.append(["search, processor time, n = 100", _range(few, _seconds, " s")])
    if (million := _million(records)) is not None:
        rows.append(million)
    return markdown(["", "measured"], rows)


def _farthest(share: Share) -> str:
    if not share.total:
        return "not measured"
    behind = f"{plain(-share.worst)} nats ({share.behind[0][0].label})" if share.behind else ""
    return behind or "nowhere behind"


def _seconds(cell: Cell, name: str = SEARCH) -> float | None:
    found = cell.estimate(name, "seconds")
    return None if found is None else found.mean


def _time_ratio(cell: Cell) -> float | None:
    mine, theirs = _seconds(cell), _seconds(cell, "kde")
    return None if mine is None or theirs is None else mine / theirs


def _range(among: Sequence[Cell], of: Callable[[Cell], float | None], unit: str) -> str:
    """The smallest and the largest mean, and where the latter is."""
    values = {cell.label: value for cell in among if (value := of(cell)) is not None}
    if not values:
        return "not measured"
    label = max(values, key=lambda name: values[name])
    smallest = f"{min(values.values()):.1f} to " if len(values) > 1 else ""
    return f"{smallest}{values[label]:.1f}{unit} ({label})"


def _million(records: Sequence[Record]) -> list[str] | None:
    found = [
        record for record in records if record["dataset"] == MILLION and record["n"] == 1_000_000
    ]
    if not found:
        return None
    seconds, bare = found[-1]["seconds"], found[-1]["kernel_seconds"]
    title = (
        "`KernelSoSDensity()`, n = 10⁶ in ten features, processor time / that of the bare kernel"
        " sums"
    )
    return [
        title,
        f"{seconds / bare:.1f} × ({seconds:.1f} s, {found[-1]['support']} support points)",
    ]
