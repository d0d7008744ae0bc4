"""What a question to a density shows of its progress, on the run of the call that asks it."""

from __future__ import annotations

from typing import Any

from ksos.ground.run import Run

__all__ = ["shown", "tell", "tell_rows"]


def shown(name: str = "", doing: str = "", **options: Any) -> Run:
    """A run without a limit of its own."""
    return Run(None, name, doing, **options)


def tell(*args: Any, **options: Any) -> None:
    """Show what the current call does now."""
    Run.current().tell(*args, **options)


def tell_rows(done: int, total: int) -> None:
    """Show how many rows there are of all."""
    Run.current().tell_rows(done, total)
