"""A loss written as a formula, such as "abs(x1 - 2*x2)**1.5".

Python's parser reads it into a tree, of which only what the language of formulas has is accepted.
The tree is then evaluated node by node, and never run as code: at points, as a sum of polynomials
and indicators where it is one, and over all points at once for the range of its values.
"""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ksos.data import excerpt
from ksos.ground import meant
from ksos.observables import BoxIndicator, NumericFunction, Observable, Polynomial, coordinate

CONSTANTS = {"pi": math.pi, "e": math.e}
_INCREASING: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (np.sqrt, np.exp, np.log, np.log1p, np.tanh)
}
_OF_SEVERAL = {
    "min": lambda *parts: reduce(np.minimum, parts),
    "max": lambda *parts: reduce(np.maximum, parts),
}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    **_INCREASING,
    **{f.__name__: f for f in (np.sin, np.cos, np.tan)},
    **_OF_SEVERAL,
}
_OPERATIONS = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "**": np.power}
_OPERATIONS |= {"<": np.less, "<=": np.less_equal}
_OPERATORS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_COMPARISONS = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: "<", ast.GtE: "<="}

_LONGEST = 1000  # characters: longer ones are hardly written by hand
_DEEPEST = 60  # levels of nesting, far below Python's limit of recursion
_LARGEST_NUMBER = 1e300  # so that the products of two or three numbers are seen to overflow
_HIGHEST_POWER = 24  # of a closed form: beyond it, moments lose their digits to cancellation
_MOST_TERMS = 400  # of a polynomial: more of them cost more than the quadrature they replace


class Loss(NamedTuple):
    """A formula that has been read: a function of the ``features``, given by their positions among
    all columns, with values in ``range``.
    """

    observable: Observable
    features: tuple[int, ...]
    range: tuple[float, float]


