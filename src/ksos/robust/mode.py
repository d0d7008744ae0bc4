"""ksos.robust_mode: the mode that an adversary in an MMD ball can harm least (section 2.1 of the
paper).

A player picks θ to maximize the return (K ∗ μ)(θ) = E_μ k(x, θ), an adversary picks μ within ε of
the data. With a sum-of-squares density as adversary the inner problem is a worst case for the loss
−k(·, θ). Its value as a function of θ is smooth almost everywhere, with gradient E_p ∇_θ k(x, θ) at
the adversary's answer p.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.ground import Run, TimeUp, as_choice, as_count, one_blas_thread, to_numpy
from ksos.observables import KernelFunction
from ksos.robust.ball import Adversary, Ball, adversary_in
from ksos.robust.bounds import AtomicBall, WorstAtoms
from ksos.robust.exact_ball import Answer, settled
from ksos.robust.problem import Goal
from ksos.robust.worst_case import ROBUST_STATUSES, FixedLoss, WorstCase, as_goal, attack
from ksos.solvers import Value
from ksos.space import MeanEmbedding, SoSSpace, evaluate, grid, region, scattered

__all__ = ["ADVERSARIES", "ModePath", "Player", "RobustMode", "robust_mode"]

ADVERSARIES = ("sos", "atoms")
# θ per feature with which the search begins: about as many worst cases as fit in a few seconds.
_GRID = {1: 41, 2: 9}
_SCATTERED = 16  # in more features, and as many of the data
_ATOMS = {1: 401, 2: 25}  # per feature: about 600 in all, a second for one projection
_STEP = 1e-4  # of a bandwidth, for central differences of closed forms: errors of 1e-8
# Gap of the worst cases of the search, relative to the range of the loss: L-BFGS-B loses its way in
# fewer digits.
_SEARCHED = Goal(rtol=1e-6)
# L-BFGS-B: a longer line search, or more digits, are lost in those of the values.
_CLIMB = {"maxiter": 20, "ftol": 1e-8, "maxls": 5}


@dataclass(frozen=True)
class ModePath:
    """Every θ that was tried, in turn, shape (n, d), with its worst return, shape (n,)."""

    theta: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class RobustMode:
    """The result of :func:`ksos.robust_mode`.

    Attributes
    ----------
    mode : ndarray (d,) or None
        θ*. None if the ball holds no density.
    value : float or None
        The worst return at θ*: what the player gets at least.
    worst_case : WorstCase, WorstAtoms, MeanEmbedding or None
        The adversary at θ*. With densities it is the worst case of the loss −k(·, θ*), whose
        ``value`` is minus this one. With atoms it holds their weights. Relaxed, it is the element w
        − εφ(θ*) of the RKHS. None at radius 0.
    path : ModePath
    status : str
    radius : float
    least_radius : float or None
        If the ball holds no density, the certified radius below which it does not.
    time : float
        Seconds of the whole call.

    Examples
    --------
    >>> import ksos
    >>> box = ksos.measures.Box([-2.0], [2.0])
    >>> ball = ksos.Ball([[0.5]], 0.0, kernel=ksos.kernels.Gaussian(1.0), domain=box)
    >>> found: RobustMode = ksos.robust_mode(ball)
    >>> found.status, found.mode.round(4).tolist()
    ('solved', [0.5])
    """

    mode: np.ndarray | None
    value: float | None
    worst_case: WorstCase | WorstAtoms | MeanEmbedding | None
    path: ModePath = field(repr=False)
    status: str = "solved"
    radius: float = 0.0
    least_radius: float | None = None
    time: float = 0.0

    @property
    def message(self) -> str:
        """The status in a sentence."""
        sentence, least = f"{self.status}: {ROBUST_STATUSES[self.status]}", self.least_radius
        if least is not None:
            sentence += f"; the least radius that holds a density of this space is {least:.6g}"
            sentence += " (certified)"
        return sentence


@np.errstate(under="ignore")
@one_blas_thread(0)
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
    r"""The point θ with the largest worst-case return E_μ k(x, θ) over a ball of distributions μ.

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
    goal = as_goal(tol, rtol)
    as_choice(adversary, "adversary", ADVERSARIES)
    if relaxation and adversary != "sos":
        raise ValueError('relaxation=True has its adversary in the RKHS: omit adversary="atoms"')
    if n_atoms is not None and adversary != "atoms":
        raise ValueError('n_atoms is for adversary="atoms"')
    with Run(time_limit, "robust mode", "setting up") as run:
        densities = adversary_in(ball, bandwidth, space, n_support)
        if math.isinf(ball.radius):
            raise ValueError("an infinite radius is for the penalty of ksos.worst_case")
        search = _Search(ball, None if n_grid is None else as_count(n_grid, "n_grid", minimum=2))
        value: float | None
        worst: WorstCase | WorstAtoms | MeanEmbedding | None = None
        if relaxation or ball.radius == 0.0:
            theta, value, status = search.run(_relaxed(ball))
            if ball.radius > 0.0:
                points = np.vstack([ball.points, theta])
                weights = np.append(ball.weights, -ball.radius)
                worst = MeanEmbedding(points, weights, kernel=ball.kernel)
        elif adversary == "atoms":
            atoms = AtomicBall(ball, _atoms_of(densities, n_atoms))
            theta, value, status = search.run(_against_atoms(atoms))
            worst = atoms.worst_at(theta)
        else:
            player = Player(densities)
            heaviest = ball.points[int(np.argmax(np.abs(ball.weights)))]
            first = player.settle(heaviest).saddle
            if first.empty:
                return RobustMode(
                    None,
                    None,
                    None,
                    search.path,
                    first.status,
                    ball.radius,
                    first.least_radius,
                    run.elapsed,
                )
            theta, _, status = search.run(player)
            worst = attack(player.loss_at(theta), ball.radius, goal)[1]
            value = None if worst.value is None else -worst.value
            if status == "solved" or worst.status == "interrupted":
                status = worst.status
        status = "interrupted" if run.interrupted else status
        return RobustMode(theta, value, worst, search.path, status, ball.radius, time=run.elapsed)


