"""The command line, ``ksos COMMAND``; ``ksos --help`` lists the commands. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from ksos.cli.app import main

__all__ = ["main"]
