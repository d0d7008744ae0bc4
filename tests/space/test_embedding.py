"""Laws of embeddings and the MMD: a metric, exact against quadrature, projected below exact."""

from __future__ import annotations

import math

import numpy as np
import pytest
from densities import make_density
from oracles import quadrature_rule
from tables import KERNEL_CASES, MEASURE_CASES, THIN_PAIR_CASES, PairCase, points

import ksos
from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.measures import Box, Discrete

every_kernel = pytest.mark.parametrize("kernel", KERNEL_CASES.values(), ids=KERNEL_CASES)
every_pair = pytest.mark.parametrize("pair", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)


@every_kernel
def test_between_samples_it_is_the_textbook_sum(kernel: Kernel) -> None:
    X, Y = points(7, 2), points(5, 2, 1)
    square = kernel(X).mean() + kernel(Y).mean() - 2 * kernel(X, Y).mean()
    assert ksos.mmd(X, Y, kernel) == pytest.approx(np.sqrt(square), rel=1e-10)
    assert ksos.mmd(X, X, kernel) == pytest.approx(0.0, abs=1e-7)
    assert ksos.mmd(X, Y, kernel) == pytest.approx(ksos.mmd(Y, X, kernel))
    assert ksos.mmd(X, Y, kernel, landmarks=np.concatenate([X, Y])) == pytest.approx(
        np.sqrt(square), rel=1e-6
    )


@every_kernel
def test_embeddings_may_be_signed_and_are_functions(kernel: Kernel) -> None:
    X, a = points(6, 2), np.array([1.0, -2.0, 0.5, 0.0, 3.0, -1.0])
    v = ksos.MeanEmbedding(X, a, kernel=kernel)
    Z = points(4, 2, 3)
    np.testing.assert_allclose(v(Z), kernel(Z, X) @ a, rtol=1e-12)
    assert v.norm() == pytest.approx(np.sqrt(a @ kernel(X) @ a))
    zero = ksos.MeanEmbedding(X, np.zeros(6), kernel=kernel)
    assert ksos.mmd(v, zero) == pytest.approx(v.norm())


@every_pair
def test_with_a_density_it_is_exact_wherever_a_closed_form_is_known(pair: PairCase) -> None:
    p, X = make_density(pair, 4, seed=2), points(5, pair.d, 8)
    embedding = pair.kernel.with_sigma(1.4 * pair.kernel.sigma)
    if not (pair.kernel.smooth or isinstance(pair.measure, Discrete)):
        with pytest.raises(IntegralNotAvailableError, match=r"no closed form; pass landmarks="):
            ksos.mmd(X, p, embedding)
        return
    q = make_density(pair, 3, seed=5)
    nodes, w = quadrature_rule(
        pair.kernel,
        pair.measure,
        np.concatenate([p.support_points, q.support_points]),
        per_panel=10,
        reach=3.5,  # k² is e^{−24} there
    )
    atoms = ksos.MeanEmbedding(nodes, w * p.pdf(nodes), kernel=embedding)
    assert ksos.mmd(X, p, embedding) == pytest.approx(ksos.mmd(X, atoms, embedding), abs=2e-7)
    other = ksos.MeanEmbedding(nodes, w * q.pdf(nodes), kernel=embedding)
    assert ksos.mmd(p, q, embedding) == pytest.approx(ksos.mmd(atoms, other, embedding), abs=1e-6)
    assert ksos.mmd(p, p, embedding) == pytest.approx(0.0, abs=1e-6)


@every_pair
def test_projected_is_at_most_exact_and_grows_with_the_landmarks(pair: PairCase) -> None:
    p, X = make_density(pair, 4, seed=2), points(5, pair.d, 8)
    Z = points(30, pair.d, 9)
    projected = [ksos.mmd(X, p, landmarks=Z[:ell]) for ell in (1, 3, 10, 30)]
    assert projected == pytest.approx(sorted(projected), abs=1e-9)
    try:
        exact = ksos.mmd(X, p)
    except IntegralNotAvailableError:
        return
    assert projected[-1] <= exact + 1e-7
    if isinstance(pair.measure, Discrete):  # landmarks at every atom leave nothing out
        everything = np.concatenate([pair.measure.points, X])
        assert ksos.mmd(X, p, landmarks=everything) == pytest.approx(exact, abs=1e-5)


def test_densities_with_other_kernels_and_measures_can_be_compared() -> None:
    boxed = make_density(PairCase(Gaussian(0.8), MEASURE_CASES["box"][2], 2))
    normal = make_density(PairCase(Gaussian([0.5, 1.0]), MEASURE_CASES["normal"][2], 2))
    free = make_density(PairCase(Gaussian(0.6), MEASURE_CASES["lebesgue"][2], 2))
    discrete = make_density(PairCase(Laplace(0.6), MEASURE_CASES["discrete"][2], 2))
    kernel = Gaussian(0.9)
    densities = [boxed, normal, free, discrete]
    atoms = []
    for p in densities:
        nodes, w = quadrature_rule(p.kernel, p.measure, p.support_points, per_panel=10, reach=5.0)
        atoms.append(ksos.MeanEmbedding(nodes, w * p.pdf(nodes), kernel=kernel))
    for i in range(4):
        for j in range(i):
            value = ksos.mmd(densities[i], densities[j], kernel)
            assert value == pytest.approx(ksos.mmd(atoms[i], atoms[j], kernel), abs=1e-6)


