"""The risk of a parameter θ under a density, ⟨M_θ, C⟩ + Σ_j α_j θ_j², and its minimum over θ as a
concave function of C.

:class:`FixedRisk` has no parameter: the loss of a worst case. :class:`SquareRisk` is in closed
form, from the second moments of some functions u(x):

    ℓ(θ, (x, label)) = Σ_c ⟨t_c, u(x)⟩²,   t_c = E_c θ + s_{label,c},
    E_p ℓ = Σ_labels Σ_c t_cᵀ Q t_c,   Q_ab = ∫ u_a u_b dp.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from ksos.ground import FLOAT_BYTES, Array, eye, namespace, require_memory, to_numpy
from ksos.integrals import closed_form
from ksos.kernels import Gaussian
from ksos.observables import KernelFunction, Observable, Polynomial, coordinate
from ksos.solvers import Minimum
from ksos.space import SoSSpace, blocks_of

__all__ = [
    "FixedRisk",
    "ParametricRisk",
    "Risk",
    "SquareRisk",
    "affine_moments",
    "kernel_moments",
    "least_squares",
    "second_moments",
]

_FLAT = 1e-13  # of a loss: less is a constant after an eigendecomposition of a few hundred rows
_NO_CURVATURE = 1e-13  # Relative eigenvalues below it are rounding of sums of a few hundred terms.


class Risk(ABC):
    """θ ↦ E_p[ℓ(θ, x)] + Σ_j α_j θ_j², convex, for every density of one space."""

    n_parameters: int
    alpha: np.ndarray  # the ridge, shape (p,)

    def penalty(self, theta: np.ndarray) -> float:
        return float(self.alpha @ theta**2)

    def units(self, theta: np.ndarray) -> tuple[float, float]:
        """(middle, unit): values are counted as middle + unit·value.

        The unit is the range of the loss of a typical θ.
        """
        ends = np.linalg.eigvalsh(self.matrix(theta))
        size = max(abs(float(ends[0])), abs(float(ends[-1])))
        return 0.0, max(float(ends[-1] - ends[0]), 1e-6 * size, 1e-300)

    @abstractmethod
    def matrix(self, theta: np.ndarray) -> np.ndarray:
        """M_θ = ∫ ℓ(θ, x) ψψᵀ dρ, shape (r, r)."""

    def true_matrix(self, theta: np.ndarray) -> np.ndarray:
        """M_θ of the loss itself, where ``matrix`` is that of a smoother one."""
        return self.matrix(theta)


class FixedRisk(Risk):
    """⟨M, C⟩ of one loss: no parameter, so that the saddle problem is a worst case."""

    n_parameters, alpha = 0, np.zeros(0)

    def __init__(self, M: Array) -> None:
        ends = to_numpy(namespace(M).linalg.eigvalsh(M))
        low, high = float(ends[0]), float(ends[-1])
        self.middle, self.range = 0.5 * low + 0.5 * high, high - low
        if self.range <= _FLAT * max(abs(low), abs(high)):
            M, self.range = self.middle * eye(M.shape[0], M), 0.0
        self.M = M

    def units(self, theta: np.ndarray) -> tuple[float, float]:
        """The eigenvalues of (M − middle·I)/unit lie between −½ and ½, or are 0 if the loss is
        constant.
        """
        return self.middle, self.range or 1.0

    def matrix(self, theta: np.ndarray) -> Array:
        return self.M


class ParametricRisk(Risk):
    """A risk with a parameter, and its derivatives in θ."""

    @abstractmethod
    def least(self, C: np.ndarray) -> Minimum:
        """The minimum over θ at C."""

    @abstractmethod
    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        """A certified lower bound of that minimum, to about ``tol``, or −∞.

        ``near`` is about the minimizer.
        """

    @abstractmethod
    def slopes(self, theta: np.ndarray) -> np.ndarray:
        """∂M_θ/∂θ_j, shape (p, r, r)."""

    @abstractmethod
    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        """∂²⟨M_θ, C⟩/∂θ², shape (p, p), without that of the ridge."""


class SquareRisk(ParametricRisk):
    """The risk from the matrices V_ab = ∫ u_a u_b ψψᵀ dρ.

    ``V``: (P, P, r, r). ``E``: (outputs, P, p). ``s``: (labels, outputs, P). With several labels C
    has one block of r directions each.
    """

    def __init__(self, V: np.ndarray, E: np.ndarray, s: np.ndarray, alpha: np.ndarray) -> None:
        self.V, self.E, self.s, self.alpha = V, E, s, alpha
        self.n_parameters = E.shape[2]
        self.blocks = blocks_of(V.shape[2], s.shape[0])

    def _second_moments(self, C: np.ndarray) -> np.ndarray:
        """Q per label, shape (labels, P, P)."""
        Q = np.stack([np.tensordot(self.V, C[block, block], axes=2) for block in self.blocks])
        return 0.5 * (Q + Q.transpose(0, 2, 1))

    def least(self, C: np.ndarray) -> Minimum:
        return least_squares(self._second_moments(C), self.E, self.s, self.alpha)

    def proven_least(self, C: np.ndarray, tol: float, near: np.ndarray) -> float:
        found = self.least(C)
        values, V = np.linalg.eigh(found.curvature)
        top = max(float(values[-1]), 1e-300)
        if values[0] < -1e-9 * top:
            return -math.inf  # moments that no distribution has: rounding has taken over
        # the gradient g at θ̂ is rounding, and the minimum of a quadratic lies ½gᵀH⁺g below
        kept = values > _NO_CURVATURE * top
        return found.value - 0.5 * float(((V.T @ found.gradient)[kept] ** 2 / values[kept]).sum())

    def matrix(self, theta: np.ndarray) -> np.ndarray:
        t, r = self.E @ theta + self.s, self.V.shape[2]
        out = np.zeros((t.shape[0] * r,) * 2)
        for block, w in zip(self.blocks, np.einsum("lca,lcb->lab", t, t), strict=True):
            M = np.tensordot(w, self.V, axes=2)
            out[block, block] = 0.5 * (M + M.T)
        return out

    def slopes(self, theta: np.ndarray) -> np.ndarray:
        t = self.E @ theta + self.s
        out = np.zeros((self.n_parameters, *(self.s.shape[0] * self.V.shape[2],) * 2))
        for label, block in enumerate(self.blocks):
            # Σ_c Σ_ab 2 E_caj t_cb V_ab
            weights = 2.0 * np.einsum("caj,cb->jab", self.E, t[label])
            out[:, block, block] = np.tensordot(weights, self.V, axes=2)
        return out

    def curvature(self, theta: np.ndarray, C: np.ndarray) -> np.ndarray:
        Q = self._second_moments(C).sum(axis=0)
        return np.asarray(2.0 * np.einsum("cai,ab,cbj->ij", self.E, Q, self.E, optimize=True))


def least_squares(Q: np.ndarray, E: np.ndarray, s: np.ndarray, alpha: np.ndarray) -> Minimum:
    """min over θ of Σ_{label,c} (E_cθ + s)ᵀQ(E_cθ + s) + Σ α_j θ_j², Q (labels, P, P)."""
    QE = np.einsum("ab,cbj->caj", Q.sum(axis=0), E)
    H = 2.0 * np.einsum("cai,caj->ij", E, QE) + 2.0 * np.diag(alpha)
    H = 0.5 * (H + H.T)
    b = 2.0 * np.einsum("caj,lab,lcb->j", E, Q, s, optimize=True)
    inverse = np.linalg.pinv(H, rcond=0.1 * _NO_CURVATURE, hermitian=True)
    theta = -inverse @ b
    theta = theta - inverse @ (H @ theta + b)  # corrects the rounding of the first step
    t = E @ theta + s
    value = float(np.einsum("lca,lab,lcb->", t, Q, t, optimize=True) + alpha @ theta**2)
    return Minimum(theta, value, H @ theta + b, lambda: H)


def affine_moments(space: SoSSpace, center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """V for u = (1, (x_1 − center_1)/scale_1, …), shape (d + 1, d + 1, r, r)."""
    on = space.kernel, to_numpy(space.support_points), space.measure, space.log_unit
    units = enumerate(zip(center.tolist(), scale.tolist(), strict=True))
    u: list[Any] = [coordinate(k, center=c) * (1.0 / unit) for k, (c, unit) in units]
    u, T = [Polynomial.constant(1.0), *u], to_numpy(space.T)
    return second_moments(len(u), space.rank, lambda a, b: (u[a] * u[b]).matrix(*on, T).values)


def kernel_moments(
    space: SoSSpace, centers: np.ndarray, kernel: Gaussian, center: float | None
) -> np.ndarray:
    """V for u = (1, k(·, c_1), …, k(·, c_n)) of x and, with ``center``, a last function y − center,
    where y is the last feature of the space.

    k(x, c)k(x, c') is a Gaussian about (c + c')/2 of bandwidth σ/√2: integrals of order 3 in x,
    times moments in y.
    """
    X, d, n = to_numpy(space.support_points), space.n_features, centers.shape[0]
    dx, T = d - (center is not None), to_numpy(space.T)
    eta, sigma = space.kernel.sigma_vector(d), kernel.sigma_vector(dx)
    model_x, measure_x = Gaussian(eta[:dx]), space.measure.restrict(range(dx))
    unit_x = float(closed_form(model_x, measure_x, dx).log_gram(X[:, :dx], X[:, :dx]).max())
    on_x = model_x, X[:, :dx], measure_x, unit_x
    W_y = [np.full((X.shape[0],) * 2, np.exp(unit_x - space.log_unit))]
    if center is not None:
        on_y = Gaussian(eta[dx:]), X[:, dx:], space.measure.restrict(range(dx, d))
        y = coordinate(0, center=center)
        W_y = [(y**power).matrix(*on_y, space.log_unit - unit_x).values for power in range(3)]

    def entry(a: int, b: int) -> np.ndarray:
        own = [centers[j - 1] for j in (a, b) if 1 <= j <= n]
        f: Observable = Polynomial.constant(1.0)
        if own:
            # k(x, c)k(x, e) = exp(−‖(c − e)/σ‖²/2)·exp(−2‖(x − (c + e)/2)/σ‖²)
            c, e = own[0], own[-1]
            weight = float(np.exp(-0.5 * np.sum(((c - e) / sigma) ** 2)))
            product = kernel if len(own) == 1 else Gaussian(sigma / np.sqrt(2.0))
            f = KernelFunction((c + 0.5 * (e - c))[None], [weight], kernel=product)
        M = T.T @ (f.matrix(*on_x).values * W_y[(a > n) + (b > n)]) @ T
        return np.asarray(0.5 * (M + M.T))

    return second_moments(1 + n + (center is not None), space.rank, entry)


def second_moments(P: int, r: int, entry: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """V of P functions from its entries, (r, r)."""
    require_memory(
        2 * FLOAT_BYTES * P * P * r * r,
        f"the second moments of {P} functions",
        "use fewer support points or kernel centers",
    )
    V = np.empty((P, P, r, r))
    for a in range(P):
        for b in range(a, P):
            V[a, b] = V[b, a] = entry(a, b)
    return V
