"""Put the results of the robust experiments into the site: a CSV file of all of them, and the
figures, from the folder in which the results lie.

PYTHONPATH=src:. python -m benchmarks.robust.page results
"""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["HEAD", "rows", "write"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
SHIFTS = {
    "robust_least_squares": ("0", "1", "2", "4"),
    "robust_kernel_regression": ("0", "0.5", "1", "1.5"),
    "robust_classification": ("0", "0.5", "1", "1.5"),
}
NAMES = {
    "erm": "ERM",
    "logistic": "logistic regression",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "ksos",
    "ours − semi_infinite": "ksos minus semi-infinite dual, paired",
    "ours − erm": "ksos minus ERM, paired",
}
HEAD = ("experiment", "radius", "seeds", "method", "shift", "mean", "95% half-width")


def rows(name: str, result: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """A row for each radius, method and shift of an experiment."""
    for kind, found in result.items():
        radius = kind.replace("chosen", "by cross-validation")
        for method in NAMES.keys() & found.keys():
            means, widths = found[method]["mean"], found[method]["interval"]
            for shift, mean, width in zip(SHIFTS[name], means, widths, strict=True):
                yield (
                    name,
                    radius,
                    found["seeds"],
                    NAMES[method],
                    shift,
                    f"{mean:.4g}",
                    f"{width:.2g}",
                )


def write(folder: Path, docs: Path = DOCS) -> None:
    """Every experiment that has been run."""
    every: list[tuple[Any, ...]] = []
    for name in SHIFTS:
        results = folder / name / "summary.json"
        if not results.exists():
            raise SystemExit(f"{results} is missing: run benchmarks.robust.{name[7:]} first")
        every += sorted(rows(name, json.loads(results.read_text(encoding="utf-8"))))
        shutil.copy(folder / name / f"{name}.png", docs / "figures" / f"{name}.png")
    with (docs / "_static" / "benchmarks" / "robust.csv").open("w", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([HEAD, *every])


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
