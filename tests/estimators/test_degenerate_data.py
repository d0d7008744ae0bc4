"""Whatever the data: the fit ends, the density is valid, and the certificate is what its formula
gives when it is computed another way.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.exceptions import ConvergenceWarning
from strategies import DEGENERATE, degenerate_data

from ksos import BandwidthWarning, KernelSoSDensity, KernelSoSDensityCV
from ksos.density import square_of
from ksos.measures import Box, Discrete
from ksos.solvers import STATUSES, Auto

QUICK: dict[str, Any] = {"solver": Auto(max_iter=200), "random_state": 0}


def fitted(
    X: np.ndarray, sample_weight: np.ndarray | None = None, **parameters: Any
) -> KernelSoSDensity:
    """A short fit in which the three announced warnings are welcome and every other one is an
    error.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for category, message in (
            (ConvergenceWarning, ""),
            (BandwidthWarning, ""),
            (UserWarning, "bandwidth=.*no spread"),
        ):
            warnings.filterwarnings("ignore", message, category)
        return KernelSoSDensity(**{**QUICK, **parameters}).fit(X, sample_weight=sample_weight)


def model_lengths(est: KernelSoSDensity, d: int) -> np.ndarray:
    """η per feature, or of a metric S = LLᵀ the factor L."""
    return (
        np.linalg.cholesky(est.bandwidth_)
        if est.bandwidth_.ndim == 2
        else np.broadcast_to(est.bandwidth_, d)
    )


