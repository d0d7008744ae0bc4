"""The search for a mixed table: the same loop and the same rule, over rows with numeric and
categorical cells, some of them missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.choose.bandwidth import bandwidth_unit
from ksos.choose.held_out import likelihood_path
from ksos.choose.mixed_reference import MixedStack, units_of
from ksos.choose.mixtures import Samples
from ksos.choose.normal_scores import rescaled
from ksos.choose.search import SUPPORT, Search
from ksos.data import Fold
from ksos.density import MixedReference, NormalScores
from ksos.kernels import Gaussian
from ksos.measures import Lebesgue
from ksos.solvers import Solution, fit_to_cells
from ksos.space import MixedSpace, in_bandwidths

_THETA = 0.5  # κ of two different levels: a correction is smooth in categories as well.
_UNSEEN = -12.0  # log share of a component at a row: dropping e^−12 = 6e-6 changes no score by 1e-4
_SUPPORT_OF_GAPS = 50  # points where cells are missing: the time for a row grows with their square
# Entries of factors of rows with missing cells: 0.5 GB. With more rows there are fewer support
# points.
_MOST_ENTRIES = 1 << 26
_RANK = 16  # Rows of a factor for a row with missing cells, as a rule.


class MixedProblem(NamedTuple):
    """Cells, folds, the references of every fold and, last, of all rows, and log du/dx of the
    held-out rows of every fold.
    """

    u: np.ndarray
    c: np.ndarray
    folds: Sequence[Fold]
    references: Sequence[MixedReference]
    slopes: Sequence[np.ndarray]

    def scores(
        self, k: int, metric: np.ndarray, support: Support, strengths: Sequence[float]
    ) -> Iterator[np.ndarray]:
        """Log-densities of the observed cells of the held-out rows of fold k, as those of
        :class:`~ksos.choose.held_out.Problem`.
        """
        fold, reference = self.folds[k], self.references[k]
        test = self.u[fold.test], self.c[fold.test]
        logs = reference.log_density(*test)
        first, own = int(np.isinf(strengths[0])), logs + self.slopes[k]
        if first:
            yield own
        if first == len(strengths):
            return
        space = _space(reference, metric, support)
        basis, begin = space.factors(*test, _UNSEEN)
        psi, starts = space.factors(self.u[fold.train], self.c[fold.train], _UNSEEN)
        relative = [space.mean_square * strength for strength in strengths[first:]]
        masses = fold.train_weights
        for F in likelihood_path(space.trace_matrix, psi, masses, relative, starts=starts):
            with np.errstate(divide="ignore"):
                yield np.log(np.add.reduceat(np.sum((basis @ F) ** 2, axis=1), begin)) + own


# support points: their numeric cells and their levels
Support = tuple[np.ndarray, np.ndarray]


class MixedSearch(Search):
    """Reference and λ of a table of numeric cells ``u`` (n, d), NaN where missing, and codes ``c``
    (n, q), −1 where missing, with ``levels`` of each categorical column.

    ``masses`` are those of the rows, ``folds`` of their numbers, ``slopes`` (n,) what a score is
    more in units of one's own. The columns of ``u`` in ``scorable`` may be put on the scale of
    their normal scores, which are then in ``normal_scores``. The rest is as in :class:`Search`.
    """

    problem: Any = None

    def __init__(
        self,
        u: np.ndarray,
        c: np.ndarray,
        levels: tuple[int, ...],
        masses: np.ndarray,
        folds: list[Fold],
        multiples: list[float],
        strengths: list[float],
        n_support: int | None = None,
        n_jobs: int | None = None,
        rng: np.random.Generator | None = None,
        verbose: int = 0,
        slopes: np.ndarray | None = None,
        scorable: Sequence[int] = (),
    ) -> None:
        self.u, self.c, self.levels, self.scorable = u, c, levels, scorable
        self.normal_scores: dict[int, NormalScores] = {}
        slopes = np.zeros(u.shape[0]) if slopes is None else slopes
        self.slopes = [slopes[fold.test] for fold in folds]
        weights, rng = masses / masses.sum(), rng or np.random.default_rng(0)
        super().__init__(
            u,
            weights,
            folds,
            Lebesgue(),
            "mixture",
            Gaussian(1.0),
            "likelihood",
            "log_likelihood",
            multiples,
            strengths,
            n_support,
            n_jobs,
            rng,
            verbose=verbose,
        )

    def __post_init__(self) -> None:
        self.stack = self._stack_of(self.u)

    def _stack_of(self, u: np.ndarray, brief: bool = False) -> MixedStack:
        units = units_of(u, self.weights, np.random.default_rng(0))
        return MixedStack(u, self.c, self.levels, self.weights, self.folds, units, brief)

    # Where cells are missing, fits of few components decide about the scale.
    def _fit_stack(self, begin: Callable[[str], None]) -> None:
        brief = bool(np.isnan(self.u).any())
        self.stack = first = self._stack_of(self.u, brief)
        first.fit(begin)
        found = None
        if self.folds:
            found = rescaled(first, self.scorable, lambda u: self._stack_of(u, brief))
        if found is not None:
            self.normal_scores, self.u, self.stack, more = found
            self.slopes = [a + b for a, b in zip(self.slopes, more, strict=True)]
        if brief:
            self.stack = self._stack_of(self.u)
            self.stack.fit(begin)

    @property
    def reference_of_all(self) -> MixedReference:
        """ρ, fitted to all rows."""
        found: MixedReference = self.problem.references[-1]
        return found

    # References, the metric, support points; missing cells are drawn for the latter two.
    def _settle(self) -> Any:
        stack, folds = self.stack, self.folds
        assert stack is not None
        stack.solve()
        references = [*(stack.of_fold(k) for k in range(len(folds))), stack.whole]
        logs = references[-1].log_components(self.u, self.c)
        shares = np.exp(logs - logs.max(axis=1, keepdims=True))
        u, c = references[-1].complete(self.u, self.c, shares, self.rng)
        n, d = u.shape
        self.metric, at = np.zeros((0, 0)), np.zeros((n, 0))
        if d:
            unit = bandwidth_unit(self.kernel, self.measure, u, self.weights, self.rng)
            self.metric, at = unit.matrix(d), in_bandwidths(u, unit)
        at = np.concatenate([at, Samples.of_cells(u, c, self.levels).points[:, d:]], axis=1)
        incomplete = np.sum(np.isnan(self.u).any(axis=1) | (self.c < 0).any(axis=1))
        most = _SUPPORT_OF_GAPS if incomplete else SUPPORT[True]
        most = most if self.n_support is None else int(self.n_support)
        most = min(most, max(1, int(_MOST_ENTRIES / (_RANK * max(incomplete, 1)))))
        self.support = [(u[one], c[one]) for one in self._centers(at, most)]
        self.problem = MixedProblem(self.u, self.c, folds, references, self.slopes)
        return self.problem

    def kernel_of(self, i: int) -> Any:
        return self.multiples[i] ** 2 * self.metric

    def at(self, metric: Any, tol: float | None, absolute: float | None) -> tuple[Solution, float]:
        """The optimum at the first λ, or at an absolute one, without any comparison; ``metric``, if
        there is one, takes the place of that of the first bandwidth.
        """
        assert self.stack is not None
        self.stack.fit()
        self._settle()
        if metric is not None:
            self.metric = metric
        return self.answer(tol, absolute)

    def answer(self, tol: float | None, absolute: float | None = None) -> tuple[Solution, float]:
        j, i = self.choice
        strength, support = self.strengths[j], self.support[-1]
        if np.isinf(strength):
            # only the constant function is left of the space: its density is ρ
            support = support[0][:1], support[1][:1]
        space = _space(self.reference_of_all, self.kernel_of(i), support, np.isinf(strength))
        relative = space.mean_square * strength if absolute is None else absolute
        return fit_to_cells(space, self.u, self.c, self.weights, relative, tol), relative


def _space(
    reference: MixedReference, metric: np.ndarray, support: Support, constant_only: bool = False
) -> MixedSpace:
    thetas = np.full(support[1].shape[1], _THETA)
    tol = 1.0 if constant_only else 1e-10
    return MixedSpace(reference, metric, thetas, *support, tol_model=tol)
