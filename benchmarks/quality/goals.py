"""The first table of the page: what this package sets out to reach on these cells, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quality.contestants import CONTESTANTS
from quality.million import MILLION
from quality.records import Record
from quality.summary import Cell, Share, best_of, share_ahead
from quality.tables import markdown, plain

__all__ = ["PLAIN", "SEARCH", "goal_table", "rivals"]

PLAIN, SEARCH = "ksos_plain", "ksos_search"

Row = tuple[str, str, str, bool | None]
"""What, the goal, what was measured, and whether that reaches it (None: not measured)."""


def rivals() -> dict[str, tuple[str, Callable[[Cell], str | None]]]:
    """Each comparison by its title: whom of ours, and the peer in a cell."""
    usual = ("kde", "scipy_kde", "gmm")
    titles = ", ".join(CONTESTANTS[name].title.replace(", ", " by ") for name in usual)
    return {
        "KDE, CV": (SEARCH, lambda cell: "kde"),
        f"the best of {{{titles}}}": (SEARCH, lambda cell: best_of(cell, usual)),
        "the GMM stack": (SEARCH, lambda cell: "gmm_stack"),
        "SciPy KDE": (PLAIN, lambda cell: "scipy_kde"),
    }


def goal_table(main: Sequence[Cell], records: Sequence[Record]) -> list[str]:
    """Markdown, one row per goal."""
    rows = [*_shares(main), *_times(main), _million(records)]
    marks = {True: "yes", False: "**no**", None: "–"}
    return markdown(["", "goal", "measured", "reached"], [[what, goal, measured, marks[done]] for what, goal, measured, done in rows])


def _shares(main: Sequence[Cell]) -> list[Row]:
    titles = {SEARCH: "search", PLAIN: "`KernelSoSDensity()`"}
    least = dict(zip(rivals(), (72, 60, 50, 68), strict=True))
    rows: list[Row] = []
    for title, (mine, other) in rivals().items():
        share = share_ahead(main, mine, other)
        what, goal = f"{titles[mine]} ahead of {title}", f"≥ {least[title]} of 74 cells"
        rows.append((what, goal, str(share), share.ahead >= least[title] if share.total else None))
        if title == "the GMM stack":
            few = [cell for cell in main if cell.n_train <= 100]
            many = [cell for cell in main if cell.n_train > 100]
            rows.append(_farthest("… farthest behind it, n = 100", share_ahead(few, mine, other), 0.05))
            rows.append(_farthest("… farthest behind it, n > 100", share_ahead(many, mine, other), 0.02))
        if mine == PLAIN:
            rows.append(_farthest("… farthest behind it", share, 0.05))
    return rows


def _farthest(what: str, share: Share, most: float) -> Row:
    where = "nowhere behind" if not share.behind else f"{plain(-share.worst)} ({share.behind[0][0].label})"
    return what, f"≤ {most} nats", where if share.total else "not measured", -share.worst <= most if share.total else None


def _times(main: Sequence[Cell]) -> list[Row]:
    plane = [cell for cell in main if cell.data.group == "plane" and cell.n == 1600]
    ten = [cell for cell in main if cell.data.d == 10 and cell.n == 1600]
    few = [cell for cell in main if cell.n_train <= 100]
    return [
        _largest("search, processor time / that of KDE, CV, n = 1600 in the plane", 2.0, "", plane, _time_ratio),
        _largest("search, processor time, n = 1600 in ten features", 15.0, " s", ten, _seconds),
        _largest("search, processor time, n = 100", 2.0, " s", few, _seconds),
    ]


def _seconds(cell: Cell, name: str = SEARCH) -> float | None:
    found = cell.estimate(name, "seconds")
    return None if found is None else found.mean


def _time_ratio(cell: Cell) -> float | None:
    mine, theirs = _seconds(cell), _seconds(cell, "kde")
    return None if mine is None or theirs is None else mine / theirs


def _largest(what: str, most: float, unit: str, among: Sequence[Cell], of: Callable[[Cell], float | None]) -> Row:
    """The largest mean, and where."""
    values = {cell.label: value for cell in among if (value := of(cell)) is not None}
    goal = f"≤ {most:g}{unit or ' ×'}"
    if not values:
        return what, goal, "not measured", None
    label = max(values, key=lambda name: values[name])
    smallest = f"{min(values.values()):.1f} to " if len(values) > 1 else ""
    return what, goal, f"{smallest}{values[label]:.1f}{unit or ' ×'} ({label})", values[label] <= most


def _million(records: Sequence[Record]) -> Row:
    what, goal = "`KernelSoSDensity()`, n = 10⁶ in ten features, processor time / that of the bare kernel sums", "≤ 5 ×"
    found = [record for record in records if record["dataset"] == MILLION and record["n"] == 1_000_000]
    if not found:
        return what, goal, "not measured", None
    seconds, bare = found[-1]["seconds"], found[-1]["kernel_seconds"]
    return what, goal, f"{seconds / bare:.1f} × ({seconds:.1f} s, {found[-1]['support']} support points)", seconds / bare <= 5.0
