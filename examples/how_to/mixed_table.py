"""
A table of any kind
===================

What does a table with categories, counts, zeros and missing cells say about one of its columns,
given the others? One density answers, fills the gaps and draws rows of the same types.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import ksos

rng = np.random.default_rng(0)
n = 100
level = rng.choice(3, n, p=[0.5, 0.3, 0.2])
table = pd.DataFrame(
    {
        "ill": np.array(["no", "mild", "severe"])[level],
        "visits": rng.poisson(0.2 + 0.7 * level),
        "rain": np.where(rng.random(n) < 0.57, 0.0, rng.exponential(2.0, n)),
        "cost": np.exp(0.4 * rng.normal(size=n) + 0.5 * level),
    }
)
kinds = {"visits": "count", "rain": "nonnegative", "cost": "positive"}
p = ksos.KernelSoSDensityCV(columns=kinds, cv=3).fit(table).distribution_

given = {"ill": {"mild", "severe"}}
print(f"P(visits ≥ 1 | ill)  = {p.probability(low={'visits': 1}, given=given):.2f}")
print(f"share in the data    = {(table['visits'] >= 1)[level > 0].mean():.2f}")
print(f"P(rain = 0)          = {p.probability(high={'rain': 0.0}):.2f}")
print(p.probabilities("ill", given={"visits": (2, 9)}).round(2).to_string())

gaps = table.head(3).astype(object)
gaps.loc[0, "cost"] = gaps.loc[1, "ill"] = None
print(p.impute(gaps).round(2))

# %%
# Each column is drawn in its own way: bars for probabilities, curves for densities, dots for the
# data.
ksos.TableDisplay.from_density(p, table)
plt.show()

# %%
# What to change: declare the kinds of your columns. Numbers are plain numbers unless you declare
# them.
