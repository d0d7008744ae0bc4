"""
Predict a quantile where the data were not
==========================================

The 90% quantile of the progression of diabetes, from three measurements. The model is trained on
patients whose body mass index is low, and meets the others: then the same for blood pressure, for
the lipid measurement s5 and for age. The robust model minimizes the pinball loss against all
reweightings of its training rows that are near the data. It pays where nothing shifts, and gains
where the shift goes its way, which it does for two of the four.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes

import ksos

LEVEL, RADII = 0.9, (0.0, 0.01)
data = load_diabetes()
names = data.feature_names
Z = np.column_stack(
    [data.data[:, [names.index(name) for name in ("bmi", "bp", "s5")]], data.target]
)
Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
slope, intercept = cp.Variable(3), cp.Variable()


def residual(P):
    return P[:, 3] - P[:, :3] @ slope - intercept


def scores(rows):
    """Mean pinball loss, and the share of rows below the predicted quantile."""
    r = residual(rows).value
    return np.maximum(LEVEL * r, (LEVEL - 1.0) * r).mean(), np.mean(r <= 0.0)


risk = ksos.risk.pinball(residual, LEVEL)
found = {}
print("shift in  radius   same patients: loss, below   others: loss, below")
for name in ("bmi", "s5", "bp", "age"):
    key = data.data[:, names.index(name)]
    low = key <= np.quantile(key, 0.6)
    train, same, others = Z[low][::2], Z[low][1::2], Z[~low]
    for radius in RADII:
        ksos.decide(risk, ksos.Ball(train, radius, domain="samples"))
        (loss, below), (shifted, covered) = scores(same), scores(others)
        found[name, radius] = loss, shifted
        print(f"{name:9} {radius:6} {loss:16.3f} {below:11.2f} {shifted:15.3f} {covered:7.2f}")

_, ax = plt.subplots(layout="constrained")
for name in ("bmi", "s5", "bp", "age"):
    ax.annotate("", found[name, 0.01], found[name, 0.0], arrowprops={"arrowstyle": "->"})
    ax.plot(*found[name, 0.0], "o", color="C0")
    ax.annotate(name, found[name, 0.0], xytext=(4, 4), textcoords="offset points")
ax.plot(*np.transpose([found[name, 0.01] for name in ("bmi", "s5", "bp", "age")]), "s", color="C3")
ax.set(xlabel="loss on patients as in the data", ylabel="loss on the others")
ax.set_title("arrows from the plain model to the robust one")
plt.show()
