"""ksos.robust_mode: the mode that an adversary in an MMD ball can harm least (the note's section
2.1).

A player picks θ to maximise the return (K ∗ μ)(θ) = E_μ k(x, θ), an adversary picks μ within ε of
the data. With a sum-of-squares density as adversary the inner problem is a worst case for the loss
−k(·, θ); its value as a function of θ is smooth almost everywhere, with gradient E_p ∇_θ k(x, θ) at
the adversary's answer p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.ground.arrays import to_numpy
from ksos.ground.deadline import Deadline
from ksos.ground.validation import as_choice, as_count
from ksos.observables import KernelFunction
from ksos.robust.atoms import AtomicBall, WorstAtoms
from ksos.robust.ball import Adversary, Ball, adversary_in
from ksos.robust.exact_ball import Answer, settled
from ksos.robust.problem import Goal
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
    >>> ball = ksos.Ball([[0.5]], 0.0, kernel=ksos.kernels.Gaussian(1.0), domain=ksos.measures.Box([-2.0], [2.0]))
    >>> found: RobustMode = ksos.robust_mode(ball)
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
    ball: Ball,
    *,
    bandwidth: Any = None,
    space: SoSSpace | None = None,
    n_support: int | None = None,
    relaxation: bool = False,
    adversary: str = "sos",
    n_grid: int | None = None,
    n_atoms: int | None = None,
    tol: float | None = None,
    rtol: float = 1e-8,
    time_limit: float | None = None,
) -> RobustMode:
    r"""The point θ with the largest worst-case return E_μ k(x, θ) over the distributions μ of a ball.

    k is the kernel of the ball.

    Parameters
    ----------
    ball : Ball
        The distributions, see :class:`ksos.Ball`. θ ranges over the box that the domain fills, or
        around the data.
    bandwidth, space, n_support
        The densities, as in :func:`ksos.worst_case`.
    relaxation : bool, default=False
        The paper's relaxed problem: the adversary may be any element of the RKHS in the ball. Its
        answer does not depend on the radius.
    adversary : {"sos", "atoms"}, default="sos"
        Sum-of-squares densities, or distributions on the nodes of a discrete domain, or on a grid
        of the box and the data (one or two features).
    n_grid : int, optional
        θ per feature with which the search begins (one or two features). Default: 41, or 9 each. In
        more features the search begins at 16 points and as many of the data.
    n_atoms : int, optional
        Atoms per feature of the grid. Default: 401, or 25 each.
    tol, rtol : float
        Of the worst case at the mode, as in :func:`ksos.worst_case`.
    time_limit : float, optional
        Seconds for all of the call, which ends at most one solver step later.

    Examples
    --------
    >>> from ksos.kernels import Gaussian
    >>> from ksos.measures import Box
    >>> ball = Ball([[0.0]], 1.2, kernel=Gaussian(1.0), domain=Box([-2.0], [2.0]))
    >>> relaxed = robust_mode(ball, relaxation=True)
    >>> abs(relaxed.mode).round(4).tolist(), round(relaxed.value, 4)
    ([0.0], -0.2)
    """
    deadline = Deadline(time_limit)
    goal = as_goal(tol, rtol)
    as_choice(adversary, "adversary", ADVERSARIES)
    if relaxation and adversary != "sos":
        raise ValueError('relaxation=True has its adversary in the RKHS: omit adversary="atoms"')
    if n_atoms is not None and adversary != "atoms":
        raise ValueError('n_atoms is for adversary="atoms"')
    densities = adversary_in(ball, bandwidth, space, n_support)
    epsilon = ball.radius
    if math.isinf(epsilon):
        raise ValueError("an infinite radius is for the penalty of ksos.worst_case")
    n_grid = None if n_grid is None else as_count(n_grid, "n_grid", minimum=2)
    search = _Search(ball, n_grid, deadline)
    worst: WorstAtoms | MeanEmbedding | None = None
    if relaxation or epsilon == 0.0:
        theta, value = search.run(_relaxed(ball))
        if epsilon > 0.0:
            worst = MeanEmbedding(
                np.vstack([ball.points, theta]),
                np.append(ball.weights, -epsilon),
                kernel=ball.kernel,
            )
    elif adversary == "atoms":
        atoms = AtomicBall(ball, _grid_of_atoms(densities, n_atoms))
        theta, value = search.run(_against_atoms(atoms))
        worst = atoms.worst_at(theta)
    else:
        return _against_densities(densities, search, goal, deadline)
    status = "time_limit" if search.late else "solved"
    return RobustMode(theta, value, worst, search.path, status, epsilon, time=deadline.elapsed)


class _Late(Exception):
    """The time is up."""


class _Search:
    """Starts all over the box, then the best of them uphill."""

    def __init__(self, ball: Ball, n_grid: int | None, deadline: Deadline) -> None:
        d, domain = ball.n_features, ball.domain
        near = region(domain, ball.points, 1e-3 * ball.kernel.sigma_vector(d))
        self.box = near if domain.region is None else domain.region
        if d in _GRID:
            self.starts = grid(self.box, [_GRID[d] if n_grid is None else n_grid] * d)
        elif n_grid is not None:
            raise ValueError(f"n_grid is for one or two features; got {d}")
        else:
            heaviest = np.argsort(-np.abs(ball.weights), kind="stable")[:_MANY]
            own = np.clip(ball.points[heaviest], self.box.low, self.box.high)
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


def _relaxed(ball: Ball) -> Value:
    """(K ∗ μ̂)(θ) − ε√K(θ,θ), with k(θ, θ) = 1."""
    sigma = ball.kernel.sigma_vector(ball.n_features)
    return _with_differences(lambda Z: np.asarray(ball.embedding(Z)) - ball.radius, sigma)


def _with_differences(f: Callable[[np.ndarray], np.ndarray], sigma: np.ndarray) -> Value:
    """A function of many θ as one of a single θ with central differences."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        steps = np.diag(_STEP * sigma)
        values = f(np.concatenate([theta[None, :], theta + steps, theta - steps]))
        d = theta.shape[0]
        return float(values[0]), (values[1 : d + 1] - values[d + 1 :]) / (2.0 * _STEP * sigma)

    return value


