"""Predict the memory of a step and raise in words before the allocation fails; cut large work
into blocks.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from ksos.ground.arrays import free_device_memory

FLOAT_BYTES = 8  # of a float64
CACHE_ELEMENTS = 1 << 16
"""Half a megabyte of float64: a block of this many entries stays in the cache while it is worked
on.
"""

_REMEMBERED_SECONDS = 0.02  # asking takes longer than a small problem; by then 100 MB fill at most

_remembered = -math.inf, 0.0  # when, and the answer
_memory_limit: ContextVar[float] = ContextVar("memory_limit", default=math.inf)
_largest_block: ContextVar[float] = ContextVar("largest_block", default=math.inf)


@contextmanager
def resources(*, memory: float = math.inf, block: float = math.inf) -> Iterator[None]:
    """Work as on a smaller machine: with at most ``memory`` bytes, in blocks of at most ``block``
    entries.
    """
    tokens = _memory_limit.set(memory), _largest_block.set(block)
    try:
        yield
    finally:
        _memory_limit.reset(tokens[0])
        _largest_block.reset(tokens[1])


def row_blocks(n_rows: int, n_columns: int, elements: int = CACHE_ELEMENTS) -> Iterator[slice]:
    """Slices that cut ``n_rows`` rows of an (n_rows × n_columns) array into blocks of about
    ``elements`` entries.
    """
    # at least one row, however wide it is
    step = max(1, int(min(elements, _largest_block.get())) // max(n_columns, 1))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def available_memory() -> float:
    """Bytes that this process may still allocate: the machine's, its control groups' or those of
    its own limit, whichever is least.
    """
    global _remembered
    asked, answer = _remembered
    now = time.monotonic()
    if now - asked > _REMEMBERED_SECONDS:
        candidates = [_machine_memory(), group_memory(), _process_memory()]
        answer = min(candidate for candidate in candidates if candidate is not None)
        _remembered = now, answer
    return min(answer, _memory_limit.get())


def require_memory(needed: float, what: str, fix: str, *, beside: Any = None) -> None:
    """Raise :class:`MemoryError` when ``needed`` bytes for ``what`` do not fit; the message ends
    with ``fix``.

    With ``beside``, the memory of the device of that array counts, which may be a GPU.
    """
    # a tensor on a GPU takes the memory of that GPU
    available = available_memory() if (free := free_device_memory(beside)) is None else free
    if needed > available:
        raise MemoryError(
            f"{what} needs {_gigabytes(needed)}, but only {_gigabytes(available)} are available;"
            f" {fix}"
        )


def _gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.3g} GB"


def _machine_memory() -> float:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    with suppress(AttributeError, ValueError, OSError):
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    # nothing is known: let the allocator speak
    return math.inf


# What the limit of the process's address space (``ulimit -v``) leaves.
def _process_memory() -> float | None:
    with suppress(
        ImportError, AttributeError, OSError, ValueError, IndexError
    ):  # not on every system
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            return max(float(limit - used), 0.0)
    return None


# Of the two generations of control groups: the kind of the file system, the name in
# /proc/self/cgroup, the files of the limit and of what is used, and what pages of files are called.
_CONTROLLERS = (
    ("cgroup2", "", "memory.max", "memory.current", "inactive_file "),
    (
        "cgroup",
        "memory",
        "memory.limit_in_bytes",
        "memory.usage_in_bytes",
        "total_inactive_file ",
    ),
)


def group_memory(process: Path = Path("/proc/self")) -> float | None:
    """The least that the control group of a process, or a group above it, leaves: limit minus use;
    None without a limit.

    Pages that only cache files count as free, since the kernel drops them on demand.
    """
    free = []
    for folder, *names, cache_name in _groups(process):
        # no such file, or the word "max"
        with suppress(OSError, ValueError, IndexError):
            limit, used = (float((folder / name).read_text()) for name in names)
            lines = (folder / "memory.stat").read_text().splitlines()
            cached = (line.split()[1] for line in lines if line.startswith(cache_name))
            free.append(max(limit - used + sum(map(float, cached)), 0.0))
    return min(free, default=None)


# The folders of the groups that a process belongs to, from its own to the top of what is mounted.
@cache
def _groups(process: Path) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    with suppress(OSError, ValueError, IndexError):
        own = {
            line.split(":", 2)[1]: line.split(":", 2)[2]
            for line in (process / "cgroup").read_text().splitlines()
        }
        for line in (process / "mountinfo").read_text().splitlines():
            before, after = line.split(" - ", 1)
            root, top = (text.replace("\\040", " ") for text in before.split()[3:5])
            kind, _, options = after.split()[:3]
            for own_kind, name, *inside_it in _CONTROLLERS:
                names = [names for names in own if name in names.split(",")]
                listed = not name or name in options.split(",")
                if kind != own_kind or not names or not listed:
                    continue
                inside = Path(os.path.relpath(own[names[0]], root))
                # in a container, the top of what is mounted is the group of the process
                parts = () if ".." in inside.parts else inside.parts
                found += [(Path(top, *parts[:n]), *inside_it) for n in range(len(parts) + 1)]
    return found
