"""Arrow data as bytes: the output of a writer in chunks, and IPC files that may be damaged.

:func:`drained` returns the bytes of any writer of batches while it writes them. :func:`open_within` opens an IPC file
with a limit on the bytes that it decodes to.

A compressed buffer begins with its decompressed length, and Arrow allocates that many bytes. So 50 kB can make Arrow
allocate a terabyte. This module first adds up the lengths of all buffers, in the same messages that are then read: the
file is read as the stream that it contains, and its footer, which may refer to other messages, is ignored.

Errors: DamagedError. Source: Arrow columnar format, ``Message.fbs`` and ``File.fbs``; the FlatBuffers binary format.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from lakebed.errors import Code

_MAGIC = b"ARROW1\x00\x00"
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def drained(open_writer: Callable[[io.RawIOBase], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Return a writer's output in chunks: the beginning, each batch as it is consumed, and the end after the last."""
    drain = _Drain()
    writer = open_writer(drain)
    yield drain.taken()
    for batch in batches:
        writer.write_batch(batch)
        yield drain.taken()
    writer.close()
    yield drain.taken()


class _Drain(io.RawIOBase):
    """A file object that returns what was written since the last call."""

    def __init__(self) -> None:
        super().__init__()
        self._held: list[bytes] = []
        self._position = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def write(self, data: Any) -> int:
        held = bytes(data)
        self._held.append(held)
        self._position += len(held)
        return len(held)

    def taken(self) -> bytes:
        """Return the bytes since the last call."""
        data = b"".join(self._held)
        self._held.clear()
        return data


def open_within(source: pa.NativeFile, bytes_max: int, name: str) -> pa.RecordBatchReader:
    """Return a reader of an IPC file whose decoded batches take at most ``bytes_max`` in total.

    Raises DamagedError, which names the file, if it takes more or is not an IPC file.
    """
    try:
        # No copy if the source is in memory or mapped.
        data = memoryview(source.read_buffer(source.size()))
        if bytes(data[: len(_MAGIC)]) != _MAGIC or bytes(data[-6:]) != _MAGIC[:6]:
            raise Code.OBJECT_DAMAGED(f"{name} is not a whole Arrow file", name=name)
        declared = _declared_bytes(data)
        if declared > bytes_max:
            raise Code.OBJECT_DAMAGED(
                f"{name} declares a decoded size of {declared} bytes, above the limit of {bytes_max}: it is damaged",
                name=name,
            )
        return pa.ipc.open_stream(pa.py_buffer(data[len(_MAGIC) :]))
    except (struct.error, pa.ArrowException, OSError, IndexError) as error:
        raise Code.OBJECT_DAMAGED(f"{name} is not an Arrow file: {error}", name=name) from error


def _declared_bytes(data: memoryview) -> int:
    """Return the total of the decoded lengths that the messages of a file declare."""
    position, total = len(_MAGIC), 0
    while position + 4 <= len(data):
        (length,) = struct.unpack_from("<I", data, position)
        position += 4
        if length == _CONTINUATION:
            (length,) = struct.unpack_from("<I", data, position)
            position += 4
        if not length:
            break
        body = position + length
        message = _Table.root(data[position:body])
        kind = message.number(_HEADER_TYPE, "<B")
        size = message.number(_BODY_LENGTH, "<q")
        if size < 0 or body + size > len(data):
            raise struct.error("a message is longer than the file")
        if kind in (_DICTIONARY, _BATCH):
            header = message.table(_HEADER)
            batch = header.table(_DATA) if kind == _DICTIONARY else header
            total += _batch_bytes(batch, data[body : body + size])
        position = body + size
    return total


def _batch_bytes(batch: _Table, body: memoryview) -> int:
    compressed = batch.has(_COMPRESSION)
    total = 0
    for offset, length in batch.pairs(_BUFFERS):
        if offset < 0 or length < 0 or offset + length > len(body):
            raise struct.error("a buffer lies outside its message")
        (declared,) = struct.unpack_from("<q", body, offset) if compressed and length else (-1,)
        # -1: a buffer that is not compressed, though others are.
        total += length if declared == -1 else max(declared, length)
    return total


class _Table:
    """A table of a FlatBuffer, read field by field. Positions outside the buffer raise struct.error."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self._position = position
        (back,) = struct.unpack_from("<i", data, position)
        self._fields = position - back
        (self._size,) = struct.unpack_from("<H", data, self._fields)

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        """Return the root table of a buffer."""
        return cls(data, *struct.unpack_from("<I", data, 0))

    def has(self, field: int) -> bool:
        """Return whether the field exists."""
        return self._place(field) is not None

    def number(self, field: int, form: str) -> int:
        """Return a number; 0 if the field does not exist."""
        place = self._place(field)
        return 0 if place is None else int(struct.unpack_from(form, self._data, place)[0])

    def table(self, field: int) -> _Table:
        """Return a nested table."""
        return _Table(self._data, self._target(field))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """Return a vector of structs of two 64-bit numbers."""
        if not self.has(field):
            return []
        begin = self._target(field)
        (count,) = struct.unpack_from("<I", self._data, begin)
        numbers = struct.unpack_from(f"<{2 * min(count, len(self._data))}q", self._data, begin + 4)
        return list(zip(numbers[::2], numbers[1::2], strict=True))

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._size:
            return None
        (offset,) = struct.unpack_from("<H", self._data, self._fields + entry)
        return self._position + int(offset) if offset else None

    def _target(self, field: int) -> int:
        place = self._place(field)
        if place is None:
            raise struct.error("a message without a header")
        return place + int(struct.unpack_from("<I", self._data, place)[0])
