"""Mixtures of densities with different kernels and references: every question against quadrature,
samples, files, scikit-learn.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from densities import from_square, normal, random_density, stacked
from scipy.stats import norm
from sklearn.mixture import GaussianMixture as FittedMixture
from statistics_checks import dkw_passes_at
from tables import MEASURE_CASES, points

import ksos
from ksos import SoSDensity
from ksos.density import from_terms, reference_density, square_of
from ksos.functionals import NegativeLogLikelihood, Trace
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, GaussianMixture, Lebesgue, Measure, Normal
from ksos.observables import BoxIndicator, KernelFunction, Polynomial
from ksos.quadrature import composite, cut, tensor_grid
from ksos.space import evaluate

TIED = Gaussian([[0.64, 0.25], [0.25, 0.3]])
THREE = GaussianMixture(
    [1, 2],
    [[0.2, 0.0, -0.4], [-0.5, 0.3, 0.1]],
    np.stack([0.4 * np.eye(3) + 0.1, np.diag([0.3, 0.6, 0.5])]),
)


def fitted(d: int = 2) -> FittedMixture:
    return FittedMixture(3, random_state=0).fit(
        np.concatenate([points(40, d, 3), 1.0 + points(40, d, 4)])
    )


def corrected(kernel: Gaussian, measure: Measure, d: int, seed: int = 0) -> SoSDensity:
    """A density with a constant, relative to normal laws."""
    rng = np.random.default_rng(seed)
    factor, constant = 0.6 * rng.normal(size=(5, 2)), rng.normal(size=2)
    return SoSDensity(
        kernel, points(5, d, seed), factor, measure, constant=constant, normalize=True
    )


LAWS: dict[str, Callable[[], SoSDensity]] = {
    "two kernels": lambda: stacked(
        [random_density(Gaussian(0.8)), random_density(Laplace(0.6), seed=1)], [2, 1]
    ),
    "a box and the line": lambda: stacked(
        [random_density(Gaussian(0.8), Box([-0.6], [0.9])), normal(deviation=1.3)]
    ),
    "one box": lambda: stacked(
        [random_density(kernel, Box([-0.6], [0.9])) for kernel in (Gaussian(0.8), Matern(1.5, 0.8))]
    ),
    "atoms": lambda: stacked(
        [
            random_density(kernel, MEASURE_CASES["discrete"][1])
            for kernel in (Gaussian(0.8), Laplace(0.8))
        ]
    ),
    "atoms of a grid": lambda: stacked(
        [
            random_density(Gaussian(s), Discrete.quadrature(Box([-1.0, -1.0], [1.0, 1.0]), 6), 2)
            for s in (0.6, 0.9)
        ]
    ),
    "corrected, one feature": (
        lambda: corrected(Gaussian(0.8), MEASURE_CASES["gaussian_mixture"][1], 1).by_volume()
    ),
    "corrected, relative": (
        lambda: corrected(Gaussian(0.8), MEASURE_CASES["gaussian_mixture"][1], 1)
    ),
    "corrected": (
        lambda: corrected(Gaussian([0.8, 0.6]), MEASURE_CASES["gaussian_mixture"][2], 2).by_volume()
    ),
    "corrected, tied, relative": (
        lambda: corrected(TIED, MEASURE_CASES["normal with covariance"][2], 2)
    ),
    "nothing but squares": (
        lambda: random_density(TIED, MEASURE_CASES["gaussian_mixture"][2], 2).by_volume()
    ),
    "features integrated out": lambda: (
        corrected(Gaussian([[0.6, 0.2, 0.1], [0.2, 0.9, -0.2], [0.1, -0.2, 0.7]]), THREE, 3)
        .by_volume()
        .marginal([2, 0])
    ),
    "a stack": lambda: stacked(
        [
            corrected(TIED, MEASURE_CASES["gaussian_mixture"][2], 2),
            random_density(Gaussian(0.9), d=2),
            ksos.mixture([fitted()]),
            random_density(Gaussian([0.6, 0.8]), Normal([0.2, -0.3], [0.9, 0.5]), 2),
        ],
        [1, 2, 1, 2],
    ),
}


@cache
def law(name: str) -> SoSDensity:
    return LAWS[name]()


every_law = pytest.mark.parametrize("name", LAWS)
CONTINUOUS = [name for name in LAWS if "atoms" not in name]
by_volume = pytest.mark.parametrize("name", CONTINUOUS)
in_the_plane = pytest.mark.parametrize(
    "name", [name for name in CONTINUOUS if law(name).n_features == 2]
)
WORK = {"rtol": 1e-9, "max_evaluations": None, "rng": 0}


def rule(p: SoSDensity) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights against the measure of p."""
    if (atoms := p.measure.atoms) is not None:
        return atoms.points, atoms.weights
    far = 25.0 if p.n_features == 1 else 6.5
    low, high = np.clip(p.measure.boundaries(p.n_features), -far, far)
    axes = []
    for k in range(p.n_features):
        kinks = np.r_[p.support_points[:, k], -0.6, 0.9] if p.n_features == 1 else None
        axes.append(
            composite(
                *cut(low[k : k + 1], high[k : k + 1], 0.25 if p.n_features == 1 else 0.5, kinks), 10
            )
        )
    nodes, weights = (
        tensor_grid([x for x, _ in axes]),
        np.prod(tensor_grid([w for _, w in axes]), axis=1),
    )
    normals = p.measure.normals(p.n_features)
    return nodes, weights if normals is None else weights * np.exp(p.measure.log_density(nodes))


