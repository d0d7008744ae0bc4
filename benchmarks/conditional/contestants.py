"""Who takes part. A contestant turns rows into a law of y given x; whatever it chooses, it chooses
from these rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

__all__ = ["CONTESTANTS", "Contestant", "Law", "NormalLaw", "QuantileLaw", "SoSLaw"]


class Law:
    """y given x, as the referee sees it."""

    def quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """Shape (n, levels)."""
        raise NotImplementedError

    def logpdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray | None:
        """Shape (n,); None from those who have quantiles only."""
        return None

    def conformal(self, X: np.ndarray, level: float) -> np.ndarray | None:
        """Intervals of shape (n, 2) with a guarantee; None from those who have none."""
        return None


@dataclass
class NormalLaw(Law):
    """N(loc(x), scale(x)²)."""

    parameters: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

    def quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        loc, scale = self.parameters(X)
        return np.asarray(loc[:, None] + scale[:, None] * norm.ppf(levels))

    def logpdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(norm.logpdf(y, *self.parameters(X)))


@dataclass
class QuantileLaw(Law):
    """Quantiles only."""

    predict: Callable[[np.ndarray, np.ndarray], np.ndarray]

    def quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        return np.asarray(self.predict(X, levels))


@dataclass
class SoSLaw(Law):
    """A fitted KernelSoSConditional."""

    estimator: Any

    def quantiles(self, X: np.ndarray, levels: np.ndarray) -> np.ndarray:
        return np.asarray(self.estimator.predict_quantile(X, levels))

    def logpdf(self, X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(self.estimator.score_samples(X, y))

    def conformal(self, X: np.ndarray, level: float) -> np.ndarray | None:
        if self.estimator.regressor == "joint":
            return None
        return np.asarray(self.estimator.predict_interval(X, level, method="conformal"))


def ksos_conditional(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """KernelSoSConditional() as it comes."""
    from ksos import KernelSoSConditional

    return SoSLaw(KernelSoSConditional(random_state=0).fit(X, y))


def ksos_joint(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """The joint density of (x, y), conditioned."""
    from ksos import KernelSoSConditional

    return SoSLaw(
        KernelSoSConditional(regressor="joint", time_limit=60.0, random_state=0).fit(X, y)
    )


def normal(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """One normal law around scikit-learn's histogram gradient boosting, its spread from residuals
    over five folds.
    """
    from sklearn.ensemble import HistGradientBoostingRegressor

    return _normal_around(HistGradientBoostingRegressor(random_state=0), X, y)


def normal_same(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """One normal law around the very regressors of KernelSoSConditional(), its spread from
    residuals of held-out rows.
    """
    from ksos import KernelSoSConditional, KernelSoSDensity

    quick = KernelSoSDensity(n_support=20, tol=1e-3)  # of which only the mean, nearly zero, matters
    model = KernelSoSConditional(scale="constant", given=None, estimator=quick, random_state=0).fit(
        X, y
    )
    spread = float(np.sqrt(np.mean((y - model.held_out_predictions_) ** 2)))
    return NormalLaw(lambda rows: (model.predict(rows), np.full(rows.shape[0], spread)))


def _normal_around(model: Any, X: np.ndarray, y: np.ndarray) -> Law:
    from sklearn.model_selection import KFold, cross_val_predict

    folds = KFold(min(5, len(y)), shuffle=True, random_state=0)
    spread = float(np.sqrt(np.mean((y - cross_val_predict(model, X, y, cv=folds)) ** 2)))
    model.fit(X, y)

    def parameters(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(model.predict(rows)), np.full(rows.shape[0], spread)

    return NormalLaw(parameters)


def ngboost(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """NGBoost with normal laws, as it comes: 500 steps."""
    from ngboost import NGBRegressor

    return _ngboost_law(NGBRegressor(verbose=False, random_state=0).fit(X, y))


def ngboost_stopped(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """NGBoost with normal laws, longer steps than its own, at most 500 of them, stopped early on a
    fifth of the rows.
    """
    from ngboost import NGBRegressor

    model = NGBRegressor(
        learning_rate=0.04,
        early_stopping_rounds=20,
        validation_fraction=0.2,
        verbose=False,
        random_state=0,
    )
    return _ngboost_law(model.fit(X, y))


def _ngboost_law(model: Any) -> Law:
    def parameters(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = model.pred_dist(rows).params
        return np.asarray(found["loc"]), np.asarray(found["scale"])

    return NormalLaw(parameters)


def xgboost_distribution(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """xgboost-distribution with normal laws, at most 500 steps, stopped early on a fifth of the
    rows.
    """
    from xgboost_distribution import XGBDistribution

    order = np.random.default_rng(0).permutation(len(y))
    held, kept = order[: max(1, len(y) // 5)], order[max(1, len(y) // 5) :]
    model = XGBDistribution(
        distribution="normal",
        n_estimators=500,
        early_stopping_rounds=10,
        learning_rate=0.05,
        n_jobs=1,
    )
    model.fit(X[kept], y[kept], eval_set=[(X[held], y[held])], verbose=False)

    def parameters(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = model.predict(rows)
        return np.asarray(found.loc, dtype=float), np.asarray(found.scale, dtype=float)

    return NormalLaw(parameters)


def quantile_boosting(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """Histogram gradient boosting with the quantile loss, one model for each level."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    models = {
        level: (
            HistGradientBoostingRegressor(loss="quantile", quantile=level, random_state=0).fit(X, y)
        )
        for level in levels.tolist()
    }
    return QuantileLaw(
        lambda rows, wanted: np.stack(
            [models[level].predict(rows) for level in wanted.tolist()], axis=1
        )
    )


def quantile_forest(X: np.ndarray, y: np.ndarray, levels: np.ndarray) -> Law:
    """quantile-forest's RandomForestQuantileRegressor as it comes."""
    from quantile_forest import RandomForestQuantileRegressor

    model = RandomForestQuantileRegressor(random_state=0).fit(X, y)
    return QuantileLaw(lambda rows, wanted: model.predict(rows, quantiles=wanted.tolist()))


@dataclass(frozen=True)
class Contestant:
    """``seconds`` is a guess for 10 000 rows, which puts long pieces first; ``rows`` the most rows
    that it is tried on.
    """

    fit: Callable[[np.ndarray, np.ndarray, np.ndarray], Law]
    title: str
    seconds: float
    rows: int = 10_000


CONTESTANTS = {
    "ksos": Contestant(ksos_conditional, "ksos", 20.0),
    "ksos_joint": Contestant(ksos_joint, "joint density", 60.0, rows=300),
    "normal": Contestant(normal, "normal, boosting", 5.0),
    "normal_same": Contestant(normal_same, "normal, same regressor", 10.0),
    "ngboost": Contestant(ngboost, "NGBoost", 30.0),
    "ngboost_stopped": Contestant(ngboost_stopped, "NGBoost, stopped", 30.0),
    "xgboost_distribution": Contestant(xgboost_distribution, "xgboost-distribution", 5.0),
    "quantile_boosting": Contestant(quantile_boosting, "quantile boosting", 15.0),
    "quantile_forest": Contestant(quantile_forest, "quantile-forest", 10.0),
}
