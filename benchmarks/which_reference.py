"""One data set over three references: Lebesgue measure, a normal distribution, a mixture of them;
and λ from ∞ to small.

    python -m benchmarks.which_reference [folder] [--quick]

draws ``which_reference.png`` of docs/density-estimation.md and prints its scores.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ksos

REFERENCES: dict[str, dict[str, Any]] = {
    "Lebesgue": {"reference": None},
    "normal": {"reference": "normal"},
    "mixture": {"reference": "mixture"},
}
LABELS = {
    "Lebesgue": "no reference",
    "normal": "a normal distribution",
    "mixture": "a Gaussian mixture",
}
TITLES = {
    "anchor": "the data above, 2 columns",
    "incomes": "skewed data, 3 columns",
    "tied": "correlated data, 5 columns",
}
STRENGTHS = (1e6, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
SHOWN = (1e6, 1.0, 1e-1, 1e-3)
N_SAMPLES, N_TEST = 300, 4000


def anchor(n: int, rng: np.random.Generator) -> np.ndarray:
    """A curved arm and a tilted shaft."""
    x = rng.normal(size=n)
    arm = np.stack([x, 0.6 * x**2 - 1.5 + 0.25 * rng.normal(size=n)], axis=1)
    y = rng.normal(size=n)
    shaft = np.stack([0.25 * rng.normal(size=n) + 0.2 * y, y + 1.5], axis=1)
    return np.where(rng.random(n)[:, None] < 0.6, arm, shaft)


def tied(n: int, rng: np.random.Generator) -> np.ndarray:
    """Five features that share two causes: nearly normal."""
    causes = rng.normal(size=(n, 2))
    loads = np.array([[1.0, 0.9, 0.8, 0.0, 0.5], [0.0, 0.3, -0.4, 1.0, 0.8]])
    return causes @ loads + 0.2 * rng.normal(size=(n, 5))


def incomes(n: int, rng: np.random.Generator) -> np.ndarray:
    """Three features, skewed and dependent."""
    x = rng.gamma(2.0, size=n)
    return np.stack(
        [x, np.sqrt(x) + 0.3 * rng.normal(size=n), rng.gamma(3.0, 0.4 + 0.2 * x)], axis=1
    )


LAWS: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "anchor": anchor,
    "incomes": incomes,
    "tied": tied,
}


def fitted(name: str, X: np.ndarray, **more: Any) -> Any:
    """A likelihood fit over the reference ``name``."""
    options = {
        "objective": "likelihood",
        "tol": 1e-4,
        "n_support": 100,
        "random_state": 0,
        **REFERENCES[name],
        **more,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a bandwidth that suits the reference may be wide
        return ksos.KernelSoSDensity(**options).fit(X)


def run(
    *, quick: bool = False
) -> tuple[list[dict[str, Any]], dict[tuple[str, float], Any], np.ndarray]:
    """The scores of all laws, references and λ (None: the default); the fits that are drawn; their
    samples.
    """
    rows, fits, seeds = [], {}, range(1 if quick else 5)
    samples = anchor(N_SAMPLES, np.random.default_rng(0))
    for law, draw in LAWS.items():
        for seed in seeds:
            rng = np.random.default_rng(seed)
            X, test = draw(N_SAMPLES, rng), draw(N_TEST, rng)
            for name in REFERENCES:
                for strength in (None, *(SHOWN if quick else STRENGTHS)):
                    est = fitted(name, X, relative_regularization=strength)
                    rows.append(
                        {
                            "law": law,
                            "seed": seed,
                            "reference": name,
                            "lambda": strength,
                            "score": est.score(test),
                        }
                    )
                    if law == "anchor" and seed == 0 and strength in SHOWN:
                        fits[name, strength] = est
    return rows, fits, samples


def draw(
    rows: list[dict[str, Any]],
    fits: dict[tuple[str, float], Any],
    samples: np.ndarray,
    folder: Path,
) -> Path:
    """The fits, reference by reference and λ by λ, and the held-out scores against λ."""
    import matplotlib.pyplot as plt

    x, y = np.linspace(-3.2, 3.2, 90), np.linspace(-2.8, 4.6, 110)
    grid = np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)
    figure = plt.figure(figsize=(8.0, 9.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[3.0, 1.1])
    axes = above.subplots(3, len(SHOWN), squeeze=False)
    for i, name in enumerate(REFERENCES):
        for j, strength in enumerate(SHOWN):
            axis, density = (
                axes[i, j],
                np.exp(fits[name, strength].score_samples(grid)).reshape(y.size, x.size),
            )
            axis.contourf(
                x, y, density, levels=np.linspace(0.02, 1.0, 10) * density.max(), cmap="Blues"
            )
            axis.plot(*samples.T, ".", color="black", markersize=1.5)
            axis.set(xticks=[], yticks=[])
            if i == 0:
                axis.set_title("λ = ∞" if strength == SHOWN[0] else f"λ = {strength:g}")
            if j == 0:
                axis.set_ylabel(LABELS[name])
    for axis, law in zip(below.subplots(1, len(LAWS), squeeze=False)[0], LAWS, strict=True):
        for name in REFERENCES:
            known = sorted(
                {row["lambda"] for row in rows if row["lambda"] is not None and row["lambda"] < 1e6}
            )
            line = [mean_score(rows, law, name, strength) for strength in known]
            (drawn,) = axis.plot(known, line, marker="o", markersize=3, label=LABELS[name])
            default = mean_score(rows, law, name, None)
            axis.axhline(default, color=drawn.get_color(), linestyle=":", linewidth=1)
        axis.set(xscale="log", xlabel="λ")
        axis.set_title(TITLES[law], fontsize=9)
    handles = axis.get_legend_handles_labels()
    below.axes[0].set_ylabel("held-out score\n(nats per row)")
    below.legend(*handles, loc="outside lower center", ncols=len(REFERENCES), frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "which_reference.png"
    figure.savefig(file, dpi=110)
    plt.close(figure)
    return file


def mean_score(rows: list[dict[str, Any]], law: str, name: str, strength: float | None) -> float:
    """Over the seeds."""
    return float(
        np.mean(
            [
                row["score"]
                for row in rows
                if (row["law"], row["reference"], row["lambda"]) == (law, name, strength)
            ]
        )
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a line per law and reference, a column per λ."""
    known = sorted({row["lambda"] for row in rows if row["lambda"] is not None}, reverse=True)
    heads = ["∞" if strength >= 1e6 else f"{strength:g}" for strength in known]
    lines = [
        "| law | reference | default | " + " | ".join(f"λ = {head}" for head in heads) + " |",
        "|---" * (3 + len(known)) + "|",
    ]
    for law in LAWS:
        for name in REFERENCES:
            scores = [mean_score(rows, law, name, strength) for strength in (None, *known)]
            lines.append(
                f"| {law} | {name} | "
                + " | ".join(f"{score:.3f}".replace("-", "−") for score in scores)
                + " |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--quick"]
    found = run(quick="--quick" in sys.argv)
    print(table(found[0]))
    print(draw(*found, Path(arguments[0]) if arguments else Path("docs/figures")))
