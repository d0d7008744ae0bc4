"""Every kernel, measure, pair, functional and solver, listed once. The laws run on all of them.

The tables start from the library's own (``KERNELS``, ``MEASURES``, ``CLOSED_FORMS``, ``SOLVERS``):
what is added there is tested here without another word; only variants with special parameters are
added by hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals import (
    MMD,
    Expectation,
    Frobenius,
    Functional,
    NegativeLogLikelihood,
    Objective,
    SquaredL2,
    SquaredMMD,
    Trace,
)
from ksos.integrals import closed_form
from ksos.kernels import KERNELS, ROUTES, Gaussian, Kernel, Laplace, Matern
from ksos.measures import MEASURES, Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal
from ksos.observables import BoxIndicator, coordinate
from ksos.solvers import (
    LBFGS,
    SOLVERS,
    Auto,
    Fista,
    FrankWolfe,
    InteriorPoint,
    LowRank,
    ProjectedGradient,
    Solver,
    project,
)
from ksos.space import SoSSpace

__all__ = [
    "FEATURE_KERNELS",
    "FUNCTIONAL_CASES",
    "KERNEL_CASES",
    "MEASURE_CASES",
    "PAIR_CASES",
    "REACH",
    "SOLVER_CASES",
    "SOLVER_FUNCTIONAL_CASES",
    "SOLVER_OPTIONS",
    "TAKES",
    "THIN_PAIR_CASES",
    "WHITENING_CASES",
    "PairCase",
    "answers_itself",
    "points",
    "some_point",
    "value",
]


def points(n: int, d: int, seed: int = 0) -> np.ndarray:
    """A small cloud, about two units wide."""
    return np.random.default_rng(seed).normal(scale=0.7, size=(n, d))


def some_point(r: int, seed: int = 0) -> np.ndarray:
    """A random parameter of r directions."""
    M = np.random.default_rng(seed).normal(size=(r, r))
    return project(0.3 * (M + M.T))


def value(functional: Functional, space: SoSSpace, C: np.ndarray) -> float:
    """A functional at a parameter."""
    objective = Objective.of(functional, space)
    return objective.value(objective.point(C))


KERNEL_CASES: dict[str, Kernel] = {
    **{name: kernel(sigma=0.8) for name, kernel in KERNELS.items()},
    "laplace, product": Laplace(0.8, product=True),
    "matern 1/2": Matern(0.5, 0.8),
    "matern 3/2, product": Matern(1.5, 0.8, product=True),
    "matern 5/2": Matern(2.5, 0.8),
    "matern 5/2, product": Matern(2.5, 0.8, product=True),
    "matern 7/2, product": Matern(3.5, 0.4, product=True),
    "matern 0.8": Matern(0.8, 0.8),
    "matern 1.7": Matern(1.7, 0.8),
    "matern 6": Matern(6.0, 0.3),
}

FEATURE_KERNELS: dict[str, Kernel] = {
    "gaussian, per feature": Gaussian([0.8, 0.5]),
    "gaussian, tied": Gaussian([[0.64, 0.25], [0.25, 0.3]]),
}
"""Kernels for two features only."""

MEASURE_CASES: dict[str, dict[int, Measure]] = {
    "lebesgue": {1: Lebesgue(), 2: Lebesgue()},
    "box": {1: Box([-0.6], [0.9]), 2: Box([-0.6, -1.0], [0.9, 0.5])},
    "half-infinite box": {1: Box([-0.3], [np.inf]), 2: Box([-np.inf, -0.3], [0.4, np.inf])},
    "normal": {1: Normal(0.2, 0.9), 2: Normal([0.2, -0.3], [0.9, 0.5])},
    "normal with covariance": {2: Normal([0.2, -0.3], [[0.8, 0.3], [0.3, 0.5]])},
    "gaussian_mixture": {
        1: GaussianMixture([1, 2], [[0.3], [-0.6]], [[0.5], [0.2]]),
        2: GaussianMixture(
            [2, 1],
            [[0.4, 0.0], [-0.5, 0.3]],
            [[[0.5, 0.2], [0.2, 0.3]], [[0.3, -0.1], [-0.1, 0.6]]],
        ),
    },
    "discrete": {
        1: Discrete(points(30, 1, 5)),
        2: Discrete(points(40, 2, 5), np.linspace(0.5, 1.5, 40)),
    },
}
assert set(MEASURES) <= {name.split()[-1] for name in MEASURE_CASES}, "a measure without a case"


@dataclass(frozen=True)
class PairCase:
    """A kernel and a measure with closed-form integrals."""

    kernel: Kernel
    measure: Measure
    d: int


def _available(kernel: Kernel, measure: Measure, d: int) -> bool:
    try:
        closed_form(kernel, measure, d)
    except IntegralNotAvailableError:
        return False
    return True


PAIR_CASES: dict[str, PairCase] = {
    f"{kernel_name} × {measure_name}, d={d}": PairCase(kernel, measure, d)
    for kernel_name, kernel in {**KERNEL_CASES, **FEATURE_KERNELS}.items()
    for measure_name, by_dimension in MEASURE_CASES.items()
    for d, measure in by_dimension.items()
    if (kernel.sigma.ndim == 0 or d == 2) and _available(kernel, measure, d)
}


def _thinned() -> dict[str, PairCase]:
    dimensions: dict[str, list[str]] = {}
    for name in PAIR_CASES:
        dimensions.setdefault(name.rpartition(",")[0], []).append(name)
    kernels, measures = list({**KERNEL_CASES, **FEATURE_KERNELS}), list(MEASURE_CASES)
    thinned = {}
    for pair, names in dimensions.items():
        kernel, measure = pair.split(" × ")
        turn = 1 + kernels.index(kernel) + measures.index(measure)
        # on a line, a product is a kernel without one
        name = names[-1 if PAIR_CASES[names[0]].kernel.product else turn % len(names)]
        thinned[name] = PAIR_CASES[name]
    return thinned


THIN_PAIR_CASES: dict[str, PairCase] = _thinned()
"""Every kernel with every measure, in one dimension or in two, in turn: for laws that rest on the
closed forms, which are tested in both.
"""
assert {(type(pair.measure), pair.d) for pair in PAIR_CASES.values()} == {
    (type(pair.measure), pair.d) for pair in THIN_PAIR_CASES.values()
}


def answers_itself(pair: PairCase) -> bool:
    """Whether a density of the pair has its own closed forms; if not, it answers as a mixture."""
    return not pair.measure.by_components and not (
        pair.kernel.full and pair.measure.normals(pair.d) is not None
    )


FUNCTIONAL_CASES: dict[str, Functional] = {
    "squared mmd": SquaredMMD(points(12, 2, 1)),
    "squared mmd + trace": SquaredMMD(points(12, 2, 1)) + 1e-2 * Trace(),
    "mmd + trace": MMD(points(12, 2, 1)) + 1e-2 * Trace(relative=True),
    "squared mmd + frobenius": SquaredMMD(points(12, 2, 1)) + 1e-2 * Frobenius(),
    "everything": (
        0.5 * SquaredMMD(points(12, 2, 1))
        + 0.3 * MMD(points(5, 2, 2))
        + 1e-2 * Trace()
        + 1e-3 * Frobenius(relative=True)
    ),
    "trace alone": Trace(),
    "squared mmd + expectation": (
        SquaredMMD(points(12, 2, 1))
        + 0.1 * Expectation(coordinate(0) ** 2 + BoxIndicator([0, 0], [1, 2]))
    ),
    "squared l2": SquaredL2(points(12, 2, 1)),
    "likelihood": NegativeLogLikelihood(points(12, 2, 1)),
    "likelihood + trace": (
        NegativeLogLikelihood(points(12, 2, 1), np.arange(12)) + 0.1 * Trace(relative=True)
    ),
}

SOLVER_CASES: list[str] = ["auto", *SOLVERS]
TAKES: dict[str, set[str]] = {
    "interior_point": {
        "squared mmd",
        "squared mmd + trace",
        "trace alone",
        "squared mmd + expectation",
    }
}
"""The functionals that a solver takes, for those that do not take all of them."""
SOLVER_FUNCTIONAL_CASES: list[tuple[str, str]] = [
    (solver, functional)
    for solver in SOLVER_CASES
    for functional in FUNCTIONAL_CASES
    if functional in TAKES.get(solver, FUNCTIONAL_CASES)
]
REACH: dict[str, float] = {"frank_wolfe": 1e-4}
"""The gap that a slow solver reaches within the time of a test, where that is not the one that all
others reach.
"""
SOLVER_OPTIONS: dict[type[Solver], dict[str, object]] = {
    Auto: {"max_iter": 3, "newton_steps": 1, "gradient_steps": 10},
    LowRank: {
        "max_iter": 3,
        "first_columns": 1,
        "max_columns": 1,
        "extra_steps": 0,
        "dense_unknowns": 0,
    },
    InteriorPoint: {"max_iter": 3, "step_fraction": 0.5, "face_columns": 0},
    LBFGS: {
        "max_iter": 20,
        "columns": 2,
        "max_columns": 1,
        "memory": 1,
        "check_every": 3,
        "stall": 1e-6,
    },
    Fista: {"max_iter": 20, "check_every": 3, "restart": False},
    ProjectedGradient: {"max_iter": 20, "check_every": 3},
    FrankWolfe: {"max_iter": 20, "check_every": 3},
}
"""Every option of every solver, with a value that is not its default."""
WHITENING_CASES: list[str] = list(ROUTES)
