"""What the robust estimators share: parameters, ``fit`` and ``path``, the setting of the samples, models that are linear in θ."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from ksos._deadline import Deadline, set_up
from ksos._progress import shown, tell
from ksos._validation import as_bandwidth, as_choice, as_count, as_nonnegative
from ksos.cover import pivots
from ksos.estimators._robust_radius import harmless_radius
from ksos.estimators._robust_shift import ANYWHERE, SHIFTS, Moments, prepared_for
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Box, Lebesgue, Measure
from ksos.nodes import Nodes
from ksos.observables import coordinate
from ksos.robust.exact_ball import nearest_exactly
from ksos.robust.learning import ParametricFamily, RobustSolution, solved_robustly
from ksos.robust.losses import as_loss_object
from ksos.robust.node_risk import NodeRisk, least_expected
from ksos.robust.problem import Problem
from ksos.robust.risk import SquareRisk, affine_moments, kernel_moments, least_squares
from ksos.robust.setting import Reference, Setting, as_setting, bootstrap_radius, check_radius
from ksos.robust.worst_case import as_goal
from ksos.space import SoSSpace

__all__ = ["EXACT_FEATURES", "Basis", "EstimatorFamily", "RobustEstimator", "centre_and_scale", "setting_of"]

EXACT_FEATURES = 3
"""Up to so many features the domain is a box by default, and losses can be integrated by quadrature."""
MODELS = ("linear", "kernel")
_MOST_SUPPORT_POINTS, _OTHERWISE = {1: 40, 2: 81, 3: 64}, 60  # of the densities, by the number of features
_MOST_LANDMARKS, _MOST_POINTS = 200, 2000
_PAD = 1.0
_FEASIBLE = 1.2


class RobustEstimator(BaseEstimator):
    """``fit`` and ``path`` of an estimator that says what its losses are (``_family``) and takes a solution (``_take``)."""

    _kind: type
    """Of its losses."""
    _family: Callable[..., EstimatorFamily]
    _take: Callable[..., None]
    _law_names: Callable[..., tuple[list[str], list[Any]]]
    """Of the columns, and of the labels."""
    _loss_at_samples = "square"
    """The default where expectations are sums over the samples."""

    def __init__(
        self, radius: Any = "auto", model: str = "linear", loss: Any = None, alpha: float = 1e-3, n_centers: int = 20,
        model_bandwidth: Any = None, bandwidth: Any = None, embedding_bandwidth: Any = None, measure: Any = None,
        n_support: int | None = None, tol: float | None = None, rtol: float = 1e-4, time_limit: float | None = None,
        random_state: int | None = 0, shift: str | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.radius, self.model, self.loss, self.alpha = radius, model, loss, alpha
        self.n_centers, self.model_bandwidth = n_centers, model_bandwidth
        self.bandwidth, self.embedding_bandwidth, self.measure, self.n_support = bandwidth, embedding_bandwidth, measure, n_support
        self.tol, self.rtol, self.time_limit, self.random_state = tol, rtol, time_limit, random_state
        self.shift, self.verbose = shift, verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model, and find the worst density. Ctrl-C stores the best solution so far, if there is one, and is raised again."""
        with shown(type(self).__name__, "setting up", verbose=self.verbose):
            self._fit(X, y, [self.radius], sample_weight, lambda radius: self)
        return self

    def path(self, X: Any, y: Any, radii: Sequence[Any], sample_weight: Any = None) -> list[Self]:
        """One fitted clone per radius, in the order given, each started from the one before: ε against what it costs and buys.

        A radius whose ball holds no density is an error that names the least radius, before anything is fitted. ``time_limit`` is for all
        radii together.
        """
        if isinstance(radii, str) or not np.iterable(radii):
            raise TypeError(f"radii must be a sequence of radii; got {radii!r}")

        shift = self._shift_for(radii)

        def copy(radius: Any) -> Any:
            fitted = clone(self).set_params(radius=radius, shift=shift)
            for name in {"n_features_in_", "feature_names_in_", "classes_"} & vars(self).keys():
                setattr(fitted, name, getattr(self, name))
            return fitted

        with shown(type(self).__name__, "setting up", verbose=self.verbose):
            return self._fit(X, y, radii, sample_weight, copy)

    def _shift_for(self, radii: Sequence[Any]) -> str:
        """What may shift: as asked; else anywhere in the domain for radii that are known, and weights of the samples for "auto"."""
        if self.shift is None:
            return ANYWHERE if self.measure is not None or not any(isinstance(r, str) and r == "auto" for r in radii) else "both"
        shift = as_choice(self.shift, "shift", tuple(SHIFTS))
        if shift != ANYWHERE and self.measure is not None:
            raise ValueError(f"measure is a domain, for shift='{ANYWHERE}'; shift={shift!r} reweights the samples: leave out one of them")
        return shift

    def _loss_for(self, shift: str) -> Any:
        default = "square" if shift == ANYWHERE else self._loss_at_samples
        return as_loss_object(default if self.loss is None else self.loss, self._kind)

    @np.errstate(under="ignore")
    def _fit(self, X: Any, y: Any, radii: Sequence[Any], sample_weight: Any, target: Callable[[Any], Any]) -> list[Self]:
        deadline, name = Deadline(self.time_limit), type(self).__name__
        for radius in (self.radius, *radii):
            check_radius(radius, ("auto", "bootstrap"))
        as_choice(self.model, "model", MODELS)
        as_nonnegative(self.alpha, "alpha")
        goal, shift = as_goal(self.tol, self.rtol), self._shift_for(radii)
        with set_up(deadline, 0.25):
            family = self._family(self._loss_for(shift), X, y, sample_weight, shift)
        problem, numbers = family.problem, []
        for radius in radii:
            number, problem = family.radius_of(radius, self.random_state, problem, deadline)
            numbers.append(number)
        if len(numbers) > 1:
            problem = _checked(family, problem, numbers, goal, deadline, name)
        solution: RobustSolution | None = None
        out: list[Any] = []
        for radius, number in zip(radii, numbers, strict=True):
            tell(f"radius {number:.3g}, {len(out) + 1} of {len(radii)}", len(out), len(radii))
            solution = solved_robustly(family, number, goal, deadline, None if solution is None else solution.saddle, problem)
            _report(solution, name)
            fitted = target(radius)
            fitted.solution_, fitted.worst_case_, fitted.radius_ = solution, solution.worst_case, solution.radius
            fitted._take(family, solution.theta)
            fitted.prepared_for_ = prepared_for(family, solution, shift, *self._law_names())
            if self.verbose:
                print(f"{name} is {fitted.prepared_for_}", flush=True)
            out.append(fitted)
            if solution.saddle is not None and solution.saddle.keyboard_interrupt:
                raise KeyboardInterrupt(f"{name}: {solution.message}")
        return out


