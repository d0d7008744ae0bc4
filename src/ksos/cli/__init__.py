"""The command line: ``ksos fit | score | sample | inspect | reproduce``. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from ksos.cli.app import main

__all__ = ["main"]
