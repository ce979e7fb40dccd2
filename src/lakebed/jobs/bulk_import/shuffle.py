"""The two sides of the shuffle of a bulk import: what a map task sends, and what a reduce task makes of it.

A map task reads its share of the input in chunks that fit into its memory, divides each by ranges of keys
(:mod:`lakebed.files.sorting.ranges`), and sends each reducer the ranges that it owns as a *piece*, opaque to what
carries it (:class:`~lakebed.jobs.executor.Exchange`), which says how large a part may be, and whether it is worth
compressing. A reduce task writes the parts to disk as they come, unless they lie there, then sorts range after range
and sends the files of its keys.

*No row is lost or doubled.* Spark may compute a map task again for some of its reducers, for instance after a lost
block. If the second attempt gave other rows, or divided them differently, reducers of the two attempts would together
lose or double some. Therefore the last thing a map task sends to each of its reducers is an *account*: the task's rows
and digest, and which pieces and how many rows this reducer must have. A reducer compares it with what it received. The
driver commits only if all reducers saw one digest of each map task, and if the rows of all pieces are those that were
read (:func:`settle`).

The digest is XXH3-128 over the digests of the task's pieces in the order in which they were made. It may depend on the
order of rows, because a map task reads only immutable, listed objects: files whose size and time are checked, or staged
files whose digest is. These give the same batches, chunks, pieces and bytes each time. If they do not (another version
of a library on another machine, a source rewritten in place), the import is refused, and never wrong. Hashing
compressed pieces costs a thirtieth of hashing rows one by one.

*Rows with equal keys* are merged by reducers, where the table has a merge mode. They arrive in the order of the source:
map tasks are numbered by their place in it, chunks by their place in a task, and neither step changes the order of rows
with equal keys.

Core types: :class:`Shuffle`, :data:`Chunks`.

Errors: Error and DamagedError if accounts disagree; nothing is imported then.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from xxhash import xxh3_128

from lakebed.errors import Code, Error
from lakebed.files.parquet.layout import Layout
from lakebed.jobs.executor import Piece, Root, decode, encode, task_scratch
from lakebed.model.files import NewFile
from lakebed.model.keys import ALL_KEYS, EncodedRange
from lakebed.model.merge_modes import KEEP_ALL, MergeMode
from lakebed.model.schema import Schema
from lakebed.storage.disk_space import writing_to
from lakebed.write.run import check_rows, send_run

if TYPE_CHECKING:
    from lakebed.files.sorting.range_pieces import FileBytes
    from lakebed.files.sorting.ranges import KeyRanges

ACCOUNT = -1
"""The chunk number of the piece that is a map task's account."""

CHUNK_SHARE = 4
"""A chunk is held three times at most while it is divided."""


def whole_key(schema: Schema, mode: MergeMode = KEEP_ALL) -> Schema:
    """Return a schema whose row key is what boundaries of reducers are encodings of: row key and sort key as one key.

    Where rows of one row key are merged it is the row key alone, since they must meet in one reducer.
    """
    if mode.merge_key(schema) == schema.row_key_names:
        return schema
    return Schema((*schema.row_key, *schema.sort_key), (), schema.values)


