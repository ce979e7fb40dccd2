"""Arrow data as bytes: the output of a writer in chunks, and IPC streams and files that decode to no more than allowed.

:func:`drained` returns the bytes of any writer of batches while it writes them. :func:`open_within` opens an IPC file
of Lakebed with a limit on the bytes that it decodes to. :func:`measured_batches` reads streams and files of others,
with a limit on each batch, and :func:`table_within` a stream in memory.

A compressed buffer begins with its decompressed length, and Arrow allocates that many bytes. So 50 kB can make Arrow
allocate a terabyte. This module first adds up the lengths of all buffers, in the same messages that are then read: a
file is read as the stream that it contains, since its footer may refer to other messages. Positions without a bit in
any buffer, such as those of nulls without a type and of run-end encoded values, count as a byte each.

Errors: DamagedError for files of Lakebed; SchemaMismatchError for batches that are too large. Source: Arrow columnar
format, ``Message.fbs`` and ``File.fbs``; the FlatBuffers binary format.
"""

from __future__ import annotations

import io
import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa

from lakebed.errors import Code, Error

BATCH_BYTES_MAX = 256 * 1024 * 1024
"""What a record batch of a file or stream of others may decode to, with its dictionaries. Its rows are then cut into
small batches; a table's memory limit is for what comes after that, and docs/costs.md allows 300 MiB beside it."""

_HERE_BYTES = 1 << 20
"""Up to this size a batch is decompressed by the calling thread: it takes a millisecond at most, and on a busy machine
another thread has to wait ten times as long for a core.
"""

_MAGIC = b"ARROW1\x00\x00"
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY_ID, _DATA, _IS_DELTA = 0, 1, 2
_NODES, _BUFFERS, _COMPRESSION = 1, 2, 3


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
        options = pa.ipc.IpcReadOptions(use_threads=len(data) > _HERE_BYTES)
        return pa.ipc.open_stream(pa.py_buffer(data[len(_MAGIC) :]), options=options)
    except (struct.error, pa.ArrowException, OSError, IndexError) as error:
        raise Code.OBJECT_DAMAGED(f"{name} is not an Arrow file: {error}", name=name) from error


@contextmanager
def measured_batches(
    source: pa.NativeFile, name: str, *, file: bool, batch_bytes_max: int = BATCH_BYTES_MAX
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """The columns and the batches of an IPC stream, or of the stream in an IPC ``file``; ``name`` is for errors.

    Raises SchemaMismatchError, before anything is decompressed, for a batch of more than ``batch_bytes_max``, and what
    Arrow raises for damage.
    """
    listed = None
    if file:
        # Requires that the file is whole.
        with pa.ipc.open_file(source) as whole:
            listed = whole.num_record_batches
        source.seek(len(_MAGIC))

    def too_large(size_bytes: int) -> Error:
        return Code.BATCH_TOO_LARGE(
            f"{name}: a record batch decodes to {size_bytes} bytes, and at most {batch_bytes_max} are allowed: write "
            "smaller batches (max_chunksize of PyArrow's writers, record_batch_size of Polars), or Parquet",
            name=name,
        )

    with pa.ipc.open_stream(_Measured(source, batch_bytes_max, too_large)) as stream:
        yield stream.schema, stream if listed is None else _all_of(stream, listed)


def table_within(data: bytes, bytes_max: int, too_large: Callable[[int], Error]) -> pa.Table:
    """Return the rows of a stream, which may decode to at most ``bytes_max`` in total.

    Raises ``too_large(bytes)`` before anything is decompressed that would take more, and what Arrow raises for damage.
    """
    with pa.ipc.open_stream(_Measured(pa.BufferReader(data), bytes_max, too_large, whole=True)) as stream:
        return stream.read_all()


def _all_of(stream: Iterable[pa.RecordBatch], listed: int) -> Iterator[pa.RecordBatch]:
    found = 0
    for batch in stream:
        found += 1
        yield batch
    if found != listed:
        raise pa.ArrowInvalid(f"its footer lists {listed} record batches, and it has {found}")


class _Measured(io.RawIOBase):
    """The bytes of a stream, message by message, each measured before a reader gets it."""

    def __init__(
        self, source: pa.NativeFile, bytes_max: int, too_large: Callable[[int], Error], *, whole: bool = False
    ) -> None:
        """If ``whole``, the limit is for all messages together; else for a batch with its dictionaries."""
        super().__init__()
        self._source = source
        self._left: deque[pa.Buffer] = deque()
        self._ended = False
        self._too_large = too_large
        # What is mapped, or in memory, costs nothing until it is decompressed.
        self._limit = _Limit(bytes_max, whole=whole, in_place=isinstance(source, pa.MemoryMappedFile | pa.BufferReader))

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> Any:
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int) -> pa.Buffer:
        """Return the next ``size`` bytes, fewer at the end; without a copy if they lie in one part of a message."""
        parts: list[pa.Buffer] = []
        while size > 0 and (self._left or self._pull()):
            first = self._left.popleft()
            parts.append(first.slice(0, min(size, first.size)))
            if first.size > size:
                self._left.appendleft(first.slice(size))
            size -= parts[-1].size
        return parts[0] if len(parts) == 1 else pa.py_buffer(b"".join(parts))

    def _pull(self) -> bool:
        """Read and measure the next message; False at the end of the stream."""
        if self._ended:
            return False
        begin = self._source.read_buffer(4)
        continues = begin.size == 4 and struct.unpack("<I", begin)[0] == _CONTINUATION
        length = self._source.read_buffer(4) if continues else begin
        self._left.extend([begin, length] if continues else [begin])
        size = struct.unpack("<i", length)[0] if length.size == 4 else 0
        self._ended = size <= 0
        if not self._ended:
            metadata = self._source.read_buffer(size)
            self._left.append(metadata)
            self._read_body(metadata)
        return True

    def _read_body(self, metadata: pa.Buffer) -> None:
        try:
            message = _Message.of(memoryview(metadata))
        except struct.error as error:
            raise pa.ArrowInvalid(f"it has a malformed message: {error}") from error
        self._check(self._limit.with_body(message))
        body = self._source.read_buffer(message.size_bytes)
        try:
            declared = message.declared(memoryview(body))
        except struct.error as error:
            raise pa.ArrowInvalid(f"it has a malformed message: {error}") from error
        self._check(self._limit.with_message(message, declared))
        self._left.append(body)

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self._limit.bytes_max:
            raise self._too_large(size_bytes)


