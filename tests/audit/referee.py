"""A referee that shares no code with the library: kernels, quadrature and gaps of its own, in
extended precision.

It takes from a solution only what the solution states: the support points, the whitening T and the
projection S that define the problem, the factor of the density, and the claims (status, objective,
gap). Everything else it computes again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import eigh

LONG = np.longdouble
OWN_DIGITS = 1e-8
"""What the referee's own quadrature may be off by, relative to numbers of the order of one."""
_ORDER = 24
_REACH = {
    "gaussian": 7.0,
    "laplace": 45.0,
    "matern": 55.0,
}  # in bandwidths: beyond, kernels are below rounding

Term = tuple[str, float, Any]
"""(name, weight, data), with the name "squared_mmd", "mmd", "likelihood", "trace" or "frobenius",
in the note's units.
"""


@dataclass(frozen=True)
class Finding:
    """Something that the library said and the referee refutes."""

    problem: str
    what: str
    claim: float
    truth: float

    def __str__(self) -> str:
        return f"{self.what}: claimed {self.claim:.12g}, found {self.truth:.12g} ({self.problem})"


def kernel_matrix(kernel: Any, X: Any, Z: Any) -> np.ndarray:
    """k(X_i, Z_j) from the kernel's name and numbers, in extended precision."""
    X, Z = np.asarray(X, LONG), np.asarray(Z, LONG)
    away = np.abs(X[:, None, :] - Z[None, :, :]) / np.broadcast_to(
        np.asarray(kernel.sigma, LONG), (X.shape[1],)
    )
    if kernel.name == "gaussian":
        return np.exp(-np.sum(away * away, axis=2))
    radial = (
        (lambda r: np.exp(-r)) if kernel.name == "laplace" else (lambda r: _matern(r, kernel.nu))
    )
    return (
        np.prod(radial(away), axis=2)
        if kernel.product
        else radial(np.sqrt(np.sum(away * away, axis=2)))
    )


def _matern(r: np.ndarray, nu: float) -> np.ndarray:
    """Half-integer orders, by the recurrence of the reverse Bessel polynomials: θ_k = (2k −
    1)θ_{k−1} + r²θ_{k−2}.
    """
    before, now, scale = np.ones_like(r), 1 + r, LONG(1)
    for k in range(2, round(nu - 0.5) + 1):
        before, now, scale = now, (2 * k - 1) * now + r * r * before, scale * (2 * k - 1)
    return now / scale * np.exp(-r)


@dataclass(frozen=True)
class Rule:
    """Nodes and weights for ∫ · dρ, fine enough for the products of kernels at hand."""

    nodes: np.ndarray
    weights: np.ndarray


def rule_for(measure: Any, points: np.ndarray, width: float, reach: float) -> Rule:
    """Gauss–Legendre panels of at most ``width``, broken at every coordinate of ``points`` (where
    kernels have kinks), ``reach`` beyond.
    """
    if measure.name == "discrete":
        return Rule(np.asarray(measure.points, LONG), np.asarray(measure.weights, LONG))
    axes = []
    for k in range(points.shape[1]):
        low, high = float(points[:, k].min()) - reach, float(points[:, k].max()) + reach
        if measure.name == "box":
            low, high = max(low, float(measure.low[k])), min(high, float(measure.high[k]))
        inside = points[(points[:, k] > low) & (points[:, k] < high), k]
        axes.append(_panels(np.unique(np.concatenate([[low, high], inside])), width))
    nodes = np.stack(
        [grid.ravel() for grid in np.meshgrid(*[x for x, _ in axes], indexing="ij")], axis=1
    )
    weights = axes[0][1]
    for _, w in axes[1:]:
        weights = np.multiply.outer(weights, w).ravel()
    return Rule(
        nodes, weights * normal_density(measure, nodes) if measure.name == "normal" else weights
    )


def normal_density(measure: Any, nodes: np.ndarray) -> np.ndarray:
    """That of independent normal features, from their means and standard deviations."""
    mean, scale = (
        np.broadcast_to(np.asarray(v, LONG), (nodes.shape[1],))
        for v in (measure.mean, measure.scale)
    )
    t = (nodes - mean) / scale
    return np.exp(-np.sum(t * t, axis=1) / 2) / np.prod(np.sqrt(2 * LONG(math.pi)) * scale)


