"""
The distribution behind a conditional mean embedding
====================================================

The weights of such an embedding are signed, so it is no distribution; the density nearest to it is
one.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian

rng = np.random.default_rng(0)
n = 200
x = rng.uniform(-1.0, 1.0, size=(n, 1))
branch = rng.choice([-1.0, 1.0], size=(n, 1))
y = branch * (0.2 + x**2) + 0.1 * rng.standard_normal(
    (n, 1)
)  # two branches that come close at x = 0

# The embedding of y given x = x₀ is Σ_i a_i k(·, y_i) with a = (K + nλI)⁻¹ k(X, x₀): regression in
# the RKHS.
kernel_x, kernel_y = Gaussian(0.4), Gaussian(0.4)
K = kernel_x(x) + n * 1e-3 * np.eye(n)
space = ksos.SoSSpace(Gaussian(0.4), np.linspace(-2.0, 2.0, 41)[:, None], embedding_kernel=kernel_y)
grid = np.linspace(-2.0, 2.0, 400)[:, None]

_, places = plt.subplot_mosaic("aa;bc", figsize=(7, 6), layout="constrained")
axes = list(places.values())
axes[0].scatter(x, y, s=8, color="0.4")
axes[0].set(xlabel="x", ylabel="y", title="the data")
for ax, x0 in zip(axes[1:], (-0.8, 0.1), strict=True):
    weights = np.linalg.solve(K, kernel_x(x, np.array([[x0]])))[:, 0]
    target = ksos.MeanEmbedding(y, weights, kernel=kernel_y)
    solution = ksos.minimize(SquaredMMD(target) + 1e-4 * Trace(relative=True), space)
    p = solution.distribution
    print(
        f"x = {x0:4.1f}: {np.mean(weights < 0):.0%} of the weights are negative; {solution.message}"
    )
    print(f"          mean {p.mean()[0]:.2f}, standard deviation {p.cov()[0, 0] ** 0.5:.2f}")
    axes[0].axvline(x0, color="C3", lw=1)
    ax.plot(grid, p.pdf(grid), color="C0", label="density nearest to the embedding")
    ax.plot(grid, target(grid), color="C3", ls="--", lw=1, label="the embedding itself")
    for center in (0.2 + x0**2, -0.2 - x0**2):
        ax.axvline(center, color="0.7", lw=1, zorder=0)
    ax.set(xlabel="y", title=f"y given x = {x0}", ylim=(0.0, 3.2))
axes[1].set_ylabel("density")
axes[1].legend(loc="upper center", fontsize="small")
plt.show()
