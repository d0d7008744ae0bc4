"""Convex functions of few variables: Newton's method [Boyd2004], and a lower bound of the minimum
that tangents prove.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# from θ to the value and the gradient
Value = Callable[[np.ndarray], tuple[float, np.ndarray]]


@dataclass
class Minimum:
    """A minimizer as far as floating point goes, with the gradient there; the second derivative is
    computed when it is asked for.
    """

    theta: np.ndarray
    value: float
    gradient: np.ndarray
    second: Callable[[], np.ndarray]

    # ∂²/∂θ² at the minimizer, shape (p, p)
    @cached_property
    def curvature(self) -> np.ndarray:
        return self.second()


def newton(f: Value, curvature: Callable[[np.ndarray], np.ndarray], theta: np.ndarray) -> Minimum:
    """Newton's method, damped like Levenberg's where a full step does not help, until the decrement
    is rounding.
    """
    (value, gradient), (values, V) = f(theta), np.linalg.eigh(curvature(theta))
    damping, idle = 0.0, 0
    for _ in range(300):  # a dozen are usual, and a kink takes some hundred
        # a loss without curvature has no Newton step: then the farthest one that is allowed is the
        # unit of damping
        farthest = 1e4 * max(float(np.abs(theta).max()), 1.0)
        top = max(float(np.abs(values).max()), float(np.abs(gradient).max()) / farthest, 1e-150)
        curved = np.maximum(values, 1e-14 * top)
        step = -V @ ((V.T @ gradient) / (curved + damping * top))
        step *= min(1.0, farthest / max(float(np.abs(step).max()), 1e-300))
        decrement, rounding = -float(gradient @ step), 1e-14 * abs(value)
        if decrement <= 1e-16 * max(abs(value), 1e-300):
            break
        new_value, new_gradient = f(theta + step)
        # steps that win rounding only would never end at a kink: so many are more than it takes to
        # find a damping
        idle = 0 if new_value < value - rounding else idle + 1
        if idle > 30:
            break
        if new_value > value - 0.1 * decrement + rounding:
            damping = max(8.0 * damping, 1e-6)
            continue
        theta, value, gradient = theta + step, new_value, new_gradient
        damping *= 0.2 if damping > 1e-10 else 0.0
        values, V = np.linalg.eigh(curvature(theta))
    return Minimum(theta, value, gradient, lambda: curvature(theta))


def proven_minimum(f: Value, found: Minimum, alpha: np.ndarray, tol: float) -> float:
    """A lower bound of min f, from convexity alone; −∞ if nothing is proven.

    If every parameter has a ridge, f(θ) ≥ f(θ̂) + ⟨g, θ − θ̂⟩ + Σ α_j(θ_j − θ̂_j)² ≥ f(θ̂) − Σ
    g_j²/4α_j. Otherwise the tangent at θ̂ and some around it, up to where f has risen by about
    ``tol``, are all below f, and the minimum of their maximum is a small linear programme.
    """
    if not np.any(found.gradient):
        return found.value
    strong = -math.inf
    if np.all(alpha > 0.0):
        strong = found.value - float(np.sum(found.gradient**2 / (4.0 * alpha)))
    return strong if found.value - strong <= tol else max(strong, _by_tangents(f, found, tol))


def _by_tangents(f: Value, found: Minimum, tol: float) -> float:
    from scipy.optimize import linprog  # heavy to import, and needed only here

    p = found.theta.shape[0]
    rise = max(0.1 * tol / p, 1e-200)
    values, V = np.linalg.eigh(0.5 * (found.curvature + found.curvature.T))
    flat = values <= 1e-13 * max(float(values[-1]), 1e-300)
    least = 1e-12 * max(float(np.abs(found.theta).max()), 1e-3)
    # f rises by about ``rise`` per unit
    directions = V * np.where(flat, least, np.sqrt(2.0 * rise / np.where(flat, 1.0, values)))
    points = [(0.0, 0, found.value, found.gradient)]
    for j in range(p):
        for sign in (-1.0, 1.0):
            # no curvature is a kink, or nothing that bounds f from below there: go on doubling
            for doublings in range(60 if flat[j] else 1):
                far = sign * 2.0**doublings
                value, gradient = f(found.theta + far * directions[:, j])
                points.append((far, j, value, gradient))
                if value - found.value >= rise:
                    break
    slopes = np.array([directions.T @ gradient / rise for _, _, _, gradient in points])
    heights = [
        (value - found.value) / rise - far * slope[j]
        for (far, j, value, _), slope in zip(points, slopes, strict=True)
    ]
    # max Σ α_i height_i over weights α of the simplex with Σ α_i slope_i = 0
    A, b = np.vstack([slopes.T, np.ones(len(points))]), np.r_[np.zeros(p), 1.0]
    A[:-1] /= np.maximum(np.abs(A[:-1]).max(axis=1, keepdims=True), 1e-300)
    answer = linprog(-np.array(heights), A_eq=A, b_eq=b, bounds=(0.0, None), method="highs")
    if answer.status != 0:
        return -math.inf
    return found.value - rise * float(answer.fun) * (1.0 if answer.fun < 0 else 1.0 + 1e-9)
