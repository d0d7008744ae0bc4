"""Figure 2 of the paper: the effect of λ, σ and m on the density fitted to two moons, each panel
with its certificate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.paper.files import ORANGE, Report, save, scientific
from ksos import KernelSoSDensity, SoSDensity, mmd
from ksos.plotting import sheet
from ksos.solvers import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import ContourSet
    from matplotlib.figure import Figure

__all__ = [
    "MIDDLE",
    "MoonsFit",
    "Setting",
    "bandwidths",
    "draw_density",
    "fit",
    "peak",
    "regularizations",
    "sample",
    "support_sizes",
]

N_SAMPLES, NOISE, SEED, TOL = 100, 0.05, 0, 1e-8
LOW, HIGH = (-1.75, -1.25), (2.75, 1.75)
"""Corners of the panels."""

WIDTH, HEIGHT, PANEL = 7.0, 2.82, 1.86
"""Of the figure and of a panel, in inches."""


@dataclass(frozen=True)
class Setting:
    """One panel: min ‖P(v − w_p)‖² + λ tr A over the densities on m of the samples, with one
    Gaussian kernel of bandwidth σ.
    """

    m: int = 50
    sigma: float = 1.0
    lam: float = 1e-3


MIDDLE = Setting()
"""The panel that the three rows of the figure share."""


@dataclass(frozen=True)
class MoonsFit:
    """A fitted panel: the density, its certificate, and its distance to the data measured in two
    ways.
    """

    setting: Setting
    solution: Solution
    mmd_exact: float
    mmd_projected: float

    def line(self) -> str:
        """The certificate as one line for people."""
        setting, solution, bound = self.setting, self.solution, self.solution.projected_mmd_bound
        return (
            f"two moons, m={setting.m}, σ={setting.sigma:g}, λ={setting.lam:g}: {solution.status},"
            f" objective {solution.objective:.6e}, gap {solution.gap:.1e}, within √gap ="
            f" {bound:.1e} of the optimum in projected MMD; MMD to the data: exact"
            f" {self.mmd_exact:.5f}, projected {self.mmd_projected:.5f}; rank {solution.rank}"
        )

    def row(self) -> dict[str, Any]:
        """Everything known about the fit, for the table of numbers."""
        solution, space = self.solution, self.solution.space
        sample = {"n": N_SAMPLES, "noise": NOISE, "seed": SEED}
        distances = {"mmd_exact": self.mmd_exact, "mmd_projected": self.mmd_projected}
        ranks = {
            "rank": solution.rank,
            "space_rank": space.rank,
            "embedding_rank": space.embedding_rank,
        }
        tolerances = {
            "tol": TOL,
            "tol_model": space.tol_model,
            "tol_embedding": space.tol_embedding,
        }
        return {
            **sample,
            **asdict(self.setting),
            **solution.summary(),
            **distances,
            **ranks,
            **tolerances,
        }


def sample() -> np.ndarray:
    """The n = 100 points, noise 0.05, seed 0."""
    from sklearn.datasets import make_moons  # heavy to import, and needed only here

    return np.asarray(make_moons(N_SAMPLES, noise=NOISE, random_state=SEED)[0])


@cache
def fit(setting: Setting = MIDDLE) -> MoonsFit:
    """Fit one panel; as in the paper, the landmarks of the projection are the support points."""
    X = sample()
    support = X[
        np.random.default_rng(SEED).permutation(N_SAMPLES)[: setting.m]
    ]  # a smaller choice is part of a larger one
    estimator = KernelSoSDensity(
        bandwidth=setting.sigma, regularization=setting.lam, support=support, tol=TOL
    ).fit(X)
    p, kernel = estimator.distribution_, estimator.distribution_.kernel
    return MoonsFit(
        setting,
        estimator.solution_,
        mmd(X, p, kernel),
        mmd(X, p, kernel, landmarks=estimator.landmarks_),
    )


def _figure(
    name: str, parameter: str, values: Sequence[float], output: Path, quick: bool, report: Report
) -> list[Path]:
    """The panels that differ from the middle one in one parameter."""
    fits = []
    for value in values:
        fits.append(fit(Setting(**{**asdict(MIDDLE), parameter: value})))
        report(fits[-1].line())
    with sheet(WIDTH, HEIGHT) as figure:
        _draw(figure, fits, parameter, steps=80 if quick else 240)
        return save(figure, [fitted.row() for fitted in fits], output, name)


regularizations = partial(_figure, "figure2a", "lam", (1e-5, 1e-3, 1e-1))
"""(a) The effect of λ."""
bandwidths = partial(_figure, "figure2b", "sigma", (0.5, 1.0, 2.0))
"""(b) The effect of σ."""
support_sizes = partial(_figure, "figure2c", "m", (25, 50, 100))
"""(c) The effect of m."""


def _words(setting: Setting) -> dict[str, str]:
    """The parameters as the figure shows them."""
    return {
        "m": f"$m$ = {setting.m}",
        "sigma": rf"$\sigma$ = {setting.sigma:g}",
        "lam": rf"$\lambda$ = {scientific(setting.lam, 0)}",
    }


def _draw(figure: Figure, fits: Sequence[MoonsFit], parameter: str, steps: int) -> None:
    """Panels in a row, the certificate of each below it, one color scale for all."""

    def place(left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
        return figure.add_axes(
            (left / WIDTH, bottom / HEIGHT, width / WIDTH, height / HEIGHT), **options
        )

    top = max(peak(fitted.solution.distribution, steps) for fitted in fits)
    first: Axes | None = None
    for column, fitted in enumerate(fits):
        left = 0.5 + column * (PANEL + 0.1)
        axes = place(
            left,
            1.18,
            PANEL,
            PANEL * (HIGH[1] - LOW[1]) / (HIGH[0] - LOW[0]),
            sharex=first,
            sharey=first,
        )
        contours = draw_density(axes, fitted.solution.distribution, steps, top)
        ring: dict[str, Any] = {
            "s": 14.0,
            "facecolors": "none",
            "edgecolors": ORANGE,
            "linewidths": 0.7,
        }
        axes.scatter(*fitted.solution.space.support_points.T, label="support points", **ring)
        axes.set_title(_words(fitted.setting)[parameter], pad=4.0)
        if first is None:
            first = axes
            axes.set_ylabel("$x_2$", labelpad=1.0)
        else:
            axes.tick_params(labelleft=False)
        _certificate(place(left, 0.08, PANEL, 0.75), fitted)
    corner = (axes.get_position().x1, 1.0 - 0.075 / HEIGHT)
    tight: dict[str, Any] = {
        "borderpad": 0.0,
        "borderaxespad": 0.0,
        "handletextpad": 0.0,
        "columnspacing": 1.0,
    }
    figure.legend(
        *axes.get_legend_handles_labels(),
        loc="upper right",
        bbox_to_anchor=corner,
        ncols=2,
        frameon=False,
        **tight,
    )
    scale = place(left + PANEL + 0.1, 1.18, 0.09, axes.get_position().height * HEIGHT)
    figure.colorbar(contours, cax=scale, label="density $p(x)$")
    common = [words for name, words in _words(MIDDLE).items() if name != parameter]
    figure.text(
        0.5 / WIDTH, 1.0 - 0.16 / HEIGHT, ", ".join([f"Two moons, $n$ = {N_SAMPLES}", *common])
    )


def draw_density(axes: Axes, p: SoSDensity, steps: int, top: float) -> ContourSet:
    """Filled contours of a density from 0 to ``top``, on ``steps`` grid columns, with the sample on
    them.
    """
    from matplotlib.ticker import MaxNLocator

    x, y, values = _grid(p, steps)
    contours = axes.contourf(
        x, y, values, levels=MaxNLocator(nbins=12).tick_values(0.0, top), cmap="viridis"
    )
    X = sample()
    axes.scatter(
        X[:, 0],
        X[:, 1],
        s=5.0,
        facecolors="white",
        edgecolors="black",
        linewidths=0.3,
        label="sample",
    )
    axes.set(aspect="equal", xlim=(LOW[0], HIGH[0]), ylim=(LOW[1], HIGH[1]))
    axes.set_xlabel("$x_1$", labelpad=1.0)
    return contours


def peak(p: SoSDensity, steps: int) -> float:
    """The largest value that :func:`draw_density` meets."""
    return float(_grid(p, steps)[2].max())


def _grid(p: SoSDensity, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The columns and rows of a regular grid over the panel, and p at its nodes."""
    rows = round(steps * (HIGH[1] - LOW[1]) / (HIGH[0] - LOW[0]))
    x, y = np.meshgrid(np.linspace(LOW[0], HIGH[0], steps), np.linspace(LOW[1], HIGH[1], rows))
    return x, y, p.pdf(np.stack([x.ravel(), y.ravel()], axis=1)).reshape(x.shape)


def _certificate(axes: Axes, fitted: MoonsFit) -> None:
    solution = fitted.solution
    axes.set_axis_off()
    entries = [
        ("objective", scientific(solution.objective, 3)),
        (f"gap ({solution.status})", scientific(solution.gap or 0.0, 1)),
    ]
    entries += [
        ("MMD, exact", f"{fitted.mmd_exact:.4f}"),
        ("MMD, projected", f"{fitted.mmd_projected:.4f}"),
        ("rank", f"{solution.rank}"),
    ]
    for i, words in enumerate(entries):
        for x, side, text in zip((0.02, 0.98), ("left", "right"), words, strict=True):
            axes.text(
                x,
                1.0 - (i + 0.7) / len(entries),
                text,
                transform=axes.transAxes,
                ha=side,
                fontsize=7.0,
            )
