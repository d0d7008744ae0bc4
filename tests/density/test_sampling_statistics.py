"""300 000 samples against exact distribution functions, at a false-alarm rate of 1e-6 per test;
wrong samplers fail the same tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.special import ndtr
from statistics_checks import chi_square_passes, dkw_passes_at
from tables import points

import ksos
from ksos.density import square_of
from ksos.density.sampling import envelope
from ksos.kernels import Gaussian

N = 300_000
N_PROJECTIONS = 10


class Exact:
    """Distribution functions of a Gaussian-kernel density on R^d: a signed mixture of normals N(c,
    s²), c = (x̃_i + x̃_j)/2, s = σ/2.
    """

    def __init__(self, p: ksos.SoSDensity) -> None:
        self.X, self.s, self.d = p.support_points, 0.5 * float(p.kernel.sigma), p.n_features
        i, j = np.triu_indices(self.X.shape[0])
        weights = (p.factor @ p.factor.T) * np.exp(square_of(p).integrals.log_gram(self.X, self.X))
        self.weights, self.centers = (
            weights[i, j] * np.where(i == j, 1.0, 2.0),
            0.5 * (self.X[i] + self.X[j]),
        )

    def projection(self, direction: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """P(x·direction ≤ t)."""
        centers, width = self.centers @ direction, self.s * np.linalg.norm(direction)
        return lambda t: ndtr((t[:, None] - centers) / width) @ self.weights

    def rosenblatt(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """F(x_k | x_1 … x_{k−1}), feature by feature: uniform and independent for right samples."""
        for rows in np.array_split(
            np.arange(x.shape[0]), max(1, x.shape[0] * self.weights.shape[0] // 2_000_000)
        ):
            mixture = np.broadcast_to(self.weights, (rows.shape[0], self.weights.shape[0]))
            out = np.empty((rows.shape[0], self.d))
            for k in range(self.d):
                z = (x[rows, k][:, None] - self.centers[:, k]) / self.s
                out[:, k] = np.sum(mixture * ndtr(z), axis=1) / np.sum(mixture, axis=1)
                mixture = mixture * np.exp(-0.5 * z * z)
            yield out

    def cells(self, edges: np.ndarray) -> np.ndarray:
        """The probabilities of the cells into which ``edges``, one column per feature, cut the
        plane of the first two features.
        """
        masses = [
            np.diff(
                ndtr((np.r_[-np.inf, edges[:, k], np.inf][:, None] - self.centers[:, k]) / self.s),
                axis=0,
            )
            for k in range(2)
        ]
        return np.einsum("p,ap,bp->ab", self.weights, *masses).ravel()


def failed_tests(samples: np.ndarray, p: ksos.SoSDensity) -> set[str]:
    """The names of the tests that reject ``samples`` as samples of p."""
    exact, failed = Exact(p), set()
    if not all(
        dkw_passes_at(samples[:, k], exact.projection(np.eye(exact.d)[k]), 200)
        for k in range(exact.d)
    ):
        failed.add("marginals")
    directions = np.random.default_rng(0).normal(size=(N_PROJECTIONS, exact.d))
    if not all(
        dkw_passes_at(samples @ direction, exact.projection(direction), 200)
        for direction in directions
    ):
        failed.add("projections")
    pit = np.concatenate(list(exact.rosenblatt(samples[:200_000])))
    if not all(dkw_passes_at(pit[:, k], lambda t: t, 1000) for k in range(exact.d)):
        failed.add("pit")
    half = samples.shape[0] // 2  # one half places the cells, the other is counted
    edges = np.quantile(samples[:half, :2], np.linspace(0.1, 0.9, 9), axis=0)
    column, row = (np.searchsorted(edges[:, k], samples[half:, k]) for k in range(2))
    counts, probabilities = np.bincount(10 * column + row, minlength=100), exact.cells(edges)
    likely = probabilities > 1e-4
    counts, probabilities = (np.r_[a[likely], a[~likely].sum()] for a in (counts, probabilities))
    occupied = probabilities > 0.0
    if (
        not chi_square_passes(counts[occupied], probabilities[occupied])
        or counts[~occupied].sum() > 0
    ):
        failed.add("chi-square")
    return failed


def plane() -> ksos.SoSDensity:
    """Two features, signed weights, three squares of similar mass."""
    return ksos.SoSDensity(
        Gaussian(0.9), points(7, 2, 3), np.random.default_rng(4).normal(size=(7, 3)), normalize=True
    )


def four_features() -> ksos.SoSDensity:
    return ksos.SoSDensity(
        Gaussian(1.3), points(5, 4, 2), np.random.default_rng(5).normal(size=(5, 2)), normalize=True
    )


@pytest.mark.parametrize("method", ["inversion", "rejection", "squares"])
@pytest.mark.parametrize("model", [plane, four_features])
def test_three_hundred_thousand_samples_pass(
    model: Callable[[], ksos.SoSDensity], method: str
) -> None:
    p = model()
    assert failed_tests(p.rvs(N, rng=11, method=method), p) == set()


def unsigned_factor(p: ksos.SoSDensity) -> np.ndarray:
    return ksos.SoSDensity(
        p.kernel, p.support_points, np.abs(square_of(p).unit_factor), normalize=True
    ).rvs(N, rng=11)


def negative_weights_dropped(p: ksos.SoSDensity) -> np.ndarray:
    """Every proposal of the envelope, none rejected."""
    found = envelope(square_of(p))
    return found.density.support_points[0] + found.propose(N, np.random.default_rng(11))


def another_width(p: ksos.SoSDensity) -> np.ndarray:
    return ksos.SoSDensity(
        Gaussian(0.97 * float(p.kernel.sigma)),
        p.support_points,
        square_of(p).unit_factor,
        normalize=True,
    ).rvs(N, rng=11)


def one_point_missing(p: ksos.SoSDensity) -> np.ndarray:
    F = square_of(p).unit_factor.copy()
    F[int(np.argmax(np.abs(F).sum(axis=1)))] = 0.0
    return ksos.SoSDensity(p.kernel, p.support_points, F, normalize=True).rvs(N, rng=11)


def one_square_missing(p: ksos.SoSDensity) -> np.ndarray:
    return ksos.SoSDensity(
        p.kernel, p.support_points, square_of(p).unit_factor[:, 1:], normalize=True
    ).rvs(N, rng=11)


def features_drawn_apart(p: ksos.SoSDensity) -> np.ndarray:
    """The right marginals, but independent of each other."""
    samples = p.rvs(N, rng=11)
    samples[:, 0] = np.roll(samples[:, 0], 1)
    return samples


@pytest.mark.parametrize(
    ("wrong", "must_fail"),
    [
        (unsigned_factor, {"marginals", "projections", "pit", "chi-square"}),
        (negative_weights_dropped, {"marginals", "projections", "pit", "chi-square"}),
        (another_width, {"marginals", "projections", "pit", "chi-square"}),
        (one_point_missing, {"marginals", "projections", "pit", "chi-square"}),
        (one_square_missing, {"marginals", "projections", "pit", "chi-square"}),
        (features_drawn_apart, {"projections", "pit", "chi-square"}),
    ],
)
def test_wrong_samplers_fail_the_same_tests(
    wrong: Callable[[ksos.SoSDensity], np.ndarray], must_fail: set[str]
) -> None:
    p = plane()
    assert failed_tests(wrong(p), p) == must_fail
