"""``query``, and the parts of a density that ``sample`` and ``plot`` look at too: the numbers are
the library's, features count from 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library
from ksos.data import read_table
from ksos.kernels import Gaussian, Matern
from ksos.measures import Box, Discrete

Command = Callable[..., Any]


@pytest.fixture(scope="module")
def p() -> library.SoSDensity:
    rng = np.random.default_rng(4)
    return library.SoSDensity(
        Gaussian([1.0, 0.7, 1.3]), rng.normal(size=(7, 3)), rng.normal(size=(7, 2)), normalize=True
    )


@pytest.fixture(scope="module")
def three(p: library.SoSDensity, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A density of three features."""
    path = tmp_path_factory.mktemp("query") / "three.ksos"
    p.save(path)
    return path


def test_help_says_how_features_are_counted(ksos: Command) -> None:
    for command in ("query", "sample", "plot"):
        assert "names, or 2 for the second column" in " ".join(ksos(command, "--help").out.split())


# --- probabilities ---


def probability(ksos: Command, *words: object) -> float:
    return float(json.loads(ksos("query", *words, "--json").out)["probability"])


def test_a_probability_has_a_label_and_three_digits(
    ksos: Command, three: Path, p: library.SoSDensity
) -> None:
    box = ("--low", "0,-inf,-1", "--high", "1,0.3,inf")
    expected = p.probability([0.0, -np.inf, -1.0], [1.0, 0.3, np.inf])
    line = f"P(0 ≤ x1 ≤ 1, x2 ≤ 0.3, x3 ≥ -1) = {expected:.3f}\n"
    assert ksos("query", three, *box) == (0, line, "")
    assert probability(ksos, three, *box) == expected
    given = ksos("query", three, "--low", "x1=0", "--given", "2=0.5,x3=-1:1").out
    assert given.startswith("P(x1 ≥ 0 | x2 = 0.5, x3 from -1 to 1) = 0.")


def test_bounds_of_one_number_or_none(ksos: Command, three: Path, p: library.SoSDensity) -> None:
    low, high = [-0.5] * 3, [0.5] * 3
    assert probability(ksos, three, "--low", "-0.5") == p.probability(low, [np.inf] * 3)
    assert probability(ksos, three, "--high", "0.5") == p.probability([-np.inf] * 3, high)


def test_probability_given_a_feature(ksos: Command, three: Path, p: library.SoSDensity) -> None:
    done = json.loads(
        ksos("query", three, "--low", "0,-inf", "--high", "1,0.3", "--given", "2=0.5", "--json").out
    )
    expected = p.conditional({1: 0.5}).probability([0.0, -np.inf], [1.0, 0.3])
    assert done == {
        "features": [1, 3],
        "given": {"2": 0.5},
        "low": [0.0, None],
        "high": [1.0, 0.3],
        "probability": expected,
        "output": None,
    }


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["--low", "1", "--high", "0"],
            "the box is empty: --low must be less than --high, but of x1 they are 1.0 and 0.0",
        ),
        (["--low", "0,0,2", "--high", "1,1,2"], "of x3 they are 2.0 and 2.0"),
        (
            ["--low", "0,0,nan"],
            "the box is empty: --low must be less than --high, but of x3 they are nan and inf",
        ),
        (
            ["--low", "0,0"],
            "--low has 2 numbers, but the columns are x1, x2, x3; give one number for each",
        ),
        (
            ["--high", "0,0,0", "--given", "x2=0.1"],
            "--high has 3 numbers, but the columns are x1, x3",
        ),
        (["--low", "2,3", "--high", "3,2", "--given", "2=0"], "of x3 they are 3.0 and 2.0"),
    ],
)
def test_boxes_that_are_none(ksos: Command, three: Path, words: list[str], what: str) -> None:
    done = ksos("query", three, *words)
    assert (done.code, done.out) == (1, "") and done.err.count("\n") == 1
    assert done.err.startswith("ksos query: error: ") and what in done.err


def test_a_single_node_is_a_box(ksos: Command, tmp_path: Path) -> None:
    nodes = Discrete([[0.0], [1.0], [2.0]])
    q = library.SoSDensity(Gaussian(1.0), [[0.5]], [[1.0]], nodes, normalize=True)
    q.save(tmp_path / "q.ksos")
    found = probability(ksos, tmp_path / "q.ksos", "--low", "1", "--high", "1")
    assert found == pytest.approx(float(q.pdf([[1.0]])[0]) / 3.0)


# --- means, covariances, quantiles, modes ---


