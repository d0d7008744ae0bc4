"""Conditional densities where scikit-learn and MAPIE expect a regressor or a score."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted

from ksos.data import mean_score


def neg_crps(estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
    """Minus the mean CRPS on held-out rows, as ``scoring=`` of scikit-learn takes it.

    Parameters
    ----------
    estimator : fitted estimator
        A :class:`~ksos.KernelSoSConditional`, also as the last step of a Pipeline, or a density
        estimator of one feature.
    X : array (n, d)
        Rows.
    y : array (n,) or (n, outputs), optional
        Targets. Without them, ``X`` is scored under the density of the estimator.
    sample_weight : array (n,), optional
        Weights of the rows.

    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> from ksos import KernelSoSDensity
    >>> from ksos.adapters import neg_crps
    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> cross_val_score(KernelSoSDensity(), X, scoring=neg_crps, cv=2).shape
    (2,)
    """
    last, rows = _last_step(estimator, X)
    of_density = y is None or not hasattr(last, "crps")
    scores = np.asarray(last.distribution_.crps(rows) if of_density else last.crps(rows, y))
    scores = scores if scores.ndim == 1 else scores.mean(axis=1)
    return -mean_score(scores, sample_weight)


class QuantileView(RegressorMixin, BaseEstimator):
    """A conditional density as a regressor whose ``predict`` gives quantiles.

    It makes quantiles reachable where only ``predict`` is called: at the end of a Pipeline, around
    one, in MAPIE, in scikit-learn's displays.

    Parameters
    ----------
    estimator : KernelSoSConditional or Pipeline
        What is fitted: a copy of it. A fitted one in a ``FrozenEstimator`` is used as it is.
    q : float or sequence of floats, default=0.5
        The levels. Several give a column each.

    Attributes
    ----------
    estimator_ : estimator
        The fitted copy.
    n_features_in_ : int
        Its number of columns.

    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from ksos import KernelSoSConditional
    >>> from ksos.adapters import QuantileView
    >>> X = np.random.default_rng(0).normal(size=(60, 1))
    >>> cond = KernelSoSConditional(LinearRegression(), given=None)
    >>> view = QuantileView(make_pipeline(StandardScaler(), cond), [0.05, 0.95])
    >>> view.fit(X, X[:, 0] + np.sin(9.0 * X[:, 0])).predict(X).shape
    (60, 2)
    """

    def __init__(self, estimator: Any, q: Any = 0.5) -> None:
        self.estimator, self.q = estimator, q

    def fit(self, X: Any, y: Any, **parameters: Any) -> Self:
        """Fit the copy. Other parameters, such as ``sample_weight``, are passed on."""
        self.estimator_ = clone(self.estimator).fit(X, y, **parameters)
        self.n_features_in_ = self.estimator_.n_features_in_
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def predict(self, X: Any) -> np.ndarray:
        """Quantiles of every row: (n,) for one level, (n, levels) for several."""
        check_is_fitted(self)
        last, rows = _last_step(self.estimator_, X)
        return np.asarray(last.predict_quantile(rows, self.q))


# The last step of a Pipeline, and the rows as it gets them; any other estimator as it is.
def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    if hasattr(estimator, "steps") and len(estimator.steps) > 1:
        return estimator[-1], estimator[:-1].transform(X)
    return estimator, X
