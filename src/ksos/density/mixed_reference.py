"""A mixture over numeric and categorical cells, Σ_k w_k N(u; μ_k, Σ_k) Π_j π_kj(c_j), of which any
cells of a row may be missing: the reference of a density of a mixed table.

Given its component, the cells of a row are normal and independent levels, so a missing cell drops
out of the density, and what is observed of the other ones determines the component. Rows with the
same numeric cells missing share all covariances, and are worked on together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos.density.factor import log_sum
from ksos.density.square import NoMass
from ksos.ground import Array, like, namespace, quiet, row_blocks, row_squares, to_numpy
from ksos.integrals.erf import log_gauss_mass, normal_between
from ksos.measures import Normals

_BLOCK_ELEMENTS = 1 << 20  # numbers held at a time: 8 MB


def patterns(u: np.ndarray, c: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(rows, numeric cells, categorical cells): the rows that have just these cells, as masks."""
    seen = np.concatenate([~np.isnan(to_numpy(u)), c >= 0], axis=1)
    if not seen.shape[0] or (seen == seen[0]).all():
        every = np.arange(seen.shape[0])
        yield from ((every, one[: u.shape[1]], one[u.shape[1] :]) for one in seen[:1])
        return
    # sorted as bytes: hundreds of patterns among thousands of rows are found at once
    codes = np.packbits(seen, axis=1)
    _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(which.ravel()))
    for start, end, row in zip(np.r_[0, ends[:-1]], ends, first, strict=True):
        yield order[start:end], seen[row, : u.shape[1]], seen[row, u.shape[1] :]


@dataclass(frozen=True)
class Hidden:
    """What the numeric cells that are not seen are in every component, given those that are: normal
    with mean center_k + pull_k (x_S − seen_center_k) and covariance covariances_k. Far values keep
    their digits so.
    """

    seen: np.ndarray
    seen_center: np.ndarray
    center: np.ndarray
    pull: np.ndarray
    covariances: np.ndarray

    def means(self, which: Any, x: np.ndarray) -> np.ndarray:
        """Those of some components at rows of the cells that are seen, (k, n, hidden)."""
        away = x - self.seen_center[which][:, None]
        return np.asarray(self.center[which][:, None] + away @ self.pull[which].mT)