def table(out: str) -> dict[str, list[str]]:
    """The rows of a printed table by their first cell, and the header under "feature"."""
    rows = [[cell for cell in line.split("  ") if cell] for line in out.splitlines()]
    return {row[0]: [cell.strip() for cell in row[1:]] for row in rows}


def test_a_summary_unless_asked(ksos: Command, three: Path, p: library.SoSDensity) -> None:
    done = ksos("query", three)
    shown = table(done.out)
    assert shown["column"] == [
        "mean",
        "standard deviation",
        "quantile 0.05",
        "quantile 0.5",
        "quantile 0.95",
    ]
    for k in range(3):
        quantiles = p.marginal([k]).ppf([0.05, 0.5, 0.95])
        assert shown[f"x{k + 1}"] == [
            f"{value:.6g}" for value in (p.mean()[k], p.cov()[k, k] ** 0.5, *quantiles)
        ]
    as_json = json.loads(ksos("query", three, "--json").out)
    assert (
        as_json["mean"] == p.mean().tolist()
        and as_json["standard_deviation"] == (p.cov().diagonal() ** 0.5).tolist()
    )
    assert [quantile["level"] for quantile in as_json["quantiles"]] == [0.05, 0.5, 0.95]


def test_mean_covariance_quantiles_and_mode(
    ksos: Command, three: Path, p: library.SoSDensity
) -> None:
    words = [
        "--mean",
        "--cov",
        "--quantile",
        "0.25,1",
        "--mode",
        "--given",
        "2=0.4",
        "--features",
        "3,1",
        "--low",
        "0",
    ]
    q = p.conditional({1: 0.4}).marginal([1, 0])
    done = json.loads(ksos("query", three, *words, "--json").out)
    assert done["features"] == [3, 1] and done["given"] == {"2": 0.4}
    assert (
        done["mean"] == q.mean().tolist()
        and done["covariance"] == q.cov().tolist()
        and done["mode"] == q.mode().tolist()
    )
    first, last = done["quantiles"]
    assert first == {"level": 0.25, "values": [q.marginal([k]).ppf(0.25) for k in range(2)]}
    assert last == {"level": 1.0, "values": [None, None]}
    lines = ksos("query", three, *words).out.splitlines()
    assert lines[0] == f"P(x3 ≥ 0, x1 ≥ 0 | x2 = 0.4) = {done['probability']:.3g}"
    assert lines[1] == "given x2 = 0.4"
    shown = table("\n".join(lines[2:]))
    assert shown["column"] == [
        "mean",
        "mode",
        "quantile 0.25",
        "quantile 1",
        "cov with x3",
        "cov with x1",
    ]
    assert shown["x3"] == [
        *(f"{value:.6g}" for value in (q.mean()[0], q.mode()[0], first["values"][0], np.inf)),
        *(f"{row[0]:.6g}" for row in done["covariance"]),
    ]


def test_one_feature(ksos: Command, three: Path, p: library.SoSDensity) -> None:
    done = ksos("query", three, "--features", "x2", "--quantile", "0.5")
    assert table(done.out)["x2"] == [f"{p.marginal([1]).ppf(0.5):.6g}"]


@pytest.mark.parametrize("levels", ["1.5", "-0.1,0.5", "nan", "half"])
def test_levels_that_are_none(ksos: Command, three: Path, levels: str) -> None:
    done = ksos("query", three, "--quantile", levels)
    assert done.code == 2 and done.err.count("\n") == 1 and "--quantile" in done.err


# --- which part ---


def test_a_part_is_saved_as_a_model_of_its_own(
    ksos: Command, three: Path, p: library.SoSDensity, tmp_path: Path
) -> None:
    target = tmp_path / "part.ksos"
    done = ksos("query", three, "--given", "1=0.2", "--features", "x3", "-o", target)
    assert done == (0, f"written: {target}\n", "")
    x = np.linspace(-2.0, 2.0, 9)[:, None]
    np.testing.assert_array_equal(
        library.load(target).pdf(x), p.conditional({0: 0.2}).marginal([1]).pdf(x)
    )
    shown = json.loads(
        ksos("query", three, "--features", "2", "-o", target, "--json", "--mean").out
    )
    assert shown["output"] == str(target) and shown["mean"] == library.load(target).mean().tolist()


def test_where_a_part_cannot_go(ksos: Command, three: Path, tmp_path: Path) -> None:
    assert "is a folder" in ksos("query", three, "-o", tmp_path).err
    assert "there is no folder" in ksos("query", three, "-o", tmp_path / "none" / "m.ksos").err


