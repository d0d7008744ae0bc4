"""What holds for every test: hypothesis repeats itself exactly, and matplotlib never opens a window."""

from __future__ import annotations

import os

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib, and inherited by the processes that tests start

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
