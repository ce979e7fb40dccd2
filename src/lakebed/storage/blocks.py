"""Block digests verify that bytes read from a data file are the bytes that were written.

A Parquet file has checksums for the content of its pages only. A flipped bit in a page header, a page index or a filter
can lose rows without an error. So a data file has a list with a digest of each of its blocks. The list lies before the
footer and covers every byte before the list. The footer has the digest of the list, and the table state has the digest
of the footer. A reader verifies the blocks that it reads, whatever their content.

:func:`seal` inserts the list into a file that Arrow has closed: a Parquet footer does not depend on its own offset, so
the list goes in front of it, and replaces a placeholder in the footer by a value of the same length. :class:`Blocks`
verifies, and records the verified blocks: a process verifies each block once, at its first use.

Rules: a digest is the canonical bytes of XXH3-64 (docs/format.md, section 7). Errors: OSError, which readers turn into
a DamagedError that names the file. Source: decision 0029.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import xxhash
from msgspec import Struct
from msgspec.structs import asdict

from lakebed.model.documents import load
from lakebed.storage.digests import READ_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

KEY = "lakebed.block_digests"
"""The key of the placeholder in the key-value metadata of the footer."""

BLOCK_BYTES = 16 * 1024
"""Bytes of a block. Smaller blocks make the list longer (it takes 0.05% of the file); larger ones make small reads
longer."""

PLACEHOLDER = "?" * 96

_ENTRY = KEY.encode() + bytes([0x18, len(PLACEHOLDER)]) + PLACEHOLDER.encode()
"""The key and its value in the footer. In Thrift's compact protocol, the two bytes in between are the next field, of
type text, and its length."""

DIGEST_BYTES = 8
_TAIL_BYTES = 8  # the footer's length and the magic
_READ_BLOCKS = READ_BYTES // BLOCK_BYTES
"""Blocks digested in one read."""

ByteRange = tuple[int, int]
"""Offset and length."""


class BlockList(Struct, frozen=True):
    """The location of the list of block digests: ``offset`` is also the end of the last block."""

    block_bytes: int
    offset: int
    digest: str

    @classmethod
    def parse(cls, text: bytes) -> BlockList:
        """Parse the value in the footer. Raises ValueError, KeyError or TypeError if it is malformed."""
        document = load(text)
        found = cls(int(document["block_bytes"]), int(document["offset"]), str(document["digest"]))
        if found.block_bytes < 1 or found.offset < 0:
            raise ValueError(f"blocks of {found.block_bytes} bytes up to {found.offset}")
        return found

    def to_text(self) -> bytes:
        """Return the value for the footer, of the length of the placeholder."""
        text = json.dumps(asdict(self), separators=(",", ":")).encode().ljust(len(PLACEHOLDER))
        assert len(text) == len(PLACEHOLDER)
        return text

    @property
    def byte_range(self) -> ByteRange:
        """Offset and length of the list."""
        return self.offset, DIGEST_BYTES * -(-self.offset // self.block_bytes)

    @classmethod
    def beside(cls, offset: int, digests: bytes) -> BlockList:
        """Return the list of a file that does not contain it; its blocks end at ``offset``."""
        return cls(BLOCK_BYTES, offset, xxhash.xxh3_128_hexdigest(digests))

    def fits(self, size_bytes: int, footer_bytes: int) -> bool:
        """Return whether the list ends where the footer of a file of this size begins."""
        return sum(self.byte_range) + footer_bytes == size_bytes


class Blocks:
    """The blocks of one open file, with a record of the verified ones. Safe to use from many threads."""

    __slots__ = ("_digests", "_seen", "_size", "block_bytes")

    def __init__(self, listed: BlockList, digests: bytes) -> None:
        """``digests`` is the list. Raises OSError if it does not have the digest in the footer."""
        found = xxhash.xxh3_128_hexdigest(digests)
        if len(digests) != listed.byte_range[1] or found != listed.digest:
            raise OSError(f"the digest of its block digests is {found}, {listed.digest} was written")
        self.block_bytes = listed.block_bytes
        self._digests = digests
        self._size = listed.offset
        self._seen = bytearray(len(digests) // DIGEST_BYTES)

    def around(self, byte_range: ByteRange) -> ByteRange:
        """Return the byte range of the whole blocks that contain the bytes."""
        begin = byte_range[0] // self.block_bytes * self.block_bytes
        end = -(-(byte_range[0] + byte_range[1]) // self.block_bytes) * self.block_bytes
        return begin, min(end, self._size) - begin

    @property
    def end(self) -> int:
        """The offset at which the last block ends."""
        return self._size

    def ends_before(self, byte_range: ByteRange) -> bool:
        """Return whether the bytes are after the blocks: in the list of digests, or in the footer."""
        return byte_range[0] >= self._size

    def check(self, begin: int, content: bytes | memoryview) -> None:
        """Compare whole blocks, from offset ``begin`` on, with their digests. Raises OSError for one that differs."""
        size, view = self.block_bytes, memoryview(content)
        at = DIGEST_BYTES * (begin // size)
        for start in range(0, len(view), size):
            if xxhash.xxh3_64_digest(view[start : start + size]) != self._digests[at : at + DIGEST_BYTES]:
                end = min(begin + start + size, self._size)
                raise OSError(f"bytes {begin + start} to {end} are not what was written")
            at += DIGEST_BYTES

    def read(self, descriptor: int, byte_range: ByteRange) -> bytes:
        """Read these bytes of an open local file; unverified blocks among them are read and verified whole.

        Raises OSError if a block differs, or the file is too short.
        """
        offset, length = byte_range
        first, end = offset // self.block_bytes, -(-(offset + length) // self.block_bytes)
        if self._seen.find(0, first, end) < 0:
            content = os.pread(descriptor, length, offset)
        else:
            begin = offset - first * self.block_bytes
            content = self._verified(descriptor, first, end)[begin : begin + length]
        if len(content) != length:
            raise OSError(f"{len(content)} of {length} bytes at {offset}")
        return content

    def have_seen(self, byte_ranges: Iterable[ByteRange]) -> bool:
        """Return whether all blocks of the bytes are verified. Bytes after the blocks were verified at opening."""
        size, find = self.block_bytes, self._seen.find
        for offset, length in byte_ranges:  # noqa: SIM110 - a generator costs a call for each range
            if find(0, offset // size, -(-(offset + length) // size)) >= 0:
                return False
        return True

    def verify(self, path: Path, byte_ranges: Iterable[ByteRange]) -> None:
        """Verify the blocks of these byte ranges of a local file that are not verified yet. Raises OSError."""
        unseen = [byte_range for byte_range in byte_ranges if not self.have_seen([byte_range])]
        if unseen:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                for offset, length in unseen:
                    end = -(-(offset + length) // self.block_bytes)
                    for first in range(offset // self.block_bytes, end, _READ_BLOCKS):
                        self._verified(descriptor, first, min(end, first + _READ_BLOCKS))
            finally:
                os.close(descriptor)

    def verify_all(self, path: Path) -> None:
        """Verify all blocks of a local file that are not verified yet. Raises OSError."""
        self.verify(path, [(0, self._size)])

    def _verified(self, descriptor: int, first: int, end: int) -> bytes:
        """Read and verify the blocks ``[first, end)``."""
        if end > len(self._seen):
            raise OSError(f"block {end - 1} does not exist: there are {len(self._seen)}")
        offset = first * self.block_bytes
        length = min(end * self.block_bytes, self._size) - offset
        content = os.pread(descriptor, length, offset)
        if len(content) != length:
            raise OSError(f"{len(content)} of {length} bytes at {offset}")
        self.check(offset, content)
        self._seen[first:end] = b"\x01" * (end - first)
        return content


def digests_of(path: Path) -> bytes:
    """Compute the digests of the blocks of a Parquet file that another program wrote, up to its footer.

    Raises OSError if it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return block_digests(descriptor, _footer_offset(descriptor))
    finally:
        os.close(descriptor)


