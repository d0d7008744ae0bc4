"""The older words for progress, on top of :class:`~ksos.ground.run.Run`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ksos.ground.run import (
    Convergence,
    Line,
    Run,
    Steps,
    left_in_words,
    overwritable,
    shortened,
)

__all__ = [
    "Convergence",
    "Line",
    "Steps",
    "is_shown",
    "left_in_words",
    "overwritable",
    "report",
    "shortened",
    "shown",
    "tell",
    "tell_rows",
    "tell_stopping",
]

ERASE = "\r\x1b[K"


@contextmanager
def shown(name: str = "", doing: str = "", **options: Any) -> Iterator[None]:
    """As in Run."""
    with Run(None, name, doing, **options):
        yield


def is_shown() -> bool:
    """As in Run."""
    return Run.current().shown


def tell(*args: Any, **options: Any) -> None:
    """As in Run."""
    Run.current().tell(*args, **options)


def tell_rows(done: int, total: int) -> None:
    """As in Run."""
    Run.current().tell_rows(done, total)


def tell_stopping() -> None:
    """As in Run."""
    display = Run.current()._display
    if display is not None:
        display.stop()


def report(verbose: int) -> Callable[[str], None]:
    """As in Run."""
    run = Run(verbose=verbose)
    return lambda what: run.report("fit", what) if verbose else tell(what)
