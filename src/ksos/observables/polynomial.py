"""Polynomials in the features: closed-form integrals from moments of the components
k(x,x̃_i)k(x,x̃_j)dρ.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Self

import numpy as np

from ksos.ground import FLOAT_BYTES, as_count, as_vector, require_memory
from ksos.integrals import closed_form, exact_rule
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables.base import Observable, ObservableMatrix, sum_over_nodes
from ksos.observables.over_normals import Monomial, are_normal, polynomial_matrix

Terms = dict[Monomial, Fraction]
_OPERATIONS = 4e9  # at the nodes of a rule: a second or two
_SHOWN_TERMS = 6  # in a repr, which should fit on one line


class Polynomial(Observable):
    r"""f(x) = Σ_α c_α Π_k (x_k − center_k)^{α_k}; ``+``, ``-``, ``*`` and ``**`` of polynomials are
    polynomials.

    Coefficients are kept as fractions: nothing is rounded before f is evaluated, or integrated, in
    powers of x minus a center that suits the points at hand. So (x − 2010)² has all its digits
    around 2010, however it was written.

    Parameters
    ----------
    coefficients : mapping or sequence
        {(α_1, …, α_d): c_α}, in one dimension also {α: c_α}; or, in one dimension, the sequence
        c_0, c_1, c_2, ….
    center : float or array of d floats
        Powers are taken of x − center: for data far from the origin it keeps the digits that powers
        of x would lose.

    >>> x, y = coordinate(0), coordinate(1)
    >>> f = (x - 2 * y) ** 2 + 1
    >>> f
    Polynomial(1 + x0² - 4·x0·x1 + 4·x1²)
    >>> f([[1.0, 1.0], [2.0, 0.0]])
    array([2., 5.])
    >>> Polynomial({(2, 0): 1.0, (1, 1): -4.0, (0, 2): 4.0, (0, 0): 1.0})([[1.0, 1.0]])
    array([2.])
    """

    def __init__(self, coefficients: Mapping[Any, float] | Any, center: Any = 0.0) -> None:
        if isinstance(coefficients, Mapping):
            given = {
                (key,) if isinstance(key, (int, np.integer)) else tuple(key): value
                for key, value in coefficients.items()
            }
        else:
            given = {
                (power,): value
                for power, value in enumerate(as_vector(coefficients, "coefficients"))
            }
        lengths = {len(key) for key in given}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError(
                "exponents must be tuples with one power per feature, all of one length; got"
                f" {list(coefficients)!r}"
            )
        d = lengths.pop()
        terms: Terms = {}
        for exponents, value in given.items():
            powers = [as_count(power, "an exponent", minimum=0) for power in exponents]
            if not np.isfinite(value):
                raise ValueError(f"coefficients must be finite; that of {exponents} is {value!r}")
            terms[tuple((k, power) for k, power in enumerate(powers) if power)] = Fraction(
                float(value)
            )
        centers = as_vector(center, "center", length=d)
        self._set(type(self)._of(terms, d)._moved(-centers)._terms, d)

    def _set(self, terms: Terms, n_features: int | None) -> None:
        self._terms = {monomial: value for monomial, value in terms.items() if value}
        self.n_features = n_features
        self.bounded = all(not monomial for monomial in self._terms)

    @cached_property
    def terms(self) -> dict[Monomial, float]:
        """The coefficients, rounded to floats (infinite if they are too large for them)."""
        return {monomial: _rounded(value) for monomial, value in self._terms.items()}

    @classmethod
    def _of(cls, terms: Terms, n_features: int | None) -> Self:
        out = cls.__new__(cls)
        out._set(terms, n_features)
        return out

    @classmethod
    def constant(cls, value: float) -> Self:
        """The function that is ``value`` everywhere, for any number of features."""
        return cls._of({(): Fraction(float(value))}, None)

    @property
    def degree(self) -> int:
        """The largest total power."""
        return max((sum(power for _, power in monomial) for monomial in self._terms), default=0)

    takes_constant = True

    def check_features(self, d: int) -> None:
        super().check_features(d)
        last = max((k for monomial in self._terms for k, _ in monomial), default=-1)
        if last >= d:
            raise ValueError(
                f"{self!r} needs feature {last} (they count from 0), but the points have {d}"
                " features"
            )

    def __call__(self, X: Any) -> np.ndarray:
        X = self._points(X)
        near, center = self._for_values
        return near._at(X - [center.get(k, 0.0) for k in range(X.shape[1])])

    # f at the rows of X, in powers of x as they are.
    def _at(self, X: np.ndarray) -> np.ndarray:
        out = np.zeros(X.shape[0])
        with np.errstate(over="ignore", invalid="ignore"):
            for monomial, value in self.terms.items():
                term = np.full(X.shape[0], value)
                for k, power in monomial:
                    term = term * X[:, k] ** power
                out += term
        return out

    # (f(t + c) as a polynomial in t, c): the center at which the power below the highest one
    # vanishes, of (x − c)ⁿ that is c, if this makes coefficients smaller.
    @cached_property
    def _for_values(self) -> tuple[Polynomial, dict[int, float]]:
        center = {}
        for k in {k for monomial in self._terms for k, _ in monomial}:
            highest = max(
                (m for m in self._terms if k in dict(m)),
                key=lambda m: (sum(power for _, power in m), dict(m)[k]),
            )
            power = dict(highest)[k]
            below = tuple((j, n - (j == k)) for j, n in highest if n > (j == k))
            own = _rounded(-self._terms.get(below, Fraction(0)) / (power * self._terms[highest]))
            center[k] = own if math.isfinite(own) else 0.0
        moved = self._moved(center)
        smaller = sum(map(abs, moved._terms.values())) <= sum(map(abs, self._terms.values()))
        return (moved, center) if smaller else (self, {})

    def about(self, X: np.ndarray) -> tuple[Polynomial, np.ndarray]:
        """(f(t + c) as a polynomial in t, c), with the mean c of the points X."""
        with np.errstate(over="ignore"):
            middle = X[0] + np.mean(X - X[0], axis=0)
        center = np.where(np.isfinite(middle), middle, 0.0)
        moved = self._moved(center)
        known = all(map(math.isfinite, moved.terms.values()))
        return (moved, center) if known else (self, np.zeros_like(center))

    def without_constant(self, X: np.ndarray) -> tuple[Observable, float]:
        constant = self.about(X)[0].terms.get((), 0.0)
        return (self - constant, constant) if math.isfinite(constant) else (self, 0.0)

    def _matrix(
        self, kernel: Kernel, X: np.ndarray, measure: Measure, log_unit: float, T: np.ndarray | None
    ) -> ObservableMatrix:
        f, center = self.about(X)
        m, d = X.shape
        integrals, constant = closed_form(kernel, measure, d), T is not None and T.shape[0] > m
        if are_normal(kernel, measure, d, constant=constant):
            M = polynomial_matrix(f.terms, center, kernel, X, measure, log_unit, constant=constant)
            return ObservableMatrix(M).transformed(T)
        if (
            T is not None
            and (rule := exact_rule(integrals, X, [], _OPERATIONS / (m * T.shape[1]), f.degree))
            is not None
        ):
            values = f._at(rule[0] + (X[0] - center))
            return ObservableMatrix(sum_over_nodes(kernel, X - X[0], *rule, values, log_unit, T))
        powers: dict[int, int] = {}
        for k, power in itertools.chain.from_iterable(f.terms):
            powers[k] = max(power, powers.get(k, 0))
        shared = {k for monomial in f.terms if len(monomial) > 1 for k, _ in monomial}
        kept = 5 + sum(powers[k] + 1 for k in shared) + max(powers.values(), default=-1)
        require_memory(
            FLOAT_BYTES * m * m * kept,
            f"the moments of {m} support points",
            "use fewer support points",
        )

        def moments(k: int) -> list[np.ndarray]:
            return integrals.feature_moments(X, k, powers[k], float(center[k]))

        known = {k: moments(k) for k in shared}
        total = np.full((m, m), f.terms.get((), 0.0))
        with np.errstate(over="ignore", invalid="ignore"):
            for monomial, value in f.terms.items():
                if len(monomial) > 1:
                    factors = (known[k][power] for k, power in monomial)
                    total += functools.reduce(operator.mul, factors, value)
            # terms of one feature, one feature at a time: there may be hundreds
            for k in powers:
                for power, moment in enumerate(known.get(k) or moments(k)):
                    if power and (value := f.terms.get(((k, power),), 0.0)):
                        total += value * moment
            W = np.exp(integrals.log_gram(X, X) - log_unit)
            return ObservableMatrix(np.where(W > 0.0, W * total, 0.0)).transformed(T)

    def __add__(self, other: Any) -> Observable:
        other = as_polynomial(other)
        if not isinstance(other, Polynomial):
            return super().__add__(other)
        terms = dict(self._terms)
        for monomial, value in other._terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + value
        return type(self)._of(terms, self._with(other))

    def __mul__(self, other: Any) -> Observable:
        other = as_polynomial(other)
        if not isinstance(other, Polynomial):
            return NotImplemented
        terms: Terms = {}
        for left, a in self._terms.items():
            for right, b in other._terms.items():
                powers = dict(left)
                for k, power in right:
                    powers[k] = powers.get(k, 0) + power
                key = tuple(sorted(powers.items()))
                terms[key] = terms.get(key, Fraction(0)) + a * b
        return type(self)._of(terms, self._with(other))

    def __pow__(self, exponent: int) -> Observable:
        out: Observable = type(self)._of({(): Fraction(1)}, self.n_features)
        for _ in range(as_count(exponent, "the exponent of a polynomial", minimum=0)):
            out = out * self
        return out

    # The number of features of both.
    def _with(self, other: Polynomial) -> int | None:
        d = self.n_features if other.n_features is None else other.n_features
        if self.n_features not in (None, d):
            raise ValueError(
                f"polynomials of {self.n_features} and of {d} features cannot be combined"
            )
        return d

    # f(x + by), exactly.
    def _moved(self, by: Any) -> Polynomial:
        total = type(self)._of({}, self.n_features)
        for monomial, value in self._terms.items():
            term: Any = type(self)._of({(): value}, self.n_features)
            for k, power in monomial:
                shifted = {((k, 1),): Fraction(1), (): Fraction(float(by[k]))}
                term = term * type(self)._of(shifted, self.n_features) ** power
            total = total + term
        return total

    def __repr__(self) -> str:
        by_degree = sorted(
            self.terms, key=lambda m: (sum(power for _, power in m), [(k, -n) for k, n in m])
        )
        shown = [self._term(monomial, self.terms[monomial]) for monomial in by_degree]
        more = [f"… ({len(shown)} terms)"] if len(shown) > _SHOWN_TERMS else []
        text = " + ".join(shown[:_SHOWN_TERMS] + more).replace("+ -", "- ")
        return f"Polynomial({text or '0'})"

    def _term(self, monomial: Monomial, value: float) -> str:
        names = [
            f"x{k}" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(power) if power > 1)
            for k, power in monomial
        ]
        if not names:
            return f"{value:g}"
        head = "" if value == 1.0 else "-" if value == -1.0 else f"{value:g}·"
        return head + "·".join(names)


def coordinate(feature: int, center: float = 0.0) -> Polynomial:
    """The function x ↦ x_k − center, k = ``feature`` counting from 0: what polynomials of any
    number of features are made of.

    >>> (coordinate(0, center=1e8) ** 2)([[1e8 + 3.0]])
    array([9.])
    """
    k, c = as_count(feature, "feature", minimum=0), float(as_vector(center, "center", length=1)[0])
    return Polynomial._of({((k, 1),): Fraction(1), (): Fraction(-c)}, None)


def as_polynomial(other: Any) -> Any:
    """A number as a constant polynomial; everything else as it is."""
    if not isinstance(other, (int, float, np.integer, np.floating)) or isinstance(other, bool):
        return other
    try:
        return Polynomial.constant(float(other)) if math.isfinite(other) else other
    except OverflowError:
        raise ValueError(
            "a number in a polynomial must be below 1e308 to be a float; measure the features in"
            " other units"
        ) from None


def _rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