@every_law
def test_values_moments_and_expectations_agree_with_quadrature(name: str) -> None:
    p = law(name)
    (nodes, w), d = rule(p), p.n_features
    mass = w * p.pdf(nodes)
    assert np.all(mass >= 0.0) and mass.sum() == pytest.approx(1.0, abs=1e-9)
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-12)
    mean = mass @ nodes
    np.testing.assert_allclose(p.mean(), mean, atol=1e-9)
    np.testing.assert_allclose(
        p.cov(), (nodes - mean).T @ ((nodes - mean) * mass[:, None]), atol=1e-9
    )
    powers = (3, 2)[:d]
    assert p.moment(powers) == pytest.approx(
        mass @ np.prod(nodes**powers, axis=1), rel=1e-7, abs=1e-8
    )
    f = Polynomial({powers: 2.0}, 0.1) + 3.0 * KernelFunction(
        points(4, d, 9), [1.0, -1.0, 0.5, 0.2], kernel=Gaussian(0.7)
    )
    if all(term.joint.kernel.smooth for _, term in p.terms.parts):
        assert p.expectation(f) == pytest.approx(mass @ f(nodes), abs=1e-8)
    cosine = p.expectation(lambda X: np.cos(X[:, 0]), rng=0)
    assert cosine == pytest.approx(mass @ np.cos(nodes[:, 0]), abs=1e-8)
    seen = mass > 0.0
    assert p.entropy(0) == pytest.approx(
        -(mass[seen] @ p.logpdf(nodes[seen])), abs=1e-5
    )  # the rule does not know where p has zeros


@by_volume
def test_probabilities_agree_with_quadrature(name: str) -> None:
    p = law(name)
    d = p.n_features
    low, high = np.array([-0.5, -0.3])[:d], np.array([0.7, 0.4])[:d]
    axes = [
        composite(*cut(low[k : k + 1], high[k : k + 1], 0.1, p.support_points[:, k]), 8)
        for k in range(d)
    ]
    nodes, w = tensor_grid([x for x, _ in axes]), np.prod(tensor_grid([w for _, w in axes]), axis=1)
    expected = w @ np.exp(p.terms.log_by_volume(nodes))
    assert p.probability(low, high) == pytest.approx(expected, abs=1e-9)
    assert p.expectation(BoxIndicator(low, high)) == pytest.approx(expected, abs=1e-9)
    corners = np.array(
        [[high[k] if bit >> k & 1 else low[k] for k in range(d)] for bit in range(2**d)]
    )
    signs = np.array([(-1) ** (d - bin(bit).count("1")) for bit in range(2**d)])
    assert signs @ p.cdf(corners) == pytest.approx(expected, abs=1e-9)
    assert p.probability(-np.inf, np.inf) == pytest.approx(1.0, abs=1e-12)
    one = p if d == 1 else p.marginal([1])
    q = np.array([0.0, 1e-6, 0.3, 0.9, 1.0 - 1e-9, 1.0])
    x = one.ppf(q)
    assert (x[0], x[-1]) == one.measure.boundary(0)
    np.testing.assert_allclose(one.cdf(x[1:-1, None]), q[1:-1], rtol=1e-9)
    level = one.hdr_level(0.6)
    nodes, w = rule(one)
    values = one.pdf(nodes)
    assert (w * values)[values >= level].sum() == pytest.approx(
        0.6, abs=0.02
    )  # the rule cuts its panels elsewhere