def in_lengths(away: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """L⁻¹ times differences of points, whose length is the distance that the kernel sees."""
    return (
        away / unit
        if unit.ndim == 1
        else np.linalg.solve(unit, away.reshape(-1, len(unit)).T).T.reshape(away.shape)
    )


def embedding_precision(est: KernelSoSDensity, d: int) -> np.ndarray:
    """The precision of the embedding kernel in these lengths, per feature: for a metric, a multiple
    of the model's.
    """
    if est.bandwidth_.ndim < 2:
        return (model_lengths(est, d) / np.broadcast_to(est.embedding_bandwidth_, d)) ** 2
    s = est.bandwidth_[0, 0] / est.embedding_bandwidth_[0, 0]
    np.testing.assert_allclose(s * est.embedding_bandwidth_, est.bandwidth_, rtol=1e-12)
    return np.full(d, s)


def recomputed(
    est: KernelSoSDensity,
    X: np.ndarray,
    sample_weight: np.ndarray | None = None,
    noise_seed: int | None = None,
) -> np.ndarray:
    """Objective and gap of a fit with a Gaussian kernel on R^d, from the note's formulas with the
    tensor u formed by brute force.

    Lengths are counted in bandwidths η of the model, and integrals in w₀. T and S are the space's
    own; that they whiten W and K is checked first. Exponents are weighted variances, where the
    library sums pair distances. ``noise_seed`` disturbs entries by units of rounding.
    """
    space, rng = est.solution_.space, np.random.default_rng(noise_seed)

    def disturbed(values: np.ndarray) -> np.ndarray:
        return (
            values
            if noise_seed is None
            else values * (1.0 + 1e-14 * rng.uniform(-1.0, 1.0, values.shape))
        )

    unit, s = model_lengths(est, X.shape[1]), embedding_precision(est, X.shape[1])
    x, z = space.support_points, space.landmarks

    def apart(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        """q_j − p_i in bandwidths: subtracted first, so that outliers do not take the digits of the
        others.
        """
        return in_lengths(q[None] - p[:, None], unit)

    W, K = (
        np.exp(-0.5 * np.sum(apart(x, x) ** 2, axis=-1)),
        np.exp(-np.sum(apart(x, x) ** 2, axis=-1)),
    )
    j, r = apart(x, x)[:, :, None, :], apart(x, z)[:, None, :, :]  # seen from point i
    center = (j + s * r) / (2.0 + s)
    u = np.exp(-np.sum(center**2 + (j - center) ** 2 + s * (r - center) ** 2, axis=-1)) * np.sqrt(
        np.prod(2.0 / (2.0 + s))
    )
    T, S, C = space.T, space.projection.S, est.solution_.parameter
    automatic = isinstance(est.bandwidth, str) and est.bandwidth == "auto"
    strength = 3e-3 if automatic else 1e-3
    K_landmarks = np.exp(-np.sum(s * apart(z, z) ** 2, axis=-1))
    np.testing.assert_allclose(T.T @ W @ T, np.eye(T.shape[1]), atol=1e-4)
    np.testing.assert_allclose(S @ K_landmarks @ S.T, np.eye(S.shape[0]), atol=1e-4)
    a = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    embedding = np.exp(-np.sum(s * apart(z, X) ** 2, axis=-1)) @ (a / a.sum())
    target = S @ disturbed(embedding)
    A = np.einsum("kr,ijr,ip,jq->kpq", S, disturbed(u), T, T, optimize=True)
    D = strength * T.T @ disturbed(K) @ T
    residual = np.einsum("kpq,pq->k", A, C) - target
    G = 2.0 * np.einsum("k,kpq->pq", residual, A) + D
    return np.array(
        [
            residual @ residual + np.vdot(D, C),
            np.vdot(G, C) - np.linalg.eigvalsh(0.5 * (G + G.T))[0],
        ]
    )


def check_density(est: KernelSoSDensity, X: np.ndarray) -> None:
    """What every fit promises, whatever its status."""
    p, solution = est.distribution_, est.solution_
    assert solution.status in STATUSES
    tol = 1e-8 if est.tol is None else est.tol
    assert (solution.status == "solved") == (solution.gap <= tol) and np.isfinite(solution.gap)
    assert solution.status in solution.message and f"{solution.gap:.2e}" in solution.message
    assert abs(p.terms.mass() - 1.0) <= 1e-7
    unit = model_lengths(est, X.shape[1])
    far = X[0] + 1e3 * (unit if unit.ndim == 1 else unit.sum(axis=1))
    scores = est.score_samples(np.concatenate([X, [far], est.support_points_]))
    assert not np.any(np.isnan(scores)) and np.all(scores[: len(X)] < np.inf)
    assert np.all(p.pdf(X) >= 0.0)
    B, T = square_of(p).unit_factor @ square_of(p).unit_factor.T, solution.space.T
    np.testing.assert_allclose(B, T @ solution.parameter @ T.T, atol=1e-6 * np.abs(B).max())


def check_certificate(
    est: KernelSoSDensity, X: np.ndarray, sample_weight: np.ndarray | None = None
) -> None:
    """The reported numbers are the recomputed ones, to 1e-10 and what some units of rounding in the
    integrals amount to after whitening.
    """
    exact = recomputed(est, X, sample_weight)
    rounding = np.max(
        [np.abs(recomputed(est, X, sample_weight, noise_seed=seed) - exact) for seed in range(3)],
        axis=0,
    )
    error = np.abs(exact - [est.solution_.objective, est.solution_.gap])
    assert np.all(error <= 1e-10 + 2.0 * rounding), (error, rounding)


@pytest.mark.parametrize("kind", DEGENERATE)
@settings(max_examples=8)
@given(data=st.data())
def test_the_default_fit_is_valid(kind: str, data: st.DataObject) -> None:
    X = data.draw(DEGENERATE[kind])
    est = fitted(X)
    check_density(est, np.asarray(X, dtype=float))
    check_certificate(est, np.asarray(X, dtype=float))


@settings(max_examples=60)
@given(
    X=degenerate_data(),
    support=st.sampled_from(["pivoted", "random", "kmeans"]),
    bandwidth=st.sampled_from(["median", "scott", "silverman", 0.3, 20.0]),
    landmarks=st.sampled_from([None, 3]),
    embedding=st.sampled_from([None, 1.3]),
    seed=st.integers(0, 3),
)
def test_any_options_on_any_data(
    X: np.ndarray,
    support: str,
    bandwidth: Any,
    landmarks: int | None,
    embedding: float | None,
    seed: int,
) -> None:
    weights = np.random.default_rng(seed).uniform(0.1, 2.0, len(X))
    options = {
        "support": support,
        "n_support": 5,
        "bandwidth": bandwidth,
        "landmarks": landmarks,
        "random_state": seed,
    }
    try:
        est = fitted(X, weights, **options)
    except ValueError as error:  # the median of squares beyond 1e308 is no bandwidth
        assert np.abs(X).max() > 1e70 and "rescale the data" in str(error)
        return
    if embedding is not None:
        est = fitted(X, weights, **options, embedding_bandwidth=embedding * est.bandwidth_)
        np.testing.assert_allclose(est.embedding_bandwidth_, embedding * est.bandwidth_)
    check_density(est, np.asarray(X, dtype=float))
    check_certificate(est, np.asarray(X, dtype=float), weights)


@settings(max_examples=30)
@given(X=degenerate_data())
def test_samples_of_any_fit_are_finite_and_likely(X: np.ndarray) -> None:
    est = fitted(X)
    samples = est.sample(20, random_state=0)
    assert samples.shape == (20, X.shape[1]) and np.all(np.isfinite(samples))
    assert np.all(est.score_samples(samples) > -np.inf)


def test_a_discrete_measure_with_nodes_far_apart() -> None:
    """Narrow kernels between the nodes have no mass: they count as nothing, not as NaN."""
    X = np.random.default_rng(0).normal(size=(40, 1))
    nodes = Discrete.quadrature(Box([-5.0], [5.0]), 8)
    est = KernelSoSDensityCV(objective="squared_mmd", measure=nodes, cv=3).fit(X)
    assert np.isfinite(est.score(X)) and est.distribution_.terms.mass() == pytest.approx(
        1.0, abs=1e-9
    )
    by_likelihood = KernelSoSDensityCV(measure=nodes, cv=3).fit(X)
    assert np.isfinite(by_likelihood.score(X)) and by_likelihood.status_ == "solved"
