"""Many seeds: run what is missing on several processes, choose radii by cross-validation, sum up
with confidence intervals.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["chosen_radius", "interval", "run_seeds", "summary"]


def run_seeds(
    run_seed: Callable[[int], dict[str, Any]], seeds: Sequence[int], out: Path, jobs: int = 1
) -> list[dict[str, Any]]:
    """The records of all seeds, from out/records.jsonl or run now; each is written as soon as it is
    there.
    """
    out.mkdir(parents=True, exist_ok=True)
    file = out / "records.jsonl"
    records = (
        {record["seed"]: record for record in map(json.loads, file.read_text().splitlines())}
        if file.exists()
        else {}
    )
    missing = [seed for seed in seeds if seed not in records]
    with file.open("a") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)

        def keep(record: dict[str, Any]) -> None:
            records[record["seed"]] = record
            stream.write(json.dumps(record) + "\n")
            stream.flush()

        if jobs > 1:
            with ProcessPoolExecutor(jobs) as pool:
                for record in pool.map(run_seed, missing):
                    keep(record)
        else:
            for seed in missing:
                keep(run_seed(seed))
    return [records[seed] for seed in seeds]


def chosen_radius(
    path: Callable[[np.ndarray, list[float]], list[Any]],
    score: Callable[[Any, np.ndarray], float],
    n_samples: int,
    radii: Sequence[float],
    folds: int,
    rng: np.random.Generator,
) -> float:
    """The radius with the least held-out loss. ``path(rows, radii)`` fits, None being an empty
    ball; ``score(fit, rows)`` sums losses.
    """
    order, scores = rng.permutation(n_samples), np.zeros(len(radii))
    for held_out in np.array_split(order, folds):
        fits = path(np.setdiff1d(order, held_out), list(radii))
        scores += [np.inf if fit is None else score(fit, held_out) for fit in fits]
    return float(radii[int(np.argmin(scores))])


def interval(values: np.ndarray) -> tuple[list[float], list[float]]:
    """(means, half-widths of 95 % confidence intervals), over the rows."""
    width = (
        1.96 * values.std(axis=0, ddof=1) / np.sqrt(values.shape[0])
        if values.shape[0] > 1
        else 0.0 * values[0]
    )
    return values.mean(axis=0).tolist(), width.tolist()


def summary(
    records: list[dict[str, Any]], methods: Sequence[str], kinds: Sequence[str], ours: str = "ours"
) -> dict[str, Any]:
    """Per kind and method, means over the seeds at which every method has an answer; and paired
    differences of the others to ours.
    """
    out: dict[str, Any] = {}
    for kind in kinds:
        rows = [
            record
            for record in records
            if all(record[method][kind] is not None for method in methods)
        ]
        out[kind] = {"seeds": len(rows)}
        if not rows:
            continue
        values = {method: np.array([record[method][kind] for record in rows]) for method in methods}
        for method in methods:
            out[kind][method] = dict(
                zip(("mean", "interval"), interval(values[method]), strict=True)
            )
        for method in methods:
            if method != ours:
                pair = interval(values[ours] - values[method])
                out[kind][f"{ours} − {method}"] = dict(zip(("mean", "interval"), pair, strict=True))
    return out
