"""Laws of every measure: the questions that the library asks it have answers that fit together."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.mixture import GaussianMixture as Fitted
from tables import MEASURE_CASES, points

from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal

CASES = {
    f"{name}, d={d}": (measure, d)
    for name, by_dimension in MEASURE_CASES.items()
    for d, measure in by_dimension.items()
}
every_measure = pytest.mark.parametrize(("measure", "d"), CASES.values(), ids=CASES)


@every_measure
def test_a_measure_has_atoms_or_a_density(measure: Measure, d: int) -> None:
    X = points(30, d, 3)
    if (atoms := measure.atoms) is None:
        log_density = measure.log_density(X)
        np.testing.assert_array_equal(np.isfinite(log_density), measure.contains(X))
        if measure.by_volume:
            np.testing.assert_array_equal(log_density[measure.contains(X)], 0.0)
    else:
        assert atoms.points.shape == (atoms.weights.shape[0], d)
        assert measure.bounded and not measure.by_volume
        with pytest.raises(TypeError, match="no density"):
            measure.log_density(X)


@every_measure
def test_boundary_region_and_support_agree(measure: Measure, d: int) -> None:
    low, high = measure.boundaries(d)
    assert [(a, b) for a, b in zip(low, high, strict=True)] == [
        measure.boundary(k) for k in range(d)
    ]
    X = 3.0 * points(50, d, 3)
    np.testing.assert_array_equal(measure.contains(X), np.all((low <= X) & (high >= X), axis=1))
    finite = bool(np.all(np.isfinite(low)) and np.all(np.isfinite(high)))
    assert (measure.region is not None) == finite
    assert measure.bounded == (finite or measure.atoms is not None)
    if measure.region is not None:
        assert measure.region == Box(low, high)
    assert np.all(np.isinf(measure.without_boundary.boundaries(d)))
    for k in range(d):
        assert measure.restrict([k]).boundary(0) == measure.boundary(k)


@every_measure
def test_the_image_under_an_affine_map_is_that_of_its_points(measure: Measure, d: int) -> None:
    scale, shift = np.array([-2.0, 0.5])[:d], np.array([0.3, -4.0])[:d]
    X = points(40, d, 5)
    image = measure.image(lambda x: scale * x + shift, scale)
    back = image.image(lambda y: (y - shift) / scale, 1.0 / scale)
    if measure.atoms is not None:
        np.testing.assert_allclose(image.atoms.points, scale * measure.atoms.points + shift)
        np.testing.assert_array_equal(image.atoms.weights, measure.atoms.weights)
        np.testing.assert_allclose(back.atoms.points, measure.atoms.points)
        return
    volume = 0.0 if measure.by_volume else float(np.sum(np.log(np.abs(scale))))
    np.testing.assert_allclose(
        image.log_density(scale * X + shift), measure.log_density(X) - volume
    )
    np.testing.assert_allclose(back.log_density(X), measure.log_density(X))


@every_measure
def test_the_normal_factor_is_the_density(measure: Measure, d: int) -> None:
    X = points(20, d, 1)
    if measure.by_components:
        with pytest.raises(ValueError, match="one standard deviation per feature"):
            measure.normal_factor(d)
        return
    factor = measure.normal_factor(d)
    if factor is None:
        np.testing.assert_array_equal(measure.smooth_length(d), np.inf)
        return
    mean, deviation = factor
    expected = -0.5 * ((X - mean) / deviation) ** 2 - np.log(deviation * np.sqrt(2.0 * np.pi))
    np.testing.assert_allclose(measure.log_density(X), expected.sum(axis=1))
    np.testing.assert_allclose(
        measure.smooth_length(d), np.sqrt(2.0) * deviation
    )  # exp(−x²/2s²) is a kernel of bandwidth √2·s


def test_one_number_for_all_features_is_one_for_each() -> None:
    assert Normal(0.5, 2.0).for_features(2) == Normal([0.5, 0.5], [2.0, 2.0])
    assert Normal(0.5, 2.0) != Normal([0.5, 0.5], [2.0, 2.0])
    for measure in (Lebesgue(), Box([0.0], [1.0]), Discrete([[0.0]])):
        assert measure.for_features(1) == measure


@every_measure
def test_the_normal_laws_are_the_density_and_move_along_with_any_matrix(
    measure: Measure, d: int
) -> None:
    X, normals = points(20, d, 1), measure.normals(d)
    if normals is None:
        return
    parts = [
        np.log(w) + multivariate_normal(mean, S).logpdf(X)
        for w, mean, S in zip(*normals, strict=True)
    ]
    np.testing.assert_allclose(measure.log_density(X), logsumexp(parts, axis=0), rtol=1e-12)
    A, b = np.array([[2.0]]) if d == 1 else np.array([[2.0, 1.0], [-0.5, 1.0]]), np.full(d, 3.0)
    moved = measure.linear_image(A, b).log_density(X @ A.T + b) + np.log(np.linalg.det(A))
    np.testing.assert_allclose(moved, measure.log_density(X), rtol=0, atol=1e-12)
    assert measure.log_mass(d) == 0.0 and np.all(np.isfinite(measure.smooth_length(d)))


def test_a_fitted_mixture_of_any_covariance_type_is_a_measure() -> None:
    X = points(80, 2)
    for form in ("full", "tied", "diag", "spherical"):
        fitted = Fitted(2, covariance_type=form, random_state=0).fit(X)
        np.testing.assert_allclose(
            GaussianMixture.from_sklearn(fitted).log_density(X), fitted.score_samples(X), rtol=1e-12
        )
    with pytest.raises(ValueError, match="covariances must have shape"):
        GaussianMixture([1.0], [[0.0, 1.0]], [1.0])
    with pytest.raises(ValueError, match=r"covariances\[1\] .*positive definite"):
        GaussianMixture([1, 1], [[0.0, 1.0]] * 2, [np.eye(2), [[1.0, 2.0], [2.0, 1.0]]])


def test_scattered_nodes_are_the_same_in_every_call() -> None:
    box = Box([-2.0] * 2, [2.0] * 2)
    one, again, other = (Discrete.qmc(box, 64, **seed) for seed in ({}, {}, {"rng": 1}))
    np.testing.assert_array_equal(one.points, again.points)
    assert not np.array_equal(one.points, other.points)
