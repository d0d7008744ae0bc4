"""RobustClassifier: classification against the worst joint distribution of (x, label) in an MMD ball around the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._array import to_numpy
from ksos._validation import as_bandwidth, as_choice, as_nonnegative, as_positive, as_weights
from ksos.embedding import MeanEmbedding
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
from ksos.estimators.robust_regressor import MODELS
from ksos.kernels import Gaussian
from ksos.observables import KernelFunction, NumericFunction, Observable, coordinate
from ksos.robust.exact import exact_mmd
from ksos.robust.extended import dual_function
from ksos.robust.labelled import LabelledSpace
from ksos.robust.learning import RobustSolution
from ksos.robust.node_risk import NodeBasis, NodeRisk, least_expected, proven_expected
from ksos.robust.nodes import nodes_of
from ksos.robust.radius import bootstrap_radius
from ksos.robust.reference import as_reference
from ksos.robust.residual_losses import LogisticLoss
from ksos.robust.saddle import SaddleProblem
from ksos.robust.setting import Setting
from ksos.robust.square_features import affine_moments, kernel_moments
from ksos.robust.square_risk import SquareRisk, least_squares
from ksos.robust.upper_bound import UpperBound, supremum_on
from ksos.space import SoSSpace

__all__ = ["RobustClassifier"]

LOSSES = ("square", "logistic")
_APART = 100.0  # bandwidths between the codes of two labels: the kernel between them is exactly 0
_FEASIBLE = 1.2


class RobustClassifier(RobustFits, ClassifierMixin, BaseEstimator):
    r"""min over scores of max over p of E_p[loss(scores(x), label)] + α‖θ‖², p a density of (x, label) with MMD to the data ≤ radius.

    Labels are a counting measure: the kernel is k(x, x')·1[label = label'], and p(x, label) has one sum of squares per label.

    Parameters
    ----------
    radius : float, "auto" or "bootstrap"
        See :class:`~ksos.RobustRegressor`.
    model : {"linear", "kernel"}
        What scores are made of.
    loss : {"square", "logistic"}
        "square": (score ∓ 1)² for two labels, squared distance of scores to the label's unit vector for more; in closed form. "logistic":
        −log softmax, by quadrature, for at most three features.
    alpha, n_centers, model_bandwidth, bandwidth, embedding_bandwidth, measure, n_support, tol, time_limit, random_state
        See :class:`~ksos.RobustRegressor`; bandwidths and measure are those of x.

    Attributes
    ----------
    classes_ : ndarray
    theta_ : ndarray (scores, functions)
    worst_case_ : WorstCase or None
        Its ``distribution`` is a :class:`~ksos.robust.LabelledDensity`, its ``dual_function`` a list with one function per label; None at
        radius 0. Its ``upper_bound`` is proven for square losses of linear scores on a box, else the supremum over x is searched for.
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

    def __init__(
        self,
        radius: Any = "auto",
        model: str = "linear",
        loss: str = "square",
        alpha: float = 1e-3,
        n_centers: int = 20,
        model_bandwidth: Any = None,
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
        self.bandwidth = bandwidth
        self.embedding_bandwidth = embedding_bandwidth
        self.measure = measure
        self.n_support = n_support
        self.tol = tol
        self.time_limit = time_limit
        self.random_state = random_state

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores, shape (n, labels); for two labels that of the second alone, shape (n,)."""
        check_is_fitted(self, "theta_")
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores = self._basis(X) @ self.theta_.T
        if self.classes_.shape[0] == 2:
            return np.asarray(scores[:, 0])
        if self.loss == "logistic":
            return np.column_stack([np.zeros(X.shape[0]), scores])
        return np.asarray(scores)

    def predict(self, X: Any) -> np.ndarray:
        """The label with the largest score."""
        scores = self.decision_function(X)
        return self.classes_[(scores > 0.0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)]

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> _ClassificationProblem:
        check_radius(self.radius)
        as_choice(self.model, "model", MODELS)
        as_choice(self.loss, "loss", LOSSES)
        as_nonnegative(self.alpha, "alpha")
        as_positive(self.tol, "tol")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.shape[0] < 2:
            raise ValueError(f"a classifier needs samples of at least 2 classes in the data; got one class, {self.classes_[0]!r}")
        return _ClassificationProblem(self, X, codes, as_weights(sample_weight, X.shape[0]))

    def _take(self, problem: _ClassificationProblem, solution: RobustSolution) -> Self:
        report(solution, type(self).__name__)
        self.classes_, self._basis = problem.labels, problem.basis
        self.solution_, self.worst_case_, self.radius_ = solution, solution.worst_case, solution.radius
        self.theta_ = solution.theta.reshape(-1, problem.basis.size)
        return self


class _ClassificationProblem(EstimatorProblem):
    """The joint distribution of (x, label); scores ⟨u(x), θ_c⟩."""

    def __init__(self, params: RobustClassifier, X: np.ndarray, codes: np.ndarray, weights: np.ndarray) -> None:
        kept = weights > 0.0
        self.labels, self.loss = params.classes_, params.loss
        self.X, self.codes, self.weights = X[kept], codes[kept], weights[kept]
        d, L = X.shape[1], self.labels.shape[0]
        if params.loss == "logistic" and d > EXACT_FEATURES:
            raise ValueError(f"loss='logistic' goes through quadrature, for at most {EXACT_FEATURES} features; got {d}; use loss='square'")
        centre, scale = centre_and_scale(self.X, self.weights)
        self.basis = Basis(params.model, self.X, centre, scale, params.n_centers, params.model_bandwidth)
        sigma = relative_bandwidth(self.X, centre, scale)
        if params.embedding_bandwidth is not None:
            sigma = np.broadcast_to(as_bandwidth(params.embedding_bandwidth, "embedding_bandwidth", n_features=d), (d,))
        self.setting = setting_of(self.X, self.weights, scale, sigma, params.bandwidth, params.measure, params.n_support)
        self.sigma = sigma
        self.parts = [self._part(label) for label in range(L)]
        P = self.basis.size
        outputs = 1 if L == 2 else L if params.loss == "square" else L - 1
        # targets: ∓1 for two labels, unit vectors for more
        targets = np.array([[-1.0], [1.0]]) if L == 2 else np.eye(L)
        self.E = np.zeros((outputs, P, outputs * P))
        for c in range(outputs):
            self.E[c, :, c * P : (c + 1) * P] = np.eye(P)
        self.s = np.zeros((L, targets.shape[1], P))
        self.s[:, :, 0] = -targets
        self.ridge = np.tile(np.r_[0.0, np.full(P - 1, float(params.alpha))], outputs)
        space = self.setting.space
        if params.loss == "square":
            kernel = self.basis.kernel
            V = affine_moments(space, centre, scale) if kernel is None else kernel_moments(space, self.basis.centers, kernel, None)
            self.risk = SquareRisk(V, self.E, self.s, self.ridge)
        else:
            nodes = nodes_of(space)
            loss = LogisticLoss(self.basis(nodes.points), L)
            self.risk = NodeRisk(NodeBasis(nodes.psi, L), loss, self.ridge, np.zeros(outputs * P))

    def _part(self, label: int) -> MeanEmbedding | None:
        rows = self.codes == label
        if not np.any(rows):
            return None
        return MeanEmbedding(self.X[rows], self.weights[rows], kernel=self.setting.space.embedding_kernel)

    # --- the labelled space ---

    def _labelled(self, space: SoSSpace) -> LabelledSpace:
        return LabelledSpace(space, self.labels)

    def new_problem(self, setting: Setting, near: np.ndarray | None) -> SaddleProblem:
        space = self._labelled(setting.space)
        return SaddleProblem(space, self.risk, space.labelled_coordinates(self.parts), self.typical_theta, near)

    def density(self, C: np.ndarray) -> Any:
        r = self.setting.space.rank
        blocks = [slice(y * r, (y + 1) * r) for y in range(self.labels.shape[0])]
        G = np.zeros((C.shape[0], 0))
        for block in blocks:  # what is off the blocks does not belong to the density
            part = np.zeros((C.shape[0], r))
            values, V = np.linalg.eigh(C[block, block])
            part[block] = V * np.sqrt(np.maximum(values, 0.0))
            G = np.concatenate([G, part], axis=1)
        return self._labelled(self.setting.space).density(G)

    def exact_distance(self, density: Any) -> float:
        return float(density.distance(self.parts, self.setting.space.embedding_kernel))

    def sharper(self, C: np.ndarray, density: Any, distance: float) -> Setting | None:
        """One more direction per label: that in which the density given the label is away from the data of the label."""
        setting, r, kernel = self.setting, self.setting.space.rank, self.setting.space.embedding_kernel
        for label, part in enumerate(density.densities):
            if part is not None:
                block = C[label * r : (label + 1) * r, label * r : (label + 1) * r]
                data = density.relative_to(label, self.parts[label], kernel)
                setting = setting.sharper(block / np.trace(block), part, exact_mmd(part, data), data) or setting
        return None if setting is self.setting else setting

    def dual_function(self, y: np.ndarray) -> tuple[list[Observable], list[KernelFunction], float]:
        """One function per label."""
        space, q, L = self.setting.space, self.setting.space.embedding_rank, self.labels.shape[0]
        found = [dual_function(space, y[label * q : (label + 1) * q]) for label in range(L)]
        return [g for g, _, _ in found], [near for _, near, _ in found], float(np.linalg.norm([size for _, _, size in found]))

    def bound(self, theta: np.ndarray, loss: Observable, g: Any, size: float, radius: float, spread: float) -> UpperBound | None:
        """max over labels of sup_x(ℓ(x, label) − g_label(x)), plus ⟨g, data⟩ + radius·‖g‖: for E f = Σ_label E[f(x, label)]."""
        setting = self.setting
        tops = []
        for label, near in enumerate(g):
            at_label = self._loss_given(label, theta)
            top = supremum_on(at_label, near, setting.measure, setting.box, self.X, 1e-5 * spread, None)
            if top is None:
                return UpperBound(np.inf, "infinite", None)
            tops.append(top)
        seen = sum(
            float(to_numpy(part.weights) @ near(to_numpy(part.points)))
            for part, near in zip(self.parts, g, strict=True)
            if part is not None
        )
        highest = max(tops, key=lambda top: top.bound)
        proven = all(top.proven for top in tops)
        return UpperBound(highest.bound + seen + radius * size, "rigorous" if proven else "estimate", highest.at)

    def _loss_given(self, label: int, theta: np.ndarray) -> Observable:
        """x ↦ ℓ(θ, (x, label)); for square losses of linear scores a polynomial."""
        if self.loss == "square" and self.basis.kernel is None:
            parts: list[Any] = []
            for t in (self.E @ theta + self.s)[label]:
                linear: list[Any] = [
                    float(t[k + 1] / self.basis.scale[k]) * coordinate(k, centre=float(self.basis.centre[k])) for k in range(t.shape[0] - 1)
                ]
                parts.append((sum(linear[1:], linear[0]) + float(t[0])) ** 2)
            return sum(parts[1:], parts[0])
        return NumericFunction(_GivenLabel(self._labelled_loss(theta), label))

    # --- the loss ---

    def radius_of(self, radius: Any, random_state: Any) -> float:
        """A number as it is; a word from the data."""
        if not isinstance(radius, str):
            return float(radius)
        joint = as_reference(np.column_stack([self.X, _APART * self.codes]), self.weights)
        kernel = Gaussian(np.r_[self.sigma, 1.0])
        if radius == "bootstrap":
            return bootstrap_radius(joint, kernel, rng=random_state)
        found = distinct_radius(joint, kernel, random_state)
        return max(found, _FEASIBLE * self.nearest_distance(), 1e-3)

    def empirical(self) -> tuple[np.ndarray, float]:
        U, L = self.basis(self.X), self.labels.shape[0]
        if self.loss == "square":
            Q = np.stack([(U * (self.weights * (self.codes == label))[:, None]).T @ U for label in range(L)])
            found = least_squares(Q, self.E, self.s, self.ridge)
        else:
            found = least_expected(LogisticLoss(U, L), self._masses, self.ridge, np.zeros(self.ridge.shape[0]))
        return found.theta, found.value

    @property
    def _masses(self) -> np.ndarray:
        return np.concatenate([self.weights * (self.codes == label) for label in range(self.labels.shape[0])])

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        if self.loss == "square":
            return value
        return max(proven_expected(LogisticLoss(self.basis(self.X), self.labels.shape[0]), self._masses, self.ridge, theta, tol), 0.0)

    def loss_at(self, theta: np.ndarray) -> Observable:
        """Of (x, code of the label), the code being the last feature."""
        return NumericFunction(self._labelled_loss(theta))

    def _labelled_loss(self, theta: np.ndarray) -> _LabelledLoss:
        return _LabelledLoss(self.loss, self.basis, self.s if self.loss == "logistic" else self.E @ theta + self.s, theta)

    def empirical_value(self, theta: np.ndarray) -> float | None:
        return float(self.weights @ self.loss_at(theta)(np.column_stack([self.X, self.codes])))

    def integration_error(self, theta: np.ndarray) -> float:
        if self.loss == "square":
            return 0.0
        finer, L = nodes_of(self.setting.space, finer=True), self.labels.shape[0]
        values = LogisticLoss(self.basis(finer.points), L).values(theta)[0]
        return float(np.linalg.norm(NodeBasis(finer.psi, L).matrix(values) - self.risk.matrix(theta), 2))


@dataclass(frozen=True)
class _LabelledLoss:
    """(x, code of the label) ↦ loss, as a function that can be pickled."""

    loss: str
    basis: Basis
    residuals: np.ndarray
    """(labels, outputs, P): what is squared; of the logistic loss only the number of labels counts."""
    theta: np.ndarray

    def __call__(self, Z: np.ndarray) -> np.ndarray:
        U, L = self.basis(Z[:, :-1]), self.residuals.shape[0]
        codes = Z[:, -1].astype(int)
        if self.loss == "logistic":
            return np.asarray(LogisticLoss(U, L).values(self.theta)[0].reshape(L, -1)[codes, np.arange(Z.shape[0])])
        return np.asarray(np.sum(np.einsum("nop,np->no", self.residuals[codes], U) ** 2, axis=1))


@dataclass(frozen=True)
class _GivenLabel:
    """x ↦ loss of (x, code), as a function that can be pickled."""

    loss: _LabelledLoss
    code: int

    def __call__(self, X: np.ndarray) -> np.ndarray:
        return self.loss(np.column_stack([X, np.full(X.shape[0], float(self.code))]))