def _checked(family: EstimatorFamily, problem: Problem, radii: list[float], goal: Any, deadline: Deadline, name: str) -> Problem:
    """The problem, if every ball holds a density: found out first, so that no fit is lost to a radius further down."""
    positive = [radius for radius in radii if radius > 0.0]
    if not positive:
        return problem
    distance, problem = nearest_exactly(problem, deadline)
    if min(positive) <= distance:
        smallest = solved_robustly(family, min(positive), goal, deadline, None, problem)
        if smallest.status == "infeasible":
            least = smallest.least_radius
            empty = ", ".join(f"{radius:.6g}" for radius in radii if least is not None and 0.0 < radius < least)
            problem_with = f"no density of the space lies within radius {empty} of the data, so that nothing was fitted"
            raise ValueError(f"{name}: {problem_with}; {smallest.note}")
        _report(smallest, name)
    return problem


def _report(solution: RobustSolution, name: str) -> None:
    """Raise if there is no density in the ball, warn if the gap is not what was asked for."""
    if solution.status == "infeasible":
        raise ValueError(f"{name}: no density of the space lies within radius={solution.radius:.6g} of the data; {solution.note}")
    if solution.status == "undecided":
        raise ValueError(f"{name}: radius={solution.radius:.6g} is about the least one; {solution.message}")
    if solution.status != "solved":
        warnings.warn(f"{name}: {solution.message}", ConvergenceWarning, stacklevel=5)


