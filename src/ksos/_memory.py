"""Predict the memory of a step and refuse it in words before the allocation fails."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

from ksos._array import free_device_memory

__all__ = ["FLOAT_BYTES", "available_memory", "require_memory"]

FLOAT_BYTES = 8
_REMEMBERED_SECONDS = 0.02  # asking the system takes longer than a small problem; in this time no more than some 100 MB can be filled

_remembered = -math.inf, 0.0  # when, and the answer


def available_memory() -> float:
    """Bytes that this process may still allocate: the machine's, or its control group's where that is less."""
    global _remembered
    asked, answer = _remembered
    now = time.monotonic()
    if now - asked > _REMEMBERED_SECONDS:
        candidates = [_machine_memory(), _group_memory()]
        answer = min(candidate for candidate in candidates if candidate is not None)
        _remembered = now, answer
    return answer


def require_memory(needed: float, what: str, remedy: str, *, beside: Any = None) -> None:
    """Raise :class:`MemoryError` when ``needed`` bytes for ``what`` do not fit; the message ends with ``remedy``.

    With ``beside`` the memory of that array's device counts: a GPU's, where it lies on one.
    """
    available = available_memory() if (free := free_device_memory(beside)) is None else free
    if needed > available:
        raise MemoryError(f"{what} needs {_gigabytes(needed)}, but only {_gigabytes(available)} are available; {remedy}")


def _gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.3g} GB"


def _machine_memory() -> float:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return float(line.split()[1]) * 1024.0
    except (OSError, ValueError, IndexError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return float("inf")  # nothing is known: let the allocator speak


def _group_memory() -> float | None:
    """Limit minus use of the control group; pages that only cache files count as free, since the kernel drops them on demand."""
    for folder, limit, used, cache in (
        (Path("/sys/fs/cgroup"), "memory.max", "memory.current", "inactive_file "),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        try:
            free = float((folder / limit).read_text()) - float((folder / used).read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
            return max(free + sum(float(line.split()[1]) for line in lines if line.startswith(cache)), 0.0)
        except (OSError, ValueError, IndexError):  # no such file, or the word "max"
            continue
    return None
