"""What is summed over samples in chunks: kernel sums, second-order sums, moments and surveys depend
neither on chunks nor on order.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from tables import points

import ksos
from ksos import KernelSums
from ksos.data import Moments, Survey
from ksos.exceptions import ModelFormatError
from ksos.functionals import BasisSums, SquaredL2, SquaredMMD, Trace
from ksos.ground import read_state, write_state
from ksos.kernels import Gaussian, Kernel, Laplace, Matern

X = points(12_000, 2, 3)
GRID = np.stack(np.meshgrid(np.linspace(-2.0, 2.0, 4), np.linspace(-2.0, 2.0, 4)), axis=-1).reshape(
    -1, 2
)


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(0.7),
        Gaussian([[1.0, 0.3], [0.3, 0.5]]),
        Laplace([1.0, 2.0], product=True),
        Matern(2.5, 1.0),
    ],
)
def test_kernel_sums_depend_neither_on_chunks_nor_on_their_order(kernel: Kernel) -> None:
    rng, nothing = np.random.default_rng(0), KernelSums(kernel, GRID)
    a = rng.exponential(size=len(X)) * 10.0 ** rng.integers(-8, 8, len(X))
    whole = nothing.update(X, a)
    order, cuts = rng.permutation(len(X)), np.sort(rng.integers(0, len(X), 40))
    parts = [nothing.update(X[rows], a[rows]) for rows in np.split(order, cuts) if rows.size]
    left = right = nothing
    for part in parts:
        left = left.merge(part)
    for part in reversed(parts):
        right = part.merge(right)
    exact = a.astype(np.longdouble) @ kernel(X, GRID).astype(np.longdouble)
    for sums in (whole, left, right):
        np.testing.assert_allclose(sums.values, exact.astype(float), rtol=1e-13)
        assert sums.count == len(X) and sums.mass == pytest.approx(
            float(np.sum(a.astype(np.longdouble))), rel=1e-14
        )


def test_compensation_keeps_what_a_plain_sum_loses() -> None:
    sums = KernelSums(Gaussian(1.0), [[0.0]]).update([[0.0]], [1e16])
    for _ in range(1000):
        sums = sums.update([[0.0]], [1.0])
    assert float(sums.update([[0.0]], [-1e16]).values[0]) == 1000.0


def test_kernel_sums_are_a_target() -> None:
    sums = KernelSums(Gaussian(1.0), GRID).update(X[:500])
    space = ksos.SoSSpace(Gaussian(1.0), GRID)
    answers = [
        ksos.minimize(SquaredMMD(target) + 1e-3 * Trace(), space).objective
        for target in (sums, X[:500])
    ]
    assert answers[0] == pytest.approx(answers[1], abs=1e-10)
    with pytest.raises(ValueError, match="only at their own landmarks"):
        ksos.SoSSpace(Gaussian(1.0), GRID[:5]).coordinates(sums)
    with pytest.raises(ValueError, match="RKHS of Gaussian"):
        ksos.SoSSpace(Gaussian(2.0), GRID).coordinates(sums)
    with pytest.raises(TypeError, match="known at its landmarks only"):
        ksos.mmd(sums, X[:10], Gaussian(1.0))
    with pytest.raises(ValueError, match="same landmarks"):
        sums.merge(KernelSums(Gaussian(2.0), GRID))
    with pytest.raises(ValueError, match="mass 0"):
        space.coordinates(KernelSums(Gaussian(1.0), GRID))


def test_kernel_sums_come_back_from_a_file(tmp_path: Path) -> None:
    sums = KernelSums(Matern(1.5, 1.5, product=True), GRID).update(X[:100])
    write_state(tmp_path / "sums", "kernel sums", sums.state())
    back = KernelSums.of_state(read_state(tmp_path / "sums", "kernel sums"))
    assert back.kernel == sums.kernel and back.count == 100
    np.testing.assert_array_equal(back.update(X[100:200]).values, sums.update(X[100:200]).values)
    whole = (tmp_path / "sums").read_bytes()
    for damaged in (whole[:-40], whole[: len(whole) // 2], b"", b"no archive"):
        (tmp_path / "sums").write_bytes(damaged)
        with pytest.raises(
            ModelFormatError, match=r"sums is no file of kernel sums, or it is damaged"
        ):
            read_state(tmp_path / "sums", "kernel sums")


def test_moments_keep_their_digits_in_any_chunks() -> None:
    rng = np.random.default_rng(0)
    rows, a = 1e6 + X @ np.array([[1.0, 0.5], [0.0, 1e-3]]), rng.exponential(size=len(X))
    exact = np.cov(rows.astype(np.longdouble) - 1e6, rowvar=False, aweights=a, bias=True).astype(
        float
    )
    for parts in ([np.arange(len(X))], np.array_split(rng.permutation(len(X)), 11)):
        found = Moments()
        for part in parts:
            found = Moments().update(rows[part], a[part]).merge(found)
        np.testing.assert_allclose(found.covariance, exact, rtol=1e-9)
        np.testing.assert_allclose(found.rounded.covariance, exact, rtol=1e-9)
        np.testing.assert_allclose(
            found.mean - 1e6, np.average(rows - 1e6, axis=0, weights=a), atol=1e-9
        )


@pytest.mark.parametrize("constant", [False, True])
def test_second_order_sums_are_a_target_of_the_l2_criterion(constant: bool) -> None:
    rng = np.random.default_rng(0)
    rows, a = rng.normal(size=(300, 1)), rng.integers(1, 4, 300).astype(float)
    measure = ksos.measures.Discrete.quadrature(ksos.measures.Box([-4.0], [4.0]), 60)
    space = ksos.SoSSpace(
        Gaussian(1.0), np.linspace(-2.0, 2.0, 7)[:, None], measure, constant=constant
    )
    nothing = BasisSums.of(space)
    parts = [
        nothing.update(rows[part], a[part]) for part in np.array_split(rng.permutation(300), 5)
    ]
    sums = parts[0].merge(parts[1].merge(parts[2])).merge(parts[3]).merge(parts[4])
    psi = space.basis(rows).astype(np.longdouble)
    np.testing.assert_allclose(
        sums.matrix,
        np.asarray((psi * a[:, None]).T @ psi, dtype=float),
        rtol=1e-12,
        atol=1e-12 * a.sum(),
    )
    again = ksos.MeanEmbedding(rows, a / a.sum(), kernel=Gaussian(1.0))
    answers = [
        ksos.minimize(SquaredL2(t) + 1e-3 * Trace(), space).objective
        for t in (pickle.loads(pickle.dumps(sums)), again)
    ]
    assert answers[0] == pytest.approx(answers[1], abs=1e-10)
    with pytest.raises(ValueError, match="only on their own space"):
        SquaredL2(sums).bind(
            ksos.SoSSpace(
                Gaussian(1.0), np.linspace(-2.0, 2.0, 8)[:, None], measure, constant=constant
            )
        )
    with pytest.raises(ValueError, match="on the same space add up"):
        sums.merge(
            BasisSums.of(
                ksos.SoSSpace(
                    Gaussian(2.0), np.linspace(-2.0, 2.0, 7)[:, None], measure, constant=constant
                )
            )
        )
    with pytest.raises(ValueError, match="have mass 0"):
        SquaredL2(nothing).bind(space)


def test_a_survey_depends_neither_on_chunks_nor_on_copies() -> None:
    rng = np.random.default_rng(1)
    rows = np.repeat(rng.normal(size=(60_000, 2)), rng.integers(1, 3, 60_000), axis=0)
    empty, masses = Survey.empty(500, 2), np.ones(len(rows))
    whole, order = empty.update(rows, masses), rng.permutation(len(rows))
    parts = [empty.update(rows[part], masses[part]) for part in np.array_split(order, 7)]
    merged = empty
    for part in parts:
        merged = part.merge(merged)
    np.testing.assert_array_equal(merged.part.points, whole.part.points)
    np.testing.assert_allclose(merged.part.weights, whole.part.weights, rtol=1e-14)
    assert merged.total == whole.total == pytest.approx(60_000, rel=4.0 / np.sqrt(1 << 15))
    assert merged.count == len(rows) and not merged.complete
    single = np.unique(rows, axis=0)
    assert empty.update(single, np.ones(len(single))).total == 60_000  # without copies it is exact
