"""``worst-case``: the library's numbers, as lines and as JSON; exit codes; formulas and options
that are refused in one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import BoxIndicator, coordinate

Command = Callable[..., Any]

X = np.random.default_rng(0).normal(scale=0.5, size=(30, 1))
BOX = ["--low=-2", "--high", "2", "--embedding-bandwidth", "1", "--n-support", "16"]


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("line") / "line.csv"
    path.write_text("\n".join(["height", *map(repr, X[:, 0].tolist())]) + "\n")
    return path


@pytest.fixture(scope="module")
def expected() -> library.WorstCase:
    return library.worst_case(
        coordinate(0) ** 2,
        library.Ball(X, 0.2, kernel=Gaussian(1.0), domain=Box([-2.0], [2.0])),
        n_support=16,
    )


def test_json(ksos: Command, line: Path, expected: library.WorstCase, tmp_path: Path) -> None:
    done = ksos(
        "worst-case",
        line,
        "--loss",
        "x1**2",
        "--radius",
        "0.2",
        "--json",
        "-o",
        tmp_path / "worst.ksos",
        *BOX,
    )
    assert (done.code, done.err) == (0, "") and done.out.count("\n") == 1
    found = json.loads(done.out)
    assert found["value"] == pytest.approx(expected.value, rel=1e-9)
    assert found["status"] == "solved" and found["mmd"] <= 0.2 and found["gap"] <= 1e-6
    assert (
        found["upper_bound"] == pytest.approx(expected.upper_bound, rel=1e-6)
        and found["upper_bound_kind"] == "rigorous"
    )
    assert (found["loss"], found["columns"], found["n_samples"], found["n_features"]) == (
        "x1**2",
        ["height"],
        30,
        1,
    )
    assert found["embedding_kernel"] == {"name": "gaussian", "sigma": 1.0}
    density = library.load(tmp_path / "worst.ksos")
    assert found["output"] == str(tmp_path / "worst.ksos")
    assert density.feature_names == ("height",)
    density = density.with_feature_names(None)
    assert library.mmd(density, X, library.kernels.Gaussian(1.0)) == pytest.approx(
        found["mmd"], abs=1e-9
    )
    assert density.expectation(coordinate(0) ** 2) == pytest.approx(found["value"], rel=1e-6)


def test_lines(ksos: Command, line: Path, expected: library.WorstCase) -> None:
    done = ksos("worst-case", line, "--loss", "height**2", "--radius", "0.2", *BOX)
    assert (done.code, done.err) == (0, "")
    worst, rows, bound, certified = done.out.splitlines()
    assert (
        worst == f"worst expected loss: {expected.value:.6g} within MMD 0.2 of the rows, at MMD 0.2"
    )
    assert rows == f"in the rows themselves: {np.mean(X**2):.6g}"
    assert bound == f"over all distributions: no distribution exceeds {expected.upper_bound:.6g}"
    assert re.fullmatch(
        r"certified: within \d\.\de-\d+ of the worst density on these support points", certified
    )


def test_a_penalty_instead(ksos: Command, line: Path) -> None:
    done = ksos(
        "worst-case",
        line,
        "--loss",
        "x1**2",
        "--penalty",
        "4",
        "--rtol",
        "1e-7",
        "--time-limit",
        "60",
        *BOX,
    )
    assert done.code == 0 and "at penalty 4 (objective " in done.out


def test_bootstrap_is_seeded(ksos: Command, line: Path) -> None:
    words = ["worst-case", line, "--loss", "x1", "--radius", "bootstrap", "--json", *BOX]
    first, again, wide = (
        json.loads(ksos(*words, *more).out)
        for more in (["--seed", 1], ["--seed", 1], ["--seed", 1, "--confidence", 0.999])
    )
    assert first["radius"] == again["radius"] < wide["radius"]


@pytest.mark.parametrize(
    ("header", "words", "column"),
    [
        ("x1,x2,x3", ["--columns", "x2,x3", "--loss", "x2"], 1),
        ("x2,x1,x3", ["--columns", "x2,x1", "--loss", "x2"], 0),
    ],
)
def test_the_loss_is_that_of_the_named_column(
    ksos: Command, tmp_path: Path, header: str, words: list[str], column: int
) -> None:
    rows = np.random.default_rng(2).normal(scale=0.3, size=(8, 3)) + np.array([0.0, 0.5, -0.5])
    data = tmp_path / "data.csv"
    data.write_text(
        "\n".join([header, *(",".join(map(repr, row)) for row in rows.tolist())]) + "\n"
    )
    done = ksos(
        "worst-case",
        data,
        *words,
        "--radius",
        "0.3",
        "--json",
        "--low=-2",
        "--high",
        "2",
        "--n-support",
        "6",
        "--rtol",
        "1e-3",
    )
    assert json.loads(done.out)["empirical_value"] == pytest.approx(
        float(np.mean(rows[:, column])), abs=1e-12
    )
    refused = ksos("worst-case", data, "--columns", words[1], "--loss", "x4", "--radius", "0.3")
    assert refused.code == 1 and f"there are {words[1].replace(',', ', ')}, pi, e" in refused.err


def test_code_is_estimated_and_an_unbounded_loss_warns(ksos: Command, line: Path) -> None:
    estimated = ksos("worst-case", line, "--loss", "abs(x1) > 1", "--radius", "0.2", *BOX)
    assert (
        estimated.code == 0
        and estimated.err == ""
        and "(an estimate)\ncertified" in estimated.out
        and "\nintegrals of the loss: known to " in estimated.out
    )
    done = ksos(
        "worst-case",
        line,
        "--loss",
        "x1**2",
        "--radius",
        "0.2",
        "--bandwidth",
        "1",
        "--n-support",
        "12",
        "--json",
    )
    assert done.code == 0 and json.loads(done.out)["upper_bound"] is None
    assert (
        "warning: the loss has no bound that is known" in done.err
        and "support points in height from -" in done.err
    )
    assert "--low and --high" in done.err and "x0" not in done.err and "Box" not in done.err
    words = ksos(
        "worst-case",
        line,
        "--loss",
        "x1**2",
        "--radius",
        "0.2",
        "--bandwidth",
        "1",
        "--n-support",
        "12",
    )
    assert (
        "over all distributions: infinite, since the loss is unbounded; --low and --high bound the"
        " distributions" in words.out
    )


def test_weights_and_columns(
    ksos: Command, data: Path, points: np.ndarray, weights: np.ndarray
) -> None:
    words = [
        "--columns",
        "x",
        "--weights",
        "mass",
        "--low=-3",
        "--high",
        "3",
        "--bandwidth",
        "1",
        "--n-support",
        "12",
        "--json",
    ]
    done = ksos("worst-case", data, "--loss", "x", "--radius", "0", *words)
    assert json.loads(done.out)["value"] == pytest.approx(
        float(np.average(points[:, 0], weights=weights))
    )
    assert json.loads(done.out)["output"] is None


def test_radius_zero_writes_no_density(ksos: Command, line: Path, tmp_path: Path) -> None:
    done = ksos(
        "worst-case", line, "--loss", "x1", "--radius", "0", "-o", tmp_path / "w.ksos", *BOX
    )
    assert done.code == 0 and not (tmp_path / "w.ksos").exists()
    assert "radius 0 leaves the data themselves" in done.err and "is not written" in done.err


def test_an_empty_ball_is_not_converged(ksos: Command, line: Path, tmp_path: Path) -> None:
    done = ksos(
        "worst-case",
        line,
        "--loss",
        "x1",
        "--radius",
        "0.001",
        "--bandwidth",
        "2",
        "-o",
        tmp_path / "w.ksos",
        *BOX,
    )
    assert (
        done.code == 3
        and "infeasible: no density within radius 0.001; the least radius that holds a density"
        in done.out
    )
    assert "not converged: infeasible" in done.err and not (tmp_path / "w.ksos").exists()


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["--loss", "y1", "--radius", "0.2"],
            "there is no 'y1' (there are x1, height, pi, e), at character 1 of the formula 'y1'",
        ),
        (["--loss", "__import__('os').system('ls')", "--radius", "0.2"], "there is no function"),
        (
            ["--loss", "log(x1)", "--radius", "0.2"],
            "'log(x1)' must return finite numbers; got nan at x = [",
        ),
        (["--loss", "x1", "--radius", "-1"], "must be non-negative and finite; got -1.0"),
        (["--loss", "x1", "--penalty", "0"], "penalty must be positive and finite"),
        (
            ["--loss", "x1", "--radius", "bootstrap", "--confidence", "2"],
            "confidence must lie strictly between 0 and 1; got 2.0",
        ),
        (
            ["--loss", "x1", "--radius", "0.2", "-o", "/nowhere/w.ksos"],
            "there is no folder /nowhere",
        ),
    ],
)
def test_bad_input_is_one_line(ksos: Command, line: Path, words: list[str], what: str) -> None:
    done = ksos("worst-case", line, *words, *BOX)
    assert (done.code, done.out) == (1, "") and done.err.count("\n") == 1
    assert done.err.startswith("ksos worst-case: error: ") and what in done.err


def test_wrong_usage(ksos: Command, line: Path) -> None:
    both = ksos("worst-case", line, "--loss", "x1", "--radius", "1", "--penalty", "1")
    neither = ksos("worst-case", line, "--loss", "x1")
    assert both.code == neither.code == 2
    assert (
        "give either --radius or --penalty" in both.err
        and "give either --radius or --penalty" in neither.err
    )
    assert ksos("worst-case", line, "--radius", "1").code == 2


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six columns, of which a loss reads few."""
    path, rows = (
        tmp_path_factory.mktemp("wide") / "wide.csv",
        np.random.default_rng(3).normal(size=(40, 6)),
    )
    path.write_text(
        "\n".join(["a,b,c,d,e,f", *(",".join(map(repr, row)) for row in rows.tolist())]) + "\n"
    )
    return path