def _panels(breaks: np.ndarray, width: float) -> tuple[np.ndarray, np.ndarray]:
    x, w = (np.asarray(v, LONG) for v in np.polynomial.legendre.leggauss(_ORDER))
    ends = [
        np.linspace(LONG(a), LONG(b), max(1, math.ceil((b - a) / width)) + 1)[:-1]
        for a, b in pairwise(breaks)
    ]
    edges = np.append(np.concatenate(ends), LONG(breaks[-1]))
    half, middle = (edges[1:] - edges[:-1]) / 2, (edges[1:] + edges[:-1]) / 2
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


def rule_of(p: Any, *others: Any, per_bandwidth: float = 0.5, reach: float = 1.0) -> Rule:
    """A rule for a density; ``others`` are kernels that will be integrated against it."""
    sigmas = np.concatenate([np.ravel(np.asarray(k.sigma, float)) for k in (p.kernel, *others)])
    away = reach * float(np.max(np.asarray(p.kernel.sigma, float))) * _REACH[p.kernel.name]
    return rule_for(
        p.measure, np.asarray(p.support_points, float), per_bandwidth * float(sigmas.min()), away
    )


def density(p: Any, X: Any) -> np.ndarray:
    """p(x) = ‖Fᵀk(x)‖²."""
    factor, parts = (
        np.asarray(p.factor, LONG),
        np.array_split(np.asarray(X, LONG), max(1, len(X) // 20_000)),
    )
    return np.concatenate(
        [
            np.sum((kernel_matrix(p.kernel, part, p.support_points) @ factor) ** 2, axis=1)
            for part in parts
        ]
    )


def distance(
    kernel: Any, masses: np.ndarray, x: np.ndarray, a: np.ndarray, points: np.ndarray
) -> float:
    """MMD of Σ masses δ_x and Σ a δ_points."""
    a = np.asarray(a, LONG)
    # narrow densities are 0 at most nodes: what is dropped has no digit in the sum
    kept = np.abs(masses) > 1e-25 * np.abs(masses).sum()
    masses, x = masses[kept], x[kept]
    within = (
        masses @ kernel_matrix(kernel, x, x) @ masses
        + a @ kernel_matrix(kernel, points, points) @ a
    )
    return float(np.sqrt(max(within - 2 * (masses @ kernel_matrix(kernel, x, points) @ a), 0)))


@dataclass(frozen=True)
class Claims:
    """What a solution says of itself."""

    status: str
    objective: float
    gap: float | None

    @classmethod
    def of(cls, solution: Any) -> Claims:
        return cls(
            solution.status,
            float(solution.objective),
            None if solution.gap is None else float(solution.gap),
        )


@dataclass(frozen=True)
class Verdict:
    """What the referee finds for the density of a solution."""

    mass: float
    objective: float
    gap: float
    """⟨G, C⟩ − λ_min of the pencil (G, N), N = ∫ψψᵀdρ: what the density lacks at most, by the
    referee's own integrals.
    """

    def against(self, claims: Claims, problem: str, tol: float = 1e-8) -> list[Finding]:
        """Every claim that it refutes."""
        own, out = OWN_DIGITS * max(1.0, abs(self.objective)), []

        def compare(what: str, claim: float, truth: float, refuted: bool) -> None:
            if refuted:
                out.append(Finding(problem, f"{what}, {claims.status}", claim, truth))

        compare("mass", 1.0, self.mass, not abs(self.mass - 1.0) <= 1e-7)
        compare(
            "objective",
            claims.objective,
            self.objective,
            not abs(claims.objective - self.objective) <= own,
        )
        if claims.gap is not None:
            bound = claims.objective - claims.gap
            compare(
                "lower bound above a density",
                bound,
                self.objective,
                not bound <= self.objective + own,
            )
            compare("gap", claims.gap, self.gap, not self.gap <= claims.gap + 1e-8 + own)
        if claims.status == "solved":
            compare("solved, but the gap", tol, self.gap, not self.gap <= tol + own)
        return out


class Referee:
    """The problem of one solution, computed again."""

    def __init__(self, solution: Any, terms: list[Term]) -> None:
        space, p = solution.space, solution.distribution
        self.terms, self.space = terms, space
        self.X, self.Z = np.asarray(space.support_points, LONG), np.asarray(space.landmarks, LONG)
        sigmas = [
            np.min(np.asarray(k.sigma, float)) for k in (space.kernel, space.embedding_kernel)
        ]
        reach = float(np.max(np.asarray(space.kernel.sigma, float))) * _REACH[space.kernel.name]
        places = np.unique(np.concatenate([self.X, self.Z]).astype(float), axis=0)
        self.rule = rule_for(space.measure, places, min(sigmas) * 0.5, reach)
        at_nodes = kernel_matrix(space.kernel, self.rule.nodes, self.X)
        self.T, self.S = np.asarray(space.T, LONG), np.asarray(space.projection.S, LONG)
        self.psi, self.unit = at_nodes @ self.T, np.exp(LONG(space.log_unit))
        self.factor = np.asarray(p.factor, LONG)
        self.p = np.sum((at_nodes @ self.factor) ** 2, axis=1)
        self.seen = kernel_matrix(space.embedding_kernel, self.rule.nodes, self.Z)
        self.K = kernel_matrix(space.kernel, self.X, self.X)

    def matrix(self, values: np.ndarray) -> np.ndarray:
        """∫ f ψψᵀ dρ for the values of f at the nodes."""
        return (self.psi * (self.rule.weights * values / self.unit)[:, None]).T @ self.psi

    def verdict(self) -> Verdict:
        """Mass, objective and gap of the density returned."""
        masses, r = self.rule.weights * self.p, self.psi.shape[1]
        G, value, along = (
            np.zeros((r, r), LONG),
            LONG(0),
            LONG(0),
        )  # along: ⟨G, C⟩, from the density itself
        terms: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {
            "squared_mmd": lambda data: self._mmd(masses, data, squared=True),
            "mmd": lambda data: self._mmd(masses, data, squared=False),
            "likelihood": self._likelihood,
            "trace": self._trace,
            "frobenius": self._frobenius,
        }
        for name, scale, data in self.terms:
            term, gradient, inner = terms[name](data)
            value, G, along = value + scale * term, G + scale * gradient, along + scale * inner
        mass, N = masses.sum(), self.matrix(np.ones_like(self.p))
        pencil = (((M + M.T) / 2).astype(float) for M in (G, N))
        lowest = eigh(*pencil, eigvals_only=True, subset_by_index=[0, 0])[0]
        return Verdict(float(mass), float(value), float(along - LONG(lowest) * mass))

    def _mmd(self, masses: np.ndarray, data: Any, *, squared: bool) -> tuple[Any, Any, Any]:
        points, weights = data
        residual = self.S @ (
            masses @ self.seen
            - np.asarray(weights, LONG) @ kernel_matrix(self.space.embedding_kernel, points, self.Z)
        )
        square = residual @ residual
        y = 2 * residual if squared else residual / np.sqrt(square)
        g = self.seen @ (y @ self.S)
        return square if squared else np.sqrt(square), self.matrix(g), masses @ g

    def _likelihood(self, data: Any) -> tuple[Any, Any, Any]:
        points, weights = data
        at, weights = kernel_matrix(self.space.kernel, points, self.X), np.asarray(weights, LONG)
        p, psi = np.sum((at @ self.factor) ** 2, axis=1), at @ self.T
        return (
            -(weights @ np.log(p)),
            -(psi.T @ ((weights / p)[:, None] * psi)) / self.unit,
            -np.sum(weights),
        )

    def _trace(self, _: Any) -> tuple[Any, Any, Any]:
        trace = np.sum(self.factor * (self.K @ self.factor))
        return trace, self.T.T @ self.K @ self.T / self.unit, trace

    def _frobenius(self, _: Any) -> tuple[Any, Any, Any]:
        M, TK = self.factor.T @ self.K @ self.factor, self.T.T @ (self.K @ self.factor)
        square = np.sum(M * M)
        return square, 2 * (TK @ TK.T) / self.unit, 2 * square
