"""The fifteen normal mixtures of Marron and Wand, "Exact Mean Integrated Squared Error", Annals of
Statistics 20 (1992), table 1.
"""

from __future__ import annotations

import numpy as np

from quality.gaussian_mixture import GaussianMixtureLaw

__all__ = ["MARRON_WAND"]


def _claws(height: float, centers: list[float], width: float) -> list[tuple[float, float, float]]:
    return [(height, center, width) for center in centers]


# (weight, mean, standard deviation) of every component
_TABLE: dict[str, list[tuple[float, float, float]]] = {
    "gaussian": [(1.0, 0.0, 1.0)],
    "skewed_unimodal": [(1 / 5, 0.0, 1.0), (1 / 5, 1 / 2, 2 / 3), (3 / 5, 13 / 12, 5 / 9)],
    "strongly_skewed": [(1 / 8, 3.0 * ((2 / 3) ** i - 1.0), (2 / 3) ** i) for i in range(8)],
    "kurtotic_unimodal": [(2 / 3, 0.0, 1.0), (1 / 3, 0.0, 1 / 10)],
    "outlier": [(1 / 10, 0.0, 1.0), (9 / 10, 0.0, 1 / 10)],
    "bimodal": [(1 / 2, -1.0, 2 / 3), (1 / 2, 1.0, 2 / 3)],
    "separated_bimodal": [(1 / 2, -3 / 2, 1 / 2), (1 / 2, 3 / 2, 1 / 2)],
    "skewed_bimodal": [(3 / 4, 0.0, 1.0), (1 / 4, 3 / 2, 1 / 3)],
    "trimodal": [(9 / 20, -6 / 5, 3 / 5), (9 / 20, 6 / 5, 3 / 5), (1 / 10, 0.0, 1 / 4)],
    "claw": [(1 / 2, 0.0, 1.0), *_claws(1 / 10, [i / 2 - 1 for i in range(5)], 1 / 10)],
    "double_claw": [
        (49 / 100, -1.0, 2 / 3),
        (49 / 100, 1.0, 2 / 3),
        *_claws(1 / 350, [(i - 3) / 2 for i in range(7)], 1 / 100),
    ],
    "asymmetric_claw": [
        (1 / 2, 0.0, 1.0),
        *((2.0 ** (1 - i) / 31, i + 1 / 2, 2.0 ** (-i) / 10) for i in range(-2, 3)),
    ],
    "asymmetric_double_claw": [
        (46 / 100, -1.0, 2 / 3),
        (46 / 100, 1.0, 2 / 3),
        *_claws(1 / 300, [-i / 2 for i in (1, 2, 3)], 1 / 100),
        *_claws(7 / 300, [i / 2 for i in (1, 2, 3)], 7 / 100),
    ],
    "smooth_comb": [
        (2.0 ** (5 - i) / 63, (65 - 96 / 2**i) / 21, (32 / 63) / 2**i) for i in range(6)
    ],
    "discrete_comb": [
        *_claws(2 / 7, [(12 * i - 15) / 7 for i in range(3)], 2 / 7),
        *_claws(1 / 21, [2 * i / 7 for i in (8, 9, 10)], 1 / 21),
    ],
}


def _law(components: list[tuple[float, float, float]]) -> GaussianMixtureLaw:
    weights, means, deviations = (
        np.array(column, dtype=float) for column in zip(*components, strict=True)
    )
    return GaussianMixtureLaw(
        weights / weights.sum(), means[:, None], (deviations**2)[:, None, None]
    )


MARRON_WAND: dict[str, GaussianMixtureLaw] = {
    f"mw{i:02d}_{name}": _law(parts) for i, (name, parts) in enumerate(_TABLE.items(), 1)
}
"""Every density by its number and name."""
