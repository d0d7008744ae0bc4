"""The page of what was measured: a summary first, then every cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from quality.records import Record
from quality.summary import Cell, cells
from quality.tables import difference_cell, markdown, plain

from conditional.contestants import CONTESTANTS
from conditional.datasets import DATASETS

__all__ = ["page", "summary"]

OURS = "ksos"
RIVALS = (
    "normal",
    "normal_same",
    "ngboost",
    "ngboost_stopped",
    "xgboost_distribution",
    "quantile_boosting",
    "quantile_forest",
)


def ahead(among: Sequence[Cell], others: Sequence[str], field: str) -> str:
    """In how many cells our mean over the seeds is the lower one, against the best of ``others`` in
    each cell.
    """
    count = total = 0
    for cell in among:
        lead = [
            found.mean
            for name in others
            if (found := cell.difference(OURS, name, field)) is not None
        ]
        total += bool(lead)
        count += bool(lead) and max(lead) < 0.0
    return f"{count} of {total}" if total else "not measured"


def measured(among: Sequence[Cell], names: Sequence[str], field: str) -> list[str]:
    """Those of the methods that have been measured in some cell: a page has no columns for the
    others.
    """
    return [name for name in names if any(cell.values(name, field) for cell in among)]


def summary(among: Sequence[Cell]) -> list[str]:
    """In how many cells ksos is ahead, and the extremes over all cells."""
    nll, crps = "cells with a lower NLL than ", "cells with a lower CRPS than "
    likely, all_others = (measured(among, RIVALS, field) for field in ("nll", "crps"))
    rows = [[nll + CONTESTANTS[name].title, ahead(among, [name], "nll")] for name in likely]
    rows += [[crps + "all other methods at once", ahead(among, all_others, "crps")]]
    rows += [[crps + CONTESTANTS[name].title, ahead(among, [name], "crps")] for name in all_others]
    crossings = sum(value for cell in among for value in cell.values(OURS, "crossings").values())
    near = _farthest(among, "coverage", lambda value: -abs(value - 0.9))
    lowest = _farthest(among, "conformal_coverage", lambda value: value)
    worst = _farthest(among, "worst", lambda value: value, every_seed=True)
    rows += [
        ["coverage of the 90% interval, farthest from 0.9", near],
        ["coverage of the conformal 90% interval, lowest", lowest],
        ["quantiles that cross", f"{crossings:.0f}"],
        ["lowest log-density of a held-out sample", worst],
    ]
    return markdown(["", "measured"], rows)


def _farthest(
    among: Sequence[Cell], field: str, order: Callable[[float], float], every_seed: bool = False
) -> str:
    found = []
    for cell in among:
        values = list(cell.values(OURS, field).values())
        if values:
            found += (
                [(value, cell.label) for value in values]
                if every_seed
                else [(sum(values) / len(values), cell.label)]
            )
    if not found:
        return "not measured"
    value, label = min(found, key=lambda pair: order(pair[0]))
    return f"{plain(value)} ({label})"


def page(records: Sequence[Record]) -> str:
    among = [cell for cell in cells(records, DATASETS) if cell.values(OURS, "crps")]
    seeds = sorted({record["seed"] for record in records})
    machines = sorted({record["machine"] for record in records})
    lines = [
        "# Conditional densities beside boosting and forests",
        "",
        (
            f"{len(among)} of {sum(len(data.sizes) for data in DATASETS.values())} cells, seeds"
            f" {seeds[0]} to {seeds[-1]}; one thread per"
        ),
        "process. Times are processor seconds of the fit, on",
        f"{'; '.join(machines)}.",
        (
            "Friedman's functions have noise of 0.35 times their standard deviation, of five kinds."
            " All numbers"
        ),
        (
            "are in units of the standard deviation of the targets that were fitted. CRPS is twice"
            " the mean"
        ),
        (
            "pinball loss over the levels 0.05, 0.10 … 0.95. The settings of"
            " `KernelSoSConditional()` were chosen"
        ),
        "at n = 300 and n = 1000 with other seeds.",
        "",
        (
            "`python benchmarks/conditional run` measures, `python benchmarks/conditional report`"
            " writes this report."
        ),
        "",
        "## Summary",
        "",
        *summary(among),
        "",
        "## Negative log-likelihood of ksos, and of other methods minus that of ksos",
        "",
        "Positive differences mean that ksos is ahead.",
        "",
        *_differences(among, "nll", measured(among, (*RIVALS, "ksos_joint"), "nll")),
        "",
        "## CRPS of ksos, and of other methods minus that of ksos",
        "",
        *_differences(among, "crps", measured(among, RIVALS, "crps")),
        "",
        "## Coverage of 90% intervals, and their widths",
        "",
        *_means(
            among,
            [
                ("coverage", OURS),
                ("conformal_coverage", OURS),
                *(("coverage", name) for name in measured(among, RIVALS, "coverage")),
            ],
            3,
        ),
        "",
        *_means(
            among,
            [
                ("width", OURS),
                ("conformal_width", OURS),
                *(("width", name) for name in measured(among, RIVALS, "width")),
            ],
            2,
        ),
        "",
        "## Seconds of the fit",
        "",
        *_means(
            among, [("seconds", name) for name in measured(among, list(CONTESTANTS), "seconds")], 2
        ),
        "",
    ]
    failures = [error for cell in among for error in cell.errors()]
    if failures:
        lines += ["## Failures", "", *(f"* {error}" for error in failures), ""]
    return "\n".join(lines)


def _differences(among: Sequence[Cell], field: str, others: Sequence[str]) -> list[str]:
    rows = []
    for cell in among:
        mine = cell.estimate(OURS, field)
        rows.append(
            [
                cell.label,
                str(0 if mine is None else mine.count),
                "–" if mine is None else plain(mine.mean),
                *(difference_cell(cell.difference(name, OURS, field)) for name in others),
            ]
        )
    return markdown(
        ["", "seeds", CONTESTANTS[OURS].title, *(CONTESTANTS[name].title for name in others)], rows
    )


def _means(among: Sequence[Cell], columns: Sequence[tuple[str, str]], digits: int) -> list[str]:
    def text(cell: Cell, field: str, name: str) -> str:
        found = cell.estimate(name, field)
        return "–" if found is None else plain(found.mean, digits)

    titles = [
        CONTESTANTS[name].title + (", conformal" if field.startswith("conformal") else "")
        for field, name in columns
    ]
    return markdown(
        ["", *titles],
        [[cell.label, *(text(cell, *column) for column in columns)] for cell in among],
    )