def test_conditions_may_be_repeated(ksos: Command, three: Path) -> None:
    once = ksos("query", three, "--given", "1=0.1,3=-0.2", "--mean")
    assert once.code == 0 and once.out == ksos(
        "query", three, "--given", "x3=-0.2", "--given", "x1=0.1", "--mean"
    ).out.replace("given x3 = -0.2, x1 = 0.1", "given x1 = 0.1, x3 = -0.2")


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (
            ["--given", "4=1"],
            1,
            "--given: the model has columns 1 to 3; there is no column 4",
        ),
        (["--given", "0=1"], 1, "there is no column 0"),
        (["--given", "length=1"], 1, "the model has no column 'length'"),
        (
            ["--features", "1,y"],
            1,
            "--features: the model has no column 'y'; its columns are 'x1', 'x2', 'x3'",
        ),
        (["--features", "1,x1"], 1, "1,x1 names column x1 twice"),
        (["--given", "1=0,1=2"], 1, "1,1 names column 1 twice"),
        (["--given", "1=0,2=0,3=0"], 1, "--given names all 3 columns of the model"),
        (
            ["--given", "1=0", "--features", "1,2"],
            1,
            "x1 is both given a value by --given and asked for by --features",
        ),
        (["--given", "1"], 2, "separated by commas, was expected; got '1'"),
        *((["--given", text], 2, "NAME=VALUE") for text in ("", "a=", "1=2,", "1==2", "1=nan")),
        (["--given", "=1"], 2, "NAME=VALUE"),
        (
            ["--given", "1=a"],
            2,
            "a finite value, or an interval NAME=LOW:HIGH with LOW < HIGH, or several separated by",
        ),
        (["--given", "1=3:2"], 2, "was expected; got '1=3:2'"),
        (["--given", "1=inf"], 2, "was expected; got '1=inf'"),
        (["--features", ""], 2, "names or numbers of columns, separated by commas, was expected"),
    ],
)
@pytest.mark.parametrize("command", ["query", "sample"])
def test_parts_that_are_none(
    ksos: Command, three: Path, words: list[str], code: int, what: str, command: str
) -> None:
    done = ksos(command, three, *words)
    assert (done.code, done.out) == (code, "") and done.err.count("\n") == 1
    assert done.err.startswith(f"ksos {command}: error: ") and what in done.err


