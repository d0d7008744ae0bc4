"""The command line, ``ksos COMMAND``: choose the command, run it, and turn every error into one
line and an exit code.

Nothing heavy is imported before a command runs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from ksos._version import __version__
from ksos.cli.console import BAD_INPUT, INTERRUPTED, NO_OUTPUT, USAGE, Console, UsageError
from ksos.ground.run import Run

__all__ = ["COMMANDS", "Parser", "main"]

COMMANDS = {
    "fit": "fit a density to the rows of a table and save it",
    "score": "log-density of the rows of a table under a saved density",
    "predict": (
        "mean, quantiles and intervals of a column given the others, from a model of fit --target"
    ),
    "sample": "draw samples from a saved density",
    "query": (
        "probabilities, means and quantiles of a saved density, its marginals and conditionals"
    ),
    "compare": "test whether two tables have the same law, and say where they differ most",
    "plot": "draw a saved density, with the data if they are given",
    "explore": (
        "explore a table in the browser: move the parameters of a fit, see the density follow"
    ),
    "inspect": "show what is in a saved density",
    "worst-case": "the worst distribution for a loss within a distance of the rows of a table",
}
"""Every command with its one-line help; ``ksos.cli.NAME`` (_ for -) holds its
``add_arguments(parser)`` and ``run(arguments, console)``.
"""

_EPILOG = """exit codes: 0 done, 1 bad input, 2 wrong usage, 3 not converged (the model is written all the same).
ksos COMMAND --help describes a command."""

_NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d|inf)", re.IGNORECASE)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``ksos`` with the words ``argv`` (default: those of the process) and return its exit
    code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    chosen = words[0] if words and words[0] in COMMANDS else None
    console = Console(f"ksos {chosen}" if chosen else "ksos")
    try:
        with (
            console.warnings_as_lines(),
            Run(line=console if console.watched else None, after=0.0),
        ):
            return _run(chosen, words, console)
    except SystemExit as request:  # --help and --version end this way
        if sys.stdout is None:
            console.error(NO_OUTPUT)
            return BAD_INPUT
        return int(request.code or 0)
    except KeyboardInterrupt:
        console.error("interrupted")
        return INTERRUPTED
    except UsageError as error:
        console.error(str(error))
        return USAGE
    except MemoryError as error:
        console.error(str(error) or "not enough memory; take fewer rows or a smaller --n-support")
    except OSError as error:
        named = (
            f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
        )
        console.error(named + (error.strerror or str(error)))
    except (ValueError, ImportError) as error:
        console.error(str(error))
    except Exception as error:
        if os.environ.get("KSOS_TRACEBACK"):
            traceback.print_exc()
        console.error(
            f"internal error, please report it ({type(error).__name__}: {error}); KSOS_TRACEBACK=1"
            " shows where it arose"
        )
    finally:
        console.close()
    return BAD_INPUT


class Parser(argparse.ArgumentParser):
    """An :class:`argparse.ArgumentParser` that raises its errors as :class:`UsageError` and accepts
    ``--low -1,-inf``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in ``words``."""
        joined: list[str] = []
        for (
            word
        ) in words:  # --low -1 becomes --low=-1: argparse would read the second word as an option
            if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and _NEGATIVE_NUMBER.match(word):
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        return self.parse_args(joined)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


class _Help(argparse.HelpFormatter):
    """Help whose examples keep their lines."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text.startswith("examples:") else super()._fill_text(text, width, indent)


def _run(chosen: str | None, words: list[str], console: Console) -> int:
    if chosen is None:
        _top_level(words)
    command = import_module(f"ksos.cli.{str(chosen).replace('-', '_')}")
    examples = getattr(command, "EXAMPLES", None)
    parser = Parser(
        prog=console.program, description=command.__doc__, epilog=examples, formatter_class=_Help
    )
    command.add_arguments(parser)
    return int(command.run(parser.parse(words[1:]), console))


def _top_level(words: list[str]) -> None:
    """Answer ``--help`` and ``--version``, or say that no command was chosen: never returns."""
    listed = "\n".join(f"  {name:<11}{summary}" for name, summary in COMMANDS.items())
    parser = Parser(
        prog="ksos",
        usage="ksos [--help] [--version] COMMAND ...",
        description=(
            f"Kernel sum-of-squares densities from the command line.\n\ncommands:\n{listed}"
        ),
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="store_true", help="show the version and exit")
    parser.add_argument("command", nargs="?", metavar="COMMAND", help="one of the above")
    arguments, _ = parser.parse_known_args(words)
    if arguments.version:
        print(f"ksos {__version__}")
        raise SystemExit(0)
    if arguments.command is None:
        parser.error(f"a command is needed: {', '.join(COMMANDS)}")
    if arguments.command in COMMANDS:
        parser.error(f"options of a command follow it: ksos {arguments.command} ...")
    parser.error(f"there is no command {arguments.command!r}; there are {', '.join(COMMANDS)}")
