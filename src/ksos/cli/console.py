"""What a command says: results on stdout, one line per warning or error on stderr, progress only where somebody watches."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TextIO

from ksos.cli.errors import InputError

__all__ = ["Console", "strict_json"]


class Console:
    """The two streams of one command; ``program`` ("ksos fit") begins every line on stderr."""

    def __init__(self, program: str) -> None:
        self.program = program
        self._status_shown = False
        self._last_update = -math.inf
        self._warned: set[str] = set()

    def result(self, lines: Iterable[str]) -> None:
        """Write lines to stdout; a reader that has gone away (``| head``) is no error."""
        stream = sys.stdout
        if stream is None:
            return
        self.clear_status()
        try:
            for line in lines:
                stream.write(_encodable(line, stream) + "\n")
            stream.flush()
        except BrokenPipeError:
            _silence(stream)
        except OSError as error:
            _silence(stream)
            raise InputError(f"cannot write to the standard output: {error.strerror or error}") from None

    def json(self, value: dict[str, Any]) -> None:
        """Write one JSON object to stdout."""
        self.result([strict_json(value)])

    def error(self, message: str) -> None:
        """One line on stderr that says what went wrong."""
        self._line(f"error: {message}")

    def warning(self, message: str) -> None:
        """One line on stderr, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            self._line(f"warning: {message}")

    def note(self, message: str) -> None:
        """One line on stderr that is neither."""
        self._line(message)

    @property
    def watched(self) -> bool:
        """Whether stderr is a terminal on which a line can be overwritten."""
        return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    def status(self, text: str, *, at_most_every: float = 0.0) -> None:
        """Show how far the work is, on a terminal only; each call overwrites the last, or is dropped if it follows in fewer seconds."""
        now = time.monotonic()
        if not self.watched or now - self._last_update < at_most_every:
            return
        self._last_update = now
        shown = _one_line(text)[: shutil.get_terminal_size().columns - 1]
        self._write_error(f"\r\x1b[K{shown}")
        self._status_shown = True

    def clear_status(self) -> None:
        """Take the progress line away."""
        if self._status_shown:
            self._write_error("\r\x1b[K")
            self._status_shown = False

    @contextlib.contextmanager
    def warnings_as_lines(self) -> Iterator[None]:
        """Show the library's warnings as one line each and leave out those addressed to programmers; restores what was before."""

        def show(message: Warning | str, *_: Any, **__: Any) -> None:
            self.warning(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = show
            yield

    def close(self) -> None:
        """Flush what argparse may have written, so that nothing is left to fail while the interpreter ends."""
        self.clear_status()
        if sys.stdout is not None:
            try:
                sys.stdout.flush()
            except OSError:
                _silence(sys.stdout)

    def _line(self, message: str) -> None:
        self.clear_status()
        self._write_error(f"{self.program}: {_one_line(message)}\n")

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
    """Send what is still buffered nowhere: it must not fail again when the interpreter closes the stream."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
