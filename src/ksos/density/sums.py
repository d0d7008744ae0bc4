"""What one asks of a mixture: sums over its parts where the answer is linear in the density, and
numbers from its values elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize

from ksos.density.corrected import NormalLaws
from ksos.density.expectation import Estimate, Masses, coarsest
from ksos.density.normal_sum import Group, inner_product
from ksos.density.over_normals import affordable
from ksos.density.queries import Answers, Queries
from ksos.observables import NumericFunction, as_observable
from ksos.quadrature import PanelDistribution, weighted_level

if TYPE_CHECKING:
    from ksos.density.mixture import SoSMixture

__all__ = ["Sums", "divergence", "normal_groups", "squared_l2"]

_CLOUD_POINTS, _LEAST_EVALUATIONS = 65_536, 2048
_APART, _LEAST_RTOL = 1e-3, 1e-2
_ROUNDING = 1e-13


class Sums(Answers):
    """The answers of a mixture in NumPy arrays."""

    def __init__(self, mixture: SoSMixture) -> None:
        self.p = mixture

    # --- linear in the density ---

    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        values, errors, methods = np.zeros(low.shape[0]), np.zeros(low.shape[0]), []
        for weight, part in self.p.parts:
            mass, error, method = part.box_masses(low, high)
            values, errors = values + weight * mass, errors + weight * error
            methods.append(method)
        return np.clip(values, 0.0, 1.0), errors, coarsest(methods)

    def cumulative(self, X: np.ndarray) -> np.ndarray:
        if self.p.n_features == 1 and self.p.measure.atoms is None:
            return self.line.cdf(X.T)[0]
        return self.box_masses(np.full(X.shape, -np.inf), X)[0]

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        if (atoms := self.p.measure.atoms) is not None:
            order = np.argsort(atoms.points[:, 0], kind="stable")
            cumulated = np.cumsum(self.p.node_masses()[order])
            at = np.searchsorted(cumulated / cumulated[-1], q * (1.0 - 1e-15), side="left")
            return np.asarray(atoms.points[order[np.minimum(at, order.shape[0] - 1)], 0])
        x = self.line.ppf(q[None, :])[0]
        x[q == 0.0], x[q == 1.0] = self.p.measure.boundary(0)
        return np.clip(x, *self.p.measure.boundary(0))

    @cached_property
    def line(self) -> PanelDistribution:
        """The distribution of one feature, on panels that suit every part."""
        return self._on_panels(tails=False)

    def _on_panels(self, *, tails: bool) -> PanelDistribution:
        parts = [
            (weight * share, one) for weight, part in self.p.parts for share, one in part.by_width()
        ]
        relative = self.p.measure.normals(1) is not None
        return PanelDistribution.mixture(
            [
                (
                    weight,
                    PanelDistribution.from_log_density(
                        one.panel_ends(tails=tails), one.log_density
                    ),
                )
                for weight, one in parts
                if weight > 0.0
            ],
            log_reference=self.p.measure.log_density if relative else None,
            whole=None if tails else lambda: self._on_panels(tails=True),
        )

    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        return sum(weight * part.moment(powers, about) for weight, part in self.p.parts)

    def expectation(
        self, f: Any, *, rtol: float, max_evaluations: int | None, rng: Any
    ) -> Estimate:
        f, generator = as_observable(f), np.random.default_rng(rng)
        f.check_features(self.p.n_features)
        goals = np.maximum(
            rtol, np.minimum(rtol / (self.p.weights * len(self.p.parts)), _LEAST_RTOL)
        )
        found = [
            (weight, part.expectation(f, float(goal), max_evaluations, generator))
            for (weight, part), goal in zip(self.p.parts, goals, strict=True)
        ]
        return _total(found)

    # --- numbers from values ---

    def entropy(self, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
        """Of few evaluations of p, which each take all parts, each part has a share, the larger
        ones more.
        """
        f, generator = _finite(lambda X: -self.p.logpdf(X)), np.random.default_rng(rng)
        found = []
        for (weight, part), share in zip(self.p.parts, self._shares, strict=True):
            most = max_evaluations
            if most is None and self.p.measure.atoms is None:
                most = max(
                    _LEAST_EVALUATIONS,
                    int(share * affordable(self._value_cost + part.value_cost, self.p.n_features)),
                )
            found.append(
                (weight, part.expectation(f, min(rtol / weight, _LEAST_RTOL), most, generator))
            )
        return _total(found)

    @property
    def _shares(self) -> np.ndarray:
        """Of the work, ∝ √w: an error in a part counts w of itself."""
        roots = np.sqrt(self.p.weights)
        return np.asarray(roots / roots.sum())

    @property
    def _value_cost(self) -> float:
        return sum(part.value_cost for _, part in self.p.parts)

    def kl_divergence(self, other: Queries, **work: Any) -> Estimate:
        return divergence(self.p, other, **work)

    def l2_distance(self, other: Queries, max_operations: float) -> float:
        return squared_l2(self.p, other, max_operations) ** 0.5

    def level(self, mass: float, rng: Any) -> Estimate:
        if (atoms := self.p.measure.atoms) is not None:
            log_level = weighted_level(self.p.logpdf(atoms.points), self.p.node_masses(), mass)
            return Estimate(math.exp(log_level), 0.0, "sum")
        if self.p.n_features == 1:
            return Estimate(math.exp(self.line.log_level(mass)), 0.0, "quadrature")
        generator = np.random.default_rng(rng)
        most = min(_CLOUD_POINTS, affordable(self._value_cost, self.p.n_features))
        shares = np.maximum(_LEAST_EVALUATIONS, (self._shares * most).astype(int))
        found = [
            (weight, *part.clouds(int(n), generator))
            for (weight, part), n in zip(self.p.parts, shares, strict=True)
        ]
        levels = []
        for group in range(min(len(groups) for _, groups, _ in found)):
            X = np.concatenate([groups[group][0] for _, groups, _ in found])
            masses = np.concatenate([weight * groups[group][1] for weight, groups, _ in found])
            log_p = self.p.logpdf(X)
            order = np.argsort(-log_p, kind="stable")
            middle = np.cumsum(masses[order]) - 0.5 * masses[order]
            levels.append(float(np.interp(mass * masses.sum(), middle, log_p[order])))
        level = math.exp(float(np.mean(levels)))
        return Estimate(
            level, level * float(np.std(levels, ddof=1)) / math.sqrt(len(levels)), found[0][2]
        )

    def modes(self, n_starts: int, *, every: bool) -> np.ndarray:
        p = self.p
        if (atoms := p.measure.atoms) is not None:
            if every:
                raise ValueError(
                    "a discrete measure has no neighbourhoods, hence no local modes; call mode()"
                    " for the best of its nodes"
                )
            return atoms.points[[int(np.argmax(p.logpdf(atoms.points)))]]
        limits = np.stack(p.measure.boundaries(p.n_features), axis=1)
        starts = np.unique(np.clip(p.support_points, limits[:, 0], limits[:, 1]), axis=0)
        starts = starts[np.argsort(-p.logpdf(starts), kind="stable")[:n_starts]]
        scale = p.bandwidths
        found = sorted((self._climb(x, scale, limits) for x in starts), key=lambda one: -one[0])
        kept = [found[0][1]]
        for log_p, x in found[1:] if every else []:
            if np.isfinite(log_p) and all(
                np.abs((x - other) / scale).max() > _APART for other in kept
            ):
                kept.append(x)
        return np.stack(kept)

    def _climb(
        self, x: np.ndarray, scale: np.ndarray, limits: np.ndarray
    ) -> tuple[float, np.ndarray]:
        def downhill(y: np.ndarray) -> tuple[float, np.ndarray]:
            point = np.clip(x + y * scale, limits[:, 0], limits[:, 1])[None, :]
            (log_p,), (gradient,) = self._log_and_gradient(point)
            return (-float(log_p) if np.isfinite(log_p) else 1e300), -gradient * scale

        bounds = (limits - x[:, None]) / scale[:, None]
        options = {"ftol": 1e-15, "gtol": 1e-10, "maxiter": 500}
        found = minimize(
            downhill, np.zeros(x.shape), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        return -float(found.fun), np.clip(x + found.x * scale, limits[:, 0], limits[:, 1])

    def gradient(self, X: np.ndarray) -> np.ndarray:
        return self._log_and_gradient(X)[1]

    def _log_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p, and Σ_a r_a ∇log p_a with r_a the share of part a at x, less ∇ log ρ if the
        measure is not volume.
        """
        p = self.p
        found = [part.log_and_gradient(X) for _, part in p.parts]
        logs = np.stack(
            [
                math.log(weight) + log_p
                for (weight, _), (log_p, _) in zip(p.parts, found, strict=True)
            ]
        )
        peak = logs.max(axis=0)
        shares = np.exp(logs - np.where(np.isfinite(peak), peak, 0.0))
        total = np.where(np.isfinite(peak), shares.sum(axis=0), 1.0)
        log_p, shares = peak + np.log(total), shares / total
        out = sum(
            share[:, None] * gradient for share, (_, gradient) in zip(shares, found, strict=True)
        )
        normals = p.measure.normals(p.n_features)
        if normals is not None:
            own, slopes = NormalLaws(normals).slopes(X)
            top = own.max(axis=0)
            weights = np.exp(own - top)
            log_p = log_p - top - np.log(weights.sum(axis=0))
            out = out - np.einsum("cn,cnd->nd", weights / weights.sum(axis=0), slopes)
        return log_p, np.where(np.isfinite(peak)[:, None], out, 0.0)


