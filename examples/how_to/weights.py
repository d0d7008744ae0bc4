"""
Weights
=======

A survey reached too many of the young. Weights give every group its share of the population; a
whole number counts as repetition, zero as absence, and only proportions matter.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos

rng = np.random.default_rng(0)
young = rng.random(400) < 0.8  # in the population it is one half
income = np.where(young, rng.normal(24.0, 4.0, 400), rng.normal(42.0, 7.0, 400))[:, None]
weight = np.where(young, 0.5 / young.mean(), 0.5 / (1.0 - young.mean()))

plain = ksos.KernelSoSDensity().fit(income)
weighted = ksos.KernelSoSDensity().fit(income, sample_weight=weight)
for name, est in (("as sampled", plain), ("weighted", weighted)):
    p = est.distribution_
    print(
        f"{name}: mean {p.mean()[0]:.1f}, P(income > 35) = {p.probability(35.0, np.inf):.2f},"
        f" median {p.ppf(0.5):.1f}"
    )
print("in the population: mean 33.0, P(income > 35) = 0.42")

# %%
# A whole number as weight counts as repetition.
twice = ksos.KernelSoSDensity(bandwidth=8.0).fit(np.concatenate([income, income[:50]]))
counted = ksos.KernelSoSDensity(bandwidth=8.0).fit(
    income, sample_weight=np.where(np.arange(400) < 50, 2.0, 1.0)
)
print(
    "repeating rows is the same as weight 2:",
    np.isclose(twice.solution_.objective, counted.solution_.objective, atol=1e-7),
)

grid = np.linspace(0.0, 70.0, 300)[:, None]
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.hist(income[:, 0], bins=40, density=True, color="0.85", label="the survey")
ax.plot(grid, plain.distribution_.pdf(grid), "C1--", label="as sampled")
ax.plot(grid, weighted.distribution_.pdf(grid), "C0", label="weighted")
ax.set(xlabel="income (thousands)", ylabel="density")
ax.legend()
plt.show()

# %%
# What to change: pass the weights of your survey as ``sample_weight``. Only their proportions
# matter.
