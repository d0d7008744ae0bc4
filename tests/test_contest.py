"""The benchmark: the referee judges by the definitions, methods solve the same problem, and
whatever happens becomes a row.
"""

from __future__ import annotations

import builtins
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import contest
import numpy as np
import pytest
from contest import baselines, processes, report
from contest.app import main
from contest.methods import solve_ours
from contest.referee import OutOfTimeError, Referee, Watch
from contest.report import Row, Run, optimum, ranked
from hypothesis import given, strategies as st
from scipy.linalg import eigh

from ksos.functionals import Objective, SquaredMMD, Trace
from ksos.kernels import Gaussian
from ksos.solvers import SOLVERS, certify
from ksos.space import SoSSpace

SMALL = contest.Setting(10, 2, 0.5)


def judged(
    method: Callable[[Any, np.ndarray, float, Watch], str], setting: contest.Setting, tol: float
) -> tuple[Watch, str, list[Any]]:
    X, looks = setting.points(), []
    watch = Watch(Referee(setting, X), 60.0, lambda t, f: looks.append((t, f)))
    return watch, method(setting, X, tol, watch), looks


# --- the referee ---


def in_the_papers_own_terms(setting: contest.Setting, B: np.ndarray) -> float:
    """‖P(v − w_p)‖² + λ tr A with the tensor u_pqr and K⁻¹; for settings in which K can be
    inverted.
    """
    X, s2 = setting.points(), setting.sigma**2
    d = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = np.exp(-d / s2)
    u = (math.pi * s2 / 3) ** (setting.d / 2) * np.exp(
        -(d[:, :, None] + d[:, None] + d[None]) / (3 * s2)
    )
    W = (math.pi * s2 / 2) ** (setting.d / 2) * np.exp(-d / (2 * s2))
    assert np.sum(B * W) == pytest.approx(1.0, abs=1e-9)
    residual = np.einsum("pq,pqr->r", B, u) - K.mean(axis=1)
    return float(residual @ np.linalg.solve(K, residual) + setting.lam * np.sum(B * K))


@given(st.integers(0, 2**32 - 1), st.sampled_from([SMALL, contest.Setting(7, 3, 1.0)]))
def test_referee_agrees_with_the_paper(seed: int, setting: contest.Setting) -> None:
    referee = Referee(setting, setting.points())
    m = setting.m
    assert referee.T.shape == (m, m), "nothing is truncated here"
    F = np.random.default_rng(seed).standard_normal((m, 3))
    C = referee.feasible(None, F @ F.T)
    assert np.trace(C) == pytest.approx(1.0, abs=1e-12)
    B = referee.T @ C @ referee.T.T / setting.unit
    np.testing.assert_allclose(
        B / B[0, 0], F @ F.T / (F @ F.T)[0, 0], atol=1e-6
    )  # only the mass was changed
    assert referee.value(C) == pytest.approx(in_the_papers_own_terms(setting, B), rel=1e-8)
    np.testing.assert_allclose(
        referee.feasible(F, np.eye(3)), C, atol=1e-10
    )  # the same answer in other coordinates


@pytest.mark.parametrize(
    "setting", [SMALL, contest.Setting(40, 2, 1.0), contest.Setting(20, 10, 2.0)]
)
def test_referee_agrees_with_the_library(setting: contest.Setting) -> None:
    X = setting.points()
    referee, space = Referee(setting, X), SoSSpace(Gaussian(setting.sigma), X)
    assert (referee.T.shape[1], referee.S.shape[0]) == (space.rank, space.embedding_rank)
    objective = Objective.of(SquaredMMD(X) + setting.lam * Trace(), space)
    rng = np.random.default_rng(0)
    for _ in range(3):
        F = rng.standard_normal((space.rank, 2))
        point = objective.point(F @ F.T / np.sum(F**2))
        C = referee.feasible(space.T / math.sqrt(setting.unit), point.C)
        certificate = certify(objective, point)
        assert referee.value(C) == pytest.approx(certificate.objective, rel=1e-5)
        assert referee.gap(C) == pytest.approx(certificate.gap, rel=1e-5)


