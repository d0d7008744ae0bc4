"""Many points of low rank: the thin route gives what the dense one gives, and its cost follows the
rank.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_moons

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.ground import resources
from ksos.kernels import (
    Gaussian,
    Laplace,
    choose_pivots,
    definite_root,
    thin_root,
    untruncated,
    whiten,
)
from ksos.measures import Box, Normal


def moons(n: int) -> np.ndarray:
    return np.asarray(make_moons(n, noise=0.1, random_state=0)[0])


def test_root_of_a_kernel_matrix() -> None:
    X, kernel = moons(600), Gaussian(4.0)
    columns = []

    def column(i: int) -> np.ndarray:
        columns.append(i)
        return kernel(X[i : i + 1], X)[0]

    L = thin_root(column, np.ones(600))
    assert L is not None and L.shape[1] == len(columns) < 66
    np.testing.assert_allclose(L @ L.T, kernel(X), atol=1e-13)


def test_no_root_without_low_rank() -> None:
    X = np.arange(600.0)[:, None]
    assert thin_root(lambda i: Gaussian(0.1)(X[i : i + 1], X)[0], np.ones(600)) is None


@pytest.mark.parametrize("first_look", [None, 4])
def test_pivots_leave_the_residual_that_they_report(first_look: int | None) -> None:
    X, kernel = moons(40), Gaussian(2.0)
    chosen, rows, residual = choose_pivots(
        lambda i: kernel(X[i : i + 1], X)[0], np.ones(40), 1e-3, 30, first_look
    )
    assert len(set(chosen)) == len(chosen) == rows.shape[0] < 30 and residual.max() <= 1e-3
    np.testing.assert_allclose(residual, np.diag(kernel(X) - rows.T @ rows), atol=1e-12)
    assert np.all(residual[chosen] == 0.0)
    few = choose_pivots(lambda i: kernel(X[i : i + 1], X)[0], np.ones(40), 1e-3, 3, first_look)
    assert few.chosen == chosen[:3], "each pivot is the one that those before it represent worst"


@pytest.mark.parametrize("landmarks", [None, 510])
@pytest.mark.parametrize(
    "measure",
    [None, Normal(0.0, 2.0), Box([-3.0, -3.0], [4.0, 3.0])],
    ids=["lebesgue", "normal", "box"],
)
def test_same_optimum_as_the_dense_route(
    measure: object, landmarks: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = moons(520 if measure is None else 60)
    many = "ksos.kernels.roots.MANY_POINTS"
    if measure is not None:
        # the other integrals never take the thin tensor, but their whitening is thin
        monkeypatch.setattr(many, 50)
    Z = None if landmarks is None else X[:landmarks] + 0.01
    functional = SquaredMMD(moons(30)) + 1e-3 * Trace(relative=True)

    def solved() -> ksos.Solution:
        return ksos.minimize(
            functional, ksos.SoSSpace(Gaussian(2.0), X, measure, landmarks=Z), tol=1e-9
        )

    lean = solved()
    monkeypatch.setattr(many, 10**9)
    dense = solved()
    assert lean.space.rank == dense.space.rank
    assert lean.objective == pytest.approx(dense.objective, rel=1e-6)
    assert lean.status == dense.status == "solved"
    assert lean.distribution.terms.mass() == pytest.approx(1.0, abs=1e-7)


def test_the_mass_of_every_direction_is_one() -> None:
    X = moons(700)
    space = ksos.SoSSpace(Gaussian(1.0), X)
    W = np.exp(space.integrals.log_gram(X, X) - space.log_unit)
    np.testing.assert_allclose(space.T.T @ W @ space.T, np.eye(space.rank), atol=1e-6)


def test_full_rank_goes_the_dense_way() -> None:
    X = np.linspace(0.0, 300.0, 500)[:, None]
    space = ksos.SoSSpace(Laplace(0.1), X)
    assert space.rank == 500


def test_memory_of_many_points_of_low_rank_is_not_that_of_their_square() -> None:
    with resources(memory=8.0 * 3000 * 3000):
        space = ksos.SoSSpace(Gaussian(4.0), moons(3000))
        assert space.rank < 40
        assert ksos.minimize(SquaredMMD(moons(50)) + 1e-3 * Trace(), space).status == "solved"


# --- very many points without low rank ---


def spread(m: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(m, 8))


def test_whitening_without_eigenvectors() -> None:
    M = Gaussian(1.7)(spread(300))
    T, eigenvectors = (found.T for found in (untruncated(M, 1e-10), whiten(M, 1e-10)))
    np.testing.assert_allclose(T.T @ M @ T, np.eye(300), atol=1e-11)
    seen = np.linalg.svd(
        T[:, -8:].T @ M @ eigenvectors[:, -8:], compute_uv=False
    )  # cosines between the leading directions
    assert seen.min() > 0.9 and seen.max() < 1.0 + 1e-12


def test_whitening_without_eigenvectors_leaves_nothing_out() -> None:
    X = spread(100)
    # eigenvalues below the tolerance
    assert untruncated(Gaussian(30.0)(X), 1e-10) is None
    # singular
    assert untruncated(Gaussian(1.7)(np.concatenate([X, X[:1]])), 1e-10) is None
    assert untruncated(Gaussian(1.7)(X), 0.5) is None


def test_derivatives_and_few_directions_of_a_map_without_a_tensor() -> None:
    space = ksos.SoSSpace(Gaussian(1.7), spread(60))
    free, stored = space.map, space.compressed_map
    assert type(free) is not type(stored)
    rng = np.random.default_rng(0)
    F, E, y = rng.normal(size=(60, 3)), rng.normal(size=(60, 3)), rng.normal(size=60)
    for any_map in (free, stored):
        J = 2.0 * any_map.jacobian(F).reshape(60, -1)
        np.testing.assert_allclose(
            J @ E.ravel(), stored.apply(F @ E.T + E @ F.T), rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(
            (y @ J).reshape(F.shape), 2.0 * stored.adjoint(y) @ F, rtol=1e-9, atol=1e-11
        )
        np.testing.assert_allclose(
            any_map.spanned(F), F.T @ stored.tensor @ F, rtol=1e-9, atol=1e-11
        )


def test_all_points_are_pivots_if_none_is_superfluous() -> None:
    M = Gaussian(1.7)(spread(200))
    lower, inverse = definite_root(M, 1e-10)
    np.testing.assert_allclose(lower @ lower.T, M, atol=1e-13)
    np.testing.assert_allclose(inverse @ lower.T, np.eye(200), atol=1e-9)
    found = choose_pivots(lambda i: M[i], np.ones(200), 1e-10, 200)
    assert sorted(found.chosen) == list(range(200))
