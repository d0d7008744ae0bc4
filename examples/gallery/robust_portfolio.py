"""
A portfolio under a chance constraint
=====================================

Two assets, forty observed returns. The portfolio has the largest mean return that is certain for
every distribution near the data, and under each of them it loses more than 10% with a probability
of at most 20%. The constraint is replaced by a safe, convex one. Afterwards the worst probability
of the portfolio is found exactly, from both sides.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.measures import Box

rng = np.random.default_rng(0)
returns = rng.normal([0.03, 0.08], [0.05, 0.15], size=(40, 2))
domain = Box([-0.2, -0.4], [0.2, 0.6])
share = cp.Variable(2, nonneg=True)


def loss(P):
    return -P @ share


def large_loss(P):
    return loss(P) - 0.1


risk = ksos.risk.expectation(loss)
limits = [cp.sum(share) <= 1.0, ksos.risk.chance(large_loss, 0.2)]
print("radius   shares        certain mean   worst P(loss > 10%)")
for radius in (0.0, 0.02):
    ball = ksos.Ball(returns, radius, domain=domain)
    found = ksos.decide(risk, ball, limits, rtol=0.05)
    worst = ksos.decide(ksos.risk.probability(large_loss), ball, rtol=0.05)
    between = f"{worst.lower_bound:.3f} to {worst.upper_bound:.3f}"
    shares = " ".join(f"{x:.2f}" for x in share.value)
    print(f"{radius:6}   {shares:11} {-found.upper_bound:13.3f}   {between}")

_, ax = plt.subplots(layout="constrained")
ax.scatter(*returns.T, s=15, color="0.6", label="data")
atoms = worst.adversary
ax.scatter(*atoms.points.T, s=1500.0 * atoms.weights, color="C3", alpha=0.5, label="worst case")
edge = np.linspace(domain.low[0], domain.high[0], 200)
ax.plot(edge, (-0.1 - share.value[0] * edge) / share.value[1], "k--", lw=1, label="loss of 10%")
ax.set(xlabel="return of asset 1", ylabel="return of asset 2", ylim=(-0.42, 0.6))
ax.xaxis.set_major_formatter("{x:.0%}")
ax.yaxis.set_major_formatter("{x:.0%}")
ax.legend(loc="upper left")
plt.show()
