"""
Ask a density
=============

Probabilities of boxes, quantiles, marginals and conditionals of a fitted density, all of them
exact.
"""

import numpy as np
from sklearn.datasets import load_iris

import ksos

iris = load_iris(
    as_frame=True
).data  # sepal length, sepal width, petal length, petal width, in centimetres
p = ksos.KernelSoSDensity(bandwidth="scott").fit(iris).distribution_

print("mean flower:", p.mean().round(2))
short = p.probability(high={"petal length (cm)": 2.5})
print(f"P(petals shorter than 2.5 cm)              = {short:.3f}")
print(
    "P(… and sepals longer than 5.5 cm)         ="
    f" {p.probability(low={'sepal length (cm)': 5.5}, high={'petal length (cm)': 2.5}):.3f}"
)

petal = p.marginal(
    ["petal length (cm)", "petal width (cm)"]
)  # the other two features are integrated out
print("covariance of the petal's sides:", petal.cov().round(3).tolist())

for sepal_length in (5.0, 6.0, 7.0):
    both = p.marginal(["sepal length (cm)", "petal length (cm)"])
    length = both.conditional(
        {"sepal length (cm)": sepal_length}
    )  # a density of the petal length alone
    low, middle, high = length.ppf([0.05, 0.5, 0.95])
    print(
        f"sepal {sepal_length} cm: petal {middle:.1f} cm, with probability 0.9 between {low:.1f}"
        f" and {high:.1f}"
    )

assert np.isclose(p.marginal("petal length (cm)").with_feature_names(None).cdf([[2.5]])[0], short)