def test_the_ball_is_over_the_columns_that_the_loss_reads_unless_told_otherwise(
    ksos: Command, wide: Path
) -> None:
    words = ["worst-case", wide, "--loss", "b > 1", "--radius", "0.2", "--json", "--rtol", "1e-4"]
    read, alone, both = (
        json.loads(ksos(*words, *more).out)
        for more in ([], ["--columns", "b"], ["--columns", "b,e", "--n-support", "16"])
    )
    assert (read["columns"], alone["columns"], both["columns"]) == (["b"], ["b"], ["b", "e"])
    assert (
        read["value"] == alone["value"]
        and read["upper_bound_kind"] == "rigorous"
        and read["upper_bound"] <= 1.0
    )
    X = np.loadtxt(wide, delimiter=",", skiprows=1)[:, [1]]
    expected = library.worst_case(
        BoxIndicator([np.nextafter(1.0, 2.0)], [np.inf]), library.Ball(X, 0.2), rtol=0.0001
    )
    assert read["value"] == pytest.approx(expected.value, rel=1e-6)
    shown = ksos(*(word for word in words if word != "--json"))
    assert "\ncolumns: b, which the loss reads (--columns takes more)\n" in shown.out
    assert shown.err == "", "a comparison is bounded: there is no box to ask for"


