"""Kernel regression under covariate shift: test error against the shift, for kernel ridge
regression and three robust methods.

Thirty samples x ~ N(0, ½²), y = sin(2x) + noise of standard deviation 0.2; tests with x ~ N(Δ, ½²),
Δ = 0, ½, 1, 3/2. All methods fit the same functions, θ_0 + Σ θ_j k(x, c_j) with a small ridge; the
robust ones know that x lies in [−2.5, 2.5], y in [−2, 2], and measure MMD of (x, y) with the same
kernel. The radius comes from one grid by 3 folds of the unshifted samples (kernel ridge regression:
its ridge, likewise), or is given. Run again to go on where a run has stopped. Settings were fixed
on seeds from 1000 on.

    python -m benchmarks.robust.kernel_regression --seeds 30 --jobs 4 --out
    results/robust_kernel_regression
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.quick import parse, parser_of
from benchmarks.robust.erm import erm
from benchmarks.robust.losses import LinearSquare
from benchmarks.robust.rkhs_norm import rkhs_norm
from benchmarks.robust.semi_infinite import semi_infinite
from benchmarks.robust.trials import chosen_radius, run_seeds, summary
from ksos import RobustRegressor
from ksos.kernels import Gaussian
from ksos.measures import Box

SHIFTS = (0.0, 0.5, 1.0, 1.5)
GRID = (0.003, 0.01, 0.03)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
FIXED = (0.003, 0.01, 0.03)
SAMPLES, SPREAD, NOISE, FOLDS = 30, 0.5, 0.2, 3
BOX = Box([-2.5, -2.0], [2.5, 2.0])
KERNEL = Gaussian([2.0, 2.0])
ALPHA, CENTERS, MODEL_BANDWIDTH, BANDWIDTH, SUPPORT, TOL = 1e-3, 10, 1.0, 0.2, 44, 1e-3
ZETAS = 100
METHODS = ("erm", "rkhs_norm", "semi_infinite", "ours")
KINDS = ("chosen", *(f"radius {radius:g}" for radius in FIXED))
NAMES = {
    "erm": "kernel ridge regression",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "RobustRegressor (ksos)",
}


def truth(x: np.ndarray) -> np.ndarray:
    """E[y | x]."""
    return np.asarray(np.sin(2.0 * x))


def samples_of(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(x (n, 1), y)."""
    rng = np.random.default_rng(seed)
    x = np.clip(SPREAD * rng.normal(size=SAMPLES), BOX.low[0], BOX.high[0])
    return x[:, None], np.clip(truth(x) + NOISE * rng.normal(size=SAMPLES), BOX.low[1], BOX.high[1])


def regressor(radius: float) -> RobustRegressor:
    """Ours."""
    return RobustRegressor(
        radius=radius,
        model="kernel",
        alpha=ALPHA,
        n_centers=CENTERS,
        model_bandwidth=MODEL_BANDWIDTH,
        bandwidth=BANDWIDTH,
        embedding_bandwidth=KERNEL.sigma,
        measure=BOX,
        n_support=SUPPORT,
        rtol=TOL,
    )