class _Search:
    """Starts all over the box, then the best of them uphill."""

    def __init__(self, ball: Ball, n_grid: int | None) -> None:
        d, domain = ball.n_features, ball.domain
        near = region(domain, ball.points, 1e-3 * ball.kernel.sigma_vector(d))
        self.box, self.spacing = domain.region or near, 0.1
        if d in _GRID:
            count = n_grid or _GRID[d]
            self.starts, self.spacing = grid(self.box, [count] * d), 1.0 / (count - 1)
        elif n_grid is not None:
            raise ValueError(f"n_grid is for one or two features; got {d}")
        else:
            heaviest = np.argsort(-np.abs(ball.weights), kind="stable")[:_SCATTERED]
            own = np.clip(ball.points[heaviest], self.box.low, self.box.high)
            self.starts = np.concatenate([scattered(self.box, _SCATTERED), own])
        self.tried: list[tuple[np.ndarray, float]] = []

    @property
    def path(self) -> ModePath:
        thetas = np.array([theta for theta, _ in self.tried])
        values = np.array([value for _, value in self.tried])
        return ModePath(thetas.reshape(values.shape[0], self.box.low.shape[0]), values)

    def run(self, f: Value) -> tuple[np.ndarray, float, str]:
        """The best θ, its value, and the status of the search."""
        from scipy.optimize import minimize

        low, width, status = self.box.low, self.box.high - self.box.low, "solved"

        def ask(t: np.ndarray) -> tuple[float, np.ndarray]:
            if self.tried and Run.current().over:
                raise TimeUp
            theta = np.clip(low + width * t, low, self.box.high)
            value, slope = f(theta)
            self.tried.append((theta, value))
            return -value, -slope * width

        starts, chosen = (self.starts - low) / width, list[np.ndarray]()
        options: dict[str, Any] = {"jac": True, "method": "L-BFGS-B", "options": _CLIMB}
        try:
            for start in starts:
                ask(start)
            for i in np.argsort([-value for _, value in self.tried], kind="stable"):
                # starts next to each other climb the same hill
                away = [np.max(np.abs(starts[i] - other)) > 1.5 * self.spacing for other in chosen]
                if all(away) and len(chosen) < 3:
                    chosen.append(starts[i])
            for start in chosen:
                minimize(ask, start, bounds=[(0.0, 1.0)] * width.shape[0], **options)
        except TimeUp:
            status = "time_limit"
        return *max(self.tried, key=lambda tried: tried[1]), status


def _relaxed(ball: Ball) -> Value:
    """(K ∗ μ̂)(θ) − ε√K(θ,θ), with k(θ, θ) = 1."""
    sigma = ball.kernel.sigma_vector(ball.n_features)
    return _with_differences(lambda Z: np.asarray(ball.embedding(Z)) - ball.radius, sigma)


def _with_differences(f: Callable[[np.ndarray], np.ndarray], sigma: np.ndarray) -> Value:
    """A function of many θ as one of a single θ with central differences."""

    def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
        steps, d = np.diag(_STEP * sigma), theta.shape[0]
        values = f(np.concatenate([theta[None, :], theta + steps, theta - steps]))
        return float(values[0]), (values[1 : d + 1] - values[d + 1 :]) / (2.0 * _STEP * sigma)

    return value


def _atoms_of(adversary: Adversary, n_atoms: int | None) -> np.ndarray:
    """The nodes of a discrete domain, or a grid of the box."""
    d, domain = adversary.ball.n_features, adversary.ball.domain
    if domain.atoms is not None:
        return domain.atoms.points
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


class Player:
    """The worst return at θ over densities. Each problem sees the directions of the last one."""

    def __init__(self, adversary: Adversary) -> None:
        self.adversary = adversary

    def loss_at(self, theta: np.ndarray) -> FixedLoss:
        """−k(·, θ)."""
        kernel = self.adversary.ball.kernel
        return FixedLoss(self.adversary, KernelFunction(theta[None, :], [-1.0], kernel=kernel))

    def settle(self, theta: np.ndarray) -> Answer:
        """Solve at θ, with the directions added in which exact and projected MMD of the answer
        differ.
        """
        answer = settled(self.loss_at(theta).problem, self.adversary.ball.radius, _SEARCHED)
        self.adversary = replace(self.adversary, space=answer.problem.space)
        if Run.current().interrupted:
            raise KeyboardInterrupt("robust_mode was interrupted")
        return answer

    def __call__(self, theta: np.ndarray) -> tuple[float, np.ndarray]:
        answer = self.settle(theta)
        p, kernel = answer.exact.density, self.adversary.ball.kernel
        assert isinstance(p, SoSDensity)
        sigma = kernel.sigma_vector(theta.shape[0])
        seen = _with_differences(lambda thetas: to_numpy(evaluate(p, kernel, thetas)), sigma)
        return -answer.problem.in_units_of_the_loss(answer.saddle.point.risk), seen(theta)[1]
