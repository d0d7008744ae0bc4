"""Every script in benchmarks/ runs in its quick mode, and what the scripts rely on is right."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import compare
import numpy as np
import pytest
from dyadic_bisection import dyadic_samples
from oracles import marginal_cdf
from statistics_checks import dkw_passes_at
from tables import points

import ksos
from ksos.kernels import Gaussian

FOLDER = Path(compare.__file__).parent

SMALLER = {
    "solvers.py": ["--sizes", "8", "--methods", "low_rank", "--output", "out"],
    "busy.py": ["--busy", "1", "--repeats", "1", "--calls", "mode"],
    "mixed_tables.py": ["--most", "30"],
}
"""Words that are added to ``--quick``, whose minute is too long here."""

ELSEWHERE = {
    *("command.py", "dyadic_bisection.py", "quick.py"),  # what the scripts import
    "architecture.py",  # tests/test_architecture.py calls every part of it
    *("contamination.py", "which_reference.py"),  # run by tests of their own
}
ASK_FOR_SPEED = {"busy.py", "evaluation.py", "sampling.py"}
"""Scripts that exit with 1 if they are slower than asked, as so small a run may be."""

SCRIPTS = sorted(file.name for file in FOLDER.glob("*.py") if file.name not in ELSEWHERE)


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_quick_mode_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "compare.py" and not (FOLDER.parent / ".git").exists():
        pytest.skip("compares revisions of a checkout")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setattr(sys, "argv", [name, "--quick", *SMALLER.get(name, [])])
    try:
        runpy.run_path(str(FOLDER / name), run_name="__main__")
    except SystemExit as end:
        assert end.code in ((None, 0, 1) if name in ASK_FOR_SPEED else (None, 0))
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("block", [1 << 5, 1 << 17])
def test_the_baseline_of_sampling_follows_the_density(block: int) -> None:
    p = ksos.SoSDensity(
        Gaussian([0.8, 0.5]),
        points(4, 2),
        np.random.default_rng(2).normal(size=(4, 2)),
        normalize=True,
    )
    samples = dyadic_samples(p, 3000, np.random.default_rng(0), block=block)
    assert samples.shape == (3000, 2)
    for k in range(2):
        assert dkw_passes_at(samples[:, k], lambda t, k=k: marginal_cdf(p, k, t), 30)
    assert abs(np.cov(samples.T)[0, 1] - p.cov()[0, 1]) < 0.05


def test_the_times_are_read_from_what_the_benchmarks_print() -> None:
    _, sampling = compare.BENCHMARKS["sampling"]
    before = "normal, σ = 1      5   50     5000      0.146     0.006 (    0.87)   0.0061 rejection"
    after = "normal, σ = 1      5   50     5000      0.146     0.006   0.0061 auto      11.01  176"
    assert sampling(before) == sampling(after) == {"normal, σ = 1, d=5": 0.0061}
    _, worst = compare.BENCHMARKS["worst_case"]
    assert worst('{"radius": 0.1, "ball_seconds": 0.4, "worst_case_seconds": 1.3}\n') == {
        "worst_case, radius 0.1": 1.3,
        "ball, radius 0.1": 0.4,
    }
    _, evaluation = compare.BENCHMARKS["evaluation"]
    assert evaluation("p.pdf    0.157 s   1.23 × the faster\nbare    1.0 s") == {"p.pdf": 0.157}


def test_what_is_slower_is_marked() -> None:
    lines = list(compare.ratios({"a": 1.2, "b": 1.0}, {"a": 1.0, "b": 1.0, "c": 1.0}))
    assert [line.endswith("slower") for line in lines] == [True, False, False]
    assert lines[2].endswith("only on one side: c")
