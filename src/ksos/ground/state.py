"""Files of sums that are still growing: words and arrays in one NPZ archive, written whole or not
at all.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ksos.exceptions import ModelFormatError
from ksos.ground.files import replace_whole

__all__ = ["read_state", "write_state"]

_WORDS = "words"


def write_state(
    path: str | os.PathLike[str],
    kind: str,
    words: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Make the file ``path`` hold ``words`` (plain values) and ``arrays``; a killed process leaves
    the old file or the new.
    """
    text = json.dumps({"kind": kind, **words}).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{_WORDS: np.frombuffer(text, dtype=np.uint8)}, **arrays)
    replace_whole(path, [buffer.getbuffer()])


def read_state(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The words and arrays of such a file; ModelFormatError if it is damaged or of another kind."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {
                name: stored[name] for name in stored.files
            }  # every member carries a checksum
        words = json.loads(arrays.pop(_WORDS).tobytes())
        found = words.pop("kind")
    except (
        ValueError,
        KeyError,
        AttributeError,
        EOFError,
        zipfile.BadZipFile,
        UnicodeDecodeError,
        NotImplementedError,
    ) as error:
        raise ModelFormatError(
            f"{os.fspath(path)} is no file of {kind}, or it is damaged: {error}; remove it and"
            " begin again"
        ) from None
    if found != kind:
        raise ModelFormatError(f"{os.fspath(path)} holds {found}, but {kind} was expected")
    return words, arrays
