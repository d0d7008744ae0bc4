"""The density theorem in pictures: kernel sums of squares come arbitrarily close to a Dirac and to
a uniform distribution, in MMD.

On the compact interval [−1, 1] with Lebesgue measure, the kernel in which MMD is measured stays
fixed (Gaussian, σ = 0.1), while the bandwidth η of the model is halved again and again, with
support points at distance η. For each η the best density is found by minimizing the squared MMD to
the target without any penalty. Neither target has a continuous density: one is δ_0, the other
uniform on [−1/2, 1/2].

The best MMD over the space lies between √(objective − gap), which the certificate proves, and the
exact MMD of the density found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.integrate import cumulative_trapezoid

from examples.paper.files import BLUE, GREY, ORANGE, Report, save
from ksos import MeanEmbedding, SoSSpace, mmd
from ksos.functionals import SquaredMMD
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete
from ksos.plotting import sheet
from ksos.solvers import Solution, minimize

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Approximation", "approximate", "draw", "targets"]

SIGMA, HALF_WIDTH, N_LANDMARKS = 0.1, 0.5, 65
COLOURS = {"dirac": ORANGE, "uniform": BLUE}
NAMES = {"dirac": r"Dirac at 0", "uniform": "uniform on [−0.5, 0.5]"}


@dataclass(frozen=True)
class Approximation:
    """The best density of one space for one target."""

    target: str
    eta: float
    m: int
    solution: Solution
    mmd_exact: float
    mmd_projected: float

    @property
    def lower_bound(self) -> float:
        """No density of the space is closer to the target than this in MMD."""
        return float(np.sqrt(max(self.solution.dual_bound or 0.0, 0.0)))

    def line(self) -> str:
        """The certificate as one line for people."""
        return (
            f"density theorem, {self.target}, η={_fraction(self.eta)}, m={self.m}:"
            f" {self.solution.status}, exact MMD {self.mmd_exact:.3e}, best possible at least"
            f" {self.lower_bound:.3e}, gap {self.solution.gap:.1e}"
        )

    def row(self) -> dict[str, Any]:
        """Everything known about the approximation, for the table of numbers."""
        solution, space = self.solution, self.solution.space
        certificate = {
            name: getattr(solution, name)
            for name in ("status", "solver", "n_iter", "objective", "gap")
        }
        distances = {
            "mmd_exact": self.mmd_exact,
            "mmd_projected": self.mmd_projected,
            "mmd_lower_bound": self.lower_bound,
        }
        ranks = {
            "rank": solution.rank,
            "space_rank": space.rank,
            "embedding_rank": space.embedding_rank,
        }
        return {
            "target": self.target,
            "eta": self.eta,
            "m": self.m,
            "sigma": SIGMA,
            **certificate,
            **distances,
            **ranks,
        }


def targets() -> dict[str, MeanEmbedding]:
    """δ_0, and the uniform distribution on [−1/2, 1/2] as the nodes of a Gauss–Legendre rule exact
    to rounding for this kernel.
    """
    kernel, rule = Gaussian(SIGMA), Discrete.quadrature(Box([-HALF_WIDTH], [HALF_WIDTH]), 100)
    return {
        "dirac": MeanEmbedding([[0.0]], kernel=kernel),
        "uniform": MeanEmbedding(rule.points, rule.weights, kernel=kernel),
    }


def approximate(target: str, eta: float, tol: float) -> Approximation:
    """The density of the space with bandwidth η and support points η apart that is nearest to the
    target.
    """
    m = round(2.0 / eta) + 1
    landmarks = np.linspace(-1.0, 1.0, N_LANDMARKS)[:, None]
    space = SoSSpace(
        Gaussian(eta),
        np.linspace(-1.0, 1.0, m)[:, None],
        Box([-1.0], [1.0]),
        Gaussian(SIGMA),
        landmarks,
    )
    goal = targets()[target]
    solution = minimize(SquaredMMD(goal), space, tol=tol)
    exact, projected = (
        mmd(solution.distribution, goal, goal.kernel, landmarks=some) for some in (None, landmarks)
    )
    return Approximation(target, eta, m, solution, exact, projected)


def draw(output: Path, quick: bool, report: Report) -> list[Path]:
    """The MMD against the bandwidth, and the densities themselves."""
    found = []
    for target in targets():
        for halvings in range(5 if quick else 6):
            found.append(approximate(target, 0.5**halvings, tol=1e-6 if quick else 1e-8))
            report(found[-1].line())
    with sheet(7.0, 2.6) as figure:
        grid = figure.add_gridspec(
            1,
            3,
            left=0.08,
            right=0.98,
            bottom=0.21,
            top=0.9,
            wspace=0.26,
            width_ratios=[1.3, 1.0, 1.0],
        )
        _draw_rates(figure.add_subplot(grid[0]), found)
        for column, target in enumerate(targets(), start=1):
            _draw_functions(
                figure.add_subplot(grid[column]), [a for a in found if a.target == target]
            )
        return save(
            figure, [approximation.row() for approximation in found], output, "density_theorem"
        )


def _draw_rates(axes: Axes, found: Sequence[Approximation]) -> None:
    """Exact MMD against η, both logarithmic; bars reach down to the lower bound of the certificate,
    arrows mark a bound of zero.
    """
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for target, color in COLOURS.items():
        mine = [a for a in found if a.target == target]
        eta, exact, lower = (
            np.array([getattr(a, name) for a in mine])
            for name in ("eta", "mmd_exact", "lower_bound")
        )
        open_ended = lower <= 0.0
        axes.plot(eta, exact, "o-", color=color, markersize=3.5, label=NAMES[target])
        bars = np.where(open_ended, 0.6 * exact, np.maximum(exact - lower, 0.0))
        style: dict[str, Any] = {"fmt": "none", "ecolor": color, "elinewidth": 0.8, "capsize": 2.0}
        axes.errorbar(eta, exact, yerr=[bars, np.zeros_like(bars)], uplims=open_ended, **style)
    dirac = [a for a in found if a.target == "dirac"]
    eta = np.array([a.eta for a in dirac])
    rate = 2.0 * dirac[-1].mmd_exact * (eta[-3:] / eta[-1]) ** 2
    axes.plot(eta[-3:], rate, color=GREY, linestyle="--", linewidth=0.9, label=r"$\propto \eta^2$")
    axes.invert_xaxis()
    axes.set_xticks(eta, [f"{_fraction(a.eta)}\n{a.m}" for a in dirac])
    axes.minorticks_off()
    axes.set(xlabel=r"bandwidth $\eta$ / support points $m$", ylabel="exact MMD to the target")
    axes.legend(loc="lower left", frameon=False)


def _draw_functions(axes: Axes, mine: Sequence[Approximation]) -> None:
    """Distribution functions, which show weak convergence (densities need not converge), darker as
    η falls.
    """
    import matplotlib

    target, x = mine[0].target, np.linspace(-1.0, 1.0, 2001)
    ramp = np.clip((x + HALF_WIDTH) / (2.0 * HALF_WIDTH), 0.0, 1.0)
    axes.plot(
        x,
        ramp if target == "uniform" else x >= 0.0,
        color=GREY,
        linestyle="--",
        linewidth=1.0,
        label="target",
    )
    colors = matplotlib.colormaps["viridis_r"](np.linspace(0.1, 1.0, len(mine[:5])))
    for approximation, color in zip(mine[:5], colors, strict=True):
        P = cumulative_trapezoid(
            approximation.solution.distribution.pdf(x[:, None]), x, initial=0.0
        )
        axes.plot(
            x, P, color=color, linewidth=1.1, label=rf"$\eta$ = {_fraction(approximation.eta)}"
        )
    axes.set(title=NAMES[target].capitalize(), xlabel="$x$", xlim=(-1.0, 1.0))
    axes.set_xticks([-1.0, -0.5, 0.0, 0.5, 1.0], ["−1", "−0.5", "0", "0.5", "1"])
    if target == "dirac":
        axes.set_ylabel("distribution function")
        axes.legend(
            loc="lower right", frameon=False, handlelength=1.2, borderaxespad=0.3, labelspacing=0.3
        )


def _fraction(eta: float) -> str:
    """1, 1/2, 1/4, …"""
    return "1" if eta == 1.0 else f"1/{round(1.0 / eta)}"
