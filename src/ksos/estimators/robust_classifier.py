"""RobustClassifier: classification against the worst joint distribution of (x, label) in an MMD ball around the data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._validation import as_weights, require_complete, require_numbers, require_unmasked
from ksos.estimators._checks import available_if, require_order
from ksos.estimators._robust import EXACT_FEATURES, Basis, EstimatorFamily, RobustEstimator, centre_and_scale, column_names, setting_of
from ksos.estimators._robust_reweighting import Reweighted, distinct_rows
from ksos.estimators._robust_shift import ANYWHERE, Moments
from ksos.kernels import Gaussian
from ksos.labelled import LabelledEmbedding
from ksos.nodes import Nodes
from ksos.observables import NumericFunction, Observable
from ksos.robust.losses import ClassificationLoss, LogisticLoss, LogisticOfOwn, LogisticScores
from ksos.robust.node_risk import NodeRisk, ParametricLoss
from ksos.robust.setting import as_reference

__all__ = ["RobustClassifier"]

_APART = 100.0  # bandwidths between the codes of two labels: the kernel between them is exactly 0


def _has_probabilities(estimator: RobustClassifier) -> bool:
    loss = estimator._loss_for(estimator._shift_for([estimator.radius]))
    if not isinstance(loss, LogisticLoss):
        raise AttributeError(f"probabilities come with loss='logistic'; got loss={loss!r}")
    return True


class RobustClassifier(ClassifierMixin, RobustEstimator):
    r"""min over scores of max over p of E_p[loss(scores(x), label)] + α‖θ‖², p a density of (x, label) with MMD to the data ≤ radius.

    Labels are a counting measure: the kernel is k(x, x')·1[label = label'], and p(x, label) has one sum of squares per label.

    Parameters
    ----------
    radius : float, "auto" or "bootstrap"
        See :class:`~ksos.RobustRegressor`.
    model : {"linear", "kernel"}
        What scores are made of.
    loss : {"square", "logistic"} or ClassificationLoss, optional
        Default: "logistic" where the shift reweights the samples, as with ``radius="auto"``; else "square".
        "square": (score ∓ 1)² for two labels, squared distance of scores to the label's unit vector for more; in closed form. "logistic":
        −log softmax, by quadrature, for at most three features, or summed over the samples; then there is ``predict_proba``.
    shift : {"x", "y", "both", "anywhere"}, optional
        See :class:`~ksos.RobustRegressor`, y being the label: with "y" the shares of the labels shift, and x given the label does not.
    alpha, n_centers, model_bandwidth, bandwidth, embedding_bandwidth, measure, n_support, tol, rtol, time_limit, random_state, verbose
        See :class:`~ksos.RobustRegressor`; bandwidths and measure are those of x.

    Attributes
    ----------
    classes_ : ndarray
    theta_ : ndarray (scores, functions)
    worst_case_ : WorstCase or None
        Its ``distribution`` is a :class:`~ksos.labelled.LabelledDensity`, its ``dual_function`` a list with one function per label; None at
        radius 0. Its ``upper_bound`` is proven for square losses of linear scores on a box, else the supremum over x is searched for.
    prepared_for_ : PreparedFor
        Means and standard deviations of the columns, and shares of the labels, in the data and in the worst case.
    solution_ : RobustSolution
    radius_ : float
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-1, 0.5, (20, 1)), rng.normal(1, 0.5, (20, 1))])
    >>> est = RobustClassifier(radius=0.15).fit(X, ["no"] * 20 + ["yes"] * 20)
    >>> est.predict([[-1.0], [1.0]]).tolist(), est.solution_.status, est.worst_case_.mmd <= 0.15
    (['no', 'yes'], 'solved', True)
    """

    _kind = ClassificationLoss
    _loss_at_samples = "logistic"

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores, shape (n, labels); for two labels that of the second alone, shape (n,)."""
        check_is_fitted(self, "theta_")
        X = validate_data(self, require_numbers(require_order(self, X)), dtype=np.float64, reset=False)
        scores = self._basis(X) @ self.theta_.T
        if self.classes_.shape[0] == 2:
            return np.asarray(scores[:, 0])
        if not self._loss.closed_form:
            return np.column_stack([np.zeros(X.shape[0]), scores])
        return np.asarray(scores)

    def predict(self, X: Any) -> np.ndarray:
        """The label with the largest score."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The softmax of the scores, shape (n, labels); for the logistic loss only."""
        scores = self.decision_function(X)
        return np.asarray(softmax(np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores, axis=1))

    def _family(self, loss: ClassificationLoss, X: Any, y: Any, sample_weight: Any, shift: str) -> EstimatorFamily:
        require_unmasked(y, "y")  # labels may be words
        if (labels := np.asarray(y)).ndim == 1:
            require_complete(labels, "y")
        X, y = validate_data(self, require_numbers(X), y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.shape[0] < 2:
            raise ValueError(f"a classifier needs samples of at least 2 classes in the data; got one class, {self.classes_[0]!r}")
        weights = as_weights(sample_weight, X.shape[0])
        if shift == ANYWHERE:
            return _ClassificationFamily(self, loss, X, codes, weights)
        return _REWEIGHTED[shift](self, loss, *distinct_rows(X, codes, weights))

    def _law_names(self) -> tuple[list[str], list[Any]]:
        return column_names(self), self.classes_.tolist()

    def _take(self, family: EstimatorFamily, theta: np.ndarray) -> None:
        self._basis, self._loss = family.basis, family.loss
        self.theta_ = theta.reshape(-1, family.basis.size)


class _ClassificationFamily(EstimatorFamily):
    """The joint distribution of (x, label); scores ⟨u(x), θ_c⟩."""

    slack = 1e-2  # where classes are apart, losses are tiny, and their differences as well

    def __init__(self, params: RobustClassifier, loss: ClassificationLoss, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        kept = weights > 0.0
        self.labels = params.classes_
        self.X, self.codes, self.weights = X[kept], codes[kept].astype(int), weights[kept]
        self.params, self.given, self.rows = params, loss, distinct_rows(X, codes, weights)
        self.sample_weights = self.weights
        d, L = X.shape[1], self.labels.shape[0]
        if not loss.closed_form and d > EXACT_FEATURES:
            raise ValueError(
                f"loss={loss!r} goes through quadrature, for at most {EXACT_FEATURES} features; got {d}; use loss='square', or shift='both'"
            )
        centre, scale = self.moments = centre_and_scale(self.X, self.weights)
        basis = Basis(params.model, self.X, centre, scale, params.n_centers, params.model_bandwidth)
        setting = setting_of(self.X, self.weights, centre, scale, params)
        self.reference = as_reference(np.column_stack([self.X, _APART * self.codes]), self.weights)
        self.joint_kernel = Gaussian(np.r_[setting.embedding.kernel.sigma_vector(d), 1.0])
        data = LabelledEmbedding.of(self.X, self.codes, np.arange(L), self.weights, kernel=setting.space.embedding_kernel)
        self.masses = np.concatenate([self.weights * (self.codes == label) for label in range(L)])
        P = basis.size
        outputs = 1 if L == 2 else L if loss.closed_form else L - 1
        # targets: ∓1 for two labels, unit vectors for more
        targets = np.array([[-1.0], [1.0]]) if L == 2 else np.eye(L)
        E = np.zeros((outputs, P, outputs * P))
        for c in range(outputs):
            E[c, :, c * P : (c + 1) * P] = np.eye(P)
        s = np.zeros((L, targets.shape[1], P))
        s[:, :, 0] = -targets
        alpha = np.tile(np.r_[0.0, np.full(P - 1, float(params.alpha))], outputs)
        super().__init__(loss, basis, setting, E, s, alpha, labels=self.labels, data=data)

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        return NodeRisk(nodes, self._scores(nodes.points), self.alpha)

    def moments_of(self, weights: np.ndarray) -> Moments:
        return Moments.of(self.X, weights, self.codes, self.labels.shape[0])

    def _scores(self, X: np.ndarray) -> LogisticScores:
        return LogisticScores(self.basis(X), self.labels.shape[0])

    def data_moments(self) -> np.ndarray:
        U, masses = self.basis(self.X), self.masses.reshape(self.labels.shape[0], -1)
        return np.stack([(U * own[:, None]).T @ U for own in masses])

    def data_losses(self) -> list[tuple[ParametricLoss, float]]:
        return [(self._scores(self.X), 0.0)]

    def loss_at(self, theta: np.ndarray) -> Observable:
        """Of (x, code of the label), the code being the last feature."""
        return NumericFunction(self._labelled_loss(theta))

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        """x ↦ ℓ(θ, (x, label)) for every label; for square losses of linear scores polynomials."""
        if not self.loss.closed_form or self.basis.kernel is not None:
            return [NumericFunction(partial(_given_label, self._labelled_loss(theta), label)) for label in range(self.labels.shape[0])]
        squares = [[self.basis.affine(t) ** 2 for t in label] for label in self.E @ theta + self.s]
        return [sum(parts[1:], parts[0]) for parts in squares]

    def _labelled_loss(self, theta: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """A function that can be pickled."""
        square = self.loss.closed_form
        return partial(_labelled_loss, square, self.basis, self.E @ theta + self.s if square else self.s, theta)

    def empirical_value(self, theta: np.ndarray) -> float | None:
        return float(self.weights @ self.loss_at(theta)(np.column_stack([self.X, self.codes])))


class _ReweightedClassification(Reweighted):
    """Losses of the samples under weights that depend on x and the label; labels are codes far apart, whose kernel is 0."""

    columns = slice(None)
    slack = _ClassificationFamily.slack

    def set_up(self, params: RobustClassifier, loss: ClassificationLoss, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        self.labels, self.X, self.codes = params.classes_, X, y.astype(int)
        L = self.labels.shape[0]
        centre, scale = centre_and_scale(X, weights)
        basis = Basis(params.model, X, centre, scale, params.n_centers, params.model_bandwidth)
        self.targets = np.array([[-1.0], [1.0]]) if L == 2 else np.eye(L)
        outputs, P = (self.targets.shape[1] if loss.closed_form else L - 1), basis.size
        E, s = np.zeros((outputs, P + self.targets.shape[1], outputs * P)), np.zeros((1, outputs, P + self.targets.shape[1]))
        for c in range(outputs):
            E[c, :P, c * P : (c + 1) * P], s[0, c, P + c] = np.eye(P), -1.0
        rows, units = np.column_stack([X, _APART * self.codes]), np.r_[scale, 1.0]
        setting = self.reweighting(rows[:, self.columns], weights, units[self.columns], params)
        EstimatorFamily.__init__(self, loss, basis, setting, E, s, np.tile(np.r_[0.0, np.full(P - 1, float(params.alpha))], outputs))

    def functions(self) -> np.ndarray:
        """(u, the targets of the own label) at the samples."""
        return np.column_stack([self.basis(self.X), self.targets[self.codes]])

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        return NodeRisk(nodes, self.data_losses()[0][0], self.alpha)

    def data_losses(self) -> list[tuple[ParametricLoss, float]]:
        return [(LogisticOfOwn(self.basis(self.X), self.labels.shape[0], self.codes), 0.0)]

    def losses_of(self, theta: np.ndarray, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        U, codes = self.basis(X), y.astype(int)
        if not self.loss.closed_form:
            return LogisticOfOwn(U, self.labels.shape[0], codes).values(theta)[0]
        return np.asarray(np.sum((U @ theta.reshape(-1, U.shape[1]).T - self.targets[codes]) ** 2, axis=1))

    def moments_of(self, weights: np.ndarray) -> Moments:
        return Moments.of(self.X, weights, self.codes, self.labels.shape[0])


class _ReweightedX(_ReweightedClassification):
    columns = slice(None, -1)


class _ReweightedY(_ReweightedClassification):
    columns = slice(-1, None)


_REWEIGHTED = {"x": _ReweightedX, "y": _ReweightedY, "both": _ReweightedClassification}


def _labelled_loss(square: bool, basis: Basis, residuals: np.ndarray, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
    """(x, code of the label) ↦ loss; ``residuals`` (labels, outputs, P) are squared, or only tell the number of labels."""
    U, L, codes = basis(Z[:, :-1]), residuals.shape[0], Z[:, -1].astype(int)
    if not square:
        return np.asarray(LogisticScores(U, L).values(theta)[0].reshape(L, -1)[codes, np.arange(Z.shape[0])])
    return np.asarray(np.sum(np.einsum("nop,np->no", residuals[codes], U) ** 2, axis=1))


def _given_label(loss: Callable[[np.ndarray], np.ndarray], code: int, X: np.ndarray) -> np.ndarray:
    """x ↦ loss of (x, code)."""
    return loss(np.column_stack([X, np.full(X.shape[0], float(code))]))
