"""What an observable is: a function f of x whose matrices ∫ f k_i k_j dρ turn expectations E_p f
into ⟨B, M⟩.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground import as_points, row_blocks
from ksos.kernels import Kernel
from ksos.measures import Measure

_BLOCK_ELEMENTS = 1 << 18  # kernel values at nodes at a time: 2 MB stay in the cache


@dataclass(frozen=True)
class ObservableMatrix:
    """M = ∫ f k kᵀ dρ (or TᵀMT) with what is known of its error.

    >>> M = ObservableMatrix(np.eye(2))
    >>> M.expectation(np.diag([0.25, 0.75])), M.exact
    ((1.0, 0.0), True)
    """

    values: np.ndarray
    """Symmetric, (m, m) or (r, r), in units of exp(log_unit)."""
    deviations: np.ndarray = field(default_factory=lambda: np.zeros((0, 0, 0)), repr=False)
    """(s, m, m): the error of ⟨B, M⟩ is estimated by the root of Σ_s ⟨B, Δ_s⟩². None of them (s =
    0) for a closed form.
    """

    @property
    def exact(self) -> bool:
        """Whether M is a closed form, so that rounding is its only error."""
        return self.deviations.shape[0] == 0

    @property
    def error(self) -> float:
        """The largest error among the entries of M, estimated; 0 for a closed form."""
        return 0.0 if self.exact else float(np.sqrt(np.sum(self.deviations**2, axis=0)).max())

    def expectation(self, B: np.ndarray) -> tuple[float, float]:
        """(⟨B, M⟩, the estimate of its error)."""
        return float(np.vdot(B, self.values)), float(
            np.linalg.norm([np.vdot(B, delta) for delta in self.deviations])
        )

    def worst_error(self) -> float:
        """A bound of the error of ⟨C, M⟩ over all C ⪰ 0 with tr C = 1, estimated: how far off an
        answer found *with* M may be.
        """
        norms = [np.abs(np.linalg.eigvalsh(delta)).max() for delta in self.deviations]
        return float(np.linalg.norm(norms)) if norms else 0.0

    def transformed(self, T: np.ndarray | None) -> ObservableMatrix:
        """TᵀMT."""
        if T is None:
            return self
        deviations = (
            np.stack([_symmetric(T.T @ delta @ T) for delta in self.deviations])
            if not self.exact
            else np.zeros((0, 0, 0))
        )
        return ObservableMatrix(_symmetric(T.T @ self.values @ T), deviations)


class Observable(ABC):
    """A real function f on R^d. Sums, differences and multiples by numbers are observables again.

    >>> from ksos.observables import BoxIndicator, coordinate
    >>> f: Observable = BoxIndicator([0.0], [1.0]) - 0.5 * coordinate(0)
    >>> f([[0.5], [2.0]]).tolist()
    [0.75, -1.0]
    """

    n_features: int | None = None
    """d, or None if any d will do."""
    bounded: bool | None = None
    """Whether f is bounded on R^d; None if this is not known."""

    takes_constant: bool = False
    """Whether there are closed forms with the constant function, on mixtures of normal
    distributions.
    """

    @abstractmethod
    def __call__(self, X: Any) -> np.ndarray:
        """f at the rows of X, shape (n,)."""

    @abstractmethod
    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        """:meth:`matrix` for input that has been checked, on a measure that is not discrete."""

    def matrix(
        self,
        kernel: Kernel,
        X: Any,
        measure: Measure,
        log_unit: float = 0.0,
        T: np.ndarray | None = None,
    ) -> ObservableMatrix:
        r"""M_ij = e^{−log_unit} ∫ f(x) k(x, X_i) k(x, X_j) dρ(x), shape (m, m); with ``T`` (m, r),
        the matrix TᵀMT.

        Giving T here rather than multiplying afterwards keeps digits: where the integral is a sum
        over nodes, the basis Tᵀk is formed at the nodes, and large entries of T enter once before
        they cancel instead of squared.
        """
        X = as_points(X, "X")
        self.check_features(X.shape[1])
        if (
            T is not None
            and T.shape[0] != X.shape[0]
            and not (self.takes_constant and measure.normals(X.shape[1]) is not None)
        ):
            raise IntegralNotAvailableError(
                f"the integrals of {self!r} with the constant function have no closed form; leave"
                " the constant out (constant=False), or take the expectation of the density that"
                " comes out"
            )
        if (atoms := measure.atoms) is None:
            out = self._matrix(kernel, X, measure, float(log_unit), T)
        else:
            f = self(atoms.points)
            seen = f != 0.0
            out = ObservableMatrix(
                sum_over_nodes(
                    kernel, X, atoms.points[seen], np.log(atoms.weights[seen]), f[seen], log_unit, T
                )
            )
        if not np.all(np.isfinite(out.values)):
            raise ValueError(
                f"the integrals of {self!r} leave the range of floats on {measure!r}; measure the"
                " features in other units"
            )
        return out

    def check_features(self, d: int) -> None:
        """Raise when f is not a function of ``d`` features."""
        if self.n_features is not None and self.n_features != d:
            raise ValueError(
                f"{self!r} is a function of {self.n_features} features, but the points have {d}"
            )

    def _points(self, X: Any) -> np.ndarray:
        X = as_points(X, "X", allow_empty=True)
        self.check_features(X.shape[1])
        return X

    def parts(self) -> Sequence[tuple[float, Observable]]:
        """f as Σ scale·part."""
        return [(1.0, self)]

    def without_constant(self, X: np.ndarray) -> tuple[Observable, float]:
        """(f − c, c) with a constant c, possibly 0, such that f − c is small around the points X:
        E_p f = E_p[f − c] + c loses nothing.
        """
        return self, 0.0

    def __add__(self, other: Any) -> Observable:
        # which imports this file
        from ksos.observables.polynomial import as_polynomial

        other = as_polynomial(other)
        if isinstance(other, Observable):
            return SumObservable([*self.parts(), *other.parts()])
        return NotImplemented

    def __mul__(self, scale: Any) -> Observable:
        if isinstance(scale, (int, float, np.integer, np.floating)) and np.isfinite(scale):
            return SumObservable([(float(scale) * factor, part) for factor, part in self.parts()])
        return NotImplemented

    def __radd__(self, other: Any) -> Observable:
        return self.__add__(other)

    def __rmul__(self, scale: Any) -> Observable:
        return self.__mul__(scale)

    def __neg__(self) -> Observable:
        return self * -1.0

    def __sub__(self, other: Any) -> Observable:
        return self + (-other)

    def __rsub__(self, other: Any) -> Observable:
        return (-self) + other


class SumObservable(Observable):
    """Σ_t scale_t·f_t."""

    def __init__(self, parts: Sequence[tuple[float, Observable]]) -> None:
        self._parts = list(parts)
        sizes = {part.n_features for _, part in self._parts} - {None}
        if len(sizes) > 1:
            raise ValueError(
                f"functions of {' and '.join(str(d) for d in sorted(sizes, key=str))} features"
                " cannot be added"
            )
        self.n_features = sizes.pop() if sizes else None
        known = {part.bounded for scale, part in self._parts if scale != 0.0}
        # unbounded parts may cancel
        self.bounded = True if known <= {True} else None
        self.takes_constant = all(part.takes_constant for _, part in self._parts)

    def parts(self) -> Sequence[tuple[float, Observable]]:
        return self._parts

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        return np.asarray(
            sum((scale * part(X) for scale, part in self._parts), np.zeros(X.shape[0]))
        )

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        found = [
            (scale, part._matrix(kernel, X, measure, log_unit, T)) for scale, part in self._parts
        ]
        values = sum(scale * part.values for scale, part in found)
        deviations = [scale * part.deviations for scale, part in found if not part.exact]
        return ObservableMatrix(
            np.asarray(values), np.concatenate(deviations) if deviations else np.zeros((0, 0, 0))
        )

    def __repr__(self) -> str:
        return " + ".join(f"{scale:g} * {part!r}" for scale, part in self._parts)


def sum_over_nodes(
    kernel: Kernel,
    X: np.ndarray,
    nodes: np.ndarray,
    log_weights: np.ndarray,
    f: np.ndarray,
    log_unit: float,
    T: np.ndarray | None,
) -> np.ndarray:
    """e^{−log_unit} Σ_n w_n f_n k(x_n) k(x_n)ᵀ with k(x) = k(x, X), or the same with Tᵀk(x) in its
    place.

    >>> from ksos.kernels import Gaussian
    >>> nodes, f = np.zeros((3, 1)), np.arange(3.0)
    >>> sum_over_nodes(Gaussian(1.0), nodes[:1], nodes, np.zeros(3), f, 0.0, None).tolist()
    [[3.0]]
    """
    size = X.shape[0] if T is None else T.shape[1]
    out = np.zeros((size, size))
    half = 0.5 * (log_weights - log_unit)
    for rows in row_blocks(nodes.shape[0], max(size, X.shape[0]), _BLOCK_ELEMENTS):
        with np.errstate(under="ignore"):
            # weights and unit may be extreme; the product is not
            values = np.exp(kernel.log(nodes[rows], X) + half[rows, None])
        basis = values if T is None else values @ T
        out += (f[rows, None] * basis).T @ basis
    return 0.5 * (out + out.T)


def _symmetric(M: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (M + M.T))
