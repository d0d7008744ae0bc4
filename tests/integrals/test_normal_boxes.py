"""Masses of normal laws in boxes: against thirty digits, orthants with known masses, and the laws
of a measure.
"""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import multivariate_normal

from ksos.integrals import box_masses, mixture_box_masses


def test_masses_of_normal_laws_to_the_last_digits() -> None:
    """One dimension is integrated in thirty digits; scipy's function has eight of them in three
    features.
    """
    for rho in (0.4, -0.97, 0.9999):
        low, high = np.array([[-0.7, -np.inf]]), np.array([[1.2, 0.3]])
        with mpmath.workdps(30):
            root = mpmath.sqrt(1 - mpmath.mpf(rho) ** 2)
            cuts = sorted(
                {
                    -0.7,
                    1.2,
                    *(
                        x
                        for x in (0.3 / rho + step * float(root) for step in (-8, 0, 8))
                        if -0.7 < x < 1.2
                    ),
                }
            )
            expected = mpmath.quad(
                lambda z, r=rho, s=root: (
                    mpmath.npdf(z) * mpmath.ncdf((mpmath.mpf(0.3) - r * z) / s)
                ),
                cuts,
            )
        assert box_masses(low, high, np.array([[1.0, rho], [rho, 1.0]]))[0, 0] == pytest.approx(
            float(expected), rel=1e-12
        )
    G = np.random.default_rng(0).normal(size=(3, 3))
    C = 0.5 * G @ G.T + 0.4 * np.eye(3)
    low, high = np.array([[-0.8, -np.inf, -0.3]]), np.array([[0.4, 0.2, 1.5]])
    expected = multivariate_normal.cdf(
        high[0], np.zeros(3), C, maxpts=200_000, abseps=1e-9, releps=1e-9, lower_limit=low[0]
    )
    assert box_masses(low, high, C)[0, 0] == pytest.approx(float(expected), abs=1e-7)


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.8])
def test_orthants_of_three_features(rho: float) -> None:
    """⅛ + (Σ arcsin ρ_ij)/4π, and the halves of a box are what the box is."""
    R = np.array([[1.0, rho, 0.3 * rho], [rho, 1.0, -0.1], [0.3 * rho, -0.1, 1.0]])
    low, high = np.zeros((1, 3)), np.full((1, 3), np.inf)
    expected = 0.125 + np.sum(np.arcsin([rho, 0.3 * rho, -0.1])) / (4.0 * np.pi)
    assert box_masses(low, high, R)[0, 0] == pytest.approx(expected, rel=1e-13)
    left, right = (box_masses(low, np.array([[b, 2.0, 1.0]]), R)[0, 0] for b in (0.4, 3.0))
    part = box_masses(np.array([[0.4, 0.0, 0.0]]), np.array([[3.0, 2.0, 1.0]]), R)[0, 0]
    assert left + part == pytest.approx(right, rel=1e-12)


@pytest.mark.parametrize("d", [2, 3, 4, 6])
def test_orthants_of_features_with_correlation_one_half(d: int) -> None:
    """1/(d + 1): the chance that one of d + 1 independent normal numbers is the largest."""
    each = box_masses(np.zeros((2, d)), np.full((2, d), np.inf), 0.5 * np.eye(d) + 0.5)
    assert each.shape == (1 if d <= 3 else 8, 2)
    np.testing.assert_array_equal(each[:, 0], each[:, 1])
    value, error = mixture_box_masses(
        np.array([0.4, 0.6]),
        np.zeros((2, d)),
        0.5 * np.eye(d) + 0.5,
        np.zeros((1, d)),
        np.full((1, d), np.inf),
    )
    if d <= 3:
        assert each[0, 0] == pytest.approx(1.0 / (d + 1), rel=1e-13)
        assert value[0] == pytest.approx(1.0 / (d + 1), rel=1e-13)
        assert error[0] == 0.0
    else:
        assert abs(each[:, 0].mean() - 1.0 / (d + 1)) < 6.0 * each[:, 0].std(ddof=1) / np.sqrt(8)
        assert abs(value[0] - 1.0 / (d + 1)) < 6.0 * error[0]
        assert 0.0 < error[0] < 1e-4


def test_features_without_sides_and_boxes_out_of_reach() -> None:
    R = np.array(
        [[1.0, 0.6, -0.3, 0.2], [0.6, 1.0, 0.1, 0.4], [-0.3, 0.1, 1.0, 0.5], [0.2, 0.4, 0.5, 1.0]]
    )
    inf = np.inf
    low = np.array(
        [
            [-inf] * 4,
            [-1.0, -inf, -inf, -inf],
            [-50.0, 0.2, -60.0, -inf],
            [30.0, -inf, -inf, -inf],
            [-1.0, -2.0, 0.0, -0.5],
        ]
    )
    high = np.array(
        [
            [inf] * 4,
            [0.5, inf, inf, inf],
            [70.0, 1.0, 80.0, inf],
            [40.0, 0.0, 0.0, 0.0],
            [1.0, -45.0, 1.0, 0.5],
        ]
    )
    expected = [1.0, ndtr(0.5) - ndtr(-1.0), ndtr(1.0) - ndtr(0.2), 0.0, 0.0]
    for found in (
        box_masses(low, high, R).mean(axis=0),
        mixture_box_masses(np.ones(1), np.zeros((1, 4)), R, low, high)[0],
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_features_that_all_but_determine_each_other() -> None:
    """Three features in a plane, all but a thousandth: the rule gives way to points, and the error
    says so.
    """
    G = np.array([[1.0, 0.0], [0.6, 0.8], [-0.8, 0.6]])
    C = G @ G.T + 1e-9 * np.eye(3)
    each = box_masses(np.full((1, 3), -1.0), np.array([[0.7, 0.9, 0.8]]), C)
    samples = np.random.default_rng(0).normal(size=(400_000, 2)) @ G.T
    share = np.mean(np.all((samples >= -1.0) & (samples <= [0.7, 0.9, 0.8]), axis=1))
    error = each.std(ddof=1) / np.sqrt(8) + np.sqrt(share * (1.0 - share) / 400_000)
    assert each.shape == (8, 1)
    assert abs(each.mean() - share) < 5.0 * error < 0.05