class _Limit:
    """The limit of a stream, and what counts for it so far: the dictionaries, and earlier batches if it is for all."""

    def __init__(self, bytes_max: int, *, whole: bool, in_place: bool) -> None:
        self.bytes_max = bytes_max
        self.whole = whole
        self.in_place = in_place
        self.dictionaries: dict[int, int] = {}
        self.batches = 0

    def with_body(self, message: _Message) -> int:
        """Return what a message takes before it is decoded."""
        return 0 if self.in_place else message.size_bytes

    def with_message(self, message: _Message, declared: _Declared) -> int:
        """Count a message; returns what it takes with all that is kept beside it."""
        size = declared.expanded + declared.unbacked + (0 if self.in_place else declared.plain)
        if message.kind == _DICTIONARY:
            before = self.dictionaries.get(message.dictionary, 0) if message.is_delta else 0
            self.dictionaries[message.dictionary] = before + size
            # A delta is appended to a copy.
            size = before
        total = self.batches + size + sum(self.dictionaries.values())
        self.batches += size if self.whole and message.kind == _BATCH else 0
        return total


class _Declared(NamedTuple):
    """The bytes of a message: of compressed buffers once expanded, of the others, and positions without a bit."""

    expanded: int = 0
    plain: int = 0
    unbacked: int = 0


class _Message(NamedTuple):
    """The metadata of one message. Reading malformed ones raises struct.error."""

    kind: int
    size_bytes: int
    batch: _Table | None
    dictionary: int = 0
    is_delta: bool = False

    @classmethod
    def of(cls, metadata: memoryview) -> _Message:
        message = _Table.root(metadata)
        kind = message.number(_HEADER_TYPE, "<B")
        size = message.number(_BODY_LENGTH, "<q")
        if size < 0:
            raise struct.error("a body of negative length")
        if kind not in (_DICTIONARY, _BATCH):
            return cls(kind, size, None)
        header = message.table(_HEADER)
        if kind == _BATCH:
            return cls(kind, size, header)
        return cls(
            kind, size, header.table(_DATA), header.number(_DICTIONARY_ID, "<q"), bool(header.number(_IS_DELTA, "<B"))
        )

    def declared(self, body: memoryview) -> _Declared:
        """Return what the buffers of the body decode to, by their own beginnings."""
        if self.batch is None:
            return _Declared()
        compressed = self.batch.has(_COMPRESSION)
        expanded = plain = 0
        for offset, length in self.batch.pairs(_BUFFERS):
            if offset < 0 or length < 0 or offset + length > len(body):
                raise struct.error("a buffer lies outside its message")
            (size,) = struct.unpack_from("<q", body, offset) if compressed and length else (-1,)
            # -1: a buffer that is not compressed, though others are.
            if size == -1:
                plain += length
            else:
                expanded += max(size, length)
        positions = sum(max(0, length) for length, _ in self.batch.pairs(_NODES))
        return _Declared(expanded, plain, max(0, positions - 8 * (expanded + plain)))


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
        message = _Message.of(data[position:body])
        if body + message.size_bytes > len(data):
            raise struct.error("a message is longer than the file")
        found = message.declared(data[body : body + message.size_bytes])
        total += found.expanded + found.plain
        position = body + message.size_bytes
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
