"""What a command says and how it ends.

Results go to stdout, one line per warning or error to stderr, and progress to a terminal only. Here
are also the exit codes, the two errors that the command line itself raises, and the check of a file
that will be written.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from ksos.ground.run import Run, overwritable, shortened

__all__ = [
    "BAD_INPUT",
    "DONE",
    "INTERRUPTED",
    "NOT_CONVERGED",
    "NO_OUTPUT",
    "USAGE",
    "Console",
    "UsageError",
]
__all__ += [
    "described",
    "require_folder",
    "require_writable",
    "strict_json",
]

DONE, BAD_INPUT, USAGE, NOT_CONVERGED = range(4)
ERASE = "\r\x1b[K"
"""What takes a line of a terminal away: back to its beginning, and clear it to its end."""
NO_OUTPUT = "cannot write to the standard output: it is closed"
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C


class UsageError(Exception):
    """Something is wrong with the command line itself."""


class Console:
    """The two streams of one command; ``program`` ("ksos fit") begins every line on stderr."""

    def __init__(self, program: str) -> None:
        self.program = program
        self._status_shown = False
        self._warned: set[str] = set()
        self._lock = threading.RLock()  # the library's progress comes from a thread of its own
        self._answering = False

    def result(self, lines: Iterable[str]) -> None:
        """Write lines to stdout; a reader that has gone away (``| head``) is no error."""
        stream, self._answering = (
            sys.stdout,
            True,
        )  # which may be the same terminal: from now on there is no progress
        self.clear_status()
        if stream is None:
            raise ValueError(NO_OUTPUT)
        for line in lines:  # what makes the lines may fail too, in its own words
            if not self._written(stream, _encodable(line, stream) + "\n"):
                return
        self._written(stream, "")

    def _written(self, stream: TextIO, text: str) -> bool:
        """Write to stdout, nothing: flush it; False if nobody reads it any more."""
        try:
            stream.write(text)
            if not text:
                stream.flush()
        except BrokenPipeError:
            _silence(stream)
            return False
        except OSError as error:
            _silence(stream)
            raise ValueError(
                f"cannot write to the standard output: {error.strerror or error}"
            ) from None
        return True

    def answer(self, as_json: bool, value: dict[str, Any], lines: Iterable[str]) -> int:
        """Write one JSON object to stdout, or ``lines`` that say the same to a reader; returns the
        exit code of a command that is done.
        """
        self.result([strict_json(value)] if as_json else lines)
        return DONE

    def error(self, message: str) -> None:
        """One line on stderr that says what went wrong."""
        self.note(f"error: {message}")

    def warning(self, message: str) -> None:
        """One line on stderr, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            self.note(f"warning: {message}")

    def note(self, message: str) -> None:
        """One line on stderr that is neither."""
        with self._lock:
            self.clear_status()
            self._write_error(f"{self.program}: {_one_line(message)}\n")

    @property
    def watched(self) -> bool:
        """Whether stderr is a terminal on which a line can be overwritten."""
        return overwritable(sys.stderr)

    def status(self, text: str) -> None:
        """Show what the command does now, on a terminal only; each call overwrites the last."""
        Run.current().tell(text)

    def write(self, what: str, when: str = "") -> None:
        """Show a line of progress in the place of the last."""
        with self._lock:
            if self.watched and not self._answering:
                self._write_error(f"{ERASE}{shortened(_one_line(what), when)}")
                self._status_shown = True

    def clear_status(self) -> None:
        """Take the progress line away."""
        with self._lock:
            if self._status_shown:
                self._write_error(ERASE)
                self._status_shown = False

    erase = clear_status

    @contextlib.contextmanager
    def warnings_as_lines(self) -> Iterator[None]:
        """Show the library's warnings as one line each and leave out those addressed to
        programmers; restores what was before.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: self.warning(str(message))
            yield

    def close(self) -> None:
        """Flush what argparse may have written, so that nothing is left to fail while the
        interpreter ends.
        """
        self.clear_status()
        if sys.stdout is not None:
            try:
                sys.stdout.flush()
            except OSError:
                _silence(sys.stdout)

    def _write_error(self, text: str) -> None:
        if sys.stderr is None:
            return
        try:
            sys.stderr.write(_encodable(text, sys.stderr))
            sys.stderr.flush()
        except OSError:
            _silence(sys.stderr)


def strict_json(value: Any) -> str:
    """``value`` as JSON that every parser reads: numbers that are not finite become null.

    >>> strict_json({"mean": float("-inf"), "n": 3})
    '{"mean": null, "n": 3}'
    """
    return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _silence(stream: TextIO) -> None:
    """Send what is still buffered nowhere: it must not fail again when the interpreter closes the
    stream.
    """
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def described(part: Any, d: int) -> dict[str, Any]:
    """The name and the parameters of a kernel or a measure; of an array larger than one number per
    feature only the shape.

    >>> from ksos.measures import Box, Discrete
    >>> described(Box([0.0], [1.0]), 1)
    {'name': 'box', 'low': [0.0], 'high': [1.0]}
    >>> described(Discrete([[0.0], [1.0]]), 1)
    {'name': 'discrete', 'points': {'shape': [2, 1]}, 'weights': {'shape': [2]}}
    """
    import numpy as np

    shown: dict[str, Any] = {"name": part.name}
    for name, value in part.parameters().items():
        shape = np.shape(value)
        shown[name] = np.asarray(value).tolist() if np.prod(shape) <= d else {"shape": list(shape)}
    return shown


def require_writable(path: str | None) -> None:
    """Raise when ``path`` cannot become a file, or is something that must not be replaced by one;
    None is no file at all.
    """
    if path is None:
        return
    folder = os.path.dirname(path) or "."
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not the name of a file; name one to write")
    if os.path.isdir(path) or path.endswith(os.sep):
        raise ValueError(f"{path} is a folder; the name of a file was expected")
    if os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(f"{path} is not a regular file; name one to write")
    if not os.path.isdir(folder):
        raise ValueError(f"cannot write {path}: there is no folder {folder}; create it first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"cannot write {path}: no permission to create files in {folder}")
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise ValueError(
            f"cannot write {path}: the file is protected; change its permissions or name another"
        )


def require_folder(path: str) -> Path:
    """The folder ``path`` of the option ``--output``, which may not exist yet."""
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not the name of a folder; --output expects one")
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; --output expects a folder")
    return folder
