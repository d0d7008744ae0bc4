"""A run: its end, the estimate of the time left, what it prints and the line a terminal shows."""

from __future__ import annotations

import io
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
from ksos.ground import Run, Steps, TimeUp


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
    assert lines[-1].startswith("[low_rank]") and lines[-1].endswith(" s")


def test_stages_have_the_time_since_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    Run(verbose=1, clock=iter([10.0, 12.5]).__next__).report("fit", "bandwidth")
    assert capsys.readouterr().out == "[fit] bandwidth  2.50 s\n"


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
        with Run(line=lines, after=0.0, clock=Ticking()):
            ask()
        assert any(re.match(told, line) for line in lines.lines), lines.lines


def test_steps_foretell_the_time_left_by_their_costs() -> None:
    lines, clock, costs = Lines(), Clock(), [4.0, 1.0, 1.0, 2.0]
    with Run(None, "search", line=lines, after=0.0, clock=clock):
        steps = Steps(costs)
        for number, cost in enumerate(costs):
            steps.begin("mixtures")
            clock.now += 3.0 * cost
            with Run():  # a call inside knows its own part
                Run.current().tell("solver", 1.0, 2.0)
            left = 3.0 * sum(costs[number + 1 :])
            assert lines.lines[-1].startswith(f"search: step {number + 1} of 4: mixtures: solver, ")
            foretold = f"; about {left:.0f} s left"
            assert lines.lines[-1].endswith(foretold if number else " s"), "one step tells nothing"
    assert lines.erased == 1 and not Run.current().shown


def test_what_is_not_known_is_not_foretold() -> None:
    lines, clock = Lines(), Clock()
    with Run(line=lines, after=0.0, clock=clock):
        Run.current().tell("first multiplier", 0, 10)
        with Run():
            clock.now += 5.0
            Run.current().tell("iteration 3")
    assert lines.lines == ["first multiplier", "first multiplier: iteration 3, 5 s"]


def test_quick_calls_show_nothing_and_verbose_ones_speak_for_themselves() -> None:
    lines, clock = Lines(), Clock()
    with Run(None, "fit", line=lines, clock=clock):
        clock.now += 1.9
        Run.current().tell("bandwidth")
        assert lines.lines == []
        clock.now += 0.2
        Run.current().tell("support")
        assert lines.lines == ["fit: support, 2 s"]
    with (
        Run(None, "fit", line=lines, clock=clock, verbose=1),
        Run(None, "minimize", line=lines, clock=clock),
    ):
        clock.now += 100.0
        Run.current().tell("iteration 1")
        assert not Run.current().shown
    assert len(lines.lines) == 1 and lines.erased == 1


def test_time_passes_on_the_line() -> None:
    lines = Lines()
    with Run(None, "fit", line=lines, after=0.0) as run:
        run.tell("bandwidth")
        for _ in range(100):
            if len(lines.lines) > 1:
                break
            threading.Event().wait(0.1)
    assert len(lines.lines) > 1 and all("bandwidth" in line for line in lines.lines)


def test_no_run_ends_later_than_the_one_around_it() -> None:
    clock = Clock()
    with Run(10.0, clock=clock) as outer:
        clock.now += 4.0
        with Run() as inner, Run(20.0) as third, Run(2.0) as short:
            found = [run.remaining for run in (outer, inner, third, short)]
            assert found == [6.0, 6.0, 6.0, 2.0] and Run.current() is short
            clock.now += 3.0
            assert short.over and not third.over and (third.elapsed, third.used) == (3.0, 0.5)
            assert short.limit() > 0.0 and third.limit(0.5) == 1.5
        assert Run.current() is outer and (outer.used, outer.limit()) == (0.7, 3.0)
    assert Run.current().limit() is None and not Run.current().over


def test_steps_that_end_late_are_not_begun() -> None:
    clock = Ticking()
    with Run(100.0, clock=clock) as run:
        run.require_time(1e9, "a short step")
        assert run.allows(run.remaining + 20.0) and not run.allows(run.remaining + 30.0)
        with pytest.raises(TimeUp, match="the factorization takes about"):
            run.require_time(1e12, "the factorization")  # at 2·512³ operations per second
        assert 0.0 < run.operations(0.5) < 2.0 * 512.0**3 * 50.0
    Run.current().require_time(1e30, "anything at all")


