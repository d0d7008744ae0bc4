"""Decisions against an MMD ball, bounded from both sides: python -m benchmarks.robust.decisions.

Each problem is solved by ``ksos.decide``, in processor seconds (set OMP_NUM_THREADS=1). Two checks
follow. An estimate of a supremum is compared with what Sobol' points with local ascent
find. And the dual on a fixed grid of points is written by hand in CVXPY, with the loss written into
the problem: a relaxation of the problem in hand, so that it must not exceed the upper bound.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from scipy.optimize import minimize

import ksos
from benchmarks.quick import parse, parser_of
from ksos.measures import Box

UNDERAGE, OVERAGE, TAIL = 4.0, 1.0, 0.1
# Points of a grid on each side, by the number of features: about as many as a conic solver takes.
SIDES = {1: 400, 2: 30, 3: 10, 5: 4}


@dataclass
class Problem:
    """A risk, a ball and constraints, with the gap and the seconds that are asked for."""

    name: str
    risk: Any
    ball: ksos.Ball
    subject_to: list[Any]
    rtol: float
    seconds: float
    loss: Callable[[np.ndarray], Any]
    """The same by hand: from points to a vector of CVXPY expressions."""


def newsvendor(n: int = 60) -> Problem:
    demand = np.random.default_rng(0).lognormal(3.0, 0.4, size=(n, 1))
    q = cp.Variable(nonneg=True)
    ball = ksos.Ball(demand, 0.05, domain=Box([0.0], [80.0]))
    return Problem(
        f"newsvendor, n = {n}",
        ksos.risk.newsvendor(q, UNDERAGE, OVERAGE),
        ball,
        [],
        5e-3,
        0.5,
        lambda P: cp.maximum(UNDERAGE * (P[:, 0] - q), OVERAGE * (q - P[:, 0])),
    )


def two_products(n: int = 60) -> Problem:
    demand = np.random.default_rng(2).lognormal(1.0, 0.5, size=(n, 2))
    top = float(np.ceil(1.3 * demand.max()))
    q = cp.Variable(2, nonneg=True)
    ball = ksos.Ball(demand, 0.1, domain=Box([0.0, 0.0], [top, top]))
    costs = [ksos.risk.newsvendor(q[j], UNDERAGE, OVERAGE, column=j) for j in range(2)]
    return Problem(
        "two products, bounds and a budget",
        costs[0] + costs[1],
        ball,
        [cp.sum(q) <= 9.0, q <= 6.0],
        2e-2,
        2.0,
        lambda P: sum(
            cp.maximum(UNDERAGE * (P[:, j] - q[j]), OVERAGE * (q[j] - P[:, j])) for j in range(2)
        ),
    )


def portfolio(
    d: int, rtol: float, seconds: float, *, n: int = 100, samples: bool = False
) -> Problem:
    """Mean and CVaR of returns on the simplex."""
    rng = np.random.default_rng(0)
    common = 0.02 * (np.eye(5) + 0.5)
    means = [0.05, 0.06, 0.07, 0.08, 0.04]
    R = rng.multivariate_normal(means, common, size=n)[:, :d]
    if samples:
        R = rng.normal(0.05, 0.1, size=(n, d)) + rng.normal(0.0, 0.1, size=(n, 1))
    domain: Any = "samples" if samples else Box(R.min(axis=0) - 0.1, R.max(axis=0) + 0.1)
    x, level = cp.Variable(d, nonneg=True), cp.Variable()

    def loss(P: np.ndarray) -> Any:
        return -P @ x

    return Problem(
        f"mean and CVaR, {d} assets, " + (f"{n} samples" if samples else "box"),
        ksos.risk.expectation(loss) + ksos.risk.cvar(loss, TAIL),
        ksos.Ball(R, 0.1, domain=domain),
        [cp.sum(x) == 1.0],
        rtol,
        seconds,
        lambda P: loss(P) + level + cp.pos(loss(P) - level) / TAIL,
    )


def problems(quick: bool) -> Iterator[Problem]:
    yield newsvendor(20 if quick else 60)
    if quick:
        yield portfolio(5, 1e-6, 2.0, n=40, samples=True)
        return
    yield two_products()
    yield portfolio(2, 1e-2, 2.0)
    yield portfolio(3, 2e-2, 8.0)
    yield portfolio(5, 1e-6, 2.0, n=500, samples=True)
    yield portfolio(20, 1e-6, 2.0, n=500, samples=True)
    yield portfolio(5, 5e-2, 20.0)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    out = work()
    return out, time.process_time() - began


def climbed(f: Callable[[np.ndarray], np.ndarray], box: Box, n: int) -> float:
    """The largest value at Sobol' points, and after L-BFGS from the twenty best of them."""
    points, highest = np.empty((0, box.n_features)), np.empty(0)
    for seed in range(max(n >> 16, 1)):
        X = ksos.measures.Discrete.qmc(box, min(n, 1 << 16), rng=seed).points
        values = f(X)
        top = np.argsort(-values)[:20]
        points, highest = np.concatenate([points, X[top]]), np.append(highest, values[top])
    best = float(highest.max())
    for x in points[np.argsort(-highest)[:20]]:
        found = minimize(
            lambda x: -float(f(x[None, :])[0]),
            x,
            method="L-BFGS-B",
            bounds=list(zip(box.low, box.high, strict=True)),
        )
        best = max(best, -float(found.fun))
    return best


