"""Risks by quadrature: the loss at nodes x_n, whose masses w_n ψ(x_n)ᵀCψ(x_n) are linear in C."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ksos.exceptions import ConvexityError
from ksos.robust.risk import ParametricRisk
from ksos.solvers.newton import Minimum, Value, newton, proven_minimum
from ksos.space.space import Nodes

__all__ = ["NodeRisk", "ParametricLoss", "UserLoss", "least_expected", "proven_expected"]

_ROUNDING, _CANCELLED = 1e-8, 1e-14  # of a loss, where its convexity is checked


class ParametricLoss(ABC):
    """ℓ(θ, x_n) at fixed points x_n: values, gradients in θ, and the weighted sum of second
    derivatives.
    """

    n_parameters: int

    @abstractmethod
    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ℓ_n, ∂ℓ_n/∂θ), shapes (N,) and (N, p)."""

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """Σ_n m_n ∂²ℓ_n/∂θ², shape (p, p): by differences of gradients unless a loss knows better."""
        p = theta.shape[0]
        scale = float(np.max(np.abs(theta))) if p else 0.0
        H, step = np.empty((p, p)), 1e-5 * max(scale, 1e-2)
        for j in range(p):
            move = np.zeros(p)
            move[j] = step
            rise = masses @ self.values(theta + move)[1] - masses @ self.values(theta - move)[1]
            H[j] = rise / (2.0 * step)
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
        if self._last is not None and np.array_equal(self._last[0], theta):
            return self._last[1], self._last[2]
        values, gradients = self._call(theta)
        if self._last is not None:
            self._check_convexity(theta, values, gradients)
        self._last = (theta.copy(), values, gradients)
        return values, gradients

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        if self.hessian is None:
            return super().curvature(theta, masses)
        H, p = (
            np.asarray(self.hessian(theta.copy(), self.X.copy(), masses.copy()), dtype=np.float64),
            self.n_parameters,
        )
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
        try:
            if any(np.iscomplexobj(part) for part in answer):
                raise TypeError
            values, gradients = (np.asarray(part, dtype=np.float64) for part in answer)
        except (TypeError, ValueError):
            raise ValueError(f"the loss must return numbers, {wanted}; got {answer!r}") from None
        if values.shape != (n,) or gradients.shape != (n, p):
            raise ValueError(
                f"the loss must return {wanted}; got shapes {values.shape} and {gradients.shape}"
            )
        for name, part in (("values", values), ("gradients", gradients.sum(axis=1))):
            if not np.all(np.isfinite(part)):
                at = int(np.argmin(np.isfinite(part)))
                where = f"x = {self.X[at].tolist()}, theta = {theta.tolist()}"
                raise ValueError(f"the loss must return finite {name}; got {part[at]} at {where}")
        return values, gradients

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
        below = [here + rise - there for here, there, rise in sides]
        if max(float(missing.max()) for missing in below) <= _CANCELLED * max(
            float(values.max()), -float(values.min())
        ):
            return  # no more than rounding, which is what nearly every call finds
        # a hinge near its kink is a small difference of terms whose size only its slope tells
        terms = (
            np.abs(values) + np.abs(gradients) @ np.abs(theta),
            np.abs(old_values) + np.abs(old_gradients) @ np.abs(old),
        )
        least = _CANCELLED * float(max(part.max() for part in terms))
        for missing, (here, there, rise) in zip(below, sides, strict=True):
            size = np.abs(here) + np.abs(there) + np.abs(rise)
            at = int(np.argmax(missing - _ROUNDING * size))
            if missing[at] > _ROUNDING * size[at] + least + 1e-300:
                where = (
                    f"at x = {self.X[at].tolist()}, between theta = {old.tolist()} and"
                    f" {theta.tolist()}"
                )
                lower = f"{where}, it lies below its tangent by {missing[at]:.3g}"
                raise ConvexityError(
                    f"the loss is not convex in theta, or its gradient wrong: {lower}"
                )


class NodeRisk(ParametricRisk):
    """Σ_n m_n(C) ℓ(θ, x_n) + Σ α_j θ_j²."""

    def __init__(
        self, nodes: Nodes, loss: ParametricLoss, alpha: np.ndarray, theta: np.ndarray | None = None
    ) -> None:
        """``theta`` is where the first minimisation starts, by default at 0."""
        self.nodes, self.loss, self.alpha, self.n_parameters = nodes, loss, alpha, loss.n_parameters
        self.theta = np.zeros(loss.n_parameters) if theta is None else theta

    def least(self, C: np.ndarray, near: Minimum | None = None) -> Minimum:
        theta, eigen = (self.theta, None) if near is None else (near.theta, near.eigen)
        return least_expected(self.loss, self._masses(C), self.alpha, theta, eigen)

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        return proven_expected(self.loss, self._masses(C), self.alpha, near, tol)

    def _masses(self, C: np.ndarray) -> np.ndarray:
        return np.maximum(self.nodes.masses(C), 0.0)

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.nodes.matrix(self.loss.values(theta)[0])

    def slopes(self, theta: np.ndarray, F: np.ndarray) -> np.ndarray:
        # p functions of x, but often of a space of fewer dimensions: only its basis is integrated
        Q, sizes, R = np.linalg.svd(self.loss.values(theta)[1], full_matrices=False)
        kept = sizes > 1e-15 * max(float(sizes[0]), 1e-300) if sizes.size else sizes > 0.0
        products = self.nodes.products(Q[:, kept] * sizes[kept], F)
        return np.asarray(np.tensordot(R[kept].T, products, axes=1))

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.loss.curvature(theta, self._masses(C))

    def slope_products(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.asarray(self.nodes.masses(C) @ self.loss.values(theta)[1])

    def slope_sum(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.nodes.matrix(self.loss.values(theta)[1] @ v)


def least_expected(
    loss: ParametricLoss,
    masses: np.ndarray,
    alpha: np.ndarray,
    theta: np.ndarray,
    eigen: tuple[np.ndarray, np.ndarray] | None = None,
) -> Minimum:
    """min over θ of Σ_n m_n ℓ(θ, x_n) + Σ α_j θ_j²; ``eigen`` is the eigendecomposition of the
    second derivative of a neighbour.
    """
    return newton(
        _expected(loss, masses, alpha),
        lambda at: loss.curvature(at, masses) + 2.0 * np.diag(alpha),
        theta,
        eigen,
    )


def proven_expected(
    loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray, theta: np.ndarray, tol: float
) -> float:
    """A certified lower bound of that minimum, to about ``tol``; −∞ if there is none. ``theta`` is
    about the minimiser.
    """
    return proven_minimum(
        _expected(loss, masses, alpha), least_expected(loss, masses, alpha, theta), alpha, tol
    )


def _expected(loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray) -> Value:
    def f(theta: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = loss.values(theta)
        return float(masses @ values + alpha @ theta**2), masses @ gradients + 2.0 * alpha * theta

    return f
