"""The problems behind the robust estimators: a model that is linear in θ, and the distributions that may replace the data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist
from scipy.special import log_softmax

from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos._validation import as_bandwidth, as_count
from ksos.cover import pivots
from ksos.kernels import Gaussian, Kernel
from ksos.labelled import LabelledEmbedding
from ksos.measures import Box, Discrete, Lebesgue, Measure
from ksos.nodes import Nodes, nodes_of
from ksos.observables import NumericFunction, Observable, coordinate
from ksos.robust.learning import ParametricFamily
from ksos.robust.losses import (
    ClassificationLoss,
    LogisticOfOwn,
    LogisticScores,
    RegressionLoss,
    ResidualLoss,
    Residuals,
)
from ksos.robust.node_risk import NodeRisk, ParametricLoss, least_expected
from ksos.robust.risk import SquareRisk, affine_moments, kernel_moments, least_squares
from ksos.robust.setting import Reference, Setting, as_reference, as_setting
from ksos.space import SoSSpace

__all__ = ["Classification", "Densities", "EstimatorFamily", "Model", "Moments", "Regression"]
__all__ += ["Reweighted"]

# Quadrature on tensor grids stops at three features, as in ksos.nodes.
_EXACT_FEATURES = 3
# Grids of 40, 9 × 9 and 4 × 4 × 4 support points. Beyond three features there is no grid, and 60
# samples keep a step of the barrier method, O(rank³), about as expensive.
_GRID_SUPPORT, _SCATTERED_SUPPORT = {1: 40, 2: 81, 3: 64}, 60
# Densities relative to the data are smooth factors close to 1: a third of the scattered support.
_WEIGHT_SUPPORT = 20
# Directions that the landmarks miss are added during the solve (ksos.robust.exact_ball), so these
# limits bound the cost and not the accuracy. Weights of the samples have the smaller rank.
_LANDMARKS, _WEIGHT_LANDMARKS = 200, 50
# Two million distances, 16 MB, for the median.
_MEDIAN_ROWS = 2000
# Label codes are this many bandwidths apart: exp(−100²/2) is 0 in floating point, so that the
# Gaussian kernel of (x, code) is k(x, x')·1[label = label'].
_APART = 100.0
# Entries of a block of products: 32 MB.
_BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class Moments:
    """Summary of a distribution of (x, y) in the units of its columns."""

    mean: np.ndarray
    std: np.ndarray
    shares: np.ndarray | None = None
    """The probabilities of the labels, for a classifier."""


# --- models ---


def _center_and_scale(X: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means and standard deviations. The scale of a constant feature is 1."""
    unit = np.maximum(np.max(np.abs(X), axis=0), 1e-300)
    scaled = X / unit  # so that nothing overflows
    mean = weights @ scaled
    scale = np.sqrt(weights @ (scaled - mean) ** 2)
    return mean * unit, np.where(scale <= 1e-12, 1.0, scale * unit)


