"""
Use a GPU
=========

Tensors in, tensors out: a fit runs where its data lie, and so do chunks of data that do not fit
there. The lines below take a GPU if there is one, else the processor through PyTorch, else NumPy;
the answers agree.
"""

import importlib.util
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import ksos

data = np.random.default_rng(0).normal(size=(300, 3))
places: dict[str, Any] = {"NumPy": data}
if importlib.util.find_spec("torch") is not None:
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    places[f"torch, {device}"] = torch.tensor(data, device=device)
    places[f"chunks to {device}"] = ksos.chunks(data, rows=100).to(device)
else:
    print('pip install "kernel-sos[torch]" for tensors')

# %%
# The fits agree wherever they run.
_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for name, X in places.items():
    est = ksos.KernelSoSDensity(bandwidth=1.5, n_support=60).fit(X)
    print(
        f"{name}: objective {est.solution_.objective:.9f}, gap {est.solution_.gap:.0e}, scores:"
        f" {type(est.score_samples(data))}"
    )
    x0 = est.distribution_.to(None).marginal([0])
    grid = np.linspace(-4.0, 4.0, 200)[:, None]
    ax.plot(grid, x0.pdf(grid), label=name, lw=4 if name == "NumPy" else 1.5)
ax.hist(data[:, 0], bins=30, density=True, color="0.88", label="300 rows")
ax.set(xlabel="first feature", ylabel="density")
ax.legend()
plt.show()

# %%
# What to change: pass your own tensors. A density goes to another device with ``p.to("cuda")``.
