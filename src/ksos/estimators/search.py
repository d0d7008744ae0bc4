"""KernelSoSDensityCV: a density whose reference, bandwidth and λ are chosen by held-out samples."""

from __future__ import annotations

from typing import Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.choose import CRITERIA, MixedSearch, Search, require_reference
from ksos.data import (
    FEW_SAMPLES,
    Checks,
    Learned,
    as_folds,
    check_folds,
    distinct_samples,
    fit_few,
    forget,
    is_source,
    learn,
    remember,
    some_of,
)
from ksos.density import Columns, TableDensity, with_gaps
from ksos.estimators.base import DensityEstimator, told_to_callbacks, warn_if_memorized
from ksos.ground import (
    Run,
    as_choice,
    as_generator,
    as_grid,
    as_masses,
    check_jobs,
    instead,
    make_of,
    require_different_features,
    require_numbers,
    warn_caller,
)
from ksos.kernels import Gaussian, Kernel, kernel_form
from ksos.measures import Lebesgue, Measure
from ksos.solvers import Solution

OBJECTIVES = ("likelihood", "squared_mmd")
# Multiples of the bandwidth that suits a kernel density estimate, by whether the criterion is the
# likelihood and whether there is a reference. The grids were chosen with other seeds of
# benchmarks/quality than those of its page.
BANDWIDTHS = {
    (True, True): (3.0,),
    (True, False): (1.0, 1.4, 2.0, 2.8),
    # outliers widen the unit, and criteria that resist them need narrower kernels: with 20% of
    # outliers a tenth, in benchmarks/contamination.py
    (False, False): (0.1, 0.2, 0.4, 0.8, 1.6),
}
# λ by objective, with a reference (in units of the mean of ∫k²dρ) and without (in units of w₀):
# half decades, chosen as the bandwidths.
REGULARIZATIONS = {
    ("likelihood", True): (np.inf, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3),
    ("likelihood", False): tuple(10.0 ** (1.0 - 0.5 * k) for k in range(11)),
    ("squared_mmd", True): (np.inf, *(10.0 ** (-1.0 - 0.5 * k) for k in range(9))),
    ("squared_mmd", False): tuple(10.0 ** (-1.0 - 0.5 * k) for k in range(9)),
}
MOST_SAMPLES = 20_000  # distinct: more than this random subset move a density less than its choice


