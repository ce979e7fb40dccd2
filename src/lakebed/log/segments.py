"""The segments of checkpoints: written once under a fresh name, fetched when one of their rows is asked for.

A segment that is asked for is fetched whole, verified by its digest, mapped into memory, and kept by the process's
:data:`STATE_CACHE`. When others push it out, the mapping goes with the last lookup that uses it, and the next one
fetches it again. So a state takes the memory of what is looked at, however large it is.

A segment that is gone or damaged costs time and nothing else: the state that its checkpoint was written of is made
again from the log, and the segment out of that. Whatever rests on the segment, the newest state or one that a caller
has held for days, goes on as if nothing had been. The next checkpoint writes it anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed import clock
from lakebed.errors import Code, DamagedError, NotFoundError
from lakebed.log import entry as entries
from lakebed.model.checks import is_whole, shown
from lakebed.model.ipc import open_within
from lakebed.state.columns import ColumnarCodec, Columns, Segment, SegmentRows
from lakebed.storage.contract import check_get
from lakebed.storage.retries import put_until_clear

if TYPE_CHECKING:
    from lakebed.storage.contract import Storage

Again = Callable[[], Columns[Any, Any]]
"""Gives all rows of a kind as of the checkpoint that a segment was written with, without that segment."""


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment's object and what a manifest says of it: token, digest, bytes; how many rows, first and last key."""

    token: str
    digest: str
    size_bytes: int
    count: int
    first: int | str
    last: int | str


class SegmentCache:
    """Opened segments of whatever tables, up to a bound; what was used least recently goes first. Safe for threads.

    Counted are the bytes of the segments as they are stored. They bound what the process holds of checkpoints: mapped
    files, which take memory as far as they are looked at (and on a store that is not local, space in the temporary
    folder), and segments that it has just written. Not counted, and held by each open table beside it: the keys of its
    partitions (some 30 MB for 132,000), what was committed since its checkpoint, and segments so small that they lie in
    the manifest. The part in use stays until its lookup ends, even if it is larger than the bound.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.size_bytes = 0
        self._rows: OrderedDict[StoredSegment, SegmentRows[Any, Any]] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, stored: StoredSegment) -> SegmentRows[Any, Any] | None:
        """The part's rows; None if they are not kept."""
        with self._changing:
            found = self._rows.get(stored)
            if found is not None:
                self._rows.move_to_end(stored)
            return found

    def keep(self, stored: StoredSegment, rows: SegmentRows[Any, Any]) -> None:
        """Keep the segment's rows, as what was used last."""
        with self._changing:
            if stored not in self._rows:
                self.size_bytes += stored.size_bytes
            self._rows[stored] = rows
            self._rows.move_to_end(stored)
            self._shrink()

    def limit(self, bytes_max: int) -> None:
        """Change the bound; what is above it goes at once."""
        with self._changing:
            self.bytes_max = bytes_max
            self._shrink()

    def _shrink(self) -> None:
        while self.size_bytes > self.bytes_max:
            stored, _ = self._rows.popitem(last=False)
            self.size_bytes -= stored.size_bytes


STATE_CACHE = SegmentCache(1024 * 1024 * 1024)
"""The one of this process: memory is the process's, however many instances and tables it opens."""


def set_state_cache_bytes(size_bytes: int) -> None:
    """Bound what this process keeps of the states of all its tables; 1 GiB unless it is changed.

    See :class:`SegmentCache` for what is counted. Less costs fetching segments again, each of 1 to 2 MB. Raises
    UsageError.
    """
    if not is_whole(size_bytes):
        raise Code.ARGUMENT_INVALID(f"size_bytes = {shown(size_bytes)}: must be a whole number of bytes, 0 or more")
    STATE_CACHE.limit(size_bytes)


@dataclass(frozen=True, slots=True)
class SegmentStore:
    """Where the segments of one log lie; ``name`` gives the object of a token."""

    storage: Storage
    name: Callable[[str], str]
    cache: SegmentCache

    def opened(self, codec: ColumnarCodec[Any, Any], stored: StoredSegment, again: Again | None) -> Segment[Any, Any]:
        """A segment whose rows are fetched when they are asked for."""
        segment: Segment[Any, Any] = Segment((stored.first, stored.last), stored.count, stored.size_bytes, _nowhere)
        self.rebase(segment, codec, stored, again)
        return segment

    def rebase(
        self, segment: Segment[Any, Any], codec: ColumnarCodec[Any, Any], stored: StoredSegment, again: Again | None
    ) -> None:
        """Let the rows of the segment be found in that object from now on, or made again if it is gone or damaged."""

        def rows() -> SegmentRows[Any, Any]:
            found = self.cache.get(stored)
            if found is not None:
                return found
            try:
                found = self.fetched(codec, stored)
            except DamagedError:
                if again is None:
                    raise
                made = SegmentRows(codec, again().between(stored.first, stored.last))
                # It is no copy of the object: kept by the segment itself, and written anew by the next checkpoint.
                segment.rebase_onto(None, lambda: made)
                return made
            self.cache.keep(stored, found)
            return found

        segment.rebase_onto(stored, rows)

    def put(self, rows: SegmentRows[Any, Any]) -> StoredSegment:
        """Write rows under a fresh name. Raises StorageError."""
        data = bytes_of(rows.batch)
        count = rows.batch.num_rows
        token, digest = clock.random_token(), entries.digest_of(data)
        name = self.name(token)
        # The name is fresh, so that "exists" can only be about an earlier put of ours.
        put_until_clear(lambda: self.storage.create(name, data), name)
        return StoredSegment(token, digest, len(data), count, rows.key(0), rows.key(count - 1))

    def fetched(self, codec: ColumnarCodec[Any, Any], stored: StoredSegment) -> SegmentRows[Any, Any]:
        """The part's rows from its object. Raises DamagedError if it is gone, or not what was written; StorageError."""
        name = self.name(stored.token)
        try:
            # The mapping outlives the file's name: what is in use stays readable.
            with self.storage.fetch(name, digest=stored.digest) as path, pa.memory_map(str(path)) as source:
                check_get(name, source.size())
                rows = SegmentRows(codec, batch_of(source, name))
        except NotFoundError as error:
            raise Code.CHECKPOINT_DAMAGED(f"{name}, a segment of a checkpoint, is missing", name=name) from error
        found = (rows.batch.num_rows, rows.key(0), rows.key(rows.batch.num_rows - 1))
        if found != (stored.count, stored.first, stored.last):
            raise Code.CHECKPOINT_DAMAGED(
                f"{name} is not the segment that its checkpoint describes: {found}", name=name
            )
        return rows


def _nowhere() -> SegmentRows[Any, Any]:
    raise AssertionError("a segment was asked for its rows before it had any")


def bytes_of(batch: pa.RecordBatch) -> bytes:
    """A segment's rows as they are stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def batch_of(source: pa.NativeFile, name: str) -> pa.RecordBatch:
    """The rows of a stored part. Raises DamagedError if it is none, or compressed to less than its rows take."""
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