def by_hand(problem: Problem, quick: bool) -> tuple[float, float]:
    """The dual on a fixed grid and the data, and its processor seconds."""
    ball = problem.ball
    Z, domain = ball.points, ball.domain
    if domain.atoms is None:
        side = 12 if quick else SIDES[ball.n_features]
        axes = [np.linspace(*ends, side) for ends in zip(domain.low, domain.high, strict=True)]
        grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, ball.n_features)
        Z = np.concatenate([Z, grid])

    def solve() -> float:
        values, V = np.linalg.eigh(ball.kernel(Z))
        keep = values > 1e-10 * values[-1]
        F = V[:, keep] * np.sqrt(values[keep])
        c, t = cp.Variable(F.shape[1]), cp.Variable()
        mean = ball.weights @ F[: len(ball.points)]
        objective = t + mean @ c + ball.radius * cp.norm(c)
        limits = [problem.loss(Z) <= t + F @ c, *problem.subject_to]
        return float(cp.Problem(cp.Minimize(objective), limits).solve(solver=cp.CLARABEL))

    return timed(solve)


def main(words: Sequence[str] | None = None) -> list[dict[str, Any]]:
    options = parse(parser_of(__doc__), words)
    # the first conic problem of a process imports what CVXPY needs
    cp.Problem(cp.Minimize(cp.square(cp.Variable() - 1.0))).solve(solver=cp.CLARABEL)
    found = []
    print(
        f"{'problem':36}{'lower':>10}{'upper':>10}{'gap':>8}{'kind':>10}{'seconds':>9}{'asked':>7}"
    )
    for problem in problems(options.quick):
        risk, ball, limits = problem.risk, problem.ball, problem.subject_to
        d, seconds = timed(partial(ksos.decide, risk, ball, limits, rtol=problem.rtol))
        gap = d.gap / max(abs(d.upper_bound), 1e-300)
        print(
            f"{problem.name:36}{d.lower_bound:10.5f}{d.upper_bound:10.5f}{gap:8.1e}"
            f"{d.upper_bound_kind:>10}{seconds:9.2f}{problem.seconds:7.1f}"
        )
        relaxed, hand = by_hand(problem, options.quick)
        line = f"    by hand on a grid: {relaxed:.5f} in {hand:.2f} s"
        if problem.ball.domain.region is not None:
            n = 1 << (10 if options.quick else 20)
            top = climbed(d.loss - d.dual_function, problem.ball.domain, n) - d.dual_constant
            line += f"; {n} Sobol' points and local ascent: {d.upper_bound + top:.5f}"
            assert top <= 1e-6 * abs(d.upper_bound), "the estimate is below what was found"
        print(line)
        found.append({"name": problem.name, "gap": gap, "seconds": seconds, "by_hand": relaxed})
        assert relaxed <= d.upper_bound + 1e-6
    return found


if __name__ == "__main__":
    main()
