"""Segments of checkpoints: each is written once under a new name, and fetched when one of its rows is read.

A segment is fetched whole, verified by its digest, mapped into memory, and kept in :data:`STATE_CACHE`. An evicted
segment stays mapped until the last lookup that uses it ends; the next lookup fetches it again. So a state takes the
memory of the segments in use, however large it is.

A missing or damaged segment costs time only: the state of its checkpoint is replayed from the log, and the segment is
made from that. All states that refer to the segment stay readable, and the next checkpoint writes it again.

Errors. StorageError; DamagedError for a segment that cannot be read and cannot be replayed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec import Struct

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotFoundError
from lakebed.log import entry as entries
from lakebed.model.checks import is_whole, shown
from lakebed.model.ipc import open_within
from lakebed.model.state.columns import ColumnarCodec, Columns, Segment, SegmentRows
from lakebed.storage.contract import check_get
from lakebed.storage.disk_cache import fetched
from lakebed.storage.retries import create_until_clear

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from lakebed.storage.contract import Storage

Replay = Callable[[], Columns[Any, Any]]
"""Returns all rows of a kind at the version of a segment's checkpoint, without reading the segment."""


class StoredSegment(Struct, frozen=True):
    """A segment as a manifest names it: token, digest and size of its object; number of rows, first and last key."""

    token: str
    digest: str
    size_bytes: int
    count: int
    first: int | str
    last: int | str


class SegmentCache:
    """Open segments of all tables, with a bound on their bytes; the least recently used is evicted first.

    Counted are the stored bytes of fetched segments and of those just written. A fetched segment is a mapped file: it
    takes memory for the pages that were read, and, unless the store is local, space in the temporary folder. Not
    counted, and held by each open table: the keys of its partitions (some 30 MB for 132,000), the changes since its
    checkpoint, and segments that are small enough to lie in the manifest. A segment in use stays until its lookup ends,
    even if it is larger than the bound. Safe to use from many threads.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = self.hits = self.misses = 0
        self._rows: OrderedDict[StoredSegment, SegmentRows[Any, Any]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, stored: StoredSegment) -> SegmentRows[Any, Any] | None:
        """Return the segment's rows; None if they are not in the cache."""
        with self._changing:
            rows = self._rows.get(stored)
            if rows is None:
                self.misses += 1
            else:
                self.hits += 1
                self._rows.move_to_end(stored)
            return rows

    def keep(self, stored: StoredSegment, rows: SegmentRows[Any, Any]) -> None:
        """Add the segment's rows, as the most recently used."""
        with self._changing:
            if stored not in self._rows:
                self.size_bytes += stored.size_bytes
            self._rows[stored] = rows
            self._rows.move_to_end(stored)
            self._shrink()

    def limit(self, bytes_max: int) -> None:
        """Change the bound, and evict what exceeds it."""
        with self._changing:
            self.bytes_max = bytes_max
            self._shrink()

    def _shrink(self) -> None:
        while self.size_bytes > self.bytes_max:
            stored, _ = self._rows.popitem(last=False)
            self.size_bytes -= stored.size_bytes


STATE_CACHE = SegmentCache(1024 * 1024 * 1024)
"""The cache of this process, for all of its instances and tables."""


def set_state_cache_bytes(size_bytes: int) -> None:
    """Bound the bytes that this process caches of the states of all its tables; the default is 1 GiB.

    :class:`SegmentCache` says what is counted. With less, segments of 1 to 2 MB each are fetched again. Raises
    UsageError.
    """
    if not is_whole(size_bytes):
        raise Code.ARGUMENT_INVALID(f"size_bytes = {shown(size_bytes)}: must be a whole number of bytes, 0 or more")
    STATE_CACHE.limit(size_bytes)


