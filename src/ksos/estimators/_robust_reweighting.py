"""Laws that reweight the samples: shifts of x, of y or of both, with the law of everything else given them kept as it is in the data."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from ksos._deadline import Deadline
from ksos._memory import FLOAT_BYTES, require_memory, row_blocks
from ksos._validation import as_bandwidth, as_count
from ksos.cover import pivots, region
from ksos.estimators._robust import EstimatorFamily, RobustEstimator, relative_bandwidth
from ksos.estimators._robust_radius import harmless_radius
from ksos.estimators._robust_shift import Moments
from ksos.kernels import Gaussian
from ksos.measures import Discrete
from ksos.nodes import Nodes, nodes_of
from ksos.observables import NumericFunction, Observable
from ksos.robust.problem import Problem
from ksos.robust.setting import Setting, as_reference, bootstrap_radius
from ksos.space import SoSSpace

__all__ = ["Reweighted", "distinct_rows"]

_MOST_SUPPORT_POINTS, _MOST_LANDMARKS = 20, 50
_BLOCK_ELEMENTS = 1 << 22


class Reweighted(EstimatorFamily):
    r"""The laws Σ_i w_i p(c_i) δ_{(x_i, y_i)} with Σ_i w_i p(c_i) = 1, c_i being the columns of sample i that may shift.

    p is a sum of squares relative to the data, so that the worst case is one over densities on a discrete measure: expectations are sums
    over the samples, nothing is integrated, and no mass goes where there are no data. p = 1 gives the data. The ball is that of the law of
    c: two samples with the same c get the same factor, and given c the law of (x, y) is that of the data.
    """

    by_quadrature = False

    def __init__(self, params: RobustEstimator, loss: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Of distinct samples (see :func:`distinct_rows`)."""
        self.params, self.given, self.rows, self.masses, self.sample_weights = params, loss, (X, y, weights), weights, weights
        self.set_up(params, loss, X, y, weights)

    @abstractmethod
    def set_up(self, params: Any, loss: Any, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> None:
        """Say what the model is, and initialise :class:`EstimatorFamily`."""

    def reweighting(self, columns: np.ndarray, weights: np.ndarray, scale: np.ndarray, params: RobustEstimator) -> Setting:
        """The densities of the columns relative to the data, and how far apart laws are."""
        d = columns.shape[1]
        centre = weights @ columns
        sigma = relative_bandwidth(columns, centre, scale)
        if params.embedding_bandwidth is not None:
            sigma = np.broadcast_to(as_bandwidth(params.embedding_bandwidth, "embedding_bandwidth", n_features=d), (d,))
        eta = sigma if params.bandwidth is None else as_bandwidth(params.bandwidth, n_features=d)
        most = _MOST_SUPPORT_POINTS if params.n_support is None else as_count(params.n_support, "n_support", minimum=2)
        distance, model, reference = Gaussian(sigma), Gaussian(eta), as_reference(columns, weights)
        points, measure = reference.points, Discrete(reference.points, reference.weights)
        support, landmarks = points[pivots(model, points, 1e-8, most)], points[pivots(distance, points, 1e-8, _MOST_LANDMARKS)]
        space = SoSSpace(model, support, measure, distance, landmarks)
        self.own = np.unique(columns + 0.0, axis=0, return_inverse=True)[1].ravel()
        """The point of the measure that every sample belongs to."""
        self.reference, self.joint_kernel = replace(reference, n_samples=columns.shape[0]), distance
        return Setting(reference, reference.embedding(distance), space, region(measure, points, sigma), grows=True)

    @abstractmethod
    def functions(self) -> np.ndarray:
        """u at the samples, of which losses that are squares are made, shape (n, P)."""

    def nodes(self) -> Nodes:
        atoms, weights = nodes_of(self.space), self.setting.reference.weights
        return Nodes(self.rows[0], atoms.psi[self.own] * np.sqrt(self.masses / weights[self.own])[:, None])

    def second_moments(self) -> np.ndarray:
        U, psi = self.functions(), self.nodes().psi
        (n, P), r = U.shape, psi.shape[1]
        remedy = "use fewer support points, features or kernel centres"
        require_memory(FLOAT_BYTES * P * P * r * r, f"the second moments of {P} functions", remedy)
        V = np.zeros((P * P, r * r))
        for rows in row_blocks(n, P * P + r * r, _BLOCK_ELEMENTS):
            u, f = U[rows], psi[rows]
            V += (u[:, :, None] * u[:, None, :]).reshape(-1, P * P).T @ (f[:, :, None] * f[:, None, :]).reshape(-1, r * r)
        return V.reshape(P, P, r, r)

    def data_moments(self) -> np.ndarray:
        U = self.functions()
        return np.asarray((U.T @ (self.masses[:, None] * U))[None])

    def integration_error(self, theta: np.ndarray) -> float:
        return 0.0

    def loss_at(self, theta: np.ndarray) -> Observable:
        """c ↦ E[ℓ(θ, (x, y)) | c] under the data."""
        reference, (X, y, _) = self.setting.reference, self.rows
        total = np.bincount(self.own, weights=self.masses * self.losses_of(theta, X, y))
        return NumericFunction(partial(_looked_up, reference.points, total / reference.weights))

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        return [self.loss_at(theta)]

    def empirical_value(self, theta: np.ndarray) -> float | None:
        X, y, _ = self.rows
        return float(self.masses @ self.losses_of(theta, X, y))

    def law_of(self, distribution: Any) -> Moments:
        weights = self.masses * np.asarray(distribution.pdf(self.setting.reference.points))[self.own]
        return self.moments_of(weights / weights.sum())

    # --- the radius ---

    def sampling_radius(self, random_state: Any) -> float:
        """What resamples of the data are away from them in nineteen of twenty cases; 0 of a single point."""
        if self.reference.points.shape[0] < 2:
            return 0.0
        return bootstrap_radius(self.reference, self.joint_kernel, n_resamples=200, rng=random_state)

    def radius_of(self, radius: Any, random_state: Any, problem: Problem, deadline: Deadline) -> tuple[float, Problem]:
        if radius != "auto":
            return super().radius_of(radius, random_state, problem, deadline)
        return harmless_radius(self, problem, self.sampling_radius(random_state), random_state, deadline)


def distinct_rows(X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(X, y, weights) with repeated samples as one of their common weight, so that weights count like repetitions."""
    kept = weights > 0.0
    rows, own = np.unique(np.column_stack([X, y])[kept] + 0.0, axis=0, return_inverse=True)
    return rows[:, :-1], rows[:, -1], np.bincount(own.ravel(), weights=weights[kept])


def _looked_up(points: np.ndarray, values: np.ndarray, C: np.ndarray) -> np.ndarray:
    """The value of the nearest point: at the points of the measure, their own."""
    unit = np.maximum(np.ptp(points, axis=0), 1e-300)
    return np.asarray(values[cKDTree(points / unit).query(C / unit)[1]])
