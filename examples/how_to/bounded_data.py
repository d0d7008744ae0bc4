"""
Bounded and positive data
=========================

Waiting times are not negative: a density on the half-line [0, ∞) loses no mass below zero, and all
its answers respect the boundary.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.measures import Box

waiting = np.random.default_rng(0).exponential(2.0, size=(300, 1))  # minutes
anywhere = ksos.KernelSoSDensity(bandwidth=0.8).fit(waiting)
positive = ksos.KernelSoSDensity(bandwidth=0.8, measure=Box([0.0], [np.inf])).fit(waiting)

for name, estimator in (("on the whole line", anywhere), ("on the half-line", positive)):
    p = estimator.distribution_
    print(
        f"{name}: P(negative) = {p.cdf([[0.0]])[0]:.3f}, P(within a minute) ="
        f" {p.probability(0.0, 1.0):.3f}, median {p.ppf(0.5):.2f} min"
    )
print(
    f"in the data: P(negative) = 0.000, P(within a minute) = {np.mean(waiting <= 1.0):.3f}, median"
    f" {np.median(waiting):.2f} min"
)

_, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
for ax, estimator in zip(axes, (anywhere, positive), strict=True):
    ksos.DensityDisplay.from_estimator(
        estimator, waiting, feature_names=["waiting time (min)"], ax=ax
    )
plt.show()
