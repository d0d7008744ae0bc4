"""The paper's figures: the files are there, and their numbers agree with computations that share
nothing with the code that made them.
"""

from __future__ import annotations

import csv
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.linalg import eigh

from examples import paper
from examples.paper import __main__ as command, density_theorem, figure1, figure2
from examples.paper.files import scientific
from ksos.kernels import Gaussian, Laplace
from ksos.plotting import sheet
from ksos.robust import AtomicBall, Ball

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """All figures, quick versions: the folder, the files returned, the lines reported."""
    pytest.importorskip("matplotlib")
    folder, lines = tmp_path_factory.mktemp("figures") / "not" / "there", []
    files = paper.run(None, folder, True, lines.append)
    yield {"folder": folder, "files": files, "lines": lines}
    figure2.fit.cache_clear()


def table(drawn: dict[str, Any], name: str) -> list[dict[str, Any]]:
    with (drawn["folder"] / f"{name}.csv").open(newline="", encoding="utf-8") as stream:
        return [
            {key: number(value) for key, value in row.items()} for row in csv.DictReader(stream)
        ]


def number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


# --- files and lines ---


def test_every_figure_is_there_in_three_forms(drawn: dict[str, Any]) -> None:
    expected = {
        drawn["folder"] / f"{name}.{kind}"
        for name in paper.FIGURES
        for kind in ("png", "pdf", "csv")
    }
    expected.add(drawn["folder"] / "figure1_sos.csv")
    assert set(drawn["files"]) == expected
    assert len(drawn["files"]) == len(expected)
    for file in expected:
        content = file.read_bytes()
        assert len(content) > 500
        if file.suffix == ".png":
            assert content.startswith(b"\x89PNG")
            width, height = struct.unpack(">II", content[16:24])
            assert (width, height) > (1300, 400)
        elif file.suffix == ".pdf":
            assert content.startswith(b"%PDF")


def test_lines_report_certificates_and_where_the_files_are(drawn: dict[str, Any]) -> None:
    moons = [line for line in drawn["lines"] if line.startswith("two moons")]
    assert len(moons) == 9
    for words in ("objective", "gap", "√gap", "exact", "projected", "solved"):
        assert all(words in line for line in moons)
    rows = table(drawn, "figure2a")
    assert f"objective {rows[1]['objective']:.6e}" in moons[1]
    assert f"exact {rows[1]['mmd_exact']:.5f}, projected {rows[1]['mmd_projected']:.5f}" in moons[1]
    assert str(drawn["folder"]) in drawn["lines"][-1]


def test_some_figures_only_and_the_same_again(drawn: dict[str, Any], tmp_path: Path) -> None:
    names = ["density_theorem", "density_theorem"]
    files = paper.run(names, tmp_path, True, lambda line: None)
    assert [file.name for file in files] == [
        f"density_theorem.{kind}" for kind in ("png", "pdf", "csv")
    ]
    for file in files:
        assert file.read_bytes() == (drawn["folder"] / file.name).read_bytes()


def test_unknown_figure_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"figures must be one of 'figure1', .*; got 'figure9'"):
        paper.run(["figure1", "figure9"], tmp_path, True, print)
    assert not list(tmp_path.iterdir())


def test_missing_matplotlib_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import of it then meets
    lines: list[str] = []
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kernel-sos\[plot\]"') as caught:
        paper.run(None, tmp_path, True, lines.append)
    assert caught.value.name == "matplotlib"
    assert lines == []


def test_drawing_leaves_matplotlib_as_it_was() -> None:
    matplotlib, pyplot = pytest.importorskip("matplotlib"), pytest.importorskip("matplotlib.pyplot")
    with matplotlib.rc_context({"font.size": 31.0, "axes.grid": True}):
        before, open_figures = dict(matplotlib.rcParams), pyplot.get_fignums()
        with sheet(2.0, 1.0) as figure:
            assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["axes.grid"]) == (
                8.0,
                False,
            )
            assert tuple(figure.get_size_inches()) == (2.0, 1.0)
        assert dict(matplotlib.rcParams) == before
        assert pyplot.get_fignums() == open_figures


