"""RobustRegressor: regression against the worst joint distribution of (x, y) in an MMD ball around the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._validation import as_bandwidth, as_choice, as_nonnegative, as_positive, as_weights
from ksos.estimators._robust import (
    EXACT_FEATURES,
    Basis,
    EstimatorProblem,
    centre_and_scale,
    check_radius,
    distinct_radius,
    relative_bandwidth,
    report,
    setting_of,
)
from ksos.estimators._robust_fits import RobustFits
from ksos.observables import NumericFunction, Observable, coordinate
from ksos.robust.learning import RobustSolution
from ksos.robust.node_risk import NodeBasis, NodeRisk, least_expected, proven_expected
from ksos.robust.nodes import nodes_of
from ksos.robust.radius import bootstrap_radius
from ksos.robust.residual_losses import AbsoluteRisk, HuberLoss
from ksos.robust.square_features import affine_moments, kernel_moments
from ksos.robust.square_risk import SquareRisk, least_squares
from ksos.robust.upper_bound import UpperBound

__all__ = ["RobustRegressor"]

LOSSES = ("square", "huber", "absolute")
MODELS = ("linear", "kernel")
_SMOOTHED = 0.01  # of a standard deviation of y, within which the absolute loss is rounded off
_SHARPER = (1.0, 0.1, 1e-2, 1e-3, 1e-4)  # roundings of |r|, in units of that of the robust problem
_FEASIBLE = 1.2


class RobustRegressor(RobustFits, RegressorMixin, BaseEstimator):
    r"""min over f of max over p of E_p[loss(y − f(x))] + α‖θ‖², p a density of (x, y) with MMD to the data at most the radius.

    Parameters
    ----------
    radius : float, "auto" or "bootstrap"
        Of the ball, in MMD. 0: the regularised empirical solution. "bootstrap": the 95 % quantile of how far resamples of the data wander.
        "auto": the same, but at least 1.2 times the distance of the nearest density of the space. A radius below the least one that holds a
        density of the space is an error that names it.
    model : {"linear", "kernel"}
        f(x) = θ_0 + ⟨θ, (x − mean)/scale⟩, or θ_0 + Σ θ_j k(x, c_j) with Gaussian centres c_j among the samples.
    loss : {"square", "huber", "absolute"}
        "square" in closed form; the others by quadrature over (x, y), which takes at most two features of x. The absolute loss is rounded
        off within 1 % of a standard deviation of y; the gap counts that.
    alpha : float
        Ridge on θ without θ_0.
    n_centers, model_bandwidth
        Of the kernel model.
    huber_delta : float
        Where Huber's loss becomes linear, in standard deviations of y.
    bandwidth : float or array of d + 1 floats, optional
        Of the densities of (x, y).
    embedding_bandwidth : float or array of d + 1 floats, optional
        Of the kernel of the MMD. Default: the median distance of the standardised samples, per feature in its own unit.
    measure : Box or Lebesgue, optional
        Where (x, y) may go. Default, up to two features of x: the box around the data and one standard deviation more; beyond: R^d, where
        the worst case over all distributions is infinite, and the value is that of densities around the data. In either case the ball is
        the exact one: ``worst_case_.mmd`` is at most the radius.
    n_support : int, optional
        The most support points of the densities.
    tol : float
        The gap, relative to the risk, at which the problem counts as solved.
    time_limit : float, optional
        Seconds.
    random_state : int, optional
        Of the bootstrap.

    Attributes
    ----------
    coef_, intercept_ : of the linear model, in the units of X and y
    centers_ : of the kernel model, ndarray (centres, d)
    theta_ : ndarray
    worst_case_ : WorstCase or None
        The worst density of (x, y) for the fitted f, with its value; None at radius 0.
    solution_ : RobustSolution
    radius_ : float
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (30, 1))
    >>> y = 2 * X[:, 0] + 0.1 * rng.normal(size=30)
    >>> est = RobustRegressor(radius=0.2).fit(X, y)
    >>> est.solution_.status, est.worst_case_.mmd <= 0.2
    ('solved', True)
    """

    def __init__(
        self,
        radius: Any = "auto",
        model: str = "linear",
        loss: str = "square",
        alpha: float = 1e-3,
        n_centers: int = 20,
        model_bandwidth: Any = None,
        huber_delta: float = 1.35,
        bandwidth: Any = None,
        embedding_bandwidth: Any = None,
        measure: Any = None,
        n_support: int | None = None,
        tol: float = 1e-4,
        time_limit: float | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.radius = radius
        self.model = model
        self.loss = loss
        self.alpha = alpha
        self.n_centers = n_centers
        self.model_bandwidth = model_bandwidth
        self.huber_delta = huber_delta
        self.bandwidth = bandwidth
        self.embedding_bandwidth = embedding_bandwidth
        self.measure = measure
        self.n_support = n_support
        self.tol = tol
        self.time_limit = time_limit
        self.random_state = random_state

    def predict(self, X: Any) -> np.ndarray:
        """f at the rows of X."""
        check_is_fitted(self, "theta_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(self._basis(X) @ self.theta_ + self._offset)

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> _RegressionProblem:
        check_radius(self.radius)
        as_choice(self.model, "model", MODELS)
        as_choice(self.loss, "loss", LOSSES)
        as_nonnegative(self.alpha, "alpha")
        as_positive(self.tol, "tol")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        as_positive(self.huber_delta, "huber_delta")
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        return _RegressionProblem(self, X, np.asarray(y, dtype=np.float64), as_weights(sample_weight, X.shape[0]))

    def _take(self, problem: _RegressionProblem, solution: RobustSolution) -> Self:
        report(solution, type(self).__name__)
        self.solution_, self.worst_case_, self.radius_ = solution, solution.worst_case, solution.radius
        self.theta_, self._basis, self._offset = solution.theta, problem.basis, problem.offset
        if self.model == "linear":
            self.coef_ = solution.theta[1:] / problem.basis.scale
            self.intercept_ = float(solution.theta[0] + problem.offset - self.coef_ @ problem.basis.centre)
        else:
            self.centers_ = problem.basis.centers
        return self


class _RegressionProblem(EstimatorProblem):
    """The joint distribution of (x, y), and residuals (y − offset) − ⟨u(x), θ⟩."""

    def __init__(self, params: RobustRegressor, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        kept = weights > 0.0
        X, y, weights = X[kept], y[kept], weights[kept]
        Z = np.column_stack([X, y])
        centre, scale = centre_and_scale(Z, weights)
        d = Z.shape[1]
        self.loss, self.offset, self.spread_y = params.loss, float(centre[-1]), float(scale[-1])
        self.basis = Basis(params.model, X, centre[:-1], scale[:-1], params.n_centers, params.model_bandwidth)
        self.X, self.y, self.weights, self.delta = X, y, weights, params.huber_delta * self.spread_y
        if params.loss == "absolute":
            self.delta = _SMOOTHED * self.spread_y
        if params.loss != "square" and d > EXACT_FEATURES:
            raise ValueError(
                f"loss={params.loss!r} goes through quadrature over (x, y), for at most two features of x; got {d - 1}; use loss='square'"
            )
        sigma = relative_bandwidth(Z, centre, scale) if params.embedding_bandwidth is None else as_bandwidth(
            params.embedding_bandwidth, "embedding_bandwidth", n_features=d)  # fmt: skip
        self.setting = setting_of(Z, weights, scale, sigma, params.bandwidth, params.measure, params.n_support)
        P = self.basis.size
        self.ridge = np.r_[0.0, np.full(P - 1, float(params.alpha))] / (self.spread_y if params.loss == "absolute" else 1.0)
        self.E = np.concatenate([np.eye(P), np.zeros((1, P))])[None]
        self.s = np.r_[np.zeros(P), -1.0][None, None]
        self.risk = self._square_risk(centre, scale) if params.loss == "square" else self._node_risk()

    def _square_risk(self, centre: np.ndarray, scale: np.ndarray) -> SquareRisk:
        space = self.setting.space
        if self.basis.kernel is None:
            V = affine_moments(space, centre, np.r_[scale[:-1], 1.0])
        else:
            V = kernel_moments(space, self.basis.centers, self.basis.kernel, self.offset)
        return SquareRisk(V, self.E, self.s, self.ridge)

    def _loss_on(self, points: np.ndarray, sharper: float = 1.0) -> HuberLoss:
        return HuberLoss(self.basis(points[:, :-1]), points[:, -1] - self.offset, self.delta * sharper, absolute=self.loss == "absolute")

    def _loss_of_the_data(self, sharper: float = 1.0) -> HuberLoss:
        return self._loss_on(np.column_stack([self.X, self.y]), sharper)

    def _node_risk(self) -> NodeRisk:
        nodes = nodes_of(self.setting.space)
        kind = AbsoluteRisk if self.loss == "absolute" else NodeRisk
        return kind(NodeBasis(nodes.psi), self._loss_on(nodes.points), self.ridge, np.zeros(self.basis.size))

    def radius_of(self, radius: Any, random_state: Any) -> float:
        """A number as it is; a word from the data."""
        if not isinstance(radius, str):
            return float(radius)
        reference, kernel = self.setting.reference, self.setting.embedding.kernel
        if radius == "bootstrap":
            return bootstrap_radius(reference, kernel, rng=random_state)
        found = distinct_radius(reference, kernel, random_state)
        return max(found, _FEASIBLE * self.nearest_distance(), 1e-3)

    def empirical(self) -> tuple[np.ndarray, float]:
        if self.loss == "square":
            U = np.column_stack([self.basis(self.X), self.y - self.offset])
            found = least_squares((U.T @ (self.weights[:, None] * U))[None], self.E, self.s, self.ridge)
            return found.theta, found.value
        theta, value = np.zeros(self.basis.size), 0.0
        for sharper in _SHARPER if self.loss == "absolute" else (1.0,):  # each rounding starts where a softer one ended
            found = least_expected(self._loss_of_the_data(sharper), self.weights, self.ridge, theta)
            theta, value = found.theta, found.value
        if self.loss == "absolute":
            value = float(self.weights @ np.abs(self._loss_of_the_data().residuals(theta)) + self.ridge @ theta**2)
        return theta, value

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        if self.loss == "square":
            return value
        sharper = _SHARPER[-1] if self.loss == "absolute" else 1.0
        lower = proven_expected(self._loss_of_the_data(sharper), self.weights, self.ridge, theta, tol)
        rounded = 0.5 * self.delta * sharper if self.loss == "absolute" else 0.0  # how far the rounded-off loss may lie above |r|
        return max(lower - rounded, 0.0)

    def loss_at(self, theta: np.ndarray) -> Observable:
        if self.loss == "square" and self.basis.kernel is None:
            d = self.basis.centre.shape[0]
            residual: Any = coordinate(d, centre=self.offset) - float(theta[0])
            for k in range(d):
                residual = residual - float(theta[k + 1] / self.basis.scale[k]) * coordinate(k, centre=float(self.basis.centre[k]))
            return residual**2

        return NumericFunction(_ResidualLoss(self.loss, self.basis, self.offset, self.delta, theta))

    def integration_error(self, theta: np.ndarray) -> float:
        if self.loss == "square":
            return 0.0
        finer = nodes_of(self.setting.space, finer=True)
        M = NodeBasis(finer.psi).matrix(self.loss_at(theta)(finer.points))
        return float(np.linalg.norm(M - self.risk.true_matrix(theta), 2))

    def bound(self, theta: np.ndarray, loss: Observable, g: Any, size: float, radius: float, spread: float) -> UpperBound | None:
        import warnings

        with warnings.catch_warnings():  # that R^d has no bound is in the docstring, and in upper_bound_kind
            warnings.simplefilter("ignore", UserWarning)
            return super().bound(theta, loss, g, size, radius, spread)


@dataclass(frozen=True)
class _ResidualLoss:
    """(x, y) ↦ loss(y − f(x)), as a function that can be pickled."""

    loss: str
    basis: Basis
    offset: float
    delta: float
    theta: np.ndarray

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        r = Z[:, -1] - self.offset - self.basis(Z[:, :-1]) @ self.theta
        if self.loss == "square":
            return np.asarray(r**2)
        clipped = np.clip(r, -self.delta, self.delta)
        return np.asarray(np.abs(r) if self.loss == "absolute" else clipped * (r - 0.5 * clipped))