def test_referee_makes_answers_feasible_and_refuses_empty_ones() -> None:
    referee = Referee(SMALL, SMALL.points())
    C = referee.feasible(None, np.diag([1.0, -1.0, *np.zeros(8)]))
    assert eigh(C, eigvals_only=True)[0] >= -1e-15
    assert np.trace(C) == pytest.approx(1.0)
    for nothing in (np.zeros((10, 10)), -np.eye(10)):
        with pytest.raises(ValueError, match="no mass"):
            referee.feasible(None, nothing)


# --- methods ---


@pytest.fixture(scope="module")
def solved() -> tuple[float, float]:
    """Objective and gap at the optimum of the small problem, by the library."""
    watch, status, _ = judged(contest.METHODS["low_rank"].solve, SMALL, 1e-11)
    assert status == "solved" and watch.C is not None
    return watch.objective, watch.referee.gap(watch.C)


@pytest.mark.parametrize(
    "name",
    ["fista", "published", "clarabel_natural", "clarabel_whitened", "scs_natural", "scs_whitened"],
)
def test_methods_find_the_same_optimum(name: str, solved: tuple[float, float]) -> None:
    if "_" in name:
        pytest.importorskip("cvxpy")
    method = contest.METHODS[name]
    watch, _, looks = judged(
        method.solve, SMALL, {"fista": 1e-8}.get(name, 1e-9 if "_" in name else 1e-13)
    )
    objective, gap = solved
    assert gap < 1e-9
    assert -gap - 1e-12 <= watch.objective - objective <= 1e-7
    assert looks and looks[-1][1] == watch.objective
    assert [t for t, _ in looks] == sorted(t for t, _ in looks)


def test_every_solver_takes_part_and_its_iterates_are_seen() -> None:
    assert set(SOLVERS) <= set(contest.METHODS)
    _, _, looks = judged(contest.METHODS["fista"].solve, SMALL, 1e-6)
    assert len(looks) > 3, "iterates are seen, not only the answer"
    watch = Watch(Referee(SMALL, SMALL.points()), 0.0, lambda t, f: None)
    assert solve_ours("fista", SMALL, SMALL.points(), 1e-9, watch) == "time_limit"


def test_the_kronecker_step_is_valid() -> None:
    """The Frobenius norm of the Hessian is at least its largest eigenvalue, seen here through the
    referee's own map.
    """
    X = SMALL.points()
    bound, referee = baselines.kronecker_lipschitz(SMALL, X), Referee(SMALL, X)
    columns = []
    for i in range(10):
        for j in range(10):
            B = referee.T[:, [i]] @ referee.T[:, [j]].T
            columns.append(
                referee.S
                @ (referee.c * np.einsum("pr,pr->r", referee.H, (B * referee.H) @ referee.H))
            )
    singular = np.linalg.svd(np.array(columns), compute_uv=False)
    assert bound == pytest.approx(
        2.0 * np.linalg.norm(singular**2), rel=1e-4
    )  # a rotation of C changes no norm; the jitter is 1e-10
    assert bound >= 2.0 * singular[0] ** 2


def test_published_algorithm_stops_by_its_rule_and_says_when_memory_is_short() -> None:
    _, status, looks = judged(baselines.solve_published, SMALL, 1e-4)
    assert status == "stopped by its rule"
    _, _, longer = judged(baselines.solve_published, SMALL, 1e-8)
    assert longer[-1][1] < looks[-1][1]
    with pytest.raises(MemoryError, match="Kronecker matrix with m = 2000"):
        baselines.solve_published(
            SMALL,
            np.zeros((2000, 2)),
            1e-4,
            Watch(Referee(SMALL, SMALL.points()), 1.0, lambda t, f: None),
        )


