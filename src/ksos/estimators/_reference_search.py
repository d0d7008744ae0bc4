"""The search without arguments: Gaussian mixtures, the sum of squares that corrects them, and the sum of squares over Lebesgue, stacked.

Every part is weighed by the samples that its folds have not seen. All of it happens in the units of the features; the metric of the kernels
is a multiple of the covariance of the samples.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed

from ksos._deadline import Deadline
from ksos._progress import Steps
from ksos._threads import one_blas_thread
from ksos.estimators._expectation_maximization import seeds
from ksos.estimators._held_out import BandwidthScores
from ksos.estimators._kernel_density import best_multiple, bump_logpdf
from ksos.estimators._mixture_stack import MixtureStack, share_rounds
from ksos.estimators._parsimony import chosen_by_bic, held_out_of, posterior_share
from ksos.estimators._quick_likelihood import quick_likelihood_path
from ksos.estimators._samples import Fold
from ksos.estimators._stacking import stack, stacked_logs
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue
from ksos.space import SoSSpace

__all__ = ["CORRECTIONS", "FEW", "FEW_CORRECTIONS", "FEW_STRENGTHS", "STRENGTHS", "Choice", "Metric", "ReferenceSearch", "strength_unit"]

CORRECTIONS = (1.0, 3.0)
"""Bandwidths of what corrects a reference, as multiples of the one that suits the kernel density estimate: the reference is close."""
STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3)
"""λ of the correction, in units of :func:`strength_unit`."""
FEW_CORRECTIONS, FEW_STRENGTHS, FEW = CORRECTIONS[1:], STRENGTHS[::2], 200
"""The same for at most so many samples, which cannot tell closer ones apart."""
PLAIN_MULTIPLE, PLAIN_STRENGTHS = 1.7, (3.0, 0.3, 0.1, 0.03)
"""Of the sum of squares over Lebesgue, λ in units of w₀; for few samples every other one."""
BUMPS = (1.0, 1.7)
"""Bandwidths of the kernel density estimates that take part."""
_SUPPORT, _PLAIN_SUPPORT = 100, 150
_MOST_BUMPS = 2000  # samples: with more of them a kernel density estimate adds nothing to what is there, and costs
_SINGULAR = 1e-6  # of the largest variance: the least that the metric may have
_SCAN = 800  # samples
_ONE_NAT = 1.0
_OF_A_CORRECTION, _OF_THE_ANSWER = 0.16, 0.08  # of the time that the mixtures take
_START = 0.2  # the share of a sum of squares before anything is known, that of one normal law being 1


def strength_unit(space: SoSSpace, support: np.ndarray) -> float:
    """The mean of ∫k(x,x̃_i)²dρ over the support points, in natural units: what λ of a correction is measured in."""
    return float(np.mean(np.exp(space.integrals.log_diagonal(support) - space.log_unit)))


@dataclass(frozen=True)
class Metric:
    """The shape of the kernels: the covariance of the samples, and the bandwidth that suits bumps of this shape."""

    shape: np.ndarray
    """(d, d), S of bandwidth one."""
    bandwidth: float

    @classmethod
    def of(cls, points: np.ndarray, weights: np.ndarray, rng: np.random.Generator, deadline: Deadline) -> Metric:
        centred = points - weights @ points
        values, Q = np.linalg.eigh((centred * weights[:, None]).T @ centred)
        values = np.maximum(values, _SINGULAR * max(values[-1], 1e-300)) if values[-1] > 0.0 else np.ones_like(values)
        n, d = points.shape
        if n < 2:
            return cls((Q * values) @ Q.T, 1.0)
        # the unit of Silverman's rule, corrected by a scan
        unit = 2.0 * ((d + 2) / 4.0 / float(weights @ weights)) ** (-1.0 / (d + 4))
        some = np.sort(rng.choice(n, _SCAN, replace=False)) if n > _SCAN else np.arange(n)
        white = (centred[some] @ Q) / np.sqrt(values)
        multiple = best_multiple(white, weights[some] / weights[some].sum(), Gaussian(np.full(d, unit)), Lebesgue(), rng, deadline)
        return cls((Q * values) @ Q.T, unit * multiple * (some.shape[0] / n) ** (1.0 / (d + 4.0)))

    def kernel(self, multiple: float) -> Gaussian:
        S = (multiple * self.bandwidth) ** 2 * self.shape
        return Gaussian(np.sqrt(S[0]) if S.shape == (1, 1) else S)

    def whitened(self, points: np.ndarray) -> np.ndarray:
        return np.asarray(points @ np.linalg.inv(np.linalg.cholesky(self.shape)).T)


class Choice(NamedTuple):
    """What the held-out samples choose."""

    bandwidth: int | None
    shares: np.ndarray
    """Of the stack."""
    score: float
    single: int | None = None
    """The one mixture beside the stack."""
    single_share: float = 0.0
    """Of the whole; the stack has the rest."""


@dataclass
class ReferenceSearch:
    """What the held-out samples say about every part."""

    points: np.ndarray
    weights: np.ndarray
    folds: Sequence[Fold]
    mixtures: MixtureStack
    multiples: Sequence[float]
    strengths: Sequence[float]
    plain: bool
    """Whether the sum of squares over Lebesgue and the kernel density estimate take part."""
    log_volume: float
    """What log-densities in the coordinates of the data are less by."""
    say: Callable[[str, float | None], None]
    n_support: int | None = None
    n_jobs: int | None = None
    found: list[BandwidthScores] = field(default_factory=list)
    """Of the corrections, one for each bandwidth."""
    others: np.ndarray = field(default_factory=lambda: np.empty((0, 0)))
    """Held-out log-densities of the parts over Lebesgue: kernel density estimates, then fits by λ."""

    @one_blas_thread(0)
    def run(self, rng: np.random.Generator, deadline: Deadline) -> bool:
        """Whether the time was enough."""
        began, fits = time.perf_counter(), self.mixtures.fit(deadline)
        for step in self.mixtures.plan():
            self.steps.begin(f"mixtures of {step.components} component{'s' * (step.components > 1)}")
            next(fits, None)
        self._settle(rng, deadline)
        rows = self.mixtures.held_out.shape[0]
        score = self.mixtures.held_out_weights @ stacked_logs(self.mixtures.held_out, self.mixtures.shares()) if rows else -np.inf
        self.say(f"{len(self.mixtures.fits)} Gaussian mixtures: held-out score {score - self.log_volume:.4f}", None)
        if not self.folds:
            return not deadline.passed
        references = [self.reference(k) for k in range(len(self.folds))]
        first = time.perf_counter()
        for number, multiple in enumerate(self.multiples):
            if deadline.passed:
                return False
            scores = self._corrected(references, self.metric.kernel(multiple), deadline)
            self.found.append(scores)
            mean = self.mean(scores.scores)
            left = (time.perf_counter() - first) / (number + 1) * (len(self.multiples) - number - 1 + self.plain) + 0.1 * (first - began)
            best = f"best λ {self.strengths[int(np.argmax(mean))]:.3g}, held-out score {mean.max() - self.log_volume:.4f}"
            self.say(f"corrected with bandwidth {multiple:.4g} × that of a kernel density estimate, {len(self.strengths)} λ: {best}", left)
        if self.plain and not deadline.passed:
            self.others = self._over_lebesgue(deadline)
            self.say("sum of squares over Lebesgue, and kernel density estimate", 0.1 * (time.perf_counter() - began))
        return not deadline.passed

    @cached_property
    def steps(self) -> Steps:
        """Of the search and of the fit that follows it, with what they cost on the average of a few tables."""
        mixtures, folds = [step.cost for step in self.mixtures.plan()], len(self.folds)
        corrections = [_OF_A_CORRECTION / folds] * (folds * (len(self.multiples) + self.plain)) if folds else []
        return Steps([*(cost / sum(mixtures) for cost in mixtures), *corrections, _OF_THE_ANSWER])

    def mean(self, scores: np.ndarray) -> np.ndarray:
        """Over the folds (first axis), weighted by what they hold out."""
        masses = np.array([fold.mass for fold in self.folds])
        return np.asarray((masses / masses.sum()) @ scores)

    def _settle(self, rng: np.random.Generator, deadline: Deadline) -> None:
        """Metric and support points."""
        self.metric = Metric.of(self.points, self.weights, rng, deadline)
        most = min(max(_PLAIN_SUPPORT, self.n_support or 0), max(int(min((row > 0.0).sum() for row in self.mixtures.masses)), 1))
        self._support = seeds(self.metric.whitened(self.points), self.mixtures.masses, most)

    def keep_whole(self, rng: np.random.Generator) -> bool:
        """After Ctrl-C: whether an answer can be made of what is there."""
        if not self.mixtures.keep_whole():
            return False
        if "_support" not in vars(self):
            self._settle(rng, Deadline())
        return True

    @property
    def scores(self) -> np.ndarray:
        """(bandwidths, λ)."""
        return np.stack([self.mean(found.scores) for found in self.found])

    def reference(self, fold: int | None) -> GaussianMixture:
        return self.mixtures.reference(fold)

    def support(self, fold: int | None, most: int | None = None) -> np.ndarray:
        """Rows of the samples that a fold trains on, spread as they are."""
        most = most or self.n_support or _SUPPORT
        return np.unique(self._support[-1 if fold is None else fold, :most])

    def _corrected(self, references: Sequence[GaussianMixture], kernel: Gaussian, deadline: Deadline) -> BandwidthScores:
        jobs = (
            delayed(_correction)(self.points, fold, self.points[self.support(k)], reference, kernel, self.strengths)
            for k, (fold, reference) in enumerate(zip(self.folds, references, strict=True))
        )
        held_out = self._by_folds(jobs, f"correction {len(self.found) + 1} of {len(self.multiples)}", len(self.strengths), deadline)
        scores = [fold.test_weights @ np.maximum(held_out[rows], -1e300) for fold, rows in zip(self.folds, self.mixtures.rows, strict=True)]
        whole = np.isfinite(held_out).any()  # a λ counts only if all folds have been scored
        return BandwidthScores(np.where(whole, np.stack(scores), -np.inf), held_out)

    def _over_lebesgue(self, deadline: Deadline) -> np.ndarray:
        kernel, bumps = self.metric.kernel(PLAIN_MULTIPLE), [self.metric.kernel(multiple) for multiple in self.bumps]
        jobs = (
            delayed(_fits_over_lebesgue)(
                self.points, fold, self.points[self.support(k, _PLAIN_SUPPORT)], kernel, bumps, self.plain_strengths
            )
            for k, fold in enumerate(self.folds)
        )
        out = self._by_folds(jobs, "sum of squares over Lebesgue", len(bumps) + len(self.plain_strengths), deadline)
        return out if np.isfinite(out).any() else np.empty((0, 0))

    def _by_folds(self, jobs: Iterator[Any], doing: str, columns: int, deadline: Deadline) -> np.ndarray:
        """Held-out log-densities, fold by fold, several at a time; −inf throughout if the time is up before all are there."""
        out = np.full((self.mixtures.held_out.shape[0], columns), -np.inf)
        running = Parallel(n_jobs=self.n_jobs, return_as="generator")(itertools.takewhile(lambda _: not deadline.passed, jobs))
        for number, rows in enumerate(self.mixtures.rows, start=1):
            self.steps.begin(f"{doing}, fold {number} of {len(self.folds)}")
            logs = next(running, None)
            if logs is None:
                return np.full_like(out, -np.inf)
            out[rows] = logs
        return out

    @property
    def bumps(self) -> Sequence[float]:
        """Bandwidths of the kernel density estimates, as multiples."""
        return BUMPS if self.plain and self.points.shape[0] <= _MOST_BUMPS else ()

    @property
    def plain_strengths(self) -> Sequence[float]:
        """λ over Lebesgue."""
        return PLAIN_STRENGTHS[::2] if self.points.shape[0] <= FEW else PLAIN_STRENGTHS

    def plain_support(self) -> np.ndarray:
        return self.support(None, _PLAIN_SUPPORT)

    def _columns(self, i: int | None) -> tuple[np.ndarray, np.ndarray]:
        """Held-out log-densities of mixtures, then λ of bandwidth i (none without one), then the parts over Lebesgue; and first shares."""
        columns, start = [self.mixtures.held_out], [self.mixtures.start]
        if i is not None:
            columns.append(self.found[i].held_out)
            start.append(np.full(len(self.strengths), _START))
        if self.others.size:
            columns.append(self.others)
            start.append(np.full(self.others.shape[1], _START))
        return np.concatenate(columns, axis=1), np.concatenate(start)

    def stacked(self, i: int | None) -> tuple[np.ndarray, float]:
        """The shares of these columns, and the score of all together."""
        (logs, start), weights = self._columns(i), self.mixtures.held_out_weights
        if not weights.size:
            return start / start.sum(), -np.inf
        shares = stack(logs, weights, share_rounds(logs.shape[0]), start)
        return shares, float(weights @ stacked_logs(logs, shares))

    def best(self) -> Choice:
        """The bandwidth of the correction that serves the stack best (the widest, if a nat over all samples is the difference), the shares,
        the mixture that few parameters speak for, and the score."""
        scored = [i for i, found in enumerate(self.found) if np.isfinite(found.held_out).any()]
        if not scored:
            return self._beside_one_mixture(Choice(None, *self.stacked(None)))
        answers = [Choice(i, *self.stacked(i)) for i in scored]
        close = max(answer.score for answer in answers) - _ONE_NAT / self.mixtures.held_out.shape[0]
        return self._beside_one_mixture(next(answer for answer in reversed(answers) if answer.score >= close))

    def _beside_one_mixture(self, found: Choice) -> Choice:
        """Both are judged by samples that neither they nor their shares have seen."""
        single, weights = chosen_by_bic(self.mixtures), self.mixtures.held_out_weights
        if single is None or not np.isfinite(found.score):
            return found
        one, (logs, start), unseen = held_out_of(self.mixtures, single), self._columns(found.bandwidth), np.empty(weights.shape[0])
        for rows in self.mixtures.rows:
            keep = np.ones(weights.shape[0], dtype=bool)
            keep[rows] = False
            if keep.any():
                shares = stack(logs[keep], weights[keep] / weights[keep].sum(), share_rounds(int(keep.sum())), start)
                unseen[rows] = stacked_logs(logs[rows], shares)
            else:
                unseen[rows] = stacked_logs(logs[rows], found.shares)
        share = posterior_share(one, unseen, weights)
        together = np.stack([one, stacked_logs(logs, found.shares)], axis=1)
        score = float(weights @ stacked_logs(together, np.array([share, 1.0 - share])))
        return found._replace(score=score, single=int(single[-1]), single_share=share)


def _correction(
    points: np.ndarray, fold: Fold, support: np.ndarray, reference: GaussianMixture, kernel: Gaussian, strengths: Sequence[float]
) -> np.ndarray:
    """Log-densities (held-out samples, λ) of what corrects the reference of a fold."""
    space = SoSSpace(kernel, support, reference, constant=True)
    unit = strength_unit(space, support)
    ratios = _path_logs(space, fold, points, [unit * strength for strength in strengths])
    return np.stack(list(ratios), axis=1) + np.asarray(reference.log_density(points[fold.test]))[:, None]


def _fits_over_lebesgue(
    points: np.ndarray, fold: Fold, support: np.ndarray, kernel: Gaussian, bumps: Sequence[Gaussian], strengths: Sequence[float]
) -> np.ndarray:
    """Log-densities (held-out samples, parts) of the kernel density estimates and of the path of λ over Lebesgue."""
    columns = [bump_logpdf(bump, Lebesgue(), points[fold.train], fold.train_weights, points[fold.test]) for bump in bumps]
    return np.stack([*columns, *_path_logs(SoSSpace(kernel, support, Lebesgue()), fold, points, strengths)], axis=1)


def _path_logs(space: SoSSpace, fold: Fold, points: np.ndarray, strengths: Sequence[float]) -> Iterator[np.ndarray]:
    """Log-densities, relative to the measure of the space, of the samples that a fold holds out, λ after λ."""
    basis = space.basis(points[fold.test])
    for F in quick_likelihood_path(space, points[fold.train], fold.train_weights, strengths):
        V = basis @ F
        with np.errstate(divide="ignore"):
            yield np.log(np.einsum("ij,ij->i", V, V)) - space.log_unit
