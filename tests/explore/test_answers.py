"""What the page is told is what the library says: every number against Python's own, and the
program it shows makes the same model.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import ksos
from ksos.cli import main
from ksos.explorer import DRAFTS
from tests.explore.conftest import Client

CASES: dict[str, dict[str, Any]] = {
    "two features": {"features": [0, 1], "n_support": 30},
    "one feature": {"features": [1], "n_support": 20, "scale": 1.5},
    "in turn": {"features": [1, 0], "n_support": 25, "regularization": 0.01},
    "likelihood": {"features": [0, 1], "n_support": 20, "objective": "likelihood"},
    "reference": {"features": [0, 2], "n_support": 20, "reference": "normal"},
    "mixture": {"features": [0, 2], "n_support": 20, "reference": "mixture"},
    "draft": {"features": [0, 1], "n_support": 30, "draft": True},
    "laplace": {"features": [0, 1], "n_support": 20, "kernel": "laplace"},
    "all": {"features": [0, 1, 2], "n_support": 20},
}


def by_program(
    client: Client, X: np.ndarray, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """What is left in the variables of the program that the page shows."""
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"X": X, "print": lambda *_: None}
    exec(client.ask("program").value["program"], names)
    return names


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_those_of_the_program(
    client: Client,
    page: ksos.Explorer,
    X: np.ndarray,
    case: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = client.ask("fit", **CASES[case]).value
    names = by_program(client, X, tmp_path, monkeypatch)
    est, p = names["est"], names["p"]
    assert told["objective"] == pytest.approx(est.solution_.objective, rel=1e-9)
    assert told["status"] == est.solution_.status == "solved" and told["rank"] == est.solution_.rank
    assert told["gap"] <= (
        DRAFTS["squared_mmd"] if case == "draft" else 1e-4 if case == "likelihood" else 1e-8
    )
    assert told["score"] == pytest.approx(est.score(names["X"][names["held_out"]]), rel=1e-9)
    assert told["n_support"] == est.support_points_.shape[0] <= CASES[case]["n_support"]
    fitted = names["X"][names["fitted"]]
    kernel = est.solution_.space.embedding_kernel
    assert told["projected_mmd"] == pytest.approx(
        p.with_feature_names(None).mmd(fitted, kernel=kernel, landmarks=est.landmarks_),
        rel=1e-6,
        abs=1e-9,
    )
    x = fitted[:5]
    assert page.distribution_.with_feature_names(None).pdf(x) == pytest.approx(
        p.with_feature_names(None).pdf(x), rel=1e-7
    )
    assert p.feature_names == tuple("abc"[k] for k in CASES[case]["features"])
    (tmp_path / "page.ksos").write_bytes(client.ask("model").content)
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "page.ksos"), "--json"]) == 0
    saved = json.loads(capsys.readouterr().out)
    for name in ("rank", "n_components", "n_support"):
        assert (told[name] or 0) == saved[name]
    assert ksos.load(tmp_path / "page.ksos").with_feature_names(None).pdf(x) == pytest.approx(
        ksos.load("model.ksos").with_feature_names(None).pdf(x), rel=1e-7
    )


def test_what_one_asks_of_a_density(client: Client, page: ksos.Explorer, X: np.ndarray) -> None:
    assert client.ask("fit", features=[0, 1], n_support=30).status == 200
    p, est = page.distribution_.with_feature_names(None), page.estimator_
    assert client.ask("box", low=[0.0, -1e300], high=[1.0, 0.5]).value[
        "probability"
    ] == p.probability([0.0, -np.inf], [1.0, 0.5])
    told = client.ask("conditional", feature=1, value=0.25).value
    given = p.conditional({1: 0.25})
    assert told["other"] == 0 and told["mean"] == given.mean()[0]
    assert told["quantiles"] == [[q, given.ppf(q)] for q in (0.05, 0.5, 0.95)]
    assert told["pdf"] == given.pdf(np.array(told["x"])[:, None]).tolist()
    assert client.ask("samples", size=7, seed=3).value["samples"] == p.rvs(7, 3).tolist()
    told = client.ask("details").value
    assert [one["level"] for one in told["levels"]] == [
        float(p.hdr_level(mass, rng=0)) for mass in (0.5, 0.9)
    ]
    fitted = X[np.sort(np.random.default_rng(0).permutation(120)[24:])][:, :2]
    assert told["exact_mmd"] == pytest.approx(
        p.mmd(fitted, kernel=est.solution_.space.embedding_kernel), rel=1e-9
    )


def test_all_pairs(client: Client, page: ksos.Explorer) -> None:
    assert client.ask("fit", features=[2, 0, 1], n_support=15).value["model"] is None
    told, ranges = client.ask("pairs").value, client.ask("data").value["ranges"]
    assert [one["pair"] for one in told["pairs"]] == [[0, 1], [0, 2], [1, 2]]
    p, side = page.distribution_.with_feature_names(None), told["side"]
    x, y = np.linspace(*ranges[2], side), np.linspace(*ranges[1], side)
    assert told["singles"][0] == pytest.approx(p.marginal([0]).pdf(x[:, None]), rel=1e-9)
    assert told["pairs"][1]["pdf"][3 * side + 20] == pytest.approx(
        p.marginal([0, 2]).pdf([[x[20], y[3]]])[0], rel=1e-9
    )


@pytest.mark.parametrize(
    ("question", "asked", "what"),
    [
        ("fit", {"features": []}, "features"),
        ("fit", {"features": [0, 0]}, "features"),
        ("fit", {"features": [3]}, "features"),
        ("fit", {"features": "a"}, "features"),
        ("fit", {"features": [0], "scale": 0}, "scale"),
        ("fit", {"features": [0], "scale": 100}, "scale must be from 0.125 to 8"),
        ("fit", {"features": [0], "regularization": 1e9}, "regularization must be from"),
        ("fit", {"features": [0], "n_support": 10**9}, "n_support must be from 1 to 300"),
        ("fit", {"features": [0], "n_support": 1.5}, "n_support"),
        ("fit", {"features": [0], "reference": "other"}, "reference"),
        ("fit", {"features": [0], "objective": ["mmd"]}, "objective"),
        ("fit", {"features": [0], "kernel": "cauchy"}, "kernel"),
        (
            "fit",
            {"features": [0], "kernel": "laplace", "reference": "normal"},
            "a reference needs a Gaussian kernel",
        ),
        ("fit", {"features": [0], "draft": "yes"}, "draft must be true or false"),
        ("fit", {"features": [0], "solver": "fista"}, "solver"),
        ("box", {"low": [1.0, 1.0], "high": [0.0, 2.0]}, "low"),
        ("box", {"low": [1.0], "high": [0.0, 2.0]}, ""),
        ("conditional", {"feature": 2, "value": 0.0}, "feature must be 0 or 1"),
        ("conditional", {"feature": 0, "value": "x"}, ""),
        ("samples", {"size": 10**9}, "size must be at most 5000"),
        ("samples", {"size": -1}, "size"),
    ],
)
def test_wrong_questions_are_answered_with_the_reason(
    client: Client, question: str, asked: dict[str, Any], what: str
) -> None:
    if question != "fit":
        assert client.ask("fit", features=[0, 1], n_support=10, draft=True).status == 200
    reply = client.ask(question, **asked)
    assert reply.status == 422 and what in reply.value["error"] and len(reply.value["error"]) > 10


def test_a_question_before_the_first_fit(page: ksos.Explorer) -> None:
    reply = Client(page, "new").ask("box", low=[0.0], high=[1.0])
    assert reply.status == 422 and "ask for a fit first" in reply.value["error"]


def test_weights_count(X: np.ndarray) -> None:
    weights = np.where(X[:, 0] > 0.5, 4.0, 1.0)
    with ksos.explore(X[:, :1], sample_weight=weights, open_browser=False) as page:
        client = Client(page)
        told = client.ask("fit", features=[0], n_support=20).value
        names: dict[str, Any] = {"X": X[:, :1], "sample_weight": weights, "print": lambda *_: None}
        exec(
            client.ask("program").value["program"].replace("p.save", "p.probability and str"), names
        )
    assert told["objective"] == pytest.approx(names["est"].solution_.objective, rel=1e-9)
    held = names["held_out"]
    assert told["score"] == pytest.approx(
        names["est"].score(X[held][:, :1], sample_weight=weights[held]), rel=1e-9
    )


def by_formula(model: dict[str, Any], X: np.ndarray) -> np.ndarray:
    """p(x) = ‖c + Fᵀk(x)‖²·ρ(x) as the page writes it, in NumPy."""
    A, F = np.array(model["root"]), np.array(model["factor"])
    away = (X[:, None, :] - np.array(model["support"])) @ A.T
    r, q = np.abs(away), model["polynomial"]
    k = (
        np.exp(-np.sum(away**2, axis=2))
        if q is None
        else np.prod(np.exp(-r) * np.polynomial.polynomial.polyval(r, q), axis=2)
    )
    values = k @ F + (0.0 if model["constant"] is None else np.array(model["constant"]))
    laws = [
        law["height"] * np.exp(-np.sum(((X - law["mean"]) @ np.array(law["root"]).T) ** 2, axis=1))
        for law in model["laws"] or ()
    ]
    return np.sum(values**2, axis=1) * (sum(laws) if laws else 1.0)


@pytest.mark.parametrize(
    "asked",
    [
        {"features": [0, 1]},
        {"features": [1]},
        {"features": [0, 1], "reference": "mixture"},
        {"features": [0, 1], "kernel": "laplace"},
        {"features": [0, 1], "kernel": "matern"},
    ],
    ids=str,
)
def test_the_model_that_the_page_gets_is_the_density(
    client: Client, page: ksos.Explorer, X: np.ndarray, asked: dict[str, Any]
) -> None:
    model = client.ask("fit", n_support=25, **asked).value["model"]
    points = X[:40][:, asked["features"]]
    wanted = page.distribution_.with_feature_names(None).pdf(points)
    assert by_formula(model, points) == pytest.approx(wanted, rel=1e-9)
    if (node := shutil.which("node")) is None:
        return  # the tests in the browser run the page's own formula
    script = Path(ksos.__file__).parent / "explorer" / "static" / "density.js"
    program = f"{script.read_text()};const p=ksosDensity.evaluator({json.dumps(model)});"
    program += f"console.log(JSON.stringify({json.dumps(points.tolist())}.map(p)))"
    done = subprocess.run([node, "-e", program], capture_output=True, text=True, check=True)
    assert np.array(json.loads(done.stdout)) == pytest.approx(wanted, rel=1e-9)


def test_without_enough_rows_nothing_is_held_out() -> None:
    with ksos.explore([[0.0], [0.5], [2.0]], open_browser=False) as page:
        told = Client(page).ask("fit", features=[0], n_support=3).value
    assert told["score"] is None and math.isfinite(told["objective"])


@pytest.mark.filterwarnings("ignore:X has missing cells")
def test_tables_with_text_and_gaps() -> None:
    """Values on the grid of the page, conditionals and boxes are those of the density."""
    rng, n = np.random.default_rng(0), 30
    word = rng.choice(["left", "right"], n)
    table = pandas.DataFrame({"word": word, "x": rng.normal(size=n) + (word == "left")})
    table.loc[::9, "x"] = np.nan
    with ksos.explore(table, open_browser=False) as page:
        client = Client(page)
        told = client.ask("data").value
        assert told["levels"] == [["left", "right"], []] and told["references"] == ["mixture"]
        asked = {"features": [1, 0], "n_support": 10, "reference": "mixture"}
        found = client.ask("fit", **asked, objective="likelihood").value
        p, solution = page.distribution_, page.estimator_.solution_
        assert found["objective"] == solution.objective and found["model"] is None
        values = np.reshape(found["values"], (81, 81))  # rows are words, columns are numbers
        x = np.linspace(*told["ranges"][1], 81)
        for row, level in ((0, "left"), (80, "right")):
            truth = p.pdf(pandas.DataFrame({"x": x, "word": level}))
            np.testing.assert_allclose(values[row], truth)
        given = client.ask("conditional", feature=0, value=0.3).value
        truth = p.conditional({"x": 0.3}).probabilities("word")
        np.testing.assert_allclose(given["probabilities"], truth)
        given = client.ask("conditional", feature=1, value=0).value
        assert given["mean"] == pytest.approx(float(p.conditional({"word": "left"}).mean()[0]))
        box = client.ask("box", low=[0.5, 1], high=[1e300, 1e300]).value
        assert box["probability"] == pytest.approx(p.probability({"x": 0.5, "word": "right"}))
        wrong = client.ask("conditional", feature=1, value=2).value
        assert wrong["error"] == "a level has a number from 0 to 1; got 2"
        program = client.ask("program").value["program"].replace("p.save('model.ksos')", "")
    names: dict[str, Any] = {"X": table, "print": lambda *_: None}
    exec(program, names)
    assert names["est"].solution_.objective == solution.objective