def test_bounds_by_name(ksos: Command, wide: Path) -> None:
    words = [
        "worst-case",
        wide,
        "--loss",
        "c**2",
        "--radius",
        "0.2",
        "--rtol",
        "1e-4",
        "--n-support",
        "16",
        "--json",
    ]
    named, listed = (
        ksos(*words, *box)
        for box in (["--low", "c=-4", "--high", "c=5"], ["--low=-4", "--high", "5"])
    )
    assert json.loads(named.out)["value"] == json.loads(listed.out)["value"] and named.err == ""
    refused = ksos(*words, "--low", "a=-4")
    assert (
        refused.code == 1
        and "--low bounds a, which the loss does not read; list it in --columns to take it in"
        in refused.err
    )


def test_a_loss_that_is_bounded_above_has_a_bound(ksos: Command, line: Path) -> None:
    done = ksos(
        "worst-case",
        line,
        "--loss",
        "-abs(height)",
        "--radius",
        "0.2",
        "--rtol",
        "1e-3",
        "--n-support",
        "12",
        "--bandwidth",
        "1",
    )
    assert "warning" not in done.err and "infinite" not in done.out
    infinite = ksos(
        "worst-case",
        line,
        "--loss",
        "abs(x1)",
        "--radius",
        "0.2",
        "--rtol",
        "1e-3",
        "--n-support",
        "12",
        "--bandwidth",
        "1",
    )
    assert (
        "over all distributions: infinite" in infinite.out
        and "no distribution exceeds" not in infinite.out
    )