def test_without_cvxpy_the_suggested_fix_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def block(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "cvxpy":
            raise ModuleNotFoundError("no", name="cvxpy")
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", block)
    with pytest.raises(ModuleNotFoundError, match=r'pip install "kernel-sos\[cvx\]"'):
        baselines.require_cvxpy()


# --- the watch ---


def test_the_clock_stands_still_while_the_referee_looks() -> None:
    now = [0.0]
    seen: list[float] = []

    class Slow:
        def feasible(self, L: Any, C: np.ndarray) -> np.ndarray:
            now[0] += 100.0
            return C

        def value(self, C: np.ndarray) -> float:
            return 1.0

    slow: Any = Slow()
    watch = Watch(slow, 10.0, lambda t, f: seen.append(t), lambda: now[0])
    for _ in range(9):
        now[0] += 1.0
        watch.look(None, np.eye(1))
    now[0] += 1e-6
    watch.look(None, np.eye(1))  # too soon for another look
    assert seen == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    watch.look(None, np.eye(1), last=True)
    assert len(seen) == 10
    now[0] += 2.0
    assert watch.left == 0.0
    with pytest.raises(OutOfTimeError):
        watch.look(None, np.eye(1))


# --- rows ---


def rows_of_a_race() -> list[Row]:
    quick = Row(
        "low_rank",
        SMALL,
        [Run(1e-8, [(0.1, 1.1), (0.2, 1.0 + 1e-9)], 0.3, "solved", 2e-9)],
        "solved",
        1e6,
    )
    again = Run(1e-8, [(0.05, 1.1), (0.15, 1.0 + 1e-9)], 0.25, "solved", 1e-9)
    quick.runs.append(again)
    early = Row(
        "published",
        SMALL,
        [Run(1e-11, [(1.0, 1.5), (3.0, 1.18)], 3.0, "stopped by its rule", 0.5)],
        "stopped by its rule",
        5e7,
    )
    killed = Row("clarabel_natural", SMALL, [Run(1e-6)], "killed at the limit", limit=40.0)
    absent = Row("scs_natural", SMALL, status="not tried: failed at m=5")
    return [quick, early, killed, absent]


def test_times_ratios_and_the_lower_bound() -> None:
    rows = rows_of_a_race()
    f_star = optimum(rows)
    assert f_star == pytest.approx(1.0, abs=1e-15)
    quick, early, killed, absent = rows
    assert quick.time_to(1e-4, f_star) == quick.time_to(1e-8, f_star) == 0.15
    assert quick.time_to(1e-10, f_star) is None
    assert quick.whole_call(1e-8, f_star) == 0.25
    assert early.time_to(1e-4, f_star) is None and early.time_spent() == 3.0
    assert killed.time_spent() == 40.0 and absent.time_spent() is None
    assert ranked(rows, f_star) is quick and ranked([early], f_star) is None
    head, titles, *lines = report.tables(rows)[1:]
    assert head.startswith("two moons, m=10, d=2, σ=0.5: f* = 1.0000")
    assert titles.split()[-1] == "status"
    assert lines[0].split()[2:7] == ["0.150", "0.150", "0.150", "1×", "0.250"]
    assert "≥3.00" in lines[1] and "≥20×" in lines[1] and "1.8e-01" in lines[1]
    assert "≥40.0" in lines[2] and "≥267×" in lines[2] and lines[2].endswith("killed at the limit")
    assert lines[3].split("natural")[1].split()[:4] == ["–", "–", "–", "–"]
    assert optimum([absent, killed]) is None
    assert "nobody finished" in report.tables([killed])[1]


def test_the_reference_goes_first_and_losers_are_not_tried_at_larger_sizes() -> None:
    asked: list[tuple[str, int, float | None]] = []

    def run_one(
        name: str, setting: contest.Setting, limit: float, f_star: float | None, clock: str
    ) -> Row:
        asked.append((name, setting.m, f_star))
        if name == "published":
            return Row(name, setting, status="out of memory", limit=limit)
        return Row(
            name, setting, [Run(1e-8, [(0.1, 2.0)], 0.1, "solved", 0.5)], "solved", limit=limit
        )

    told: list[float | None] = []
    rows = contest.run_all(
        contest.grid([9, 5], [2], [1.0, 2.0]),
        ["published", "low_rank", "published"],
        1.0,
        lambda row, f: told.append(f),
        run=run_one,
    )
    assert asked == [
        call
        for _ in range(2)
        for call in [("low_rank", 5, None), ("published", 5, 1.5), ("low_rank", 9, None)]
    ]
    assert [row.status for row in rows[:4]] == [
        "solved",
        "out of memory",
        "solved",
        "not tried: failed at m=5",
    ]
    assert told == [1.5] * 8
    with pytest.raises(ValueError, match="methods"):
        contest.run_all([], ["nobody"], 1.0, lambda row, f: None)


def test_grid_has_three_bandwidths_for_each_dimension() -> None:
    settings = contest.grid([25, 50], [2, 10], None)
    assert len(settings) == len(set(settings)) == 12
    for setting in settings:
        assert setting.points().shape == (setting.m, setting.d)


# --- processes ---


def test_a_process_that_is_too_slow_short_of_memory_or_broken_becomes_a_row() -> None:
    short = processes.run_one("published", contest.Setting(500, 2, 1.0), 5.0, None)
    assert short.status.startswith("out of memory: the m² × m² Kronecker matrix with m = 500 needs")
    assert len(short.runs) == 1 and short.time_spent() is None, (
        "it began, but how long it would take is not known"
    )
    broken = processes.run_one("nobody", SMALL, 5.0, None)
    assert broken.status == "crashed: KeyError: 'nobody'" and not broken.runs
    pytest.importorskip("cvxpy")
    slow = processes.run_one("clarabel_natural", contest.Setting(60, 2, 1.0), 0.01, None, grace=0.0)
    assert slow.status == "killed at the limit"
    assert slow.time_spent() == 0.01


# --- the command ---


def test_the_command_writes_a_table_numbers_and_a_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    words = [
        "--quick",
        "--sizes",
        "12",
        "--methods",
        "published",
        "low_rank",
        "--limit",
        "2",
        "--clock",
        "cpu",
        "--output",
        str(tmp_path / "new"),
    ]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert (
        lines[0].startswith("BLAS pinned to one thread")
        and "a proven lower bound" in lines[1]
        and "of the processor" in lines[2]
    )
    (title,) = (line for line in lines if line.startswith("ksos, low_rank"))
    assert title.endswith("solved") and " 1× " in title
    files = [tmp_path / "new" / name for name in ("benchmark.json", "benchmark.png")]
    assert lines[-2:] == [str(file) for file in files]
    assert files[1].read_bytes().startswith(b"\x89PNG")
    results = json.loads(files[0].read_text())
    first, second = results["rows"]
    assert (first["method"], second["method"]) == ("low_rank", "published")
    assert (
        0.0
        < first["seconds_to"]["0.0001"]
        <= first["seconds_to"]["1e-08"]
        <= first["whole_call"]
        < 2.0
    )
    assert 0.0 <= first["excess"] <= 1e-8
    assert first["runs"][0]["gap"] <= 1e-8
    assert len({(row["f_star"], row["sigma"], row["m"]) for row in results["rows"]}) == 1


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--sizes", "1"], "--sizes expects numbers of at least 2"),
        (["--limit", "nan"], "--limit and --bandwidths expect positive numbers"),
        (["--methods", "nobody"], "argument --methods: invalid choice: 'nobody'"),
        (["--output", __file__], "is a file; --output expects a folder"),
    ],
)
def test_bad_words_are_named(
    words: list[str], what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert what in capsys.readouterr().err
