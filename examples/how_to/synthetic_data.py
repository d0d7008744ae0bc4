"""
Draw synthetic data
===================

Fit a density to a table and draw a new one: as many rows as you like, with the names of the
columns, the standard deviations and the correlations. A test that asks whether the two tables can
be told apart is the check.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

import ksos

iris = load_iris(as_frame=True).data.rename(columns=lambda name: name.removesuffix(" (cm)"))
est = ksos.KernelSoSDensity(reference="mixture", objective="likelihood", random_state=0).fit(iris)
synthetic = est.distribution_.rvs(1000, rng=0, as_frame=True)

print(synthetic.head(3).round(2).to_string())
print(
    "correlations of petal length and width:",
    round(iris.corr().iloc[2, 3], 2),
    "and",
    round(synthetic.corr().iloc[2, 3], 2),
)
test = ksos.two_sample_test(iris, synthetic, rng=0)
print(f"p-value for the same distribution: {test.pvalue:.2f}")

# %%
# A density is no anonymisation: where it is narrow around one row, that row can be read from it.
_, axes = plt.subplots(1, 2, figsize=(8, 3.8), layout="constrained", sharex=True, sharey=True)
for ax, name, table in zip(
    axes, ("150 flowers", "1000 synthetic ones"), (iris, synthetic), strict=True
):
    ax.scatter(table["petal length"], table["sepal width"], s=8, alpha=0.6)
    ax.set(title=name, xlabel="petal length (cm)", ylabel="sepal width (cm)")
plt.show()
