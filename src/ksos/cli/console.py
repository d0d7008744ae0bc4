"""What a command prints and how it ends.

Results go to stdout, one line per warning or error to stderr, and progress to a terminal only. Here
are also the exit codes and the check of a file that will be written.
"""

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TextIO

from ksos.ground import overwritable, shortened

DONE = 0  # exit codes, documented in ksos --help; 1 and 2 mean what they mean for most programs
BAD_INPUT = 1  # data, a model or a value that cannot be used
USAGE = 2  # as argparse ends on wrong words
NOT_CONVERGED = 3  # the model is written all the same
INTERRUPTED = 130  # what a shell reports for a process ended by Ctrl-C: 128 + SIGINT

ERASE = "\r\x1b[K"
"""Back to the beginning of a line of the terminal, and clear it to its end."""
NO_OUTPUT = "cannot write to the standard output: it is closed"


class UsageError(Exception):
    """Something is wrong with the command line itself."""


class Console:
    """The two streams of one command. ``program`` ("ksos fit") begins every line on stderr."""

    def __init__(self, program: str) -> None:
        self.program, self._answering = program, False
        self._warned: set[str] = set()

    def result(self, lines: Iterable[str]) -> None:
        """Write lines to stdout. A reader that has gone away (``| head``) is no error."""
        # the answer may go to the same terminal: from now on there is no progress
        self._answering = True
        self.erase()
        # computing a line may fail too, with an error of its own
        for line in lines:
            if not _written(sys.stdout, line + "\n"):
                return
        _written(sys.stdout, "", flush=True)

    def answer(self, as_json: bool, value: dict[str, Any], lines: Iterable[str]) -> int:
        """Write one JSON object to stdout, or ``lines`` with the same for a reader.

        It returns the exit code of a command that is done.
        """
        self.result([strict_json(value)] if as_json else lines)
        return DONE

    def error(self, message: str) -> None:
        """One line on stderr that reports what went wrong."""
        self.note(f"error: {message}")

    def warning(self, message: str) -> None:
        """One line on stderr, once for each message."""
        if message not in self._warned:
            self._warned.add(message)
            self.note(f"warning: {message}")

    def note(self, message: str) -> None:
        """One line on stderr that is neither; none for an empty message."""
        if words := " ".join(message.split()):
            # at once: the library's progress comes from a thread of its own
            self._to_stderr(f"{ERASE * self.watched}{self.program}: {words}\n")

    @property
    def watched(self) -> bool:
        """Whether stderr is a terminal on which a line can be overwritten."""
        return overwritable(sys.stderr)

    def write(self, what: str, when: str = "") -> None:
        """Show a line of progress in the place of the last."""
        if self.watched and not self._answering:
            self._to_stderr(f"{ERASE}{shortened(' '.join(what.split()), when)}")

    def erase(self) -> None:
        """Take the line of progress away."""
        if self.watched:
            self._to_stderr(ERASE)

    @contextlib.contextmanager
    def warnings_as_lines(self) -> Iterator[None]:
        """Show the library's warnings as one line each, without those addressed to programmers."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.simplefilter("always", RuntimeWarning)
            warnings.showwarning = lambda message, *_, **__: self.warning(str(message))
            yield

    def close(self) -> None:
        """Flush what argparse may have written.

        Else it could fail while the interpreter ends, with a traceback.
        """
        self.erase()
        with contextlib.suppress(ValueError):
            _written(sys.stdout, "", flush=True)

    def _to_stderr(self, text: str) -> None:
        with contextlib.suppress(ValueError):
            _written(sys.stderr, text, flush=True)


# Write to stdout or stderr; False if nobody reads it any more.
def _written(stream: TextIO | None, text: str, *, flush: bool = False) -> bool:
    if stream is None:
        raise ValueError(NO_OUTPUT)
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        if flush:
            stream.flush()
    except OSError as error:
        # what is still buffered goes nowhere: it must not fail again when the interpreter ends
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
        if isinstance(error, BrokenPipeError):
            return False
        why = error.strerror or error
        raise ValueError(f"cannot write to the standard output: {why}") from None
    return True


def strict_json(value: Any) -> str:
    """``value`` as JSON that every parser reads: numbers that are not finite become null.

    >>> strict_json({"mean": float("-inf"), "n": 3})
    '{"mean": null, "n": 3}'
    """
    text = json.dumps(value, default=lambda number: number.item())  # of NumPy
    # NaN and Infinity, which Python writes, are no JSON: there and back they become None
    return json.dumps(json.loads(text, parse_constant=lambda _: None))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table.

    >>> aligned([["feature", "mean"], ["x1", "2"]])
    ['feature  mean', 'x1       2']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def described(part: Any, d: int) -> dict[str, Any]:
    """The name and the parameters of a kernel or a measure, for JSON.

    Of an array larger than one number per feature it is only the shape.

    >>> from ksos.measures import Box, Discrete
    >>> described(Box([0.0], [1.0]), 1)
    {'name': 'box', 'low': [0.0], 'high': [1.0]}
    >>> described(Discrete([[0.0], [1.0]]), 1)
    {'name': 'discrete', 'points': {'shape': [2, 1]}, 'weights': {'shape': [2]}}
    """
    import numpy as np

    arrays = {name: np.asarray(value) for name, value in part.parameters().items()}
    return {"name": part.name} | {
        name: value.tolist() if value.size <= d else {"shape": list(value.shape)}
        for name, value in arrays.items()
    }


def require_writable(path: str | None) -> None:
    """Raise when ``path`` cannot become a file, or must not be replaced by one.

    It is called before a long computation whose result would be lost. None is no file at all.
    """
    if path is None:
        return
    if not path or "\0" in path:
        raise ValueError(f"{path!r} is not the name of a file; name one to write")
    folder, exists = os.path.dirname(path) or ".", os.path.exists(path)
    for wrong, message in (
        (
            os.path.isdir(path) or path.endswith(os.sep),
            f"{path} is a folder; the name of a file was expected",
        ),
        (
            exists and not os.path.isfile(path),
            f"{path} is not a regular file; name one to write",
        ),
        (
            not os.path.isdir(folder),
            f"cannot write {path}: there is no folder {folder}; create it first",
        ),
        (
            not os.access(folder, os.W_OK | os.X_OK),
            f"cannot write {path}: no permission to create files in {folder}",
        ),
        (
            exists and not os.access(path, os.W_OK),
            f"cannot write {path}: the file is protected; change its permissions or name another",
        ),
    ):
        if wrong:
            raise ValueError(message)
