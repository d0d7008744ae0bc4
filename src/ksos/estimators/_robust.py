"""What the robust estimators share: scales, the domain, the radius, the functions a prediction is made of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.exceptions import ConvergenceWarning

from ksos._validation import as_bandwidth, as_count, as_nonnegative
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Box, Lebesgue, Measure
from ksos.robust.landmarks import pivots
from ksos.robust.learning import RobustProblem, RobustSolution
from ksos.robust.radius import bootstrap_radius
from ksos.robust.reference import Reference
from ksos.robust.setting import Setting, as_setting
from ksos.space import SoSSpace

__all__ = [
    "AGREEMENT",
    "EXACT_FEATURES",
    "Basis",
    "EstimatorProblem",
    "centre_and_scale",
    "check_radii",
    "check_radius",
    "distinct_radius",
    "domain_of",
    "relative_bandwidth",
    "report",
    "setting_of",
    "solutions_along",
]

EXACT_FEATURES = 3
"""Up to so many features the domain is a box by default, and losses can be integrated by quadrature."""
MOST_SUPPORT_POINTS = {1: 40, 2: 81, 3: 64}
"""Of the densities, by default and by the number of features; in more features 60."""
_OTHERWISE, _MOST_LANDMARKS = 60, 200
AGREEMENT = 1e-4
"""To which exact and projected MMD of the worst density are to agree before it is made exactly feasible."""
_PAD = 1.0
_MOST_LOOKS, _CLOSE_ENOUGH = 8, 1.02
_MOST_POINTS = 2000


def centre_and_scale(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations; 1 for a feature without spread."""
    unit = np.maximum(np.max(np.abs(X), axis=0), 1e-300)
    scaled = X / unit  # so that nothing overflows
    mean = weights @ scaled
    scale = np.sqrt(weights @ (scaled - mean) ** 2)
    flat = scale <= 1e-12
    return mean * unit, np.where(flat, 1.0, scale * unit)


