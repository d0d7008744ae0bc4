"""The scores of held-out samples along a path of λ, and the one rule that chooses by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from ksos.choose.path import fit_path
from ksos.data.samples import Fold
from ksos.density import Square, from_terms
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals import SquaredL2
from ksos.ground.deadline import Deadline
from ksos.ground.threads import one_blas_thread
from ksos.integrals import closed_form
from ksos.integrals.gaussian import GaussianLebesgue
from ksos.integrals.quadruple import SquareIntegral
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.space.embedding import MeanEmbedding, Projection
from ksos.space.embedding_map import embedding_map
from ksos.space.space import SoSSpace

__all__ = ["CRITERIA", "Problem", "held_out_scores", "regularization_unit", "simplest_good"]

# Nats: a density of zero at a held-out sample counts as this much, so that squares stay finite.
FARTHEST = -1e100
_MOST_TENSOR = 4e6  # entries, 32 MB per fold: beyond, projected embeddings are computed one by one


@dataclass(frozen=True)
class Problem:
    """Samples, folds and measures: everything that does not depend on the bandwidth and on λ."""

    points: np.ndarray
    weights: np.ndarray
    folds: Sequence[Fold]
    measures: Sequence[Measure]
    """The measure of every fold, and last that of all samples."""
    constant: bool
    """Whether the measures are references that the sum of squares corrects."""
    objective: str
    criterion: str
    projection: Projection | None = None
    """Of the held-out MMD: the same for every bandwidth, so that scores compare."""
    log_unit: float = 0.0
    """The unit 1/exp(log_unit) of squared densities, the same for every bandwidth."""


def simplest_good(scores: np.ndarray, weights: np.ndarray) -> int:
    """The first candidate, in the order from simple to complex, that is not behind the best.

    ``scores`` (samples, candidates) are those of held-out samples. Behind means: by more than one
    standard error of the paired difference per sample. The standard error of the score itself would
    be ten times larger, and would always choose the first.

    >>> simplest_good(np.array([[0.0, 0.2], [0.0, -0.1], [0.0, 0.1]]), np.ones(3) / 3)
    0
    >>> simplest_good(np.array([[0.0, 0.2], [0.0, 0.1], [0.0, 0.15]]), np.ones(3) / 3)
    1
    """
    scores = np.maximum(scores, FARTHEST)
    behind = scores[:, [int(np.argmax(weights @ scores))]] - scores
    mean = weights @ behind
    error = np.sqrt(weights @ (behind - mean) ** 2 * float(weights @ weights))
    return int(np.argmax(mean <= error))


def regularization_unit(space: SoSSpace) -> float:
    """What λ is a multiple of, in natural units: w₀, or with a reference the mean of ∫k(x,x̃_i)²dρ."""
    if not space.constant:
        return 1.0
    return float(
        np.mean(np.exp(space.integrals.log_diagonal(space.support_points) - space.log_unit))
    )


@one_blas_thread(0)
def held_out_scores(
    problem: Problem,
    k: int,
    kernel: Kernel,
    support: np.ndarray,
    strengths: Sequence[float],
    deadline: Deadline,
) -> np.ndarray:
    """Scores (held-out samples, λ) of fold k: fits along the path of λ, descending, which may begin
    with ∞.

    After the deadline nothing more is fitted: what is missing has a score of −inf.
    """
    fold, measure = problem.folds[k], problem.measures[k]
    out = np.full((fold.test.size, len(strengths)), -np.inf)
    if deadline.passed:
        return out
    space = SoSSpace(kernel, support, measure, constant=problem.constant)
    judge = CRITERIA[problem.criterion](problem, space, fold)
    unit, first = regularization_unit(space), int(np.isinf(strengths[0]))
    if first:  # the constant function is the first direction of its space
        out[:, 0] = judge(np.eye(space.rank, 1))
    relative = [unit * strength for strength in strengths[first:]]
    train = problem.points[fold.train], fold.train_weights
    for j, F in enumerate(fit_path(problem.objective, space, *train, relative, deadline), first):
        if deadline.passed:
            break
        out[:, j] = judge(F)
    return out


Judge = Callable[[np.ndarray], np.ndarray]
"""From a factor F of a fit to its scores at the held-out samples."""


def _log_likelihood(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """log p, with the largest kernel value of each sample taken out before it underflows."""
    X = problem.points[fold.test]
    if space.constant:
        basis = np.asarray(space.basis(X))
        shift = np.asarray(space.measure.log_density(X)) - space.log_unit
    else:
        log_k = space.kernel.log(X, space.support_points)
        peak = log_k.max(axis=1)
        peak = np.where(np.isfinite(peak), peak, 0.0)
        basis, shift = np.exp(log_k - peak[:, None]) @ space.T, 2.0 * peak - space.log_unit

    def judge(F: np.ndarray) -> np.ndarray:
        V = basis @ F
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.einsum("ij,ij->i", V, V)) + shift)

    return judge


def _l2(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """2p − ∫p²dρ: its mean is minus the squared L² distance to the truth, up to a constant."""
    unit, basis = np.exp(problem.log_unit - space.log_unit), space.basis(problem.points[fold.test])
    square = _squared_norm(space, MeanEmbedding(problem.points[fold.test], kernel=space.kernel))

    def judge(F: np.ndarray) -> np.ndarray:
        return np.asarray(unit * (2.0 * np.sum((basis @ F) ** 2, axis=1) - square(F)))

    return judge


def _squared_norm(space: SoSSpace, samples: MeanEmbedding) -> Callable[[np.ndarray], float]:
    """F ↦ ∫p²dρ in natural units, by the rule of the functional or in closed form."""
    try:
        term, at = SquaredL2(samples, relative=True).bind(space), space.basis(samples.points)
        return lambda F: float(
            term.value(None, F @ F.T) + 2.0 * np.mean(np.sum((at @ F) ** 2, axis=1))
        )
    except IntegralNotAvailableError as error:  # a rule would need too many nodes
        if not space.integrals.pairwise:
            fix = "; or choose by criterion='log_likelihood' or 'mmd'"
            raise IntegralNotAvailableError(f"{error}{fix}") from None
    integrals = cast("GaussianLebesgue", space.integrals)
    square = SquareIntegral(integrals, space.support_points, space.log_unit)
    return lambda F: float(square((space.T @ F) @ (space.T @ F).T))


def _mmd(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    """2w_p(x) − ‖w_p‖², projected on landmarks: its mean is minus the squared MMD, up to a
    constant.
    """
    projection = problem.projection
    assert projection is not None
    X, embed = problem.points[fold.test], projected_embedding(space, projection)
    at = projection.kernel(X, projection.landmarks) @ projection.S.T

    def judge(F: np.ndarray) -> np.ndarray:
        z = embed(F)
        return np.asarray(2.0 * (at @ z) - z @ z)

    return judge


def projected_embedding(
    space: SoSSpace, projection: Projection
) -> Callable[[np.ndarray], np.ndarray]:
    """F ↦ the projected embedding of p; triple integrals that are no products of pairs are taken
    once for all λ.
    """
    X, kernel, measure = space.support_points, projection.kernel, space.measure
    integrals = closed_form(space.kernel, measure, space.n_features, kernel)
    if integrals.pairwise or projection.rank * space.rank**2 > _MOST_TENSOR:
        return lambda F: projection.coordinates(
            from_terms(Square(space.kernel, X, space.T @ F, space.log_unit, measure))
        )
    landmarks, S = projection.landmarks, projection.S
    embedding = embedding_map(integrals, X, landmarks, kernel, space.T, S, space.log_unit)
    return lambda F: np.asarray(embedding.apply(F @ F.T))


CRITERIA: dict[str, Callable[[Problem, SoSSpace, Fold], Judge]] = {
    "log_likelihood": _log_likelihood,
    "l2": _l2,
    "mmd": _mmd,
}
