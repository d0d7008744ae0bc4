"""What holds for every test: hypothesis repeats itself exactly, matplotlib never opens a window,
interrupts are heard, and garbage is not sought among the tests themselves.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator

# before anything imports matplotlib, and inherited by the processes that tests start
os.environ["MPLBACKEND"] = "Agg"

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "ksos",
    derandomize=True,  # the same examples on every machine: a red run is red again
    database=None,
    deadline=None,  # a busy machine must not fail a test
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("ksos")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # so it is in the background of a shell, and the processes that tests start would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """The collected tests and their modules are millions of objects that live to the end. Python
    would look through them again and again, for a tenth of the time of the suite.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
