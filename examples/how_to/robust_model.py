"""
Train a robust model
====================

Least squares whose matrix depends on an uncertain number ξ: ten measurements of it are known, all
within [−½, ½], and in use it may stray farther. The robust solutions minimize the worst case over
all distributions of ξ near the measurements. They pay a little where nothing shifts, and save much
where something does.
"""

import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box

rng = np.random.default_rng(5)
A0, A1, b = rng.normal(size=(6, 6)), 0.7 * rng.normal(size=(6, 6)), rng.normal(size=6)
xi = rng.uniform(-0.5, 0.5, size=(10, 1))


def loss(theta, x):
    """‖(A₀ + ξA₁)θ − b‖² for every ξ, and its gradients in θ."""
    residual = A0 @ theta - b + x * (A1 @ theta)
    return np.sum(residual**2, axis=1), 2.0 * (residual @ A0 + x * (residual @ A1))


# %%
# A radius of 0 is least squares. Each larger ball holds the smaller ones.
radii = [0.0, 0.05, 0.1]
ball = ksos.Ball(xi, 0.0, kernel=Gaussian(1.0), domain=Box([-2.5], [2.5]))
found = ksos.robust_path(loss, np.zeros(6), ball, radii)

shifts = np.linspace(0.0, 4.0, 21)
_, (left, right) = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
grid = np.linspace(-2.5, 2.5, 400)[:, None]
for radius, solution in zip(radii, found, strict=True):
    # the mean loss for ξ uniform on ±(1 + shift)/2, at the nodes of a fine grid
    means = [
        loss(solution.theta, np.linspace(-0.5, 0.5, 401)[:, None] * (1.0 + shift))[0].mean()
        for shift in shifts
    ]
    name = "least squares" if radius == 0.0 else f"radius {radius}"
    print(
        f"{name}: mean loss {means[0]:.2f} without shift, {means[10]:.2f} at shift 2,"
        f" {means[-1]:.2f} at shift 4"
    )
    left.plot(shifts, means, label=name)
    if solution.worst_case is not None:
        print(
            f"    certified: at most {solution.value:.2f} in the ball, and no θ can promise less"
            f" than {solution.lower_bound:.2f}"
        )
        right.plot(grid, solution.worst_case.distribution.cdf(grid), label=name)
left.set(xlabel="shift Δ: tests on ±½(1 + Δ)", ylabel="mean loss")
left.legend()
right.plot(grid, np.mean(xi <= grid.T, axis=0), "k", lw=0.8, label="measurements")
right.set(xlabel="ξ", ylabel="probability up to ξ", title="the worst distributions")
right.legend()
plt.show()

# %%
# What to change: write your loss with its gradient, and choose the radius by the shift that you
# expect.