def test_quantiles_and_regions_on_atoms() -> None:
    p = LAWS["atoms"]()
    atoms, masses = p.measure.atoms, p.terms.node_masses
    x = float(p.ppf(0.4))
    assert masses[atoms.points[:, 0] <= x].sum() >= 0.4 > masses[atoms.points[:, 0] < x].sum()
    assert masses[p.pdf(atoms.points) >= p.hdr_level(0.5)].sum() >= 0.5
    np.testing.assert_array_equal(p.mode(), atoms.points[np.argmax(p.logpdf(atoms.points))])
    assert set(p.rvs(100, 0)[:, 0]) <= set(atoms.points[:, 0])
    q = LAWS["atoms of a grid"]()
    given = {0: float(q.measure.points[0, 0])}
    on_line = q.measure.points[:, 0] == given[0]
    np.testing.assert_allclose(
        np.sort(q.conditional(given).terms.node_masses),
        np.sort(q.terms.node_masses[on_line] / q.terms.node_masses[on_line].sum()),
    )
    assert q.marginal([1]).mean()[0] == pytest.approx(q.mean()[1], abs=1e-12)
    with pytest.raises(ValueError, match="take those of the components"):
        stacked(
            [random_density(Gaussian(s), MEASURE_CASES["discrete"][2], 2) for s in (0.6, 0.9)]
        ).marginal([0])


@in_the_plane
def test_marginals_and_conditionals_make_the_joint_density(name: str) -> None:
    p = law(name)
    X = points(20, 2, 8)
    x, w = composite(*cut(np.array([-9.0]), np.array([9.0]), 0.5), 12)
    for k in (0, 1):
        line = np.zeros((x.shape[0], 2))
        line[:, k], line[:, 1 - k] = 0.3, x
        expected = w @ np.exp(p.terms.log_by_volume(line))
        assert np.exp(p.marginal([k]).terms.log_by_volume(np.array([[0.3]]))[0]) == pytest.approx(
            expected, rel=1e-9
        )
        given = p.conditional({k: 0.3})
        np.testing.assert_allclose(
            given.terms.log_by_volume(X[:, [1 - k]]),
            p.terms.log_by_volume(np.insert(X[:, [1 - k]], k, 0.3, axis=1)) - np.log(expected),
            atol=1e-9,
        )
        np.testing.assert_allclose(
            p.conditional_logpdf(X, k) + p.marginal(k).logpdf(X[:, [k]]), p.logpdf(X), atol=1e-9
        )
        np.testing.assert_allclose(
            p.conditional({k: X[0, k]}).logpdf(X[:1, [1 - k]]),
            p.conditional_logpdf(X[:1], k),
            atol=1e-9,
        )
    np.testing.assert_allclose(p.marginal([1, 0]).logpdf(X[:, ::-1]), p.logpdf(X), atol=1e-12)


