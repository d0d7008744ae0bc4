"""Embeddings of tables with columns of any kind, against sums over pairs of rows and against
enumeration of levels times quadrature over numbers.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pandas
import pytest
from tables_of_any_kind import KINDS, density_of

import ksos
from ksos.density import Columns
from ksos.kernels import Gaussian

WIDTH = {"plain": 1.5, "price": 0.9, "rain": 0.7, "share": 1.1, "wind": 60.0, "origin": 1.0}


def line_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values of a column, the levels or atoms among them, and what each is weighted by."""
    column = KINDS[name]
    if name == "origin":
        return np.arange(3.0), np.ones(3)
    if name == "wind":
        return np.linspace(0.0, 360.0, 60, endpoint=False), np.full(60, 6.0)
    u = np.linspace(-7.0, 7.0, 57)
    x = column.from_line(u)
    dx = np.exp(-column.to_line(x)[1]) * 0.25
    return np.r_[column.atoms, x], np.r_[np.ones(len(column.atoms)), dx]


def factor(name: str, x: np.ndarray, y: np.ndarray, theta: float) -> np.ndarray:
    """The kernel of one column, in the words of the documentation."""
    column, (x, y) = KINDS[name], np.meshgrid(x, y, indexing="ij")
    if name == "origin":
        return np.where(x == y, 1.0, theta)
    if name == "wind":
        turns = [np.exp(-(((x - y + 360.0 * t) / WIDTH[name]) ** 2)) for t in range(-4, 5)]
        unit = sum(math.exp(-((360.0 * t / WIDTH[name]) ** 2)) for t in range(-4, 5))
        return sum(turns) / unit
    atoms = np.isin(x, column.atoms), np.isin(y, column.atoms)
    u, v = (column.to_line(np.where(at, 0.5, z))[0] for z, at in zip((x, y), atoms, strict=True))
    near = np.exp(-(((u - v) / WIDTH[name]) ** 2))
    if not column.atoms:
        return near
    between = ~atoms[0] & ~atoms[1]
    return theta + (1.0 - theta) * np.where(between, near, np.where(atoms[0] & atoms[1], x == y, 0))


def kernel_of(names: tuple[str, ...]) -> Gaussian:
    return Gaussian([WIDTH[name] for name in names if name != "origin"] or 1.0)


def masses_of(p: Any, names: tuple[str, ...]) -> np.ndarray:
    """What a density has at all nodes, as a tensor."""
    axes = [line_of(name) for name in names]
    grid = np.stack([g.ravel() for g in np.meshgrid(*(x for x, _ in axes), indexing="ij")], axis=1)
    weights = np.ones(1)
    for _, w in axes:
        weights = np.outer(weights, w).ravel()
    masses = np.exp(p.logpdf(Columns(tuple(KINDS[name] for name in names)).frame(grid))) * weights
    assert masses.sum() == pytest.approx(1.0, abs=2e-4)
    return masses.reshape([x.size for x, _ in axes])


def smoothed(masses: np.ndarray, names: tuple[str, ...]) -> np.ndarray:
    for k, name in enumerate(names):
        x = line_of(name)[0]
        K = factor(name, x, x, 0.5)
        masses = np.moveaxis(np.tensordot(K, masses, axes=(1, k)), 0, k)
    return masses


CASES = [("plain", "origin"), ("rain", "origin"), ("price", "share"), ("wind", "origin")]


@pytest.mark.parametrize("names", CASES, ids="-".join)
def test_distances_are_those_of_enumeration_and_quadrature(names: tuple[str, ...]) -> None:
    p, q, kernel = density_of(*names), density_of(*names, seed=3), kernel_of(names)
    a, b = masses_of(p, names), masses_of(q, names)
    truth = math.sqrt(np.vdot(a - b, smoothed(a - b, names)))
    assert ksos.mmd(p, q, kernel) == pytest.approx(truth, rel=1e-3)
    X = p.rvs(40, rng=0)
    cells = p.columns.read(X)
    square = np.vdot(a, smoothed(a, names))
    at, own = 1.0, 1.0
    for k, name in enumerate(names):
        own = own * factor(name, cells[:, k], cells[:, k], 0.5)
    for k, name in enumerate(names):
        F = factor(name, line_of(name)[0], cells[:, k], 0.5)
        at = F if k == 0 else np.einsum("ni,mi->nmi", at, F)
    crossed = np.einsum("nm,nmi->", a, at) / 40.0
    truth = math.sqrt(square - 2.0 * crossed + own.mean())
    assert ksos.mmd(p, X, kernel) == pytest.approx(truth, rel=1e-3)
    assert ksos.mmd(X, p, kernel) == pytest.approx(ksos.mmd(p, X, kernel))
    # projections are shorter, and the more so the fewer the landmarks
    few, many = (ksos.mmd(p, q, kernel, landmarks=X.head(n)) for n in (3, 40))
    assert few <= many * (1.0 + 1e-9) <= ksos.mmd(p, q, kernel) * (1.0 + 1e-6)


def test_a_density_is_as_far_from_itself_as_rounding() -> None:
    p = density_of("plain", "rain", "visits", "origin")
    assert ksos.mmd(p, p) <= 1e-7
    other = p.marginal(["origin", "rain", "plain", "visits"])
    assert ksos.mmd(p, other) <= 1e-7
    near, far = p.rvs(4_000, rng=0), p.rvs(50, rng=0)
    assert ksos.mmd(p, near) < 0.05 < ksos.mmd(p, far)


