"""The figure of the README: a density fitted to two moons.

Usage: ``python -m examples.paper.readme_figure docs/figures/two_moons.png``.
"""

import sys

from examples.paper.figure2 import TOL, Setting, draw_density, fit, peak
from examples.paper.files import scientific
from ksos.plotting import sheet

fitted = fit(Setting(m=100, sigma=0.5, lam=1e-4))
print(fitted.line())
assert fitted.solution.gap <= TOL
p, solution = fitted.solution.distribution, fitted.solution
with sheet(5.0, 3.15) as figure:
    axes = figure.add_axes((0.09, 0.115, 0.79, 0.79))
    contours = draw_density(axes, p, 240, peak(p, 240))
    axes.set_ylabel("$x_2$", labelpad=1.0)
    axes.set_title(
        f"objective {scientific(solution.objective, 3)}, proven to be within {scientific(TOL, 0)}"
        " of the optimum",
        pad=5.0,
    )
    box = axes.get_position()
    figure.colorbar(
        contours,
        cax=figure.add_axes((box.x1 + 0.015, box.y0, 0.02, box.height)),
        label="density $p(x)$",
    )
    figure.savefig(sys.argv[1], dpi=160)