def parse_formula(
    text: str,
    n_features: int,
    names: Sequence[str] | None = None,
    header: Sequence[str] | None = None,
    *,
    all_features: bool = True,
) -> Loss:
    """The loss that a formula describes. Polynomials and indicators of boxes have closed forms, and
    anything else is a numeric function.

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
    Loss(observable=BoxIndicator([3.0], [inf]), features=(1,), range=(0.0, 1.0))
    """
    if not isinstance(text, str):
        raise TypeError(f"a formula is text; got {text!r}")
    if len(text) > _LONGEST:
        raise ValueError(f"the formula has {len(text)} characters; at most {_LONGEST} are read")
    try:
        with warnings.catch_warnings():
            # of the parser, about code that this is not
            warnings.simplefilter("ignore")
            parsed = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        offset = error.offset if isinstance(error, SyntaxError) else None
        where = f" at character {offset}" if offset else ""
        raise ValueError(
            f"{excerpt(text)} is not a formula: it cannot be read{where}; write for example 'x1**2"
            " + abs(x2)'"
        ) from None
    places: dict[str, list[int]] = {}
    # once a column of the file is called x and a number, none is called so by its position
    if not any(re.fullmatch("x[0-9]+", name) for name in header or names or ()):
        places = {f"x{k + 1}": [k] for k in range(n_features)}
    for k, name in enumerate(names or ()):
        places.setdefault(name, []).append(k)
    used = [node.id for node in ast.walk(parsed) if isinstance(node, ast.Name)]
    read = sorted({places[name][0] for name in used if name in places})
    features = read if read and not all_features else list(range(n_features))
    with np.errstate(all="ignore"):
        whole = _Reader(text, places, features).part(parsed)

    def evaluate(X: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.array(np.broadcast_to(whole.at(X), (X.shape[0],)), dtype=np.float64)

    # its name in errors
    evaluate.__qualname__ = excerpt(text)
    bounded = True if np.isfinite(whole.range).all() else None
    closed = whole.closed or NumericFunction(evaluate, bounded=bounded)
    return Loss(closed, tuple(features), (float(whole.range[0]), float(whole.range[1])))


class _Part(NamedTuple):
    """A part of a formula: its values at the rows of X (n, d), their range, its closed form."""

    at: Callable[[np.ndarray], Any]
    range: np.ndarray
    """Between which numbers the values lie, whatever the features are: (low, high)."""
    closed: Observable | None
    """A sum of polynomials and indicators of boxes, if it is one that is not too large."""
    feature: int | None = None
    """The feature that the part is, if it is one."""


class _Reader:
    """Turns Python's tree into parts, and raises on everything that is not part of the language."""

    def __init__(
        self, text: str, places: Mapping[str, Sequence[int]], features: Sequence[int]
    ) -> None:
        self.text, self.places, self.features = text, places, features

    def error(self, node: ast.expr, what: str) -> ValueError:
        return ValueError(
            f"{what} at character {node.col_offset + 1} of the formula {excerpt(self.text)}"
        )

    def part(self, node: ast.expr, depth: int = 0) -> _Part:
        if depth > _DEEPEST:
            raise ValueError(
                f"the formula {excerpt(self.text)} is nested more than {_DEEPEST} levels deep"
            )
        children = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        match node:
            case ast.Constant():
                value: Any = node.value
                if type(value) not in (int, float) or not abs(value) <= _LARGEST_NUMBER:
                    raise self.error(
                        node, f"{excerpt(repr(value))} is not a number that can be used,"
                    )
                return _number(float(value))
            case ast.Name(id=name):
                return self.named(node, name)
            case ast.UnaryOp(op=ast.UAdd() | ast.USub() as sign, operand=operand):
                name = "+" if isinstance(sign, ast.UAdd) else "-"
                return self.joined(name, _number(0.0), self.part(operand, depth + 1))
            case ast.BinOp(op=operator):
                if type(operator) not in _OPERATORS:
                    hint = "; powers are written **" if isinstance(operator, ast.BitXor) else ""
                    raise self.error(
                        node, f"only the operators + - * / ** are known{hint}; another one is used"
                    )
                name = _OPERATORS[type(operator)]
            case ast.Compare(ops=operators):
                if any(type(operator) not in _COMPARISONS for operator in operators):
                    raise self.error(
                        node, "only the comparisons < <= > >= are known; another one is used"
                    )
                sides = pairwise([self.part(child, depth + 1) for child in children])
                links = [
                    # a > b is b < a
                    self.joined(
                        _COMPARISONS[type(operator)],
                        *(pair[::-1] if isinstance(operator, ast.Gt | ast.GtE) else pair),
                    )
                    for operator, pair in zip(operators, sides, strict=True)
                ]
                return reduce(partial(self.joined, "*"), links)
            case ast.Call(func=function, args=children, keywords=keywords):
                name = ast.unparse(function)
                if name not in FUNCTIONS:
                    raise self.error(
                        node,
                        f"there is no function {excerpt(name)} (there are {', '.join(FUNCTIONS)}),",
                    )
                n, several = len(children) + len(keywords), name in _OF_SEVERAL
                if keywords or (n < 2 if several else n != 1):
                    takes = "at least 2 arguments" if several else "1 argument"
                    raise self.error(node, f"{name} takes {takes}, got {n},")
            case _:
                raise self.error(node, f"{type(node).__name__.lower()} is not part of a formula,")
        return self.joined(name, *(self.part(child, depth + 1) for child in children))

    def named(self, node: ast.expr, name: str) -> _Part:
        """A feature or a constant."""
        places = self.places.get(name, ())
        if len(places) == 1:
            k = self.features.index(places[0])
            return _Part(lambda X: X[:, k], _EVERYTHING, coordinate(k), k)
        if places:
            both = " and ".join(str(k + 1) for k in places)
            raise self.error(
                node,
                f"columns {both} of those chosen are both named {excerpt(name)}; choose one with"
                " --columns,",
            )
        if name in CONSTANTS:
            return _number(CONSTANTS[name])
        known = [*list(self.places)[:12], *["…"] * (len(self.places) > 12), *CONSTANTS]
        call = f"; {name} is a function and needs parentheses"
        hint = call if name in FUNCTIONS else meant(name, self.places)
        raise self.error(node, f"there is no {excerpt(name)} (there are {', '.join(known)}{hint}),")

    def joined(self, name: str, *parts: _Part) -> _Part:
        """A function or an operation of other parts."""
        function = (FUNCTIONS | _OPERATIONS)[name]

        # as numbers, for minus is not defined for what comparisons return
        def values(X: np.ndarray) -> np.ndarray:
            return np.asarray(function(*(part.at(X) for part in parts)), dtype=np.float64)

        closed = _closed_form(name, *parts, d=len(self.features)) if name in _OPERATIONS else None
        return _Part(values, _range(name, [part.range for part in parts]), closed)


_EVERYTHING = np.array([-np.inf, np.inf])


def _number(value: float) -> _Part:
    return _Part(lambda _: np.asarray(value), np.array([value, value]), Polynomial.constant(value))


# The range of a function of parts with these ranges [Moore1966].
#
# Only finite ends are used, as a proof that the formula is bounded, so where nothing is known the
# range is (−∞, ∞).
def _range(name: str, ranges: Sequence[np.ndarray]) -> np.ndarray:
    first, last = ranges[0], ranges[-1]
    holds_zero = first[0] <= 0.0 <= first[1]
    found = _EVERYTHING
    if name in ("<", "<="):
        found = np.array([0.0, 1.0])
    elif name in ("sin", "cos"):
        found = np.array([-1.0, 1.0])
    elif name == "-":
        found = first - last[::-1]
    elif name == "*" or (name == "/" and not last[0] <= 0.0 <= last[1]):
        products = np.outer(first, last if name == "*" else 1.0 / last)
        # 0·∞ is 0: no feature is infinite
        found = np.where(np.isnan(products), 0.0, products)
    elif name == "**" and last[0] == last[1]:
        power = float(last[0])
        if not (first[0] < 0.0 and not power.is_integer()) and not (power < 0.0 and holds_zero):
            even = holds_zero and power > 0.0 and power % 2.0 == 0.0
            found = np.append(first, 0.0 if even else first) ** power
    elif name == "abs":
        found = np.abs(np.append(first, 0.0 if holds_zero else first))
    elif name == "+" or name in _INCREASING or name in _OF_SEVERAL:
        found = (FUNCTIONS | _OPERATIONS)[name](*ranges)
    return _EVERYTHING if np.isnan(found).any() else np.array([found.min(), found.max()])


# An operation of two closed forms in d features as a closed form.
def _closed_form(name: str, one: _Part, other: _Part, *, d: int) -> Observable | None:
    left, right = one.closed, other.closed
    if left is None or right is None:
        return None
    found: Observable | None = None
    number = _constant(right)
    if name in ("<", "<="):
        found = _indicator(name, one, other, d)
    elif name == "+":
        found = left + right
    elif name == "-":
        found = left + -1.0 * right
    elif name == "*":
        found = _product(left, right)
    elif number is not None and name == "/":
        found = left * (1.0 / number) if abs(number) * _LARGEST_NUMBER > 1.0 else None
    elif number is not None and isinstance(left, Polynomial) and number == int(number):
        small = 0 <= number * max(left.degree, 1) <= _HIGHEST_POWER
        small = small and len(left.terms) ** min(int(number), 4) <= _MOST_TERMS
        found = left ** int(number) if small else None
    scales = [] if found is None else [scale for scale, _ in found.parts()]
    terms = found.terms.values() if isinstance(found, Polynomial) else []
    return found if all(map(math.isfinite, [*scales, *terms])) else None


def _constant(part: Observable) -> float | None:
    return part.terms.get((), 0.0) if isinstance(part, Polynomial) and part.degree == 0 else None


# The comparison of a feature with a number as the indicator of a box.
def _indicator(name: str, one: _Part, other: _Part, d: int) -> Observable | None:
    box = np.array([[-np.inf] * d, [np.inf] * d])
    # < is ≤ the next smaller float
    for part, limit, side in ((one, other, 1), (other, one, 0)):
        bound = None if limit.closed is None else _constant(limit.closed)
        if part.feature is not None and bound is not None:
            inwards = box[1 - side, part.feature]
            box[side, part.feature] = np.nextafter(bound, inwards) if name == "<" else bound
            return BoxIndicator(*box)
    return None


# The product of a number with anything, of two polynomials, or of two indicators, which may have
# numbers in front.
def _product(left: Observable, right: Observable) -> Observable | None:
    for one, other in ((left, right), (right, left)):
        if (number := _constant(one)) is not None and math.isfinite(number):
            return other * number
    if isinstance(left, Polynomial) and isinstance(right, Polynomial):
        return left * right if len(left.terms) * len(right.terms) <= _MOST_TERMS else None
    if len(left.parts()) == len(right.parts()) == 1:
        (a, one), (b, other) = left.parts()[0], right.parts()[0]
        if isinstance(one, BoxIndicator) and isinstance(other, BoxIndicator):
            low = np.maximum(one.box.low, other.box.low)
            high = np.minimum(one.box.high, other.box.high)
            if np.any(low > high):
                return Polynomial.constant(0.0)
            # a point of a feature is no box
            if np.all(low < high):
                both = BoxIndicator(low, high)
                return both if a * b == 1.0 else both * (a * b)
    return None