def _footer_offset(descriptor: int) -> int:
    size_bytes = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, _TAIL_BYTES, size_bytes - _TAIL_BYTES)
    return size_bytes - _TAIL_BYTES - int.from_bytes(tail[:4], "little")


def block_digests(descriptor: int, size_bytes: int) -> bytes:
    """Compute the digests of the first ``size_bytes`` bytes of an open file, block by block."""
    digests: list[bytes] = []
    step = BLOCK_BYTES * _READ_BLOCKS
    for begin in range(0, size_bytes, step):
        view = memoryview(os.pread(descriptor, min(step, size_bytes - begin), begin))
        digests += [xxhash.xxh3_64_digest(view[at : at + BLOCK_BYTES]) for at in range(0, len(view), BLOCK_BYTES)]
    return b"".join(digests)


def seal(path: Path) -> None:
    """Add block digests to a closed Parquet file whose footer has the placeholder under :data:`KEY`.

    Raises OSError if the file cannot be read or written, ValueError if its footer has no placeholder.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        size_bytes = os.fstat(descriptor).st_size
        offset = _footer_offset(descriptor)
        footer = os.pread(descriptor, size_bytes - offset, offset)
        digests = block_digests(descriptor, offset)
        value = BlockList(BLOCK_BYTES, offset, xxhash.xxh3_128_hexdigest(digests)).to_text()
        # Searches from the end: the key-value metadata follows the row groups, whose statistics contain values of
        # users.
        found = footer.rfind(_ENTRY)
        if found < 0:
            raise ValueError(f"the footer of {path} has no placeholder for block digests")
        at = found + len(_ENTRY) - len(PLACEHOLDER)
        _write(descriptor, [digests, footer[:at], value, footer[at + len(value) :]], offset)
    finally:
        os.close(descriptor)


def _write(descriptor: int, parts: Sequence[bytes], offset: int) -> None:
    content = b"".join(parts)
    written = 0
    while written < len(content):
        written += os.pwrite(descriptor, memoryview(content)[written:], offset + written)
