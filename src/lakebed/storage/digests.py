"""Digests of objects, computed while the bytes are copied.

XXH3-128 detects damage, not forgery (a program that can write the data can also write the log). At about 10 GB/s it
takes less time than the copy. The Parquet footer has no checksum of its own, and one flipped bit in it can lose rows or
hang a reader. So it has a digest too, and a point read verifies a few kB instead of the file.

A Parquet file ends in: metadata, its length (4 bytes, little-endian), the magic ``PAR1``. The footer is all three.
Source: Parquet format specification, "File format".
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import xxhash
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READ_BYTES = 256 * 1024
"""Bytes read at once: large enough that the system call costs little, small enough that the bytes stay in a core's
cache and that malloc reuses their memory. It maps and unmaps larger blocks, whose pages the kernel clears each time:
with 4 MiB, digests of a cached file took 1.5 times the CPU."""

_MAGIC = b"PAR1"
_TAIL_BYTES = 8
_FILE_BYTES_MIN = len(_MAGIC) + _TAIL_BYTES


class Digests(Struct, frozen=True):
    """Size and digests of the bytes that were read."""

    size_bytes: int
    digest: str
    footer_bytes: int
    footer_digest: str


class DigestingReader:
    """Reads an open file once, from front to back; :meth:`result` then returns its digests.

    The last 8 bytes are read first to locate the footer, so it is digested in the same pass.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size_bytes = 0
        self._whole = xxhash.xxh3_128()
        self._footer = xxhash.xxh3_128()
        self._footer_at, self._footer_bytes = _find_footer(descriptor)

    def chunks(self) -> Iterator[bytes]:
        """Return the file's bytes in order."""
        while chunk := os.pread(self._descriptor, READ_BYTES, self._size_bytes):
            self._whole.update(chunk)
            if self._footer_bytes and self._size_bytes + len(chunk) > self._footer_at:
                self._footer.update(memoryview(chunk)[max(0, self._footer_at - self._size_bytes) :])
            self._size_bytes += len(chunk)
            yield chunk

    def result(self) -> Digests:
        """Return the digests. Requires that :meth:`chunks` is exhausted."""
        return Digests(
            self._size_bytes,
            self._whole.hexdigest(),
            self._footer_bytes,
            self._footer.hexdigest() if self._footer_bytes else "",
        )


def digest_bytes(data: bytes) -> str:
    """Return the digest of bytes in memory, as in :attr:`Digests.digest`."""
    return xxhash.xxh3_128_hexdigest(data)


def digest_descriptor(descriptor: int) -> Digests:
    """Read an open file once and return its digests."""
    reader = DigestingReader(descriptor)
    for _ in reader.chunks():
        pass
    return reader.result()


def digest_file(path: Path) -> Digests:
    """Read a local file once and return its digests.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return digest_descriptor(descriptor)
    finally:
        os.close(descriptor)


def _find_footer(descriptor: int) -> tuple[int, int]:
    """Return (offset, length) of the Parquet footer; (0, 0) for any other file."""
    size_bytes = os.fstat(descriptor).st_size
    if size_bytes < _FILE_BYTES_MIN or os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
        return 0, 0
    tail = os.pread(descriptor, _TAIL_BYTES, size_bytes - _TAIL_BYTES)
    footer_bytes = int.from_bytes(tail[:4], "little") + _TAIL_BYTES
    if tail[4:] != _MAGIC or footer_bytes > size_bytes - len(_MAGIC):
        return 0, 0
    return size_bytes - footer_bytes, footer_bytes
