"""Risks by quadrature: the loss at nodes x_n, whose masses w_n ψ(x_n)ᵀCψ(x_n) are linear in C.

The minimum over θ is found by Newton's method, and tangents prove a lower bound of it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos._array import to_numpy
from ksos.exceptions import ConvexityError
from ksos.integrals import closed_form
from ksos.integrals.regions import importance_rules, panel_rules
from ksos.robust.risk import ParametricRisk, ThetaMinimum, blocks_of
from ksos.space import SoSSpace

__all__ = [
    "NodeBasis",
    "NodeRisk",
    "Nodes",
    "ParametricLoss",
    "UserLoss",
    "least_expected",
    "nodes_of",
    "proven_expected",
    "proven_minimum",
]

Value = Callable[[np.ndarray], tuple[float, np.ndarray]]

_TENSOR_FEATURES = 3
_BUDGETS = (1 << 8, 1 << 10, 1 << 12, 1 << 14, 1 << 16)
_AGREE = 1e-8
_SCATTERED = 1 << 16
_ROUNDING, _CANCELLED = 1e-8, 1e-14  # of a loss, where its convexity is checked
_MOST_STEPS, _MOST_DOUBLINGS = 300, 60
_SLOW, _FARTHEST = 0.05, 1e4
_SMALL_DECREMENT, _SMALL_RISE = 1e-16, 1e-14


@dataclass(frozen=True)
class Nodes:
    """Points x_n, and ψ(x_n)√w_n in natural units, so that masses are quadratic in the rows."""

    points: np.ndarray
    psi: np.ndarray
    mass: np.ndarray
    """Σ w_n ψψᵀ: the identity for an exact rule."""


def nodes_of(space: SoSSpace, finer: bool = False) -> Nodes:
    """The coarsest rule on whose Σ w_nψψᵀ the next one agrees to 1e-8; with ``finer``, that next one.

    Up to three features: Gauss–Legendre panels. Beyond: scrambled Sobol' points, of which ``finer`` takes another scrambling.
    """
    measure, X = space.measure, to_numpy(space.support_points)
    if (atoms := measure.atoms) is not None:
        return _at(space, atoms.points, np.log(atoms.weights))
    integrals = closed_form(space.kernel, measure, X.shape[1])
    previous: Nodes | None = None
    if X.shape[1] <= _TENSOR_FEATURES:
        for budget in _BUDGETS:
            for points, log_weights in panel_rules([(integrals, X)], budget):
                if previous is not None and points.shape[0] <= previous.points.shape[0]:
                    continue
                nodes = _at(space, points, log_weights)
                if previous is not None and np.abs(nodes.mass - previous.mass).max() <= _AGREE:
                    return nodes if finer else previous
                previous = nodes
    if previous is not None:
        return previous
    rules = importance_rules(integrals, X, _SCATTERED, 1 if finer else 0)
    return _at(space, *next(rules))


def _at(space: SoSSpace, points: np.ndarray, log_weights: np.ndarray) -> Nodes:
    half = 0.5 * (log_weights - space.log_unit)
    with np.errstate(under="ignore"):
        psi = np.exp(space.kernel.log(points, to_numpy(space.support_points)) + half[:, None]) @ to_numpy(space.T)
    return Nodes(points, psi, psi.T @ psi)


class ParametricLoss(ABC):
    """ℓ(θ, x_n) at fixed points x_n: values, gradients in θ, and the weighted sum of second derivatives."""

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
    """loss(θ, X) → (values, gradients), with every answer checked, and convexity between any two parameters that follow each other."""

    def __init__(self, loss: Callable[..., Any], X: np.ndarray, n_parameters: int, hessian: Callable[..., Any] | None = None) -> None:
        self.loss, self.X, self.n_parameters, self.hessian = loss, X, n_parameters, hessian
        self._last: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None  # values are not computed twice; none depends on it

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
        return list(zip(blocks_of(n, self.labels), blocks_of(r, self.labels), strict=True))

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


class NodeRisk(ParametricRisk):
    """Σ_n m_n(C) ℓ(θ, x_n) + Σ α_j θ_j²."""

    def __init__(self, basis: NodeBasis, loss: ParametricLoss, alpha: np.ndarray, theta: np.ndarray) -> None:
        """``theta`` is where the first minimisation starts."""
        self.basis, self.loss, self.alpha, self.theta = basis, loss, alpha, theta
        self.n_parameters = theta.shape[0]

    def least(self, C: np.ndarray, near: ThetaMinimum | None = None) -> ThetaMinimum:
        theta, eigen = (self.theta, None) if near is None else (near.theta, near.eigen)
        return least_expected(self.loss, self._masses(C), self.alpha, theta, eigen)

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        return proven_expected(self.loss, self._masses(C), self.alpha, near, tol)

    def _masses(self, C: np.ndarray) -> np.ndarray:
        return np.maximum(self.basis.masses(C), 0.0)

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.basis.matrix(self.loss.values(theta)[0])

    def slopes(self, theta: np.ndarray, F: np.ndarray) -> np.ndarray:
        # p functions of x, but often of a space of fewer dimensions: only its basis is integrated
        Q, sizes, R = np.linalg.svd(self.loss.values(theta)[1], full_matrices=False)
        kept = sizes > 1e-15 * max(float(sizes[0]), 1e-300) if sizes.size else sizes > 0.0
        products = self.basis.products(Q[:, kept] * sizes[kept], F)
        return np.asarray(np.tensordot(R[kept].T, products, axes=1))

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return self.loss.curvature(theta, self._masses(C))

    def slope_products(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        return np.asarray(self.basis.masses(C) @ self.loss.values(theta)[1])

    def slope_sum(self, theta: np.ndarray, v: np.ndarray) -> np.ndarray:
        return self.basis.matrix(self.loss.values(theta)[1] @ v)


def least_expected(
    loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray, theta: np.ndarray, eigen: tuple[np.ndarray, np.ndarray] | None = None
) -> ThetaMinimum:
    """min over θ of Σ_n m_n ℓ(θ, x_n) + Σ α_j θ_j²; ``eigen`` is the eigendecomposition of the second derivative of a neighbour."""
    return _newton(_expected(loss, masses, alpha), lambda at: loss.curvature(at, masses) + 2.0 * np.diag(alpha), theta, eigen)


def proven_expected(loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray, theta: np.ndarray, tol: float) -> float:
    """A certified lower bound of that minimum, to about ``tol``; −∞ if there is none. ``theta`` is about the minimiser."""
    return proven_minimum(_expected(loss, masses, alpha), least_expected(loss, masses, alpha, theta), alpha, tol)


def _expected(loss: ParametricLoss, masses: np.ndarray, alpha: np.ndarray) -> Value:
    def f(theta: np.ndarray) -> tuple[float, np.ndarray]:
        values, gradients = loss.values(theta)
        return float(masses @ values + alpha @ theta**2), masses @ gradients + 2.0 * alpha * theta

    return f


def _newton(
    f: Value, curvature: Callable[[np.ndarray], np.ndarray], theta: np.ndarray, eigen: tuple[np.ndarray, np.ndarray] | None
) -> ThetaMinimum:
    """Newton's method, damped like Levenberg's where a full step does not help, until the decrement is rounding.

    A second derivative is kept for as long as its steps still win digits, that of a neighbouring problem too: gradients are much cheaper.
    """

    def fresh_eigen(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        H = curvature(at)
        values, V = np.linalg.eigh(0.5 * (H + H.T))
        return values, V

    value, gradient = f(theta)
    damping, fresh = 0.0, eigen is None
    eigen = fresh_eigen(theta) if eigen is None else eigen
    for _ in range(_MOST_STEPS):
        values, V = eigen
        # a loss without curvature has no Newton step: then the farthest one that is allowed is the unit of damping
        farthest = _FARTHEST * max(float(np.abs(theta).max()), 1.0)
        top = max(float(np.abs(values).max()), float(np.abs(gradient).max()) / farthest, 1e-150)
        step = -V @ ((V.T @ gradient) / (np.maximum(values, 1e-14 * top) + damping * top))
        step *= min(1.0, farthest / max(float(np.abs(step).max()), 1e-300))
        decrement = -float(gradient @ step)
        if decrement <= _SMALL_DECREMENT * max(abs(value), 1e-300):
            break
        new_value, new_gradient = f(theta + step)
        left = abs(float(new_gradient @ (V @ ((V.T @ new_gradient) / np.maximum(values, 1e-14 * top)))))
        good = new_value <= value - 0.1 * decrement + _SMALL_RISE * abs(value)
        if good:
            theta, value, gradient = theta + step, new_value, new_gradient
            if left >= 0.999 * decrement and fresh and damping == 0.0 and decrement <= 1e-12 * abs(value):
                break
            damping *= 0.2 if damping > 1e-10 else 0.0
        if good and left <= _SLOW * decrement:
            fresh = False
            continue
        if not fresh:
            eigen = fresh_eigen(theta)
            fresh, damping = True, 0.0
        elif not good:
            if damping > 1e12:
                break
            damping = max(8.0 * damping, 1e-6)
        else:
            eigen = fresh_eigen(theta)
    return ThetaMinimum(theta, value, gradient, lambda: curvature(theta), eigen)


def proven_minimum(f: Value, found: ThetaMinimum, alpha: np.ndarray, tol: float) -> float:
    """A lower bound of min f, from convexity alone; −∞ if nothing is proven.

    If every parameter has a ridge, f(θ) ≥ f(θ̂) + ⟨g, θ − θ̂⟩ + Σ α_j(θ_j − θ̂_j)² ≥ f(θ̂) − Σ g_j²/4α_j. Otherwise the tangent at θ̂ and
    some around it, up to where f has risen by about ``tol``, are all below f, and the minimum of their maximum is a small linear programme.
    """
    if not np.any(found.gradient):
        return found.value
    strong = -math.inf
    if np.all(alpha > 0.0):
        strong = found.value - float(np.sum(found.gradient**2 / (4.0 * alpha)))
        if found.value - strong <= tol:
            return strong
    return max(strong, _by_tangents(f, found, tol))


def _by_tangents(f: Value, found: ThetaMinimum, tol: float) -> float:
    from scipy.optimize import linprog  # heavy to import, and needed only here

    p = found.theta.shape[0]
    rise = max(0.1 * tol / p, 1e-200)
    values, V = np.linalg.eigh(0.5 * (found.curvature + found.curvature.T))
    flat = values <= 1e-13 * max(float(values[-1]), 1e-300)
    least = 1e-12 * max(float(np.abs(found.theta).max()), 1e-3)
    directions = V * np.where(flat, least, np.sqrt(2.0 * rise / np.where(flat, 1.0, values)))  # f rises by about ``rise`` per unit
    points = [(0.0, 0, found.value, found.gradient)]
    for j in range(p):
        for sign in (-1.0, 1.0):
            far = sign
            for _ in range(_MOST_DOUBLINGS if flat[j] else 1):  # no curvature is a kink, or nothing that bounds f from below there
                value, gradient = f(found.theta + far * directions[:, j])
                points.append((far, j, value, gradient))
                if value - found.value >= rise:
                    break
                far *= 2.0
    slopes = np.array([directions.T @ gradient / rise for _, _, _, gradient in points])
    heights = np.array([(value - found.value) / rise - far * slope[j] for (far, j, value, _), slope in zip(points, slopes, strict=True)])
    # max Σ α_i height_i over weights α of the simplex with Σ α_i slope_i = 0
    A, b = np.vstack([slopes.T, np.ones(len(points))]), np.r_[np.zeros(p), 1.0]
    A[:-1] /= np.maximum(np.abs(A[:-1]).max(axis=1, keepdims=True), 1e-300)
    answer = linprog(-heights, A_eq=A, b_eq=b, bounds=(0.0, None), method="highs")
    return found.value - rise * float(answer.fun) * (1.0 if answer.fun < 0 else 1.0 + 1e-9) if answer.status == 0 else -math.inf
