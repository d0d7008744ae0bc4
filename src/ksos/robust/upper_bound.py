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
from ksos.ground.deadline import Deadline
from ksos.measures import Box, Measure
from ksos.observables import BoxIndicator, KernelFunction, Observable, Polynomial
from ksos.observables.supremum import Supremum, enclosure, proven_supremum, searched_supremum
from ksos.robust.atoms import worst_atoms
from ksos.robust.ball import Adversary
from ksos.space.embedding import MeanEmbedding
from ksos.space.labelled import LabelledEmbedding
from ksos.space.space import SoSSpace
from ksos.space.support import scattered

__all__ = ["UpperBound", "supremum_on", "upper_bound"]

_DIGITS = 1e-5  # of the spread of the loss, to which the supremum is enclosed
_TAIL = -30.0  # log of what a kernel's tail may add beyond the box that is searched
_CLOSE, _ROUNDS, _MOST_ATOMS = 1e-3, 4, 600
_MOST_ENTRIES, _MOST_CELLS, _FEW_CELLS, _CUT_FEATURES = 6e7, 600_000, 30_000, 3
_LOOSE = 0.1  # a supremum that is not enclosed better than this is not worth a better g
_SEARCHED = 8192
_FARTHER = (1.0, 3.0, 9.0, 27.0)


@dataclass(frozen=True)
class UpperBound:
    """A bound of E_μ ℓ over all distributions μ of the domain in the ball (or of E_μ ℓ − γ·MMD²)."""

    value: float
    kind: str
    """"rigorous": proven; "estimate": the supremum was searched for, not enclosed; "infinite": the
    loss has no bound on the domain.
    """
    at: np.ndarray | None
    """Where ℓ − g is largest: a place that the worst of all distributions is likely to use."""
    slack: float = 0.0
    """By how much the proven supremum exceeds what ℓ − g attains there: large where there were too
    few cells for so many features.
    """


