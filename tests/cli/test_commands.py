"""``score``, ``sample`` and ``inspect``: the numbers are the library's, in digits
that lose nothing.
"""

from __future__ import annotations

import io
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library
from ksos.data import read_table
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete

Command = Callable[..., Any]


def mean_of(done: Any) -> float:
    """The answer of score, in full precision with --json and rounded without."""
    if done.out.startswith("{"):
        return float(json.loads(done.out)["mean_log_density"])
    return float(done.out.removeprefix("mean log-density: ").split()[0])


@pytest.fixture
def boxed(tmp_path: Path) -> Path:
    """A density on a box that does not hold all the points."""
    path = tmp_path / "boxed.ksos"
    library.SoSDensity(
        Gaussian(2.0), [[0.0, 0.0]], [[1.0]], Box([-1.0, -1.0], [np.inf, 1.0]), normalize=True
    ).save(path)
    return path


# --- score ---


def test_score_is_the_mean_log_density(
    ksos: Command, model: Path, plain: Path, points: np.ndarray
) -> None:
    done = ksos("score", model, plain)
    mean = library.load(model).logpdf(points).mean()
    assert done == (0, f"mean log-density: {mean:.6g} nats per row (40 rows)\n", "")


def test_score_per_row_loses_no_digit(
    ksos: Command, model: Path, plain: Path, points: np.ndarray
) -> None:
    done = ksos("score", model, plain, "--per-row")
    np.testing.assert_array_equal(
        [float(line) for line in done.out.splitlines()], library.load(model).logpdf(points)
    )


def test_score_reads_tables_as_fit_does(
    ksos: Command, model: Path, data: Path, points: np.ndarray, weights: np.ndarray
) -> None:
    log_density = library.load(model).logpdf(points)
    score = ("score", model, data, "--json")
    unweighted = ksos(*score, "--columns", "x,y")
    weighted = ksos(*score, "--columns", "x,y", "--weights", "mass")
    swapped = ksos(*score, "--columns", "2,1")
    assert mean_of(unweighted) == pytest.approx(log_density.mean(), rel=1e-13)
    assert mean_of(weighted) == pytest.approx(np.average(log_density, weights=weights), rel=1e-13)
    assert mean_of(swapped) == pytest.approx(
        library.load(model).logpdf(points[:, ::-1]).mean(), rel=1e-13
    )


