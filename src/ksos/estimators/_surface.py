"""One bandwidth, all folds, a path of λ: what the held-out samples say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ksos._threads import one_blas_thread
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding, Projection
from ksos.embedding_map import embedding_map
from ksos.estimators._bumps import bump_logpdf
from ksos.estimators._folds import Fold
from ksos.estimators._likelihood_path import LikelihoodPath
from ksos.estimators._mmd_path import MMDPath
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals.l2 import l2_rule
from ksos.integrals import closed_form
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.integrals.quadruple import SquareIntegral
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space import SoSSpace
from ksos.support import pivoted_cholesky

__all__ = ["CRITERIA", "MOST_SUPPORT_POINTS", "BandwidthScores", "Problem", "fit_path", "scores_of_bandwidth", "support_of"]

MOST_SUPPORT_POINTS = 2000
"""``n_support=None`` means all distinct samples, up to this many."""

CRITERIA = ("log_likelihood", "l2", "mmd")
_EXPENSIVE = {"likelihood": 2e5, "squared_mmd": 5e3}
"""Entries of ψ: from here on the path ends where it leads away from the best for good."""
_HOPELESS, _PATIENCE = 0.05, 2  # nats, or of the best L² score
_MOST_TENSOR = 4e6  # entries: per fold, and all folds are held at once
_SHARES = np.array([0.0, 0.03, 0.1, 0.3, 0.6])


@dataclass(frozen=True)
class Problem:
    """The samples and what is asked of them: everything that does not depend on the bandwidth and on λ."""

    points: np.ndarray
    weights: np.ndarray
    measure: Measure
    make_kernel: Callable[[np.ndarray], Kernel]
    folds: Sequence[Fold]
    objective: str
    criterion: str
    n_support: int = MOST_SUPPORT_POINTS
    landmarks: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    yardstick: Any = None
    """The kernel of the held-out MMD: the same for every bandwidth, so that scores compare."""
    log_unit: float = 0.0
    """The unit 1/exp(log_unit) of squared densities, the same for every bandwidth."""

    @property
    def held_out_weights(self) -> np.ndarray:
        """The shares of all held-out samples, fold by fold."""
        masses = np.array([fold.mass for fold in self.folds])
        return np.concatenate([share * fold.test_weights for share, fold in zip(masses / masses.sum(), self.folds, strict=True)])


@dataclass(frozen=True)
class BandwidthScores:
    """What the held-out samples say about one bandwidth."""

    scores: np.ndarray
    """(folds, λ), higher is better; −inf where the path was not followed to its end."""
    held_out: np.ndarray
    """(held-out samples, fold by fold; λ + 1) log-densities, those of the kernel density estimate last; empty for other criteria."""
    rank: int


def support_of(problem: Problem, kernel: Kernel, points: np.ndarray) -> np.ndarray:
    """All of the ``points``, or the ``n_support`` that represent the others best."""
    if points.shape[0] <= problem.n_support:
        return points
    return points[pivoted_cholesky(points, problem.n_support, closed_form(kernel, problem.measure, points.shape[1]), 1e-10)]


def fit_path(
    objective: str, space: SoSSpace, points: np.ndarray, weights: np.ndarray, regularizations: Sequence[float], **accuracy: Any
) -> Iterator[np.ndarray]:
    """Unit factors of the fits to samples, for one λ (in units of w₀) after the other."""
    if objective == "likelihood":
        yield from LikelihoodPath(space, points, weights).fits(regularizations, **accuracy)
        return
    yield from MMDPath(space, points, weights).fits(regularizations)


def scores_of_bandwidth(problem: Problem, sigma: np.ndarray, regularizations: Sequence[float]) -> BandwidthScores:
    """Fit every fold along the path of λ, side by side, and score each fit on the samples that it has not seen."""
    kernel = problem.make_kernel(sigma)
    with one_blas_thread(0):
        return _scores(problem, kernel, regularizations)


def _scores(problem: Problem, kernel: Kernel, regularizations: Sequence[float]) -> BandwidthScores:
    folds, count, by_likelihood = problem.folds, len(regularizations), problem.criterion == "log_likelihood"
    spaces = [SoSSpace(kernel, support_of(problem, kernel, problem.points[fold.train]), problem.measure) for fold in folds]
    paths = [
        fit_path(problem.objective, space, problem.points[fold.train], fold.train_weights, regularizations)
        for space, fold in zip(spaces, folds, strict=True)
    ]
    judges = [_JUDGES[problem.criterion](problem, space, fold) for space, fold in zip(spaces, folds, strict=True)]
    ends = np.cumsum([fold.test.size for fold in folds])
    rows = [slice(end - fold.test.size, end) for end, fold in zip(ends, folds, strict=True)]
    scores = np.full((len(folds), count), -np.inf)
    held_out = np.full((int(ends[-1]), count + 1) if by_likelihood else (0, 0), -np.inf)
    if by_likelihood:
        for part, fold in zip(rows, folds, strict=True):
            points = problem.points[fold.train]
            held_out[part, -1] = bump_logpdf(kernel, problem.measure, points, fold.train_weights, problem.points[fold.test])
    expensive = max(space.rank for space in spaces) * problem.points.shape[0] > _EXPENSIVE[problem.objective]
    best, behind, weights = -np.inf, 0, problem.held_out_weights
    for j in range(count):
        for i, (part, path, judge) in enumerate(zip(rows, paths, judges, strict=True)):
            scores[i, j], values = judge(next(path))
            if by_likelihood:
                held_out[part, j] = values
        if expensive and (gained := _worth(problem, scores[:, j], held_out, j, weights)) is not None:
            hopeless = best - _HOPELESS * (1.0 if by_likelihood else abs(best))
            best, behind = (gained, 0) if gained > best else (best, behind + (gained < hopeless))
            if behind >= _PATIENCE:
                break
    return BandwidthScores(scores, held_out, max(space.rank for space in spaces))


def _worth(problem: Problem, scores: np.ndarray, held_out: np.ndarray, j: int, weights: np.ndarray) -> float | None:
    """What is known of λ number j, for the decision to go on: a likelihood fit counts with what a stack would make of it.

    None where every λ is visited: held-out MMDs hardly differ, and likelihood fits cost little.
    """
    if problem.criterion == "mmd" or (problem.objective == "likelihood" and problem.criterion != "log_likelihood"):
        return None
    if problem.objective == "likelihood":
        return _best_blend(held_out[:, j], held_out[:, -1], weights)
    return float(np.maximum(scores, -1e300) @ np.array([fold.mass for fold in problem.folds])) / sum(fold.mass for fold in problem.folds)


def _best_blend(log_p: np.ndarray, log_q: np.ndarray, weights: np.ndarray) -> float:
    """The best held-out log-likelihood of (1 − t)p + tq over a few shares t."""
    peak = np.maximum(np.maximum(log_p, log_q), -1e300)
    p, q = np.exp(log_p - peak), np.exp(log_q - peak)
    with np.errstate(divide="ignore"):
        blends = np.log((1.0 - _SHARES)[:, None] * p + _SHARES[:, None] * q) + peak
    return float(np.max(blends @ weights))


Judge = Callable[[np.ndarray], tuple[float, np.ndarray]]


def _log_likelihood(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """The weighted mean of log p over the held-out samples, with each sample's largest kernel value taken out before it underflows."""
    log_k = space.kernel.log(problem.points[fold.test], space.support_points)
    peak = log_k.max(axis=1)
    shift = np.where(np.isfinite(peak), peak, 0.0)
    K, weights = np.exp(log_k - shift[:, None]), fold.test_weights

    def judge(unit_factor: np.ndarray) -> tuple[float, np.ndarray]:
        V = K @ unit_factor
        with np.errstate(divide="ignore"):
            values = np.log(np.einsum("ij,ij->i", V, V)) + (2.0 * shift - space.log_unit)
        return float(weights @ np.maximum(values, -1e300)), values

    return judge