@by_volume
def test_images_and_products_are_those_of_the_values(name: str) -> None:
    p = law(name)
    d, X = p.n_features, np.clip(points(20, p.n_features, 8), -0.6, 0.9)
    A = (
        np.diag([-2.0, 0.5][:d])
        if d == 1 or name == "one box"
        else np.array([[1.0, 0.5], [-0.3, 2.0]])
    )
    b = np.array([1.0, -2.0])[:d]
    image = p.affine(np.diagonal(A) if d == 1 else A, b)
    np.testing.assert_allclose(
        image.terms.log_by_volume(X @ A.T + b),
        p.terms.log_by_volume(X) - np.linalg.slogdet(A)[1],
        atol=1e-9,
    )
    np.testing.assert_allclose(image.mean(), A @ p.mean() + b, atol=1e-9)
    if p.kernel.smooth and name != "two kernels" and "one box" not in name:
        scale = np.array([0.6, np.inf])[:d]
        product = p.times_gaussian(0.3, scale)
        nodes, w = rule(p)
        values = p.pdf(nodes) * np.exp(-0.5 * ((nodes[:, 0] - 0.3) / 0.6) ** 2)
        np.testing.assert_allclose(product.pdf(nodes), values / (w @ values), atol=1e-9)


def test_a_density_that_was_asked_can_be_pickled() -> None:
    p = corrected(TIED, GaussianMixture([1, 2], [[0.2, 0.0], [-0.5, 0.3]], [np.eye(2)] * 2), 2)
    X = points(9, 1, 7)
    for q in (p.marginal([0]), p.conditional({1: (-0.5, 0.7)})):
        asked = [q.logpdf(X), q.grad_logpdf(X), q.cdf(X), q.rvs(5, rng=0)]
        again = pickle.loads(pickle.dumps(q))
        for one, other in zip(
            asked,
            [again.logpdf(X), again.grad_logpdf(X), again.cdf(X), again.rvs(5, rng=0)],
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [name for name in CONTINUOUS if name != "nothing but squares"])
def test_gradients_and_modes(name: str) -> None:
    p = law(name)
    X, step = np.clip(points(8, p.n_features, 8), -0.55, 0.85), 1e-6
    differences = [
        (p.logpdf(X + step * e) - p.logpdf(X - step * e)) / (2 * step) for e in np.eye(p.n_features)
    ]
    np.testing.assert_allclose(p.grad_logpdf(X), np.transpose(differences), atol=1e-5)
    if (
        p.measure.normals(p.n_features) is None and name != "a stack"
    ):  # a ratio of densities may have no mode
        nodes, _ = rule(p)
        assert p.logpdf(p.mode()[None, :])[0] >= p.logpdf(nodes).max() - 1e-9


@by_volume
def test_samples_follow_the_law(name: str) -> None:
    p, n = law(name), 4000
    samples = p.rvs(n, 5)
    assert samples.shape == (n, p.n_features)
    np.testing.assert_array_equal(samples, p.rvs(n, 5))
    for k in range(p.n_features):
        one = p.marginal([k]) if p.n_features > 1 else p
        assert dkw_passes_at(samples[:, k], lambda t, one=one: one.cdf(np.reshape(t, (-1, 1))), 25)


@every_law
def test_a_file_gives_back_the_same_bits(name: str, tmp_path: Path) -> None:
    p = law(name)
    p.save(tmp_path / "p.ksos")
    q = ksos.load(tmp_path / "p.ksos")
    X = points(30, p.n_features, 8)
    assert type(q) is SoSDensity and q.measure == p.measure
    np.testing.assert_array_equal(q.logpdf(X), p.logpdf(X))
    np.testing.assert_array_equal(q.rvs(5, 0), p.rvs(5, 0))


@pytest.mark.parametrize("count", [2, 7, 30])
def test_a_density_with_a_constant_is_saved(count: int, tmp_path: Path) -> None:
    """Whatever the last bits of the weights of its reference are."""
    rng = np.random.default_rng(count)
    p = corrected(
        TIED,
        GaussianMixture(rng.random(count), points(count, 2), rng.uniform(0.2, 1.0, (count, 2))),
        2,
    )
    p.save(tmp_path / "p.ksos")
    q = ksos.load(tmp_path / "p.ksos")
    assert type(q) is SoSDensity and q.measure == p.measure
    np.testing.assert_array_equal(q.pdf(points(9, 2)), p.pdf(points(9, 2)))