@dataclass(frozen=True, slots=True)
class Shuffle:
    """What all tasks of one import share. ``boundaries`` divide the reducers, ``cuts`` divide their keys into ranges,
    ``partitions`` the table, which merges rows by the mode ``merge``. Pieces travel in parts of ``part_bytes``, with
    rows that are compressed as ``compression`` says.
    """

    place: Root
    table_id: str
    job: str
    layout: Layout
    memory_limit_bytes: int
    boundaries: tuple[bytes, ...]
    partitions: tuple[bytes, ...]
    merge: MergeMode = KEEP_ALL
    cuts: tuple[bytes, ...] = ()
    part_bytes: int = sys.maxsize
    compression: str | None = "lz4"

    @property
    def ranges(self) -> KeyRanges:
        """The ranges of all reducers."""
        from lakebed.files.sorting.ranges import KeyRanges

        keyed = whole_key(self.layout.schema, self.merge)
        return KeyRanges(keyed.row_key, tuple(sorted({*self.boundaries, *self.cuts})))

    def chunks(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        """Return the rows of a map task in chunks, each not empty."""
        from lakebed.files.parquet.file_writer import as_schema
        from lakebed.files.parquet.sizes import gather
        from lakebed.files.sorting.key_words import chunk_limits

        rows = (as_schema(batch, self.layout.schema) for batch in batches)
        return gather(rows, *chunk_limits(self.memory_limit_bytes, CHUNK_SHARE))


Chunks = Callable[[Any, Shuffle], Iterator[pa.Table]]
"""From the value of a map task, which says what to read, to its rows, in chunks."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a map task did, for one of its reducers, which must have ``sent`` rows in ``pieces``.

    It read ``rows``, whose digest is ``digest``. A piece is its chunk, its part of the chunk, and its digest.
    """

    rows: int
    digest: str
    sent: int
    pieces: tuple[tuple[int, int, str], ...]


@dataclass(frozen=True, slots=True)
class Reduced:
    """What a reduce task made: its files, and the account of each map task whose pieces it has merged."""

    files: tuple[NewFile, ...]
    accounts: dict[int, Account]


# -- the map side -----------------------------------------------------------------------------------------------


def map_task(number: int, value: Any, shuffle: Shuffle, chunks: Chunks) -> Iterator[Piece]:
    """Run the map task with this number and value."""
    yield from send_pieces(number, chunks(value, shuffle), shuffle)


def send_pieces(number: int, chunks: Iterable[pa.Table], shuffle: Shuffle) -> Iterator[Piece]:
    """The pieces of one map task, then an account for each reducer that received any."""
    from lakebed.files.sorting.ranges import divide

    ranges = shuffle.ranges
    owners = [bisect_right(shuffle.boundaries, cut) for cut in (b"", *ranges.cuts)]
    total = xxh3_128()
    rows: Counter[int] = Counter()
    pieces: dict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for chunk_number, chunk in enumerate(chunks):
        for reducer, owned in groupby(divide(chunk, ranges), lambda piece: owners[piece[0]]):
            found = list(owned)
            rows[reducer] += sum(part.num_rows for _, part in found)
            for part, content in enumerate(_encoded_parts(found, shuffle)):
                digest = xxh3_128(content).hexdigest()
                total.update(f"{reducer} {chunk_number} {part} {digest};".encode())
                pieces[reducer].append((chunk_number, part, digest))
                yield Piece(reducer, number, chunk_number, part, content)
    for reducer, sent in pieces.items():
        account = Account(rows.total(), total.hexdigest(), rows[reducer], tuple(sent))
        yield Piece(reducer, number, ACCOUNT, 0, pa.py_buffer(encode(account)))


def _encoded_parts(pieces: Sequence[tuple[int, pa.RecordBatch]], shuffle: Shuffle) -> Iterator[pa.Buffer]:
    """Return pieces as bytes, in parts: slices of them, which are held."""
    from lakebed.files.sorting.range_pieces import write_pieces

    sink = pa.BufferOutputStream()
    write_pieces(pieces, sink, compression=shuffle.compression)
    content = sink.getvalue()
    for begin in range(0, content.size, shuffle.part_bytes):
        yield content.slice(begin, min(shuffle.part_bytes, content.size - begin))


# -- the reduce side --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _FromMap:
    """What one reducer received from one map task."""

    pieces: dict[tuple[int, int], str] = field(default_factory=dict)
    accounts: list[Account] = field(default_factory=list)


def reduce_task(reducer: int, pieces: Iterable[Piece], shuffle: Shuffle) -> Reduced | None:
    """Run the reduce task with this number, as :func:`merge_pieces`, in a folder of its own."""
    with task_scratch() as scratch:
        return merge_pieces(reducer, pieces, shuffle, scratch)


def merge_pieces(reducer: int, pieces: Iterable[Piece], shuffle: Shuffle, scratch: Path) -> Reduced | None:
    """Check all pieces of one reducer, sort their rows, and send the files; None without pieces.

    Pieces that do not lie on disk are written to the folder ``scratch``.
    """
    from lakebed.files.sorting.range_pieces import write_ranges

    got: dict[int, _FromMap] = defaultdict(_FromMap)
    content: dict[tuple[int, int], FileBytes] = {}
    for _, number, chunk, part, payload, at in pieces:
        if chunk == ACCOUNT:
            got[number].accounts.append(decode(payload, Account))
            continue
        if (chunk, part) in got[number].pieces:
            raise _doubled(number)
        got[number].pieces[chunk, part] = xxh3_128(payload).hexdigest()
        content[number, chunk] = at or _written(scratch / f"{number}-{chunk}", part * shuffle.part_bytes, payload)
    if not got:
        return None
    accounts = {number: _checked(number, received) for number, received in got.items()}
    run = write_ranges(
        # In the order of the source: map tasks are numbered by it, and so are the chunks of each.
        [part for _, part in sorted(content.items())],
        shuffle.ranges,
        shuffle.layout,
        scratch,
        memory_limit_bytes=shuffle.memory_limit_bytes,
        cuts=_boundaries_inside(shuffle, reducer),
        mode=shuffle.merge,
    )
    check_rows(sum(account.sent for account in accounts.values()), sum(file.rows for file in run), shuffle.merge)
    files = send_run(shuffle.place.connect(), shuffle.table_id, run, job=shuffle.job)
    # Pieces were compared here; the driver compares the rest.
    return Reduced(files, {number: replace(account, pieces=()) for number, account in accounts.items()})


def _written(path: Path, begin: int, payload: pa.Buffer) -> FileBytes:
    """Write a part to its place in a file; parts come in any order. Return all that is in the file until now."""
    from lakebed.files.sorting.range_pieces import FileBytes

    with writing_to(path.parent), path.open("r+b" if path.exists() else "xb") as file:
        file.seek(begin)
        file.write(payload)
    return FileBytes.whole(path)


def _doubled(number: int) -> Error:
    return Code.ROWS_LOST(
        f"map task {number} reached a reducer twice, or with pieces of two attempts; nothing was imported. Import again"
    )


def _checked(number: int, received: _FromMap) -> Account:
    """Return the map task's account. Raises Error unless exactly its pieces came."""
    if len(received.accounts) != 1:
        raise _doubled(number)
    account = received.accounts[0]
    if {(chunk, part): digest for chunk, part, digest in account.pieces} != received.pieces:
        raise _doubled(number)
    return account


def _boundaries_inside(shuffle: Shuffle, reducer: int) -> tuple[bytes, ...]:
    """Return the partition boundaries in the reducer's range, so that the summaries have their exact ranks."""
    edges = (b"", *shuffle.boundaries)
    span = EncodedRange(edges[reducer], edges[reducer + 1] if reducer + 1 < len(edges) else ALL_KEYS.max)
    return tuple(b for b in shuffle.partitions if span.contains(b))


# -- the driver's side ------------------------------------------------------------------------------------------


def settle(
    expected: Mapping[int, int], made: Sequence[tuple[int, Reduced]], mode: MergeMode = KEEP_ALL
) -> tuple[NewFile, ...]:
    """Return the files of all reducers in key order, if the accounts agree; ``expected`` has the rows of each map task,
    which were merged by ``mode``.

    Raises:
        DamagedError: a source gave another number of rows than its footer says.
        Error: a reducer reported twice, or saw another attempt of a map task than others did, or rows are missing.
    """
    if len({reducer for reducer, _ in made}) != len(made):
        raise Code.ROWS_LOST("a reducer reported twice; nothing was imported. Import again")
    digests: dict[int, set[str]] = defaultdict(set)
    arrived: Counter[int] = Counter()
    read: dict[int, int] = {}
    for _, result in made:
        for number, account in result.accounts.items():
            digests[number].add(account.digest)
            read[number] = account.rows
            arrived[number] += account.sent
    for number, rows in expected.items():
        if len(digests[number]) > 1:
            raise Code.ROWS_LOST(
                f"map task {number} ran twice and gave different rows, because its source changed; nothing was "
                "imported. Import again"
            )
        if read.get(number, 0) != rows:
            raise Code.SOURCE_DAMAGED(
                f"map task {number} read {read.get(number, 0)} rows, but its sources declare {rows}; nothing was "
                "imported"
            )
        if arrived[number] != rows:
            raise Code.ROWS_LOST(
                f"only {arrived[number]} of {rows} rows of map task {number} arrived; nothing was imported"
            )
    files = tuple(file for _, result in sorted(made, key=lambda m: m[0]) for file in result.files)
    written = sum(new.file.rows for new in files)
    check_rows(sum(expected.values()), written, mode)
    return files
