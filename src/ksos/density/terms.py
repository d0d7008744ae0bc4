"""What a density is a sum of: terms with weights, and the forms that questions are asked of."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.factor import log_sum
from ksos.density.normals import Interval
from ksos.density.square import NoMass, Square
from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet, to_numpy
from ksos.kernels import Gaussian
from ksos.measures import Measure

_ROUNDING = 1e-14  # weights that are scaled already keep their last bits
_NEGLIGIBLE = 1e-300  # weights that floats barely hold are dropped

Term = Square | Corrected
Weighted = tuple[float, Term]
"""A weight, and a term of mass one."""
Part = tuple[float, Term]
"""The logarithm of a mass, and a term of mass one."""


def as_term(
    square: Square, shown: list[int] | None = None, interval: Interval | None = None
) -> Term:
    """A square with a constant over normal densities can hide features; any other one stays."""
    if square.unit_constant is None or square.measure.normals(square.n_features) is None:
        return square
    return Corrected(square, square.shown if shown is None else shown, interval)


def each(parts: Sequence[Weighted], ask: Callable[[Term], list[Part]]) -> list[Weighted]:
    """What ``ask`` makes of every part with its mass, the largest being one; raises NoMass."""
    found, error = list[tuple[float, Term]](), NoMass()
    for weight, term in parts:
        try:
            found += [(math.log(weight) + log, one) for log, one in ask(term)]
        except NoMass as nothing:
            error = nothing
    if len(found) == 1:  # its mass may be beyond floats
        return [(1.0, found[0][1])]
    largest = max((log for log, _ in found), default=-math.inf)
    if not math.isfinite(largest):
        raise error
    return [(math.exp(log - largest), term) for log, term in found]


class Terms:
    """A sum of terms relative to a measure: a density without names, in arrays.

    Questions about a density are functions of it. Weights are scaled to sum one.
    """

    def __init__(
        self, weighted: Iterable[Weighted], measure: Measure, *, check: bool = False
    ) -> None:
        listed = list(weighted)
        if not isinstance(measure, Measure):
            raise TypeError(
                f"a measure such as ksos.measures.Lebesgue() is needed; got {measure!r}"
            )
        if check:
            _check([term for _, term in listed], measure)
        total = math.fsum(w for w, _ in listed)
        total = 1.0 if abs(total - 1.0) <= _ROUNDING else total
        self.weighted = tuple((w / total, term) for w, term in listed if w / total > _NEGLIGIBLE)
        self.measure = measure
        self.made: dict[str, Any] = {}
        """What questions keep for the next time."""

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return self.weighted[0][1].n_features

    @property
    def home(self) -> Array:
        """An array of the backend and on the device where the density lies."""
        return self.weighted[0][1].joint.support_points

    def moved(self, move: Callable[[Any], Any]) -> Terms:
        """The same with its arrays elsewhere."""
        return Terms([(w, term.moved(move)) for w, term in self.weighted], self.measure)

    @cached_property
    def on_host(self) -> Terms:
        """The same in NumPy arrays, of which questions are asked; itself if it is made of them."""
        return self if is_numpy(self.home) else self.moved(to_numpy)

    @cached_property
    def parts(self) -> list[Weighted]:
        """The same sum of terms that answer questions."""
        return _resolved(self.weighted)

    @cached_property
    def own(self) -> Term | None:
        """The only term, if it is relative to the measure itself."""
        (_, term), *more = self.weighted
        d = term.n_features
        same = not more and term.measure.for_features(d) == self.measure.for_features(d)
        return term if same else None

    @cached_property
    def square(self) -> Square | None:
        """The only term, if it is a square that answers questions for itself."""
        return self.own if isinstance(self.own, Square) and self.parts[0][1] is self.own else None

    @property
    def support_points(self) -> Array:
        """Those of all terms, and the means of normal densities, stacked."""
        every = [term.support_points for _, term in self.weighted]
        return every[0] if len(every) == 1 else namespace(every[0]).concat(every)

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the least length on which a term varies, shape (d,)."""
        return np.min([term.bandwidths for _, term in self.parts], axis=0)

    @cached_property
    def node_masses(self) -> np.ndarray:
        """The mass of every node of a discrete measure."""
        if self.measure.atoms is None:
            raise TypeError(
                f"a density on a Discrete measure is needed; this one is on {self.measure!r}"
            )
        return np.asarray(sum(w * cast("Square", one).node_masses() for w, one in self.parts))

    def mass(self) -> float:
        """∫ p dρ, which is one to rounding, of terms that hide nothing."""
        return math.fsum(w * term.joint.mass() for w, term in self.weighted)

    def logpdf(self, X: Array) -> Array:
        """log p relative to the measure, shape (n,); −inf where it vanishes, never NaN."""
        X = like(X, self.home)
        if self.own is not None:
            return self.own.logpdf(X)
        return self.relative(X, self.log_by_volume(X))

    def relative(self, X: Array, log_p: Array) -> Array:
        """log p relative to the measure, from the one by volume."""
        by_volume = self.measure.normals(self.n_features) is None
        return log_p if by_volume else log_p - self.measure.log_density(X)

    def pdf(self, X: Array) -> Array:
        """p relative to the measure, shape (n,)."""
        out = self.logpdf(X)
        with quiet():
            return namespace(out).exp(out)

    def log_by_volume(self, X: Array) -> Array:
        """log p·dρ/dx, shape (n,); on atoms, where there is no volume, log p."""
        if len(self.weighted) == 1:
            return self.weighted[0][1].log_by_volume(X)
        logs = [one.log_by_volume(X) + math.log(w) for w, one in self.weighted]
        return log_sum(namespace(X).stack(logs))[0]

    def __reduce__(self) -> Any:
        return Terms, (self.weighted, self.measure)  # the rest is made again


