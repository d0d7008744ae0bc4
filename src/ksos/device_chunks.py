"""Chunks of a source on their way to a GPU: while it works on one, the next is read and copied through memory that stays in place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ksos._array import is_tensor, to_device
from ksos._validation import require_numbers

__all__ = ["on_device"]


def on_device(chunks: Iterator[Any], device: Any) -> Iterator[Any]:
    """The same chunks with their data as float64 tensors on ``device``.

    To a GPU they go through two pinned buffers, in turn, on a stream of their own: chunk k + 1 is read and on its way before the caller is
    given chunk k. Single precision travels as it is and is widened there. Tensors of the device stay where they are.
    """
    wanted = to_device(np.zeros(0), device).device  # or an error that says why not
    copies = _Copies(wanted) if wanted.type == "cuda" else None
    sent: tuple[Any, _Copy] | None = None
    for chunk in chunks:
        begun = None if copies is None or is_tensor(chunk.data) else copies.begin(np.asarray(require_numbers(chunk.data)))
        if sent is not None:
            yield sent[0]._replace(data=sent[1].tensor())
        sent = None if begun is None else (chunk._replace(data=None), begun)
        if begun is None:
            yield chunk._replace(data=chunk.data.to(wanted) if is_tensor(chunk.data) else to_device(require_numbers(chunk.data), wanted))
    if sent is not None:
        yield sent[0]._replace(data=sent[1].tensor())


class _Copies:
    """Two pinned buffers and the stream on which they are copied."""

    def __init__(self, device: Any) -> None:
        import torch

        self.torch, self.device, self.stream = torch, device, torch.cuda.Stream(device)  # type: ignore[no-untyped-call, unused-ignore]
        self.buffers: list[Any] = [None, None]
        self.done: list[Any] = [None, None]
        self.turn = 0

    def begin(self, array: np.ndarray) -> _Copy:
        """Fill the buffer whose copy is older, as soon as that has ended, and send it."""
        torch, turn = self.torch, self.turn
        self.turn = 1 - turn
        dtype = torch.float32 if array.dtype == np.float32 else torch.float64
        if self.done[turn] is not None:
            self.done[turn].synchronize()
        held = self.buffers[turn]
        if held is None or held.dtype != dtype or held.shape[0] < array.size:
            held = self.buffers[turn] = torch.empty(array.size, dtype=dtype, pin_memory=True)
        filled = held[: array.size].reshape(array.shape)
        np.copyto(filled.numpy(), array, casting="unsafe")
        with torch.cuda.stream(self.stream):
            sent = filled.to(self.device, non_blocking=True)
            self.done[turn] = self.stream.record_event()
        return _Copy(torch, sent, self.done[turn])


class _Copy:
    """An array on its way."""

    def __init__(self, torch: Any, sent: Any, done: Any) -> None:
        self.torch, self.sent, self.done = torch, sent, done

    def tensor(self) -> Any:
        """The tensor, which the caller's stream waits for."""
        current = self.torch.cuda.current_stream(self.sent.device)
        current.wait_event(self.done)
        self.sent.record_stream(current)
        return self.sent.to(self.torch.float64)
