"""
Compare two samples
===================

Do two samples have the same distribution, and where do they differ? ``two_sample_test`` has an
exact level. Its witness is positive where the first sample has more mass, and negative where the
second has more.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos

rng = np.random.default_rng(0)
before = rng.normal(size=(1000, 1))
after = np.concatenate(
    [rng.normal(size=(940, 1)), rng.normal(1.8, 0.15, size=(60, 1))]
)  # six in a hundred have gathered near 1.8

test = ksos.two_sample_test(before, after, rng=0)
one = ksos.two_sample_test(before, after, ksos.median_kernel(before, after), rng=0)
print(
    f"p-value {test.pvalue:.3f} with several kernels, {one.pvalue:.3f} with the median bandwidth"
    " alone"
)
print(
    f"more of the second sample near {test.most_b.point[0]:.2f}, more of the first near"
    f" {test.most_a.point[0]:.2f}"
)

# %%
# The witness below the histograms shows where the two samples differ.
x = np.linspace(-3.5, 3.5, 300)[:, None]
_, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), layout="constrained", sharex=True)
bins = np.linspace(-3.5, 3.5, 41)
top.hist(before[:, 0], bins, histtype="stepfilled", color="C0", alpha=0.35, label="before")
top.hist(after[:, 0], bins, histtype="step", color="C1", linewidth=1.5, label="after")
top.set(ylabel="rows")
top.legend()
witness = test.witness(x)
bottom.fill_between(x[:, 0], witness, where=witness > 0.0, color="C0", alpha=0.35)
bottom.fill_between(x[:, 0], witness, where=witness < 0.0, color="C1", alpha=0.5)
bottom.plot(x, witness, color="0.2")
bottom.axhline(0.0, color="0.7")
bottom.plot(*test.most_a.point, test.most_a.value, "^", color="C0", label="most before")
bottom.plot(*test.most_b.point, test.most_b.value, "v", color="C1", label="most after")
bottom.set(xlabel="x", ylabel="witness: before − after")
bottom.legend()
plt.show()

# %%
# What to change: rows may have many columns. ``test.most_a`` and ``test.most_b`` then name the
# places.
