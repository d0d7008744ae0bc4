"""ksos.robust_mode: the mode that an adversary in an MMD ball can harm least (the note's section
2.1).

A player picks θ to maximise the return (K ∗ μ)(θ) = E_μ k(x, θ), an adversary picks μ within ε of
the data. With a sum-of-squares density as adversary the inner problem is a worst case for the loss
−k(·, θ); its value as a function of θ is smooth almost everywhere, with gradient E_p ∇_θ k(x, θ) at
the adversary's answer p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.ground.arrays import to_numpy
from ksos.ground.deadline import Deadline
from ksos.ground.validation import as_choice, as_count
from ksos.kernels import Kernel
from ksos.measures import Measure
from ksos.observables import KernelFunction
from ksos.robust.atoms import MMDBall, WorstAtoms
from ksos.robust.exact_ball import Answer, settled
from ksos.robust.problem import Goal
from ksos.robust.setting import Setting, as_radius, as_setting
from ksos.robust.worst_case import ROBUST_STATUSES, FixedLoss, WorstCase, as_goal, attack
from ksos.solvers.newton import Value
from ksos.space.embedding import MeanEmbedding, evaluate
from ksos.space.space import SoSSpace
from ksos.space.support import grid, region, scattered

__all__ = ["ADVERSARIES", "ModePath", "Player", "RobustMode", "robust_mode"]

ADVERSARIES = ("sos", "atoms")
_GRID = {1: 41, 2: 9}
_MANY, _STARTS = 16, 3
_ATOMS = {1: 401, 2: 25}
_STEP = 1e-4  # of a bandwidth, for differences of closed forms
_FIRST, _SEARCHED = Goal(rtol=1e-5), Goal(rtol=1e-6)
_CLIMB = {
    "maxiter": 20,
    "ftol": 1e-8,
    "maxls": 5,
}  # a longer line search is lost in the digits of the values


@dataclass(frozen=True)
class ModePath:
    """Every θ that was tried, in turn, with its worst return."""

    theta: np.ndarray
    """(n, d)."""
    value: np.ndarray
    """(n,)."""


@dataclass(frozen=True)
class RobustMode:
    """The result of :func:`ksos.robust_mode`.

    >>> import ksos
    >>> found: RobustMode = ksos.robust_mode([[0.5]], 0.0, measure=ksos.measures.Box([-2.0], [2.0]), embedding_bandwidth=1.0)
    >>> found.status, found.mode.round(4).tolist()
    ('solved', [0.5])
    """

    mode: np.ndarray | None
    """θ*, shape (d,); None if the ball holds no density."""
    value: float | None
    """The worst return at θ*: what the player gets at least."""
    worst_case: WorstCase | WorstAtoms | MeanEmbedding | None
    """The adversary at θ*: with densities the worst case of the loss −k(·, θ*), whose ``value`` is
    minus this one; with atoms their weights; relaxed, the element w − εφ(θ*) of the RKHS. None at
    radius 0.
    """
    path: ModePath = field(repr=False)
    status: str = "solved"
    radius: float = 0.0
    least_radius: float | None = None
    """If the ball holds no density: the certified radius below which it does not."""
    time: float = 0.0
    """Seconds of the whole call."""

    @property
    def message(self) -> str:
        """The status in a sentence."""
        sentence, least = f"{self.status}: {ROBUST_STATUSES[self.status]}", self.least_radius
        return (
            sentence
            if least is None
            else (
                f"{sentence}; the least radius that holds a density of this space is {least:.6g}"
                " (certified)"
            )
        )


def robust_mode(
    data: Any,
    radius: Any,
    *,
    measure: Measure | None = None,
    weights: Any = None,
    kernel: str | Kernel = "gaussian",
    bandwidth: Any = None,
    embedding_bandwidth: Any = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    relaxation: bool = False,
    adversary: str = "sos",
    n_grid: int | None = None,
    n_atoms: int | None = None,
    confidence: float = 0.95,
    n_resamples: int = 1000,
    rng: Any = None,
    tol: float | None = None,
    rtol: float = 1e-8,
    time_limit: float | None = None,
) -> RobustMode:
    r"""max_θ min_μ E_μ k(x, θ) over the distributions μ whose MMD to the data is at most the
    radius, k being the kernel that measures MMD.

    Parameters
    ----------
    data, radius, measure, weights, kernel, bandwidth, embedding_bandwidth, space, n_support,
    confidence, n_resamples, rng
        As in :func:`ksos.worst_case`; θ ranges over the box that the measure lives on, or around
        the data.
    relaxation : bool
        The note's relaxed problem: the adversary may be any element of the RKHS in the ball. Its
        answer does not depend on the radius.
    adversary : {"sos", "atoms"}
        Sum-of-squares densities, or the discretised reference: distributions on a grid of the box
        and the data (one or two features).
    n_grid : int, optional
        θ per feature with which the search begins (one or two features); default 41, or 9 each. In
        more features: 16 points and as many of the data.
    n_atoms : int, optional
        Atoms per feature; default 401, or 25 each.
    tol, rtol : float
        Of the worst case at the mode, as in :func:`ksos.worst_case`.
    time_limit : float, optional
        Seconds for all of the call, which ends at most one step of a solver later.

    Examples
    --------
    >>> from ksos.measures import Box
    >>> relaxed = robust_mode([[0.0]], 1.2, measure=Box([-2.0], [2.0]), embedding_bandwidth=1.0, relaxation=True)
    >>> abs(relaxed.mode).round(4).tolist(), round(relaxed.value, 4)
    ([0.0], -0.2)
    """
    deadline = Deadline(time_limit)
    goal = as_goal(tol, rtol)
    as_choice(adversary, "adversary", ADVERSARIES)
    if relaxation and adversary != "sos":
        raise ValueError('relaxation=True has its adversary in the RKHS: leave adversary="sos" out')
    setting = as_setting(
        data,
        weights=weights,
        kernel=kernel,
        bandwidth=bandwidth,
        embedding_bandwidth=embedding_bandwidth,
        measure=measure,
        space=space,
        n_support=n_support,
    )
    epsilon = as_radius(radius, setting, confidence, n_resamples, rng)
    search = _Search(
        setting, None if n_grid is None else as_count(n_grid, "n_grid", minimum=2), deadline
    )
    worst: WorstAtoms | MeanEmbedding | None = None
    if relaxation or epsilon == 0.0:
        theta, value = search.run(_relaxed(setting.embedding, epsilon))
        if epsilon > 0.0:
            points, a = to_numpy(setting.embedding.points), to_numpy(setting.embedding.weights)
            worst = MeanEmbedding(
                np.vstack([points, theta]), np.append(a, -epsilon), kernel=setting.embedding.kernel
            )
    elif adversary == "atoms":
        ball = _atomic(setting, epsilon, n_atoms)
        theta, value = search.run(_against_atoms(ball))
        worst = ball.worst_at(theta)
    elif n_atoms is not None:
        raise ValueError('n_atoms is for adversary="atoms"')
    else:
        return _against_densities(setting, search, epsilon, goal, deadline)
    status = "time_limit" if search.late else "solved"
    return RobustMode(theta, value, worst, search.path, status, epsilon, time=deadline.elapsed)


class _Late(Exception):
    """The time is up."""


class _Search:
    """Starts all over the box, then the best of them uphill."""

    def __init__(self, setting: Setting, n_grid: int | None, deadline: Deadline) -> None:
        d, domain = setting.reference.n_features, setting.measure
        near = region(
            domain, setting.reference.points, 1e-3 * setting.embedding.kernel.sigma_vector(d)
        )
        self.box = near if domain.region is None else domain.region
        if d in _GRID:
            self.starts = grid(self.box, [_GRID[d] if n_grid is None else n_grid] * d)
        elif n_grid is not None:
            raise ValueError(f"n_grid is for one or two features; got {d}")
        else:
            heaviest = np.argsort(-np.abs(setting.reference.weights), kind="stable")[:_MANY]
            own = np.clip(setting.reference.points[heaviest], self.box.low, self.box.high)
            self.starts = np.concatenate([scattered(self.box, _MANY), own])
        self.spacing = 1.0 / (round(self.starts.shape[0] ** (1.0 / d)) - 1) if d in _GRID else 0.1
        self.deadline, self.late = deadline, False
        self.tried: list[tuple[np.ndarray, float]] = []

    @property
    def path(self) -> ModePath:
        """What has been tried."""
        d = self.box.low.shape[0]
        return ModePath(
            np.array([theta for theta, _ in self.tried]).reshape(len(self.tried), d),
            np.array([v for _, v in self.tried]),
        )

    def run(self, f: Value) -> tuple[np.ndarray, float]:
        """The best θ and its value."""
        try:
            self._climb(f)
        except _Late:
            self.late = True
        return max(self.tried, key=lambda tried: tried[1])

    def _climb(self, f: Value) -> None:
        from scipy.optimize import minimize

        low, width = self.box.low, self.box.high - self.box.low

        def ask(t: np.ndarray) -> tuple[float, np.ndarray]:
            if self.tried and self.deadline.passed:
                raise _Late
            theta = np.clip(low + width * t, low, self.box.high)
            value, slope = f(theta)
            self.tried.append((theta, value))
            return -value, -slope * width

        for start in self.starts:
            ask((start - low) / width)
        chosen: list[np.ndarray] = []
        for i in np.argsort(
            [-value for _, value in self.tried], kind="stable"
        ):  # starts next to each other climb the same hill
            if all(
                np.max(np.abs(self.starts[i] - other) / width) > 1.5 * self.spacing
                for other in chosen
            ):
                chosen.append(self.starts[i])
            if len(chosen) == _STARTS:
                break
        for start in chosen:
            minimize(
                ask,
                (start - low) / width,
                jac=True,
                method="L-BFGS-B",
                bounds=[(0.0, 1.0)] * width.shape[0],
                options=_CLIMB,
            )


def _relaxed(embedding: MeanEmbedding, epsilon: float) -> Value:
    """(K ∗ μ̂)(θ) − ε√K(θ,θ), with k(θ, θ) = 1."""
    sigma = embedding.kernel.sigma_vector(embedding.n_features)
    return _with_differences(lambda thetas: np.asarray(embedding(thetas)) - epsilon, sigma)


def _with_differences(f: Callable[[np.ndarray], np.ndarray], sigma: np.ndarray) -> Value:
    """A function of many θ as one of a single θ with central differences."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        steps = np.diag(_STEP * sigma)
        values = f(np.concatenate([theta[None, :], theta + steps, theta - steps]))
        d = theta.shape[0]
        return float(values[0]), (values[1 : d + 1] - values[d + 1 :]) / (2.0 * _STEP * sigma)

    return value