def test_score_header_and_delimiter(ksos: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("0;0\n1;1\n")
    both, second = (
        mean_of(ksos("score", model, tmp_path / "d.csv", "--delimiter", ";", "--json", *words))
        for words in (["--no-header"], ["--header"])
    )
    log_density = library.load(model).logpdf([[0.0, 0.0], [1.0, 1.0]])
    assert (both, second) == (pytest.approx(log_density.mean()), pytest.approx(log_density[1]))
    detected = ksos("score", model, tmp_path / "d.csv", "--json")
    assert mean_of(detected) == both and "cells are separated by ';'" in detected.err
    assert ksos("score", model, tmp_path / "d.csv", "--delimiter", ",").code == 1


def test_score_json(ksos: Command, model: Path, plain: Path, points: np.ndarray) -> None:
    log_density = library.load(model).logpdf(points)
    mean_only = json.loads(ksos("score", model, plain, "--json").out)
    assert mean_only == {
        "mean_log_density": pytest.approx(log_density.mean()),
        "n_samples": 40,
        "n_zero_density": 0,
    }
    rows = json.loads(ksos("score", model, plain, "--json", "--per-row").out)
    assert rows == {**mean_only, "log_density": log_density.tolist()}


def test_score_where_the_density_is_zero(ksos: Command, boxed: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y,w\n0,0,1\n-5,0,0\n")
    done = ksos("score", boxed, tmp_path / "d.csv", "--columns", "x,y")
    assert done.code == 0 and "-inf nats" in done.out
    assert done.err == "ksos score: warning: 1 of 2 rows have density 0 (logarithm -inf)\n"
    shown = json.loads(
        ksos("score", boxed, tmp_path / "d.csv", "--columns", "x,y", "--json", "--per-row").out
    )
    assert shown["mean_log_density"] is None and shown["n_zero_density"] == 1
    assert shown["log_density"][1] is None and shown["log_density"][0] < 0
    weighted = ksos("score", boxed, tmp_path / "d.csv", "--weights", "w", "--json")
    assert json.loads(weighted.out)["mean_log_density"] == pytest.approx(shown["log_density"][0])


def test_score_of_another_width(ksos: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("1,2,3\n")
    done = ksos("score", model, tmp_path / "d.csv")
    assert done.code == 1 and done.out == ""
    (line,) = done.err.splitlines()
    assert line.startswith(
        f"ksos score: error: {tmp_path / 'd.csv'} gives 3 columns, but the model in {model} has 2"
        " features"
    )
    assert line.endswith("or choose them with --columns")


def test_score_of_a_bad_table_is_one_line(ksos: Command, model: Path, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,y\n1,2\n3,abc\n")
    done = ksos("score", model, tmp_path / "d.csv")
    assert done.code == 1
    remedy = "correct the cell, or drop the column with --exclude y"
    assert (
        done.err
        == f"ksos score: error: {tmp_path / 'd.csv'}, row 3, column 2 ('y'): 'abc' is not a number;"
        f" {remedy}\n"
    )


def test_score_from_standard_input(
    ksos: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"0.5,0.5\n")))
    assert mean_of(ksos("score", model, "-", "--json")) == pytest.approx(
        float(library.load(model).logpdf([[0.5, 0.5]])[0])
    )


# --- sample ---


def test_samples_come_back_bit_for_bit(ksos: Command, model: Path, tmp_path: Path) -> None:
    expected = library.load(model).rvs(25, rng=5)
    for output in ("s.csv", "s.txt", "s.npy"):
        done = ksos("sample", model, "-n", 25, "--seed", 5, "-o", tmp_path / output)
        assert done == (0, f"written: {tmp_path / output} (25 samples)\n", "")
        np.testing.assert_array_equal(read_table(str(tmp_path / output)).points, expected)
    np.save(tmp_path / "numpy.npy", expected)
    assert (tmp_path / "s.npy").read_bytes() == (tmp_path / "numpy.npy").read_bytes()
    assert read_table(str(tmp_path / "s.csv")).names == ("x1", "x2")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "numpy.npy",
        "s.csv",
        "s.npy",
        "s.txt",
    ]
    assert (
        ksos("sample", model, "--n-samples", 25, "--seed", 5).out
        == (tmp_path / "s.csv").read_text()
    )


def test_the_seed_decides_the_samples(ksos: Command, model: Path) -> None:
    first, again, other = (ksos("sample", model, "-n", 4, "--seed", seed).out for seed in (1, 1, 2))
    assert first == again != other
    assert ksos("sample", model, "-n", 4).out != ksos("sample", model, "-n", 4).out


def test_a_thousand_samples_unless_told_otherwise(ksos: Command, model: Path) -> None:
    assert len(ksos("sample", model).out.splitlines()) == 1001


def test_sample_json(ksos: Command, model: Path, tmp_path: Path) -> None:
    done = json.loads(ksos("sample", model, "-n", 3, "--seed", 5, "--json").out)
    samples = library.load(model).rvs(3, rng=5).tolist()
    assert done == {
        "n_samples": 3,
        "n_features": 2,
        "features": [1, 2],
        "given": {},
        "seed": 5,
        "output": None,
        "samples": samples,
    }
    saved = json.loads(ksos("sample", model, "-n", 3, "--json", "-o", tmp_path / "s.npy").out)
    assert saved == {
        "n_samples": 3,
        "n_features": 2,
        "features": [1, 2],
        "given": {},
        "seed": None,
        "output": str(tmp_path / "s.npy"),
    }


@pytest.mark.parametrize("kind", ["csv", "npy"])
def test_a_file_of_samples_is_replaced_whole(
    ksos: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    target, link = tmp_path / f"s.{kind}", tmp_path / f"link.{kind}"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)

    def full(_: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        done = ksos("sample", model, "-n", 3, "-o", link)
    assert (done.code, done.err) == (1, f"ksos sample: error: {link}: No space left on device\n")
    assert target.read_text() == "old"
    assert ksos("sample", model, "-n", 3, "-o", link).code == 0
    assert link.is_symlink() and read_table(str(target)).points.shape == (3, 2)
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"link.{kind}", f"s.{kind}"]


def test_a_new_file_of_samples_has_the_permissions_of_the_umask(
    ksos: Command, model: Path, tmp_path: Path
) -> None:
    previous = os.umask(0o027)
    try:
        assert ksos("sample", model, "-n", 3, "-o", tmp_path / "s.csv").code == 0
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "s.csv").stat().st_mode) == 0o640


