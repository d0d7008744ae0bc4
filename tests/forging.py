"""Model files made by hand, with right checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ksos import load
from ksos.exceptions import ModelFormatError

__all__ = ["MAGIC", "arrays_of", "forge", "forge_arrays", "refuse", "take_apart"]

MAGIC = b"\x89KSOS\r\n\x1a"


def take_apart(content: bytes) -> tuple[dict[str, Any], bytes]:
    start = 48 + int.from_bytes(content[8:16], "little")
    return json.loads(content[48:start]), content[start:]


def forge(header: Any, data: bytes, *, raw: bytes | None = None) -> bytes:
    """A file with this header (or the bytes ``raw`` in its place) and right checksums."""
    if raw is None:
        if isinstance(header, dict) and "sha256" in header:
            header = header | {"sha256": hashlib.sha256(data).hexdigest()}
        raw = json.dumps(header).encode()
    raw += b" " * (-(48 + len(raw)) % 64)
    return MAGIC + len(raw).to_bytes(8, "little") + hashlib.sha256(raw).digest() + raw + data


def forge_arrays(header: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A file with this header and these arrays, listed as they are."""
    values = {name: np.asarray(value, dtype="<f8") for name, value in arrays.items()}
    listed = [{"name": name, "shape": list(value.shape)} for name, value in values.items()]
    return forge(
        header | {"arrays": listed}, b"".join(value.tobytes() for value in values.values())
    )


def arrays_of(content: bytes) -> dict[str, np.ndarray]:
    header, data = take_apart(content)
    numbers, out = np.frombuffer(data, "<f8"), {}
    for entry in header["arrays"]:
        size = int(np.prod(entry["shape"]))
        out[entry["name"]], numbers = numbers[:size].reshape(entry["shape"]).copy(), numbers[size:]
    return out


def refuse(folder: Path, forged: bytes, match: str | None = None) -> None:
    file = folder / "forged.ksos"
    file.write_bytes(forged)
    with pytest.raises(ModelFormatError, match=match) as caught:
        load(file)
    assert type(caught.value) is ModelFormatError
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 1000
