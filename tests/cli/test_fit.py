"""``ksos fit``: every option reaches the estimator; every ending has its code and its line."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library
from ksos.ground import resources
from ksos.measures import Box

Command = Callable[..., Any]

MMD = ("--method", "mmd")
LOOSE = {"tol": 1e-3}  # enough to tell two models apart

# the words on the command line with --method mmd, and the same as a parameter of the estimator;
# each changes the model
OPTIONS: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--kernel": (["--kernel", "laplace"], {"kernel": "laplace"}),
    "--bandwidth": (["--bandwidth", "0.7"], {"bandwidth": 0.7}),
    "--bandwidth, per feature": (["--bandwidth", "0.7,1.3"], {"bandwidth": [0.7, 1.3]}),
    "--bandwidth, rule": (["--bandwidth", "scott"], {"bandwidth": "scott"}),
    "--embedding-bandwidth": (["--embedding-bandwidth", "0.5"], {"embedding_bandwidth": 0.5}),
    "--embedding-bandwidth, per feature": (
        ["--embedding-bandwidth", "0.5,2"],
        {"embedding_bandwidth": [0.5, 2.0]},
    ),
    "--regularization": (["--regularization", "0.05"], {"regularization": 0.05}),
    "--relative-regularization": (
        ["--relative-regularization", "0.05"],
        {"relative_regularization": 0.05},
    ),
    "--penalty": (["--penalty", "frobenius"], {"penalty": "frobenius"}),
    "--n-support": (["--n-support", "7"], {"n_support": 7}),
    "--support": (
        ["--support", "random", "--n-support", "7", "--seed", "3"],
        {"support": "random", "n_support": 7, "random_state": 3},
    ),
    "--seed": (
        ["--seed", "4", "--support", "random", "--n-support", "7"],
        {"support": "random", "n_support": 7, "random_state": 4},
    ),
    "--landmarks": (["--landmarks", "9", "--seed", "3"], {"landmarks": 9, "random_state": 3}),
    "--objective": (["--objective", "mmd"], {"objective": "mmd"}),
    "--solver": (["--solver", "projected_gradient"], {"solver": "projected_gradient"}),
    "--tol": (["--tol", "0.5"], {"tol": 0.5}),
    "--low": (["--low", "-3,-inf"], {"measure": Box([-3.0, -np.inf], [np.inf, np.inf])}),
    "--high": (
        ["--low", "-3,-4", "--high", "inf,5"],
        {"measure": Box([-3.0, -4.0], [np.inf, 5.0])},
    ),
    "--low, by name": (
        ["--low", "x2=-4", "--low", "x1=-3"],
        {"measure": Box([-3.0, -4.0], [np.inf, np.inf])},
    ),
    "--reference": (["--reference", "normal"], {"reference": "normal"}),
    "--high, one for all": (
        ["--low", "-3.5", "--high", "3.5"],
        {"measure": Box([-3.5, -3.5], [3.5, 3.5])},
    ),
}
# the same for the search, which compares few pairs here
SEARCHED: dict[str, tuple[list[str], dict[str, Any]]] = {
    "--kernel": (["--kernel", "laplace"], {"kernel": "laplace"}),
    "--objective": (["--objective", "squared_mmd"], {"objective": "squared_mmd"}),
    "--reference": (["--reference", "normal"], {"reference": "normal"}),
    "--reference, none": (["--reference", "none"], {"reference": None}),
    "--n-support": (["--n-support", "7"], {"n_support": 7}),
    "--low": (["--low", "-3,-inf"], {"measure": Box([-3.0, -np.inf], [np.inf, np.inf])}),
    "--criterion": (["--criterion", "l2"], {"criterion": "l2"}),
    "--folds": (["--folds", "2", "--n-jobs", "1"], {"cv": 2, "n_jobs": 1}),
    "--bandwidths": (["--bandwidths", "2,4"], {"bandwidths": [2.0, 4.0]}),
    "--bandwidths, one": (["--bandwidths", "2"], {"bandwidths": [2.0]}),
    "--relative-regularizations": (
        ["--relative-regularizations", "inf"],
        {"relative_regularizations": [np.inf]},
    ),
    "--seed": (["--seed", "4", "--folds", "2"], {"random_state": 4, "cv": 2}),
}
PAIRS = {"relative_regularizations": [0.1], "cv": 3}


def saved(
    path: Path,
    points: np.ndarray,
    weights: np.ndarray | None = None,
    names: Any = None,
    **parameters: Any,
) -> bytes:
    density = (
        library.KernelSoSDensity(**parameters).fit(points, sample_weight=weights).distribution_
    )
    density.with_feature_names(names).save(path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def default(points: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return saved(tmp_path_factory.mktemp("default") / "fit.ksos", points, **LOOSE)


@pytest.fixture(scope="module")
def default_search(points: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("default") / "search.ksos"
    library.KernelSoSDensityCV(**PAIRS).fit(points).distribution_.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_the_parameter_of_the_estimator(
    ksos: Command, plain: Path, points: np.ndarray, default: bytes, tmp_path: Path, name: str
) -> None:
    words, parameters = OPTIONS[name]
    tol = [] if "--tol" in words else ["--tol", LOOSE["tol"]]
    done = ksos("fit", plain, "-o", tmp_path / "cli.ksos", *MMD, *tol, *words)
    assert (done.code, done.err) == (0, "")
    fitted = (tmp_path / "cli.ksos").read_bytes()
    assert fitted == saved(tmp_path / "api.ksos", points, **{**LOOSE, **parameters})
    assert fitted != default


@pytest.mark.parametrize("name", SEARCHED)
def test_an_option_is_the_parameter_of_the_search(
    ksos: Command,
    plain: Path,
    points: np.ndarray,
    default_search: bytes,
    tmp_path: Path,
    name: str,
) -> None:
    words, parameters = SEARCHED[name]
    pairs = [] if name.startswith("--relative") else ["--relative-regularizations", "0.1"]
    folds = [] if "--folds" in words else ["--folds", "3"]
    done = ksos("fit", plain, "-o", tmp_path / "cli.ksos", *pairs, *folds, *words)
    assert (done.code, done.err) == (0, "")
    fitted = (tmp_path / "cli.ksos").read_bytes()
    library.KernelSoSDensityCV(**{**PAIRS, **parameters}).fit(points).distribution_.save(
        tmp_path / "api.ksos"
    )
    assert fitted == (tmp_path / "api.ksos").read_bytes() != default_search


def test_the_seed_decides(ksos: Command, plain: Path, tmp_path: Path) -> None:
    for output, seed in (("a", 3), ("b", 3), ("c", 4)):
        words = ["--support", "random", "--n-support", 7, "--tol", 1e-3, "--seed", seed]
        assert ksos("fit", plain, "-o", tmp_path / output, *MMD, *words).code == 0
    a, b, c = ((tmp_path / name).read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("words", "weighted"),
    [
        (["--columns", "x,y"], False),
        (["--columns", "1,2"], False),
        (["--columns", "x,y", "--header"], False),
        (["--columns", "x, y", "--weights", "mass"], True),
        (["--columns", "x,y", "--weights", "3"], True),
    ],
)
def test_columns_and_weights(
    ksos: Command,
    data: Path,
    points: np.ndarray,
    weights: np.ndarray,
    tmp_path: Path,
    words: list,
    weighted: bool,
) -> None:
    done = ksos("fit", data, "-o", tmp_path / "cli.ksos", *MMD, "--tol", LOOSE["tol"], *words)
    assert (done.code, done.err) == (0, "")
    plain_model = saved(tmp_path / "api.ksos", points, names=["x", "y"], **LOOSE)
    weighted_model = saved(tmp_path / "api.ksos", points, weights, ["x", "y"], **LOOSE)
    assert plain_model != weighted_model
    assert (tmp_path / "cli.ksos").read_bytes() == (weighted_model if weighted else plain_model)


def test_header_and_delimiter(ksos: Command, tmp_path: Path) -> None:
    path, output = tmp_path / "data.csv", tmp_path / "m.ksos"
    path.write_text("10;20\n1;2\n3;5\n")
    shown = {}
    for words in (["--header"], ["--no-header"], []):
        done = ksos("fit", path, "-o", output, *MMD, "--delimiter", ";", "--json", *words)
        assert done.code == 0
        shown[tuple(words)] = json.loads(done.out)["n_samples"]
    assert shown == {("--header",): 2, ("--no-header",): 3, (): 3}
    detected = ksos("fit", path, "-o", output, *MMD)
    assert (
        detected.code == 0
        and f"{path}: cells are separated by ';' (else pass --delimiter)" in detected.err
    )
    assert ksos("fit", path, "-o", output, "--delimiter", "|").code == 1


def test_what_it_prints(ksos: Command, plain: Path, tmp_path: Path) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--solver", "fista")
    density = library.load(tmp_path / "m.ksos")
    rows, columns, made, certified, written = done.out.splitlines()
    assert (rows, columns, written) == ("rows: 40", "columns: 2", f"written: {tmp_path / 'm.ksos'}")
    m = density.support_points.shape[0]
    assert made.startswith(
        f"density: a kernel sum of squares of rank {density.rank}, {m} support points, λ = "
    )
    assert re.fullmatch(r"certified: within \S+ of the optimum \(squared MMD\)", certified)
    assert done.err == ""
    detailed = ksos(
        "fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--solver", "fista", "--verbose"
    ).out.splitlines()
    assert detailed[4].startswith("solver: fista, solved in ") and detailed[5].startswith(
        "kernel: Gaussian("
    )


def test_json(ksos: Command, plain: Path, points: np.ndarray, tmp_path: Path) -> None:
    words = [
        "--bandwidth",
        "1.7,1.3",
        "--n-support",
        9,
        "--low",
        "-4",
        "--landmarks",
        11,
        "--solver",
        "fista",
    ]
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--json", *words)
    assert done.code == 0 and done.out.count("\n") == 1
    shown = json.loads(done.out)
    density = library.load(tmp_path / "m.ksos")
    assert shown["output"] == str(tmp_path / "m.ksos")
    assert (shown["n_samples"], shown["n_features"], shown["n_support"], shown["n_landmarks"]) == (
        40,
        2,
        9,
        11,
    )
    assert shown["rank"] == density.rank
    assert shown["kernel"] == {"name": "gaussian", "sigma": [1.7, 1.3]}
    assert shown["measure"] == {"name": "box", "low": [-4.0, -4.0], "high": [None, None]}
    assert shown["bandwidth"] == shown["embedding_bandwidth"] == [1.7, 1.3]
    assert shown["regularization"] == pytest.approx(1e-3 * np.pi / 2 * 1.7 * 1.3, rel=0.05)
    assert (shown["status"], shown["solver"]) == ("solved", "fista")
    assert 0 < shown["gap"] <= 1e-8
    assert shown["projected_mmd_bound"] == pytest.approx(shown["gap"] ** 0.5)
    assert shown["gap_relative"] == pytest.approx(shown["gap"] / shown["objective"])
    assert shown["n_iter"] > 0 and shown["time"] > 0


@pytest.mark.parametrize(
    ("words", "remedy"),
    [(["--max-iter", "3"], "raise max_iter"), (["--time-limit", "1e-9"], "raise time_limit")],
)
def test_not_converged(
    ksos: Command, plain: Path, tmp_path: Path, words: list[str], remedy: str
) -> None:
    done = ksos(
        "fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--json", "--solver", "fista", *words
    )
    assert done.code == 3
    shown = json.loads(done.out)
    assert shown["status"] == words[0].removeprefix("--").replace("-", "_")
    (line,) = done.err.splitlines()
    assert (
        line.startswith("ksos fit: not converged: ")
        and f"gap {shown['gap']:.2e}" in line
        and remedy in line
    )
    assert library.load(tmp_path / "m.ksos").terms.mass() == pytest.approx(1.0, abs=1e-7)


def test_verbose_writes_lines_even_into_a_pipe(ksos: Command, plain: Path, tmp_path: Path) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--verbose", "--json")
    lines = done.err.splitlines()
    assert len(lines) > 3 and all(line.startswith("ksos fit: [") for line in lines)
    assert any("iteration" in line and "gap" in line for line in lines)
    assert json.loads(done.out)["status"] == "solved"


def test_a_warning_of_the_library_is_one_line(ksos: Command, plain: Path, tmp_path: Path) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, "--bandwidth", "1e-4")
    assert done.code == 0
    (line,) = done.err.splitlines()
    assert line.startswith(
        "ksos fit: warning: the bandwidth 0.0001 is far smaller than the distances"
    )


def test_rows_outside_the_box_are_named_by_their_place_in_the_file(
    ksos: Command, plain: Path, points: np.ndarray, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, model, remedy = (
        "3,0.5\n3,0\n3,1.5\n4,0.5\n",
        tmp_path / "m.ksos",
        "widen --low and --high, or remove the rows",
    )
    (tmp_path / "bare.csv").write_text(text)
    (tmp_path / "named.csv").write_text(f"x,y\n{text}")

    def refusal(*words: object) -> str:
        done = ksos("fit", *words, "-o", model, *MMD)
        assert (done.code, done.out, done.err.count("\n"), model.exists()) == (1, "", 1, False)
        return done.err.removeprefix("ksos fit: error: ").removesuffix("\n")

    end = f"2 of 4 rows lie outside the box: {remedy}"
    assert (
        refusal(tmp_path / "bare.csv", "--low", "-inf,0", "--high", "3.5,1")
        == f"{tmp_path / 'bare.csv'}, row 3: column 2 is 1.5, outside [0.0, 1.0]; {end}"
    )
    assert (
        refusal(tmp_path / "named.csv", "--columns", "y", "--low", "0.5", "--high", "1")
        == f"{tmp_path / 'named.csv'}, row 3: 'y' is 0.0, outside [0.5, 1.0]; {end}"
    )
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert (
        refusal("-", "--high", "3.5,inf")
        == "<stdin>, row 4: column 1 is 4.0, outside [-inf, 3.5]; 1 of 4 rows lie outside the"
        f" box: {remedy}"
    )
    index = int(np.argmax(points[:, 0] > 0.5))
    assert (
        refusal(plain, "--high", "0.5,inf")
        == f"{plain}, row {index + 1}: column 1 is {points[index, 0]}, outside [-inf, 0.5]; "
        f"{np.sum(points[:, 0] > 0.5)} of 40 rows lie outside the box: {remedy}"
    )
    inside = ksos(
        "fit", tmp_path / "bare.csv", "-o", model, *MMD, "--low", "3,0", "--high", "4,1.5"
    )
    assert inside.code == 0, "the border belongs to the box"


def test_a_row_outside_the_box_without_weight_does_not_count(ksos: Command, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,w\n-5,0\n0.5,1\n0.7,1\n-6,2\n")
    words = ["fit", tmp_path / "d.csv", "-o", tmp_path / "m.ksos", *MMD, "--weights", "w", "--low"]
    done = ksos(*words, "0")
    assert done.code == 1 and "row 5: 'x' is -6.0, outside [0.0, inf]; 1 of 4 rows" in done.err
    (tmp_path / "d.csv").write_text("x,w\n-5,0\n0.5,1\n0.7,1\n")
    assert ksos(*words, "0").code == 0


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--bandwidth", "0"], "bandwidth must be positive"),
        (["--bandwidth", "nan"], "bandwidth must be positive"),
        (["--bandwidth", "-1"], "bandwidth must be positive and finite; got -1.0"),
        (["--bandwidth", "1e-200"], "where its square is representable"),
        (["--bandwidth", "1,2,3"], "3 bandwidths but the points have 2 features"),
        (["--embedding-bandwidth", "-1"], "embedding_bandwidth must be positive"),
        (["--regularization", "-1"], "must be non-negative"),
        (["--tol", "nan"], "tol must be positive"),
        (["--max-iter", "0"], "max_iter of Auto must be at least 1"),
        (["--time-limit", "0"], "time_limit must be positive"),
        (["--n-support", "0"], "n_support must be at least 1"),
        (["--landmarks", "-2"], "landmarks must be at least 1"),
        (
            ["--low", "1", "--high", "0"],
            "--low must be less than --high, but of x1 they are 1.0 and 0.0",
        ),
        (
            ["--low", "1,2", "--high", "3,4,5"],
            "--high has 3 numbers, but the columns are x1, x2",
        ),
        (["--low", "1,2,3"], "--low has 3 numbers, but the columns are"),
        (["--delimiter", ";"], "are for CSV"),
        (["--header"], "are for CSV"),
        (["--low", "x3=1"], "--low: the table has no column 'x3'; its columns are 'x1', 'x2'"),
        (["--columns", "3"], "there is no column 3"),
        (["--columns", "x"], "has no header"),
        (["--weights", "5"], "there is no column 5"),
    ],
)
def test_bad_values(
    ksos: Command, plain: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, *words)
    assert (done.code, done.out) == (1, "")
    (line,) = done.err.splitlines()
    assert line.startswith("ksos fit: error: ") and what in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--kernel", "rbf"], "invalid choice: 'rbf' (choose from 'gaussian'"),
        (["--solver", "simplex"], "invalid choice"),
        (["--support", "grid"], "invalid choice"),
        (["--penalty", "l1"], "invalid choice"),
        (["--objective", "kl"], "invalid choice"),
        (
            ["--bandwidth", "wide"],
            (
                "median, scott, silverman or a number, or several separated by commas, was"
                " expected; got 'wide'"
            ),
        ),
        (["--embedding-bandwidth", "median"], "a number, or several"),
        (["--regularization", "1,2"], "auto or a number was expected"),
        (["--low", "a,b"], "a number, or several"),
        (["--n-support", "2.5"], "a whole number was expected; got '2.5'"),
        (["--landmarks", "x"], "a whole number"),
        (["--max-iter", "many"], "a whole number"),
        (["--tol", "tight"], "invalid float value"),
        (["--seed", "-1"], "a whole number from 0 to 4294967295"),
        (["--seed", "4294967296"], "a whole number from 0 to 4294967295"),
        (["--delimiter", "ab"], "one character that no number contains"),
        (["--delimiter", "5"], "one character that no number contains"),
        (["--columns", "1,,2"], "a list of names or numbers of columns, separated by commas"),
        (["--columns", '"1'], "separated by commas, was expected"),
        (["--frobnicate"], "unrecognized arguments: --frobnicate"),
        (["--band", "1"], "unrecognized arguments"),
        (["more.csv"], "unrecognized arguments: more.csv"),
    ],
)
def test_wrong_usage(
    ksos: Command, plain: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD, *words)
    assert (done.code, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.startswith("ksos fit: error: ") and what in line
    assert list(tmp_path.iterdir()) == []


def test_the_output_is_required_and_checked_before_the_data_are_read(
    ksos: Command, plain: Path, tmp_path: Path
) -> None:
    assert "required: -o/--output" in ksos("fit", plain).err
    for output, what in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "m.ksos", f"there is no folder {tmp_path / 'none'}; create it first"),
        ("/dev/null", "is not a regular file"),
        ("", "'' is not the name of a file; name one to write"),
        ("m\0.ksos", "'m\\x00.ksos' is not the name of a file"),
    ):
        done = ksos("fit", "no-such-data.csv", "-o", output)
        assert done.code == 1 and what in done.err


def test_memory_is_refused_in_words(ksos: Command, plain: Path, tmp_path: Path) -> None:
    with resources(memory=1.0):
        done = ksos("fit", plain, "-o", tmp_path / "m.ksos", *MMD)
    assert done.code == 1
    (line,) = done.err.splitlines()
    assert "needs" in line and "available" in line


def test_negative_weights(ksos: Command, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,w\n1,1\n2,-1\n")
    done = ksos("fit", tmp_path / "d.csv", "-o", tmp_path / "m.ksos", "--weights", "w")
    assert done.code == 1 and "must not be negative" in done.err


# --- names, objectives, the search ---


def test_bounds_by_the_names_of_columns(ksos: Command, data: Path, tmp_path: Path) -> None:
    words = ["fit", data, "-o", tmp_path / "m.ksos", *MMD, "--columns", "x,y", "--tol", "1e-3"]
    done = ksos(*words, "--low", "y=-4", "--high", "x=5,y=6", "--json")
    assert json.loads(done.out)["measure"] == {
        "name": "box",
        "low": [None, -4.0],
        "high": [5.0, 6.0],
    }
    assert json.loads(done.out)["feature_names"] == ["x", "y"] and library.load(
        tmp_path / "m.ksos"
    ).feature_names == ("x", "y")
    for bound, code, what in (
        (["--low", "z=1"], 1, "--low: the table has no column 'z'; its columns are 'x', 'y'"),
        (["--low", "x=1,x=2"], 1, "--low: the table: x,x names column x twice"),
        (
            ["--low", "x=1", "--low", "3"],
            1,
            "every number needs the name of its column, as in --low x=0",
        ),
        (
            ["--low", "1", "--low", "3"],
            1,
            "if --low is given more than once, or has names, every number needs the name",
        ),
        (["--low", "x=a"], 2, "NAME=NUMBER, was expected; got 'x=a'"),
    ):
        refused = ksos(*words, *bound)
        assert refused.code == code and what in refused.err and refused.err.count("\n") == 1


def test_the_least_squares_objective(
    ksos: Command, data: Path, points: np.ndarray, weights: np.ndarray, tmp_path: Path
) -> None:
    words = [
        "--columns",
        "x",
        "--weights",
        "mass",
        "--objective",
        "l2",
        "--bandwidth",
        "1",
        "--tol",
        "1e-6",
    ]
    assert ksos("fit", data, "-o", tmp_path / "m.ksos", *MMD, *words).code == 0
    target = library.MeanEmbedding(
        points[:, :1], weights / weights.sum(), kernel=library.kernels.Gaussian(1.0)
    )
    objective = library.functionals.SquaredL2(target, relative=True)
    expected = library.KernelSoSDensity(objective=objective, bandwidth=1.0, tol=1e-6).fit(
        points[:, :1], sample_weight=weights
    )
    x = np.linspace(-2.0, 2.0, 9)[:, None]
    found = library.load(tmp_path / "m.ksos").with_feature_names(None)
    np.testing.assert_allclose(found.logpdf(x), expected.distribution_.logpdf(x), atol=1e-6)


def test_the_search_is_that_of_the_estimator(
    ksos: Command, data: Path, points: np.ndarray, tmp_path: Path
) -> None:
    expected = library.KernelSoSDensityCV(cv=2, relative_regularizations=[0.3, 0.1]).fit(points)
    words = [
        "fit",
        data,
        "-o",
        tmp_path / "m.ksos",
        "--columns",
        "x,y",
        "--folds",
        "2",
        "--relative-regularizations",
        "0.3,0.1",
        "--json",
    ]
    shown = json.loads(ksos(*words).out)
    assert (shown["method"], shown["status"], shown["n_samples"], shown["n_folds"]) == (
        "search",
        "solved",
        40,
        2,
    )
    assert shown["dropped_columns"] == ["mass", "label"] and shown["n_dropped"] == 0
    assert shown["held_out_score"] == pytest.approx(expected.best_score_, rel=1e-12)
    assert shown["relative_regularization"] == expected.best_params_["relative_regularization"]
    assert shown["bandwidth_multiple"] == expected.best_params_["bandwidth_multiple"]
    assert (shown["gap"], shown["reference_gap"]) == (
        expected.solution_.gap,
        expected.reference_gap_,
    )
    assert (shown["rank"], shown["n_support"]) == (
        expected.solution_.rank,
        expected.solution_.space.support_points.shape[0],
    )
    assert shown["n_components"] == len(expected.reference_.normals(2).weights)
    found = library.load(tmp_path / "m.ksos").with_feature_names(None)
    np.testing.assert_allclose(
        found.logpdf(points), expected.distribution_.logpdf(points), atol=1e-12
    )


@pytest.mark.parametrize(
    "words",
    [
        ["--relative-regularizations", "0.1"],
        ["--relative-regularizations", "inf"],
        ["--reference", "none"],
        [*MMD, "--reference", "mixture"],
        MMD,
    ],
)
def test_fit_and_inspect_agree(
    ksos: Command, plain: Path, tmp_path: Path, words: list[str]
) -> None:
    folds = [] if "mmd" in words else ["--folds", "2"]
    shown = json.loads(ksos("fit", plain, "-o", tmp_path / "m.ksos", "--json", *folds, *words).out)
    seen = json.loads(ksos("inspect", tmp_path / "m.ksos", "--json").out)
    names = (
        "n_features",
        "feature_names",
        "n_components",
        "n_support",
        "rank",
        "kernel",
        "measure",
    )
    assert {name: shown[name] for name in names} == {name: seen[name] for name in names}
    assert shown["rank"] == library.load(tmp_path / "m.ksos").rank


def test_the_summary_of_a_search(ksos: Command, data: Path, tmp_path: Path) -> None:
    words = [
        "fit",
        data,
        "-o",
        tmp_path / "m.ksos",
        "--columns",
        "x,y",
        "--folds",
        "2",
        "--relative-regularizations",
    ]
    done = ksos(*words, "0.1")
    rows, columns, score, reference, made, certified, written = done.out.splitlines()
    assert (done.code, rows, columns) == (0, "rows: 40", "columns: 2 (x, y); dropped: mass, label")
    assert re.fullmatch(r"held-out score: -\S+ nats per row, 2 folds", score)
    assert re.fullmatch(
        r"reference: a mixture of \d+ Gaussians, its weights within \S+ nats of the best", reference
    )
    pattern = (
        r"density: the reference, corrected by a kernel sum of squares of rank \d+, \d+ support"
        r" points, λ = 0.1 \(units of ∫k²dρ\)"
    )
    assert re.fullmatch(pattern, made)
    assert (
        re.fullmatch(r"certified: within \S+ nats of the optimum", certified)
        and written == f"written: {tmp_path / 'm.ksos'}"
    )
    assert done.err == ""
    lines = ksos(*words, "inf").out.splitlines()
    assert lines[4:6] == [
        "density: the reference itself (λ = ∞), rank 1",
        "certified: within 0 nats of the optimum",
    ]
    detailed = ksos(*words, "0.1", "--verbose")
    assert [line.split(":")[0] for line in detailed.out.splitlines()[6:]] == [
        "solver",
        "kernel",
        "written",
    ]
    assert detailed.err and all(
        line.startswith("ksos fit: [cv] ") for line in detailed.err.splitlines()
    )


def test_a_search_that_runs_out_of_time(ksos: Command, plain: Path, tmp_path: Path) -> None:
    done = ksos("fit", plain, "-o", tmp_path / "m.ksos", "--time-limit", "1e-9")
    assert done.code == 3 and "held-out score: none, nothing was compared" in done.out
    (line,) = done.err.splitlines()
    assert line.startswith("ksos fit: not converged: time_limit: ") and line.endswith(
        "holds the best density found"
    )
    assert library.load(tmp_path / "m.ksos").terms.mass() == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["--bandwidth", "1"],
            (
                "--bandwidth belongs to --method mmd, and this is --method search; choose that"
                " method or drop it"
            ),
        ),
        (
            ["--method", "search", "--solver", "fista", "--penalty", "trace"],
            "--penalty, --solver belong to --method mmd",
        ),
        *(
            ([flag, "1"], f"{flag} belongs to --method mmd")
            for flag in ("--regularization", "--relative-regularization", "--landmarks")
        ),
        *(
            ([flag, "1"], f"{flag} belongs to --method mmd")
            for flag in ("--embedding-bandwidth", "--max-iter", "--checkpoint")
        ),
        (["--support", "random"], "--support belongs to --method mmd"),
        (["--objective", "mmd"], "--objective mmd belongs to --method mmd"),
        (["--objective", "l2"], "a search judges by l2 with --criterion l2"),
        (
            [*MMD, "--folds", "3"],
            (
                "--folds belongs to --method search, and this is --method mmd; choose that method"
                " or drop it"
            ),
        ),
        (
            [*MMD, "--criterion", "l2", "--n-jobs", "2"],
            "--criterion, --n-jobs belong to --method search",
        ),
        ([*MMD, "--bandwidths", "1,2"], "--bandwidths belongs to --method search"),
        (
            [*MMD, "--relative-regularizations", "1,2"],
            "--relative-regularizations belongs to --method search",
        ),
        (["--method", "newton"], "invalid choice: 'newton'"),
        (["--search"], "unrecognized arguments: --search"),
        (["--folds", "1"], "a whole number of at least 2"),
        (["--columns", "x", "--exclude", "y"], "give either --columns or --exclude"),
    ],
)
def test_options_that_do_not_go_together(
    ksos: Command, data: Path, tmp_path: Path, words: list[str], what: str
) -> None:
    done = ksos("fit", data, "-o", tmp_path / "m.ksos", *words)
    assert (done.code, done.out) == (2, "") and what in done.err and done.err.count("\n") == 1


def test_names_must_differ(ksos: Command, tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("x,x\n1,2\n3,5\n")
    done = ksos("fit", tmp_path / "d.csv", "-o", tmp_path / "m.ksos")
    assert (
        done.code == 1
        and "has columns of the same name: 'x'; give each a name of its own" in done.err
    )


def test_what_is_left_out_of_a_table_is_said(ksos: Command, data: Path, tmp_path: Path) -> None:
    done = ksos(
        "fit",
        data,
        "-o",
        tmp_path / "m.ksos",
        *MMD,
        "--clean",
        "--weights",
        "mass",
        "--tol",
        "1e-3",
    )
    assert done.code == 0 and library.load(tmp_path / "m.ksos").feature_names == ("x", "y")
    assert done.err == f"ksos fit: {data}: dropped columns of text or dates: column 4 ('label')\n"
    assert "columns: 2 (x, y); dropped: label\n" in done.out
    refused = ksos("fit", data, "-o", tmp_path / "m.ksos", *MMD)
    assert (
        refused.code == 1
        and "'row 0' is not a number; drop the column with --exclude label, or with --clean"
        in refused.err
    )
    # the search takes text, but no identifier
    refused = ksos("fit", data, "-o", tmp_path / "m.ksos")
    assert refused.code == 1 and "'label' has a level of its own in every row" in refused.err
    assert "--exclude drops columns" in refused.err
