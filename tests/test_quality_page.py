"""The quality page claims what the records say: counts, differences, losses, and where the records
were made.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quality import million, overview, summary
from quality.datasets import CONTEST, DATASETS
from quality.page import page, write_page
from quality.records import Key

PEERS = {
    "kde": 0.0,
    "scipy_kde": -0.1,
    "gmm": 0.1,
    "gmm_cv": 0.05,
    "gmm_stack": 0.15,
    "ksos_plain": -0.12,
}


def made_up(gaps: dict[str, float], seeds: int = 4, n: int | None = None) -> list[dict[str, Any]]:
    """Records in which the search is ahead of KDE by a gap per data set, and the others are as in
    ``PEERS``.
    """
    out = []
    for name, gap in gaps.items():
        for seed in range(seeds):
            noise = 0.3 * seed
            for contestant, value in {**PEERS, "ksos_search": gap + 0.01 * seed}.items():
                size = DATASETS[name].sizes[0] if n is None else n
                record = {
                    "dataset": name,
                    "n": size,
                    "seed": seed,
                    "contestant": contestant,
                    "n_train": size or 200,
                    "seconds": 1.0,
                }
                out.append(
                    {
                        **record,
                        "log_likelihood": value + noise,
                        "true_log_likelihood": 1.0 + noise,
                        "ise": 0.1,
                        "mmd2": 0.01,
                    }
                )
    return out


def test_paired_differences_and_shares() -> None:
    cells = summary.cells(
        made_up({"two_moons": 0.2, "rings": -0.3, "iris": 0.05, "mw10_claw": 0.4})
    )
    moons = next(cell for cell in cells if cell.data.name == "two_moons")
    found = moons.difference("ksos_search", "kde")
    assert found is not None and found.mean == pytest.approx(0.215) and found.count == 4
    assert found.error == pytest.approx(np.std([0.0, 0.01, 0.02, 0.03], ddof=1) / 2.0), (
        "the noise that both share has gone"
    )
    kde = summary.share_ahead(cells, "ksos_search", lambda cell: "kde")
    assert (
        (kde.ahead, kde.total) == (3, 4)
        and kde.worst == pytest.approx(-0.285)
        and kde.behind[0][0].data.name == "rings"
    )
    usual = ("kde", "scipy_kde", "gmm")
    best = summary.share_ahead(cells, "ksos_search", lambda cell: summary.best_of(cell, usual))
    assert (best.ahead, best.total) == (2, 4) and best.clearly == 2, "0.1 above KDE is the GMM"
    assert summary.best_of(moons, (*usual, "ksos_mmd")) is None, (
        "no best where one was not measured"
    )


def rows_of(records: list[dict[str, Any]]) -> list[list[str]]:
    """The first table of the page: what, measured."""
    main = [cell for cell in summary.cells(records) if cell.data.group in CONTEST]
    lines = overview.overview(main, records)
    return [[entry.strip() for entry in line.strip("|").split(" | ")] for line in lines][2:]


def test_the_first_table() -> None:
    small, large = {"rings": 0.12, "two_moons": 0.2}, {"blobs_d10": 0.14, "spirals": 0.3}
    records = [*made_up(small, n=100), *made_up(large, n=1600)]
    for record in records:
        share = {"ksos_search": 3.0, "kde": 2.0}.get(record["contestant"], 1.0)
        record["seconds"] = share * (1.0 if record["n"] == 100 else 4.0)
    found = rows_of(records)
    usual = "search ahead of the best of {KDE by CV, SciPy KDE, GMM by BIC}"
    assert ["search ahead of KDE, CV", "4 of 4 cells"] in found and [usual, "4 of 4 cells"] in found
    at = found.index(["search ahead of the GMM stack", "3 of 4 cells"])
    assert found[at + 1] == ["… farthest behind it", "0.015 nats (rings, n = 100)"]
    assert ["`KernelSoSDensity()` ahead of SciPy KDE", "0 of 4 cells"] in found
    times = dict(found[-3:])
    assert (
        times["search, processor time / that of KDE, CV, n = 1600 in the plane"]
        == "1.5 × (spirals, n = 1600)"
    )
    assert (
        times["search, processor time, n = 1600 in ten features"] == "12.0 s (blobs_d10, n = 1600)"
    )
    assert times["search, processor time, n = 100"] == "3.0 to 3.0 s (two_moons, n = 100)"
    key = Key(million.MILLION, 10**6, 0, "ksos_plain")._asdict()
    fitted = {**key, "seconds": 40.0, "kernel_seconds": 10.0, "support": 300}
    assert rows_of([*records, fitted])[-1][1] == "4.0 × (40.0 s, 300 support points)"
    assert {row[1] for row in rows_of([])} == {"not measured"}, "without records nothing is claimed"


def test_the_page_names_the_losses() -> None:
    text = page(made_up({"two_moons": 0.2, "rings": -0.3, "iris": 0.05}), pictures=False)
    assert (
        "| search ahead of KDE, CV | 2 of 3 cells |" in text
        and "3 of 74 cells, 4 seeds per cell." in text
    )
    kde = (
        "**ksos, search behind KDE, CV** in 1 of 3 cells, by more than two standard errors in 1:"
        " rings, n = 100 (−0.285 ± 0.006)."
    )
    assert kde in text
    assert (
        "| rings, n = 100 | 0.165 | −0.285 ± 0.006 | −0.185 ± 0.006 | −0.385 ± 0.006 | −0.335 ±"
        " 0.006 | −0.435 ± 0.006 | 1.285 |" in text
    )
    assert "| 1 / 1 / 1 / 1 / 1 / 1 / 1 |" in text, "times beside"
    assert "![" not in text and "No run failed." in text
    failed = [
        *made_up({"iris": 0.1}),
        {
            "dataset": "iris",
            "n": 0,
            "seed": 9,
            "contestant": "kde",
            "n_train": 100,
            "error": "ValueError: no",
        },
    ]
    assert "iris, n = 100/200, seed 9, kde: ValueError: no" in page(failed, pictures=False)


def test_other_data_have_a_section_of_their_own() -> None:
    text = page(
        [*made_up({"rings": 0.2}), *made_up({"shells": -0.3, "linnerud": 0.3})], pictures=False
    )
    assert "| search ahead of KDE, CV | 1 of 1 cells |" in text
    before, _, after = text.partition("## Other data")
    assert (
        "| ksos, search ahead of KDE, CV | 1 of 2 |" in after
        and "| shells, n = 200 | 0.165 | −0.285 ± 0.006 |" in after
    )
    assert "shells" not in before and "## Other data" not in page(
        made_up({"rings": 0.2}), pictures=False
    )


def test_the_page_shows_its_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    records = made_up({"two_moons": 0.2, "rings": -0.3, "iris": 20.0}, seeds=2)
    written = write_page(records, tmp_path / "quality.md")
    shown = [
        line[line.index("(") + 1 : -1]
        for line in written[0].read_text(encoding="utf-8").splitlines()
        if line.startswith("![")
    ]
    assert [tmp_path / name for name in shown] == written[2:]
    assert all(file.stat().st_size > 1000 for file in [written[0], *written[2:]])
    rows = list(csv.reader(written[1].read_text(encoding="utf-8").splitlines()))
    assert rows[0][:4] == ["cell", "ksos, search", "− KDE, CV", "− KDE, CV, standard error"]
    moons = next(row for row in rows if row[0] == "two_moons, n = 100")
    assert float(moons[2]) == 0.205 and float(moons[3]) == 0.005


def test_the_page_says_where_its_records_were_made() -> None:
    here, there = (
        [{**record, "machine": "A"} for record in made_up({"iris": 0.1})],
        [{**made_up({"rings": 0.1})[0], "machine": "B"}],
    )
    assert "**These records** were made on: A." in page(here, pictures=False)
    assert "B (KDE, CV)." in page([*here, *there], pictures=False)


def test_the_million_is_measured_beside_its_kernel_sums() -> None:
    record = million.measure_million(n=2000, d=3)
    assert record["n"] == 2000 and record["support"] > 0
    assert record["seconds"] > 0.0 and record["kernel_seconds"] > 0.0