def test_the_command_draws_what_was_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[Any, ...]] = []

    def run(figures: Any, output: Path, quick: bool, report: Any) -> list[Path]:
        calls.append((figures, output, quick))
        report("drawing")
        return [output / "one.png"]

    monkeypatch.setattr(command, "run", run)
    words = ["--figure", "figure2a", "--figure", "figure1", "--output", str(tmp_path), "--quick"]
    assert command.main(words) == command.main([]) == 0
    assert calls == [(["figure2a", "figure1"], tmp_path, True), (None, Path("figures"), False)]
    out = capsys.readouterr().out
    assert out.startswith(f"drawing\n{tmp_path / 'one.png'}\n")
    for wrong in (["--figure", "figure9"], ["--output", __file__]):
        with pytest.raises(SystemExit, match="2"):
            command.main(wrong)
        assert wrong[1] in capsys.readouterr().err


def test_the_figure_of_the_readme_is_small() -> None:
    assert 10_000 < (ROOT / "docs" / "figures" / "wine.png").stat().st_size < 150_000


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (1.984e-3, 2, r"$1.98\times 10^{-3}$"),
        (1e-3, 0, "$10^{-3}$"),
        (3e-3, 0, r"$3\times 10^{-3}$"),
        (0.0, 2, "$0$"),
        (np.inf, 1, r"$\infty$"),
    ],
)
def test_scientific(value: float, digits: int, text: str) -> None:
    assert scientific(value, digits) == text


# --- Figure 2 ---


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("figure2a", "lam", [1e-5, 1e-3, 1e-1]),
        ("figure2b", "sigma", [0.5, 1.0, 2.0]),
        ("figure2c", "m", [25, 50, 100]),
    ],
)
def test_two_moons_vary_one_thing(
    drawn: dict[str, Any], name: str, column: str, values: list[float]
) -> None:
    rows = table(drawn, name)
    middle = {"m": 50.0, "sigma": 1.0, "lam": 1e-3}
    assert [{key: row[key] for key in middle} for row in rows] == [
        {**middle, column: value} for value in values
    ]
    assert rows[1] == table(drawn, "figure2a")[1], (
        "the panel in the middle is the same one in all three"
    )
    for row in rows:
        assert (row["n"], row["noise"], row["seed"]) == (100, 0.05, 0)
        assert row["status"] == "solved"
        assert 0.0 <= row["gap"] <= 1e-8
        assert row["projected_mmd_bound"] == pytest.approx(np.sqrt(row["gap"]))
        assert row["mmd_projected"] <= row["mmd_exact"] + 1e-9


def moons(row: dict[str, Any]) -> tuple[np.ndarray, Any, np.ndarray]:
    """The data, the fitted density and B of a row; only the support points and the factor are taken
    from the fit.
    """
    fitted = figure2.fit(figure2.Setting(int(row["m"]), row["sigma"], row["lam"]))
    p = fitted.solution.distribution
    return figure2.sample(), p, p.factor @ p.factor.T


@pytest.mark.parametrize("name", ["figure2a", "figure2b", "figure2c"])
def test_exact_mmd_by_quadrature(drawn: dict[str, Any], name: str) -> None:
    """On a grid the Gaussian kernel is a product of two small matrices, and ‖w_p − w_data‖² a sum
    over the grid.
    """
    t = np.linspace(-8.0, 9.0, 341)
    h = t[1] - t[0]
    nodes = np.stack(np.meshgrid(t, t, indexing="ij"), axis=-1).reshape(-1, 2)
    for row in table(drawn, name):
        X, p, _ = moons(row)
        sigma = row["sigma"]
        mass = h * h * p.pdf(nodes).reshape(t.size, t.size)
        assert mass.sum() == pytest.approx(1.0, abs=1e-9)
        k = np.exp(-((t[:, None] - t[None, :]) ** 2) / sigma**2)
        k1, k2 = (np.exp(-((X[:, j, None] - t[None, :]) ** 2) / sigma**2) for j in (0, 1))
        own = np.sum(mass * (k @ mass @ k))
        cross = np.einsum("ia,ab,ib->", k1, mass, k2) / len(X)
        data = np.exp(-((X[:, None] - X[None]) ** 2).sum(-1) / sigma**2).mean()
        assert own - 2.0 * cross + data == pytest.approx(row["mmd_exact"] ** 2, abs=1e-9)


