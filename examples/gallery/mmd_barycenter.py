"""
What several samples have in common
===================================

The MMD barycenter is the density that is nearest to several samples at once. Use it to average
distributions. The weights say how much each sample counts.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian

rng = np.random.default_rng(0)
samples = []
for width, height in ((2.0, 0.7), (0.7, 2.0), (1.4, 1.4)):
    t = rng.uniform(0.0, 2.0 * np.pi, 300)
    samples.append(
        np.stack([width * np.cos(t), height * np.sin(t)], axis=1)
        + 0.08 * rng.standard_normal((300, 2))
    )
side = np.linspace(-2.5, 2.5, 11)
space = ksos.SoSSpace(
    Gaussian(0.75), np.stack([g.ravel() for g in np.meshgrid(side, side)], axis=1)
)

grid = np.linspace(-3.2, 3.2, 120)
nodes = np.stack([g.ravel() for g in np.meshgrid(grid, grid)], axis=1)
_, axes = plt.subplots(1, 3, figsize=(9, 3.6), layout="constrained", sharex=True, sharey=True)
for X in samples:
    axes[0].scatter(*X.T, s=4)
axes[0].set(title="three samples", aspect="equal", xlim=(-3.2, 3.2), ylim=(-3.2, 3.2), ylabel="y")
for ax in axes:
    ax.set(xlabel="x", xticks=range(-3, 4, 2), yticks=range(-3, 4, 2))
for ax, name, weights in (
    (axes[1], "the tall one counts most", (0.1, 0.8, 0.1)),
    (axes[2], "all count the same", (1 / 3, 1 / 3, 1 / 3)),
):
    functional = sum(
        w * SquaredMMD(X) for w, X in zip(weights, samples, strict=True)
    ) + 1e-4 * Trace(relative=True)
    solution = ksos.minimize(functional, space, tol=1e-7)
    p = solution.distribution
    distances = [ksos.mmd(p, X, space.embedding_kernel, landmarks=space.landmarks) for X in samples]
    print(f"{name}: {solution.message}")
    print(f"    MMD to the samples: {', '.join(f'{d:.3f}' for d in distances)}")
    print(f"    within {solution.projected_mmd_bound:.0e} of the optimal density, in projected MMD")
    height = p.pdf(nodes).reshape(120, 120)
    levels = np.linspace(0.04, 1.0, 10) * height.max()  # white where there is hardly any mass
    ax.contourf(grid, grid, height, levels=levels, cmap="Blues")
    ax.set(title=name, aspect="equal")
plt.show()
