"""
Compare two samples
===================

Have two samples the same law, and where do they differ? A test with an exact level, and the witness
μ_a − μ_b that explains it.
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

x = np.linspace(-3.5, 3.5, 300)[:, None]
_, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), layout="constrained", sharex=True)
top.hist([before[:, 0], after[:, 0]], bins=40, label=["before", "after"])
top.legend()
bottom.plot(x, test.witness(x))
bottom.axhline(0.0, color="0.7")
bottom.plot(*test.most_a.point, test.most_a.value, "^", *test.most_b.point, test.most_b.value, "v")
bottom.set(title=f"the witness: before minus after, {test.kernel!r}", xlabel="x")
plt.show()