def upper_bound(
    losses: Sequence[Observable],
    gs: Sequence[KernelFunction],
    size: float,
    data: MeanEmbedding | LabelledEmbedding,
    adversary: Adversary,
    deadline: Deadline,
    *,
    spread: float,
    radius: float | None,
    gamma: float | None = None,
    lipschitz: float | None = None,
    space: SoSSpace | None = None,
    target: float = math.inf,
) -> UpperBound:
    """The bound that g, of norm ``size``, gives: one loss and one g per label; the box of the
    adversary is searched if nothing can be proven.

    With a ``space``, other functions on its landmarks are tried as well while the bound is farther
    from ``target`` than a thousandth of the spread: those that are best against atoms, among them
    the places where the last one was worst.
    """
    parts = data.parts if isinstance(data, LabelledEmbedding) else (data,)
    points = np.concatenate([to_numpy(part.points) for part in parts if part is not None])

    def bound(gs: Sequence[KernelFunction], size: float) -> UpperBound:
        tops, tol = [], _DIGITS * max(spread, 1e-300)
        for loss, g in zip(losses, gs, strict=True):
            found = supremum_on(
                loss, g, adversary.measure, adversary.box, points, tol, lipschitz, deadline
            )
            if found is None:
                return UpperBound(math.inf, "infinite", None)
            tops.append(found)
        highest = max(tops, key=lambda top: top.bound)
        norms = [float(g.weights @ g.kernel(g.points) @ g.weights) for g in gs]
        size = max(size, math.sqrt(max(sum(norms), 0.0)))
        rest = size * radius if radius is not None else size**2 / (4.0 * float(gamma or 1.0))
        seen = sum(
            float(to_numpy(p.weights) @ g(to_numpy(p.points)))
            for p, g in zip(parts, gs, strict=True)
            if p is not None
        )
        kind = "rigorous" if all(top.proven for top in tops) else "estimate"
        return UpperBound(
            highest.bound + seen + rest, kind, highest.at, highest.bound - highest.attained
        )

    best = bound(gs, size)
    if best.at is None or best.value - target <= _CLOSE * spread or deadline.passed:
        return best
    nothing = bound(
        [KernelFunction(g.points[:1], [0.0], kernel=g.kernel) for g in gs], 0.0
    )  # sup ℓ itself
    if nothing.value < best.value:
        best = nothing
    if space is None or best.slack > _LOOSE * spread:
        return best
    assert isinstance(data, MeanEmbedding)
    game = _Atoms(losses[0], space, data, adversary.box, radius, gamma)
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
        box: Box,
        radius: float | None,
        gamma: float | None,
    ) -> None:
        self.loss, self.radius, self.gamma, points, measure = (
            loss,
            radius,
            gamma,
            to_numpy(data.points),
            space.measure,
        )
        self.kernel, self.Z, self.S = (
            space.embedding_kernel,
            to_numpy(space.landmarks),
            to_numpy(space.projection.S),
        )
        self.z = self.S @ (self.kernel(self.Z, points) @ to_numpy(data.weights))
        if measure.atoms is not None:
            atoms = measure.atoms.points[:: max(1, measure.atoms.points.shape[0] // _MOST_ATOMS)]
        else:
            atoms = np.concatenate(
                [scattered(box, _MOST_ATOMS // 2), points[: _MOST_ATOMS // 4], self.Z]
            )
            atoms = atoms[measure.contains(atoms)]
        tail = None if measure.bounded else _tail(loss, measure, box)
        self.far = [] if tail is None else [tail[1]]
        """Losses of atoms that are too far away for the landmarks to see."""
        self.atoms, self.values = atoms, loss(atoms)

    def add(self, x: np.ndarray | None) -> None:
        """One more atom."""
        if x is not None:
            self.atoms, self.values = (
                np.vstack([self.atoms, x]),
                np.append(self.values, self.loss(x[None, :])),
            )

    def answer(self) -> tuple[KernelFunction, float, float]:
        """(g, its norm, the atoms' value): how badly the atoms do in the ball, and the function
        that proves it.
        """
        Phi = self.S @ self.kernel(self.Z, self.atoms)
        Phi = np.hstack([Phi, np.zeros((Phi.shape[0], len(self.far)))])
        found = worst_atoms(
            Phi, self.z, np.append(self.values, self.far), self.radius, self.gamma, digits=1e-3
        )
        value = found.value if self.gamma is None else found.value - self.gamma * found.distance**2
        return (
            KernelFunction(self.Z, self.S.T @ found.y, kernel=self.kernel),
            float(np.linalg.norm(found.y)),
            value,
        )


def supremum_on(
    loss: Observable,
    g: KernelFunction,
    measure: Measure,
    box: Box,
    candidates: np.ndarray,
    tol: float,
    lipschitz: float | None,
    deadline: Deadline | None = None,
) -> Supremum | None:
    """sup(ℓ − g) on the support of a measure; None if ℓ is unbounded on it."""
    deadline = Deadline() if deadline is None else deadline
    difference = loss - g
    if measure.atoms is not None:
        values = difference(measure.atoms.points)
        first = int(np.argmax(values))
        return Supremum(
            float(values[first]), float(values[first]), measure.atoms.points[first], True
        )
    bounds = enclosure(difference, lipschitz)
    most = _MOST_CELLS if g.points.shape[1] <= _CUT_FEATURES else _FEW_CELLS
    cells = int(min(most, _MOST_ENTRIES / max(g.points.shape[0], 1)))
    if measure.region is not None:
        if bounds is None:
            return searched_supremum(
                difference,
                measure.region,
                scattered(measure.region, _SEARCHED, candidates),
                deadline,
            )
        return proven_supremum(bounds, measure.region, tol, cells, deadline)
    if loss.bounded is False:
        return None
    tail = _tail(difference, measure, box)
    if bounds is None or tail is None:
        found = searched_supremum(difference, box, scattered(box, _SEARCHED, candidates), deadline)
        return None if loss.bounded is None and _grows(loss, measure, box, tol) else found
    found = proven_supremum(
        bounds, tail[0], tol, cells, deadline
    )  # on a box, and the bound outside of it
    return Supremum(max(found.bound, tail[1]), found.attained, found.at, True)


def _grows(loss: Observable, measure: Measure, box: Box, tol: float) -> bool:
    """Whether a loss of which nothing is known has ever larger values in ever larger boxes: then no
    search in one of them bounds it.
    """
    middle = 0.5 * (box.low + box.high)
    ends, inside = measure.boundaries(middle.shape[0]), scattered(box, _SEARCHED // 8)
    highest = [
        float(loss(np.clip(middle + factor * (inside - middle), *ends)).max())
        for factor in _FARTHER
    ]
    return all(
        larger > smaller + max(tol, 0.1 * abs(smaller))
        for smaller, larger in itertools.pairwise(highest)
    )


def _tail(difference: Observable, measure: Measure, box: Box) -> tuple[Box, float] | None:
    """A box outside of which every part is nearly constant, and the bound of the sum there; None if
    a part is unknown.
    """
    low, high, bound = box.low.copy(), box.high.copy(), 0.0
    for scale, part in difference.parts():
        if isinstance(part, KernelFunction):
            total = abs(scale) * float(np.sum(np.abs(part.weights)))
            level = _TAIL - math.log(max(total, 1e-300)) if total > 1.0 else _TAIL
            reach = part.kernel.reach(level) * part.kernel.sigma_vector(part.points.shape[1])
            low, high = (
                np.minimum(low, part.points.min(axis=0) - reach),
                np.maximum(high, part.points.max(axis=0) + reach),
            )
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
