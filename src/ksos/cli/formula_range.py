"""Between which numbers the values of a formula lie, whatever its features are: interval arithmetic
over its tree [Moore1966].

Only ends that are finite are used, as a proof that the formula is bounded. Where nothing is known,
the range is (−∞, ∞).
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable

__all__ = ["EVERYTHING", "Range", "formula_range"]

Range = tuple[float, float]
EVERYTHING: Range = (-math.inf, math.inf)
_LARGEST_EXPONENT = 700.0  # of exp, in floats

_INCREASING: dict[str, tuple[Callable[[float], float], Range]] = {
    "sqrt": (math.sqrt, (0.0, math.inf)),
    "log": (lambda x: math.log(x) if x > 0.0 else -math.inf, (0.0, math.inf)),
    "log1p": (lambda x: math.log1p(x) if x > -1.0 else -math.inf, (-1.0, math.inf)),
    "exp": (lambda x: math.exp(x) if x < _LARGEST_EXPONENT else math.inf, EVERYTHING),
    "tanh": (math.tanh, EVERYTHING),
}
"""Increasing functions with their domains."""


def formula_range(node: ast.expr, constants: dict[str, float]) -> Range:
    """The range of a part of a formula; a name that is none of the ``constants`` is a feature,
    which may be any number.

    >>> formula_range(ast.parse("exp(-x**2) + (x > 3)", mode="eval").body, {})
    (0.0, 2.0)
    """
    low, high = _range(node, constants)
    return EVERYTHING if math.isnan(low) or math.isnan(high) else (low, high)


def _range(node: ast.expr, constants: dict[str, float]) -> Range:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
        return float(node.value), float(node.value)
    if isinstance(node, ast.Name):
        return (constants[node.id],) * 2 if node.id in constants else EVERYTHING
    if isinstance(node, ast.Compare):
        return 0.0, 1.0
    if isinstance(node, ast.UnaryOp):
        low, high = formula_range(node.operand, constants)
        return (-high, -low) if isinstance(node.op, ast.USub) else (low, high)
    if isinstance(node, ast.BinOp):
        return _operation(
            node.op, formula_range(node.left, constants), formula_range(node.right, constants)
        )
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _function(node.func.id, [formula_range(part, constants) for part in node.args])
    return EVERYTHING


def _operation(op: ast.operator, left: Range, right: Range) -> Range:
    if isinstance(op, ast.Add):
        return left[0] + right[0], left[1] + right[1]
    if isinstance(op, ast.Sub):
        return left[0] - right[1], left[1] - right[0]
    if isinstance(op, ast.Mult):
        return _product(left, right)
    if isinstance(op, ast.Div) and not right[0] <= 0.0 <= right[1]:
        return _product(left, (1.0 / right[1], 1.0 / right[0]))
    if isinstance(op, ast.Pow) and right[0] == right[1]:
        return _power(left, right[0])
    return EVERYTHING


def _product(left: Range, right: Range) -> Range:
    products = [
        0.0 if 0.0 in (a, b) else a * b for a in left for b in right
    ]  # 0·∞ is 0: no feature is infinite
    return min(products), max(products)


def _power(base: Range, exponent: float) -> Range:
    even = exponent % 2.0 == 0.0
    if exponent < 0.0 and base[0] <= 0.0 <= base[1]:
        return EVERYTHING
    if base[0] < 0.0 and not exponent.is_integer():
        return EVERYTHING
    try:
        ends = [float(side**exponent) for side in base]
    except OverflowError:
        return EVERYTHING
    low = 0.0 if even and exponent > 0.0 and base[0] <= 0.0 <= base[1] else min(ends)
    return low, max(ends)


def _function(name: str, parts: list[Range]) -> Range:
    low, high = parts[0]
    if name in _INCREASING:
        function, domain = _INCREASING[name]
        return (
            (function(low), function(high))
            if domain[0] <= low and high <= domain[1]
            else EVERYTHING
        )
    if name in ("sin", "cos"):
        return -1.0, 1.0
    if name == "abs":
        return 0.0 if low <= 0.0 <= high else min(abs(low), abs(high)), max(abs(low), abs(high))
    if name in ("min", "max"):
        choose = min if name == "min" else max
        return choose(part[0] for part in parts), choose(part[1] for part in parts)
    return EVERYTHING
