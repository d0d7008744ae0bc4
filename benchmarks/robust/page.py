"""Put the tables and figures of the robust experiments into docs/robust-learning.md, from the
folder in which their results lie.

PYTHONPATH=src:. python -m benchmarks.robust.page results
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

__all__ = ["filled", "table"]

ROOT = Path(__file__).resolve().parents[2]
SHIFTS = {
    "robust_least_squares": ("0", "1", "2", "4"),
    "robust_kernel_regression": ("0", "½", "1", "1½"),
    "robust_classification": ("0", "½", "1", "1½"),
}
NAMES = {
    "erm": "ERM",
    "logistic": "logistic regression",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "sum of squares (ksos)",
    "ours − semi_infinite": "*ours − semi-infinite dual, paired*",
    "ours − erm": "*ours − ERM, paired*",
}


def table(result: dict[str, Any], kind: str, shifts: tuple[str, ...]) -> str:
    """One kind of radius: a row per method, a column per shift, means with 95 % intervals."""
    title = (
        "radius by cross-validation" if kind.endswith("chosen") else kind.removeprefix("errors, ")
    )
    title = f"error rates, {title}" if kind.startswith("errors") else title
    lines = [
        f"| {title} ({result[kind]['seeds']} seeds) | "
        + " | ".join(f"Δ = {shift}" for shift in shifts)
        + " |"
    ]
    lines.append("|---|" + "---|" * len(shifts))
    for method, name in NAMES.items():
        row = result[kind].get(method)
        if row is None or (method == "logistic" and not kind.startswith("errors")):
            continue
        cells = [
            f"{mean:.4g} ± {width:.2g}"
            for mean, width in zip(row["mean"], row["interval"], strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def filled(page: str, name: str, tables: str) -> str:
    """The page with what lies between its two marks of this name replaced."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in page or end not in page:
        raise ValueError(f"the page has no marks {start} and {end}")
    return re.sub(
        f"{re.escape(start)}.*?{re.escape(end)}",
        lambda _: f"{start}\n\n{tables}\n\n{end}",
        page,
        flags=re.DOTALL,
    )


def main(folder: Path) -> None:
    """Every experiment that has been run."""
    page = ROOT / "docs" / "robust-learning.md"
    text = page.read_text(encoding="utf-8")
    for name, shifts in SHIFTS.items():
        results = folder / name / "summary.json"
        if not results.exists():
            print(f"{results} is not there: its part of the page stays as it is")
            continue
        result = json.loads(results.read_text(encoding="utf-8"))
        kinds = [kind for kind in result if not kind.startswith("errors")] + [
            kind for kind in result if kind.startswith("errors")
        ][:3]
        text = filled(text, name, "\n\n".join(table(result, kind, shifts) for kind in kinds))
        shutil.copy(folder / name / f"{name}.png", ROOT / "docs" / "figures" / f"{name}.png")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results"))
