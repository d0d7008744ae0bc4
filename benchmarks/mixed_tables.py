"""Tables with categorical columns and missing cells: held-out log-likelihoods against one density
per class, independent columns and a mixed kernel density estimate; what missing cells cost;
imputation.

    python benchmarks/mixed_tables.py [--tables iris wine …] [--seeds 5] [--output FILE] [--quick]

Scores are nats per row at held-out rows, of which no cell is missing. Numeric columns have their
standard deviations as units. The classes of scikit-learn's tables are categorical columns, and so
is the sex of diabetes; the other tables are simulated. Of each seed, two thirds of the rows are for
training. Cells are missing at random in the training rows, 10% and 30% of them.
"""

from __future__ import annotations

import csv
import itertools
import math
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from quick import parse, parser_of
from scipy.special import logsumexp
from sklearn import datasets
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer

import ksos
from ksos.choose import MixedSearch
from ksos.data import random_folds
from ksos.density import MixedTerms

STRENGTHS = [math.inf, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3]
SHARES = (0.1, 0.3)
"""Of the cells that are missing."""


class Table(NamedTuple):
    """Numeric cells, codes, and the numbers of levels."""

    u: np.ndarray
    c: np.ndarray
    levels: tuple[int, ...]

    def rows(self, index: np.ndarray) -> Table:
        return Table(self.u[index], self.c[index], self.levels)


def with_classes(load: Callable[[], Any]) -> Table:
    data = load()
    codes = data.target[:, None].astype(int)
    return Table(within_steps(data.data), codes, (len(data.target_names),))


def diabetes() -> Table:
    data = datasets.load_diabetes(scaled=False).data
    sex = (data[:, 1] == 2.0).astype(int)
    return Table(within_steps(np.delete(data, 1, axis=1)), sex[:, None], (2,))


def within_steps(u: np.ndarray) -> np.ndarray:
    """Values anywhere in the steps to which they have been rounded: what many rows share would have
    any density, and decide every comparison.
    """
    rng, out = np.random.default_rng(0), u.copy()
    for k, x in enumerate(u.T):
        step = float(np.min(np.diff(np.unique(x))))
        out[:, k] += step * (rng.random(x.size) - 0.5)
    return out


def classes(levels: tuple[int, ...], d: int, seed: int, n: int = 600) -> Table:
    """Hidden classes, each with a normal distribution and levels of its own; one column is bent."""
    rng, K = np.random.default_rng(seed), 4
    means, roots = 2.0 * rng.normal(size=(K, d)), 0.6 * rng.normal(size=(K, d, d))
    chances = [rng.dirichlet(0.7 * np.ones(count), K) for count in levels]
    k = rng.integers(K, size=n)
    u = means[k] + np.einsum("nij,nj->ni", roots[k] + 0.5 * np.eye(d), rng.normal(size=(n, d)))
    if d > 1:
        u[:, 0] += 0.3 * u[:, 1] ** 2
    drawn = [(one[k].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1) for one in chances]
    return Table(u, np.minimum(np.stack(drawn, axis=1), np.array(levels) - 1), levels)


