"""What distributions in an MMD ball can do at all, bounded from both sides.

**Atoms.** The worst distribution, exactly, if its atoms may lie on a fixed set of points.
Atoms x_1 … x_N with features Φ = (φ(x_1), …), a point z of the RKHS, a radius ε and a loss ℓ ∈ R^N.
Over weights μ ∈ R^N,

    max  ℓᵀμ   such that   μ ≥ 0,  1ᵀμ = 1,  ‖Φμ − z‖ ≤ ε.

With a multiplier u ≥ 0 for the ball, ℓᵀμ − (u/2)‖Φμ − z‖² is to be maximized over the simplex. That
is a projection with one coordinate more: the minimizer of ‖Φμ − z‖² + δ²(ℓᵀμ − c)², with c above
every ℓ_i, is such a maximizer for 1/u = δ²(c − ℓᵀμ). ‖Φμ − z‖ grows with δ, so that one scalar
function has the root that is wanted. If maximizers of ℓᵀμ alone reach into the ball, u = 0.

The robust mode is the case ℓ = −k_θ = −(k(x_i, θ))_i, z = Φν of a reference ν on the atoms. For any
weights μ, with τ = u/2 and L(μ, τ) = k_θᵀμ + τ(‖Φμ − Φν‖² − ε²), the bound L(μ, τ) + min_i g_i −
gᵀμ with g = ∇_μ L(μ, τ) is below the optimal value: L is convex in μ, and a linear function on the
simplex is least at a corner.

**Suprema.** What no distribution at all can exceed: sup_x(ℓ − g) + ⟨g, w_μ̂⟩ + ε‖g‖ for a function
g of the RKHS, whatever g is. For μ with MMD(μ, μ̂) ≤ ε, E_μ ℓ = E_μ(ℓ − g) + ⟨g, w_μ − w_μ̂⟩ +
⟨g, w_μ̂⟩ ≤ sup(ℓ − g) + ε‖g‖ + ⟨g, w_μ̂⟩. The dual function of the worst case over a space of
densities is a good g. With labels there is one g for each, and the supremum is over the labels too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq, nnls

from ksos.ground import Run, as_points, to_numpy
from ksos.measures import Box, Measure
from ksos.observables import (
    BoxIndicator,
    KernelFunction,
    Observable,
    Polynomial,
    Supremum,
    climbed,
    enclosure,
    proven_supremum,
    searched_supremum,
)
from ksos.robust.ball import Adversary, Ball
from ksos.space import LabeledEmbedding, MeanEmbedding, SoSSpace, pivots, scattered

__all__ = [
    "AtomicBall",
    "AtomicDual",
    "UpperBound",
    "WorstAtoms",
    "ever_larger",
    "grows",
    "projected",
    "supremum_on",
    "upper_bound",
    "worst_atoms",
]

_TIE = 1e-12  # kernel values this close are the same number up to rounding
_ABOVE = 1.5  # c, for a loss that lies between −½ and ½: any number above ½
_LOG_DELTAS = (-11.5, 7.0)  # range of log δ for a root: beyond, one of two terms is rounding
_DIGITS = 1e-5  # of the range of the loss, to which the supremum is enclosed
_TAIL = -30.0  # log of what a kernel's tail may add beyond the box that is searched: e^−30 = 1e-13
_CLOSE = 1e-3  # of the range of the loss, from bound to value: beyond, other functions g are tried
_SOME = 1e-6  # of the mass: an atom that the worst distribution uses
_STARTS = 64  # atoms from which places are searched for where the loss exceeds the dual function
_NEW = 12  # of these places, a round: as many again, and the projections of a round take longer
_SAME = 1e-3  # a squared sine between features: closer places say the same
_MOST_ATOMS = 600  # about a second for one projection
_MOST_ENTRIES = 6e7  # cells times centers of g: about a second
_SEARCHED = 8192  # starting points of a search, a power of two as Sobol' points need
_RISE = 1e-7  # of a loss: less is rounding
_FARTHER = (1.0, 3.0, 9.0, 27.0)  # times the box: what grows in each step is unbounded


@dataclass(frozen=True)
class WorstAtoms:
    """The minimizer of k_θᵀμ over an MMD ball, with the proof that it is one.

    Attributes
    ----------
    weights : ndarray
        μ, one entry per atom.
    value : float
        k_θᵀμ = (K ∗ μ)(θ).
    lower_bound : float
        A dual bound: no distribution on these atoms in the ball has a smaller value.
    mmd : float
        MMD(μ, μ̂), at most the radius up to rounding.
    multiplier : float
        τ.
    """

    weights: np.ndarray
    value: float
    lower_bound: float
    mmd: float
    multiplier: float


class AtomicBall:
    """The distributions of a ball on some atoms, those of the data among them.

    >>> from ksos.kernels import Gaussian
    >>> near_zero = Ball([[0.0]], 1.2, kernel=Gaussian(1.0))
    >>> ball = AtomicBall(near_zero, np.linspace(-2.0, 2.0, 41)[:, None])
    >>> worst = ball.worst_at(np.zeros(1))
    >>> round(worst.value, 4), bool(worst.value - worst.lower_bound < 1e-10)
    (0.0236, True)
    """

    def __init__(self, ball: Ball, atoms: np.ndarray) -> None:
        if not ball.is_distribution:
            raise ValueError("atoms need data whose weights are those of a distribution")
        self.kernel, self.radius = ball.kernel, ball.radius
        both = np.concatenate([as_points(atoms, "atoms"), ball.points])
        self.atoms, places = np.unique(both + 0.0, axis=0, return_inverse=True)
        own = places.ravel()[-ball.points.shape[0] :]
        self.reference = np.bincount(own, weights=ball.weights, minlength=self.atoms.shape[0])
        self.K = self.kernel(self.atoms)
        values, Q = np.linalg.eigh(self.K)
        keep = values > np.finfo(float).eps * values[-1]
        self._Phi = (Q[:, keep] * np.sqrt(values[keep])).T
        self._center = self._Phi @ self.reference

    def worst_at(self, theta: np.ndarray) -> WorstAtoms:
        """The distribution with the least (K ∗ μ)(θ) at a point θ (d,)."""
        k, tau = self.kernel(self.atoms, as_points(theta[None, :], "theta"))[:, 0], 0.0
        lowest = np.flatnonzero(k <= k.min() + _TIE)
        weights = np.zeros(k.shape[0])
        weights[lowest] = projected(self._Phi[:, lowest], self._center)
        if self.mmd(weights) > self.radius:
            found = worst_atoms(self._Phi, self._center, -k, self.radius, digits=1e-14)
            weights, tau = found.weights, 0.5 * found.multiplier
        value, mmd = float(k @ weights), self.mmd(weights)
        g = k + 2.0 * tau * (self.K @ (weights - self.reference))
        bound = value + tau * (mmd**2 - self.radius**2) + float(g.min() - g @ weights)
        return WorstAtoms(weights, value, bound, mmd, tau)

    def mmd(self, weights: np.ndarray) -> float:
        """MMD between weights of the atoms and the reference."""
        return float(np.linalg.norm(self._Phi @ weights - self._center))


@dataclass(frozen=True)
class AtomicDual:
    """The worst weights for a loss in a ball, with ℓᵀμ and ‖Φμ − z‖, and the dual point that goes
    with them: u(Φμ − z), and u.
    """

    weights: np.ndarray
    value: float
    y: np.ndarray
    distance: float
    multiplier: float


def worst_atoms(
    Phi: np.ndarray,
    z: np.ndarray,
    loss: np.ndarray,
    radius: float | None,
    penalty: float | None = None,
    digits: float = 1e-6,
) -> AtomicDual:
    """max ℓᵀμ over the simplex such that ‖Φμ − z‖ ≤ ε, or max ℓᵀμ − γ‖Φμ − z‖², the multiplier to a
    relative error of ``digits``.

    Φ (q, N) holds the coordinates of the atoms' features. If no weights are in the ball, those that
    are nearest to z come back. Raises RuntimeError where a projection does not converge.

    >>> Phi, z = np.eye(2), np.array([1.0, 0.0])
    >>> found = worst_atoms(Phi, z, np.array([0.0, 1.0]), 0.5 * np.sqrt(2.0))
    >>> found.weights.round(4).tolist(), round(float(np.linalg.norm(found.y)), 4)  # ∂value/∂ε
    ([0.5, 0.5], 0.7071)
    """
    least, most = float(loss.min()), float(loss.max())
    unit = most - least if most > least else 1.0
    scaled = (loss - 0.5 * (least + most)) / unit

    def at(log_delta: float) -> AtomicDual:
        delta = np.exp(log_delta)
        mu = projected(np.vstack([Phi, delta * scaled]), np.append(z, delta * _ABOVE))
        residual = Phi @ mu - z
        u = unit / (delta**2 * (_ABOVE - float(scaled @ mu)))
        return AtomicDual(mu, float(loss @ mu), u * residual, float(np.linalg.norm(residual)), u)

    def excess(log_delta: float) -> float:
        found = at(log_delta)
        if radius is None:
            return float(np.log(2.0 * float(penalty or 1.0)) - np.log(found.multiplier))
        return float(np.log(max(found.distance, 1e-300)) - np.log(radius))

    # walk to the root from the middle: the ends are the hardest projections
    here = -1.2
    stride = -1.5 if excess(here) >= 0.0 else 1.5
    while True:
        there = float(np.clip(here + stride, *_LOG_DELTAS))
        if there == here:
            return at(here)
        if excess(there) * stride >= 0.0:
            return at(brentq(excess, *sorted((here, there)), xtol=digits, rtol=1e-12))
        here = there


def projected(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Weights μ of the simplex that minimize ‖points·μ − target‖, exactly, by one non-negative
    least-squares problem.

    With a_i = point_i − target, minimize ‖Au‖² + s²(1ᵀu − 1)² over u ≥ 0. Writing u = cμ with μ in
    the simplex, the minimization over μ does not depend on c: normalizing u solves the constrained
    problem, and s may be any size that suits the floats.
    """
    s = 1.0 + float(np.linalg.norm(target))
    A = np.vstack([points - target[:, None], np.full(points.shape[1], s)])
    u, _ = nnls(A, np.append(np.zeros(points.shape[0]), s))
    return np.asarray(u / u.sum())


