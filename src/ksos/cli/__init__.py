"""The command line, ``ksos COMMAND``: choose the command, run it, and turn every error into one
line and an exit code.

Nothing heavy is imported before a command runs.
"""

import argparse
import os
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Sequence
from importlib import import_module
from inspect import getdoc
from textwrap import fill
from typing import Any, NoReturn

from ksos._version import __version__
from ksos.cli.console import BAD_INPUT, INTERRUPTED, NO_OUTPUT, USAGE, Console, UsageError
from ksos.cli.values import Argument
from ksos.ground import Run, meant
from ksos.ground.lazy import later

__all__ = ["COMMANDS", "Console", "Parser", "UsageError", "main"]

COMMANDS = {
    "fit": "fit a density to the rows of a table and save it",
    "score": "log-density of the rows of a table under a saved density",
    "sample": "draw samples from a saved density",
    "impute": "fill the missing cells of a table by a saved density",
    "query": "probabilities, means and quantiles of a saved density and of parts of it",
    "predict": "mean, quantiles and intervals of a column given the others (fit --target)",
    "compare": "test whether two tables have the same distribution, and show where they differ",
    "plot": "draw a saved density, with the data if they are given",
    "explore": "explore a table in the browser: the density follows the parameters of the fit",
    "inspect": "show what is in a saved density",
    "worst-case": "the worst distribution for a loss within a distance of the rows of a table",
}
"""Every command with its one-line help.

``ksos.cli.NAME`` (_ for -) holds ``NAME(arguments, console)``, whose docstring is the text of
``--help``, and the list of its arguments, called the same in upper case.
"""
_HOMES = dict.fromkeys(("score", "sample", "impute", "query", "inspect"), "ask")
_HOMES |= {"predict": "fit", "explore": "plot"}
"""Commands that share a module."""
_END = """examples:
  ksos fit cars.csv -o cars.ksos --clean
  ksos query cars.ksos --low mpg=20 --given hp=100
  ksos plot cars.ksos --data cars.csv --drop-missing -o cars.png

exit codes: 0 done, 1 bad input, 2 wrong usage, 3 not converged (the model is written all the same)

ksos COMMAND --help describes a command."""
_WIDEST = 100  # columns of a help page: longer lines are hard to read


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``ksos`` with the words ``argv`` (default: those of the process).

    It returns the exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = words[0] if words and words[0] in COMMANDS else None
    console = Console(f"ksos {chosen}" if chosen else "ksos")
    line = console if console.watched else None
    try:
        with console.warnings_as_lines(), Run(line=line, after=0.0):
            return _run(chosen, words, console)
    # --help ends this way
    except SystemExit as request:
        if sys.stdout is not None:
            return int(request.code or 0)
        code, message = BAD_INPUT, NO_OUTPUT
    except (Exception, KeyboardInterrupt) as error:
        code, message = _failure(error)
    finally:
        console.close()
    console.error(message)
    return code


def _run(chosen: str | None, words: list[str], console: Console) -> int:
    if chosen is not None:
        name = chosen.replace("-", "_")
        module = import_module(f"ksos.cli.{_HOMES.get(name, name)}")
        command = getattr(module, name)
        parser = Parser(prog=console.program, description=getdoc(command))
        text = "print one JSON object in full precision; null is a number that is not finite"
        parser.add_argument("--json", action="store_true", help=text)
        parser.add(getattr(module, name.upper()))
        return int(command(parser.parse(words[1:]), console))
    if not words or words[0] in ("-h", "--help", "--version"):
        return console.answer(
            False, {}, [f"ksos {__version__}" if "--version" in words else _help()]
        )
    for word in words:
        if word in COMMANDS:
            raise UsageError(f"options of a command follow it: ksos {word} ...")
    raise UsageError(
        f"there is no command {words[0]!r}; there are {', '.join(COMMANDS)}"
        f"{meant(words[0], COMMANDS)}"
    )


# The page of all commands.
def _help() -> str:
    about = "Kernel sum-of-squares densities from the command line."
    parser = Parser(prog="ksos", description=about, epilog=_END, add_help=False)
    parser.usage = "ksos COMMAND ... | --help | --version"
    commands = parser.add_argument_group("commands")
    for name, summary in COMMANDS.items():
        commands.add_argument(name, help=summary)
    return parser.format_help().rstrip()


# The exit code and the one line that an error gets.
def _failure(error: BaseException) -> tuple[int, str]:
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
        case UsageError():
            return USAGE, str(error)
        case MemoryError():
            return BAD_INPUT, str(
                error
            ) or "not enough memory; take fewer rows or a smaller --n-support"
        case OSError(filename=str() | bytes() as name):
            return BAD_INPUT, f"{os.fsdecode(name)}: {error.strerror or error}"
        case OSError(strerror=str() as reason):
            return BAD_INPUT, reason
        case OSError() | ValueError() | ImportError():
            return BAD_INPUT, str(error)
    if os.environ.get("KSOS_TRACEBACK"):
        traceback.print_exception(error)
    return (
        BAD_INPUT,
        f"internal error, please report it ({type(error).__name__}: {error}); KSOS_TRACEBACK=1"
        " shows where it arose",
    )


class _Layout(argparse.RawDescriptionHelpFormatter):
    """Pages as wide as the terminal, up to 100 columns. Examples keep their lines."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, _WIDEST) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.split("\n\n")
        return "\n\n".join(
            part if part.startswith("examples:") else fill(part, width) for part in parts
        )


class Parser(argparse.ArgumentParser):
    """An :class:`argparse.ArgumentParser` that raises its errors as :class:`UsageError` and accepts
    ``--low -1,-inf``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=_Layout, **settings)
        # what is a value, although it begins as an option does
        self._negative_number_matcher = re.compile(r"-(\d|\.\d|inf)", re.IGNORECASE)

    def add(self, declared: Iterable[Argument]) -> None:
        """The arguments of a command. The line of usage shows those that are needed."""
        groups: dict[str, Any] = {"": self}
        needed, usage = "", self.prog
        for title, flags, settings in declared:
            if title not in groups:
                groups[title] = self.add_argument_group(title)
            groups[title].add_argument(*flags, **settings)
            if not flags[0].startswith("-"):
                usage += f" {settings['metavar']}{' ...' * (settings.get('nargs') == '+')}"
            elif settings.get("required"):
                needed += f" {flags[0]} {settings['metavar']}"
        self.usage = f"{usage}{needed} [options]"

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in ``words``."""
        known = {"--", *self._option_string_actions}
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            if flag not in known:
                self.error(f"unrecognized arguments: {flag}{meant(flag, known)}")
        return self.parse_args(words)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


__getattr__, __dir__ = later(globals(), {"parse_formula": "ksos.cli.formula"})
