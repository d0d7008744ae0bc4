"""Two moons with up to 20 % outliers: what a fit keeps depends on its objective a little, and on
what chooses its bandwidth a lot.

Usage: python -m benchmarks.contamination [folder] [--quick]. Writes contamination.png, .pdf and
.csv. Two objectives (MMD, likelihood) times two criteria for held-out samples (L² distance,
log-likelihood), on one grid of bandwidths; a KDE beside them. The criterion is varied apart from
the objective because one sample far from all others can outweigh hundreds in a held-out likelihood,
whatever was minimized.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

import ksos
from examples.paper.files import BLUE, GREY, ORANGE, save
from ksos.kernels import Gaussian
from ksos.plotting import sheet

SHARES = (0.0, 0.05, 0.1, 0.2)
N_SAMPLES, NOISE, REACH = 200, 0.1, 7.0
CENTRE = np.array([0.5, 0.25])
AXIS = np.linspace(-REACH, REACH, 251)
GRID = np.stack(
    [axis.ravel() for axis in np.meshgrid(AXIS + CENTRE[0], AXIS + CENTRE[1], indexing="ij")],
    axis=1,
)
CELL = (AXIS[1] - AXIS[0]) ** 2


def half_circles(t: np.ndarray) -> np.ndarray:
    """The two moons without noise, (2, len(t), 2)."""
    outer = np.stack([np.cos(np.pi * t), np.sin(np.pi * t)], axis=-1)
    return np.stack([outer, np.array([1.0, 0.5]) - outer])


def clean_density(X: np.ndarray) -> np.ndarray:
    """p(x) of the moons alone: their center lines, blurred."""
    nodes, weights = np.polynomial.legendre.leggauss(100)
    curve = half_circles(0.5 * (nodes + 1.0)).reshape(-1, 2)
    blur = Gaussian(np.sqrt(2.0) * NOISE)(X, curve) / (2.0 * np.pi * NOISE**2)
    return np.asarray(blur @ np.tile(0.25 * weights, 2))


def samples(share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(data with the given share of outliers, which lie anywhere in the window; 2000 clean samples
    to predict).
    """
    rng = np.random.default_rng([seed, 1])

    def moons(n: int) -> np.ndarray:
        on_curve = half_circles(rng.random(n))[rng.integers(2, size=n), np.arange(n)]
        return on_curve + NOISE * rng.normal(size=(n, 2))

    data, test = moons(N_SAMPLES), moons(2000)
    count = round(share * N_SAMPLES)
    data[:count] = CENTRE + rng.uniform(-0.9 * REACH, 0.9 * REACH, size=(count, 2))
    return data, test


REGULARIZATIONS = {"squared_mmd": (1e-2, 1e-3), "likelihood": (1.0, 1e-1, 1e-2)}
"""In units of w₀: the objectives have different scales, and each gets the decades around its
default.
"""


def ours(objective: str, criterion: str) -> Callable[[np.ndarray], Any]:
    def fit(X: np.ndarray) -> Any:
        grids = {
            "bandwidths": (0.1, 0.2, 0.4, 0.8, 1.6),
            "relative_regularizations": REGULARIZATIONS[objective],
            "cv": 3,
        }
        choice = {"objective": objective, "criterion": criterion, "reference": None}
        return ksos.KernelSoSDensityCV(**grids, **choice, n_support=100, tol=1e-5).fit(X)

    return fit


def fit_kde(X: np.ndarray) -> Any:
    scale = float(np.mean(X.std(axis=0)))
    folds = KFold(5, shuffle=True, random_state=0)
    return (
        GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.02, 1.0, 30) * scale}, cv=folds)
        .fit(X)
        .best_estimator_
    )


CONTESTANTS: dict[str, tuple[Callable[[np.ndarray], Any], str, str]] = {
    "MMD, by L²": (ours("squared_mmd", "l2"), BLUE, "-"),
    "likelihood, by L²": (ours("likelihood", "l2"), ORANGE, "-"),
    "MMD, by likelihood": (ours("squared_mmd", "log_likelihood"), BLUE, "--"),
    "likelihood, by likelihood": (ours("likelihood", "log_likelihood"), ORANGE, "--"),
    "KDE, by likelihood": (fit_kde, GREY, "--"),
}
"""What is minimized, by what the bandwidth is chosen: color for the first, solid or dashed for the
second.
"""
SHOWN = ("MMD, by L²", "likelihood, by L²", "MMD, by likelihood")


