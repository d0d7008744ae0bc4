"""Figure 1 of the paper (its section 2.1): a player against an adversary in an MMD ball, relaxed to
the RKHS and unrelaxed.

The player picks θ to maximize the return (K ∗ μ)(θ); the adversary picks μ within ε of the observed
μ̂ = δ_0. Over all vectors of the RKHS the worst return is (K ∗ μ̂)(θ) − ε√K(θ,θ)
(:func:`relaxed_value`), and the best θ does not depend on ε. Over distributions, on a fine grid of
[−2, 2] (:func:`true_value`) or with a sum-of-squares density (:func:`play_sos`), the worst return
has two symmetric maxima away from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.paper.files import BLUE, GREEN, GREY, ORANGE, Report, save, write_csv
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import KernelFunction
from ksos.plotting import sheet
from ksos.robust import AtomicBall, Ball, WorstAtoms, WorstCase, robust_mode, worst_case
from ksos.space.embedding import MeanEmbedding, evaluate
from ksos.space.space import SoSSpace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "play", "play_sos", "relaxed_value", "true_value"]

HALF_WIDTH, SIGMA, RADIUS = 2.0, 1.0, 1.2
SOS = ((1.0, 21), (0.5, 31), (0.3, 41))
"""Bandwidth of the density and number of support points of the sum-of-squares adversaries."""
_LANDMARKS, _TOL_MODEL, _TOL_EMBEDDING = 41, 1e-8, 1e-9
_VIEW, _HEIGHTS = (-HALF_WIDTH - 0.1, HALF_WIDTH + 0.1), (-0.6, 2.1)


def relaxed_value(theta: np.ndarray, reference: MeanEmbedding, radius: float) -> np.ndarray:
    """min_v ⟨v, φ(θ)⟩ over ‖v − w_μ̂‖ ≤ ε, that is (K ∗ μ̂)(θ) − ε√K(θ,θ), attained at v = w_μ̂ −
    εφ(θ)/‖φ(θ)‖, for each row of ``theta``.

    >>> relaxed_value(np.array([[0.0]]), MeanEmbedding([[0.0]], kernel=Gaussian(1.0)), 1.2).round(6)
    array([-0.2])
    """
    norms = np.array([np.sqrt(reference.kernel(point[None, :])[0, 0]) for point in theta])
    return reference(theta) - radius * norms


def true_value(theta: int, ball: AtomicBall) -> WorstAtoms:
    """min_μ (K ∗ μ)(θ) over the distributions of the ball, θ being the atom number ``theta``: the
    value, the adversary, the dual bound.
    """
    return ball.worst_at(ball.atoms[theta])


@dataclass(frozen=True)
class Game:
    """Both problems on a grid of θ."""

    ball: AtomicBall
    reference: MeanEmbedding
    theta: np.ndarray
    relaxed: np.ndarray
    adversaries: list[WorstAtoms]

    @property
    def true(self) -> np.ndarray:
        """The worst returns over distributions."""
        return np.array([adversary.value for adversary in self.adversaries])

    @property
    def best(self) -> int:
        """Where the worst return is largest: of the two symmetric places the left one, as in the
        paper.
        """
        return int(np.argmax(np.where(self.theta <= 0.0, self.true, -np.inf)))


def play(n_atoms: int, every: int) -> Game:
    """Solve both problems for θ at every ``every``-th of ``n_atoms`` equidistant atoms, of which
    the middle one is 0.
    """
    kernel, middle = Gaussian(SIGMA), n_atoms // 2
    atoms = np.linspace(-HALF_WIDTH, HALF_WIDTH, n_atoms)
    atoms[middle] = 0.0
    ball = AtomicBall(Ball([[0.0]], RADIUS, kernel=kernel), atoms[:, None])
    reference = MeanEmbedding([[0.0]], kernel=kernel)
    theta, adversaries = atoms[::every], [true_value(i, ball) for i in range(0, n_atoms, every)]
    return Game(
        ball, reference, theta, relaxed_value(theta[:, None], reference, RADIUS), adversaries
    )


@dataclass(frozen=True)
class SoSGame:
    """The game against the densities with one bandwidth: values on a grid of θ, the best θ, and the
    adversary there.
    """

    eta: float
    m: int
    theta: np.ndarray
    values: np.ndarray
    mode: float
    """The best θ; of the two symmetric places the left one, as in the paper."""
    value: float
    worst: WorstCase

    def rows(self) -> list[dict[str, Any]]:
        """One line per θ of the grid, and one for θ*."""
        common = {"eta": self.eta, "m": self.m}
        grid = [
            {**common, "theta": t, "value": v, "best": 0}
            for t, v in zip(self.theta.tolist(), self.values.tolist(), strict=True)
        ]
        return [*grid, {**common, "theta": self.mode, "value": self.value, "best": 1}]


def play_sos(eta: float, m: int, n_theta: int) -> SoSGame:
    """Solve the game on ``n_theta`` places and from the best of them uphill; m equidistant support
    points, 41 landmarks.
    """
    kernel = Gaussian(SIGMA)
    support, landmarks = (np.linspace(-HALF_WIDTH, HALF_WIDTH, n)[:, None] for n in (m, _LANDMARKS))
    space = SoSSpace(
        Gaussian(eta),
        support,
        Box([-HALF_WIDTH], [HALF_WIDTH]),
        kernel,
        landmarks,
        _TOL_MODEL,
        _TOL_EMBEDDING,
    )
    ball = Ball([[0.0]], RADIUS, kernel=kernel, domain=space.measure)
    best = robust_mode(ball, space=space, n_grid=n_theta)
    assert best.mode is not None and best.value is not None
    left = -np.abs(best.mode)
    loss = KernelFunction(left[None, :], [-1.0], kernel=kernel)
    worst = worst_case(loss, ball, space=space)
    return SoSGame(
        eta,
        m,
        best.path.theta[:n_theta, 0],
        best.path.value[:n_theta],
        float(left[0]),
        best.value,
        worst,
    )


def draw(output: Path, quick: bool, report: Report) -> list[Path]:
    """Figure 1: values as functions of θ, and the two adversaries at the best θ."""
    game = play(161, 2) if quick else play(801, 2)
    gap = max(adversary.value - adversary.lower_bound for adversary in game.adversaries)
    zero, best_relaxed = int(np.argmin(np.abs(game.theta))), int(np.argmax(game.relaxed))
    report(
        f"counter-example, ε={RADIUS:g}: relaxed θ* = {game.theta[best_relaxed]:.2f}, value"
        f" {game.relaxed[best_relaxed]:.4f}; over distributions θ* ="
        f" ±{abs(game.theta[game.best]):.2f}, value {game.true[game.best]:.4f} (at θ = 0:"
        f" {game.true[zero]:.4f}), duality gap {gap:.1e}"
    )
    rows: list[dict[str, Any]] = []
    for theta, relaxed, worst in zip(game.theta, game.relaxed, game.adversaries, strict=True):
        found = {
            "theta": theta,
            "relaxed_value": relaxed,
            "true_value": worst.value,
            "true_value_lower_bound": worst.lower_bound,
        }
        atoms = " ".join(
            f"{game.ball.atoms[i, 0]:.6g}:{worst.weights[i]:.15g}"
            for i in np.flatnonzero(worst.weights)
        )
        rows.append(
            {**found, "mmd_of_adversary": worst.mmd, "multiplier": worst.multiplier, "atoms": atoms}
        )
    adversaries = [play_sos(eta, m, 9 if quick else 81) for eta, m in SOS]
    for sos in adversaries:
        report(
            f"counter-example, sums of squares with η={sos.eta:g}, m={sos.m}: θ* ="
            f" ±{abs(sos.mode):.2f}, value {sos.value:.4f}, gap {sos.worst.gap:.1e}, exact MMD"
            f" {sos.worst.mmd:.6f}"
        )
    with sheet(9.6, 3.9) as figure:
        _draw(figure, game, adversaries)
        files = save(figure, rows, output, "figure1")
    write_csv(output / "figure1_sos.csv", [row for sos in adversaries for row in sos.rows()])
    return [*files, output / "figure1_sos.csv"]


def _draw(figure: Figure, game: Game, adversaries: list[SoSGame]) -> None:
    grid = figure.add_gridspec(
        2,
        3,
        left=0.06,
        right=0.955,
        bottom=0.11,
        top=0.94,
        wspace=0.18,
        hspace=0.16,
        height_ratios=[1.0, 1.15],
    )
    best, zero = game.best, int(np.argmax(game.relaxed))
    values_relaxed, values_true = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    adversary_relaxed = figure.add_subplot(grid[1, 0], sharex=values_relaxed)
    adversary_true = figure.add_subplot(grid[1, 1], sharex=values_true, sharey=adversary_relaxed)
    _draw_sos(figure.add_subplot(grid[0, 2]), figure.add_subplot(grid[1, 2]), game, adversaries)

    name = r"observed return $(K\ast\hat\mu)(\theta)$"
    values_relaxed.plot(
        game.theta, game.reference(game.theta[:, None]), color=GREY, linestyle="--", label=name
    )
    name = r"worst return $(K\ast\hat\mu)(\theta)-\varepsilon\sqrt{K(\theta,\theta)}$"
    values_relaxed.plot(game.theta, game.relaxed, color=ORANGE, label=name)
    _mark(
        values_relaxed,
        game.theta[zero],
        game.relaxed[zero],
        rf"$\theta^* = 0$, value ${game.relaxed[zero]:.1f}$",
        ORANGE,
        (0, 5),
    )
    values_relaxed.set(
        title="Relaxed: any vector of the RKHS in the ball",
        ylabel=r"return at $\theta$",
        ylim=(-1.4, 2.6),
    )
    values_relaxed.legend(loc="upper left", frameon=False, ncols=1)

    values_true.plot(
        game.theta, game.true, color=BLUE, label=r"worst return $\min_\mu (K\ast\mu)(\theta)$"
    )
    for side in (best, game.theta.shape[0] - 1 - best):
        values_true.plot(game.theta[side], game.true[side], "o", color=BLUE, markersize=4.0)
    words = rf"$\theta^* = \pm {abs(game.theta[best]):.2f}$, value ${game.true[best]:.4f}$"
    _mark(values_true, 0.0, game.true[best], words, BLUE, (0, 6), marker="")
    _mark(values_true, 0.0, game.true[zero], f"${game.true[zero]:.4f}$", BLUE, (0, -11))
    values_true.set(title="Discretized: atoms in the MMD ball", ylim=(-0.002, 0.049))
    values_true.legend(loc="upper left", frameon=False)

    x = np.linspace(-HALF_WIDTH, HALF_WIDTH, 401)[:, None]
    relaxed = MeanEmbedding(
        [[0.0], [game.theta[zero]]], [1.0, -RADIUS], kernel=game.reference.kernel
    )
    _embeddings(
        adversary_relaxed, x, game, relaxed(x), ORANGE, r"adversary $v^*$", game.theta[zero]
    )
    _draw_atoms(
        adversary_relaxed, [(0.0, 1.0 - RADIUS)], rf"its atom $\delta_0$, mass ${1.0 - RADIUS:.1f}$"
    )
    worst = game.adversaries[best]
    true = MeanEmbedding(game.ball.atoms, worst.weights, kernel=game.reference.kernel)
    _embeddings(adversary_true, x, game, true(x), BLUE, r"adversary $w_{\mu^*}$", game.theta[best])
    _draw_atoms(adversary_true, _atoms(game, worst), r"atoms of $\mu^*$, mass 1 in all")
    adversary_relaxed.set_ylabel("embedding, mass of atoms")
    for axes in (values_relaxed, values_true):
        axes.tick_params(labelbottom=False)


def _draw_sos(values: Axes, below: Axes, game: Game, adversaries: list[SoSGame]) -> None:
    """Values of the densities beside those of the atoms, and below the finest of the worst
    densities.
    """
    values.plot(game.theta, game.true, color=GREY, linestyle="--", label="atoms")
    for sos, alpha in zip(adversaries, (0.35, 0.65, 1.0), strict=True):
        values.plot(sos.theta, sos.values, color=GREEN, alpha=alpha, label=rf"$\eta = {sos.eta:g}$")
    finest = adversaries[-1]
    for side in (-1.0, 1.0):
        values.plot(side * abs(finest.mode), finest.value, "o", color=GREEN, markersize=4.0)
    words = rf"$\theta^* = \pm {abs(finest.mode):.2f}$" + "\n" + f"value ${finest.value:.4f}$"
    _mark(values, 0.0, 0.007, words, GREEN, (0, 0), marker="")
    values.set(title="Sums of squares: densities in the MMD ball", xlim=_VIEW, ylim=(-0.002, 0.049))
    values.tick_params(labelbottom=False)
    values.legend(
        loc="upper left",
        frameon=False,
        ncols=4,
        columnspacing=0.9,
        handlelength=1.5,
        handletextpad=0.5,
    )
    x, p = np.linspace(-HALF_WIDTH, HALF_WIDTH, 801)[:, None], finest.worst.distribution
    assert p is not None
    _embeddings(
        below,
        x,
        game,
        evaluate(p, finest.worst.embedding_kernel, x),
        GREEN,
        r"adversary $w_p$",
        finest.mode,
    )
    density = np.asarray(p.pdf(x))
    scale = 1.2 * float(density.max()) / _HEIGHTS[1]  # both axes have their 0 at the same height
    beside = below.twinx()
    beside.fill_between(x[:, 0], 0.0, density, color="black", alpha=0.25, linewidth=0.0)
    beside.plot(x, density, color="black", linewidth=0.8)
    beside.set_ylim(_HEIGHTS[0] * scale, _HEIGHTS[1] * scale)
    beside.set_ylabel("density", labelpad=2.0)
    beside.set_yticks([tick for tick in beside.get_yticks() if 0.0 <= tick <= _HEIGHTS[1] * scale])
    below.plot(
        [],
        [],
        color="black",
        linewidth=0.8,
        label=rf"its density $p$, $\eta = {finest.eta:g}$ (right axis)",
    )
    below.legend(loc="upper left", frameon=False)


def _embeddings(
    axes: Axes,
    x: np.ndarray,
    game: Game,
    adversary: np.ndarray,
    color: str,
    name: str,
    best: float,
) -> None:
    """The observed embedding and the adversary's, at the points ``x`` (n, 1), and a line at the
    ``best`` θ.
    """
    axes.axhline(0.0, color="black", linewidth=0.5)
    axes.plot(
        x,
        game.reference(x),
        color=GREY,
        linestyle="--",
        label=r"observed $w_{\hat\mu}$, $\hat\mu=\delta_0$",
    )
    axes.plot(x, adversary, color=color, label=name)
    axes.vlines(best, _HEIGHTS[0], 1.0, color=color, linewidth=0.8, linestyle=":")
    axes.annotate(
        r"$\theta^*$",
        (best, -0.45),
        xytext=(3, 0),
        textcoords="offset points",
        color=color,
        va="center",
    )
    axes.set(xlabel=r"$\theta$, $x$", xlim=_VIEW, ylim=_HEIGHTS)


def _draw_atoms(axes: Axes, atoms: list[tuple[float, float]], what: str) -> None:
    """The atoms that an adversary is made of, and the legend."""
    positions, weights = np.array(atoms).T
    axes.vlines(positions, 0.0, weights, color="black", linewidth=1.2, zorder=3)
    axes.plot(positions, weights, "D", color="black", markersize=3.0, label=what, zorder=3)
    axes.legend(loc="upper left", frameon=False)


def _mark(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    color: str,
    offset: tuple[float, float],
    marker: str = "o",
) -> None:
    axes.plot(x, y, marker=marker, color=color, markersize=4.0, linestyle="none")
    axes.annotate(
        text,
        (x, y),
        xytext=offset,
        textcoords="offset points",
        ha="center",
        color=color,
        fontsize=7.0,
    )


def _atoms(game: Game, adversary: WorstAtoms) -> list[tuple[float, float]]:
    """(position, mass) of the adversary's atoms; neighbors on the grid stand for one atom between
    them.
    """
    positions, weights = game.ball.atoms[:, 0], adversary.weights
    carrying = np.flatnonzero(weights > 1e-9)
    groups = np.split(carrying, np.flatnonzero(np.diff(carrying) > 1) + 1)
    return [
        (float(weights[g] @ positions[g] / weights[g].sum()), float(weights[g].sum()))
        for g in groups
    ]
