"""One bandwidth, all folds, a path of λ: what the held-out samples say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from ksos._deadline import Deadline
from ksos._threads import one_blas_thread
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, Projection
from ksos.embedding_map import embedding_map
from ksos.estimators._kernel_density import bump_logpdf
from ksos.estimators._quick_likelihood import quick_likelihood_path
from ksos.estimators._samples import Fold
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals import Bound, SquaredL2, SquaredMMD, Trace
from ksos.integrals import closed_form
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.integrals.quadruple import SquareIntegral
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.solvers import LBFGS, LowRank, regularization_path
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["CRITERIA", "BandwidthScores", "Problem", "fit_path", "projected_embedding", "scores_of_bandwidth", "support_of"]

MOST_SUPPORT_POINTS = 2000
"""``n_support=None`` means all distinct samples, up to this many."""

_EXPENSIVE = {"likelihood": 2e5, "squared_mmd": 5e3}
"""Entries of ψ: from here on the path ends where it leads away from the best for good."""
_HOPELESS, _PATIENCE = 0.05, 2  # nats, or of the best L² score
_SMALL_TENSOR = 1.6e7  # entries: Newton's method is worth its tensor
_MOST_TENSOR = 4e6  # entries: per fold, and all folds are held at once
_SHARES = np.array([0.0, 0.03, 0.1, 0.3, 0.6])
_STRONG, _GAPS = 0.01, (1e-6, 3e-6)  # of MMD fits with λ from 0.01 w₀ on, and below: far less than what changes a held-out score


@dataclass(frozen=True)
class Problem:
    """The samples and what is asked of them: everything that does not depend on the bandwidth and on λ."""

    points: np.ndarray
    weights: np.ndarray
    measure: Measure
    kernel: Kernel
    """The form of the kernel; every bandwidth replaces its sigma."""
    folds: Sequence[Fold]
    objective: str
    criterion: str
    n_support: int
    projection: Projection | None
    """Of the held-out MMD, if that is the criterion: the same for every bandwidth, so that scores compare."""
    log_unit: float
    """The unit 1/exp(log_unit) of squared densities, the same for every bandwidth."""

    @property
    def _shares(self) -> np.ndarray:
        masses = np.array([fold.mass for fold in self.folds])
        return masses / masses.sum()

    @property
    def held_out_weights(self) -> np.ndarray:
        """The shares of all held-out samples, fold by fold."""
        return np.concatenate([share * fold.test_weights for share, fold in zip(self._shares, self.folds, strict=True)])

    def mean(self, scores: np.ndarray) -> np.ndarray:
        """Of scores (folds, …): over the folds, weighted by what they hold out."""
        with np.errstate(invalid="ignore"):
            return np.tensordot(self._shares, scores, axes=1)


@dataclass(frozen=True)
class BandwidthScores:
    """What the held-out samples say about one bandwidth."""

    scores: np.ndarray
    """(folds, λ), higher is better; −inf where the path was not followed to its end."""
    held_out: np.ndarray
    """(held-out samples, fold by fold; λ + 1) log-densities, those of the kernel density estimate last; empty for other criteria."""


def support_of(problem: Problem, kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """All of the ``points``, or the ``n_support`` that represent the others best."""
    if points.shape[0] <= problem.n_support:
        return points
    return points[pivoted_cholesky(points, problem.n_support, closed_form(kernel, problem.measure, points.shape[1]), 1e-10)]


def fit_path(
    objective: str, space: SoSSpace, points: np.ndarray, weights: np.ndarray, strengths: Sequence[float], deadline: Deadline
) -> Iterator[np.ndarray]:
    """Factors F of C = FFᵀ for the fits to samples, one λ (in units of w₀, descending) after the other, each started at the one before."""
    if objective == "likelihood":
        yield from quick_likelihood_path(space, points, weights, strengths)
        return
    distance = Bound(SquaredMMD(MeanEmbedding(points, weights, kernel=space.embedding_kernel)).bind(space))
    penalty, start = Bound(Trace(relative=True).bind(space)), None
    newton = space.tensor_size <= _SMALL_TENSOR and space.rank < space.support_points.shape[0]
    # a fit that would take more steps serves the search as it is
    solver = LowRank(extra_steps=0, max_iter=80) if newton else LBFGS(columns=4, stall=1e-9, max_iter=6)
    for strength in strengths:  # one by one: the search may end the path at any λ
        tol = _GAPS[strength < _STRONG]
        (solution,) = regularization_path(distance, penalty, [strength], space, solver=solver, start=start, tol=tol, time_limit=deadline)
        if solution.keyboard_interrupt:
            raise KeyboardInterrupt(solution.message)
        start = solution.parameter_factor
        yield np.asarray(start)


@one_blas_thread(0)
def scores_of_bandwidth(problem: Problem, sigma: np.ndarray, strengths: Sequence[float], deadline: Deadline) -> BandwidthScores:
    """Fit every fold along the path of λ, side by side, and score each fit on the samples that it has not seen.

    After the deadline nothing more is fitted: what is missing has a score of −inf.
    """
    kernel, folds, count = problem.kernel.with_sigma(sigma), problem.folds, len(strengths)
    by_likelihood = problem.criterion == "log_likelihood"
    ends = np.cumsum([fold.test.size for fold in folds])
    rows = [slice(end - fold.test.size, end) for end, fold in zip(ends, folds, strict=True)]
    scores = np.full((len(folds), count), -np.inf)
    held_out = np.full((int(ends[-1]), count + 1) if by_likelihood else (0, 0), -np.inf)
    paths, judges, rank = [], [], 0
    for part, fold in zip(rows, folds, strict=True):
        if deadline.passed:
            return BandwidthScores(scores, held_out)
        points = problem.points[fold.train]
        space = SoSSpace(kernel, support_of(problem, kernel, points), problem.measure)
        paths.append(fit_path(problem.objective, space, points, fold.train_weights, strengths, deadline))
        judges.append(CRITERIA[problem.criterion](problem, space, fold))
        rank = max(rank, space.rank)
        if by_likelihood:
            held_out[part, -1] = bump_logpdf(kernel, problem.measure, points, fold.train_weights, problem.points[fold.test])
    expensive = rank * problem.points.shape[0] > _EXPENSIVE[problem.objective]
    best, behind, weights = -np.inf, 0, problem.held_out_weights
    for j in range(count):
        for i, (part, path, judge) in enumerate(zip(rows, paths, judges, strict=True)):
            if deadline.passed:  # a λ counts only if all folds have been scored
                scores[:, j], held_out[:, j : j + 1] = -np.inf, -np.inf
                return BandwidthScores(scores, held_out)
            scores[i, j], values = judge(next(path))
            if by_likelihood:
                held_out[part, j] = values
        if expensive and (gained := _worth(problem, scores[:, j], held_out, j, weights)) is not None:
            hopeless = best - _HOPELESS * (1.0 if by_likelihood else abs(best))
            best, behind = (gained, 0) if gained > best else (best, behind + (gained < hopeless))
            if behind >= _PATIENCE:
                break
    return BandwidthScores(scores, held_out)


def _worth(problem: Problem, scores: np.ndarray, held_out: np.ndarray, j: int, weights: np.ndarray) -> float | None:
    """What is known of λ number j, for the decision to go on: a likelihood fit counts with what a stack would make of it.

    None where every λ is visited: held-out MMDs hardly differ, and likelihood fits cost little.
    """
    if problem.criterion == "mmd" or (problem.objective == "likelihood" and problem.criterion != "log_likelihood"):
        return None
    if problem.objective == "likelihood":
        return _best_blend(held_out[:, j], held_out[:, -1], weights)
    return float(problem.mean(np.maximum(scores, -1e300)))


def _best_blend(log_p: np.ndarray, log_q: np.ndarray, weights: np.ndarray) -> float:
    """The best held-out log-likelihood of (1 − t)p + tq over a few shares t."""
    peak = np.maximum(np.maximum(log_p, log_q), -1e300)
    p, q = np.exp(log_p - peak), np.exp(log_q - peak)
    with np.errstate(divide="ignore"):
        blends = np.log((1.0 - _SHARES)[:, None] * p + _SHARES[:, None] * q) + peak
    return float(np.max(blends @ weights))


Judge = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""From a factor F of a fit to its score, and to its log-densities at the held-out samples (of the likelihood)."""


