"""What it means to fit a robust estimator: one radius, or a path of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sklearn.base import clone

from ksos.estimators._robust import check_radii, solutions_along

__all__ = ["RobustFits"]


class RobustFits:
    """``fit`` and ``path`` of an estimator that can state its problem (``_problem``) and take a solution of it (``_take``)."""

    radius: Any
    random_state: Any
    tol: float
    time_limit: float | None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model, and find the worst density."""
        problem = self._problem(X, y, sample_weight)
        return self._take(problem, problem.solve(problem.radius_of(self.radius, self.random_state), self.tol, self.time_limit))

    def path(self, X: Any, y: Any, radii: Sequence[Any], sample_weight: Any = None) -> list[Self]:
        """One fitted clone per radius, in the order given, each started from the one before: ε against what it costs and buys.

        A radius whose ball holds no density is an error that names the least radius, before anything is fitted.
        """
        check_radii(radii)
        problem = self._problem(X, y, sample_weight)
        out: list[Self] = []
        solutions = solutions_along(problem, radii, type(self).__name__, self.random_state, self.tol, self.time_limit)
        for radius, solution in zip(radii, solutions, strict=True):
            fitted = clone(self).set_params(radius=radius)
            for name in ("n_features_in_", "feature_names_in_"):
                if hasattr(self, name):
                    setattr(fitted, name, getattr(self, name))
            out.append(fitted._take(problem, solution))
        return out

    def _problem(self, X: Any, y: Any, sample_weight: Any) -> Any:
        raise NotImplementedError

    def _take(self, problem: Any, solution: Any) -> Self:
        raise NotImplementedError
