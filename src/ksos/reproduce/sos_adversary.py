"""Figure 1 with a sum-of-squares density as adversary: the same game, solved in the space of densities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ksos.embedding import MeanEmbedding, evaluate
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import KernelFunction
from ksos.robust import RobustMode, WorstCase, robust_mode, worst_case
from ksos.space import SoSSpace

__all__ = ["SoSGame", "play_sos"]

_LANDMARKS, _TOL_MODEL, _TOL_EMBEDDING = 41, 1e-8, 1e-9


@dataclass(frozen=True)
class SoSGame:
    """The game against the densities with one bandwidth: values on a grid of θ, the best θ, and the adversary there."""

    eta: float
    m: int
    theta: np.ndarray
    values: np.ndarray
    best: RobustMode
    worst: WorstCase
    """The adversary at the best θ; of the two symmetric places the left one, as in the paper."""

    @property
    def mode(self) -> float:
        """θ*, to the left of 0."""
        assert self.best.mode is not None
        return -abs(float(self.best.mode[0]))

    @property
    def value(self) -> float:
        """The worst return at θ*."""
        assert self.best.value is not None
        return self.best.value

    @property
    def gap(self) -> float:
        """Of the inner problem at θ*."""
        assert self.worst.gap is not None
        return self.worst.gap

    def density(self, x: np.ndarray) -> np.ndarray:
        """The adversary's density."""
        assert self.worst.distribution is not None
        return np.asarray(self.worst.distribution.pdf(x))

    def embedding(self, x: np.ndarray) -> np.ndarray:
        """Its mean embedding."""
        assert self.worst.distribution is not None
        return np.asarray(evaluate(self.worst.distribution, self.worst.embedding_kernel, x))

    def rows(self) -> list[dict[str, Any]]:
        """One line per θ of the grid, and one for θ*."""
        common = {"eta": self.eta, "m": self.m}
        grid = [{**common, "theta": t, "value": v, "best": 0} for t, v in zip(self.theta.tolist(), self.values.tolist(), strict=True)]
        return [*grid, {**common, "theta": self.mode, "value": self.value, "best": 1}]


def play_sos(eta: float, m: int, half_width: float, sigma: float, radius: float, n_theta: int) -> SoSGame:
    """Solve the game on ``n_theta`` places and from the best of them uphill; m equidistant support points, 41 landmarks."""
    kernel = Gaussian(sigma)
    support, landmarks = (np.linspace(-half_width, half_width, n)[:, None] for n in (m, _LANDMARKS))
    space = SoSSpace(Gaussian(eta), support, Box([-half_width], [half_width]), kernel, landmarks, _TOL_MODEL, _TOL_EMBEDDING)
    data = MeanEmbedding([[0.0]], kernel=kernel)
    best = robust_mode(data, radius, space=space, n_grid=n_theta)
    assert best.mode is not None
    left = KernelFunction(-np.abs(best.mode)[None, :], [-1.0], kernel=kernel)
    return SoSGame(eta, m, best.path.theta[:n_theta, 0], best.path.value[:n_theta], best, worst_case(left, data, radius, space=space))
