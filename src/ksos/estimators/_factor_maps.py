"""F ↦ A(FFᵀ), the projected embedding of a density with few squares, in whichever form costs least; cross-validation does it a lot."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from ksos._memory import FLOAT_BYTES, require_memory
from ksos.embedding_map import CompressedMap, PairwiseMap
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals.l2 import l2_rule
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.integrals.regions import intervals, tensor_rule
from ksos.integrals.triple import PairFactors
from ksos.quadrature import midpoints
from ksos.space import SoSSpace

__all__ = ["ByNodes", "ByPairs", "ByTensor", "FactorMap", "cheapest_map"]

_TENSOR_PAYS = 0.1  # a pass over the tensor waits for memory, products with pairs of points do not
_NODES_PAY = 0.07  # likewise
_FORMING = 0.1  # passes over the m×m×ℓ integrals that forming a tensor without factors over pairs costs, shared by the steps of a path
_MANY, _WELL_CONDITIONED = 150, 30.0
_MOST_FEATURES = 2
_SPACING = 0.7  # in deviations of a product of three kernels: the trapezoidal sum of a Gaussian is then off by exp(−2π²/0.7²) = 3e-18
_LOG_LEVEL = -16.0  # of k: densities hold its square
_NEGLIGIBLE, _AGREEMENT = 1e-14, 1e-6
_CORNERS = 4  # a grid has nodes that no density reaches, this many times those that one does


class FactorMap(ABC):
    """A on matrices of few columns: C = FFᵀ."""

    @abstractmethod
    def embed(self, F: np.ndarray) -> np.ndarray:
        """A(FFᵀ)."""

    @abstractmethod
    def adjoint(self, y: np.ndarray) -> np.ndarray:
        """A*(y), shape (r, r)."""

    @abstractmethod
    def squared_distance(self, F: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        """‖A(FFᵀ) − z‖² and A*(2(A(FFᵀ) − z))·F."""


class ByTensor(FactorMap):
    """From the stored tensor: for few directions."""

    def __init__(self, compressed: CompressedMap) -> None:
        self.embed_matrix, self._adjoint = compressed.apply, compressed.adjoint

    def embed(self, F: np.ndarray) -> np.ndarray:
        return np.asarray(self.embed_matrix(F @ F.T))

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(self._adjoint(y))

    def squared_distance(self, F: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        residual = self.embed(F) - z
        return float(residual @ residual), self.adjoint(2.0 * residual) @ F


class ByPairs(FactorMap):
    """From pairs of points; the large products of :meth:`squared_distance` in single precision where that errs less than it matters."""

    def __init__(self, pairwise: PairwiseMap) -> None:
        self.pairwise = pairwise
        self.precision: Any = np.float32 if _is_well_conditioned(pairwise.T) else np.float64
        pairs = pairwise.pairs
        self.G, self.H, self.T = (self._short(part) for part in (pairs.G, pairs.H, pairwise.T))
        self.transposed, self.scaled = np.ascontiguousarray(self.H.T), pairs.c * pairwise.S

    def embed(self, F: np.ndarray) -> np.ndarray:
        return np.asarray(self.pairwise.apply(F @ F.T))

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(self.pairwise.adjoint(y))

    def squared_distance(self, F: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        X = self.T @ self._short(F)
        M = X @ X.T
        M *= self.G
        residual = self.scaled @ np.einsum("ij,ij->j", self.H, M @ self.H).astype(np.float64) - z
        M = (self.H * self._short(2.0 * (residual @ self.scaled))) @ self.transposed
        M *= self.G
        return float(residual @ residual), (self.T.T @ (M @ X)).astype(np.float64)

    def _short(self, array: Any) -> np.ndarray:
        return np.asarray(array, dtype=self.precision)


class ByNodes(FactorMap):
    """From the density at the nodes of a quadrature, p(x_q) = ‖Fᵀψ(x_q)‖²: in one or two features there are fewer of them than pairs."""

    def __init__(self, space: SoSSpace, nodes: np.ndarray, log_weights: np.ndarray) -> None:
        self.psi = np.ascontiguousarray(space.basis(nodes))
        self.masses = np.exp(log_weights - space.log_unit)
        self.features = (self.masses[:, None] * space.embedding_kernel(nodes, space.landmarks)) @ space.projection.S.T

    @property
    def error(self) -> float:
        """How far the quadrature is from ∫ψψᵀdρ = I."""
        gram = (self.psi * self.masses[:, None]).T @ self.psi
        return float(np.max(np.abs(gram - np.eye(gram.shape[0]))))

    def embed(self, F: np.ndarray) -> np.ndarray:
        values = self.psi @ F
        return np.asarray(np.einsum("qk,qk->q", values, values) @ self.features)

    def adjoint(self, y: np.ndarray) -> np.ndarray:
        return np.asarray((self.psi * (self.features @ y)[:, None]).T @ self.psi)

    def squared_distance(self, F: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        values = self.psi @ F
        residual = np.einsum("qk,qk->q", values, values) @ self.features - z
        values *= (self.features @ (2.0 * residual))[:, None]
        return float(residual @ residual), self.psi.T @ values


def cheapest_map(space: SoSSpace) -> FactorMap:
    """Nodes where they are few; else pairs of points, unless the stored tensor is so small that a pass over it costs less."""
    (m, r), q, ell = space.T.shape, space.embedding_rank, space.landmarks.shape[0]
    tensor_pays = not space._integrals.pairwise or q * r * r <= _TENSOR_PAYS * m * m * ell
    budget = q * r * r if tensor_pays else int(_NODES_PAY * m * m * ell)
    if not space._integrals.pairwise:
        budget += int(_FORMING * m * m * ell)
    by_nodes = _by_nodes(space, budget // (q + r)) if space.n_features <= _MOST_FEATURES else None
    if by_nodes is not None:
        return by_nodes
    if tensor_pays:
        return ByTensor(space.compressed_map)
    require_memory(FLOAT_BYTES * (4 * m * m + 3 * m * ell), f"the pair matrices of {m} support points", "use fewer (n_support)")
    pairs = PairFactors(space._integrals, space.support_points, space.landmarks, space.embedding_kernel, space.log_unit)
    return ByPairs(PairwiseMap(pairs, space.T, space.projection.S))


def _by_nodes(space: SoSSpace, most: int) -> ByNodes | None:
    """The map over a rule of at most ``most`` nodes, if there is one that integrates ψψᵀ."""
    rule = _trapezoids(space, most) if isinstance(space._integrals, GaussianLebesgue) else _smooth_rule(space, most)
    if rule is None:
        return None
    out = ByNodes(space, *rule)
    return out if out.error <= _AGREEMENT else None


def _trapezoids(space: SoSSpace, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Equidistant nodes wherever a density of the space may be: of all rules the one that needs fewest of them for Gaussians."""
    d, X, axes = space.n_features, space.support_points, []
    eta, sigma = space.kernel.sigma_vector(d), space.embedding_kernel.sigma_vector(d)
    for k in range(d):
        low, high, _ = intervals([(space._integrals, X)], k, _LOG_LEVEL)
        rule = midpoints(low, high, _SPACING / math.sqrt(4.0 / eta[k] ** 2 + 2.0 / sigma[k] ** 2), most)
        if rule is None:
            return None
        axes.append(rule)
    if math.prod(axis[0].shape[0] for axis in axes) > _CORNERS * most:
        return None
    return _where_densities_are(space, *tensor_rule(space.measure, X[0], axes), most)


def _smooth_rule(space: SoSSpace, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """The rule for squares of densities, which are rougher than what is integrated here."""
    if not (space.kernel.smooth and space.embedding_kernel.smooth):
        return None
    try:
        nodes, log_weights, _ = l2_rule(space, None)
    except IntegralNotAvailableError:
        return None
    return (nodes, log_weights) if nodes.shape[0] <= most else None


def _where_densities_are(space: SoSSpace, nodes: np.ndarray, log_weights: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Without the nodes at which no density of the space has any mass to speak of."""
    bound = np.exp(log_weights - space.log_unit) * np.sum(space.basis(nodes) ** 2, axis=1)  # p ≤ ‖ψ‖²
    keep = bound > _NEGLIGIBLE * bound.sum()
    return (nodes[keep], log_weights[keep]) if np.count_nonzero(keep) <= most else None


def _is_well_conditioned(T: np.ndarray) -> bool:
    """Whether single precision, which halves the time of large products, errs less than the tolerance."""
    sizes = np.linalg.norm(T, axis=0)
    return T.shape[0] >= _MANY and bool(sizes.max() <= _WELL_CONDITIONED * sizes.min())
