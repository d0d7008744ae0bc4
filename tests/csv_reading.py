"""What the tests of tables share: read CSV text, and the one line of a refusal."""

from __future__ import annotations

import io
from typing import Any

import pytest

from ksos.cli.columns import Choice
from ksos.cli.console import InputError
from ksos.cli.tables import Table, TableOptions, read_csv


def as_options(**options: Any) -> TableOptions:
    chosen = {
        name: options.pop(name)
        for name in ("columns", "exclude", "weights", "features")
        if name in options
    }
    return TableOptions(Choice(**chosen), **options)


def read(text: str | bytes, said: list[str] | None = None, **options: object) -> Table:
    raw = text if isinstance(text, bytes) else text.encode()
    say = [] if said is None else said
    return read_csv(io.BytesIO(raw), "data.csv", as_options(**options), say.append)


def refusal(text: str | bytes, **options: object) -> str:
    with pytest.raises(InputError) as caught:
        read(text, **options)
    message = str(caught.value)
    assert "\n" not in message and "\r" not in message
    return message
