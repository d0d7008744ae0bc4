"""Files that a command will write: refused before the work begins where they cannot be."""

from __future__ import annotations

import os

from ksos.cli.errors import InputError

__all__ = ["require_writable"]


def require_writable(path: str) -> None:
    """Raise when ``path`` cannot become a file, or is something that must not be replaced by one."""
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path) or path.endswith(os.sep):
        raise InputError(f"{path} is a folder; the name of a file was expected")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError(f"{path} is not a regular file; name one to write")
    if not os.path.isdir(folder):
        raise InputError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: no permission to create files in {folder}")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise InputError(f"cannot write {path}: the file is protected; change its permissions or name another")
