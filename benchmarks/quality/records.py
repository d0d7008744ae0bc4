"""One line of JSON per (data set, n, seed, contestant), appended as it is measured: runs can be cut
short, resumed and merged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Key", "Record", "append", "key_of", "mend", "read", "read_all"]

Record = dict[str, Any]


class Key(NamedTuple):
    """What a record is about."""

    dataset: str
    n: int
    seed: int
    contestant: str


def key_of(record: Record) -> Key:
    return Key(record["dataset"], record["n"], record["seed"], record["contestant"])


def append(path: Path, record: Record) -> None:
    """One more line; infinities are written as words, so that every JSON reader takes the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(plain, allow_nan=False) + "\n")


def mend(path: Path) -> None:
    """Drop a last line that was cut short, so that the next record begins a line of its own."""
    if path.exists():
        whole = path.read_bytes()
        path.write_bytes(whole[: whole.rfind(b"\n") + 1])


def read(path: Path) -> Iterator[Record]:
    """The records of one file; a last line that was cut short is left out, any other broken line is
    an error.
    """
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            if number == len(lines):
                return
            raise ValueError(
                f"{path}, line {number} is not JSON: {error}; delete the line to go on without it"
            ) from None
        yield {
            key: float(value) if value in ("inf", "-inf", "nan") else value
            for key, value in record.items()
        }


def read_all(paths: Iterable[Path]) -> list[Record]:
    """Several files merged; of records about the same thing the last one counts, and a failure only
    where there is nothing else.
    """
    found = [record for path in paths if path.exists() for record in read(path)]
    merged = {
        key_of(record): record for record in sorted(found, key=lambda record: "error" not in record)
    }
    return [merged[key] for key in sorted(merged)]
