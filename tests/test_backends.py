"""Arrays of other backends: torch tensors and array-api-strict, which refuses whatever the standard
does not promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import array_api_compat.torch
import array_api_strict
import numpy as np
import pytest
from tables import (
    FUNCTIONAL_CASES,
    REACH,
    SOLVER_CASES,
    SOLVER_FUNCTIONAL_CASES,
    THIN_PAIR_CASES,
    WHITENING_CASES,
    points,
)

import ksos
from ksos.density import square_of
from ksos.functionals import NegativeLogLikelihood, SquaredMMD, Trace
from ksos.ground import inner, require_memory, to_numpy
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Normal
from ksos.solvers import lowest_bound, lowest_eigenpairs
from ksos.space import SELECTIONS

torch = pytest.importorskip("torch")

BACKENDS: dict[str, Callable[[np.ndarray], Any]] = {
    "torch": torch.asarray,
    "array-api-strict": array_api_strict.asarray,
}


@pytest.fixture(params=BACKENDS)
def convert(request: pytest.FixtureRequest) -> Callable[[np.ndarray], Any]:
    """From NumPy to the backend."""
    return BACKENDS[request.param]


def same(theirs: Any, ours: Any, convert: Callable[[np.ndarray], Any], rtol: float = 1e-11) -> None:
    """Equal numbers, in an array of the backend."""
    assert type(theirs) is type(convert(np.zeros(1)))
    np.testing.assert_allclose(to_numpy(theirs), ours, rtol=rtol, atol=1e-13)


@pytest.mark.parametrize("case", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)
def test_integrals(case: Any, convert: Callable[[np.ndarray], Any]) -> None:
    integrals = ksos.integrals.closed_form(case.kernel, case.measure, case.d)
    X, Z = points(6, case.d), points(4, case.d, 1)
    same(integrals.log_mean(convert(X)), integrals.log_mean(X), convert)
    same(integrals.log_diagonal(convert(X)), integrals.log_diagonal(X), convert)
    same(integrals.log_gram(convert(X), convert(Z)), integrals.log_gram(X, Z), convert)
    same(
        integrals.log_triple(convert(X), convert(Z), case.kernel),
        integrals.log_triple(X, Z, case.kernel),
        convert,
    )
    same(case.kernel(convert(X), convert(Z)), case.kernel(X, Z), convert)


@pytest.mark.parametrize("case", THIN_PAIR_CASES.values(), ids=THIN_PAIR_CASES)
def test_density_evaluation(case: Any, convert: Callable[[np.ndarray], Any]) -> None:
    X = points(7, case.d)
    F = np.random.default_rng(3).normal(size=(7, 2))
    ours = ksos.SoSDensity(case.kernel, X, F, case.measure, normalize=True)
    theirs = ksos.SoSDensity(case.kernel, convert(X), convert(F), case.measure, normalize=True)
    queries = np.concatenate(
        [points(30, case.d, 4), np.full((1, case.d), 40.0)]
    )  # the last one needs logarithms
    same(theirs.logpdf(convert(queries)), ours.logpdf(queries), convert, 1e-9)
    same(theirs.pdf(convert(queries)), ours.pdf(queries), convert, 1e-9)
    same(theirs.mean(), ours.mean(), convert, 1e-8)
    same(theirs.rvs(5, rng=0), ours.rvs(5, rng=0), convert, 1e-6)
    assert isinstance(theirs.to(None).support_points, np.ndarray)


@pytest.mark.parametrize("whitening", WHITENING_CASES)
@pytest.mark.parametrize(
    "measure",
    [None, Normal(0.1, 1.2), Box([-3.0, -3.0], [3.0, 3.0])],
    ids=["lebesgue", "normal", "box"],
)
def test_map_and_adjoint(
    convert: Callable[[np.ndarray], Any], whitening: str, measure: Any
) -> None:
    X = points(8, 2)
    ours = ksos.SoSSpace(Gaussian(0.9), X, measure, whitening=whitening)
    theirs = ksos.SoSSpace(Gaussian(0.9), convert(X), measure, landmarks=X, whitening=whitening)
    assert (ours.rank, ours.embedding_rank) == (theirs.rank, theirs.embedding_rank)
    B = np.cov(np.random.default_rng(0).normal(size=(8, 20)))
    Ti, Si = np.linalg.pinv(ours.T), ours.projection.S
    C = Ti @ B @ Ti.T
    Tt = to_numpy(theirs.T)  # eigenvectors may differ in sign: compare what does not depend on them
    Ct = convert(np.linalg.pinv(Tt) @ B @ np.linalg.pinv(Tt).T)
    at_landmarks = np.linalg.lstsq(Si, ours.embed(C), rcond=None)[0]
    theirs_at_landmarks = np.linalg.lstsq(
        to_numpy(theirs.projection.S), to_numpy(theirs.embed(Ct)), rcond=None
    )[0]
    np.testing.assert_allclose(theirs_at_landmarks, at_landmarks, rtol=1e-7, atol=1e-9)
    y = convert(np.random.default_rng(1).normal(size=theirs.embedding_rank))
    assert inner(y, theirs.embed(Ct)) == pytest.approx(inner(theirs.embed_adjoint(y), Ct), rel=1e-9)


@cache
def with_numpy(name: str) -> Any:
    return ksos.minimize(
        FUNCTIONAL_CASES[name], ksos.SoSSpace(Gaussian(0.9), points(9, 2)), tol=1e-8
    )


# the backends in turn: every solver and every functional meets both
@pytest.mark.parametrize(
    ("solver", "name", "backend"),
    [
        (solver, name, list(BACKENDS)[(list(SOLVER_CASES).index(solver) + k) % len(BACKENDS)])
        for k, name in enumerate(FUNCTIONAL_CASES)
        for solver in SOLVER_CASES
        if (solver, name) in SOLVER_FUNCTIONAL_CASES
    ],
)
def test_every_solver_reaches_the_same_objective(solver: str, name: str, backend: str) -> None:
    X, functional, convert = points(9, 2), FUNCTIONAL_CASES[name], BACKENDS[backend]
    tol = 10.0 * REACH.get(solver, 1e-7)  # tests/solvers asks for all digits, with NumPy
    ours = with_numpy(name)
    theirs = ksos.minimize(
        functional, ksos.SoSSpace(Gaussian(0.9), convert(X)), solver=solver, tol=tol
    )
    assert theirs.status == "solved" and theirs.gap <= tol
    assert abs(theirs.objective - ours.objective) <= tol + ours.gap + 1e-7 * abs(ours.objective)
    assert type(square_of(theirs.distribution).unit_factor) is type(convert(X))


@pytest.mark.parametrize("support", SELECTIONS)
def test_estimator_takes_and_gives_tensors(
    support: str, convert: Callable[[np.ndarray], Any]
) -> None:
    X = points(60, 2)
    options = {"n_support": 12, "support": support, "landmarks": 10, "random_state": 0}
    ours, theirs = (
        ksos.KernelSoSDensity(**options).fit(X),
        ksos.KernelSoSDensity(**options).fit(convert(X)),
    )
    assert theirs.solution_.objective == pytest.approx(ours.solution_.objective, rel=1e-7)
    same(theirs.support_points_, ours.support_points_, convert)
    same(theirs.score_samples(convert(X)), ours.score_samples(X), convert, 1e-5)
    assert theirs.score(convert(X)) == pytest.approx(ours.score(X), rel=1e-5)
    assert type(theirs.sample(3, random_state=0)) is type(convert(X))
    assert isinstance(theirs.score(convert(X)), float)


def test_single_precision_and_gradients_on_the_tensor() -> None:
    X = points(40, 2)
    ours = ksos.KernelSoSDensity(n_support=10).fit(X)
    theirs = ksos.KernelSoSDensity(n_support=10).fit(
        torch.asarray(X, dtype=torch.float32, requires_grad=True)
    )
    assert theirs.score_samples(torch.asarray(X)).dtype is torch.float64
    np.testing.assert_allclose(
        theirs.score_samples(torch.asarray(X)).numpy(), ours.score_samples(X), rtol=1e-4, atol=1e-4
    )


def test_laplace_on_tensors(convert: Callable[[np.ndarray], Any]) -> None:
    X, kernel = points(8, 1), Laplace(0.7)
    functional = SquaredMMD(X) + 1e-3 * Trace(relative=True)
    ours, theirs = (
        ksos.minimize(functional, ksos.SoSSpace(kernel, points)) for points in (X, convert(X))
    )
    assert theirs.objective == pytest.approx(ours.objective, rel=1e-7)


def test_mmd_between_backends(convert: Callable[[np.ndarray], Any]) -> None:
    X, Y = points(10, 2), points(9, 2, 1)
    kernel = Gaussian(0.8)
    expected = ksos.mmd(X, Y, kernel)
    assert ksos.mmd(convert(X), convert(Y), kernel) == pytest.approx(expected, rel=1e-10)
    assert ksos.mmd(X, convert(Y), kernel, landmarks=X) == pytest.approx(
        ksos.mmd(X, Y, kernel, landmarks=X), rel=1e-8
    )
    p = ksos.minimize(SquaredMMD(X), ksos.SoSSpace(kernel, convert(X[:4]))).distribution
    assert ksos.mmd(p, convert(Y), kernel) == pytest.approx(
        ksos.mmd(p.to(None), Y, kernel), rel=1e-9
    )


def test_model_file_of_a_tensor_density(
    tmp_path: Any, convert: Callable[[np.ndarray], Any]
) -> None:
    p = ksos.KernelSoSDensity(n_support=6).fit(convert(points(30, 2))).distribution_
    p.save(tmp_path / "model.ksos")
    q = ksos.load(tmp_path / "model.ksos")
    same(p.pdf(convert(points(5, 2))), q.pdf(points(5, 2)), convert)
    assert isinstance(q.to("cpu").support_points, torch.Tensor)


@pytest.mark.parametrize(
    "bad", [[[math.nan]], [[math.inf]], [1.0], [[1j]], np.zeros((0, 2)), np.zeros((2, 0))], ids=repr
)
def test_bad_tensors(bad: Any, convert: Callable[[np.ndarray], Any]) -> None:
    with pytest.raises(ValueError, match="points"):
        ksos.SoSSpace(Gaussian(1.0), convert(np.asarray(bad)))


def test_wrong_number_of_features(convert: Callable[[np.ndarray], Any]) -> None:
    estimator = ksos.KernelSoSDensity().fit(convert(points(8, 2)))
    with pytest.raises(ValueError, match="3 features"):
        estimator.score_samples(convert(points(4, 3)))


@pytest.mark.parametrize("n", [1, 5])
def test_large_matrices_have_their_lowest_eigenvalues_bounded(
    n: int, convert: Callable[[np.ndarray], Any]
) -> None:
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(450, 450)))
    spectrum = np.concatenate([[-1.0, -0.98, -0.97, -0.9, -0.5], np.linspace(0.0, 1.0, 445)])
    G = (Q * spectrum) @ Q.T
    G = 0.5 * (G + G.T)
    values, vectors = lowest_eigenpairs(convert(G), n)
    np.testing.assert_allclose(values, spectrum[:n], atol=1e-9)
    V = to_numpy(vectors)
    np.testing.assert_allclose(G @ V, V * values, atol=1e-6)
    bound = lowest_bound(convert(G), 1e-10)
    assert -1.0 - 1e-8 <= bound <= -1.0


def test_absent_gpu_is_an_error() -> None:
    p = ksos.KernelSoSDensity(n_support=4).fit(points(10, 1)).distribution_
    if torch.cuda.is_available():
        assert p.to("cuda").support_points.is_cuda
    else:
        with pytest.raises(ValueError, match="no GPU"):
            p.to("cuda")
    with pytest.raises(ValueError, match="cannot be used"):
        p.to("no such device")


def test_a_full_gpu_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError(
            "CUDA out of memory. Tried to allocate 20.00 GiB.\nand much more"
        )

    space = ksos.SoSSpace(Gaussian(0.9), torch.asarray(points(8, 2)))
    monkeypatch.setattr(array_api_compat.torch.linalg, "eigh", full)
    with pytest.raises(MemoryError, match=r"out of memory.*20.*n_support"):
        ksos.minimize(SquaredMMD(points(8, 2)), space, solver="fista")


def test_memory_is_asked_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnGpu:
        class device:
            type = "cuda"

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 300)
    require_memory(1200, "a tensor", "wait", beside=OnGpu())
    with pytest.raises(MemoryError, match="a tensor needs"):
        require_memory(1201, "a tensor", "wait", beside=OnGpu())


def test_the_likelihood_of_tensors() -> None:
    X = points(10, 2)
    ours, theirs = (
        ksos.minimize(
            NegativeLogLikelihood(Y, a) + 0.1 * Trace(), ksos.SoSSpace(Gaussian(0.9), Y), tol=1e-7
        )
        for Y, a in ((X, None), (torch.asarray(X), torch.ones(10)))
    )
    assert theirs.status == "solved" and theirs.objective == pytest.approx(ours.objective, abs=1e-7)