class SegmentStore(Struct, frozen=True):
    """The stored segments of one log; ``name`` maps a token to an object name."""

    storage: Storage
    name: Callable[[str], str]
    cache: SegmentCache

    def opened(self, codec: ColumnarCodec[Any, Any], stored: StoredSegment, replay: Replay | None) -> Segment[Any, Any]:
        """Return a segment whose rows are fetched when they are read."""
        segment: Segment[Any, Any] = Segment((stored.first, stored.last), stored.count, stored.size_bytes, _nowhere)
        self.rebase(segment, codec, stored, replay)
        return segment

    def rebase(
        self, segment: Segment[Any, Any], codec: ColumnarCodec[Any, Any], stored: StoredSegment, replay: Replay | None
    ) -> None:
        """Read the segment from that object from now on, or replay it if the object is missing or damaged."""

        def rows() -> SegmentRows[Any, Any]:
            segment_rows = self.cache.get(stored)
            if segment_rows is not None:
                return segment_rows
            try:
                segment_rows = self.fetched(codec, stored)
            except DamagedError:
                if replay is None:
                    raise
                replayed = SegmentRows(codec, replay().between(stored.first, stored.last))
                # Kept by the segment, not the cache, and without an object: the next checkpoint writes it again.
                segment.rebase_onto(None, lambda: replayed)
                return replayed
            self.cache.keep(stored, segment_rows)
            return segment_rows

        segment.rebase_onto(stored, rows)

    def put(self, rows: SegmentRows[Any, Any]) -> StoredSegment:
        """Write rows under a new name. Raises StorageError."""
        data = bytes_of(rows.batch)
        count = rows.batch.num_rows
        token, digest = clock.random_token(), entries.digest_of(data)
        name = self.name(token)
        # The name is new, so EXISTS means an earlier attempt of this put.
        create_until_clear(self.storage, name, data)
        return StoredSegment(token, digest, len(data), count, rows.key(0), rows.key(count - 1))

    def fetched(self, codec: ColumnarCodec[Any, Any], stored: StoredSegment) -> SegmentRows[Any, Any]:
        """Return the segment's rows from its object.

        Raises DamagedError if it is missing or was changed; StorageError.
        """
        name = self.name(stored.token)
        try:
            # The mapping stays readable after the file is deleted.
            with self._fetched(name, stored) as path, pa.memory_map(str(path)) as source:
                check_get(name, source.size())
                rows = SegmentRows(codec, batch_of(source, name))
        except NotFoundError as error:
            raise Code.CHECKPOINT_DAMAGED(f"{name}, a segment of a checkpoint, is missing", name=name) from error
        actual = (rows.batch.num_rows, rows.key(0), rows.key(rows.batch.num_rows - 1))
        if actual != (stored.count, stored.first, stored.last):
            raise Code.CHECKPOINT_DAMAGED(
                f"{name} is not the segment that its checkpoint describes: {actual}", name=name
            )
        return rows

    def _fetched(self, name: str, stored: StoredSegment) -> AbstractContextManager[Path]:
        return fetched(self.storage.cache, stored.digest, lambda: self.storage.fetch(name, digest=stored.digest))


def _nowhere() -> SegmentRows[Any, Any]:
    raise AssertionError("a segment was read before it was given its object")


def bytes_of(batch: pa.RecordBatch) -> bytes:
    """Return a segment's rows in the stored form, an Arrow IPC file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def batch_of(source: pa.NativeFile, name: str) -> pa.RecordBatch:
    """Return the rows of a stored segment. Raises DamagedError if it is malformed, or decompresses to too much."""
    try:
        batches = list(open_within(source, source.size(), name))
    except pa.ArrowException as error:
        raise Code.CHECKPOINT_DAMAGED(
            f"{name}, a segment of a checkpoint, is not an Arrow file: {error}", name=name
        ) from error
    if len(batches) != 1:
        raise Code.CHECKPOINT_DAMAGED(
            f"{name}, a segment of a checkpoint, has {len(batches)} record batches", name=name
        )
    return batches[0]
