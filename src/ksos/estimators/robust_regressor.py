"""RobustRegressor: regression against the worst joint distribution of (x, y) in an MMD ball around the data."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._validation import as_vector, as_weights, require_numbers
from ksos.estimators._checks import require_order
from ksos.estimators._robust import EXACT_FEATURES, Basis, EstimatorFamily, RobustEstimator, centre_and_scale, column_names, setting_of
from ksos.estimators._robust_reweighting import Reweighted, distinct_rows
from ksos.estimators._robust_shift import ANYWHERE, Moments
from ksos.nodes import Nodes
from ksos.observables import NumericFunction, Observable, coordinate
from ksos.robust.losses import RegressionLoss, ResidualLoss, Residuals
from ksos.robust.node_risk import NodeRisk, ParametricLoss
from ksos.robust.setting import Setting

__all__ = ["RobustRegressor"]


class RobustRegressor(RegressorMixin, RobustEstimator):
    r"""min over f of max over p of E_p[loss(y − f(x))] + α‖θ‖², p a law of (x, y) with MMD to the data at most the radius.

    Parameters
    ----------
    radius : float, "auto" or "bootstrap"
        Of the ball, in MMD. 0: the regularised empirical solution. "bootstrap": see :func:`ksos.bootstrap_radius`.
        "auto": the largest of 1, ½, ¼, ⅛ times that radius whose loss on five held-out folds is at most ½ % above that of radius 0 (3 % in
        each of them, and in all with one standard error more); else 0, also for fewer than ten distinct samples. Of ``shift="anywhere"``
        the first is at least 1.2 times the distance of the nearest density of the space. A radius below the least one that holds a density
        of the space is an error that names it.
    model : {"linear", "kernel"}
        f(x) = θ_0 + ⟨θ, (x − mean)/scale⟩, or θ_0 + Σ θ_j k(x, c_j) with Gaussian centres c_j among the samples.
    loss : {"square", "huber", "absolute"} or RegressionLoss, optional
        "square", the default, in closed form; the others by quadrature over (x, y), which takes at most two features of x, unless the shift
        reweights the samples. A name stands for a loss
        object with its default, as ``ksos.robust.HuberLoss(delta=1.35)``; δ is in standard deviations of y. The absolute loss is rounded
        off within 1 % of one; the gap counts that. Your own: a subclass of ``ksos.robust.ResidualLoss``.
    alpha : float
        Ridge on θ without θ_0.
    n_centers, model_bandwidth
        Of the kernel model.
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
    tol, rtol : float
        The problem counts as solved when the gap is at most max(tol, rtol·risk): ``tol`` is in the units of the loss (default: none).
    time_limit : float, optional
        Seconds for all of ``fit`` or ``path``, which end at most one step of a solver later.
    random_state : int, optional
        Of the bootstrap and the folds.
    shift : {"x", "y", "both", "anywhere"}, optional
        Which laws there are besides the data. "x", "y", "both": the samples with other weights, which are a sum of squares in x, in y or in
        both; the law of y given x, or of x given y, is that of the data, distances are those of the laws of what shifts, and any loss goes
        with any number of features. "anywhere": densities of (x, y) on ``measure``, also where there are no data. Default: "both" for
        ``radius="auto"``, and "anywhere" for any other radius or with a ``measure``.
    verbose : int
        1 prints ``prepared_for_``.

    Attributes
    ----------
    coef_, intercept_ : of the linear model, in the units of X and y
    centers_ : of the kernel model, ndarray (centres, d)
    theta_ : ndarray
    worst_case_ : WorstCase or None
        The worst density of (x, y) for the fitted f, with its value; None at radius 0. For weights of the samples it is a density of what
        shifts relative to the data.
    prepared_for_ : PreparedFor
        Means and standard deviations of every column in the data and in the worst case, in the column's unit; ``str`` says it in words.
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

    _kind = RegressionLoss

    def predict(self, X: Any) -> np.ndarray:
        """f at the rows of X."""
        check_is_fitted(self, "theta_")
        X = validate_data(self, require_numbers(require_order(self, X)), dtype=np.float64, reset=False)
        return np.asarray(self._basis(X) @ self.theta_ + self._offset)

    def _family(self, loss: RegressionLoss, X: Any, y: Any, sample_weight: Any, shift: str) -> _RegressionFamily:
        y = as_vector(y, "y") if np.asarray(y).ndim == 1 else require_numbers(y, "y")
        X, y = validate_data(self, require_numbers(X), y, dtype=np.float64, y_numeric=True)
        y, weights = np.asarray(y, dtype=np.float64), as_weights(sample_weight, X.shape[0])
        if shift == ANYWHERE:
            return _RegressionFamily(self, loss, X, y, weights)
        return _REWEIGHTED[shift](self, loss, *distinct_rows(X, y, weights))

    def _law_names(self) -> tuple[list[str], list[Any]]:
        return [*column_names(self), "y"], []

    def _take(self, family: _RegressionFamily, theta: np.ndarray) -> None:
        self.theta_, self._basis, self._offset = theta, family.basis, family.outcome_centre
        if self.model == "linear":
            self.coef_ = theta[1:] / family.basis.scale
            self.intercept_ = float(theta[0] + family.outcome_centre - self.coef_ @ family.basis.centre)
        else:
            self.centers_ = family.basis.centers


