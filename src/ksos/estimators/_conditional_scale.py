"""The scale of residuals as a function of x: regressors for log|residual|, each with as much say as held-out likelihood gives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln
from sklearn.utils import _safe_indexing

from ksos._deadline import Deadline
from ksos.estimators._conditional_cross_fit import Split, evaluate, fit_on

__all__ = ["ScaleModel", "fit_scale"]

_SMALL = 0.05  # in units of the median: logarithms of residuals below it say little, and would rule the fit
_FREEDOM = (3.0, 8.0, 1e4)  # degrees of freedom of the law that judges
_PRICE, _EARNED = 1.0, 3.0  # nats of held-out likelihood that a say of one costs, and that a scale that varies must earn
_MOST_SAY = 3.0
_MARGIN = 0.5  # how far log s may leave what was seen in the data


class ScaleModel(NamedTuple):
    """log s(x) = c + Σ_j β_j (g_j(x) − ḡ_j), within the range of the held-out data."""

    level: float
    says: np.ndarray
    """β, one for each regressor over x, the last for the one over the prediction μ(x)."""
    centres: np.ndarray
    models: list[Any]
    ends: tuple[float, float]

    def times(self, factor: float) -> ScaleModel:
        """factor·s."""
        move = float(np.log(factor))
        return self._replace(level=self.level + move, ends=(self.ends[0] + move, self.ends[1] + move))

    def __call__(self, X: Any, mu: np.ndarray) -> np.ndarray:
        """s at every row, shape (n,)."""
        log_s = np.full(mu.shape[0], self.level)
        for number, (say, centre, model) in enumerate(zip(self.says, self.centres, self.models, strict=True)):
            if model is not None:
                inside = mu[:, None] if number == len(self.models) - 1 else X
                log_s += say * (evaluate(model, inside, 1)[:, 0] - centre)
        return np.exp(np.clip(log_s, *self.ends))


def fit_scale(
    regressors: Sequence[Any], of_prediction: Any, X: Any, mu: np.ndarray, residuals: np.ndarray, masses: np.ndarray,
    splits: Sequence[Split], floor: float, deadline: Deadline,
) -> tuple[ScaleModel, np.ndarray]:  # fmt: skip
    """The scale model of one output, and the scale of every row by models that have not seen it.

    c and β ≥ 0 maximise the likelihood of the held-out residuals under a Student law, whose degrees of freedom are chosen with them, less
    a price for every β: unless the models of the scale earn three nats, β = 0 and the scale is constant.
    """
    size = np.abs(residuals)
    usual = max(float(np.median(size[masses > 0.0])), floor)
    targets = np.log(np.maximum(size, _SMALL * usual))[:, None]
    candidates = [(regressor, X) for regressor in regressors] + [(of_prediction, mu[:, None])]
    held_out = np.zeros((residuals.size, len(candidates)))
    for j, (regressor, inside) in enumerate(candidates):
        for train, test in splits if regressor is not None else ():
            if deadline.passed:
                held_out[:, j] = 0.0
                break
            model = fit_on(regressor, inside, targets, masses, train)
            held_out[test, j] = evaluate(model, _safe_indexing(inside, test), 1)[:, 0]
    centres = masses @ held_out / masses.sum()
    level, says = _say(residuals / usual, held_out - centres, masses)
    level += np.log(usual)
    log_s = level + (held_out - centres) @ says
    ends = max(float(log_s.min()) - _MARGIN, np.log(floor)), max(float(log_s.max()) + _MARGIN, np.log(floor))
    everything = np.flatnonzero(masses > 0.0)
    models = [
        fit_on(r, inside, targets, masses, everything) if say > 0.0 else None for (r, inside), say in zip(candidates, says, strict=True)
    ]
    return ScaleModel(level, says, centres, models, ends), np.exp(np.clip(log_s, *ends))


def _say(residuals: np.ndarray, g: np.ndarray, masses: np.ndarray) -> tuple[float, np.ndarray]:
    """(c, β) with the largest Σ_i a_i (log t(r_i/s_i) − log s_i) − price·Σβ; β = 0 unless it earns enough."""
    counts = masses * (residuals.size / masses.sum())
    useful = np.flatnonzero(g.std(axis=0) > 1e-9)

    def loss(at: np.ndarray, freedom: float) -> tuple[float, np.ndarray]:
        log_s = at[0] + g[:, useful] @ at[1:]
        with np.errstate(over="ignore"):
            squared = np.exp(2.0 * (np.log(np.maximum(np.abs(residuals), 1e-30)) - log_s)) / freedom
        value = counts @ (0.5 * (freedom + 1.0) * np.log1p(squared) + log_s) + _PRICE * at[1:].sum()
        slope = counts * (1.0 - (freedom + 1.0) * squared / (1.0 + squared))
        constant = gammaln(0.5 * freedom) - gammaln(0.5 * (freedom + 1.0)) + 0.5 * np.log(freedom * np.pi)
        return float(value + counts.sum() * constant), np.r_[slope.sum(), slope @ g[:, useful] + _PRICE]

    def best(most: float) -> Any:
        bounds = [(-20.0, 20.0), *[(0.0, most)] * useful.size]
        start = np.r_[0.0, np.full(useful.size, min(0.3, most))]
        found = [minimize(loss, start, args=(freedom,), jac=True, method="L-BFGS-B", bounds=bounds) for freedom in _FREEDOM]
        return min(found, key=lambda one: one.fun)

    constant, varying, says = best(0.0), best(_MOST_SAY), np.zeros(g.shape[1])
    if not useful.size or constant.fun - varying.fun < _EARNED:
        return float(constant.x[0]), says
    says[useful] = np.where(varying.x[1:] > 1e-3, varying.x[1:], 0.0)
    return float(varying.x[0]), says
