"""KernelSoSDensityCV: a density whose reference, bandwidth and λ are chosen by held-out samples."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, NamedTuple, Self, cast

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from ksos.choose.held_out import (
    CRITERIA,
    Problem,
    held_out_scores,
    regularization_unit,
    simplest_good,
)
from ksos.choose.kernel_density import bandwidth_unit, whitened
from ksos.choose.mixtures import seeds
from ksos.choose.stack import Stack
from ksos.choose.units import Units, warn_if_flat
from ksos.data.passes import fit_few
from ksos.data.samples import (
    FEW_SAMPLES,
    Fold,
    as_folds,
    as_generator,
    check_folds,
    distinct_samples,
    held_out_rows,
    held_out_weights,
    require_inside,
    some_of,
)
from ksos.density import SoSDensity
from ksos.estimators._anomalies import warn_if_memorised
from ksos.estimators._density_estimator import DensityEstimator
from ksos.estimators._reference import as_reference, require_reference
from ksos.estimators.density import OBJECTIVES as DISTANCES
from ksos.functionals import Trace
from ksos.ground.deadline import Deadline
from ksos.ground.progress import Steps, shown, tell_stopping
from ksos.ground.threads import one_blas_thread
from ksos.ground.validation import (
    as_choice,
    as_grid,
    as_masses,
    check_jobs,
    require_different_features,
    require_numbers,
)
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel, kernel_form
from ksos.measures import GaussianMixture, Lebesgue, Measure
from ksos.solvers import Solution, minimize
from ksos.space.bandwidth import bandwidth_rule
from ksos.space.embedding import MeanEmbedding, Projection
from ksos.space.space import SoSSpace
from ksos.space.support import pivoted_cholesky

__all__ = ["KernelSoSDensityCV"]

OBJECTIVES = ("likelihood", "squared_mmd")

# The grids were chosen with other seeds of benchmarks/quality than those of its page.
BANDWIDTHS = {
    (True, True): (3.0,),
    (True, False): (1.0, 1.4, 2.0, 2.8),
    # outliers widen the unit, and criteria that resist them need narrower kernels: with 20% of
    # outliers a tenth, in benchmarks/contamination.py
    (False, False): (0.1, 0.2, 0.4, 0.8, 1.6),
}
"""Multiples of the bandwidth that suits a kernel density estimate, by whether the criterion is the
likelihood and whether there is a reference."""
REGULARIZATIONS = {
    ("likelihood", True): (np.inf, 1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3),
    ("likelihood", False): tuple(10.0 ** (1.0 - 0.5 * k) for k in range(11)),
    ("squared_mmd", True): (np.inf, *(10.0 ** (-1.0 - 0.5 * k) for k in range(9))),
    ("squared_mmd", False): tuple(10.0 ** (-1.0 - 0.5 * k) for k in range(9)),
}
"""λ by objective, with a reference (in units of the mean of ∫k²dρ) and without (in units of w₀)."""
SUPPORT = {True: 100, False: 400}
"""Support points: a correction is smooth, a density over volume is not."""
MOST_SAMPLES = 20_000
"""Beyond so many distinct samples, a random subset is searched and fitted."""
_LANDMARKS = 100  # of the held-out MMD: the projection is the same for every fit that is compared
_SEARCH_SHARE = 0.7  # of a time limit: the rest is for the fit to all samples
_AFTER_CTRL_C = 1.0  # seconds for the fit to all samples after an interrupt


class _Comparison(NamedTuple):
    """Pairs of bandwidth and λ, and how held-out samples have scored them so far."""

    problem: Problem
    unit: Kernel
    multiples: list[float]  # of its bandwidth, ascending
    strengths: list[float]  # λ, descending
    support: list[np.ndarray]  # support points of every fold, and last of all samples
    scores: dict[int, np.ndarray]  # by bandwidth: (held-out samples, λ)

    @property
    def weights(self) -> np.ndarray:
        """Of the held-out samples."""
        return held_out_weights(self.problem.folds)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """(λ, bandwidth) from simple to complex: strong λ first, wide kernels first; λ = ∞ counts
        once.
        """
        last = len(self.multiples) - 1
        every = itertools.product(range(len(self.strengths)), range(last, -1, -1))
        return [(j, i) for j, i in every if np.isfinite(self.strengths[j]) or i == last]

    @property
    def choice(self) -> tuple[int, int]:
        """Positions (λ, bandwidth) of the chosen pair; the simplest one if nothing was compared."""
        every = self.pairs
        pairs = [(j, i) for j, i in every if i in self.scores]
        if not pairs:
            return every[0] if np.isinf(self.strengths[0]) else every[len(every) // 2]
        columns = np.stack([self.scores[i][:, j] for j, i in pairs], axis=1)
        return pairs[simplest_good(columns, self.weights)]

    @property
    def chosen(self) -> tuple[float, float]:
        """Bandwidth multiple and λ."""
        j, i = self.choice
        return self.multiples[i], self.strengths[j]

    @property
    def best_score(self) -> float:
        j, i = self.choice
        if i not in self.scores or not np.isfinite(self.scores[i][:, j]).all():
            return -np.inf
        return float(self.weights @ self.scores[i][:, j])

    def relative(self, space: SoSSpace) -> float:
        """λ of the chosen pair in natural units of its space."""
        return regularization_unit(space) * self.chosen[1]

    def answer(self, tol: float | None, deadline: Deadline) -> Solution:
        """The certified optimum of the chosen problem over all samples."""
        (multiple, strength), problem = self.chosen, self.problem
        infinite, kernel = np.isinf(strength), self.unit.scaled(multiple)
        support = self.support[-1][:1] if infinite else self.support[-1]
        # with a tolerance of one, only the constant function is left of the space: its density is ρ
        only: dict[str, Any] = {"tol_model": 1.0} if infinite else {}
        space = SoSSpace(kernel, support, problem.measures[-1], constant=problem.constant, **only)
        data = MeanEmbedding(problem.points, problem.weights, kernel=space.embedding_kernel)
        functional = DISTANCES[problem.objective](data)
        if not infinite and strength > 0.0:
            functional = functional + self.relative(space) * Trace(relative=True)
        return minimize(functional, space, tol=tol, time_limit=deadline)

    def results(self) -> dict[str, np.ndarray]:
        """One row per pair, in the order of the grids."""
        pairs = sorted(self.pairs, key=lambda pair: (pair[1], pair[0]))
        folds, weights = self.problem.folds, self.weights
        nothing = np.full((weights.size, len(self.strengths)), -np.inf)
        columns = [self.scores.get(i, nothing)[:, j] for j, i in pairs]
        scores = np.maximum(np.stack(columns, axis=1), -1e300)
        rows = held_out_rows(folds)
        splits = [fold.test_weights @ scores[own] for fold, own in zip(folds, rows, strict=True)]
        mean = weights @ scores
        known = (mean > -1e299) & (len(folds) > 0)
        behind = scores - scores[:, [int(np.argmax(mean))]]
        difference = weights @ behind
        deviation, error = np.full((2, len(pairs)), np.nan)
        if known.any():
            deviation[known] = np.stack(splits)[:, known].std(axis=0)
            squares = weights @ (behind - difference)[:, known] ** 2
            error[known] = np.sqrt(squares * float(weights @ weights))
        scored = np.where(known, mean, -np.inf)
        return {
            "bandwidth_multiple": np.array([self.multiples[i] for _, i in pairs]),
            "relative_regularization": np.array([self.strengths[j] for j, _ in pairs]),
            "mean_test_score": scored,
            "std_test_score": deviation,
            "difference": np.where(known, difference, -np.inf),
            "standard_error": error,
            "rank_test_score": 1 + np.argsort(np.argsort(-scored, kind="stable"), kind="stable"),
            **{f"split{k}_test_score": np.where(known, s, -np.inf) for k, s in enumerate(splits)},
        }


class KernelSoSDensityCV(DensityEstimator):
    r"""Estimate a density without tuning: the model is chosen by held-out samples, its optimum is
    certified.

    The answer is p(x) = ρ(x)·‖c + Fᵀk(x)‖²: a reference ρ, corrected by a kernel sum of squares.
    Both are solutions of convex problems. ρ is a stack of Gaussian mixtures whose weights maximize
    the likelihood of held-out samples. p minimizes the negative log-likelihood of all samples plus
    λ tr A on the kernel part, over ρ. Infinite λ gives ρ itself.

    Parameters
    ----------
    bandwidths : sequence of floats, optional
        Bandwidths to compare, as multiples of the one that suits a kernel density estimate.
        Default: 3 with a reference, which leaves smooth corrections to make; 1 to 2.8 without;
        0.1 to 1.6 for the criteria "l2" and "mmd".
    relative_regularizations : sequence of floats, optional
        λ to compare, in units of w₀ = ∫k(x,0)²dx, or with a reference of the mean of ∫k(x,x̃_i)²dρ.
        May hold inf if there is a reference. Default: half decades.
    cv : int, splitter or list of (train, test), optional
        Folds. A number means random folds over the distinct samples. Default: 5, or 10 for at most
        200 samples.
    reference : {"auto", "normal", "mixture"}, Normal, GaussianMixture, fitted sklearn mixture, or
    None
        The density that is corrected. "mixture" is the stack described above, "normal" a normal
        distribution, fitted in every fold. A reference that is given is used as it is. None: the
        sum of squares is a density with respect to ``measure``. "auto" is "mixture" if kernel,
        measure, objective and criterion have their defaults, else None. Default: "auto".
    kernel : {"gaussian", "laplace", "matern"} or Kernel
        The model kernel. Of a kernel object, sigma is replaced.
    measure : Measure, optional
        What the density is with respect to, for example a :class:`~ksos.measures.Box`. Default:
        Lebesgue measure on R^d.
    objective : {"likelihood", "squared_mmd"}
        What the fits minimize, before the penalty. Default: "likelihood".
    criterion : {"log_likelihood", "l2", "mmd"}
        How held-out samples judge a fit: log p; 2p − ∫p²; or the squared MMD in a kernel of median
        bandwidth. Default: "log_likelihood".
    n_support : int, optional
        The most support points of a fit. Default: 100 with a reference, 400 without.
    tol : float
        Absolute gap of ``solution_``, in the objective's units. Default: 1e-4.
    time_limit : float, optional
        Seconds for the whole fit. The search takes at most 70% of them and ends with the best of
        what it has compared by then.
    n_jobs : int, optional
        Processes (joblib) that fit folds in parallel.
    contamination : float, optional
        The share of new rows that ``predict`` flags as anomalies. Default: no threshold, no
        ``predict``.
    random_state : int, RandomState or None
        For the folds. Default: 0, the same every time.
    verbose : int
        1: print each step.

    Attributes
    ----------
    distribution_ : SoSDensity
        The fitted density: the certified optimum of the chosen problem.
    solution_ : Solution
        Its certificate. With a reference, the density there is relative to it.
    reference_ : Measure or None
        ρ, fitted to all samples.
    reference_gap_ : float
        Bound, in nats per sample, on how far the weights of the stack are from the best ones, given
        its candidates. 0 for a reference without such weights.
    best_params_ : dict
        "bandwidth_multiple" and "relative_regularization" of the chosen pair.
    best_score_ : float
        Its mean held-out score; −inf if nothing was compared.
    cv_results_ : dict of arrays
        A row per pair: "bandwidth_multiple", "relative_regularization", "mean_test_score",
        "std_test_score" (between folds), "difference" to the best pair and its "standard_error",
        "rank_test_score", "split0_test_score", …. −inf where the time was up.
        :class:`~ksos.CrossValidationDisplay` draws it.
    bandwidth_ : ndarray
        Bandwidth of the model kernel, or its matrix S.
    regularization_ : float
        The paper's λ; may be inf.
    status_ : str
        The status of ``solution_``, or "time_limit" or "interrupted" if the search was cut short.
    n_features_in_, feature_names_in_

    Notes
    -----
    Every pair of bandwidth and λ is scored on samples that neither its fit nor its reference has
    seen. The pair with the largest λ, then the widest kernel, is chosen among those whose score is
    within one standard error of the paired difference to the best.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, _ = make_moons(120, noise=0.1, random_state=0)
    >>> est = KernelSoSDensityCV(bandwidths=[3.0], relative_regularizations=[float("inf"), 0.1], cv=3).fit(X)
    >>> est.solution_.status, est.reference_gap_ <= 1e-4
    ('solved', True)
    >>> bool(est.score(X) > -1.4)
    True
    """

    distribution_: SoSDensity
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
        tol: float = 1e-4,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        contamination: float | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.bandwidths, self.relative_regularizations, self.cv = (
            bandwidths,
            relative_regularizations,
            cv,
        )
        self.reference, self.kernel, self.measure = reference, kernel, measure
        self.objective, self.criterion, self.n_support = objective, criterion, n_support
        self.tol, self.time_limit, self.n_jobs = tol, time_limit, n_jobs
        self.contamination, self.random_state, self.verbose = contamination, random_state, verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose reference, bandwidth and λ for the samples ``X`` (n, d), and fit the density to
        all of them.

        Of a source, ``ksos.chunks(…)`` or objects of Dask, one pass keeps the 20,000 distinct
        samples with the lowest hashes and their masses. These are searched and fitted, and ``cv``
        must be a number. Ctrl-C ends the search, stores the best of what has been compared, and is
        raised again.
        """
        warn_if_memorised(self.contamination, self.objective == "likelihood")
        with shown(type(self).__name__, verbose=self.verbose):
            from ksos.data.sources import is_source

            if is_source(X):
                return cast(Self, fit_few(self, X, sample_weight, MOST_SAMPLES))
            return self._fit(X, sample_weight)._calibrate(X, sample_weight)

    @np.errstate(under="ignore")
    def _fit(self, X: Any, sample_weight: Any, features: slice = slice(None)) -> Self:
        """The same; only ``features`` must differ, for a target that repeats a feature is no
        mistake.
        """
        deadline = Deadline.of(self.time_limit)
        self._check_parameters()
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C")
        masses, names = as_masses(sample_weight, X.shape[0]), vars(self).get("feature_names_in_")
        measure = Lebesgue() if self.measure is None else self.measure
        require_inside(measure, X, masses, names)
        (points, weights), rng = distinct_samples(X, masses), as_generator(self.random_state)
        if not self._corrects:
            require_different_features(X[masses > 0.0, features], names)
        # of one sample, a reference is all there is
        alone = self._corrects and points.shape[0] == 1
        folds = [] if alone else as_folds(self.cv, X, masses, weights, rng)
        points, weights, folds = some_of(points, weights, folds, MOST_SAMPLES, rng)
        search = _Search(self, points, weights, folds, measure, names, rng)
        limit = (
            Deadline()
            if self.time_limit is None
            else Deadline(max(_SEARCH_SHARE * deadline.remaining, 1e-9))
        )
        interrupt, complete = None, False
        try:
            complete = search.run(limit)
        except KeyboardInterrupt as error:
            if not search.usable:
                raise
            tell_stopping()
            interrupt, deadline = error, Deadline(_AFTER_CTRL_C)
        found = search.found or search.settle(Deadline())
        gap = 0.0 if search.stack is None else search.stack.gap
        self._report(found, gap, found.answer(self.tol, deadline))
        if self.solution_.keyboard_interrupt:
            interrupt = KeyboardInterrupt(self.solution_.message)
        if interrupt is not None:
            self.status_ = "interrupted"
            raise interrupt
        if not complete:
            self.status_ = "time_limit"
            message = (
                f"the time limit came before the end of the search: {search.progress}; raise"
                " time_limit"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        elif self.status_ != "solved":
            warnings.warn(self.solution_.message, ConvergenceWarning, stacklevel=4)
        return self

    @property
    def _corrects(self) -> bool:
        """Whether there is a reference."""
        if not isinstance(self.reference, str) or self.reference != "auto":
            return self.reference is not None
        gaussian = isinstance(kernel_form(self.kernel), Gaussian) and self.measure is None
        return gaussian and (self.objective, self.criterion) == ("likelihood", "log_likelihood")

    def _check_parameters(self) -> None:
        """Raise what can be raised before the data are looked at."""
        self._check_common()
        as_choice(self.objective, "objective", OBJECTIVES)
        as_choice(self.criterion, "criterion", CRITERIA)
        if self.reference is not None and not (
            isinstance(self.reference, str) and self.reference == "auto"
        ):
            require_reference(self.reference, self.measure)
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

    def _strengths(self) -> list[float]:
        """The grid of λ, descending."""
        if self.relative_regularizations is None:
            return list(REGULARIZATIONS[self.objective, self._corrects])
        given = as_grid(
            self.relative_regularizations, "relative_regularizations", positive=False, infinite=True
        )
        infinite = np.isposinf(given)
        if infinite.any() and not self._corrects:
            raise ValueError(
                "relative_regularizations holds inf, which gives the reference itself, but there is"
                " none; leave inf out, or set reference='mixture'"
            )
        return sorted(set(given.tolist()), reverse=True)

    def _multiples(self) -> list[float]:
        """The grid of bandwidths, ascending."""
        if self.bandwidths is None:
            return list(BANDWIDTHS[self.criterion == "log_likelihood", self._corrects])
        return sorted(set(as_grid(self.bandwidths, "bandwidths", positive=True).tolist()))

    def _report(self, found: _Comparison, gap: float, solution: Solution) -> None:
        """Set the fitted attributes."""
        space, (multiple, strength) = solution.space, found.chosen
        self.solution_, self.status_ = solution, solution.status
        density = solution.distribution
        self.distribution_ = density.by_volume() if space.constant else density
        self.reference_ = space.measure if space.constant else None
        self.reference_gap_ = gap
        self.best_params_ = {"bandwidth_multiple": multiple, "relative_regularization": strength}
        self.best_score_, self.cv_results_ = found.best_score, found.results()
        self.bandwidth_, self.support_points_ = space.kernel.sigma, space.support_points
        self.regularization_ = found.relative(space) * float(np.exp(space.log_unit))
        self.n_splits_ = len(found.problem.folds)
        self._name_features()


class _Search:
    """One search: references, then every pair of bandwidth and λ on every fold."""

    def __init__(
        self,
        estimator: KernelSoSDensityCV,
        points: np.ndarray,
        weights: np.ndarray,
        folds: list[Fold],
        measure: Measure,
        names: Any,
        rng: np.random.Generator,
    ) -> None:
        self.options, self.points, self.weights, self.folds = estimator, points, weights, folds
        self.measure, self.names, self.rng = measure, names, rng
        self.units = Units.of(points, weights, rng, names)
        self.stack: Stack | None = None
        self.found: _Comparison | None = None
        if estimator._corrects and isinstance(estimator.reference, str):
            warn_if_flat(self.units.of_points(points), weights, names)
            if estimator.reference != "normal":
                self.stack = Stack(points, weights, folds, self.units)

    @property
    def usable(self) -> bool:
        """Whether an answer can be made of what there is."""
        return self.stack is None or bool(self.stack.fits)

    @property
    def progress(self) -> str:
        compared = 0 if self.found is None else len(self.found.scores)
        of = f"{compared} of {len(self.options._multiples())} bandwidths were compared"
        return of if self.stack is None else f"{len(self.stack.fits)} mixtures were fitted and {of}"

    @one_blas_thread(0)
    def run(self, deadline: Deadline) -> bool:
        """Compare all pairs; whether the time was enough."""
        plan = [] if self.stack is None else self.stack.plan
        multiples, folds = self.options._multiples(), len(self.folds)
        # corrections took 1.5 times the mixtures in the mean of benchmarks/quality, the last fit a
        # tenth
        total, fits = sum(step.cost for step in plan) or 1.0, folds * len(multiples)
        steps = Steps([*(step.cost / total for step in plan), *[1.5 / max(fits, 1)] * fits, 0.1])
        mixtures = iter(()) if self.stack is None else self.stack.fit(deadline)
        for step in plan:
            steps.begin(f"mixtures of {step.components} component{'s' * (step.components > 1)}")
            next(mixtures, None)
        found = self.found = self.settle(deadline)
        if self.stack is not None:
            self._print(
                f"{len(self.stack.fits)} mixtures, weights within {self.stack.gap:.1e} nats of the"
                " best"
            )
        strengths = found.strengths
        # wide kernels first: they are the simple ones
        for i in reversed(range(len(multiples) if folds else 0)):
            kernel = found.unit.scaled(multiples[i])
            jobs = (
                delayed(held_out_scores)(
                    found.problem, k, kernel, found.support[k], strengths, deadline
                )
                for k in range(folds)
            )
            pool, parts = Parallel(n_jobs=self.options.n_jobs, return_as="generator")(jobs), []
            for k in range(folds):
                steps.begin(
                    f"bandwidth {multiples[i]:.3g}, {len(strengths)} λ, fold {k + 1} of {folds}"
                )
                parts.append(next(pool))
            scores = np.concatenate(parts)
            # a λ counts only where all folds have been scored
            lost = np.isneginf(np.stack([part.max(axis=0) for part in parts])).any(axis=0)
            if lost.all() and deadline.passed:
                return False
            scores[:, lost] = -np.inf
            found.scores[i] = scores
            mean = found.weights @ np.maximum(scores, -1e300)
            best = f"λ {strengths[int(np.argmax(mean))]:.3g}, held-out score {mean.max():.4f}"
            self._print(
                f"bandwidth {multiples[i]:.4g}, {len(strengths)} λ, {folds} folds: best {best}"
            )
            if deadline.passed:
                return False
        steps.begin("fit to all samples")
        return not deadline.passed

    def settle(self, deadline: Deadline) -> _Comparison:
        """References, kernels and support points, from the mixtures that are there."""
        options, (n, d) = self.options, self.points.shape
        parts = [(fold.train, fold.train_weights) for fold in self.folds]
        parts.append((np.arange(n), self.weights))
        measures: list[Measure] = [self.measure] * len(parts)
        if self.stack is not None:
            self.stack.solve()
            measures = [*(self.stack.of_fold(k) for k in range(len(self.folds))), self.stack.whole]
        elif options._corrects:
            with warnings.catch_warnings():  # flat data have been reported, and a fold is no news
                warnings.simplefilter("ignore", UserWarning)
                measures = [self._reference(self.points[rows], a, deadline) for rows, a in parts]
        family, volume = (
            kernel_form(options.kernel),
            Lebesgue() if options._corrects else self.measure,
        )
        unit = bandwidth_unit(family, volume, self.points, self.weights, self.units.scale, self.rng)
        log_unit = 0.0
        if not options._corrects:
            log_unit = float(closed_form(unit, volume, d).log_diagonal(self.points[:1])[0])
        projection = self._projection(family, volume) if options.criterion == "mmd" else None
        what = options._corrects, options.objective, options.criterion, projection, log_unit
        problem = Problem(self.points, self.weights, self.folds, measures, *what)
        most = SUPPORT[options._corrects] if options.n_support is None else int(options.n_support)
        at = whitened(unit, self.points)
        masses = np.zeros((len(self.folds), self.points.shape[0]))
        for row, fold in zip(masses, self.folds, strict=True):
            row[fold.train] = fold.train_weights
        fewest = min([most, *(fold.train.size for fold in self.folds)])
        chosen = [*seeds(at, masses, fewest)] if self.folds else []
        chosen += [*seeds(at, self.weights[None], min(most, n))]
        support = [self.points[np.unique(rows)] for rows in chosen]
        strengths = options._strengths()
        if options.relative_regularizations is None and self.points.shape[0] <= FEW_SAMPLES:
            # few samples cannot tell neighbors apart: the scores of n = 100 in benchmarks/quality
            # stay
            strengths = [*strengths[:1], *strengths[1::2]] if options._corrects else strengths[::2]
        return _Comparison(problem, unit, options._multiples(), strengths, support, {})

    def _reference(self, points: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Measure:
        found = as_reference(self.options.reference, points, weights, deadline, self.names)
        normals = found.normals(points.shape[1])
        return found if normals is None else GaussianMixture(*normals)

    def _projection(self, family: Kernel, volume: Measure) -> Projection:
        judge = family.with_sigma(bandwidth_rule("median", self.points, self.weights, self.rng))
        integrals = closed_form(judge, volume, self.points.shape[1])
        most = min(_LANDMARKS, self.points.shape[0])
        return Projection(judge, self.points[pivoted_cholesky(self.points, most, integrals, 1e-10)])

    def _print(self, what: str) -> None:
        if self.options.verbose:
            print(f"[cv] {what}", flush=True)
