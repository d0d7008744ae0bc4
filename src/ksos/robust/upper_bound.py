"""What no distribution at all can exceed: sup_x(ℓ − g) + ⟨g, w_μ̂⟩ + ε‖g‖ for a function g of the
RKHS, whatever g is.

For μ with MMD(μ, μ̂) ≤ ε: E_μ ℓ = E_μ(ℓ − g) + ⟨g, w_μ − w_μ̂⟩ + ⟨g, w_μ̂⟩ ≤ sup(ℓ − g) + ε‖g‖ +
⟨g, w_μ̂⟩. The dual function of the worst case over a space of densities is a good g. With labels
there is one g for each, and the supremum is over the labels too.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ksos.ground.arrays import to_numpy
from ksos.ground.run import Run
from ksos.measures import Box, Measure
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    Observable,
    Polynomial,
    Supremum,
    enclosure,
    proven_supremum,
    searched_supremum,
)
from ksos.robust.atoms import worst_atoms
from ksos.robust.ball import Adversary
from ksos.space import LabelledEmbedding, MeanEmbedding, SoSSpace, scattered

__all__ = ["UpperBound", "supremum_on", "upper_bound"]

_DIGITS = 1e-5  # of the range of the loss, to which the supremum is enclosed
_TAIL = -30.0  # log of what a kernel's tail may add beyond the box that is searched: e^−30 = 1e-13
# Other functions g are tried while the bound is farther than a thousandth of the range of the loss
# from what a density attains, a few times: each costs a supremum.
_CLOSE, _ROUNDS, _MOST_ATOMS = 1e-3, 4, 600
# A supremum that is not enclosed better than to a tenth of the range is not worth a better g.
_LOOSE = 0.1
# Cells times centers of g: about a second. Beyond three features, cutting cells hardly helps.
_MOST_ENTRIES, _MOST_CELLS, _FEW_CELLS, _CUT_FEATURES = 6e7, 600_000, 30_000, 3
_SEARCHED = 8192  # starting points of a search, a power of two as Sobol' points need
# A loss that grows from each of these multiples of the box to the next counts as unbounded.
_FARTHER = (1.0, 3.0, 9.0, 27.0)


@dataclass(frozen=True)
class UpperBound:
    """A bound of E_μ ℓ over all distributions μ of the domain in the ball (or of E_μ ℓ − γ·MMD²).

    ``kind`` is "rigorous", "estimate" if the supremum was searched for and not enclosed, or
    "infinite" if the loss has no bound on the domain. ``at`` is where ℓ − g is largest: a place
    that the worst of all distributions is likely to use. The proven supremum exceeds what ℓ − g
    attains there by ``slack``, which is large if there were too few cells for so many features.
    """

    value: float
    kind: str
    at: np.ndarray | None
    slack: float = 0.0


def upper_bound(
    losses: Sequence[Observable],
    gs: Sequence[KernelFunction],
    size: float,
    data: MeanEmbedding | LabelledEmbedding,
    adversary: Adversary,
    *,
    unit: float,
    radius: float | None,
    gamma: float | None = None,
    lipschitz: float | None = None,
    space: SoSSpace | None = None,
    target: float = math.inf,
) -> UpperBound:
    """The bound that g, of norm ``size``, gives: one loss and one g per label. The box of the
    adversary is searched if nothing can be proven. ``unit`` is the range of the loss.

    With a ``space``, other functions on its landmarks are tried as well while the bound is far from
    ``target``: those that are best against atoms, among them the places where the last one was
    worst.
    """
    parts = data.parts if isinstance(data, LabelledEmbedding) else (data,)
    points = np.concatenate([to_numpy(part.points) for part in parts if part is not None])
    measure, box = adversary.ball.domain, adversary.box

    def bound(gs: Sequence[KernelFunction], size: float) -> UpperBound:
        tops, tol, seen, square = [], _DIGITS * max(unit, 1e-300), 0.0, 0.0
        for loss, g, part in zip(losses, gs, parts, strict=True):
            found = supremum_on(loss, g, measure, box, points, tol, lipschitz)
            if found is None:
                return UpperBound(math.inf, "infinite", None)
            tops.append(found)
            square += float(g.weights @ g.kernel(g.points) @ g.weights)
            if part is not None:
                seen += float(to_numpy(part.weights) @ g(to_numpy(part.points)))
        highest = max(tops, key=lambda top: top.bound)
        size = max(size, math.sqrt(max(square, 0.0)))
        rest = size * radius if radius is not None else size**2 / (4.0 * float(gamma or 1.0))
        kind = "rigorous" if all(top.proven for top in tops) else "estimate"
        slack = highest.bound - highest.attained
        return UpperBound(highest.bound + seen + rest, kind, highest.at, slack)

    best = bound(gs, size)
    if best.at is None or best.value - target <= _CLOSE * unit or Run.current().over:
        return best
    # g = 0: the supremum of the loss itself
    nothing = bound([KernelFunction(g.points[:1], [0.0], kernel=g.kernel) for g in gs], 0.0)
    best = latest = min(best, nothing, key=lambda found: found.value)
    if space is None or best.slack > _LOOSE * unit:
        return best
    assert isinstance(data, MeanEmbedding)
    game = _Game(losses[0], space, data, box)
    for _ in range(_ROUNDS):
        if Run.current().over:
            break
        game.add(latest.at)
        try:
            g, size, value = game.answer(radius, gamma)
        except RuntimeError:  # a projection that does not converge: what has been proven stays
            break
        latest = bound([g], size)
        best = min(best, latest, key=lambda found: found.value)
        if best.value - value <= _CLOSE * unit:
            break
    return best


class _Game:
    """The dual function on the landmarks that is best against the distributions on a growing set of
    atoms.
    """

    def __init__(self, loss: Observable, space: SoSSpace, data: MeanEmbedding, box: Box) -> None:
        points, measure = to_numpy(data.points), space.measure
        self.loss, self.kernel, self.Z = loss, space.embedding_kernel, to_numpy(space.landmarks)
        self.S = to_numpy(space.projection.S)
        self.z = self.S @ (self.kernel(self.Z, points) @ to_numpy(data.weights))
        if measure.atoms is not None:
            atoms = measure.atoms.points[:: max(1, measure.atoms.points.shape[0] // _MOST_ATOMS)]
        else:
            spread = scattered(box, _MOST_ATOMS // 2)
            atoms = np.concatenate([spread, points[: _MOST_ATOMS // 4], self.Z])
            atoms = atoms[measure.contains(atoms)]
        self.atoms, self.values = atoms, loss(atoms)
        tail = None if measure.bounded else _tail(loss, measure, box)
        # losses of atoms that are too far away for the landmarks to see
        self.far = [] if tail is None else [tail[1]]

    def add(self, x: np.ndarray | None) -> None:
        """One more atom."""
        if x is not None:
            self.atoms = np.vstack([self.atoms, x])
            self.values = np.append(self.values, self.loss(x[None, :]))

    def answer(
        self, radius: float | None, gamma: float | None
    ) -> tuple[KernelFunction, float, float]:
        """(g, its norm, the atoms' value): how badly the atoms do in the ball, and the function
        that proves it.
        """
        Phi = self.S @ self.kernel(self.Z, self.atoms)
        Phi = np.hstack([Phi, np.zeros((Phi.shape[0], len(self.far)))])
        values = np.append(self.values, self.far)
        found = worst_atoms(Phi, self.z, values, radius, gamma, digits=1e-3)
        value = found.value - (gamma or 0.0) * found.distance**2
        g = KernelFunction(self.Z, self.S.T @ found.y, kernel=self.kernel)
        return g, float(np.linalg.norm(found.y)), value


def supremum_on(
    loss: Observable,
    g: KernelFunction,
    measure: Measure,
    box: Box,
    candidates: np.ndarray,
    tol: float,
    lipschitz: float | None,
) -> Supremum | None:
    """sup(ℓ − g) on the support of a measure, or None if ℓ is unbounded on it."""
    difference = loss - g
    if measure.atoms is not None:
        values = difference(measure.atoms.points)
        first = int(np.argmax(values))
        highest = float(values[first])
        return Supremum(highest, highest, measure.atoms.points[first], True)
    if measure.region is None and loss.bounded is False:
        return None
    bounds, outside, where = enclosure(difference, lipschitz), -math.inf, measure.region
    if where is None and (tail := _tail(difference, measure, box)) is not None:
        where, outside = tail
    if bounds is None or where is None:
        if measure.region is None and loss.bounded is None and _grows(loss, measure, box, tol):
            return None
        where = measure.region or box
        return searched_supremum(difference, where, scattered(where, _SEARCHED, candidates))
    most = _MOST_CELLS if g.points.shape[1] <= _CUT_FEATURES else _FEW_CELLS
    cells = int(min(most, _MOST_ENTRIES / max(g.points.shape[0], 1)))
    found = proven_supremum(bounds, where, tol, cells)
    return Supremum(max(found.bound, outside), found.attained, found.at, True)


def _grows(loss: Observable, measure: Measure, box: Box, tol: float) -> bool:
    """Whether a loss of which nothing is known has ever larger values in ever larger boxes: then no
    search in one of them bounds it.
    """
    middle = 0.5 * (box.low + box.high)
    ends, inside = measure.boundaries(middle.shape[0]), scattered(box, _SEARCHED // 8)
    places = (np.clip(middle + factor * (inside - middle), *ends) for factor in _FARTHER)
    highest = [float(loss(X).max()) for X in places]
    return all(
        larger > smaller + max(tol, 0.1 * abs(smaller))
        for smaller, larger in itertools.pairwise(highest)
    )


def _tail(difference: Observable, measure: Measure, box: Box) -> tuple[Box, float] | None:
    """A box outside of which every part is nearly constant, and the bound of the sum there, or None
    if a part is unknown.
    """
    low, high, bound = box.low.copy(), box.high.copy(), 0.0
    for scale, part in difference.parts():
        if isinstance(part, KernelFunction):
            total = abs(scale) * float(np.sum(np.abs(part.weights)))
            level = _TAIL - math.log(max(total, 1.0))
            reach = part.kernel.reach(level) * part.kernel.sigma_vector(part.points.shape[1])
            low = np.minimum(low, part.points.min(axis=0) - reach)
            high = np.maximum(high, part.points.max(axis=0) + reach)
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
