"""Coverage of the 90% highest-density region of KernelSoSDensity() on held-out samples.

python benchmarks/honest_regions.py [--sizes 150 400 1600] [--tables cars_5 wine_6] [--seeds 5]
                                    [--reference mixture] [--baselines]

Also printed: the standard deviations of the fit relative to those of held-out samples, feature by
feature. Both are means over the seeds. Real tables are split at random, at most two thirds to fit.
With --baselines the same for SciPy's gaussian_kde, for scikit-learn's KernelDensity with a
bandwidth chosen by cross-validation, and for its GaussianMixture with a size chosen by BIC, the
latter two on standardized features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from quick import parse, parser_of
from scipy.stats import gaussian_kde
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

from ksos import KernelSoSDensity

Draw = Callable[[int, np.random.Generator], np.ndarray]

MASS = 0.9
N_TEST, N_DRAWS = 4000, 2000  # the level of a region is known to √(0.09/2000) = 0.7%


class Split(NamedTuple):
    fit: np.ndarray
    held_out: np.ndarray


class Region(NamedTuple):
    """Of one table at one size, in the mean over seeds."""

    n: int
    coverage: float
    ratios: np.ndarray
    score: float


def blobs(d: int) -> Draw:
    """Five normal laws with axes of their own."""
    rng = np.random.default_rng(300 + d)
    centers = 2.5 * rng.normal(size=(5, d))
    axes = np.stack(
        [np.linalg.qr(rng.normal(size=(d, d)))[0] * rng.uniform(0.3, 1.3, d) for _ in range(5)]
    )

    def draw(n: int, rng: np.random.Generator) -> np.ndarray:
        law = rng.integers(5, size=n)
        return np.asarray(
            centers[law] + np.einsum("nij,nj->ni", axes[law], rng.normal(size=(n, d)))
        )

    return draw


def cars(n: int, rng: np.random.Generator) -> np.ndarray:
    """Consumption, displacement, power, weight and acceleration: tied, skewed, of many scales, and
    in groups by the number of cylinders.
    """
    cylinders = rng.choice([4, 4, 4, 6, 8, 8], size=n)
    displacement = 28.0 * cylinders * np.exp(0.18 * rng.normal(size=n))
    power = (
        20.0 + 0.42 * displacement * np.exp(0.18 * rng.normal(size=n)) + rng.gamma(3.0, 6.0, size=n)
    )
    weight = 1300.0 + 8.0 * displacement + 220.0 * rng.normal(size=n)
    acceleration = 24.0 - 0.055 * power + 1.6 * rng.normal(size=n)
    consumption = np.exp(5.0 - 4e-4 * weight - 2e-3 * power + 0.12 * rng.normal(size=n))
    return np.column_stack([consumption, displacement, power, weight, acceleration])


def columns(draw: Draw, chosen: list[int]) -> Draw:
    return lambda n, rng: draw(n, rng)[:, chosen]


LAWS: dict[str, Draw] = {f"blobs_{d}": blobs(d) for d in (2, 3, 5, 10)}
LAWS |= {"cars_2": columns(cars, [0, 2]), "cars_3": columns(cars, [0, 2, 3]), "cars_5": cars}
_CANCER, _WINE = load_breast_cancer().data, load_wine().data
TABLES: dict[str, np.ndarray] = {
    "cancer_3": _CANCER[:, :3],
    "cancer_5": _CANCER[:, [1, 4, 5, 8, 9]],
    "cancer_10": _CANCER[:, :10],
    "wine_3": _WINE[:, [0, 6, 12]],
    "wine_6": _WINE[:, :6],
}
NAMES = [*LAWS, *TABLES]


def split(name: str, n: int, seed: int) -> Split:
    """``n`` samples to fit, or two thirds of a table with fewer rows, and others."""
    rng = np.random.default_rng(40_000 + seed)
    if name in LAWS:
        return Split(LAWS[name](n, rng), LAWS[name](N_TEST, rng))
    rows = TABLES[name][rng.permutation(len(TABLES[name]))]
    n = min(n, 2 * len(rows) // 3)
    return Split(rows[:n], rows[n:])


class Law(NamedTuple):
    """What is asked of a fit."""

    logpdf: Callable[[np.ndarray], np.ndarray]
    draws: np.ndarray
    variances: np.ndarray


def ours(X: np.ndarray, seed: int, **options: Any) -> Law:
    p = KernelSoSDensity(**options).fit(X).distribution_
    return Law(p.logpdf, p.rvs(N_DRAWS, rng=seed), np.diagonal(np.atleast_2d(p.cov())))


def scipy_kde(X: np.ndarray, seed: int) -> Law:
    p = gaussian_kde(X.T)
    return Law(
        lambda Z: p.logpdf(Z.T),
        p.resample(N_DRAWS, seed=seed).T,
        X.var(axis=0, ddof=1) + np.diagonal(np.atleast_2d(p.covariance)),
    )


def kernel_density(X: np.ndarray, seed: int) -> Law:
    mean, scale = X.mean(axis=0), X.std(axis=0)
    search = GridSearchCV(
        KernelDensity(),
        {"bandwidth": np.geomspace(0.05, 1.5, 25)},
        cv=KFold(5, shuffle=True, random_state=seed),
    )
    p = search.fit((X - mean) / scale).best_estimator_
    draws = mean + scale * p.sample(N_DRAWS, random_state=seed)
    return Law(
        lambda Z: p.score_samples((Z - mean) / scale) - np.log(scale).sum(),
        draws,
        (1.0 + p.bandwidth_**2) * scale**2,
    )


def normal_mixture(X: np.ndarray, seed: int) -> Law:
    mean, scale = X.mean(axis=0), X.std(axis=0)
    Z = (X - mean) / scale
    p = min(
        (
            GaussianMixture(k, reg_covar=1e-4, n_init=2, random_state=seed).fit(Z)
            for k in range(1, 9)
        ),
        key=lambda fit: fit.bic(Z),
    )
    squares = np.einsum("kii->ki", p.covariances_) + p.means_**2
    variances = scale**2 * (p.weights_ @ squares - (p.weights_ @ p.means_) ** 2)
    return Law(
        lambda Z: p.score_samples((Z - mean) / scale) - np.log(scale).sum(),
        mean + scale * p.sample(N_DRAWS)[0],
        variances,
    )


BASELINES: dict[str, Callable[[np.ndarray, int], Law]] = {
    "gaussian_kde": scipy_kde,
    "KDE, CV": kernel_density,
    "GMM, BIC": normal_mixture,
}


def region(name: str, n: int, seeds: int, fit: Callable[..., Law] = ours, **options: Any) -> Region:
    """Coverage and ratios of the fits to ``seeds`` splits."""
    coverage, score, fitted, seen = [], [], [], []
    for seed in range(seeds):
        data = split(name, n, seed)
        p = fit(data.fit, seed, **options)
        level, logs = np.quantile(p.logpdf(p.draws), 1.0 - MASS), p.logpdf(data.held_out)
        coverage.append(np.mean(logs >= level))
        score.append(np.mean(logs))
        fitted.append(p.variances)
        seen.append(data.held_out.var(axis=0))
    return Region(
        len(data.fit),
        float(np.mean(coverage)),
        np.sqrt(np.mean(fitted, axis=0) / np.mean(seen, axis=0)),
        float(np.mean(score)),
    )


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=[150, 400, 1600])
    parser.add_argument("--tables", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--reference", choices=["normal", "mixture"], help="of the fit (default: none)"
    )
    parser.add_argument(
        "--baselines", action="store_true", help="also fit SciPy's and scikit-learn's"
    )
    told = parse(parser, sizes=[60], tables=["blobs_2"], seeds=1)
    header = (
        "| table | n | fit | coverage of the 90% region | standard deviations, fitted / held-out |"
        " score |"
    )
    print(f"{header}\n{'| --- ' * 6}|")
    for name in told.tables:
        done: set[int] = set()
        for n in told.sizes:
            if n in done or (
                name in TABLES and n > told.sizes[0] and n > 2 * len(TABLES[name]) // 3
            ):
                continue
            found = {"ksos": region(name, n, told.seeds, reference=told.reference)}
            found |= {
                who: region(name, n, told.seeds, fit)
                for who, fit in BASELINES.items()
                if told.baselines
            }
            done.add(found["ksos"].n)
            for who, one in found.items():
                deviations = f"{one.ratios.min():.2f} to {one.ratios.max():.2f}"
                words = [
                    name,
                    one.n,
                    who,
                    f"{100.0 * one.coverage:.1f}%",
                    deviations,
                    f"{one.score:.3f}",
                ]
                print("| " + " | ".join(map(str, words)) + " |", flush=True)


if __name__ == "__main__":
    main()
