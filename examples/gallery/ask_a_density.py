"""
Ask a density
=============

Probabilities of boxes, quantiles, marginals and conditionals of a fitted density, all of them
exact.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

import ksos

iris = load_iris(as_frame=True).data  # lengths and widths in cm
p = ksos.KernelSoSDensity(bandwidth="scott").fit(iris).distribution_

print("mean flower:", p.mean().round(2))
short = p.probability(high={"petal length (cm)": 2.5})
print(f"P(petals shorter than 2.5 cm)              = {short:.3f}")
print(
    "P(… and sepals longer than 5.5 cm)         ="
    f" {p.probability(low={'sepal length (cm)': 5.5}, high={'petal length (cm)': 2.5}):.3f}"
)

# the other two features are integrated out
petal = p.marginal(["petal length (cm)", "petal width (cm)"])
print("covariance of the petal's sides:", petal.cov().round(3).tolist())

both = p.marginal(["sepal length (cm)", "petal length (cm)"])
grid = np.linspace(0.0, 8.0, 300)[:, None]
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for sepal_length in (5.0, 6.0, 7.0):
    length = both.conditional({"sepal length (cm)": sepal_length})  # a density of one feature
    plain = length.with_feature_names(None)  # an array has no names of columns
    ax.plot(grid, plain.pdf(grid), label=f"sepal length {sepal_length:.0f} cm")
    low, middle, high = length.ppf([0.05, 0.5, 0.95])
    print(
        f"sepal {sepal_length} cm: petal {middle:.1f} cm, with probability 0.9 between {low:.1f}"
        f" and {high:.1f}"
    )
ax.set(xlabel="petal length (cm)", ylabel="density given the sepal length")
ax.legend()
plt.show()

assert np.isclose(p.marginal("petal length (cm)").with_feature_names(None).cdf([[2.5]])[0], short)
