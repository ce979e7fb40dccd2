"""Copies row groups of a data file into a new one, without decoding their values.

Pages, Bloom filters and column indexes are copied byte for byte. Only positions change: those in the footer and in the
offset indexes, which Thrift encodes with a length of its own for each number, so these structs are encoded again. The
summary of the new file has the first keys of pages, with their ranks, from the page index. If that has no whole keys,
because a key has several fields, is a float or is long, or too few ranks, because keys have many rows, the row key
columns are decoded: one row group at a time, at most :data:`~lakebed.files.parquet.file_writer.GROUP_BYTES_MAX`. At
most 4 MiB of the copied bytes are in memory.

The new file is of the layout that :mod:`lakebed.files.parquet.file_writer` writes, and is sealed as every other. Its
pages have the size, and its filters the precision, of the file that they were copied from.

Core: :func:`copyable` says whether a file may be copied from, :func:`copy_groups` copies. Rule: the caller has verified
the whole source. Errors: Error for rows out of order, StorageError; DamagedError for a footer that cannot be read.

Source: Parquet format, ``parquet.thrift``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakebed.clock import random_token
from lakebed.files.parquet.file_writer import check_key_order, sorted_file
from lakebed.files.parquet.footer import Footer, encode_plain, read_footer
from lakebed.files.parquet.key_bounds import key_bounds
from lakebed.files.parquet.layout import Layout, SortedFile
from lakebed.files.parquet.ranks import RankNotes
from lakebed.files.parquet.thrift import (
    NUMBER,
    NUMBER_32,
    RAW,
    STOP,
    Renumber,
    decode_struct,
    decode_table,
    integer,
    renumbered,
    structs_head,
    text,
)
from lakebed.model.documents import load
from lakebed.model.field_ids import inner_ids, shown_schema, stored_id
from lakebed.model.files import KEY_FILTERS
from lakebed.model.key_summaries import SAMPLES_MAX, Summary
from lakebed.storage import blocks
from lakebed.storage.disk_space import writing_to

if TYPE_CHECKING:
    from lakebed.model.schema import Schema

_MAGIC = b"PAR1"
_TAIL_BYTES = 8  # the footer's length and the magic
_COPY_BYTES = 4 * 1024 * 1024

_CHUNKS, _META = 1, 3
"""The column chunks of a row group, and the metadata of one."""
_OFFSET_INDEX, _OFFSET_INDEX_LENGTH, _COLUMN_INDEX, _COLUMN_INDEX_LENGTH = 4, 5, 6, 7
"""Fields of a column chunk."""
_PAGES, _DICTIONARY, _BLOOM, _BLOOM_LENGTH = 9, 11, 14, 15
"""Fields of the metadata of a column chunk."""

_OWN_PAIRS = (KEY_FILTERS.encode(), blocks.KEY.encode())
"""Metadata of the file that are not copied but written for the new file."""

Places = Sequence[tuple[int, int] | None]
"""The offset and length of a part of each column chunk, if it has that part."""


def copyable(path: Path, schema: Schema) -> Footer | None:
    """Return the footer of a file of Lakebed with exactly the schema's columns, which may be copied; else None."""
    with pq.ParquetFile(path) as file:
        # Not file.schema_arrow, which has JSON for texts with Parquet's annotation.
        if not _same_columns(file.metadata.schema.to_arrow_schema(), shown_schema(schema)):
            return None
    metadata, footer, size_bytes = _footer(path)
    chunks = [chunk for group in metadata[4] for chunk in group[_CHUNKS]]
    decoded = read_footer(footer, schema, str(path), size_bytes)
    # Parquet got the length of a filter later than its offset.
    sized = all(_BLOOM not in chunk[_META] or _BLOOM_LENGTH in chunk[_META] for chunk in chunks)
    return decoded if decoded.blocks is not None and sized else None


def _same_columns(stored: pa.Schema, wanted: pa.Schema) -> bool:
    """Return whether columns have the same names, types and field ids; writers keep other metadata of their own."""
    ids = [[(stored_id(column), inner_ids(column)) for column in columns] for columns in (stored, wanted)]
    return ids[0] == ids[1] and stored.equals(wanted, check_metadata=False)


def last_key(path: Path, group: int, schema: Schema) -> bytes:
    """Return the row key of the last row of a row group, encoded."""
    metadata, _, _ = _footer(path)
    pages = _key_pages(path, metadata, range(group, group + 1), schema)
    if pages:
        return pages[-1].last
    keys = _read_keys(path, group, schema)
    return schema.codec.encode_row(keys, keys.num_rows - 1)


