"""The two-sample test: exact level whatever the rows, power where one kernel has none, and words
for what cannot be tested.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import ksos
from ksos.kernels import Gaussian, Kernel, Laplace
from ksos.space import KernelScore

Rng = np.random.Generator
NULLS: dict[str, tuple[Callable[[Rng], tuple[np.ndarray, np.ndarray]], int]] = {
    "normal": (lambda rng: (rng.normal(size=(30, 2)), rng.normal(size=(30, 2))), 99),
    "few permutations": (lambda rng: (rng.normal(size=(20, 1)), rng.normal(size=(20, 1))), 19),
    "heavy tails, unequal sizes": (
        lambda rng: (rng.standard_cauchy((12, 1)), rng.standard_cauchy((50, 1))),
        99,
    ),
    "ties and a constant column": (lambda rng: (_tied(rng, 25), _tied(rng, 40)), 99),
}


def _tied(rng: Rng, n: int) -> np.ndarray:
    return np.column_stack([rng.integers(0, 4, n), np.full(n, 7.0)]).astype(float)


@pytest.mark.parametrize("name", NULLS)
def test_the_level_is_exact(name: str) -> None:
    """Over 300 nulls, the number of rejections at 0.05 and 0.2 lies within binomial bounds of 1e-4;
    ties may only lower it.
    """
    pair, permutations = NULLS[name]
    rng = np.random.default_rng(5)
    found = np.array(
        [
            ksos.two_sample_test(
                *pair(rng), n_permutations=permutations, n_landmarks=40, rng=rng
            ).pvalue
            for _ in range(300)
        ]
    )
    for level in (0.05, 0.2):
        low, high = binom.ppf([1e-4, 1.0 - 1e-4], 300, level)
        assert (low if "ties" not in name else 0) <= np.sum(found <= level + 1e-12) <= high


def test_the_level_is_exact_when_blocks_are_moved() -> None:
    rng = np.random.default_rng(6)
    kernel = Gaussian(1.0)
    found = [
        ksos.two_sample_test(
            rng.random((2100, 1)),
            rng.random((700, 1)),
            kernel,
            n_permutations=39,
            n_landmarks=10,
            rng=rng,
        ).pvalue
        for _ in range(200)
    ]
    low, high = binom.ppf([1e-4, 1.0 - 1e-4], 200, 0.1)
    assert low <= np.sum(np.array(found) <= 0.1 + 1e-12) <= high


@pytest.mark.parametrize("kernel", [Gaussian(0.7), Laplace(1.3)], ids=lambda kernel: kernel.name)
def test_with_one_kernel_it_is_the_permutation_test_of_the_mmd(kernel: Kernel) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(9, 2)), rng.normal(0.8, 1.0, size=(6, 2))
    test = ksos.two_sample_test(a, b, kernel, n_permutations=4000, rng=0)
    assert test.mmd == pytest.approx(ksos.mmd(a, b, kernel), rel=1e-6)
    assert test.scores == (
        KernelScore(kernel, None, pytest.approx(test.mmd**2), test.scores[0].approximate_pvalue),
    )
    K, more = kernel(np.concatenate([a, b])), 0
    for chosen in combinations(range(15), 9):
        signs = np.full(15, -1.0 / 6.0)
        signs[list(chosen)] = 1.0 / 9.0
        more += signs @ K @ signs >= test.mmd**2 - 1e-12
    exact = more / math.comb(15, 9)
    assert test.pvalue == pytest.approx(exact, abs=5.0 * math.sqrt(exact / 4000))
    assert test.statistic == pytest.approx(-math.log10(test.scores[0].approximate_pvalue))


def test_fisher_statistics_have_their_degrees_of_freedom() -> None:
    """Under the null the statistic of q degrees has mean about q·(1/n + 1/m), and its approximate
    p-values are about uniform.
    """
    rng = np.random.default_rng(2)
    tests = [
        ksos.two_sample_test(
            rng.normal(size=(150, 2)), rng.normal(size=(200, 2)), n_permutations=1, rng=rng
        )
        for _ in range(30)
    ]
    assert {score.degrees for test in tests for score in test.scores} == {
        None,
        2.0,
        4.0,
        8.0,
        16.0,
        32.0,
    }
    for degrees in (4.0, 16.0):
        found = [score for test in tests for score in test.scores if score.degrees == degrees]
        values = [score.statistic / (1 / 150 + 1 / 200) for score in found]
        assert np.mean(values) == pytest.approx(degrees, abs=5.0 * math.sqrt(2.0 * degrees / 30))
        assert np.mean([score.approximate_pvalue for score in found]) == pytest.approx(0.5, abs=0.2)


def test_it_sees_what_one_bandwidth_does_not() -> None:
    rng, ours, median = np.random.default_rng(3), 0, 0
    for seed in range(6):
        a = rng.random((500, 1))
        b = rng.random((1000, 1))
        b = b[rng.random(1000) < 0.5 * (1.0 + np.sin(8.0 * np.pi * b[:, 0]))][:500]  # four waves
        ours += ksos.two_sample_test(a, b, n_permutations=99, rng=seed).reject()
        median += ksos.two_sample_test(
            a, b, ksos.median_kernel(a, b), n_permutations=99, rng=seed
        ).reject()
    assert ours == 6 and median <= 3


def test_the_witness_says_where() -> None:
    rng = np.random.default_rng(4)
    names = ["height", "width"]
    a = pd.DataFrame(rng.normal(size=(300, 2)), columns=names)
    b = pd.DataFrame(
        np.concatenate([rng.normal(size=(260, 2)), rng.normal([3.0, 0.0], 0.2, size=(40, 2))]),
        columns=names,
    )
    test = ksos.two_sample_test(a, b[["width", "height"]], n_landmarks=600, rng=0)
    assert test.reject(0.01) and set(test.most_b.by_name) == set(names)
    assert test.most_b.by_name["height"] == pytest.approx(3.0, abs=0.3) and test.most_b.by_name[
        "width"
    ] == pytest.approx(0.0, abs=0.3)
    assert test.most_b.value < 0.0 < test.most_a.value
    here = test.most_b.point[None, :]
    expected = test.kernel(here, a.to_numpy()).mean() - test.kernel(here, b.to_numpy()).mean()
    assert test.witness(here)[0] == pytest.approx(expected) == pytest.approx(test.most_b.value)
    everywhere = test.witness(np.concatenate([a, b]))
    assert test.most_a.value == pytest.approx(everywhere.max())
    assert test.most_b.value == pytest.approx(everywhere.min())
    assert "300 and 300 rows" in repr(test)
    unnamed = ksos.two_sample_test(a.to_numpy(), b.to_numpy(), n_landmarks=600, rng=0)
    assert unnamed.pvalue == test.pvalue and set(unnamed.most_a.by_name) == {"x0", "x1"}


def test_units_shifts_and_order_do_not_matter() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.normal(size=(40, 2)), rng.normal(0.3, 1.0, size=(50, 2))
    plain = ksos.two_sample_test(a, b, rng=0)
    for factor, shift in ((1024.0, 0.0), (2.0**-40, 0.0), (1.0, 4096.0)):
        moved = ksos.two_sample_test(factor * a + shift, factor * b + shift, rng=0)
        assert moved.pvalue == pytest.approx(
            plain.pvalue, abs=0.02
        ) and moved.statistic == pytest.approx(plain.statistic, rel=1e-3)
    assert ksos.two_sample_test(b, a, rng=0).pvalue == pytest.approx(plain.pvalue, abs=0.06)


def test_degenerate_samples() -> None:
    rows = np.random.default_rng(0).normal(size=(30, 2))
    assert ksos.two_sample_test(rows, rows, rng=0).pvalue > 0.9
    same = np.ones((20, 2))
    test = ksos.two_sample_test(same, same, rng=0)
    assert test.pvalue == 1.0 and test.mmd == pytest.approx(0.0, abs=1e-7)
    assert ksos.two_sample_test(same, same + 1.0, rng=0).pvalue == 0.001
    with pytest.warns(UserWarning, match="with 1 and 1 rows no p-value can be less than 1"):
        assert ksos.two_sample_test(rows[:1], rows[1:2], rng=0).pvalue == 1.0
    assert ksos.two_sample_test([[50.0, 50.0]], rows, rng=0).pvalue <= 0.1


def test_refusals() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(10, 2))
    density = ksos.SoSDensity(Gaussian(1.0), [[0.0, 0.0]], [[1.0]], normalize=True)
    cases = [
        ((a, density), {}, TypeError, r"b is a density.*rvs"),
        ((ksos.MeanEmbedding(a, kernel=Gaussian(1.0)), a), {}, TypeError, "a is an embedding"),
        ((a, a[:, :1]), {}, ValueError, "a has 2 features, but b has 1"),
        ((a, np.where(a > 1.0, np.nan, a)), {}, ValueError, r"b contains NaN"),
        ((a, a), {"kernel": "gaussian"}, TypeError, "kernel must be a kernel object"),
        ((a, a), {"kernel": []}, TypeError, "kernel must be a kernel object"),
        ((a, a), {"kernel": Gaussian([1.0, 1.0, 1.0])}, ValueError, "3 bandwidths"),
        ((a, a), {"n_permutations": 0}, ValueError, "n_permutations must be at least 1"),
        ((a, a), {"n_landmarks": 2.5}, ValueError, "n_landmarks must be a whole number"),
    ]
    for samples, options, error, message in cases:
        with pytest.raises(error, match=message):
            ksos.two_sample_test(*samples, **options)
    named = pd.DataFrame(a, columns=["x", "y"])
    with pytest.raises(ValueError, match="'z'"):
        ksos.two_sample_test(named, named.rename(columns={"y": "z"}))
    swapped = ksos.two_sample_test(named, named[["y", "x"]] + 1.0, rng=0)
    assert (
        swapped.feature_names == ("x", "y")
        and swapped.pvalue == ksos.two_sample_test(a, a + 1.0, rng=0).pvalue
    )
    with pytest.warns(
        UserWarning,
        match="b does not have valid feature names, but the features here have names: 'x', 'y'",
    ):
        assert ksos.two_sample_test(named, a + 1.0, rng=0).pvalue == swapped.pvalue
    with pytest.raises(ValueError, match="column 'y' is numeric in a and categorical in b"):
        ksos.two_sample_test(named, named.assign(y="a"))
    with pytest.raises(ValueError, match="level must lie between 0 and 1"):
        ksos.two_sample_test(a, a, rng=0).reject(5)


def test_mmd_has_a_default_kernel() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(40, 2)), rng.normal(1.0, 1.0, size=(30, 2))
    kernel = ksos.median_kernel(a, b)
    both = np.concatenate([a, b])
    distances = np.linalg.norm(both[:, None] - both, axis=2)[np.triu_indices(70, 1)]
    assert float(kernel.sigma) == pytest.approx(np.median(distances))
    assert ksos.mmd(a, b) == ksos.mmd(a, b, kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ksos.mmd(np.ones((3, 2)), np.ones((2, 2))) == pytest.approx(0.0, abs=1e-8)
    many = rng.normal(size=(20_000, 2))
    assert ksos.median_kernel(many, b) == ksos.median_kernel(
        many, b
    )  # a default does not depend on chance
    assert float(ksos.median_kernel(many, b).sigma) == pytest.approx(
        np.sqrt(4.0 * np.log(2.0)), rel=0.05
    )
    with pytest.raises(ValueError, match="a has 2 features, but b has 1"):
        ksos.mmd(a, b[:, :1])