def table(n: int, seed: int, *, shift: float = 0.0, gaps: float = 0.2) -> pandas.DataFrame:
    rng = np.random.default_rng(seed)
    word = rng.choice(["a", "b", "c"], n)
    x = rng.normal(size=n) + (word == "a") + shift
    X = pandas.DataFrame({"word": word, "x": x, "flag": rng.random(n) < 0.3})
    for name in ("word", "x"):
        X[name] = X[name].astype(object).where(rng.random(n) > gaps, None)
    return X


def test_a_missing_cell_stands_for_all_cells_of_its_column() -> None:
    """MMD of rows with gaps from all pairs, with a kernel written here."""
    a, b = table(30, 0), table(20, 1, shift=1.0)
    both, width, theta = pandas.concat([a, b]), 0.8, 0.5
    x = both["x"].to_numpy(dtype=float)
    near = np.exp(-(((x[:, None] - x) / width) ** 2))
    gone = np.isnan(x)
    mean = near[~gone].mean(axis=0)
    near[gone] = mean
    near[:, gone] = mean[:, None]
    near[np.ix_(gone, gone)] = mean[~gone].mean()
    word = both["word"].to_numpy()
    same = np.where(word[:, None] == word, 1.0, theta)
    none = both["word"].isna().to_numpy()
    shares = {level: np.mean(word[~none] == level) for level in "abc"}
    mean = np.array([theta + (1.0 - theta) * shares.get(one, 0.0) for one in word])
    same[none] = mean
    same[:, none] = mean[:, None]
    constant = theta + (1.0 - theta) * sum(p * p for p in shares.values())
    same[np.ix_(none, none)] = constant
    flag = both["flag"].to_numpy()
    K = near * same * np.where(flag[:, None] == flag, 1.0, theta)
    assert np.linalg.eigvalsh(K)[0] > -1e-9  # it is a kernel
    w = np.repeat([1.0 / 30, -1.0 / 20], [30, 20])
    assert ksos.mmd(a, b, Gaussian(width)) == pytest.approx(math.sqrt(w @ K @ w), rel=1e-9)
    assert ksos.mmd(a, b, Gaussian(width), landmarks=both) == pytest.approx(
        ksos.mmd(a, b, Gaussian(width))
    )
    with pytest.warns(UserWarning, match="missing cells, each of which stands for all"):
        test = ksos.two_sample_test(a, b, Gaussian(width), rng=0)
    assert test.mmd == pytest.approx(math.sqrt(w @ K @ w), rel=1e-6)
    np.testing.assert_allclose(test.witness(a), (K @ w)[:30], atol=1e-9)


def test_the_level_is_exact_with_text_and_gaps() -> None:
    pvalues = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(150):
            a, b = table(40, 2 * seed), table(30, 2 * seed + 1)
            pvalues.append(ksos.two_sample_test(a, b, n_permutations=19, rng=seed).pvalue)
    # at most the level, give or take three standard errors
    assert np.mean(np.array(pvalues) <= 0.05) <= 0.05 + 3.0 * math.sqrt(0.05 * 0.95 / 150)
    assert np.mean(np.array(pvalues) <= 0.5) >= 0.3


@pytest.mark.filterwarnings("ignore:[ab] has .* missing cells")
def test_differences_of_levels_and_of_numbers_are_found() -> None:
    a = table(200, 0)
    shifted = ksos.two_sample_test(a, table(200, 1, shift=0.8), rng=0)
    assert shifted.reject(0.01)
    assert float(shifted.most_a.by_name["x"]) < float(shifted.most_b.by_name["x"])
    other = table(200, 2)
    other["word"] = other["word"].where(other["word"] != "b", "a")
    changed = ksos.two_sample_test(a, other, rng=0)
    assert changed.reject(0.01) and changed.most_a.by_name["word"] == "b"
    dropped = ksos.two_sample_test(a, other, missing="drop", rng=0)
    complete = (a.notna().all(axis=1).sum(), other.notna().all(axis=1).sum())
    assert dropped.n_rows == complete and dropped.reject(0.01)


def test_what_cannot_be_compared() -> None:
    p, X = density_of("plain", "rain", "origin"), table(20, 0)
    rows = p.rvs(20, rng=0)
    other = density_of("plain", "price", "origin")
    with pytest.raises(ValueError, match=r"missing cells.*impute"):
        ksos.mmd(p, rows.assign(origin=None))
    with pytest.raises(ValueError, match=r"a has the columns .*'rain'.* b has .*'price'"):
        ksos.mmd(p, other)
    with pytest.raises(ValueError, match="must be Gaussian"):
        ksos.mmd(p, rows, ksos.kernels.Laplace(1.0))
    with pytest.raises(ValueError, match="predicted to take"):
        ksos.mmd(p, rows, max_operations=10.0)
    with pytest.raises(TypeError, match="densities and tables in memory"):
        ksos.mmd(p, ksos.MeanEmbedding([[0.0]], kernel=Gaussian(1.0)))
    with pytest.raises(ValueError, match="given an interval"):
        ksos.mmd(p.conditional({"plain": (0.0, 1.0)}), rows[["rain", "origin"]])
    with pytest.raises(ValueError, match="a: X contains missing cells"):
        ksos.two_sample_test(X, X, missing="raise")
    with pytest.raises(TypeError, match="a is a density"):
        ksos.two_sample_test(p, rows)
    with pytest.raises(ValueError, match="missing must be one of"):
        ksos.two_sample_test(X, X, missing="ignore")
