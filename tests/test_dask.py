"""Dask on a cluster of processes: the sums of the array in memory, whoever dies; what is wrong is
named by chunk.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos import KernelSoSDensity, KernelSoSDensityCV
from ksos.data import chunks
from ksos.kernels import Gaussian
from ksos.space import sums_at

dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
da, dd, pandas = (
    pytest.importorskip("dask.array"),
    pytest.importorskip("dask.dataframe"),
    pytest.importorskip("pandas"),
)

X = points(12_000, 2, 5)
A = np.random.default_rng(2).integers(0, 3, len(X)).astype(float)
GRID = np.stack(np.meshgrid(np.linspace(-2.0, 2.0, 4), np.linspace(-2.0, 2.0, 4)), axis=-1).reshape(
    -1, 2
)
SETTING: dict[str, Any] = {"bandwidth": 1.0, "n_support": 12, "regularization": 1e-3, "tol": 1e-10}
FRAME = pandas.DataFrame({"u": X[:, 0], "v": X[:, 1], "mass": A})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two workers, each a process that is started again when it dies."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def in_memory() -> dict[str, KernelSoSDensity]:
    return {
        "plain": KernelSoSDensity(**SETTING).fit(X),
        "weighted": KernelSoSDensity(**SETTING).fit(X, sample_weight=A),
    }


def assert_same(a: KernelSoSDensity, b: KernelSoSDensity) -> None:
    """The same setting, and the same density to what the gap of the solver leaves open."""
    np.testing.assert_array_equal(a.support_points_, b.support_points_)
    assert a.solution_.objective == pytest.approx(b.solution_.objective, abs=1e-10)
    np.testing.assert_allclose(
        a.distribution_.with_feature_names(None).pdf(X[:50]),
        b.distribution_.with_feature_names(None).pdf(X[:50]),
        atol=1e-6,
    )


def dies_once(block: np.ndarray, mark: str, block_id: tuple[int, ...] = (0, 0)) -> np.ndarray:
    """The block; but the worker that is asked for the fifth one is killed, the first time."""
    if block_id[0] == 5 and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def fails_at_7(block: np.ndarray, block_id: tuple[int, ...] = (0, 0)) -> np.ndarray:
    if block_id[0] == 7:
        raise OSError("the line is down")
    return block


# --- the same sums ---


def test_a_fit_where_the_chunks_are(cluster: Any, in_memory: dict[str, KernelSoSDensity]) -> None:
    lazy = da.from_array(X, chunks=(1500, 2))
    assert_same(KernelSoSDensity(**SETTING).fit(lazy), in_memory["plain"])
    for weights in (da.from_array(A, chunks=1500), da.from_array(A, chunks=700), A):
        assert_same(
            KernelSoSDensity(**SETTING).fit(lazy, sample_weight=weights), in_memory["weighted"]
        )


def test_data_frames_are_fitted_by_the_names_of_their_columns(
    cluster: Any, in_memory: dict[str, KernelSoSDensity]
) -> None:
    frame = dd.from_pandas(FRAME, npartitions=5)
    found = KernelSoSDensity(**SETTING).fit(frame[["u", "v"]], sample_weight=frame["mass"])
    assert_same(found, in_memory["weighted"])
    assert list(found.feature_names_in_) == ["u", "v"] and found.distribution_.feature_names == (
        "u",
        "v",
    )
    assert_same(
        KernelSoSDensity(**SETTING).fit(chunks(frame, weights="mass")), in_memory["weighted"]
    )
    other = KernelSoSDensity(**SETTING).fit(chunks(frame, columns=["v", "u"]))
    assert list(other.feature_names_in_) == ["v", "u"]
    # the same columns in another order, of chunks whose sizes are not known
    scores = found.score_samples(frame[frame["u"] > 0.0][["v", "u"]])
    assert isinstance(scores, da.Array) and np.isnan(scores.shape[0])
    np.testing.assert_allclose(
        scores.compute(),
        found.distribution_.with_feature_names(None).logpdf(X[X[:, 0] > 0.0]),
        rtol=1e-12,
    )
    with pytest.raises(
        ValueError, match="the dask data frame has no column 'w'; its columns are 'u', 'v', 'mass'"
    ):
        chunks(frame, columns=["u", "w"])


def test_scores_are_lazy_and_their_mean_is_gathered(
    cluster: Any, in_memory: dict[str, KernelSoSDensity]
) -> None:
    fitted, lazy = in_memory["plain"], da.from_array(X, chunks=(1700, 1))
    scores = fitted.score_samples(lazy)
    assert (
        isinstance(scores, da.Array)
        and scores.shape == (len(X),)
        and scores.chunks[0] == lazy.chunks[0]
    )
    np.testing.assert_allclose(scores.compute(), fitted.score_samples(X), rtol=1e-12)
    for weights in (None, A):
        lazily = None if weights is None else da.from_array(weights, chunks=1000)
        assert fitted.score(lazy, sample_weight=lazily) == pytest.approx(
            fitted.score(X, sample_weight=weights), rel=1e-12
        )
    assert fitted.score(chunks(X, rows=1000)) == pytest.approx(fitted.score(X), rel=1e-12)


def test_mmd_between_what_lies_elsewhere(
    cluster: Any, in_memory: dict[str, KernelSoSDensity]
) -> None:
    a, b, kernel = X[:1000], X[1000:1900] + 0.5, Gaussian(1.0)
    lazy = da.from_array(a, chunks=(300, 2)), da.from_array(b, chunks=(400, 1))
    assert ksos.mmd(*lazy, kernel) == pytest.approx(ksos.mmd(a, b, kernel), rel=1e-12)
    assert ksos.mmd(*lazy, kernel, landmarks=GRID) == pytest.approx(
        ksos.mmd(a, b, kernel, landmarks=GRID), rel=1e-10
    )
    frame = dd.from_pandas(FRAME[["v", "u"]], npartitions=3)
    p, named = (
        in_memory["plain"].distribution_.with_feature_names(["u", "v"]),
        pandas.DataFrame(GRID, columns=["u", "v"]),
    )
    assert ksos.mmd(frame, p, landmarks=named) == pytest.approx(
        ksos.mmd(X, p.with_feature_names(None), landmarks=GRID), rel=1e-9
    )
    with pytest.raises(
        ValueError,
        match="more than 20000 samples, and the exact MMD takes all pairs of them; pass landmarks",
    ):
        ksos.mmd(da.from_array(np.tile(X, (2, 1)), chunks=(6000, 2)), b, kernel)
    with pytest.raises(ValueError, match="samples in chunks need a kernel"):
        ksos.mmd(*lazy)


def test_the_search_keeps_as_many_samples_as_it_searches(cluster: Any) -> None:
    options: dict[str, Any] = {
        "bandwidths": [1.0, 1.5],
        "relative_regularizations": [0.1, 0.01],
        "cv": 2,
        "n_support": 20,
    }
    frame = pandas.DataFrame(X[:300], columns=["u", "v"])
    whole, found = (
        KernelSoSDensityCV(**options).fit(frame),
        KernelSoSDensityCV(**options).fit(dd.from_pandas(frame, npartitions=3)),
    )
    assert found.best_score_ == pytest.approx(whole.best_score_, rel=1e-9)
    np.testing.assert_allclose(found.score_samples(frame), whole.score_samples(frame), rtol=1e-6)
    assert list(found.feature_names_in_) == ["u", "v"] and found.distribution_.feature_names == (
        "u",
        "v",
    )
    with pytest.raises(ValueError, match="cv could number"):
        KernelSoSDensityCV(cv=[([0], [1])]).fit(da.from_array(X, chunks=(900, 2)))


# --- what is wrong is named ---


def bad_chunk(bad: np.ndarray) -> Any:
    parts = [da.from_array(part) for part in np.array_split(X, 9)]
    parts[4] = da.from_array(bad).rechunk(-1)
    return da.concatenate(parts)


def test_an_exception_in_a_chunk_names_the_chunk(
    cluster: Any, in_memory: dict[str, KernelSoSDensity]
) -> None:
    lazy = da.from_array(X, chunks=(1000, 2))
    with pytest.raises(OSError, match="the line is down"):  # of the data, not of ksos: as it is
        KernelSoSDensity(**SETTING).fit(lazy.map_blocks(fails_at_7, dtype=float))
    with pytest.raises(ValueError, match=r"chunk 4 \(rows 5335 to 5336\): Input X contains NaN"):
        KernelSoSDensity(**SETTING).fit(bad_chunk(np.array([[0.0, 1.0], [np.nan, 0.0]])))
    holed = FRAME[["u", "v"]].copy()
    holed.loc[7000, "v"] = np.nan
    with pytest.raises(
        ValueError,
        match=r"Input chunk 2 contains NaN: column 'v' has missing values in 1 of 3000 rows",
    ):
        KernelSoSDensity(**SETTING).fit(dd.from_pandas(holed, npartitions=4))
    assert (
        KernelSoSDensity(**SETTING)
        .fit(chunks(dd.from_pandas(holed, npartitions=4), drop_missing=True))
        .n_features_in_
        == 2
    )
    with pytest.raises(
        ValueError, match=r"chunk 4 \(rows 5335 to 5335\): 1 of 1 samples lie outside Box"
    ):
        KernelSoSDensity(**SETTING, measure=ksos.measures.Box([-9.0, -9.0], [9.0, 9.0])).fit(
            bad_chunk(np.array([[0.0, 99.0]]))
        )
    scores = in_memory["plain"].score_samples(bad_chunk(np.array([[np.inf, 0.0]])))
    with pytest.raises(
        ValueError, match=r"chunk 4 \(rows 5335 to 5335\): Input X contains infinity"
    ):
        scores.compute()


def test_a_chunk_of_another_width_is_named(cluster: Any) -> None:
    parts = [
        da.from_delayed(dask.delayed(np.ones)((5, 2 + (k == 3))), (5, 2), float) for k in range(5)
    ]
    with pytest.raises(
        ValueError,
        match=(
            r"chunk 3 \(rows 15 to 19\): an array of shape \(5, 3\) came, but 2 columns were"
            r" expected"
        ),
    ):
        KernelSoSDensity(**SETTING).fit(da.concatenate(parts))


@pytest.mark.parametrize(
    ("data", "weights", "kind", "words"),
    [
        (da.zeros(5), None, ValueError, "of two dimensions was expected"),
        (
            dask.delayed(np.zeros)((5, 2)),
            None,
            TypeError,
            "of Dask, arrays and data frames are taken as samples; got Delayed",
        ),
        (da.zeros((5, 2)), da.zeros(4), ValueError, "sample_weight must have length 5; got 4"),
        (da.zeros((5, 2)), da.zeros((5, 1)), ValueError, "sample_weight must be one-dimensional"),
        (
            np.zeros((5, 2)),
            da.zeros(5),
            TypeError,
            "sample_weight is of Dask, but the samples are ndarray",
        ),
        (
            dd.from_pandas(FRAME[["u", "v"]], npartitions=2),
            A,
            TypeError,
            "sample_weight must be of Dask",
        ),
        (
            dd.from_pandas(FRAME[["u", "v"]], npartitions=2),
            da.zeros(3, chunks=1),
            ValueError,
            "has 3 chunks, but the samples have 2",
        ),
        (da.zeros((0, 2)), None, ValueError, "is empty: no chunk has rows"),
        (da.zeros((4, 2)), da.zeros(4), ValueError, "must not be zero everywhere"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    data: Any, weights: Any, kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        KernelSoSDensity(**SETTING).fit(data, sample_weight=weights)


def test_dask_is_not_imported_unasked() -> None:
    program = """
import sys, numpy as np, ksos
p = ksos.KernelSoSDensity(n_support=5).fit(np.random.default_rng(0).normal(size=(50, 2)))
p.score(ksos.chunks([np.zeros((3, 2))])), ksos.mmd(np.zeros((2, 1)), np.ones((2, 1)))
sys.exit("dask" in sys.modules or "distributed" in sys.modules)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(ksos.__file__).parents[1])}
    assert (
        subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode
        == 0
    )


# --- a worker dies ---


def test_a_worker_that_is_killed_loses_nothing(cluster: Any, tmp_path: Path) -> None:
    """What it has found is lost with it, is found again, and is the same."""
    lazy, kernel, landmarks = da.from_array(X, chunks=(900, 1)), Gaussian(0.7), X[:40]
    dying = lazy.rechunk((900, 2)).map_blocks(dies_once, mark=str(tmp_path / "mark"), dtype=float)
    exact = ksos.KernelSums(kernel, landmarks).update(X)
    for source in (lazy, dying):
        found = sums_at(chunks(source), kernel, landmarks, None)
        assert found.count == len(X)
        np.testing.assert_allclose(found.values, exact.values, rtol=1e-12)
    assert (tmp_path / "mark").exists()
