"""Risks by quadrature: the loss at nodes x_n, whose masses w_n ψ(x_n)ᵀCψ(x_n) are linear in C."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ksos.exceptions import ConvexityError
from ksos.robust.convex_in_theta import NewtonOverTheta, ThetaMinimum, proven_minimum
from ksos.robust.risk import Risk

__all__ = ["NodeBasis", "NodeRisk", "ParametricLoss", "UserLoss", "least_expected", "proven_expected"]

_ROUNDING, _CANCELLED = 1e-8, 1e-14


class ParametricLoss:
    """ℓ(θ, x_n) at fixed points x_n: values, gradients in θ, and the weighted sum of second derivatives."""

    n_parameters: int

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ℓ_n, ∂ℓ_n/∂θ), shapes (N,) and (N, p)."""
        raise NotImplementedError

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
    """loss(θ, X) → (values, gradients), with every answer checked, and convexity between any two parameters that follow each other."""

    def __init__(self, loss: Callable[..., Any], X: np.ndarray, n_parameters: int, hessian: Callable[..., Any] | None = None) -> None:
        self.loss, self.X, self.n_parameters, self.hessian = loss, X, n_parameters, hessian
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
        H, p = np.asarray(self.hessian(theta.copy(), self.X.copy(), masses.copy()), dtype=np.float64), self.n_parameters
        if H.shape != (p, p) or not np.all(np.isfinite(H)):
            raise ValueError(
                f"hessian must return a finite array of shape ({p}, {p}), the sum over n of weights_n ∂²loss_n; got shape {H.shape}"
            )
        return 0.5 * (H + H.T)

    def _call(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, p = self.X.shape[0], self.n_parameters
        wanted = f"(values of shape ({n},), gradients of shape ({n}, {p})) for theta of shape ({p},) and X of shape {self.X.shape}"
        try:
            answer = self.loss(theta.copy(), self.X.copy())
        except Exception as error:
            raise ValueError(f"the loss raised {type(error).__name__}: {error}; it must return {wanted}") from error
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise ValueError(f"the loss must return a tuple {wanted}; got {type(answer).__name__}")
        try:
            if any(np.iscomplexobj(part) for part in answer):
                raise TypeError
            values, gradients = (np.asarray(part, dtype=np.float64) for part in answer)
        except (TypeError, ValueError):
            raise ValueError(f"the loss must return numbers, {wanted}; got {answer!r}") from None
        if values.shape != (n,) or gradients.shape != (n, p):
            raise ValueError(f"the loss must return {wanted}; got shapes {values.shape} and {gradients.shape}")
        for name, part in (("values", values), ("gradients", gradients.sum(axis=1))):
            if not np.all(np.isfinite(part)):
                at = int(np.argmin(np.isfinite(part)))
                raise ValueError(
                    f"the loss must return finite {name}; got {part[at]} at x = {self.X[at].tolist()}, theta = {theta.tolist()}"
                )
        return values, gradients

    def _check_convexity(self, theta: np.ndarray, values: np.ndarray, gradients: np.ndarray) -> None:
        """ℓ(θ') ≥ ℓ(θ) + ⟨∂ℓ(θ), θ' − θ⟩ at every node, both ways."""
        assert self._last is not None
        old, old_values, old_gradients = self._last
        move = theta - old
        # a hinge near its kink is a small difference of terms whose size only its slope tells
        terms = np.abs(values) + np.abs(gradients) @ np.abs(theta), np.abs(old_values) + np.abs(old_gradients) @ np.abs(old)
        least = _CANCELLED * float(max(part.max() for part in terms))
        for here, there, rise in ((old_values, values, old_gradients @ move), (values, old_values, -(gradients @ move))):
            missing = here + rise - there
            size = np.abs(here) + np.abs(there) + np.abs(rise)
            at = int(np.argmax(missing - _ROUNDING * size))
            if missing[at] > _ROUNDING * size[at] + least + 1e-300:
                raise ConvexityError(
                    f"the loss is not convex in theta, or its gradient wrong: at x = {self.X[at].tolist()}, between theta = {old.tolist()} "
                    f"and {theta.tolist()}, it lies below its tangent by {missing[at]:.3g}"
                )


class NodeBasis:
    """ψ at the nodes, with the roots of their weights: the masses of C are the squared rows seen through C.

    With ``labels`` the space has one block of directions per label, and the nodes repeat for each of them.
    """

    def __init__(self, psi: np.ndarray, labels: int = 1) -> None:
        self.psi, self.labels = psi, labels

    def _blocks(self) -> list[tuple[slice, slice]]:
        n, r = self.psi.shape
        return [(slice(y * n, (y + 1) * n), slice(y * r, (y + 1) * r)) for y in range(self.labels)]

    def masses(self, C: np.ndarray) -> np.ndarray:
        """w_n ψ_nᵀCψ_n, shape (labels·N,)."""
        return np.concatenate([np.einsum("nr,nr->n", self.psi @ C[block, block], self.psi) for _, block in self._blocks()])

    def matrix(self, f: np.ndarray) -> np.ndarray:
        """Σ_n f_n w_n ψ_nψ_nᵀ."""
        r = self.labels * self.psi.shape[1]
        out = np.zeros((r, r))
        for rows, block in self._blocks():
            M = self.psi.T @ (f[rows, None] * self.psi)
            out[block, block] = 0.5 * (M + M.T)
        return out

    def products(self, g: np.ndarray, F: np.ndarray) -> np.ndarray:
        """Σ_n g_nj w_n ψ_nψ_nᵀF, shape (p, r, k)."""
        out = np.empty((g.shape[1], *F.shape))
        for rows, block in self._blocks():
            image = self.psi @ F[block]
            for j in range(g.shape[1]):
                out[j, block] = self.psi.T @ (g[rows, j, None] * image)
        return out


class NodeRisk(Risk):
    """Σ_n m_n(C) ℓ(θ, x_n) + Σ ρ_j θ_j²."""

    def __init__(self, basis: NodeBasis, loss: ParametricLoss, ridge: np.ndarray, theta: np.ndarray) -> None:
        self.basis, self.loss, self.ridge = basis, loss, ridge
        self.n_parameters = theta.shape[0]
        self._theta = theta
        self._newton = newton_for(loss, ridge)

    def least(self, C: np.ndarray) -> ThetaMinimum:
        masses = np.maximum(self.basis.masses(C), 0.0)
        found = self._newton.minimise(lambda theta: _expected(self.loss, masses, self.ridge, theta), masses, self._theta)
        self._theta = found.theta  # the next C is near this one
        return found

    def proven_least(self, C: np.ndarray, tol: float) -> float:
        return proven_expected(self.loss, np.maximum(self.basis.masses(C), 0.0), self.ridge, self._theta, tol)

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.basis.matrix(self.loss.values(theta)[0])

    def slopes(self, theta: np.ndarray, F: np.ndarray) -> np.ndarray:
        # p functions of x, but often of a space of fewer dimensions: only its basis is integrated
        Q, sizes, R = np.linalg.svd(self.loss.values(theta)[1], full_matrices=False)
        kept = sizes > 1e-15 * max(float(sizes[0]), 1e-300) if sizes.size else sizes > 0.0
        products = self.basis.products(Q[:, kept] * sizes[kept], F)
        return np.asarray(np.tensordot(R[kept].T, products, axes=1))

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.loss.curvature(theta, np.maximum(self.basis.masses(C), 0.0))

    def slope_products(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.asarray(self.basis.masses(C) @ self.loss.values(theta)[1])

    def slope_sum(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.basis.matrix(self.loss.values(theta)[1] @ v)


def newton_for(loss: ParametricLoss, ridge: np.ndarray) -> NewtonOverTheta:
    """Newton's method for the risks of one loss."""
    return NewtonOverTheta(lambda theta, masses: loss.curvature(theta, masses) + 2.0 * np.diag(ridge))


def least_expected(loss: ParametricLoss, masses: np.ndarray, ridge: np.ndarray, theta: np.ndarray) -> ThetaMinimum:
    """min over θ of Σ_n m_n ℓ(θ, x_n) + Σ ρ_j θ_j²."""
    return newton_for(loss, ridge).minimise(lambda at: _expected(loss, masses, ridge, at), masses, theta)


def proven_expected(loss: ParametricLoss, masses: np.ndarray, ridge: np.ndarray, theta: np.ndarray, tol: float) -> float:
    """A certified lower bound of that minimum, to about ``tol``; −∞ where there is none. ``theta`` is about the minimiser."""
    found = least_expected(loss, masses, ridge, theta)
    return proven_minimum(lambda at: _expected(loss, masses, ridge, at), found, ridge, tol)


def _expected(loss: ParametricLoss, masses: np.ndarray, ridge: np.ndarray, theta: np.ndarray) -> tuple[float, np.ndarray]:
    values, gradients = loss.values(theta)
    return float(masses @ values + ridge @ theta**2), masses @ gradients + 2.0 * ridge * theta
