"""The losses of the robust estimators, as objects with a name as shorthand: "square", "huber",
"absolute", "logistic".

Models are linear in θ: residuals y − ⟨u(x), θ⟩, or scores ⟨u(x), θ_c⟩ of the labels. "square" is in
closed form; the others are integrated at nodes. A regression loss of your own is a subclass of
:class:`ResidualLoss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ksos.ground.validation import as_choice, as_positive
from ksos.robust.node_risk import NodeRisk, ParametricLoss, least_expected

__all__ = [
    "AbsoluteLoss",
    "ClassificationLoss",
    "HuberLoss",
    "LogisticLoss",
    "RegressionLoss",
    "ResidualLoss",
    "SquareLoss",
]

_SHARPER = (
    1.0,
    0.1,
    1e-2,
    1e-3,
    1e-4,
)  # roundings of |r| for the data themselves, in units of that of the robust problem


# --- at points ---


class Residuals(ParametricLoss):
    """φ(y − ⟨u(x), θ⟩) at points with u(x) = U, shape (N, P), and outcomes y."""

    def __init__(self, phi: ResidualLoss, U: np.ndarray, y: np.ndarray) -> None:
        self.phi, self.U, self.y, self.n_parameters = phi, U, y, U.shape[1]

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """y − ⟨u, θ⟩."""
        return np.asarray(self.y - self.U @ theta)

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope, _ = self.phi.derivatives(self.residuals(theta))
        return value, -slope[:, None] * self.U

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        weights = masses * self.phi.derivatives(self.residuals(theta))[2]
        # a loss may have no curvature at any residual: a trace of that of the square keeps steps
        # finite
        return np.asarray(self.U.T @ ((weights + 1e-9 * masses)[:, None] * self.U))


class AbsoluteRisk(NodeRisk):
    """The risk of |r|, solved as that of the smooth loss above it; both bounds are those of |r|
    itself.

    For any slopes s_n ∈ [−1, 1], Σ m_n|r_n(θ)| + Σ α_jθ_j² ≥ Σ m_n s_n r_n(θ) + Σ α_jθ_j², least at
    θ̂ where Σ m_n s_n u_n = 2αθ̂. Such slopes are the signs of the residuals, but for those near 0,
    of which a small linear programme takes the best.
    """

    differentiable = False
    loss: Residuals

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.nodes.matrix(np.abs(self.loss.residuals(theta)))

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        from scipy.optimize import linprog  # heavy to import, and needed only here

        delta = 2.0 * self.loss.phi.excess
        masses = self._masses(C)
        theta = least_expected(self.loss, masses, self.alpha, near).theta
        U, r = self.loss.U, self.loss.residuals(theta)
        for width in (3.0, 30.0):
            free = np.abs(r) <= width * delta
            fixed = U[~free].T @ (masses[~free] * np.sign(r[~free]))
            A = U[free].T * masses[free]
            answer = linprog(
                -masses[free] * r[free],
                A_eq=A,
                b_eq=2.0 * self.alpha * theta - fixed,
                bounds=(-1.0, 1.0),
                method="highs",
            )
            if answer.status == 0:
                return float(masses[~free] @ np.abs(r[~free]) - answer.fun + self.penalty(theta))
        # the smooth loss is at most δ/2 above
        return super().proven_least(C, tol, near) - 0.5 * delta * float(masses.sum())


class LogisticScores(ParametricLoss):
    """The logistic loss of scores ⟨u(x), θ_c⟩ for the labels c ≥ 1, and 0 for the first.

    ``U``: (N, P); the nodes repeat for every label, in the order of the labels. θ holds θ_1, …,
    θ_{L−1}, one after the other.
    """

    def __init__(self, U: np.ndarray, labels: int) -> None:
        self.U, self.labels = U, labels
        self.n_parameters = U.shape[1] * (labels - 1)

    def _scores(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(log probabilities (N, L), probabilities)."""
        scores = np.zeros((self.U.shape[0], self.labels))
        scores[:, 1:] = self.U @ theta.reshape(self.labels - 1, -1).T
        scores -= scores.max(axis=1, keepdims=True)
        log = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        return log, np.exp(log)

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log, probabilities = self._scores(theta)
        # (labels, N, labels − 1)
        residuals = probabilities[:, 1:] - np.eye(self.labels)[:, None, 1:]
        return -log.T.ravel(), (residuals[..., None] * self.U[:, None, :]).reshape(
            -1, self.n_parameters
        )

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        probabilities = self._scores(theta)[1][:, 1:]
        m = masses.reshape(self.labels, -1).sum(axis=0)
        k, P = self.labels - 1, self.U.shape[1]
        H = np.empty((k, P, k, P))
        for a in range(k):
            for b in range(a, k):
                w = m * (probabilities[:, a] * (float(a == b) - probabilities[:, b]))
                H[a, :, b] = self.U.T @ (w[:, None] * self.U)
                H[b, :, a] = H[a, :, b].T
        return H.reshape(k * P, k * P)


