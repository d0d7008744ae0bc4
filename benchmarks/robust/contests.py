"""Decisions of ksos and of others on real series: python -m benchmarks.robust.contests.

**The same optimum.** Problems that another package or a few lines of CVXPY solve as well: the dual
on points of a grid, `dro` (MMD, χ² and Wasserstein balls) and skfolio's distributionally robust
CVaR. Printed are both optima and the processor seconds of both.

**Rolling windows.** Each method decides on a window and pays for what follows, for several radii.
A radius trades the mean cost for the mean of the worst 5%, so methods are compared **at equal mean
cost**: the least worst-5% cost, by linear interpolation over the radius, whose mean cost exceeds
that of the sample average by no more than an allowance. Intervals are of resampled windows.

The series ship with statsmodels, arch and skfolio, and the full run needs these and dro:
pip install statsmodels arch skfolio "dro>=0.4.3". The quick one has simulated series.
"""

from __future__ import annotations

import csv
import importlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np

import ksos
from benchmarks.quick import parse, parser_of
from benchmarks.robust.decisions import Problem, by_hand, newsvendor, portfolio, two_products
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete

PACKAGES = 'pip install statsmodels arch skfolio "dro>=0.4.3", or use --quick'
TAIL = 0.05
MMD = (0.003, 0.01, 0.03, 0.1, 0.2)
CHI2 = (0.01, 0.05, 0.2, 0.5, 1.0, 2.0)
# in units of the mean absolute deviation of a column
WASSERSTEIN = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def needed(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SystemExit(f"{module} is not installed ({error}): {PACKAGES}") from None


# A loss is a maximum of functions a·x + b, with expressions a and b of the decision.


@dataclass
class Model:
    pieces: list[tuple[Any, Any]]
    decision: Any
    constraints: list[Any] = field(default_factory=list)
    value: float = np.nan
    """What was minimized."""

    def losses(self, X: np.ndarray) -> Any:
        return cp.maximum(*(X @ a + b for a, b in self.pieces))


def orders(d: int) -> Model:
    """4 for a missing unit, 1 for one that is left over."""
    q = cp.Variable(1)
    return Model([(np.array([4.0]), -4.0 * q[0]), (np.array([-1.0]), q[0])], q)


def shares(d: int) -> Model:
    """The mean loss and the CVaR at 5% of a portfolio."""
    w, level = cp.Variable(d, nonneg=True), cp.Variable()
    steep = 1.0 + 1.0 / TAIL
    return Model([(-w, level), (-steep * w, (2.0 - steep) * level)], w, [cp.sum(w) == 1.0])


def lines(d: int) -> Model:
    """The absolute error of a line, with y in the last column."""
    w = cp.Variable(d)
    a = cp.hstack([-w[:-1], 1.0])
    return Model([(a, -w[-1]), (-a, w[-1])], w)


# Methods: from a window, a box and a radius to what is minimized.


def solved(model: Model, objective: Any, more: Sequence[Any] = ()) -> np.ndarray:
    problem = cp.Problem(cp.Minimize(objective), [*model.constraints, *more])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solutions that are a little less accurate
        model.value = problem.solve(solver=cp.CLARABEL)
    return np.array(model.decision.value)


def sample_average(model: Model, past: np.ndarray, box: Box, radius: float) -> np.ndarray:
    return solved(model, cp.sum(model.losses(past)) / len(past))


def chi2(model: Model, past: np.ndarray, box: Box, radius: float) -> np.ndarray:
    """Weights p with Σ (n p_i − 1)² ≤ n·radius."""
    eta = cp.Variable()
    above = cp.norm(cp.pos(model.losses(past) - eta)) / np.sqrt(len(past))
    return solved(model, eta + np.sqrt(1.0 + radius) * above)


def wasserstein(model: Model, past: np.ndarray, box: Box, radius: float) -> np.ndarray:
    """Distributions on the box whose 1-Wasserstein distance to the data is at most the radius, with
    the sum of absolute differences as distance of points (Esfahani and Kuhn, 2018).
    """
    scale = float(np.mean(np.abs(past - past.mean(axis=0))))
    (n, d), price, s = past.shape, cp.Variable(), cp.Variable(len(past))
    limits, bounded = [], np.isfinite(box.high)
    for a, b in model.pieces:
        up, down = cp.Variable((n, d), nonneg=True), cp.Variable((n, d), nonneg=True)
        above = np.where(bounded, box.high, past.max(axis=0)) - past
        room = cp.multiply(up, above) + cp.multiply(down, past - box.low)
        limits.append(cp.multiply(up, ~bounded + np.zeros((n, 1))) == 0.0)
        limits.append(past @ a + b + cp.sum(room, axis=1) <= s)
        tilt = up - down - np.ones((n, 1)) @ cp.reshape(a, (1, d), order="C")
        limits.append(cp.abs(tilt) <= price)
    return solved(model, radius * scale * price + cp.sum(s) / n, limits)


def decided(model: Model, past: np.ndarray, domain: Any, radius: float) -> np.ndarray:
    risk = ksos.risk.pieces([lambda P, a=a, b=b: P @ a + b for a, b in model.pieces])
    ball = ksos.Ball(past, radius, domain=domain)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where a bound is as close as the solver can
        ksos.decide(risk, ball, model.constraints, rtol=2e-2)
    return np.array(model.decision.value)


def on_box(model: Model, past: np.ndarray, box: Box, radius: float) -> np.ndarray:
    return decided(model, past, box, radius)


def on_samples(model: Model, past: np.ndarray, box: Box, radius: float) -> np.ndarray:
    return decided(model, past, "samples", radius)


METHODS: dict[str, tuple[Callable[..., np.ndarray], tuple[float, ...]]] = {
    "sample average": (sample_average, (0.0,)),
    "ksos, box": (on_box, MMD),
    "ksos, samples": (on_samples, MMD),
    "chi-square": (chi2, CHI2),
    "Wasserstein": (wasserstein, WASSERSTEIN),
}


# Series.


@dataclass
class Contest:
    name: str
    series: np.ndarray
    model: Callable[[int], Model]
    cost: Callable[[np.ndarray, np.ndarray], np.ndarray]
    window: int
    step: int
    allowances: tuple[float, float]
    """Shares of the absolute mean cost of the sample average."""
    on_box: tuple[float, ...] = MMD
    """Radii of ksos on the box, where a decision takes longest."""
    methods: tuple[str, ...] = tuple(METHODS)
    low: float = -np.inf


def order_cost(q: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.maximum(4.0 * (X[:, 0] - q[0]), q[0] - X[:, 0])


def share_cost(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    return -X @ w


def line_cost(w: np.ndarray, X: np.ndarray) -> np.ndarray:
    return np.abs(X[:, -1] - X[:, :-1] @ w[:-1] - w[-1])


def contests(quick: bool) -> Iterator[Contest]:
    if quick:
        rng = np.random.default_rng(0)
        demand = rng.lognormal(3.0, 0.4, size=(40, 1))
        yield Contest("order", demand, orders, order_cost, 20, 10, (0.02, 0.05), MMD[2:3], low=0.0)
        returns = rng.standard_t(4, size=(60, 3)) / 50.0 + 0.002
        some = ("sample average", "ksos, samples", "chi-square", "Wasserstein")
        yield Contest("portfolio", returns, shares, share_cost, 40, 10, (0.1, 0.25), (), some)
        return
    data = needed("statsmodels.api").datasets
    nile = data.nile.load_pandas().data["volume"].to_numpy(float)
    spots = data.sunspots.load_pandas().data["SUNACTIVITY"].to_numpy(float)
    nino = data.elnino.load_pandas().data.to_numpy(float)[:, 1:].ravel()
    volume = needed("arch.data.nasdaq").load()["Volume"].resample("W").mean().to_numpy() / 1e8
    for name, series, window, step in (
        ("order, Nile", nile, 30, 5),
        ("order, sunspots", spots, 30, 5),
        ("order, El Nino", nino, 48, 12),
        ("order, NASDAQ volume", volume, 52, 13),
    ):
        yield Contest(
            name, series[:, None], orders, order_cost, window, step, (0.02, 0.05), low=0.0
        )
    lags = np.column_stack([spots[1:-1], spots[:-2], spots[2:]]) / 50.0
    yield Contest(
        "line, sunspots", lags, lines, line_cost, 60, 12, (0.02, 0.05), (0.02, 0.05, 0.1), low=0.0
    )
    prices = needed("skfolio.datasets").load_sp500_dataset().resample("W").last()
    returns = prices.pct_change().dropna().to_numpy()
    yield Contest(
        "portfolio, 3 stocks", returns[:, [8, 12, 19]], shares, share_cost, 104, 104, (0.1, 0.25),
        (0.03, 0.1),
    )  # fmt: skip
    most = tuple(name for name in METHODS if name != "ksos, box")
    yield Contest(
        "portfolio, 20 stocks", returns, shares, share_cost, 104, 26, (0.1, 0.25), MMD, most
    )


def paid(contest: Contest, name: str) -> tuple[np.ndarray, np.ndarray, float]:
    """The radii, the costs (radii, windows, steps) and the processor seconds of a method."""
    method, radii = METHODS[name]
    radii = contest.on_box if name == "ksos, box" else radii
    series, window, step = contest.series, contest.window, contest.step
    starts = range(0, len(series) - window - step + 1, step)
    costs, began = np.empty((len(radii), len(starts), step)), time.process_time()
    for j, start in enumerate(starts):
        past, future = np.split(series[start : start + window + step], [window])
        reach = 0.25 * (past.max(axis=0) - past.min(axis=0))
        low = np.maximum(past.min(axis=0) - reach, contest.low)
        box = Box(low, past.max(axis=0) + reach)
        for i, radius in enumerate(radii):
            model = contest.model(series.shape[1])
            costs[i, j] = contest.cost(method(model, past, box, radius), future)
    return np.array(radii), costs, time.process_time() - began


def summary(costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and mean of the worst 5%, for each radius."""
    flat = np.sort(costs.reshape(costs.shape[0], -1), axis=1)
    return flat.mean(axis=1), flat[:, -max(round(TAIL * flat.shape[1]), 1) :].mean(axis=1)


def at_equal_mean(mean: np.ndarray, tail: np.ndarray, most: float) -> float:
    """The least tail on the path over the radii where the mean is at most ``most``."""
    shares = np.linspace(0.0, len(mean) - 1.0, 64 * (len(mean) - 1) + 1)
    steps = np.arange(len(mean))
    allowed = np.interp(shares, steps, mean) <= most + 1e-12
    return float(np.interp(shares, steps, tail)[allowed].min())


def compared(contest: Contest, resamples: int) -> Iterator[dict[str, Any]]:
    found = {name: paid(contest, name) for name in contest.methods}
    base = found["sample average"][1]
    rng, windows = np.random.default_rng(0), base.shape[1]
    draws = [np.arange(windows), *rng.integers(0, windows, size=(resamples, windows))]
    for name, (radii, costs, seconds) in found.items():
        # every path begins at the sample average
        path = base if name == "sample average" else np.concatenate([base, costs])
        means, tails = summary(path)
        row: dict[str, Any] = {"contest": contest.name, "method": name, "windows": windows}
        row["seconds per decision"] = seconds / (len(radii) * windows)
        row |= {"mean cost": means[0], "worst 5%": tails[0]}
        for allowance in (0.0, *contest.allowances):
            ratios = []
            for draw in draws:
                mean, tail = summary(path[:, draw])
                most = mean[0] + allowance * abs(mean[0])
                ratios.append(at_equal_mean(mean, tail, most) / tail[0])
            low, high = np.quantile(ratios, [0.05, 0.95])
            row[f"ratio at +{allowance:.0%}"] = ratios[0]
            row[f"from, at +{allowance:.0%}"], row[f"to, at +{allowance:.0%}"] = low, high
        yield row


# The same optimum.


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    return work(), time.process_time() - began


def decided_problem(problem: Problem) -> Any:
    return ksos.decide(problem.risk, problem.ball, problem.subject_to, rtol=problem.rtol)


def same_optimum(quick: bool) -> Iterator[tuple[str, float, float, float, float]]:
    """Problem, optimum of ksos, of the other, and their seconds."""
    small = [newsvendor(20), portfolio(5, 1e-6, 2.0, n=40, samples=True)]
    for problem in small if quick else [newsvendor(), two_products(), portfolio(2, 1e-2, 2.0)]:
        found, mine = timed(lambda p=problem: decided_problem(p))
        other, theirs = by_hand(problem, quick)
        yield f"CVXPY on a grid: {problem.name}", found.value, other, mine, theirs
    if quick:
        return
    needed("dro")
    yield from _dro()
    yield _skfolio()


def _dro() -> Iterator[tuple[str, float, float, float, float]]:
    from dro.linear_model.chi2_dro import Chi2DRO
    from dro.linear_model.mmd_dro import MMD_DRO
    from dro.linear_model.wasserstein_dro import WassersteinDRO

    rng = np.random.default_rng(0)
    X, radius, gamma = rng.uniform(-1.0, 1.0, size=(60, 2)), 0.05, 2.0
    noisy = X @ [0.5, -0.3] + 0.2 * rng.normal(size=60)
    for kind, y in (("lad", noisy), ("ols", noisy), ("svm", np.where(noisy > 0.0, 1.0, -1.0))):
        model = MMD_DRO(2, kind, sampling_method="hull", kernel_gamma=gamma)
        model.update({"eta": radius})
        np.random.seed(0)
        _, theirs = timed(lambda m=model, t=y: m.fit(X, t, accelerate=False))
        # dro has drawn these points, in this order
        np.random.seed(0)
        if kind == "svm":
            drawn = [np.random.uniform(-1, 1, (60, 2)), np.random.choice([-1, 1], (60, 1))]
        else:
            drawn = [np.random.uniform(X.min(), X.max(), (60, 2))]
            drawn.append(np.random.uniform(y.min(), y.max(), (60, 1)))
        data = np.column_stack([X, y])
        points = Discrete(np.concatenate([data, np.hstack(drawn)]))
        ball = ksos.Ball(data, radius, kernel=Gaussian(gamma**-0.5), domain=points)
        w, b = cp.Variable(2), cp.Variable()
        risk = {
            "lad": ksos.risk.absolute(lambda P: P[:, 2] - P[:, :2] @ w - b),  # noqa: B023
            "ols": ksos.risk.expectation(
                lambda P: cp.square(P[:, 2] - P[:, :2] @ w - b)  # noqa: B023
            ),
            "svm": ksos.risk.hinge(lambda P: cp.multiply(P[:, 2], P[:, :2] @ w + b)),  # noqa: B023
        }[kind]
        found, mine = timed(lambda r=risk, at=ball: ksos.decide(r, at, rtol=1e-6))
        yield f"dro, MMD ball, {kind}", found.value, model.robust_obj, mine, theirs
    # what the windows below use, against dro
    data, line = np.column_stack([X, noisy]), lines(3)
    box = Box(np.full(3, -1e3), np.full(3, 1e3))
    for name, method, other in (
        ("chi-square", chi2, Chi2DRO(2, "lad")),
        ("Wasserstein", wasserstein, WassersteinDRO(2, "lad")),
    ):
        scale = 1.0 if name == "chi-square" else float(np.mean(np.abs(data - data.mean(axis=0))))
        other.update({"eps": radius * scale} | ({} if name == "chi-square" else {"kappa": 1.0}))
        _, theirs = timed(lambda o=other: o.fit(X, noisy))
        _, mine = timed(lambda m=method: m(line, data, box, radius))
        yield f"dro, {name} ball, lad", line.value, other.robust_obj, mine, theirs


def _skfolio() -> tuple[str, float, float, float, float]:
    optimization = needed("skfolio.optimization")
    R = np.random.default_rng(0).standard_t(4, size=(60, 4)) / 50.0 + 0.002
    scale = float(np.mean(np.abs(R - R.mean(axis=0))))
    theirs_model = optimization.DistributionallyRobustCVaR(wasserstein_ball_radius=0.1 * scale)
    _, theirs = timed(lambda: theirs_model.fit(R))
    box = Box(np.full(4, -1.0), np.full(4, np.inf))
    w, mine = timed(lambda: wasserstein(shares(4), R, box, 0.1))
    apart = float(np.abs(w - theirs_model.weights_).max())
    return "skfolio, Wasserstein, 1 + weights apart", 1.0, 1.0 + apart, mine, theirs


def main(words: Sequence[str] | None = None) -> list[dict[str, Any]]:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, help="a CSV file for the results of the windows")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--only", default="", help="contests whose name has this in it")
    options = parse(parser, words, resamples=20)
    cp.Problem(cp.Minimize(cp.square(cp.Variable() - 1.0))).solve(solver=cp.CLARABEL)
    print(f"{'the same optimum':48}{'here':>10}{'other':>10}{'seconds':>9}{'other':>8}")
    for name, mine, other, seconds, theirs in same_optimum(options.quick):
        print(f"{name:48}{mine:10.5f}{other:10.5f}{seconds:9.2f}{theirs:8.2f}")
        assert abs(mine - other) <= 0.01 * abs(other), f"{name}: the optima differ"
    rows: list[dict[str, Any]] = []
    for contest in contests(options.quick):
        if options.only in contest.name:
            rows += compared(contest, options.resamples)
            _print([row for row in rows if row["contest"] == contest.name])
    if options.out:
        with options.out.open("w", newline="", encoding="utf-8") as file:
            kept = ["+0%", "+small", "+large"]
            names = [
                *list(rows[0])[:6],
                *(f"{w} {k}" for k in kept for w in ("ratio", "from", "to")),
            ]
            writer = csv.writer(file)
            writer.writerow(names)
            for row in rows:
                writer.writerow(v if isinstance(v, str) else f"{v:.4g}" for v in row.values())
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    first = rows[0]
    print(
        f"\n{first['contest']}: {first['windows']} windows, sample average: mean cost"
        f" {first['mean cost']:.4g}, worst 5% {first['worst 5%']:.4g}; worst 5% at equal mean cost"
    )
    extra = [key.removeprefix("ratio at ") for key in first if key.startswith("ratio")]
    print(f"{'':20}{'s/decision':>11}" + "".join(f"{e:>22}" for e in extra))
    for row in rows:
        cells = (
            f"{row[f'ratio at {e}']:8.3f} [{row[f'from, at {e}']:.3f}, {row[f'to, at {e}']:.3f}]"
            for e in extra
        )
        print(
            f"{row['method']:20}{row['seconds per decision']:11.3f}"
            + "".join(f"{c:>24}" for c in cells)
        )


if __name__ == "__main__":
    main()
