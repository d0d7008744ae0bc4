"""The parts of a mixture: what each must answer so that the mixture can sum over them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Self, cast

import numpy as np

from ksos.density import normal_sum, over_normals
from ksos.density._assemble import assemble
from ksos.density.cdf import box_masses
from ksos.density.compress import compress
from ksos.density.conditional import at_values, in_intervals, marginal
from ksos.density.corrected import Corrected
from ksos.density.expectation import Estimate, Masses, clouds, coarsest, expectation
from ksos.density.given import log_panel_masses
from ksos.density.interval import Interval
from ksos.density.line import line_panels
from ksos.density.modes import log_and_gradient
from ksos.density.moments import mean_and_covariance, moment, node_masses
from ksos.density.normal_sum import Group, pairs_of
from ksos.density.standard import standardize
from ksos.density.transform import affine, times_gaussian
from ksos.exceptions import IntegralNotAvailableError
from ksos.ground.arrays import Array, like, namespace, to_numpy
from ksos.integrals import closed_form
from ksos.integrals.triple import apply_triple
from ksos.kernels import Gaussian, Kernel
from ksos.measures import Lebesgue
from ksos.observables import BoxIndicator, KernelFunction, NumericFunction, Observable, Polynomial
from ksos.quadrature import composite

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Part", "Reference", "Squares", "as_part"]

Function = Callable[[np.ndarray], np.ndarray]
Clouds = list[tuple[np.ndarray, np.ndarray]]
"""(points, masses that sum to one), independent of each other."""

_GROUPS, _KERNEL_COST = 8, 0.2
_UNSEEN = -40.0
_NODES_PER_LENGTH, _MOST_LENGTHS = 4.5, 200.0
_LEAST_LOG_MASS, _LEAST_LOG_LAWS = math.log(1e-4), math.log(1e-6)


class Part(ABC):
    """A law with a density by volume, or on atoms relative to their measure."""

    shown: list[int]
    """The features of ``density`` that are features of this law; the others are integrated out."""
    interval: Interval | None = None
    """One of the others may be known to lie in an interval."""

    @property
    @abstractmethod
    def density(self) -> SoSDensity:
        """What a file keeps."""

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return len(self.shown)

    @property
    @abstractmethod
    def support_points(self) -> Array:
        """Where the density is concentrated."""

    @property
    @abstractmethod
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies."""

    @property
    @abstractmethod
    def value_cost(self) -> float:
        """How many values of normal laws a value of the density takes."""

    @abstractmethod
    def log_density(self, X: Array) -> Array:
        """log p, shape (n,)."""

    @abstractmethod
    def log_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log p, shape (n,), and ∇ log p, shape (n, d)."""

    @abstractmethod
    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Independent samples."""

    @abstractmethod
    def mean_and_covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """E[x] and Cov[x]."""

    @abstractmethod
    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        """E[Π (x − about)^powers]."""

    @abstractmethod
    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        """The probabilities of boxes, estimates of their errors, and the method."""

    @abstractmethod
    def expectation(
        self, f: Observable, rtol: float, max_evaluations: int | None, rng: np.random.Generator
    ) -> Estimate:
        """E[f(x)]."""

    @abstractmethod
    def clouds(self, n_points: int, rng: np.random.Generator) -> tuple[Clouds, str]:
        """Eight clouds of points that stand for the law, and the word for how they were made."""

    @abstractmethod
    def panel_ends(self, *, tails: bool = True) -> np.ndarray:
        """Of one feature: the ends of panels on which the density is a polynomial to rounding;
        without ``tails``, of about 1e-17, fewer.
        """

    def by_width(self) -> list[tuple[float, Self]]:
        """The parts of a law of one feature that have panels of their own."""
        return [(1.0, self)]

    @abstractmethod
    def embedded(self, kernel: Kernel, Z: Array) -> Array:
        """∫ k(x, Z_r) p(x) dx, shape (ℓ,)."""

    @abstractmethod
    def groups(self) -> list[Group] | None:
        """p as a signed sum of normal laws; None if it is none."""

    @abstractmethod
    def marginal(self, keep: list[int]) -> Part:
        """The law of some features."""

    @abstractmethod
    def given(self, given: list[int], values: np.ndarray) -> tuple[float, Part] | None:
        """(log p_S(v), the law of the other features given x_S = v); None if the density vanishes
        there.
        """

    def within(self, feature: int, side: tuple[float, float]) -> list[tuple[float, Part]]:
        """(log P, law of the other features) of what the law is a mixture of, given that the
        feature lies in the interval ``side``.

        Here the laws given its value, at the nodes of a Gauss–Legendre rule on the part of the
        interval where there is mass.
        """
        line = self.marginal([feature])
        ends, logs = log_panel_masses(line.panel_ends(), side, line.log_density)
        seen = np.flatnonzero(logs > logs.max(initial=-np.inf) + _UNSEEN)
        if not seen.size:
            return []
        low, high = ends[seen[0]], ends[seen[-1] + 1]
        lengths = (high - low) / self.narrowest(feature)
        if lengths > _MOST_LENGTHS:
            raise ValueError(
                f"between {side[0]:g} and {side[1]:g}, feature {feature} is {lengths:.3g} times as"
                " long as the length on which the density varies; take a shorter interval"
            )
        count = 6 + math.ceil(_NODES_PER_LENGTH * lengths)
        x, w = composite(np.array([low]), np.array([high]), count)
        found = [
            (math.log(weight), self.given([feature], np.array([at])))
            for at, weight in zip(x, w, strict=True)
        ]
        return [
            (log + one[0], one[1])
            for log, one in found
            if one is not None and log + one[0] > logs.max() + _UNSEEN
        ]

    @abstractmethod
    def narrowest(self, feature: int) -> float:
        """The length on which the density varies along a feature, the others being held fixed."""

    @abstractmethod
    def affine(self, A: np.ndarray, b: np.ndarray) -> Part:
        """The law of Ax + b."""

    @abstractmethod
    def times_gaussian(self, mean: np.ndarray, precision: np.ndarray) -> tuple[float, Part] | None:
        """(log ∫ p g, p g scaled to mass one), g = exp(−½(x − mean)ᵀ precision (x − mean)); None
        without mass.
        """

    @abstractmethod
    def compressed(self, rank: int | None, m: int | None) -> Part:
        """The part with fewer squares or support points."""

    @abstractmethod
    def parts(self) -> list[tuple[float, Part]]:
        """What it is a mixture of."""

    @abstractmethod
    def moved(self, move: Callable[[SoSDensity], SoSDensity]) -> Self:
        """The same with its arrays elsewhere."""


