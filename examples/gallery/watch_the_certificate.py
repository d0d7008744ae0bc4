"""
Watch the certificate
=====================

How two solvers approach one minimum, and what is proven at every step: the minimum lies in the
shaded band.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_moons

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.kernels import Gaussian

X, _ = make_moons(150, noise=0.05, random_state=0)
space = ksos.SoSSpace(Gaussian(1.0), X[:60])
functional = SquaredMMD(X) + 1e-3 * Trace()

figure, axes = plt.subplots(1, 2, figsize=(8, 4.5), layout="constrained")
for ax, solver in zip(axes, ("low_rank", "fista"), strict=True):
    solution = ksos.minimize(functional, space, solver=solver, tol=1e-6)
    print(solution.message)
    ksos.SolutionDisplay.from_solution(solution, ax=ax)
plt.show()
