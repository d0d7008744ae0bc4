"""A loss written as a formula, such as "abs(x1 - 2*x2)**1.5": it is parsed into a tree and
evaluated node by node, never run as code.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ksos.cli.formula_range import formula_range
from ksos.data import excerpt
from ksos.observables import BoxIndicator, NumericFunction, Observable, Polynomial, coordinate

__all__ = ["CONSTANTS", "FUNCTIONS", "FormulaError", "Loss", "parse_formula"]

FUNCTIONS: dict[str, tuple[int, int | None, Callable[..., Any]]] = {
    "abs": (1, 1, np.abs),
    **{
        f.__name__: (1, 1, f)
        for f in (np.sqrt, np.exp, np.log, np.log1p, np.sin, np.cos, np.tan, np.tanh)
    },
    "min": (2, None, lambda *parts: reduce(np.minimum, parts)),
    "max": (2, None, lambda *parts: reduce(np.maximum, parts)),
}
"""Every function by name: the least and the largest number of arguments, and the function."""
CONSTANTS = {"pi": math.pi, "e": math.e}

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_COMPARISONS = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_POSITION = re.compile(r"x[0-9]+")
_LONGEST, _DEEPEST, _HIGHEST_POWER, _MOST_TERMS = 1000, 60, 24, 400


class FormulaError(ValueError):
    """A formula that is not one: the message shows where."""


class Loss(NamedTuple):
    """A formula that has been read: a function of the ``features`` (their positions among all
    columns) with values up to ``highest``.
    """

    observable: Observable
    features: tuple[int, ...]
    highest: float


def parse_formula(
    text: str,
    n_features: int,
    names: Sequence[str] | None = None,
    header: Sequence[str] | None = None,
    *,
    all_features: bool = True,
) -> Loss:
    """The loss that a formula describes. Polynomials and indicators of boxes have closed forms;
    what is neither is a numeric function.

    Features are called by the ``names`` of their columns; also x1, x2, … by position, unless a
    column of the file (``header``: all of its names) is itself called so. A formula has numbers,
    ``+ - * / **``, comparisons (1 if they hold, else 0), the functions of :data:`FUNCTIONS` and the
    constants pi and e; nothing else. Without ``all_features`` the loss is a function of those that
    it reads.

    >>> parse_formula("(x1 - 2*x2)**2", 2).observable
    Polynomial(x0² - 4·x0·x1 + 4·x1²)
    >>> parse_formula("max(abs(x1), 1 < x2)", 2).observable([[0.5, 3.0], [-2.0, 0.0]])
    array([1., 2.])
    >>> parse_formula("x2 >= 3", 3, ["a", "b", "c"], all_features=False)
    Loss(observable=BoxIndicator([3.0], [inf]), features=(1,), highest=1.0)
    """
    if not isinstance(text, str):
        raise TypeError(f"a formula is text; got {text!r}")
    if len(text) > _LONGEST:
        raise FormulaError(f"the formula has {len(text)} characters; at most {_LONGEST} are read")
    variables = _places(n_features, names or (), header or names or ())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, about code that this is not
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = (
            f" at character {error.offset}"
            if isinstance(error, SyntaxError) and error.offset
            else ""
        )
        raise FormulaError(
            f"{excerpt(text)} is not a formula: it cannot be read{where}; write for example 'x1**2"
            " + abs(x2)'"
        ) from None
    formula = _Formula(text, tree, variables, n_features)
    formula.check(tree, 0)
    low, high = formula_range(
        tree, {name: value for name, value in CONSTANTS.items() if name not in variables}
    )
    read = {
        variables[node.id][0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and node.id in variables
    }
    features = tuple(sorted(read)) if read and not all_features else tuple(range(n_features))
    formula.take(features)
    closed = formula.closed_form(tree)
    bounded = True if math.isfinite(low) and math.isfinite(high) else None
    return Loss(
        NumericFunction(formula, bounded=bounded) if closed is None else closed, features, high
    )


def _places(n_features: int, names: Sequence[str], header: Sequence[str]) -> dict[str, list[int]]:
    """Where each name stands. Names rule: once a column of the file is called x and a number, none
    is called so by its position.
    """
    places: dict[str, list[int]] = {}
    if not any(_POSITION.fullmatch(name) for name in header):
        places = {f"x{k + 1}": [k] for k in range(n_features)}
    for k, name in enumerate(names):
        places.setdefault(name, []).append(k)
    return places


class _Formula:
    """The function of a formula, with the formula as its name; anything that is not part of the
    language is refused.
    """

    def __init__(
        self, text: str, tree: ast.expr, variables: Mapping[str, Sequence[int]], n_features: int
    ) -> None:
        self.tree, self.variables, self.n_features = tree, variables, n_features
        self.__qualname__ = excerpt(text)

    def take(self, features: Sequence[int]) -> None:
        """From here on, be a function of these features alone, which are all that it reads."""
        places = {
            name: [features.index(k) for k in found if k in features]
            for name, found in self.variables.items()
        }
        self.variables, self.n_features = (
            {name: found for name, found in places.items() if found},
            len(features),
        )

    def __call__(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            values = np.asarray(self._value(self.tree, X), dtype=np.float64)
        return np.array(np.broadcast_to(values, (X.shape[0],)))

    def _value(self, node: ast.expr, X: np.ndarray) -> Any:
        """A part of the formula at the points ``X`` (n, d); the tree holds nothing else, see
        :meth:`check`.
        """
        if isinstance(node, ast.Constant):
            return _number(node)
        if isinstance(node, ast.Name):
            return (
                X[:, self.variables[node.id][0]]
                if node.id in self.variables
                else CONSTANTS[node.id]
            )
        if isinstance(node, ast.UnaryOp):
            return (-1.0 if isinstance(node.op, ast.USub) else 1.0) * self._value(node.operand, X)
        if isinstance(node, ast.BinOp):
            left, right = (
                np.asarray(self._value(side, X), dtype=np.float64)
                for side in (node.left, node.right)
            )
            return _BINARY[type(node.op)](left, right)
        if isinstance(node, ast.Compare):
            sides = [self._value(side, X) for side in (node.left, *node.comparators)]
            holds = [
                _COMPARISONS[type(op)](*pair)
                for op, pair in zip(node.ops, pairwise(sides), strict=True)
            ]
            return np.asarray(reduce(np.logical_and, holds), dtype=np.float64)
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        return FUNCTIONS[node.func.id][2](*(self._value(argument, X) for argument in node.args))

    def refuse(self, node: ast.expr, what: str) -> FormulaError:
        return FormulaError(
            f"{what} at character {node.col_offset + 1} of the formula {self.__qualname__}"
        )

    def check(self, node: ast.expr, depth: int) -> None:
        """Raise on everything that is not part of the language."""
        if depth > _DEEPEST:
            raise FormulaError(
                f"the formula {self.__qualname__} is nested more than {_DEEPEST} levels deep"
            )
        for part in self._parts(node):
            self.check(part, depth + 1)

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        if isinstance(node, ast.Constant):
            if (
                isinstance(node.value, bool)
                or not isinstance(node.value, (int, float))
                or not abs(node.value) <= 1e300
            ):
                raise self.refuse(
                    node, f"{excerpt(repr(node.value))} is not a number that can be used,"
                )
            return []
        if isinstance(node, ast.Name):
            if node.id not in self.variables and node.id not in CONSTANTS:
                known = ", ".join(
                    [
                        *list(self.variables)[:12],
                        *(["…"] if len(self.variables) > 12 else []),
                        *CONSTANTS,
                    ]
                )
                functions = (
                    f"; {node.id} is a function and needs parentheses"
                    if node.id in FUNCTIONS
                    else ""
                )
                raise self.refuse(
                    node, f"there is no {excerpt(node.id)} (there are {known}{functions}),"
                )
            if len(places := self.variables.get(node.id, ())) > 1:
                both = " and ".join(str(k + 1) for k in places)
                raise self.refuse(
                    node,
                    f"columns {both} of those chosen are both named {excerpt(node.id)}; choose one"
                    " with --columns,",
                )
            return []
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            return [node.operand]
        if isinstance(node, ast.BinOp):
            if type(node.op) not in _BINARY:
                hint = "; powers are written **" if isinstance(node.op, ast.BitXor) else ""
                raise self.refuse(
                    node, f"only the operators + - * / ** are known{hint}; another one is used"
                )
            return [node.left, node.right]
        if isinstance(node, ast.Compare):
            if any(type(op) not in _COMPARISONS for op in node.ops):
                raise self.refuse(
                    node, "only the comparisons < <= > >= are known; another one is used"
                )
            return [node.left, *node.comparators]
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
                name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
                raise self.refuse(
                    node,
                    f"there is no function {excerpt(name)} (there are {', '.join(FUNCTIONS)}),",
                )
            least, most, _ = FUNCTIONS[node.func.id]
            if node.keywords or not least <= len(node.args) <= (most or len(node.args)):
                wanted = f"{least}" if most == least else f"at least {least}"
                raise self.refuse(
                    node,
                    f"{node.func.id} takes {wanted} argument(s), got"
                    f" {len(node.args) + len(node.keywords)},",
                )
            return list(node.args)
        raise self.refuse(node, f"{type(node).__name__.lower()} is not part of a formula,")

    def closed_form(self, node: ast.expr) -> Observable | None:
        """The part as a sum of polynomials and indicators, or None if it is not one (or too large a
        one).
        """
        if isinstance(node, ast.Constant):
            return Polynomial.constant(_number(node))
        if isinstance(node, ast.Name):
            return (
                Polynomial.constant(CONSTANTS[node.id])
                if node.id not in self.variables
                else coordinate(self.variables[node.id][0])
            )
        if isinstance(node, ast.Compare):
            return self._indicator(node)
        if not isinstance(node, (ast.UnaryOp, ast.BinOp)):
            return None
        sides = (
            (ast.Constant(0.0), node.operand)
            if isinstance(node, ast.UnaryOp)
            else (node.left, node.right)
        )  # -x is 0 - x
        left, right = map(self.closed_form, sides)
        if left is None or right is None:
            return None
        out: Observable | None = None
        if isinstance(node.op, (ast.Add, ast.UAdd)):
            out = left + right
        elif isinstance(node.op, (ast.Sub, ast.USub)):
            out = left + -1.0 * right
        elif isinstance(node.op, ast.Mult):
            out = _product(left, right)
        elif (number := _constant(right)) is not None:
            if isinstance(node.op, ast.Div):
                out = left * (1.0 / number) if abs(number) > 1e-300 else None
            elif (
                isinstance(left, Polynomial)
                and number == int(number)
                and 0 <= number * max(left.degree, 1) <= _HIGHEST_POWER
            ):
                out = (
                    left ** int(number)
                    if len(left.terms) ** min(int(number), 4) <= _MOST_TERMS
                    else None
                )
        return out if out is None or all(map(_is_finite, out.parts())) else None

    def _indicator(self, node: ast.Compare) -> Observable | None:
        """A chain of comparisons of one feature with numbers, as the indicator of a box; < is ≤ the
        next smaller float.
        """
        low, high = np.full(self.n_features, -np.inf), np.full(self.n_features, np.inf)
        for (left, right), op in zip(
            pairwise([node.left, *node.comparators]), node.ops, strict=True
        ):
            if isinstance(right, ast.Name) and right.id in self.variables:
                left, right, side = right, left, low if isinstance(op, (ast.Lt, ast.LtE)) else high
            else:
                side = high if isinstance(op, (ast.Lt, ast.LtE)) else low
            number = None if (value := self.closed_form(right)) is None else _constant(value)
            if number is None or not (isinstance(left, ast.Name) and left.id in self.variables):
                return None
            k = self.variables[left.id][0]
            if isinstance(op, (ast.Lt, ast.Gt)):
                number = float(np.nextafter(number, -np.inf if side is high else np.inf))
            side[k] = min(side[k], number) if side is high else max(side[k], number)
        return _box(low, high)


def _constant(part: Observable) -> float | None:
    return part.terms.get((), 0.0) if isinstance(part, Polynomial) and part.degree == 0 else None


def _box(low: np.ndarray, high: np.ndarray) -> Observable | None:
    """The indicator of a box; 0 if it is empty, None if it is a point in some feature."""
    if np.any(low > high):
        return Polynomial.constant(0.0)
    return None if np.any(low == high) else BoxIndicator(low, high)


def _product(left: Observable, right: Observable) -> Observable | None:
    """The product of a number with anything, of two polynomials, or of two indicators, which may
    have numbers in front.
    """
    for one, other in ((left, right), (right, left)):
        if (number := _constant(one)) is not None and math.isfinite(number):
            return other * number
    if isinstance(left, Polynomial) and isinstance(right, Polynomial):
        return left * right if len(left.terms) * len(right.terms) <= _MOST_TERMS else None
    if len(left.parts()) == len(right.parts()) == 1:
        (a, one), (b, other) = left.parts()[0], right.parts()[0]
        if isinstance(one, BoxIndicator) and isinstance(other, BoxIndicator):
            both = _box(
                np.maximum(one.box.low, other.box.low), np.minimum(one.box.high, other.box.high)
            )
            return None if both is None else both * (a * b)
    return None


def _is_finite(part: tuple[float, Observable]) -> bool:
    scale, function = part
    return math.isfinite(scale) and (
        not isinstance(function, Polynomial) or all(map(math.isfinite, function.terms.values()))
    )


def _number(node: ast.Constant) -> float:
    assert isinstance(node.value, (int, float))
    return float(node.value)
