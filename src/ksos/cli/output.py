"""Files that a command writes: refused early where they cannot be, whole or not at all where they can."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import BinaryIO

from ksos.cli.errors import InputError

__all__ = ["require_writable", "write_whole"]


def require_writable(path: str) -> None:
    """Raise before the work begins when ``path`` cannot become a file, or is something that a rename would destroy."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or path.endswith(os.sep):
        raise InputError(f"{path} is a folder; the name of a file was expected")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path} is not a regular file; name one to write")
    if not os.path.isdir(folder):
        raise InputError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: no permission to create files in {folder}")


def write_whole(path: str, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path`` and rename it: the old file or the new one is there, never a part."""
    require_writable(path)
    target = os.path.realpath(path)  # a link stays a link
    descriptor, temporary = tempfile.mkstemp(prefix=".ksos-", dir=os.path.dirname(target))
    try:
        with os.fdopen(descriptor, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, _mode(target))
        os.replace(temporary, target)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError):
            error.filename, error.filename2 = path, None  # the user's name for it, not the temporary one
        raise


def _mode(target: str) -> int:
    """The permissions of the file that is replaced, or those that a new file gets."""
    try:
        return os.stat(target).st_mode & 0o777
    except FileNotFoundError:
        umask = os.umask(0)
        os.umask(umask)
        return 0o666 & ~umask