@dataclass(frozen=True)
class MixedReference:
    """Weights (K,), means (K, d), covariances (K, d, d), and for each categorical column the
    probabilities of its levels, (K, levels).
    """

    weights: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    chances: tuple[np.ndarray, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """How many numeric and how many categorical columns there are."""
        return self.means.shape[1], len(self.chances)

    @property
    def normals(self) -> Normals:
        """Weights, means and covariances."""
        return Normals(self.weights, self.means, self.covariances)

    def log_components(self, u: Array, c: np.ndarray) -> Array:
        """log(weight · density of the observed cells) of every component, (n, K)."""
        out = namespace(u).zeros(
            (u.shape[0], self.weights.shape[0]), dtype=u.dtype, device=u.device
        )
        for rows, seen, _ in patterns(u, c):
            out[rows] = self._log_normals(np.flatnonzero(seen), u[rows][:, seen])
        with np.errstate(divide="ignore"):
            out += like(np.log(self.weights), u)
            for j, chances in enumerate(self.chances):
                # a last row for missing cells, whose code is −1
                logs = np.concatenate([np.log(chances.T), np.zeros((1, chances.shape[0]))])
                out += like(logs, u)[c[:, j]]
        return out

    def log_density(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """log ρ of the observed cells, (n,)."""
        return log_sum(self.log_components(u, c).T)[0]

    def _log_normals(self, seen: np.ndarray, x: Array) -> Array:
        """(n, K), zero where no cell is seen."""
        K, d = self.weights.shape[0], seen.shape[0]
        out = namespace(x).zeros((x.shape[0], K), dtype=x.dtype, device=x.device)
        if not d:
            return out
        roots = np.linalg.inv(np.linalg.cholesky(self.covariances[:, seen[:, None], seen]))
        logs = np.log(np.diagonal(roots, axis1=1, axis2=2)).sum(axis=1)
        logs -= 0.5 * d * math.log(2.0 * math.pi)
        at, roots, logs = (like(one, x) for one in (self.means[:, None, seen], roots.mT, logs))
        for rows in row_blocks(x.shape[0], K * d, _BLOCK_ELEMENTS):
            with quiet():
                out[rows] = (logs[:, None] - 0.5 * row_squares((x[rows] - at) @ roots)).T
        return out

    def hidden(self, seen: np.ndarray) -> Hidden:
        """The numeric cells outside of the mask ``seen``, given those inside."""
        S, R = np.flatnonzero(seen), np.flatnonzero(~seen)
        across = self.covariances[:, S[:, None], R]
        at = self.covariances[:, S[:, None], S]
        pull = np.linalg.solve(at, across).transpose(0, 2, 1)
        left = self.covariances[:, R[:, None], R] - pull @ across
        left = 0.5 * (left + left.transpose(0, 2, 1))
        return Hidden(S, self.means[:, S], self.means[:, R], pull, left)

    def given_levels(self, j: int, codes: Sequence[int]) -> tuple[float, MixedReference]:
        """log P(c_j in ``codes``), and what is left, where c_j has no other level."""
        allowed = np.zeros(self.chances[j].shape[1])
        allowed[list(codes)] = 1.0
        inside = self.chances[j] * allowed
        within = inside.sum(axis=1)
        weights = self.weights * within
        if not (mass := float(weights.sum())) > 0.0:
            raise NoMass
        kept = weights > 0.0
        chances = list(self.chances)
        chances[j] = inside / np.where(kept, within, 1.0)[:, None]
        found = replace(self, weights=weights / mass, chances=tuple(chances))
        return math.log(mass), found._components(kept)

    def given_values(self, at: list[int], values: np.ndarray) -> tuple[float, MixedReference]:
        """The log-density of the values of the numeric columns ``at``, and what is left of the
        others.
        """
        order = np.argsort(at)
        seen, x = np.isin(np.arange(self.shape[0]), at), values[order]
        hidden = self.hidden(seen)
        logs = self._log_normals(hidden.seen, x[None, :])[0] + np.log(self.weights)
        if not math.isfinite(float(logs.max())):
            raise NoMass
        means, (log, shares) = hidden.means(slice(None), x[None])[:, 0], log_sum(logs[:, None])
        left = MixedReference(shares[:, 0], means, hidden.covariances, self.chances)
        return float(log[0]), left._components(left.weights > 0.0)

    def log_inside(self, u: np.ndarray, k: int, between: tuple[float, float]) -> np.ndarray:
        """log P(the missing cell k is between | the other cells) in every component, (n, K)."""
        out = np.empty((u.shape[0], self.weights.shape[0]))
        for rows, seen, _ in patterns(u, np.empty((u.shape[0], 0), dtype=int)):
            hidden, place = self.hidden(seen), int(np.sum(~seen[:k]))
            mean = hidden.means(slice(None), u[rows][:, seen])[..., place].T
            deviation = np.sqrt(2.0 * hidden.covariances[:, place, place])
            out[rows] = log_gauss_mass(*((end - mean) / deviation for end in between))
        return out

    def _components(self, kept: np.ndarray) -> MixedReference:
        chances = tuple(one[kept] for one in self.chances)
        means, covariances = self.means[kept], self.covariances[kept]
        return MixedReference(self.weights[kept], means, covariances, chances)

    def complete(
        self,
        u: np.ndarray,
        c: np.ndarray,
        shares: np.ndarray,
        rng: np.random.Generator,
        within: tuple[int, tuple[float, float]] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """A draw of the missing cells of every row given the others, ``shares`` (n, K) being the
        probabilities of the components; with one numeric cell ``within`` an interval.
        """
        u, c, cumulated = u.copy(), c.copy(), np.cumsum(shares, axis=1)
        uniform = rng.random((u.shape[0], 1)) * cumulated[:, -1:]
        which = np.sum(cumulated < uniform, axis=1)
        for j, chances in enumerate(self.chances):
            missing = np.flatnonzero(c[:, j] < 0)
            steps = np.cumsum(chances, axis=1)[which[missing]]
            uniform = rng.random((missing.shape[0], 1)) * steps[:, -1:]
            c[missing, j] = np.sum(steps < uniform, axis=1)
        for rows, seen, _ in patterns(u, np.empty((u.shape[0], 0), dtype=int)):
            hidden, R = self.hidden(seen), np.flatnonzero(~seen)
            for k in np.flatnonzero(np.bincount(which[rows])):
                some = rows[which[rows] == k]
                mean, V = hidden.means([k], u[some][:, seen])[0], hidden.covariances[k]
                drawn = mean + rng.standard_normal(mean.shape) @ np.linalg.cholesky(V).T
                if within is not None:
                    # a draw given t is any draw, moved along the regression on t
                    (feature, between), uniform = within, rng.random(some.shape[0])
                    place = int(np.sum(~seen[:feature]))
                    middle, deviation = mean[:, place], math.sqrt(V[place, place])
                    low, high = ((end - middle) / deviation for end in between)
                    t = middle + deviation * normal_between(low, high, uniform)[0]
                    drawn += np.outer(t - drawn[:, place], V[place] / V[place, place])
                    drawn[:, place] = t  # to the last bit
                u[np.ix_(some, R)] = drawn
        return u, c
