"""
Fit more data than memory holds
===============================

A source hands out chunks of rows, and no array ever holds all of them. The fit needs only sums over
the rows, and those are exact: the density is that of all rows. Here a function makes the chunks.
Files (CSV, NPY, Parquet, Arrow) work the same way: ``ksos.chunks("folder/*.parquet")``.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos


def rows():
    """Ten chunks of 10,000 rows on a noisy spiral, the same ones whenever they are asked for."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        angle = rng.uniform(1.0, 9.0, size=10_000)
        yield angle[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1) + 0.5 * rng.normal(
            size=(10_000, 2)
        )


est = ksos.KernelSoSDensity(
    bandwidth=3.0, n_support=80, relative_regularization=1e-5, tol=1e-6
).fit(ksos.chunks(rows))
few = ksos.KernelSoSDensity(
    bandwidth=3.0, n_support=80, relative_regularization=1e-5, tol=1e-6
).fit(next(rows())[:500])
new = next(rows())
print(est.solution_.message)
print(
    f"mean log-density of 10,000 rows: {est.score(new):.3f} from 100,000 rows, {few.score(new):.3f}"
    " from 500"
)

# %%
# The 50% region of 500 rows has pieces, which more rows join.
_, axes = plt.subplots(1, 2, figsize=(8, 4.4), layout="constrained")
for ax, model, name in zip(
    axes, (few, est), ("500 rows", "100,000 rows, in chunks of 10,000"), strict=True
):
    ksos.DensityDisplay.from_estimator(model, ax=ax, support=False)
    ax.set_title(name)
plt.show()

# %%
# What to change: pass your files to ``ksos.chunks``, and choose ``n_support`` by the detail that
# you need.
