"""Eighty samples of ½N(−1, 0.3²) + ½N(1, 0.3²): KernelSoSDensityCV beside the truth and a
cross-validated kernel density estimate.

    python benchmarks/bimodal.py [--seeds 100] [--samples 80]

Mean loss against the truth in nats per sample, and the paired lead over scikit-learn's
KernelDensity (standardized, bandwidth by 5 folds).
"""

from __future__ import annotations

import json

import numpy as np
from quick import parse, parser_of
from scipy.stats import binomtest, ttest_1samp
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity

import ksos

MEANS, DEVIATION = (-1.0, 1.0), 0.3


def draw(n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.choice(MEANS, n)[:, None] + DEVIATION * rng.standard_normal((n, 1))


def log_truth(X: np.ndarray) -> np.ndarray:
    bumps = [np.exp(-0.5 * ((X[:, 0] - mean) / DEVIATION) ** 2) for mean in MEANS]
    return np.log(sum(bumps) / (len(MEANS) * DEVIATION * np.sqrt(2.0 * np.pi)))


def kernel_density_score(train: np.ndarray, test: np.ndarray) -> float:
    scale = train.std()
    search = GridSearchCV(
        KernelDensity(),
        {"bandwidth": np.geomspace(0.01, 2.0, 40)},
        cv=KFold(5, shuffle=True, random_state=0),
    )
    return float(search.fit(train / scale).score(test / scale) / len(test) - np.log(scale))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--samples", type=int, default=80)
    options = parse(parser, seeds=2)
    losses, leads = [], []
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        train, test = draw(options.samples, rng), draw(4000, rng)
        score = ksos.KernelSoSDensityCV().fit(train).score(test)
        losses.append(float(log_truth(test).mean()) - score)
        leads.append(score - kernel_density_score(train, test))
    root, wins = np.sqrt(options.seeds), int(np.sum(np.array(leads) > 0.0))
    print(
        json.dumps(
            {
                "loss_against_the_truth": [float(np.mean(losses)), float(np.std(losses) / root)],
                "lead_over_kernel_density": [float(np.mean(leads)), float(np.std(leads) / root)],
                "paired_t_test_p": float(ttest_1samp(leads, 0.0, alternative="greater").pvalue),
                "wins": wins,
                "sign_test_p": float(binomtest(wins, options.seeds, alternative="greater").pvalue),
            }
        )
    )


if __name__ == "__main__":
    main()
