"""KernelSoSConditional: the density of y given x, by a regressor that a kernel sum of squares corrects, or from a joint density."""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._deadline import Deadline
from ksos._progress import shown
from ksos._validation import as_choice, as_count, as_features, as_levels, as_masses, as_points, as_positive, as_vector, require_numbers
from ksos.density import SoSDensity
from ksos.density.mixture import SoSMixture
from ksos.estimators._checks import require_order
from ksos.estimators._conditional_conformal import SplitConformal
from ksos.estimators._conditional_default import location_regressors, require_no_dates, scale_regressors, scale_trees
from ksos.estimators._conditional_far import FeatureRange
from ksos.estimators._conditional_joint import JointLaws
from ksos.estimators._conditional_laws import ConditionalLaws
from ksos.estimators._conditional_regression import Choices, fit_regression, row_splits
from ksos.estimators._samples import as_generator, check_folds, mean_score, require_inside
from ksos.estimators.search import KernelSoSDensityCV
from ksos.feature_names import as_row, column_names, is_table
from ksos.measures import Measure

__all__ = ["KernelSoSConditional"]

METHODS = ("density", "conformal")


class KernelSoSConditional(RegressorMixin, BaseEstimator):
    r"""The density of y given x: any regressor, and a kernel sum of squares for what it leaves.

    p(y | x) = q((y − μ(x))/s(x) | z(x))/s(x). μ is a regressor, s the scale of its residuals, q the density of the scaled residual u that
    the search of :class:`~ksos.KernelSoSDensityCV` finds, alone or given a few features z. All three are judged on rows that the models
    have not seen: μ and s are cross-fitted, and the residuals that make q are those of held-out rows. A wide Student law takes part in q,
    with the share that held-out residuals give it. The law is normalised and its quantiles do not cross, both by construction.

    Parameters
    ----------
    regressor : regressor, list of regressors, "joint", or None
        The location. Several share the prediction by held-out squared error. Default: scikit-learn's histogram gradient boosting, a ridge
        and a Gaussian process. A fitted regressor is used as it is with ``prefit=True`` or in a ``FrozenEstimator``. "joint": no
        regressor; p(y | x) = p(x, y)/p(x) of one joint density, for few features.
    scale : regressor, list of regressors, "constant", or None
        For log|y − μ(x)|. Held-out likelihood says how much of each counts, a constant included. Default: histogram gradient boosting, a
        ridge, and small trees over the prediction.
    given : {"auto", "prediction", None} or sequence of column numbers
        What the shape of q depends on. "auto": nothing, the prediction, or one of the two columns with which u goes most, by held-out
        likelihood.
    estimator : density estimator, optional
        Of the scaled residuals, or of the rows (x, y) with "joint". Default: ``KernelSoSDensityCV()``, with "joint" without a reference.
    cv : int, splitter or list of (train, test), optional
        Folds of the cross-fitting. Default: 5; 10 for at most 100 rows. Equal rows stay together.
    prefit : bool
        Whether ``regressor`` is fitted already: the residuals are then those of the data given, which it must not have seen.
    objective, measure
        Of the default estimator with "joint".
    time_limit : float, optional
        Seconds for the fit. One fit of a regressor is never cut short.
    random_state : int, RandomState or None
        For the folds. None: the same every time; with "joint", what the estimator says.

    Attributes
    ----------
    residual_estimator_ : the fitted density estimator of u, with its certificate in ``best_estimator_.solution_``
    residual_density_ : SoSMixture
        q, the wide law included; where it depends on z, the joint density of (z, u) without the wide law.
    residuals_ : ndarray
        u of the rows, (n,) or (n, outputs), each by models that have not seen the row.
    held_out_predictions_ : ndarray
        μ of the rows, (n,) or (n, outputs), each by regressors that have not seen the row; NaN where a row was never held out.
    location_shares_ : ndarray
        Of every regressor in μ, (regressors, outputs).
    scale_shares_ : ndarray
        The exponents β of every model of the scale, (models, outputs); all zero: the scale is constant.
    tail_share_ : float
        Of the wide law in q.
    given_ : None, "prediction" or tuple of column numbers
    estimator_, distribution_
        With "joint": the fitted estimator and the joint density of (x, y).
    n_outputs_ : int
    n_features_in_, feature_names_in_

    Notes
    -----
    New rows are predicted by regressors refitted to all rows, while the residuals come from fits to the part without a fold: the law is
    therefore that of slightly worse predictions, and its intervals err on the wide side.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(200, 1))
    >>> y = X[:, 0] + 0.2 * rng.normal(size=200)
    >>> est = KernelSoSConditional(LinearRegression(), given=None).fit(X, y)
    >>> mean, std = est.predict([[-0.5], [0.5]], return_std=True)
    >>> bool(abs(mean[1] - mean[0] - 1.0) < 0.1), bool(abs(std[0] - 0.2) < 0.05)
    (True, True)
    >>> est.predict_quantile([[0.5]], [0.1, 0.5, 0.9]).shape
    (1, 3)
    """

    _laws: ConditionalLaws
    _conformal: SplitConformal | None
    _target_names: tuple[str, ...] | None
    _range: FeatureRange

    def __init__(
        self, regressor: Any = None, scale: Any = None, *, given: Any = "auto", estimator: Any = None, cv: Any = None, prefit: bool = False,
        objective: str | None = None, measure: Measure | None = None, time_limit: float | None = None, random_state: Any = None,
    ) -> None:  # fmt: skip
        self.regressor, self.scale, self.given, self.estimator, self.cv, self.prefit = regressor, scale, given, estimator, cv, prefit
        self.objective, self.measure, self.time_limit, self.random_state = objective, measure, time_limit, random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # score is a log-density, which need not be near 1
        if not self._joint:
            inner = [] if self.regressor is None else self.regressor if isinstance(self.regressor, (list, tuple)) else [self.regressor]
            tags.input_tags.allow_nan = all(get_tags(one).input_tags.allow_nan for one in inner if hasattr(one, "fit"))
        return tags

    @property
    def _joint(self) -> bool:
        return isinstance(self.regressor, str) and self.regressor == "joint"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the laws to the rows of ``X`` (n, d) and ``y`` (n,) or (n, outputs), weighted by ``sample_weight``.

        Ctrl-C while a density is fitted stores the best so far and is raised again.
        """
        if y is None:
            raise ValueError("fit requires y to be passed, but the target y is None; give an array of shape (n,) or (n, outputs)")
        _require_length(X, y)
        self._target_names = _names_of(y)
        with shown(type(self).__name__):
            (self._fit_joint if self._joint else self._fit_regression)(X, require_numbers(y, "y"), sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The conditional mean E[y | x], shape (n,) or (n, outputs); with ``return_std`` also the conditional standard deviation."""
        mean, deviation = self._fitted_laws().moments(self._conditions(X))
        if self._flat:
            mean, deviation = mean[:, 0], deviation[:, 0]
        return (mean, deviation) if return_std else mean

    def predict_quantile(self, X: Any, q: Any) -> np.ndarray:
        """y with P(y' ≤ y | x) = q: shape (n,) for one level ``q``, (n, levels) for several, and a last axis for several outputs.

        For every x it does not decrease in q, exactly. Of several outputs, each has its own quantiles. Levels 0 and 1 give the boundary of
        the measure, −inf and +inf if there is none.
        """
        given = as_levels(q)
        values = self._fitted_laws().quantile(self._conditions(X), np.atleast_1d(given))
        values = values[:, :, 0] if self._flat else values
        return values[:, 0] if given.ndim == 0 else values

    def predict_interval(self, X: Any, level: float = 0.9, method: str = "density") -> np.ndarray:
        """An interval for y at every row, shape (n, 2) or (n, 2, outputs): lower and upper ends.

        Parameters
        ----------
        level : float
            The probability that the interval is to hold, in (0, 1).
        method : {"density", "conformal"}
            "density": the quantiles at (1 ∓ level)/2 of the law at x. "conformal": the same, widened to hold
            the split conformal interval, of models that have not seen the first fold and are calibrated on it. If its rows and a new one
            are exchangeable, the new y lies inside with probability at least ``level``, on average over the data and over x, whatever the
            law is. Sample weights void that, and so does a ``prefit`` regressor that has seen the rows.
        """
        level, laws = as_positive(level, "level"), self._fitted_laws()
        if level >= 1.0:
            raise ValueError(f"level must be less than 1; got {level!r}")
        X, method = self._conditions(X), as_choice(method, "method", METHODS)
        central = laws.quantile(X, np.array([0.5 * (1.0 - level), 0.5 * (1.0 + level)]))
        if method == "density":
            found = central
        else:
            if self._conformal is None:
                why = "needs a regressor; this is the joint way" if self._joint else "was not calibrated: the fit was cut short"
                raise ValueError(f"method='conformal' {why}; use method='density'")
            split = self._conformal.interval(X, level)
            found = np.stack([np.minimum(split[:, 0], central[:, 0]), np.maximum(split[:, 1], central[:, 1])], axis=1)
        return found[:, :, 0] if self._flat else found

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """log p(y_i | x_i) for every row, shape (n,); −inf where the density vanishes. Without ``y``: at the conditional mean."""
        laws = self._fitted_laws()
        if y is not None:
            return laws.logpdf(*self._rows(X, y))
        X = self._conditions(X)  # scikit-learn's callers of score_samples know of no y
        return laws.logpdf(X, laws.moments(X)[0])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The mean conditional log-density log p(y_i | x_i), weighted by ``sample_weight``; not R²."""
        return mean_score(self._fitted_laws().logpdf(*self._rows(X, y)), sample_weight)

    def pdf(self, X: Any, y: Any = None, *, grid: Any = None) -> np.ndarray:
        """p(y_i | x_i) for every row, shape (n,); or p(grid_j | x_i) for every pair, shape (n, number of values in ``grid``)."""
        laws = self._fitted_laws()
        logs = laws.logpdf(*self._rows(X, y)) if _one_of(y, grid) else laws.grid_logpdf(self._conditions(X), self._targets(grid, "grid"))
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(logs)

    def cdf(self, X: Any, y: Any = None, *, grid: Any = None) -> np.ndarray:
        """P(y' ≤ y_i | x_i) for every row: uniform on [0, 1] for data that follow the model; or at every value of ``grid``, (n, values).

        Of several outputs each has its own distribution function, shape (n, outputs); a grid is for one output.
        """
        laws = self._fitted_laws()
        if _one_of(y, grid):
            found = laws.cdf(*self._rows(X, y))
            return found[:, 0] if self._flat else found
        if self.n_outputs_ != 1:
            raise ValueError(f"grid is for a single output, but {self.n_outputs_} were fitted; give y, one row for each of X")
        return laws.grid_cdf(self._conditions(X), self._targets(grid, "grid")[:, 0])

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """``n_samples`` independent draws of y for every row of ``X``, shape (n, n_samples) or (n, n_samples, outputs)."""
        laws, count = self._fitted_laws(), as_count(n_samples, "n_samples", minimum=0)
        out = laws.sample(self._conditions(X), count, as_generator(random_state))
        return out[:, :, 0] if self._flat else out

    def at(self, x: Any) -> SoSDensity | SoSMixture:
        """The law of y at one row ``x``, with every method of a density, under the target's name.

        A row is a vector, a table of one row, or {column: value} as a mapping or a series; values may be text where columns are.
        """
        laws = self._fitted_laws()
        X = self._conditions(as_row(x, vars(self).get("feature_names_in_")))
        if X.shape[0] != 1:
            raise ValueError(f"x must be one row; got {X.shape[0]}; the other methods take many")
        return laws.at(X).with_feature_names(self._target_names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density to a file of numbers that :func:`ksos.load` reads: the joint one, or that of the scaled residuals.

        The regressors are not in it: they are scikit-learn's objects, for which there is only pickle, and a pickle can run any code when
        it is read. Keep them with ``joblib.dump(est, …)`` and read such a file only if you trust where it comes from.
        """
        self._fitted_laws().save(path)

    # --- fitting ---

    def _fit_joint(self, X: Any, y: Any, sample_weight: Any) -> None:
        joint = self._joint_estimator()
        X, y = validate_data(self, require_numbers(X), y, dtype=np.float64, order="C", multi_output=True, y_numeric=True)
        targets = self._set_targets(y)
        rows = np.concatenate([X, targets], axis=1)
        try:
            if isinstance(joint, KernelSoSDensityCV):
                joint._fit(rows, sample_weight, slice(X.shape[1]))
            else:
                joint.fit(rows, sample_weight=sample_weight)
        finally:  # Ctrl-C is raised with the best density so far in place
            fitted = vars(joint).get("distribution_")
            if isinstance(fitted, SoSDensity):
                self.estimator_, self.distribution_ = joint, fitted
                self._laws, self._conformal = JointLaws(fitted, X.shape[1]), None
        if not isinstance(fitted, SoSDensity):
            raise TypeError(
                "estimator must fit a kernel sum of squares, as ksos.KernelSoSDensity and ksos.KernelSoSDensityCV do; "
                f"got {self.estimator!r}, which has no distribution_ after its fit"
            )

    def _joint_estimator(self) -> Any:
        handed_on = self._handed_on()
        if self.estimator is None:
            objective = "likelihood" if self.objective is None else self.objective
            return KernelSoSDensityCV(objective=objective, measure=self.measure, reference=None, **handed_on)
        if self.objective is not None or self.measure is not None:
            name = "measure" if self.objective is None else "objective"
            raise ValueError(f"{name} is for the default estimator; with an estimator of your own, set it there")
        _require_fit(self.estimator, "estimator", "a density estimator such as ksos.KernelSoSDensity()")
        return clone(self.estimator).set_params(**handed_on)

    def _handed_on(self) -> dict[str, Any]:
        handed_on = {"time_limit": self.time_limit, "random_state": self.random_state}
        return {name: value for name, value in handed_on.items() if value is not None}

    def _fit_regression(self, X: Any, y: Any, sample_weight: Any) -> None:
        deadline = Deadline.of(self.time_limit)
        self._check_parameters()
        X = self._table(X, reset=True)
        self._range = FeatureRange.of(X, vars(self).get("feature_names_in_"))
        y = y if is_table(y) else np.asarray(y)
        y = as_vector(y, "y") if np.ndim(y) < 2 else as_points(y, "y")
        targets, rng = self._set_targets(y), as_generator(0 if self.random_state is None else self.random_state)
        masses = as_masses(sample_weight, targets.shape[0])
        _require_varying(targets[masses > 0.0])
        splits = row_splits(self.cv, X, targets, masses, rng)
        choices = self._choices(X, targets.shape[0], int(rng.integers(2**31)))
        found = fit_regression(choices, X, targets, masses, splits, rng, deadline)
        self._laws, self._conformal = found.laws, found.conformal
        self.residual_estimator_, self.given_ = found.estimator, found.given
        shape = found.laws.shape
        self.residual_density_ = shape.law if shape.knots is None else shape.core
        self.residuals_, self.held_out_predictions_ = (a[:, 0] if self._flat else a for a in (found.residuals, found.predictions))
        self.tail_share_ = found.tail_share
        self.scale_shares_ = np.stack([scale.says for scale in found.placement.scales], axis=1)
        self.location_shares_ = found.placement.location.shares if choices.prefit is None else np.ones((1, self.n_outputs_))
        if found.interrupt is not None:
            raise found.interrupt

    def _check_parameters(self) -> None:
        check_folds(self.cv)
        for name in ("objective", "measure"):
            if getattr(self, name) is not None:
                raise ValueError(f"{name} is for regressor='joint'; leave it out, or set it in an estimator of your own")
        if isinstance(self.given, str):
            as_choice(self.given, "given", ("auto", "prediction"), otherwise=", None or column numbers")
        if self.estimator is not None:
            _require_fit(self.estimator, "estimator", "a density estimator such as ksos.KernelSoSDensityCV()")

    def _choices(self, X: Any, n: int, seed: int) -> Choices:
        prefit = None
        if self.prefit or isinstance(self.regressor, FrozenEstimator):
            _require_fit(self.regressor, "regressor", "a fitted regressor, with prefit=True")
            check_is_fitted(self.regressor)
            prefit = self.regressor
        if self.regressor is None or self.scale is None:
            require_no_dates(X)
        defaults = scale_regressors(X, n, seed)
        constant = isinstance(self.scale, str) and self.scale == "constant"
        scales = [] if constant else _as_list(self.scale, "scale", "a regressor, 'constant' or None", defaults)
        estimator = KernelSoSDensityCV() if self.estimator is None else self.estimator
        given = self.given if self.given is None or isinstance(self.given, str) else tuple(as_features(self.given, X.shape[1], "given"))
        locations = (
            []
            if prefit is not None
            else _as_list(self.regressor, "regressor", "a regressor, 'joint' or None", location_regressors(X, n, seed))
        )
        return Choices(locations, prefit, scales, scale_trees(None, n, seed) if self.scale is None else None, estimator, given)

    def _set_targets(self, y: np.ndarray) -> np.ndarray:
        self._flat = y.ndim == 1
        targets = as_points(y[:, None] if y.ndim == 1 else y, "y")
        self.n_outputs_ = targets.shape[1]
        return targets

    # --- what is asked ---

    def _fitted_laws(self) -> ConditionalLaws:
        check_is_fitted(self, "_laws")
        return self._laws

    def _table(self, X: Any, *, reset: bool) -> Any:
        """``X`` as the regressors get it: tables stay tables, all else becomes an array of floats, in which NaN is missing."""
        if hasattr(X, "iloc"):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if X.shape[0] == 0 or X.shape[1] == 0:
                raise ValueError(f"Found array with {X.shape[0]} sample(s) and {X.shape[1]} feature(s) while a minimum of 1 is required.")
            return X
        finite = "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
        return validate_data(self, require_numbers(X), dtype=np.float64, order="C", ensure_all_finite=finite, reset=reset)

    def _conditions(self, X: Any) -> Any:
        require_order(self, X)
        if not self._joint:
            X = self._table(X, reset=False)
            self._range.warn_if_far(X)
            return X
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C", reset=False)
        require_inside(self.distribution_.measure.restrict(list(range(X.shape[1]))), X, np.ones(X.shape[0]))
        return np.asarray(X)

    def _targets(self, y: Any, name: str = "y") -> np.ndarray:
        if y is None:
            raise ValueError(f"y must be given, of {self.n_outputs_} output{'s' * (self.n_outputs_ > 1)} for each row of X; got None")
        values = as_vector(y, name)[:, None] if self._flat and np.ndim(y) < 2 else as_points(y, name)
        if values.shape[1] != self.n_outputs_:
            raise ValueError(f"{name} has {values.shape[1]} outputs, but {self.n_outputs_} were fitted")
        return values

    def _rows(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        _require_length(X, y)
        return self._conditions(X), self._targets(y)


def _names_of(y: Any) -> tuple[str, ...] | None:
    """Of the columns of a table, or of a series."""
    if is_table(y):
        return column_names(y, "y")
    name = getattr(y, "name", None)
    return (name,) if isinstance(name, str) else None


def _one_of(y: Any, grid: Any) -> bool:
    """Whether y was given; raise if grid was, too."""
    if y is not None and grid is not None:
        raise ValueError("give either y, one for each row of X, or grid, values that are the same for all rows; got both")
    return grid is None


def _as_list(given: Any, name: str, wanted: str, default: list[Any]) -> list[Any]:
    """A regressor or several of them, each with the methods of one."""
    if given is None:
        return default
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    for one in found:
        _require_fit(one, name, wanted)
    if not found:
        raise ValueError(f"{name} must hold at least one regressor; got {given!r}")
    return found


def _require_fit(one: Any, name: str, wanted: str) -> None:
    if not hasattr(one, "fit") or isinstance(one, type):
        raise TypeError(f"{name} must be {wanted}; got {one!r}")


def _require_varying(targets: np.ndarray) -> None:
    """Raise on an output that never changes: it has no density."""
    if targets.shape[0] < 2:
        return  # the folds say it better
    still = np.flatnonzero(np.ptp(targets, axis=0) == 0.0)
    if still.size:
        raise ValueError(
            f"output {int(still[0])} of y is constant, {targets[0, still[0]]:g} in all {targets.shape[0]} rows: it has no density given X; "
            "leave it out"
        )


def _require_length(X: Any, y: Any) -> None:
    """Raise when rows and targets do not pair up; anything without a length is left to the checks that follow."""
    lengths = [a.shape[0] if getattr(a, "shape", ()) else len(a) if isinstance(a, (list, tuple)) else None for a in (X, y)]
    if None not in lengths and lengths[0] != lengths[1]:
        raise ValueError(f"X has {lengths[0]} rows, but y has {lengths[1]}; give one target for each row of X")