def test_a_condition_where_the_density_vanishes(ksos: Command, tmp_path: Path) -> None:
    box = Box([0.0, 0.0], [1.0, 1.0])
    library.SoSDensity(Gaussian(1.0), [[0.5, 0.5]], [[1.0]], box, normalize=True).save(
        tmp_path / "box.ksos"
    )
    done = ksos("query", tmp_path / "box.ksos", "--given", "2=3")
    assert (
        done.code == 1
        and done.err
        == "ksos query: error: --given x2 = 3: the density vanishes there, so there is no"
        " conditional density\n"
    )
    nodes = Discrete([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    library.SoSDensity(Gaussian(1.0), [[0.5, 0.5]], [[1.0]], nodes, normalize=True).save(
        tmp_path / "nodes.ksos"
    )
    assert ksos("query", tmp_path / "nodes.ksos", "--given", "2=0.7").err.endswith(
        "; on a discrete measure, give values of its nodes\n"
    )


def test_a_kernel_without_marginals_is_refused_in_one_line(ksos: Command, tmp_path: Path) -> None:
    nodes = Discrete.quadrature(Box([0.0, 0.0], [1.0, 1.0]), 6)
    q = library.SoSDensity(Matern(1.5, 1.0), [[0.5, 0.5]], [[1.0]], nodes, normalize=True)
    q.save(tmp_path / "m.ksos")
    done = ksos("query", tmp_path / "m.ksos", "--mean")
    assert done.code == 0 and table(done.out)["x1"] == [f"{q.mean()[0]:.6g}"]
    assert ksos("query", tmp_path / "m.ksos", "--features", "1", "--mean").err.count("\n") <= 1


# --- the same parts elsewhere ---


def test_samples_of_a_part(
    ksos: Command, three: Path, p: library.SoSDensity, tmp_path: Path
) -> None:
    part = p.conditional({1: 0.3}).marginal([1, 0])
    done = ksos(
        "sample",
        three,
        "-n",
        5,
        "--seed",
        2,
        "--given",
        "2=0.3",
        "--features",
        "3,1",
        "-o",
        tmp_path / "s.csv",
    )
    assert done == (0, f"written: {tmp_path / 's.csv'} (5 samples)\n", "")
    read = read_table(str(tmp_path / "s.csv"))
    assert read.names == ("x3", "x1")
    np.testing.assert_array_equal(read.points, part.rvs(5, rng=2))
    assert (
        json.loads(ksos("sample", three, "-n", 2, "--given", "2=0.3", "--json").out)["n_features"]
        == 2
    )


@pytest.mark.parametrize("command", ["query", "plot"])
def test_a_file_that_is_no_model(ksos: Command, three: Path, tmp_path: Path, command: str) -> None:
    bad = tmp_path / "bad.ksos"
    bad.write_bytes(three.read_bytes()[:-1])
    words = ["-o", tmp_path / "p.png"] if command == "plot" else []
    done = ksos(command, bad, *words)
    assert (
        done.code == 1
        and done.err.startswith(f"ksos {command}: error: {bad}")
        and done.err.count("\n") == 1
    )
    assert not (tmp_path / "p.png").exists()


# --- names ---


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, p: library.SoSDensity) -> Path:
    path = tmp_path_factory.mktemp("named") / "named.ksos"
    p.with_feature_names(["hp", "speed, m/s", "mpg"]).save(path)
    return path


def test_features_go_by_their_names(ksos: Command, named: Path, three: Path) -> None:
    by_name = ksos(
        "query",
        named,
        "--given",
        "hp=0.2",
        "--features",
        'mpg,"speed, m/s"',
        "--low",
        "mpg=0",
        "--json",
    )
    by_number = ksos(
        "query", three, "--given", "1=0.2", "--features", "3,2", "--low", "0,-inf", "--json"
    )
    found, expected = json.loads(by_name.out), json.loads(by_number.out)
    assert (
        found["features"] == ["mpg", "speed, m/s"]
        and found["given"] == {"hp": 0.2}
        and found["low"] == expected["low"]
    )
    assert found["probability"] == expected["probability"]
    assert ksos("query", named, "--given", "speed, m/s=0.1", "--mean").out.startswith(
        "given speed, m/s = 0.1\n"
    )
    refused = ksos("query", named, "--given", "hq=1")
    assert (
        refused.err
        == "ksos query: error: --given: the model has no column 'hq'; its columns are 'hp', 'speed,"
        " m/s', 'mpg'\n"
    )


def test_samples_have_the_names_in_their_header(ksos: Command, named: Path, tmp_path: Path) -> None:
    assert ksos("sample", named, "-n", 3, "-o", tmp_path / "s.csv").code == 0
    assert read_table(str(tmp_path / "s.csv")).names == ("hp", "speed, m/s", "mpg")
    part = ksos("query", named, "--features", "mpg,hp", "-o", tmp_path / "part.ksos")
    assert part.code == 0 and library.load(tmp_path / "part.ksos").feature_names == ("mpg", "hp")


def test_columns_are_put_in_order_by_their_names(
    ksos: Command, named: Path, p: library.SoSDensity, tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(4, 3))

    def score(header: str, rows: np.ndarray, *words: str) -> Any:
        path = tmp_path / "d.csv"
        path.write_text(
            "\n".join(
                [
                    *([header] if header else []),
                    *(",".join(map(repr, row)) for row in rows.tolist()),
                ]
            )
            + "\n"
        )
        return ksos("score", named, path, "--json", *words)

    def mean_of(done: Any) -> float:
        return float(json.loads(done.out)["mean_log_density"])

    expected = pytest.approx(p.logpdf(X).mean(), rel=1e-12)
    header = 'mpg,hp,"speed, m/s"'
    swapped = score(header, X[:, [2, 0, 1]])
    assert mean_of(swapped) == expected and swapped.err == ""
    assert mean_of(score(header, X[:, [2, 0, 1]], "--columns", header)) == expected
    more = score(f"year,{header}", np.column_stack([np.full(4, 1970.0), X[:, [2, 0, 1]]]))
    assert (
        mean_of(more) == expected
        and "dropped columns that are not in the model: 'year'" in more.err
    )
    bare = score("", X)
    assert (
        mean_of(bare) == expected
        and "has no header: its columns are taken for hp, speed, m/s, mpg, in this order"
        in bare.err
    )
    other = score("hp,mpg,weight", X)
    assert (
        other.code == 1
        and "has no column 'speed, m/s', as the model has; its columns are 'hp', 'mpg', 'weight'"
        in other.err
    )
    wrong = score(f"{header},w", np.column_stack([X, X[:, 0]]), "--columns", "mpg,hp,w")
    assert wrong.code == 1 and "rename columns" in wrong.err and wrong.out == ""
