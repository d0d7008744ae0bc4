"""KernelSoSConditional: the density of y given x, around any regressor or from a joint density."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.utils import Tags, _safe_indexing
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.choose.location import (
    FEW_ROWS,
    Location,
    LocationScale,
    SplitConformal,
    called,
    cross_fit,
    evaluate,
    fit_conformal,
    fit_scales,
    warn_of_weights,
)
from ksos.choose.shape import Transform, fit_shape, log_is_better
from ksos.data import (
    Checks,
    Learned,
    Split,
    as_table,
    check_folds,
    forget,
    learn,
    learn_target,
    mean_score,
    remember,
    row_splits,
)
from ksos.density import Column, Columns, SoSDensity, TableDensity
from ksos.estimators.base import CallbackSupportMixin, told_to_callbacks
from ksos.estimators.conditional_distributions import (
    AtomDistributions,
    Distributions,
    JointDistributions,
    LevelDistributions,
    ResidualDistributions,
    codes_of,
)
from ksos.estimators.regressors import (
    classifiers,
    for_cells,
    holds_pipeline,
    location_regressors,
    scale_regressors,
    scale_trees,
)
from ksos.estimators.search import KernelSoSDensityCV
from ksos.ground import (
    MANY_ROWS,
    Run,
    Steps,
    as_choice,
    as_count,
    as_features,
    as_generator,
    as_levels,
    as_masses,
    as_points,
    as_positive,
    as_row,
    as_vector,
    available_if,
    few_threads,
    is_table,
    known_table,
    require_complete,
    require_numbers,
    require_order,
    require_pairs,
    require_varying,
    said,
    target_names,
    warn_caller,
)
from ksos.measures import Measure

METHODS = ("density", "conformal")
TRANSFORMS = ("auto", "log", "asinh")

_PERFECT = 1e-7  # Of the standard deviation of y: residuals below it are rounding.
_COSTS = (9.0, 1.0, 2.0, 4.0)  # shares of time of the four steps of a fit, for the progress bar
_GAPS = (
    "trees take them as a value of its own, other regressors as the median or mean of the training"
    " rows (missing='model')"
)
_FAR = 2.0  # Ranges of a feature beyond its ends: the default regressors are flat or linear there.


# Raise AttributeError unless the fit is to a categorical target.
def _has_levels(estimator: Any) -> bool:
    check_is_fitted(estimator, "_distributions")
    if estimator._target is None or estimator._target.is_numeric:
        raise AttributeError(
            "y is a column of numbers; predict_proba is for text, flags and categories, and for"
            " columns={'y': 'categorical'}"
        )
    return True


class KernelSoSConditional(CallbackSupportMixin, RegressorMixin, BaseEstimator):
    r"""Estimate the distribution of y given x, around any regressor.

    p(y | x) = q((y − μ(x))/s(x))/s(x), with regressors for μ and s, and q the density of the
    scaled residual. A categorical y has probabilities of its levels, from a stack of classifiers.

    Parameters
    ----------
    regressor : regressor, list of these or "joint", optional
        The location. Default: gradient boosting, a ridge and a Gaussian process, weighted by
        held-out error. "joint" conditions one density of (x, y). For a categorical y: classifiers.
    scale : regressor, list of these or "constant", optional
        For log|y − μ(x)|, if they improve the held-out likelihood.
    given : {"auto", "prediction", None} or columns, default="auto"
        What the shape of q depends on. "auto" chooses by held-out likelihood.
    transform : {"auto", "log", "asinh", None}, default="auto"
        Answers are in the units of y.
    estimator : density estimator, optional
        Of q, or of the joint density. Default: ``KernelSoSDensityCV()``.
    cv : int, splitter or list of (train, test), optional
        Folds. Default: 5, or 10 for at most 100 rows.
    prefit : bool, default=False
        Whether ``regressor`` is fitted already.
    columns : dict, default=None
        Kinds of columns of X, and of y by its name or "y", as in :class:`KernelSoSDensityCV`.
    missing : {"model", "drop", "raise"}, default="model"
        What to do about missing cells of X.
    unseen : {"raise", "missing"}, default="raise"
        What to do about new levels.
    objective, measure : default=None
        For "joint".
    time_limit : float, default=None
        Seconds for the fit.
    random_state : int, RandomState or None, default=None
        Seed of the folds.

    Attributes
    ----------
    residual_estimator_ : density estimator
        The fitted estimator of q, with its certificate.
    residual_density_ : SoSDensity
        q, or joint with what its shape depends on.
    residuals_, held_out_predictions_ : ndarray
        Of rows that models have not seen.
    location_shares_, scale_shares_ : ndarray
        Weights of regressors, exponents of scales.
    given_, transform_
        The choices.
    classes_, target_names_
        Levels of a categorical y, and names of its columns.
    estimator_, distribution_
        With "joint": the fitted estimator and its density.

    Examples
    --------
    >>> X = np.linspace(-1.0, 1.0, 100)[:, None]
    >>> y = X[:, 0] + 0.1 * np.sin(40.0 * X[:, 0])
    >>> est = KernelSoSConditional(given=None).fit(X, y)
    >>> est.predict([[0.5]]).round(1)
    array([0.5])
    """

    _distributions: Distributions
    _conformal: SplitConformal | None
    target_names_: tuple[str, ...] | None
    _columns: Columns | None
    _target: Column | None
    _range: _FeatureRange

    def __init__(
        self,
        regressor: Any = None,
        scale: Any = None,
        *,
        given: Any = "auto",
        transform: str | None = "auto",
        estimator: Any = None,
        cv: Any = None,
        prefit: bool = False,
        columns: Any = None,
        missing: str = "model",
        unseen: str = "raise",
        objective: str | None = None,
        measure: Measure | None = None,
        time_limit: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.regressor, self.scale, self.given, self.transform = regressor, scale, given, transform
        self.estimator, self.cv, self.prefit = estimator, cv, prefit
        self.columns, self.missing, self.unseen = columns, missing, unseen
        self.objective, self.measure = objective, measure
        self.time_limit, self.random_state = time_limit, random_state

    # scikit-learn takes whatever has an attribute ``transform`` for a transformer, so that this
    # parameter is one of get_params and set_params alone.

    @property
    def transform(self) -> Any:
        raise AttributeError(
            "the transform of the targets is get_params()['transform'], and after fit transform_"
        )

    @transform.setter
    def transform(self, value: Any) -> None:
        vars(self)["transform"] = value  # type: ignore[index]

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return [name for name in super()._get_param_names() if name != "transform"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters of this estimator, and with ``deep`` of those it holds."""
        return super().get_params(deep) | {"transform": vars(self)["transform"]}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # a log-density, which need not be near 1
        tags.input_tags.allow_nan = not self._joint and self.missing != "raise"
        return tags

    @property
    def _joint(self) -> bool:
        return isinstance(self.regressor, str) and self.regressor == "joint"

    @property
    def _prefit(self) -> bool:
        return bool(self.prefit) or isinstance(self.regressor, FrozenEstimator)

    @told_to_callbacks
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to rows ``X`` (n, d) and targets ``y`` (n,) or (n, outputs).

        Text, flags and categories are categorical, in X and in y. Rows without a target are
        dropped, with a warning. Ctrl-C while a density is fitted stores the best so far and is
        raised again.
        """
        if y is None:
            raise ValueError(
                "fit requires y to be passed, but the target y is None; give an array of shape "
                "(n,) or (n, outputs)"
            )
        X = known_table(X)
        require_pairs(X, y)
        transform = vars(self)["transform"]
        if transform is not None:
            as_choice(transform, "transform", TRANSFORMS, otherwise=" or None")
        if transform not in ("auto", None) and (self._joint or self._prefit):
            raise ValueError(
                f"transform={transform!r} needs a regressor that is fitted here; with 'joint' or "
                "prefit, transform y yourself"
            )
        self.target_names_ = target_names(y)
        # what is between the regressors is small work as well
        rows = MANY_ROWS if self._joint else np.asarray(y).size
        with Run(None, type(self).__name__), few_threads(rows):
            fit = self._fit_joint if self._joint else self._fit_regression
            fit(X, y, sample_weight)
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Conditional mean E[y | x], (n,) or (n, outputs). With ``return_std`` also the standard
        deviation.

        With a transform of the targets, levels below 1/(2n) and above 1 − 1/(2n), n being the
        number of residuals, count as these two: the mean of exp(u) is infinite for heavy tails.

        Of a categorical y: the most probable level.
        """
        if isinstance(self._fitted(), LevelDistributions) and not return_std:
            return self.classes_[self.predict_proba(X).argmax(axis=1)]
        mean, std = map(self._as_y, self._fitted().moments(self._rows(X)))
        return (mean, std) if return_std else mean

    @available_if(_has_levels)
    def predict_proba(self, X: Any) -> np.ndarray:
        """P(y = level | x) of a categorical y, (n, levels), in the order of ``classes_``."""
        return self._rows(X)[0]

    def predict_quantile(self, X: Any, q: Any) -> np.ndarray:
        """y with P(y' ≤ y | x) = q: (n,) for one level ``q``, (n, levels) for several.

        It does not decrease in q, exactly. Of several outputs, each has its own quantiles, in a
        last axis. Levels 0 and 1 give the ends of the support.
        """
        given = as_levels(q)
        values = self._as_y(self._fitted().quantile(self._rows(X), np.atleast_1d(given)))
        return values[:, 0] if given.ndim == 0 else values

    def predict_interval(self, X: Any, level: float = 0.9, method: str = "density") -> np.ndarray:
        """Interval for y at every row, (n, 2) or (n, 2, outputs).

        Parameters
        ----------
        level : float, default=0.9
            The probability that the interval is to hold, in (0, 1).
        method : {"density", "conformal"}, default="density"
            "density" takes the quantiles at (1 ∓ level)/2. "conformal" widens them to hold the
            split conformal interval of models that have not seen the first fold and are calibrated
            on it. If its rows and a new one are exchangeable, the new y lies inside with
            probability at least ``level``, on average over the data and over x, for any
            distribution. Sample weights void that, and so does a ``prefit`` regressor that has
            seen the rows.
        """
        level, distributions = as_positive(level, "level"), self._fitted()
        if level >= 1.0:
            raise ValueError(f"level must be less than 1; got {level!r}")
        X, levels = self._conditions(X), np.array([0.5 * (1.0 - level), 0.5 * (1.0 + level)])
        found = distributions.quantile(distributions.place(X), levels)
        if as_choice(method, "method", METHODS) == "conformal":
            if self._conformal is None:
                cut = "was not calibrated: the fit was cut short, or values of y have masses"
                why = "needs a regressor; this is a joint density" if self._joint else cut
                raise ValueError(f"method='conformal' {why}; use method='density'")
            split = distributions.transform.inverse(  # type: ignore[union-attr]
                self._conformal.interval(X, level)
            )
            ends = np.minimum(split[:, 0], found[:, 0]), np.maximum(split[:, 1], found[:, 1])
            found = np.stack(ends, axis=1)
        return self._as_y(found)

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """log p(y_i | x_i) for every row, (n,), −inf where the density vanishes. Without ``y``: at
        the conditional mean."""
        if y is not None:
            require_pairs(X, y)
        distributions, rows = self._fitted(), self._rows(X)
        # scikit-learn's callers of score_samples have no y
        targets = distributions.moments(rows)[0] if y is None else self._targets(y)
        return distributions.logpdf(rows, targets)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean conditional log-density, weighted by ``sample_weight``. It is not R²."""
        return mean_score(self._at_targets("logpdf", X, y, None), sample_weight)

    def pdf(self, X: Any, y: Any = None, *, grid: Any = None) -> np.ndarray:
        """p(y_i | x_i) for every row, (n,), or p(grid_j | x_i) for every pair, (n, values)."""
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(self._at_targets("logpdf", X, y, grid))

    def cdf(self, X: Any, y: Any = None, *, grid: Any = None) -> np.ndarray:
        """P(y' ≤ y_i | x_i) for every row, or at every value of ``grid``, (n, values).

        It is uniform on [0, 1] for data that follow the model. Of several outputs each has its own
        distribution function, (n, outputs), and a grid is for one output.
        """
        self._fitted()
        if grid is not None and self.n_outputs_ != 1:
            raise ValueError(
                f"grid is for a single output, but {self.n_outputs_} were fitted; give y, one row "
                "for each of X"
            )
        found = self._at_targets("cdf", X, y, grid)
        return found[..., 0] if grid is not None else self._as_y(found)

    def crps(self, X: Any, y: Any) -> np.ndarray:
        """Continuous ranked probability score of y_i under p(· | x_i), (n,) or (n, outputs).

        It is ∫ (P(y' ≤ t | x_i) − 1[t ≥ y_i])² dt, exact, in the unit of y. Smaller is better.
        Several outputs have one score each. With a transform of the targets, extreme levels count
        as in :meth:`predict`.
        """
        return self._as_y(self._at_targets("crps", X, y, None))

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Independent draws of y for every row, (n, n_samples) or (n, n_samples, outputs)."""
        count = as_count(n_samples, "n_samples", minimum=0)
        rng = as_generator(random_state)
        drawn = self._as_y(self._fitted().sample(self._rows(X), count, rng))
        return (
            self.classes_[drawn] if isinstance(self._distributions, LevelDistributions) else drawn
        )

    def at(self, x: Any) -> Any:
        """Distribution of y at one row ``x``, under the target's name.

        It is a density with all of its methods; of a categorical y, a :class:`ksos.TableDensity`
        of one column, whose ``probabilities`` are those of the levels. With a transform, it is the
        distribution of the transformed density and has pdf, logpdf, cdf, ppf, rvs, mean, var, std,
        interval and support. A row is a vector, a table of one row, or {column: value} as a mapping
        or a series.
        """
        distributions = self._fitted()
        rows = self._rows(as_row(x, vars(self).get("feature_names_in_")))
        if rows[0].shape[0] != 1:
            raise ValueError(f"x must be one row; got {rows[0].shape[0]}; other methods take many")
        found: Any = distributions.at(rows)
        return (
            found
            if isinstance(found, TableDensity)
            else found.with_feature_names(self.target_names_)
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole estimator, regressors included, to a file that :func:`ksos.load` reads.

        The format is that of ``skops.io``, which runs nothing of a file when it is read. Regressors
        must consist of classes that skops can store, as those of scikit-learn do.
        """
        from ksos.estimators.conditional_file import save_conditional

        self._fitted()
        save_conditional(self, path)

    def _fit_joint(self, X: Any, y: Any, sample_weight: Any) -> None:
        joint = self._joint_estimator()
        if self.columns is not None or self.missing != "model":
            raise ValueError(
                "columns and missing are for regressors; a joint density of any columns is that of"
                " ksos.KernelSoSDensityCV(columns=…), with conditional and probabilities"
            )
        self._columns = self._target = None
        X, y = validate_data(
            self,
            require_numbers(X),
            require_numbers(y, "y"),
            dtype=np.float64,
            order="C",
            multi_output=True,
            y_numeric=True,
        )
        rows = np.concatenate([X, self._set_targets(y)], axis=1)
        try:
            if isinstance(joint, KernelSoSDensityCV):
                joint._fit(rows, sample_weight, slice(X.shape[1]))
            else:
                joint.fit(rows, sample_weight=sample_weight)
        finally:  # Ctrl-C is raised with the best density so far in place
            fitted = vars(joint).get("distribution_")
            if isinstance(fitted, SoSDensity):
                self.estimator_, self.distribution_, self.transform_ = joint, fitted, None
                self._distributions = JointDistributions(fitted, X.shape[1])
                self._conformal = None
        if not isinstance(fitted, SoSDensity):
            raise TypeError(
                "with 'joint', estimator must fit a kernel sum of squares by volume, as "
                "KernelSoSDensity() and KernelSoSDensityCV(reference=None) do; got "
                f"{self.estimator!r}"
            )

    def _joint_estimator(self) -> Any:
        given = {"time_limit": self.time_limit, "random_state": self.random_state}
        given = {name: value for name, value in given.items() if value is not None}
        if self.estimator is None:
            objective = "likelihood" if self.objective is None else self.objective
            return KernelSoSDensityCV(
                objective=objective, measure=self.measure, reference=None, **given
            )
        if self.objective is not None or self.measure is not None:
            name = "measure" if self.objective is None else "objective"
            raise ValueError(
                f"{name} is for the default estimator; with an estimator of your own, set it there"
            )
        _require_fit(self.estimator, "estimator", "an estimator such as ksos.KernelSoSDensity()")
        return clone(self.estimator).set_params(**given)

    def _fit_regression(self, X: Any, y: Any, sample_weight: Any) -> None:
        rng = as_generator(self.random_state or 0)
        with Run(self.time_limit) as run:
            self._check_parameters()
            X, targets, masses = self._read(X, y, sample_weight)
            self._range = _FeatureRange.of(X, vars(self).get("feature_names_in_"))
            numbers = self._columns is None and self._target is None
            splits = row_splits(self.cv, X, targets, masses, rng, FEW_ROWS, numbers)
            column, self._conformal = self._target, None
            if column is None or column.is_numeric:
                self._fit_numbers(run, X, targets, masses, splits, rng)
            else:
                self._fit_levels(column, X, targets, masses, splits, rng)
            late = run.over and not run.interrupted
        if late:
            message = (
                "the time limit came before the end of the fit; the distribution rests on what was "
                "fitted by then; raise time_limit"
            )
            warn_caller(ConvergenceWarning(message))
        if run.interrupted:
            raise KeyboardInterrupt("interrupted; the best density so far is kept")

    # Location, scale and the density of the scaled residual.
    def _fit_numbers(
        self,
        run: Run,
        X: Any,
        targets: np.ndarray,
        masses: np.ndarray,
        splits: list[Split],
        rng: np.random.Generator,
    ) -> None:
        column, seed, levels = self._target, int(rng.integers(2**31)), None
        if column is not None and (column.atoms or column.kind == "count"):
            codes = codes_of(column, targets)
            own = classifiers(self._columns, codes.shape[0], seed)
            levels = self._stack(column, own, X, codes, masses, splits)
            masses = np.where(codes[:, 0] == column.between, masses, 0.0)
            targets = targets + (rng.random(targets.shape) if column.kind == "count" else 0.0)
        require_varying(targets[masses > 0.0])
        found = self._regressors(X, targets.shape[0], seed)
        prefit, locations, of_x, of_prediction = found
        given, listed = self.given, () if self._columns is None else self._columns.listed
        if given is not None and not isinstance(given, str):
            given = tuple(as_features(given, X.shape[1], "given"))
            if odd := [listed[k].name for k in given if listed and not listed[k].is_numeric]:
                raise ValueError(
                    f"given names {odd[0]!r}, which has no order; name columns of numbers"
                )
        steps = Steps(_COSTS)
        steps.begin("location by cross-fitting")
        warn_of_weights([*locations, *of_x], masses)
        transform, location = self._locate(prefit, locations, X, targets, masses, splits)
        targets = transform.forward(targets)
        held = (masses > 0.0) & ~np.isnan(location.held_out[:, 0])
        # rows that were never held out have no residual, and count for nothing from here on
        masses = np.where(held, masses, 0.0)
        mu = np.where(held[:, None], location.held_out, 0.0)
        residuals = targets - mu
        floor = _PERFECT * np.maximum(targets[held].std(axis=0), 1e-300)
        perfect = np.flatnonzero(np.sqrt(np.mean(residuals[held] ** 2, axis=0)) <= floor)
        if perfect.size:
            warn_caller(
                f"the regressor predicts output {perfect[0]} of held-out rows without error: "
                f"the scale of its distribution is a floor, {_PERFECT:g} of the standard "
                "deviation of y"
            )
        steps.begin("scale of the residuals")
        scales, s = fit_scales(of_x, of_prediction, X, mu, residuals, masses, splits, floor)
        U = residuals / s
        steps.begin("conformal intervals")
        self._conformal = None
        if not run.over:
            self._conformal = fit_conformal(
                locations,
                of_x,
                of_prediction,
                location,
                X,
                targets,
                masses,
                splits,
                floor,
                rng,
            )
        steps.begin("density of the scaled residuals")
        estimator = KernelSoSDensityCV() if self.estimator is None else self.estimator
        # levels have no order
        numeric = np.where([one.is_numeric for one in listed], X, np.nan) if listed else X
        shape, estimator = fit_shape(estimator, U, masses, numeric, mu, given, rng)
        place = LocationScale(location, scales)
        self._distributions = ResidualDistributions(place, shape, transform)
        if levels is not None and column is not None:
            self._distributions = AtomDistributions(levels, self._distributions, column)
            self._conformal = None
        self.residual_estimator_, self.residual_density_ = estimator, shape.density
        self.given_ = None if shape.given is None else shape.given.name
        self.transform_ = transform.name  # type: ignore[assignment]
        self.residuals_ = self._as_y(np.where(held[:, None], U, np.nan))
        self.held_out_predictions_ = self._as_y(transform.inverse(location.held_out))
        self.scale_shares_ = np.stack([scale.exponents for scale in scales], axis=1)
        self.location_shares_ = location.shares

    # The transform of the targets, and the location in its units.
    def _locate(
        self,
        prefit: Any,
        regressors: list[Any],
        X: Any,
        targets: np.ndarray,
        masses: np.ndarray,
        splits: list[Split],
    ) -> tuple[Transform, Location]:
        if prefit is not None:
            mu = evaluate([prefit], X, targets.shape[1])
            return Transform(), Location(mu, np.ones((1, mu.shape[1])), [[[prefit]]], None)
        name, used = vars(self)["transform"], masses > 0.0
        if self._target is None:
            transform = Transform.of(None if name == "auto" else name, targets[used])
        elif name not in ("auto", None):
            raise ValueError(f"transform={name!r} and y is {self._target.kind!r}: give one of them")
        else:
            name, transform = None, Transform(self._target.kind, column=self._target)
        fit = X, transform.forward(targets), masses
        location = cross_fit(regressors, *fit, splits)
        if name == "auto" and np.all(targets[used] > 0.0) and np.count_nonzero(used) >= FEW_ROWS:
            # two folds of five decide, for less than half of the time of the location
            part = splits[:2] if targets.shape[0] > 100 else splits
            log = Transform("log")
            own = X, log.forward(targets), masses
            other = cross_fit(regressors, *own, part)
            both = location.held_out, log.inverse(other.held_out)
            if log_is_better(targets, *both, masses, part):
                transform, fit = log, own
                location = cross_fit(regressors, *fit, splits)
        return transform, location.refitted(regressors, *fit)

    def _check_parameters(self) -> None:
        check_folds(self.cv)
        for name in ("objective", "measure"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for regressor='joint'; drop it, or set it in an estimator of your "
                    "own"
                )
        if isinstance(self.given, str):
            as_choice(self.given, "given", ("auto", "prediction"), otherwise=", None or columns")
        if self.estimator is not None:
            wanted = "a density estimator such as ksos.KernelSoSDensityCV()"
            _require_fit(self.estimator, "estimator", wanted)

    # As given, or the default ones: one that is fitted already, or None, those of the location, and
    # those of the scale over x and over the prediction.
    def _regressors(self, X: Any, n: int, seed: int) -> tuple[Any, list[Any], list[Any], list[Any]]:
        prefit, locations = None, []
        if self._prefit:
            _require_fit(self.regressor, "regressor", "a fitted regressor, with prefit=True")
            check_is_fitted(self.regressor)
            prefit = for_cells(self.regressor, self._columns)
        else:
            defaults = location_regressors(self._columns, X.shape, seed)
            wanted = "a regressor, 'joint' or None"
            locations = self._listed(self.regressor, "regressor", wanted, defaults)
            if odd := next((one for one in locations if is_classifier(one)), None):
                raise TypeError(
                    f"y is a column of numbers, and {called(odd)} is a classifier; give a"
                    " regressor, or declare columns={'y': 'categorical'}"
                )
        if self.scale is None:
            scales = scale_regressors(self._columns, n, seed), [scale_trees(None, n, seed)]
            return prefit, locations, *scales
        if isinstance(self.scale, str) and self.scale == "constant":
            return prefit, locations, [], []
        wanted = "a regressor, 'constant' or None"
        return prefit, locations, self._listed(self.scale, "scale", wanted, []), []

    # One or several regressors, each with the methods of one.
    def _listed(self, given: Any, name: str, wanted: str, default: list[Any]) -> list[Any]:
        if given is None:
            return default
        found = _several(given)
        for one in found:
            _require_fit(one, name, wanted)
        if not found:
            raise ValueError(f"{name} must hold at least one regressor; got {given!r}")
        return [for_cells(one, self._columns) for one in found]

    # The classifiers of a categorical target, and their shares.
    def _fit_levels(
        self,
        target: Column,
        X: Any,
        codes: np.ndarray,
        masses: np.ndarray,
        splits: list[Split],
        rng: np.random.Generator,
    ) -> None:
        usual: dict[str, Any] = dict(
            scale=None, given="auto", estimator=None, prefit=False, transform="auto"
        )
        if odd := [name for name, value in usual.items() if vars(self)[name] != value]:
            raise ValueError(f"{', '.join(odd)}: for a target of numbers, and y is categorical")
        levels, wanted = target.levels, "a classifier with predict_proba, or None"
        default = classifiers(self._columns, codes.shape[0], int(rng.integers(2**31)))
        found = self._listed(self.regressor, "regressor", wanted, default)
        for one in found:
            if not (is_classifier(one) and hasattr(one, "predict_proba")):
                raise TypeError(f"y is categorical: regressor must be {wanted}; got {one!r}")
        if self.regressor is not None:
            found = [*default[:1], *found]  # the frequencies, so that no level is impossible
        warn_of_weights(found, masses)
        self._distributions = self._stack(target, found, X, codes, masses, splits)
        location = self._distributions.location
        self.location_shares_ = location.shares[:, :1]
        self.held_out_predictions_ = location.held_out
        self.classes_ = np.array(levels, dtype=object if len({*map(type, levels)}) > 1 else None)

    # The classifiers of a column whose ``codes`` are levels or atoms.
    def _stack(
        self, column: Column, found: list[Any], X: Any, codes: Any, masses: Any, splits: list[Split]
    ) -> LevelDistributions:
        fit, levels = (X, codes, masses), len(column.levels) or column.between + 1
        return LevelDistributions(
            cross_fit(found, *fit, splits, levels).refitted(found, *fit), column
        )

    # Rows for the regressors, targets (n, outputs), and masses, zero for rows that are dropped.
    def _read(self, X: Any, y: Any, sample_weight: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        as_choice(self.unseen, "unseen", ("raise", "missing"))
        names, declared, own = self.target_names_ or ("y",), self.columns, {}
        if isinstance(declared, Mapping):
            own = {name: kind for name, kind in declared.items() if [name] == list(names)}
            declared = {name: kind for name, kind in declared.items() if name not in own}
        learned = Learned([])
        if declared or self.missing != "model" or not self._takes_tables:
            learned = learn(X, declared, self.missing, modeled=_GAPS)
        self._columns, self._target = learned.columns, None
        used = None
        if learned.columns is None:
            X = self._table(X, reset=True)
        else:
            forget(self)
            remember(
                self, Checks("", n_features=learned.cells.shape[1], names=learned.columns.names)
            )
            X, used = learned.whole
        of_y = learn_target(y, names[0], own, "raise" if self.missing == "raise" else "drop")
        if of_y.columns is None:
            y = require_numbers(y if is_table(y) else np.asarray(y), "y")
            targets = self._set_targets(as_vector(y, "y") if np.ndim(y) < 2 else as_points(y, "y"))
        else:
            self._target = next((one for one in of_y.columns.listed if not one.is_plain), None)
            found, known = of_y.whole
            found[~known] = of_y.cells[0]
            targets = self._set_targets(found[:, 0] if np.ndim(y) == 1 or self._target else found)
            used = known if used is None else used & known
        for note in learned.notes + of_y.notes + of_y.hints:
            warn_caller(note)
        masses = as_masses(sample_weight, targets.shape[0])
        if used is not None and not (masses := np.where(used, masses, 0.0)).any():
            raise ValueError("no row has a target, an observed cell of X and a positive weight")
        return X, targets, masses

    # Whether all regressors are pipelines of the user's, which take tables as they are.
    @property
    def _takes_tables(self) -> bool:
        given = [self.regressor] if self.scale == "constant" else [self.regressor, self.scale]
        return all(holds_pipeline(one) for several in given for one in _several(several))

    def _set_targets(self, y: np.ndarray) -> np.ndarray:
        self._flat = y.ndim == 1
        targets = as_points(y[:, None] if y.ndim == 1 else y, "y")
        self.n_outputs_ = targets.shape[1]
        return targets

    def _fitted(self) -> Distributions:
        check_is_fitted(self, "_distributions")
        return self._distributions

    # ``values`` (…, outputs), without the last axis if y was a vector.
    def _as_y(self, values: np.ndarray) -> np.ndarray:
        return values[..., 0] if self._flat else values

    # ``X`` for the regressors: tables stay tables, all else becomes an array of floats, in which
    # NaN is missing.
    def _table(self, X: Any, *, reset: bool) -> Any:
        if hasattr(X, "iloc"):
            validate_data(self, X, skip_check_array=True, reset=reset)
            if 0 in X.shape:
                raise ValueError(
                    f"Found array with {X.shape[0]} sample(s) and {X.shape[1]} feature(s) while a "
                    "minimum of 1 is required."
                )
            return X
        finite = "allow-nan" if self.__sklearn_tags__().input_tags.allow_nan else True
        checks = {"dtype": np.float64, "order": "C", "ensure_all_finite": finite}
        return validate_data(self, require_numbers(X), reset=reset, **checks)

    # Checked rows, as the distributions take them.
    def _conditions(self, X: Any) -> Any:
        X = known_table(X)
        require_order(self, X)
        if not self._joint:
            own = self._columns
            X = self._table(X, reset=False) if own is None else own.read(X, unseen=self.unseen)
            self._range.warn_if_far(X)
            return X
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C", reset=False)
        inside = self.distribution_.measure.restrict(list(range(X.shape[1])))
        inside.require_inside(X, np.ones(X.shape[0]))
        return np.asarray(X)

    def _rows(self, X: Any) -> tuple[np.ndarray, ...]:
        return self._fitted().place(self._conditions(X))

    def _targets(self, y: Any, name: str = "y") -> np.ndarray:
        if y is None:
            outputs = f"{self.n_outputs_} output{'s' * (self.n_outputs_ > 1)}"
            raise ValueError(f"y must be given, of {outputs} for each row of X; got None")
        if self._target is not None:
            codes = Columns((self._target,)).read(as_table(y, self._target.name), name)
            require_complete(codes[:, 0], name)
            return codes
        flat = self._flat and np.ndim(y) < 2
        values = as_vector(y, name)[:, None] if flat else as_points(y, name)
        if values.shape[1] != self.n_outputs_:
            raise ValueError(
                f"{name} has {values.shape[1]} outputs, but {self.n_outputs_} were fitted"
            )
        return values

    # logpdf or cdf at y_i for every row, or at all values of ``grid`` for every row.
    def _at_targets(self, question: str, X: Any, y: Any, grid: Any) -> np.ndarray:
        ask = getattr(self._fitted(), question)
        if grid is None:
            require_pairs(X, y)
            return ask(self._rows(X), self._targets(y))
        if y is not None:
            raise ValueError(
                "give either y, one for each row of X, or grid, values that are the same for all "
                "rows; got both"
            )
        rows, values = self._rows(X), self._targets(grid, "grid")
        n, m = rows[0].shape[0], values.shape[0]
        found = ask(tuple(np.repeat(one, m, axis=0) for one in rows), np.tile(values, (n, 1)))
        return found.reshape(n, m, *found.shape[1:])


def _several(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _require_fit(one: Any, name: str, wanted: str) -> None:
    if not hasattr(one, "fit") or isinstance(one, type):
        raise TypeError(f"{name} must be {wanted}; got {one!r}")


class _FeatureRange(NamedTuple):
    """Least and largest value of every feature, NaN where it holds no numbers."""

    low: np.ndarray
    high: np.ndarray
    names: Sequence[str] | None

    @classmethod
    def of(cls, X: Any, names: Sequence[str] | None) -> _FeatureRange:
        """The range of every column of ``X``."""
        columns, words = _numbers(X), None if names is None else [str(name) for name in names]
        return cls(np.fmin.reduce(columns), np.fmax.reduce(columns), words)

    def warn_if_far(self, X: Any) -> None:
        """Warn once, naming the feature that lies farthest outside."""
        slack, columns = _FAR * (self.high - self.low), _numbers(X)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = np.maximum(self.low - columns, columns - self.high) / slack
        excess = np.where(slack > 0.0, np.nan_to_num(excess, nan=0.0), 0.0)
        rows = np.flatnonzero(excess.max(axis=1, initial=0.0) > 1.0)
        if rows.size:
            row, k = np.unravel_index(int(np.argmax(excess)), excess.shape)
            warn_caller(
                f"{rows.size} of {X.shape[0]} rows are far outside of the data, first row "
                f"{rows[0]}: {said(int(k), self.names)} = {columns[row, k]:g}, fitted from "
                f"{self.low[k]:g} to {self.high[k]:g}; there a regressor extrapolates, and the "
                "distribution does not know its error"
            )


# The columns as floats, NaN where they hold something else.
def _numbers(X: Any) -> np.ndarray:
    out = np.full(X.shape, np.nan)
    for k in range(X.shape[1]):
        with contextlib.suppress(TypeError, ValueError):
            out[:, k] = np.asarray(_safe_indexing(X, k, axis=1), dtype=np.float64)
    return out