class LogisticOfOwn(ParametricLoss):
    """The logistic loss of samples that have a label each: of the nodes of :class:`LogisticScores`,
    those of the own label.
    """

    def __init__(self, U: np.ndarray, labels: int, codes: np.ndarray) -> None:
        self.scores = LogisticScores(U, labels)
        self.n_parameters, self.rows = (
            self.scores.n_parameters,
            codes * U.shape[0] + np.arange(U.shape[0]),
        )

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, gradients = self.scores.values(theta)
        return values[self.rows], gradients[self.rows]

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        everywhere = np.zeros(self.scores.labels * self.scores.U.shape[0])
        everywhere[self.rows] = masses
        return self.scores.curvature(theta, everywhere)


# --- losses ---


class _Loss:
    name: ClassVar[str]
    closed_form: ClassVar[bool] = False
    """Whether expectations are closed forms; else they go through quadrature."""
    degree: ClassVar[int] = 2
    """φ(cr) ≈ c^degree φ(r): the ridge has the same unit."""
    risk: ClassVar[type[NodeRisk]] = NodeRisk
    """The risk over densities that its values at the nodes make."""
    excess = 0.0
    """How far the smooth function that is solved may lie above the loss."""

    def scaled(self, unit: float) -> Any:
        """The loss for outcomes of this standard deviation."""
        return self

    def ladder(self) -> Sequence[Any]:
        """Smooth functions ever closer to the loss, each solved from where the one before has
        ended.
        """
        return [self]


class RegressionLoss(_Loss):
    """A loss that :class:`~ksos.RobustRegressor` takes."""


class ClassificationLoss(_Loss):
    """A loss that :class:`~ksos.RobustClassifier` takes."""


@dataclass(frozen=True)
class SquareLoss(RegressionLoss, ClassificationLoss):
    """r²; of scores (score ∓ 1)² for two labels, and the squared distance to the label's unit
    vector for more.
    """

    name = "square"
    closed_form = True


class ResidualLoss(RegressionLoss, ABC):
    """φ(r) of a residual r, convex. Say what φ is, and the derivatives of φ or of a smooth function
    a little above it.
    """

    @abstractmethod
    def __call__(self, r: np.ndarray) -> np.ndarray:
        """φ at residuals (n,)."""

    @abstractmethod
    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, first, second derivative) of the smooth function."""


@dataclass(frozen=True)
class HuberLoss(ResidualLoss):
    """r²/2 for |r| ≤ δ and δ(|r| − δ/2) beyond; δ is in standard deviations of the outcome
    [Huber1964].
    """

    delta: float = 1.35
    name = "huber"

    def __post_init__(self) -> None:
        as_positive(self.delta, "delta")

    def scaled(self, unit: float) -> ResidualLoss:
        return replace(self, delta=self.delta * unit)

    def __call__(self, r: np.ndarray) -> np.ndarray:
        return self.derivatives(r)[0]

    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        clipped = np.clip(r, -self.delta, self.delta)
        return clipped * (r - 0.5 * clipped), clipped, (np.abs(r) <= self.delta).astype(float)


@dataclass(frozen=True)
class AbsoluteLoss(HuberLoss):
    """|r|, solved as φ/δ + δ/2 with Huber's φ, which is above it by at most δ/2; the gap counts
    that.
    """

    delta: float = 0.01
    name, degree, risk = "absolute", 1, AbsoluteRisk

    @property
    def excess(self) -> float:  # type: ignore[override]
        return 0.5 * self.delta

    def __call__(self, r: np.ndarray) -> np.ndarray:
        return np.abs(r)

    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value, first, second = super().derivatives(r)
        return value / self.delta + 0.5 * self.delta, first / self.delta, second / self.delta

    def ladder(self) -> Sequence[ResidualLoss]:
        return [replace(self, delta=self.delta * sharper) for sharper in _SHARPER]


@dataclass(frozen=True)
class LogisticLoss(ClassificationLoss):
    """−log softmax of the label's score."""

    name = "logistic"


LOSSES: dict[str, type[_Loss]] = {
    loss.name: loss for loss in (SquareLoss, HuberLoss, AbsoluteLoss, LogisticLoss)
}
"""Every loss by name."""


def as_loss_object(loss: Any, kind: type) -> Any:
    """A loss of this kind: an object, or the name of one."""
    if isinstance(loss, kind):
        return loss
    names = [name for name, known in LOSSES.items() if issubclass(known, kind)]
    return LOSSES[as_choice(loss, "loss", names, otherwise=f" or a {kind.__name__} object")]()
