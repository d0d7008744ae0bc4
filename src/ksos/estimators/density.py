"""KernelSoSDensity: density estimation by one convex problem, as a scikit-learn estimator."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from ksos.choose import as_reference, correction_bandwidth, require_reference
from ksos.data import (
    Checks,
    Chunk,
    Chunks,
    Gathered,
    Learned,
    Part,
    Passes,
    as_source,
    forget,
    learn,
    remember,
    require_own_weights,
    row_hashes,
)
from ksos.density import Columns, TableDensity
from ksos.estimators.base import (
    DensityEstimator,
    holds_no_rows_out,
    told_to_callbacks,
    warn_if_memorized,
)
from ksos.exceptions import BandwidthWarning
from ksos.functionals import MMD, Frobenius, Functional, NegativeLogLikelihood, SquaredMMD, Trace
from ksos.ground import (
    Array,
    Run,
    as_bandwidth_or_metric,
    as_choice,
    as_count,
    as_generator,
    as_nonnegative,
    as_points,
    available_if,
    column_names,
    inner,
    like,
    make_of,
    to_numpy,
    warn_caller,
)
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel, KernelSums, kernel_form
from ksos.measures import Lebesgue, Measure
from ksos.solvers import Solver, check_options, minimize
from ksos.solvers.likelihood_passes import fit_to_all
from ksos.space import (
    PER_SUPPORT_POINT,
    RULES,
    SELECTIONS,
    MeanEmbedding,
    SoSSpace,
    affordable_size,
    automatic_kernel,
    bandwidth_rule,
    embedding_width,
    pivoted_cholesky,
    select_support,
)

MOST_SUPPORT_POINTS = 200  # time grows with their cube; from 5,000 samples on as n^{1/12} up to 250
MOST_LOOKED_AT = 10_000  # distinct samples that choose bandwidth and support: a second's work
# So many samples of a source stand for all in a likelihood fit, which passes over all of them
# correct: a trade-off between memory and passes.
MOST_IN_LIKELIHOOD = 1 << 14
# So many samples of a source decide on the setting of a likelihood fit: a quarter of them fit.
MOST_BEFORE_LIKELIHOOD = 1 << 16
# regularization="auto" with a reference, times (d + 2)/(3n): the more samples, the more they show
# of what it does not know. A trade-off, and the same ratio of both as without a reference.
AUTO_CORRECTIONS = {"mmd": 2e-3, "likelihood": 1.0}

OBJECTIVES: dict[str, Callable[[Any], Functional]] = {
    "squared_mmd": SquaredMMD,
    "mmd": MMD,
    # there are no sums for it
    "likelihood": lambda data: NegativeLogLikelihood(data.points, data.weights),
}
PENALTIES: dict[str, type[Trace] | type[Frobenius]] = {"trace": Trace, "frobenius": Frobenius}
_SETUP_SHARE = 0.25  # of a time limit, for the bandwidth, and for the support points: half is left
_SEEN = 1e-3  # share of a sample that support points explain for a likelihood: −log 0 is infinite
_NEARLY_ONE = 0.95  # Kernel values beyond these warn of a kernel matrix that is close to 11ᵀ ...
_NEARLY_ZERO = 1e-3  # ... or to I: a support point's neighbors then move p by less than its gap
_UNSEEN = 1e-14  # squared norm of the projected embedding of data, which is about 1 otherwise
_RESULTS = ["solution_", "distribution_", "n_iter_", "bandwidth_", "embedding_bandwidth_"]
_RESULTS += ["regularization_", "relative_regularization_", "support_points_", "landmarks_"]


# What a table with columns of any kind is fitted with.
_OF_TABLES = {
    "objective": "likelihood",
    "kernel": "gaussian",
    "penalty": "trace",
    "support": "auto",
    "landmarks": None,
    "embedding_bandwidth": None,
    "solver": "auto",
    "contamination": None,
}


class _Setting(NamedTuple):
    """What is fixed before the sums: the space, and whether time was too short for all of its
    support points.
    """

    space: SoSSpace
    cut: bool

    @property
    def nothing(self) -> KernelSums:
        """The kernel sums of no samples."""
        return KernelSums(self.space.embedding_kernel, self.space.landmarks)

    def embedding(self, part: Part) -> MeanEmbedding:
        """That of distinct samples, which are all there are."""
        points = like(part.points, self.space.support_points)
        return MeanEmbedding(points, part.weights, kernel=self.space.embedding_kernel)


class KernelSoSDensity(DensityEstimator):
    r"""Estimate a probability density as a kernel sum of squares.

    Minimizes the distance to the data plus a penalty. The rules of the defaults are on the page
    *Density estimation*.

    Parameters
    ----------
    kernel : {"gaussian", "laplace", "matern"} or Kernel, default="gaussian"
        An object keeps its bandwidth.
    bandwidth : float, array-like or {"auto", "median", "scott", "silverman"}, default="auto"
        Width of the kernel, per feature, or a (d, d) metric.
    regularization : float or "auto", default="auto"
        Weight λ of the penalty.
    relative_regularization : float, optional
        Instead of it, λ in units of ∫k(x,0)²dx.
    objective : {"squared_mmd", "mmd", "likelihood"} or Functional, default="squared_mmd"
        The distance to the data.
    penalty : {"trace", "frobenius"}, default="trace"
        λ tr A or λ‖A‖²_HS.
    measure : Measure, optional
        What densities refer to, such as ``Box``. Default: Lebesgue.
    reference : {"normal", "mixture"}, Normal, GaussianMixture or fitted mixture, optional
        A density that the model corrects. Tables with text or missing cells need "mixture" and
        ``objective="likelihood"``.
    support : {"auto", "kmeans", "pivoted", "random"} or array-like, default="auto"
        Support points, or how to choose them.
    n_support : int, optional
        Most support points. Default: 200 or 250.
    landmarks : int or array-like, optional
        Points at which embeddings are compared. Default: the support points.
    embedding_bandwidth : float or array-like, optional
        Bandwidth of the kernel of the MMD.
    solver : str or Solver, default="auto"
        A name or an object of :mod:`ksos.solvers`.
    tol : float, optional
        Absolute gap. Default: 1e-8, or 1e-5 nats for the likelihood.
    time_limit : float, optional
        Seconds for the fit.
    columns : dict, optional
        Kinds of columns of a table, as in :class:`KernelSoSDensityCV`.
    missing : {"model", "drop", "raise"}, default="model"
        What to do about missing cells.
    contamination : float, optional
        Share of new rows that ``predict`` flags.
    random_state : int or RandomState, optional
        Seed.
    verbose : int, default=0
        1 prints progress, 2 every certificate.

    Attributes
    ----------
    distribution_ : SoSDensity
        The fitted density: the certified optimum.
    solution_ : Solution
        The certificate.
    bandwidth_, embedding_bandwidth_, regularization_, relative_regularization_
        What was used, as ``support_points_``, ``landmarks_`` and ``n_iter_``.
    held_out_scores_, threshold_
        With ``contamination``: held-out log-densities and their threshold.

    Examples
    --------
    >>> est = KernelSoSDensity().fit(np.random.default_rng(0).normal(size=(50, 2)))
    >>> est.solution_.status, bool(est.solution_.gap <= 1e-8)
    ('solved', True)
    """

    def __init__(
        self,
        kernel: str | Kernel = "gaussian",
        bandwidth: Any = "auto",
        regularization: float | str = "auto",
        *,
        relative_regularization: float | None = None,
        objective: str | Functional = "squared_mmd",
        penalty: str = "trace",
        measure: Measure | None = None,
        reference: Any = None,
        support: Any = "auto",
        n_support: int | None = None,
        landmarks: Any = None,
        embedding_bandwidth: Any = None,
        solver: str | Solver = "auto",
        tol: float | None = None,
        time_limit: float | None = None,
        columns: Any = None,
        missing: str = "model",
        contamination: float | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kernel, self.bandwidth, self.regularization = kernel, bandwidth, regularization
        self.relative_regularization, self.objective = relative_regularization, objective
        self.penalty, self.measure, self.reference = penalty, measure, reference
        self.support, self.n_support, self.landmarks = support, n_support, landmarks
        self.embedding_bandwidth, self.solver, self.tol = embedding_bandwidth, solver, tol
        self.columns, self.missing = columns, missing
        self.time_limit, self.contamination = time_limit, contamination
        self.random_state, self.verbose = random_state, verbose

    @told_to_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit the density to samples ``X`` (n, d), weighted by ``sample_weight``, or to a source:
        ``ksos.chunks(…)``, or objects of Dask.

        A source is read twice: for bandwidth and support points, and for the kernel sums; once if
        it holds no more distinct samples than decide on these, or if kernel or ``bandwidth`` and
        ``support`` are given. With ``checkpoint``, a file, a fit that was killed goes on where it
        was; the file stays, and saves a fit with another λ the passes. Ctrl-C stores the best
        density so far and is raised again.
        """
        warn_if_memorized(self.contamination, self._by_likelihood)
        self._make = make_of(X)
        X, sample_weight = as_source(X, sample_weight)
        if checkpoint is not None and not isinstance(X, Chunks):
            raise ValueError(
                "checkpoint is for a source of chunks: fit(ksos.chunks(…), checkpoint=…)"
            )
        with Run(None, type(self).__name__, verbose=self.verbose):
            learned = None if isinstance(X, Chunks) else self._learn(X)
            if learned is not None and learned.columns is not None:
                return self._fit_table(learned, learned.columns, sample_weight)
            passes = self._fit_to(X, sample_weight, checkpoint)
            if not isinstance(X, Chunks):
                return self._calibrate(X, sample_weight)
            if self.contamination is not None:
                # of many samples, a fifth of those that decide on the setting is held out
                def refit(other: Self, held_out: np.ndarray) -> None:
                    other._fit_to(X, None, without=row_hashes(held_out))

                part, complete = passes.part, passes.survey.complete
                self._calibrate_on(part.points, part.weights, None if complete else refit)
            return self

    # The kinds of the columns, if the table is not one of plain numbers without gaps.
    def _learn(self, X: Any) -> Learned | None:
        if isinstance(self.reference, str) and self.reference == "mixture":
            return learn(X, self.columns, self.missing)
        if self.columns is not None or self.missing != "model":
            raise ValueError(
                "columns and missing need reference='mixture' and objective='likelihood'; set both,"
                " or drop columns and missing"
            )
        return None

    # The certified fit of a table with columns of any kind, at the given bandwidth and λ.
    @np.errstate(under="ignore")
    def _fit_table(self, learned: Learned, columns: Columns, sample_weight: Any) -> Self:
        from ksos.estimators.search import KernelSoSDensityCV  # which inherits from the same base

        self._check_parameters()
        for name, usual in _OF_TABLES.items():
            value = getattr(self, name)
            if not (value is usual or (isinstance(value, str) and value == usual)):
                raise ValueError(
                    f"a table with text, gaps or kinds of columns is fitted with {name}={usual!r};"
                    f" got {value!r}"
                )
        d, strength = len(columns.lines), self.relative_regularization
        absolute = None if isinstance(self.regularization, str) else float(self.regularization)
        if strength is None:
            scale = (len(columns.listed) + 2) / (3.0 * learned.rows.size)
            strength = AUTO_CORRECTIONS["likelihood"] * scale
        metric = None
        if isinstance(self.bandwidth, str):
            as_choice(self.bandwidth, "bandwidth of a table", ("auto",), otherwise=" or numbers")
        else:
            given = Gaussian(as_bandwidth_or_metric(self.bandwidth, "bandwidth", d))
            metric = given.matrix(d)
        for note in learned.notes + learned.hints:
            warn_caller(note)
        settings = ("n_support", "time_limit", "random_state", "verbose")
        search = KernelSoSDensityCV(
            bandwidths=None if metric is None else [1.0],
            relative_regularizations=[strength],
            **{name: getattr(self, name) for name in settings},
        )
        with Run(self.time_limit, verbose=self.verbose) as run:
            problem = search._search_table(learned, columns, sample_weight)
            tol = NegativeLogLikelihood.natural_tol if self.tol is None else self.tol
            self.solution_, self.regularization_ = problem.at(metric, tol, absolute)
        terms: Any = self.solution_.distribution
        self.distribution_ = TableDensity(columns, [(1.0, terms)])
        space: Any = self.solution_.space
        self.relative_regularization_ = self.regularization_ / space.mean_square
        self.bandwidth_, self.n_iter_ = problem.kernel_of(0), self.solution_.n_iter
        self.support_points_ = problem.support[-1][0]
        forget(self)
        remember(
            self, Checks(type(self).__name__, n_features=len(columns.listed), names=columns.names)
        )
        if run.interrupted:
            raise KeyboardInterrupt(self.solution_.message)
        if self.solution_.status != "solved":
            warn_caller(ConvergenceWarning(self.solution_.message))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        mixture = isinstance(self.reference, str) and self.reference == "mixture"
        tags.input_tags.allow_nan = mixture and self._by_likelihood and self.missing != "raise"
        return tags

    @available_if(holds_no_rows_out)
    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Add samples (n, d), or all chunks of a source; the density is solved for when it is next
        asked for. After ``fit`` it begins anew.

        Up to 10,000 distinct samples the result is that of ``fit`` to all of them. The chunk that
        brings more of them fixes bandwidth, support points and landmarks; from then on the kernel
        sums of every sample, earlier ones included, are exact at those.
        """
        self._check_parameters()
        known, setting = vars(self).get("_running") or (None, None)
        if known is None:
            checks = Checks(type(self).__name__, self._domain)
            known = Gathered(checks, most=self._most_looked_at(False))
        X, sample_weight = as_source(X, sample_weight)
        if isinstance(X, Chunks):
            require_own_weights(sample_weight)
        else:
            X = [Chunk(X, sample_weight, "", column_names(X))]
        with np.errstate(under="ignore"):
            for chunk in X:
                rows, checks = known.checks.rows(chunk)
                forget(self)
                remember(self, checks)
                earlier, known = known.survey, replace(known, checks=checks).add(rows)
                if setting is None and known.survey is not None and not known.survey.complete:
                    setting = self._settle(known.survey.part)
                    sums = setting.nothing
                    if earlier is not None:  # all of them are still known
                        sums = sums.update(earlier.points, earlier.masses)
                    known = replace(known, sums=sums.update(rows.points, rows.masses))
        self._running = known, setting  # of a source all chunks, or none
        forget(self, _RESULTS)
        return self

    def __getattr__(self, name: str) -> Any:
        """The results of ``partial_fit``, which nobody has asked for before."""
        known, setting = vars(self).get("_running") or (None, None)
        if known is None or known.survey is None or name not in _RESULTS:
            return super().__getattr__(name)
        with Run(self.time_limit, verbose=self.verbose), np.errstate(under="ignore"):
            part = known.survey.part
            setting = setting or self._settle(part, known.survey.count)
            self._solve(
                setting, setting.embedding(part) if known.sums is None else known.sums, part
            )
        return vars(self)[name]

    # Fit to all samples, but for those whose hashes are in ``without``.
    def _fit_to(
        self,
        X: Any,
        sample_weight: Any,
        checkpoint: Any = None,
        without: np.ndarray | None = None,
    ) -> Passes:
        with Run(self.time_limit, verbose=self.verbose), np.errstate(under="ignore"):
            self._check_parameters()
            forget(self, ["_running"])
            passes, in_chunks = (
                Passes(self, X, sample_weight, checkpoint, without),
                isinstance(X, Chunks),
            )
            normal = isinstance(self.reference, str) and self.reference == "normal"
            most, given = self._most_looked_at(in_chunks), self._given_sums() if in_chunks else None
            survey = passes.look(most, self._domain, given, moments=normal)
            part = passes.part
            # tensors: the fit runs where they lie, and decisions about them on the host
            setting = self._settle(part, survey.count, passes.device)
            data: MeanEmbedding | KernelSums = (
                setting.embedding(part)
                if survey.complete or not self._embeds
                else passes.add_up(setting.nothing)
            )
            many = in_chunks and survey.points.shape[0] > MOST_IN_LIKELIHOOD
            self._solve(setting, data, part, passes if many and self._by_likelihood else None)
        return passes

    # The kernel sums of no samples, if kernels, support points and landmarks are known before any
    # sample is.
    def _given_sums(self) -> KernelSums | None:
        kernel = isinstance(self.kernel, Kernel) or not isinstance(self.bandwidth, str)
        points = not isinstance(self.support, str) and not isinstance(
            self.landmarks, int | np.integer
        )
        if not (kernel and points and self.reference is None and self._embeds):
            return None
        # any sample will do
        first = to_numpy(as_points(self.support, "support"))[:1]
        return self._settle(Part(first, np.ones(1), 1)).nothing

    # Kernels, support points and landmarks, from the part of the ``seen`` samples that decides on
    # them.
    def _settle(self, part: Part, seen: int | None = None, host: Array | None = None) -> _Setting:
        rng, run, constant = (
            as_generator(self.random_state),
            Run.current(),
            self.reference is not None,
        )
        measure, names = self._domain, vars(self).get("feature_names_in_")
        if constant:
            known = part.points, part.weights, names, part.moments
            measure = as_reference(self.reference, *known)
        # kernels and points follow the data, not what is known of them
        volume = Lebesgue() if constant else measure
        with run.setup(_SETUP_SHARE):
            kernel, embedding_kernel = self._kernels(part, volume, rng)
        d = part.points.shape[1]
        run.report(
            "fit", f"{part.total if seen is None else seen} samples of {d} features: bandwidth"
        )
        with run.setup(_SETUP_SHARE, _SEEN if self._by_likelihood else 0.0) as stage:
            points, cut = self._support(part, closed_form(kernel, volume, d), rng, stage)
        support = like(points, part.points if host is None else host)
        run.report("fit", f"{support.shape[0]} support points")
        landmarks = self._landmarks(part.points, rng)
        space = SoSSpace(kernel, support, measure, embedding_kernel, landmarks, constant=constant)
        run.report("fit", f"space of rank {space.rank}")
        return _Setting(space, cut)

    # The density for the sums ``data`` of all samples; or of some, if ``passes`` can sum over all
    # of them.
    def _solve(
        self,
        setting: _Setting,
        data: MeanEmbedding | KernelSums,
        part: Part,
        passes: Passes | None = None,
    ) -> None:
        space, constant, run = setting.space, self.reference is not None, Run.current()
        _warn_if_degenerate(space, part.points)
        _warn_if_unseen(part, space)
        start: Any = None
        if constant:  # the reference itself, which the strongest penalty leaves
            start = like(np.eye(space.rank, 1), space.support_points)
        run.tell("")  # the solver speaks for itself
        strength, relative = self._given_strength(part.total)
        penalty = None
        if strength > 0.0:
            penalty = strength * PENALTIES[self.penalty](relative=relative)
        solve = partial(minimize, space=space, solver=self.solver, verbose=self.verbose)
        if passes is None:
            given = self.objective
            functional = given if isinstance(given, Functional) else OBJECTIVES[given](data)
            functional = functional if penalty is None else functional + penalty
            self.solution_ = solve(functional, tol=self.tol, start=start)
        else:
            tol = NegativeLogLikelihood.natural_tol if self.tol is None else self.tol
            some = passes.survey.fewer(MOST_IN_LIKELIHOOD).part
            self.solution_ = fit_to_all(passes, solve, space, some, penalty, start, tol)
        self.bandwidth_, self.embedding_bandwidth_ = (
            space.kernel.sigma,
            space.embedding_kernel.sigma,
        )
        log_unit = space.log_unit * (1.0 if self.penalty == "trace" else 2.0)
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            other = float(np.exp(np.log(strength) + (log_unit if relative else -log_unit)))
        both = (other, strength) if relative else (strength, other)
        self.regularization_, self.relative_regularization_ = both
        self.support_points_, self.landmarks_ = space.support_points, space.landmarks
        self.distribution_, self.n_iter_ = self.solution_.distribution, self.solution_.n_iter
        if constant:
            self.distribution_ = self.distribution_.by_volume()
        self._name_features()
        if run.interrupted:
            raise KeyboardInterrupt(self.solution_.message)
        # a callback that stops the fit knows that it does
        known = self.solution_.status in ("solved", "interrupted")
        wrong = [] if known else [self.solution_.message]
        if setting.cut:
            wrong.append(
                "time_limit was too short for all support points: the density has "
                f"{space.support_points.shape[0]} of them; allow more time, or set n_support"
            )
        if wrong:
            warn_caller(ConvergenceWarning("; ".join(wrong)))

    # Where samples may be: a reference is everywhere.
    @property
    def _domain(self) -> Measure:
        return Lebesgue() if self.measure is None else self.measure

    # Whether the objective asks for nothing but the embedding of the samples, and so for sums over
    # them.
    @property
    def _embeds(self) -> bool:
        return not isinstance(self.objective, Functional) and not self._by_likelihood

    def _check_parameters(self) -> None:
        self._check_common()
        if self.reference is not None:
            require_reference(self.reference, self.measure)
        if isinstance(self.bandwidth, str):
            otherwise = ", a positive number or one per feature"
            as_choice(self.bandwidth, "bandwidth", RULES, otherwise=otherwise)
        else:
            as_bandwidth_or_metric(self.bandwidth, "bandwidth")
        if self.embedding_bandwidth is not None:
            as_bandwidth_or_metric(self.embedding_bandwidth, "embedding_bandwidth")
        if not (isinstance(self.regularization, str) and self.regularization == "auto"):
            as_nonnegative(self.regularization, 'regularization (or "auto")')
            if self.relative_regularization is not None:
                both = (
                    f"regularization={self.regularization!r} and"
                    f" relative_regularization={self.relative_regularization!r}"
                )
                raise ValueError(
                    f"{both} are the same in two units: the paper's λ, and λ in units of w₀; give"
                    " one of them"
                )
        if self.relative_regularization is not None:
            as_nonnegative(self.relative_regularization, "relative_regularization")
        as_choice(self.penalty, "penalty", PENALTIES)
        if isinstance(self.support, str):
            otherwise = " or an array of support points"
            as_choice(self.support, "support", SELECTIONS, otherwise=otherwise)
        else:
            as_points(self.support, "support")
            if self.n_support is not None:
                raise ValueError(
                    "n_support is for support points chosen among the samples; an array as support"
                    " is used as it is"
                )
        if isinstance(self.landmarks, int | np.integer):
            as_count(self.landmarks, "landmarks")
        elif self.landmarks is not None:
            as_points(self.landmarks, "landmarks")
        if not isinstance(self.objective, Functional):
            as_choice(self.objective, "objective", OBJECTIVES, otherwise=" or a functional")
        check_options(self.solver, self.tol, None)

    # How many samples decide on bandwidth, support points and landmarks; the likelihood, and a
    # functional of one's own, take all that are in memory.
    def _most_looked_at(self, in_chunks: bool) -> int:
        if not self._embeds:
            return MOST_BEFORE_LIKELIHOOD if in_chunks else sys.maxsize
        landmarks = int(self.landmarks) if isinstance(self.landmarks, int | np.integer) else 0
        most = self.n_support or MOST_SUPPORT_POINTS
        most = most if isinstance(self.support, str) else len(self.support)
        return max(MOST_LOOKED_AT, PER_SUPPORT_POINT * most, landmarks)

    # The model kernel and the embedding kernel.
    def _kernels(
        self, part: Part, measure: Measure, rng: np.random.Generator
    ) -> tuple[Kernel, Kernel]:
        (points, weights, total, _), d = part, part.points.shape[1]
        if isinstance(self.kernel, Kernel):
            kernel = self.kernel
        else:
            family, names = kernel_form(self.kernel), vars(self).get("feature_names_in_")
            if self._is_automatic and self.reference is not None:
                kernel = family.with_sigma(correction_bandwidth(points, weights, total, names))
            elif self._is_automatic:
                most = self._most_support_points(total)
                kernel = automatic_kernel(family, points, weights, total, measure, rng, names, most)
            elif isinstance(self.bandwidth, str):
                rule = partial(bandwidth_rule, self.bandwidth, count=total, names=names)
                kernel = family.with_sigma(rule(points, weights, rng))
            else:
                kernel = family.with_sigma(as_bandwidth_or_metric(self.bandwidth, "bandwidth", d))
        kernel.check_features(d)
        if self.embedding_bandwidth is not None:
            given = as_bandwidth_or_metric(self.embedding_bandwidth, "embedding_bandwidth", d)
            return kernel, kernel.with_sigma(given)
        # a share of the kernel's mass is seen, with boundaries or without; grid points see none in
        # between
        sees = isinstance(kernel, Gaussian) and measure.atoms is None
        wider = embedding_width(d) if self._is_automatic and sees else 1.0
        return kernel, kernel if wider == 1.0 else kernel.scaled(wider)

    # The support points, and whether time was too short for all of them.
    def _support(
        self, part: Part, integrals: Any, rng: np.random.Generator, stage: Any
    ) -> tuple[np.ndarray, bool]:
        most = self._most_support_points(part.total)
        affordable = affordable_size(most)
        if isinstance(self.support, str):
            size = min(most, affordable)
            choose = partial(select_support, self.support, part.points, part.weights)
            found = choose(size, integrals, 1e-10, rng)
        else:
            found = to_numpy(as_points(self.support, "support", n_features=part.points.shape[1]))
            if affordable < most:
                pivots = pivoted_cholesky(found, affordable, integrals, 1e-10)
                # points of low rank are no worse than that many
                if stage.cut or pivots.shape[0] >= min(affordable, most // 3):
                    found = found[pivots]
        return found, stage.cut or affordable == found.shape[0] < min(most, part.total)

    # For ``count`` distinct samples.
    def _most_support_points(self, count: int) -> int:
        if not isinstance(self.support, str):
            return len(self.support)
        if self.n_support is not None:
            return self.n_support
        more = min(max(1.0, (count / 5000.0) ** (1.0 / 12.0)), 1.25)
        return round(MOST_SUPPORT_POINTS * more)

    def _landmarks(self, points: np.ndarray, rng: np.random.Generator) -> Array | None:
        if self.landmarks is None:
            return None
        if isinstance(self.landmarks, int | np.integer):
            count = min(int(self.landmarks), points.shape[0])
            return points[np.sort(rng.choice(points.shape[0], count, replace=False))]
        return as_points(self.landmarks, "landmarks", n_features=points.shape[1])

    # Whether the bandwidth is that of the rule "auto".
    @property
    def _is_automatic(self) -> bool:
        rule = isinstance(self.bandwidth, str) and self.bandwidth == "auto"
        return rule and not isinstance(self.kernel, Kernel)

    @property
    def _by_likelihood(self) -> bool:
        # a functional has an == of its own
        return isinstance(self.objective, str) and self.objective == "likelihood"

    # λ as it was given, or as suits ``count`` distinct samples, and whether that is in units of w₀.
    def _given_strength(self, count: int) -> tuple[float, bool]:
        if self.relative_regularization is not None:
            return float(self.relative_regularization), True
        if not isinstance(self.regularization, str):
            return float(self.regularization), False
        if self.reference is not None:
            kind = "likelihood" if self._by_likelihood else "mmd"
            return AUTO_CORRECTIONS[kind] * (self.n_features_in_ + 2) / (3.0 * count), True
        if self._by_likelihood:
            # the narrower kernels of bandwidth="auto" need more (benchmarks/quality)
            return 0.3 if self._is_automatic else 1e-2, True
        # 3e-3 for 150 samples: with a third of it the 90% regions of benchmarks/honest_regions.py
        # hold three points less. λ falls as the standard error of an embedding, n^{−1/2}: held-out
        # scores of 4,000 and 20,000 samples, lognormal ones among them, are up to 0.2 nats higher
        # than with 3e-3 throughout
        return 3e-3 * min(1.0, 200.0 / count) ** 0.5 if self._is_automatic else 1e-3, True


# Warn if the landmarks are so far from the samples that the fit cannot depend on them.
def _warn_if_unseen(part: Part, space: SoSSpace) -> None:
    points = like(part.points, space.landmarks)
    z = space.coordinates(MeanEmbedding(points, part.weights, kernel=space.embedding_kernel))
    if inner(z, z) <= _UNSEEN:
        warn_caller(
            "the landmarks are too far from the samples to see them: the fit does not depend on "
            "the data; choose landmarks among them"
        )


# Warn if the kernel matrix is close to I (among the support points) or to 11ᵀ (between them and the
# data).
def _warn_if_degenerate(space: SoSSpace, points: np.ndarray) -> None:
    kernel, support = space.kernel, to_numpy(space.support_points)
    m = support.shape[0]
    K = kernel(support) * (1.0 - np.eye(m))
    if m > 1 and float(K.max()) <= _NEARLY_ZERO:
        problem = (
            "far smaller than the distances between the support points: the kernel matrix is close "
            "to the identity"
        )
        fix = "a larger bandwidth, or more support points"
    elif points.shape[0] > 1 and float(kernel(points, support[:1]).min()) >= _NEARLY_ONE:
        problem = (
            "far larger than the standard deviations of the data: all kernel values are close to 1"
        )
        fix = "a smaller bandwidth"
    else:
        return
    widths = np.sqrt(np.linalg.eigvalsh(kernel.sigma)) if kernel.full else kernel.sigma
    sizes = " to ".join(dict.fromkeys(f"{size:.4g}" for size in (widths.min(), widths.max())))
    message = f"the bandwidth {sizes} is {problem}; rank {space.rank} of {m} was kept; try {fix}"
    warn_caller(BandwidthWarning(message))
