"""KernelSoSDensityCV: bandwidth and λ chosen by what held-out samples say, sharing the work that the fits have in common."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import Any, Self, cast

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from ksos._deadline import Deadline
from ksos._progress import Steps, left_in_words, shown, tell, tell_stopping
from ksos._validation import as_bandwidth, as_choice, as_grid, as_masses, require_numbers
from ksos.bandwidth import RULES, bandwidth_rule
from ksos.density import SoSDensity
from ksos.density.mixture import SoSMixture
from ksos.embedding import Projection
from ksos.estimators._anomalies import warn_if_memorised
from ksos.estimators._checks import require_different_features
from ksos.estimators._expectation_maximization import MOST_FULL
from ksos.estimators._held_out import CRITERIA, MOST_SUPPORT_POINTS, BandwidthScores, Problem, fit_path, scores_of_bandwidth, support_of
from ksos.estimators._kernel_density import best_multiple
from ksos.estimators._mixture_stack import SIZES, MixtureStack, Units, warn_if_tied
from ksos.estimators._reference import as_reference, require_reference
from ksos.estimators._reference_search import CORRECTIONS, FEW, FEW_CORRECTIONS, FEW_STRENGTHS, STRENGTHS, ReferenceSearch
from ksos.estimators._samples import Fold, as_folds, as_generator, check_folds, distinct_samples, require_inside, some_of
from ksos.estimators._score_surface import FEW_MULTIPLES, MULTIPLES, REGULARIZATIONS, Surface, grow, results_table
from ksos.estimators._stacked_answer import Answer, answer
from ksos.estimators._stacking import blend
from ksos.estimators._stream import fit_few
from ksos.estimators.density import DensityEstimator, KernelSoSDensity
from ksos.exceptions import BandwidthWarning
from ksos.integrals import closed_form
from ksos.kernels import Gaussian, Kernel, kernel_form
from ksos.measures import GaussianMixture, Lebesgue, Measure
from ksos.sources import is_source
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["KernelSoSDensityCV"]

COMBINATIONS = ("auto", "stacking", "best")
_SMALLEST_SHARE, _FLOOR, _LANDMARKS = 0.005, 0.1, 100
_MANY_SAMPLES, _OF_THE_REFIT = 1000, 0.5  # the latter in units of what a bandwidth takes
_SEARCH_SHARE = 0.7  # of a time limit: the rest is for the fit to all samples
_AFTER_CTRL_C = 1.0  # seconds
_MOST_SAMPLES = 20_000


class KernelSoSDensityCV(DensityEstimator):
    r"""A density that needs no tuning: what is stacked, with which bandwidth and λ, held-out samples decide.

    Without arguments three kinds of densities are stacked, p = Σ_j w_j p_j, with the shares that predict held-out samples best:

    * Gaussian mixtures of 1 to 32 components, with three floors of their covariances and several starts each, every one the mean of its
      fits to the folds and to all samples; from 250 samples on, also the one that BIC chooses [Schwarz1978], as it was fitted to all;
    * the sum of squares that corrects them: p(x) = ‖c + Fᵀk(x)‖²·ρ(x), where ρ is a stack of mixtures and λ acts on the kernel part alone,
      so that λ → ∞ gives ρ itself. In a fold, neither ρ nor the shares in it know the samples that are held out;
    * the sum of squares over Lebesgue, and the kernel density estimate.

    Their kernels have the metric of the covariance of the samples. The answer is an :class:`~ksos.SoSMixture`; a wide normal law takes part
    in it, so that samples far from all others keep a density. Beyond 20 000 distinct samples a random subset of them is fitted.
    ``reference`` narrows this down.

    With ``reference=None``, with more than 40 features, or where grids, a kernel, a measure, another objective or criterion are given, sums
    of squares over one kernel are searched. Grids are in natural units: bandwidths are multiples of a scale-aware rule (one bandwidth per
    feature), λ is a multiple of w₀ = ∫k(x,0)²dx. For each bandwidth and fold the space is whitened and the kernel sums are taken once; fits
    follow the path of λ, each starting at the one before. A grid that is not given grows when its winner lies on an edge. With
    ``combine="stacking"`` the answer is a mixture over the path of λ, at the widest bandwidth whose held-out score is within a standard
    error of the best, in which the kernel density estimate, Σ_i k(x,x_i)² (the sum of squares whose B is diagonal), takes part. It is a sum
    of squares over the same kernel.

    Parameters
    ----------
    bandwidths : sequence of floats, optional
        Multiples of ``rule``. Default: 1 to 2.5 times the bandwidth that suits the kernel density estimate, found by a quick scan.
    relative_regularizations : sequence of floats, optional
        λ in units of w₀. Default: half decades from 10 to 1e-4 (likelihood), or from 0.1 to 1e-5 (squared MMD).
    cv : int, splitter or list of (train, test), optional
        Random folds over the distinct samples, or row numbers of ``X``. Default: 5 folds; 10 for at most 200 samples.
    reference : "auto", None, "normal", "mixture", Normal or GaussianMixture of ksos.measures, or fitted sklearn.mixture.GaussianMixture
        What the squares correct. "auto": all of the above. "normal", "mixture": a normal law or mixtures, fitted in every fold, and what
        corrects them; a law that is given is corrected as it is. None: sums of squares over ``measure``. With a reference, ``bandwidths``
        are multiples of what suits a kernel density estimate (default: 1 and 3), and ``relative_regularizations`` of the mean of
        ∫k(x,x̃_i)²dρ over the support points (default: half decades from 1 to 1e-3). For at most 200 samples: 3, and decades.
    kernel : {"gaussian", "laplace", "matern"} or Kernel
        A kernel object lends its form; its sigma is replaced.
    objective : {"likelihood", "squared_mmd"}
        What the fits minimise: the likelihood predicts best; against outliers see ``criterion``.
    criterion : {"log_likelihood", "l2", "mmd"}
        What held-out samples judge by: log p; 2 mean p − ∫p² (in units that do not depend on the scale of the data; in more than three
        features a Gaussian kernel on R^d, or a discrete measure); minus the squared MMD in a kernel of median bandwidth.
    combine : {"auto", "stacking", "best"}
        "best": the density of the best pair. "stacking" needs criterion "log_likelihood". "auto": stacking for the likelihood, else best.
    rule : {"silverman", "scott", "median"}
        The unit of ``bandwidths``; another than the default goes without a reference.
    extend : bool, optional
        Whether a grid grows at its edges; goes without a reference. Default: only grids that are not given.
    n_support : int, optional
        The most support points of a fit. Default: all distinct samples, up to 2000; with a reference, 100 of them.
    measure : Measure, optional
        ρ. Default: Lebesgue on R^d.
    tol : float
        Absolute gap of ``best_estimator_``, in the objective's units: 1e-4 nats per sample are far below what samples can tell.
    time_limit : float, optional
        Seconds for the whole fit: the search takes at most 70 % of them, and ends with the best of what it has scored by then.
    n_jobs : int, optional
        Bandwidths (with a reference: folds) evaluated in parallel (joblib).
    random_state : int, RandomState or None
        For the folds. Default 0: the same every time.
    verbose : int
    contamination : float, optional
        The share of new rows that ``predict`` flags as anomalies. The threshold comes from held-out rows: up to 500 rows, five more
        searches; of more, one. Default: no threshold, and no ``predict``.

    Attributes
    ----------
    distribution_ : SoSMixture, or SoSDensity without a reference
    best_estimator_ : KernelSoSDensity
        Refitted to all samples with the best bandwidth and λ, with its certificate: with a reference, the best correction of it.
    bandwidth_ : ndarray
        Its bandwidth; with a reference, the matrix S of its kernel.
    bandwidth_multiple_ : float
        The same as a multiple of ``rule``, or of the bandwidth of the kernel density estimate.
    regularization_, relative_regularization_ : float
        The note's λ, and the same in units of w₀, or of the mean of ∫k(x,x̃_i)²dρ.
    status_ : str
        "solved" if all of the grids were scored and the gap of ``best_estimator_`` is at most ``tol``; else what came first: see
        ``Solution.status``.
    best_score_ : float
        Of the answer, on the held-out samples: of a stack, that of the mixture, which may lie below the best single pair in ``scores_``;
        −inf if the time was up before anything was scored.
    weights_ : dict
        Of a stack: the share of each λ (as in ``relative_regularizations_``), and that of the kernel density estimate under
        "kernel_density"; with a reference also "mixtures" and, with "auto", "lebesgue".
    mixture_results_ : dict of arrays
        With a reference: "components", "floor" (infinite for the wide law, NaN for one that is given), "mean_test_score" and "weight" (in
        the reference) of every mixture.
    cv_results_ : dict of arrays
        One entry per pair: "bandwidth_multiple", "bandwidth" (per feature), "relative_regularization", "mean_test_score" (folds weighted
        by the mass they hold out), "std_test_score" (NaN where a fold has −inf), "split0_test_score", …, "rank_test_score".
    bandwidth_multiples_, relative_regularizations_, scores_ : ndarray
        The same as a grid: scores_[i, j] for multiple i and λ j (with a reference: of what corrects it); −inf if the path of λ ended early,
        since it had led away from the best or the time was up.
        :class:`~ksos.CrossValidationDisplay` draws it.
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, _ = make_moons(120, noise=0.1, random_state=0)
    >>> est = KernelSoSDensityCV(bandwidths=[0.4, 0.7], relative_regularizations=[1.0, 0.1, 0.01], cv=3).fit(X)
    >>> est.scores_.shape, est.best_estimator_.solution_.status
    ((2, 3), 'solved')
    >>> bool(est.score(X) > -1.4)
    True
    """

    weights_: dict[Any, float]

    def __init__(
        self, bandwidths: Any = None, relative_regularizations: Any = None, cv: Any = None, *, reference: Any = "auto",
        kernel: str | Kernel = "gaussian",
        objective: str = "likelihood", criterion: str = "log_likelihood", combine: str = "auto", rule: str = "silverman",
        extend: bool | None = None, n_support: int | None = None, measure: Measure | None = None, tol: float = 1e-4,
        time_limit: float | None = None, n_jobs: int | None = None, random_state: Any = 0, verbose: int = 0,
        contamination: float | None = None,
    ) -> None:  # fmt: skip
        self.bandwidths, self.relative_regularizations, self.cv = bandwidths, relative_regularizations, cv
        self.kernel, self.objective, self.measure, self.n_support, self.reference = kernel, objective, measure, n_support, reference
        self.criterion, self.combine, self.rule, self.extend = criterion, combine, rule, extend
        self.tol, self.time_limit, self.n_jobs = tol, time_limit, n_jobs
        self.random_state, self.verbose, self.contamination = random_state, verbose, contamination

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose bandwidth and λ for the samples ``X`` (n, d), weighted by ``sample_weight``, and refit to all of them.

        Of a source, ``ksos.chunks(…)`` or objects of Dask, one pass keeps the 20 000 distinct samples whose hashes are lowest, with their
        masses; these are searched and fitted, and ``cv`` is a number of folds. Ctrl-C ends the search, stores the best of what has been
        scored, and is raised again.
        """
        warn_if_memorised(self.contamination, self.objective == "likelihood")
        with shown(type(self).__name__, verbose=self.verbose):
            if is_source(X):
                return cast(Self, fit_few(self, X, sample_weight, _MOST_SAMPLES))
            return self._fit(X, sample_weight)._calibrate(X, sample_weight)

    @np.errstate(under="ignore")
    def _fit(self, X: Any, sample_weight: Any, features: slice = slice(None)) -> Self:
        """The same, where only some ``features`` must differ: a target that repeats a feature is no mistake of the data."""
        deadline = Deadline.of(self.time_limit)
        self._check_parameters()
        X = validate_data(self, require_numbers(X), dtype=np.float64, order="C")
        masses = as_masses(sample_weight, X.shape[0])
        measure = Lebesgue() if self.measure is None else self.measure
        require_inside(measure, X, masses, vars(self).get("feature_names_in_"))
        (points, weights), rng = distinct_samples(X, masses), as_generator(self.random_state)
        if self._by_reference(points.shape[1]):
            folds = as_folds(self.cv, X, masses, weights, rng) if points.shape[0] > 1 else []
            return self._fit_by_reference(*some_of(points, weights, folds, _MOST_SAMPLES, rng), rng, deadline)
        require_different_features(X[masses > 0.0, features], getattr(self, "feature_names_in_", None))
        folds = as_folds(self.cv, X, masses, weights, rng)
        problem, sigma = self._problem(points, weights, measure, folds, rng)
        surface, interrupt = Surface(problem, self._stacking, self._strengths()), None
        search = Deadline() if self.time_limit is None else Deadline(max(_SEARCH_SHARE * deadline.remaining, 1e-9))
        try:
            complete = self._search(surface, sigma, rng, search)
        except KeyboardInterrupt as error:
            if not surface.found:
                raise
            tell_stopping()
            interrupt, complete, deadline = error, False, Deadline(_AFTER_CTRL_C)
        interrupt = self._refit(surface, sigma, deadline) or interrupt
        self._report(surface, sigma)
        self.status_ = "interrupted" if interrupt else self.best_estimator_.solution_.status
        if interrupt is not None:
            raise interrupt
        if not complete:
            self.status_ = "time_limit"
            scored = np.isfinite(surface.scores).any(axis=1).sum()
            message = f"the time limit came before the end of the search: {scored} bandwidths were scored; raise time_limit, or give grids"
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        return self

    def _check_parameters(self) -> None:
        """Everything that can be refused before the data are looked at."""
        self._check_common()
        as_choice(self.objective, "objective", REGULARIZATIONS)
        as_choice(self.criterion, "criterion", CRITERIA)
        as_choice(self.combine, "combine", COMBINATIONS)
        as_choice(self.rule, "rule", RULES)
        automatic = self.reference is None or (isinstance(self.reference, str) and self.reference == "auto")
        if not automatic:
            require_reference(self.reference, self.measure)
        if not automatic and not self._plain_settings:
            goes = "goes with kernel='gaussian', objective='likelihood', criterion='log_likelihood' and combine='stacking'"
            raise ValueError(f"reference={self.reference!r} {goes}; leave these as they are")
        if not automatic and (self.rule != "silverman" or self.extend is not None):
            given = f"rule={self.rule!r}" if self.rule != "silverman" else f"extend={self.extend!r}"
            goes = "has no say with a reference, whose bandwidths are multiples of what suits a kernel density estimate and do not grow"
            raise ValueError(f"{given} {goes}; leave it as it is, or give reference=None")
        if self.combine == "stacking" and self.criterion != "log_likelihood":
            raise ValueError(f"combine='stacking' weighs fits by their likelihood; criterion={self.criterion!r} needs combine='best'")
        if self.bandwidths is not None:
            as_grid(self.bandwidths, "bandwidths", positive=True)
        if self.relative_regularizations is not None:
            as_grid(self.relative_regularizations, "relative_regularizations", positive=False)
        check_folds(self.cv)
        if self.extend is not None and not isinstance(self.extend, (bool, np.bool_)):
            raise ValueError(f"extend must be True, False or None (only grids that are not given grow); got {self.extend!r}")
        if self.n_jobs is not None and (isinstance(self.n_jobs, bool) or not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise ValueError(f"n_jobs must be None, a positive number of processes, or -1 for all processors; got {self.n_jobs!r}")

    @property
    def _plain_settings(self) -> bool:
        """Whether kernel, measure, objective, criterion and combination are such that a reference can be corrected."""
        gaussian = isinstance(kernel_form(self.kernel), Gaussian) and not isinstance(self.kernel, Kernel)
        return gaussian and self.measure is None and self.objective == "likelihood" and self._stacking

    def _by_reference(self, d: int) -> bool:
        """Whether the search begins with a reference; "auto" leaves grids, kernels and measures that are given, and hundreds of features,
        which no covariance can be fitted to, to the search over λ."""
        if isinstance(self.reference, str) and self.reference == "auto":
            given = (self.bandwidths, self.relative_regularizations, self.n_support, self.extend)
            return self._plain_settings and self.rule == "silverman" and all(value is None for value in given) and d <= MOST_FULL
        return self.reference is not None

    def _fit_by_reference(
        self, points: np.ndarray, weights: np.ndarray, folds: list[Fold], rng: np.random.Generator, deadline: Deadline
    ) -> Self:
        """Stack mixtures, what corrects them, and the sum of squares over Lebesgue."""
        units = Units.of(points, weights, rng, vars(self).get("feature_names_in_"))
        given = None
        if not isinstance(self.reference, str):
            normals = as_reference(self.reference, points, weights, deadline).normals(points.shape[1])
            given = None if normals is None else units.of_law(GaussianMixture(*normals))
        sizes = (1,) if given is not None or self.reference == "normal" else SIZES
        at = units.of_points(points)
        warn_if_tied(at, weights, vars(self).get("feature_names_in_"))
        mixtures = MixtureStack(at, weights, folds, units.still, sizes, given)
        multiples: Sequence[float]
        strengths: Sequence[float]
        multiples, strengths = (FEW_CORRECTIONS, FEW_STRENGTHS) if points.shape[0] <= FEW else (CORRECTIONS, STRENGTHS)
        if self.bandwidths is not None:
            multiples = sorted(as_grid(self.bandwidths, "bandwidths", positive=True).tolist())
        if self.relative_regularizations is not None:
            strengths = self._strengths()
        plain = isinstance(self.reference, str) and self.reference == "auto"
        options = self._say, self.n_support, self.n_jobs
        search = ReferenceSearch(at, weights, folds, mixtures, multiples, strengths, plain, units.log_volume, *options)
        limit, interrupt = Deadline() if self.time_limit is None else Deadline(max(_SEARCH_SHARE * deadline.remaining, 1e-9)), None
        try:
            complete = search.run(rng, limit)
            found = answer(search, units, points, self.tol, deadline)
        except KeyboardInterrupt as error:
            if not search.keep_whole(rng):
                raise
            tell_stopping()
            interrupt, complete = error, False
            found = answer(search, units, points, self.tol, Deadline(_AFTER_CTRL_C))
        if found.solution.keyboard_interrupt:
            interrupt = KeyboardInterrupt(found.solution.message)
        self._report_by_reference(search, units, found)
        self.status_ = "interrupted" if interrupt else found.solution.status
        if interrupt is not None:
            raise interrupt
        if not complete:
            self.status_ = "time_limit"
            message = f"the time limit came before the end of the search: {len(mixtures.fits)} mixtures and {len(search.found)} bandwidths"
            warnings.warn(f"{message} were scored; raise time_limit", ConvergenceWarning, stacklevel=4)
        return self

    def _say(self, what: str, left: float | None) -> None:
        if self.verbose:
            print(f"[cv] {what}{left_in_words(left)}", flush=True)

    def _report_by_reference(self, search: ReferenceSearch, units: Units, found: Answer) -> None:
        """The fitted attributes."""
        space = found.solution.space
        estimator = KernelSoSDensity(
            space.kernel, relative_regularization=found.relative_regularization, support=space.support_points, reference=space.measure,
            objective="likelihood", tol=self.tol,
        )  # fmt: skip
        estimator.solution_, estimator.n_iter_ = found.solution, found.solution.n_iter
        estimator.distribution_ = SoSMixture([found.solution.distribution], measure=Lebesgue())
        estimator.bandwidth_ = estimator.embedding_bandwidth_ = space.kernel.sigma
        estimator.regularization_ = found.relative_regularization * float(np.exp(space.log_unit))
        estimator.relative_regularization_ = found.relative_regularization
        estimator.support_points_, estimator.landmarks_ = space.support_points, space.landmarks
        estimator.n_features_in_ = space.n_features
        self.best_estimator_, self.distribution_ = estimator, SoSMixture(found.densities, found.shares, Lebesgue())
        self._name_features(estimator)
        self.weights_, self.best_score_ = found.weights, found.score - units.log_volume
        self.bandwidth_, self.regularization_ = estimator.bandwidth_, estimator.regularization_
        scored = [*search.found, *[None] * (len(search.multiples) - len(search.found))]
        nothing = np.full((len(search.folds), len(search.strengths)), -np.inf)
        folds = np.stack([(nothing if scores is None else scores.scores - units.log_volume).T for scores in scored])
        sigma = units.scale * search.metric.bandwidth * np.sqrt(np.diagonal(search.metric.shape))
        means = np.stack([search.mean(part.T) for part in folds]) if search.folds else np.full(folds.shape[:2], -np.inf)
        self._tabulate(list(search.multiples), list(search.strengths), means, folds, sigma)
        self.bandwidth_multiple_ = self.bandwidth_multiples_[found.bandwidth]
        self.relative_regularization_ = self.relative_regularizations_[found.strength]
        shares, labels = search.mixtures.shares(), search.mixtures.labels
        scores = search.mixtures.held_out_weights @ search.mixtures.held_out - units.log_volume
        self.mixture_results_ = {
            "components": np.array([label.components for label in labels]),
            "floor": np.array([label.floor for label in labels]),
            "mean_test_score": scores if search.folds else np.full(len(labels), -np.inf),
            "weight": shares,
        }

    @property
    def _stacking(self) -> bool:
        if self.combine == "auto":
            return self.objective == "likelihood" and self.criterion == "log_likelihood"
        return self.combine == "stacking"

    def _problem(
        self, points: np.ndarray, weights: np.ndarray, measure: Measure, folds: list[Fold], rng: np.random.Generator
    ) -> tuple[Problem, np.ndarray]:
        """What does not depend on the grids, and the rule's bandwidth per feature."""
        d = points.shape[1]
        sigma = np.array(np.broadcast_to(bandwidth_rule(self.rule, points, weights, rng, names=vars(self).get("feature_names_in_")), (d,)))
        kernel, projection = kernel_form(self.kernel), None
        if self.criterion == "mmd":
            judge = kernel.with_sigma(bandwidth_rule("median", points, weights, rng))
            chosen = pivoted_cholesky(points, min(_LANDMARKS, points.shape[0]), closed_form(judge, measure, d), 1e-10)
            projection = Projection(judge, points[chosen])
        log_unit = float(closed_form(kernel.with_sigma(sigma), measure, d).log_diagonal(points[:1])[0])
        most = MOST_SUPPORT_POINTS if self.n_support is None else int(self.n_support)
        return Problem(points, weights, measure, kernel, folds, self.objective, self.criterion, most, projection, log_unit), sigma

    def _strengths(self) -> list[float]:
        """The grid of λ, in units of w₀, descending."""
        if self.relative_regularizations is None:
            return list(REGULARIZATIONS[self.objective])
        return sorted(set(as_grid(self.relative_regularizations, "relative_regularizations", positive=False).tolist()), reverse=True)

    def _multiples(self, problem: Problem, sigma: np.ndarray, rng: np.random.Generator, deadline: Deadline) -> list[float]:
        """The grid of bandwidths, as multiples of the rule's, ascending."""
        if self.bandwidths is None:
            centre = best_multiple(problem.points, problem.weights, problem.kernel.with_sigma(sigma), problem.measure, rng, deadline)
            multiples = [centre * multiple for multiple in (MULTIPLES if problem.points.shape[0] <= _MANY_SAMPLES else FEW_MULTIPLES)]
        else:
            multiples = sorted(set(as_grid(self.bandwidths, "bandwidths", positive=True).tolist()))
        for multiple in (multiples[0], multiples[-1]):
            with np.errstate(over="ignore", under="ignore"):
                as_bandwidth(multiple * sigma, "bandwidths times the rule")
        return multiples

    def _search(self, surface: Surface, sigma: np.ndarray, rng: np.random.Generator, deadline: Deadline) -> bool:
        """Evaluate the grids, and let them grow; whether the time was enough."""
        problem = surface.problem

        def evaluate(multiples: Sequence[float], strengths: Sequence[float]) -> Iterator[BandwidthScores]:
            jobs = (
                delayed(scores_of_bandwidth)(problem, multiple * sigma, strengths, deadline)
                for k, multiple in enumerate(multiples)
                if k == 0 or not deadline.passed
            )
            steps, each = Steps([1.0] * len(multiples) + [_OF_THE_REFIT]), Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs)
            for multiple in multiples:  # as they come, not when all of them are there
                steps.begin(f"bandwidth {multiple:.3g} × {self.rule}, {len(strengths)} λ, {len(problem.folds)} folds")
                if (scores := next(each, None)) is None:
                    return
                if self.verbose:
                    print(self._line(problem, multiple, strengths, scores), flush=True)
                yield scores

        multiples = self._multiples(problem, sigma, rng, deadline)
        for multiple, scores in zip(multiples, evaluate(multiples, surface.regularizations), strict=False):
            surface.multiples.append(multiple)
            surface.found.append(scores)
        grids = self.bandwidths, self.relative_regularizations
        wider, along = ((given is None if self.extend is None else bool(self.extend)) for given in grids)
        # below the bandwidth of the kernel density estimate, which takes part in it, a stack wins by chance only
        narrower = wider and not (self.bandwidths is None and self._stacking)
        grow(surface, evaluate, deadline, wider=wider, narrower=narrower, regularizations=along)
        return not deadline.passed

    def _line(self, problem: Problem, multiple: float, strengths: Sequence[float], scores: BandwidthScores) -> str:
        """What is printed of a bandwidth."""
        mean = problem.mean(scores.scores)
        j = int(np.argmax(mean))
        best = f"best λ {strengths[j]:.3g} w₀, held-out score {mean[j]:.4f}"
        return f"[cv] bandwidth {multiple:.4g} × {self.rule}, {len(strengths)} λ, {len(problem.folds)} folds: {best}"

    def _refit(self, surface: Surface, sigma: np.ndarray, deadline: Deadline) -> KeyboardInterrupt | None:
        """The best pair on all samples, to a certified optimum, and the other parts of the stack; Ctrl-C, if it came."""
        (i, j), problem = surface.winner, surface.problem
        points, weights, best = problem.points, problem.weights, surface.regularizations[j]
        kernel = problem.kernel.with_sigma(surface.multiples[i] * sigma)
        support = support_of(problem, kernel, points)
        same: dict[str, Any] = {"measure": self.measure, "objective": self.objective, "tol": self.tol}
        estimator = KernelSoSDensity(kernel, relative_regularization=best, support=support, **same)
        interrupt = None
        tell("fit to all samples", len(surface.found), len(surface.found) + _OF_THE_REFIT, _OF_THE_REFIT)
        with warnings.catch_warnings(), shown():
            warnings.simplefilter("ignore", BandwidthWarning)  # what the held-out samples have chosen needs no warning
            try:
                estimator._fit(points, weights, deadline)
            except KeyboardInterrupt as error:
                if "distribution_" not in vars(estimator):
                    raise
                interrupt = error
        self.best_estimator_, self.distribution_ = estimator, estimator.distribution_
        self.weights_ = {best: 1.0}
        if surface.stacking and interrupt is None and not deadline.passed:
            self._stack(surface, i, j, SoSSpace(kernel, support, problem.measure), deadline)
        return interrupt

    def _stack(self, surface: Surface, i: int, j: int, space: SoSSpace, deadline: Deadline) -> None:
        """Mix the fits along the path of λ and the kernel density estimate, with the shares that predict held-out samples best."""
        problem, strengths, shares = surface.problem, surface.regularizations, surface.shares(i)
        shares[:-1][shares[:-1] < _SMALLEST_SHARE] = 0.0
        shares[-1] = max(shares[-1], _FLOOR / problem.points.shape[0])
        used = [int(k) for k in np.flatnonzero(shares[:-1])]
        parts: dict[int, SoSDensity] = {}
        path = fit_path(self.objective, space, problem.points, problem.weights, strengths[: max(used, default=-1) + 1], deadline)
        for k, F in enumerate(path):
            if k in used:
                parts[k] = SoSDensity.from_units(space.kernel, space.support_points, space.T @ F, space.log_unit, problem.measure)
            if deadline.passed:  # those that are there make the mixture
                break
        if j in used:
            parts[j] = cast("SoSDensity", self.distribution_)
        kept = sorted(parts)
        share, densities = shares[[*kept, -1]] / shares[[*kept, -1]].sum(), [parts[k] for k in kept]
        self.distribution_ = blend(space.kernel, problem.measure, problem.points, problem.weights, densities, share, space.rank)
        self.weights_ = {strengths[k]: float(part) for k, part in zip(kept, share, strict=False)} | {"kernel_density": float(share[-1])}

    def _report(self, surface: Surface, sigma: np.ndarray) -> None:
        """The fitted attributes."""
        i, j = surface.winner
        scores, folds = surface.scores, surface.fold_scores
        self._name_features(self.best_estimator_)
        self.bandwidth_, self.regularization_ = self.best_estimator_.bandwidth_, self.best_estimator_.regularization_
        self.bandwidth_multiple_, self.relative_regularization_ = surface.multiples[i], surface.regularizations[j]
        self.best_score_ = float(surface.bandwidth_scores[i]) if np.isfinite(scores[i]).any() else -np.inf
        self._tabulate(surface.multiples, surface.regularizations, scores, folds, sigma)

    def _tabulate(
        self, multiples: list[float], regularizations: list[float], scores: np.ndarray, folds: np.ndarray, sigma: np.ndarray
    ) -> None:
        """Scores (bandwidths, λ), and of the folds (bandwidths, λ, folds), as a grid and as a table."""
        self.bandwidth_multiples_, self.relative_regularizations_ = np.array(multiples), np.array(regularizations)
        self.scores_, self.n_splits_ = scores, folds.shape[2]
        self.cv_results_ = results_table(self.bandwidth_multiples_, self.relative_regularizations_, scores, folds, sigma)
