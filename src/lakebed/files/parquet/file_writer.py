"""Writes sorted rows as the data files of one run. All data files are written here.

Rows are gathered into row groups. Each is encoded and compressed column by column as soon as it is complete, so at most
one row group is held. The layout of a file (docs/format.md):

* pages are compressed with the codec of the layout. zstd has level 1: on sorted random keys levels 2 and 3 took 1.3 and
  1.8 times the CPU for files no smaller;
* ``sorting_columns`` names the sort order; field ids are in the Parquet schema;
* the page index is on and pages are small, because a point lookup decodes one page per column. Columns of types that
  keys can have have statistics, in pages and chunks, and so a predicate skips pages. Value columns have none if the
  table says so, or if their values are NaN or longer than :data:`BOUND_BYTES_MAX` (docs/decisions/0073);
* a split-block Bloom filter per row group over its keys, sized for its rows: Parquet's own filter of the column if the
  key is one field, else a filter over encoded keys or, if the layout says so, over their first fields, which follows
  the last row group;
* integers, dates and times are delta-packed where a dictionary does not pay: a page of random ones took 15–40% fewer
  bytes than plain ones after zstd, and half the CPU to write and to read. Most packed columns do not shrink under any
  codec: those are not compressed (docs/decisions/0064);
* a file with a NaN in a key has no statistics of float keys: Parquet's leave NaN out, so a row group with one begins
  a file of its own, if the file before it has them. A file that takes all rows of a run never has them. Of value
  columns, statistics that turn out to leave NaN out are taken out of the footer before the file is sealed;
* pages have CRCs, which locate the damage in a damaged file;
* deletes and partial rows are counted, if the schema has the hidden columns (:mod:`lakebed.model.row_kinds`);
* digests of blocks of 16 KiB precede the footer (:mod:`lakebed.storage.blocks`), so that a reader can verify any part
  of the file.

The encoder is Arrow's C++ writer. DataFusion's is as fast, but it writes no CRCs, cannot cut a stream into files while
it arrives, and does not expose the rows that summaries need.

Rules: rows out of order are an error; an empty input writes no file; a failed call leaves no file. Local paths only.

Errors: SchemaMismatchError, StorageError; Error for rows out of order.

*Makes the Bloom filter over keys that a file has if its key has several fields (docs/format.md, section 7).*

Arrow makes filters only for columns, so the encoded keys are written as a column, of which only the filter is kept.
:mod:`lakebed.files.parquet.bloom_filters` reads it.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakebed.clock import random_token
from lakebed.errors import Code
from lakebed.files.parquet.key_bounds import FloatBounds, is_float, key_bounds, widen
from lakebed.files.parquet.layout import ONE_FILE_BYTES, Layout, SortedFile
from lakebed.files.parquet.ranks import RankNotes
from lakebed.files.parquet.sizes import gather
from lakebed.files.parquet.thrift import decode_struct, without_fields
from lakebed.model.arrays import plain
from lakebed.model.field_ids import numbered_schema, shown_schema
from lakebed.model.files import KEY_FILTERS
from lakebed.model.key_summaries import Summary
from lakebed.model.key_type import BOOLEAN
from lakebed.model.key_types import key_type
from lakebed.model.keys import KeyCodec, comparable
from lakebed.model.row_kinds import KIND, RowKind, without_hidden
from lakebed.model.schema import Field, Schema
from lakebed.model.settings import Compression, Settings
from lakebed.model.validity import as_stored
from lakebed.storage import blocks
from lakebed.storage.disk_space import writing_to

_FILTER_PAGE_BYTES = 64 * 1024
"""Bytes of a page of encoded keys, which are not kept: small enough to stay in the processor's cache."""


def key_filter(keys: pa.Array, fpp: float) -> pa.Buffer:
    """Return a Bloom filter over encoded keys with its Parquet header, extracted from a file that Arrow writes."""
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    options |= {"data_page_size": _FILTER_PAGE_BYTES, "bloom_filter_options": {"key": {"ndv": len(keys), "fpp": fpp}}}
    sink = _Tail()
    table = pa.table({"key": keys})
    with pq.ParquetWriter(sink, table.schema, **options) as writer:
        writer.write_table(table, row_group_size=len(keys))
        begin = sink.begin()
    chunk = writer.writer.metadata.row_group(0).column(0)
    return pa.py_buffer(sink.content).slice(chunk.bloom_filter_offset - begin, chunk.bloom_filter_length)