def _total(found: list[tuple[float, Estimate]]) -> Estimate:
    """Σ w·estimate: errors of rules add up, and the word is that of the least exact part."""
    value, error = (
        sum(weight * part for weight, part in found),
        sum(weight * part.error for weight, part in found),
    )
    return Estimate(value, error, coarsest(part.method for _, part in found))


def _finite(g: Callable[[np.ndarray], np.ndarray]) -> NumericFunction:
    """g, with 0 where it is infinite: there the law has no mass."""

    def values(X: np.ndarray) -> np.ndarray:
        out = g(X)
        return np.where(np.isfinite(out), out, 0.0)

    return NumericFunction(values)


def divergence(p: Queries, q: Queries, **work: Any) -> Estimate:
    """∫ log(dP/dQ) dP between laws of any kind, both on one discrete measure or both by volume."""
    if p.n_features != q.n_features:
        raise ValueError(
            f"the other density has {q.n_features} features, but this one has {p.n_features}"
        )
    discrete = p.measure.atoms is not None, q.measure.atoms is not None
    if any(discrete) and p.measure != q.measure:
        raise ValueError(
            f"a density on {p.measure!r} and one on {q.measure!r} have no common reference measure;"
            " give both the same Discrete measure"
        )
    missed = []

    def log_ratio(X: np.ndarray) -> np.ndarray:
        log_p, log_q = p.log_by_volume(X), q.log_by_volume(X)
        beyond = np.isfinite(log_p) & np.isneginf(log_q)
        missed.append(bool(np.any(beyond)))
        with np.errstate(invalid="ignore"):
            return np.where(beyond | np.isneginf(log_p), 0.0, log_p - log_q)

    found = p.expectation(NumericFunction(log_ratio), **work)
    return (
        Estimate(math.inf)
        if any(missed)
        else Estimate(max(float(found), 0.0), found.error + _ROUNDING, found.method)
    )


