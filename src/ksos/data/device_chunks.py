"""Chunks of a source on their way to a GPU: while it works on one, the next is read and copied
through memory that stays in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ksos.ground.arrays import Copies, Copy, is_tensor, to_device
from ksos.ground.validation import require_numbers

__all__ = ["on_device"]


def on_device(chunks: Iterator[Any], device: Any) -> Iterator[Any]:
    """The same chunks with their data as float64 tensors on ``device``.

    To a GPU they go through two pinned buffers, in turn, on a stream of their own: chunk k + 1 is
    read and on its way before the caller is given chunk k. Single precision travels as it is and is
    widened there. Tensors of the device stay where they are.
    """
    wanted = to_device(np.zeros(0), device).device  # or an error that says why not
    copies = Copies(wanted) if wanted.type == "cuda" else None
    sent: tuple[Any, Copy] | None = None
    for chunk in chunks:
        begun = (
            None
            if copies is None or is_tensor(chunk.data)
            else copies.begin(np.asarray(require_numbers(chunk.data)))
        )
        if sent is not None:
            yield sent[0]._replace(data=sent[1].tensor())
        sent = None if begun is None else (chunk._replace(data=None), begun)
        if begun is None:
            yield chunk._replace(
                data=(
                    chunk.data.to(wanted)
                    if is_tensor(chunk.data)
                    else to_device(require_numbers(chunk.data), wanted)
                )
            )
    if sent is not None:
        yield sent[0]._replace(data=sent[1].tensor())
