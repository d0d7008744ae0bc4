"""
Figures of densities
====================

One feature, two features, all pairs of four, and the search for bandwidth and λ.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris, make_moons

import ksos

iris = load_iris(as_frame=True).data

# One feature: the curve, its 50% and 90% regions, the distribution function, and the rug of the
# data.
petal_length = iris[["petal length (cm)"]]
one = ksos.KernelSoSDensity(bandwidth=1.0).fit(petal_length)
ksos.DensityDisplay.from_estimator(one, petal_length)

# Two features, in axes of our own: contours, and the borders of the regions with 25, 50 and 90% of
# the mass.
moons, _ = make_moons(300, noise=0.1, random_state=0)
two = ksos.KernelSoSDensity(bandwidth=0.7).fit(moons)
_, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ksos.DensityDisplay.from_estimator(two, moons, ax=ax, regions=(0.25, 0.5, 0.9), support=False)
print(
    "levels of the regions:",
    {mass: round(two.distribution_.hdr_level(mass, rng=0), 3) for mass in (0.25, 0.5, 0.9)},
)

# Four features: every panel is an exact marginal.
four = ksos.KernelSoSDensity(bandwidth="scott").fit(iris)
ksos.DensityDisplay.from_estimator(four, iris)

# The held-out scores of a search over λ, with the standard errors of their differences. A ring
# marks the chosen λ.
search = ksos.KernelSoSDensityCV(cv=3).fit(moons)
ksos.CrossValidationDisplay.from_estimator(search, depth=0.2)
print("chosen:", search.best_params_)

plt.show()
