"""Files written whole or not at all, whatever stops the writing; and those of sums that are still
growing, words and arrays in one NPZ archive.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ksos.exceptions import ModelFormatError

_ARRAY = "an array of this file"  # what stands in the words for an array


def replace_whole(
    path: str | bytes | os.PathLike[str],
    parts: Iterable[bytes | memoryview],
    head: Callable[[], bytes] | None = None,
) -> None:
    """Make ``parts``, one after the other, the content of the file ``path``; at every moment the
    old file or the new one is there, whole.

    ``head``, asked when all parts are written, gives what the file begins with instead of its first
    bytes, such as how much follows.

    A temporary file beside it is filled, flushed to the disk, and takes its name. A file that
    exists keeps its permissions, a new one gets those of the umask; links are followed, and stay.

    Raises
    ------
    OSError
        With ``path`` as its file name, when the file cannot be written, or is something that a new
        name would destroy, such as a device; then what was there is untouched and nothing else is
        left behind.
    """
    target = Path(os.path.realpath(os.fsdecode(path)))
    temporary = target.with_name(f".ksos-{secrets.token_hex(8)}.tmp")
    try:
        mode = _existing_mode(target)
        try:
            # O_EXCL: a link that somebody else made under this name is not followed
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
            with os.fdopen(
                os.open(temporary, flags, 0o666 if mode is None else mode), "wb"
            ) as file:
                if mode is not None:
                    # os.open left out what the umask forbids
                    os.chmod(temporary, mode)
                for part in parts:
                    file.write(part)
                if head is not None:
                    file.seek(0)
                    file.write(head())
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        # the new name itself, where the system opens folders and can flush them
        with contextlib.suppress(OSError):
            descriptor = os.open(target.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        # the user's name for it, not the temporary one; an error of what computes the parts has its
        # own name, or no number
        if error.errno is not None and error.filename in (None, str(target), str(temporary)):
            error.filename = os.fsdecode(path)
            # None would be printed as a second name
            del error.filename2
        raise


# The permissions of the file to be replaced, or None if there is no such file; OSError if it must
# not be replaced.
def _existing_mode(target: Path) -> int | None:
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(
            errno.EINVAL, "Not a regular file, which alone can be replaced in one step", str(target)
        )
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    return stat.S_IMODE(found.st_mode) & 0o777


def write_state(path: str | os.PathLike[str], kind: str, state: Mapping[str, Any]) -> None:
    """Make the file ``path`` hold a ``state``: plain values and arrays, in dictionaries at any
    depth. A killed process leaves the old file or the new.
    """
    arrays: dict[str, np.ndarray] = {}

    def numbered(array: np.ndarray) -> dict[str, str]:
        arrays[name := f"array {len(arrays)}"] = array
        return {_ARRAY: name}

    text = json.dumps({"kind": kind, **state}, default=numbered).encode()
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{"words": np.frombuffer(text, dtype=np.uint8)}, **arrays)
    replace_whole(path, [buffer.getbuffer()])


def read_state(path: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """The state in such a file; ModelFormatError if it is damaged or of another kind."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
            # every member carries a checksum
            arrays = {name: stored[name] for name in stored.files}
        state: dict[str, Any] = json.loads(
            arrays.pop("words").tobytes(),
            object_hook=lambda held: arrays[held[_ARRAY]] if _ARRAY in held else held,
        )
        found = state.pop("kind")
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
    return state
