"""What a grid search shares: KernelSoSDensityCV over a grid beside the separate fits that it
replaces, in one run.

    python benchmarks/cross_validation.py [--samples 400] [--grid 10] [--folds 5] [--separate 20]

Separate fits are timed for an even selection of (bandwidth, λ, fold) and scaled up to all of them.
Processor's time, one thread.
"""

from __future__ import annotations

import itertools
import json
import time
import warnings

import numpy as np
from quick import parse, parser_of
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold

import ksos
from ksos.kernels import Gaussian


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--samples", type=int, default=400)
    parser.add_argument("--grid", type=int, default=10)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--separate", type=int, default=20)
    parser.add_argument(
        "--tol",
        type=float,
        default=1e-4,
        help="of the separate fits; what a choice among them needs",
    )
    options = parse(parser, samples=60, grid=2, folds=2, separate=2)
    X = np.asarray(make_moons(options.samples, noise=0.1, random_state=0)[0])
    multiples, strengths = (
        np.geomspace(0.5, 4.0, options.grid),
        np.geomspace(1.0, 1e-4, options.grid),
    )

    began = time.process_time()
    grids = {"bandwidths": multiples, "relative_regularizations": strengths}
    search = ksos.KernelSoSDensityCV(**grids, cv=options.folds, reference=None).fit(X)
    together = time.process_time() - began

    unit = Gaussian(search.bandwidth_).scaled(1.0 / search.best_params_["bandwidth_multiple"])
    jobs = list(itertools.product(multiples, strengths, range(options.folds)))
    chosen = [jobs[i] for i in np.linspace(0, len(jobs) - 1, options.separate).astype(int)]
    folds = list(KFold(options.folds, shuffle=True, random_state=0).split(X))
    began = time.process_time()
    for multiple, strength, fold in chosen:
        train, test = folds[fold]
        bandwidth = unit.scaled(multiple).sigma
        estimator = ksos.KernelSoSDensity(
            bandwidth=bandwidth,
            relative_regularization=strength,
            objective="likelihood",
            tol=options.tol,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            estimator.fit(X[train]).score(X[test])
    apart = (time.process_time() - began) * len(jobs) / len(chosen)
    print(
        json.dumps(
            {
                "fits": len(jobs),
                "together_s": together,
                "separate_s": apart,
                "ratio": apart / together,
                "score": search.score(X),
            }
        )
    )


if __name__ == "__main__":
    main()
