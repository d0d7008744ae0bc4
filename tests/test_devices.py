"""Data and densities on a device, with tensors of the processor in the place of a GPU's: the same
answers, and nothing goes astray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import PAIR_CASES, points

import ksos
from ksos.data import Survey, row_hashes
from ksos.density import square_of
from ksos.density.sampling import draw_by_inversion
from ksos.functionals import SquaredMMD
from ksos.ground import (
    full_single_precision,
    is_tensor,
    read_state,
    to_numpy,
    uniforms,
    write_state,
)
from ksos.kernels import Gaussian, Laplace, Matern, Products
from ksos.measures import Box

torch = pytest.importorskip("torch")

BACKENDS: dict[str, Callable[[np.ndarray], Any]] = {"numpy": np.asarray, "torch": torch.asarray}
N = 40_000


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """Many rows, one of them given twice, one with a negative zero."""
    rows = points(N, 3)
    rows[5], rows[1, 0] = rows[7], -0.0
    return rows


# --- rows ---


def test_hashes_are_those_of_the_host(X: np.ndarray) -> None:
    np.testing.assert_array_equal(to_numpy(row_hashes(torch.asarray(X))), row_hashes(X))


@pytest.mark.parametrize("most", [100, 50_000])
def test_survey_is_that_of_the_host(X: np.ndarray, most: int) -> None:
    masses = np.where(np.arange(N) % 11, 1.0, 0.0)
    here = there = Survey.empty(most, 3)
    for rows in (slice(0, 36_000), slice(36_000, 36_000), slice(36_000, N)):
        here, there = (
            here.update(X[rows], masses[rows]),
            there.update(torch.asarray(X[rows]), torch.asarray(masses[rows])),
        )
    for name, value in vars(here).items():
        np.testing.assert_array_equal(vars(there)[name], value, err_msg=name)


# --- kernel sums ---


@pytest.mark.parametrize(
    "kernel",
    [
        Gaussian(1.1),
        Gaussian(np.diag([1.0, 2.0, 3.0]) + 0.3),
        Laplace(2.0),
        Matern(1.5, 1.5, product=True),
    ],
    ids=repr,
)
def test_sums_on_a_device(X: np.ndarray, kernel: Any) -> None:
    Z, weights = X[:20], np.linspace(0.5, 1.5, 3000)
    ours = ksos.KernelSums(kernel, Z).update(X[:3000], weights)
    theirs = ksos.KernelSums(kernel, torch.asarray(Z)).update(
        torch.asarray(X[:3000]), torch.asarray(weights)
    )
    assert is_tensor(theirs.values)
    np.testing.assert_allclose(to_numpy(theirs.values), ours.values, rtol=1e-12)
    assert theirs.mass == pytest.approx(ours.mass, rel=1e-15)


def test_sums_of_far_samples_keep_their_digits() -> None:
    X = points(50, 3) + 1e8
    assert Products(torch.asarray(X[:5]), np.eye(3) / 1e-3)(torch.asarray(X)) is None
    kernel, Z = Gaussian(1e-3), np.concatenate([X[:5], X[:5] + 1e-4])
    theirs = ksos.KernelSums(kernel, torch.asarray(Z)).update(torch.asarray(X))
    np.testing.assert_allclose(to_numpy(theirs.values), kernel(Z, X).sum(axis=1), rtol=1e-12)


def test_weights_that_are_no_numbers_are_refused(X: np.ndarray) -> None:
    sums = ksos.KernelSums(Gaussian(1.0), torch.asarray(X[:3]))
    with pytest.raises(ValueError, match=r"weights.*NaN"):
        sums.update(torch.asarray(X[:2]), torch.asarray([1.0, np.nan]))
    with pytest.raises(ValueError, match="length 2; got 3"):
        sums.update(torch.asarray(X[:2]), torch.ones(3))


@pytest.mark.parametrize("convert", BACKENDS.values(), ids=BACKENDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_error_of_single_precision_is_bounded(
    X: np.ndarray, weighted: bool, convert: Callable[[np.ndarray], Any]
) -> None:
    Z, kernel = X[:30], Gaussian(0.7)
    weights = np.random.default_rng(0).normal(size=N) + 0.3 if weighted else np.full(N, 2.0)
    exact = ksos.KernelSums(kernel, Z).update(X, weights)
    single = (
        ksos.KernelSums(kernel, convert(Z), "single")
        .update(convert(X[:999]), weights[:999])
        .update(convert(X[999:]), weights[999:])
    )
    off = np.max(np.abs(to_numpy(single.values) - exact.values)) / exact.mass
    assert 0.0 < off <= single.error < 1e-4
    assert exact.error == 0.0 and single.mass == pytest.approx(exact.mass, rel=1e-14)


def test_single_precision_bears_no_certificate(X: np.ndarray) -> None:
    kernel, Z = Gaussian(1.0), X[:5]
    single, double = (
        ksos.KernelSums(kernel, Z, "single").update(X[:100]),
        ksos.KernelSums(kernel, Z).update(X[:100]),
    )
    with pytest.raises(ValueError, match="are no target"):
        SquaredMMD(single).bind(ksos.SoSSpace(kernel, Z))
    with pytest.raises(ValueError, match="and precision"):
        single.merge(double)
    with pytest.raises(ValueError, match="precision must be one of"):
        ksos.KernelSums(kernel, Z, "half")


def test_kernels_without_a_bound_are_summed_in_double_precision(X: np.ndarray) -> None:
    single, double = (
        ksos.KernelSums(Laplace(1.0), X[:5], precision).update(X[:100])
        for precision in ("single", "double")
    )
    np.testing.assert_allclose(single.values, double.values, rtol=1e-5)
    assert np.max(np.abs(single.values - double.values)) / double.mass <= single.error


def test_single_precision_in_files_and_parts(X: np.ndarray, tmp_path: Path) -> None:
    nothing = ksos.KernelSums(Gaussian(1.0), X[:5], "single")
    both = nothing.update(X[:64]).merge(nothing.update(X[64:200]))
    write_state(tmp_path / "sums", "kernel sums", both.state())
    read = ksos.KernelSums.of_state(read_state(tmp_path / "sums", "kernel sums"))
    assert (read.precision, read.error, read.count) == (
        "single",
        both.error,
        200,
    ) and nothing.error == 0.0


def test_products_keep_their_precision_whatever_the_process_has_chosen() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        with full_single_precision():
            assert torch.get_float32_matmul_precision() == "highest"
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


# --- sources ---


def tensors(X: np.ndarray, rows: int) -> Callable[[], Iterator[Any]]:
    return lambda: (torch.asarray(X[start : start + rows]) for start in range(0, X.shape[0], rows))


@pytest.mark.parametrize(
    "options",
    [{"n_support": 25, "bandwidth": 1.0}, {"support": points(25, 3), "bandwidth": 1.0}],
    ids=["two passes", "one pass"],
)
def test_fit_runs_where_the_chunks_lie(X: np.ndarray, options: dict[str, Any]) -> None:
    ours = ksos.KernelSoSDensity(**options, random_state=0).fit(ksos.chunks(X, rows=9000))
    for source in (ksos.chunks(X, rows=9000).to("cpu"), ksos.chunks(tensors(X, 17_000))):
        theirs = ksos.KernelSoSDensity(**options, random_state=0).fit(source)
        assert is_tensor(theirs.support_points_) and is_tensor(
            square_of(theirs.distribution_).unit_factor
        )
        assert theirs.solution_.objective == pytest.approx(ours.solution_.objective, abs=2e-8)
        np.testing.assert_allclose(
            to_numpy(theirs.score_samples(X[:50])), ours.score_samples(X[:50]), atol=1e-9
        )


def test_chunks_of_files_on_a_device(X: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X[:900].astype(np.float32))
    source = ksos.chunks(tmp_path / "a.npy", rows=400).to("cpu")
    found = [chunk.data for chunk in source]
    assert [tuple(part.shape) for part in found] == [(400, 3), (400, 3), (100, 3)] and all(
        part.dtype == torch.float64 for part in found
    )
    np.testing.assert_array_equal(np.concatenate(found), X[:900].astype(np.float32))
    assert source.fingerprint()[0][0].endswith("a.npy")
    turned = X[:9][::-1, ::-1]
    turned.setflags(write=False)
    (chunk,) = ksos.chunks([turned]).to("cpu")
    np.testing.assert_array_equal(chunk.data, turned)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_no_gpu_is_said_before_anything_is_read(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"no GPU|cannot be used"):
        ksos.KernelSoSDensity().fit(ksos.chunks(X).to("cuda"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.full((3, 3), torch.nan, dtype=torch.float64), r"chunk 1.*NaN"),
        (torch.zeros(3, 2), r"chunk 1.*2 features, but"),
        (torch.zeros(3), "chunk 1"),
        ((torch.zeros(3, 3), np.array([1.0, -1.0, 1.0])), r"chunk 1.*negative"),
    ],
)
def test_bad_chunks_are_named(X: np.ndarray, bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ksos.KernelSoSDensity().fit(ksos.chunks([torch.asarray(X[:100]), bad]))


def test_chunks_outside_of_the_measure_are_named(X: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"chunk 0: 1 of 2 samples lie outside"):
        ksos.KernelSoSDensity(measure=Box([0.0], [1.0])).fit(
            ksos.chunks([torch.asarray([[0.5], [1.5]])])
        )


# --- samples ---


def inverted(case: Any) -> bool:
    """Whether densities of this kernel and measure are drawn by inversion."""
    factors = case.kernel.full or case.kernel.separable(case.d)
    return (
        case.d <= 2
        and factors
        and case.measure.atoms is None
        and case.measure.normals(case.d) is None
    )


INVERTED = {name: case for name, case in PAIR_CASES.items() if inverted(case)}


@pytest.mark.parametrize("case", INVERTED.values(), ids=INVERTED)
def test_samples_are_those_of_inversion(case: Any) -> None:
    X, F = points(7, case.d), np.random.default_rng(3).normal(size=(7, 2))
    p = ksos.SoSDensity(case.kernel, X, F, case.measure, normalize=True)
    ours, theirs = (
        draw_by_inversion(square_of(p), 300, np.random.default_rng(5), tree=tree)
        for tree in (True, False)
    )
    np.testing.assert_allclose(theirs, ours, atol=1e-9)


def test_samples_of_tensors_invert_the_distribution_function() -> None:
    p = ksos.SoSDensity(
        Gaussian([0.6, 1.3]),
        points(9, 2),
        np.random.default_rng(3).normal(size=(9, 3)),
        normalize=True,
    )
    x, u = (
        draw_by_inversion(square_of(p.to("cpu")), 500, np.random.default_rng(1)),
        uniforms(np.random.default_rng(1), (500, 2), torch.zeros(0)),
    )
    assert is_tensor(x)
    np.testing.assert_allclose(
        p.marginal([0]).cdf(to_numpy(x)[:, :1]), to_numpy(u)[:, 0], atol=1e-9
    )
    for row, level in zip(to_numpy(x)[:5], to_numpy(u)[:5, 1], strict=True):
        assert float(p.conditional({0: row[0]}).cdf(row[1:][None])[0]) == pytest.approx(
            level, abs=1e-8
        )


def test_no_samples() -> None:
    p = ksos.SoSDensity(Gaussian(1.0), points(3, 2), np.ones((3, 1)), normalize=True).to("cpu")
    assert tuple(draw_by_inversion(square_of(p), 0, np.random.default_rng(0)).shape) == (0, 2)
