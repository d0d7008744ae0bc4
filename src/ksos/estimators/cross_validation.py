"""KernelSoSDensityCV: bandwidth and λ chosen by what held-out samples say, sharing the work that the fits have in common."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from numbers import Integral
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._validation import as_bandwidth, as_choice, as_count, as_grid, as_masses, as_positive, as_weights
from ksos.bandwidth import RULES, bandwidth_rule
from ksos.density import SoSDensity
from ksos.estimators._folds import Fold, as_folds, check_folds
from ksos.estimators._grid import FEW_MULTIPLES, MULTIPLES, REGULARIZATIONS, Surface, best_kernel_density_multiple, grow
from ksos.estimators._refit import blend
from ksos.estimators._samples import as_generator as _generator
from ksos.estimators._samples import distinct_samples as _distinct
from ksos.estimators._samples import require_inside as _require_inside
from ksos.estimators._surface import CRITERIA, MOST_SUPPORT_POINTS, BandwidthScores, Problem, fit_path, scores_of_bandwidth, support_of
from ksos.estimators._whitening import Coordinates, whitened
from ksos.estimators.density import KernelSoSDensity
from ksos.exceptions import BandwidthWarning
from ksos.integrals import closed_form
from ksos.kernels import KERNELS, Kernel
from ksos.measures import Lebesgue, Measure
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["KernelSoSDensityCV"]

COMBINATIONS = ("auto", "stacking", "best")
_SMALLEST_SHARE = 0.005
_FLOOR = 0.1
_LANDMARKS = 100
_MANY_SAMPLES = 1000
_REFIT = {"steps": 100}


class KernelSoSDensityCV(DensityMixin, BaseEstimator):
    r"""A kernel-sum-of-squares density that needs no tuning: cross-validation chooses bandwidth and λ.

    Grids are in natural units: bandwidths are multiples of a scale-aware rule (one bandwidth per feature), λ is a multiple of
    w₀ = ∫k(x,0)²dx. For each bandwidth and fold the space is whitened and the kernel sums are taken once; fits follow the path of λ, each
    starting at the one before. A grid that is not given grows when its winner lies on an edge.

    With ``combine="stacking"`` the answer is a mixture over the path of λ, with the shares that (nearly) predict the held-out samples best,
    at the widest bandwidth whose held-out score is within a standard error of the best. The kernel density estimate, Σ_i k(x,x_i)² (the
    sum of squares whose B is diagonal), takes part in it: the answer is never much behind that estimate, and samples far from all others
    keep a density. The mixture is a sum of squares over the same kernel.

    Parameters
    ----------
    bandwidths : sequence of floats, optional
        Multiples of ``rule``. Default: 1 to 2.5 times the bandwidth that suits the kernel density estimate, found by a quick scan.
    regularizations : sequence of floats, optional
        λ in units of w₀. Default: half decades from 10 to 1e-4 (likelihood), or from 0.1 to 1e-5 (squared MMD).
    cv : int, splitter or list of (train, test), optional
        Random folds over the distinct samples, or row numbers of ``X``. Default: 5 folds; 10 for at most 200 samples.
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
        The unit of ``bandwidths``.
    whiten : bool or "auto"
        Fit in coordinates in which the samples are uncorrelated. "auto": where that helps the kernel density estimate. ``distribution_``
        is then the density of ``whitening_.forward(X)``; ``score_samples`` and ``sample`` are in the coordinates of the data.
    extend : bool, optional
        Whether a grid grows at its edges. Default: only grids that are not given.
    n_support : int, optional
        The most support points of a fit. Default: all distinct samples, up to 2000.
    measure : Measure, optional
        ρ. Default: Lebesgue on R^d.
    tol : float
        The certified gap of ``best_estimator_``, in units of the objective: 1e-4 nats per sample are far below what samples can tell.
    n_jobs : int, optional
        Bandwidths evaluated in parallel (joblib).
    random_state : int, RandomState or None
        For the folds. Default 0: the same every time.
    verbose : int

    Attributes
    ----------
    distribution_ : SoSDensity
    best_estimator_ : KernelSoSDensity
        Refitted to all samples with the best bandwidth and λ, with its certificate.
    bandwidth_ : ndarray
    bandwidth_multiple_ : float
        The same as a multiple of ``rule``.
    regularization_, relative_regularization_ : float
        λ in the note's units, and in units of w₀.
    best_score_ : float
        Of the answer, on the held-out samples: of a stack, that of the mixture, which may lie below the best single pair in ``scores_``.
    weights_ : dict
        Of a stack: the share of each λ (in units of w₀), and that of the kernel density estimate under "kernel_density".
    cv_results_ : dict of arrays
        One entry per pair: "bandwidth_multiple", "bandwidth" (per feature), "regularization", "mean_test_score" (folds weighted by the mass
        they hold out), "std_test_score" (NaN where a fold has −inf), "split0_test_score", …, "rank_test_score".
    bandwidth_multiples_, relative_regularizations_, scores_ : ndarray
        The same as a grid: scores_[i, j] for multiple i and λ j; −inf where the path of λ ended early, having led away from the best.
        :class:`~ksos.CrossValidationDisplay` draws it.
    whitening_ : Coordinates or None
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, _ = make_moons(120, noise=0.1, random_state=0)
    >>> est = KernelSoSDensityCV(bandwidths=[0.4, 0.7], regularizations=[1.0, 0.1, 0.01], cv=3).fit(X)
    >>> est.scores_.shape, est.best_estimator_.solution_.status
    ((2, 3), 'solved')
    >>> bool(est.score(X) > -1.4)
    True
    """

    def __init__(
        self,
        bandwidths: Any = None,
        regularizations: Any = None,
        cv: Any = None,
        *,
        kernel: str | Kernel = "gaussian",
        objective: str = "likelihood",
        criterion: str = "log_likelihood",
        combine: str = "auto",
        rule: str = "silverman",
        whiten: bool | str = False,
        extend: bool | None = None,
        n_support: int | None = None,
        measure: Measure | None = None,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.bandwidths = bandwidths
        self.regularizations = regularizations
        self.cv = cv
        self.kernel = kernel
        self.objective = objective
        self.criterion = criterion
        self.combine = combine
        self.rule = rule
        self.whiten = whiten
        self.extend = extend
        self.n_support = n_support
        self.measure = measure
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Choose bandwidth and λ for the samples ``X`` (n, d), weighted by ``sample_weight``, and refit to all of them."""
        return self._fit(X, sample_weight)

    def _fit(self, X: Any, sample_weight: Any, features: slice = slice(None)) -> Self:
        """The same, where only some ``features`` must differ: a target that repeats a feature is no mistake of the data."""
        self._check_parameters()
        X = validate_data(self, X, dtype=np.float64, order="C")
        masses = as_masses(sample_weight, X.shape[0])
        measure = Lebesgue() if self.measure is None else self.measure
        _require_inside(measure, X, masses)
        _require_different_features(X[masses > 0.0, features], getattr(self, "feature_names_in_", None))
        points, weights = _distinct(X, masses)
        rng = _generator(self.random_state)
        folds = as_folds(self.cv, X, masses, _rows(X, masses), weights, rng)
        problem, sigma = self._problem(points, weights, measure, folds, rng)
        self.whitening_ = self._whitening(problem, sigma)
        if self.whitening_ is not None:
            problem, sigma = self._problem(self.whitening_.forward(points), weights, measure, folds, rng)
        surface = self._search(problem, sigma, rng)
        self._refit(problem, sigma, surface)
        self._report(surface, sigma)
        return self

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density of each sample, shape (n,)."""
        check_is_fitted(self, "distribution_")
        X = validate_data(self, X, dtype=np.float64, order="C", reset=False)
        if self.whitening_ is None:
            return self.distribution_.logpdf(X)
        return self.distribution_.logpdf(self.whitening_.forward(X)) + self.whitening_.log_determinant

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-density of the samples, weighted by ``sample_weight``."""
        scores = self.score_samples(X)
        weights = as_weights(sample_weight, scores.shape[0])
        return float(weights[weights > 0.0] @ scores[weights > 0.0])

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Independent samples of the fitted density, shape (n_samples, d)."""
        check_is_fitted(self, "distribution_")
        samples = self.distribution_.rvs(as_count(n_samples, "n_samples"), rng=_generator(random_state))
        return samples if self.whitening_ is None else self.whitening_.backward(samples)

    def _check_parameters(self) -> None:
        """Everything that can be refused before the data are looked at."""
        if not isinstance(self.kernel, Kernel):
            as_choice(self.kernel, "kernel", KERNELS, otherwise=" or a kernel object")
        as_choice(self.objective, "objective", REGULARIZATIONS)
        as_choice(self.criterion, "criterion", CRITERIA)
        as_choice(self.combine, "combine", COMBINATIONS)
        as_choice(self.rule, "rule", RULES)
        if self.combine == "stacking" and self.criterion != "log_likelihood":
            raise ValueError(f"combine='stacking' weighs fits by their likelihood; criterion={self.criterion!r} needs combine='best'")
        if self.bandwidths is not None:
            as_grid(self.bandwidths, "bandwidths", positive=True)
        if self.regularizations is not None:
            as_grid(self.regularizations, "regularizations", positive=False)
        check_folds(self.cv)
        if self.extend is not None and not isinstance(self.extend, (bool, np.bool_)):
            raise ValueError(f"extend must be True, False or None (only grids that are not given grow); got {self.extend!r}")
        if self.n_jobs is not None and (isinstance(self.n_jobs, bool) or not isinstance(self.n_jobs, Integral) or self.n_jobs == 0):
            raise ValueError(f"n_jobs must be None, a positive number of processes, or -1 for all processors; got {self.n_jobs!r}")
        if not isinstance(self.whiten, bool) and self.whiten != "auto":
            raise ValueError(f"whiten must be True, False or 'auto'; got {self.whiten!r}")
        if self.whiten is True and self.measure is not None and not isinstance(self.measure, Lebesgue):
            raise ValueError(f"whiten=True turns the axes, which {self.measure!r} does not follow; use whiten=False")
        if self.measure is not None and not isinstance(self.measure, Measure):
            raise TypeError(f"measure must be a measure such as ksos.measures.Box(low, high), or None; got {self.measure!r}")
        if self.n_support is not None:
            as_count(self.n_support, "n_support")
        as_positive(self.tol, "tol")
        if not isinstance(self.verbose, bool):
            as_count(self.verbose, "verbose", minimum=0)

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
        sigma = np.array(np.broadcast_to(bandwidth_rule(self.rule, points, weights, rng), (d,)))
        make_kernel = _KernelOf(self.kernel)
        integrals = closed_form(make_kernel(sigma), measure, d)
        landmarks, yardstick = np.zeros((0, d)), None
        if self.criterion == "mmd":
            yardstick = make_kernel(bandwidth_rule("median", points, weights, rng))
            landmarks = points[pivoted_cholesky(points, min(_LANDMARKS, points.shape[0]), closed_form(yardstick, measure, d), 1e-10)]
        return (
            Problem(
                points,
                weights,
                measure,
                make_kernel,
                folds,
                self.objective,
                self.criterion,
                MOST_SUPPORT_POINTS if self.n_support is None else int(self.n_support),
                landmarks,
                yardstick,
                float(integrals.log_diagonal(points[:1])[0]),
            ),
            sigma,
        )

    def _whitening(self, problem: Problem, sigma: np.ndarray) -> Coordinates | None:
        """The coordinates to fit in; None for those of the data."""
        if self.whiten is False or problem.points.shape[1] == 1 or not isinstance(problem.measure, Lebesgue):
            return None
        return whitened(problem, sigma, self.rule, must=self.whiten is True)

    def _search(self, problem: Problem, sigma: np.ndarray, rng: np.random.Generator) -> Surface:
        """Evaluate the grids, and let them grow."""
        if self.regularizations is None:
            regularizations = list(REGULARIZATIONS[self.objective])
        else:
            regularizations = sorted(set(as_grid(self.regularizations, "regularizations", positive=False).tolist()), reverse=True)
        if self.bandwidths is None:
            centre = best_kernel_density_multiple(problem, sigma, rng)
            multiples = [centre * multiple for multiple in (MULTIPLES if problem.points.shape[0] <= _MANY_SAMPLES else FEW_MULTIPLES)]
        else:
            multiples = sorted(set(as_grid(self.bandwidths, "bandwidths", positive=True).tolist()))
        for multiple in (multiples[0], multiples[-1]):
            with np.errstate(over="ignore", under="ignore"):
                as_bandwidth(multiple * sigma, "bandwidths times the rule")
        masses = np.array([fold.mass for fold in problem.folds])

        def evaluate(multiples: Sequence[float], regularizations: Sequence[float]) -> list[BandwidthScores]:
            jobs = (delayed(scores_of_bandwidth)(problem, multiple * sigma, regularizations) for multiple in multiples)
            found: list[BandwidthScores] = []
            for multiple, scores in zip(multiples, Parallel(n_jobs=self.n_jobs, return_as="generator")(jobs), strict=True):
                found.append(scores)
                if self.verbose:  # as they come, not when all of them are there
                    with np.errstate(invalid="ignore"):
                        mean = masses / masses.sum() @ scores.scores + self._score_offset
                    j = int(np.argmax(mean))
                    best = f"best λ {regularizations[j]:.3g} w₀, held-out score {mean[j]:.4f}"
                    print(
                        f"[cv] bandwidth {multiple:.4g} × {self.rule}, {len(regularizations)} λ, {len(problem.folds)} folds: {best}",
                        flush=True,
                    )
            return found

        surface = Surface(problem, multiples, regularizations, evaluate(multiples, regularizations), self._stacking)
        wider, along = ((given is None if self.extend is None else bool(self.extend)) for given in (self.bandwidths, self.regularizations))
        # below the bandwidth of the kernel density estimate, which takes part in it, a stack wins by chance only
        narrower = wider and not (self.bandwidths is None and self._stacking)
        grow(surface, evaluate, wider=wider, narrower=narrower, regularizations=along)
        return surface

    def _refit(self, problem: Problem, sigma: np.ndarray, surface: Surface) -> None:
        """The best pair on all samples, to a certified optimum; and the other parts of the stack."""
        i, j = surface.winner
        points, weights, best = problem.points, problem.weights, surface.regularizations[j]
        kernel = problem.make_kernel(surface.multiples[i] * sigma)
        support = support_of(problem, kernel, points)
        self.best_estimator_ = KernelSoSDensity(
            kernel=kernel,
            regularization=best,
            regularization_unit="w0",
            support=support,
            measure=self.measure,
            objective=self.objective,
            tol=self.tol,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BandwidthWarning)  # what the held-out samples have chosen needs no warning
            self.best_estimator_.fit(points, sample_weight=weights)
        self.distribution_: SoSDensity = self.best_estimator_.distribution_
        self.weights_: dict[Any, float] = {best: 1.0}
        if not surface.stacking:
            return
        shares = surface.shares(i)
        shares[:-1][shares[:-1] < _SMALLEST_SHARE] = 0.0
        shares[-1] = max(shares[-1], _FLOOR / points.shape[0])
        shares /= shares.sum()
        used = np.flatnonzero(shares[:-1])
        last = int(used.max(initial=-1))
        space, parts = SoSSpace(kernel, support, problem.measure), []
        path = fit_path(self.objective, space, points, weights, surface.regularizations[: last + 1], **_REFIT)
        for k, unit_factor in enumerate(path):
            if k in used:
                part = SoSDensity.from_units(kernel, support, unit_factor, space.log_unit, problem.measure)
                parts.append(self.best_estimator_.distribution_ if k == j else part)
        self.distribution_ = blend(kernel, problem.measure, points, weights, parts, shares[[*used, -1]], space.rank)
        self.weights_ = {surface.regularizations[k]: float(shares[k]) for k in used} | {"kernel_density": float(shares[-1])}

    @property
    def _score_offset(self) -> float:
        """What a score in whitened coordinates lacks to be one in those of the data."""
        return 0.0 if self.whitening_ is None or self.criterion != "log_likelihood" else self.whitening_.log_determinant

    def _report(self, surface: Surface, sigma: np.ndarray) -> None:
        """The fitted attributes."""
        i, j = surface.winner
        scores, folds = surface.scores, surface.fold_scores
        self.bandwidth_, self.regularization_ = self.best_estimator_.bandwidth_, self.best_estimator_.regularization_
        self.bandwidth_multiple_, self.relative_regularization_ = surface.multiples[i], surface.regularizations[j]
        offset = self._score_offset
        self.best_score_ = float(surface.bandwidth_scores[i]) + offset
        self.bandwidth_multiples_ = np.array(surface.multiples)
        self.relative_regularizations_ = np.array(surface.regularizations)
        self.scores_ = scores + offset
        self.n_splits_ = folds.shape[2]
        multiple, regularization = (grid.ravel() for grid in np.meshgrid(surface.multiples, surface.regularizations, indexing="ij"))
        flat = folds.reshape(-1, folds.shape[2]) + offset
        finite = np.all(np.isfinite(flat), axis=1)
        deviation = np.full(flat.shape[0], np.nan)
        scale = np.maximum(np.abs(flat[finite]).max(axis=1), 1.0)  # scores of −1e300, of samples that a fit cannot see, have squares too
        deviation[finite] = (flat[finite] / scale[:, None]).std(axis=1) * scale
        self.cv_results_ = {
            "bandwidth_multiple": multiple,
            "bandwidth": multiple[:, None] * sigma,
            "regularization": regularization,
            "mean_test_score": self.scores_.ravel(),
            "std_test_score": deviation,
            "rank_test_score": 1 + np.argsort(np.argsort(-self.scores_.ravel(), kind="stable"), kind="stable"),
            **{f"split{k}_test_score": flat[:, k] for k in range(flat.shape[1])},
        }


def _rows(X: np.ndarray, masses: np.ndarray) -> np.ndarray:
    """Which of the distinct samples each row is; −1 for those of mass zero."""
    rows = np.full(X.shape[0], -1)
    rows[masses > 0.0] = np.unique(X[masses > 0.0] + 0.0, axis=0, return_inverse=True)[1].ravel()
    return rows


def _require_different_features(X: np.ndarray, names: Any) -> None:
    """Raise where two features that vary are one and the same: all samples then lie on a plane, and held-out likelihoods have no bound."""
    seen: dict[bytes, int] = {}
    for k in range(X.shape[1] if X.shape[0] > 1 else 0):
        first = seen.setdefault((X[:, k] + 0.0).tobytes(), k)
        if first != k and np.ptp(X[:, k]) > 0.0:
            words = f"{first} and {k}" if names is None else f"{names[first]!r} and {names[k]!r}"
            raise ValueError(
                f"features {words} are identical in all {X.shape[0]} samples: they have no joint density, and the narrower a bandwidth, "
                "the better it would seem; leave one of them out, or fix the bandwidth with KernelSoSDensity"
            )


class _KernelOf:
    """sigma ↦ the kernel with that bandwidth: a class, so that it travels to worker processes."""

    def __init__(self, kernel: str | Kernel) -> None:
        self.kernel = kernel

    def __call__(self, sigma: Any) -> Kernel:
        if isinstance(self.kernel, Kernel):
            return self.kernel.with_sigma(sigma)
        return KERNELS[self.kernel](sigma=sigma, **({} if self.kernel == "gaussian" else {"product": True}))