class _Tail(io.RawIOBase):
    """A file in memory that keeps only the bytes after :meth:`begin`."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._at = 0
        self._keeps = False

    def begin(self) -> int:
        """Keep all bytes written from now on; return their position."""
        self._keeps = True
        return self._at

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, content: Any) -> int:
        self._at += len(content)
        if self._keeps:
            self.content += content
        return len(content)


GROUP_BYTES_MAX = 64 * 1024 * 1024
"""A row group is closed at this size in memory even if it has few rows, because it is held whole."""

_GROUP_SHARE = 4
"""The fraction of the memory limit for a row group: its inputs and its encoded pages are in memory besides."""

_TAIL_BYTES = 8  # the footer's length and the magic
_GROUPS, _CHUNKS, _META, _PATH = 4, 1, 3, 3
_STATISTICS = ((_META, 12), (6,), (7,))
"""Fields of Parquet's footer; of a column chunk, its statistics, and where its column index is."""

_ARROW_SCHEMA = "ARROW:schema"
"""The metadata pair with the schema for Arrow's readers, as Arrow's writer makes it of the schema of the rows."""

_BUFFER_BYTES = 1024 * 1024
_LEVELS = {Compression.ZSTD: 1}
"""The levels of codecs; the others have none."""

_SAMPLE_ROWS = 8192
_DICTIONARY_REPEATS = 16
"""A column is dictionary-encoded if each value of a sample occurs at least this often on average. Below that, a point
lookup pays for the dictionary page, and zstd saves nearly as much."""

_PACKED_SAMPLE_ROWS = 2048
_COMPRESSED_SHARE_MAX = 0.95
"""Delta-packed columns are compressed if that makes that many rows at least this small. Most are as small already, and
a codec costs time for each page: to write it, and to read it."""

BOUND_BYTES_MAX = 64
"""Columns of longer text or bytes have no statistics: Arrow writes whole values, two for each page and row group, up to
4 KiB each. With at most 64 bytes the column index of a page of 1,000 texts takes less than 1% of the page."""

_PAGE_ROWS_BYTES = 1024 * 1024
"""The approximate size, in all columns, of the rows of one page of keys: reads and slices are cut at these pages."""


