"""The argument parser of every command: errors are raised, not printed, and negative numbers are values."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from ksos.cli.errors import UsageError

__all__ = ["Parser"]

_NEGATIVE_NUMBER = re.compile(r"-(\d|\.\d|inf)", re.IGNORECASE)


class Parser(argparse.ArgumentParser):
    """An :class:`argparse.ArgumentParser` whose errors are :class:`UsageError`; :meth:`parse` reads ``--low -1,-inf`` as it is meant."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, **settings)

    def parse(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments in ``words``."""
        return self.parse_args(_join_negative_numbers(words))

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see {self.prog} --help")


def _join_negative_numbers(words: Sequence[str]) -> list[str]:
    """["--low", "-1,-inf"] as ["--low=-1,-inf"]: argparse would take the second word for an option."""
    joined: list[str] = []
    for word in words:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and _NEGATIVE_NUMBER.match(word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined
