"""Figure 2 of the paper: the effect of λ, σ and m on the density fitted to two moons, each panel with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ksos.density import SoSDensity
from ksos.embedding import mmd
from ksos.estimators import KernelSoSDensity
from ksos.reproduce.files import ORANGE, Report, save, scientific, sheet
from ksos.solvers import Solution

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.contour import ContourSet
    from matplotlib.figure import Figure

__all__ = ["MIDDLE", "MoonsFit", "Setting", "bandwidths", "draw_density", "fit", "peak", "regularizations", "sample", "support_sizes"]

N_SAMPLES, NOISE, SEED = 100, 0.05, 0
TOL = 1e-8
LOW, HIGH = (-1.75, -1.25), (2.75, 1.75)
"""Corners of the panels."""

WIDTH, HEIGHT, PANEL = 7.0, 2.82, 1.86
"""Of the figure and of a panel, in inches."""


@dataclass(frozen=True)
class Setting:
    """One panel: min ‖P(v − w_p)‖² + λ tr A over the densities on m of the samples, with one Gaussian kernel of bandwidth σ."""

    m: int = 50
    sigma: float = 1.0
    lam: float = 1e-3


MIDDLE = Setting()
"""The panel that the three rows of the figure share."""


@dataclass(frozen=True)
class MoonsFit:
    """A fitted panel: the density, its certificate, and its distance to the data measured in two ways."""

    setting: Setting
    solution: Solution
    mmd_exact: float
    mmd_projected: float

    def line(self) -> str:
        """The certificate as one line for people."""
        setting, solution = self.setting, self.solution
        bound = solution.projected_mmd_bound
        return (
            f"two moons, m={setting.m}, σ={setting.sigma:g}, λ={setting.lam:g}: {solution.status}, objective {solution.objective:.6e}, "
            f"gap {solution.gap:.1e}, within √gap = {bound:.1e} of the optimum in projected MMD; "
            f"MMD to the data: exact {self.mmd_exact:.5f}, projected {self.mmd_projected:.5f}; rank {solution.rank}"
        )

    def row(self) -> dict[str, Any]:
        """Everything known about the fit, for the table of numbers."""
        solution, space = self.solution, self.solution.space
        return {
            "n": N_SAMPLES,
            "noise": NOISE,
            "seed": SEED,
            **asdict(self.setting),
            **solution.summary(),
            "mmd_exact": self.mmd_exact,
            "mmd_projected": self.mmd_projected,
            "rank": solution.rank,
            "space_rank": space.rank,
            "embedding_rank": space.embedding_rank,
            "tol": TOL,
            "tol_model": space.tol_model,
            "tol_embedding": space.tol_embedding,
        }


def sample() -> np.ndarray:
    """The n = 100 points, noise 0.05, seed 0."""
    from sklearn.datasets import make_moons  # heavy to import, and needed only here

    X, _ = make_moons(N_SAMPLES, noise=NOISE, random_state=SEED)
    return np.asarray(X)


def support(m: int) -> np.ndarray:
    """m random points of the sample; a smaller choice is part of a larger one."""
    X = sample()
    return X[np.random.default_rng(SEED).permutation(X.shape[0])[:m]]


@cache
def fit(setting: Setting = MIDDLE) -> MoonsFit:
    """Fit one panel; as in the paper, the landmarks of the projection are the support points."""
    X = sample()
    estimator = KernelSoSDensity(bandwidth=setting.sigma, regularization=setting.lam, support=support(setting.m), tol=TOL).fit(X)
    p, kernel = estimator.distribution_, estimator.distribution_.kernel
    return MoonsFit(setting, estimator.solution_, mmd(X, p, kernel), mmd(X, p, kernel, landmarks=estimator.landmarks_))


def regularizations(output: Path, quick: bool, report: Report) -> list[Path]:
    """(a) The effect of λ."""
    settings = [replace(MIDDLE, lam=lam) for lam in (1e-5, 1e-3, 1e-1)]
    return _figure("figure2a", settings, [rf"$\lambda$ = {scientific(s.lam, 0)}" for s in settings], output, quick, report)


def bandwidths(output: Path, quick: bool, report: Report) -> list[Path]:
    """(b) The effect of σ."""
    settings = [replace(MIDDLE, sigma=sigma) for sigma in (0.5, 1.0, 2.0)]
    return _figure("figure2b", settings, [rf"$\sigma$ = {s.sigma:g}" for s in settings], output, quick, report)


def support_sizes(output: Path, quick: bool, report: Report) -> list[Path]:
    """(c) The effect of m."""
    settings = [replace(MIDDLE, m=m) for m in (25, 50, 100)]
    return _figure("figure2c", settings, [rf"$m$ = {s.m}" for s in settings], output, quick, report)


def _figure(name: str, settings: Sequence[Setting], titles: Sequence[str], output: Path, quick: bool, report: Report) -> list[Path]:
    fits = []
    for setting in settings:
        fits.append(fit(setting))
        report(fits[-1].line())
    with sheet(WIDTH, HEIGHT) as figure:
        _draw(figure, fits, titles, steps=80 if quick else 240)
        return save(figure, [fitted.row() for fitted in fits], output, name)


def _draw(figure: Figure, fits: Sequence[MoonsFit], titles: Sequence[str], steps: int) -> None:
    """Panels in a row, the certificate of each below it, one colour scale for all."""

    def place(left: float, bottom: float, width: float, height: float, **options: Any) -> Axes:
        return figure.add_axes((left / WIDTH, bottom / HEIGHT, width / WIDTH, height / HEIGHT), **options)

    top = max(peak(fitted.solution.distribution, steps) for fitted in fits)
    first: Axes | None = None
    for column, (fitted, title) in enumerate(zip(fits, titles, strict=True)):
        left = 0.5 + column * (PANEL + 0.1)
        axes = place(left, 1.18, PANEL, PANEL * (HIGH[1] - LOW[1]) / (HIGH[0] - LOW[0]), sharex=first, sharey=first)
        contours = draw_density(axes, fitted.solution.distribution, steps, top)
        chosen = fitted.solution.space.support_points
        axes.scatter(chosen[:, 0], chosen[:, 1], s=14.0, facecolors="none", edgecolors=ORANGE, linewidths=0.7, label="support points")
        axes.set_title(title, pad=4.0)
        if first is None:
            first = axes
            axes.set_ylabel("$x_2$", labelpad=1.0)
        else:
            axes.tick_params(labelleft=False)
        _certificate(place(left, 0.08, PANEL, 0.75), fitted)
    corner = (axes.get_position().x1, 1.0 - 0.075 / HEIGHT)
    tight: dict[str, Any] = {"borderpad": 0.0, "borderaxespad": 0.0, "handletextpad": 0.0, "columnspacing": 1.0}
    figure.legend(*axes.get_legend_handles_labels(), loc="upper right", bbox_to_anchor=corner, ncols=2, frameon=False, **tight)
    scale = place(left + PANEL + 0.1, 1.18, 0.09, axes.get_position().height * HEIGHT)
    figure.colorbar(contours, cax=scale, label="density $p(x)$")
    figure.text(0.5 / WIDTH, 1.0 - 0.16 / HEIGHT, _fixed(fits))


def _fixed(fits: Sequence[MoonsFit]) -> str:
    """What the panels have in common."""
    settings = [fitted.setting for fitted in fits]
    words: dict[str, set[float]] = {
        f"$m$ = {settings[0].m}": {s.m for s in settings},
        rf"$\sigma$ = {settings[0].sigma:g}": {s.sigma for s in settings},
        rf"$\lambda$ = {scientific(settings[0].lam, 0)}": {s.lam for s in settings},
    }
    common = [text for text, values in words.items() if len(values) == 1]
    return ", ".join([f"Two moons, $n$ = {N_SAMPLES}", *common])


def draw_density(axes: Axes, p: SoSDensity, steps: int, top: float) -> ContourSet:
    """Filled contours of a density from 0 to ``top``, on ``steps`` grid columns, with the sample on them."""
    from matplotlib.ticker import MaxNLocator

    nodes, shape = _nodes(steps), _shape(steps)
    x, y, values = nodes[:, 0].reshape(shape), nodes[:, 1].reshape(shape), p.pdf(nodes).reshape(shape)
    contours = axes.contourf(x, y, values, levels=MaxNLocator(nbins=12).tick_values(0.0, top), cmap="viridis")
    X = sample()
    axes.scatter(X[:, 0], X[:, 1], s=5.0, facecolors="white", edgecolors="black", linewidths=0.3, label="sample")
    axes.set_aspect("equal")
    axes.set_xlim(LOW[0], HIGH[0])
    axes.set_ylim(LOW[1], HIGH[1])
    axes.set_xlabel("$x_1$", labelpad=1.0)
    return contours


def peak(p: SoSDensity, steps: int) -> float:
    """The largest value that :func:`draw_density` meets."""
    return float(p.pdf(_nodes(steps)).max())


def _certificate(axes: Axes, fitted: MoonsFit) -> None:
    solution = fitted.solution
    axes.set_axis_off()
    entries = [
        ("objective", scientific(solution.objective, 3)),
        (f"gap ({solution.status})", scientific(solution.gap or 0.0, 1)),
        ("MMD, exact", f"{fitted.mmd_exact:.4f}"),
        ("MMD, projected", f"{fitted.mmd_projected:.4f}"),
        ("rank", f"{solution.rank}"),
    ]
    for i, (label, value) in enumerate(entries):
        height = 1.0 - (i + 0.7) / len(entries)
        axes.text(0.02, height, label, transform=axes.transAxes, fontsize=7.0)
        axes.text(0.98, height, value, transform=axes.transAxes, ha="right", fontsize=7.0)


def _shape(steps: int) -> tuple[int, int]:
    return round(steps * (HIGH[1] - LOW[1]) / (HIGH[0] - LOW[0])), steps


def _nodes(steps: int) -> np.ndarray:
    """A regular grid over the panel, row by row."""
    rows, columns = _shape(steps)
    x, y = np.meshgrid(np.linspace(LOW[0], HIGH[0], columns), np.linspace(LOW[1], HIGH[1], rows))
    return np.stack([x.ravel(), y.ravel()], axis=1)
