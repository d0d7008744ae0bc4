"""Risks of a decision: what :func:`ksos.decide` minimizes over the worst distribution of a ball.

A risk is an expectation E_x ℓ(θ, x) of a loss that is convex in the decision θ. The decision is
made of CVXPY variables, and the loss is a function f(P) of a constant array P (n, d) of points, one
row per point, that returns a vector of n CVXPY expressions. Risks are added, multiplied by
non-negative numbers, and compared with ``<=`` for ``subject_to``.

A loss that is a maximum of functions affine or quadratic in x is recognized from its expression:
bounds of its worst case are then rigorous. It may be built with cp.maximum, cp.pos, cp.abs, cp.max
and sums of them, products with x, and cp.square. A loss that calls NumPy functions of P is still
optimized, but its upper bound is an estimate, unless you pass its Lipschitz constant.

>>> import cvxpy as cp
>>> import ksos
>>> order = cp.Variable(nonneg=True)
>>> ksos.risk.newsvendor(order, underage=4.0, overage=1.0)
newsvendor
>>> share = cp.Variable(2, nonneg=True)
>>> ksos.risk.expectation(lambda P: -P @ share) + 0.5 * ksos.risk.cvar(lambda P: -P @ share, 0.05)
expectation + 0.5 * cvar(0.05)
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ksos.exceptions import ConvexityError
from ksos.ground.validation import as_count, as_finite, as_nonnegative
from ksos.observables import Event, Maximum, NumericFunction, Observable

__all__ = ["Limit", "Risk", "absolute", "chance", "cvar", "expectation", "hinge", "logistic"]
__all__ += ["newsvendor", "pieces", "pinball", "probability"]

_MOST_PIECES = 256  # of a sum of maxima, which multiply: bounds of more cost more than the kernel

Loss = Callable[[Any], Any]
"""From points (n, d) to a vector of n CVXPY expressions."""


def cvxpy() -> Any:
    """The module, or an error that names what to install."""
    try:
        import cvxpy as cp
    except ImportError:
        raise ImportError('decisions need CVXPY: pip install "kernel-sos[cvx]"') from None
    return cp


class Risk:
    """The expectation of a loss ℓ(θ, x), convex in the CVXPY variables of θ.

    The functions of :mod:`ksos.risk` make risks. ``lipschitz`` is a Lipschitz constant of the loss
    in x, a number or a CVXPY expression of the decision. If it ``happens``, the loss is 1 where the
    function is positive and 0 elsewhere.

    >>> import cvxpy as cp
    >>> x = cp.Variable(value=2.0)
    >>> risk = Risk(lambda P: cp.abs(P[:, 0] - x), "distance")
    >>> risk.values(np.array([[0.0], [3.0]])).tolist()
    [2.0, 1.0]
    """

    def __init__(
        self, loss: Loss, name: str, lipschitz: Any = None, *, happens: bool = False
    ) -> None:
        self.cp = cvxpy()
        if not callable(loss):
            raise TypeError(
                f"{name} needs a function of points (n, d) that returns n CVXPY expressions, such"
                f" as lambda P: -P @ x; got {loss!r}"
            )
        if lipschitz is not None and not isinstance(lipschitz, self.cp.Expression):
            lipschitz = as_nonnegative(lipschitz, "lipschitz")
        self._loss, self.name, self.lipschitz, self.happens = loss, name, lipschitz, happens
        self._parsed: dict[int, Callable[..., Maximum] | None] = {}

    def at(self, P: Any) -> Any:
        """The losses of points (n, d): a vector of n convex CVXPY expressions."""
        found = self._vector(P)
        if self.happens:
            return self.cp.Constant((self._values(found) > 0.0).astype(float))
        if not found.is_convex():
            raise ConvexityError(
                f"the loss of {self.name} is not convex in the decision by the rules of CVXPY"
                f" (its curvature is {found.curvature}); write it with convex atoms such as"
                " cp.maximum, cp.abs and cp.square"
            )
        return found

    def _vector(self, P: Any) -> Any:
        n = P.shape[0]
        try:
            found = self._loss(P)
        except Exception as error:
            error.add_note(f"raised by the loss of {self.name}, called with points {P.shape}")
            raise
        if isinstance(found, list | tuple):
            found = self.cp.hstack(found)
        if not isinstance(found, self.cp.Expression):
            if np.asarray(found).dtype.kind not in "biuf":
                raise TypeError(
                    f"the loss of {self.name} must return one number or CVXPY expression per"
                    f" point; got {found!r}"
                )
            found = self.cp.Constant(found)
        if not all(math.isfinite(constant.value.sum()) for constant in found.constants()):
            raise ValueError(
                f"the loss of {self.name} is NaN or infinite at some point of the domain or the"
                " data; choose a domain on which it is finite"
            )
        if found.shape == () or found.shape == (1,):
            found = self.cp.sum(found) * np.ones(n)
        if found.shape == (n, 1):
            found = found[:, 0]
        if found.shape != (n,):
            raise ValueError(
                f"the loss of {self.name} must return one expression per point, shape ({n},) for"
                f" points {P.shape}; got shape {found.shape}"
            )
        return found

    def _values(self, expression: Any) -> np.ndarray:
        for variable in expression.variables():
            if variable.value is None:
                raise ValueError(
                    f"variable {variable.name()} of {self.name} has no value; set its .value, or"
                    " solve for it with ksos.decide first"
                )
        return np.asarray(expression.value, dtype=np.float64)

    def values(self, P: np.ndarray) -> np.ndarray:
        """The losses of points at the values that the variables have now."""
        return self._values(self.at(P))

    def observable(self, center: np.ndarray, width: np.ndarray) -> Observable:
        """x ↦ ℓ(θ, x) at the values that the variables have now, which it keeps: a Maximum or an
        Event if the expression shows that it is one. The arrays say where x lies.
        """
        d = center.shape[0]
        if d not in self._parsed:
            self._parsed[d] = _parsed(self, d)
        found = self._parsed[d]
        if found is not None:
            function = found(center, width)
            return Event(function) if self.happens else function
        variables = self.at(center[None, :]).variables()
        kept = [variable.value for variable in variables]

        def values(X: np.ndarray) -> np.ndarray:
            before = [variable.value for variable in variables]
            restore(variables, kept)
            try:
                return self.values(X)
            finally:
                restore(variables, before)

        return NumericFunction(values)

    def __add__(self, other: Any) -> Risk:
        if isinstance(other, int) and other == 0:
            return self  # where sum() begins
        if not isinstance(other, Risk):
            cost = other if isinstance(other, self.cp.Expression) else as_finite(other, "a cost")
            other = Risk(lambda P: cost, str(cost), 0.0)
        self._require_expectation(other)
        known = self.lipschitz is not None and other.lipschitz is not None
        both = self.lipschitz + other.lipschitz if known else None
        name = f"{self.name} + {other.name}"
        return Risk(lambda P: self._vector(P) + other._vector(P), name, both)

    __radd__ = __add__

    def __neg__(self) -> Risk:
        self._require_expectation()
        return Risk(lambda P: -self._vector(P), f"-{self.name}", self.lipschitz)

    def __sub__(self, other: Any) -> Risk:
        return self + (-other)

    def __mul__(self, factor: Any) -> Risk:
        factor = as_nonnegative(factor, "the factor of a risk")
        self._require_expectation()
        scaled = None if self.lipschitz is None else factor * self.lipschitz
        return Risk(lambda P: factor * self._vector(P), f"{factor:g} * {self.name}", scaled)

    __rmul__ = __mul__

    def __le__(self, bound: Any) -> Limit:
        return Limit(self + (-bound), f"{self.name} <= {bound}")

    def _require_expectation(self, *others: Risk) -> None:
        if any(risk.happens for risk in (self, *others)):
            raise TypeError(
                "a probability is not convex in the decision, so it cannot be added, scaled or"
                " bounded; use ksos.risk.chance(g, alpha) in subject_to"
            )

    def __repr__(self) -> str:
        return self.name


class Limit:
    """A constraint that a risk is at most 0 for every distribution of the ball.

    >>> expectation(lambda P: P[:, 0]) <= 2.0
    expectation <= 2.0
    """

    def __init__(self, risk: Risk, name: str) -> None:
        self.risk, self.name = risk, name
        risk.name = name

    def __repr__(self) -> str:
        return self.name


def restore(variables: Sequence[Any], values: Sequence[Any]) -> None:
    """Give CVXPY variables values that a solver has found."""
    for variable, value in zip(variables, values, strict=True):
        # without the check of attributes: a solver's x ≥ 0 holds up to its tolerance
        variable.save_value(value)


# What a decision is judged by.


def expectation(f: Loss, *, lipschitz: Any = None) -> Risk:
    """The expected loss E f(x).

    >>> import cvxpy as cp
    >>> share = cp.Variable(2, value=[0.5, 0.5])
    >>> expectation(lambda P: -P @ share).values(np.array([[1.0, 2.0]])).tolist()
    [-1.5]
    """
    return Risk(f, "expectation", lipschitz)


def cvar(f: Loss, alpha: float, *, lipschitz: Any = None) -> Risk:
    """The conditional value at risk: the mean of the worst ``alpha`` of the losses f(x).

    It is min_τ τ + E (f(x) − τ)₊/α. ``alpha`` is the tail mass: 0.05 for the worst 5%.

    >>> cvar(lambda P: P[:, 0], 0.05)
    cvar(0.05)
    """
    alpha = as_finite(alpha, "alpha")
    if not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha is the mass of the tail, 0 < alpha <= 1; got {alpha!r}")
    base = Risk(f, f"cvar({alpha:g})", lipschitz)
    level = base.cp.Variable(name="level")
    steep = None if base.lipschitz is None else base.lipschitz / alpha
    return Risk(lambda P: level + base.cp.pos(base._vector(P) - level) / alpha, base.name, steep)


def newsvendor(order: Any, underage: float, overage: float, *, column: int = 0) -> Risk:
    """The expected cost of an order q against the demand D in a column: E max(underage·(D − q),
    overage·(q − D)).

    >>> newsvendor(3.0, underage=4.0, overage=1.0).values(np.array([[2.0], [5.0]])).tolist()
    [1.0, 8.0]
    """
    column = as_count(column, "column", minimum=0)
    costs = as_nonnegative(underage, "underage"), as_nonnegative(overage, "overage")

    def loss(P: Any) -> Any:
        if column >= P.shape[1]:
            raise ValueError(f"column {column} is not among the {P.shape[1]} columns of the data")
        missing = P[:, column] - order
        return cvxpy().maximum(costs[0] * missing, -costs[1] * missing)

    return Risk(loss, "newsvendor")


def pieces(functions: Sequence[Loss], *, lipschitz: Any = None) -> Risk:
    """The expectation of the maximum of some functions, E max_k f_k(x).

    >>> risk = pieces([lambda P: P[:, 0], lambda P: -2.0 * P[:, 0]])
    >>> risk.values(np.array([[-1.0], [1.0]])).tolist()
    [2.0, 1.0]
    """
    if isinstance(functions, Risk) or callable(functions) or len(functions) == 0:
        raise TypeError(f"pieces needs a list of functions of points (n, d); got {functions!r}")
    each = [Risk(f, f"piece {k}") for k, f in enumerate(functions)]

    def loss(P: Any) -> Any:
        found = [piece._vector(P) for piece in each]
        return cvxpy().maximum(*found) if len(found) > 1 else found[0]

    return Risk(loss, "pieces", lipschitz)


def _of(inner: Loss, name: str, outer: Callable[[Any], Any], lipschitz: Any = None) -> Risk:
    base = Risk(inner, name, lipschitz)
    return Risk(lambda P: outer(base._vector(P)), name, base.lipschitz)


def pinball(residual: Loss, q: float) -> Risk:
    """The pinball loss of a residual y − prediction, which the ``q``-quantile minimizes.

    >>> pinball(lambda P: P[:, 0], 0.75).values(np.array([[-4.0], [4.0]])).tolist()
    [1.0, 3.0]
    """
    q = as_finite(q, "q")
    if not 0.0 < q < 1.0:
        raise ValueError(f"q must lie strictly between 0 and 1; got {q!r}")
    return _of(residual, f"pinball({q:g})", lambda r: cvxpy().maximum(q * r, (q - 1.0) * r))


def hinge(margin: Loss) -> Risk:
    """The hinge loss of a margin y·score: E (1 − margin)₊.

    >>> hinge(lambda P: P[:, 0]).values(np.array([[-1.0], [2.0]])).tolist()
    [2.0, 0.0]
    """
    return _of(margin, "hinge", lambda m: cvxpy().pos(1.0 - m))


def absolute(residual: Loss) -> Risk:
    """The expected absolute residual.

    >>> absolute(lambda P: P[:, 0] - 1.0).values(np.array([[-1.0], [2.0]])).tolist()
    [2.0, 1.0]
    """
    return _of(residual, "absolute", lambda r: cvxpy().abs(r))


def logistic(margin: Loss, *, lipschitz: Any = None) -> Risk:
    """The logistic loss of a margin y·score: E log(1 + exp(−margin)).

    ``lipschitz`` is a Lipschitz constant of the margin in x. With it the upper bound is rigorous.

    >>> logistic(lambda P: P[:, 0]).values(np.array([[0.0]])).round(4).tolist()
    [0.6931]
    """
    return _of(margin, "logistic", lambda m: cvxpy().logistic(-m), lipschitz)


def probability(g: Loss) -> Risk:
    """The probability that g(x) > 0, at the values that the variables of g have.

    A probability is not convex in the decision. So ``ksos.decide(probability(g), ball)`` holds the
    decision and bounds the largest probability in the ball from both sides.

    >>> probability(lambda P: P[:, 0] - 1.0).values(np.array([[0.0], [2.0]])).tolist()
    [0.0, 1.0]
    """
    return Risk(g, "probability", happens=True)


def chance(g: Loss, alpha: float) -> Limit:
    """The constraint that g(x) > 0 has probability at most ``alpha``, for ``subject_to``.

    It is replaced by the safe, convex constraint CVaR_α(g) ≤ 0. :func:`probability` finds how
    probable g(x) > 0 can be for the decision that comes out.

    >>> chance(lambda P: P[:, 0] - 1.0, 0.1)
    chance(0.1)
    """
    return Limit(cvar(g, alpha), f"chance({alpha:g})")


# The pieces of a loss, read off its expression.


def _nodes(d: int) -> np.ndarray:
    """0, the unit vectors e_k, −e_k and e_j + e_k: they determine a quadratic function."""
    one = np.eye(d)
    rows, columns = np.triu_indices(d, 1)
    return np.concatenate([np.zeros((1, d)), one, -one, one[rows] + one[columns]])


def _parsed(risk: Risk, d: int) -> Callable[[np.ndarray, np.ndarray], Maximum] | None:
    """From the center and the width of a box to the maximum that a loss of ``d`` features is at the
    values that the variables have; None if its expression does not show that it is the maximum of
    functions that are at most quadratic in x.
    """
    P = risk.cp.Parameter((_nodes(d).shape[0], d))
    try:
        # whatever is no expression of P raises here, or is no function of CVXPY
        pieces = _branches(risk._vector(P))
    except Exception:
        return None
    degrees = np.array([_degree(piece, P) for piece in pieces])
    if len(pieces) > _MOST_PIECES or degrees.max() > 2:
        return None
    bent = degrees > 1

    def at(center: np.ndarray, width: np.ndarray) -> Maximum:
        P.value = center + width * _nodes(d)
        values = np.stack([np.broadcast_to(risk._values(piece), P.shape[0]) for piece in pieces])
        constants, up, down = values[:, 0], values[:, 1 : d + 1], values[:, d + 1 : 2 * d + 1]
        slopes = np.where(bent[:, None], 0.5 * (up - down), up - constants[:, None])
        curves = np.zeros((len(bent), d, d))
        rows, columns = np.triu_indices(d, 1)
        cross = values[:, 2 * d + 1 :] - up[:, rows] - up[:, columns] + constants[:, None]
        curves[:, rows, columns] = np.where(bent[:, None], 0.5 * cross, 0.0)
        curves += curves.transpose(0, 2, 1)
        own = np.where(bent[:, None], 0.5 * (up + down) - constants[:, None], 0.0)
        curves[:, np.arange(d), np.arange(d)] = own
        return Maximum(constants, slopes / width, curves / (width[:, None] * width), center)

    return at


def _branches(e: Any) -> list[Any]:
    """Expressions whose maximum, entry by entry, is ``e``: more than one where ``e`` is a maximum,
    or a sum or non-negative multiple of maxima. The list ends when it is too long.
    """
    kind, args = type(e).__name__, e.args
    if kind == "maximum":
        return [branch for arg in args for branch in _branches(arg)]
    if kind == "abs":
        return [*_branches(args[0]), -args[0]] if len(_branches(args[0])) == 1 else [e]
    if kind == "AddExpression":
        return _sums([_branches(arg) for arg in args])
    if kind in ("Sum", "max") and args[0].ndim == 2 and e.axis == 1:
        columns = [_branches(args[0][:, j]) for j in range(args[0].shape[1])]
        return _sums(columns) if kind == "Sum" else list(itertools.chain(*columns))
    if kind in ("multiply", "MulExpression", "DivExpression"):
        for k, factor in enumerate(args):
            positive = factor.is_nonneg() and not (factor.variables() or factor.parameters())
            # a matrix product mixes entries, unless the factor is a number
            if positive and (kind != "MulExpression" or factor.size == 1):
                mine, other = list(args), _branches(args[1 - k])
                if len(other) > 1 and not (kind == "DivExpression" and k == 0):
                    mine[1 - k] = None
                    return [e.copy([b if m is None else m for m in mine]) for b in other]
    if kind == "Hstack":
        rows = [_branches(arg) for arg in args]
        deepest = max(len(row) for row in rows)
        # entry by entry the maximum is the same if a short list repeats its last branch
        return [e.copy([row[min(k, len(row) - 1)] for row in rows]) for k in range(deepest)]
    if kind in ("index", "special_index", "Promote", "broadcast_to", "reshape", "transpose"):
        return [e.copy([branch]) for branch in _branches(args[0])]
    return [e]


def _sums(terms: list[list[Any]]) -> list[Any]:
    """All sums of one branch of each term."""
    if math.prod(map(len, terms)) > _MOST_PIECES:
        return terms[0] * (_MOST_PIECES + 1)
    return [functools.reduce(operator.add, some) for some in itertools.product(*terms)]


def _degree(e: Any, P: Any) -> float:
    """An upper bound of the degree of an expression as a polynomial in the parameter P of the
    points; infinite if it is none.
    """
    if not any(parameter is P for parameter in e.parameters()):
        return 0.0
    if not e.args:
        return 1.0
    kind, degrees = type(e).__name__, [_degree(arg, P) for arg in e.args]
    if kind in _LINEAR:
        return max(degrees)
    if kind in ("multiply", "MulExpression"):
        return sum(degrees)
    if kind == "DivExpression" and degrees[1] == 0.0:
        return degrees[0]
    if kind in ("power", "PowerApprox") and float(e.p.value) == 2.0:
        return 2.0 * degrees[0]
    return float("inf")


# CVXPY's names of what is linear in all of its arguments together.
_LINEAR = {
    *("AddExpression", "NegExpression", "Sum", "Promote", "broadcast_to", "index"),
    *("special_index", "reshape", "transpose", "Hstack", "Vstack", "Concatenate"),
}


def parts_of(subject_to: Any) -> tuple[list[Any], list[Limit]]:
    """The constraints of CVXPY and those on risks, from a list of both."""
    cp = cvxpy()
    one = isinstance(subject_to, Limit | cp.constraints.constraint.Constraint)
    given = [subject_to] if one else list(subject_to)
    plain: list[Any] = []
    limits: list[Limit] = []
    for constraint in given:
        if isinstance(constraint, Limit):
            limits.append(constraint)
        elif isinstance(constraint, cp.constraints.constraint.Constraint):
            plain.append(constraint)
        else:
            raise TypeError(
                "subject_to takes CVXPY constraints such as cp.sum(x) == 1, and risks with a bound"
                f" such as ksos.risk.cvar(f, 0.05) <= 1.0; got {constraint!r}"
            )
    if wrong := [constraint for constraint in plain if not constraint.is_dcp()]:
        raise ConvexityError(f"{wrong[0]} is not a convex constraint by the rules of CVXPY")
    return plain, limits