@pytest.mark.parametrize(
    "name",
    [
        "two kernels",
        "a box and the line",
        "corrected, one feature",
        "corrected, relative",
        "corrected",
    ],
)
def test_distances_agree_with_quadrature(name: str) -> None:
    p = law(name)
    d = p.n_features
    other = stacked(
        [normal([0.1] * d, 0.4)], measure=p.measure if p.measure.normals(d) is not None else None
    )
    nodes, w = rule(p)
    if name not in ("one box", "a box and the line"):
        ratio = p.terms.log_by_volume(nodes) - other.terms.log_by_volume(nodes)
        assert p.kl_divergence(other, 0) == pytest.approx((w * p.pdf(nodes)) @ ratio, abs=1e-5)
    assert other.kl_divergence(LAWS["one box"]()) == math.inf if d == 1 else True
    if p.measure == other.measure:
        assert p.l2_distance(other) == pytest.approx(
            math.sqrt(w @ (p.pdf(nodes) - other.pdf(nodes)) ** 2), abs=1e-6
        )
    assert p.l2_distance(p) == pytest.approx(0.0, abs=1e-6)
    if p.kernel.smooth and name not in ("two kernels", "one box"):
        kernel = Gaussian(0.9)
        atoms = ksos.MeanEmbedding(points(6, d, 7), kernel=kernel)
        Z, mass = points(5, d, 2), w * p.pdf(nodes)
        np.testing.assert_allclose(
            evaluate(p, kernel, Z), [mass @ kernel(nodes, z[None, :])[:, 0] for z in Z], atol=1e-9
        )
        assert p.mmd(atoms, landmarks=points(40, d, 1)) <= p.mmd(atoms) + 1e-9
        assert p.mmd(other, kernel) == pytest.approx(other.mmd(p, kernel), abs=1e-7)


def test_exact_mmd_against_a_rule() -> None:
    p, q = LAWS["corrected, one feature"](), stacked([normal(), normal((1.0,), 0.5)])
    kernel, (nodes, w) = Gaussian(0.9), rule(p)
    difference = w * (p.pdf(nodes) - q.pdf(nodes))
    assert p.mmd(q, kernel) == pytest.approx(
        math.sqrt(difference @ kernel(nodes, nodes) @ difference), abs=1e-8
    )


@by_volume
def test_components_add_up(name: str) -> None:
    p = law(name)
    X, parts = points(20, p.n_features, 8), p.components
    assert sum(w for w, _ in parts) == pytest.approx(1.0, abs=1e-12)
    total = sum(w * np.exp(part.terms.log_by_volume(X)) for w, part in parts)
    np.testing.assert_allclose(total, np.exp(p.terms.log_by_volume(X)), rtol=1e-10)
    again = stacked([part for _, part in parts], [w for w, _ in parts], measure=p.measure)
    np.testing.assert_allclose(again.logpdf(X), p.logpdf(X), rtol=1e-9, atol=1e-10)
    assert normal().components[0][0] == 1.0


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_mixtures_of_scikit_learn(kind: str) -> None:
    given = FittedMixture(3, covariance_type=kind, random_state=0).fit(points(60, 3, 3))
    p, X = ksos.mixture([given]), points(50, 3, 8)
    np.testing.assert_allclose(p.logpdf(X), given.score_samples(X), atol=1e-12)


def test_one_kernel_makes_one_sum_of_squares() -> None:
    p, q = random_density(Gaussian(0.8)), random_density(Gaussian(0.8), seed=3)
    one, X = ksos.mixture([p, q], [1, 3]), points(20, 1)
    assert type(one) is SoSDensity
    np.testing.assert_allclose(stacked([p, q], [1, 3]).logpdf(X), one.logpdf(X), atol=1e-12)
    assert type(ksos.mixture([p, random_density(Gaussian(0.7))])) is SoSDensity
    nested = ksos.mixture([ksos.mixture([p, normal()]), q], [1, 1])
    assert len(nested.terms.parts) == 3 and [w for w, _ in nested.terms.parts] == [0.25, 0.25, 0.5]


def test_infinite_regularisation_leaves_the_reference() -> None:
    measure, X = MEASURE_CASES["gaussian_mixture"][2], points(30, 2, 6)
    space = ksos.SoSSpace(Gaussian(0.8), points(8, 2), measure, constant=True)
    p = ksos.minimize(
        NegativeLogLikelihood(X) + 1e8 * Trace(relative=True), space
    ).distribution.by_volume()
    np.testing.assert_allclose(p.logpdf(X), measure.log_density(X), atol=1e-6)
    np.testing.assert_allclose(p.mean(), measure.weights @ measure.means, atol=1e-6)