def measure(fitted: Any, test: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Errors against the clean density, and the standard deviation of a squared kernel."""
    error = np.exp(fitted.score_samples(GRID)) - truth
    K = Gaussian(1.0)(AXIS[:, None])
    masses = CELL * error.reshape(AXIS.size, AXIS.size)
    width = (
        fitted.bandwidth
        if isinstance(fitted, KernelDensity)
        else 0.5 * float(np.linalg.det(fitted.distribution_.kernel.matrix(2)) ** 0.25)
    )
    return {
        "ise": float(CELL * error @ error),
        "mmd": float(np.sqrt(max(np.sum(masses * (K @ masses @ K)), 0.0))),
        "clean_log_likelihood": float(fitted.score_samples(test).mean()),
        "bump_width": float(width),
    }


def run(quick: bool) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every contestant on every share and seed; and the fits to one heavily contaminated sample,
    for the picture.
    """
    truth = clean_density(GRID)
    rows: list[dict[str, Any]] = []
    shown: dict[str, Any] = {}
    for share in (0.0, SHARES[-1]) if quick else SHARES:
        for seed in range(1 if quick else 5):
            data, test = samples(share, seed)
            for name, (fit, _, _) in CONTESTANTS.items():
                with warnings.catch_warnings():
                    warnings.simplefilter(
                        "ignore", ksos.BandwidthWarning
                    )  # small bandwidths among outliers are the point
                    fitted = fit(data)
                rows.append(
                    {
                        "outliers": share,
                        "seed": seed,
                        "contestant": name,
                        **measure(fitted, test, truth),
                    }
                )
                print(
                    ", ".join(
                        f"{key} {value:.4g}" if isinstance(value, float) else str(value)
                        for key, value in rows[-1].items()
                    ),
                    flush=True,
                )
                if share == SHARES[-1] and seed == 0 and name in SHOWN:
                    shown[name] = np.exp(fitted.score_samples(GRID))
    return rows, {"data": samples(SHARES[-1], 0)[0], "truth": truth, "fits": shown}


def draw(rows: list[dict[str, Any]], picture: dict[str, Any], output: Path) -> list[Path]:
    """Above: the truth and the fits to a sample with 20 % outliers. Below: errors against the share
    of outliers.
    """
    with sheet(7.2, 4.6) as figure:
        densities = {"truth, and the samples": picture["truth"], **picture["fits"]}
        top = float(picture["truth"].max())
        for k, (name, values) in enumerate(densities.items()):
            ax = figure.add_axes((0.02 + 0.245 * k, 0.53, 0.225, 0.40))
            image = values.reshape(AXIS.size, AXIS.size).T
            ax.pcolormesh(
                AXIS + CENTRE[0],
                AXIS + CENTRE[1],
                image,
                cmap="Blues",
                vmin=0.0,
                vmax=top,
                shading="nearest",
                rasterized=True,
            )
            if name.startswith("truth"):
                ax.plot(*picture["data"].T, ".", color="black", markersize=1.2)
            ax.set(
                title=name, xlim=(-2.5, 3.5), ylim=(-2.6, 3.1), aspect="equal", xticks=[], yticks=[]
            )
        panels = {
            "ise": "squared error ∫(p̂ − p)²",
            "mmd": "MMD to the clean distribution",
            "clean_log_likelihood": "log-likelihood, clean samples",
        }
        for k, (field, label) in enumerate(panels.items()):
            ax = figure.add_axes((0.075 + 0.325 * k, 0.15, 0.24, 0.30))
            for name, (_, color, line) in CONTESTANTS.items():
                shares = sorted({row["outliers"] for row in rows})
                values = [
                    [
                        row[field]
                        for row in rows
                        if row["outliers"] == share and row["contestant"] == name
                    ]
                    for share in shares
                ]
                spread = [np.std(some) / np.sqrt(len(some)) for some in values]
                percent = [100.0 * share for share in shares]
                look = {
                    "color": color,
                    "linestyle": line,
                    "marker": "o",
                    "markersize": 3,
                    "label": name,
                }
                ax.errorbar(percent, [np.mean(some) for some in values], yerr=spread, **look)
            ax.set(xlabel="outliers, %", title=label)
            ax.grid(True, linewidth=0.3, alpha=0.6)
        handles, labels = figure.axes[-1].get_legend_handles_labels()
        figure.legend(
            handles,
            labels,
            loc="lower center",
            ncols=len(labels),
            frameon=False,
            columnspacing=1.2,
            handlelength=2.4,
        )
        return save(figure, rows, output, "contamination")


if __name__ == "__main__":
    folders = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    files = draw(*run("--quick" in sys.argv), Path(folders[0] if folders else "figures"))
    print("\n".join(map(str, files)))