def _atomic(setting: Setting, epsilon: float, n_atoms: int | None) -> MMDBall:
    """The ball of distributions on a grid of the box and the data."""
    reference, d = setting.reference, setting.reference.n_features
    if not reference.is_distribution:
        raise ValueError('adversary="atoms" needs data whose weights are those of a distribution')
    if setting.measure.atoms is not None:
        points = setting.measure.atoms.points
    elif d in _ATOMS:
        points = grid(
            setting.box,
            [_ATOMS[d] if n_atoms is None else as_count(n_atoms, "n_atoms", minimum=2)] * d,
        )
    else:
        raise ValueError(
            'adversary="atoms" needs a grid, in one or two features, or a Discrete measure; got'
            f" {d} features"
        )
    atoms = np.unique(np.concatenate([points, reference.points]), axis=0)
    places = {tuple(row): i for i, row in enumerate(atoms.tolist())}
    nu = np.zeros(atoms.shape[0])
    for row, weight in zip(reference.points.tolist(), reference.weights.tolist(), strict=True):
        nu[places[tuple(row)]] += weight
    return MMDBall(setting.embedding.kernel, atoms, nu, epsilon)


def _against_atoms(ball: MMDBall) -> Value:
    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        worst = ball.worst_at(theta)
        sigma = ball.kernel.sigma_vector(theta.shape[0])
        seen = _with_differences(
            lambda thetas: ball.kernel(thetas, ball.atoms) @ worst.weights, sigma
        )
        return worst.value, seen(theta)[1]

    return value