def normal_groups(p: SoSMixture) -> list[Group] | None:
    """The whole mixture as a signed sum of normal laws; None if a part is none."""
    out: list[Group] = []
    for weight, part in p.parts:
        if (groups := part.groups()) is None:
            return None
        out += [group._replace(weights=weight * group.weights) for group in groups]
    return out


def squared_l2(p: Any, q: Any, max_operations: float) -> float:
    """∫ (p − q)² dρ: from the integrals of pairs of normal laws, or as E_p[p − q] − E_q[p − q]."""
    if p.n_features != q.n_features:
        raise ValueError(
            f"the other density has {q.n_features} features, but this one has {p.n_features}"
        )
    if p.measure != q.measure and not (p.measure.by_volume and q.measure.by_volume):
        raise ValueError(
            f"∫(p − q)²dρ needs one reference measure; this density is on {p.measure!r}, the other"
            f" on {q.measure!r}; make both on the same"
        )
    a, b = p.as_mixture(), q.as_mixture()
    groups = [normal_groups(one) for one in (a, b)] if p.measure.by_volume else [None, None]
    if groups[0] is not None and groups[1] is not None:
        n = sum(group.weights.size for group in groups[0]) + sum(
            group.weights.size for group in groups[1]
        )
        if float(n) ** 2 <= min(max_operations, 1e9):
            both = [*groups[0], *(group._replace(weights=-group.weights) for group in groups[1])]
            return max(inner_product(both, both), 0.0)

    def difference(X: np.ndarray) -> np.ndarray:
        return np.exp(p.logpdf(X)) - np.exp(q.logpdf(X))

    work: dict[str, Any] = {"rtol": 1e-10, "max_evaluations": None, "rng": 0}
    return max(
        float(
            p.expectation(NumericFunction(difference), **work)
            - q.expectation(NumericFunction(difference), **work)
        ),
        0.0,
    )
