"""What is shown on a terminal while a command works, and how it is taken away."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ksos.cli import Console, main


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of stderr; not a fixture, because pytest puts its own there
    between a fixture and its test.
    """
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    return stream


def test_a_command_leaves_the_terminal_clean(
    monkeypatch: pytest.MonkeyPatch, model: Path, tmp_path: Path
) -> None:
    terminal = watch(monkeypatch)
    assert main(["sample", str(model), "-n", "7", "-o", str(tmp_path / "s.csv")]) == 0
    lines = terminal.getvalue().split("\r\x1b[K")
    assert lines[:2] == ["", "drawing 7 samples ..."] and lines[-1] == ""
    assert all(
        line.startswith("drawing 7 samples ...: ") and line.endswith(" of 7 rows")
        for line in filter(None, lines[2:-1])
    )


def test_a_line_replaces_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    console = Console("ksos fit")
    console.write("working")
    # as print ends its lines
    console.note("\n")
    console.error("no")
    console.error("again")
    assert (
        terminal.getvalue()
        == "\r\x1b[Kworking\r\x1b[Kksos fit: error: no\n\r\x1b[Kksos fit: error: again\n"
    )


def test_progress_is_one_short_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watch(monkeypatch)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: type("Size", (), {"columns": 10})())
    Console("ksos").write("one\ntwo three four")
    assert terminal.getvalue() == "\r\x1b[Kone two t"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda patch: patch.setenv("TERM", "dumb"),
        lambda patch: patch.setattr(Terminal, "isatty", lambda _: False),
    ],
)
def test_no_progress_where_it_cannot_be_taken_back(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pytest.MonkeyPatch], Any]
) -> None:
    terminal = watch(monkeypatch)
    spoil(monkeypatch)
    Console("ksos").write("working")
    assert terminal.getvalue() == ""


def test_a_stderr_that_fails_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Terminal):
        def write(self, _: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stderr", Broken())
    assert main(["nothing"]) == 2
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["nothing"]) == 2