def _against_densities(
    setting: Setting, search: _Search, epsilon: float, goal: Goal, deadline: Deadline
) -> RobustMode:
    player = Player(setting, epsilon, deadline)
    first = player.settle(
        to_numpy(setting.reference.points[int(np.argmax(np.abs(setting.reference.weights)))]),
        _FIRST,
    ).saddle
    if first.empty:
        return RobustMode(
            None,
            None,
            None,
            search.path,
            first.status,
            epsilon,
            first.least_radius,
            deadline.elapsed,
        )
    theta, _ = search.run(player)
    space = setting.space if player.last is None else player.last.saddle.space
    _, worst = attack(_loss_at(replace(setting, space=space), theta), epsilon, goal, deadline)
    value, late = (
        None if worst.value is None else -worst.value,
        search.late and worst.status != "interrupted",
    )
    status = "time_limit" if late else worst.status
    return RobustMode(
        theta, value, worst, search.path, status, epsilon, worst.least_radius, deadline.elapsed
    )


def _loss_at(setting: Setting, theta: np.ndarray) -> FixedLoss:
    """−k(·, θ)."""
    return FixedLoss(
        setting, KernelFunction(theta[None, :], [-1.0], kernel=setting.embedding.kernel)
    )


class Player:
    """The worst return at θ over densities, each problem started from the last."""

    def __init__(self, setting: Setting, epsilon: float, deadline: Deadline) -> None:
        self.setting, self.epsilon, self.deadline = setting, epsilon, deadline
        self.last: Answer | None = None

    def settle(self, theta: np.ndarray, goal: Goal) -> Answer:
        """Solve at θ, with the directions added in which exact and projected MMD of the answer
        differ.
        """
        start = None if self.last is None else self.last.saddle
        self.last = settled(
            _loss_at(self.setting, theta).problem, self.epsilon, goal, self.deadline, start
        )
        if self.last.saddle.keyboard_interrupt:
            raise KeyboardInterrupt("robust_mode was interrupted")
        return self.last

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        answer = self.settle(theta, _SEARCHED)
        p, kernel = answer.exact.density, self.setting.embedding.kernel
        assert isinstance(p, SoSDensity)
        seen = _with_differences(
            lambda thetas: to_numpy(evaluate(p, kernel, thetas)),
            kernel.sigma_vector(theta.shape[0]),
        )
        return -answer.problem.in_units_of_the_loss(answer.saddle.point.risk), seen(theta)[1]
