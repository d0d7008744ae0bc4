"""Samples in chunks: the sums do not depend on the chunks, a killed fit goes on, and what is wrong
is named by chunk and file.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos import KernelSoSDensity, KernelSums, chunks
from ksos.data import Survey
from ksos.exceptions import ModelFormatError
from ksos.ground import read_state, write_state
from ksos.kernels import Gaussian

X = points(12_000, 2, 3)
GRID = np.stack(np.meshgrid(np.linspace(-2.0, 2.0, 4), np.linspace(-2.0, 2.0, 4)), axis=-1).reshape(
    -1, 2
)
GIVEN = {"bandwidth": 1.0, "support": GRID, "regularization": 1e-3, "tol": 1e-10}
PARTED = {
    "bandwidth": 1.0,
    "n_support": 12,
    "regularization": 1e-3,
    "tol": 1e-10,
}  # the samples decide on the support points


def assert_same(a: KernelSoSDensity, b: KernelSoSDensity, atol: float = 1e-9) -> None:
    """The same setting and the same density."""
    np.testing.assert_array_equal(a.support_points_, b.support_points_)
    np.testing.assert_allclose(
        a.distribution_.with_feature_names(None).logpdf(X[:50]),
        b.distribution_.with_feature_names(None).logpdf(X[:50]),
        rtol=0.0,
        atol=atol,
    )


# --- fits ---


@pytest.fixture(scope="module")
def in_memory() -> dict[str, KernelSoSDensity]:
    return {"given": KernelSoSDensity(**GIVEN).fit(X), "parted": KernelSoSDensity(**PARTED).fit(X)}


def as_list(folder: Path) -> object:
    return [X[:100], X[100:101], np.empty((0, 2)), X[101:]]


def as_npy(folder: Path) -> object:
    np.save(folder / "x.npy", X[::-1])
    return folder / "x.npy"


def as_csv(folder: Path) -> object:
    for k, part in enumerate(np.array_split(X, 3)):
        np.savetxt(
            folder / f"x{k}.csv", part, delimiter=",", header="u,v", comments="", fmt="%.17g"
        )
    return str(folder / "*.csv")


def as_parquet(folder: Path) -> object:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for k, part in enumerate(np.array_split(X, 3)):
        parquet.write_table(
            arrow.table({"u": part[:, 0], "v": part[:, 1]}), folder / f"x{k}.parquet"
        )
    return folder


def as_stream(folder: Path) -> object:
    arrow = pytest.importorskip("pyarrow")
    return arrow.table({"u": X[:, 0], "v": X[:, 1]})


def as_function(folder: Path) -> object:
    return lambda: (X[k : k + 999] for k in range(0, len(X), 999))


@pytest.mark.parametrize("source", [as_list, as_npy, as_csv, as_parquet, as_stream, as_function])
def test_every_source_gives_the_fit_of_the_array(
    source: object, in_memory: dict[str, KernelSoSDensity], tmp_path: Path
) -> None:
    rows = source(tmp_path)  # type: ignore[operator]
    found = KernelSoSDensity(**PARTED).fit(chunks(rows, rows=5000))
    assert_same(found, in_memory["parted"])


@pytest.mark.parametrize("options", [GIVEN, PARTED])
@pytest.mark.parametrize("weights", [None, "whole numbers", "many decades"])
def test_neither_chunks_nor_order_nor_engine_change_the_density(
    options: dict[str, object], weights: str | None
) -> None:
    rng, rows = np.random.default_rng(0), np.concatenate([X, X[::3]])  # some twice
    decades = rng.exponential(size=len(rows)) * 10.0 ** rng.integers(-4, 4, len(rows))
    a = {
        None: np.ones(len(rows)),
        "whole numbers": rng.integers(1, 4, len(rows)).astype(float),
        "many decades": decades,
    }[weights]
    whole = KernelSoSDensity(**options).fit(rows, sample_weight=a)
    for kind, cuts in (
        (ksos.data.Chunks, 0),
        (ksos.data.Chunks, 40),
        (Elsewhere, 7),
    ):
        order = np.split(rng.permutation(len(rows)), np.sort(rng.integers(0, len(rows), cuts)))
        source = chunks([(rows[part], a[part]) for part in order])
        assert_same(KernelSoSDensity(**options).fit(kind(source.__iter__, "parts")), whole)


class Elsewhere(ksos.data.Chunks):
    """An engine that gathers every chunk in another place, where only pickles arrive, and merges in
    a tree.
    """

    def gather(self, begun: Any, *, done: int = 0, after: object = None) -> Any:
        parts = [pickle.loads(pickle.dumps(begun)).update(chunk) for chunk in self]
        while len(parts) > 1:
            parts = [
                pickle.loads(pickle.dumps(a)).merge(b[0]) if b else a
                for a, *b in (parts[k : k + 2] for k in range(0, len(parts), 2))
            ]
        return parts[0]


@pytest.mark.parametrize("options", [GIVEN, PARTED])
def test_another_engine_gives_the_same_fit(options: dict[str, object]) -> None:
    parts = [X[:100], X[100:7000], np.empty((0, 2)), X[7000:]]
    found = [
        KernelSoSDensity(**options).fit(kind(chunks(parts).__iter__, "parts"))
        for kind in (Elsewhere, ksos.data.Chunks)
    ]
    assert_same(*found)
    with pytest.raises(ValueError, match=r"chunk 2: Input X contains NaN"):
        KernelSoSDensity(**options).fit(
            Elsewhere(chunks([*parts[:2], [[np.nan, 0.0]]]).__iter__, "parts")
        )
    with pytest.raises(
        ValueError, match=r"some chunks have 2 columns, others 1|chunk 1: X has 1 features"
    ):
        KernelSoSDensity(**options).fit(Elsewhere(chunks([X[:9], X[:9, :1]]).__iter__, "parts"))


def test_what_can_be_read_once_is_enough_where_the_setting_is_given(
    in_memory: dict[str, KernelSoSDensity],
) -> None:
    once = chunks(part for part in np.array_split(X, 9))
    assert_same(KernelSoSDensity(**GIVEN).fit(once), in_memory["given"])
    few = KernelSoSDensity(**PARTED).fit(chunks(part for part in np.array_split(X[:3000], 9)))
    assert_same(few, KernelSoSDensity(**PARTED).fit(X[:3000]), atol=1e-12)
    with pytest.raises(ValueError, match=r"can be read only once.*begins anew.*lambda"):
        KernelSoSDensity(**PARTED).fit(chunks(part for part in np.array_split(X, 9)))


def test_weights_come_with_chunks_or_as_a_column() -> None:
    a = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    whole = KernelSoSDensity(**PARTED).fit(X, sample_weight=a)
    pairs = [(X[:4000], a[:4000]), (X[4000:], a[4000:])]
    assert_same(KernelSoSDensity(**PARTED).fit(chunks(pairs)), whole)
    assert_same(KernelSoSDensity(**PARTED).fit(chunks(np.c_[X, a], weights=2)), whole)
    with pytest.raises(ValueError, match="weights of a source come with its chunks"):
        KernelSoSDensity(**PARTED).fit(chunks(X), sample_weight=a)


def test_partial_fit_is_fit_and_then_keeps_its_setting() -> None:
    running, few = KernelSoSDensity(**PARTED), KernelSoSDensity(**PARTED).fit(X[:9000])
    for part in np.array_split(X[:9000], 5):
        running.partial_fit(part)
    np.testing.assert_array_equal(running.score_samples(X[:50]), few.score_samples(X[:50]))
    for part in np.array_split(X[9000:], 5):
        running.partial_fit(part)
    fixed = {**GIVEN, "support": running.support_points_}
    assert_same(running, KernelSoSDensity(**fixed).fit(X))


def test_partial_fit_takes_the_chunks_of_a_source_all_or_none() -> None:
    running = KernelSoSDensity(**GIVEN).partial_fit(X[:100]).partial_fit(chunks(X[100:], rows=1500))
    assert_same(running, KernelSoSDensity(**GIVEN).fit(X))
    with pytest.raises(ValueError, match="chunk 17: Input X contains NaN"):
        running.partial_fit(chunks(broken(17, np.array([[0.0, np.nan]]))))
    with pytest.raises(ValueError, match="weights of a source come with its chunks"):
        running.partial_fit(chunks(X), sample_weight=np.ones(len(X)))
    assert_same(running, KernelSoSDensity(**GIVEN).fit(X))


# --- a fit that was killed ---

KILLED = """
import sys, numpy as np, ksos
X = np.load(sys.argv[1])
def rows():
    for k in range(0, len(X), 40):
        print(k, flush=True)
        yield np.repeat(X[k : k + 40], 1000, axis=0)