@dataclass(frozen=True)
class UpperBound:
    """A bound of E_μ ℓ over all distributions μ of the domain in the ball (or of E_μ ℓ − γ·MMD²).

    ``kind`` is "rigorous", "estimate" if the supremum was searched for and not enclosed, or
    "infinite" if the loss has no bound on the domain. ``at`` is where ℓ − g is largest: a place
    that the worst of all distributions is likely to use. The proven supremum exceeds what ℓ − g
    attains there by ``slack``, which is large if there were too few cells for so many features.
    ``atoms`` are those of the worst distribution that is known, with its ℓ − g.
    """

    value: float
    kind: str
    at: np.ndarray | None
    slack: float = 0.0
    atoms: tuple[np.ndarray, Observable] | None = None


def upper_bound(
    losses: Sequence[Observable],
    gs: Sequence[KernelFunction],
    size: float,
    data: MeanEmbedding | LabeledEmbedding,
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
    parts = data.parts if isinstance(data, LabeledEmbedding) else (data,)
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
    # a supremum that is not enclosed better is not worth a better g
    if space is None or best.slack > 0.1 * unit:
        return best
    assert isinstance(data, MeanEmbedding)
    game = _Game(losses[0], space, data, box)
    excess = losses[0] - gs[0]
    for _ in range(8):  # each costs a supremum
        if Run.current().over:
            break
        game.add(excess, latest.at)
        try:
            g, size, value, atoms = game.answer(radius, gamma)
        except RuntimeError:  # a projection that does not converge: what has been proven stays
            break
        latest, excess = bound([g], size), losses[0] - g
        lowest = min(best, latest, key=lambda found: found.value)
        best = replace(lowest, atoms=(atoms, excess))
        if best.value - value <= _CLOSE * unit:
            break
    return best


class _Game:
    """The dual function on the landmarks that is best against the distributions on a growing set of
    atoms.
    """

    def __init__(self, loss: Observable, space: SoSSpace, data: MeanEmbedding, box: Box) -> None:
        points, measure = to_numpy(data.points), space.measure
        self.measure, self.box = measure, measure.region or box
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
        # the loss of an atom that is too far away for the landmarks to see, and such an atom
        self.far, self.beyond = [] if tail is None else [tail[1]], atoms[:0]
        if tail is not None:
            width, ways = tail[0].high - tail[0].low, np.eye(atoms.shape[1])
            places = tail[0].low + width * np.concatenate([0.5 - ways, 0.5 + ways])
            places = np.clip(places, *measure.boundaries(atoms.shape[1]))
            self.beyond = places[[np.argmax(loss(places))]]

    def add(self, excess: Observable, highest: np.ndarray | None) -> None:
        """More atoms: where the loss exceeds the dual function most."""
        places = self.atoms[np.argsort(-excess(self.atoms))[:_STARTS]]
        if self.measure.atoms is None:
            places, values = climbed(excess, self.box, places)
            places = places[np.argsort(-values)]
        if highest is not None:
            places = np.vstack([highest, places])
        places = places[pivots(self.kernel, places, _SAME, _NEW)]
        self.atoms = np.concatenate([self.atoms, places])
        self.values = np.append(self.values, self.loss(places))

    def answer(
        self, radius: float | None, gamma: float | None
    ) -> tuple[KernelFunction, float, float, np.ndarray]:
        """(g, its norm, the atoms' value, those that have mass): how badly the atoms do in the
        ball, and the function that proves it.
        """
        Phi = self.S @ self.kernel(self.Z, self.atoms)
        Phi = np.hstack([Phi, np.zeros((Phi.shape[0], len(self.far)))])
        values = np.append(self.values, self.far)
        found = worst_atoms(Phi, self.z, values, radius, gamma, digits=1e-3)
        value = found.value - (gamma or 0.0) * found.distance**2
        g = KernelFunction(self.Z, self.S.T @ found.y, kernel=self.kernel)
        atoms = np.concatenate([self.atoms, self.beyond])[found.weights > _SOME]
        return g, float(np.linalg.norm(found.y)), value, atoms


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
        if measure.region is None and loss.bounded is None and grows(loss, measure, box):
            return None
        parts = ever_larger(measure, box) if measure.region is None else [measure.region]
        n = _SEARCHED // len(parts)
        searches = [searched_supremum(difference, p, scattered(p, n, candidates)) for p in parts]
        return max(searches, key=lambda found: found.attained)
    # beyond three features, cutting cells hardly helps
    most = 600_000 if g.points.shape[1] <= 3 else 30_000
    cells = int(min(most, _MOST_ENTRIES / max(g.points.shape[0], 1)))
    found = proven_supremum(bounds, where, tol, cells)
    return Supremum(max(found.bound, outside), found.attained, found.at, True)


def grows(loss: Observable, measure: Measure, box: Box) -> bool:
    """Whether a loss of which nothing is known rises as much from each of ever larger boxes to the
    next: then no search in one of them bounds it.
    """
    parts = ever_larger(measure, box)
    highest = [float(loss(scattered(part, _SEARCHED // 8)).max()) for part in parts]
    steps = np.diff(highest)
    # logarithms rise by the same amount each time, and what has a bound by less and less
    return bool(steps[0] > _RISE * abs(highest[0]) and np.all(steps[1:] > 0.5 * steps[:-1]))


def ever_larger(measure: Measure, box: Box) -> list[Box]:
    """Multiples of a box about its middle, as far as the measure goes."""
    ends, middle = measure.boundaries(box.low.shape[0]), 0.5 * (box.low + box.high)
    sides = [
        [np.clip(middle + factor * (side - middle), *ends) for side in (box.low, box.high)]
        for factor in _FARTHER
    ]
    return [Box(low, high) for low, high in sides]


def _tail(difference: Observable, measure: Measure, box: Box) -> tuple[Box, float] | None:
    """A box outside of which every part is nearly constant, and the bound of the sum there, or None
    if a part is unknown.
    """
    low, high, bound = box.low.copy(), box.high.copy(), 0.0
    lowest, highest = measure.boundaries(low.shape[0])
    for scale, part in difference.parts():
        if isinstance(part, KernelFunction):
            total = abs(scale) * float(np.sum(np.abs(part.weights)))
            level = _TAIL - math.log(max(total, 1.0))
            reach = part.kernel.reach(level) * part.kernel.sigma_vector(part.points.shape[1])
            low = np.minimum(low, part.points.min(axis=0) - reach)
            high = np.maximum(high, part.points.max(axis=0) + reach)
            bound += total * math.exp(level)
        elif isinstance(part, BoxIndicator):
            sides = np.maximum(part.box.low, lowest), np.minimum(part.box.high, highest)
            low = np.minimum(low, np.where(np.isfinite(sides[0]), sides[0], low))
            high = np.maximum(high, np.where(np.isfinite(sides[1]), sides[1], high))
            # outside of all finite sides it is 0
            bound += 0.0 if np.all(np.isfinite(sides)) else max(scale, 0.0)
        elif isinstance(part, Polynomial) and part.degree == 0:
            bound += scale * part.terms.get((), 0.0)
        else:
            return None
    return Box(np.maximum(low, lowest), np.minimum(high, highest)), bound