class KernelSoSDensityCV(DensityEstimator):
    r"""Estimate a density without settings: cross-validation chooses, and the optimum is certified.

    The answer is ρ(x)·‖c + Fᵀk(x)‖²: a stack of Gaussian mixtures, corrected by a kernel sum of
    squares. Infinite λ gives ρ. The page *Density estimation* explains the method.

    Parameters
    ----------
    bandwidths : sequence of floats, optional
        Bandwidths to compare, as multiples of one that suits a kernel density estimate.
    relative_regularizations : sequence of floats, optional
        λ to compare, relative to the scale of the kernel. May hold inf over a reference.
    cv : int, splitter or list of (train, test), optional
        Folds. Default: 5, or 10 for at most 200 samples.
    reference : {"auto", "normal", "mixture"}, Normal, GaussianMixture, fitted mixture or None
        The density that is corrected. "auto" is "mixture", or None if kernel, measure, objective or
        criterion is set.
    kernel : {"gaussian", "laplace", "matern"} or Kernel
        Model kernel.
    measure : Measure, optional
        What the density refers to.
    objective : {"likelihood", "squared_mmd"}
        What fits minimize.
    criterion : {"log_likelihood", "l2", "mmd"}
        How held-out samples judge a fit.
    n_support : int, optional
        Most support points.
    columns : dict, optional
        Kinds of columns: "numeric", "positive", "nonnegative", (low, high), "count", "categorical"
        or ("circular", period).
    missing : {"model", "drop", "raise"}
        What to do about missing cells.
    tol : float
        Absolute gap.
    time_limit : float, optional
        Seconds for the fit.
    n_jobs : int, optional
        Processes.
    contamination : float, optional
        Share of new rows that ``predict`` flags.
    random_state : int, RandomState or None
        Seed of the folds.
    verbose : int
        1 prints each step.

    Attributes
    ----------
    distribution_ : SoSDensity or TableDensity
        The certified optimum.
    solution_ : Solution
        Its certificate.
    reference_, reference_gap_
        ρ, and a bound in nats on how far its weights are from the best ones.
    best_params_, best_score_, cv_results_
        The chosen pair, its held-out score, and all pairs.
    bandwidth_, regularization_, status_
        What was used, and how the search ended.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, _ = make_moons(120, noise=0.1, random_state=0)
    >>> grid = {"bandwidths": [3.0], "relative_regularizations": [float("inf"), 0.1]}
    >>> est = KernelSoSDensityCV(**grid, cv=3).fit(X)
    >>> est.solution_.status, est.reference_gap_ <= 1e-4
    ('solved', True)
    """

    distribution_: Any
    solution_: Solution

    def __init__(
        self,
        bandwidths: Any = None,
        relative_regularizations: Any = None,
        cv: Any = None,
        *,
        reference: Any = "auto",
        kernel: str | Kernel = "gaussian",
        measure: Measure | None = None,
        objective: str = "likelihood",
        criterion: str = "log_likelihood",
        n_support: int | None = None,
        columns: Any = None,
        missing: str = "model",
        tol: float = 1e-4,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        contamination: float | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.bandwidths, self.relative_regularizations = bandwidths, relative_regularizations
        self.cv, self.reference, self.kernel, self.measure = cv, reference, kernel, measure
        self.objective, self.criterion, self.n_support = objective, criterion, n_support
        self.columns, self.missing = columns, missing
        self.tol, self.time_limit, self.n_jobs = tol, time_limit, n_jobs
        self.contamination, self.random_state, self.verbose = contamination, random_state, verbose

    @told_to_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose reference, bandwidth and λ for the samples ``X`` (n, d), and fit the density to
        all of them.

        Of a source, ``ksos.chunks(…)`` or objects of Dask, one pass keeps the 20,000 distinct
        samples with the lowest hashes and their masses. These are searched and fitted, and ``cv``
        must be a number. Ctrl-C ends the search, stores the best of what has been compared, and is
        raised again.
        """
        warn_if_memorized(self.contamination, self.objective == "likelihood")
        self._make = make_of(X)
        with Run(None, type(self).__name__, verbose=self.verbose):
            if is_source(X):
                return cast(Self, fit_few(self, X, sample_weight, MOST_SAMPLES))
            learned = self._learn(X)
            for note in learned.notes + learned.hints:
                warn_caller(note)
            if learned.columns is None:
                return self._fit(X, sample_weight)._calibrate(X, sample_weight)
            if self.contamination is not None:
                raise ValueError(
                    "contamination is for tables of plain numbers without gaps; drop it, and use"
                    " p_value, which compares rows with samples of the density"
                )
            return self._fit(learned, sample_weight)

    # The same, of samples or of what was learned of a table. Only ``features`` must differ, for a
    # target that repeats a feature is no mistake.
    @np.errstate(under="ignore")
    def _fit(self, X: Any, sample_weight: Any, features: slice = slice(None)) -> Self:
        with Run(self.time_limit, verbose=self.verbose) as run:
            columns = X.columns if isinstance(X, Learned) else None
            search = (
                self._search(X, sample_weight, features)
                if columns is None
                else self._search_table(X, columns, sample_weight)
            )
            complete = search.run()
            self._report(search, columns)
        # warn, or raise, if the fit was cut short
        if search.interrupted or run.interrupted:
            self.status_ = "interrupted"
            raise KeyboardInterrupt(f"interrupted: {search.progress}; the best of them is kept")
        if not complete:
            self.status_ = "time_limit"
            before = "the time limit came before the end of the search"
            warn_caller(ConvergenceWarning(f"{before}: {search.progress}; raise time_limit"))
        elif self.status_ != "solved":
            warn_caller(ConvergenceWarning(self.solution_.message))
        return self

    # Whether columns may be of any kind and cells missing.
    @property
    def _takes_tables(self) -> bool:
        usual = (self.objective, self.criterion) == ("likelihood", "log_likelihood")
        return usual and isinstance(self._reference, str) and self._reference == "mixture"

    # The kinds of the columns, if the table is not one of plain numbers without gaps.
    def _learn(self, X: Any) -> Learned:
        if self._takes_tables:
            return learn(X, self.columns, self.missing)
        if self.columns is not None or self.missing != "model":
            raise ValueError(
                "columns and missing are for a likelihood over reference='mixture'; drop them, or"
                " leave reference, kernel, measure, objective and criterion at their defaults"
            )
        return Learned([])

    # The search for checked parameters and the cells of a table.
    def _search_table(self, learned: Learned, columns: Columns, sample_weight: Any) -> Any:
        self._check_parameters()
        forget(self)
        d, who = len(columns.listed), type(self).__name__
        remember(self, Checks(who, n_features=d, names=columns.names))
        masses = np.zeros(learned.n_rows)
        masses[learned.rows] = as_masses(sample_weight, learned.n_rows)[learned.rows]
        used, rng = masses[learned.rows] > 0.0, as_generator(self.random_state)
        if not used.any():
            raise ValueError("all rows have weight 0 or no observed cell")
        cells, weights = learned.cells[used], masses[masses > 0.0]
        numbers = np.arange(learned.n_rows, dtype=np.float64)[:, None]
        folds = []
        if cells.shape[0] > 1:
            folds = as_folds(self.cv, numbers, masses, weights / weights.sum(), rng)
        places = np.arange(cells.shape[0], dtype=np.float64)[:, None]
        kept, weights, folds = some_of(places, weights, folds, MOST_SAMPLES, rng)
        u, c, slopes = columns.encode(cells[kept[:, 0].astype(int)], rng.random)
        return MixedSearch(
            u,
            c,
            columns.levels,
            weights,
            folds,
            self._multiples(),
            self._strengths_for(u.shape[0]),
            self.n_support,
            self.n_jobs,
            rng,
            self.verbose,
            slopes,
            [i for i, k in enumerate(columns.lines) if columns.listed[k].can_have_scores],
        )

    # The search for checked parameters and samples.
    def _search(self, X: Any, sample_weight: Any, features: slice) -> Search:
        self._check_parameters()
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C")
        masses, names = as_masses(sample_weight, X.shape[0]), vars(self).get("feature_names_in_")
        measure = Lebesgue() if self.measure is None else self.measure
        measure.require_inside(X, masses, names)
        (points, weights), rng = distinct_samples(X, masses), as_generator(self.random_state)
        corrects = self._reference is not None
        if not corrects:
            require_different_features(X[masses > 0.0, features], names)
        # of one sample, a reference is all there is
        alone = corrects and points.shape[0] == 1
        folds = [] if alone else as_folds(self.cv, X, masses, weights, rng)
        points, weights, folds = some_of(points, weights, folds, MOST_SAMPLES, rng)
        return Search(
            points,
            weights,
            folds,
            measure,
            self._reference,
            kernel_form(self.kernel),
            self.objective,
            self.criterion,
            self._multiples(),
            self._strengths_for(points.shape[0]),
            self.n_support,
            self.n_jobs,
            rng,
            names,
            self.verbose,
        )

    # The reference, None if there is none: of "auto", the choice.
    @property
    def _reference(self) -> Any:
        if not isinstance(self.reference, str) or self.reference != "auto":
            return self.reference
        gaussian = isinstance(kernel_form(self.kernel), Gaussian) and self.measure is None
        default = (self.objective, self.criterion) == ("likelihood", "log_likelihood")
        return "mixture" if gaussian and default else None

    # Raise what can be raised before the data are looked at.
    def _check_parameters(self) -> None:
        self._check_common()
        as_choice(self.objective, "objective", OBJECTIVES)
        as_choice(self.criterion, "criterion", CRITERIA)
        if self._reference is not None:
            require_reference(self._reference, self.measure)
            if not isinstance(kernel_form(self.kernel), Gaussian):
                raise ValueError(
                    f"reference={self.reference!r} needs kernel='gaussian'; got {self.kernel!r}"
                )
            if self.criterion != "log_likelihood":
                fix = "use criterion='log_likelihood', or reference=None"
                raise ValueError(
                    f"criterion={self.criterion!r} has no closed form over a reference; {fix}"
                )
        self._multiples()
        self._strengths()
        check_folds(self.cv)
        check_jobs(self.n_jobs)

    # The grid of λ, descending.
    def _strengths(self) -> list[float]:
        name, corrects = "relative_regularizations", self._reference is not None
        if self.relative_regularizations is None:
            return list(REGULARIZATIONS[self.objective, corrects])
        given = as_grid(self.relative_regularizations, name, positive=False, infinite=True)
        if np.isposinf(given).any() and not corrects:
            raise ValueError(
                f"{name} holds inf, which gives the reference itself, but there is none; drop inf,"
                " or set reference='mixture'"
            )
        return sorted(set(given.tolist()), reverse=True)

    # The same for n samples.
    def _strengths_for(self, n: int) -> list[float]:
        strengths = self._strengths()
        if self.relative_regularizations is None and n <= FEW_SAMPLES:
            # few samples cannot tell neighbors apart: the scores of n = 100 in benchmarks/quality
            # stay
            corrects = self._reference is not None
            return [*strengths[:1], *strengths[1::2]] if corrects else strengths[::2]
        return strengths

    # The grid of bandwidths, ascending.
    def _multiples(self) -> list[float]:
        if self.bandwidths is None:
            default = self.criterion == "log_likelihood", self._reference is not None
            return list(BANDWIDTHS[default])
        return sorted(set(as_grid(self.bandwidths, "bandwidths", positive=True).tolist()))

    # Fit the chosen pair to all samples, and set the fitted attributes.
    def _report(self, search: Any, columns: Columns | None) -> None:
        self.solution_, relative = search.answer(self.tol)
        self.status_, density = self.solution_.status, self.solution_.distribution
        space, (j, i) = self.solution_.space, search.choice
        if columns is not None:
            terms: Any = density
            self.distribution_ = TableDensity(
                columns.with_scores(search.normal_scores), [(1.0, terms)]
            )
            self.reference_, self.support_points_ = (
                search.reference_of_all,
                search.support[-1][0],
            )
            self.bandwidth_, self.regularization_ = search.kernel_of(i), relative
        else:
            self.distribution_ = density.by_volume() if space.constant else density
            self.reference_ = space.measure if space.constant else None
            self.bandwidth_, self.support_points_ = space.kernel.sigma, space.support_points
            self.regularization_ = relative * float(np.exp(space.log_unit))
            self._name_features()
        self.reference_gap_ = 0.0 if search.stack is None else search.stack.gap
        self.best_params_ = {
            "bandwidth_multiple": search.multiples[i],
            "relative_regularization": search.strengths[j],
        }
        self.best_score_, self.cv_results_ = search.best_score, search.results()
        self.n_splits_ = len(search.folds)

    def score_samples(self, X: Any, *, out: Any = None) -> Any:
        """The log-density of the observed cells of each sample, shape (n,). The rest is as in
        :meth:`KernelSoSDensity.score_samples`.
        """
        try:
            return super().score_samples(X, out=out)
        except ValueError as error:
            # a fit without gaps, and rows with some: looking for them first would cost a pass
            if not self._takes_tables or "contains NaN" not in str(error):
                raise
        return with_gaps(self.distribution_).logpdf(X)

    @instead(seed="random_state", rng="random_state")
    def impute(self, X: Any, *, how: str = "mean", random_state: Any = None) -> Any:
        """``X`` with its missing cells filled in.

        Parameters
        ----------
        X : data frame or array (n, d)
        how : {"mean", "mode", "draw"}
            See :meth:`ksos.TableDensity.impute`. Default: "mean".
        random_state : int, RandomState, Generator or None
            Of draws.
        """
        check_is_fitted(self, "distribution_")
        density = self.distribution_
        if not isinstance(density, TableDensity):
            density = with_gaps(density)
        return density.impute(X, how=how, rng=as_generator(random_state))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_tables and self.missing != "raise"
        return tags


class KernelSoSImputer(TransformerMixin, BaseEstimator):
    """Fill the missing cells of tables by the density of the rows.

    Every missing cell gets its mean, its most probable level, or a draw, given the observed cells
    of its row. Categories, counts and bounded columns keep their kinds.

    Parameters
    ----------
    estimator : KernelSoSDensityCV, optional
        Fits the density. Default: ``KernelSoSDensityCV()``.
    how : {"mean", "mode", "draw"}
        See :meth:`ksos.TableDensity.impute`. Default: "mean".
    random_state : int, RandomState or None
        Of draws. Default: 0.

    Attributes
    ----------
    estimator_ : KernelSoSDensityCV
        The fitted estimator.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) @ [[1.0, 2.0], [0.0, 0.1]]
    >>> search = KernelSoSDensityCV(cv=3, relative_regularizations=[float("inf")])
    >>> KernelSoSImputer(search).fit(X).transform([[0.5, np.nan]]).round(1)
    array([[0.5, 1. ]])
    """

    def __init__(self, estimator: Any = None, *, how: str = "mean", random_state: Any = 0) -> None:
        self.estimator, self.how, self.random_state = estimator, how, random_state

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the density of the rows."""
        chosen = KernelSoSDensityCV() if self.estimator is None else clone(self.estimator)
        self.estimator_ = chosen.fit(X, sample_weight=sample_weight)
        self.n_features_in_ = chosen.n_features_in_
        if "feature_names_in_" in vars(chosen):
            self.feature_names_in_ = chosen.feature_names_in_
        return self

    def transform(self, X: Any) -> Any:
        """``X`` with its missing cells filled in."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.impute(X, how=self.how, random_state=self.random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
