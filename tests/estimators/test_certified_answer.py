"""What the estimator returns is what its certificate certifies, for every option.

The referee of the audit computes mass, objective and gap of ``distribution_`` again and compares
them with what ``solution_`` reports. With a reference, whose problem the referee does not know,
quadrature does.
"""

from __future__ import annotations

import inspect
import math
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from audit.referee import LONG, Claims, Referee, Term, kernel_matrix, rule_for

from ksos import KernelSoSDensity
from ksos.functionals import SquaredMMD
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Normal
from ksos.solvers import Fista

_RNG = np.random.default_rng(4)
X = np.concatenate([_RNG.normal(-1.0, 0.4, size=(14, 1)), _RNG.normal(0.8, 0.7, size=(16, 1))])
FAR = np.concatenate([X, np.linspace(-4.0, 4.0, 31)[:, None]])
BOX = Box([-2.5], [np.inf])

OPTIONS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "bandwidth": {"bandwidth": 0.8},
    "median": {"bandwidth": "median"},
    "scott": {"bandwidth": "scott"},
    "silverman": {"bandwidth": "silverman"},
    "laplace": {"kernel": "laplace"},
    "matern": {"kernel": "matern"},
    "a kernel": {"kernel": Gaussian(0.7)},
    "another": {"kernel": Matern(2.5, 0.8, product=True)},
    "a third": {"kernel": Laplace(0.9, product=True)},
    "regularization": {"regularization": 1e-3},
    "no regularization": {"regularization": 0.0},
    "relative_regularization": {"relative_regularization": 0.05},
    "mmd": {"objective": "mmd"},
    "likelihood": {"objective": "likelihood"},
    "a functional": {"objective": SquaredMMD(X[:7])},
    "penalty": {"penalty": "frobenius", "bandwidth": "median"},
    "box": {"measure": BOX},
    "likelihood in a box": {"measure": BOX, "objective": "likelihood"},
    "normal measure": {"measure": Normal([0.2], [1.3])},
    "grid": {"measure": Discrete.quadrature(Box([-3.0], [3.0]), 80)},
    "random": {"support": "random", "n_support": 12, "random_state": 1},
    "pivoted": {"support": "pivoted", "n_support": 9},
    "kmeans": {"support": "kmeans", "n_support": 9},
    "an array": {"support": np.linspace(-2.0, 2.0, 9)[:, None]},
    "landmarks": {"landmarks": 6, "random_state": 0},
    "an array of landmarks": {"landmarks": np.linspace(-2.0, 2.0, 8)[:, None]},
    "embedding_bandwidth": {"embedding_bandwidth": 1.1},
    "solver": {"solver": Fista(max_iter=400), "tol": 1e-5},
    "tol": {"tol": 1e-2},
    "time_limit": {"time_limit": 100.0},
    "contamination": {"contamination": 0.1},
    "verbose": {"verbose": 1},
    "reference": {"reference": "normal"},
    "mixture": {"reference": "mixture"},
    "a normal reference": {"reference": Normal([0.2], [1.3]), "penalty": "frobenius"},
    "a reference": {"reference": GaussianMixture([0.5, 0.5], [[-1.0], [0.8]], [[[0.2]], [[0.5]]])},
    "likelihood with a reference": {"reference": "normal", "objective": "likelihood"},
    "mmd with a reference": {"reference": "normal", "objective": "mmd"},
}


def fit(options: dict[str, Any]) -> KernelSoSDensity:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some of these are given no time to converge
        return KernelSoSDensity(**options).fit(X)


def terms(est: KernelSoSDensity) -> list[Term]:
    """The problem in the units of the paper."""
    data = (
        (X[:7], np.full(7, 1 / 7))
        if not isinstance(est.objective, str)
        else (X, np.full(len(X), 1 / len(X)))
    )
    name = est.objective if isinstance(est.objective, str) else "squared_mmd"
    return [(name, 1.0, data), (est.penalty, est.regularization_, None)]


def refuted(est: KernelSoSDensity, returned: Any) -> list[Any]:
    """What the certificate says and the density that was returned does not have."""
    solution = est.solution_
    own = SimpleNamespace(space=solution.space, distribution=returned)
    tol = est.tol or (
        1e-5 if isinstance(est.objective, str) and est.objective == "likelihood" else 1e-8
    )
    return Referee(own, terms(est)).verdict().against(Claims.of(solution), "fit", tol)


