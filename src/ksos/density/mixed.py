"""MixedTerms: a density over numeric and categorical cells, and what one asks of it.

It is a reference over cells times a square with product kernels. Given all categories it is a
corrected mixture of normal densities like any other; with categories integrated out, it is one
such density for every component. So questions about numeric columns alone are those of
:class:`Terms`, and what is here is what only a table with categories or missing cells needs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ksos.density.factor import hadamard_factor, log_sum, unit_rows
from ksos.density.mixed_reference import MixedReference, patterns
from ksos.density.mixed_square import Correction, Expected, ExpectedOf
from ksos.density.normals import Group
from ksos.density.square import NoMass, Square
from ksos.ground import Array, like, namespace, quiet, row_blocks, to_numpy
from ksos.integrals.normal_boxes import box_masses
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue, Normal, Normals
from ksos.observables.over_normals import pairs_over

if TYPE_CHECKING:
    from ksos.density.terms import Terms, Weighted

_BLOCK_ELEMENTS = 1 << 20  # numbers held at a time: 8 MB
_CACHE_ELEMENTS = 1 << 17  # of one component at many rows: 1 MB, which a core's cache holds
_FEW_ELEMENTS = 1 << 17  # of several components at once, whose calls take longer than their sums
_UNSEEN = -37.0  # log share: a component below e^−37 = 1e-16 of all of them together is rounding
_UNSEEN_OF_MOMENTS = -25.0  # the same for moments of missing cells: e^−25 = 1e-11 is rounding there
_NODES_END = 8.5  # Standard deviations: a normal density has a mass of 2e-17 beyond.
_PROPOSALS = 1 << 16  # proposals at a time
_LEAST_ACCEPTANCE = 1e-6  # of proposals: where fewer are accepted, a sample would take minutes
_REPEATS = 64  # proposals for one row at a time: with few rows, several rounds would take longer

_RTOL = 1e-8  # of means of functions within intervals, which are cubatures
_ROUNDING = 1e-8  # of a mass of one, or probabilities that sum to one in another order
_WHOLE = ("levels", "codes", "numeric_shown", "categorical_shown")
_CORRECTION = ("metric", "thetas", "points", "codes", "factor", "constant")
_NAMES = (*_WHOLE, *_CORRECTION, "weights", "means", "covariances", "chances", "within")

Sides = dict[int, tuple[float, float]]
"""Numeric columns that are known to lie between two sides."""
Value = float | tuple[float, float]
Levels = int | Iterable[int]
Function = tuple[Callable[[np.ndarray], np.ndarray], int]
"""What is averaged, and at how many nodes of a component."""


class _Block(NamedTuple):
    """Rows with the same cells observed, and components: numbers of both, expectations in these
    components, the observed numeric cells of the rows, what known levels make of φ, the logarithms
    of the shares of the components, (rows, components).
    """

    rows: np.ndarray
    which: np.ndarray
    of: ExpectedOf
    x: Array
    near: Array
    logs: Array


@dataclass(frozen=True)
class MixedTerms:
    """A density over cells: columns of a joint density that are shown, the numeric ones in u and
    the categorical ones in c.

    ``u`` is an array (n, n_numeric), NaN where a cell is missing. ``c`` are the numbers of levels,
    (n, len(levels)), −1 where a cell is missing. Columns that are not shown are integrated out,
    those in ``within`` between two sides.
    """

    reference: MixedReference
    correction: Correction
    numeric_shown: tuple[int, ...]
    categorical_shown: tuple[int, ...]
    within: Sides

    @classmethod
    def of(cls, reference: MixedReference, correction: Correction) -> MixedTerms:
        """All columns, scaled to mass one."""
        d, q = reference.shape
        return cls(reference, correction, tuple(range(d)), tuple(range(q)), {}).to_mass_one()[1]

    def to_mass_one(self) -> tuple[float, MixedTerms]:
        """The logarithm of the mass, and the same density with mass one before it is within
        intervals; raises NoMass.
        """
        log_mass, log_all = self._log_total, replace(self, within={})._log_total
        if not (math.isfinite(log_mass) and math.isfinite(log_all)):
            raise NoMass
        one, scale = self.correction, math.exp(-0.5 * log_all)
        scaled = replace(one, factor=scale * one.factor, constant=scale * one.constant)
        return log_mass, replace(self, correction=scaled)

    @property
    def n_numeric(self) -> int:
        """How many numeric columns are shown."""
        return len(self.numeric_shown)

    @property
    def levels(self) -> tuple[int, ...]:
        """How many levels each categorical column has."""
        return tuple(self.reference.chances[j].shape[1] for j in self.categorical_shown)

    # Values

    def log_density(self, u: Array, c: np.ndarray) -> Array:
        """log p of the observed cells of every row, (n,); 0 for a row without any. It is computed
        where ``u`` lies.
        """
        found = self.log_integral(u, c) - self._log_total
        found[np.isnan(to_numpy(u)).all(axis=1) & (c < 0).all(axis=1)] = 0.0
        return found

    @cached_property
    def _log_total(self) -> float:
        """The logarithm of the mass, within the intervals."""
        found = self.log_integral(*self.nothing(1))
        return float(found[0])

    def nothing(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of which no cell is observed."""
        return np.full((n, self.n_numeric), np.nan), np.full((n, len(self.levels)), -1)

    def _joint(self, u: Array, c: np.ndarray) -> tuple[Array, np.ndarray]:
        """The cells of all columns, hidden ones being missing."""
        n, (d, q) = u.shape[0], self.reference.shape
        all_u, all_c = np.full((n, d), np.nan), np.full((n, q), -1)
        all_u[:, list(self.numeric_shown)] = to_numpy(u)
        all_c[:, list(self.categorical_shown)] = c
        return like(all_u, u), all_c

    def log_integral(self, u: Array, c: np.ndarray) -> Array:
        """log ∫ of ρ·‖a + Fᵀφ‖² over what is missing, before it is scaled.

        The largest component of a row comes first, others only where they can add to it: none
        exceeds its share of ρ times the bound of the square.
        """
        u, c = self._joint(u, c)
        logs, one, xp = self.reference.log_components(u, c), self.correction, namespace(u)
        if one.is_silent and len(self.within) <= 1:
            for k, between in self.within.items():
                logs = logs + like(self.reference.log_inside(u, k, between), u)
            return log_sum(logs.T)[0] + math.log(float(one.constant @ one.constant))
        if self.within:
            return like(self._log_within(to_numpy(u), c), u)
        out, known = xp.full_like(logs, -math.inf), to_numpy(logs)

        def add(needed: np.ndarray) -> None:
            with quiet():
                for part in self._blocks(u, c, logs, needed):
                    value = xp.log(part.of.values(part.x, part.near)).T
                    out[part.rows[:, None], part.which] = part.logs + value

        add(first := known == known.max(axis=1, keepdims=True))
        least = to_numpy(out).max(axis=1) - math.log(one.bound) + _UNSEEN
        # of a complete row, all components have been seen at once
        gaps = np.isnan(to_numpy(u)).any(axis=1) | (c < 0).any(axis=1)
        add((known >= least[:, None]) & gaps[:, None] & ~first)
        return log_sum(out.T)[0]

    def _blocks(
        self, u: Array, c: np.ndarray, logs: Array, needed_of: np.ndarray, nodes: int = 1
    ) -> Iterator[_Block]:
        """The components that rows need, (n, K), pattern by pattern. What has ``nodes`` places for
        every row and component has a bounded size.
        """
        m = self.correction.points.shape[0]
        for every, seen, known in patterns(u, c):
            every = every[needed_of[every].any(axis=1)]
            if not every.size:
                continue
            all_of = self._expected(seen, known)
            for some in row_blocks(every.size, m * nodes, _CACHE_ELEMENTS):
                rows = every[some]
                needed = needed_of[rows]
                which = np.flatnonzero(needed.any(axis=0))
                x = u[rows][:, all_of.seen]
                near = all_of.near(c[rows], x)
                if all_of.is_whole:
                    # the same in all components together
                    log, one = log_sum(logs[rows].T)[0][:, None], which[:1]
                    yield _Block(rows, one, all_of.of(one, near), x, near, log)
                    continue
                size = m * max(m, rows.size * nodes)
                for ks in row_blocks(which.size, size, _FEW_ELEMENTS):
                    at = np.flatnonzero(needed[:, which[ks]].any(axis=1))
                    log = logs[rows[at][:, None], which[ks]]
                    of = all_of.of(which[ks], near)
                    yield _Block(rows[at], which[ks], of, x[at], near[at], log)

    def _log_within(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """The same, row by row: the density of what is observed, and given that the probability of
        the intervals, of a signed sum of normal densities.
        """
        (d, q), out = self.reference.shape, np.full(u.shape[0], -math.inf)
        low, high = np.array(list(self.within.values())).T
        whole = MixedTerms(self.reference, self.correction, tuple(range(d)), tuple(range(q)), {})
        for row in range(u.shape[0]):
            numbers, codes = np.flatnonzero(~np.isnan(u[row])), np.flatnonzero(c[row] >= 0)
            values = dict(zip(numbers.tolist(), u[row, numbers].tolist(), strict=True))
            levels = dict(zip(codes.tolist(), c[row, codes].tolist(), strict=True))
            with suppress(NoMass):
                log, left = whole._given(values, levels)
                inside = [k - int(np.sum(numbers < k)) for k in self.within]
                mass = sum(
                    group.weights
                    @ box_masses(low - group.means, high - group.means, group.covariance).mean(0)
                    for group, _ in left.marginal(inside, []).groups()
                )
                out[row] = log + math.log(mass) if mass > 0.0 else -math.inf
        return out + whole._log_total

    def _expected(self, seen: np.ndarray, known: np.ndarray) -> Expected:
        """Expectations given these cells; the last ones are kept."""
        key = seen.tobytes(), known.tobytes()
        if key not in self._kept:
            self._kept.clear()
            self._kept[key] = Expected(self.reference, self.correction, seen, known)
        return self._kept[key]

    @cached_property
    def _kept(self) -> dict[tuple[bytes, bytes], Expected]:
        return {}

    def matrices(self, u: np.ndarray, c: np.ndarray, unseen: float = _UNSEEN) -> np.ndarray:
        """M(o) = E_ρ[(1, φ)(1, φ)ᵀ | o] of every row, (n, 1 + m, 1 + m), without components whose
        share is by the logarithm ``unseen`` smaller than the largest.
        """
        size = 1 + self.correction.points.shape[0]
        out, u_c = np.zeros((u.shape[0], size, size)), self._joint(u, c)
        logs = self.reference.log_components(*u_c)
        needed = logs > logs.max(axis=1, keepdims=True) + unseen
        logs = logs - log_sum(logs.T)[0][:, None]
        for part in self._blocks(*u_c, logs, needed):
            for some in row_blocks(part.rows.shape[0], size * size, _BLOCK_ELEMENTS):
                weights = np.exp(part.logs[some].T)
                out[part.rows[some]] += part.of.matrices(part.x[some], part.near[some], weights)
        return out

    # Categories

    def probabilities(self, j: int) -> np.ndarray:
        """P(c_j = level) of every level."""
        return np.asarray(self.posterior(*self.nothing(1), j)[0])

    def posterior(self, u: np.ndarray, c: np.ndarray, j: int) -> np.ndarray:
        """P(c_j = level | the other observed cells) of every row, (n, levels)."""
        logs = []
        for level in range(self.levels[j]):
            filled = c.copy()
            filled[:, j] = level
            logs.append(self.log_density(u, filled))
        return np.asarray(log_sum(np.stack(logs))[1].T)

    # Parts of the table

    def marginal(self, numeric: Sequence[int], categorical: Sequence[int]) -> MixedTerms:
        """The density of some of the columns, in that order."""
        return replace(
            self,
            numeric_shown=tuple(self.numeric_shown[k] for k in numeric),
            categorical_shown=tuple(self.categorical_shown[j] for j in categorical),
        )

    def log_mass_given(self, u: Mapping[int, Value], c: Mapping[int, Levels]) -> float:
        """The logarithm of the density of values and of the probability of intervals and levels;
        −∞ where there is none.
        """
        try:
            return self._given(u, c)[0]
        except NoMass:
            return -math.inf

    def given(self, u: Mapping[int, Value], c: Mapping[int, Levels]) -> MixedTerms:
        """The density of the other columns, given values or intervals of numeric columns, and
        levels or sets of levels of categorical ones; raises NoMass.
        """
        return self._given(u, c)[1]

    def _given(self, u: Mapping[int, Value], c: Mapping[int, Levels]) -> tuple[float, MixedTerms]:
        reference, correction, log_mass = self.reference, self.correction, 0.0
        single: list[int] = []
        for position, codes in c.items():
            j = self.categorical_shown[position]
            several = [codes] if isinstance(codes, int | np.integer) else list(codes)
            log, reference = reference.given_levels(j, [int(code) for code in several])
            log_mass += log
            if len(several) == 1:
                single.append(j)
                correction = _scaled(correction, correction.kappa(j, several)[0])
        within, values = dict(self.within), {}
        for position, value in u.items():
            k = self.numeric_shown[position]
            if isinstance(value, tuple):
                within[k] = (float(value[0]), float(value[1]))
            else:
                values[k] = float(value)
        shown_u = [k for i, k in enumerate(self.numeric_shown) if i not in u]
        shown_c = [j for i, j in enumerate(self.categorical_shown) if i not in c]
        kept = [j for j in range(self.reference.shape[1]) if j not in single]
        reference = replace(reference, chances=tuple(reference.chances[j] for j in kept))
        correction = replace(
            correction, thetas=correction.thetas[kept], codes=correction.codes[:, kept]
        )
        left = [k for k in range(self.reference.shape[0]) if k not in values]
        if values:
            at = np.array([values[k] for k in sorted(values)])
            log, reference = reference.given_values(sorted(values), at)
            log_mass += log
            correction = _at_values(correction, sorted(values), at, left)
        found = MixedTerms(
            reference,
            correction,
            tuple(left.index(k) for k in shown_u),
            tuple(kept.index(j) for j in shown_c),
            {left.index(k): sides for k, sides in within.items()},
        )
        log, found = found.to_mass_one()
        return log_mass + log - self._log_total, found

    def numeric(self) -> Terms:
        """The numeric columns by volume, once no categorical column is shown."""
        if self.categorical_shown or not self.n_numeric:
            raise ValueError(
                f"a density of {self.n_numeric} numeric and {len(self.levels)} categorical columns"
                " is not one of numeric columns alone: condition on the others, or take a marginal"
            )
        from ksos.density.questions.condition import in_interval  # asks terms, made of these
        from ksos.density.terms import Terms

        shown = [*self.numeric_shown, *self.within]
        terms = Terms(self._numeric_parts(shown), Lebesgue())
        for place, sides in reversed(list(enumerate(self.within.values()))):
            terms = in_interval(terms, self.n_numeric + place, sides)
        return terms

    def _numeric_parts(self, shown: list[int]) -> list[Weighted]:
        """One corrected mixture, or where categories are integrated out one corrected normal
        density for every component: (F Fᵀ) ∘ T_k has a factor.
        """
        from ksos.density.corrected import Corrected  # which is evaluated as cells

        (weights, means, covariances), one = self.reference.normals, self.correction
        silent, hides = one.is_silent, bool(self.reference.chances)
        points, factor = (
            (means[:1], np.zeros((1, one.constant.size))) if silent else (one.points, one.factor)
        )
        kernel = Gaussian(one.metric)
        if silent or not hides:
            measure = GaussianMixture(weights, means, covariances)
            square = Square(kernel, points, factor, 0.0, measure, one.constant)
            return [(1.0, Corrected(square.scaled_to_one(), shown))]
        found: list[Weighted] = []
        rows, log_lengths = unit_rows(np.concatenate([one.constant[None], factor]))
        for k, weight in enumerate(weights):
            levels = one.levels(self.reference, [k], range(len(self.reference.chances)))[0]
            L = hadamard_factor(rows, levels) * np.exp(log_lengths)[:, None]
            normal = Normal(means[k], covariances[k])
            square = Square(kernel, points, L[1:], 0.0, normal, L[0])
            if (mass := square.mass()) > 0.0:
                found.append((float(weight) * mass, Corrected(square.scaled_to_one(mass), shown)))
        return found

    def groups(self, log_unit: float = 0.0) -> Iterator[tuple[Group, list[np.ndarray]]]:
        """The density, in units of e^{log_unit}, as a signed sum of normal densities, in groups,
        times a factor for every level of each categorical column, (n, levels).
        """
        if self.within:
            raise ValueError(
                "a density given an interval has no closed form here; take samples of it, as"
                " p.rvs(1000), or condition on values and levels"
            )
        one, shown = self.correction, np.array(self.numeric_shown, dtype=int)
        points = one.points[:0] if one.is_silent else one.points
        G = np.concatenate([one.constant[None], one.factor])
        B = (G @ G.T) * (2.0 - np.eye(G.shape[0]))  # every pair once
        hidden = set(range(self.reference.shape[1])) - set(self.categorical_shown)
        for k, normal in enumerate(zip(*self.reference.normals, strict=True)):
            alone = Normals(*(part[None] for part in normal))
            T = B * one.levels(self.reference, [k], hidden)[0]
            for i, j, weights, means, V in pairs_over(
                alone, one.metric, points, log_unit, shown, constant=True
            ):
                levels = []
                for column in self.categorical_shown:
                    chances = self.reference.chances[column][k]
                    kappa = one.kappa(column, range(chances.size)).T
                    kappa = np.concatenate([np.ones((1, chances.size)), kappa])
                    levels.append(chances * kappa[i] * kappa[j])
                yield Group(T[i, j] * weights, means, V), levels

    # Cells that are missing

    def conditional_means(
        self, u: np.ndarray, c: np.ndarray, functions: Mapping[int, Function] | None = None
    ) -> np.ndarray:
        """E[g_k(u_k) | observed cells] of every numeric cell, (n, d), of an observed one g_k(u_k).

        The ``functions`` take arrays; without one, g_k is the identity. A missing cell with a
        function is seen at equidistant nodes of every component, for smooth functions the quickest.
        """
        if self.within:
            return self._means_within(u, c, functions or {})
        out = self._means(u, c)
        for position, function in (functions or {}).items():
            out[:, position] = function[0](out[:, position])
            rows = np.flatnonzero(np.isnan(u[:, position]))
            if rows.shape[0]:
                out[rows, position] = self._mean_of(*function, position, u[rows], c[rows])
        return out

    def _means(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Those of the cells themselves."""
        joint = self._joint(u, c)
        logs = self._log_shares(*joint)
        (n, d), columns = joint[0].shape, np.arange(joint[0].shape[1])
        total, sums = np.zeros(n), np.zeros((n, d))
        # about the mean of all, so that a far column keeps its digits
        middle = self.reference.weights @ self.reference.means
        for part in self._blocks(*joint, logs, logs > _UNSEEN_OF_MOMENTS):
            hidden = part.of.all_of.hidden
            R = np.setdiff1d(columns, hidden.seen)
            m = hidden.means(part.which, part.x) - middle[R]
            masses, means = part.of.means(part.x, part.near, m)
            weights = np.exp(part.logs.T)
            total[part.rows] += np.sum(weights * masses, axis=0)
            sums[part.rows[:, None], R] += np.einsum("kn,knr->nr", weights, means)
        found = (sums / total[:, None] + middle)[:, list(self.numeric_shown)]
        return np.where(np.isnan(u), found, u)

    def _log_shares(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Logarithms of the weights of components in every row, the largest being zero."""
        logs = self.reference.log_components(u, c)
        return logs - logs.max(axis=1, keepdims=True)

    def _means_within(
        self, u: np.ndarray, c: np.ndarray, functions: Mapping[int, Function]
    ) -> np.ndarray:
        """The same with intervals, row by row."""
        from ksos.density.questions.expectation import expectation  # of terms
        from ksos.density.questions.moments import mean_and_covariance

        mean, work = u.copy(), {"rtol": _RTOL, "max_evaluations": None, "rng": 0}
        for row in range(u.shape[0]):
            missing = np.flatnonzero(np.isnan(u[row])).tolist()
            values = {k: float(u[row, k]) for k in range(u.shape[1]) if k not in missing}
            codes = {j: int(c[row, j]) for j in np.flatnonzero(c[row] >= 0).tolist()}
            if missing:
                left = self.given(values, codes)
                terms = left.marginal(range(left.n_numeric), []).numeric()
                mean[row, missing] = mean_and_covariance(terms)[0]
                for place, k in enumerate(missing):
                    if k in functions:
                        alone = left.marginal([place], []).numeric()
                        mean[row, k] = expectation(
                            alone, lambda u, k=k: functions[k][0](u[:, 0]), work
                        )
        for k, (g, _) in functions.items():
            mean[:, k] = np.where(np.isnan(u[:, k]), mean[:, k], g(u[:, k]))
        return mean

    def _mean_of(
        self, g: Any, count: int, position: int, u: np.ndarray, c: np.ndarray
    ) -> np.ndarray:
        """E[g(u_k) | observed cells] of a column that is missing in all rows."""
        a, nodes = self.numeric_shown[position], np.linspace(-_NODES_END, _NODES_END, count)
        node_weights = np.exp(-0.5 * nodes**2)
        u, c = self._joint(u, c)
        logs, sums = self._log_shares(u, c), np.zeros((2, u.shape[0]))
        for part in self._blocks(u, c, logs, logs > _UNSEEN_OF_MOMENTS, count):
            before, which = part.of.all_of, part.which
            place = a - np.searchsorted(before.seen, a)
            mean = before.hidden.means(which, part.x)[..., place]
            deviation = np.sqrt(before.hidden.covariances[which, place, place])
            t = mean[..., None] + deviation[:, None, None] * nodes
            weights = np.exp(part.logs.T)[..., None] * node_weights
            if not self.correction.is_silent:
                after = before.and_seen(a)
                x = np.broadcast_to(part.x[:, None], (*t.shape, before.seen.size))
                x = np.insert(x, np.searchsorted(before.seen, a), t, axis=-1)
                x = x.reshape(which.size, -1, after.seen.size)
                near = after.near(np.repeat(c[part.rows], count, axis=0), x)
                weights *= after.of(which, near).values(x, near).reshape(t.shape)
            sums[:, part.rows] += weights.sum(axis=(0, 2)), np.sum(weights * g(t), axis=(0, 2))
        return np.asarray(sums[1] / sums[0])

    # Samples

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Independent samples (u, c)."""
        from ksos.density.sampling.rejection import gathered  # samplers are made of terms

        propose, d = self._proposals(*self.nothing(1)), self.n_numeric

        def accepted(count: int) -> np.ndarray:
            u, c, kept = propose(np.zeros(count, dtype=int), rng)
            return np.column_stack([u, c])[kept]

        times = 1.1 * math.exp(math.log(self.correction.bound) - self._log_total)
        drawn = gathered(accepted, n, d + len(self.levels), times, _PROPOSALS)
        return drawn[:, :d], drawn[:, d:].astype(int)

    def draw_given(
        self, u: np.ndarray, c: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """One draw of the missing cells of every row given the others."""
        propose, waiting = self._proposals(u, c), np.arange(u.shape[0])
        u, c = u.copy(), c.copy()
        while waiting.size:
            # several proposals for each of few rows
            rows = np.repeat(waiting, max(1, min(_PROPOSALS // waiting.size, _REPEATS)))
            some_u, some_c, kept = propose(rows, rng)
            # the first one of each row that is kept
            chosen = np.flatnonzero(kept)
            chosen = chosen[np.diff(rows[chosen], prepend=-1) > 0]
            done = rows[chosen]
            u[done], c[done] = some_u[chosen], some_c[chosen]
            waiting = np.delete(waiting, np.searchsorted(waiting, done))
        return u, c

    def _proposals(
        self, u: np.ndarray, c: np.ndarray
    ) -> Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """What completes some of the rows, by number, and says which results to keep: draws from
        the reference, exact in the rarest of the intervals, with probability ‖a + Fᵀφ‖² over its
        bound.
        """
        u, c = self._joint(u, c)
        logs, rarest = self.reference.log_components(u, c), None
        for k, between in self.within.items():
            inside = logs + self.reference.log_inside(u, k, between)
            mass = float(log_sum(inside.T)[0].sum())
            if rarest is None or mass < rarest[0]:
                rarest = mass, inside, (k, between)
        _, logs, rare = rarest or (0.0, logs, None)
        shares, one = log_sum(logs.T)[1].T, self.correction
        log_bound, tried, found = math.log(one.bound), 0, 1

        def propose(rows: np.ndarray, rng: np.random.Generator) -> Any:
            nonlocal tried, found
            some_u, some_c = self.reference.complete(u[rows], c[rows], shares[rows], rng, rare)
            kept = np.ones(rows.size, dtype=bool)
            for k, (low, high) in self.within.items():
                kept &= (low <= some_u[:, k]) & (some_u[:, k] <= high)
            if not one.is_silent:
                log_f = np.log(one.values(some_u[kept], some_c[kept]))
                kept[kept] = np.log(rng.random(log_f.size)) + log_bound <= log_f
            tried, found = tried + rows.size, found + int(kept.sum())
            if tried * _LEAST_ACCEPTANCE > found:
                raise ValueError(
                    f"sampling has accepted too few of {tried} proposals: the condition is too"
                    " rare, or the correction changes its reference too much"
                )
            return (
                some_u[:, list(self.numeric_shown)],
                some_c[:, list(self.categorical_shown)],
                kept,
            )

        return propose

    # Files

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything it is made of, by name."""
        one, (weights, means, covariances) = self.correction, self.reference.normals
        within = [(k, *sides) for k, sides in self.within.items()]
        return {
            "weights": weights,
            "means": means,
            "covariances": covariances,
            "levels": np.array([chances.shape[1] for chances in self.reference.chances], dtype=int),
            "chances": np.concatenate(
                [np.empty((weights.shape[0], 0)), *self.reference.chances], 1
            ),
            **{name: getattr(one, name) for name in _CORRECTION},
            "numeric_shown": np.array(self.numeric_shown, dtype=int),
            "categorical_shown": np.array(self.categorical_shown, dtype=int),
            "within": np.array(within, dtype=float).reshape(-1, 3),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> MixedTerms:
        """What :meth:`arrays` gave; raises ValueError where that is no density of mass one."""
        try:
            given = {name: np.asarray(arrays[name]) for name in _NAMES}
            for name in _WHOLE:
                if not np.array_equal(given[name], np.floor(given[name])):
                    raise ValueError(f"{name} must be whole numbers; got {given[name]!r}")
                given[name] = given[name].astype(np.int64)
            levels = given["levels"].tolist()
            chances = np.split(given["chances"], np.cumsum(levels)[:-1], axis=1)
            normals = given["weights"], given["means"], given["covariances"]
            found = cls(
                MixedReference(*normals, tuple(chances if levels else ())),
                Correction(*(given[name] for name in _CORRECTION)),
                tuple(given["numeric_shown"].tolist()),
                tuple(given["categorical_shown"].tolist()),
                {int(k): (float(a), float(b)) for k, a, b in given["within"]},
            )
            with np.errstate(all="ignore"):
                found._require_density()
        except (KeyError, IndexError, TypeError, np.linalg.LinAlgError) as error:
            raise ValueError(f"the arrays do not make a density: {error!r}") from None
        return found

    def _require_density(self) -> None:
        """Raise ValueError unless shapes fit and the mass is one."""
        (d, q), one = self.reference.shape, self.correction
        (weights, means, covariances), (m, r) = self.reference.normals, one.factor.shape
        K = weights.shape[0]
        shapes = {
            "covariances": (covariances.shape, (K, d, d)),
            "means": (means.shape, (K, d)),
            "metric": (one.metric.shape, (d, d)),
            "thetas": (one.thetas.shape, (q,)),
            "points": (one.points.shape, (m, d)),
            "codes": (one.codes.shape, (m, q)),
            "constant": (one.constant.shape, (r,)),
        }
        for name, (shape, expected) in shapes.items():
            if shape != expected:
                raise ValueError(f"{name} must have shape {expected}; got {shape}")
        every = [*self.arrays().values()]
        if not all(np.isfinite(a[:, :1] if a is every[-1] else a).all() for a in every):
            raise ValueError("the arrays of a density must be finite")
        chances = self.reference.chances
        sums = [weights[None], *chances]
        if any((p < 0.0).any() or (abs(p.sum(axis=1) - 1.0) > _ROUNDING).any() for p in sums):
            raise ValueError("weights and probabilities must not be negative, with sum one")
        if ((one.thetas < 0.0) | (one.thetas >= 1.0)).any():
            raise ValueError("the thetas of a kernel must be at least 0 and below 1")
        limits = np.array([p.shape[1] for p in chances], dtype=int)
        if ((one.codes < 0) | (one.codes >= limits)).any():
            raise ValueError("the codes of support points must be those of levels")
        np.linalg.cholesky(covariances)
        np.linalg.cholesky(one.metric)
        shown = (self.numeric_shown, d), (self.categorical_shown, q)
        if any(sorted({*columns} & {*range(size)}) != sorted(columns) for columns, size in shown):
            raise ValueError("the columns that are shown must be different columns")
        inside = replace(self, within={})
        if any(not a < b for a, b in self.within.values()) or not {*self.within} <= {*range(d)}:
            raise ValueError("intervals must have low < high")
        if not abs(inside._log_total) <= _ROUNDING:
            raise ValueError(f"the mass must be one; its logarithm is {inside._log_total:.3g}")


def _scaled(correction: Correction, rows: np.ndarray) -> Correction:
    """With rows of F times numbers."""
    return replace(correction, factor=correction.factor * rows[:, None])


def _at_values(
    correction: Correction, at: list[int], values: np.ndarray, left: list[int]
) -> Correction:
    """The kernels at values of some numeric columns, as kernels of the others."""
    P, S = correction.precision, correction.metric
    away = values - correction.points[:, at]
    log_rows = -np.einsum("ik,kl,il->i", away, np.linalg.inv(S[np.ix_(at, at)]), away)
    metric = np.linalg.inv(P[np.ix_(left, left)])
    points = correction.points[:, left] - away @ P[np.ix_(at, left)] @ metric
    with np.errstate(under="ignore"):
        scaled = _scaled(correction, np.exp(log_rows))
    return replace(scaled, metric=0.5 * (metric + metric.T), points=points)
