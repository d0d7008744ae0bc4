"""p(y | x) = p(x, y)/p(x) of one joint density: for few features."""

from __future__ import annotations

import os

import numpy as np

from ksos.density import SoSDensity
from ksos.density.conditional_line import ConditionalLine
from ksos.estimators._conditional_laws import ConditionalLaws

__all__ = ["JointLaws"]


class JointLaws(ConditionalLaws):
    r"""p(y | x) = ‖Fᵀ(k_X(x) ∘ k_Y(y))‖² / ‖Lᵀ k_X(x)‖² with B = FFᵀ and B ∘ W_Y = LLᵀ."""

    def __init__(self, density: SoSDensity, n_conditions: int) -> None:
        self.density, self.n_conditions, self.n_outputs = density, n_conditions, density.n_features - n_conditions

    def logpdf(self, X: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = np.concatenate([X, targets], axis=1)
        if self.n_outputs > 1:
            return self.density.conditional_logpdf(rows, given=list(range(X.shape[1])))
        return np.asarray(self.density.logpdf(rows) - self._output(0).log_mass(X))

    def grid_logpdf(self, X: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = np.repeat(X, targets.shape[0], axis=0), np.tile(targets, (X.shape[0], 1))
        return self.logpdf(*rows).reshape(X.shape[0], targets.shape[0])

    def moments(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [self._output(k).moments(X) for k in range(self.n_outputs)]
        mean, deviation = (np.stack(part, axis=1) for part in zip(*found, strict=True))
        return mean, deviation

    def cdf(self, X: np.ndarray, targets: np.ndarray) -> np.ndarray:
        return np.stack([self._output(k).cdf(X, targets[:, k]) for k in range(self.n_outputs)], axis=1)

    def grid_cdf(self, X: np.ndarray, values: np.ndarray) -> np.ndarray:
        rows = np.repeat(X, values.shape[0], axis=0), np.tile(values, X.shape[0])
        return self._output(0).cdf(*rows).reshape(X.shape[0], values.shape[0])

    def quantile(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        out = np.empty((X.shape[0], levels.size, self.n_outputs))
        for k in range(self.n_outputs):
            low, high = self.density.measure.boundary(self.n_conditions + k)
            values = self._output(k).quantile(X, np.broadcast_to(levels, (X.shape[0], levels.size)))
            out[:, :, k] = np.where(levels == 0.0, low, np.where(levels == 1.0, high, values))
        return out

    def sample(self, X: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
        uniforms, known = rng.random((X.shape[0], count, self.n_outputs)), np.repeat(X, count, axis=0)
        for k in range(self.n_outputs):  # output after output, each given x and the outputs before it
            line = self._line(list(range(X.shape[1] + k + 1)))
            if k == 0:  # the draws of one row share their law
                drawn = line.quantile(X, uniforms[:, :, 0]).reshape(-1, 1)
            else:
                drawn = line.quantile(known, uniforms[:, :, k].reshape(-1, 1))
            known = np.concatenate([known, drawn], axis=1)
        return known[:, X.shape[1] :].reshape(X.shape[0], count, self.n_outputs)

    def at(self, X: np.ndarray) -> SoSDensity:
        return self.density.conditional(dict(enumerate(X[0])))

    def save(self, path: str | os.PathLike[str]) -> None:
        self.density.save(path)

    def _output(self, k: int) -> ConditionalLine:
        return self._line([*range(self.n_conditions), self.n_conditions + k])

    def _line(self, features: list[int]) -> ConditionalLine:
        """The laws of the last of ``features`` given the others; what is not listed is integrated out."""
        p = self.density
        return ConditionalLine(p if len(features) == p.n_features else p.marginal(features), len(features) - 1)
