"""Functions that raise, return the wrong thing, or do not fit: each a clear error."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tables import points

from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Discrete, Lebesgue
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    NumericFunction,
    Polynomial,
    as_observable,
    coordinate,
)


def raises(X: np.ndarray) -> np.ndarray:
    raise RuntimeError("no such model")


BAD_FUNCTIONS: dict[str, tuple[Any, str]] = {
    "raises": (
        raises,
        "raises raised RuntimeError: no such model; it was called with an array of shape",
    ),
    "nan": (
        lambda X: np.where(X[:, 0] > 0, np.nan, 0.0),
        "must return finite numbers; got nan at x =",
    ),
    "inf": (lambda X: np.full(X.shape[0], np.inf), "must return finite numbers; got inf"),
    "matrix": (lambda X: X, "must return shape"),
    "scalar": (
        lambda X: 1.0,
        r"must return shape \(\d+,\) for an array of shape .*; got shape \(\)",
    ),
    "too short": (lambda X: X[:-1, 0], "must return shape"),
    "text": (lambda X: "loss", "must return .* numbers"),
    "None": (lambda X: None, "must return"),
}


@pytest.mark.parametrize("name", BAD_FUNCTIONS)
@pytest.mark.parametrize(
    "measure", [Lebesgue(), Discrete(points(20, 1, 3))], ids=["lebesgue", "discrete"]
)
def test_a_function_that_misbehaves_is_named(name: str, measure: Any) -> None:
    function, words = BAD_FUNCTIONS[name]
    with pytest.raises(ValueError, match=words):
        as_observable(function).matrix(Gaussian(1.0), points(3, 1), measure)


def test_what_is_no_function() -> None:
    for wrong in ("x**2", None, 2 + 1j, float("nan"), [1, 2]):
        with pytest.raises(TypeError, match="loss must be a function of an array"):
            as_observable(wrong, "loss")
    with pytest.raises(TypeError, match="got 'x'"):
        NumericFunction("x")  # type: ignore[arg-type]


def test_wrong_numbers_of_features() -> None:
    X = points(3, 2)
    for f, words in [
        (BoxIndicator([0.0], [1.0]), "function of 1 features, but the points have 2"),
        (
            KernelFunction(points(2, 3), kernel=Gaussian(1.0)),
            "function of 3 features, but the points have 2",
        ),
        (coordinate(2), "needs feature 2 .* but the points have 2"),
        (Polynomial({(1, 0, 0): 1.0}), "function of 3 features"),
        (BoxIndicator([0.0], [1.0]) + coordinate(0), "function of 1 features"),
    ]:
        with pytest.raises(ValueError, match=words):
            f.matrix(Gaussian(1.0), X, Lebesgue())
        with pytest.raises(ValueError, match=words):
            f(X)
    with pytest.raises(ValueError, match="functions of 1 and 2 features cannot be added"):
        BoxIndicator([0.0], [1.0]) + BoxIndicator([0.0, 0.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="polynomials of 1 and of 2 features"):
        Polynomial([0.0, 1.0]) * Polynomial({(1, 1): 1.0})


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Polynomial({}), "exponents must be tuples"),
        (lambda: Polynomial({(1,): 1.0, (1, 2): 1.0}), "all of one length"),
        (lambda: Polynomial({(-1,): 1.0}), "an exponent must be at least 0"),
        (lambda: Polynomial({(0.5,): 1.0}), "an exponent must be a whole number"),
        (lambda: Polynomial({(1,): np.nan}), "coefficients must be finite"),
        (lambda: Polynomial([1.0], center=np.inf), "center"),
        (lambda: coordinate(-1), "feature must be at least 0"),
        (lambda: coordinate(0) ** -1, "exponent of a polynomial must be at least 0"),
        (lambda: coordinate(0) ** 0.5, "whole number"),
        (lambda: BoxIndicator([1.0], [0.0]), "low must be less than high"),
        (lambda: BoxIndicator([0.0, 0.0], [1.0]), "vectors of one length"),
        (
            lambda: KernelFunction(points(2, 1), [1.0], kernel=Gaussian(1.0)),
            "weights must have length 2",
        ),
        (lambda: KernelFunction(points(2, 1), [1.0, np.nan], kernel=Gaussian(1.0)), "NaN"),
        (lambda: NumericFunction(abs, tol=0.0), "tol must be positive"),
        (lambda: NumericFunction(abs, max_nodes=3), "max_nodes must be at least 64"),
    ],
)
def test_bad_parameters(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_products_that_are_not_polynomials_and_wrong_kernels() -> None:
    with pytest.raises(TypeError):
        coordinate(0) * BoxIndicator([0.0], [1.0])
    with pytest.raises(TypeError):
        BoxIndicator([0.0], [1.0]) * "2"
    with pytest.raises(TypeError, match="kernel must be a kernel object"):
        KernelFunction(points(2, 1), kernel="gaussian")  # type: ignore[arg-type]


def test_pairs_without_a_closed_form_name_the_way_out() -> None:
    f = KernelFunction(points(3, 1), kernel=Laplace(1.0))
    with pytest.raises(
        IntegralNotAvailableError, match=re.escape("wrap the function, as NumericFunction(")
    ):
        f.matrix(Gaussian(1.0), points(4, 1), Lebesgue())
    M = NumericFunction(f).matrix(Gaussian(1.0), points(4, 1), Lebesgue())
    assert M.error <= 1e-6
    for g in (
        coordinate(0),
        BoxIndicator([0.0, 0.0], [1.0, 1.0]),
        NumericFunction(lambda X: X[:, 0]),
    ):
        with pytest.raises(IntegralNotAvailableError):
            g.matrix(
                Laplace(1.0), points(4, 2), Lebesgue()
            )  # isotropic: no closed form in the plane


def test_what_leaves_the_range_of_floats_is_said() -> None:
    with pytest.raises(ValueError, match=r"leave the range of floats .* other units"):
        (coordinate(0) ** 3).matrix(Gaussian(1e120), points(3, 1) * 1e120, Lebesgue())
