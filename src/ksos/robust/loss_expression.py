"""A loss written as a formula, such as "abs(x1 - 2*x2)**1.5": parsed into a tree and walked, never run as code."""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ksos.observables import NumericFunction, Observable, Polynomial, coordinate

__all__ = ["CONSTANTS", "FUNCTIONS", "LossExpressionError", "parse_loss"]

FUNCTIONS: dict[str, tuple[int, int | None, Callable[..., Any]]] = {
    "abs": (1, 1, np.abs),
    "sqrt": (1, 1, np.sqrt),
    "exp": (1, 1, np.exp),
    "log": (1, 1, np.log),
    "log1p": (1, 1, np.log1p),
    "sin": (1, 1, np.sin),
    "cos": (1, 1, np.cos),
    "tan": (1, 1, np.tan),
    "tanh": (1, 1, np.tanh),
    "min": (2, None, lambda *parts: _reduced(np.minimum, parts)),
    "max": (2, None, lambda *parts: _reduced(np.maximum, parts)),
}
"""Every function by name: the least and the largest number of arguments, and what it is."""
CONSTANTS = {"pi": math.pi, "e": math.e}

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.Pow: ("**", operator.pow),
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_LONGEST, _DEEPEST, _HIGHEST_POWER, _MOST_TERMS = 1000, 60, 24, 400

Node = Callable[[np.ndarray], Any]
"""A part of the formula, as a function of the points (n, d)."""


class LossExpressionError(ValueError):
    """A formula that is not one: the message shows where."""


def parse_loss(text: str, n_features: int, names: Sequence[str] | None = None) -> Observable:
    """The loss that a formula describes: a :class:`~ksos.observables.Polynomial` where it is one, else a function.

    Features are x1, x2, …, and by the names of their columns where those are given. There are numbers, ``+ - * / **``, comparisons (1 where
    they hold, else 0), the functions of :data:`FUNCTIONS` and the constants pi and e; nothing else.

    >>> parse_loss("(x1 - 2*x2)**2", 2)
    Polynomial(x0² - 4·x0·x1 + 4·x1²)
    >>> parse_loss("max(abs(x1), 1 < x2)", 2)([[0.5, 3.0], [-2.0, 0.0]])
    array([1., 2.])
    """
    if not isinstance(text, str):
        raise TypeError(f"a formula is text; got {text!r}")
    if len(text) > _LONGEST:
        raise LossExpressionError(f"the formula has {len(text)} characters; at most {_LONGEST} are read")
    variables = {f"x{k + 1}": k for k in range(n_features)}
    for k, name in enumerate(names or ()):
        variables.setdefault(name, k)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the parser, about code that this is not
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        where = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise LossExpressionError(
            f"{_shown(text)} is not a formula: it cannot be read{where}; write for example 'x1**2 + abs(x2)'"
        ) from None
    reader = _Reader(text, variables)
    reader.check(tree, 0)
    polynomial = reader.polynomial(tree)
    if polynomial is not None:
        return polynomial
    return NumericFunction(_Formula(text, reader.function(tree)))


class _Formula:
    """The function of a formula, with the formula as its name."""

    def __init__(self, text: str, node: Node) -> None:
        self.node = node
        self.__qualname__ = _shown(text)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            values = np.asarray(self.node(X), dtype=np.float64)
        return np.array(np.broadcast_to(values, (X.shape[0],)))


