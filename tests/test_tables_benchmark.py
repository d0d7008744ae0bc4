"""The benchmark that sends tables through the command line: what it counts as through, and the
options that it tries.
"""

from __future__ import annotations

import importlib.util
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="needs a timer of POSIX")


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """By its path: a file of the tests has the same name."""
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "tables.py"
    spec = importlib.util.spec_from_file_location("benchmark_of_tables", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_table_goes_through(benchmark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"car {k}" for k in range(12)]  # a level per row is an error that names the option
    frame = pd.DataFrame({"name": names, "hp": rng.normal(size=12), "mpg": rng.normal(size=12)})
    frame.loc[3, "hp"] = np.nan
    found = benchmark.go_through(frame, tmp_path)
    assert {command: outcome.code for command, outcome in found.items()} == dict.fromkeys(
        benchmark.COMMANDS, 0
    )
    assert {command: outcome.option for command, outcome in found.items() if outcome.option} == {
        "fit": "--clean",
        "score": "--drop-missing",
    }
    assert benchmark._line("cars", frame.shape, found).endswith(
        "| fit `--clean`, score `--drop-missing` |"
    )


def test_a_table_without_numbers_does_not(benchmark: Any, tmp_path: Path) -> None:
    found = benchmark.go_through(pd.DataFrame({"name": ["a", "b"], "kind": ["c", "d"]}), tmp_path)
    assert [outcome.code for outcome in found.values()] == [1] and "(refused)" in benchmark._line(
        "words", (2, 2), found
    )
