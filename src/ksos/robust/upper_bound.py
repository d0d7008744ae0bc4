"""What no distribution at all can exceed: sup_x(ℓ − g) + ⟨g, w_μ̂⟩ + ε‖g‖ for a function g of the RKHS, whatever g is.

For μ with MMD(μ, μ̂) ≤ ε: E_μ ℓ = E_μ(ℓ − g) + ⟨g, w_μ − w_μ̂⟩ + ⟨g, w_μ̂⟩ ≤ sup(ℓ − g) + ε‖g‖ + ⟨g, w_μ̂⟩. The dual function of the worst
case over a space of densities is a good g. With labels there is one g for each, and the supremum is over the labels too.

The supremum is proven by branch and bound. On a cell with centre c and half-widths h a function is bounded in two ways,

    f(x) ≤ f(c) + flat                    and            f(x) ≤ f(c) + ⟨slope, x − c⟩ + bend,

both of which add up over the terms of a sum. For an element of an RKHS they follow from ‖f‖: |f(x) − f(c)| ≤ ‖f‖·‖φ(x) − φ(c)‖, and for the
Gaussian kernel |f(x) − f(c) − ⟨∇f(c), x − c⟩| ≤ ‖f‖·√3·‖(x − c)/σ‖².
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ksos._array import to_numpy
from ksos._deadline import Deadline
from ksos._memory import row_blocks
from ksos.embedding import MeanEmbedding
from ksos.kernels import Gaussian
from ksos.labelled import LabelledEmbedding
from ksos.measures import Box, Measure
from ksos.observables import BoxIndicator, KernelFunction, NumericFunction, Observable, Polynomial
from ksos.robust.atoms import worst_atoms
from ksos.robust.setting import scattered
from ksos.space import SoSSpace

__all__ = [
    "CellBound",
    "Enclosure",
    "Supremum",
    "UpperBound",
    "enclosure",
    "proven_supremum",
    "searched_supremum",
    "supremum_on",
    "upper_bound",
]

_DIGITS = 1e-5  # of the spread of the loss, to which the supremum is enclosed
_TAIL = -30.0  # log of what a kernel's tail may add beyond the box that is searched
_CLOSE, _ROUNDS, _MOST_ATOMS = 1e-3, 4, 600
_MOST_ENTRIES, _MOST_CELLS, _FEW_CELLS, _CUT_FEATURES = 6e7, 600_000, 30_000, 3
_LOOSE = 0.1  # a supremum that is not enclosed better than this is not worth a better g
_FIRST_CELLS, _MOST_PENDING = 4096, 200_000
_STARTS, _SEARCHED = 8, 8192
_BLOCK_ELEMENTS = 1 << 21
_ROUNDING = 4.0 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class UpperBound:
    """A bound of E_μ ℓ over all distributions μ of the domain in the ball (or of E_μ ℓ − γ·MMD²)."""

    value: float
    kind: str
    """"rigorous": proven; "estimate": the supremum was searched for, not enclosed; "infinite": the loss has no bound on the domain."""
    at: np.ndarray | None
    """Where ℓ − g is largest: a place that the worst of all distributions is likely to use."""
    slack: float = 0.0
    """By how much the proven supremum exceeds what ℓ − g attains there: large where there were too few cells for so many features."""


def upper_bound(
    losses: Sequence[Observable],
    gs: Sequence[KernelFunction],
    size: float,
    data: MeanEmbedding | LabelledEmbedding,
    measure: Measure,
    box: Box,
    deadline: Deadline,
    *,
    spread: float,
    radius: float | None,
    gamma: float | None = None,
    lipschitz: float | None = None,
    space: SoSSpace | None = None,
    target: float = math.inf,
) -> UpperBound:
    """The bound that g, of norm ``size``, gives: one loss and one g per label; ``box`` is searched if nothing can be proven.

    With a ``space``, other functions on its landmarks are tried as well while the bound is farther from ``target`` than a thousandth of the
    spread: those that are best against atoms, among them the places where the last one was worst.
    """
    parts = data.parts if isinstance(data, LabelledEmbedding) else (data,)
    points = np.concatenate([to_numpy(part.points) for part in parts if part is not None])

    def bound(gs: Sequence[KernelFunction], size: float) -> UpperBound:
        tops, tol = [], _DIGITS * max(spread, 1e-300)
        for loss, g in zip(losses, gs, strict=True):
            found = supremum_on(loss, g, measure, box, points, tol, lipschitz, deadline)
            if found is None:
                return UpperBound(math.inf, "infinite", None)
            tops.append(found)
        highest = max(tops, key=lambda top: top.bound)
        norms = [float(g.weights @ g.kernel(g.points) @ g.weights) for g in gs]
        size = max(size, math.sqrt(max(sum(norms), 0.0)))
        rest = size * radius if radius is not None else size**2 / (4.0 * float(gamma or 1.0))
        seen = sum(float(to_numpy(p.weights) @ g(to_numpy(p.points))) for p, g in zip(parts, gs, strict=True) if p is not None)
        kind = "rigorous" if all(top.proven for top in tops) else "estimate"
        return UpperBound(highest.bound + seen + rest, kind, highest.at, highest.bound - highest.attained)

    best = bound(gs, size)
    if best.at is None or best.value - target <= _CLOSE * spread or deadline.passed:
        return best
    nothing = bound([KernelFunction(g.points[:1], [0.0], kernel=g.kernel) for g in gs], 0.0)  # sup ℓ itself
    if nothing.value < best.value:
        best = nothing
    if space is None or best.slack > _LOOSE * spread:
        return best
    assert isinstance(data, MeanEmbedding)
    game = _Atoms(losses[0], space, data, measure, box, radius, gamma)
    latest = best
    for _ in range(_ROUNDS):
        if deadline.passed:
            break
        game.add(latest.at)
        try:
            g, size, value = game.answer()
        except RuntimeError:  # a projection that does not converge: what has been proven stays
            break
        latest = bound([g], size)
        if latest.value < best.value:
            best = latest
        if best.value - value <= _CLOSE * spread:
            break
    return best


class _Atoms:
    """The dual function that is best against the distributions on a growing set of atoms."""

    def __init__(
        self,
        loss: Observable,
        space: SoSSpace,
        data: MeanEmbedding,
        measure: Measure,
        box: Box,
        radius: float | None,
        gamma: float | None,
    ) -> None:
        self.loss, self.radius, self.gamma, points = loss, radius, gamma, to_numpy(data.points)
        self.kernel, self.Z, self.S = space.embedding_kernel, to_numpy(space.landmarks), to_numpy(space.projection.S)
        self.z = self.S @ (self.kernel(self.Z, points) @ to_numpy(data.weights))
        if measure.atoms is not None:
            atoms = measure.atoms.points[:: max(1, measure.atoms.points.shape[0] // _MOST_ATOMS)]
        else:
            atoms = np.concatenate([scattered(box, _MOST_ATOMS // 2), points[: _MOST_ATOMS // 4], self.Z])
            atoms = atoms[measure.contains(atoms)]
        tail = None if measure.bounded else _tail(loss, measure, box)
        self.far = [] if tail is None else [tail[1]]
        """Losses of atoms that are too far away for the landmarks to see."""
        self.atoms, self.values = atoms, loss(atoms)

    def add(self, x: np.ndarray | None) -> None:
        """One more atom."""
        if x is not None:
            self.atoms, self.values = np.vstack([self.atoms, x]), np.append(self.values, self.loss(x[None, :]))

    def answer(self) -> tuple[KernelFunction, float, float]:
        """(g, its norm, the atoms' value): how badly the atoms do in the ball, and the function that proves it."""
        Phi = self.S @ self.kernel(self.Z, self.atoms)
        Phi = np.hstack([Phi, np.zeros((Phi.shape[0], len(self.far)))])
        found = worst_atoms(Phi, self.z, np.append(self.values, self.far), self.radius, self.gamma, digits=1e-3)
        value = found.value if self.gamma is None else found.value - self.gamma * found.distance**2
        return KernelFunction(self.Z, self.S.T @ found.y, kernel=self.kernel), float(np.linalg.norm(found.y)), value


def supremum_on(
    loss: Observable, g: KernelFunction, measure: Measure, box: Box, candidates: np.ndarray, tol: float, lipschitz: float | None,
    deadline: Deadline | None = None,
) -> Supremum | None:  # fmt: skip
    """sup(ℓ − g) on the support of a measure; None if ℓ is unbounded on it."""
    deadline = Deadline() if deadline is None else deadline
    difference = loss - g
    if measure.atoms is not None:
        values = difference(measure.atoms.points)
        first = int(np.argmax(values))
        return Supremum(float(values[first]), float(values[first]), measure.atoms.points[first], True)
    bounds = enclosure(difference, lipschitz)
    most = _MOST_CELLS if g.points.shape[1] <= _CUT_FEATURES else _FEW_CELLS
    cells = int(min(most, _MOST_ENTRIES / max(g.points.shape[0], 1)))
    if measure.region is not None:
        if bounds is None:
            return searched_supremum(difference, measure.region, candidates, deadline)
        return proven_supremum(bounds, measure.region, tol, cells, deadline)
    if loss.bounded is False:
        return None
    tail = _tail(difference, measure, box)
    if bounds is None or tail is None:
        return searched_supremum(difference, box, candidates, deadline)
    found = proven_supremum(bounds, tail[0], tol, cells, deadline)  # on a box, and the bound outside of it
    return Supremum(max(found.bound, tail[1]), found.attained, found.at, True)


def _tail(difference: Observable, measure: Measure, box: Box) -> tuple[Box, float] | None:
    """A box outside of which every part is nearly constant, and the bound of the sum there; None if a part is unknown."""
    low, high, bound = box.low.copy(), box.high.copy(), 0.0
    for scale, part in difference.parts():
        if isinstance(part, KernelFunction):
            total = abs(scale) * float(np.sum(np.abs(part.weights)))
            level = _TAIL - math.log(max(total, 1e-300)) if total > 1.0 else _TAIL
            reach = part.kernel.reach(level) * part.kernel.sigma_vector(part.points.shape[1])
            low, high = np.minimum(low, part.points.min(axis=0) - reach), np.maximum(high, part.points.max(axis=0) + reach)
            bound += total * math.exp(level)
        elif isinstance(part, BoxIndicator):
            sides = part.box.low, part.box.high
            low = np.minimum(low, np.where(np.isfinite(sides[0]), sides[0], low))
            high = np.maximum(high, np.where(np.isfinite(sides[1]), sides[1], high))
            bound += max(scale, 0.0)
        elif isinstance(part, Polynomial) and part.degree == 0:
            bound += scale * part.terms.get((), 0.0)
        else:
            return None
    lowest, highest = measure.boundaries(low.shape[0])
    return Box(np.maximum(low, lowest), np.minimum(high, highest)), bound


# --- the supremum of a function on a box ---


@dataclass(frozen=True)
class Supremum:
    """sup f on a domain: at least ``attained``, which is f at the point ``at``; where ``proven``, at most ``bound``."""

    bound: float
    attained: float
    at: np.ndarray
    proven: bool


def proven_supremum(bounds: Enclosure, box: Box, tol: float, max_cells: int = _MOST_CELLS, deadline: Deadline | None = None) -> Supremum:
    """Cut the box into cells and drop those whose bound is below what is attained elsewhere, until bound and value agree to ``tol``.

    Whatever the number of cells, the bound holds; with too few, or too little time, it is not sharp.

    >>> from ksos.observables import Polynomial
    >>> found = proven_supremum(enclosure(Polynomial([0.0, 1.0, -1.0])), Box([0.0], [2.0]), 1e-6)  # x − x², at most 1/4
    >>> bool(0.25 <= found.bound <= 0.25 + 1e-6), found.at.round(2).tolist()
    (True, [0.5])
    """
    d, width = box.low.shape[0], box.high - box.low
    per_side = max(1, int(_FIRST_CELLS ** (1.0 / d)))
    edges = [np.arange(per_side) / per_side for _ in range(d)]
    corner = np.stack([axis.ravel() for axis in np.meshgrid(*edges, indexing="ij")], axis=1)
    half = np.full_like(corner, 0.5 / per_side)
    centre, best, at, dropped, seen = corner + half, -math.inf, box.low, -math.inf, 0
    ceiling = math.inf
    while True:
        x = np.clip(box.low + width * centre, box.low, box.high)
        # a centre is rounded: its cell is widened by as much
        reach = width * half + 4.0 * np.finfo(float).eps * np.maximum(np.abs(box.low), np.abs(box.high))
        found = bounds(x, reach)
        upper = found.upper(reach)
        seen += centre.shape[0]
        if found.value.max() > best:
            best, at = float(found.value.max()), x[int(np.argmax(found.value))]
        keep = upper > best + tol
        dropped = max(dropped, float(upper[~keep].max(initial=-math.inf)))
        if not np.any(keep):
            return Supremum(max(dropped, best), best, at, True)
        ceiling = max(dropped, float(upper[keep].max()))
        pieces = 2 ** min(d, 2)
        if seen + pieces * int(keep.sum()) > max_cells or keep.sum() > _MOST_PENDING or (deadline is not None and deadline.passed):
            return Supremum(max(ceiling, best), best, at, True)
        centre, half = _split(centre[keep], half[keep], found.slope[keep] * width)


def _split(centre: np.ndarray, half: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each cell in two along its longest side, or in four along the two longest; of equal sides the steepest come first."""
    n, d = centre.shape
    order = np.lexsort((-np.abs(slope), -half), axis=1)
    for axis in range(min(d, 2)):
        k = np.tile(order[:, axis], centre.shape[0] // n)
        rows = np.arange(centre.shape[0])
        half = half.copy()
        half[rows, k] *= 0.5
        left, right = centre.copy(), centre.copy()
        left[rows, k] -= half[rows, k]
        right[rows, k] += half[rows, k]
        centre, half = np.concatenate([left, right]), np.concatenate([half, half])
    return centre, half


def searched_supremum(f: Observable, box: Box, candidates: np.ndarray, deadline: Deadline | None = None) -> Supremum:
    """The best of many points and of local searches from the best of them: an estimate from below."""
    from scipy.optimize import minimize

    X = np.concatenate([scattered(box, _SEARCHED), candidates[np.all((candidates >= box.low) & (candidates <= box.high), axis=1)]])
    values = f(X)
    width = box.high - box.low
    best, at, scale = float(values.max()), X[int(np.argmax(values))], max(float(np.ptp(values)), 1e-300)
    for i in np.argsort(-values)[:_STARTS]:
        if deadline is not None and deadline.passed:
            break
        found = minimize(
            lambda t: -float(f(np.clip(box.low + width * t, box.low, box.high)[None, :])[0]) / scale,
            (X[i] - box.low) / width,
            method="L-BFGS-B",
            bounds=[(0.0, 1.0)] * width.shape[0],
        )
        x = np.clip(box.low + width * found.x, box.low, box.high)
        value = float(f(x[None, :])[0])
        if value > best:
            best, at = value, x
    return Supremum(best, best, at, False)


# --- bounds on cells ---


@dataclass(frozen=True)
class CellBound:
    """What is known of a function on n cells."""

    value: np.ndarray
    """f(c), shape (n,)."""
    flat: np.ndarray
    slope: np.ndarray
    """(n, d)."""
    bend: np.ndarray

    def __add__(self, other: CellBound) -> CellBound:
        return CellBound(self.value + other.value, self.flat + other.flat, self.slope + other.slope, self.bend + other.bend)

    def upper(self, half: np.ndarray) -> np.ndarray:
        """The better of the two bounds, per cell."""
        return self.value + np.minimum(self.flat, np.sum(np.abs(self.slope) * half, axis=1) + self.bend)


Enclosure = Callable[[np.ndarray, np.ndarray], CellBound]
"""From centres (n, d) and half-widths (n, d) to bounds."""


def enclosure(f: Observable, lipschitz: float | None = None) -> Enclosure | None:
    """The bounds of a function that is made of polynomials, kernel functions and indicators of boxes; None if some part is unknown.

    ``lipschitz`` is a constant for the parts that are code: |f(x) − f(x')| ≤ L‖x − x'‖.
    """
    parts: list[Enclosure] = []
    kernel_parts: list[tuple[float, KernelFunction]] = []
    for scale, part in _parts(f):
        if isinstance(part, KernelFunction):
            kernel_parts.append((scale, part))
        elif isinstance(part, Polynomial):
            parts.append(_of_polynomial(scale, part))
        elif isinstance(part, BoxIndicator):
            parts.append(_of_indicator(scale, part))
        elif lipschitz is not None:
            parts.append(_of_lipschitz(scale, part, lipschitz))
        else:
            return None
    parts.extend(_of_kernel_function(merged) for merged in _merged(kernel_parts))
    return lambda centres, half: _total([part(centres, half) for part in parts], centres)


def _parts(f: Observable) -> list[tuple[float, Observable]]:
    """f as Σ scale·part, looking through functions that are only wrapped to be integrated by quadrature."""
    out: list[tuple[float, Observable]] = []
    for scale, part in f.parts():
        if isinstance(part, NumericFunction) and isinstance(part.function, Observable):
            out += [(scale * factor, inner) for factor, inner in _parts(part.function)]
        else:
            out.append((scale, part))
    return out


def _total(bounds: Sequence[CellBound], centres: np.ndarray) -> CellBound:
    zero = np.zeros(centres.shape[0])
    total = CellBound(zero, zero, np.zeros_like(centres), zero)
    for bound in bounds:
        total = total + bound
    return total


def _merged(parts: Sequence[tuple[float, KernelFunction]]) -> list[KernelFunction]:
    """Functions of one RKHS added up: the norm of a sum is less than the sum of the norms."""
    by_kernel: dict[object, list[tuple[float, KernelFunction]]] = {}
    for scale, part in parts:
        by_kernel.setdefault(part.kernel, []).append((scale, part))
    return [
        KernelFunction(
            np.concatenate([part.points for _, part in group]),
            np.concatenate([scale * part.weights for scale, part in group]),
            kernel=group[0][1].kernel,
        )
        for group in by_kernel.values()
    ]


def _of_kernel_function(f: KernelFunction) -> Enclosure:
    kernel, Z, w, d = f.kernel, f.points, f.weights, f.points.shape[1]
    sigma = kernel.sigma_vector(d)
    noise = _ROUNDING * w.shape[0] * float(np.sum(np.abs(w)))  # of a sum of terms that cancel
    size = math.sqrt(max(float(w @ kernel(Z) @ w), 0.0)) + math.sqrt(noise * float(np.sum(np.abs(w))))
    highest = min(size, float(np.sum(np.maximum(w, 0.0)))) + noise  # f(x) = ⟨f, φ(x)⟩, and k is at most 1
    gaussian = isinstance(kernel, Gaussian)

    def bounds(centres: np.ndarray, half: np.ndarray) -> CellBound:
        n = centres.shape[0]
        value, slope = np.empty(n), np.zeros((n, d))
        for rows in row_blocks(n, Z.shape[0], _BLOCK_ELEMENTS):
            K = kernel(centres[rows], Z) * w
            value[rows] = K.sum(axis=1)
            if gaussian:
                shifted = (Z - Z[0]) / sigma
                slope[rows] = 2.0 * (K @ shifted - value[rows, None] * ((centres[rows] - Z[0]) / sigma)) / sigma
        reach = half / sigma
        # κ falls with the distance, so ‖φ(x) − φ(c)‖² = 2 − 2k(x, c) is largest at the corners of the cell
        flat = size * np.sqrt(np.maximum(-2.0 * np.expm1(_log_kernel_at(f, reach)), 0.0)) + noise
        flat = np.minimum(flat, np.maximum(highest - value, 0.0))
        bend = size * math.sqrt(3.0) * np.sum(reach**2, axis=1) + noise * (1.0 + np.sum(reach, axis=1)) if gaussian else flat
        return CellBound(value, flat, slope, bend)

    return bounds


def _log_kernel_at(f: KernelFunction, reach: np.ndarray) -> np.ndarray:
    """log k at scaled differences (n, d)."""
    kernel = f.kernel
    if kernel.product:
        return np.asarray(np.sum(kernel.log_profile(reach**2), axis=1))
    return np.asarray(kernel.log_profile(np.sum(reach**2, axis=1)))


def _of_polynomial(scale: float, f: Polynomial) -> Enclosure:
    """Taylor's expansion at the centre, complete: even powers are not negative, all others are at most |coefficient|·h^α."""

    def bounds(centres: np.ndarray, half: np.ndarray) -> CellBound:
        n = centres.shape[0]
        value, slope, bend = np.zeros(n), np.zeros_like(centres), np.zeros(n)
        coefficients: dict[tuple[tuple[int, int], ...], np.ndarray] = {}
        for monomial, c in f.terms.items():
            choices = [range(power + 1) for _, power in monomial]
            for powers in itertools.product(*choices):
                term = np.full(n, scale * c)
                for (k, power), j in zip(monomial, powers, strict=True):
                    term = term * math.comb(power, j) * (centres[:, k] - f.centre.get(k, 0.0)) ** (power - j)
                key = tuple((k, j) for (k, _), j in zip(monomial, powers, strict=True) if j)
                coefficients[key] = coefficients[key] + term if key in coefficients else term
        size = np.zeros(n)
        for key, coefficient in coefficients.items():
            if not key:
                value = value + coefficient
            elif len(key) == 1 and key[0][1] == 1:
                slope[:, key[0][0]] += coefficient
            else:
                reach = np.prod([half[:, k] ** j for k, j in key], axis=0)
                bend += np.where(all(j % 2 == 0 for _, j in key), np.maximum(coefficient, 0.0), np.abs(coefficient)) * reach
            size += np.abs(coefficient) * np.prod([half[:, k] ** j for k, j in key], axis=0)
        noise = _ROUNDING * (len(coefficients) + 4) * size
        flat = np.sum(np.abs(slope) * half, axis=1) + bend + noise
        return CellBound(value, flat, slope, bend + noise)

    return bounds


def _of_indicator(scale: float, f: BoxIndicator) -> Enclosure:
    """1 on a cell that meets the box where the sign is +, 0 on a cell that is not inside it where the sign is −."""
    low, high = f.box.low, f.box.high

    def bounds(centres: np.ndarray, half: np.ndarray) -> CellBound:
        meets = np.all((centres + half >= low) & (centres - half <= high), axis=1)
        inside = np.all((centres - half >= low) & (centres + half <= high), axis=1)
        value = scale * f(centres)
        rest = (scale * meets if scale > 0.0 else scale * inside) - value
        return CellBound(value, rest, np.zeros_like(centres), rest)

    return bounds


def _of_lipschitz(scale: float, f: Observable, constant: float) -> Enclosure:
    def bounds(centres: np.ndarray, half: np.ndarray) -> CellBound:
        rest = abs(scale) * constant * np.sqrt(np.sum(half**2, axis=1))
        return CellBound(scale * f(centres), rest, np.zeros_like(centres), rest)

    return bounds
