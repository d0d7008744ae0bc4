"""Shapes in the plane with known densities: two moons, rings, a pinwheel, two spirals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist
from scipy.special import i0e
from scipy.stats import norm

__all__ = ["Curves", "Pinwheel", "Rings", "spirals", "two_moons"]

_NODES = 400


@dataclass(frozen=True)
class Curves:
    """A point c(t) of one of several curves, t uniform on [0, 1], plus normal noise: p(x) = mean
    over curves of ∫ N(x; c(t), s²I) dt.
    """

    curves: tuple[Callable[[np.ndarray], np.ndarray], ...]
    noise: float

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        which, t = rng.integers(len(self.curves), size=n), rng.random(n)
        on_curve = np.stack([curve(t) for curve in self.curves])[which, np.arange(n)]
        return on_curve + self.noise * rng.normal(size=(n, 2))

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        t, w = np.polynomial.legendre.leggauss(_NODES)
        nodes = np.concatenate([curve(0.5 * (t + 1.0)) for curve in self.curves])
        log_w = np.tile(np.log(0.5 * w / len(self.curves)), len(self.curves))
        out = np.empty(X.shape[0])
        for start in range(0, X.shape[0], 1000):
            x = X[start : start + 1000]
            exponents = log_w - cdist(x, nodes, "sqeuclidean") / (2.0 * self.noise**2)
            peak = exponents.max(axis=1, keepdims=True)
            out[start : start + 1000] = peak[:, 0] + np.log(np.exp(exponents - peak).sum(axis=1))
        return out - np.log(2.0 * np.pi * self.noise**2)


def two_moons(noise: float = 0.1) -> Curves:
    """Two half circles, as scikit-learn places them, with the angle drawn at random."""

    def outer(t: np.ndarray) -> np.ndarray:
        return np.stack([np.cos(np.pi * t), np.sin(np.pi * t)], axis=-1)

    def inner(t: np.ndarray) -> np.ndarray:
        return np.stack([1.0 - np.cos(np.pi * t), 0.5 - np.sin(np.pi * t)], axis=-1)

    return Curves((outer, inner), noise)


def spirals(noise: float = 0.15, turns: float = 1.25) -> Curves:
    """Two arms of an Archimedean spiral, drawn evenly in arc length to leading order (t ↦ √t)."""

    def arm(sign: float) -> Callable[[np.ndarray], np.ndarray]:
        def curve(t: np.ndarray) -> np.ndarray:
            r = 0.4 + 2.6 * np.sqrt(t)
            angle = 2.0 * np.pi * turns * (r - 0.4) / 2.6
            return sign * np.stack([r * np.cos(angle), r * np.sin(angle)], axis=-1)

        return curve

    return Curves((arm(1.0), arm(-1.0)), noise)


@dataclass(frozen=True)
class Rings:
    """Concentric circles plus normal noise: of one circle of radius r, p(x) = e^{−(|x|² + r²)/2s²}
    I₀(|x|r/s²)/(2πs²).
    """

    radii: tuple[float, ...] = (1.0, 2.0, 3.0)
    noise: float = 0.12

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        radius, angle = rng.choice(self.radii, size=n), rng.uniform(0.0, 2.0 * np.pi, n)
        return radius[:, None] * np.stack(
            [np.cos(angle), np.sin(angle)], axis=1
        ) + self.noise * rng.normal(size=(n, 2))

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        distance, r, s2 = np.linalg.norm(X, axis=1)[:, None], np.array(self.radii), self.noise**2
        logs = -((distance - r) ** 2) / (2.0 * s2) + np.log(i0e(distance * r / s2))
        peak = logs.max(axis=1)
        return peak + np.log(np.exp(logs - peak[:, None]).mean(axis=1)) - np.log(2.0 * np.pi * s2)


@dataclass(frozen=True)
class Pinwheel:
    """Elongated normal blobs around the origin, each point turned by an angle that grows with its
    distance: area is kept, so p is known.
    """

    arms: int = 5
    radius: float = 2.0
    along: float = 0.45
    across: float = 0.1
    rate: float = 0.6

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        blob = np.stack(
            [self.radius + self.along * rng.normal(size=n), self.across * rng.normal(size=n)],
            axis=1,
        )
        angle = 2.0 * np.pi * rng.integers(
            self.arms, size=n
        ) / self.arms + self.rate * np.linalg.norm(blob, axis=1)
        return _turned(blob, angle)

    def logpdf(self, X: np.ndarray) -> np.ndarray:
        back = -self.rate * np.linalg.norm(X, axis=1)
        logs = []
        for arm in range(self.arms):
            blob = _turned(X, back - 2.0 * np.pi * arm / self.arms)
            logs.append(
                norm.logpdf(blob[:, 0], self.radius, self.along)
                + norm.logpdf(blob[:, 1], 0.0, self.across)
            )
        return np.logaddexp.reduce(logs, axis=0) - np.log(self.arms)


def _turned(X: np.ndarray, angle: np.ndarray) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * X[:, 0] - s * X[:, 1], s * X[:, 0] + c * X[:, 1]], axis=1)
