"""KernelSoSConditional: the density of Y given X, from a kernel sum of squares fitted to both together."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._validation import as_count, as_levels, as_points, as_vector, require_numbers
from ksos.density import SoSDensity
from ksos.density.conditional_line import ConditionalLine
from ksos.estimators._samples import as_generator, mean_score, require_inside
from ksos.estimators.cross_validation import KernelSoSDensityCV
from ksos.measures import Measure

__all__ = ["KernelSoSConditional"]


class KernelSoSConditional(RegressorMixin, BaseEstimator):
    r"""The conditional density p(y | x) = p(x, y)/p(x) of a joint kernel-sum-of-squares density, and all that follows from it.

    p(y | x) = ‖Fᵀ(k_X(x) ∘ k_Y(y))‖² / ‖Lᵀ k_X(x)‖² with B = FFᵀ and B ∘ W_Y = LLᵀ: a density in y for every x, with its mean, spread,
    quantiles and samples. ``predict`` is the conditional mean, ``score`` the mean conditional log-density (not R²).

    Parameters
    ----------
    estimator : density estimator, optional
        What is fitted to the rows (x, y): a :class:`~ksos.KernelSoSDensity` or :class:`~ksos.KernelSoSDensityCV` with the options you
        want; a copy of it is fitted. Default:
        ``KernelSoSDensityCV(objective=objective, measure=measure, reference=None)``.
    objective : {"likelihood", "squared_mmd"}, optional
        Of the default estimator; default "likelihood".
    measure : Measure, optional
        Of the default estimator, over the features of X followed by those of Y: ``Box([-inf, 0], [inf, 1])`` keeps y in [0, 1].
    time_limit, random_state
        Those of the estimator, given or default, unless they are None.

    Attributes
    ----------
    estimator_ : the fitted estimator
    distribution_ : SoSDensity
        The joint density of (x, y).
    n_outputs_ : int
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from ksos import KernelSoSDensity
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 1))
    >>> y = X[:, 0] + 0.2 * rng.normal(size=200)
    >>> est = KernelSoSConditional(KernelSoSDensity(bandwidth=0.8, tol=1e-4)).fit(X, y)
    >>> mean, std = est.predict([[-0.5], [0.5]], return_std=True)
    >>> bool(abs(mean[1] - mean[0] - 1.0) < 0.2)
    True
    >>> est.quantile([[0.5]], [0.1, 0.5, 0.9]).shape
    (1, 3)
    """

    def __init__(
        self, estimator: Any = None, objective: str | None = None, measure: Measure | None = None, time_limit: float | None = None,
        random_state: Any = None,
    ) -> None:  # fmt: skip
        self.estimator, self.objective, self.measure = estimator, objective, measure
        self.time_limit, self.random_state = time_limit, random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # score is a log-density, which need not be near 1
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the joint density to the rows of ``X`` (n, d) and ``y`` (n,) or (n, outputs), weighted by ``sample_weight``.

        Ctrl-C stores the best density so far and is raised again.
        """
        joint = self._joint_estimator()
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None; give an array of shape (n,) or (n, outputs)")
        _require_length(X, y)
        X, y = require_numbers(X), require_numbers(y, "y")
        X, y = validate_data(self, X, y, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        targets = as_points(y[:, None] if y.ndim == 1 else y, "y")
        rows, self._flat, self.n_outputs_ = np.concatenate([X, targets], axis=1), y.ndim == 1, targets.shape[1]
        try:
            if isinstance(joint, KernelSoSDensityCV):
                joint._fit(rows, sample_weight, slice(X.shape[1]))
            else:
                joint.fit(rows, sample_weight=sample_weight)
        finally:  # Ctrl-C is raised with the best density so far in place
            fitted = vars(joint).get("distribution_")
            if isinstance(fitted, SoSDensity):
                self.estimator_, self.distribution_ = joint, fitted
        if not isinstance(fitted, SoSDensity):
            raise TypeError(
                "estimator must fit a kernel sum of squares, as ksos.KernelSoSDensity and ksos.KernelSoSDensityCV do; "
                f"got {self.estimator!r}, which has no distribution_ after its fit"
            )
        return self

    def logpdf(self, X: Any, y: Any) -> np.ndarray:
        """log p(y_i | x_i) for every row, shape (n,); −inf where the density vanishes."""
        return self._conditional_logpdf(*self._rows(X, y))

    def pdf(self, X: Any, y: Any) -> np.ndarray:
        """p(y_i | x_i) for every row, shape (n,)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(self.logpdf(X, y))

    def pairwise_logpdf(self, X: Any, y: Any) -> np.ndarray:
        """log p(y_j | x_i) for every pair, shape (n, number of rows of ``y``): what a picture of p(y | x) needs."""
        X, targets = self._conditions(X), self._targets(y)
        rows = np.repeat(X, targets.shape[0], axis=0), np.tile(targets, (X.shape[0], 1))
        return self._conditional_logpdf(*rows).reshape(X.shape[0], targets.shape[0])

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The conditional mean E[y | x], shape (n,) or (n, outputs); with ``return_std`` also the conditional standard deviation."""
        X = self._conditions(X)
        moments = [self._line([*range(X.shape[1]), X.shape[1] + k]).moments(X) for k in range(self.n_outputs_)]
        mean, deviation = (np.stack(part, axis=1) for part in zip(*moments, strict=True))
        if self._flat:
            mean, deviation = mean[:, 0], deviation[:, 0]
        return (mean, deviation) if return_std else mean

    def quantile(self, X: Any, q: Any) -> np.ndarray:
        """y with P(y' ≤ y | x) = q, for a single output: shape (n,) for one level ``q``, (n, levels) for several.

        Levels 0 and 1 give the boundary of the measure, −inf and +inf if there is none.
        """
        X, given = self._conditions(X), as_levels(q)
        levels = np.atleast_1d(given)
        values = self._single_output("quantile").quantile(X, np.broadcast_to(levels, (X.shape[0], levels.size)))
        low, high = self.distribution_.measure.boundary(self.n_features_in_)
        values = np.where(levels == 0.0, low, np.where(levels == 1.0, high, values))
        return values[:, 0] if given.ndim == 0 else values

    def cdf(self, X: Any, y: Any) -> np.ndarray:
        """P(y' ≤ y_i | x_i), for a single output, shape (n,): uniform on [0, 1] for data that follow the model."""
        X, targets = self._rows(X, y)
        return self._single_output("cdf").cdf(X, targets[:, 0])

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """``n_samples`` independent draws of y for every row of ``X``, shape (n, n_samples) or (n, n_samples, outputs)."""
        X = self._conditions(X)
        count = as_count(n_samples, "n_samples", minimum=0)
        uniforms = as_generator(random_state).random((X.shape[0], count, self.n_outputs_))
        known = np.repeat(X, count, axis=0)
        for k in range(self.n_outputs_):  # output after output, each given x and the outputs before it
            line = self._line(list(range(X.shape[1] + k + 1)))
            if known.shape[1] == X.shape[1]:  # the draws of one row share their law
                drawn = line.quantile(X, uniforms[:, :, 0]).reshape(-1, 1)
            else:
                drawn = line.quantile(known, uniforms[:, :, k].reshape(-1, 1))
            known = np.concatenate([known, drawn], axis=1)
        out = known[:, X.shape[1] :].reshape(X.shape[0], count, self.n_outputs_)
        return out[:, :, 0] if self._flat else out

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean conditional log-density log p(y_i | x_i), weighted by ``sample_weight``."""
        return mean_score(self.logpdf(X, y), sample_weight)

    def conditional(self, x: Any) -> SoSDensity:
        """The density of y given one row ``x``, as an :class:`~ksos.SoSDensity` of its own."""
        row = self._conditions(as_vector(x, "x")[None, :])[0]
        return self.distribution_.conditional(dict(enumerate(row)))

    def _joint_estimator(self) -> Any:
        handed_on = {"time_limit": self.time_limit, "random_state": self.random_state}
        handed_on = {name: value for name, value in handed_on.items() if value is not None}
        if self.estimator is None:
            objective = "likelihood" if self.objective is None else self.objective
            return KernelSoSDensityCV(objective=objective, measure=self.measure, reference=None, **handed_on)
        if self.objective is not None or self.measure is not None:
            name = "measure" if self.objective is None else "objective"
            raise ValueError(f"{name} is for the default estimator; with an estimator of your own, set it there")
        if not hasattr(self.estimator, "fit"):
            raise TypeError(f"estimator must be a density estimator such as ksos.KernelSoSDensity(), or None; got {self.estimator!r}")
        return clone(self.estimator).set_params(**handed_on)

    def _conditions(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C", reset=False)
        require_inside(self.distribution_.measure.restrict(list(range(X.shape[1]))), X, np.ones(X.shape[0]))
        return np.asarray(X)

    def _targets(self, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(f"y must be given, of {self.n_outputs_} output{'s' * (self.n_outputs_ > 1)} for each row of X; got None")
        values = as_vector(y, "y")[:, None] if self._flat and np.ndim(y) < 2 else as_points(y, "y")
        if values.shape[1] != self.n_outputs_:
            raise ValueError(f"y has {values.shape[1]} outputs, but {self.n_outputs_} were fitted")
        return values

    def _rows(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        check_is_fitted(self)
        _require_length(X, y)
        return self._conditions(X), self._targets(y)

    def _conditional_logpdf(self, X: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = np.concatenate([X, targets], axis=1)
        if self.n_outputs_ > 1:
            return self.distribution_.conditional_logpdf(rows, given=list(range(X.shape[1])))
        return self.distribution_.logpdf(rows) - self._single_output("logpdf").log_mass(X)

    def _line(self, features: list[int]) -> ConditionalLine:
        """The laws of the last of ``features`` given the others; what is not listed is integrated out."""
        p = self.distribution_
        return ConditionalLine(p if len(features) == p.n_features else p.marginal(features), len(features) - 1)

    def _single_output(self, name: str) -> ConditionalLine:
        if self.n_outputs_ != 1:
            raise ValueError(f"{name} is for a single output, but {self.n_outputs_} were fitted; fit one output, or use sample")
        return self._line(list(range(self.n_features_in_ + 1)))


def _require_length(X: Any, y: Any) -> None:
    """Raise when rows and targets do not pair up; anything without a length is left to the checks that follow."""
    lengths = [a.shape[0] if getattr(a, "shape", ()) else len(a) if isinstance(a, (list, tuple)) else None for a in (X, y)]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(f"X has {lengths[0]} rows, but y has {lengths[1]}; give one target for each row of X")
