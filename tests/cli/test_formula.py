"""Formulas: what they mean, what they become, and that nothing else is ever read, let alone run."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ksos.cli import parse_formula
from ksos.observables import BoxIndicator, NumericFunction, Polynomial, SumObservable

X = np.random.default_rng(0).uniform(0.2, 2.0, (20, 3))
x1, x2, x3 = X.T

FORMULAS = {
    "x1**2": (x1**2, Polynomial),
    "x1 * x2 - x3 / 4 + 1": (x1 * x2 - x3 / 4 + 1, Polynomial),
    "-(x1 - 2*x2)**3": (-((x1 - 2 * x2) ** 3), Polynomial),
    "+x1 + 2**3": (x1 + 8, Polynomial),
    "pi*x1 + e": (math.pi * x1 + math.e, Polynomial),
    "3": (np.full(20, 3.0), Polynomial),
    "x1**0.5": (np.sqrt(x1), NumericFunction),
    "x1/x2": (x1 / x2, NumericFunction),
    "2**x1": (2**x1, NumericFunction),
    "x1**-1": (1 / x1, NumericFunction),
    "abs(x1 - 1)": (np.abs(x1 - 1), NumericFunction),
    "max(x1, x2, 1)": (np.maximum(np.maximum(x1, x2), 1), NumericFunction),
    "min(x1, x2) * exp(-x3)": (np.minimum(x1, x2) * np.exp(-x3), NumericFunction),
    "sqrt(x1) + log(x2) + log1p(x3)": (np.sqrt(x1) + np.log(x2) + np.log1p(x3), NumericFunction),
    "sin(x1) * cos(x2) + tan(x3) + tanh(x1)": (
        np.sin(x1) * np.cos(x2) + np.tan(x3) + np.tanh(x1),
        NumericFunction,
    ),
    "x1 > 1": ((x1 > 1).astype(float), BoxIndicator),
    "0.5 <= x1 < x2": (((x1 >= 0.5) & (x1 < x2)).astype(float), NumericFunction),
    "(x1 >= 1) * x2": ((x1 >= 1) * x2, NumericFunction),
    "  x1 + 1  ": (x1 + 1, Polynomial),
    "1 <= x1 < 1.5": (((x1 >= 1) & (x1 < 1.5)).astype(float), BoxIndicator),
    "(x1 > 1) * (2 >= x2)": (((x1 > 1) & (x2 <= 2)).astype(float), BoxIndicator),
    "2 * (x1 > 1) * (x2 < 2)": (2.0 * ((x1 > 1) & (x2 < 2)), SumObservable),
    "3*(x1 > 1) - x2 / 2": (3 * (x1 > 1) - x2 / 2, SumObservable),
    "(x1 > 1) * (x1 < 0.5)": (np.zeros(20), Polynomial),
    "(x1 >= 1) * (x1 <= 1)": (((x1 >= 1) & (x1 <= 1)).astype(float), NumericFunction),
    "2 * x1 > 1": ((2 * x1 > 1).astype(float), NumericFunction),
}


@pytest.mark.parametrize("text", FORMULAS)
def test_formulas_mean_what_they_say(text: str) -> None:
    values, kind = FORMULAS[text]
    loss = parse_formula(text, 3).observable
    assert type(loss) is kind
    np.testing.assert_allclose(loss(X), values, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("text", "names", "header", "column"),
    [
        ("speed", ["speed", "x1"], None, 0),
        ("x1", ["speed", "x1"], None, 1),
        ("x2", ["x2", "x3"], ["x1", "x2", "x3"], 0),
        ("x2", ["x2", "x1"], None, 0),
        ("x2", ["height", "width"], None, 1),
        ("x2", None, None, 1),
        ("x2", ["a", "a"], None, 1),
        ("e", ["a", "e"], None, 1),
    ],
)
def test_names_rule_and_positions_serve_where_no_column_is_called_so(
    text: str, names: list[str] | None, header: list[str] | None, column: int
) -> None:
    point = np.array([[3.0, 7.0]])
    for formula in (text, f"abs({text})"):  # a polynomial, and code
        assert parse_formula(formula, 2, names, header).observable(point)[0] == point[0, column]


@pytest.mark.parametrize(
    ("text", "names", "header", "what"),
    [
        (
            "a + 1",
            ["a", "a"],
            None,
            (
                r"columns 1 and 2 of those chosen are both named 'a'; choose one with --columns, at"
                r" character 1"
            ),
        ),
        ("x1", ["a", "b"], ["x1", "a", "b"], r"there is no 'x1' \(there are a, b, pi, e\)"),
        ("x3", ["x1", "y"], None, r"there is no 'x3' \(there are x1, y, pi, e\)"),
        ("x2", ["x1", "y"], None, r"there is no 'x2'"),
    ],
)
def test_a_name_that_may_mean_another_column_is_refused(
    text: str, names: list[str], header: list[str] | None, what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        parse_formula(text, 2, names, header)


def test_a_name_that_is_nearly_a_column_is_suggested() -> None:
    with pytest.raises(ValueError, match=r"there is no 'mgp' \(.*; did you mean 'mpg'\?\)"):
        parse_formula("mgp < 20", 2, ["hp", "mpg"], None)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "y",
            r"there is no 'y' \(there are x1, x2, x3, pi, e\), at character 1 of the formula 'y'",
        ),
        ("x4 + 1", r"there is no 'x4'"),
        ("x0", r"there is no 'x0'"),
        ("1 + f(x1)", r"there is no function 'f' \(there are abs, .*\), at character 5"),
        ("abs", "abs is a function and needs parentheses"),
        ("abs()", r"abs takes 1 argument, got 0"),
        ("abs(x1, x2)", r"abs takes 1 argument, got 2"),
        ("max(x1)", r"max takes at least 2 arguments, got 1"),
        ("max(x1, x2, key=abs)", "max takes at least 2"),
        ("max(*x1, x2)", "starred is not part of a formula"),
        ("x1 ^ 2", r"powers are written \*\*"),
        ("x1 // 2", r"only the operators \+ - \* / \*\* are known"),
        ("x1 @ x2", "only the operators"),
        ("not x1", "unaryop is not part of a formula"),
        ("~x1", "unaryop is not part"),
        ("x1 == 1", "only the comparisons < <= > >= are known"),
        ("x1 in x2", "only the comparisons"),
        ("x1 and x2", "boolop is not part"),
        ("x1 if x2 else x3", "ifexp is not part"),
        ("x1.real", "attribute is not part"),
        ("x1[0]", "subscript is not part"),
        ("[x1]", "list is not part"),
        ("'a'", "is not a number that can be used"),
        ("True", "'True' is not a number"),
        ("2j", "'2j' is not a number"),
        ("1e999", "'inf' is not a number"),
        ("None", "is not a number"),
        ("...", "is not a number"),
        ("f'{x1}'", "joinedstr is not part"),
        ("lambda: 1", "lambda is not part"),
        ("(x1 := 2)", "namedexpr is not part"),
        ("[x for x in (1,)]", "listcomp is not part"),
        ("__import__('os').system('true')", r"there is no function \"__import__\('os'\)\.system\""),
        ("().__class__", "attribute is not part"),
        ("", "is not a formula: it cannot be read"),
        ("x1 +", "is not a formula: it cannot be read"),
        ("x1 = 2", "cannot be read at character"),
        ("x1; x2", "cannot be read"),
        ("import os", "cannot be read"),
        ("x1\0", "cannot be read"),
        ("(" * 400 + "x1" + ")" * 400, "cannot be read"),
        ("-" * 200 + "x1", "is nested more than 60 levels deep"),
        ("x1" + "+1" * 600, "the formula has 1202 characters; at most 1000 are read"),
    ],
)
def test_everything_else_is_refused_in_words(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what) as caught:
        parse_formula(text, 3)
    assert len(str(caught.value)) < 400 and "\n" not in str(caught.value)


def test_formulas_are_text() -> None:
    with pytest.raises(TypeError, match="a formula is text; got 3"):
        parse_formula(3, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", ["9**9**9 * x1", "x1**99999999", "(x1+x2+x3)**24", "1/0 + x1", "((x1+x2+x3+1)**4)**4"]
)
def test_large_powers_take_no_time(text: str) -> None:
    loss = parse_formula(text, 3).observable
    try:
        assert np.all(np.isfinite(loss(np.full((1, 3), 0.1))))
    except ValueError as error:
        assert "must return finite numbers" in str(error)


def test_values_that_are_not_finite_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"'log\(x1\)' must return finite numbers; got nan at x = \[-1.0\]"
    ):
        parse_formula("log(x1)", 1).observable([[-1.0]])


CONSTANTS = {"pi": math.pi, "e": math.e}
NAMES = st.sampled_from(["x1", "x2", "2", "0.5", *CONSTANTS])
TREES = st.recursive(
    NAMES,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda t: f"({t[0]} {t[1]} {t[2]})"
        ),
        st.tuples(inner, st.sampled_from(["<", ">="]), inner).map(
            lambda t: f"(1.0 * ({t[0]} {t[1]} {t[2]}))"
        ),
        inner.map(lambda t: f"(-{t})"),
        st.tuples(st.sampled_from(["abs", "tanh", "cos"]), inner).map(lambda t: f"{t[0]}({t[1]})"),
        inner.map(lambda t: f"({t})**2"),
    ),
    max_leaves=8,
)


@given(TREES)
def test_trees_agree_with_the_interpreter(text: str) -> None:
    """The one place where a formula is run as code, and only because the test wrote it."""
    Z = X[:5, :2]
    names = {
        "x1": Z[:, 0],
        "x2": Z[:, 1],
        "abs": np.abs,
        "tanh": np.tanh,
        "cos": np.cos,
        **CONSTANTS,
    }
    expected = np.broadcast_to(
        np.asarray(eval(compile(ast.parse(text, mode="eval"), "", "eval"), {}, names), dtype=float),
        (5,),
    )
    np.testing.assert_allclose(parse_formula(text, 2).observable(Z), expected, rtol=1e-9, atol=1e-9)


@given(st.text(max_size=40))
def test_any_text_is_a_formula_or_an_error_in_words(text: str) -> None:
    try:
        parse_formula(text, 2)
    except ValueError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("text", "features"),
    [("c > 1", (2,)), ("b*a", (0, 1)), ("x2", (1,)), ("3", (0, 1, 2)), ("e*b + pi", (1,))],
)
def test_a_loss_may_be_a_function_of_the_columns_that_it_reads(
    text: str, features: tuple[int, ...]
) -> None:
    whole, part = (
        parse_formula(text, 3, ["a", "b", "c"], all_features=every) for every in (True, False)
    )
    assert whole.features == (0, 1, 2) and part.features == features
    np.testing.assert_array_equal(part.observable(X[:, features]), whole.observable(X))


def test_ties_are_told_apart() -> None:
    at = [[1.0], [np.nextafter(1.0, 2.0)], [np.nextafter(1.0, 0.0)]]
    for text, values in {
        "x1 > 1": [0, 1, 0],
        "x1 >= 1": [1, 1, 0],
        "1 > x1": [0, 0, 1],
        "1 >= x1": [1, 0, 1],
    }.items():
        np.testing.assert_array_equal(parse_formula(text, 1).observable(at), values)


RANGES = {
    "x1 > 3": (0.0, 1.0),
    "2 - 3*(x1 > 3)": (-1.0, 2.0),
    "exp(-x1**2)": (0.0, 1.0),
    "1 / (1 + x1**2)": (0.0, 1.0),
    "min(abs(x1), 3)": (0.0, 3.0),
    "max(-2, min(x1, 3))": (-2.0, 3.0),
    "tanh(x1) * sin(x2)": (-1.0, 1.0),
    "abs(x1)": (0.0, math.inf),
    "-abs(x1)": (-math.inf, 0.0),
    "x1 * (x1 > 3)": (-math.inf, math.inf),
    "(x1 > 3) / (x1 > 2)": (-math.inf, math.inf),
    "log(abs(tanh(x1)) + 1)": (0.0, math.log(2.0)),
    "log1p(-(x1 > 3))": (-math.inf, 0.0),
    "sqrt(cos(x1))": (-math.inf, math.inf),
    "tan(x1)": (-math.inf, math.inf),
    "2**cos(x1)": (-math.inf, math.inf),
    "(cos(x1) - 3)**-2": (1 / 16, 1 / 4),
    "cos(x1)**0.5": (-math.inf, math.inf),
    "exp(x1)": (0.0, math.inf),
    "e * cos(x1)": (-math.e, math.e),
}


@pytest.mark.parametrize("text", RANGES)
def test_ranges(text: str) -> None:
    loss = parse_formula(text, 2)
    assert loss.range == pytest.approx(RANGES[text])
    assert (loss.observable.bounded is True) == all(map(math.isfinite, RANGES[text]))


@given(TREES, st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=2))
def test_no_value_leaves_the_range(text: str, at: list[float]) -> None:
    observable, _, (low, high) = parse_formula(text, 2)
    value = float(observable([at])[0])
    slack = 1e-9 * max(1.0, abs(value))
    assert low - slack <= value <= high + slack
