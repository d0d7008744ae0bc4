"""Functions of x that are no polynomials: the indicator of a box, whose expectation is a
probability; elements of an RKHS with finitely many centers; any function, given as code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ksos.exceptions import IntegralNotAvailableError
from ksos.ground import as_count, as_numbers_at, as_positive, row_blocks
from ksos.integrals import (
    Integrals,
    PairFactors,
    Source,
    WithConstant,
    closed_form,
    importance_rules,
    log_gauss_mass,
    panel_rules,
    triple_blocks,
)
from ksos.kernels import Kernel
from ksos.kernels.base import KernelSum
from ksos.measures import Box, Measure
from ksos.observables.base import Observable, ObservableMatrix, sum_over_nodes
from ksos.observables.over_normals import are_normal, box_matrices

_BLOCK_ELEMENTS = 1 << 20  # kernel values at a time: 8 MB
_TENSOR_FEATURES = 3  # eight nodes on each of four panels are 32,000 in three features
_GROSS = 1e-4  # of the largest entry of ∫kk dρ: a coarse rule is closer, one that misses a part not
_LOOKS = 1 << 16  # nodes that look for what a rule has overlooked: a quarter of the finest rule's
_MARGIN = 0.1  # of the range of f: what stands out by less between nodes is interpolation error


class BoxIndicator(Observable):
    r"""f(x) = 1 where low ≤ x ≤ high (arrays of d floats) in every feature, else 0; sides may be
    infinite. E_p f is the box's probability.

    >>> BoxIndicator([0.0, -np.inf], [1.0, 0.0])([[0.5, -3.0], [0.5, 3.0]])
    array([1., 0.])
    """

    bounded = takes_constant = True

    def __init__(self, low: Any, high: Any) -> None:
        self.box = Box(low, high)
        self.n_features = self.box.n_features

    def __call__(self, X: Any) -> np.ndarray:
        return self.box.contains(self._points(X)).astype(np.float64)

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        constant = T is not None and T.shape[0] > X.shape[0]
        if not are_normal(kernel, measure, X.shape[1], constant=constant):
            M = np.exp(self.log_gram(kernel, X, measure) - log_unit)
            return ObservableMatrix(M).transformed(T)
        sides = self.box.low, self.box.high
        estimates = box_matrices(*sides, kernel, X, measure, log_unit, constant=constant)
        s, mean = estimates.shape[0], estimates.mean(axis=0)
        if s == 1:
            return ObservableMatrix(mean).transformed(T)
        # the standard error of the mean of s independent estimates
        return ObservableMatrix(mean, (estimates - mean) / np.sqrt(s * (s - 1.0))).transformed(T)

    def log_gram(self, kernel: Kernel, X: np.ndarray, measure: Measure) -> np.ndarray:
        """log ∫_box k(x, X_i) k(x, X_j) dρ(x), shape (m, m), for a kernel that is a product over
        the features; −inf outside.
        """
        (m, d), (low, high) = X.shape, measure.boundaries(X.shape[1])
        if not measure.by_volume:
            return self._log_gram_normal(closed_form(kernel, measure, d), X)
        low, high = np.maximum(self.box.low, low), np.minimum(self.box.high, high)
        return (
            np.full((m, m), -np.inf)
            if np.any(low >= high)
            else closed_form(kernel, Box(low, high), d).log_gram(X, X)
        )

    # The integral on R^d times, per feature, the mass between the sides of the normal distribution
    # that k_i k_j ρ is proportional to.
    def _log_gram_normal(self, integrals: Integrals, X: np.ndarray) -> np.ndarray:
        out, ends = integrals.log_gram(X, X), []
        for side in (self.box.low, self.box.high):
            normals = integrals.pair_normals(X, side)
            if normals is None:
                raise IntegralNotAvailableError(
                    f"the integrals of {integrals.kernel!r} on {integrals.measure!r} over a box"
                    " have no closed form"
                )
            ends.append(-0.5 * normals[0] / normals[1])
        for low, high in zip(ends[0].T, ends[1].T, strict=True):
            out += log_gauss_mass(low[:, None] + low, high[:, None] + high)
        return out

    def __repr__(self) -> str:
        return f"BoxIndicator({self.box.low.tolist()}, {self.box.high.tolist()})"


class KernelFunction(KernelSum, Observable):
    r"""f(x) = Σ_r w_r k(x, z_r), an element of the RKHS of ``kernel``.

    Parameters
    ----------
    points : array (ℓ, d)
        The centers z_r.
    weights : array of ℓ floats, optional
        They may be negative; default 1/ℓ each.
    kernel : Kernel
        Its own, which need not be that of the density.

    >>> from ksos.kernels import Gaussian
    >>> KernelFunction([[0.0], [1.0]], [1.0, -1.0], kernel=Gaussian(1.0))([[0.0]]).round(6)
    array([0.632121])
    """

    bounded = takes_constant = True

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        blocks = row_blocks(X.shape[0], self.points.shape[0], _BLOCK_ELEMENTS)
        return np.concatenate(
            [np.empty(0), *(self.kernel(X[rows], self.points) @ self.weights for rows in blocks)]
        )

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        try:
            integrals = closed_form(kernel, measure, self.points.shape[1], self.kernel)
        except IntegralNotAvailableError as error:
            raise IntegralNotAvailableError(
                f"{error}; or wrap the function, as NumericFunction({self!r}), to have it"
                " integrated by quadrature"
            ) from None
        m, first = X.shape[0], int(T is not None and T.shape[0] > X.shape[0])
        M, w = np.zeros((m + first, m + first)), self.weights
        if integrals.pairwise and not first:
            for rows in row_blocks(self.points.shape[0], m, _BLOCK_ELEMENTS):
                part = PairFactors(integrals, X, self.points[rows], self.kernel, log_unit)
                M += part.c * (part.G * ((part.H * w[rows]) @ part.H.T))
        else:
            basis = WithConstant(integrals) if first else integrals
            for rows, block in triple_blocks(basis, X, self.points, self.kernel, log_unit):
                M += block @ w[rows]
        return ObservableMatrix(0.5 * (M + M.T)).transformed(T)

    def __repr__(self) -> str:
        return (
            f"KernelFunction({self.points.shape[0]} centers in {self.n_features} features,"
            f" kernel={self.kernel!r})"
        )


class NumericFunction(Observable):
    r"""A function given as code. Its integrals are approximated, and how well is estimated and kept
    beside them.

    On a discrete measure they are exact sums. Otherwise, in up to three features, Gauss–Legendre
    panels over the region where the kernels live are halved until two rules in a row agree; in more
    features (or if the region has too many parts), points are drawn by scrambled Sobol' sequences
    from the mixture of the densities ∝ k(x, x̃_i)²dρ, and the spread of independent scramblings is
    the error.

    Parameters
    ----------
    function : callable
        Takes an array (n, d), returns n finite floats.
    tol : float
        Stop refining when two rules differ by less than this fraction of the largest entry of the
        matrix.
    max_nodes : int
        At most so many nodes in the finest rule (and in all scramblings together); what is left of
        the error is reported.
    bounded : bool, optional
        Whether the function is bounded on R^d, if you know.
    seed : int
        Seed of the scramblings.

    >>> from ksos.kernels import Gaussian
    >>> from ksos.measures import Lebesgue
    >>> f = NumericFunction(lambda X: np.cos(X[:, 0]))
    >>> M = f.matrix(Gaussian(1.0), np.zeros((1, 1)), Lebesgue())
    >>> bool(abs(M.values[0, 0] - np.sqrt(np.pi / 2) * np.exp(-1 / 8)) < 1e-12), M.error < 1e-9
    (True, True)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        tol: float = 1e-10,
        max_nodes: int = 1 << 18,
        bounded: bool | None = None,
        seed: int = 0,
    ) -> None:
        if not callable(function):
            raise TypeError(
                f"a function of an array (n, d) that returns n numbers is needed; got {function!r}"
            )
        self.function, self.bounded = function, bounded
        self.tol, self.max_nodes = (
            as_positive(tol, "tol"),
            as_count(max_nodes, "max_nodes", minimum=64),
        )
        self.seed = as_count(seed, "seed", minimum=0)
        self.n_features = function.n_features if isinstance(function, Observable) else None

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        return np.concatenate(
            [np.empty(0), *(self._values(X[rows]) for rows in row_blocks(X.shape[0], 1))]
        )

    # f at some rows; whatever it does wrong becomes a ValueError in words.
    def _values(self, X: np.ndarray) -> np.ndarray:
        name = _name(self.function)
        try:
            values = self.function(X)
        except Exception as error:
            raise ValueError(
                f"{name} raised {type(error).__name__}: {error}; it was called with an array of"
                f" shape {X.shape} and must return {X.shape[0]} numbers"
            ) from error
        return as_numbers_at(values, name, X, (X.shape[0],))

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        integrals = closed_form(kernel, measure, X.shape[1])

        def integrate(
            nodes: np.ndarray, log_weights: np.ndarray, f: Callable[[np.ndarray], np.ndarray] = self
        ) -> np.ndarray:
            return sum_over_nodes(kernel, X, nodes, log_weights, f(nodes), log_unit, T)

        previous = difference = None
        for rule in (
            panel_rules([(integrals, X)], self.max_nodes) if X.shape[1] <= _TENSOR_FEATURES else ()
        ):
            values = integrate(*rule)
            if previous is not None:
                difference = values - previous
                if np.abs(difference).max() <= self.tol * max(float(np.abs(values).max()), 1e-300):
                    break
            previous = values
        if difference is not None:
            found, deviations = values, difference[None]
        else:
            rules = list(importance_rules(integrals, X, self.max_nodes, self.seed))
            each = np.stack([integrate(*rule) for rule in rules])
            found, rule = each.mean(axis=0), rules[-1]
            deviations = (each - found) / np.sqrt(len(rules) * (len(rules) - 1.0))
        # one more if the rule misses a part of the space: then it does not even give ∫kk dρ
        if X.shape[1] <= _TENSOR_FEATURES:
            W = ObservableMatrix(np.exp(integrals.log_gram(X, X) - log_unit)).transformed(T).values
            missing = integrate(*rule, lambda nodes: np.ones(nodes.shape[0])) - W
            if np.abs(missing).max() > _GROSS * np.abs(W).max():
                deviations = np.concatenate(
                    [deviations, np.abs(self(rule[0])).max() * missing[None]]
                )
            if (overlooked := self._overlooked(rule[0], [(integrals, X)])) is not None:
                nodes, log_weights, f = overlooked
                more = sum_over_nodes(kernel, X, nodes, log_weights, f, log_unit, T)
                found, deviations = found + more, np.concatenate([deviations, more[None]])
        return ObservableMatrix(found, deviations)

    # Where, at many more nodes, f leaves the range that it has at those of a rule: these, their log
    # weights and by how much it does.
    #
    # Rules agree on a peak that none of them sees. One that is seen here counts, and is as
    # uncertain as it is high.
    def _overlooked(
        self, nodes: np.ndarray, sources: Sequence[Source]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        seen = self(nodes)
        low, high = float(seen.min()), float(seen.max())
        margin = _MARGIN * (high - low)
        *_, finest = None, *panel_rules(sources, _LOOKS)
        if finest is None:
            return None
        points, log_weights = finest
        f = self(points)
        beyond = f - np.clip(f, low - margin, high + margin)
        found = beyond != 0.0
        return (points[found], log_weights[found], beyond[found]) if np.any(found) else None

    def __repr__(self) -> str:
        return f"NumericFunction({_name(self.function)})"


def _name(function: Any) -> str:
    return (
        repr(function)
        if isinstance(function, Observable)
        else str(getattr(function, "__qualname__", repr(function)))
    )