def relative_bandwidth(X: np.ndarray, centre: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The median distance of the standardised samples, back in the units of every feature."""
    standard = np.unique((X - centre) / scale, axis=0)
    if standard.shape[0] > _MOST_POINTS:
        standard = standard[np.linspace(0, standard.shape[0] - 1, _MOST_POINTS).astype(int)]
    distances = pdist(standard) if standard.shape[0] > 1 else np.ones(1)
    return np.asarray(max(float(np.median(distances)), 1e-3) * scale)


def domain_of(measure: Any, points: np.ndarray, scale: np.ndarray) -> Measure:
    """The box given; else the data and one standard deviation more, up to three features; else all of R^d."""
    d = points.shape[1]
    if measure is not None:
        if not isinstance(measure, (Box, Lebesgue)):
            raise TypeError(f"measure must be a ksos.measures.Box, Lebesgue or None; got {measure!r}")
        measure.check_features(d)
        return measure
    if d > EXACT_FEATURES:
        return Lebesgue()
    return Box(points.min(axis=0) - _PAD * scale, points.max(axis=0) + _PAD * scale)


def setting_of(
    points: np.ndarray, weights: np.ndarray, scale: np.ndarray, sigma: np.ndarray, bandwidth: Any, measure: Any, n_support: int | None
) -> Setting:
    """The space of the adversary: densities that cover a box, up to three features; beyond, densities around the data, seen from there."""
    d = points.shape[1]
    eta = None if bandwidth is None else as_bandwidth(bandwidth, n_features=d)
    domain = domain_of(measure, points, scale)
    most = MOST_SUPPORT_POINTS.get(d, _OTHERWISE) if n_support is None else as_count(n_support, "n_support", minimum=2)
    if d <= EXACT_FEATURES:
        return as_setting(points, weights=weights, bandwidth=eta, embedding_bandwidth=sigma, measure=domain, n_support=most)
    model, distance = Gaussian(scale if eta is None else eta), Gaussian(sigma)
    distinct = np.unique(points, axis=0)
    support = distinct[pivots(model, distinct, 1e-8, most)]
    landmarks = distinct[pivots(distance, distinct, 1e-8, _MOST_LANDMARKS)]
    return replace(as_setting(points, weights=weights, space=SoSSpace(model, support, domain, distance, landmarks)), grows=True)


def check_radii(radii: Any) -> None:
    """Raise on anything but a sequence of radii."""
    if isinstance(radii, str) or not hasattr(radii, "__iter__"):
        raise TypeError(f"radii must be a sequence of radii; got {radii!r}")
    for radius in radii:
        check_radius(radius)


def check_radius(radius: Any) -> None:
    """Raise on a radius that is neither a number nor one of the words."""
    if isinstance(radius, str):
        if radius not in ("auto", "bootstrap"):
            raise ValueError(f'radius must be a non-negative number, "auto" or "bootstrap"; got {radius!r}')
    else:
        as_nonnegative(radius, 'radius (or "auto", "bootstrap")')


def distinct_radius(reference: Reference, kernel: Kernel, random_state: Any) -> float:
    """The bootstrap's radius for as many samples as there are distinct ones, so that weights count like repetitions; 0 for a single one."""
    n = reference.points.shape[0]
    return bootstrap_radius(replace(reference, n_samples=n), kernel, n_resamples=200, rng=random_state) if n > 1 else 0.0


def report(solution: RobustSolution, name: str) -> None:
    """Raise where there is no density in the ball, warn where the gap is not what was asked for."""
    if solution.status == "infeasible":
        raise ValueError(f"{name}: no density of the space lies within radius={solution.radius:.6g} of the data; {solution.note}")
    if solution.status == "undecided":
        raise ValueError(f"{name}: radius={solution.radius:.6g} is about the least one; {solution.message}")
    if solution.status != "solved":
        warnings.warn(f"{name}: {solution.message}", ConvergenceWarning, stacklevel=3)


class EstimatorProblem(RobustProblem):
    """A robust problem whose worst density is made exactly feasible from a rougher agreement of exact and projected MMD."""

    agreement = AGREEMENT

    def radius_of(self, radius: Any, random_state: Any) -> float:
        """A number as it is; a word from the data."""
        raise NotImplementedError

    def nearest_distance(self) -> float:
        """The exact distance to the data of about the nearest density; the directions that it takes to see it stay in the setting."""
        for _ in range(_MOST_LOOKS):
            C, projected, _ = self.problem_on(self.setting).nearest
            density = self.density(C)
            distance = self.exact_distance(density)
            sharper = self.sharper(C, density, distance) if distance > _CLOSE_ENOUGH * projected + self.agreement else None
            if sharper is None:
                break
            self.setting = sharper
        return distance


def solutions_along(
    problem: EstimatorProblem, radii: Sequence[Any], name: str, random_state: Any, tol: float, time_limit: float | None
) -> Iterator[RobustSolution]:
    """The solution of each radius, in the order given, each started from the one before.

    Whether every ball holds a density is found out first, so that no fit is lost to a radius further down.
    """
    numbers = [problem.radius_of(radius, random_state) for radius in radii]
    positive = [radius for radius in numbers if radius > 0.0]
    if positive and min(positive) <= problem.nearest_distance():
        smallest = problem.solve(min(positive), tol, time_limit)
        if smallest.status == "infeasible":
            least = smallest.least_radius
            empty = ", ".join(f"{radius:.6g}" for radius in numbers if least is not None and 0.0 < radius < least)
            raise ValueError(
                f"{name}: no density of the space lies within radius {empty} of the data, so that nothing was fitted; {smallest.note}"
            )
        report(smallest, name)
    solution: RobustSolution | None = None
    for radius in numbers:
        solution = problem.solve(radius, tol, time_limit, solution)
        yield solution


class Basis:
    """u(x) = (1, standardised features), or (1, k(x, c_1), …) with centres among the samples."""

    def __init__(self, model: str, X: np.ndarray, centre: np.ndarray, scale: np.ndarray, n_centers: Any, bandwidth: Any) -> None:
        self.model, self.centre, self.scale = model, centre, scale
        self.kernel: Gaussian | None = None
        if model == "kernel":
            d = X.shape[1]
            sigma = relative_bandwidth(X, centre, scale) if bandwidth is None else as_bandwidth(bandwidth, "model_bandwidth", n_features=d)
            self.kernel = Gaussian(sigma)
            distinct = np.unique(X, axis=0)
            self.centers = distinct[pivots(self.kernel, distinct, 1e-6, as_count(n_centers, "n_centers"))]

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """u at the rows of X, shape (n, P)."""
        ones = np.ones((X.shape[0], 1))
        if self.kernel is None:
            return np.concatenate([ones, (X - self.centre) / self.scale], axis=1)
        return np.concatenate([ones, self.kernel(X, self.centers)], axis=1)

    @property
    def size(self) -> int:
        """P."""
        return 1 + (self.centre.shape[0] if self.kernel is None else self.centers.shape[0])