@pytest.mark.parametrize("n", [0, -5])
def test_too_few_samples(ksos: Command, model: Path, n: int) -> None:
    done = ksos("sample", model, "-n", n)
    assert done.code == 1 and f"--n-samples must be at least 1; got {n}" in done.err


def test_where_samples_cannot_go(ksos: Command, model: Path, tmp_path: Path) -> None:
    assert "is a folder" in ksos("sample", model, "-o", tmp_path).err
    assert "there is no folder" in ksos("sample", model, "-o", tmp_path / "none" / "s.csv").err
    assert "'' is not the name of a file" in ksos("sample", model, "-o", "").err
    assert "not a regular file" in ksos("sample", model, "-o", "/dev/null").err
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_protected_file_is_left_alone(
    ksos: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, access = tmp_path / "s.csv", os.access
    target.write_text("old")
    # whoever runs the tests may be allowed everything
    monkeypatch.setattr(
        os, "access", lambda path, mode: os.fspath(path) != str(target) and access(path, mode)
    )
    done = ksos("sample", model, "-o", target)
    assert (
        done.code == 1
        and done.err
        == f"ksos sample: error: cannot write {target}: the file is protected; change its"
        " permissions or name another\n"
    )
    assert target.read_text() == "old"


# --- inspect ---


def test_inspect(ksos: Command, boxed: Path) -> None:
    done = ksos("inspect", boxed)
    assert (done.code, done.err) == (0, "")
    shown = {line[:18].strip(): line[18:] for line in done.out.splitlines()}
    assert shown["columns"] == "2"
    assert shown["support points"] == "1"
    assert shown["rank"] == "1"
    assert shown["kernel"] == "Gaussian(sigma=2.0)"
    assert shown["measure"] == "Box(low=[-1.0, -1.0], high=[inf, 1.0])"
    assert float(shown["mass"].split()[0]) == pytest.approx(1.0)
    assert shown["format version"] == f"1 (written by ksos {library.__version__})"
    assert shown["file size"] == f"{boxed.stat().st_size} bytes"


def test_inspect_json(ksos: Command, boxed: Path) -> None:
    shown = json.loads(ksos("inspect", boxed, "--json").out)
    assert shown == {
        "n_features": 2,
        "feature_names": None,
        "n_components": 0,
        "n_support": 1,
        "rank": 1,
        "kernel": {"name": "gaussian", "sigma": 2.0},
        "measure": {"name": "box", "low": [-1.0, -1.0], "high": [None, 1.0]},
        "mass": pytest.approx(1.0),
        "format_version": 1,
        "library_version": library.__version__,
        "file_size": boxed.stat().st_size,
    }


def test_inspect_does_not_print_the_nodes_of_a_measure(ksos: Command, tmp_path: Path) -> None:
    nodes = Discrete.quadrature(Box([0.0], [1.0]), 500)
    library.SoSDensity(Gaussian(1.0), [[0.5]], [[1.0]], nodes, normalize=True).save(
        tmp_path / "m.ksos"
    )
    done = ksos("inspect", tmp_path / "m.ksos", "--json")
    assert json.loads(done.out)["measure"] == {
        "name": "discrete",
        "points": {"shape": [500, 1]},
        "weights": {"shape": [500]},
    }
    assert len(ksos("inspect", tmp_path / "m.ksos").out) < 500


@pytest.mark.parametrize("words", [["inspect"], ["score"], ["sample"]])
def test_a_file_that_is_no_model(
    ksos: Command, model: Path, plain: Path, tmp_path: Path, words: list[str]
) -> None:
    damaged = bytearray(model.read_bytes())
    damaged[-1] ^= 1
    for content in (b"", b"1,2\n", bytes(damaged), model.read_bytes()[:-1]):
        (tmp_path / "bad.ksos").write_bytes(content)
        done = ksos(*words, tmp_path / "bad.ksos", *([plain] if words == ["score"] else []))
        assert (done.code, done.out) == (1, "")
        (line,) = done.err.splitlines()
        assert line.startswith(f"ksos {words[0]}: error: {tmp_path / 'bad.ksos'}")
    done = ksos(*words, tmp_path / "none.ksos", *([plain] if words == ["score"] else []))
    assert (
        done.err == f"ksos {words[0]}: error: {tmp_path / 'none.ksos'}: No such file or directory\n"
    )
