"""Classification where a shortcut fails: test loss against the shift of a class-conditional law,
for plain and robust classifiers.

Forty samples, labels ±1 with equal odds. The first feature is ±1 plus noise of standard deviation
1; the second is ±(1 − Δ) plus noise of 0.5: a shortcut that training (Δ = 0) makes look good, and
that tests with Δ = ½, 1, 3/2 take away and turn round. All methods fit linear scores with a small
ridge and the loss (score ∓ 1)², but for logistic regression, of which only error rates count; the
robust ones know that features lie in [−4, 4]² and measure MMD of (x, label) with the same kernel.
The radius comes from one grid by 3 folds of the unshifted samples (of the plain classifiers: the
ridge, likewise), or is given. Run again to go on where a run has stopped. Settings were fixed on
seeds from 1000 on.

    python -m benchmarks.robust.classification --seeds 30 --jobs 4 --out
    results/robust_classification
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.quick import parse, parser_of
from benchmarks.robust.erm import erm
from benchmarks.robust.losses import LinearLogistic, LinearSquare
from benchmarks.robust.rkhs_norm import rkhs_norm
from benchmarks.robust.semi_infinite import semi_infinite
from benchmarks.robust.trials import chosen_radius, run_seeds, summary
from ksos import RobustClassifier
from ksos.kernels import Gaussian
from ksos.measures import Box

SHIFTS = (0.0, 0.5, 1.0, 1.5)
GRID = (0.003, 0.01, 0.03)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
FIXED = (0.003, 0.01, 0.03)
SAMPLES, NOISE, FOLDS, TESTS = 40, (1.0, 0.5), 3, 4000
BOX, SIGMA = Box([-4.0, -4.0], [4.0, 4.0]), 4.0
ALPHA, BANDWIDTH, SUPPORT, TOL = 1e-3, 0.4, 40, 1e-3
ZETAS = 100
METHODS = ("erm", "logistic", "rkhs_norm", "semi_infinite", "ours")
PLAIN = ("erm", "logistic")
KINDS = ("chosen", *(f"radius {radius:g}" for radius in FIXED))
NAMES = {
    "erm": "ridge classifier",
    "logistic": "logistic regression",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "RobustClassifier (ksos)",
}


def samples_of(rng: np.random.Generator, n: int, shift: float) -> tuple[np.ndarray, np.ndarray]:
    """(x (n, 2), labels ±1)."""
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    x = np.column_stack([y, (1.0 - shift) * y]) + np.array(NOISE) * rng.normal(size=(n, 2))
    return np.clip(x, BOX.low, BOX.high), y


def kernel(Z: np.ndarray, W: np.ndarray) -> np.ndarray:
    """k(x, x')·1[y = y']."""
    return np.asarray(Gaussian(SIGMA)(Z[:, :-1], W[:, :-1]) * (Z[:, -1:] == W[:, -1]))


def classifier(radius: float) -> RobustClassifier:
    """Ours."""
    return RobustClassifier(
        radius=radius,
        alpha=ALPHA,
        bandwidth=BANDWIDTH,
        embedding_bandwidth=SIGMA,
        measure=BOX,
        n_support=SUPPORT,
        rtol=TOL,
    )


class Features:
    """u(x) = (1, standardized x), as the estimator has it."""

    def __init__(self, x: np.ndarray) -> None:
        self.mean, self.scale = x.mean(axis=0), x.std(axis=0)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ones((x.shape[0], 1)), (x - self.mean) / self.scale], axis=1)


class LinearFit:
    """x ↦ ⟨u(x), θ⟩."""

    def __init__(self, features: Features, theta: np.ndarray) -> None:
        self.features, self.theta = features, theta

    def decision_function(self, x: np.ndarray) -> np.ndarray:
        """At the rows of x."""
        return np.asarray(self.features(x) @ self.theta)


def path(method: str, x: np.ndarray, y: np.ndarray, seed: int, radii: list[float]) -> list[Any]:
    """Something with ``decision_function`` for every radius (of the plain methods: for every
    ridge); None if the ball is empty.
    """
    if method == "ours":
        return robust_path(x, y, radii)
    Z, features = np.column_stack([x, y]), Features(x)

    def loss(alpha: float) -> LinearSquare | LinearLogistic:
        return (LinearLogistic if method == "logistic" else LinearSquare)(
            features, np.r_[0.0, alpha, alpha]
        )

    if method in PLAIN:
        return [LinearFit(features, erm(loss(alpha), Z)) for alpha in radii]
    if method == "rkhs_norm":
        return [LinearFit(features, theta) for theta in rkhs_norm(loss(ALPHA), Z, radii, kernel)]
    rng = np.random.default_rng(seed + 20_000)
    zeta = np.column_stack(
        [rng.uniform(BOX.low, BOX.high, (ZETAS, 2)), rng.choice([-1.0, 1.0], ZETAS)]
    )
    return [
        LinearFit(features, theta) for theta in semi_infinite(loss(ALPHA), Z, radii, kernel, zeta)
    ]


def robust_path(x: np.ndarray, y: np.ndarray, radii: list[float]) -> list[RobustClassifier | None]:
    """Fitted estimators, from the smallest radius to the largest, without those whose ball is
    empty.
    """
    order = sorted(set(radii))
    for empty in range(len(order)):
        try:
            fits = classifier(order[empty]).path(x, y, order[empty:])
        except ValueError:
            continue
        return [dict(zip(order[empty:], fits, strict=True)).get(radius) for radius in radii]
    return [None] * len(radii)


def losses(fit: Any, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The square loss of every sample."""
    return np.asarray((y - fit.decision_function(x)) ** 2)


