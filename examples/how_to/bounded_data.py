"""
Bounded and positive data
=========================

Waiting times are not negative. With a ``Box`` as measure, the density has no mass below zero, and
all its answers respect the boundary. Change the box to other bounds. Sides may be infinite.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.measures import Box

waiting = np.random.default_rng(0).exponential(2.0, size=(1000, 1))  # minutes
anywhere = ksos.KernelSoSDensity(bandwidth=1.6).fit(waiting)
positive = ksos.KernelSoSDensity(bandwidth=1.6, measure=Box([0.0], [np.inf])).fit(waiting)

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

# %%
# The density on the whole line puts mass below zero and is too low at the boundary. The one on the
# half-line does neither.
x = np.linspace(-1.5, 10.0, 600)[:, None]
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.hist(waiting[:, 0], bins=60, density=True, color="0.88", label="1,000 waiting times")
ax.plot(x, 0.5 * np.exp(-0.5 * x) * (x >= 0.0), color="0.5", linestyle=":", label="truth")
ax.plot(x, anywhere.distribution_.pdf(x), color="C1", label="on the whole line")
ax.plot(x, positive.distribution_.pdf(x), color="C0", label="on the half-line")
ax.axvline(0.0, color="0.3", linewidth=0.8)
ax.set(xlabel="waiting time (min)", ylabel="density", xlim=(-1.5, 10.0))
ax.legend()
plt.show()

# %%
# What to change: pass the bounds of your data to ``Box``. A sample outside of them raises an error.
