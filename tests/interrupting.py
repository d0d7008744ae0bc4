"""A stream that a user interrupts."""

from __future__ import annotations

import io

__all__ = ["Interrupting"]


class Interrupting(io.StringIO):
    """Ctrl-C when the search prints its n-th line."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.left = line

    def write(self, text: str) -> int:
        self.left -= text.startswith("[cv]")
        if self.left == 0:
            raise KeyboardInterrupt
        return super().write(text)