support = np.load(sys.argv[3])
ksos.KernelSoSDensity(bandwidth=1.0, support=support).fit(ksos.chunks(rows), checkpoint=sys.argv[2])
"""


def test_a_killed_fit_goes_on_where_it_was(
    tmp_path: Path, in_memory: dict[str, KernelSoSDensity]
) -> None:
    data, file, support = (tmp_path / name for name in ("x.npy", "sums", "support.npy"))
    np.save(data, X)
    np.save(support, GRID)
    environment = {**os.environ, "PYTHONPATH": str(Path(ksos.__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, data, file, support],
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    ) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < 400 or not file.exists():
            pass
        process.send_signal(signal.SIGKILL)
    read: list[int] = []

    def rows() -> Iterator[np.ndarray]:
        for k in range(0, len(X), 40):
            read.append(k)
            yield X[k : k + 40] if k > 400 else np.repeat(X[k : k + 40], 1000, axis=0)

    state = read_state(file, "a fit in progress")
    assert 0 < state["first"]["tally"]["chunks"] <= 12 and not state["looked"]
    found = KernelSoSDensity(**GIVEN).fit(chunks(rows), checkpoint=file)
    assert len(read) == 300
    counts = np.where(np.arange(len(X)) < 440, 1000.0, 1.0)
    assert_same(found, KernelSoSDensity(**GIVEN).fit(X, sample_weight=counts))


@pytest.mark.parametrize("options", [GIVEN, PARTED])
def test_a_fit_that_failed_goes_on_where_it_was(options: dict[str, object], tmp_path: Path) -> None:
    """The source fails once in each of its passes, and the third attempt has the answer."""
    parts, calls = np.array_split(X, 300), []

    def rows() -> Iterator[np.ndarray]:
        calls.append(0)
        for k, part in enumerate(parts):
            if k == 250 and len(calls) in (1, 3):
                raise OSError("the line is down")
            yield np.repeat(part, 10, axis=0)

    found = None
    for _ in range(3):
        try:
            found = KernelSoSDensity(**options).fit(chunks(rows), checkpoint=tmp_path / "sums")
            break
        except OSError as error:
            assert str(error) == "the line is down"
    assert found is not None
    assert_same(found, KernelSoSDensity(**options).fit(X))


# --- what is wrong is named ---


def broken(k: int, bad: object) -> list[object]:
    parts: list[object] = list(np.array_split(X, 20))
    parts[k] = bad
    return parts


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.ones((5, 3)), r"chunk 17: X has 3 features, but KernelSoSDensity is expecting 2"),
        (np.array([[0.0, np.nan]]), r"chunk 17: Input X contains NaN"),
        ((np.ones((2, 2)), [1.0, -1.0]), r"chunk 17: weights must not be negative; entry 1 is -1"),
        ((np.ones((2, 2)), [1.0]), r"chunk 17: weights must have length 2; got 1"),
        ([["1", "2"]], r"chunk 17: X must hold real numbers; got text such as '1'"),
    ],
)
def test_a_bad_chunk_is_named(bad: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KernelSoSDensity(**GIVEN).fit(chunks(broken(17, bad)))
    running = KernelSoSDensity(**GIVEN).partial_fit(X[:100])
    with pytest.raises(ValueError, match=words.removeprefix("chunk 17: ")):
        (
            running.partial_fit(*bad[:1], sample_weight=bad[1])
            if isinstance(bad, tuple)
            else running.partial_fit(bad)
        )
    assert_same(
        running, KernelSoSDensity(**GIVEN).fit(X[:100])
    )  # what was there before is still there


def test_samples_outside_of_the_measure_are_named() -> None:
    with pytest.raises(ValueError, match=r"chunk 3: 1 of 1 samples lie outside Box"):
        KernelSoSDensity(**GIVEN, measure=ksos.measures.Box([-9.0, -9.0], [9.0, 9.0])).fit(
            chunks(broken(3, [[0.0, 99.0]]))
        )


@pytest.mark.parametrize("source", [[], [np.empty((0, 2))], np.empty((0, 2))])
def test_an_empty_source_is_refused(source: object) -> None:
    with pytest.raises(ValueError, match="is empty: no chunk has rows"):
        KernelSoSDensity(**GIVEN).fit(chunks(source))


def test_a_source_that_changes_between_passes_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"gave other rows in its second pass .*fix the seed"):
        KernelSoSDensity(**PARTED).fit(chunks(lambda: [rng.normal(size=(12_000, 2))]))
    np.save(tmp_path / "x.npy", X)

    class Changing(ksos.data.Chunks):
        def __iter__(self) -> Iterator[ksos.data.Chunk]:
            yield from super().__iter__()
            time.sleep(0.01)
            np.save(tmp_path / "x.npy", X + 1.0)

    source = chunks(tmp_path / "x.npy")
    with pytest.raises(ValueError, match=r"x\.npy has changed since the first pass"):
        KernelSoSDensity(**PARTED).fit(Changing(source.__iter__, source.name, source.files))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        chunks(tmp_path / "none.npy")
    with pytest.raises(ValueError, match="name of a file of samples must not be empty"):
        chunks("")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        chunks(f"{tmp_path}/*.parquet")
    with pytest.raises(FileNotFoundError, match="holds no file that can be read"):
        chunks(tmp_path)
    (tmp_path / "x.npy").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match=r"x\.npy is not a readable NPY file"):
        list(chunks(tmp_path / "x.npy"))
    (tmp_path / "x.csv").write_text("u,v\n1,2\n3,many\n")
    with pytest.raises(ValueError, match=r"x\.csv, row 3, column 2 \('v'\)"):
        list(chunks(tmp_path / "x.csv"))
    (tmp_path / "gap.csv").write_text("u,v\n1,2\n3,\n")
    with pytest.raises(
        ValueError,
        match=r"gap\.csv, row 3, column 2 \('v'\): the cell is missing.*drop_missing=True",
    ):
        list(chunks(tmp_path / "gap.csv"))
    assert next(iter(chunks(tmp_path / "x.csv", columns=["u"]))).data.tolist() == [[1.0], [3.0]]
    with pytest.raises(ValueError, match=r"x\.csv.* has no column 'w'; its columns are 'u', 'v'"):
        list(chunks(tmp_path / "x.csv", columns=["u", "w"]))
    (tmp_path / "x.doc").write_text("")
    with pytest.raises(ValueError, match=r"x\.doc is of no kind that can be read in chunks"):
        chunks(tmp_path / "x.doc")
    with pytest.raises(TypeError, match="a source of samples is a path, an array"):
        chunks(3)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    as_parquet(tmp_path)
    whole = (tmp_path / "x1.parquet").read_bytes()
    (tmp_path / "x1.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"x1\.parquet is truncated or damaged"):
        KernelSoSDensity(**GIVEN).fit(chunks(tmp_path))


def test_a_full_disk_is_named_and_the_fit_goes_on_from_what_there_was(
    tmp_path: Path, in_memory: dict[str, KernelSoSDensity]
) -> None:
    resource = pytest.importorskip("resource")
    file, parts, read = tmp_path / "sums", np.array_split(X, 12), []

    def rows() -> Iterator[np.ndarray]:
        for k, part in enumerate(parts):
            read.append(k)
            yield np.repeat(part, 40, axis=0)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (150_000, hard)
    )  # as a disk that is full: there is room for some thousand samples
    try:
        with pytest.raises(OSError, match=r"sums"):
            KernelSoSDensity(**PARTED).fit(chunks(rows), checkpoint=file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["sums"]
    state = read_state(file, "a fit in progress")
    assert (
        0 < state["first"]["tally"]["chunks"] < read[-1] + 1
    )  # the last one that could be written
    assert_same(KernelSoSDensity(**PARTED).fit(chunks(rows), checkpoint=file), in_memory["parted"])


def test_a_file_of_something_else_is_no_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "sums"
    write_state(file, "kernel sums", KernelSums(Gaussian(1.0), GRID).state())
    with pytest.raises(
        ModelFormatError, match="holds kernel sums, but a fit in progress was expected"
    ):
        KernelSoSDensity(**GIVEN).fit(chunks(X), checkpoint=file)


def test_what_needs_rows_in_memory_says_so() -> None:
    with pytest.raises(ValueError, match="checkpoint is for a source of chunks"):
        KernelSoSDensity(**GIVEN).fit(X, checkpoint="sums")
    for question in (
        lambda: ksos.two_sample_test(chunks(X), X),
        lambda: ksos.KernelSoSConditional().fit(chunks(X), X[:, 0]),
    ):
        with pytest.raises(
            TypeError,
            match=(
                r"an array in memory is needed here, and chunks\(an array of shape .*\) comes in"
                r" chunks"
            ),
        ):
            question()
    with pytest.raises(
        ValueError,
        match=r"an array or a table; got 'data/\*\.csv'; files are read by ksos\.chunks",
    ):
        KernelSoSDensity(**GIVEN).fit("data/*.csv")


# --- scores ---


def test_scores_of_chunks_are_those_of_the_array(
    in_memory: dict[str, KernelSoSDensity], tmp_path: Path
) -> None:
    fitted, a = in_memory["given"], np.random.default_rng(0).integers(0, 3, 900).astype(float)
    whole = fitted.score_samples(X[:900])
    parts = [(X[:400], a[:400]), np.empty((0, 2)), (X[400:900], a[400:])]
    scores = fitted.score_samples(chunks(parts))
    assert iter(scores) is scores  # nothing is computed before it is asked for
    np.testing.assert_allclose(np.concatenate(list(scores)), whole, atol=1e-13)
    stored = fitted.score_samples(chunks(parts), out=tmp_path / "scores.npy")
    assert isinstance(stored, np.memmap)
    np.testing.assert_allclose(np.load(tmp_path / "scores.npy"), whole, atol=1e-13)
    for kind in (ksos.data.Chunks, Elsewhere):
        found = fitted.score(kind(chunks(parts).__iter__, "parts"))
        assert found == pytest.approx(fitted.score(X[:900], sample_weight=a), abs=1e-12)


def test_scores_name_what_is_wrong(in_memory: dict[str, KernelSoSDensity], tmp_path: Path) -> None:
    fitted, file = in_memory["given"], tmp_path / "scores.npy"
    file.write_text("old")
    for ask in (
        fitted.score,
        lambda source: fitted.score_samples(source, out=file),
        lambda source: list(fitted.score_samples(source)),
    ):
        with pytest.raises(ValueError, match=r"chunk 17: Input X contains NaN"):
            ask(chunks(broken(17, [[np.nan, 0.0]])))
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["scores.npy"]

    def failing(error: OSError) -> Iterator[np.ndarray]:
        yield X
        raise error

    # an error of the source does not name the file that is written
    for error in (OSError("the line is down"), FileNotFoundError(2, "gone", "x.csv")):
        with pytest.raises(OSError, match=r"the line is down|gone") as caught:
            fitted.score_samples(chunks(failing(error)), out=file)
        assert caught.value.filename in (None, "x.csv")
    assert file.read_text() == "old" and os.listdir(tmp_path) == ["scores.npy"]
    with pytest.raises(ValueError, match="out is for a source of chunks"):
        fitted.score_samples(X, out=file)
    with pytest.raises(ValueError, match="weights of a source come with its chunks"):
        fitted.score(chunks(X), sample_weight=np.ones(len(X)))
    with pytest.raises(ValueError, match="no samples of positive weight"):
        fitted.score(chunks([(X[:3], np.zeros(3))]))


def test_anomalies_among_chunks() -> None:
    few = [
        KernelSoSDensity(**PARTED, contamination=0.05).fit(source)
        for source in (X[:600], chunks(X[:600], rows=77))
    ]
    np.testing.assert_allclose(
        np.sort(few[1].held_out_scores_), np.sort(few[0].held_out_scores_), atol=1e-9
    )
    many = KernelSoSDensity(**PARTED, contamination=0.05).fit(chunks(X, rows=5000))
    assert (
        many.held_out_scores_.shape == (2000,)
        and many.threshold_ == np.sort(many.held_out_scores_)[99]
    )
    part = Survey.empty(10_000, 2).update(X, np.ones(len(X))).part.points
    held_out = np.isin(np.round(many.held_out_scores_, 9), np.round(many.score_samples(part), 9))
    assert not held_out.any()  # they are scores of a fit that has not seen these rows
    for ask in (many.predict, many.p_value):
        with pytest.raises(
            TypeError, match=r"rows are needed here; got chunks.*score_samples\(source\)"
        ):
            ask(chunks(X))
    new = points(12_000, 2, 4)
    assert np.mean(many.predict(new) == -1) == pytest.approx(0.05, abs=0.02)
    assert np.mean(many.predict(X) == -1) == pytest.approx(0.05, abs=0.02)


@pytest.mark.parametrize("cuts", [0, 9])
def test_a_normal_reference_has_the_moments_of_all_samples(cuts: int, tmp_path: Path) -> None:
    source = chunks(np.array_split(X[np.random.default_rng(cuts).permutation(len(X))], cuts + 1))
    options = {"n_support": 6, "reference": "normal", "solver": ksos.solvers.Auto(max_iter=2)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the iteration limit is ours
        whole = KernelSoSDensity(**options).fit(X)
        found = [
            KernelSoSDensity(**options).fit(source, checkpoint=tmp_path / "sums") for _ in range(2)
        ]  # the second from the file
    for one in (*found, whole):
        law = one.solution_.space.measure
        np.testing.assert_allclose(law.mean, X.mean(axis=0), atol=1e-11)
        np.testing.assert_allclose(law.scale, np.cov(X, rowvar=False, bias=True), rtol=1e-9)
        assert_same(one, whole)


# --- the likelihood ---


def test_a_likelihood_of_more_samples_than_are_kept_is_that_of_all() -> None:
    rng = np.random.default_rng(0)
    rows = np.concatenate([rng.normal(size=9000), 3.0 + rng.standard_t(4, size=9000)])[:, None]
    options = {
        "bandwidth": 4.0,
        "support": np.linspace(-5.0, 12.0, 6)[:, None],
        "objective": "likelihood",
        "regularization": 1e-3,
    }
    whole, at = KernelSoSDensity(**options).fit(rows), np.linspace(-3.0, 6.0, 40)[:, None]
    found = [
        KernelSoSDensity(**options).fit(kind(chunks(source, rows=size).__iter__, "rows"))
        for kind, source, size in (
            (ksos.data.Chunks, rows, 9000),
            (Elsewhere, rows[::-1].copy(), 7000),
        )
    ]
    for one in found:
        assert one.solution_.status == "solved" and one.solution_.gap <= 1e-5
        assert "those of all samples" in one.solution_.message
        assert one.solution_.objective == pytest.approx(whole.solution_.objective, abs=1e-5)
        assert one.score(rows) == pytest.approx(whole.score(rows), abs=1e-5)
    np.testing.assert_allclose(found[0].score_samples(at), found[1].score_samples(at), atol=1e-9)


@pytest.mark.parametrize(("stop", "certified"), [(2, False), (3, True)])
def test_a_likelihood_that_is_interrupted_keeps_what_it_has(stop: int, certified: bool) -> None:
    rows, passes = np.random.default_rng(0).normal(size=(17_000, 1)), []

    def stopped() -> Iterator[np.ndarray]:
        passes.append(0)
        yield rows
        if len(passes) == stop:
            raise KeyboardInterrupt

    fit = KernelSoSDensity(
        bandwidth=2.0, support=np.linspace(-3.0, 3.0, 4)[:, None], objective="likelihood", tol=1e-7
    )
    with pytest.raises(KeyboardInterrupt):
        fit.fit(chunks(stopped))
    assert fit.solution_.status == "interrupted" and (fit.solution_.gap is not None) is certified
    assert fit.distribution_.mean()[0] == pytest.approx(0.0, abs=0.1)


def test_a_likelihood_names_the_chunk_that_no_density_reaches() -> None:
    rows = np.random.default_rng(0).normal(size=(60_000, 1))
    options = {
        "bandwidth": 0.5,
        "support": np.linspace(-3.0, 3.0, 8)[:, None],
        "objective": "likelihood",
    }
    with pytest.raises(
        ValueError,
        match=r"chunk 4: 1 of 1 samples have likelihood zero .* too far from every support point",
    ):
        KernelSoSDensity(**options).fit(chunks([*np.array_split(rows, 4), [[31.0]]]))
