"""Pieces of ranges in files, between the tasks that divide rows by ranges of keys and those that sort the ranges.

A task that divides writes the pieces of one chunk for one receiver one after another (:func:`write_pieces`): a message
of Arrow's for each range, and an index behind them with the schema, the ranges, their sizes, and where each message
lies. A task that sorts has such content, each in a :class:`FileBytes`, in the order in which the rows arrived, reads
range by range, and writes one run (:func:`write_ranges`).

    message, message, … index: schema, [range, rows, bytes in memory, offset, length] …; length of the index (8 bytes)

*Memory.* A range is read, sorted and written before the next one. Ranges are cut by a sample, so one may have more rows
than expected. One that exceeds its share of the memory limit, by bytes or by rows, is divided again, into files of its
own, by keys sampled from it, however often. A key with many rows gets a range for itself, whose rows are in order as
they arrived: it is never held. So a wrong sample costs time, and no memory.

Core types: :class:`FileBytes`, :class:`RangePieces`; :func:`write_pieces`, :func:`write_ranges`.

Rules. Local paths and buffers only. Scratch files are deleted when a call returns or raises.

Errors: StorageError if there is no room.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from msgspec import msgpack

from lakebed.files.merging.row_merger import RowMerger
from lakebed.files.parquet.file_writer import as_schema, write_run
from lakebed.files.parquet.sizes import gather
from lakebed.files.sorting.key_words import chunk_limits
from lakebed.files.sorting.ranges import KeyRanges, divide, sorted_range
from lakebed.model.arrays import of_integers
from lakebed.model.keys import EncodedRange, KeyCodec, successor
from lakebed.model.merge_modes import KEEP_ALL
from lakebed.model.row_kinds import KIND, merge_schema, visible_schema
from lakebed.storage.disk_space import scratch_folder, writing_to

if TYPE_CHECKING:
    from lakebed.files.parquet.layout import Layout, SortedFile
    from lakebed.model.merge_modes import MergeMode
    from lakebed.model.schema import Schema

_Index = tuple[bytes, list[tuple[int, int, int, int, int]]]
_LENGTH_BYTES = 8

_RANGE_SHARE = 6
"""A range is held twice while it is sorted, beside a row group, and the files of one that is divided again three
times."""

_BATCH_ROWS = 32_768
_BATCH_BYTES = 8 * 1024 * 1024

_SAMPLES_OF_RANGE = 64
"""Sampled keys for a range of those that a large one is divided into: its size is then known to an eighth."""

_PARTS_MAX = 256


class FileBytes(NamedTuple):
    """Bytes of a file, which stay as they are for as long as a task reads them."""

    path: Path
    begin: int
    size: int

    @classmethod
    def whole(cls, path: Path) -> FileBytes:
        """Return all bytes of a file."""
        return cls(path, 0, path.stat().st_size)

    def read(self, begin: int, size: int) -> pa.Buffer:
        """Read some of the bytes. The file is open meanwhile."""
        with pa.OSFile(str(self.path)) as file:
            file.seek(self.begin + begin)
            return file.read_buffer(size)


@dataclass(frozen=True, slots=True)
class StoredPiece:
    """A piece: its range, the schema of its rows, where it lies in which part of a file, and its size in memory."""

    range: int
    schema: pa.Schema
    part: FileBytes
    begin: int
    size: int
    rows: int
    bytes: int


def write_pieces(
    pieces: Sequence[tuple[int, pa.RecordBatch]], sink: pa.NativeFile, *, compression: str | None = "lz4"
) -> None:
    """Write the pieces of one chunk, at least one; ``compression`` is ``lz4`` or None."""
    schema = pieces[0][1].schema
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    first = sink.tell()
    placed = []
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        # The schema is written with the first batch: of no rows, which nothing reads.
        writer.write_batch(pieces[0][1].slice(0, 0))
        for number, rows in pieces:
            begin = sink.tell()
            writer.write_batch(rows)
            placed.append((number, rows.num_rows, rows.nbytes, begin - first, sink.tell() - begin))
    index = msgpack.encode((schema.serialize().to_pybytes(), placed))
    sink.write(index + len(index).to_bytes(_LENGTH_BYTES, "little"))


class RangePieces:
    """The pieces in some parts of files, by range, in the order of the parts."""

    def __init__(self, parts: Sequence[FileBytes]) -> None:
        self.by_range: dict[int, list[StoredPiece]] = defaultdict(list)
        self.rows = 0
        for part in parts:
            end = part.size - _LENGTH_BYTES
            length = int.from_bytes(part.read(end, _LENGTH_BYTES), "little")
            described, index = msgpack.decode(part.read(end - length, length), type=_Index)
            schema = pa.ipc.read_schema(pa.py_buffer(described))
            for number, rows, size, begin, stored in index:
                self.by_range[number].append(StoredPiece(number, schema, part, begin, stored, rows, size))
                self.rows += rows

    def __iter__(self) -> Iterator[tuple[int, list[StoredPiece]]]:
        """Return the ranges that have rows, in ascending order, with their pieces."""
        return iter(sorted(self.by_range.items()))


def read_pieces(pieces: Iterable[StoredPiece]) -> Iterator[pa.RecordBatch]:
    """Return the rows of pieces, a batch for each."""
    for piece in pieces:
        yield pa.ipc.read_record_batch(piece.part.read(piece.begin, piece.size), piece.schema)


def write_ranges(  # noqa: PLR0913 - pieces and their ranges, layout, folder, memory, cuts and mode
    parts: Sequence[FileBytes],
    ranges: KeyRanges,
    layout: Layout,
    scratch: Path,
    *,
    memory_limit_bytes: int,
    cuts: Sequence[bytes] = (),
    mode: MergeMode = KEEP_ALL,
) -> list[SortedFile]:
    """Sort the rows of pieces and write them as one run in the folder ``scratch``; see
    :func:`~lakebed.files.parquet.file_writer.write_run`.

    ``parts`` have the content of :func:`write_pieces` each, in the order in which their rows arrived. By a ``mode``
    other than ``KeepAll``, rows with equal merge keys become one.
    """
    found = RangePieces(parts)
    schema = layout.schema
    order = schema
    if not mode.keeps_all:
        order = merge_schema(mode, visible_schema(schema), hidden=KIND in schema.by_name)
    with scratch_folder("ranges", scratch) as folder:
        rows_max, bytes_max = chunk_limits(memory_limit_bytes, _RANGE_SHARE)
        rows = RangeSort(order, folder, rows_max=rows_max, bytes_max=bytes_max).ordered(found, ranges)
        if not mode.keeps_all:
            rows = RowMerger(mode, visible_schema(schema), complete=False).merge(rows)
        return write_run(
            rows, layout, scratch, rows_estimate=found.rows, cuts=cuts, memory_limit_bytes=memory_limit_bytes
        )


class RangeSort:
    """Sorts ranges by the keys of a schema, of which it holds one of at most ``rows_max`` and ``bytes_max``."""

    def __init__(self, schema: Schema, folder: Path, *, rows_max: int, bytes_max: int) -> None:
        self._schema = schema
        self._fields = tuple(schema.by_name[name] for name in schema.sort_names)
        self._folder = folder
        self._rows_max = rows_max
        self._bytes_max = bytes_max

    def ordered(
        self, found: RangePieces, ranges: KeyRanges, alone: frozenset[bytes] = frozenset()
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of all ranges, in order; rows with equal keys in the order of the pieces.

        A range that begins with a key of ``alone`` has no other key.
        """
        for number, pieces in found:
            keys = ranges.keys(number)
            rows, size = sum(piece.rows for piece in pieces), sum(piece.bytes for piece in pieces)
            if keys.min in alone:
                yield from self._rows(pieces)
            elif rows <= self._rows_max and size <= self._bytes_max:
                batch_rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(1, size)))
                yield from sorted_range([*self._rows(pieces)], self._schema, keys, batch_rows=batch_rows)
            else:
                yield from self._divided_again(pieces, keys, max(rows / self._rows_max, size / self._bytes_max))

    def _rows(self, pieces: Iterable[StoredPiece]) -> Iterator[pa.RecordBatch]:
        return (as_schema(rows, self._schema) for rows in read_pieces(pieces))

    def _divided_again(
        self, pieces: Sequence[StoredPiece], keys: EncodedRange, times: float
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a range that is ``times`` too large, in order, by way of files of smaller ranges."""
        chosen = self._sample(pieces, min(_PARTS_MAX, int(2 * times) + 1))
        # A key that is chosen twice has a part at least, and gets it for itself. So every division makes progress.
        alone = frozenset(key for key, following in pairwise(chosen) if key == following)
        cuts = {keys.min, keys.max, *chosen, *map(successor, alone)}
        ranges = KeyRanges(self._fields, tuple(sorted(cut for cut in cuts if cut)))
        with scratch_folder("range", self._folder) as folder:
            parts: list[FileBytes] = []
            for chunk in gather(self._rows(pieces), self._rows_max, self._bytes_max):
                path = folder / f"{len(parts):06d}.pieces"
                with writing_to(folder), pa.OSFile(str(path), "wb") as sink:
                    write_pieces([*divide(chunk, ranges)], sink)
                del chunk
                parts.append(FileBytes.whole(path))
            yield from self.ordered(RangePieces(parts), ranges, alone)

    def _sample(self, pieces: Sequence[StoredPiece], parts: int) -> list[bytes]:
        """Return ``parts`` keys of the pieces, ascending, between which about as many rows lie; some may be equal."""
        rows = sum(piece.rows for piece in pieces)
        step = max(1, rows // (parts * _SAMPLES_OF_RANGE))
        codec = KeyCodec(self._fields)
        sampled: list[bytes] = []
        passed = 0
        for batch in self._rows(pieces):
            wanted = np.arange((step // 2 - passed) % step, batch.num_rows, step)
            passed += batch.num_rows
            sampled += codec.encode_columns(batch.select(self._schema.sort_names).take(of_integers(wanted))).to_pylist()
        sampled.sort()
        return [sampled[len(sampled) * part // parts] for part in range(parts)]