def _l2(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """2·mean p(held out) − ∫p²dρ: minus the squared L² distance to the truth, up to a constant."""
    square, at = _square_of(space), space.kernel(problem.points[fold.test], space.support_points)
    weights, unit = fold.test_weights, math.exp(problem.log_unit - space.log_unit)

    def judge(unit_factor: np.ndarray) -> tuple[float, np.ndarray]:
        return unit * (2.0 * float(weights @ np.sum((at @ unit_factor) ** 2, axis=1)) - square(unit_factor)), weights

    return judge


def _square_of(space: SoSSpace) -> Callable[[np.ndarray], float]:
    """T·F ↦ ∫p²dρ in natural units: over the nodes of a rule, or where that would need too many, in closed form."""
    try:
        nodes, log_weights, _ = l2_rule(space, None)
    except IntegralNotAvailableError as error:
        if not isinstance(space._integrals, GaussianLebesgue):
            raise IntegralNotAvailableError(f"{error}; or choose by criterion='log_likelihood' or 'mmd'") from None
        closed = SquareIntegral(space._integrals, space.support_points, space.log_unit)
        return lambda unit_factor: closed(unit_factor @ unit_factor.T)
    K, masses = space.kernel(nodes, space.support_points), np.exp(log_weights - space.log_unit)
    return lambda unit_factor: float(masses @ np.sum((K @ unit_factor) ** 2, axis=1) ** 2)


def _mmd(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """Minus the squared MMD to the held-out samples, projected on landmarks, in one kernel for all bandwidths."""
    projection = Projection(problem.yardstick, problem.landmarks)
    weights, embed = fold.test_weights, _embedding_of(space, projection)
    target = projection.coordinates(MeanEmbedding(problem.points[fold.test], weights, kernel=problem.yardstick))

    def judge(unit_factor: np.ndarray) -> tuple[float, np.ndarray]:
        residual = embed(unit_factor) - target
        return -float(residual @ residual), weights

    return judge


def _embedding_of(space: SoSSpace, projection: Projection) -> Callable[[np.ndarray], np.ndarray]:
    """T·F ↦ the projected embedding of p; triple integrals that are no products of pairs are dear, and taken once for all λ."""
    X, kernel = space.support_points, projection.kernel
    integrals = closed_form(space.kernel, space.measure, space.n_features, kernel)
    if integrals.pairwise or projection.rank * space.rank**2 > _MOST_TENSOR:
        return lambda unit_factor: projection.coordinates(
            SoSDensity.from_units(space.kernel, X, unit_factor, space.log_unit, space.measure)
        )
    embedding = embedding_map(integrals, X, projection.landmarks, kernel, space.T, projection.S, space.log_unit)
    back = space.T.T @ np.exp(integrals.log_gram(X, X) - space.log_unit)  # TᵀW, for TᵀWT = I

    def embed(unit_factor: np.ndarray) -> np.ndarray:
        F = back @ unit_factor
        return np.asarray(embedding.apply(F @ F.T))

    return embed


_JUDGES: dict[str, Callable[[Problem, SoSSpace, Fold], Judge]] = {
    "log_likelihood": _log_likelihood,
    "l2": _l2,
    "mmd": _mmd,
}
