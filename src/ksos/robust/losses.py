"""Losses that are convex in a parameter: at points, in expectation under a density by quadrature,
and as the objects with names that the robust estimators take.

Models are linear in θ: residuals y − ⟨u(x), θ⟩, or scores ⟨u(x), θ_c⟩ of the labels. "square" is in
closed form. The others are integrated at quadrature nodes x_n, whose masses w_n ψ(x_n)ᵀCψ(x_n) are
linear in C. A regression loss of your own is a subclass of :class:`ResidualLoss`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ksos.exceptions import ConvexityError
from ksos.ground.validation import as_choice, as_numbers_at, as_positive
from ksos.robust.parametric import ParametricRisk
from ksos.solvers import Minimum, Value, newton, proven_minimum
from ksos.space import Nodes

__all__ = [
    "AbsoluteLoss",
    "AbsoluteRisk",
    "ClassificationLoss",
    "HingeLoss",
    "HuberLoss",
    "LogisticLoss",
    "LogisticScores",
    "NodeRisk",
    "ParametricLoss",
    "QuantileLoss",
    "RegressionLoss",
    "ResidualLoss",
    "Residuals",
    "SquareLoss",
    "UserLoss",
    "as_loss_object",
    "least_expected",
    "proven_expected",
]

_ROUNDING = 1e-8  # of a violation of convexity: half the digits, a user's formula may lose the rest
_CANCELED = 1e-14  # Beyond them, the rounding of terms that cancel.
# In units of that of the robust problem, for the data themselves. Each is solved from the last one.
_SHARPER = (1.0, 0.1, 1e-2, 1e-3, 1e-4)  # roundings of |r|, one after the other


# Losses at points


class ParametricLoss(ABC):
    """ℓ(θ, x_n) at fixed points x_n: values, gradients in θ, and the weighted sum of second
    derivatives.
    """

    n_parameters: int

    @abstractmethod
    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ℓ_n, ∂ℓ_n/∂θ), shapes (N,) and (N, p)."""

    def exact(self, theta: np.ndarray) -> np.ndarray:
        """The loss itself, where ``values`` are those of a smoother one."""
        return self.values(theta)[0]

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n ∂²ℓ_n/∂θ², shape (p, p). Default: differences of gradients."""
        # about the cube root of the rounding of doubles
        step = 1e-5 * max(float(np.max(np.abs(theta), initial=0.0)), 1e-2)
        moves = step * np.eye(theta.shape[0])
        ends = [[masses @ self.values(theta + s * move)[1] for s in (1, -1)] for move in moves]
        H = np.array([up - down for up, down in ends]) / (2.0 * step)
        return 0.5 * (H + H.T)


class UserLoss(ParametricLoss):
    """loss(θ, X) → (values, gradients), with every answer checked, and convexity between any two
    parameters that follow each other.
    """

    def __init__(
        self,
        loss: Callable[..., Any],
        X: np.ndarray,
        n_parameters: int,
        hessian: Callable[..., Any] | None = None,
    ) -> None:
        self.loss, self.X, self.n_parameters, self.hessian = loss, X, n_parameters, hessian
        # values are not computed twice; none depends on it
        self._last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self._last is None or not np.array_equal(self._last[0], theta):
            values, gradients = self._call(theta)
            if self._last is not None:
                self._check_convexity(theta, values, gradients)
            self._last = theta.copy(), values, gradients
        return self._last[1], self._last[2]

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        if self.hessian is None:
            return super().curvature(theta, masses)
        found, p = self.hessian(theta.copy(), self.X.copy(), masses.copy()), self.n_parameters
        H = np.asarray(found, dtype=np.float64)
        if H.shape != (p, p) or not np.all(np.isfinite(H)):
            wanted = f"a finite array of shape ({p}, {p}), the sum over n of weights_n ∂²loss_n"
            raise ValueError(f"hessian must return {wanted}; got shape {H.shape}")
        return 0.5 * (H + H.T)

    def _call(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, p = self.X.shape[0], self.n_parameters
        wanted = (
            f"(values of shape ({n},), gradients of shape ({n}, {p})) for theta of shape ({p},) and"
            f" X of shape {self.X.shape}"
        )
        try:
            answer = self.loss(theta.copy(), self.X.copy())
        except Exception as error:
            raise ValueError(
                f"the loss raised {type(error).__name__}: {error}; it must return {wanted}"
            ) from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ValueError(f"the loss must return a tuple {wanted}; got {type(answer).__name__}")
        values = as_numbers_at(answer[0], "the loss", self.X, (n,))
        return values, as_numbers_at(answer[1], "the gradient of the loss", self.X, (n, p))

    def _check_convexity(
        self, theta: np.ndarray, values: np.ndarray, gradients: np.ndarray
    ) -> None:
        """ℓ(θ') ≥ ℓ(θ) + ⟨∂ℓ(θ), θ' − θ⟩ at every node, both ways."""
        assert self._last is not None
        old, old_values, old_gradients = self._last
        move = theta - old
        sides = (
            (old_values, values, old_gradients @ move),
            (values, old_values, -(gradients @ move)),
        )
        # a hinge near its kink is a small difference of terms whose size only its slope tells
        terms = (
            np.abs(values) + np.abs(gradients) @ np.abs(theta),
            np.abs(old_values) + np.abs(old_gradients) @ np.abs(old),
        )
        least = _CANCELED * float(max(part.max() for part in terms))
        for here, there, rise in sides:
            size, missing = np.abs(here) + np.abs(there) + np.abs(rise), here + rise - there
            at = int(np.argmax(missing - _ROUNDING * size))
            if missing[at] > _ROUNDING * size[at] + least + 1e-300:
                ends = f"theta = {old.tolist()} and {theta.tolist()}"
                raise ConvexityError(
                    "the loss is not convex in theta, or its gradient wrong: at x ="
                    f" {self.X[at].tolist()}, between {ends}, it lies below its tangent by"
                    f" {missing[at]:.3g}"
                )


class Residuals(ParametricLoss):
    """φ(y − ⟨u(x), θ⟩) at points with u(x) = U, shape (N, P), and outcomes y."""

    def __init__(self, phi: ResidualLoss, U: np.ndarray, y: np.ndarray) -> None:
        self.phi, self.U, self.y, self.n_parameters = phi, U, y, U.shape[1]

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(self.y - self.U @ theta)

    def exact(self, theta: np.ndarray) -> np.ndarray:
        return np.asarray(self.phi(self.residuals(theta)))

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, slope, _ = self.phi.derivatives(self.residuals(theta))
        return value, -slope[:, None] * self.U

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        second = self.phi.derivatives(self.residuals(theta))[2]
        # a loss may have no curvature at any residual: a trace of that of the square keeps steps
        # finite
        return np.asarray(self.U.T @ ((masses * (second + 1e-9))[:, None] * self.U))


class LogisticScores(ParametricLoss):
    """The logistic loss of scores ⟨u(x), θ_c⟩ for the labels c ≥ 1, and 0 for the first.

    θ holds θ_1, …, θ_{L−1}, one after the other. The N points, u(x) = ``U`` (N, P), repeat for
    every label in turn. With ``codes`` each has its own label only.
    """

    def __init__(self, U: np.ndarray, labels: int, codes: np.ndarray | None = None) -> None:
        n = U.shape[0]
        self.U, self.labels, self.n_parameters = U, labels, U.shape[1] * (labels - 1)
        self.rows = np.arange(n * labels) if codes is None else codes * n + np.arange(n)

    def _log_probabilities(self, theta: np.ndarray) -> np.ndarray:
        scores = np.zeros((self.U.shape[0], self.labels))
        scores[:, 1:] = self.U @ theta.reshape(self.labels - 1, -1).T
        scores -= scores.max(axis=1, keepdims=True)
        return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log = self._log_probabilities(theta)
        # shape (labels, N, labels − 1)
        residuals = np.exp(log[:, 1:]) - np.eye(self.labels)[:, None, 1:]
        gradients = residuals[..., None] * self.U[:, None, :]
        return -log.T.ravel()[self.rows], gradients.reshape(-1, self.n_parameters)[self.rows]


# Losses in expectation


class NodeRisk(ParametricRisk):
    """Σ_n m_n(C) ℓ(θ, x_n) + Σ α_j θ_j². ``theta`` is where the first minimization starts."""

    def __init__(
        self, nodes: Nodes, loss: ParametricLoss, alpha: np.ndarray, theta: np.ndarray | None = None
    ) -> None:
        self.nodes, self.loss, self.alpha, self.n_parameters = nodes, loss, alpha, loss.n_parameters
        self.theta = np.zeros(loss.n_parameters) if theta is None else theta

    def least(self, C: np.ndarray) -> Minimum:
        return least_expected(self.loss, self.masses(C), self.alpha, self.theta)

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        return proven_expected([(self.loss, 0.0)], self.masses(C), self.alpha, near, tol)

    def masses(self, C: np.ndarray) -> np.ndarray:
        """m_n(C), without the rounding below 0."""
        return np.maximum(self.nodes.masses(C), 0.0)

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.nodes.matrix(self.loss.values(theta)[0])

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        return np.stack([self.nodes.matrix(slope) for slope in self.loss.values(theta)[1].T])

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.loss.curvature(theta, self.masses(C))


class AbsoluteRisk(NodeRisk):
    """The risk of a loss with a kink at residual 0, solved as that of the smooth loss above it.
    Both bounds are those of the loss itself.

    The lower bound is that of ever closer smooth losses.
    """

    loss: Residuals

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.nodes.matrix(self.loss.exact(theta))

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        U, y, ladder = self.loss.U, self.loss.y, self.loss.phi.ladder()
        losses = [(Residuals(phi, U, y), phi.excess) for phi in ladder]
        return proven_expected(losses, self.masses(C), self.alpha, near, tol)


def least_expected(
    loss: ParametricLoss,
    masses: np.ndarray,
    alpha: np.ndarray,
    theta: np.ndarray,
) -> Minimum:
    """min over θ of Σ_n m_n ℓ(θ, x_n) + Σ α_j θ_j², from ``theta``."""

    def curvature(at: np.ndarray) -> np.ndarray:
        return loss.curvature(at, masses) + 2.0 * np.diag(alpha)

    return newton(_expected(loss, masses, alpha), curvature, theta)


def proven_expected(
    losses: Iterable[tuple[ParametricLoss, float]],
    masses: np.ndarray,
    alpha: np.ndarray,
    theta: np.ndarray,
    tol: float,
) -> float:
    """A certified lower bound of that minimum, to about ``tol``, or −∞: of ever closer smooth
    losses, less what each may lie above the loss. Each is solved from where the one before has
    ended, the first from ``theta``, which is about the minimizer.
    """
    best = -np.inf
    for loss, excess in losses:
        found = least_expected(loss, masses, alpha, theta)
        known = proven_minimum(_expected(loss, masses, alpha), found, alpha, tol)
        best, theta = max(best, known - excess * float(masses.sum())), found.theta
    return best


def _expected(loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray) -> Value:
    def f(theta: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = loss.values(theta)
        return float(masses @ values + alpha @ theta**2), masses @ gradients + 2.0 * alpha * theta

    return f


# Losses with names


class _Loss:
    name: ClassVar[str]
    closed_form: ClassVar[bool] = False  # else expectations go through quadrature
    degree: ClassVar[int] = 2  # φ(cr) ≈ c^degree φ(r): the ridge has the same unit
    risk: ClassVar[type[NodeRisk]] = NodeRisk  # made of the values at the nodes
    excess = 0.0  # how far the smooth function that is solved may lie above the loss

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
    """r². For two labels (score ∓ 1)², and for more the squared distance of the scores to the
    label's unit vector.
    """

    name = "square"
    closed_form = True


class ResidualLoss(RegressionLoss, ABC):
    """φ(r) of a residual r, convex. Give the derivatives of φ, or those of a smooth function a
    little above it and φ itself.
    """

    def __call__(self, r: np.ndarray) -> np.ndarray:
        """φ at residuals (n,)."""
        return self.derivatives(r)[0]

    @abstractmethod
    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(value, first, second derivative) of the smooth function."""


@dataclass(frozen=True)
class HuberLoss(ResidualLoss):
    """r²/2 for |r| ≤ δ and δ(|r| − δ/2) beyond. δ is in standard deviations of the outcome
    [Huber1964].
    """

    delta: float = 1.35  # 95% of the efficiency of least squares under normal errors
    name = "huber"

    def __post_init__(self) -> None:
        as_positive(self.delta, "delta")

    def scaled(self, unit: float) -> ResidualLoss:
        return replace(self, delta=self.delta * unit)

    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        clipped = np.clip(r, -self.delta, self.delta)
        return clipped * (r - 0.5 * clipped), clipped, (np.abs(r) <= self.delta).astype(float)


@dataclass(frozen=True)
class AbsoluteLoss(HuberLoss):
    """|r|, solved as φ/δ + δ/2 with Huber's φ, which is above it by at most δ/2. The gap counts
    that.
    """

    delta: float = 0.01  # a smaller one is closer to |r|, and takes more steps
    name, degree, risk = "absolute", 1, AbsoluteRisk

    @property
    def slopes(self) -> tuple[float, float]:
        """Those of negative and of positive residuals."""
        return -1.0, 1.0

    @property
    def excess(self) -> float:  # type: ignore[override]
        return 0.25 * self.delta * (self.slopes[1] - self.slopes[0])

    def __call__(self, r: np.ndarray) -> np.ndarray:
        return np.maximum(self.slopes[0] * r, self.slopes[1] * r)

    def derivatives(self, r: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        value, first, second = super().derivatives(r)
        low, high = self.slopes
        middle, half = 0.5 * (low + high), 0.5 * (high - low) / self.delta
        value = half * value + 0.25 * self.delta * (high - low) + middle * r
        return value, half * first + middle, half * second

    def ladder(self) -> Sequence[AbsoluteLoss]:
        return [replace(self, delta=self.delta * sharper) for sharper in _SHARPER]


@dataclass(frozen=True)
class QuantileLoss(AbsoluteLoss):
    """level·r for positive residuals and (level − 1)·r for negative ones, rounded as |r| is: the
    model is that of a quantile [Koenker1978].

    >>> QuantileLoss(level=0.9)(np.array([-1.0, 2.0])).round(6).tolist()
    [0.1, 1.8]
    """

    level: float = 0.5
    name = "quantile"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.level <= 1.0:
            raise ValueError(f"level must lie between 0 and 1; got {self.level!r}")

    @property
    def slopes(self) -> tuple[float, float]:
        return self.level - 1.0, self.level


@dataclass(frozen=True)
class HingeLoss(ClassificationLoss):
    """max(0, 1 − ±score) for two labels, rounded as |r| is."""

    delta: float = 0.01
    name, degree, risk = "hinge", 1, AbsoluteRisk

    @property
    def phi(self) -> QuantileLoss:
        """max(0, r) of r = 1 − ±score."""
        return QuantileLoss(delta=self.delta, level=1.0)

    @property
    def excess(self) -> float:  # type: ignore[override]
        return self.phi.excess

    def ladder(self) -> Sequence[Any]:
        return [replace(self, delta=phi.delta) for phi in self.phi.ladder()]


@dataclass(frozen=True)
class LogisticLoss(ClassificationLoss):
    """−log softmax of the label's score."""

    name = "logistic"


def as_loss_object(loss: Any, kind: type) -> Any:
    """A loss of this kind: an object, or the name of one."""
    if isinstance(loss, kind):
        return loss
    known = (SquareLoss, HuberLoss, AbsoluteLoss, QuantileLoss, LogisticLoss, HingeLoss)
    named = {each.name: each for each in known}
    names = [name for name, each in named.items() if issubclass(each, kind)]
    return named[as_choice(loss, "loss", names, otherwise=f" or a {kind.__name__} object")]()
