"""What holds for every test: hypothesis repeats itself exactly, matplotlib never opens a window,
and interrupts are heard.
"""

from __future__ import annotations

import os
import signal

# before anything imports matplotlib, and inherited by the processes that tests start
os.environ["MPLBACKEND"] = "Agg"

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
