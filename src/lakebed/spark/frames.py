"""Messages between a pool and its workers: the length in eight bytes, then so many bytes."""

from __future__ import annotations

import struct
from typing import IO

_LENGTH = struct.Struct("<Q")


def write_frame(pipe: IO[bytes], data: bytes) -> None:
    """Write a message. Raises BrokenPipeError if the reader has closed the stream."""
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """The next message; None if the pipe ended before it was whole."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    return data if len(data) == length else None
