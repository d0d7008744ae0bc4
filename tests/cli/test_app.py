"""``ksos`` itself: help, version, usage, and every error as one line."""

from __future__ import annotations

import io
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ksos as library
from ksos import density as model_io
from ksos.cli import COMMANDS, Parser, UsageError

Command = Callable[..., Any]


def test_version(ksos: Command) -> None:
    assert ksos("--version") == (0, f"ksos {library.__version__}\n", "")


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]])
def test_help(ksos: Command, words: list[str]) -> None:
    done = ksos(*words)
    assert (done.code, done.err) == (0, "")
    words = " ".join(done.out.split())
    assert all(
        f"\n  {name} " in done.out and summary in words for name, summary in COMMANDS.items()
    )
    assert "exit codes: 0 done, 1 bad input, 2 wrong usage, 3 not converged" in words


@pytest.mark.parametrize("columns", [60, 140])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_the_terminal(
    ksos: Command, name: str, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = ksos(*filter(None, [name]), "--help").out.splitlines()
    # command lines stay whole, so that they can be copied
    widest = max(len(line) for line in lines if not line.startswith(("  ksos ", "usage: ")))
    assert columns - 25 < widest < columns or (columns == 140 and 80 < widest < 100)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(ksos: Command, name: str) -> None:
    done = ksos(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: ksos {name} ")
    assert done.out.isascii(), "every terminal must be able to show it"
    _, examples, rest = done.out.partition("\nexamples:\n")
    assert examples and rest.split("\n\n")[0].count(f"  ksos {name} ") == 3


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (
            ["fti"],
            "ksos: error: there is no command 'fti'; there are fit, score, sample, impute, query,"
            " predict, compare, plot, explore, inspect, worst-case; did you mean 'fit'?",
        ),
        (["xyz"], "ksos: error: there is no command 'xyz'; there are fit, score"),
        (
            ["fit", "x.csv", "--colums", "a"],
            "ksos fit: error: unrecognized arguments: --colums; did you mean '--columns'?; see",
        ),
        (["--json", "fit", "x.csv"], "ksos: error: options of a command follow it: ksos fit ..."),
        (["--frobnicate"], "ksos: error: there is no command '--frobnicate'; there are fit"),
        (
            ["inspect"],
            (
                "ksos inspect: error: the following arguments are required: MODEL; see ksos inspect"
                " --help"
            ),
        ),
        (["inspect", "a", "b"], "ksos inspect: error: unrecognized arguments: b"),
        (
            ["sample", "m", "-n", "x"],
            "ksos sample: error: argument -n/--n-samples: a whole number was expected; got 'x'",
        ),
    ],
)
def test_wrong_usage_is_one_line(ksos: Command, words: list[str], what: str) -> None:
    done = ksos(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(what) and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("two\nlines"), 1, "ksos inspect: error: two lines\n"),
        (
            MemoryError(),
            1,
            "ksos inspect: error: not enough memory; take fewer rows or a smaller --n-support\n",
        ),
        (MemoryError("needs 3 GB"), 1, "ksos inspect: error: needs 3 GB\n"),
        (
            PermissionError(13, "Permission denied", "m.ksos"),
            1,
            "ksos inspect: error: m.ksos: Permission denied\n",
        ),
        (OSError("odd"), 1, "ksos inspect: error: odd\n"),
        (ImportError("no such library"), 1, "ksos inspect: error: no such library\n"),
        (library.ModelFormatError("damaged"), 1, "ksos inspect: error: damaged\n"),
        (KeyboardInterrupt(), 130, "ksos inspect: error: interrupted\n"),
        (
            KeyError("x"),
            1,
            (
                "ksos inspect: error: internal error, please report it (KeyError: 'x');"
                " KSOS_TRACEBACK=1 shows where it arose\n"
            ),
        ),
        (
            RecursionError("deep"),
            1,
            (
                "ksos inspect: error: internal error, please report it (RecursionError: deep);"
                " KSOS_TRACEBACK=1 shows where it arose\n"
            ),
        ),
    ],
)
def test_every_error_is_one_line(
    ksos: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str
) -> None:
    def load(_: str) -> None:
        raise error

    monkeypatch.delenv("KSOS_TRACEBACK", raising=False)
    monkeypatch.setattr(model_io, "load", load)
    assert ksos("inspect", "m.ksos") == (code, "", line)


def test_the_traceback_of_an_internal_error_can_be_asked_for(
    ksos: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KSOS_TRACEBACK", "1")
    monkeypatch.setattr(model_io, "load", lambda _: {}["x"])
    done = ksos("inspect", "m.ksos")
    assert (
        done.code == 1
        and "Traceback" in done.err
        and done.err.splitlines()[-1].startswith("ksos inspect: error: internal error")
    )


def test_warnings_are_lines_once_each_and_the_filters_come_back(
    ksos: Command, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = library.load

    def noisy(path: str) -> library.SoSDensity:
        for _ in range(2):
            warnings.warn("two\nlines", UserWarning, stacklevel=2)
        warnings.warn("overflow", RuntimeWarning, stacklevel=2)
        warnings.warn("for programmers", DeprecationWarning, stacklevel=2)
        return load(path)

    monkeypatch.setattr(model_io, "load", noisy)
    before = (list(warnings.filters), warnings.showwarning)
    done = ksos("inspect", model)
    assert done.code == 0
    assert done.err == "ksos inspect: warning: two lines\nksos inspect: warning: overflow\n"
    assert (list(warnings.filters), warnings.showwarning) == before


def test_words_that_the_terminal_cannot_show_are_escaped(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ksos.cli import main

    target = tmp_path / "modèle.ksos"
    target.write_bytes(model.read_bytes())
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii") for _ in range(2))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["sample", str(target), "-n", "1", "-o", str(tmp_path / "é" / "s.csv")]) == 1
    assert b"mod" not in err.buffer.getvalue() and rb"\xe9" in err.buffer.getvalue()


def test_negative_numbers_are_values() -> None:
    parser = Parser()
    for flag in ("--low", "--high", "--middle"):
        parser.add_argument(flag)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("-o", "--output")
    parser.add_argument("data")
    found = parser.parse(
        ["-", "--low", "-1,-2", "--high", "-.5", "--middle", "-inf,0", "--json", "-o", "-5"]
    )
    assert vars(found) == {
        "low": "-1,-2",
        "high": "-.5",
        "middle": "-inf,0",
        "json": True,
        "output": "-5",
        "data": "-",
    }
    assert parser.parse(["-3", "--low=-1", "-o", "x"]).data == "-3"  # no option stands before it
    with pytest.raises(UsageError, match="expected one argument"):
        parser.parse(["d", "--low", "-x"])
