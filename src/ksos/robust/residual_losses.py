"""Losses of models that are linear in θ, at nodes: Huber's and the absolute loss of residuals, the logistic loss of scores."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from ksos.robust.node_risk import NodeBasis, NodeRisk, ParametricLoss

__all__ = ["AbsoluteRisk", "HuberLoss", "LogisticLoss"]


class HuberLoss(ParametricLoss):
    """φ(y − ⟨u(x), θ⟩) with φ(r) = r²/2 for |r| ≤ δ and δ(|r| − δ/2) beyond.

    ``absolute``: φ/δ + δ/2 instead, which is |r| beyond δ and above it by at most δ/2 within.
    """

    def __init__(self, U: np.ndarray, y: np.ndarray, delta: float, *, absolute: bool = False) -> None:
        self.U, self.y, self.delta, self.absolute = U, y, delta, absolute
        self.n_parameters = U.shape[1]

    def residuals(self, theta: np.ndarray) -> np.ndarray:
        """y − ⟨u, θ⟩."""
        return np.asarray(self.y - self.U @ theta)

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r, delta = self.residuals(theta), self.delta
        clipped = np.clip(r, -delta, delta)
        values, slopes = clipped * (r - 0.5 * clipped), -clipped
        if self.absolute:
            values, slopes = values / delta + 0.5 * delta, slopes / delta
        return values, slopes[:, None] * self.U

    def curvature(self, theta: np.ndarray, masses: np.ndarray) -> np.ndarray:
        inner = np.abs(self.residuals(theta)) <= self.delta
        weights = masses[inner] / (self.delta if self.absolute else 1.0)
        H = self.U[inner].T @ (weights[:, None] * self.U[inner])
        # beyond δ there is no curvature; where all residuals are there, a trace of that of the square keeps steps finite
        return np.asarray(H + 1e-9 * (self.U.T @ (masses[:, None] * self.U)))


class AbsoluteRisk(NodeRisk):
    """The risk of |r|, solved as that of the smooth loss above it; both bounds are those of |r| itself.

    For any slopes s_n ∈ [−1, 1], Σ m_n|r_n(θ)| + Σ ρ_jθ_j² ≥ Σ m_n s_n r_n(θ) + Σ ρ_jθ_j², least at θ̂ where Σ m_n s_n u_n = 2ρθ̂. Such
    slopes are the signs of the residuals, but for those near 0, of which a small linear programme takes the best.
    """

    differentiable = False

    def __init__(self, basis: NodeBasis, loss: HuberLoss, ridge: np.ndarray, theta: np.ndarray) -> None:
        super().__init__(basis, loss, ridge, theta)
        self.smooth = loss

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        return self.basis.matrix(np.abs(self.smooth.residuals(theta)))

    def proven_least(self, C: np.ndarray, tol: float) -> float:
        from scipy.optimize import linprog  # heavy to import, and needed only here

        theta, masses = self.least(C).theta, np.maximum(self.basis.masses(C), 0.0)
        U, r = self.smooth.U, self.smooth.residuals(theta)
        for width in (3.0, 30.0):
            free = np.abs(r) <= width * self.smooth.delta
            fixed = U[~free].T @ (masses[~free] * np.sign(r[~free]))
            A = U[free].T * masses[free]
            answer = linprog(-masses[free] * r[free], A_eq=A, b_eq=2.0 * self.ridge * theta - fixed, bounds=(-1.0, 1.0), method="highs")
            if answer.status == 0:
                return float(masses[~free] @ np.abs(r[~free]) - answer.fun + self.penalty(theta))
        # the smooth loss is at most δ/2 above
        return super().proven_least(C, tol) - 0.5 * self.smooth.delta * float(masses.sum())


class LogisticLoss(ParametricLoss):
    """−log softmax of the label's score; scores are ⟨u(x), θ_c⟩ for the labels c ≥ 1, and 0 for the first.

    ``U``: (N, P); the nodes repeat for every label, in the order of the labels. θ holds θ_1, …, θ_{L−1}, one after the other.
    """

    def __init__(self, U: np.ndarray, labels: int) -> None:
        self.U, self.labels = U, labels
        self.n_parameters = U.shape[1] * (labels - 1)

    def _scores(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(log probabilities (N, L), probabilities)."""
        scores = np.zeros((self.U.shape[0], self.labels))
        scores[:, 1:] = self.U @ theta.reshape(self.labels - 1, -1).T
        log = scores - logsumexp(scores, axis=1, keepdims=True)
        return log, np.exp(log)

    def values(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log, probabilities = self._scores(theta)
        values, gradients = [], []
        for label in range(self.labels):
            values.append(-log[:, label])
            residual = probabilities[:, 1:].copy()
            if label > 0:
                residual[:, label - 1] -= 1.0
            gradients.append((residual[:, :, None] * self.U[:, None, :]).reshape(self.U.shape[0], -1))
        return np.concatenate(values), np.concatenate(gradients)

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
