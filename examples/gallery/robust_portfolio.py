"""
A portfolio for returns that may differ
=======================================

Quarterly returns of a bank (JPM) and a maker of household goods (PG) from 1990 to 2022, in percent,
from prices of the package skfolio. Each four years the shares have the least mean plus CVaR of the
last 15. The robust ones hold both, which raised mean and losses in the quarters that followed. The
last portfolio has a chance constraint, and its worst probability is found from both sides.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.measures import Box

BANK = """12 -37 -29 64 24 20 -15 56 14 -11 19 5 2 11 -10 -8 7 -8 4 6 25 30 -3 21 0 14 12 6 4 22
-7 24 13 -43 66 15 7 -12 4 13 -20 1 -1 0 0 -23 8 -1 -4 -43 29 0 46 1 8 15 -7 3 -1 -10 3 -3 18 6 2
13 4 1 1 -5 -4 -1 -20 38 -32 -15 29 29 -5 8 -18 4 12 9 -11 -26 11 39 -22 14 9 9 12 -1 14 4 -4 5 5
-3 13 -9 9 -10 6 8 30 2 5 5 13 3 -5 9 -13 4 11 6 19 -35 6 3 33 21 3 6 -3 -13 -17 -6 28"""
GOODS = """29 -16 20 -1 -9 10 11 10 -10 8 9 -6 5 -8 21 -6 0 12 5 8 9 8 8 3 7 8 11 7 24 -2 16 6 8
-22 29 8 -10 7 17 -48 0 19 18 -20 2 15 9 14 0 1 -3 4 1 5 8 6 4 0 2 -3 0 13 -2 0 -3 12 4 -1 -3 16 5
-4 -13 15 -11 -23 10 14 6 5 -4 1 8 -4 4 0 6 2 -8 14 -1 14 1 -1 8 0 -2 7 10 -9 -4 -7 11 5 4 7 -6 8
-2 5 2 -13 -1 8 11 14 6 14 1 -11 9 17 1 -2 0 4 18 -6 -5 -12 21"""
returns = np.column_stack([np.array(text.split(), dtype=float) / 100 for text in (BANK, GOODS)])
domain = Box([-0.6, -0.6], [0.8, 0.5])
WINDOW, STEP = 60, 16
share = cp.Variable(2, nonneg=True)


def loss(P):
    return -P @ share


risk = ksos.risk.expectation(loss) + ksos.risk.cvar(loss, 0.1)
radii = [0.0, 0.05]
losses, held = {radius: [] for radius in radii}, {}
for start in range(0, len(returns) - WINDOW - STEP, STEP):
    past, future = np.split(returns[start : start + WINDOW + STEP], [WINDOW])
    ball = ksos.Ball(past, 0.0, domain=domain)
    for radius in radii:
        ksos.decide(risk, ball.with_radius(radius), [cp.sum(share) == 1.0], rtol=0.02)
        held[radius] = share.value
        losses[radius].extend(-future @ share.value)
print("radius   mean return   mean of the worst 10%   last shares")
for radius in radii:
    found = -np.sort(losses[radius])
    shares = " ".join(f"{x:.2f}" for x in held[radius])
    print(f"{radius:6} {found.mean():13.2%} {found[-len(found) // 10 :].mean():23.1%}   {shares}")

# The largest mean return that is certain, if a loss of more than 20% has probability at most 20%.
ball = ksos.Ball(returns[-WINDOW:], 0.03, domain=domain)
mean, limit = ksos.risk.expectation(loss), ksos.risk.chance(lambda P: loss(P) - 0.2, 0.2)
found = ksos.decide(mean, ball, [cp.sum(share) <= 1.0, limit], rtol=0.05)
worst = ksos.decide(ksos.risk.probability(lambda P: loss(P) - 0.2), ball, rtol=0.05)
print(f"shares {share.value.round(2)}, mean return of at least {-found.upper_bound:.2%},")
print(f"worst P(loss > 20%) from {worst.lower_bound:.3f} to {worst.upper_bound:.3f}")

_, ax = plt.subplots(layout="constrained")
ax.scatter(*ball.points.T, s=15, color="0.6", label="data")
atoms = worst.adversary
ax.scatter(*atoms.points.T, s=1500.0 * atoms.weights, color="C3", alpha=0.5, label="worst case")
edge = np.linspace(domain.low[0], domain.high[0], 200)
ax.plot(edge, (-0.2 - share.value[0] * edge) / share.value[1], "k--", lw=1, label="loss of 20%")
ax.set(xlabel="return of the bank", ylabel="return of the goods", ylim=(-0.62, 0.5))
ax.xaxis.set_major_formatter("{x:.0%}")
ax.yaxis.set_major_formatter("{x:.0%}")
ax.legend(loc="upper right")
plt.show()
