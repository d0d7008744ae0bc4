"""Folders, patterns, Parquet and several files on the command line: the same answers as from one
file, in chunks, with faults named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library
from ksos.data import Stream, TableOptions, open_table

arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

Command = Callable[..., Any]
QUICK = ("--method", "mmd", "--bandwidth", 1.5, "--n-support", 6, "--tol", 1e-9)


def written(folder: Path, points: np.ndarray, weights: np.ndarray, kind: str) -> Path:
    """Three files of one kind, with columns in two orders and one of text."""
    folder.mkdir()
    for k, rows in enumerate(np.array_split(np.arange(len(points)), 3)):
        part = {"x": points[rows, 0], "y": points[rows, 1], "mass": weights[rows]}
        part = part if k % 2 else dict(reversed(part.items()))
        table = arrow.table({**part, "label": [f"row {i}" for i in rows]})
        if kind == "parquet":
            parquet.write_table(table, folder / f"{k}.parquet")
        else:
            lines = [
                ",".join(table.column_names),
                *(",".join(map(str, row.values())) for row in table.to_pylist()),
            ]
            (folder / f"{k}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(params=["csv", "parquet"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, points: np.ndarray, weights: np.ndarray
) -> Path:
    return written(tmp_path / "many", points, weights, request.param)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, data: Path) -> Path:
    """The model of the same rows in one file."""
    from ksos.cli import main

    path = tmp_path_factory.mktemp("whole") / "whole.ksos"
    assert (
        main(
            list(
                map(str, ("fit", data, "-o", path, "--columns", "x,y", "--weights", "mass", *QUICK))
            )
        )
        == 0
    )
    return path


def test_many_files_are_one_table(
    ksos: Command, folder: Path, whole: Path, data: Path, tmp_path: Path
) -> None:
    pattern, several = str(folder / "*"), sorted(folder.iterdir())
    expected = ksos("score", whole, data, "--weights", "mass", "--per-row").out
    for paths in ([folder], [pattern], several):
        done = ksos(
            "fit",
            *paths,
            "-o",
            tmp_path / "m.ksos",
            "--columns",
            "x,y",
            "--weights",
            "mass",
            *QUICK,
        )
        assert done.code == 0 and "rows: 40\n" in done.out
        assert not done.err, done.err
        done = ksos("score", tmp_path / "m.ksos", *paths, "--weights", "mass", "--per-row")
        np.testing.assert_allclose(
            [float(x) for x in done.out.split()], [float(x) for x in expected.split()], atol=1e-6
        )
        assert "'label'" in done.err  # a column that is none of the model's is said


def test_the_search_reads_many_files(
    ksos: Command, folder: Path, tmp_path: Path, points: np.ndarray, weights: np.ndarray
) -> None:
    words = [
        "--columns",
        "x,y",
        "--weights",
        "mass",
        "--folds",
        "2",
        "--relative-regularizations",
        "0.1",
        "--json",
    ]
    done = ksos("fit", folder, "-o", tmp_path / "m.ksos", *words)
    assert done.code == 0 and not done.err and json.loads(done.out)["n_samples"] == 40
    p = library.load(tmp_path / "m.ksos")
    assert p.feature_names == ("x", "y") and p.rank == json.loads(done.out)["rank"]
    expected = library.KernelSoSDensityCV(relative_regularizations=[0.1], cv=2).fit(
        points, sample_weight=weights
    )
    assert np.average(p.with_feature_names(None).logpdf(points), weights=weights) == pytest.approx(
        expected.score(points, sample_weight=weights), abs=0.2
    )


def test_scores_of_many_files(ksos: Command, folder: Path, whole: Path, data: Path) -> None:
    for words in (["--weights", "mass"], []):
        one = ksos("score", whole, data, *words, "--json", "--per-row")
        many = ksos("score", whole, folder, *words, "--json", "--per-row")
        left, right = json.loads(one.out), json.loads(many.out)
        np.testing.assert_allclose(right.pop("log_density"), left.pop("log_density"), rtol=1e-12)
        assert right == pytest.approx(left, rel=1e-12) and right["n_samples"] == 40
        mean = ksos("score", whole, folder, *words).out
        assert mean == f"mean log-density: {left['mean_log_density']:.6g} nats per row (40 rows)\n"


def test_columns_by_number_and_left_out(ksos: Command, tmp_path: Path, points: np.ndarray) -> None:
    for k in range(2):
        np.save(tmp_path / f"{k}.npy", np.c_[np.arange(20.0), points[20 * k : 20 * k + 20]])
    for words in (["--columns", "2,3"], ["--exclude", "1"]):
        done = ksos("fit", tmp_path, "-o", tmp_path / "m.ksos", *words, *QUICK, "--json")
        assert (
            done.code == 0
            and json.loads(done.out)["n_features"] == 2
            and json.loads(done.out)["n_samples"] == 40
        )


def test_rows_with_missing_cells(ksos: Command, folder: Path, tmp_path: Path) -> None:
    bad, name = sorted(folder.iterdir())[1], "'x'"
    if bad.suffix == ".csv":
        lines = bad.read_text().splitlines()
        bad.write_text("\n".join([*lines[:3], "," + lines[3].split(",", 1)[1], *lines[4:]]) + "\n")
    else:
        table = parquet.read_table(bad).to_pydict()
        table["x"][2] = None
        parquet.write_table(arrow.table(table), bad)
    words = ("fit", folder, "-o", tmp_path / "m.ksos", "--columns", "x,y", *QUICK)
    refused = ksos(*words)
    assert (
        refused.code == 1
        and str(bad) in refused.err
        and name in refused.err
        and "missing" in refused.err
    )
    done = ksos(*words, "--drop-missing")
    assert done.code == 0 and "rows: 39 of 40 (1 dropped: missing cells)\n" in done.out
    assert "dropped 1 of 40 rows, which have missing cells" in done.err


def test_a_fit_goes_on_from_its_checkpoint(
    ksos: Command, folder: Path, data: Path, whole: Path, tmp_path: Path
) -> None:
    file, words = (
        tmp_path / "sums",
        ("-o", tmp_path / "m.ksos", "--columns", "x,y", "--weights", "mass", *QUICK),
    )
    done = ksos("fit", folder, *words, "--checkpoint", file)
    assert done.code == 0 and not file.exists()
    done = ksos("fit", data, *words, "--checkpoint", file)  # one file in chunks
    assert done.code == 0 and (tmp_path / "m.ksos").stat().st_size == whole.stat().st_size
    file.write_text("nothing of the kind")
    refused = ksos("fit", folder, *words, "--checkpoint", file)
    assert (
        refused.code == 1
        and "sums is no file of a fit in progress, or it is damaged" in refused.err
    )


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["{folder}", "--clean", "-o", "{out}"], "--clean looks at all rows at once"),
        (["{folder}", "--columns", "x,z", "-o", "{out}"], "has no column 'z'; its columns are"),
        (["{folder}/*.doc", "-o", "{out}"], "no file matches"),
        (
            [
                "{folder}",
                "-o",
                "{out}",
                "--columns",
                "x,y",
                "--target",
                "y",
                "--checkpoint",
                "{out}",
            ],
            "--checkpoint",
        ),
        (
            ["{folder}", "-o", "{out}", "--columns", "x,y", "--checkpoint", "{out}"],
            "--checkpoint belongs to --method mmd",
        ),
        (
            ["{folder}", "-o", "{out}", "--columns", "x,y", "--method", "mmd", "--objective", "l2"],
            "needs all rows in memory",
        ),
        (["{folder}", "-o", "{out}", "--columns", "x,y,label"], "'label'"),
    ],
)
def test_what_is_refused(
    ksos: Command, folder: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    done = ksos("fit", *(word.format(folder=folder, out=tmp_path / "m.ksos") for word in words))
    assert done.code in (1, 2) and what in done.err and done.err.count("\n") == 1, done.err


def test_a_file_that_differs_is_named(ksos: Command, folder: Path, tmp_path: Path) -> None:
    last = sorted(folder.iterdir())[-1]
    if last.suffix == ".csv":
        last.write_text(last.read_text().replace("y", "z", 1))
    else:
        table = parquet.read_table(last)
        parquet.write_table(
            table.rename_columns(["z" if name == "y" else name for name in table.column_names]),
            last,
        )
    done = ksos("fit", folder, "-o", tmp_path / "m.ksos", "--columns", "x,y", *QUICK)
    assert done.code == 1 and f"{last}" in done.err and "has no column 'y'" in done.err
    if last.suffix == ".parquet":
        last.write_bytes(last.read_bytes()[:-100])
        done = ksos("fit", folder, "-o", tmp_path / "m.ksos", "--columns", "x,y", *QUICK)
        assert done.code == 1 and f"{last} is truncated or damaged" in done.err


def test_commands_that_need_all_rows_read_folders_too(
    ksos: Command, folder: Path, tmp_path: Path
) -> None:
    done = ksos(
        "worst-case", folder, "--columns", "x", "--loss", "x < 0", "--radius", 0.1, "--json"
    )
    assert done.code == 0, done.err
    assert json.loads(done.out)["value"] >= 0.5


def test_rows_are_counted_in_every_pass(folder: Path) -> None:
    stream = open_table(str(folder), TableOptions(columns=["x", "y"]))
    assert isinstance(stream, Stream) and stream.n_samples is None
    for _ in range(2):
        assert sum(len(chunk.data) for chunk in stream.points) == stream.n_samples == 40
        assert stream.report == "", "nothing was dropped"
