"""
Few data and some knowledge
===========================

The density that is nearest to 25 samples, among those with a known mean, a known mean square and a
known share above 0.25. Use constraints if you know more than the samples show.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.functionals import Expectation, SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.observables import BoxIndicator, coordinate

rng = np.random.default_rng(11)
truth = np.concatenate(
    [rng.normal(-1.0, 0.5, 200_000), rng.normal(1.5, 0.4, 100_000)]
)  # of which three numbers are known
X = rng.choice(truth, 25)[:, None]
mean, square, share = truth.mean(), np.mean(truth**2), np.mean(truth > 0.25)

space = ksos.SoSSpace(Gaussian(1.0), np.linspace(-3.0, 3.0, 31)[:, None])
fit = SquaredMMD(X) + 1e-2 * Trace(relative=True)
x, above = coordinate(0), BoxIndicator([0.25], [np.inf])
knowledge = [Expectation(x) == mean, Expectation(x**2) == square, Expectation(above) == share]
free, informed = ksos.minimize(fit, space), ksos.minimize(fit, space, knowledge)

print(f"known:               mean {mean:6.3f}, mean square {square:.3f}, P(x > 0.25) = {share:.3f}")
for name, solution in (("without constraints", free), ("with constraints   ", informed)):
    p = solution.distribution
    square = p.cov()[0, 0] + p.mean()[0] ** 2
    numbers = (
        f"mean {p.mean()[0]:6.3f}, mean square {square:.3f}, P(x > 0.25) ="
        f" {p.probability(0.25, np.inf):.3f}"
    )
    print(f"{name}: {numbers}; {solution.status}, gap {solution.gap:.0e}")
for constraint, multiplier in zip(knowledge, informed.multipliers, strict=True):
    print(f"    {constraint!r} costs {multiplier:.4f} per unit")

grid = np.linspace(-3.5, 3.5, 400)[:, None]
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.hist(truth, bins=100, range=(-3.5, 3.5), density=True, color="0.85", label="truth")
ax.plot(grid, free.distribution.pdf(grid), "C1--", label="nearest to the 25 samples")
ax.plot(
    grid,
    informed.distribution.pdf(grid),
    "C0",
    label="nearest with the known values",
)
ax.plot(X[:, 0], np.zeros(25), "k|", ms=12)
ax.set(xlabel="x", ylabel="density", ylim=(0.0, 0.75))
ax.legend(loc="upper right", fontsize="small")
plt.show()
