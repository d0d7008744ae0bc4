"""
A whole distribution, and its worst case
========================================

The time that a delivery takes, given its distance: far away it depends on the road, and the density
has two modes. A mean would name a time at which hardly anybody arrives. Beside it, the question of
a planner: how often is the demand above the capacity of 1.6, if its distribution is not quite that
of the data?
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import BoxIndicator

rng = np.random.default_rng(0)
distance = rng.uniform(1.0, 9.0, size=(300, 1))
on_the_motorway = rng.random(300) < 0.6
minutes = np.where(
    on_the_motorway, 12.0 + 2.0 * distance[:, 0], 6.0 + 6.0 * distance[:, 0]
) + 2.0 * rng.normal(size=300)

joint = ksos.KernelSoSDensity(bandwidth=[3.0, 9.0], relative_regularization=1e-4, tol=1e-6)
est = ksos.KernelSoSConditional("joint", estimator=joint).fit(distance, minutes)

_, places = plt.subplot_mosaic("lm;rr", figsize=(8, 7), layout="constrained")
left, middle, right = places.values()
x, y = np.linspace(1.0, 9.0, 150), np.linspace(0.0, 70.0, 250)
left.pcolormesh(x, y, est.pdf(x[:, None], grid=y).T, cmap="Blues", vmax=0.13, shading="nearest")
left.plot(distance[:, 0], minutes, ".", color="black", markersize=2)
quantiles = est.predict_quantile(x[:, None], [0.05, 0.95])
left.plot(x, quantiles, color="C1", linewidth=1.2, label=["5% and 95%", "_"])
left.set(
    xlabel="distance (km)", ylabel="time (min)", title="density of the time given the distance"
)
left.legend(loc="upper left")

for at in (2.0, 5.0, 8.0):
    given = est.at([at])
    late = given.probability(40.0, np.inf)
    print(f"distance {at}: mean {given.mean()[0]:.1f} minutes, P(more than 40) = {late:.3f}")
    middle.plot(y, given.pdf(y[:, None]), label=f"{at:.0f} km: P(> 40 min) = {late:.2f}")
middle.set(xlabel="time (min)", ylabel="density", ylim=(0.0, 0.19), title="three distances")
middle.legend(loc="upper right", fontsize="small")

demand = rng.normal(1.0, 0.25, size=(60, 1))
grid = np.linspace(0.0, 2.5, 400)[:, None]
right.plot(grid, np.mean(demand <= grid.T, axis=0), "k", linewidth=0.8, label="60 days")
for radius in (0.03, 0.06, 0.12):
    ball = ksos.Ball(demand, radius, kernel=Gaussian(0.5), domain=Box([0.0], [2.5]))
    worst = ksos.worst_case(BoxIndicator([1.6], [2.5]), ball, bandwidth=0.5)
    print(
        f"MMD ≤ {radius}: P(demand above 1.6) is at worst {worst.value:.3f}, and at most"
        f" {worst.upper_bound:.3f}"
    )
    right.plot(
        grid, worst.distribution.cdf(grid), label=f"MMD ≤ {radius}: P(> 1.6) = {worst.value:.2f}"
    )
right.axvline(1.6, color="C3", linewidth=1, label="capacity")
right.set(xlabel="demand", ylabel="probability up to the demand", title="worst cases near the data")
right.legend(loc="upper left", fontsize="small")
plt.show()