def causes(seed: int, n: int = 500) -> Table:
    """Levels that follow from numbers, and numbers that follow from levels."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    smoker = (rng.random(n) < 1.0 / (1.0 + np.exp(-1.5 * x))).astype(int)
    region = rng.integers(4, size=n)
    y = np.sin(2.0 * x) + smoker + 0.5 * region + 0.3 * rng.normal(size=n)
    grade = np.digitize(y + 0.3 * rng.normal(size=n), [0.5, 1.5])
    z = rng.gamma(2.0 + smoker, 1.0, size=n)
    return Table(np.stack([x, y, z], axis=1), np.stack([smoker, region, grade], axis=1), (2, 4, 3))


TABLES: dict[str, Callable[[], Table]] = {
    "iris": lambda: with_classes(datasets.load_iris),
    "wine": lambda: with_classes(datasets.load_wine),
    "breast cancer": lambda: with_classes(datasets.load_breast_cancer),
    "diabetes": diabetes,
    "hidden classes, 2 + 2": lambda: classes((2, 3), 2, 0),
    "hidden classes, 5 + 3": lambda: classes((2, 3, 4), 5, 1),
    "hidden classes, 1 + 4": lambda: classes((2, 2, 5, 3), 1, 2),
    "causes, 3 + 3": lambda: causes(3),
}


def fitted(table: Table, seed: int = 0) -> MixedTerms:
    """The chosen density of a table; without categories, for the baselines, as well."""
    n = table.u.shape[0]
    folds = random_folds(np.ones(n), None, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    search = MixedSearch(*table, np.ones(n), folds, [3.0], STRENGTHS, rng=rng)
    search.run()
    found: MixedTerms = search.answer(1e-4)[0].distribution
    return found


# Baselines: functions of training rows that give log-densities at test rows


def log_shares(codes: np.ndarray, count: int) -> np.ndarray:
    counts = np.bincount(codes, minlength=count) + 0.5
    return np.log(counts / counts.sum())


def per_class(train: Table, test: Table) -> np.ndarray:
    """Of each class, which is the last column, a density of the numeric columns, and shares of the
    levels of the others.
    """
    y, last = train.c[:, -1], len(train.levels) - 1
    out = log_shares(y, train.levels[-1])[test.c[:, -1]]
    for level in range(train.levels[-1]):
        own, at = np.flatnonzero(y == level), np.flatnonzero(test.c[:, -1] == level)
        some = own if own.size >= 5 else np.arange(y.size)  # else: no density of their own
        out[at] += by_search(train.u[some], test.u[at])
        for j in range(last):
            out[at] += log_shares(train.c[some, j], train.levels[j])[test.c[at, j]]
    return out


def independent(train: Table, test: Table) -> np.ndarray:
    out = np.zeros(test.u.shape[0])
    for k in range(train.u.shape[1]):
        out += by_search(train.u[:, [k]], test.u[:, [k]])
    for j, count in enumerate(train.levels):
        out += log_shares(train.c[:, j], count)[test.c[:, j]]
    return out


def by_search(X: np.ndarray, at: np.ndarray) -> np.ndarray:
    if not at.shape[0]:
        return np.empty(0)
    return np.asarray(ksos.KernelSoSDensityCV().fit(X).score_samples(at))


def mixed_kde(train: Table, test: Table) -> np.ndarray:
    """Products of normal kernels and kernels on levels, 1 − λ for the same one and λ/(levels − 1)
    for another; both widths by the leave-one-out likelihood.
    """
    scale = train.u.std(axis=0) * train.u.shape[0] ** (-1.0 / (train.u.shape[1] + 4))
    best: tuple[float, Any] = -math.inf, None
    for h, share in itertools.product(np.geomspace(0.1, 2.0, 14), np.geomspace(1e-3, 0.5, 8)):
        logs = kernels(train, train, h * scale, share)
        np.fill_diagonal(logs, -np.inf)
        value = float(np.mean(logsumexp(logs, axis=1)))
        best = max(best, (value, (h, share)))
    h, share = best[1]
    return np.asarray(logsumexp(kernels(test, train, h * scale, share), axis=1)) - math.log(
        train.u.shape[0]
    )


def kernels(a: Table, b: Table, width: np.ndarray, share: float) -> np.ndarray:
    out = np.zeros((a.u.shape[0], b.u.shape[0]))
    for k, h in enumerate(width):
        away = (a.u[:, k, None] - b.u[:, k]) / h
        out -= 0.5 * away**2 + math.log(h * math.sqrt(2.0 * math.pi))
    for j, count in enumerate(a.levels):
        same = a.c[:, j, None] == b.c[:, j]
        other = min(share, 1.0 - 1.0 / count)
        out += np.where(same, math.log(1.0 - other), math.log(other / (count - 1)))
    return out


BASELINES = {"per class": per_class, "independent": independent, "mixed KDE": mixed_kde}


# Missing cells


def with_gaps(table: Table, share: float, seed: int) -> Table:
    """A share of the cells is missing, but no row without any cell."""
    rng = np.random.default_rng(1000 + seed)
    u, c = table.u.copy(), table.c.copy()
    gone = rng.random((u.shape[0], u.shape[1] + c.shape[1])) < share
    whole = gone.all(axis=1)
    gone[whole, rng.integers(gone.shape[1], size=int(whole.sum()))] = False
    u[gone[:, : u.shape[1]]], c[gone[:, u.shape[1] :]] = np.nan, -1
    return Table(u, c, table.levels)


def imputed(p: MixedTerms, table: Table) -> Table:
    """Means of numeric cells, and the most probable levels."""
    c = table.c.copy()
    for j in range(len(table.levels)):
        rows = np.flatnonzero(table.c[:, j] < 0)
        if rows.size:
            c[rows, j] = p.posterior(table.u[rows], table.c[rows], j).argmax(axis=1)
    return Table(p.conditional_moments(table.u, table.c)[0], c, table.levels)


def imputed_by(imputer: Any, table: Table) -> Table:
    """By an imputer of scikit-learn, levels being columns of zeros and ones."""
    columns = [table.u]
    for j, count in enumerate(table.levels):
        ones = np.eye(count)[table.c[:, j]]
        ones[table.c[:, j] < 0] = np.nan
        columns.append(ones)
    found = imputer.fit_transform(np.concatenate(columns, axis=1))
    d, ends = table.u.shape[1], table.u.shape[1] + np.cumsum(table.levels)
    codes = [
        found[:, end - count : end].argmax(axis=1)
        for end, count in zip(ends, table.levels, strict=True)
    ]
    return Table(found[:, :d], np.stack(codes, axis=1), table.levels)


def errors(found: Table, whole: Table, gaps: Table) -> tuple[float, float]:
    """Root mean square of missing numbers, in standard deviations; accuracy of missing levels."""
    numbers, levels = np.isnan(gaps.u), gaps.c < 0
    away = (found.u - whole.u) / whole.u.std(axis=0)
    rmse = math.sqrt(float(np.mean(away[numbers] ** 2))) if numbers.any() else math.nan
    right = found.c[levels] == whole.c[levels]
    return rmse, float(np.mean(right)) if levels.any() else math.nan


IMPUTERS: dict[str, Callable[[], Any]] = {
    "IterativeImputer": lambda: IterativeImputer(random_state=0),
    "KNNImputer": KNNImputer,
}


def run(name: str, seed: int, shares: tuple[float, ...], most: int | None) -> list[dict[str, Any]]:
    """Rows of the result: table, seed, what, and a number."""
    table = TABLES[name]()
    rng = np.random.default_rng(seed)
    order = rng.permutation(table.u.shape[0])[:most]
    cut = (2 * order.size) // 3
    train, test = table.rows(order[:cut]), table.rows(order[cut:])
    shift, scale = train.u.mean(axis=0), train.u.std(axis=0)
    train, test = (one._replace(u=(one.u - shift) / scale) for one in (train, test))
    rows: list[dict[str, Any]] = []

    def note(what: str, value: float) -> None:
        rows.append({"table": name, "seed": seed, "what": what, "value": value})

    start = time.process_time()
    p = fitted(train)
    note("seconds", time.process_time() - start)
    score = float(p.log_density(test.u, test.c).mean())
    note("score", score)
    note("corrected", float(not p.correction.is_silent))
    for baseline, log_density in BASELINES.items():
        note(f"ahead of {baseline}", score - float(log_density(train, test).mean()))
    for share in shares:
        gaps, start = with_gaps(train, share, seed), time.process_time()
        q = fitted(gaps)
        note(f"seconds, {share:.0%} missing", time.process_time() - start)
        loss = score - float(q.log_density(test.u, test.c).mean())
        note(f"loss, {share:.0%} missing", loss)
        found = {"ksos": imputed(q, gaps)}
        found |= {other: imputed_by(make(), gaps) for other, make in IMPUTERS.items()}
        for who, filled in found.items():
            rmse, accuracy = errors(filled, train, gaps)
            note(f"RMSE, {share:.0%} missing, {who}", rmse)
            note(f"accuracy, {share:.0%} missing, {who}", accuracy)
    return rows


def report(rows: list[dict[str, Any]]) -> None:
    """Means over the seeds by table, and of all tables; shares of the runs that are ahead."""
    names, whats = (list(dict.fromkeys(row[key] for row in rows)) for key in ("table", "what"))
    for what in whats:
        every = np.array([row["value"] for row in rows if row["what"] == what])
        each = [
            np.nanmean(
                [row["value"] for row in rows if (row["table"], row["what"]) == (name, what)]
            )
            for name in names
        ]
        ahead = f"  ahead in {np.mean(every > 0.0):.0%}" if what.startswith("ahead") else ""
        print(f"{what:40s} {np.nanmean(each):8.3f}{ahead}")
        print(
            "    " + ", ".join(f"{name} {one:.3f}" for name, one in zip(names, each, strict=True))
        )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--missing", type=float, nargs="*", default=list(SHARES))
    parser.add_argument("--most", type=int, help="rows of a table at most")
    parser.add_argument("--output", type=Path, help="a CSV file of all numbers")
    options = parse(parser, tables=["causes, 3 + 3"], seeds=1, missing=[0.1], most=90)
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of few values, and imputers that do not converge
        for name, seed in itertools.product(options.tables, range(options.seeds)):
            rows += run(name, seed, tuple(options.missing), options.most)
            print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
    report(rows)
    if options.output is not None:
        with options.output.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["table", "seed", "what", "value"])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