def _bandwidth(given: Any, name: str, X: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """The bandwidth given, or the median distance of the standardized rows in each feature's unit."""
    if given is not None:
        return as_bandwidth(given, name, n_features=X.shape[1])
    rows = np.unique(X, axis=0)
    if rows.shape[0] > _MEDIAN_ROWS:
        rows = rows[np.linspace(0, rows.shape[0] - 1, _MEDIAN_ROWS).astype(int)]
    distances = pdist((rows - rows[0]) / scale) if rows.shape[0] > 1 else np.ones(1)
    return np.asarray(max(float(np.median(distances)), 1e-3) * scale)


class Model(ABC):
    """A model that is linear in θ, with its loss: scores ⟨u(x), θ_c⟩.

    u(x) = (1, standardized features), or (1, k(x, c_1), …) with centers c_j among the samples. The
    square loss is Σ_c (score_c − target_c)².
    """

    kind: ClassVar[type]
    """The class of its losses."""
    loss_at_samples: ClassVar[str]
    """The default loss if expectations are sums over the samples."""
    slack: ClassVar[float]
    """What a harmless radius may cost besides, as a fraction of the loss of θ = 0."""
    offset: float | None = None
    """Center of y, if y is a number."""
    labels: np.ndarray | None = None
    """The classes, if y is the code of a label."""
    n_labels = 0
    units: np.ndarray
    """Standard deviations of the columns of (x, y) that are numbers."""
    risk: type[NodeRisk] = NodeRisk

    def __init__(
        self, params: Any, loss: Any, X: np.ndarray, weights: np.ndarray, outputs: int
    ) -> None:
        self.loss, self.outputs = loss, outputs
        self.center, self.scale = _center_and_scale(X, weights)
        self.kernel: Gaussian | None = None
        if params.model == "kernel":
            self.kernel = Gaussian(
                _bandwidth(params.model_bandwidth, "model_bandwidth", X, self.scale)
            )
            rows, most = np.unique(X, axis=0), as_count(params.n_centers, "n_centers")
            self.centers = rows[pivots(self.kernel, rows, 1e-6, most)]
        self.size = self(X[:1]).shape[1]
        ridge = np.r_[0.0, np.full(self.size - 1, float(params.alpha))]
        self.alpha = np.tile(ridge, outputs)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """u at the rows of X, shape (n, size)."""
        standard = self.kernel is None
        functions = (X - self.center) / self.scale if standard else self.kernel(X, self.centers)
        return np.concatenate([np.ones((X.shape[0], 1)), functions], axis=1)

    def losses(self, theta: np.ndarray, Z: np.ndarray) -> np.ndarray:
        """The loss of θ at rows (x, y)."""
        scores = self(Z[:, :-1]) @ theta.reshape(self.outputs, -1).T
        if self.loss.closed_form:
            return np.asarray(np.sum((scores - self.targets(Z[:, -1])) ** 2, axis=1))
        return self.score_losses(scores, Z[:, -1])

    @abstractmethod
    def targets(self, y: np.ndarray) -> np.ndarray:
        """The scores whose square loss is 0, shape (n, outputs)."""

    @abstractmethod
    def score_losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Losses other than the square."""

    @abstractmethod
    def at(self, X: np.ndarray, y: np.ndarray) -> list[tuple[ParametricLoss, float]]:
        """The same as smooth functions of θ, ever closer, each with how far it may lie above."""

    @abstractmethod
    def at_nodes(self, points: np.ndarray) -> ParametricLoss:
        """The first of them at quadrature nodes, for every label."""


class Regression(Model):
    """Residuals y − offset − ⟨u(x), θ⟩."""

    kind, loss_at_samples = RegressionLoss, "square"
    slack = 1e-4  # rounding, where the model is exact
    offset: float

    def __init__(self, params: Any, loss: Any, Z: np.ndarray, weights: np.ndarray) -> None:
        center, self.units = _center_and_scale(Z, weights)
        self.offset, spread = float(center[-1]), float(self.units[-1])
        super().__init__(params, loss, Z[:, :-1], weights, 1)
        if isinstance(loss, ResidualLoss):
            self.loss, self.risk = loss.scaled(spread), loss.risk
            self.alpha = self.alpha * spread ** (loss.degree - 2)

    def targets(self, y: np.ndarray) -> np.ndarray:
        return (y - self.offset)[:, None]

    def score_losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(self.loss(y - self.offset - scores[:, 0]))

    def at(self, X: np.ndarray, y: np.ndarray) -> list[tuple[ParametricLoss, float]]:
        U, y = self(X), y - self.offset
        return [(Residuals(loss, U, y), loss.excess) for loss in self.loss.ladder()]

    def at_nodes(self, points: np.ndarray) -> ParametricLoss:
        return Residuals(self.loss, self(points[:, :-1]), points[:, -1] - self.offset)


class Classification(Model):
    """Scores of labels. Two labels have one score, and the logistic loss fixes the first at 0."""

    kind, loss_at_samples = ClassificationLoss, "logistic"
    slack = 1e-2  # losses of separable classes are tiny, and so are their differences
    labels: np.ndarray

    def __init__(self, params: Any, loss: Any, Z: np.ndarray, weights: np.ndarray) -> None:
        self.labels, L = params.classes_, params.classes_.shape[0]
        self.n_labels, self.table = L, np.array([[-1.0], [1.0]]) if L == 2 else np.eye(L)
        outputs = self.table.shape[1] if loss.closed_form else L - 1
        super().__init__(params, loss, Z[:, :-1], weights, outputs)
        self.units = self.scale

    def targets(self, y: np.ndarray) -> np.ndarray:
        return self.table[y.astype(int)]

    def score_losses(self, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
        logs = log_softmax(np.column_stack([np.zeros(len(scores)), scores]), axis=1)
        return np.asarray(-logs[np.arange(len(scores)), y.astype(int)])

    def at(self, X: np.ndarray, y: np.ndarray) -> list[tuple[ParametricLoss, float]]:
        return [(LogisticOfOwn(self(X), self.n_labels, y.astype(int)), 0.0)]

    def at_nodes(self, points: np.ndarray) -> ParametricLoss:
        return LogisticScores(self(points), self.n_labels)


# --- families ---


class EstimatorFamily(ParametricFamily):
    """The losses of a model under the distributions that may replace the data.

    Square losses are in closed form: those of ⟨t, u⟩ with t = E θ + s (see ksos.robust.risk), where
    u ends with the targets.
    """

    agreement = 1e-4  # between the exact and the projected MMD: the digits of the default rtol
    resampled: Reference
    """What the bootstrap resamples: the columns that shift."""
    metric: Kernel
    """The kernel of the MMD between distributions of these columns."""

    def __init__(self, params: Any, loss: Any, samples: Reference, shift: str) -> None:
        """``samples`` are distinct rows (x, y) with weights."""
        self.params, self.given, self.shift, self.samples = params, loss, shift, samples
        self.X, self.y = samples.points[:, :-1], samples.points[:, -1]
        self.masses = samples.weights
        self.model: Model = params._task(params, loss, samples.points, self.masses)
        self.alpha, (k, P) = self.model.alpha, (self.model.outputs, self.model.size)
        extra = np.zeros((k, k, k * P))
        self.E = np.concatenate([np.eye(k * P).reshape(k, P, k * P), extra], axis=1)
        self.s = np.concatenate([np.zeros((k, P)), -np.eye(k)], axis=1)[None]
        # codes of labels are far apart, and columns that are numbers come first
        self.joint = np.column_stack([self.X, (_APART if self.model.n_labels else 1.0) * self.y])
        self.numbers = self.joint[:, : self.model.units.size]
        self.set_up(params)
        nodes = None if self.model.loss.closed_form else self.nodes()
        self.risk = self.square_risk() if nodes is None else self.node_risk(nodes)

    @abstractmethod
    def set_up(self, params: Any) -> None:
        """Choose the distributions, and initialize :class:`ParametricFamily` with their setting."""

    @abstractmethod
    def square_risk(self) -> SquareRisk:
        """The risk of the square loss."""

    @abstractmethod
    def node_risk(self, nodes: Nodes) -> NodeRisk:
        """The risk of any other loss."""

    @abstractmethod
    def law_of(self, distribution: Any) -> Moments:
        """The moments of (x, y) under one of the distributions."""

    def moments(self, weights: np.ndarray) -> Moments:
        """The moments of the samples with these weights."""
        mean, L = weights @ self.numbers, self.model.n_labels
        std = np.sqrt(np.maximum(weights @ (self.numbers - mean) ** 2, 0.0))
        shares = np.bincount(self.y.astype(int), weights=weights, minlength=L) if L else None
        return Moments(mean, std, shares)

    def functions(self) -> np.ndarray:
        """(u, targets) at the samples."""
        return np.column_stack([self.model(self.X), self.model.targets(self.y)])

    def on(self, rows: np.ndarray) -> Self:
        """The family of some of the samples."""
        weights = self.masses[rows]
        part = Reference(self.samples.points[rows], weights / weights.sum(), len(rows))
        return type(self)(self.params, self.given, part, self.shift)

    def data_losses(self) -> list[tuple[ParametricLoss, float]]:
        return self.model.at(self.X, self.y)

    def empirical(self) -> tuple[np.ndarray, float]:
        if self.model.loss.closed_form:
            U = self.functions()
            Q = (U.T @ (self.masses[:, None] * U))[None]
            found = least_squares(Q, self.E, self.s, self.alpha)
            return found.theta, found.value
        theta = np.zeros(self.alpha.shape[0])
        for at, _ in self.data_losses():  # each starts where a softer one has ended
            theta = least_expected(at, self.masses, self.alpha, theta).theta
        losses = self.model.losses(theta, self.samples.points)
        return theta, float(self.masses @ losses + self.alpha @ theta**2)

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        closed = self.model.loss.closed_form
        return value if closed else max(super().empirical_bound(theta, value, tol), 0.0)

    def empirical_value(self, theta: np.ndarray) -> float | None:
        return float(self.masses @ self.model.losses(theta, self.samples.points))


def _setting_among(
    reference: Reference, measure: Measure, model: Kernel, metric: Kernel, most: int, landmarks: int
) -> Setting:
    """The densities with support points and landmarks among the samples."""
    points = reference.points
    support = points[pivots(model, points, 1e-8, most)]
    seen = points[pivots(metric, points, 1e-8, landmarks)]
    space = SoSSpace(model, support, measure, metric, seen)
    return replace(as_setting(reference, space=space), grows=True)


class Densities(EstimatorFamily):
    """Densities of (x, y) on a domain, also where there are no data.

    Up to three features the densities cover a box. Beyond, they lie around the data. With labels,
    the kernel is k(x, x')·1[label = label'], and each label has a sum of squares.
    """

    def set_up(self, params: Any) -> None:
        model, points, d = self.model, self.numbers, self.numbers.shape[1]
        if not model.loss.closed_form and d > _EXACT_FEATURES:
            most = f"at most {_EXACT_FEATURES - 1 + bool(model.n_labels)} features"
            raise ValueError(
                f"loss={model.loss!r} is integrated by quadrature, for {most}; got "
                f"{self.X.shape[1]}; use loss='square', or shift='both', 'x' or 'y'"
            )
        low, high = points.min(axis=0) - model.units, points.max(axis=0) + model.units
        domain = params.measure
        if domain is None:
            domain = Lebesgue() if d > _EXACT_FEATURES else Box(low, high)
        if not (isinstance(domain, Measure) and domain.by_volume):
            raise TypeError(
                f"measure must be a ksos.measures.Box, Lebesgue or None; got {domain!r}"
            )
        domain.check_features(d)
        given = params.embedding_bandwidth
        sigma = _bandwidth(given, "embedding_bandwidth", points, model.units)
        eta = None if params.bandwidth is None else as_bandwidth(params.bandwidth, n_features=d)
        most_support = _GRID_SUPPORT.get(d, _SCATTERED_SUPPORT)
        if params.n_support is not None:
            most_support = as_count(params.n_support, "n_support", minimum=2)
        reference = as_reference(points, self.masses)
        if d <= _EXACT_FEATURES:
            setting = as_setting(
                reference,
                bandwidth=eta,
                embedding_bandwidth=sigma,
                measure=domain,
                n_support=most_support,
            )
        else:
            width = Gaussian(model.units if eta is None else eta)
            setting = _setting_among(
                reference, domain, width, Gaussian(sigma), most_support, _LANDMARKS
            )
        self.metric = kernel = setting.embedding.kernel
        self.resampled, data = replace(self.samples, points=self.joint), None
        if model.n_labels:
            self.metric = Gaussian(np.r_[kernel.sigma_vector(d), 1.0])
            codes = np.arange(model.n_labels)
            data = LabelledEmbedding.of(self.X, self.y, codes, self.masses, kernel=kernel)
        ParametricFamily.__init__(self, setting, model.labels, data)

    def square_risk(self) -> SquareRisk:
        model, tail = self.model, [] if self.model.offset is None else [self.model.offset]
        self.axes = np.r_[model.center, tail], np.r_[model.scale, np.ones(len(tail))]
        if model.kernel is None:
            V = affine_moments(self.setting.space, *self.axes)
        else:
            V = kernel_moments(self.setting.space, model.centers, model.kernel, model.offset)
        self.F, self.t = self.E, self.s
        if isinstance(model, Classification):
            # one block of the space per label, where targets are multiples of the constant 1
            self.F = self.E[:, : model.size]
            self.t = -model.table[:, :, None] * np.eye(1, model.size)
        return SquareRisk(V, self.F, self.t, self.alpha)

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        return self.model.risk(nodes, self.model.at_nodes(nodes.points), self.alpha)

    def integration_error(self, theta: np.ndarray) -> float:
        return 0.0 if self.model.loss.closed_form else super().integration_error(theta)

    def loss_at(self, theta: np.ndarray) -> Observable:
        """Of x and y, or of x and the code of the label."""
        if not self.model.n_labels:
            return self.losses_at(theta)[0]
        return NumericFunction(partial(self.model.losses, theta))

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        """Square losses of linear scores are polynomials. All of them can be pickled."""
        if self.model.loss.closed_form and self.model.kernel is None:
            return [sum(self._affine(t) ** 2 for t in label) for label in self.F @ theta + self.t]
        losses = partial(self.model.losses, theta)
        codes = range(self.model.n_labels)
        given = [partial(_given_label, losses, code) for code in codes] or [losses]
        return [NumericFunction(loss) for loss in given]

    def _affine(self, t: np.ndarray) -> Any:
        """⟨t, u⟩ as a polynomial."""
        axes = enumerate(zip(t[1:], *self.axes, strict=True))
        return float(t[0]) + sum(
            float(slope / scale) * coordinate(k, centre=float(center))
            for k, (slope, center, scale) in axes
        )

    def empirical_value(self, theta: np.ndarray) -> float | None:
        inside = self.model.n_labels or np.all(self.setting.measure.contains(self.numbers))
        return super().empirical_value(theta) if inside else None

    def law_of(self, distribution: Any) -> Moments:
        shares = np.asarray(distribution.probabilities) if self.model.n_labels else None
        std = np.sqrt(np.maximum(np.diag(distribution.cov()), 0.0))
        return Moments(np.asarray(distribution.mean()), std, shares)


def _given_label(loss: Callable[..., np.ndarray], code: int, X: np.ndarray) -> np.ndarray:
    """The loss at (x, code)."""
    return loss(np.column_stack([X, np.full(X.shape[0], float(code))]))


class Reweighted(EstimatorFamily):
    r"""The distributions Σ_i w_i p(c_i) δ_{(x_i, y_i)}, where c_i are the columns that may shift.

    p is a sum of squares relative to the data, so expectations are sums over the samples. p = 1 gives
    the data. The ball is that of the distribution of c. Given c, (x, y) is distributed as in the data.
    """

    def set_up(self, params: Any) -> None:
        columns = {"x": slice(None, -1), "y": slice(-1, None), "both": slice(None)}[self.shift]
        table, units = self.joint[:, columns], self.model.units
        shifted = np.arange(self.joint.shape[1])[columns]
        shifted = shifted[shifted < units.size]  # labels do not take part in the bandwidths
        codes = np.ones(table.shape[1] - shifted.size)

        def widths(given: Any, name: str) -> np.ndarray:
            found = _bandwidth(given, name, self.joint[:, shifted], units[shifted])
            return np.r_[np.broadcast_to(found, shifted.shape), codes]

        sigma = widths(params.embedding_bandwidth, "embedding_bandwidth")
        eta = sigma if params.bandwidth is None else widths(params.bandwidth, "bandwidth")
        self.metric, reference = Gaussian(sigma), as_reference(table, self.masses)
        most = _WEIGHT_SUPPORT
        if params.n_support is not None:
            most = as_count(params.n_support, "n_support", minimum=2)
        measure = Discrete(reference.points, reference.weights)
        setting = _setting_among(
            reference, measure, Gaussian(eta), self.metric, most, _WEIGHT_LANDMARKS
        )
        self.resampled = replace(reference, n_samples=table.shape[0])
        self.own = np.unique(table, axis=0, return_inverse=True)[1].ravel()
        """The point of the measure that every sample belongs to."""
        ParametricFamily.__init__(self, setting)

    def square_risk(self) -> SquareRisk:
        U, psi = self.functions(), self.nodes().psi
        (n, P), r = U.shape, psi.shape[1]
        fix = "use fewer support points, features or kernel centers"
        require_memory(FLOAT_BYTES * P * P * r * r, f"the second moments of {P} functions", fix)
        V = np.zeros((P * P, r * r))
        for rows in row_blocks(n, P * P + r * r, _BLOCK_ELEMENTS):
            u, f = (a[rows, :, None] * a[rows, None, :] for a in (U, psi))
            V += u.reshape(-1, P * P).T @ f.reshape(-1, r * r)
        return SquareRisk(V.reshape(P, P, r, r), self.E, self.s, self.alpha)

    def nodes(self) -> Nodes:
        shares = self.masses / self.setting.reference.weights[self.own]
        return Nodes(self.X, nodes_of(self.space).psi[self.own] * np.sqrt(shares)[:, None])

    def node_risk(self, nodes: Nodes) -> NodeRisk:
        return self.model.risk(nodes, self.data_losses()[0][0], self.alpha)

    def integration_error(self, theta: np.ndarray) -> float:
        return 0.0

    def loss_at(self, theta: np.ndarray) -> Observable:
        """c ↦ E[ℓ(θ, (x, y)) | c] under the data."""
        losses, points = self.model.losses(theta, self.samples.points), self.setting.reference
        mean = np.bincount(self.own, weights=self.masses * losses) / points.weights
        return NumericFunction(partial(_nearest_value, points.points, mean))

    def law_of(self, distribution: Any) -> Moments:
        weights = self.masses * distribution.pdf(self.setting.reference.points)[self.own]
        return self.moments(weights / weights.sum())


def _nearest_value(points: np.ndarray, values: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The value of the nearest point, which for points of the measure is their own."""
    unit = np.maximum(np.ptp(points, axis=0), 1e-300)
    return np.asarray(values[cKDTree(points / unit).query(C / unit)[1]])