# --- the samples ---


def column_names(estimator: BaseEstimator) -> list[str]:
    """Those of the table that it was fitted to, or x0, x1, …"""
    names = vars(estimator).get("feature_names_in_")
    return [f"x{k}" for k in range(vars(estimator)["n_features_in_"])] if names is None else [str(name) for name in names]


def centre_and_scale(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations; 1 for a feature without spread."""
    unit = np.maximum(np.max(np.abs(X), axis=0), 1e-300)
    scaled = X / unit  # so that nothing overflows
    mean = weights @ scaled
    scale = np.sqrt(weights @ (scaled - mean) ** 2)
    return mean * unit, np.where(scale <= 1e-12, 1.0, scale * unit)


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
        if not (isinstance(measure, Measure) and measure.by_volume):
            raise TypeError(f"measure must be a ksos.measures.Box, Lebesgue or None; got {measure!r}")
        measure.check_features(d)
        return measure
    return Lebesgue() if d > EXACT_FEATURES else Box(points.min(axis=0) - _PAD * scale, points.max(axis=0) + _PAD * scale)


def setting_of(points: np.ndarray, weights: np.ndarray, centre: np.ndarray, scale: np.ndarray, params: RobustEstimator) -> Setting:
    """The space of the adversary: densities that cover a box, up to three features; beyond, densities around the data, seen from there."""
    d, sigma = points.shape[1], params.embedding_bandwidth
    sigma = relative_bandwidth(points, centre, scale) if sigma is None else as_bandwidth(sigma, "embedding_bandwidth", n_features=d)
    eta, n_support = None if params.bandwidth is None else as_bandwidth(params.bandwidth, n_features=d), params.n_support
    domain = domain_of(params.measure, points, scale)
    most = _MOST_SUPPORT_POINTS.get(d, _OTHERWISE) if n_support is None else as_count(n_support, "n_support", minimum=2)
    if d <= EXACT_FEATURES:
        return as_setting(points, weights=weights, bandwidth=eta, embedding_bandwidth=sigma, measure=domain, n_support=most)
    model, distance = Gaussian(scale if eta is None else eta), Gaussian(sigma)
    distinct = np.unique(points, axis=0)
    support = distinct[pivots(model, distinct, 1e-8, most)]
    landmarks = distinct[pivots(distance, distinct, 1e-8, _MOST_LANDMARKS)]
    return replace(as_setting(points, weights=weights, space=SoSSpace(model, support, domain, distance, landmarks)), grows=True)


# --- models that are linear in θ ---


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
        functions = (X - self.centre) / self.scale if self.kernel is None else self.kernel(X, self.centers)
        return np.concatenate([np.ones((X.shape[0], 1)), functions], axis=1)

    @property
    def size(self) -> int:
        """P."""
        return 1 + (self.centre.shape[0] if self.kernel is None else self.centers.shape[0])

    def affine(self, t: np.ndarray) -> Any:
        """⟨t, u(x)⟩ of the linear model, as a polynomial."""
        features = [float(t[k + 1] / self.scale[k]) * coordinate(k, centre=float(self.centre[k])) for k in range(self.scale.shape[0])]
        return sum(features[1:], features[0]) + float(t[0])


class EstimatorFamily(ParametricFamily):
    """The losses of a model that is linear in θ: squares in closed form, or any other loss at nodes.

    Squares are those of ⟨t, u⟩ with t = E θ + s (see risk.py). Subclasses say what u is, and what a loss is at points.
    """

    agreement = 1e-4

    def __init__(self, loss: Any, basis: Basis, setting: Setting, E: np.ndarray, s: np.ndarray, alpha: np.ndarray, **labelled: Any) -> None:
        super().__init__(setting, **labelled)
        self.loss, self.basis, self.E, self.s, self.alpha = loss, basis, E, s, alpha
        self.risk = SquareRisk(self.second_moments(), E, s, alpha) if loss.closed_form else self.node_risk(self.nodes())

    outcome_centre: float | None = None
    """Of the outcome, if it is the last feature."""
    moments: tuple[np.ndarray, np.ndarray]
    """Centre and scale of the features of the linear model."""
    reference: Reference
    """The samples for the bootstrap."""
    joint_kernel: Kernel
    sample_weights: np.ndarray
    rows: tuple[np.ndarray, np.ndarray, np.ndarray]
    """Distinct samples (X, y) and their weights."""
    params: Any
    given: Any
    """The estimator, and its loss."""
    slack = 1e-4
    """Of the loss of a constant prediction, what a harmless radius may cost."""
    by_quadrature = True
    """Whether losses other than squares are integrated, which few features allow."""

    def second_moments(self) -> np.ndarray:
        """V_ab = ∫ u_a u_b ψψᵀ dρ."""
        space, kernel = self.setting.space, self.basis.kernel
        if kernel is None:
            return affine_moments(space, *self.moments)
        return kernel_moments(space, self.basis.centers, kernel, self.outcome_centre)

    @abstractmethod
    def node_risk(self, nodes: Nodes) -> NodeRisk:
        """The risk of a loss at nodes."""

    @abstractmethod
    def moments_of(self, weights: np.ndarray) -> Moments:
        """The columns, and the shares of labels, of the samples with these weights."""

    def data_law(self) -> Moments:
        """The columns under the data."""
        return self.moments_of(self.sample_weights)

    def law_of(self, distribution: Any) -> Moments:
        """The same under a density of the space."""
        shares = None if self.space.labels is None else np.asarray(distribution.probabilities)
        return Moments(np.asarray(distribution.mean()), np.sqrt(np.maximum(np.diag(distribution.cov()), 0.0)), shares)

    @abstractmethod
    def data_moments(self) -> np.ndarray:
        """Σ_i w_i u_iu_iᵀ of the samples, (labels, P, P)."""

    def radius_of(self, radius: Any, random_state: Any, problem: Problem, deadline: Deadline) -> tuple[float, Problem]:
        """A number, or a rule that computes it from the data; the problem with the directions that this took."""
        if not isinstance(radius, str):
            return float(radius), problem
        if radius == "bootstrap":
            return bootstrap_radius(self.reference, self.joint_kernel, rng=random_state), problem
        n = self.reference.points.shape[0]  # as many samples as there are distinct ones, so that weights count like repetitions
        resampled = replace(self.reference, n_samples=n)
        wide = bootstrap_radius(resampled, self.joint_kernel, n_resamples=200, rng=random_state) if n > 1 else 0.0
        distance, problem = nearest_exactly(problem, deadline)
        return harmless_radius(self, problem, max(wide, _FEASIBLE * distance, 1e-3), random_state, deadline)

    def on(self, rows: np.ndarray) -> Self:
        """The family of some of the samples."""
        X, y, weights = (part[rows] for part in self.rows)
        family: Callable[..., Self] = type(self)
        return family(self.params, self.given, X, y, weights / weights.sum())

    def losses_of(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        """ℓ(θ, ·) at samples."""
        return np.asarray(self.loss_at(theta)(np.column_stack([X, y])))

    def empirical(self) -> tuple[np.ndarray, float]:
        if self.loss.closed_form:
            found = least_squares(self.data_moments(), self.E, self.s, self.alpha)
            return found.theta, found.value
        theta = np.zeros(self.alpha.shape[0])
        for at, _ in self.data_losses():  # each starts where a softer one has ended
            found = least_expected(at, self.masses, self.alpha, theta)
            theta = found.theta
        value = self.empirical_value(theta)
        return theta, found.value if value is None else value + float(self.alpha @ theta**2)

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        return value if self.loss.closed_form else max(super().empirical_bound(theta, value, tol), 0.0)

    def integration_error(self, theta: np.ndarray) -> float:
        return 0.0 if self.loss.closed_form else super().integration_error(theta)
