"""What is available is what the process may really take, and what does not fit is refused before it
is allocated.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ksos
from ksos.functionals import NegativeLogLikelihood, SquaredL2, Trace
from ksos.ground import available_memory, group_memory, resources
from ksos.kernels import Gaussian
from ksos.measures import Box

GENERATIONS = {
    "second": ("cgroup2", "0::", "rw", ("memory.max", "memory.current", "inactive_file")),
    "first": (
        "cgroup",
        "4:cpu,memory:",
        "rw,memory",
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ),
}


def process(
    folder: Path,
    generation: str,
    groups: dict[str, tuple[str, int, int]],
    own: str,
    root: str = "/",
) -> Path:
    """A /proc folder of a process in the group ``own``, with the limits, use and cached files of
    ``groups``.
    """
    kind, line, options, (limit, used, cache) = GENERATIONS[generation]
    proc, top = folder / "proc", folder / "groups"
    proc.mkdir()
    (proc / "cgroup").write_text(f"9:name=systemd:/elsewhere\n{line}{own}\n")
    (proc / "mountinfo").write_text(
        f"20 1 8:1 / / rw - ext4 /dev/sda rw\n35 31 0:32 {root} {top} rw,relatime - {kind} {kind}"
        f" {options}\n"
    )
    for name, (most, taken, cached) in groups.items():
        group = top / name
        group.mkdir(parents=True, exist_ok=True)
        for file, text in (
            (limit, most),
            (used, taken),
            ("memory.stat", f"anon 5\n{cache} {cached}\n"),
        ):
            (group / file).write_text(f"{text}\n")
    return proc


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_groups_of_the_process_count_all_the_way_up(generation: str, tmp_path: Path) -> None:
    none = "max" if generation == "second" else str(2**63 - 4096)
    own = {
        "": (none, 900, 0),
        "a": ("5000", 1000, 500),
        "a/b": ("3000", 1200, 300),
        "other": ("10", 10, 0),
    }
    assert group_memory(process(tmp_path, generation, own, "/a/b")) == 2100.0


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_group_above_may_be_tighter(generation: str, tmp_path: Path) -> None:
    groups = {"a": ("2000", 1500, 100), "a/b": ("9000", 100, 0)}
    assert group_memory(process(tmp_path, generation, groups, "/a/b")) == 600.0


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize(
    ("own", "root"), [("/docker/7", "/docker/7"), ("/", "/"), ("/docker/7", "/docker/8")]
)
def test_in_a_container_the_top_of_what_is_mounted_is_its_group(
    generation: str, own: str, root: str, tmp_path: Path
) -> None:
    assert group_memory(process(tmp_path, generation, {"": ("700", 100, 0)}, own, root)) == 600.0


def test_without_groups_or_limits_there_is_none(tmp_path: Path) -> None:
    assert group_memory(tmp_path) is None
    assert group_memory(process(tmp_path, "second", {"a": ("max", 5, 0)}, "/a")) is None


@pytest.mark.skipif(
    sys.platform != "linux", reason="the limit of the address space is known on Linux"
)
def test_the_limit_of_the_address_space_counts() -> None:
    code = (
        "import resource; from ksos.ground import available_memory as free; before = free();"
        " resource.setrlimit(resource.RLIMIT_AS, (8 << 30, resource.RLIM_INFINITY)); import time;"
        " time.sleep(0.05); used = int(open('/proc/self/statm').read().split()[0]) *"
        " resource.getpagesize(); assert abs(free() - min(before, (8 << 30) - used)) < 0.05 * (8 <<"
        " 30), (free(), before, used)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_basis_of_samples_is_forecast() -> None:
    X = np.random.default_rng(0).normal(size=(400, 1))
    space = ksos.SoSSpace(Gaussian(0.5), X[:30], Box([-5.0], [5.0]))
    for functional, count in (
        (NegativeLogLikelihood(X) + 0.1 * Trace(relative=True), "400"),
        (SquaredL2(X) + 1e-3 * Trace(), r"\d+"),
    ):
        message = (
            rf"the basis of 30 support points at {count} points needs .* GB, but only .*; use fewer"
            r" samples or support points"
        )
        with resources(memory=1e4), pytest.raises(MemoryError, match=message):
            ksos.minimize(functional, space)
        assert ksos.minimize(functional, space).status == "solved"
    assert available_memory() > 1e6