def test_an_interrupt_and_a_canceled_call_end_every_stage() -> None:
    clock = Clock()
    with Run(clock=clock) as outer:
        with Run(), Run() as inner:
            inner.interrupt(grace=5.0)
            clock.now += 4.0
            assert outer.interrupted and not outer.over
        clock.now += 2.0
        with Run(100.0) as later:
            assert later.over and later.interrupted and not later.allows(1e-3)
    assert not Run.current().over and not Run.current().interrupted
    end = threading.Event()
    with Run(canceled=end.is_set), Run(10.0) as inside, inside.setup(0.5):
        assert not inside.over and not inside.setup_is_over(0.5)
        end.set()
        assert inside.over and inside.setup_is_over(0.5) and not inside.allows(1e-3)
    assert not Run.current().over


def test_a_run_that_was_never_closed_is_forgotten() -> None:
    """As if Ctrl-C had come just before the end of the ``with`` block."""

    def interrupted() -> None:
        Run(1e-9).__enter__()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not Run.current().over


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
        lambda: regression(ksos.RobustRegressor(radius=0.5, shift="both", n_support=16)),
        ["radius 0.5, 1 of 1"],
    ),
    "auto radius": (lambda: regression(ksos.RobustRegressor()), ["held-out losses with radius"]),
    "worst case": (
        lambda: ksos.worst_case(
            lambda X: np.cos(X[:, 0]),
            ksos.Ball(blobs(30, 1), 0.1, domain=ksos.measures.Box([-4.0], [4.0])),
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
        ["999 permutations, kernel 4 of 4"],
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

    with Run(line=lines, after=0.0, clock=later):
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
    with Run(line=lines, after=0.0, clock=later), pytest.raises(KeyboardInterrupt):
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


def read_all(controller: int) -> str:
    """What was written to a terminal whose other end is closed."""
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
    """Of 80 columns."""
    import pty

    controller, device = pty.openpty()
    environment = {"TERM": "xterm", "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", SLOW],
        env={**os.environ, "PYTHONPATH": str(Path(ksos.__file__).parents[1]), **environment},
        stdout=subprocess.PIPE,
        stderr=device,
        text=True,
        timeout=100,
    )
    os.close(device)
    text = read_all(controller)
    assert (done.returncode, done.stdout) == (0, "done\n")
    first, *_ = lines = [line for line in text.split("\r") if line]
    assert re.match(r"KernelSoSDensity: iteration \d+, obj.*, \d s", first)
    assert any(re.search(r"iteration \d+, .* s *$", line) for line in lines)
    assert all(len(line) < 80 and "\n" not in line for line in lines)
    assert lines[-1].isspace() and text.endswith("\r"), "the line is erased at the end"


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
@pytest.mark.parametrize(
    ("environment", "shown"),
    [({}, True), ({"KSOS_PROGRESS": "0"}, False), ({"TERM": "dumb"}, False)],
)
def test_no_line_where_nobody_wants_it(
    environment: dict[str, str], shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, of a fit that has taken long by its first look at the clock; files and pipes
    get no line.
    """
    import pty

    controller, device = pty.openpty()
    for name, value in {"TERM": "xterm", **environment}.items():
        monkeypatch.setenv(name, value)
    texts = []
    for stream in (os.fdopen(device, "w"), io.StringIO()):
        monkeypatch.setattr(sys, "stderr", stream)
        with Run(None, "a test", clock=Ticking()):
            ksos.KernelSoSDensity(tol=1e-2).fit(blobs(20))
        texts.append(stream.getvalue() if isinstance(stream, io.StringIO) else "")
        if not isinstance(stream, io.StringIO):
            stream.close()
            texts[-1] = read_all(controller)
    assert [bool(text) for text in texts] == [shown, False]


def test_a_notebook_shows_a_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shell = SimpleNamespace(config={})  # of IPython, but without the widgets of a notebook
    ipython: Any = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    clock = Clock()
    with Run(None, "fit", clock=clock) as run:
        clock.now += 3.0
        run.tell("bandwidth")
    assert "fit: bandwidth, 3 s" in capsys.readouterr().err