def test_the_order_four_sum_is_the_definition() -> None:
    p = make_density(PairCase(Gaussian(0.7), MEASURE_CASES["lebesgue"][1], 1), m=3)
    B, x = p.factor @ p.factor.T, p.support_points[:, 0]
    t, w = np.polynomial.legendre.leggauss(160)
    t, w = 6 * t, 6 * w
    k = np.exp(-(((t[:, None] - x) / 0.7) ** 2))
    density = np.einsum("ni,ij,nj->n", k, B, k)
    norm = (w * density) @ np.exp(-(((t[:, None] - t) / 1.1) ** 2)) @ (w * density)
    zero = ksos.MeanEmbedding([[0.0]], [0.0], kernel=Gaussian(1.1))
    assert ksos.mmd(p, zero) == pytest.approx(np.sqrt(norm), rel=1e-10)


def test_weights_that_cancel_do_not_cost_the_exact_value_its_digits() -> None:
    x = np.linspace(-1.0, 1.0, 9)[:, None]
    differences = np.array([(-1.0) ** k * math.comb(8, k) for k in range(9)])[
        :, None
    ]  # an eighth difference: B is huge, p is not
    p = ksos.SoSDensity(Gaussian(1.5), x, differences, normalize=True)
    nodes, w = quadrature_rule(p.kernel, p.measure, x)
    atoms = ksos.MeanEmbedding(nodes, w * p.pdf(nodes), kernel=Gaussian(1.0))
    X = points(4, 1)
    assert ksos.mmd(X, p, Gaussian(1.0)) == pytest.approx(ksos.mmd(X, atoms), rel=1e-9)
    wide = np.concatenate(
        [x, np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)], axis=1
    )  # no grid is affordable in four features
    q = ksos.SoSDensity(Gaussian(1.5), wide, differences, normalize=True)
    with pytest.warns(RuntimeWarning, match=r"weights of this density cancel.*pass landmarks="):
        ksos.mmd(points(4, 4), q)


def test_the_cost_of_an_exact_value_is_predicted_and_refused() -> None:
    p = make_density(PairCase(Gaussian(0.7), MEASURE_CASES["lebesgue"][2], 2), m=10)
    with pytest.raises(
        ValueError,
        match=(
            r"10 and 10 support points is predicted to take 1e\+04 operations, more than.*pass"
            r" landmarks="
        ),
    ):
        ksos.mmd(points(3, 2), p, max_operations=9e3)
    assert ksos.mmd(points(3, 2), p, max_operations=1e4) > 0.0
    box = Box([-2.0, -2.0], [2.0, 2.0])
    coarse, fine = (
        ksos.SoSDensity(Gaussian(eta), points(3, 2), np.ones((3, 1)), box, normalize=True)
        for eta in (0.1, 1e-3)
    )
    with pytest.raises(
        IntegralNotAvailableError, match=r"quadrature rule with .*×.* nodes; pass landmarks="
    ):
        ksos.mmd(points(3, 2), coarse, Gaussian(1e-3))
    atoms = ksos.mmd(points(3, 2, 5), points(3, 2), Gaussian(1.0))
    assert ksos.mmd(points(3, 2, 5), fine, Gaussian(1.0)) == pytest.approx(atoms, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((points(3, 2), points(3, 1), Gaussian(1.0)), ValueError, "a has 2 features, but b has 1"),
        ((points(3, 2), points(3, 2), "gaussian"), ValueError, "must be a kernel object"),
        (
            (points(3, 2), ksos.MeanEmbedding(points(3, 2), kernel=Gaussian(2.0)), Gaussian(1.0)),
            ValueError,
            (
                r"b is an embedding in the RKHS of Gaussian\(sigma=2.0\), but distances are"
                r" measured in that of Gaussian\(sigma=1.0\)"
            ),
        ),
        (
            (np.full((2, 2), np.nan), points(3, 2), Gaussian(1.0)),
            ValueError,
            "Input a contains NaN",
        ),
        (
            (points(3, 2), points(3, 2), Gaussian(1.0), points(3, 1)),
            ValueError,
            "landmarks has 1 features, but 2 were expected",
        ),
    ],
)
def test_refuses_what_has_no_distance(
    arguments: tuple, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ksos.mmd(*arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"weights": [1.0]}, ValueError, "weights must have length 3; got 1"),
        ({"weights": [1.0, np.inf, 0.0]}, ValueError, "weights contains infinity"),
        ({"kernel": "gaussian"}, TypeError, "kernel must be a kernel object"),
        (
            {"kernel": Gaussian([1.0, 2.0])},
            ValueError,
            "2 bandwidths but the points have 1 features",
        ),
    ],
)
def test_refuses_what_is_no_embedding(
    arguments: dict, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ksos.MeanEmbedding(points(3, 1), **{"kernel": Gaussian(1.0), **arguments})
