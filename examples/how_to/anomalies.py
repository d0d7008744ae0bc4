"""
Find anomalies
==============

``contamination=0.05`` flags one new row in twenty of those that are as the old ones, and nearly all
that are not. The threshold comes from held-out rows, because a density is higher at the rows that
it was fitted to.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

import ksos

usual, _ = make_moons(400, noise=0.08, random_state=0)
new, _ = make_moons(300, noise=0.08, random_state=1)  # from the same distribution
strange = np.array([[0.5, 1.5], [-0.6, -0.4], [1.6, 0.8], [2.3, -0.6]])

est = ksos.KernelSoSDensity(contamination=0.05, n_support=80).fit(usual)
print(f"flagged of the new rows: {np.mean(est.predict(new) == -1):.3f}")
for row, verdict, p_value in zip(strange, est.predict(strange), est.p_value(strange), strict=True):
    print(f"{row}: {'anomaly' if verdict == -1 else 'usual'}, p-value {p_value:.3f}")

# %%
# The line is the level of the threshold: log-density equal to ``est.threshold_``.
side = np.stack(np.meshgrid(np.linspace(-1.8, 2.8, 150), np.linspace(-1.2, 1.7, 100)), axis=-1)
height = est.decision_function(side.reshape(-1, 2)).reshape(100, 150)
_, ax = plt.subplots(figsize=(7, 4.4), layout="constrained")
ax.contour(side[..., 0], side[..., 1], height, levels=[0.0], colors="C3")
ax.plot(*new.T, ".", markersize=4, color="0.5", label="new rows, as usual")
ax.plot(*strange.T, "x", markersize=8, color="C3", label="strange rows")
ax.set(xlabel="first column", ylabel="second column", aspect="equal")
ax.legend(loc="lower left")
plt.show()

# %%
# What to change: ``contamination`` is the rate of false alarms that you accept. Use ``fit_predict``
# for the rows that you fit.