def write_run(  # noqa: PLR0913 - input, layout, folder, estimate, cuts and memory
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    scratch: Path,
    *,
    rows_estimate: int,
    cuts: Sequence[bytes] = (),
    memory_limit_bytes: int = Settings().memory_limit_bytes,
) -> list[SortedFile]:
    """Write sorted rows as files of about ``layout.file_bytes`` in the folder ``scratch``, in key order.

    Requires batches of the schema's columns, sorted by row key, then sort key. Each summary has the exact rank of
    those ``cuts`` (ascending encoded keys) that fall inside its file. The caller owns the files from then on.

    Raises SchemaMismatchError if the columns are not the schema's, Error if the rows are not in order, and
    StorageError if ``scratch`` cannot be written; no file is left then.
    """
    files: list[SortedFile] = []
    current: _OpenFile | None = None
    bytes_max = min(GROUP_BYTES_MAX, memory_limit_bytes // _GROUP_SHARE, max(layout.file_bytes // 2, 1))
    try:
        for group in gather(in_order(batches, layout.schema), layout.row_group_rows, bytes_max):
            if current is not None and not current.takes(group):
                files.append(current.close())
                current = None
            if current is None:
                current = _OpenFile(layout, scratch / f"run-{random_token()}.parquet", cuts, group)
            current.add(group, rows_estimate)
            if current.is_full():
                files.append(current.close())
                current = None
        if current is not None:
            files.append(current.close())
    except BaseException:
        if current is not None:
            current.discard()
        for file in files:
            file.path.unlink(missing_ok=True)
        raise
    return files


def in_order(batches: Iterable[pa.RecordBatch], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Return the batches in the form of the schema, without empty ones. Raises Error if one begins below the last."""
    codec = KeyCodec((*schema.row_key, *schema.sort_key))
    previous: bytes | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        rows = as_schema(batch, schema)
        first = codec.encode_row(rows, 0)
        if previous is not None and first < previous:
            raise Code.INTERNAL_ERROR(
                f"rows to be written are not sorted by {', '.join(schema.sort_names)}: a batch begins with "
                f"{dict(rows.select(schema.sort_names).slice(0, 1).to_pylist()[0])!r}, below the row before it",
            )
        previous = codec.encode_row(rows, rows.num_rows - 1)
        yield rows


def as_schema(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return the batch with the schema's exact types and field ids. Raises SchemaMismatchError for other columns."""
    if batch.schema.equals(schema.arrow, check_metadata=True):
        return batch
    if tuple(batch.schema.names) != schema.names:
        raise Code.COLUMN_UNEXPECTED(
            f"rows with columns {', '.join(batch.schema.names)} do not fit a table of {', '.join(schema.names)}",
            columns=batch.schema.names,
        )
    # Parquet has no seconds, so an engine may hand over milliseconds; a cast is free where the types agree.
    columns = [
        column if column.type == field.stored_type else as_stored(column, field.stored_type)
        for column, field in zip(batch.columns, schema.fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema.arrow)


class _OpenFile:
    """A data file that is being written."""

    def __init__(self, layout: Layout, path: Path, cuts: Sequence[bytes], first: pa.Table) -> None:
        self._layout = layout
        self._path = path
        self._notes: RankNotes | None = None
        self._cuts = cuts
        self._last_group_bytes = 0
        self._markers = 0
        # Arrow, or this object, holds Bloom filters until the file is closed.
        self._pending_bytes = 0
        self._bloom_rows = first.num_rows
        self._key_filters: list[pa.Buffer] = []
        self._bounds_floats = _bounds_floats(layout, first)
        self._float_bounds: FloatBounds = {}
        self._bounded = bounded_values(layout, first)
        self._first: pa.Table | None = first
        # Columns with statistics that must not stay.
        self._unbounded: set[str] = set()
        try:
            with writing_to(path.parent):
                # Arrow writes each page and its header on its own: without a buffer, two system calls a page.
                self._sink = pa.BufferedOutputStream(pa.OSFile(str(path), "wb"), _BUFFER_BYTES)
                options = _options(layout, first, [field.name for field in self._bounded])
                arrow = numbered_schema(layout.schema)
                self._writer = pq.ParquetWriter(self._sink, arrow, store_schema=False, **options)
        except BaseException:
            path.unlink(missing_ok=True)
            raise

    def takes(self, group: pa.Table) -> bool:
        """Return whether a row group fits this file: with a NaN, the file must have no float statistics."""
        return not (self._bounds_floats and _has_nan(self._layout.schema, group))

    def add(self, group: pa.Table, rows_estimate: int) -> None:
        """Write one row group. Raises Error if it is not in order."""
        schema = self._layout.schema
        keys = group.select(schema.row_key_names).combine_chunks()
        check_key_order(keys.column(0), schema)
        if self._notes is None:
            self._notes = RankNotes(schema.codec, self._cuts, rows_estimate=min(rows_estimate, group.num_rows))
        if not self._bounds_floats:
            widen(self._float_bounds, group, schema)
        if group is not self._first:
            self._unbounded.update(f.name for f in self._bounded if not _is_bounded(group.column(f.name), f))
        self._first = None
        before = self._bytes()
        with writing_to(self._path.parent):
            self._writer.write_table(group, row_group_size=group.num_rows)
        if _filters_keys(schema):
            encoded = KeyCodec(self._layout.filtered).encode_columns(keys)
            if self._layout.bloom_fields:
                # Many rows may have the same first fields.
                changes = pc.not_equal(encoded[1:], encoded[:-1])
                encoded = pa.concat_arrays([encoded[:1], encoded[1:].filter(changes)])
            self._key_filters.append(key_filter(encoded, self._layout.bloom_fpp))
        self._pending_bytes += _bloom_bytes(self._bloom_rows, self._layout)
        self._last_group_bytes = self._bytes() - before
        self._notes.add(keys)
        self._markers += _markers(group)

    def is_full(self) -> bool:
        """Return whether the file is nearer to its target size now than with another row group."""
        return self._bytes() + self._last_group_bytes // 2 >= self._layout.file_bytes

    def close(self) -> SortedFile:
        """Write the footer, which completes the file."""
        with writing_to(self._path.parent):
            if self._key_filters:
                self._write_key_filters()
            arrow = b64encode(shown_schema(self._layout.schema).serialize()).decode()
            self._writer.add_key_value_metadata({_ARROW_SCHEMA: arrow, blocks.KEY: blocks.PLACEHOLDER})
            self._writer.close()
            self._sink.close()
            if self._unbounded:
                _drop_statistics(self._path, self._unbounded)
            blocks.seal(self._path)
        notes = self._notes
        assert notes is not None
        bounds = key_bounds(self._writer.writer.metadata, self._layout.schema, self._float_bounds)
        return sorted_file(self._path, self._layout, notes.min_key, notes.summary(), bounds, markers=self._markers)

    def discard(self) -> None:
        """Remove the unfinished file."""
        # Delete the file even if the disk is full.
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        with contextlib.suppress(OSError, pa.ArrowException):
            self._sink.close()
        self._path.unlink(missing_ok=True)

    def _write_key_filters(self) -> None:
        """Write the filters after the last row group. Arrow asks the sink for its position before it writes more."""
        byte_ranges = []
        for content in self._key_filters:
            byte_ranges.append([self._sink.tell(), content.size])
            self._sink.write(content)
        location = {"fields": [field.id for field in self._layout.filtered], "byte_ranges": byte_ranges}
        self._writer.add_key_value_metadata({KEY_FILTERS: json.dumps(location, separators=(",", ":"))})

    def _bytes(self) -> int:
        return int(self._sink.tell()) + self._pending_bytes


def sorted_file(  # noqa: PLR0913 - what is known of a file
    path: Path, layout: Layout, min_key: bytes, summary: Summary, bounds: bytes, *, markers: int
) -> SortedFile:
    """Return a closed file. ``bounds`` are those of the key fields after the first."""
    keys = min_key, summary.max_key, summary
    return SortedFile(path, summary.rows, *keys, layout.schema.version, bounds, layout.added, markers)


def _markers(rows: pa.Table) -> int:
    """Return the number of rows that are deletes or partial rows."""
    if KIND not in rows.column_names:
        return 0
    return int(pc.sum(pc.not_equal(rows.column(KIND), int(RowKind.WHOLE))).as_py() or 0)


def _bloom_bytes(rows: int, layout: Layout) -> int:
    """Return the size of a filter for ``rows`` distinct values: a power of two (Parquet's BloomFilter.md)."""
    bits = -8 * rows / math.log(1 - layout.bloom_fpp ** (1 / 8))
    return int(2 ** max(5, math.ceil(math.log2(bits / 8))))


def _filters_keys(schema: Schema) -> bool:
    """Return whether filters are over encoded keys: those over single fields would be as large, and exclude less."""
    return len(schema.row_key) > 1


def check_key_order(column: pa.ChunkedArray, schema: Schema) -> None:
    """Raise Error if the first key column descends. Checked for all rows; all columns are checked between batches."""
    values = comparable(column.chunk(0))
    if len(values) > 1 and not pc.all(pc.less_equal(values[:-1], values[1:])).as_py():
        raise Code.INTERNAL_ERROR(f"rows to be written are not sorted by {schema.sort_names[0]} inside a batch")


def bounded_values(layout: Layout, first: pa.Table) -> list[Field]:
    """Return the value fields that get statistics in a file that begins with these rows."""
    off = layout.statistics_off
    names = [] if "*" in off else without_hidden([f.name for f in layout.schema.values if f.name not in off])
    fields = [layout.schema.by_name[name] for name in names]
    return [field for field in fields if key_type(field.type) and _is_bounded(first.column(field.name), field)]


def _is_bounded(column: pa.ChunkedArray, field: Field) -> bool:
    """Return whether statistics of these values bound all of them, and are short."""
    if field.key_type.has_nan:
        # A sum is quick, and NaN if a value is; or if two infinities are.
        return not (math.isnan(pc.sum(column).as_py() or 0) and pc.any(pc.is_nan(column)).as_py())
    if field.width:
        return field.width <= BOUND_BYTES_MAX
    return (pc.max(pc.binary_length(column)).as_py() or 0) <= BOUND_BYTES_MAX


def _drop_statistics(path: Path, names: Collection[str]) -> None:
    """Take the statistics of some columns out of the footer of a closed file, those of pages as well.

    Their column indexes stay in the file, where nothing refers to them any more.
    """
    with path.open("r+b") as file:
        begin = file.seek(-_TAIL_BYTES, io.SEEK_END)
        begin -= int.from_bytes(file.read(4), "little")
        file.seek(begin)
        footer = file.read()[:-_TAIL_BYTES]
        groups = decode_struct(footer)[_GROUPS]
        paths = {(name.encode(),) for name in names}
        dropped = {
            (_GROUPS, group, _CHUNKS, chunk, *field)
            for group, row_group in enumerate(groups)
            for chunk, column in enumerate(row_group[_CHUNKS])
            if tuple(column[_META][_PATH]) in paths
            for field in _STATISTICS
        }
        content = without_fields(footer, dropped.__contains__)
        file.seek(begin)
        file.write(content + len(content).to_bytes(4, "little") + b"PAR1")
        file.truncate()


def _options(layout: Layout, first: pa.Table, bounded: Sequence[str]) -> dict[str, object]:
    schema = layout.schema
    row_bytes = max(1, first.nbytes // first.num_rows)
    repetitive = _repetitive(first, schema)
    bloom = {"ndv": first.num_rows, "fpp": layout.bloom_fpp}
    # Parquet has no filters over booleans.
    unfiltered = _filters_keys(schema) or schema.row_key[0].key_type.physical == BOOLEAN
    filtered = () if unfiltered else schema.row_key_names
    unbounded = not _bounds_floats(layout, first)
    packed = [f.name for f in schema.fields if _stored_as_integer(f.type) and f.name not in repetitive]
    options = {
        "compression": str(layout.compression),
        "compression_level": _LEVELS.get(layout.compression),
        "version": "2.6",
        "use_dictionary": repetitive,
        "column_encoding": dict.fromkeys(packed, "DELTA_BINARY_PACKED"),
        "dictionary_pagesize_limit": layout.page_bytes,
        "write_statistics": [
            *(name for name in schema.sort_names if not (unbounded and is_float(schema, name))),
            *bounded,
        ],
        "write_page_index": True,
        "write_page_checksum": True,
        "data_page_size": layout.page_bytes,
        # Limits the rows of a page of keys, which would otherwise stand for megabytes of wide columns.
        "max_rows_per_page": max(1, min(layout.page_rows, _PAGE_ROWS_BYTES // row_bytes)),
        # The writer checks the page size after this many values: fewer for wide rows.
        "write_batch_size": min(1024, max(1, layout.page_bytes // (4 * row_bytes))),
        "sorting_columns": [pq.SortingColumn(index) for index in range(len(schema.sort_names))],
        "bloom_filter_options": dict.fromkeys(filtered, bloom),
    }
    if packed and layout.compression is not Compression.NONE and first.num_rows >= 16 * _PACKED_SAMPLE_ROWS:
        options |= _codecs(first.slice(0, _PACKED_SAMPLE_ROWS), packed, layout.compression, options)
    return options


def _codecs(sample: pa.Table, packed: Sequence[str], codec: Compression, options: dict[str, Any]) -> dict[str, Any]:
    """Return the codec of each leaf column: none for the ``packed`` columns that do not shrink."""
    with pq.ParquetWriter(pa.BufferOutputStream(), sample.schema, **options) as writer:
        writer.write_table(sample)
    group = writer.writer.metadata.row_group(0)
    codecs: dict[str, Compression] = {}
    for chunk in map(group.column, range(group.num_columns)):
        is_small = chunk.total_compressed_size > _COMPRESSED_SHARE_MAX * chunk.total_uncompressed_size
        codecs[chunk.path_in_schema] = Compression.NONE if is_small and chunk.path_in_schema in packed else codec
    levels = {path: _LEVELS[one] for path, one in codecs.items() if one in _LEVELS}
    return {"compression": {path: str(one) for path, one in codecs.items()}, "compression_level": levels}


def _bounds_floats(layout: Layout, first: pa.Table) -> bool:
    """Return whether a file that begins with these rows has statistics of float keys. A file that takes all rows has
    none: a later row group may have a NaN, which is not allowed in a file with them.
    """
    return layout.file_bytes < ONE_FILE_BYTES and not _has_nan(layout.schema, first)


def _has_nan(schema: Schema, rows: pa.Table) -> bool:
    """Return whether a key is NaN. Parquet omits NaN from its statistics, so readers would skip such rows."""
    floats = [rows.column(name) for name in schema.sort_names if is_float(schema, name)]
    return any(pc.any(pc.is_nan(column)).as_py() for column in floats)


def _stored_as_integer(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


_NEVER_ENCODED = (pa.types.is_nested, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)


def _repetitive(first: pa.Table, schema: Schema) -> list[str]:
    """Columns to dictionary-encode, by a sample of the first row group; only those of text, bytes and integers."""
    step = max(1, first.num_rows // _SAMPLE_ROWS)
    sample = _every(first, step) if step > 1 else first
    chosen: list[str] = []
    if sample.num_rows < _DICTIONARY_REPEATS:
        return chosen
    for field in schema.fields:
        if any(is_kind(field.type) for is_kind in _NEVER_ENCODED):
            continue
        if pc.count_distinct(plain(sample.column(field.name))).as_py() * _DICTIONARY_REPEATS <= sample.num_rows:
            chosen.append(field.name)
    return chosen


def _every(rows: pa.Table, step: int) -> pa.Table:
    """Return one row of every ``step``, batch by batch: from a table Arrow takes by copying all of it first."""
    taken = []
    passed = 0
    for batch in rows.to_batches():
        taken.append(batch.take(pa.array(range(-passed % step, batch.num_rows, step), pa.int64())))
        passed += batch.num_rows
    return pa.Table.from_batches(taken, rows.schema)