def objective_over_a_reference(est: KernelSoSDensity, returned: Any) -> float:
    """The distance of p·ρ, by quadrature over the density by volume, and the penalty on F alone."""
    space, solution = est.solution_.space, est.solution_
    width = 0.25 * float(min(np.min(space.kernel.sigma), np.min(space.embedding_kernel.sigma)))
    # a mixture has a part that is 729 standard deviations wide
    reach = 6000.0 if est.reference == "mixture" else 60.0
    rule = rule_for(Lebesgue(), np.asarray(space.support_points, float), width, reach)
    (name, _, (points, a)), (_, strength, _) = terms(est)
    if name == "likelihood":
        distance = -float(a @ (returned.logpdf(points) - log_reference(est, points)))
    else:
        masses = rule.weights * np.asarray(returned.pdf(rule.nodes.astype(float)), LONG)
        assert float(masses.sum()) == pytest.approx(1.0, abs=1e-9)
        k, Z = space.embedding_kernel, space.landmarks
        there = masses @ kernel_matrix(k, rule.nodes, Z) - np.asarray(a, LONG) @ kernel_matrix(
            k, points, Z
        )
        residual = np.asarray(space.projection.S, LONG) @ there
        distance = float(residual @ residual)
        distance = math.sqrt(distance) if name == "mmd" else distance
    F = np.asarray(solution.distribution.factor, LONG)
    M = F.T @ kernel_matrix(space.kernel, space.support_points, space.support_points) @ F
    return distance + strength * float(np.sum(M * M) if est.penalty == "frobenius" else np.trace(M))


def log_reference(est: KernelSoSDensity, points: np.ndarray) -> np.ndarray:
    """The log-density of the reference by volume, from its parameters."""
    measure = est.solution_.space.measure
    if isinstance(measure, Normal):
        return np.asarray(
            norm(float(np.ravel(measure.mean)[0]), deviation(measure)).logpdf(points[:, 0])
        )
    deviations = np.sqrt(np.ravel(measure.covariances))
    parts = norm(np.ravel(measure.means), deviations).pdf(points)
    return np.log(parts @ np.ravel(measure.weights))


def deviation(measure: Normal) -> float:
    scale = np.asarray(measure.scale)
    return float(np.sqrt(scale[0, 0]) if scale.ndim == 2 else np.ravel(scale)[0])


def test_every_option_is_here() -> None:
    named = {key for options in OPTIONS.values() for key in options}
    # of tables of any kind, whose fit is compared with the search's
    named |= {"columns", "missing"}
    assert named == set(inspect.signature(KernelSoSDensity).parameters)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_density_has_the_objective_that_the_certificate_reports(name: str) -> None:
    est = fit(OPTIONS[name])
    p, certified = est.distribution_, est.solution_.distribution
    if est.reference is None:
        assert refuted(est, p) == []
        np.testing.assert_allclose(p.logpdf(FAR), certified.logpdf(FAR), rtol=0.0, atol=1e-12)
        assert p.rank == est.solution_.rank
        return
    assert objective_over_a_reference(est, p) == pytest.approx(est.solution_.objective, abs=1e-8)
    by_volume = certified.logpdf(FAR) + log_reference(est, FAR)
    np.testing.assert_allclose(
        p.logpdf(FAR), by_volume, rtol=0.0, atol=1e-12 * np.abs(by_volume).max()
    )


def test_a_blend_would_be_noticed() -> None:
    """Two in a hundred of another density, or a factor without its last digits, are refuted."""
    est = fit({})
    p = est.distribution_
    F = np.asarray(p.factor)
    other = np.sqrt(0.02) * np.asarray(
        fit({"bandwidth": 0.8, "support": est.support_points_}).distribution_.factor
    )
    blend = SimpleNamespace(kernel=p.kernel, factor=np.hstack([np.sqrt(0.98) * F, other]))
    assert refuted(est, blend)
    assert refuted(est, SimpleNamespace(kernel=p.kernel, factor=F * (1.0 + 1e-6)))