class Squares(Part):
    """A sum of squares over one kernel, by volume or on atoms."""

    def __init__(self, density: SoSDensity) -> None:
        self._density, self.shown = density, list(range(density.n_features))

    @property
    def density(self) -> SoSDensity:
        return self._density

    @property
    def support_points(self) -> Array:
        return self.density.support_points

    @property
    def bandwidths(self) -> np.ndarray:
        return np.sqrt(np.diagonal(self.density.kernel.matrix(self.n_features)))

    @property
    def value_cost(self) -> float:
        return _KERNEL_COST * self.density.support_points.shape[0]

    def log_density(self, X: Array) -> Array:
        return self.density.logpdf(X)

    def log_and_gradient(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return log_and_gradient(self.density, X)

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        if self._is_bump:
            L = np.linalg.cholesky(0.25 * self.density.kernel.matrix(self.n_features))
            return (
                self.density.support_points[0] + rng.standard_normal((size, self.n_features)) @ L.T
            )
        return to_numpy(self.density.rvs(size, rng))

    @property
    def _is_normal_sum(self) -> bool:
        measure = self.density.measure
        return (
            isinstance(self.density.kernel, Gaussian)
            and measure.by_volume
            and bool(np.all(np.isinf(measure.boundaries(self.n_features))))
        )

    @property
    def _is_bump(self) -> bool:
        return self._is_normal_sum and self.density.support_points.shape[0] == 1

    def mean_and_covariance(self) -> tuple[np.ndarray, np.ndarray]:
        return mean_and_covariance(self.density)

    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        return moment(self.density, powers, about)

    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        return box_masses(self.density, low, high)

    def expectation(
        self, f: Observable, rtol: float, max_evaluations: int | None, rng: np.random.Generator
    ) -> Estimate:
        return expectation(self.density, f, rtol=rtol, max_evaluations=max_evaluations, rng=rng)

    def clouds(self, n_points: int, rng: np.random.Generator) -> tuple[Clouds, str]:
        if (atoms := self.density.measure.atoms) is not None:
            return [(atoms.points, node_masses(self.density))] * _GROUPS, "sum"
        standard = standardize(self.density)
        found, method = clouds(standard.density, n_points, rng)
        return [(standard.points(y), masses) for y, _, masses in found], method

    def panel_ends(self, *, tails: bool = True) -> np.ndarray:
        standard = standardize(self.density)
        panels = line_panels(standard.density, tails=tails)
        return np.unique(
            standard.points(
                np.concatenate([panels.start, panels.start + 2.0 * panels.half])[:, None]
            )[:, 0]
        )

    def embedded(self, kernel: Kernel, Z: Array) -> Array:
        p = self.density
        integrals, F = (
            closed_form(p.kernel, p.measure, p.n_features, kernel),
            like(p.unit_factor, Z),
        )
        if p.unit_constant is not None:
            F = namespace(Z).concat([like(p.unit_constant, Z)[None, :], F], axis=0)
        return apply_triple(integrals, like(p.support_points, Z), F @ F.T, p.log_unit, Z, kernel)

    def groups(self) -> list[Group] | None:
        if not self._is_normal_sum:
            return None
        p = self.density
        X, F = p.support_points, p.unit_factor
        return [
            pairs_of(
                F @ F.T,
                p.integrals.log_gram(X, X) - p.log_unit,
                X,
                0.25 * p.kernel.matrix(p.n_features),
            )
        ]

    def marginal(self, keep: list[int]) -> Part:
        return Squares(marginal(self.density, keep))

    def given(self, given: list[int], values: np.ndarray) -> tuple[float, Part] | None:
        try:
            found = at_values(self.density, given, values)
        except IntegralNotAvailableError:
            raise
        except ValueError:  # no mass there
            return None
        rest = [k for k in range(self.n_features) if k not in given]
        if (atoms := self.density.measure.atoms) is not None:
            hit = np.all(atoms.points[:, given] == values, axis=1)
            if np.any(hit):
                return math.log(float(node_masses(self.density)[hit].sum())), Squares(found)
            return float(marginal(self.density, given).logpdf(values[None, :])[0]), Squares(found)
        return self._evidence(found, given, values, rest), Squares(found)

    def within(self, feature: int, side: tuple[float, float]) -> list[tuple[float, Part]]:
        p = self.density
        if p.kernel.full and p.measure.atoms is None:
            return super().within(feature, side)
        try:
            found = in_intervals(p, {feature: side})
        except IntegralNotAvailableError:
            raise
        except ValueError:  # no mass there
            return []
        if (atoms := p.measure.atoms) is not None:
            x = atoms.points[:, feature]
            return [
                (
                    math.log(float(node_masses(p)[(side[0] <= x) & (x <= side[1])].sum())),
                    Squares(found),
                )
            ]
        line = Squares(marginal(p, [feature]))
        _, logs = log_panel_masses(line.panel_ends(), side, line.log_density)
        return [(float(np.logaddexp.reduce(logs)), Squares(found))] if logs.size else []

    def narrowest(self, feature: int) -> float:
        return float(
            1.0
            / np.sqrt(np.linalg.inv(self.density.kernel.matrix(self.n_features))[feature, feature])
        )

    def _evidence(
        self, found: SoSDensity, given: list[int], values: np.ndarray, rest: list[int]
    ) -> float:
        """log p_S(v) = log p(v, x) − log p(x|v) at a point x where the latter is large."""
        inside = np.clip(found.support_points, *found.measure.boundaries(len(rest)))
        log_found = found.logpdf(inside)
        best = int(np.argmax(log_found))
        whole = np.empty((1, self.n_features))
        whole[0, given], whole[0, rest] = values, inside[best]
        return float(self.density.logpdf(whole)[0] - log_found[best])

    def affine(self, A: np.ndarray, b: np.ndarray) -> Part:
        diagonal = np.array_equal(A, np.diag(np.diagonal(A)))
        return Squares(affine(self.density, np.diagonal(A) if diagonal else A, b))

    def times_gaussian(self, mean: np.ndarray, precision: np.ndarray) -> tuple[float, Part] | None:
        diagonal = np.array_equal(precision, np.diag(np.diagonal(precision)))
        with np.errstate(divide="ignore"):
            scale = 1.0 / np.sqrt(np.diagonal(precision)) if diagonal else np.linalg.inv(precision)
        try:
            found = times_gaussian(self.density, mean, scale)
        except IntegralNotAvailableError:
            raise
        except ValueError:  # no mass there
            return None
        p = self.density
        if (atoms := p.measure.atoms) is not None:
            away = atoms.points - mean
            with np.errstate(divide="ignore"):
                logs = np.log(node_masses(p)) - 0.5 * np.einsum(
                    "nk,kl,nl->n", away, precision, away
                )
            return float(np.logaddexp.reduce(logs)), Squares(found)
        inside = np.clip(found.support_points, *found.measure.boundaries(self.n_features))
        log_found = found.logpdf(inside)
        best = int(np.argmax(log_found))
        away = inside[best] - mean
        log_g = -0.5 * float(away @ precision @ away)
        return float(p.logpdf(inside[[best]])[0]) + log_g - float(log_found[best]), Squares(found)

    def compressed(self, rank: int | None, m: int | None) -> Part:
        return Squares(
            compress(self.density, rank, m, landmarks=self.density.support_points[:1]).density
        )

    def parts(self) -> list[tuple[float, Part]]:
        return [(1.0, self)]

    def moved(self, move: Callable[[SoSDensity], SoSDensity]) -> Self:
        return type(self)(move(self.density))


class Reference(Corrected, Part):
    """Normal laws, corrected by a sum of squares with a constant."""

    @property
    def density(self) -> SoSDensity:
        return self.joint

    def draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        return over_normals.draw(self, size, rng)

    def mean_and_covariance(self) -> tuple[np.ndarray, np.ndarray]:
        return normal_sum.mean_and_covariance(super().groups(), self.interval)

    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        return normal_sum.moment(super().groups(), powers, about, self.interval)

    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        return over_normals.box_masses(self, low, high)

    def expectation(
        self, f: Observable, rtol: float, max_evaluations: int | None, rng: np.random.Generator
    ) -> Estimate:
        """Part by part of f: moments, probabilities and embeddings in closed form, anything else by
        quadrature.
        """
        total, error, methods = 0.0, 0.0, []
        for scale, g in f.parts():
            found = self._of_one(g, rtol, max_evaluations, rng)
            total, error = total + scale * found, error + abs(scale) * found.error
            methods.append(found.method)
        return Estimate(total, error, coarsest(methods))

    def _of_one(
        self, f: Observable, rtol: float, max_evaluations: int | None, rng: np.random.Generator
    ) -> Estimate:
        d = self.n_features
        if isinstance(f, Polynomial):
            about = np.array([f.centre.get(k, 0.0) for k in range(d)])
            powers = [(value, dict(monomial)) for monomial, value in f.terms.items()]
            return Estimate(
                sum(
                    value * self.moment(tuple(by.get(k, 0) for k in range(d)), about)
                    for value, by in powers
                )
            )
        if isinstance(f, KernelFunction) and isinstance(f.kernel, Gaussian):
            return Estimate(float(self.embedded(f.kernel, f.points) @ f.weights))
        if isinstance(f, BoxIndicator):
            values, errors, method = self.box_masses(f.box.low[None, :], f.box.high[None, :])
            return Estimate(float(values[0]), float(errors[0]), method)
        function = f if isinstance(f, NumericFunction) else NumericFunction(f)
        return over_normals.average(
            self, function, rtol=rtol, max_evaluations=max_evaluations, rng=rng
        )

    def clouds(self, n_points: int, rng: np.random.Generator) -> tuple[Clouds, str]:
        return over_normals.clouds(self, n_points, rng)

    def panel_ends(self, *, tails: bool = True) -> np.ndarray:
        return over_normals.panel_ends(self, tails=tails)

    def by_width(self) -> list[tuple[float, Self]]:
        return over_normals.by_width(self)

    def embedded(self, kernel: Kernel, Z: Array) -> Array:
        if not isinstance(kernel, Gaussian):
            raise ValueError(
                "the embedding of a corrected reference is known for Gaussian kernels; got"
                f" {kernel!r}"
            )
        return like(
            normal_sum.embedded(
                super().groups(), kernel.matrix(self.n_features), to_numpy(Z), self.interval
            )
            * math.exp(-self.log_inside),
            Z,
        )

    def groups(self) -> list[Group] | None:  # type: ignore[override]
        return list(super().groups()) if self.interval is None else None

    def given(self, given: list[int], values: np.ndarray) -> tuple[float, Part] | None:
        return self.conditional(given, values)

    def within(self, feature: int, side: tuple[float, float]) -> list[tuple[float, Part]]:  # type: ignore[override]
        found = super().within(feature, side)
        if found is None or found.log_inside < (
            _LEAST_LOG_MASS if self.n_corrections else _LEAST_LOG_LAWS
        ):
            return Part.within(
                self, feature, side
            )  # sums of terms of both signs have no digits left there
        return [(found.log_inside, found)]

    def compressed(self, rank: int | None, m: int | None) -> Part:
        return type(self)(
            self.fewer_columns(rank) if rank is not None else self.fewer_points(cast("int", m)),
            self.shown,
            self.interval,
        )

    def parts(self) -> list[tuple[float, Part]]:
        """By reference law; those that nothing corrects are sums of one square."""
        if self.n_corrections or self.interval is not None:
            return list(self.components())
        bumps = [(w, Gaussian(4.0 * V), m[None, :]) for w, m, V in zip(*self.normals, strict=True)]
        return [
            (float(w), Squares(assemble(self.joint, kernel, at, Lebesgue(), np.ones((1, 1)))))
            for w, kernel, at in bumps
        ]

    def moved(self, move: Callable[[SoSDensity], SoSDensity]) -> Self:
        return type(self)(move(self.joint), self.shown, self.interval)


def as_part(
    density: SoSDensity, shown: list[int] | None = None, interval: Interval | None = None
) -> Part:
    """The part that a density is: relative to normal laws with a constant, by volume, or on atoms."""
    d = density.n_features
    whole, over_normals = (
        shown is None or shown == list(range(d)),
        density.measure.normals(d) is not None,
    )
    if density.unit_constant is not None and over_normals:
        return Reference(density, shown, interval)
    if density.unit_constant is not None or over_normals or not whole or interval is not None:
        raise ValueError(
            f"{density!r} is no part of a mixture, and answers pdf, logpdf and mass alone: a"
            " density with a constant must be relative to a Normal or GaussianMixture measure"
        )
    return Squares(density)