class _Reader:
    """Walks the tree of a formula; what is not listed is refused."""

    def __init__(self, text: str, variables: Mapping[str, int]) -> None:
        self.text, self.variables = text, variables

    def refuse(self, node: ast.AST, what: str) -> LossExpressionError:
        at = getattr(node, "col_offset", None)
        where = "" if at is None else f" at character {at + 1}"
        return LossExpressionError(f"{what}{where} of the formula {_shown(self.text)}")

    def check(self, node: ast.AST, depth: int) -> None:
        """Raise on everything that is not part of the language."""
        if depth > _DEEPEST:
            raise LossExpressionError(f"the formula {_shown(self.text)} is nested more than {_DEEPEST} levels deep")
        for part in self._parts(node):
            self.check(part, depth + 1)

    def _parts(self, node: ast.AST) -> list[ast.expr]:
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, (int, float)) or not abs(node.value) <= 1e300:
                raise self.refuse(node, f"{_shown(repr(node.value))} is not a number that can be used,")
            return []
        if isinstance(node, ast.Name):
            if node.id not in self.variables and node.id not in CONSTANTS:
                known = ", ".join([*list(self.variables)[:12], *(["…"] if len(self.variables) > 12 else []), *CONSTANTS])
                functions = f"; {node.id} is a function and needs parentheses" if node.id in FUNCTIONS else ""
                raise self.refuse(node, f"there is no {_shown(node.id)} (there are {known}{functions}),")
            return []
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.UAdd, ast.USub)):
            return [node.operand]
        if isinstance(node, ast.BinOp):
            if type(node.op) not in _BINARY:
                hint = "; powers are written **" if isinstance(node.op, ast.BitXor) else ""
                raise self.refuse(node, f"only the operators + - * / ** are known{hint}; another one is used")
            return [node.left, node.right]
        if isinstance(node, ast.Compare):
            if any(type(op) not in _COMPARISONS for op in node.ops):
                raise self.refuse(node, "only the comparisons < <= > >= are known; another one is used")
            return [node.left, *node.comparators]
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in FUNCTIONS:
                name = node.func.id if isinstance(node.func, ast.Name) else ast.unparse(node.func)
                raise self.refuse(node, f"there is no function {_shown(name)} (there are {', '.join(FUNCTIONS)}),")
            least, most, _ = FUNCTIONS[node.func.id]
            if node.keywords or not least <= len(node.args) <= (most or len(node.args)):
                wanted = f"{least}" if most == least else f"at least {least}"
                raise self.refuse(node, f"{node.func.id} takes {wanted} argument(s), got {len(node.args) + len(node.keywords)},")
            return list(node.args)
        raise self.refuse(node, f"{type(node).__name__.lower()} is not part of a formula,")

    def polynomial(self, node: ast.AST) -> Polynomial | None:
        """The part as a polynomial; None where it is none."""
        if isinstance(node, ast.Constant):
            return Polynomial.constant(_number(node))
        if isinstance(node, ast.Name):
            return Polynomial.constant(CONSTANTS[node.id]) if node.id not in self.variables else coordinate(self.variables[node.id])
        if isinstance(node, ast.UnaryOp):
            operand = self.polynomial(node.operand)
            return operand if operand is None or isinstance(node.op, ast.UAdd) else _as(-1.0 * operand)
        if not isinstance(node, ast.BinOp):
            return None
        left, right = self.polynomial(node.left), self.polynomial(node.right)
        if left is None or right is None:
            return None
        out: Polynomial | None = None
        if isinstance(node.op, (ast.Add, ast.Sub)):
            out = _as(left + (right if isinstance(node.op, ast.Add) else _as(-1.0 * right)))
        elif isinstance(node.op, ast.Mult):
            out = _as(left * right) if len(left.terms) * len(right.terms) <= _MOST_TERMS else None
        elif right.degree == 0:
            number = right.terms.get((), 0.0)
            if isinstance(node.op, ast.Div):
                out = None if number == 0.0 else _as(left * (1.0 / number)) if abs(number) > 1e-300 else None
            elif number == int(number) and 0 <= number * max(left.degree, 1) <= _HIGHEST_POWER:
                out = _as(left ** int(number)) if len(left.terms) ** min(int(number), 4) <= _MOST_TERMS else None
        if out is None or not all(math.isfinite(value) for value in out.terms.values()):
            return None
        return out

    def function(self, node: ast.AST) -> Node:
        """The part as a function of arrays."""
        if isinstance(node, ast.Constant):
            number = _number(node)
            return lambda X: number
        if isinstance(node, ast.Name):
            if node.id not in self.variables:
                constant = CONSTANTS[node.id]
                return lambda X: constant
            k = self.variables[node.id]
            return lambda X: X[:, k]
        if isinstance(node, ast.UnaryOp):
            operand, sign = self.function(node.operand), -1.0 if isinstance(node.op, ast.USub) else 1.0
            return lambda X: sign * operand(X)
        if isinstance(node, ast.BinOp):
            left, right, combine = self.function(node.left), self.function(node.right), _BINARY[type(node.op)][1]
            return lambda X: combine(np.asarray(left(X), dtype=np.float64), np.asarray(right(X), dtype=np.float64))
        if isinstance(node, ast.Compare):
            sides = [self.function(side) for side in (node.left, *node.comparators)]
            tests = [_COMPARISONS[type(op)] for op in node.ops]
            return lambda X: _holds([side(X) for side in sides], tests)
        assert isinstance(node, ast.Call)
        assert isinstance(node.func, ast.Name)
        arguments, apply = [self.function(argument) for argument in node.args], FUNCTIONS[node.func.id][2]
        return lambda X: apply(*(argument(X) for argument in arguments))


def _number(node: ast.Constant) -> float:
    assert isinstance(node.value, (int, float))
    return float(node.value)


def _holds(sides: Sequence[Any], tests: Sequence[Callable[[Any, Any], Any]]) -> np.ndarray:
    """1 where every comparison of a chain holds, else 0."""
    out = np.ones(())
    for test, left, right in zip(tests, sides[:-1], sides[1:], strict=True):
        out = out * np.asarray(test(left, right), dtype=np.float64)
    return np.asarray(out)


def _reduced(combine: Any, parts: Sequence[Any]) -> Any:
    out = parts[0]
    for part in parts[1:]:
        out = combine(out, part)
    return out


def _as(f: Observable) -> Polynomial:
    assert isinstance(f, Polynomial)
    return f


def _shown(text: str, length: int = 60) -> str:
    return repr(text if len(text) <= length else text[: length - 1] + "…")