class _RegressionFamily(EstimatorFamily):
    """The joint distribution of (x, y), and residuals (y − offset) − ⟨u(x), θ⟩."""

    outcome_centre: float

    def __init__(self, params: RobustRegressor, loss: RegressionLoss, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        kept = weights > 0.0
        self.X, self.y, self.masses = X[kept], y[kept], weights[kept]
        self.params, self.given, self.rows = params, loss, distinct_rows(X, y, weights)
        Z = np.column_stack([self.X, self.y])
        centre, scale = centre_and_scale(Z, self.masses)
        d, spread = Z.shape[1], float(scale[-1])
        if self.by_quadrature and not loss.closed_form and d > EXACT_FEATURES:
            reason = f"goes through quadrature over (x, y), for at most two features of x; got {d - 1}"
            raise ValueError(f"loss={loss!r} {reason}; use loss='square', or shift='both', 'x' or 'y'")
        self.outcome_centre, self.moments = float(centre[-1]), (centre, np.r_[scale[:-1], 1.0])
        basis = Basis(params.model, self.X, centre[:-1], scale[:-1], params.n_centers, params.model_bandwidth)
        setting, P, self.sample_weights = self.setting_for(Z, centre, scale, params), basis.size, self.masses
        alpha = np.r_[0.0, np.full(P - 1, float(params.alpha))]
        if isinstance(loss, ResidualLoss):
            loss, alpha = loss.scaled(spread), alpha * spread ** (loss.degree - 2)
        E, s = np.concatenate([np.eye(P), np.zeros((1, P))])[None], np.r_[np.zeros(P), -1.0][None, None]
        super().__init__(loss, basis, setting, E, s, alpha)

    def setting_for(self, Z: np.ndarray, centre: np.ndarray, scale: np.ndarray, params: RobustRegressor) -> Setting:
        """The densities of (x, y)."""
        setting = setting_of(Z, self.masses, centre, scale, params)
        self.reference, self.joint_kernel = setting.reference, setting.embedding.kernel
        return setting

    def moments_of(self, weights: np.ndarray) -> Moments:
        return Moments.of(np.column_stack([self.X, self.y]), weights)

    def functions(self) -> np.ndarray:
        """(u, y − offset) at the samples."""
        return np.column_stack([self.basis(self.X), self.y - self.outcome_centre])

    def _residuals(self, X: np.ndarray, y: np.ndarray, loss: ResidualLoss) -> Residuals:
        return Residuals(loss, self.basis(X), y - self.outcome_centre)

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        risk: NodeRisk = self.loss.risk(nodes, self._residuals(nodes.points[:, :-1], nodes.points[:, -1], self.loss), self.alpha)
        return risk

    def data_moments(self) -> np.ndarray:
        U = self.functions()
        return np.asarray((U.T @ (self.masses[:, None] * U))[None])

    def data_losses(self) -> list[tuple[ParametricLoss, float]]:
        return [(self._residuals(self.X, self.y, loss), loss.excess) for loss in self.loss.ladder()]

    def loss_at(self, theta: np.ndarray) -> Observable:
        if self.loss.closed_form and self.basis.kernel is None:
            residual: Any = coordinate(self.basis.centre.shape[0], centre=self.outcome_centre) - self.basis.affine(theta)
            return residual**2
        return NumericFunction(partial(_residual_loss, self.loss, self.basis, self.outcome_centre, theta))  # can be pickled


class _ReweightedRegression(Reweighted, _RegressionFamily):
    """Losses of the samples under weights that depend on some columns of (x, y)."""

    columns = slice(None)
    functions = _RegressionFamily.functions

    def set_up(self, params: RobustRegressor, loss: RegressionLoss, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        _RegressionFamily.__init__(self, params, loss, X, y, weights)

    def setting_for(self, Z: np.ndarray, centre: np.ndarray, scale: np.ndarray, params: RobustRegressor) -> Setting:
        return self.reweighting(Z[:, self.columns], self.masses, scale[self.columns], params)

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        risk: NodeRisk = self.loss.risk(nodes, self._residuals(self.X, self.y, self.loss), self.alpha)
        return risk

    def losses_of(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return _residual_loss(self.loss, self.basis, self.outcome_centre, theta, np.column_stack([X, y]))


class _ReweightedX(_ReweightedRegression):
    columns = slice(None, -1)


class _ReweightedY(_ReweightedRegression):
    columns = slice(-1, None)


_REWEIGHTED = {"x": _ReweightedX, "y": _ReweightedY, "both": _ReweightedRegression}


def _residual_loss(loss: Any, basis: Basis, offset: float, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """(x, y) ↦ loss(y − f(x))."""
    r = Z[:, -1] - offset - basis(Z[:, :-1]) @ theta
    return np.asarray(r**2 if loss.closed_form else loss(r))
