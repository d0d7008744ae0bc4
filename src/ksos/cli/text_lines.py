"""The lines of a text file in bounded memory: decompressed, decoded, numbered from 1."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from ksos.cli.console import InputError, cell_error

__all__ = ["MAX_LINE_BYTES", "TextLines"]

MAX_LINE_BYTES = 1 << 20
"""A longer line is refused: no table of numbers needs it, and a file without line ends must not
fill the memory.
"""

_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
_BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_FOREIGN_BEGINNINGS = {
    b"\x93NUMPY": "is NPY, which cannot be read from the standard input; give its path",
    b"\x89KSOS": (
        "is a model of ksos, not a table; models are read by ksos score, sample, query, plot and"
        " inspect"
    ),
    b"PK\x03\x04": "is an archive (a spreadsheet or NPZ); export its table as CSV or NPY",
}
_FORBIDDEN = {
    "\0": "a NUL byte; is this file CSV text?",
    "\r": "a bare carriage return; end lines with LF or CRLF",
}
_CHUNK = 1 << 18


class TextLines:
    """The lines of the text in ``stream``, plain or compressed; ``source`` names it in errors.

    They come one at a time with ``next``, or as many as are in memory with :meth:`block`;
    ``number`` is that of the line that comes next. A byte-order mark says how the text is encoded;
    without one it is in ``encoding``. Errors are found when a block is read, and name a column as
    if ``delimiter`` separated the cells.
    """

    def __init__(self, stream: BinaryIO, source: str, encoding: str | None = None) -> None:
        buffered = (
            stream
            if isinstance(stream, io.BufferedReader)
            else io.BufferedReader(cast(io.RawIOBase, stream))
        )
        expand = next(
            (expand for magic, expand in _COMPRESSED.items() if buffered.peek(8).startswith(magic)),
            None,
        )
        self.source, self.number, self.delimiter = source, 1, ","
        self._stream = buffered if expand is None else expand(buffered, "rb")
        self._blocks = self._read(encoding)
        self._text, self._at = "", 0  # the block in memory, and how much of it has been handed out

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        """One line without its end."""
        if not self._fill():
            raise StopIteration
        end = self._text.index("\n", self._at)
        line, self._at = self._text[self._at : end], end + 1
        self.number += 1
        return line

    def block(self) -> str | None:
        """All lines in memory, each with its end, as one text that is not yet handed out: see
        :meth:`skip`; None at the end of the file.
        """
        return self._text[self._at :] if self._fill() else None

    def skip(self) -> None:
        """Hand out all lines in memory."""
        self.number += self._text.count("\n", self._at)
        self._at = len(self._text)

    def column(self, line: str) -> int:
        """The column, counted from 1, in which the text after ``line`` stands."""
        column, quoted = 1, False
        for character in line:
            if character == '"':
                quoted = not quoted
            elif character == self.delimiter and not quoted:
                column += 1
        return column

    def _fill(self) -> bool:
        while self._at == len(self._text):
            block = next(self._blocks, None)
            if block is None:
                return False
            self._text, self._at = block, 0
        return True

    def _read(self, encoding: str | None) -> Iterator[str]:
        """Yield whole lines, many at a time."""
        rest, first = b"", 1
        for chunk in self._utf8(encoding):
            rest += chunk
            end = rest.rfind(b"\n") + 1
            if end:
                yield self._decoded(rest[:end], first)
                first += rest.count(b"\n", 0, end)
                rest = rest[end:]
            if len(rest) > MAX_LINE_BYTES:
                raise self._too_long(rest, first)
        if rest:
            yield self._decoded(rest + b"\n", first)

    def _utf8(self, encoding: str | None) -> Iterator[bytes]:
        """Yield the bytes of the file, as UTF-8, without a byte-order mark."""
        chunk, decoder, lines = self._chunk(), None, 1
        for beginning, what in _FOREIGN_BEGINNINGS.items():
            if chunk.startswith(beginning):
                raise cell_error(self.source, 1, 1, f"the file {what}")
        for mark, marked in _BYTE_ORDER_MARKS.items():
            if chunk.startswith(mark):
                chunk, encoding = chunk.removeprefix(mark), marked
                break
        if encoding is not None and codecs.lookup(encoding).name != "utf-8":
            decoder = codecs.getincrementaldecoder(encoding)()
        while chunk or decoder is not None:
            if decoder is None:
                yield chunk
            else:
                try:
                    text = decoder.decode(chunk, final=not chunk)
                    recoded = text.encode("utf-8")
                except UnicodeError:
                    what = (
                        f"after here, within {_CHUNK:,} bytes, the text is not {encoding}; pass"
                        " --encoding with the name of its encoding"
                    )
                    raise cell_error(self.source, lines, 1, what) from None
                lines += text.count("\n")
                yield recoded
                if not chunk:
                    return
            chunk = self._chunk()

    def _chunk(self) -> bytes:
        try:
            return self._stream.read(_CHUNK)
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError) as error:
            if isinstance(self._stream, io.BufferedReader):
                raise
            raise InputError(
                f"{self.source} is compressed, but cannot be decompressed: {error}"
            ) from None

    def _decoded(self, raw: bytes, first: int) -> str:
        """The text of whole lines, the first of which has the number ``first``, with line ends LF."""
        try:
            text = raw.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            begin = raw.rfind(b"\n", 0, error.start) + 1
            what = (
                f"byte 0x{raw[error.start]:02x} is not UTF-8 text; save the file as UTF-8, or pass"
                " --encoding latin-1 if it is that"
            )
            what += ", in Python csv={'encoding': 'latin-1'}"
            column = self.column(raw[begin : error.start].decode("utf-8"))
            raise cell_error(
                self.source, first + raw.count(b"\n", 0, error.start), column, what
            ) from None
        if len(raw) > MAX_LINE_BYTES:
            for number, line in enumerate(raw.split(b"\n"), first):
                if len(line) > MAX_LINE_BYTES:
                    raise self._too_long(line, number)
        for forbidden, what in _FORBIDDEN.items():
            if (at := text.find(forbidden)) >= 0:
                begin = text.rfind("\n", 0, at) + 1
                row = first + text.count("\n", 0, at)
                raise cell_error(
                    self.source, row, self.column(text[begin:at]), f"the line contains {what}"
                )
        return text

    def _too_long(self, line: bytes, number: int) -> InputError:
        what = (
            f"the line is longer than {MAX_LINE_BYTES:,} bytes; is this CSV, one record per line?"
            " NPY holds wider tables"
        )
        return cell_error(
            self.source,
            number,
            self.column(line[: MAX_LINE_BYTES + 1].decode(errors="replace")),
            what,
        )