def copy_groups(path: Path, groups: range, layout: Layout, scratch: Path, *, cuts: Sequence[bytes] = ()) -> SortedFile:
    """Return a new file in ``scratch`` with some successive row groups of a file, which must be :func:`copyable`.

    The summary has the exact rank of the ``cuts`` inside the file. No file is left if it fails.
    """
    metadata, _, _ = _footer(path)
    min_key, summary = _summary(path, metadata, groups, layout.schema, cuts)
    out = scratch / f"run-{random_token()}.parquet"
    try:
        with writing_to(scratch), path.open("rb") as source, out.open("wb") as sink:
            _Copy(source, sink, metadata, groups).write()
        with writing_to(scratch):
            blocks.seal(out)
        bounds = key_bounds(pq.read_metadata(out), layout.schema, {})
        return sorted_file(out, layout, min_key, summary, bounds, markers=0)
    except BaseException:
        out.unlink(missing_ok=True)
        raise


@dataclass(frozen=True, slots=True)
class _KeyPage:
    """A page of keys: its first and last one, encoded, and the position of its first row in the copy."""

    first: bytes
    last: bytes
    row: int


def _summary(
    path: Path, metadata: dict[int, Any], groups: range, schema: Schema, cuts: Sequence[bytes]
) -> tuple[bytes, Summary]:
    """Return the first key of some row groups, and their summary, by their page index if it has whole keys."""
    rows = sum(metadata[4][group][3] for group in groups)
    pages = _key_pages(path, metadata, groups, schema)
    if pages and not any(pages[0].first < cut <= pages[-1].last for cut in cuts):
        summary = _summary_of(pages, rows)
        # A summary needs enough ranks: keys with many rows hide too many page boundaries.
        if max(high - low for low, high in pairwise([*summary.ranks, rows])) * (SAMPLES_MAX // 2) <= rows:
            return pages[0].first, summary
    notes = RankNotes(schema.codec, cuts, rows_estimate=metadata[4][groups[0]][3])
    for group in groups:
        notes.add(_read_keys(path, group, schema))
    return notes.min_key, notes.summary()


def _summary_of(pages: Sequence[_KeyPage], rows: int) -> Summary:
    """Return the ranks of first keys of pages. A key that ends the previous page has an unknown rank."""
    stride = rows // (SAMPLES_MAX - 1) + 1
    noted, due = {pages[0].first: 0}, stride
    for before, page in pairwise(pages):
        if page.row >= due and before.last < page.first:
            noted[page.first] = page.row
            due = page.row + stride
    return Summary(tuple(noted), tuple(noted.values()), rows, pages[-1].last)


def _key_pages(path: Path, metadata: dict[int, Any], groups: range, schema: Schema) -> list[_KeyPage]:
    """Return the pages of keys of some row groups; none if the page index has no exact keys.

    It has them if a key is one text, bytes or number; floats have two zeros, and long values no bounds.
    """
    field = schema.row_key[0]
    if len(schema.row_key) > 1 or not field.key_type.has_exact_bounds:
        return []
    pages: list[_KeyPage] = []
    row = 0
    with path.open("rb") as source:
        for group in groups:
            # Key columns come first.
            chunk = metadata[4][group][_CHUNKS][0]
            if _COLUMN_INDEX not in chunk or _OFFSET_INDEX not in chunk:
                return []
            source.seek(chunk[_COLUMN_INDEX])
            bounds = decode_struct(source.read(chunk[_COLUMN_INDEX_LENGTH]))
            source.seek(chunk[_OFFSET_INDEX])
            places = decode_table(source.read(chunk[_OFFSET_INDEX_LENGTH]), bytes([NUMBER, NUMBER_32, NUMBER]))
            pages += [
                _KeyPage(encode_plain(field, low), encode_plain(field, high), row + first)
                for low, high, first in zip(bounds[2], bounds[3], places[:, 2].tolist(), strict=True)
            ]
            row += metadata[4][group][3]
    return pages


def _read_keys(path: Path, group: int, schema: Schema) -> pa.Table:
    """Return the row key columns of a row group. Raises Error unless they are in order."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        keys = file.read_row_group(group, columns=list(schema.row_key_names), use_threads=False).combine_chunks()
    check_key_order(keys.column(0), schema)
    return keys


def _footer(path: Path) -> tuple[dict[int, Any], bytes, int]:
    """Return the decoded metadata, the footer's bytes, and the size of the file."""
    with path.open("rb") as file:
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(size_bytes - _TAIL_BYTES)
        length = int.from_bytes(file.read(4), "little") + _TAIL_BYTES
        file.seek(size_bytes - length)
        footer = file.read(length)
    return decode_struct(footer[:-_TAIL_BYTES]), footer, size_bytes


class _Copy:
    """One file that is copied into another."""

    def __init__(self, source: Any, sink: Any, metadata: dict[int, Any], groups: range) -> None:
        self._source, self._sink = source, sink
        self._metadata, self._groups = metadata, groups
        self._chosen = [metadata[4][group] for group in groups]
        # Row groups follow one another, so the bytes of all pages are one range.
        extents = [extent for group in self._chosen for extent in _extents(group)]
        self._begin = min(begin for begin, _ in extents)
        self._end = max(end for _, end in extents)
        self._moved = len(_MAGIC) - self._begin

    def write(self) -> None:
        self._sink.write(_MAGIC)
        self._append(self._begin, self._end - self._begin)
        key_filters = self._key_filters()
        blooms = [[self._bloom(chunk) for chunk in group[_CHUNKS]] for group in self._chosen]
        columns = [[self._column_index(chunk) for chunk in group[_CHUNKS]] for group in self._chosen]
        offsets = [[self._offset_index(chunk) for chunk in group[_CHUNKS]] for group in self._chosen]
        groups = [
            renumbered(group[RAW], self._renumbering(ordinal, *places))
            for ordinal, (group, *places) in enumerate(zip(self._chosen, blooms, columns, offsets, strict=True))
        ]
        pairs = [pair[RAW] for pair in self._metadata.get(5, ()) if pair[1] not in _OWN_PAIRS] + key_filters
        pairs.append(text(1, blocks.KEY.encode()) + text(1, blocks.PLACEHOLDER.encode()) + STOP)
        footer = (
            integer(1, self._metadata[1], bits=32)
            + _structs(1, [element[RAW] for element in self._metadata[2]])
            + integer(1, sum(group[3] for group in self._chosen))
            + _structs(1, groups)
            + _structs(1, pairs)
            + (text(1, self._metadata[6]) if 6 in self._metadata else b"")
        )
        if 7 in self._metadata:
            footer += _structs(1 if 6 in self._metadata else 2, [order[RAW] for order in self._metadata[7]])
        footer += STOP
        self._sink.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)

    def _append(self, offset: int, length: int) -> tuple[int, int]:
        """Copy bytes of the source; offset and length of the copy."""
        begin, bytes_left = self._sink.tell(), length
        self._source.seek(offset)
        while bytes_left:
            content = self._source.read(min(bytes_left, _COPY_BYTES))
            if not content:
                raise OSError(f"{self._source.name} ends {bytes_left} bytes too soon")
            self._sink.write(content)
            bytes_left -= len(content)
        return begin, length

    def _bloom(self, chunk: dict[int, Any]) -> tuple[int, int] | None:
        meta = chunk[_META]
        return self._append(meta[_BLOOM], meta[_BLOOM_LENGTH]) if _BLOOM_LENGTH in meta else None

    def _column_index(self, chunk: dict[int, Any]) -> tuple[int, int] | None:
        if _COLUMN_INDEX not in chunk:
            return None
        return self._append(chunk[_COLUMN_INDEX], chunk[_COLUMN_INDEX_LENGTH])

    def _offset_index(self, chunk: dict[int, Any]) -> tuple[int, int] | None:
        if _OFFSET_INDEX not in chunk:
            return None
        self._source.seek(chunk[_OFFSET_INDEX])
        content = self._source.read(chunk[_OFFSET_INDEX_LENGTH])

        def number_of(path: tuple[int, ...], number: int) -> int:
            # Field 1 is the list of pages; field 1 of each is its position.
            return number + self._moved if path[0] == 1 and path[2:] == (1,) else number

        content = renumbered(content, number_of)
        begin = self._sink.tell()
        self._sink.write(content)
        return begin, len(content)

    def _key_filters(self) -> list[bytes]:
        """Copy the filters over whole keys, and return the metadata pair with their locations."""
        pairs: Mapping[bytes, bytes] = {pair[1]: pair[2] for pair in self._metadata.get(5, ()) if 2 in pair}
        if KEY_FILTERS.encode() not in pairs:
            return []
        location = load(pairs[KEY_FILTERS.encode()])
        location["byte_ranges"] = [self._append(*location["byte_ranges"][group]) for group in self._groups]
        value = json.dumps(location, separators=(",", ":")).encode()
        return [text(1, KEY_FILTERS.encode()) + text(1, value) + STOP]

    def _renumbering(self, ordinal: int, blooms: Places, columns: Places, offsets: Places) -> Renumber:
        """Return the new numbers of a row group, given the parts of each column chunk in the new file."""

        def number_of(path: tuple[int, ...], number: int) -> int:
            match path:
                case (1, _, 2) | (1, _, 3, 9 | 10 | 11) | (5,):
                    # Writers store zero for a missing part.
                    return number + self._moved if number else 0
                case (1, chunk, 3, 14):
                    return _placed(blooms[chunk])[0]
                case (1, chunk, 4):
                    return _placed(offsets[chunk])[0]
                case (1, chunk, 5):
                    return _placed(offsets[chunk])[1]
                case (1, chunk, 6):
                    return _placed(columns[chunk])[0]
                case (7,):
                    return ordinal
                case _:
                    return number

        return number_of


def _placed(location: tuple[int, int] | None) -> tuple[int, int]:
    if location is None:
        raise ValueError("a position without a length")
    return location


def _extents(group: dict[int, Any]) -> Iterator[tuple[int, int]]:
    """Begin and end of the pages of each column chunk."""
    for chunk in group[_CHUNKS]:
        meta = chunk[_META]
        begin = min(meta[_PAGES], meta.get(_DICTIONARY) or meta[_PAGES])
        yield begin, begin + meta[7]


def _structs(step: int, encoded: Sequence[bytes]) -> bytes:
    return structs_head(step, len(encoded)) + b"".join(encoded)
