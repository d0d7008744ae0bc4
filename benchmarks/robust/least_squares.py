"""Least squares with an uncertain parameter: loss against the shift of the test distribution, for
ERM and three robust methods.

Ten samples ξ uniform on [−½, ½]; ‖(A_0 + ξA_1)θ − b‖²; tests with ξ uniform on [−½(1+Δ), ½(1+Δ)], Δ
= 0, 1, 2, 4. All methods know that ξ lies in [−2.5, 2.5] and measure MMD with the same kernel; each
takes its radius from one grid, by 5-fold cross-validation on the unshifted samples, or as given.
Run again to go on where a run has stopped. Settings were fixed on seeds from 1000 on.

    python -m benchmarks.robust.least_squares --seeds 100 --jobs 4 --out
    results/robust_least_squares
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ksos
from benchmarks.quick import parse, parser_of
from benchmarks.robust.erm import erm
from benchmarks.robust.losses import UncertainLeastSquares
from benchmarks.robust.rkhs_norm import rkhs_norm
from benchmarks.robust.semi_infinite import semi_infinite
from benchmarks.robust.trials import chosen_radius, run_seeds, summary
from ksos.kernels import Gaussian
from ksos.measures import Box

SHIFTS = (0.0, 1.0, 2.0, 4.0)
GRID = (0.001, 0.003, 0.01, 0.03, 0.1)
FIXED = (0.01, 0.03, 0.1)
SIGMA, END, PARAMETERS, SAMPLES, FOLDS = 1.0, 2.5, 10, 10, 5
KERNEL = Gaussian(SIGMA)
ZETAS = 50
"""Points at which the semi-infinite dual has its constraint, beside the samples: as many as in its
authors' experiment.
"""
BANDWIDTH, COARSE, RIM, LANDMARKS, TOL = 0.05, 17, (0.25, 0.5, 0.75, 1.0), 41, 1e-4
METHODS = ("erm", "rkhs_norm", "semi_infinite", "ours")
KINDS = ("chosen", *(f"radius {radius:g}" for radius in FIXED))
NAMES = {
    "erm": "ERM",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "sum of squares (ksos)",
}


def problem_of(seed: int) -> tuple[UncertainLeastSquares, np.ndarray]:
    """A random problem and its samples (n, 1)."""
    rng = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(PARAMETERS)
    A0, A1 = (
        scale * rng.normal(size=(PARAMETERS, PARAMETERS)),
        scale * rng.normal(size=(PARAMETERS, PARAMETERS)),
    )
    return UncertainLeastSquares(A0, A1, rng.normal(size=PARAMETERS)), rng.uniform(
        -0.5, 0.5, (SAMPLES, 1)
    )


def adversary(xi: np.ndarray) -> ksos.SoSSpace:
    """Narrow bumps at the samples, across the domain, and close together at its boundary, where the
    worst case goes.
    """
    rim = END - BANDWIDTH * np.array(RIM)
    support = np.unique(np.concatenate([xi[:, 0], np.linspace(-END, END, COARSE), -rim, rim]))
    landmarks = np.linspace(-END, END, LANDMARKS)[:, None]
    return ksos.SoSSpace(
        Gaussian(BANDWIDTH), support[:, None], Box([-END], [END]), KERNEL, landmarks
    )


def robust_fits(
    problem: UncertainLeastSquares, xi: np.ndarray, radii: list[float]
) -> list[ksos.RobustSolution]:
    """Ours, from the largest radius to the smallest."""

    def loss(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return problem.values(theta, X), problem.gradients(theta, X)

    order = np.argsort(radii)[::-1]
    found = ksos.robust_path(
        loss,
        erm(problem, xi),
        ksos.Ball(xi, 0.0, kernel=KERNEL, domain=Box([-END], [END])),
        [radii[k] for k in order],
        hessian=problem.curvature,
        space=adversary(xi),
        rtol=TOL,
    )
    return [found[int(np.flatnonzero(order == k)[0])] for k in range(len(radii))]


def path(
    method: str, problem: UncertainLeastSquares, xi: np.ndarray, seed: int, radii: list[float]
) -> list[np.ndarray | None]:
    """θ for every radius; None if the ball is empty."""
    if method == "erm":
        return [erm(problem, xi)] * len(radii)
    if method == "rkhs_norm":
        return [*rkhs_norm(problem, xi, radii, KERNEL)]
    if method == "semi_infinite":
        zeta = np.random.default_rng(seed + 20_000).uniform(-END, END, (ZETAS, 1))
        return [*semi_infinite(problem, xi, radii, KERNEL, zeta)]
    return [
        solution.theta if solution.value is not None else None
        for solution in robust_fits(problem, xi, radii)
    ]


def run_seed(seed: int) -> dict[str, Any]:
    """Test losses of every method, by shift, with the radius chosen and fixed."""
    problem, xi = problem_of(seed)
    out: dict[str, Any] = {"seed": seed}
    for method in METHODS:
        radius = chosen_radius(
            lambda rows, radii, method=method: path(  # type: ignore[misc]
                method, problem, xi[rows], seed, radii
            ),
            lambda theta, rows: float(problem.values(theta, xi[rows]).sum()),
            SAMPLES,
            GRID if method != "erm" else GRID[:1],
            FOLDS,
            np.random.default_rng(seed + 10_000),
        )
        thetas = path(method, problem, xi, seed, [radius, *FIXED])
        tests = [None if theta is None else shifted_losses(problem, theta) for theta in thetas]
        # the radius that four fifths of the samples prefer may be empty for all of them: then there
        # is nothing to be robust against
        tests[0] = shifted_losses(problem, erm(problem, xi)) if tests[0] is None else tests[0]
        out[method] = {"radius": radius, **dict(zip(KINDS, tests, strict=True))}
    return out


def shifted_losses(problem: UncertainLeastSquares, theta: np.ndarray) -> list[float]:
    """E ℓ(θ, ξ) for ξ uniform on ±½(1+Δ): exact, the loss being quadratic in ξ."""
    r0, r1 = problem.A0 @ theta - problem.b, problem.A1 @ theta
    return [float(r0 @ r0 + (r1 @ r1) * (0.5 * (1.0 + shift)) ** 2 / 3.0) for shift in SHIFTS]


def draw(result: dict[str, Any], out: Path) -> None:
    """Loss against shift, and the worst density of one problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, places = plt.subplot_mosaic("ab;cc", figsize=(8, 7), layout="constrained")
    for axis, kind in zip((places["a"], places["b"]), ("chosen", KINDS[2]), strict=True):
        for method, style in zip(METHODS, (":", "-.", "--", "-"), strict=True):
            mean, width = (np.array(result[kind][method][name]) for name in ("mean", "interval"))
            axis.errorbar(
                SHIFTS,
                mean,
                width,
                linestyle=style,
                marker="o",
                markersize=4,
                capsize=3,
                label=NAMES[method],
            )
        axis.set(
            xlabel="shift Δ of the tests",
            ylabel="mean test loss",
            title="radius by 5 folds" if kind == "chosen" else kind,
        )
        axis.set(xticks=SHIFTS, yscale="log", ylim=(2.0, 32.0))
        axis.set_yticks([2, 5, 10, 20], ["2", "5", "10", "20"], minor=False)
        axis.set_yticks([], minor=True)
    places["a"].legend(fontsize=8)
    last = places["c"]
    problem, xi = problem_of(0)
    grid = np.linspace(-END, END, 2001)
    for found in robust_fits(problem, xi, [0.03, 0.1, 0.3]):
        if found.worst_case is not None and found.worst_case.distribution is not None:
            last.plot(
                grid,
                found.worst_case.distribution.cdf(grid[:, None]),
                label=f"radius {found.radius:g}",
            )
    last.step(
        np.sort(xi[:, 0]),
        np.arange(1, SAMPLES + 1) / SAMPLES,
        "k",
        where="post",
        linewidth=0.8,
        label="samples",
    )
    last.set(
        xlabel="ξ", ylabel="probability up to ξ", title="the worst distribution of one problem"
    )
    last.legend(fontsize=8)
    figure.savefig(out / "robust_least_squares.png", dpi=110)
    plt.close(figure)


QUICK = {"GRID": (0.01, 0.1), "FOLDS": 2, "COARSE": 9, "RIM": (0.5,), "ZETAS": 10, "TOL": 1e-3}
"""What --quick changes."""


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run what is missing, then sum up and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/robust_least_squares"))
    options = parse(parser, arguments, seeds=2)
    if options.quick:
        globals().update(QUICK)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    result = summary(run_seeds(partial(run_seed), seeds, options.out, options.jobs), METHODS, KINDS)
    (options.out / "summary.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))
    for kind in KINDS:
        print(f"{kind} ({result[kind].pop('seeds')} seeds), Δ = {SHIFTS}")
        for method, row in result[kind].items():
            print(
                f"  {method:22s}",
                "  ".join(
                    f"{m:9.4f} ± {i:.4f}" for m, i in zip(row["mean"], row["interval"], strict=True)
                ),
            )
    draw(result, options.out)
    return result


if __name__ == "__main__":
    main()
