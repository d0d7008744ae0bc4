"""How near worst cases come to the truth: python benchmarks/near_the_truth.py [--samples 60].

Ten losses on a box, in one dimension and in two, the robust regressors, and a quadratic loss in
three dimensions. The truth is that of distributions on a fine grid and the data, or on the samples
themselves: exact for such atoms (``ksos.robust.worst_atoms``). Each line shows value / truth, which
a density attains, upper bound / truth, and seconds of the processor. In three dimensions no grid is
fine enough, so the value is divided by the upper bound.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from quick import parse, parser_of

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import Observable, Polynomial, as_observable, coordinate
from ksos.robust import worst_atoms

x, z = coordinate(0), coordinate(1)
LOSSES: dict[str, tuple[int, Any]] = {
    "x²": (1, x**2),
    "|x|": (1, lambda X: np.abs(X[:, 0])),
    "x⁴": (1, x**4),
    "1[x > 1]": (1, lambda X: (X[:, 0] > 1.0).astype(float)),
    "newsvendor": (1, lambda X: np.maximum(3.0 * (0.5 - X[:, 0]), X[:, 0] - 0.5)),
    "hinge": (1, lambda X: np.maximum(0.0, 1.0 - 2.0 * X[:, 0])),
    "x² + z²": (2, x**2 + z**2),
    "x z": (2, x * z),
    "max(x, z)": (2, lambda X: X.max(axis=1)),
    "1[x + z > 1]": (2, lambda X: (X.sum(axis=1) > 1.0).astype(float)),
}
GRID = {1: 401, 2: 41}  # nodes per dimension: twice as many change the fourth digit


def true_worst_case(ball: ksos.Ball, loss: Observable, atoms: np.ndarray) -> float:
    """The largest expectation over the distributions of the ball on the atoms and the data."""
    both = np.unique(np.concatenate([atoms, ball.points]), axis=0)
    values, Q = np.linalg.eigh(ball.kernel(both))
    kept = values > 1e-13 * values[-1]
    roots = np.sqrt(values[kept])
    center = (Q[:, kept] / roots).T @ (ball.kernel(both, ball.points) @ ball.weights)
    return worst_atoms((Q[:, kept] * roots).T, center, loss(both), ball.radius).value


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # gaps that quadrature leaves are in the last column
        found = work()
    return found, time.process_time() - began


def show(name: str, radius: float, worst: ksos.WorstCase, truth: float, seconds: float) -> None:
    assert worst.value is not None and worst.upper_bound is not None
    print(
        f"{name:28s} {radius:6.2f} {worst.value / truth:8.4f} {worst.upper_bound / truth:8.4f}"
        f" {worst.upper_bound_kind:9s} {seconds:7.2f}  {worst.message}",
        flush=True,
    )


def curved(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two features, one of them with a curve that a linear model misses."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.5 * X[:, 0] ** 2 - X[:, 1] + 0.3 * rng.normal(size=n)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=60)
    parser.add_argument("--radii", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--losses", nargs="+", default=list(LOSSES), choices=list(LOSSES))
    parser.add_argument("--rows", type=int, default=200, help="of the regressions")
    parser.add_argument("--cloud", type=int, default=1000, help="samples in three dimensions")
    options = parse(parser, samples=20, radii=[0.3], losses=["x²", "1[x > 1]"], rows=40, cloud=0)
    print(f"{'problem':28s} radius    value    bound kind      seconds")
    for name in options.losses:
        d, loss = LOSSES[name]
        X = np.random.default_rng(0).normal(scale=0.5, size=(options.samples, d))
        axes = np.meshgrid(*[np.linspace(-2.0, 2.0, GRID[d])] * d)
        # what jumps at a node has its supremum just behind it
        nodes = np.stack([axis.ravel() for axis in axes], axis=1)
        behind = np.minimum(nodes + 1e-9, 2.0)
        atoms = np.concatenate([nodes, behind]) if d == 1 else behind
        for radius in options.radii:
            ball = ksos.Ball(X, radius, kernel=Gaussian(1.0), domain=Box([-2.0] * d, [2.0] * d))
            worst, seconds = timed(lambda loss=loss, ball=ball: ksos.worst_case(loss, ball))
            truth = true_worst_case(ball, as_observable(loss, "loss"), atoms)
            show(name, radius, worst, truth, seconds)
    X, y = curved(options.rows)
    for shift in ("x", "y", "both"):
        for loss in ("square", "absolute"):
            for radius in options.radii:
                est = ksos.RobustRegressor(radius=radius, shift=shift, loss=loss)
                est, seconds = timed(lambda est=est: est.fit(X, y))
                worst = est.worst_case_
                truth = true_worst_case(est.ball_, worst.loss, est.ball_.points[:1])
                show(f"regressor, {shift}, {loss}", radius, worst, truth, seconds)
    for radius in options.radii if options.cloud else []:
        X = np.random.default_rng(0).normal(scale=0.5, size=(options.cloud, 3)).clip(-2.0, 2.0)
        square = Polynomial({(2, 0, 0): 1.0, (0, 2, 0): 1.0, (0, 0, 2): 1.0})
        ball = ksos.Ball(X, radius, domain=Box([-2.0] * 3, [2.0] * 3))
        worst, seconds = timed(lambda ball=ball, square=square: ksos.worst_case(square, ball))
        show("‖x‖² in 3 dimensions", radius, worst, worst.upper_bound, seconds)


if __name__ == "__main__":
    main()
