"""What is measured of a fitted density: held-out log-likelihood, integrated squared error, squared
MMD, mass beyond the walls.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from quality.contestants import Fitted, off_diagonal, sample_inner
from quality.datasets import DATASETS, DataSet, Split
from quality.gaussian_mixture import equal_kernels

__all__ = ["grid", "mmd_bandwidth", "scores"]

_NODES = {1: 16_000, 2: 180}
_DRAWS = 20_000


def scores(fitted: Fitted, data: DataSet, split: Split, n: int, seed: int) -> dict[str, float]:
    """Every number that this data set allows."""
    log_likelihood = fitted.logpdf(split.test)
    out = {
        "log_likelihood": float(log_likelihood.mean()),
        "worst_log_density": float(log_likelihood.min()),
    }
    sigma = mmd_bandwidth(split.test)
    if data.law is None:
        return out | {"mmd2": unbiased_mmd2(fitted, split.test, sigma)}
    out["true_log_likelihood"] = float(data.law.logpdf(split.test).mean())
    if data.d > 2:
        return out | {
            "ise": sampled_ise(fitted, data, split, n, seed),
            "mmd2": unbiased_mmd2(fitted, split.test, sigma),
        }
    axes, cell, nodes, truth = _truth_on_grid(data.name)
    values = np.exp(fitted.logpdf(nodes))
    error = values - truth
    out["ise"] = float(cell * error @ error)
    out["mmd2"] = grid_mmd2(error.reshape([axis.size for axis in axes]) * cell, axes, sigma)
    if data.box is not None:
        outside = ~np.all((nodes >= data.box[0]) & (nodes <= data.box[1]), axis=1)
        out["mass_outside"] = float(cell * values[outside].sum())
    return out


@cache
def _truth_on_grid(name: str) -> tuple[list[np.ndarray], float, np.ndarray, np.ndarray]:
    """Axes, volume of a cell, nodes, and the true density there: the same for every contestant and
    every seed.
    """
    data = DATASETS[name]
    assert data.law is not None
    axes, cell = grid(data)
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    return axes, cell, nodes, np.exp(data.law.logpdf(nodes))


def mmd_bandwidth(test: np.ndarray) -> np.ndarray:
    """Of the kernel that measures MMD: per feature √(2d) standard deviations of the held-out
    samples, a typical distance between them.
    """
    return np.sqrt(2.0 * test.shape[1]) * test.std(axis=0)


def grid(data: DataSet) -> tuple[list[np.ndarray], float]:
    """Midpoints of equal cells that cover the window and end at its walls, and the volume of a
    cell.
    """
    low, high = data.window()
    axes, cell = [], 1.0
    for k in range(data.d):
        step = (high[k] - low[k]) / _NODES[data.d]
        if data.box is not None:  # a wall must fall between two cells
            wall = data.box[0][k]
            low[k] = wall - step * np.ceil((wall - low[k]) / step)
            if np.isfinite(data.box[1][k]):
                step = (data.box[1][k] - wall) / np.round((data.box[1][k] - wall) / step)
                low[k] = wall - step * np.ceil((wall - low[k]) / step)
        axes.append(low[k] + step * (0.5 + np.arange(_NODES[data.d])))
        cell *= step
    return axes, cell


def grid_mmd2(masses: np.ndarray, axes: list[np.ndarray], sigma: np.ndarray) -> float:
    """‖Σ masses·k(·, node)‖², feature by feature: the kernel is a product."""
    smoothed = masses
    for k, axis in enumerate(axes):
        if axis.size > 2000:  # the embedding kernel is wide: every tenth cell resolves it
            return grid_mmd2(
                masses.reshape(-1, 10).sum(axis=1), [axis.reshape(-1, 10).mean(axis=1)], sigma
            )
        K = np.exp(-(((axis[:, None] - axis[None, :]) / sigma[k]) ** 2))
        smoothed = np.moveaxis(np.tensordot(K, smoothed, axes=(1, k)), 0, k)
    return float(np.sum(masses * smoothed))


def unbiased_mmd2(fitted: Fitted, test: np.ndarray, sigma: np.ndarray) -> float:
    """The squared MMD to the law behind the held-out samples, without bias: the diagonal of their
    own kernel matrix is left out.
    """
    pairs = sample_inner(test, sigma)
    return fitted.squared_mmd(test, sigma) - pairs + off_diagonal(pairs, test.shape[0])


def sampled_ise(fitted: Fitted, data: DataSet, split: Split, n: int, seed: int) -> float:
    """∫(p̂ − p)² as the mean of (p̂ − p)²/q over draws from q, half the truth and half a KDE of the
    samples, the same for everyone.
    """
    assert data.law is not None
    rng = np.random.default_rng([n, seed, data.d])
    covariance = np.cov(split.train.T) * split.train.shape[0] ** (-2.0 / (data.d + 4))
    near_samples = equal_kernels(split.train, covariance)
    draws = np.concatenate(
        [data.law.sample(_DRAWS // 2, rng), near_samples.sample(_DRAWS // 2, rng)]
    )
    truth, guess = data.law.logpdf(draws), fitted.logpdf(draws)
    proposal = np.logaddexp(truth, near_samples.logpdf(draws)) - np.log(2.0)
    error = np.exp(guess - 0.5 * proposal) - np.exp(truth - 0.5 * proposal)
    return float(np.mean(error**2))
