"""Time left: laws of the estimate, what a fit prints, and the line that a terminal shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ksos
from ksos.ground.progress import Convergence, Steps, is_shown, left_in_words, report, shown, tell


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
    assert [gaps.left(float(t), gap) for t, gap in enumerate([np.inf, 1e-3, 1e-3, 2e-3])] == [
        None
    ] * 4


def test_words() -> None:
    assert [left_in_words(seconds) for seconds in (None, np.inf, 0.04, 99.0, 3600.0)] == [
        "",
        "",
        "; about 0.0 s left",
        "; about 99.0 s left",
        "; about 60 min left",
    ]


def test_a_quiet_fit_says_nothing_and_a_verbose_one_its_stages(
    capsys: pytest.CaptureFixture[str],
) -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    ksos.KernelSoSDensity(tol=1e-4).fit(X)
    assert capsys.readouterr().out == ""
    ksos.KernelSoSDensity(tol=1e-4, verbose=1).fit(X)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == [
        "[fit]"
    ] * 3 and "40 samples of 2 features" in lines[0]
    assert lines[-1].startswith("[low_rank]") and lines[-1].endswith("about 0.0 s left")


def test_stages_have_the_time_since_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    say = report(1, clock=iter([10.0, 12.5]).__next__)
    say("bandwidth")
    assert capsys.readouterr().out == "[fit] bandwidth  2.50 s\n"


# --- the line ---


class Lines:
    """What was written, and when it was taken away; Ctrl-C comes when a line holds ``stop``."""

    def __init__(self, stop: str | None = None) -> None:
        self.lines: list[str] = []
        self.erased, self.stop = 0, stop

    def write(self, what: str, when: str) -> None:
        self.lines.append(text := what + when)
        if (
            self.stop is not None
            and self.stop in text
            and threading.current_thread() is threading.main_thread()
        ):
            self.stop = None
            raise KeyboardInterrupt

    def erase(self) -> None:
        self.erased += 1


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Ticking(Clock):
    """A second passes whenever it is looked at."""

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_answers_say_how_far_they_are() -> None:
    X, rng = np.random.default_rng(0).normal(size=(40, 3)), np.random.default_rng(1)
    p = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), X, rng.normal(size=(40, 4)), normalize=True)
    both = ksos.mixture(
        [p, ksos.SoSDensity(ksos.kernels.Gaussian(2.0), X[:1], [[1.0]], normalize=True)]
    )
    questions: list[tuple[Callable[[], object], str]] = [
        (lambda: p.rvs(3000, rng=0, method="squares"), r"[1-9]\d* of 3000 rows, .* left"),
        (lambda: p.rvs(30, rng=0, method="inversion"), "0 of 30 rows"),
        (lambda: both.entropy(rng=0, max_evaluations=20_000), r"\d+ values, error|points 8 of 8"),
        (lambda: both.hdr_level(0.5, rng=0), "points 8 of 8, .* left"),
    ]
    for ask, told in questions:
        lines = Lines()
        with shown(line=lines, after=0.0, clock=Ticking()):
            ask()
        assert any(re.match(told, line) for line in lines.lines), lines.lines


def test_steps_foretell_the_time_left_by_their_costs() -> None:
    lines, clock, costs = Lines(), Clock(), [4.0, 1.0, 1.0, 2.0]
    with shown("search", line=lines, after=0.0, clock=clock):
        steps = Steps(costs)
        for number, cost in enumerate(costs):
            steps.begin("mixtures")
            clock.now += 3.0 * cost
            with shown():  # a call inside knows its own part
                tell("solver", left=0.0)
            left = 3.0 * sum(costs[number + 1 :])
            assert lines.lines[-1].startswith(f"search: step {number + 1} of 4: mixtures: solver, ")
            assert lines.lines[-1].endswith(f" s; about {left:.1f} s left")
    assert lines.erased == 1 and not is_shown()


def test_what_is_not_known_is_not_foretold() -> None:
    lines, clock = Lines(), Clock()
    with shown(line=lines, after=0.0, clock=clock):
        tell("first multiplier", 0.0, np.inf)
        with shown():
            clock.now += 5.0
            tell("iteration 3", left=0.5)
    assert lines.lines == ["first multiplier", "first multiplier: iteration 3, 5 s"]


def test_quick_calls_show_nothing_and_verbose_ones_speak_for_themselves() -> None:
    lines, clock = Lines(), Clock()
    with shown("fit", line=lines, clock=clock):
        clock.now += 1.9
        tell("bandwidth")
        assert lines.lines == []
        clock.now += 0.2
        tell("support")
        assert lines.lines == ["fit: support, 2 s"]
    with (
        shown("fit", line=lines, clock=clock, verbose=1),
        shown("minimize", line=lines, clock=clock),
    ):
        clock.now += 100.0
        tell("iteration 1")
        assert not is_shown()
    assert len(lines.lines) == 1 and lines.erased == 1


def test_time_passes_on_the_line_and_other_threads_have_none() -> None:
    lines, inside, go = Lines(), [], threading.Event()

    def look() -> None:
        with shown("another", line=lines, after=0.0):
            tell("unseen")
            inside.append(is_shown())
            go.set()

    with shown("fit", line=lines, after=0.0):
        tell("bandwidth", left=100.0)
        threading.Thread(target=look).start()
        assert go.wait(10.0) and inside == [False]
        for _ in range(100):
            if len(lines.lines) > 1:
                break
            threading.Event().wait(0.1)
    assert len(lines.lines) > 1 and all("bandwidth" in line for line in lines.lines)


def blobs(n: int = 60, d: int = 2) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def regression(estimator: Any) -> Any:
    X = blobs(40)
    return estimator.fit(X, X[:, 0] + 0.1 * blobs(40)[:, 1])


CALLS: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "fit": (
        lambda: ksos.KernelSoSDensity().fit(blobs()),
        ["60 samples of 2 features: bandwidth", r"iteration \d+, objective .*, gap "],
    ),
    "search": (
        lambda: ksos.KernelSoSDensityCV(cv=3).fit(blobs()),
        [
            "step 1 of 32: mixtures of 1 component",
            "step 29 of 32: bandwidth 3, 5 λ, fold 1 of 3",
            "step 32 of 32: fit to all samples: iteration",
        ],
    ),
    "grid": (
        lambda: ksos.KernelSoSDensityCV(
            reference=None, bandwidths=[0.5, 1.0], relative_regularizations=[0.1], cv=3
        ).fit(blobs()),
        [
            "step 2 of 7: bandwidth 1, 1 λ, fold 2 of 3",
            "step 7 of 7: fit to all samples: iteration",
        ],
    ),
    "anomalies": (
        lambda: ksos.KernelSoSDensity(contamination=0.1).fit(blobs()),
        ["fit without held-out rows, 5 of 5: iteration"],
    ),
    "regressor": (
        lambda: regression(ksos.RobustRegressor(radius=0.5, n_support=16)),
        ["radius 0.5, 1 of 1"],
    ),
    "auto radius": (lambda: regression(ksos.RobustRegressor()), ["held-out losses with radius"]),
    "worst case": (
        lambda: ksos.worst_case(
            lambda X: np.cos(X[:, 0]),
            blobs(30, 1),
            0.1,
            measure=ksos.measures.Box([-4.0], [4.0]),
            space=None,
        ),
        ["setting up|multiplier"],
    ),
    "conditional": (
        lambda: regression(ksos.KernelSoSConditional()),
        [
            "step 1 of 4: location by cross-fitting: fold 1 of",
            "step 4 of 4: density of the scaled residuals: step 1 of",
        ],
    ),
    "two samples": (
        lambda: ksos.two_sample_test(blobs(), blobs() + 0.1, rng=0),
        ["kernel sums", "999 permutations, kernel 4 of 4"],
    ),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.filterwarnings("ignore:.*rows say little")
def test_every_long_call_says_what_it_does(call: str) -> None:
    """The clock runs a second per look, so that nothing is dropped as too soon."""
    run, wanted = CALLS[call]
    lines, clock = Lines(), Clock()

    def later() -> float:
        clock.now += 1.0
        return clock.now

    with shown(line=lines, after=0.0, clock=later):
        run()
    for pattern in wanted:
        assert any(re.search(pattern, line) for line in lines.lines), (pattern, lines.lines)


@pytest.mark.parametrize(
    "stop", ["mixtures of 2", "mixtures of 12", "bandwidth 3, 5 λ, fold 2", "fit to all samples"]
)
def test_ctrl_c_keeps_what_the_search_has_found(stop: str) -> None:
    X, est, clock = blobs(), ksos.KernelSoSDensityCV(cv=3), Clock()

    def later() -> float:
        clock.now += 1.0
        return clock.now

    lines = Lines(stop)
    with shown(line=lines, after=0.0, clock=later), pytest.raises(KeyboardInterrupt):
        est.fit(X)
    after = [line for line in lines.lines if "stopping" in line]
    assert (
        after
        and lines.lines[-len(after) :] == after
        and all("keep the best so far" in line and "left" not in line for line in after)
    )
    assert est.status_ == "interrupted" and np.isfinite(est.score_samples(X)).all()
    assert est.distribution_.probability([-1e3, -1e3], [1e3, 1e3]) == pytest.approx(1.0, abs=1e-6)


SLOW = """
import time, numpy as np, ksos
slowly = ksos.solvers.Auto(callback=lambda progress: time.sleep(0.6) or progress.time > 3.0)
ksos.KernelSoSDensity(solver=slowly).fit(np.random.default_rng(0).normal(size=(40, 2)))
print("done")
"""


def watched(program: str, seen: bool = True, **environment: str) -> str:
    """What a program in a terminal of 80 columns writes to it; ``seen``: whether its stderr is the
    terminal.
    """
    import pty

    controller, device = pty.openpty()
    source = str(Path(ksos.__file__).parents[1])
    env = {
        **os.environ,
        "PYTHONPATH": source,
        "TERM": "xterm",
        "COLUMNS": "80",
        "OMP_NUM_THREADS": "1",
        **environment,
    }
    stderr = device if seen else subprocess.PIPE
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=env,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        timeout=100,
    )
    os.close(device)
    assert (done.returncode, done.stdout) == (0, "done\n")
    if not seen:
        return str(done.stderr)
    written = b""
    while True:
        try:
            part = os.read(controller, 65536)
        except OSError:  # Linux's way to say that it is over
            part = b""
        if not part:
            os.close(controller)
            return written.decode()
        written += part


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_a_slow_fit_in_a_terminal() -> None:
    text = watched(SLOW)
    first, *_ = lines = [line for line in text.split("\r\x1b[K") if line]
    assert re.match(r"KernelSoSDensity: iteration \d+, obj.*, \d s", first)
    assert any(re.search(r"about \d+\.\d s left\r$", line) for line in lines)
    assert all(len(line) <= 80 and "\n" not in line for line in lines)
    assert text.endswith("\r\x1b[K"), "the line is taken away at the end"


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
@pytest.mark.parametrize(
    ("seen", "environment"), [(False, {}), (True, {"KSOS_PROGRESS": "0"}), (True, {"TERM": "dumb"})]
)
def test_no_line_where_nobody_wants_it(seen: bool, environment: dict[str, str]) -> None:
    assert watched(SLOW, seen, **environment) == ""


def test_a_notebook_shows_a_line_that_is_overwritten(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = type("ZMQInteractiveShell", (), {})()
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    clock = Clock()
    with shown("fit", clock=clock):
        for word in ("a long word", "short"):
            clock.now += 3.0
            tell(word)
    assert (
        capsys.readouterr().err
        == "\rfit: a long word, 3 s\rfit: short, 6 s      \r" + " " * 15 + "\r"
    )
