"""
Conditional quantiles
=====================

The whole distribution of y for every x. Here the noise grows and splits in two, which a mean and an
error bar would hide. With one to three columns, the joint density of x and y is a good model.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos

rng = np.random.default_rng(0)
X = rng.uniform(0.0, 4.0, size=(400, 1))
# two branches from x = 1.5 on, the lower one with 70% of the rows
side = rng.choice([-1.0, 1.0], size=400, p=[0.7, 0.3]) * np.maximum(X[:, 0] - 1.5, 0.0) * 0.6
y = np.sin(2.0 * X[:, 0]) + side + 0.25 * rng.normal(size=400)

joint = ksos.KernelSoSDensity(bandwidth=[0.7, 0.8], relative_regularization=1e-4, tol=1e-6)
est = ksos.KernelSoSConditional("joint", estimator=joint).fit(X, y)
print(f"mean log-density of y given x: {est.score(X, y):.3f}")
for x in (0.5, 3.5):
    low, middle, high = est.predict_quantile([[x]], [0.05, 0.5, 0.95])[0]
    p = est.pdf([[x]], grid=np.linspace(-4.0, 4.0, 400))[0]
    modes = np.sum((p[1:-1] > p[:-2]) & (p[1:-1] > p[2:]) & (p[1:-1] > 0.1 * p.max()))
    print(
        f"x = {x}: median {middle:.2f}, nine tenths of the mass in [{low:.2f}, {high:.2f}], {modes}"
        " mode(s)"
    )
covered = np.mean((est.cdf(X, y) > 0.05) & (est.cdf(X, y) < 0.95))
print(f"share of the samples between the 5% and the 95% quantile: {covered:.3f}")

# %%
# The figure shows the density of y for every x. From x = 2.5 on it has two modes, and the median
# stays on the larger one.
columns, heights = np.linspace(0.0, 4.0, 160), np.linspace(-3.5, 3.5, 200)
height = est.pdf(columns[:, None], grid=heights).T
band = est.predict_quantile(columns[:, None], [0.05, 0.5, 0.95])
_, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
mesh = ax.pcolormesh(
    columns,
    heights,
    height,
    cmap="Blues",
    vmin=0.0,
    vmax=np.quantile(height, 0.995),
    shading="nearest",
)
ax.plot(X[:, 0], y, ".", color="black", markersize=2, label="samples")
ax.plot(columns, band[:, 1], color="#D55E00", label="median")
ax.plot(
    columns,
    band[:, [0, 2]],
    color="#D55E00",
    linestyle="--",
    linewidth=0.9,
    label=["5% and 95%", "_nolegend_"],
)
ax.set(xlabel="x", ylabel="y", xlim=(0.0, 4.0), ylim=(-3.5, 3.5))
ax.legend(loc="lower left")
plt.colorbar(mesh, ax=ax, label="p(y | x)")
plt.show()

assert 0.8 < covered < 1.0

# %%
# What to change: with more columns or a regressor that you trust, use
# ``KernelSoSConditional(regressor)`` instead of "joint".