def _log_likelihood(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """The weighted mean of log p over the held-out samples, with each sample's largest kernel value taken out before it underflows."""
    log_k = space.kernel.log(problem.points[fold.test], space.support_points)
    peak = log_k.max(axis=1)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    basis, weights = np.exp(log_k - shift[:, None]) @ space.T, fold.test_weights

    def judge(F: np.ndarray) -> tuple[float, np.ndarray]:
        V = basis @ F
        with np.errstate(divide="ignore"):
            values = np.log(np.einsum("ij,ij->i", V, V)) + (2.0 * shift - space.log_unit)
        return float(weights @ np.maximum(values, -1e300)), values

    return judge


def _l2(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """2·mean p(held out) − ∫p²dρ: minus the squared L² distance to the truth, up to a constant."""
    unit = math.exp(problem.log_unit - space.log_unit)
    held_out = MeanEmbedding(problem.points[fold.test], fold.test_weights, kernel=space.kernel)
    try:
        term = SquaredL2(held_out, relative=True).bind(space)
    except IntegralNotAvailableError as error:  # a rule would need too many nodes
        if not space.integrals.pairwise:
            raise IntegralNotAvailableError(f"{error}; or choose by criterion='log_likelihood' or 'mmd'") from None
        integrals = cast("GaussianLebesgue", space.integrals)
        square, at = SquareIntegral(integrals, space.support_points, space.log_unit), space.basis(held_out.points)

        def judge_in_closed_form(F: np.ndarray) -> tuple[float, np.ndarray]:
            B = space.T @ F
            return unit * (2.0 * float(fold.test_weights @ np.sum((at @ F) ** 2, axis=1)) - square(B @ B.T)), fold.test_weights

        return judge_in_closed_form
    return lambda F: (-unit * term.value(None, F @ F.T), fold.test_weights)


def _mmd(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """Minus the squared MMD to the held-out samples, projected on landmarks, in one kernel for all bandwidths."""
    projection = problem.projection
    assert projection is not None
    weights, embed = fold.test_weights, projected_embedding(space, projection)
    target = projection.coordinates(MeanEmbedding(problem.points[fold.test], weights, kernel=projection.kernel))

    def judge(F: np.ndarray) -> tuple[float, np.ndarray]:
        residual = embed(F) - target
        return -float(residual @ residual), weights

    return judge


def projected_embedding(space: SoSSpace, projection: Projection, most_tensor: float = _MOST_TENSOR) -> Callable[[np.ndarray], np.ndarray]:
    """F ↦ the projected embedding of p; triple integrals that are no products of pairs are dear, and taken once for all λ."""
    X, kernel = space.support_points, projection.kernel
    integrals = closed_form(space.kernel, space.measure, space.n_features, kernel)
    if integrals.pairwise or projection.rank * space.rank**2 > most_tensor:
        return lambda F: projection.coordinates(SoSDensity.from_units(space.kernel, X, space.T @ F, space.log_unit, space.measure))
    embedding = embedding_map(integrals, X, projection.landmarks, kernel, space.T, projection.S, space.log_unit)
    return lambda F: np.asarray(embedding.apply(F @ F.T))


CRITERIA: dict[str, Callable[[Problem, SoSSpace, Fold], Judge]] = {"log_likelihood": _log_likelihood, "l2": _l2, "mmd": _mmd}