def _grid_of_atoms(adversary: Adversary, n_atoms: int | None) -> np.ndarray:
    """The nodes of a discrete domain, or a grid of the box."""
    d = adversary.ball.n_features
    if adversary.measure.atoms is not None:
        return adversary.measure.atoms.points
    if d not in _ATOMS:
        raise ValueError(
            'adversary="atoms" needs a grid, in one or two features, or a Discrete domain; got'
            f" {d} features"
        )
    count = _ATOMS[d] if n_atoms is None else as_count(n_atoms, "n_atoms", minimum=2)
    return grid(adversary.box, [count] * d)


def _against_atoms(ball: AtomicBall) -> Value:
    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        worst = ball.worst_at(theta)
        sigma = ball.kernel.sigma_vector(theta.shape[0])
        seen = _with_differences(lambda Z: ball.kernel(Z, ball.atoms) @ worst.weights, sigma)
        return worst.value, seen(theta)[1]

    return value


def _against_densities(
    adversary: Adversary, search: _Search, goal: Goal, deadline: Deadline
) -> RobustMode:
    ball = adversary.ball
    player = Player(adversary, deadline)
    first = player.settle(ball.points[int(np.argmax(np.abs(ball.weights)))], _FIRST).saddle
    if first.empty:
        return RobustMode(
            None,
            None,
            None,
            search.path,
            first.status,
            ball.radius,
            first.least_radius,
            deadline.elapsed,
        )
    theta, _ = search.run(player)
    space = adversary.space if player.last is None else player.last.saddle.space
    _, worst = attack(_loss_at(replace(adversary, space=space), theta), ball.radius, goal, deadline)
    value, late = (
        None if worst.value is None else -worst.value,
        search.late and worst.status != "interrupted",
    )
    status = "time_limit" if late else worst.status
    return RobustMode(
        theta, value, worst, search.path, status, ball.radius, worst.least_radius, deadline.elapsed
    )


def _loss_at(adversary: Adversary, theta: np.ndarray) -> FixedLoss:
    """−k(·, θ)."""
    kernel = adversary.ball.kernel
    return FixedLoss(adversary, KernelFunction(theta[None, :], [-1.0], kernel=kernel))


class Player:
    """The worst return at θ over densities, each problem started from the last."""

    def __init__(self, adversary: Adversary, deadline: Deadline) -> None:
        self.adversary, self.deadline = adversary, deadline
        self.last: Answer | None = None

    def settle(self, theta: np.ndarray, goal: Goal) -> Answer:
        """Solve at θ, with the directions added in which exact and projected MMD of the answer
        differ.
        """
        start = None if self.last is None else self.last.saddle
        self.last = settled(
            _loss_at(self.adversary, theta).problem,
            self.adversary.ball.radius,
            goal,
            self.deadline,
            start,
        )
        if self.last.saddle.keyboard_interrupt:
            raise KeyboardInterrupt("robust_mode was interrupted")
        return self.last

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        answer = self.settle(theta, _SEARCHED)
        p, kernel = answer.exact.density, self.adversary.ball.kernel
        assert isinstance(p, SoSDensity)
        seen = _with_differences(
            lambda thetas: to_numpy(evaluate(p, kernel, thetas)),
            kernel.sigma_vector(theta.shape[0]),
        )
        return -answer.problem.in_units_of_the_loss(answer.saddle.point.risk), seen(theta)[1]