def test_objective_and_gap_in_the_papers_own_terms(drawn: dict[str, Any]) -> None:
    """Eq. (12) and its gradient with the m³ tensor u_pqr of the appendix; the gap from a
    generalized eigenvalue problem in B.
    """
    row = table(drawn, "figure2b")[0]
    X, p, B = moons(row)
    s, lam, Z = row["sigma"], row["lam"], p.support_points
    assert {tuple(z) for z in Z} < {tuple(x) for x in X}
    assert len(Z) == row["m"]

    def squared(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return ((a[:, None] - b[None]) ** 2).sum(-1)

    d = squared(Z, Z)
    K, W = np.exp(-d / s**2), np.pi * s**2 / 2 * np.exp(-d / (2 * s**2))
    u = np.pi * s**2 / 3 * np.exp(-(d[:, :, None] + d[:, None, :] + d[None, :, :]) / (3 * s**2))
    assert np.sum(B * W) == pytest.approx(1.0, abs=1e-9)
    residual = np.einsum("pq,pqr->r", B, u) - np.exp(-squared(Z, X) / s**2).mean(axis=1)
    weights = np.linalg.solve(K, residual)
    assert np.sqrt(residual @ weights) == pytest.approx(row["mmd_projected"], rel=1e-6)
    assert residual @ weights + lam * np.sum(B * K) == pytest.approx(row["objective"], rel=1e-7)
    gradient = 2.0 * np.einsum("pqr,r->pq", u, weights) + lam * K
    r = int(row["space_rank"])
    values, Q = eigh(W)
    T = Q[:, -r:] / np.sqrt(values[-r:])
    gap = np.sum(gradient * B) - eigh(T.T @ gradient @ T, eigvals_only=True)[0]
    assert gap == pytest.approx(row["gap"], abs=1e-9)
    assert gap <= 1.1e-8


def test_what_the_figures_show(drawn: dict[str, Any]) -> None:
    """More penalty: a larger distance to the data and a lower rank. More support points: a smaller
    exact distance.
    """
    by_lam, by_m = table(drawn, "figure2a"), table(drawn, "figure2c")
    assert by_lam[0]["mmd_exact"] < by_lam[1]["mmd_exact"] < by_lam[2]["mmd_exact"]
    assert by_lam[0]["rank"] >= by_lam[1]["rank"] >= by_lam[2]["rank"]
    assert by_m[0]["mmd_exact"] > by_m[1]["mmd_exact"] > by_m[2]["mmd_exact"]


# --- Figure 1 ---


def test_counter_example_has_the_known_values(drawn: dict[str, Any]) -> None:
    rows = table(drawn, "figure1")
    theta, relaxed, true = (
        np.array([row[key] for row in rows]) for key in ("theta", "relaxed_value", "true_value")
    )
    zero = int(np.argmin(np.abs(theta)))
    assert theta[zero] == 0.0
    assert (theta[0], theta[-1]) == (-2.0, 2.0)
    np.testing.assert_allclose(relaxed, np.exp(-(theta**2)) - 1.2, atol=1e-14)
    assert np.argmax(relaxed) == zero
    assert relaxed[zero] == pytest.approx(-0.2, abs=1e-12)
    assert abs(abs(theta[np.argmax(true)]) - 0.45) <= 0.011
    assert true.max() == pytest.approx(0.0322, abs=1e-4)
    assert true[zero] == pytest.approx(0.0236, abs=1e-4)
    np.testing.assert_allclose(true, true[::-1], atol=1e-9)  # the problem is symmetric
    assert np.all(true >= relaxed)  # and the relaxation is one


def test_counter_example_adversaries_are_what_they_claim(drawn: dict[str, Any]) -> None:
    for row in table(drawn, "figure1"):
        x, w = np.array(
            [[float(part) for part in pair.split(":")] for pair in row["atoms"].split()]
        ).T
        assert np.all(w > 0.0)
        assert w.sum() == pytest.approx(1.0, abs=1e-12)
        assert w @ np.exp(-((x - row["theta"]) ** 2)) == pytest.approx(row["true_value"], abs=1e-9)
        squared = w @ np.exp(-((x[:, None] - x) ** 2)) @ w - 2.0 * w @ np.exp(-(x**2)) + 1.0
        assert np.sqrt(squared) == pytest.approx(row["mmd_of_adversary"], abs=1e-9)
        assert row["mmd_of_adversary"] <= 1.2 + 1e-9
        assert -1e-10 <= row["true_value"] - row["true_value_lower_bound"] <= 1e-10


def test_counter_example_against_densities(drawn: dict[str, Any]) -> None:
    """The sum-of-squares adversary: a little weaker than atoms, the less so the finer it is, and
    the same θ*.
    """
    rows, atoms = (
        table(drawn, "figure1_sos"),
        {row["theta"]: row["true_value"] for row in table(drawn, "figure1")},
    )
    for eta, value in ((1.0, 0.0390), (0.5, 0.0361), (0.3, 0.0344)):
        mine = [row for row in rows if row["eta"] == eta]
        (best,) = (row for row in mine if row["best"])
        assert best["value"] == pytest.approx(value, abs=2e-4)
        assert abs(best["theta"] + 0.45) <= 0.05
        grid = [row for row in mine if not row["best"]]
        assert len(grid) == 9
        assert max(row["value"] for row in grid) <= best["value"] + 2e-6
        np.testing.assert_allclose(
            [row["value"] for row in grid], [row["value"] for row in grid[::-1]], atol=5e-6
        )
        for row in grid:
            if row["theta"] in atoms:
                assert row["value"] >= atoms[row["theta"]] - 2e-6


def test_counter_example_against_a_conic_solver() -> None:
    cvxpy = pytest.importorskip("cvxpy")
    atoms = np.linspace(-2.0, 2.0, 81)
    K = np.exp(-((atoms[:, None] - atoms) ** 2))
    values, Q = np.linalg.eigh(K)
    Phi = (Q[:, values > 1e-13] * np.sqrt(values[values > 1e-13])).T
    ball = AtomicBall(Ball([[0.0]], 1.2, kernel=Gaussian(1.0)), atoms[:, None])
    mu = cvxpy.Variable(81, nonneg=True)
    for theta in (0, 31, 40, 49, 60):
        constraints = [cvxpy.sum(mu) == 1, cvxpy.norm(Phi @ mu - Phi[:, 40]) <= 1.2]
        problem = cvxpy.Problem(cvxpy.Minimize(K[theta] @ mu), constraints)
        problem.solve(solver=cvxpy.CLARABEL)
        assert figure1.true_value(theta, ball).value == pytest.approx(problem.value, abs=1e-6)


@st.composite
def balls(draw: st.DrawFn) -> tuple[AtomicBall, int]:
    seed, n, d = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 40)), draw(st.integers(1, 2))
    rng = np.random.default_rng(seed)
    reference = rng.uniform(size=n) * (rng.uniform(size=n) < 0.5)
    reference[rng.integers(n)] += 0.1
    kernel = draw(st.sampled_from([Gaussian(0.7), Gaussian(3.0), Laplace(1.0)]))
    radius = draw(st.floats(1e-2, 1.6))
    atoms = rng.uniform(-2.0, 2.0, (n, d))
    ball = Ball(atoms, radius, weights=reference, kernel=kernel)
    return AtomicBall(ball, atoms), int(rng.integers(n))


