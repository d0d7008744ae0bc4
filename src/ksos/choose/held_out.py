"""Fits along a path of λ, their scores at held-out samples, and the one rule that chooses by them.

The fits are as accurate as the choice needs, and no more: cross-validation makes hundreds of them.
The problem is that of ``regularization_path(NegativeLogLikelihood(X, a), Trace(relative=True),
strengths, space)``, and the code beside it is for speed. The general path certifies every fit,
which takes eigenvalues of r × r matrices; one such matrix costs more than all the L-BFGS steps of a
fit. Eleven λ took, with the general path at a tolerance of 1e-3 nats and here (one thread,
seconds):

    samples, features, rank    90, 2, 59    90, 5, 90    320, 2, 99    320, 5, 320
    general                       0.123        0.112         0.292          1.60
    here                          0.027        0.031         0.052          0.117

These fits are the whole time of a search. A test holds the two against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from ksos.data import Fold
from ksos.density import Square, from_terms
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals import Bound, SquaredL2, SquaredMMD, Trace
from ksos.ground import Run, one_blas_thread
from ksos.integrals import GaussianLebesgue, SquareIntegral, closed_form
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.solvers import LBFGS, LowRank, descend_until, regularization_path
from ksos.space import MeanEmbedding, Projection, SoSSpace
from ksos.space.embedding_map import embedding_map

FARTHEST = -1e100  # nats of a held-out sample where the density is 0, so that squares stay finite
_MOST_TENSOR = 4e6  # Entries, 32 MB per fold: beyond, projected embeddings are computed one by one.
_COLUMNS = 10  # Rank of a fit: optima on the tables of benchmarks/quality have fewer.
_TOLERANCE = 3e-5  # nats: tighter, with more steps, changes no choice of benchmarks/quality --other
_STEPS = 80  # at that tolerance
_REVIVED = 0.1  # of the start, added before a weaker λ: any part that is neither 0 nor 1 serves
_CORRECTION = 0.3  # the part of the start that is no constant: any that is neither 0 nor 1 serves
_TINY = 1e-290  # Just above where float64 loses digits.
_LARGE = 1e5  # entries of ψ: beyond, single precision saves half the time and errs below _TOLERANCE
_SMALL_TENSOR = 1.6e7  # Entries, 128 MB: up to here Newton's method is worth its tensor.
_GAP = 1e-6  # Of squared MMDs around 1e-3: far less than what changes a held-out score.


class Problem(NamedTuple):
    """Samples, folds and measures: everything that does not depend on the bandwidth and on λ.

    ``measures`` are those of every fold, and last that of all samples. ``constant``: whether they
    are references that the sum of squares corrects. The ``projection`` is that of the held-out MMD,
    and exp(−log_unit) the unit of squared densities. Both are the same for every bandwidth, so that
    scores compare.
    """

    points: np.ndarray
    weights: np.ndarray
    folds: Sequence[Fold]
    measures: Sequence[Measure]
    constant: bool
    objective: str
    criterion: str
    projection: Projection | None = None
    log_unit: float = 0.0

    def scores(
        self, k: int, kernel: Kernel, support: np.ndarray, strengths: Sequence[float]
    ) -> Iterator[np.ndarray]:
        """Scores of the held-out samples of fold k for one λ after the other."""
        fold, measure = self.folds[k], self.measures[k]
        space = SoSSpace(kernel, support, measure, constant=self.constant)
        judge = CRITERIA[self.criterion](self, space, fold)
        unit, first = regularization_unit(space), int(np.isinf(strengths[0]))
        if first:  # the constant function is the first direction of its space
            yield judge(np.eye(space.rank, 1))
        relative = [unit * strength for strength in strengths[first:]]
        train = self.points[fold.train], fold.train_weights
        yield from map(judge, fit_path(self.objective, space, *train, relative))


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
    """The unit of λ in natural units: w₀, or with a reference the mean of ∫k(x,x̃_i)²dρ."""
    if not space.constant:
        return 1.0
    return float(
        np.mean(np.exp(space.integrals.log_diagonal(space.support_points) - space.log_unit))
    )


@one_blas_thread(0)
def held_out_scores(
    problem: Any,
    k: int,
    kernel: Any,
    support: Any,
    strengths: Sequence[float],
    time_limit: float | None = None,
) -> np.ndarray:
    """Scores (held-out samples, λ) of fold k: fits along the path of λ, descending, which may begin
    with ∞.

    When the time is up nothing more is fitted: what is missing has a score of −inf.
    """
    out = np.full((problem.folds[k].test.size, len(strengths)), -np.inf)
    with Run(time_limit) as run:
        columns = iter(()) if run.over else problem.scores(k, kernel, support, strengths)
        for j, scores in enumerate(columns):
            # a path that ends early gives what it has
            if run.over and np.isfinite(strengths[j]):
                break
            out[:, j] = scores
    return out


# from a factor F of a fit to its scores at the held-out samples
Judge = Callable[[np.ndarray], np.ndarray]


# log p, with the largest kernel value of each sample taken out before it underflows.
def _log_likelihood(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
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
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.sum((basis @ F) ** 2, axis=1)) + shift)

    return judge


# 2p − ∫p²dρ: its mean is minus the squared L² distance to the truth, up to a constant.
def _l2(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    unit, basis = np.exp(problem.log_unit - space.log_unit), space.basis(problem.points[fold.test])
    square = _squared_norm(space, MeanEmbedding(problem.points[fold.test], kernel=space.kernel))
    return lambda F: np.asarray(unit * (2.0 * np.sum((basis @ F) ** 2, axis=1) - square(F)))


# F ↦ ∫p²dρ in natural units, by the rule of the functional or in closed form.
def _squared_norm(space: SoSSpace, samples: MeanEmbedding) -> Callable[[np.ndarray], float]:
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


# 2w_p(x) − ‖w_p‖², projected on landmarks: its mean is minus the squared MMD, up to a constant.
def _mmd(problem: Problem, space: SoSSpace, fold: Fold) -> Judge:
    projection = cast("Projection", problem.projection)
    embed = projected_embedding(space, projection)
    at = projection.kernel(problem.points[fold.test], projection.landmarks) @ projection.S.T

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


def fit_path(
    objective: str,
    space: SoSSpace,
    points: np.ndarray,
    weights: np.ndarray,
    strengths: Sequence[float],
) -> Iterator[np.ndarray]:
    """Factors F of C = FFᵀ for one λ (in natural units, descending) after the other, each from the
    one before.
    """
    if objective == "likelihood":
        psi = np.asarray(space.basis(points))
        start = None
        if not space.constant:
            start = _leading(np.sqrt(weights)[:, None] * psi, min(_COLUMNS, space.rank))
        yield from likelihood_path(space.trace_matrix, psi, weights, strengths, start)
        return
    data = MeanEmbedding(points, weights, kernel=space.embedding_kernel)
    distance, penalty = (Bound(f.bind(space)) for f in (SquaredMMD(data), Trace(relative=True)))
    newton = space.tensor_size <= _SMALL_TENSOR and space.rank < space.support_points.shape[0]
    # a fit that would take more steps serves the search as it is
    solver = (
        LowRank(extra_steps=0, max_iter=80) if newton else LBFGS(columns=4, stall=1e-9, max_iter=6)
    )
    options: dict[str, Any] = {"solver": solver, "tol": _GAP}
    for strength in strengths:  # one by one: the search may end the path at any λ
        (solution,) = regularization_path(distance, penalty, [strength], space, **options)
        if Run.current().interrupted:
            raise KeyboardInterrupt
        options["start"] = solution.parameter_factor
        yield np.asarray(solution.parameter_factor)


def likelihood_path(
    trace_matrix: np.ndarray,
    psi: np.ndarray,
    weights: np.ndarray,
    strengths: Sequence[float],
    start: np.ndarray | None = None,
    starts: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Factors F, ‖F‖ = 1, of min −Σ a_i log p(x_i) + λ⟨N, C⟩ over C = FFᵀ, for one λ (in units of
    w₀, descending) after the other, N being the ``trace_matrix``.

    All in the eigenbasis of N, whose eigenvalues ν make the penalty λ Σ_k ν_k ‖F_k‖²: scaling row k
    by (1 + λν_k)^{−1/2} conditions it for every λ at once, and a step of L-BFGS costs two products
    with the (n, r) matrix ``psi`` of ψ(x_i). The first fit begins at ``start``; without one, at the
    constant function, the first direction, and a little of what samples see. ``starts``: where the
    rows of psi for each sample begin, if a sample with missing cells has several.
    """
    nu, Q = np.linalg.eigh(trace_matrix)
    counts = 1 if starts is None else np.diff(np.r_[starts, psi.shape[0]])
    if start is None:
        start = _around_the_constant(psi, np.repeat(weights, counts))
    nu, psi, F = np.maximum(nu, 0.0), psi @ Q, Q.T @ start
    begin = F
    for strength in strengths:
        # directions that a strong λ has put out are stationary points of the factor; a weaker λ may
        # need them again
        F = _fit(psi, weights, strength * nu, F + _REVIVED * begin, starts)
        yield Q @ F


