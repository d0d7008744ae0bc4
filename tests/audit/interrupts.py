"""Ctrl-C at random moments: each must end the call, as KeyboardInterrupt or with the status
"interrupted"; an answer has swallowed it.

A moment is the n-th call of a function of the library, at which the signal is raised in the process
itself: it comes while the call is running, and the same seed gives the same moment on every
machine. The benchmark sends signals from a timer besides.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np

import ksos
from audit.referee import Finding
from ksos.functionals import MMD, Expectation, NegativeLogLikelihood, SquaredMMD, Trace, within
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import coordinate

_LIBRARY = os.path.dirname(ksos.__file__)
_LINE = Box([-2.0], [2.0])
_HEARD = ("interrupted", "raised")


def _calls() -> dict[str, Callable[[], str]]:
    rng = np.random.default_rng(3)
    X = rng.normal(scale=0.6, size=(14, 1))
    y = (X[:, 0] + 0.3 * rng.normal(size=14) > 0.0).astype(int)
    space = ksos.SoSSpace(Gaussian(0.7), X, _LINE)
    ball = within(MMD(ksos.MeanEmbedding(X, kernel=Gaussian(0.7))), 0.2)
    square = coordinate(0) ** 2
    near = ksos.Ball(X, 0.2, kernel=Gaussian(1.0), domain=_LINE)
    return {
        "fit": lambda: ksos.KernelSoSDensity().fit(X).solution_.status,
        "fit by likelihood": lambda: (
            ksos.KernelSoSDensity(objective="likelihood").fit(X).solution_.status
        ),
        "minimize": lambda: ksos.minimize(SquaredMMD(X) + 1e-3 * Trace(), space).status,
        "minimize, lbfgs": lambda: (
            ksos.minimize(NegativeLogLikelihood(X) + 0.1 * Trace(), space, solver="lbfgs").status
        ),
        "minimize, constrained": lambda: (
            ksos.minimize(Expectation(square) + 1e-3 * Trace(), space, ball).status
        ),
        "regularization_path": lambda: (
            ksos.regularization_path(SquaredMMD(X), Trace(), [1e-2, 1e-3], space)[1].status
        ),
        "worst_case": lambda: ksos.worst_case(square, near, n_support=10).status,
        "worst_case of code": lambda: (
            ksos.worst_case(lambda Y: np.abs(Y[:, 0]), near, n_support=10).status
        ),
        "robust_mode": lambda: ksos.robust_mode(near, n_grid=3, rtol=1e-05, n_support=10).status,
        "RobustClassifier.fit": lambda: (
            ksos.RobustClassifier(radius=0.2, n_support=10, random_state=0)
            .fit(X, y)
            .solution_.status
        ),
    }


class Interrupts:
    """The calls, and how many calls of the library each of them makes."""

    def __init__(self) -> None:
        self.calls, self._lengths = _calls(), {}

    def at_a_moment(self, seed: int) -> list[Finding]:
        """One signal, raised at a random call of a function of the library."""
        rng = np.random.default_rng([22, seed])
        name = list(self.calls)[seed % len(self.calls)]
        if name not in self._lengths:
            self._run(name, sys.maxsize)  # imports and caches
            self._lengths[name] = self._run(name, sys.maxsize)[1]
        moment = int(rng.integers(1, self._lengths[name]))
        answer, count = self._run(name, moment)
        if count < moment or answer in _HEARD:
            return []
        return [
            Finding(
                f"interrupt {seed}: {name}, call {moment} of {self._lengths[name]}",
                f"swallowed, {answer}",
                0.0,
                1.0,
            )
        ]

    def _run(self, name: str, moment: int) -> tuple[str, int]:
        """What the call answers when a signal comes at that moment, and how many calls of the
        library there were until then.
        """
        count, handler = 0, signal.signal(signal.SIGINT, signal.default_int_handler)

        def watch(frame: FrameType, event: str, argument: Any) -> None:
            nonlocal count
            code = frame.f_code
            # a generator that is left early is closed by Python, which drops what is raised in it
            if (
                event == "call"
                and code.co_filename.startswith(_LIBRARY)
                and not code.co_flags & inspect.CO_GENERATOR
            ):
                count += 1
                if count == moment:
                    sys.setprofile(None)
                    signal.raise_signal(signal.SIGINT)

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                sys.setprofile(watch)
                answer = self.calls[name]()
        except KeyboardInterrupt:
            answer = "raised"
        finally:
            sys.setprofile(None)
            signal.signal(signal.SIGINT, handler)
        return answer, count

    def by_a_timer(self, seed: int) -> list[Finding]:
        """One signal, sent to the process after a random time; a call that ended before it came
        proves nothing.
        """
        rng, name = np.random.default_rng([23, seed]), list(self.calls)[seed % len(self.calls)]
        handler, sent = signal.signal(signal.SIGINT, signal.default_int_handler), threading.Event()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.calls[name]()
                began = time.perf_counter()
                self.calls[name]()
                delay = float(rng.uniform(0.0, 0.9 * (time.perf_counter() - began)))
                timer, ended = (
                    threading.Timer(
                        delay, lambda: (sent.set(), os.kill(os.getpid(), signal.SIGINT))
                    ),
                    False,
                )
                try:  # from here on: on a busy machine the signal may come before the start returns
                    timer.start()
                    answer = self.calls[name]()
                    ended = not sent.is_set()
                    timer.cancel()
                    timer.join()
                except KeyboardInterrupt:
                    answer = "raised"
        finally:
            signal.signal(signal.SIGINT, handler)
        heard = ended or answer in _HEARD
        return (
            []
            if heard
            else [
                Finding(
                    f"interrupt {seed}: {name}, after {delay:.4f} s",
                    f"swallowed, {answer}",
                    0.0,
                    1.0,
                )
            ]
        )