@given(balls())
def test_worst_atoms_are_feasible_and_proven(case: tuple[AtomicBall, int]) -> None:
    ball, theta = case
    worst = ball.worst_at(ball.atoms[theta])
    assert np.all(worst.weights >= 0.0)
    assert worst.weights.sum() == pytest.approx(1.0, abs=1e-12)
    difference = worst.weights - ball.reference
    mmd = np.sqrt(max(difference @ ball.K @ difference, 0.0))
    assert worst.mmd == pytest.approx(mmd, abs=1e-7)
    assert mmd <= ball.radius + 1e-7
    assert worst.value == pytest.approx(float(ball.K[theta] @ worst.weights), abs=1e-12)
    # Weak duality from the definitions alone: the penalized problem at τ, bounded below by its
    # tangent plane at the best corner.
    slope = ball.K[theta] + 2.0 * worst.multiplier * (ball.K @ difference)
    bound = (
        worst.value
        + worst.multiplier * (mmd**2 - ball.radius**2)
        + slope.min()
        - slope @ worst.weights
    )
    assert worst.lower_bound == pytest.approx(bound, abs=1e-7)
    assert worst.value - bound <= 1e-6
    # the reference itself is in the ball
    assert ball.K[theta] @ ball.reference >= worst.value - 1e-9