def test_compressed_references() -> None:
    p = corrected(Gaussian(0.8), MEASURE_CASES["gaussian_mixture"][2], 2)
    one, distance = p.compress(rank=1)
    assert one.rank == 1 and 0.0 < distance < 0.5
    few, distance = p.compress(m=4)
    assert few.terms.parts[0][1].joint.support_points.shape[0] == 4 and distance < 0.3
    same, distance = p.compress(m=5)
    assert distance == pytest.approx(0.0, abs=1e-7) and same.terms.mass() == pytest.approx(1.0)


def test_many_features() -> None:
    """What has no rule any more: estimates with errors that hold, and moments in closed form."""
    d = 5
    rng = np.random.default_rng(0)
    measure = GaussianMixture(
        [1, 2],
        rng.normal(size=(2, d)),
        np.stack([np.eye(d) + 0.3, np.diag(rng.uniform(0.5, 1.5, d))]),
    )
    p = corrected(Gaussian(2.0), measure, d).by_volume()
    samples = p.rvs(20_000, 0)
    np.testing.assert_allclose(samples.mean(axis=0), p.mean(), atol=0.05)
    inside = p.probability(-0.5, 2.0)
    assert (
        inside
        == pytest.approx(np.mean(np.all((samples >= -0.5) & (samples <= 2.0), axis=1)), abs=0.01)
        and inside.error < 1e-3
    )
    found = p.entropy(0)
    assert found == pytest.approx(-np.mean(p.logpdf(samples)), abs=0.05)
    level = p.hdr_level(0.5, 0)
    assert np.mean(p.pdf(samples) >= level) == pytest.approx(0.5, abs=0.02)
    assert p.marginal([3]).mean()[0] == pytest.approx(p.mean()[3], abs=1e-12)


def test_squares_over_normal_densities_are_drawn_in_many_features() -> None:
    """Where draws from the references would all be rejected."""
    d, rng = 60, np.random.default_rng(0)
    parts = [
        SoSDensity(
            Gaussian(4.0),
            rng.normal(size=(20, d)),
            rng.normal(size=(20, 3)),
            Normal(np.full(d, mean), 1.0),
            normalize=True,
        )
        for mean in (0.0, 0.1)
    ]
    p = ksos.mixture(parts, [1, 2])
    for q, features in ((p, slice(None)), (p.marginal([7, 3]), [7, 3])):
        samples = q.rvs(4_000, rng=1)
        deviations = np.sqrt(np.diagonal(p.cov())[features])
        away = (samples.mean(axis=0) - p.mean()[features]) / deviations
        assert np.abs(away).max() < 4.5 / math.sqrt(4_000)


def test_on_tensors() -> None:
    torch = pytest.importorskip("torch")
    p, X = LAWS["a stack"](), points(7, 2, 8)
    q = p.to("cpu")
    found = q.logpdf(torch.as_tensor(X))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), p.logpdf(X), atol=1e-12)
    assert isinstance(q.rvs(3, 0), torch.Tensor) and isinstance(
        q.marginal([0]).mean(), torch.Tensor
    )


