"""
P(x > c given y)
================

What is the probability that a flower is wider than 1.55 cm, given its length? One joint density
answers for every length, exactly, and for intervals of lengths as well.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

import ksos

petals = (
    load_iris(as_frame=True)
    .data[["petal length (cm)", "petal width (cm)"]]
    .set_axis(["length", "width"], axis=1)
)
est = ksos.KernelSoSDensity().fit(petals)
p = est.distribution_

print(f"P(width > 1.55)                  = {p.probability(low={'width': 1.55}):.3f}")
print(
    "P(width > 1.55 | length = 4.8)   ="
    f" {p.probability(low={'width': 1.55}, given={'length': 4.8}):.3f}"
)
print(
    "P(width > 1.55 | 4 < length < 5) ="
    f" {p.probability(low={'width': 1.55}, given={'length': (4.0, 5.0)}):.3f}"
)
near = petals[(petals["length"] > 4.0) & (petals["length"] < 5.0)]
print(
    f"share in the data, 4 < length < 5: {np.mean(near['width'] > 1.55):.3f} of {len(near)} flowers"
)

# %%
# The same question for every length gives a curve.
lengths = np.linspace(3.5, 6.5, 61)
chances = [p.probability(low={"width": 1.55}, given={"length": length}) for length in lengths]
_, (left, right) = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained")
ksos.DensityDisplay.from_estimator(est, petals, ax=left)
left.axhline(1.55, color="C3")
left.set(xlabel="petal length (cm)", ylabel="petal width (cm)")
right.plot(lengths, chances, color="C3")
right.set(xlabel="petal length (cm)", ylabel="P(width > 1.55 cm | length)", ylim=(0.0, 1.0))
plt.show()

# %%
# What to change: conditions may be values or intervals of any columns, and omitted columns are
# integrated out.
