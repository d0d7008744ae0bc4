"""
Bound the worst case
====================

A loss, data, and a distance: how bad can the expected loss be under a distribution that is no
farther than that from the data? The answer is a number with bounds on both sides, and the density
that attains it.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import BoxIndicator

demand = np.random.default_rng(0).normal(1.0, 0.25, size=(60, 1))
overflow = BoxIndicator([1.6], [3.0])  # P(demand above the capacity of 1.6)
domain = Box([0.0], [3.0])

radii = (0.03, 0.06, 0.1, 0.15)
balls = [ksos.Ball(demand, radius, kernel=Gaussian(0.5), domain=domain) for radius in radii]
found = [ksos.worst_case(overflow, ball) for ball in balls]
print(f"in the data: P(overflow) = {found[0].empirical_value:.3f}")
for radius, worst in zip(radii, found, strict=True):
    print(
        f"MMD ≤ {radius}: at worst between {worst.value:.4f} and {worst.upper_bound:.4f}"
        f" ({worst.upper_bound_kind})"
    )

# %%
# The worst distributions move mass just above the capacity, as far as the ball allows.
grid = np.linspace(0.0, 3.0, 400)[:, None]
_, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
left.plot(grid, np.mean(demand <= grid.T, axis=0), "k", lw=0.8, label="60 demands")
for radius, worst in zip(radii[::2], found[::2], strict=True):
    left.plot(grid, worst.distribution.cdf(grid), label=f"worst, MMD ≤ {radius}")
left.axvline(1.6, color="C3", lw=1, label="capacity")
left.set(xlabel="demand", ylabel="probability up to the demand")
left.legend(loc="lower right")
right.plot(
    [0.0, *radii],
    [found[0].empirical_value, *(worst.value for worst in found)],
    "o-",
    label="attained",
)
right.plot(radii, [worst.upper_bound for worst in found], "v--", label="no distribution exceeds")
right.set(xlabel="radius of the MMD ball", ylabel="P(demand above the capacity)")
right.legend()
plt.show()

# %%
# What to change: a loss may be any function of rows, and ``ksos.worst_case`` bounds its mean in the
# same way.