def test_a_way_of_sampling_is_never_ignored() -> None:
    p = LAWS["corrected"]()
    assert p.rvs(3, 0, method="rejection").shape == (3, p.n_features)
    with pytest.raises(ValueError, match="drawn by rejection from these; use method='auto'"):
        p.rvs(3, method="inversion")
    for law in LAWS.values():
        with pytest.raises(ValueError, match="method"):
            law().rvs(3, method="nonsense")


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="mix with others on the same measure"):
        stacked([normal(), LAWS["atoms"]()])
    with pytest.raises(ValueError, match="mass outside of Box"):
        stacked([normal()], measure=Box([0.0], [1.0]))
    with pytest.raises(ValueError, match="answers pdf and logpdf alone"):
        stacked(
            [
                SoSDensity(
                    Gaussian(1.0),
                    [[0.5]],
                    [[1.0]],
                    Box([0.0], [1.0]),
                    constant=[1.0],
                    normalize=True,
                )
            ]
        )
    with pytest.raises(TypeError, match="a measure such as"):
        stacked([normal()], measure="lebesgue")
    p = LAWS["corrected"]()
    with pytest.raises(ValueError, match="invertible"):
        p.affine([[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match="quantiles are for one feature"):
        p.ppf(0.5)
    with pytest.raises(ValueError, match="vanishes"):
        stacked(
            [
                random_density(kernel, Box([-1.0, -1.0], [1.0, 1.0]), 2)
                for kernel in (Gaussian(0.8), Gaussian(0.5))
            ]
        ).conditional({0: 3.0})
    hidden = p.conditional({0: (0.0, 1.0)})
    assert repr(hidden) == f"SoSDensity(d=1, 1 term, measure={Lebesgue()!r})"


def test_laws_of_very_different_widths_are_answered_in_little_work() -> None:
    """Lone rows have laws a thousand times narrower than the others: no grid suits both, but the
    answers are those of a fine sum.
    """
    rng = np.random.default_rng(0)
    means, widths = rng.normal(size=(60, 2)), np.where(np.arange(60) < 40, 0.6, 5e-4)
    p = stacked(
        [
            reference_density(
                GaussianMixture(np.ones(60), means, np.repeat(widths[:, None] ** 2, 2, axis=1))
            )
        ],
        measure=Lebesgue(),
    )
    X = p.rvs(200_000, rng=1)
    mean, deviation = -p.logpdf(X).mean(), p.logpdf(X).std()
    found = [p.entropy(rng=seed) for seed in range(3)]
    for one in found:
        assert 0.0 < one.error < 5e-3
        assert abs(one - mean) < 5.0 * math.hypot(one.error, deviation / math.sqrt(X.shape[0]))
    level = p.hdr_level(0.8, rng=0)
    assert np.mean(p.pdf(X) >= level) == pytest.approx(0.8, abs=5e-3)
    # quantiles given an interval: each width has panels of its own, and the law is the mixture of
    # the laws
    line = p.conditional({1: (-0.5, 0.7)})
    inside = np.array(
        [
            norm.cdf(0.7, m, s) - norm.cdf(-0.5, m, s)
            for m, s in zip(means[:, 1], widths, strict=True)
        ]
    )
    q = np.array([1e-12, 0.03, 0.5, 0.9, 1.0 - 1e-9])
    x = line.ppf(q)
    expected = np.array([inside @ norm.cdf(t, means[:, 0], widths) for t in x]) / inside.sum()
    np.testing.assert_allclose(expected, q, rtol=1e-7, atol=1e-16)
    np.testing.assert_allclose(line.marginal([0]).cdf(x[:, None]), q, rtol=1e-10)


def test_closed_forms_say_so_beside_their_rounding() -> None:
    """Terms of both signs leave fewer digits than 1e-11: the error is that of rounding, and nothing
    was drawn.
    """
    X = np.linspace(-1.0, 1.0, 8)[:, None] * np.ones(2)
    column = np.array([1.0, -7.0, 21.0, -35.0, 35.0, -21.0, 7.0, -1.0])[:, None] * 1e2
    p = from_square(Gaussian(3.0), X, column, 0.0, Normal([0.0, 0.0], np.eye(2)), np.ones(1))
    p = from_terms(square_of(p).scaled_to_one())
    found = p.probability([0.0, -np.inf], [1.0, 0.5])
    assert found.method == "closed form" and 1e-11 < found.error < 1e-5
    nodes, weights = np.polynomial.legendre.leggauss(60)
    a, b = 0.5 * (nodes + 1.0), -8.0 + 8.5 * 0.5 * (nodes + 1.0)
    grid = np.stack([np.repeat(a, 60), np.tile(b, 60)], axis=1)
    exact = np.exp(p.terms.log_by_volume(grid)) @ np.outer(0.5 * weights, 4.25 * weights).ravel()
    assert abs(found - exact) < 10.0 * found.error