# L-BFGS until four steps have changed the objective by less than the tolerance.
def _fit(
    psi: np.ndarray,
    a: np.ndarray,
    penalty: np.ndarray,
    F: np.ndarray,
    starts: np.ndarray | None,
) -> np.ndarray:
    s = 1.0 / np.sqrt(1.0 + penalty)
    precision, tiny = (np.float32, 1e-30) if psi.size > _LARGE else (np.float64, _TINY)
    A, mass, cost = (psi * s).astype(precision), (s * s)[:, None], (penalty * s * s)[:, None]
    counts = None if starts is None else np.diff(np.r_[starts, psi.shape[0]])

    def function(Y: np.ndarray) -> tuple[float, np.ndarray]:
        V = A @ Y.astype(precision)
        p = np.einsum("ij,ij->i", V, V)
        if starts is not None:
            p = np.add.reduceat(p, starts)
        p = np.maximum(p, tiny).astype(np.float64)
        MY, PY = mass * Y, cost * Y
        total, price = float(np.vdot(Y, MY)), float(np.vdot(Y, PY))
        slopes = a / p if counts is None else np.repeat(a / p, counts)
        V *= slopes[:, None].astype(precision)
        gradient = -2.0 * (A.T @ V).astype(np.float64)
        gradient += (2.0 / total - 2.0 * price / total**2) * MY
        gradient += (2.0 / total) * PY
        return float(-(a @ np.log(p))) + math.log(total) + price / total, gradient

    F = descend_until(function, F / s[:, None], _STEPS, _TOLERANCE) * s[:, None]
    return np.asarray(F / np.linalg.norm(F))


# The constant, which is the first direction of its space, and little columns: the leading
# directions of Σ_i a_i ψ(x_i)ψ(x_i)ᵀ.
def _around_the_constant(psi: np.ndarray, weights: np.ndarray) -> np.ndarray:
    rank = psi.shape[1]
    leading = _leading(np.sqrt(weights)[:, None] * psi, min(_COLUMNS - 1, rank))
    F = np.concatenate([np.eye(rank, 1), _CORRECTION * leading], axis=1)
    return np.asarray(F / np.linalg.norm(F))


# The first left singular vectors of rowsᵀ times their singular values, of unit norm.
def _leading(rows: np.ndarray, columns: int) -> np.ndarray:
    most = 2 * columns + 10
    if rows.shape[0] > columns + most:
        # fixed: a fit must not depend on the state of a global generator
        rng = np.random.default_rng(0)
        rows = rng.standard_normal((most, rows.shape[0])) @ rows
    U, s, _ = np.linalg.svd(rows.T, full_matrices=False)
    F = U[:, :columns] * s[:columns]
    return np.asarray(F / np.linalg.norm(F))
