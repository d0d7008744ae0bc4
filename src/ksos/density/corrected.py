r"""A mixture of normal laws, corrected by a sum of squares with a constant: p(x) = Σ_c w_c N_c(x)
‖c + Fᵀk(x)‖², and its marginals.

The class is closed under conditioning, affine maps and products with Gaussians. A marginal is kept
as the joint density and the features that are shown: what is linear in p is asked of the joint one,
and its values are

    p_S(x_S) = Σ_c w_c N_c(x_S) E_c[‖c + Fᵀk(x)‖² | x_S],    E_c[‖c + Fᵀk‖² | x_S] = ‖c‖² +
    2(Fc)ᵀE_c[k|x_S] + tr(Fᵀ E_c[kkᵀ|x_S] F),

where E_c[k_i|x_S] and E_c[k_i k_j|x_S] are Gaussians in x_S, the second times a matrix that is
positive semi-definite by Schur's theorem. By Jensen's inequality the whole is at least ‖c +
FᵀE_c[k|x_S]‖², which bounds it from below in floating point too: it is never negative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from ksos.density.expected_square import ExpectedSquare, HiddenKernels
from ksos.density.interval import Inside, Interval
from ksos.density.normal_sum import Group, corrected_normals
from ksos.ground.arrays import Array, like, to_numpy
from ksos.ground.memory import row_blocks
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Normal, Normals
from ksos.quadrature import composite

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Corrected", "NormalLaws", "conditional_normals", "given_values", "times_normal"]

_BLOCK_ELEMENTS, _LAW_ELEMENTS = 1 << 18, 1 << 20
_UNSEEN = -40.0  # what is by this logarithm smaller than a sum does not change it
_REACH, _NODES_PER_LENGTH, _LENGTHS_PER_PANEL = 8.5, 4.5, 3.0
_KERNEL_COST = 0.2
# a kernel this close to those chosen (squared, relative) brings rounding, not shape
_RESOLVED = 1e-10


class Corrected:
    """The features ``shown`` of a density with a constant over normal laws, by volume, perhaps
    given the interval of another one.
    """

    def __init__(
        self, joint: SoSDensity, shown: list[int] | None = None, interval: Interval | None = None
    ) -> None:
        self.joint, self.interval = joint, interval
        self.shown = list(range(joint.n_features)) if shown is None else list(shown)
        self.hidden = [k for k in range(joint.n_features) if k not in self.shown]

    @property
    def n_features(self) -> int:
        """How many features are shown."""
        return len(self.shown)

    @property
    def support_points(self) -> np.ndarray:
        """Those of the correction and the means of the normal laws, as far as they are shown."""
        X, F = (to_numpy(part) for part in (self.joint.support_points, self.joint.unit_factor))
        return like(
            np.concatenate([X[np.any(F != 0.0, axis=1)], self.all_normals.means])[:, self.shown],
            self.joint.support_points,
        )

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""
        of_laws = 2.0 * self.deviations.min(axis=0)
        return (
            np.minimum(of_laws, np.sqrt(np.diagonal(self.metric))[self.shown])
            if self.n_corrections
            else of_laws
        )

    @cached_property
    def deviations(self) -> np.ndarray:
        """Of each law, those of the features shown; of a law within an interval, the lengths on
        which its density varies, shape (c, d).
        """
        variances = np.diagonal(self.normals.covariances, axis1=1, axis2=2)
        if self.interval is not None:
            V, T = self.all_normals.covariances, self.interval.feature
            variances = variances - V[:, self.shown, T] ** 2 / V[:, T, T][:, None]
        return np.sqrt(variances)

    @cached_property
    def opened(self) -> Self:
        """The law of the features shown and of the one in the interval, before it was known."""
        return (
            self
            if self.interval is None
            else type(self)(self.joint, [*self.shown, self.interval.feature])
        )

    @cached_property
    def log_inside(self) -> float:
        """log P(t ∈ I), which nothing but the law before it was known tells."""
        if self.interval is None:
            return 0.0
        if not self.n_corrections:
            weights = self.all_normals.weights
            return float(
                np.logaddexp.reduce(
                    np.log(weights / weights.sum()) + self.interval.log_masses(self.all_normals)
                )
            )
        t, w = self._nodes
        return float(
            np.logaddexp.reduce(
                type(self)(self.joint, [self.interval.feature]).log_density(t[:, None]) + np.log(w),
                initial=-np.inf,
            )
        )

    @cached_property
    def _nodes(self) -> tuple[np.ndarray, np.ndarray]:
        """Nodes and weights of a rule on the interval, as far as the laws reach."""
        interval = cast("Interval", self.interval)
        reach = _REACH * np.sqrt(
            self.all_normals.covariances[:, interval.feature, interval.feature]
        )
        mean = self.all_normals.means[:, interval.feature]
        low, high = (
            max(interval.low, float((mean - reach).min())),
            min(interval.high, float((mean + reach).max())),
        )
        if not low < high:
            return np.empty(0), np.empty(0)
        lengths = (high - low) / self.opened.narrowest(len(self.shown))
        pieces = math.ceil(lengths / _LENGTHS_PER_PANEL)
        ends = np.linspace(low, high, pieces + 1)
        return composite(ends[:-1], ends[1:], 8 + math.ceil(_NODES_PER_LENGTH * lengths / pieces))

    def narrowest(self, feature: int) -> float:
        """The length on which the density varies along a feature, the others being held fixed."""
        precision = 0.25 * np.linalg.inv(self.normals.covariances)[:, feature, feature].max()
        if self.n_corrections:
            precision += np.linalg.inv(self.metric[np.ix_(self.shown, self.shown)])[
                feature, feature
            ]
        return float(1.0 / np.sqrt(precision))

    @cached_property
    def n_corrections(self) -> int:
        """The number of kernels that change the reference."""
        return int(np.count_nonzero(np.any(self._factor != 0.0, axis=1)))

    @property
    def value_cost(self) -> float:
        """How many values of normal laws a value of the density takes; those of kernels are a fifth
        of them.
        """
        laws, kernels = self.all_normals.weights.shape[0], _KERNEL_COST * self.n_corrections
        return laws * (1.0 + kernels) if self.hidden and self.n_corrections else laws + kernels

    @cached_property
    def metric(self) -> np.ndarray:
        """S of the joint kernel."""
        return cast("Gaussian", self.joint.kernel).matrix(self.joint.n_features)

    @cached_property
    def all_normals(self) -> Normals:
        """The normal laws of all features."""
        return cast("Normals", self.joint.measure.normals(self.joint.n_features))

    @cached_property
    def normals(self) -> Normals:
        """The normal laws of the features shown."""
        weights, means, covariances = self.all_normals
        index = np.array(self.shown)
        return Normals(weights, means[:, index], covariances[:, index[:, None], index])

    @cached_property
    def laws(self) -> NormalLaws:
        """The same, ready to be evaluated."""
        return NormalLaws(self.normals)

    @cached_property
    def _factor(self) -> np.ndarray:
        return self.joint.unit_factor

    @cached_property
    def constant(self) -> np.ndarray:
        """c in natural units."""
        return cast("np.ndarray", self.joint.unit_constant)

    # --- values ---

    def log_reference(self, X: Array) -> Array:
        """log ρ of the features shown."""
        return self._reference.log_density(X)

    @cached_property
    def _reference(self) -> GaussianMixture:
        return GaussianMixture(*self.normals)

    def log_density(self, X: Array) -> Array:
        """log p by volume, shape (n,)."""
        if self.interval is not None:
            return like(self._values_within(to_numpy(X))[0], X)
        if not self.hidden and self.shown == sorted(self.shown):
            return self.joint.logpdf(X) + self.joint.measure.log_density(X)
        if not self.n_corrections:
            return (
                self.log_reference(X)
                + math.log(float(self.constant @ self.constant))
                - self.joint.log_unit
            )
        if not self.hidden:
            order = np.argsort(self.shown)
            return self.joint.logpdf(X[:, order]) + self.joint.measure.log_density(X[:, order])
        return like(self._marginal_values(to_numpy(X))[0], X)

    def log_ratio(self, X: np.ndarray) -> np.ndarray:
        """log p − log ρ of the features shown: the square alone if all of them are."""
        if self.hidden or self.interval is not None:
            return np.asarray(self.log_density(X) - self.log_reference(X))
        return np.asarray(self.joint.logpdf(X[:, np.argsort(self.shown)]))

    def log_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p by volume, shape (n,), and its gradient, shape (n, d)."""
        if self.interval is not None:
            return self._values_within(X, slopes=True)
        if self.hidden:
            return self._marginal_values(X, slopes=True)
        order, (logs, slopes) = np.argsort(self.shown), self.laws.slopes(X)
        peak = logs.max(axis=0)
        shares = np.exp(logs - peak)
        log_p, out = (
            peak + np.log(shares.sum(axis=0)),
            np.einsum("cn,cnd->nd", shares / shares.sum(axis=0), slopes),
        )
        points, F = self.joint.support_points[:, self.shown], self._factor
        inverse = np.linalg.inv(self.metric[np.ix_(self.shown, self.shown)])
        for rows in row_blocks(X.shape[0], max(F.shape), _BLOCK_ELEMENTS):
            k = self.joint.kernel(X[rows][:, order], self.joint.support_points)
            psi = self.constant + k @ F
            weight, square = k * (psi @ F.T), np.einsum("nr,nr->n", psi, psi)
            # Σ_i (Fψ)_i k_i (x̃_i − x)
            pull = weight @ points - weight.sum(axis=1, keepdims=True) * X[rows]
            out[rows] += 4.0 * (pull @ inverse) / np.where(square > 0.0, square, 1.0)[:, None]
            with np.errstate(divide="ignore"):
                log_p[rows] += np.log(square) - self.joint.log_unit
        return log_p, out

    @cached_property
    def _inside(self) -> Inside:
        return Inside(self.all_normals, self.shown, cast("Interval", self.interval))

    def _values_within(
        self, X: np.ndarray, *, slopes: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """log p given the interval: law by law where nothing corrects them, else ∫_I p(x, t) dt at
        the nodes of a rule; and ∇ log p.
        """
        (n, d), (t, w) = X.shape, self._nodes if self.n_corrections else (np.empty(0), np.empty(0))
        out, gradient, columns = (
            np.empty(n),
            np.zeros((n, d)),
            t.shape[0] or self.normals.weights.shape[0],
        )
        for rows in row_blocks(n, columns * (d if slopes else 1), _LAW_ELEMENTS):
            x = X[rows]
            if self.n_corrections:
                both = np.column_stack([np.repeat(x, t.shape[0], axis=0), np.tile(t, x.shape[0])])
                found, steps = (
                    self.opened.log_and_gradient(both)
                    if slopes
                    else (self.opened.log_density(both), np.zeros((both.shape[0], d)))
                )
                terms = (found.reshape(-1, t.shape[0]) + np.log(w)).T
                steps = steps[:, :d].reshape(-1, t.shape[0], d).transpose(1, 0, 2)
            else:
                inside = self._inside.logs(x)
                logs, steps = self.laws.slopes(x) if slopes else (self.laws.logs(x), np.empty(0))
                terms, steps = (
                    logs + inside,
                    steps + self._inside.gradients(x, inside) if slopes else steps,
                )
            peak = terms.max(axis=0)
            peak = np.where(np.isfinite(peak), peak, 0.0)
            shares = np.exp(terms - peak)
            total = shares.sum(axis=0)
            with np.errstate(divide="ignore"):
                out[rows] = peak + np.log(total) - self.log_inside
            if slopes:
                gradient[rows] = np.einsum(
                    "cn,cnd->nd", shares / np.where(total > 0.0, total, 1.0), steps
                )
        return out, gradient

    @cached_property
    def _marginals(self) -> Callable[[int], ExpectedSquare]:
        """By the number of the reference law, each computed where it is first needed."""
        kernels = HiddenKernels(self)
        return cache(lambda c: ExpectedSquare(kernels, c))

    def _marginal_values(
        self, X: np.ndarray, *, slopes: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """log p, and ∇ log p if ``slopes``.

        Where N_c is largest its term is computed first; other terms only where they can add to it:
        none exceeds w_c N_c(x)·sup f.
        """
        n, d = X.shape
        out, gradient, highest = (
            np.empty(n),
            np.zeros((n, d)),
            math.log(self.bound()) + self.joint.log_unit,
        )
        for rows in row_blocks(
            n, self.normals.weights.shape[0] * (d if slopes else 1), _LAW_ELEMENTS
        ):
            x = X[rows]
            logs, of_laws = self.laws.slopes(x) if slopes else (self.laws.logs(x), np.empty(0))
            terms, steps, first = (
                np.full(logs.shape, -np.inf),
                np.zeros((*logs.shape, d) if slopes else 0),
                logs.argmax(axis=0),
            )

            def fill(c: int, at: np.ndarray, x: np.ndarray = x, logs: np.ndarray = logs) -> None:
                for some in row_blocks(at.shape[0], max(self._factor.shape), _BLOCK_ELEMENTS):
                    value, slope = self._marginals(c).values(x[at[some]], slopes=slopes)
                    with np.errstate(divide="ignore"):
                        terms[c, at[some]] = logs[c, at[some]] + np.log(value)  # noqa: B023
                    if slopes:
                        steps[c, at[some]] = slope + of_laws[c, at[some]]  # noqa: B023

            for c in np.unique(first):
                fill(int(c), np.flatnonzero(first == c))
            least = terms[first, np.arange(x.shape[0])] + _UNSEEN - highest
            for c in range(logs.shape[0]):
                fill(c, np.flatnonzero((logs[c] >= least) & (first != c)))
            peak = terms.max(axis=0)
            shares = np.exp(terms - np.where(np.isfinite(peak), peak, 0.0))
            total = shares.sum(axis=0)
            with np.errstate(divide="ignore"):
                out[rows] = np.where(np.isfinite(peak), peak, 0.0) + np.log(total)
            if slopes:
                gradient[rows] = np.einsum(
                    "cn,cnd->nd", shares / np.where(total > 0.0, total, 1.0), steps
                )
        return out - self.joint.log_unit, gradient

    # --- what it is a sum of ---

    def groups(self) -> Iterator[Group]:
        """p as a signed sum of normal laws: per reference law N_c one, then m for the k_i N_c, then
        all pairs k_i k_j N_c.

        With an interval, the sum of the opened law, whose last feature is the one in the interval.
        """
        if self.interval is not None:
            yield from self.opened.groups()
            return
        used, unit = np.any(self._factor != 0.0, axis=1), math.exp(-self.joint.log_unit)
        X, F = self.joint.support_points[used], self._factor[used]
        weights, means, covariances = self.all_normals
        normals = Normals(unit * weights, means, covariances)
        yield from corrected_normals(normals, self.metric, X, F, self.constant, self.shown)

    def components(self) -> list[tuple[float, Self]]:
        """The parts by reference law, each of mass one, with their masses."""
        p, found = self.joint, []
        for weight, mean, covariance in zip(*self.all_normals, strict=True):
            law = Normal(mean, covariance)
            part = p.from_units(
                p.kernel, p.support_points, p.unit_factor, p.log_unit, law, p.unit_constant
            )
            if (mass := part.mass()) > 0.0:
                child = type(self)(part.scaled_to_one(mass), self.shown, self.interval)
                inside = math.exp(child.log_inside - self.log_inside)
                found.append((float(weight) * mass * inside, child))
        return found

    def bound(self) -> float:
        """A number that p/ρ never exceeds: ‖Fᵀk(x)‖² ≤ λ_max(FᵀKF) since k(x)ᵀK⁻¹k(x) ≤ k(x,x) = 1."""
        X, F = self.joint.support_points, self._factor
        largest = float(np.linalg.eigvalsh(F.T @ self.joint.kernel(X, X) @ F)[-1])
        return (
            float(np.linalg.norm(self.constant)) + math.sqrt(max(largest, 0.0))
        ) ** 2 * math.exp(-self.joint.log_unit)

    def draw_reference(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Samples of ρ, all features, in the interval if there is one."""
        if self.interval is not None:
            return self.interval.draw(self.all_normals, size, rng)
        weights, means, covariances = self.all_normals
        which = rng.choice(weights.shape[0], size=size, p=weights / weights.sum())
        roots = np.linalg.cholesky(covariances)
        noise = rng.standard_normal((size, means.shape[1]))
        return means[which] + np.einsum("nij,nj->ni", roots[which], noise)

    # --- what is made of it ---

    def marginal(self, keep: list[int]) -> Self:
        """The law of some of the features shown."""
        return type(self)(self.joint, [self.shown[k] for k in keep], self.interval)

    def conditional(self, given: list[int], values: np.ndarray) -> tuple[float, Self] | None:
        """log p of the values, and the law of the other features shown; None without mass."""
        at = [self.shown[k] for k in given]
        order = np.argsort(at)
        found = given_values(self.joint, [at[i] for i in order], values[order])
        if found is None:
            return None
        rest = [k for k in range(self.joint.n_features) if k not in at]
        interval = (
            None
            if self.interval is None
            else self.interval._replace(feature=rest.index(self.interval.feature))
        )
        log_p, density = found
        shown = [rest.index(self.shown[k]) for k in range(self.n_features) if k not in given]
        out = type(self)(density, shown, interval)
        return log_p + out.log_inside - self.log_inside, out

    def within(self, feature: int, side: tuple[float, float]) -> Self | None:
        """The law of the other features shown, given that this one lies in an interval; None if
        that is known of another one already.
        """
        rest = [k for k in self.shown if k != self.shown[feature]]
        return (
            type(self)(self.joint, rest, Interval(self.shown[feature], *side))
            if self.interval is None
            else None
        )

    def affine(self, A: np.ndarray, b: np.ndarray) -> Self:
        """The law of Ax + b of the features shown."""
        p, d = self.joint, self.joint.n_features
        full, shift = np.eye(d), np.zeros(d)
        full[np.ix_(self.shown, self.shown)], shift[self.shown] = A, b
        kernel, points = (
            Gaussian(_symmetric(full @ self.metric @ full.T)),
            p.support_points @ full.T + shift,
        )
        measure = GaussianMixture(*self.all_normals).linear_image(full, shift)
        return type(self)(
            p.from_units(kernel, points, p.unit_factor, p.log_unit, measure, p.unit_constant),
            self.shown,
            self.interval,
        )

    def fewer_columns(self, rank: int) -> SoSDensity:
        """The joint density with at most ``rank`` squares, those with the largest masses."""
        p, F, c = self.joint, self._factor, self.constant
        if rank >= p.rank:
            return p
        W, means = self._gram()
        cross = np.outer(F.T @ means, c)
        _, V = np.linalg.eigh(F.T @ W @ F + cross + cross.T + np.outer(c, c))
        V = V[:, ::-1][:, :rank]
        return p.from_units(
            p.kernel, p.support_points, F @ V, p.log_unit, p.measure, c @ V
        ).scaled_to_one()

    def fewer_points(self, m: int) -> SoSDensity:
        """The joint density on ``m`` of its support points: every column projected in L²(ρ) on the
        constant and on their kernels.

        The points are those of an orthogonal matching pursuit [Pati1993] on what the constant does
        not explain.
        """
        p, F, c = self.joint, self._factor, self.constant
        if m >= p.support_points.shape[0]:
            return p
        W, means = self._gram()
        W -= np.outer(means, means)  # of the kernels less their means, ρ having mass one
        residual, inner, chosen = np.diagonal(W).copy(), W @ F, list[int]()
        smallest = _RESOLVED * residual
        L = np.zeros((W.shape[0], m))
        for k in range(m):
            possible = residual > smallest
            gains = np.where(
                possible,
                np.einsum("ij,ij->i", inner, inner) / np.where(possible, residual, 1.0),
                0.0,
            )
            pivot = int(np.argmax(gains))
            if not gains[pivot] > 0.0:
                break
            L[:, k] = (W[:, pivot] - L[:, :k] @ L[pivot, :k]) / math.sqrt(residual[pivot])
            inner = inner - np.outer(L[:, k], inner[pivot] / L[pivot, k])
            residual = np.maximum(residual - L[:, k] ** 2, 0.0)
            residual[pivot] = 0.0
            chosen.append(pivot)
        if not chosen:
            return p
        factor = np.linalg.lstsq(W[np.ix_(chosen, chosen)], W[chosen] @ F, rcond=None)[0]
        constant = c + means @ F - means[chosen] @ factor
        return p.from_units(
            p.kernel, p.support_points[chosen], factor, p.log_unit, p.measure, constant
        ).scaled_to_one()

    def _gram(self) -> tuple[np.ndarray, np.ndarray]:
        """∫ k kᵀ dρ and ∫ k dρ."""
        X, integrals = self.joint.support_points, self.joint.integrals
        return np.exp(integrals.log_gram(X, X)), np.exp(integrals.log_mean(X))

    def times_gaussian(self, mean: np.ndarray, precision: np.ndarray) -> tuple[float, Self] | None:
        """(log ∫ p g, p g scaled to mass one) with g = exp(−½(x−mean)ᵀ precision (x−mean)) of the
        features shown; None without mass.
        """
        d = self.joint.n_features
        full, centre = np.zeros((d, d)), np.zeros(d)
        full[np.ix_(self.shown, self.shown)], centre[self.shown] = precision, mean
        log_mass, law = times_normal(self.all_normals, centre, full)
        p = self.joint
        new = p.from_units(
            p.kernel, p.support_points, p.unit_factor, p.log_unit, law, p.unit_constant
        )
        if not (mass := new.mass()) > 0.0:
            return None
        found = type(self)(new.scaled_to_one(mass), self.shown, self.interval)
        return log_mass + math.log(mass) + found.log_inside - self.log_inside, found


class NormalLaws:
    """The normal laws of a mixture with the roots of their precisions."""

    def __init__(self, normals: Normals) -> None:
        self.means, self.roots = (
            normals.means,
            np.linalg.inv(np.linalg.cholesky(normals.covariances)),
        )
        log_det = np.sum(np.log(np.diagonal(self.roots, axis1=1, axis2=2)), axis=1)
        self.constant = (
            np.log(normals.weights) + log_det - 0.5 * self.means.shape[1] * math.log(2.0 * math.pi)
        )

    def logs(self, X: np.ndarray) -> np.ndarray:
        """log w_c N_c(x), shape (c, n)."""
        return self.slopes(X)[0]

    def slopes(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log w_c N_c(x), shape (c, n), and ∇ log N_c(x), shape (c, n, d)."""
        away = (X[None, :, :] - self.means[:, None, :]) @ self.roots.transpose(0, 2, 1)
        return (
            self.constant[:, None] - 0.5 * np.einsum("cni,cni->cn", away, away),
            -away @ self.roots,
        )


def given_values(
    p: SoSDensity, given: list[int], values: np.ndarray
) -> tuple[float, SoSDensity] | None:
    """log p of the values, and the density of the other features; None without mass."""
    d = p.n_features
    rest = [k for k in range(d) if k not in given]
    metric, X = cast("Gaussian", p.kernel).matrix(d), p.support_points
    precision = np.linalg.inv(metric)
    P, away = precision[np.ix_(rest, rest)], values - X[:, given]
    points = X[:, rest] - away @ np.linalg.solve(P, precision[np.ix_(rest, given)]).T
    log_rows = -np.einsum("ik,kl,il->i", away, np.linalg.inv(metric[np.ix_(given, given)]), away)
    conditioned = conditional_normals(cast("Normals", p.measure.normals(d)), given, values)
    if conditioned is None:
        return None
    with np.errstate(under="ignore"):
        F = p.unit_factor * np.exp(log_rows)[:, None]
    kernel = Gaussian(_symmetric(np.linalg.inv(P)))
    measure = GaussianMixture(*conditioned[1])
    out = p.from_units(kernel, points, F, p.log_unit, measure, p.unit_constant)
    mass = out.mass()
    return (conditioned[0] + math.log(mass), out.scaled_to_one(mass)) if mass > 0.0 else None


def conditional_normals(
    normals: Normals, given: list[int], values: np.ndarray
) -> tuple[float, Normals] | None:
    """Of Σ_c w_c N_c, the log density of the values, and the mixture of the conditional laws."""
    weights, means, covariances = normals
    known, rest = np.array(given), np.array([k for k in range(means.shape[1]) if k not in given])
    across = covariances[:, known[:, None], rest]
    at = covariances[:, known[:, None], known]
    pull = np.linalg.solve(at, across).transpose(0, 2, 1)
    logs = NormalLaws(Normals(weights, means[:, known], at)).logs(values[None, :])[:, 0]
    peak = float(logs.max())
    if not np.isfinite(peak):
        return None
    narrowed = covariances[:, rest[:, None], rest] - pull @ across
    shares, away = np.exp(logs - peak), (values - means[:, known])[:, :, None]
    narrowed = 0.5 * (narrowed + narrowed.transpose(0, 2, 1))
    law = Normals(shares, means[:, rest] + (pull @ away)[:, :, 0], narrowed)
    return peak + math.log(float(shares.sum())), law


def times_normal(
    normals: Normals, mean: np.ndarray, precision: np.ndarray
) -> tuple[float, GaussianMixture]:
    """(log mass, law) of Σ_c w_c N_c(x) exp(−½(x−mean)ᵀ precision (x−mean)); the precision may be
    singular.
    """
    log_weights, means, covariances = [], [], []
    for weight, centre, covariance in zip(*normals, strict=True):
        mixed = np.eye(mean.shape[0]) + covariance @ precision
        narrowed = _symmetric(np.linalg.solve(mixed, covariance))
        away = mean - centre
        pulled = precision @ away
        log_weights.append(
            np.log(weight)
            - 0.5 * float(np.linalg.slogdet(mixed)[1])
            - 0.5 * float(away @ pulled - pulled @ narrowed @ pulled)
        )
        means.append(centre + narrowed @ pulled)
        covariances.append(narrowed)
    peak = max(log_weights)
    shares = np.exp(np.array(log_weights) - peak)
    return float(peak + np.log(shares.sum())), GaussianMixture(
        shares, np.stack(means), np.stack(covariances)
    )


def _symmetric(A: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (A + A.T))