def test_a_large_ball_holds_the_farthest_atom() -> None:
    atoms = np.linspace(-2.0, 2.0, 9)[:, None]
    ball = AtomicBall(Ball([[0.0]], 2.0, kernel=Gaussian(1.0)), atoms)
    worst = ball.worst_at(ball.atoms[8])
    assert worst.multiplier == 0.0
    assert worst.weights[0] == 1.0
    assert worst.value == worst.lower_bound == pytest.approx(np.exp(-16.0))


def test_relaxed_value_is_attained_by_its_adversary() -> None:
    from ksos.space import MeanEmbedding

    kernel, x = Gaussian(0.8), np.array([[-0.4], [0.9]])
    theta = np.array([[0.3], [-1.0]])
    reference = MeanEmbedding(x, [0.3, 0.7], kernel=kernel)
    for point, value in zip(theta, figure1.relaxed_value(theta, reference, 0.6), strict=True):
        adversary = MeanEmbedding(np.vstack([x, point]), [0.3, 0.7, -0.6], kernel=kernel)
        assert value == pytest.approx(float(adversary(point[None])[0]), abs=1e-14)


# --- the density theorem ---


def test_sos_densities_approach_both_targets(drawn: dict[str, Any]) -> None:
    rows = table(drawn, "density_theorem")
    for target, factor in (("dirac", 2.0), ("uniform", 5.0)):
        mine = [row for row in rows if row["target"] == target]
        assert [row["eta"] for row in mine] == [0.5**i for i in range(5)]
        assert [row["m"] for row in mine] == [3, 5, 9, 17, 33]
        assert np.all(np.diff([row["mmd_exact"] for row in mine]) < 0.0)
        assert mine[-1]["mmd_exact"] * factor < mine[-2]["mmd_exact"], "and faster and faster"
        for row in mine:
            assert row["status"] == "solved"
            assert row["gap"] <= 1e-6
            assert row["mmd_lower_bound"] == pytest.approx(
                np.sqrt(max(row["objective"] - row["gap"], 0.0))
            )
            assert row["mmd_lower_bound"] <= row["mmd_exact"] + 1e-9
            assert row["mmd_projected"] ** 2 == pytest.approx(row["objective"], rel=1e-6)
            assert row["mmd_projected"] <= row["mmd_exact"] + 1e-9


@pytest.mark.parametrize(("target", "eta"), [("dirac", 0.125), ("uniform", 0.25)])
def test_exact_mmd_of_an_approximation_by_quadrature(
    drawn: dict[str, Any], target: str, eta: float
) -> None:
    (row,) = (
        row
        for row in table(drawn, "density_theorem")
        if row["target"] == target and row["eta"] == eta
    )
    p = density_theorem.approximate(target, eta, tol=1e-6).solution.distribution
    nodes, weights = np.polynomial.legendre.leggauss(300)
    mass = weights * p.pdf(nodes[:, None])
    assert mass.sum() == pytest.approx(1.0, abs=1e-9)
    # The uniform target by the midpoint rule: not the rule of the figure.
    atoms = np.zeros(1) if target == "dirac" else (np.arange(2000) + 0.5) / 2000 - 0.5
    x, a = (
        np.concatenate([nodes, atoms]),
        np.concatenate([mass, np.full(atoms.size, -1.0 / atoms.size)]),
    )
    assert np.sqrt(a @ np.exp(-((x[:, None] - x) ** 2) / 0.1**2) @ a) == pytest.approx(
        row["mmd_exact"], abs=1e-6
    )
