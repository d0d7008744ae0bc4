"""One piece of work: fit one contestant to the rows of one split and judge it on the others."""

from __future__ import annotations

import time
import warnings

import numpy as np
from quality.records import Key, Record
from quality.work import machine

from conditional.contestants import CONTESTANTS, Law
from conditional.datasets import DATASETS

__all__ = ["LEVELS", "expected_seconds", "line", "measure", "scores"]

LEVELS = np.round(np.arange(0.05, 0.96, 0.05), 2)
NOMINAL = 0.9


def measure(key: Key) -> Record:
    """The record of one contestant on one split: means over the targets; ``seconds`` is the
    processor's time of the fits alone.
    """
    split = DATASETS[key.dataset].split(key.n, key.seed)
    record: Record = {
        **key._asdict(),
        "d": split.X.shape[1],
        "targets": split.y.shape[1],
        "n_train": key.n,
        "machine": machine(),
    }
    seconds, found = 0.0, []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for y, y_test in zip(split.y.T, split.y_test.T, strict=True):
                start = time.process_time()
                law = CONTESTANTS[key.contestant].fit(split.X, y, LEVELS)
                seconds += time.process_time() - start
                found.append(scores(law, split.X_test, y_test, float(y.std())))
    except Exception as error:  # one failure must not stop hours of work, nor be forgotten
        return record | {"error": f"{type(error).__name__}: {error}"}
    record["seconds"] = seconds
    for name in found[0]:
        values = [score[name] for score in found]
        record[name] = (
            min(values)
            if name == "worst"
            else sum(values)
            if name == "crossings"
            else float(np.mean(values))
        )
    return record


def scores(law: Law, X: np.ndarray, y: np.ndarray, unit: float) -> dict[str, float]:
    """Everything in units of the spread of the targets that were fitted.

    ``crps`` is twice the mean pinball loss over the levels 0.05, 0.10 … 0.95, the same for
    everyone; ``coverage`` and ``width`` are those of the interval between the quantiles 0.05 and
    0.95; ``crossings`` counts quantiles that fall where the level rises.
    """
    q = law.quantiles(X, LEVELS)
    excess = (y[:, None] - q) / unit
    inside = (y >= q[:, 0]) & (y <= q[:, -1])
    out = {
        "crps": 2.0 * float(np.mean(np.maximum(LEVELS * excess, (LEVELS - 1.0) * excess))),
        "pinball_05": float(np.mean(np.maximum(0.05 * excess[:, 0], -0.95 * excess[:, 0]))),
        "pinball_95": float(np.mean(np.maximum(0.95 * excess[:, -1], -0.05 * excess[:, -1]))),
        "coverage": float(inside.mean()),
        "width": float(np.mean(q[:, -1] - q[:, 0])) / unit,
        "crossings": float(np.count_nonzero(np.diff(q, axis=1) < 0.0)),
    }
    logpdf = law.logpdf(X, y)
    if logpdf is not None:
        out |= {
            "nll": -float(np.mean(logpdf)) - np.log(unit),
            "worst": float(np.min(logpdf)) + np.log(unit),
        }
    interval = law.conformal(X, NOMINAL)
    if interval is not None:
        out["conformal_coverage"] = float(np.mean((y >= interval[:, 0]) & (y <= interval[:, 1])))
        out["conformal_width"] = float(np.mean(interval[:, 1] - interval[:, 0])) / unit
    return out


def expected_seconds(key: Key) -> float:
    """A guess, so that long pieces begin first."""
    return 1.0 + CONTESTANTS[key.contestant].seconds * key.n / 10_000


def line(key: Key, record: Record) -> str:
    where = f"{key.dataset} n={key.n} seed={key.seed} {key.contestant}"
    if "error" in record:
        return f"{where}: {record['error']}"
    nll = f"NLL {record['nll']:.4f}, " if "nll" in record else ""
    return (
        f"{where}: {nll}CRPS {record['crps']:.4f}, coverage {record['coverage']:.3f},"
        f" {record['seconds']:.2f} s"
    )
