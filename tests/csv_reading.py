"""What the tests of tables share: read CSV text, and the one line of a refusal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ksos.data import Table, TableOptions, read_table


def read(text: str | bytes, said: list[str] | None = None, **options: Any) -> Table:
    raw = text if isinstance(text, bytes) else text.encode()
    say = [] if said is None else said
    return read_table(io.BytesIO(raw), TableOptions(**options), say.append, source="data.csv")


def refusal(text: str | bytes, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:
        read(text, **options)
    message = str(caught.value)
    assert "\n" not in message and "\r" not in message
    return message