class Features:
    """u(x) = (1, k(x, c_1), …) with the centers that the estimator takes from the same samples."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.centers, self.kernel = regressor(0.0).fit(x, y).centers_, Gaussian(MODEL_BANDWIDTH)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ones((x.shape[0], 1)), self.kernel(x, self.centers)], axis=1)


class LinearFit:
    """x ↦ ⟨u(x), θ⟩."""

    def __init__(self, features: Features, theta: np.ndarray) -> None:
        self.features, self.theta = features, theta

    def predict(self, x: np.ndarray) -> np.ndarray:
        """At the rows of x."""
        return np.asarray(self.features(x) @ self.theta)


def path(method: str, x: np.ndarray, y: np.ndarray, seed: int, radii: list[float]) -> list[Any]:
    """Something with ``predict`` for every radius (of ERM: for every ridge); None if the ball is
    empty.
    """
    if method == "ours":
        return robust_path(x, y, radii)
    Z, features = np.column_stack([x, y]), Features(x, y)

    def loss(alpha: float) -> LinearSquare:
        return LinearSquare(features, np.r_[0.0, np.full(features.centers.shape[0], alpha)])

    if method == "erm":
        return [LinearFit(features, erm(loss(alpha), Z)) for alpha in radii]
    if method == "rkhs_norm":
        return [LinearFit(features, theta) for theta in rkhs_norm(loss(ALPHA), Z, radii, KERNEL)]
    zeta = np.random.default_rng(seed + 20_000).uniform(BOX.low, BOX.high, (ZETAS, 2))
    return [
        LinearFit(features, theta) for theta in semi_infinite(loss(ALPHA), Z, radii, KERNEL, zeta)
    ]


def robust_path(x: np.ndarray, y: np.ndarray, radii: list[float]) -> list[RobustRegressor | None]:
    """Fitted estimators, from the smallest radius to the largest, without those whose ball is
    empty.
    """
    order = sorted(set(radii))
    for empty in range(len(order)):
        try:
            fits = regressor(order[empty]).path(x, y, order[empty:])
        except ValueError:
            continue
        return [dict(zip(order[empty:], fits, strict=True)).get(radius) for radius in radii]
    return [None] * len(radii)


def run_seed(seed: int) -> dict[str, Any]:
    """Test errors of every method, by shift, with the radius chosen and fixed."""
    x, y = samples_of(seed)
    out: dict[str, Any] = {"seed": seed}
    for method in METHODS:
        radius = chosen_radius(
            lambda rows, radii, method=method: path(  # type: ignore[misc]
                method, x[rows], y[rows], seed, radii
            ),
            lambda fit, rows: float(np.sum((y[rows] - fit.predict(x[rows])) ** 2)),
            SAMPLES,
            GRID if method != "erm" else RIDGES,
            FOLDS,
            np.random.default_rng(seed + 10_000),
        )
        fits = path(
            method, x, y, seed, [radius, *(FIXED if method != "erm" else (ALPHA,) * len(FIXED))]
        )
        out[method] = {
            "radius": radius,
            **{
                kind: None if fit is None else errors(fit)
                for kind, fit in zip(KINDS, fits, strict=True)
            },
        }
    return out


def errors(fit: Any) -> list[float]:
    """E(y − f(x))² for x ~ N(Δ, ½²), by 2000 quantiles."""
    quantiles = SPREAD * norm.ppf((np.arange(2000) + 0.5) / 2000)
    found = []
    for shift in SHIFTS:
        x = np.clip(shift + quantiles, BOX.low[0], BOX.high[0])
        found.append(float(np.mean((truth(x) - fit.predict(x[:, None])) ** 2) + NOISE**2))
    return found


def draw(result: dict[str, Any], out: Path, seed: int) -> None:
    """Error against shift, the fits of one seed, and the worst density for ours."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 3.8), constrained_layout=True)
    styles = dict(zip(METHODS, (":", "-.", "--", "-"), strict=True))
    for axis, kind in zip(axes[:2], ("chosen", KINDS[2]), strict=True):
        for method in METHODS:
            mean, width = (np.array(result[kind][method][name]) for name in ("mean", "interval"))
            axis.errorbar(
                SHIFTS,
                mean,
                width,
                linestyle=styles[method],
                marker="o",
                markersize=4,
                capsize=3,
                label=NAMES[method],
            )
        axis.set(
            xlabel="shift Δ",
            ylabel="mean squared test error",
            title=f"radius by {FOLDS} folds" if kind == "chosen" else kind,
        )
        axis.set(xticks=SHIFTS, yscale="log")
        axis.legend(fontsize=8)
    x, y = samples_of(seed)
    grid = np.linspace(BOX.low[0], BOX.high[0], 200)
    for method in METHODS:
        fit = path(method, x, y, seed, [ALPHA if method == "erm" else FIXED[1]])[0]
        if fit is not None:
            axes[2].plot(grid, fit.predict(grid[:, None]), styles[method], label=NAMES[method])
            if method == "ours":
                other = np.linspace(BOX.low[1], BOX.high[1], 160)
                nodes = np.stack(
                    [part.ravel() for part in np.meshgrid(grid, other, indexing="ij")], axis=1
                )
                density = fit.worst_case_.distribution.pdf(nodes).reshape(grid.shape[0], -1)
                # its root: most of the mass stays with the data, and what has moved would not be
                # seen
                axes[3].pcolormesh(grid, other, np.sqrt(density.T), cmap="Blues", rasterized=True)
                axes[3].plot(grid, fit.predict(grid[:, None]), "C3")
    axes[2].plot(grid, truth(grid), "k", linewidth=0.8, label="truth")
    for axis in axes[2:]:
        axis.plot(x[:, 0], y, "k.", markersize=4)
        axis.set(xlabel="x", ylabel="y", ylim=(BOX.low[1], BOX.high[1]))
    axes[2].set(title=f"fits at radius {FIXED[1]:g} (seed {seed})")
    axes[2].legend(fontsize=8)
    axes[3].set(title="√ of the worst density for ours")
    figure.savefig(out / "robust_kernel_regression.png", dpi=85)
    plt.close(figure)


QUICK = {
    "GRID": (0.2,),
    "FIXED": (0.2, 0.3, 0.4),
    "FOLDS": 2,
    "CENTERS": 4,
    "SUPPORT": 20,
    "BANDWIDTH": 1.0,
    "ZETAS": 10,
    "TOL": 1e-2,
}
"""What --quick changes."""


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run what is missing, then sum up and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/robust_kernel_regression"))
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
    draw(result, options.out, options.first_seed)
    return result


if __name__ == "__main__":
    main()