def run_seed(seed: int) -> dict[str, Any]:
    """Test losses and error rates of every method, by shift, with the radius chosen and fixed."""
    rng = np.random.default_rng(seed)
    x, y = samples_of(rng, SAMPLES, 0.0)
    tests = [samples_of(rng, TESTS, shift) for shift in SHIFTS]
    out: dict[str, Any] = {"seed": seed}
    for method in METHODS:
        radius = chosen_radius(
            lambda rows, radii, method=method: path(  # type: ignore[misc]
                method, x[rows], y[rows], seed, radii
            ),
            lambda fit, rows: float(losses(fit, x[rows], y[rows]).sum()),
            SAMPLES,
            RIDGES if method in PLAIN else GRID,
            FOLDS,
            np.random.default_rng(seed + 10_000),
        )
        fits = path(
            method, x, y, seed, [radius, *((ALPHA,) * len(FIXED) if method in PLAIN else FIXED)]
        )
        out[method] = {"radius": radius}
        for kind, fit in zip(KINDS, fits, strict=True):
            out[method][kind] = (
                None if fit is None else [float(losses(fit, *test).mean()) for test in tests]
            )
            wrong = (
                None
                if fit is None
                else [
                    float(np.mean(fit.decision_function(test[0]) * test[1] <= 0.0))
                    for test in tests
                ]
            )
            out[method][f"errors, {kind}"] = wrong
    return out


def draw(result: dict[str, Any], out: Path, seed: int) -> None:
    """Loss and error against shift, and the worst density of one seed, label by label."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 3.8), constrained_layout=True)
    styles = dict(zip(METHODS, (":", (0, (1, 4)), "-.", "--", "-"), strict=True))
    titles = ("chosen", KINDS[2], f"errors, {KINDS[2]}")
    for axis, kind in zip(axes[:3], titles, strict=True):
        for method in METHODS:
            if method == "logistic" and not kind.startswith("errors"):
                continue
            mean, width = (np.array(result[kind][method][name]) for name in ("mean", "interval"))
            color = f"C{METHODS.index(method)}"
            axis.errorbar(
                SHIFTS,
                mean,
                width,
                color=color,
                linestyle=styles[method],
                marker="o",
                markersize=4,
                capsize=3,
                label=NAMES[method],
            )
        axis.set(
            xlabel="shift Δ",
            ylabel="test error rate" if kind.startswith("errors") else "mean test loss",
            xticks=SHIFTS,
        )
        axis.set(
            title=f"radius by {FOLDS} folds" if kind == "chosen" else kind.removeprefix("errors, ")
        )
        axis.legend(fontsize=8)
    x, y = samples_of(np.random.default_rng(seed), SAMPLES, 0.0)
    side = np.linspace(BOX.low[0], BOX.high[0], 160)
    nodes = np.stack([part.ravel() for part in np.meshgrid(side, side, indexing="ij")], axis=1)
    fit = robust_path(x, y, [FIXED[1]])[0]
    if fit is not None:
        joint = fit.worst_case_.distribution
        for label, colors, marker in ((-1, "Blues", "C0."), (1, "Oranges", "C1.")):
            density = np.sqrt(np.maximum(joint.pdf(nodes, label), 0.0)).reshape(side.shape[0], -1).T
            axes[3].contourf(
                side,
                side,
                density,
                levels=np.linspace(0.06, 1.0, 9) * density.max(),
                cmap=colors,
                alpha=0.6,
            )
            axes[3].plot(
                *x[y == label].T,
                marker,
                markeredgecolor="k",
                markeredgewidth=0.4,
                label=f"label {label:+d}",
            )
        axes[3].contour(
            side,
            side,
            fit.decision_function(nodes).reshape(side.shape[0], -1).T,
            levels=[0.0],
            colors="k",
        )
    plain = path("erm", x, y, seed, [ALPHA])[0]
    line = axes[3].contour(
        side,
        side,
        plain.decision_function(nodes).reshape(side.shape[0], -1).T,
        levels=[0.0],
        colors="gray",
    )
    line.set_linestyle(":")
    axes[3].set(
        xlabel="first feature",
        ylabel="second feature (the shortcut)",
        title=f"√ of the worst density (seed {seed})",
    )
    axes[3].legend(fontsize=8)
    figure.savefig(out / "robust_classification.png", dpi=85)
    plt.close(figure)


QUICK = {
    "GRID": (0.1,),
    "FIXED": (0.1, 0.2, 0.3),
    "FOLDS": 2,
    "SUPPORT": 16,
    "BANDWIDTH": 2.0,
    "ZETAS": 10,
    "TOL": 1e-2,
    "TESTS": 200,
}
"""What --quick changes."""


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run what is missing, then sum up and draw."""
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results/robust_classification"))
    options = parse(parser, arguments, seeds=2)
    if options.quick:
        globals().update(QUICK)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    kinds = [*KINDS, *(f"errors, {kind}" for kind in KINDS)]
    result = summary(run_seeds(partial(run_seed), seeds, options.out, options.jobs), METHODS, kinds)
    (options.out / "summary.json").write_text(json.dumps(result, indent=1, ensure_ascii=False))
    for kind in kinds:
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
