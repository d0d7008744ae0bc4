"""
Order against demand that may differ
====================================

A stock is ordered before the demand is known, here the yearly flow of the Nile at Aswan. Each
missing unit costs 4, each unit left over 1. The robust order is the best one against every
distribution within a distance of the data, and the price of that is shown: orders of the last 30
years, for each of the ten years that follow.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import ksos
from ksos.measures import Box

# 1871 to 1970, in 10⁸ m³
FLOW = """1120 1160 963 1210 1160 1160 813 1230 1370 1140 995 935 1110 994 1020 960 1180 799 958
1140 1100 1210 1150 1250 1260 1220 1030 1100 774 840 874 694 940 833 701 916 692 1020 1050 969 831
726 456 824 702 1120 1100 832 764 821 768 845 864 862 698 845 744 796 1040 759 781 865 845 944 984
897 822 1010 771 676 649 846 812 742 801 1040 860 874 848 890 744 749 838 1050 918 986 797 923 975
815 1020 906 901 1170 912 746 919 718 714 740"""
flow = np.array(FLOW.split(), dtype=float)[:, None]
WINDOW, STEP = 30, 10


def cost(order, demand):
    return np.maximum(4.0 * (demand - order), order - demand)


order = cp.Variable(nonneg=True)
risk = ksos.risk.newsvendor(order, underage=4.0, overage=1.0)
radii = [0.0, 0.02, 0.05, 0.1]
costs = {radius: [] for radius in radii}
for start in range(0, len(flow) - WINDOW, STEP):
    past, future = flow[start : start + WINDOW], flow[start + WINDOW : start + WINDOW + STEP, 0]
    ball = ksos.Ball(past, 0.0, domain=Box([200.0], [1600.0]))
    for radius in radii:
        decision = ksos.decide(risk, ball.with_radius(radius))
        assert decision.status == "solved"
        costs[radius].extend(cost(order.value, future))

# %%
# The costs of all years show the price of robustness in the mean, and what it saves in the worst
# years.
found = [np.sort(costs[radius]) for radius in radii]
means = [values.mean() for values in found]
worst = [values[-len(values) // 10 :].mean() for values in found]
print("radius   mean cost   mean of the worst 10%")
for radius, mean, tail in zip(radii, means, worst, strict=True):
    print(f"{radius:6}   {mean:9.1f}   {tail:21.1f}")

_, ax = plt.subplots(figsize=(7, 4), layout="constrained")
for values, label in ((means, "mean"), (worst, "mean of the worst 10%")):
    change = 100.0 * (np.array(values) / values[0] - 1.0)
    ax.plot(radii, change, "o-", label=label)
ax.axhline(0.0, color="0.7", lw=1)
ax.set(xlabel="radius of the ball", ylabel="change of the cost over the years (%)")
ax.legend()
plt.show()

# %%
# What to change: ``ksos.risk`` has other losses, and constraints on the order are those of CVXPY.
