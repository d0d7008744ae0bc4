"""Bad input: every refusal has its type and its words, and what looks odd but is valid works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from scipy.stats import multivariate_normal
from sklearn.datasets import make_moons
from sklearn.exceptions import NotFittedError

import ksos
from ksos import KernelSoSDensity
from ksos.measures import Box

X = make_moons(60, noise=0.05, random_state=0)[0]
SOURCE = Path(ksos.__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def fitted() -> KernelSoSDensity:
    return KernelSoSDensity(tol=1e-5).fit(X)


ENTRANCES = ["fit", "score_samples", "score", "pdf", "logpdf"]


def enter(fitted: KernelSoSDensity, entrance: str, data: Any) -> Any:
    """Give ``data`` to one of the doors through which samples come in."""
    if entrance == "fit":
        return KernelSoSDensity().fit(data)
    return getattr(fitted if entrance.startswith("score") else fitted.distribution_, entrance)(data)


# --- what is not a finite matrix of numbers ---


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.nan, "Input X contains NaN"),
        (np.inf, "Input X contains infinity"),
        (-np.inf, "Input X contains infinity"),
    ],
)
def test_nan_and_infinity(
    fitted: KernelSoSDensity, entrance: str, value: float, words: str
) -> None:
    data = X.copy()
    data[3, 1] = value
    with pytest.raises(ValueError, match=words):
        enter(fitted, entrance, data)


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    ("data", "kind", "words"),
    [
        (
            np.empty((0, 2)),
            ValueError,
            r"0 sample\(s\) \(shape=\(0, 2\)\) while a minimum of 1 is required",
        ),
        (
            np.empty((5, 0)),
            ValueError,
            r"0 feature\(s\) \(shape=\(5, 0\)\) while a minimum of 1 is required",
        ),
        (X[:, 0], ValueError, "Expected 2D array, got 1D array instead"),
        (3.0, ValueError, "Expected 2D array, got scalar array instead"),
        (None, ValueError, "Expected 2D array, got scalar array instead"),
        (X[None], ValueError, "Found array with dim 3, while dim <= 2 is required"),
        (X + 0j, ValueError, "Complex data not supported"),
        (
            scipy.sparse.csr_matrix(X),
            TypeError,
            r"Sparse data was passed for X, but dense data is required. Use '.toarray\(\)'",
        ),
        ([["a", "b"], ["c", "d"]], ValueError, "X must hold real numbers; got text such as 'a'"),
        ("moons.csv", ValueError, "X must be an array or a table; got 'moons.csv'"),
        ([[1.0, 2.0], [3.0]], ValueError, "inhomogeneous shape"),
    ],
    ids=[
        "no samples",
        "no features",
        "1-D",
        "number",
        "None",
        "3-D",
        "complex",
        "sparse",
        "text",
        "a file name",
        "ragged",
    ],
)
def test_not_a_matrix_of_real_numbers(
    fitted: KernelSoSDensity, entrance: str, data: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        enter(fitted, entrance, data)


def test_another_number_of_features_later(fitted: KernelSoSDensity) -> None:
    for method in (fitted.score_samples, fitted.score):
        with pytest.raises(
            ValueError,
            match="X has 3 features, but KernelSoSDensity is expecting 2 features as input",
        ):
            method(np.zeros((4, 3)))
    for method in (fitted.distribution_.pdf, fitted.distribution_.logpdf):
        with pytest.raises(ValueError, match="X has 3 features, but 2 were expected"):
            method(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="support has 3 features, but 2 were expected"):
        KernelSoSDensity(support=np.zeros((4, 3))).fit(X)
    with pytest.raises(ValueError, match="landmarks has 3 features, but 2 were expected"):
        KernelSoSDensity(landmarks=np.zeros((4, 3))).fit(X)
    with pytest.raises(ValueError, match="Box measure has 1 features, but the points have 2"):
        KernelSoSDensity(measure=Box([0], [1])).fit(X)


def test_samples_outside_the_measure() -> None:
    box, words = (
        Box([-3, -3], [1.5, 3]),
        r"outside Box\(low=.*; the first is row 2: \[.*\]; widen it or leave them out",
    )
    outside = X[:, 0] > 1.5
    with pytest.raises(ValueError, match=f"{outside.sum()} of 60 samples lie {words}"):
        KernelSoSDensity(measure=box).fit(X)
    est = KernelSoSDensity(measure=box, tol=1e-3).fit(
        X, sample_weight=~outside
    )  # what weighs nothing is not there
    np.testing.assert_array_equal(
        est.score_samples(X),
        KernelSoSDensity(measure=box, tol=1e-3).fit(X[~outside]).score_samples(X),
    )


# --- few points, equal points, flat clouds ---


def check_normal(est: KernelSoSDensity, mean: np.ndarray, eta: float) -> None:
    """k(x, x̃)² normalized is N(x̃, (η²/4)I): what one support point amounts to."""
    queries = mean + eta * np.random.default_rng(0).normal(size=(20, len(mean)))
    expected = multivariate_normal(mean, eta**2 / 4).logpdf(queries)
    np.testing.assert_allclose(est.score_samples(queries), expected, rtol=1e-10)
    assert (
        est.solution_.status,
        est.solution_.gap,
        est.solution_.space.rank,
        est.solution_.rank,
    ) == ("solved", 0.0, 1, 1)
    np.testing.assert_allclose(est.distribution_.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(
        est.distribution_.cov(), eta**2 / 4 * np.eye(len(mean)), atol=1e-10 * eta**2
    )


@pytest.mark.parametrize("d", [1, 2, 7])
def test_one_point(d: int) -> None:
    x = np.arange(3.0, 3.0 + d)
    check_normal(KernelSoSDensity(bandwidth=1.7).fit([x]), x, 1.7)
    with pytest.warns(
        UserWarning,
        match=(
            r"bandwidth='auto': features? 0.* ha(s|ve) no spread; the bandwidth is set to 1"
            r" there"
        ),
    ):
        check_normal(KernelSoSDensity().fit([x]), x, 1.0)


def test_one_support_point() -> None:
    est = KernelSoSDensity(n_support=1, bandwidth=2.0).fit(X)
    check_normal(est, est.support_points_[0], 2.0)
    check_normal(
        KernelSoSDensity(support=[[0.5, 0.2]], bandwidth=2.0).fit(X), np.array([0.5, 0.2]), 2.0
    )


def test_all_points_equal() -> None:
    check_normal(
        KernelSoSDensity(bandwidth=0.3).fit(np.full((7, 2), 5.0)), np.array([5.0, 5.0]), 0.3
    )


def test_duplicate_support_points_add_nothing() -> None:
    once = KernelSoSDensity(support=X[:6], bandwidth=1.0).fit(X)
    thrice = KernelSoSDensity(
        support=np.repeat(X[:6], 3, axis=0), bandwidth=1.0, landmarks=X[:6]
    ).fit(X)
    assert thrice.solution_.space.rank == once.solution_.space.rank == 6
    assert thrice.solution_.objective == pytest.approx(once.solution_.objective, abs=2e-8)
    np.testing.assert_allclose(thrice.score_samples(X), once.score_samples(X), atol=1e-3)


def test_constant_feature() -> None:
    flat, line = np.c_[X[:, 0], np.full(60, 0.1)], X[:, :1]
    est = KernelSoSDensity(bandwidth=0.8, regularization=0.0).fit(flat)
    alone = KernelSoSDensity(bandwidth=0.8, regularization=0.0).fit(line)
    # every support point has the same second coordinate: p(x, y) = p(x)·N(y; 0.1, η²/4), up to what
    # MMD in two features weighs differently
    offset = np.array([0.0, 0.3])
    expected = multivariate_normal(0.0, 0.8**2 / 4).logpdf([0.0, 0.3])
    np.testing.assert_allclose(
        est.score_samples(flat + offset) - est.score_samples(flat),
        expected[1] - expected[0],
        atol=1e-8,
    )
    assert est.solution_.space.rank == alone.solution_.space.rank


def test_more_features_than_points() -> None:
    data = np.random.default_rng(0).normal(size=(5, 30))
    est = KernelSoSDensity().fit(data)
    assert est.solution_.status == "solved" and est.solution_.space.rank == 5
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)


# --- formats ---


def formats(folder: Path, data: np.ndarray) -> dict[str, Any]:
    np.save(folder / "data.npy", data)
    wide = np.zeros((2 * len(data), 5))
    wide[::2, 1::2] = data
    return {
        "read-only memmap": np.load(folder / "data.npy", mmap_mode="r"),
        "Fortran order": np.asfortranarray(data),
        "strided": wide[::2, 1::2],
        "list": data.tolist(),
        "DataFrame": pd.DataFrame(data, columns=["a", "b"]),
        "object": data.astype(object),
    }


@pytest.mark.parametrize(
    "name", ["read-only memmap", "Fortran order", "strided", "list", "DataFrame", "object"]
)
def test_same_result_and_unchanged_input(
    fitted: KernelSoSDensity, tmp_path: Path, name: str
) -> None:
    data = formats(tmp_path, X)[name]
    est = KernelSoSDensity(tol=1e-5).fit(data)
    expected = fitted.score_samples(X)
    np.testing.assert_allclose(est.score_samples(data), expected, atol=1e-9)
    np.testing.assert_allclose(est.distribution_.logpdf(data), expected, atol=1e-9)
    np.testing.assert_allclose(est.distribution_.pdf(data), np.exp(expected), atol=1e-9)
    np.testing.assert_array_equal(np.asarray(data, dtype=float), X)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.int64, np.uint16])
def test_whole_numbers(dtype: type) -> None:
    data = np.random.default_rng(0).integers(0, 2, (30, 3)).astype(dtype)
    data.setflags(write=False)
    before = data.copy()
    est, same = (
        KernelSoSDensity(tol=1e-5).fit(data),
        KernelSoSDensity(tol=1e-5).fit(data.astype(float)),
    )
    np.testing.assert_allclose(
        est.score_samples(data), same.score_samples(data.astype(float)), atol=1e-9
    )
    np.testing.assert_array_equal(data, before)


def test_support_landmarks_and_weights_are_unchanged() -> None:
    support, landmarks, weights = X[:9].copy(), X[9:15].copy(), np.arange(1.0, 61.0)
    for array in (support, landmarks, weights):
        array.setflags(write=False)
    KernelSoSDensity(support=support, landmarks=landmarks, tol=1e-3).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(support, X[:9])
    np.testing.assert_array_equal(weights, np.arange(1.0, 61.0))


def test_float32() -> None:
    single = X.astype(np.float32)
    est, fitted = KernelSoSDensity(tol=1e-10).fit(single), KernelSoSDensity(tol=1e-10).fit(X)
    np.testing.assert_allclose(est.score_samples(single), fitted.score_samples(X), atol=1e-4)
    np.testing.assert_array_equal(
        est.score_samples(single), est.score_samples(single.astype(np.float64))
    )
    assert est.score_samples(single).dtype == np.float64
    queries = np.random.default_rng(0).uniform(-4, 5, (100_000, 2)).astype(np.float32)
    assert est.distribution_.pdf(queries).min() >= 0.0


# --- weights ---


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (np.r_[np.nan, np.ones(59)], "Input sample_weight contains NaN"),
        (np.r_[np.inf, np.ones(59)], "Input sample_weight contains infinity"),
        (np.zeros(60), "sample_weight must not be zero everywhere"),
        (np.r_[np.ones(59), -2.0], "sample_weight must not be negative; entry 59 is -2"),
        (np.ones(59), "sample_weight must have length 60; got 59"),
        (np.ones((60, 2)), r"sample_weight must be one-dimensional; got shape \(60, 2\)"),
        (["a"] * 60, "sample_weight must hold real numbers; got text such as 'a'"),
        (np.ones(60) + 1j, "sample_weight: Complex data not supported"),
    ],
    ids=["NaN", "infinity", "zero", "negative", "length", "2-D", "text", "complex"],
)
def test_weights(fitted: KernelSoSDensity, weights: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KernelSoSDensity().fit(X, sample_weight=weights)
    with pytest.raises(ValueError, match=words):
        fitted.score(X, sample_weight=weights)


@pytest.mark.parametrize("unit", [1e-320, 1e-300, 1e308])
def test_tiny_and_huge_weights(fitted: KernelSoSDensity, unit: float) -> None:
    est = KernelSoSDensity(tol=1e-5).fit(X, sample_weight=np.full(60, unit))
    np.testing.assert_allclose(est.score_samples(X), fitted.score_samples(X), atol=1e-9)


# --- parameters, refused before the data are looked at ---

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"bandwidth": 0}, ValueError, "bandwidth must be positive and finite; got 0"),
    ({"bandwidth": -1.0}, ValueError, "bandwidth must be positive and finite; got -1.0"),
    ({"bandwidth": np.nan}, ValueError, "bandwidth must be positive and finite; got nan"),
    ({"bandwidth": np.inf}, ValueError, "bandwidth must be positive and finite; got inf"),
    ({"bandwidth": [1.0, 0.0]}, ValueError, "bandwidth must be positive and finite"),
    (
        {"bandwidth": 1e-170},
        ValueError,
        (
            r"bandwidth must lie in \[1.5e-154, 1.3e\+154\], where its square is representable; got"
            r" 1e-170"
        ),
    ),
    ({"bandwidth": 1e170}, ValueError, "where its square is representable; got 1e"),
    (
        {"bandwidth": True},
        ValueError,
        "bandwidth must be a positive number or one per feature; got True",
    ),
    (
        {"bandwidth": 1j},
        ValueError,
        "bandwidth must be a positive number or one per feature; got 1j",
    ),
    (
        {"bandwidth": []},
        ValueError,
        r"bandwidth must be a positive number or one per feature; got \[\]",
    ),
    (
        {"bandwidth": "wide"},
        ValueError,
        (
            "bandwidth must be one of 'auto', 'median', 'scott', 'silverman', a positive number or"
            " one per feature"
        ),
    ),
    (
        {"bandwidth": -1.0, "kernel": ksos.kernels.Gaussian(1.0)},
        ValueError,
        "bandwidth must be positive and finite; got -1.0",
    ),
    (
        {"embedding_bandwidth": 0.0},
        ValueError,
        "embedding_bandwidth must be positive and finite; got 0.0",
    ),
    (
        {"embedding_bandwidth": "median"},
        ValueError,
        "embedding_bandwidth must be a positive number or one per feature; got 'median'",
    ),
    (
        {"regularization": -1e-3},
        ValueError,
        r'regularization \(or "auto"\) must be non-negative and finite; got -0.001',
    ),
    ({"regularization": np.nan}, ValueError, "must be non-negative and finite; got nan"),
    ({"regularization": "none"}, ValueError, "must be a number; got 'none'"),
    (
        {"relative_regularization": -1.0},
        ValueError,
        "relative_regularization must be non-negative and finite; got -1",
    ),
    (
        {"relative_regularization": "auto"},
        ValueError,
        "relative_regularization must be a number; got 'auto'",
    ),
    (
        {"regularization": 0.1, "relative_regularization": 0.2},
        *(
            ValueError,
            (
                "regularization=0.1 and relative_regularization=0.2 are the same in two units: .*;"
                " give one of them"
            ),
        ),
    ),
    ({"penalty": "l1"}, ValueError, "penalty must be one of 'trace', 'frobenius'; got 'l1'"),
    ({"n_support": 0}, ValueError, "n_support must be at least 1; got 0"),
    ({"n_support": 2.5}, ValueError, "n_support must be a whole number; got 2.5"),
    (
        {"support": "grid"},
        ValueError,
        (
            "support must be one of 'auto', 'pivoted', 'random', 'kmeans' or an array of support"
            " points; got 'grid'"
        ),
    ),
    ({"support": None}, ValueError, "support: Expected 2D array"),
    ({"support": [[np.nan]]}, ValueError, "Input support contains NaN"),
    ({"landmarks": 0}, ValueError, "landmarks must be at least 1; got 0"),
    ({"landmarks": "all"}, ValueError, "landmarks must be an array or a table; got 'all'"),
    ({"landmarks": 2.5}, ValueError, "landmarks: Expected 2D array"),
    (
        {"measure": "box"},
        TypeError,
        "measure must be a measure such as ksos.measures.Box.low, high., or None; got 'box'",
    ),
    (
        {"kernel": "rbf"},
        ValueError,
        "kernel must be one of 'gaussian', 'laplace', 'matern' or a kernel object; got 'rbf'",
    ),
    (
        {"objective": "kl"},
        ValueError,
        "objective must be one of 'squared_mmd', 'mmd', 'likelihood' or a functional; got 'kl'",
    ),
    (
        {"solver": "simplex"},
        ValueError,
        "solver must be one of 'auto', .*'fista', .*; got 'simplex'",
    ),
    ({"tol": np.nan}, ValueError, "tol must be positive and finite; got nan"),
    ({"tol": 0.0}, ValueError, "tol must be positive and finite; got 0.0"),
    ({"time_limit": 0.0}, ValueError, "time_limit must be positive and finite; got 0.0"),
    ({"time_limit": np.nan}, ValueError, "time_limit must be positive and finite; got nan"),
    ({"verbose": "yes"}, ValueError, "verbose must be a whole number; got 'yes'"),
    ({"verbose": -1}, ValueError, "verbose must be at least 0; got -1"),
]


@pytest.mark.parametrize(
    ("parameters", "kind", "words"), WRONG, ids=[str(parameters)[1:-1] for parameters, *_ in WRONG]
)
def test_parameters(parameters: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        KernelSoSDensity(**parameters).fit(
            np.full((3, 2), np.nan)
        )  # had it looked at the data, it would have complained of them


@pytest.mark.parametrize("name", ["bandwidth", "embedding_bandwidth"])
def test_one_bandwidth_too_many(name: str) -> None:
    with pytest.raises(
        ValueError,
        match=(
            f"{name} gives 3 bandwidths but the points have 2 features; give one, or one for each"
        ),
    ):
        KernelSoSDensity(**{name: [1.0, 2.0, 3.0]}).fit(X)


def test_number_of_samples(fitted: KernelSoSDensity) -> None:
    with pytest.raises(ValueError, match="n_samples must be at least 1; got 0"):
        fitted.sample(0)
    with pytest.raises(ValueError, match="n_samples must be a whole number; got 2"):
        fitted.sample(2.5)


# --- use before fit ---


def test_use_before_fit() -> None:
    est = KernelSoSDensity()
    for method in (lambda: est.score_samples(X), lambda: est.score(X), lambda: est.sample(3)):
        with pytest.raises(
            NotFittedError, match="This KernelSoSDensity instance is not fitted yet"
        ):
            method()


# --- targets, and columns in another order ---

FRAME = pd.DataFrame(X[:12], columns=["a", "b"])
LABELS = np.array(["u", "v"] * 6, dtype=object)


@pytest.mark.parametrize(
    "est, y, words",
    [
        (
            ksos.RobustRegressor(),
            np.r_[np.nan, np.zeros(11)],
            r"Input y contains NaN: 1 of 12 entries are missing, the first is entry 0",
        ),
        (
            ksos.RobustRegressor(),
            LABELS,
            "y must hold real numbers; got text such as 'u'",
        ),
        (
            ksos.RobustClassifier(),
            np.where(LABELS == "u", None, LABELS),
            "Input y contains NaN: 6 of 12 entries are missing",
        ),
        (
            ksos.RobustClassifier(),
            np.r_[1.0, np.nan, np.zeros(10)],
            "the first is entry 1 .*leave those rows out",
        ),
    ],
)
def test_targets_of_robust_estimators(est: Any, y: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        est.fit(FRAME, y)
    with pytest.raises(
        ValueError,
        match=(
            r"X must hold real numbers; got text such as 'u'; leave the"
            r" column out"
        ),
    ):
        est.fit(np.column_stack([FRAME.to_numpy(object), LABELS]), np.zeros(12))


@pytest.mark.parametrize(
    "est",
    [
        KernelSoSDensity(tol=1e-3),
        ksos.RobustRegressor(radius=0.0),
        ksos.RobustClassifier(radius=0.0),
    ],
)
def test_columns_in_another_order_are_refused_with_the_remedy(est: Any) -> None:
    est.fit(FRAME, (FRAME["a"] > 0.5).astype(int))
    with pytest.raises(
        ValueError,
        match=r"in the same order as they were in fit\.\n.*X\[list\(est\.feature_names_in_\)\]",
    ):
        (est.score_samples if isinstance(est, KernelSoSDensity) else est.predict)(FRAME[["b", "a"]])
