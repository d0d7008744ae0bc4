"""The search for reference, bandwidth and λ: every pair of bandwidth and λ on every fold, and the
certified optimum of the chosen problem.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from ksos.choose.bandwidth import Units, bandwidth_unit, warn_if_flat
from ksos.choose.held_out import (
    FARTHEST,
    Problem,
    held_out_scores,
    regularization_unit,
    simplest_good,
)
from ksos.choose.mixtures import seeds
from ksos.choose.reference import Stack, as_reference, training_masses
from ksos.data import Fold, held_out_rows, held_out_weights
from ksos.functionals import NegativeLogLikelihood, SquaredMMD, Trace
from ksos.ground import Run, Steps, one_blas_thread
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import GaussianMixture, Lebesgue, Measure
from ksos.solvers import Solution, minimize
from ksos.space import (
    MeanEmbedding,
    Projection,
    SoSSpace,
    bandwidth_rule,
    in_bandwidths,
    pivoted_cholesky,
)

# Support points with a reference, and without: a correction is smooth, a density over volume is
# not. A trade-off, as time grows with their cube.
SUPPORT = {True: 100, False: 400}
_LANDMARKS = 100  # of the held-out MMD: its projection errs two digits less than held-out scores
_SEARCH_SHARE = 0.7  # Of a time limit: the rest is for the fit to all samples.
_AFTER_CTRL_C = 1.0  # Seconds for the fit to all samples after Ctrl-C: nobody waits longer.
_CORRECTIONS = 1.5  # of the mixtures' time in the mean of benchmarks/quality: for the progress bar
_LAST_FIT = 0.1  # likewise


@dataclass
class Search:
    """Reference, bandwidth and λ of a density of distinct ``points`` with ``weights``, chosen by
    the held-out samples of ``folds``.

    ``measure`` is what the density is with respect to without a ``reference``. ``multiples`` of the
    bandwidth ascend, ``strengths`` (λ) descend. ``scores`` holds by bandwidth what has been
    compared so far, (held-out samples, λ).
    """

    points: np.ndarray
    weights: np.ndarray
    folds: list[Fold]
    measure: Measure
    reference: Any
    kernel: Kernel
    objective: str
    criterion: str
    multiples: list[float]
    strengths: list[float]
    n_support: int | None
    n_jobs: int | None
    rng: np.random.Generator
    names: Any = None
    verbose: int = 0
    stack: Stack | None = None
    problem: Problem | None = None
    scores: dict[int, np.ndarray] = field(default_factory=dict)
    interrupted: bool = False

    def __post_init__(self) -> None:
        self.units = Units.of(self.points, self.weights, self.rng, self.names)
        if isinstance(self.reference, str):
            warn_if_flat(self.units.of_points(self.points), self.weights, self.names)
            if self.reference != "normal":
                self.stack = Stack(self.points, self.weights, self.folds, self.units)

    def run(self) -> bool:
        """Compare all pairs in most of the time that is left. Whether that was enough.

        After Ctrl-C the search is ``interrupted``, and what has been compared decides.
        """
        run, complete = Run.current(), False
        try:
            with Run(run.limit(_SEARCH_SHARE)) as search:
                steps = self._compare()
                complete = not search.over
            if complete:
                steps.begin("fit to all samples")
        except KeyboardInterrupt:
            if self.stack is not None and not self.stack.fits:
                raise
            run.interrupt(_AFTER_CTRL_C)
            # the problem that was chosen is still solved, with a status of its own
            self.interrupted, run.interrupted = True, False
        if self.problem is None:
            self._settle()
        return complete

    @one_blas_thread(0)
    def _compare(self) -> Steps:
        run, folds = Run.current(), len(self.folds)
        plan = [] if self.stack is None else self.stack.plan * self.stack.rounds
        # a step of expectation–maximization of all components at each floor
        costs = [float(step.components * len(step.floors)) for step in plan]
        fits, total = folds * len(self.multiples), sum(costs) or 1.0
        later = [*[_CORRECTIONS * total / max(fits, 1)] * fits, _LAST_FIT * total]
        steps = Steps([*costs, *later])
        if self.stack is not None:
            self._fit_stack(steps.begin)
        problem = self._settle()
        if self.stack is not None:
            certified = f"weights within {self.stack.gap:.1e} nats of the best"
            self._print(f"{len(self.stack.fits)} mixtures, {certified}")
        # wide kernels first: they are the simple ones
        for i in reversed(range(len(self.multiples) if folds else 0)):
            score, kernel = delayed(held_out_scores), self.kernel_of(i)
            jobs = (
                score(problem, k, kernel, self.support[k], self.strengths, run.limit())
                for k in range(folds)
            )
            # dispatched one by one, so that each knows how much time is left
            pool = Parallel(n_jobs=self.n_jobs, return_as="generator", pre_dispatch="n_jobs")(jobs)
            what, parts = f"bandwidth {self.multiples[i]:.3g}, {len(self.strengths)} λ", []
            for k in range(folds):
                steps.begin(f"{what}, fold {k + 1} of {folds}")
                parts.append(next(pool))
            scores = np.concatenate(parts)
            # a λ counts only where all folds have been scored
            lost = np.isneginf(np.stack([part.max(axis=0) for part in parts])).any(axis=0)
            if lost.all() and run.over:
                break
            scores[:, lost] = -np.inf
            self.scores[i] = scores
            mean = held_out_weights(self.folds) @ np.maximum(scores, FARTHEST)
            best = f"λ {self.strengths[int(np.argmax(mean))]:.3g}, held-out score {mean.max():.4f}"
            self._print(f"{what}, {folds} folds: best {best}")
            if run.over:
                break
        return steps

    def _fit_stack(self, begin: Callable[[str], None]) -> None:
        assert self.stack is not None
        self.stack.fit(begin)

    def kernel_of(self, i: int) -> Kernel:
        """That of a multiple of the bandwidth."""
        return self.unit.scaled(self.multiples[i])

    # References, kernels and support points, from the mixtures that are there.
    def _settle(self) -> Problem:
        n, corrects = self.points.shape[0], self.reference is not None
        parts = [(fold.train, fold.train_weights) for fold in self.folds]
        parts.append((np.arange(n), self.weights))
        measures: list[Measure] = [self.measure] * len(parts)
        if self.stack is not None:
            self.stack.solve()
            measures = [*(self.stack.of_fold(k) for k in range(len(self.folds))), self.stack.whole]
        elif corrects:
            with warnings.catch_warnings():  # flat data have been reported, and a fold is no news
                warnings.simplefilter("ignore", UserWarning)
                measures = [self._reference(self.points[rows], a) for rows, a in parts]
        volume = Lebesgue() if corrects else self.measure
        samples = self.points, self.weights
        self.unit = bandwidth_unit(self.kernel, volume, *samples, self.rng)
        log_unit, projection = 0.0, None
        if not corrects:
            integrals = closed_form(self.unit, volume, self.points.shape[1])
            log_unit = float(integrals.log_diagonal(self.points[:1])[0])
        if self.criterion == "mmd":
            judge = self.kernel.with_sigma(bandwidth_rule("median", *samples, self.rng))
            integrals = closed_form(judge, volume, self.points.shape[1])
            rows = pivoted_cholesky(self.points, min(_LANDMARKS, n), integrals, 1e-10)
            projection = Projection(judge, self.points[rows])
        most = SUPPORT[corrects] if self.n_support is None else int(self.n_support)
        chosen = self._centers(in_bandwidths(self.points, self.unit), most)
        self.support = [self.points[rows] for rows in chosen]
        self.problem = Problem(
            *samples,
            self.folds,
            measures,
            corrects,
            self.objective,
            self.criterion,
            projection,
            log_unit,
        )
        return self.problem

    # Rows for support points: of every fold, and last of all samples.
    def _centers(self, at: np.ndarray, most: int) -> list[np.ndarray]:
        fewest = min([most, *(fold.train.size for fold in self.folds)])
        masses = training_masses(self.folds, at.shape[0])
        chosen = [*seeds(at, masses, fewest)] if self.folds else []
        chosen += [*seeds(at, self.weights[None], min(most, at.shape[0]))]
        return [np.unique(rows) for rows in chosen]

    def _reference(self, points: np.ndarray, weights: np.ndarray) -> Measure:
        found = as_reference(self.reference, points, weights, self.names)
        normals = found.normals(points.shape[1])
        return found if normals is None else GaussianMixture(*normals)

    @property
    def progress(self) -> str:
        """What has been compared."""
        of = f"{len(self.scores)} of {len(self.multiples)} bandwidths were compared"
        return of if self.stack is None else f"{len(self.stack.fits)} mixtures were fitted and {of}"

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
        return pairs[simplest_good(columns, held_out_weights(self.folds))]

    @property
    def best_score(self) -> float:
        """The mean held-out score of the chosen pair, −inf if nothing was compared."""
        j, i = self.choice
        if i not in self.scores or not np.isfinite(self.scores[i][:, j]).all():
            return -np.inf
        return float(held_out_weights(self.folds) @ self.scores[i][:, j])

    def answer(self, tol: float | None) -> tuple[Solution, float]:
        """The certified optimum of the chosen problem over all samples, and its λ in natural units
        of the space.
        """
        j, i = self.choice
        problem, strength = self.problem, self.strengths[j]
        assert problem is not None
        infinite, kernel = np.isinf(strength), self.kernel_of(i)
        support = self.support[-1][:1] if infinite else self.support[-1]
        # with a tolerance of one, only the constant function is left of the space: its density is ρ
        only: dict[str, Any] = {"tol_model": 1.0} if infinite else {}
        space = SoSSpace(kernel, support, problem.measures[-1], constant=problem.constant, **only)
        relative = regularization_unit(space) * strength
        functional: Any = NegativeLogLikelihood(self.points, self.weights)
        if self.objective != "likelihood":
            data = MeanEmbedding(self.points, self.weights, kernel=space.embedding_kernel)
            functional = SquaredMMD(data)
        if 0.0 < strength < np.inf:
            functional = functional + relative * Trace(relative=True)
        return minimize(functional, space, tol=tol), relative

    def results(self) -> dict[str, np.ndarray]:
        """One row per pair, in the order of the grids."""
        pairs = sorted(self.pairs, key=lambda pair: (pair[1], pair[0]))
        weights, rows = held_out_weights(self.folds), held_out_rows(self.folds)
        nothing = np.full((weights.size, len(self.strengths)), -np.inf)
        columns = [self.scores.get(i, nothing)[:, j] for j, i in pairs]
        scores = np.maximum(np.stack(columns, axis=1), FARTHEST)
        splits = [
            fold.test_weights @ scores[own] for fold, own in zip(self.folds, rows, strict=True)
        ]
        mean = weights @ scores
        known = (mean > 0.1 * FARTHEST) & (len(self.folds) > 0)
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

    def _print(self, what: str) -> None:
        if self.verbose:
            print(f"[cv] {what}", flush=True)
