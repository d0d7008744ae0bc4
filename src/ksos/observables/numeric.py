"""Any function of x: integrated by quadrature in up to three features, by quasi-Monte Carlo beyond,
always with an error estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ksos.ground.memory import row_blocks
from ksos.ground.validation import as_count, as_positive
from ksos.integrals import closed_form
from ksos.integrals.regions import Rule, Source, importance_rules, panel_rules
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables.base import Observable, ObservableMatrix, sum_over_nodes

__all__ = ["NumericFunction"]

_TENSOR_FEATURES, _GROSS = 3, 1e-4
_LOOKS, _MARGIN = (
    1 << 16,
    0.1,
)  # how many nodes look for what a rule has overlooked, and by how much of its range this must stand out


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
    >>> M = NumericFunction(lambda X: np.cos(X[:, 0])).matrix(Gaussian(1.0), np.zeros((1, 1)), Lebesgue())
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

    def _values(self, X: np.ndarray) -> np.ndarray:
        """f at some rows; whatever it does wrong becomes a ValueError in words."""
        name = _name(self.function)
        try:
            values = self.function(X)
        except Exception as error:
            raise ValueError(
                f"{name} raised {type(error).__name__}: {error}; it was called with an array of"
                f" shape {X.shape} and must return {X.shape[0]} numbers"
            ) from error
        try:
            if np.iscomplexobj(values):
                raise TypeError
            values = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} must return {X.shape[0]} numbers for an array of shape {X.shape}; got"
                f" {values!r}"
            ) from None
        if values.shape != (X.shape[0],):
            raise ValueError(
                f"{name} must return shape ({X.shape[0]},) for an array of shape {X.shape}; got"
                f" shape {values.shape}"
            )
        if not np.all(np.isfinite(values)):
            at = int(np.argmin(np.isfinite(values)))
            raise ValueError(
                f"{name} must return finite numbers; got {values[at]} at x = {X[at].tolist()}"
            )
        return values

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
        if (
            X.shape[1] <= _TENSOR_FEATURES
        ):  # one more if the rule misses a part of the space and does not even give ∫kk dρ, which is known
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

    def _overlooked(
        self, nodes: np.ndarray, sources: Sequence[Source]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Where, at many more nodes, f leaves the range that it has at those of a rule: these,
        their log weights and by how much it does.

        Rules agree on a peak that none of them sees. One that is seen here counts, and is as
        uncertain as it is high.
        """
        seen = self(nodes)
        low, high = float(seen.min()), float(seen.max())
        margin = _MARGIN * (high - low)
        finest: Rule | None = None
        for rule in panel_rules(sources, _LOOKS):
            finest = rule
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
