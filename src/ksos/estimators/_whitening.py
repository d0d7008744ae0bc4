"""Coordinates in which the samples are uncorrelated: u = (x − centre)·matrix, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ksos.bandwidth import bandwidth_rule
from ksos.estimators._bumps import bump_logpdf
from ksos.estimators._surface import Problem

__all__ = ["Coordinates", "whitened"]

_DEPENDENT = 1e-10  # eigenvalue of the correlation matrix, of the order of 1 otherwise
_WORTH_IT = 0.02  # nats per sample: below, plain coordinates keep marginals and conditionals within reach


@dataclass(frozen=True)
class Coordinates:
    """An affine change of coordinates of R^d."""

    centre: np.ndarray
    scale: np.ndarray
    rotation: np.ndarray
    """u = ((x − centre)/scale)·rotation."""

    def forward(self, X: np.ndarray) -> np.ndarray:
        """From the data's coordinates to the uncorrelated ones."""
        return np.asarray(((X - self.centre) / self.scale) @ self.rotation)

    def backward(self, U: np.ndarray) -> np.ndarray:
        """And back."""
        return np.asarray(np.linalg.solve(self.rotation.T, U.T).T * self.scale + self.centre)

    @property
    def log_determinant(self) -> float:
        """log |∂u/∂x|: what a log-density of u lacks to be one of x."""
        return float(np.linalg.slogdet(self.rotation)[1] - np.log(self.scale).sum())


def whitened(problem: Problem, sigma: np.ndarray, rule: str, *, must: bool) -> Coordinates | None:
    """The whitening of the samples; None where it does not exist, or does not help the kernel density estimate, unless it ``must`` be."""
    points, weights = problem.points, problem.weights
    scale = np.ptp(points, axis=0)
    if np.any(scale == 0.0):
        if must:
            raise ValueError(f"whiten=True needs features that vary; feature(s) {np.flatnonzero(scale == 0.0).tolist()} are constant")
        return None
    unit = (points - points[0]) / scale
    centre = weights @ unit
    deviation = np.sqrt(weights @ (unit - centre) ** 2)
    Z = (unit - centre) / deviation
    values, Q = np.linalg.eigh((Z * weights[:, None]).T @ Z)
    if values[0] <= _DEPENDENT:
        if must:
            first, *others = np.argsort(-np.abs(Q[:, 0]), kind="stable")[: max(2, int(np.sum(np.abs(Q[:, 0]) > 0.1)))].tolist()
            raise ValueError(
                f"whiten=True needs linearly independent features; feature {first} is a combination of {sorted(others)} "
                f"(smallest eigenvalue of the correlations {values[0]:.1e}); leave one out, or use whiten=False"
            )
        return None
    found = Coordinates(points[0] + centre * scale, scale * deviation, Q / np.sqrt(values))
    if must:
        return found
    turned = replace(problem, points=found.forward(points))
    turned_sigma = np.broadcast_to(bandwidth_rule(rule, turned.points, weights, np.random.default_rng(0)), sigma.shape)
    gain = _kernel_density_score(turned, turned_sigma) + found.log_determinant - _kernel_density_score(problem, sigma)
    return found if gain > _WORTH_IT else None


def _kernel_density_score(problem: Problem, sigma: np.ndarray) -> float:
    """The best held-out score of the kernel density estimate over a few bandwidths."""
    best = -np.inf
    for multiple in (0.25, 0.35, 0.5, 0.7, 1.0, 1.4):
        kernel, total = problem.make_kernel(multiple * sigma), 0.0
        for fold in problem.folds:
            values = bump_logpdf(kernel, problem.measure, problem.points[fold.train], fold.train_weights, problem.points[fold.test])
            total += fold.mass * float(fold.test_weights @ np.maximum(values, -1e300))
        best = max(best, total)
    return best / sum(fold.mass for fold in problem.folds)
