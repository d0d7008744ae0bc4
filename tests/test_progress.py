"""Time left: laws of the estimate, and what a fit prints."""

from __future__ import annotations

import numpy as np
import pytest

import ksos
from ksos._progress import Convergence, left_in_words, report


@pytest.mark.parametrize("rate", [0.1, 1.0, 20.0])
def test_a_gap_that_falls_evenly_is_foreseen(rate: float) -> None:
    goal = 1e-8
    end = np.log(1e8) / rate
    gaps = Convergence(goal)
    assert gaps.left(0.0, 1.0) is None, "one gap says nothing"
    for t in np.linspace(0.1, 0.9, 9) * end:
        assert gaps.left(float(t), float(np.exp(-rate * t))) == pytest.approx(end - t, rel=1e-9)
    assert gaps.left(end, 0.9 * goal) == 0.0


def test_what_does_not_fall_is_not_foreseen() -> None:
    gaps = Convergence(1e-8)
    assert [gaps.left(float(t), gap) for t, gap in enumerate([np.inf, 1e-3, 1e-3, 2e-3])] == [None] * 4


def test_words() -> None:
    assert [left_in_words(seconds) for seconds in (None, np.inf, 0.04, 99.0, 3600.0)] == [
        "", "", "; about 0.0 s left", "; about 99.0 s left", "; about 60 min left",
    ]  # fmt: skip


def test_a_quiet_fit_says_nothing_and_a_verbose_one_its_stages(capsys: pytest.CaptureFixture[str]) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    ksos.KernelSoSDensity(tol=1e-4).fit(X)
    assert capsys.readouterr().out == ""
    ksos.KernelSoSDensity(tol=1e-4, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["[fit]"] * 3 and "40 samples of 2 features" in lines[0]
    assert lines[-1].startswith("[low_rank]") and lines[-1].endswith("about 0.0 s left")


def test_stages_have_the_time_since_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    say = report(1, clock=iter([10.0, 12.5]).__next__)
    say("bandwidth")
    assert capsys.readouterr().out == "[fit] bandwidth  2.50 s\n"