def as_by_volume(term: Term) -> Term:
    """A term that answers questions by volume: a square relative to normal densities corrects
    them, its constant being zero.
    """
    if isinstance(term, Corrected) or term.measure.normals(term.n_features) is None:
        return term
    if not isinstance(term.kernel, Gaussian):
        raise ValueError(
            f"a density with {term.kernel!r} relative to {term.measure!r} has no form by volume, in"
            " which it could be part of a mixture; use a Gaussian kernel, or a density by volume"
        )
    host = term.moved(to_numpy)
    return Corrected(replace(host, unit_constant=np.zeros(host.rank)), host.shown)


def _resolved(terms: Sequence[Weighted]) -> list[Weighted]:
    """The same sum of terms that answer questions: by volume, on atoms, or over normal densities.

    A square relative to normal densities that are products over the features answers for itself if
    nothing else is added.
    """
    if len(terms) == 1 and isinstance(term := terms[0][1], Square):
        of_products = not (term.measure.by_components or term.kernel.full)
        if of_products and term.unit_constant is None:
            return list(terms)
    found = [(weight, as_by_volume(term)) for weight, term in terms]
    for _, term in found:
        if isinstance(term, Square) and term.unit_constant is not None:
            raise ValueError(
                f"a density with a constant relative to {term.measure!r} answers pdf and"
                " logpdf alone: it must be relative to a Normal or GaussianMixture measure"
            )
    return found


def _check(terms: Sequence[Term], measure: Measure) -> None:
    """Raise where terms do not fit each other or the measure."""
    d = terms[0].n_features
    measure.check_features(d)
    if any(term.n_features != d for term in terms):
        raise ValueError(
            "the terms of a density must have the same features; got"
            f" {[term.n_features for term in terms]}"
        )
    discrete = [term.measure for term in terms if term.measure.atoms is not None]
    mixed = len(discrete) < len(terms) or any(other != measure for other in discrete)
    if (discrete or measure.atoms is not None) and mixed:
        raise ValueError(
            "densities on a discrete measure mix with others on the same measure only: they have no"
            " density by volume; give all of them one Discrete measure"
        )
    low, high = measure.boundaries(d)
    for term in terms:
        inner, outer = term.measure.boundaries(d)
        if np.any(inner < low) or np.any(outer > high):
            raise ValueError(f"a term of the density has mass outside of {measure!r}")
